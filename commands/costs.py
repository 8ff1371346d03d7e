"""Plot what networks cost over their size, of figures in a CSV file.

The columns are those of [docs/costs.csv](costs.csv): the program that ran the network, its number
of Tors, and what `bench --network` measures of it: the machine's memory, the CPU seconds until it
is ready and for an idle minute, and those for each MB. A figure that nobody has measured is left
empty. [What comes out](performance.md#networks).

```sh
./run.py costs docs/costs.csv --chart costs.svg
```
"""

import argparse
from pathlib import Path

from rich.console import Console

from analysis.costs import FIGURES, costs_plot, read_costs
from analysis.table import Table, print_tables
from testbed.basics.console import say
from testbed.basics.ending import VALID


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("file", type=Path, metavar="FILE.csv", help="the figures")
    parser.add_argument(
        "--chart", type=Path, metavar="FILE.svg", help="plot the figures, as SVG or PNG"
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Print the figures as a table, and plot them."""
    costs = read_costs(given.file)
    rows = tuple(
        (
            one.program,
            str(one.tors),
            *("-" if value is None else f"{value:g}" for value in one.values),
        )
        for one in costs
    )
    print_tables(Console(), [Table("Costs", ("program", "Tors", *FIGURES.values()), rows)])
    if given.chart:
        costs_plot(costs).save_as(given.chart)
        say(messages, f"chart in {given.chart}")
    return VALID
