"""Short real runs that are ended from outside, and one by an ordinary user."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from copied_project import copy_project
from rich.console import Console
from waiting import END_WITHIN_S, STARTED_WITHIN_S, ends_within_its_time, wait_for

from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.basics.toml_file import PROJECT
from testbed.runs.runner import plan_need
from testbed.setup import environment
from testbed.setup.builds import PARTIAL
from testbed.setup.ready import ensure_ready

MEASURING_WITHIN_S = 300.0
ORDINARY_USER = 65534
"""The number of the user nobody, which every Debian has."""


# Runs that are ended from outside.


class Call:
    """A running `scenario` command, with its machine."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
        self.process = psutil.Popen(
            [
                *(sys.executable, "-m", "commands", "scenario", "SharedDropping"),
                *("--duration", "300", "--out", str(destination)),
            ],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            stderr=self._errors,
            start_new_session=True,
            # A shell's background jobs ignore SIGINT, and so would their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    @property
    def staging(self) -> Path:
        return self.destination.with_name(f".{self.destination.name}.partial-{self.process.pid}")

    def wait_until(self, step: str, timeout_s: float) -> None:
        """Wait until the machine reports this step."""
        progress = self.staging / "raw" / "progress.jsonl"

        def seen() -> bool:
            assert self.process.poll() is None, self.errors()
            return progress.exists() and f'"{step}"' in progress.read_text()

        wait_for(seen, f"{step} in {progress}", timeout_s)

    def wait(self) -> int:
        """Wait for the end, which must come soon, and return the exit status."""
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
    """The host's network namespaces and mounts, of which a machine must leave none."""
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
    """Copy a tree, without using room if the file system has hard links."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    shutil.copytree(source, target, symlinks=True, copy_function=link)


def cache_for_ordinary_user(folder: Path) -> Path:
    """Copy this cache's builds into a cache in a user's own folder, so nothing is built again."""
    environment.ensure_environment(PROJECT)
    ensure_ready(Console(stderr=True), [plan_need(make_plan("NoDropping", "vanilla"))])
    copy = folder / "cache"
    for name in ("builds", "environments", "sources"):
        linked_copy(cache.subfolder(name), copy / name)
    for record in (copy / "sources").glob("*.json"):
        tarball = json.loads(record.read_text())
        tarball["path"] = str(copy / "sources" / Path(tarball["path"]).name)
        record.unlink()  # the file is shared with the real cache
        record.write_text(json.dumps(tarball))
    for lock in (copy / "builds").glob("*.lock"):
        lock.unlink()
    for partial in (copy / "builds").glob(f"{PARTIAL}*"):  # another test is building
        shutil.rmtree(partial)
    for folder_of_user in (copy, copy / "builds"):  # where a bootstrapped network is written
        os.chown(folder_of_user, ORDINARY_USER, ORDINARY_USER)
    return copy


@pytest.mark.experiment
@pytest.mark.root
def test_an_ordinary_user(public_folder: Path) -> None:
    home = public_folder / "home"
    home.mkdir()
    os.chown(home, ORDINARY_USER, ORDINARY_USER)
    project = copy_project(public_folder / "project")
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
