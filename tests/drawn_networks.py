"""Networks drawn from files made for tests: a consensus with relays in made-up countries."""

from pathlib import Path

from made_consensus import MadeRelay, document
from made_places import write_places

from testbed.asked.drawing import read_source
from testbed.network import distilled
from testbed.network.drawn import Drawn

NETWORK = """
consensus = "consensus.parquet"
places = "places"
relays = 4
clients = 20
servers = 3
"""


def draw_scenario(scenario: str, seed: int) -> Drawn:
    """Draw a scenario's network by a seed."""
    return read_source(scenario).draw(seed)


GOOD = """
title = "A network"
topology = "sampled"
duration = "1 min"
[clients]
page = "95 %"
bulk5mib = "5 %"
[network]
"""


GEOIP = "".join(
    f"{first},{first + 255},{code}\n"
    for first, code in ((3221225984, "AA"), (3325256704, "BB"), (3405803776, "CC"))
)
"""192.0.2.0/24, 198.51.100.0/24 and 203.0.113.0/24 (RFC 5737), as in `made_consensus`."""


IN_PLACES = [
    MadeRelay(1000, "Fast Guard Stable V2Dir", "192.0.2.1"),
    MadeRelay(500, "Fast Guard", "192.0.2.2"),
    MadeRelay(300, "Exit Fast", "198.51.100.1"),
    MadeRelay(800, "Exit Fast Guard Stable V2Dir", "203.0.113.1"),
    MadeRelay(20, "", "203.0.113.9"),
    MadeRelay(30, "Fast", "192.0.2.9"),
]


def draw(
    folder: Path, network: str = NETWORK, *, relays: list[MadeRelay] | None = None, seed: int = 1
) -> Drawn:
    """Draw from a scenario file in the folder, with the files that it needs beside it."""
    (folder / "geoip").write_text(GEOIP, encoding="utf-8")
    (folder / "document").write_text(document(relays or IN_PLACES), encoding="utf-8")
    [made] = distilled.distil([folder / "document"], folder, countries=folder / "geoip")
    made.rename(folder / "consensus.parquet")
    if not (folder / "places").exists():
        write_places(folder / "places")
    text = network if "title" in network else GOOD + network
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return draw_scenario(str(folder / "mine.toml"), seed)
