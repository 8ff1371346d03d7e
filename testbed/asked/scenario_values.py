"""Values of keys in scenario files: their types, and what is refused.

Quantities with units are in `testbed.basics.units`; which keys there are is in `scenario`.
"""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from testbed.basics.toml_file import suggestion
from testbed.basics.units import Duration
from testbed.plan.queue_disciplines import CAKE_DIFFSERVS, CAKE_ISOLATIONS, DISCIPLINES

CONGESTION_CONTROLS = ("cubic", "reno", "bbr", "vegas", "westwood")
"""The kernel's TCP congestion controls that a scenario can choose."""

ROUND_TRIPS = ("build", "streams", "probe")
"""From what a circuit's round trips come that a rule compares."""

DEFAULT = "default"
"""The key whose value holds for everything without an entry of its own."""

ALL_RELAY_PAIRS = "all relay pairs"
_BUSIEST = re.compile(r"the ([1-9]\d*) busiest")


class ScenarioPart(BaseModel):
    """A table of a scenario file: unknown keys are errors, and it is immutable.

    A field's docstring describes its key in docs/keys.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _one_of(choices: tuple[str, ...]) -> Callable[[object], object]:
    """Make a validator that accepts these words only."""

    def known(value: object) -> object:
        if value not in choices:
            raise ValueError(f"is unknown: {suggestion(str(value), choices)}")
        return value

    return known


known_congestion_control = _one_of(CONGESTION_CONTROLS)


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("is no power of two: write for example 1024")
    return value


def _whole_seconds(duration_s: float) -> int:
    if duration_s != int(duration_s):
        raise ValueError("is not a whole number of seconds, the kernel's unit")
    return int(duration_s)


def _pairs_to_watch(value: object) -> object:
    """Read pairs of relays, `ALL_RELAY_PAIRS` as it is, or the number of busiest pairs."""
    if value == ALL_RELAY_PAIRS:
        return value
    if isinstance(value, str) and (found := _BUSIEST.fullmatch(value)):
        return int(found[1])
    pairs = [value] if isinstance(value, str) else value
    if not (
        isinstance(pairs, list)
        and pairs
        and all(isinstance(pair, str) and pair.count("-") == 1 for pair in pairs)
    ):
        raise ValueError(
            f'names no pairs of relays: write "{ALL_RELAY_PAIRS}", "the 5 busiest", or a list such'
            ' as ["relay1-relay2"]'
        )
    return tuple(pairs)


CongestionControl = Annotated[str, BeforeValidator(known_congestion_control)]
QueueDiscipline = Annotated[str, BeforeValidator(_one_of(tuple(DISCIPLINES)))]
Isolation = Annotated[str, BeforeValidator(_one_of(CAKE_ISOLATIONS))]
Diffserv = Annotated[str, BeforeValidator(_one_of(CAKE_DIFFSERVS))]
WholeSeconds = Annotated[Duration, AfterValidator(_whole_seconds)]
PowerOfTwo = Annotated[int, AfterValidator(_power_of_two)]
RoundTrips = Annotated[str, BeforeValidator(_one_of(ROUND_TRIPS))]
Switch = Annotated[bool, Field(strict=True)]
Watch = Annotated[tuple[str, ...] | int | str | None, BeforeValidator(_pairs_to_watch)]
