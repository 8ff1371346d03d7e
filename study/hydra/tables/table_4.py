"""The numbers of the paper's Table 4, beside those measured here in several ways."""

from operator import add

from analysis.cells import against, baseline_of
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import STREAM_ROUND_TRIP, THROUGHPUT
from analysis.order import BASELINE
from analysis.runs import Found, Group
from analysis.statistics import MeanOverRuns
from analysis.table import Table
from analysis.wording import NOTHING, mean_text
from study.hydra.published import TABLE_4, TABLE_4_TRAFFIC, WAYS, Published

ORDER = 10


def table(found: Found) -> Table:
    """A row for each published number that runs can be compared with."""
    return Table(
        title="Table 4 of Examining the Hydra",
        columns=("variant", "scenario", "unit", "paper", "2009 study", *WAYS),
        rows=tuple(
            (*names, metric.unit, *_published(published, metric), *ours)
            for names, row in TABLE_4.items()
            for metric, published in (
                (THROUGHPUT, row.throughput_mb_per_s),
                (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
            )
            if set(ours := _in_each_way(found, names, metric, published)) != {NOTHING}
        ),
        note=(
            f"MB/s is the {THROUGHPUT.name} of a 5 MB transfer, ms the {STREAM_ROUND_TRIP.name}."
            " Mean ± standard deviation, ours over runs; in brackets the change against the same"
            f" variant's {BASELINE}. A star: ours lies within the paper's ±. The 2009 study is"
            " that of Reardon and Goldberg, which the paper repeats."
        ),
    )


def _in_each_way(
    found: Found, names: tuple[str, str], metric: Metric, published: Published
) -> list[str]:
    """The means measured in each of `WAYS` for a number of Table 4, from the longest runs."""
    cells = []
    for ends in WAYS.values():
        wanted = (*map(add, names, ends), TABLE_4_TRAFFIC)
        groups = [one for one in found.valid if (one.variant, one.scenario, one.traffic) == wanted]
        group = max(groups, key=lambda one: one.duration_s, default=None)
        cells.append(_beside_published(found, group, metric, published) if group else NOTHING)
    return cells


def _beside_published(found: Found, group: Group, metric: Metric, published: Published) -> str:
    """Our mean, with a star if it lies within the paper's ±."""
    runs = found.valid[group]
    ours = MeanOverRuns.of(metric.by_seed(runs).values())
    within = ours is not None and abs(ours.mean - published.mean) <= published.deviation
    mean, space, rest = against(metric, runs, baseline_of(found, group)).partition(" ")
    return f"{mean}{'*' if within else ''}{space}{rest}"


def _published(published: Published, metric: Metric) -> tuple[str, str]:
    """The paper's number with its change in brackets, and the change in the 2009 study."""
    text = mean_text(MeanOverRuns(published.mean, published.deviation), metric.digits)
    change = f" ({_printed(published.change)})" if published.change else ""
    return f"{text}{change}", _printed(published.change_2009)


def _printed(change: float) -> str:
    """A published change, with as many digits as published."""
    return f"{round(100 * change, 1):+g} %" if change else "0 %"
