"""The virtual machine: a user-mode Linux kernel that runs one command in virtual time.

Nothing here knows the command; how the kernel is built is `setup.kernel`'s.
"""

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from testbed.basics import cache
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.steps import dying_with_us
from testbed.machines.shared_clock import ClockShare
from testbed.machines.stalls import STALL_CPU_S, Watch, check_fatal
from testbed.machines.watching import Step, Usage, failure, reported_error, write_command
from testbed.setup import processor
from testbed.setup.environment import SYSTEM_PYTHON

INIT = Path(__file__).with_name("guest_init.py")

FIRST_STEPS = """
import ctypes, os
mount = ctypes.CDLL(None).mount
mount(b'run', b'/run', b'tmpfs', 0, None)
os.makedirs('{run}')
mount(b'none', b'{run}', b'hostfs', 0, os.environb[b'HYDRA_STAGING'])
exec(open('{run}/{init}').read())
"""
"""What the guest's first process does before it can read `INIT`, which lies in the run's directory.
It stands on the kernel's command line, and so has no double quotation marks."""

PATH_BYTES = 1000
"""The length to which each path of the host is padded for the guest's kernel."""

START_NS = 1_800_000_000 * 10**9
"""Where every machine's clock starts (15 January 2027): no run sees another wall clock."""

FIRST_VARIABLES = ("LC_ALL=C", "TZ=UTC0")
"""The first process's: with them it reads none of the host's files on locales and time zones."""

TERMINAL = "tty1"
"""The guest's name of the terminal that it may be given."""

RUN = Path("/run/testbed/run")
"""Where the guest sees its run's directory, wherever that lies on the host."""

SHARED_MEMORY = "/dev/shm"
"""Where the guest's memory lies as a file, if there is room. On a disk, each page that the guest
changes would be written out again and again."""


@dataclass(frozen=True)
class VirtualMachine:
    """A virtual machine that can be booted.

    Attributes:
        kernel: the user-mode kernel.
        memory_mb: the guest's memory.
        mounts: folders of the host by the paths where the guest sees them, too, read-only: a folder
            with the same path in every run can't change its result.
        entropy_seed: 64 bits from which all of the guest's randomness follows.
        start_ns: when the guest's clock starts, after the epoch.
        stall_cpu_s: how long the kernel may be busy at one moment of its clock.
        terminal: the descriptor of a terminal that the command runs on, in real time: a user could
            not follow virtual time.
        clock: its share of a clock that it has in common with other machines, which must run at
            the same time (`machines.together`).
    """

    kernel: Path
    memory_mb: int
    mounts: Mapping[Path, Path] = field(default_factory=dict)
    entropy_seed: int = 0
    start_ns: int = START_NS
    stall_cpu_s: float = STALL_CPU_S
    terminal: int | None = None
    clock: ClockShare | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those of this process that the kernel needs."""
        clock = None if self.clock is None else self.clock.descriptor
        return tuple(each for each in (self.terminal, clock) if each is not None)


def run_in_machine(
    machine: VirtualMachine,
    command: Sequence[str | Path],
    staging: Path,
    *,
    environment: Mapping[str, str],
    on_step: Callable[[Step], None],
) -> Usage:
    """Boot a machine, run a command in it as root, and wait until it has switched itself off.

    The guest's root file system is the host's, with the host user's rights. The command reports its
    progress as lines in `staging/raw/progress.jsonl`.

    Args:
        staging: a directory of this run alone, which the guest sees as `RUN`; the console goes to
            `logs/kernel.log` in it.
        environment: all the command's variables, beside the guest's own (`guest_init.VARIABLES`)
            and the processor's.
        on_step: called with each new step.

    Raises:
        TestbedError: the command failed, the kernel panicked, ran out of memory, or its clock
            stood still; has the log's tail. Or there is no room for its memory.
        InputError: the path of the staging directory can't be passed to the kernel.
    """
    start_s = time.monotonic()
    with (
        free_cores(1) as cores,
        booted(machine, command, staging, environment, cores[0]) as process,
    ):
        watch = watching(machine, process, staging, on_step)
        cpu_s = watch.until_end()
    check_end(staging, process.returncode)
    return Usage(watch.last.time_s - watch.start_s, time.monotonic() - start_s, cpu_s)


@contextmanager
def booted(
    machine: VirtualMachine,
    command: Sequence[str | Path],
    staging: Path,
    environment: Mapping[str, str],
    core: int,
) -> Iterator[subprocess.Popen[bytes]]:
    """Boot a machine that runs a command, pinned to one core; it ends with the context.

    Unpinned, a system call costs twenty times as much. For the arguments and errors see
    `run_in_machine`.
    """
    check_path(staging)
    processor.check_processor()
    write_command(staging, command, {**processor.VARIABLES, **environment})
    _write_first_steps(staging, machine.mounts)
    memory_folder = _memory_folder(machine.memory_mb)
    console = console_of(staging)
    console.parent.mkdir(exist_ok=True)
    with console.open("wb") as output:
        process = _started(machine, staging, memory_folder, core, output)
        try:
            yield process
        finally:
            _end(process)
            shutil.rmtree(staging / ".uml", ignore_errors=True)


def watching(
    machine: VirtualMachine,
    process: subprocess.Popen[bytes],
    staging: Path,
    on_step: Callable[[Step], None],
) -> Watch:
    """Begin to watch a machine that `booted` has started."""
    start = Step(machine.start_ns / 1e9, "booting", 0.0, 0.0)
    by_hand = machine.terminal is not None
    return Watch(
        process,
        start,
        staging,
        console_of(staging),
        on_step,
        machine.stall_cpu_s,
        by_hand=by_hand,
    )


def console_of(staging: Path) -> Path:
    """The log of a machine's kernel."""
    return staging / "logs" / "kernel.log"


def _started(
    machine: VirtualMachine, staging: Path, memory_folder: str, core: int, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the kernel, which dies with this process even of kill -9, as do its own processes."""
    # It has a socket open for each of the guest's processes: as many as the host permits at all.
    _, open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    limited = ["prlimit", f"--nofile={open_files}", "taskset", "--cpu-list", str(core)]
    # The kernel makes a directory .uml in its home.
    return subprocess.Popen(
        dying_with_us([*limited, str(machine.kernel), *_kernel_arguments(machine, staging)]),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=machine.descriptors,
        env={
            "HOME": str(staging.resolve()),
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": memory_folder,
        },
    )


def _kernel_arguments(machine: VirtualMachine, staging: Path) -> list[str]:
    return [
        f"mem={machine.memory_mb}M",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        f'HYDRA_STAGING="{_padded(staging)}"',
        *FIRST_VARIABLES,
        f"init={SYSTEM_PYTHON}",
        "seccomp=on",
        "con=null",
        "con0=null,fd:1",
        *_mode(machine),
        "noreboot",
        "quiet",
        "panic=-1",
        "--",
        "-S",
        "-E",
        "-c",
        f'"{FIRST_STEPS.format(run=RUN, init=INIT.name)}"',
    ]


def _mode(machine: VirtualMachine) -> list[str]:
    """Virtual time and randomness from a seed; on a terminal real time and the host's entropy."""
    if machine.terminal is not None:
        return [
            f"con1=fd:{machine.terminal}",
            f"HYDRA_TERMINAL={TERMINAL}",
            f"HYDRA_START_NS={machine.start_ns}",
        ]
    return [
        "time-travel=inf-cpu",
        f"time-travel-start={machine.start_ns}",
        f"entropy={machine.entropy_seed:x}",
        *([machine.clock.option] if machine.clock else []),
    ]


def _write_first_steps(staging: Path, mounts: Mapping[Path, Path]) -> None:
    """Leave the guest's first process its program and its mounts."""
    folders = {str(place): _padded(folder) for place, folder in mounts.items()}
    (staging / "mounts.json").write_text(json.dumps(folders))
    shutil.copyfile(INIT, staging / INIT.name)


def _padded(path: Path) -> str:
    """A path for the host's kernel, behind as many slashes as give all paths one length.

    The room that a string takes can change when the guest's kernel has work to do.
    """
    return str(path.resolve()).rjust(PATH_BYTES, "/")


def check_path(path: Path) -> None:
    """Check that the path of a run's directory can be passed to the kernel.

    Raises:
        InputError: it can't.
    """
    if '"' in str(path.resolve()):
        raise InputError(
            f"{path.resolve()}: a quotation mark in a path can't be passed to the kernel"
        )


def _memory_folder(memory_mb: int) -> str:
    """The first folder with room for the guest's memory; without room the kernel would panic."""
    # TMPDIR comes second: Snakemake and Slurm set it, mostly to a folder on a disk.
    folders = [SHARED_MEMORY, os.environ.get("TMPDIR") or "/tmp"]
    for folder in folders:
        with suppress(OSError):
            if shutil.disk_usage(folder).free >= memory_mb * 2**20:
                return folder
    raise TestbedError(
        f"no room for the virtual machine's memory, {memory_mb} MB, in {' or '.join(folders)}:"
        " set TMPDIR to a folder that has it"
    )


def check_end(staging: Path, exit_code: int) -> None:
    """Check that a machine's command has succeeded.

    Args:
        exit_code: the kernel's, as Popen gives it.

    Raises:
        TestbedError: it hasn't; see `run_in_machine`.
    """
    console = console_of(staging)
    check_fatal(console)
    status = staging / "status"
    if not status.exists():
        how = (
            f"was killed by {signal.Signals(-exit_code).name}"
            if exit_code < 0
            else f"ended with status {exit_code} before its command had"
        )
        raise failure(f"the guest's kernel {how}", console)
    if not (reported := status.read_text().strip()):
        ended = f"the experiment could not write to {staging.parent}: is the disk full?"
        raise failure(ended, console)
    if reported != "0":
        ended = f"the experiment ended with status {reported}"
        raise reported_error(staging) or failure(ended, console)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the kernel if it still runs; the guest's processes end with it."""
    if process.returncode is None:
        process.kill()
        process.wait()


@contextmanager
def free_cores(most: int) -> Iterator[Sequence[int]]:
    """Cores to which no other machine of this user's is pinned; any one core if all are taken.

    Only cores that this process may use: on a cluster's node they are those that Slurm gave the
    job. Nodes may share the cache, so the name of a core's lock has its host in it.

    Args:
        most: how many are wanted; there may be fewer, but at least one.
    """
    cores = sorted(os.sched_getaffinity(0))
    free: list[int] = []
    with ExitStack() as locks:
        for core in cores:
            if len(free) == most:
                break
            file = cache.subfolder("cores") / f"{socket.gethostname()}-{core}"
            lock = locks.enter_context(file.open("w"))
            with suppress(OSError):  # another has it, or this file system has no locks
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free.append(core)
        yield free or [cores[os.getpid() % len(cores)]]
