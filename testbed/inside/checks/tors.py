"""Whether all Tors lived until measuring had ended."""

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running

ORDER = 1
"""Comes last: other checks take seconds, and a Tor that ends meanwhile must not be missed."""


async def after(running: Running) -> list[Check]:
    """Name the Tors that ended."""
    return [none_of("Tors that ended", running.network.ended())]
