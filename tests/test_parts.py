"""A plan in parts for several kernels: who has what, how parts are joined, what they leave."""

import asyncio
import io
import json
import os
import shutil
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.basics.check import Check, merged, none_of
from testbed.basics.errors import InputError
from testbed.inside.checks import Running, esp
from testbed.inside.lab.ipsec import SEGMENT_BYTES
from testbed.inside.lab.network import Lab
from testbed.inside.lab.wiring import MANAGEMENT_SWITCH, Wiring
from testbed.inside.recording import RECORDED
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.network import TorNetwork
from testbed.machines.guest import memory_mb, part_folder, refuse_parts
from testbed.machines.together import shared_out
from testbed.plan.model import Plan
from testbed.plan.parts import crossings
from testbed.results.parts import merge_parts
from testbed.runs import runner
from testbed.runs.bootstrapped import bare_plan


def plan_of(kernels: int) -> Plan:
    """The plan of NoDropping with so many kernels."""
    return make_plan("NoDropping", "vanilla", changes={"kernels": kernels})


def parts_of(plan: Plan) -> list[Plan]:
    """The copies of the plan that its kernels have."""
    return [plan.model_copy(update={"part": part}) for part in range(plan.kernels)]


def test_one_kernel_has_the_plan_as_it_always_was() -> None:
    plan = make_plan("NoDropping", "vanilla")
    assert plan.kernels == 1
    assert plan.here() == list(plan.nodes)
    assert crossings(plan) == []
    shown = plan.model_dump(mode="json")
    assert not {"parts", "part"} & set(shown)
    assert plan_of(1).model_dump(mode="json") == {
        **shown,
        "scenario": "NoDropping,kernels=1",
        "changes": {"kernels": 1},
    }


def test_each_node_is_in_one_part_and_the_split_is_in_the_plan() -> None:
    plan = plan_of(2)
    assert plan.kernels == 2
    assert plan.key != make_plan("NoDropping", "vanilla").key
    here = [[node.name for node in part.here()] for part in parts_of(plan)]
    assert sorted(chain.from_iterable(here)) == sorted(node.name for node in plan.nodes)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert [len(part.here("client")) for part in parts_of(plan)] == [2, 6]


def test_parts_are_joined_by_the_links_that_cross_and_for_the_management_network() -> None:
    """The three guards of the second part, each 12.5 ms from the middle in the first one."""
    plan = plan_of(2)
    found = crossings(plan)
    assert [(one.joins, one.nodes) for one in found] == [
        *(("nodes", (f"guard{number}", "middle1")) for number in (1, 2, 4)),
        ("management", ()),
    ]
    assert {one.delays_ns for one in found} == {(12_499_999, 12_499_999)}
    assert [one.ends for one in found] == [(1, 0), (1, 0), (1, 0), (0, 1)]


@pytest.mark.parametrize("kernels", [2, 4])
@pytest.mark.parametrize("scenario", ["NoDropping", "SmallNetwork"])
def test_interfaces_are_the_same_in_however_many_parts_a_plan_is(
    scenario: str, kernels: int
) -> None:
    whole = {end for pair in Wiring(make_plan(scenario, "vanilla")).pairs for end in pair}
    plan = make_plan(scenario, "vanilla", changes={"kernels": kernels})
    found = []
    for part in parts_of(plan):
        wiring = Wiring(part)
        own = [*chain.from_iterable(wiring.pairs), *wiring.devices.values()]
        ports = [one.index for one in own if one.node == MANAGEMENT_SWITCH]
        assert len(ports) == len(set(ports))
        found += own
    ours = [end for end in found if not end.name.startswith("xl")]
    assert len(ours) == len(set(ours))
    assert set(ours) == whole
    addresses = [end.hardware_address for end in found]
    assert len(addresses) == len(set(addresses))
    # Each link between kernels has a device in both.
    devices = [name for part in parts_of(plan) for name in Wiring(part).devices]
    assert sorted(devices) == sorted(2 * [f"xl{number}" for number in range(len(crossings(plan)))])


def test_the_sites_of_two_parts_share_a_link_with_the_least_delay_of_their_ways() -> None:
    plan = make_plan("SmallNetwork", "vanilla", changes={"kernels": 2})
    part_of = {name: number for number, part in enumerate(plan.parts) for name in part}
    assert len(part_of) == len(plan.nodes)
    for link in plan.links:  # a site is whole
        assert link.is_way or part_of[link.ends[0]] == part_of[link.ends[1]]
    sites, management = crossings(plan)
    assert (sites.joins, management.joins) == ("sites", "management")
    assert min(sites.delays_ns) == min(management.delays_ns) >= 2_000_000 - 1
    across = [link for link in plan.links if part_of[link.ends[0]] != part_of[link.ends[1]]]
    least_ms = min(link.there.delay_ms for link in across)
    assert sites.delays_ns[0] == round(least_ms * 1e6) - 1


def test_a_way_spends_its_delay_partly_between_kernels_and_partly_at_its_sender() -> None:
    plan = make_plan("SmallNetwork", "vanilla", changes={"kernels": 2})
    sites, _ = crossings(plan)
    wiring = Wiring(plan)
    for way in wiring.ways:
        left_ms = wiring.sent_shape(way).delay_ms
        if not wiring.crosses(way):
            assert left_ms == way.shape.delay_ms
            continue
        there = sites.ends == (wiring.part_of(way.sender), wiring.part_of(way.receiver))
        between_ns = sites.delays_ns[0 if there else 1]
        assert round(left_ms * 1e6) + between_ns == round(way.shape.delay_ms * 1e6)
        assert round(left_ms * 1e6) >= 1


def test_a_network_is_bootstrapped_by_one_kernel() -> None:
    bare = bare_plan(plan_of(2))
    assert bare.kernels == 1
    assert bare == bare_plan(make_plan("NoDropping", "vanilla"))


def test_each_kernel_has_memory_for_its_own_nodes() -> None:
    one, two = memory_mb(plan_of(1)), memory_mb(plan_of(2))
    assert two == one + 256


def refused(*words: str) -> None:
    """Check that a command is refused with exit status 2."""
    assert main(list(words)) == 2


@pytest.mark.parametrize(
    ("scenario", "changes", "said"),
    [
        ("NoDropping", "kernels=7", "has 6 groups of nodes with a delay of 2 ms or more"),
        ("NoDropping", "kernels=0", "kernels"),
        ("NoDropping", "kernels=65", "kernels"),
    ],
)
def test_a_network_that_cannot_be_divided_is_refused(
    scenario: str, changes: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused("scenario", scenario, "--set", changes)
    error = capsys.readouterr().err
    assert "kernels" in error
    assert said in " ".join(error.split())


def test_a_network_with_all_delays_below_two_milliseconds_has_one_kernel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = ("--set", "links.guard-middle.delay=1 ms", "--set", "links.middle-exit.delay=1 ms")
    refused("scenario", "NoDropping", "--set", "kernels=2", *changes)
    assert "2 ms or more between them" in " ".join(capsys.readouterr().err.split())


def test_what_is_no_run_has_one_kernel() -> None:
    with pytest.raises(InputError, match="kernels = 2: only a run"):
        refuse_parts(plan_of(2))
    refuse_parts(plan_of(1))


def test_a_shell_has_all_nodes_in_one_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path))
    opened: list[Plan] = []
    ready = SimpleNamespace(kernel=SimpleNamespace(product=str))
    monkeypatch.setattr(runner, "ensure_ready", lambda *_asked: ready)
    monkeypatch.setattr(runner, "guest_folders", lambda *_asked: None)
    monkeypatch.setattr(runner, "run_in_guest", lambda plan, *_of, **_how: opened.append(plan))
    assert main(["shell", "NoDropping", "--set", "kernels=2"]) == 0
    assert [len(plan.here()) for plan in opened] == [len(plan_of(2).nodes)]


def check(observed: str, ok: bool | None, **value: float) -> Check:
    """A check of which a part has seen something."""
    return Check(name="x", expected="yes", observed=observed, ok=ok, value=value or None)


def test_a_check_of_all_parts_holds_if_it_holds_in_each() -> None:
    same, good, bad = check("yes", True), none_of("lost", []), none_of("lost", ["a", "b"])
    assert merged([[same, good], [same, good]]) == [same, good]
    (lost,) = merged([[good], [bad], [none_of("lost", ["c"])]])
    assert (lost.ok, lost.observed, lost.value) == (False, "a, b; c", {"count": 3})
    assert merged([[], [same]]) == [same]
    (unknown,) = merged([[same], [check("too few", None)]])
    assert (unknown.ok, unknown.observed) == (None, "too few")
    (spread,) = merged([[check("1 of 2", True, seen=1)], [check("3 of 4", True, seen=3)]])
    assert (spread.ok, spread.observed, spread.value) == (True, "1 of 2; 3 of 4", {"seen": 4})


def test_numbers_of_parts_are_added_by_name() -> None:
    first, second = (none_of("lost", []).model_copy(update={"value": value}) for value in VALUES)
    (both,) = merged([[first], [second]])
    assert both.value == {"client1": 1, "client2": 5, "client3": 4}


VALUES = ({"client1": 1, "client2": 2}, {"client2": 3, "client3": 4})


def test_a_part_whose_relays_send_nothing_has_esp_if_others_have() -> None:
    """Only part 1's relays are asked here; those of part 0 have told."""
    plan = make_plan("NoDropping", "pctcp", changes={"kernels": 2})
    others: list[Any] = [10, 10, []]

    async def exchange(said: object) -> list[object]:
        return [[others, [SEGMENT_BYTES]], said]

    lab = SimpleNamespace(
        plan=plan.model_copy(update={"part": 1}),
        between_relays=(SimpleNamespace(sender="middle1", receiver="exit1"),),
        meeting=SimpleNamespace(exchange_meanwhile=exchange),
        run=lambda *_words: "",
    )
    running = Running(cast(Lab, lab), cast(TorNetwork, None), cast(Circuits, None), {})
    assert [check.ok for check in asyncio.run(esp.after(running))] == [True, True]
    others[1:] = 9, ["middle1 to exit1: 1"]
    assert [check.ok for check in asyncio.run(esp.after(running))] == [False, True]


def left_by_part(folder: Path, part: int, notes: list[float], checks: list[Check]) -> None:
    """Make the record of a part, with a note at each of some times."""
    (folder / "raw").mkdir(parents=True)
    (folder / "logs").mkdir()
    for name in RECORDED:
        (folder / "raw" / f"{name}.jsonl").touch()
    rows = [json.dumps({"time_s": time_s, "text": f"of part {part}"}) for time_s in notes]
    (folder / "raw" / "notes.jsonl").write_text("".join(f"{row}\n" for row in rows))
    lines = [f"{one.model_dump_json()}\n" for one in checks]
    (folder / "raw" / "checks.jsonl").write_text("".join(lines))
    (folder / "logs" / "kernel.log").write_text(f"console {part}")
    (folder / "logs" / "tgen-clients.log").write_text(f"clients {part}\n")
    (folder / "logs" / f"tor-client{part}.log").write_text(f"tor {part}")


def test_records_of_parts_become_one(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for part, notes in enumerate(([1.0, 2.0, 2.0], [0.5, 2.0, 3.0])):
        left_by_part(part_folder(tmp_path, part), part, notes, [none_of("lost", [])])
    (part_folder(tmp_path, 1) / "captures").mkdir()
    (part_folder(tmp_path, 1) / "captures" / "a-b.pcap").write_bytes(b"packets")
    merge_parts(tmp_path, plan_of(2))
    rows = [json.loads(line) for line in (tmp_path / "raw" / "notes.jsonl").open()]
    assert [(row["time_s"], row["text"][-1]) for row in rows] == [
        *((0.5, "1"), (1.0, "0"), (2.0, "0"), (2.0, "0"), (2.0, "1"), (3.0, "1"))
    ]
    assert len((tmp_path / "raw" / "checks.jsonl").read_text().splitlines()) == 1
    logs = {file.name: file.read_text() for file in (tmp_path / "logs").iterdir()}
    assert logs == {
        "kernel-1.log": "console 0",
        "kernel-2.log": "console 1",
        "tgen-clients.log": "clients 0\nclients 1\n",
        "tor-client0.log": "tor 0",
        "tor-client1.log": "tor 1",
    }
    assert (tmp_path / "captures" / "a-b.pcap").read_bytes() == b"packets"
    assert not list(tmp_path.glob("part-*"))


def test_a_part_without_a_record_is_an_error(tmp_path: Path) -> None:
    for part in range(2):
        left_by_part(part_folder(tmp_path, part), part, [], [])
    shutil.rmtree(part_folder(tmp_path, 1) / "raw")
    with pytest.raises(OSError, match="part-2"):
        merge_parts(tmp_path, plan_of(2))


def test_fewer_cores_than_kernels_share_the_expected_load() -> None:
    """The fullest of four parts has 44 % of Network19to1: it gets a core, and the others one."""
    plan = make_plan("Network19to1", "vanilla", changes={"kernels": 4})
    loads = runner.loads_of_parts(plan)
    assert [round(100 * load / sum(loads)) for load in loads] == [44, 19, 19, 19]
    assert shared_out(loads, 2) == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("cores", "usable", "said"),
    [
        (1, 2, "4 kernels on 1 core, as other runs have the others: "),
        (2, 2, "4 kernels on 2 cores, as only 2 can be used here: "),
        (4, 8, ""),
    ],
)
def test_kernels_that_share_cores_say_why(
    cores: int, usable: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(usable)))
    console = Console(file=io.StringIO(), record=True, width=20)
    runner.say_cores(console, 4, cores)
    assert console.export_text() == (said and f"{said}the results are the same, only later\n")
