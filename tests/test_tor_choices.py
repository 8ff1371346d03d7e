"""Tor's own choices in effect: real, short runs with congestion control, schedulers and conflux.

test_variant tests what the keys resolve to.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import machine
import polars
import pytest
from stem.response import ControlMessage

from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.toml_file import PROJECT
from testbed.inside.checks import Running, linked_sets
from testbed.inside.lab.network import Lab
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.inside.tor.network import TorNetwork

DURATION_S = 6
TIMEOUT_S = 600

PATH_MB_PER_S = 20e6 / 8 / 1e6
"""The capacity of one of the two paths of scenario TwoPaths, headers included."""

VARIANTS = {
    "conflux": 'extends = "conflux"',
    "own connections": 'extends = "pctls-conflux"',
    "one circuit": 'extends = "vanilla-vegas"\nscheduler = "Vanilla"',
    "fixed window": 'extends = "vanilla"\nscheduler = "KISTLite"',
}


@dataclass(frozen=True)
class Finished:
    directory: Path
    summary: dict[str, Any]

    def observed(self, check: str) -> str:
        (found,) = (one["observed"] for one in self.summary["checks"] if one["name"] == check)
        return str(found)

    def sent_bytes(self, sender: str, receiver: str) -> int:
        links = polars.read_parquet(self.directory / "links.parquet")
        counted = links.filter(sender=sender, receiver=receiver)["sent_bytes"].to_list()
        return int(max(counted) - min(counted))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    """TwoPaths with each variant and the same seed."""
    folder = tmp_path_factory.mktemp("runs")
    finished = {}
    for number, (name, text) in enumerate(VARIANTS.items()):
        variant, directory = folder / f"variant{number}.toml", folder / f"run{number}"
        variant.write_text(f'title = "{name}"\n{text}\n')
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "commands", "scenario", "TwoPaths", "--json"),
                *("--variant", variant, "--duration", str(DURATION_S), "--out", directory),
            ],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, f"{name} ended with {ended.returncode}: {ended.stdout}"
        finished[name] = Finished(directory, json.loads(ended.stdout))
    return finished


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("name", "observed"),
    [("conflux", "2 of 2"), ("one circuit", "2 of 2"), ("fixed window", "0 of 2")],
)
def test_congestion_control_is_negotiated_or_not(
    runs: dict[str, Finished], name: str, observed: str
) -> None:
    assert runs[name].observed("clients whose circuit has congestion control") == observed


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("name", "observed"),
    [("conflux", "KIST"), ("one circuit", "Vanilla"), ("fixed window", "KISTLite")],
)
def test_the_scheduler_is_in_effect(runs: dict[str, Finished], name: str, observed: str) -> None:
    assert runs[name].observed("scheduler") == observed


@pytest.mark.experiment
def test_linked_sets_use_both_paths(runs: dict[str, Finished]) -> None:
    """One path carries 2.5 MB/s for both clients; linked sets get more than it could carry."""
    mean = {name: run.summary["throughput_mb_per_s"]["mean"] for name, run in runs.items()}
    assert mean["one circuit"] < PATH_MB_PER_S / 2
    assert mean["conflux"] > 1.5 * mean["one circuit"]
    first, second = (
        runs["conflux"].sent_bytes("exit1", middle) for middle in ("middle1", "middle2")
    )
    assert 0.7 < first / second < 1.4
    assert runs["one circuit"].sent_bytes("exit1", "middle2") == 0


@pytest.mark.experiment
def test_each_client_has_one_linked_set(runs: dict[str, Finished]) -> None:
    run = runs["conflux"]
    assert run.observed("linked sets before measuring") == "yes"
    assert run.observed("linked sets after measuring") == "yes"
    assert run.observed("streams on other circuits") == "none"
    assert run.summary["shared_link"] == {"connections": 1, "circuits": 2}
    built = polars.read_parquet(run.directory / "circuits.parquet").filter(
        round="measured", status="BUILT"
    )
    assert built["client"].sort().to_list() == ["client1", "client1", "client2", "client2"]


@pytest.mark.experiment
def test_each_leg_has_a_connection_although_tor_builds_more_circuits(
    runs: dict[str, Finished],
) -> None:
    """Connections of the circuits that it built beside a set are closed before measuring."""
    run = runs["own connections"]
    circuits = polars.read_parquet(run.directory / "circuits.parquet")
    assert "other" in circuits["round"].to_list()
    assert run.summary["shared_link"] == {"connections": 2, "circuits": 2}


@pytest.mark.parametrize(("variant", "named"), [("conflux", True), ("vanilla-vegas", False)])
def test_only_clients_of_linked_sets_choose_relays(
    tmp_path: Path, variant: str, named: bool
) -> None:
    plan = make_plan("TwoPaths", variant)
    texts = {
        name: torrc(
            plan,
            plan.node(name),
            TorFiles(name, tmp_path, tmp_path / "log"),
            {"authority1": AuthorityIdentity("0" * 40, "1" * 40)},
        )
        for name in ("client1", "exit1")
    }
    middles = "MiddleNodes 10.0.2.1,10.0.2.2,10.0.3.1,10.0.3.2"
    assert (middles in texts["client1"].splitlines()) == named
    assert ("ExitPolicy accept *:*" in texts["exit1"].splitlines()) == named
    assert "MiddleNodes" not in texts["exit1"]


GUARD1, GUARD2, MIDDLE1, MIDDLE2, EXIT = (digit * 40 for digit in "12345")


def leg(number: int, set_id: str, *hops: str, purpose: str = "CONFLUX_LINKED") -> str:
    path = ",".join(f"${hop}~relay" for hop in hops)
    return f"650 CIRC {number} BUILT {path} PURPOSE={purpose} CONFLUX_ID={set_id}\r\n"


@pytest.mark.parametrize(
    ("legs", "sound"),
    [
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT), leg(2, "A", GUARD2, MIDDLE2, EXIT)], True),
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT)], False),
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT), leg(2, "B", GUARD2, MIDDLE2, EXIT)], False),
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT), leg(2, "A", GUARD1, MIDDLE2, EXIT)], False),
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT), leg(2, "A", GUARD2, MIDDLE1, EXIT)], False),
        ([leg(1, "A", GUARD1, MIDDLE1, EXIT), leg(2, "A", GUARD2, EXIT, MIDDLE2)], False),
        (
            [
                leg(1, "A", GUARD1, MIDDLE1, EXIT),
                leg(2, "A", GUARD2, MIDDLE2, EXIT, purpose="CONFLUX_UNLINKED"),
            ],
            False,
        ),
    ],
)
def test_a_linked_set_shares_the_exit_and_nothing_else(legs: list[str], sound: bool) -> None:
    events = [ControlMessage.from_str(text, "EVENT") for text in legs]
    tor: Any = SimpleNamespace(controller=SimpleNamespace(get_circuits=lambda: events))
    network = TorNetwork({"client1": tor, "client2": tor}, {"exit1": EXIT})
    lab = cast(Lab, SimpleNamespace(plan=make_plan("TwoPaths", "conflux")))
    running = Running(lab, network, cast(Circuits, None), {})
    (check,) = asyncio.run(linked_sets.before(running))
    assert check.ok == sound
    assert (check.observed == "yes") == sound


def test_linked_sets_need_two_paths() -> None:
    with pytest.raises(InputError) as caught:
        make_plan("One", "conflux")
    assert str(caught.value) == (
        'scenarios/One.toml: topology = "two_clients" has one path from client1 to the exit, but'
        " linked circuits (conflux = true) need two: take two_paths"
    )


@pytest.mark.parametrize(
    ("on_sets", "on_others", "ok"), [(90, 10, True), (89, 11, False), (0, 0, False)]
)
def test_streams_of_conflux_run_on_sets(on_sets: int, on_others: int, ok: bool) -> None:
    check = linked_sets.streams_on_sets(on_sets, on_others)
    assert (check.observed, check.ok) == (f"{on_sets} of {on_sets + on_others}", ok)


@pytest.mark.experiment
def test_where_tor_chooses_the_probes_and_the_traffic_share_linked_sets(tmp_path: Path) -> None:
    """A set for the probes alone would be a client's only one."""
    options = ("--set", "network.clients=8", "--set", "warm_up=15 s")
    run = machine.run_scenario(tmp_path, "SmallNetwork", "conflux", 15, *options)
    (check,) = (one for one in run.summary.checks if one.name == "streams on linked sets")
    assert re.fullmatch(r"([1-9]\d*) of \1", check.observed)
    carried = run.streams.filter(status="SUCCEEDED")
    of_probes = polars.col("target").str.ends_with(":9")
    probed, loaded = (
        set(carried.filter(which).select("client", "circuit").iter_rows())
        for which in (of_probes, ~of_probes)
    )
    assert len(loaded) == 8 and loaded & probed
