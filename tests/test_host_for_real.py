"""Real runs of the host machine, on a kernel in real time.

That kernel is the user-mode one, booted without virtual time: it has netem on every host.
"""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from shown_elsewhere import lines_of

from testbed import results
from testbed.basics import cache
from testbed.basics.toml_file import PROJECT
from testbed.machines import stalls
from testbed.machines.terminal import user_terminal
from testbed.machines.virtual import VirtualMachine, run_in_machine
from testbed.setup import environment
from testbed.setup.ready import ensure_ready

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

# Runs a command until its first Tor, and kills it; prints how many processes there were, and what
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
    """A call of run.py with the host machine, in a folder of its own."""

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
        """Run a command in a newly booted kernel, and return its output and its status."""
        environment.ensure_environment(PROJECT)  # that kernel has no network to make it
        kernel = ensure_ready(Console(stderr=True), []).kernel.product("linux")
        output = self.folder / "output"
        with user_terminal() as terminal:
            run_in_machine(
                VirtualMachine(kernel, memory_mb=1100, terminal=terminal.machine_end),
                ["sh", "-c", f"{shlex.join(command)} > {output} 2>&1; echo status $? >> {output}"],
                self.folder,
                environment={"HYDRA_CACHE": str(cache.cache_folder())},
                on_step=lambda _step: None,
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
    """These commands report no steps to the machine that they run in."""
    monkeypatch.setattr(stalls, "STALL_WALL_S", LONGEST_S)


@pytest.mark.alone
@pytest.mark.experiment
def test_a_scenario_that_the_host_is_fast_enough_for(tmp_path: Path) -> None:
    # Long enough, as the generators take time to start.
    call = Call.of(tmp_path, traffic="audio", rate="5 Mbit/s", loss="1 %", duration="30 s")
    output = call.ends(call.command)
    summary, manifest = call.content("summary.json"), call.content("manifest.json")
    # Other programs may take that kernel's processor; then this check must fail.
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
    assert cost["cores"] is None
    assert 0 < cost["cpu_s"] < cost["wall_s"]
    assert cost["delivered_mb"] == pytest.approx(3.0, rel=0.2)


@pytest.mark.experiment
def test_a_scenario_that_the_host_is_too_slow_for(tmp_path: Path) -> None:
    # Without delay Tor's windows limit nothing, and eight clients want more than any processor can
    # do.
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
    """The shown command, made shorter, with one client, and by root, as under sudo.

    Both lines have the same command; one runs it in Vagrant's machine.
    """
    lines = lines_of("test_host_for_real.py::test_what_the_documents_show")
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
