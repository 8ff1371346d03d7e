"""Watches a virtual machine: reports its steps, and fails once it stalls, hangs or crashes.

How the machine is booted and ended is `machines.virtual`'s.
"""

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from testbed.machines.watching import POLL_INTERVAL_S, Step, Steps, failure

STALL_WALL_S = 60.0
STALL_CPU_S = 45.0
HANG_WALL_S = 300.0
LEAST_WANTED_S = 1.0
"""A clock that stands still is a stall if the kernel was busy for most of a minute meanwhile (on
a crowded host it may have got no processor), and a hang after five minutes in which it wanted none
for as much as a second."""
HANG_VIRTUAL_S = 86_400.0
"""A clock that advances by a day while its command reports nothing new is a hang, too."""

_FATAL = {
    "Kernel panic": "the guest's kernel panicked",
    "Out of memory": "the guest ran out of memory",
    "Oops": "the guest's kernel failed",
}


@dataclass
class _Still:
    """How much processor time a machine had used or wanted when its clock was found standing still.

    Attributes:
        cpu_s, wanted_s: sums over its processes of the functions with these names.
        wanted_at_s: when it last wanted a processor, on this host's monotonic clock.
    """

    cpu_s: float
    wanted_at_s: float
    wanted_s: float


class Watch:
    """Follows a machine's steps, and raises an error when its clock stands still."""

    def __init__(
        self,
        machine: subprocess.Popen[bytes],
        start: Step,
        staging: Path,
        console: Path,
        on_step: Callable[[Step], None],
        stall_cpu_s: float,
        *,
        by_hand: bool,
    ) -> None:
        """Begin to watch a machine.

        Args:
            console: the kernel's log.
            stall_cpu_s: how long the kernel may be busy at one moment of its clock.
            by_hand: whether its command may wait for ever for what a user types.
        """
        self.last = start
        self.start_s = start.time_s
        self._machine = machine
        self._steps = Steps(staging)
        self._console = console
        self._on_step = on_step
        self._stall_cpu_s = stall_cpu_s
        self._advanced_at_s = self._looked_at_s = time.monotonic()
        self._still_since: _Still | None = None
        self._by_hand = by_hand
        self._news_at_s = self.last.time_s

    def until_end(self) -> float:
        """Wait for the machine's end.

        Returns:
            The processor seconds that it and its guest's processes used.
        """
        while (cpu_s := self.poll()) is None:
            time.sleep(POLL_INTERVAL_S)
        return cpu_s

    def poll(self) -> float | None:
        """Look at the machine: report its new steps, and whether it goes on.

        Returns:
            Once it has ended the processor seconds that it and its guest's processes used.

        Raises:
            TestbedError: it crashed, stalls or hangs.
        """
        pid, status, usage = os.wait4(self._machine.pid, os.WNOHANG)
        self._follow()
        if pid:
            self._machine.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime
        check_fatal(self._console)
        self._check_clock()
        return None

    def _follow(self) -> None:
        for step in self._steps.new():
            if (step.name, step.done_s) != (self.last.name, self.last.done_s):
                self._news_at_s = step.time_s
            self.last = step
            self._advanced_at_s, self._still_since = time.monotonic(), None
            self._on_step(step)

    def _check_clock(self) -> None:
        without_news_s = self.last.time_s - self._news_at_s
        if without_news_s > HANG_VIRTUAL_S and not self._by_hand:
            raise failure(
                f"the guest hangs: its clock has advanced by {without_news_s:.0f} s in the step"
                f' "{self.last.name}"',
                self._console,
            )
        now_s = time.monotonic()
        if now_s - max(self._advanced_at_s, self._looked_at_s) < STALL_WALL_S / 10:
            return  # asking thousands of processes for their times is too dear for each poll
        self._looked_at_s = now_s
        still_s = now_s - self._advanced_at_s
        if self._still_since is None:
            self._still_since = _Still(self._sum(cpu_s), time.monotonic(), self._sum(wanted_s))
        if still_s >= STALL_WALL_S:
            self._check_use(self._still_since, still_s)

    def _check_use(self, since: _Still, still_s: float) -> None:
        at_s = self.last.time_s - self.start_s
        if (wanted := self._sum(wanted_s)) > since.wanted_s + LEAST_WANTED_S:
            since.wanted_at_s, since.wanted_s = time.monotonic(), wanted
        if self._sum(cpu_s) - since.cpu_s > self._stall_cpu_s:
            raise failure(
                f"the guest's clock has stood still at {at_s:.1f} s for {still_s:.0f} s while its"
                " kernel was busy: a program in it computes or polls and doesn't sleep",
                self._console,
            )
        if time.monotonic() - since.wanted_at_s > HANG_WALL_S:
            raise failure(
                f"the guest hangs: its clock has stood still at {at_s:.1f} s for {still_s:.0f} s"
                " and it did nothing",
                self._console,
            )

    def _sum(self, of: Callable[[psutil.Process], float]) -> float:
        """The sum over the machine's own process and those of its guest."""
        total_s = 0.0
        with suppress(psutil.NoSuchProcess):
            machine = psutil.Process(self._machine.pid)
            for process in [machine, *machine.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    total_s += of(process)
        return total_s


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds that a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def wanted_s(process: psutil.Process) -> float:
    """Seconds in which a process had a processor, or waited for one that others had.

    The kernel counts them (Documentation/scheduler/sched-stats.rst). A process that hangs wants
    none.
    """
    schedstat = Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii")
    had_ns, waited_ns, _ = schedstat.split()
    return (int(had_ns) + int(waited_ns)) / 1e9


def check_fatal(console: Path) -> None:
    """Check that the kernel's log reports no crash.

    Raises:
        TestbedError: it does; has the log's tail.
    """
    lines = console.read_text(errors="replace").splitlines()
    for sign, meaning in _FATAL.items():
        if said := [line for line in lines if sign in line]:
            raise failure(meaning, console, said[0])
