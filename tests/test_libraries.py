"""Libraries where they are used in a way of our own: stem's answers, pyroute2's netem.

The control port is a socket of these tests, which answers as long as it is told to.
"""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem, tcmsg
from stem.control import EventType
from stem.response.events import LogEvent

from testbed.errors import TestbedError
from testbed.lab import links
from testbed.plan import make_plan
from testbed.tor import network

ANSWERS = {
    b"PROTOCOLINFO": b"250-PROTOCOLINFO 1\r\n250-AUTH METHODS=NULL\r\n250 OK\r\n",
    b"AUTHENTICATE": b"250 OK\r\n",
    b"SETEVENTS": b"250 OK\r\n650 NOTICE hello\r\n",
    b"GETCONF": b"250 __OwningControllerProcess\r\n",
}


@pytest.fixture
def control_port(tmp_path: Path) -> Iterator[Path]:
    """A Tor that lets a controller in and then says no more."""
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as questions:
                for question in questions:
                    connection.sendall(ANSWERS.get(question.split()[0], b""))

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        yield path


def test_a_tor_that_gives_no_answer(control_port: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ANSWER_TIMEOUT_S", 0.2)
    with (
        network._connected("guard1", control_port) as controller,
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


def test_events_need_no_thread_of_each_tor(control_port: Path) -> None:
    """stem's own would look for them twenty times a second."""
    with network._connected("guard1", control_port):
        time.sleep(0.1)
        threads = [thread.name for thread in threading.enumerate()]
    assert threads.count("Tor listener") >= 1
    assert "Event notifier" not in threads


def test_listeners_get_events_and_may_ask(
    control_port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, b"GETINFO", b"250-version=0.4.9.11\r\n250 OK\r\n")
    heard: list[str] = []
    with network._connected("guard1", control_port) as controller:

        def on_log(event: LogEvent) -> None:
            heard.append(f"{event.message} {controller.get_conf('__OwningControllerProcess', '')}")

        controller.add_event_listener(on_log, EventType.NOTICE)
        end_s = time.monotonic() + 10
        while not heard and time.monotonic() < end_s:
            time.sleep(0.01)
    assert heard == ["hello "]
