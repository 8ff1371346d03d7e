"""Requests to the kernel's network configuration (rtnetlink(7)), many sent together.

pyroute2's own calls run an event loop each, which takes several times as long as the request.
`lab.builder` and `lab.links` decide what to ask for, and in which order.
"""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from socket import AF_INET, htons, socket
from typing import Any

from pyroute2.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    nlmsg,
)
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import (
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWQDISC,
    RTM_NEWROUTE,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
    rt_proto,
    rt_scope,
    rt_type,
)
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT, ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import cls_u32, sched_htb, tcmsg

CHANGE = NLM_F_REQUEST | NLM_F_ACK
CREATE = CHANGE | NLM_F_CREATE | NLM_F_EXCL

_MOST_TOGETHER = 50
"""As many as fit into a socket's buffer, with their answers, which repeat refused requests."""
_ANSWERS_BYTES = 2**18
_HEADER = struct.Struct("=IHHII")
"""An answer's length, type, flags, sequence number and port (netlink(7)); the error follows."""

_MAIN_TABLE = 254

Attributes = Sequence[tuple[str, Any]]
Options = Mapping[str, Any]


def send(netlink: socket, requests: Sequence[nlmsg]) -> None:
    """Send requests in order over a netlink socket that nothing else uses.

    Raises:
        pyroute2.NetlinkError: the kernel refuses one; later ones may have been carried out.
    """
    for first in range(0, len(requests), _MOST_TOGETHER):
        together = requests[first : first + _MOST_TOGETHER]
        for number, request in enumerate(together):
            request["header"]["sequence_number"] = number
            request.encode()
        netlink.send(b"".join(bytes(request.data) for request in together))
        answered = 0
        while answered < len(together):
            for error in _errors(netlink.recv(_ANSWERS_BYTES)):
                if error:
                    raise NetlinkError(-error, os.strerror(-error))
                answered += 1


def _errors(answers: bytes) -> Iterator[int]:
    """The kernel's answer to each request: 0, or a negative error number."""
    while answers:
        length, kind, *_ = _HEADER.unpack_from(answers)
        if kind == NLMSG_ERROR:
            yield struct.unpack_from("=i", answers, _HEADER.size)[0]
        answers = answers[-(-length // 4) * 4 :]


def set_link(index: int, *, is_up: bool = False, **settings: int) -> nlmsg:
    """Switch an interface on, or set numeric attributes such as `master`."""
    message = _filled(ifinfmsg(), RTM_NEWLINK, CHANGE, _attributes("IFLA", settings))
    message["index"] = index
    if is_up:
        message["flags"] = message["change"] = IFF_UP
    return message


def new_bridge(index: int, name: str) -> nlmsg:
    """Make a bridge."""
    kind = {"attrs": [("IFLA_INFO_KIND", "bridge")]}
    attributes = [("IFLA_IFNAME", name), ("IFLA_LINKINFO", kind)]
    message = _filled(ifinfmsg(), RTM_NEWLINK, CREATE, attributes)
    message["index"] = index
    return message


def new_address(index: int, address: str, prefix_length: int) -> nlmsg:
    """Give an interface an address."""
    attributes = [("IFA_LOCAL", address), ("IFA_ADDRESS", address)]
    message = _filled(ifaddrmsg(), RTM_NEWADDR, CREATE, attributes)
    message["family"], message["index"], message["prefixlen"] = AF_INET, index, prefix_length
    return message


def new_route(destination: str, *, scope: str = "universe", **ways: int | str) -> nlmsg:
    """Add a route.

    Args:
        destination: an address and its prefix length, such as "10.2.0.0/16".
        scope: name of the route's scope, as in `ip route`.
        ways: netlink attributes of the route by name: gateway, oif, prefsrc.
    """
    address, _, length = destination.partition("/")
    attributes = [("RTA_DST", address), *_attributes("RTA", ways)]
    message = _filled(rtmsg(), RTM_NEWROUTE, CREATE, attributes)
    message["family"], message["dst_len"], message["table"] = AF_INET, int(length), _MAIN_TABLE
    message["proto"], message["type"] = rt_proto["static"], rt_type["unicast"]
    message["scope"] = rt_scope[scope]
    return message


def replace_route(destination: str, **ways: str) -> nlmsg:
    """Add a route as `new_route` does, and remove any other for the same destination."""
    message = new_route(destination, **ways)
    message["header"]["flags"] = CHANGE | NLM_F_CREATE | NLM_F_REPLACE
    return message


def new_neighbour(index: int, address: str, hardware_address: str) -> nlmsg:
    """Enter a neighbour's hardware address permanently."""
    attributes = [("NDA_DST", address), ("NDA_LLADDR", hardware_address)]
    message = _filled(ndmsg(), RTM_NEWNEIGH, CREATE, attributes)
    message["family"], message["ifindex"], message["state"] = AF_INET, index, NUD_PERMANENT
    return message


def new_qdisc(
    index: int, handle: int, parent: int, kind: str, options: Options, message: nlmsg | None = None
) -> nlmsg:
    """Add a queueing discipline.

    Args:
        index, handle, parent, kind: as in tc(8).
        options: in the form that the message's class takes.
        message: of another class, if pyroute2's doesn't know the options.
    """
    return _tc(message or tcmsg(), RTM_NEWQDISC, index, handle, parent, kind, options)


def new_htb_class(index: int, handle: int, parent: int, **parameters: int) -> nlmsg:
    """Add an HTB class; its parameters are pyroute2's: `rate` (in bytes per second) and so on."""
    options = sched_htb.get_class_parameters(parameters)
    return _tc(tcmsg(), RTM_NEWTCLASS, index, handle, parent, "htb", options)


def new_filter(index: int, parent: int, protocol: int, target: int, key: str) -> nlmsg:
    """Send packets that match a u32 key (tc-u32(8)), such as "0x32/0xff+9", to a class."""
    options = cls_u32.get_parameters({"target": target, "keys": [key]})
    message = _tc(tcmsg(), RTM_NEWTFILTER, index, 0, parent, "u32", options)
    priority = 1
    message["info"] = htons(protocol) | priority << 16
    return message


def _tc(
    message: nlmsg, command: int, index: int, handle: int, parent: int, kind: str, options: Options
) -> nlmsg:
    _filled(message, command, CREATE, [("TCA_KIND", kind), ("TCA_OPTIONS", options)])
    message["index"], message["handle"], message["parent"] = index, handle, parent
    return message


def _filled(message: nlmsg, command: int, flags: int, attributes: Attributes) -> nlmsg:
    message["header"]["type"], message["header"]["flags"] = command, flags
    message["attrs"] = list(attributes)
    return message


def _attributes(prefix: str, values: dict[str, Any]) -> Attributes:
    return [(f"{prefix}_{name.upper()}", value) for name, value in values.items()]
