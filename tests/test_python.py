"""The Python interface: the examples of docs/python.md run, and read the commands' runs."""

import subprocess
import sys
from pathlib import Path

import polars
import pytest
from command_line import FakeMachine, with_machine
from made_runs import Made
from shown import blocks

import hydra
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.runs import runner

MOST_LINES = 30
EXAMPLES = list(blocks(PROJECT / "docs" / "python.md", "python"))


def test_the_documents_scripts_are_examples_of_their_own() -> None:
    scripts = (PROJECT / "docs" / "examples").glob("*.py")
    texts = {script.name: script.read_text(encoding="utf-8") for script in scripts}
    assert {*EXAMPLES} < {*texts.values()}
    assert all(text.count("\n") <= MOST_LINES for text in texts.values())


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROJECT / "run.py"), "python", *arguments]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)


def test_many_runs_are_one_table(tmp_path: Path) -> None:
    for seed, time_s in ((1, 2.5), (2, 2.0)):
        Made(seed=seed, time_s=time_s).write(tmp_path)
    Made("pctls").write(tmp_path)
    Made("pctls", seed=2, valid=False).write(tmp_path)
    with pytest.warns(UserWarning, match="left out: .*pctls.*seed-2"):
        figures = hydra.figures(tmp_path)
    named = figures.select("scenario", "variant", "traffic", "duration_s", "seed", "made_by")
    assert named.rows() == [
        ("NoDropping", "vanilla", "bulk", 300, 1, ""),
        ("NoDropping", "vanilla", "bulk", 300, 2, ""),
        ("NoDropping", "pctls", "bulk", 300, 1, ""),
    ]
    assert figures["throughput_mb_per_s_mean"].to_list() == pytest.approx([2.0, 2.5, 2.0])
    with pytest.warns(UserWarning, match="left out"):
        transfers = hydra.rows(tmp_path, "transfers")
    one = hydra.read_run(Path(figures["directory"][0]))
    assert transfers.height == 3 * one.transfers.height
    assert transfers.columns == [
        *("made_by", "scenario", "variant", "traffic", "seed"),
        *one.transfers.columns,
    ]


def test_rows_of_older_runs_stand_with_those_of_today(tmp_path: Path) -> None:
    Made(seed=1).write(tmp_path)
    older = Made(seed=2).write(tmp_path) / "transfers.parquet"
    polars.read_parquet(older).drop("port", "sent_bytes").write_parquet(older)
    transfers = hydra.rows(tmp_path, "transfers")
    assert set(transfers["seed"]) == {1, 2}
    assert transfers.filter(seed=2)["port"].null_count() == transfers.filter(seed=2).height


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    Made(valid=False).write(tmp_path)
    with pytest.warns(UserWarning), pytest.raises(InputError, match="no run that counts"):
        hydra.figures(tmp_path)
    with pytest.raises(InputError, match="no table 'transfer'"):
        hydra.rows(tmp_path, "transfer")


def test_a_run_is_read_when_it_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_machine(monkeypatch, folder, FakeMachine)
    plan = hydra.make_plan("./Mine.toml", "vanilla", seed=3)
    made = hydra.carry_out(plan)
    assert made.directory == Path("results/Mine/vanilla/seed-3")
    monkeypatch.setattr(runner, "carry_out", None)
    assert hydra.carry_out(plan).fingerprint == made.fingerprint
    with pytest.raises(TestbedError, match="exists"):
        hydra.carry_out(plan, made.directory)


def test_the_documents_many_runs(tmp_path: Path) -> None:
    for variant in ("vanilla", "pctls"):
        Made(variant).write(tmp_path / "results")
    (tmp_path / "script.py").write_text(EXAMPLES[1], encoding="utf-8")
    done = python("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pctls" in done.stdout


@pytest.mark.experiment
def test_the_documents_runs(tmp_path: Path) -> None:
    """The last example doesn't repeat the run that the first one made."""
    for text in (EXAMPLES[0], EXAMPLES[2].replace("(1, 2, 3)", "(1,)")):
        (tmp_path / "script.py").write_text(text, encoding="utf-8")
        done = python("script.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    runs = tmp_path.glob("results/NoDropping/*/seed-*")
    assert {run.parent.name for run in runs if run.name == "seed-1"} == {"vanilla", "pctls"}
