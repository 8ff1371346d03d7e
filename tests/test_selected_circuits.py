"""A client whose Tor builds circuits and whose policy chooses among them, with a Tor made up."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars
import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.inside.recording import Record
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.inside.tor.selected_circuits import SelectedCircuits
from testbed.results.circuits_of_clients import build_times_ms
from testbed.results.tables import HasTables

KEPT: dict[str, str | int] = {"paths.policy": "rtt", "paths.circuits": 2}


@dataclass
class Tor:
    """A Tor's control port; it numbers circuits from 1 on."""

    asked: list[object] = field(default_factory=list)
    attached: list[tuple[str, str]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def add_event_listener(self, *_: object) -> None: ...

    def new_circuit(self, hops: object, **_: object) -> str:
        self.asked.append(hops)
        return str(len(self.asked))

    def attach_stream(self, stream: str, circuit: str) -> None:
        self.attached.append((stream, circuit))

    def close_circuit(self, circuit: str) -> None:
        self.closed.append(circuit)


class Clock:
    """The monotonic clock, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@dataclass
class Made:
    """The circuits of a client, its Tor and its clock."""

    tor: Tor
    clock: Clock
    circuits: SelectedCircuits
    record: Record

    def circuit(self, number: str, status: str, hops: int, **others: object) -> None:
        path = [(f"{hop}" * 40, "") for hop in range(hops)]
        event: dict[str, object] = {"id": number, "status": status, "path": path, "reason": None}
        event |= {"purpose": "GENERAL", "build_flags": ("NEED_CAPACITY",)}
        self.circuits._on_circuit(SimpleNamespace(**{**event, **others}))

    def build(self, number: str, last_handshake_s: float = 0.1) -> None:
        """Let a circuit be built, whose last handshake takes this long, and the others 0.2 s."""
        self.circuit(number, "LAUNCHED", 0)
        for hops, took_s in ((1, 0.2), (2, 0.2), (3, last_handshake_s)):
            self.clock.now_s += took_s
            self.circuit(number, "EXTENDED", hops)
        self.circuit(number, "BUILT", 3)

    def stream(
        self, number: str, status: str, circuit: str | None = None, **others: object
    ) -> None:
        event: dict[str, object] = {"id": number, "status": status, "circ_id": circuit}
        event |= {"purpose": "USER"}
        event |= {"target": "10.4.3.1:8888", "target_port": 8888, "reason": None}
        event |= {"source_address": "127.0.0.1", "source_port": 40_000}
        self.circuits._on_stream(SimpleNamespace(**{**event, **others}))

    def carry(self, number: str, circuit: str, took_s: float) -> None:
        """Let a stream be opened on the circuit that it was given."""
        self.stream(number, "SENTCONNECT", circuit)
        self.clock.now_s += took_s
        self.stream(number, "SUCCEEDED", circuit)


@pytest.fixture
def changes() -> dict[str, str | int]:
    return KEPT


@pytest.fixture
def made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | int]
) -> Iterator[Made]:
    plan = make_plan("SmallNetwork", "vanilla", changes=changes)
    clock, tor = Clock(monkeypatch), Tor()
    files = SimpleNamespace(probe_socket=tmp_path / "socks")
    running = SimpleNamespace(node=plan.node("client1"), controller=tor, files=files)
    fingerprints = {relay.name: f"{n}" * 40 for n, relay in enumerate(plan.of_kind("relay")[:3])}
    network = cast(TorNetwork, SimpleNamespace(fingerprints=fingerprints))
    with Record(tmp_path / "raw") as record:
        circuits = SelectedCircuits(cast(RunningTor, running), network, plan, record)
        circuits.build("measured")
        yield Made(tor, clock, circuits, record)
        assert circuits.failure is None


def test_tor_is_asked_for_circuits_of_its_choice(made: Made) -> None:
    assert made.tor.asked == [None, None]
    assert not made.circuits.is_ready()
    made.build("1", last_handshake_s=0.3)
    assert not made.circuits.is_ready()
    made.build("2")
    assert made.circuits.is_ready()
    first, second = made.circuits.circuits()
    assert [(one.of, round(one.took_s, 6)) for one in first.round_trips] == [("build", 0.3)]
    assert first.build_s == pytest.approx(0.7)
    assert second.path == ("relay1", "relay2", "relay3")


def test_streams_go_where_they_came_back_soonest(made: Made) -> None:
    made.build("1")
    made.build("2")
    made.stream("7", "NEW")
    made.carry("7", "1", 0.5)
    made.stream("8", "NEW")  # the second has no round trip yet
    made.carry("8", "2", 0.4)
    made.stream("9", "NEW")
    assert made.tor.attached == [("7", "1"), ("8", "2"), ("9", "2")]
    assert [one.streams for one in made.circuits.circuits()] == [1, 2]


def test_a_stream_without_a_circuit_waits_for_one(made: Made) -> None:
    made.stream("7", "NEW")
    assert not made.tor.attached
    made.build("1")
    assert made.tor.attached == [("7", "1")]


def test_a_stream_that_tor_gave_up_goes_elsewhere(made: Made) -> None:
    made.build("1")
    made.build("2")
    made.stream("7", "NEW")
    made.stream("7", "SENTCONNECT", "1")
    made.stream("7", "DETACHED", "1", reason="TIMEOUT")
    assert made.tor.attached == [("7", "1"), ("7", "2")]
    made.circuits.tick()
    assert len(made.tor.asked) == 3, "the circuit that didn't answer is replaced"


def test_a_circuit_that_fails_is_replaced(made: Made) -> None:
    made.circuit("1", "FAILED", 1, reason="TIMEOUT")
    made.circuit("1", "BUILT", 3, purpose="MEASURE_TIMEOUT")  # Tor learns how slow it was
    made.circuits.tick()
    assert len(made.tor.asked) == 3
    assert not made.circuits.circuits()


def test_circuits_for_other_purposes_are_not_the_policys(made: Made) -> None:
    made.circuit("9", "LAUNCHED", 0, build_flags=("ONEHOP_TUNNEL", "NEED_CAPACITY"))
    made.circuit("9", "BUILT", 1, build_flags=("ONEHOP_TUNNEL", "NEED_CAPACITY"))
    assert not made.circuits.circuits()


@pytest.mark.parametrize("changes", [{"paths.policy": "rtt"}])
def test_circuits_that_tor_built_by_itself_are_the_policys(made: Made) -> None:
    made.build("9")
    assert made.circuits.is_ready()
    assert [one.number for one in made.circuits.circuits()] == ["9"]


@pytest.mark.parametrize("changes", [KEPT])
def test_the_probe_of_a_check_is_no_round_trip_of_a_stream(made: Made) -> None:
    made.build("1")
    for target, trips in (("192.0.2.1:9", 0), ("192.0.2.1:80", 1)):
        opened: dict[str, Any] = {"target": target, "target_port": int(target.rpartition(":")[2])}
        for status in ("NEW", "SENTCONNECT", "SUCCEEDED"):
            made.stream(str(trips), status, None if status == "NEW" else "1", **opened)
        [circuit] = made.circuits.circuits()
        assert [one.of for one in circuit.round_trips].count("stream") == trips


@pytest.mark.parametrize("changes", [{**KEPT, "paths.round_trips": "probe"}])
def test_each_circuit_is_probed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(made.circuits, "_ask_for_stream", lambda: socket)
    probe: dict[str, Any] = {"target": "192.0.2.1:9", "target_port": 9}
    made.build("1")
    made.build("2")
    made.circuits.tick()
    assert not made.circuits._asked, "checks count cells until the traffic begins"
    made.circuits.may_probe = True
    made.circuits.tick()
    for stream, circuit in (("7", "1"), ("8", "2")):
        made.stream(stream, "NEW", **probe)
        made.stream(stream, "SENTCONNECT", circuit, **probe)
    assert made.tor.attached == [("7", "1"), ("8", "2")]
    made.clock.now_s += 0.25
    made.stream("8", "DETACHED", "2", reason="END", **probe)
    trips = [one.round_trips[-1] for one in made.circuits.circuits()]
    assert [(one.of, round(one.took_s, 6)) for one in trips] == [("build", 0.1), ("probe", 0.25)]
    assert [one.first_used_s for one in made.circuits.circuits()] == [None, None]


FEW = """
title = "10 relays, 3 clients, each with three circuits"
topology = "sampled"
duration = "10 s"
warm_up = "5 s"
[network]
consensus = "2021-11-30"
relays = 10
clients = 3
servers = 2
[clients]
page = "67 %"
bulk5mib = "33 %"
[paths]
policy = "rtt"
circuits = 3
round_trips = "probe"
probe_interval = "2 s"
"""


def test_a_build_time_is_from_the_launch_to_the_last_hop() -> None:
    events = [
        ("client1", "7", "LAUNCHED", 10.0, True),
        ("client2", "7", "LAUNCHED", 11.0, True),
        ("client1", "7", "EXTENDED", 10.2, True),
        ("client1", "8", "LAUNCHED", 12.0, True),
        ("client1", "9", "LAUNCHED", 12.0, False),
        ("client1", "7", "BUILT", 10.5, True),
        ("client1", "8", "FAILED", 13.0, True),
        ("client1", "9", "BUILT", 13.0, False),
        ("client2", "7", "BUILT", 12.0, True),
    ]
    columns = ("client", "circuit", "status", "time_s", "for_streams")
    circuits = polars.DataFrame(events, schema=columns, orient="row")
    tables = cast(HasTables, SimpleNamespace(circuits=circuits))
    assert sorted(build_times_ms(tables, 10.0)) == pytest.approx([500.0, 1000.0])
    assert list(build_times_ms(tables, 10.5)) == pytest.approx([1000.0])


@pytest.mark.experiment
def test_the_rule_for_real(tmp_path: Path) -> None:
    """Each client has three circuits, each of them is probed, and streams go by the rule."""
    (tmp_path / "Few.toml").write_text(FEW)
    run = run_scenario(tmp_path, str(tmp_path / "Few.toml"), "vanilla", 10)
    circuits = run.summary.circuits_of_clients
    assert circuits is not None
    assert circuits.made.median is not None and circuits.made.median >= 3
    placed = run.streams.filter(~polars.col("target").str.ends_with(":9"), status="SUCCEEDED")
    assert set(placed["rule"]) == {"rtt"}
    assert circuits.streams_by_rule == {"rtt": placed["stream"].len()}
    probes = run.streams.filter(polars.col("target").str.starts_with("192.0.2.1:"))
    assert "SUCCEEDED" not in set(probes["status"])
    assert circuits.probes > 3 * 3
    times_ms = circuits.build_time_ms
    assert times_ms is not None and times_ms.mean is None, "all are from before the traffic"


def test_a_directory_stream_from_before_is_not_a_stray(made: Made) -> None:
    made.stream("7", "SUCCEEDED", "1", purpose=None)
    assert not made.circuits.strays
    made.stream("8", "NEW", purpose="DIR_FETCH")
    made.stream("8", "SUCCEEDED", "1", purpose=None)
    assert not made.circuits.strays
    made.stream("9", "NEW")
    made.stream("9", "SUCCEEDED", "1")
    assert made.circuits.strays == {"1"}


def test_a_directory_stream_that_tor_gave_up_is_left_to_tor(made: Made) -> None:
    made.build("1")
    made.stream("8", "NEW", purpose="DIR_FETCH")
    made.stream("8", "DETACHED", purpose=None)
    assert not made.tor.attached
