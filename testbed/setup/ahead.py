"""The builds that every run needs, in a process of their own, while the environment is made.

Only saves time: whoever needs a build waits for this one or, should it fail, makes it. Standard
library only. `environment` starts it.
"""

import os
import signal
from functools import partial
from pathlib import Path
from types import FrameType

from testbed.setup import kernel, tor
from testbed.setup.side_by_side import side_by_side
from testbed.setup.steps import Progress

# Ctrl-C, the end of whoever started us, and the end of the terminal: they may come together.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Build the kernel and the plain Tor, and show nothing: whoever waits for them does that."""
    for each in ENDING_SIGNALS:
        signal.signal(each, _end)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        progress = Progress(nowhere, live=False)
        side_by_side(
            [
                ("linux", partial(kernel.kernel_build, progress)),
                ("tor", partial(tor.tor_build, tor.CHOSEN, (), progress)),
            ],
            progress,
        )


def _end(_number: int, _frame: FrameType | None) -> None:
    """End as by Ctrl-C, and once only: what is being built has to be removed first."""
    for each in ENDING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
