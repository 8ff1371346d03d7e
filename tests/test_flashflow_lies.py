"""Relays that lie to their measurers: what is said of them, coins, and several teams' results."""

from dataclasses import replace

import pytest

from commands.__main__ import main
from flashflow.lab import Outcome, combined
from flashflow.lies import LEAST_SLOW_BIT_PER_S, lies_of, limits, patched
from testbed.basics.errors import InputError

RELAYS = ["relay1", "relay2", "relay10"]


def test_patterns_name_relays() -> None:
    lies = lies_of(["relay*=undecrypted", "relay1=background", "relay10=40 %"], RELAYS)
    assert lies == {"relay1": "background", "relay2": "undecrypted", "relay10": 0.4}
    assert patched(lies) == {"relay1": "background", "relay2": "undecrypted"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "relay9=background",
            '"relay9" names no relay: there are relay1',
        ),
        ("relay1", "--liar relay1: write background, undecrypted, or the share"),
        ("relay1=everything", "--liar relay1=everything: write background, undecrypted"),
        ("relay1=140 %", "--liar relay1=140 %: write background, undecrypted"),
    ],
)
def test_what_is_no_lie_is_refused(said: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        lies_of([said], RELAYS)
    assert "\n" not in str(caught.value)


def test_the_command_refuses_it_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["flashflow", "SmallNetwork", "--liar", "relay11=background"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "there are relay1 to relay10" in line


def test_a_relay_has_its_capacity_in_a_share_of_the_slots() -> None:
    rates = {"relay1": 50e6, "relay2": 1e6}
    slots = [str(number) for number in range(1000)]
    found = [limits({"relay1": 0.4, "relay2": 0.4}, rates, 1, slot) for slot in slots]
    for relay, slow in (("relay1", 5e6), ("relay2", LEAST_SLOW_BIT_PER_S)):
        limited = [one[relay] for one in found if relay in one]
        assert set(limited) == {slow}
        assert len(limited) == pytest.approx(600, abs=50)
    assert found == [limits({"relay1": 0.4, "relay2": 0.4}, rates, 1, slot) for slot in slots]
    assert limits({"relay1": "background", "relay2": 1.0}, rates, 1, "1") == {}


ONE = Outcome(
    relay="relay1",
    lie=None,
    fingerprint="A" * 40,
    bit_per_s=None,
    seconds_bit_per_s=(),
    true_bit_per_s=1e6,
    teams_bit_per_s=(),
    background_bit_per_s=0,
    background_seconds_bit_per_s=(),
    before_bit_per_s=(),
    after_bit_per_s=(),
    measurements=2,
    checked=3,
    holds=True,
    problem="",
)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([5.0], 5.0),
        ([3.0, 1.0, 2.0], 2.0),
        # As authorities do: of two in the middle, the lower one.
        ([4.0, 1.0, 2.0, 3.0], 2.0),
        ([None, 3.0, 1.0], 1.0),
        ([None, 3.0], None),
        ([None], None),
    ],
)
def test_a_relay_has_the_median_of_its_teams(
    results: list[float | None], expected: float | None
) -> None:
    teams = [
        [replace(ONE, bit_per_s=one, holds=one is not None, problem="" if one else "caught")]
        for one in results
    ]
    [found] = combined(teams)
    assert found.bit_per_s == expected
    assert found.teams_bit_per_s == tuple(results)
    assert found.holds == (expected is not None)
    assert found.problem == ("caught" if None in results else "")
    assert (found.measurements, found.checked) == (2 * len(results), 3 * len(results))
