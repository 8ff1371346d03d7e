"""The paper's network of eight clients: nodes and links, without rates and delays.

client1, client2 ── guard1 ─┐
client3, client4 ── guard2 ─┤
                            ├─ middle1 ── exit1 ── server1
client5, client6 ── guard3 ─┤
client7, client8 ── guard4 ─┘

A scenario's [parameters] may set another number of clients, also with two for each guard.
"""

from testbed.asked.topology import TorTopo
from testbed.basics.errors import InputError

MOST_CLIENTS = 100


class EightClients(TorTopo):
    """Eight clients, two at each of four guards; one middle and one exit carry all circuits."""

    shared_link = ("middle1", "exit1")

    def build(self, clients: int = 8) -> None:
        """Add the nodes and links of the figure, and the authority beside them.

        Raises:
            InputError: there are no clients, or too many.
        """
        if not 1 <= clients <= MOST_CLIENTS:
            raise InputError(f"parameters.clients = {clients} is not from 1 to {MOST_CLIENTS}")
        middle = self.add_node("middle", 1)
        exit_relay = self.add_node("exit", 1)
        server = self.add_node("server", 1)

        for number in range(1, (clients + 1) // 2 + 1):
            guard = self.add_node("guard", number)
            for client_number in range(2 * number - 1, min(2 * number, clients) + 1):
                self.addLink(self.add_node("client", client_number), guard)
            self.addLink(guard, middle)
        self.addLink(middle, exit_relay)
        self.addLink(exit_relay, server)

        self.add_node("authority", 1)
        self.add_management()
