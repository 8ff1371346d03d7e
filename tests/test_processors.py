"""Processors that take time: what a scenario says, its plan, and the figures of a run."""

import re
from collections.abc import Mapping
from pathlib import Path

import polars
import pytest

from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.plan.model import Plan
from testbed.plan.processor import Processor
from testbed.results.checks.processors import is_as_planned
from testbed.results.differences import differences
from testbed.results.processors import busy_processors, processor_summaries
from testbed.results.tables import SCHEMAS
from testbed.runs.bootstrapped import bare_plan

PS_PER_BYTE_AT_50_MBIT_PER_S = 8 * 10**12 // (50 * 10**6)


def with_nodes(nodes: Mapping[str, str | int], scenario: str = "NoDropping") -> Plan:
    changes = {f"nodes.{name}": value for name, value in nodes.items()}
    return make_plan(scenario, "pctls", changes=changes)


def torrc_of(plan: Plan, node: str) -> list[str]:
    """The lines of a Tor's configuration."""
    files = TorFiles(node, Path("/state"), Path("/log"))
    identities = {"authority1": AuthorityIdentity("A" * 40, "B" * 40)}
    return torrc(plan, plan.node(node), files, identities).splitlines()


def test_a_rate_is_what_the_node_reads_and_all_others_are_free() -> None:
    plan = with_nodes({"middle1.processor": "50 Mbit/s"})
    assert plan.processors == {"middle1": Processor(read_ps_per_byte=PS_PER_BYTE_AT_50_MBIT_PER_S)}
    assert make_plan("NoDropping", "pctls").processors == {}


def test_a_table_has_all_costs() -> None:
    costs = {"read": "80 Mbit/s", "write": "1 Gbit/s", "per_call": "2 us", "per_connection": "1 ms"}
    said = {f"exit1.processor.{name}": cost for name, cost in costs.items()}
    (processor,) = with_nodes(said).processors.values()
    assert processor == Processor(
        read_ps_per_byte=100_000, write_ps_per_byte=8_000, call_ns=2_000, connection_ns=1_000_000
    )
    # 10^6 bytes at 100 ns, as many at 8 ns, and 1000 calls of 2 us
    assert processor.cost_s(10**6, 10**6, 1000) == pytest.approx(0.1 + 0.008 + 0.002)


def test_onionskins_are_tors_workers_to_spend() -> None:
    plan = with_nodes(
        {"exit1.processor.per_onionskin": "1 ms", "guard1.processor.read": "50 Mbit/s"}
    )
    lines = {name: torrc_of(plan, name) for name in ("exit1", "guard1")}
    assert "OnionskinTime 1000000" in lines["exit1"]
    assert not any(line.startswith("OnionskinTime") for line in lines["guard1"])
    assert [patch.name for patch in plan.tor.patches][-1] == "onionskin-time.patch"
    without = with_nodes({"guard1.processor.read": "50 Mbit/s"})
    assert "onionskin-time.patch" not in [patch.name for patch in without.tor.patches]


def test_a_name_prevails_over_a_role_and_that_over_the_default() -> None:
    plan = with_nodes(
        {
            "default.processor": "100 Mbit/s",
            "guard.processor": "50 Mbit/s",
            "guard2.processor": "free",
        }
    )
    rates = {name: 8e6 / one.read_ps_per_byte for name, one in plan.processors.items()}
    assert rates == {
        **{f"guard{number}": 50.0 for number in (1, 3, 4)},
        "middle1": 100.0,
        "exit1": 100.0,
    }


def test_one_of_several_servers_has_none() -> None:
    """One program plays them all, and would sleep for all."""
    with pytest.raises(InputError, match="server1 has a processor that takes time, and one prog"):
        with_nodes({"server.processor": "100 Mbit/s"}, "SmallNetwork")
    assert with_nodes({"server.processor": "100 Mbit/s"}, "SharedDropping").processors


def test_a_drawn_networks_relays_have_them_by_class() -> None:
    plan = with_nodes(
        {"relay.processor": "100 Mbit/s", "middle.processor": "50 Mbit/s"}, "SmallNetwork"
    )
    relays = {relay.name: relay.relay_class for relay in plan.of_kind("relay")}
    assert set(relays) == set(plan.processors)
    for name, processor in plan.processors.items():
        is_slow = processor.read_ps_per_byte == PS_PER_BYTE_AT_50_MBIT_PER_S
        assert is_slow == (relays[name] == "middle")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"middle1.processor": "50"}, 'nodes.middle1.processor = "50" has no unit'),
        ({"middle1.processor": "0 Mbit/s"}, "is below the least possible"),
        ({"middle1.processor": "10 kbit/s"}, 'is below "1 Mbit/s"'),
        ({"middle1.processor.read": "10 kbit/s"}, 'is below "1 Mbit/s"'),
        ({"middle1.processor.per_cell": "1 us"}, "per_cell"),
        ({"middle1.processor.workers": 4}, "has no cost"),
        ({"middle1.processor.per_call": "1 kB"}, "nodes.middle1.processor.per_call"),
        (
            {"middle9.processor": "50 Mbit/s"},
            r"nodes.middle9 names no node of this network: did you mean",
        ),
        ({"both.processor": "50 Mbit/s"}, "nodes.both names no node of this network"),
    ],
)
def test_what_cannot_be_is_refused(nodes: Mapping[str, str | int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_nodes(nodes)


def test_a_network_is_bootstrapped_with_free_processors() -> None:
    slow, free = with_nodes({"default.processor": "50 Mbit/s"}), make_plan("NoDropping", "pctls")
    assert bare_plan(slow) == bare_plan(free)
    assert slow.key != free.key


def test_drawn_networks_with_other_processors_are_not_one_group() -> None:
    plans = [
        with_nodes({"relay.processor": rate}, "SmallNetwork").model_dump(mode="json")
        for rate in ("50 Mbit/s", "80 Mbit/s")
    ]
    assert "processors" in differences(*plans, but_seed=True)


def seconds(*rows: tuple[str, float, int]) -> polars.DataFrame:
    """A processor's rows: node, how long it was busy in a second, and bytes read."""
    return polars.DataFrame(
        [
            {
                "time_s": float(number),
                "node": node,
                "lasted_s": 1.0,
                "busy_s": busy_s,
                "waited_s": 0.0,
                "read_bytes": read,
                "written_bytes": 0,
                "calls": 1,
            }
            for number, (node, busy_s, read) in enumerate(rows)
        ],
        schema=SCHEMAS["processors"],
    )


def test_the_summary_has_mean_and_most() -> None:
    (one, other) = processor_summaries(
        seconds(("middle1", 1.0, 6_250_000), ("middle1", 0.5, 3_125_000), ("exit1", 0.2, 0))
    )
    assert (one.node, one.busy_percent, one.most_busy_percent) == ("middle1", 75.0, 100.0)
    assert one.read_mbit_per_s == pytest.approx(37.5)
    assert other.node == "exit1"


def test_a_busy_processor_is_named() -> None:
    (note,) = busy_processors(seconds(("middle1", 0.96, 1), ("exit1", 0.94, 1)))
    assert re.match(r"middle1's processor was busy 96\.0 % of the time", note)


@pytest.mark.parametrize(("busy_s", "ok"), [(1.0, True), (0.95, False), (1.05, False)])
def test_busy_time_must_follow_from_the_bytes(busy_s: float, ok: bool) -> None:
    processor = Processor(read_ps_per_byte=PS_PER_BYTE_AT_50_MBIT_PER_S)
    assert is_as_planned(processor, seconds(("middle1", busy_s, 6_250_000))) is ok


def test_the_host_machine_has_no_processors_that_take_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scenario", "NoDropping", "--set", "nodes.middle1.processor=50 Mbit/s"]
    out = tmp_path / "run"
    assert main([*words, "--machine", "host", "--out", str(out)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--machine host: middle1 have a processor in [nodes]" in line
    assert not out.exists()
