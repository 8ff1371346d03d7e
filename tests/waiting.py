"""For tests: waiting for other processes."""

import time
from collections.abc import Callable

import psutil

END_WITHIN_S = 10.0
STARTED_WITHIN_S = 120.0
PATIENCE_S = 300.0


def wait_for(seen: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `seen` returns true; fail after the timeout."""
    end_s = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < end_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def lives(process: psutil.Process) -> bool:
    """Whether a process exists and is no zombie, which a container's first process may leave."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ends_within_its_time(processes: list[psutil.Process]) -> None:
    def seen() -> bool:
        return not any(lives(process) for process in processes)

    wait_for(seen, f"the end of {processes}", END_WITHIN_S)


def is_running(number: int) -> bool:
    """Whether the process with that number exists."""
    try:
        return lives(psutil.Process(number))
    except psutil.NoSuchProcess:
        return False
