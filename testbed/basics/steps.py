"""Shows long steps with their times, runs programs with a log, and ends them with this process.

The steps themselves are elsewhere. Standard library only: used before the environment exists.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from testbed.basics.errors import TestbedError

TAIL_LINES = 15
GRACE_S = 2.0
# dpkg must not be killed half-way through a package.
PACKAGES_GRACE_S = 60.0

# The programs that run_logged runs at the moment, in all threads.
_running: set[subprocess.Popen[bytes]] = set()
# Set while the steps of all threads must end.
stopping = threading.Event()


class Stopped(BaseException):
    """Raised in a step when all steps must end: after another one failed, or on Ctrl-C."""


class Progress:
    """Shows steps on a text stream: lines that count seconds on a terminal, else plain lines.

    All running steps are shown together, and what is left below them. It doesn't use rich, which
    the first steps install.
    """

    def __init__(self, stream: IO[str] | None = None, live: bool | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty() if live is None else live
        self._changing = threading.RLock()
        self._running: dict[str, float] = {}
        self._to_come: list[str] = []
        self._painted_lines = 0
        self._ended = threading.Event()

    def say(self, text: str) -> None:
        """Write one line."""
        with self._changing:
            self._erase()
            self._stream.write(f"{text}\n")
            self._paint()

    def expect(self, title: str) -> None:
        """Show something as left until it has `begun`."""
        with self._changing:
            self._to_come.append(title)

    def begun(self, title: str) -> None:
        """Stop showing something as left, as its own steps are shown from now on."""
        with self._changing:
            self._to_come.remove(title)

    @contextlib.contextmanager
    def step(self, title: str, since_s: float | None = None) -> Iterator[None]:
        """Show a step while the context lasts, and at its end how many seconds it took.

        Args:
            title: what the step does.
            since_s: when it began, by `time.time()`, if that isn't now: another process may have
                begun it.
        """
        start_s = time.time() if since_s is None else since_s
        self._begin(title, start_s)
        outcome = "failed after"
        try:
            yield
            outcome = "done in"
        except (KeyboardInterrupt, Stopped):
            outcome = "interrupted after"
            raise
        finally:
            self._end(title, f"{title}: {outcome} {time.time() - start_s:.0f} s")

    def _begin(self, title: str, start_s: float) -> None:
        with self._changing:
            self._running[title] = start_s
            if not self._live:
                self.say(f"{title} ...")
            elif len(self._running) == 1:
                self._ended = threading.Event()
                threading.Thread(target=self._tick, args=(self._ended,), daemon=True).start()
            self._erase()
            self._paint()

    def _end(self, title: str, text: str) -> None:
        with self._changing:
            self._running.pop(title, None)
            if not self._running:
                self._ended.set()
            left = [*self._running, *self._to_come]
            self.say(f"{text}; left: {', '.join(left)}" if left and not self._live else text)

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            with self._changing:
                self._erase()
                self._paint()

    def _erase(self) -> None:
        if self._painted_lines:
            self._stream.write(f"\033[{self._painted_lines}A\033[J")
        self._painted_lines = 0

    def _paint(self) -> None:
        """Draw what runs and what is left, in cut lines: a line that wraps could not be erased."""
        if self._live:
            now_s = time.time()
            lines = [
                f"{title} ... {now_s - start_s:.0f} s" for title, start_s in self._running.items()
            ]
            if lines and self._to_come:
                lines.append(f"left: {', '.join(self._to_come)}")
            width = shutil.get_terminal_size().columns - 1
            self._stream.writelines(f"{line[:width]}\n" for line in lines)
            self._painted_lines = len(lines)
        self._stream.flush()


def pause(seconds: float) -> None:
    """Wait in a step.

    Raises:
        Stopped: all steps must end.
    """
    if stopping.wait(seconds):
        raise Stopped


def end_running() -> None:
    """End the programs that steps run at the moment."""
    for process in list(_running):
        end_group(process, GRACE_S)


def run_logged(
    arguments: Sequence[str],
    log: Path,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    gently: bool = False,
) -> None:
    """Run a program with its output appended to a log.

    Its whole process group ends with this process: at once on Ctrl-C. If this process is killed,
    the kernel sends the program a signal, so a make starts nothing more.

    Args:
        arguments: the program and its arguments.
        log: the file to append to.
        folder: its working directory.
        variables: environment variables in addition to ours.
        gently: whether it has time to tidy up if it must be ended.

    Raises:
        TestbedError: its status was not 0; names the log and shows its tail.
    """
    pause(0)
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ {shlex.join(arguments)}\n")
        output.flush()
        with subprocess.Popen(
            dying_with_us(arguments, "TERM" if gently else "KILL"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(variables or {})},
            start_new_session=True,
        ) as process:
            _running.add(process)
            try:
                status = process.wait()
            except BaseException:
                end_group(process, PACKAGES_GRACE_S if gently else GRACE_S)
                raise
            finally:
                _running.discard(process)
    pause(0)
    if status != 0:
        raise TestbedError(
            f"`{shlex.join(arguments)}` ended with status {status}; the log is {log}\n{tail(log)}"
        )


def dying_with_us(arguments: Sequence[str], signal_name: str = "KILL") -> list[str]:
    """Return a command line whose program gets a signal from the kernel when this process dies."""
    return ["setpriv", "--pdeathsig", signal_name, "--", *arguments]


def end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a process and the group that it leads: by SIGTERM, and by SIGKILL after a grace time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """Return the last lines of a log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
