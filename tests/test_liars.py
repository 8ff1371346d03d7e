"""Relays that lie about round trips, on cases that can be worked out by hand."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import polars
import pytest

from analysis.liars import Share, share_of
from analysis.runs import Found, Group
from analysis.tables.liars import table
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value
from testbed.inside.policies.interface import Circuit, RoundTrip
from testbed.inside.tor.liars import Liars
from testbed.plan.build_times import RoundTrips
from testbed.plan.model import Plan, PlannedPolicy
from testbed.results import Run
from testbed.results.circuits_of_clients import streams_by_liars
from testbed.results.tables import HasTables

RULE: dict[str, Value] = {"paths.policy": "rtt", "paths.circuits": 3}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("SmallNetwork", "vanilla", changes=RULE)


PATH = ("relay1", "relay2", "relay3")


def least_s(plan: Plan) -> tuple[float, float, float, float]:
    """The round trips from client1 to its guard, on to middle, exit and server."""
    ways = zip(("client1", *PATH), (*PATH, plan.server_of("client1")), strict=True)
    first, second, third, last = (RoundTrips(plan).between_ms(*ends) / 1000 for ends in ways)
    return first, second, third, last


def told(plan: Plan, liars: tuple[str, ...], circuit: Circuit, hide: float = 1 / 3) -> Circuit:
    policy = PlannedPolicy(name="rtt", rule="rtt", liars=liars, liars_hide=hide)
    return Liars(plan.model_copy(update={"policy": policy}), "client1").told(circuit)


def circuit(plan: Plan, waited_s: float) -> Circuit:
    """A circuit whose cells waited for so long with each measurement."""
    first, second, third, last = least_s(plan)
    probed, built = first + second + third, 3 * first + 2 * second + third
    trips = (
        RoundTrip(1, probed + waited_s, "build"),
        RoundTrip(2, probed + last + waited_s, "stream"),
        RoundTrip(3, probed + waited_s, "probe"),
    )
    return Circuit("1", PATH, 0, build_s=built + waited_s, round_trips=trips)


def waits_s(plan: Plan, of: Circuit) -> list[float]:
    """How long cells seem to have waited: building, then with each round trip."""
    none = circuit(plan, 0.0)
    assert of.build_s is not None and none.build_s is not None
    pairs = zip(of.round_trips, none.round_trips, strict=True)
    return [of.build_s - none.build_s, *(one.took_s - least.took_s for one, least in pairs)]


def test_a_liar_hides_a_third_of_the_waiting(plan: Plan) -> None:
    seen = told(plan, ("relay2",), circuit(plan, 0.3))
    assert waits_s(plan, seen) == pytest.approx([0.2] * 4)
    assert [one.at_s for one in seen.round_trips] == [1, 2, 3]
    both = told(plan, ("relay1", "relay2"), circuit(plan, 0.3))
    assert waits_s(plan, both) == pytest.approx([0.1] * 4)


def test_liars_hide_at_most_all_of_it(plan: Plan) -> None:
    seen = told(plan, ("relay1", "relay2"), circuit(plan, 0.3), hide=0.8)
    assert waits_s(plan, seen) == pytest.approx([0] * 4)
    faster = circuit(plan, -0.01)  # than the links allow: nothing to hide
    assert waits_s(plan, told(plan, ("relay1",), faster)) == pytest.approx([-0.01] * 4)


def test_a_lying_exit_does_not_wait_for_the_server(plan: Plan) -> None:
    *_, server_s = least_s(plan)
    waits = waits_s(plan, told(plan, ("relay3",), circuit(plan, 0.3)))
    assert waits == pytest.approx([0.2, 0.2, 0.2 - server_s, 0.2])


def test_others_say_the_truth(plan: Plan) -> None:
    honest = circuit(plan, 0.3)
    assert told(plan, ("relay9",), honest) == honest
    unknown = replace(honest, build_s=None)
    assert told(plan, ("relay1",), unknown).build_s is None


def test_liars_are_drawn_by_weight(plan: Plan) -> None:
    lying = make_plan("SmallNetwork", "vanilla", changes={**RULE, "paths.liars": "20 %"})
    weights = {relay.name: relay.weight or 0 for relay in lying.of_kind("relay")}
    liars, left = lying.policy.liars, 0.2 * sum(weights.values())
    left -= sum(weights[one] for one in liars)
    assert left >= 0
    assert all(weight > left for relay, weight in weights.items() if relay not in liars)
    assert lying.policy.liars_hide == pytest.approx(1 / 3)
    few = make_plan("SmallNetwork", "vanilla", changes={**RULE, "paths.liars": "0.0001 %"})
    assert few.policy.liars == (min(weights, key=lambda one: weights[one]),)
    other = make_plan("SmallNetwork", "vanilla", seed=2, changes={**RULE, "paths.liars": "20 %"})
    assert other.policy.liars != liars


def test_without_liars_the_plan_is_what_it_was(plan: Plan) -> None:
    none = make_plan("SmallNetwork", "vanilla", changes={**RULE, "paths.liars": "0 %"})
    assert none.policy == plan.policy
    assert "liars" not in plan.model_dump_json(exclude_defaults=True)


@pytest.mark.parametrize(
    ("scenario", "changes", "message"),
    [
        ("SmallNetwork", {"paths.liars": "10"}, r"paths.liars = \"10\" .* unit"),
        ("SmallNetwork", {"paths.liars": "110 %"}, "paths.liars .* above the most"),
        ("SmallNetwork", {"paths.liars_hide": "50 %"}, "paths.liars_hide: no relay lies"),
        ("SmallNetwork", {"paths.policy": "tor", "paths.liars": "9 %"}, "liars = .* doesn't have"),
        ("One", {"paths.policy": "fixed", "paths.liars": "10 %"}, "liars = .* doesn't have"),
    ],
)
def test_bad_input(scenario: str, changes: dict[str, Value], message: str) -> None:
    given = {"paths.policy": "rtt", **changes}
    with pytest.raises(InputError, match=message) as caught:
        make_plan(scenario, "vanilla", changes=given)
    assert "\n" not in str(caught.value)


def test_shares_of_streams_by_position() -> None:
    paths = [("a", "b", "c"), ("a", "c", "b"), ("b", "a", "c"), ("d", "b", "c")]
    assert share_of(paths, {"a", "b"}) == Share(
        guard=3 / 4, middle=3 / 4, exit=1 / 4, both_ends=1 / 4, anywhere=1
    )
    assert share_of([], {"a"}) is None


@dataclass(frozen=True, eq=False)
class Made:
    """A run with so many streams by way of a liar, of ten."""

    changes: dict[str, Value]
    seed: int
    by_liar: int
    directory: Path = Path("run")
    is_whole: bool = True
    made: dict[str, Plan] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """SmallNetwork's."""
        if not self.made:
            self.made["plan"] = make_plan(
                "SmallNetwork", "vanilla", seed=self.seed, changes=self.changes
            )
        return self.made["plan"]

    @property
    def streams(self) -> polars.DataFrame:
        """Ten streams; the liar is their middle relay."""
        same = {**RULE, "paths.liars": "10 %"}
        liars = make_plan("SmallNetwork", "vanilla", seed=self.seed, changes=same).policy.liars
        paths = [f"x,{liars[0] if number < self.by_liar else 'y'},z" for number in range(10)]
        alike = {"client": "client1", "status": "SUCCEEDED", "target": "10.4.3.1:8888"}
        return polars.DataFrame(
            [{**alike, "stream": f"{n}", "path": path} for n, path in enumerate(paths)]
        )


def test_a_runs_summary_counts_streams_by_liars() -> None:
    lying = Made({**RULE, "paths.liars": "10 %"}, seed=1, by_liar=3)
    assert streams_by_liars(lying.plan, cast(HasTables, lying)) == 3
    honest = Made(RULE, seed=1, by_liar=3)
    assert streams_by_liars(honest.plan, cast(HasTables, honest)) is None


def test_the_table_compares_runs_of_the_same_seed() -> None:
    lies = {**RULE, "paths.liars": "10 %", "paths.liars_hide": "100 %"}
    honest = [cast(Run, Made(RULE, seed, by_liar)) for seed, by_liar in ((1, 2), (2, 4))]
    lying = [cast(Run, Made(lies, seed, by_liar)) for seed, by_liar in ((1, 3), (2, 6))]
    groups = {
        Group("vanilla", "SmallNetwork,paths.policy=rtt", "page", 60.0): honest,
        Group("vanilla", "SmallNetwork,paths.policy=rtt,paths.liars=10%", "page", 60.0): lying,
    }
    (row,) = table(Found(valid=groups, left_out=())).rows
    assert row[:3] == ("SmallNetwork,paths.policy=rtt,paths.liars=10%", "vanilla", "2")
    assert row[4:8] == ("0.0 ± 0.0", "45.0 ± 21.2", "0.0 ± 0.0", "0.0 ± 0.0")
    assert row[-2:] == ("30.0 ± 14.1", "+50 % (+50 % to +50 %)")
    (alone,) = table(Found(valid={group: lying for group in list(groups)[1:]}, left_out=())).rows
    assert alone[-2:] == ("-", "-")
