"""Carries out a plan from start to finish: builds, machine, results. Every run is made here.

What happens in the machine is `inside.experiment`'s, what is made of it `results`'.
"""

import os
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
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
from testbed.asked.expected_load import expected_load
from testbed.basics import cache
from testbed.basics.console import say
from testbed.basics.errors import InputError, TestbedError, reason_of
from testbed.inside.probes.captures import capture_pairs
from testbed.inside.shell import AT_PROMPT, ENDING
from testbed.machines.folders import Folders
from testbed.machines.guest import memory_mb, refuse_parts, run_in_guest, run_in_guests
from testbed.machines.host import check_host, run_on_host
from testbed.machines.terminal import user_terminal
from testbed.machines.virtual import START_NS
from testbed.machines.watching import Step
from testbed.plan.model import Plan
from testbed.plan.queue_disciplines import FIFO
from testbed.results.calibration import Measured, read_calibration
from testbed.runs.bootstrapped import bootstrapped_network
from testbed.setup.builds import Build
from testbed.setup.own_code import own_code
from testbed.setup.privileges import as_user, left_to_user
from testbed.setup.ready import Ready, TorNeed, ensure_ready, ensure_tors, tor_need


def plan_need(plan: Plan) -> TorNeed:
    """The Tor that a plan needs."""
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
    """Carry out a plan and write its run directory to `destination`, whole or not at all.

    Args:
        messages: where the set-up shows its progress.
        on_step: called with each step of the experiment.
        machine: "virtual" or "host".
        captures: pairs of roles, such as "exit-middle", whose links are captured.
        ready: the virtual machine's builds; None to look them up, and make them if needed.

    Raises:
        InputError: there is no such link, the host machine can't see the plan's generator, or this
            host can't be a machine.
        TestbedError: the run failed; the message names where its evidence is kept, beside the
            destination.
    """
    captures = capture_pairs(plan, captures)
    destination = destination.absolute()  # the machine has another working directory
    if machine == "host":
        run_in = _host_machine(plan, destination, captures)
    else:
        run_in = _virtual_machine(plan, messages, captures, ready)
    with left_to_user(destination), results.staging(destination) as staging:
        try:
            results.keep_patches(staging, plan)
            summary = results.write_results(staging, plan, run_in(staging, on_step))
            results.publish(staging, destination)
            return summary
        except (TestbedError, OSError) as error:
            reported = error
            if isinstance(error, OSError):
                reported = TestbedError(
                    f"{reason_of(error, destination)}: the results aren't whole"
                )
            kept = results.keep_failed(staging, destination, reported)
            raise TestbedError(f"{reported}\nwhat the run left is in {kept}") from error


MachineForPlan = Callable[[Path, Callable[[Step], None]], results.MachineFacts]
"""Runs the plan that it was made for, in a staging directory."""


def _virtual_machine(
    plan: Plan, messages: Console, captures: Collection[str], ready: Ready | None
) -> MachineForPlan:
    """Prepare the virtual machine for a plan."""
    builds = ready or ensure_ready(messages, [plan_need(plan)])
    tor = builds.tors[plan_need(plan)]

    def run(staging: Path, on_step: Callable[[Step], None]) -> results.MachineFacts:
        started = datetime.now(UTC)
        run_in = run_in_guest
        if plan.kernels > 1:
            run_in = partial(
                run_in_guests,
                loads=loads_of_parts(plan),
                on_cores=partial(say_cores, messages, plan.kernels),
            )
        cost = run_in(
            plan,
            guest_folders(plan, staging, builds, on_step),
            builds.kernel.product("linux"),
            on_step,
            *_options(captures),
            captures=captures,
        )
        if plan.kernels > 1:
            results.merge_parts(staging, plan)
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


def loads_of_parts(plan: Plan) -> list[float]:
    """The work that each part of a plan is expected to have, in processor seconds a second."""
    load_s = expected_load(plan)
    return [sum(load_s.get(name, 0.0) for name in part) for part in plan.parts]


def say_cores(messages: Console, kernels: int, cores: int) -> None:
    """Say that kernels share cores, and why, unless each has one.

    Args:
        cores: how many they have.
    """
    if cores >= kernels:
        return
    usable = len(os.sched_getaffinity(0))
    why = f"only {usable} can be used here" if cores == usable else "other runs have the others"
    say(
        messages,
        f"{kernels} kernels on {cores} core{'s' if cores > 1 else ''}, as {why}:"
        " the results are the same, only later",
    )


def guest_folders(
    plan: Plan, directory: Path, ready: Ready, on_step: Callable[[Step], None]
) -> Folders:
    """The folders of a plan's run for the virtual machine, including its bootstrapped network."""
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


def _host_machine(plan: Plan, destination: Path, captures: Collection[str]) -> MachineForPlan:
    """Prepare this host as the machine for a plan."""
    if plan.kernels > 1:
        raise InputError(
            f"--machine host: kernels = {plan.kernels}, but the host has one: leave one out"
        )
    if plan.processors:
        raise InputError(
            f"--machine host: {', '.join(plan.processors)} have a processor in [nodes], but only"
            " the virtual machine's takes time: leave out --machine host or the processors"
        )
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
            folders.command("testbed.inside.experiment", *_options(captures)),
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
    """Get a Tor without a kernel; has no console, which can't be sent to `as_user`'s process."""
    return ensure_tors(Console(stderr=True), [need])[need]


def _options(captures: Collection[str]) -> list[str]:
    return [f"--capture={pair}" for pair in captures]


def open_shell(plan: Plan, messages: Console, progress: "ProgressBar") -> None:
    """Open a plan's lab in real time, with a prompt on the user's terminal.

    One kernel has all its nodes: several could share no clock, as each computes at its own pace.

    Args:
        messages: where the set-up shows its progress.
        progress: shown until the prompt appears.

    Raises:
        TestbedError: the lab failed before its prompt.
    """
    plan = plan.model_copy(update={"parts": ()})
    ready = ensure_ready(messages, [plan_need(plan)])
    # A directory like a run's: the next call removes what a kill -9 leaves.
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
            module="testbed.inside.shell",
            variables={"TERM": os.environ.get("TERM", "dumb")},
            terminal=terminal.machine_end,
        )


def calibrate(plan: Plan, messages: Console, on_step: Callable[[Step], None]) -> list[Measured]:
    """Measure every link of a plan in a machine of its own, without Tor.

    Raises:
        TestbedError: a link could not be measured.
    """
    refuse_parts(plan)
    ready = ensure_ready(messages, [])
    # A directory like a run's: the next call removes what a kill -9 leaves.
    with results.staging(cache.subfolder("runs") / "calibration") as directory:
        run_in_guest(
            plan,
            Folders(run=directory, code=own_code()),
            ready.kernel.product("linux"),
            on_step,
            module="testbed.inside.calibration.counting",
        )
        return read_calibration(directory)


class _Clock(ProgressColumn):
    """The guest's clock, its end, and the time left at the pace so far."""

    def render(self, task: Task) -> Text:
        if not task.total:
            return Text("")
        text = f"{task.completed:.0f}/{task.total:.0f} virtual s"
        if (left_s := task.fields.get("left_s")) is not None:
            text += f", about {left_s // 60:.0f} min {left_s % 60:02.0f} s left"
        return Text(text)


@dataclass
class ProgressBar:
    """One run's progress on a terminal; hidden without one."""

    bar: Progress
    task: TaskID

    @classmethod
    def on(cls, console: Console, title: str) -> "ProgressBar":
        """Create a bar, which is shown within `with bar.bar:`."""
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
