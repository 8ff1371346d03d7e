"""Faults in the machine: a run is valid, invalid with the reason named, or it fails.

docs/reliability.md is the table of all faults and their tests.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from batch_stand_in import BATCH
from command_line import status_of
from faults import LISTENERS, RUN, RUN_WITHIN_S, failed_checks, left_in, machines_below, reports
from machine import run_inside, with_fault
from waiting import wait_for

from testbed.basics.ending import FAILED, PREMISE_FAILED, VALID
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.results import read_run

STREAMS = """
[[competing]]
from = "exit"
to = "middle"
streams = 2
"""


@pytest.mark.experiment
def test_a_relay_is_killed_while_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the exit, whose queues are recorded: a request meets a Tor that has ended."""
    fault = 'come_to("measuring", 2.0)\nprogram("/exit1/torrc").kill()'
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == FAILED
    error = "exit1: Tor ended by itself (status -9): see logs/\n"
    assert capsys.readouterr().err == (
        f"run.py: {error}what the run left is in {listeners / 'run.failed-1'}\n"
    )
    assert left_in(listeners) == ["run.failed-1"]
    assert (listeners / "run.failed-1" / "error.txt").read_text() == error
    assert (listeners / "run.failed-1" / "logs" / "tor-exit1.log").exists()


@pytest.mark.experiment
def test_a_circuit_is_closed_while_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later streams find no circuit, and the run goes on without them."""
    fault = """
from stem.control import Controller
come_to("measuring", 2.0)
with Controller.from_socket_file("/run/lab/client1/control") as client:
    client.authenticate()
    for circuit in client.get_circuits():
        client.close_circuit(circuit.id)
"""
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == PREMISE_FAILED
    failed = failed_checks(listeners / "run")
    assert re.fullmatch(r"client1: CLOSED \d+", failed["circuits that changed"])
    assert failed["middle1 to exit1 after measuring"].startswith("1 connection, 1 circuit,")


@pytest.mark.experiment
def test_the_authority_is_killed_after_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = 'come_to("checking the premise")\nprogram("/authority1/torrc").kill()'
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == PREMISE_FAILED
    assert failed_checks(listeners / "run") == {"Tors that ended": "authority1"}


@pytest.mark.experiment
def test_generators_and_streams_are_killed_while_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listeners / "Listeners.toml").write_text(LISTENERS + STREAMS, encoding="utf-8")
    fault = """
come_to("measuring", 1.0)
program("tgen --nodes /run/lab/clients.tgen").kill()
come_to("measuring", 2.0)
program("iperf3 -c").kill()
come_to("measuring", 3.0)
program("tgen --nodes /run/lab/servers.tgen").kill()
"""
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == PREMISE_FAILED
    failed = failed_checks(listeners / "run")
    (stream,) = [name for name in failed if name.startswith("competing streams")]
    ended = failed["generators that ended"].split(", ")
    assert [name.rpartition("-")[0] for name in ended] == ["tgen", "iperf3-exit1", "tgen"]
    assert {"tgen-servers", "tgen-clients"} < set(ended)
    assert failed[stream].startswith("at least ")
    assert "client1" in failed["clients without a completed transfer"]


@pytest.mark.experiment
def test_a_client_never_bootstraps(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its Tor is suspended just after its start: it neither ends nor answers."""
    fault = 'program("/client2/torrc")\nprogram("/client1/torrc").suspend()'
    with_fault(fault, listeners / "faulty.py", monkeypatch, beside="testbed.inside.tor.bootstrap")
    # No other network is like it, so the cache has none.
    (listeners / "mine.toml").write_text(
        'title = "Mine"\nextends = "vanilla"\n[consensus]\ncellq_high = 51\n', encoding="utf-8"
    )
    assert status_of([*RUN, "--variant", "mine.toml"]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith("run.py: waiting for descriptors: after 300 s still missing: client1's")
    (logs,) = re.findall(r"its logs are in (.*)", error)
    assert (Path(logs) / "tor-client1.log").exists()


@pytest.mark.experiment
def test_a_client_hangs_before_its_circuit_is_built(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = 'program("/client2/torrc")\nprogram("/client1/torrc").suspend()'
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == FAILED
    error = capsys.readouterr().err
    # It hangs before it is asked for the circuit, or after that.
    assert error.startswith(
        (
            "run.py: client1: Tor hangs: no answer on its control port for 60 s",
            "run.py: building circuits: after 60 s still missing: client1's circuit",
        )
    )
    assert left_in(listeners) == ["run.failed-1"]


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NoSuchOption = 1", "Unknown option 'NoSuchOption'"),
        ('KISTSchedRunInterval = "20 furlongs"', "Unknown unit in 20 furlongs"),
    ],
)
def test_a_tor_that_does_not_know_its_configuration(
    listeners: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    """Tor ends before its log is open."""
    (listeners / "mine.toml").write_text(
        f'title = "Mine"\nextends = "vanilla"\n[torrc.relay]\n{line}\n', encoding="utf-8"
    )
    assert status_of([*RUN, "--variant", "mine.toml"]) == FAILED
    error, *told = capsys.readouterr().err.splitlines()
    assert error == "run.py: guard1: Tor ended at once (status 1)"
    assert words in told[0]


@pytest.mark.experiment
def test_somebody_sets_the_clock_by_which_a_run_goes(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This can happen on the host machine; in the virtual one only the guest's root could do it."""
    fault = """
come_to("measuring", 2.0)
time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
"""
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == FAILED
    assert capsys.readouterr().err.startswith("run.py: the clock was set by -3600.0 s during the")
    assert left_in(listeners) == ["run.failed-1"]


@pytest.mark.experiment
def test_a_program_in_the_machine_takes_all_memory(tmp_path: Path) -> None:
    program = "taken = []\nwhile True:\n    taken.append(bytearray(10_000_000))\n"
    with pytest.raises(TestbedError, match=r"^the guest ran out of memory\n"):
        run_inside(program, tmp_path / "run", memory_mb=128)


@pytest.mark.experiment
@pytest.mark.timeout(2 * RUN_WITHIN_S)
def test_the_machine_is_killed_in_a_batch_and_the_run_is_made_again(listeners: Path) -> None:
    text = BATCH.replace("Mine", "Listeners").replace('"vanilla", ', "").replace("1, 2", "1")
    (listeners / "mine.toml").write_text(text, encoding="utf-8")
    seed = listeners / "results/mine/Listeners/pctls/seed-1"
    with subprocess.Popen(
        [sys.executable, "-m", "commands", "batch", "./mine.toml", "--cores", "1"],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as batch:
        try:
            wait_for(lambda: reports(seed, "measuring"), "measuring", RUN_WITHIN_S)
            (machine,) = machines_below(batch.pid)
            machine.kill()
            output, errors = batch.communicate(timeout=RUN_WITHIN_S)
        finally:
            batch.terminate()
    assert batch.returncode == VALID, errors
    assert "failed, try 1 of 2: Listeners, audio, pctls, seed 1: the guest's kernel was" in errors
    assert "1 runs: 1 valid, 0 invalid, 0 failed" in output
    assert read_run(seed).summary.valid
    assert sorted(path.name for path in seed.parent.iterdir()) == ["seed-1", "seed-1.failed-1"]
    error = (seed.with_name("seed-1.failed-1") / "error.txt").read_text()
    assert error.startswith("the guest's kernel was killed by SIGKILL\n")


@pytest.mark.experiment
def test_a_low_limit_of_open_files(tmp_path: Path) -> None:
    """A machine has an open file for each of its guest's processes; it raises the soft limit."""
    program = """
import subprocess
started = [subprocess.Popen(["sleep", "100"]) for _ in range(300)]
print("running", sum(process.poll() is None for process in started))
for process in started:
    process.kill()
"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 400
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        assert "running 300" in run_inside(program, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
