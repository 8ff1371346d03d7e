"""Batches on a cluster: a real Slurm with two nodes, both on this machine, for these tests alone.

It has its own configuration, ports and key, all in a temporary folder, and ends with the tests.
What a batch does on every machine is in test_batch.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from batch_stand_in import (
    ALL,
    BATCH,
    FAILS,
    FAILS_ONCE,
    IS_SLOW,
    MINE,
    NEEDS_ANOTHER,
    begun,
    behave,
    changed,
    run_batch,
    running_batch,
    seeds_there,
)
from command_line import refused, status_of
from shown_elsewhere import lines_of
from waiting import PATIENCE_S, wait_for

from testbed.basics import cache
from testbed.basics.ending import FAILED, INTERRUPTED, VALID
from testbed.results import read_run

pytestmark = [
    pytest.mark.root,  # as Slurm's daemons are
    pytest.mark.timeout(1800),  # each job starts Python four times, one after another
]

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
ON_SLURM = ("--executor", "slurm")
STARTING_S = 60.0
MEMORY_MB = 1664
"""The memory of a guest with two clients, and of the programs around it."""
NOTES = Path("results/mine/.batch/notes")

CONFIGURATION = r"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=4000 \
    Features=second
PartitionName=lab Nodes=n1,n2 Default=YES State=UP
PartitionName=short Nodes=n1,n2 State=UP
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of a Slurm that runs as long as this module's tests."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(f"no Slurm here: {', '.join(missing)} missing (Debian: slurm-wlm, munge)")
    here = tmp_path_factory.mktemp("slurm")
    configuration = here / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(host=socket.gethostname(), folder=here, ports=free_ports(3))
    )
    (here / "munge.key").write_bytes(os.urandom(128))
    (here / "munge.key").chmod(0o600)
    for name in ("state", *NODES):
        (here / name).mkdir()
    own = [f"--{name}-file={here}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    with ExitStack() as daemons:
        munged = ["munged", "--foreground", "--force", f"--socket={here}/munge.socket", *own]
        daemons.enter_context(daemon(munged, here))
        wait_for((here / "munge.socket").exists, "munge")
        daemons.enter_context(daemon(["slurmctld", "-D", "-f", str(configuration)], here))
        for name in NODES:
            words = ["slurmd", "-D", "-N", name, "-f", str(configuration)]
            daemons.enter_context(daemon(words, here))
        wait_until_idle(configuration, here)
        yield configuration
        asked("scancel", "--user=root", SLURM_CONF=str(configuration))
    end_left_overs(configuration)


def end_left_overs(configuration: Path) -> None:
    """End processes that linuxproc has lost; a cluster's cgroups lose none.

    It sees only children, and a Snakemake may deadlock when it is asked to end, and then
    outlives its shell.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SLURM_CONF") == str(configuration):
                process.kill()


def free_ports(number: int) -> list[int]:
    """Free ports of this host."""
    with ExitStack() as sockets:
        opened = [sockets.enter_context(socket.socket()) for _ in range(number)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]


@contextmanager
def daemon(words: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a program until the context ends, with its output in a file of its name."""
    with (
        (folder / f"{words[0]}.printed").open("ab") as output,
        subprocess.Popen(words, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_until_idle(configuration: Path, here: Path) -> None:
    end_s = time.monotonic() + STARTING_S
    while asked("sinfo", "-h", "-N", "-o", "%T", SLURM_CONF=str(configuration)) != "idle\nidle\n":
        if time.monotonic() > end_s:
            printed = "".join(file.read_text() for file in here.glob("*.printed"))
            pytest.skip(f"Slurm can't be started here: {printed[-600:]}")
        time.sleep(0.5)


def asked(*words: str, **variables: str) -> str:
    """The output of a program of Slurm's."""
    answer = subprocess.run(
        words, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    return answer.stdout


@pytest.fixture
def slurm(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Slurm's programs use this Slurm."""
    monkeypatch.setenv("SLURM_CONF", str(cluster))
    # Snakemake calls srun without that variable, which an installed Slurm doesn't need.
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={cluster} exec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")


def jobs(what: str = "%i %T") -> list[str]:
    """A property of each job in the queue."""
    return asked("squeue", "-h", "-o", what).splitlines()


def has_begun(tries: int) -> bool:
    return len(begun()) == tries


def nodes_at_work() -> list[str]:
    return sorted(file.read_text().strip() for file in NOTES.glob("*/begun"))


def left_by_runs() -> list[str]:
    """Everything in the folder except finished runs."""
    names = [path.name for path in MINE.glob("*/*")] if MINE.exists() else []
    return [name for name in names if not name.startswith("seed-") or "failed" in name]


@pytest.mark.usefixtures("slurm", "no_report")
def test_both_nodes_work_and_nothing_is_made_twice(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(dict.fromkeys(ALL, NEEDS_ANOTHER))
    assert run_batch(*ON_SLURM) == VALID
    assert sorted(begun()) == sorted(ALL)
    assert set(nodes_at_work()) == set(NODES)
    assert len(seeds_there()) == 4
    assert jobs() == []
    assert "4 runs: 4 valid, 0 invalid, 0 failed" in capsys.readouterr().out
    assert run_batch(*ON_SLURM) == VALID
    assert len(begun()) == 4


@pytest.mark.usefixtures("slurm", "no_report")
def test_a_run_that_fails_on_a_node_is_tried_again_and_listed(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed("[1, 2]", "[1]")
    behave({"vanilla 1": FAILS, "pctls 1": FAILS_ONCE})
    assert run_batch(*ON_SLURM, "--retries", "1") == FAILED
    assert sorted(begun()) == ["pctls 1", "pctls 1", "vanilla 1", "vanilla 1"]
    assert seeds_there() == ["pctls/seed-1"]
    printed = capsys.readouterr()
    assert "failed, try 2 of 2: Mine, bulk, vanilla, seed 1: the guest's kernel" in printed.err
    assert "failed: Mine, bulk, vanilla, seed 1: the guest's kernel panicked" in printed.out
    assert any(f"(on {node})" in printed.out for node in NODES)


@pytest.mark.usefixtures("slurm", "no_report")
def test_what_a_job_asks_for_and_what_slurm_says_of_its_end(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed('["vanilla", "pctls"]', '["pctls"]')
    changed("[1, 2]", "[1]")
    behave({"pctls 1": IS_SLOW})
    monkeypatch.setenv("SBATCH_CONSTRAINT", "second")
    options = ["--retries", "1", "--time-limit", "2 h", "--slurm-partition", "lab"]
    options += ["--slurm-account", "project"]
    with running_batch(*ON_SLURM, *options) as process:
        for tries, limit in ((1, "2:00:00"), (2, "4:00:00")):
            wait_for(partial(has_begun, tries), f"try {tries}")
            (job,) = [job for job in jobs("%i %N %P %a %C %m %l") if "n2" in job]
            number, *asked_for = job.split()
            assert asked_for == ["n2", "lab", "project", "1", f"{MEMORY_MB}M", limit]
            asked("scancel", number)
        told, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == FAILED
    assert "failed, try 1 of 2: Mine, bulk, pctls, seed 1: it was ended from out" in messages
    assert "failed: Mine, bulk, pctls, seed 1: ended from outside, without a reason" in told
    assert re.search(r"  slurmstepd.* ON n2 CANCELLED", told)
    assert f"(from results/mine/.batch/slurm/rule_run1/{number}.log)" in told
    assert left_by_runs() == []


@pytest.mark.usefixtures("slurm", "no_report")
def test_a_job_that_slurm_does_not_take(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed("[1, 2]", "[1]")
    assert run_batch(*ON_SLURM, "--retries", "0", "--slurm-partition", "nowhere") == FAILED
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "run.py: Snakemake ended with status 1"
    assert second == "  sbatch: error: invalid partition specified: nowhere"
    assert begun() == []


@pytest.mark.slow
@pytest.mark.usefixtures("slurm", "no_report")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_and_begun_again(mine: Path, number: signal.Signals) -> None:
    changed("[1, 2]", "[1]")
    behave({"vanilla 1": IS_SLOW, "pctls 1": IS_SLOW})
    with running_batch(*ON_SLURM) as process:
        wait_for(lambda: sorted(begun()) == sorted(ALL[:2]), "both runs")
        process.send_signal(number)
        status = process.wait(PATIENCE_S)
    if number == signal.SIGINT:
        assert status == INTERRUPTED
        assert jobs() == []
        assert left_by_runs() == []
    else:
        assert len(jobs()) == 2, "a batch that is killed can't cancel its jobs"
    behave({})
    assert run_batch(*ON_SLURM) == VALID
    assert len(begun()) == 4
    assert len(seeds_there()) == 2
    assert left_by_runs() == []


@pytest.mark.usefixtures("slurm")
def test_a_machine_that_is_no_login_node(
    mine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "slurm.conf").write_text("SlurmctldHost=localhost\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    line = refused(["batch", "./mine.toml", *ON_SLURM], monkeypatch, capsys)
    assert "run.py: --executor slurm: Slurm does not answer: " in line
    monkeypatch.setenv("PATH", str(tmp_path))
    line = refused(["batch", "./mine.toml", *ON_SLURM], monkeypatch, capsys)
    assert "--executor slurm: there is no squeue here: start on a cluster's login node" in line


@pytest.mark.usefixtures("slurm", "no_report")
@pytest.mark.parametrize("line", lines_of("test_slurm.py::test_what_the_document_shows"))
def test_what_the_document_shows(mine: Path, line: str) -> None:
    """The batch is smaller than the shown one."""
    _, command, _, *options = shlex.split(line)
    assert status_of([command, "./mine.toml", *options]) == VALID
    assert sorted(begun()) == ([] if "--dry-run" in options else sorted(ALL))


def compiled() -> list[Path]:
    """Make the builds that need a compiler; the first run on a network bootstraps it."""
    builds = cache.subfolder("builds").glob("*/build.json")
    return sorted(path for path in builds if not path.parent.name.startswith("network-"))


@pytest.mark.experiment
@pytest.mark.usefixtures("slurm")
def test_real_runs(folder: Path) -> None:
    """Two runs on two nodes of one host: each finds a core of its own."""
    (folder / "mine.toml").write_text(BATCH.replace("[1, 2]", "[1]"), encoding="utf-8")
    changed('"10 s"', '"4 s"', "Mine.toml")
    before = compiled()
    assert run_batch(*ON_SLURM) == VALID
    runs = [read_run(MINE / variant / "seed-1") for variant in ("vanilla", "pctls")]
    assert all(run.summary.valid for run in runs)
    assert nodes_at_work() == sorted(NODES)
    assert compiled() == before
    ends = [run.manifest["end"] for run in runs]
    assert run_batch(*ON_SLURM) == VALID
    assert [read_run(run.directory).manifest["end"] for run in runs] == ends
