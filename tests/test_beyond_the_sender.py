"""Whether a sender's TCP sees what waits in a link's queue."""

import json
from pathlib import Path

import pytest
from machine import run_inside

pytestmark = pytest.mark.experiment

QUEUED = """
import json, socket, threading, time
from testbed.asked.plans import make_plan
from testbed.inside.lab.network import running_lab

LINK = {"rate": "20 Mbit/s", "delay": "0 ms"}
COUNTERS = ("TCPSpuriousRtxHostQueues", "TCPLossProbes")


def connected(lab):
    address = lab.plan.node("middle1").address
    listening = lab.inside("middle1", lambda: socket.create_server((address, 9)))
    sending = lab.inside("guard1", lambda: socket.create_connection((address, 9)))
    receiving, _ = listening.accept()
    listening.close()
    sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sending, receiving


def discard(receiving):
    while receiving.recv(2**20):
        pass


def counted(lab):
    names, values = [
        line.split()
        for line in lab.run("guard1", ["cat", "/proc/net/netstat"]).splitlines()
        if line.startswith("TcpExt:")
    ]
    return {name: int(values[names.index(name)]) for name in COUNTERS}


changes = {f"links.guard-middle.{key}": value for key, value in LINK.items()}
with running_lab(make_plan("TwoPaths", "vanilla", changes=changes)) as lab:
    # One stream has learnt the round trip of an idle link; then another fills the queue.
    small, reading = connected(lab)
    for _ in range(20):
        small.sendall(bytes(1000))
        reading.recv(2**20)
        time.sleep(0.01)
    streams = [connected(lab) for _ in range(4)]
    for large, discarding in streams:
        threading.Thread(target=discard, args=(discarding,)).start()
        threading.Thread(target=large.sendall, args=(bytes(10**6),)).start()
    time.sleep(0.5)
    before = counted(lab)
    start_s = time.monotonic()
    for _ in range(2):
        small.sendall(bytes(1000))
    reading.recv(2**20)
    waited_s = time.monotonic() - start_s
    after = counted(lab)
    time.sleep(2)
    for large, _ in streams:
        large.close()
    told = {name: after[name] - before[name] for name in COUNTERS} | {"waited": waited_s}
    print("queued", json.dumps(told))
"""


def test_a_sender_probes_for_a_tail_that_waits_in_the_network(tmp_path: Path) -> None:
    """A segment waits longer in a link's queue than its stream's round trip on the idle link.

    TCP then probes for a lost tail (RFC 8985), unless it sees the segment in its own host's queue.
    """
    lines = run_inside(QUEUED, tmp_path / "machine").splitlines()
    (line,) = (line for line in lines if line.startswith("queued "))
    told = json.loads(line.removeprefix("queued "))
    assert told["waited"] > 0.05
    assert told["TCPSpuriousRtxHostQueues"] == 0
    assert told["TCPLossProbes"] > 0
