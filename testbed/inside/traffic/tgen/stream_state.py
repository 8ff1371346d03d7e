"""State shared by the two halves of a stream, and by all streams of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.inside.traffic.tgen.log import Log
from testbed.inside.traffic.tgen.loop import Loop, coarse_us
from testbed.inside.traffic.tgen.report import StreamDirection, StreamTimes


@dataclass(frozen=True)
class Surroundings:
    """Objects shared by all streams of a process.

    Attributes:
        on_bytes: called with the bytes read and written whenever a stream reads or writes.
    """

    loop: Loop
    log: Log
    hostname: str
    on_bytes: Callable[[int, int], None]


@dataclass
class StreamState:
    """How far a stream has got, as its log lines report it.

    Attributes:
        number: unique in this process.
        vertex: the action that asked for the stream.
        is_client: whether this end opened the stream.
        sent, received: the two directions, as seen from this end.
        peer_name: the other end's host name, once it has said it.
        error: TGen's name of the error; "NONE" while there is none.
        progress_us: when the last byte moved, by the coarse clock; 0 before.
        batches: whether payload may be read and reported in large pieces.
    """

    number: int
    vertex: str
    is_client: bool
    sent: StreamDirection
    received: StreamDirection
    peer_name: str = "(null)"
    error: str = "NONE"
    times: StreamTimes = field(default_factory=StreamTimes)
    progress_us: int = 0
    batches: bool = False

    def describe(self, hostname: str) -> str:
        """Describe the stream in brackets, as in a log line."""
        return (
            f"[id={self.number},vertexid={self.vertex},name={hostname},"
            f"peername={self.peer_name},sendsize={self.sent.requested or 0},"
            f"recvsize={self.received.requested or 0},sendstate={self.sent.state},"
            f"recvstate={self.received.state},error={self.error}]"
        )

    def note_progress(self) -> None:
        """Note that bytes have moved just now."""
        self.progress_us = coarse_us()

    def may_send_footer(self) -> bool:
        """Whether this end may say that it is done: once it has all of the other's payload.

        If the size is unknown the other end waits for our footer before it closes, so there is
        nothing to wait for here.
        """
        unknown = self.received.requested is None
        return unknown or self.received.state in ("RECV_FOOTER", "RECV_SUCCESS")

    def fail(self, error: str) -> None:
        """Note the error that ends the stream, in the direction that it concerns."""
        if error in ("READ", "READEOF", "MISC", "CHECKSUM", "FOOTER", "AUTH"):
            self.received.state = "RECV_ERROR"
        elif error in ("WRITE", "WRITEEOF", "MODEL"):
            self.sent.state = "SEND_ERROR"
        self._note_last_bytes()

    def _note_last_bytes(self) -> None:
        # The precise clock isn't read between the first and the last byte, so a failed stream's
        # last byte is only known to a tick.
        times = self.times
        if times.first_byte_received and not times.last_byte_received:
            times.last_byte_received = max(times.first_byte_received, self.progress_us)
        if times.first_byte_sent and not times.last_byte_sent:
            times.last_byte_sent = max(times.first_byte_sent, self.progress_us)
