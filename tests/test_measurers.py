"""Measurers and a relay that can be measured: the patched Tor on the loopback, and in the lab."""

import json
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from socket import socket
from statistics import median

import pytest
from created_circuits import CreatedCircuits
from rich.console import Console

from commands.__main__ import main
from testbed.asked.measurers import PATCH
from testbed.inside.measurers import team
from testbed.inside.measurers.circuit import CELL_BYTES, REPORT, Circuit
from testbed.inside.measurers.keystream import decrypted
from testbed.inside.measurers.team import Result, Target, measure
from testbed.network.bandwidth_file import read_bandwidth_file
from testbed.setup.ready import ensure_tors, tor_need

# Workers of pytest run relays side by side, each on a port of its own.
PORT = 29_001 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
KEY = "of the measurers"
DIGITS = "A" * 40


def test_the_keystream_is_aes_in_counter_mode() -> None:
    key, zeros = bytes(range(16)), bytes(64)
    whole = decrypted(key, 0, zeros)
    # FIPS 197's key, and blocks of zeros but for the counter.
    assert whole[:16].hex() == "c6a13b37878f5b826f4f8162a1c8d879"
    assert decrypted(key, 21, zeros[21:]) == whole[21:]
    assert decrypted(key, 0, whole) == zeros


def test_each_report_is_of_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports that come where seconds end, some a little earlier, and one late with the next."""
    circuit = Circuit(socket(), "relay", b"", KEY, 1.0, Random(1), 0.5, wants_reports=True)
    circuit.begin, circuit.is_open, circuit._greeted = 100.0, True, True
    with circuit.sock:
        for number, now in enumerate((97.0, 97.999, 99.0, 99.999, 101.7, 102.0)):
            circuit._handle(bytes([128, 0, 0, 1, REPORT]) + struct.pack("!QQ", number, 0), now)
    assert [circuit.seconds[second].background for second in range(-3, 3)] == list(range(6))


@pytest.mark.experiment
def test_clients_are_held_back_while_relays_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At r = 10 % a relay gives its clients a ninth of what it echoes, whatever they had before."""
    network = ["--set", "network.relays=4", "--set", "network.relay_rates=20 %"]
    network += ["--set", "clients.page=0 %", "--set", "clients.bulk5mib=100 %"]
    words = ["flashflow", "SmallNetwork", *network, "--set", "warm_up=3 s", "--clients", "6"]
    options = ["--ratio", "10 %", "--seconds", "5", "--sockets", "24", "--json"]
    assert main([*words, *options, "--v3bw", str(tmp_path / "v3bw")]) in (0, 3)
    found = json.loads(capsys.readouterr().out)
    held_back = 0
    for one in found:
        meanwhile = median(one["background_seconds_bit_per_s"])
        echoed = median(one["seconds_bit_per_s"]) - meanwhile
        assert meanwhile <= 1.1 * echoed / 9, one
        held_back += median(one["before_bit_per_s"]) > 1.5 * echoed / 9
        held_back += median(one["after_bit_per_s"]) > 1.5 * echoed / 9
    assert held_back >= 4


@pytest.mark.experiment
def test_liars_gain_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Claimed traffic counts up to r; cells that aren't decrypted are found; a slow slot counts."""
    network = ["--set", "network.relays=4", "--set", "network.relay_rates=20 %"]
    lies = ["relay1=background", "relay2=undecrypted", "relay3=0 %", "relay4=100 %"]
    liars = [word for lie in lies for word in ("--liar", lie)]
    options = ["--seconds", "9", "--sockets", "24", "--check", "0.01", "--json"]
    words = ["flashflow", "SmallNetwork", *network, *liars, *options]
    assert main([*words, "--v3bw", str(tmp_path / "v3bw")]) == 3
    claims, forges, slow, fast = json.loads(capsys.readouterr().out)
    honest = claims["bit_per_s"] * 0.75 / claims["true_bit_per_s"]
    assert honest == pytest.approx(1, abs=0.11)
    assert all(claims["background_seconds_bit_per_s"])  # no report is lost behind echoed cells
    assert "checked cells came back wrong" in forges["problem"]
    assert forges["bit_per_s"] is None
    assert slow["bit_per_s"] < 0.11 * slow["true_bit_per_s"]
    assert fast["error_percent"] == pytest.approx(0, abs=11)


@pytest.fixture(scope="module")
def tor() -> Path:
    need = tor_need(None, None, [PATCH])
    return ensure_tors(Console(stderr=True), [need])[need].product("tor")


@contextmanager
def relay(tor: Path, folder: Path, *lines: str) -> Iterator[bytes]:
    """Run a relay on the loopback; gives the digest of its identity key."""
    (folder / "torrc").write_text(
        "\n".join(
            [
                f"DataDirectory {folder}/data",
                f"ORPort 127.0.0.1:{PORT} IPv4Only",
                "Address 127.0.0.1",
                "SocksPort 0",
                "TestingTorNetwork 1",
                f"DirAuthority none orport=9 v3ident={DIGITS} 127.0.0.1:9 {DIGITS}",
                "AssumeReachable 1",
                "PublishServerDescriptor 0",
                "ExitPolicy reject *:*",
                "Nickname relay",
                f"Log notice file {folder}/log",
                *lines,
            ]
        )
    )
    process = subprocess.Popen([tor, "-f", folder / "torrc", "--quiet"])
    try:
        fingerprint = folder / "data/fingerprint"
        end = time.monotonic() + 60
        while "Starting with guard context" not in log_of(folder):
            assert process.poll() is None and time.monotonic() < end, log_of(folder)
            time.sleep(0.1)
        yield bytes.fromhex(fingerprint.read_text().split()[1])
    finally:
        process.terminate()
        process.wait()


def log_of(folder: Path) -> str:
    log = folder / "log"
    return log.read_text() if log.exists() else ""


def measured(identity: bytes, key: str = KEY, seconds: int = 3, share: float = 2e6) -> Result:
    target = Target("relay", "127.0.0.1", PORT, identity, {"one": share, "other": share})
    [result] = measure([target], key=key, sockets=6, seconds=seconds, probability=0.05, seed=1)
    return result


@pytest.mark.experiment
def test_a_key_is_refused_outside_a_testing_network(tor: Path, tmp_path: Path) -> None:
    def verified(*lines: str) -> str:
        (tmp_path / "torrc").write_text("\n".join([f"DataDirectory {tmp_path}/data", *lines]))
        words = [str(tor), "-f", str(tmp_path / "torrc"), "--verify-config"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    assert "MeasurementKey is for testing Tor networks only!" in verified(f"MeasurementKey {KEY}")
    lie = "TestingMeasurementLie background"
    assert "TestingMeasurementLie is for testing Tor networks only!" in verified(lie)
    assert "a percentage of at most 90" in verified("MeasurementBackground 91")
    assert "Configuration was valid" in verified("SocksPort 0")


@pytest.mark.alone
@pytest.mark.experiment
def test_a_relay_decrypts_and_sends_back(tor: Path, tmp_path: Path) -> None:
    with relay(tor, tmp_path, f"MeasurementKey {KEY}") as identity:
        result = measured(identity)
        stranger = measured(identity, key="of nobody")
    assert not result.problem
    assert result.checked > 100
    # Two times 2 MB/s were sent; a busy host carries less.
    sums = [sum(second) for second in zip(*result.echoed.values(), strict=True)]
    assert median(sums) == pytest.approx(4e6, rel=0.25)
    assert "closed the connection" in stranger.problem or "failed" in stranger.problem
    assert not any(map(sum, stranger.echoed.values()))


@pytest.mark.alone
@pytest.mark.experiment
def test_other_traffic_is_held_back_and_reported(tor: Path, tmp_path: Path) -> None:
    """At r = 10 % a relay that echoes 2 MB/s sends a ninth of it for others, which ask for more."""
    wanted = 1_000_000
    lines = (f"MeasurementKey {KEY}", "MeasurementBackground 10")
    with relay(tor, tmp_path, *lines) as identity:
        others = CreatedCircuits(PORT, wanted // CELL_BYTES)
        others.start()
        time.sleep(2)
        begin = time.monotonic()
        result = measured(identity, seconds=4, share=1e6)
        end = time.monotonic()
        time.sleep(2)
        others.over.set()
        others.join()
    before = others.bytes_between(begin - 1, begin)
    held_back = others.bytes_between(end - 4, end - 2) / 2
    assert before > 0.5 * wanted
    echoed = median(sum(second) for second in zip(*result.echoed.values(), strict=True))
    assert echoed == pytest.approx(2e6, rel=0.2)
    assert held_back == pytest.approx(echoed / 9, rel=0.3)
    assert median(result.background) == pytest.approx(echoed / 9, rel=0.3)
    assert others.bytes_between(end, end + 2) / 2 > before


@pytest.mark.experiment
def test_a_relay_without_a_key_cannot_be_measured(
    tor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team, "OPENING_TIMEOUT_S", 3.0)
    monkeypatch.setattr(team, "_BREATH_S", 0.0)
    with relay(tor, tmp_path) as identity:
        result = measured(identity, seconds=1)
    assert result.problem == "relay: not all circuits opened in time"


@pytest.mark.experiment
def test_a_wrong_answer_is_found(
    tor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurer expects something else, as if the relay hadn't decrypted."""
    monkeypatch.setattr(
        "testbed.inside.measurers.circuit.decrypted", lambda _key, _offset, data: data
    )
    with relay(tor, tmp_path, f"MeasurementKey {KEY}") as identity:
        result = measured(identity, seconds=1)
    assert result.forged == result.checked > 0
    assert "checked cells came back wrong" in result.problem


@pytest.mark.experiment
def test_a_network_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lab's relays, each within 11 % of what it can carry, as in the paper.

    The first one's processor is slower than its link.
    """
    file = tmp_path / "measured.v3bw"
    network = ["--set", "network.relays=4", "--set", "network.relay_rates=20 %"]
    network += ["--set", "nodes.relay1.processor=40 Mbit/s"]
    words = ["flashflow", "SmallNetwork", *network, "--seconds", "9", "--sockets", "24", "--json"]
    assert main([*words, "--v3bw", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["relay"] for one in found] == [f"relay{number}" for number in (1, 2, 3, 4)]
    assert found[0]["true_bit_per_s"] == 40e6
    for one in found:
        assert one["holds"], one
        assert one["error_percent"] == pytest.approx(0, abs=11), one
    weights = {name: one.weight for name, one in read_bandwidth_file(file).by_nickname().items()}
    assert weights == {one["relay"]: round(one["bit_per_s"] / 8000) for one in found}
