"""What is particular to this study: its table."""

from collections.abc import Sequence

from analysis.cells import mean_cell
from analysis.metrics.transfers import CIRCUIT_ROUND_TRIP, STREAM_ROUND_TRIP, THROUGHPUT
from analysis.runs import Found
from analysis.statistics import change, simultaneous_confidence
from analysis.table import Table
from analysis.wording import NOTHING, change_text
from testbed.results import Run

SETTINGS = {
    "vanilla": ("today's Tor", ""),
    "kist-10-ms": ("KIST every 10 ms instead of 2", "vanilla"),
    "vanilla-kistlite": ("KISTLite", "vanilla"),
    "vanilla-2021": ("Tor 0.4.5.16", "kist-10-ms"),
    "live-2021": ("the same with the live network's parameters of 2021-11-30", "vanilla-2021"),
    "no-delay": ("without Nagle's algorithm", "vanilla"),
    "vanilla-vegas": ("Vegas, and so Counter Galois Onion", "vanilla"),
    "vanilla-vegas-without-cgo": ("Vegas alone", "vanilla-vegas"),
    "live-2026": ("the live network's parameters of 2026-04-18", "vanilla-vegas"),
    "pctls": ("a connection for each circuit", "vanilla"),
    "pctls-2021": ("the same on Tor 0.4.5.16", "pctls"),
    "pctls-no-delay": ("the same without Nagle's algorithm", "pctls"),
}
"""What is set by variant, and the variant that it is compared with."""
SHOWN = (THROUGHPUT, STREAM_ROUND_TRIP, CIRCUIT_ROUND_TRIP)
COMPARED = {"throughput": THROUGHPUT, "stream round trip": STREAM_ROUND_TRIP}
_CONFIDENCE = simultaneous_confidence(len(COMPARED) * (len(SETTINGS) - 1))


def tables(found: Found) -> dict[str, Table]:
    """A row for each setting: means, and changes against the setting before it."""
    runs = {group.variant: ones for group, ones in found.valid.items()}
    rows = []
    for variant, (setting, first) in SETTINGS.items():
        if of_it := runs.get(variant):
            names = (setting, f"`{variant}`")
            against = f"`{first}`" if first else NOTHING
            rows.append((*names, *_numbers(of_it), against, *_changes(runs.get(first), of_it)))
    shown = (metric.label for metric in SHOWN)
    columns = ("setting", "variant", *shown, "against", *COMPARED)
    return {"settings": Table("Settings", columns, tuple(rows))}


def fields(found: Found) -> dict[str, object]:
    """The table's changes, by the variant without its quotes."""
    cells = {row[1].strip("`"): row for row in tables(found)["settings"].rows}
    return {"changed": lambda variant: cells[variant][-2] if variant in cells else NOTHING}


def _numbers(runs: Sequence[Run]) -> list[str]:
    return [mean_cell(metric.by_seed(runs).values(), metric.digits) for metric in SHOWN]


def _changes(before: Sequence[Run] | None, after: Sequence[Run]) -> list[str]:
    if before is None:
        return [NOTHING] * len(COMPARED)
    return [
        change_text(change(metric.by_seed(before), metric.by_seed(after), _CONFIDENCE))
        for metric in COMPARED.values()
    ]
