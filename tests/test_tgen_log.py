"""Reading TGen's log: lines as upstream's C program writes them, and what is derived from them.

The format is that of upstream's tgen-log.c, tgen-driver.c, tgen-stream.c, tgen-transport.c and
tgen-peer.c, version 1. The values are made up. The bundled program's lines are in test_tgen.
"""

import re
from pathlib import Path

import pytest
import tgentools_rules
from tgen_over_loopback import END_LINE, STEPS

from testbed.basics.errors import TestbedError
from testbed.inside.traffic.tgen_log import (
    Heartbeat,
    Transfer,
    has_settled,
    read_heartbeats,
    read_transfers,
)

UNIX_S = 1_800_000_050.25
CREATED_US = 90_000_000
PEER = "localhost:127.0.0.1:9050"


def line(function: str, text: str, unix_s: float = UNIX_S, level: str = "message") -> str:
    stamp = f"2027-01-15 08:00:50 {unix_s:.6f}"
    return f"{stamp} [{level}] [tgen-stream.c:1618] [{function}] {text}\n"


def stream_line(
    what: str = "stream-success",
    *,
    stream: str = "[id=7,vertexid=stream,name=client1,peername=server1,sendsize=0,"
    "recvsize=5000000,sendstate=SEND_SUCCESS,recvstate=RECV_SUCCESS,error=NONE]",
    transport_end: str = "state=SUCCESS_OPEN,error=NONE",
    received: tuple[int, str] = (5_000_000, "100.00%"),
    sent_bytes: int = 0,
    lasted_us: int = 2_000_000,
    unix_s: float = UNIX_S,
    **steps_us: int,
) -> str:
    """Make a line about a stream; steps that are not given are -1, which means not reached."""
    times = ",".join(
        f"usecs-to-{step}={steps_us.get(step.replace('-', '_'), -1)}" for step in STEPS
    )
    return line(
        "_tgenstream_log",
        f"[{what}] transport [fd=12,local={PEER},proxy={PEER},remote=NULL:10.0.5.1:8888,"
        f"{transport_end}] stream {stream} bytes [total-bytes-recv={received[0] + 120},"
        f"total-bytes-send={sent_bytes + 140},payload-bytes-recv={received[0]},"
        f"payload-bytes-send={sent_bytes},"
        f"payload-progress-recv={received[1]},payload-progress-send=100.00%] "
        f"times [created-ts={CREATED_US},{times},now-ts={CREATED_US + lasted_us}]",
        unix_s,
    )


SUCCESS = stream_line(
    socket_create=12,
    socket_connect=210,
    proxy_init=283,
    proxy_choice=348,
    proxy_request=412,
    proxy_response=60_000,
    command=60_050,
    response=120_000,
    first_byte_recv=120_010,
    last_byte_recv=1_900_000,
    checksum_recv=1_990_000,
)
REFUSED = stream_line(
    "stream-error",
    stream="[id=8,vertexid=stream,name=client1,peername=(null),sendsize=0,recvsize=5000000,"
    "sendstate=SEND_COMMAND,recvstate=RECV_NONE,error=PROXY]",
    transport_end="state=ERROR,error=STATUS",
    received=(0, "0.00%"),
    socket_create=12,
)
STALLED = stream_line(
    "stream-error",
    stream="[id=9,vertexid=stream,name=client1,peername=server1,sendsize=0,recvsize=5000000,"
    "sendstate=SEND_SUCCESS,recvstate=RECV_ERROR,error=STALLOUT]",
    received=(1_250_000, "25.00%"),
    lasted_us=40_000_000,
    first_byte_recv=120_010,
    last_byte_recv=9_000_000,
)
UPLOADED = stream_line(
    received=(0, "100.00%"),
    sent_bytes=5_000_000,
    lasted_us=3_000_000,
    command=60_050,
    response=120_000,
)
SERVED = stream_line(
    stream="[id=3,vertexid=passive-stream:stream,name=server1,peername=client1,sendsize=5000000,"
    "recvsize=0,sendstate=SEND_SUCCESS,recvstate=RECV_SUCCESS,error=NONE]",
    received=(0, "100.00%"),
)


def heartbeat(fields: str, unix_s: float = UNIX_S) -> str:
    return line("_tgendriver_onHeartbeat", f"[driver-heartbeat] [{fields}]", unix_s)


def log(folder: Path, *lines: str) -> Path:
    path = folder / "tgen-client1.log"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("text", [SUCCESS, REFUSED, STALLED, UPLOADED, SERVED])
def test_these_lines_match_the_bundled_programs_grammar(text: str) -> None:
    ours = re.sub(r"tgen-stream\.c:\d+", "stream.py:0", text.rstrip("\n"))
    assert END_LINE.fullmatch(ours)


def test_a_stream_that_succeeded(tmp_path: Path) -> None:
    (transfer,) = read_transfers(log(tmp_path, SUCCESS), "client1")
    assert transfer == Transfer(
        client="client1",
        stream_id=7,
        port=9050,
        start_s=UNIX_S - 2.0,
        lasted_s=2.0,
        step_s={
            "socket-create": 0.000012,
            "socket-connect": 0.00021,
            "proxy-init": 0.000283,
            "proxy-choice": 0.000348,
            "proxy-request": 0.000412,
            "proxy-response": 0.06,
            "command": 0.06005,
            "response": 0.12,
            "first-byte-recv": 0.12001,
            "last-byte-recv": 1.9,
            "checksum-recv": 1.99,
        },
        bytes_received=5_000_000,
        bytes_sent=0,
        ok=True,
        error=None,
    )


def test_an_upload_ends_when_the_server_confirms_the_last_byte(tmp_path: Path) -> None:
    broken = UPLOADED.replace("stream-success", "stream-error")
    whole, failed = read_transfers(log(tmp_path, UPLOADED, broken), "client1")
    assert (whole.bytes_received, whole.bytes_sent) == (0, 5_000_000)
    assert (whole.first_byte_s, whole.last_byte_s) == (None, 3.0)
    assert failed.last_byte_s is None


def test_streams_that_failed(tmp_path: Path) -> None:
    refused, stalled = read_transfers(log(tmp_path, REFUSED, STALLED), "client1")
    assert (refused.ok, refused.error, refused.bytes_received) == (False, "PROXY STATUS", 0)
    assert (refused.first_byte_s, refused.last_byte_s) == (None, None)
    assert [step for step, at_s in refused.step_s.items() if at_s is not None] == ["socket-create"]
    assert (stalled.ok, stalled.error, stalled.bytes_received) == (False, "STALLOUT", 1_250_000)
    assert (stalled.last_byte_s, stalled.lasted_s) == (9.0, 40.0)


def test_other_lines_are_ignored(tmp_path: Path) -> None:
    others = [
        line("_tgenmain_run", "Initializing TGen v1.1.1 running GLib v2.74.6 on host client1"),
        line("_tgenlog_setLogFilterLevel", "Changed log level filter from 'default' to 'message'"),
        SERVED,
        SUCCESS.replace("[message]", "[info]").replace("[stream-success]", "[stream-status]"),
        heartbeat("bytes-read=0,bytes-written=0"),
        line("_tgenpeer_lookupName", "getnameinfo(): returned -3", level="warning"),
    ]
    path = log(tmp_path, *others, SUCCESS, SUCCESS[:200])
    assert [transfer.stream_id for transfer in read_transfers(path, "client1")] == [7]


FIRST_LINE = (
    "Initializing TGen v1.1.2 running GLib v2.74.6 and IGraph v0.10.4 on host client1 with process"
    " id 17"
)


def test_tgentools_reads_upstreams_log(tmp_path: Path) -> None:
    """Our reader finds the same times."""
    first = line("_tgenmain_run", FIRST_LINE)
    path = log(tmp_path, first, heartbeat("bytes-read=9,bytes-written=4"), SUCCESS, REFUSED)
    found = tgentools_rules.parsed(path)
    assert (found.name, found.errors) == ("client1", ["PROXY-STATUS"])
    assert found.heartbeats == [{"bytes-read": 9, "bytes-written": 4}]
    step_s = read_transfers(path, "client1")[0].step_s
    command_s, response_s = step_s["command"], step_s["response"]
    assert command_s and response_s
    assert found.round_trip_s == pytest.approx([0.05995])
    assert response_s - command_s == pytest.approx(0.05995)
    assert found.last_byte_s == pytest.approx([1.83995])


def test_tgentools_refuses_a_log_of_another_version(tmp_path: Path) -> None:
    path = log(tmp_path, line("_tgenmain_run", FIRST_LINE.replace("1.1.2", "1.0.0")), SUCCESS)
    with pytest.raises(ValueError, match=r"mismatch: 1\.0\.0"):
        tgentools_rules.parsed(path)


def test_heartbeats_have_a_count_only_if_it_is_not_zero(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        heartbeat("bytes-read=0,bytes-written=0"),
        heartbeat(
            "bytes-read=123,bytes-written=45,streams-created=2,streams-succeeded=1,"
            "total-streams-created=9,total-streams-succeeded=7,total-streams-failed=1,"
            "total-streams-pending=1,total-flows-created=9,total-flows-succeeded=8,"
            "total-flows-pending=1"
        ),
    )
    assert read_heartbeats(path, "client1") == [
        Heartbeat("client1", UNIX_S, 0, 0, pending_streams=0),
        Heartbeat("client1", UNIX_S, 123, 45, pending_streams=1),
    ]


@pytest.mark.parametrize(
    ("text", "settled"),
    [
        ("", False),
        # Heartbeats while a stream is under way, and then while none is.
        (heartbeat("bytes-read=9,bytes-written=9,total-streams-pending=1", UNIX_S + 1), False),
        (heartbeat("bytes-read=0,bytes-written=0", UNIX_S - 1), False),
        (heartbeat("bytes-read=0,bytes-written=0", UNIX_S + 1), True),
        # The first end after the moment is that of the stream under way.
        (stream_line(unix_s=UNIX_S - 1), False),
        (stream_line(unix_s=UNIX_S + 1), True),
        (STALLED.replace(f"{UNIX_S:.6f}", f"{UNIX_S + 1:.6f}"), True),
    ],
)
def test_whether_a_client_has_settled(tmp_path: Path, text: str, settled: bool) -> None:
    assert has_settled(log(tmp_path, text), "client1", UNIX_S) is settled


@pytest.mark.parametrize(
    ("ends_s", "settled"),
    [
        # Three begin together: those under way are over when the number of ends is a multiple of 3.
        ([-2, -1], False),
        ([-2, -1, 1], True),
        ([-3, -2, -1], False),
        ([-3, -2, -1, 1, 2], False),
        ([-3, -2, -1, 1, 2, 3], True),
    ],
)
def test_whether_streams_that_began_together_have_settled(
    tmp_path: Path, ends_s: list[int], settled: bool
) -> None:
    text = "".join(stream_line(unix_s=UNIX_S + end_s) for end_s in ends_s)
    assert has_settled(log(tmp_path, text), "client1", UNIX_S, 3) is settled


@pytest.mark.parametrize(
    "broken",
    [
        SUCCESS.replace("usecs-to-last-byte-recv=1900000", "usecs-to-last-byte-recv=soon"),
        SUCCESS.replace("payload-bytes-recv", "payload-recv"),
        SUCCESS.replace(" bytes ", " octets "),
    ],
)
def test_a_malformed_stream_line(tmp_path: Path, broken: str) -> None:
    path = log(tmp_path, SUCCESS, broken)
    with pytest.raises(TestbedError, match=f"{path}: line 2: not a TGen stream's line"):
        read_transfers(path, "client1")


def test_a_heartbeat_of_an_old_version(tmp_path: Path) -> None:
    """Before version 1 heartbeats had no brackets."""
    old = heartbeat("bytes-read=9 bytes-written=9").replace("[bytes", "bytes").replace("9]", "9")
    path = log(tmp_path, old)
    with pytest.raises(TestbedError, match=f"{path}: line 1: not a TGen heartbeat"):
        read_heartbeats(path, "client1")


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
