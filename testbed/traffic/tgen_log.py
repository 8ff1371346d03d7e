"""Reads TGen's log lines, upstream's or ours, into typed records.

Writing them belongs to `tgen`; what the records mean for an experiment to the analysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError

_ENDS = ("[stream-success]", "[stream-error]")
_HEARTBEAT = "[driver-heartbeat]"
_PARTS = ("transport", "stream", "bytes", "times")

STEPS = (
    *("socket-create", "socket-connect"),
    *("proxy-init", "proxy-choice", "proxy-request", "proxy-response"),
    *("command", "response"),
    *("first-byte-recv", "last-byte-recv", "checksum-recv"),
)
"""What a client's stream goes through as it receives, by TGen's names, in that order.

The socket is made and connected; greeting and request have been sent to the proxy, and its choice
of a method and its answer (with Tor: that a CONNECTED cell has come) have been read; the command
has been sent, the server's response read, then the payload and its checksum.
"""


@dataclass(frozen=True)
class Transfer:
    """One stream of a client, complete or failed.

    The times of its steps are TGen's `usecs-to-…`. All count from `created-ts`, the moment before
    the client made the socket: so those to the first and the last byte contain the connection to
    the proxy, its handshake (with Tor: the BEGIN cell's way to the exit and back), the request and
    the payload, not the checksum after it.

    Attributes:
        client: whose log it is from.
        stream_id: unique among the client's streams.
        port: the client's end of the stream's socket; None if it didn't come to one.
        start_s: `created-ts` on the Unix clock, that is the line's time less the time since.
        lasted_s: from then to the line, checksum included.
        step_s: when each of `STEPS` was reached, None if it wasn't; of a failed stream, the last
            byte is the last one that came.
        bytes_received, bytes_sent: payload.
        ok: whether all of it came and the checksum was right.
        error: None, or TGen's name of the error; of the proxy's, with the transport's after it.
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
        """To the first byte of payload; None if none came."""
        return self.step_s["first-byte-recv"]

    @property
    def last_byte_s(self) -> float | None:
        """To the last byte of payload that came; None if none did.

        Of a whole stream that only sent, to the server's word that the last byte has come, which is
        the stream's end: when a byte was written tells nothing, as the client's Tor takes it at
        once.
        """
        if self.ok and self.bytes_sent and not self.bytes_received:
            return self.lasted_s
        return self.step_s["last-byte-recv"]


@dataclass(frozen=True)
class Heartbeat:
    """What a generator moved since its heartbeat before: all bytes, a little more than payload.

    Attributes:
        client: whose log it is from.
        time_s: the heartbeat, on the Unix clock.
        bytes_received: from all of its sockets.
        bytes_sent: to all of its sockets.
        pending_streams: those under way.
    """

    client: str
    time_s: float
    bytes_received: int
    bytes_sent: int
    pending_streams: int


def generator_log(logs: Path, node: str) -> Path:
    """Where a node's generator writes its log."""
    return logs / f"tgen-{node}.log"


def read_transfers(path: Path, client: str) -> list[Transfer]:
    """The streams that a generator began itself, in the order of their ends.

    A last line without its end, as a killed generator leaves it, is passed over.

    Raises:
        TestbedError: the file can't be read, or a stream's line isn't as TGen writes it.
    """
    transfers = []
    for number, words in _lines(path):
        if len(words) > 6 and words[6] in _ENDS:
            try:
                transfer = _transfer(client, words)
            except (IndexError, KeyError, ValueError):
                raise TestbedError(f"{path}: line {number}: no line of a TGen stream") from None
            if transfer is not None:
                transfers.append(transfer)
    return transfers


def read_heartbeats(path: Path, client: str) -> list[Heartbeat]:
    """A generator's heartbeats in order of time.

    Raises:
        TestbedError: the file can't be read, or a heartbeat isn't as TGen writes it.
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
                raise TestbedError(f"{path}: line {number}: no heartbeat of TGen") from None
    return heartbeats


def has_settled(path: Path, client: str, since_s: float, at_once: int = 1) -> bool:
    """Whether no stream of a client that began before a Unix time is under way any more.

    Args:
        at_once: how many streams begin together; the next begin when all of them have ended.

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
    # Words: date, time, Unix time, level, file, function, [stream-…], then pairs of a word and
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
    """The port of a peer such as "localhost:127.0.0.1:40000"; None of one that isn't known."""
    digits = peer.rpartition(":")[2]
    return (int(digits) or None) if digits.isdecimal() else None


def _elapsed_s(microseconds: str) -> float | None:
    return int(microseconds) / 1e6 if int(microseconds) >= 0 else None


def _error(stream: str, transport: str) -> str:
    return f"{stream} {transport}" if stream == "PROXY" else stream
