"""Run a scenario with a variant of Tor.

The run goes to `results/<scenario>/<variant>/seed-<n>/`; with another traffic model than the
scenario's to `results/<scenario>-<model>/`.

```sh
./run.py scenario DroppingRemaining --variant vanilla --duration "60 s" --seed 7
```

`--set "links.middle-exit.loss=0.2 %"` sets [any value](scenarios.md#keys) of the scenario's file.
`--machine host` runs in real time on your own kernel ([host.md](host.md)). `--pcap exit-middle`
captures the links between two roles ([what is in the files](links.md#captures)); in a drawn network
they are `client-router`, `relay-router` and `server-router`. `--tgen PROGRAM` takes another
generator than the bundled one for both ends of every transfer, such as upstream's
[TGen](https://github.com/shadow/tgen). An installed one is never taken unasked; path and hash are
in `manifest.json`.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands import _options
from testbed import results
from testbed.asked.output import check_output, default_output
from testbed.asked.plans import make_plan
from testbed.basics.check import Check
from testbed.basics.console import say
from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.results.summary import CircuitsOfClients, Summary, TrafficSummary
from testbed.runs import runner

EPILOG = _options.STATUS

_MOST_NAMED = 8
"""With more clients, only their number is shown."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    _options.add_scenario(parser)
    _options.add_variant(parser)
    _options.add_traffic(parser)
    _options.add_duration(parser)
    _options.add_seed(parser, "seed of the losses, the traffic and a drawn network")
    _options.add_set(parser)
    parser.add_argument(
        "--out",
        type=Path,
        help="the run directory; must not exist (default: results/<scenario>/<variant>/seed-<n>)",
    )
    parser.add_argument(
        "--machine",
        choices=["virtual", "host"],
        default="virtual",
        help="run in virtual time (default), or in real time on this host, as root",
    )
    parser.add_argument("--json", action="store_true", help="print summary.json, not a table")
    parser.add_argument(
        "--tgen",
        metavar="PROGRAM",
        help="a TGen instead of the bundled one: a path or a name on PATH",
    )
    parser.add_argument(
        "--pcap",
        metavar="ROLE-ROLE",
        action="append",
        default=[],
        help="capture the links between two roles, such as exit-middle; may be repeated",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Carry out the run, and print its figures and whether it is valid."""
    plan = make_plan(
        given.scenario,
        given.variant,
        seed=given.seed,
        duration=given.duration,
        traffic=given.traffic,
        tgen=given.tgen,
        changes=dict(given.set),
    )
    destination = given.out or default_output(plan, given.machine)
    check_output(destination)
    title = f"{plan.scenario}, {plan.variant}, seed {plan.seed}"
    progress = runner.ProgressBar.on(messages, title)
    with progress.bar:
        summary = runner.carry_out(
            plan,
            destination,
            messages,
            progress.show,
            machine=given.machine,
            captures=given.pcap,
        )
    if given.json:
        print(summary.model_dump_json(indent=1))
    else:
        print_summary(Console(), summary)
        digits = results.read_run(destination).shown_fingerprint
        say(messages, f"results in {destination}, fingerprint {digits}")
    return VALID if summary.valid else PREMISE_FAILED


def print_summary(console: Console, summary: Summary) -> None:
    """Print the figures of a run and whether it is valid."""
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
    # If Tor builds circuits by itself there is neither.
    if built.mean is not None:
        yield "circuit build time", _with_deviation(built.mean, built.sd, "ms", 0)
    if link.connections is not None:
        yield (
            "shared link",
            f"{_counted(link.connections, 'connection')}, {_counted(link.circuits, 'circuit')}",
        )
    if circuits := summary.circuits_of_clients:
        yield from _circuit_lines(circuits)
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
    if summary.processors:
        one = max(summary.processors, key=lambda one: one.busy_percent)
        yield (
            "busiest processor",
            f"{one.node}: {one.busy_percent:.1f} % busy, {one.read_mbit_per_s:.2f} Mbit/s read",
        )
    if summary.wire_bytes_per_byte is not None:
        yield "bytes on the wire", f"{summary.wire_bytes_per_byte:.3f} for each byte delivered"
    together = f" on {cost.cores} cores" if cost.cores and cost.cores > 1 else ""
    yield (
        "cost",
        f"{cost.virtual_s:.0f} s virtual, {cost.wall_s:.0f} s wall{together},"
        f" {cost.cpu_s:.0f} s CPU for {cost.delivered_mb:.0f} MB",
    )


def _circuit_lines(circuits: CircuitsOfClients) -> Iterator[tuple[str, str]]:
    if circuits.made.median is not None and circuits.used.median is not None:
        made, used = circuits.made.median, circuits.used.median
        yield "circuits of a client", f"{made:g} made, {used:g} used (medians)"
    if circuits.streams_by_rule:
        counts = (f"{count} by {rule}" for rule, count in circuits.streams_by_rule.items())
        yield "streams placed", ", ".join(counts)
    if circuits.streams_by_liars is not None:
        yield "streams by liars", f"{circuits.streams_by_liars}"
    if circuits.probes:
        yield "policy's probes", f"{circuits.probes}, {circuits.probe_bytes} bytes on each link"


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
        yield Text(f"{held} other checks hold; the run is invalid", style="bold red")
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
