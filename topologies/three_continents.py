"""The network of Liu and Lin's MCTor: nodes and links, without rates and delays.

client1 ── guard1 ── middle1 ── exit1 ── server1
           Newark    London     Singapore

A scenario's [parameters] may add clients, which have the same path.
"""

from itertools import pairwise

from testbed.asked.topology import TorTopo
from testbed.basics.errors import InputError

MOST_CLIENTS = 16


class ThreeContinents(TorTopo):
    """One path of relays in three continents, with one or several clients."""

    shared_link = ("middle1", "exit1")

    def build(self, clients: int = 1) -> None:
        """Add the nodes and links of the figure, and the authority beside them.

        Raises:
            InputError: there are no clients, or too many.
        """
        if not 1 <= clients <= MOST_CLIENTS:
            raise InputError(f"parameters.clients = {clients} is not from 1 to {MOST_CLIENTS}")
        path = [self.add_node(role, 1) for role in ("guard", "middle", "exit", "server")]
        for number in range(1, clients + 1):
            self.addLink(self.add_node("client", number), path[0])
        for first, second in pairwise(path):
            self.addLink(first, second)

        self.add_node("authority", 1)
        self.add_management()
