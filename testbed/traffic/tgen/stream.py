"""One stream between two generators: TGen's protocol from the first line to the footer.

Which streams there are, and when, lives in `driver`; the socket and the proxy in `transport`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from testbed.traffic.tgen.command import (
    WORD,
    Command,
    CommandError,
    compose_command,
    compose_response,
    model_of,
    parse_command,
    parse_response,
)
from testbed.traffic.tgen.log import Log
from testbed.traffic.tgen.loop import BROKEN, READ, WRITE, Loop, Timer, coarse_us
from testbed.traffic.tgen.markov import MarkovModel
from testbed.traffic.tgen.options import StreamOptions
from testbed.traffic.tgen.pacing import Pacing, PacingError
from testbed.traffic.tgen.payload import (
    RECEIVE_BUFFER,
    SEND_BUFFER,
    PayloadDigest,
    sent_digest,
)
from testbed.traffic.tgen.report import StreamDirection, StreamTimes, bytes_field, times_field
from testbed.traffic.tgen.transport import HandshakeError, Transport

# A receiver that knows how much is still to come and gains nothing from smaller pieces wakes up
# once for so many bytes.
_WAKE_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 64 * 1024
_LINE_STATES = ("RECV_AUTHENTICATE", "RECV_HEADER", "RECV_CHECKSUM", "RECV_FOOTER")
_FOOTER = b"FIN\n"


@dataclass(frozen=True)
class Surroundings:
    """What all streams of a process share."""

    loop: Loop
    log: Log
    hostname: str
    on_bytes: Callable[[int, int], None]


class Stream:
    """A stream, at either end: the client's has a packet model, the server's waits for one.

    As upstream, but that time-outs are noticed when they are due, not at the next heartbeat.
    Response, payload, checksum and footer are a write each, as there: by Nagle's algorithm, and as
    a Tor relays what it has read, that decides when they arrive.

    Args:
        number: unique in this process.
        vertex: the action that asked for the stream.
        options: sizes, times and model mode.
        transport: already connecting, or accepted.
        model: the packet model; None at the server's end.
        on_complete: called once, with whether the stream succeeded.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        number: int,
        vertex: str,
        options: StreamOptions,
        transport: Transport,
        model: MarkovModel | None,
        on_complete: Callable[[bool], None],
    ) -> None:
        self._around = surroundings
        self._number = number
        self._vertex = vertex
        self._peer_name = "(null)"
        self._options = options
        self._transport = transport
        self._on_complete = on_complete
        self._is_client = model is not None
        self._error = "NONE"
        self._command: Command | None = None
        self._line = bytearray()
        self._head = b""
        self._tail = b""
        self._pacing: Pacing | None = None
        self._digest = PayloadDigest()
        self._times = StreamTimes()
        self._progress_us = 0
        self._low_water_bytes = 1
        self._batches = False
        self._defer_timer: Timer | None = None
        self._finished = False
        sent_state = "SEND_COMMAND" if model else "SEND_NONE"
        received_state = "RECV_NONE" if model else "RECV_AUTHENTICATE"
        self._sent = StreamDirection(sent_state, options.send_bytes if model else None)
        self._received = StreamDirection(received_state, options.receive_bytes if model else None)
        if model is not None:
            self._begin_sending(model)
            self._head = compose_command(
                surroundings.hostname,
                vertex,
                options.send_bytes,
                options.receive_bytes,
                model,
                options.send_model_path,
            )
        self._events = READ if transport.is_open else WRITE
        surroundings.loop.register(transport.descriptor, self._events, self._on_event)
        self._deadline_timer = self._watch_deadlines()

    def describe(self) -> str:
        """The stream as a log line has it, in brackets."""
        return (
            f"[id={self._number},vertexid={self._vertex},name={self._around.hostname},"
            f"peername={self._peer_name},sendsize={self._sent.requested or 0},"
            f"recvsize={self._received.requested or 0},sendstate={self._sent.state},"
            f"recvstate={self._received.state},error={self._error}]"
        )

    # --- events -------------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        if self._transport.is_open:
            self._run(events)
            return
        try:
            wanted = self._transport.on_event(self._around.loop, events)
        except HandshakeError:
            self._finish("PROXY")
            return
        self._progress_us = coarse_us()
        if self._transport.is_open:
            # A socket that has just connected or answered takes the command at once.
            self._run(WRITE)
        else:
            self._wait_for(wanted)

    def _run(self, events: int) -> None:
        payload_bytes = self._received.payload + self._sent.payload
        if events & (READ | BROKEN):
            self._on_readable()
        due = events & WRITE or self._head or self._sent.state == "SEND_FOOTER"
        if due and self._error == "NONE" and self._wants_to_send():
            self._on_writable()
        if self._is_done():
            self._finish(self._error)
        elif events & BROKEN:
            self._finish("MISC")
        else:
            if self._received.payload + self._sent.payload > payload_bytes:
                self._log_progress()
            self._wait_for(self._wanted_events())

    def _wait_for(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._around.loop.modify(self._transport.descriptor, events)

    def _wanted_events(self) -> int:
        events = 0
        if self._received.state not in ("RECV_NONE", "RECV_SUCCESS"):
            events |= READ
        if self._wants_to_send():
            barrier_us = self._deferred_until_us()
            if not barrier_us:
                events |= WRITE
            elif self._defer_timer is None:
                self._defer_timer = self._around.loop.at(barrier_us, self._on_deferred)
        return events

    def _on_deferred(self) -> None:
        self._defer_timer = None
        self._run(WRITE)

    def _wants_to_send(self) -> bool:
        if self._sent.state == "SEND_FOOTER":
            return self._may_send_footer()
        return self._sent.state not in ("SEND_NONE", "SEND_SUCCESS", "SEND_ERROR")

    def _may_send_footer(self) -> bool:
        # It tells the other end that all of its payload has come. Of a size that nobody knows the
        # other end waits for our footer before it closes, and there is nothing to wait for here.
        unknown = self._received.requested is None
        return unknown or self._received.state in ("RECV_FOOTER", "RECV_SUCCESS")

    def _deferred_until_us(self) -> int:
        if self._head or self._pacing is None or self._pacing.finished:
            return 0
        return self._pacing.barrier_us

    def _is_done(self) -> bool:
        if self._error != "NONE":
            return True
        if self._sent.state != "SEND_SUCCESS":
            return False
        if self._received.requested is None and self._sent.requested is None:
            # Both ends have played the whole model, so we know what there was to receive.
            expected = self._pacing.expected_bytes if self._pacing else 0
            if self._received.state == "RECV_PAYLOAD" and self._received.payload >= expected:
                self._received.state = "RECV_SUCCESS"
        return self._received.state == "RECV_SUCCESS"

    # --- the end ------------------------------------------------------------------------------

    def _finish(self, error: str) -> None:
        self._error = error
        self._finished = True
        if error == "NONE":
            self._log_end("[stream-success]")
        else:
            if error in ("READ", "READEOF", "MISC", "CHECKSUM", "FOOTER", "AUTH"):
                self._received.state = "RECV_ERROR"
            elif error in ("WRITE", "WRITEEOF", "MODEL"):
                self._sent.state = "SEND_ERROR"
            self._note_last_bytes()
            self._log_end("[stream-error]")
        for timer in (self._deadline_timer, self._defer_timer):
            if timer is not None:
                timer.cancel()
        self._around.loop.forget(self._transport.descriptor)
        self._transport.close()
        # A pause that follows begins now.
        self._around.loop.refresh()
        self._on_complete(error == "NONE")

    def _note_last_bytes(self) -> None:
        # Between the first and the last byte the precise clock is left alone; of a stream that
        # came to grief on the way, the last sign of life is known to a tick.
        times = self._times
        if times.first_byte_received and not times.last_byte_received:
            times.last_byte_received = max(times.first_byte_received, self._progress_us)
        if times.first_byte_sent and not times.last_byte_sent:
            times.last_byte_sent = max(times.first_byte_sent, self._progress_us)

    def _log_end(self, what: str) -> None:
        times = times_field(self._transport.times, self._times, self._around.loop.now_us)
        self._log("message", what, f" times {times}")

    def _log_progress(self) -> None:
        if self._around.log.says_info:
            self._log("info", "[stream-status]", "")

    def _log(self, level: str, what: str, times: str) -> None:
        counted = bytes_field(self._received, self._sent)
        text = f"{what} transport {self._transport.describe()} stream {self.describe()}"
        self._around.log.write(level, "stream log", f"{text} bytes {counted}{times}")

    def _watch_deadlines(self) -> Timer | None:
        deadlines = []
        last_us = self._progress_us or self._transport.times.socket_create
        if self._options.stallout_us:
            deadlines.append(last_us + self._options.stallout_us)
        if self._options.timeout_us:
            deadlines.append(self._transport.times.start + self._options.timeout_us)
        if not deadlines:
            return None
        return self._around.loop.at(min(deadlines), self._on_deadline)

    def _on_deadline(self) -> None:
        if self._transport.is_open and self._low_water_bytes > 1:
            # Less than a batch may lie in the socket: no stall, only slow.
            self._low_water(1)
            self._run(READ)
            if self._finished:
                return
        now_us = self._around.loop.now_us
        stallout_us, timeout_us = self._options.stallout_us, self._options.timeout_us
        last_us = self._progress_us or self._transport.times.socket_create
        stalled = bool(stallout_us) and now_us >= last_us + stallout_us
        if stalled or (timeout_us and now_us >= self._transport.times.start + timeout_us):
            error = "STALLOUT" if stalled else "TIMEOUT"
            if not self._progress_us:
                self._transport.mark_timeout(error)
                error = "PROXY"
            self._finish(error)
        else:
            self._deadline_timer = self._watch_deadlines()

    # --- receiving ----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            count = self._transport.sock.recv_into(RECEIVE_BUFFER)
        except BlockingIOError:
            return
        except OSError:
            self._error = "READ"
            return
        if not count:
            self._on_end_of_file()
            return
        self._received.total += count
        self._around.on_bytes(count, 0)
        self._progress_us = coarse_us()
        data = RECEIVE_BUFFER[:count]
        while len(data) and self._error == "NONE":
            data = self._take(data)

    def _on_end_of_file(self) -> None:
        self._transport.state = "SUCCESS_EOF"
        if self._received.state == "RECV_PAYLOAD" and self._received.requested is None:
            self._received.state = "RECV_SUCCESS"
        else:
            self._error = "READEOF"

    def _take(self, data: memoryview) -> memoryview:
        if self._received.state == "RECV_PAYLOAD":
            return self._take_payload(data)
        if self._received.state == "RECV_MODEL":
            return self._take_model(data)
        if self._received.state in _LINE_STATES:
            return self._take_line(data)
        # More than the stream has asked for: upstream leaves it unread.
        return data[:0]

    def _take_payload(self, data: memoryview) -> memoryview:
        received = self._received
        if received.requested is not None:
            left = received.requested - received.payload
            rest = data[left:]
            data = data[:left]
            self._digest.update(data)
        else:
            rest = data[:0]
        first = not received.payload
        received.payload += len(data)
        if first:
            self._times.first_byte_received = self._around.loop.now_us
        if received.payload == received.requested:
            self._times.last_byte_received = self._around.loop.now_us
            received.state = "RECV_CHECKSUM"
            self._low_water(1)
        elif self._batches and received.requested is not None:
            self._low_water(min(_WAKE_BYTES, received.requested - received.payload))
        else:
            # Without a batch there is no telling which byte is the last.
            self._times.last_byte_received = self._around.loop.now_us
        return rest

    def _low_water(self, size_bytes: int) -> None:
        if size_bytes != self._low_water_bytes:
            self._low_water_bytes = size_bytes
            self._transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def _take_line(self, data: memoryview) -> memoryview:
        text = bytes(data)
        line, newline, _ = text.partition(b"\n")
        self._line += line
        if self._received.state == "RECV_AUTHENTICATE":
            if not (WORD + b" ").startswith(self._line[: len(WORD) + 1]):
                self._error = "AUTH"
                return data[:0]
            if len(self._line) > len(WORD):
                self._received.state = "RECV_HEADER"
        if len(self._line) > _LONGEST_LINE_BYTES:
            self._error = "HEADER_INCOMPLETE"
        elif newline:
            complete = bytes(self._line)
            self._line.clear()
            self._on_line(complete)
        return data[len(line) + len(newline) :]

    def _on_line(self, line: bytes) -> None:
        if self._received.state == "RECV_CHECKSUM":
            self._times.checksum_received = self._around.loop.now_us
            parts = line.split()
            if len(parts) == 2 and parts[1].decode("latin-1") == self._digest.hexdigest():
                self._received.state = "RECV_FOOTER"
            else:
                self._error = "CHECKSUM"
            return
        if self._received.state == "RECV_FOOTER":
            if line.upper().startswith(b"FIN"):
                self._received.state = "RECV_SUCCESS"
            else:
                self._error = "FOOTER"
            return
        try:
            if self._is_client:
                self._peer_name = parse_response(line)
                self._times.response = self._around.loop.now_us
                self._begin_receiving()
            else:
                self._on_command(parse_command(line))
        except CommandError as error:
            self._refuse(error.code)

    def _on_command(self, command: Command) -> None:
        self._command = command
        self._peer_name = command.hostname
        self._vertex = f"{self._vertex}:{command.transfer_id}"
        # The client's sizes, seen from this end.
        self._sent.requested = command.receive_bytes
        self._received.requested = command.send_bytes
        self._received.state = "RECV_MODEL"
        if command.model_path is not None:
            self._on_model(b"")

    def _take_model(self, data: memoryview) -> memoryview:
        assert self._command is not None
        left = self._command.model_bytes - len(self._line)
        self._line += data[:left]
        if len(self._line) == self._command.model_bytes:
            text = bytes(self._line)
            self._line.clear()
            try:
                self._on_model(text)
            except CommandError as error:
                self._refuse(error.code)
        return data[left:]

    def _on_model(self, text: bytes) -> None:
        assert self._command is not None
        model = model_of(self._command, text)
        self._times.command = self._around.loop.now_us
        self._begin_sending(model)
        self._head = compose_response(self._around.hostname, "NONE")
        self._sent.state = "SEND_RESPONSE"
        self._begin_receiving()

    def _refuse(self, code: str) -> None:
        self._error = code
        self._received.state = "RECV_ERROR"
        if self._is_client:
            self._sent.state = "SEND_SUCCESS"
            return
        self._head = compose_response(self._around.hostname, code)
        self._sent.state = "SEND_RESPONSE"
        self._on_writable()
        self._sent.state = "SEND_SUCCESS"

    def _begin_receiving(self) -> None:
        nothing = self._received.requested == 0
        self._received.state = "RECV_FOOTER" if nothing else "RECV_PAYLOAD"

    # --- sending ------------------------------------------------------------------------------

    def _begin_sending(self, model: MarkovModel) -> None:
        self._pacing = Pacing(model, self._is_client, self._sent.requested)
        # Status lines and paced models want to know of each piece as it comes.
        self._batches = model.is_immediate and not self._around.log.says_info
        if self._sent.requested:
            self._tail = f"MD5 {sent_digest(self._sent.requested)}\n".encode()

    def _on_writable(self) -> None:
        assert self._pacing is not None or self._head
        try:
            more = True
            while more:
                self._advance_sending()
                more = self._send_next()
            self._advance_sending()
        except BlockingIOError:
            return
        except PacingError:
            self._error = "MODEL"
        except OSError:
            self._error = "WRITE"

    def _send_next(self) -> bool:
        """Write what is next, if anything is due; whether more should follow at once."""
        payload_bytes = 0 if self._head else self._due_bytes()
        if self._head:
            buffer: bytes | memoryview = self._head
        elif payload_bytes:
            buffer = SEND_BUFFER[:payload_bytes]
        elif self._sent.state == "SEND_CHECKSUM":
            buffer = self._tail
        else:
            return False
        count = self._transport.sock.send(buffer)
        self._on_sent(count, payload_bytes)
        # Between two buffers of payload other streams have their turn.
        ended = not payload_bytes or (self._pacing is not None and self._pacing.finished)
        return ended and count == len(buffer)

    def _due_bytes(self) -> int:
        if self._pacing is None or self._error != "NONE":
            return 0
        now_us = self._around.loop.now_us if self._pacing.needs_clock else 0
        return min(self._pacing.due_bytes(now_us), len(SEND_BUFFER))

    def _on_sent(self, count: int, payload_bytes: int) -> None:
        self._sent.total += count
        self._around.on_bytes(0, count)
        self._progress_us = coarse_us()
        if self._head:
            self._head = self._head[count:]
        elif not payload_bytes:
            self._tail = self._tail[count:]
        elif self._pacing is not None:
            if not self._sent.payload:
                self._times.first_byte_sent = self._around.loop.now_us
            self._sent.payload += count
            self._pacing.sent(count)
            if self._pacing.finished or self._pacing.needs_clock or not self._batches:
                self._times.last_byte_sent = self._around.loop.now_us

    def _advance_sending(self) -> None:
        if self._head or self._pacing is None:
            return
        if self._sent.state == "SEND_COMMAND":
            self._times.command = self._around.loop.now_us
            self._sent.state = "SEND_PAYLOAD"
            self._received.state = "RECV_AUTHENTICATE"
        elif self._sent.state == "SEND_RESPONSE":
            self._times.response = self._around.loop.now_us
            self._sent.state = "SEND_PAYLOAD"
        if self._sent.state == "SEND_PAYLOAD" and self._pacing.finished:
            self._sent.state = "SEND_CHECKSUM"
        if self._sent.state == "SEND_CHECKSUM" and not self._tail:
            if self._sent.requested:
                self._times.checksum_sent = self._around.loop.now_us
            # As with the checksum, only an end that was told a size says that this was all.
            known = self._sent.requested is not None
            self._sent.state = "SEND_FOOTER" if known else "SEND_SUCCESS"
        if self._sent.state == "SEND_FOOTER" and self._may_send_footer():
            self._head = _FOOTER
            self._sent.state = "SEND_FLUSH"
        elif self._sent.state == "SEND_FLUSH":
            self._sent.state = "SEND_SUCCESS"
