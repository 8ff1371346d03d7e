"""Variants held against each other, metric by metric, over runs of one scenario.

The runs are made and read elsewhere; how a change is computed is said in statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.metrics import HEADLINES, Metric, all_metrics
from analysis.runs import Found
from analysis.statistics import (
    CONFIDENCE,
    Change,
    MeanOverRuns,
    Verdict,
    change,
    pair,
    simultaneous_confidence,
)
from analysis.tables import Table
from analysis.wording import NOTHING, change_text, mean_text, percent, verdict_text


@dataclass(frozen=True)
class Compared:
    """One metric of one variant against the first variant's.

    Attributes:
        first, other: the variants.
        before, after: the numbers of the first's and the other's runs that are compared, by seed.
        change: None if one of them has no number.
        comparisons: how many variants are held against the first: the interval holds with a
            confidence with which all of them hold together.
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
        """Of the interval, taken by itself."""
        return simultaneous_confidence(self.comparisons)

    @property
    def words(self) -> str:
        """What can be said of the change."""
        if self.change is None and self.before and self.after:
            return "no ratio to tell: a run has 0"
        return verdict_text(self.metric, self.other, self.change)


def compare(found: Found, variants: Sequence[str]) -> list[Compared]:
    """Every metric of every variant but the first against the first's.

    Args:
        found: runs of one scenario, traffic model and duration.
        variants: two names or more.
    """
    runs = {group.variant: valid for group, valid in found.valid.items()}
    first = variants[0]
    known = all_metrics(run for valid in runs.values() for run in valid)
    numbers = {
        (metric, variant): metric.by_seed(runs.get(variant, ()))
        for metric in known
        for variant in variants
    }
    # Some metrics are of some traffic models only.
    metrics = [one for one in known if any(numbers[one, variant] for variant in variants)]
    return [
        _compared(
            metric,
            *(first, other),
            *(numbers[metric, first], numbers[metric, other]),
            comparisons=len(variants) - 1,
        )
        for other in variants[1:]
        for metric in metrics or known
    ]


def _compared(
    metric: Metric,
    first: str,
    other: str,
    before: Mapping[int, float],
    after: Mapping[int, float],
    comparisons: int,
) -> Compared:
    before, after = pair(before, after) or (before, after)
    changed = change(before, after, simultaneous_confidence(comparisons))
    return Compared(metric, first, other, before, after, changed, comparisons)


def comparison_tables(title: str, compared: Sequence[Compared]) -> list[Table]:
    """A table for readers of each variant but the first; of several, then all of them at once."""
    others = dict.fromkeys(row.other for row in compared)
    tables = [_table(title, [row for row in compared if row.other == other]) for other in others]
    if len(others) > 1:
        tables += [_overview(title, compared), _undecided(title, compared)]
    return [table for table in tables if table.rows]


def headlines(compared: Sequence[Compared]) -> dict[Metric, dict[str, Compared]]:
    """What a reader looks at first: by metric, then by variant, where there is a change."""
    rows: dict[Metric, dict[str, Compared]] = {}
    for metric in HEADLINES:
        of_metric = [row for row in compared if row.metric is metric]
        if any(row.change for row in of_metric):
            rows[metric] = {row.other: row for row in of_metric}
    return rows


def _overview(title: str, compared: Sequence[Compared]) -> Table:
    """All variants against the first, a row each; in a cell the difference and its interval."""
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
    """What no run decides, in words, for every metric."""
    return Table(
        title=f"{title}: what the runs don't decide",
        columns=("variant", "metric", "difference", "what the runs say"),
        rows=tuple(
            (row.other, row.metric.name, percent(row.change.share), row.words)
            for row in compared
            if row.change and row.change.verdict is Verdict.NOT_ENOUGH_RUNS
        ),
    )


def _marked(one: Change | None) -> str:
    """A change with its interval, and a mark where it isn't one or isn't known."""
    marks = {Verdict.NEARLY_EQUAL: " =", Verdict.NOT_ENOUGH_RUNS: " ?"}
    return change_text(one) + (marks.get(one.verdict, "") if one else "")


def _confidence_text(row: Compared) -> str:
    whole = f"{100 * CONFIDENCE:g} %"
    if row.comparisons == 1:
        return f"The interval's confidence is {whole} (docs/statistics.md)."
    return (
        f"All intervals of a metric hold together with {whole} confidence: each by itself has"
        f" {100 * row.confidence:.3g} %, as there are {row.comparisons} (docs/statistics.md)."
    )


def records(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """The same for programs: plain data, one record a metric and variant.

    Changes and bounds are shares: -0.88 is 88 % less. What there are too few runs for is None.
    """
    return [_record(row) for row in compared]


def records_table(compared: Sequence[Compared]) -> Table:
    """The records as a table for CSV, without the single runs' numbers."""
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
        columns=("metric", first, other, "difference", "what the runs say"),
        rows=tuple(
            (
                row.metric.label,
                mean_text(MeanOverRuns.of(row.before.values()), row.metric.digits),
                mean_text(MeanOverRuns.of(row.after.values()), row.metric.digits),
                percent(row.change.share) if row.change else NOTHING,
                row.words,
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
        " by seed. What the runs say has the interval of the difference."
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
        "words": row.words,
        "before": dict(row.before),
        "after": dict(row.after),
    }
