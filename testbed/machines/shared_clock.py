"""The memory by which several virtual machines share one clock, and the links between them.

Its layout is that of `ttwin.h` in kernel patch 0012, which also says how the kernels use it. Who
starts the machines is `machines.together`.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

MOST_KERNELS = 64
MOST_LINKS = 4096
NEVER_NS = 2**63 - 1
"""A delay that is never over."""

_LAYOUT = 0x77740001
_PAGE = 4096
_ALIGNED = 128
_REMAINING_AT = _ALIGNED
_LOOKAHEADS_AT = 2 * _ALIGNED
_LINKS_AT = _LOOKAHEADS_AT + 8 * MOST_KERNELS
_LINK = struct.Struct("=IIQQ")
_KERNELS_AT = _LINKS_AT + _LINK.size * MOST_LINKS
_END = _KERNELS_AT + _ALIGNED * (MOST_KERNELS + MOST_KERNELS**2)
_RINGS_AT = -(-_END // _PAGE) * _PAGE

_LEAST_RING_BYTES, _MOST_RING_BYTES = 8 * 2**20, 64 * 2**20
_ALL_RINGS_BYTES = 2**30
"""How much all rings may take together, if each may have the least size. A ring takes memory only
where packets were written."""

_PATH_BYTES = 32
"""The length to which the path on the kernel's command line is padded."""


@dataclass(frozen=True)
class CrossLink:
    """A link between two kernels: interface xlN in both, where N is its place among the links.

    Attributes:
        ends: both kernels, by number.
        delays_ns: from the first to the second, and back.
    """

    ends: tuple[int, int]
    delays_ns: tuple[int, int]


@dataclass(frozen=True)
class ClockShare:
    """A kernel's share of a clock, as a machine needs it.

    Attributes:
        kernel: the kernel's number.
        descriptor: that of the shared memory, in this process.
    """

    kernel: int
    descriptor: int

    @property
    def option(self) -> str:
        """The word on the kernel's command line; it has the same length in every run."""
        path = f"/proc/self/fd/{self.descriptor}"
        return f"ttwin={self.kernel}:{path.rjust(_PATH_BYTES, '/')}"


@dataclass(frozen=True)
class Meetings:
    """How often the kernels have met.

    Attributes:
        meetings: of all kernels.
        windows: for each kernel, the windows in which it had something to do.
        slept: for each kernel, how often it waited for another one.
    """

    meetings: int
    windows: tuple[int, ...]
    slept: tuple[int, ...]


def lookaheads_ns(kernels: int, links: Sequence[CrossLink]) -> list[int]:
    """How long it takes at least until each kernel can hear of another one.

    Returns:
        For each kernel the least delay of all links to it; `NEVER_NS` where there is none.
    """
    least = [NEVER_NS] * kernels
    for link in links:
        for receiver, delay_ns in zip(link.ends[::-1], link.delays_ns, strict=True):
            least[receiver] = min(least[receiver], delay_ns)
    return least


def ring_bytes(kernels: int) -> int:
    """The size of the ring from one kernel to another: a power of two, less for more kernels."""
    pairs = max(1, kernels * (kernels - 1))
    fitting = 1 << ((_ALL_RINGS_BYTES // pairs).bit_length() - 1)
    return max(_LEAST_RING_BYTES, min(_MOST_RING_BYTES, fitting))


def header(kernels: int, links: Sequence[CrossLink], bytes_each: int) -> bytes:
    """Return the memory's first bytes: all that does not begin with zeros.

    Args:
        kernels: how many there are.
        links: those between them.
        bytes_each: the size of a ring.

    Raises:
        ValueError: there are too many kernels or links, or a link that can't be.
    """
    _check(kernels, links)
    said = bytearray(_KERNELS_AT)
    struct.pack_into("=IIIxxxxQ", said, 0, _LAYOUT, kernels, len(links), bytes_each)
    struct.pack_into("=IxxxxQ", said, _REMAINING_AT, kernels, (1 << kernels) - 1)
    struct.pack_into(f"={kernels}Q", said, _LOOKAHEADS_AT, *lookaheads_ns(kernels, links))
    for number, link in enumerate(links):
        _LINK.pack_into(said, _LINKS_AT + _LINK.size * number, *link.ends, *link.delays_ns)
    return bytes(said)


def _check(kernels: int, links: Sequence[CrossLink]) -> None:
    if not 1 <= kernels <= MOST_KERNELS:
        raise ValueError(f"{kernels} kernels: there can be 1 to {MOST_KERNELS}")
    if len(links) > MOST_LINKS:
        raise ValueError(f"{len(links)} links between kernels: there can be {MOST_LINKS}")
    for link in links:
        if link.ends[0] == link.ends[1] or not set(link.ends) <= set(range(kernels)):
            raise ValueError(f"{link}: a link joins two of the {kernels} kernels")
        if min(link.delays_ns) < 1:
            raise ValueError(f"{link}: a packet to another kernel takes at least 1 ns")


class SharedClock:
    """The memory of several kernels; `shared_clock` creates it."""

    def __init__(self, kernels: int, descriptor: int) -> None:
        self.kernels = kernels
        self._descriptor = descriptor

    def of(self, kernel: int) -> ClockShare:
        """The share of a kernel, by number."""
        return ClockShare(kernel, self._descriptor)

    def meetings(self) -> Meetings:
        """Read how often the kernels have met until now."""
        (met,) = struct.unpack("=Q", os.pread(self._descriptor, 8, _REMAINING_AT + 16))
        counts = [
            struct.unpack_from(
                "=QQ", os.pread(self._descriptor, _ALIGNED, _KERNELS_AT + _ALIGNED * number), 48
            )
            for number in range(self.kernels)
        ]
        return Meetings(met, tuple(one for one, _ in counts), tuple(two for _, two in counts))


@contextmanager
def shared_clock(
    kernels: int, links: Sequence[CrossLink], bytes_each: int | None = None
) -> Iterator[SharedClock]:
    """A clock for several kernels, with the links between them.

    The memory has no name, and ends with the last process that uses it.

    Args:
        kernels: how many share it.
        links: those between them. The kernels meet the less often the longer the delays are.
        bytes_each: how many bytes of packets may be under way from one kernel to another, a power
            of two; by default `ring_bytes`.

    Raises:
        ValueError: there are too many kernels or links, or a link that can't be.
    """
    size = bytes_each or ring_bytes(kernels)
    said = header(kernels, links, size)
    descriptor = os.memfd_create("clock")
    try:
        os.ftruncate(descriptor, _RINGS_AT + kernels**2 * size)
        os.pwrite(descriptor, said, 0)
        yield SharedClock(kernels, descriptor)
    finally:
        os.close(descriptor)
