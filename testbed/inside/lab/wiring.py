"""A lab's interfaces and the directions of its links, as the plan implies them.

Nothing here touches the kernel: `lab.builder` makes what is described here.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from testbed.inside.lab.namespaces import LOOPBACK, Interface, hardware_address
from testbed.plan.addresses import block_of
from testbed.plan.model import Plan, PlannedLink
from testbed.plan.network import Shape

MANAGEMENT_SWITCH = "switch"
"""The first node whose bridge joins nodes on the management network."""
SWITCH_PORTS = 1000
"""The most nodes that a management switch joins: a bridge has at most 1,024 ports in Linux."""
EXCHANGE = "exchange"
"""The node that joins the sites' routers, if there are any.

It delays nothing: the delay and loss between two sites act where a packet leaves its router
(`testbed.inside.lab.links.trunk`).
"""
TRUNK = "trunk"
"""A router's interface towards the other sites."""


@dataclass(frozen=True)
class Direction:
    """One direction of a link: from `sender`'s interface to `receiver`'s."""

    sender: str
    receiver: str
    link: PlannedLink
    interface: str
    receiving_interface: str

    @property
    def shape(self) -> Shape:
        """Rate, delay, loss and queue."""
        return self.link.shape_from(self.sender)

    @property
    def seed(self) -> int:
        """Seed of the losses."""
        return self.link.netem_seeds[self.link.ends.index(self.sender)]


class Wiring:
    """All interfaces of a plan's network, and what they connect.

    Attributes:
        pairs: both ends of each virtual cable.
        directions: those of links that have their own interfaces.
        ways: directions between sites' routers, which share the routers' trunks; sorted by sender.
        switches: the nodes that join the management network; the first joins the others.
        between_nodes: nodes of the lab that are not in the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pairs = tuple(interface_pairs(plan))
        self._interfaces = {(end.node, end.name): end for pair in self.pairs for end in pair}
        self.directions = tuple(self._directions())
        self.ways = tuple(self._ways())
        self.switches = management_switches(plan)
        self.between_nodes = (EXCHANGE, *self.switches)

    @cached_property
    def between_relays(self) -> tuple[Direction, ...]:
        """The directions of links between two relays."""
        relays = {relay.name for relay in self.plan.of_kind("relay")}
        return tuple(one for one in self.directions if {one.sender, one.receiver} <= relays)

    def interface(self, node: str, name: str) -> Interface:
        """A node's interface by its name."""
        return self._interfaces[node, name]

    def index(self, direction: Direction) -> int:
        """The index of the interface that a direction leaves by, in its sender's namespace."""
        return self._interfaces[direction.sender, direction.interface].index

    def ports(self, switch: str) -> list[Interface]:
        """A management switch's interfaces."""
        return [end for pair in self.pairs for end in pair if end.node == switch]

    @cached_property
    def management(self) -> Mapping[str, Interface]:
        """Each node's interface on the management network."""
        return {
            one.node: one
            for one, other in self.pairs
            if other.node in self.switches and one.node not in self.switches
        }

    def block(self, router: str) -> int:
        """The number of a site's block of addresses."""
        return block_of(str(self.plan.node(router).address))

    def _directions(self) -> Iterator[Direction]:
        joined = [link for link in self.plan.links if not link.is_way]
        for link, (one, other) in zip(joined, self.pairs, strict=False):
            yield Direction(one.node, other.node, link, one.name, other.name)
            yield Direction(other.node, one.node, link, other.name, one.name)

    def _ways(self) -> Iterator[Direction]:
        found = [
            Direction(sender, receiver, link, TRUNK, TRUNK)
            for link in self.plan.links
            if link.is_way
            for sender, receiver, _ in link.directions()
        ]
        yield from sorted(found, key=lambda way: way.sender)


def management_switches(plan: Plan) -> tuple[str, ...]:
    """The names of a plan's management switches: one for each `SWITCH_PORTS` nodes."""
    further = range(2, 1 + -(-len(_managed(plan)) // SWITCH_PORTS))
    return (MANAGEMENT_SWITCH, *(f"{MANAGEMENT_SWITCH}{number}" for number in further))


def _managed(plan: Plan) -> list[str]:
    return [node.name for node in plan.nodes if node.management_address]


def interface_pairs(plan: Plan) -> Iterator[tuple[Interface, Interface]]:
    """Yield the pairs of interfaces: links in the plan's order, then trunks, then management.

    A node's interfaces are called NODE-eth0 and so on, as in Mininet.
    """
    next_index: dict[str, int] = defaultdict(lambda: LOOPBACK)
    numbers = count()

    def interface(node: str, name: str | None = None) -> Interface:
        next_index[node] += 1
        own = f"{node}-eth{next_index[node] - LOOPBACK - 1}"
        return Interface(node, name or own, next_index[node], hardware_address(next(numbers)))

    for link in plan.links:
        if not link.is_way:
            host, other = link.ends
            # A router has hundreds of interfaces: their numbered names would be too long.
            to_host = f"to-{host}" if plan.node(other).kind == "router" else None
            yield interface(host), interface(other, to_host)
    for router in plan.of_kind("router"):
        port = f"site{block_of(str(router.address))}"
        yield interface(router.name, TRUNK), interface(EXCHANGE, port)
    first, *others = switches = management_switches(plan)
    for number, node in enumerate(_managed(plan)):
        yield interface(node), interface(switches[number // SWITCH_PORTS])
    for switch in others:
        yield interface(switch), interface(first)
