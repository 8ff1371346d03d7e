"""The user's terminal as a machine's: bytes go both ways, and the terminal is put back at the end.

What runs in the machine is not known here.
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

AT_PROMPT, ENDING = "at the prompt", "ending the lab"
"""The steps at which a machine's program takes the user's terminal, and gives it back."""

STDIN = 0
END_OF_INPUT = b"\x04\x04"
"""Ctrl-D twice: the first one ends a line that has no end, if there is one."""


class Terminal:
    """A pseudo-terminal between the user and a machine; made by `user_terminal`.

    Attributes:
        machine_end: the descriptor for the machine.
    """

    def __init__(self, own_end: int, machine_end: int) -> None:
        self.machine_end = machine_end
        self._own_end = own_end
        self._shows = threading.Thread(target=_show, args=(own_end,))
        self._connected = ExitStack()

    def connect(self) -> None:
        """Let what the user types go to the machine, Ctrl-C included, and show what it writes.

        Input from a pipe likewise. For the main thread only, which signals belong to.
        """
        if self._shows.ident is None:
            if os.isatty(STDIN):
                self._connected.enter_context(_raw(STDIN))
                self._connected.enter_context(_on_resize(self._copy_size))
            self._connected.enter_context(_fed(self._own_end))
            self._shows.start()

    def disconnect(self) -> None:
        """Let the user's terminal be as it was before."""
        self._connected.close()

    def _show_the_rest(self) -> None:
        """Show what the machine has written; it must have ended."""
        if self._shows.ident is None:
            self._shows.start()
        self._shows.join()

    def _copy_size(self) -> None:
        termios.tcsetwinsize(self._own_end, termios.tcgetwinsize(STDIN))


@contextmanager
def user_terminal() -> Iterator[Terminal]:
    """A terminal for a machine that ends before the context does."""
    own_end, machine_end = pty.openpty()
    terminal = Terminal(own_end, machine_end)
    try:
        yield terminal
    finally:
        os.close(machine_end)  # the machine's own is closed: so what it wrote has an end
        terminal._show_the_rest()
        terminal.disconnect()
        os.close(own_end)


def _show(own_end: int) -> None:
    with suppress(OSError):  # how the end of a pseudo-terminal tells that the other is closed
        while data := os.read(own_end, 65536):
            with suppress(BrokenPipeError):  # nobody looks any more, but the machine must not hang
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()


@contextmanager
def _fed(own_end: int) -> Iterator[None]:
    """Write what comes in to the machine, as long as the context lasts."""
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
    """Switch a terminal to raw mode. Its settings come back whatever ends this process.

    A small process waits for the end of the context, or of us, and puts them back: not even after
    kill -9 is the user left with a terminal that does not echo.
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
        tty.setraw(terminal, termios.TCSADRAIN)  # what is typed already counts
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
