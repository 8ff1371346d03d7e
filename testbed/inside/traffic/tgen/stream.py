"""One stream between two generators, from its first event to its log line.

Which streams there are, and when, lives in `driver`; the socket and the proxy in `transport`; the
protocol itself in `sending` and `receiving`.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.inside.traffic.tgen.command import compose_command
from testbed.inside.traffic.tgen.loop import BROKEN, READ, WRITE, Timer
from testbed.inside.traffic.tgen.markov import MarkovModel
from testbed.inside.traffic.tgen.options import StreamOptions
from testbed.inside.traffic.tgen.receiving import Receiver
from testbed.inside.traffic.tgen.report import StreamDirection, bytes_field, times_field
from testbed.inside.traffic.tgen.sending import Sender
from testbed.inside.traffic.tgen.stream_state import StreamState, Surroundings
from testbed.inside.traffic.tgen.transport import HandshakeError, Transport


class Stream:
    """A stream at either end: the client's has a packet model, the server's waits for one.

    It behaves as upstream's, except that a time-out is noticed when it is due and not at the next
    heartbeat.

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
        self._options = options
        self._transport = transport
        self._on_complete = on_complete
        self._state = _state(number, vertex, options, is_client=model is not None)
        self._sender = Sender(surroundings, self._state, transport)
        self._receiver = Receiver(surroundings, self._state, transport, self._sender)
        self._defer_timer: Timer | None = None
        self._finished = False
        if model is not None:
            self._sender.begin(model, _command(surroundings.hostname, vertex, options, model))
        self._events = READ if transport.is_open else WRITE
        surroundings.loop.register(transport.descriptor, self._events, self._on_event)
        self._deadline_timer = self._watch_deadlines()

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
        self._state.note_progress()
        if self._transport.is_open:
            # A socket that has just connected, or whose proxy has just answered, is writable.
            self._run(WRITE)
        else:
            self._wait_for(wanted)

    def _run(self, events: int) -> None:
        state = self._state
        payload_bytes = state.received.payload + state.sent.payload
        if events & (READ | BROKEN):
            self._receiver.read()
        due = events & WRITE or self._sender.is_urgent
        if due and state.error == "NONE" and self._sender.wants_to_write:
            self._sender.write()
        if self._is_done():
            self._finish(state.error)
        elif events & BROKEN:
            self._finish("MISC")
        else:
            if state.received.payload + state.sent.payload > payload_bytes:
                self._log_progress()
            self._wait_for(self._wanted_events())

    def _wait_for(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._around.loop.modify(self._transport.descriptor, events)

    def _wanted_events(self) -> int:
        events = 0
        if self._state.received.state not in ("RECV_NONE", "RECV_SUCCESS"):
            events |= READ
        if self._sender.wants_to_write:
            barrier_us = self._sender.deferred_until_us
            if not barrier_us:
                events |= WRITE
            elif self._defer_timer is None:
                self._defer_timer = self._around.loop.at(barrier_us, self._on_deferred)
        return events

    def _on_deferred(self) -> None:
        self._defer_timer = None
        self._run(WRITE)

    def _is_done(self) -> bool:
        sent, received = self._state.sent, self._state.received
        if self._state.error != "NONE":
            return True
        if sent.state != "SEND_SUCCESS":
            return False
        if received.requested is None and sent.requested is None:
            # Both ends have played the whole model, so this one knows what it should receive.
            expected = self._sender.expected_bytes
            if received.state == "RECV_PAYLOAD" and received.payload >= expected:
                received.state = "RECV_SUCCESS"
        return received.state == "RECV_SUCCESS"

    # --- deadlines ----------------------------------------------------------------------------

    def _watch_deadlines(self) -> Timer | None:
        deadlines = []
        if self._options.stallout_us:
            deadlines.append(self._last_sign_of_life_us() + self._options.stallout_us)
        if self._options.timeout_us:
            deadlines.append(self._transport.times.start + self._options.timeout_us)
        if not deadlines:
            return None
        return self._around.loop.at(min(deadlines), self._on_deadline)

    def _last_sign_of_life_us(self) -> int:
        return self._state.progress_us or self._transport.times.socket_create

    def _on_deadline(self) -> None:
        if self._transport.is_open and self._receiver.waits_for_batch:
            # The socket may hold less than a batch: then the stream is slow, but not stalled.
            self._receiver.take_less()
            self._run(READ)
            if self._finished:
                return
        now_us = self._around.loop.now_us
        stallout_us, timeout_us = self._options.stallout_us, self._options.timeout_us
        stalled = bool(stallout_us) and now_us >= self._last_sign_of_life_us() + stallout_us
        if stalled or (timeout_us and now_us >= self._transport.times.start + timeout_us):
            error = "STALLOUT" if stalled else "TIMEOUT"
            if not self._state.progress_us:
                self._transport.mark_timeout(error)
                error = "PROXY"
            self._finish(error)
        else:
            self._deadline_timer = self._watch_deadlines()

    # --- the end, and log lines ---------------------------------------------------------------

    def _finish(self, error: str) -> None:
        self._state.error = error
        self._finished = True
        if error == "NONE":
            self._log_end("[stream-success]")
        else:
            self._state.fail(error)
            self._log_end("[stream-error]")
        for timer in (self._deadline_timer, self._defer_timer):
            if timer is not None:
                timer.cancel()
        self._around.loop.forget(self._transport.descriptor)
        self._transport.close()
        # A pause that follows begins now.
        self._around.loop.refresh()
        self._on_complete(error == "NONE")

    def _log_end(self, what: str) -> None:
        now_us = self._around.loop.now_us
        times = times_field(self._transport.times, self._state.times, now_us)
        self._log("message", what, f" times {times}")

    def _log_progress(self) -> None:
        if self._around.log.says_info:
            self._log("info", "[stream-status]", "")

    def _log(self, level: str, what: str, times: str) -> None:
        stream = self._state.describe(self._around.hostname)
        counted = bytes_field(self._state.received, self._state.sent)
        text = f"{what} transport {self._transport.describe()} stream {stream}"
        self._around.log.write(level, "stream log", f"{text} bytes {counted}{times}")


def _state(number: int, vertex: str, options: StreamOptions, *, is_client: bool) -> StreamState:
    """The state at the beginning; a server learns the sizes from the command."""
    if is_client:
        sent = StreamDirection("SEND_COMMAND", options.send_bytes)
        received = StreamDirection("RECV_NONE", options.receive_bytes)
    else:
        sent = StreamDirection("SEND_NONE", None)
        received = StreamDirection("RECV_AUTHENTICATE", None)
    return StreamState(number, vertex, is_client, sent, received)


def _command(hostname: str, vertex: str, options: StreamOptions, model: MarkovModel) -> bytes:
    return compose_command(
        hostname, vertex, options.send_bytes, options.receive_bytes, model, options.send_model_path
    )
