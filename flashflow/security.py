"""What a relay can gain by lying, and how likely it is found out (5)."""

from collections.abc import Sequence
from math import ceil

from scipy.stats import binom

from flashflow.aggregation import capacity
from flashflow.parameters import PAPER

CELL_BYTES = 514
"""A cell on a connection, of link protocol 4 and above."""


def greatest_gain(ratio: float = PAPER.background_ratio) -> float:
    """1 / (1 - r): the most by which a false report of clients' traffic multiplies a result."""
    return 1 / (1 - ratio)


def result_of_false_report(
    capacity_bytes_per_s: float, reported: Sequence[float], ratio: float = PAPER.background_ratio
) -> float:
    """The result of a relay that forwards nothing for clients, but reports these seconds."""
    return capacity([[capacity_bytes_per_s] * len(reported)], reported, ratio)


def unnoticed(cells: float, probability: float = PAPER.check_probability) -> float:
    """(1 - p)^k: the probability that none of k forged cells is checked.

    The paper prints the exponent with a minus sign, by which it would be more than 1.
    """
    return float((1 - probability) ** cells)


def cells_of(rate_bit_per_s: float, seconds: float) -> float:
    """The cells that pass at a rate in some seconds."""
    return rate_bit_per_s * seconds / (8 * CELL_BYTES)


def failure(share: float, authorities: int) -> float:
    """The probability that a relay fails which has its capacity in a share q of the slots only.

    It fails if at least half of n authorities measure it in other slots: P(B(n, 1 - q) >= n / 2).
    """
    return float(binom.sf(ceil(authorities / 2) - 1, authorities, 1 - share))
