"""The figures of a run, worked out by hand, and what users see of them.

The raw files are made here; no experiment runs.
"""

import json
import math
from pathlib import Path

import pytest
from made_record import (
    finished,
    raw_rows,
    write_record,
)
from rich.console import Console

from commands.scenario import print_summary
from testbed.plan.model import Plan
from testbed.results import (
    MachineFacts,
    staging,
    write_results,
)
from testbed.results.summary import Distribution, SharedLinkCounts


def test_figures_worked_out_by_hand(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    asked = [summary[key] for key in ("scenario", "variant", "traffic", "seed")]
    assert asked == ["Mine", "vanilla", "bulk", 3]
    assert summary["machine"] == "virtual"
    assert summary["valid"] is True
    assert summary["transfers"] == {"completed": 2, "failed": 1}
    # 5 MB in 2 s and in 4 s: 2.5 and 1.25 MB/s, each 0.625 from the mean; n - 1 = 1.
    assert summary["throughput_mb_per_s"]["mean"] == pytest.approx(1.875)
    assert summary["throughput_mb_per_s"]["sd"] == pytest.approx(0.625 * math.sqrt(2))
    first_byte_s = {"mean": 0.3, "median": 0.3, "p75": 0.35, "p95": 0.39}
    assert summary["time_to_first_byte_s"] == pytest.approx(first_byte_s)
    last_byte_s = {"mean": 3, "median": 3, "p75": 3.5, "p95": 3.9}
    assert summary["time_to_last_byte_s"] == pytest.approx(last_byte_s)
    # 50 and 100 ms from command to response.
    assert summary["stream_round_trip_ms"] == pytest.approx(
        {"mean": 75, "sd": 25 * math.sqrt(2), "median": 75}
    )
    assert summary["by_traffic"][0]["stream_round_trip_ms"] == summary["stream_round_trip_ms"]
    assert summary["circuit_round_trip_ms"] == pytest.approx(
        {"mean": 60, "sd": 10 * math.sqrt(2), "median": 60}
    )
    assert summary["circuit_build_time_ms"] == pytest.approx(
        {"mean": 200, "sd": 100 * math.sqrt(2), "median": 200}
    )
    assert summary["shared_link"] == {"connections": 1, "circuits": 2}
    # client1: 6 MB by its heartbeat, over 5.4 MB logged; client2: 10 MB logged, over 9 MB.
    times = {"virtual_s": 40.0, "wall_s": 8.0, "cpu_s": 7.5}
    assert summary["cost"] == {**times, "cores": 1, "delivered_mb": 16.0}
    assert summary["relays"][0] == {
        "relay": "middle1",
        "connections": 5,
        "sockets": 9,
        "tor_memory_mb": 2.000002,
        "socket_memory_mb": 1.0,
        "sent_mb": 60.0,
        "scheduler_interval_ms": None,
    }
    # Four directions of two links between guards and middle, two of middle and exit: 20 MB each;
    # and 16 MB that crossed two such links.
    assert summary["wire_bytes_per_byte"] == pytest.approx(6 * 20 / (2 * 16))
    assert summary["notes"] == ["measuring began", "1 of 3 circuit probes not answered"]


def test_no_transfer_is_null_and_invalid(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    with staging(tmp_path / "run") as folder:
        write_record(folder, raw_rows(plan) | {"circuits": [], "round_trips": []})
        for client in ("client1", "client2"):
            (folder / "logs" / f"tgen-{client}.log").write_text("")
        summary = write_results(folder, plan, facts)
        text = (folder / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["throughput_mb_per_s"] == {"mean": None, "sd": None}
    nothing = {"mean": None, "median": None, "p75": None, "p95": None}
    assert json.loads(text)["time_to_last_byte_s"] == nothing
    assert [check.observed for check in summary.checks if not check.ok] == [
        "0.00 s",  # there are no heartbeats, either
        "client1, client2",
    ]
    assert not summary.valid
    print_summary(Console(file=(tmp_path / "shown").open("w")), summary)


def test_one_transfer_has_no_deviation(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    with staging(tmp_path / "run") as folder:
        write_record(folder, raw_rows(plan))
        (folder / "logs" / "tgen-client2.log").write_text("")
        summary = write_results(folder, plan, facts)
    assert summary.throughput_mb_per_s.mean == pytest.approx(2.5)
    assert summary.throughput_mb_per_s.sd is None


def test_the_summary_shows_what_failed(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    good = finished(tmp_path / "good", plan, facts)
    bad = finished(tmp_path / "bad", plan, facts, sockets=[])
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, good)
    shown = console.export_text()
    assert "1.88 ± 0.88 MB/s" in shown
    assert f"{len(good.checks)} checks hold" in shown
    assert "not judged" not in shown
    assert "8 s wall, 8 s CPU" in shown
    on_two = good.model_copy(update={"cost": good.cost.model_copy(update={"cores": 2})})
    print_summary(console, on_two)
    assert "8 s wall on 2 cores, 8 s CPU" in console.export_text()
    print_summary(console, bad)
    shown = console.export_text()
    assert "FAILED samples of middle1 to exit1" in shown
    assert "observed 0.00 s" in shown


def test_the_summary_of_many_clients_has_their_number_and_only_measured_figures(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    summary = finished(tmp_path / "run", plan, facts)
    (page,) = summary.by_traffic
    unmeasured = Distribution(mean=None, sd=None, median=None)
    many = page.model_copy(
        update={
            "clients": tuple(f"client{number}" for number in range(1, 41)),
            "circuit_round_trip_ms": unmeasured,
        }
    )
    drawn = summary.model_copy(
        update={
            "by_traffic": (many, page),
            "circuit_build_time_ms": unmeasured,
            "shared_link": SharedLinkCounts(connections=None, circuits=None),
        }
    )
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, drawn)
    shown = console.export_text()
    assert "40 clients" in shown and "client9," not in shown
    assert shown.count("circuit round trip") == 1
    assert "circuit build time" not in shown and "shared link" not in shown


def test_checks_that_could_not_be_judged_are_named_and_not_counted(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    few = {"sent_packets": 900, "received_packets": 900, "received_bytes": 900_000}
    links = [row | (few if row["when"] == "after" else {}) for row in raw_rows(plan)["links"]]
    summary = finished(tmp_path / "run", plan, facts, links=links)
    assert summary.valid
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    print_summary(console, summary)
    shown = console.export_text()
    losses = [check.name for check in summary.checks if check.name.startswith("loss from")]
    assert f"{len(summary.checks) - len(losses)} checks hold" in shown
    assert "not judged: loss from middle to exit: no direction with 1000 packets" in shown
