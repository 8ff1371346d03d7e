"""Results of drawn networks, from made rows: circuits, shared links, relays' use, client classes.

Their tables, figures and comparisons are tested here, too.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars
import pytest
from made_runs import START_S, Recorded, at
from plotted import curves, points

from analysis import style, whole_networks
from analysis.comparison import compare_groups, records
from analysis.figures import Part, distributions, over_time, plots, relays_use
from analysis.metrics.networks import CIRCUITS_GIVEN_UP
from analysis.runs import find_runs
from analysis.tables import run_tables
from analysis.whole_networks import (
    UNDIRECTED,
    client_class,
    links_by_second,
    models_of,
    network_use,
    shared_percent,
)
from testbed.asked.plans import make_plan
from testbed.basics.check import Check
from testbed.inside.traffic.models import first_pause_s, generator_seed
from testbed.plan.network import Node
from testbed.results import Run, read_run
from testbed.results.checks.transfers import client_check
from testbed.results.tables import SCHEMAS


def cells(at_s: float, relay: str, queue: int, next_queue: int | None) -> dict[str, object]:
    """A row of `queues`: a circuit's cells at a relay, and the circuit's numbers on both sides."""
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


def circuit(number: int, path: tuple[str, str, str], *seconds: int) -> list[dict[str, object]]:
    """The rows of all three relays, in seconds counted from 1. As in real runs, a relay reports a
    second when it is over, some milliseconds before or after the full second."""
    guard, middle, exit_relay = path
    return [
        row
        for second in seconds
        for early in [0.003 * (-1) ** second]
        for row in (
            cells(second - early, guard, number, number + 1),
            cells(second + early, middle, number + 1, number + 2),
            cells(second + 0.02, exit_relay, number + 2, None),
        )
    ]


def made_run(rows: list[dict[str, object]], watched: str = "abcd", duration_s: float = 4.0) -> Run:
    queues = polars.DataFrame(rows, schema=SCHEMAS["queues"])
    plan = SimpleNamespace(
        recorded_relays=[*watched], of_kind=lambda _kind: [*"abcd"], duration_s=duration_s
    )
    return cast(Run, SimpleNamespace(queues=queues, measuring_start_s=START_S, plan=plan))


def test_links_are_shared_where_several_circuits_are_active_in_a_second() -> None:
    run = made_run(
        [
            *circuit(10, ("a", "b", "c"), 1, 2),
            *circuit(20, ("a", "b", "d"), 2),
            # The other direction of the link of a and b.
            *circuit(30, ("b", "a", "d"), 1, 3),
        ]
    )
    seconds = links_by_second(run)
    assert seconds["second"].to_list() == [1, 2, 3]
    assert seconds["circuits"].to_list() == [2, 2, 1]
    # a-b, b-c, b-a, a-d; then a-b with two circuits, b-c, b-d; then b-a, a-d.
    assert seconds["links"].to_list() == [4, 3, 2]
    assert seconds["shared"].to_list() == [0, 1, 0]
    assert seconds["undirected_links"].to_list() == [3, 3, 2]
    assert seconds["undirected_shared"].to_list() == [1, 1, 0]
    assert shared_percent(seconds) == pytest.approx(100 / 9)
    assert shared_percent(seconds, UNDIRECTED) == pytest.approx(200 / 8)


def test_links_between_watched_relays_count() -> None:
    rows = [*circuit(10, ("a", "b", "c"), 1), *circuit(20, ("a", "b", "d"), 1)]
    of_both = [row for row in rows if row["relay"] in ("a", "b")]
    run = made_run(of_both, watched="ab", duration_s=2.0)
    (second,) = links_by_second(run).to_dicts()
    assert (second["links"], second["shared"], second["circuits"]) == (1, 1, None)


def test_without_cells_nothing_is_active() -> None:
    seconds = links_by_second(made_run([]))
    assert seconds["second"].to_list() == [1, 2, 3]
    assert seconds["circuits"].to_list() == seconds["links"].to_list() == [0, 0, 0]
    assert shared_percent(seconds) is None


def test_seconds_that_not_all_relays_report_do_not_count() -> None:
    """The second before measuring, and the last one, which some relays report too late."""
    rows = circuit(10, ("a", "b", "c"), 0, 1, 4, 5)
    seconds = links_by_second(made_run(rows))
    assert seconds["circuits"].to_list() == [1, 0, 0]
    assert seconds["links"].to_list() == [2, 0, 0]


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
    (use,) = whole_networks.relays_use(run).to_dicts()
    assert (use["relay"], use["relay_class"]) == ("relay1", "exit")
    assert use["sent_bit_per_s"] == pytest.approx(100_000)
    assert use["use"] == pytest.approx(0.1)


def test_a_relays_use_begins_with_measuring() -> None:
    relay = Node(name="relay1", kind="relay", rate_up_bit_per_s=1_000_000)
    readings = [("before", 10.0, 1_000), ("measuring", 20.0, 126_000), ("after", 30.0, 126_000)]
    rows = [
        {"time_s": time_s, "when": when, "sender": "relay1", "receiver": "r", "sent_bytes": sent}
        for when, time_s, sent in readings
    ]
    plan = SimpleNamespace(of_kind=lambda _kind: [relay])
    run = cast(Run, SimpleNamespace(links=polars.DataFrame(rows), plan=plan))
    assert whole_networks.relays_use(run)["use"].to_list() == [0.0]


def test_a_processors_use_is_the_share_of_the_time_in_which_it_was_busy() -> None:
    relays = [
        Node(name=name, kind="relay", rate_up_bit_per_s=10**6) for name in ("relay1", "relay2")
    ]
    seconds = [{"node": "relay1", "lasted_s": 1.0, "busy_s": busy_s} for busy_s in (0.25, 0.75)]
    plan = SimpleNamespace(of_kind=lambda _kind: relays)
    run = cast(Run, SimpleNamespace(processors=polars.DataFrame(seconds), plan=plan))
    (use,) = whole_networks.processors_use(run).to_dicts()
    assert (use["relay"], use["use"]) == ("relay1", 0.5)


def test_a_client_whose_first_pause_outlasts_the_run_completes_nothing() -> None:
    none = {"warm_up": "0 s"}
    plan = make_plan("SmallNetwork", "vanilla", duration="10 s", changes=none)
    check = client_check(plan, polars.DataFrame(schema=SCHEMAS["transfers"]))
    assert not check.ok
    waits_s = {
        client: first_pause_s(model, generator_seed(plan.seed, client))
        for client, model in plan.traffic_by_client.items()
    }
    assert check.observed.split(", ") == [client for client in waits_s if waits_s[client] < 9]
    assert 10 < len(check.observed.split(", ")) < len(waits_s)
    warmed_up = make_plan("SmallNetwork", "vanilla", duration="10 s")
    check = client_check(warmed_up, polars.DataFrame(schema=SCHEMAS["transfers"]))
    assert check.observed.split(", ") == [*waits_s]


# Whole runs.

DURATION_S = 60.0


def written(folder: Path, variant: str, seed: int, changed: Mapping[str, Any] = {}) -> Run:
    """A run of SmallNetwork with rows that can be worked out by hand.

    Two circuits share the link of relay1 and relay7 in its first second, and one of them goes on;
    relay1 sends a hundredth of what it could, the others nothing. A client under test gets 600 kB
    in the time that was measured, in pctls twice as much, and as much again afterwards.
    """
    kb = 600 * (2 if variant == "pctls" else 1)
    made = Recorded(
        *(variant, "SmallNetwork", seed, "page"),
        time_s=2.0 * seed,
        duration_s=DURATION_S,
        changed=changed,
        tables={
            "circuits": [],
            "queues": [
                *circuit(10, ("relay1", "relay7", "relay5"), 1, 2),
                *circuit(20, ("relay1", "relay7", "relay6"), 1),
            ],
            "delivered": [
                {"client": "client1", "time_s": START_S + at_s, "received_bytes": 1000 * kb}
                for at_s in (DURATION_S / 2, DURATION_S + 1)
            ],
            "sockets": [
                at(0.0, node="relay1", peer="relay7", port=9001, peer_port=7, cwnd_segments=10),
                at(0.0, node="relay7", peer="relay1", port=7, peer_port=9001, cwnd_segments=20),
            ],
        },
    )
    plan = read_run(made.write(folder / "only-for-its-plan")).plan
    links = [
        {"when": when, "sender": relay.name, "receiver": "r", "time_s": time_s, "sent_bytes": sent}
        for when, time_s, share in (("before", START_S, 0.0), ("after", START_S + 10, 0.01))
        for relay in plan.of_kind("relay")
        for sent in [round(share * (relay.rate_up_bit_per_s or 0) * 10 / 8)]
        for sent in [sent if relay.name == "relay1" else 0]
    ]
    return read_run(
        Recorded(**{**vars(made), "tables": {**made.tables, "links": links}}).write(folder)
    )


def test_a_run_of_a_drawn_network(tmp_path: Path) -> None:
    run = written(tmp_path, "vanilla", 1)
    assert models_of(run) == ["page", "bulk5mib"]
    page = client_class(run, "page")
    assert page is not None
    # Two whole transfers and one that failed of each client.
    assert (page.clients, page.transfers, page.failed) == (38, 114, 38)
    assert page.last_byte_s == {"25 %": 2.0, "median": 2.0, "75 %": 2.0, "95 %": 2.0}
    assert page.goodput_kb_per_s == pytest.approx(600 / 38 / DURATION_S)
    assert client_class(run, "web") is None
    use = network_use(run)
    seconds = DURATION_S - 1
    assert (use.active_circuits, use.active_links) == pytest.approx((3 / seconds, 5 / seconds))
    assert use.undirected_links == pytest.approx(5 / seconds)
    assert (use.shared_percent, use.undirected_shared_percent) == (20.0, 20.0)
    assert use.mean_use_percent == pytest.approx(0.1, rel=1e-3)
    assert use.busiest_use_percent == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("late_s", [-0.001, 0.009])
def test_goodput_is_of_whole_seconds(tmp_path: Path, late_s: float) -> None:
    """Heartbeats of a generator that began shortly before or after measuring."""
    beats = [
        {"client": "client1", "time_s": START_S + second + late_s, "received_bytes": 38_000}
        for second in range(1, 64)
    ]
    made = Recorded(
        *("vanilla", "SmallNetwork", 1, "page"),
        duration_s=DURATION_S,
        tables={"circuits": [], "delivered": beats},
    )
    page = client_class(read_run(made.write(tmp_path)), "page")
    assert page is not None
    assert page.goodput_kb_per_s == pytest.approx(1)


def test_tables_and_comparisons_know_classes_relays_and_links(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        for variant in ("vanilla", "pctls"):
            written(tmp_path / "runs", variant, seed)
    found = find_runs(tmp_path / "runs" / "SmallNetwork-page")
    tables = {table.title: table for table in run_tables(found)}
    classes = tables["Drawn networks: what clients got, by class"]
    assert [row[:5] for row in classes.rows] == [
        ("SmallNetwork", variant, model, clients, "3")
        for variant in ("vanilla", "pctls")
        for model, clients in (("page", "38 ± 0"), ("bulk5mib", "2 ± 0"))
    ]
    links = tables["Drawn networks: links and relays"]
    assert links.rows[0][:6] == (
        "SmallNetwork",
        "vanilla",
        "3",
        "0.051 ± 0.000",
        "0.085 ± 0.000",
        "20.0 ± 0.0",
    )
    compared = {row["metric"]: row for row in records(compare_groups(found.valid)[1])}
    assert compared["by_class.page.goodput_kb_per_s"]["change"] == pytest.approx(1)
    last_byte = compared["by_class.page.time_to_last_byte_s.p95"]
    assert last_byte["before"] == {1: 2.0, 2: 4.0, 3: 6.0}  # each seed has its own network
    assert last_byte["verdict"] == "nearly equal"
    assert compared["by_class.bulk5mib.failed_percent"]["first_mean"] == pytest.approx(100 / 3)
    for metric in (
        *("active_circuits", "active_links", "shared_links_percent"),
        *("shared_undirected_links_percent", "relays_use_percent.mean", "relays_use_percent.max"),
    ):
        assert compared[metric]["first_mean"] > 0


def test_figures_of_drawn_networks(tmp_path: Path) -> None:
    for seed in (1, 2):
        written(tmp_path / "runs", "vanilla", seed)
    groups = find_runs(tmp_path / "runs" / "SmallNetwork-page").valid
    looks = style.looks(["vanilla"])
    (of_map,) = plots(Part.SCENARIO, groups, looks)
    assert of_map.name == "map-SmallNetwork-seed-1"
    (of_relays,) = relays_use.plots(groups, looks)
    by_class = {name: points(line) for name, line in curves(of_relays.figure.axes[0]).items()}
    assert {name: len(its) for name, its in by_class.items()} == {
        **{"guard": 8, "exit": 2, "both": 2},
        "middle": 8,
    }
    assert max(use for its in by_class.values() for _, use in its) == pytest.approx(1, rel=1e-3)
    plotted = {plot.name: plot.figure for plot in distributions.plots(groups, looks)}
    of_times = plotted["time-to-last-byte-by-class-sampled-60s"].axes
    assert [label for panel in of_times if (label := panel.get_ylabel())] == [
        f"{model}:\nshare of transfers" for model in ("bulk5mib", "page")
    ]
    # Tor builds its circuits by itself, so there are no build times.
    labels = [panel.get_xlabel() for panel in plotted["distributions-page-sampled-60s"].axes]
    assert labels == ["time to last byte, s", "stream round trip, ms"]


def test_what_happens_over_time_in_a_drawn_network(tmp_path: Path) -> None:
    run = written(tmp_path, "vanilla", 1)
    (circuits,) = over_time.active_circuits(run)
    assert circuits.times_s.tolist() == [*range(1, 60)]
    assert circuits.values.tolist() == [2, 1, *[0] * 57]
    below, above = over_time.shared_links_percent(run)
    assert (below.name, below.under_test) == ("undirected", False)
    assert (above.name, above.under_test) == ("directed", True)
    assert above.values[:2].tolist() == pytest.approx([100 / 3, 0])
    assert np.isnan(above.values[2:]).all()  # no link was active
    links = [line.values[:3].tolist() for line in over_time.active_links(run)]
    assert links == [[3, 2, 0], [3, 2, 0]]
    windows = over_time.congestion_window_segments(run)
    assert [line.values.tolist() for line in windows] == [[10], [20]]


def test_circuits_are_not_counted_where_some_relays_are_watched(tmp_path: Path) -> None:
    watched = {"watched": [["relay1", "relay7"]], "only_watched": True}
    run = written(tmp_path, "vanilla", 1, watched)
    assert network_use(run).active_circuits is None
    assert over_time.active_circuits(run) == []
    assert network_use(run).active_links is not None


def test_the_circuits_that_were_given_up_are_those_of_the_check_of_build_times() -> None:
    def run_with(*values: dict[str, float] | None) -> Run:
        checks = [Check(name="x", expected="", observed="", ok=True, value=one) for one in values]
        return cast(Run, SimpleNamespace(summary=SimpleNamespace(checks=checks)))

    given_up = {"count": 0, "given_up": 0.25}
    assert CIRCUITS_GIVEN_UP.of(run_with(None, {"count": 3}, given_up)) == 25
    assert CIRCUITS_GIVEN_UP.of(run_with(None, {"count": 3})) is None  # a client waits a minute
