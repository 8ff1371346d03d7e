"""Statistics over runs: means, changes with their confidence intervals, how many runs would tell.

Plain numbers come in, one a run; no run is read here. The method is said in docs/statistics.md.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# Not scipy.stats, which takes half a second to import.
from scipy.special import stdtrit as student_quantile

CONFIDENCE = 0.95
POWER = 0.8
"""With which `runs_needed` would tell a change that is as large as it seems now."""

NEARLY_EQUAL = 0.05
"""A change that lies with confidence between this share less and this share more is none."""

MOST_RUNS = 1000
"""More are not worth counting."""

MOST_LOGARITHM = 700.0
"""Of a ratio; little more is no number any more. Two runs that differ much leave such intervals."""


@dataclass(frozen=True)
class MeanOverRuns:
    """The mean of runs' numbers, and the standard deviation of these.

    `deviation` divides by n - 1 and is None of one run.
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "MeanOverRuns | None":
        """That of runs, some of which may have no number; None if none has."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None)


class Interval(NamedTuple):
    """The bounds of a confidence interval."""

    low: float
    high: float


class Verdict(StrEnum):
    """What the runs say of a change."""

    LESS = "less"
    MORE = "more"
    NEARLY_EQUAL = "nearly equal"
    NOT_ENOUGH_RUNS = "not enough runs"


@dataclass(frozen=True)
class Change:
    """By how much one variant differs from another, as shares: -0.88 is 88 % less.

    Attributes:
        share: the ratio of the two (of geometric means over runs) less 1.
        interval: where the share lies with the confidence that was asked for; None if there are too
            few runs to say.
        paired: whether each run was compared with the other variant's of the same seed.
        runs_needed: of each variant, to tell a change and spread like these; None if more than
            `MOST_RUNS`, or if there are too few runs to say.
    """

    share: float
    interval: Interval | None
    paired: bool
    runs_needed: int | None

    @property
    def verdict(self) -> Verdict:
        """What can be said with confidence."""
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
    """Both restricted to the seeds that they share; None if those are less than two."""
    shared = sorted(before.keys() & after.keys())
    if len(shared) < 2:
        return None
    return {seed: before[seed] for seed in shared}, {seed: after[seed] for seed in shared}


def simultaneous_confidence(comparisons: int) -> float:
    """With what confidence each of several intervals must hold for all to hold with `CONFIDENCE`.

    Bonferroni's inequality: the chances that one of them is wrong add up to no more than 5 %
    (O. J. Dunn, Multiple Comparisons Among Means; Journal of the American Statistical Association
    56, 1961). It needs no independence: all are against the same first variant.
    """
    return 1 - (1 - CONFIDENCE) / max(1, comparisons)


def change(
    before: Mapping[int, float], after: Mapping[int, float], confidence: float = CONFIDENCE
) -> Change | None:
    """How `after` differs from `before`; None if there is no ratio of the two to speak of.

    On the logarithms, so that bounds are ratios and no percentage of a mean that is uncertain
    itself: Student's t interval for the mean of the pairs' differences where at least two seeds
    pair, Welch's for the difference of means where they don't (B. L. Welch, Biometrika 34, 1947).

    Args:
        before, after: a number a run, by the run's seed.
        confidence: of the interval.
    """
    pairs = pair(before, after)
    before, after = pairs or (before, after)
    if not before or not after or min(*before.values(), *after.values()) <= 0:
        return None
    if pairs:
        return _paired([math.log(after[seed] / before[seed]) for seed in before], confidence)
    return _unpaired(_logarithms(before.values()), _logarithms(after.values()), confidence)


def _paired(ratios: list[float], confidence: float) -> Change:
    """The change by the logarithms of the pairs' ratios."""
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
    """The change by two samples of logarithms; without an interval if one has a single run."""
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
    """Welch's degrees of freedom, by the squared standard errors of two means."""
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
    """How many runs of each would tell a change from none, if it and its spread are as seen.

    The least n with (t(0.975) + t(0.8)) · spread / √n ≤ |mean|, t with n - 1 degrees of freedom
    (the usual approximation of the t test's power, here 0.8). None if it is more than `MOST_RUNS`.

    Args:
        mean, spread: mean and standard deviation of the logarithms of ratios.
        confidence: with 0.95 it is t(0.975).
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
    """Student's t interval for the mean; None of less than two values."""
    if len(values) < 2:
        return None
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    half = _quantile(len(values) - 1, CONFIDENCE) * deviation / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


def _quantile(freedom: float, confidence: float) -> float:
    """How many standard errors the two-sided interval reaches to each side."""
    return float(student_quantile(freedom, (1 + confidence) / 2))


def _logarithms(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]
