"""A run's shared links beside the simulated ones: circuits drawn as Tor does, and otherwise."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import polars
import pytest
from commands import status_of
from made_runs import START_S
from test_whole_networks import circuit

from salsa import observed
from salsa.cases import Case, Rule
from salsa.drawing import draw
from salsa.observed import consensus_of, held_against_simulation
from salsa.positions import positions
from testbed.errors import InputError
from testbed.plan import make_plan
from testbed.plan_model import Plan
from testbed.results import Run
from testbed.results.tables import SCHEMAS

CIRCUITS = 400
Paths = Iterable[tuple[int, int, int]]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("Network19to1", "vanilla")


def as_tor(plan: Plan, seed: int) -> Paths:
    """Circuits by the drawn weights."""
    case = Case(rules=frozenset({Rule.NO_RELAY_TWICE}))
    drawn = draw(positions(consensus_of(plan), case), CIRCUITS, per_client=1, seed=seed)
    return zip(*drawn, strict=True)


def evenly() -> Paths:
    """Circuits that take each relay as often."""
    chance = np.random.default_rng(1)
    return [tuple(chance.choice(50, 3, replace=False)) for _ in range(CIRCUITS)]


def run_of(plan: Plan, *seconds: Paths) -> Run:
    """A run in whose seconds circuits with these relays are active, by their numbers."""
    names = [relay.name for relay in plan.of_kind("relay")]
    rows = [
        row
        for second, paths in enumerate(seconds, 1)
        for number, (guard, middle, last) in enumerate(paths)
        for row in circuit(
            10 * (CIRCUITS * second + number),
            (names[guard], names[middle], names[last]),
            second,
        )
    ]
    queues = polars.DataFrame(rows, schema=SCHEMAS["queues"])
    plan = plan.model_copy(update={"duration_s": len(seconds) + 1.0})
    made = SimpleNamespace(
        queues=queues, measuring_start_s=START_S, plan=plan, directory=Path("made")
    )
    return cast(Run, made)


def test_a_drawn_network_is_a_consensus(plan: Plan) -> None:
    consensus = consensus_of(plan)
    assert consensus.relays.height == 50
    assert consensus.relays["weight"].to_list() == [one.weight for one in plan.of_kind("relay")]
    assert consensus.bandwidth_weights == plan.bandwidth_weights


@pytest.mark.parametrize("undirected", [False, True])
def test_circuits_as_tor_chooses_them_are_as_simulated(plan: Plan, undirected: bool) -> None:
    run = run_of(plan, as_tor(plan, 97), as_tor(plan, 98), as_tor(plan, 99))
    seconds = held_against_simulation(run, undirected=undirected, seeds=20)
    assert [one.second for one in seconds] == [1, 2, 3]
    for one in seconds:
        assert one.circuits == CIRCUITS
        assert one.deviations is not None and abs(one.deviations) < 4
        assert one.seen_percent == pytest.approx(one.simulated_percent.mean, rel=0.2)


def test_circuits_that_choose_evenly_share_fewer_links(plan: Plan) -> None:
    (second,) = held_against_simulation(run_of(plan, evenly()), seeds=20)
    assert second.deviations is not None and second.deviations < -8


def test_seconds_with_hardly_a_circuit_are_left_out(plan: Plan) -> None:
    few = [*as_tor(plan, 1)][: observed.LEAST_CIRCUITS - 1]
    assert len(held_against_simulation(run_of(plan, few, as_tor(plan, 2)), seeds=2)) == 1
    with pytest.raises(InputError, match="never were 10 circuits active"):
        held_against_simulation(run_of(plan, few), seeds=2)


def test_other_runs_are_refused(plan: Plan) -> None:
    with pytest.raises(InputError, match="must be Tor's own choice"):
        held_against_simulation(run_of(make_plan("SharedDropping", "vanilla")), seeds=2)
    watched = plan.model_copy(update={"watched": (("relay1", "relay2"),)})
    with pytest.raises(InputError, match="leave the scenario's watch out"):
        held_against_simulation(run_of(watched), seeds=2)


def test_the_command(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(plan, as_tor(plan, 5), as_tor(plan, 6), evenly())
    monkeypatch.setattr("testbed.results.read_run", lambda _: run)
    assert status_of(["salsa", "--run", "made", "--seeds", "20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Mean over 3 seconds: {CIRCUITS} active circuits" in said
    assert "More than two standard deviations from it: 1 of 3 seconds" in said
    assert status_of(["salsa", "--run", "made", "--seeds", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["circuits"] for row in rows] == [CIRCUITS] * 3
    assert status_of(["salsa", "--run", "made", "--seeds", "5", "--csv"]) == 0
    same = csv.DictReader(io.StringIO(capsys.readouterr().out))
    shares = [row["seen_percent"] for row in rows]
    assert [float(row["seen_percent"]) for row in same] == pytest.approx(shares)
