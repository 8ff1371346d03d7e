"""The runs below a directory: which count, in groups that may be averaged, and which don't and why.

Runs are read, never made; what they say is computed elsewhere.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.order import (
    BASELINE,
    IN_BUNDLES,
    SCENARIO_ORDER,
    TRAFFIC_ORDER,
    USUAL_TRAFFIC,
    VARIANT_ORDER,
)
from testbed.errors import InputError, TestbedError
from testbed.plan_differences import differences
from testbed.results import Run, read_run

_RUN_FILES = {"summary.json", "manifest.json", "error.txt"}


@dataclass(frozen=True, order=True)
class Group:
    """What runs must share to be averaged, by its names: all but the seed."""

    variant: str
    scenario: str
    traffic: str
    duration_s: float

    @classmethod
    def of(cls, run: Run) -> "Group":
        """The group of a run."""
        summary = run.summary
        return cls(summary.variant, summary.scenario, summary.traffic, summary.duration_s)

    @property
    def place(self) -> tuple[object, ...]:
        """Where the group stands in a table: by variant, then by scenario."""
        return (
            _place(self.variant, VARIANT_ORDER),
            _place(self.traffic, TRAFFIC_ORDER),
            self.duration_s,
            _place(self.scenario, SCENARIO_ORDER),
        )

    @property
    def label(self) -> str:
        """The scenario, and the traffic if it is another than the usual."""
        return self.scenario if self.traffic == USUAL_TRAFFIC else f"{self.scenario}-{self.traffic}"

    @property
    def baseline(self) -> "Group":
        """The group without loss that this one's change is against."""
        scenario = f"{BASELINE}{IN_BUNDLES}" if self.in_bundles else BASELINE
        return Group(self.variant, scenario, self.traffic, self.duration_s)

    @property
    def in_bundles(self) -> bool:
        """Whether it is one of the testbed's scenarios whose links carry TCP's bundles whole."""
        return self.scenario in SCENARIO_ORDER and self.scenario.endswith(IN_BUNDLES)


@dataclass(frozen=True)
class Found:
    """Runs that were looked for, all made by the same Tor, kernel, machine and testbed.

    Attributes:
        valid: those that count, by group, sorted by seed; the groups in the order of tables.
        left_out: a line for each that doesn't: which, and why.
        made_by: what made these and not those that stand apart, in words; empty if none do.
        apart: runs that something else made; nothing is computed of these and those together.
    """

    valid: Mapping[Group, Sequence[Run]]
    left_out: Sequence[str]
    made_by: str = ""
    apart: Sequence["Found"] = ()

    @property
    def parts(self) -> tuple["Found", ...]:
        """All that were found: these and those that stand apart."""
        return (self, *self.apart)

    @property
    def count(self) -> int:
        """How many of these runs count."""
        return sum(map(len, self.valid.values()))


def find_runs(directory: Path, *, mixed: bool = False, whole: bool = True) -> Found:
    """Read every run below a directory, in whatever folders they lie.

    Directories with a leading dot are runs under way.

    Args:
        mixed, whole: as of `read_runs`.

    Raises:
        InputError: there is no such directory, or no run below it.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory: give one with run directories below it")
    found = read_runs(_run_directories(directory), mixed=mixed, whole=whole)
    if not found.valid and not found.left_out:
        raise InputError(f"{directory} holds no run: make one with ./run.py scenario")
    return found


def read_runs(folders: Iterable[Path], *, mixed: bool = False, whole: bool = True) -> Found:
    """Read runs and sort them.

    Left out, with their reasons: failed, damaged and invalid runs, all but the first run of one
    plan, which says nothing new, and runs whose plan differs from that of the group's first in more
    than the seed, or whose Tor does.

    Args:
        mixed: put runs together although another Tor, kernel, machine or testbed made them.
        whole: leave out runs of which only summary and manifest are there.
    """
    valid: list[Run] = []
    left_out: list[str] = []
    for folder in folders:
        try:
            run = read_run(folder, whole=whole)
            _ = run.clients_under_test
        except TestbedError as error:
            left_out.append(f"{folder}: {error}")
            continue
        if run.summary.valid:
            valid.append(run)
        else:
            failed = ", ".join(check.name for check in run.summary.checks if check.failed)
            left_out.append(f"{folder}: invalid: {failed}")
    parts = [({}, valid)] if mixed or not valid else _made_alike(valid)
    grouped = [_grouped(runs, left_out, mixed=mixed) for _, runs in parts]
    words = _words_for([made_by for made_by, _ in parts])
    apart = [Found(groups, [], text) for groups, text in zip(grouped[1:], words[1:], strict=True)]
    return Found(grouped[0], left_out, words[0], apart)


def _made_alike(runs: Iterable[Run]) -> list[tuple[Mapping[str, str], list[Run]]]:
    """The runs by what made them, the largest part first.

    A variant with a Tor of its own stands with the first part that is like it in all else.
    """
    parts: list[tuple[Mapping[str, str], list[Run]]] = []
    for run in sorted(runs, key=lambda run: -len(run.makers)):
        of_run = run.makers.items()
        alike = (part for made_by, part in parts if of_run <= made_by.items())
        if (part := next(alike, None)) is None:
            parts.append((run.makers, [run]))
        else:
            part.append(run)
    return sorted(parts, key=lambda part: -len(part[1]))


def _words_for(parts: Sequence[Mapping[str, str]]) -> list[str]:
    """What each part was made by, as far as that tells it from the others."""
    names = dict.fromkeys(name for part in parts for name in part)
    telling = [name for name in names if len({part.get(name) for part in parts}) > 1]
    return [", ".join(f"{name} {part[name]}" for name in telling if name in part) for part in parts]


def _grouped(
    runs: Iterable[Run], left_out: list[str], *, mixed: bool
) -> dict[Group, Sequence[Run]]:
    """The runs in groups, in the order of tables; those that don't fit in are left out."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        group = groups[Group.of(run)]
        if reason := _reason_against(run, group, mixed=mixed):
            left_out.append(f"{run.directory}: {reason}")
        else:
            group.append(run)
    return {
        group: sorted(groups[group], key=lambda run: run.summary.seed)
        for group in sorted(groups, key=lambda group: group.place)
    }


def _reason_against(run: Run, group: Sequence[Run], *, mixed: bool) -> str | None:
    for other in group:
        if other.manifest["plan_key"] == run.manifest["plan_key"]:
            return f"of the same plan as {other.directory}"
    if not group:
        return None
    first = group[0]
    differing = differences(run.manifest["plan"], first.manifest["plan"], but_seed=True)
    if not mixed and run.tor_key != first.tor_key:  # of a variant's own tree
        differing = differing or f"Tor is of build {run.tor_key}, not {first.tor_key}"
    if differing:
        return f"not averaged with {first.directory}: {differing}: move one of them elsewhere"
    return None


def _run_directories(directory: Path) -> Iterator[Path]:
    """Directories that are runs or what is left of one, sorted; runs don't hold other runs."""
    for folder, folders, files in os.walk(directory):
        if _RUN_FILES & set(files):
            folders.clear()
            yield Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)
