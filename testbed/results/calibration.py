"""Judges a calibration: compares each direction's counts with the planned link."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binom

from testbed.basics.errors import TestbedError
from testbed.inside.calibration.counts import (
    CALIBRATION_FILE,
    CalibratedDirection,
    LoadCounts,
    link_name,
)
from testbed.plan.network import FULL_SIZE_PACKET_BYTES, Shape

DELAY_TOLERANCE_MS = 0.1
RATE_TOLERANCE = 0.01
CONFIDENCE = 0.99
MOST_BUNDLE_SEGMENTS = 45
"""Linux's bundles are at most 64 kB (GSO_LEGACY_MAX_SIZE in include/linux/netdevice.h)."""


@dataclass(frozen=True)
class Measured:
    """One property of one direction: the scenario's value and the observed one.

    Attributes:
        link: its ends, the clients' side first; "all" for a pooled loss.
        direction: sender and receiver.
        queue: the queue discipline; empty for a pooled loss.
        what: `delay_ms`, `rate_bit_per_s`, `loss` (a share); `bundled_segments`, or if bundles
            cross as one `segments_per_bundle`, `segment_loss` (a share) and `divided_bundles`;
            under a full load `queue_delay_ms` (median), `queue_delay_p95_ms`,
            `queue_delay_max_ms`, `datagram_delay_ms` (median, without the link's), `carried` and
            `queue_drops` (shares).
        expected: the scenario's value; None if it has none.
        observed: the measured value.
        tolerance: least and greatest value that is right; None if the property is only shown.
        packets: number of packets behind the observation.
        ok: whether the observed value is within the tolerance.
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


def read_calibration(directory: Path) -> list[Measured]:
    """Read and judge the counts that `run_calibration` has written into a directory.

    Raises:
        TestbedError: there are none.
    """
    file = directory / "raw" / CALIBRATION_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise TestbedError(f"{file} is missing: the calibration didn't come to its end") from error
    return judge([CalibratedDirection.model_validate_json(line) for line in lines])


def judge(counts: Sequence[CalibratedDirection]) -> list[Measured]:
    """Compare the counts with the planned links.

    Delay must be within 0.1 ms, rate within 1 %. The number of lost packets is binomial. Each
    direction is compared with an interval that all lossy directions together keep with 99 %
    probability (Šidák 1967: each with 0.99^(1/n)), and the sum over all directions with the same
    loss is compared with the 99 % interval. So a correct lab fails each such test in one
    calibration of a hundred, and passes with another seed. A link without loss must lose nothing,
    and no segment may ever cross a link in a bundle.

    If bundles cross as one, the same applies to the number of lost bundles. As many must arrive as
    have passed, and they must have more than one segment on average. The share of lost segments is
    the same, but varies more than if each were lost by itself: the interval assumes that bundles
    differ in size as much as they can.

    Under a full load the queue must stay within its limit. Other properties are only shown.
    """
    lossy = [one for one in counts if one.shape.loss > 0]
    confidence = CONFIDENCE ** (1 / max(1, len(lossy)))
    rows = [row for one in counts for row in _judge_direction(one, confidence)]
    for loss, bundles in sorted({(one.shape.loss, one.shape.bundles) for one in lossy}):
        alike = [one for one in lossy if (one.shape.loss, one.shape.bundles) == (loss, bundles)]
        rows.append(_judge_loss(("all", f"{len(alike)} directions", ""), alike, CONFIDENCE))
    return rows


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
    """Return link, direction and queue as in `Measured`."""
    direction = f"{counts.sender} to {counts.receiver}"
    return link_name(counts.link), direction, counts.shape.queue_discipline


def _judge_bundles(counts: CalibratedDirection, confidence: float) -> Iterator[Measured]:
    """Judge the bundles' size, whether they crossed as one, and the share of lost segments.

    If a share p of n bundles with s segments each is lost, the variance of lost segments is
    p (1 - p) n E[s²], and E[s²] is at most (m + 1) E[s] - m if s is from 1 to m (Bhatia and Davis,
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
    if not counts.dropped_by_queue:  # the segments of bundles that the queue drops aren't counted
        loss = counts.shape.loss
        variance = loss * (1 - loss) * ((most + 1) - most / size) / sent
        within = normal_quantile(confidence) * math.sqrt(variance)
        tolerance = (max(0.0, loss - within), loss + within)
        lost = (sent - counts.passed_segments) / sent
        ok = tolerance[0] <= lost <= tolerance[1]
        yield Measured(*names, "segment_loss", loss, lost, tolerance, sent, ok)


def _judge_load(load: LoadCounts, said: Shape, names: tuple[str, str, str]) -> Iterator[Measured]:
    """Judge the queue under a full load: it must stay within its limit."""
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
    """Compare the losses of directions with the same planned loss with the binomial interval."""
    loss = alike[0].shape.loss
    pairs = [_sent_and_lost(one) for one in alike]
    sent, lost = (sum(column) for column in zip(*pairs, strict=True))
    least, most = lost_packets_interval(sent, loss, confidence)
    tolerance = (least / sent, most / sent)
    return Measured(*names, "loss", loss, lost / sent, tolerance, sent, least <= lost <= most)


def _sent_and_lost(counts: CalibratedDirection) -> tuple[int, int]:
    """Return sent and lost packets by TCP's and the receiver's counts; bundles by the link's."""
    if counts.shape.bundles:
        sent = counts.passed_bundles + counts.lost_by_link + counts.dropped_by_queue
        return sent, counts.lost_by_link
    sent = counts.sent_segments
    return sent, sent - counts.arrived_packets - counts.dropped_by_queue


def normal_quantile(confidence: float) -> float:
    """Return the number of standard deviations within which a normal variable falls."""
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def lost_packets_interval(sent: int, loss: float, confidence: float) -> tuple[int, int]:
    """Return the interval of lost packets with a probability, with tails of equal size."""
    least, most = binom.interval(confidence, sent, loss)
    return int(least), int(most)
