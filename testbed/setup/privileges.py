"""Uses root only for packages and the host machine; all else runs as the user behind sudo.

So the cache and the results belong to the user, with or without sudo. Standard library only.
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

from testbed.basics import steps
from testbed.setup import packages

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def needs_root(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for the host machine, which uses the host's network."""
    pairs = itertools.pairwise(arguments)
    return "--machine=host" in arguments or ("--machine", "host") in pairs


def user_behind_sudo() -> pwd.struct_passwd | None:
    """Return the user who called sudo; None without sudo, or if the user is unknown here.

    A user can be unknown in a container.
    """
    number = int(os.environ.get("SUDO_UID", "0"))
    if os.geteuid() != 0 or number == 0:
        return None
    with suppress(KeyError):
        return pwd.getpwuid(number)
    return None


def give_up_sudo(arguments: Sequence[str]) -> None:
    """Under sudo, install the packages, then continue as the user who called sudo.

    Root without sudo stays root. With `--machine host` the process also stays root, and uses that
    user's cache, to which `as_user` adds what is missing.

    Raises:
        TestbedError: the packages can't be installed.
    """
    user = user_behind_sudo()
    if user is None:
        return
    packages.ensure_packages(steps.Progress())
    if needs_root(arguments):
        # Neither the cache nor compiled modules in the user's clone may belong to root.
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
        work: a function of a module; it, its arguments and its result must be picklable.

    Raises:
        Exception: whatever the function raises.
    """
    user = user_behind_sudo()
    if user is None:
        return work(*arguments, **named)
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, fresh, initializer=_begin_as, initargs=(user,)) as process:
        return process.submit(work, *arguments, **named).result()


def _begin_as(user: pwd.struct_passwd) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the parent, too, which reports it
    _become(user)


def _become(user: pwd.struct_passwd) -> None:
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)


@contextmanager
def left_to_user(destination: Path) -> Iterator[None]:
    """Give what root writes at a destination to the user behind sudo, including new parent folders.

    So is a failed run's evidence, which is kept beside the destination.
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
                    # In a shared folder all files may belong to one user of another machine.
                    with suppress(PermissionError):
                        os.chown(each, user_number, group_number, follow_symlinks=False)
