"""The routes of packets through a network, computed from its links.

A route has the fewest links and, among those with as few, the least delay. So two sites with a link
use it even if the route through a third would be faster: packets then meet the delay that was
measured between the two. tornettools has Shadow use direct edges, too.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from testbed.plan.network import Link, Network, Shape

_LINK_MS = 1e7
"""The cost of each link beside its delay; it is more than all the delays of a route."""


class Routes:
    """All routes of a network. Routes there and back differ if the delays do."""

    def __init__(self, network: Network) -> None:
        # Importing these takes a tenth of a second, which reading networks doesn't need.
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
        """The nodes from the sender to the receiver, both included.

        Raises:
            ValueError: there is no route.
        """
        first, node = self._numbers[sender], self._numbers[receiver]
        if not np.isfinite(self._costs[first, node]):
            raise ValueError(f"there is no route from {sender} to {receiver}")
        backwards = [node]
        while node != first:
            node = int(self._before[first, node])
            backwards.append(node)
        return [self._names[number] for number in reversed(backwards)]

    def shapes(self, sender: str, receiver: str) -> list[Shape]:
        """The shapes of the route's links, in order."""
        return [self._shapes[ends] for ends in pairwise(self.path(sender, receiver))]

    def delay_ms(self, sender: str, receiver: str) -> float:
        """The delay of the route, without waiting in queues."""
        return sum(shape.delay_ms for shape in self.shapes(sender, receiver))

    def round_trip_ms(self, first: str, second: str) -> float:
        """The delay of the routes there and back."""
        return self.delay_ms(first, second) + self.delay_ms(second, first)

    def rate_bit_per_s(self, sender: str, receiver: str) -> int | None:
        """The least rate on the route; None if no link has a limit."""
        limits = [shape.rate_bit_per_s for shape in self.shapes(sender, receiver)]
        return min((limit for limit in limits if limit is not None), default=None)

    def loss(self, sender: str, receiver: str) -> float:
        """The share of packets that are lost on the route."""
        kept = [1 - shape.loss for shape in self.shapes(sender, receiver)]
        return float(1 - np.prod(kept))

    def unreachable(self) -> tuple[str, str] | None:
        """Two nodes without a route from the first to the second; None if all have one."""
        without = np.argwhere(~np.isfinite(self._costs))
        if not len(without):
            return None
        sender, receiver = without[0]
        return self._names[sender], self._names[receiver]


def _directions(links: tuple[Link, ...]) -> Iterator[tuple[tuple[str, str], Shape]]:
    for link in links:
        for sender, receiver, shape in link.directions():
            yield (sender, receiver), shape
