"""Cases carried out: circuits drawn for each seed, or the closed form; figures over the seeds."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import repeat, zip_longest
from typing import NamedTuple

from salsa.cases import MIXTURE, Case
from salsa.drawing import draw
from salsa.expected import expected
from salsa.links import MOST_PARTS, Counts, Links, count_links
from salsa.positions import exits_by_class, positions
from testbed.network.consensus import Consensus
from testbed.network.finding import cores, processes
from testbed.network.positions import relay_classes

_WORTH_PROCESSES = 30_000_000
"""Circuits to draw; they take some five seconds, and starting processes takes one."""


@dataclass(frozen=True)
class Estimate:
    """A figure over simulations: mean, standard deviation, 95 % confidence interval of the mean.

    A single simulation has neither deviation nor interval, and so has the closed form.
    """

    mean: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The figure of these simulations, at least one."""
        if len(values) < 2:
            return cls(values[0])
        # SciPy takes as long to import as a million circuits to draw.
        from analysis.statistics import mean_interval

        interval = mean_interval(values)
        low, high = interval or (None, None)
        return cls(statistics.fmean(values), statistics.stdev(values), low, high)


class Shares(NamedTuple):
    """Links, and of these the shared ones, in number and percent."""

    links: Estimate
    shared: Estimate
    percent: Estimate

    @classmethod
    def over(cls, links: Sequence[float], shared: Sequence[float]) -> "Shares":
        """By their numbers in each simulation."""
        percents = [100 * part / whole for part, whole in zip(shared, links, strict=True)]
        return cls(Estimate.of(links), Estimate.of(shared), Estimate.of(percents))


@dataclass(frozen=True)
class ConsensusCounts:
    """The consensus that a case was carried out in.

    Attributes:
        consensus, day: its name, and the day from which it was valid.
        relays, guards, exits: how many it has; only exits of the case's class, if that has one.
    """

    consensus: str
    day: str
    relays: int
    guards: int
    exits: int


@dataclass(frozen=True)
class Result:
    """What came out of a case in the network of a consensus.

    Attributes:
        seeds: of how many simulations the figures are; 0 if they are of the closed form.
        links, guard_middle, middle_exit: of all parts of circuits, their first and their second.
        circuits_with_one, circuits_with_two: circuits with so many parts on shared links; None
            where the closed form doesn't tell.
        by_parts: how many links carry 1, 2, … circuit parts, up to `MOST_PARTS`; empty where it
            doesn't tell.
    """

    network: ConsensusCounts
    case: Case
    seeds: int
    links: Shares
    guard_middle: Shares
    middle_exit: Shares
    circuits_with_one: Estimate | None
    circuits_with_two: Estimate | None
    by_parts: tuple[Estimate, ...]

    @property
    def shared_percent(self) -> Estimate:
        """The figure that all is about: shared links, in percent of the links."""
        return self.links.percent


Job = tuple[Consensus, Case]


def carry_out(
    jobs: Sequence[Job],
    seeds: int,
    *,
    closed_form: bool = False,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """The results of cases, in their order; on all cores where that is worth it.

    Args:
        seeds: simulations of each case, with the seeds 1 to `seeds`.
        closed_form: compute what is expected instead.
        tell: is called with how many cases are done.

    Raises:
        InputError: a consensus doesn't tell what a case needs.
    """
    work = seeds * sum(case.scaled_circuits for _, case in jobs)
    many = cores() > 1 and len(jobs) > 1 and work > _WORTH_PROCESSES
    found: list[Result] = []
    with processes() if many and not closed_form else nullcontext() as executor:
        function = expect if closed_form else simulate
        map_ = executor.map if executor else map
        results: Iterable[Result] = map_(function, *zip(*jobs, strict=True), repeat(seeds))
        for result in results:
            found.append(result)
            tell(len(found))
    return found


def simulate(consensus: Consensus, case: Case, seeds: int) -> Result:
    """Draw a case's circuits for each seed and count their links."""
    chances = positions(consensus, case)
    counted = [
        count_links(
            draw(chances, case.scaled_circuits, per_client=case.per_client, seed=seed),
            chances.count,
            undirected=case.undirected,
        )
        for seed in range(1, seeds + 1)
    ]
    return Result(
        network=_network(consensus, case),
        case=case,
        seeds=seeds,
        links=_shares(counted, lambda one: one.by_parts),
        guard_middle=_shares(counted, lambda one: one.guard_middle),
        middle_exit=_shares(counted, lambda one: one.middle_exit),
        circuits_with_one=Estimate.of([float(one.circuits_by_shared[1]) for one in counted]),
        circuits_with_two=Estimate.of([float(one.circuits_by_shared[2]) for one in counted]),
        by_parts=_by_parts([one.by_parts[1 : MOST_PARTS + 1] for one in counted]),
    )


def expect(consensus: Consensus, case: Case, _seeds: int) -> Result:
    """What `simulate` gives on average, in closed form."""
    found = expected(
        positions(consensus, case),
        case.scaled_circuits,
        per_client=case.per_client,
        undirected=case.undirected,
    )
    with_one, with_two = found.circuits_with_one, found.circuits_with_two
    by_parts = () if found.by_parts is None else found.by_parts[1:].tolist()
    return Result(
        network=_network(consensus, case),
        case=case,
        seeds=0,
        links=Shares.over([found.links[0]], [found.links[1]]),
        guard_middle=Shares.over([found.guard_middle[0]], [found.guard_middle[1]]),
        middle_exit=Shares.over([found.middle_exit[0]], [found.middle_exit[1]]),
        circuits_with_one=None if with_one is None else Estimate(with_one),
        circuits_with_two=None if with_two is None else Estimate(with_two),
        by_parts=tuple(map(Estimate, by_parts)),
    )


def records(results: Iterable[Result]) -> list[dict[str, object]]:
    """The results for programs: a flat mapping each, estimates by their attributes' names."""
    return [_record(result) for result in results]


def _network(consensus: Consensus, case: Case) -> ConsensusCounts:
    classes = relay_classes(consensus.relays)
    exits = int((classes & 2 > 0).sum())
    if case.exit_class is not None and case.exit_class != MIXTURE:
        exits = exits_by_class(consensus, case.exit_class)
    return ConsensusCounts(
        consensus=consensus.name,
        day=consensus.day,
        relays=len(classes),
        guards=int((classes & 1 > 0).sum()),
        exits=exits,
    )


def _shares(counted: Sequence[Links], of: Callable[[Links], Counts]) -> Shares:
    links = [float(of(one).sum()) for one in counted]
    return Shares.over(links, [float(of(one)[2:].sum()) for one in counted])


def _by_parts(counted: Sequence[Counts]) -> tuple[Estimate, ...]:
    columns = zip_longest(*(one.tolist() for one in counted), fillvalue=0)
    return tuple(Estimate.of([float(number) for number in column]) for column in columns)


def _record(result: Result) -> dict[str, object]:
    case = result.case
    estimates: Mapping[str, Estimate | None] = {
        **{
            f"{place}_{name}": getattr(shares, name)
            for place, shares in (
                ("all", result.links),
                ("guard_middle", result.guard_middle),
                ("middle_exit", result.middle_exit),
            )
            for name in Shares._fields
        },
        "circuits_with_one_shared": result.circuits_with_one,
        "circuits_with_two_shared": result.circuits_with_two,
    }
    return {
        "consensus": result.network.consensus,
        "valid_from": result.network.day,
        "relays": result.network.relays,
        "guards": result.network.guards,
        "exits": result.network.exits,
        "circuits": case.scaled_circuits,
        "internal_share": case.internal_share,
        "direction": case.direction,
        "exit_class": case.exit_class,
        "per_client": case.per_client,
        "scale": case.scale,
        "rules": sorted(case.rules),
        "seeds": result.seeds,
        **{
            f"{name}_{attribute}": getattr(estimate, attribute) if estimate else None
            for name, estimate in estimates.items()
            for attribute in ("mean", "deviation", "low", "high")
        },
        "links_by_parts_mean": [one.mean for one in result.by_parts],
        "links_by_parts_deviation": [one.deviation for one in result.by_parts],
    }
