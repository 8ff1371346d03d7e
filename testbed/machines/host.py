"""The host machine: one command in real time on this host's own kernel, in namespaces of its own.

It also checks whether the processors kept up. Nothing here knows the command.
"""

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from testbed.basics.check import Check
from testbed.basics.errors import InputError
from testbed.basics.steps import dying_with_us
from testbed.machines.watching import (
    POLL_INTERVAL_S,
    Step,
    Steps,
    Usage,
    failure,
    reported_error,
    write_command,
)
from testbed.setup import host_kernel

INIT = Path(__file__).with_name("host-init.sh")
HIDDEN = ("/proc", "/run")
"""Where the command has its own file systems and can't see the host's."""

MEASURING = "measuring"
"""The step during which the processors must keep up."""

BUSY_SHARE = 0.9
"""A core that is busy for more of a sample than this is saturated: due work waits for it."""
MOST_SATURATED = 0.05
"""The largest share of saturated samples, as when the generators start or another program wakes up:
the rest of the time the links limit a transfer, as in the virtual machine."""


def check_host(
    congestion_controls: Iterable[str],
    queue_disciplines: Iterable[str],
    *paths: Path,
    ipsec: bool = False,
) -> None:
    """Check that this host can be a machine, before anything starts.

    Args:
        congestion_controls: the nodes' congestion controls.
        queue_disciplines: the links' queue disciplines.
        paths: files and folders that the command must be able to use.
        ipsec: whether there is ESP between relays.

    Raises:
        InputError: we are not root, the kernel lacks something, or the machine hides a path.
    """
    if os.geteuid() != 0:
        raise InputError(
            "--machine host needs root, for network namespaces: put sudo before the command, or"
            " use --machine virtual, which needs no privilege"
        )
    if lacking := host_kernel.refusal(congestion_controls, queue_disciplines, ipsec=ipsec):
        raise InputError(
            f"--machine host can't work here: this host's kernel has {lacking}; use --machine"
            " virtual, which brings its own, or a host with Debian's kernel"
        )
    for path in paths:
        if any(path.resolve().is_relative_to(hidden) for hidden in HIDDEN):
            raise InputError(
                f"{path}: the host machine can't see what lies below {', '.join(HIDDEN)}:"
                " put it elsewhere (--out, --tgen, HYDRA_CACHE)"
            )


def run_on_host(
    command: Sequence[str | Path],
    staging: Path,
    *,
    environment: Mapping[str, str],
    on_step: Callable[[Step], None],
) -> tuple[Usage, Check]:
    """Run a command as root in network, process and mount namespaces of its own.

    It has no interface but its loopback, and of the kernel's settings it can change only its own
    network's. However it or this process ends, all its processes end and nothing of it stays.

    Args:
        staging: a directory of this run alone; the output goes to `logs/host.log` in it.
        environment: variables for the command, in addition to PATH, HOME and LC_ALL.
        on_step: called with each step that the command writes to `raw/progress.jsonl`.

    Returns:
        What it cost, and whether the processors kept up while it measured.

    Raises:
        TestbedError: the command failed; has the log's tail.
    """
    write_command(staging, command, environment)
    log = staging / "logs" / "host.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        start_s = time.monotonic()
        machine = _started(staging, output)
        try:
            cpu_s, kept_up = _watched(machine, staging, on_step)
        finally:
            _end(machine)
        wall_s = time.monotonic() - start_s
    if machine.returncode != 0:
        ended = f"the experiment ended with status {machine.returncode}"
        raise reported_error(staging) or failure(ended, log)
    return Usage(wall_s, wall_s, cpu_s, cores=None), kept_up


def _started(staging: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        dying_with_us([*host_kernel.IN_NAMESPACES, "sh", str(INIT)]),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={"HYDRA_STAGING": str(staging.resolve()), "PATH": os.environ["PATH"]},
    )


def _watched(
    machine: subprocess.Popen[bytes], staging: Path, on_step: Callable[[Step], None]
) -> tuple[float, Check]:
    """Wait for the end.

    Returns:
        The processor seconds of all its processes, and whether the cores kept up.
    """
    steps, cores = Steps(staging), _Cores()
    measuring = False
    while True:
        pid, status, usage = os.wait4(machine.pid, os.WNOHANG)
        for step in steps.new():
            measuring = step.name == MEASURING
            on_step(step)
        if pid:
            machine.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime, cores.check()
        cores.sample(counts=measuring)
        time.sleep(POLL_INTERVAL_S)


class _Cores:
    """Samples how busy each core is that this process may use.

    The cores are judged one by one and not by their mean: a Tor computes on one core at a time.
    """

    def __init__(self) -> None:
        self._busiest: list[float] = []
        self._at_s, self._idle_s = time.monotonic(), _idle_s()

    def sample(self, *, counts: bool) -> None:
        """Sample the time since the last call; keep the sample if it counts.

        All time that isn't idle is busy: that of our programs, of others, of interrupts, and of
        other machines on the same processors (steal).
        """
        at_s, idle_s = time.monotonic(), _idle_s()
        if counts:
            idle_shares = [
                (idle_s[core] - before_s) / (at_s - self._at_s)
                for core, before_s in self._idle_s.items()
            ]
            self._busiest.append(1 - min(max(share, 0.0) for share in idle_shares))
        self._at_s, self._idle_s = at_s, idle_s

    def check(self) -> Check:
        """Check that no core was saturated for more than a few samples."""
        samples = len(self._busiest)
        saturated = sum(share > BUSY_SHARE for share in self._busiest)
        mean = sum(self._busiest) / samples if samples else math.nan
        return Check(
            name="processor saturation",
            expected=f"a core more than {BUSY_SHARE:.0%} busy in at most {MOST_SATURATED:.0%}"
            f" of the samples, one every {POLL_INTERVAL_S:g} s",
            observed=f"in {saturated} of {samples}; the busiest core {mean:.0%} busy on average",
            ok=samples > 0 and saturated <= MOST_SATURATED * samples,
        )


def _idle_s() -> dict[int, float]:
    """How long each core that we may use has been idle, from /proc/stat (proc_stat(5))."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    usable = os.sched_getaffinity(0)
    idle_s = {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        # "cpu0 user nice system idle iowait irq softirq steal guest guest_nice"
        name, *values = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in usable:
            idle_s[int(name[3:])] = (int(values[3]) + int(values[4])) / ticks_per_s
    return idle_s


def _end(machine: subprocess.Popen[bytes]) -> None:
    """End the command if it still runs, and wait until all its processes are gone."""
    if machine.returncode is not None:
        return
    with suppress(psutil.NoSuchProcess):
        firsts = psutil.Process(machine.pid).children()
        for first in firsts:
            first.kill()  # the first of its namespace: the kernel ends the others
        psutil.wait_procs(firsts)
    machine.kill()
    machine.wait()
