"""Topologies: the project's, a user's own, and what is refused in one."""

from collections import Counter
from pathlib import Path

import pytest

from testbed.asked.plans import make_plan
from testbed.asked.topology import load_topology, topology_names
from testbed.basics.errors import InputError
from testbed.inside.lab import wiring
from testbed.inside.lab.wiring import MANAGEMENT_SWITCH, Wiring, interface_pairs
from testbed.plan.model import Plan

SCENARIO = """
title = "A network"
topology = "two_clients"
traffic = "bulk"
duration = "5 min"
[links]
default = { rate = "2 Mbit/s" }
middle-exit = { delay = "100 ms" }
"""


@pytest.mark.parametrize("name", topology_names())
def test_topologies(name: str) -> None:
    """Only Tors are on the management network, and it comes after the emulated links."""
    topology = load_topology(name)
    roles = topology.roles()
    on_management = {
        end for ends in topology.links() if "s1" in ends for end in ends if end != "s1"
    }
    assert on_management == {host for host, role in roles.items() if role != "server"}
    assert topology.port("client1", "guard1")[0] == 0
    assert topology.port("client1", "s1")[0] == len(topology.neighbours("client1", "guard"))
    assert topology.routes()["client1"] == ("client1", "guard1", "middle1", "exit1", "server1")


@pytest.mark.parametrize("name", topology_names())
def test_the_lab_has_the_interfaces_of_the_topology(tmp_path: Path, name: str) -> None:
    """The lab is built from the plan, and the topology's file gives the order of interfaces."""
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO.replace("two_clients", name), encoding="utf-8")
    meant = load_topology(name)
    built = {end.name for pair in interface_pairs(make_plan(str(file), "vanilla")) for end in pair}
    ports = {f"{node}-eth{port}" for node in meant.hosts() for port in meant.ports[node]}
    assert {one for one in built if not one.startswith(MANAGEMENT_SWITCH)} == ports


def test_many_nodes_on_the_management_network_have_several_switches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Linux's bridge has at most 1,024 ports."""
    plan = make_plan("SmallNetwork", "vanilla")
    managed = [node.name for node in plan.nodes if node.management_address]
    assert Wiring(plan).switches == (MANAGEMENT_SWITCH,)
    monkeypatch.setattr(wiring, "SWITCH_PORTS", 20)
    several = Wiring(plan)
    assert len(several.switches) == -(-len(managed) // 20) > 2
    assert list(several.management) == managed
    joined = Counter(other.node for _, other in several.pairs if other.node in several.switches)
    first, *others = several.switches
    assert joined.pop(first) == 20 + len(others)
    assert sum(joined.values()) == len(managed) - 20
    assert max(joined.values()) <= 20


TOPOLOGY = """
from testbed.asked.topology import TorTopo

class Mine(TorTopo):
    shared_link = ("middle1", "exit1")

    def build(self):
        nodes = [self.add_node(role, 1) for role in ("client", "guard", "middle", "exit", "server")]
        for first, second in zip(nodes, nodes[1:]):
            self.addLink(first, second)
        self.add_node("authority", 1)
        self.add_management()
"""


PATHS = "    def paths(self):\n        return %s\n\n"
WAY_ROUND = '{"client1": ("middle1", "guard1", "exit1")}'


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("self.add_management()", "pass", "no management network"),
        ('self.add_node("authority", 1)', "pass", "no node has the role authority"),
        ('"middle1", "exit1"', '"exit1", "middle1"', "shared_link names no link"),
        ('"authority", 1', '"authorty", 1', 'did you mean "authority"?'),
        ('"authority", 1', '"authority", 10001', "number is from 1 to 10000"),
        ('self.add_node("authority", 1)', "self.addHost('box')", "box has no role"),
        ("self.add_management()", "self.addLink('guard1', 'middle1')", "more than one link"),
        ("class Mine(TorTopo)", "class Mine", "defines 0 subclasses"),
        ("import TorTopo", "import TorTop", "can't be imported"),
        ("        self.add_management()", "        1 / 0", "build() failed"),
        ("zip(nodes, nodes[1:])", "zip(nodes[1:], nodes[2:])", "client1 has 0 links to a guard"),
        ("    def build", f"{PATHS % '{}'}    def build", "paths() has none for client1"),
        (
            "    def build",
            f"{PATHS % WAY_ROUND}    def build",
            "paths(): client1's goes from client1 to middle1, which have no link",
        ),
    ],
)
def test_refuses_topology(tmp_path: Path, right: str, wrong: str, advice: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TOPOLOGY)
    assert load_topology(str(file)).nodes_with("client") == ["client1"]
    file = tmp_path / "wrong.py"
    file.write_text(TOPOLOGY.replace(right, wrong))
    with pytest.raises(InputError) as caught:
        load_topology(str(file))
    assert advice in str(caught.value)


def test_a_topologys_path_is_as_seen_from_the_scenarios_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the working directory is when it is planned, and when the lab is built."""
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "small.py").write_text(TOPOLOGY)
    file = tmp_path / "mine.toml"
    file.write_text(SCENARIO.replace("two_clients", "networks/small.py"), encoding="utf-8")
    monkeypatch.chdir("/")
    plan = make_plan(str(file), "vanilla")
    assert plan.topology == "small"
    (tmp_path / "networks" / "small.py").unlink()
    built = interface_pairs(Plan.model_validate_json(plan.model_dump_json()))
    ends = {end.node for pair in built for end in pair}
    assert ends == {node.name for node in plan.nodes} | {MANAGEMENT_SWITCH}
    with pytest.raises(InputError) as caught:
        make_plan(str(file), "vanilla")
    advice = f'"networks/small.py": give a .py file\'s path, as seen from {tmp_path}'
    assert advice in str(caught.value)
