"""The parts in which several kernels carry a plan out: the scenario's key `kernels`."""

from collections.abc import Sequence
from pathlib import Path

from testbed.asked.expected_load import expected_load
from testbed.asked.split import LEAST_WINDOW_MS, split
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label
from testbed.plan.model import Plan


def in_parts(plan: Plan, kernels: int, file: Path) -> Plan:
    """The plan in as many parts as a scenario asks for.

    Args:
        kernels: more than one.
        file: the scenario's, for errors.

    Raises:
        InputError: the network can't be divided so.
    """
    subject = f"{label(file)}: kernels = {kernels}"
    found = split(plan, expected_load(plan), kernels)
    if len(found.parts) < kernels:
        raise InputError(
            f"{subject}: {plan.topology} has {len(found.parts)} groups of nodes with a delay of"
            f" {LEAST_WINDOW_MS:g} ms or more between them: write at most {len(found.parts)}"
        )
    first, *others = (_with_routers(plan, part.nodes) for part in found.parts)
    elsewhere = {name for part in others for name in part}
    first = tuple(node.name for node in plan.nodes if node.name not in elsewhere)
    return plan.model_copy(update={"parts": (first, *others)})


def _with_routers(plan: Plan, hosts: Sequence[str]) -> tuple[str, ...]:
    """Hosts with the routers of their sites, in the plan's order."""
    here = set(hosts)
    here |= {
        link.ends[1]
        for link in plan.links
        if link.ends[0] in here and link.roles[1] == "router" and not link.is_way
    }
    return tuple(node.name for node in plan.nodes if node.name in here)
