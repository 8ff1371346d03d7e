"""Faults, injected: each ends in a valid run, in one that doesn't count and says why, or a retry.

docs/reliability.md is the table of all of them; interruptions are in test_interruption.
"""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import batch_stand_in
import psutil
import pytest
from batch_stand_in import (
    ALL,
    BATCH,
    IS_SLOW,
    MINE,
    begun,
    behave,
    run_batch,
    running_batch,
)
from commands import status_of
from machine import run_inside, with_fault
from test_interruption import error_of
from waiting import PATIENCE_S, wait_for

from testbed import cli
from testbed.errors import TestbedError
from testbed.machines import virtual
from testbed.results import read_run
from testbed.toml_file import PROJECT

LISTENERS = """
title = "Two listeners"
description = "As little traffic as there can be: what is measured here is not what matters."
topology = "two_clients"
traffic = "audio"
duration = "5 s"

[links]
default = { rate = "5 Mbit/s" }
guard-middle = { delay = "5 ms" }
"""
STREAMS = """
[[competing]]
from = "exit"
to = "middle"
streams = 2
"""
RUN = ("scenario", "Listeners.toml", "--out", "run")
RUN_WITHIN_S = 500.0


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a short scenario in it."""
    (tmp_path / "Listeners.toml").write_text(LISTENERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failed_checks(run: Path) -> dict[str, str]:
    """What was observed, by the names of the checks that don't hold; the run must say so."""
    summary = read_run(run).summary
    assert not summary.valid
    return {check.name: check.observed for check in summary.checks if not check.ok}


def left_in(folder: Path) -> list[str]:
    """The names of runs and of what runs left, hidden ones too."""
    return sorted(path.name for path in folder.iterdir() if "run" in path.name)


# In the machine.


@pytest.mark.experiment
def test_a_relay_is_killed_while_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit, whose queues are recorded: it is asked for something after its end."""
    fault = 'come_to("measuring", 2.0)\nprogram("/exit1/torrc").kill()'
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == cli.FAILED
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
    """The streams that come after its end find no circuit, and the run goes on without them."""
    fault = """
from stem.control import Controller
come_to("measuring", 2.0)
with Controller.from_socket_file("/run/lab/client1/control") as client:
    client.authenticate()
    for circuit in client.get_circuits():
        client.close_circuit(circuit.id)
"""
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == cli.PREMISE_FAILED
    failed = failed_checks(listeners / "run")
    assert re.fullmatch(r"client1: CLOSED \d+", failed["circuits that changed"])
    assert failed["shared link after measuring"].startswith("1 connection, 1 circuit,")


@pytest.mark.experiment
def test_the_authority_is_killed_after_measuring(
    listeners: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = 'come_to("checking the premise")\nprogram("/authority1/torrc").kill()'
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == cli.PREMISE_FAILED
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
    assert status_of(RUN) == cli.PREMISE_FAILED
    failed = failed_checks(listeners / "run")
    (stream,) = [name for name in failed if name.startswith("competing streams")]
    ended = failed["generators that ended"].split(", ")
    assert [name.rpartition("-")[0] for name in ended] == ["tgen", "tgen", "iperf3-exit1"]
    assert {"tgen-servers", "tgen-clients"} < set(ended)
    assert failed[stream].startswith("at least ")
    assert "client1" in failed["clients without a completed transfer"]


@pytest.mark.experiment
def test_a_client_never_bootstraps(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its Tor stops when it has hardly begun: it neither ends nor answers any more."""
    fault = 'program("/client2/torrc")\nprogram("/client1/torrc").suspend()'
    with_fault(fault, listeners / "faulty.py", monkeypatch, beside="testbed.tor.bootstrap")
    # No other network is like it, so that the cache has none.
    (listeners / "mine.toml").write_text(
        'title = "Mine"\nextends = "vanilla"\n[consensus]\ncellq_high = 51\n', encoding="utf-8"
    )
    assert status_of([*RUN, "--variant", "mine.toml"]) == cli.FAILED
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
    assert status_of(RUN) == cli.FAILED
    error = capsys.readouterr().err
    assert error.startswith(
        "run.py: building circuits: after 60 s still missing: client1's circuit"
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
    """It ends before its log is open."""
    (listeners / "mine.toml").write_text(
        f'title = "Mine"\nextends = "vanilla"\n[torrc.relay]\n{line}\n', encoding="utf-8"
    )
    assert status_of([*RUN, "--variant", "mine.toml"]) == cli.FAILED
    error, *told = capsys.readouterr().err.splitlines()
    assert error == "run.py: guard1: Tor ended at once (status 1)"
    assert words in told[0]


@pytest.mark.experiment
def test_somebody_sets_the_clock_by_which_a_run_goes(
    listeners: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As can happen on the host machine; in the virtual one only root inside could."""
    fault = """
come_to("measuring", 2.0)
time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
"""
    with_fault(fault, listeners / "faulty.py", monkeypatch)
    assert status_of(RUN) == cli.FAILED
    assert capsys.readouterr().err.startswith("run.py: the clock was set by -3600.0 s during the")
    assert left_in(listeners) == ["run.failed-1"]


@pytest.mark.experiment
def test_a_program_in_the_machine_takes_all_memory(tmp_path: Path) -> None:
    program = "taken = []\nwhile True:\n    taken.append(bytearray(10_000_000))\n"
    with pytest.raises(TestbedError, match=r"^the guest ran out of memory\n"):
        run_inside(program, tmp_path / "run", memory_mb=128)


# The machine itself.


@pytest.mark.experiment
@pytest.mark.timeout(2 * RUN_WITHIN_S)
def test_the_machine_is_killed_in_a_batch_and_the_run_is_made_again(listeners: Path) -> None:
    text = BATCH.replace("Mine", "Listeners").replace('"vanilla", ', "").replace("1, 2", "1")
    (listeners / "mine.toml").write_text(text, encoding="utf-8")
    seed = listeners / "results/mine/Listeners/pctls/seed-1"
    with subprocess.Popen(
        [sys.executable, "-m", "testbed.cli", "batch", "./mine.toml", "--cores", "1"],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as batch:
        try:
            wait_for(lambda: tells(seed, "measuring"), "measuring", RUN_WITHIN_S)
            (machine,) = machines_below(batch.pid)
            machine.kill()
            output, errors = batch.communicate(timeout=RUN_WITHIN_S)
        finally:
            batch.terminate()
    assert batch.returncode == cli.VALID, errors
    assert "failed, try 1 of 2: Listeners, audio, pctls, seed 1: the guest's kernel was" in errors
    assert "1 runs: 1 valid, 0 invalid, 0 failed" in output
    assert read_run(seed).summary.valid
    assert sorted(path.name for path in seed.parent.iterdir()) == ["seed-1", "seed-1.failed-1"]
    error = (seed.with_name("seed-1.failed-1") / "error.txt").read_text()
    assert error.startswith("the guest's kernel was killed by SIGKILL\n")


def tells(destination: Path, step: str) -> bool:
    """Whether a run under way has told of a step."""
    files = destination.parent.glob(f".{destination.name}.partial-*/raw/progress.jsonl")
    return any(f'"{step}"' in file.read_text() for file in files)


def machines_below(process: int) -> list[psutil.Process]:
    """The kernels that a process and its children have started."""
    children = psutil.Process(process).children(recursive=True)
    return [child for child in children if child.name() == "linux" and child.parent() != child]


def test_who_waits_for_a_processor_does_not_hang() -> None:
    """Two that compute share a core: each has it for half of the time, and wants it always."""
    core = min(os.sched_getaffinity(0))
    loop = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"]
    busy = [psutil.Popen(loop), psutil.Popen(loop)]
    try:
        time.sleep(1.0)
        before = [(virtual.wanted_s(one), virtual.cpu_s(one)) for one in busy]
        time.sleep(2.0)
        wanted, had = zip(
            *(
                (virtual.wanted_s(one) - wanted_s, virtual.cpu_s(one) - cpu_s)
                for one, (wanted_s, cpu_s) in zip(busy, before, strict=True)
            ),
            strict=True,
        )
        assert min(wanted) > 1.5
        assert sum(had) < 2.2
        busy[0].suspend()
        stopped_s = virtual.wanted_s(busy[0])
        time.sleep(0.5)
        assert virtual.wanted_s(busy[0]) == pytest.approx(stopped_s, abs=0.1)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def test_a_machine_whose_clock_goes_on_while_its_command_hangs(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "HANG_VIRTUAL_S", 100.0)
    row = '{"time_s": 1800000NUMBER, "step": "measuring", "done_s": 1.0, "of_s": 9.0}'
    commands = (
        "mkdir raw; for number in 000 050 100 150; do"
        f" echo '{row}' | sed s/NUMBER/$number/ >> raw/progress.jsonl; done; exec sleep 600"
    )
    error = error_of(stand_in(commands), tmp_path / "staging")
    assert error.startswith(
        'the guest hangs: its clock has gone on for 150 s in the step "measuring"\n'
    )


def test_no_room_for_the_machines_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "SHARED_MEMORY", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert virtual._memory_folder(1) == str(tmp_path)
    with pytest.raises(TestbedError, match=f"none or {tmp_path}: set TMPDIR to a folder"):
        virtual._memory_folder(10**9)


def test_the_machines_memory_is_shared_memory_whatever_tmpdir_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    assert virtual._memory_folder(1) == str(tmp_path)


@pytest.mark.experiment
def test_a_low_limit_of_open_files(tmp_path: Path) -> None:
    """Of a machine's processes each is an open file to the host: it takes what is permitted."""
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


# The host's clock, and a host that sleeps.

STEPPED_CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* By how many seconds the wall clock was set so far: what the file $CLOCK_STEP has. */
static long step(void)
{
    char text[32] = "";
    int file = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += step();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
"""
"""The host's wall clock as it would be had somebody set it, and its other clocks as they are."""

# run.py, with a kernel that sees the same clock: it is given no variables of ours.
RUN_WITH_KERNEL = """
import sys
from pathlib import Path
from testbed import cli, guest
plain = guest.run_in_machine
def run(kernel, *arguments, **options):
    wrapper = Path(sys.argv[1])
    wrapper.write_text(sys.argv[2].format(kernel=kernel))
    wrapper.chmod(0o755)
    return plain(wrapper, *arguments, **options)
guest.run_in_machine = run
sys.exit(cli.main(sys.argv[3:]))
"""


@pytest.fixture
def stepped_clock(tmp_path: Path) -> dict[str, str]:
    """Variables for programs whose wall clock is that of the host and what $CLOCK_STEP says."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(STEPPED_CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    (tmp_path / "step").write_text("0")
    return {"LD_PRELOAD": str(library), "CLOCK_STEP": str(tmp_path / "step")}


def set_clock(variables: dict[str, str], by_s: int) -> None:
    """Set it for all who go by it: in one step, so that nobody reads half a number."""
    step = Path(variables["CLOCK_STEP"])
    step.with_suffix(".new").write_text(str(by_s))
    step.with_suffix(".new").rename(step)


@pytest.mark.experiment
def test_the_hosts_clock_is_set_and_the_machine_is_stopped_for_a_while(
    listeners: Path, stepped_clock: dict[str, str]
) -> None:
    kernel = '#!/bin/sh\n{exports}\nexec {{kernel}} "$@"\n'.format(
        exports="\n".join(f"export {name}={value}" for name, value in stepped_clock.items())
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)} | stepped_clock
    seen = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env=environment | {"CLOCK_STEP": "/dev/null"},
        capture_output=True,
        check=True,
    )
    assert abs(float(seen.stdout) - time.time()) < 3600
    start_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", RUN_WITH_KERNEL, str(listeners / "linux"), kernel, *RUN],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_for(lambda: tells(listeners / "run", "starting Tor"), "Tor", RUN_WITHIN_S)
            set_clock(stepped_clock, -6 * 3600)
            wait_for(lambda: tells(listeners / "run", "measuring"), "measuring", RUN_WITHIN_S)
            set_clock(stepped_clock, 12 * 3600)
            (machine,) = machines_below(process.pid)
            machine.suspend()
            time.sleep(3)
            machine.resume()
            errors = process.communicate(timeout=RUN_WITHIN_S)[1]
        finally:
            process.kill()
    took_s = time.monotonic() - start_s
    assert process.returncode == cli.VALID, errors
    run = read_run(listeners / "run")
    assert 3 < run.summary.cost.wall_s < took_s
    assert 10 < run.summary.cost.virtual_s < 600
    # What the host's clock said is told, and nothing is computed of it.
    hours = int(run.manifest["end"][11:13]) - int(run.manifest["start"][11:13])
    assert hours % 24 in (12, 13)


def test_the_hosts_clock_is_set_during_a_batch(
    mine: Path, stepped_clock: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stepped_clock.items():
        monkeypatch.setenv(name, value)
    behave({"pctls 1": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:2], "the slow run")
        set_clock(stepped_clock, -6 * 3600)
        behave({})
        (job,) = jobs_below(process.pid)
        job.kill()
        wait_for(lambda: len(begun()) > 3, "another run")
        set_clock(stepped_clock, 12 * 3600)
        errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == cli.VALID, errors
    assert len(begun()) == 5
    assert "(6 h" not in errors


def jobs_below(process: int) -> list[psutil.Process]:
    """The jobs of a batch: they are given the folder of a note."""
    children = psutil.Process(process).children(recursive=True)
    return [child for child in children if "/.batch/notes/" in child.cmdline()[-1]]


# The disk.

IN_SMALL_FOLDER = (
    *("unshare", "--map-root-user", "--mount", "sh", "-ec"),
    'mount -t tmpfs -o "size=$0" small "$1"; shift; exec "$@"',
)
"""With a size and a folder, which are mounted for one command alone, and that command."""

# `run.py`, with the stand-in's machine.
STAND_IN_RUN = """
import sys
import pytest, batch_stand_in
from testbed import cli
batch_stand_in.put_in_place(pytest.MonkeyPatch())
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def mounts(tmp_path: Path) -> None:
    """Skip where a user may not make namespaces in which a tmpfs can be mounted."""
    tried = subprocess.run([*IN_SMALL_FOLDER, "64k", tmp_path, "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"no mount in a user namespace: {tried.stderr.decode().strip()}")


def small_folder(size: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees `small`, in the working directory, as a disk of that size."""
    Path("small").mkdir(exist_ok=True)
    return subprocess.run(
        [*IN_SMALL_FOLDER, size, "small", *command],
        env=os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
    )


@pytest.mark.usefixtures("mounts")
@pytest.mark.experiment
def test_the_disk_is_full_while_measuring(listeners: Path) -> None:
    fault = """
come_to("measuring", 2.0)
with (STAGING / "others").open("wb", buffering=0) as file:
    while True:
        file.write(bytes(4096))
"""
    program = f"""
import sys
from pathlib import Path
import pytest
from machine import with_fault
from testbed import cli
with_fault({fault!r}, Path("faulty.py"), pytest.MonkeyPatch())
status = cli.main(["scenario", "Listeners.toml", "--out", "small/run"])
print([path.name for path in Path("small").iterdir()])
sys.exit(status)
"""
    ended = small_folder("2m", sys.executable, "-c", program)
    assert ended.returncode == cli.FAILED, ended.stderr
    assert ended.stderr.startswith("run.py: the experiment could not write to ")
    assert ended.stderr.splitlines()[0].endswith("/small: is the disk full?")
    # What there is can be kept if its error finds room.
    assert ended.stdout in ("[]\n", "['run.failed-1']\n")


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize(("size", "status"), [("40k", 1), ("100k", 1), ("2m", 0)])
def test_the_disk_is_full_while_results_are_written(mine: Path, size: str, status: int) -> None:
    command = shlex.join(
        [sys.executable, "-c", STAND_IN_RUN, "scenario", "./Mine.toml", "--out", "small/run"]
    )
    ended = small_folder(size, "sh", "-c", f"{command}; echo status $?; ls -A small")
    assert "Traceback" not in ended.stderr
    _, _, told = ended.stdout.partition("status ")
    if status == cli.VALID:
        assert told == "0\nrun\n", ended.stderr
    else:
        assert told == "1\n", ended.stderr
        assert "No space left on device" in ended.stderr


@pytest.mark.usefixtures("mounts")
def test_a_batchs_folder_is_read_only(mine: Path, no_report: None) -> None:
    """Nothing can be moved aside there; what it has stays and counts."""
    assert run_batch() == cli.VALID
    shutil.copytree("results/mine", "kept")
    damage(MINE / "vanilla/seed-2/transfers.parquet", 100)
    before = sorted(Path("results").rglob("*"))
    ended = subprocess.run(
        [
            *("unshare", "--map-root-user", "--mount", "sh", "-ec"),
            'mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"; exec "$@"',
            *("results/mine/Mine", sys.executable, batch_stand_in.__file__, "batch", "./mine.toml"),
        ],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == cli.FAILED
    assert ended.stderr == f"run.py: {MINE}/vanilla/seed-2: Read-only file system\n"
    assert sorted(path for path in Path("results").rglob("*")) == before


# What is on the disk.


def damage(file: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_no_wrong_byte_is_read_as_another_number(run: Path) -> None:
    """A Parquet file has no checksums: many a wrong byte would not be noticed by its reader."""
    table = run / "transfers.parquet"
    whole = table.read_bytes()
    assert read_run(run).transfers.height == 4
    for at in range(4, len(whole) - 8, 20):
        damage(table, at)
        with pytest.raises(TestbedError, match=r"/transfers\.parquet: "):
            read_run(run)
        table.write_bytes(whole)
    assert read_run(run).transfers.height == 4


def test_damaged_tables_are_named_and_the_others_count(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_batch() == cli.VALID
    shutil.copytree(MINE, "results/Mine")
    truncated, wrong = (
        MINE / "vanilla/seed-2/round_trips.parquet",
        MINE / "pctls/seed-1/transfers.parquet",
    )
    truncated.write_bytes(truncated.read_bytes()[:-10])
    damage(wrong, 200)
    capsys.readouterr()
    for command in ("tables", "report"):
        assert status_of([command, "results/mine"]) == cli.VALID
        errors = capsys.readouterr().err
        for file in (truncated, wrong):
            assert f"left out: {file.parent}: {file}: not whole: its SHA-256" in errors
        assert errors.count("left out") == 2
    assert "2 runs count, 2 are left out" in Path("results/mine/report/report.html").read_text()
    assert run_batch() == cli.VALID
    assert sorted(begun()[4:]) == ["pctls 1", "vanilla 2"]
    compared = ("compare", "./Mine.toml", "vanilla", "pctls", "--runs", "2")
    assert status_of(compared) == cli.VALID
    damage(Path("results/Mine/vanilla/seed-1/sockets.parquet"), 200)
    capsys.readouterr()
    assert status_of(compared) == cli.BAD_INPUT
    assert "results/Mine/vanilla/seed-1/sockets.parquet: not whole: its" in capsys.readouterr().err


# Processes on the host.


def test_killed_when_the_run_has_its_name(mine: Path, no_report: None) -> None:
    """The next batch takes it for what it is, and removes the lock that was left."""
    program = """
import os, signal
from testbed.results import directory
plain = directory._sync
def sync(path):
    plain(path)
    if path.name == "vanilla":
        os.kill(os.getpid(), signal.SIGKILL)
directory._sync = sync
"""
    seed = MINE / "vanilla/seed-1"
    killed = subprocess.run(
        [
            *(sys.executable, "-c", program + STAND_IN_RUN, "scenario", "./Mine.toml"),
            *("--out", str(seed)),
        ],
        env=os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        timeout=PATIENCE_S,
    )
    assert killed.returncode == -signal.SIGKILL
    assert read_run(seed).summary.valid
    written = read_run(seed).manifest["end"]
    assert run_batch() == cli.VALID
    assert sorted(begun()) == sorted(ALL)
    assert read_run(seed).manifest["end"] == written
    assert sorted(path.name for path in seed.parent.iterdir()) == ["seed-1", "seed-2"]


def test_two_batches_are_started_at_once(mine: Path, no_report: None) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1") as one, running_batch("--cores", "1") as other:
        wait_for(lambda: {one.poll(), other.poll()} != {None}, "the end of one")
        left, at_work = (one, other) if one.poll() is not None else (other, one)
        error = left.communicate(timeout=PATIENCE_S)[1]
        assert left.returncode == cli.BAD_INPUT, error
        assert error.startswith("run.py: results/mine: another batch is at work there: wait for")
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        behave({})
        (job,) = jobs_below(at_work.pid)
        job.kill()
        error = at_work.communicate(timeout=PATIENCE_S)[1]
        assert at_work.returncode == cli.VALID, error
    assert begun() == [ALL[0], *ALL]


def test_snakemake_is_killed(mine: Path, no_report: None) -> None:
    behave({"vanilla 1": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:1], "the slow run")
        (snakemake,) = (
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if "snakemake" in child.cmdline() and child.ppid() == process.pid
        )
        snakemake.kill()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == cli.FAILED
    behave({})
    assert run_batch("--cores", "1") == cli.VALID
    assert begun() == [ALL[0], *ALL]
