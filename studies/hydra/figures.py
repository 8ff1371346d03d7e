"""What is particular to this study: its table of statements, and the paper's numbers as texts."""

from dataclasses import replace

from analysis.metrics.transfers import STREAM_ROUND_TRIP, THROUGHPUT
from analysis.runs import Found
from analysis.table import Table
from papers.hydra.published import TABLE_4
from papers.hydra.statements import FAILS, HOLDS, OPEN, Statement, judged_statements
from papers.hydra.tables import statements


def tables(found: Found) -> dict[str, Table]:
    """The statements on two clients, without those on windows, which need whole runs."""
    rows = tuple((one.text, one.verdict, one.numbers) for one in _judged(found))
    return {"statements": replace(statements.table(found), rows=rows)}


def fields(found: Found) -> dict[str, object]:
    """How many statements have which verdict, and what the paper has."""
    verdicts = [one.verdict for one in _judged(found)]
    counts = {"holds": HOLDS, "fails": FAILS, "undecided": OPEN}
    return {
        "statements": {name: verdicts.count(verdict) for name, verdict in counts.items()}
        | {"all": len(verdicts)},
        "paper": _published,
    }


def _judged(found: Found) -> list[Statement]:
    return [one for one in judged_statements(found) if "window" not in one.text]


def _published(variant: str, scenario: str, key: str) -> str:
    """A number of Table 4: "1.37 MB/s", "91 ms"."""
    row = TABLE_4[variant, scenario]
    metric, number = {
        THROUGHPUT.key: (THROUGHPUT, row.throughput_mb_per_s),
        STREAM_ROUND_TRIP.key: (STREAM_ROUND_TRIP, row.stream_round_trip_ms),
    }[key]
    return f"{number.mean:.{metric.digits}f} {metric.unit}"
