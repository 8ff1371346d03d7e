"""Finds out, for each run of a batch, whether it exists, is missing, or something is in its way.

Only run directories count; Snakemake's own records don't, as they could disagree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.asked.output import check_output
from testbed.basics.errors import TestbedError
from testbed.batch.estimate import Estimator
from testbed.plan.model import Plan
from testbed.results import Run, read_run
from testbed.runs.up_to_date import Today, reason_against


@dataclass(frozen=True)
class Standing:
    """A run that a batch wants.

    Attributes:
        folder: where its results go.
        run: the run in the folder, if it is whole and of this plan; it may be invalid.
        in_the_way: why the folder's content is not that run, as a phrase; None if there is none.
    """

    plan: Plan
    folder: Path
    run: Run | None = None
    in_the_way: str | None = None

    @property
    def title(self) -> str:
        """The run's name in messages."""
        plan = self.plan
        return f"{plan.scenario}, {plan.traffic}, {plan.variant}, seed {plan.seed}"


@dataclass(frozen=True)
class Ended:
    """How a batch ended.

    Attributes:
        standings: all its runs as they are now.
        failures: for each missing run the error of its last try, by the run's folder.
    """

    standings: Sequence[Standing]
    failures: dict[Path, str]

    @property
    def invalid(self) -> list[Standing]:
        """Runs that exist and are invalid."""
        return [one for one in self.standings if one.run and not one.run.summary.valid]


def look_up(
    plans: Mapping[Path, Plan], directory: Path, *, mixed: bool = False, whole: bool = True
) -> list[Standing]:
    """Find out how each plan of a batch stands, in its folder below the directory.

    Args:
        mixed: whether runs that another Tor, kernel or testbed made count.
        whole: whether only runs with their tables do.

    Raises:
        InputError: a run's folder can't be created.
    """
    today = Today()
    return [
        stand(plan, directory / folder, today, mixed=mixed, whole=whole)
        for folder, plan in plans.items()
    ]


def stand(
    plan: Plan, folder: Path, today: Today, *, mixed: bool = False, whole: bool = True
) -> Standing:
    """Find out how one plan stands.

    Raises:
        InputError: the folder can't be created.
    """
    if not folder.exists():
        check_output(folder)
        return Standing(plan, folder)
    try:
        run = read_run(folder, whole=whole)
    except TestbedError as error:
        return Standing(plan, folder, in_the_way=str(error))
    if reason := reason_against(run, plan, today, mixed=mixed):
        return Standing(plan, folder, in_the_way=f"what is there is {reason}")
    return Standing(plan, folder, run)


def set_aside(standing: Standing) -> Path:
    """Rename a run's folder to a hidden one beside it, which no analysis reads.

    Returns:
        The new name.
    """
    folder, number = standing.folder, 1
    while (aside := folder.with_name(f".{folder.name}.replaced-{number}")).exists():
        number += 1
    folder.rename(aside)
    return aside


def lacking(
    standings: Sequence[Standing], estimator: Estimator, *, again_invalid: bool
) -> list[Standing]:
    """The runs to make, in the order in which they start.

    These are missing, or invalid with `again_invalid`. Among the runs of one seed the longest start
    first, so that no core is idle for long at the end. Where no earlier run tells how long they
    take, the batch's order stays.
    """

    def rank(one: Standing) -> tuple[int, float]:
        expected = estimator.expected(one.plan)
        return one.plan.seed, -expected.wall_s if expected else 0.0

    wanted = [
        one for one in standings if one.run is None or (again_invalid and not one.run.summary.valid)
    ]
    return sorted(wanted, key=rank)
