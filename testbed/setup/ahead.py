"""Makes the builds that every run needs, in a process of its own, beside the environment.

It only saves time: a later step that needs a build waits for it or, if it failed, makes it.
`environment` starts this process. Standard library only.
"""

import os
import signal
from functools import partial
from pathlib import Path
from types import FrameType

from testbed.basics.steps import Progress
from testbed.setup import kernel, tor
from testbed.setup.side_by_side import side_by_side

# Ctrl-C, the end of the parent process, and the end of the terminal: they may come together.
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Build the kernel and the plain Tor, without output: the step that waits for them shows it."""
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
    """End as on Ctrl-C, and only once: unfinished builds have to be removed first."""
    for each in ENDING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
