"""The addresses of nodes: a block of 2^16 for each site, and one for the management network.

10.0.0.0/16 is for networks without sites, 10.1.0.0/16 for the management network, 10.2.0.0/16 for
the first site. Within a block the third byte is the group (a role, or a kind of node), unless a
group has more than 254 hosts.
"""

import ipaddress

GROUPS = 6
MOST_HOSTS = 10_000
"""The most hosts of one group in one block."""

MANAGEMENT_BLOCK = 1
FIRST_SITE_BLOCK = 2
MOST_SITES = 256 - FIRST_SITE_BLOCK

_ALL = ipaddress.IPv4Address("10.0.0.0")
_BLOCK = 2**16
_HOSTS = 254
"""The hosts of a group in 256 addresses: none ends in 0 or 255."""


def data_address(block: int, group: int, number: int) -> str:
    """A node's address on the emulated links.

    Args:
        block: 0 in networks without sites, otherwise the site's, from `FIRST_SITE_BLOCK` on.
        group: from 0.
        number: the node's number in its group, from 1 to `MOST_HOSTS`.
    """
    further, place = divmod(number - 1, _HOSTS)
    return str(_ALL + block * _BLOCK + 256 * (1 + group + GROUPS * further) + 1 + place)


def management_address(group: int, number: int) -> str:
    """A node's address on the management network."""
    return data_address(MANAGEMENT_BLOCK, group, number)


def router_address(block: int) -> str:
    """The address of a site's router."""
    return str(_ALL + block * _BLOCK + 1)


def exchange_address(part: int) -> str:
    """The address at which a part of a plan joins its sites' routers."""
    return str(_ALL + 1 + part)


def meeting_address(part: int) -> str:
    """The address, on the management network, at which a part of a plan meets the others."""
    return str(_ALL + MANAGEMENT_BLOCK * _BLOCK + 1 + part)


def block_of(address: str) -> int:
    """The block of an address: its second byte."""
    return (int(ipaddress.IPv4Address(address)) - int(_ALL)) // _BLOCK


def prefix(block: int) -> str:
    """A block as a route's destination."""
    return f"{_ALL + block * _BLOCK}/16"
