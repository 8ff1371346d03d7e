"""The competing streams of a topology, node by node."""

from itertools import pairwise
from pathlib import Path

from testbed.asked.scenario import CompetingKeys, Scenario
from testbed.asked.topology import ROLES, TorTopo
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label
from testbed.plan.model import Competing, PlannedLink

COMPETING_PORT = 5201
"""The port of the first entry of competing streams, iperf3's default; the others' follow."""
FIRST_STREAM_PORT = 20_000


def competing_streams(
    scenario: Scenario, file: Path, topology: TorTopo, links: tuple[PlannedLink, ...]
) -> tuple[Competing, ...]:
    """The competing streams, node by node.

    Two nodes of the two roles have streams if both are on some client's route to the server; the
    streams follow that route.
    """
    competing: list[Competing] = []
    next_port = FIRST_STREAM_PORT
    for number, keys in enumerate(scenario.competing, start=1):
        routes = _routes_between(keys, topology)
        if not routes:
            raise InputError(
                f"{label(file)}: competing[{number}]: {scenario.topology} has no route from"
                f" {keys.sender} to {keys.receiver}: name two different roles on a circuit's path"
            )
        for route in routes:
            _check_bundles(f"{label(file)}: competing[{number}]", route, links)
            competing.append(
                Competing(
                    sender=route[0],
                    receiver=route[-1],
                    route=route,
                    streams=keys.streams,
                    congestion_control=keys.congestion_control,
                    rate_bit_per_s=keys.rate_bit_per_s,
                    port=COMPETING_PORT + len(competing),
                    stream_ports=tuple(range(next_port, next_port + keys.streams)),
                )
            )
            next_port += keys.streams
    return tuple(competing)


def _check_bundles(subject: str, route: tuple[str, ...], links: tuple[PlannedLink, ...]) -> None:
    """Refuse streams that would bring bundles to a link which takes none."""
    hops = {frozenset(hop) for hop in pairwise(route)}
    if len({link.there.bundles for link in links if frozenset(link.ends) in hops}) > 1:
        raise InputError(
            f"{subject}: from {route[0]} to {route[-1]}, some links have bundles = true and some"
            " haven't: the nodes between them would pass bundles on; write the same for all of them"
        )


def _routes_between(keys: CompetingKeys, topology: TorTopo) -> list[tuple[str, ...]]:
    places = tuple(ROLES.index(role) for role in (keys.sender, keys.receiver))
    if places[0] == places[1]:
        return []
    routes = {
        route[min(places) : max(places) + 1][:: 1 if places[0] < places[1] else -1]: None
        for route in topology.routes().values()
    }
    return list(routes)
