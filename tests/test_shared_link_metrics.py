"""What the connections on the shared link have, of made-up tables whose numbers are known."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from made_runs import Made, Recorded

from study.hydra.shared_link import METRICS
from testbed.results import read_run

SAMPLES = [
    {"node": "exit1", "peer": "middle1", "cwnd_segments": window, "rtt_ms": 25.0}
    for window in (20, 30, 70)
]
OTHER_END = {"node": "middle1", "peer": "exit1", "cwnd_segments": 999, "rtt_ms": 999.0}
CELLS = [
    {"relay": "exit1", "removed_cells": 100, "waited_ms": 2000},
    {"relay": "exit1", "removed_cells": 300, "waited_ms": 4000},
    {"relay": "middle1", "removed_cells": 1, "waited_ms": 9000},
]
SENT = {
    ("exit1", "middle1"): {"sent_packets": 5973, "dropped_packets": 9, "bundled_segments": 3982},
    ("server1", "exit1"): {"sent_packets": 6000, "bundled_segments": 5700},
}
"""What is counted of a direction while measuring; nothing of others."""


def links(made: Made) -> list[dict[str, Any]]:
    """The counts of all links, which began before measuring."""
    both_ways = (
        (when, tuple(ends))
        for link in made.plan()["links"]
        for when, ends in product(("before", "after"), (link["ends"], link["ends"][::-1]))
    )
    counts = ("sent_packets", "sent_bytes", "dropped_packets", "overflowed_packets")
    nothing = dict.fromkeys((*counts, "bundled_segments", "received_packets", "received_bytes"), 5)
    return [
        {"time_s": 0.0, "when": when, "sender": ends[0], "receiver": ends[1]}
        | {
            name: count + (SENT.get(ends, {}).get(name, 0) if when == "after" else 0)
            for name, count in nothing.items()
        }
        for when, ends in both_ways
    ]


def values(folder: Path, scenario: str) -> dict[str, float | None]:
    made = Made(scenario=scenario, round_trip_ms=99.6)
    sockets: list[dict[str, Any]] = [*SAMPLES, OTHER_END]
    tables = {"sockets": sockets, "queues": CELLS, "links": links(made)}
    run = Recorded(scenario=scenario, round_trip_ms=99.6, tables=tables).write(folder)
    return {metric.key: metric.of(read_run(run)) for metric in METRICS}


def test_numbers_are_of_the_end_that_sends_to_clients(tmp_path: Path) -> None:
    assert values(tmp_path, "SharedDroppingBundles") == pytest.approx(
        {
            "shared_link.window_segments.mean": 40.0,
            "shared_link.window_segments.median": 30.0,
            "shared_link.window_segments.expected": 1000**0.5,  # 9 of 2000 bundles of three
            "shared_link.round_trip_ms": 25.0,
            "shared_link.window_rate_mb_per_s": 40 * 1448 / 25e-3 / 1e6,
            "shared_link.lost_percent": 0.15,
            "shared_link.segments_in_a_bundle": 3.0,
            "server.segments_in_a_bundle": 20.0,
            "shared_link.wait_ms": 15.0,
            "cells_in_flight": 400.0,  # 2 MB/s * 99.6 ms / 498 bytes
        }
    )


def test_segments_that_cross_one_by_one_are_no_bundles(tmp_path: Path) -> None:
    found = values(tmp_path, "SharedDropping")
    assert found["shared_link.segments_in_a_bundle"] == 1.0


def test_a_network_without_a_shared_link_has_none_of_it(tmp_path: Path) -> None:
    run = read_run(Made(scenario="SmallNetwork", traffic="page").write(tmp_path))
    of_link = [metric for metric in METRICS if metric.key != "cells_in_flight"]
    assert [metric.of(run) for metric in of_link] == [None] * len(of_link)
