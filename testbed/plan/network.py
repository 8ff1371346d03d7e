"""A network as plain data: nodes, sites, and links with their effects on packets.

It can be written as JSON and read back, so a plan can hold it. `testbed.network.routes` computes
what follows from it, such as the routes of packets.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveInt, model_validator

from testbed.plan.queue_disciplines import FIFO

Kind = Literal["client", "relay", "server", "authority", "router"]
Flag = Literal["guard", "exit"]
RelayClass = Literal["guard", "exit", "both", "middle"]

HOPS = 3
"""The number of relays in a circuit, all of them different (path-spec)."""

FULL_SIZE_PACKET_BYTES = 1514
"""An Ethernet frame with a payload of 1500 bytes, as the qdiscs of the links count it."""

RELAY_CLASSES: tuple[RelayClass, ...] = ("guard", "exit", "both", "middle")
"""By a relay's flags: one of them, both, or neither."""


class NetworkPart(BaseModel):
    """A part of a network: immutable plain data."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(NetworkPart):
    """A host, or a site's router.

    Attributes:
        name: "client7", "relay12", "router-de".
        flags: a relay's, as the directory assigns them.
        site: the site's name; None if the network has no sites.
        country: two letters, lower case; None if it has no place.
        weight: a relay's in the consensus (dir-spec, `w Bandwidth=`), in kB/s; None for others.
        rate_up_bit_per_s, rate_down_bit_per_s: the rates of its access link to its site; None: no
            limit of its own.
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
    """A place with a router, to which its nodes' access links and links from other sites lead.

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
    """The effect of one direction of a link on packets.

    Attributes:
        rate_bit_per_s: its capacity, counting whole Ethernet frames; None: unlimited.
        delay_ms: one way.
        jitter_ms: the delay's standard deviation.
        loss: the share of packets that are lost, independently of each other.
        bundles: whether TCP's bundles of segments cross as one, and are lost as one. Then `loss`
            is the share of bundles.
        largest_bundle_segments: the most segments in a bundle; None: TCP decides.
        queue_packets: room for waiting packets, beyond those in the delay line.
        queue_in_sender: whether packets wait in the sender's own network card, where its TCP sees
            them. Only without delay and loss.
        queue_discipline: one of `plan.queue_disciplines`.
        queue_parameters: the discipline's parameters, by the scenario's keys.
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
        """A description of the queue apart from its length; empty for a plain FIFO."""
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
        """How many full-size packets a full link holds: bandwidth-delay product and queue."""
        bits_under_way = (self.rate_bit_per_s or 0) * self.delay_ms / 1000
        return math.ceil(bits_under_way / (8 * FULL_SIZE_PACKET_BYTES)) + self.queue_packets

    def then(self, following: "Shape") -> "Shape":
        """This shape followed by another one, as a single shape.

        The lower rate and the shorter queue count, delays add up, and losses are independent.
        Exact if only one of the two has a rate; with two rates, the first queue is left out.
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
    """A link between two nodes: the shape from the first to the second, and the shape back."""

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
    """A whole network.

    Raises:
        ValueError: two nodes have the same name, or a link or a site names a node that isn't there.
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
