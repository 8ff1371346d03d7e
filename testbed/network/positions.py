"""The probability that a relay is chosen for a position of a circuit, by a consensus's weights."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.basics.errors import InputError
from testbed.network.consensus import Consensus
from testbed.plan.network import RelayClass
from testbed.plan.positions import FULL_WEIGHT, WEIGHT_BY_CLASS, Position

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_IN_ORDER: tuple[RelayClass, ...] = ("middle", "guard", "exit", "both")
"""The classes in the order of `relay_classes`."""


def relay_classes(relays: pl.DataFrame) -> NDArray[np.int64]:
    """The class of each relay: 0 neither, 1 guard, 2 exit, 3 both. A BadExit is not an exit."""
    exits = mask(relays, "exit") & ~mask(relays, "bad_exit")
    return mask(relays, "guard") + 2 * exits.astype(np.int64)


def mask(relays: pl.DataFrame, flag: str) -> Mask:
    """The relays that have a flag, by its column."""
    return relays[flag].to_numpy().astype(np.bool_)


def probabilities(consensus: Consensus, position: Position, among: Mask | None = None) -> Floats:
    """Each relay's probability of being chosen for a position; they add up to 1.

    As in Tor, all classes have the same weight if the consensus has no bandwidth weights, and all
    relays are equally likely if none has any weight.

    Args:
        among: the relays that may be chosen; by default those with the position's flag as guard or
            exit, and all of them as middle.

    Raises:
        InputError: no relay may be chosen.
    """
    classes = relay_classes(consensus.relays)
    if among is None:
        wanted = {"guard": 1, "middle": 0, "exit": 2}[position]
        among = (classes & wanted) == wanted
    if not among.any():
        raise InputError(f"{consensus.name}: no relay can be {position}")
    by_class = [_weight(consensus, WEIGHT_BY_CLASS[position][one]) for one in _IN_ORDER]
    weights = consensus.relays["weight"].to_numpy() * np.array(by_class)[classes] * among
    if not weights.any():
        weights = among.astype(np.float64)
    return np.asarray(weights / weights.sum())


def _weight(consensus: Consensus, name: str | None) -> float:
    if name is None:
        return 0.0
    if not consensus.bandwidth_weights:
        return 1.0
    try:
        return consensus.bandwidth_weights[name] / FULL_WEIGHT
    except KeyError:
        raise InputError(f"{consensus.name}: its bandwidth-weights have no {name}") from None
