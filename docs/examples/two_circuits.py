"""Each client has two circuits by its path, and each stream goes where fewer have gone before."""

from testbed.inside.policies.interface import Circuit, Policy, Stream

CIRCUITS = 2


class TwoCircuits(Policy):
    """The probes of the round trip always take the first circuit."""

    def prepare(self) -> None:
        """Ask for two circuits by the same relays."""
        for _ in range(CIRCUITS):
            self.client.extend(self.client.path)

    def is_ready(self) -> bool:
        """Whether both are open."""
        return len(self.client.circuits()) == CIRCUITS

    def choose(self, stream: Stream) -> Circuit:
        """The circuit that has had fewer streams; of two alike, the older one."""
        circuits = self.client.circuits()
        if stream.is_probe:
            return circuits[0]
        return min(circuits, key=lambda circuit: circuit.streams)

    def circuit_closed(self, number: str) -> None:
        """Replace what is lost."""
        self.client.extend(self.client.path)
