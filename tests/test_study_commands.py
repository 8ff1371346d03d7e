"""What commands print for a study: carried out once, kept, and read for its page."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from command_line import refused, status_of

from study.printed import AllPrinted, CommandKeys, Printed, carry_out, read_printed
from testbed.basics.ending import BAD_INPUT, FAILED, VALID
from testbed.basics.errors import TestbedError

OF_COMMANDS = """title = "Shared links"

[[commands]]
name = "links"
command = "salsa 2021-11-30 --expected --external --directed --circuits 1000"

[study]
question = "How many?"
most_hours = 0.1
"""
PAGE_OF_COMMANDS = """{% for one in printed("links") %}
{{ one.circuits }} circuits, {{ "%.1f" | format(one.all_percent_mean) }} %
{% endfor %}
{{ origin }}
"""


WAITING_FOR_EACH_OTHER = """
import json, sys, time
from pathlib import Path
_, _, own, other, _ = sys.argv
Path(own).touch()
while not Path(other).exists():
    time.sleep(0.01)
if own == "fails":
    sys.exit("no such pair")
until = time.process_time() + (0.5 if own == "busy" else 0)
while time.process_time() < until:
    pass
print(json.dumps([own]))
"""


@pytest.fixture
def of_commands(folder: Path) -> Path:
    """A study without runs."""
    (folder / "links").mkdir()
    (folder / "links" / "study.toml").write_text(OF_COMMANDS, encoding="utf-8")
    (folder / "links" / "page.md").write_text(PAGE_OF_COMMANDS, encoding="utf-8")
    return folder / "links"


@pytest.mark.slow
def test_a_page_of_what_commands_print(
    of_commands: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["study", "./links", "--dry-run"]) == VALID
    assert "commands to carry out: ./run.py salsa 2021-11-30" in capsys.readouterr().err
    assert status_of(["study", "./links", "--keep"]) == VALID
    page = (of_commands / "README.md").read_text(encoding="utf-8")
    assert "1000 circuits, 0." in page
    assert "Made from what the command in study.toml printed" in page
    file = Path("results/links/commands/links.json")
    before = file.stat().st_mtime_ns
    assert status_of(["study", "./links"]) == VALID
    assert file.stat().st_mtime_ns == before  # not carried out again
    (of_commands / "README.md").unlink()
    assert status_of(["study", "./links", "--kept"]) == VALID
    assert (of_commands / "README.md").read_text(encoding="utf-8") == page
    text = OF_COMMANDS.replace("1000", "2000")
    (of_commands / "study.toml").write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert status_of(["study", "./links", "--kept"]) == VALID  # the results are another command's
    assert "not on the page, as there are no such runs or results" in capsys.readouterr().err


def test_a_command_is_carried_out_with_each_of_its_words(tmp_path: Path) -> None:
    keys = CommandKeys(
        name="rates", command="flashflow One", each=(("--seed 1", "--seed 2"), ("", "--guess 5"))
    )
    calls = keys.calls
    assert [one.name for one in calls] == ["rates-1", "rates-2", "rates-3", "rates-4"]
    assert calls[3].command == "flashflow One --seed 2 --guess 5"
    (tmp_path / "commands").mkdir()
    for number, call in enumerate(calls[:3]):
        text = json.dumps(asdict(Printed(call.command, None, 1.0, [{"rate": number}])))
        (tmp_path / "commands" / f"{call.name}.json").write_text(text, encoding="utf-8")
    printed = read_printed(calls, tmp_path)
    assert [one["rate"] for one in printed("rates")] == [0, 1, 2]
    assert [one.given("--seed") for one in printed.each("rates")] == ["1", "1", "2"]
    assert printed.each("rates")[0].given("--guess") is None
    assert printed.lacking() == "Not carried out yet are 1 of its commands (rates: 1 of 4)."


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ('name = "links"', 'name = "Links"', "links/study.toml: commands[1]: name"),
        ("[study]", "each = [[]]\n[study]", "links/study.toml: commands[1]: each"),
        ("command = ", "commands = ", 'unknown key commands: did you mean "command"?'),
        ("[study]", '[[commands]]\nname = "links"\ncommand = "x"\n[study]', "is another's"),
    ],
)
def test_a_bad_command(
    of_commands: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    advice: str,
) -> None:
    file = of_commands / "study.toml"
    file.write_text(OF_COMMANDS.replace(right, wrong), encoding="utf-8")
    assert advice in refused(["study", "./links"], monkeypatch, capsys)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one command, which waits until another with other words has begun."""
    (tmp_path / "commands.py").write_text(WAITING_FOR_EACH_OTHER, encoding="utf-8")
    monkeypatch.setattr("study.printed.PROJECT", tmp_path)
    return tmp_path


def carried_out(project: Path, *words: str) -> AllPrinted:
    """What the project's command prints with some words and with others, both at once."""
    wanted = CommandKeys(name="pair", command="pair", each=(words,)).calls
    return carry_out(wanted, project / "results", lambda _line: None, at_once=2)


def test_commands_go_on_at_the_same_time_and_each_has_its_own_time(project: Path) -> None:
    """One after the other they would never end."""
    printed = carried_out(project, "busy idle", "idle busy")
    busy, idle = printed.each("pair")
    assert (busy.results, idle.results) == (["busy"], ["idle"])
    assert busy.processor_s >= idle.processor_s + 0.3


def test_the_other_commands_end_with_one_that_fails(project: Path) -> None:
    with pytest.raises(TestbedError, match="pair fails x: no such pair"):
        carried_out(project, "fails x", "x never")
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("salsa nowhere", "./run.py salsa nowhere --expected"),
        ("python -V #", "prints no JSON"),
    ],
)
@pytest.mark.usefixtures("of_commands")
def test_a_command_that_fails_is_named(
    capsys: pytest.CaptureFixture[str], wrong: str, advice: str
) -> None:
    file = Path("links/study.toml")
    file.write_text(OF_COMMANDS.replace("salsa 2021-11-30", wrong), encoding="utf-8")
    assert status_of(["study", "./links"]) in (FAILED, BAD_INPUT)
    assert advice in capsys.readouterr().err
