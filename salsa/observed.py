"""Shared links of circuits that Tor itself chose, held against the simulation of their network.

The paper did so with Shadow (section 4.4): 12.5 % seen, 12.0 % simulated. Here it is a run of a
drawn network, second by second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from analysis.whole_networks import UNDIRECTED, is_drawn, links_by_second, watches_all_relays
from salsa.cases import Case, Rule
from salsa.simulation import Estimate, simulate
from testbed.errors import InputError
from testbed.network.consensus import RELAY_COLUMNS, Consensus
from testbed.plan_model import TOR, Plan
from testbed.results import Run

LEAST_CIRCUITS = 10
"""Seconds with fewer active circuits are left out: what so few share says nothing."""

_RULES = frozenset({Rule.NO_RELAY_TWICE})
"""What Tor keeps to in the lab. It has no families there, and no exit policies but none and all."""


@dataclass(frozen=True)
class Second:
    """Shared links in one second, in percent of the links.

    Attributes:
        second: counted from 1 since measuring began.
        circuits, links: that were active.
        seen_percent: of the run.
        simulated_percent: of as many circuits, drawn by the network's weights.
        deviations: by how many standard deviations over simulations the two differ; chance alone
            gives more than 2 in one second of 20. None if simulations don't differ at all.
    """

    second: int
    circuits: int
    links: int
    seen_percent: float
    simulated_percent: Estimate
    deviations: float | None

    def record(self) -> dict[str, Any]:
        """All of it as plain data, for programs."""
        simulated = self.simulated_percent
        return {
            **{name: value for name, value in vars(self).items() if name != "simulated_percent"},
            "simulated_percent": simulated.mean,
            "simulated_deviation_percent": simulated.deviation,
        }


def held_against_simulation(
    run: Run,
    *,
    undirected: bool = False,
    seeds: int = 50,
    tell: Callable[[int], None] = lambda _: None,
) -> list[Second]:
    """Hold a run's active links against simulations of as many circuits in its own network.

    Args:
        run: of a drawn network in which Tor chose the circuits.
        undirected: whether links count the same both ways.
        seeds: simulations of each second.
        tell: called with the number of seconds that are done.

    Raises:
        InputError: the run is another one, or hardly a circuit was active.
    """
    if not is_drawn(run) or run.plan.policy.name != TOR:
        raise InputError(
            f'{run.directory}: circuits must be Tor\'s own choice: a run with topology = "sampled"'
            ' and policy = "tor"'
        )
    if not watches_all_relays(run):
        raise InputError(
            f"{run.directory}: only some of its relays were watched, so that its active circuits"
            " aren't known: leave the scenario's watch out"
        )
    consensus, case = consensus_of(run.plan), Case(undirected=undirected, rules=_RULES)
    key = UNDIRECTED if undirected else ""
    columns = ("second", "circuits", f"{key}links", f"{key}shared")
    rows = links_by_second(run).filter(pl.col("circuits") >= LEAST_CIRCUITS).select(columns)
    if rows.is_empty():
        raise InputError(f"{run.directory}: never were {LEAST_CIRCUITS} circuits active at once")
    seconds = []
    for number, (second, circuits, links, shared) in enumerate(rows.iter_rows(), 1):
        simulated = simulate(consensus, replace(case, circuits=circuits), seeds).shared_percent
        seen, deviation = 100 * shared / links, simulated.deviation
        deviations = (seen - simulated.mean) / deviation if deviation else None
        seconds.append(Second(second, circuits, links, seen, simulated, deviations))
        tell(number)
    return seconds


def consensus_of(plan: Plan) -> Consensus:
    """A drawn network as the consensus that its Tors have of it."""
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
