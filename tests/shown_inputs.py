"""For test_shown_commands: what documents' commands read that nobody has made in their folder.

Another block made it before, or a reader has it: runs, documents, measurements, a generator.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from made_consensus import document
from made_places import write_sources
from made_runs import Made
from shown import Shown

from testbed.basics.toml_file import PROJECT

GENERATOR = """#!/bin/sh
exec {python} -m testbed.inside.traffic.tgen "$@"
"""
MOMENTS = (
    *("2021-03-01-01-00-00", "2021-08-29-19-00-00", "2021-11-30-03-00-00"),
    *("2022-03-21-21-00-00", "2023-06-01-10-00-00"),
)
SOURCES = {
    "users": "userinfo.json.xz",
    "round_trips": "country_rtt_stat.csv.gz",
    "access_rates": "speed-data.json.xz",
    "cities": "cities15000.json",
    "relays": "relayinfo.json.xz",
    "consensus": "2024-05-17-17-00-00-consensus-microdesc.xz",
}


@dataclass(frozen=True)
class RealRun:
    """What `run_scenario` makes a run of."""

    scenario: str
    variant: str
    duration_s: int
    changes: tuple[str, ...]

    @property
    def options(self) -> list[str]:
        """As options of `./run.py scenario`."""
        return [word for change in self.changes for word in ("--set", change)]


TWO_CLIENTS = RealRun("SharedDropping", "pctls", 4, ("parameters.clients=2",))


@dataclass(frozen=True)
class Input:
    """What is read by the commands of a document that have some words in them.

    Attributes:
        document: below the project.
        words: of the block, or of the inline command.
        put: the name of the function below that puts it into a folder; "" for none.
        runs: where real runs go.
    """

    document: str
    words: str
    put: str = ""
    runs: Mapping[str, RealRun] = field(default_factory=dict)


def _one(document: str, path: str, run: RealRun = TWO_CLIENTS) -> Input:
    """A run that is named in a block."""
    return Input(document, path, runs={path: run})


INPUTS = (
    Input("consensuses/README.md", "distil", "consensuses"),
    Input("docs/batch.md", "results/kept/hydra", "kept_runs"),
    Input("docs/commands.md", "tables results/", "made_runs"),
    Input("docs/commands.md", "report results/", "made_runs"),
    Input("docs/commands.md", "adversaries results/", "made_runs"),
    _one("docs/commands.md", "results/NoDropping/vanilla/seed-1"),
    _one("docs/commands.md", "results/SharedDropping/vanilla/seed-1"),
    _one("docs/determinism.md", "results/SharedDropping/pctls/seed-1"),
    Input(
        *("docs/determinism.md", "jq .fingerprint"),
        runs={"results/SharedDropping/pctls/seed-1": TWO_CLIENTS},
    ),
    Input("docs/measurements.md", "path/to/tgen", "generator"),
    _one("docs/measurements.md", "results/SharedDropping/vanilla/seed-1"),
    _one("studies/hydra/loss.md", "results/hydra/SharedDropping/vanilla/seed-1"),
    Input("places/README.md", "--users", "measurements"),
)


def inputs_of(shown: Shown) -> list[Input]:
    """What a block or a command reads."""
    return [one for one in INPUTS if one.document == shown.document and one.words in shown.text]


# What is put into a folder.


def made_runs(folder: Path) -> None:
    """Put some made-up runs there."""
    for variant in ("vanilla", "pctls"):
        Made(variant=variant).write(folder / "results" / "hydra")


def kept_runs(folder: Path) -> None:
    """Unpack the kept runs, as the block before does."""
    kept = folder / "results" / "kept"
    kept.mkdir(parents=True)
    archive = PROJECT / "studies" / "hydra" / "kept.tar.xz"
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", kept], check=True)


def generator(folder: Path) -> None:
    """Put the bundled generator there as a program of a user's own."""
    file = folder / "path" / "to" / "tgen"
    file.parent.mkdir(parents=True)
    file.write_text(GENERATOR.format(python=sys.executable), encoding="utf-8")
    file.chmod(0o755)


def consensuses(folder: Path) -> None:
    """Make small documents, called like those of which the project has the essence."""
    for moment in MOMENTS:
        text = document(valid_after=f"{moment[:10]} {moment[11:].replace('-', ':')}")
        (folder / f"{moment}-consensus.xz").write_text(text, encoding="utf-8")
    (folder / "geoip").write_text("3221225984,3221226239,NL\n", encoding="utf-8")


def measurements(folder: Path) -> None:
    """Make what places are made from."""
    write_sources(folder, SOURCES)
