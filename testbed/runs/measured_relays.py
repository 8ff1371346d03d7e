"""Relays measured by measurers, in a virtual machine."""

from collections.abc import Callable

from pydantic import BaseModel
from rich.console import Console

from testbed import results
from testbed.basics import cache
from testbed.machines.guest import run_in_guest
from testbed.machines.watching import Step
from testbed.plan.measurement import ASKED_FILE, MEASURED_FILE, Asked, Measured
from testbed.plan.model import Plan
from testbed.plan.scan import SCAN_FILE, SCANNED_FILE, Scan, Scanned
from testbed.runs.runner import guest_folders, plan_need
from testbed.setup.ready import ensure_ready


def measure_relays(
    plan: Plan, asked: Asked, messages: Console, on_step: Callable[[Step], None]
) -> Measured:
    """Carry out FlashFlow's measurements in a machine of their own.

    Args:
        plan: see `asked.measurers.measuring_plan`.

    Raises:
        TestbedError: the network did not become ready, or something failed.
    """
    found = _carried_out(plan, "measuring", (ASKED_FILE, asked), MEASURED_FILE, messages, on_step)
    return Measured.model_validate_json(found)


def scan_relays(
    plan: Plan, asked: Scan, messages: Console, on_step: Callable[[Step], None]
) -> Scanned:
    """Carry out TorFlow's downloads in a machine of their own.

    Args:
        plan: see `asked.measurers.scanning_plan`.

    Raises:
        TestbedError: the network did not become ready, or something failed.
    """
    found = _carried_out(plan, "scanning", (SCAN_FILE, asked), SCANNED_FILE, messages, on_step)
    return Scanned.model_validate_json(found)


def _carried_out(
    plan: Plan,
    module: str,
    asked: tuple[str, BaseModel],
    answer: str,
    messages: Console,
    on_step: Callable[[Step], None],
) -> str:
    """Run a module of `inside.measurers` with what is asked in a file; returns the answer."""
    ready = ensure_ready(messages, [plan_need(plan)])
    # A directory like a run's: the next call removes what a kill -9 leaves.
    with results.staging(cache.subfolder("runs") / "flashflow") as directory:
        name, content = asked
        (directory / name).write_text(content.model_dump_json(indent=1))
        run_in_guest(
            plan,
            guest_folders(plan, directory, ready, on_step),
            ready.kernel.product("linux"),
            on_step,
            module=f"testbed.inside.measurers.{module}",
        )
        return (directory / answer).read_text()
