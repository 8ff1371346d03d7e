"""Which runs a batch file asks for, and what there is of each: whole, in the way, or nothing yet.

Only run directories count. What Snakemake remembers doesn't: it could say otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from testbed.batch.estimate import Estimator
from testbed.errors import InputError, TestbedError
from testbed.plan import LARGEST_SEED, check_output, default_output, make_plan
from testbed.plan_model import Plan
from testbed.results import Run, read_run
from testbed.toml_file import PROJECT, Text, Value, find_file, label, read_model
from testbed.units import Duration
from testbed.up_to_date import Today, reason_against

BATCHES = PROJECT / "batches"


def _some(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values:
        raise ValueError("is empty: name at least one, or leave the key out")
    return values


def _as_list(value: object) -> object:
    """One value, or several in a list."""
    values = value if isinstance(value, list) else [value]
    for one in values or [None]:
        if not isinstance(one, bool | int | float | str):
            raise ValueError("must be a text, a number, true or false, or a list of them")
    return values


Names = Annotated[tuple[Text, ...], AfterValidator(_some)]
Seed = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SEED)]
Seeds = Annotated[tuple[Seed, ...], AfterValidator(_some)]


class _Keys(BaseModel):
    """A table of a batch file: unknown keys are errors, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunsKeys(_Keys):
    """Each scenario with each traffic model, variant and seed, and each value of what is set.

    `set` has values instead of those in the scenarios' files, by dotted keys.

    What is None the file says for all, or else each scenario for itself.
    """

    scenarios: Names
    traffic: Names | None = None
    variants: Names | None = None
    seeds: Seeds | None = None
    duration_s: Duration | None = Field(None, alias="duration")
    set: dict[Text, Annotated[tuple[Value, ...], BeforeValidator(_as_list)]] = {}


class BatchFile(_Keys):
    """A batch file: runs, and what holds for all that don't say otherwise."""

    title: Text
    description: str = ""
    variants: Names = ("vanilla",)
    seeds: Seeds = (1,)
    duration_s: Duration | None = Field(None, alias="duration")
    runs: Annotated[tuple[RunsKeys, ...], AfterValidator(_some)]


@dataclass(frozen=True)
class Batch:
    """A batch, resolved and checked.

    Attributes:
        name: the file's, without its extension.
        plans: by the folder of each below the batch's own; seed by seed, so that a batch that is
            stopped early has something of everything.
    """

    name: str
    title: str
    plans: dict[Path, Plan]


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


@dataclass(frozen=True)
class Ended:
    """How a batch ended.

    Attributes:
        standings: how each of its runs stands now.
        failures: by the folder of each run that is lacking, the error of its last try.
    """

    standings: Sequence[Standing]
    failures: dict[Path, str]

    @property
    def invalid(self) -> list[Standing]:
        """The runs that are there and don't count."""
        return [one for one in self.standings if one.run and not one.run.summary.valid]


def read_batch(name: str) -> Batch:
    """The batch of that name in batches/, or of the file at that path.

    Raises:
        InputError: there is none, it says something that can't be run, or two of its runs would
            have their results in one place.
    """
    file = find_file("batch", name, BATCHES)
    said = read_model(file, BatchFile)
    plans: dict[Path, Plan] = {}
    places: dict[Path, str] = {}
    for place, plan in _plans(said, file):
        folder = default_output(plan).relative_to("results")
        if folder in plans:
            raise InputError(
                f"{place}: the results would go to {folder}, as those of {places[folder]}:"
                " leave one out, or give it a batch file of its own"
            )
        plans[folder], places[folder] = plan, place
    in_order = sorted(plans.items(), key=lambda item: item[1].seed)
    return Batch(file.stem, said.title, dict(in_order))


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


def lacking(
    standings: Sequence[Standing], estimator: Estimator, *, again_invalid: bool
) -> list[Standing]:
    """The runs to be made, in the order in which they are begun.

    They aren't there, or don't count and are asked for again. Those of a seed that take longest
    come first, so that at the end no core stands idle for long; as the batch has them where no
    earlier run says what one takes.
    """

    def rank(one: Standing) -> tuple[int, float]:
        expected = estimator.expected(one.plan)
        return one.plan.seed, -expected.wall_s if expected else 0.0

    wanted = [
        one for one in standings if one.run is None or (again_invalid and not one.run.summary.valid)
    ]
    return sorted(wanted, key=rank)


def _plans(said: BatchFile, file: Path) -> Iterator[tuple[str, Plan]]:
    """Each plan with the place in the file that asks for it."""
    for number, keys in enumerate(said.runs, start=1):
        place = f"{label(file)}: runs[{number}]"
        for scenario, traffic, values, variant, seed in product(
            keys.scenarios,
            keys.traffic or (None,),
            product(*keys.set.values()),
            keys.variants or said.variants,
            keys.seeds or said.seeds,
        ):
            try:
                plan = make_plan(
                    _beside(file, scenario),
                    _beside(file, variant),
                    seed=seed,
                    duration=keys.duration_s or said.duration_s,
                    traffic=traffic,
                    changes=dict(zip(keys.set, values, strict=True)),
                )
            except InputError as error:
                # It speaks of options, where here are keys.
                raise InputError(f"{place}: {str(error).removeprefix('--')}") from error
            yield place, plan


def _beside(file: Path, name: str) -> str:
    """A name as it is; a path relative to the file that says it."""
    is_path = "/" in name or name.endswith(".toml")
    return str(file.parent / Path(name).expanduser()) if is_path else name
