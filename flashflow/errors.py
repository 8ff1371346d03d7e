"""How far capacities and weights are from what relays can carry (section 3, equations 2 to 6)."""

from collections.abc import Sequence


def capacity_error(estimated: Sequence[float], true: Sequence[float]) -> float:
    """The share of a network's capacity that is underestimated (equation 3); below 0: too much.

    Args:
        estimated, true: each relay's capacity, in the same unit.
    """
    return 1 - sum(estimated) / sum(true)


def weight_ratios(weights: Sequence[float], true: Sequence[float]) -> list[float]:
    """Each relay's share of the weights over its share of the capacity (equation 5).

    Args:
        weights: not all of them 0.
        true: each relay's capacity, in any unit.
    """
    all_weights, all_true = sum(weights), sum(true)
    return [
        weight / all_weights / (capacity / all_true)
        for weight, capacity in zip(weights, true, strict=True)
    ]


def weight_error(weights: Sequence[float], true: Sequence[float]) -> float:
    """The total variation distance between weights and capacities (equation 6), from 0 to 1.

    For the arguments see `weight_ratios`.
    """
    all_weights, all_true = sum(weights), sum(true)
    return (
        sum(
            abs(weight / all_weights - capacity / all_true)
            for weight, capacity in zip(weights, true, strict=True)
        )
        / 2
    )
