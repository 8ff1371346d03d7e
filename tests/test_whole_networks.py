"""What a drawn network's run tells, from made rows: circuits, shared links, relays' use."""

from types import SimpleNamespace
from typing import cast

import polars
import pytest

from analysis.whole_networks import links_by_second, relays_use, shared_percent
from testbed.network.model import Node
from testbed.results import Run
from testbed.results.tables import SCHEMAS

START_S = 1000.0


def cells(at_s: float, relay: str, queue: int, next_queue: int | None) -> dict[str, object]:
    """A row of `queues`: a circuit's cells at one relay; its numbers on both sides of it."""
    return {
        "time_s": START_S + at_s,
        "relay": relay,
        "queue": f"{queue}",
        "connection": "1",
        "next_queue": next_queue and f"{next_queue}",
        "next_connection": next_queue and "2",
        "removed_cells": 5,
        "waited_ms": 0,
    }


def circuit(number: int, path: tuple[str, str, str], *seconds: float) -> list[dict[str, object]]:
    """All three relays' rows; relays tell of a second at times of their own."""
    guard, middle, exit_relay = path
    return [
        row
        for at_s in seconds
        for row in (
            cells(at_s, guard, number, number + 1),
            cells(at_s + 0.2, middle, number + 1, number + 2),
            cells(at_s + 0.4, exit_relay, number + 2, None),
        )
    ]


def made_run(rows: list[dict[str, object]], watched: str = "abcd") -> Run:
    queues = polars.DataFrame(rows, schema=SCHEMAS["queues"])
    plan = SimpleNamespace(relays_with_queues=[*watched], of_kind=lambda _kind: [*"abcd"])
    return cast(Run, SimpleNamespace(queues=queues, measuring_start_s=START_S, plan=plan))


def test_links_are_shared_where_several_circuits_are_active_in_a_second() -> None:
    run = made_run(
        [
            *circuit(10, ("a", "b", "c"), 0.1, 1.1),
            *circuit(20, ("a", "b", "d"), 1.1),
            # The other way over the link of a and b.
            *circuit(30, ("b", "a", "d"), 0.1, 2.1),
        ]
    )
    seconds = links_by_second(run)
    assert seconds["second"].to_list() == [0, 1, 2]
    assert seconds["circuits"].to_list() == [2, 2, 1]
    # a-b, b-c, b-a, a-d; then a-b with two circuits, b-c, b-d; then b-a, a-d.
    assert seconds["links"].to_list() == [4, 3, 2]
    assert seconds["shared"].to_list() == [0, 1, 0]
    assert seconds["undirected_links"].to_list() == [3, 3, 2]
    assert seconds["undirected_shared"].to_list() == [1, 1, 0]
    assert shared_percent(run) == pytest.approx(100 / 9)
    assert shared_percent(run, "undirected_") == pytest.approx(200 / 8)


def test_of_relays_that_are_watched_the_links_between_them_count() -> None:
    rows = [*circuit(10, ("a", "b", "c"), 0.1), *circuit(20, ("a", "b", "d"), 0.1)]
    run = made_run([row for row in rows if row["relay"] in ("a", "b")], watched="ab")
    (second,) = links_by_second(run).to_dicts()
    assert (second["links"], second["shared"], second["circuits"]) == (1, 1, None)


def test_without_cells_nothing_is_active() -> None:
    run = made_run([])
    assert links_by_second(run).is_empty()
    assert shared_percent(run) is None


def test_a_relays_use_is_what_it_sent_by_its_rate() -> None:
    relay = Node(
        name="relay1", kind="relay", flags=("exit",), weight=7, rate_up_bit_per_s=1_000_000
    )
    readings = [("before", 10.0, 1_000), ("after", 20.0, 126_000)]
    rows = [
        {"time_s": time_s, "when": when, "sender": "relay1", "receiver": "r", "sent_bytes": sent}
        for when, time_s, sent in readings
    ]
    plan = SimpleNamespace(of_kind=lambda _kind: [relay])
    run = cast(Run, SimpleNamespace(links=polars.DataFrame(rows), plan=plan))
    (use,) = relays_use(run).to_dicts()
    assert (use["relay"], use["relay_class"]) == ("relay1", "exit")
    assert use["sent_bit_per_s"] == pytest.approx(100_000)
    assert use["use"] == pytest.approx(0.1)
