"""How long arriving segments are held for the next one, with and without traffic elsewhere."""

import json
from pathlib import Path

import pytest
from machine import run_inside

pytestmark = pytest.mark.experiment

MESSAGES = """
import json, socket, threading, time
from pathlib import Path
from testbed.asked.plans import make_plan
from testbed.basics.seeds import derived_seed
from testbed.inside.lab.network import running_lab

COUNT = 400
WARM_UP = 400  # until the congestion window never splits a message at its sender
SEGMENTS = 4
LINK = {"rate": "200 Mbit/s", "delay": "1 ms"}


def connected(lab, first, second):
    # A message that is sent as a millisecond ends has two timestamps, and arrives in two parts.
    for node in (first, second):
        lab.inside(node, lambda: Path("/proc/sys/net/ipv4/tcp_timestamps").write_text("0"))
    address = lab.plan.node(second).address
    listening = lab.inside(second, lambda: socket.create_server((address, 9)))
    receiving = []
    accept = threading.Thread(target=lambda: receiving.append(listening.accept()[0]))
    accept.start()
    sending = lab.inside(first, lambda: socket.create_connection((address, 9)))
    accept.join()
    sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sending, receiving[0]


def message(sending):
    return bytes(SEGMENTS * sending.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))


def pause_s(name, number):
    return (200 + derived_seed(1, name, str(number)) % 500) / 1e6


def send(sending, name, count, ended=None):
    for number in range(count):
        sending.sendall(message(sending))
        time.sleep(pause_s(name, number))
        if ended and ended.is_set():
            break


def split(lab):
    sending, receiving = connected(lab, "guard1", "middle1")
    length = len(message(sending))
    warm_up = threading.Thread(target=send, args=(sending, "warm-up", WARM_UP))
    warm_up.start()
    read = 0
    while read < WARM_UP * length:
        read += len(receiving.recv(2**20))
    warm_up.join()
    thread = threading.Thread(target=send, args=(sending, "messages", COUNT))
    thread.start()
    parts = 0
    read = 0
    while read < COUNT * length:
        read += len(receiving.recv(2**20))
        parts += read % length != 0
    thread.join()
    return parts


def discard(receiving):
    while receiving.recv(2**20):
        pass


for variant in ("vanilla", "pctcp"):
    # A full segment takes 61 us, and two may pass at once: the last one comes 121 to 182 us after
    # the first, within the hold of 200 us.
    changes = {f"links.guard-middle.{key}": value for key, value in LINK.items()}
    plan = make_plan("TwoPaths", variant, changes=changes)
    with running_lab(plan) as lab:
        alone = split(lab)
        sending, receiving = connected(lab, "guard2", "middle2")
        ended = threading.Event()
        threading.Thread(target=discard, args=(receiving,)).start()
        other = threading.Thread(target=send, args=(sending, "others", 10**6, ended))
        other.start()
        time.sleep(0.05)
        beside = split(lab)
        ended.set()
        other.join()
        sending.close()
        print("split", json.dumps({variant: [alone, beside]}))
"""


def test_traffic_elsewhere_splits_no_message(tmp_path: Path) -> None:
    """Four full segments, the last of which comes 0.12 to 0.18 ms after the first: read as one.

    The hold was one for all that came out of ESP, so traffic between two other relays ended it at
    any time. And it went on from a segment that had been delivered early, so that the next one was
    held for what was left of it.
    """
    lines = run_inside(MESSAGES, tmp_path / "machine").splitlines()
    told = [json.loads(line.removeprefix("split ")) for line in lines if line.startswith("split ")]
    assert told == [{"vanilla": [0, 0]}, {"pctcp": [0, 0]}]
