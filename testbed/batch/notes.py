"""What a batch and its runs tell each other, by files: on a cluster they share nothing else.

Notes are of one call of `batch` and gone with the next; what there is of a run, its own directory
says.
"""

import json
from dataclasses import asdict
from pathlib import Path

from testbed.machines.watching import Step
from testbed.plan_model import Plan
from testbed.runner import plan_need
from testbed.setup.builds import Build
from testbed.setup.ready import Ready

ENDED = "ended"
"""The file that Snakemake waits for."""
BEGUN = "begun"
"""The file that says on which node a run's last try began."""

KILLED = "its process was killed"
ENDED_FROM_OUTSIDE = "it was ended from outside"
UNEXPLAINED = (KILLED, ENDED_FROM_OUTSIDE)
"""Failures of which the run itself knows no reason."""


class Note:
    """The folder of one run: what is asked, how far it is, how its tries failed, that it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, plan: Plan, destination: Path, ready: Ready) -> None:
        """Write down what is to be run, with which builds, and where its results go.

        A node's compiler may be another one, so that it would look for other builds.
        """
        self.folder.mkdir(parents=True)
        asked = {
            "plan": plan.model_dump(mode="json"),
            "destination": str(destination.absolute()),
            "kernel": str(ready.kernel.folder),
            "tor": str(ready.tors[plan_need(plan)].folder),
        }
        (self.folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")

    def asked(self) -> tuple[Plan, Path, Ready]:
        """What `ask` wrote."""
        asked = json.loads((self.folder / "asked.json").read_text(encoding="utf-8"))
        plan = Plan.model_validate(asked["plan"])
        tors = {plan_need(plan): Build(Path(asked["tor"]))}
        return plan, Path(asked["destination"]), Ready(Build(Path(asked["kernel"])), tors)

    def began(self, node: str) -> None:
        """Write down that a try is under way; if one was, that it must have been killed."""
        if (self.folder / "step.json").exists():
            self.failed(KILLED)
        self._write(BEGUN, f"{node}\n")
        self.step(Step(0.0, "starting", 0.0, 0.0))

    def step(self, step: Step) -> None:
        """Write down how far the run is."""
        self._write("step.json", json.dumps(asdict(step)))

    def failed(self, error: str) -> None:
        """Write down how a try failed, which is then no longer under way."""
        (self.folder / "step.json").unlink(missing_ok=True)
        self._write(f"failed-{len(self.failures()) + 1}.txt", f"{error}\n")

    def ended(self, *, valid: bool) -> None:
        """Write down that there is a run."""
        self._write(ENDED, json.dumps(valid))

    def last_step(self) -> Step | None:
        """How far the run is; None if it isn't under way."""
        if not (self.folder / "step.json").exists() or self.validity() is not None:
            return None
        try:
            return Step(**json.loads((self.folder / "step.json").read_text(encoding="utf-8")))
        except OSError:  # it failed meanwhile, or on NFS: there is a newer one
            return None

    def failures(self) -> list[str]:
        """The error of each try that failed."""
        files = sorted(self.folder.glob("failed-*.txt"))
        return [file.read_text(encoding="utf-8").strip() for file in files]

    def validity(self) -> bool | None:
        """Whether the run that there is counts; None if there is none."""
        try:
            valid: bool = json.loads((self.folder / ENDED).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return valid

    def _write(self, name: str, text: str) -> None:
        """In one step: somebody may be reading."""
        partial = self.folder / f".{name}"
        partial.write_text(text, encoding="utf-8")
        partial.rename(self.folder / name)
