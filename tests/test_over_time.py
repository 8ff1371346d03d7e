"""Plots of runs from second to second, by the data that they show.

The run directories are made here; no experiment runs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import Made, Recorded, at
from plotted import curves, plotted_over_time, points

from analysis import style
from analysis.figures import over_time
from analysis.runs import find_runs
from testbed.asked.plans import make_plan
from testbed.results import Run, read_run


def recorded(tmp_path: Path, scenario: str, traffic: str, **tables: list[dict[str, Any]]) -> Run:
    made = Recorded(scenario=scenario, traffic=traffic, duration_s=60, tables=tables)
    return read_run(made.write(tmp_path))


def values(lines: Sequence[over_time.Line]) -> list[tuple[str, list[float], list[float]]]:
    return [(line.name, line.times_s.tolist(), line.values.tolist()) for line in lines]


def test_delivered_is_by_client_while_the_run_measures(tmp_path: Path) -> None:
    run = recorded(
        tmp_path,
        *("One", "audio"),
        delivered=[
            at(-1.0, client="client2", received_bytes=9),
            at(1.0, client="client1", received_bytes=2_000_000),
            at(1.5, client="client2", received_bytes=50_000),
            at(2.5, client="client2", received_bytes=40_000),
            at(60.5, client="client2", received_bytes=9),
        ],
    )
    (under_test,) = over_time.delivered_mb_per_s(run)
    (beside,) = over_time.delivered_beside_mb_per_s(run)
    assert (under_test.name, under_test.times_s.tolist()) == ("client2", [1.5, 2.5])
    assert under_test.values.tolist() == pytest.approx([0.05, 0.04])
    assert values([beside]) == [("client1", [1.0], [2.0])]
    assert (under_test.under_test, beside.under_test) == (True, False)


def test_each_connection_of_the_shared_link_is_a_line_of_its_sending_end(tmp_path: Path) -> None:
    def sample(
        second: float, peer_port: int, sent_again: int, ends: Sequence[str] = ("exit1", "middle1")
    ) -> dict[str, Any]:
        state = {"cwnd_segments": 10 * peer_port, "rtt_ms": 25.0 + second}
        counted = {"port": 9001, "peer_port": peer_port, "retransmitted_segments": sent_again}
        return at(second, node=ends[0], peer=ends[1], **state, **counted)

    run = recorded(
        tmp_path,
        *("NoDropping", "bulk"),
        sockets=[
            sample(0.0, 1, 5),
            sample(0.0, 2, 0),
            sample(0.0, 1, 99, ("middle1", "exit1")),
            sample(0.0, 1, 99, ("exit1", "middle2")),
            sample(0.5, 1, 7),
        ],
    )
    names = ["9001 1", "9001 2"]
    times = [[0.0, 0.5], [0.0]]
    for quantity, expected in (
        (over_time.congestion_window_segments, [[10.0, 10.0], [20.0]]),
        (over_time.kernel_round_trip_ms, [[25.0, 25.5], [25.0]]),
        (over_time.retransmitted_segments, [[0.0, 2.0], [0.0]]),
    ):
        assert values(quantity(run)) == list(zip(names, times, expected, strict=True))


def test_tors_queue_by_mean_wait_and_by_littles_law(tmp_path: Path) -> None:
    def sample(second: float, queue: str, removed: int, waited_ms: int) -> dict[str, Any]:
        row = {"connection": "3", "queue": queue, "removed_cells": removed, "waited_ms": waited_ms}
        return at(second, relay="exit1", **row)

    run = recorded(
        tmp_path,
        *("NoDropping", "bulk"),
        queues=[
            sample(1.0, "a", 100, 2000),
            sample(1.0, "b", 1, 0),
            sample(2.0, "a", 50, 500),
            # No cell has left it for four seconds.
            sample(6.0, "a", 10, 40_000),
            sample(7.0, "a", 0, 0),
        ],
    )
    waits, other_waits = over_time.wait_in_tor_ms(run)
    assert waits.values.tolist() == pytest.approx([20.0, 10.0, 4000.0, np.nan], nan_ok=True)
    assert other_waits.values.tolist() == [0.0]
    cells, _ = over_time.cells_in_tor(run)
    # 100 cells a second that wait 20 ms each: two at any moment. 10 in 4 s that wait 4 s: ten.
    assert values([cells]) == [("3 a", [1.0, 2.0, 6.0, 7.0], [2.0, 0.5, 10.0, 0.0])]


def test_competing_streams_by_what_arrived(tmp_path: Path) -> None:
    plan = make_plan("Two", "vanilla")
    (entry,) = plan.competing
    stream, other, *_ = entry.stream_ports

    def sample(second: float, port: int, received: int) -> dict[str, Any]:
        ends = {"node": entry.receiver, "peer": entry.sender, "port": entry.port}
        return at(second, **ends, peer_port=port, received_bytes=received)

    run = recorded(
        tmp_path,
        *("Two", "bulk"),
        competing=[
            sample(0.0, stream, 100),
            sample(0.0, other, 0),
            at(0.0, node=entry.sender, port=stream, peer_port=entry.port, received_bytes=9),
            sample(0.5, stream, 1_000_100),
            sample(0.5, other, 500_000),
        ],
    )
    lines = over_time.competing_mb_per_s(run)
    assert [line.values[1:].tolist() for line in lines] == [[2.0], [1.0]]
    assert not any(line.under_test for line in lines)
    assert over_time.competing_mb_per_s(recorded(tmp_path, "One", "bulk")) == []


def test_the_mean_of_lines_is_by_the_second() -> None:
    def line(times: list[float], numbers: list[float]) -> over_time.Line:
        return over_time.Line("x", True, np.array(times), np.array(numbers))

    early, late = line([0.999, 1.999], [1.0, 2.0]), line([1.001, 2.001], [3.0, np.nan])
    mean = over_time.mean([early, late])
    assert values([mean]) == [("mean", [1.0, 1.999], [2.0, 2.0])]


def test_the_median_run_stands_for_its_group(tmp_path: Path) -> None:
    times_s = {1: 9.0, 2: 3.0, 3: 2.0, 4: None}
    for seed, time_s in times_s.items():
        Made(seed=seed, time_s=time_s).write(tmp_path)
    (runs,) = find_runs(tmp_path).valid.values()
    assert over_time.representative(runs).summary.seed == 2
    assert over_time.representative(runs[:1]).summary.seed == 1


def test_variants_stand_side_by_side_on_the_same_axes(tmp_path: Path) -> None:
    for variant, kilobytes in (("vanilla", 300), ("pctls", 1800)):
        Made(variant, delivered_kb=[kilobytes, kilobytes]).write(tmp_path)
    (plot,) = plotted_over_time(tmp_path)
    assert plot.name == "over-time-NoDropping-bulk-300s"
    left, right = plot.figure.axes  # these runs have only one quantity
    assert left.get_ylabel() == "delivered,\nMB/s"
    assert [left.get_title(), right.get_title()] == ["vanilla, seed 1", "pctls, seed 1"]
    assert left.get_ylim() == right.get_ylim()
    assert left.get_xlim() == right.get_xlim() == (0.0, 300.0)
    # Eight clients and, over them, their mean.
    assert list(curves(left)) == [*(f"client{number}" for number in range(1, 9)), "mean"]
    assert {line.get_color() for line in right.get_lines()} == {style.looks([])["pctls"]["color"]}
    of_mean = np.array(points(curves(right)["mean"]))
    assert of_mean == pytest.approx(np.array(points(curves(right)["client1"])))
    assert of_mean[:, 1].tolist() == pytest.approx([1.8, 1.8])


def test_runs_of_which_nothing_was_recorded_have_no_figure(tmp_path: Path) -> None:
    Made().write(tmp_path)
    assert plotted_over_time(tmp_path) == []
