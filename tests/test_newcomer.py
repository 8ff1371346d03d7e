"""What a newcomer adds, each in a copy and as CONTRIBUTING.md shows it: one file, or one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from copied_project import copy_project
from made_runs import Made
from shown import blocks

from testbed.basics.toml_file import PROJECT

CONTRIBUTING = PROJECT / "CONTRIBUTING.md"
PLANNED = "from testbed.asked.plans import make_plan; plan = make_plan({scenario!r}, 'vanilla'); "
QUEUE = """
title = "Another queue"
topology = "two_clients"
traffic = "bulk"
duration = "10 s"
[links]
default = { rate = "100 Mbit/s" }
middle-exit = { queue_discipline = "fq_pie", flows = 64, target = "20 ms" }
"""
JUDGED = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from made_record import SCENARIO, raw_rows, write_record
from testbed.asked.plans import make_plan
from testbed.results.checks import computed_checks
from testbed.results.recorded import read_recorded

Path("Mine.toml").write_text(SCENARIO)
plan = make_plan("./Mine.toml", "vanilla")
write_record(Path("record"), raw_rows(plan))
for check in computed_checks(plan, read_recorded(Path("record"), plan)):
    print(check.name, check.observed, check.ok)
"""

KEPT_ELSEWHERE = """
import json
from study.folder import find_study
from study.kept import pack, unpacked
from testbed.setup.sources import sha256_of

with unpacked(find_study("hydra")) as folder:
    runs = folder / "hydra" / "SharedDropping"
    for manifest in runs.glob("*/*/manifest.json"):
        summary = manifest.with_name("summary.json")
        if manifest.parent.parent.name in ("vanilla", "pctls"):
            name = '"SharedDropping,links.middle-exit.loss=0.05%"'
            for file in (manifest, summary):
                file.write_text(file.read_text().replace('"SharedDropping"', name))
            content = json.loads(manifest.read_text())
            content["sha256"]["summary.json"] = sha256_of(summary)
            manifest.write_text(json.dumps(content))
        else:
            manifest.unlink()
            summary.unlink()
    pack(find_study({folder!r}), runs)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, which gets what a newcomer adds."""
    return copy_project(tmp_path_factory.mktemp("copy"))


def section(title: str) -> str:
    """The text of one of CONTRIBUTING.md's sections."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].partition("\n## ")[0]


def shown_for(place: str) -> str:
    """The block of CONTRIBUTING.md whose first line names a place, without that line."""
    (text,) = [text for text in blocks(CONTRIBUTING, "python") if text.startswith(f"# {place}")]
    return text.partition("\n")[2]


def python(copy: Path, *words: str) -> str:
    """Run the copy's Python code, and return its output."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_command_is_one_file(copy: Path) -> None:
    (copy / "commands" / "nodes.py").write_text(shown_for("commands/nodes.py"), encoding="utf-8")
    helped = python(copy, "-m", "commands", "--help")
    assert re.search(r"^ +nodes +Print the names of a scenario's nodes", helped, re.MULTILINE)
    assert "scenario" in python(copy, "-m", "commands", "nodes", "--help")
    printed = python(copy, "-m", "commands", "nodes", "One").splitlines()
    assert {"client1", "guard1", "server1"} <= set(printed), printed


def test_a_policy_is_one_file(copy: Path, tmp_path: Path) -> None:
    """It lies outside the project, and so does its scenario."""
    names = re.findall(r"\((docs/examples/[^)]+)\)", section("To add a policy"))
    policy, scenario = sorted(names, key=lambda name: not name.endswith(".py"))
    text = (PROJECT / policy).read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(text.replace("TwoCircuits", "Mine"), encoding="utf-8")
    text = (PROJECT / scenario).read_text(encoding="utf-8")
    mine = tmp_path / "Mine.toml"
    mine.write_text(text.replace("two_circuits.py", "mine.py"), encoding="utf-8")
    printed = python(copy, "-c", PLANNED.format(scenario=str(mine)) + "print(plan.policy.text)")
    assert "class Mine(Policy):" in printed


def test_a_queue_discipline_is_one_line_of_a_plan(copy: Path, tmp_path: Path) -> None:
    table = copy / "testbed" / "plan" / "queue_disciplines.py"
    before, start, rest = table.read_text(encoding="utf-8").partition("\nDISCIPLINES = {\n")
    line = shown_for("testbed/plan/queue_disciplines.py")
    assert line.count("\n") == 1
    table.write_text(before + start + line + rest, encoding="utf-8")
    (tmp_path / "Mine.toml").write_text(QUEUE, encoding="utf-8")
    shape = 'plan.links_between("middle", "exit")[0].there'
    printed = python(
        copy,
        "-c",
        PLANNED.format(scenario=str(tmp_path / "Mine.toml"))
        + f"shape = {shape}; print(shape.queue_discipline, shape.queue_packets,"
        " shape.queue_parameters);"
        " from testbed.inside.lab.links import _queue_options; print(_queue_options(shape))",
    )
    assert printed == (
        "fq_pie 10240 {'target_us': 20000, 'flows': 64}\n"
        "{'attrs': [('TCA_1', 10240), ('TCA_3', 20000), ('TCA_2', 64)]}\n"
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of two transfers each."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        Made(seed=seed).write(folder)
    return folder


def add(copy: Path, place: str) -> None:
    """Add the file that CONTRIBUTING.md shows."""
    assert not (copy / place).exists()
    (copy / place).write_text(shown_for(place), encoding="utf-8")


def test_a_table_is_one_file(copy: Path, runs: Path) -> None:
    words = ("-m", "commands", "tables", str(runs), "--markdown")
    before = python(copy, *words)
    add(copy, "analysis/tables/completed.py")
    after = python(copy, *words)
    # It stands after all others, which stay as they are.
    assert after.startswith(before)
    assert after.splitlines()[-1] == "| vanilla | NoDropping | 6 |"


def test_a_study_is_one_folder(copy: Path, tmp_path: Path) -> None:
    """It lies outside the project; the runs are those of twice the loss, by another name."""
    mine = tmp_path / "mine"
    mine.mkdir()
    text = section("To add a study")
    (toml,) = re.findall(r"```toml\n# study.toml\n(.*?)```", text, re.DOTALL)
    (page,) = re.findall(r"```jinja\n(.*?)```", text, re.DOTALL)
    (mine / "study.toml").write_text(toml, encoding="utf-8")
    (mine / "page.md").write_text(page, encoding="utf-8")
    (mine / "published.toml").write_text('gain = "400 %"\n', encoding="utf-8")
    dry = python(copy, "-m", "commands", "study", str(mine), "--dry-run")
    assert "Half the loss" in dry and "6 runs" in dry
    python(copy, "-c", KEPT_ELSEWHERE.format(folder=str(mine)))
    python(copy, "-m", "commands", "study", str(mine), "--kept")
    made = (mine / "README.md").read_text(encoding="utf-8")
    assert "# Does pctls still help at half the loss?" in made
    assert "pctls is better than vanilla: throughput +" in made and "the paper: 400 %" in made
    assert "| pctls | SharedDropping,links.middle-exit.loss=0.05% |" in made
    assert "Made from 6 runs" in made


def test_a_figure_is_one_file(copy: Path, runs: Path, tmp_path: Path) -> None:
    add(copy, "analysis/figures/completed.py")
    file = tmp_path / "report.html"
    python(copy, "-m", "commands", "report", str(runs), "--out", str(file))
    section = file.read_text(encoding="utf-8").split(
        '<section id="completed-transfers"><h2>Completed transfers</h2>'
    )[1]
    assert section.startswith('<figure id="completed-transfers">')
    assert (tmp_path / "completed-transfers.png").is_file()


def test_a_check_is_one_file(copy: Path) -> None:
    assert "payload that clients sent" not in python(copy, "-c", JUDGED)
    add(copy, "testbed/results/checks/uploads.py")
    assert "payload that clients sent 0 bytes True" in python(copy, "-c", JUDGED)
