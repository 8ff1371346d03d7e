"""Control connections to many Tors: one thread reads all of them, another one handles all events.

What is asked, and what events mean, is for those who ask; stem knows the words.
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

from testbed.errors import TestbedError

ANSWER_TIMEOUT_S = 60.0
"""Of a Tor on its control port, which it answers at once unless it hangs."""

_READ_BYTES = 65_536
_EVENT = "650"
"""The status of what a Tor says without being asked (control-spec, "Asynchronous events")."""


def connected(tor: str, control_socket: Path) -> "ControlConnection":
    """A control connection that is let in.

    Args:
        tor: its name, for errors.

    Raises:
        TestbedError: there is none, or no answer.
    """
    try:
        controller = ControlConnection(tor, ControlSocketFile(str(control_socket)))
    except SocketError as error:
        raise TestbedError(f"no control connection through {control_socket}: {error}") from error
    controller.authenticate()
    return controller


class _Answers(queue.Queue[Any]):
    """The queue in which stem awaits a Tor's answers, for ever by itself.

    stem 1.8 offers no other way: `Controller.msg` takes no timeout, and to close the controller
    from outside takes a thread for each question.
    """

    def __init__(self, tor: str) -> None:
        super().__init__()
        self._tor = tor

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401
        """As Queue's, but with an end; TestbedError if there is no answer by then."""
        try:
            return super().get(block, timeout or ANSWER_TIMEOUT_S)
        except queue.Empty:
            if not block:
                raise
            raise TestbedError(
                f"{self._tor}: Tor hangs: no answer on its control port for {ANSWER_TIMEOUT_S:g} s"
            ) from None


class Framing:
    """Cuts what a Tor says into messages (control-spec, "Replies from Tor to the controller").

    A message ends with a line whose status is followed by a space. A line with a "+" there is
    followed by data, which ends with a line that is a dot.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._begun = b""
        self._in_data = False

    def messages(self, received: bytes) -> Iterator[bytes]:
        """The messages that are whole with these bytes; the rest is kept."""
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
    """One thread that tells whoever owns a socket when there is something to read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._read, name="control ports", daemon=True)

    def watch(self, connection: socket.socket, on_readable: Callable[[], None]) -> None:
        """Begin to tell."""
        self._selector.register(connection, selectors.EVENT_READ, on_readable)
        if not self._thread.is_alive():
            self._thread.start()

    def forget(self, connection: socket.socket) -> None:
        """Tell no more; the socket may be closed, or forgotten already."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection)

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                key.data()


_READER = _Reader()

_EVENTS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="events")
"""The one thread in which the events of all Tors are handled, in the order of their arrival. Not
the reader's: who handles an event may ask the Tor something, and wait for the answer."""


class ControlConnection(Controller):  # type: ignore[misc]  # stem has no types
    """A control connection without threads of its own, which loses no error of an event's handling.

    stem has two threads for each: one that reads, and one that looks for events twenty times a
    second. What it calls to start them, and the queue in which they leave answers, are private to
    stem 1.8; so is what calls the listeners, which only logs what they raise.
    """

    def __init__(self, tor: str, control_socket: ControlSocketFile) -> None:
        self.failure: str | None = None
        """The first error of a listener, or of an event that can't be read."""
        self._tor = tor
        self._framing = Framing()
        super().__init__(control_socket)

    def _launch_threads(self) -> None:
        """Called by stem when it is connected."""
        replies = vars(self).get("_reply_queue")
        assert type(replies) is queue.Queue, "stem is another one than is pinned"
        self._reply_queue: queue.Queue[Any] = _Answers(self._tor)
        self._connection: socket.socket = self._socket._socket
        _READER.watch(self._connection, self._on_readable)

    def _close(self) -> None:
        """Called by stem when it is not connected any more."""
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
        except ControllerError as error:  # for whoever has asked, as in stem
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
