"""Several virtual machines under one clock, started and ended together.

How one machine is booted is `machines.virtual`'s, and what they share is `machines.shared_clock`'s.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.machines.stalls import Watch
from testbed.machines.virtual import VirtualMachine, booted, check_end, free_cores, watching
from testbed.machines.watching import POLL_INTERVAL_S, Step, Usage


@dataclass(frozen=True)
class Guest:
    """A machine with what it runs; see `machines.virtual.run_in_machine`."""

    machine: VirtualMachine
    command: Sequence[str | Path]
    staging: Path
    environment: Mapping[str, str]


def run_together(
    guests: Sequence[Guest],
    *,
    on_step: Callable[[int, Step], None],
    on_cores: Callable[[int], None] = lambda _cores: None,
    loads: Sequence[float] | None = None,
    most_cores: int | None = None,
) -> Usage:
    """Boot machines that share a clock, and wait until each has switched itself off.

    The first that fails ends all: the others would wait for it for ever. What a machine does is
    the same on any number of cores.

    Args:
        guests: the machines, each with a share of one clock.
        on_step: called with a machine's number and its new step.
        on_cores: called once, with the number of cores that they have.
        loads: the work that each machine is expected to have, in any unit; all alike by default.
        most_cores: on how many cores they may run; by default one for each.

    Returns:
        What all took together: the first's virtual time, and the wall time until the last's end.

    Raises:
        TestbedError: one failed, as in `run_in_machine`; says which.
        InputError: a staging directory's path can't be passed to its kernel.
    """
    start_s = time.monotonic()
    with free_cores(min(len(guests), most_cores or len(guests))) as cores, ExitStack() as running:
        on_cores(len(cores))
        places = shared_out(loads or [1.0] * len(guests), len(cores))
        machines = [
            running.enter_context(_watched(guests, number, cores[places[number]], on_step))
            for number in range(len(guests))
        ]
        cpu_s = _until_all_end(guests, machines)
        wall_s = time.monotonic() - start_s
    first, _ = machines[0]
    return Usage(first.last.time_s - first.start_s, wall_s, cpu_s, len(cores))


def _until_all_end(
    guests: Sequence[Guest], machines: Sequence[tuple[Watch, subprocess.Popen[bytes]]]
) -> float:
    """Watch machines until each has ended, and return the processor time of all together."""
    used_cpu_s: dict[int, float] = {}
    while len(used_cpu_s) < len(guests):
        for number, (watch, process) in enumerate(machines):
            if number in used_cpu_s:
                continue
            with _named(number, len(guests)):
                if (cpu_s := watch.poll()) is None:
                    continue
                check_end(guests[number].staging, process.returncode)
            used_cpu_s[number] = cpu_s
        time.sleep(POLL_INTERVAL_S)
    return sum(used_cpu_s.values())


def shared_out(loads: Sequence[float], cores: int) -> list[int]:
    """Choose a core for each load: the greatest first, each where there is least until then.

    Of cores with equally much the one with fewer loads is taken, so that idle ones spread, too.

    Returns:
        Each load's core, from 0.
    """
    places, shared = [0] * len(loads), [(0.0, 0)] * cores
    for number in sorted(range(len(loads)), key=lambda one: -loads[one]):
        least = min(shared)
        places[number] = shared.index(least)
        shared[places[number]] = (least[0] + loads[number], least[1] + 1)
    return places


@contextmanager
def _watched(
    guests: Sequence[Guest], number: int, core: int, on_step: Callable[[int, Step], None]
) -> Iterator[tuple[Watch, subprocess.Popen[bytes]]]:
    """Boot a machine and watch it; it ends with the context."""
    one = guests[number]
    with ExitStack() as running:
        with _named(number, len(guests)):
            process = running.enter_context(
                booted(one.machine, one.command, one.staging, one.environment, core)
            )
        yield watching(one.machine, process, one.staging, partial(on_step, number)), process


@contextmanager
def _named(number: int, of: int) -> Iterator[None]:
    """Say in an error which machine failed, if there are several."""
    try:
        yield
    except TestbedError as error:
        if of > 1:
            error.args = (f"kernel {number + 1} of {of}: {error}",)
        raise
