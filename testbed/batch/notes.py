"""Notes through which a batch and its runs communicate: files, as a cluster shares nothing else.

The next call of `batch` removes them. Whether a run exists, only its own directory tells.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path

from testbed.machines.watching import Step
from testbed.plan.model import Plan
from testbed.runs.runner import plan_need
from testbed.setup.builds import Build
from testbed.setup.ready import Ready

ENDED = "ended"
"""The file that Snakemake waits for."""
BEGUN = "begun"
"""The file that names the node on which a run's last try began."""

KILLED = "its process was killed"
ENDED_FROM_OUTSIDE = "it was ended from outside"
UNEXPLAINED = (KILLED, ENDED_FROM_OUTSIDE)
"""Failures whose reason the run itself doesn't know."""

_TRY = re.compile(r"\d+")
"""The number of a try in the name of its file."""


class Note:
    """The folder of one run: its task, its progress, its failed tries, and its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(self, plan: Plan, destination: Path, ready: Ready) -> None:
        """Write the task: the plan, its builds, and where the results go.

        The builds are named because a node with another compiler would look for others.
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
        """Read what `ask` wrote."""
        asked = json.loads((self.folder / "asked.json").read_text(encoding="utf-8"))
        plan = Plan.model_validate(asked["plan"])
        tors = {plan_need(plan): Build(Path(asked["tor"]))}
        return plan, Path(asked["destination"]), Ready(Build(Path(asked["kernel"])), tors)

    def began(self, node: str) -> None:
        """Note that a try begins. If another one still seems to run, note that it was killed."""
        if (self.folder / "step.json").exists():
            self.failed(KILLED)
        self._write(BEGUN, f"{node}\n")
        self.step(Step(0.0, "starting", 0.0, 0.0))

    def step(self, step: Step) -> None:
        """Note the run's progress."""
        self._write("step.json", json.dumps(asdict(step)))

    def failed(self, error: str) -> None:
        """Note that the current try has failed, and why."""
        (self.folder / "step.json").unlink(missing_ok=True)
        self._write(f"failed-{len(self.failures()) + 1}.txt", f"{error}\n")

    def ended(self, *, valid: bool) -> None:
        """Note that the run exists, and whether it is valid."""
        self._write(ENDED, json.dumps(valid))

    def last_step(self) -> Step | None:
        """The run's progress; None if no try is under way."""
        if not (self.folder / "step.json").exists() or self.validity() is not None:
            return None
        try:
            return Step(**json.loads((self.folder / "step.json").read_text(encoding="utf-8")))
        except OSError:  # the try has just failed; or, on NFS, a newer file has replaced it
            return None

    def failures(self) -> list[str]:
        """The error of each failed try."""
        files = {int(_TRY.findall(file.name)[0]): file for file in self.folder.glob("failed-*.txt")}
        return [files[one].read_text(encoding="utf-8").strip() for one in sorted(files)]

    def validity(self) -> bool | None:
        """Whether the run is valid; None if there is none yet."""
        try:
            valid: bool = json.loads((self.folder / ENDED).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return valid

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically: another process may be reading it."""
        partial = self.folder / f".{name}"
        partial.write_text(text, encoding="utf-8")
        partial.rename(self.folder / name)
