"""The network that a seed draws for a scenario, with its sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from testbed.network.bandwidth_weights import Totals, bandwidth_weights
from testbed.network.consensus import Consensus
from testbed.network.places import Places
from testbed.network.routes import Routes
from testbed.plan.network import RELAY_CLASSES, Network


@dataclass(frozen=True, eq=False)
class Drawn:
    """A drawn network.

    Attributes:
        scenario: the name of the scenario's file.
        consensus, places: the sources of the network.
        traffic_by_client: each client's traffic model.
    """

    scenario: str
    seed: int
    consensus: Consensus
    places: Places
    network: Network
    traffic_by_client: Mapping[str, str]

    @cached_property
    def routes(self) -> Routes:
        """The routes through the network."""
        return Routes(self.network)

    @property
    def bandwidth_weights(self) -> Mapping[str, int]:
        """The weights that an authority computes from its relays; see `bandwidth_weights`."""
        weights = {one: 0 for one in RELAY_CLASSES}
        for relay in self.network.of_kind("relay"):
            weights[relay.relay_class] += relay.weight or 0
        return bandwidth_weights(Totals(**weights))
