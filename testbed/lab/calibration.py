"""Whether the links do what the scenario says: delay, rate and loss of each direction, measured.

Only the lab runs for it, no Tor; a run's own premise is `probes.premise`'s.
"""

import math
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.errors import TestbedError
from testbed.lab.network import Direction, Lab, running_lab
from testbed.machines.inside import arguments_of, errors_told
from testbed.plan import FULL_SIZE_PACKET_BYTES, Link, Plan, PlanPart
from testbed.probes.record import Record

CALIBRATION_FILE = "calibration.jsonl"
"""In a directory's `raw/`: a line per direction, written when all of them are measured."""

DELAY_TOLERANCE_MS = 0.1
RATE_TOLERANCE = 0.01
CONFIDENCE = 0.99

DELAY_DATAGRAMS = 20
RATE_PACKETS = 10_000
LOSSY_PACKETS = 105_000
LOSSLESS_PACKETS = 10_000

EXCESS = 1.05
"""How much more than the rate is offered to measure it."""

WARM_UP_PACKETS = 2_000
"""So many packets' time the excess fills the queue before the rate is measured."""

MOST_STREAMS = 8
STREAM_PACKETS = 44
"""What one stream's window holds at most: 64 kB."""

_IPERF_PORT = 5201
_DATAGRAM_BYTES = 1472
_SEGMENT_BYTES = 1448
"""Payload of a full-size packet: of UDP, and of TCP with timestamps."""

_START_TRIES = 3
_POLL_INTERVAL_S = 0.05
_PATIENCE_S = 30.0


class DirectionCounts(PlanPart):
    """What was counted on one direction of a link; nothing is judged here.

    Attributes:
        link: what the plan says of it.
        delays_ms: one way, of each datagram that arrived on the idle link.
        rate_window_s, rate_packets: how many full-size packets arrived in that time while more
            was offered than the link carries.
        sent_segments: by TCP, retransmissions included, as the sender's TCP counts them.
        arrived_packets: of these, on the receiver's interface, before anything is put together.
        bundled_segments: those that crossed the link as part of a bundle and not by themselves.
    """

    sender: str
    receiver: str
    link: Link
    delays_ms: tuple[float, ...]
    rate_window_s: float
    rate_packets: int
    sent_segments: int
    arrived_packets: int
    bundled_segments: int


@dataclass(frozen=True)
class Measured:
    """One property of one direction: what the scenario says against what was seen.

    Attributes:
        link: its ends, the clients' side first; "all" for a pooled loss.
        direction: sender and receiver.
        what: `delay_ms`, `rate_bit_per_s`, `loss` (a share) or `bundled_segments`.
        tolerance: the least and the most that is right.
        packets: how many the observation rests on.
        ok: whether the observation is in the tolerance.
    """

    link: str
    direction: str
    what: str
    expected: float
    observed: float
    tolerance: tuple[float, float]
    packets: int
    ok: bool


def run_calibration(plan: Plan, directory: Path, gso_max_segs: int = 1) -> None:
    """Measure every direction of every link of a plan, inside the machine.

    One link at a time, so that whatever a node sends by TCP goes over the link that is measured.

    - Delay: of datagrams on the idle link, from the sender's clock to the receiver's, which are
      one. It is the link's delay alone: the 50 bytes of a datagram are within what HTB lets pass
      back to back, so that they don't pay for serialisation.
    - Rate: both directions at once are offered 5 % more than they carry, by UDP; the packets that
      arrive are counted as whole Ethernet frames, as the rate is.
    - Loss: TCP streams in both directions at once, since TCP is what bundles segments; their
      windows together stay below the queue, so that nothing but the loss drops a packet. All
      segments count, acknowledgements too.
    - Bundles: HTB counts how often it let something pass, netem how many segments that were. Links
      with their queue in the sender let bundles pass in a run, but not here.

    A queue must hold what a sender gives it in the millisecond at which iperf3 paces its stream,
    8 packets at 100 Mbit/s: a shorter one drops packets that the link had time for.

    Args:
        plan: its links are measured; variant, traffic and duration don't matter.
        directory: gets `raw/calibration.jsonl` and `logs/`.
        gso_max_segs: instead of 1, to show that a calibration finds bundles.

    Raises:
        TestbedError: a link carries nothing at all.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    rows: list[DirectionCounts] = []
    with Record(directory / "raw") as record, running_lab(plan) as lab:
        _bundle(lab, gso_max_segs)
        for number, link in enumerate(plan.links, start=1):
            record.step(f"calibrating {_link_name(link)} ({number} of {len(plan.links)})")
            with (logs / f"iperf3-{_link_name(link)}.log").open("wb") as log:
                rows += _LinkUnderTest(lab, link, log.fileno()).counts()
        record.step("done")
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    (directory / "raw" / CALIBRATION_FILE).write_text(lines, encoding="utf-8")


def read_calibration(directory: Path) -> list[Measured]:
    """Judge what `run_calibration` has left in a directory.

    Raises:
        TestbedError: it has left nothing.
    """
    file = directory / "raw" / CALIBRATION_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise TestbedError(f"{file} is missing: the calibration didn't come to its end") from error
    return judge([DirectionCounts.model_validate_json(line) for line in lines])


def judge(counts: Sequence[DirectionCounts]) -> list[Measured]:
    """Hold what was counted against what the links should do.

    Delay within 0.1 ms, rate within 1 %. The number of lost packets is binomial; each direction
    is held against an interval that all lossy directions together keep with 99 % probability
    (Šidák 1967: each with 0.99^(1/n)), and the sum over all directions of the same loss against
    the 99 % interval. So a right lab fails one calibration in a hundred per such test: with
    another seed it passes. Where the link loses nothing, nothing may be lost, and no segment may
    ever cross a link in a bundle.
    """
    lossy = [one for one in counts if one.link.loss > 0]
    confidence = CONFIDENCE ** (1 / max(1, len(lossy)))
    rows = [row for one in counts for row in _judge_direction(one, confidence)]
    for loss in sorted({one.link.loss for one in lossy}):
        alike = [one for one in lossy if one.link.loss == loss]
        rows.append(_judge_loss("all", f"{len(alike)} directions", alike, CONFIDENCE))
    return rows


def print_calibration(console: Console, rows: Iterable[Measured]) -> bool:
    """Print a line per direction, what is wrong in red; whether all is right."""
    table = Table(box=None, title="observed / said (least to most that is right)")
    for heading in ("link", "direction", "delay, ms", "rate, Mbit/s", "loss, %", "bundled"):
        table.add_column(heading, no_wrap=heading in ("link", "direction"))
    all_ok = True
    for (link, direction), properties in groupby(rows, lambda row: (row.link, row.direction)):
        by_name = {row.what: row for row in properties}
        all_ok = all_ok and all(row.ok for row in by_name.values())
        cells = [_cell(by_name.get(what), *_SHOWN_AS[what]) for what in _SHOWN_AS]
        table.add_row(link, direction, *cells)
    console.print(table)
    console.print("All links are as the scenario says." if all_ok else "Links are not as said.")
    return all_ok


_SHOWN_AS = {
    "delay_ms": (1.0, 3),
    "rate_bit_per_s": (1e-6, 2),
    "loss": (100.0, 4),
    "bundled_segments": (1.0, 0),
}
"""The factor and the decimals with which a property is printed."""


def _cell(row: Measured | None, factor: float, decimals: int) -> str:
    if row is None:
        return ""
    text = f"{row.observed * factor:.{decimals}f} / {row.expected * factor:g}"
    if row.what == "loss" and row.expected:
        least, most = (limit * factor for limit in row.tolerance)
        text += f" ({least:.{decimals}f} to {most:.{decimals}f})"
    return text if row.ok else f"[bold red]{text}[/bold red]"


def _judge_direction(counts: DirectionCounts, confidence: float) -> Iterator[Measured]:
    link, direction = _link_name(counts.link), f"{counts.sender} to {counts.receiver}"

    def row(what: str, said: float, seen: float, within: float, packets: int) -> Measured:
        tolerance = (said - within, said + within)
        ok = tolerance[0] <= seen <= tolerance[1]
        return Measured(link, direction, what, said, seen, tolerance, packets, ok)

    delay_ms = statistics.median(counts.delays_ms)
    delays = len(counts.delays_ms)
    yield row("delay_ms", counts.link.delay_ms, delay_ms, DELAY_TOLERANCE_MS, delays)
    said = float(counts.link.rate_bit_per_s)
    seen = counts.rate_packets * FULL_SIZE_PACKET_BYTES * 8 / counts.rate_window_s
    yield row("rate_bit_per_s", said, seen, said * RATE_TOLERANCE, counts.rate_packets)
    yield _judge_loss(link, direction, [counts], confidence)
    bundled = float(counts.bundled_segments)
    yield row("bundled_segments", 0.0, bundled, 0.0, counts.sent_segments)


def _judge_loss(
    link: str, direction: str, alike: Sequence[DirectionCounts], confidence: float
) -> Measured:
    """Hold the packets lost on directions of the same loss against the binomial interval."""
    loss = alike[0].link.loss
    sent = sum(one.sent_segments for one in alike)
    lost = sent - sum(one.arrived_packets for one in alike)
    least, most = lost_packets_interval(sent, loss, confidence)
    return Measured(
        link=link,
        direction=direction,
        what="loss",
        expected=loss,
        observed=lost / sent,
        tolerance=(least / sent, most / sent),
        packets=sent,
        ok=least <= lost <= most,
    )


def lost_packets_interval(sent: int, loss: float, confidence: float) -> tuple[int, int]:
    """The least and the most packets lost of `sent` with this probability, tails of equal size."""
    # Here, not above: the guest imports this module too, and judges nothing.
    from scipy.stats import binom

    least, most = binom.interval(confidence, sent, loss)
    return int(least), int(most)


class _LinkUnderTest:
    """A link, both of its directions, and the streams that measure it."""

    def __init__(self, lab: Lab, link: Link, log: int) -> None:
        first, second = link.ends
        self._lab = lab
        self._link = link
        self._log = log
        self._directions = (lab.direction(first, second), lab.direction(second, first))

    def counts(self) -> list[DirectionCounts]:
        """Measure both directions."""
        delays_ms = [self._delays_ms(direction) for direction in self._directions]
        window_s, rate_packets = self._rate_window()
        sent, arrived = self._tcp_counts()
        return [
            DirectionCounts(
                sender=direction.sender,
                receiver=direction.receiver,
                link=self._link,
                delays_ms=delays_ms[number],
                rate_window_s=window_s,
                rate_packets=rate_packets[number],
                sent_segments=sent[number],
                arrived_packets=arrived[number],
                bundled_segments=self._lab.counters(direction).bundled_segments,
            )
            for number, direction in enumerate(self._directions)
        ]

    def _delays_ms(self, direction: Direction) -> tuple[float, ...]:
        """Send datagrams one by one, each with the time at which it was sent."""
        delays_ms = []
        with (
            self._datagram_socket(direction.sender) as sender,
            self._datagram_socket(direction.receiver) as receiver,
        ):
            sender.connect(receiver.getsockname())
            receiver.settimeout(self._link.delay_ms / 1000 + 1.0)
            for _ in range(DELAY_DATAGRAMS):
                sender.send(struct.pack("!q", time.monotonic_ns()))
                try:
                    (sent_ns,) = struct.unpack("!q", receiver.recv(8))
                except TimeoutError:
                    continue  # lost
                delays_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
        if not delays_ms:
            raise TestbedError(
                f"link {_link_name(self._link)}: no datagram of {DELAY_DATAGRAMS} arrived from"
                f" {direction.sender} at {direction.receiver}"
            )
        return tuple(delays_ms)

    def _datagram_socket(self, node: str) -> socket.socket:
        address = self._lab.plan.node(node).address

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((address, 0))
            return made

        return self._lab.inside(node, make)

    def _rate_window(self) -> tuple[float, list[int]]:
        """How many packets arrived in each direction within how many seconds of overload."""
        payload_share = _DATAGRAM_BYTES / FULL_SIZE_PACKET_BYTES
        offered_bit_per_s = round(self._link.rate_bit_per_s * payload_share * EXCESS)
        options = ["-u", "-b", str(offered_bit_per_s), "-l", str(_DATAGRAM_BYTES)]
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._link.rate_bit_per_s
        with self._streams(options):
            time.sleep(WARM_UP_PACKETS * packet_s)
            start_s, before = time.monotonic(), self._arrived_packets()
            time.sleep(RATE_PACKETS * packet_s)
            end_s, after = time.monotonic(), self._arrived_packets()
        return end_s - start_s, _differences(after, before)

    def _tcp_counts(self) -> tuple[list[int], list[int]]:
        """Segments sent and packets arrived in each direction.

        The link is empty when the count begins and when it ends.
        """
        wanted = LOSSY_PACKETS if self._link.loss > 0 else LOSSLESS_PACKETS
        before = self._settled()
        with self._streams(self._windows()) as still_run:
            self._wait_until_moved(before, wanted, still_run)
        moved = _differences(self._settled(), before)
        return moved[:2], moved[2:]

    def _windows(self) -> list[str]:
        """Return iperf3's options for streams that together fill a third of the queue at most.

        A second third is for the acknowledgements of the other direction's streams.
        """
        packets = max(2, self._link.holds_packets // 3)
        streams = min(MOST_STREAMS, math.ceil(packets / STREAM_PACKETS))
        window_bytes = min(STREAM_PACKETS, packets // streams) * _SEGMENT_BYTES
        return ["-P", str(streams), "-w", str(window_bytes)]

    def _wait_until_moved(
        self, before: list[int], wanted: int, still_run: Callable[[], bool]
    ) -> None:
        """Wait until both directions have sent `wanted` segments since `before`."""
        most, progress_s = 0, time.monotonic()
        while (least := min(_differences(self._sent_segments(), before[:2]))) < wanted:
            now_s = time.monotonic()
            if least > most:
                most, progress_s = least, now_s
            elif now_s - progress_s > _PATIENCE_S or not still_run():
                raise self._failure(f"its streams ended or stood still after {least} segments")
            time.sleep(_POLL_INTERVAL_S)

    @contextmanager
    def _streams(self, options: Sequence[str]) -> Iterator[Callable[[], bool]]:
        """iperf3 in both directions at once, from when packets flow until the end of the context.

        iperf3 begins a UDP stream with a datagram in each direction that it never repeats, so on
        a lossy link it has to be begun anew at times. It is ended by signal: its own end waits
        for the streams' and reads the clock all the while.

        Yields:
            whether it still runs, as a function.
        """
        client, server = self._link.ends
        server_address = str(self._lab.plan.node(server).address)
        listen = ["iperf3", "-s", "-1", "-p", str(_IPERF_PORT)]
        stream = ["iperf3", "-c", server_address, "-p", str(_IPERF_PORT), "-t", "86400", "--bidir"]
        for _ in range(_START_TRIES):
            with self._program(server, listen):
                self._lab.wait_for_server(server, _IPERF_PORT)
                with self._program(client, [*stream, *options]) as process:
                    if self._flows(process):
                        yield lambda: process.poll() is None
                        return
        raise self._failure(f"iperf3 didn't start in {_START_TRIES} tries")

    @contextmanager
    def _program(self, node: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        with self._lab.start(node, command, output=self._log) as process:
            try:
                yield process
            finally:
                process.kill()

    def _flows(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether packets of the streams come to flow in both directions."""
        before = self._arrived_packets()
        rate_packets_per_s = self._link.rate_bit_per_s / (8 * FULL_SIZE_PACKET_BYTES)
        # Its greetings are fewer packets than these, and shorter.
        wanted = 100
        deadline_s = time.monotonic() + 10.0 + wanted / rate_packets_per_s
        while time.monotonic() < deadline_s and process.poll() is None:
            if min(_differences(self._arrived_packets(), before)) >= wanted:
                return True
            time.sleep(_POLL_INTERVAL_S)
        return False

    def _settled(self) -> list[int]:
        """Segments sent and packets arrived, both directions, once neither grows any more."""
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._link.rate_bit_per_s
        emptied_s = self._link.delay_ms / 1000 + self._link.holds_packets * packet_s
        seen = [*self._sent_segments(), *self._arrived_packets()]
        while True:
            time.sleep(_POLL_INTERVAL_S + emptied_s)
            now = [*self._sent_segments(), *self._arrived_packets()]
            if now == seen:
                return now
            seen = now

    def _sent_segments(self) -> list[int]:
        return [_tcp_segments_out(self._lab, one.sender) for one in self._directions]

    def _arrived_packets(self) -> list[int]:
        return [self._lab.arrivals(one)[0] for one in self._directions]

    def _failure(self, what: str) -> TestbedError:
        name = _link_name(self._link)
        return TestbedError(f"link {name}: {what}: see logs/iperf3-{name}.log")


def _tcp_segments_out(lab: Lab, node: str) -> int:
    """All that a node's TCP has sent: `OutSegs` doesn't contain retransmissions."""
    # The thread's own: /proc/net is that of the process, which lives in another namespace.
    text = lab.inside(node, Path("/proc/thread-self/net/snmp").read_text)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    counters = dict(zip(names, values, strict=True))
    return int(counters["OutSegs"]) + int(counters["RetransSegs"])


def _bundle(lab: Lab, segments: int) -> None:
    for direction in lab.directions:
        netlink = lab.netlink(direction.sender)
        (index,) = netlink.link_lookup(ifname=direction.interface)
        netlink.link("set", index=index, gso_max_segs=segments)


def _differences(after: Iterable[int], before: Iterable[int]) -> list[int]:
    return [now - then for now, then in zip(after, before, strict=True)]


def _link_name(link: Link) -> str:
    return "-".join(link.ends)


def main() -> None:
    """Run as `python -m testbed.lab.calibration` by a machine, with a plan in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument(
        "--gso-max-segs", type=int, default=1, help="instead of 1: the calibration must fail"
    )
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_told(given.directory):
        run_calibration(plan, given.directory, given.gso_max_segs)


if __name__ == "__main__":
    main()
