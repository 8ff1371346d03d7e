"""The builds that every run needs, in a process of their own, while the environment is made.

Only saves time: whoever needs a build waits for this one or, should it fail, makes it. Standard
library only. `environment` starts it.
"""

import os
import signal
from functools import partial
from pathlib import Path

from testbed.setup import kernel, tor
from testbed.setup.side_by_side import side_by_side
from testbed.setup.steps import Progress


def main() -> None:
    """Build the kernel and the plain Tor, and show nothing: whoever waits for them does that."""
    # Whoever started us has ended: what is being built is removed, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        progress = Progress(nowhere, live=False)
        side_by_side(
            [
                ("linux", partial(kernel.kernel_build, progress)),
                ("tor", partial(tor.tor_build, tor.PINNED, (), progress)),
            ],
            progress,
        )


if __name__ == "__main__":
    main()
