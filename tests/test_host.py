"""The host machine: what it needs, what it leaves, and runs on a kernel in real time.

That kernel is the user-mode one, booted without virtual time: it has netem wherever this runs.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_runs import Made
from rich.console import Console
from shown_elsewhere import lines_of
from waiting import END_WITHIN_S, STARTED_WITHIN_S, ends_within_its_time, wait_for

from analysis.runs import find_runs
from testbed import results
from testbed.check import Check
from testbed.errors import InputError, TestbedError
from testbed.machines import host, virtual
from testbed.machines.host import check_host, run_on_host
from testbed.machines.terminal import user_terminal
from testbed.plan import default_output, make_plan
from testbed.results import read_run
from testbed.setup import cache, environment, host_kernel, privileges
from testbed.setup.ready import ensure_ready
from testbed.toml_file import PROJECT
from testbed.up_to_date import Today, reason_against

# What it needs.


@pytest.mark.root
@pytest.mark.parametrize("lacking", ["bridge", "HTB", "netem"])
def test_a_kernel_that_lacks_something(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by trying it: here a kind of device or qdisc that no kernel has."""
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


# What it leaves. These commands need no netem.


def interfaces() -> str:
    return subprocess.run(["ip", "-brief", "link"], capture_output=True, check=True).stdout.decode()


def run_shell(folder: Path, commands: str) -> str:
    """Run a shell's commands on the host machine; what they printed."""
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
from testbed import cli, ending
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
    """Not even a process that has left its parent, its session and its network."""
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
    """The check upon so many seconds of two cores, after one second that does not count."""
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
    """A full core now and then is no harm."""
    check = saturation_of([(0.4, 0.6)] * 95 + [(0.0, 1.0)] * 5, monkeypatch)
    assert check.ok
    assert check.observed == "in 5 of 100; the busiest core 62% busy on average"


@pytest.mark.parametrize("full", [(0.05, 1.0), (1.0, 0.05)])
def test_one_full_core_is_enough(
    full: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other cores may be idle: what a Tor has to compute waits all the same."""
    check = saturation_of([(0.4, 0.6)] * 94 + [full] * 6, monkeypatch)
    assert not check.ok
    assert check.observed.startswith("in 6 of 100;")


def test_a_run_that_was_never_looked_at_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not saturation_of([], monkeypatch).ok


@pytest.mark.root
def test_a_busy_host_is_seen(tmp_path: Path) -> None:
    """From /proc/stat, with a program that keeps a core busy while it says that it measures."""
    folder = tmp_path / "run"
    (folder / "raw").mkdir(parents=True)
    step = {"time_s": 0.0, "step": "measuring", "done_s": 0.0, "of_s": 2.0}
    (folder / "raw" / "progress.jsonl").write_text(json.dumps(step) + "\n")
    core = min(os.sched_getaffinity(0))
    spin = f"taskset --cpu-list {core} timeout 2 sh -c 'while :; do :; done' || true"
    _, kept_up = run_on_host(["sh", "-c", spin], folder, environment={}, on_step=lambda _step: None)
    assert not kept_up.ok


# Real runs, on a kernel in real time whose host machine they have.

LONGEST_S = 600.0

SCENARIO = """
title = "{rate} a link"
description = "Clients."
topology = "{topology}"
traffic = "{traffic}"
duration = "{duration}"

[links]
default      = {{ rate = "{rate}" }}
guard-middle = {{ delay = "{delay}" }}
middle-exit  = {{ delay = "{delay}", loss = "{loss}" }}
"""

# Runs a command up to its first Tor and kills it; tells how many processes there were, and what
# is left of them. The kernel's own threads have no command line.
KILLING = """
import psutil, subprocess, sys, time

def programs():
    return {process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]}

def interfaces():
    return subprocess.check_output(["ip", "-brief", "link"])

before = programs(), interfaces()
call = subprocess.Popen(sys.argv[1:])
while not any(process.info["name"] == "tor" for process in psutil.process_iter(["name"])):
    assert call.poll() is None
    time.sleep(0.1)
began = len(programs() - before[0])
call.kill()
call.wait()
end_s = time.monotonic() + 30
while (left := (programs(), interfaces())) != before and time.monotonic() < end_s:
    time.sleep(0.1)
print("began", began, "left", left[0] - before[0], left[1] == before[1])
"""


@dataclass(frozen=True)
class Call:
    """A call of run.py with the host machine, in a folder of its own; made with its scenario."""

    folder: Path

    @classmethod
    def of(
        cls,
        folder: Path,
        *,
        delay: str = "12.5 ms",
        topology: str = "two_clients",
        **chosen: str,
    ) -> "Call":
        scenario = SCENARIO.format(delay=delay, topology=topology, **chosen)
        (folder / "Mine.toml").write_text(scenario)
        return cls(folder)

    @property
    def command(self) -> list[str]:
        options = ["--machine=host", "--out", str(self.folder / "out")]
        return [str(PROJECT / "run.py"), "scenario", str(self.folder / "Mine.toml"), *options]

    def ends(self, command: list[str]) -> str:
        """Run a command in a kernel that has just booted; what it printed, and its status."""
        environment.ensure_environment(PROJECT)  # in that kernel there is no network to make it
        kernel = ensure_ready(Console(stderr=True), []).kernel.product("linux")
        output = self.folder / "output"
        with user_terminal() as terminal:
            virtual.run_in_machine(
                kernel,
                ["sh", "-c", f"{shlex.join(command)} > {output} 2>&1; echo status $? >> {output}"],
                self.folder,
                memory_mb=1100,
                environment={"HYDRA_CACHE": str(cache.cache_folder())},
                on_step=lambda _step: None,
                terminal=terminal.machine_end,
            )
        return output.read_text()

    def content(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "out" / name).read_text())
        return content

    def failed_checks(self) -> list[str]:
        checks = self.content("summary.json")["checks"]
        return [check["name"] for check in checks if not check["ok"]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """These commands tell the machine that they run in no steps."""
    monkeypatch.setattr(virtual, "STALL_WALL_S", LONGEST_S)


@pytest.mark.alone
@pytest.mark.experiment
def test_a_scenario_that_the_host_is_fast_enough_for(tmp_path: Path) -> None:
    # Long enough for what the generators take to start.
    call = Call.of(tmp_path, traffic="audio", rate="5 Mbit/s", loss="1 %", duration="30 s")
    output = call.ends(call.command)
    summary, manifest = call.content("summary.json"), call.content("manifest.json")
    # Other programs may take the processor from that kernel: then this is what the run says.
    failed = call.failed_checks()
    assert failed in ([], ["processor saturation"])
    assert summary["valid"] == (not failed)
    assert output.endswith("status 3\n" if failed else "status 0\n"), output
    assert summary["machine"] == manifest["machine"]["name"] == "host"
    assert manifest["kernel"] is None
    assert manifest["machine"]["host"]["processor"] == "UML"
    assert summary["transfers"]["completed"] >= 2
    assert 50.0 <= summary["circuit_round_trip_ms"]["median"] < 500.0
    cost = summary["cost"]
    assert cost["virtual_s"] == cost["wall_s"] > 30.0
    assert 0 < cost["cpu_s"] < cost["wall_s"]
    assert cost["delivered_mb"] == pytest.approx(3.0, rel=0.2)


@pytest.mark.experiment
def test_a_scenario_that_the_host_is_too_slow_for(tmp_path: Path) -> None:
    # Without delay Tor's windows let pass whatever the processor can do, and eight clients want
    # more than any can.
    call = Call.of(
        tmp_path,
        traffic="bulk",
        rate="300 Mbit/s",
        loss="0 %",
        delay="0 ms",
        duration="10 s",
        topology="eight_clients",
    )
    output = call.ends(call.command)
    assert output.endswith("status 3\n"), output
    assert "FAILED processor saturation" in output
    assert not call.content("summary.json")["valid"]
    assert "processor saturation" in call.failed_checks()


@pytest.mark.experiment
def test_what_the_documents_show(tmp_path: Path) -> None:
    """Shorter, and with one client, as root, whom sudo makes of a user; which the kernel carries.

    Both lines end in the same command, one of them in a machine of Vagrant's.
    """
    lines = lines_of("test_host.py::test_what_the_documents_show")
    (command,) = {line.rstrip("'").partition("sudo ./run.py ")[2] for line in lines}
    shorter = ["--duration", "4 s", "--set", "parameters.clients=1", "--out", str(tmp_path / "out")]
    output = Call(tmp_path).ends([str(PROJECT / "run.py"), *shlex.split(command), *shorter])
    summary = Call(tmp_path).content("summary.json")
    assert (summary["variant"], summary["machine"]) == ("pctls", "host"), output
    assert summary["shared_link"] == {"connections": 1, "circuits": 1}
    assert output.endswith(f"status {0 if summary['valid'] else 3}\n"), output


@pytest.mark.experiment
def test_killed_while_tor_runs_and_the_next_call_tidies_up(tmp_path: Path) -> None:
    call = Call.of(tmp_path, traffic="audio", rate="5 Mbit/s", loss="1 %", duration="10 s")
    output = call.ends([sys.executable, "-c", KILLING, *call.command])
    *_, told, status = output.splitlines()
    assert status == "status 0", output
    words = told.split()
    assert int(words[1]) >= 5
    assert words[2:] == ["left", "set()", "True"]
    assert list(tmp_path.glob(".out.partial-*"))
    assert results.remove_left_overs(tmp_path / "out")
    assert not list(tmp_path.glob(".out*"))
