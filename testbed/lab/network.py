"""The running lab: Mininet's nodes and links, addresses and routes, and nothing of Tor.

No node has a default route: what isn't a neighbour on a link, at a site or on the management
network is unreachable. Only sites' routers forward, and nodes on the way of competing streams.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

from mininet.link import Intf
from mininet.net import Mininet
from mininet.node import Host
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo
from pyroute2 import IPRoute, netns

from testbed.addresses import block_of, prefix
from testbed.errors import TestbedError
from testbed.lab import ipsec, links
from testbed.network.model import Shape
from testbed.plan_model import Link, Plan

Made = TypeVar("Made")

MANAGEMENT_PREFIX_LENGTH = 16
MANAGEMENT_SWITCH = "s1"
"""LinuxBridge takes no names but such ones."""

SYSCTLS = {
    # Mininet's own values (Mininet.init), written out so that no host's differ.
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
anew with every packet that arrives, and holds a stream's segment for up to 10 ms on a busy link.)
"""

ROUTER = "router"
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


class _Node(Host):  # type: ignore[misc]  # Mininet has no types
    """A Mininet host to which Mininet gives no address: the lab does, by netlink."""

    def config(self, **_parameters: object) -> dict[str, object]:
        return {}


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

    def __init__(self, plan: Plan, network: Mininet, stack: ExitStack) -> None:
        self.plan = plan
        self._network = network
        self._stack = stack
        self._netlink: dict[str, IPRoute] = {}
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
        process: subprocess.Popen[bytes] = self._network.getNodeByName(node).popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
        )
        return process

    def run(self, node: str, command: Sequence[str | Path], timeout_s: float | None = None) -> str:
        """Run a program in a node and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; its output is in the error.
        """
        with self.start(node, command, output=subprocess.PIPE) as process:
            output, _ = process.communicate(timeout=timeout_s)
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
        process_number = self._network.getNodeByName(node).pid
        with (
            subprocess.Popen(
                ["mnexec", "-a", str(process_number), "sh", "-c", command],
                stdin=None if keyboard else subprocess.DEVNULL,
                process_group=0,
            ) as process,
            _in_foreground(process.pid),
        ):
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
        """Call `make` in a node's network namespace; sockets that it opens stay there.

        A thread of its own enters the namespace and ends, so that no other thread ever does.
        """

        def entered() -> Made:
            netns.setns(self.namespace(node))
            return make()

        with ThreadPoolExecutor(max_workers=1) as executor:
            return executor.submit(entered).result()

    def netlink(self, node: str) -> IPRoute:
        """A netlink socket in a node's network namespace, kept until the lab ends."""
        if node not in self._netlink:
            netlink = IPRoute(netns=self.namespace(node))
            self._netlink[node] = self._stack.enter_context(netlink)
        return self._netlink[node]

    def way_counters(self) -> Iterator[tuple[Direction, links.LinkCounters]]:
        """What the netem of each way from site to site has counted since the lab began."""
        for router, ways in groupby(self.ways, key=lambda way: way.sender):
            netlink = self.netlink(router)
            counted = links.trunk_counters(netlink, _index(netlink, TRUNK))
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
        netlink = self.netlink(direction.sender)
        if direction.interface == TRUNK:
            counted = links.trunk_counters(netlink, _index(netlink, TRUNK))
            return counted[self._block(direction.receiver)]
        return links.counters(netlink, _index(netlink, direction.interface))

    def arrivals(self, direction: Direction) -> tuple[int, int]:
        """The packets and bytes that have arrived at a direction's end since the lab began.

        The interface counts them before generic receive offload makes fewer of them.
        """
        netlink = self.netlink(direction.receiver)
        (link,) = netlink.get_links(_index(netlink, direction.receiving_interface))
        statistics = link.get_attr("IFLA_STATS64")
        return int(statistics["rx_packets"]), int(statistics["rx_bytes"])

    def esp_packets(self, direction: Direction) -> tuple[int, int]:
        """What a direction between relays was given to send since the lab began, if it has IPsec.

        Returns:
            All packets, and those of ESP among them.
        """
        netlink = self.netlink(direction.sender)
        return links.esp_packets(netlink, _index(netlink, direction.interface))

    def direction(self, sender: str, receiver: str) -> Direction:
        """The direction of a link between two neighbours; KeyError if they have none."""
        for direction in self.directions:
            if (direction.sender, direction.receiver) == (sender, receiver):
                return direction
        raise KeyError((sender, receiver))

    def namespace(self, node: str) -> str:
        """The path that stands for a node's network namespace."""
        return f"/proc/{self._network.getNodeByName(node).pid}/ns/net"

    def _directions(self) -> Iterator[Direction]:
        for link in self.plan.links:
            if _is_way(link):
                continue
            first, second = (self._network.getNodeByName(name) for name in link.ends)
            ((interface, other),) = first.connectionsTo(second)
            yield Direction(first.name, second.name, link, interface.name, other.name)
            yield Direction(second.name, first.name, link, other.name, interface.name)

    def _ways(self) -> Iterator[Direction]:
        found = [
            Direction(sender, receiver, link, TRUNK, TRUNK)
            for link in self.plan.links
            if _is_way(link)
            for sender, receiver, _ in link.directions()
        ]
        yield from sorted(found, key=lambda way: way.sender)

    def _set_up(self) -> None:
        if NEIGHBOURS.exists():
            NEIGHBOURS.write_text(MOST_NEIGHBOURS)
        for node in self.plan.nodes:
            self._set_up_node(node.name)
        for direction in self.directions:
            self._set_up_direction(direction)
        if self.ways:
            self._set_up_exchange()
        for entry in self.plan.competing:
            self._lead(entry.route)
            self._lead(entry.route[::-1])
        forwarding = {node for entry in self.plan.competing for node in entry.route[1:-1]}
        forwarding |= {router.name for router in self.plan.of_kind("router")}
        for node in self.plan.nodes:
            # What is handed on must not be put together: it would cross the next link as one.
            if node.name in forwarding:
                settings = {"net/ipv4/ip_forward": "1"}
                self.inside(node.name, partial(_write_sysctls, settings))
            else:
                self._batch_arrivals(node.name)
        for authority in self.plan.of_kind("authority"):
            self._show_relays_to(authority.name)
        if self.plan.tor.ipsec:
            self._protect_relays()
        if TCP_MEMORY.exists():
            TCP_MEMORY.write_text(TCP_MEMORY_PAGES)

    def _set_up_node(self, name: str) -> None:
        node = self.plan.node(name)
        netlink = self.netlink(name)
        loopback = _index(netlink, "lo")
        netlink.link("set", index=loopback, state="up")
        if node.address:
            netlink.addr("add", index=loopback, address=node.address, prefixlen=32)
        if node.management_address:
            interface: Intf = self._network.getNodeByName(name).intfList()[-1]
            index = _index(netlink, interface.name)
            netlink.addr(
                "add",
                index=index,
                address=node.management_address,
                prefixlen=MANAGEMENT_PREFIX_LENGTH,
            )
            netlink.link("set", index=index, state="up")
        settings = SYSCTLS | {"net/ipv4/tcp_congestion_control": self.plan.congestion_control[name]}
        if IPV6.exists():
            settings |= IPV6_OFF
        self.inside(name, lambda: _write_sysctls(settings))

    def _batch_arrivals(self, node: str) -> None:
        """Let a node's emulated interfaces hand arriving segments of a stream up together.

        On links whose bundles cross as one they arrive so.
        """
        commands = [
            f"ethtool -K {direction.receiving_interface} gro on tso off"
            f" && echo {ARRIVAL_HOLD_NS} > /sys/class/net/{direction.receiving_interface}/"
            "gro_flush_timeout"
            for direction in self.directions
            if direction.receiver == node and not direction.shape.bundles
        ]
        if commands:
            self.run(node, ["sh", "-ec", " && ".join(commands)])

    def _lead(self, route: Sequence[str]) -> None:
        """Lead packets for a route's last node from hop to hop along it.

        Neighbours know each other already.
        """
        first, last = self.plan.node(route[0]), self.plan.node(route[-1])
        for node, neighbour in pairwise(route[:-1]):
            self.netlink(node).route(
                "replace",
                dst=f"{last.address}/32",
                gateway=self.plan.node(neighbour).address,
                **({"prefsrc": first.address} if node == first.name else {}),
            )

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
            netlink = self.netlink(direction.sender)
            links.count_esp(netlink, _index(netlink, direction.interface))

    def _show_relays_to(self, authority: str) -> None:
        """Lead an authority to the relays' addresses, past the emulated links.

        It lists a relay as running only after it has reached the address that the relay
        published, and that is the one on the emulated links.
        """
        netlink = self.netlink(authority)
        for relay in self.plan.of_kind("relay"):
            netlink.route("add", dst=f"{relay.address}/32", gateway=relay.management_address)

    def _set_up_direction(self, direction: Direction) -> None:
        """Shape the sender's interface and show it the way to its neighbour.

        The neighbour's hardware address is entered by hand: no ARP crosses an emulated link.
        """
        netlink = self.netlink(direction.sender)
        index = _index(netlink, direction.interface)
        links.shape(netlink, index, direction.shape, direction.seed)
        netlink.link("set", index=index, state="up")
        sender, receiver = (self.plan.node(name) for name in (direction.sender, direction.receiver))
        neighbour, own = str(receiver.address), str(sender.address)
        hardware = _hardware_address(
            self.netlink(direction.receiver), direction.receiving_interface
        )
        self._show_neighbour(netlink, index, neighbour, hardware, own)
        if receiver.kind == "router":
            netlink.route("add", dst=ALL_SITES, gateway=neighbour, oif=index, prefsrc=own)

    def _show_neighbour(
        self, netlink: IPRoute, index: int, neighbour: str, hardware: str, own: str
    ) -> None:
        netlink.neigh("add", dst=neighbour, lladdr=hardware, ifindex=index, state="permanent")
        netlink.route("add", dst=f"{neighbour}/32", oif=index, prefsrc=own, scope="link")

    def _set_up_exchange(self) -> None:
        """Join the routers: each sends what isn't its site's to the exchange, shaped by the way."""
        exchange = self.netlink(EXCHANGE)
        exchange.addr("add", index=_index(exchange, "lo"), address=EXCHANGE_ADDRESS, prefixlen=32)
        exchange.link("set", index=_index(exchange, "lo"), state="up")
        self.inside(EXCHANGE, partial(_write_sysctls, SYSCTLS | {"net/ipv4/ip_forward": "1"}))
        for router in self.plan.of_kind("router"):
            own = str(router.address)
            block = block_of(own)
            netlink, here = self.netlink(router.name), f"site{block}"
            trunk, port = _index(netlink, TRUNK), _index(exchange, here)
            shapes = {
                self._block(way.receiver): (way.shape, way.seed)
                for way in self.ways
                if way.sender == router.name
            }
            links.trunk(netlink, trunk, shapes)
            netlink.link("set", index=trunk, state="up")
            exchange.link("set", index=port, state="up")
            hardware = _hardware_address(exchange, here)
            self._show_neighbour(netlink, trunk, EXCHANGE_ADDRESS, hardware, own)
            netlink.route("add", dst=ALL_SITES, gateway=EXCHANGE_ADDRESS, oif=trunk)
            hardware = _hardware_address(netlink, TRUNK)
            self._show_neighbour(exchange, port, own, hardware, EXCHANGE_ADDRESS)
            exchange.route("add", dst=prefix(block), gateway=own, oif=port)


def topology_of(plan: Plan) -> Topo:
    """The plan's nodes and links as Mininet takes them; each node's last one is for management.

    Not from the topology's file: the machine has another working directory, or none of the user's.
    """
    topology = Topo()
    for node in plan.nodes:
        topology.addHost(node.name)
    for link in plan.links:
        if not _is_way(link):
            topology.addLink(*link.ends, **_interface_at_router(plan, link))
    if any(_is_way(link) for link in plan.links):
        topology.addHost(EXCHANGE)
        for router in plan.of_kind("router"):
            port = f"site{block_of(str(router.address))}"
            topology.addLink(router.name, EXCHANGE, intfName1=TRUNK, intfName2=port)
    switch = topology.addSwitch(MANAGEMENT_SWITCH)
    for node in plan.nodes:
        if node.management_address:
            topology.addLink(node.name, switch)
    return topology


def _is_way(link: Link) -> bool:
    """Whether a link is a way between two sites, and so has no interfaces of its own."""
    return link.roles == (ROUTER, ROUTER)


def _interface_at_router(plan: Plan, link: Link) -> dict[str, str]:
    """A router has hundreds of them: the names that Mininet would give would be too long."""
    host, other = link.ends
    return {"intfName2": f"to-{host}"} if plan.node(other).kind == ROUTER else {}


@contextmanager
def running_lab(plan: Plan) -> Iterator[Lab]:
    """Build the plan's network, and take it down at the end whatever happens.

    Raises:
        pyroute2.NetlinkError: the kernel refuses a link's setting (it has no netem, say).
    """
    network: Any = Mininet(
        topo=topology_of(plan),
        host=_Node,
        switch=LinuxBridge,
        controller=None,
        waitConnected=False,
    )
    with ExitStack() as stack:
        stack.callback(network.stop)
        network.start()
        lab = Lab(plan, network, stack)
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


def _index(netlink: IPRoute, interface: str) -> int:
    (index,) = netlink.link_lookup(ifname=interface)
    return int(index)


def _hardware_address(netlink: IPRoute, interface: str) -> str:
    (link,) = netlink.get_links(_index(netlink, interface))
    return str(link.get_attr("IFLA_ADDRESS"))


def _write_sysctls(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        (Path("/proc/sys") / name).write_text(value)
