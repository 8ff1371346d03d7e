"""Relays measured by measurers, in a virtual machine."""

from collections.abc import Callable

from rich.console import Console

from testbed import results
from testbed.basics import cache
from testbed.machines.guest import run_in_guest
from testbed.machines.watching import Step
from testbed.plan.measurement import ASKED_FILE, MEASURED_FILE, Asked, Measured
from testbed.plan.model import Plan
from testbed.runs.runner import guest_folders, plan_need
from testbed.setup.ready import ensure_ready


def measure_relays(
    plan: Plan, asked: Asked, messages: Console, on_step: Callable[[Step], None]
) -> Measured:
    """Carry out measurements in a machine of their own.

    Args:
        plan: see `asked.measurers.measuring_plan`.

    Raises:
        TestbedError: the network did not become ready, or something failed.
    """
    ready = ensure_ready(messages, [plan_need(plan)])
    # A directory like a run's: the next call removes what a kill -9 leaves.
    with results.staging(cache.subfolder("runs") / "flashflow") as directory:
        (directory / ASKED_FILE).write_text(asked.model_dump_json(indent=1))
        run_in_guest(
            plan,
            guest_folders(plan, directory, ready, on_step),
            ready.kernel.product("linux"),
            on_step,
            module="testbed.inside.measurers.measuring",
        )
        return Measured.model_validate_json((directory / MEASURED_FILE).read_text())
