"""Proposals against circuits that hurt each other: what their variants say, and what is refused.

That Tor and the kernel then do so is in test_mitigations_for_real.
"""

import asyncio
import hashlib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars
import pytest
from command_line import refused as refused_command

from testbed.asked.plans import make_plan
from testbed.asked.variant import Variant, read_variant
from testbed.basics.errors import InputError
from testbed.inside.checks import Running, esp, spread
from testbed.inside.lab import ipsec
from testbed.inside.lab.meeting import Meeting
from testbed.inside.lab.network import Lab
from testbed.inside.policies.interface import Circuit
from testbed.inside.policies.parallel import hashing, uniform
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.policy_circuits import PolicyCircuits
from testbed.machines import host
from testbed.plan.choices import MOST_SIDE_BY_SIDE
from testbed.plan.connections import PairUse
from testbed.plan.model import Plan
from testbed.results.checks import connections, legs
from testbed.results.recorded import Recorded
from testbed.results.tables import SCHEMAS, Tables
from testbed.runs.bootstrapped import bare_plan
from testbed.setup import host_kernel

SEVERAL = 'patches = ["per-circuit-connections.patch", "connections-per-pair.patch"]'


def read(folder: Path, keys: str, extends: str = "vanilla") -> Variant:
    file = folder / "mine.toml"
    file.write_text(f'title = "x"\nextends = "{extends}"\n{keys}\n', encoding="utf-8")
    return read_variant(str(file))


def planned(folder: Path, keys: str, scenario: str = "NoDropping", extends: str = "pctls") -> Plan:
    read(folder, keys, extends)
    return make_plan(scenario, str(folder / "mine.toml"))


def refused(folder: Path, keys: str, extends: str = "vanilla") -> str:
    with pytest.raises(InputError) as caught:
        read(folder, keys, extends)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pctcp_is_pctls_without_tls_and_with_ipsec() -> None:
    pctls, pctcp = read_variant("pctls"), read_variant("pctcp")
    apart = {"name", "title", "description", "patches", "ipsec", "torrc_relay", "torrc_client"}
    assert pctcp.model_dump(exclude=apart) == pctls.model_dump(exclude=apart)
    assert [patch.name for patch in pctcp.patches] == [
        "per-circuit-connections.patch",
        "plain-relay-connections.patch",
    ]
    assert pctcp.torrc_relay == pctls.torrc_relay | {"PlainRelayConnections": ["1"]}
    assert pctcp.torrc_client == {"PerCircuitConnections": ["0"]}, "it is between relays only"
    assert pctcp.ipsec
    assert not pctls.ipsec


def test_ipsec_needs_no_patch(tmp_path: Path) -> None:
    assert read(tmp_path, "ipsec = true").ipsec
    assert not read(tmp_path, "ipsec = false", extends="pctcp").ipsec
    assert "it should be a valid boolean" in refused(tmp_path, "ipsec = 1")


@pytest.mark.parametrize(("name", "circuits"), [("mctor-3", 3), ("mctor-5", 5)])
def test_mctor_is_pctls_with_more_circuits(name: str, circuits: int) -> None:
    mctor, pctls = read_variant(name), read_variant("pctls")
    apart = {"name", "title", "description", "parallel_circuits"}
    assert mctor.model_dump(exclude=apart) == pctls.model_dump(exclude=apart)
    assert (mctor.parallel_circuits, mctor.stream_rule) == (circuits, "uniform")


@pytest.mark.parametrize(
    ("name", "own"),
    [("shared-by-number-3", "0"), ("own-up-to-3", "1")],
)
def test_numbers_of_connections_are_the_relays_affair(name: str, own: str) -> None:
    variant = read_variant(name)
    assert variant.torrc_relay == {"ConnectionsPerPair": ["3"], "PerCircuitConnections": [own]}
    assert variant.torrc_all == variant.torrc_client == {}


def test_the_last_number_holds(tmp_path: Path) -> None:
    variant = read(tmp_path, "connections_per_pair = 5", extends="shared-by-number-3")
    assert variant.connections_per_pair == 5
    assert variant.torrc_relay["ConnectionsPerPair"] == ["5"]


@pytest.mark.parametrize("key", ["parallel_circuits", "connections_per_pair", "per_circuit_up_to"])
@pytest.mark.parametrize("number", ["0", "-1", str(MOST_SIDE_BY_SIDE + 1), "true", "2.0", '"2"'])
def test_refuses_numbers_that_no_path_can_have(tmp_path: Path, key: str, number: str) -> None:
    told = refused(tmp_path, f"{key} = {number}\n{SEVERAL}")
    assert f"{key} = " in told
    assert "is no whole number from 1 to 32" in told


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ("parallel_circuits = 3", "= 3 means nothing without per-circuit-connections.patch: add"),
        ("connections_per_pair = 3", "= 3 means nothing without connections-per-pair.patch: add"),
        ("per_circuit_up_to = 2", "= 2 means nothing without connections-per-pair.patch: add"),
        ('stream_rule = "hashing"', "spreads streams over several circuits: say parallel_circuits"),
        ('stream_rule = "hash"', 'is no rule for streams: did you mean "hashing"?'),
        (
            f"{SEVERAL}\nconnections_per_pair = 2\nper_circuit_up_to = 2",
            "both say which connection a circuit takes: leave one of them out",
        ),
        (
            f'{SEVERAL}\ncc_alg = "vegas"\nconflux = true\nparallel_circuits = 2',
            "conflux = true with parallel_circuits: ",
        ),
    ],
)
def test_refuses_policies(tmp_path: Path, keys: str, advice: str) -> None:
    assert advice in refused(tmp_path, keys)


@pytest.mark.parametrize(
    ("keys", "expected", "kept"),
    [
        ("", PairUse(8, 8, 1), 0),
        ("parallel_circuits = 5", PairUse(40, 40, 1), 0),
        (f"{SEVERAL}\nconnections_per_pair = 3", PairUse(3, 8, 3), 3),
        (f"{SEVERAL}\nper_circuit_up_to = 3", PairUse(3, 8, 3), 3),
        (f"{SEVERAL}\nper_circuit_up_to = 8", PairUse(8, 8, 1), 8),
        (f"{SEVERAL}\nper_circuit_up_to = 9", PairUse(8, 8, 1), 8),
        (f"{SEVERAL}\nconnections_per_pair = 9", PairUse(9, 8, 1), 8),
        (
            f"{SEVERAL}\nconnections_per_pair = 4\nparallel_circuits = 2",
            PairUse(4, 16, 4),
            4,
        ),
    ],
)
def test_what_the_shared_link_must_look_like(
    tmp_path: Path, keys: str, expected: PairUse, kept: int
) -> None:
    plan = planned(tmp_path, keys, extends="vanilla" if SEVERAL in keys else "pctls")
    rule, circuits = plan.tor.connection_rule, plan.circuits_across(("middle1", "exit1"))
    assert rule.between(circuits) == expected
    assert rule.kept(circuits) == kept


@pytest.mark.parametrize(
    ("extends", "keys", "most"),
    [
        ("vanilla", "", 1),
        ("pctls", "", None),
        ("vanilla", f"{SEVERAL}\nper_circuit_up_to = 3", 3),
        ("pctls", 'patches = ["connections-per-pair.patch"]\nper_circuit_up_to = 3', 3),
        ("pctls", 'patches = ["connections-per-pair.patch"]\nconnections_per_pair = 2', 2),
    ],
)
def test_what_every_pair_of_relays_may_have(
    tmp_path: Path, extends: str, keys: str, most: int | None
) -> None:
    plan = planned(tmp_path, keys, "SmallNetwork", extends)
    empty = Tables({name: polars.DataFrame(schema=schema) for name, schema in SCHEMAS.items()})
    (check,) = connections.checks(plan, Recorded(empty, [], [], 0.0))
    assert plan.tor.connection_rule.most == most
    assert check.name.startswith("most connections" if most else "relay connections with several")
    assert check.bound == {"value": most or 0}


def test_only_what_tor_reads_makes_another_bootstrapped_network(tmp_path: Path) -> None:
    pctls = make_plan("NoDropping", "pctls")
    other = planned(tmp_path, 'ipsec = true\nparallel_circuits = 2\nstream_rule = "hashing"')
    other = other.model_copy(update={"variant": pctls.variant})
    assert bare_plan(other) == bare_plan(pctls)
    assert other.key != pctls.key


def test_uniform_takes_circuits_in_turn() -> None:
    assert [uniform(number, 3) for number in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_hashing_takes_them_by_both_ends() -> None:
    ends = ("127.0.0.1:40000", "10.0.5.1:8888")
    digest = hashlib.md5(b"127.0.0.1:40000 10.0.5.1:8888", usedforsecurity=False).hexdigest()
    assert hashing(*ends, 5) == int(digest, 16) % 5
    counts = Counter(hashing(f"127.0.0.1:{port}", ends[1], 5) for port in range(40000, 41000))
    assert set(counts) == set(range(5))
    assert max(counts.values()) < 260  # the binomial's mean is 200, its deviation 13


class OpenCircuits(PolicyCircuits):
    """A client's circuits that are open, by how many streams were opened on each."""

    def __init__(self, opened: dict[str, int]) -> None:
        self.client = "client1"
        self.given = self.opened = Counter(opened)

    def circuits(self) -> list[Circuit]:
        return [Circuit(number, (), streams) for number, streams in self.opened.items()]


def running(variant: str, circuits: list[OpenCircuits]) -> Running:
    lab = SimpleNamespace(plan=make_plan("NoDropping", variant))
    return Running(cast(Lab, lab), cast(TorNetwork, None), cast(Circuits, circuits), {})


@pytest.mark.parametrize(
    ("opened", "ok"),
    [
        ({"4": 7, "5": 7, "6": 6}, True),
        ({"4": 7, "5": 7, "6": 5}, False),
        ({"4": 7, "5": 7}, False),  # one has closed
        ({}, False),
    ],
)
def test_streams_are_spread_over_all_circuits(opened: dict[str, int], ok: bool) -> None:
    (check,) = asyncio.run(spread.after(running("mctor-3", [OpenCircuits(opened)])))
    assert check.ok is ok
    assert asyncio.run(spread.after(running("pctls", [OpenCircuits(opened)]))) == []


def esp_plan(seed: int = 1, scenario: str = "NoDropping") -> Plan:
    return make_plan(scenario, "pctcp", seed=seed)


def test_every_pair_of_neighbouring_relays_is_protected_both_ways() -> None:
    directions = ipsec.protected(esp_plan())
    pairs = [(f"guard{number}", "middle1") for number in range(1, 5)] + [("middle1", "exit1")]
    assert sorted(directions) == sorted(pairs + [pair[::-1] for pair in pairs])


def test_competing_streams_are_protected_too() -> None:
    assert ("exit1", "middle1") in ipsec.protected(esp_plan(scenario="Two"))


def states(plan: Plan, node: str) -> list[str]:
    return [line for line in ipsec.commands(plan, node) if line.startswith("xfrm state")]


def test_both_ends_of_a_direction_have_one_key_and_no_other_has_it() -> None:
    plan = esp_plan()
    by_line = Counter(line for node in plan.nodes for line in states(plan, node.name))
    assert len(by_line) == 10
    assert set(by_line.values()) == {2}
    keys = {line.split()[-2] for line in by_line}
    assert len(keys) == 10
    assert {len(key) for key in keys} == {len("0x") + 2 * (16 + 4)}
    assert not keys & {line.split()[-2] for line in states(esp_plan(seed=2), "middle1")}


def test_only_relays_are_told() -> None:
    plan = esp_plan()
    told = {node.role for node in plan.nodes if list(ipsec.commands(plan, node.name))}
    assert told == {"guard", "middle", "exit"}


def test_policies_let_nothing_in_or_out_without_esp() -> None:
    plan = esp_plan()
    address = plan.node("exit1").address
    policies = [line for line in ipsec.commands(plan, "exit1") if "policy" in line]
    ways = {line.partition(" dir ")[2].split()[0]: line for line in policies}
    assert ways.keys() == {"out", "in"}
    assert ways["out"].startswith(f"xfrm policy add src {address} ")
    assert f" dst {address} " in ways["in"]


class CountedLab:
    """A lab of TwoPaths with what its links between relays have counted: packets, and ESP."""

    def __init__(self, variant: str, counts: dict[tuple[str, str], tuple[int, int]]) -> None:
        self.plan = make_plan("TwoPaths", variant)
        self.meeting = Meeting(1, 0)
        self._counts = counts
        neighbours = ("guard1-middle1", "middle1-exit1", "guard2-middle2", "middle2-exit1")
        pairs = [tuple(one.split("-")) for one in neighbours]
        both_ways = [ends for pair in pairs for ends in (pair, pair[::-1])]
        self.between_relays = [SimpleNamespace(sender=one, receiver=two) for one, two in both_ways]

    def esp_packets(self, direction: SimpleNamespace) -> tuple[int, int]:
        return self._counts.get((direction.sender, direction.receiver), (9, 9))

    def run(self, _relay: str, _command: list[str]) -> str:
        return "mss:1414"


def esp_checks(variant: str, counts: dict[tuple[str, str], tuple[int, int]]) -> list[bool | None]:
    lab = cast(Lab, CountedLab(variant, counts))
    checks = asyncio.run(esp.after(Running(lab, cast(TorNetwork, None), cast(Circuits, None), {})))
    assert [check.name for check in checks][1:] == ["payload of a full segment between relays"]
    return [check.ok for check in checks]


OTHER_WAY = ("guard2", "middle2"), ("middle2", "guard2"), ("middle2", "exit1"), ("exit1", "middle2")


def test_a_link_that_no_path_crosses_may_carry_nothing() -> None:
    """As the second way in TwoPaths, where each client has one circuit."""
    assert esp_checks("pctcp", dict.fromkeys(OTHER_WAY, (0, 0))) == [True, True]
    assert esp_checks("pctcp", {("exit1", "middle1"): (0, 0)}) == [False, True]
    assert esp_checks("pctcp", {("exit1", "middle2"): (9, 8)}) == [False, True]


def test_packets_that_nobody_counted_prove_nothing(tmp_path: Path) -> None:
    read(tmp_path, "ipsec = true", "pctls-conflux")
    plan = make_plan("TwoPaths", str(tmp_path / "mine.toml"))
    ends = {link.ends for link in plan.links}
    nothing = dict.fromkeys([*ends, *(pair[::-1] for pair in ends)], (0, 0))
    for variant in ("pctcp", str(tmp_path / "mine.toml")):
        assert esp_checks(variant, nothing) == [False, True]


def test_what_esp_leaves_of_a_packet() -> None:
    """By RFC 4303 and 4106: 20 (IPv4), 8 (SPI, number), 8 (IV), 32 (TCP), 2 (trailer), 16 (ICV)."""
    assert ipsec.SEGMENT_BYTES == 1500 - 20 - 8 - 8 - 32 - 2 - 16 == 1448 - 34
    assert (32 + ipsec.SEGMENT_BYTES + 2) % 4 == 0


@pytest.mark.parametrize(
    ("scenario", "keys", "advice"),
    [
        ("One", "extends = 'pctls'\nparallel_circuits = 0", "is no whole number from 1 to 32"),
        ("One", "extends = 'pctls'\nparallel_circuits = 33", "is no whole number from 1 to 32"),
        ("One", "extends = 'vanilla'\nparallel_circuits = 3", "means nothing without per-circuit"),
        ("One", "extends = 'conflux'", "has one path from client1 to the exit"),
        ("ThreeContinents", "extends = 'pctls-conflux'", "has one path from client1 to the exit"),
    ],
)
def test_a_command_is_refused_in_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scenario: str,
    keys: str,
    advice: str,
) -> None:
    """With exit status 2, and before anything is started or written."""
    (folder / "mine.toml").write_text(f"title = 'x'\n{keys}\n", encoding="utf-8")
    told = refused_command(["scenario", scenario, "--variant", "./mine.toml"], monkeypatch, capsys)
    assert advice in told


def exit_cells(*queues: tuple[str, str]) -> polars.DataFrame:
    """Connection and circuit of each sample at the exit."""
    rows = [{"relay": "exit1", "connection": one, "queue": queue} for one, queue in queues]
    return polars.DataFrame(rows, schema=SCHEMAS["queues"])


@pytest.mark.parametrize(
    ("cells", "observed", "ok"),
    [
        (
            [("1", "a"), ("2", "a"), ("3", "b"), ("4", "c"), ("1", "a")],
            "4, with at most 1 on one",
            True,
        ),
        ([("1", "a"), ("1", "b"), ("3", "b"), ("4", "c")], "3, with at most 2 on one", False),
        ([("1", "a"), ("2", "b")], "2, with at most 1 on one", False),
        ([], "0, with at most 0 on one", False),
    ],
)
def test_each_leg_has_a_connection(cells: list[tuple[str, str]], observed: str, ok: bool) -> None:
    empty = {name: polars.DataFrame(schema=schema) for name, schema in SCHEMAS.items()}
    recorded = Recorded(Tables(empty | {"queues": exit_cells(*cells)}), [], [], 0.0)
    (check,) = legs.checks(make_plan("TwoPaths", "pctls-conflux"), recorded)
    assert (check.observed, check.ok) == (observed, ok)
    assert not list(legs.checks(make_plan("TwoPaths", "conflux"), recorded))
    assert not list(legs.checks(make_plan("SmallNetwork", "pctls-conflux"), recorded))


@pytest.mark.root
def test_a_host_kernel_without_ipsec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernel, "TRIALS", {})
    lacking = {"IPsec with AES-GCM": "ip xfrm state add nonsense"}
    monkeypatch.setattr(host_kernel, "IPSEC_TRIALS", lacking)
    assert host_kernel.refusal() == ""
    with pytest.raises(
        InputError, match=r"this host's kernel has no IPsec with AES-GCM \(.*"
    ) as it:
        host.check_host([], [], ipsec=True)
    assert "\n" not in str(it.value)
