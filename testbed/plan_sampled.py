"""The nodes and links of a plan whose network is drawn from a consensus.

What is drawn, and how, is `testbed.network.sampled`'s; here it gets addresses, seeds and ways.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from testbed.addresses import (
    FIRST_SITE_BLOCK,
    data_address,
    management_address,
    router_address,
)
from testbed.network.drawn import Drawn
from testbed.network.model import Kind, Network, Shape
from testbed.network.model import Node as NetworkNode
from testbed.network.routes import Routes
from testbed.plan_model import Link, Node
from testbed.seeds import netem_seeds

KINDS: tuple[Kind, ...] = ("client", "relay", "server", "authority")
"""The kinds of hosts, in the order in which a plan lists them."""


def sampled_parts(drawn: Drawn) -> Mapping[str, Any]:
    """What a plan says of a drawn network, by the names of `Plan`'s keys."""
    network = drawn.network
    clients, servers = network.of_kind("client"), network.of_kind("server")
    return {
        "nodes": tuple(_nodes(network)),
        "links": (*_access_links(network, drawn.seed), *_ways(network, drawn.routes, drawn.seed)),
        "bandwidth_weights": dict(drawn.bandwidth_weights),
        "server_by_client": {
            client.name: servers[number % len(servers)].name
            for number, client in enumerate(clients)
        },
        "traffic_by_client": dict(drawn.traffic_by_client),
    }


def _nodes(network: Network) -> Iterator[Node]:
    """All nodes, routers last, each with its addresses."""
    blocks = {site.name: FIRST_SITE_BLOCK + number for number, site in enumerate(network.sites)}
    at_site: dict[tuple[str | None, str], int] = defaultdict(int)
    for group, kind in enumerate(KINDS):
        for number, node in enumerate((one for one in network.nodes if one.kind == kind), 1):
            at_site[node.site, kind] += 1
            block = blocks[node.site or ""]
            address = data_address(block, group, at_site[node.site, kind])
            yield _node(
                node,
                None if kind == "authority" else address,
                None if kind == "server" else management_address(group, number),
            )
    for node in network.of_kind("router"):
        yield _node(node, router_address(blocks[node.site or ""]), None)


def _node(node: NetworkNode, address: str | None, management: str | None) -> Node:
    return Node(**node.model_dump(), role=node.kind, address=address, management_address=management)


def _access_links(network: Network, seed: int) -> Iterator[Link]:
    """Those of hosts, but for the authorities, who are on the management network only."""
    kinds = {node.name: node.kind for node in network.nodes}
    for link in network.links:
        host, router = link.ends
        if kinds[host] not in ("router", "authority"):
            yield Link(
                ends=link.ends,
                there=link.there,
                back=link.back,
                roles=(kinds[host], kinds[router]),
                netem_seeds=netem_seeds(link.ends, seed),
            )


def _ways(network: Network, routes: Routes, seed: int) -> Iterator[Link]:
    """A way between each two sites whose nodes have something to tell each other.

    A way of several links is one of what they do together: none of them has a rate.
    """
    routers = {site.name: site.router for site in network.sites}
    sites = {kind: {node.site for node in network.of_kind(kind)} for kind in KINDS}
    exits = {node.site for node in network.of_kind("relay") if "exit" in node.flags}
    for first, second in combinations(sorted(routers), 2):
        if any(
            (one in here and other in there)
            for here, there in (
                (sites["relay"], sites["relay"] | sites["client"]),
                (exits, sites["server"]),
            )
            for one, other in ((first, second), (second, first))
        ):
            ends = (routers[first], routers[second])
            yield Link(
                ends=ends,
                there=_together(routes.shapes(*ends)),
                back=_together(routes.shapes(*ends[::-1])),
                roles=("router", "router"),
                netem_seeds=netem_seeds(ends, seed),
            )


def _together(shapes: list[Shape]) -> Shape:
    whole, *others = shapes
    for shape in others:
        whole = whole.then(shape)
    return whole
