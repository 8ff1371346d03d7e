"""How a plan's network is divided among several kernels, and how much faster that is at most.

All kernels run a window of virtual time at once and meet at its end, so a packet from one to
another must be under way for a window at least (conservative parallel simulation). The split
follows from the plan alone: same plan, same split, whatever machine carries it out. How much faster
several kernels are is computed here; runs say what they took.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import networkx

from testbed.plan.model import Plan, PlannedLink

LEAST_WINDOW_MS = 2.0
"""No window is shorter: its kernels would wait for each other more than they work."""

BARRIER_S = 31e-6
"""What it costs a kernel to meet the others once (measured with two; docs/performance.md)."""

NEARLY_AS_FAST = 1.02
"""Of splits that take at most so many times the least, the one with the longest window is taken:
in a longer window it is likelier that all parts have work."""

PARTS = (2, 4, 8, 16, 32, 64)
"""The numbers of parts that are compared with one."""

Tie = tuple[str, str, float]
"""Two hosts, and the least delay in ms between the queue of one and that of the other."""


@dataclass(frozen=True)
class Part:
    """What one kernel has.

    Attributes:
        nodes: its hosts, in the plan's order; a site's router is where its hosts are.
        load_s: their processor time for each virtual second.
    """

    nodes: tuple[str, ...]
    load_s: float


@dataclass(frozen=True)
class Split:
    """A network in parts.

    Attributes:
        window_ms: the least delay from one part to another; None if there is one part.
        links_across: the links, and the ways between two sites, that lead from part to part.
    """

    parts: tuple[Part, ...]
    window_ms: float | None
    links_across: int

    @property
    def fullest(self) -> float:
        """The fullest part's share of the load: 1 if no node has any."""
        total_s = sum(part.load_s for part in self.parts)
        return max(part.load_s for part in self.parts) / total_s if total_s else 1.0

    def wall_s(self, cores: int) -> float:
        """The wall time of a virtual second if all parts have work in every window.

        Each kernel stays on one core, and meets the others once in each window.
        """
        barriers_s = BARRIER_S * 1000 / self.window_ms if self.window_ms else 0.0
        costs_s = [part.load_s + barriers_s for part in self.parts]
        return max(sum(costs_s[one] for one in core) for core in shared_out(costs_s, cores))

    def times_as_fast(self, cores: int) -> float:
        """How many times as fast it is on these cores as one kernel on one, at most."""
        together_s = self.wall_s(cores)
        return sum(part.load_s for part in self.parts) / together_s if together_s else 1.0

    def record(self) -> dict[str, Any]:
        """The split as plain data."""
        return {
            "window_ms": self.window_ms,
            "links_across": self.links_across,
            "parts": [{"nodes": list(part.nodes), "load_s": part.load_s} for part in self.parts],
        }


def split(plan: Plan, load_s: Mapping[str, float], parts: int) -> Split:
    """Divide a plan's hosts into parts of nearly equal load that are at least a window apart.

    Hosts nearer to each other than a window stay together, and such groups are shared out by
    `shared_out`. This is done for each window from `LEAST_WINDOW_MS` on, and the fastest split is
    taken, or one `NEARLY_AS_FAST`. Hosts without links (authorities) are in the first part.

    Args:
        load_s: each node's, as from `expected_load`.
        parts: how many; there are fewer where too few groups are far enough apart, and one where
            all hosts are near.
    """
    return _fastest(_grouped(plan), load_s, parts)


def splits(plan: Plan, load_s: Mapping[str, float]) -> list[Split]:
    """The splits into 1, 2, 4, … parts, as long as the fullest part gets clearly smaller."""
    grouped = _grouped(plan)
    found = [_fastest(grouped, load_s, 1)]
    for parts in PARTS:
        further = _fastest(grouped, load_s, parts)
        if further.fullest * NEARLY_AS_FAST > found[-1].fullest:
            break
        found.append(further)
    return found


def shared_out(loads: Sequence[float], groups: int) -> list[list[int]]:
    """Share loads out: the greatest first, each into the group that has least until then.

    The fullest group has at most 4/3 of the least possible (Graham, Bounds on Multiprocessing
    Timing Anomalies, 1969).

    Returns:
        Each group's loads, by their places.
    """
    shared: list[list[int]] = [[] for _ in range(groups)]
    sums = [0.0] * groups
    for place in sorted(range(len(loads)), key=lambda one: -loads[one]):
        least = sums.index(min(sums))
        shared[least].append(place)
        sums[least] += loads[place]
    return shared


@dataclass(frozen=True)
class _Grouped:
    """The hosts of a plan in groups that stay together, for each window.

    Attributes:
        ties: of all ties, a tree with the least delays.
        groups: from the shortest window to the longest; hosts in the plan's order.
    """

    plan: Plan
    ties: Sequence[Tie]
    groups: Sequence[Sequence[Sequence[str]]]


def _grouped(plan: Plan) -> _Grouped:
    ties = _least_ties(plan)
    windows_ms = {LEAST_WINDOW_MS, *(ms for _, _, ms in ties if ms > LEAST_WINDOW_MS)}
    return _Grouped(plan, ties, [_groups(plan, ties, ms) for ms in sorted(windows_ms)])


def _fastest(grouped: _Grouped, load_s: Mapping[str, float], parts: int) -> Split:
    shortest, *longer = grouped.groups
    enough = [shortest, *(groups for groups in longer if len(groups) >= parts)]
    found = [_of_groups(grouped, groups, load_s, parts) for groups in enough]
    least_s = min(one.wall_s(parts) for one in found)
    fast = [one for one in found if one.wall_s(parts) <= NEARLY_AS_FAST * least_s]
    return max(fast, key=lambda one: one.window_ms or 0.0)


def _of_groups(
    grouped: _Grouped,
    groups: Sequence[Sequence[str]],
    load_s: Mapping[str, float],
    parts: int,
) -> Split:
    loads_s = [sum(load_s[host] for host in group) for group in groups]
    shared = shared_out(loads_s, min(parts, len(groups)) or 1)
    part_of = {
        host: number
        for number, part in enumerate(shared)
        for group in part
        for host in groups[group]
    }
    members: list[list[str]] = [[] for _ in shared]
    for node in grouped.plan.nodes:
        if node.kind != "router":
            members[part_of.get(node.name, 0)].append(node.name)
    across_ms = [ms for one, other, ms in grouped.ties if part_of[one] != part_of[other]]
    return Split(
        parts=tuple(Part(tuple(hosts), sum(load_s[host] for host in hosts)) for hosts in members),
        window_ms=min(across_ms, default=None),
        links_across=_links_across(grouped.plan, part_of),
    )


def _groups(plan: Plan, ties: Sequence[Tie], window_ms: float) -> list[list[str]]:
    near: networkx.Graph[str] = networkx.Graph()
    near.add_nodes_from(host for tie in ties for host in tie[:2])
    near.add_edges_from(tie[:2] for tie in ties if tie[2] < window_ms)
    group_of = {
        host: number
        for number, group in enumerate(networkx.connected_components(near))
        for host in group
    }
    groups: dict[int, list[str]] = defaultdict(list)
    for node in plan.nodes:
        if node.name in group_of:
            groups[group_of[node.name]].append(node.name)
    return list(groups.values())


def _least_ties(plan: Plan) -> list[Tie]:
    """Of all ties, a tree with the least delays: it has the least of any split, too."""
    graph: networkx.Graph[str] = networkx.Graph()
    for one, other, delay_ms in _ties(plan):
        if not graph.has_edge(one, other) or delay_ms < graph[one][other]["weight"]:
            graph.add_edge(one, other, weight=delay_ms)
    tree = networkx.minimum_spanning_edges(graph, data=True)
    return [(one, other, data["weight"]) for one, other, data in tree]


def _ties(plan: Plan) -> Iterator[Tie]:
    """Pairs of hosts with the delay between them, enough of them to find the least of any parts.

    The hosts of a site stay together, as each router is in one part. Between two sites it is the
    way's: a packet spends it after its sender's link, which may have a queue, and before that of
    its receiver.
    """
    hosts: dict[str, list[str]] = defaultdict(list)
    for link in plan.links:
        if link.roles[1] == "router" and not link.is_way:
            hosts[link.ends[1]].append(link.ends[0])
        elif not link.is_way:
            yield *link.ends, _least_ms(link)
    for own in hosts.values():
        yield from ((one, other, 0.0) for one, other in pairwise(own))
    for link in plan.links:
        if link.is_way and set(link.ends) <= set(hosts):
            first, second = (hosts[router][0] for router in link.ends)
            yield first, second, _least_ms(link)


def _least_ms(link: PlannedLink) -> float:
    """The least delay of a link; one that varies can be nothing."""
    return min(shape.delay_ms * (not shape.jitter_ms) for shape in (link.there, link.back))


def _links_across(plan: Plan, part_of: Mapping[str, int]) -> int:
    """How many links have ends in different parts; a router's are those of its site's hosts."""
    parts: dict[str, set[int]] = {host: {part} for host, part in part_of.items()}
    for link in plan.links:
        if not link.is_way and link.roles[1] == "router":
            parts.setdefault(link.ends[1], set()).add(part_of[link.ends[0]])
    ends = [link.ends for link in plan.links if link.is_way or "router" not in link.roles]
    return sum(len(parts.get(one, set()) | parts.get(other, set())) > 1 for one, other in ends)
