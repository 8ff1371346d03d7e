"""Whether a published number comes out: the comparisons of `shown.toml`, and their verdicts.

Numbers are read as pages have them: "-8.0 % (-12 % to -3.0 %)", "3.63 to 7.75 %", "9.0 ± 0.2".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from analysis.statistics import NEARLY_EQUAL, Interval
from analysis.wording import NOTHING
from study.expressions import value_of
from testbed.basics.errors import InputError
from testbed.basics.toml_file import Text

REPRODUCED, DIFFERS, OPEN, NOT_MADE = "reproduced", "differs", "open", "not made yet"
RULES = {
    "interval": "it lies in our interval, and 0 doesn't; if it is 0, the interval is within ±5 %",
    "direction": "our interval is on its side of 0, however large the change",
    "range": "all of ours lies in the published range",
    "at most": "ours is no more, the standard deviation beside it included",
    "statement": "our interval lies where the paper's statement has it",
    "10 %": "ours is so far at most from what rounds to it",
}
"""When a published number counts as reproduced; other shares are possible, too."""

_INTERVAL = re.compile(r"\(([-+]?[\d.]+)( %)? to (?:over )?([-+]?[\d.]+)(?: %)?\)")
_OF_STATEMENTS = {"holds": REPRODUCED, "does not hold": DIFFERS}


class Compared(BaseModel):
    """A comparison of a published number with ours.

    All but `within` are expressions with the fields of the study's page.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    published: Text
    """The paper's number, range, or "less" or "more". Changes are shares: -0.2 is 20 % less."""
    ours: Text
    """What runs or commands have: a number, a range, or a text with one of them."""
    within: Annotated[
        str, StringConstraints(pattern=r"^(interval|direction|range|at most|statement|[\d.]+ %)$")
    ]
    """When they agree: one of `RULES`, or any other share."""
    each: str = ""
    """A list: there is a comparison for each of its items, which the others call `row`."""
    enough: str = ""
    """Whether enough was measured to decide, where `ours` has no interval that says it."""

    def verdicts(self, fields: Mapping[str, object], place: str) -> list[str]:
        """The verdict of each comparison; none if `each` is empty, as runs are missing.

        Raises:
            InputError: an expression is wrong, or what it gives can't be compared.
        """
        rows = value_of(self.each, fields, place) if self.each else [None]
        if not isinstance(rows, Iterable):
            raise InputError(f"{place}: each = {self.each!r} is no list")
        found = []
        for row in rows:
            names = {**fields, "row": row}
            published, ours = (value_of(one, names, place) for one in (self.published, self.ours))
            try:
                verdict = verdict_of(published, ours, self.within)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"{place}: {self.published} = {published!r} and {self.ours} = {ours!r} can't"
                    f" be compared by {self.within!r}: {error}"
                ) from error
            decided = not self.enough or value_of(self.enough, names, place)
            found.append(verdict if decided or verdict == NOT_MADE else OPEN)
        return found


def together(verdicts: Sequence[str]) -> str:
    """The verdict on several numbers: reproduced if all are."""
    if DIFFERS in verdicts:
        return DIFFERS
    if {*verdicts} <= {NOT_MADE}:
        return NOT_MADE
    return REPRODUCED if {*verdicts} == {REPRODUCED} else OPEN


def verdict_of(published: object, ours: object, within: str) -> str:
    """The verdict on a single number.

    Args:
        published, ours, within: as `Compared` has them, without expressions.

    Raises:
        ValueError: one of the first two is no number.
    """
    if _missing(ours):
        return NOT_MADE
    if within == "statement":
        return _OF_STATEMENTS.get(str(ours), OPEN)
    if within == "direction":
        return _by_direction(published, _interval(ours))
    if within == "interval":
        return _by_interval(_ends(published)[0], _interval(ours))
    if within == "at most":
        return _at_most(_ends(published)[1], ours)
    if within == "range":
        (low, high), (least, most) = _ends(ours), _ends(published)
        agrees = least <= low and high <= most
    else:
        agrees = _near(ours, _ends(published), float(within.removesuffix(" %")) / 100)
    return REPRODUCED if agrees else DIFFERS


def _missing(ours: object) -> bool:
    """Whether any of it wasn't measured."""
    several = ours if isinstance(ours, list | tuple) else [ours]
    return not several or any(one is None or one in ("", NOTHING) for one in several)


def _by_direction(published: object, interval: Interval | None) -> str:
    less = published == "less" or (published != "more" and _ends(published)[1] < 0)
    if interval is None:
        return OPEN
    low, high = interval
    if (high < 0) if less else (low > 0):
        return REPRODUCED
    return OPEN if low <= 0 <= high and low < high else DIFFERS


def _by_interval(published: Decimal, interval: Interval | None) -> str:
    """An interval with both 0 and the published number in it decides nothing.

    If the published number is 0, it does if it is narrow.
    """
    if interval is None:
        return OPEN
    low, high = interval
    if not low <= published <= high:
        return DIFFERS
    narrow = not published and low >= -NEARLY_EQUAL and high <= NEARLY_EQUAL
    return REPRODUCED if narrow or not low <= 0 <= high else OPEN


def _at_most(most: Decimal, ours: object) -> str:
    """A mean whose standard deviation reaches beyond the published number decides nothing."""
    low, high = _ends(ours)
    _, _, deviation = str(ours).removesuffix(" %").partition(" ± ")
    spread = Decimal(deviation or 0)
    if high + spread <= most:
        return REPRODUCED
    return DIFFERS if low - spread > most else OPEN


def _near(ours: object, published: tuple[Decimal, Decimal], share: float) -> bool:
    """Whether both ends are near a range's, or one of ours is near a single number."""
    areas = [_area(one, share) for one in published]
    if published[0] == published[1]:
        least, most = areas[0]
        several = ours if isinstance(ours, list | tuple) else [ours]
        return any(low <= most and least <= high for low, high in map(_ends, several))
    return all(low <= one <= high for one, (low, high) in zip(_ends(ours), areas, strict=True))


def _area(published: Decimal, share: float) -> tuple[float, float]:
    """What is so near to what a positive number was rounded from, by the digits it is given in."""
    half = 0.5 * 10 ** int(published.as_tuple().exponent)
    return (float(published) - half) * (1 - share), (float(published) + half) * (1 + share)


def _interval(ours: object) -> Interval | None:
    """The interval that a text has in brackets, in shares if it is in percent; or a number."""
    if isinstance(ours, int | float):
        return Interval(ours, ours)
    found = _INTERVAL.search(str(ours))
    if not found:
        return None
    unit = 100 if found[2] else 1
    return Interval(float(found[1]) / unit, float(found[3]) / unit)


def _ends(value: object) -> tuple[Decimal, Decimal]:
    """The least and the greatest number of a number, a range, or several of them, as written."""
    if isinstance(value, list | tuple):
        ends = [end for one in value for end in _ends(one)]
        return min(ends), max(ends)
    numbers = str(value).partition(" ± ")[0].removesuffix(" %").split(" to ")
    try:
        return Decimal(numbers[0]), Decimal(numbers[-1])
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no number") from error
