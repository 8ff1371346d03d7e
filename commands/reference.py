"""Print a page of the documents that is made of the code.

`commands` is made of the commands' docstrings and options, `keys` of the models that read scenario
and variant files, `tables` of the rows that a run records, and `papers` of what the studies keep.

```sh
./run.py reference commands
./run.py reference keys
./run.py reference tables
./run.py reference papers
```

A test compares each with docs/NAME.md: after a change, print it there.
"""

import argparse

from rich.console import Console

from commands._commands_page import commands_markdown
from study.overview import overview_markdown
from testbed.asked.keys_page import keys_markdown
from testbed.basics.ending import VALID
from testbed.results.columns import columns_markdown

PAGES = {
    "commands": commands_markdown,
    "keys": keys_markdown,
    "tables": columns_markdown,
    "papers": overview_markdown,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the page's name."""
    parser.add_argument("page", choices=PAGES, help="which page of docs/")


def run(given: argparse.Namespace, _messages: Console) -> int:
    """Print the page as Markdown."""
    print(PAGES[given.page](), end="")
    return VALID
