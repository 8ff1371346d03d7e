"""The runs that a comparison needs, one a variant and seed: those that are there, and the others.

What they say together is the analysis's.
"""

from collections.abc import Mapping, Sequence

from rich.console import Console

from testbed import runner
from testbed.errors import InputError, TestbedError
from testbed.plan import check_output, default_output, make_plan
from testbed.plan_model import Plan
from testbed.results import read_run
from testbed.toml_file import Value
from testbed.up_to_date import Today, reason_against

_WAY_OUT = "remove it, move it away, or compare in another directory"


def paired_plans(
    scenario: str,
    variants: Sequence[str],
    runs: int,
    *,
    duration: str | None = None,
    traffic: str | None = None,
    changes: Mapping[str, Value] | None = None,
) -> list[Plan]:
    """The plans of a comparison: seeds 1 to `runs` of each variant.

    Seed by seed, so that a comparison that is interrupted has whole pairs. For the other arguments
    see `make_plan`.

    Raises:
        InputError: one of them can't be run, or two variants have one name and so one directory.
    """
    if runs < 1:
        raise InputError(f"--runs {runs} is none: give 2 or more for an interval, such as 3")
    plans = [
        make_plan(scenario, variant, seed=seed, duration=duration, traffic=traffic, changes=changes)
        for seed in range(1, runs + 1)
        for variant in variants
    ]
    names = [plan.variant for plan in plans[: len(variants)]]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"two of the variants are called {twice[0]}: give each a name of its own")
    return plans


def missing(plans: Sequence[Plan], *, mixed: bool = False) -> list[Plan]:
    """Those plans of which there is no run where their results go.

    Args:
        mixed: whether what made the runs that are there may be another than makes them now.

    Raises:
        InputError: what is there is the run of another plan, made by another, or can't be read.
    """
    today = Today()
    return [plan for plan in plans if not _is_there(plan, today, mixed)]


def carry_out_each(plans: Sequence[Plan], messages: Console) -> None:
    """Carry out one plan after another, each to where its results go.

    Raises:
        TestbedError: a run failed; those before it stay.
    """
    for number, plan in enumerate(plans, start=1):
        title = f"run {number} of {len(plans)}: {plan.scenario}, {plan.variant}, seed {plan.seed}"
        messages.print(title, markup=False, highlight=False)
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
