"""A batch's jobs on a Slurm cluster: what Snakemake is told of them, and that none outlives it.

What a job does is the same as on one machine: `testbed.batch.job`.
"""

import getpass
import hashlib
import math
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.batch.estimate import ExpectedTime
from testbed.errors import InputError, TestbedError

LOGS = "slurm"
"""The folder, below the batch's state, of what Slurm and the jobs themselves printed."""

MEMORY_MB_BESIDE_GUEST = 1024
"""For what a job has beside its guest: the runner, and two Snakemakes around it."""

FACTOR = 4.0
LEAST_LIMIT_S = 1800.0
UNKNOWN_LIMIT_S = 4 * 3600.0
"""A job that meets its time limit has lost all, and nodes are of any speed: so much more than
expected is asked for, at least this, and this where nothing is known yet."""

CHECK_INTERVAL_S = 10
"""Between two of Snakemake's looks at the queue, first; up to three minutes if nothing happens."""
FILES_MAY_TAKE_S = 60
"""What one node has written another may see only later, on NFS up to a minute."""
ENDING_S = 90.0
"""Slurm gives a job that is cancelled half a minute (KillWait), and the node cleans up."""
LOOK_INTERVAL_S = 1.0

_REFUSAL = re.compile(r"sbatch: error: .*|Job submission failed with exception: .*")


@dataclass(frozen=True)
class Slurm:
    """Where on a cluster jobs are to run; what is None is left to Slurm or to the estimate."""

    account: str | None = None
    partition: str | None = None
    time_limit_s: float | None = None

    def resources(self, guest_mb: int, expected: ExpectedTime | None) -> dict[str, str | int]:
        """What a job asks for, by Snakemake's names for it: MB, and minutes."""
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
    """See that jobs can be sent from here.

    Raises:
        InputError: Slurm's programs aren't here, or its controller doesn't answer.
    """
    try:
        answer = _asked("squeue", "--noheader", "--user", getpass.getuser())
    except FileNotFoundError as error:
        raise InputError(
            f"--executor slurm: there is no {error.filename} here: begin on a cluster's login node,"
            " or leave --executor out to use this machine's cores"
        ) from error
    if answer.returncode:
        raise InputError(
            f"--executor slurm: Slurm does not answer: {_last_line(answer.stderr)}: see `sinfo`"
        )


def snakemake_options(directory: Path, state: Path) -> list[str]:
    """What Snakemake is told of the cluster."""
    return [
        *("--executor", "slurm", "--latency-wait", str(FILES_MAY_TAKE_S)),
        *("--slurm-logdir", str((state / LOGS).absolute())),
        *("--slurm-jobname-prefix", _name(directory)),
        *("--slurm-init-seconds-before-status-checks", str(CHECK_INTERVAL_S)),
        *("--slurm-status-command", _status_command()),
    ]


def cancel_jobs(directory: Path) -> None:
    """Cancel the jobs of a directory's batch, and wait until they have ended.

    That is those of an earlier call too, which was killed, and such as Snakemake had just sent.

    Raises:
        TestbedError: Slurm does not answer, or a job does not end.
    """
    end_s = time.monotonic() + ENDING_S
    while jobs := _jobs(directory):
        _asked("scancel", *jobs)
        if time.monotonic() > end_s:
            raise TestbedError(f"jobs {' '.join(jobs)} were cancelled and don't end: see `squeue`")
        time.sleep(LOOK_INTERVAL_S)


def wait_for_jobs(directory: Path) -> None:
    """Give jobs that have done their work time to end by themselves."""
    end_s = time.monotonic() + ENDING_S
    while _jobs(directory) and time.monotonic() < end_s:
        time.sleep(LOOK_INTERVAL_S)


def last_words(state: Path, run: str = "*") -> list[str]:
    """What Slurm says of the last try of a run, or of any, and which file has the whole of it."""
    logs = sorted((state / LOGS).glob(f"rule_run{run}/*.log"), key=_written)
    if not logs:
        return []
    lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()
    said = [f"  {line}" for line in lines if line.startswith(("slurmstepd", "srun: error"))]
    return [*said, f"  (from {logs[-1]})"]


def refusals(snakemake_log: Path) -> list[str]:
    """Why Slurm, or Snakemake's plugin before it, took no job; each reason once."""
    text = snakemake_log.read_text(encoding="utf-8", errors="replace")
    return [f"  {reason}" for reason in dict.fromkeys(_REFUSAL.findall(text))]


def _name(directory: Path) -> str:
    """What the names of a directory's jobs begin with: known again by any later call."""
    digits = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()
    return f"hydra-{digits[:16]}"


def _jobs(directory: Path) -> list[str]:
    """The numbers of the jobs that wait, run or are ending."""
    answer = _asked("squeue", "--noheader", "--user", getpass.getuser(), "--format", "%i %j")
    if answer.returncode:
        raise TestbedError(f"Slurm does not say which jobs there are: {answer.stderr.strip()}")
    lines = [line.split(maxsplit=1) for line in answer.stdout.splitlines()]
    return [number for number, name in lines if name.startswith(_name(directory))]


def _status_command() -> str:
    """The accounting's if there is one; the queue forgets jobs five minutes after their end."""
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
