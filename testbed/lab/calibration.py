"""Whether the links do what the scenario says: delay, rate and loss of each direction, measured.

Only the lab runs for it, no Tor; a run's own premise is `probes.premise`'s.
"""

import math
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.errors import TestbedError
from testbed.lab.links import LinkCounters
from testbed.lab.network import Lab, running_lab
from testbed.machines.inside import arguments_of, errors_told
from testbed.network.model import FULL_SIZE_PACKET_BYTES, Shape
from testbed.plan_model import Link, Plan, PlanPart
from testbed.queue_disciplines import FIFO
from testbed.recording import Record
from testbed.seeds import derived_seed

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

PAIRS = 4
"""Of hosts of each kind, in networks with sites."""

LOAD_STREAMS = 4
LOAD_SAMPLES = 200
LOAD_INTERVAL_S = 0.025
LEAST_LOAD_WARM_UP_S = 3.0
WARM_UP_EMPTYINGS = 10
"""The full load: so many TCP streams in one direction, watched for five seconds.

Before that a FIFO must be filled, which takes several times as long as to empty it: CUBIC leaves
slow start long before it is full (HyStart, RFC 9406), and grows slowly then.

With each sample a datagram is sent, so that there is a flow that hardly sends.
"""

MOST_WAITING_PACKETS = 1000
"""In queues with a discipline, whose own bounds are meant for the fastest links."""

MOST_BUNDLE_SEGMENTS = 45
"""Linux's bundles have at most 64 kB (GSO_LEGACY_MAX_SIZE in include/linux/netdevice.h)."""

MOST_STREAMS = 8
STREAM_PACKETS = 44
"""What one stream's window holds at most: 64 kB."""

_IPERF_PORT = 5201
_SO_TIMESTAMPNS = 35
"""Of Linux (include/uapi/asm-generic/socket.h); Python has no name for it."""
_DATAGRAM_BYTES = 1472
_SEGMENT_BYTES = 1448
"""Payload of a full-size packet: of UDP, and of TCP with timestamps."""

_START_TRIES = 3
_POLL_INTERVAL_S = 0.05
_PATIENCE_S = 30.0


class LoadCounts(PlanPart):
    """What was counted on one direction of a link while TCP gave it all that it takes.

    Attributes:
        queue_delays_ms: what waited in the queue at each sample, as the time in which the link
            sends it.
        datagram_delays_ms: one way, of each datagram of another flow that arrived.
        sent_bytes: by the link in `window_s`, as whole frames.
        dropped_by_queue: packets, or bundles, in that time.
    """

    queue_delays_ms: tuple[float, ...]
    datagram_delays_ms: tuple[float, ...]
    window_s: float
    sent_bytes: int
    dropped_by_queue: int


class CalibratedDirection(PlanPart):
    """What was counted on one direction of a link; nothing is judged here.

    Attributes:
        link: what the plan says of it.
        delays_ms: one way, of each datagram that arrived on the idle link.
        rate_window_s, rate_packets: how many full-size packets arrived in that time while more
            was offered than the link carries.
        sent_segments: by TCP, retransmissions included, as the sender's TCP counts them.
        passed_segments, passed_bundles: of these, by the link, past its loss and its queue.
        lost_by_link, dropped_by_queue: packets, or bundles where they cross as one.
        arrived_packets: on the receiver's interface, before anything is put together.
        bundled_segments: those that crossed the link as part of a bundle and not by themselves.
        load: on one link of each kind.
    """

    sender: str
    receiver: str
    link: Link
    delays_ms: tuple[float, ...]
    rate_window_s: float
    rate_packets: int
    sent_segments: int
    passed_segments: int
    passed_bundles: int
    lost_by_link: int
    dropped_by_queue: int
    arrived_packets: int
    bundled_segments: int
    load: LoadCounts | None = None

    @property
    def shape(self) -> Shape:
        """What the direction should do."""
        return self.link.shape_from(self.sender)


@dataclass(frozen=True)
class Measured:
    """One property of one direction: what the scenario says against what was seen.

    Attributes:
        link: its ends, the clients' side first; "all" for a pooled loss.
        direction: sender and receiver.
        queue: its discipline; empty for a pooled loss.
        what: `delay_ms`, `rate_bit_per_s`, `loss` (a share); `bundled_segments`, or where bundles
            cross as one `segments_per_bundle`, `segment_loss` (a share) and `divided_bundles`;
            under a full load `queue_delay_ms` (median), `queue_delay_p95_ms`,
            `queue_delay_max_ms`, `datagram_delay_ms` (median, without the link's), `carried` and
            `queue_drops` (shares).
        expected: None where the scenario says nothing of it.
        tolerance: the least and the most that is right; None for what is shown, not judged.
        packets: how many the observation rests on.
        ok: whether the observation is in the tolerance.
    """

    link: str
    direction: str
    queue: str
    what: str
    expected: float | None
    observed: float
    tolerance: tuple[float, float] | None
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
      windows together stay below the queue, so that a FIFO drops no packet. All segments count,
      acknowledgements too. What the queue drops is no loss of the link.
    - Bundles: HTB counts how often it let something pass, netem how many segments that were. Links
      with their queue in the sender let bundles pass in a run, but not here, unless they cross as
      one.
    - The queue under a full load, on the first link of each kind, one direction after the other:
      TCP streams with all the window that they want. What waits is asked of the kernel; what is
      still in the delay line is not in it. Datagrams of another flow show what that meets.

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
    rows: list[CalibratedDirection] = []
    with Record(directory / "raw") as record, running_lab(plan) as lab:
        _bundle(lab, gso_max_segs)
        measured = list(calibrated_links(plan))
        for number, link in enumerate(measured, start=1):
            record.step(f"calibrating {_link_name(link)} ({number} of {len(measured)})")
            with (logs / f"iperf3-{_link_name(link)}.log").open("wb") as log:
                first = next(one for one in measured if _kind(one) == _kind(link))
                test = _LinkUnderTest(lab, link, log.fileno())
                rows += test.counts(with_load=link is first and link in plan.links)
        record.step("done")
    lines = "".join(row.model_dump_json() + "\n" for row in rows)
    (directory / "raw" / CALIBRATION_FILE).write_text(lines, encoding="utf-8")


def calibrated_links(plan: Plan) -> Iterator[Link]:
    """What is measured: every link; or, where sites are between hosts, the ways of some pairs.

    Those are drawn by the seed, `PAIRS` of each kind that have something to tell each other. What
    the links of a way do together is put into one.
    """
    if not plan.of_kind("router"):
        yield from plan.links
        return
    exits = [relay for relay in plan.of_kind("relay") if "exit" in relay.flags]
    for kind, firsts, seconds in (
        ("client-relay", plan.of_kind("client"), plan.of_kind("relay")),
        ("relay-relay", plan.of_kind("relay"), plan.of_kind("relay")),
        ("relay-server", exits, plan.of_kind("server")),
    ):
        pairs = [(one.name, other.name) for one in firsts for other in seconds if one != other]
        pairs.sort(key=lambda ends: derived_seed(plan.seed, "calibration", *ends))
        for ends in pairs[:PAIRS]:
            yield Link(
                ends=ends,
                roles=(kind, kind),
                there=_whole(plan, *ends),
                back=_whole(plan, *ends[::-1]),
                netem_seeds=(0, 0),
            )


def _whole(plan: Plan, sender: str, receiver: str) -> Shape:
    """What the links between two hosts do together."""
    shapes = {(one, other): shape for link in plan.links for one, other, shape in link.directions()}
    router = {one: other for one, other in shapes if plan.node(other).kind == "router"}
    nodes = dict.fromkeys((sender, router[sender], router[receiver], receiver))
    whole, *others = (shapes[hop] for hop in pairwise(nodes))
    for shape in others:
        whole = whole.then(shape)
    return whole


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
    return judge([CalibratedDirection.model_validate_json(line) for line in lines])


def judge(counts: Sequence[CalibratedDirection]) -> list[Measured]:
    """Hold what was counted against what the links should do.

    Delay within 0.1 ms, rate within 1 %. The number of lost packets is binomial; each direction
    is held against an interval that all lossy directions together keep with 99 % probability
    (Šidák 1967: each with 0.99^(1/n)), and the sum over all directions of the same loss against
    the 99 % interval. So a right lab fails one calibration in a hundred per such test: with
    another seed it passes. Where the link loses nothing, nothing may be lost, and no segment may
    ever cross a link in a bundle.

    Where bundles cross as one, the same holds of the number of lost bundles; as many must arrive
    as have passed; and they must be bundles: more than one segment each on average. Of the
    segments the same share is lost, but by chance more or less of them than if each were lost by
    itself: the interval is that of bundles which differ in size as much as they can.

    Under a full load no more may wait than the queue holds. The rest is shown, and not judged.
    """
    lossy = [one for one in counts if one.shape.loss > 0]
    confidence = CONFIDENCE ** (1 / max(1, len(lossy)))
    rows = [row for one in counts for row in _judge_direction(one, confidence)]
    for loss, bundles in sorted({(one.shape.loss, one.shape.bundles) for one in lossy}):
        alike = [one for one in lossy if (one.shape.loss, one.shape.bundles) == (loss, bundles)]
        rows.append(_judge_loss(("all", f"{len(alike)} directions", ""), alike, CONFIDENCE))
    return rows


def print_calibration(console: Console, rows: Iterable[Measured]) -> bool:
    """Print a line per direction, what is wrong in red; whether all is right."""
    rows = list(rows)
    for title, first, shown_as in (
        ("observed / said (least to most that is right)", "link", _SHOWN_AS),
        ("where bundles cross as one, and are lost as one", "link", _BUNDLES_SHOWN_AS),
        ("under a full load: ms in the queue, most / room; shares in %", "queue", _LOAD_SHOWN_AS),
    ):
        if any(row.what in shown_as for row in rows):
            console.print(_table(title, rows, first, shown_as))
    all_ok = all(row.ok for row in rows)
    console.print("All links are as the scenario says." if all_ok else "Links are not as said.")
    return all_ok


@dataclass(frozen=True)
class _Shown:
    """How a property is printed: its heading, a factor, and how many decimals."""

    heading: str
    factor: float
    decimals: int


_SHOWN_AS = {
    "delay_ms": _Shown("delay, ms", 1.0, 3),
    "rate_bit_per_s": _Shown("rate, Mbit/s", 1e-6, 2),
    "loss": _Shown("loss, %", 100.0, 4),
    "bundled_segments": _Shown("bundled", 1.0, 0),
}
_BUNDLES_SHOWN_AS = {
    "segments_per_bundle": _Shown("segments each", 1.0, 2),
    "divided_bundles": _Shown("divided", 1.0, 0),
    "segment_loss": _Shown("segments lost, %", 100.0, 4),
}
_LOAD_SHOWN_AS = {
    "queue_delay_ms": _Shown("median", 1.0, 2),
    "queue_delay_p95_ms": _Shown("95 %", 1.0, 2),
    "queue_delay_max_ms": _Shown("most", 1.0, 1),
    "datagram_delay_ms": _Shown("other", 1.0, 2),
    "carried": _Shown("carried", 100.0, 1),
    "queue_drops": _Shown("drops", 100.0, 3),
}


def _table(
    title: str, rows: Sequence[Measured], first: str, shown_as: Mapping[str, _Shown]
) -> Table:
    """A line per direction, with what there is of these properties."""
    table = Table(box=None, title=title)
    there = [what for what in shown_as if any(row.what == what for row in rows)]
    for heading in (first, "direction", *(shown_as[what].heading for what in there)):
        table.add_column(heading, no_wrap=heading in (first, "direction"))
    for (link, direction), properties in groupby(rows, lambda row: (row.link, row.direction)):
        by_name = {row.what: row for row in properties}
        cells = [_cell(by_name.get(what), shown_as[what]) for what in there]
        if any(cells):
            name = link if first == "link" else next(iter(by_name.values())).queue
            table.add_row(name, direction, *cells)
    return table


_SHARES = ("loss", "segment_loss")


def _cell(row: Measured | None, shown: _Shown) -> str:
    if row is None:
        return ""
    text = f"{row.observed * shown.factor:.{shown.decimals}f}"
    if row.expected is not None:
        text += f" / {row.expected * shown.factor:.6g}"
    if row.tolerance and row.what in _SHARES and row.expected:
        least, most = (limit * shown.factor for limit in row.tolerance)
        text += f" ({least:.{shown.decimals}f} to {most:.{shown.decimals}f})"
    return text if row.ok else f"[bold red]{text}[/bold red]"


def _judge_direction(counts: CalibratedDirection, confidence: float) -> Iterator[Measured]:
    names = _names(counts)

    def row(what: str, said: float, seen: float, within: float, packets: int) -> Measured:
        tolerance = (said - within, said + within)
        ok = tolerance[0] <= seen <= tolerance[1]
        return Measured(*names, what, said, seen, tolerance, packets, ok)

    delay_ms = statistics.median(counts.delays_ms)
    delays = len(counts.delays_ms)
    yield row("delay_ms", counts.shape.delay_ms, delay_ms, DELAY_TOLERANCE_MS, delays)
    said = float(counts.shape.rate_bit_per_s or 0)
    seen = counts.rate_packets * FULL_SIZE_PACKET_BYTES * 8 / counts.rate_window_s
    yield row("rate_bit_per_s", said, seen, said * RATE_TOLERANCE, counts.rate_packets)
    yield _judge_loss(names, [counts], confidence)
    if counts.shape.bundles:
        yield from _judge_bundles(counts, confidence)
    else:
        bundled = float(counts.bundled_segments)
        yield row("bundled_segments", 0.0, bundled, 0.0, counts.sent_segments)
    if counts.load:
        yield from _judge_load(counts.load, counts.shape, names)


def _names(counts: CalibratedDirection) -> tuple[str, str, str]:
    """Link, direction and queue, as `Measured` has them."""
    direction = f"{counts.sender} to {counts.receiver}"
    return _link_name(counts.link), direction, counts.shape.queue_discipline


def _judge_bundles(counts: CalibratedDirection, confidence: float) -> Iterator[Measured]:
    """Whether they are bundles, crossed as one, and took so many segments with them.

    Of n bundles with s segments each, of which a share p is lost, the lost segments' variance is
    p (1 - p) n E[s²], and E[s²] at most (m + 1) E[s] - m where s is from 1 to m (Bhatia and Davis,
    American Mathematical Monthly 107, 2000).
    """
    passed, sent = counts.passed_bundles, counts.sent_segments
    size = counts.passed_segments / passed
    most = float(MOST_BUNDLE_SEGMENTS)
    names = _names(counts)
    right = 1 < size <= most
    yield Measured(*names, "segments_per_bundle", None, size, (1.0, most), passed, right)
    divided = float(counts.arrived_packets - passed)
    yield Measured(*names, "divided_bundles", 0.0, divided, (0.0, 0.0), passed, divided == 0)
    if not counts.dropped_by_queue:  # nobody counts the segments of what the queue dropped
        loss = counts.shape.loss
        variance = loss * (1 - loss) * ((most + 1) - most / size) / sent
        within = normal_quantile(confidence) * math.sqrt(variance)
        tolerance = (max(0.0, loss - within), loss + within)
        lost = (sent - counts.passed_segments) / sent
        ok = tolerance[0] <= lost <= tolerance[1]
        yield Measured(*names, "segment_loss", loss, lost, tolerance, sent, ok)


def _judge_load(load: LoadCounts, said: Shape, names: tuple[str, str, str]) -> Iterator[Measured]:
    """What waited under a full load: no more than there is room for."""
    frame_ms = FULL_SIZE_PACKET_BYTES * 8000 / (said.rate_bit_per_s or math.inf)
    in_bundles = said.largest_bundle_segments or MOST_BUNDLE_SEGMENTS
    largest_ms = frame_ms * (in_bundles if said.bundles else 1)
    room_ms = math.ceil((said.queue_packets + 1) * largest_ms)
    delays_ms = sorted(load.queue_delays_ms)
    packets = round(load.sent_bytes / FULL_SIZE_PACKET_BYTES)

    def row(what: str, seen: float, expected: float | None = None) -> Measured:
        tolerance = None if expected is None else (0.0, expected)
        ok = expected is None or seen <= expected
        return Measured(*names, what, expected, seen, tolerance, packets, ok)

    yield row("queue_delay_ms", statistics.median(delays_ms))
    yield row("queue_delay_p95_ms", delays_ms[len(delays_ms) * 95 // 100])
    yield row("queue_delay_max_ms", delays_ms[-1], room_ms)
    if load.datagram_delays_ms:
        waited_ms = statistics.median(load.datagram_delays_ms) - said.delay_ms
        yield row("datagram_delay_ms", waited_ms)
    yield row("carried", load.sent_bytes * 8 / load.window_s / (said.rate_bit_per_s or math.inf))
    yield row("queue_drops", load.dropped_by_queue / max(1, load.dropped_by_queue + packets))


def _judge_loss(
    names: tuple[str, str, str], alike: Sequence[CalibratedDirection], confidence: float
) -> Measured:
    """Hold what was lost on directions of the same loss against the binomial interval."""
    loss = alike[0].shape.loss
    pairs = [_sent_and_lost(one) for one in alike]
    sent, lost = (sum(column) for column in zip(*pairs, strict=True))
    least, most = lost_packets_interval(sent, loss, confidence)
    tolerance = (least / sent, most / sent)
    return Measured(*names, "loss", loss, lost / sent, tolerance, sent, least <= lost <= most)


def _sent_and_lost(counts: CalibratedDirection) -> tuple[int, int]:
    """Packets by what TCP sent and what arrived; bundles, which nobody else counts, by the link."""
    if counts.shape.bundles:
        sent = counts.passed_bundles + counts.lost_by_link + counts.dropped_by_queue
        return sent, counts.lost_by_link
    sent = counts.sent_segments
    return sent, sent - counts.arrived_packets - counts.dropped_by_queue


def normal_quantile(confidence: float) -> float:
    """How many standard deviations to each side hold a normal variable with this probability."""
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


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
        self._shape = link.there
        rates = [shape.rate_bit_per_s or 0 for shape in (link.there, link.back)]
        self._rate_bit_per_s, self._greatest_rate_bit_per_s = min(rates), max(rates)
        self._log = log
        self._paths = (lab.path(first, second), lab.path(second, first))

    def counts(self, *, with_load: bool) -> list[CalibratedDirection]:
        """Measure both directions; with the queue under a full load if asked for."""
        ends = (self._link.ends, self._link.ends[::-1])
        delays_ms = [self._delays_ms(*one) for one in ends]
        window_s, rate_packets = self._rate_window()
        tcp = self._tcp_counts()
        load = [self._under_load(number) if with_load else None for number in range(2)]
        return [
            CalibratedDirection(
                sender=sender,
                receiver=receiver,
                link=self._link,
                delays_ms=delays_ms[number],
                rate_window_s=window_s,
                rate_packets=rate_packets[number],
                bundled_segments=self._counters()[number].bundled_segments,
                load=load[number],
                **tcp[number],
            )
            for number, (sender, receiver) in enumerate(ends)
        ]

    def _delays_ms(self, first: str, second: str) -> tuple[float, ...]:
        """Send datagrams one by one, each with the time at which it was sent."""
        delays_ms = []
        with (
            self._datagram_socket(first) as sender,
            self._datagram_socket(second) as receiver,
        ):
            sender.connect(receiver.getsockname())
            receiver.settimeout(self._shape.delay_ms / 1000 + 1.0)
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
                f" {first} at {second}"
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
        offered_bit_per_s = round(self._greatest_rate_bit_per_s * payload_share * EXCESS)
        options = ["-u", "-b", str(offered_bit_per_s), "-l", str(_DATAGRAM_BYTES)]
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._rate_bit_per_s
        with self._streams(["--bidir", *options]):
            time.sleep(WARM_UP_PACKETS * packet_s)
            start_s, before = time.monotonic(), self._arrived_packets()
            time.sleep(RATE_PACKETS * packet_s)
            end_s, after = time.monotonic(), self._arrived_packets()
        return end_s - start_s, _differences(after, before)

    def _tcp_counts(self) -> list[dict[str, int]]:
        """What TCP sent in each direction, what became of it, and what arrived.

        The link is empty when the count begins and when it ends.
        """
        wanted = LOSSY_PACKETS if self._shape.loss > 0 else LOSSLESS_PACKETS
        before = self._settled()
        with self._streams(["--bidir", *self._windows()]) as still_run:
            self._wait_until_moved(before, wanted, still_run)
        after = self._settled()
        return [
            {name: count - then[name] for name, count in now.items()}
            for now, then in zip(after, before, strict=True)
        ]

    def _under_load(self, number: int) -> LoadCounts:
        """What waits in one direction's queue while TCP gives it all that it takes."""
        (direction,), rate_bit_per_s = self._paths[number], self._rate_bit_per_s
        options = ["-P", str(LOAD_STREAMS), *(["-R"] if number else [])]
        waiting_bytes = []
        with (
            self._streams(options),
            self._datagram_socket(direction.sender) as sender,
            self._datagram_socket(direction.receiver) as receiver,
        ):
            sender.connect(receiver.getsockname())
            receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            receiver.setblocking(False)
            time.sleep(max(LEAST_LOAD_WARM_UP_S, WARM_UP_EMPTYINGS * self._emptied_s()))
            start_s, before = time.monotonic(), self._lab.counters(direction)
            for _ in range(LOAD_SAMPLES):
                waiting_bytes.append(self._lab.counters(direction).waiting_bytes)
                sender.send(struct.pack("!q", time.time_ns()))
                time.sleep(LOAD_INTERVAL_S)
            window_s, after = time.monotonic() - start_s, self._lab.counters(direction)
            time.sleep(self._emptied_s())
            datagram_delays_ms = tuple(_received_ms(receiver))
        self._settled()
        return LoadCounts(
            queue_delays_ms=tuple(8000 * waiting / rate_bit_per_s for waiting in waiting_bytes),
            datagram_delays_ms=datagram_delays_ms,
            window_s=window_s,
            sent_bytes=after.sent_bytes - before.sent_bytes,
            dropped_by_queue=after.overflowed_packets - before.overflowed_packets,
        )

    def _windows(self) -> list[str]:
        """Return iperf3's options for streams that together fill a third of the queue at most.

        A second third is for the acknowledgements of the other direction's streams.
        """
        packets = max(2, self._shape.holds_packets // 3)
        streams = min(MOST_STREAMS, math.ceil(packets / STREAM_PACKETS))
        window_bytes = min(STREAM_PACKETS, packets // streams) * _SEGMENT_BYTES
        return ["-P", str(streams), "-w", str(window_bytes)]

    def _wait_until_moved(
        self, before: list[dict[str, int]], wanted: int, still_run: Callable[[], bool]
    ) -> None:
        """Wait until both directions have sent `wanted` segments since `before`."""
        most, progress_s = 0, time.monotonic()
        then = [counts["sent_segments"] for counts in before]
        while (least := min(_differences(self._sent_segments(), then))) < wanted:
            now_s = time.monotonic()
            if least > most:
                most, progress_s = least, now_s
            elif now_s - progress_s > _PATIENCE_S or not still_run():
                raise self._failure(f"its streams ended or stood still after {least} segments")
            time.sleep(_POLL_INTERVAL_S)

    @contextmanager
    def _streams(self, options: Sequence[str]) -> Iterator[Callable[[], bool]]:
        """iperf3 from when packets flow in both directions until the end of the context.

        iperf3 begins a UDP stream with a datagram in each direction that it never repeats, so on
        a lossy link it has to be begun anew at times. It is ended by signal: its own end waits
        for the streams' and reads the clock all the while.

        Yields:
            whether it still runs, as a function.
        """
        client, server = self._link.ends
        server_address = str(self._lab.plan.node(server).address)
        listen = ["iperf3", "-s", "-1", "-p", str(_IPERF_PORT)]
        stream = ["iperf3", "-c", server_address, "-p", str(_IPERF_PORT), "-t", "86400"]
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
        rate_packets_per_s = self._rate_bit_per_s / (8 * FULL_SIZE_PACKET_BYTES)
        # Its greetings are fewer packets than these, and shorter.
        wanted = 100
        deadline_s = time.monotonic() + 10.0 + wanted / rate_packets_per_s
        while time.monotonic() < deadline_s and process.poll() is None:
            if min(_differences(self._arrived_packets(), before)) >= wanted:
                return True
            time.sleep(_POLL_INTERVAL_S)
        return False

    def _settled(self) -> list[dict[str, int]]:
        """What TCP and the link count, by direction, once nothing of it grows any more."""
        seen = self._counted()
        while True:
            time.sleep(_POLL_INTERVAL_S + self._emptied_s())
            now = self._counted()
            if now == seen:
                return now
            seen = now

    def _counted(self) -> list[dict[str, int]]:
        """By the names of `CalibratedDirection`."""
        return [
            {
                "sent_segments": sent,
                "passed_segments": counters.sent_packets,
                "passed_bundles": counters.sent_bundles,
                "lost_by_link": counters.dropped_packets - counters.overflowed_packets,
                "dropped_by_queue": counters.overflowed_packets,
                "arrived_packets": arrived,
            }
            for sent, counters, arrived in zip(
                self._sent_segments(), self._counters(), self._arrived_packets(), strict=True
            )
        ]

    def _emptied_s(self) -> float:
        """In what time a full link is empty; a discipline keeps its queue shorter than that."""
        packets = self._shape.holds_packets
        if self._shape.queue_discipline != FIFO:
            packets = min(packets, MOST_WAITING_PACKETS)
        packet_s = FULL_SIZE_PACKET_BYTES * 8 / self._rate_bit_per_s
        return self._shape.delay_ms / 1000 + packets * packet_s

    def _counters(self) -> list[LinkCounters]:
        return [_together([self._lab.counters(one) for one in path]) for path in self._paths]

    def _sent_segments(self) -> list[int]:
        return [_tcp_segments_out(self._lab, end) for end in self._link.ends]

    def _arrived_packets(self) -> list[int]:
        return [self._lab.arrivals(path[-1])[0] for path in self._paths]

    def _failure(self, what: str) -> TestbedError:
        name = _link_name(self._link)
        return TestbedError(f"link {name}: {what}: see logs/iperf3-{name}.log")


def _together(steps: Sequence[LinkCounters]) -> LinkCounters:
    """What the directions of a path have counted: what passed the last one, what any has lost."""
    return replace(
        steps[-1],
        dropped_packets=sum(one.dropped_packets for one in steps),
        overflowed_packets=sum(one.overflowed_packets for one in steps),
        bundled_segments=sum(one.bundled_segments for one in steps),
    )


def _received_ms(receiver: socket.socket) -> Iterator[float]:
    """The delay of each datagram that waits in a socket which notes when they came."""
    while True:
        try:
            sent, notes, _, _ = receiver.recvmsg(8, 64)
        except BlockingIOError:
            return
        ((_, _, arrived),) = notes
        seconds, nanoseconds = struct.unpack("@qq", arrived)
        yield (seconds * 10**9 + nanoseconds - struct.unpack("!q", sent)[0]) / 1e6


def _tcp_segments_out(lab: Lab, node: str) -> int:
    """All that a node's TCP has sent: `OutSegs` doesn't contain retransmissions."""
    # The thread's own: /proc/net is that of the process, which lives in another namespace.
    text = lab.inside(node, Path("/proc/thread-self/net/snmp").read_text)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    counters = dict(zip(names, values, strict=True))
    return int(counters["OutSegs"]) + int(counters["RetransSegs"])


def _bundle(lab: Lab, segments: int) -> None:
    for direction in lab.directions:
        if direction.shape.bundles:
            continue
        lab.set_bundle(direction, segments)


def _kind(link: Link) -> Link:
    """What links have in common that differ in their ends only."""
    return link.model_copy(update={"ends": link.roles, "netem_seeds": (0, 0)})


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
