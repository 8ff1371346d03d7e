"""The program: `python -m testbed.traffic.tgen CONFIG.graphml`, log lines on standard output.

Exit status: 0 at an end action or SIGTERM, 1 if it can't run, 2 for a bad configuration.
"""

from __future__ import annotations

import os
import platform
import pyexpat
import socket
import sys
from pathlib import Path

from testbed.errors import InputError, TestbedError
from testbed.traffic.tgen.action_graph import read_action_graph
from testbed.traffic.tgen.driver import Driver
from testbed.traffic.tgen.log import Log
from testbed.traffic.tgen.loop import Loop

# The version of upstream whose configuration, log lines and protocol this program speaks; tgentools
# reads the logs of its own version only.
_TGEN_VERSION = "1.1.2"


def main(arguments: list[str]) -> int:
    """Run one generator until it ends; the exit status."""
    try:
        if len(arguments) != 1:
            raise InputError("usage: tgen CONFIG.graphml")
        _run(Path(arguments[0]).expanduser())
    except TestbedError as error:
        print(f"tgen: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _run(path: Path) -> None:
    graph = read_action_graph(path)
    log = Log(graph.options.log_level)
    expat_version = ".".join(map(str, pyexpat.version_info))
    hostname = os.environ.get("TGENHOSTNAME", socket.gethostname())
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
    loop = Loop()
    try:
        Driver(graph, loop, log).start()
        loop.run()
    finally:
        loop.close()
    log.write("message", "main run", "finished main loop, returning 0 from main")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
