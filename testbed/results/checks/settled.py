"""Whether a drawn network had settled when measuring began, by its active circuits."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from testbed.basics.check import Check
from testbed.plan.model import Plan
from testbed.results.active import active_circuits
from testbed.results.recorded import Recorded

CONFIDENCE = 0.9999
"""As that of losses. Where neighbouring seconds correlate by 0.3, as SmallNetwork's do, some 9
in 10 000 settled runs of a minute fail, as the correlation is only estimated (tests/test_settled.py
holds it below 20)."""
LEAST_SECONDS = 40
"""Fewer say nothing: half of them is what the variation is estimated from."""


@dataclass(frozen=True)
class InitialTransient:
    """The standardized sum of Schruben's test; see `initial_transient`.

    Attributes:
        first_half, second_half: the means of the halves.
        statistic: negative if the beginning is above what follows, positive if below.
        bound: what the statistic's amount exceeds by chance in one of 1 / (1 - `CONFIDENCE`) runs.
    """

    first_half: float
    second_half: float
    statistic: float
    bound: float


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check a drawn network, if its circuits are known: with all of its relays recorded."""
    all_relays = [relay.name for relay in plan.of_kind("relay")]
    if plan.of_kind("router") and plan.recorded_relays == all_relays:
        queues, start_s = recorded.tables.queues, recorded.measuring_start_s
        yield settled_check(active_circuits(queues, start_s, plan.duration_s))


def settled_check(circuits: Sequence[int]) -> Check:
    """Whether the beginning of measuring has neither more nor fewer active circuits than the rest.

    Args:
        circuits: their number in each second.
    """
    name = "active circuits had settled"
    expected = f"no trend from the beginning of measuring on ({CONFIDENCE:.2%})"
    found = initial_transient(circuits) if len(circuits) >= LEAST_SECONDS else None
    if found is None:
        observed = f"{len(circuits)} seconds: judged from {LEAST_SECONDS} on, if circuits vary"
        return Check(name=name, expected=expected, observed=observed, ok=None)
    value, bound = round(found.statistic, 2), round(found.bound, 2)
    return Check(
        name=name,
        expected=expected,
        observed=(
            f"{found.first_half:.1f} a second in the first half, {found.second_half:.1f} in the"
            f" second; Schruben's statistic {value:.2f}, {bound:.2f} at most"
        ),
        ok=abs(value) <= bound,
        value={"value": value},
        bound={"value": bound},
    )


def initial_transient(values: Sequence[float]) -> InitialTransient | None:
    """Test whether a series begins above or below what it settles to; None if it is constant.

    The sum is that of Schruben (Detecting Initialization Bias in Simulation Output, Operations
    Research 30(3), 1982), in the form of Schruben, Singh and Tierney (Optimal Tests for
    Initialization Bias, Operations Research 31(6), 1983): sqrt(45) / (n^1.5 sigma) times the sum
    over k of (1 - k/n) k (mean of all n - mean of the first k), which is about Student's t if the
    series is stationary. A beginning that differs weighs more in it than a trend at the end. As
    they do, sigma^2, the variance of the mean times n, is taken from the second half, which a
    beginning doesn't spoil: as that of a first-order autoregressive series, s^2 (1 + r) / (1 - r),
    from as many independent values as m (1 - r) / (1 + r). To the correlation r of neighbours its
    bias in a short series is added, (1 + 3r) / m (Kendall, Note on Bias in the Estimation of
    Autocorrelation, Biometrika 41, 1954).

    All sums are exact, so that no processor gives another last digit.
    """
    n = len(values)
    mean, late = math.fsum(values) / n, values[n // 2 :]
    spread = _spread(late)
    if spread is None:
        return None
    sigma_squared, degrees = spread
    weighted = math.fsum(
        (1 - k / n) * (k * mean - total) for k, total in enumerate(accumulate(values), 1)
    )
    from scipy import stats  # takes longer to import than most commands to run

    return InitialTransient(
        first_half=math.fsum(values[: n // 2]) / (n // 2),
        second_half=math.fsum(late) / len(late),
        statistic=math.sqrt(45 / (n**3 * sigma_squared)) * weighted,
        bound=float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees)),
    )


_MOST_CORRELATION = 0.95
"""A series whose neighbours correlate more tells nothing in some minutes."""


def _spread(values: Sequence[float]) -> tuple[float, float] | None:
    """The variance of the mean times the length, and its degrees of freedom; None if constant."""
    m = len(values)
    mean = math.fsum(values) / m
    rest = [value - mean for value in values]
    squares = math.fsum(one**2 for one in rest)
    if not squares:
        return None
    seen = math.fsum(one * other for one, other in pairwise(rest)) / squares
    r = min(max(seen + (1 + 3 * seen) / m, 0.0), _MOST_CORRELATION)
    degrees = max(m * (1 - r) / (1 + r) - 1, 1.0)
    return squares / (m - 1) * (1 + r) / (1 - r), degrees
