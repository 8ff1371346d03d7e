"""Reads the log lines of upstream's TGen and of ours into typed records.

`tgen` writes them; the analysis interprets the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import TestbedError

_ENDS = ("[stream-success]", "[stream-error]")
_HEARTBEAT = "[driver-heartbeat]"
_PARTS = ("transport", "stream", "bytes", "times")

STEPS = (
    *("socket-create", "socket-connect"),
    *("proxy-init", "proxy-choice", "proxy-request", "proxy-response"),
    *("command", "response"),
    *("first-byte-recv", "last-byte-recv", "checksum-recv"),
)
"""The steps of a client's stream that receives, by TGen's names and in order.

The socket is created and connected. The greeting is sent to the proxy and its choice of a method
read; the request is sent and the answer read (with Tor, it comes after a CONNECTED cell). The
command is sent, then the server's response, the payload and its checksum are read.
"""


@dataclass(frozen=True)
class Transfer:
    """One stream of a client, complete or failed.

    The times of its steps are TGen's `usecs-to-…`. All count from `created-ts`, just before the
    client made the socket. So the times to first and last byte include the connection to the proxy,
    its handshake (with Tor: the BEGIN cell's way to the exit and back), the request and the
    payload, but not the checksum after it.

    Attributes:
        client: the client whose log has the stream.
        stream_id: unique among the client's streams.
        port: the client's port of the stream's connection; None if there was none.
        start_s: `created-ts` on the Unix clock: the line's time less the time since.
        lasted_s: from `start_s` to the line, including the checksum.
        step_s: when each of `STEPS` was reached; None if it was not. In a failed stream the last
            byte is the last one that arrived.
        bytes_received, bytes_sent: payload.
        ok: whether all of the payload arrived and the checksum was right.
        error: TGen's name of the error, or None. A proxy's error is followed by the transport's.
    """

    client: str
    stream_id: int
    port: int | None
    start_s: float
    lasted_s: float
    step_s: Mapping[str, float | None]
    bytes_received: int
    bytes_sent: int
    ok: bool
    error: str | None

    @property
    def first_byte_s(self) -> float | None:
        """Time to the first byte of payload; None if none arrived."""
        return self.step_s["first-byte-recv"]

    @property
    def last_byte_s(self) -> float | None:
        """Time to the last byte of payload that arrived; None if none did.

        For a complete upload, time to the end of the stream, when the server confirms the last
        byte. The time of writing it means nothing, as the client's Tor takes it at once.
        """
        if self.ok and self.bytes_sent and not self.bytes_received:
            return self.lasted_s
        return self.step_s["last-byte-recv"]


@dataclass(frozen=True)
class Heartbeat:
    """Bytes that a generator has moved since its last heartbeat: payload and a little more.

    Attributes:
        client: the client whose log has the heartbeat.
        time_s: time of the heartbeat on the Unix clock.
        bytes_received: read from all of its sockets.
        bytes_sent: written to all of its sockets.
        pending_streams: streams under way.
    """

    client: str
    time_s: float
    bytes_received: int
    bytes_sent: int
    pending_streams: int


def generator_log(logs: Path, node: str) -> Path:
    """The path of a node's generator's log."""
    return logs / f"tgen-{node}.log"


def read_transfers(path: Path, client: str) -> list[Transfer]:
    """Read the streams that a generator opened, in the order of their ends.

    An incomplete last line, as a killed generator leaves it, is ignored.

    Raises:
        TestbedError: the file can't be read, or a stream's line is not in TGen's format.
    """
    transfers = []
    for number, words in _lines(path):
        if len(words) > 6 and words[6] in _ENDS:
            try:
                transfer = _transfer(client, words)
            except (IndexError, KeyError, ValueError):
                raise TestbedError(f"{path}: line {number}: not a TGen stream's line") from None
            if transfer is not None:
                transfers.append(transfer)
    return transfers


def read_heartbeats(path: Path, client: str) -> list[Heartbeat]:
    """Read a generator's heartbeats in order of time.

    Raises:
        TestbedError: the file can't be read, or a heartbeat is not in TGen's format.
    """
    heartbeats = []
    for number, words in _lines(path):
        if len(words) > 7 and words[6] == _HEARTBEAT:
            try:
                fields = _fields(words[7])
                received, sent = int(fields["bytes-read"]), int(fields["bytes-written"])
                pending = int(fields.get("total-streams-pending", 0))
                heartbeats.append(Heartbeat(client, float(words[2]), received, sent, pending))
            except (KeyError, ValueError):
                raise TestbedError(f"{path}: line {number}: not a TGen heartbeat") from None
    return heartbeats


def has_settled(path: Path, client: str, since_s: float, at_once: int = 1) -> bool:
    """Whether all streams that a client began before a Unix time have ended.

    Args:
        path: the log of the client's generator.
        client: name of the client.
        since_s: the Unix time.
        at_once: how many streams begin together; the next ones begin when all of them have ended.

    Raises:
        TestbedError: as `read_transfers` and `read_heartbeats`.
    """
    beats = [beat for beat in read_heartbeats(path, client) if beat.time_s >= since_s]
    if any(not beat.pending_streams for beat in beats):
        return True
    ends_s = [stream.start_s + stream.lasted_s for stream in read_transfers(path, client)]
    loads_before = sum(end_s < since_s for end_s in ends_s) // at_once
    return len(ends_s) >= (loads_before + 1) * at_once


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.endswith("\n"):
            yield number, line.split()


def _transfer(client: str, words: list[str]) -> Transfer | None:
    # Words: date, time, Unix time, level, file, function, [stream-…], then words, each followed by
    # a bracket.
    parts = {word: _fields(words[words.index(word, 7) + 1]) for word in _PARTS}
    if parts["stream"]["vertexid"].startswith("passive-stream"):
        return None
    times = parts["times"]
    since_start_s = (int(times["now-ts"]) - int(times["created-ts"])) / 1e6
    ok = words[6] == _ENDS[0]
    return Transfer(
        client=client,
        stream_id=int(parts["stream"]["id"]),
        port=_port(parts["transport"].get("local", "")),
        start_s=float(words[2]) - since_start_s,
        lasted_s=since_start_s,
        step_s={step: _elapsed_s(times[f"usecs-to-{step}"]) for step in STEPS},
        bytes_received=int(parts["bytes"]["payload-bytes-recv"]),
        bytes_sent=int(parts["bytes"]["payload-bytes-send"]),
        ok=ok,
        error=None if ok else _error(parts["stream"]["error"], parts["transport"]["error"]),
    )


def _fields(bracket: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in bracket.strip("[]").split(","))
    return {key: value for key, _, value in pairs}


def _port(peer: str) -> int | None:
    """The port of a peer such as "localhost:127.0.0.1:40000"; None if it is unknown."""
    digits = peer.rpartition(":")[2]
    return (int(digits) or None) if digits.isdecimal() else None


def _elapsed_s(microseconds: str) -> float | None:
    return int(microseconds) / 1e6 if int(microseconds) >= 0 else None


def _error(stream: str, transport: str) -> str:
    return f"{stream} {transport}" if stream == "PROXY" else stream
