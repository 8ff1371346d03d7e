"""Which relays of a network are malicious: drawn by the seed, up to a share of the weight."""

from collections.abc import Mapping

from testbed.basics.seeds import derived_seed


def malicious_relays(
    weights: Mapping[str, int], share: float, seed: int, *purpose: str
) -> tuple[str, ...]:
    """Relays in an order drawn by the seed, as long as those before have less than the share.

    So they have that share of the weight or just above, and none of them if the share is 0.

    Args:
        weights: the relays' weights in the consensus, by name.
        share: of the sum of the weights, in [0, 1].
        purpose: words that distinguish this draw from others with the seed.
    """
    wanted = share * sum(weights.values())
    chosen: list[str] = []
    for relay in _in_order(weights, seed, *purpose):
        if sum(weights[one] for one in chosen) >= wanted:
            break
        chosen.append(relay)
    return tuple(chosen)


def lying_relays(weights: Mapping[str, int], share: float, seed: int) -> tuple[str, ...]:
    """Relays in an order drawn by the seed, each that still fits into the share of the weight.

    So they have at most the share, even in a small network, where a single relay may have a fifth
    of the weight: the lightest alone if none fits, and none of them if the share is 0.
    """
    left = share * sum(weights.values())
    chosen: list[str] = []
    for relay in _in_order(weights, seed, "liars"):
        if weights[relay] <= left:
            chosen.append(relay)
            left -= weights[relay]
    if share and not chosen:
        chosen.append(min(weights, key=lambda one: weights[one]))
    return tuple(chosen)


def _in_order(weights: Mapping[str, int], seed: int, *purpose: str) -> list[str]:
    return sorted(weights, key=lambda one: derived_seed(seed, "malicious", *purpose, one))
