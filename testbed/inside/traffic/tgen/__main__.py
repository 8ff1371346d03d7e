"""The program: `python -m testbed.inside.traffic.tgen CONFIG.graphml` prints log lines.

With `--nodes FILE.json` one process runs the generators of many nodes (see `Node`), which behave
as if each had its own process. Exit status: 0 at an end action or SIGTERM, 1 if it can't run, 2 for
a bad configuration.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pyexpat
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.basics.errors import InputError, TestbedError
from testbed.inside.traffic.tgen.action_graph import ActionGraph, read_action_graph
from testbed.inside.traffic.tgen.driver import Driver
from testbed.inside.traffic.tgen.log import Log
from testbed.inside.traffic.tgen.loop import Loop
from testbed.inside.traffic.tgen.transport import MakeSocket, new_socket

# Version of upstream's TGen whose configuration, log lines and protocol this program uses.
# tgentools reads logs of its own version only.
_TGEN_VERSION = "1.1.2"

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Node:
    """One of many generators in a process.

    Attributes:
        name: its host name in its log and towards its peers.
        configuration: path of its configuration.
        log: path of its log.
        network: path of its network namespace (setns(2)); empty for this process's.
    """

    name: str
    configuration: str
    log: str
    network: str


def main(arguments: list[str]) -> int:
    """Run generators until they end, and return the exit status."""
    try:
        match arguments:
            case ["--nodes", file]:
                _run_all([Node(**node) for node in json.loads(Path(file).read_text())])
            case [file]:
                _run(Path(file).expanduser())
            case _:
                raise InputError("usage: tgen CONFIG.graphml, or tgen --nodes FILE.json")
    except TestbedError as error:
        print(f"tgen: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _run(path: Path) -> None:
    hostname = os.environ.get("TGENHOSTNAME", socket.gethostname())
    graph = read_action_graph(path)
    log = Log(graph.options.log_level)
    _play(log, lambda loop: [_driver(graph, path, loop, log, hostname)])


def _run_all(nodes: Sequence[Node]) -> None:
    """Run the generators of many nodes; each may end without stopping the others."""

    def drivers(loop: Loop) -> Sequence[Driver]:
        return [_driver_of(node, loop) for node in nodes]

    _play(Log(), drivers)


def _play(log: Log, make_drivers: Callable[[Loop], Sequence[Driver]]) -> None:
    loop = Loop()
    try:
        for driver in make_drivers(loop):
            driver.start()
        loop.run()
    finally:
        loop.close()
    log.write("message", "main run", "finished main loop, returning 0 from main")


def _driver_of(node: Node, loop: Loop) -> Driver:
    path = Path(node.configuration)
    graph = read_action_graph(path)
    descriptor = os.open(node.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    log = Log(graph.options.log_level, descriptor)
    return _driver(graph, path, loop, log, node.name, _sockets_of(node.network), lambda: None)


def _driver(
    graph: ActionGraph,
    path: Path,
    loop: Loop,
    log: Log,
    hostname: str,
    make_socket: MakeSocket = new_socket,
    on_end: Callable[[], None] | None = None,
) -> Driver:
    expat_version = ".".join(map(str, pyexpat.version_info))
    log.write(
        "message",
        "main run",
        f"Initializing TGen v{_TGEN_VERSION} running Python v{platform.python_version()} and "
        f"expat v{expat_version} on host {hostname} with process id {os.getpid()}",
    )
    log.write(
        "message",
        "main run",
        f"successfully loaded graphml file '{path}' and validated actions: graph is weakly "
        f"connected with {graph.vertices} vertices and {graph.edges} edges",
    )
    return Driver(graph, loop, log, hostname, make_socket, on_end)


def _sockets_of(network: str) -> MakeSocket:
    """Return a function that makes sockets in a network namespace; it leaves the process there."""
    if not network:
        return new_socket
    return partial(_socket_in, os.open(network, os.O_RDONLY | os.O_CLOEXEC))


def _socket_in(network: int) -> socket.socket:
    if _libc.setns(network, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return new_socket()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
