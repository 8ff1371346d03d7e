"""What is simulated: which circuits, how many, by which of Tor's rules, and counted how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PAPER_CIRCUITS = 96_876
"""Circuits active in a second: 4 times the 24,219 of a 25 % network (section 4.1.1)."""


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
    Rule.NO_SAME_FAMILY: "nor two of a family; needs a consensus that tells families",
    Rule.EXIT_BY_POLICY: "an exit is what accepts the ports, whatever its flags",
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
"""Table 1. An exit is of a class if it accepts every port of it.

The table's range from 6881 to 6880 is taken for 6881 to 6889, BitTorrent's own.
"""

MIXTURE = "mixture"
OTHER_TO_WEB = 1.7
"""So many times more circuits are not web than are (section 4.1.7)."""

MIXTURE_SHARES: Mapping[str, float] = {
    name: (1 if name == "web" else OTHER_TO_WEB / (len(EXIT_CLASSES) - 1)) / (1 + OTHER_TO_WEB)
    for name in EXIT_CLASSES
}
"""The share of each class in the mixture. How the paper splits what is not web it doesn't say: here
the other classes are equal."""


@dataclass(frozen=True)
class Case:
    """Circuits of one kind in a network of one size.

    Attributes:
        circuits: in the whole network; a scaled one has them times `scale`.
        internal_share: the probability that a circuit is internal, with a middle in the last place.
        undirected: whether links count the same in both directions.
        exit_class: a class of table 1, the mixture, or None: any exit.
        per_client: circuits of a client, all with one guard.
        scale: share of the network's relays and circuits.
    """

    circuits: int = PAPER_CIRCUITS
    internal_share: float = 0.0
    undirected: bool = False
    exit_class: str | None = None
    per_client: int = 1
    scale: float = 1.0
    rules: frozenset[Rule] = field(default_factory=frozenset)

    @property
    def scaled_circuits(self) -> int:
        """How many circuits there are in the scaled network."""
        return max(1, round(self.circuits * self.scale))

    @property
    def kind(self) -> str:
        """The circuits in a word or two: "external", "internal", "90 % internal"."""
        if self.internal_share in (0, 1):
            return "internal" if self.internal_share else "external"
        return f"{100 * self.internal_share:g} % internal"

    @property
    def direction(self) -> str:
        """How links are counted, in a word."""
        return "undirected" if self.undirected else "directed"
