"""The paper's statements on two clients, and whether runs confirm them."""

from analysis.runs import Found
from analysis.table import Table
from study.hydra.statements import judged_statements

ORDER = 30


def table(found: Found) -> Table:
    """A row for each statement on the scenarios with runs."""
    return Table(
        title="What the paper says of two clients",
        columns=("statement", "verdict", "in these runs"),
        rows=tuple(
            (statement.text, statement.verdict, statement.numbers)
            for statement in judged_statements(found)
        ),
        note=(
            "pctls against vanilla, by the runs' means (not medians), with the 95 % confidence"
            " interval of the change in brackets. A statement on several models holds if it holds"
            " for each."
        ),
    )
