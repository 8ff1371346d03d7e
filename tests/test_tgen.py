"""The bundled traffic generator, end to end over loopback: transfers, proxy, log lines.

Errors are tested in test_tgen_errors, the models' definitions in test_traffic_models, times in
test_tgen_times.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import networkx
import pytest
import tgentools_rules
from socks_proxy import proxy_start, socks_server
from tgen_over_loopback import (
    CHECKSUM,
    LOOPBACK,
    PATIENCE_S,
    PAYLOAD,
    PAYLOAD_AND_CHECKSUM,
    RECEIVING_STEPS,
    RESPONSE,
    STATUS_LINE,
    STEPS,
    ends,
    free_port,
    one_stream,
    response_bytes,
    run_client,
    running,
    server,
    wait_for,
    write_graph,
)

from testbed.inside.traffic.tgen.command import WORD
from testbed.inside.traffic.tgen.log import Log
from testbed.inside.traffic.tgen.loop import READ, Loop, Timer
from testbed.inside.traffic.tgen.options import (
    Peer,
    StreamOptions,
    parse_bytes,
)
from testbed.inside.traffic.tgen.stream import Stream
from testbed.inside.traffic.tgen.stream_state import Surroundings
from testbed.inside.traffic.tgen.transport import Transport
from testbed.inside.traffic.tgen_log import read_transfers


def read_to(sock: socket.socket, end: bytes) -> None:
    """Read until the data ends with `end`."""
    data = b""
    while not data.endswith(end):
        more = sock.recv(65536)
        assert more, data
        data += more


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
    """Without sizes both ends play the whole model: three packets each way."""
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


def test_a_client_sends_its_footer_once_all_has_arrived(tmp_path: Path) -> None:
    """The stream is over once the client has the server's footer as well."""
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
    """A loop that waits for nothing: the test calls the handler."""

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
    """As upstream: a Tor that reads the response by itself sends it in its own cell."""
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
