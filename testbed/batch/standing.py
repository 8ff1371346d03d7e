"""What there is of each run of a batch: whole and of its plan, in the way, or nothing yet.

Only run directories count. What Snakemake remembers doesn't: it could say otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError
from testbed.plan import check_output
from testbed.plan_model import Plan
from testbed.results import Run, read_run
from testbed.up_to_date import Today, reason_against


@dataclass(frozen=True)
class Standing:
    """A run that a batch wants.

    Attributes:
        folder: where its results go.
        run: what is there, if it is whole and of this plan; it may be invalid.
        in_the_way: why what is there is not that, as a phrase; None if nothing is there.
    """

    plan: Plan
    folder: Path
    run: Run | None = None
    in_the_way: str | None = None

    @property
    def title(self) -> str:
        """The run as messages name it."""
        plan = self.plan
        return f"{plan.scenario}, {plan.traffic}, {plan.variant}, seed {plan.seed}"


def look_up(plans: Mapping[Path, Plan], directory: Path, *, mixed: bool = False) -> list[Standing]:
    """How each plan of a batch stands; their folders are below the directory.

    Args:
        mixed: whether what made the runs that are there may be another than makes them now.

    Raises:
        InputError: a folder could not be made.
    """
    today = Today()
    return [stand(plan, directory / folder, today, mixed=mixed) for folder, plan in plans.items()]


def stand(plan: Plan, folder: Path, today: Today, *, mixed: bool = False) -> Standing:
    """How one plan stands.

    Raises:
        InputError: the folder could not be made.
    """
    if not folder.exists():
        check_output(folder)
        return Standing(plan, folder)
    try:
        run = read_run(folder)
    except TestbedError as error:
        return Standing(plan, folder, in_the_way=str(error))
    if reason := reason_against(run, plan, today, mixed=mixed):
        return Standing(plan, folder, in_the_way=f"what is there is {reason}")
    return Standing(plan, folder, run)


def set_aside(standing: Standing) -> Path:
    """Move what is in a run's way to a hidden folder beside it, which no analysis reads.

    Returns:
        Where it is now. Nothing of it is lost.
    """
    folder, number = standing.folder, 1
    while (aside := folder.with_name(f".{folder.name}.replaced-{number}")).exists():
        number += 1
    folder.rename(aside)
    return aside
