"""Fingerprints: what changes one, what doesn't, and where two runs differ."""

import hashlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars
import pytest
from made_record import finished, raw_rows

from testbed.basics.toml_file import PROJECT
from testbed.machines.watching import Usage
from testbed.plan.model import Plan
from testbed.results import MachineFacts, read_run
from testbed.results.fingerprint import Contents, Difference, differing
from testbed.results.made_by import files_sha256
from testbed.results.tables import SCHEMAS
from testbed.setup.own_code import IN_THE_MACHINE

TABLE = polars.DataFrame({"client": ["client1", None], "time_s": [0.1, -0.0], "ok": [True, False]})
SUMMARY: dict[str, Any] = {"b": [1, 2.5], "a": {"é": None}, "cost": {"wall_s": 7.0}}
LINES = """\
transfers
["client","time_s","ok"]
["client1",0.1,true]
[null,-0.0,false]
summary.json
{"a":{"\\u00e9":null},"b":[1,2.5]}
"""


def test_it_is_the_sha256_of_a_runs_contents() -> None:
    contents = Contents({"transfers": TABLE}, SUMMARY)
    assert contents.fingerprint == hashlib.sha256(LINES.encode()).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        Contents({"transfers": TABLE.reverse()}, SUMMARY),
        Contents({"transfers": TABLE.head(1)}, SUMMARY),
        Contents({"transfers": TABLE.rename({"ok": "error"})}, SUMMARY),
        Contents({"transfers": TABLE.with_columns(time_s=abs(polars.col("time_s")))}, SUMMARY),
        Contents({"transfers": TABLE, "links": TABLE}, SUMMARY),
        Contents({"transfers": TABLE}, SUMMARY | {"b": [1, math.nextafter(2.5, 3)]}),
        Contents({"transfers": TABLE}, SUMMARY | {"c": None}),
    ],
)
def test_everything_else_changes_it(other: Contents) -> None:
    contents = Contents({"transfers": TABLE}, SUMMARY)
    assert other.fingerprint != contents.fingerprint
    assert list(differing(contents, other))


def test_the_cost_and_the_way_of_writing_do_not(tmp_path: Path) -> None:
    TABLE.write_parquet(tmp_path / "t", compression="uncompressed", row_group_size=1)
    read = Contents({"transfers": polars.read_parquet(tmp_path / "t")}, SUMMARY | {"cost": None})
    contents = Contents({"transfers": TABLE}, SUMMARY)
    assert read.fingerprint == contents.fingerprint
    assert list(differing(contents, read)) == []


def test_the_first_difference_of_each_table_is_named() -> None:
    one = Contents({"links": TABLE, "transfers": TABLE, "queues": TABLE}, SUMMARY)
    changed = TABLE.with_columns(ok=True, time_s=polars.Series([0.1, 0.2]))
    other = Contents(
        {"links": TABLE.head(1), "transfers": changed, "queues": TABLE.drop("ok")},
        SUMMARY | {"b": [1, 2.75]},
    )
    assert list(differing(one, other)) == [
        Difference("links", 2, None, "[null,-0.0,false]", "missing"),
        Difference("queues", None, "ok", "there", "missing"),
        Difference("transfers", 2, "time_s", "-0.0", "0.2"),
        Difference("summary.json", None, "b.1", "2.5", "2.75"),
    ]
    assert [one.place for one in differing(one, other)] == [
        "links, row 2",
        "queues, ok",
        "transfers, row 2, time_s",
        "summary.json, b.1",
    ]


# Of runs.


def test_nothing_of_the_host_is_in_it(tmp_path: Path, plan: Plan, facts: MachineFacts) -> None:
    """The same record at another place and time, with another cost and another build."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "build.json").write_text('{"name": "tor", "version": "0.4.9.12"}')
    elsewhere = replace(
        facts,
        cost=Usage(virtual_s=41.0, wall_s=99.0, cpu_s=98.0),
        started=datetime(2030, 1, 1, tzinfo=UTC),
        ended=datetime(2030, 1, 2, tzinfo=UTC),
        memory_mb=2048,
        tor=replace(facts.tor, folder=tmp_path / "other"),
    )
    places = [tmp_path / "run", tmp_path / "deep" / "er" / "run"]
    for place, its_facts in zip(places, (facts, elsewhere), strict=True):
        finished(place, plan, its_facts)
    runs = [read_run(place) for place in places]
    assert runs[0].summary.cost != runs[1].summary.cost
    assert runs[0].fingerprint == runs[1].fingerprint
    for run in runs:
        assert run.contents.fingerprint == run.fingerprint
    for name in SCHEMAS:
        files = [place / f"{name}.parquet" for place in places]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_one_value_of_one_sample_is_another_fingerprint(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    samples = raw_rows(plan)["sockets"]
    finished(tmp_path / "one", plan, facts, sockets=samples)
    samples[17]["rtt_ms"] = math.nextafter(20.0, 21.0)
    finished(tmp_path / "other", plan, facts, sockets=samples)
    one, other = (read_run(tmp_path / name).contents for name in ("one", "other"))
    assert list(differing(one, other)) == [
        Difference("sockets", 18, "rtt_ms", "20.0", "20.000000000000004")
    ]
    assert raw_rows(plan)["sockets"][17]["rtt_ms"] == 20.0


# The testbed's own files.


def test_what_the_guest_runs_is_among_the_files_of_a_run() -> None:
    """Otherwise an edited experiment would pass for the same one."""
    code = """
import sys, testbed.inside.experiment, testbed.inside.traffic.tgen.__main__
print("\\n".join(m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "testbed"))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = [PROJECT / "testbed" / room for room in IN_THE_MACHINE]
    assert str(PROJECT / "testbed/inside/experiment.py") in loaded
    outside = [one for one in loaded if not any(Path(one).is_relative_to(room) for room in rooms)]
    assert outside == [str(PROJECT / "testbed/__init__.py")]


def test_an_edited_experiment_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "testbed/inside/experiment.py",
        "testbed/results/tables.py",
        "testbed/inside/tor/torrc/one.torrc",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# as it was\n")
    monkeypatch.setattr("testbed.results.made_by.PROJECT", tmp_path)
    before = files_sha256()
    (tmp_path / "testbed/results/tables.py").write_text("# another word\n")
    (tmp_path / "testbed/inside/__pycache__").mkdir()
    (tmp_path / "testbed/inside/__pycache__/experiment.pyc").touch()
    assert files_sha256() == before
    (tmp_path / "testbed/inside/experiment.py").write_text("# another word\n")
    edited = files_sha256()
    torrc = tmp_path / "testbed/inside/tor/torrc/one.torrc"
    torrc.rename(torrc.with_name("two.torrc"))
    assert len({before, edited, files_sha256()}) == 3


def test_a_manifest_says_what_a_run_ran_with(
    tmp_path: Path, plan: Plan, facts: MachineFacts
) -> None:
    (facts.tor.folder / "tor").write_bytes(Path("/bin/sh").read_bytes())
    finished(tmp_path / "run", plan, replace(facts, captures=("exit-middle",)))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["libraries"]["libc.so.6"] == f"libc6 {manifest['debian']['libc6']}"
    assert manifest["debian"]["mininet"]
    assert manifest["project"]["files"] == files_sha256()
    assert manifest["captures"] == ["exit-middle"]
