"""Tables that hold runs of the paper's scenarios against the paper."""

from collections.abc import Sequence
from operator import add

from analysis.metrics import (
    CIRCUIT_ROUND_TRIP,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    TIME_TO_LAST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
    TIME_TO_LAST_BYTE_P95,
    Metric,
    streamed,
)
from analysis.order import BASELINE, SCENARIO_ORDER
from analysis.runs import Found, Group
from analysis.statistics import MeanOverRuns
from analysis.tables import (
    Table,
    TableMaker,
    against,
    baseline_of,
    mean_cell,
    runs_cell,
    runs_heading,
)
from analysis.wording import NOTHING, mean_text
from papers.hydra.published import TABLE_4, TABLE_4_TRAFFIC, TWO_CLIENTS, WAYS, Published
from papers.hydra.statements import judged_statements
from testbed.results import Run


def table_4(found: Found) -> Table:
    """Each figure of the paper's Table 4 beside the ways in which it is measured here."""
    return Table(
        title="Table 4 of Examining the Hydra",
        columns=("variant", "scenario", "unit", "paper", "2009 study", *WAYS),
        rows=tuple(
            (*names, metric.unit, *_published(figure, metric), *ours)
            for names, row in TABLE_4.items()
            for metric, figure in (
                (THROUGHPUT, row.throughput_mb_per_s),
                (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
            )
            if set(ours := _in_each_way(found, names, metric, figure)) != {NOTHING}
        ),
        note=(
            f"MB/s is the {THROUGHPUT.name} of a 5 MB transfer, ms the {STREAM_ROUND_TRIP.name}."
            " Mean ± standard deviation, ours over runs; in brackets the change against the same"
            f" variant's {BASELINE}. A star: ours lies within the paper's ±. The 2009 study is"
            " that of Reardon and Goldberg, which the paper repeats."
        ),
    )


def two_clients_table(found: Found) -> Table:
    """What the client under test saw in scenarios One, Two and Three, by traffic model."""
    groups = sorted(
        (group for group in found.valid if group.scenario in TWO_CLIENTS),
        key=lambda group: (SCENARIO_ORDER.index(group.scenario), *group.place[1:3]),
    )
    return Table(
        title="Two clients, by traffic model of the one under test",
        columns=(
            *("scenario", "traffic", "variant", runs_heading(groups)),
            *("time to last byte, s", "95 % within, s"),
            *(STREAM_ROUND_TRIP.label, CIRCUIT_ROUND_TRIP.label, "transfers"),
            *("delivered, kB/s", "stalls a minute", "time stalled, %"),
        ),
        rows=tuple(
            (
                *(group.scenario, group.traffic, group.variant),
                runs_cell(group, found.valid[group], groups),
                *_two_clients_cells(found.valid[group]),
            )
            for group in groups
        ),
        note=(
            "Mean over runs ± standard deviation over runs, of the client that runs the traffic"
            " model; the other one always runs bulk, and where it is bulk too, both count. Times to"
            " last byte are a run's median and 95th percentile. Delivered and stalls are of the"
            " seconds that lie wholly between first and last byte of a transfer; a stall is one or"
            " more of them in a row with less than 95 % of the model's rate."
        ),
    )


def statements_table(found: Found) -> Table:
    """The paper's statements on two clients, and whether these runs bear them out."""
    return Table(
        title="What the paper says of two clients",
        columns=("statement", "verdict", "in these runs"),
        rows=tuple(
            (statement.text, statement.verdict, statement.numbers)
            for statement in judged_statements(found)
        ),
        note=(
            "pctls against vanilla, by the runs' means (not medians), with the 95 % confidence"
            " interval of the change in brackets. A statement on several models holds if it holds"
            " for each."
        ),
    )


TABLES: Sequence[TableMaker] = (table_4, two_clients_table, statements_table)


def _two_clients_cells(runs: Sequence[Run]) -> tuple[str, ...]:
    streams = [one for one in map(streamed, runs) if one]
    return (
        mean_cell(TIME_TO_LAST_BYTE_MEDIAN.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        mean_cell(TIME_TO_LAST_BYTE_P95.by_seed(runs).values(), TIME_TO_LAST_BYTE.digits),
        mean_cell(STREAM_ROUND_TRIP.by_seed(runs).values(), STREAM_ROUND_TRIP.digits),
        mean_cell(CIRCUIT_ROUND_TRIP.by_seed(runs).values(), CIRCUIT_ROUND_TRIP.digits),
        mean_cell([run.under_test.transfers.completed for run in runs], 0),
        mean_cell([one.rate_kb_per_s for one in streams], 1),
        mean_cell([one.stalls_a_minute for one in streams], 1),
        mean_cell([one.stalled_percent for one in streams], 1),
    )


def _in_each_way(
    found: Found, names: tuple[str, str], metric: Metric, published: Published
) -> list[str]:
    """What was measured for a figure of Table 4 in each of `WAYS`; of the longest runs."""
    cells = []
    for ends in WAYS.values():
        wanted = (*map(add, names, ends), TABLE_4_TRAFFIC)
        groups = [one for one in found.valid if (one.variant, one.scenario, one.traffic) == wanted]
        group = max(groups, key=lambda one: one.duration_s, default=None)
        cells.append(_beside_published(found, group, metric, published) if group else NOTHING)
    return cells


def _beside_published(found: Found, group: Group, metric: Metric, published: Published) -> str:
    """Ours, with a star if its mean lies within the paper's ±."""
    runs = found.valid[group]
    figure = MeanOverRuns.of(metric.by_seed(runs).values())
    within = figure is not None and abs(figure.mean - published.mean) <= published.deviation
    mean, space, rest = against(metric, runs, baseline_of(found, group)).partition(" ")
    return f"{mean}{'*' if within else ''}{space}{rest}"


def _published(figure: Published, metric: Metric) -> tuple[str, str]:
    """The paper's figure with its change in brackets, and the 2009 study's change."""
    text = mean_text(MeanOverRuns(figure.mean, figure.deviation), metric.digits)
    change = f" ({_printed(figure.change)})" if figure.change else ""
    return f"{text}{change}", _printed(figure.change_2009)


def _printed(change: float) -> str:
    """A published change with the digits that it was published with."""
    return f"{round(100 * change, 1):+g} %" if change else "0 %"
