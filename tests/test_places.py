"""Places: those of the project, how they are read, and how they are made from measurements."""

import hashlib
import json
import math
import re
from pathlib import Path

import pytest
from made_places import FILES, PINGS, write_places, write_sources

from testbed.basics.errors import InputError
from testbed.network.distilled_places import Sources, distil_places
from testbed.network.places import Country, read_places


def light_ms(one: Country, other: Country) -> float:
    """The round trip of light in fibre (200 km/ms), by the spherical law of cosines."""
    first, second = math.radians(one.latitude_deg), math.radians(other.latitude_deg)
    apart = math.radians(one.longitude_deg - other.longitude_deg)
    cosine = math.sin(first) * math.sin(second)
    cosine += math.cos(first) * math.cos(second) * math.cos(apart)
    return 2 * 6371 * math.acos(min(cosine, 1.0)) / 200


def test_the_projects_places_are_whole() -> None:
    places = read_places()
    assert len(places.countries) == 136
    assert math.fsum(one.users_share for one in places.countries.values()) == pytest.approx(1)
    assert len(places.relay_rates) == 25
    assert len(places.land) > 10_000
    assert (places.countries["de"].city, places.countries["au"].city) == ("Berlin", "Sydney")


def test_nothing_is_nearer_than_light_goes() -> None:
    places = read_places()
    for (first, second), round_trip_ms in places.round_trips_ms.items():
        if first != second:
            least_ms = light_ms(places.countries[first], places.countries[second])
            assert round_trip_ms > 1.5 * least_ms - 0.1, (first, second)


def test_access_and_site_links_together_are_the_round_trip() -> None:
    places = read_places()
    for (first, second), round_trip_ms in places.round_trips_ms.items():
        if first != second:
            site_ms = places.site_delay_ms(second, first)
            assert site_ms is not None
            access_ms = places.access_delay_ms[first] + places.access_delay_ms[second]
            assert 2 * (site_ms + access_ms) == pytest.approx(round_trip_ms)


def test_a_country_is_no_wider_than_the_way_to_its_nearest(tmp_path: Path) -> None:
    places = read_places(write_places(tmp_path))
    assert places.access_delay_ms == {"aa": 3.0, "bb": 25.0, "cc": 10.0}
    assert places.site_delay_ms("bb", "aa") == 22.0


def test_relays_rates_lie_between_those_known_and_go_on_beyond(tmp_path: Path) -> None:
    places = read_places(write_places(tmp_path))
    rates = [places.relay_rate_bit_per_s(weight) for weight in (1, 10, 100, 1000, 3000)]
    assert rates == [1_000_000, 1_000_000, round(10**6.5), 10_000_000, 30_000_000]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("countries", "aa,0.5", "aa,0.4", "users_share adds up to 0.9, not to 1"),
        ("countries", "aa,0.5", "aa,half", 'line 2: "half" is not a number from 0 to 1'),
        ("countries", "aa,0.5", "Aa,0.5", 'line 2: "Aa" is not a country: write two letters'),
        ("countries", "aa,0.5,", "aa,", "line 2: has 6 values, not 7"),
        ("countries", "country,users_share", "land,share", "line 1: must be country,users_share,"),
        ("round_trips", "aa,cc,300.0", "aa,dd,300.0", "dd is not in countries.csv: add it there"),
        ("round_trips", "aa,cc,300.0", "aa,cc,-1", 'line 4: "-1" is not a number from 0.001'),
        ("round_trips", "cc,cc,40.0\n", "", "cc has no round trip within itself: add cc,cc,…"),
        ("relay_rates", "1000,", "10,", "weights must rise from line to line"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(
    tmp_path: Path, file: str, old: str, new: str, expected: str
) -> None:
    name = f"{file.replace('_', '-')}.csv"
    assert old in FILES[name]
    write_places(tmp_path, **{file: FILES[name].replace(old, new)})
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        read_places(tmp_path)
    assert name in str(caught.value)


def test_more_countries_than_there_are_addresses_for_are_told(tmp_path: Path) -> None:
    header, first, *_ = FILES["countries.csv"].splitlines()
    codes = [f"{one}{other}" for one in "abcdefghij" for other in "abcdefghijklmnopqrstuvwxyz"]
    lines = [first.replace("aa,0.5", f"{code},0.0") for code in codes[:255]]
    write_places(tmp_path, countries="\n".join([header, *lines]))
    with pytest.raises(InputError, match=r"countries\.csv: has 255 countries: there are only"):
        read_places(tmp_path)


def test_a_folder_without_places_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"countries\.csv: No such file .* distil-places makes"):
        read_places(tmp_path)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    names = Sources.__dataclass_fields__
    write_sources(tmp_path, dict(zip(names, names, strict=True)))
    return Sources(**{name: tmp_path / name for name in names})


def test_places_are_made_from_measurements(tmp_path: Path, sources: Sources) -> None:
    distil_places(sources, tmp_path / "out")
    places = read_places(tmp_path / "out")
    aa, bb, cc = places.countries.values()
    assert (aa.code, aa.city, aa.users_share) == ("aa", "Large", 0.75)
    assert (bb.users_share, cc.users_share) == (0.25, 0.0)
    assert (aa.rate_down_bit_per_s, aa.rate_up_bit_per_s) == (50_000_000, 5_500_000)
    assert bb.rate_down_bit_per_s == 50_000_000  # the median of the known ones
    trips = places.round_trips_ms
    assert trips["aa", "aa"] == 10
    assert trips["bb", "bb"] == 15  # the median of the round trips within a country
    assert trips["aa", "bb"] == pytest.approx(200, abs=0.01)
    # The deviation equals the mean, so a lognormal median is mean / sqrt(2).
    assert trips["aa", "cc"] == pytest.approx(30 / math.sqrt(2), abs=0.01)
    assert ("bb", "cc") not in trips  # it has one ping too few
    assert places.relay_rates[0] == (25, 25 * 8000)  # the median of 10, 20, 30 and 40
    assert places.relay_rate_bit_per_s(500) == pytest.approx(500 * 8000, rel=0.01)
    assert (5, 5) in places.land
    made_from = json.loads((tmp_path / "out" / "made-from.json").read_text())
    digest = hashlib.sha256(sources.users.read_bytes()).hexdigest()
    assert made_from["sources"]["users"] == {"file": "users", "sha256": digest}
    assert made_from["share_of_users_in_them"] == 0.4


def test_a_pair_that_seems_nearer_than_others_are_is_set_to_what_these_take(
    tmp_path: Path, sources: Sources
) -> None:
    """Light takes 100 ms there and back around a quarter of the earth."""
    near = PINGS.replace("AA,BB,5000,200.0,0", "AA,BB,5000,120.0,160.0")
    sources.round_trips.write_text(near, encoding="utf-8")
    distil_places(sources, tmp_path / "out")
    made_from = json.loads((tmp_path / "out" / "made-from.json").read_text())
    assert made_from["pairs_set_to_the_least_stretch"] == 1
    round_trip_ms = read_places(tmp_path / "out").round_trips_ms["aa", "bb"]
    # The median of its pings would be 120 / sqrt(1 + (160/120)**2) = 72 ms.
    assert round_trip_ms == pytest.approx(100 * made_from["least_stretch"], rel=0.01)


def test_the_same_sources_give_the_same_bytes(tmp_path: Path, sources: Sources) -> None:
    made = [distil_places(sources, tmp_path / name) for name in ("one", "two")]
    assert [file.read_bytes() for file in made[0]] == [file.read_bytes() for file in made[1]]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("users", "{", "--users * not JSON"),
        ("users", "[]", "--users * must be a share for each country"),
        ("users", '{"xx": 1}', "--users * has no country of --round-trips"),
        ("round_trips", "a,b\n1,2\n", "--round-trips *, line 2: needs the columns cty1, cty2"),
        ("access_rates", "{}", '--access-rates * must have "countries"'),
        ("cities", '{"1": {}}', "--cities * each city must have name, latitude"),
        ("relays", "{}", '--relays * must have "relays"'),
        ("relays", '{"relays": {}}', "--relays * has 0 relays of --consensus"),
        ("consensus", "no", "consensus, line 1: not a consensus document"),
    ],
)
def test_a_source_that_is_another_one_is_told(
    tmp_path: Path, sources: Sources, name: str, content: str, expected: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(expected).replace(r"\*", ".*")) as caught:
        distil_places(sources, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
