"""Reads a batch file: its keys, and a plan for each run that it asks for.

Which of these runs exist is found out in `standings`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from testbed.asked.output import default_output
from testbed.asked.plans import LARGEST_SEED, make_plan
from testbed.asked.variant_name import beside
from testbed.basics.errors import InputError
from testbed.basics.toml_file import (
    PROJECT,
    Text,
    Value,
    find_file,
    is_path,
    label,
    read_model,
    shown,
    suggestion,
)
from testbed.basics.units import Duration
from testbed.plan.model import Plan

STUDIES, STUDY = PROJECT / "studies", "study.toml"
"""The studies' folders, and the file in each that is a batch, too."""


def _some(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values:
        raise ValueError("is empty: name at least one, or leave the key out")
    return values


def _as_list(value: object) -> object:
    """A list from one value or several."""
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
    """All combinations of scenarios, traffic models, variants, seeds and values in `set`.

    `set` has lists of values, by dotted keys, that replace those in the scenarios' files. What is
    None is taken from the top of the file, or else from each scenario.
    """

    scenarios: Names
    traffic: Names | None = None
    variants: Names | None = None
    seeds: Seeds | None = None
    duration_s: Duration | None = Field(None, alias="duration")
    set: dict[Text, Annotated[tuple[Value, ...], BeforeValidator(_as_list)]] = {}


class BatchFile(_Keys):
    """A batch file: its entries in `runs`, and defaults for all of them.

    What `study` and `commands` have isn't a batch's: the package `study` reads it. A study whose
    page is made of what commands print may have no runs.
    """

    title: Text
    description: str = ""
    variants: Names = ("vanilla",)
    seeds: Seeds = (1,)
    duration_s: Duration | None = Field(None, alias="duration")
    runs: tuple[RunsKeys, ...] = ()
    study: dict[str, Any] = {}
    commands: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _has_something(self) -> "BatchFile":
        if not self.runs and not self.commands:
            raise ValueError("the table [[runs]] is missing: which scenarios")
        return self

    @property
    def count(self) -> int:
        """How many runs it asks for."""
        return sum(
            len(keys.scenarios)
            * len(keys.traffic or (None,))
            * prod(map(len, keys.set.values()))
            * len(keys.variants or self.variants)
            * len(keys.seeds or self.seeds)
            for keys in self.runs
        )


@dataclass(frozen=True)
class Batch:
    """A batch, resolved and checked.

    Attributes:
        name: the file's name without its extension, or that of a study's folder.
        plans: the runs' plans by their folders below the batch's own. All runs of one seed come
            before those of the next, so a batch that is stopped early has some of each kind.
    """

    name: str
    title: str
    plans: dict[Path, Plan]


def read_batch(name: str) -> Batch:
    """Read the study of that name, or the file at that path.

    Raises:
        InputError: there is none, one of its runs is impossible, or the results of two runs would
            go to one folder.
    """
    file = _file(name)
    content = read_model(file, BatchFile)
    plans: dict[Path, Plan] = {}
    places: dict[Path, str] = {}
    for place, plan in _plans(content, file):
        folder = default_output(plan).relative_to("results")
        if folder in plans:
            raise InputError(
                f"{place}: the results would go to {folder}, as those of {places[folder]}:"
                " leave one out, or give it a batch file of its own"
            )
        plans[folder], places[folder] = plan, place
    in_order = sorted(plans.items(), key=lambda item: item[1].seed)
    return Batch(_name(file), content.title, dict(in_order))


def _file(name: str) -> Path:
    """The file of that name, or at that path."""
    of_studies = {file.parent.name: file for file in STUDIES.glob(f"*/{STUDY}")}
    if is_path(name):
        return find_file("batch", name, STUDIES)
    if name not in of_studies:
        raise InputError(f"there is no batch {shown(name)}: {suggestion(name, sorted(of_studies))}")
    return of_studies[name]


def _name(file: Path) -> str:
    return file.parent.name if file.name == STUDY else file.stem


def _plans(content: BatchFile, file: Path) -> Iterator[tuple[str, Plan]]:
    """Each plan with its place in the file, for messages."""
    for number, keys in enumerate(content.runs, start=1):
        place = f"{label(file)}: runs[{number}]"
        for scenario, traffic, values, variant, seed in product(
            keys.scenarios,
            keys.traffic or (None,),
            product(*keys.set.values()),
            keys.variants or content.variants,
            keys.seeds or content.seeds,
        ):
            try:
                plan = make_plan(
                    _beside(file, scenario),
                    beside(file, variant),
                    seed=seed,
                    duration=keys.duration_s or content.duration_s,
                    traffic=traffic,
                    changes=dict(zip(keys.set, values, strict=True)),
                )
            except InputError as error:
                # The error names options; a batch file has keys.
                raise InputError(f"{place}: {str(error).removeprefix('--')}") from error
            yield place, plan


def _beside(file: Path, name: str) -> str:
    """A name unchanged; a path resolved relative to the batch file."""
    return str(file.parent / Path(name).expanduser()) if is_path(name) else name
