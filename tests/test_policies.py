"""Policies: scenarios' keys for them, users' classes, and which circuit carried what."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars
import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.toml_file import PROJECT
from testbed.inside.checks import Running, spread
from testbed.inside.lab.network import Lab
from testbed.inside.policies.interface import Circuit, FixedPath, Place, Relay, Stream
from testbed.inside.policies.parallel import ParallelCircuits, hashing
from testbed.inside.policies.reading import policy_class
from testbed.inside.recording import Record
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.policy_circuits import PolicyCircuits
from testbed.inside.tor.process import RunningTor
from testbed.plan.choices import STREAM_RULES
from testbed.plan.model import Plan

EXAMPLE = PROJECT / "docs" / "examples" / "TwoCircuits.toml"
POLICY = EXAMPLE.with_name("two_circuits.py")
SAMPLED = PROJECT / "scenarios" / "SmallNetwork.toml"


class Client:
    """A client whose circuits are open as soon as they are asked for."""

    def __init__(self) -> None:
        self.name = "client1"
        self.path: tuple[str, ...] = ("guard1", "middle1", "exit1")
        self.place: Place | None = None
        self.relays: Mapping[str, Relay] = {}
        self.open: list[Circuit] = []

    def circuits(self) -> Sequence[Circuit]:
        return self.open

    def extend(self, path: Sequence[str]) -> None:
        self.open.append(Circuit(str(len(self.open) + 1), tuple(path), 0))

    def close(self, circuit: Circuit) -> None:
        self.open.remove(circuit)

    def build_for(self, port: int) -> None:
        raise AssertionError(f"for port {port} the policy chooses the relays")

    def building(self) -> int:
        return 0

    def now_s(self) -> float:
        return 0.0

    def draw(self, purpose: str) -> float:
        return 0.5


def stream(number: int, *, is_probe: bool = False) -> Stream:
    return Stream(str(number), f"127.0.0.1:{40000 + number}", "10.0.5.1:8888", is_probe)


def scenario(folder: Path, policy: str, source: str | None = None) -> str:
    if source is not None:
        (folder / "mine.py").write_text(source)
    file = folder / "Mine.toml"
    file.write_text(EXAMPLE.read_text().replace("two_circuits.py", policy))
    return str(file)


def test_a_fixed_path_carries_everything() -> None:
    policy = FixedPath(client := Client())
    assert not policy.is_ready()
    policy.prepare()
    assert policy.is_ready()
    assert [circuit.path for circuit in client.open] == [client.path]
    assert policy.choose(stream(1)) == client.open[0]


@pytest.mark.parametrize("rule", STREAM_RULES)
def test_parallel_circuits_spread_the_streams(rule: str) -> None:
    policy = ParallelCircuits(client := Client(), circuits=3, rule=rule)
    policy.prepare()
    assert policy.is_ready()
    assert [circuit.path for circuit in client.open] == [client.path] * 3
    by_rule = {
        "uniform": [number % 3 for number in range(9)],
        "hashing": [hashing(stream(number).source, "10.0.5.1:8888", 3) for number in range(9)],
    }
    taken = []
    for number in range(9):
        taken.append(client.open.index(policy.choose(stream(number))))
        # Probes take the circuits in a turn of their own.
        assert policy.choose(stream(100 + number, is_probe=True)) == client.open[number % 3]
    assert taken == by_rule[rule]
    client.close(client.open[0])
    assert not policy.is_ready()


@pytest.mark.parametrize("source", [EXAMPLE.read_text(), SAMPLED.read_text()])
def test_variant_and_policy_may_not_both_decide_on_circuits(tmp_path: Path, source: str) -> None:
    file = tmp_path / "Mine.toml"
    file.write_text(source)
    (tmp_path / "two_circuits.py").write_text(POLICY.read_text())
    with pytest.raises(InputError, match=r"mctor-3 has parallel_circuits = 3.*leave out one"):
        make_plan(str(file), "mctor-3")


def test_the_example_spreads_streams() -> None:
    policy = policy_class(POLICY.read_text(), POLICY.name)(client := Client())
    policy.prepare()
    assert policy.is_ready()
    client.open[0] = Circuit("1", client.path, streams=1)
    assert policy.choose(stream(2)) == client.open[1]
    assert policy.choose(stream(3, is_probe=True)) == client.open[0]
    del client.open[1]
    policy.circuit_closed("2")
    assert policy.is_ready()


def test_the_plan_has_the_files_text() -> None:
    plan = make_plan(str(EXAMPLE), "vanilla")
    assert (plan.policy.name, plan.policy.text) == ("two_circuits", POLICY.read_text())
    assert make_plan("One", "vanilla").policy.name == "fixed"
    assert make_plan("SmallNetwork", "vanilla").policy.name == "tor"


@pytest.mark.parametrize(
    ("policy", "source", "message"),
    [
        ("randomly", None, 'paths.policy = "randomly": is not a policy: did you mean "random"?'),
        ("mine.py", None, "can't be read: give the path as seen from the scenario"),
        ("mine.py", "import nothing_of_that_name", "can't be imported: ModuleNotFoundError"),
        ("mine.py", "1/0", "can't be imported: ZeroDivisionError"),
        ("mine.py", "x = 1", "defines 0 subclasses of Policy, not one"),
        ("mine.py", POLICY.read_text() + "\n\nclass Other(Policy): ...", "defines 2 subclasses"),
    ],
)
def test_a_policy_is_refused(tmp_path: Path, policy: str, source: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(scenario(tmp_path, policy, source), "vanilla")
    assert message in str(caught.value)
    assert "Mine.toml: paths.policy" in str(caught.value)
    assert "\n" not in str(caught.value)


CHOOSES = """
from testbed.inside.policies.interface import Circuit, Policy

class Mine(Policy):
    def choose(self, stream):
        {}
"""


NEW_STREAM = SimpleNamespace(
    purpose="USER",
    status="NEW",
    id="7",
    target="10.0.5.1:8888",
    target_port=8888,
    source_address="127.0.0.1",
    source_port=40000,
    circ_id=None,
)


def circuits_of_client1(plan: Plan, record: Record) -> PolicyCircuits:
    """The circuits of a client whose Tor is silent."""
    controller = SimpleNamespace(add_event_listener=lambda *_: None)
    tor = SimpleNamespace(node=plan.node("client1"), controller=controller)
    network = SimpleNamespace(fingerprints={})
    return PolicyCircuits(cast(RunningTor, tor), cast(TorNetwork, network), plan, record)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ('return Circuit("999", (), 0)', "choose() returned the circuit 999, which isn't open"),
        ("self.client.circuits()", "choose() returned None, which is not a circuit"),
        ('return "999"', "choose() returned '999', which is not a circuit"),
        ("return 1 / 0", "ZeroDivisionError('division by zero')"),
    ],
)
def test_a_policy_that_gives_no_circuit_for_a_stream(
    tmp_path: Path, chosen: str, message: str
) -> None:
    plan = make_plan(scenario(tmp_path, "mine.py", CHOOSES.format(chosen)), "vanilla")
    with Record(tmp_path / "raw") as record:
        circuits = circuits_of_client1(plan, record)
        circuits._on_stream(NEW_STREAM)
    assert circuits.failure == f"client1: policy mine: {message}"


@pytest.mark.parametrize("variant", ["vanilla", "mctor-3"])
def test_a_stream_whose_circuit_has_ended_is_left_to_the_checks(
    tmp_path: Path, variant: str
) -> None:
    """A circuit that changed makes a run invalid, but doesn't end it."""
    plan = make_plan("NoDropping", variant)
    with Record(tmp_path / "raw") as record:
        circuits = circuits_of_client1(plan, record)
        circuits._on_stream(NEW_STREAM)
        lab = cast(Lab, SimpleNamespace(plan=plan))
        running = Running(lab, cast(TorNetwork, None), cast(Circuits, [circuits]), {})
        checks = asyncio.run(spread.after(running))
    assert circuits.failure is None
    notes = (tmp_path / "raw" / "notes.jsonl").read_text()
    assert "client1: stream 7 not attached: no open circuit" in notes
    assert [check.observed for check in checks] == (["client1: "] if variant == "mctor-3" else [])


def test_a_policys_file_may_have_classes_of_its_own() -> None:
    """Also classes whose creation looks up their module."""
    own = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Load:
    streams: int = 0
"""
    text = POLICY.read_text()
    docstring_end = text.index('"""', 3) + 3
    made = policy_class(text[:docstring_end] + own + text[docstring_end:], "mine.py")
    assert made.__name__ == policy_class(text, POLICY.name).__name__


def test_linked_sets_and_a_users_policy_exclude_each_other(tmp_path: Path) -> None:
    """Tor builds the sets, so a policy would never be asked."""
    file = tmp_path / "Mine.toml"
    two_paths = (PROJECT / "scenarios" / "TwoPaths.toml").read_text()
    file.write_text(f'{two_paths}\n[paths]\npolicy = "{POLICY}"\n')
    with pytest.raises(InputError, match="conflux has conflux = true, where Tor builds"):
        make_plan(str(file), "conflux")
    file.write_text(f'{two_paths}\n[paths]\npolicy = "tor"\n')
    assert make_plan(str(file), "conflux").tor.conflux


def test_a_drawn_network_has_no_fixed_paths(tmp_path: Path) -> None:
    text = (PROJECT / "scenarios" / "SmallNetwork.toml").read_text()
    file = tmp_path / "Mine.toml"
    file.write_text(text + '\n[paths]\npolicy = "fixed"\n')
    with pytest.raises(InputError, match="a drawn network has no paths"):
        make_plan(str(file), "vanilla")


def circuits_of(table: polars.DataFrame) -> polars.Series:
    """How many circuits each client has used."""
    return table.group_by("client").agg(polars.col("circuit").n_unique())["circuit"]


@pytest.mark.experiment
def test_the_example_for_real(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, str(EXAMPLE), "vanilla", 60)
    carried = run.transfers.filter("ok")
    assert carried["path"].unique().to_list() and carried["path"].null_count() == 0
    assert set(carried.filter(client="client1")["path"]) == {"guard1,middle1,exit1"}
    # A pause, a page, a pause, a page: in 60 s each client has used both circuits.
    assert (
        carried.group_by("client")
        .agg(polars.col("circuit").n_unique().alias("circuits"))["circuits"]
        .min()
        == 2
    )
    probed = run.streams.filter(status="SUCCEEDED").filter(polars.col("target").str.ends_with(":9"))
    assert (
        probed.group_by("client")
        .agg(polars.col("circuit").n_unique().alias("circuits"))["circuits"]
        .max()
        == 1
    )


@pytest.mark.experiment
def test_a_policy_that_fails_while_it_runs(tmp_path: Path) -> None:
    source = POLICY.read_text().replace("return min(", "raise LookupError('none') or min(")
    with pytest.raises(AssertionError, match=r"policy mine: LookupError\('none'\)"):
        run_scenario(tmp_path, scenario(tmp_path, "mine.py", source), "vanilla", 60)
