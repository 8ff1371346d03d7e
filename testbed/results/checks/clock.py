"""Whether steady samples, timed by the machine's clock, cover the duration."""

from collections.abc import Iterator
from itertools import pairwise

from testbed.basics.check import Check
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S, Plan
from testbed.results.recorded import Recorded
from testbed.results.tables import Tables

DURATION_TOLERANCE = 0.01
HEARTBEAT_INTERVAL_S = 1.0
"""The time between a generator's heartbeats."""
MISSED = 1.9
"""In intervals: a longer gap means a missing sample, a shorter one a late sample."""


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check the generators' heartbeats, and the samples of connections that stay open."""
    yield heartbeat_check(plan, recorded.tables)
    yield from sample_checks(plan, recorded.tables)


def heartbeat_check(plan: Plan, tables: Tables) -> Check:
    """Whether each client's heartbeats, one a second, cover warm-up and duration.

    This reveals a clock that jumped. Heartbeats go on until all transfers have ended.
    """
    covered_s = min(
        covered(tables.delivered.filter(client=client)["time_s"].to_list(), HEARTBEAT_INTERVAL_S)
        for client in plan.clients
    )
    tolerance_s = _tolerance_s(plan, HEARTBEAT_INTERVAL_S)
    return Check(
        name="duration by the machine's clock",
        expected=f"heartbeats of {plan.traffic_s:g} s, less {tolerance_s:g} s at most",
        observed=f"{covered_s:.2f} s",
        ok=covered_s >= plan.traffic_s - tolerance_s,
    )


def sample_checks(plan: Plan, tables: Tables) -> Iterator[Check]:
    """Whether connections that circuits keep open were sampled all the time, at both ends.

    This reveals a sampler that could not keep up, and a connection that ended early.
    """
    tolerance_s = _tolerance_s(plan, LEAST_SAMPLE_INTERVAL_S)
    for pair in plan.crossed_pairs:
        ends = (pair, pair[::-1])
        sampled = [tables.sockets.filter(node=node, peer=peer)["time_s"] for node, peer in ends]
        covered_s = min(
            covered(times_s.unique().sort().to_list(), LEAST_SAMPLE_INTERVAL_S)
            for times_s in sampled
        )
        yield Check(
            name=f"samples of {pair[0]} to {pair[1]}",
            expected=f"{plan.duration_s:g} s, {tolerance_s:g} s more or less",
            observed=f"{covered_s:.2f} s",
            ok=abs(covered_s - plan.duration_s) <= tolerance_s,
        )


def _tolerance_s(plan: Plan, interval_s: float) -> float:
    """The tolerance, which allows for a duration that is no multiple of the interval."""
    return max(DURATION_TOLERANCE * plan.duration_s, interval_s)


def covered(times_s: list[float], interval_s: float) -> float:
    """How many seconds samples cover: each stands for the time to the next one.

    A sample may be late. But if the next one is missing, it stands for one interval only, so a gap
    does not count, wherever it is.
    """
    steps_s = (later - earlier for earlier, later in pairwise(times_s))
    whole_s = sum(step if step < MISSED * interval_s else interval_s for step in steps_s)
    return whole_s + interval_s if times_s else 0.0
