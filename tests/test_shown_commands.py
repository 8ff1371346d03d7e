"""Every command that a document shows is carried out, block by block, as its reader would.

What is shown stands in `shown`, how it is made short in `shorter_run`, what is there before in
`shown_inputs`, and which lines other tests carry out, or none can, in `shown_elsewhere`.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import shorter_run
import shown
import shown_inputs
from machine import run_scenario
from shown import CALL, DOCUMENTS, Shown
from shown_elsewhere import ELSEWHERE, Elsewhere
from shown_inputs import RealRun

from commands.__main__ import command_files, parser
from testbed.asked.plans import make_plan
from testbed.basics.cache import cache_folder
from testbed.basics.toml_file import PROJECT
from testbed.runs.repeats import paired_plans
from testbed.setup import builds

PATIENCE_S = 1500.0
TESTS = PROJECT / "tests"
LOGIN = ("USER", "LOGNAME", "LANG")
NEED_BUILDS = re.compile(r"\./run\.py (setup|doctor|test|options)\b")

pytestmark = pytest.mark.timeout(1800)


# The folder, and what is done in it.


def checkout(folder: Path) -> Path:
    """A folder like a clone of the project, whose `run.py` has less to do."""
    folder.mkdir(parents=True)
    for path in PROJECT.iterdir():
        if path.is_dir() and not path.name.startswith((".", "results")):
            shutil.copytree(path, folder / path.name)
        elif path.is_file():
            shutil.copy2(path, folder)
    (folder / "run.py").rename(shorter_run.real(folder))
    text = Path(shorter_run.__file__).read_text(encoding="utf-8")
    (folder / "run.py").write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    (folder / "run.py").chmod(0o755)
    for name, content in shown.toml_blocks():
        if not (folder / name).exists():
            (folder / name).write_text(content, encoding="utf-8")
    for patch in (PROJECT / "docs" / "examples").glob("*.patch"):
        shutil.copy(patch, folder)
    return folder


def login(home: Path, pool: Path) -> dict[str, str]:
    """The variables that a login gives, and where the cache is; `sudo` does what it is given."""
    programs, cached = home / "bin", home / ".cache"
    for made in (programs, cached):
        made.mkdir(parents=True)
    (programs / "sudo").symlink_to("/usr/bin/env")
    (cached / "hydra-testbed").symlink_to(cache_folder())
    return {name: os.environ[name] for name in LOGIN if name in os.environ} | {
        "HOME": str(home),
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HYDRA_CACHE": str(cache_folder()),
        shorter_run.POOL: str(pool),
    }


def carry_out(one: Shown, folder: Path, variables: dict[str, str]) -> None:
    """Let a shell carry out what is shown, as it stands; it must end well, and call all of it.

    Each call is told which one of the text it is.
    """
    numbers = iter(range(len(one.commands)))
    text = re.sub(
        re.escape(CALL), lambda _: f"{shorter_run.NUMBER}={next(numbers)} {CALL}", one.text
    )
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{one.text}\n{done.stdout}"
    called = {call["number"] for call in shorter_run.calls(folder) if call["carried_out"]}
    assert called == set(map(str, range(len(one.commands))))


def check_planned(words: list[str]) -> None:
    """See that a call, as long as it was shown, is understood, and its runs can be planned."""
    assert shown.understood([CALL, *words])
    if "--help" in words:
        return
    given = parser(words).parse_args(words)
    if "network.bandwidth_file" in dict(getattr(given, "set", ())):
        return  # an earlier line of its block makes the file
    options = ("duration", "traffic")
    if words[0] == "scenario":
        said = {name: getattr(given, name) for name in options}
        assert make_plan(given.scenario, given.variant, changes=dict(given.set), **said)
    if words[0] == "compare":
        said = {name: getattr(given, name) for name in options}
        variants = [given.first, *given.others]
        key, values = given.across or ("", [])
        across = [{key: value} for value in values] or [{}]
        assert paired_plans(
            given.scenario, variants, 1, changes=dict(given.set), across=across, **said
        )


# Carried out, as whoever runs the tests; by .ci/run that is an ordinary user.


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that were made already."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def make_real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RealRun], Path]:
    """Makes a real run, or knows where it is already."""

    @cache
    def make(run: RealRun) -> Path:
        folder = tmp_path_factory.mktemp("real")
        run_scenario(folder, run.scenario, run.variant, run.duration_s, *run.options)
        return folder / "run"

    return make


def parameters() -> list[object]:
    """All that is carried out here; what needs a machine is an experiment, all else is slow."""
    found: list[object] = []
    for one in shown.carried_out():
        runs = [path for each in shown_inputs.inputs_of(one) for path in each.runs]
        mark = pytest.mark.experiment if one.starts_a_machine or runs else pytest.mark.slow
        found.append(pytest.param(one, marks=mark, id=one.name))
    return found


@pytest.mark.parametrize("one", parameters())
def test_what_is_shown(
    one: Shown,
    tmp_path: Path,
    pool: Path,
    make_real: Callable[[RealRun], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if NEED_BUILDS.search(one.text) and not is_set_up():
        pytest.skip("not set up here: run ./run.py setup first")
    if "jq " in one.text and shutil.which("jq") is None:
        pytest.skip("no jq here: apt-get install jq")
    folder = checkout(tmp_path / "clone")
    for each in shown_inputs.inputs_of(one):
        if each.put:
            getattr(shown_inputs, each.put)(folder)
        for place, run in each.runs.items():
            shutil.copytree(make_real(run), folder / place)
    carry_out(one, folder, login(tmp_path / "home", pool))
    with monkeypatch.context() as there:
        there.chdir(folder)
        for call in shorter_run.calls(folder):
            check_planned(call["words"])
    shutil.rmtree(folder)  # it is not needed any more, and some are large


def is_set_up() -> bool:
    """Whether there are builds."""
    return {"tor", "linux"} <= {build.metadata["name"] for build in builds.all_finished()}


# That nothing is left out.


def test_the_commands_that_are_shown_and_those_that_are_tested_are_the_same() -> None:
    """Whoever carries them out: what is shown with sudo may be called without it somewhere."""
    tested = {line for one in shown.carried_out() for line in shown.lines(one.text)}
    elsewhere = {line for one in ELSEWHERE for line in one.lines}
    assert not tested & elsewhere
    assert without_sudo(shown.all_lines()) == without_sudo(tested | elsewhere)


def without_sudo(lines: set[str]) -> set[str]:
    return {line.removeprefix("sudo ") for line in lines}


def carried_out_words() -> list[list[str]]:
    """What `run.py` is told by each command that is carried out here."""
    commands = [shlex.split(command) for one in shown.carried_out() for command in one.commands]
    return [words[words.index(CALL) + 1 :] for words in commands]


def test_every_command_is_shown() -> None:
    """Each of the command line's has a document, and so a test."""
    assert {words[0] for words in carried_out_words()} == set(command_files())


MAKE_NO_RUNS = (["study"], ["study", "--all", "--dry-run"], ["study", "--all", "--kept"])
"""What has no name of a study, and nothing to be made shorter."""


def test_every_command_can_be_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any of them is carried out, which takes a while; one without its name can't be."""
    monkeypatch.setattr(shorter_run, "FOLDER", PROJECT)
    for words in carried_out_words():
        makes = words[0] in shorter_run.MADE and words not in MAKE_NO_RUNS
        assert len(shorter_run.files_of(words)) >= makes, words


def test_what_is_shown_in_part_begins_with_a_command() -> None:
    for document in DOCUMENTS:
        assert CALL not in shown.elsewhere_in(document), document.name
        for command in shown.inline(document):
            word = command.partition(f"{CALL} ")[2].split()[0]
            assert word in command_files() or word in ("…", "COMMAND"), (
                f"{document.name}: {command}"
            )


@pytest.mark.parametrize(
    ("command", "whole"),
    [
        ("./run.py list", True),
        ("time ./run.py salsa --seeds 2", True),
        ("srun './run.py setup'", True),
        ("./run.py tables --help", True),
        ("./run.py tables", False),
        ("./run.py verify RUN", False),
        ("./run.py scenario path/Mine.toml", False),
        ("./run.py scenario One --variant …", False),
    ],
)
def test_what_is_a_whole_command(command: str, whole: bool) -> None:
    assert shown.is_whole(command) == whole


def test_a_line_is_told_from_its_comment_and_its_next() -> None:
    assert shown.lines("one  # why\n# what\nfor a in 1 \\\n    2; do\n") == [
        *("one", "for a in 1 2; do")
    ]


@pytest.mark.parametrize("one", [one for one in ELSEWHERE if one.test], ids=lambda one: one.test)
def test_the_tests_elsewhere_take_their_lines_from_the_table(one: Elsewhere) -> None:
    file, name = one.test.split("::")
    source = (TESTS / file).read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    (function,) = [node for node in functions if node.name == name]
    parts = [ast.unparse(part) for part in (*function.decorator_list, *function.body)]
    assert any(f"lines_of('{one.test}')" in part for part in parts)


def test_each_reason_and_each_input_is_needed() -> None:
    assert all(one.why for one in ELSEWHERE)
    read = [each for one in shown.carried_out() for each in shown_inputs.inputs_of(one)]
    assert all(each in read for each in shown_inputs.INPUTS)


@pytest.mark.parametrize(
    ("rules", "files"),
    [
        (shorter_run.SCENARIO, "scenarios/*.toml"),
        (shorter_run.BATCH, "[bs]*/**/*.toml"),
        (shorter_run.CALIBRATION, "testbed/inside/calibration/*.py"),
    ],
)
def test_each_rule_changes_something(rules: dict[str, str], files: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in PROJECT.glob(files)]
    for pattern in rules:
        assert any(re.search(pattern, text, re.MULTILINE) for text in texts), pattern
