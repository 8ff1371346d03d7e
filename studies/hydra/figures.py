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
from analysis.statistics import MeanOverRuns, change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, percent
from study.hydra.published import COMPARED, NETWORKS, TABLE_4
from study.hydra.shared_link import METRICS
from study.hydra.statements import FAILS, HOLDS, OPEN, Statement, judged_statements
from study.hydra.tables import statements
from testbed.results import Run

NETWORK = "Files,network.loss="
LOSSES = {"none": ("lossless", "0%"), "0.5 %": ("lossy", "0.5%")}
"""The paper's word and the scenario's value, by the loss as it is shown."""
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


IN_MS: Mapping[str, Metric] = {
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
    "build time": replace(CIRCUIT_BUILD_TIME, key="build_time", of=_build_time_ms),
}
"""What figures 9 and 10 have, by the paper's file or word."""
OF_RELAYS: Mapping[str, Metric] = {
    f"{name}, MB": Metric(
        key=f"all_relays.{attribute}",
        name=name,
        unit="MB",
        digits=1,
        better="less",
        of=partial(_of_relays, attribute),
    )
    for name, attribute in (
        ("memory of relays", "tor_memory_mb"),
        ("sent by relays", "sent_mb"),
    )
}
_INTERVALS = len(LOSSES) * len(IN_MS) + len(OF_RELAYS)


def metrics() -> Sequence[Metric]:
    """Metrics beside those of all runs, of the shared link."""
    return METRICS


def tables(found: Found) -> dict[str, Table]:
    """The statements on two clients, without those on windows, which need whole runs; networks."""
    rows = tuple((one.text, one.verdict, one.numbers) for one in _judged(found))
    return {
        "statements": replace(statements.table(found), rows=rows),
        "networks": _networks(found),
    }


def fields(found: Found) -> dict[str, object]:
    """How many statements have which verdict, and what the paper has."""
    verdicts = [one.verdict for one in _judged(found)]
    counts = {"holds": HOLDS, "fails": FAILS, "undecided": OPEN}
    return {
        "statements": {name: verdicts.count(verdict) for name, verdict in counts.items()}
        | {"all": len(verdicts)},
        "paper": _published,
        "in_networks": bool(_networks(found).rows),
    }


def _judged(found: Found) -> list[Statement]:
    return [one for one in judged_statements(found) if "window" not in one.text]


def _networks(found: Found) -> Table:
    """Figures 9, 10 and 12: a row for each loss and number, if there are runs of both variants."""
    runs = {
        (group.scenario, group.variant): ones
        for part in reversed(found.parts)
        for group, ones in part.valid.items()
    }
    rows: list[tuple[str, ...]] = []
    for loss, (paper, value) in LOSSES.items():
        before, after = (runs.get((f"{NETWORK}{value}", one), ()) for one in COMPARED)
        if not before or not after:
            continue
        for name, metric in IN_MS.items():
            said = f"{NETWORKS[paper][name]:+g}"
            rows.append((loss, f"{name}, ms", said, *_compared(metric, before, after)))
        for name, metric in OF_RELAYS.items() if paper == "lossless" else ():
            said = _memory() if "memory" in name else NOTHING
            rows.append((loss, name, said, *_compared(metric, before, after)))
    columns = ("loss", "of what", "the paper", *COMPARED, "difference", "change")
    return Table("Whole networks", columns, tuple(rows))


def _compared(metric: Metric, before: Sequence[Run], after: Sequence[Run]) -> tuple[str, ...]:
    """Both means, their difference, and the change with its interval."""
    numbers = [metric.by_seed(runs) for runs in (before, after)]
    cells = [mean_cell(one.values(), metric.digits) for one in numbers]
    means = [MeanOverRuns.of(one.values()) for one in numbers]
    first, other = means
    difference = f"{other.mean - first.mean:+.{metric.digits}f}" if first and other else NOTHING
    changed = change(*numbers, simultaneous_confidence(_INTERVALS))
    return (*cells, difference, change_text(changed))


def _memory() -> str:
    """How much more memory a simulation with pctls took."""
    vanilla, pctls = (NETWORKS["memory_gb"][variant] for variant in COMPARED)
    return percent(pctls / vanilla - 1)


def _published(variant: str, scenario: str, key: str) -> str:
    """A number of Table 4: "1.37 MB/s", "91 ms"."""
    row = TABLE_4[variant, scenario]
    metric, number = {
        THROUGHPUT.key: (THROUGHPUT, row.throughput_mb_per_s),
        STREAM_ROUND_TRIP.key: (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
    }[key]
    return f"{number.mean:.{metric.digits}f} {metric.unit}"
