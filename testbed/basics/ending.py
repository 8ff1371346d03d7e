"""How a process of the testbed ends: its exit statuses, and signals that interrupt it."""

import signal
from types import FrameType

VALID, FAILED, BAD_INPUT, PREMISE_FAILED = 0, 1, 2, 3
DIFFERS = 3
INTERRUPTED = 130
"""The exit statuses of all commands; see each command's --help."""

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Ignored signals stay ignored: SIGHUP under nohup, SIGINT in a shell's background.
    """
    for number in _INTERRUPTING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """End on SIGTERM and SIGHUP as on Ctrl-C, so everything that was started is ended.

    Only once: an impatient second signal would interrupt the tidying up.
    """
    for number in _INTERRUPTING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
