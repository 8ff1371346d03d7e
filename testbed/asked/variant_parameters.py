"""Parameters of a variant's file: its table [parameters], and "${name}" in its other values.

How values are typed beside a variant's name is in `variant_name`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.asked.variant_name import WORD, Term
from testbed.basics.errors import InputError
from testbed.basics.toml_file import shown, suggestion

TABLE = "parameters"

Parameter = int | float | str
Parameters = Mapping[str, Parameter]

_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")


def written(value: Parameter) -> str:
    """Write a value as it is typed, such that equal values look alike."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0").replace("e+", "e")
    return str(value)


def defaults(content: Mapping[str, Any], subject: str) -> Parameters:
    """Read a file's parameters with their defaults.

    Args:
        subject: the file as errors name it.

    Raises:
        InputError: one of them could not be typed.
    """
    table = content.get(TABLE, {})
    if not isinstance(table, dict):
        raise InputError(f"{subject}: {TABLE} must be a table: write [{TABLE}]")
    for name, value in table.items():
        key = f"{subject}: {TABLE}.{name}"
        if not _NAME.fullmatch(name):
            raise InputError(f"{key}: a parameter's name has letters, digits and _, such as k")
        if isinstance(value, bool) or not isinstance(value, Parameter):
            raise InputError(f"{key} must be a number or a text: its default")
        if not WORD.fullmatch(written(value)):
            raise InputError(
                f"{key} = {shown(value)} must be a number or one word of letters, digits, _ . % -"
            )
    return table


def chosen(term: Term, its_defaults: Parameters) -> Parameters:
    """Give each parameter the value that a term has for it, or else its default.

    Raises:
        InputError: the term has an unknown parameter, or a value of another type.
    """
    values = dict(its_defaults)
    for name, text in term.values:
        if name not in values:
            raise InputError(
                f"variant {shown(str(term))}: {term.name} has no parameter {name}:"
                f" {suggestion(name, values)}"
            )
        try:
            values[name] = _of_type(text, values[name])
        except ValueError as error:
            raise InputError(
                f"variant {shown(str(term))}: {name} = {shown(text)} is no {error}:"
                f" write for example {name}={written(values[name])}"
            ) from error
    return values


def _of_type(text: str, default: Parameter) -> Parameter:
    """Read a value as its default's type; ValueError, with that type's name, if it is another."""
    if isinstance(default, str):
        return text
    whole = isinstance(default, int)
    if not (_WHOLE_NUMBER if whole else _NUMBER).fullmatch(text):
        raise ValueError("whole number" if whole else "number")
    return int(text) if whole else float(text)


def filled(content: Mapping[str, Any], values: Parameters, subject: str) -> dict[str, Any]:
    """Put parameters' values in the place of "${name}" in what a file says.

    A text that is only a placeholder becomes the value, with its type.

    Raises:
        InputError: the file uses a parameter that it doesn't declare, or declares one that it
            doesn't use.
    """
    others = {key: value for key, value in content.items() if key != TABLE}
    used = set()
    for key, text, name in _placeholders("", others):
        if name not in values:
            raise InputError(
                f"{subject}: {key} = {shown(text)}: {name or 'a parameter without a name'} isn't"
                f" declared: give it a default in [{TABLE}] ({suggestion(name, values)})"
            )
        used.add(name)
    if unused := next((name for name in values if name not in used), None):
        raise InputError(
            f'{subject}: {TABLE}.{unused} is used nowhere: write "${{{unused}}}" where its value'
            " belongs, or leave it out"
        )
    return {key: _filled(value, values) for key, value in others.items()}


def _placeholders(key: str, value: object) -> Iterator[tuple[str, str, str]]:
    """Find placeholders: the key of each, the text around it, and the parameter's name."""
    if isinstance(value, str):
        yield from ((key, value, name) for name in _PLACEHOLDER.findall(value))
    elif isinstance(value, dict):
        for inner, below in value.items():
            yield from _placeholders(f"{key}.{inner}" if key else inner, below)
    elif isinstance(value, list):
        for below in value:
            yield from _placeholders(key, below)


def _filled(value: Any, values: Parameters) -> Any:  # noqa: ANN401  # as TOML has it
    if isinstance(value, dict):
        return {key: _filled(below, values) for key, below in value.items()}
    if isinstance(value, list):
        return [_filled(below, values) for below in value]
    if not isinstance(value, str):
        return value
    if whole := _PLACEHOLDER.fullmatch(value):
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda found: written(values[found[1]]), value)
