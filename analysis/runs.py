"""The runs below a directory: those that count, in groups that may be averaged, and those left out.

Runs are read here, never made; statistics over them are computed elsewhere.
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
from testbed.basics.errors import InputError, TestbedError
from testbed.results import Run, read_run
from testbed.results.differences import differences

_RUN_FILES = {"summary.json", "manifest.json", "error.txt"}


@dataclass(frozen=True, order=True)
class Group:
    """The names that runs must share to be averaged: all but the seed."""

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
    def sort_key(self) -> tuple[object, ...]:
        """The key that orders groups in tables: by variant first, by scenario last."""
        return (
            _rank(self.variant, VARIANT_ORDER),
            _rank(self.traffic, TRAFFIC_ORDER),
            self.duration_s,
            _rank(self.scenario, SCENARIO_ORDER),
        )

    @property
    def label(self) -> str:
        """The scenario, with the traffic model unless it is the usual one."""
        return self.scenario if self.traffic == USUAL_TRAFFIC else f"{self.scenario}-{self.traffic}"

    @property
    def baseline(self) -> "Group":
        """The group without loss that changes in this one are measured against."""
        scenario = f"{BASELINE}{IN_BUNDLES}" if self.in_bundles else BASELINE
        return Group(self.variant, scenario, self.traffic, self.duration_s)

    @property
    def in_bundles(self) -> bool:
        """Whether it is one of the testbed's scenarios whose links carry bundles as a whole."""
        return self.scenario in SCENARIO_ORDER and self.scenario.endswith(IN_BUNDLES)


Groups = Mapping[Group, Sequence[Run]]
"""Runs by group."""


def alike(groups: Groups) -> Iterator[Groups]:
    """Split groups into those of the same scenario, traffic model and duration, in their order."""
    settings = ((one.scenario, one.traffic, one.duration_s) for one in groups)
    for setting in dict.fromkeys(settings):
        yield {
            group: runs
            for group, runs in groups.items()
            if (group.scenario, group.traffic, group.duration_s) == setting
        }


@dataclass(frozen=True)
class Found:
    """Runs that were found, all made by the same Tor, kernel, machine and testbed.

    Attributes:
        valid: the runs that count, by group and sorted by seed; groups are in the order of tables.
        left_out: a line for each other run, with the reason.
        invalid: those of them whose premise failed.
        made_by: what made these runs, as far as it differs from the runs in `apart`; empty if
            there are none.
        apart: runs made by something else; no statistics mix them with these.
    """

    valid: Groups
    left_out: Sequence[str]
    made_by: str = ""
    apart: Sequence["Found"] = ()
    invalid: Sequence[Run] = ()

    @property
    def parts(self) -> tuple["Found", ...]:
        """All runs that were found: these, and those that stand apart."""
        return (self, *self.apart)

    @property
    def count(self) -> int:
        """The number of runs that count, without those that stand apart."""
        return sum(map(len, self.valid.values()))


def find_runs(directory: Path, *, mixed: bool = False, whole: bool = True) -> Found:
    """Read every run below a directory, at any depth.

    Directories with a leading dot are runs under way and are skipped.

    Args:
        mixed, whole: see `read_runs`.

    Raises:
        InputError: the directory doesn't exist or holds no run.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory: give one with run directories below it")
    found = read_runs(_run_directories(directory), mixed=mixed, whole=whole)
    if not found.valid and not found.left_out:
        raise InputError(f"{directory} holds no run: make one with ./run.py scenario")
    return found


def read_runs(folders: Iterable[Path], *, mixed: bool = False, whole: bool = True) -> Found:
    """Read runs and group them.

    These are left out, with the reason: failed, damaged and invalid runs; all but the first run of
    a plan, as others say nothing new; and runs whose Tor, or whose plan in more than the seed,
    differs from that of the group's first run.

    Args:
        mixed: group runs together even if different Tors, kernels, machines or testbeds made them.
        whole: leave out runs that have only their summary and manifest.
    """
    valid: list[Run] = []
    invalid: list[Run] = []
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
            invalid.append(run)
            failed = ", ".join(check.name for check in run.summary.failed_checks)
            left_out.append(f"{folder}: invalid: {failed}")
    parts = [({}, valid)] if mixed or not valid else _made_alike(valid)
    grouped = [_grouped(runs, left_out, mixed=mixed) for _, runs in parts]
    words = _words_for([made_by for made_by, _ in parts])
    apart = [Found(groups, [], text) for groups, text in zip(grouped[1:], words[1:], strict=True)]
    return Found(grouped[0], left_out, words[0], apart, invalid)


def _made_alike(runs: Iterable[Run]) -> list[tuple[Mapping[str, str], list[Run]]]:
    """Split runs by what made them, the largest part first.

    A variant with a Tor of its own joins the first part that is like it in everything else.
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
    """A description of what made each part, as far as it differs from the others."""
    names = dict.fromkeys(name for part in parts for name in part)
    telling = [name for name in names if len({part.get(name) for part in parts}) > 1]
    return [", ".join(f"{name} {part[name]}" for name in telling if name in part) for part in parts]


def _grouped(
    runs: Iterable[Run], left_out: list[str], *, mixed: bool
) -> dict[Group, Sequence[Run]]:
    """Group runs in the order of tables; runs that don't fit their group are left out."""
    groups: dict[Group, list[Run]] = defaultdict(list)
    for run in runs:
        group = groups[Group.of(run)]
        if reason := _reason_against(run, group, mixed=mixed):
            left_out.append(f"{run.directory}: {reason}")
        else:
            group.append(run)
    return {
        group: sorted(groups[group], key=lambda run: run.summary.seed)
        for group in sorted(groups, key=lambda group: group.sort_key)
    }


def _reason_against(run: Run, group: Sequence[Run], *, mixed: bool) -> str | None:
    for other in group:
        if other.manifest["plan_key"] == run.manifest["plan_key"]:
            return f"of the same plan as {other.directory}"
    if not group:
        return None
    first = group[0]
    differing = differences(run.manifest["plan"], first.manifest["plan"], but_seed=True)
    if not mixed and run.tor_key != first.tor_key:  # the variant has a tree of its own
        differing = differing or f"Tor is of build {run.tor_key}, not {first.tor_key}"
    if differing:
        return f"not averaged with {first.directory}: {differing}: move one of them elsewhere"
    return None


def _run_directories(directory: Path) -> Iterator[Path]:
    """The directories of runs, failed ones too, in order; runs don't hold other runs."""
    for folder, folders, files in os.walk(directory):
        if _RUN_FILES & set(files):
            folders.clear()
            yield Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _rank(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)
