"""The patch by which Tor itself puts streams on the best open circuit, held against the policy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Value
from testbed.results import Run
from testbed.results.circuits_of_clients import carried_streams

READERS = """
title = "10 relays, 12 clients that read pages"
topology = "sampled"
duration = "40 s"
warm_up = "20 s"
[network]
consensus = "2021-11-30"
relays = 10
clients = 12
servers = 2
[clients]
page20 = "100 %"
"""


@dataclass
class Life:
    """When a circuit was launched, extended, open and ended, in seconds; and its guard.

    Attributes:
        launched_s: minus infinity if that was before the recording began.
        waited: for its client's connection to the guard. A policy's build times contain that, and
            Tor's don't, which begin with the first handshake.
    """

    launched_s: float = float("-inf")
    extended_s: list[float] = field(default_factory=list)
    opened_s: float = float("inf")
    ended_s: float = float("inf")
    guard: str = ""
    waited: bool = False

    @property
    def build_s(self) -> float:
        return self.opened_s - self.launched_s

    @property
    def least_build_s(self) -> float:
        """Without the wait for the connection, and then without the first handshake, too."""
        return self.opened_s - self.extended_s[0] if self.waited else self.build_s

    @property
    def last_handshake_s(self) -> float:
        """What `paths.round_trips = "build"` goes by."""
        return self.extended_s[-1] - self.extended_s[-2]


Lives = Mapping[str, Life]


def lives(run: Run) -> dict[str, dict[str, Life]]:
    """By client and circuit."""
    found: dict[str, dict[str, Life]] = {}
    for row in run.circuits.sort("time_s").iter_rows(named=True):
        life = found.setdefault(row["client"], {}).setdefault(row["circuit"], Life())
        life.guard = life.guard or row["hops"].partition(",")[0]
        match row["status"]:
            case "LAUNCHED":
                life.launched_s = row["time_s"]
            case "EXTENDED":
                life.extended_s.append(row["time_s"])
            case "BUILT":
                life.opened_s = row["time_s"]
            case "FAILED" | "CLOSED":
                life.ended_s = min(life.ended_s, row["time_s"])
    for of_client in found.values():
        for life in of_client.values():
            answers = (one.extended_s[0] for one in of_client.values() if one.guard == life.guard)
            life.waited = bool(life.guard) and life.launched_s < min(answers)
    return found


def choices(run: Run) -> Iterator[tuple[str, Lives]]:
    """The circuit of each stream, and all that it could have had."""
    by_client = lives(run)
    built = run.circuits.filter("for_streams", status="BUILT")
    for_streams = set(built.select("client", "circuit").iter_rows())
    asked = run.streams.filter(status="NEW").select("client", "stream", asked_s="time_s")
    for row in carried_streams(run).join(asked, ["client", "stream"]).iter_rows(named=True):
        of_client = by_client[row["client"]]
        among = {
            circuit: life
            for circuit, life in of_client.items()
            if (row["client"], circuit) in for_streams
            and life.opened_s <= row["asked_s"] < life.ended_s
        }
        yield row["circuit"], among


def carried_out(folder: Path, by: str) -> Run:
    (folder / "Readers.toml").write_text(READERS, encoding="utf-8")
    return run_scenario(
        folder, str(folder / "Readers.toml"), f"best-circuit(by={by}, circuits=3)", 40
    )


def best(value: str, among: Lives) -> str:
    return min(among, key=lambda circuit: float(getattr(among[circuit], value)))


@pytest.mark.experiment
def test_tor_puts_streams_on_the_circuit_with_the_lowest_round_trip(tmp_path: Path) -> None:
    """Without congestion control that of the last handshake counts, as `"build"` has it."""
    run = carried_out(tmp_path, "round-trip")
    made = list(choices(run))
    assert [circuit for circuit, _ in made] == [best("last_handshake_s", one) for _, one in made]
    others = [circuit for circuit, among in made if circuit != min(among, key=int)]
    assert len(made) > 24 and len(others) > len(made) / 4
    of_clients = run.summary.circuits_of_clients
    assert of_clients and of_clients.build_time_ms
    assert (of_clients.build_time_ms.mean or 0) > 100, "some are built while there is traffic"


@pytest.mark.experiment
def test_tor_puts_streams_on_the_circuit_that_was_built_fastest(tmp_path: Path) -> None:
    """As the policy does, among circuits that didn't wait for the connection to their guard.

    If one did, its time by Tor's clock is between the least and the policy's.
    """
    made = list(choices(carried_out(tmp_path, "build-time")))
    for circuit, among in made:
        assert among[circuit].least_build_s <= min(one.build_s for one in among.values())
    known = [
        (circuit, {name: life for name, life in among.items() if not life.waited})
        for circuit, among in made
    ]
    alike = [one for one in known if one[0] in one[1]]
    assert [circuit for circuit, _ in alike] == [best("build_s", one) for _, one in alike]
    others = [circuit for circuit, among in alike if circuit != min(among, key=int)]
    assert len(made) > 24 and len(alike) > 12 and len(others) > len(alike) / 4


def test_the_variant_sets_only_clients_options() -> None:
    plan = make_plan("SmallNetwork", "best-circuit(by=round-trip)")
    assert plan.tor.torrc_client["CircuitStreamRule"] == ["round-trip"]
    vanilla = make_plan("SmallNetwork", "vanilla")
    assert plan.tor.torrc_all == vanilla.tor.torrc_all
    assert plan.tor.torrc_relay == vanilla.tor.torrc_relay
    assert plan.policy.is_tors


@pytest.mark.parametrize(
    ("scenario", "variant", "changes", "message"),
    [
        ("SmallNetwork", "best-circuit(by=luck)", {}, "CircuitStreamRule can't be luck"),
        ("SmallNetwork", "best-circuit(circuits=15)", {}, "ForPredictedPorts can't be 15"),
        ("NoDropping", "best-circuit", {}, r'paths.policy = "fixed" does that: take "tor"'),
        ("SmallNetwork", "best-circuit", {"paths.policy": "rtt"}, r'"rtt" does that: take "tor"'),
    ],
)
def test_bad_input(scenario: str, variant: str, changes: dict[str, Value], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(scenario, variant, changes=changes)
    assert "\n" not in str(caught.value)
