"""Comparisons of variants, metric by metric, over runs of one scenario.

Runs are made and read elsewhere; `analysis.statistics` computes the changes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.metrics import HEADLINES, all_metrics
from analysis.metrics.metric import Metric
from analysis.runs import Groups
from analysis.statistics import (
    CONFIDENCE,
    Change,
    MeanOverRuns,
    Verdict,
    change,
    pair,
    simultaneous_confidence,
)
from analysis.table import Table
from analysis.wording import change_text, mean_text, sentence
from testbed.results import Run


@dataclass(frozen=True)
class Compared:
    """One metric of one variant, compared with the first variant.

    Attributes:
        first, other: the variants, with the scenario's value if that is what differs.
        before, after: the numbers of the first's and of the other's runs, by seed.
        change: None if one of them has no number.
        comparisons: how many intervals the whole comparison has, over all variants and metrics;
            each is widened so that all hold together.
    """

    metric: Metric
    first: str
    other: str
    before: Mapping[int, float]
    after: Mapping[int, float]
    change: Change | None
    comparisons: int = 1

    @property
    def confidence(self) -> float:
        """The confidence of the interval by itself."""
        return simultaneous_confidence(self.comparisons)

    @property
    def sentence(self) -> str:
        """What the runs say of the change, as a whole sentence."""
        if self.change is None and self.before and self.after:
            return "no ratio: a run has 0"
        names = (self.first, self.other)
        return sentence(self.metric, names, self.change, self.confidence)


Named = Mapping[str, Sequence[Run]]
"""Runs by the name under which they are compared; the first is what the others are held against."""


def compare(runs: Named, only: Collection[str] = ()) -> list[Compared]:
    """Compare all runs with the first ones, in every metric.

    The intervals of all rows hold together with `CONFIDENCE`, so that whatever row is quoted
    because it stands out is no stronger than its words.

    Args:
        runs: at least two names, each with the runs of one variant in one scenario.
        only: the keys of the metrics that are asked for; empty for all. Fewer are decided with
            fewer runs, if they are named before the runs are seen.
    """
    known = all_metrics(run for valid in runs.values() for run in valid)
    numbers = {
        (metric, name): metric.by_seed(valid) for metric in known for name, valid in runs.items()
    }
    # Some metrics exist only for some traffic models.
    metrics = [one for one in known if any(numbers[one, name] for name in runs)] or known
    first, *others = runs
    compared = [
        _compared(metric, (first, other), numbers[metric, first], numbers[metric, other])
        for other in others
        for metric in metrics
        if not only or metric.key in only
    ]
    intervals = sum(1 for row in compared if row.change and row.change.interval)
    return [_widened(row, max(1, intervals)) for row in compared]


def compare_groups(groups: Groups) -> tuple[str, list[Compared]]:
    """Compare every variant of a scenario, traffic model and duration with the first.

    Args:
        groups: at least one.

    Returns:
        A title that names the three, and the comparisons.
    """
    first = next(iter(groups))
    title = f"{first.scenario}, {first.traffic}, {first.duration_s:g} s"
    return title, compare({group.variant: runs for group, runs in groups.items()})


def _compared(
    metric: Metric, names: tuple[str, str], before: Mapping[int, float], after: Mapping[int, float]
) -> Compared:
    before, after = pair(before, after) or (before, after)
    return Compared(metric, *names, before, after, change(before, after))


def _widened(row: Compared, comparisons: int) -> Compared:
    changed = change(row.before, row.after, simultaneous_confidence(comparisons))
    return replace(row, change=changed, comparisons=comparisons)


def comparison_tables(title: str, compared: Sequence[Compared]) -> list[Table]:
    """A table for each variant but the first; if there are several, also tables of all at once."""
    others = dict.fromkeys(row.other for row in compared)
    tables = [_table(title, [row for row in compared if row.other == other]) for other in others]
    if len(others) > 1:
        tables += [_overview(title, compared), _undecided(title, compared)]
    return [table for table in tables if table.rows]


def headlines(compared: Sequence[Compared]) -> dict[Metric, dict[str, Compared]]:
    """The metrics that a reader looks at first, by variant; only those with a change."""
    rows: dict[Metric, dict[str, Compared]] = {}
    for metric in HEADLINES:
        of_metric = [row for row in compared if row.metric is metric]
        if any(row.change for row in of_metric):
            rows[metric] = {row.other: row for row in of_metric}
    return rows


def _overview(title: str, compared: Sequence[Compared]) -> Table:
    """All variants against the first: a row each, with the differences and their intervals."""
    by_metric = headlines(compared)
    others = dict.fromkeys(row.other for row in compared)
    rows = (
        (other, *(_marked(by_variant[other].change) for by_variant in by_metric.values()))
        for other in others
    )
    return Table(
        title=f"{title}: all against {compared[0].first}",
        columns=("variant", *(metric.name for metric in by_metric)),
        rows=tuple(rows) if by_metric else (),
        note=(
            f"Differences, with their intervals in brackets. {_confidence_text(compared[0])}"
            f' "=": nearly equal. "?": the runs don\'t decide whether there is a difference.'
        ),
    )


def _undecided(title: str, compared: Sequence[Compared]) -> Table:
    """The comparisons that the runs don't decide, in words."""
    return Table(
        title=f"{title}: what the runs don't decide",
        columns=("what the runs say",),
        rows=tuple(
            (row.sentence,)
            for row in compared
            if row.change and row.change.verdict is Verdict.NOT_ENOUGH_RUNS
        ),
    )


def _marked(one: Change | None) -> str:
    """A change with its interval, and a mark if it is nearly none or undecided."""
    marks = {Verdict.NEARLY_EQUAL: " =", Verdict.NOT_ENOUGH_RUNS: " ?"}
    return change_text(one) + (marks.get(one.verdict, "") if one else "")


def _confidence_text(row: Compared) -> str:
    whole = f"{100 * CONFIDENCE:g} %"
    if row.comparisons == 1:
        return f"The interval's confidence is {whole} (docs/statistics.md)."
    return (
        f"All {row.comparisons} intervals of this comparison, over all its variants and metrics,"
        f" hold together with {whole} confidence: each by itself has {100 * row.confidence:.4g} %"
        " (docs/statistics.md)."
    )


def records(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """The comparisons as plain data for programs: a record for each metric and variant.

    Changes and bounds are shares: -0.88 is 88 % less. Values that need more runs are None.
    """
    return [_record(row) for row in compared]


def records_table(compared: Sequence[Compared]) -> Table:
    """The records as a table for CSV, without the numbers of single runs."""
    rows = [
        {key: value for key, value in record.items() if key not in ("before", "after")}
        for record in records(compared)
    ]
    return Table(
        title="",
        columns=tuple(rows[0]),
        rows=tuple(
            tuple("" if value is None else str(value) for value in row.values()) for row in rows
        ),
    )


def _table(title: str, rows: Sequence[Compared]) -> Table:
    first, other = rows[0].first, rows[0].other
    return Table(
        title=f"{title}: {other} against {first}",
        columns=("metric", first, other, "what the runs say"),
        rows=tuple(
            (
                row.metric.label,
                mean_text(MeanOverRuns.of(row.before.values()), row.metric.digits),
                mean_text(MeanOverRuns.of(row.after.values()), row.metric.digits),
                row.sentence,
            )
            for row in rows
        ),
        note=_note(rows),
    )


def _note(rows: Sequence[Compared]) -> str:
    before = max(len(row.before) for row in rows)
    after = max(len(row.after) for row in rows)
    counts = f"{before} runs of each" if before == after else f"{before} and {after} runs"
    paired = any(row.change and row.change.paired for row in rows)
    return (
        f"Mean over runs ± standard deviation over runs; {counts}, {'' if paired else 'not '}paired"
        " by seed. What the runs say has the difference of geometric means."
        f" {_confidence_text(rows[0])}"
    )


def _record(row: Compared) -> dict[str, Any]:
    before, after = MeanOverRuns.of(row.before.values()), MeanOverRuns.of(row.after.values())
    low, high = row.change.interval if row.change and row.change.interval else (None, None)
    return {
        "metric": row.metric.key,
        "first": row.first,
        "other": row.other,
        "first_runs": len(row.before),
        "other_runs": len(row.after),
        "paired": row.change.paired if row.change else None,
        "first_mean": before.mean if before else None,
        "first_sd": before.deviation if before else None,
        "other_mean": after.mean if after else None,
        "other_sd": after.deviation if after else None,
        "change": row.change.share if row.change else None,
        "confidence": row.confidence,
        "comparisons": row.comparisons,
        "low": low,
        "high": high,
        "verdict": row.change.verdict if row.change else None,
        "runs_needed": row.change.runs_needed if row.change else None,
        "sentence": row.sentence,
        "before": dict(row.before),
        "after": dict(row.after),
    }
