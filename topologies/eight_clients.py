"""The paper's network of eight clients; only nodes and links, no rates and no delays.

client1, client2 ── guard1 ─┐
client3, client4 ── guard2 ─┤
                            ├─ middle1 ── exit1 ── server1
client5, client6 ── guard3 ─┤
client7, client8 ── guard4 ─┘
"""

from testbed.topology import TorTopo


class EightClients(TorTopo):
    """Eight clients, two for each of four guards; one middle and one exit carry all circuits."""

    shared_link = ("middle1", "exit1")

    def build(self) -> None:
        """Add the nodes and links of the figure, and the authority beside them."""
        middle = self.add_node("middle", 1)
        exit_relay = self.add_node("exit", 1)
        server = self.add_node("server", 1)

        for number in range(1, 5):
            guard = self.add_node("guard", number)
            for client_number in (2 * number - 1, 2 * number):
                self.addLink(self.add_node("client", client_number), guard)
            self.addLink(guard, middle)
        self.addLink(middle, exit_relay)
        self.addLink(exit_relay, server)

        self.add_node("authority", 1)
        self.add_management()
