"""Relays' work on a host: its costs fitted, its calls counted, and what scenarios make of them."""

import os
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from shown_elsewhere import lines_of

from commands import calibrate
from commands.__main__ import main
from testbed.asked.plans import make_plan
from testbed.asked.this_host import keep_costs
from testbed.basics.errors import InputError, TestbedError
from testbed.plan.processor import Processor
from testbed.runs import relay_work
from testbed.runs.relay_costs import CARRY, EXTEND, HANDSHAKE, RelayCosts, Watched, fitted

BYTE_NS, CALL_NS, IDLE_NS_PER_S = 5, 10_000, 2_000_000


def carried(role: str, megabytes: int, calls: int, factor: float = 1.0, limit: int = 0) -> Watched:
    """A second of a relay whose time follows from the costs above, but for a factor."""
    time_ns = megabytes * 10**6 * BYTE_NS + calls * CALL_NS + IDLE_NS_PER_S
    read_bytes = megabytes * 10**6
    return Watched(role, CARRY, 10**9, round(factor * time_ns), 0, read_bytes, calls, limit)


LOADS = [
    *(carried("guard", megabytes, 1200 * megabytes) for megabytes in (1, 2, 5)),
    *(carried("middle", megabytes, 600 * megabytes) for megabytes in (4, 8, 20)),
    *(carried("exit", megabytes, 300 * megabytes) for megabytes in (4, 8, 20)),
]
CIRCUITS = Watched("exit", EXTEND, 10**9, 5 * 10**6, 60 * 10**6, 0, 0, events=400)
# 400 handshakes of 1 ms, and 1000 calls.
HANDSHAKES = Watched("middle", HANDSHAKE, 10**9, 412 * 10**6, 0, 0, 1000, events=400)


def test_the_fit_finds_the_costs() -> None:
    costs = fitted([*LOADS, CIRCUITS, HANDSHAKES])
    assert costs.byte_ns == pytest.approx(BYTE_NS, rel=1e-3)
    assert costs.call_ns == pytest.approx(CALL_NS, rel=1e-3)
    assert costs.idle_ns_per_s == pytest.approx(IDLE_NS_PER_S, rel=1e-2)
    assert costs.onionskin_ns == 150_000
    assert costs.connection_ns == pytest.approx(1_000_000, rel=1e-3)
    assert list(costs.errors_percent) == ["guard", "middle", "exit"]
    assert all(abs(errors[0]) < 0.1 for errors in costs.errors_percent.values())


def test_the_busiest_windows_count_most() -> None:
    """Little work takes longer a byte, which is an error of that window and changes little."""
    costs = fitted([*LOADS, carried("guard", 1, 1200, factor=2.0, limit=32), CIRCUITS, HANDSHAKES])
    assert costs.byte_ns == pytest.approx(BYTE_NS, rel=0.1)
    assert costs.call_ns == pytest.approx(CALL_NS, rel=0.1)
    assert costs.errors_percent["guard"][32] == pytest.approx(-50, abs=10)


def test_a_time_without_bytes_is_no_fit() -> None:
    only_calls = [Watched("guard", CARRY, 10**9, n * 10**6, 0, 10**6, n) for n in (10, 20, 40)]
    with pytest.raises(TestbedError, match="doesn't grow with its bytes"):
        fitted([*only_calls, CIRCUITS, HANDSHAKES])


KEYS = {"read": "1600 Mbit/s", "per_call": "10000 ns", "per_onionskin": "150000 ns"}


def test_the_keys_are_a_scenarios() -> None:
    costs = RelayCosts(BYTE_NS, CALL_NS, IDLE_NS_PER_S, 0.0, 150_000, {})
    assert costs.keys == KEYS, "what costs nothing isn't among them"


def test_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYDRA_CACHE", str(tmp_path))
    changes = {"nodes.middle1.processor": "this host"}
    with pytest.raises(InputError, match=r"nodes\.middle1\.processor .*calibrate --processor"):
        make_plan("NoDropping", "vanilla", changes=changes)
    keep_costs(KEYS)
    plan = make_plan("NoDropping", "vanilla", changes=changes)
    assert plan.processors == {
        "middle1": Processor(read_ps_per_byte=5_000, call_ns=10_000, onionskin_ns=150_000)
    }


COUNTED = """
import os, socket
listening = socket.create_server(("127.0.0.1", 0))
sending = socket.create_connection(listening.getsockname())
receiving, _ = listening.accept()
os.write(sending.fileno(), b"x" * 100)
sending.send(b"x" * 23)
os.read(receiving.fileno(), 100)
receiving.recv(100)
receiving.setblocking(False)
try:
    receiving.recv(1)  # finds nothing
except BlockingIOError:
    pass
reading, writing = os.pipe()
os.write(writing, b"not TCP")
print(os.getpid())
"""


def test_only_calls_that_move_bytes_through_tcp_are_counted(tmp_path: Path) -> None:
    variables = relay_work.counting_calls(tmp_path)
    command = [sys.executable, "-c", COUNTED]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=True
    )
    counted = (tmp_path / done.stdout.strip()).read_bytes()
    assert struct.unpack("@QQQ", counted) == (4, 123, 123)


@pytest.mark.experiment
def test_what_the_document_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: list[dict[str, str]] = []
    monkeypatch.setattr(calibrate, "keep_costs", kept.append)
    monkeypatch.setattr(relay_work, "WINDOW_S", 1.0)
    (line,) = lines_of("test_relay_costs.py::test_what_the_document_shows")
    assert main(shlex.split(line)[1:]) == 0
    (costs,) = kept
    assert set(costs) >= {"read", "per_connection", "per_onionskin"}
    assert f'read = "{costs["read"]}"' in capsys.readouterr().out
