"""How a plan's network is divided among kernels, by networks that can be checked by hand."""

import json
import os
import subprocess
import sys
from itertools import combinations

import pytest

from commands.__main__ import main
from testbed.asked.expected_load import (
    CALLS_PER_MB,
    CPU_S_PER_MB,
    expected_load,
    expected_rates,
)
from testbed.asked.expected_use import WIRE_BYTES_PER_BYTE, relay_rates_for, relays_use
from testbed.asked.plans import make_plan
from testbed.asked.split import BARRIER_S, Part, Split, shared_out, split, splits
from testbed.basics.toml_file import PROJECT, Value
from testbed.plan.model import Plan, PlannedLink, PlannedNode
from testbed.plan.network import Kind, Shape

GUARD_MIDDLE, MIDDLE_EXIT = "links.guard-middle", "links.middle-exit"


def eight_clients(**delays: Value) -> Plan:
    """The plan of NoDropping with other delays."""
    keys = {"guard_middle": GUARD_MIDDLE, "middle_exit": MIDDLE_EXIT}
    changes = {f"{keys[link]}.delay": delay for link, delay in delays.items()}
    return make_plan("NoDropping", "vanilla", changes=changes)


def divided(plan: Plan, parts: int) -> Split:
    """The plan in parts by its expected load."""
    return split(plan, expected_load(plan), parts)


def sites(access_ms: dict[str, tuple[str, float]], ways_ms: dict[tuple[str, str], float]) -> Plan:
    """A plan of hosts by their sites and delays, and of ways between sites."""
    routers = dict.fromkeys(site for site, _ in access_ms.values())
    kinds: dict[str, Kind] = {
        **dict.fromkeys(access_ms, "relay"),
        **dict.fromkeys(routers, "router"),
    }
    nodes = tuple(
        PlannedNode(name=name, kind=kind, role=kind, address=None, management_address=None)
        for name, kind in kinds.items()
    )
    links = [
        *((one, site, ("relay", "router"), ms) for one, (site, ms) in access_ms.items()),
        *((one, other, ("router", "router"), ms) for (one, other), ms in ways_ms.items()),
    ]
    planned = tuple(
        PlannedLink(
            ends=(one, other),
            roles=roles,
            there=Shape(delay_ms=ms),
            back=Shape(delay_ms=ms),
            netem_seeds=(1, 2),
        )
        for one, other, roles, ms in links
    )
    base = make_plan("NoDropping", "vanilla")
    return base.model_copy(update={"nodes": nodes, "links": planned})


def windows_apart(plan: Plan, of: Split) -> list[float]:
    """The delay of the way between each two hosts in different parts, in ms; 0 within a site."""
    router = {link.ends[0]: link.ends[1] for link in plan.links if not link.is_way}
    way_ms = {frozenset(link.ends): link.there.delay_ms for link in plan.links if link.is_way}
    part_of = {host: number for number, part in enumerate(of.parts) for host in part.nodes}
    found = []
    for one, other in combinations(router, 2):
        between = frozenset((router[one], router[other]))
        if part_of[one] != part_of[other] and (len(between) == 1 or between in way_ms):
            found.append(way_ms.get(between, 0.0))
    return found


def test_eight_clients_are_divided_at_their_delays() -> None:
    """Two clients and their guard stay together, and so do exit and server.

    The middle has 2294 calls, each of four guards with two clients 1240, the exit with server 1036.
    """
    of = divided(eight_clients(), 4)
    assert of.window_ms == 12.5
    assert [part.nodes for part in of.parts] == [
        ("middle1", "authority1"),
        ("client1", "client2", "client7", "client8", "guard1", "guard4"),
        ("client3", "client4", "guard2", "exit1", "server1"),
        ("client5", "client6", "guard3"),
    ]
    assert of.links_across == 5
    total = sum(CALLS_PER_MB.values())
    shares = [part.load_s / sum(one.load_s for one in of.parts) for part in of.parts]
    assert shares == pytest.approx([calls / total for calls in (2294, 2480, 2276, 1240)])
    assert divided(eight_clients(), 2).fullest == pytest.approx((2294 + 1240 + 1036) / total)


def test_what_is_nearer_than_two_milliseconds_stays_together() -> None:
    of = divided(eight_clients(middle_exit="1.9 ms"), 2)
    assert of.window_ms == 12.5
    assert {"middle1", "exit1", "server1"} <= set(of.parts[0].nodes)
    of = divided(eight_clients(middle_exit="2 ms"), 8)
    assert (of.window_ms, len(of.parts)) == (2.0, 6)
    of = divided(eight_clients(guard_middle="1 ms", middle_exit="1 ms"), 2)
    assert (of.window_ms, len(of.parts), of.fullest) == (None, 1, 1.0)


def test_a_delay_that_varies_holds_nothing_apart() -> None:
    plan = eight_clients()
    varies = {"there": Shape(delay_ms=12.5, jitter_ms=1.0)}
    links = [
        link.model_copy(update=varies) if link.ends[1] == "middle1" else link for link in plan.links
    ]
    of = divided(plan.model_copy(update={"links": tuple(links)}), 8)
    assert [part.nodes for part in of.parts][1] == ("exit1", "server1")
    assert len(of.parts) == 2


def test_the_longer_window_is_taken_if_it_costs_little() -> None:
    """Four equal hosts in a row: all cuts leave two and two, or cost a half more."""
    plan = sites(
        {"relay1": ("a", 0.5), "relay2": ("b", 0.5), "relay3": ("c", 0.5), "relay4": ("d", 0.5)},
        {("a", "b"): 3.0, ("b", "c"): 9.5, ("c", "d"): 3.0},
    )
    of = split(plan, dict.fromkeys(["relay1", "relay2", "relay3", "relay4"], 1.0), 2)
    assert (of.window_ms, [len(part.nodes) for part in of.parts]) == (9.5, [2, 2])
    of = split(plan, {"relay1": 1.0, "relay2": 5.0, "relay3": 1.0, "relay4": 3.0}, 2)
    assert (of.window_ms, of.parts[0].nodes) == (3.0, ("relay2",))


def test_the_hosts_of_a_site_stay_together() -> None:
    """However far they are from it: its router is in one part."""
    plan = sites(
        {"relay1": ("a", 5.0), "relay2": ("a", 6.0), "relay3": ("b", 1.0)}, {("a", "b"): 2.0}
    )
    of = split(plan, dict.fromkeys(["relay1", "relay2", "relay3"], 1.0), 3)
    assert [part.nodes for part in of.parts] == [("relay1", "relay2"), ("relay3",)]
    assert of.window_ms == 2.0


@pytest.mark.parametrize("parts", [2, 3, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_two_hosts_of_different_parts_are_nearer_than_the_window(seed: int, parts: int) -> None:
    plan = make_plan("SmallNetwork", "vanilla", seed=seed)
    of = divided(plan, parts)
    assert of.window_ms == min(windows_apart(plan, of)) >= 2
    hosts = [node.name for node in plan.nodes if node.kind != "router"]
    assert sorted(hosts) == sorted(name for part in of.parts for name in part.nodes)
    assert 1 / len(of.parts) <= of.fullest < 1


def test_only_the_way_keeps_two_sites_apart() -> None:
    plan = sites(
        {"relay1": ("a", 5.0), "relay2": ("a", 5.0), "relay3": ("b", 1.0)}, {("a", "b"): 1.9}
    )
    of = split(plan, dict.fromkeys(["relay1", "relay2", "relay3"], 1.0), 2)
    assert of.window_ms is None


def test_loads_are_shared_out_greatest_first() -> None:
    assert shared_out([1, 3, 2, 2], 2) == [[1, 0], [2, 3]]
    assert shared_out([1], 2) == [[0], []]


def test_the_fullest_core_and_the_meetings_decide() -> None:
    of = Split((Part(("a",), 3.0), Part(("b",), 2.0), Part(("c",), 1.0)), 10.0, 3)
    meetings_s = 100 * BARRIER_S
    assert of.fullest == 0.5
    assert of.wall_s(3) == pytest.approx(3 + meetings_s)
    assert of.wall_s(2) == pytest.approx(3 + 2 * meetings_s)
    assert of.wall_s(1) == pytest.approx(6 + 3 * meetings_s)
    assert of.times_as_fast(3) == pytest.approx(6 / (3 + meetings_s))
    assert Split((Part(("a",), 3.0),), None, 0).wall_s(1) == 3.0


def test_a_network_is_divided_until_its_fullest_part_stays() -> None:
    """In six groups the middle alone is the fullest; two clients can be in two parts."""
    plan = eight_clients()
    assert [len(one.parts) for one in splits(plan, expected_load(plan))] == [1, 2, 4, 6]
    plan = make_plan("Three", "vanilla")
    assert [len(one.parts) for one in splits(plan, expected_load(plan))] == [1]


def test_rates_follow_from_windows_and_pauses() -> None:
    """A bulk client loads a window in a round trip of 50 ms, beside two more for each 5 MB."""
    rate_mb_per_s = 5 / (2 * 0.05 + 5e6 / (500 * 498) * 0.05)
    plan = eight_clients()
    assert expected_rates(plan) == pytest.approx(dict.fromkeys(plan.clients, rate_mb_per_s))
    load_s = expected_load(plan)
    assert sum(load_s.values()) == pytest.approx(8 * rate_mb_per_s * CPU_S_PER_MB)
    assert load_s["authority1"] == 0
    slow = make_plan("NoDropping", "vanilla", changes={f"{MIDDLE_EXIT}.rate": "8 Mbit/s"})
    assert expected_rates(slow)["client1"] == pytest.approx(5 / (2 * 0.05 + 5))
    paced = make_plan("NoDropping", "vanilla", traffic="audio")
    assert expected_rates(paced)["client1"] == pytest.approx(0.25 / (2 * 0.05 + 5))
    web = make_plan("NoDropping", "vanilla", traffic="web")
    assert expected_rates(web)["client1"] == pytest.approx(2 / (0.1 + 2e6 / 249_000 * 0.05 + 10))


def test_expected_rates_are_near_those_of_runs() -> None:
    """MB in runs of 60 s of SmallNetwork, vanilla, seeds 1 to 5 (studies/networks)."""
    measured = [257.6, 256.3, 104.6, 124.3, 181.9]
    plans = [make_plan("SmallNetwork", "vanilla", seed=seed) for seed in range(1, 6)]
    expected = [60 * sum(expected_rates(plan).values()) for plan in plans]
    assert expected == pytest.approx(measured, rel=0.35)
    assert sum(expected) == pytest.approx(sum(measured), rel=0.1)


def test_the_use_of_relays_follows_from_weights_and_rates() -> None:
    """All that clients receive passes three relays, so it is sent three times."""
    plan = make_plan("SmallNetwork", "vanilla")
    sent_bit_per_s = 3 * 8e6 * WIRE_BYTES_PER_BYTE * sum(expected_rates(plan).values())
    uses = relays_use(plan)
    rates = {relay.name: relay.rate_up_bit_per_s or 0 for relay in plan.of_kind("relay")}
    sent = sum(use * rates[relay] for relay, use in uses.items())
    assert sent == pytest.approx(sent_bit_per_s, rel=0.05) and sent < sent_bit_per_s
    few = make_plan("SmallNetwork", "vanilla", changes={"network.relay_rates": "10 %"})
    assert max(uses.values()) < max(relays_use(few).values()) < 10 * max(uses.values())
    assert relay_rates_for(few, 0.7) == pytest.approx(relay_rates_for(plan, 0.7), rel=1e-3)
    wanted: dict[str, Value] = {"network.relay_rates": f"{100 * relay_rates_for(plan, 0.7):.3f} %"}
    made = make_plan("SmallNetwork", "vanilla", changes=wanted)
    assert max(relays_use(made).values()) == pytest.approx(0.7, rel=1e-3)


def test_no_relay_is_expected_to_send_more_than_its_rate() -> None:
    """However slow it is, as those who wait for it load nothing."""
    for rates in ("10 %", "1 %", "0.1 %"):
        plan = make_plan("SmallNetwork", "vanilla", changes={"network.relay_rates": rates})
        assert 0.5 < max(relays_use(plan).values()) <= 1


def test_the_command_prints_the_parts_of_a_topology(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "NoDropping", "--parts", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["split"]
    assert said["split"] == divided(eight_clients(), 4).record()
    assert [row["kernels"] for row in said["computed"]] == [1, 2, 4, 6]
    assert main(["network", "NoDropping", "--parts", "7"]) == 0
    shown = capsys.readouterr().out
    assert "Not in 7 parts: only 6 are far enough apart" in shown
    assert ["2", "12.5", "55.1", "3", "1.00", "1.81"] in [
        line.split() for line in shown.splitlines()
    ]
    assert main(["network", "Three"]) == 0
    assert "In one part" in capsys.readouterr().out


def test_hashes_of_python_do_not_decide() -> None:
    """Sets have another order in each process."""
    said = [
        subprocess.run(
            [sys.executable, "-m", "commands", "network", "SmallNetwork", "--json"],
            cwd=PROJECT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
