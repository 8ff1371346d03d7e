"""Install and build everything that runs need.

Debian packages (under `sudo`), the Python environment, Tor and the kernel, as the first call of
any command does, in [about four minutes](performance.md#the-set-up).

```sh
sudo ./run.py setup
```
"""

import argparse

from rich.console import Console

from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.setup import kernel, releases
from testbed.setup.ready import ensure_ready, tor_need

VARIANTS = ("vanilla", "pctls")
"""The variants that are built before their first run."""


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(_given: argparse.Namespace, messages: Console) -> int:
    """Install and build, and name the Tor and Linux in use."""
    get_ready(messages)
    for choice in (kernel.choice(), releases.chosen("tor")):
        say(messages, str(choice))
    return VALID


def get_ready(messages: Console) -> None:
    """Install and build what is missing."""
    from testbed.asked.variant import read_variant

    variants = [read_variant(name) for name in VARIANTS]
    ensure_ready(messages, [tor_need(one.source, one.release, one.patches) for one in variants])
