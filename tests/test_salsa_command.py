"""`salsa`: its results for readers and programs, its report, and the input that it refuses."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import status_of
from made_consensus import MadeRelay, document
from rich.console import Console

from commands import _late_bar
from salsa import figures
from salsa.cases import PAPER_CIRCUITS

NOVEMBER = "2021-11-30"


MANY = [
    MadeRelay(10 + number % 90, flags, f"10.{number % 200}.0.1", "accept 1-65535")
    for number, flags in enumerate(["Fast Guard Stable V2Dir", "Fast", "Exit Fast"] * 200)
]
"""A network that is large enough to be scaled."""


def test_a_bar_is_shown_only_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for patience_s, shown in ((_late_bar._PATIENCE_S, False), (0.0, True)):
        monkeypatch.setattr(_late_bar, "_PATIENCE_S", patience_s)
        file = io.StringIO()
        with _late_bar.late_bar(Console(file=file, force_terminal=True), "simulating", 3) as tell:
            tell(1)
        assert ("simulating" in file.getvalue()) == shown
        assert shown or not file.getvalue()


def printed(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert status_of(["salsa", *arguments.split()]) == 0
    return capsys.readouterr().out


def test_the_command_prints_the_share_of_november(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(f"{NOVEMBER} --json", capsys))
    assert [(row["internal_share"], row["direction"]) for row in rows] == [
        *((0, "directed"), (0, "undirected"), (1, "directed"), (1, "undirected")),
    ]
    assert {row["circuits"] for row in rows} == {PAPER_CIRCUITS}
    assert 3.4 < rows[0]["all_percent_mean"] < 3.8
    assert rows[0]["all_percent_low"] < rows[0]["all_percent_mean"] < rows[0]["all_percent_high"]
    assert sum(rows[0]["links_by_parts_mean"]) == pytest.approx(rows[0]["all_links_mean"])


def test_the_command_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    one = printed(f"{NOVEMBER} --seeds 1 --external --directed --circuits 1000", capsys)
    assert "6400 relays, 1000 circuits" in one and "circuits with two" in one
    numbers = "--circuits 1000,2000:4000:1000"
    several = printed(f"{NOVEMBER} 2026-04-18 --seeds 1 {numbers}", capsys)
    assert [line.split()[2] for line in several.splitlines() if line.startswith("2026")] == [
        *("1000", "2000", "3000", "4000") * 2,
    ]
    assert "closed form" in printed(f"{NOVEMBER} --expected --external", capsys)


def test_the_command_prints_csv(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(f"{NOVEMBER} --csv --seeds 2 --circuits 1000 --scale 0.1 --rule all", capsys)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4
    assert {row["circuits"] for row in rows} == {"100"}
    assert rows[0]["rules"] == "exit-by-policy flags no-relay-twice no-same-16"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("2021-11-30 --internal --exit-class web", "internal circuits have no exit"),
        ("2026-04-18 --exit-class web", "has no exit policies"),
        ("2021-11-30 --rule no-same-family", "has no families"),
        ("2021-11-30 --rule no-same-16 --expected", "for independent relays"),
        ("2021-11-30 --scale 0", "0 is not above 0 and at most 1"),
        ("2021-11-30 --circuits 5:1:1", "FIRST:LAST:STEP"),
        ("2021-11-30 --circuits many", "not a whole number"),
        ("2021-11-30 --internal-share 1.5", "not from 0 to 1"),
        ("2021-11-30 --figures out --scale 0.5", "leave --scale out"),
        ("2021-11-30 --figures out --json", "leave --json out"),
        ("2021-11-30 --tables --csv", "--tables has settings of its own: leave --csv out"),
        ("2021-11-30 --run out", "--run has settings of its own: leave CONSENSUS out"),
        ("--run out --circuits 5", "leave --circuits out"),
        ("nowhere", "there is no consensus"),
    ],
)
def test_impossible_options_are_refused(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["salsa", *arguments.split()]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_the_report_has_the_papers_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").write_text(document(MANY), encoding="utf-8")
    printed(f"{tmp_path / 'made'} --figures {tmp_path / 'out'} --seeds 1", capsys)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 6
    for published in ("54.82", "20.56", "12.51", "11.3", "13805", "3.7 to 6.9 %"):
        assert published in page
    assert len(list((tmp_path / "out").glob("*.svg"))) == 6
    assert 'src="http' not in page and 'href="http' not in page


def test_the_tables_are_those_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").write_text(document(MANY), encoding="utf-8")
    tables = json.loads(printed(f"{tmp_path / 'made'} --tables --seeds 1 --json", capsys))
    assert len(tables) == 6
    assert all(len(row) == len(one["columns"]) for one in tables for row in one["rows"])
    assert "Published figures and ours" in printed(
        f"{tmp_path / 'made'} --tables --seeds 1", capsys
    )


def test_the_report_goes_without_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "FORECAST", (1000, 2000))
    monkeypatch.setattr(figures, "SCALES", (0.5, 1.0))
    (tmp_path / "made").write_text(document(MANY, microdesc=True), encoding="utf-8")
    printed(f"{tmp_path / 'made'} --figures {tmp_path / 'out'} --seeds 1", capsys)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 5
