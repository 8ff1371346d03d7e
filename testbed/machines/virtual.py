"""The virtual machine: a user-mode Linux kernel that carries out one command, in virtual time.

What the command does is not known here; how the kernel is built is `setup.kernel`'s.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import psutil

from testbed.errors import InputError, TestbedError
from testbed.machines.watching import (
    POLL_INTERVAL_S,
    Step,
    Steps,
    Usage,
    failure,
    told_error,
    write_command,
)
from testbed.setup import cache, processor
from testbed.setup.environment import SYSTEM_PYTHON
from testbed.setup.steps import dying_with_us

INIT = Path(__file__).with_name("guest_init.py")

FIRST_STEPS = """
import ctypes, os
mount = ctypes.CDLL(None).mount
mount(b'run', b'/run', b'tmpfs', 0, None)
os.makedirs('{run}')
mount(b'none', b'{run}', b'hostfs', 0, os.environb[b'HYDRA_STAGING'])
exec(open('{run}/{init}').read())
"""
"""What the guest's first process does before it can read `INIT`, which lies in the run's directory;
on the kernel's command line, and so without quotation marks."""

PATH_BYTES = 1000
"""How long the guest's kernel is told that a path of the host is: as long as any other."""

START_NS = 1_800_000_000 * 10**9
"""Where every machine's clock starts (15 January 2027): no run sees another wall clock."""

STALL_WALL_S = 60.0
STALL_CPU_S = 45.0
HANG_WALL_S = 300.0
LEAST_WANTED_S = 1.0
"""A clock that stands still is a stall if the kernel was busy for most of a minute meanwhile (on
a crowded host it may have got no processor), and a hang after five minutes in which it wanted none
for as much as a second."""
HANG_VIRTUAL_S = 86_400.0
"""A clock that goes on for a day while its command tells nothing new is a hang, too."""

TERMINAL = "tty1"
"""The guest's name of the terminal that it is given, if it is."""

RUN = Path("/run/testbed/run")
"""Where the guest sees the directory of its run, wherever that lies on the host."""

SHARED_MEMORY = "/dev/shm"
"""Where the guest's memory lies as a file, if there is room. On a disk, each page that the guest
changes would be written out again and again."""

_FATAL = {
    "Kernel panic": "the guest's kernel panicked",
    "Out of memory": "the guest ran out of memory",
    "Oops": "the guest's kernel failed",
}


def run_in_machine(
    kernel: Path,
    command: Sequence[str | Path],
    staging: Path,
    *,
    memory_mb: int,
    environment: Mapping[str, str],
    on_step: Callable[[Step], None],
    mounts: Mapping[Path, Path] = MappingProxyType({}),
    entropy_seed: int = 0,
    start_ns: int = START_NS,
    stall_cpu_s: float = STALL_CPU_S,
    terminal: int | None = None,
) -> Usage:
    """Boot a machine, run a command in it as root, and wait until it has switched itself off.

    The guest's root file system is the host's, with the host user's rights. It says how far it
    is by lines in `staging/raw/progress.jsonl`.

    Args:
        kernel: the user-mode kernel.
        staging: a directory of this run alone, which the guest sees as `RUN`; the console goes to
            `logs/kernel.log` in it.
        memory_mb: the guest's.
        environment: all the command's variables, beside PATH, HOME, LC_ALL, TZ and the processor's.
        on_step: called with each new step.
        mounts: the host's folders that the guest sees elsewhere, too, and can't write to, by their
            paths in the guest: what lies at the same place in every run can't change its result.
        entropy_seed: 64 bits from which all that the guest takes for chance follows.
        start_ns: when the guest's clock begins, after the epoch.
        stall_cpu_s: for how long the kernel may be busy at one moment of its clock.
        terminal: the descriptor of a terminal that the command runs on, in real time: a user
            would not notice how virtual time passes.

    Raises:
        TestbedError: the command failed, the kernel panicked, ran out of memory, or its clock
            stood still; says so with the log's tail. Or there is no room for its memory.
        InputError: the path of the staging directory can't be passed to the kernel.
    """
    check_path(staging)
    processor.check_processor()
    memory_folder = _memory_folder(memory_mb)
    write_command(staging, command, {**processor.VARIABLES, **environment})
    _write_first_steps(staging, mounts)
    console = staging / "logs" / "kernel.log"
    console.parent.mkdir(exist_ok=True)
    with _free_core() as core, console.open("wb") as output:
        start_s = time.monotonic()
        mode = _mode(start_ns, entropy_seed, terminal)
        machine = _booted(kernel, staging, memory_mb, memory_folder, core, output, mode, terminal)
        start = Step(start_ns / 1e9, "booting", 0.0, 0.0)
        by_hand = terminal is not None
        watch = _Watch(machine, start, staging, console, on_step, stall_cpu_s, by_hand=by_hand)
        try:
            cpu_s = watch.until_end()
        finally:
            _end(machine)
            shutil.rmtree(staging / ".uml", ignore_errors=True)
        wall_s = time.monotonic() - start_s
    _check_end(staging, console, machine.returncode)
    return Usage(watch.last.time_s - watch.start_s, wall_s, cpu_s)


def _mode(start_ns: int, entropy_seed: int, terminal: int | None) -> list[str]:
    """Virtual time, and chance from a seed; on a terminal real time and the host's entropy."""
    if terminal is not None:
        return [
            f"con1=fd:{terminal}",
            f"HYDRA_TERMINAL={TERMINAL}",
            f"HYDRA_START_NS={start_ns}",
        ]
    return [
        "time-travel=inf-cpu",
        f"time-travel-start={start_ns}",
        f"entropy={entropy_seed:x}",
    ]


def _write_first_steps(staging: Path, mounts: Mapping[Path, Path]) -> None:
    """Leave the guest's first process its program, and what it is to mount where."""
    folders = {str(place): _evenly_long(folder) for place, folder in mounts.items()}
    (staging / "mounts.json").write_text(json.dumps(folders))
    shutil.copyfile(INIT, staging / INIT.name)


def _evenly_long(path: Path) -> str:
    """A path as the host's kernel knows it, behind slashes that say nothing.

    How much room a string takes shows in when the guest's kernel has what to do.
    """
    return str(path.resolve()).rjust(PATH_BYTES, "/")


def check_path(path: Path) -> None:
    """See that the kernel can be told the path of a run's directory.

    Raises:
        InputError: it can't.
    """
    if '"' in str(path.resolve()):
        raise InputError(
            f"{path.resolve()}: a quotation mark in a path can't be passed to the kernel"
        )


def _memory_folder(memory_mb: int) -> str:
    """The first folder with room for the guest's memory: without it the kernel would panic."""
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


def _booted(
    kernel: Path,
    staging: Path,
    memory_mb: int,
    memory_folder: str,
    core: int,
    output: IO[bytes],
    mode: Sequence[str],
    terminal: int | None,
) -> subprocess.Popen[bytes]:
    """Start the kernel, pinned to one core: unpinned, a system call costs twenty times as much.

    It dies with this process, and its children with it, even of kill -9.
    """
    # It has a socket open for each of the guest's processes: as many as the host permits at all.
    _, open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    limited = ["prlimit", f"--nofile={open_files}", "taskset", "--cpu-list", str(core)]
    arguments = [
        f"mem={memory_mb}M",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        f'HYDRA_STAGING="{_evenly_long(staging)}"',
        f"init={SYSTEM_PYTHON}",
        "seccomp=on",
        "con=null",
        "con0=null,fd:1",
        *mode,
        "noreboot",
        "quiet",
        "panic=-1",
        "--",
        "-S",
        "-E",
        "-c",
        f'"{FIRST_STEPS.format(run=RUN, init=INIT.name)}"',
    ]
    # In its home the kernel makes a directory .uml.
    return subprocess.Popen(
        dying_with_us([*limited, str(kernel), *arguments]),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=() if terminal is None else (terminal,),
        env={
            "HOME": str(staging.resolve()),
            "PATH": os.environ.get("PATH", os.defpath),
            "TMPDIR": memory_folder,
        },
    )


@dataclass
class _Standing:
    """What a machine had taken since its clock stands still, and when it last wanted a processor.

    Attributes:
        cpu_s, wanted_s: of its processes, as the functions of these names have it.
        wanted_at_s: on this host's monotonic clock.
    """

    cpu_s: float
    wanted_at_s: float
    wanted_s: float


class _Watch:
    """Follows a machine's steps and ends it when its clock stands still."""

    def __init__(
        self,
        machine: subprocess.Popen[bytes],
        start: Step,
        staging: Path,
        console: Path,
        on_step: Callable[[Step], None],
        stall_cpu_s: float,
        *,
        by_hand: bool,
    ) -> None:
        """Of a machine whose command may wait for ever for what a user types, or not."""
        self.last = start
        self.start_s = start.time_s
        self._machine = machine
        self._steps = Steps(staging)
        self._console = console
        self._on_step = on_step
        self._stall_cpu_s = stall_cpu_s
        self._advanced_at_s = time.monotonic()
        self._still_since: _Standing | None = None
        self._by_hand = by_hand
        self._news_at_s = self.last.time_s

    def until_end(self) -> float:
        """Wait for the machine's end; the processor seconds that it and its guests took."""
        while True:
            pid, status, usage = os.wait4(self._machine.pid, os.WNOHANG)
            self._follow()
            if pid:
                self._machine.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_utime + usage.ru_stime
            _check_fatal(self._console)
            self._check_clock()
            time.sleep(POLL_INTERVAL_S)

    def _follow(self) -> None:
        for step in self._steps.new():
            if (step.name, step.done_s) != (self.last.name, self.last.done_s):
                self._news_at_s = step.time_s
            self.last = step
            self._advanced_at_s, self._still_since = time.monotonic(), None
            self._on_step(step)

    def _check_clock(self) -> None:
        without_news_s = self.last.time_s - self._news_at_s
        if without_news_s > HANG_VIRTUAL_S and not self._by_hand:
            raise failure(
                f"the guest hangs: its clock has gone on for {without_news_s:.0f} s in the step"
                f' "{self.last.name}"',
                self._console,
            )
        still_s = time.monotonic() - self._advanced_at_s
        if still_s < STALL_WALL_S / 10:
            return  # to ask hundreds of processes what they took is not for every step
        if self._still_since is None:
            self._still_since = _Standing(self._sum(cpu_s), time.monotonic(), self._sum(wanted_s))
        if still_s >= STALL_WALL_S:
            self._check_use(self._still_since, still_s)

    def _check_use(self, since: _Standing, still_s: float) -> None:
        at_s = self.last.time_s - self.start_s
        if (wanted := self._sum(wanted_s)) > since.wanted_s + LEAST_WANTED_S:
            since.wanted_at_s, since.wanted_s = time.monotonic(), wanted
        if self._sum(cpu_s) - since.cpu_s > self._stall_cpu_s:
            raise failure(
                f"the guest's clock has stood still at {at_s:.1f} s for {still_s:.0f} s while its"
                " kernel was busy: a program in it computes or polls and doesn't sleep",
                self._console,
            )
        if time.monotonic() - since.wanted_at_s > HANG_WALL_S:
            raise failure(
                f"the guest hangs: its clock has stood still at {at_s:.1f} s for {still_s:.0f} s"
                " and it did nothing",
                self._console,
            )

    def _sum(self, of: Callable[[psutil.Process], float]) -> float:
        """Over the machine's process and its guests'."""
        total_s = 0.0
        with suppress(psutil.NoSuchProcess):
            machine = psutil.Process(self._machine.pid)
            for process in [machine, *machine.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    total_s += of(process)
        return total_s


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds that a process took."""
    times = process.cpu_times()
    return float(times.user + times.system)


def wanted_s(process: psutil.Process) -> float:
    """Seconds in which a process had a processor, or waited for one that others had.

    By the kernel's account (Documentation/scheduler/sched-stats.rst). Who hangs wants none.
    """
    schedstat = Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii")
    had_ns, waited_ns, _ = schedstat.split()
    return (int(had_ns) + int(waited_ns)) / 1e9


def _check_fatal(console: Path) -> None:
    text = console.read_text(errors="replace")
    for sign, meaning in _FATAL.items():
        if sign in text:
            raise failure(meaning, console)


def _check_end(staging: Path, console: Path, exit_code: int) -> None:
    """Raise unless the command ended well; the exit code is the kernel's, as Popen gives it."""
    _check_fatal(console)
    status = staging / "status"
    if not status.exists():
        how = (
            f"was killed by {signal.Signals(-exit_code).name}"
            if exit_code < 0
            else f"ended with status {exit_code} before its command had"
        )
        raise failure(f"the guest's kernel {how}", console)
    if not (said := status.read_text().strip()):
        ended = f"the experiment could not write to {staging.parent}: is the disk full?"
        raise failure(ended, console)
    if said != "0":
        ended = f"the experiment ended with status {said}"
        raise told_error(staging) or failure(ended, console)


def _end(machine: subprocess.Popen[bytes]) -> None:
    """End the kernel if it still runs; the guests' processes end with it."""
    if machine.returncode is None:
        machine.kill()
        machine.wait()


@contextmanager
def _free_core() -> Iterator[int]:
    """A core that no other machine of this user's is pinned to; any, if all are taken.

    Only of those that this process may use: on a cluster's node they are what Slurm gave the job.
    Nodes may share the cache, so that a core's lock has its host's name.
    """
    cores = sorted(os.sched_getaffinity(0))
    for core in cores:
        with (cache.subfolder("cores") / f"{socket.gethostname()}-{core}").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another has it, or this file system has no locks
                continue
            yield core
            return
    yield cores[os.getpid() % len(cores)]
