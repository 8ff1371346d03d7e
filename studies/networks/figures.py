"""What is particular to this study: its tables, and the metrics of bulk clients."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from analysis.cells import mean_cell
from analysis.metrics.costs import CONNECTIONS
from analysis.metrics.metric import Metric
from analysis.metrics.networks import CIRCUITS_GIVEN_UP
from analysis.metrics.transfers import (
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    TIME_TO_FIRST_BYTE,
    TIME_TO_LAST_BYTE_MEDIAN,
)
from analysis.runs import Found, Group
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text
from testbed.results import Run

BULK = "bulk5mib"
_ONE_SIGN = re.compile(r"\(([-+])\S+ % to \1")
QUEUES = {
    "SmallNetworkBusy": "FIFO, 1000 packets",
    "SmallNetworkBusy,network.queue_discipline=codel": "codel",
    "SmallNetworkBusy,network.queue_discipline=fq_codel": "fq_codel",
}


VARIANTS = (
    *("vanilla", "pctls", "pctcp", "own-up-to-3", "conflux", "vanilla-vegas", "pctls-vegas"),
    "vanilla-at-once",
)
"""Those that are compared, the first with each of the others."""

AT_ONCE = {
    f"{other} against {one}": (one, other)
    for one, other in (("vanilla", "pctls"), ("vanilla-at-once", "pctls-at-once"))
}

BULK_MB = 5 * 1024 * 1024 / 1e6
"""What a bulk client's transfer has."""


def _bulk_goodput(run: Run) -> float | None:
    """What whole transfers brought a bulk client, in MB/s."""
    for one in run.summary.by_traffic:
        if one.traffic == BULK:
            seconds = run.summary.duration_s * len(one.clients)
            return one.transfers.completed * BULK_MB / seconds
    return None


BULK_GOODPUT = replace(THROUGHPUT, key="bulk.goodput", name="bulk goodput", of=_bulk_goodput)
SHOWN = {
    "first byte, s": TIME_TO_FIRST_BYTE,
    "last byte, median, s": TIME_TO_LAST_BYTE_MEDIAN,
    "bulk, MB/s": BULK_GOODPUT,
}
GIVEN_UP = {"given up, %": CIRCUITS_GIVEN_UP}
COMPARED = {
    "first byte": TIME_TO_FIRST_BYTE,
    "stream round trip": STREAM_ROUND_TRIP,
    "bulk": BULK_GOODPUT,
}


def metrics() -> list[Metric]:
    """Metrics beside those of all runs."""
    return [BULK_GOODPUT]


def tables(found: Found) -> dict[str, Table]:
    """One network with rates to spare, and one whose relays are busy."""
    groups = {
        (group.scenario, group.variant): (group, runs)
        for part in found.parts
        for group, runs in part.valid.items()
    }

    def those(scenarios: Iterable[str]) -> dict[Group, Sequence[Run]]:
        wanted = product(scenarios, VARIANTS)
        return dict(groups[names] for names in wanted if names in groups)

    return {
        "spare": _table(
            "Rates to spare", those(["SmallNetwork"]), {"connections": CONNECTIONS} | GIVEN_UP
        ),
        "busy": _table("Busy relays", those(QUEUES), GIVEN_UP),
        "at_once": _at_once({names: runs for names, (_, runs) in groups.items()}),
    }


def fields(found: Found) -> dict[str, object]:
    """The changes of the two tables by row, and those that are decided, as texts."""
    by_name = tables(found)
    changes = {
        (row[0], metric): cell
        for row in by_name["spare"].rows
        for metric, cell in zip(COMPARED, row[-len(COMPARED) :], strict=True)
    }
    return {
        "change": lambda variant, metric: changes.get((variant, metric), NOTHING),
        "decided": lambda name: _decided(by_name[name]),
        "comparisons": lambda name: len(COMPARED) * max(1, len(by_name[name].rows) - 1),
    }


def _at_once(runs: Mapping[tuple[str, str], Sequence[Run]]) -> Table:
    """What a connection for each circuit changes, with Nagle's algorithm and without."""
    pairs = [
        (scenario, name, runs[scenario, one], runs[scenario, other])
        for scenario in ("SmallNetwork", "SmallNetworkBusy")
        for name, (one, other) in AT_ONCE.items()
        if (scenario, one) in runs and (scenario, other) in runs
    ]
    confidence = simultaneous_confidence(max(1, len(COMPARED) * len(pairs)))
    rows = tuple(
        (
            scenario,
            name,
            *(
                change_text(change(metric.by_seed(before), metric.by_seed(after), confidence))
                for metric in COMPARED.values()
            ),
        )
        for scenario, name, before, after in pairs
    )
    return Table("With and without Nagle's algorithm", ("network", "", *COMPARED), rows)


def _decided(table: Table) -> str:
    """The changes whose interval has one sign, by metric."""
    metrics = tuple(COMPARED)
    found: dict[str, list[str]] = {}
    for row in table.rows:
        names = [f"`{row[0]}`"] if table.columns[0] == "variant" else [f"`{row[1]}`", row[0]]
        for metric, cell in zip(metrics, row[-len(metrics) :], strict=True):
            if _ONE_SIGN.search(cell):
                found.setdefault(metric, []).append(f"{' with '.join(names)} {cell}")
    return "; ".join(f"{metric}: {', '.join(texts)}" for metric, texts in found.items()) or "none"


def _table(title: str, runs: dict[Group, Sequence[Run]], costs: dict[str, Metric]) -> Table:
    """A row for each variant: means, and changes against the first row with their intervals.

    The intervals hold together over all of the table's rows and columns.
    """
    with_queue = len({group.scenario for group in runs}) > 1
    shown = SHOWN | costs
    first = next(iter(runs.values()), ())
    confidence = simultaneous_confidence(len(COMPARED) * max(1, len(runs) - 1))
    rows = []
    for group, ones in runs.items():
        changes = (
            NOTHING
            if ones is first
            else change_text(change(one.by_seed(first), one.by_seed(ones), confidence))
            for one in COMPARED.values()
        )
        cells = (mean_cell(one.by_seed(ones).values(), one.digits) for one in shown.values())
        names = (QUEUES[group.scenario], group.variant) if with_queue else (group.variant,)
        rows.append((*names, *cells, *changes))
    names = ("queue", "variant") if with_queue else ("variant",)
    return Table(title, (*names, *shown, *COMPARED), tuple(rows))
