"""What commands of `run.py` print for a study: carried out once, kept as JSON, read for the page.

A study names them in `[[commands]]` of its file. Runs are not made here.
"""

import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import PROJECT, Text, label, suggestion
from testbed.results.manifest import project

FOLDER = "commands"
"""Where the files of what was printed are, below the folder of the study's runs."""

JSON = "--json"
"""What every such command takes, so that its results can be read."""


class CommandKeys(BaseModel):
    """An entry in `[[commands]]`: a command of `run.py`, and its name on the page.

    `command` is what stands behind `./run.py`, such as "salsa --expected", without `--json`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    command: Text

    @property
    def shown(self) -> str:
        """The command as a user types it."""
        return f"./run.py {self.command}"


@dataclass(frozen=True)
class Printed:
    """What a command printed, and when.

    Attributes:
        command: what stood behind `./run.py`.
        commit: the project's, or None outside a clone.
        processor_s: what it took, with all of its processes.
        results: what it printed, read.
    """

    command: str
    commit: str | None
    processor_s: float
    results: Any


@dataclass(frozen=True)
class AllPrinted:
    """What a study's commands printed, by their names.

    Attributes:
        names: all that the study has.
        by_name: those whose results are there.
        missing: names that were asked for and aren't there; noted here.
    """

    names: Sequence[str] = ()
    by_name: dict[str, Printed] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> list[Any]:
        """The results of a command: the list that it printed; none if it wasn't carried out.

        Raises:
            InputError: the study has no command of that name.
        """
        if name not in self.names:
            raise InputError(f"command {name!r}: {suggestion(name, self.names)}")
        if name not in self.by_name:
            self.missing.append(f"what the command {name} prints")
            return []
        results = self.by_name[name].results
        return results if isinstance(results, list) else [results]

    @property
    def processor_s(self) -> float:
        """What all of them took."""
        return sum(one.processor_s for one in self.by_name.values())


def read_printed(wanted: Iterable[CommandKeys], directory: Path) -> AllPrinted:
    """Read what the commands printed; results of another command than the study's don't count.

    Args:
        directory: where the study's runs are.

    Raises:
        InputError: a file is damaged.
    """
    wanted = list(wanted)
    there = {}
    for keys in wanted:
        file = _file(directory, keys)
        try:
            printed = Printed(**json.loads(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{label(file)}: not what a command printed: {error}") from error
        if printed.command == keys.command:
            there[keys.name] = printed
    return AllPrinted([keys.name for keys in wanted], there)


def carry_out(
    wanted: Iterable[CommandKeys], directory: Path, tell: Callable[[str], None]
) -> AllPrinted:
    """Carry out the commands whose results aren't there, and read those of all.

    Args:
        directory: where the study's runs are.
        tell: called with a line before each.

    Raises:
        TestbedError: a command failed.
        InputError: one prints no JSON, or a file can't be written.
    """
    wanted = list(wanted)
    there = read_printed(wanted, directory).by_name
    for keys in wanted:
        if keys.name not in there:
            tell(keys.shown)
            _write(_file(directory, keys), _carried_out(keys))
    return read_printed(wanted, directory)


def _carried_out(keys: CommandKeys) -> Printed:
    words = (sys.executable, "-m", "commands", *shlex.split(keys.command), JSON)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=PROJECT, env=os.environ, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise TestbedError(f"{keys.shown}: {lines[-1]}")
    try:
        results = json.loads(done.stdout)
    except ValueError as error:
        raise InputError(f"{keys.shown} {JSON} prints no JSON: {error}") from error
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Printed(keys.command, project()["commit"], round(seconds, 1), results)


def _write(file: Path, printed: Printed) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".new")
        text = json.dumps(asdict(printed), indent=1, ensure_ascii=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}: needed for what is printed") from error


def _file(directory: Path, keys: CommandKeys) -> Path:
    return directory / FOLDER / f"{keys.name}.json"
