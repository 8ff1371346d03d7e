"""A plan from start to finish: builds, machine, results. The one way in which a run comes about.

What happens inside the machine is `experiment`'s, what becomes of it `results`'s.
"""

import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
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
from testbed.bootstrapped import bootstrapped_network
from testbed.errors import TestbedError, reason_of
from testbed.guest import memory_mb, run_in_guest
from testbed.lab import calibration
from testbed.machines.folders import Folders
from testbed.machines.host import check_host, run_on_host
from testbed.machines.terminal import AT_PROMPT, ENDING, user_terminal
from testbed.machines.virtual import START_NS
from testbed.machines.watching import Step
from testbed.plan_model import Plan
from testbed.probes.captures import capture_pairs
from testbed.queue_disciplines import FIFO
from testbed.setup import cache
from testbed.setup.builds import Build
from testbed.setup.own_code import own_code
from testbed.setup.privileges import as_user, left_to_user
from testbed.setup.ready import Ready, TorNeed, ensure_ready, ensure_tors, tor_need


def plan_need(plan: Plan) -> TorNeed:
    """The Tor that a plan runs."""
    tor = plan.tor
    return tor_need(tor.source, tor.release, (patch.file() for patch in tor.patches))


def carry_out(
    plan: Plan,
    destination: Path,
    messages: Console,
    on_step: Callable[[Step], None],
    *,
    machine: str = "virtual",
    captures: Collection[str] = (),
    ready: Ready | None = None,
) -> results.Summary:
    """Carry out a plan and leave its run directory at `destination`, whole or not at all.

    Args:
        messages: where the set-up shows what it does.
        on_step: called with each step of the experiment.
        machine: "virtual" or "host".
        captures: pairs of roles, such as "exit-middle", whose links are captured.
        ready: the virtual machine's builds; otherwise they are looked up, and made if need be.

    Raises:
        InputError: there is no such link, the host machine can't see the plan's generator, or this
            host can't be one.
        TestbedError: the run failed; its evidence is kept beside the destination, and the
            message says where.
    """
    captures = capture_pairs(plan, captures)
    destination = destination.absolute()  # inside the machine the working directory is another
    if machine == "host":
        run = _host_machine(plan, destination, captures)
    else:
        run = _virtual_machine(plan, messages, captures, ready)
    with left_to_user(destination), results.staging(destination) as staging:
        try:
            results.keep_patches(staging, plan)
            summary = results.write_results(staging, plan, run(staging, on_step))
            results.publish(staging, destination)
            return summary
        except (TestbedError, OSError) as error:
            told = error
            if isinstance(error, OSError):
                told = TestbedError(f"{reason_of(error, destination)}: the results aren't whole")
            kept = results.keep_failed(staging, destination, told)
            raise TestbedError(f"{told}\nwhat the run left is in {kept}") from error


Run = Callable[[Path, Callable[[Step], None]], results.MachineFacts]
"""Carries out a plan in a staging directory."""


def _virtual_machine(
    plan: Plan, messages: Console, captures: Collection[str], ready: Ready | None
) -> Run:
    """Get the virtual machine ready for a plan."""
    builds = ready or ensure_ready(messages, [plan_need(plan)])
    tor = builds.tors[plan_need(plan)]

    def run(staging: Path, on_step: Callable[[Step], None]) -> results.MachineFacts:
        started = datetime.now(UTC)
        cost = run_in_guest(
            plan,
            guest_folders(plan, staging, builds, on_step),
            builds.kernel.product("linux"),
            on_step,
            *_options(captures),
            captures=captures,
        )
        return results.MachineFacts(
            machine="virtual",
            cost=cost,
            started=started,
            ended=datetime.now(UTC),
            virtual_start_s=START_NS / 1e9,
            memory_mb=memory_mb(plan, captures),
            kernel=builds.kernel,
            tor=tor,
            captures=tuple(captures),
        )

    return run


def guest_folders(
    plan: Plan, directory: Path, ready: Ready, on_step: Callable[[Step], None]
) -> Folders:
    """What the plan's run finds where in the virtual machine, its bootstrapped network included."""
    tor = ready.tors[plan_need(plan)]
    folders = _folders(plan, directory, tor)
    network = bootstrapped_network(plan, folders, ready.kernel, tor, on_step)
    return replace(folders, network=network.folder)


def _folders(plan: Plan, directory: Path, tor: Build) -> Folders:
    return Folders(
        run=directory,
        code=as_user(own_code),
        tor=tor.folder,
        generator=Path(plan.tgen.path) if plan.tgen else None,
    )


def _host_machine(plan: Plan, destination: Path, captures: Collection[str]) -> Run:
    """Get this host ready for a plan."""
    used = [destination, cache.cache_folder(), *([Path(plan.tgen.path)] if plan.tgen else [])]
    congestion_controls = set(plan.congestion_control.values())
    congestion_controls.update(entry.congestion_control for entry in plan.competing)
    queue_disciplines = {
        shape.queue_discipline for link in plan.links for shape in (link.there, link.back)
    } - {FIFO}
    check_host(sorted(congestion_controls), sorted(queue_disciplines), *used, ipsec=plan.tor.ipsec)
    tor = as_user(_tor_for, plan_need(plan))

    def run(staging: Path, on_step: Callable[[Step], None]) -> results.MachineFacts:
        started = datetime.now(UTC)
        folders = _folders(plan, staging, tor)
        (staging / "plan.json").write_text(plan.model_dump_json(indent=1))
        cost, kept_up = run_on_host(
            folders.command("testbed.experiment", *_options(captures)),
            staging,
            environment=folders.variables,
            on_step=on_step,
        )
        return results.MachineFacts(
            machine="host",
            cost=cost,
            started=started,
            ended=datetime.now(UTC),
            virtual_start_s=started.timestamp(),
            memory_mb=round(psutil.virtual_memory().total / 2**20),
            kernel=None,
            tor=tor,
            captures=tuple(captures),
            checks=(kept_up,),
        )

    return run


def _tor_for(need: TorNeed) -> Build:
    """Get a Tor without a kernel; perhaps in another process, to which no console can be sent."""
    return ensure_tors(Console(stderr=True), [need])[need]


def _options(captures: Collection[str]) -> list[str]:
    return [f"--capture={pair}" for pair in captures]


def open_shell(plan: Plan, messages: Console, progress: "ProgressBar") -> None:
    """Open a plan's lab in real time, with the user's terminal as its prompt's.

    Args:
        messages: where the set-up shows what it does.
        progress: shown until the prompt comes.

    Raises:
        TestbedError: the lab did not come to its prompt.
    """
    ready = ensure_ready(messages, [plan_need(plan)])
    # Like a run's, so that what a kill -9 leaves is removed by the next call.
    with (
        results.staging(cache.subfolder("runs") / "shell") as directory,
        user_terminal() as terminal,
    ):

        def on_step(step: Step) -> None:
            if step.name == AT_PROMPT:
                progress.bar.stop()
                terminal.connect()
            elif step.name == ENDING:
                terminal.disconnect()
            else:
                progress.show(step)

        options = [f"--shown-as={directory}", *([] if sys.stdin.isatty() else ["--piped"])]
        run_in_guest(
            plan,
            guest_folders(plan, directory, ready, progress.show),
            ready.kernel.product("linux"),
            on_step,
            *options,
            module="testbed.shell",
            variables={"TERM": os.environ.get("TERM", "dumb")},
            terminal=terminal.machine_end,
        )


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
        run_in_guest(
            plan,
            Folders(run=directory, code=own_code()),
            ready.kernel.product("linux"),
            on_step,
            module="testbed.lab.calibration",
        )
        return calibration.read_calibration(directory)


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
