"""Shared links of circuits that Tor itself chose, compared with a simulation of their network.

The paper did this with Shadow (section 4.4): 12.5 % observed, 12.0 % simulated. Here it is a run of
a drawn network, second by second.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

# scipy.stats has it too, but takes half a second to import.
from scipy.special import stdtrit

from analysis.whole_networks import UNDIRECTED, is_drawn, links_by_second, watches_all_relays
from salsa.cases import Case, Rule
from salsa.simulation import Estimate, simulate
from testbed.basics.errors import InputError
from testbed.network.consensus import RELAY_COLUMNS, Consensus
from testbed.network.positions import Floats
from testbed.plan.model import Plan
from testbed.results import Run

LEAST_CIRCUITS = 10
"""The fewest active circuits of a second that counts; fewer say nothing about shared links."""

LEAST_SECONDS = 4
"""The fewest seconds of which an autocorrelation says anything."""

_RULES = frozenset({Rule.NO_RELAY_TWICE})
"""Tor's rules that matter in the lab: there, relays have no families, and exits take every port."""


@dataclass(frozen=True)
class Second:
    """Shared links in one second, in percent of the links.

    Attributes:
        second: the second of measuring, counted from 1.
        circuits, links: the active circuits and links.
        seen_percent: the share in the run.
        simulated_percent: the share of as many circuits, drawn by the network's weights.
        deviations: the difference of the two in standard deviations over simulations. None if
            simulations don't differ at all.
        simulations: how many of them there are.
    """

    second: int
    circuits: int
    links: int
    seen_percent: float
    simulated_percent: Estimate
    deviations: float | None
    simulations: int

    def record(self) -> dict[str, Any]:
        """The second as plain data, for programs."""
        simulated = self.simulated_percent
        return {
            **{name: value for name, value in vars(self).items() if name != "simulated_percent"},
            "simulated_percent": simulated.mean,
            "simulated_deviation_percent": simulated.deviation,
        }


@dataclass(frozen=True)
class Agreement:
    """Whether a run's shared links are as many as simulated ones, over all its seconds.

    Attributes:
        seconds: the number of seconds.
        effective: how many independent seconds would say as much.
        difference_points: the mean share in the run less the simulated one, in percentage points.
        interval: its 95 % confidence interval.
    """

    seconds: int
    effective: float
    difference_points: float
    interval: tuple[float, float]

    @property
    def sentence(self) -> str:
        """What this says, in words."""
        low, high = self.interval
        verdict = "no difference is shown" if low <= 0 <= high else "the two differ"
        return (
            f"Against the simulation {verdict}: {self.difference_points:+.1f} percentage points"
            f" (95 % interval: {low:+.1f} to {high:+.1f}); {self.seconds} seconds in a row are"
            f" worth {self.effective:.0f} independent ones."
        )


def agreement(seconds: Sequence[Second]) -> Agreement | None:
    """Judge all seconds of a run together; None if they are fewer than `LEAST_SECONDS`.

    Circuits last, so that seconds in a row are not independent: the n differences have the standard
    error of n / τ independent ones, with τ their integrated autocorrelation time. Simulations of
    all seconds have the same seeds, so that their error is added as one, and not averaged away.
    """
    if len(seconds) < LEAST_SECONDS:
        return None
    differences = np.array([one.seen_percent - one.simulated_percent.mean for one in seconds])
    effective = len(seconds) / autocorrelation_time(differences)
    simulated = np.mean([(one.simulated_percent.deviation or 0) ** 2 for one in seconds])
    variance = differences.var(ddof=1) / effective + simulated / seconds[0].simulations
    half = float(stdtrit(max(1.0, effective - 1), 0.975)) * math.sqrt(variance)
    mean = float(differences.mean())
    return Agreement(len(seconds), effective, mean, (mean - half, mean + half))


def autocorrelation_time(values: Floats) -> float:
    """The integrated autocorrelation time of a series, in its steps; 1 if nothing lasts.

    Its sum 1 + 2 (r(1) + r(2) + …) ends where two autocorrelations in a row add up to nothing
    (C. J. Geyer, Practical Markov Chain Monte Carlo; Statistical Science 7, 1992, section 3.3: the
    initial positive sequence). It is at most the series' length, and at least 1.
    """
    count = len(values)
    centred = values - values.mean()
    covariances = np.correlate(centred, centred, "full")[count - 1 :] / count
    if covariances[0] <= 0:
        return 1.0
    correlations = covariances / covariances[0]
    time = -1.0
    for lag in range(0, count - 1, 2):
        pair = float(correlations[lag] + correlations[lag + 1])
        if pair <= 0:
            break
        time += 2 * pair
    return min(max(1.0, time), float(count))


def compared_with_simulation(
    run: Run,
    *,
    undirected: bool = False,
    seeds: int = 50,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Second]:
    """Compare a run's active links with simulations of as many circuits in the same network.

    Args:
        run: a run of a drawn network in which Tor chose the circuits.
        undirected: count both directions of a link as one.
        seeds: the number of simulations of each second.
        tell: called with the number of seconds that are done.

    Raises:
        InputError: it is a run of another kind, or too few circuits were active.
    """
    if not is_drawn(run) or not run.plan.policy.is_tors:
        raise InputError(
            f'{run.directory}: circuits must be Tor\'s own choice: a run with topology = "sampled"'
            ' and policy = "tor"'
        )
    if not watches_all_relays(run):
        raise InputError(
            f"{run.directory}: only some of its relays were watched, so its active circuits aren't"
            " known: leave the scenario's watch out"
        )
    consensus, case = consensus_of(run.plan), case_of(run.plan, undirected=undirected)
    key = UNDIRECTED if undirected else ""
    columns = ("second", "circuits", f"{key}links", f"{key}shared")
    compared = (pl.col("circuits") >= LEAST_CIRCUITS) & (pl.col(f"{key}links") > 0)
    rows = links_by_second(run).filter(compared).select(columns)
    if rows.is_empty():
        raise InputError(f"{run.directory}: in no second were {LEAST_CIRCUITS} circuits active")
    seconds = []
    for number, (second, circuits, links, shared) in enumerate(rows.iter_rows(), 1):
        simulated = simulate(consensus, replace(case, circuits=circuits), seeds).shared_percent
        seen, deviation = 100 * shared / links, simulated.deviation
        deviations = (seen - simulated.mean) / deviation if deviation else None
        seconds.append(Second(second, circuits, links, seen, simulated, deviations, seeds))
        tell(number)
    return seconds


def case_of(plan: Plan, *, undirected: bool = False) -> Case:
    """The circuits of a run whose Tors chose them: clients keep to guards if its plan says so.

    A second has few circuits for each client, so that each is taken to be of a client of its own.
    """
    return Case(undirected=undirected, rules=_RULES, guards=plan.guards_to_use or 1)


def consensus_of(plan: Plan) -> Consensus:
    """The consensus of a drawn network, as its Tors have it."""
    rows = [
        {
            "weight": relay.weight,
            "guard": "guard" in relay.flags,
            "exit": "exit" in relay.flags,
            "bad_exit": False,
            "fast": True,
            "stable": True,
            "v2dir": True,
            "network16": number,
            "country": relay.country,
        }
        for number, relay in enumerate(plan.of_kind("relay"))
    ]
    return Consensus(
        name=f"{plan.scenario}, seed {plan.seed}",
        valid_after=datetime.fromtimestamp(0, UTC),
        flavour="microdesc",
        bandwidth_weights=plan.bandwidth_weights,
        relays=pl.DataFrame(rows, schema=RELAY_COLUMNS),
    )
