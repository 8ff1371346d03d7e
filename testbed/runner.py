"""A plan from start to finish: builds, machine, results. The one way in which a run comes about.

What happens inside the machine is `experiment`'s, what becomes of it `results`'s.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from testbed import results
from testbed.errors import TestbedError
from testbed.lab import calibration
from testbed.machines.virtual import START_NS, Step, run_in_machine
from testbed.plan import Plan
from testbed.setup import cache
from testbed.setup.builds import Build
from testbed.setup.environment import variables
from testbed.setup.ready import Ready, TorNeed, ensure_ready, tor_need
from testbed.toml_file import PROJECT

BASE_MEMORY_MB = 256
MEMORY_MB_PER_TOR = 48
"""Of the guest. A Tor of a five-minute run needs 13 MB, its sockets' buffers up to some 16."""

GUEST_STATE = Path("/run/lab")
"""Where the guest keeps keys, data and sockets: gone with the machine."""


def plan_need(plan: Plan) -> TorNeed:
    """The Tor that a plan runs."""
    return tor_need(plan.tor.source, (patch.file() for patch in plan.tor.patches))


def memory_mb(plan: Plan) -> int:
    """The guest memory that a plan needs."""
    return BASE_MEMORY_MB + MEMORY_MB_PER_TOR * len(plan.nodes)


def carry_out(
    plan: Plan, destination: Path, messages: Console, on_step: Callable[[Step], None]
) -> results.Summary:
    """Carry out a plan and leave its run directory at `destination`, whole or not at all.

    Args:
        messages: where the set-up shows what it does.
        on_step: called with each step of the experiment.

    Raises:
        TestbedError: the run failed; its evidence is kept beside the destination, and the
            message says where.
    """
    destination = destination.absolute()  # inside the machine the working directory is another
    ready = ensure_ready(messages, [plan_need(plan)])
    tor = ready.tors[plan_need(plan)]
    with results.staging(destination) as staging:
        try:
            return _carried_out(plan, destination, staging, ready, tor, on_step)
        except TestbedError as error:
            kept = results.keep_failed(staging, destination, error)
            raise TestbedError(f"{error}\nwhat the run left is in {kept}") from error


def _carried_out(
    plan: Plan,
    destination: Path,
    staging: Path,
    ready: Ready,
    tor: Build,
    on_step: Callable[[Step], None],
) -> results.Summary:
    started = datetime.now(UTC)
    cost = run_in_machine(
        ready.kernel.product("linux"),
        experiment_command(plan, staging, tor),
        staging,
        memory_mb=memory_mb(plan),
        environment=guest_environment(),
        on_step=on_step,
    )
    facts = results.MachineFacts(
        machine="virtual",
        cost=cost,
        started=started,
        ended=datetime.now(UTC),
        virtual_start_s=START_NS / 1e9,
        memory_mb=memory_mb(plan),
        kernel=ready.kernel,
        tor=tor,
    )
    summary = results.write_results(staging, plan, facts)
    results.publish(staging, destination)
    return summary


def experiment_command(plan: Plan, directory: Path, tor: Build, *options: str) -> list[str]:
    """The command line that carries out a plan inside a machine, with the bundled generator.

    The plan is left in the directory for it.
    """
    plan_file = directory / "plan.json"
    plan_file.write_text(plan.model_dump_json(indent=1))
    return [
        *(sys.executable, "-m", "testbed.experiment"),
        *("--plan", str(plan_file)),
        *("--tor", str(tor.product("tor"))),
        *("--directory", str(directory)),
        *("--state", str(GUEST_STATE)),
        *options,
        *("--", sys.executable, "-m", "testbed.traffic.tgen"),
    ]


def calibrate(
    plan: Plan, messages: Console, on_step: Callable[[Step], None]
) -> list[calibration.Measured]:
    """Measure every link of a plan in a machine of its own, without Tor.

    Raises:
        TestbedError: a link could not be measured.
    """
    ready = ensure_ready(messages, [])
    # Like a run's, so that what a kill -9 leaves is removed by the next call.
    with results.staging(cache.subfolder("runs") / "calibration") as directory:
        plan_file = directory / "plan.json"
        plan_file.write_text(plan.model_dump_json())
        command = [sys.executable, "-m", "testbed.lab.calibration"]
        run_in_machine(
            ready.kernel.product("linux"),
            [*command, "--plan", plan_file, "--directory", directory],
            directory,
            memory_mb=memory_mb(plan),
            environment=guest_environment(),
            on_step=on_step,
        )
        return calibration.read_calibration(directory)


def guest_environment() -> dict[str, str]:
    """What a Python of the project needs to know inside a machine."""
    wanted = ("PYTHONPATH", "PYTHONNOUSERSITE")
    return {name: variables(PROJECT)[name] for name in wanted} | {"PYTHONUNBUFFERED": "1"}


class _Clock(ProgressColumn):
    """The guest's clock, of how much, and when the run will end by what it cost so far."""

    def render(self, task: Task) -> Text:
        if not task.total:
            return Text("")
        text = f"{task.completed:.0f}/{task.total:.0f} virtual s"
        if (left_s := task.fields.get("left_s")) is not None:
            text += f", about {left_s // 60:.0f} min {left_s % 60:02.0f} s left"
        return Text(text)


@dataclass
class ProgressBar:
    """One run's progress on a terminal; nothing where there is none."""

    bar: Progress
    task: TaskID

    @classmethod
    def on(cls, console: Console, title: str) -> "ProgressBar":
        """A bar that is shown once entered as `with bar.bar:`."""
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            _Clock(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        return cls(bar, bar.add_task(title, total=None))

    def show(self, step: Step) -> None:
        """Show a step."""
        fields: dict[str, Any] = {}
        if step.name == "measuring":
            since_s = self.bar.tasks[self.task].fields.get("measuring_since_s", time.monotonic())
            fields["measuring_since_s"] = since_s
            if step.done_s >= 1:
                spent_s = time.monotonic() - since_s
                fields["left_s"] = spent_s / step.done_s * (step.of_s - step.done_s)
        self.bar.update(
            self.task,
            description=step.name,
            total=step.of_s or None,
            completed=step.done_s,
            **fields,
        )
