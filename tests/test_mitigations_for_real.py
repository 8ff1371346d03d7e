"""Proposals against circuits that hurt each other, in short real runs: each does what it says.

test_mitigations tests their variants' keys.
"""

import gzip
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from machine import run_inside, run_scenario
from rich.console import Console

from testbed.asked.plans import make_plan
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.inside.tor.configuration import OR_PORT
from testbed.results import Run, read_run
from testbed.results.fingerprint import Contents, differing
from testbed.runs.runner import carry_out, plan_need
from testbed.setup.ready import ensure_ready, ensure_tors

pytestmark = pytest.mark.experiment

COUNTING = """
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

def pinged():
    ping = f"ping -c 5 -i 0.2 -W 1 {plan.node('exit1').address} || true"
    answered = lab.run("middle1", ["sh", "-c", ping]).count("bytes from")
    return answered, *lab.esp_packets(lab.direction("exit1", "middle1"))

plan = make_plan("NoDropping", "pctcp")
with running_lab(plan) as lab:
    print("protected", *pinged())
    lab.run("exit1", ["ip", "xfrm", "policy", "flush"])
    print("one-sided", *pinged())
    lab.run("middle1", ["ip", "xfrm", "policy", "flush"])
    print("open", *pinged())
"""

MESSAGES = """
import socket
from testbed.inside.lab.network import running_lab
from testbed.asked.plans import make_plan

plan = make_plan("NoDropping", "pctcp")
there = (plan.node("middle1").address, 5201)
with running_lab(plan) as lab:
    listening = lab.inside("middle1", lambda: socket.create_server(there))
    sending = lab.inside("exit1", lambda: socket.create_connection(there))
    receiving, _ = listening.accept()
    for _ in range(5):
        sending.sendall(bytes(4 * 514))
        print("read", len(receiving.recv(65536)))
        receiving.sendall(b"answer")
        sending.recv(65536)
"""


def observed(run: Run, name: str) -> str:
    (check,) = (check for check in run.summary.checks if check.name == name)
    assert check.ok is not False
    return check.observed


def variant(folder: Path, keys: str, extends: str) -> str:
    file = folder / "mine.toml"
    file.write_text(f'title = "x"\nextends = "{extends}"\n{keys}\n', encoding="utf-8")
    return str(file)


def test_what_is_not_esp_is_counted_and_dropped(tmp_path: Path) -> None:
    """Answers to pings, all packets so far, and those of ESP, as the ends drop their policies."""
    lines = [line.split() for line in run_inside(COUNTING, tmp_path / "machine").splitlines()]
    counts = {words[0]: tuple(map(int, words[1:])) for words in lines if len(words) == 4}
    assert counts == {"protected": (5, 5, 5), "one-sided": (0, 10, 5), "open": (5, 15, 5)}


def test_a_message_arrives_whole_through_esp_too(tmp_path: Path) -> None:
    """Four cells in two segments: a reader woken by the first one would read 1414 bytes."""
    output = run_inside(MESSAGES, tmp_path / "machine").splitlines()
    assert [line for line in output if line.startswith("read")] == ["read 2056"] * 5


def test_pctcp(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, "One", "pctcp", 4)
    wanted = "2 connections, 2 circuits, at most 1 on one connection"
    assert observed(run, "middle1 to exit1 before measuring") == wanted
    assert observed(run, "middle1 to exit1 after measuring") == wanted
    assert observed(run, "payload of a full segment between relays") == "1414 bytes"
    relays = {relay.relay: relay for relay in run.summary.relays}
    assert relays.keys() == {"guard1", "guard2", "middle1", "exit1"}
    # For each of two circuits, one from a guard and one to the exit; and one with the authority.
    assert 4 <= relays["middle1"].connections <= 5
    assert relays["middle1"].sockets > relays["middle1"].connections
    assert 1 < relays["middle1"].tor_memory_mb < 20
    assert 0 < relays["middle1"].socket_memory_mb < 20
    # 514 bytes of a cell carry 498, and 1514 of a frame 1414; acknowledgements come on top.
    assert run.summary.wire_bytes_per_byte
    assert 514 / 498 * 1514 / 1414 < run.summary.wire_bytes_per_byte < 1.3
    packets = observed(run, "packets between relays that aren't ESP")
    assert int(packets.removeprefix("none of ")) > 10_000


def payloads(capture: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Ports and kept payload of each TCP segment with payload in a pcap file."""
    position = 24
    while position < len(capture):
        kept, length = struct.unpack_from("<II", capture, position + 8)
        packet = capture[position + 16 : position + 16 + kept]
        position += 16 + kept
        ip_bytes = 4 * (packet[14] & 0xF)
        tcp = packet[14 + ip_bytes :]
        tcp_bytes = 4 * (tcp[12] >> 4)
        if length > 14 + ip_bytes + tcp_bytes:
            yield struct.unpack_from(">HH", tcp), tcp[tcp_bytes:]


def test_plain_connections_carry_cells_and_no_tls(tmp_path: Path) -> None:
    """Each cell of 514 bytes begins with its circuit's number, whose first bit its initiator sets.

    Connections are opened before a capture begins, so the test looks for cells: 3 is RELAY, and
    TLS's records of data begin with 23, 3, 3 (RFC 8446, 5.2).
    """
    own = variant(
        tmp_path,
        'patches = ["plain-relay-connections.patch"]\n[torrc.relay]\nPlainRelayConnections = 1',
        "vanilla",
    )
    run = run_scenario(tmp_path, "One", own, 4, "--pcap", "exit-middle", "--pcap", "client-guard")
    captures = run.directory / "captures"
    plain = gzip.decompress((captures / "middle1-exit1.pcap.gz").read_bytes())
    cells = [bytes_ for ports, bytes_ in payloads(plain) if OR_PORT in ports]
    assert not [one for one in cells if one.startswith(b"\x17\x03\x03")]
    assert sum(one[:1] >= b"\x80" and one[4:5] == b"\x03" for one in cells) > 10
    client = gzip.decompress((captures / "client1-guard1.pcap.gz").read_bytes())
    records = [bytes_ for ports, bytes_ in payloads(client) if OR_PORT in ports]
    assert sum(one.startswith(b"\x17\x03\x03") for one in records) > 10


def test_mctor_by_hashing(tmp_path: Path) -> None:
    own = variant(tmp_path, 'parallel_circuits = 3\nstream_rule = "hashing"', "pctls")
    run = run_scenario(tmp_path, "Two", own, 6)
    wanted = "6 connections, 6 circuits, at most 1 on one connection"
    assert observed(run, "middle1 to exit1 before measuring") == wanted
    assert observed(run, "streams on other circuits") == "none"
    spread = observed(run, "streams on each circuit")
    counts = [[int(each) for each in one.split()[1:]] for one in spread.split("; ")]
    assert [len(each) for each in counts] == [3, 3]
    assert all(sum(each) > 1 for each in counts)


@pytest.fixture(scope="module")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_with([], tmp_path_factory.mktemp("unpatched"))


def run_with(patches: list[str], folder: Path) -> Run:
    """A run of vanilla's plan by a Tor with some patches, whose options are all off."""
    plan = make_plan("One", "vanilla", duration="4 s")
    files = tuple(TOR_CONFIGS / "patches" / f"{name}.patch" for name in patches)
    need = replace(plan_need(plan), patches=files)
    ready = ensure_ready(Console(stderr=True), [need])
    ready = replace(ready, tors={plan_need(plan): ready.tors[need]})
    carry_out(plan, folder / "run", Console(stderr=True), lambda _step: None, ready=ready)
    return read_run(folder / "run")


def without_memory(run: Run) -> Contents:
    """The contents except the memory of the relays' Tors."""
    tables, summary = dict(run.contents.tables), dict(run.contents.summary)
    tables["relays"] = tables["relays"].drop("tor_memory_bytes")
    summary["relays"] = [relay | {"tor_memory_mb": None} for relay in summary["relays"]]
    return Contents(tables, summary)


@pytest.mark.long
@pytest.mark.parametrize(
    "patches",
    [
        ["per-circuit-connections"],
        ["plain-relay-connections"],
        ["per-circuit-connections", "connections-per-pair"],
        ["without-cgo"],
        ["circuit-stream-rule"],
    ],
)
def test_a_patch_with_its_option_off_changes_no_byte(
    tmp_path: Path, unpatched: Run, patches: list[str]
) -> None:
    """Except a page or two of Tor's memory, as the patched program is larger."""
    run = run_with(patches, tmp_path)
    assert list(differing(without_memory(run), without_memory(unpatched))) == []


@pytest.mark.parametrize("name", ["shared-by-number-3", "own-up-to-3"])
def test_eight_circuits_on_three_connections(tmp_path: Path, name: str) -> None:
    run = run_scenario(tmp_path, "NoDropping", name, 4)
    wanted = "3 connections, 8 circuits, at most 3 on one connection"
    assert observed(run, "middle1 to exit1 before measuring") == wanted
    assert observed(run, "middle1 to exit1 after measuring") == wanted


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pctcp", ["PlainRelayConnections", "1"], "is for testing Tor networks only"),
        ("pctcp", ["PlainRelayConnections", "0"], ""),
        ("own-up-to-3", ["ConnectionsPerPair", "-2"], "ConnectionsPerPair"),
        ("own-up-to-3", ["ConnectionsPerPair", "2"], ""),
        ("best-circuit", ["CircuitStreamRule", "luck"], "CircuitStreamRule must be 'auto', 'off'"),
        ("best-circuit", ["CircuitsForPredictedPorts", "15"], "is too large. Max is 14"),
        ("best-circuit", ["CircuitsForPredictedPorts", "14"], ""),
    ],
)
def test_what_a_patched_tor_refuses(
    tmp_path: Path, name: str, options: list[str], message: str
) -> None:
    """Outside a TestingTorNetwork; the Tor only checks its options."""
    need = plan_need(make_plan("SmallNetwork", name))
    tor = ensure_tors(Console(stderr=True), [need])[need].product("tor")
    check = [str(tor), "--verify-config", "-f", "/dev/null", "--ignore-missing-torrc"]
    done = subprocess.run(
        [*check, "--DataDirectory", str(tmp_path / "data"), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert message in done.stdout
    assert (done.returncode != 0) == bool(message)
