"""Statistics over runs: means, changes with confidence intervals, and the number of runs needed.

The functions take plain numbers, one for each run. docs/statistics.md explains the method.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# scipy.stats has it too, but takes half a second to import.
from scipy.special import stdtrit as student_quantile

CONFIDENCE = 0.95
POWER = 0.8
"""The probability that `runs_needed` runs detect a change as large as it seems now."""

NEARLY_EQUAL = 0.05
"""A change whose interval lies within this share of 0 counts as none."""

MOST_RUNS = 1000
"""The largest number of runs that is worth naming."""

MOST_LOGARITHM = 700.0
"""The largest logarithm of a ratio: its exponential nearly overflows a float. Two runs that differ
much have such intervals."""


@dataclass(frozen=True)
class MeanOverRuns:
    """The mean and the standard deviation of runs' numbers.

    `deviation` divides by n - 1 and is None for a single run.
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "MeanOverRuns | None":
        """The mean over the runs that have a number; None if none has one."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


class Interval(NamedTuple):
    """The bounds of a confidence interval."""

    low: float
    high: float


class Verdict(StrEnum):
    """The verdict of runs on a change."""

    LESS = "less"
    MORE = "more"
    NEARLY_EQUAL = "nearly equal"
    NOT_ENOUGH_RUNS = "not enough runs"


@dataclass(frozen=True)
class Change:
    """The difference of one variant from another, as shares: -0.88 is 88 % less.

    Attributes:
        share: the ratio of the two (of geometric means over runs) less 1.
        interval: the share's confidence interval; None if there are too few runs for one.
        paired: whether each run was compared with the other variant's run of the same seed.
        runs_needed: the runs of each variant that would detect this change at this spread; None if
            they are more than `MOST_RUNS`, or if there are too few runs to say.
    """

    share: float
    interval: Interval | None
    paired: bool
    runs_needed: int | None

    @property
    def verdict(self) -> Verdict:
        """The verdict that the interval allows."""
        if self.interval is None:
            return Verdict.NOT_ENOUGH_RUNS
        low, high = self.interval
        if low > 0:
            return Verdict.MORE
        if high < 0:
            return Verdict.LESS
        if low > -NEARLY_EQUAL and high < NEARLY_EQUAL:
            return Verdict.NEARLY_EQUAL
        return Verdict.NOT_ENOUGH_RUNS


def pair(
    before: Mapping[int, float], after: Mapping[int, float]
) -> tuple[Mapping[int, float], Mapping[int, float]] | None:
    """Both, restricted to the seeds that they share; None if they share fewer than two."""
    shared = sorted(before.keys() & after.keys())
    if len(shared) < 2:
        return None
    return {seed: before[seed] for seed in shared}, {seed: after[seed] for seed in shared}


def simultaneous_confidence(comparisons: int) -> float:
    """The confidence that each of several intervals needs for all to hold with `CONFIDENCE`.

    By Bonferroni's inequality, the chances that one of them is wrong add up to at most 5 % (O. J.
    Dunn, Multiple Comparisons Among Means; Journal of the American Statistical Association 56,
    1961). It doesn't need independence, which comparisons with the same first variant lack.
    """
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


def change(
    before: Mapping[int, float], after: Mapping[int, float], confidence: float = CONFIDENCE
) -> Change | None:
    """How `after` differs from `before`; None if the two have no ratio.

    It is computed on logarithms, so the bounds are ratios, not percentages of a mean that is
    uncertain itself. If at least two seeds pair, the interval is Student's t for the mean of the
    pairs' differences; otherwise Welch's for the difference of means (B. L. Welch, Biometrika 34,
    1947).

    Args:
        before, after: each run's number, by seed.
        confidence: the interval's confidence.
    """
    pairs = pair(before, after)
    before, after = pairs or (before, after)
    if not before or not after or min(*before.values(), *after.values()) <= 0:
        return None
    if pairs:
        return _paired([math.log(after[seed] / before[seed]) for seed in before], confidence)
    return _unpaired(_logarithms(before.values()), _logarithms(after.values()), confidence)


def _paired(ratios: list[float], confidence: float) -> Change:
    """The change, from the logarithms of the pairs' ratios."""
    spread = statistics.stdev(ratios)
    return _change(
        statistics.fmean(ratios),
        error=spread / math.sqrt(len(ratios)),
        freedom=len(ratios) - 1,
        spread=spread,
        paired=True,
        confidence=confidence,
    )


def _unpaired(before: list[float], after: list[float], confidence: float) -> Change:
    """The change, from two samples of logarithms; no interval if one has a single run."""
    mean = statistics.fmean(after) - statistics.fmean(before)
    if min(len(before), len(after)) < 2:
        return Change(math.expm1(mean), None, paired=False, runs_needed=None)
    variances = [statistics.variance(sample) for sample in (before, after)]
    errors = [variances[0] / len(before), variances[1] / len(after)]
    return _change(
        mean,
        error=math.sqrt(sum(errors)),
        freedom=_welch_freedom(errors, [len(before), len(after)]),
        spread=math.sqrt(sum(variances)),
        paired=False,
        confidence=confidence,
    )


def _welch_freedom(errors: list[float], counts: list[int]) -> float:
    """Welch's degrees of freedom, from the squared standard errors of two means."""
    if not sum(errors):
        return sum(counts) - 2
    parts = (error**2 / (count - 1) for error, count in zip(errors, counts, strict=True))
    return sum(errors) ** 2 / sum(parts)


def _change(
    mean: float, *, error: float, freedom: float, spread: float, paired: bool, confidence: float
) -> Change:
    half = _quantile(freedom, confidence) * error
    return Change(
        share=math.expm1(mean),
        interval=Interval(math.expm1(mean - half), math.expm1(min(mean + half, MOST_LOGARITHM))),
        paired=paired,
        runs_needed=runs_needed(mean, spread, confidence),
    )


def runs_needed(mean: float, spread: float, confidence: float = CONFIDENCE) -> int | None:
    """The runs of each variant that would detect a change of this mean and spread.

    This is the least n with (t(0.975) + t(0.8)) · spread / √n ≤ |mean|, where t has n - 1 degrees
    of freedom: the usual approximation of the t test's power, here 0.8. It is None above
    `MOST_RUNS`.

    Args:
        mean, spread: mean and standard deviation of the logarithms of ratios.
        confidence: 0.95 gives t(0.975).
    """
    if not mean:
        return None
    counts = range(2, MOST_RUNS + 1)
    freedoms = [count - 1 for count in counts]
    quantiles = student_quantile(freedoms, (1 + confidence) / 2) + student_quantile(freedoms, POWER)
    enough = (
        count
        for count, quantile in zip(counts, quantiles, strict=True)
        if quantile * spread <= abs(mean) * math.sqrt(count)
    )
    return next(enough, None)


def mean_interval(values: Collection[float]) -> Interval | None:
    """Student's t interval for the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = _quantile(len(values) - 1, CONFIDENCE) * deviation / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


def _quantile(freedom: float, confidence: float) -> float:
    """The half-width of the two-sided interval, in standard errors."""
    return float(student_quantile(freedom, (1 + confidence) / 2))


def _logarithms(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]
