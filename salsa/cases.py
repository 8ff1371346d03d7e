"""Cases to simulate: which circuits, how many, by which of Tor's rules, and how they count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PAPER_CIRCUITS = 96_876
"""The circuits active in a second: 4 times the 24,219 of a 25 % network (section 4.1.1)."""


class Rule(StrEnum):
    """A rule of Tor's path selection that Algorithm 1 leaves out."""

    NO_RELAY_TWICE = "no-relay-twice"
    NO_SAME_16 = "no-same-16"
    NO_SAME_FAMILY = "no-same-family"
    EXIT_BY_POLICY = "exit-by-policy"
    FLAGS = "flags"


RULES: Mapping[Rule, str] = {
    Rule.NO_RELAY_TWICE: "a circuit has no relay twice",
    Rule.NO_SAME_16: "nor two of the same IPv4 /16",
    Rule.NO_SAME_FAMILY: "nor two of the same family; needs a consensus with families",
    Rule.EXIT_BY_POLICY: "an exit is any relay that accepts the ports, whatever its flags",
    Rule.FLAGS: "all relays are Fast, guards also Stable and V2Dir",
}

PortRanges = tuple[tuple[int, int], ...]

EXIT_CLASSES: Mapping[str, PortRanges] = {
    "web": ((80, 80), (443, 443)),
    "bittorrent": ((6881, 6889),),
    "bittorrent-extended": ((6890, 6999),),
    "file-sharing": ((1214, 1214), (4661, 4666), (6346, 6429), (6699, 6699)),
    "various": ((25, 25), (119, 119), (135, 139), (445, 445), (563, 563)),
}
"""Table 1: an exit is in a class if it accepts all of its ports.

The table's range from 6881 to 6880 is read as 6881 to 6889, BitTorrent's own.
"""

MIXTURE = "mixture"
OTHER_TO_WEB = 1.7
"""The ratio of other circuits to web circuits (section 4.1.7)."""

MIXTURE_SHARES: Mapping[str, float] = {
    name: (1 if name == "web" else OTHER_TO_WEB / (len(EXIT_CLASSES) - 1)) / (1 + OTHER_TO_WEB)
    for name in EXIT_CLASSES
}
"""The share of each class in the mixture. The paper doesn't say how it splits what is not web; here
the other classes have equal shares."""


@dataclass(frozen=True)
class Case:
    """Circuits of one kind in a network of one size, and how their links count.

    Attributes:
        circuits: the number in the whole network; a scaled one has `scale` times as many.
        internal_share: the probability that a circuit is internal, so that a middle is its last
            relay.
        undirected: whether both directions of a link count as one.
        exit_class: a class of table 1, the mixture, or None for any exit.
        per_client: the circuits of a client, all with its guards.
        guards: the guards of a client, each of which a circuit has equally often.
        scale: the share of the network's relays and circuits.
        rules: rules of Tor's that the paper leaves out.
    """

    circuits: int = PAPER_CIRCUITS
    internal_share: float = 0.0
    undirected: bool = False
    exit_class: str | None = None
    per_client: int = 1
    guards: int = 1
    scale: float = 1.0
    rules: frozenset[Rule] = field(default_factory=frozenset)

    @property
    def scaled_circuits(self) -> int:
        """The number of circuits in the scaled network."""
        return max(1, round(self.circuits * self.scale))

    @property
    def kind(self) -> str:
        """The kind of circuits: "external", "internal", "90 % internal"."""
        if self.internal_share in (0, 1):
            return "internal" if self.internal_share else "external"
        return f"{100 * self.internal_share:g} % internal"

    @property
    def direction(self) -> str:
        """How links count: "directed" or "undirected"."""
        return "undirected" if self.undirected else "directed"
