"""Network namespaces, and the pairs of interfaces that join them. To the kernel a node is these.

A namespace is held by a descriptor of this process, so it ends with the process, however that
ends. `lab.builder` adds addresses and routes, `lab.nodes` starts programs.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from socket import AF_INET, AF_NETLINK, SOCK_DGRAM, if_nametoindex, socket
from typing import Any, TypeVar

from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl import RTM_NEWLINK, RTM_SETLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from testbed.inside.lab.requests import CHANGE, CREATE, send

Made = TypeVar("Made")
Netlink = TypeVar("Netlink")

LOOPBACK = 1
"""Index of every namespace's first interface."""

_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_SIOCETHTOOL, _ETHTOOL_STSO, _ETHTOOL_SGRO = 0x8946, 0x1F, 0x2C
"""Numbers from Linux's linux/sched.h, linux/mount.h, linux/sockios.h and linux/ethtool.h."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Interface:
    """One end of a pair of virtual Ethernet interfaces.

    Attributes:
        index: its number in its namespace.
        hardware_address: such as "02:00:00:00:00:0a".
    """

    node: str
    name: str
    index: int
    hardware_address: str


class Namespaces:
    """Network namespaces, by node."""

    def __init__(self, names: Collection[str]) -> None:
        """Make a namespace for each name, with nothing but a loopback."""
        self._descriptors: dict[str, int] = {}
        self._netlink: dict[tuple[str, Callable[[], Any]], Any] = {}
        self._visitor = ThreadPoolExecutor(max_workers=1)
        """The only thread that enters the namespaces and uses `_netlink`.

        pyroute2 opens a descriptor for each thread that uses one of its sockets. In a second thread
        it would use the number of the first thread's descriptor, which may belong to another file.
        """

        def make() -> None:
            for name in names:
                _call(_libc.unshare, _CLONE_NEWNET)
                here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self._descriptors[name] = here

        self._visitor.submit(make).result()

    def close(self) -> None:
        """Release the namespaces; each ends with the last program in it."""
        self._visitor.submit(self._close_netlink).result()
        self._visitor.shutdown()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

    def path(self, name: str) -> str:
        """The path of a namespace, valid while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptors[name]}"

    def _close_netlink(self) -> None:
        for netlink in self._netlink.values():
            netlink.close()

    def inside(self, name: str, make: Callable[[], Made]) -> Made:
        """Call `make` in a namespace; its sockets and programs stay there."""
        return self.inside_soon(name, make).result()

    def inside_soon(self, name: str, make: Callable[[], Made]) -> Future[Made]:
        """Do what `inside` does without waiting for it."""

        def entered() -> Made:
            self._enter(name)
            return make()

        return self._visitor.submit(entered)

    def inside_each(self, names: Collection[str], make: Callable[[str], None]) -> None:
        """Call `make` with each name, in its namespace and with its interfaces in /sys."""

        def entered() -> None:
            with _own_mounts():
                for name in names:
                    self._enter(name)
                    _call(_libc.mount, b"sysfs", b"/sys", b"sysfs", 0, None)
                    try:
                        make(name)
                    finally:
                        _call(_libc.umount, b"/sys")

        with ThreadPoolExecutor(max_workers=1) as passing:  # its mounts end with it
            passing.submit(entered).result()

    def ask(self, name: str, requests: Sequence[nlmsg]) -> None:
        """Send requests to a namespace's network configuration; see `lab.requests.send`."""

        def asked() -> None:
            with _netlink_socket() as netlink:
                send(netlink, requests)

        self.inside(name, asked)

    def answer(
        self, name: str, kind: Callable[[], Netlink], question: Callable[[Netlink], Made]
    ) -> Future[Made]:
        """Call `question` with a netlink socket in a namespace. The socket is kept for later calls.

        Args:
            name: name of the namespace.
            kind: pyroute2's class of the socket, such as `IPRoute`.
            question: asks and reads the whole answer. It must not keep the socket, which only the
                thread that calls it may use.
        """

        def asked() -> Made:
            if (name, kind) not in self._netlink:
                self._netlink[name, kind] = kind()
            return question(self._netlink[name, kind])

        return self.inside_soon(name, asked)

    def join(self, pairs: Sequence[tuple[Interface, Interface]]) -> None:
        """Make pairs of virtual Ethernet interfaces, each end in its namespace.

        The requests are made in a temporary namespace that has nothing but a loopback: before Linux
        6.14 a new interface's index must be free in the namespace of the request.
        """

        def joined() -> None:
            _call(_libc.unshare, _CLONE_NEWNET)
            with _netlink_socket() as netlink:
                send(netlink, [self._pair(*pair) for pair in pairs])

        self._visitor.submit(joined).result()

    def take(self, devices: Mapping[str, Interface]) -> None:
        """Move interfaces from the machine's own namespace into nodes', by their names there."""

        def taken() -> None:
            with _netlink_socket() as netlink:
                send(netlink, [self._moved(name, end) for name, end in devices.items()])

        with ThreadPoolExecutor(max_workers=1) as outside:  # in the namespace of this thread
            outside.submit(taken).result()

    def _moved(self, name: str, end: Interface) -> ifinfmsg:
        """Request to move an interface (rtnetlink(7))."""
        wanted = self._end(end)
        message = ifinfmsg()
        message["index"] = if_nametoindex(name)
        message["attrs"] = [*wanted["attrs"], ("IFLA_NEW_IFINDEX", wanted["index"])]
        message["header"]["type"] = RTM_SETLINK
        message["header"]["flags"] = CHANGE
        return message

    def _enter(self, name: str) -> None:
        _call(_libc.setns, self._descriptors[name], _CLONE_NEWNET)

    def _pair(self, one: Interface, other: Interface) -> ifinfmsg:
        """Request for a pair (rtnetlink(7), veth(4))."""
        kind = [
            ("IFLA_INFO_KIND", "veth"),
            ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", self._end(other))]}),
        ]
        end = self._end(one)
        message = ifinfmsg()
        message["index"] = end["index"]
        message["attrs"] = [*end["attrs"], ("IFLA_LINKINFO", {"attrs": kind})]
        message["header"]["type"] = RTM_NEWLINK
        message["header"]["flags"] = CREATE
        return message

    def _end(self, end: Interface) -> dict[str, Any]:
        return {
            "index": end.index,
            "attrs": [
                ("IFLA_IFNAME", end.name),
                ("IFLA_ADDRESS", end.hardware_address),
                ("IFLA_NET_NS_FD", self._descriptors[end.node]),
            ],
        }


def hardware_address(number: int) -> str:
    """The hardware address of a lab's interface, by number: locally administered."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0, *number.to_bytes(4, "big")))


def receive_together(interface: str, hold_ns: int) -> None:
    """Let an interface deliver consecutive segments of a stream together.

    Call it in the interface's namespace, as `Namespaces.inside_each` does. veth joins only segments
    from an interface that sends no bundles (`send_segments_only`).

    Args:
        interface: name of the interface.
        hold_ns: how long a segment may be held back for the next one.
    """
    _tell_interface(interface, _ETHTOOL_SGRO, 1)
    Path("/sys/class/net", interface, "gro_flush_timeout").write_text(str(hold_ns))


def send_segments_only(interface: str) -> None:
    """Switch off an interface's segmentation offload; call it in the interface's namespace."""
    _tell_interface(interface, _ETHTOOL_STSO, 0)


def _tell_interface(interface: str, command: int, value: int) -> None:
    """Send an ethtool command to an interface in this thread's namespace (linux/ethtool.h)."""
    setting = ctypes.create_string_buffer(struct.pack("II", command, value))
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(setting))
    with socket(AF_INET, SOCK_DGRAM) as any_socket:
        ioctl(any_socket, _SIOCETHTOOL, request)


def _netlink_socket() -> socket:
    return socket(AF_NETLINK, SOCK_DGRAM, 0)


@contextmanager
def _own_mounts() -> Iterator[None]:
    """Give this thread its own mounts; the thread must end afterwards."""
    _call(_libc.unshare, _CLONE_NEWNS)
    _call(_libc.mount, b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    yield


def _call(function: Any, *arguments: object) -> None:  # noqa: ANN401
    """Call a function of the C library, and raise OSError if it fails."""
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__}: {os.strerror(number)}")
