"""Root only where it is needed: packages, and the host machine; all else as the user behind sudo.

So the cache and the results are the user's own, with or without sudo. Standard library only.
"""

import itertools
import os
import pwd
from collections.abc import Sequence

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
