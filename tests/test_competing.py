"""Competing streams on links without other traffic: their share, their route, their figures.

Streams beside circuits are tested in test_scenarios.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from machine import run_inside

pytestmark = pytest.mark.experiment

SCENARIO = """
title = "Streams alone"
topology = "two_clients"
traffic = "bulk"
duration = "5 min"
[links]
default = { rate = "20 Mbit/s", queue = "100 packets" }
middle-exit = { rate = "100 Mbit/s", queue = "300 packets" }
[[competing]]
from = "exit"
to = "middle"
streams = 4
[[competing]]
from = "client"
to = "middle"
streams = 2
congestion_control = "bbr"
"""

PROGRAM = """
import json, re, time
from pathlib import Path
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan
from testbed.inside.probes.sockets import ConnectionTable
from testbed.inside.traffic.competing import competing_servers, competing_streams

SECONDS = 40
plan = make_plan(SCENARIO, "vanilla")
logs = Path("/run/logs")
logs.mkdir()

def received(tables):
    return [{s.peer_port: s.received_bytes for s in table.samples()} for table in tables]

with running_lab(plan) as lab, competing_servers(lab, logs):
    tables = [ConnectionTable(lab, entry.receiver, [entry.sender], {*entry.stream_ports})
              for entry in plan.competing]
    with competing_streams(lab, logs):
        time.sleep(0.5)
        before = received(tables)
        time.sleep(SECONDS)
        after = received(tables)
        used = ["".join(lab.run(entry.sender, ["ss", "-Htin", f"sport = :{port}"])
                        for port in entry.stream_ports) for entry in plan.competing]
    for entry, first, last, text in zip(plan.competing, before, after, used):
        # iperf3's own figure for each second, for all streams together.
        log = (logs / f"iperf3-{entry.receiver}-{entry.port}.log").read_text()
        own = re.findall(r"SUM.*?([0-9.]+) MBytes", log)
        print("ENTRY", json.dumps({
            "route": entry.route,
            "mb_per_s": [(last[port] - first[port]) / SECONDS / 1e6 for port in entry.stream_ports],
            "iperf_mb_per_s": sum(map(float, own)) * 2**20 / 1e6 / max(1, len(own)),
            "congestion_controls": sorted(set(re.findall(r"\\b(cubic|bbr|reno)\\b", text))),
        }))
    print("BUNDLED", sum(lab.counters(one).bundled_segments for one in lab.directions))
    overflowed = lab.counters(lab.direction("exit1", "middle1"))
    print("OVERFLOWED", overflowed.overflowed_packets, overflowed.dropped_packets)
"""


def streams_alone(folder: Path, scenario: str, program: str = PROGRAM) -> str:
    file = folder / "Alone.toml"
    file.write_text(scenario)
    return run_inside(program.replace("SCENARIO", repr(str(file))), folder / "machine")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    return streams_alone(tmp_path_factory.mktemp("competing"), SCENARIO)


@pytest.fixture(scope="module")
def entries(output: str) -> list[dict[str, Any]]:
    lines = [line.split(" ", 1)[1] for line in output.splitlines() if line.startswith("ENTRY")]
    return [json.loads(line) for line in lines]


def fairness(rates: list[float]) -> float:
    """Return Jain's index: 1 if all are equal, 1/n if one has all (Jain, Chiu, Hawe 1984)."""
    return sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates))


def test_streams_fill_an_empty_link_and_share_it(entries: list[dict[str, Any]]) -> None:
    rates = entries[0]["mb_per_s"]
    assert len(rates) == 4
    # 100 Mbit/s in frames of 1514 bytes with 1448 bytes of payload are 11.96 MB/s.
    assert sum(rates) == pytest.approx(11.96, rel=0.02)
    assert fairness(rates) > 0.9


def test_iperfs_own_figure_agrees(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        assert entry["iperf_mb_per_s"] == pytest.approx(sum(entry["mb_per_s"]), rel=0.05)


def test_streams_cross_several_links(entries: list[dict[str, Any]]) -> None:
    """Both clients' streams go through their guards, which forward segments one by one."""
    assert [entry["route"] for entry in entries[1:]] == [
        ["client1", "guard1", "middle1"],
        ["client2", "guard2", "middle1"],
    ]
    for entry in entries[1:]:
        assert sum(entry["mb_per_s"]) == pytest.approx(2.39, rel=0.05)
        assert entry["congestion_controls"] == ["bbr"]


def test_segments_cross_one_by_one(output: str) -> None:
    assert "BUNDLED 0" in output


def test_the_sender_is_not_told_what_a_full_queue_drops(output: str) -> None:
    (line,) = [line for line in output.splitlines() if line.startswith("OVERFLOWED")]
    overflowed, dropped = map(int, line.split()[1:])
    assert overflowed == dropped > 0


def test_a_senders_own_queue_stays_short_and_takes_bundles(tmp_path: Path) -> None:
    in_sender = SCENARIO.replace('packets" }', 'packets", queue_in_sender = true }')
    lines = streams_alone(
        tmp_path, in_sender, PROGRAM.replace("SECONDS = 40", "SECONDS = 5")
    ).splitlines()
    assert "OVERFLOWED 0 0" in lines
    assert "BUNDLED 0" not in lines
