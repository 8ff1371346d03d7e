"""How the bench reads strace's tables; test_shown_commands carries it out."""

from pathlib import Path

import pytest
from rich.console import Console

from commands.bench import _commonest, _print_network
from testbed.asked.plans import make_plan
from testbed.inside.over_links import a_circuit
from testbed.runs.bench import _calls
from testbed.runs.bench_network import NetworkCost

TABLE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.010000           2      3900       100 read
 40.00    0.010000           1      6192           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.020000           1     10092       100 total
"""


def test_calls_are_added_up_by_program_and_role(tmp_path: Path) -> None:
    for name in ("tor-guard1", "tor-guard2", "tgen-client1"):
        (tmp_path / f"strace-{name}.log").write_text(TABLE)
    calls = _calls(tmp_path)
    assert calls["tor, guard"] == {"read": 7800, "epoll_wait": 12384}
    assert calls["tgen, client"] == {"read": 3900, "epoll_wait": 6192}


def test_the_commonest_kinds_come_first() -> None:
    calls = {"a": {"read": 1.0, "write": 5.0}, "b": {"read": 7.0, "close": 0.5}}
    assert _commonest(calls) == ["read", "write", "close"]


def test_links_are_measured_on_the_way_of_a_circuit() -> None:
    assert a_circuit(make_plan("One", "vanilla")) == (
        *("server1", "exit1", "middle1", "guard1", "client1"),
    )
    plan = make_plan("SmallNetwork", "vanilla")
    server, last, middle, guard, client = a_circuit(plan)
    assert (server, client) == (plan.server_of("client1"), "client1")
    assert "exit" in plan.node(last).flags
    assert "guard" in plan.node(guard).flags
    assert len({last, middle, guard}) == 3


def test_a_network_is_shown_with_its_wake_ups(capsys: pytest.CaptureFixture[str]) -> None:
    cost = NetworkCost(
        *("One", "vanilla", 8, 7, 200, 4.0, 3.0, 0.1, 0.08),
        {"client": 1.538, "relay": 1.841},
        *(0.021, 9.0, 10.0, 5.0, 60.0),
    )
    _print_network(Console(width=100), cost)
    shown = capsys.readouterr().out
    assert "wake-ups of a Tor in an idle second: client, relay" in shown
    assert "1.54, 1.84" in shown
    assert "0.021" in shown
    assert "0.100" in shown
