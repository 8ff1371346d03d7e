"""Which address a node has: a block of 2^16 for each site, and one for the management network.

10.0.0.0/16 is of networks without sites, 10.1.0.0/16 the management network's, 10.2.0.0/16 the
first site's. In a block the third byte tells the group (a role, or a kind of node), as far as a
group has no more than 254 hosts.
"""

import ipaddress

GROUPS = 6
MOST_HOSTS = 10_000
"""Of one group in one block."""

MANAGEMENT_BLOCK = 1
FIRST_SITE_BLOCK = 2
MOST_SITES = 256 - FIRST_SITE_BLOCK

_ALL = ipaddress.IPv4Address("10.0.0.0")
_BLOCK = 2**16
_HOSTS = 254
"""Of a group in 256 addresses, so that none ends in 0 or 255."""


def data_address(block: int, group: int, number: int) -> str:
    """A node's address on the emulated links.

    Args:
        block: 0 in networks without sites, otherwise the site's, from `FIRST_SITE_BLOCK` on.
        group: from 0.
        number: among those of its group, from 1 to `MOST_HOSTS`.
    """
    further, place = divmod(number - 1, _HOSTS)
    return str(_ALL + block * _BLOCK + 256 * (1 + group + GROUPS * further) + 1 + place)


def management_address(group: int, number: int) -> str:
    """A node's address on the management network."""
    return data_address(MANAGEMENT_BLOCK, group, number)


def router_address(block: int) -> str:
    """The address of a site's router."""
    return str(_ALL + block * _BLOCK + 1)


def block_of(address: str) -> int:
    """The block in which an address is: its second byte."""
    return (int(ipaddress.IPv4Address(address)) - int(_ALL)) // _BLOCK


def prefix(block: int) -> str:
    """A block in the form of a route's destination."""
    return f"{_ALL + block * _BLOCK}/16"
