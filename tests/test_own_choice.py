"""Where Tor chooses paths: entry guards, and timeouts that were learned before the run."""

import asyncio
import math
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from stem import TimeoutSetType

from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.steps import Progress
from testbed.basics.toml_file import PROJECT
from testbed.inside.checks import Running, build_timeouts, entry_guards
from testbed.inside.lab.meeting import Meeting
from testbed.inside.tor.configuration import AuthorityIdentity, TorFiles, torrc
from testbed.inside.tor.learned_timeouts import guards_in, learn_timeouts, with_build_times
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.own_choice import OwnChoice
from testbed.plan.build_times import TIMES, BuildTimes, Learned, learned
from testbed.plan.model import Plan
from testbed.runs.bootstrapped import bare_plan
from testbed.runs.runner import plan_need
from testbed.setup.tor import tor_build

SMALL = PROJECT / "scenarios" / "SmallNetwork.toml"

STATE = """\
# Tor state file last generated on 2027-01-15 07:50:51 local time
Guard in=default rsa_id=0663 nickname=relay2 sampled_idx=0 sampled_by=0.4.9.11 listed=1
Guard in=default rsa_id=985C nickname=relay3 sampled_idx=1 listed=1 confirmed_idx=1
Guard in=default rsa_id=1FBF nickname=relay4 sampled_idx=2 listed=1 confirmed_idx=0
TotalBuildTimes 3
CircuitBuildAbandonedCount 1
CircuitBuildTimeBin 105 2
LastWritten 2027-01-15 07:50:51
"""


def scenario(folder: Path, paths: str, base: Path = SMALL) -> str:
    """A scenario with other keys in [paths]."""
    file = folder / "Mine.toml"
    file.write_text(f"{base.read_text()}\n[paths]\n{paths}\n")
    return str(file)


def lines_of(plan: Plan, name: str, folder: Path) -> list[str]:
    """The lines of a node's torrc."""
    nobody = AuthorityIdentity("0" * 40, "0" * 40)
    identities = {node.name: nobody for node in plan.of_kind("authority")}
    files = TorFiles(name, folder, folder / "log")
    return torrc(plan, plan.node(name), files, identities).splitlines()


def parameters(plan: Plan, folder: Path) -> str:
    lines = lines_of(plan, "authority1", folder)
    return next(line for line in lines if line.startswith("ConsensusParams"))


def test_tor_keeps_to_two_guards_where_it_chooses(tmp_path: Path) -> None:
    """Relays serve the directory then: Tor takes no others as guards."""
    plan = make_plan("SmallNetwork", "vanilla")
    assert plan.guards_to_use == 2
    assert "UseEntryGuards 1" in lines_of(plan, "client1", tmp_path)
    assert "DirCache 1" in lines_of(plan, "relay1", tmp_path)
    assert "guard-n-primary-guards-to-use=2" in parameters(plan, tmp_path)


def test_entry_guards_can_be_switched_off(tmp_path: Path) -> None:
    plan = make_plan(scenario(tmp_path, "entry_guards = false"), "vanilla")
    assert plan.guards_to_use is None
    assert "UseEntryGuards 0" in lines_of(plan, "client1", tmp_path)
    assert "DirCache 0" in lines_of(plan, "relay1", tmp_path)
    assert "guard-n" not in parameters(plan, tmp_path)


@pytest.mark.parametrize(("variant", "number"), [("live-2021", 1), ("live-2026", 2)])
def test_a_variant_says_how_many_guards(variant: str, number: int) -> None:
    assert make_plan("SmallNetwork", variant).guards_to_use == number


def test_timeouts_are_learned_where_tor_chooses(tmp_path: Path) -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    asked = [line for line in lines_of(plan, "client1", tmp_path) if line.startswith("LearnC")]
    assert asked[-1] == "LearnCircuitBuildTimeout 1"
    off = make_plan(scenario(tmp_path, "learn_timeouts = false"), "vanilla")
    asked = [line for line in lines_of(off, "client1", tmp_path) if line.startswith("LearnC")]
    assert asked[-1] == "LearnCircuitBuildTimeout 0"
    assert bare_plan(off).key == bare_plan(plan).key, "the kept network is the same"


def test_fixed_paths_have_neither(tmp_path: Path) -> None:
    plan = make_plan("One", "vanilla")
    assert (plan.policy.entry_guards, plan.policy.learn_timeouts) == (False, False)
    lines = lines_of(plan, "client1", tmp_path)
    assert {"UseEntryGuards 0", "LearnCircuitBuildTimeout 0"} <= {*lines}
    assert "LearnCircuitBuildTimeout 1" not in lines


def test_a_plan_of_before_has_neither() -> None:
    plan = make_plan("SmallNetwork", "vanilla").model_dump(mode="json")
    del plan["policy"]["entry_guards"], plan["policy"]["learn_timeouts"]
    older = Plan.model_validate(plan)
    assert (older.policy.entry_guards, older.policy.learn_timeouts) == (False, False)


@pytest.mark.parametrize("key", ["entry_guards", "learn_timeouts"])
def test_who_names_relays_leaves_tor_no_choice(tmp_path: Path, key: str) -> None:
    one = PROJECT / "scenarios" / "One.toml"
    with pytest.raises(InputError, match=f'paths.{key} = true, but paths.policy = "fixed"'):
        make_plan(scenario(tmp_path, f"{key} = true", one), "vanilla")


def test_a_topology_has_no_weights_to_learn_from(tmp_path: Path) -> None:
    two_paths = PROJECT / "scenarios" / "TwoPaths.toml"
    asked = scenario(tmp_path, 'policy = "tor"\nlearn_timeouts = true', two_paths)
    with pytest.raises(InputError, match="a topology lacks"):
        make_plan(asked, "vanilla")


def test_a_circuits_build_time_is_that_of_its_links() -> None:
    """Each hop answers by itself: 3 round trips of the first link, 2 of the second, 1 of the last.

    With a connection for each circuit those between relays take five round trips first, or two
    without TLS; the client's own is open when its clock starts, and its first cell waits for one.
    """
    path = ("relay1", "relay7", "relay5")
    times = {}
    for variant in ("vanilla", "pctls", "pctcp"):
        plan = make_plan("SmallNetwork", variant)
        times[variant] = BuildTimes(plan).time_ms("client1", path)
    delays = {}
    for link in plan.links:
        delays[link.ends] = link.there.delay_ms
        delays[link.ends[::-1]] = link.back.delay_ms
    routers = {link.ends[0]: link.ends[1] for link in plan.links if not link.is_way}

    def there_and_back_ms(one: str, other: str) -> float:
        nodes = [one, *dict.fromkeys([routers[one], routers[other]]), other]
        steps = list(pairwise(nodes))
        return sum(delays[step] + delays[step[::-1]] for step in steps)

    first, second, third = (
        there_and_back_ms(*ends)
        for ends in (("client1", path[0]), (path[0], path[1]), (path[1], path[2]))
    )
    assert times["vanilla"] == pytest.approx(3 * first + 2 * second + third)
    assert times["pctls"] - times["vanilla"] == pytest.approx(first + 5 * (second + third))
    assert times["pctls"] - times["pctcp"] == pytest.approx(first + 3 * (second + third))
    # At the guard and the exit only: the middle opens a connection as Tor does, and the guard one
    # for each circuit, if the middle need not know of it.
    for variant, own in (("pctcp", 0), ("pctls", first + 5 * second)):
        some = make_plan("SmallNetwork", f"{variant}+some-relays")
        assert [some.tor.is_at(relay) for relay in path] == [True, False, True]
        assert BuildTimes(some).time_ms("client1", path) - times["vanilla"] == pytest.approx(own)
    waited = BuildTimes(make_plan("SmallNetwork", "vanilla")).time_ms("client1", path, lambda: 0.5)
    assert waited - times["vanilla"] == pytest.approx(2 * second + third), "there and back, thrice"


def test_build_times_follow_from_seed_client_and_guards() -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    times = BuildTimes(plan)
    own = times.of("client1", ["relay3", "relay2"])
    assert len(own) == TIMES
    assert own == BuildTimes(plan).of("client1", ["relay3", "relay2"])
    assert own != times.of("client1", ["relay4", "relay2"])
    assert own != times.of("client2", ["relay3", "relay2"])
    assert own != BuildTimes(plan.model_copy(update={"seed": 2})).of("client1", [])
    assert all(time_ms % 10 == 5 for time_ms in own), "Tor keeps the middles of bins"


def test_what_is_learned_is_path_specs_formula() -> None:
    """Xm is the mean of the ten fullest bins, alpha the likeliest, and the time that of 80 %."""
    times_ms = [105] * 60 + [205] * 25 + [305] * 10 + [905] * 5
    xm = (105 * 60 + 205 * 25 + 305 * 10 + 905 * 5) // 100
    alpha = 100 / (10 * math.log(305 / xm) + 25 * math.log(205 / xm) + 5 * math.log(905 / xm))
    found = learned(times_ms, {})
    assert (found.total, found.least_ms) == (100, xm)
    assert found.shape == pytest.approx(alpha)
    assert found.timeout_ms == pytest.approx(xm / 0.2 ** (1 / alpha))
    assert learned([105] * 99 + [905], {"cbtquantile": 99}).timeout_ms <= 905, "at most the longest"


def test_guards_are_read_as_tor_prefers_them() -> None:
    assert guards_in(STATE) == ["relay4", "relay3", "relay2"]
    assert guards_in("") == []


def test_a_state_file_gets_build_times_and_keeps_the_rest() -> None:
    text = with_build_times(STATE, [155, 95, 155])
    lines = text.splitlines()
    assert lines[-3:] == [
        "TotalBuildTimes 3",
        "CircuitBuildTimeBin 95 1",
        "CircuitBuildTimeBin 155 2",
    ]
    assert guards_in(text) == guards_in(STATE)
    assert "CircuitBuildTimeBin 105 2" not in lines
    assert not any("Abandoned" in line for line in lines)


def test_each_client_gets_times_of_its_own_guards(tmp_path: Path) -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    files = {name: TorFiles(name, tmp_path / name, tmp_path / "log") for name in plan.clients}
    for each in files.values():
        each.data.mkdir(parents=True)
    (files["client1"].data / "state").write_text(STATE)
    network: Any = SimpleNamespace(learned={})
    learn_timeouts(plan, network, files)
    expected_ms = BuildTimes(plan).of("client1", ["relay4", "relay3"])
    assert network.learned["client1"] == learned(expected_ms, {})
    assert network.learned.keys() == {*plan.clients}
    text = (files["client1"].data / "state").read_text()
    assert text == with_build_times(STATE, expected_ms)
    off = plan.model_copy(
        update={"policy": plan.policy.model_copy(update={"learn_timeouts": False})}
    )
    network.learned.clear()
    learn_timeouts(off, network, files)
    assert network.learned == {}


@pytest.mark.experiment
def test_tor_learns_from_its_state_what_we_expect(tmp_path: Path) -> None:
    """A Tor without network logs the timeout, Xm and alpha that it has read from its state."""
    plan = make_plan("SmallNetwork", "vanilla")
    need = plan_need(plan)
    built = tor_build(need.source, need.patches, Progress())
    times_ms = BuildTimes(plan).of("client1", [])
    (tmp_path / "state").write_text(with_build_times(STATE_WITHOUT_GUARDS, times_ms))
    tmp_path.chmod(0o700)
    command = [
        *(str(built.product("tor")), "-f", "/dev/null", "--ignore-missing-torrc"),
        *("--DataDirectory", str(tmp_path), "--DisableNetwork", "1", "--SocksPort", "0"),
        *("--Log", "info stdout", "--LearnCircuitBuildTimeout", "1"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tor:
        assert tor.stdout
        said = next(line for line in tor.stdout if "Circuit timeout data" in line)
        tor.terminate()
    found = re.search(r"data: ([\d.]+)ms, .*Xm: (\d+), a: ([\d.]+)", said)
    assert found
    expected = learned(times_ms, {})
    assert float(found[1]) == pytest.approx(expected.timeout_ms, abs=1e-3)
    assert int(found[2]) == expected.least_ms
    assert float(found[3]) == pytest.approx(expected.shape, abs=1e-5)


STATE_WITHOUT_GUARDS = "TorVersion Tor 0.4.9.11\n"


def test_circuits_that_begin_elsewhere_are_named() -> None:
    paths = [("a", "m", "x")] * 3 + [("b", "m", "x")] * 2
    assert entry_guards.other_guards(paths, 2) == []
    assert entry_guards.other_guards([*paths, ("c", "m", "b")], 2) == [], "it ends at a guard"
    assert entry_guards.other_guards([*paths, ("c", "m", "x")], 2) == ["c"]


def client(
    name: str,
    *,
    built: Sequence[tuple[str, ...]] = (),
    down: Collection[str] = (),
    timeouts: Sequence[Any] = (),
) -> OwnChoice:
    """A client of which only what checks look at is there."""
    made = object.__new__(OwnChoice)
    made.client, made.built, made.guards_down = name, list(built), {*down}
    made.timeouts = list(timeouts)
    return made


def running(plan: Plan, *clients: OwnChoice, expected: Learned | None = None) -> Running:
    network = SimpleNamespace(learned={one.client: expected for one in clients})
    lab = SimpleNamespace(meeting=Meeting(1, 0))
    parts = {"plan": plan, "lab": lab, "circuits": list(clients), "network": network, "states": {}}
    return cast(Running, SimpleNamespace(**parts))


@pytest.mark.parametrize(
    ("measured", "flags", "ok", "named"),
    [
        (False, "Fast Stable V2Dir", True, "none"),
        (False, "Fast V2Dir", False, "relay1 without Stable"),
        (False, "Stable V2Dir", False, "relay1 without Fast"),
        (True, "Fast Stable V2Dir", True, "none"),
        (True, "Stable V2Dir", None, "relay1 without Fast"),
        (True, "V2Dir", False, "relay1 without Fast Stable"),
    ],
)
def test_a_guard_that_tor_passes_over_is_named(
    measured: bool, flags: str, ok: bool | None, named: str
) -> None:
    """And not judged if it has been measured too slow for Fast."""
    plan = make_plan("SmallNetwork", "vanilla").model_copy(update={"measured_weights": measured})
    relays = [relay.name for relay in plan.of_kind("relay")]
    statuses = [SimpleNamespace(fingerprint=name, flags=flags.split()) for name in relays]
    tor: Any = SimpleNamespace(controller=SimpleNamespace(get_network_statuses=lambda: statuses))
    network = TorNetwork({"client1": tor}, {name: name for name in relays})
    made = cast(Running, SimpleNamespace(plan=plan, network=network))
    (check,) = asyncio.run(entry_guards.before(made))
    assert (check.ok, check.observed.split(",")[0]) == (ok, named)


PATHS = [("a", "m", "x"), ("a", "n", "x"), ("b", "m", "x"), ("b", "m", "x"), ("c", "m", "x")]


@pytest.mark.parametrize(("down", "ok"), [(set(), False), ({"b"}, True)])
def test_a_client_with_three_guards_is_named(down: set[str], ok: bool) -> None:
    """Not if Tor found one of them unreachable, as it then has to take another."""
    plan = make_plan("SmallNetwork", "vanilla")
    one = client("client1", built=PATHS, down=down)
    (check,) = asyncio.run(entry_guards.after(running(plan, one)))
    assert check.ok == ok
    linked = make_plan("SmallNetwork", "conflux")
    (check,) = asyncio.run(entry_guards.after(running(linked, client("client1", built=PATHS))))
    assert check.ok, "a linked set's second leg begins at another guard"
    assert asyncio.run(entry_guards.after(running(make_plan("One", "vanilla")))) == []


def event(timeout_ms: int, total: int = TIMES, kind: str = TimeoutSetType.COMPUTED) -> Any:  # noqa: ANN401
    return SimpleNamespace(set_type=kind, total_times=total, timeout=timeout_ms, timeout_rate=0.25)


@pytest.mark.parametrize(
    ("events", "ok"),
    [
        ([event(1010)], True),
        ([event(1100)], False),
        ([event(1000, 7)], False),
        ([], False),
    ],
)
def test_the_timeout_in_effect_must_be_the_learned_one(events: list[Any], ok: bool) -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    state = running(plan, client("client1", timeouts=events), expected=Learned(TIMES, 5, 2, 1000))
    (check,) = asyncio.run(build_timeouts.before(state))
    assert check.ok == ok


def test_a_client_that_learns_anew_is_named() -> None:
    plan = make_plan("SmallNetwork", "vanilla")
    expected = Learned(TIMES, 5, 2, 1000)
    kept = client("client1", timeouts=[event(1000)])
    (check,) = asyncio.run(build_timeouts.after(running(plan, kept, expected=expected)))
    assert check.ok
    assert check.observed == "none; a client gave up 25.0% of its circuits on average"
    lost = client("client2", timeouts=[event(1000), event(60_000, 0, TimeoutSetType.RESET)])
    (check,) = asyncio.run(build_timeouts.after(running(plan, kept, lost, expected=expected)))
    assert check.ok is None
    assert "client2" in check.observed


def test_relays_are_drawn_by_weight() -> None:
    """Of exits only the one with Wed; a guard with the exit flag has no weight as guard (Wgd=0)."""
    plan = make_plan("SmallNetwork", "vanilla")
    times = BuildTimes(plan)
    drawn: Counter[tuple[str, str, str]] = Counter(
        times.path(Random(number), []) for number in range(TIMES)
    )
    guards, lasts = (Counter(path[place] for path in drawn.elements()) for place in (0, 2))
    weights = {relay.name: relay.weight or 0 for relay in plan.of_kind("relay")}
    among = [one.name for one in plan.of_kind("relay") if one.flags == ("guard",)]
    share = weights["relay1"] / sum(weights[name] for name in among)
    assert guards["relay1"] / TIMES == pytest.approx(share, abs=0.05)
    assert {*lasts} == {one.name for one in plan.of_kind("relay") if "exit" in one.flags}
    assert all(len({*path}) == 3 for path in drawn)
