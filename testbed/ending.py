"""How a process of the testbed ends: its exit status, and the signals that ask it to."""

import signal
from types import FrameType

VALID, FAILED, BAD_INPUT, PREMISE_FAILED = 0, 1, 2, 3
DIFFERS = 3
INTERRUPTED = 130
"""The exit status of each command; see --help."""

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Have signals that ask this process to end raise KeyboardInterrupt.

    What is ignored stays so: the hang-up under nohup, Ctrl-C in a shell's background.
    """
    for number in _INTERRUPTING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """End on SIGTERM and SIGHUP as on Ctrl-C: everything that was started is ended.

    Once: an impatient second signal would leave the tidying half-done.
    """
    for number in _INTERRUPTING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
