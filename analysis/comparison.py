"""Variants held against each other, metric by metric, over runs of one scenario.

The runs are made and read elsewhere; how a change is computed is said in statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.metrics import METRICS, NETWORK_METRICS, Metric
from analysis.runs import Found
from analysis.statistics import CONFIDENCE, Change, Figure, change, pair
from analysis.tables import Table
from analysis.whole_networks import is_drawn
from analysis.wording import NOTHING, figure_text, percent, verdict_text


@dataclass(frozen=True)
class Compared:
    """One metric of one variant against the first variant's.

    Attributes:
        first, other: the variants.
        before, after: the numbers of the first's and the other's runs that are compared, by seed.
        change: None if one of them has no number.
    """

    metric: Metric
    first: str
    other: str
    before: Mapping[int, float]
    after: Mapping[int, float]
    change: Change | None

    @property
    def words(self) -> str:
        """What can be said of the change."""
        return verdict_text(self.metric, self.other, self.change)


def compare(found: Found, variants: Sequence[str]) -> list[Compared]:
    """Every metric of every variant but the first against the first's.

    Args:
        found: runs of one scenario, traffic model and duration.
        variants: two names or more.
    """
    runs = {group.variant: valid for group, valid in found.valid.items()}
    first = variants[0]
    drawn = any(is_drawn(valid[0]) for valid in runs.values())
    return [
        _compared(
            metric,
            *(first, other),
            metric.by_seed(runs.get(first, ())),
            metric.by_seed(runs.get(other, ())),
        )
        for other in variants[1:]
        for metric in (*METRICS, *(NETWORK_METRICS if drawn else ()))
    ]


def _compared(
    metric: Metric, first: str, other: str, before: Mapping[int, float], after: Mapping[int, float]
) -> Compared:
    before, after = pair(before, after) or (before, after)
    return Compared(metric, first, other, before, after, change(before, after))


def comparison_tables(title: str, compared: Sequence[Compared]) -> list[Table]:
    """A table for readers of each variant but the first."""
    others = dict.fromkeys(row.other for row in compared)
    return [_table(title, [row for row in compared if row.other == other]) for other in others]


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
                figure_text(Figure.of(row.before.values()), row.metric.digits),
                figure_text(Figure.of(row.after.values()), row.metric.digits),
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
        f" by seed. What the runs say has the {100 * CONFIDENCE:g} % confidence interval of the"
        " difference (docs/statistics.md)."
    )


def _record(row: Compared) -> dict[str, Any]:
    before, after = Figure.of(row.before.values()), Figure.of(row.after.values())
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
        "confidence": CONFIDENCE,
        "low": low,
        "high": high,
        "verdict": row.change.verdict if row.change else None,
        "runs_needed": row.change.runs_needed if row.change else None,
        "words": row.words,
        "before": dict(row.before),
        "after": dict(row.after),
    }
