"""Whether each Tor uses the scheduler that its torrc asks for."""

import asyncio
from functools import partial

from stem.control import EventType
from stem.response.events import LogEvent

from testbed.basics.check import Check
from testbed.inside.checks import Running

LOGGING_S = 0.2
"""Enough for Tor to send log events, although hundreds of Tors log a lot at the same time."""
_SCHEDULER_BY_MESSAGE = {
    "Setting KIST scheduler with kernel support": "KIST",
    "Setting KIST scheduler without kernel support": "KISTLite",
}
"""Tor's log messages after each choice of a scheduler; it logs none for Vanilla."""


async def before(running: Running) -> list[Check]:
    """Whether each Tor uses the first scheduler of its list: it silently falls back to another."""
    network = running.network
    wanted = {
        name: tor.controller.get_conf("Schedulers").split(",")[0]
        for name, tor in network.tors.items()
    }
    seen = dict.fromkeys(network.tors, "Vanilla")

    def on_log(name: str, event: LogEvent) -> None:
        for message, scheduler in _SCHEDULER_BY_MESSAGE.items():
            if message in event.message:
                seen[name] = scheduler

    listeners = {name: partial(on_log, name) for name in network.tors}
    for name, tor in network.tors.items():
        tor.controller.add_event_listener(listeners[name], EventType.INFO)
        # Any SETCONF, even one that changes nothing, makes Tor choose a scheduler again.
        tor.controller.set_conf("TestingEnableCellStatsEvent", "0")
    await asyncio.sleep(LOGGING_S)
    for name, tor in network.tors.items():
        tor.controller.remove_event_listener(listeners[name])
    others = [f"{name}: {seen[name]}" for name in wanted if seen[name] != wanted[name]]
    expected = ", ".join(sorted(set(wanted.values())))
    observed = "; ".join(others) or expected
    return [Check(name="scheduler", expected=expected, observed=observed, ok=not others)]
