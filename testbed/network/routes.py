"""The ways that packets take through a network, computed from its links.

A way has as few links as can be, and of those with as few it is the one of the least delay. So two
sites that have a link use it, also where it would be quicker to go through a third one: what was
measured between them is what a packet meets. tornettools has Shadow use direct edges too.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from testbed.network.model import Link, Network, Shape

_LINK_MS = 1e7
"""What each link costs beside its delay: more than all the delays of a way together."""


class Routes:
    """All ways of a network. A way there and the way back may differ, if the delays do."""

    def __init__(self, network: Network) -> None:
        # These take a tenth of a second to import, which those who only read networks don't need.
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        self._names = [node.name for node in network.nodes]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._shapes = dict(_directions(network.links))
        senders, receivers = np.array(
            [[self._numbers[end] for end in ends] for ends in self._shapes], dtype=np.int32
        ).T.reshape(2, -1)
        costs = [_LINK_MS + shape.delay_ms for shape in self._shapes.values()]
        size = len(self._names)
        graph = csr_array((costs, (senders, receivers)), shape=(size, size))
        self._costs, self._before = dijkstra(graph, return_predecessors=True)

    def path(self, sender: str, receiver: str) -> list[str]:
        """The nodes from the sender to the receiver, with both.

        Raises:
            ValueError: there is no way.
        """
        first, node = self._numbers[sender], self._numbers[receiver]
        if not np.isfinite(self._costs[first, node]):
            raise ValueError(f"there is no way from {sender} to {receiver}")
        backwards = [node]
        while node != first:
            node = int(self._before[first, node])
            backwards.append(node)
        return [self._names[number] for number in reversed(backwards)]

    def shapes(self, sender: str, receiver: str) -> list[Shape]:
        """What the links of the way do, in their order."""
        return [self._shapes[ends] for ends in pairwise(self.path(sender, receiver))]

    def delay_ms(self, sender: str, receiver: str) -> float:
        """The delay of the way, without what waits in queues."""
        return sum(shape.delay_ms for shape in self.shapes(sender, receiver))

    def round_trip_ms(self, first: str, second: str) -> float:
        """The delay of the way there and of the way back."""
        return self.delay_ms(first, second) + self.delay_ms(second, first)

    def rate_bit_per_s(self, sender: str, receiver: str) -> int | None:
        """The least rate on the way; None if no link has a limit."""
        limits = [shape.rate_bit_per_s for shape in self.shapes(sender, receiver)]
        return min((limit for limit in limits if limit is not None), default=None)

    def loss(self, sender: str, receiver: str) -> float:
        """The share of packets that are lost on the way."""
        kept = [1 - shape.loss for shape in self.shapes(sender, receiver)]
        return float(1 - np.prod(kept))

    def unreachable(self) -> tuple[str, str] | None:
        """Two nodes of which the first has no way to the second; None if all have one."""
        without = np.argwhere(~np.isfinite(self._costs))
        if not len(without):
            return None
        sender, receiver = without[0]
        return self._names[sender], self._names[receiver]


def _directions(links: tuple[Link, ...]) -> Iterator[tuple[tuple[str, str], Shape]]:
    for link in links:
        for sender, receiver, shape in link.directions():
            yield (sender, receiver), shape
