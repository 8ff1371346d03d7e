"""A batch's jobs on a Slurm cluster: Snakemake's options, and the end of all jobs with the batch.

A job does the same as on one machine: `testbed.batch.job`.
"""

import getpass
import hashlib
import math
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import InputError, TestbedError
from testbed.batch.estimate import ExpectedTime

LOGS = "slurm"
"""The folder, in the batch's state folder, with the output of Slurm and of the jobs."""

MEMORY_MB_BESIDE_GUEST = 1024
"""A job's memory beside its guest's: for the runner and two Snakemakes around it."""

FACTOR = 4.0
LEAST_LIMIT_S = 1800.0
UNKNOWN_LIMIT_S = 4 * 3600.0
"""A job that reaches its time limit loses everything, and nodes differ in speed. So the limit is
`FACTOR` times the expected time, at least `LEAST_LIMIT_S`, and `UNKNOWN_LIMIT_S` without an
estimate."""

CHECK_INTERVAL_S = 10
"""Snakemake's first interval between two looks at the queue; it grows to three minutes."""
FILES_MAY_TAKE_S = 60
"""How late a node may see another node's files: on NFS up to a minute."""
ENDING_S = 90.0
"""Slurm gives a cancelled job half a minute (KillWait), then the node cleans up."""
LOOK_INTERVAL_S = 1.0

_REFUSAL = re.compile(r"sbatch: error: .*|Job submission failed with exception: .*")


@dataclass(frozen=True)
class Slurm:
    """Where jobs run on a cluster; None leaves a choice to Slurm or to the estimate."""

    account: str | None = None
    partition: str | None = None
    time_limit_s: float | None = None

    def resources(self, guest_mb: int, expected: ExpectedTime | None) -> dict[str, str | int]:
        """A job's resources by Snakemake's names, in MB and minutes."""
        asked = {
            "mem_mb": guest_mb + MEMORY_MB_BESIDE_GUEST,
            "runtime": math.ceil(self._limit_s(expected) / 60),
            "slurm_account": self.account,
            "slurm_partition": self.partition,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _limit_s(self, expected: ExpectedTime | None) -> float:
        if self.time_limit_s:
            return self.time_limit_s
        return max(LEAST_LIMIT_S, FACTOR * expected.wall_s) if expected else UNKNOWN_LIMIT_S


def check_here() -> None:
    """Check that jobs can be submitted from here.

    Raises:
        InputError: Slurm's programs aren't here, or its controller doesn't answer.
    """
    try:
        answer = _asked("squeue", "--noheader", "--user", getpass.getuser())
    except FileNotFoundError as error:
        raise InputError(
            f"--executor slurm: there is no {error.filename} here: start on a cluster's login node,"
            " or leave out --executor to use this machine's cores"
        ) from error
    if answer.returncode:
        raise InputError(
            f"--executor slurm: Slurm does not answer: {_last_line(answer.stderr)}: see `sinfo`"
        )


def snakemake_options(directory: Path, state: Path) -> list[str]:
    """Snakemake's options for the cluster."""
    return [
        *("--executor", "slurm", "--latency-wait", str(FILES_MAY_TAKE_S)),
        *("--slurm-logdir", str((state / LOGS).absolute())),
        *("--slurm-jobname-prefix", _name(directory)),
        *("--slurm-init-seconds-before-status-checks", str(CHECK_INTERVAL_S)),
        *("--slurm-status-command", _status_command()),
    ]


def cancel_jobs(directory: Path) -> None:
    """Cancel all jobs of a directory's batch, and wait until they have ended.

    These include jobs of an earlier, killed call and jobs that Snakemake has only just submitted.

    Raises:
        TestbedError: Slurm does not answer, or a job does not end.
    """
    end_s = time.monotonic() + ENDING_S
    while jobs := _jobs(directory):
        _asked("scancel", *jobs)
        if time.monotonic() > end_s:
            raise TestbedError(f"jobs {' '.join(jobs)} were cancelled but don't end: see `squeue`")
        time.sleep(LOOK_INTERVAL_S)


def wait_for_jobs(directory: Path) -> None:
    """Give finished jobs time to end by themselves."""
    end_s = time.monotonic() + ENDING_S
    while _jobs(directory) and time.monotonic() < end_s:
        time.sleep(LOOK_INTERVAL_S)


def last_words(state: Path, run: str = "*") -> list[str]:
    """Slurm's errors in the last try of a run, or of any run, and the log that has them."""
    logs = sorted((state / LOGS).glob(f"rule_run{run}/*.log"), key=_written)
    if not logs:
        return []
    lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [f"  {line}" for line in lines if line.startswith(("slurmstepd", "srun: error"))]
    return [*errors, f"  (from {logs[-1]})"]


def refusals(snakemake_log: Path) -> list[str]:
    """Why Slurm, or Snakemake's plugin for it, refused jobs; each reason once."""
    text = snakemake_log.read_text(encoding="utf-8", errors="replace")
    return [f"  {reason}" for reason in dict.fromkeys(_REFUSAL.findall(text))]


def _name(directory: Path) -> str:
    """The prefix of the names of a directory's jobs, by which later calls recognise them."""
    digits = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()
    return f"hydra-{digits[:16]}"


def _jobs(directory: Path) -> list[str]:
    """The numbers of a directory's jobs that wait, run or are ending."""
    answer = _asked("squeue", "--noheader", "--user", getpass.getuser(), "--format", "%i %j")
    if answer.returncode:
        raise TestbedError(f"Slurm does not list its jobs: {answer.stderr.strip()}")
    lines = [line.split(maxsplit=1) for line in answer.stdout.splitlines()]
    return [number for number, name in lines if name.startswith(_name(directory))]


def _status_command() -> str:
    """`sacct` where there is accounting; `squeue` forgets jobs five minutes after their end."""
    try:
        return "squeue" if _asked("sacct", "--noheader").returncode else "sacct"
    except FileNotFoundError:
        return "squeue"


def _asked(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


def _written(log: Path) -> float:
    return log.stat().st_mtime
