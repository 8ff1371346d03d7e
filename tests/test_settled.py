"""Whether a drawn network had settled: Schruben's test, on made series and with its error rate."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.results.checks.settled import LEAST_SECONDS, initial_transient, settled_check

SERIES = 3000
CORRELATION = 0.3
"""Of neighbouring seconds, as in SmallNetwork after its warm-up."""


def stationary(length: int, correlation: float, seed: int) -> NDArray[np.float64]:
    """Many first-order autoregressive series of mean 0 and variance 1, a row each."""
    steps = np.random.default_rng(seed).standard_normal((SERIES, length))
    steps[:, 1:] *= math.sqrt(1 - correlation**2)
    for k in range(1, length):
        steps[:, k] += correlation * steps[:, k - 1]
    return steps


def circuits(beginning: float, seconds: int = 60, row: int = 0) -> list[int]:
    """Some six active circuits, and more or fewer in the first seconds, as in SmallNetwork."""
    more = beginning * np.exp(-np.arange(seconds) / 8)
    return [round(one) for one in 6 + 1.5 * stationary(seconds, CORRELATION, 7)[row] + more]


def test_the_statistic_worked_out_by_hand() -> None:
    """The mean of all is 4/3; the first k lack 4/3, 8/3, 2, 1/3, 2/3 and 0 of k times that."""
    found = initial_transient([0, 0, 2, 2, 2, 2])
    assert found is None  # the second half is constant
    found = initial_transient([0, 0, 2, 3, 1, 2])
    assert found is not None
    # s^2 = 1 of 3, 1, 2; r = (1 * -1 + -1 * 0) / 2 = -0.5, corrected -0.67, so taken as none.
    weighted = sum((1 - k / 6) * lack for k, lack in ((1, 4 / 3), (2, 8 / 3), (3, 2), (4, 1 / 3)))
    weighted += (1 - 5 / 6) * (5 * 4 / 3 - 6)
    assert found.statistic == pytest.approx(math.sqrt(45 / 6**3) * weighted)
    assert (found.first_half, found.second_half) == pytest.approx((2 / 3, 2))
    assert found.bound == pytest.approx(99.99, abs=0.01)  # Student's t of 2 degrees


@pytest.mark.parametrize("length", [LEAST_SECONDS, 60, 120])
def test_few_settled_runs_fail(length: int) -> None:
    failed = 0
    for series in stationary(length, CORRELATION, 1):
        found = initial_transient(series.tolist())
        assert found
        failed += abs(found.statistic) > found.bound
    assert failed <= 0.002 * SERIES


@pytest.mark.parametrize("beginning", [15, -15])
def test_a_network_that_had_not_settled_fails(beginning: float) -> None:
    checks = [settled_check(circuits(beginning, row=row)) for row in range(100)]
    assert sum(check.ok is False for check in checks) > 90
    unsettled = checks[0]
    assert unsettled.value
    assert (unsettled.value["value"] < 0) == (beginning > 0)


def test_a_settled_network() -> None:
    check = settled_check(circuits(0))
    assert check.ok
    assert "a second in the first half" in check.observed


@pytest.mark.parametrize("too_little", [circuits(0, LEAST_SECONDS - 1), [3] * 60])
def test_too_little_to_judge_by(too_little: list[int]) -> None:
    check = settled_check(too_little)
    assert check.ok is None
    assert not check.failed
