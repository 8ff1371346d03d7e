"""A network as data: nodes, sites, and links with what each does to packets. It starts nothing.

What is here can be written as JSON and read again, so that a plan may hold it. What follows from
it, such as the ways that packets take, is computed (`testbed.network.routes`).
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt, model_validator

from testbed.queue_disciplines import FIFO

Kind = Literal["client", "relay", "server", "authority", "router"]
Flag = Literal["guard", "exit"]
RelayClass = Literal["guard", "exit", "both", "middle"]

HOPS = 3
"""Relays of a circuit, none of them twice (path-spec)."""

FULL_SIZE_PACKET_BYTES = 1514
"""An Ethernet frame with a payload of 1500 bytes, as the qdiscs of the links count it."""

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
        rate_bit_per_s: what it carries, counted in whole Ethernet frames; None: no limit.
        delay_ms: one way.
        jitter_ms: the delay's standard deviation.
        loss: the share of packets that are lost, independently of each other.
        bundles: whether TCP's bundles of segments cross as one, and are lost as one. Then `loss`
            is of bundles.
        largest_bundle_segments: how many segments a bundle has at most; None: as many as TCP likes.
        queue_packets: room for packets that wait, beyond those in the delay line.
        queue_in_sender: what waits is in the sender's own network card, so that its TCP knows of
            it. Only without delay and loss.
        queue_discipline: one of `testbed.queue_disciplines`.
        queue_parameters: what the scenario says of it, by the names of its keys there.
    """

    rate_bit_per_s: PositiveInt | None = None
    delay_ms: NonNegativeFloat = 0.0
    jitter_ms: NonNegativeFloat = 0.0
    loss: NonNegativeFloat = 0.0
    bundles: bool = False
    largest_bundle_segments: PositiveInt | None = None
    queue_packets: PositiveInt = 1000
    queue_in_sender: bool = False
    queue_discipline: str = FIFO
    queue_parameters: dict[str, bool | int | str] = {}

    @property
    def queue_kind(self) -> str:
        """What there is to say of the queue beside its length: empty for a plain FIFO."""
        parts = [
            "" if self.queue_discipline == FIFO else self.queue_discipline,
            *(f"{name} {value}" for name, value in self.queue_parameters.items()),
            "sender's" if self.queue_in_sender else "",
            "bundles" if self.bundles else "",
            f"of {self.largest_bundle_segments}" if self.largest_bundle_segments else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def holds_packets(self) -> int:
        """What a full link holds in full-size packets: bandwidth-delay product and queue."""
        bits_under_way = (self.rate_bit_per_s or 0) * self.delay_ms / 1000
        return math.ceil(bits_under_way / (8 * FULL_SIZE_PACKET_BYTES)) + self.queue_packets

    def then(self, following: "Shape") -> "Shape":
        """This one and another one after it, as one.

        The lesser rate and queue count, delays add up, and of independent losses what both keep is
        kept. Exact where only one of them has a rate; with two, the first queue is left out.
        """
        rates = [one.rate_bit_per_s for one in (self, following) if one.rate_bit_per_s]
        return Shape(
            rate_bit_per_s=min(rates, default=None),
            delay_ms=self.delay_ms + following.delay_ms,
            jitter_ms=math.hypot(self.jitter_ms, following.jitter_ms),
            loss=1 - (1 - self.loss) * (1 - following.loss),
            queue_packets=min(self.queue_packets, following.queue_packets),
        )


class Link(NetworkPart):
    """A link between two nodes: the shape from the first to the second, and of the way back."""

    ends: tuple[str, str]
    there: Shape
    back: Shape

    def shape_from(self, sender: str) -> Shape:
        """The shape of the direction away from one of the ends."""
        return self.there if sender == self.ends[0] else self.back

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
