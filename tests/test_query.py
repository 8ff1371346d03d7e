"""`query`: questions in SQL on the tables of runs."""

import csv
import io
import json
from pathlib import Path

import pytest
from command_line import refused, status_of
from made_runs import Made

from testbed.basics.ending import VALID

COUNT = "SELECT COUNT(*) AS transfers FROM transfers"


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two runs."""
    return [
        str(Made("vanilla", "SharedDropping", seed).write(tmp_path / str(seed))) for seed in (1, 2)
    ]


def test_a_question_is_answered(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["query", runs[0], COUNT, "--json"]) == VALID
    [one] = json.loads(capsys.readouterr().out)
    assert one["transfers"] > 0
    by_run = "SELECT run, COUNT(*) AS transfers FROM transfers GROUP BY run ORDER BY run"
    assert status_of(["query", *runs, by_run, "--csv"]) == VALID
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == runs
    assert status_of(["query", runs[0], COUNT]) == VALID
    assert capsys.readouterr().out.split() == ["transfers", str(one["transfers"])]


@pytest.mark.parametrize(
    ("question", "advice"),
    [
        ("SELECT nothing FROM transfers", 'unable to find column "nothing"'),
        ("SELECT * FROM transfer", "relation 'transfer' was not found (tables: "),
        ("DROP TABLE transfers", "a question begins with SELECT"),
        ("SELECT FROM WHERE", "their columns: ./run.py reference tables"),
    ],
)
def test_what_is_no_question_is_refused(
    runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    question: str,
    advice: str,
) -> None:
    assert advice in refused(["query", runs[0], question], monkeypatch, capsys)


def test_lists_are_no_csv(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "SELECT ARRAY_AGG(stream_id) AS streams FROM transfers"
    assert "streams has lists" in refused(
        ["query", runs[0], question, "--csv"], monkeypatch, capsys
    )
