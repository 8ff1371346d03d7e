"""Places made for tests: three countries, as small as the files may be."""

from pathlib import Path

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
    """Write them; `changed` has other texts by a file's name without its ending, "-" as "_"."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        stem = name.removesuffix(".csv").replace("-", "_")
        (folder / name).write_text(changed.get(stem, text), encoding="utf-8")
    return folder
