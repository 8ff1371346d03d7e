"""The sending half of a stream: command or response, payload, checksum, footer.

When it may write is decided in `stream`; how much payload is due, in `pacing`.
"""

from __future__ import annotations

from testbed.inside.traffic.tgen.command import compose_response
from testbed.inside.traffic.tgen.markov import MarkovModel
from testbed.inside.traffic.tgen.pacing import Pacing, PacingError
from testbed.inside.traffic.tgen.payload import SEND_BUFFER, sent_digest
from testbed.inside.traffic.tgen.stream_state import StreamState, Surroundings
from testbed.inside.traffic.tgen.transport import Transport

_FOOTER = b"FIN\n"


class Sender:
    """Writes what a stream has to say.

    Response, payload, checksum and footer are one write each, as upstream. That decides when they
    arrive, because of Nagle's algorithm and because a Tor relays what it has read.
    """

    def __init__(self, around: Surroundings, state: StreamState, transport: Transport) -> None:
        self._around = around
        self._state = state
        self._transport = transport
        self._head = b""
        self._tail = b""
        self._pacing: Pacing | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether to try to write without waiting for the socket to report that it is writable."""
        return bool(self._head) or self._state.sent.state == "SEND_FOOTER"

    @property
    def wants_to_write(self) -> bool:
        """Whether there is something left to write."""
        if self._state.sent.state == "SEND_FOOTER":
            return self._state.may_send_footer()
        return self._state.sent.state not in ("SEND_NONE", "SEND_SUCCESS", "SEND_ERROR")

    @property
    def deferred_until_us(self) -> int:
        """The monotonic time before which the packet model sends nothing; 0 if it may send now."""
        if self._head or self._pacing is None or self._pacing.finished:
            return 0
        return self._pacing.barrier_us

    @property
    def expected_bytes(self) -> int:
        """The payload that the other end sends by the packet model, as far as it was played."""
        return self._pacing.expected_bytes if self._pacing else 0

    def begin(self, model: MarkovModel, head: bytes) -> None:
        """Send a line first (the command or the response), then payload by a packet model."""
        sent = self._state.sent
        self._pacing = Pacing(model, self._state.is_client, sent.requested)
        # Status lines and paced models need to know of each piece as it comes.
        self._state.batches = model.is_immediate and not self._around.log.says_info
        if sent.requested:
            self._tail = f"MD5 {sent_digest(sent.requested)}\n".encode()
        self._head = head

    def refuse(self, code: str) -> None:
        """Answer a command with an error, and send nothing more."""
        self._head = compose_response(self._around.hostname, code)
        self._state.sent.state = "SEND_RESPONSE"
        self.write()
        self._state.sent.state = "SEND_SUCCESS"

    def write(self) -> None:
        """Write what is due, as far as the socket takes it."""
        assert self._pacing is not None or self._head
        try:
            more = True
            while more:
                self._advance()
                more = self._write_next()
            self._advance()
        except BlockingIOError:
            return
        except PacingError:
            self._state.error = "MODEL"
        except OSError:
            self._state.error = "WRITE"

    def _write_next(self) -> bool:
        """Write the next piece if one is due; return whether to go on at once."""
        payload_bytes = 0 if self._head else self._due_bytes()
        if self._head:
            buffer: bytes | memoryview = self._head
        elif payload_bytes:
            buffer = SEND_BUFFER[:payload_bytes]
        elif self._state.sent.state == "SEND_CHECKSUM":
            buffer = self._tail
        else:
            return False
        count = self._transport.sock.send(buffer)
        self._on_sent(count, payload_bytes)
        # Other streams get their turn between two buffers of payload.
        ended = not payload_bytes or (self._pacing is not None and self._pacing.finished)
        return ended and count == len(buffer)

    def _due_bytes(self) -> int:
        if self._pacing is None or self._state.error != "NONE":
            return 0
        now_us = self._around.loop.now_us if self._pacing.needs_clock else 0
        return min(self._pacing.due_bytes(now_us), len(SEND_BUFFER))

    def _on_sent(self, count: int, payload_bytes: int) -> None:
        state = self._state
        state.sent.total += count
        self._around.on_bytes(0, count)
        state.note_progress()
        if self._head:
            self._head = self._head[count:]
        elif not payload_bytes:
            self._tail = self._tail[count:]
        elif self._pacing is not None:
            if not state.sent.payload:
                state.times.first_byte_sent = self._around.loop.now_us
            state.sent.payload += count
            self._pacing.sent(count)
            if self._pacing.finished or self._pacing.needs_clock or not state.batches:
                state.times.last_byte_sent = self._around.loop.now_us

    def _advance(self) -> None:
        """Go on to the next state if all of this one's bytes have left."""
        if self._head or self._pacing is None:
            return
        sent, times = self._state.sent, self._state.times
        if sent.state == "SEND_COMMAND":
            times.command = self._around.loop.now_us
            sent.state = "SEND_PAYLOAD"
            self._state.received.state = "RECV_AUTHENTICATE"
        elif sent.state == "SEND_RESPONSE":
            times.response = self._around.loop.now_us
            sent.state = "SEND_PAYLOAD"
        if sent.state == "SEND_PAYLOAD" and self._pacing.finished:
            sent.state = "SEND_CHECKSUM"
        if sent.state == "SEND_CHECKSUM" and not self._tail:
            if sent.requested:
                times.checksum_sent = self._around.loop.now_us
            # Only an end that was given a size sends a checksum and a footer.
            sent.state = "SEND_FOOTER" if sent.requested is not None else "SEND_SUCCESS"
        if sent.state == "SEND_FOOTER" and self._state.may_send_footer():
            self._head = _FOOTER
            sent.state = "SEND_FLUSH"
        elif sent.state == "SEND_FLUSH":
            sent.state = "SEND_SUCCESS"
