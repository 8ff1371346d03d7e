"""The network that a seed draws for a scenario, with its sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from testbed.network.bandwidth_file import (
    SEED,
    BandwidthFile,
    MeasuredRelay,
    stand_in_fingerprint,
)
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
        drawn_weights: the relays' weights in the consensus, where a bandwidth file has others.
    """

    scenario: str
    seed: int
    consensus: Consensus
    places: Places
    network: Network
    traffic_by_client: Mapping[str, str]
    drawn_weights: Mapping[str, int] = field(default_factory=dict)

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


def bandwidth_file_of(drawn: Drawn) -> BandwidthFile:
    """The relays' weights as a bandwidth file; `node_id` stands in for keys that don't exist yet.

    Its time is the consensus's, so that the same network gives the same bytes.
    """
    relays = tuple(
        MeasuredRelay(stand_in_fingerprint(drawn.seed, one.name), one.name, one.weight or 0)
        for one in drawn.network.of_kind("relay")
    )
    header = {"software": "hydra-testbed", "scenario": drawn.scenario, SEED: str(drawn.seed)}
    return BandwidthFile(int(drawn.consensus.valid_after.timestamp()), relays, header)
