"""Helpers for several tables: which runs a table covers, and the text of common cells."""

from collections.abc import Collection, Iterable, Sequence

from analysis.metrics.metric import Metric
from analysis.order import TWO_CLIENTS
from analysis.runs import Found, Group
from analysis.statistics import MeanOverRuns
from analysis.whole_networks import is_drawn
from analysis.wording import mean_text, percent
from testbed.results import Run


def without_two_clients(found: Found) -> dict[Group, Sequence[Run]]:
    """The runs of all scenarios but those of two clients."""
    return {group: runs for group, runs in found.valid.items() if group.scenario not in TWO_CLIENTS}


def of_drawn_networks(found: Found) -> dict[Group, Sequence[Run]]:
    """The runs of drawn networks that still have their tables, which all such rows need."""
    drawn = {
        group: [run for run in runs if run.is_whole]
        for group, runs in found.valid.items()
        if is_drawn(runs[0])
    }
    return {group: runs for group, runs in drawn.items() if runs}


def runs_heading(groups: Collection[Group]) -> str:
    """The heading above the numbers of runs, with the runs' duration if all have the same."""
    durations_s = {group.duration_s for group in groups}
    return f"runs of {durations_s.pop():g} s" if len(durations_s) == 1 else "runs"


def runs_cell(group: Group, runs: Sequence[Run], groups: Collection[Group]) -> str:
    """The number of a group's runs, with their duration if the heading lacks it."""
    alike = len({group.duration_s for group in groups}) == 1
    return f"{len(runs)}" if alike else f"{len(runs)} of {group.duration_s:g} s"


def mean_cell(values: Iterable[float | None], digits: int) -> str:
    """The mean and the standard deviation over runs."""
    return mean_text(MeanOverRuns.of(values), digits)


def baseline_of(found: Found, group: Group) -> Sequence[Run]:
    """The runs that a group's change is measured against; may be empty."""
    return found.valid.get(group.baseline, ())


def against(metric: Metric, runs: Sequence[Run], baseline: Sequence[Run]) -> str:
    """The mean over runs and, in brackets, its change against the baseline's mean."""
    mean, base = (MeanOverRuns.of(metric.by_seed(each).values()) for each in (runs, baseline))
    text = mean_text(mean, metric.digits)
    if mean is None or base is None or runs is baseline:
        return text
    return f"{text} ({percent(mean.mean / base.mean - 1)})"
