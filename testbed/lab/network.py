"""The running lab: nodes and links, addresses and routes, and nothing of Tor.

No node has a default route: what isn't a neighbour on a link, at a site or on the management
network is unreachable. Only sites' routers forward, and nodes on the way of competing streams.
"""

import asyncio
import os
import resource
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import IO, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg

from testbed.addresses import block_of, prefix
from testbed.errors import TestbedError
from testbed.lab import ipsec, links
from testbed.lab.namespaces import (
    LOOPBACK,
    Interface,
    Namespaces,
    hardware_address,
    receive_together,
    send_segments_only,
)
from testbed.lab.requests import (
    new_address,
    new_bridge,
    new_neighbour,
    new_route,
    replace_route,
    set_link,
)
from testbed.network.model import Shape
from testbed.plan_model import Link, Plan

Made = TypeVar("Made")
Netlink = TypeVar("Netlink")

MANAGEMENT_PREFIX_LENGTH = 16
MANAGEMENT_SWITCH = "switch"
"""The node with the bridge that joins all of the management network."""
BRIDGE = "bridge"

LIMITS = {
    "net/core/wmem_max": "16777216",
    "net/core/rmem_max": "16777216",
    "net/core/netdev_max_backlog": "5000",
}
"""Mininet's values, where the kernel lets a machine have its own."""
MOST_OPEN_FILES = 16_384
"""Mininet's value, too. Each node is one, and each of its control connections and sockets."""

SYSCTLS = {
    # Mininet's values (Mininet.init), written out so that no host's differ.
    "net/ipv4/tcp_rmem": "10240 87380 16777216",
    "net/ipv4/tcp_wmem": "10240 87380 16777216",
    # A node neither forwards nor believes in routes that it is told.
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/accept_redirects": "0",
}
"""Set in every node's network namespace."""

ARRIVAL_HOLD_NS = 200_000
"""How long generic receive offload may hold a segment back for the next one of its stream.

As a network card's interrupt coalescing does on real hosts. A segment with the PSH flag, the
last one of each write, is handed up at once, so that a message never waits; and the links, which
see each packet by itself, are not concerned. Without it an infinitely fast CPU wakes Tor for each
packet, and most of a run's cost is wake-ups. (veth does it only where the sender's interface has
no segmentation offload. Kernel patch 0002 makes it a bound: an unpatched kernel starts the time
anew with every packet that arrives, and holds a stream's segment for up to 10 ms on a busy link.
Kernel patch 0006 has it for what comes out of ESP, too, which can be joined only afterwards.)
"""

TRUNK = "trunk"
"""A router's interface towards the other sites."""
EXCHANGE = "exchange"
"""The node that joins the sites' routers, if there are any. It delays nothing: what a packet meets
from site to site, it meets where it leaves its router (`testbed.lab.links.trunk`)."""
EXCHANGE_ADDRESS = "10.0.0.1"
ALL_SITES = "10.0.0.0/8"

NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
MOST_NEIGHBOURS = "65536"
"""Of all nodes together: on the management network each knows some of the others."""

IPV6 = Path("/proc/sys/net/ipv6")
IPV6_OFF = {"net/ipv6/conf/all/disable_ipv6": "1"}
"""Where the kernel has it, lest its own messages cross the links; the virtual machine's has not."""

TCP_MEMORY = Path("/proc/sys/net/ipv4/tcp_mem")
"""The whole kernel's, and so only there on the virtual machine: a network namespace has none."""
TCP_MEMORY_PAGES = "196608 262144 393216"
"""Never the limit, however small the machine's memory."""

SERVER_TIMEOUT_S = 30.0
SERVER_POLL_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Direction:
    """One direction of a link: from `sender`'s interface to `receiver`'s."""

    sender: str
    receiver: str
    link: Link
    interface: str
    receiving_interface: str

    @property
    def shape(self) -> Shape:
        """What it does."""
        return self.link.shape_from(self.sender)

    @property
    def seed(self) -> int:
        """Of its losses."""
        return self.link.netem_seeds[self.link.ends.index(self.sender)]


class Lab:
    """A network that runs. Made by `running_lab`, which also ends it."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self.plan = plan
        self._stack = stack
        self._pairs = tuple(interface_pairs(plan))
        self._interfaces = {(end.node, end.name): end for pair in self._pairs for end in pair}
        self._namespaces = Namespaces([*(node.name for node in plan.nodes), *_BETWEEN_NODES])
        stack.callback(self._namespaces.close)
        self.directions = tuple(self._directions())
        """Of the links that have interfaces of their own."""
        self.ways = tuple(self._ways())
        """Of those between sites' routers: the sender's trunk, the receiver's."""

    def start(
        self,
        node: str,
        command: Sequence[str | Path],
        *,
        output: IO[bytes] | int = subprocess.DEVNULL,
        errors: IO[bytes] | int = subprocess.STDOUT,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a node's network namespace; its errors go where its output goes."""
        return self._namespaces.inside(
            node,
            lambda: subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                close_fds=False,  # all of Python's own are closed anyhow, and there are many
            ),
        )

    def run(self, node: str, command: Sequence[str | Path]) -> str:
        """Run a program in a node and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; its output is in the error.
        """
        with self.start(node, command, output=subprocess.PIPE) as process:
            output, _ = process.communicate()
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, list(command), text)
        return text

    def run_here(self, node: str, command: str, *, keyboard: bool) -> int:
        """Run a shell's command in a node on the terminal of this process; its exit status.

        As a shell's job it has a process group of its own: Ctrl-C is its business meanwhile, and
        not that of programs which earlier commands have left in the background.

        Args:
            keyboard: whether the command reads what is typed, too.
        """

        def begun() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                ["sh", "-c", command],
                stdin=None if keyboard else subprocess.DEVNULL,
                process_group=0,
            )

        with self._namespaces.inside(node, begun) as process, _in_foreground(process.pid):
            while True:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    process.returncode = os.waitstatus_to_exitcode(status)
                    return process.returncode
                os.killpg(process.pid, signal.SIGCONT)  # Ctrl-Z: nothing here could bring it back

    def wait_for_server(self, node: str, port: int) -> None:
        """Wait until a program in a node listens at a TCP port.

        Raises:
            TestbedError: it doesn't come to.
        """
        self._wait_for_listener(node, f"sport = :{port}", port)

    def _wait_for_listener(self, node: str, which: str, port: int) -> None:
        """Wait until ss lists a socket in a node that its filter `which` lets through."""
        deadline_s = time.monotonic() + SERVER_TIMEOUT_S
        while not self.run(node, ["ss", "-Hltn", which]).strip():
            if time.monotonic() > deadline_s:
                raise TestbedError(f"nothing listens at {node}'s port {port}: see logs/")
            time.sleep(SERVER_POLL_INTERVAL_S)

    def inside(self, node: str, make: Callable[[], Made]) -> Made:
        """Call `make` in a node's network namespace; sockets that it opens stay there."""
        return self._namespaces.inside(node, make)

    def answer(
        self, node: str, kind: Callable[[], Netlink], question: Callable[[Netlink], Made]
    ) -> Made:
        """What a node's kernel answers to a question.

        Args:
            kind: the class of netlink socket on which it is asked, such as pyroute2's `IPRoute`.
            question: called with a socket in the node's network namespace, in the one thread that
                may use it; it reads the whole answer.
        """
        return self._namespaces.answer(node, kind, question).result()

    async def answer_meanwhile(
        self, node: str, kind: Callable[[], Netlink], question: Callable[[Netlink], Made]
    ) -> Made:
        """The same from an event loop, which goes on."""
        return await asyncio.wrap_future(self._namespaces.answer(node, kind, question))

    def way_counters(self) -> Iterator[tuple[Direction, links.LinkCounters]]:
        """What the netem of each way from site to site has counted since the lab began."""
        for router, ways in groupby(self.ways, key=lambda way: way.sender):
            counted = self._trunk_counters(router)
            for way in ways:
                yield way, counted[self._block(way.receiver)]

    def _block(self, router: str) -> int:
        return block_of(str(self.plan.node(router).address))

    def path(self, sender: str, receiver: str) -> list[Direction]:
        """The directions that a packet takes between two hosts: neighbours, or by their sites."""
        with suppress(KeyError):
            return [self.direction(sender, receiver)]
        first = next(one for one in self.directions if one.sender == sender)
        last = next(one for one in self.directions if one.receiver == receiver)
        between = [
            way for way in self.ways if (way.sender, way.receiver) == (first.receiver, last.sender)
        ]
        return [first, *between, last]

    def counters(self, direction: Direction) -> links.LinkCounters:
        """What a direction's netem has counted since the lab began."""
        if direction.interface == TRUNK:
            return self._trunk_counters(direction.sender)[self._block(direction.receiver)]
        (counted,) = self._counters(direction.sender, [direction])
        return counted

    def sent(self) -> Iterator[tuple[Sequence[Direction], Sequence[links.LinkCounters]]]:
        """The same for all directions of links, those away from one node at a time."""
        by_sender: dict[str, list[Direction]] = defaultdict(list)
        for direction in self.directions:
            by_sender[direction.sender].append(direction)
        for sender, directions in by_sender.items():
            yield directions, self._counters(sender, directions)

    def _counters(self, sender: str, directions: Sequence[Direction]) -> list[links.LinkCounters]:
        indexes = [self._index(sender, one.interface) for one in directions]
        counted = self.answer(sender, IPRoute, partial(links.counters, indexes=indexes))
        return [counted[index] for index in indexes]

    def _trunk_counters(self, router: str) -> Mapping[int, links.LinkCounters]:
        index = self._index(router, TRUNK)
        return self.answer(router, IPRoute, partial(links.trunk_counters, index=index))

    def arrivals(self, direction: Direction) -> tuple[int, int]:
        """The packets and bytes that have arrived at a direction's end since the lab began.

        The interface counts them before generic receive offload makes fewer of them.
        """
        index = self._index(direction.receiver, direction.receiving_interface)
        node = direction.receiver
        (link,) = self.answer(node, IPRoute, lambda netlink: tuple(netlink.get_links(index)))
        statistics = link.get_attr("IFLA_STATS64")
        return int(statistics["rx_packets"]), int(statistics["rx_bytes"])

    def esp_packets(self, direction: Direction) -> tuple[int, int]:
        """What a direction between relays was given to send since the lab began, if it has IPsec.

        Returns:
            All packets, and those of ESP among them.
        """
        index = self._index(direction.sender, direction.interface)
        return self.answer(direction.sender, IPRoute, partial(links.esp_packets, index=index))

    def set_bundle(self, direction: Direction, segments: int) -> None:
        """Let a direction's bundles have so many segments at most, whatever its shape says."""
        index = self._index(direction.sender, direction.interface)
        self._namespaces.ask(direction.sender, [set_link(index, gso_max_segs=segments)])

    def direction(self, sender: str, receiver: str) -> Direction:
        """The direction of a link between two neighbours; KeyError if they have none."""
        for direction in self.directions:
            if (direction.sender, direction.receiver) == (sender, receiver):
                return direction
        raise KeyError((sender, receiver))

    def namespace(self, node: str) -> str:
        """The path that stands for a node's network namespace; empty if it has none of its own."""
        return self._namespaces.path(node)

    def _index(self, node: str, interface: str) -> int:
        return self._interfaces[node, interface].index

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

    def _set_up(self) -> None:
        if NEIGHBOURS.exists():
            NEIGHBOURS.write_text(MOST_NEIGHBOURS)
            _write_sysctls(LIMITS)
        self._namespaces.join(self._pairs)
        for node in self.plan.nodes:
            self._set_up_node(node.name)
        self._set_up_bridge()
        for direction in self.directions:
            self._set_up_direction(direction)
        if self.ways:
            self._set_up_exchange()
        for entry in self.plan.competing:
            self._lead(entry.route)
            self._lead(entry.route[::-1])
        forwarding = {node for entry in self.plan.competing for node in entry.route[1:-1]}
        forwarding |= {router.name for router in self.plan.of_kind("router")}
        for name in sorted(forwarding):
            self.inside(name, partial(_write_sysctls, {"net/ipv4/ip_forward": "1"}))
        # What is handed on must not be put together: it would cross the next link as one.
        self._batch_arrivals({node.name for node in self.plan.nodes} - forwarding)
        for authority in self.plan.of_kind("authority"):
            self._show_relays_to(authority.name)
        if self.plan.tor.ipsec:
            self._protect_relays()
        if TCP_MEMORY.exists():
            TCP_MEMORY.write_text(TCP_MEMORY_PAGES)

    def _set_up_node(self, name: str) -> None:
        node = self.plan.node(name)
        requests = [set_link(LOOPBACK, is_up=True)]
        if node.address:
            requests.append(new_address(LOOPBACK, node.address, 32))
        if node.management_address:
            index = self._management[name].index
            address = new_address(index, node.management_address, MANAGEMENT_PREFIX_LENGTH)
            requests += [address, set_link(index, is_up=True)]
        self._namespaces.ask(name, requests)
        settings = SYSCTLS | {"net/ipv4/tcp_congestion_control": self.plan.congestion_control[name]}
        if IPV6.exists():
            settings |= IPV6_OFF
        self.inside(name, lambda: _write_sysctls(settings))

    @cached_property
    def _management(self) -> Mapping[str, Interface]:
        """Each node's interface on the management network."""
        return {one.node: one for one, other in self._pairs if other.node == MANAGEMENT_SWITCH}

    def _set_up_bridge(self) -> None:
        """Join the nodes on the management network."""
        ports = [other for _, other in self._pairs if other.node == MANAGEMENT_SWITCH]
        if IPV6.exists():
            self.inside(MANAGEMENT_SWITCH, lambda: _write_sysctls(IPV6_OFF))
        bridge = 1 + max((port.index for port in ports), default=LOOPBACK)
        requests = [set_link(port.index, is_up=True, master=bridge) for port in ports]
        requests = [new_bridge(bridge, BRIDGE), *requests, set_link(bridge, is_up=True)]
        self._namespaces.ask(MANAGEMENT_SWITCH, requests)

    def _batch_arrivals(self, nodes: set[str]) -> None:
        """Let nodes' emulated interfaces hand arriving segments of a stream up together.

        On links whose bundles cross as one they arrive so.
        """
        receiving, sending = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for direction in self.directions:
            if direction.receiver in nodes and not direction.shape.bundles:
                receiving[direction.receiver].append(direction.receiving_interface)
                sending[direction.sender].append(direction.interface)

        def batch(node: str) -> None:
            for interface in sending[node]:
                send_segments_only(interface)
            for interface in receiving[node]:
                receive_together(interface, ARRIVAL_HOLD_NS)

        self._namespaces.inside_each(list(dict.fromkeys([*receiving, *sending])), batch)

    def _lead(self, route: Sequence[str]) -> None:
        """Lead packets for a route's last node from hop to hop along it.

        Neighbours know each other already.
        """
        first, last = self.plan.node(route[0]), self.plan.node(route[-1])
        for node, neighbour in pairwise(route[:-1]):
            way = {"gateway": str(self.plan.node(neighbour).address)}
            if node == first.name:
                way["prefsrc"] = str(first.address)
            self._namespaces.ask(node, [replace_route(f"{last.address}/32", **way)])

    @cached_property
    def between_relays(self) -> tuple[Direction, ...]:
        """The directions of the links whose ends are both relays."""
        relays = {relay.name for relay in self.plan.of_kind("relay")}
        return tuple(one for one in self.directions if {one.sender, one.receiver} <= relays)

    def _protect_relays(self) -> None:
        """Give neighbouring relays their IPsec, and count on their links what is ESP."""
        batch = 'printf "%s\\n" "$@" | ip -batch -'
        for node in self.plan.nodes:
            if lines := list(ipsec.commands(self.plan, node.name)):
                self.run(node.name, ["sh", "-c", batch, "sh", *lines])
        for direction in self.between_relays:
            index = self._index(direction.sender, direction.interface)
            self._namespaces.ask(direction.sender, [links.count_esp(index)])

    def _show_relays_to(self, authority: str) -> None:
        """Lead an authority to the relays' addresses, past the emulated links.

        It lists a relay as running only after it has reached the address that the relay
        published, and that is the one on the emulated links.
        """
        routes = [
            new_route(f"{relay.address}/32", gateway=str(relay.management_address))
            for relay in self.plan.of_kind("relay")
        ]
        self._namespaces.ask(authority, routes)

    def _set_up_direction(self, direction: Direction) -> None:
        """Shape the sender's interface and show it the way to its neighbour.

        The neighbour's hardware address is entered by hand: no ARP crosses an emulated link.
        """
        index = self._index(direction.sender, direction.interface)
        sender, receiver = (self.plan.node(name) for name in (direction.sender, direction.receiver))
        neighbour, own = str(receiver.address), str(sender.address)
        there = self._interfaces[direction.receiver, direction.receiving_interface]
        requests = [
            *links.shape(index, direction.shape, direction.seed),
            set_link(index, is_up=True),
            *_neighbour(index, neighbour, there.hardware_address, own),
        ]
        if receiver.kind == "router":
            requests.append(new_route(ALL_SITES, gateway=neighbour, oif=index, prefsrc=own))
        self._namespaces.ask(direction.sender, requests)

    def _set_up_exchange(self) -> None:
        """Join the routers: each sends what isn't its site's to the exchange, shaped by the way."""
        at_exchange = [
            new_address(LOOPBACK, EXCHANGE_ADDRESS, 32),
            set_link(LOOPBACK, is_up=True),
        ]
        self.inside(EXCHANGE, partial(_write_sysctls, SYSCTLS | {"net/ipv4/ip_forward": "1"}))
        for router in self.plan.of_kind("router"):
            own = str(router.address)
            block = block_of(own)
            there = self._interfaces[router.name, TRUNK]
            here = self._interfaces[EXCHANGE, f"site{block}"]
            trunk, port = there.index, here.index
            shapes = {
                self._block(way.receiver): (way.shape, way.seed)
                for way in self.ways
                if way.sender == router.name
            }
            at_router = [
                *links.trunk(trunk, shapes),
                set_link(trunk, is_up=True),
                *_neighbour(trunk, EXCHANGE_ADDRESS, here.hardware_address, own),
                new_route(ALL_SITES, gateway=EXCHANGE_ADDRESS, oif=trunk),
            ]
            self._namespaces.ask(router.name, at_router)
            at_exchange += [
                set_link(port, is_up=True),
                *_neighbour(port, own, there.hardware_address, EXCHANGE_ADDRESS),
                new_route(prefix(block), gateway=own, oif=port),
            ]
        self._namespaces.ask(EXCHANGE, at_exchange)


_BETWEEN_NODES = (EXCHANGE, MANAGEMENT_SWITCH)
"""Namespaces beside those of the plan's nodes."""


def interface_pairs(plan: Plan) -> Iterator[tuple[Interface, Interface]]:
    """All interfaces: those of the links in the plan's order, of the exchange, of the management.

    A node's own are NODE-eth0 and so on, as Mininet names them.
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
            # A router has hundreds of them: their names would be too long.
            to_host = f"to-{host}" if plan.node(other).kind == "router" else None
            yield interface(host), interface(other, to_host)
    for router in plan.of_kind("router"):
        port = f"site{block_of(str(router.address))}"
        yield interface(router.name, TRUNK), interface(EXCHANGE, port)
    for node in plan.nodes:
        if node.management_address:
            yield interface(node.name), interface(MANAGEMENT_SWITCH)


def _neighbour(index: int, neighbour: str, hardware: str, own: str) -> Iterator[nlmsg]:
    """The requests that show an interface's only neighbour, for which nothing is asked about."""
    yield new_neighbour(index, neighbour, hardware)
    yield new_route(f"{neighbour}/32", oif=index, prefsrc=own, scope="link")


@contextmanager
def running_lab(plan: Plan) -> Iterator[Lab]:
    """Build the plan's network, and take it down at the end whatever happens.

    Raises:
        pyroute2.NetlinkError: the kernel refuses a link's setting (it has no netem, say).
    """
    _permit_open_files()
    with ExitStack() as stack:
        lab = Lab(plan, stack)
        lab._set_up()
        yield lab


@contextmanager
def _in_foreground(group: int) -> Iterator[None]:
    """Give a process group the terminal that this process reads from, and take it back."""
    _give_terminal_to(group)
    try:
        yield
    finally:
        _give_terminal_to(os.getpgrp())


def _give_terminal_to(group: int) -> None:
    # Who is in the background may not do that, and would be stopped.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        os.tcsetpgrp(0, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _permit_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        hard = max(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MOST_OPEN_FILES), hard))


def _write_sysctls(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        (Path("/proc/sys") / name).write_text(value)
