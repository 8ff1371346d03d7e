"""Waiting until nothing is missing any more."""

import time
from collections.abc import Callable, Iterable

from testbed.basics.errors import TestbedError

POLL_INTERVAL_S = 0.5


def wait_until(
    missing: Callable[[], Iterable[str]],
    timeout_s: float,
    doing: str,
    interval_s: float = POLL_INTERVAL_S,
) -> None:
    """Call `missing` until it gives nothing; only its first item matters.

    Raises:
        TestbedError: something was still missing after the timeout; the message names it.
    """
    end_s = time.monotonic() + timeout_s
    while first := next(iter(missing()), None):
        if time.monotonic() > end_s:
            raise TestbedError(f"{doing}: after {timeout_s:g} s still missing: {first}")
        time.sleep(interval_s)
