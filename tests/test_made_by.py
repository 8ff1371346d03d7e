"""The makers that runs must share to be averaged, those that don't matter, and mixtures.

All run directories but that of the last test are made here.
"""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import COMPARE, FakeMachine, refused, status_of, with_machine
from machine import run_scenario
from made_runs import Made

from analysis.report import write_report
from analysis.runs import Found, find_runs
from study.hydra.tables import statements
from testbed.basics.ending import VALID
from testbed.results.made_by import makers, unlike
from testbed.runs import up_to_date

TOR: Mapping[str, Any] = {
    "version": "0.4.9.11",
    "sources": [{"name": "tor_0.4.9.11.orig.tar.gz", "sha256": "11" * 32}],
    "configuration": "CFLAGS=-O2",
    "compiler": "cc 12",
    "steps": 1,
    "patches": [],
    "key": "tor-a",
}
NEWER_TOR = {
    "version": "0.4.9.12",
    "sources": [{"name": "tor_0.4.9.12.orig.tar.gz", "sha256": "12" * 32}],
    "key": "tor-b",
}
KERNEL: Mapping[str, Any] = {"version": "7.2.8", "key": "kernel-a"}
MADE_BY: Mapping[str, Any] = {
    "tor": TOR,
    "kernel": KERNEL,
    "project": {"version": "0.1.0", "commit": "aaa", "files": "fa" * 32},
    "libraries": {"libc.so.6": "libc6 2.36"},
}


def seeds(part: Found) -> list[tuple[str, int]]:
    """The variant and the seed of each run that counts."""
    runs = [run.summary for runs in part.valid.values() for run in runs]
    return [(run.variant, run.seed) for run in runs]


def by_maker(results: Path) -> dict[str, list[tuple[str, int]]]:
    found = find_runs(results)
    assert found.left_out == []
    return {part.made_by: seeds(part) for part in found.parts}


# Runs that stand apart, and runs that don't.


@pytest.mark.parametrize(
    ("key", "changed", "words", "other_words"),
    [
        (
            "tor",
            NEWER_TOR,
            "Tor 0.4.9.11, Tor's source sha256 1111111111111111",
            "Tor 0.4.9.12, Tor's source sha256 1212121212121212",
        ),
        ("tor", {"compiler": "cc 14"}, "Tor's compiler cc 12", "Tor's compiler cc 14"),
        (
            "kernel",
            {"key": "kernel-b"},
            "kernel 7.2.8, build kernel-a",
            "kernel 7.2.8, build kernel-b",
        ),
        (
            "project",
            {"files": "fb" * 32},
            "the testbed's files sha256 fafafafafafafafa",
            "the testbed's files sha256 fbfbfbfbfbfbfbfb",
        ),
    ],
)
def test_runs_that_another_made_stand_apart(
    tmp_path: Path, key: str, changed: Mapping[str, Any], words: str, other_words: str
) -> None:
    another = {**MADE_BY, key: {**MADE_BY[key], **changed}}
    Made(seed=4, made_by=another).write(tmp_path)
    for seed in (1, 2):
        Made(seed=seed, made_by=MADE_BY).write(tmp_path)
    assert by_maker(tmp_path) == {
        words: [("vanilla", 1), ("vanilla", 2)],
        other_words: [("vanilla", 4)],
    }
    (mixed,) = find_runs(tmp_path, mixed=True).parts
    assert (mixed.made_by, seeds(mixed)) == ("", [("vanilla", seed) for seed in (1, 2, 4)])


def test_another_way_of_building_stands_apart(tmp_path: Path) -> None:
    Made(seed=1, made_by=MADE_BY).write(tmp_path)
    Made(seed=2, made_by={**MADE_BY, "tor": {**TOR, "steps": 2}}).write(tmp_path)
    assert [name[:26] for name in by_maker(tmp_path)] == ["Tor's configuration sha256"] * 2


def test_patches_are_the_variants(tmp_path: Path) -> None:
    patched = {**TOR, "key": "tor-patched", "patches": [{"name": "x", "sha256": "ab" * 32}]}
    Made(made_by=MADE_BY).write(tmp_path)
    Made("pctls", made_by={**MADE_BY, "tor": patched}).write(tmp_path)
    assert by_maker(tmp_path) == {"": [("vanilla", 1), ("pctls", 1)]}


def test_libraries_and_documents_do_not_set_runs_apart(tmp_path: Path) -> None:
    """Computing takes no virtual time, and a commit may change a document only."""
    other = {
        **MADE_BY,
        "libraries": {"libc.so.6": "libc6 2.41"},
        "project": {"version": "0.2.0", "commit": "bbb", "files": "fa" * 32},
        "python": "3.13",
    }
    Made(seed=1, made_by=MADE_BY).write(tmp_path)
    Made(seed=2, made_by=other).write(tmp_path)
    assert by_maker(tmp_path) == {"": [("vanilla", 1), ("vanilla", 2)]}


def test_old_runs_stand_together_and_apart_from_new_ones(tmp_path: Path) -> None:
    for seed in (1, 2):
        Made(seed=seed).write(tmp_path)
    Made(seed=3, made_by=MADE_BY).write(tmp_path)
    parts = by_maker(tmp_path)
    assert list(parts.values()) == [[("vanilla", 1), ("vanilla", 2)], [("vanilla", 3)]]
    assert "Tor not recorded" in next(iter(parts))
    assert "the testbed's files not recorded" in next(iter(parts))


OWN_TREE = "/home/me/tor"


def own_tree(key: str, seed: int, **more: Any) -> Made:  # noqa: ANN401
    """A run of a variant whose Tor is built from a tree of its own."""
    plan = Made().plan()["tor"] | {"source": OWN_TREE}
    sources = [{"name": "tor", "sha256": key}]
    tor = {**TOR, "version": "0.4.5.16", "sources": sources, "key": key}
    return Made("mine", seed=seed, changed={"tor": plan}, made_by={**MADE_BY, "tor": tor, **more})


def test_a_variant_with_a_tor_of_its_own_stands_with_the_others(tmp_path: Path) -> None:
    Made(made_by=MADE_BY).write(tmp_path)
    own_tree("k1", 1).write(tmp_path)
    assert by_maker(tmp_path) == {"": [("vanilla", 1), ("mine", 1)]}
    own_tree("k1", 2, kernel={**KERNEL, "key": "kernel-b"}).write(tmp_path)
    assert [seeds(part) for part in find_runs(tmp_path).parts] == [
        [("vanilla", 1), ("mine", 1)],
        [("mine", 2)],
    ]


def test_a_variant_that_names_a_release_stands_with_the_others(tmp_path: Path) -> None:
    """Its plan names the Tor; how that is built is the testbed's choice."""
    plan = Made().plan()["tor"] | {"release": "0.4.9.12"}
    newer = {**TOR, **NEWER_TOR}
    Made(made_by=MADE_BY).write(tmp_path)
    for compiler in ("cc 12", "cc 14"):
        made_by = {**MADE_BY, "tor": {**newer, "compiler": compiler}}
        Made("newer", changed={"tor": plan}, made_by=made_by).write(tmp_path)
    assert [seeds(part) for part in find_runs(tmp_path).parts] == [
        [("vanilla", 1), ("newer", 1)],
        [("newer", 1)],
    ]


def test_a_tree_that_was_changed_is_another_tor(tmp_path: Path) -> None:
    first, second = (own_tree(f"k{seed}", seed).write(tmp_path) for seed in (1, 2))
    found = find_runs(tmp_path)
    assert seeds(found) == [("mine", 1)]
    assert found.left_out == [
        f"{second}: not averaged with {first}: Tor is of build k2, not k1: move one of them"
        " elsewhere"
    ]
    assert seeds(find_runs(tmp_path, mixed=True)) == [("mine", 1), ("mine", 2)]


def test_the_same_plan_made_by_others_counts_with_each(tmp_path: Path) -> None:
    Made(made_by=MADE_BY).write(tmp_path)
    Made(made_by={**MADE_BY, "tor": {**TOR, **NEWER_TOR}}).write(tmp_path)
    assert [seeds(part) for part in find_runs(tmp_path).parts] == [[("vanilla", 1)]] * 2
    mixed = find_runs(tmp_path, mixed=True)
    assert seeds(mixed) == [("vanilla", 1)]
    assert "of the same plan as" in mixed.left_out[0]


def test_what_differs_is_said_in_words() -> None:
    plan: Mapping[str, Any] = {"plan": Made().plan()}
    one = makers("virtual", {**plan, **MADE_BY})
    assert unlike(one, one) == ""
    assert unlike(one, makers("host", {**plan, **MADE_BY, "kernel": None})) == (
        "machine is virtual, not host; kernel is 7.2.8, build kernel-a, not the host's"
    )


# Tables and reports.


@pytest.fixture
def two_tors(tmp_path: Path) -> Path:
    """Three runs of one Tor with 5 MB in 2.5 s, and two of a newer one in 5 s."""
    results = tmp_path / "results"
    newer = {**MADE_BY, "tor": {**TOR, **NEWER_TOR}}
    for seed in (1, 2, 3):
        Made(seed=seed, made_by=MADE_BY).write(results)
        Made("pctls", seed=seed, time_s=1.0, made_by=MADE_BY).write(results)
    for seed in (4, 5):
        Made(seed=seed, time_s=5.0, made_by=newer).write(results)
    return results


def test_nothing_is_averaged_over_two_tors(
    two_tors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["tables", str(two_tors), "--csv"]) == VALID
    printed = capsys.readouterr()
    rows = [row for row in csv.reader(io.StringIO(printed.out)) if "NoDropping" in row]
    throughput = [row for row in rows if row[3].isdigit() and row[4] != "-"]
    assert [(row[0][:12], row[1], row[3], row[4]) for row in throughput] == [
        ("Tor 0.4.9.11", "vanilla", "3", "2.00 ± 0.00"),
        ("Tor 0.4.9.11", "pctls", "3", "5.00 ± 0.00"),
        ("Tor 0.4.9.12", "vanilla", "2", "1.00 ± 0.00"),
    ]
    told = printed.err.splitlines()
    assert told[0].startswith("6 runs stand apart, made by Tor 0.4.9.11, Tor's source sha256 1111")
    assert told[1].startswith("2 runs stand apart, made by Tor 0.4.9.12, Tor's source sha256 1212")
    assert status_of(["tables", str(two_tors)]) == VALID
    assert "round trips (Tor 0.4.9.12," in " ".join(capsys.readouterr().out.split())
    assert status_of(["tables", str(two_tors), "--markdown"]) == VALID
    assert "| Tor 0.4.9.12, Tor's source" in capsys.readouterr().out


def test_a_mixture_that_was_asked_for(two_tors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["tables", str(two_tors), "--mixed", "--json"]) == VALID
    printed = capsys.readouterr()
    _, table, *_ = json.loads(printed.out)["tables"]
    assert [row[2:4] for row in table["rows"]] == [["5", "1.60 ± 0.55"], ["3", "5.00 ± 0.00"]]
    assert (table["made_by"], printed.err) == ("", "")


def test_a_report_has_each_by_itself(two_tors: Path) -> None:
    file = two_tors / "report" / "report.html"
    found = write_report(two_tors, file)
    assert [part.count for part in found.parts] == [6, 2]
    text = file.read_text()
    assert "8 runs count, 0 are left out." in text
    assert "6 runs were made by Tor 0.4.9.11, Tor&#x27;s source sha256" in text
    assert text.count('<section id="nodropping-tor-0-4-9-1') == 2
    names = [path.stem for path in file.parent.glob("*.svg")]
    assert len(names) == text.count("<figure")
    of_each = [name for name in names if not name.startswith("all-scenarios")]
    assert sum("0-4-9-12" in name for name in of_each) == len(of_each) / 2
    comparisons = [path.stem for path in file.parent.glob("*against*.csv")]
    assert [name[:57] for name in comparisons] == [
        "nodropping-bulk-300-s-pctls-against-vanilla-tor-0-4-9-11-"
    ]
    write_report(two_tors, file, mixed=True)
    assert "made by" not in file.read_text()


def test_statements_are_judged_over_runs_of_one_tor(tmp_path: Path) -> None:
    """Runs of pctls with one Tor are not compared with runs of vanilla with another."""
    for seed in (1, 2, 3):
        Made(scenario="One", seed=seed, made_by=MADE_BY).write(tmp_path)
        newer = {**MADE_BY, "tor": {**TOR, **NEWER_TOR}}
        Made("pctls", "One", seed, time_s=1 + seed / 99, made_by=newer).write(tmp_path)
    verdicts = [
        {
            row[1]
            for part in find_runs(tmp_path, mixed=mixed).parts
            for row in statements.table(part).rows
        }
        for mixed in (False, True)
    ]
    assert verdicts[0] == {"not enough runs"}
    assert "does not hold" in verdicts[1]


# Whether a run on disk equals the one that would be made now.


@pytest.fixture
def compared(two_variants: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The four runs of a comparison, after which the kernel is another one."""
    with_machine(monkeypatch, two_variants, FakeMachine)
    assert status_of(COMPARE) == VALID
    monkeypatch.setattr(up_to_date, "kernel_now", lambda: {"version": "8.0", "key": "k"})
    return two_variants


def test_a_run_of_another_kernel_is_not_compared(
    compared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    line = refused(COMPARE, monkeypatch, capsys)
    assert "results/Mine/vanilla/seed-1 is made by another (--mixed keeps it): kernel is" in line
    assert "not 8.0, build k; remove it" in line


def test_a_run_of_another_kernel_is_compared_if_asked_for(
    compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert status_of([*COMPARE, "--mixed"]) == VALID
    printed = capsys.readouterr()
    assert "is the same" in printed.out
    assert "run 1 of" not in printed.err


@pytest.mark.experiment
def test_a_run_that_was_just_made_is_up_to_date(tmp_path: Path) -> None:
    """The metadata of its builds equal those of their recipes."""
    run = run_scenario(tmp_path, "One", "pctls", 5)
    assert up_to_date.reason_against(run, run.plan, up_to_date.Today()) is None
    assert "not recorded" not in str(run.makers)
