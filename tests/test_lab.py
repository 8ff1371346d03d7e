"""The lab in the virtual machine: reachability, and the settings of links.

Rates, delays and losses are measured in test_calibration.
"""

from pathlib import Path

import pytest
from machine import run_inside

pytestmark = pytest.mark.experiment

REACH = """
import errno, socket
from pyroute2 import IPRoute
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

# Two addresses reserved for documentation (RFC 5737).
OUTSIDE = [("192.0.2.1", 443), ("198.51.100.1", 80)]

def attempt(address):
    with socket.socket() as connection:
        connection.settimeout(5)
        try:
            connection.connect(address)
        except OSError as error:
            return errno.errorcode.get(error.errno, "timeout")
    return "connected"

plan = make_plan("SharedDropping", "vanilla")
# One node's congestion control differs from the kernel's default, so a misplaced setting shows.
own = plan.congestion_control | {"guard2": "reno"}
plan = plan.model_copy(update={"congestion_control": own})
with running_lab(plan) as lab:
    for node in plan.nodes:
        for address in OUTSIDE:
            print("outside", node.name, lab.inside(node.name, lambda: attempt(address)))
    # Neighbours are reachable: a closed port refuses the connection.
    for first, second in (link.ends for link in plan.links):
        there = (plan.node(second).address, 1)
        print("inside", first, second, lab.inside(first, lambda: attempt(there)))
    # A client reaches its own guard and no other relay.
    far = (plan.node("exit1").address, 1)
    print("far", lab.inside("client1", lambda: attempt(far)))
    for node in plan.nodes:
        setting = lab.inside(
            node.name, lambda: open("/proc/sys/net/ipv4/tcp_congestion_control").read().strip())
        print("tcp", node.name, setting)
    for direction in lab.directions:
        name = direction.interface
        links = lab.answer(
            direction.sender, IPRoute, lambda netlink: list(netlink.get_links(ifname=name)))
        print("gso", name, links[0].get_attr("IFLA_GSO_MAX_SEGS"))
"""

THREADS = """
import threading
from contextlib import ExitStack
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

def packets(lab):
    return [lab.counters(direction).sent_packets for direction in lab.directions]

with running_lab(make_plan("SharedDropping", "vanilla")) as lab, ExitStack() as files:
    lab.run("client1", ["ping", "-c", "3", "-i", "0.01", str(lab.plan.node("guard1").address)])
    told = [packets(lab)]
    for _ in range(3):
        # One for each direction, so an old descriptor's number belongs to another file.
        for _ in lab.directions:
            files.enter_context(open("/dev/null"))
        thread = threading.Thread(target=lambda: told.append(packets(lab)))
        thread.start()
        thread.join()
    told.append(packets(lab))
    print("told", len(told), [sum(each) for each in told], all(each == told[0] for each in told))
"""


ARRIVALS = """
import struct, subprocess, time
from pathlib import Path
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

plan = make_plan("SmallNetwork", "vanilla")
with running_lab(plan) as lab:
    server, (relay, *_) = plan.of_kind("server")[0], plan.of_kind("relay")
    interface = lab.path(server.name, relay.name)[-1].receiving_interface
    listening = lab.start(relay.name, ["iperf3", "-s", "-1"])
    lab.wait_for_server(relay.name, 5201)
    see = ["tcpdump", "-i", interface, "-Q", "in", "-s", "60", "-Z", "root", "-w", "-", "tcp"]
    with Path("/run/arrivals").open("wb") as output:
        seeing = lab.start(relay.name, see, output=output, errors=subprocess.DEVNULL)
    time.sleep(1)
    lab.run(server.name, ["iperf3", "-c", relay.address, "-t", "1"])
    time.sleep(2)
    for process in (seeing, listening):
        process.terminate()
        process.wait()
packets, at, lengths = Path("/run/arrivals").read_bytes(), 24, []
while at < len(packets):
    kept, length = struct.unpack_from("<II", packets, at + 8)
    lengths.append(length)
    at += 16 + kept
print("arrived", len(lengths), max(lengths))
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    output = run_inside(REACH, tmp_path_factory.mktemp("lab") / "machine")
    return [line.split() for line in output.splitlines()]


def kind(lines: list[list[str]], name: str) -> list[list[str]]:
    return [words[1:] for words in lines if words and words[0] == name]


def test_no_node_reaches_the_outside(lines: list[list[str]]) -> None:
    attempts = kind(lines, "outside")
    assert len({words[0] for words in attempts}) == 16
    assert {words[1] for words in attempts} == {"ENETUNREACH"}


def test_neighbours_reach_each_other(lines: list[list[str]]) -> None:
    attempts = kind(lines, "inside")
    assert len(attempts) == 14
    assert {words[2] for words in attempts} == {"ECONNREFUSED"}


def test_a_node_reaches_only_its_neighbours(lines: list[list[str]]) -> None:
    assert kind(lines, "far") == [["ENETUNREACH"]]


def test_the_congestion_control_is_the_scenarios(lines: list[list[str]]) -> None:
    settings = {node: setting for node, setting in kind(lines, "tcp")}
    assert settings.pop("guard2") == "reno"
    assert len(settings) == 15
    assert set(settings.values()) == {"cubic"}


def test_no_interface_is_given_bundles_of_segments(lines: list[list[str]]) -> None:
    settings = kind(lines, "gso")
    assert len(settings) == 28
    assert {words[1] for words in settings} == {"1"}


def test_segments_arrive_together_behind_a_router_too(tmp_path: Path) -> None:
    output = run_inside(ARRIVALS, tmp_path / "machine")
    ((packets, largest_bytes),) = kind([line.split() for line in output.splitlines()], "arrived")
    assert int(packets) > 1000
    assert int(largest_bytes) > 2 * 1514


def test_counters_are_the_same_in_every_thread(tmp_path: Path) -> None:
    """Two threads must not share a descriptor: its number may belong to another file by then."""
    assert "told 5 [6, 6, 6, 6, 6] True" in run_inside(THREADS, tmp_path / "machine")
