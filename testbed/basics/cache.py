"""The cache folder, which holds the environment, sources, builds and logs, and its locks.

Its content is other modules' business. Standard library only.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from testbed.basics import steps
from testbed.basics.errors import InputError

WAITING_S = 0.2


def cache_folder() -> Path:
    """Return the cache folder; create it if needed.

    It is `$HYDRA_CACHE`, else `hydra-testbed` in `$XDG_CACHE_HOME`, else in `~/.cache`.

    Raises:
        InputError: the folder can't be created or is not writable.
    """
    chosen = os.environ.get("HYDRA_CACHE")
    if chosen:
        folder = Path(chosen).expanduser().absolute()
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(parent) / "hydra-testbed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cache folder {folder}: {error.strerror}: set HYDRA_CACHE to a folder you can write to"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"cache folder {folder}: not writable: set HYDRA_CACHE to a folder you can write to"
        )
    return folder


def subfolder(name: str) -> Path:
    """Return a folder of the cache; create it if needed."""
    folder = cache_folder() / name
    folder.mkdir(exist_ok=True)
    return folder


def new_log(name: str) -> Path:
    """Return the path of a new log file for a step called `name`, with date and time in it."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    return subfolder("logs") / f"{name}-{moment}-{os.getpid()}.log"


@contextmanager
def locked(
    path: Path, waiting: Callable[[float], AbstractContextManager[None]] = lambda _: nullcontext()
) -> Iterator[None]:
    """Hold a lock, waiting while another process has it; it is released however a process ends.

    Args:
        path: the lock's file, which is created if needed.
        waiting: a context for the wait for another process; it gets the time at which that process
            took the lock, in seconds since the epoch.
    """
    with path.open("a+", encoding="ascii") as lock:
        if not _acquired(lock.fileno()):
            holder, since_s = _holder(path)
            with nullcontext() if holder == os.getpid() else waiting(since_s):
                while not _acquired(lock.fileno()):
                    steps.pause(WAITING_S)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {time.time()}")
        lock.flush()
        yield


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Hold a lock if it is free; yields whether it was."""
    with path.open("a+", encoding="ascii") as lock:
        yield _acquired(lock.fileno())


def _acquired(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> tuple[int, float]:
    """The process that holds a lock, and when it took it."""
    try:
        number, since_s = path.read_text(encoding="ascii").split()
    except ValueError:  # it has only just taken it
        return 0, time.time()
    return int(number), float(since_s)
