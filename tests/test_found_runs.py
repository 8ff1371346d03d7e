"""Runs below a directory: which of them count, in which groups, and the metrics of one run.

The run directories are made here; no experiment runs.
"""

from pathlib import Path

import pytest
from command_line import (
    status_of,
)
from made_runs import Made

from analysis import metrics, run_values
from analysis.metrics.transfers import THROUGHPUT
from analysis.runs import Group, find_runs
from testbed.basics.ending import VALID
from testbed.basics.errors import TestbedError
from testbed.results import read_run


@pytest.mark.parametrize(("traffic", "clients"), [("audio", 1), ("bulk", 2)])
def test_only_the_clients_under_test_count(tmp_path: Path, traffic: str, clients: int) -> None:
    """client1's bulk transfers don't count beside audio; beside bulk they are under test, too."""
    run = read_run(Made(scenario="One", traffic=traffic, time_s=4.0).write(tmp_path))
    assert run_values.transfers(run)["time_to_last_byte_s"].to_list() == [4.0] * 2 * clients
    assert run_values.stream_round_trips_ms(run).to_list() == pytest.approx([80.0] * 2 * clients)
    assert run_values.circuit_round_trips_ms(run).to_list() == [90.0] * clients
    assert run_values.build_times_ms(run).to_list() == pytest.approx([150.0] * clients)
    assert {metric.key: metric.of(run) for metric in metrics.METRICS} == pytest.approx(
        {
            "throughput_mb_per_s.mean": 5 / 4,
            "time_to_first_byte_s.mean": 0.1,
            "time_to_last_byte_s.mean": 4.0,
            "time_to_last_byte_s.median": 4.0,
            "time_to_last_byte_s.p95": 4.0,
            "load_s.mean": None,
            "stream_round_trip_ms.mean": 80.0,
            "circuit_round_trip_ms.mean": 90.0,
            "circuit_build_time_ms.mean": 150.0,
            "shared_links_percent": None,
            "shared_undirected_links_percent": None,
            "active_circuits": None,
            "active_links": None,
            "relays_use_percent.mean": None,
            "relays_use_percent.max": None,
            "circuits_given_up_percent": None,
            "relays.connections": None,
            "relays.sockets": None,
            "relays.tor_memory_mb": None,
            "relays.socket_memory_mb": None,
            "wire_bytes_per_byte": None,
            "cost.cpu_s_per_mb": 1.0,
        }
    )


def test_metrics_of_a_run_without_a_transfer(tmp_path: Path) -> None:
    run = read_run(Made(time_s=None, round_trip_ms=None).write(tmp_path))
    missing = [metric.key for metric in metrics.METRICS if metric.of(run) is None]
    known = [metric.key for metric in metrics.METRICS if metric.key not in missing]
    assert known == ["circuit_build_time_ms.mean", "cost.cpu_s_per_mb"]
    assert THROUGHPUT.by_seed([run]) == {}


def test_a_plan_that_does_not_say_who_ran_what_is_named(tmp_path: Path) -> None:
    run = read_run(Made(changed={"traffic_by_client": {}}).write(tmp_path))
    with pytest.raises(TestbedError, match=r"manifest\.json: plan\.traffic_by_client names no"):
        _ = run.clients_under_test


def test_only_valid_whole_runs_count_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Made().write(tmp_path)
    invalid = Made(seed=2, time_s=0.1, valid=False).write(tmp_path)
    damaged = Made(seed=3, time_s=0.1).write(tmp_path)
    (damaged / "transfers.parquet").write_bytes(b"PAR1")
    foreign = Made(seed=4, time_s=0.1, changed={"traffic_by_client": {}}).write(tmp_path)
    old = Made(seed=5, time_s=0.1).write(tmp_path)
    (old / "delivered.parquet").unlink()
    failed = damaged.with_name("seed-6.failed-1")
    failed.mkdir()
    (failed / "error.txt").write_text("over\n")
    under_way = damaged.with_name(".seed-7.partial-17")
    under_way.mkdir()
    (under_way / "summary.json").write_text("{")
    assert status_of(["tables", str(tmp_path)]) == VALID
    printed = capsys.readouterr()
    assert "2.00" in printed.out
    assert "50.00" not in printed.out
    assert f"left out: {invalid}: invalid: middle1 to exit1 before measuring\n" in printed.err
    assert f"left out: {damaged}: {damaged}/transfers.parquet: damaged Parquet" in printed.err
    assert f"left out: {foreign}: {foreign}/manifest.json: plan.traffic_by_client" in printed.err
    assert f"left out: {old}: {old}/delivered.parquet is missing" in printed.err
    assert f"left out: {failed}: {failed} is a failed run" in printed.err
    assert printed.err.count("left out") == 5


def test_a_plan_counts_once(tmp_path: Path) -> None:
    first = Made().write(tmp_path)
    Made(time_s=0.1).write(tmp_path)
    found = find_runs(tmp_path)
    assert [[run.directory for run in runs] for runs in found.valid.values()] == [[first]]
    assert found.left_out[0].endswith(f"of the same plan as {first}")


def test_runs_of_unlike_plans_are_not_averaged(tmp_path: Path) -> None:
    first = Made(seed=1).write(tmp_path)
    Made(seed=2).write(tmp_path)
    Made(seed=3, changed={"topology": "another"}).write(tmp_path)
    found = find_runs(tmp_path)
    assert [len(runs) for runs in found.valid.values()] == [2]
    (reason,) = found.left_out
    assert f'not averaged with {first}: topology is "another", not "eight_clients"' in reason


def test_other_traffic_and_other_durations_are_groups_of_their_own(tmp_path: Path) -> None:
    for seed in (2, 1):
        Made(seed=seed).write(tmp_path)
    Made(duration_s=20).write(tmp_path)
    Made(traffic="audio").write(tmp_path)
    found = find_runs(tmp_path)
    assert {group: [run.summary.seed for run in runs] for group, runs in found.valid.items()} == {
        Group("vanilla", "NoDropping", "bulk", 20): [1],
        Group("vanilla", "NoDropping", "bulk", 300): [1, 2],
        Group("vanilla", "NoDropping", "audio", 300): [1],
    }
