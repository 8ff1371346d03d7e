"""What must hold between all pairs of relays that are watched: value, bound and verdict as data.

They are queries over `queues`, which circuit had cells on which connection in which second, and
over `relays`, how many connections each relay had opened.
"""

from collections.abc import Iterator

import polars

from testbed.check import Check
from testbed.plan_model import Plan, Tor
from testbed.results.tables import Tables

PER_CIRCUIT = "one connection per circuit"


def invariants(plan: Plan, tables: Tables) -> Iterator[Check]:
    """Those of a network whose relays are all watched."""
    if plan.shared_link:
        return
    used = relay_connections(tables.queues)
    most = most_connections(plan.tor)
    yield sharing_check(used) if most is None else connections_check(tables.relays, most)


def most_connections(tor: Tor) -> int | None:
    """How many connections a relay may open to another; None: one for each circuit.

    A number that the variant says holds whatever it extends, as on a shared link.
    """
    if most := tor.connections_per_pair or tor.per_circuit_up_to:
        return most
    return None if tor.premise == PER_CIRCUIT else 1


def relay_connections(queues: polars.DataFrame) -> polars.DataFrame:
    """Which circuit crossed which connection between two relays, and when.

    A circuit has one number on a connection, whichever end tells of it. So the relay that has that
    number towards the server is the one before the relay that has it towards the client. (Numbers
    are drawn by chance from 2^31, so that two connections hardly ever have the same.)

    Returns:
        A row for each circuit on each connection: relay (the one that tells of it), peer (the one
        before it), connection, queue, first_s, last_s.
    """
    towards_server = queues.select(
        polars.col("relay").alias("peer"), polars.col("next_queue").alias("queue")
    ).drop_nulls()
    return (
        queues.join(towards_server.unique(), on="queue")
        .filter(polars.col("relay") != polars.col("peer"))
        .group_by("relay", "peer", "connection", "queue")
        .agg(
            polars.col("time_s").min().alias("first_s"), polars.col("time_s").max().alias("last_s")
        )
        .sort("relay", "peer", "connection", "queue")
    )


def sharing_check(used: polars.DataFrame) -> Check:
    """Whether no connection between two relays carries two circuits at once.

    At once they are if each had cells after the other one's first second and before its last: Tor
    tells of a second when it is over, so that one after the other may meet in one.
    """
    pairs = used.join(used, on=["relay", "connection"]).filter(
        polars.col("queue") < polars.col("queue_right"),
        polars.max_horizontal("first_s", "first_s_right")
        < polars.min_horizontal("last_s", "last_s_right") - 1.0,
    )
    shared = pairs.select("relay", "connection").unique().height
    connections = used.select("relay", "connection").unique().height
    relay_pairs = used.select("relay", "peer").unique().height
    return Check(
        name="relay connections with several circuits at once",
        expected="none",
        observed=(
            f"{shared}; {connections} connections of {relay_pairs} pairs of relays,"
            f" {used.height} circuits on them"
        ),
        ok=shared == 0 if used.height else None,
        value={
            "value": shared,
            "connections": connections,
            "relay_pairs": relay_pairs,
            "circuits": used.height,
        },
        bound={"value": 0},
    )


def connections_check(relays: polars.DataFrame, bound: int = 1) -> Check:
    """Whether no relay has opened more connections to another than it may, by the kernel's account.

    Two relays that ask for each other at once open one each, and Tor keeps both as long as circuits
    use them, in either direction. So it counts who opened them.
    """
    opened = [count for count in relays["most_opened_to_one"] if count is not None]
    most = max(opened, default=0)
    return Check(
        name="most connections that a relay has opened to another",
        expected=f"at most {bound}",
        observed=str(most),
        ok=most <= bound if opened else None,
        value={"value": most},
        bound={"value": bound},
    )
