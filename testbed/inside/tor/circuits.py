"""The circuits of all clients: the plan says who decides on them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testbed.basics.errors import TestbedError
from testbed.inside.recording import Record
from testbed.inside.tor.client_circuits import ClientCircuits
from testbed.inside.tor.control import call_between_events
from testbed.inside.tor.linked_sets import LinkedSet
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.own_choice import OwnChoice
from testbed.inside.tor.policy_circuits import PolicyCircuits
from testbed.inside.tor.selected_circuits import SelectedCircuits
from testbed.inside.waiting import wait_until
from testbed.plan.model import Plan

BUILD_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0
TICK_INTERVAL_S = 1.0


class Circuits:
    """The circuits of all clients here, by the plan's policy."""

    def __init__(self, network: TorNetwork, plan: Plan, record: Record) -> None:
        kind = _kind(plan)
        self.probed, self.shown_by_probes = kind.probed, kind.shown_by_probes
        self._network = network
        self._circuits = [
            kind(network[client.name], network, plan, record) for client in plan.here("client")
        ]

    def __iter__(self) -> Iterator[ClientCircuits]:
        return iter(self._circuits)

    def build(self, round_name: str) -> None:
        """Let all clients build at the same instant, and wait until all are ready.

        Raises:
            TestbedError: a circuit failed, or one was not built in time.
        """
        for circuits in self:
            circuits.build(round_name)

        def missing() -> Iterator[str]:
            return (f"{one.client}'s circuit" for one in self if not one.is_ready())

        self._wait(missing, BUILD_TIMEOUT_S, "building circuits")

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Call each policy's tick once a second within the context, no two clients' at once."""
        ticked = [one for one in self if one.ticks]
        ended = threading.Event()

        def tick_steadily() -> None:
            at_s = time.monotonic()
            while ticked:
                for one in ticked:
                    at_s += TICK_INTERVAL_S / len(ticked)
                    if ended.wait(max(0.0, at_s - time.monotonic())):
                        return
                    call_between_events(one.tick)

        thread = threading.Thread(target=tick_steadily, name="ticks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def let_policies_probe(self) -> None:
        """Let the probes of policies begin."""
        for one in self:
            one.may_probe = True

    def close(self) -> None:
        """Close all circuits and wait until Tor says so."""
        for circuits in self:
            circuits.close_all()

        def missing() -> Iterator[str]:
            return (f"the end of {one.client}'s circuit" for one in self if not one.is_closed())

        self._wait(missing, CLOSE_TIMEOUT_S, "closing circuits")

    def states(self) -> dict[str, str]:
        """The open circuits of each client whose circuits must not change, as text."""
        return {one.client: one.state() for one in self if one.steady}

    def check(self) -> None:
        """Raise TestbedError if a policy or the handling of an event has failed."""
        self._network.check()
        if failure := next((one.failure for one in self if one.failure), None):
            raise TestbedError(failure)

    def _wait(self, missing: Callable[[], Iterator[str]], timeout_s: float, doing: str) -> None:
        def missing_or_failed() -> Iterator[str]:
            self.check()
            return missing()

        wait_until(missing_or_failed, timeout_s, doing, interval_s=0.05)


def _kind(plan: Plan) -> type[ClientCircuits]:
    if plan.policy.rule is not None:
        return SelectedCircuits
    if plan.policy.is_tors:
        return OwnChoice
    return LinkedSet if plan.tor.conflux else PolicyCircuits
