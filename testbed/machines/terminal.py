"""Connects the user's terminal to a machine's, and restores it at the end.

Nothing here knows the program in the machine.
"""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

STDIN = 0
END_OF_INPUT = b"\x04\x04"
"""Ctrl-D twice: the first one ends an unfinished line, if there is one."""


class Terminal:
    """A pseudo-terminal between the user and a machine; `user_terminal` creates it.

    Attributes:
        machine_end: the machine's descriptor.
    """

    def __init__(self, own_end: int, machine_end: int) -> None:
        self.machine_end = machine_end
        self._own_end = own_end
        self._shows = threading.Thread(target=_show, args=(own_end,))
        self._connected = ExitStack()

    def connect(self) -> None:
        """Send what the user types to the machine, including Ctrl-C, and show its output.

        Input may also come from a pipe. Only the main thread may call this, as it handles signals.
        """
        if self._shows.ident is None:
            if os.isatty(STDIN):
                self._connected.enter_context(_raw(STDIN))
                self._connected.enter_context(_on_resize(self._copy_size))
            self._connected.enter_context(_fed(self._own_end))
            self._shows.start()

    def disconnect(self) -> None:
        """Restore the user's terminal."""
        self._connected.close()

    def _show_the_rest(self) -> None:
        """Show the rest of the output of a machine that has ended."""
        if self._shows.ident is None:
            self._shows.start()
        self._shows.join()

    def _copy_size(self) -> None:
        termios.tcsetwinsize(self._own_end, termios.tcgetwinsize(STDIN))


@contextmanager
def user_terminal() -> Iterator[Terminal]:
    """A terminal for a machine, which must end before the context does."""
    own_end, machine_end = pty.openpty()
    terminal = Terminal(own_end, machine_end)
    try:
        yield terminal
    finally:
        os.close(machine_end)  # the machine has closed its own: so its output ends
        terminal._show_the_rest()
        terminal.disconnect()
        os.close(own_end)


def _show(own_end: int) -> None:
    with suppress(OSError):  # a pseudo-terminal's way to report that the other end is closed
        while data := os.read(own_end, 65536):
            with suppress(BrokenPipeError):  # nobody reads any more, but the machine must not hang
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()


@contextmanager
def _fed(own_end: int) -> Iterator[None]:
    """Send the standard input to the machine while the context lasts."""
    ended, end = os.pipe()
    feeds = threading.Thread(target=_feed, args=(own_end, ended))
    feeds.start()
    try:
        yield
    finally:
        os.close(end)
        feeds.join()
        os.close(ended)


def _feed(own_end: int, ended: int) -> None:
    with suppress(OSError):
        while ended not in select.select([STDIN, ended], [], [])[0]:
            data = os.read(STDIN, 4096)
            os.write(own_end, data or END_OF_INPUT)
            if not data:
                return


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Switch a terminal to raw mode, and restore its settings however this process ends.

    A small process waits for the end of the context, or of this process, and restores them: not
    even kill -9 leaves the user with a terminal that does not echo.
    """
    show = ["stty", "--save"]
    saved = subprocess.run(show, stdin=terminal, stdout=subprocess.PIPE, text=True, check=True)
    restore = ["stty", "--file", os.ttyname(terminal), saved.stdout.strip()]
    with subprocess.Popen(
        ["sh", "-c", 'cat; exec "$@"', "sh", *restore],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed already
        yield


@contextmanager
def _on_resize(act: Callable[[], None]) -> Iterator[None]:
    """Act now and whenever the terminal's size changes."""

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        act()

    before = signal.signal(signal.SIGWINCH, on_signal)
    try:
        act()
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
