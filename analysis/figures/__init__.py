"""The figures of the report on many runs: each is a file, which is found by being here.

A file states as `PART` in which part of the report its plots stand, which also decides the runs
that they cover; as `ORDER` where they stand in that part; and it makes them with `plots`. The data
of a plot is computed apart from plotting it. A new file is a new figure (CONTRIBUTING.md).
"""

from collections.abc import Iterator
from enum import Enum, auto
from types import ModuleType

from analysis.plot import Plot
from analysis.plugins import modules_in
from analysis.runs import Groups
from analysis.style import Looks


class Part(Enum):
    """A part of the report.

    Attributes:
        ANSWER: beside the sentences on a scenario's runs of a traffic model and duration, which a
            report of these alone begins with.
        SECTION: a section of its own, on all runs; the file states its `HEADING`.
        SCENARIO: the end of a scenario's section, on the scenario's runs.
        TRAFFIC: below a scenario's tables for a traffic model and duration, on those runs.
    """

    ANSWER = auto()
    SECTION = auto()
    SCENARIO = auto()
    TRAFFIC = auto()


def figure_files(part: Part) -> list[ModuleType]:
    """The files whose plots stand in a part, in their order."""
    return [module for module in modules_in(__name__) if module.PART is part]


def plots(part: Part, groups: Groups, looks: Looks) -> Iterator[Plot]:
    """All plots of a part, on these runs.

    Raises:
        TestbedError: a run's plan or a table can't be read.
    """
    for file in figure_files(part):
        yield from file.plots(groups, looks)
