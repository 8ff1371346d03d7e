"""Root only where it is needed: packages, and the host machine; all else as the user behind sudo.

So the cache and the results are the user's own, with or without sudo. Standard library only.
"""

import glob
import itertools
import multiprocessing
import os
import pwd
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from testbed.setup import packages, steps

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def needs_root(arguments: Sequence[str]) -> bool:
    """Tell whether a command line asks for the host machine, which works on the host's network."""
    pairs = itertools.pairwise(arguments)
    return "--machine=host" in arguments or ("--machine", "host") in pairs


def user_behind_sudo() -> pwd.struct_passwd | None:
    """Return who called sudo; None if nobody did, or if that user is unknown here (a container)."""
    number = int(os.environ.get("SUDO_UID", "0"))
    if os.geteuid() != 0 or number == 0:
        return None
    with suppress(KeyError):
        return pwd.getpwuid(number)
    return None


def give_up_sudo(arguments: Sequence[str]) -> None:
    """Under sudo: install the packages, then go on as the user who called sudo.

    Root without sudo stays root. With `--machine host` it stays root too, and has that user's
    cache; what has to be added to it `as_user` does.

    Raises:
        TestbedError: the packages can't be installed.
    """
    user = user_behind_sudo()
    if user is None:
        return
    packages.ensure_packages(steps.Progress())
    if needs_root(arguments):
        # Neither cache nor compiled modules of the user's clone are to be root's.
        os.environ.update(HOME=user.pw_dir, PYTHONDONTWRITEBYTECODE="1")
        return
    _become(user)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"):
        os.environ.pop(name, None)


def as_user(
    work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function as the user behind sudo, in a process of its own; without sudo just call it.

    Args:
        work: a module's function; it, what it is given and its result must be such that they can
            be sent to a process (pickle).

    Raises:
        What the function raises.
    """
    user = user_behind_sudo()
    if user is None:
        return work(*arguments, **named)
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, fresh, initializer=_begin_as, initargs=(user,)) as process:
        return process.submit(work, *arguments, **named).result()


def _begin_as(user: pwd.struct_passwd) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches us, too, and is told there
    _become(user)


def _become(user: pwd.struct_passwd) -> None:
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)


@contextmanager
def left_to_user(destination: Path) -> Iterator[None]:
    """Give what root writes at a destination to the user behind sudo, the way to it included.

    A failed run's evidence, which is kept beside it, likewise.
    """
    user_number = int(os.environ.get("SUDO_UID", "0"))
    first_new = destination
    while not first_new.parent.exists():
        first_new = first_new.parent
    try:
        yield
    finally:
        if os.geteuid() == 0 and user_number:
            group_number = int(os.environ.get("SUDO_GID", "-1"))
            evidence = first_new.parent.glob(f"{glob.escape(first_new.name)}.failed-*")
            for path in (first_new, *evidence):
                for each in (path, *path.rglob("*")) if path.exists() else ():
                    # A shared folder's files may be one user's of another machine, whoever writes.
                    with suppress(PermissionError):
                        os.chown(each, user_number, group_number, follow_symlinks=False)
