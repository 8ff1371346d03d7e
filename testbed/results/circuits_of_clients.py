"""How many circuits clients made and used, and by which rule their streams got them."""

import polars

from testbed.inside.policies.interface import PROBE_PORT, REFUSED_ADDRESS
from testbed.plan.model import Plan
from testbed.results.tables import HasTables

PROBE_BYTES = 2 * 514
"""What a policy's probe puts on a link: a BEGIN and an END cell, as the exit refuses it."""


def carried_streams(tables: HasTables) -> polars.DataFrame:
    """The traffic's streams that a circuit carried, a row each, without probes of any kind."""
    return (
        tables.streams.filter(status="SUCCEEDED")
        .filter(~polars.col("target").str.ends_with(f":{PROBE_PORT}"))
        .unique(["client", "stream"], keep="last", maintain_order=True)
    )


def made_by_client(plan: Plan, tables: HasTables) -> polars.Series:
    """How many circuits for streams each client built, in the plan's order."""
    return _by_client(plan, tables.circuits.filter("for_streams", status="BUILT"))


def build_times_ms(tables: HasTables, traffic_start_s: float) -> polars.Series:
    """How long each circuit for streams took that was built, from its launch to its last hop.

    Circuits that failed or that their client gave up are none of these, nor those that Tors
    launched before there was traffic, all clients at once.

    Args:
        traffic_start_s: Unix time on the machine's clock at which the warm-up begins.
    """
    of_streams = tables.circuits.filter("for_streams", polars.col("time_s") >= traffic_start_s)
    launched, built = (
        of_streams.filter(status=status).select("client", "circuit", "time_s")
        for status in ("LAUNCHED", "BUILT")
    )
    both = built.join(launched, on=["client", "circuit"], suffix="_launched").rechunk()
    return (both["time_s"] - both["time_s_launched"]) * 1000  # in one chunk on any number of cores


def used_by_client(plan: Plan, tables: HasTables) -> polars.Series:
    """On how many circuits each client had streams of the traffic, in the plan's order."""
    return _by_client(plan, carried_streams(tables))


def streams_by_rule(tables: HasTables) -> dict[str, int]:
    """How many of these streams each rule gave a circuit."""
    counted = carried_streams(tables).drop_nulls("rule").group_by("rule").len().sort("rule")
    return dict(counted.iter_rows())


def streams_by_liars(plan: Plan, tables: HasTables) -> int | None:
    """How many of these streams had a relay that lies about round trips; None without liars."""
    if not plan.policy.liars:
        return None
    relays = polars.col("path").str.split(",")
    lying = relays.list.set_intersection(list(plan.policy.liars)).list.len() > 0
    return carried_streams(tables).drop_nulls("path").filter(lying).height


def probes(tables: HasTables) -> int:
    """How many probes policies sent."""
    probed = polars.col("target").str.starts_with(f"{REFUSED_ADDRESS}:")
    return tables.streams.filter(probed, status="NEW").height


def _by_client(plan: Plan, rows: polars.DataFrame) -> polars.Series:
    counts = dict(rows.group_by("client").agg(polars.col("circuit").n_unique()).iter_rows())
    return polars.Series([counts.get(client, 0) for client in plan.clients], dtype=polars.Int64)
