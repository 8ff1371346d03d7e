"""Papers that runs are compared with, a package for each. Only `commands` and `salsa` know them.

A report shows the tables of a paper for whose scenarios there are runs.
"""

from collections.abc import Sequence

from analysis.plugins import modules_in
from analysis.table import TableMaker

_PAPERS = ("papers.hydra",)

TABLES: Sequence[TableMaker] = tuple(
    module.table for paper in _PAPERS for module in modules_in(f"{paper}.tables")
)
"""The makers of every paper's tables."""
