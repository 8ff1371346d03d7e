"""Show scenarios, variants, traffic models and consensuses.

Variants are shown with their parameters.

```sh
./run.py list
```
"""

import argparse

from rich.console import Console
from rich.table import Table

from testbed.asked.scenario import SCENARIOS, scenario_title
from testbed.asked.variant_file import read_part
from testbed.asked.variant_name import TOR_CONFIGS, Term
from testbed.basics.ending import VALID
from testbed.basics.toml_file import names_in
from testbed.inside.traffic.models import MODELS
from testbed.network import distilled


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add nothing: `list` takes no options."""


def run(_given: argparse.Namespace, _messages: Console) -> int:
    """Print a table with a row for each of them."""
    table = Table("kind", "name", "what it is", box=None)
    for name in names_in(SCENARIOS):
        table.add_row("scenario", name, scenario_title(name))
    for name in names_in(TOR_CONFIGS):
        part = read_part(Term(name))
        table.add_row("variant", part.signature, part.content.title)
    for model in MODELS.values():
        table.add_row("traffic", model.name, model.description)
    for name in distilled.names():
        table.add_row("consensus", name, "the live network of that day")
    Console().print(table)
    return VALID
