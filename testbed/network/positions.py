"""How likely each relay is to be chosen in each position of a circuit, by a consensus's weights.

The weights' names are dir-spec's ("bandwidth-weights"): the position's letter (g, m, e), then that
of the relay's class (g: guard, e: exit, d: both, m: neither). How Tor uses them: path-spec,
"Weighting node selection", and compute_weighted_bandwidths() in its node_select.c.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.errors import InputError
from testbed.network.consensus import Consensus

Position = Literal["guard", "middle", "exit"]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

FULL_WEIGHT = 10000
"""What a weight of 1 is written as."""

_UNUSED = ""
_WEIGHT_BY_CLASS: Mapping[Position, tuple[str, str, str, str]] = {
    "guard": ("Wgm", "Wgg", _UNUSED, "Wgd"),
    "middle": ("Wmm", "Wmg", "Wme", "Wmd"),
    "exit": ("Wem", "Weg", "Wee", "Wed"),
}
"""By class, in the order of `relay_classes`. There is no weight for an exit as guard: 0 in Tor."""


def relay_classes(relays: pl.DataFrame) -> NDArray[np.int64]:
    """The class of each relay: 0 neither, 1 guard, 2 exit, 3 both. A BadExit is no exit."""
    exits = mask(relays, "exit") & ~mask(relays, "bad_exit")
    return mask(relays, "guard") + 2 * exits.astype(np.int64)


def mask(relays: pl.DataFrame, flag: str) -> Mask:
    """Which relays have the flag, by its column."""
    return relays[flag].to_numpy().astype(np.bool_)


def probabilities(consensus: Consensus, position: Position, among: Mask | None = None) -> Floats:
    """Each relay's probability of being chosen in this position; they sum up to 1.

    As in Tor, all classes weigh the same where the consensus has no bandwidth weights, and relays
    are equally likely where none of them has any weight.

    Args:
        among: which relays may be chosen at all; otherwise those with the flag as guard and exit,
            and all of them as middle.

    Raises:
        InputError: there is no such relay.
    """
    classes = relay_classes(consensus.relays)
    if among is None:
        wanted = {"guard": 1, "middle": 0, "exit": 2}[position]
        among = (classes & wanted) == wanted
    if not among.any():
        raise InputError(f"{consensus.name}: no relay can be {position}")
    by_class = [_weight(consensus, name) for name in _WEIGHT_BY_CLASS[position]]
    weights = consensus.relays["weight"].to_numpy() * np.array(by_class)[classes] * among
    if not weights.any():
        weights = among.astype(np.float64)
    return np.asarray(weights / weights.sum())


def _weight(consensus: Consensus, name: str) -> float:
    if name == _UNUSED:
        return 0.0
    if not consensus.bandwidth_weights:
        return 1.0
    try:
        return consensus.bandwidth_weights[name] / FULL_WEIGHT
    except KeyError:
        raise InputError(f"{consensus.name}: its bandwidth-weights have no {name}") from None
