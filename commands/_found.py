"""Messages beside the tables of many runs: which are left out, and which stand apart."""

from collections.abc import Sequence

from rich.console import Console

from analysis.runs import Found
from testbed.basics.console import say


def tell_left_out(lines: Sequence[str], messages: Console) -> None:
    """Name the runs that don't count, with the reasons."""
    for line in lines:
        say(messages, f"left out: {line}")


def tell_summaries(found: Found, messages: Console) -> None:
    """Say how many runs have lost their tables."""
    of_all = (run for part in found.parts for runs in part.valid.values() for run in runs)
    if alone := sum(not run.is_whole for run in of_all):
        text = f"{alone} runs have only their summaries: what needs their tables is missing"
        say(messages, text)


def tell_parts(found: Found, messages: Console) -> None:
    """Say which runs can't be averaged, as different programs made them."""
    for part in found.parts if found.apart else ():
        text = f"{part.count} runs stand apart, made by {part.made_by} (--mixed puts them together)"
        say(messages, text)
