"""The bundled traffic generator, end to end over loopback: both ends, proxy, errors, log lines.

The models' own definitions are tested in test_traffic_models, times in test_tgen_times.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import networkx
import pytest
import tgentools_rules

from testbed.errors import InputError, TestbedError
from testbed.traffic.models import write_server
from testbed.traffic.tgen.action_graph import read_action_graph
from testbed.traffic.tgen.command import WORD, parse_command, parse_response
from testbed.traffic.tgen.log import Log
from testbed.traffic.tgen.loop import READ, Loop, Timer
from testbed.traffic.tgen.markov import END, INTERNAL_PACKET_MODEL, MarkovModel, internal_model
from testbed.traffic.tgen.options import (
    Peer,
    StreamOptions,
    parse_bytes,
    parse_peers,
    parse_time_us,
)
from testbed.traffic.tgen.payload import PayloadDigest
from testbed.traffic.tgen.stream import Stream, Surroundings
from testbed.traffic.tgen.transport import Transport
from testbed.traffic.tgen_log import Transfer, read_transfers

LOOPBACK = "127.0.0.1"
# Real seconds that anything here may take before it counts as hung.
PATIENCE_S = 30

# Every field of a line about a stream, in upstream's order (tgen-stream.c, tgen-transport.c).
PEER = r"[^,:]+:\d+\.\d+\.\d+\.\d+:\d+"
TRANSPORT = (
    rf"\[fd=\d+,local={PEER},proxy={PEER},remote={PEER},"
    r"state=(?P<transport_state>[A-Z_]+),error=(?P<transport_error>[A-Z]+)\]"
)
STREAM = (
    r"\[id=(?P<id>\d+),vertexid=(?P<vertex>[^,]+),name=(?P<name>[^,]+),"
    r"peername=(?P<peer_name>[^,]+),sendsize=(?P<send_size>\d+),recvsize=(?P<receive_size>\d+),"
    r"sendstate=(?P<send_state>SEND_[A-Z]+),recvstate=(?P<receive_state>RECV_[A-Z]+),"
    r"error=(?P<error>[A-Z_]+)\]"
)
PERCENT = r"(?:\d+\.\d\d%|\?)"
BYTES = (
    r"\[total-bytes-recv=(?P<total_received>\d+),total-bytes-send=(?P<total_sent>\d+),"
    r"payload-bytes-recv=(?P<payload_received>\d+),payload-bytes-send=(?P<payload_sent>\d+),"
    rf"payload-progress-recv=(?P<progress_received>{PERCENT}),"
    rf"payload-progress-send=(?P<progress_sent>{PERCENT})\]"
)
RECEIVING_STEPS = [
    "socket-create",
    "socket-connect",
    "proxy-init",
    "proxy-choice",
    "proxy-request",
    "proxy-response",
    "command",
    "response",
    "first-byte-recv",
    "last-byte-recv",
    "checksum-recv",
]
STEPS = [*RECEIVING_STEPS, "first-byte-send", "last-byte-send", "checksum-send"]
TIMES = (
    r"\[created-ts=(?P<created>\d+),"
    + "".join(rf"usecs-to-{step}=(?P<{step.replace('-', '_')}>-?\d+)," for step in STEPS)
    + r"now-ts=(?P<now>\d+)\]"
)
LEAD = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?P<unix>\d+\.\d{6}) \[(?P<level>[a-z]+)\] "
    r"\[\S+\.py:\d+\] \[\S+\] "
)
END_LINE = re.compile(
    rf"{LEAD}\[(?P<what>stream-success|stream-error)\] transport {TRANSPORT} stream {STREAM} "
    rf"bytes {BYTES} times {TIMES}"
)
STATUS_LINE = re.compile(
    rf"{LEAD}\[stream-status\] transport {TRANSPORT} stream {STREAM} bytes {BYTES}"
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        port: int = sock.getsockname()[1]
        return port


def write_graph(path: Path, nodes: dict[str, dict[str, str]], *edges: tuple[str, ...]) -> Path:
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for name, attributes in nodes.items():
        graph.add_node(name, **attributes)
    for source, target, *weight in edges:
        graph.add_edge(source, target, **({"weight": weight[0]} if weight else {}))
    networkx.write_graphml(graph, path)
    return path


@contextlib.contextmanager
def running(config: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A generator, and its log; ended with SIGTERM, which must be status 0."""
    log = config.with_suffix(".log")
    with log.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.traffic.tgen", str(config)],
            stdout=stdout,
            cwd=Path(__file__).parent.parent,
        )
    try:
        wait_for(log, "Initializing TGen")
        yield process, log
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def server(directory: Path, port: int) -> Iterator[Path]:
    with running(write_server(directory, "server", port)) as (_, log):
        wait_for(log, "server listening")
        yield log


def read_to(sock: socket.socket, end: bytes) -> None:
    """Read until what has come ends like this."""
    data = b""
    while not data.endswith(end):
        more = sock.recv(65536)
        assert more, data
        data += more


def wait_for(log: Path, text: str, times: int = 1) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (content := log.read_text()).count(text) < times:
        assert time.monotonic() < deadline, f"{text!r} not {times} times in:\n{content}"
        time.sleep(0.01)
    return content


def run_client(config: Path) -> Path:
    """Run a client to its end action; its log."""
    with running(config) as (process, log):
        assert process.wait(PATIENCE_S) == 0
    return log


def one_stream(
    directory: Path,
    port: int,
    times: int = 1,
    start: dict[str, str] | None = None,
    **stream: str,
) -> Path:
    peers = {"peers": f"{LOOPBACK}:{port}", **(start or {})}
    nodes = {"start": peers, "stream": stream, "end": {"count": str(times)}}
    edges = (("start", "stream"), ("stream", "end"), ("end", "start"))
    return write_graph(directory / "client.graphml", nodes, *edges)


def ends(log: Path) -> list[dict[str, str]]:
    lines = [line for line in log.read_text().splitlines() if "[stream-" in line]
    found = [END_LINE.fullmatch(line) for line in lines if "[stream-status]" not in line]
    assert all(found), "\n".join(lines)
    return [match.groupdict() for match in found if match]


# --- a tiny SOCKS 5 server --------------------------------------------------------------------


class SocksHandler(socketserver.BaseRequestHandler):
    """Asks for user name and password, connects, and copies both ways."""

    server: SocksServer

    def handle(self) -> None:
        version, count = self.exactly(2)
        assert version == 5
        method = 2 if self.server.password is not None else 0
        assert method in self.exactly(count)
        self.request.sendall(bytes([5, method]))
        if method:
            self.exactly(1)
            username = self.exactly(self.exactly(1)[0])
            password = self.exactly(self.exactly(1)[0])
            self.server.seen.append((username, password))
            refused = password != self.server.password
            self.request.sendall(bytes([1, refused]))
            if refused:
                return
        assert self.exactly(4) == b"\5\1\0\1"
        host, port = socket.inet_ntoa(self.exactly(4)), int.from_bytes(self.exactly(2), "big")
        if self.server.status:
            self.request.sendall(bytes([5, self.server.status, 0, 1, 0, 0, 0, 0, 0, 0]))
            return
        with socket.create_connection((host, port)) as onward:
            # One byte at a time: an answer need not come in one piece.
            for byte in b"\5\0\0\1\x7f\0\0\1\1\1":
                self.request.sendall(bytes([byte]))
            copier = threading.Thread(target=copy, args=(self.request, onward))
            copier.start()
            copy(onward, self.request)
            copier.join()

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.request.recv(count - len(data))
            assert piece
            data += piece
        return data


class SocksServer(socketserver.ThreadingTCPServer):
    """Remembers the credentials that it saw."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, password: bytes | None, status: int) -> None:
        super().__init__((LOOPBACK, 0), SocksHandler)
        self.password = password
        self.status = status
        self.seen: list[tuple[bytes, bytes]] = []


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def socks_server(password: bytes | None = None, status: int = 0) -> Iterator[SocksServer]:
    with SocksServer(password, status) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def proxy_start(proxy: SocksServer, **more: str) -> dict[str, str]:
    return {"socksproxy": f"{LOOPBACK}:{proxy.server_address[1]}", **more}


# --- transfers that succeed -------------------------------------------------------------------


def test_download_and_every_field_of_its_line(tmp_path: Path) -> None:
    port = free_port()
    begin_s = time.time()
    with server(tmp_path, port) as server_log:
        log = run_client(one_stream(tmp_path, port, sendsize="0", recvsize="5 mb"))
        wait_for(server_log, "[stream-success]")
    (line,) = ends(log)
    assert line["what"] == "stream-success"
    assert line["level"] == "message"
    assert line["transport_state"] == "SUCCESS_OPEN"
    assert line["transport_error"] == line["error"] == "NONE"
    assert (line["id"], line["vertex"]) == ("0", "stream")
    assert line["name"] == line["peer_name"] == socket.gethostname()
    assert (line["send_size"], line["receive_size"]) == ("0", "5000000")
    assert (line["send_state"], line["receive_state"]) == ("SEND_SUCCESS", "RECV_SUCCESS")
    assert (line["payload_received"], line["payload_sent"]) == ("5000000", "0")
    # The response before the payload, "MD5 " and 32 digits after it, and "FIN".
    assert int(line["total_received"]) == 5_000_000 + response_bytes() + 37 + 4
    assert (line["progress_received"], line["progress_sent"]) == ("100.00%", "100.00%")
    times = {step: int(line[step.replace("-", "_")]) for step in STEPS}
    proxied = {step for step in STEPS if step.startswith("proxy-")}
    absent = {step for step, elapsed_us in times.items() if elapsed_us == -1}
    assert absent == proxied | {"first-byte-send", "last-byte-send", "checksum-send"}
    order = [step for step in RECEIVING_STEPS if step not in proxied]
    assert [times[step] for step in order] == sorted(times[step] for step in order)
    assert times["checksum-recv"] <= int(line["now"]) - int(line["created"])
    assert begin_s <= float(line["unix"]) <= time.time()

    (served,) = ends(server_log)
    assert served["vertex"] == "passive-stream:stream"
    assert (served["payload_sent"], served["payload_received"]) == ("5000000", "0")
    assert served["total_sent"] == line["total_received"]
    assert served["total_received"] == line["total_sent"]


def response_bytes() -> int:
    return len(f"{WORD.decode()} PROTOCOL_VERSION=2.0 HOSTNAME={socket.gethostname()} CODE=NONE\n")


def test_read_transfers(tmp_path: Path) -> None:
    port = free_port()
    begin_s = time.time()
    with server(tmp_path, port) as server_log:
        log = run_client(one_stream(tmp_path, port, times=3, sendsize="0", recvsize="100 kib"))
        wait_for(server_log, "[stream-success]", 3)
    transfers = read_transfers(log, "c1")
    assert [transfer.stream_id for transfer in transfers] == [0, 1, 2]
    for transfer, line in zip(transfers, ends(log), strict=True):
        assert transfer.client == "c1"
        assert transfer.ok and transfer.error is None
        assert transfer.bytes_received == 102_400
        assert transfer.first_byte_s == int(line["first_byte_recv"]) / 1e6
        assert transfer.last_byte_s == int(line["last_byte_recv"]) / 1e6
        assert begin_s <= transfer.start_s <= float(line["unix"])
    assert read_transfers(server_log, "server") == []


def test_tgentools_reads_our_log(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port):
        log = run_client(one_stream(tmp_path, port, times=2, sendsize="0", recvsize="100 kib"))
    found = tgentools_rules.parsed(log)
    assert found.name == socket.gethostname()
    assert found.errors == []
    expected = [(int(line["response"]) - int(line["command"])) / 1e6 for line in ends(log)]
    assert found.round_trip_s == expected
    assert len(found.first_byte_s) == len(found.last_byte_s) == 2


@pytest.mark.parametrize(("send", "receive"), [("3 mb", "0"), ("1 mb", "2 mb"), ("1", "1")])
def test_upload_and_both_ways(tmp_path: Path, send: str, receive: str) -> None:
    port = free_port()
    with server(tmp_path, port) as server_log:
        log = run_client(one_stream(tmp_path, port, sendsize=send, recvsize=receive))
        wait_for(server_log, "[stream-success]")
    (line,), (served,) = ends(log), ends(server_log)
    sent, received = (str(parse_bytes("", text)) for text in (send, receive))
    assert (line["payload_sent"], line["payload_received"]) == (sent, received)
    assert (served["payload_received"], served["payload_sent"]) == (sent, received)
    assert int(line["first_byte_send"]) <= int(line["last_byte_send"])
    assert int(line["last_byte_send"]) <= int(line["checksum_send"])


def test_through_a_proxy_with_user_and_password(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port), socks_server(password=b"secret") as proxy:
        start = proxy_start(proxy, socksusername="c1", sockspassword="secret")
        log = run_client(one_stream(tmp_path, port, start=start, sendsize="0", recvsize="1 mb"))
        assert proxy.seen == [(b"c1", b"secret")]
    (line,) = ends(log)
    assert line["what"] == "stream-success"
    times = [int(line[step.replace("-", "_")]) for step in RECEIVING_STEPS]
    assert -1 not in times
    assert times == sorted(times)


def test_through_a_proxy_without_a_user(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port), socks_server() as proxy:
        config = one_stream(tmp_path, port, start=proxy_start(proxy), sendsize="0", recvsize="1 mb")
        (transfer,) = read_transfers(run_client(config), "c1")
    assert transfer.ok


def test_random_credentials_for_each_stream(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port), socks_server(password=b"none fits") as proxy:
        start = proxy_start(proxy, socksauthseed="5", socksusername="ignored")
        log = run_client(one_stream(tmp_path, port, 2, start, sendsize="0", recvsize="1"))
        (first, first_password), (second, _) = proxy.seen
    assert first == first_password
    assert first != second
    assert len(first) == 7
    assert {transfer.error for transfer in read_transfers(log, "c1")} == {"PROXY AUTH"}


def test_a_model_that_ends_ends_the_stream(tmp_path: Path) -> None:
    """Without sizes both ends play the model: three packets each way."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    delay: dict[str, Any] = {"distribution": "uniform", "param_low": 0.0, "param_high": 0.0}
    graph.add_node("s0", type="state", name="start")
    for number, observation in enumerate("+-+-+-F", 1):
        graph.add_node(f"s{number}", type="state", name=f"s{number}")
        graph.add_node(f"o{number}", type="observation", name=observation)
        graph.add_edge(f"s{number - 1}", f"s{number}", type="transition", weight=1.0)
        graph.add_edge(f"s{number}", f"o{number}", type="emission", weight=1.0, **delay)
    model = tmp_path / "three.graphml"
    networkx.write_graphml(graph, model)
    port = free_port()
    for mode in ("graphml", "path"):
        with server(tmp_path, port) as server_log:
            config = one_stream(tmp_path, port, packetmodelpath=str(model), packetmodelmode=mode)
            (line,) = ends(run_client(config))
            wait_for(server_log, "[stream-success]")
        assert line["what"] == "stream-success"
        assert (line["payload_sent"], line["payload_received"]) == ("4380", "4380")
        assert line["progress_received"] == line["progress_sent"] == "100.00%"


def test_status_lines_at_info(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port):
        config = one_stream(
            tmp_path, port, start={"loglevel": "info"}, sendsize="0", recvsize="5 mb"
        )
        log = run_client(config)
    lines = [line for line in log.read_text().splitlines() if "[stream-status]" in line]
    matches = [STATUS_LINE.fullmatch(line) for line in lines]
    assert lines and all(matches)
    progress = [int(match["payload_received"]) for match in matches if match]
    assert progress == sorted(set(progress))


# --- transfers that fail ----------------------------------------------------------------------


@contextlib.contextmanager
def silent_server(answer: bytes = b"", close: bool = False) -> Iterator[int]:
    """Accepts one connection, reads the command, answers, and then says nothing more."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(65536)
                sock.sendall(answer)
                if not close:
                    done.wait(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join()


RESPONSE = WORD + b" PROTOCOL_VERSION=2.0 HOSTNAME=silent CODE=NONE\n"
PAYLOAD = b"t" * 100
CHECKSUM = b"MD5 " + hashlib.md5(PAYLOAD).hexdigest().encode() + b"\n"
PAYLOAD_AND_CHECKSUM = RESPONSE + PAYLOAD + CHECKSUM


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


def test_a_client_ends_with_its_footer_once_all_has_come(tmp_path: Path) -> None:
    """And the stream is over once it has the server's too."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        with running(one_stream(tmp_path, port, sendsize="0", recvsize="100")) as (process, log):
            sock = listener.accept()[0]
            with sock:
                sock.settimeout(PATIENCE_S)
                read_to(sock, b"</graphml>\n")
                sock.sendall(RESPONSE + PAYLOAD)
                sock.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    read_to(sock, b"FIN\n")
                sock.settimeout(PATIENCE_S)
                sock.sendall(CHECKSUM)
                read_to(sock, b"FIN\n")
                assert ends(log) == []
                sock.sendall(b"FIN\n")
                assert sock.recv(10) == b""
            assert process.wait(PATIENCE_S) == 0
    (line,) = ends(log)
    assert (line["what"], line["total_received"]) == (
        "stream-success",
        str(len(PAYLOAD_AND_CHECKSUM) + 4),
    )


class HandLoop(Loop):
    """Waits for nothing by itself: the test calls the handler."""

    def __init__(self) -> None:
        self._now_us = 0

    def register(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        self.handler = handler

    def modify(self, descriptor: int, events: int) -> None:
        pass

    def forget(self, descriptor: int) -> None:
        pass

    def at(self, deadline_us: int, callback: Callable[[], None]) -> Timer:
        return Timer(deadline_us, callback)


def test_a_server_writes_response_payload_checksum_and_footer_one_by_one() -> None:
    """As upstream: a Tor that reads the response alone sends it on in a cell of its own."""
    loop = HandLoop()
    ended: list[bool] = []
    with (
        socket.create_server((LOOPBACK, 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        listener.accept()[0] as sock,
        Path(os.devnull).open("wb") as log,
    ):
        around = Surroundings(
            loop, Log(descriptor=log.fileno()), socket.gethostname(), lambda *_: None
        )
        watched = Mock(wraps=sock)
        transport = Transport.accepted(loop, watched, Peer(LOOPBACK, 1))
        Stream(around, 0, "passive", StreamOptions(()), transport, None, ended.append)
        client.sendall(
            WORD + b" PROTOCOL_VERSION=2.0 HOSTNAME=h TRANSFER_ID=t SEND_SIZE=~ RECV_SIZE=100 "
            b"MODEL_NAME=m MODEL_SEED=1 MODEL_MODE=path MODEL_PATH=internal-packet-model\n"
        )
        select.select([sock], [], [], PATIENCE_S)
        loop.handler(READ)
        sizes = [len(call.args[0]) for call in watched.send.call_args_list]
        assert sizes == [response_bytes(), 100, 37, 4]
        assert ended == []
        client.sendall(b"FIN\n")
        select.select([sock], [], [], PATIENCE_S)
        loop.handler(READ)
    assert ended == [True]


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


# --- the action graph -------------------------------------------------------------------------


def test_weighted_edges_take_one_way(tmp_path: Path) -> None:
    port = free_port()
    nodes = {
        "start": {"peers": f"{LOOPBACK}:{port}", "markovmodelseed": "3"},
        "stream_often": {"sendsize": "0", "recvsize": "1"},
        "stream_seldom": {"sendsize": "0", "recvsize": "1"},
        "end": {"count": "60"},
    }
    # Upstream tests for 'end' before 'stream', so no id may contain it by chance.
    edges = [
        ("start", "stream_often", "3.0"),
        ("start", "stream_seldom", "1.0"),
        ("stream_often", "end"),
        ("stream_seldom", "end"),
        ("end", "start"),
    ]
    with server(tmp_path, port):
        logs = []
        for name in ("a", "b"):
            log = run_client(write_graph(tmp_path / f"{name}.graphml", nodes, *edges))
            logs.append([line["vertex"] for line in ends(log)])
    assert logs[0] == logs[1], "the same seed makes the same choices"
    assert len(logs[0]) == 60
    assert 30 < logs[0].count("stream_often") < 60


def markov_of(count: int, path: Path) -> Path:
    """A model that makes `count` children 20 ms apart and ends."""
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_node("s0", type="state", name="start")
    for number in range(1, count + 2):
        observation = "F" if number > count else "+"
        graph.add_node(f"s{number}", type="state", name=f"s{number}")
        graph.add_node(f"o{number}", type="observation", name=observation)
        graph.add_edge(f"s{number - 1}", f"s{number}", type="transition", weight=1.0)
        graph.add_edge(
            f"s{number}",
            f"o{number}",
            type="emission",
            weight=1.0,
            distribution="normal",
            param_location=20_000.0,
            param_scale=0.0,
        )
    networkx.write_graphml(graph, path)
    return path


# --- bad input --------------------------------------------------------------------------------


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
        ({"start": {}, "stream": {}}, [("start", "stream")], "no 'peers'"),
        (
            {"start": {"peers": "h:1"}, "stream": {"recvsize": "5 MiX"}},
            [("start", "stream")],
            "vertex 'stream': recvsize = '5 MiX'",
        ),
        ({"start": {}, "pause": {}}, [("start", "pause"), ("pause", "start")], "the cycle"),
        ({"start": {}, "pause": {}}, [], "vertex 'pause': no way leads there from 'start'"),
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
        [sys.executable, "-m", "testbed.traffic.tgen", str(path)],
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
            [sys.executable, "-m", "testbed.traffic.tgen", str(config)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent.parent,
        )
    assert finished.returncode == 1
    assert f"port {port}" in finished.stderr


# --- parts ------------------------------------------------------------------------------------


def test_quantities() -> None:
    assert parse_bytes("", "5 mb") == 5_000_000
    assert parse_bytes("", "5 MiB") == 5_242_880
    assert parse_bytes("", "12") == 12
    assert parse_time_us("", "2") == 2_000_000
    assert parse_time_us("", "1500 nsec") == 1
    assert parse_time_us("", "2 minutes") == 120_000_000
    assert parse_peers("", "localhost:1,b:2")[0].address == (LOOPBACK, 1)
    for bad in ("", "-1", "1.5", "5  ", "mb"):
        with pytest.raises(InputError):
            parse_bytes("sendsize", bad)


def test_digest_of_one_letter_and_of_others() -> None:
    """Whatever comes, in whatever pieces, the digest is MD5's (values by md5sum)."""
    cases = {
        b"a" * 1000: "cabe45dcc9ae5b66ba86600cca6b8ba8",
        b"a" * 10 + b"b" * 10: "59b6589fc51c22f38cc267331dd7011b",
        b"message digest": "f96b697d7cb7938d525a2f31aaf161d0",
    }
    for data, expected in cases.items():
        for step in (1, 7, len(data)):
            digest = PayloadDigest()
            for begin in range(0, len(data), step):
                digest.update(memoryview(data)[begin : begin + step])
            assert digest.hexdigest() == expected


def test_commands_of_upstream_are_understood() -> None:
    command = parse_command(
        WORD + b" PROTOCOL_VERSION=2.0 HOSTNAME=host TRANSFER_ID=stream SEND_SIZE=~ "
        b"RECV_SIZE=5242880 MODEL_NAME=m MODEL_SEED=42 MODEL_MODE=graphml MODEL_SIZE=10 NEW=1"
    )
    assert (command.send_bytes, command.receive_bytes) == (0, 5_242_880)
    assert (command.model_seed, command.model_bytes, command.model_path) == (42, 10, None)
    assert parse_response(WORD + b" PROTOCOL_VERSION=2.1 HOSTNAME=s CODE=NONE") == "s"


def test_markov_models_repeat_by_seed_and_end() -> None:
    first, second = (internal_model(INTERNAL_PACKET_MODEL, 5) for _ in range(2))
    sequence = [first.next_observation() for _ in range(200)]
    assert sequence == [second.next_observation() for _ in range(200)]
    assert {observation for observation, _ in sequence} == {"+", "-"}
    assert {delay_us for _, delay_us in sequence} == {0}
    assert first.is_immediate
    with pytest.raises(InputError, match="no GraphML"):
        MarkovModel("m", 1, "<nothing")


def test_a_markov_model_stays_at_its_end_until_reset(tmp_path: Path) -> None:
    model = MarkovModel.from_path(markov_of(1, tmp_path / "one.graphml"), 1)
    assert not model.is_immediate
    assert model.next_observation() == ("+", 20_000)
    assert model.next_observation()[0] == END
    assert model.next_observation() == (END, 0)
    model.reset()
    assert model.next_observation() == ("+", 20_000)


UPSTREAM_LINE = (
    "2024-02-01 03:04:05 1706756645.500000 [message] [tgen-stream.c:1200] [_tgenstream_log] "
    "[stream-success] transport [fd=9,local=localhost:127.0.0.1:40000,"
    "proxy=localhost:127.0.0.1:9050,remote=NULL:10.0.0.9:8888,state=SUCCESS_OPEN,error=NONE] "
    "stream [id=4,vertexid=stream,name=client,peername=server,sendsize=0,recvsize=100,"
    "sendstate=SEND_SUCCESS,recvstate=RECV_SUCCESS,error=NONE] bytes [total-bytes-recv=200,"
    "total-bytes-send=50,payload-bytes-recv=100,payload-bytes-send=0,"
    "payload-progress-recv=100.00%,payload-progress-send=100.00%] times [created-ts=7000000,"
    "usecs-to-socket-create=1,usecs-to-socket-connect=2,usecs-to-proxy-init=3,"
    "usecs-to-proxy-choice=4,usecs-to-proxy-request=5,usecs-to-proxy-response=6,"
    "usecs-to-command=7,usecs-to-response=200000,usecs-to-first-byte-recv=250000,"
    "usecs-to-last-byte-recv=400000,usecs-to-checksum-recv=400001,usecs-to-first-byte-send=-1,"
    "usecs-to-last-byte-send=-1,usecs-to-checksum-send=-1,now-ts=7500000]\n"
)


def test_reads_upstreams_lines(tmp_path: Path) -> None:
    log = tmp_path / "upstream.log"
    failed = UPSTREAM_LINE.replace("[stream-success]", "[stream-error]").replace("id=4", "id=5")
    failed = failed.replace("RECV_SUCCESS,error=NONE", "RECV_NONE,error=PROXY")
    failed = failed.replace("SUCCESS_OPEN,error=NONE", "ERROR,error=STATUS")
    log.write_text(UPSTREAM_LINE + failed + UPSTREAM_LINE[:400])
    first, second = read_transfers(log, "c1")
    assert first == Transfer("c1", 4, 40000, 1706756645.0, 0.5, first.step_s, 100, 0, True, None)
    assert (first.first_byte_s, first.last_byte_s) == (0.25, 0.4)
    assert (second.stream_id, second.ok, second.error) == (5, False, "PROXY STATUS")


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    log = tmp_path / "broken.log"
    log.write_text("a line\n" + UPSTREAM_LINE.replace("now-ts=7500000", "now-ts=soon"))
    with pytest.raises(TestbedError, match=r"broken\.log: line 2"):
        read_transfers(log, "c1")
    with pytest.raises(TestbedError, match=r"missing\.log"):
        read_transfers(tmp_path / "missing.log", "c1")
