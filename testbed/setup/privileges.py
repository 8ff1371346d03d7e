"""Root only where it is needed: packages, and the host machine; all else as the user behind sudo.

So the cache and the results are the user's own, with or without sudo. Standard library only.
"""

import glob
import itertools
import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.setup import packages, steps


def needs_root(arguments: Sequence[str]) -> bool:
    """Tell whether a command line asks for the host machine, which works on the host's network."""
    pairs = itertools.pairwise(arguments)
    return "--machine=host" in arguments or ("--machine", "host") in pairs


def give_up_sudo(arguments: Sequence[str]) -> None:
    """Under sudo: install the packages, then go on as the user who called sudo.

    Root without sudo stays root. With `--machine host` it stays root too.

    Raises:
        TestbedError: the packages can't be installed.
    """
    user_number = int(os.environ.get("SUDO_UID", "0"))
    if os.geteuid() != 0 or user_number == 0 or needs_root(arguments):
        return
    packages.ensure_packages(steps.Progress())
    try:
        user = pwd.getpwuid(user_number)
    except KeyError:  # sudo's user is unknown here (a container): nobody to go on as
        return
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user_number)
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"):
        os.environ.pop(name, None)


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
