"""The parts of a plan that several kernels carry out, and the links between them.

Which node is in which part is in the plan. A link of the network that leads from part to part is a
link between two kernels. All ways between the sites of two parts share one; and the management
network has one from the first kernel to each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.plan.model import Plan

MOST_KERNELS = 64
"""As many as can share a clock (`machines.shared_clock`)."""

FAR_NS = 10_000_000
"""The delay of the management network between parts without any other link."""

LEAST_DELAY_NS = 1
"""The delay of a link's queueing discipline where the plan says none (`inside.lab.links`)."""


@dataclass(frozen=True)
class Crossing:
    """A link between two kernels.

    Attributes:
        joins: what it joins: two nodes, the sites of two parts, or the management network.
        ends: the two parts.
        nodes: the node at each end; empty unless it joins nodes.
        delays_ns: from the first to the second, and back.
    """

    joins: Literal["nodes", "sites", "management"]
    ends: tuple[int, int]
    delays_ns: tuple[int, int]
    nodes: tuple[str, ...] = ()


def part_of_nodes(plan: Plan) -> Mapping[str, int]:
    """The part of each node; empty if the plan has one part."""
    return {name: number for number, part in enumerate(plan.parts) for name in part}


def crossings(plan: Plan) -> Sequence[Crossing]:
    """The links between kernels, in the order of the kernels' devices.

    First those of the network, whose packets spend their delay between the kernels, but for what
    the sender's queueing discipline takes. Ways between sites have the rest there of their delay.
    Then those of the management network, which has the least delay of the others.
    """
    if plan.kernels == 1:
        return []
    found = [*_between_nodes(plan), *_between_sites(plan)]
    least_ns = min((min(one.delays_ns) for one in found), default=FAR_NS)
    others = range(1, plan.kernels)
    return [*found, *(Crossing("management", (0, one), (least_ns, least_ns)) for one in others)]


def _between_nodes(plan: Plan) -> Iterator[Crossing]:
    part_of = part_of_nodes(plan)
    for link in plan.links:
        ends = (part_of[link.ends[0]], part_of[link.ends[1]])
        if ends[0] != ends[1] and not link.is_way:
            delays_ns = (_between_ns(link.there.delay_ms), _between_ns(link.back.delay_ms))
            yield Crossing("nodes", ends, delays_ns, link.ends)


def _between_sites(plan: Plan) -> Iterator[Crossing]:
    part_of = part_of_nodes(plan)
    least_ms: dict[tuple[int, int], float] = {}
    for link in plan.links:
        for sender, receiver, shape in link.directions():
            ends = (part_of[sender], part_of[receiver])
            if ends[0] != ends[1] and link.is_way:
                least_ms[ends] = min(shape.delay_ms, least_ms.get(ends, shape.delay_ms))
    for one, other in sorted(ends for ends in least_ms if ends[0] < ends[1]):
        both = (_between_ns(least_ms[one, other]), _between_ns(least_ms[other, one]))
        yield Crossing("sites", (one, other), both)


def _between_ns(delay_ms: float) -> int:
    return max(LEAST_DELAY_NS, round(delay_ms * 1e6) - LEAST_DELAY_NS)
