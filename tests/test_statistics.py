"""Statistics over runs, against SciPy's functions and against values worked out by hand."""

import math
import random
from collections.abc import Mapping

import numpy
import pytest
from scipy import stats

from analysis.comparison import Compared
from analysis.metrics.transfers import THROUGHPUT
from analysis.statistics import (
    CONFIDENCE,
    POWER,
    Change,
    Interval,
    MeanOverRuns,
    Verdict,
    change,
    mean_interval,
    pair,
    runs_needed,
    simultaneous_confidence,
)
from analysis.wording import mean_text, percent, sentence

VANILLA = {1: 2.41, 2: 2.38, 3: 2.55, 4: 2.20}
PCTLS = {1: 2.02, 2: 2.10, 3: 2.19, 4: 1.95}


def logarithms(values: Mapping[int, float]) -> list[float]:
    return [math.log(values[seed]) for seed in sorted(values)]


def ratios(interval: tuple[float, float]) -> list[float]:
    return [math.exp(bound) - 1 for bound in interval]


def test_a_mean_over_runs_is_of_those_that_have_one() -> None:
    # Deviations from 2.2 are 0.2, 0 and 0.2; n - 1 = 2.
    mean = MeanOverRuns.of([2.0, None, 2.2, 2.4])
    assert mean is not None
    assert (mean.mean, mean.deviation) == pytest.approx((2.2, 0.2))
    assert MeanOverRuns.of([2.0]) == MeanOverRuns(2.0, None)
    assert MeanOverRuns.of([None]) is None


def test_pairs_have_students_interval() -> None:
    expected = stats.ttest_rel(logarithms(PCTLS), logarithms(VANILLA)).confidence_interval(0.95)
    found = change(VANILLA, PCTLS)
    assert found is not None
    assert found.paired
    assert found.interval == pytest.approx(ratios(expected))
    geometric = stats.gmean(list(PCTLS.values())) / stats.gmean(list(VANILLA.values()))
    assert found.share == pytest.approx(geometric - 1)


def test_pairs_worked_out_by_hand() -> None:
    # The ratios are 2, 4 and 8: logarithms of base 2 are 1, 2 and 3, mean 2, deviation 1.
    # Student's t at 97.5 % with 2 degrees of freedom is 4.303; 4.303 / √3 = 2.484.
    found = change({1: 1.0, 2: 1.0, 3: 1.0}, {1: 2.0, 2: 4.0, 3: 8.0})
    assert found is not None
    assert found.share == pytest.approx(2**2 - 1)
    assert found.interval == pytest.approx((2 ** (2 - 2.484) - 1, 2 ** (2 + 2.484) - 1), rel=1e-3)


def test_pairing_takes_out_what_seeds_have_in_common() -> None:
    """Seeds that differ by a factor of ten, and a variant that is 10 % better at each."""
    before = {1: 1.0, 2: 10.0, 3: 100.0}
    found = change(before, {seed: 1.1 * value for seed, value in before.items()})
    assert found is not None
    assert found.interval == pytest.approx((0.1, 0.1))
    unpaired = change(before, {seed + 3: 1.1 * value for seed, value in before.items()})
    assert unpaired is not None
    assert unpaired.verdict == Verdict.NOT_ENOUGH_RUNS


def test_only_seeds_that_both_have_are_paired() -> None:
    before, after = {1: 1.0, 2: 2.0, 3: 50.0}, {1: 2.0, 2: 4.0, 4: 0.1}
    assert pair(before, after) == ({1: 1.0, 2: 2.0}, {1: 2.0, 2: 4.0})
    assert change(before, after) == change({1: 1.0, 2: 2.0}, {1: 2.0, 2: 4.0})


@pytest.mark.parametrize("after", [{5: 2.02, 6: 2.10, 7: 2.19}, {1: 2.02, 6: 2.10, 7: 2.19}])
def test_unlike_seeds_have_welchs_interval(after: dict[int, float]) -> None:
    expected = stats.ttest_ind(
        logarithms(after), logarithms(VANILLA), equal_var=False
    ).confidence_interval(0.95)
    found = change(VANILLA, after)
    assert found is not None
    assert not found.paired
    assert found.interval == pytest.approx(ratios(expected))


def test_what_is_twice_as_fast_takes_half_as_long() -> None:
    """The verdict must not depend on whether it is about a rate or a time."""
    rates = change(VANILLA, PCTLS)
    times = change(
        {seed: 5 / value for seed, value in VANILLA.items()},
        {seed: 5 / value for seed, value in PCTLS.items()},
    )
    assert rates is not None and rates.interval is not None
    assert times is not None and times.interval is not None
    assert 1 + rates.share == pytest.approx(1 / (1 + times.share))
    assert 1 + rates.interval.low == pytest.approx(1 / (1 + times.interval.high))
    assert rates.runs_needed == times.runs_needed


@pytest.mark.parametrize("after", [{1: 1.1}, {2: 1.1}, {2: 1.1, 3: 1.2}])
def test_one_run_has_no_interval(after: dict[int, float]) -> None:
    found = change({1: 1.0}, after)
    assert found is not None
    assert found.interval is None
    assert found.runs_needed is None
    assert found.verdict == Verdict.NOT_ENOUGH_RUNS


@pytest.mark.parametrize(("before", "after"), [({}, {1: 1.0}), ({1: 0.0}, {1: 1.0}), ({}, {})])
def test_no_ratio_no_change(before: dict[int, float], after: dict[int, float]) -> None:
    assert change(before, after) is None


@pytest.mark.parametrize("after", [{1: 2.0, 2: 2.0}, {3: 2.0, 4: 2.0}])
def test_runs_without_any_spread(after: dict[int, float]) -> None:
    """In virtual time two runs can be equal to the last digit."""
    found = change({1: 2.0, 2: 2.0}, after)
    assert found is not None
    assert found.interval == (0.0, 0.0)
    assert found.verdict == Verdict.NEARLY_EQUAL


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.001, 0.9), Verdict.MORE),
        ((-0.9, -0.001), Verdict.LESS),
        ((-0.049, 0.049), Verdict.NEARLY_EQUAL),
        ((-0.051, 0.01), Verdict.NOT_ENOUGH_RUNS),
        ((-0.01, 0.051), Verdict.NOT_ENOUGH_RUNS),
        (None, Verdict.NOT_ENOUGH_RUNS),
    ],
)
def test_verdicts(interval: tuple[float, float] | None, verdict: Verdict) -> None:
    found = Change(0.0, interval and Interval(*interval), paired=True, runs_needed=None)
    assert found.verdict == verdict


@pytest.mark.parametrize(("mean", "spread"), [(0.1, 0.1), (-0.05, 0.2), (1.0, 0.4)])
def test_the_runs_needed_detect_a_change_as_often_as_promised(mean: float, spread: float) -> None:
    def power(count: int) -> float:
        """The power of the two-sided t test, by the non-central t distribution."""
        least = stats.t.ppf(0.975, count - 1)
        return float(stats.nct.sf(least, count - 1, abs(mean) / spread * math.sqrt(count)))

    count = runs_needed(mean, spread)
    assert count is not None
    assert power(count) == pytest.approx(POWER, abs=0.1)
    assert count == 2 or power(count - 1) < POWER


def test_changes_that_no_number_of_runs_would_detect() -> None:
    assert runs_needed(0.0, 0.1) is None
    assert runs_needed(0.0001, 0.1) is None
    assert runs_needed(0.5, 0.0) == 2


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Variants differ by a quarter, with a spread of a tenth over seeds."""
    random = numpy.random.default_rng(1)
    held = 0
    for _ in range(1000):
        before, after = random.lognormal(0.0, 0.1, (2, 3))
        found = change(dict(enumerate(before)), dict(enumerate(1.25 * after)))
        assert found is not None and found.interval is not None
        held += found.interval.low < 0.25 < found.interval.high
    assert 930 < held < 970


def test_the_interval_of_a_mean() -> None:
    values = [118.0, 121.0, 125.0]
    assert mean_interval(values) == pytest.approx(
        stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    )
    assert mean_interval(values[:1]) is None


def test_a_change_without_a_ratio_is_named() -> None:
    """Transfers that fail only with one variant are not "nothing to compare"."""
    none, some = {1: 0.0, 2: 0.0}, {1: 4.0, 2: 5.0}
    found = Compared(THROUGHPUT, "vanilla", "pctls", none, some, change(none, some))
    assert found.sentence == "no ratio: a run has 0"
    assert Compared(THROUGHPUT, "vanilla", "pctls", {}, some, None).sentence == "nothing to compare"


def test_figures_for_readers() -> None:
    assert mean_text(MeanOverRuns(0.374, 0.0412), 2) == "0.37 ± 0.04"
    assert mean_text(MeanOverRuns(91.4, None), 0) == "91"
    assert mean_text(MeanOverRuns(0.04876, 0.00012), 2) == "0.049 ± 0.000"
    assert mean_text(MeanOverRuns(0.0, 0.0), 1) == "0.0 ± 0.0"
    assert mean_text(None, 2) == "-"
    assert [percent(share) for share in (-0.881, 0.0949, 0.0999, 0.0, -0.0001)] == [
        "-88 %",
        "+9.5 %",
        "+10 %",
        "0 %",
        "0 %",
    ]


# Several comparisons at once.


def test_each_of_several_intervals_holds_with_more_confidence() -> None:
    """By Bonferroni, each interval has an equal share of the 5 % chance of being wrong."""
    assert simultaneous_confidence(1) == CONFIDENCE
    assert simultaneous_confidence(10) == pytest.approx(0.995)


def test_two_runs_beside_many_variants_can_leave_any_ratio() -> None:
    found = change({1: 1.0, 2: 1.0}, {1: 1.0, 2: 1000.0}, simultaneous_confidence(18))
    assert found is not None and found.interval is not None
    assert found.verdict is Verdict.NOT_ENOUGH_RUNS
    assert found.interval.low == pytest.approx(-1)
    assert 1e300 < found.interval.high < math.inf
    assert "over +9999 %" in sentence(THROUGHPUT, ("vanilla", "pctls"), found, 0.95)


def test_a_wider_interval_decides_less() -> None:
    """Student's t with 2 degrees of freedom is 4.303 at 97.5 % and 9.925 at 99.5 %."""
    before = dict.fromkeys((1, 2, 3), 1.0)
    after = {1: 1.10, 2: 1.14, 3: 1.18}
    alone, of_five = change(before, after), change(before, after, simultaneous_confidence(5))
    assert alone and alone.interval and of_five and of_five.interval
    widths = [math.log1p(high) for high in (alone.interval.high, of_five.interval.high)]
    widths = [width - math.log1p(alone.share) for width in widths]
    assert widths[1] / widths[0] == pytest.approx(9.925 / 4.303, rel=1e-3)
    assert alone.verdict is Verdict.MORE
    assert of_five.verdict is Verdict.NOT_ENOUGH_RUNS
    assert alone.runs_needed and of_five.runs_needed and of_five.runs_needed > alone.runs_needed


@pytest.mark.slow
def test_intervals_hold_together_as_often_as_they_say() -> None:
    """Ten variants that equal the first, in 400 made-up experiments: in some 5 % of these an
    interval excludes 0, and without the correction in a third."""
    generator = random.Random(7)

    def wrong(confidence: float) -> int:
        experiments = 0
        for _ in range(400):
            runs = [
                {seed: math.exp(generator.gauss(0, 0.1)) for seed in range(5)} for _ in range(11)
            ]
            changes = [change(runs[0], one, confidence) for one in runs[1:]]
            experiments += any(
                one.verdict in (Verdict.LESS, Verdict.MORE) for one in changes if one
            )
        return experiments

    assert wrong(simultaneous_confidence(10)) <= 400 * 0.08
    assert wrong(CONFIDENCE) > 400 * 0.2
