"""Whether somebody set the machine's clock while a run went by it, as can happen in real time.

Whether the samples cover the duration is `results.checks`'s.
"""

import time

from testbed.errors import TestbedError

TOLERANCE_S = 0.1
"""Well above what passes between two readings; time servers correct less without a step."""


class Clock:
    """The wall clock, by which transfers, samples and Tor's events are timed.

    It goes with the monotonic clock, which nobody can set, at the same rate, also while a time
    server corrects that rate.
    """

    def __init__(self) -> None:
        self._ahead_s = _ahead_s()

    def check(self) -> None:
        """See that nobody has set it since this object was made.

        Raises:
            TestbedError: somebody has; says by how much.
        """
        by_s = _ahead_s() - self._ahead_s
        if abs(by_s) > TOLERANCE_S:
            raise TestbedError(
                f"the clock was set by {by_s:+.1f} s during the run, or the machine slept:"
                " run it again"
            )


def _ahead_s() -> float:
    """By how much the wall clock is ahead; of three readings, lest the processor be taken away."""
    return max(time.time() - time.monotonic() for _ in range(3))
