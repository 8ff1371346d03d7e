"""Checks of a run's tables, which must hold for the run to count: a file for each subject.

Files are found automatically. Each has a function `checks`, which gives the checks of its subject,
or none if the plan has no such thing. Checks that need the running network are in `inside.checks`.
"""

import importlib
import pkgutil
from collections.abc import Iterator

from testbed.basics.check import Check
from testbed.plan.model import Plan
from testbed.results.recorded import Recorded


def computed_checks(plan: Plan, recorded: Recorded) -> Iterator[Check]:
    """The checks of all files, in the order of the files' names.

    Raises:
        TestbedError: the record of the links lacks a reading.
    """
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{__name__}.{found.name}")
        yield from module.checks(plan, recorded)
