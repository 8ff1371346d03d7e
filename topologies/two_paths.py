"""Two clients with two ways to the exit, for linked circuits: nodes and links, without rates.

client1 ─┬─ guard1 ── middle1 ─┐
         │                     ├─ exit1 ── server1
client2 ─┴─ guard2 ── middle2 ─┘

Each client has a link to each guard. A guard has no link to the other way's middle, so the two legs
of a linked set (conflux) share nothing on their ways to the exit.
"""

from testbed.asked.topology import TorTopo


class TwoPaths(TorTopo):
    """Two clients that both reach the exit in two ways; a single circuit takes the first."""

    shared_link = ("middle1", "exit1")

    def build(self) -> None:
        """Add the nodes and links of the figure, and the authority beside them."""
        clients = [self.add_node("client", number) for number in (1, 2)]
        exit_relay = self.add_node("exit", 1)
        server = self.add_node("server", 1)

        for number in (1, 2):
            guard = self.add_node("guard", number)
            middle = self.add_node("middle", number)
            for client in clients:
                self.addLink(client, guard)
            self.addLink(guard, middle)
            self.addLink(middle, exit_relay)
        self.addLink(exit_relay, server)

        self.add_node("authority", 1)
        self.add_management()

    def paths(self) -> dict[str, tuple[str, str, str]]:
        """Return the first way for every client; the legs of a linked set take one way each."""
        return dict.fromkeys(self.nodes_with("client"), ("guard1", "middle1", "exit1"))
