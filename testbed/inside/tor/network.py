"""The Tors of a run, and facts about all of them."""

from collections.abc import Collection

from testbed.basics.errors import TestbedError
from testbed.inside.tor.process import RunningTor
from testbed.plan.build_times import Learned


class TorNetwork:
    """The authority, relays and clients of a run, with their relays' fingerprints.

    Attributes:
        options: the torrc options that these Tors know, in lower case.
        learned: what each client has learned from build times before the run, by its name; empty
            if none learns.
    """

    def __init__(
        self,
        tors: dict[str, RunningTor],
        fingerprints: dict[str, str],
        options: Collection[str] = (),
    ) -> None:
        self.tors = tors
        self.fingerprints = fingerprints
        self.options = options
        self.learned: dict[str, Learned] = {}

    def __getitem__(self, name: str) -> RunningTor:
        return self.tors[name]

    def knows(self, option: str) -> bool:
        """Whether these Tors know a torrc option."""
        return option.lower() in self.options

    def learn_fingerprints(self) -> None:
        """Ask each relay for its fingerprint."""
        self.fingerprints = {
            name: tor.controller.get_info("fingerprint")
            for name, tor in self.tors.items()
            if tor.node.kind == "relay"
        }

    def check(self) -> None:
        """Raise TestbedError if an event of a Tor could not be handled."""
        failures = (tor.controller.failure for tor in self.tors.values())
        if failure := next(filter(None, failures), None):
            raise TestbedError(failure)

    def ended(self) -> list[str]:
        """The Tors that have ended by themselves."""
        return [name for name, tor in self.tors.items() if tor.has_ended()]
