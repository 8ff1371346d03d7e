"""The plan: resolved numbers, what its key depends on, and every way in which it is refused."""

import ipaddress
import os
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.asked.output import check_output, default_output
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.plan.model import Plan
from testbed.results.differences import differences

SCENARIO = """
title = "A network"
topology = "two_clients"
traffic = "bulk"
duration = "5 min"
[links]
default = { rate = "2 Mbit/s" }
middle-exit = { delay = "100 ms" }
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


def refused(*arguments: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        make_plan(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_numbers_of_shared_dropping() -> None:
    plan = make_plan("SharedDropping", "vanilla")
    (shared,) = plan.links_between("exit", "middle")
    assert shared.ends == plan.shared_link == ("middle1", "exit1")
    assert shared.there == shared.back
    shape = shared.there
    assert (shape.rate_bit_per_s, shape.delay_ms, shape.loss) == (300_000_000, 12.5, 0.001)
    # 300 Mbit/s for 12.5 ms are 468 750 bytes: 309.6 packets of 1514 bytes are under way.
    assert (shape.queue_packets, shape.holds_packets) == (1000, 1310)
    (last,) = plan.links_between("exit", "server")
    assert (last.back.delay_ms, last.back.holds_packets) == (0, 1000)
    assert len(plan.links) == 8 + 4 + 1 + 1
    assert plan.duration_s == 300
    assert set(plan.traffic_by_client.values()) == {"bulk"}
    assert set(plan.congestion_control.values()) == {"cubic"}


def test_paths_of_eight_clients() -> None:
    plan = make_plan("NoDropping", "vanilla")
    guards = [plan.paths[f"client{number}"][0] for number in range(1, 9)]
    assert guards == [f"guard{number}" for number in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert {path[1:] for path in plan.paths.values()} == {("middle1", "exit1")}


def test_addresses_are_one_each_and_in_their_networks() -> None:
    plan = make_plan("NoDropping", "vanilla")
    addresses = [node.address for node in plan.nodes if node.address]
    management = [node.management_address for node in plan.nodes if node.management_address]
    assert len(set(addresses)) == len(addresses) == len(plan.nodes) - 1
    assert len(set(management)) == len(management) == len(plan.nodes) - 1
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("10.0.0.0/16") for a in addresses)
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("10.1.0.0/16") for a in management)
    assert plan.node("authority1").address is None
    assert plan.node("server1").management_address is None
    assert plan.node("guard3").address == "10.0.2.3"


def test_round_trip_through_json() -> None:
    plan = make_plan("SharedDropping", "pctls", seed=7, duration="60 s")
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan
    assert again.key == plan.key


def test_key_names_the_run() -> None:
    plan = make_plan("SharedDropping", "vanilla", seed=1)
    others = [
        make_plan("SharedDropping", "vanilla", seed=2),
        make_plan("SharedDropping", "pctls", seed=1),
        make_plan("NoDropping", "vanilla", seed=1),
        make_plan("SharedDropping", "vanilla", seed=1, duration="60 s"),
    ]
    assert make_plan("SharedDropping", "vanilla", seed=1).key == plan.key
    assert len({plan.key, *(other.key for other in others)}) == 5
    assert plan.model_copy(update={"scenario_title": "Another"}).key == plan.key


def test_key_depends_on_what_a_patch_says_not_where_it_lies(tmp_path: Path) -> None:
    keys = []
    for folder, content in (("one", "same"), ("two", "same"), ("three", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.patch").write_text(content)
        variant = tmp_path / folder / "mine.toml"
        variant.write_text('title = "x"\nextends = "vanilla"\npatches = ["a.patch"]\n')
        keys.append(make_plan("NoDropping", str(variant)).key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("place", "matters"),
    [
        *(
            (place, True)
            for place in (
                "seed",
                "duration_s",
                "links.0.there.loss",
                "tor.variant",
                "links.0.back.bundles",
            )
        ),
        *((place, True) for place in ("tor.patches.0.sha256", "tgen.sha256", "competing.0.port")),
        *((place, False) for place in ("scenario_title", "variant_title", "traffic_overridden")),
        *((place, False) for place in ("tor.patches.0.path", "tgen.path")),
    ],
)
def test_the_key_and_what_plans_differ_in_go_by_the_same_values(
    tmp_path: Path, place: str, matters: bool
) -> None:
    generator = tmp_path / "tgen"
    generator.write_text("#!/bin/sh\n")
    generator.chmod(0o755)
    plan = make_plan("Two", "pctls", tgen=str(generator))
    data = plan.model_dump(mode="json")
    *way, last = (int(key) if key.isdigit() else key for key in place.split("."))
    inner: Any = data
    for key in way:
        inner = inner[key]
    inner[last] = "another" if isinstance(inner[last], str) else inner[last] + 1
    other = Plan.model_validate(data)
    assert (other.key != plan.key) == matters
    assert bool(differences(data, plan.model_dump(mode="json"))) == matters


def test_every_variant_meets_the_same_losses() -> None:
    vanilla, pctls = (make_plan("SharedDropping", name, seed=3) for name in ("vanilla", "pctls"))
    assert vanilla.links == pctls.links
    seeds = [seed for link in vanilla.links for seed in link.netem_seeds]
    assert len(set(seeds)) == len(seeds)
    other = make_plan("SharedDropping", "vanilla", seed=4)
    assert not set(seeds) & {seed for link in other.links for seed in link.netem_seeds}


def test_default_output() -> None:
    plan = make_plan("SharedDropping", "pctls", seed=7)
    assert default_output(plan) == Path("results/SharedDropping/pctls/seed-7")
    same = make_plan("SharedDropping", "pctls", seed=7, traffic="bulk")
    assert default_output(same) == default_output(plan)


def test_other_traffic_has_an_output_of_its_own() -> None:
    plan = make_plan("SharedDropping", "vanilla", traffic="web")
    assert default_output(plan) == Path("results/SharedDropping-web/vanilla/seed-1")
    assert set(plan.traffic_by_client.values()) == {"web"}


def test_a_clients_own_model_is_not_overridden(scenario: Path) -> None:
    scenario.write_text(SCENARIO + '[clients]\nclient1 = "bulk"\n')
    plan = make_plan(str(scenario), "vanilla", traffic="web")
    assert plan.traffic_by_client == {"client1": "bulk", "client2": "web"}


def test_congestion_control_by_role(scenario: Path) -> None:
    scenario.write_text(SCENARIO + '[tcp]\ncongestion_control = { exit = "bbr" }\n')
    plan = make_plan(str(scenario), "vanilla")
    assert plan.congestion_control["exit1"] == "bbr"
    assert plan.congestion_control["client2"] == "cubic"


def test_congestion_control_of_a_role_that_is_not_there(scenario: Path) -> None:
    scenario.write_text(SCENARIO + '[tcp]\ncongestion_control = { relay = "bbr" }\n')
    message = refused(str(scenario), "vanilla")
    assert "tcp.congestion_control.relay: no node of two_clients has this role: there" in message


@pytest.mark.parametrize(
    ("sender", "receiver", "routes"),
    [
        ("exit", "middle", [("exit1", "middle1")]),
        ("middle", "exit", [("middle1", "exit1")]),
        ("middle", "guard", [("middle1", "guard1"), ("middle1", "guard2")]),
        ("server", "middle", [("server1", "exit1", "middle1")]),
    ],
)
def test_competing_streams(
    scenario: Path, sender: str, receiver: str, routes: list[tuple[str, ...]]
) -> None:
    table = f'[[competing]]\nfrom = "{sender}"\nto = "{receiver}"\nstreams = 4\n'
    scenario.write_text(SCENARIO + table)
    competing = make_plan(str(scenario), "vanilla").competing
    assert [each.route for each in competing] == routes
    assert {each.streams for each in competing} == {4}
    assert [(each.sender, each.receiver) for each in competing] == [
        (route[0], route[-1]) for route in routes
    ]


@pytest.mark.parametrize("duration", ["90 s", "90", 90, 90.0, "1.5 min"])
def test_duration_of_the_command_line(duration: str | float) -> None:
    assert make_plan("NoDropping", "vanilla", duration=duration).duration_s == 90


@pytest.mark.parametrize(
    ("duration", "advice"),
    [
        ("5 m", '--duration "5 m" has an unknown unit "m"'),
        ("-60", "is negative"),
        ("nan", "--duration"),
        ("300 Mbit/s", "is a rate, not a time"),
        ("", "is not a number with a unit"),
        (float("inf"), "--duration"),
        (0, "--duration 0"),
    ],
)
def test_refuses_duration(duration: str | float, advice: str) -> None:
    assert advice in refused("NoDropping", "vanilla", duration=duration)


def test_refuses_a_duration_too_short_for_a_transfer(scenario: Path) -> None:
    # Two transfers of 5 MB share the link at 2 Mbit/s: 40 s, and two round trips of 0.2 s.
    message = refused(str(scenario), "vanilla", duration="40.3 s")
    assert "--duration 40.3 s is too short" in message
    assert "at least 40.4 s" in message
    assert make_plan(str(scenario), "vanilla", duration="40.4 s").duration_s == 40.4


def test_the_shortest_duration_counts_each_direction_by_itself(scenario: Path) -> None:
    scenario.write_text(SCENARIO + '\n[clients]\nclient2 = "upload"\n')
    # 5 MB one way and 5 MB the other way, each at 2 Mbit/s: 20 s, and two round trips of 0.2 s.
    message = refused(str(scenario), "vanilla", duration="20.3 s")
    assert "at least 20.4 s" in message


def test_names_the_file_when_its_duration_is_too_short(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("5 min", "1 s"))
    assert "mine.toml: duration 1 s is too short" in refused(str(scenario), "vanilla")


@pytest.mark.parametrize("seed", [-1, 2**31, 1.5, "1", True])
def test_refuses_seed(seed: object) -> None:
    assert "--seed" in refused("NoDropping", "vanilla", seed=seed)


@pytest.mark.parametrize("traffic", ["bluk", ""])
def test_refuses_traffic(traffic: str) -> None:
    assert "bulk" in refused("NoDropping", "vanilla", traffic=traffic)


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("two_clients", "two_client", 'did you mean "two_clients"?'),
        ('traffic = "bulk"', 'traffic = "bluk"', 'mine.toml: traffic = "bluk" is not a model'),
        ("middle-exit", "guard-exit", "no link between guard and exit; it has: client-guard,"),
        ("middle-exit", "exit-authority", "no link between exit and authority"),
        ("default =", "guard-middle =", "the links client-guard of two_clients have no rate"),
        (
            "[links]",
            '[links]\nclient-guard = { delay = "1 ms", queue_in_sender = true }',
            "links.client-guard.queue_in_sender = true is for links without delay and loss",
        ),
        (
            "[links]",
            '[links]\nclient-guard = { largest_bundle = "2 segments" }',
            "links.client-guard.largest_bundle says how large bundles are, but bundles is false",
        ),
        (
            "[links]",
            '[links]\nclient-guard = { bundles = true, largest_bundle = "1 segment" }',
            "largest_bundle",
        ),
        (
            "[links]",
            '[clients]\nclient3 = "bulk"\n[links]',
            "clients.client3 is not a client of two_clients: did you",
        ),
        ("[links]", '[clients]\nclient1 = "bluk"\n[links]', 'clients.client1 = "bluk"'),
        (
            "[links]",
            '[[competing]]\nfrom = "exit"\nto = "exit"\nstreams = 1\n[links]',
            "competing[1]: two_clients has no route from exit to exit",
        ),
        (
            "[links]",
            '[[competing]]\nfrom = "client"\nto = "middle"\nstreams = 1\n[links]\n'
            "guard-middle = { bundles = true }",
            "competing[1]: from client1 to middle1, some links have bundles = true and some",
        ),
    ],
)
def test_refuses_scenario(scenario: Path, right: str, wrong: str, advice: str) -> None:
    scenario.write_text(SCENARIO.replace(right, wrong))
    assert advice in refused(str(scenario), "vanilla")


def test_refuses_traffic_that_no_client_takes(scenario: Path) -> None:
    scenario.write_text(SCENARIO + '[clients]\nclient1 = "bulk"\nclient2 = "bulk"\n')
    assert "leave out the clients that run the model under test" in refused(
        str(scenario), "vanilla"
    )


def test_check_output(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "run")
    with pytest.raises(InputError, match="exists: give another --out"):
        check_output(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a directory"):
        check_output(tmp_path / "file" / "run")


def test_check_output_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so a stand-in gives the answer."""
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    with pytest.raises(InputError, match=f"run can't be made: {tmp_path} can't be written to"):
        check_output(tmp_path / "new" / "run")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_values_of_a_scenario_can_be_set() -> None:
    changes: dict[str, int | str] = {"links.middle-exit.loss": "0.2 %", "parameters.clients": 3}
    plan = make_plan("SharedDropping", "vanilla", changes=changes)
    name = "SharedDropping,links.middle-exit.loss=0.2%,parameters.clients=3"
    assert (plan.scenario, plan.unchanged_scenario) == (name, "SharedDropping")
    assert default_output(plan).parent.parent.name == name
    assert plan.links_between("middle", "exit")[0].there.loss == 0.002
    assert len(plan.nodes_with("client")) == 3
    assert len(plan.nodes_with("guard")) == 2
    assert plan.key != make_plan("SharedDropping", "vanilla").key


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"duration.x": 1}, "duration.x can't be set: duration is not a table"),
        ({"links.middle-exit": "1 %"}, "links.middle-exit can't be set: it is a table or a list"),
        (
            {"links.middle-exit.los": "1 %"},
            'unknown key links.middle-exit.los: did you mean "loss"',
        ),
        ({"parameters.client": 2}, "parameters.client is no parameter of topologies/eight_clients"),
        ({"parameters.clients": 0}, "parameters.clients = 0 is not from 1 to 100"),
        (
            {"parameters.clients": "2"},
            'parameters.clients = "2" is wrong: it should be a valid int',
        ),
    ],
)
def test_refuses_to_set(changes: dict[str, int | str], advice: str) -> None:
    with pytest.raises(InputError, match=re.escape(advice)):
        make_plan("SharedDropping", "vanilla", changes=changes)


def test_three_continents() -> None:
    plan = make_plan("ThreeContinentsBusy", "mctor-5", changes={"parameters.clients": 2})
    assert set(plan.paths.values()) == {("guard1", "middle1", "exit1")}
    assert {entry.rate_bit_per_s for entry in plan.competing} == {5_000_000}
    assert {entry.sender for entry in plan.competing} == {"guard1", "exit1"}
    round_trip_ms = 2 * sum(
        link.there.delay_ms for link in plan.links if "client2" not in link.ends
    )
    assert round_trip_ms == pytest.approx(191.06 + 84.95 + 165.55, abs=0.1)  # round-trips.csv
