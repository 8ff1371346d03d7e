"""Whether relays had, all the time, the connections between them that the variant promises.

The checks are queries over `queues` (which circuit had cells on which connection in which second)
and over `relays` (how many connections each relay had opened).
"""

from collections.abc import Iterable, Iterator

import polars

from testbed.basics.check import Check
from testbed.plan.model import Plan
from testbed.results.recorded import Recorded


def checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """Check how many connections there were, or that circuits didn't share them.

    Where only some relays have the variant, connections count that one of them opened; if it opens
    them only to its like, the others' must be as Tor has them.
    """
    most = plan.tor.connection_rule.most
    relays, some = recorded.tables.relays, plan.tor.at_relays
    if most is not None:
        yield connections_check(relays if some is None else _of(relays, some), most)
        return
    used = relay_connections(recorded.tables.queues)
    if some is not None:
        both = [polars.col(end).is_in(list(some)) for end in ("peer", "relay")]
        used = used.filter(both if plan.tor.needs_both_ends else both[0])
    yield sharing_check(used)
    if some is not None and plan.tor.needs_both_ends:
        others = [one.name for one in plan.of_kind("relay") if one.name not in some]
        yield connections_check(_of(relays, others))


def _of(table: polars.DataFrame, relays: Iterable[str]) -> polars.DataFrame:
    return table.filter(polars.col("relay").is_in(list(relays)))


def relay_connections(queues: polars.DataFrame) -> polars.DataFrame:
    """The connection between two relays that each circuit crossed, and when.

    A circuit has the same number at both ends of a connection. So the relay with that number
    towards the server comes before the relay with it towards the client. (Numbers are random, out
    of 2^31, so two connections hardly ever share one.)

    Returns:
        A row for each circuit on each connection: relay (which reports it), peer (the relay before
        it), connection, queue, first_s, last_s.
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

    Two overlap if each had cells after the other one's first second and before its last: Tor
    reports a second when it is over, so a circuit and its successor may share one second.
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
    """Whether no relay has opened more connections to another than it may, by the kernel's count.

    Two relays that connect to each other at once open one each, and Tor keeps both as long as
    circuits use them, in either direction. So only connections that the relay opened count.
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
