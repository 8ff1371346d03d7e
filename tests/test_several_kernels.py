"""Several real kernels under one clock: the same bytes on one core and two, and exact delays."""

import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from waiting import END_WITHIN_S, STARTED_WITHIN_S, lives, wait_for

from testbed.basics.errors import TestbedError
from testbed.machines.shared_clock import CrossLink, Meetings, shared_clock
from testbed.machines.together import Guest, run_together
from testbed.machines.virtual import VirtualMachine
from testbed.setup.ready import ensure_ready

DELAY_NS = 5_000_000
ROUND_TRIPS = 10
STREAM_BYTES = 400_000

RING = """
import hashlib, os, socket, subprocess, sys, threading, time

me, kernels, round_trips, size = map(int, sys.argv[1:])
before = (me - 1) % kernels
now = time.monotonic_ns


def configure(name, address):
    subprocess.run(["ip", "addr", "add", address, "dev", name], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)


configure(f"xl{me}", f"10.0.{me}.1/24")
configure(f"xl{before}", f"10.0.{before}.2/24")
listening = socket.create_server((f"10.0.{before}.2", 9))
echoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echoing.bind((f"10.0.{before}.2", 7))
rows = {"echo": [], "receive": [], "send": [["random", os.urandom(8).hex()]]}


def echo():
    for _ in range(round_trips):
        data, peer = echoing.recvfrom(2000)
        echoing.sendto(data, peer)
        rows["echo"].append([now(), peer])


def receive():
    connection, peer = listening.accept()
    seen = hashlib.sha256()
    while data := connection.recv(65536):
        seen.update(data)
        rows["receive"].append([now(), len(data)])
    rows["receive"].append([peer, seen.hexdigest()])


def send():
    time.sleep(0.1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((f"10.0.{me}.2", 7))
        for number in range(round_trips):
            begin = now()
            asking.send(bytes(100 * number))
            asking.recv(2000)
            print("round trip", now() - begin, flush=True)
            time.sleep(0.001 * number)
    with socket.create_connection((f"10.0.{me}.2", 9)) as connection:
        for _ in range(size // 10_000):
            connection.sendall(os.urandom(10_000))
            hashlib.pbkdf2_hmac("sha256", b"work", b"", 500)
            rows["send"].append(now())


threads = [threading.Thread(target=act) for act in (echo, receive, send)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("rows", hashlib.sha256(repr(rows).encode()).hexdigest(), now(), flush=True)
"""
"""Each kernel sends to the next one and receives from the one before it, both at once. It says how
long round trips took, and a hash of all that it has seen and when."""


def ring(kernels: int) -> list[CrossLink]:
    """Links from each kernel to the next one, all with the same delay, so that arrivals tie."""
    return [CrossLink((one, (one + 1) % kernels), (DELAY_NS, DELAY_NS)) for one in range(kernels)]


def run(
    folder: Path,
    program: str,
    arguments: Sequence[Sequence[float]],
    links: Sequence[CrossLink],
    cores: int = 2,
    ring_mb: int | None = None,
) -> tuple[list[str], Meetings]:
    """Run a program in kernels under one clock, and return their outputs and their meetings."""
    folder.mkdir()
    kernel = ensure_ready(Console(stderr=True), []).kernel.product("linux")
    with shared_clock(len(arguments), links, ring_mb and ring_mb << 20) as clock:
        guests = []
        for number, words in enumerate(arguments):
            staging = folder / f"kernel-{number}"
            staging.mkdir()
            (staging / "program.py").write_text(program)
            command = [sys.executable, "/run/testbed/run/program.py", *map(str, words)]
            share = clock.of(number)
            machine = VirtualMachine(kernel, 128, entropy_seed=number + 1, clock=share)
            guests.append(Guest(machine, command, staging, {"PATH": "/usr/sbin:/usr/bin"}))
        run_together(guests, on_step=lambda _kernel, _step: None, most_cores=cores)
        logs = [(guest.staging / "logs" / "kernel.log").read_text() for guest in guests]
        return logs, clock.meetings()


def run_ring(folder: Path, kernels: int, cores: int) -> tuple[list[str], Meetings]:
    arguments = [[me, kernels, ROUND_TRIPS, STREAM_BYTES] for me in range(kernels)]
    return run(folder, RING, arguments, ring(kernels), cores)


@pytest.mark.experiment
@pytest.mark.parametrize("kernels", [2, 4])
def test_a_ring_has_the_same_bytes_on_one_core_and_two(tmp_path: Path, kernels: int) -> None:
    logs, met = run_ring(tmp_path / "two", kernels, cores=2)
    again, met_again = run_ring(tmp_path / "one", kernels, cores=1)
    assert logs == again
    assert (met.meetings, met.windows) == (met_again.meetings, met_again.windows)
    for log in logs:
        took_ns = [int(word) for word in re.findall(r"round trip (\d+)", log)]
        assert len(took_ns) == ROUND_TRIPS
        # The first one asks by ARP before. Two readings of the clock take some 0.3 us.
        assert 4 * DELAY_NS <= took_ns[0] < 4 * DELAY_NS + 1000
        assert all(2 * DELAY_NS <= each < 2 * DELAY_NS + 1000 for each in took_ns[1:])
    assert len({re.findall("rows .*", log)[0] for log in logs}) == kernels


BUSY = """
import time
print("busy", flush=True)
while True:
    sum(range(100_000))
    time.sleep(0.01)
"""


@pytest.mark.experiment
def test_a_killed_kernel_ends_all_with_its_words(tmp_path: Path) -> None:
    def kernels() -> list[psutil.Process]:
        """Both, in their order."""
        found = psutil.Process().children(recursive=True)
        return [
            one
            for number in range(2)
            for one in found
            if one.name() == "linux" and f"ttwin={number}:" in " ".join(one.cmdline())
        ]

    seen: list[psutil.Process] = []

    def kill_the_second() -> None:
        logs = [tmp_path / "killed" / f"kernel-{number}/logs/kernel.log" for number in range(2)]
        wait_for(
            lambda: all(log.exists() and "busy" in log.read_text() for log in logs),
            "both programs",
            STARTED_WITHIN_S,
        )
        seen.extend(psutil.Process().children(recursive=True))
        os.kill(kernels()[1].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_second)
    killer.start()
    with pytest.raises(TestbedError, match=r"^kernel 2 of 2: .* was killed by SIGKILL"):
        run(tmp_path / "killed", BUSY, [[], []], ring(2))
    killer.join()
    wait_for(lambda: not any(map(lives, seen)), "the end of all", END_WITHIN_S)


FLOOD = """
import socket, subprocess, sys, time
packets, pause_s, begin_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
if packets:
    subprocess.run(["ip", "addr", "add", "10.0.0.1/24", "dev", "xl0"], check=True)
    subprocess.run(["ip", "link", "set", "xl0", "up"], check=True)
    there = ["10.0.0.2", "lladdr", "02:00:00:00:00:02", "dev", "xl0"]
    subprocess.run(["ip", "neigh", "add", *there], check=True)
time.sleep(begin_s)
if packets:
    sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(packets):
        sending.sendto(bytes(1400), ("10.0.0.2", 9))
        if pause_s:
            time.sleep(pause_s)
print("sent", packets)
"""


@pytest.mark.experiment
def test_more_than_a_ring_holds_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="ttlink: more than 1 MB are under way to kernel 2"):
        run(tmp_path / "flood", FLOOD, [[900, 0, 0.1], [0, 0, 1]], ring(2)[:1], ring_mb=1)


@pytest.mark.experiment
def test_a_kernel_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    arguments: list[list[float]] = [[2000, 0.001, 1], [0, 0, 0]]
    logs, met = run(tmp_path / "leaving", FLOOD, arguments, ring(2)[:1], ring_mb=1)
    assert ["sent 2000" in log for log in logs] == [True, False]
    assert met.windows[0] > met.windows[1] + 100


SHAPED = """
import socket, subprocess, sys, time
me, size = int(sys.argv[1]), int(sys.argv[2])
now = time.monotonic_ns
lines = [
    f"ip addr add 10.0.0.{me + 1}/24 dev xl0",
    f"ip link set xl0 address 02:00:00:00:00:0{me + 1} {'gso_max_segs 1' if me == 0 else ''} up",
    f"ip neigh add 10.0.0.{2 - me} lladdr 02:00:00:00:00:0{2 - me} dev xl0",
    "tc qdisc add dev xl0 root handle 1: htb default 1",
    "tc class add dev xl0 parent 1: classid 1:1 htb rate 10mbit burst 1514 cburst 1514",
    "tc qdisc add dev xl0 parent 1:1 handle 10: netem delay 3ms limit 1000",
]
for line in lines:
    subprocess.run(line.split(), check=True)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((f"10.0.0.{me + 1}", 7))
listening = socket.create_server((f"10.0.0.{me + 1}", 9))
if me == 1:
    for number in range(1 + 50):
        data, peer = datagrams.recvfrom(2000)
        if number == 0:
            datagrams.sendto(data, peer)
            begin = now()
        if number == 1:
            first = now()
    print("fifty", now() - first)
    connection, _ = listening.accept()
    left = 0
    while data := connection.recv(65536):
        left += len(data)
    connection.close()
else:
    time.sleep(0.1)
    begin = now()
    datagrams.sendto(b"?", ("10.0.0.2", 7))
    datagrams.recv(2000)
    print("round trip", now() - begin)
    for _ in range(50):
        datagrams.sendto(bytes(1472), ("10.0.0.2", 7))
    with socket.create_connection(("10.0.0.2", 9)) as connection:
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
received = open("/sys/class/net/xl0/statistics/rx_packets").read()
print("received", int(received), flush=True)
time.sleep(0.5)  # its last packets are under way
"""


@pytest.mark.experiment
def test_links_between_kernels_are_shaped_as_others(tmp_path: Path) -> None:
    size = 300_000
    (asking, answering), _ = run(tmp_path / "shaped", SHAPED, [[0, size], [1, size]], ring(2)[:1])
    (round_trip_ns,) = (int(word) for word in re.findall(r"round trip (\d+)", asking))
    expected_ns = 2 * (DELAY_NS + 3_000_000)
    assert expected_ns <= round_trip_ns < expected_ns + 100_000
    # Fifty frames of 1514 bytes at 10 Mbit/s. The first two pass back to back (links.BURST_BYTES).
    (fifty_ns,) = (int(word) for word in re.findall(r"fifty (\d+)", answering))
    assert fifty_ns == pytest.approx(48 * 1514 * 8 * 100, rel=0.001)
    # Single segments, as the sender's interface sends no bundles.
    (received,) = (int(word) for word in re.findall(r"received (\d+)", answering))
    assert received >= size / 1448
