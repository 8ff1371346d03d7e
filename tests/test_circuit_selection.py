"""Rules for the circuit of a stream, on round trips made up so that a reader can check them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from testbed.asked.plans import make_plan
from testbed.basics.distance import great_circle_km
from testbed.basics.errors import InputError
from testbed.inside.policies.interface import Circuit, Place, Relay, RoundTrip, Stream, Wait
from testbed.inside.policies.keeping import KeepCircuits
from testbed.inside.policies.selection import (
    RULES,
    Candidate,
    congestion_s,
    length_km,
    round_trip_s,
)

DEGREE_KM = great_circle_km((0, 0), (0, 1))
"""A degree of the equator."""


def candidate(
    number: str,
    *round_trips_s: float,
    degrees: float = 0,
    lot: float = 0.5,
    build_s: float = 1,
    used_s: float | None = None,
) -> Candidate:
    """A circuit from longitude 0 to some degrees; it was opened at the second of its number."""
    circuit = Circuit(number, (), 0, float(number), build_s, first_used_s=used_s)
    return Candidate(circuit, round_trips_s, ((0, 0), (0, degrees)), lot)


# mean round trip, least, congestion time, length:
ONE = candidate("1", 0.50, 0.30, degrees=3, lot=0.1, build_s=3)  # 400 ms, 300 ms, 100 ms, 3 degrees
TWO = candidate("2", 0.26, 0.22, degrees=4, lot=0.9, build_s=2)  # 240 ms, 220 ms, 20 ms, 4 degrees
THREE = candidate("3", 0.20, 0.10, degrees=2, lot=0.4, build_s=4)  # 150 ms, 100 ms, 50 ms, 2
FOUR = candidate("4", 0.90, 0.88, degrees=1, lot=0.2, build_s=1)  # 890 ms, 880 ms, 10 ms, 1
ALL = (ONE, TWO, THREE, FOUR)


@pytest.mark.parametrize(
    ("rule", "number", "why"),
    [
        ("c", "4", "10 ms is the least congestion time"),
        ("l", "4", "one degree is the shortest"),
        ("rtt", "3", "150 ms is the lowest round trip"),
        ("c-l", "4", "4 and 2 have the lowest congestion times, and 4 is shorter"),
        ("rtt-l", "3", "3 and 2 have the lowest round trips, and 3 is shorter"),
        ("l-c", "4", "4 and 3 are the shortest, and 4 has the lower congestion time"),
        ("l-rtt", "3", "4 and 3 are the shortest, and 3 has the lower round trip"),
        ("rtt-c", "2", "3 and 2 have the lowest round trips, and 2 the lower congestion time"),
        ("c-rtt", "2", "4 and 2 have the lowest congestion times, and 2 the lower round trip"),
        ("car", "4", "1, 4 and 3 have the lowest lots, and 4 the lowest congestion time of them"),
        ("random", "1", "it has the lowest lot"),
        ("tor", "1", "none was used, and it is the oldest"),
        ("best-of-two", "1", "1 and 4 have the lowest lots, and 1 the lower round trip"),
        ("build-time", "4", "a second is the shortest time"),
    ],
)
def test_rule(rule: str, number: str, why: str) -> None:
    assert RULES[rule].pick(ALL).circuit.number == number, why


def test_there_is_no_other_rule() -> None:
    paper = {"c", "l", "rtt", "c-l", "rtt-l", "l-c", "l-rtt", "rtt-c", "c-rtt", "car"}
    assert set(RULES) == paper | {"tor", "random", "best-of-two", "build-time"}


def test_the_last_five_round_trips_count() -> None:
    """But the least is that of all."""
    of = candidate("1", 0.1, 9.0, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert round_trip_s(of) == pytest.approx(0.4)
    assert congestion_s(of) == pytest.approx(0.3)


def test_a_circuit_without_round_trips_is_tried_first() -> None:
    fresh = candidate("5")
    assert (round_trip_s(fresh), congestion_s(fresh)) == (0, 0)
    assert RULES["rtt"].pick([*ALL, fresh]) == fresh


def test_a_length_is_the_sum_over_client_relays_and_server() -> None:
    along = replace(ONE, places=[(0, 0), (0, 1), (0, 3), (0, 2), (0, 2)])
    assert length_km(along) == pytest.approx(4 * DEGREE_KM)
    assert pytest.approx(111.2, abs=0.1) == DEGREE_KM


def test_tor_goes_on_with_the_oldest_circuit_that_it_has_used() -> None:
    used = [candidate("1"), candidate("2", used_s=30), candidate("3", used_s=20)]
    assert RULES["tor"].pick(used).circuit.number == "2"


def test_car_gives_a_congested_circuit_no_streams() -> None:
    accepts = RULES["car"].accepts
    assert accepts(candidate("1", 0.2, 1.2))  # 500 ms
    assert not accepts(candidate("1", 0.2, 1.3))  # 550 ms
    assert RULES["c"].accepts(candidate("1", 0.2, 1.3))


@dataclass
class Client:
    """A client whose circuits a test opens, and whose clock it sets."""

    name: str = "client1"
    relays: Mapping[str, Relay] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    place: Place | None = None
    open: list[Circuit] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    time_s: float = 0.0

    def circuits(self) -> Sequence[Circuit]:
        return list(self.open)

    def extend(self, path: Sequence[str]) -> None:
        raise AssertionError("it is Tor that chooses relays")

    def build_for(self, port: int) -> None:
        self.asked.append(port)

    def building(self) -> int:
        return len(self.asked)

    def close(self, circuit: Circuit) -> None:
        self.open.remove(circuit)

    def now_s(self) -> float:
        return self.time_s

    def draw(self, purpose: str) -> float:
        return 0.5

    def let_open(self) -> Circuit:
        """Open a circuit that was asked for."""
        self.asked.pop()
        number = str(1 + len(self.open))
        self.open.append(Circuit(number, (), 0, opened_s=self.time_s))
        return self.open[-1]


def keeping(client: Client, rule: str = "rtt", circuits: int | None = 3) -> KeepCircuits:
    return KeepCircuits(
        client, rule=rule, circuits=circuits, round_trips="stream", close_unused_s=300
    )


STREAM = Stream("7", "127.0.0.1:40000", "10.0.5.1:8888", is_probe=False, port=8888)


def test_a_number_of_circuits_is_kept_open() -> None:
    policy = keeping(client := Client())
    policy.prepare()
    assert client.asked == [80] * 3, "before any stream Tor expects port 80"
    policy.tick()
    assert len(client.asked) == 3, "those that are being built count"
    client.let_open()
    assert not policy.is_ready()
    client.let_open()
    client.let_open()
    assert policy.is_ready()
    client.close(client.open[0])
    policy.tick()
    assert len(client.asked) == 1


def test_none_is_built_for_a_port_unused_for_an_hour() -> None:
    policy = keeping(client := Client())
    client.time_s = 3600
    policy.tick()
    assert not client.asked
    assert isinstance(policy.choose(STREAM), Wait)
    assert client.asked == [8888] * 3


def test_a_circuit_is_used_for_ten_minutes() -> None:
    policy = keeping(client := Client(), circuits=1)
    policy.prepare()
    client.open = [replace(client.let_open(), first_used_s=0)]
    client.time_s = 599
    assert policy.choose(STREAM) == client.open[0]
    client.time_s = 600
    assert isinstance(policy.choose(STREAM), Wait)
    assert len(client.asked) == 1
    policy.tick()
    assert len(client.open) == 1, "its last streams go on"


def test_an_unused_circuit_is_closed_after_five_minutes() -> None:
    policy = keeping(client := Client(), circuits=2)
    policy.prepare()
    client.let_open()
    used = replace(client.let_open(), first_used_s=1)
    client.open[1] = used
    client.time_s = 299
    policy.tick()
    assert len(client.open) == 2
    client.time_s = 300
    policy.tick()
    assert client.open == [used]
    assert len(client.asked) == 1, "another one replaces it"


def test_only_round_trips_of_the_chosen_kind_count() -> None:
    policy = keeping(client := Client(), circuits=2)
    policy.prepare()
    slow = RoundTrip(1, 0.9, "stream")
    one = replace(client.let_open(), round_trips=(RoundTrip(1, 0.1, "build"), slow))
    other = replace(client.let_open(), round_trips=(RoundTrip(1, 0.5, "stream"),))
    client.open = [one, other]
    assert policy.choose(STREAM) == other


def test_a_circuit_that_tor_gave_up_gets_no_more_streams() -> None:
    policy = keeping(client := Client(), circuits=1)
    policy.prepare()
    client.open = [replace(client.let_open(), given_up=True)]
    assert isinstance(policy.choose(STREAM), Wait)


def test_as_many_as_tor_keeps() -> None:
    policy = keeping(client := Client(), circuits=None)
    policy.prepare()
    client.let_open()
    policy.tick()
    assert not client.asked


CHANGES: dict[str, str | int] = {"paths.policy": "rtt", "paths.circuits": 3}


def test_the_plan_has_the_rule_and_the_places() -> None:
    policy = (plan := make_plan("SmallNetwork", "vanilla", changes=CHANGES)).policy
    assert (policy.rule, policy.circuits, policy.round_trips) == ("rtt", 3, "stream")
    assert (policy.entry_guards, policy.learn_timeouts) == (True, True)
    assert {node.site for node in plan.of_kind("client")} <= set(plan.coordinates)
    assert not make_plan("SmallNetwork", "vanilla").coordinates
    tors = make_plan("SmallNetwork", "vanilla", changes={**CHANGES, "paths.policy": "tor"}).policy
    assert (tors.rule, tors.is_tors, tors.tor_chooses_paths) == ("tor", False, True)


@pytest.mark.parametrize(
    ("scenario", "changes", "message"),
    [
        ("SmallNetwork", {"paths.circuits": 0}, r"paths.circuits = 0 .* greater than or equal"),
        ("SmallNetwork", {"paths.policy": "rt"}, r'"rt": is not a policy: did you mean "rtt"\?'),
        ("One", {"paths.policy": "l"}, 'to which a client has no link.* topology = "sampled"'),
        ("NoDropping", {"paths.policy": "rtt"}, "to which a client has no link, and can't launch"),
        ("One", {"paths.policy": "tor"}, "to which a client has no link, and can't launch"),
        ("One", {"paths.policy": "fixed"}, r'paths.circuits = 3: .* "fixed" doesn\'t have it'),
        ("SmallNetwork", {"paths.policy": "c", "paths.round_trips": "build"}, "is 0: take"),
        ("SmallNetwork", {"paths.policy": "l", "paths.round_trips": "build"}, "leave it out"),
        ("SmallNetwork", {"paths.round_trips": "pings"}, r"pings.* is unknown"),
        ("SmallNetwork", {"paths.probe_interval": "2 s"}, "nothing is probed"),
        ("SmallNetwork", {"paths.close_unused": "soon"}, "paths.close_unused"),
    ],
)
def test_bad_input(scenario: str, changes: dict[str, str | int], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(scenario, "vanilla", changes={**CHANGES, **changes})
    assert "\n" not in str(caught.value)


def test_linked_sets_and_a_rule_exclude_each_other() -> None:
    with pytest.raises(InputError, match="conflux has conflux = true, where Tor builds"):
        make_plan("SmallNetwork", "conflux", changes=CHANGES)
