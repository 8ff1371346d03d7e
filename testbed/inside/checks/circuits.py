"""Whether the clients kept their circuits, and their streams ran on no others."""

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running


async def after(running: Running) -> list[Check]:
    """Compare the circuits with those at the beginning, and name streams on other circuits."""
    checks = []
    if running.states:
        changed = [
            f"{client}: {state}"
            for client, state in running.circuits.states().items()
            if state != running.states[client]
        ]
        checks.append(none_of("circuits that changed", changed))
    strays = [
        f"{circuit.client}: circuit {stray}"
        for circuit in running.circuits
        for stray in circuit.strays
    ]
    return [*checks, none_of("streams on other circuits", strays)]
