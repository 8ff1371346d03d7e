"""The network that a seed draws for a scenario, with what it was drawn from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from testbed.network.bandwidth_weights import Totals, bandwidth_weights
from testbed.network.consensus import Consensus
from testbed.network.model import RELAY_CLASSES, Network
from testbed.network.places import Places
from testbed.network.routes import Routes


@dataclass(frozen=True, eq=False)
class Drawn:
    """A drawn network.

    Attributes:
        scenario: the name of its file.
        consensus, places: what it was drawn from.
        traffic_by_client: the model of each client.
    """

    scenario: str
    seed: int
    consensus: Consensus
    places: Places
    network: Network
    traffic_by_client: Mapping[str, str]

    @cached_property
    def routes(self) -> Routes:
        """The ways through it."""
        return Routes(self.network)

    @property
    def bandwidth_weights(self) -> Mapping[str, int]:
        """Those that an authority computes of its relays; see `bandwidth_weights`."""
        weights = {one: 0 for one in RELAY_CLASSES}
        for relay in self.network.of_kind("relay"):
            weights[relay.relay_class] += relay.weight or 0
        return bandwidth_weights(Totals(**weights))
