"""The host machine: its needs, what it leaves behind, and whether the processors kept up."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from made_runs import Made
from waiting import END_WITHIN_S, STARTED_WITHIN_S, ends_within_its_time, wait_for

from analysis.runs import find_runs
from testbed.asked.output import default_output
from testbed.asked.plans import make_plan
from testbed.basics.check import Check
from testbed.basics.errors import InputError, TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.machines import host
from testbed.machines.host import check_host, run_on_host
from testbed.results import read_run
from testbed.runs.up_to_date import Today, reason_against
from testbed.setup import host_kernel, privileges

# Its needs.


@pytest.mark.root
@pytest.mark.parametrize("lacking", ["bridge", "HTB", "netem"])
def test_a_kernel_that_lacks_something(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by trials: here of a device or qdisc that no kernel has."""
    wrong = (
        "ip link add trial2 type bridges" if lacking == "bridge" else "tc qdisc add dev lo nonsense"
    )
    trials = {"veth": host_kernel.TRIALS["veth"], lacking: wrong, "pfifo": "exit 1"}
    monkeypatch.setattr(host_kernel, "TRIALS", trials)
    with pytest.raises(InputError, match=f"this host's kernel has no {lacking} \\(.*use --machine"):
        check_host(["cubic"], [])


@pytest.mark.root
def test_a_kernel_that_lacks_a_congestion_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernel, "TRIALS", {})
    assert host_kernel.refusal(["reno"]) == ""
    found = host_kernel.refusal(["reno", "newest"])
    assert found.startswith("no newest in net.ipv4.tcp_allowed_congestion_control (sysctl: ")


@pytest.mark.root
def test_a_kernel_that_lacks_a_queue_discipline(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = {
        "veth": host_kernel.TRIALS["veth"],
        "a place": "tc qdisc add dev trial0 root handle 10: htb"
        " && tc class add dev trial0 parent 10: classid 10:1 htb rate 1mbit",
    }
    monkeypatch.setattr(host_kernel, "TRIALS", trials)
    assert host_kernel.refusal([], ["pfifo", "bfifo"]) == ""
    assert host_kernel.refusal([], ["pfifo", "nonsense"]).startswith("no nonsense (")


@pytest.mark.root
def test_the_trial_leaves_nothing() -> None:
    before = interfaces()
    host_kernel.refusal()
    assert interfaces() == before


@pytest.mark.root
def test_a_path_that_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernel, "refusal", lambda *_needed, **_others: "")
    with pytest.raises(InputError, match="/run/user/results: the host machine can't see"):
        check_host(["cubic"], [], Path("/tmp"), Path("/run/user/results"))


def test_its_runs_have_a_folder_of_their_own() -> None:
    plan = make_plan("One", "vanilla")
    assert default_output(plan, "host") == Path("results-host/One/vanilla/seed-1")
    assert default_output(plan) == Path("results/One/vanilla/seed-1")


def test_runs_of_two_machines_are_not_averaged(tmp_path: Path) -> None:
    virtual_run, host_run = (Made(seed=seed).write(tmp_path) for seed in (1, 2))
    summary = json.loads((host_run / "summary.json").read_text())
    (host_run / "summary.json").write_text(json.dumps(summary | {"machine": "host"}))
    found = find_runs(tmp_path)
    runs_by_maker = {
        part.made_by: [run.directory for runs in part.valid.values() for run in runs]
        for part in found.parts
    }
    assert runs_by_maker == {"machine virtual": [virtual_run], "machine host": [host_run]}
    run = read_run(host_run)
    assert reason_against(run, run.plan, Today()) == "of the host machine"


# What it leaves behind. These commands need no netem.


def interfaces() -> str:
    return subprocess.run(["ip", "-brief", "link"], capture_output=True, check=True).stdout.decode()


def run_shell(folder: Path, commands: str) -> str:
    """Run shell commands on the host machine, and return their output."""
    folder.mkdir()
    run_on_host(["sh", "-c", commands], folder, environment={}, on_step=lambda _step: None)
    return (folder / "logs" / "host.log").read_text()


@pytest.mark.root
def test_it_has_no_way_out_and_meets_nobody(tmp_path: Path) -> None:
    seen = run_shell(
        tmp_path / "run",
        "ip -brief link; ip route show table all; find /run -type s; ps -e -o pid=,comm=",
    )
    interface, *rest = seen.splitlines()
    assert interface.startswith("lo ")
    routes = [line for line in rest if line.startswith(("local", "broadcast"))]
    assert routes
    assert all(" dev lo " in f"{line} " for line in routes)
    processes = [line.split() for line in rest if line not in routes]
    assert processes[0] == ["1", "sh"]
    assert {name for _, name in processes} == {"sh", "ps"}


@pytest.mark.root
def test_it_can_change_no_setting_of_the_host(tmp_path: Path) -> None:
    settings = ("fs/file-max", "kernel/pty/max", "vm/max_map_count")
    values = [Path("/proc/sys", name).read_text() for name in settings]
    commands = "; ".join(f"echo 4242 > /proc/sys/{name}" for name in settings)
    told = run_shell(tmp_path / "run", f"{commands}; [ ! -e /proc/sys/net/ipv4/tcp_mem ]")
    assert told.count("Read-only file system") == len(settings)
    assert [Path("/proc/sys", name).read_text() for name in settings] == values


@pytest.mark.root
def test_two_at_once_have_the_same_names_for_other_things(tmp_path: Path) -> None:
    before = interfaces()
    commands = "ip link add s1 type bridge; ip link show s1 && touch up; sleep 60"
    started = [
        Started(tmp_path / name, commands.replace("up", str(tmp_path / name / "up")))
        for name in "ab"
    ]
    try:
        for each in started:
            wait_for((each.folder / "up").exists, "its bridge", STARTED_WITHIN_S)
        assert interfaces() == before
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()


class Started:
    """A process that runs a command on the host machine."""

    PROGRAM = """
import pathlib, signal, sys
from testbed.basics import ending
from testbed.machines.host import run_on_host
signal.signal(signal.SIGTERM, ending._interrupt)
run_on_host(["sh", "-c", sys.argv[2]], pathlib.Path(sys.argv[1]), environment={}, on_step=print)
"""

    def __init__(self, folder: Path, commands: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.process = psutil.Popen(
            [sys.executable, "-c", self.PROGRAM, str(folder), commands],
            cwd=PROJECT,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_nothing_stays(tmp_path: Path, number: signal.Signals) -> None:
    """Not even a process that has left its parent, its session and its network stays."""
    up = tmp_path / "run" / "up"
    daemon = f"unshare --net setsid sh -c {shlex.quote(f'trap : TERM HUP; touch {up}; sleep 600')}"
    before = interfaces(), Path("/proc/self/mounts").read_text()
    started = Started(tmp_path / "run", f"({daemon} &); sleep 600")
    wait_for(up.exists, "its daemon", STARTED_WITHIN_S)
    (first,) = [child for child in started.process.children() if child.name() == "unshare"]
    processes = [first, *first.children(recursive=True)]
    assert len(processes) > 3
    started.process.send_signal(number)
    started.process.wait(END_WITHIN_S)
    ends_within_its_time(processes)
    assert (interfaces(), Path("/proc/self/mounts").read_text()) == before


@pytest.mark.root
def test_a_command_that_fails(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"^the experiment ended with status 7\n  why$"):
        run_shell(tmp_path / "plain", "echo why; exit 7")
    told = tmp_path / "telling" / "error.txt"
    with pytest.raises(TestbedError, match=r"^no consensus$"):
        run_shell(tmp_path / "telling", f"echo no consensus > {told}; exit 1")


@pytest.mark.root
def test_what_it_writes_belongs_to_the_user_behind_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "4321")
    destination = tmp_path / "results-host" / "One" / "seed-1"
    with privileges.left_to_user(destination):
        (destination / "logs").mkdir(parents=True)
    destination.with_name("seed-10").mkdir()
    with privileges.left_to_user(destination.with_name("seed-2")):
        destination.with_name("seed-2.failed-1").mkdir()
    owners = {path.name: path.stat().st_uid for path in tmp_path.rglob("*")}
    assert owners == {
        **dict.fromkeys(("results-host", "One", "seed-1", "logs", "seed-2.failed-1"), 1234),
        "seed-10": 0,
    }
    assert destination.stat().st_gid == 4321
    assert tmp_path.stat().st_uid == 0


# Whether the processors kept up.


def saturation_of(
    idle_shares: Iterable[tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> Check:
    """The check of samples of two cores, one a second, after a first one that doesn't count."""
    now_s, idle_s = 0.0, [5.0, 9.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(host, "_idle_s", lambda: dict(enumerate(idle_s)))
    cores = host._Cores()
    now_s += 1.0  # all busy
    cores.sample(counts=False)
    for shares in idle_shares:
        now_s += 1.0
        idle_s[:] = [before + share for before, share in zip(idle_s, shares, strict=True)]
        cores.sample(counts=True)
    return cores.check()


def test_a_host_that_kept_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sometimes a core may be saturated."""
    check = saturation_of([(0.4, 0.6)] * 95 + [(0.0, 1.0)] * 5, monkeypatch)
    assert check.ok
    assert check.observed == "in 5 of 100; the busiest core 62% busy on average"


@pytest.mark.parametrize("full", [(0.05, 1.0), (1.0, 0.05)])
def test_one_full_core_is_enough(
    full: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if all other cores are idle, a Tor's work waits for its own."""
    check = saturation_of([(0.4, 0.6)] * 94 + [full] * 6, monkeypatch)
    assert not check.ok
    assert check.observed.startswith("in 6 of 100;")


def test_a_run_that_was_never_looked_at_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not saturation_of([], monkeypatch).ok


@pytest.mark.root
def test_a_busy_host_is_seen(tmp_path: Path) -> None:
    """A program keeps a core busy during the step "measuring"; /proc/stat shows it."""
    folder = tmp_path / "run"
    (folder / "raw").mkdir(parents=True)
    step = {"time_s": 0.0, "step": "measuring", "done_s": 0.0, "of_s": 2.0}
    (folder / "raw" / "progress.jsonl").write_text(json.dumps(step) + "\n")
    core = min(os.sched_getaffinity(0))
    spin = f"taskset --cpu-list {core} timeout 2 sh -c 'while :; do :; done' || true"
    _, kept_up = run_on_host(["sh", "-c", spin], folder, environment={}, on_step=lambda _step: None)
    assert not kept_up.ok
