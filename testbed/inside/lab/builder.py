"""Builds a lab: makes its interfaces, shapes its links, and gives nodes addresses and routes.

No node has a default route: a node reaches only its neighbours on links, its site and the
management network. Only sites' routers forward packets, and nodes on the way of competing streams.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from pyroute2.netlink import nlmsg

from testbed.basics.seeds import derived_seed
from testbed.inside.lab import ipsec, links
from testbed.inside.lab.kernel_settings import (
    FORWARDING,
    IPV6,
    IPV6_OFF,
    NODE_SETTINGS,
    TICK_NS,
    TICK_PHASE,
    raise_kernel_limits,
    raise_tcp_memory,
    write_settings,
)
from testbed.inside.lab.namespaces import (
    LOOPBACK,
    receive_together,
    send_segments_only,
)
from testbed.inside.lab.nodes import Nodes
from testbed.inside.lab.processors import processor_settings
from testbed.inside.lab.requests import (
    new_address,
    new_bridge,
    new_neighbour,
    new_route,
    replace_route,
    set_link,
)
from testbed.inside.lab.wiring import EXCHANGE, TRUNK, Direction, Wiring
from testbed.plan.addresses import exchange_address, meeting_address, prefix

MANAGEMENT_PREFIX_LENGTH = 16
BRIDGE = "bridge"
ALL_SITES = "10.0.0.0/8"

ARRIVAL_HOLD_NS = 200_000
"""How long generic receive offload may hold a segment back for the next one of its stream.

Network cards on real hosts do the same: they coalesce interrupts. A segment with the PSH flag, the
last one of each write, is delivered at once, so no message waits. Links are not affected, as they
see each packet by itself. Without the hold an infinitely fast CPU wakes Tor for each packet, and
wake-ups would be most of a run's cost.

veth holds segments only if the sender's interface has no segmentation offload. Kernel patch 0002
lets the hold last as long as is said here, from the first segment that an interface holds: an
unpatched kernel restarts the timer with every packet that arrives, and holds a stream's segment for
up to 10 ms on a busy link. Kernel patch 0006 extends the hold to packets that come out of ESP,
whose segments can be joined only after decryption; each interface has its own, there too.
"""


class Builder:
    """Sets up the nodes and links of a lab, once."""

    def __init__(self, wiring: Wiring, nodes: Nodes) -> None:
        self._wiring = wiring
        self._plan = wiring.plan
        self._nodes = nodes

    def build(self) -> None:
        """Build the network.

        Raises:
            pyroute2.NetlinkError: the kernel refuses a setting (it lacks netem, say).
        """
        plan = self._plan
        raise_kernel_limits()
        self._nodes.join(self._wiring.pairs)
        if self._wiring.devices:
            self._nodes.take(self._wiring.devices)
        for node in plan.here():
            self._set_up_node(node.name)
        for switch in self._wiring.switches:
            self._set_up_bridge(switch)
        for direction in self._wiring.directions:
            if plan.is_here(direction.sender):
                self._set_up_direction(direction)
        if self._wiring.ways:
            self._set_up_exchange()
        for entry in plan.competing:
            self._add_routes_along(entry.route)
            self._add_routes_along(entry.route[::-1])
        forwarding = {node for entry in plan.competing for node in entry.route[1:-1]}
        forwarding |= {router.name for router in plan.of_kind("router")}
        for name in filter(plan.is_here, sorted(forwarding)):
            self._nodes.inside(name, partial(write_settings, FORWARDING))
        # A forwarding node must not join segments: they would cross its next link as one.
        self._batch_arrivals({node.name for node in plan.nodes} - forwarding)
        for authority in plan.here("authority"):
            self._add_management_routes_to_relays(authority.name)
        if plan.tor.ipsec:
            self._protect_relays()
        raise_tcp_memory()

    def _set_up_node(self, name: str) -> None:
        node = self._plan.node(name)
        requests = [set_link(LOOPBACK, is_up=True)]
        if node.address:
            requests.append(new_address(LOOPBACK, node.address, 32))
        if node.management_address:
            index = self._wiring.management[name].index
            address = new_address(index, node.management_address, MANAGEMENT_PREFIX_LENGTH)
            requests += [address, set_link(index, is_up=True)]
        self._nodes.configure(name, requests)
        congestion_control = self._plan.congestion_control[name]
        settings = NODE_SETTINGS | {"net/ipv4/tcp_congestion_control": congestion_control}
        if TICK_PHASE.exists():
            phase_ns = derived_seed(self._plan.seed, "tick", name) % TICK_NS
            settings |= {"net/core/tick_phase_ns": str(phase_ns)}
        if IPV6.exists():
            settings |= IPV6_OFF
        if node.processor:
            free = self._wiring.management[name].index if node.management_address else None
            settings |= processor_settings(node.processor, free)
        self._nodes.inside(name, lambda: write_settings(settings))

    def _set_up_bridge(self, switch: str) -> None:
        """Join nodes on the management network."""
        ports = self._wiring.ports(switch)
        if IPV6.exists():
            self._nodes.inside(switch, lambda: write_settings(IPV6_OFF))
        bridge = 1 + max((port.index for port in ports), default=LOOPBACK)
        requests = [set_link(port.index, is_up=True, master=bridge) for port in ports]
        requests = [new_bridge(bridge, BRIDGE), *requests, set_link(bridge, is_up=True)]
        if self._plan.kernels > 1 and switch == self._wiring.switches[0]:
            own = meeting_address(self._plan.part)
            requests.append(new_address(bridge, own, MANAGEMENT_PREFIX_LENGTH))
        self._nodes.configure(switch, requests)

    def _set_up_direction(self, direction: Direction) -> None:
        """Shape the sender's interface, and enter the receiver as its neighbour.

        The receiver's hardware address is entered by hand: no ARP crosses an emulated link.
        """
        index = self._wiring.index(direction)
        sender, receiver = (
            self._plan.node(name) for name in (direction.sender, direction.receiver)
        )
        neighbour, own = str(receiver.address), str(sender.address)
        there = self._wiring.interface(direction.receiver, direction.receiving_interface)
        requests = [
            *links.shape(index, self._wiring.sent_shape(direction), direction.seed),
            set_link(index, is_up=True),
            *_neighbour(index, neighbour, there.hardware_address, own),
        ]
        if receiver.kind == "router":
            requests.append(new_route(ALL_SITES, gateway=neighbour, oif=index, prefsrc=own))
        self._nodes.configure(direction.sender, requests)

    def _set_up_exchange(self) -> None:
        """Join the routers: each sends packets for other sites to the exchange, shaped by way."""
        address = exchange_address(self._plan.part)
        at_exchange = [
            new_address(LOOPBACK, address, 32),
            set_link(LOOPBACK, is_up=True),
        ]
        self._nodes.inside(EXCHANGE, partial(write_settings, NODE_SETTINGS | FORWARDING))
        for router in self._plan.here("router"):
            own = str(router.address)
            block = self._wiring.block(router.name)
            there = self._wiring.interface(router.name, TRUNK)
            here = self._wiring.interface(EXCHANGE, f"site{block}")
            trunk, port = there.index, here.index
            shapes = {
                self._wiring.block(way.receiver): (self._wiring.sent_shape(way), way.seed)
                for way in self._wiring.ways
                if way.sender == router.name
            }
            at_router = [
                *links.trunk(trunk, shapes),
                set_link(trunk, is_up=True),
                *_neighbour(trunk, address, here.hardware_address, own),
                new_route(ALL_SITES, gateway=address, oif=trunk),
            ]
            self._nodes.configure(router.name, at_router)
            at_exchange += [
                set_link(port, is_up=True),
                *_neighbour(port, own, there.hardware_address, address),
                new_route(prefix(block), gateway=own, oif=port),
            ]
        self._nodes.configure(EXCHANGE, [*at_exchange, *self._ways_to_other_parts()])

    def _ways_to_other_parts(self) -> Iterator[nlmsg]:
        """The exchange's requests by which it reaches the sites of other parts of the plan."""
        own = exchange_address(self._plan.part)
        for part, (here, there) in self._wiring.to_parts.items():
            gateway = exchange_address(part)
            yield set_link(here.index, is_up=True)
            yield from _neighbour(here.index, gateway, there.hardware_address, own)
            for router in self._plan.of_kind("router"):
                if self._wiring.part_of(router.name) == part:
                    destination = prefix(self._wiring.block(router.name))
                    yield new_route(destination, gateway=gateway, oif=here.index)

    def _add_routes_along(self, route: Sequence[str]) -> None:
        """Route packets for a route's last node along it, hop by hop.

        Neighbours have routes to each other already.
        """
        first, last = self._plan.node(route[0]), self._plan.node(route[-1])
        for node, neighbour in pairwise(route[:-1]):
            if not self._plan.is_here(node):
                continue
            way = {"gateway": str(self._plan.node(neighbour).address)}
            if node == first.name:
                way["prefsrc"] = str(first.address)
            self._nodes.configure(node, [replace_route(f"{last.address}/32", **way)])

    def _batch_arrivals(self, nodes: set[str]) -> None:
        """Let nodes' interfaces deliver consecutive segments of a stream together.

        Links whose bundles cross as one do that anyway.
        """
        receiving, sending = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for direction in self._wiring.directions:
            if direction.receiver in nodes and not direction.shape.bundles:
                if self._plan.is_here(direction.receiver):
                    receiving[direction.receiver].append(direction.receiving_interface)
                if self._plan.is_here(direction.sender):
                    sending[direction.sender].append(direction.interface)

        def batch(node: str) -> None:
            for interface in sending[node]:
                send_segments_only(interface)
            for interface in receiving[node]:
                receive_together(interface, ARRIVAL_HOLD_NS)

        self._nodes.inside_each(list(dict.fromkeys([*receiving, *sending])), batch)

    def _add_management_routes_to_relays(self, authority: str) -> None:
        """Route an authority's packets for the relays over the management network.

        An authority lists a relay as running only after it has reached the address that the relay
        published, which is the address on the emulated links.
        """
        routes = [
            new_route(f"{relay.address}/32", gateway=str(relay.management_address))
            for relay in self._plan.of_kind("relay")
        ]
        self._nodes.configure(authority, routes)

    def _protect_relays(self) -> None:
        """Set up IPsec between neighbouring relays, and count ESP packets on their links."""
        batch = 'printf "%s\\n" "$@" | ip -batch -'
        for node in self._plan.here():
            if lines := list(ipsec.commands(self._plan, node.name)):
                self._nodes.run(node.name, ["sh", "-c", batch, "sh", *lines])
        for direction in self._wiring.between_relays:
            if self._plan.is_here(direction.sender):
                counting = [links.count_esp(self._wiring.index(direction))]
                self._nodes.configure(direction.sender, counting)


def _neighbour(index: int, neighbour: str, hardware: str, own: str) -> Iterator[nlmsg]:
    """Requests that enter an interface's only neighbour, so that it never asks by ARP."""
    yield new_neighbour(index, neighbour, hardware)
    yield new_route(f"{neighbour}/32", oif=index, prefsrc=own, scope="link")
