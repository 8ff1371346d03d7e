"""A run's summary on the terminal: a short table and the checks that did not hold.

Tables over many runs are the analysis's.
"""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.check import Check
from testbed.results.summary import Summary, TrafficSummary

_MOST_NAMED = 8
"""Of more clients only the number is shown."""


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
    for traffic in summary.by_traffic:
        if len(summary.by_traffic) > 1:
            yield f"[bold]{traffic.traffic}[/bold]", _named(traffic.clients)
        yield from _traffic_lines(traffic)
    if len(summary.by_traffic) > 1:
        yield "[bold]the run[/bold]", ""
    built, link, cost = summary.circuit_build_time_ms, summary.shared_link, summary.cost
    # Where Tor builds circuits by itself there is neither.
    if built.mean is not None:
        yield "circuit build time", _with_deviation(built.mean, built.sd, "ms", 0)
    if link.connections is not None:
        yield (
            "shared link",
            f"{_counted(link.connections, 'connection')}, {_counted(link.circuits, 'circuit')}",
        )
    for entry in summary.competing:
        rates = ", ".join(f"{rate:.2f}" for rate in entry.stream_mb_per_s)
        yield "competing streams", f"{entry.sender} to {entry.receiver}: {rates} MB/s"
    if summary.relays:
        most = max(summary.relays, key=lambda relay: relay.connections)
        yield (
            "busiest relay",
            f"{most.relay}: {_counted(most.connections, 'connection')}, {most.sockets} sockets,"
            f" {most.tor_memory_mb:.1f} MB of Tor, {most.socket_memory_mb:.1f} MB of sockets",
        )
    if summary.wire_bytes_per_byte is not None:
        yield "bytes on the wire", f"{summary.wire_bytes_per_byte:.3f} for each byte delivered"
    yield (
        "cost",
        f"{cost.virtual_s:.0f} s virtual, {cost.wall_s:.0f} s wall, {cost.cpu_s:.0f} s CPU"
        f" for {cost.delivered_mb:.0f} MB",
    )


def _traffic_lines(traffic: TrafficSummary) -> Iterator[tuple[str, str]]:
    throughput = traffic.throughput_mb_per_s
    stream_trip, circuit_trip = traffic.stream_round_trip_ms, traffic.circuit_round_trip_ms
    first, last = traffic.time_to_first_byte_s, traffic.time_to_last_byte_s
    name = "throughput" if traffic.direction == "download" else "upload throughput"
    yield name, _with_deviation(throughput.mean, throughput.sd, "MB/s", 2)
    if (fenced := traffic.throughput_without_outliers_mb_per_s) and fenced.outliers:
        text = _with_deviation(fenced.mean, None, "MB/s", 2)
        yield "without outliers", f"{text}, {fenced.outliers} left out"
    if traffic.direction == "download":
        yield "time to first byte", _with_tail(first.mean, first.p95)
    yield "time to last byte", _with_tail(last.mean, last.p95)
    if load := traffic.load_s:
        yield "time of a load", _with_tail(load.mean, load.p95)
    if fair := traffic.fairness:
        percent = f"{100 * fair.largest_difference:.1f} %"
        yield "clients", f"Jain's index {fair.jain_index:.3f}, at most {percent} apart"
    if stream_trip:
        yield "stream round trip", _with_deviation(stream_trip.mean, stream_trip.sd, "ms", 0)
    if circuit_trip.mean is not None:
        yield "circuit round trip", _with_deviation(circuit_trip.mean, circuit_trip.sd, "ms", 0)
    transfers = traffic.transfers
    yield "transfers", f"{transfers.completed} completed, {transfers.failed} failed"
    if (streaming := traffic.streaming) and streaming.judged_s:
        rate = streaming.rate_mb_per_s
        yield "delivered a second", _with_deviation(rate.mean, rate.sd, "MB", 3)
        longest = f", {streaming.stall_s.mean:.1f} s each" if streaming.stalls else ""
        yield "stalls", f"{streaming.stalls}{longest}, in {streaming.judged_s} s"


def _verdict(checks: tuple[Check, ...]) -> Iterator[Text]:
    failed = [check for check in checks if check.failed]
    held = sum(check.ok is True for check in checks)
    for check in failed:
        yield Text.assemble(
            (f"FAILED {check.name}", "bold red"),
            f": expected {check.expected}; observed {check.observed}",
        )
    if failed:
        yield Text(f"{held} other checks hold; the run does not count", style="bold red")
    else:
        yield Text(f"{held} checks hold", style="green")
    for check in checks:
        if check.ok is None:
            yield Text(f"not judged: {check.name}: {check.observed}", style="yellow")


def _named(clients: Sequence[str]) -> str:
    return ", ".join(clients) if len(clients) <= _MOST_NAMED else f"{len(clients)} clients"


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
