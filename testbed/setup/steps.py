"""Long steps: shown with their elapsed time, their programs run with a log and ended with us.

What the steps do is said elsewhere. Standard library only: used before the environment exists.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from testbed.errors import TestbedError

TAIL_LINES = 15
GRACE_S = 2.0
# dpkg must not be killed half-way through a package.
PACKAGES_GRACE_S = 60.0


class Progress:
    """Shows steps on a text stream: a line that counts seconds, or two plain lines off a terminal.

    It isn't rich's because the first steps are what brings rich.
    """

    def __init__(self, stream: IO[str] | None = None, live: bool | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty() if live is None else live

    def say(self, text: str) -> None:
        """Write one line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show that a step runs, and at its end how many seconds it took."""
        start_s = time.monotonic()
        ended = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(title, start_s, ended), daemon=True)
        if self._live:
            ticker.start()
        else:
            self.say(f"{title} ...")
        outcome = "failed after"
        try:
            yield
            outcome = "done in"
        except KeyboardInterrupt:
            outcome = "interrupted after"
            raise
        finally:
            ended.set()
            if self._live:
                ticker.join()
                self._stream.write("\r\033[K")
            self.say(f"{title}: {outcome} {time.monotonic() - start_s:.0f} s")

    def _tick(self, title: str, start_s: float, ended: threading.Event) -> None:
        while True:
            self._stream.write(f"\r\033[K{title} ... {time.monotonic() - start_s:.0f} s")
            self._stream.flush()
            if ended.wait(1.0):
                return


def run_logged(
    arguments: Sequence[str],
    log: Path,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    gently: bool = False,
) -> None:
    """Run a program with its output appended to a log.

    Its whole process group ends with us: at once on Ctrl-C; and when we are killed, the program
    gets a signal from the kernel, so that a make starts nothing more.

    Args:
        arguments: the program and its arguments.
        log: the file to append to.
        folder: where to run it.
        variables: environment variables on top of ours.
        gently: end it, should it have to be, with time to put things in order.

    Raises:
        TestbedError: it ended with another status than 0; names the log and shows its tail.
    """
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
            try:
                status = process.wait()
            except BaseException:
                end_group(process, PACKAGES_GRACE_S if gently else GRACE_S)
                raise
    if status != 0:
        raise TestbedError(
            f"`{shlex.join(arguments)}` ended with status {status}; the log is {log}\n{tail(log)}"
        )


def dying_with_us(arguments: Sequence[str], signal_name: str = "KILL") -> list[str]:
    """Return a command line whose program gets a signal from the kernel when we are killed."""
    return ["setpriv", "--pdeathsig", signal_name, "--", *arguments]


def end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a process that leads its group, and all in that group: politely, then for good."""
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
