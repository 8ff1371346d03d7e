"""The origin of runs in a report: versions, patches, and the commands to repeat them."""

import argparse
import hashlib
import json
import shlex
from itertools import pairwise
from pathlib import Path

from made_runs import Made

from analysis import provenance
from commands import _options
from testbed.asked.plans import make_plan
from testbed.basics.toml_file import Value
from testbed.plan.programs import Patch
from testbed.results import read_run


def test_versions_are_counted_over_runs(tmp_path: Path) -> None:
    for seed, commit in ((1, "aaa"), (2, "aaa"), (3, "bbb")):
        run = Made(seed=seed).write(tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        tor = {
            "version": "0.4.9.11",
            "key": "k",
            "compiler": "cc",
            "patches": [{"name": "x.patch", "sha256": "1234"}],
        }
        manifest |= {"project": {"version": "1", "commit": commit, "dirty": seed == 3}, "tor": tor}
        (run / "manifest.json").write_text(json.dumps(manifest))
    runs = [read_run(path.parent) for path in sorted(tmp_path.rglob("summary.json"))]
    rows = provenance.versions_table(runs).rows
    assert ("testbed", "1, commit aaa", "2") in rows
    assert ("testbed", "1, commit bbb with uncommitted changes", "1") in rows
    assert ("Tor", "0.4.9.11, build k", "3") in rows
    assert ("Tor: patches", "x.patch, sha256 1234", "3") in rows
    # Runs of several commits can't be repeated with one.
    assert not provenance.commands(runs, tmp_path)[0].startswith("git")
    assert provenance.commands(runs[:2], tmp_path)[0] == "git checkout aaa"


def test_a_patch_is_shown_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    own, kept = tmp_path / "x.patch", tmp_path / "run" / "patches" / "x.patch"
    patch = Patch(name="x.patch", path=str(own), sha256=hashlib.sha256(b"+ used").hexdigest())
    assert "is not here as it was used" in provenance.patch_text(patch, tmp_path / "run")
    own.write_text("+ used")
    assert provenance.patch_text(patch, tmp_path / "run") == "+ used"
    own.write_text("+ another")
    assert "is not here as it was used" in provenance.patch_text(patch, tmp_path / "run")
    kept.parent.mkdir(parents=True)
    kept.write_text("+ used")
    assert provenance.patch_text(patch, tmp_path / "run") == "+ used"


def test_a_file_of_the_users_own_is_named_as_a_file() -> None:
    plan = make_plan("NoDropping", "vanilla", traffic="web")
    own = plan.model_copy(update={"scenario": "Mine", "variant": "mine"})
    assert provenance.command(own) == (
        "./run.py scenario Mine.toml --variant mine.toml --traffic web --duration 300 --seed 1"
    )


def test_changes_are_typed_as_they_are_read() -> None:
    """A consensus is named by its date, which TOML would read as one."""
    changes: dict[str, Value] = {"network.consensus": "2021-11-30", "paths.entry_guards": False}
    plan = make_plan("SmallNetwork", "vanilla", changes=changes)
    typed = provenance.command(plan)
    assert "--set network.consensus=2021-11-30 --set paths.entry_guards=false" in typed
    parser = argparse.ArgumentParser()
    _options.add_set(parser)
    words = shlex.split(typed)
    given = [word for one, each in pairwise(words) if one == "--set" for word in (one, each)]
    assert dict(parser.parse_args(given).set) == changes


def test_a_run_of_the_host_machine_is_repeated_there() -> None:
    assert provenance.command(make_plan("One", "vanilla"), "host").endswith(" --machine host")
