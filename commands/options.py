"""Show which of Tor's options the lab has set otherwise than the live network, and why.

The pinned Tor is asked for them; [live-network.md](live-network.md) has the answer.

```sh
./run.py options
```
"""

import argparse

from rich.console import Console

from testbed.basics.ending import VALID
from testbed.runs.live_options import options_markdown
from testbed.setup.ready import TorNeed, ensure_tors


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: `options` takes no options."""


def run(_given: argparse.Namespace, messages: Console) -> int:
    """Ask the pinned Tor, and print a table in Markdown, as in docs/live-network.md."""
    (tor,) = ensure_tors(messages, [TorNeed()]).values()
    print(options_markdown(tor.product("tor")), end="")
    return VALID
