"""The shell: its commands on a fake network, then in real labs, from a pipe and on a terminal.

test_terminal tests the terminal by itself.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from stem import ControllerError
from test_terminal import user_of
from waiting import ends_within_its_time

from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.basics.errors import TestbedError
from testbed.basics.toml_file import PROJECT
from testbed.inside.shell import LabShell
from testbed.plan.model import Plan

PROMPT_WITHIN_S = 300


class Stage:
    """A shell whose lab, Tors and traffic only note what they are asked to do."""

    def __init__(self, *, piped: bool = False) -> None:
        self.plan: Plan = make_plan("One", "vanilla")
        self.calls: list[object] = []
        lab: Any = SimpleNamespace(plan=self.plan, run_here=self.run_here)
        tor = SimpleNamespace(controller=SimpleNamespace(msg=self.msg))
        network: Any = SimpleNamespace(tors={"exit1": tor})
        self.shell = LabShell(lab, network, self.playing, piped)

    def run_here(self, node: str, command: str, *, keyboard: bool) -> int:
        self.calls.append((node, command, keyboard))
        return 0

    def msg(self, command: str) -> str:
        if command == "NONSENSE":
            raise ControllerError("Unrecognized command")
        return f"answer to {command}"

    @contextmanager
    def playing(self) -> Iterator[None]:
        self.calls.append("traffic begins")
        yield
        self.calls.append("traffic ends")


def test_a_nodes_command_and_names_for_addresses() -> None:
    stage = Stage()
    stage.shell.onecmd("client1 ping -c 1 guard1 | tail -n 1")
    stage.shell.onecmd("authority1 ping middle1x exit1")
    assert stage.calls == [
        ("client1", "ping -c 1 10.0.2.1 | tail -n 1", True),
        ("authority1", "ping middle1x 10.0.4.1", True),
    ]


def test_a_commands_input_is_not_the_pipe_that_the_shells_commands_come_from() -> None:
    stage = Stage(piped=True)
    stage.shell.onecmd("client1 cat")
    assert stage.calls == [("client1", "cat", False)]


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("cilent1 ip addr", 'cilent1 is neither a node nor a command: did you mean "client1"?'),
        ("client1", "client1 needs a command, such as: client1 ip addr"),
        ("tor", "tor NODE COMMAND, where NODE is one of: exit1"),
        ("tor server1 GETINFO version", "tor NODE COMMAND, where NODE is one of: exit1"),
        ("tor exit1 GETINFO version", "answer to GETINFO version"),
        ("tor exit1 NONSENSE", "Unrecognized command"),
        ("traffic", "traffic start, or traffic stop"),
        ("nodes", "guard1      10.0.2.1  10.1.2.1"),
        (
            "help tor",
            "Send a command to a Tor's control port, such as: tor exit1 GETINFO orconn-status.",
        ),
    ],
)
def test_a_commands_output(line: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(piped=True)
    assert not stage.shell.onecmd(line), "it goes on"
    assert output in capsys.readouterr().out
    assert stage.calls == []


def test_help_names_all_that_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    Stage().shell.onecmd("help")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "nodes" in line]
    assert line.split() == ["circuits", "exit", "help", "links", "nodes", "tor", "traffic"]


def test_an_error_of_the_testbed_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage()

    def failing(*_arguments: object, **_options: object) -> int:
        raise TestbedError("nothing listens")

    monkeypatch.setattr(stage.shell._lab, "run_here", failing)
    assert not stage.shell.onecmd("client1 true")
    assert capsys.readouterr().out == "nothing listens\n"


def test_traffic_is_begun_and_ended_and_never_twice(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.shell.onecmd("traffic start")
    assert capsys.readouterr().out == "client1: bulk, client2: bulk\n"
    stage.shell.onecmd("traffic start")
    stage.shell.onecmd("traffic stop")
    stage.shell.onecmd("traffic stop")
    assert stage.calls == ["traffic begins", "traffic ends"] * 2
    stage.shell.onecmd("traffic start")
    stage.shell.close()
    assert stage.calls == ["traffic begins", "traffic ends"] * 3


def test_tab_completes_nodes_and_commands() -> None:
    shell = Stage().shell
    assert shell.completenames("c") == ["circuits", "client1", "client2"]
    assert shell.completenames("E") == []


@pytest.mark.parametrize("line", ["exit", "EOF"])
def test_the_end(line: str) -> None:
    assert Stage().shell.onecmd(line)


# In real labs.

COMMAND = [sys.executable, "-m", "commands", "shell", "One", "--variant", "pctls"]

TYPED = """
links
circuits
client1 ping -c 2 -i 0.2 guard1
exit1 ping -c 2 -i 0.2 middle1
tor exit1 GETINFO orconn-status
server1 cat /proc/sys/net/ipv4/tcp_congestion_control
traffic start
client1 sleep 3
circuits
nonsense
exit
nodes
"""


@pytest.mark.experiment
def test_commands_from_a_pipe() -> None:
    with subprocess.Popen(
        [*COMMAND, "--traffic", "audio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        text=True,
    ) as program:
        said, errors = program.communicate(TYPED, timeout=PROMPT_WITHIN_S)
    assert program.returncode == 0, said + errors
    assert errors == ""
    rows = [line.split() for line in said.splitlines()]
    assert ["middle1-eth2", "exit1-eth0", "300", "12.5", "0.1", "1000"] in rows
    circuits = [row for row in rows if row[-4:-1] == ["guard1", "middle1", "exit1"]]
    assert [row[0] for row in circuits] == ["client1", "client1"]
    assert [row[-1] for row in circuits] == ["0", "1"], "one stream runs once there is traffic"
    assert "2 packets transmitted, 2 received, 0% packet loss" in said
    # In real time: 12.5 ms in each direction between exit and middle.
    (_, least_ms) = re.findall(r"rtt min/avg/max/mdev = ([\d.]+)/", said)
    assert 25.0 <= float(least_ms) < 40.0
    assert len(re.findall(r"^\$[0-9A-F]{40}~middle1 CONNECTED$", said, re.MULTILINE)) == 2
    assert ["cubic"] in rows
    assert "client1: bulk, client2: audio" in said
    assert "nonsense is neither a node nor a command" in said
    assert said.count("management") == 0, "nothing after exit is carried out"
    # Only its own: tests beside this one may run shells, too.
    assert list(cache.subfolder("runs").glob(f".shell.partial-{program.pid}*")) == []


@pytest.mark.experiment
def test_on_a_terminal_up_to_kill_9() -> None:
    with user_of(COMMAND) as user:
        before = user.settings()
        user.sees(b"lab> ")
        user.types(b"client1 ping guard1\r")
        user.sees(b"icmp_seq=2")
        user.types(b"\x03")
        assert b"0% packet loss" in user.sees(b"lab> ")
        user.types(b"server1 iperf3 -s -D; iperf3 -s -p 7000 > /dev/null & sleep 1\r")
        user.sees(b"lab> ")
        user.types(b"exit1 ping server1\r")
        user.sees(b"icmp_seq=2")
        user.types(b"\x1a\x03")  # Ctrl-Z suspends nothing here, and Ctrl-C ends only the ping
        assert b"0% packet loss" in user.sees(b"lab> ")
        user.types(b"server1 ss -Hltn sport = :5201 or sport = :7000\r")
        assert user.sees(b"lab> ").count(b"LISTEN") == 2, "they stay until the shell ends"
        user.types(b"half a line\x03")
        user.sees(b"lab> ")
        user.types(b"client1 stty size\r")
        user.sees(b"33 99\r\n")
        user.types(b"client1 bash\r")
        user.sees(b"# ")
        user.types(b"ping 10.0.2.1\r")
        user.sees(b"icmp_seq=1")
        user.types(b"\x1a")
        user.sees(b"Stopped")
        user.types(b"fg\r")
        user.sees(b"icmp_seq=3")
        user.types(b"\x03")
        user.sees(b"# ")
        user.types(b"exit\r")
        user.sees(b"lab> ")
        program = psutil.Process(user.process.pid)
        processes = [program, *program.children(recursive=True)]
        assert len(processes) > 5
        assert user.settings() != before
        program.send_signal(signal.SIGKILL)
        ends_within_its_time(processes)
        assert user.settings() == before
