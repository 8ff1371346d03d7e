"""What is particular to this study: errors of measured weights, and what clients get with them."""

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from analysis.cells import mean_cell
from analysis.metrics.metric import Metric
from analysis.runs import Found, Group
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text, verdict_word
from flashflow.errors import capacity_error, weight_error, weight_ratios
from study.printed import AllPrinted, Printed
from testbed.basics.toml_file import PROJECT, read_toml
from testbed.network.bandwidth_file import UNMEASURED_WEIGHT
from testbed.results import Run
from testbed.results.summary import TrafficSummary

PUBLISHED = read_toml(PROJECT / "studies" / "weights" / "published.toml")
SCANNERS = {"flashflow": "FlashFlow", "torflow": "TorFlow"}
LOADS = {200: "100 %", 230: "115 %", 260: "130 %"}
"""Loads by numbers of clients."""

MODELS = {"page": "320 KiB", "bulk5mib": "5 MiB"}
FAR_BELOW = 0.89
"""A relay's result as a share of what it carries: 95 % of the paper's are within 11 %."""
LAST_SECONDS = 3
PASSED_OVER = "guards that Tor can't take as entry guards"
"""The check that counts guards without Fast (`testbed.inside.checks.entry_guards`)."""
LEAST_SEEDS = 3
"""What fewer seeds showed stands in no row."""


def _of_model(run: Run, model: str) -> TrafficSummary | None:
    return next((one for one in run.summary.by_traffic if one.traffic == model), None)


def _time(model: str) -> Metric:
    """The median time to last byte of a model's transfers."""

    def of(run: Run) -> float | None:
        summary = _of_model(run, model)
        return summary.time_to_last_byte_s.median if summary else None

    return Metric(
        key=f"{model}.time_to_last_byte_s.median",
        name=f"time of {MODELS[model]}",
        unit="s",
        digits=2,
        better="less",
        of=of,
    )


TIMES = {model: _time(model) for model in MODELS}


def metrics() -> list[Metric]:
    """Metrics beside those of all runs."""
    return [*TIMES.values()]


def tables(found: Found, printed: AllPrinted) -> dict[str, Table]:
    """Errors of weights, and clients' times and failures."""
    return {"errors": _errors(printed), "clients": _clients(found, printed)}


def fields(found: Found, printed: AllPrinted) -> dict[str, object]:
    """What the page says in its sentences, as texts."""
    ratios = [one for of in printed.each("torflow") for one in _weights(of)[1]]
    low = sum(ratio < 1 for ratio in ratios)
    made = tables(found, printed)
    measured = [one for of in printed.each("flashflow") for one in of.results]
    return {
        "measured": len(measured),
        "far_below": _far_below(measured, 0),
        "far_below_at_the_end": _far_below(measured, -LAST_SECONDS),
        "slowest_s": _slowest_s(measured),
        "underweighted": f"{100 * low / len(ratios):.0f} %" if ratios else NOTHING,
        "passed_over": {scanner: _passed_over(found, printed, scanner) for scanner in SCANNERS},
        "there": lambda name: bool(made[name].rows),
    }


# Figure 8.


def _weights(of: Printed) -> tuple[tuple[float, float], Sequence[float]]:
    """A network's errors of capacity and weights in percent, and each relay's weight ratio."""
    true = [one["true_bit_per_s"] for one in of.results]
    estimated = [one.get("observed_bit_per_s", one.get("bit_per_s")) or 0 for one in of.results]
    weights = [_weight(one) for one in of.results]
    errors = 100 * capacity_error(estimated, true), 100 * weight_error(weights, true)
    return errors, weight_ratios(weights, true)


def _far_below(measured: Sequence[Mapping[str, Any]], first_second: int) -> int:
    """How many relays' median from a second on is far below what they carry, if measured."""
    return sum(
        median(one["seconds_bit_per_s"][first_second:]) < FAR_BELOW * one["true_bit_per_s"]
        for one in measured
        if one["seconds_bit_per_s"]
    )


def _slowest_s(measured: Sequence[Mapping[str, Any]]) -> str:
    """How long 5 MiB take at least over the slowest relay."""
    bit_per_s = min((one["true_bit_per_s"] for one in measured), default=None)
    return f"{5 * 2**20 * 8 / bit_per_s:.0f}" if bit_per_s else NOTHING


def _errors(printed: AllPrinted) -> Table:
    """The errors of capacity and weights (equations 3 and 6), over seeds."""
    rows = []
    for key, name in SCANNERS.items():
        errors = [_weights(of)[0] for of in printed.each(key)]
        if len(errors) < LEAST_SEEDS:
            continue
        of_paper = PUBLISHED["figure_8"][key]
        for number, of in enumerate(("capacity", "weight")):
            theirs = of_paper.get(f"{of}_error")
            ours = mean_cell((one[number] for one in errors), 1)
            rows.append((name, of, NOTHING if theirs is None else f"{theirs}", ours))
    return Table("Errors", ("", "error of", "paper, %", "ours, %"), tuple(rows))


def _weight(relay: Mapping[str, Any]) -> int:
    """A relay's weight, by the bandwidth file or as one that wasn't measured, in kB/s."""
    weight = relay.get("weight")
    if (bit_per_s := relay.get("bit_per_s")) is not None:
        weight = max(round(bit_per_s / 8000), 1)
    return UNMEASURED_WEIGHT if weight is None else weight


# Figure 9.


def _groups(found: Found, printed: AllPrinted) -> Mapping[tuple[str, int], Sequence[Run]]:
    """Runs by scanner and number of clients, with the weights that the commands have measured."""
    measured = {
        (scanner, of.given("--seed")): {one["relay"]: _weight(one) for one in of.results}
        for scanner in SCANNERS
        for of in printed.each(scanner)
    }
    groups = {}
    for part in reversed(found.parts):
        for group, runs in part.valid.items():
            if key := _case(group):
                groups[key] = [
                    run
                    for run in runs
                    if measured.get((key[0], str(run.summary.seed)))
                    == {one.name: one.weight for one in run.plan.of_kind("relay")}
                ]
    return groups


def _case(group: Group) -> tuple[str, int] | None:
    scanner = re.search(r"bandwidth_file=(\w+)-", group.scenario)
    clients = re.search(r"clients=(\d+)", group.scenario)
    return (scanner.group(1), int(clients.group(1))) if scanner and clients else None


def _clients(found: Found, printed: AllPrinted) -> Table:
    """Times by load and weights, FlashFlow's changes against TorFlow's, and failures.

    They are of the networks that have a run with either's weights.
    """
    groups = _groups(found, printed)
    confidence = simultaneous_confidence(len(LOADS) * len(MODELS))
    rows = []
    for clients, load in LOADS.items():
        of = [groups.get((scanner, clients), ()) for scanner in ("torflow", "flashflow")]
        both = set.intersection(*({run.summary.seed for run in runs} for runs in of))
        if len(both) < LEAST_SEEDS:
            continue
        pair = [[run for run in runs if run.summary.seed in both] for runs in of]
        for model, size in MODELS.items():
            times = [TIMES[model].by_seed(runs) for runs in pair]
            cells = (mean_cell(one.values(), TIMES[model].digits) for one in times)
            failed = (_failed(runs, model) for runs in pair)
            changed = change(*times, confidence)
            told = change_text(changed), verdict_word(TIMES[model], changed)
            rows.append((load, size, str(len(both)), *cells, *told, *failed))
    columns = (
        *("load", "transfer", "networks", "TorFlow, s", "FlashFlow, s"),
        *("FlashFlow against TorFlow", "FlashFlow is"),
        *("TorFlow: failed, %", "FlashFlow: failed, %"),
    )
    return Table("What clients get", columns, tuple(rows))


def _passed_over(found: Found, printed: AllPrinted, scanner: str) -> str:
    """How many of all networks' guards have too low a weight for Fast."""
    runs = _groups(found, printed).get((scanner, min(LOADS)), ())
    checks = [check for run in runs for check in run.summary.checks if check.name == PASSED_OVER]
    slow = sum((check.value or {}).get("count", 0) for check in checks)
    guards = sum("guard" in relay.flags for run in runs for relay in run.plan.of_kind("relay"))
    return f"{slow:.0f} of {guards}"


def _failed(runs: Sequence[Run], model: str) -> str:
    """The share of transfers that failed."""
    counts = [one.transfers for run in runs if (one := _of_model(run, model))]
    failed, completed = sum(one.failed for one in counts), sum(one.completed for one in counts)
    return f"{100 * failed / (failed + completed):.1f}" if failed + completed else NOTHING
