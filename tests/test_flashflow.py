"""FlashFlow's arithmetic: allocation, results, schedules and liars, by numbers checked by hand."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from flashflow.aggregation import capacity, second_total
from flashflow.allocation import allocated, guesses, is_accepted, least_measurers, next_guess
from flashflow.liars import liars
from flashflow.live import MOST_NEW_RELAYS, NEW_RELAYS, new_arrivals, schedule
from flashflow.parameters import PAPER, Parameters
from flashflow.published import FACTOR, SLOTS, least_slots
from flashflow.schedule import greedy_slots, new_relay_slots, random_period
from flashflow.security import cells_of, failure, greatest_gain, result_of_false_report, unnoticed

EXACT = Parameters(multiplier=2.0, low_error=0.0, high_error=0.0)
"""Parameters with which f = 2, for sums in one's head."""


def test_the_excess_factor_is_the_formulas() -> None:
    assert PAPER.excess == pytest.approx(2.25 * 1.05 / 0.80)
    assert round(PAPER.excess, 2) == 2.95
    assert PAPER.slots == 2880


def test_the_paper_contradicts_itself_on_the_factor() -> None:
    """Its 599 slots are what its formula's factor gives, and not the one that it prints there."""
    assert least_slots(PAPER.excess) == SLOTS
    assert least_slots(FACTOR) == 576


def test_the_measurer_with_most_left_gives_first() -> None:
    assert allocated([3, 5, 4], 7) == [0, 5, 2]
    assert allocated([3, 5, 4], 12) == [3, 5, 4]
    assert allocated([4, 4], 3) == [3, 0]
    with pytest.raises(ValueError, match="have 12 bit/s left, not 13"):
        allocated([3, 5, 4], 13)


def test_a_result_holds_if_measurers_had_enough() -> None:
    # a (1 - e1) / m = 295.3125 * 0.8 / 2.25 = 105, which is (1 + e2) 100.
    allocation = PAPER.excess * 100
    assert is_accepted(104.9, allocation)
    assert not is_accepted(105.1, allocation)
    assert next_guess(140, 100) == 200
    assert next_guess(250, 100) == 250


def test_guesses_double_until_one_is_enough() -> None:
    # f = 2: with a guess of 20 measurers see 40 of 100, then 80, then 100, which isn't below the
    # guess of 80; 160 holds.
    assert list(guesses(100, 20, EXACT)) == [20, 40, 80, 160]
    assert list(guesses(100, 101, EXACT)) == [101]
    for first in (1, 51, 399, 400, 5000):
        tried = list(guesses(400, first))
        assert all(later >= 2 * earlier for earlier, later in pairwise(tried[:-1]))
        assert 1.05 * tried[-1] > 400
    # 51 has 150.6 allocated, which is its result; that has 444.8, and its result is 400.
    assert [round(guess, 1) for guess in guesses(400, 51)] == [51, 150.6, 400]


def test_a_team_for_the_largest_relay() -> None:
    assert least_measurers(998, 1000) == 3
    assert least_measurers(500, 1000, EXACT) == 1
    assert least_measurers(501, 1000, EXACT) == 2


def test_background_counts_up_to_its_ratio() -> None:
    assert second_total(75, 10, 0.25) == 85
    assert second_total(75, 25, 0.25) == 100
    assert second_total(75, 1000, 0.25) == 100
    assert second_total(0, 1000, 0.25) == 0


def test_a_capacity_is_the_median_second() -> None:
    # Sums 30, 60, 90 and reports 30, 6, 0 with r = 0.25: 30 + 10, 60 + 6, 90.
    assert capacity([[10, 20, 30], [20, 40, 60]], [30, 6, 0], 0.25) == 66
    # A burst in one second of thirty changes nothing.
    assert capacity([[900.0] + [100.0] * 29], [0.0] * 30) == 100
    for measured, reported in (([], [1.0]), ([[]], []), ([[1.0, 2.0], [1.0]], [0.0, 0.0])):
        with pytest.raises(ValueError, match="must report the same seconds"):
            capacity(measured, reported)


def test_a_fast_schedule_takes_the_largest_that_fits() -> None:
    # 6 leaves 4, in which 3 fits and then 1; then 5 and 4; then 2.
    assert greedy_slots([1, 6, 5, 4, 3, 2], 10) == [[1, 3], [2, 4, 5], [0]]
    assert greedy_slots([], 10) == []
    assert greedy_slots([10, 10], 10) == [[1], [0]]
    with pytest.raises(ValueError, match="a relay needs 11 bit/s, and the team has 10"):
        greedy_slots([11], 10)


def test_a_period_measures_each_relay_once_with_each_team() -> None:
    needs = [float(1 + number % 7) for number in range(200)]
    period = random_period(needs, 50, [30.0, 40.0], seed=3)
    assert period.left_out == 0
    assert (period.slots[:, 0] != period.slots[:, 1]).all()
    for team, room in enumerate((30.0, 40.0)):
        used = np.bincount(period.slots[:, team], weights=needs, minlength=50)
        assert (used <= room).all()
        assert np.allclose(period.room[team], room - used)


def test_a_periods_slots_are_random_and_follow_from_the_secret() -> None:
    needs = [1.0] * 2000
    one, again, other = (random_period(needs, 20, [1e6], seed).slots for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).mean() == pytest.approx(0.95, abs=0.03)
    assert chisquare(np.bincount(one[:, 0], minlength=20)).pvalue > 0.001


def test_a_full_period_leaves_relays_out() -> None:
    period = random_period([6.0, 6.0, 6.0], 2, [10.0], seed=1)
    assert period.left_out == 1
    assert sorted(period.slots[:, 0]) == [-1, 0, 1]


def test_new_relays_get_what_old_ones_leave() -> None:
    room = np.array([9.0, 1.0, 4.0, 2.0, 5.0])
    assert list(new_relay_slots(room, [0, 0, 0, 2], 2.0)) == [2, 2, 3, 4]
    assert room.tolist() == [9.0, 1.0, 0.0, 0.0, 3.0]
    assert list(new_relay_slots(room, [3, 3], 2.0)) == [4, None]


def test_new_relays_appear_with_each_consensus() -> None:
    arrivals = new_arrivals(PAPER, 1)
    counts = [arrivals.count(slot) for slot in sorted(set(arrivals))]
    assert sorted(counts) == [NEW_RELAYS] * 22 + [MOST_NEW_RELAYS]
    assert {later - one for one, later in pairwise(sorted(set(arrivals)))} == {120}
    assert arrivals == new_arrivals(PAPER, 1) != new_arrivals(PAPER, 2)


def test_a_network_in_numbers() -> None:
    # f = 2 and a team of 100: two relays of 25 fill a slot, one of 50 does.
    found = schedule("four", [25.0, 25.0, 50.0, 10.0], 100.0, EXACT, seed=1)
    assert (found.relays, found.total_bit_per_s, found.largest_bit_per_s) == (4, 110.0, 50.0)
    assert (found.least_slots, found.slots, found.left_out) == (3, 3, 0)
    assert found.hours == pytest.approx(90 / 3600)
    assert found.busy_percent == pytest.approx(100 * 220 / (2880 * 100))
    # The quantile lies between 25 and 50; with e = 0 a guess that equals the result isn't enough.
    assert found.new_guess_bit_per_s == pytest.approx(31.25)
    assert found.new_first_time_percent == 75
    # One new relay a slot has room: 3 of them take 3 slots, 98 take 98.
    assert found.new_median_wait_s == 90
    assert (found.new_longest_wait_s or 0) >= 98 * 30


def test_liars_gain_no_more_than_published() -> None:
    assert greatest_gain(0.25) == pytest.approx(4 / 3)
    assert result_of_false_report(90, [1e9] * 30, 0.25) == pytest.approx(120)
    assert result_of_false_report(90, [1e9] * 30, 0.1) == pytest.approx(100)
    assert result_of_false_report(90, [5.0] * 30) == 95


def test_forged_cells_are_noticed() -> None:
    assert unnoticed(2, 0.1) == pytest.approx(0.81)
    assert unnoticed(100_000) == pytest.approx(0.3679, abs=1e-4)
    assert cells_of(8 * 514, 30) == 30


def test_a_part_of_the_slots_fails() -> None:
    # Of three, at least two in other slots: 3 * 0.6^2 * 0.4 + 0.6^3.
    assert failure(0.4, 3) == pytest.approx(0.648)
    # Of four, at least two.
    assert failure(0.5, 4) == pytest.approx(11 / 16)
    assert all(failure(share, n) >= 0.5 for share in (0.1, 0.3, 0.49) for n in range(1, 12))


def test_the_table_of_liars_has_the_three_kinds() -> None:
    rows = liars(PAPER)
    assert len({row.does for row in rows}) == 3
    assert all(row.value >= 0.5 for row in rows if row.published == "at least 0.5")
