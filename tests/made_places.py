"""Minimal places for tests, and measurements to make places from."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

from made_consensus import MadeRelay, document, identity

FILES = {
    "countries.csv": """\
country,users_share,rate_down_bit_per_s,rate_up_bit_per_s,city,latitude_deg,longitude_deg
aa,0.5,50000000,10000000,Aa,50.0,10.0
bb,0.3,40000000,8000000,Bb,40.0,-75.0
cc,0.2,30000000,6000000,Cc,-30.0,150.0
""",
    "round-trips.csv": """\
first,second,round_trip_ms
aa,aa,12.0
aa,bb,100.0
aa,cc,300.0
bb,bb,400.0
bb,cc,150.0
cc,cc,40.0
""",
    "relay-rates.csv": "weight,rate_bit_per_s\n10,1000000\n1000,10000000\n",
    "land.csv": "latitude_deg,longitude_deg\n50.0,10.0\n40.0,-75.0\n",
}


def write_places(folder: Path, **changed: str) -> Path:
    """Write the files; `changed` has other contents, by name without ending and with _ for -."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        stem = name.removesuffix(".csv").replace("-", "_")
        (folder / name).write_text(changed.get(stem, text), encoding="utf-8")
    return folder


# A tenth of a degree is 11 km; "aa" and "bb" are a quarter of the earth apart.
CITIES = {
    "1": {"name": "Small", "countrycode": "AA", "latitude": 5, "longitude": 5, "population": 9},
    "2": {"name": "Large", "countrycode": "AA", "latitude": 0, "longitude": 0, "population": 10},
    "3": {"name": "Bee", "countrycode": "BB", "latitude": 0, "longitude": 90, "population": 1},
    "4": {"name": "Cee", "countrycode": "CC", "latitude": 0, "longitude": 1, "population": 1},
}
PINGS = """\
cty1,cty2,rtt_cnt,rtt_avg,rtt_std,rtt_min,rtt_max
AA,AA,1000,10.0,0,1,20
AA,BB,5000,200.0,0,1,900
AA,CC,5000,30.0,30.0,1,900
CC,CC,5000,20.0,,1,900
BB,CC,999,150.0,0,1,900
BB,DD,5000,150.0,0,1,900
"""
RELAYS = [MadeRelay(weight) for weight in range(10, 1010, 10)]


def write_sources(folder: Path, names: Mapping[str, str]) -> None:
    """Write measurements to files named by the options of `distil-places`."""
    capacities = {
        identity(number).hex().upper(): {"bandwidth_capacity": 1000 * relay.weight}
        for number, relay in enumerate(RELAYS)
    }
    contents: dict[str, object] = {
        "users": {"aa": 0.3, "bb": 0.1, "dd": 0.6},
        "access_rates": {"countries": {"AA": {"down_mbits": 50.0, "up_mbits": 5.5}}},
        "cities": CITIES,
        "relays": {"relays": capacities},
    }
    for name, content in contents.items():
        (folder / names[name]).write_text(json.dumps(content), encoding="utf-8")
    (folder / names["round_trips"]).write_bytes(gzip.compress(PINGS.encode()))
    (folder / names["consensus"]).write_text(document(RELAYS), encoding="utf-8")
