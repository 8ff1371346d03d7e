"""The names of variants: how they are typed, where their files are, which have a known name.

What a file may say is in `variant_file`; what a name means together is in `variant`.

    variant = term { "+" term }
    term    = name [ "(" parameter "=" value { "," parameter "=" value } ")" ]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.toml_file import (
    PROJECT,
    find_file,
    is_path,
    names_in,
    nearest,
    read_toml,
    shown,
    suggestion,
)

TOR_CONFIGS = PROJECT / "tor-configs"
KNOWN_NAMES = Path(__file__).with_name("known_names.toml")

FORM = 'write NAME or NAME(key=value, key=value), with "+" between several'

WORD = re.compile(r"[\w.%-]+", re.ASCII)
"""A parameter's value as it is typed: it is also a part of a folder's name."""

_END_OF_NAME = r"(?=\s*(?:[+(]|\Z))"
_NAME = re.compile(rf"\w[\w.-]*{_END_OF_NAME}|.*?\.toml{_END_OF_NAME}|[^+()]*")
"""A name, a path (in which "+" and parentheses may be), or what is neither."""
_VALUE = re.compile(rf"\s*(\w+)\s*=\s*({WORD.pattern})\s*", re.ASCII)


@dataclass(frozen=True)
class Term:
    """One of the variants that "+" combines, as it is typed.

    Attributes:
        name: a name, or a .toml file's path.
        values: parameters and their values, as text.
    """

    name: str
    values: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if not self.values:
            return self.name
        return f"{self.name}({','.join(f'{key}={value}' for key, value in self.values)})"


def parse(text: str, folder: Path = Path()) -> tuple[Term, ...]:
    """Parse what is typed for a variant; whether its names exist is not checked.

    Args:
        folder: the folder that paths are relative to.

    Raises:
        InputError: it doesn't have the form.
    """
    if _is_file(text, folder):
        return (Term(text),)
    terms = []
    place = 0
    while True:
        term, place = _term(text, place)
        terms.append(term)
        if place == len(text):
            return tuple(terms)
        if text[place] != "+":
            raise InputError(
                f"variant {shown(text)}: {shown(text[place:])} can't follow {term}: {FORM}"
            )
        place += 1


def joined(terms: tuple[Term, ...]) -> str:
    """Write terms as they would be typed."""
    return "+".join(map(str, terms))


def known_parts(text: str) -> tuple[Term, ...]:
    """Parse a variant, and replace known names by what they stand for.

    Raises:
        InputError: it doesn't have the form, or gives parameters to a known name.
    """
    parts: list[Term] = []
    for term in parse(text):
        meaning = known_names().get(term.name)
        if meaning is None:
            parts.append(term)
        elif term.values:
            raise InputError(
                f"variant {shown(str(term))}: {term.name} stands for {joined(meaning)} and"
                " takes no values: write them there"
            )
        else:
            parts += meaning
    return tuple(parts)


def beside(file: Path, text: str) -> str:
    """Take the paths in what a file says of a variant as relative to that file.

    Raises:
        InputError: the text doesn't have the form.
    """
    return joined(
        tuple(
            Term(str(file.parent / Path(term.name).expanduser()), term.values)
            if is_path(term.name)
            else term
            for term in parse(text, file.parent)
        )
    )


def as_typed(name: str) -> str:
    """Write what has to be typed for a variant that a plan names: files outside get ".toml"."""
    try:
        terms = parse(name)
    except InputError:  # an unusual name of a user's file
        return f"{name}.toml"
    there = {*names_in(TOR_CONFIGS), *known_names()}
    return joined(
        tuple(
            term if term.name in there else Term(f"{term.name}.toml", term.values) for term in terms
        )
    )


@cache
def known_names() -> Mapping[str, tuple[Term, ...]]:
    """Read the known names and what each stands for."""
    return {name: parse(text) for name, text in read_toml(KNOWN_NAMES).items()}


def file_of(name: str) -> Path:
    """Find a variant's file by its name in tor-configs/ or by its path.

    Raises:
        InputError: there is none; the nearest name is suggested, known names among them.
    """
    if is_path(name):
        return find_file("variant", name, TOR_CONFIGS)
    names = names_in(TOR_CONFIGS)
    if name in names:
        return TOR_CONFIGS / f"{name}.toml"
    close = nearest(name, [*names, *known_names()])
    advice = suggestion(name, names)
    if close and close in known_names():
        stands_for = joined(known_names()[close])
        advice = f'did you mean "{close}", which is {stands_for}? (there are: {", ".join(names)})'
    raise InputError(f"there is no variant {shown(name)}: {advice}")


def _is_file(text: str, folder: Path) -> bool:
    """Whether the whole text is a file's path, although it may look like several terms."""
    try:
        return is_path(text) and (folder / Path(text).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _term(text: str, start: int) -> tuple[Term, int]:
    """Parse one term; return it with the place after it."""
    start = _after_spaces(text, start)
    found = _NAME.match(text, start)
    name = found[0].strip() if found else ""
    if not name and text:
        raise InputError(
            f"variant {shown(text)}: there is no name before {shown(text[start:])}: {FORM}"
            if text[start:]
            else f"variant {shown(text)}: there is no name at its end: {FORM}"
        )
    place = _after_spaces(text, start + len(name))
    if text[place : place + 1] != "(":
        return Term(name), place
    inside, closed, _ = text[place + 1 :].partition(")")
    if not closed or "(" in inside:
        raise InputError(f'variant {shown(text)}: the "(" after {name} has no ")": {FORM}')
    return Term(name, _values(text, inside)), _after_spaces(text, place + len(inside) + 2)


def _values(text: str, inside: str) -> tuple[tuple[str, str], ...]:
    values: dict[str, str] = {}
    for part in inside.split(",") if inside.strip() else []:
        found = _VALUE.fullmatch(part)
        if not found:
            raise InputError(
                f"variant {shown(text)}: {shown(part.strip())} is not a parameter with its value,"
                f" a number or a word: {FORM}"
            )
        if found[1] in values:
            raise InputError(f"variant {shown(text)}: {found[1]} is given twice: keep one of them")
        values[found[1]] = found[2]
    return tuple(values.items())


def _after_spaces(text: str, place: int) -> int:
    return len(text) - len(text[place:].lstrip())
