"""Tables that hold runs of the paper's scenarios against it; see `analysis.tables`.

A report shows those for whose scenarios there are runs.
"""

from collections.abc import Sequence

from analysis.plugins import modules_in
from analysis.table import TableMaker

TABLES: Sequence[TableMaker] = tuple(module.table for module in modules_in(__name__))
"""The makers of these tables, in their order in a report."""
