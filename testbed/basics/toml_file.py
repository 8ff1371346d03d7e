"""Finds the user's TOML files by name and reads them into models, with one-line errors.

The models define what the files may contain: `asked.scenario`, `asked.variant_file`.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationError

from testbed.basics.errors import InputError

PROJECT = Path(__file__).resolve().parent.parent.parent
"""The directory of the project's clone, with scenarios/, tor-configs/ and topologies/ in it."""

Model = TypeVar("Model", bound=BaseModel)

Value = bool | int | float | str
"""A value of a single key."""

_LONGEST_VALUE_SHOWN = 60


def _not_blank(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


Text = Annotated[str, BeforeValidator(_not_blank)]
"""A text that isn't blank."""


class KeyProblemError(ValueError):
    """A problem with one key in the table that a validator checks."""

    def __init__(self, key: str, problem: str) -> None:
        """The problem is a predicate: "is no role: …"."""
        super().__init__(problem)
        self.key = key


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice spelt most like the word, in any case; None if none is similar."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def suggestion(word: str, choices: Iterable[str]) -> str:
    """A clause for an error: the nearest choice, if any, and all choices."""
    choices = list(choices)
    close = nearest(word, choices)
    all_of_them = f"there are: {', '.join(choices)}" if choices else "there are none"
    return f'did you mean "{close}"? ({all_of_them})' if close else all_of_them


def names_in(folder: Path) -> list[str]:
    """The sorted names of the TOML files in a folder, without their extension."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def is_path(name: str) -> bool:
    """Whether a name is a file's path, and not a name in the project's folder."""
    return "/" in name or name.endswith(".toml")


def find_file(kind: str, name: str, folder: Path) -> Path:
    """Find the file of that name in the folder, or at that path if the name is a path.

    Args:
        kind: the kind of file, for the error: "scenario", "variant".
        name: a name in the folder ("SharedDropping"), or a path with a slash or with ".toml".
        folder: the project's folder for files of this kind.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    if is_path(name):
        return _existing(kind, name, folder)
    names = names_in(folder)
    if name not in names:
        raise InputError(f"there is no {kind} {shown(name)}: {suggestion(name, names)}")
    return folder / f"{name}.toml"


def _existing(kind: str, name: str, folder: Path) -> Path:
    try:
        path = Path(name).expanduser().resolve()
        is_file = path.is_file()
    except (OSError, ValueError, RuntimeError):
        is_file = False
    if not is_file:
        by_name = suggestion(name.rpartition("/")[2].removesuffix(".toml"), names_in(folder))
        raise InputError(
            f"there is no {kind} file {shown(name)}: give a .toml file's path or a name; {by_name}"
        )
    if path.suffix != ".toml":
        raise InputError(f"the {kind} file {shown(name)} is not a .toml file")
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        InputError: it can't be read, or isn't TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{label(path)}: not valid TOML: {_one_line(str(error))}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{label(path)}: not UTF-8 text, which TOML files are") from error
    except OSError as error:
        raise InputError(f"{label(path)}: can't be read: {error.strerror}") from error


def read_model(path: Path, model: type[Model], changes: Mapping[str, Value] | None = None) -> Model:
    """Read a TOML file into a model.

    Args:
        changes: values that replace those in the file, by dotted keys.

    Raises:
        InputError: it can't be read, isn't TOML, or the model refuses it.
    """
    content = read_toml(path)
    for key, value in (changes or {}).items():
        _set(content, key, value)
    return model_of(content, model, label(path))


def model_of(content: Mapping[str, Any], model: type[Model], subject: str) -> Model:
    """Validate what a TOML file says.

    Args:
        subject: the file as errors name it.

    Raises:
        InputError: the model refuses it.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{subject}: {_first_of(error, model)}") from error


def _set(content: dict[str, Any], key: str, value: Value) -> None:
    """Set a value by its dotted key; create the tables on the way if needed.

    Raises:
        InputError: a part of the key is not a table, or the last part is one or a list.
    """
    *tables, last = key.split(".")
    for table in tables:
        content = content.setdefault(table, {})
        if not isinstance(content, dict):
            raise InputError(f"{key} can't be set: {table} is not a table")
    if isinstance(content.get(last), dict | list):
        raise InputError(f"{key} can't be set: it is a table or a list; name a value in it")
    content[last] = value


def label(path: Path) -> str:
    """The path for messages: relative to the project's directory if it lies there."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def shown(value: object) -> str:
    """A value on one line as in TOML, cut if it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)[:_LONGEST_VALUE_SHOWN]
    printable = "".join(character if character.isprintable() else "?" for character in value)
    cut = printable[:_LONGEST_VALUE_SHOWN]
    return f'"{cut}…"' if len(printable) > len(cut) else f'"{cut}"'


def _first_of(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem as one line, and how many more there are."""
    problems = error.errors(include_url=False)
    # An unknown key likely causes the others: a missing key may be that one misspelt.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    first = _one_line(_sentence(dict(problems[0]), model))
    more = len(problems) - 1
    return f"{first} (and {more} more)" if more else first


def _sentence(problem: dict[str, Any], model: type[BaseModel]) -> str:
    location: tuple[str | int, ...] = problem["loc"]
    key, value = _dotted(location), problem["input"]
    cause = problem.get("ctx", {}).get("error")
    match problem["type"]:
        case "extra_forbidden":
            known = _keys_at(model, location[:-1])
            return f"unknown key {key}: {suggestion(str(location[-1]), known)}"
        case "missing":
            return f"the key {key} is missing"
        case "value_error" if isinstance(cause, KeyProblemError):
            return f"{_dotted((*location, cause.key))} {cause}"
        case "value_error":
            return f"{_assignment(key, value)} {cause}"
        case "model_type" | "dict_type":
            return f"{_assignment(key, value)} must be a table: write [{key}] or {key} = {{ … }}"
        case "tuple_type":
            return f"{_assignment(key, value)} must be a list"
        case _:
            wanted = str(problem["msg"]).removeprefix("Input ")
            return f"{_assignment(key, value)} is wrong: it {wanted}"


def _assignment(key: str, value: object) -> str:
    return key if isinstance(value, dict | list) else f"{key} = {shown(value)}"


def _dotted(location: Iterable[str | int]) -> str:
    """A place in the file: `links.default.rate`, `competing[2].from` (counted from 1)."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        elif part != "[key]":
            text += f".{part}" if text else str(part)
    return text


def _keys_at(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """The keys that a model knows at a place in it."""
    annotation: Any = model
    for part in location:
        annotation = _model_within(annotation)
        if get_origin(annotation) in (dict, list, tuple):
            annotation = get_args(annotation)[1 if get_origin(annotation) is dict else 0]
        else:
            fields = annotation.model_fields
            annotation = next(
                field.annotation for name, field in fields.items() if part in (field.alias, name)
            )
    fields = _model_within(annotation).model_fields
    return [field.alias or name for name, field in fields.items()]


def _model_within(annotation: Any) -> Any:  # noqa: ANN401  # any annotation may come
    """The annotation itself, or X of an `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _one_line(text: str) -> str:
    return " ".join(text.split())
