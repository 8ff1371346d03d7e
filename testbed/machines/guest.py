"""Runs one of the testbed's modules on a plan in a virtual machine: its folders, memory and seed.

The machine itself is `machines.virtual`'s; what a run's results consist of is `runner`'s.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.basics.errors import InputError
from testbed.basics.seeds import derived_seed
from testbed.machines.folders import Folders, seen_by_guest
from testbed.machines.shared_clock import CrossLink, shared_clock
from testbed.machines.stalls import STALL_CPU_S
from testbed.machines.together import Guest, run_together
from testbed.machines.virtual import START_NS, VirtualMachine, run_in_machine
from testbed.machines.watching import Step, Usage
from testbed.plan.identity import identity
from testbed.plan.model import Plan
from testbed.plan.parts import crossings

EXPERIMENT = "testbed.inside.experiment"
"""The module that carries out a run."""

PLACES_ON_HOST = frozenset({"path", "source"})
"""Keys of a plan, at any depth, that are left out for the guest: it has no use for them, and the
length of a host's path could show in a run."""

BASE_MEMORY_MB = 256
MEMORY_MB_PER_BUSY_NODE, MOST_BUSY_NODES = 48, 24
MEMORY_MB_PER_NODE = 4
"""The guest's memory. In a five-minute run at full speed a Tor needs 13 MB and its sockets' buffers
up to some 16. In a large network most Tors are idle most of the time and need 4 to 5 MB, and sites
next to nothing."""
MEMORY_MB_PER_CAPTURE = 32
"""More of the guest's memory for each captured link: two programs and their packets."""

STALL_CPU_S_PER_NODE = 0.2
"""How long a node may keep the kernel busy at one moment of the clock: the second in which 500
clients load their first page took 35 s on a quiet host (Network19to1, 682 nodes); pctls and a
crowded host take more."""


def memory_mb(plan: Plan, captures: Collection[str] = ()) -> int:
    """The memory of a plan's guests, including captures of links between pairs of roles."""
    parts = (plan.model_copy(update={"part": part}) for part in range(plan.kernels))
    return sum(_memory_mb_of_part(part, captures) for part in parts)


def _memory_mb_of_part(plan: Plan, captures: Collection[str]) -> int:
    captured = sum(
        "-".join(link.roles) in captures and any(map(plan.is_here, link.ends))
        for link in plan.links
    )
    nodes = len(plan.here())
    busy = min(nodes, MOST_BUSY_NODES)
    nodes_mb = MEMORY_MB_PER_BUSY_NODE * busy + MEMORY_MB_PER_NODE * (nodes - busy)
    return BASE_MEMORY_MB + nodes_mb + MEMORY_MB_PER_CAPTURE * captured


def run_in_guest(
    plan: Plan,
    folders: Folders,
    kernel: Path,
    on_step: Callable[[Step], None],
    *options: str,
    module: str = EXPERIMENT,
    captures: Collection[str] = (),
    start_ns: int = START_NS,
    variables: dict[str, str] | None = None,
    terminal: int | None = None,
) -> Usage:
    """Run a module on a plan in a virtual machine.

    The guest sees the same for every user and in every folder, and all its randomness follows from
    the plan's seed.

    Args:
        folders: the folders on this host.
        on_step: called with each step that the module reports.
        options: the module's options, in addition to those of `Folders.command`.
        captures: pairs of roles whose links the module captures, which needs memory.
        variables: environment variables in addition to those of `Folders.variables`.

    For the other arguments see `VirtualMachine`, for the errors `run_in_machine`.

    Raises:
        InputError: the plan has several parts.
    """
    refuse_parts(plan)
    guest = _guest(plan, folders, kernel, captures, module, *options)
    machine = replace(guest.machine, start_ns=start_ns, terminal=terminal)
    return run_in_machine(
        machine,
        guest.command,
        guest.staging,
        environment={**guest.environment, **(variables or {})},
        on_step=on_step,
    )


def run_in_guests(
    plan: Plan,
    folders: Folders,
    kernel: Path,
    on_step: Callable[[Step], None],
    *options: str,
    captures: Collection[str] = (),
    loads: Sequence[float] | None = None,
    on_cores: Callable[[int], None] = lambda _cores: None,
) -> Usage:
    """Run the experiment on each part of a plan in a virtual machine, all under one clock.

    Each has a folder of its own in the run's (`part_folder`).

    Args:
        on_step: called with each step of the first part.
        loads: the work that each part is expected to have, as in `run_together`.
        on_cores: called with the number of cores that the machines have.

    For the other arguments and the errors see `run_in_guest`.
    """
    links = [CrossLink(one.ends, one.delays_ns) for one in crossings(plan)]
    with shared_clock(plan.kernels, links) as clock:
        guests = []
        for part in range(plan.kernels):
            own = plan.model_copy(update={"part": part})
            place = replace(folders, run=part_folder(folders.run, part))
            place.run.mkdir()
            guest = _guest(own, place, kernel, captures, EXPERIMENT, *options)
            machine = replace(guest.machine, clock=clock.of(part))
            guests.append(replace(guest, machine=machine))
        return run_together(
            guests,
            on_step=lambda part, step: on_step(step) if part == 0 else None,
            on_cores=on_cores,
            loads=loads,
        )


def refuse_parts(plan: Plan) -> None:
    """Raise InputError if a plan has several parts, where only one kernel can be."""
    if plan.kernels > 1:
        raise InputError(
            f"kernels = {plan.kernels}: only a run can have several kernels: leave it out"
        )


def part_folder(run: Path, part: int) -> Path:
    """The folder of a part of a plan in the run's own."""
    return run / f"part-{part + 1}"


def _guest(
    plan: Plan,
    folders: Folders,
    kernel: Path,
    captures: Collection[str],
    module: str,
    *options: str,
) -> Guest:
    """A machine for a plan, or for a part of one, which its folder already knows."""
    shown = identity(plan.model_dump(mode="json"), PLACES_ON_HOST)
    (folders.run / "plan.json").write_text(json.dumps(shown, indent=1))
    seen, mounts = seen_by_guest(folders)
    part = [str(plan.part)] if plan.kernels > 1 else []
    machine = VirtualMachine(
        kernel,
        _memory_mb_of_part(plan, captures),
        mounts,
        entropy_seed=derived_seed(plan.seed, "entropy", *part, bits=64),
        stall_cpu_s=STALL_CPU_S + STALL_CPU_S_PER_NODE * len(plan.nodes),
    )
    return Guest(machine, seen.command(module, *options), folders.run, seen.variables)
