"""Watches what relays' work costs this host's processor, with real Tors on the bare host.

The network of `SCENARIO` runs over the loopback, in real time. Its relays are watched at several
loads, then while circuits are extended, then while TLS handshakes are made. A thread's time is the
kernel's own count (/proc/PID/task/TID/schedstat); count_calls.c counts calls and bytes as the
lab's kernel does.
"""

import json
import os
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from testbed import results
from testbed.asked.plans import make_plan
from testbed.basics import cache
from testbed.basics.errors import TestbedError
from testbed.inside.generators import playing_traffic
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.configuration import OR_PORT
from testbed.inside.tor.control import ControlConnection
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import RunningTor
from testbed.inside.tor.starting import bootstrapped_tors
from testbed.plan.model import Plan, PlannedNode
from testbed.runs.bare_host import LoopbackLab, run_on_bare_host
from testbed.runs.relay_costs import CARRY, EXTEND, HANDSHAKE, ROLES, Watched
from testbed.runs.runner import plan_need
from testbed.setup.ready import ensure_ready

SCENARIO, VARIANT = "NoDropping", "vanilla"

CLIENT_KB_PER_S = (32, 128, 512, 10**6)
"""Each client's limit at a load, so that relays move few cells at a time or many. The last is
above what a core carries."""

SETTLING_S, WINDOW_S = 2.0, 5.0
CIRCUITS, AT_ONCE = 400, 20
HANDSHAKES = 400
LIMIT_S = 60.0
LOOK_INTERVAL_S = 0.05

_WATCHED = "watched.json"
_COUNTER = Path(__file__).with_name("count_calls.c")
_COUNT_IN = "COUNT_CALLS_IN"
_COUNTED = struct.Struct("@QQQ")
"""Calls, and bytes read and written, as count_calls.c writes them."""


def watch_relays(messages: Console) -> list[Watched]:
    """Watch the relays of a network at work, for about a minute; any user may call this.

    Raises:
        TestbedError: the network failed.
    """
    plan = make_plan(SCENARIO, VARIANT)
    tor = ensure_ready(messages, [plan_need(plan)]).tors[plan_need(plan)]
    # Tor exempts private addresses, as those of the loopback, from limits.
    torrc = {**plan.tor.torrc_all, "CountPrivateBandwidth": ["1"]}
    plan = plan.model_copy(update={"tor": plan.tor.model_copy(update={"torrc_all": torrc})})
    with results.staging(cache.subfolder("runs") / "relay-work") as directory:
        words = ("testbed.runs.relay_work", "--window-s", str(WINDOW_S))
        # Packets of 64 kB, as a network card's offloads let the kernel see them.
        run_on_bare_host(words, plan, tor, directory)
        return [Watched(**row) for row in json.loads((directory / _WATCHED).read_text())]


class _Watch:
    """Watches a plan's relays in windows."""

    def __init__(self, plan: Plan, network: TorNetwork) -> None:
        self.rows: list[Watched] = []
        self._plan = plan
        self._network = network
        self._relays = {node.name: network[node.name] for node in plan.of_kind("relay")}

    def carrying(self, window_s: float) -> None:
        """Watch them at each load."""
        for limit_kb_per_s in CLIENT_KB_PER_S:
            for client in self._plan.clients:
                rate = f"{limit_kb_per_s} KB"
                limits = {"BandwidthRate": rate, "BandwidthBurst": rate}
                self._network[client].controller.set_options(limits)
            time.sleep(SETTLING_S)
            with self._window(CARRY, self._relays, limit_kb_per_s=limit_kb_per_s):
                time.sleep(window_s)

    def extending(self) -> None:
        """Watch them while a client extends circuits through a guard, the middle and the exit."""
        path = [_first(self._plan, role).name for role in ROLES]
        ids = [self._network.fingerprints[name] for name in path]
        client = self._network[self._plan.clients[0]].controller
        with self._window(EXTEND, path, events=CIRCUITS):
            for _ in range(0, CIRCUITS, AT_ONCE):
                circuits = {client.extend_circuit("0", ids) for _ in range(AT_ONCE)}
                _wait_until_built(client, circuits)
                for circuit in circuits:
                    client.close_circuit(circuit)

    def shaking_hands(self) -> None:
        """Watch the middle while TLS connections to it are opened and closed."""
        middle = _first(self._plan, "middle")
        with self._window(HANDSHAKE, [middle.name], events=HANDSHAKES):
            for _ in range(HANDSHAKES):
                _shake_hands(middle)

    @contextmanager
    def _window(self, doing: str, relays: Iterable[str], **known: int) -> Iterator[None]:
        """Watch some relays; what is known of the window goes into their rows."""
        before = {name: _counters(self._relays[name]) for name in relays}
        yield
        for name, then in before.items():
            now = _counters(self._relays[name])
            did = {key: value - then[key] for key, value in now.items()}
            self.rows.append(Watched(self._relays[name].node.role, doing, **did, **known))


def _first(plan: Plan, role: str) -> PlannedNode:
    return next(node for node in plan.nodes if node.role == role)


def _counters(tor: RunningTor) -> dict[str, int]:
    """What `Watched` counts."""
    process = Path("/proc") / str(tor.process.pid)
    times_ns = {
        int(task.name): int((task / "schedstat").read_text().split()[0])
        for task in (process / "task").iterdir()
    }
    main_ns = times_ns.pop(tor.process.pid)
    calls, read_bytes, _written_bytes = _COUNTED.unpack(
        (Path(os.environ[_COUNT_IN]) / str(tor.process.pid)).read_bytes()
    )
    return {
        "lasted_ns": time.monotonic_ns(),
        "main_ns": main_ns,
        "workers_ns": sum(times_ns.values()),
        "read_bytes": read_bytes,
        "calls": calls,
    }


def _wait_until_built(client: ControlConnection, circuits: set[str]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while circuits - {one.id for one in client.get_circuits() if one.status == "BUILT"}:
        if time.monotonic() > end_s:
            raise TestbedError(f"a circuit took more than {LIMIT_S:g} s on the bare host")
        time.sleep(LOOK_INTERVAL_S)


def _shake_hands(relay: PlannedNode) -> None:
    """Open a TLS connection, whose certificate nobody needs to check, and close it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((relay.address, OR_PORT), timeout=LIMIT_S) as connection,
        context.wrap_socket(connection),
    ):
        pass


def counting_calls(folder: Path) -> dict[str, str]:
    """The environment variables with which programs count their calls, in files of this folder.

    Raises:
        TestbedError: there is no C compiler.
    """
    library = folder / "count_calls.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_COUNTER), "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")
        raise TestbedError(f"no C compiler made {_COUNTER.name}: {error} {said}") from error
    return {_COUNT_IN: str(folder), "LD_PRELOAD": str(library)}


def main() -> None:
    """Run as `python -m testbed.runs.relay_work`, with a plan on the loopback in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument("--window-s", type=float, required=True)
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    logs = given.directory / "logs"
    lab = LoopbackLab(plan)
    with errors_reported(given.directory), ExitStack() as stack:
        os.environ |= counting_calls(given.state)
        record = stack.enter_context(Record(given.directory / "raw"))
        network = stack.enter_context(bootstrapped_tors(lab, given.tor, given.state, logs))
        watch = _Watch(plan, network)
        Circuits(network, plan, record).build("measured")
        with playing_traffic(lab, given.tgen, given.state, logs, record):
            watch.carrying(given.window_s)
        watch.extending()
        watch.shaking_hands()
        if ended := network.ended():
            raise TestbedError(f"{', '.join(ended)} ended on the bare host: see logs/")
        (given.directory / _WATCHED).write_text(json.dumps([asdict(row) for row in watch.rows]))


if __name__ == "__main__":
    main()
