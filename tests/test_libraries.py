"""Libraries where they are used in a way of our own: stem's answers, pyroute2's netem.

The control port is a socket of these tests, which answers as long as it is told to.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem, tcmsg
from stem import SocketClosed
from stem.control import EventType
from stem.response.events import LogEvent
from waiting import wait_for

from testbed.asked.plans import make_plan
from testbed.basics.errors import TestbedError
from testbed.inside.lab import links
from testbed.inside.tor import control
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor

ANSWERS = {
    b"PROTOCOLINFO": b"250-PROTOCOLINFO 1\r\n250-AUTH METHODS=NULL\r\n250 OK\r\n",
    b"AUTHENTICATE": b"250 OK\r\n",
    b"SETEVENTS": b"250 OK\r\n650 NOTICE hello\r\n",
    b"GETCONF": b"250 __OwningControllerProcess\r\n",
}
GOES = b"it ends instead"


@pytest.fixture
def control_port(tmp_path: Path) -> Iterator[Path]:
    """A Tor that lets a controller in and then says no more."""
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer(connection: socket.socket) -> None:
            with connection, connection.makefile("rb") as questions:
                for question in questions:
                    said = ANSWERS.get(question.split()[0], b"")
                    if said == GOES:
                        return
                    connection.sendall(said)

        def let_in() -> None:
            with suppress(OSError):  # until the test is over
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=answer, args=[connection], daemon=True).start()

        threading.Thread(target=let_in, name="answers", daemon=True).start()
        yield path


def test_a_tor_that_gives_no_answer(control_port: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 0.2)
    with (
        control.connected("guard1", control_port) as controller,
        pytest.raises(TestbedError, match=r"^guard1: Tor hangs: no answer on its control"),
    ):
        controller.get_info("version")


def test_others_who_use_pyroute2_have_its_own_netem() -> None:
    assert plugins["netem"] is sched_netem


def test_netem_is_told_its_delay_and_seed() -> None:
    """Also after pyroute2 has made a request of its own kind."""
    own = tcmsg()
    own["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", sched_netem.get_parameters({}))]
    own.encode()
    link = make_plan("SharedDropping", "vanilla").links_between("middle", "exit")[0]
    message = links._qdisc(7, 1, 2, "netem", links._netem_options(link.there, seed=2**62 + 5))
    message.encode()
    # Length 12, the attribute's number, 64 bits.
    assert struct.pack("=HHq", 12, 10, 12_500_000) in message.data
    assert struct.pack("=HHQ", 12, 14, 2**62 + 5) in message.data


def test_control_connections_need_no_thread_of_each_tor(
    control_port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stem's own would have two each, of which one looks for events twenty times a second."""
    monkeypatch.setitem(ANSWERS, b"GETINFO", b"250-version=0.4.9.11\r\n250 OK\r\n")
    with control.connected("guard1", control_port):  # begins the threads that all share
        before = {thread.name for thread in threading.enumerate() if "answer" not in thread.name}
        with ExitStack() as stack:
            controllers = [
                stack.enter_context(control.connected(f"client{number}", control_port))
                for number in range(20)
            ]
            told = {controller.get_info("version") for controller in controllers}
            after = {thread.name for thread in threading.enumerate() if "answer" not in thread.name}
    assert told == {"0.4.9.11"}
    assert after == before


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_what_a_tor_says_is_cut_into_messages(size: int) -> None:
    """In whatever pieces it comes; of data, a line may look like the message's end."""
    said = [
        b"250 OK\r\n",
        b"250-version=1\r\n250 OK\r\n",
        b"250+ns/all=\r\nr x\r\n250 OK\r\n..\r\n+\r\n.\r\n250 OK\r\n",
        b"650 NOTICE hello\r\n",
        b"?\r\n",
    ]
    whole = b"".join(said)
    framing = control.Framing()
    pieces = [whole[place : place + size] for place in range(0, len(whole), size)]
    assert [one for piece in pieces for one in framing.messages(piece)] == said
    assert list(framing.messages(b"250 O")) == []


def test_a_tor_that_goes_away(control_port: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, b"GETINFO", b"")
    with control.connected("guard1", control_port) as controller:
        monkeypatch.setitem(ANSWERS, b"GETINFO", GOES)
        for _ in range(2):
            with pytest.raises(SocketClosed):
                controller.get_info("version")


def test_listeners_get_events_and_may_ask(
    control_port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, b"GETINFO", b"250-version=0.4.9.11\r\n250 OK\r\n")
    greeting = ANSWERS[b"SETEVENTS"]
    monkeypatch.setitem(ANSWERS, b"SETEVENTS", b"250 OK\r\n")  # none for logging in
    heard: list[str] = []
    with control.connected("guard1", control_port) as controller:
        monkeypatch.setitem(ANSWERS, b"SETEVENTS", greeting)

        def on_log(event: LogEvent) -> None:
            heard.append(f"{event.message} {controller.get_conf('__OwningControllerProcess', '')}")

        controller.add_event_listener(on_log, EventType.NOTICE)
        end_s = time.monotonic() + 10
        while not heard and time.monotonic() < end_s:
            time.sleep(0.01)
    assert heard == ["hello "]


def test_a_listener_that_fails_is_told(control_port: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stem would only log it, and a run would lack rows without a word."""
    monkeypatch.setitem(ANSWERS, b"GETINFO", b"250-version=0.4.9.11\r\n250 OK\r\n")
    with control.connected("guard1", control_port) as controller:
        network = TorNetwork(
            {"guard1": cast(RunningTor, SimpleNamespace(controller=controller))}, {}
        )
        network.check()
        controller.add_event_listener(lambda _event: [][1], EventType.NOTICE)
        wait_for(lambda: controller.failure is not None, "the event")
        with pytest.raises(TestbedError, match=r"^guard1: its event 'NOTICE hello': IndexError"):
            network.check()
