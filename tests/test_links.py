"""Links with queue disciplines and bundles: the kernel's parameters, and real runs.

Their delay, rate and loss are measured in test_calibration.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from machine import run_inside, run_scenario

from testbed.asked.scenario_values import CONGESTION_CONTROLS
from testbed.plan.queue_disciplines import DISCIPLINES
from testbed.results.tables import SCHEMAS

pytestmark = pytest.mark.experiment

SCENARIO = """
title = "A short run"
topology = "two_clients"
traffic = "bulk"
duration = "5 s"
[links]
default = { rate = "40 Mbit/s" }
"""

# Disciplines that use random numbers: hashes of flows, sfq's perturbation, drops by pie and cake.
QUEUES = """
client-guard = { queue_discipline = "fq_codel" }
guard-middle = { queue_discipline = "pie", target = "5 ms" }
middle-exit = { delay = "5 ms", queue_discipline = "cake", rtt = "30 ms" }
exit-server = { queue_discipline = "sfq", perturb = "1 s", queue = "60 packets" }
"""

BUNDLES = """
guard-middle = { bundles = true, queue_discipline = "codel" }
middle-exit = { delay = "5 ms", loss = "0.3 %", bundles = true }
"""

SHOW = """
import json
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

plan = make_plan("One", "vanilla")
said = {
    "fq_codel": dict(target_us=3000, interval_us=50_000, ecn=False, ce_threshold_us=2000, flows=64,
                     quantum_bytes=3000, memory_limit_bytes=2**20, drop_batch=8),
    "codel": dict(target_us=4000, interval_us=60_000, ecn=True, ce_threshold_us=2000),
    "pie": dict(target_us=20_000, tupdate_us=32_000, alpha=4, beta=16, ecn=True, bytemode=True),
    "cake": dict(rtt_us=50_000, isolation="dual-dsthost", diffserv="besteffort", ack_filter=True,
                 memory_limit_bytes=2**20),
    "sfq": dict(flows=64, depth=20, divisor=256, quantum_bytes=3028, perturb_s=7, headdrop=True),
    "fifo": dict(),
}
links = []
for link, (name, parameters) in zip(plan.links, said.items(), strict=True):
    shape = link.there.model_copy(update=dict(
        queue_discipline=name, queue_parameters=parameters, queue_packets=99,
        bundles=name in ("cake", "fifo"), largest_bundle_segments=2 if name == "fifo" else None,
    ))
    links.append(link.model_copy(update=dict(there=shape, back=shape)))
with running_lab(plan.model_copy(update={"links": tuple(links)})) as lab:
    for direction in lab.directions[::2]:
        qdiscs, (link,) = (
            json.loads(lab.run(direction.sender, [*show, "dev", direction.interface]))
            for show in (["tc", "-d", "-j", "qdisc", "show"], ["ip", "-d", "-j", "link", "show"])
        )
        told = {"qdiscs": qdiscs, "largest_bundle": link["gso_max_segs"]}
        print("told", json.dumps({direction.shape.queue_discipline: told}))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The kernel's parameters of each link's qdiscs and bundles, by the link's discipline."""
    output = run_inside(SHOW, tmp_path_factory.mktemp("links") / "machine")
    lines = [line for line in output.splitlines() if line.startswith("told ")]
    return {
        name: told
        for line in lines
        for name, told in json.loads(line.removeprefix("told ")).items()
    }


# In tc's words. CoDel's clock has steps of 1024 ns.
EXPECTED: dict[str, dict[str, Any]] = {
    "fifo": {"limit": 99},
    "fq_codel": {
        **{"limit": 99, "flows": 64, "quantum": 3000, "memory_limit": 2**20, "drop_batch": 8},
        **{"target": 2999, "interval": 49_999, "ce_threshold": 1999},
    },
    "codel": {"limit": 99, "target": 3999, "interval": 59_999, "ce_threshold": 1999, "ecn": True},
    "pie": {
        **{"limit": 99, "target": 20_000, "tupdate": 32_000},
        **{"alpha": 4, "beta": 16, "ecn": True, "bytemode": True},
    },
    # HTB has its rate, and bundles stay bundles.
    "cake": {
        **{"bandwidth": "unlimited", "split_gso": False, "rtt": 50_000, "memlimit": 2**20},
        **{"flowmode": "dual-dsthost", "diffserv": "besteffort", "ack-filter": "enabled"},
    },
    "sfq": {
        **{"limit": 99, "flows": 64, "depth": 20, "divisor": 256},
        **{"quantum": 3028, "perturb": 7, "headdrop": True},
    },
}


@pytest.mark.parametrize("name", DISCIPLINES)
def test_the_queue_is_behind_the_delay_line_and_has_its_parameters(
    shown: dict[str, Any], name: str
) -> None:
    htb, netem, queue = shown[name]["qdiscs"]
    assert (htb["kind"], netem["kind"]) == ("htb", "netem")
    assert queue["kind"] == ("pfifo" if name == "fifo" else name)
    assert (queue["parent"], netem["parent"]) == ("10:1", "1:1")
    assert {key: queue["options"].get(key) for key in EXPECTED[name]} == EXPECTED[name]
    if name == "fq_codel":  # on by default, and tc names it only then
        assert "ecn" not in queue["options"]


def test_bundles_are_as_large_as_permitted(shown: dict[str, Any]) -> None:
    largest = {name: told["largest_bundle"] for name, told in shown.items()}
    assert (largest["fifo"], largest["codel"]) == (2, 1)
    assert largest["cake"] >= 2**16 // 1448


def test_a_disciplines_random_numbers_follow_from_the_seed(tmp_path: Path) -> None:
    """Two runs are equal in every byte; each kind of link has its own discipline."""
    scenario = tmp_path / "Queues.toml"
    scenario.write_text(SCENARIO + QUEUES)
    runs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        runs.append(run_scenario(tmp_path / name, str(scenario), "pctls", 5))
    for name in SCHEMAS:
        one, other = ((run.directory / f"{name}.parquet").read_bytes() for run in runs)
        assert one == other, name
    assert runs[0].manifest["fingerprint"] == runs[1].manifest["fingerprint"]
    last = runs[0].links.filter(when="after")
    dropped = {row["sender"]: row["overflowed_packets"] for row in last.iter_rows(named=True)}
    # The thin link's discipline had to drop packets.
    assert max(dropped.values()) > 0


def test_a_run_in_bundles(tmp_path: Path) -> None:
    scenario = tmp_path / "Bundles.toml"
    scenario.write_text(SCENARIO + BUNDLES)
    run = run_scenario(tmp_path, str(scenario), "vanilla", 5)
    checks = {check.name: check for check in run.summary.checks}
    assert checks["bundles crossed as one"].observed.startswith("yes; ")
    assert checks["packets crossed one by one"].ok  # on the other links
    loss = checks["loss from exit to middle"]
    assert loss.ok
    assert "bundles" in loss.expected
    assert "losses a segment" in loss.observed
    crossed = run.links.filter(when="after", sender="exit1", receiver="middle1")
    assert crossed["received_packets"].item() < crossed["sent_packets"].item()


def test_the_kernel_has_every_congestion_control(tmp_path: Path) -> None:
    there = 'print(open("/proc/sys/net/ipv4/tcp_available_congestion_control").read())'
    assert set(run_inside(there, tmp_path / "machine").split()) >= set(CONGESTION_CONTROLS)
