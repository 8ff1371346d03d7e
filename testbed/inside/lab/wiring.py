"""A lab's interfaces and the directions of its links, as the plan implies them.

Nothing here touches the kernel: `lab.builder` makes what is described here.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

from testbed.inside.lab.namespaces import LOOPBACK, Interface, hardware_address
from testbed.plan.addresses import block_of
from testbed.plan.model import Plan, PlannedLink
from testbed.plan.network import Shape
from testbed.plan.parts import crossings, part_of_nodes

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

    Interfaces have the same numbers and hardware addresses in however many parts the plan is.

    Attributes:
        pairs: both ends of each virtual cable within this part of the plan.
        devices: this part's ends of the links to other parts, by the kernel's names of them.
        to_parts: the device by which sites here reach those of another part, and its other end.
        directions: those of links that have their own interfaces, of the whole plan.
        ways: directions between sites' routers, which share the routers' trunks; sorted by sender.
        switches: the nodes that join the management network; the first joins the others.
        between_nodes: nodes of the lab that are not in the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.switches = management_switches(plan)
        self.between_nodes = (EXCHANGE, *self.switches)
        self._pairs = tuple(interface_pairs(plan))
        self.pairs = tuple(pair for pair in self._pairs if all(map(self._is_here, pair)))
        self._interfaces = {(end.node, end.name): end for pair in self._pairs for end in pair}
        self.devices: dict[str, Interface] = {}
        self._between_ns: dict[tuple[str | int, str | int], int] = {}
        self.to_parts: dict[int, tuple[Interface, Interface]] = {}
        self._part_of = part_of_nodes(plan)
        self._set_up_devices()
        self.directions = tuple(self._directions())
        self.ways = tuple(self._ways())

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
        ends = chain(chain.from_iterable(self.pairs), self.devices.values())
        return [end for end in ends if end.node == switch]

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

    def crosses(self, direction: Direction) -> bool:
        """Whether a direction leads to another part of the plan."""
        return self.part_of(direction.sender) != self.part_of(direction.receiver)

    def part_of(self, node: str) -> int:
        """The part of the plan that has a node."""
        return self._part_of.get(node, 0)

    def sent_shape(self, direction: Direction) -> Shape:
        """What a direction does where it leaves its sender.

        Packets to another part of the plan spend most of their delay between the kernels.
        """
        if not self.crosses(direction):
            return direction.shape
        left_ms = direction.shape.delay_ms - self.between_ns(direction) / 1e6
        return direction.shape.model_copy(update={"delay_ms": max(0.0, left_ms)})

    def between_ns(self, direction: Direction) -> int:
        """How long packets are under way between two kernels; 0 in a direction within a part."""
        return self._between_ns[self._between(direction)] if self.crosses(direction) else 0

    def _is_here(self, end: Interface) -> bool:
        return end.node in self.between_nodes or self.plan.is_here(end.node)

    def _between(self, direction: Direction) -> tuple[str | int, str | int]:
        ends = (direction.sender, direction.receiver)
        return (self.part_of(ends[0]), self.part_of(ends[1])) if direction.link.is_way else ends

    def _set_up_devices(self) -> None:
        """Find this part's devices; those that join no nodes are further ports of a common node."""
        by_nodes = {frozenset((one.node, other.node)): (one, other) for one, other in self._pairs}
        own = self.plan.part
        for number, crossing in enumerate(crossings(self.plan)):
            name = f"xl{number}"
            one, other = crossing.nodes or crossing.ends
            self._between_ns[one, other], self._between_ns[other, one] = crossing.delays_ns
            if own not in crossing.ends:
                continue
            if crossing.joins == "nodes":
                (end,) = filter(self._is_here, by_nodes[frozenset(crossing.nodes)])
                self.devices[name] = end
                continue
            node = EXCHANGE if crossing.joins == "sites" else MANAGEMENT_SWITCH
            ports = [end for pair in self._pairs for end in pair if end.node == node]
            index = LOOPBACK + 1 + len(ports) + number
            first = 2 * (len(self._pairs) + number)
            ends = [Interface(node, name, index, hardware_address(first + side)) for side in (0, 1)]
            here = crossing.ends.index(own)
            self.devices[name] = ends[here]
            if crossing.joins == "sites":
                self.to_parts[crossing.ends[1 - here]] = ends[here], ends[1 - here]

    def _directions(self) -> Iterator[Direction]:
        joined = [link for link in self.plan.links if not link.is_way]
        for link, (one, other) in zip(joined, self._pairs, strict=False):
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
