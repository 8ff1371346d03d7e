"""Open a prompt in a scenario's network, in real time."""

import argparse

from rich.console import Console

from commands import _options
from testbed.asked.plans import make_plan
from testbed.basics.ending import VALID
from testbed.runs import runner


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    _options.add_scenario(parser)
    _options.add_variant(parser)
    _options.add_traffic(parser)
    _options.add_seed(parser, "seed of the losses, the traffic and a drawn network")


def run(given: argparse.Namespace, messages: Console) -> int:
    """Open the prompt, and end when the user leaves it."""
    plan = make_plan(given.scenario, given.variant, seed=given.seed, traffic=given.traffic)
    progress = runner.ProgressBar.on(messages, f"{plan.scenario}, {plan.variant}")
    with progress.bar:
        runner.open_shell(plan, messages, progress)
    return VALID
