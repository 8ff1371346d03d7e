"""The bandwidth weight by which Tor takes a relay for a position of a circuit.

The weights' names are dir-spec's ("bandwidth-weights"): the position's letter (g, m, e), then that
of the relay's class (g: guard, e: exit, d: both, m: neither). For Tor's use of them, see path-spec,
"Weighting node selection", and compute_weighted_bandwidths() in its node_select.c.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from testbed.plan.network import Node, RelayClass

Position = Literal["guard", "middle", "exit"]

FULL_WEIGHT = 10000
"""A weight of 1, as written in a consensus."""

WEIGHT_BY_CLASS: Mapping[Position, Mapping[RelayClass, str | None]] = {
    "guard": {"middle": "Wgm", "guard": "Wgg", "exit": None, "both": "Wgd"},
    "middle": {"middle": "Wmm", "guard": "Wmg", "exit": "Wme", "both": "Wmd"},
    "exit": {"middle": "Wem", "guard": "Weg", "exit": "Wee", "both": "Wed"},
}
"""The weights' names. An exit as guard has none: its weight is 0 in Tor."""


def position_weights(
    relays: Sequence[Node], position: Position, bandwidth_weights: Mapping[str, int]
) -> list[int]:
    """Each relay's weight in a position, in proportion: Tor's bandwidth weights are not divided.

    Args:
        bandwidth_weights: by their names; one that isn't there is `FULL_WEIGHT`.
    """
    names = WEIGHT_BY_CLASS[position]
    weights = []
    for relay in relays:
        name = names[relay.relay_class]
        share = 0 if name is None else bandwidth_weights.get(name, FULL_WEIGHT)
        weights.append((relay.weight or 0) * share)
    return weights
