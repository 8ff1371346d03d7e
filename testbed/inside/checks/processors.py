"""Whether the kernel has the costs of the plan's processors, and none at other nodes."""

from functools import partial

from testbed.basics.check import Check, none_of
from testbed.inside.checks import Running
from testbed.inside.lab.processors import has_costs
from testbed.plan.processor import Processor


async def before(running: Running) -> list[Check]:
    """Whether each node's processor has its costs; no check if all of them are free."""
    planned = running.plan.processors
    if not planned:
        return []
    others = [
        node.name
        for node in running.plan.here()
        if not running.lab.inside(
            node.name, partial(has_costs, planned.get(node.name, Processor()))
        )
    ]
    return [none_of("processors with other costs than planned", others)]
