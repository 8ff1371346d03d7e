"""The bundled traffic generator over loopback: transfers that fail, and bad configurations."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from socks_proxy import proxy_start, socks_server
from tgen_over_loopback import (
    LOOPBACK,
    PATIENCE_S,
    PAYLOAD_AND_CHECKSUM,
    RESPONSE,
    ends,
    free_port,
    one_stream,
    run_client,
    running,
    server,
    silent_server,
    wait_for,
    write_graph,
)

from testbed.basics.errors import InputError
from testbed.inside.traffic.models import write_server
from testbed.inside.traffic.tgen.action_graph import read_action_graph
from testbed.inside.traffic.tgen.command import WORD
from testbed.inside.traffic.tgen_log import read_transfers


@pytest.mark.parametrize(
    ("answer", "error", "state"),
    [
        (RESPONSE + b"t" * 10, "READEOF", "RECV_ERROR"),
        (RESPONSE + b"t" * 100 + b"MD5 " + b"0" * 32 + b"\n", "CHECKSUM", "RECV_ERROR"),
        (PAYLOAD_AND_CHECKSUM, "READEOF", "RECV_ERROR"),
        (PAYLOAD_AND_CHECKSUM + b"END\n", "FOOTER", "RECV_ERROR"),
        (b"HTTP/1.0 400 Bad Request\n", "AUTH", "RECV_ERROR"),
        (RESPONSE.replace(b"2.0", b"1.0"), "HEADER_VERSION", "RECV_ERROR"),
        (RESPONSE.replace(b" CODE=NONE", b""), "HEADER_INCOMPLETE", "RECV_ERROR"),
        (RESPONSE.replace(b"NONE", b"MODEL"), "HEADER", "RECV_ERROR"),
    ],
)
def test_errors_of_the_protocol(tmp_path: Path, answer: bytes, error: str, state: str) -> None:
    with silent_server(answer, close=True) as port:
        log = run_client(one_stream(tmp_path, port, sendsize="0", recvsize="100"))
    (line,) = ends(log)
    assert (line["what"], line["error"], line["receive_state"]) == ("stream-error", error, state)


@pytest.mark.alone
def test_refused_connection_pauses_a_second_and_goes_on(tmp_path: Path) -> None:
    log = run_client(one_stream(tmp_path, free_port(), 2, sendsize="0", recvsize="1"))
    first, second = ends(log)
    assert first["what"] == "stream-error"
    assert (first["error"], first["transport_state"]) == ("PROXY", "ERROR")
    assert first["transport_error"] == "CONNECT"
    assert (first["send_state"], first["receive_state"]) == ("SEND_COMMAND", "RECV_NONE")
    transfers = read_transfers(log, "c1")
    assert 1.0 <= transfers[1].start_s - transfers[0].start_s < 1.5
    assert transfers[0].first_byte_s is None
    assert int(second["id"]) == 1


def test_proxy_that_refuses(tmp_path: Path) -> None:
    with socks_server(status=4) as proxy:
        start = proxy_start(proxy)
        log = run_client(one_stream(tmp_path, 9, start=start, sendsize="0", recvsize="1"))
    (line,) = ends(log)
    assert (line["error"], line["transport_error"]) == ("PROXY", "STATUS")
    assert int(line["proxy_request"]) >= int(line["proxy_choice"]) >= 0
    assert line["proxy_response"] == "-1"


def test_server_refuses_strangers_and_bad_models(tmp_path: Path) -> None:
    port = free_port()
    command = (
        WORD + b" PROTOCOL_VERSION=2.0 HOSTNAME=h TRANSFER_ID=t SEND_SIZE=~ RECV_SIZE=9 "
        b"MODEL_NAME=m MODEL_SEED=1 MODEL_MODE=graphml MODEL_SIZE=5\n<bad>"
    )
    with server(tmp_path, port) as log:
        with socket.create_connection((LOOPBACK, port)) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert sock.recv(100) == b""
        with socket.create_connection((LOOPBACK, port)) as sock:
            sock.sendall(command)
            assert b"CODE=MODEL\n" in sock.recv(1000)
        wait_for(log, "[stream-error]", 2)
    assert [line["error"] for line in ends(log)] == ["AUTH", "MODEL"]


def test_sigterm_in_mid_transfer_reports_nothing(tmp_path: Path) -> None:
    with silent_server(RESPONSE + b"t") as port:
        config = one_stream(tmp_path, port, sendsize="0", recvsize="5 mb")
        with running(config) as (process, log):
            wait_for(log, "starting client")
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    assert ends(log) == []
    assert log.read_text().endswith("returning 0 from main\n")


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ({"begin": {}}, [], "must contain one of start, end"),
        ({"pause": {"time": "1"}}, [], "0 start vertices"),
        ({"start": {"serverport": "99999"}}, [], "serverport = 99999"),
        ({"start": {"colour": "red"}}, [], "unknown 'colour', can be .*serverport"),
        ({"start": {"loglevel": "loud"}}, [], "loglevel = 'loud'.*debug"),
        ({"start": {"heartbeat": "1 fortnight"}}, [], "heartbeat = '1 fortnight'"),
        ({"start": {"peers": "nowhere"}}, [], "peers = 'nowhere': a peer is host:port"),
        ({"start": {}, "stream": {}}, [("start", "stream")], "'peers' is missing"),
        (
            {"start": {"peers": "h:1"}, "stream": {"recvsize": "5 MiX"}},
            [("start", "stream")],
            "vertex 'stream': recvsize = '5 MiX'",
        ),
        ({"start": {}, "pause": {}}, [("start", "pause"), ("pause", "start")], "the cycle"),
        ({"start": {}, "pause": {}}, [], "vertex 'pause': can't be reached from 'start'"),
        ({"start": {}, "pause": {"time": "1"}}, [("start", "pause", "0")], "have weight 0"),
        ({"start": {}, "pause": {}}, [("start", "pause", "heavy")], "weight = 'heavy'"),
    ],
)
def test_bad_configurations(
    tmp_path: Path, nodes: dict[str, dict[str, str]], edges: list[tuple[str, ...]], message: str
) -> None:
    path = write_graph(tmp_path / "bad.graphml", nodes, *edges)
    with pytest.raises(InputError, match=message) as caught:
        read_action_graph(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "no xml", "<a/>"])
def test_no_graphml_at_all(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "bad.graphml"
    if content is not None:
        path.write_text(content)
    finished = subprocess.run(
        [sys.executable, "-m", "testbed.inside.traffic.tgen", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
        env={**os.environ},
    )
    assert finished.returncode == 2
    assert finished.stderr.startswith("tgen: ") and finished.stderr.count("\n") == 1


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port):
        config = write_server(tmp_path, "second", port)
        finished = subprocess.run(
            [sys.executable, "-m", "testbed.inside.traffic.tgen", str(config)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent.parent,
        )
    assert finished.returncode == 1
    assert f"port {port}" in finished.stderr
