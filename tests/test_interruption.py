"""Runs that end before their time, machines that go wrong, two at once, and an ordinary user.

The machines that go wrong are small stand-ins for the kernel; the experiments are real and short.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from waiting import END_WITHIN_S, STARTED_WITHIN_S, ends_within_its_time, lives, wait_for

from testbed.errors import TestbedError
from testbed.machines import virtual
from testbed.machines.virtual import run_in_machine
from testbed.machines.watching import LOG_TAIL_LINES, Step, Usage
from testbed.plan import make_plan
from testbed.runner import plan_need
from testbed.setup import cache, environment
from testbed.setup.builds import PARTIAL
from testbed.setup.ready import ensure_ready
from testbed.toml_file import PROJECT

MEASURING_WITHIN_S = 300.0
ORDINARY_USER = 65534
"""Nobody's number, which every Debian has."""


# Machines that go wrong.


def run(kernel: Path, staging: Path, steps: list[Step] | None = None) -> Usage:
    staging.mkdir()
    return run_in_machine(
        kernel,
        ["true"],
        staging,
        memory_mb=64,
        environment={},
        on_step=lambda step: None if steps is None else steps.append(step),
        stall_cpu_s=virtual.STALL_CPU_S,
    )


def error_of(kernel: Path, staging: Path) -> str:
    """With what a machine is ended; nothing of it may live on."""
    with pytest.raises(TestbedError) as caught:
        run(kernel, staging)
    wait_for(lambda: not processes_of(staging), "the machine's end", END_WITHIN_S)
    return str(caught.value)


def processes_of(staging: Path) -> list[psutil.Process]:
    """The kernels of a staging directory: it is in their arguments."""
    name = str(staging)
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(name in word for word in process.info["cmdline"] or ()) and lives(process)
    ]


@pytest.mark.parametrize("end", ["exit 134", "exec sleep 600"])
@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("Kernel panic - not syncing: No working init found.", "the guest's kernel panicked"),
        ("Out of memory: Killed process 97 (tor) total-vm:9kB", "the guest ran out of memory"),
        ("Oops: general protection fault", "the guest's kernel failed"),
    ],
)
def test_a_kernel_that_says_what_is_wrong(
    tmp_path: Path, stand_in: Callable[[str], Path], line: str, meaning: str, end: str
) -> None:
    kernel = stand_in(f"echo booting\necho '{line}'\n{end}")
    error = error_of(kernel, tmp_path / "staging")
    assert error == f"{meaning}\n  booting\n  {line}"
    assert line in (tmp_path / "staging" / "logs" / "kernel.log").read_text()


def test_what_is_wrong_counts_also_when_the_command_ended_well(
    tmp_path: Path, stand_in: Callable[[str], Path]
) -> None:
    kernel = stand_in("echo 'Out of memory: Killed process 97 (tgen)'; echo 0 > status")
    assert "ran out of memory" in error_of(kernel, tmp_path / "staging")


def test_only_the_logs_tail_is_told(tmp_path: Path, stand_in: Callable[[str], Path]) -> None:
    error = error_of(stand_in("seq 1000; echo 'Kernel panic'; exit 1"), tmp_path / "staging")
    lines = error.splitlines()
    assert len(lines) == 1 + LOG_TAIL_LINES
    assert lines[1] == f"  {1000 - LOG_TAIL_LINES + 2}"


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ("kill -KILL $$", "the guest's kernel was killed by SIGKILL\n  (kernel.log stayed empty"),
        (
            "echo why; exit 3",
            "the guest's kernel ended with status 3 before its command had\n  why",
        ),
        ("echo why; echo 7 > status", "the experiment ended with status 7\n  why"),
        ("echo 1 > status; echo 'no consensus' > error.txt", "no consensus"),
    ],
)
def test_a_machine_that_ends_too_early(
    tmp_path: Path, stand_in: Callable[[str], Path], commands: str, said: str
) -> None:
    assert error_of(stand_in(commands), tmp_path / "staging").startswith(said)


def test_a_clock_that_stands_still_while_the_kernel_is_busy(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "STALL_WALL_S", 1.0)
    monkeypatch.setattr(virtual, "STALL_CPU_S", 0.2)
    error = error_of(stand_in("echo faulting; while :; do :; done"), tmp_path / "staging")
    assert "clock has stood still at 0.0 s" in error
    assert "a program in it computes or polls" in error
    assert error.endswith("\n  faulting")


def test_a_clock_that_stands_still_while_nothing_happens(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(virtual, "STALL_WALL_S", 0.2)
    monkeypatch.setattr(virtual, "HANG_WALL_S", 1.0)
    error = error_of(stand_in("exec sleep 600"), tmp_path / "staging")
    assert error.startswith("the guest hangs: its clock has stood still at 0.0 s")
    assert "computes" not in error


def test_a_busy_machine_whose_clock_advances_is_left_alone(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It burns several times what would be a stall, but never for long without a step."""
    monkeypatch.setattr(virtual, "STALL_WALL_S", 0.3)
    monkeypatch.setattr(virtual, "STALL_CPU_S", 0.3)
    row = json.dumps({"time_s": 0, "step": "measuring", "done_s": 1.0, "of_s": 9.0})
    commands = f"""
    mkdir raw
    for second in 1 2 3 4 5 6 7 8; do
        count=0; while [ $count -lt 100000 ]; do count=$((count + 1)); done
        echo {shlex.quote(row)} | sed "s/: 0,/: 180000000$second,/" >> raw/progress.jsonl
    done
    echo 0 > status"""
    steps: list[Step] = []
    cost = run(stand_in(commands), tmp_path / "staging", steps)
    assert [step.time_s - virtual.START_NS / 1e9 for step in steps] == list(range(1, 9))
    assert cost.virtual_s == 8
    assert cost.cpu_s > virtual.STALL_CPU_S
    assert cost.wall_s > virtual.STALL_WALL_S


def test_an_interrupted_machine_ends(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_watch: object) -> float:
        wait_for(lambda: (tmp_path / "staging" / "up").exists(), "the stand-in", STARTED_WITHIN_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(virtual._Watch, "until_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(stand_in("mkdir .uml; echo > up; exec sleep 600"), tmp_path / "staging")
    assert processes_of(tmp_path / "staging") == []
    assert not (tmp_path / "staging" / ".uml").exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_two_machines_at_once_have_a_core_each_and_a_third_does_not_wait(
    tmp_path: Path, stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(cores))
    go = tmp_path / "go"
    kernel = stand_in(
        "grep Cpus_allowed_list /proc/self/status | cut -f 2 > core.partial\n"
        "mv core.partial core\n"
        f"until [ -e '{go}' ]; do sleep 0.1; done\n"
        "echo 0 > status"
    )
    pinned = []
    with ThreadPoolExecutor() as pool:
        try:
            runs = []
            for name in ("first", "second", "third"):
                runs.append(pool.submit(run, kernel, tmp_path / name))
                file = tmp_path / name / "core"
                wait_for(file.exists, f"the {name} machine", STARTED_WITHIN_S)
                pinned.append(int(file.read_text()))
        finally:
            go.touch()
        for ended in runs:
            ended.result()
    assert pinned[:2] == cores
    assert pinned[2] in cores
    # What was taken is free again.
    assert run(kernel, tmp_path / "fourth").virtual_s == 0
    assert int((tmp_path / "fourth" / "core").read_text()) == cores[0]


# Real runs that are ended from outside.


class Call:
    """A `scenario` command that runs, with its machine."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self.process = psutil.Popen(
            [
                *(sys.executable, "-m", "testbed.cli", "scenario", "SharedDropping"),
                *("--duration", "300", "--out", str(destination)),
            ],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stderr=self._errors,
            start_new_session=True,
            # A shell's background jobs ignore it, and so would what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    @property
    def staging(self) -> Path:
        return self.destination.with_name(f".{self.destination.name}.partial-{self.process.pid}")

    def wait_until(self, step: str, timeout_s: float) -> None:
        """Wait until the machine tells this step."""
        progress = self.staging / "raw" / "progress.jsonl"

        def seen() -> bool:
            assert self.process.poll() is None, self.errors()
            return progress.exists() and f'"{step}"' in progress.read_text()

        wait_for(seen, f"{step} in {progress}", timeout_s)

    def wait(self) -> int:
        """The exit status, which must come soon."""
        return int(self.process.wait(timeout=END_WITHIN_S))

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def machine(self) -> psutil.Process:
        """The guest's kernel."""
        (kernel,) = (child for child in self.process.children() if child.name() == "linux")
        return kernel

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()


@contextmanager
def called(destination: Path) -> Iterator[Call]:
    call = Call(destination)
    try:
        yield call
    finally:
        call.end()


def network_namespaces_and_mounts() -> tuple[set[str], str]:
    """Those of the host, where a machine must leave none."""
    named = Path("/run/netns")
    names = {path.name for path in named.iterdir()} if named.exists() else set()
    return names, Path("/proc/self/mounts").read_text()


@pytest.mark.experiment
def test_interrupted_while_measuring(tmp_path: Path) -> None:
    before = network_namespaces_and_mounts()
    with called(tmp_path / "run") as call:
        call.wait_until("measuring", MEASURING_WITHIN_S)
        processes = call.process.children(recursive=True)
        assert len(processes) > 10, "the guest's processes are the kernel's children"
        call.process.send_signal(signal.SIGINT)
        assert call.wait() == 130
        ends_within_its_time(processes)
        assert call.errors() == "run.py: interrupted; nothing half-done was left\n"
    assert list(tmp_path.iterdir()) == []
    assert network_namespaces_and_mounts() == before


@pytest.mark.experiment
def test_killed_while_measuring_and_the_next_call_terminated(tmp_path: Path) -> None:
    before = network_namespaces_and_mounts()
    with called(tmp_path / "run") as call:
        call.wait_until("measuring", MEASURING_WITHIN_S)
        processes = [call.process, *call.process.children(recursive=True)]
        left = call.staging
        call.process.send_signal(signal.SIGKILL)
        assert call.wait() == -signal.SIGKILL
        ends_within_its_time(processes)
    assert not (tmp_path / "run").exists()
    assert left.exists()
    with called(tmp_path / "run") as call:
        call.wait_until("starting Tor", STARTED_WITHIN_S)
        assert not left.exists()
        processes = call.process.children(recursive=True)
        call.process.send_signal(signal.SIGTERM)
        assert call.wait() == 130
        ends_within_its_time(processes)
    assert list(tmp_path.iterdir()) == []
    assert network_namespaces_and_mounts() == before


@pytest.mark.experiment
def test_the_guests_kernel_is_killed(tmp_path: Path) -> None:
    with called(tmp_path / "run") as call:
        call.wait_until("starting Tor", STARTED_WITHIN_S)
        processes = call.process.children(recursive=True)
        call.machine().kill()
        assert call.wait() == 1
        ends_within_its_time(processes)
        error = call.errors()
    kept = tmp_path / "run.failed-1"
    assert error.startswith("run.py: the guest's kernel was killed by SIGKILL\n")
    assert error.endswith(f"\nwhat the run left is in {kept}\n")
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "logs" / "kernel.log").exists()
    assert "killed by SIGKILL" in (kept / "error.txt").read_text()


# An ordinary user.


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A temporary directory that every user may enter: pytest's own is this user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="hydra-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def linked_copy(source: Path, target: Path) -> None:
    """A copy of a tree that takes no room where the file system has hard links."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, target, symlinks=True, copy_function=link)


def cache_for_ordinary_user(folder: Path) -> Path:
    """A cache in a user's own folder with the builds of this one: nothing is built again."""
    environment.ensure_environment(PROJECT)
    ensure_ready(Console(stderr=True), [plan_need(make_plan("NoDropping", "vanilla"))])
    copy = folder / "cache"
    for name in ("builds", "environments", "sources"):
        linked_copy(cache.subfolder(name), copy / name)
    for record in (copy / "sources").glob("*.json"):
        tarball = json.loads(record.read_text())
        tarball["path"] = str(copy / "sources" / Path(tarball["path"]).name)
        record.unlink()  # the file is the real cache's, too
        record.write_text(json.dumps(tarball))
    for lock in (copy / "builds").glob("*.lock"):
        lock.unlink()
    for partial in (copy / "builds").glob(f"{PARTIAL}*"):  # another test is building
        shutil.rmtree(partial)
    for folder_of_user in (copy, copy / "builds"):  # where a bootstrapped network comes to
        os.chown(folder_of_user, ORDINARY_USER, ORDINARY_USER)
    return copy


def project_for_ordinary_user(folder: Path) -> Path:
    """The project as it is, where the user may read it."""

    def unwanted(there: str, names: list[str]) -> list[str]:
        results = ["results"] if Path(there) == PROJECT else []
        return results + [name for name in names if name.startswith((".", "__pycache__"))]

    return Path(shutil.copytree(PROJECT, folder / "project", ignore=unwanted))


@pytest.mark.experiment
@pytest.mark.root
def test_an_ordinary_user(public_folder: Path) -> None:
    home = public_folder / "home"
    home.mkdir()
    os.chown(home, ORDINARY_USER, ORDINARY_USER)
    project = project_for_ordinary_user(public_folder)
    identity = ["--reuid", str(ORDINARY_USER), "--regid", str(ORDINARY_USER), "--clear-groups"]
    with subprocess.Popen(
        [
            *("setpriv", *identity, "--", str(environment.SYSTEM_PYTHON), str(project / "run.py")),
            *("scenario", "NoDropping", "--duration", "10", "--json", "--out", str(home / "run")),
        ],
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HYDRA_CACHE": str(cache_for_ordinary_user(public_folder)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=MEASURING_WITHIN_S)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
    failed = [check for check in json.loads(output or "{}").get("checks", ()) if not check["ok"]]
    assert process.returncode == 0, f"{errors}{failed}"
    owners = {path.stat().st_uid for path in [home / "run", *(home / "run").rglob("*")]}
    assert owners == {ORDINARY_USER}
    assert [path.name for path in home.iterdir() if path.name != "run"] == []
