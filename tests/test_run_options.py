"""Options of a run beside scenario and variant: a generator, and captures.

test_cli has wrong values for them.
"""

import gzip
import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars
import pytest
from machine import run_scenario

from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError, TestbedError
from testbed.inside.lab import network
from testbed.inside.lab.links import LinkCounters
from testbed.inside.lab.meeting import Meeting
from testbed.inside.probes.captures import (
    SNAP_LENGTH_BYTES,
    capture_pairs,
    delay,
    dropped_packets,
)
from testbed.inside.probes.link_counts import record_links
from testbed.inside.recording import Record
from testbed.machines.guest import memory_mb
from testbed.plan.model import Plan
from testbed.results import Run


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan("NoDropping", "vanilla")


# A generator of the user's own.


GENERATOR = """#!/bin/sh
echo "$@" >> {folder}/played
exec {python} -m testbed.inside.traffic.tgen "$@"
"""


def write_generator(folder: Path) -> Path:
    """A program that records how it was called, and then is the bundled generator."""
    path = folder / "bin" / "tgen"
    path.parent.mkdir()
    path.write_text(GENERATOR.format(folder=folder, python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def generator(tmp_path: Path) -> Path:
    return write_generator(tmp_path)


def test_a_generator_by_its_path_or_its_name(
    generator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{generator.parent}")
    by_path, by_name = (
        make_plan("One", "vanilla", tgen=given) for given in (str(generator), "tgen")
    )
    assert by_path == by_name
    assert by_path.tgen is not None
    assert by_path.tgen.path == str(generator)
    assert make_plan("One", "vanilla").tgen is None, "none is taken that was not asked for"


def test_the_runs_key_depends_on_the_generator_and_not_on_its_place(generator: Path) -> None:
    bundled = make_plan("One", "vanilla")
    first = make_plan("One", "vanilla", tgen=str(generator))
    moved = generator.rename(generator.with_name("other"))
    assert make_plan("One", "vanilla", tgen=str(moved)).key == first.key != bundled.key
    moved.write_text("#!/bin/sh\n")
    assert make_plan("One", "vanilla", tgen=str(moved)).key != first.key


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("tgenn", "there is no such program: give its path, or a name that is on PATH"),
        ("bin", "is a directory, not a program"),
        ("data", "is not executable: `chmod \\+x data`"),
        ("here", 'is not on PATH: write "./here"'),
    ],
)
def test_a_generator_that_can_not_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, advice: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "data").touch()
    (tmp_path / "here").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f'--tgen "{given}": {advice}'):
        make_plan("One", "vanilla", tgen=given)


# Captures.


def test_pairs_in_any_order_and_each_once(plan: Plan) -> None:
    given = ["exit-middle", "guard-client", "middle-exit"]
    assert capture_pairs(plan, given) == ("middle-exit", "client-guard")
    assert capture_pairs(plan, []) == ()


@pytest.mark.parametrize("pair", ["client-exit", "middle", "exit-middle-exit", "middle-middle", ""])
def test_a_pair_without_a_link(plan: Plan, pair: str) -> None:
    with pytest.raises(InputError, match=f'--pcap "{pair}" names no link of eight_clients: .*exit'):
        capture_pairs(plan, [pair])


def test_ways_between_sites_are_no_links_to_capture() -> None:
    """Several share a router's interface, so tcpdump would silently capture nothing."""
    drawn = make_plan("SmallNetwork", "vanilla")
    assert capture_pairs(drawn, ["router-client"]) == ("client-router",)
    with pytest.raises(InputError, match='--pcap "router-router" names no link of sampled: '):
        capture_pairs(drawn, ["router-router"])


def test_captures_get_memory(plan: Plan) -> None:
    links = len(plan.links_between("client", "guard"))
    assert links == 8
    more_mb = memory_mb(plan, ("client-guard",)) - memory_mb(plan)
    assert more_mb == links * (memory_mb(plan, ("middle-exit",)) - memory_mb(plan)) > 0


def test_what_tcpdump_says_at_its_end() -> None:
    words = (
        "tcpdump: listening on exit1-eth0, link-type EN10MB (Ethernet), snapshot length 94 bytes\n"
        "1 packet captured\n1290 packets received by filter\n{} dropped by kernel\n"
    )
    assert dropped_packets(words.format("0 packets")) == 0
    assert dropped_packets(words.format("1 packet")) == 1
    assert dropped_packets(words.format("1289 packets")) == 1289
    with pytest.raises(TestbedError, match=r"tcpdump ended early: .*No space"):
        dropped_packets("tcpdump: x.pcap: No space left on device")


def test_times_of_a_capture_between_parts_are_those_of_arrival(tmp_path: Path) -> None:
    """The half second that is left of the first packet's second is not enough."""
    sent = [(7, 500_000, b"first"), (7, 999_999, b"second")]
    file = tmp_path / "a-b.pcap"
    rows = [struct.pack("=IIII", *at, len(kept), 1500) + kept for *at, kept in sent]
    file.write_bytes(struct.pack("=I16xI", 0xA1B2C3D4, 1) + b"".join(rows))
    delay(file, 1_500_000)
    compressed = tmp_path / "a-b.pcap.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    assert list(packets(compressed)) == [(9.0, b"first", 1500), (9.499999, b"second", 1500)]


# A real run with both.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """A short run with its own generator and captures of two kinds of links."""
    folder = tmp_path_factory.mktemp("options")
    program = write_generator(folder)
    options = ("--tgen", str(program), "--pcap", "exit-middle", "--pcap", "client-guard")
    return run_scenario(folder, "One", "pctls", 10, *options), folder


@pytest.mark.experiment
def test_the_generator_played_both_ends(finished: tuple[Run, Path]) -> None:
    run, folder = finished
    played = [Path(line).name for line in (folder / "played").read_text().splitlines()]
    assert played == [f"{node}.tgen.graphml" for node in ("server1", "client1", "client2")]
    assert run.transfers.filter("ok").height >= 6
    assert run.plan.tgen is not None
    manifest = json.loads((run.directory / "manifest.json").read_text())
    assert manifest["plan"]["tgen"]["path"] == str(folder / "bin" / "tgen")
    assert len(manifest["plan"]["tgen"]["sha256"]) == 64


def packets(capture: Path) -> Iterator[tuple[float, bytes, int]]:
    """The Unix time, the kept bytes and the full length of each packet in a pcap file."""
    data = gzip.decompress(capture.read_bytes())
    magic, link_type = struct.unpack_from("<I16xI", data)
    assert (magic, link_type) == (0xA1B2C3D4, 1), "microseconds, Ethernet"
    at = 24
    while at < len(data):
        seconds, microseconds, kept, length = struct.unpack_from("<IIII", data, at)
        yield seconds + microseconds / 1e6, data[at + 16 : at + 16 + kept], length
        at += 16 + kept


def test_a_reading_of_links_has_the_time_at_which_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next test rests on this."""
    clock = iter(range(100))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))

    class Lab:
        meeting = Meeting(1, 0)
        plan = SimpleNamespace(is_here=lambda _name: True)

        def sent(self) -> Iterator[tuple[list[object], list[LinkCounters]]]:
            for _ in range(2):
                counted = LinkCounters(*[int(time.time())] * 6)
                yield [SimpleNamespace(sender="exit1", receiver="middle1")], [counted]

        def arrivals(self, _direction: object) -> tuple[int, int]:
            return int(time.time()), 0

        def way_counters(self) -> Iterator[tuple[object, LinkCounters]]:
            return iter(())

    with Record(tmp_path) as record:
        record_links(cast(network.Lab, Lab()), "before", record)
    rows = [json.loads(line) for line in (tmp_path / "links.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["time_s"] < row["sent_packets"] < row["received_packets"]
    assert rows[0]["received_packets"] < rows[1]["time_s"]


@pytest.mark.experiment
def test_a_capture_has_every_packet_that_the_link_has_counted(finished: tuple[Run, Path]) -> None:
    run, _ = finished
    captures = {path.name: path for path in (run.directory / "captures").iterdir()}
    directions = ["middle1-exit1", "client1-guard1", "client2-guard2"]
    directions += ["-".join(reversed(direction.split("-"))) for direction in directions]
    assert set(captures) == {f"{direction}.pcap.gz" for direction in directions}
    # A reading of one direction's counters ends when that of the next one begins.
    over_s = polars.col("time_s").shift(-1).over("when")
    readings = run.links.sort("time_s").with_columns(over_s=over_s)
    assert readings.select((polars.col("over_s") - polars.col("time_s")).max()).item() < 0.001
    for direction in directions:
        sender, receiver = direction.split("-")
        before, after = readings.filter(sender=sender, receiver=receiver).iter_rows(named=True)
        captured = list(packets(captures[f"{direction}.pcap.gz"]))
        times_s = [time_s for time_s, _, _ in captured]
        counted = after["sent_packets"] - before["sent_packets"]
        # Whole microseconds, rounded down.
        least = sum(before["over_s"] <= time_s < after["time_s"] - 1e-6 for time_s in times_s)
        most = sum(before["time_s"] - 1e-6 < time_s <= after["over_s"] for time_s in times_s)
        assert least <= counted <= most, direction
        assert counted > 500
        assert max(length for _, _, length in captured) <= 1514, "one by one"
    assert not [note for note in run.summary.notes if "capture" in note]


@pytest.mark.experiment
def test_a_capture_has_headers_and_the_machines_time(finished: tuple[Run, Path]) -> None:
    run, _ = finished
    captured = list(packets(run.directory / "captures" / "exit1-middle1.pcap.gz"))
    times_s = [time_s for time_s, _, _ in captured]
    assert times_s == sorted(times_s)
    end_s = run.measuring_start_s + run.plan.duration_s
    assert times_s[0] < run.measuring_start_s + 1 < end_s - 1 < times_s[-1]
    assert {len(kept) for _, kept, length in captured if length > 100} == {SNAP_LENGTH_BYTES}
    # Ethernet's type, IPv4's protocol and source: TCP from the exit.
    heads = {(kept[12:14], kept[23], kept[26:30]) for _, kept, _ in captured}
    assert heads == {(b"\x08\x00", 6, bytes([10, 0, 4, 1]))}
