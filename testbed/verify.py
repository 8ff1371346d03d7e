"""A run made again from its manifest and held against what it was; and what else has changed.

How a run is made is the runner's, how contents are compared `results.fingerprint`'s.
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
from rich.table import Table

from testbed.errors import InputError, TestbedError
from testbed.machines.watching import Step
from testbed.plan import check_output
from testbed.plan_model import Patch, Plan, TgenProgram
from testbed.results import Run, kept_patch, read_run
from testbed.results.fingerprint import MISSING, Difference, differing
from testbed.results.made_by import NOT_RECORDED, SHOWN_DIGITS, Version, ran_with
from testbed.runner import carry_out
from testbed.setup import cache
from testbed.setup.tor import tree_sha256


@dataclass(frozen=True)
class Changed:
    """Something that a run ran with and that is another now."""

    what: str
    then: str
    now: str


@dataclass(frozen=True)
class Verified:
    """A run held against the same one made again.

    Attributes:
        fingerprint, fingerprint_now: of the run, and of the one made again.
        tables: how many there are, the summary among them.
        differing: the first difference of each table that differs.
        changed: what they did not run alike with.
    """

    run: Path
    fingerprint: str
    fingerprint_now: str
    tables: int
    differing: Sequence[Difference]
    changed: Sequence[Changed]

    @property
    def equal(self) -> bool:
        """Whether both say the same, to the last digit."""
        return self.fingerprint == self.fingerprint_now


def verify(
    directory: Path,
    messages: Console,
    on_step: Callable[[Step], None],
    *,
    out: Path | None = None,
) -> Verified:
    """Make a run again, of the plan in its manifest, and compare.

    Args:
        directory: the run's.
        messages: where the set-up shows what it does.
        on_step: called with each step of the experiment.
        out: where the run made again is kept; otherwise it is removed.

    Raises:
        InputError: there is no run that can be made again, or something stands at `out`.
        TestbedError: the run failed this time.
    """
    run = repeatable_run(directory)
    plan = plan_to_repeat(run)
    with _place(out) as destination:
        captures = run.manifest.get("captures", ())
        carry_out(plan, destination, messages, on_step, captures=captures)
        return compared(run, read_run(destination))


def repeatable_run(directory: Path) -> Run:
    """The run of a directory, if one can expect to get it again.

    Raises:
        InputError: it can't be read, isn't as it was written, or took place in real time.
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
    """The plan of a run, with its patches where they are kept.

    Raises:
        InputError: the plan can't be read, or something that it names is gone or another by now.
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
    """A run held against another one of the same plan."""
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
    """The same as plain data, for programs."""
    return {
        **asdict(verified),
        "run": str(verified.run),
        "equal": verified.equal,
    }


def print_verified(console: Console, verified: Verified) -> None:
    """Say whether the runs are equal, where they differ first, and what has changed."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if verified.equal:
        digits = verified.fingerprint[:SHOWN_DIGITS]
        say(f"equal: all {verified.tables} tables, summary.json among them; fingerprint {digits}")
    else:
        first, *others = verified.differing
        say(f"not equal: {first.place}: {first.one} then, {first.other} now")
        for other in others:
            say(f"also {other.place}: {other.one} then, {other.other} now")
        say(f"{verified.tables - len(verified.differing)} of {verified.tables} tables are equal")
    if not verified.changed:
        say("What it ran with is the same, as far as is recorded.")
        return
    table = Table("what it ran with", "then", "now", box=None)
    for one in verified.changed:
        table.add_row(one.what, one.then, one.now)
    console.print(table)


@contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    """Where the run made again goes; removed afterwards if nobody named it."""
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
