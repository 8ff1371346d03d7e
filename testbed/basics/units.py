"""Turns quantities as users write them ("300 Mbit/s", "12.5 ms", "0.1 %") into plain numbers.

Defaults and keys are not known here: errors leave the key to the reader of the file.
"""

import re
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import BeforeValidator

if TYPE_CHECKING:
    from pint import UnitRegistry

# A registry of our own: in pint's default one "5 m" is a length, "b" is a barn, and a hertz is as
# good a rate as a bit per second. Decimal keeps "12.5 ms" exactly 12.5.
_DEFINITIONS = (
    "nano- = 1e-9 = n-",
    "micro- = 1e-6 = µ- = μ- = u-",
    "milli- = 1e-3 = m-",
    "kilo- = 1e3 = k-",
    "mega- = 1e6 = M-",
    "giga- = 1e9 = G-",
    "second = [time] = s = sec",
    "minute = 60 * second = min",
    "hour = 3600 * second = h",
    "bit = [information]",
    "byte = 8 * bit = B",
    "packet = [packet]",
    "segment = [segment]",
    "percent = 0.01 = %",
)

_KINDS = {
    "dimensionless": "a share",
    "[time]": "a time",
    "[information]": "an amount of data",
    "[information] / [time]": "a rate",
    "[packet]": "a number of packets",
    "[segment]": "a number of segments",
}

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?|[+-]?(?:nan|inf)(?![a-z]))"
    r"\s*(?P<unit>[A-Za-zµμ%]+(?:\s*/\s*[A-Za-zµμ]+)?)?",
    re.IGNORECASE | re.ASCII,
)


class _Kind(NamedTuple):
    """A kind of quantity: the unit in which it is returned, an example, and its bounds."""

    unit: str
    example: str
    least: str
    most: str


_RATE = _Kind("bit/s", "300 Mbit/s", "1 kbit/s", "100 Gbit/s")
_DELAY = _Kind("ms", "12.5 ms", "0 ms", "60 s")
_LOSS = _Kind("", "0.1 %", "0 %", "100 %")
_SHARE = _Kind("", "95 %", "0 %", "100 %")
_DURATION = _Kind("s", "5 min", "1 ms", "168 h")
_WARM_UP = _Kind("s", "20 s", "0 s", "168 h")
_BUNDLE = _Kind("segment", "2 segments", "1 segment", "64 segments")
_QUEUE = _Kind("packet", "1000 packets", "1 packet", "10000000 packets")
_INTERVAL = _Kind("us", "100 ms", "10 us", "1000 s")
_COMPUTING = _Kind("ns", "2 us", "1 ns", "1 s")
_SIZE = _Kind("B", "1514 B", "1 B", "2 GB")

# The kernel's netem keeps a probability in 32 bits: a smaller one would silently be 0.
_SMALLEST_LOSS = Decimal(2) ** -32


@cache
def _registry() -> "UnitRegistry[Decimal]":
    # Imported with the first quantity: the machine imports this module but reads no quantity, and
    # pint with numpy would take a third of the time of all its imports.
    from pint import UnitRegistry

    registry: UnitRegistry[Decimal] = UnitRegistry(None, non_int_type=Decimal)
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


def rate_bit_per_s(value: object) -> int:
    """The rate in bit/s that a text such as "300 Mbit/s" means (1 kbit/s to 100 Gbit/s).

    Raises:
        ValueError: it is no such rate; the message is a predicate ("has no unit: write …").
    """
    rate = _within_bounds(value, _RATE, hint=_milli_hint(value))
    return int(rate.to_integral_value(ROUND_HALF_EVEN))


def delay_ms(value: object) -> float:
    """The delay of one direction in ms that a text such as "12.5 ms" means (0 to 60 s).

    Raises:
        ValueError: it is no such delay; the message is a predicate.
    """
    return float(_within_bounds(value, _DELAY))


def loss_fraction(value: object) -> float:
    """The share of packets lost, in [0, 1), that a text such as "0.1 %" means.

    Raises:
        ValueError: it is no share below 100 %; the message is a predicate.
    """
    loss = _within_bounds(value, _LOSS)
    if loss == 1:
        raise ValueError('loses every packet: write less than "100 %"')
    if 0 < loss < _SMALLEST_LOSS:
        raise ValueError('is too small for the kernel to represent: write for example "0 %"')
    return float(loss)


def share_fraction(value: object) -> float:
    """The share, in [0, 1], that a text such as "95 %" means.

    Raises:
        ValueError: it is no share; the message is a predicate.
    """
    return float(_within_bounds(value, _SHARE))


def duration_s(value: object) -> float:
    """The duration in seconds that a text such as "5 min" means (1 ms to 168 h).

    Raises:
        ValueError: it is no such duration; the message is a predicate.
    """
    return float(_within_bounds(value, _DURATION))


def warm_up_s(value: object) -> float:
    """The warm-up in seconds that a text such as "20 s" means (0 to 168 h).

    Raises:
        ValueError: it is no such time; the message is a predicate.
    """
    return float(_within_bounds(value, _WARM_UP))


def bundle_segments(value: object) -> int:
    """The number of segments that a text such as "2 segments" means (1 to 64).

    Raises:
        ValueError: it is no whole number of segments; the message is a predicate.
    """
    return _whole_number(value, _BUNDLE, "segments")


def queue_packets(value: object) -> int:
    """The number of packets that a text such as "1000 packets" means (1 to 10 000 000).

    Raises:
        ValueError: it is no whole number of packets; the message is a predicate.
    """
    return _whole_number(value, _QUEUE, "packets")


def interval_us(value: object) -> int:
    """The time in whole microseconds that a text such as "100 ms" means (10 us to 1000 s).

    Raises:
        ValueError: it is no such time; the message is a predicate.
    """
    return _whole_number(value, _INTERVAL, "microseconds")


def computing_ns(value: object) -> int:
    """The time in whole nanoseconds that a text such as "2 us" means (1 ns to 1 s).

    Raises:
        ValueError: it is no such time; the message is a predicate.
    """
    return _whole_number(value, _COMPUTING, "nanoseconds")


def size_bytes(value: object) -> int:
    """The number of bytes that a text such as "1514 B" or "32 MB" means (1 B to 2 GB).

    Raises:
        ValueError: it is no whole number of bytes; the message is a predicate.
    """
    return _whole_number(value, _SIZE, "bytes")


Rate = Annotated[int, BeforeValidator(rate_bit_per_s)]
"""A model's field in bit/s, read from a text such as "300 Mbit/s"."""
Delay = Annotated[float, BeforeValidator(delay_ms)]
"""A model's field in ms, read from a text such as "12.5 ms"."""
Loss = Annotated[float, BeforeValidator(loss_fraction)]
"""A model's field in [0, 1), read from a text such as "0.1 %"."""
Share = Annotated[float, BeforeValidator(share_fraction)]
"""A model's field in [0, 1], read from a text such as "95 %"."""
Duration = Annotated[float, BeforeValidator(duration_s)]
"""A model's field in seconds, read from a text such as "5 min"."""
WarmUp = Annotated[float, BeforeValidator(warm_up_s)]
"""A model's field in seconds, which may be 0, read from a text such as "20 s"."""
Segments = Annotated[int, BeforeValidator(bundle_segments)]
"""A model's field in TCP segments, read from a text such as "2 segments"."""

Queue = Annotated[int, BeforeValidator(queue_packets)]
"""A model's field in packets, read from a text such as "1000 packets"."""
Interval = Annotated[int, BeforeValidator(interval_us)]
"""A model's field in microseconds, read from a text such as "100 ms"."""
Computing = Annotated[int, BeforeValidator(computing_ns)]
"""A model's field in nanoseconds of a processor, read from a text such as "2 us"."""
Size = Annotated[int, BeforeValidator(size_bytes)]
"""A model's field in bytes, read from a text such as "1514 B"."""


def _whole_number(value: object, kind: _Kind, unit: str) -> int:
    """The value in the kind's unit, which must be whole."""
    number = _within_bounds(value, kind)
    if number != number.to_integral_value():
        raise ValueError(f'is not a whole number of {unit}: write for example "{kind.example}"')
    return int(number)


def _within_bounds(value: object, kind: _Kind, hint: str = "") -> Decimal:
    """The value in the kind's unit, which must be within the kind's bounds."""
    number = _number_in_unit(value, kind)
    if number < 0:
        raise ValueError(f'is negative: write for example "{kind.example}"')
    if number < _number_in_unit(kind.least, kind):
        raise ValueError(f'is below the least possible, "{kind.least}"{hint}')
    if number > _number_in_unit(kind.most, kind):
        raise ValueError(f'is above the most possible, "{kind.most}"')
    return number


def _number_in_unit(value: object, kind: _Kind) -> Decimal:
    from pint.errors import DimensionalityError, PintError

    number, unit = _parts(value, kind)
    right = f'write for example "{kind.example}"'
    try:
        quantity = _registry().Quantity(number, unit)
    except (PintError, AttributeError) as error:
        raise ValueError(f'has an unknown unit "{unit}": {right}') from error
    try:
        return Decimal(quantity.to(kind.unit).magnitude)
    except DimensionalityError as error:
        raise ValueError(f"is {_what(unit)}, not {_what(kind.unit)}: {right}") from error


def _what(unit: str) -> str:
    """The kind of quantity of a unit, in words."""
    dimensions = str(_registry().parse_units(unit).dimensionality)
    return _KINDS.get(dimensions, "something else")


def _parts(value: object, kind: _Kind) -> tuple[Decimal, str]:
    """The number and the unit of a text; a bare TOML number, without a unit, is refused, too."""
    right = f'write for example "{kind.example}"'
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"is not a number with a unit: {right}")
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"is not a number with a unit: {right}")
    number = Decimal(match["number"])
    if not number.is_finite():
        raise ValueError(f"is not a finite number: {right}")
    if match["unit"] is None:
        raise ValueError(f"has no unit: {_with_unit(match['number'], kind)}")
    return number, match["unit"]


def _with_unit(number: str, kind: _Kind) -> str:
    """Advice for a number without a unit: the same number with the usual unit."""
    return f'write for example "{number} {kind.example.split(maxsplit=1)[1]}"'


def _milli_hint(value: object) -> str:
    """Advice for a rate in millibit, as in "300 mbit/s": the same in megabit, which is meant."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or not (match["unit"] or "").startswith(("mbit", "mB", "milli")):
        return ""
    return f' ("m" is milli: for megabit write "{match["number"]} M{match["unit"][1:]}")'
