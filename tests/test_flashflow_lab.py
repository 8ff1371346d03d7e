"""The lab's relays measured: the plan, rounds until results hold, the file; without a machine."""

from collections.abc import Callable

import pytest

from commands.__main__ import main
from flashflow.lab import (
    AROUND_S,
    MOST_ROUNDS,
    Outcome,
    bandwidth_file,
    chosen_guesses,
    first_guesses,
    measure_network,
)
from flashflow.parameters import PAPER
from testbed.asked.measurers import measuring_plan
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.plan.measurement import Asked, Measured, RelaySeconds
from testbed.plan.model import Plan

TEAM = {"measurer1": 1e9, "measurer2": 1e9}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return measuring_plan("SmallNetwork", [10**9, 2 * 10**9], seed=1)


def test_measurers_take_the_place_of_clients(plan: Plan) -> None:
    plain = make_plan("SmallNetwork", "vanilla")
    # With fewer sites they have other addresses.
    drawn = [
        [one.model_copy(update={"address": None}) for one in each.of_kind("relay")]
        for each in (plan, plain)
    ]
    assert drawn[0] == drawn[1]
    assert plan.clients == ["measurer1", "measurer2"]
    for number, rate in ((1, 10**9), (2, 2 * 10**9)):
        name, client = f"measurer{number}", f"client{number}"
        assert plan.node(name).site == plain.node(client).site
        [link] = [one for one in plan.links if name in one.ends]
        [clients] = [one for one in plain.links if client in one.ends]
        assert link.there.rate_bit_per_s == link.back.rate_bit_per_s == rate
        assert link.there.delay_ms == clients.there.delay_ms
    assert [patch.name for patch in plan.tor.patches] == ["measured.patch"]
    [key] = plan.tor.torrc_relay["MeasurementKey"]
    other = measuring_plan("SmallNetwork", [10**9], seed=2)
    assert other.tor.torrc_relay["MeasurementKey"] != [key]
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_clients_may_have_traffic_while_relays_are_measured() -> None:
    plan = measuring_plan("SmallNetwork", [10**9], seed=1, clients=12, ratio=0.1)
    assert plan.clients == ["measurer1", *(f"client{number}" for number in range(2, 14))]
    assert list(plan.traffic_by_client) == plan.clients[1:]
    # They choose paths as the scenario says, and have its servers.
    assert plan.policy.entry_guards
    assert len(plan.of_kind("server")) == 4
    assert plan.tor.torrc_relay["MeasurementBackground"] == ["10"]
    idle = measuring_plan("SmallNetwork", [10**9], seed=1)
    assert not idle.traffic_by_client
    assert not idle.policy.entry_guards
    assert "MeasurementBackground" not in idle.tor.torrc_relay


def test_what_clients_had_around_a_measurement_is_reported(plan: Plan) -> None:
    def change(one: RelaySeconds) -> RelaySeconds:
        around = {"background_before": (3,) * AROUND_S, "background_after": (2,) * AROUND_S}
        return one.model_copy(update={"background": (1,) * 30, **around})

    busy = measuring_plan("SmallNetwork", [10**9, 10**9], seed=1, clients=1)
    for network, around_s in ((busy, AROUND_S), (plan, 0)):
        carry_out = lab(network, change)
        found = measured(network, carry_out)["relay1"]
        assert {asked.around_s for asked in carry_out.asked} == {around_s}
        assert found.before_bit_per_s == (24,) * AROUND_S
        assert found.background_seconds_bit_per_s == (8,) * 30
        assert found.background_bit_per_s == 8
        assert found.after_bit_per_s == (16,) * AROUND_S


def test_a_topology_has_no_place_for_measurers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"NoDropping\.toml: its clients reach one relay each"):
        measuring_plan("NoDropping", [10**9], seed=1)
    assert main(["flashflow", "NoDropping"]) == 2
    assert "nothing is drawn" in capsys.readouterr().err


def test_measurers_that_have_too_little_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["flashflow", "SmallNetwork", "--measurers", "500 Mbit/s,500 Mbit/s"]
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "they have 1000 Mbit/s, and the largest relay of SmallNetwork, of 358 Mbit/s" in line
    assert "needs 2.95 times its own, 1056: 2 of 1 Gbit/s have enough" in line


def lab(plan: Plan, change: Callable[[RelaySeconds], RelaySeconds] = lambda one: one) -> "Lab":
    return Lab(plan, change)


class Lab:
    """A lab in which each relay carries its link's rate, or what its measurers send."""

    def __init__(self, plan: Plan, change: Callable[[RelaySeconds], RelaySeconds]) -> None:
        self.asked: list[Asked] = []
        self._plan = plan
        self._change = change

    def __call__(self, asked: Asked) -> Measured:
        self.asked.append(asked)
        found = []
        for one in (one for slot in asked.slots for one in slot):
            total = sum(one.shares_bit_per_s.values())
            rate = self._plan.node(one.relay).rate_up_bit_per_s or 0
            seconds = (int(min(total, rate) / 8),) * asked.seconds
            echoed = {"measurer1": seconds, "measurer2": (0,) * asked.seconds}
            nothing = (0,) * asked.seconds
            found.append(
                self._change(
                    RelaySeconds(
                        relay=one.relay,
                        fingerprint="A" * 40,
                        echoed=echoed,
                        background=nothing,
                        checked=5,
                        forged=0,
                    )
                )
            )
        return Measured(relays=tuple(found))


def measured(plan: Plan, carry_out: Lab) -> dict[str, Outcome]:
    found = measure_network(plan, TEAM, "key", PAPER, 160, carry_out)
    return {one.relay: one for one in found}


def test_relays_are_measured_until_their_results_hold(plan: Plan) -> None:
    carry_out = lab(plan)
    found = measured(plan, carry_out)
    assert list(found) == [relay.name for relay in plan.of_kind("relay")]
    for one in found.values():
        assert one.holds
        assert one.error_percent == pytest.approx(0, abs=0.01)
    # relay10 weighs 80, which is 0.64 Mbit/s of the 4.7 that it has.
    assert first_guesses(plan)["relay10"] == 640_000
    assert found["relay10"].measurements > found["relay1"].measurements == 1
    assert len(carry_out.asked) == max(one.measurements for one in found.values())
    for asked in carry_out.asked:
        assert (asked.seconds, asked.sockets, asked.key) == (30, 160, "key")
        for slot in asked.slots:
            for measurer, rate in TEAM.items():
                assert sum(one.shares_bit_per_s[measurer] for one in slot) <= rate * (1 + 1e-9)


def test_only_the_named_relays_are_measured_from_a_guess(plan: Plan) -> None:
    carry_out = lab(plan)
    guesses = chosen_guesses(plan, ["relay10", "relay2"], 5_000_000)
    assert guesses == {"relay2": 5_000_000, "relay10": 5_000_000}
    found = measure_network(plan, TEAM, "key", PAPER, 160, carry_out, guesses)
    assert [one.relay for one in found] == ["relay2", "relay10"]
    assert found[1].measurements == 1  # it has 4.7 Mbit/s: its weight needs more rounds
    assert chosen_guesses(plan) == first_guesses(plan)
    with pytest.raises(InputError, match="--relays relay11: did you mean"):
        chosen_guesses(plan, ["relay11"])


def test_a_relay_that_cannot_be_measured_has_its_problem(plan: Plan) -> None:
    def change(one: RelaySeconds) -> RelaySeconds:
        if one.relay != "relay2":
            return one
        return one.model_copy(update={"problem": "relay2: 3 of 5 checked cells came back wrong"})

    found = measured(plan, lab(plan, change))
    assert found["relay2"].bit_per_s is None
    assert not found["relay2"].holds
    assert found["relay2"].measurements == 1
    file = bandwidth_file(plan, list(found.values()), 1638241200)
    assert set(file.by_nickname()) == {f"relay{number}" for number in (1, *range(3, 11))}


def test_a_relay_that_echoes_more_than_it_is_sent_comes_to_an_end(plan: Plan) -> None:
    def change(one: RelaySeconds) -> RelaySeconds:
        return one.model_copy(update={"echoed": {"measurer1": (10**10,) * 30}})

    found = measured(plan, lab(plan, change))
    assert not any(one.holds for one in found.values())
    assert all(one.measurements <= MOST_ROUNDS for one in found.values())


def test_results_are_weights(plan: Plan) -> None:
    file = bandwidth_file(plan, list(measured(plan, lab(plan)).values()), 1638241200)
    assert file.header["seed"] == "1"
    weights = {name: one.weight for name, one in file.by_nickname().items()}
    # 358 Mbit/s are 44,7xx kB/s.
    assert weights == {
        relay.name: pytest.approx((relay.rate_up_bit_per_s or 0) / 8000, abs=1)
        for relay in plan.of_kind("relay")
    }
