"""Control connections to many Tors: one thread reads all of them, another one handles all events.

Callers decide what to ask, and what events mean; stem knows the protocol.
"""

import queue
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import stem.response
from stem import ControllerError, SocketClosed, SocketError
from stem.control import Controller
from stem.socket import ControlSocketFile, recv_message

from testbed.basics.errors import TestbedError

ANSWER_TIMEOUT_S = 60.0
"""The time for an answer on a control port, which comes at once unless Tor hangs."""

_READ_BYTES = 65_536
_EVENT = "650"
"""The status of a message that nobody asked for (control-spec, "Asynchronous events")."""


def connected(tor: str, control_socket: Path) -> "ControlConnection":
    """An authenticated control connection.

    Args:
        tor: the name of the Tor, for errors.

    Raises:
        TestbedError: nothing listens, or there is no answer.
    """
    try:
        controller = ControlConnection(tor, ControlSocketFile(str(control_socket)))
    except SocketError as error:
        raise TestbedError(f"no control connection through {control_socket}: {error}") from error
    controller.authenticate()
    return controller


class _Answers(queue.Queue[Any]):
    """The queue in which stem awaits a Tor's answers, with a timeout that stem lacks.

    stem 1.8 offers no other way: `Controller.msg` takes no timeout, and closing the controller
    from outside takes a thread for each question.
    """

    def __init__(self, tor: str) -> None:
        super().__init__()
        self._tor = tor

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401
        """Like `Queue.get`, but with a timeout, after which it raises TestbedError."""
        try:
            return super().get(block, timeout or ANSWER_TIMEOUT_S)
        except queue.Empty:
            if not block:
                raise
            raise TestbedError(
                f"{self._tor}: Tor hangs: no answer on its control port for {ANSWER_TIMEOUT_S:g} s"
            ) from None


class Framing:
    """Splits a Tor's output into messages (control-spec, "Replies from Tor to the controller").

    A message ends with a line whose status is followed by a space. A line with a "+" there is
    followed by data, which ends with a line that is a dot.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._begun = b""
        self._in_data = False

    def messages(self, received: bytes) -> Iterator[bytes]:
        """The messages that these bytes complete; the rest is kept."""
        *lines, self._begun = (self._begun + received).split(b"\r\n")
        for line in lines:
            self._lines.append(line + b"\r\n")
            mark = line[3:4]
            if self._in_data or mark == b"+":
                self._in_data = line != b"."
            elif mark != b"-":
                yield b"".join(self._lines)
                self._lines = []


class _Reader:
    """One thread that calls a function of each socket when there is something to read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._read, name="control ports", daemon=True)

    def watch(self, connection: socket.socket, on_readable: Callable[[], None]) -> None:
        """Begin to watch a socket."""
        self._selector.register(connection, selectors.EVENT_READ, on_readable)
        if not self._thread.is_alive():
            self._thread.start()

    def forget(self, connection: socket.socket) -> None:
        """Stop watching a socket, which may be closed, or forgotten already."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                key.data()


_READER = _Reader()

_EVENTS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="events")
"""The one thread in which the events of all Tors are handled, in the order of their arrival. It
isn't the reader's: an event's handler may ask the Tor something, and wait for the answer."""


def call_between_events(what: Callable[[], None]) -> None:
    """Call a function in the thread that handles events, after those that have arrived."""
    _EVENTS.submit(what)


class ControlConnection(Controller):  # type: ignore[misc]  # stem has no types
    """A control connection without threads of its own, which keeps the errors of listeners.

    stem has two threads for each connection: one that reads, and one that looks for events twenty
    times a second. Private to stem 1.8 are the method that starts them, the queue for their
    answers, and the method that calls listeners, which only logs their errors.
    """

    def __init__(self, tor: str, control_socket: ControlSocketFile) -> None:
        self.failure: str | None = None
        """The first error of a listener, or of an event that can't be read."""
        self._tor = tor
        self._framing = Framing()
        super().__init__(control_socket)

    def _launch_threads(self) -> None:
        """Called by stem when the connection is open."""
        replies = vars(self).get("_reply_queue")
        assert type(replies) is queue.Queue, "this is not the pinned version of stem"
        self._reply_queue: queue.Queue[Any] = _Answers(self._tor)
        self._connection: socket.socket = self._socket._socket
        _READER.watch(self._connection, self._on_readable)

    def _close(self) -> None:
        """Called by stem when the connection has ended."""
        _READER.forget(self._connection)
        super()._close()

    def _on_readable(self) -> None:
        try:
            received = self._connection.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:  # closed meanwhile
            received = b""
        if not received:
            _READER.forget(self._connection)
            self._reply_queue.put(SocketClosed("the Tor has closed its control connection"))
        for text in self._framing.messages(received):
            self._take(text)

    def _take(self, text: bytes) -> None:
        try:
            message = recv_message(BytesIO(text))
        except ControllerError as error:  # for the caller, as in stem
            self._reply_queue.put(error)
            return
        if message.content()[-1][0] == _EVENT:
            _EVENTS.submit(self._handle_event, message)
        else:
            self._reply_queue.put(message)

    def _handle_event(self, event: Any) -> None:  # noqa: ANN401  # stem has no types
        try:
            stem.response.convert("EVENT", event)
            with self._event_listeners_lock:
                listeners = list(self._event_listeners.get(event.type, ()))
            for listener in listeners:
                listener(event)
        except Exception as error:
            self.failure = self.failure or f"{self._tor}: its event {str(event)!r}: {error!r}"
