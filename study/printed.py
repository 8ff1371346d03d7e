"""What commands of `run.py` print for a study: carried out once, kept as JSON, read for the page.

A study names them in `[[commands]]` of its file. Runs are not made here.
"""

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from testbed.basics.ending import PREMISE_FAILED, VALID
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import PROJECT, Text, label, suggestion
from testbed.results.manifest import project

FOLDER = "commands"
"""Where the files of what was printed are, below the folder of the study's runs."""

JSON = "--json"
"""What every such command takes, so that its results can be read."""


class CommandKeys(BaseModel):
    """An entry in `[[commands]]`: a command of `run.py`, and its name on the page.

    `command` is what stands behind `./run.py`, such as "salsa --expected", without `--json`. `each`
    has lists of further words: the command is carried out with every combination of one from each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    command: Text
    each: tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...] = ()

    @property
    def shown(self) -> str:
        """The command as a user types it."""
        return f"./run.py {self.command}"

    @property
    def calls(self) -> "list[CommandKeys]":
        """The commands without `each` that it stands for, with a number behind their names."""
        if not self.each:
            return [self]
        several = (" ".join((self.command, *filter(None, some))) for some in product(*self.each))
        return [
            CommandKeys.model_construct(name=f"{self.name}-{number}", command=one)
            for number, one in enumerate(several, start=1)
        ]


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

    def given(self, option: str) -> str | None:
        """The value that an option had in the command; None if it had none."""
        words = shlex.split(self.command)
        return words[words.index(option) + 1] if option in words else None


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
        there = self.each(name)
        if not there:
            self.missing.append(f"what the command {name} prints")
        found: list[Any] = []
        for one in there:
            found += one.results if isinstance(one.results, list) else [one.results]
        return found

    def each(self, name: str) -> list[Printed]:
        """What a command printed, with each of its words, as far as that is there.

        Raises:
            InputError: the study has no command of that name.
        """
        names = list(dict.fromkeys(map(_without_number, self.names)))
        if name not in names:
            raise InputError(f"command {name!r}: {suggestion(name, names)}")
        return [one for call, one in self.by_name.items() if _without_number(call) == name]

    def lacking(self) -> str:
        """A sentence on the commands that weren't carried out; nothing if all were."""
        there, wanted = (
            Counter(map(_without_number, names)) for names in (self.by_name, self.names)
        )
        missing = wanted - there
        if not missing:
            return ""
        counts = ", ".join(f"{one}: {count} of {wanted[one]}" for one, count in missing.items())
        return f"Not carried out yet are {missing.total()} of its commands ({counts})."

    @property
    def processor_s(self) -> float:
        """What all of them took."""
        return sum(one.processor_s for one in self.by_name.values())


def _without_number(name: str) -> str:
    """The name that a study gives to a command with several words."""
    return name.partition("-")[0]


def read_printed(wanted: Iterable[CommandKeys], directory: Path) -> AllPrinted:
    """Read what the commands printed; results of another command than the study's don't count.

    Args:
        directory: where the study's runs are; in what is kept, the folder above.

    Raises:
        InputError: a file is damaged.
    """
    wanted = list(wanted)
    above = next((one.parent for one in directory.glob(f"*/{FOLDER}")), directory)
    there = {}
    for keys in wanted:
        file = _file(above, keys)
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
    wanted: Iterable[CommandKeys],
    directory: Path,
    tell: Callable[[str], None],
    at_once: int,
) -> AllPrinted:
    """Carry out the commands whose results aren't there, and read those of all.

    Args:
        directory: where the study's runs are.
        tell: called with a line before each.
        at_once: how many commands go on at the same time.

    Raises:
        TestbedError: a command failed; the others have been ended.
        InputError: one prints no JSON, or a file can't be written.
    """
    wanted = list(wanted)
    there = read_printed(wanted, directory).by_name
    begun: list[subprocess.Popen[bytes]] = []

    def one(keys: CommandKeys) -> None:
        tell(keys.shown)
        _write(_file(directory, keys), _carried_out(keys, begun))

    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(one, keys) for keys in wanted if keys.name not in there]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in begun:
                process.terminate()
            raise
    return read_printed(wanted, directory)


def _carried_out(keys: CommandKeys, begun: list[subprocess.Popen[bytes]]) -> Printed:
    words = (sys.executable, "-m", "commands", *shlex.split(keys.command), JSON)
    with TemporaryFile() as out, TemporaryFile() as errors:
        process = subprocess.Popen(words, cwd=PROJECT, stdout=out, stderr=errors)
        begun.append(process)
        # Not process.wait(), which doesn't say what this child took.
        _, status, took = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed, complaint = (_text(file) for file in (out, errors))
    if process.returncode not in (VALID, PREMISE_FAILED):
        lines = complaint.strip().splitlines() or [f"exit status {process.returncode}"]
        raise TestbedError(f"{keys.shown}: {lines[-1]}")
    try:
        results = json.loads(printed)
    except ValueError as error:
        raise InputError(f"{keys.shown} {JSON} prints no JSON: {error}") from error
    processor_s = took.ru_utime + took.ru_stime
    return Printed(keys.command, project()["commit"], round(processor_s, 1), results)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


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
