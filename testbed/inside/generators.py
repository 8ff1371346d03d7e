"""The programs that make traffic: every server's and client's generator, and competing streams."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.inside.lab.network import Lab
from testbed.inside.recording import Record
from testbed.inside.tor.configuration import socks_proxy
from testbed.inside.traffic.competing import competing_servers, competing_streams
from testbed.inside.traffic.models import generator_seed, write_client, write_server
from testbed.inside.traffic.tgen_log import generator_log

TGEN_PORT = 8888
STOP_TIMEOUT_S = 10.0


@contextmanager
def playing_traffic(
    lab: Lab, tgen: Sequence[str], state: Path, logs: Path, record: Record
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run every server's and client's generator and the competing streams; end them in reverse.

    Those of this part of the plan; no client begins before all parts' servers and streams.

    Yields:
        The programs by the names of their logs: one for each node, such as "tgen-client1", or one
        for all servers and one for all clients, such as "tgen-clients".
    """
    plan = lab.plan
    players = _OneEach if plan.tgen else _Together
    with ExitStack() as stack:

        def play(group: str, configurations: Mapping[str, Path]) -> dict[str, Program]:
            programs = players(lab, tgen, state, logs, stack).play(group, configurations)
            for name, process in programs.items():
                stack.callback(_stop, process, name, record)
            return programs

        servers = [server.name for server in plan.here("server")]
        programs = play("servers", {one: write_server(state, one, TGEN_PORT) for one in servers})
        for server in servers:
            lab.wait_for_server(server, TGEN_PORT)
        stack.enter_context(competing_servers(lab, logs))
        lab.meeting.exchange()
        programs |= stack.enter_context(competing_streams(lab, logs))
        if plan.competing:
            lab.meeting.exchange()
        programs |= play(
            "clients",
            {
                client: write_client(
                    state,
                    client,
                    model,
                    server=(str(plan.node(plan.server_of(client)).address), TGEN_PORT),
                    socks_proxy=socks_proxy(plan.node(client)),
                    seed=generator_seed(plan.seed, client),
                )
                for client, model in plan.traffic_by_client.items()
                if plan.is_here(client)
            },
        )
        yield programs


Program = subprocess.Popen[bytes]


@dataclass(frozen=True)
class _OneEach:
    """A generator process for each node, as generators other than ours need it."""

    lab: Lab
    tgen: Sequence[str]
    state: Path
    logs: Path
    stack: ExitStack

    def play(self, _group: str, configurations: Mapping[str, Path]) -> dict[str, Program]:
        """Start the generators of a group; returns them by the names of their logs."""
        return {f"tgen-{node}": self._start(node, path) for node, path in configurations.items()}

    def _start(self, node: str, configuration: Path) -> Program:
        log = self.stack.enter_context(generator_log(self.logs, node).open("wb"))
        # The name in its log, by which tgentools distinguishes logs.
        environment = {**os.environ, "TGENHOSTNAME": node}
        return self.lab.start(
            node, [*self.tgen, configuration], output=log, environment=environment
        )


class _Together(_OneEach):
    """A generator process for each group: a Python for each node would take most of the memory."""

    def play(self, group: str, configurations: Mapping[str, Path]) -> dict[str, Program]:
        """Start the generators of a group; each node's log exists before its generator opens it."""
        if not configurations:
            return {}
        for node in configurations:
            generator_log(self.logs, node).touch()
        nodes = [
            {
                "name": node,
                "configuration": str(configuration),
                "log": str(generator_log(self.logs, node)),
                "network": self.lab.namespace(node),
            }
            for node, configuration in configurations.items()
        ]
        file = self.state / f"{group}.tgen.json"
        file.write_text(json.dumps(nodes))
        log = self.stack.enter_context(generator_log(self.logs, group).open("wb"))
        first = next(iter(configurations))
        return {f"tgen-{group}": self.lab.start(first, [*self.tgen, "--nodes", file], output=log)}


def _stop(process: Program, name: str, record: Record) -> None:
    if process.poll() is not None:
        record.note(f"{name} ended by itself with status {process.returncode}")
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
