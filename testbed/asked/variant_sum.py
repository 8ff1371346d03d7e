"""The files that a variant is made of, in the order in which later ones override earlier ones.

What they say together is in `variant`.
"""

from collections.abc import Sequence
from pathlib import Path

from testbed.asked.variant_file import Part, read_part
from testbed.asked.variant_name import (
    TOR_CONFIGS,
    Term,
    beside,
    joined,
    known_names,
    known_parts,
)
from testbed.asked.variant_parameters import chosen
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, shown, suggestion

VANILLA = Term("vanilla")
"""What a variant is built on if none of its files has a premise."""

Parts = list[Part]


def terms_of(text: str) -> Parts:
    """Read the files that are typed for a variant, without what they extend.

    Raises:
        InputError: the text doesn't have the form of a variant, or a file can't be read.
    """
    return [read_part(term) for term in known_parts(text)]


def name_of(terms: Sequence[Part]) -> str:
    """Name a sum of files: the known name, or the shortest way to type it.

    Known names are for the files in tor-configs/ only.
    """
    if all(one.file.parent == TOR_CONFIGS for one in terms):
        for name, parts in known_names().items():
            if _are(parts, terms):
                return name
    return joined(tuple(one.term for one in terms))


def _are(known: Sequence[Term], terms: Sequence[Part]) -> bool:
    return [one.name for one in known] == [one.file.stem for one in terms] and all(
        chosen(one, part.defaults) == part.values for one, part in zip(known, terms, strict=True)
    )


def all_parts(terms: Sequence[Part]) -> Parts:
    """List a sum's files and all that they extend, the most basic first.

    In `A+B`, B's file and those that it extends come after A's, but for two kinds: a file that A
    extends too is there once, and one with a premise comes before A's own files, together with what
    it extends. So A keeps its premise unless B's own file has one.

    Raises:
        InputError: extending goes in a circle, or a file is there with two values of a parameter.
    """
    parts = _sum(terms, ())
    if not any(one.content.premise for one in parts):
        parts = [*_sum([read_part(VANILLA)], ()), *parts]
    for number, one in enumerate(parts):
        other = next((each for each in parts[:number] if each.file == one.file), None)
        if other:
            raise InputError(
                f"variant {shown(joined(tuple(each.term for each in terms)))}:"
                f" {other.term} and {one.term} are both in it: leave one of them out"
            )
    return parts


def without_redundant(terms: Sequence[Part]) -> Sequence[Part]:
    """Leave out the terms of a sum that the others are built on."""
    for number in range(len(terms)):
        others = [*terms[:number], *terms[number + 1 :]]
        if others and all_parts(others) == all_parts(terms):
            return without_redundant(others)
    return terms


def in_usual_order(terms: Sequence[Part]) -> Sequence[Part]:
    """Order a sum by name, files with a premise first; it need not mean the same."""
    return sorted(terms, key=lambda one: (not has_premise(one), one.file.stem))


def has_premise(term: Part) -> bool:
    """Whether a file or one that it extends has a premise: otherwise it needs a base."""
    return any(one.content.premise for one in _with_extended(term, ()))


def _sum(terms: Sequence[Part], above: tuple[Path, ...]) -> Parts:
    parts: Parts = []
    for term in terms:
        parts = _added(parts, _with_extended(term, above))
    return parts


def _added(parts: Parts, added: Parts) -> Parts:
    """Add a file, the last of `added`, and those that it extends, except what is there already.

    Extended files up to the last with a premise are put before the parts, though after those that
    they extend themselves.
    """
    new = [one for one in added if one not in parts]
    premises = [one for one in new[:-1] if one.content.premise]
    if not parts or not premises:
        return [*parts, *new]
    below = new[: new.index(premises[-1]) + 1]
    shared = added[: added.index(below[0])]
    place = 1 + max((parts.index(one) for one in shared), default=-1)
    return [*parts[:place], *below, *parts[place:], *new[len(below) :]]


def _with_extended(part: Part, above: tuple[Path, ...]) -> Parts:
    """List a file and all that it extends.

    Args:
        above: the files that extend this one.
    """
    if part.file in above:
        names = " → ".join(file.stem for file in (*above, part.file))
        raise InputError(f"{label(above[0])}: extends goes in a circle: {names}")
    extended = _sum(_extended_terms(part), (*above, part.file))
    there = [patch for one in (*extended, part) for patch in patches_of(one)]
    if twice := next((patch for patch in patches_of(part) if there.count(patch) > 1), None):
        raise InputError(
            f'{label(part.file)}: the patch "{twice.name}" is applied twice:'
            " leave it out where the extended variant has it already"
        )
    return [*extended, part]


def _extended_terms(part: Part) -> Parts:
    if part.content.extends is None:
        return []
    try:
        return terms_of(beside(part.file, part.content.extends))
    except InputError as error:
        raise InputError(f"{label(part.file)}: extends: {error}") from error


def patches_of(part: Part) -> list[Path]:
    """Find a file's patches: beside it, or in tor-configs/patches.

    Raises:
        InputError: one isn't there.
    """
    return [_patch(part.file, name) for name in part.content.patches]


def _patch(file: Path, name: str) -> Path:
    folders = (file.parent, TOR_CONFIGS / "patches")
    for folder in folders:
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            return path
    there = sorted({patch.name for folder in folders for patch in folder.glob("*.patch")})
    raise InputError(f'{label(file)}: there is no patch "{name}": {suggestion(name, there)}')
