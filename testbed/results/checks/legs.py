"""Conflux: whether each leg had its own connection, if the variant promises one per circuit."""

from collections.abc import Iterator

import polars

from testbed.basics.check import Check
from testbed.plan.choices import LEGS
from testbed.plan.model import Plan
from testbed.results.recorded import Recorded


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check the exits at which the clients' linked sets end."""
    if plan.tor.conflux and plan.tor.connection_rule.most is None:
        yield from leg_checks(plan, recorded.tables.queues)


def leg_checks(plan: Plan, queues: polars.DataFrame) -> Iterator[Check]:
    """Whether each leg had a connection to itself, by the cells that left the exit.

    Before and after measuring a probe takes one leg only, so the other would not show.
    """
    exits = [path[-1] for path in plan.paths.values()]
    for exit_relay in dict.fromkeys(exits):
        circuits = queues.filter(relay=exit_relay).group_by("connection")
        on_each = circuits.agg(polars.n_unique("queue"))["queue"].to_list()
        legs, most = LEGS * exits.count(exit_relay), max(on_each, default=0)
        yield Check(
            name=f"connections of {exit_relay} that carried legs",
            expected=f"{legs}, each with one",
            observed=f"{len(on_each)}, with at most {most} on one",
            ok=len(on_each) == legs and most == 1,
        )
