"""Show what is installed, what is missing, and whether runs work here.

In the virtual machine and on the host. It changes nothing.

```sh
./run.py doctor
```
"""

import argparse

from rich.console import Console

from testbed.basics.ending import FAILED, VALID
from testbed.setup.doctor import print_doctor


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(_given: argparse.Namespace, _messages: Console) -> int:
    """Print a table; fail if runs can't work."""
    return VALID if print_doctor(Console()) else FAILED
