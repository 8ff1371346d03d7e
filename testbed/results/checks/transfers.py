"""Whether every client completed a transfer."""

from collections.abc import Iterator

import polars

from testbed.basics.check import Check
from testbed.inside.traffic.models import first_pause_s, generator_seed
from testbed.plan.model import Plan
from testbed.results.recorded import Recorded

BEGINNING_S = 1.0
"""A client that should begin this shortly before the end may begin after it."""


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check all clients' transfers."""
    end_s = recorded.measuring_start_s + plan.duration_s
    yield client_check(plan, recorded.tables.transfers.filter(polars.col("start_s") < end_s))


def client_check(plan: Plan, transfers: polars.DataFrame) -> Check:
    """Whether every client completed a transfer that began before measuring ended.

    A client whose first pause lasts until then has none to complete.

    Args:
        transfers: those that began before measuring ended, in the warm-up too: a client may be in
            a pause as long as the run measures.
    """
    done = set(transfers.filter("ok")["client"])
    without = [
        client
        for client, model in plan.traffic_by_client.items()
        if client not in done
        and first_pause_s(model, generator_seed(plan.seed, client)) < plan.traffic_s - BEGINNING_S
    ]
    return Check(
        name="clients without a completed transfer",
        expected="none",
        observed=", ".join(without) or "none",
        ok=not without,
    )
