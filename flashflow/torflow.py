"""TorFlow, by which weights were found before: slices of relays, and weights of their downloads.

By its bandwidth scanner's specification (README.spec.txt of torflow, sections 1.3 to 2.2) and, for
the larger of two ratios, its aggregate.py; without PID feedback and without a cap on weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from statistics import fmean
from typing import Any

from flashflow.errors import weight_ratios
from testbed.plan.model import Plan, PlannedNode
from testbed.plan.scan import ScannedRelay, Slice

SLICE_RELAYS = 50
TIMES = 5
"""In how many circuits each relay is at least."""
AT_ONCE = 4
LONGEST_S = 1800.0
"""After which time a download is given up."""

_KIB = 1024
_SIZES = (
    (5, 8192 * _KIB),
    (10, 4096 * _KIB),
    (20, 2048 * _KIB),
    (40, 1024 * _KIB),
    (50, 512 * _KIB),
    (80, 256 * _KIB),
    (100, 128 * _KIB),
)
"""What is downloaded through slices that begin below a percentile, the fastest coming first."""


def size_bytes(percentile: float) -> int:
    """How much is downloaded through the circuits of a slice that begins at a percentile."""
    return next(size for below, size in _SIZES if percentile < below)


def slices(plan: Plan, most_relays: int = SLICE_RELAYS) -> tuple[Slice, ...]:
    """The relays by weight, the heaviest first, in slices of nearly the same length.

    TorFlow has sorted them by the ratio of their weight to what they advertise since 2011; new
    relays, as all of a lab's are, advertise nothing yet.
    """
    relays = sorted(plan.of_kind("relay"), key=lambda relay: -(relay.weight or 1))
    number = ceil(len(relays) / most_relays)
    bounds = [round(one * len(relays) / number) for one in range(number + 1)]
    return tuple(_slice(relays, first, end) for first, end in pairwise(bounds))


def _slice(relays: Sequence[PlannedNode], first: int, end: int) -> Slice:
    own = relays[first:end]
    return Slice(
        relays=tuple(relay.name for relay in own),
        entries=_with_exit(own, False) or _with_exit(relays, False),
        exits=_with_exit(own, True) or _with_exit(relays, True),
        size_bytes=size_bytes(100 * first / len(relays)),
    )


def _with_exit(relays: Sequence[PlannedNode], wanted: bool) -> tuple[str, ...]:
    return tuple(relay.name for relay in relays if ("exit" in relay.flags) is wanted)


@dataclass(frozen=True)
class Rated:
    """What is known of a relay in the end.

    Attributes:
        true_bit_per_s: the rate of its link, or of its processor if that is slower.
        observed_bit_per_s: the most that it says to have carried in ten seconds.
        stream_bit_per_s: the mean rate of the downloads through it; None without any.
        filtered_bit_per_s: that of those which were at least as fast.
        ratio: how much faster downloads through it were than through other relays.
        weight: in kB/s: what it observed times the ratio; None without downloads.
        weight_ratio: its share of the weights over its share of the capacity.
    """

    relay: str
    fingerprint: str
    true_bit_per_s: float
    observed_bit_per_s: float
    downloads: int
    failed: int
    stream_bit_per_s: float | None = None
    filtered_bit_per_s: float | None = None
    ratio: float | None = None
    weight: int | None = None
    weight_ratio: float | None = None

    @property
    def error_percent(self) -> float:
        """How far what it observed is from what it can carry."""
        return 100 * (self.observed_bit_per_s / self.true_bit_per_s - 1)

    def record(self) -> dict[str, Any]:
        """The numbers as plain data, for programs."""
        return {**vars(self), "error_percent": self.error_percent}


def filtered(rates: Sequence[float]) -> float:
    """The mean of the rates that are at or above their mean, so without the slowest partners."""
    mean = fmean(rates)
    # A mean of equal numbers may be a little above them.
    return fmean([rate for rate in rates if rate >= mean] or [mean])


def ratios(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How much faster downloads through relays were than through the mean relay.

    The larger of two ratios: of all its downloads, and of the filtered ones.

    Args:
        rates: of each relay's downloads; relays without any have no ratio.
    """
    means = {relay: fmean(some) for relay, some in rates.items() if some}
    fast = {relay: filtered(some) for relay, some in rates.items() if some}
    if not means:
        return {}
    mean, mean_fast = fmean(means.values()), fmean(fast.values())
    return {relay: max(means[relay] / mean, fast[relay] / mean_fast) for relay in means}


def rated(scanned: Sequence[ScannedRelay], true_bit_per_s: Mapping[str, float]) -> list[Rated]:
    """The weights of a scan's relays.

    Args:
        true_bit_per_s: what each relay can carry.
    """
    by_relay = ratios({one.relay: one.streams_bytes_per_s for one in scanned})
    # A relay that has observed nothing counts as if it had one byte.
    weights = {
        one.relay: max(round((one.observed_bytes_per_s or 1) * by_relay[one.relay] / 1000), 1)
        for one in scanned
        if one.relay in by_relay
    }
    capacities = [true_bit_per_s[relay] for relay in weights]
    shares = dict(zip(weights, weight_ratios([*weights.values()], capacities), strict=True))
    return [
        Rated(
            relay=one.relay,
            fingerprint=one.fingerprint,
            true_bit_per_s=true_bit_per_s[one.relay],
            observed_bit_per_s=8 * one.observed_bytes_per_s,
            downloads=len(one.streams_bytes_per_s),
            failed=one.failed,
            stream_bit_per_s=8 * fmean(rates) if (rates := one.streams_bytes_per_s) else None,
            filtered_bit_per_s=8 * filtered(rates) if rates else None,
            ratio=by_relay.get(one.relay),
            weight=weights.get(one.relay),
            weight_ratio=shares.get(one.relay),
        )
        for one in scanned
    ]
