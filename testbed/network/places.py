"""Places of the real world: their users, their rates, and the round trips between them.

A place is a country, the one unit in which users, relays and round trips are all known. The files
are in places/, whose README names the sources; `testbed.network.distilled_places` makes them.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from testbed.basics.errors import InputError, reason_of
from testbed.basics.toml_file import PROJECT, label, shown
from testbed.plan.addresses import MOST_SITES

PLACES = PROJECT / "places"

COUNTRIES, ROUND_TRIPS = "countries.csv", "round-trips.csv"
RELAY_RATES, LAND = "relay-rates.csv", "land.csv"

COLUMNS: Mapping[str, tuple[str, ...]] = {
    COUNTRIES: (
        "country",
        "users_share",
        "rate_down_bit_per_s",
        "rate_up_bit_per_s",
        "city",
        "latitude_deg",
        "longitude_deg",
    ),
    ROUND_TRIPS: ("first", "second", "round_trip_ms"),
    RELAY_RATES: ("weight", "rate_bit_per_s"),
    LAND: ("latitude_deg", "longitude_deg"),
}
"""The columns of each file; countries are two letters, lower case.

- countries.csv: a country's share of Tor's users, the rates of a user's access, its largest city.
- round-trips.csv: the round trip between two countries, or within one if both are the same.
- relay-rates.csv: the rate of a relay by its consensus weight; both rise from line to line.
- land.csv: points where people live, for maps.
"""

LAND_GRID_DEG = 0.5
"""The distance between the points of land.csv."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Country:
    """A place, with the coordinates of its largest city."""

    code: str
    users_share: float
    rate_down_bit_per_s: int
    rate_up_bit_per_s: int
    city: str
    latitude_deg: float
    longitude_deg: float


@dataclass(frozen=True, eq=False)
class Places:
    """All places of a folder.

    Attributes:
        countries: the countries by code, in the order of codes.
        round_trips_ms: the round trips by pair of countries, in the order of their codes; each
            country has one within itself.
        relay_rates: pairs of a consensus weight and the rate of such a relay, in bit/s.
        land: latitude and longitude of points where people live.
    """

    folder: Path
    countries: Mapping[str, Country]
    round_trips_ms: Mapping[Pair, float]
    relay_rates: tuple[tuple[float, float], ...]
    land: tuple[tuple[float, float], ...]

    @cached_property
    def access_delay_ms(self) -> Mapping[str, float]:
        """The one-way delay between a node and its site's router, by country.

        It is a quarter of the round trip within the country, as that has four such links. If the
        round trip to another country is shorter, as for some large countries, that counts instead;
        otherwise a link between two sites would need a negative delay.
        """
        least = {code: self.round_trips_ms[code, code] for code in self.countries}
        for (first, second), round_trip_ms in self.round_trips_ms.items():
            least[first] = min(least[first], round_trip_ms)
            least[second] = min(least[second], round_trip_ms)
        return {code: round_trip_ms / 4 for code, round_trip_ms in least.items()}

    def site_delay_ms(self, first: str, second: str) -> float | None:
        """The one-way delay between the routers of two countries; None if it is unknown.

        With the access links of both it adds up to half the round trip between the countries.
        """
        one, other = sorted((first, second))
        if (one, other) not in self.round_trips_ms:
            return None
        access_ms = self.access_delay_ms[one] + self.access_delay_ms[other]
        return max(self.round_trips_ms[one, other] / 2 - access_ms, 0.0)

    def relay_rate_bit_per_s(self, weight: int) -> int:
        """The rate of a relay with this consensus weight, interpolated on logarithmic axes.

        Below the least known weight the rate is constant; above the greatest it is proportional to
        the weight.
        """
        weights, rates = np.log(np.array(self.relay_rates)).T
        place = math.log(weight)
        return round(math.exp(np.interp(place, weights, rates) + max(place - weights[-1], 0.0)))


def read_places(folder: Path = PLACES) -> Places:
    """Read the places in a folder's files.

    Raises:
        InputError: a file can't be read, or has an impossible value, with the line.
    """
    countries = {country.code: country for country in _rows(folder / COUNTRIES, _country)}
    if len(countries) > MOST_SITES:
        raise InputError(
            f"{label(folder / COUNTRIES)}: has {len(countries)} countries: there are only"
            f" addresses for {MOST_SITES}"
        )
    total = math.fsum(country.users_share for country in countries.values())
    if abs(total - 1) > 1e-4:
        raise InputError(
            f"{label(folder / COUNTRIES)}: users_share adds up to {total:g}, not to 1: the shares"
            " are of all users"
        )
    trips = folder / ROUND_TRIPS
    round_trips: dict[Pair, float] = {}
    for first, second, round_trip_ms in _rows(trips, _round_trip):
        for code in (first, second):
            if code not in countries:
                raise InputError(f"{label(trips)}: {code} is not in {COUNTRIES}: add it there")
        round_trips[first, second] = round_trip_ms
    for code in countries:
        if (code, code) not in round_trips:
            raise InputError(
                f"{label(trips)}: {code} has no round trip within itself: add {code},{code},…"
            )
    rates = tuple(_rows(folder / RELAY_RATES, _relay_rate))
    if (
        not rates
        or list(rates) != sorted(rates)
        or len({weight for weight, _ in rates}) < len(rates)
    ):
        raise InputError(f"{label(folder / RELAY_RATES)}: weights must rise from line to line")
    land = tuple(_rows(folder / LAND, lambda row: (_degrees(row[0], 90), _degrees(row[1], 180))))
    return Places(folder, dict(sorted(countries.items())), round_trips, rates, land)


def _rows(path: Path, read: Callable[[list[str]], Any]) -> Iterator[Any]:
    """Read each line after the first, which must name the columns."""
    columns = list(COLUMNS[path.name])
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error, path) if isinstance(error, OSError) else f"{path}: not UTF-8"
        raise InputError(f"places: {reason}: ./run.py distil-places makes such files") from error
    if rows[:1] != [columns]:
        raise InputError(f"{label(path)}, line 1: must be {','.join(columns)}")
    for number, row in enumerate(rows[1:], start=2):
        try:
            if len(row) != len(columns):
                raise ValueError(f"has {len(row)} values, not {len(columns)}")
            value = read(row)
        except ValueError as error:
            raise InputError(f"{label(path)}, line {number}: {error}") from error
        yield value


def _country(row: list[str]) -> Country:
    code, share, down, up, city, latitude, longitude = row
    return Country(
        code=_code(code),
        users_share=_number(share, 0, 1),
        rate_down_bit_per_s=round(_number(down, 1, 1e12)),
        rate_up_bit_per_s=round(_number(up, 1, 1e12)),
        city=city,
        latitude_deg=_degrees(latitude, 90),
        longitude_deg=_degrees(longitude, 180),
    )


def _round_trip(row: list[str]) -> tuple[str, str, float]:
    first, second = sorted((_code(row[0]), _code(row[1])))
    return first, second, _number(row[2], 0.001, 60_000)


def _relay_rate(row: list[str]) -> tuple[float, float]:
    return _number(row[0], 1, 1e9), _number(row[1], 1, 1e12)


def _degrees(text: str, most: int) -> float:
    return _number(text, -most, most)


def _code(text: str) -> str:
    if len(text) != 2 or text != text.lower():
        raise ValueError(f'{shown(text)} is not a country: write two letters, such as "de"')
    return text


def _number(text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"{shown(text)} is not a number from {least:g} to {most:g}")
    return number
