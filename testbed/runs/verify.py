"""Makes a run again from its manifest, and compares the two runs and the software behind them.

How a run is made is `runner`'s, how contents are compared `results.fingerprint`'s.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed.asked.output import check_output
from testbed.basics import cache
from testbed.basics.errors import InputError, TestbedError
from testbed.machines.watching import Step
from testbed.plan.model import Plan
from testbed.plan.programs import Patch, TgenProgram
from testbed.results import Run, kept_patch, read_run
from testbed.results.fingerprint import MISSING, Difference, differing
from testbed.results.made_by import NOT_RECORDED, SHOWN_DIGITS, Version, ran_with
from testbed.runs.runner import carry_out
from testbed.setup.tor import tree_sha256


@dataclass(frozen=True)
class Changed:
    """A program or setting of a run that is different now."""

    what: str
    then: str
    now: str


@dataclass(frozen=True)
class Verified:
    """The comparison of a run with the same run made again.

    Attributes:
        fingerprint, fingerprint_now: the fingerprints of the old and of the new run.
        tables: the number of tables, including the summary.
        differing: the first difference in each table that differs.
        changed: the programs and settings that differ.
    """

    run: Path
    fingerprint: str
    fingerprint_now: str
    tables: int
    differing: Sequence[Difference]
    changed: Sequence[Changed]

    @property
    def equal(self) -> bool:
        """Whether both runs are equal to the last digit."""
        return self.fingerprint == self.fingerprint_now


def verify(
    directory: Path,
    messages: Console,
    on_step: Callable[[Step], None],
    *,
    out: Path | None = None,
) -> Verified:
    """Make a run again from the plan in its manifest, and compare the two.

    Args:
        directory: the run's directory.
        messages: where the set-up shows its progress.
        on_step: called with each step of the experiment.
        out: where the new run is kept; None to remove it.

    Raises:
        InputError: there is no run that can be made again, or `out` exists.
        TestbedError: the new run failed.
    """
    run = repeatable_run(directory)
    plan = plan_to_repeat(run)
    with _place(out) as destination:
        captures = run.manifest.get("captures", ())
        carry_out(plan, destination, messages, on_step, captures=captures)
        return compared(run, read_run(destination))


def repeatable_run(directory: Path) -> Run:
    """Read a run that can be repeated exactly.

    Raises:
        InputError: it can't be read, was changed, or was made in real time.
    """
    try:
        run = read_run(directory)
        now = run.contents.fingerprint
    except TestbedError as error:
        raise InputError(f"{error}: there is no run to verify") from None
    if run.summary.machine != "virtual":
        raise InputError(
            f"{directory}: it ran on the {run.summary.machine} machine, in real time, which nothing"
            " repeats: only runs of the virtual machine can be verified"
        )
    if run.fingerprint not in (None, now):
        raise InputError(
            f"{directory}: its tables or its summary were changed: their fingerprint is"
            f" {now[:SHOWN_DIGITS]}, the manifest's {run.shown_fingerprint}"
        )
    return run


def plan_to_repeat(run: Run) -> Plan:
    """The plan of a run, with the paths of its kept patches.

    Raises:
        InputError: the plan can't be read, or a file that it names is gone or was changed.
    """
    try:
        plan = run.plan
    except TestbedError as error:
        raise InputError(f"{error}: it can't be made again") from None
    if plan.tor.source:
        _check_tree(run, Path(plan.tor.source))
    if plan.tgen:
        _check_generator(run, plan.tgen)
    patches = tuple(_where_kept(run, patch) for patch in plan.tor.patches)
    return plan.model_copy(update={"tor": plan.tor.model_copy(update={"patches": patches})})


def compared(run: Run, again: Run) -> Verified:
    """Compare a run with another one of the same plan."""
    contents, contents_now = run.contents, again.contents
    return Verified(
        run=run.directory,
        fingerprint=contents.fingerprint,
        fingerprint_now=contents_now.fingerprint,
        tables=len({*contents.tables, *contents_now.tables}) + 1,
        differing=list(differing(contents, contents_now)),
        changed=list(_changed(ran_with(run.manifest), ran_with(again.manifest))),
    )


def record(verified: Verified) -> dict[str, Any]:
    """The comparison as plain data, for programs."""
    return {
        **asdict(verified),
        "run": str(verified.run),
        "equal": verified.equal,
    }


@contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    """Where the new run goes; a temporary place, removed afterwards, without `out`."""
    if out is not None:
        check_output(out)
        yield out
        return
    place = cache.subfolder("runs") / f"verify-{os.getpid()}"  # a failed run stays beside it
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _check_tree(run: Run, tree: Path) -> None:
    if not tree.is_dir():
        raise InputError(
            f"{run.directory} can't be made again: its Tor was built from {tree}, which is gone"
        )
    if tree_sha256(tree) != run.manifest["tor"]["sources"][0]["sha256"]:
        raise InputError(
            f"{run.directory} can't be made again: its Tor was built from {tree}, which was changed"
            " since: put back what was there"
        )


def _check_generator(run: Run, tgen: TgenProgram) -> None:
    try:
        content = Path(tgen.path).read_bytes()
    except OSError as error:
        raise InputError(
            f"{run.directory} can't be made again: its generator was {tgen.path}: {error.strerror}"
        ) from None
    if hashlib.sha256(content).hexdigest() != tgen.sha256:
        raise InputError(
            f"{run.directory} can't be made again: its generator {tgen.path} is another program"
            f" now: put back the one with the SHA-256 {tgen.sha256}"
        )


def _where_kept(run: Run, patch: Patch) -> Patch:
    file = kept_patch(run.directory, patch)
    if file is None:
        raise InputError(
            f"{run.directory} can't be made again: it has not kept its patch {patch.name}, and"
            f" {patch.file()} isn't the one it was: its SHA-256 was {patch.sha256}"
        )
    return patch.model_copy(update={"path": str(file.absolute())})


def _changed(then: Mapping[str, Version], now: Mapping[str, Version]) -> Iterator[Changed]:
    for what in dict.fromkeys([*then, *now]):
        one, other = then.get(what, NOT_RECORDED), now.get(what, NOT_RECORDED)
        if isinstance(one, str) or isinstance(other, str):
            if one != other:
                yield Changed(what, _in_words(one), _in_words(other))
            continue
        for name in dict.fromkeys([*one, *other]):
            if one.get(name) != other.get(name):
                yield Changed(f"{what}: {name}", one.get(name, MISSING), other.get(name, MISSING))


def _in_words(version: Version) -> str:
    return version if isinstance(version, str) else ", ".join(map(" ".join, version.items()))
