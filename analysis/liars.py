"""How many streams relays get that lie about round trips, and the same relays when they don't."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from analysis.adversaries import streams_of
from analysis.runs import Groups
from testbed.results import Run

LIES = ("paths.liars", "paths.liars_hide")
"""The keys in which a run with liars and one without may differ to be compared."""


@dataclass(frozen=True)
class Share:
    """The shares of a run's streams that some relays got, by their position in the circuit.

    Attributes:
        both_ends: of those with one as guard and one as exit.
        anywhere: of those with one in any position.
    """

    guard: float
    middle: float
    exit: float
    both_ends: float
    anywhere: float


@dataclass(frozen=True)
class Compared:
    """A run with liars, and the run with the same seed in which nobody lies, if there is one."""

    lying: Run
    honest: Run | None

    @property
    def weight(self) -> float:
        """The liars' share of all relays' weight."""
        weights = {one.name: one.weight or 0 for one in self.lying.plan.of_kind("relay")}
        return sum(weights[one] for one in self.lying.plan.policy.liars) / sum(weights.values())

    @property
    def with_lies(self) -> Share | None:
        """What the liars got; None if no circuit carried a stream."""
        return _share(self.lying, self.lying.plan.policy.liars)

    @property
    def without(self) -> Share | None:
        """What the same relays got where nobody lies; None without such a run."""
        if self.honest is None:
            return None
        return _share(self.honest, self.lying.plan.policy.liars)


def compared(groups: Groups) -> dict[tuple[str, str], list[Compared]]:
    """The runs with liars of some groups, by scenario and variant."""
    honest = {
        _setting(run): run for runs in groups.values() for run in runs if not run.plan.policy.liars
    }
    return {
        (group.scenario, group.variant): [Compared(run, honest.get(_setting(run))) for run in lying]
        for group, runs in groups.items()
        if (lying := [run for run in runs if run.plan.policy.liars])
    }


def by_seed(
    runs: Sequence[Compared], of: Callable[[Compared], Share | None]
) -> Mapping[int, float]:
    """The shares of streams that have such a relay anywhere, by seed; without runs that lack it."""
    found = {one.lying.plan.seed: of(one) for one in runs}
    return {seed: share.anywhere for seed, share in found.items() if share}


def share_of(paths: Iterable[Sequence[str]], relays: Collection[str]) -> Share | None:
    """The shares of streams, given by their circuits' relays, that some relays got.

    None without streams.
    """
    chosen = set(relays)
    marked = [tuple(relay in chosen for relay in path) for path in paths]
    if not marked:
        return None

    def part(of: Callable[[tuple[bool, ...]], bool]) -> float:
        return sum(map(of, marked)) / len(marked)

    return Share(
        guard=part(lambda path: path[0]),
        middle=part(lambda path: any(path[1:-1])),
        exit=part(lambda path: path[-1]),
        both_ends=part(lambda path: path[0] and path[-1]),
        anywhere=part(any),
    )


@cache
def _share(run: Run, relays: tuple[str, ...]) -> Share | None:
    return share_of((stream.path for stream in streams_of(run)), relays)


def _setting(run: Run) -> tuple[object, ...]:
    """What two runs share of which only one has liars."""
    plan = run.plan
    others = {key: value for key, value in plan.changes.items() if key not in LIES}
    changes = json.dumps(others, sort_keys=True)
    return plan.unchanged_scenario, changes, plan.variant, plan.duration_s, plan.seed
