"""The consensus and the places of a scenario, and the network that a seed draws from them.

How nodes are drawn is in `testbed.network.sampled`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.asked.scenario import SampledScenario, read_sampled_scenario
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value, label, shown
from testbed.network import distilled
from testbed.network.bandwidth_file import read_bandwidth_file, weights_for
from testbed.network.consensus import Consensus
from testbed.network.drawn import Drawn
from testbed.network.finding import read_consensuses
from testbed.network.places import PLACES, Places, read_places
from testbed.network.sampled import draw_network, traffic_by_client
from testbed.plan.network import Network


@dataclass(frozen=True, eq=False)
class Source:
    """A scenario with the consensus and the places that its networks are drawn from."""

    file: Path
    said: SampledScenario
    consensus: Consensus
    places: Places

    def draw(self, seed: int) -> Drawn:
        """Draw the network of a seed.

        Raises:
            InputError: no network can be drawn with the scenario's numbers.
        """
        keys = self.said.network
        try:
            network = draw_network(
                self.consensus,
                self.places,
                relays=keys.relays,
                clients=keys.clients,
                servers=keys.servers,
                authorities=keys.authorities,
                relay_rates=keys.relay_rates,
                loss=keys.loss,
                client_loss=keys.client_loss,
                queue_discipline=keys.queue_discipline,
                queue_packets=keys.room_packets,
                seed=seed,
            )
        except InputError as error:
            raise InputError(f"{label(self.file)}: network.{error}") from error
        clients = [node.name for node in network.of_kind("client")]
        relays = network.of_kind("relay")
        measured = self._measured_weights([relay.name for relay in relays], seed)
        return Drawn(
            scenario=self.file.stem,
            seed=seed,
            consensus=self.consensus,
            places=self.places,
            network=_with_weights(network, measured),
            traffic_by_client=traffic_by_client(self.said.clients, clients, seed),
            drawn_weights={one.name: one.weight or 0 for one in relays} if measured else {},
        )

    def _measured_weights(self, relays: Sequence[str], seed: int) -> Mapping[str, int]:
        """The relays' weights by the scenario's bandwidth file; none if it names no file."""
        name = self.said.network.bandwidth_file
        if name is None:
            return {}
        path = self.file.parent / Path(name.replace("{seed}", str(seed))).expanduser()
        try:
            return weights_for(read_bandwidth_file(path), relays, seed, str(path))
        except InputError as error:
            raise InputError(f"{label(self.file)}: network.bandwidth_file: {error}") from error


def _with_weights(network: Network, weights: Mapping[str, int]) -> Network:
    nodes = tuple(
        node.model_copy(update={"weight": weights[node.name]}) if node.name in weights else node
        for node in network.nodes
    )
    return network.model_copy(update={"nodes": nodes})


def read_source(scenario: str, changes: Mapping[str, Value] | None = None) -> Source:
    """Read a scenario, by its name or its file, with its consensus and its places.

    Args:
        changes: as for `read_scenario`.

    Raises:
        InputError: the scenario, its consensus or its places can't be read, or it has a topology.
    """
    said, file = read_sampled_scenario(scenario, changes)
    return Source(file, said, _consensus(said, file), _places(said, file))


def _consensus(said: SampledScenario, file: Path) -> Consensus:
    name = said.network.consensus
    known = name in distilled.names()
    where = name if known else str(file.parent / Path(name).expanduser())
    key = f"{label(file)}: network.consensus = {shown(name)}"
    try:
        found = read_consensuses([where])
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    if len(found) != 1:
        raise InputError(f"{key}: has {len(found)} consensuses: name the file of one of them")
    return found[0]


def _places(said: SampledScenario, file: Path) -> Places:
    name = said.network.places
    folder = PLACES if name is None else file.parent / Path(name).expanduser()
    try:
        return read_places(folder)
    except InputError as error:
        raise InputError(f"{label(file)}: network.places: {error}") from error
