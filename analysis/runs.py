"""The runs below a directory: which count, in groups that may be averaged, and which don't and why.

Runs are read, never made; what they say is computed elsewhere.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.metrics import clients_under_test
from analysis.published import BASELINE, TABLE_4_TRAFFIC, TWO_CLIENTS
from testbed.errors import InputError, TestbedError
from testbed.plan_differences import differences
from testbed.results import Run, read_run

SCENARIO_ORDER = (BASELINE, "DroppingRemaining", "SharedDropping", *TWO_CLIENTS)
VARIANT_ORDER = ("vanilla", "pctls")
TRAFFIC_ORDER = ("bulk", "audio", "video", "web")
"""What comes first in tables and figures; others follow by name."""

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
        """Where the group stands in a table: by variant, then by scenario, as in the paper."""
        return (
            _place(self.variant, VARIANT_ORDER),
            _place(self.traffic, TRAFFIC_ORDER),
            self.duration_s,
            _place(self.scenario, SCENARIO_ORDER),
        )

    @property
    def label(self) -> str:
        """The scenario, and the traffic if it is another than the published one."""
        return (
            self.scenario if self.traffic == TABLE_4_TRAFFIC else f"{self.scenario}-{self.traffic}"
        )

    @property
    def baseline(self) -> "Group":
        """The group without loss that this one's change is against."""
        return Group(self.variant, BASELINE, self.traffic, self.duration_s)


@dataclass(frozen=True)
class Found:
    """Runs that were looked for.

    Attributes:
        valid: those that count, by group, sorted by seed; the groups in the order of tables.
        left_out: a line for each that doesn't: which, and why.
    """

    valid: Mapping[Group, Sequence[Run]]
    left_out: Sequence[str]


def find_runs(directory: Path) -> Found:
    """Read every run below a directory, in whatever folders they lie.

    Directories with a leading dot are runs under way.

    Raises:
        InputError: there is no such directory, or no run below it.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is no directory: give one with run directories below it")
    found = read_runs(_run_directories(directory))
    if not found.valid and not found.left_out:
        raise InputError(f"{directory} holds no run: make one with ./run.py scenario")
    return found


def read_runs(folders: Iterable[Path]) -> Found:
    """Read runs and sort them.

    Left out, with their reasons: failed, damaged and invalid runs, all but the first run of one
    plan, which says nothing new, and runs whose machine differs from that of the group's first, or
    whose plan does in more than the seed.
    """
    valid: dict[Group, list[Run]] = defaultdict(list)
    left_out: list[str] = []
    for folder in folders:
        try:
            run = read_run(folder)
            clients_under_test(run)
        except TestbedError as error:
            left_out.append(f"{folder}: {error}")
            continue
        group = valid[Group.of(run)]
        if reason := _reason_against(run, group):
            left_out.append(f"{folder}: {reason}")
            continue
        group.append(run)
    for runs in valid.values():
        runs.sort(key=lambda run: run.summary.seed)
    groups = sorted((group for group in valid if valid[group]), key=lambda group: group.place)
    return Found({group: valid[group] for group in groups}, left_out)


def _reason_against(run: Run, group: Sequence[Run]) -> str | None:
    if not run.summary.valid:
        failed = ", ".join(check.name for check in run.summary.checks if check.failed)
        return f"invalid: {failed}"
    if group and (machine := run.summary.machine) != group[0].summary.machine:
        return f"not averaged with {group[0].directory}: it ran on the {machine} machine"
    for other in group:
        if other.manifest["plan_key"] == run.manifest["plan_key"]:
            return f"of the same plan as {other.directory}"
    if not group:
        return None
    first = group[0]
    if differing := differences(run.manifest["plan"], first.manifest["plan"], but_seed=True):
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
