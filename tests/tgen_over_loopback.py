"""For tests: runs the bundled traffic generator over loopback, and parses its log lines."""

from __future__ import annotations

import contextlib
import hashlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import networkx

from testbed.inside.traffic.models import write_server
from testbed.inside.traffic.tgen.command import WORD

LOOPBACK = "127.0.0.1"
# Real seconds after which anything here counts as hung.
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
    """Run a generator; end it with SIGTERM, and require exit status 0. Yields it and its log."""
    log = config.with_suffix(".log")
    with log.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.inside.traffic.tgen", str(config)],
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


def wait_for(log: Path, text: str, times: int = 1) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (content := log.read_text()).count(text) < times:
        assert time.monotonic() < deadline, f"{text!r} not {times} times in:\n{content}"
        time.sleep(0.01)
    return content


def run_client(config: Path) -> Path:
    """Run a client to its end action, and return its log."""
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


def response_bytes() -> int:
    return len(f"{WORD.decode()} PROTOCOL_VERSION=2.0 HOSTNAME={socket.gethostname()} CODE=NONE\n")


@contextlib.contextmanager
def silent_server(answer: bytes = b"", close: bool = False) -> Iterator[int]:
    """Accept one connection, read the command, answer, and then stay silent."""
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


def markov_of(count: int, path: Path) -> Path:
    """Write a model that makes `count` children 20 ms apart and then ends."""
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
