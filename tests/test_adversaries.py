"""What adversaries see of streams, on cases that can be worked out by hand."""

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars
import pytest

from analysis.adversaries import (
    Stream,
    chance_of_any,
    clients_over_time,
    entropy_bit,
    seen,
    share_of_clients,
    share_of_one_country,
    share_of_streams,
    share_seen,
)
from analysis.runs import Found, Group
from analysis.tables.adversaries import table
from testbed.asked.plans import make_plan
from testbed.plan.malicious import malicious_relays
from testbed.plan.model import Plan
from testbed.results import Run


@dataclass(frozen=True, eq=False)
class Made:
    """A run of SmallNetwork, with streams of two clients."""

    directory: Path = Path("run")
    plan: Plan = field(default_factory=lambda: make_plan("SmallNetwork", "vanilla"))
    is_whole: bool = True

    @property
    def streams(self) -> polars.DataFrame:
        """Two streams that count; then a probe, a policy's probe, and one that failed."""
        guard, last = (
            next(one.name for one in self.plan.of_kind("relay") if flag in one.flags)
            for flag in ("guard", "exit")
        )
        path = f"{guard},relay0,{last}"
        rows = [
            ("client1", "1", "SUCCEEDED", "10.4.3.1:8888"),
            ("client2", "1", "SUCCEEDED", "10.4.3.1:8888"),
            ("client1", "2", "SUCCEEDED", "10.4.3.1:9"),
            ("client1", "3", "SUCCEEDED", "192.0.2.1:9"),
            ("client1", "4", "FAILED", "10.4.3.1:8888"),
        ]
        names = ("client", "stream", "status", "target")
        return polars.DataFrame(
            [dict(zip(names, row, strict=True)) | {"path": path} for row in rows]
        )


def test_the_table_has_a_row_for_each_variant() -> None:
    run = cast(Run, Made())
    group = Group("vanilla", "SmallNetwork", "page", 60.0)
    (row,) = table(Found(valid={group: [run]}, left_out=())).rows
    assert row[:4] == ("SmallNetwork", "vanilla", "1", "2")
    found = seen(run)
    assert found is not None
    assert (found.streams, found.guards_bit, found.circuits_bit) == (2, 0, 0)
    assert found.clients == pytest.approx(0.01)
    assert len(found.draws) == 10


PAIRS = {("g1", "e1"): 3, ("g1", "e2"): 1, ("g2", "e1"): 4}


def chances(guards: int, exits: int, malicious: float) -> dict[tuple[bool, ...], float]:
    """The chance of each choice of malicious relays."""
    found = {}
    for chosen in product((False, True), repeat=guards + exits):
        number = sum(chosen)
        found[chosen] = malicious**number * (1 - malicious) ** (guards + exits - number)
    return found


def test_the_expected_share_is_that_of_all_choices_of_relays() -> None:
    """Two guards and two exits are malicious in 16 ways."""
    mean = squared = any_of_them = 0.0
    for (g1, g2, e1, e2), chance in chances(2, 2, 0.1).items():
        share = (3 * (g1 and e1) + 1 * (g1 and e2) + 4 * (g2 and e1)) / 8
        mean += chance * share
        squared += chance * share**2
        any_of_them += chance * (share > 0)
    expected, deviation = share_of_streams(PAIRS, 0.1)
    assert expected == pytest.approx(mean)
    assert expected == pytest.approx(0.01)
    assert deviation == pytest.approx((squared - mean**2) ** 0.5)
    assert chance_of_any(PAIRS, 0.1) == pytest.approx(any_of_them)


def test_a_client_with_more_exits_is_likelier_to_be_seen_once() -> None:
    one, two = {("g1", "e1")}, {("g1", "e1"), ("g1", "e2")}
    assert chance_of_any(one, 0.1) == pytest.approx(0.01)
    assert chance_of_any(two, 0.1) == pytest.approx(0.1 * (1 - 0.9**2))
    streams = [Stream("client1", ("g1", "m", "e1"), "s"), Stream("client2", ("g1", "m", "e1"), "s")]
    both = [*streams, Stream("client2", ("g1", "m", "e2"), "s")]
    assert share_of_clients(both, 0.1) == pytest.approx((0.01 + 0.019) / 2)


def test_clients_over_the_length_of_a_run() -> None:
    """Of two clients one has a second exit from the third quarter on, the other never a stream."""
    paths = {"g1,m,e1": 10.0, "g1,m,e2": 60.0, "g1,n,e1": 101.0}
    alike = {"client": "client1", "status": "SUCCEEDED", "target": "10.4.3.1:8888"}
    rows = [
        {**alike, "stream": path, "path": path, "time_s": 1000 + at} for path, at in paths.items()
    ]
    plan = SimpleNamespace(
        warm_up_s=20, traffic_s=100, clients=["client1", "client2"], server_of=lambda _: "server1"
    )
    run = SimpleNamespace(measuring_start_s=1020, plan=plan, streams=polars.DataFrame(rows))
    once, twice = 0.01 / 2, 0.1 * (1 - 0.9**2) / 2
    assert clients_over_time(cast(Run, run)) == pytest.approx([once, once, twice, twice])
    none = SimpleNamespace(**{**vars(run), "streams": polars.DataFrame(rows).clear()})
    assert clients_over_time(cast(Run, none), 2) == [0, 0]


def test_too_many_relays_on_both_sides() -> None:
    assert chance_of_any({(f"g{number}", f"e{number}") for number in range(17)}) is None
    assert chance_of_any({("g1", f"e{number}") for number in range(99)}, 1.0) == 1


def test_a_draw_takes_a_tenth_of_the_weight_or_just_above() -> None:
    weights = {f"relay{number}": 1 for number in range(100)}
    draws = [malicious_relays(weights, 0.1, 1, "guard", str(number)) for number in range(20)]
    assert {len(draw) for draw in draws} == {10}
    assert len({frozenset(draw) for draw in draws}) == 20, "each draw is another one"
    assert malicious_relays(weights, 0.1, 1, "guard", "1") == draws[1]
    assert len(malicious_relays({"relay1": 5, "relay2": 5}, 0.1, 1)) == 1
    assert not malicious_relays(weights, 0.0, 1)


def test_the_share_of_a_draw() -> None:
    assert share_seen(PAIRS, {"g1"}, {"e1", "e2"}) == 4 / 8
    assert share_seen(PAIRS, {"g2"}, {"e2"}) == 0


def test_one_country_at_both_ends() -> None:
    countries = {"c": "de", "g": "fr", "m": "de", "e": "us", "s": "fr"}
    streams = [Stream("c", ("g", "m", "e"), "s"), Stream("c", ("g", "m", "e"), "elsewhere")]
    assert share_of_one_country(streams, countries) == 0.5  # guard and server of the first
    assert share_of_one_country(streams, {}) is None


def test_entropy() -> None:
    assert entropy_bit({"a": 5, "b": 5}) == 1
    assert entropy_bit({"a": 7}) == 0
    assert entropy_bit({"a": 2, "b": 1, "c": 1}) == 1.5
