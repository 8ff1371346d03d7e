"""The parameters of FlashFlow, with the paper's values (its sections 4 and 6.1)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """What a measurement and its acceptance depend on.

    Attributes:
        multiplier: m, the capacity of measurers that a relay needs, as a multiple of its own.
        low_error, high_error: the errors e1 and e2: with m times its capacity x a relay's result is
            between (1 - e1) x and (1 + e2) x.
        background_ratio: r, the largest share of a relay's traffic that may be its clients'.
        slot_s: the length of a measurement.
        period_s: how often each relay is measured.
        check_probability: p, the probability that a cell's content is checked.
    """

    multiplier: float = 2.25
    low_error: float = 0.20
    high_error: float = 0.05
    background_ratio: float = 0.25
    slot_s: int = 30
    period_s: int = 24 * 3600
    check_probability: float = 1e-5

    @property
    def excess(self) -> float:
        """F = m (1 + e2) / (1 - e1): what is allocated, as a multiple of a relay's estimate."""
        return self.multiplier * (1 + self.high_error) / (1 - self.low_error)

    @property
    def slots(self) -> int:
        """The slots of a period."""
        return self.period_s // self.slot_s


PAPER = Parameters()
"""The paper's values; they give f = 2.95."""
