"""A run's summary on the terminal: a short table and the checks that did not hold.

Tables over many runs are the analysis's.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.results.summary import Check, Summary


def print_summary(console: Console, summary: Summary) -> None:
    """Print the figures of a run and whether they count."""
    table = Table(
        title=f"{summary.scenario}, {summary.variant}, seed {summary.seed}",
        show_header=False,
        title_justify="left",
    )
    for name, text in _lines(summary):
        table.add_row(name, text)
    console.print(table)
    for line in _verdict(summary.checks):
        console.print(line)


def _lines(summary: Summary) -> Iterator[tuple[str, str]]:
    throughput, first = summary.throughput_mb_per_s, summary.time_to_first_byte_s
    last, cost = summary.time_to_last_byte_s, summary.cost
    yield "throughput", _with_deviation(throughput.mean, throughput.sd, "MB/s", 2)
    yield "time to first byte", _with_tail(first.mean, first.p95)
    yield "time to last byte", _with_tail(last.mean, last.p95)
    for name, figure in (
        ("circuit round trip", summary.circuit_round_trip_ms),
        ("circuit build time", summary.circuit_build_time_ms),
    ):
        yield name, _with_deviation(figure.mean, figure.sd, "ms", 0)
    link = summary.shared_link
    yield (
        "shared link",
        f"{_counted(link.connections, 'connection')}, {_counted(link.circuits, 'circuit')}",
    )
    transfers = summary.transfers
    yield "transfers", f"{transfers.completed} completed, {transfers.failed} failed"
    yield (
        "cost",
        f"{cost.virtual_s:.0f} s virtual, {cost.wall_s:.0f} s wall, {cost.cpu_s:.0f} s CPU"
        f" for {cost.delivered_mb:.0f} MB",
    )


def _verdict(checks: tuple[Check, ...]) -> Iterator[Text]:
    failed = [check for check in checks if not check.ok]
    held = len(checks) - len(failed)
    for check in failed:
        yield Text.assemble(
            (f"FAILED {check.name}", "bold red"),
            f": expected {check.expected}; observed {check.observed}",
        )
    if failed:
        yield Text(f"{held} other checks hold; the run does not count", style="bold red")
    else:
        yield Text(f"{held} checks hold", style="green")


def _with_deviation(mean: float | None, sd: float | None, unit: str, digits: int) -> str:
    if mean is None:
        return "-"
    spread = "" if sd is None else f" ± {sd:.{digits}f}"
    return f"{mean:.{digits}f}{spread} {unit}"


def _with_tail(mean: float | None, p95: float | None) -> str:
    return "-" if mean is None or p95 is None else f"{mean:.2f} s, 95 % within {p95:.2f} s"


def _counted(number: int | None, what: str) -> str:
    if number is None:
        return f"? {what}s"
    return f"{number} {what}" + ("" if number == 1 else "s")
