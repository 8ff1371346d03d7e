"""What is particular to this study: its statements, whole networks, and the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from analysis.cells import mean_cell
from analysis.metrics.metric import Metric
from analysis.metrics.transfers import (
    CIRCUIT_BUILD_TIME,
    STREAM_ROUND_TRIP,
    THROUGHPUT,
    TIME_TO_LAST_BYTE,
)
from analysis.runs import Found
from analysis.statistics import MeanOverRuns, change, pair, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, mean_text, percent
from study.hydra.published import COMPARED, NETWORKS, TABLE_4, Published
from study.hydra.shared_link import METRICS, cells_in_flight
from study.hydra.statements import FAILS, HOLDS, OPEN, judged_statements
from testbed.results import Run

AllRuns = Mapping[tuple[str, str, str], Sequence[Run]]
"""Runs by scenario, variant and traffic."""

LOSSES = {
    "none": ("lossless", "Files,network.loss=0%"),
    "0.5 %": ("lossy", "Files,network.loss=0.5%"),
}
"""The paper's word and the scenario, by the loss as it is shown."""
RENEWED = ",paths.circuits=2,paths.close_unused=10s,paths.policy=tor"
"""The end of the scenario's name where clients build circuits all the time."""
NETWORKS_TRAFFIC = "page"
"""The first model of the networks' clients, which their runs are named by."""
FILES = {"50 kB": "perf-50kb", "1 MB": "perf-1mb", "5 MB": "perf-5mb"}


def _last_byte_ms(model: str, run: Run) -> float | None:
    """The mean time to last byte of a model's clients."""
    for one in run.summary.by_traffic:
        if one.traffic == model and one.time_to_last_byte_s.mean is not None:
            return 1000 * one.time_to_last_byte_s.mean
    return None


def _build_time_ms(run: Run) -> float | None:
    """The mean build time of the circuits that clients built by themselves."""
    circuits = run.summary.circuits_of_clients
    return circuits.build_time_ms.mean if circuits and circuits.build_time_ms else None


def _of_relays(attribute: str, run: Run) -> float | None:
    """The sum over all relays; None for runs without it."""
    values = [getattr(relay, attribute) for relay in run.held_by_relays]
    return sum(values) if values and None not in values else None


BUILD_TIME = "build time"
WITH_AND_WITHOUT_LOSS: Mapping[str, Metric] = {
    **{
        name: replace(
            TIME_TO_LAST_BYTE,
            key=f"files.{model}",
            name=f"{name}: time to last byte",
            unit="ms",
            digits=0,
            of=partial(_last_byte_ms, model),
        )
        for name, model in FILES.items()
    },
    BUILD_TIME: replace(CIRCUIT_BUILD_TIME, key="build_time", of=_build_time_ms),
}
"""What figures 9 and 10 have."""
MEMORY = "memory of relays"
OF_RELAYS: Mapping[str, Metric] = {
    name: Metric(
        key=f"all_relays.{attribute}",
        name=name,
        unit="MB",
        digits=1,
        better="less",
        of=partial(_of_relays, attribute),
    )
    for name, attribute in ((MEMORY, "tor_memory_mb"), ("sent by relays", "sent_mb"))
}
"""What figure 12 has, in runs without loss."""
_OF_NETWORKS = len(LOSSES) * len(WITH_AND_WITHOUT_LOSS) + len(OF_RELAYS)
"""How many intervals of whole networks hold together."""

QUEUED = {"Two": "web", "Three": "audio"}
"""The traffic whose times are measured with several lengths of a queue, by scenario."""
LENGTHS = {
    "100": ",links.default.queue=100packets",
    "1000": "",
    "2000": ",links.default.queue=2000packets",
    "10000": ",links.default.queue=10000packets",
}
"""The end of a scenario's name by the packets that its queues hold."""
_OF_QUEUES = 6
"""How many intervals hold together: three lengths for each scenario."""


def metrics() -> Sequence[Metric]:
    """Metrics beside those of all runs, of the shared link."""
    return METRICS


def tables(found: Found) -> dict[str, Table]:
    """What changes in whole networks, and with the length of a queue."""
    runs = _by_scenario_and_variant(found)
    return {"networks": _networks(runs), "queues": _queues(runs)}


def fields(found: Found) -> dict[str, object]:
    """How many statements have which verdict, and what the paper has."""
    verdicts = [one.verdict for one in judged_statements(found)]
    counts = {"holds": HOLDS, "fails": FAILS, "undecided": OPEN}
    return {
        "statements": {name: verdicts.count(verdict) for name, verdict in counts.items()}
        | {"all": len(verdicts)},
        "paper": _published,
        "papers_spread": _published_spread,
        "papers_cells": _published_cells,
    }


def _by_scenario_and_variant(found: Found) -> AllRuns:
    return {
        (group.scenario, group.variant, group.traffic): ones
        for part in reversed(found.parts)
        for group, ones in part.valid.items()
    }


def _queues(runs: AllRuns) -> Table:
    """A row for each scenario and length of its queues that has runs of both variants."""
    rows = [
        (scenario, model, length, *compared)
        for scenario, model in QUEUED.items()
        for length, end in LENGTHS.items()
        if (
            compared := _compared(
                runs, f"{scenario}{end}", model, TIME_TO_LAST_BYTE, intervals=_OF_QUEUES
            )
        )
    ]
    columns = ("scenario", "traffic", "a queue's packets", *COMPARED, "difference", "change")
    return Table("Times to last byte, s", columns, tuple(rows))


def _networks(runs: AllRuns) -> Table:
    """Figures 9, 10 and 12: a row for each loss and number that has runs of both variants."""
    numbers = [
        (loss, name, f"{NETWORKS[paper][name]:+g}", scenario, metric)
        for loss, (paper, scenario) in LOSSES.items()
        for name, metric in WITH_AND_WITHOUT_LOSS.items()
    ] + [
        ("none", name, _memory() if name == MEMORY else NOTHING, LOSSES["none"][1], metric)
        for name, metric in OF_RELAYS.items()
    ]
    rows = [
        (loss, f"{name}, {metric.unit}", said, *compared)
        for loss, name, said, scenario, metric in numbers
        if (
            compared := _compared(
                runs,
                f"{scenario}{RENEWED if name == BUILD_TIME else ''}",
                NETWORKS_TRAFFIC,
                metric,
                intervals=_OF_NETWORKS,
            )
        )
    ]
    columns = ("loss", "of what", "the paper", *COMPARED, "difference", "change")
    return Table("Whole networks", columns, tuple(rows))


def _compared(
    runs: AllRuns, scenario: str, traffic: str, metric: Metric, *, intervals: int
) -> tuple[str, ...]:
    """Both means, their difference, and the change with its interval; empty without runs of both.

    All are of the seeds that both have, as networks differ more than variants. So many intervals
    hold together.
    """
    of_each = (runs.get((scenario, variant, traffic), ()) for variant in COMPARED)
    pairs = pair(*map(metric.by_seed, of_each))
    if not pairs:
        return ()
    cells = [mean_cell(one.values(), metric.digits) for one in pairs]
    first, other = (MeanOverRuns.of(one.values()) for one in pairs)
    assert first and other
    difference = f"{other.mean - first.mean:+.{metric.digits}f}"
    changed = change(*pairs, simultaneous_confidence(intervals))
    return (*cells, difference, change_text(changed))


def _memory() -> str:
    """How much more memory a simulation with pctls took."""
    vanilla, pctls = (NETWORKS["memory_gb"][variant] for variant in COMPARED)
    return percent(pctls / vanilla - 1)


def _published(variant: str, scenario: str, key: str) -> str:
    """A mean of Table 4: "1.37 MB/s", "91 ms"."""
    metric, number = _of_table_4(variant, scenario, key)
    return f"{number.mean:.{metric.digits}f} {metric.unit}"


def _published_spread(variant: str, scenario: str, key: str) -> str:
    """A mean of Table 4 ± its standard deviation: "1.37 ± 0.19"."""
    metric, number = _of_table_4(variant, scenario, key)
    return mean_text(MeanOverRuns(number.mean, number.deviation), metric.digits)


def _of_table_4(variant: str, scenario: str, key: str) -> tuple[Metric, Published]:
    row = TABLE_4[variant, scenario]
    return {
        THROUGHPUT.key: (THROUGHPUT, row.throughput_mb_per_s),
        STREAM_ROUND_TRIP.key: (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
    }[key]


def _published_cells(variant: str, scenario: str) -> str:
    """How many cells of a circuit are under way by Table 4, if its round trip were a circuit's."""
    row = TABLE_4[variant, scenario]
    cells = cells_in_flight(row.throughput_mb_per_s.mean, row.stream_round_trip_ms.mean)
    return f"{cells:.0f}"
