"""The tables of many runs: each is a file, which is found by being here.

A file states as `ORDER` where its table stands among the others, and makes it with `table`; tables
without rows are left out. A new file is a new table (CONTRIBUTING.md).
"""

from collections.abc import Sequence
from dataclasses import replace

from analysis.plugins import modules_in
from analysis.runs import Found
from analysis.table import Table, TableMaker


def run_tables(found: Found, of_papers: Sequence[TableMaker] = ()) -> list[Table]:
    """Every table that has rows; runs that stand apart have tables of their own.

    Args:
        of_papers: the makers of tables that hold runs against papers; these come first.
    """
    makers = (*of_papers, *(module.table for module in modules_in(__name__)))
    return [
        replace(table, made_by=part.made_by)
        for part in found.parts
        for table in (make(part) for make in makers)
        if table.rows
    ]
