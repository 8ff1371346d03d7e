"""Each traffic model compared with its definition, in virtual time, on its own lossless link.

Real generators play the models over the lab's links, without Tor.
"""

import json
from itertools import pairwise
from typing import Any

import pytest
from machine import run_inside

from testbed.inside.traffic.models import MODELS, burst
from testbed.inside.traffic.tgen.markov import PACKET_BYTES

pytestmark = pytest.mark.experiment

RATE_BIT_PER_S = 300e6
EXACT_S = 0.001
SECONDS = 90

SCENARIO = """
title = "Links without delay and loss"
topology = "eight_clients"
traffic = "bulk"
duration = "5 min"
[links]
default = { rate = "300 Mbit/s" }
"""

# Each model has its own link, so they don't affect each other.
PROGRAM = """
import json, os, sys, time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
import networkx
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan
from testbed.inside.recording import Record
from testbed.inside.traffic.models import MODELS, write_client, write_server
from testbed.inside.traffic.tgen_log import read_transfers

folder = Path("/run/models")
folder.mkdir()
plan = make_plan(SCENARIO, "vanilla")
models = [name for name, model in MODELS.items() if not model.upload and model.at_once == 1]
tgen = [sys.executable, "-m", "testbed.inside.traffic.tgen"]
with Record(Path(os.environ["HYDRA_STAGING"]) / "raw"), running_lab(plan) as lab, \\
        ExitStack() as stack:
    processes = []
    for number, (model, link) in enumerate(zip(models, plan.links[:len(models)], strict=True)):
        client, server = link.ends
        address = (plan.node(server).address, 9000 + number)
        configurations = {
            server: write_server(folder, f"server-{model}", address[1]),
            client: write_client(
                folder, model, model, server=address, socks_proxy=None, seed=number),
        }
        # A program's start takes time from the others: no transfer begins before all have started.
        graph = networkx.read_graphml(configurations[client])
        graph.nodes["start"]["time"] = "1 second"
        networkx.write_graphml(graph, configurations[client])
        for node, configuration in configurations.items():
            output = stack.enter_context((folder / f"{configuration.stem}.log").open("wb"))
            processes.append(lab.start(node, [*tgen, configuration], output=output))
            if node == server:
                lab.wait_for_server(server, address[1])
    time.sleep(SECONDS)
    for process in reversed(processes):
        process.terminate()
        process.wait()
    for model in models:
        log = folder / f"{model}.tgen.log"
        print("MODEL", model, json.dumps([asdict(each) for each in read_transfers(log, model)]))
"""


@pytest.fixture(scope="module")
def transfers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("models")
    scenario = folder / "Ideal.toml"
    scenario.write_text(SCENARIO)
    program = PROGRAM.replace("SCENARIO", repr(str(scenario))).replace("SECONDS", str(SECONDS))
    output = run_inside(program, folder / "machine")
    lines = [line.split(" ", 2) for line in output.splitlines() if line.startswith("MODEL")]
    return {model: json.loads(rows) for _, model, rows in lines}


def gaps_s(rows: list[dict[str, Any]]) -> list[float]:
    """Return the times from each transfer's end, with its checksum, to the next one's start."""
    return [
        after["start_s"] - before["start_s"] - before["lasted_s"]
        for before, after in pairwise(rows)
    ]


def test_each_model_transfers_its_size(transfers: dict[str, list[dict[str, Any]]]) -> None:
    downloads = (name for name, each in MODELS.items() if not each.upload and each.at_once == 1)
    assert set(transfers) == set(downloads)
    for name, rows in transfers.items():
        assert len(rows) >= 3, name
        assert all(row["ok"] for row in rows)
        assert {row["bytes_received"] for row in rows} == {MODELS[name].transfer_bytes}


@pytest.mark.parametrize("model", ["bulk", "bulk5mib", "audio", "video"])
def test_the_next_transfer_begins_at_once(
    transfers: dict[str, list[dict[str, Any]]], model: str
) -> None:
    assert max(gaps_s(transfers[model])) < EXACT_S


@pytest.mark.parametrize("model", ["bulk", "bulk5mib"])
def test_bulk_is_as_fast_as_its_link(
    transfers: dict[str, list[dict[str, Any]]], model: str
) -> None:
    """Frames of 1514 bytes carry 1448 of payload."""
    expected_s = MODELS[model].transfer_bytes / 1448 * 1514 * 8 / RATE_BIT_PER_S
    for row in transfers[model]:
        assert row["step_s"]["last-byte-recv"] == pytest.approx(expected_s, rel=0.01)


def test_web_pauses_ten_seconds_after_the_end(
    transfers: dict[str, list[dict[str, Any]]],
) -> None:
    assert gaps_s(transfers["web"]) == pytest.approx([10.0] * 8, abs=EXACT_S)


@pytest.mark.parametrize(("model", "longest_s"), [("page", 30), ("page20", 20)])
def test_pages_pause_whole_seconds(
    transfers: dict[str, list[dict[str, Any]]], model: str, longest_s: int
) -> None:
    gaps = gaps_s(transfers[model])
    assert gaps == pytest.approx([round(gap) for gap in gaps], abs=EXACT_S)
    assert {round(gap) for gap in gaps} <= set(range(1, longest_s + 1))
    assert len({round(gap) for gap in gaps}) > 1


@pytest.mark.parametrize("model", ["audio", "video"])
def test_streams_are_paced(transfers: dict[str, list[dict[str, Any]]], model: str) -> None:
    """The last burst leaves at its planned time, and the rate is right within 2 %."""
    rate, size = MODELS[model].rate_byte_per_s, MODELS[model].transfer_bytes
    assert rate is not None
    packets, interval_us = burst(rate)
    intervals = (size - 1) // (packets * PACKET_BYTES)
    last_burst_s = (size - intervals * packets * PACKET_BYTES) * 8 / RATE_BIT_PER_S
    for row in transfers[model]:
        paced_s = row["step_s"]["last-byte-recv"] - row["step_s"]["first-byte-recv"]
        assert paced_s == pytest.approx(intervals * interval_us / 1e6 + last_burst_s, abs=EXACT_S)
    rows = transfers[model]
    took_s = rows[-1]["start_s"] + rows[-1]["lasted_s"] - rows[0]["start_s"]
    assert len(rows) * size / took_s == pytest.approx(rate, rel=0.02)
