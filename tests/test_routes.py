"""Networks as data, and the routes through them."""

import json

import pytest
from pydantic import ValidationError

from testbed.asked.plans import make_plan
from testbed.network.routes import Routes
from testbed.plan.network import Link, Network, Node, Shape, Site


def link(first: str, second: str, delay_ms: float, back_ms: float | None = None) -> Link:
    return Link(
        ends=(first, second),
        there=Shape(delay_ms=delay_ms),
        back=Shape(delay_ms=delay_ms if back_ms is None else back_ms),
    )


def network(*links: Link) -> Network:
    names = dict.fromkeys(end for one in links for end in one.ends)
    return Network(nodes=tuple(Node(name=name, kind="router") for name in names), links=links)


def test_a_network_is_json_and_back() -> None:
    nodes = (
        Node(name="relay1", kind="relay", flags=("guard", "exit"), site="aa", weight=20),
        Node(name="router-aa", kind="router", site="aa", country="aa"),
    )
    shape = Shape(rate_bit_per_s=1_000_000, delay_ms=2.5, loss=0.01, queue_discipline="fq_codel")
    site = Site(name="aa", router="router-aa", country="aa", latitude_deg=1.0, longitude_deg=2.0)
    made = Network(
        nodes=nodes,
        links=(Link(ends=("relay1", "router-aa"), there=shape, back=Shape()),),
        sites=(site,),
    )
    text = json.dumps(made.model_dump(mode="json", exclude_defaults=True))
    assert Network.model_validate_json(text) == made


def test_a_way_has_as_few_links_as_can_be_and_then_the_least_delay() -> None:
    # From a to b the route through c would be faster; from a to e two routes have two links.
    routes = Routes(
        network(
            link("a", "b", 50),
            link("a", "c", 1),
            link("c", "b", 1),
            link("a", "d", 5),
            link("c", "e", 5),
            link("d", "e", 3),
        )
    )
    assert routes.path("a", "b") == ["a", "b"]
    assert routes.path("a", "e") == ["a", "c", "e"]
    assert routes.path("b", "d") == ["b", "a", "d"]
    assert routes.round_trip_ms("a", "e") == 12
    assert routes.unreachable() is None


def test_a_way_of_no_delay_is_a_way() -> None:
    routes = Routes(network(link("a", "b", 0), link("b", "c", 0)))
    assert routes.path("a", "c") == ["a", "b", "c"]
    assert routes.round_trip_ms("a", "c") == 0


def test_directions_have_ways_of_their_own() -> None:
    routes = Routes(
        network(
            link("a", "b", 1, 9),
            link("b", "d", 1, 9),
            link("a", "c", 9, 2),
            link("c", "d", 9, 2),
        )
    )
    assert routes.path("a", "d") == ["a", "b", "d"]
    assert routes.path("d", "a") == ["d", "c", "a"]
    assert routes.round_trip_ms("a", "d") == routes.round_trip_ms("d", "a") == 6


def test_a_ways_rate_is_the_least_and_its_losses_come_together() -> None:
    fast = Shape(rate_bit_per_s=1000, loss=0.1)
    slow = Shape(rate_bit_per_s=10, loss=0.2)
    routes = Routes(
        network(
            Link(ends=("a", "b"), there=fast, back=Shape()),
            Link(ends=("b", "c"), there=slow, back=Shape()),
        )
    )
    assert routes.rate_bit_per_s("a", "c") == 10
    assert routes.rate_bit_per_s("c", "a") is None
    assert routes.loss("a", "c") == pytest.approx(1 - 0.9 * 0.8)
    assert routes.loss("c", "a") == 0


def test_where_there_is_no_way_it_is_told() -> None:
    routes = Routes(network(link("a", "b", 1), link("c", "d", 1)))
    assert routes.unreachable() == ("a", "c")
    with pytest.raises(ValueError, match="no route from b to d"):
        routes.path("b", "d")


def test_a_topologys_network_is_such_data_too() -> None:
    """Its nodes forward packets as routers do, so the routes are the circuits' paths."""
    plan = make_plan("SharedDropping", "vanilla")
    nodes = tuple(node for node in plan.nodes if node.kind != "authority")
    routes = Routes(Network(nodes=nodes, links=plan.links))
    for client, path in plan.paths.items():
        assert routes.path(client, "server1") == [client, *path, "server1"]
        assert routes.round_trip_ms(client, "server1") == 50
        assert routes.loss(client, "server1") == pytest.approx(0.001)
        assert routes.rate_bit_per_s("server1", client) == 300_000_000


@pytest.mark.parametrize(
    ("nodes", "links", "told"),
    [
        (["a", "a"], [], "2 nodes are named a"),
        (["a"], [("a", "b")], "the link a-b names no node b"),
    ],
)
def test_a_network_that_cannot_be(
    nodes: list[str], links: list[tuple[str, str]], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        Network(
            nodes=tuple(Node(name=name, kind="relay") for name in nodes),
            links=tuple(Link(ends=ends, there=Shape(), back=Shape()) for ends in links),
        )
