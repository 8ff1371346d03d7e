"""Kernel settings of a lab: what a node's namespace gets, and what all nodes share."""

import resource
from collections.abc import Mapping
from pathlib import Path

LIMITS = {
    "net/core/wmem_max": "16777216",
    "net/core/rmem_max": "16777216",
    "net/core/netdev_max_backlog": "5000",
}
"""Mininet's values, written where the kernel is the virtual machine's own."""
MOST_OPEN_FILES = 65_536
"""Each node is an open file, as are its control connection and sockets. Mininet's value, a quarter
of this, is too low for 3,900 nodes."""

NODE_SETTINGS = {
    # Mininet's values (Mininet.init), spelt out so that the host's defaults don't matter.
    "net/ipv4/tcp_rmem": "10240 87380 16777216",
    "net/ipv4/tcp_wmem": "10240 87380 16777216",
    # A node neither forwards packets nor accepts redirects.
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/accept_redirects": "0",
}
"""Set in every node's network namespace."""
FORWARDING = {"net/ipv4/ip_forward": "1"}

TICK_PHASE = Path("/proc/sys/net/core/tick_phase_ns")
"""When the ticks are that a node's programs see, within a tick's length (kernel patch 0005).

Hosts don't tick together. With one tick for all, what a delay did depended on its rest by 4 ms.
"""
TICK_NS = 4_000_000
"""A tick's length: 250 a second."""

IPV6 = Path("/proc/sys/net/ipv6")
IPV6_OFF = {"net/ipv6/conf/all/disable_ipv6": "1"}
"""Keeps IPv6's own messages off the links. The virtual machine's kernel has no IPv6."""

NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3")
MOST_NEIGHBOURS = "65536"
"""Limit for all nodes together: on the management network each node knows some of the others."""

TCP_MEMORY = Path("/proc/sys/net/ipv4/tcp_mem")
"""One value for the whole kernel: visible in the virtual machine, but not in a namespace."""
TCP_MEMORY_PAGES = "196608 262144 393216"
"""High enough never to be the limit, however small the machine's memory."""


def write_settings(settings: Mapping[str, str]) -> None:
    """Write settings by their paths below /proc/sys, in this thread's network namespace."""
    for name, value in settings.items():
        (Path("/proc/sys") / name).write_text(value)


def raise_kernel_limits() -> None:
    """Raise the limits that all nodes share, where the kernel allows it."""
    if NEIGHBOURS.exists():
        NEIGHBOURS.write_text(MOST_NEIGHBOURS)
        write_settings(LIMITS)


def raise_tcp_memory() -> None:
    """Give TCP more memory than it uses, where the kernel allows it."""
    if TCP_MEMORY.exists():
        TCP_MEMORY.write_text(TCP_MEMORY_PAGES)


def permit_open_files() -> None:
    """Let this process open as many files as a lab needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        hard = max(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MOST_OPEN_FILES), hard))
