"""Checks of the running network, which must hold for the run to count: a file for each subject.

Files are found automatically. Each has a coroutine `before`, `after`, or both, which are called
when measuring is about to begin and when it has ended. They return the checks of their subject, or
none if the plan has no such thing. Checks that need only a run's tables are in `results.checks`.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from testbed.basics.check import Check
from testbed.inside.lab.network import Lab
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.network import TorNetwork
from testbed.plan.model import Plan


@dataclass(frozen=True)
class Running:
    """A network whose clients have their circuits.

    Attributes:
        states: the circuits, when this was made, of each client whose circuits must not change.
    """

    lab: Lab
    network: TorNetwork
    circuits: Circuits
    states: Mapping[str, str]

    @property
    def plan(self) -> Plan:
        """The plan that is run."""
        return self.lab.plan


async def all_checks(running: Running, when: Literal["before", "after"]) -> list[Check]:
    """The checks of all files, in the order of the files' `ORDER`, if any, and names."""
    names = [f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(name) for name in names]
    checks: list[Check] = []
    for module in sorted(modules, key=lambda each: (getattr(each, "ORDER", 0), each.__name__)):
        if check := getattr(module, when, None):
            checks += await check(running)
    return checks
