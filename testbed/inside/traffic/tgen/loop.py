"""The generator's event loop: readiness, timers and signals, with few system calls."""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP

# Linux's number of a clock that Python does not name: CLOCK_MONOTONIC as of the last tick. Reading
# it takes no system call, even in a user-mode kernel with the testbed's vDSO.
_CLOCK_MONOTONIC_COARSE = 6


def coarse_us() -> int:
    """The monotonic clock in µs, behind by up to one tick (10 ms), read without a system call."""
    return time.clock_gettime_ns(_CLOCK_MONOTONIC_COARSE) // 1000


class Timer:
    """A callback and the time at which to call it, unless it is cancelled before."""

    __slots__ = ("callback", "deadline_us")

    def __init__(self, deadline_us: int, callback: Callable[[], None]) -> None:
        self.deadline_us = deadline_us
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None


class Loop:
    """Waits for descriptors and timers until it is stopped.

    It uses the process's interval timer instead of epoll's time-outs. Those are whole milliseconds,
    and Python reads the clock on every call that has one, which in a user-mode kernel is one more
    system call for every wake-up. The timer is set only when the earliest deadline changes.

    A `Loop` takes over SIGALRM, SIGTERM and SIGINT, so a process has only one, in its main thread.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._armed_us = 0
        self._now_us = 0
        self._running = True
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _do_nothing)
        self.register(self._wake_reader, READ, self._on_signal)

    @property
    def now_us(self) -> int:
        """The precise monotonic clock in µs, read at most once per event."""
        if not self._now_us:
            self._now_us = time.monotonic_ns() // 1000
        return self._now_us

    def refresh(self) -> None:
        """Make the next `now_us` read the clock: what follows begins now, not with its event."""
        self._now_us = 0

    def register(self, descriptor: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler` with a descriptor's ready events whenever there are any."""
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Wait for other events on a registered descriptor."""
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop waiting for a descriptor that is about to be closed, which tells epoll."""
        del self._handlers[descriptor]

    def after(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay_us` from now."""
        return self.at(self.now_us + delay_us, callback)

    def at(self, deadline_us: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` at a time of the monotonic clock."""
        timer = Timer(deadline_us, callback)
        self._sequence += 1
        heapq.heappush(self._timers, (deadline_us, self._sequence, timer))
        if not self._armed_us or deadline_us < self._armed_us:
            self._arm()
        return timer

    def stop(self) -> None:
        """End `run` after the current events."""
        self._running = False

    def run(self) -> None:
        """Handle events until `stop`, SIGTERM or SIGINT."""
        while self._running:
            for descriptor, events in self._epoll.poll():
                handler = self._handlers.get(descriptor)
                if handler is not None:
                    self._now_us = 0
                    handler(events)

    def close(self) -> None:
        """Release the timer, the wake-up pipe and the descriptors."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(-1)
        self._epoll.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _on_signal(self, _events: int) -> None:
        numbers = os.read(self._wake_reader, 512)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.stop()
        if signal.SIGALRM in numbers:
            self._armed_us = 0
            self._run_due()

    def _run_due(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_us:
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                timer.callback()
        self._now_us = 0
        self._arm()

    def _arm(self) -> None:
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if self._timers and self._timers[0][0] != self._armed_us:
            self._armed_us = self._timers[0][0]
            # A timer of 0 would be switched off, and a late one is due at once.
            delay_us = max(1, self._armed_us - time.monotonic_ns() // 1000)
            signal.setitimer(signal.ITIMER_REAL, delay_us / 1e6)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wake-up pipe has the signal's number, but a handler must exist."""
