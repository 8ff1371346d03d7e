"""A run's shared links beside simulated ones: circuits chosen as by Tor, and in another way."""

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
from command_line import status_of
from made_runs import START_S
from test_whole_networks import circuit

from salsa import observed
from salsa.cases import Case, Rule
from salsa.drawing import draw
from salsa.observed import Second, compared_with_simulation, consensus_of
from salsa.positions import positions
from salsa.simulation import Estimate
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.plan.model import Plan
from testbed.results import Run
from testbed.results.tables import SCHEMAS

CIRCUITS = 400
Paths = Iterable[tuple[int, int, int]]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("Network19to1", "vanilla")


def as_tor(plan: Plan, seed: int) -> Paths:
    """Circuits drawn by the network's weights."""
    case = Case(rules=frozenset({Rule.NO_RELAY_TWICE}))
    drawn = draw(positions(consensus_of(plan), case), CIRCUITS, per_client=1, seed=seed)
    return zip(*drawn, strict=True)


def evenly() -> Paths:
    """Circuits that choose all relays equally often."""
    chance = np.random.default_rng(1)
    return [tuple(chance.choice(50, 3, replace=False)) for _ in range(CIRCUITS)]


def run_of(plan: Plan, *seconds: Paths) -> Run:
    """A run with an active circuit for each path of relays' numbers, in each second."""
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
    seconds = compared_with_simulation(run, undirected=undirected, seeds=20)
    assert [one.second for one in seconds] == [1, 2, 3]
    for one in seconds:
        assert one.circuits == CIRCUITS
        assert one.deviations is not None and abs(one.deviations) < 4
        assert one.seen_percent == pytest.approx(one.simulated_percent.mean, rel=0.2)


def test_circuits_that_choose_evenly_share_fewer_links(plan: Plan) -> None:
    (second,) = compared_with_simulation(run_of(plan, evenly()), seeds=20)
    assert second.deviations is not None and second.deviations < -8


def test_seconds_with_hardly_a_circuit_are_left_out(plan: Plan) -> None:
    few = [*as_tor(plan, 1)][: observed.LEAST_CIRCUITS - 1]
    assert len(compared_with_simulation(run_of(plan, few, as_tor(plan, 2)), seeds=2)) == 1
    with pytest.raises(InputError, match="in no second were 10 circuits active"):
        compared_with_simulation(run_of(plan, few), seeds=2)


def test_seconds_in_which_no_cell_crosses_a_link_are_left_out(plan: Plan) -> None:
    inside = [(0, 0, 0)] * observed.LEAST_CIRCUITS
    (second,) = compared_with_simulation(run_of(plan, inside, as_tor(plan, 1)), seeds=2)
    assert second.second == 2


def test_other_runs_are_refused(plan: Plan) -> None:
    with pytest.raises(InputError, match="must be Tor's own choice"):
        compared_with_simulation(run_of(make_plan("SharedDropping", "vanilla")), seeds=2)
    watched = plan.model_copy(update={"watched": (("relay1", "relay2"),), "only_watched": True})
    with pytest.raises(InputError, match="leave the scenario's watch out"):
        compared_with_simulation(run_of(watched), seeds=2)


def test_the_command(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(plan, *(as_tor(plan, seed) for seed in (5, 6, 7, 8)))
    monkeypatch.setattr("testbed.results.read_run", lambda _: run)
    assert status_of(["salsa", "--run", "made", "--seeds", "20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Mean over 4 seconds: {CIRCUITS} active circuits" in said
    assert "Against the simulation no difference is shown: " in said
    assert "4 seconds in a row are worth" in said
    assert status_of(["salsa", "--run", "made", "--seeds", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["circuits"] for row in rows] == [CIRCUITS] * 4
    assert status_of(["salsa", "--run", "made", "--seeds", "5", "--csv"]) == 0
    same = csv.DictReader(io.StringIO(capsys.readouterr().out))
    shares = [row["seen_percent"] for row in rows]
    assert [float(row["seen_percent"]) for row in same] == pytest.approx(shares)


def test_seconds_in_a_row_are_worth_fewer_independent_ones() -> None:
    """Noise that keeps 0.8 of itself from step to step has (1 + 0.8) / (1 - 0.8) = 9 steps."""
    chance = np.random.default_rng(2)
    steps = chance.normal(size=20_000)
    lasting = np.zeros(len(steps))
    for number in range(1, len(steps)):
        lasting[number] = 0.8 * lasting[number - 1] + steps[number]
    assert observed.autocorrelation_time(steps) == pytest.approx(1, abs=0.1)
    assert observed.autocorrelation_time(lasting) == pytest.approx(9, rel=0.15)
    assert observed.autocorrelation_time(np.ones(10)) == 1


def test_a_verdict_on_lasting_seconds_is_wrong_as_rarely_as_it_says() -> None:
    """Taken as independent, more than a third of such runs would seem to differ."""
    chance = np.random.default_rng(3)
    by_effective = by_seconds = 0
    for _ in range(300):
        level, shares = chance.normal(), []
        for _ in range(59):
            level = 0.7 * level + chance.normal() * (1 - 0.7**2) ** 0.5
            shares.append(level)
        seconds = [
            Second(number, 90, 125, 25 + share, Estimate(25.0), None, 50)
            for number, share in enumerate(shares)
        ]
        whole = observed.agreement(seconds)
        assert whole is not None
        by_effective += whole.interval[0] > 0 or whole.interval[1] < 0
        by_seconds += abs(np.mean(shares)) > 2 * np.std(shares, ddof=1) / len(shares) ** 0.5
    assert by_effective < 300 * 0.15
    assert by_seconds > 300 * 0.3


def test_guards_are_what_the_plan_says(plan: Plan) -> None:
    assert observed.case_of(plan).guards == 2  # as the live network's clients have
    params = {**plan.tor.consensus_params, "guard-n-primary-guards-to-use": 3}
    tor = plan.tor.model_copy(update={"consensus_params": params})
    policy = plan.policy.model_copy(update={"entry_guards": True})
    assert observed.case_of(plan.model_copy(update={"tor": tor, "policy": policy})).guards == 3
    free = plan.policy.model_copy(update={"entry_guards": False})
    assert observed.case_of(plan.model_copy(update={"tor": tor, "policy": free})).guards == 1
