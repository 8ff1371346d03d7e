"""Plans of drawn networks: addresses, ways, seeds; and plans of older versions in today's form."""

import ipaddress
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from drawn_networks import draw_scenario
from machine import run_scenario

from testbed.asked.duration import shortest_duration_s
from testbed.asked.plans import make_plan
from testbed.asked.scenario import WARM_UP_S
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value
from testbed.inside.calibration.counting import calibrated_links
from testbed.inside.traffic.models import MODELS
from testbed.plan.addresses import MOST_HOSTS, block_of, data_address
from testbed.plan.model import Plan
from testbed.plan.network import Shape
from testbed.results.checks.connections import connections_check, relay_connections, sharing_check
from testbed.results.differences import differences
from testbed.results.tables import SCHEMAS


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("SmallNetwork", "pctls")


def test_a_drawn_network_is_in_the_plan(plan: Plan) -> None:
    kinds = [node.kind for node in plan.nodes]
    assert [kinds.count(kind) for kind in ("client", "relay", "server", "authority")] == [
        *(40, 10, 4, 3)
    ]
    drawn = draw_scenario("SmallNetwork", 1)
    assert [node.weight for node in plan.of_kind("relay")] == [
        node.weight for node in drawn.network.of_kind("relay")
    ]
    assert plan.bandwidth_weights == drawn.bandwidth_weights
    assert plan.traffic_by_client == drawn.traffic_by_client
    assert set(plan.server_by_client.values()) == {f"server{number}" for number in range(1, 5)}
    assert plan.policy.name == "tor"
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_each_host_has_an_address_of_its_site(plan: Plan) -> None:
    addresses = [node.address for node in plan.nodes if node.address]
    management = [node.management_address for node in plan.nodes if node.management_address]
    assert len({*addresses, *management}) == len(addresses) + len(management)
    blocks = {node.site: block_of(str(node.address)) for node in plan.of_kind("router")}
    for node in plan.of_kind("client", "relay", "server"):
        assert block_of(str(node.address)) == blocks[node.site]
    assert {block_of(address) for address in management} == {1}


def test_what_a_way_does_is_what_was_drawn(plan: Plan) -> None:
    routes = draw_scenario("SmallNetwork", 1).routes
    links = list(calibrated_links(plan))
    assert len(links) == 12
    for link in links:
        both_ms = link.there.delay_ms + link.back.delay_ms
        assert both_ms == pytest.approx(routes.round_trip_ms(*link.ends))
        assert link.there.rate_bit_per_s == routes.rate_bit_per_s(*link.ends)


def test_ways_are_between_sites_that_have_something_to_tell_each_other(plan: Plan) -> None:
    ways = [link for link in plan.links if link.roles == ("router", "router")]
    ends = {frozenset(link.ends) for link in ways}
    assert len(ends) == len(ways)

    def needed(one: str, other: str) -> bool:
        sites = [plan.node(name).site for name in (one, other)]
        return sites[0] != sites[1]

    for client in plan.of_kind("client"):
        for relay in plan.of_kind("relay"):
            if needed(client.name, relay.name):
                assert {f"router-{client.site}", f"router-{relay.site}"} in ends
    clients_only = {node.site for node in plan.of_kind("client")}
    clients_only -= {node.site for node in plan.of_kind("relay", "server")}
    for link in ways:
        assert not {plan.node(end).site for end in link.ends} <= clients_only


def test_variants_meet_the_same_network_and_losses(plan: Plan) -> None:
    vanilla = make_plan("SmallNetwork", "vanilla")
    assert (vanilla.nodes, vanilla.links) == (plan.nodes, plan.links)
    assert make_plan("SmallNetwork", "vanilla", seed=2).nodes != plan.nodes


def test_seeds_of_one_scenario_are_runs_of_one_group(plan: Plan) -> None:
    """Each seed draws another network; what the scenario says of them must be the same."""

    def differing(**changes: Value) -> str:
        named = {key.replace("__", "."): value for key, value in changes.items()}
        other = make_plan("SmallNetwork", "pctls", seed=2, changes=named)
        unnamed = other.model_copy(update={"scenario": plan.scenario, "changes": {}})
        both = (plan.model_dump(mode="json"), unnamed.model_dump(mode="json"))
        assert differences(*both) != ""
        return differences(*both, but_seed=True)

    assert differing() == ""
    assert differing(network__relays=12) == "nodes.relay is 10, not 12"
    assert "links.loss is 0.0, not 0.01" in differing(network__loss="1 %")
    assert 'links.queue_discipline.0 is "fifo"' in differing(network__queue_discipline="codel")
    assert differing(network__relay_rates="10 %") == "relay_rates is null, not 0.1"
    assert differing(watch="the 5 busiest") == (
        "watched is 0, not 5; only_watched is false, not true"
    )
    assert "congestion_control.0" in differing(tcp__congestion_control="bbr")
    assert "policy.name" in differing(paths__policy="rtt", paths__circuits=3)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("vanilla", {"paths.policy": "rtt", "paths.circuits": 3, "paths.liars": "10 %"}),
        ("pctcp+some-relays", {}),
    ],
)
def test_what_a_seed_draws_keeps_no_runs_apart(variant: str, changes: dict[str, Value]) -> None:
    first, other = (
        make_plan("SmallNetwork", variant, seed=seed, changes=changes).model_dump(mode="json")
        for seed in (1, 2)
    )
    assert differences(first, other, but_seed=True) == ""


def test_runs_with_liars_are_apart_from_those_without() -> None:
    lying: dict[str, Value] = {"paths.policy": "rtt", "paths.circuits": 3, "paths.liars": "10 %"}
    first = make_plan("SmallNetwork", "vanilla", changes=lying).model_dump(mode="json")
    other = {**first, "policy": {**first["policy"], "liars": []}}
    assert differences(first, other, but_seed=True) == "policy.liars is true, not false"


def test_shapes_one_after_the_other() -> None:
    one = Shape(rate_bit_per_s=10, delay_ms=1, jitter_ms=3, loss=0.1)
    both = one.then(Shape(delay_ms=2, jitter_ms=4, loss=0.2))
    assert (both.rate_bit_per_s, both.delay_ms, both.jitter_ms) == (10, 3, 5)
    assert both.loss == pytest.approx(1 - 0.9 * 0.8)


def test_addresses_of_thousands() -> None:
    """The first 254 of a group have the third byte that is its own."""
    assert data_address(0, 3, 1) == "10.0.4.1"
    assert data_address(0, 3, 254) == "10.0.4.254"
    addresses = [
        data_address(2, group, number) for group in range(6) for number in range(1, MOST_HOSTS + 1)
    ]
    assert len(set(addresses)) == 6 * MOST_HOSTS
    assert {block_of(address) for address in addresses} == {2}
    assert not {ipaddress.IPv4Address(one).packed[3] for one in addresses} & {0, 255}


def congestion_control(by_role: dict[str, str]) -> dict[str, set[str]]:
    """By the kind of node, of SmallNetwork with this of `tcp.congestion_control`."""
    changes: dict[str, Value] = {
        f"tcp.congestion_control.{role}": by_role[role] for role in by_role
    }
    plan = make_plan("SmallNetwork", "vanilla", changes=changes)
    found: dict[str, set[str]] = defaultdict(set)
    for name, control in plan.congestion_control.items():
        found[plan.node(name).kind].add(control)
    return found


def test_congestion_control_by_role() -> None:
    found = congestion_control({"relay": "bbr", "client": "reno"})
    assert (found["relay"], found["client"], found["server"]) == ({"bbr"}, {"reno"}, {"cubic"})


def test_a_topologys_role_is_refused_in_a_drawn_network() -> None:
    """Which relay is the exit, each circuit says: the key was passed over without a word."""
    told = r"congestion_control\.exit: no node of sampled has this role: there are: client, relay,"
    with pytest.raises(InputError, match=told):
        congestion_control({"exit": "bbr"})


def test_the_shortest_duration_is_by_what_an_access_carries_to_its_client(plan: Plan) -> None:
    """Accesses carry less up than down, and pages and files come down."""
    loads = {"page": 8 * 320 * 1024, "bulk5mib": 8 * 5 * 1024 * 1024}
    by_client = []
    for client in plan.clients:
        (link,) = (link for link in plan.links if link.ends[0] == client)
        assert link.back.rate_bit_per_s == plan.node(client).rate_down_bit_per_s
        transfer_s = loads[plan.traffic_by_client[client]] / (link.back.rate_bit_per_s or 0)
        by_client.append(transfer_s + 4 * link.back.delay_ms / 1000)
    assert shortest_duration_s(plan) == pytest.approx(max(by_client))
    assert make_plan("SmallNetwork", "vanilla", duration="1 s").duration_s == 1


def test_traffic_cannot_be_overridden() -> None:
    with pytest.raises(InputError, match="gives every client a model of its own"):
        make_plan("SmallNetwork", "vanilla", traffic="bulk")


def test_a_plan_of_an_older_version_is_read_and_the_same() -> None:
    """Links that say one thing of both directions, nodes that have a role and no kind."""
    plan = make_plan("SharedDropping", "vanilla")
    data: dict[str, Any] = plan.model_dump(mode="json")
    data["nodes"] = [
        {key: node[key] for key in ("name", "role", "address", "management_address")}
        for node in data["nodes"]
    ]
    data["links"] = [
        {key: link[key] for key in ("ends", "roles", "netem_seeds")}
        | {key: link["there"][key] for key in ("rate_bit_per_s", "delay_ms", "loss")}
        | {"queue_packets": link["there"]["queue_packets"]}
        for link in data["links"]
    ]
    assert Plan.model_validate(data) == plan
    assert differences(data, plan.model_dump(mode="json")) == ""
    data["links"][3]["loss"] = 0.5
    assert differences(data, plan.model_dump(mode="json")).startswith("links.3.there.loss is 0.5")


def queues(*rows: tuple[float, str, str, str, str | None]) -> polars.DataFrame:
    names = ("time_s", "relay", "queue", "connection", "next_queue")
    schema = {name: SCHEMAS["queues"][name] for name in names}
    return polars.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema=schema)


def test_circuits_on_connections_between_relays() -> None:
    """A circuit's number is the same at both ends; the guard's connection is a client's."""
    of_two = [
        row
        for at_s in (1.0, 2.0, 3.0, 4.0)
        for row in (
            (at_s, "guard", "1", "10", "5"),
            (at_s, "guard", "2", "11", "6"),
            (at_s, "exit", "5", "20", None),
            (at_s, "exit", "6", "20", None),
        )
    ]
    used = relay_connections(queues(*of_two))
    assert used.select("relay", "peer", "connection", "queue").rows() == [
        ("exit", "guard", "20", "5"),
        ("exit", "guard", "20", "6"),
    ]
    shared = sharing_check(used)
    assert (shared.ok, shared.value) == (
        False,
        {"value": 1, "connections": 1, "relay_pairs": 1, "circuits": 2},
    )
    assert sharing_check(used.with_columns(connection="queue")).ok
    nothing = relay_connections(queues((1.0, "guard", "1", "10", None)))
    assert sharing_check(nothing).ok is None


@pytest.mark.parametrize(
    ("opened", "bound", "ok"), [((1, 1), 1, True), ((1, 2), 1, False), ((3, 2), 3, True)]
)
def test_connections_that_a_relay_opens(opened: Sequence[int], bound: int, ok: bool) -> None:
    check = connections_check(polars.DataFrame({"most_opened_to_one": opened}), bound)
    assert (check.ok, check.observed) == (ok, str(max(opened)))


def test_of_connections_that_nobody_counted_nothing_is_said() -> None:
    of_an_older_run = polars.DataFrame({"most_opened_to_one": [None]})
    assert connections_check(of_an_older_run).ok is None


def test_circuits_one_after_the_other_share_nothing() -> None:
    rows: list[tuple[float, str, str, str, str | None]] = [
        *((at_s, "exit", "5", "20", None) for at_s in (1.0, 2.0)),
        *((at_s, "exit", "6", "20", None) for at_s in (2.0, 3.0)),
        *((1.0, "guard", queue, "10", following) for queue, following in (("1", "5"), ("2", "6"))),
    ]
    assert sharing_check(relay_connections(queues(*rows))).ok


@pytest.mark.experiment
def test_a_drawn_network_runs(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, "SmallNetwork", "pctls", 45, timeout_s=1800)
    checks = {check.name: check for check in run.summary.checks}
    assert checks["bandwidth weights in the consensus"].value == run.plan.bandwidth_weights
    assert checks["relays with another weight in the consensus"].ok
    assert checks["active circuits had settled"].ok
    sharing = checks["relay connections with several circuits at once"]
    assert sharing.ok and sharing.value and sharing.value["connections"] > 20
    carried = run.transfers.filter("ok")
    assert carried["path"].null_count() == 0
    flags = {node.name: node.flags for node in run.plan.of_kind("relay")}
    for path in carried["path"].unique():
        guard, middle, last = path.split(",")
        assert "guard" in flags[guard] and "exit" in flags[last] and middle in flags


def test_drawn_networks_warm_up_and_older_plans_did_not() -> None:
    drawn = make_plan("SmallNetwork", "vanilla", duration="10 s")
    assert (drawn.warm_up_s, drawn.traffic_s) == (WARM_UP_S, WARM_UP_S + 10)
    assert max(MODELS["page"].pauses_s) == WARM_UP_S  # by then every client has begun
    assert make_plan("SmallNetwork", "vanilla", changes={"warm_up": "0 s"}).warm_up_s == 0
    assert make_plan("NoDropping", "vanilla").warm_up_s == 0
    assert make_plan("NoDropping", "vanilla", changes={"warm_up": "5 s"}).warm_up_s == 5
    older = drawn.model_dump(mode="json")
    del older["warm_up_s"]
    assert Plan.model_validate(older).warm_up_s == 0
    with pytest.raises(InputError, match=r"SmallNetwork\.toml: warm_up"):
        make_plan("SmallNetwork", "vanilla", changes={"warm_up": "20"})
