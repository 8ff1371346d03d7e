"""The user's terminal as a machine's, on a pseudo-terminal; small programs stand in for these."""

import itertools
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from waiting import wait_for

from testbed.basics.toml_file import PROJECT

PATIENCE_S = 20.0

PROGRAM = """
import os, subprocess, sys, termios, time
from testbed.machines.terminal import user_terminal
with user_terminal() as terminal:
    end = terminal.machine_end
    with subprocess.Popen([sys.executable, "-c", MACHINE], stdin=end, stdout=end) as machine:
        if CONNECTED:
            while termios.tcgetattr(end)[3] & termios.ECHO:
                time.sleep(0.01)
            os.read(0, 1)
            terminal.connect()
        machine.wait()
print("ended")
"""

# Prints each byte that arrives, in hexadecimal, and the terminal's size; Ctrl-X ends it.
TELLING = """
import os, tty
tty.setraw(0)
os.write(1, b"begun;")
while (data := os.read(0, 1)) != b"\\x18":
    size = "%dx%d" % os.get_terminal_size(0)
    os.write(1, b"%s %s;" % (data.hex().encode(), size.encode()))
"""

# Sends back all that arrives, up to Ctrl-D, which it reports by words.
ECHOING = """
import os, tty
tty.setraw(0)
while not (data := os.read(0, 65536)).endswith(b"\\x04"):
    os.write(1, data)
os.write(1, data.replace(b"\\x04", b"") + b"<end of input>")
"""

FAILING = 'print("the lab did not come up")'


def program(machine: str, *, connected: bool = True) -> list[str]:
    """The words of a program that connects a machine once an empty line has been typed."""
    text = PROGRAM.replace("MACHINE", repr(machine)).replace("CONNECTED", repr(connected))
    return [sys.executable, "-c", text]


@dataclass
class User:
    """The user at a terminal; `output` is what it has shown since the last wait."""

    process: subprocess.Popen[bytes]
    keyboard: int
    terminal: int
    output: bytes = b""

    def types(self, data: bytes) -> None:
        os.write(self.keyboard, data)

    def sees(self, text: bytes) -> bytes:
        """Wait for a text, and return the output until then."""
        while text not in self.output:
            self.output += os.read(self.keyboard, 65536)
        before, _, self.output = self.output.partition(text)
        return before

    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self.terminal))


@contextmanager
def user_of(command: list[str]) -> Iterator[User]:
    """Run a command as the foreground job of a terminal; it is killed with the context."""
    keyboard, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (33, 99))
    process = subprocess.Popen(
        # Like a login, with the terminal as the session's own and SIGHUP not ignored: these tests
        # may run under nohup.
        ["env", "--default-signal=HUP", "setsid", "--ctty", *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )
    try:
        yield User(process, keyboard, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(keyboard)


def test_keys_are_the_machines_until_it_ends() -> None:
    with user_of(program(TELLING)) as user:
        before = user.settings()
        user.types(b"\n")
        user.sees(b"begun;")
        wait_for(lambda: user.settings() != before, "raw mode")
        user.types(b"\x03\x1a\x04\r")
        user.sees(b"03 99x33;1a 99x33;04 99x33;0d 99x33;")
        user.types(b"\x18")
        user.sees(b"ended")
        assert user.process.wait(PATIENCE_S) == 0
        assert user.settings() == before


def test_what_was_typed_before_counts() -> None:
    with user_of(program(TELLING)) as user:
        user.types(b"\na\n")
        user.sees(b"61 99x33;0a 99x33;")


def test_the_machine_is_told_of_another_size() -> None:
    with user_of(program(TELLING)) as user:
        user.types(b"\n")
        user.sees(b"begun;")
        rows = itertools.cycle((40, 41))

        def told() -> bool:
            # Each time another size: Python handles a signal that comes just before the program
            # waits for the machine only when the next one comes.
            termios.tcsetwinsize(user.keyboard, (next(rows), 120))
            user.types(b"b")
            return user.sees(b";").endswith((b"120x40", b"120x41"))

        wait_for(told, "the new size")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_put_back_however_the_program_ends(number: signal.Signals) -> None:
    with user_of(program(TELLING)) as user:
        before = user.settings()
        user.types(b"\n")
        user.sees(b"begun;")
        wait_for(lambda: user.settings() != before, "raw mode")
        user.process.send_signal(number)
        wait_for(lambda: user.settings() == before, "the settings from before")


def test_what_a_machine_says_that_fails_before_is_shown() -> None:
    with user_of(program(FAILING, connected=False)) as user:
        before = user.settings()
        user.sees(b"the lab did not come up")
        user.sees(b"ended")
        assert user.settings() == before


def piped(data: bytes, machine: str) -> bytes:
    done = subprocess.run(
        program(machine),
        input=b"\n" + data,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout


def test_input_from_a_pipe_and_its_end() -> None:
    assert piped(b"nodes\nexit", ECHOING) == b"nodes\nexit<end of input>ended\n"


def test_more_than_a_terminal_holds() -> None:
    """Neither side blocks the other when both send much."""
    data = b"".join(b"%07d\n" % number for number in range(100_000))
    assert piped(data, ECHOING) == data + b"<end of input>ended\n"


def test_an_output_that_nobody_reads_any_more() -> None:
    reader, output = os.pipe()
    with subprocess.Popen(
        program(ECHOING),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    ) as process:
        os.close(output)
        os.close(reader)
        # It must end all the same.
        process.communicate(b"\n" + bytes(1_000_000), timeout=PATIENCE_S)
