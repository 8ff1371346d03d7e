"""Whether the machine's clock was set during a run, as can happen in real time.

`results.checks.clock` tests whether the samples cover the duration.
"""

import time

from testbed.basics.errors import TestbedError

TOLERANCE_S = 0.1
"""Well above the time between two readings; time servers correct less than this without a step."""


class Clock:
    """The wall clock, by which transfers, samples and Tor's events are timed.

    It has the rate of the monotonic clock, which nobody can set, even while a time server corrects
    that rate.
    """

    def __init__(self) -> None:
        self._ahead_s = _ahead_s()

    def check(self) -> None:
        """Check that it has not been set since this object was made.

        Raises:
            TestbedError: it has been set; the message says by how much.
        """
        by_s = _ahead_s() - self._ahead_s
        if abs(by_s) > TOLERANCE_S:
            raise TestbedError(
                f"the clock was set by {by_s:+.1f} s during the run, or the machine slept:"
                " run it again"
            )


def _ahead_s() -> float:
    """How far the wall clock is ahead, by the best of three readings: one may be interrupted."""
    return max(time.time() - time.monotonic() for _ in range(3))
