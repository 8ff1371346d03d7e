"""A study's folder: where it is, which files are in it, and what its `study.toml` says.

Its runs are read by `testbed.batch`, its page is made in `study.page`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from study.printed import CommandKeys
from testbed.basics.errors import InputError
from testbed.basics.toml_file import (
    Text,
    label,
    model_of,
    read_model,
    read_toml,
    shown,
    suggestion,
)
from testbed.batch import Batch, read_batch
from testbed.batch.batch_file import STUDIES, STUDY, BatchFile

CORES = 2
"""On which a study's hours are counted, each of them busy with it."""

ALL_HOURS = 16.0
"""The most hours that all studies of the project may take together, on `CORES`."""


class StudyKeys(BaseModel):
    """The table `[study]` of a study's file, beside what a batch's file has.

    `most_hours` is the limit on what all its runs and commands take on `CORES`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Text
    most_hours: float = Field(gt=0)


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        folder: what belongs to it.
        title: as its file has it.
        runs: how many runs it has.
        commands: what else its page is made of.
    """

    folder: Path
    title: str
    keys: StudyKeys
    runs: int
    commands: tuple[CommandKeys, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def template(self) -> Path:
        """The page with fields in place of numbers."""
        return self.folder / "page.md"

    @property
    def page(self) -> Path:
        """The page as it is read."""
        return self.folder / "README.md"

    @property
    def further_templates(self) -> Mapping[str, Path]:
        """Those of pages beside it, by the page's name: "loss.md" is made of loss.page.md."""
        end = f".{self.template.name}"
        files = sorted(self.folder.glob(f"*{end}"))
        return {f"{file.name.removesuffix(end)}.md": file for file in files}

    @property
    def kept(self) -> Path:
        """The archive of its runs' summaries and manifests."""
        return self.folder / "kept.tar.xz"

    @property
    def published(self) -> Path:
        """The numbers of the paper, if it is about one."""
        return self.folder / "published.toml"

    @property
    def shown(self) -> Path:
        """What comes out of each table and figure of the paper."""
        return self.folder / "shown.toml"

    @property
    def code(self) -> Path:
        """What is particular to it: tables, fields and figures."""
        return self.folder / "figures.py"

    def batch(self) -> Batch:
        """Its runs, resolved and checked.

        Raises:
            InputError: one of them is impossible.
        """
        return read_batch(str(self.folder / STUDY))


def names() -> list[str]:
    """The names of the project's studies, sorted."""
    return sorted(file.parent.name for file in STUDIES.glob(f"*/{STUDY}"))


def find_study(name: str) -> Study:
    """Find the study of that name in studies/, or the one in that folder.

    Raises:
        InputError: there is none, or its file says something wrong.
    """
    folder = Path(name).expanduser().resolve() if "/" in name else STUDIES / name
    file = folder / STUDY
    if not file.is_file():
        if "/" in name:
            raise InputError(f"there is no study in {name}: a study's folder has a {STUDY}")
        raise InputError(f"there is no study {shown(name)}: {suggestion(name, names())}")
    content = read_model(file, BatchFile)
    if not content.study:
        raise InputError(f"{label(file)}: the table [study] is missing: question, most_hours")
    keys = model_of(read_toml(file)["study"], StudyKeys, f"{label(file)}: study")
    study = Study(folder, content.title, keys, content.count, _commands(content, label(file)))
    if not study.template.is_file():
        raise InputError(f"{label(folder)}: {study.template.name} is missing, the page's template")
    return study


def _commands(content: BatchFile, file: str) -> tuple[CommandKeys, ...]:
    """The study's commands, whose names differ.

    Raises:
        InputError: one says something wrong.
    """
    found: dict[str, CommandKeys] = {}
    for number, keys in enumerate(content.commands, start=1):
        place = f"{file}: commands[{number}]"
        command = model_of(dict(keys), CommandKeys, place)
        if command.name in found:
            raise InputError(f"{place}: name = {shown(command.name)} is another's: choose one")
        found[command.name] = command
    return tuple(call for command in found.values() for call in command.calls)
