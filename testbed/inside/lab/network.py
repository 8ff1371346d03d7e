"""The running lab: its nodes, the directions of its links, and what they have counted.

Nothing of Tor is here. `lab.builder` sets the lab up.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import groupby

from pyroute2 import IPRoute

from testbed.inside.lab import links
from testbed.inside.lab.builder import Builder
from testbed.inside.lab.kernel_settings import permit_open_files
from testbed.inside.lab.meeting import Meeting
from testbed.inside.lab.nodes import Nodes
from testbed.inside.lab.requests import set_link
from testbed.inside.lab.wiring import TRUNK, Direction, Wiring
from testbed.plan.model import Plan

__all__ = ["Direction", "Lab", "running_lab"]


class Lab(Nodes):
    """A running network. `running_lab` makes it and ends it.

    Attributes:
        directions: those of links that have their own interfaces, of the whole plan.
        meeting: with the other parts of the plan.
        ways: directions between sites' routers, from trunk to trunk.
    """

    def __init__(self, wiring: Wiring) -> None:
        super().__init__([*(node.name for node in wiring.plan.here()), *wiring.between_nodes])
        self.plan = wiring.plan
        self.meeting = Meeting(wiring.plan.kernels, wiring.plan.part)
        self.directions = wiring.directions
        self.ways = wiring.ways
        self._wiring = wiring

    def direction(self, sender: str, receiver: str) -> Direction:
        """The direction between two neighbours; KeyError if they are not neighbours."""
        for direction in self.directions:
            if (direction.sender, direction.receiver) == (sender, receiver):
                return direction
        raise KeyError((sender, receiver))

    @property
    def between_relays(self) -> tuple[Direction, ...]:
        """The directions of links between two relays."""
        return self._wiring.between_relays

    def path(self, sender: str, receiver: str) -> list[Direction]:
        """The directions that a packet takes between two hosts, directly or through their sites."""
        with suppress(KeyError):
            return [self.direction(sender, receiver)]
        first = next(one for one in self.directions if one.sender == sender)
        last = next(one for one in self.directions if one.receiver == receiver)
        between = [
            way for way in self.ways if (way.sender, way.receiver) == (first.receiver, last.sender)
        ]
        return [first, *between, last]

    def counters(self, direction: Direction) -> links.LinkCounters:
        """Read what a direction's netem has counted since the lab was built."""
        if direction.interface == TRUNK:
            return self._trunk_counters(direction.sender)[self._wiring.block(direction.receiver)]
        (counted,) = self._counters(direction.sender, [direction])
        return counted

    def sent(self) -> Iterator[tuple[Sequence[Direction], Sequence[links.LinkCounters]]]:
        """Read the counters of all links' directions, one sending node at a time."""
        by_sender: dict[str, list[Direction]] = defaultdict(list)
        for direction in self.directions:
            if self.plan.is_here(direction.sender):
                by_sender[direction.sender].append(direction)
        for sender, directions in by_sender.items():
            yield directions, self._counters(sender, directions)

    def way_counters(self) -> Iterator[tuple[Direction, links.LinkCounters]]:
        """Read the counters of each way between sites."""
        here = (way for way in self.ways if self.plan.is_here(way.sender))
        for router, ways in groupby(here, key=lambda way: way.sender):
            counted = self._trunk_counters(router)
            for way in ways:
                yield way, counted[self._wiring.block(way.receiver)]

    def arrivals(self, direction: Direction) -> tuple[int, int]:
        """Packets and bytes that have arrived at a direction's end since the lab was built.

        The interface counts packets before generic receive offload joins them.
        """
        node = direction.receiver
        index = self._wiring.interface(node, direction.receiving_interface).index
        (link,) = self.answer(node, IPRoute, lambda netlink: tuple(netlink.get_links(index)))
        statistics = link.get_attr("IFLA_STATS64")
        return int(statistics["rx_packets"]), int(statistics["rx_bytes"])

    def comes_from_elsewhere(self, direction: Direction) -> bool:
        """Whether a direction leads from another part of the plan to this one."""
        return self.plan.is_here(direction.receiver) and self._wiring.crosses(direction)

    def between_ns(self, direction: Direction) -> int:
        """How long after its queue a packet arrives in another part; 0 within this one."""
        return self._wiring.between_ns(direction)

    def esp_packets(self, direction: Direction) -> tuple[int, int]:
        """Packets given to a direction between relays with IPsec since the lab was built.

        Returns:
            All packets, and how many of them are ESP.
        """
        index = self._wiring.index(direction)
        return self.answer(direction.sender, IPRoute, partial(links.esp_packets, index=index))

    def set_bundle(self, direction: Direction, segments: int) -> None:
        """Limit a direction's bundles to a number of segments, whatever its shape says."""
        index = self._wiring.index(direction)
        self.configure(direction.sender, [set_link(index, gso_max_segs=segments)])

    def _counters(self, sender: str, directions: Sequence[Direction]) -> list[links.LinkCounters]:
        indexes = [self._wiring.index(one) for one in directions]
        counted = self.answer(sender, IPRoute, partial(links.counters, indexes=indexes))
        return [counted[index] for index in indexes]

    def _trunk_counters(self, router: str) -> Mapping[int, links.LinkCounters]:
        index = self._wiring.interface(router, TRUNK).index
        return self.answer(router, IPRoute, partial(links.trunk_counters, index=index))


@contextmanager
def running_lab(plan: Plan) -> Iterator[Lab]:
    """Build the plan's network, and take it down at the end whatever happens.

    Raises:
        pyroute2.NetlinkError: the kernel refuses a link's setting (it lacks netem, say).
    """
    permit_open_files()
    wiring = Wiring(plan)
    with closing(Lab(wiring)) as lab:
        Builder(wiring, lab).build()
        with lab.meeting.held(lab):
            yield lab
