"""Tests of the bundled generator's times over loopback, as exact as its clocks.

A busy host would break any such bound, so `test_tgen_times` runs this file in virtual time.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tgen_over_loopback import (
    LOOPBACK,
    RESPONSE,
    ends,
    free_port,
    markov_of,
    one_stream,
    run_client,
    running,
    server,
    silent_server,
    wait_for,
    write_graph,
)

from testbed.inside.traffic.models import write_client
from testbed.inside.traffic.tgen.payload import PayloadDigest
from testbed.inside.traffic.tgen_log import read_heartbeats, read_transfers

EXACT_S = 0.001
DELAYED_ACKNOWLEDGEMENT_S = 0.04
TICK_S = 0.01  # of the coarse clock, which times a connection's last progress


def test_bulk_repeats_at_once(tmp_path: Path) -> None:
    port = free_port()
    config = write_client(tmp_path, "c1", "bulk", server=(LOOPBACK, port), socks_proxy=None, seed=1)
    with server(tmp_path, port), running(config) as (_, log):
        wait_for(log, "[stream-success]", 10)
    transfers = read_transfers(log, "c1")
    assert len(transfers) >= 10
    assert {transfer.bytes_received for transfer in transfers} == {5_000_000}
    for before, after in pairwise(transfers):
        # Nagle's algorithm may hold back checksum and footer; they then arrive together.
        last_byte_s, checksum_s = before.last_byte_s, before.step_s["checksum-recv"]
        assert last_byte_s is not None and checksum_s is not None
        assert 0 <= checksum_s - last_byte_s < DELAYED_ACKNOWLEDGEMENT_S + EXACT_S
        assert abs(after.start_s - (before.start_s + checksum_s)) < EXACT_S


def test_heartbeats_count_bytes_and_streams(tmp_path: Path) -> None:
    port = free_port()
    nodes = {
        "start": {"peers": f"{LOOPBACK}:{port}", "heartbeat": "100 ms"},
        "stream": {"sendsize": "0", "recvsize": "1 mb"},
        "pause": {"time": "350 ms"},
        "end": {"count": "1"},
    }
    edges = (("start", "stream"), ("stream", "pause"), ("pause", "end"))
    with server(tmp_path, port):
        log = run_client(write_graph(tmp_path / "client.graphml", nodes, *edges))
    heartbeats = read_heartbeats(log, "c1")
    assert len(heartbeats) >= 3
    assert sum(heartbeat.bytes_received for heartbeat in heartbeats) == int(
        ends(log)[0]["total_received"]
    )
    gaps_s = [b.time_s - a.time_s for a, b in pairwise(heartbeats)]
    assert gaps_s == pytest.approx([0.1] * len(gaps_s), abs=EXACT_S)
    assert re.search(
        r"\[driver-heartbeat\] \[bytes-read=\d+,bytes-written=\d+,streams-created=1,"
        r"streams-succeeded=1,flows-created=1,flows-succeeded=1,total-streams-created=1,"
        r"total-streams-succeeded=1,total-flows-created=1,total-flows-succeeded=1\]",
        log.read_text(),
    )


@pytest.mark.parametrize(
    ("stallout", "timeout", "error"), [("300 ms", "0", "STALLOUT"), ("0", "300 ms", "TIMEOUT")]
)
def test_stallout_and_timeout(tmp_path: Path, stallout: str, timeout: str, error: str) -> None:
    with silent_server(RESPONSE + b"t" * 1000) as port:
        config = one_stream(
            tmp_path, port, sendsize="0", recvsize="5 mb", stallout=stallout, timeout=timeout
        )
        log = run_client(config)
    (line,) = ends(log)
    assert line["what"] == "stream-error"
    assert line["error"] == error
    assert line["peer_name"] == "silent"
    assert line["payload_received"] == "1000"
    assert line["progress_received"] == "0.02%"
    assert line["receive_state"] == "RECV_PAYLOAD"
    assert int(line["first_byte_recv"]) <= int(line["last_byte_recv"])
    assert line["checksum_recv"] == "-1"
    lasted_s = (int(line["now"]) - int(line["created"])) / 1e6
    assert lasted_s == pytest.approx(0.3, abs=TICK_S + EXACT_S)
    (transfer,) = read_transfers(log, "c1")
    assert (transfer.ok, transfer.error, transfer.bytes_received) == (False, error, 1000)


def test_a_slow_stream_is_not_stalled(tmp_path: Path) -> None:
    """Less than one wake-up's worth arrives within each stall-out, but that is progress."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(RESPONSE)
                for _ in range(20):
                    sock.sendall(b"t" * 50)
                    time.sleep(0.05)
                digest = PayloadDigest()
                digest.update(memoryview(b"t" * 1000))
                sock.sendall(f"MD5 {digest.hexdigest()}\nFIN\n".encode())
                sock.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        config = one_stream(tmp_path, port, sendsize="0", recvsize="1000", stallout="300 ms")
        (transfer,) = read_transfers(run_client(config), "c1")
        thread.join()
    assert transfer.ok
    assert transfer.first_byte_s is not None and transfer.first_byte_s < EXACT_S
    assert transfer.last_byte_s is not None and transfer.last_byte_s > 0.9


def test_pauses_of_a_list_and_a_barrier(tmp_path: Path) -> None:
    """Two parallel streams meet at the barrier; then follows a pause of one of two lengths."""
    port = free_port()
    nodes = {
        "start": {"peers": f"{LOOPBACK}:{port}"},
        "stream1": {"sendsize": "0", "recvsize": "1 mb"},
        "stream2": {"sendsize": "0", "recvsize": "1 kb"},
        "pause_barrier": {},
        "pause": {"time": "200 ms,300 ms"},
        "end": {"count": "6"},
    }
    edges = [
        ("start", "stream1"),
        ("start", "stream2"),
        ("stream1", "pause_barrier"),
        ("stream2", "pause_barrier"),
        ("pause_barrier", "pause"),
        ("pause", "end"),
        ("end", "start"),
    ]
    with server(tmp_path, port):
        log = run_client(write_graph(tmp_path / "client.graphml", nodes, *edges))
    transfers = sorted(read_transfers(log, "c1"), key=lambda transfer: transfer.stream_id)
    assert len(transfers) == 6
    for pair in (transfers[0:2], transfers[2:4], transfers[4:6]):
        assert pair[1].start_s - pair[0].start_s < EXACT_S
    gap_s = transfers[2].start_s - max(t.start_s + (t.last_byte_s or 0) for t in transfers[:2])
    assert min(abs(gap_s - pause_s) for pause_s in (0.2, 0.3)) < EXACT_S


@pytest.mark.parametrize(("kind", "streams"), [("flow", 3), ("traffic", 6)])
def test_flow_and_traffic(tmp_path: Path, kind: str, streams: int) -> None:
    port = free_port()
    options = {"streammodelpath": str(markov_of(3, tmp_path / "streams.graphml"))}
    if kind == "traffic":
        options["flowmodelpath"] = str(markov_of(2, tmp_path / "flows.graphml"))
    nodes = {
        "start": {"peers": f"{LOOPBACK}:{port}", "sendsize": "0", "recvsize": "1 kb"},
        kind: options,
        "end": {"count": "1"},
    }
    edges = (("start", kind), (kind, "end"))
    with server(tmp_path, port):
        log = run_client(write_graph(tmp_path / "client.graphml", nodes, *edges))
    transfers = read_transfers(log, "c1")
    assert len(transfers) == streams
    assert all(transfer.ok for transfer in transfers)
    if kind == "flow":
        starts_s = [transfer.start_s for transfer in transfers]
        gaps_s = [b - a for a, b in pairwise(starts_s)]
        assert gaps_s == pytest.approx([0.02, 0.02], abs=EXACT_S)


def test_end_by_time_and_start_delay(tmp_path: Path) -> None:
    port = free_port()
    nodes = {
        "start": {"peers": f"{LOOPBACK}:{port}", "time": "200 ms"},
        "pause": {"time": "50 ms"},
        "end": {"time": "240 ms"},
    }
    edges = (("start", "pause"), ("pause", "end"), ("end", "start"))
    config = write_graph(tmp_path / "client.graphml", nodes, *edges)
    begin_s = time.monotonic()
    log = run_client(config)
    assert time.monotonic() - begin_s >= 0.45
    passed = re.search(r"because of (\d+) microseconds passed", log.read_text())
    assert passed and 250_000 <= int(passed[1]) < 251_000
