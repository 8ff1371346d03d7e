"""The pairs of relays that a scenario has watched: some, all, the busiest; and what is recorded."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from drawn_networks import draw_scenario
from machine import run_scenario
from pyroute2 import DiagSocket

from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.asked.sampled_plan import _used_links, expected_use
from testbed.basics.errors import InputError
from testbed.inside.probes.sockets import connections
from testbed.network.positions import Floats
from testbed.plan.model import MOST_SAMPLES_PER_S, Plan
from testbed.runs.bootstrapped import bare_plan

TINY = """
title = "Five relays"
topology = "sampled"
duration = "10 s"
watch = ["relay4-relay1", "relay4-relay5"]

[network]
consensus = "2021-11-30"
relays  = 5
clients = 4
servers = 1

[clients]
page = "100 %"
"""


def watching(scenario: str, watch: str) -> Plan:
    return make_plan(scenario, "pctls", changes={"watch": watch})


# In the plan.


def test_without_the_key_the_topologys_pair_is_watched_and_all_relays_recorded() -> None:
    for scenario, watched in (("NoDropping", (("middle1", "exit1"),)), ("SmallNetwork", ())):
        plan = make_plan(scenario, "pctls")
        assert plan.watched == watched
        assert plan.recorded_relays == [relay.name for relay in plan.of_kind("relay")]


def test_older_plans_have_a_separate_key_for_the_shared_link() -> None:
    plan = make_plan("NoDropping", "pctls")
    older = plan.model_dump(mode="json") | {"shared_link": ["middle1", "exit1"], "watched": None}
    del older["only_watched"]
    assert Plan.model_validate(older) == plan
    named = older | {"watched": [["guard1", "middle1"]]}
    assert Plan.model_validate(named) == watching("NoDropping", "guard1-middle1").model_copy(
        update={"scenario": plan.scenario, "changes": {}}
    )


def test_networks_are_bootstrapped_once_whatever_is_watched() -> None:
    for watch in ("the 2 busiest", "all relay pairs"):
        assert bare_plan(watching("NoDropping", watch)) == bare_plan(
            make_plan("NoDropping", "pctls")
        )


def test_pairs_are_named_in_either_order(tmp_path: Path) -> None:
    scenario = tmp_path / "Mine.toml"
    scenario.write_text(TINY)
    plan = make_plan(str(scenario), "pctls")
    assert plan.watched == (("relay1", "relay4"), ("relay4", "relay5"))
    assert plan.recorded_relays == ["relay1", "relay4", "relay5"]
    assert plan.crossed_pairs == []  # Tor chooses, so no path is known
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    scenario.write_text(TINY.replace("watch", "# watch"))
    assert make_plan(str(scenario), "pctls").key != plan.key


def test_the_shared_link_is_always_watched() -> None:
    plan = watching("NoDropping", "guard2-middle1")
    assert plan.watched == (("middle1", "exit1"), ("guard2", "middle1"))
    assert plan.recorded_relays == ["guard2", "middle1", "exit1"]
    assert {pair: plan.circuits_across(pair) for pair in plan.crossed_pairs} == {
        ("middle1", "exit1"): 8,
        ("guard2", "middle1"): 2,
    }
    assert plan.shared_link == ("middle1", "exit1")


def test_all_pairs_are_those_that_circuits_can_cross() -> None:
    plan = watching("NoDropping", "all relay pairs")
    assert plan.watched == (
        ("middle1", "exit1"),
        *((f"guard{number}", "middle1") for number in range(1, 5)),
    )
    assert len(watching("SmallNetwork", "all relay pairs").watched) == 10 * 9 / 2


def test_the_busiest_of_a_topology_have_most_paths() -> None:
    assert watching("NoDropping", "the 1 busiest").watched == (("middle1", "exit1"),)
    # Each guard has two clients: the first guard is taken.
    assert watching("NoDropping", "the 2 busiest").watched == (
        ("middle1", "exit1"),
        ("guard1", "middle1"),
    )


def test_the_busiest_of_a_drawn_network_are_known_by_its_weights() -> None:
    use = expected_use(draw_scenario("SmallNetwork", 1))
    assert sum(use.values()) == pytest.approx(2)  # a circuit has two links between relays
    watched = watching("SmallNetwork", "the 3 busiest").watched
    assert len(watched) == 3
    assert min(use[pair] for pair in watched) > max(
        share for pair, share in use.items() if pair not in watched
    )
    assert watching("SmallNetwork", "the 3 busiest").watched == watched


def by_drawing(guard: Floats, middle: Floats, last: Floats) -> Floats:
    """The same as `_used_links`, circuit by circuit."""
    used = np.zeros((len(guard), len(guard)))
    for one, two, three in permutations(range(len(guard)), 3):
        rest = 1 - middle[one] - middle[three]
        probability = last[three] * guard[one] / (1 - guard[three]) * middle[two] / rest
        for ends in ((one, two), (two, three)):
            used[ends] += probability
            used[ends[::-1]] += probability
    return used


def test_expected_use_is_that_of_all_circuits() -> None:
    draw = np.random.default_rng(1).dirichlet
    guard, middle, last = (draw(np.ones(6)) for _ in range(3))
    guard[0] = last[1] = 0
    shares = (guard / guard.sum(), middle, last / last.sum())
    assert _used_links(*shares) == pytest.approx(by_drawing(*shares))


# What is refused.


@pytest.mark.parametrize(
    ("scenario", "watch", "advice"),
    [
        ("NoDropping", "guard1-middle2", "there is no relay middle2: did you mean"),
        ("NoDropping", "guard1-exit1", "no circuit goes from one to the other: did you mean"),
        ("NoDropping", "client1-guard1", "there is no relay client1"),
        ("NoDropping", "the 6 busiest", "there are 5 pairs of relays: write fewer, or"),
        ("NoDropping", "the 0 busiest", 'write "all relay pairs", "the 5 busiest", or a list'),
        ("NoDropping", "everything", 'write "all relay pairs", "the 5 busiest", or a list'),
        ("SmallNetwork", "relay1-relay11", "there is no relay relay11: did you mean"),
        ("SmallNetwork", "relay1-relay1", "no circuit goes from one to the other"),
        ("SmallNetwork", "the 46 busiest", "there are 45 pairs of relays"),
    ],
)
def test_refuses(scenario: str, watch: str, advice: str) -> None:
    with pytest.raises(InputError) as caught:
        watching(scenario, watch)
    message = str(caught.value)
    assert message.startswith(f'scenarios/{scenario}.toml: watch = "{watch}"')
    assert advice in message and "\n" not in message


@pytest.mark.parametrize("value", ["[]", "[1]", "5", "true", '["relay1"]', "{ pairs = 1 }"])
def test_refuses_a_value_that_names_no_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    scenario = tmp_path / "Mine.toml"
    scenario.write_text(TINY.replace('["relay4-relay1", "relay4-relay5"]', value))
    assert main(["scenario", str(scenario), "--variant", "pctls"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "Mine.toml: watch" in message and "names no pairs of relays" in message


# What is recorded.


@contextmanager
def connections_to(addresses: list[str]) -> Iterator[int]:
    """Connections of this machine with itself, at a port that nothing else uses."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = server.getsockname()[1]
        for address in addresses:
            stack.enter_context(socket.create_connection((address, port)))
        yield port


def test_the_kernel_picks_out_the_peers_connections() -> None:
    with connections_to(["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.4"]) as port:
        netlink = DiagSocket()

        def peers(*addresses: str) -> list[str]:
            return sorted(
                str(one["idiag_dst"])
                for one in connections(netlink, 0, addresses)
                if one["idiag_dport"] == port
            )

        assert peers("127.0.0.3") == ["127.0.0.3"]
        assert peers("127.0.0.4", "127.0.0.9", "127.0.0.2") == ["127.0.0.2", *["127.0.0.4"] * 2]
        assert peers("127.0.0.9") == []
        assert len(connections(netlink, 0, ["127.0.0.3"])) < len(connections(netlink, 0))


def test_of_many_relays_each_is_sampled_less_often() -> None:
    def interval_s(relays: int) -> float:
        watched = tuple((f"relay{number}", f"relay{number + 1}") for number in range(1, relays))
        plan = make_plan("SmallNetwork", "pctls").model_copy(update={"watched": watched})
        return plan.uncrossed_interval_s

    assert interval_s(8) == 0.5
    assert interval_s(50) * MOST_SAMPLES_PER_S == 50


@pytest.mark.experiment
def test_only_what_is_watched_is_recorded(tmp_path: Path) -> None:
    scenario = tmp_path / "Tiny.toml"
    scenario.write_text(TINY)
    run = run_scenario(tmp_path, str(scenario), "pctls", 10, timeout_s=1800)
    relays = {"relay1", "relay4", "relay5"}
    assert set(run.queues["relay"]) == relays
    assert set(run.relays["relay"]) == relays
    ends = [("relay1", "relay4"), ("relay4", "relay1"), ("relay4", "relay5"), ("relay5", "relay4")]
    assert sorted(run.sockets.select("node", "peer").unique().rows()) == ends
    assert run.sockets["time_s"].n_unique() == 3 * 10 / 0.5
    (sharing,) = (one for one in run.summary.checks if "several circuits at once" in one.name)
    assert sharing.ok and sharing.value and sharing.value["relay_pairs"] <= 2 * 3
