"""A network as data: nodes, sites, and links with what each does to packets. It starts nothing.

What is here can be written as JSON and read again, so that a plan may hold it. What follows from
it, such as the ways that packets take, is computed (`testbed.network.routes`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt, model_validator

Kind = Literal["client", "relay", "server", "authority", "router"]
Flag = Literal["guard", "exit"]
Discipline = Literal["fifo", "fq_codel"]
RelayClass = Literal["guard", "exit", "both", "middle"]

RELAY_CLASSES: tuple[RelayClass, ...] = ("guard", "exit", "both", "middle")
"""By a relay's flags: one of them, both, or neither."""


class NetworkPart(BaseModel):
    """A part of a network: plain data that nothing changes."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(NetworkPart):
    """A host, or a site's router.

    Attributes:
        name: "client7", "relay12", "router-de".
        flags: a relay's, as the directory gives them out.
        site: its name; None where a network has no sites.
        country: two letters, lower case; None if it is nowhere.
        weight: a relay's in the consensus (dir-spec, `w Bandwidth=`), in kB/s; None for others.
        rate_up_bit_per_s, rate_down_bit_per_s: of its own access to the network, which is what
            its link to its site has; None: no limit of its own.
    """

    name: str
    kind: Kind
    flags: tuple[Flag, ...] = ()
    site: str | None = None
    country: str | None = None
    weight: int | None = None
    rate_up_bit_per_s: PositiveInt | None = None
    rate_down_bit_per_s: PositiveInt | None = None

    @property
    def relay_class(self) -> RelayClass:
        """A relay's class, by its flags."""
        if len(self.flags) == 2:
            return "both"
        return self.flags[0] if self.flags else "middle"


class Site(NetworkPart):
    """A place: its nodes' access links lead to its router, and links to other sites go from there.

    Attributes:
        router: the name of the node.
        latitude_deg, longitude_deg: where a map shows it; north and east are positive.
    """

    name: str
    router: str
    country: str
    latitude_deg: float
    longitude_deg: float


class Shape(NetworkPart):
    """What one direction of a link does to packets.

    Attributes:
        rate_bit_per_s: None: no limit.
        delay_ms: one way.
        jitter_ms: the delay's standard deviation.
        loss: the share of packets that are lost, independently of each other.
        queue_packets: room for packets that wait, beyond those in the delay line.
        discipline: how what waits is queued.
        queue_in_sender: whether what waits is in the sender's own network card.
    """

    rate_bit_per_s: PositiveInt | None = None
    delay_ms: NonNegativeFloat = 0.0
    jitter_ms: NonNegativeFloat = 0.0
    loss: NonNegativeFloat = 0.0
    queue_packets: PositiveInt = 1000
    discipline: Discipline = "fifo"
    queue_in_sender: bool = False


class Link(NetworkPart):
    """A link between two nodes: the shape from the first to the second, and of the way back."""

    ends: tuple[str, str]
    there: Shape
    back: Shape

    def directions(self) -> Iterator[tuple[str, str, Shape]]:
        """Sender, receiver and shape of each direction."""
        first, second = self.ends
        yield first, second, self.there
        yield second, first, self.back


class Network(NetworkPart):
    """All of a network.

    Raises:
        ValueError: two nodes have one name, or a link or a site names a node that isn't there.
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    sites: tuple[Site, ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> "Network":
        names = Counter(node.name for node in self.nodes)
        name, count = next(iter(names.most_common(1)), ("", 1))
        if count > 1:
            raise ValueError(f"{count} nodes are named {name}: each needs a name of its own")
        for link in self.links:
            for end in link.ends:
                if end not in names:
                    raise ValueError(f"the link {'-'.join(link.ends)} names no node {end}")
        for site in self.sites:
            if site.router not in names:
                raise ValueError(f"the site {site.name} names no node {site.router}")
        sites = {site.name for site in self.sites}
        for node in self.nodes:
            if node.site is not None and node.site not in sites:
                raise ValueError(f"the node {node.name} names no site {node.site}")
        return self

    def node(self, name: str) -> Node:
        """The node of that name; KeyError if there is none."""
        try:
            return next(node for node in self.nodes if node.name == name)
        except StopIteration:
            raise KeyError(name) from None

    def of_kind(self, kind: Kind) -> list[Node]:
        """The nodes of a kind."""
        return [node for node in self.nodes if node.kind == kind]

    def of_class(self, relay_class: RelayClass) -> list[Node]:
        """The relays of a class."""
        return [node for node in self.of_kind("relay") if node.relay_class == relay_class]
