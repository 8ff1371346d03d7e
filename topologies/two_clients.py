"""The paper's network of two clients: nodes and links, without rates and delays.

client1 ── guard1 ─┐
                   ├─ middle1 ── exit1 ── server1
client2 ── guard2 ─┘
"""

from testbed.asked.topology import TorTopo


class TwoClients(TorTopo):
    """Two clients, each with its own guard; one middle and one exit carry both circuits."""

    shared_link = ("middle1", "exit1")

    def build(self) -> None:
        """Add the nodes and links of the figure, and the authority beside them."""
        middle = self.add_node("middle", 1)
        exit_relay = self.add_node("exit", 1)
        server = self.add_node("server", 1)

        for number in (1, 2):
            client = self.add_node("client", number)
            guard = self.add_node("guard", number)
            self.addLink(client, guard)
            self.addLink(guard, middle)
        self.addLink(middle, exit_relay)
        self.addLink(exit_relay, server)

        self.add_node("authority", 1)
        self.add_management()
