"""How many connections relays have at most, with and without entry guards."""

from dataclasses import dataclass
from itertools import permutations

import pytest

from testbed.asked.expected_connections import drawn_among, expected_connections
from testbed.asked.plans import make_plan


@dataclass(frozen=True)
class Measured:
    """A relay's most connections in 20 s of SmallNetwork, vanilla, seed 1, at commit 60c09cc."""

    changes: dict[str, bool]
    variant: str
    connections: int


@pytest.mark.parametrize(
    "measured",
    [
        Measured({"paths.entry_guards": False}, "vanilla", 49),
        Measured({}, "live-2021", 32),
    ],
)
def test_it_is_what_was_measured(measured: Measured) -> None:
    """With one guard, and any; a network's clients differ by some from the expectation."""
    plan = make_plan("SmallNetwork", measured.variant, changes=measured.changes)
    expected = max(expected_connections(plan, plan.guards_to_use).values())
    assert expected == pytest.approx(measured.connections, abs=4)


def test_two_guards_are_between_one_and_any() -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    most = [max(expected_connections(plan, guards).values()) for guards in (1, 2, None)]
    assert most == sorted(most)
    assert most[0] < most[1] < most[2]


def test_who_is_among_the_first_drawn() -> None:
    chances = [0.5, 0.3, 0.2, 0.0]
    for number in (1, 2, 3):
        expected = [0.0] * 4
        for order in permutations(range(4), number):
            chance, left = 1.0, 1.0
            for one in order:
                chance *= chances[one] / left if left else 0
                left -= chances[one]
            for one in order:
                expected[one] += chance
        assert drawn_among(chances, number) == pytest.approx(expected)
