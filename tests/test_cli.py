"""The commands as a user types them: exit statuses, one clear line for bad input, and output.

No machine runs: where a run is needed, its record is made here. Real runs are elsewhere.
"""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import (
    RUN,
    FakeMachine,
    Panicking,
    StoppedClock,
    refused,
    status_of,
    with_machine,
)
from made_record import SCENARIO
from made_runs import Made

from testbed.asked.scenario import SCENARIOS
from testbed.asked.variant_name import TOR_CONFIGS
from testbed.basics.check import Check
from testbed.basics.ending import FAILED, INTERRUPTED, PREMISE_FAILED, VALID
from testbed.basics.toml_file import names_in
from testbed.inside.traffic.models import MODELS
from testbed.machines.watching import Usage
from testbed.results import directory
from testbed.runs import runner
from testbed.setup.builds import Build


def scenario_with(right: str, wrong: str) -> None:
    assert right in SCENARIO
    Path("Mine.toml").write_text(SCENARIO.replace(right, wrong, 1), encoding="utf-8")


# Bad input: one line on stderr, status 2, nothing started, nothing left.


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ("scenario SharedDroping", 'did you mean "SharedDropping"?'),
        ("scenario One.toml", "there is no scenario file"),
        ("scenario NoDropping --variant pctl", 'did you mean "pctls"?'),
        ("scenario NoDropping --variant mine-variant.toml", 'no patch "faster.patch"'),
        ("scenario NoDropping --traffic bulky", 'did you mean "bulk"?'),
        ("scenario NoDropping --duration 0.1", "--duration 0.1 s is too short for one transfer"),
        ("scenario NoDropping --duration 90m", '--duration "90m"'),
        ("scenario NoDropping --duration=-5", "is negative"),
        ("scenario NoDropping --seed one", "argument --seed: invalid int value: 'one'"),
        ("scenario NoDropping --seed=-1", "--seed -1 is not a whole number from 0"),
        ("scenario NoDropping --machine cloud", "argument --machine: invalid choice: 'cloud'"),
        ("scenario NoDropping --tgen tgenn", '--tgen "tgenn": there is no such program'),
        ("scenario NoDropping --tgen Mine.toml", "is not executable: `chmod +x Mine.toml`"),
        ("scenario NoDropping --pcap client-exit", '--pcap "client-exit" names no link of eight'),
        ("scenario NoDropping --pcap midle-exit", 'did you mean "middle-exit"?'),
        ("shell Won", 'did you mean "Two"?'),
        ("shell One --traffic bulky", 'did you mean "bulk"?'),
        ("scenario NoDropping --sede 3", "unrecognized arguments: --sede 3"),
        ("scenario NoDropping --out Mine.toml", "the output Mine.toml exists"),
        ("scenario NoDropping --out Mine.toml/run", "Mine.toml is not a directory"),
        ("scenario", "the following arguments are required: scenario"),
        ("calibrate SharedDroping", 'did you mean "SharedDropping"?'),
        ("calibrate", "one of the arguments scenario --processor is required"),
        ("calibrate One --processor", "argument --processor: not allowed with argument scenario"),
        ("bench --duration soon", '--duration "soon"'),
        ("scenery NoDropping", "invalid choice: 'scenery'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_bad_words_on_the_command_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    advice: str,
) -> None:
    assert advice in refused(arguments.split(), monkeypatch, capsys)


@pytest.mark.parametrize(
    ("right", "wrong", "advice"),
    [
        ("topology =", "topolgy =", 'unknown key topolgy: did you mean "topology"?'),
        ("delay =", "dealy =", 'did you mean "delay"?'),
        ("100 Mbit/s", "100 ms", 'links.default.rate = "100 ms" is a time, not a rate'),
        ("100 Mbit/s", "-100 Mbit/s", 'links.default.rate = "-100 Mbit/s" is negative'),
        ("0.1 %", "100 %", 'links.middle-exit.loss = "100 %" loses every packet'),
        ("middle-exit", "guard-exit", "two_clients has no link between guard and exit"),
        ("middle-exit", "middel-exit", 'did you mean "middle-exit"?'),
        ('"10 s"', '"0.2 s"', "duration 0.2 s is too short for one transfer"),
        ('"bulk"', '"bulky"', 'did you mean "bulk"?'),
        ('"two_clients"', '"two_client"', 'did you mean "two_clients"?'),
    ],
)
def test_bad_keys_in_a_scenario(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    advice: str,
) -> None:
    scenario_with(right, wrong)
    line = refused(["scenario", "./Mine.toml"], monkeypatch, capsys)
    assert advice in line
    assert "Mine.toml: " in line


def test_an_output_directory_that_exists(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "results" / "Mine" / "vanilla" / "seed-1").mkdir(parents=True)
    line = refused(["scenario", "./Mine.toml"], monkeypatch, capsys)
    assert "the output results/Mine/vanilla/seed-1 exists: give another --out" in line


# How a run ends for the user.


class Interrupted(FakeMachine):
    """A machine during which the process gets a signal to end."""

    signal = signal.SIGTERM

    @classmethod
    def run(cls, _kernel: Path, _command: object, staging: Path, **_options: object) -> Usage:
        (staging / "half").touch()
        os.kill(os.getpid(), cls.signal)
        raise AssertionError("the signal did nothing")


def test_a_valid_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, FakeMachine)
    assert status_of(RUN) == VALID == 0
    printed = capsys.readouterr()
    assert "1.88" in printed.out
    fingerprint = json.loads((folder / "run" / "manifest.json").read_text())["fingerprint"]
    assert printed.err == f"results in run, fingerprint {fingerprint[:16]}\n"
    assert json.loads((folder / "run" / "summary.json").read_text())["valid"] is True


@pytest.mark.parametrize("kept_up", [True, False])
def test_a_run_on_the_host(folder: Path, monkeypatch: pytest.MonkeyPatch, kept_up: bool) -> None:
    check = Check(name="processor saturation", expected="", observed="", ok=kept_up)

    def run(_command: object, staging: Path, **_options: object) -> tuple[Usage, Check]:
        return FakeMachine.run(Path(), _command, staging), check

    with_machine(monkeypatch, folder, Panicking)
    tor = Build(folder.parent / "build")
    monkeypatch.setattr(runner, "check_host", lambda *_needed, **_others: None)
    monkeypatch.setattr(runner, "ensure_tors", lambda _messages, needs: dict.fromkeys(needs, tor))
    monkeypatch.setattr(runner, "run_on_host", run)
    status = status_of(["scenario", "./Mine.toml", "--seed", "3", "--machine", "host"])
    assert status == (VALID if kept_up else PREMISE_FAILED)
    run_directory = folder / "results-host" / "Mine" / "vanilla" / "seed-3"
    summary = json.loads((run_directory / "summary.json").read_text())
    assert summary["machine"] == "host"
    assert summary["valid"] is kept_up
    assert summary["checks"][-1] == check.model_dump()
    manifest = json.loads((run_directory / "manifest.json").read_text())
    assert manifest["kernel"] is None
    assert manifest["machine"]["host"]["kernel"] == platform.release()
    assert manifest["machine"]["host"].keys() >= {"processor", "governor"}


def test_a_host_without_root(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    line = refused(["scenario", "./Mine.toml", "--machine", "host"], monkeypatch, capsys)
    assert "--machine host needs root, for network namespaces: put sudo before" in line


def test_a_run_whose_premise_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, StoppedClock)
    assert status_of(RUN) == PREMISE_FAILED == 3
    assert "FAILED" in capsys.readouterr().out
    assert json.loads((folder / "run" / "summary.json").read_text())["valid"] is False


@pytest.mark.parametrize("machine", [FakeMachine, StoppedClock])
def test_json_alone_on_standard_output(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: type[FakeMachine],
) -> None:
    with_machine(monkeypatch, folder, machine)
    status = status_of([*RUN, "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "run" / "summary.json").read_text())
    assert (status == VALID) is printed["valid"]


def test_results_go_to_their_place_without_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, FakeMachine)
    assert status_of(RUN[:-2]) == VALID
    assert (folder / "results" / "Mine" / "vanilla" / "seed-3" / "summary.json").exists()


def test_a_failed_run_keeps_its_evidence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_machine(monkeypatch, folder, Panicking)
    before = set(folder.iterdir())
    assert status_of([*RUN, "--json"]) == FAILED == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("run.py: the guest's kernel panicked\n")
    assert f"what the run left is in {folder / 'run.failed-1'}" in printed.err
    assert set(folder.iterdir()) - before == {folder / "run.failed-1"}
    assert (folder / "run.failed-1" / "logs" / "kernel.log").read_text() == "Kernel panic"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    signal.signal(number, signal.SIG_DFL)  # pytest may have been started with the signal ignored
    monkeypatch.setattr(Interrupted, "signal", number)
    with_machine(monkeypatch, folder, Interrupted)
    before = set(folder.iterdir())
    assert status_of(RUN) == INTERRUPTED == 130
    assert capsys.readouterr().err == "run.py: interrupted; nothing half-done was left\n"
    assert set(folder.iterdir()) == before


def test_a_second_interruption_does_not_disturb_the_tidying(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impatient(path: Path, ignore_errors: bool) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        shutil.rmtree(path, ignore_errors=ignore_errors)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with_machine(monkeypatch, folder, Interrupted)
    before = set(folder.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(directory, "shutil", type("Shutil", (), {"rmtree": impatient}))
        assert status_of(RUN) == INTERRUPTED
    assert set(folder.iterdir()) == before


def test_what_is_ignored_stays_ignored(folder: Path) -> None:
    """Such as SIGHUP under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    status_of(["list"])
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@pytest.mark.parametrize("command", ["network SmallNetwork --json", "tables RUNS --csv"])
def test_a_reader_that_has_seen_enough_gets_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As with `| head -1`. The short output of `tables` is written only at the end."""
    Made().write(tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    words = [str(tmp_path) if word == "RUNS" else word for word in command.split()]
    reading, writing = os.pipe()
    os.close(reading)
    called = [sys.executable, "-m", "commands", *words]
    with os.fdopen(writing) as nobody:
        ended = subprocess.run(called, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (FAILED, b"")


# What the commands print.


@pytest.mark.parametrize(
    "arguments", [(), ("scenario",), ("shell",), ("calibrate",), ("bench",), ("list",), ("test",)]
)
def test_help(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert status_of([*arguments, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(" ".join(["usage: run.py", *arguments]))
    assert printed.err == ""


def test_help_names_every_command_and_status(capsys: pytest.CaptureFixture[str]) -> None:
    status_of(["--help"])
    words = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert words >= {"scenario", "shell", "calibrate", "bench", "list", "setup", "doctor", "test"}
    status_of(["scenario", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 valid, 1 failed, 2 bad input, 3 the run's premise failed" in shown


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["list"]) == 0
    printed = capsys.readouterr().out
    rows = [re.split(r"[ (]+", line.strip())[:2] for line in printed.splitlines()]
    assert " mctor(k=5, rule=uniform) " in printed
    for kind, names in (
        ("scenario", names_in(SCENARIOS)),
        ("variant", names_in(TOR_CONFIGS)),
        ("traffic", list(MODELS)),
    ):
        assert [row[1] for row in rows if row[:1] == [kind]] == names
