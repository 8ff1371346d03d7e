"""The nodes and links of a plan whose network is drawn from a consensus.

`testbed.network.sampled` draws it; here it gets addresses, seeds and ways.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import polars

from testbed.asked.watched import ExpectedUse
from testbed.basics.seeds import netem_seeds
from testbed.network.drawn import Drawn
from testbed.network.positions import Floats, probabilities
from testbed.network.routes import Routes
from testbed.plan.addresses import (
    FIRST_SITE_BLOCK,
    data_address,
    management_address,
    router_address,
)
from testbed.plan.model import PlannedLink, PlannedNode
from testbed.plan.network import Kind, Network, Node, Shape

KINDS: tuple[Kind, ...] = ("client", "relay", "server", "authority")
"""The kinds of hosts, in the order in which a plan lists them."""


def sampled_parts(drawn: Drawn) -> Mapping[str, Any]:
    """The parts of a plan on a drawn network, by `Plan`'s keys."""
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


_DIGITS = 12
"""The digits of an expected use, whose order must not depend on how a processor adds up."""


def expected_use(drawn: Drawn) -> ExpectedUse:
    """The probability that a circuit has a link between two relays, for all pairs; 2 in all.

    Relays are chosen as Tor does, by the drawn relays' weights and the bandwidth weights that
    follow: first the exit, then another relay as guard, then a third one as middle.
    """
    relays = drawn.network.of_kind("relay")
    flags = {
        flag: [flag in relay.flags for relay in relays] for flag in ("guard", "exit", "bad_exit")
    }
    weights = [relay.weight or 0 for relay in relays]
    consensus = replace(
        drawn.consensus,
        bandwidth_weights=drawn.bandwidth_weights,
        relays=polars.DataFrame({"weight": weights, **flags}),
    )
    used = _used_links(*(probabilities(consensus, one) for one in ("guard", "middle", "exit")))
    return {
        (relays[one].name, relays[other].name): round(float(used[one, other]), _DIGITS)
        for one, other in combinations(range(len(relays)), 2)
    }


def _used_links(guard: Floats, middle: Floats, last: Floats) -> Floats:
    """The probability that a circuit has a link between each two relays, in either order.

    With the probabilities g, m and l of the relays in each position, a circuit with guard a,
    middle b and exit c has the probability l_c g_a / (1 - g_c) m_b / (1 - m_a - m_c), if the three
    are different.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # if no relay is left for a position
        without_middle = last * guard[:, None] / (1 - guard) / (1 - middle - middle[:, None])
    without_middle = np.nan_to_num(without_middle, nan=0.0, posinf=0.0)
    np.fill_diagonal(without_middle, 0.0)
    to_middle = (without_middle.sum(axis=1, keepdims=True) - without_middle) * middle
    from_middle = middle[:, None] * (without_middle.sum(axis=0) - without_middle)
    used = to_middle + from_middle
    np.fill_diagonal(used, 0.0)
    return np.asarray(used + used.T)


def _nodes(network: Network) -> Iterator[PlannedNode]:
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


def _node(node: Node, address: str | None, management: str | None) -> PlannedNode:
    return PlannedNode(
        **node.model_dump(), role=node.kind, address=address, management_address=management
    )


def _access_links(network: Network, seed: int) -> Iterator[PlannedLink]:
    """The access links of hosts, except authorities, which have only the management network."""
    kinds = {node.name: node.kind for node in network.nodes}
    for link in network.links:
        host, router = link.ends
        if kinds[host] not in ("router", "authority"):
            yield PlannedLink(
                ends=link.ends,
                there=link.there,
                back=link.back,
                roles=(kinds[host], kinds[router]),
                netem_seeds=netem_seeds(link.ends, seed),
            )


def _ways(network: Network, routes: Routes, seed: int) -> Iterator[PlannedLink]:
    """A way between each two sites whose nodes talk to each other.

    A way over several links has the shape of all of them together: none of them has a rate.
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
            yield PlannedLink(
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
