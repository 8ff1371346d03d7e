"""How much of its measurers' capacity a team gives to a relay, and when a result holds (4.2).

Capacities are in bit/s.
"""

from collections.abc import Iterator, Sequence
from itertools import count

from flashflow.parameters import PAPER, Parameters


def allocated(residual: Sequence[float], needed: float) -> list[float]:
    """What each measurer gives: the one with most left gives all of it, or what is still needed.

    Args:
        residual: what each measurer has left; of equal ones the first is taken first.

    Raises:
        ValueError: together they have less than is needed.
    """
    if sum(residual) < needed:
        raise ValueError(f"the measurers have {sum(residual):g} bit/s left, not {needed:g}")
    given = [0.0] * len(residual)
    for number in sorted(range(len(residual)), key=lambda one: -residual[one]):
        given[number] = min(residual[number], needed - sum(given))
    return given


def is_accepted(result: float, allocation: float, by: Parameters = PAPER) -> bool:
    """Whether a result z is small enough to be the relay's capacity: z < a (1 - e1) / m."""
    return result < allocation * (1 - by.low_error) / by.multiplier


def next_guess(result: float, guess: float) -> float:
    """The guess after a result that isn't accepted: at least twice as high."""
    return max(result, 2 * guess)


def guesses(capacity: float, first: float, by: Parameters = PAPER) -> Iterator[float]:
    """The guesses until a result holds, where measurers see all that a relay can carry.

    That is the relay's capacity, or what they have allocated if that is less.

    Args:
        first: the relay's last result, or `new_relay_guess`; above 0.
    """
    guess = first
    for _ in count():
        yield guess
        allocation = by.excess * guess
        result = min(capacity, allocation)
        if is_accepted(result, allocation, by):
            return
        guess = next_guess(result, guess)


def least_measurers(largest: float, each: float, by: Parameters = PAPER) -> int:
    """The measurers of one capacity that a team needs for the largest relay."""
    number = int(by.excess * largest // each)
    return number if number * each >= by.excess * largest else number + 1
