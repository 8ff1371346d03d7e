"""A lab's nodes: programs, sockets and questions to the kernel in their network namespaces."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from pyroute2.netlink import nlmsg

from testbed.basics.errors import TestbedError
from testbed.inside.lab.namespaces import Interface, Namespaces

Made = TypeVar("Made")
Netlink = TypeVar("Netlink")

SERVER_TIMEOUT_S = 30.0
SERVER_POLL_INTERVAL_S = 0.05


class Nodes:
    """Network namespaces by node, each with nothing but a loopback until something is added."""

    def __init__(self, names: Collection[str]) -> None:
        self._namespaces = Namespaces(names)

    def close(self) -> None:
        """Release the namespaces; each ends with the last program in it."""
        self._namespaces.close()

    def start(
        self,
        node: str,
        command: Sequence[str | Path],
        *,
        output: IO[bytes] | int = subprocess.DEVNULL,
        errors: IO[bytes] | int = subprocess.STDOUT,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a node's network namespace; by default stderr goes to `output`."""
        return self._namespaces.inside(
            node,
            lambda: subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                close_fds=False,  # Python's descriptors close on exec anyway, and there are many
            ),
        )

    def run(self, node: str, command: Sequence[str | Path]) -> str:
        """Run a program in a node and return its output.

        Raises:
            subprocess.CalledProcessError: it failed; the error has its output.
        """
        with self.start(node, command, output=subprocess.PIPE) as process:
            output, _ = process.communicate()
        text = output.decode(errors="replace")
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, list(command), text)
        return text

    def run_here(self, node: str, command: str, *, keyboard: bool) -> int:
        """Run a shell command in a node on this process's terminal and return its exit status.

        The command gets its own process group, as a shell's job does. Ctrl-C then reaches only this
        command, not programs that earlier commands left in the background.

        Args:
            keyboard: whether the command also reads the keyboard.
        """

        def begun() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                ["sh", "-c", command],
                stdin=None if keyboard else subprocess.DEVNULL,
                process_group=0,
            )

        with self._namespaces.inside(node, begun) as process, _in_foreground(process.pid):
            while True:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                if not os.WIFSTOPPED(status):
                    process.returncode = os.waitstatus_to_exitcode(status)
                    return process.returncode
                os.killpg(process.pid, signal.SIGCONT)  # Ctrl-Z: nothing here could resume it

    def wait_for_server(self, node: str, port: int) -> None:
        """Wait until a program in a node listens on a TCP port.

        Raises:
            TestbedError: no program does in time.
        """
        self._wait_for_listener(node, f"sport = :{port}", port)

    def _wait_for_listener(self, node: str, which: str, port: int) -> None:
        """Wait until `ss` lists a listening socket in a node that matches the filter `which`."""
        deadline_s = time.monotonic() + SERVER_TIMEOUT_S
        while not self.run(node, ["ss", "-Hltn", which]).strip():
            if time.monotonic() > deadline_s:
                raise TestbedError(f"nothing listens at {node}'s port {port}: see logs/")
            time.sleep(SERVER_POLL_INTERVAL_S)

    def inside(self, node: str, make: Callable[[], Made]) -> Made:
        """Call `make` in a node's network namespace; the sockets that it opens stay there."""
        return self._namespaces.inside(node, make)

    def inside_each(self, nodes: Collection[str], make: Callable[[str], None]) -> None:
        """Call `make` for each node, in its namespace and with its interfaces in /sys."""
        self._namespaces.inside_each(nodes, make)

    def configure(self, node: str, requests: Sequence[nlmsg]) -> None:
        """Send requests (`testbed.inside.lab.requests`) to a node's network configuration."""
        self._namespaces.ask(node, requests)

    def join(self, pairs: Sequence[tuple[Interface, Interface]]) -> None:
        """Connect nodes by pairs of virtual Ethernet interfaces."""
        self._namespaces.join(pairs)

    def take(self, devices: Mapping[str, Interface]) -> None:
        """Move the machine's own interfaces into nodes, by their names in the machine."""
        self._namespaces.take(devices)

    def answer(
        self, node: str, kind: Callable[[], Netlink], question: Callable[[Netlink], Made]
    ) -> Made:
        """Ask a node's kernel over netlink and return the answer.

        Args:
            kind: class of the netlink socket, such as pyroute2's `IPRoute`.
            question: called with a socket in the node's network namespace, in the one thread that
                may use it; it reads the whole answer.
        """
        return self._namespaces.answer(node, kind, question).result()

    async def answer_meanwhile(
        self, node: str, kind: Callable[[], Netlink], question: Callable[[Netlink], Made]
    ) -> Made:
        """Do what `answer` does without blocking the event loop."""
        return await asyncio.wrap_future(self._namespaces.answer(node, kind, question))

    def namespace(self, node: str) -> str:
        """The path of a node's network namespace; empty if it has none of its own."""
        return self._namespaces.path(node)


@contextmanager
def _in_foreground(group: int) -> Iterator[None]:
    """Give a process group this process's terminal, and take it back at the end."""
    _give_terminal_to(group)
    try:
        yield
    finally:
        _give_terminal_to(os.getpgrp())


def _give_terminal_to(group: int) -> None:
    # Taking the terminal from the background raises SIGTTOU, which would stop this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        os.tcsetpgrp(0, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
