"""One of the testbed's modules in the virtual machine, for a plan: all that it sees and is given.

The machine is `machines.virtual`'s; what a run's results are made of is `runner`'s to say.
"""

import json
from collections.abc import Callable, Collection
from pathlib import Path

from testbed.machines.folders import Folders, seen_by_guest
from testbed.machines.virtual import STALL_CPU_S, START_NS, run_in_machine
from testbed.machines.watching import Step, Usage
from testbed.plan_identity import identity
from testbed.plan_model import Plan
from testbed.seeds import derived_seed

PLACES_ON_HOST = frozenset({"path", "source"})
"""Keys of a plan, at any depth, that the guest isn't told: it has no use for them, and their length
would show."""

BASE_MEMORY_MB = 256
MEMORY_MB_PER_BUSY_NODE, MOST_BUSY_NODES = 48, 24
MEMORY_MB_PER_NODE = 4
"""Of the guest. A Tor of a five-minute run at full speed needs 13 MB, its sockets' buffers up to
some 16; in a large network most are idle most of the time and need 4 to 5, and sites next to
nothing."""
MEMORY_MB_PER_CAPTURE = 32
"""Of the guest, for each link that is captured: two programs and their packets."""

STALL_CPU_S_PER_NODE = 0.2
"""What a node may add to one moment of the clock: the second in which 500 clients load their first
page took 35 s on a quiet host (Network19to1, 682 nodes); pctls and a crowded host take more."""


def memory_mb(plan: Plan, captures: Collection[str] = ()) -> int:
    """The guest memory that a plan needs, while the links of some pairs of roles are captured."""
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
    module: str = "testbed.experiment",
    captures: Collection[str] = (),
    start_ns: int = START_NS,
    variables: dict[str, str] | None = None,
    terminal: int | None = None,
) -> Usage:
    """Carry out a plan in a virtual machine.

    What it sees is the same for every user and in every place, and what it takes for chance
    follows from the plan's seed.

    Args:
        folders: on this host.
        on_step: called with each step that the module tells.
        options: the module's, beside those of `Folders.command`.
        captures: pairs of roles whose links the module captures; they need memory.
        variables: beside those that a Python of the project needs.

    For the others and the errors see `run_in_machine`.
    """
    told = identity(plan.model_dump(mode="json"), PLACES_ON_HOST)
    (folders.run / "plan.json").write_text(json.dumps(told, indent=1))
    seen, mounts = seen_by_guest(folders)
    return run_in_machine(
        kernel,
        seen.command(module, *options),
        folders.run,
        memory_mb=memory_mb(plan, captures),
        environment=seen.variables | (variables or {}),
        on_step=on_step,
        mounts=mounts,
        entropy_seed=derived_seed(plan.seed, "entropy", bits=64),
        start_ns=start_ns,
        stall_cpu_s=STALL_CPU_S + STALL_CPU_S_PER_NODE * len(plan.nodes),
        terminal=terminal,
    )
