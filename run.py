#!/usr/bin/env python3
"""The entry point: makes the environment on first use and hands over to `commands`.

Needs only Python's standard library. No command runs in this process.
"""

import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent


def main() -> int:
    """Prepare the environment of a command, then become `commands` in it."""
    if sys.version_info < (3, 11):  # noqa: UP036 - users may run any Python
        found = ".".join(map(str, sys.version_info[:3]))
        sys.stderr.write(
            "run.py: Python 3.11 or newer is needed, this is "
            + found
            + ": use Debian 12 or 13, whose own is new enough (/usr/bin/python3 run.py)\n"
        )
        return 1
    sys.path.insert(0, str(PROJECT))
    # Imported only now, as an older Python could not even parse these files.
    from testbed.basics.errors import TestbedError
    from testbed.setup import environment, privileges

    try:
        privileges.give_up_sudo(sys.argv[1:])
        arguments = sys.argv[1:]
        python = privileges.as_user(environment.ensure_environment, PROJECT, arguments)
    except TestbedError as error:
        sys.stderr.write(f"run.py: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    os.execve(
        python,
        [str(python), "-m", "commands", *sys.argv[1:]],
        environment.variables(PROJECT),
    )


if __name__ == "__main__":
    sys.exit(main())
