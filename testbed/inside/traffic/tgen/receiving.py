"""The receiving half of a stream: command or response, model, payload, checksum, footer.

`sending` writes the answers; `command` has the grammar of the lines.
"""

from __future__ import annotations

import socket

from testbed.inside.traffic.tgen.command import (
    WORD,
    Command,
    CommandError,
    compose_response,
    model_of,
    parse_command,
    parse_response,
)
from testbed.inside.traffic.tgen.payload import RECEIVE_BUFFER, PayloadDigest
from testbed.inside.traffic.tgen.sending import Sender
from testbed.inside.traffic.tgen.stream_state import StreamState, Surroundings
from testbed.inside.traffic.tgen.transport import Transport

# A receiver that knows how much is still to come, and needs no smaller pieces, wakes up once per
# this many bytes.
_WAKE_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 64 * 1024
_LINE_STATES = ("RECV_AUTHENTICATE", "RECV_HEADER", "RECV_CHECKSUM", "RECV_FOOTER")


class Receiver:
    """Reads what the other end says, and lets the sender answer."""

    def __init__(
        self, around: Surroundings, state: StreamState, transport: Transport, sender: Sender
    ) -> None:
        self._around = around
        self._state = state
        self._transport = transport
        self._sender = sender
        self._command: Command | None = None
        self._line = bytearray()
        self._digest = PayloadDigest()
        self._low_water_bytes = 1

    @property
    def waits_for_batch(self) -> bool:
        """Whether the kernel reports data only once there is a batch of it."""
        return self._low_water_bytes > 1

    def take_less(self) -> None:
        """Let the kernel report any data, however little."""
        self._low_water(1)

    def read(self) -> None:
        """Read once from the socket, and handle what came."""
        try:
            count = self._transport.sock.recv_into(RECEIVE_BUFFER)
        except BlockingIOError:
            return
        except OSError:
            self._state.error = "READ"
            return
        if not count:
            self._on_end_of_file()
            return
        self._state.received.total += count
        self._around.on_bytes(count, 0)
        self._state.note_progress()
        data = RECEIVE_BUFFER[:count]
        while len(data) and self._state.error == "NONE":
            data = self._take(data)

    def _on_end_of_file(self) -> None:
        received = self._state.received
        self._transport.state = "SUCCESS_EOF"
        if received.state == "RECV_PAYLOAD" and received.requested is None:
            received.state = "RECV_SUCCESS"
        else:
            self._state.error = "READEOF"

    def _take(self, data: memoryview) -> memoryview:
        """Handle the first part of some data; return the rest."""
        state = self._state.received.state
        if state == "RECV_PAYLOAD":
            return self._take_payload(data)
        if state == "RECV_MODEL":
            return self._take_model(data)
        if state in _LINE_STATES:
            return self._take_line(data)
        # More than the stream has asked for: ignored. (Upstream leaves it unread.)
        return data[:0]

    # --- payload ------------------------------------------------------------------------------

    def _take_payload(self, data: memoryview) -> memoryview:
        received, times = self._state.received, self._state.times
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
            times.first_byte_received = self._around.loop.now_us
        if received.payload == received.requested:
            times.last_byte_received = self._around.loop.now_us
            received.state = "RECV_CHECKSUM"
            self._low_water(1)
        elif self._state.batches and received.requested is not None:
            self._low_water(min(_WAKE_BYTES, received.requested - received.payload))
        else:
            # Any byte may turn out to be the last one.
            times.last_byte_received = self._around.loop.now_us
        return rest

    def _low_water(self, size_bytes: int) -> None:
        if size_bytes != self._low_water_bytes:
            self._low_water_bytes = size_bytes
            self._transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    # --- lines --------------------------------------------------------------------------------

    def _take_line(self, data: memoryview) -> memoryview:
        received = self._state.received
        text = bytes(data)
        line, newline, _ = text.partition(b"\n")
        self._line += line
        if received.state == "RECV_AUTHENTICATE":
            if not (WORD + b" ").startswith(self._line[: len(WORD) + 1]):
                self._state.error = "AUTH"
                return data[:0]
            if len(self._line) > len(WORD):
                received.state = "RECV_HEADER"
        if len(self._line) > _LONGEST_LINE_BYTES:
            self._state.error = "HEADER_INCOMPLETE"
        elif newline:
            complete = bytes(self._line)
            self._line.clear()
            self._on_line(complete)
        return data[len(line) + len(newline) :]

    def _on_line(self, line: bytes) -> None:
        state = self._state.received.state
        if state == "RECV_CHECKSUM":
            self._on_checksum(line)
        elif state == "RECV_FOOTER":
            self._on_footer(line)
        else:
            try:
                if self._state.is_client:
                    self._on_response(line)
                else:
                    self._on_command(parse_command(line))
            except CommandError as error:
                self._refuse(error.code)

    def _on_checksum(self, line: bytes) -> None:
        self._state.times.checksum_received = self._around.loop.now_us
        parts = line.split()
        if len(parts) == 2 and parts[1].decode("latin-1") == self._digest.hexdigest():
            self._state.received.state = "RECV_FOOTER"
        else:
            self._state.error = "CHECKSUM"

    def _on_footer(self, line: bytes) -> None:
        if line.upper().startswith(b"FIN"):
            self._state.received.state = "RECV_SUCCESS"
        else:
            self._state.error = "FOOTER"

    # --- the handshake ------------------------------------------------------------------------

    def _on_response(self, line: bytes) -> None:
        self._state.peer_name = parse_response(line)
        self._state.times.response = self._around.loop.now_us
        self._begin_payload()

    def _on_command(self, command: Command) -> None:
        state = self._state
        self._command = command
        state.peer_name = command.hostname
        state.vertex = f"{state.vertex}:{command.transfer_id}"
        # The command has the sizes as the client sees them.
        state.sent.requested = command.receive_bytes
        state.received.requested = command.send_bytes
        state.received.state = "RECV_MODEL"
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
        self._state.times.command = self._around.loop.now_us
        self._sender.begin(model, compose_response(self._around.hostname, "NONE"))
        self._state.sent.state = "SEND_RESPONSE"
        self._begin_payload()

    def _refuse(self, code: str) -> None:
        self._state.error = code
        self._state.received.state = "RECV_ERROR"
        if self._state.is_client:
            self._state.sent.state = "SEND_SUCCESS"
        else:
            self._sender.refuse(code)

    def _begin_payload(self) -> None:
        nothing = self._state.received.requested == 0
        self._state.received.state = "RECV_FOOTER" if nothing else "RECV_PAYLOAD"
