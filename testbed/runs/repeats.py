"""The runs of a comparison, one for each variant and seed: which are missing, and making them.

Their statistics are `analysis`' business.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console

from testbed.asked.output import check_output, default_output
from testbed.asked.plans import make_plan
from testbed.basics.console import say
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import Value
from testbed.plan.model import Plan
from testbed.results import read_run
from testbed.runs import runner
from testbed.runs.up_to_date import Today, reason_against

_WAY_OUT = "remove it, move it away, or compare in another directory"


def paired_plans(
    scenario: str,
    variants: Sequence[str],
    runs: int,
    *,
    duration: str | None = None,
    traffic: str | None = None,
    changes: Mapping[str, Value] | None = None,
    across: Sequence[Mapping[str, Value]] = ({},),
) -> list[Plan]:
    """The plans of a comparison: seeds 1 to `runs` of each variant, under each setting.

    They are ordered by seed, so an interrupted comparison has whole pairs: a seed gives each link
    the same losses under all of them. For the other arguments see `make_plan`.

    Args:
        across: the settings, which are changes beside `changes`.

    Raises:
        InputError: a plan can't be run, or two variants have the same name and so one directory.
    """
    if runs < 1:
        raise InputError(f"--runs {runs} is too few: give 2 or more for an interval, such as 3")
    plans = [
        make_plan(
            scenario,
            variant,
            seed=seed,
            duration=duration,
            traffic=traffic,
            changes={**(changes or {}), **setting},
        )
        for seed in range(1, runs + 1)
        for setting in across
        for variant in variants
    ]
    names = [plan.variant for plan in plans[: len(variants)]]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"two of the variants are called {twice[0]}: give each a name of its own")
    return plans


def missing(plans: Sequence[Plan], *, mixed: bool = False) -> list[Plan]:
    """The plans without a run in their results directory.

    Args:
        mixed: whether runs that another Tor, kernel or testbed made count.

    Raises:
        InputError: a directory has the run of another plan, was made by another Tor, kernel or
            testbed, or can't be read.
    """
    today = Today()
    return [plan for plan in plans if not _is_there(plan, today, mixed)]


def carry_out_each(plans: Sequence[Plan], messages: Console) -> None:
    """Carry out plans one after another, each into its results directory.

    Raises:
        TestbedError: a run failed; the runs before it stay.
    """
    for number, plan in enumerate(plans, start=1):
        title = f"run {number} of {len(plans)}: {plan.scenario}, {plan.variant}, seed {plan.seed}"
        say(messages, title)
        progress = runner.ProgressBar.on(messages, title)
        with progress.bar:
            runner.carry_out(plan, default_output(plan), messages, progress.show)


def _is_there(plan: Plan, today: Today, mixed: bool) -> bool:
    folder = default_output(plan)
    if not folder.exists():
        check_output(folder)
        return False
    try:
        run = read_run(folder)
    except TestbedError as error:
        raise InputError(f"{error}; {folder} is in the way: {_WAY_OUT}") from None
    if reason := reason_against(run, plan, today, mixed=mixed):
        raise InputError(f"{folder} is {reason}; {_WAY_OUT}")
    return True
