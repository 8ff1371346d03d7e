"""Simulations of cases: circuits drawn for each seed, or the closed form, and means over seeds."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import repeat, zip_longest
from typing import NamedTuple

from salsa.cases import MIXTURE, Case
from salsa.drawing import draw
from salsa.expected import expected
from salsa.links import MOST_PARTS, Counts, LinkCounts, count_links
from salsa.positions import exits_by_class, positions
from testbed.network.consensus import Consensus
from testbed.network.finding import cores, processes
from testbed.network.positions import relay_classes

_WORTH_PROCESSES = 30_000_000
"""The number of circuits from which processes pay off: drawing takes five seconds, a start one."""


@dataclass(frozen=True)
class Estimate:
    """The mean over simulations, with standard deviation and 95 % confidence interval of the mean.

    A single simulation and the closed form have neither deviation nor interval.
    """

    mean: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """The estimate from the values of at least one simulation."""
        if len(values) < 2:
            return cls(values[0])
        # Importing SciPy takes as long as drawing a million circuits.
        from analysis.statistics import mean_interval

        interval = mean_interval(values)
        low, high = interval or (None, None)
        return cls(statistics.fmean(values), statistics.stdev(values), low, high)


class Shares(NamedTuple):
    """The number of links, and the number and percentage of shared ones."""

    links: Estimate
    shared: Estimate
    percent: Estimate

    @classmethod
    def over(cls, links: Sequence[float], shared: Sequence[float]) -> "Shares":
        """The shares over simulations, from the numbers of each."""
        percents = [100 * part / whole for part, whole in zip(shared, links, strict=True)]
        return cls(Estimate.of(links), Estimate.of(shared), Estimate.of(percents))


@dataclass(frozen=True)
class ConsensusCounts:
    """The consensus in which a case was simulated.

    Attributes:
        consensus, day: its name, and the day from which it was valid.
        relays, guards, exits: their numbers; if the case has an exit class, only its exits count.
    """

    consensus: str
    day: str
    relays: int
    guards: int
    exits: int


@dataclass(frozen=True)
class Result:
    """The result of a case in the network of a consensus.

    Attributes:
        seeds: the number of simulations; 0 for the closed form.
        links, guard_middle, middle_exit: the links of all parts of circuits, of their first parts
            and of their second parts.
        circuits_with_one, circuits_with_two: circuits with so many parts on shared links; None if
            the closed form has no value.
        by_parts: the numbers of links with 1, 2, … circuit parts, up to `MOST_PARTS`; empty if the
            closed form has no values.
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
        """The main result: shared links, in percent of the links."""
        return self.links.percent


Job = tuple[Consensus, Case]


def simulate_all(
    jobs: Sequence[Job],
    seeds: int,
    *,
    closed_form: bool = False,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """Simulate cases, on all cores if that is faster, and return the results in their order.

    Args:
        seeds: the number of simulations of each case, with the seeds 1 to `seeds`.
        closed_form: compute the expected values instead.
        tell: called with the number of cases that are done.

    Raises:
        InputError: a consensus lacks what a case needs.
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
            draw(
                chances,
                case.scaled_circuits,
                per_client=case.per_client,
                guards=case.guards,
                seed=seed,
            ),
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
    """Compute the mean of `simulate` over all seeds, in closed form."""
    found = expected(
        positions(consensus, case),
        case.scaled_circuits,
        per_client=case.per_client,
        guards=case.guards,
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
    """The results for programs: flat mappings, with a key for each part of an estimate."""
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


def _shares(counted: Sequence[LinkCounts], of: Callable[[LinkCounts], Counts]) -> Shares:
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
        "guards_per_client": case.guards,
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
