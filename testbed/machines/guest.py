"""Runs one of the testbed's modules on a plan in a virtual machine: its folders, memory and seed.

The machine itself is `machines.virtual`'s; what a run's results consist of is `runner`'s.
"""

import json
from collections.abc import Callable, Collection
from pathlib import Path

from testbed.basics.seeds import derived_seed
from testbed.machines.folders import Folders, seen_by_guest
from testbed.machines.stalls import STALL_CPU_S
from testbed.machines.virtual import START_NS, VirtualMachine, run_in_machine
from testbed.machines.watching import Step, Usage
from testbed.plan.identity import identity
from testbed.plan.model import Plan

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
    """The guest memory that a plan needs, including captures of links between pairs of roles."""
    captured = sum("-".join(link.roles) in captures for link in plan.links)
    busy = min(len(plan.nodes), MOST_BUSY_NODES)
    nodes_mb = MEMORY_MB_PER_BUSY_NODE * busy + MEMORY_MB_PER_NODE * (len(plan.nodes) - busy)
    return BASE_MEMORY_MB + nodes_mb + MEMORY_MB_PER_CAPTURE * captured


def run_in_guest(
    plan: Plan,
    folders: Folders,
    kernel: Path,
    on_step: Callable[[Step], None],
    *options: str,
    module: str = "testbed.inside.experiment",
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
    """
    shown = identity(plan.model_dump(mode="json"), PLACES_ON_HOST)
    (folders.run / "plan.json").write_text(json.dumps(shown, indent=1))
    seen, mounts = seen_by_guest(folders)
    machine = VirtualMachine(
        kernel,
        memory_mb(plan, captures),
        mounts,
        entropy_seed=derived_seed(plan.seed, "entropy", bits=64),
        start_ns=start_ns,
        stall_cpu_s=STALL_CPU_S + STALL_CPU_S_PER_NODE * len(plan.nodes),
        terminal=terminal,
    )
    return run_in_machine(
        machine,
        seen.command(module, *options),
        folders.run,
        environment=seen.variables | (variables or {}),
        on_step=on_step,
    )
