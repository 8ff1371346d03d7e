"""A plan's Tors and generators on the host itself: over loopback, in real time, without emulation.

The bench compares a run's cost with it. It is no run: nothing that it measures is a result.
"""

import ipaddress
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from testbed.basics.errors import TestbedError
from testbed.basics.steps import dying_with_us, end_group
from testbed.basics.toml_file import PROJECT
from testbed.inside.generators import playing_traffic
from testbed.inside.lab.meeting import Meeting
from testbed.inside.lab.network import Lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.circuits import Circuits
from testbed.inside.tor.starting import bootstrapped_tors
from testbed.inside.traffic.tgen_log import generator_log, read_heartbeats
from testbed.machines.watching import failure, reported_error
from testbed.plan.model import Plan, PlannedNode
from testbed.setup.builds import Build
from testbed.setup.environment import variables

TGEN = (sys.executable, "-m", "testbed.inside.traffic.tgen")
DELIVERED = "delivered.json"
LOOK_INTERVAL_S = 0.25
LEAST_MB_PER_S = 0.5
"""A lower rate means that something is wrong: a core delivers some 20 MB/s."""
GRACE_S = 10.0

MTU_BYTES = 1500
"""The MTU of an emulated link, as of any Ethernet."""

OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
"""A command that gives a program a network with only a loopback, where ordinary users may."""

PLAIN_LOOPBACK = "ip link set lo up"
SINGLE_PACKETS = f"{PLAIN_LOOPBACK} mtu {MTU_BYTES} gso_max_segs 1"
"""Makes the loopback carry TCP's segments one by one, as an emulated link does."""

LOOPBACK_ONLY = {"OutboundBindAddress": ["127.0.0.1"]}
"""For every torrc: from this address no connection can leave the host (RFC 1122)."""


@dataclass(frozen=True)
class BareCost:
    """The cost of a network on the bare host, including its set-up.

    Attributes:
        cpu_s: processor time of the Tors, the generators, and the process around them.
        delivered_mb: what the clients received, nearly all payload, 1 MB = 10^6 bytes.
        packet_bytes: the mean size of packets on the loopback, including other programs' packets
            where the network isn't its own.
    """

    cpu_s: float
    wall_s: float
    delivered_mb: float
    packet_bytes: float

    @property
    def cpu_s_per_mb(self) -> float:
        """Processor seconds per MB that the clients received."""
        return self.cpu_s / self.delivered_mb


def deliver_on_bare_host(
    plan: Plan, tor: Build, megabytes: float, directory: Path, *, single_packets: bool = False
) -> BareCost:
    """Let a plan's clients download some megabytes on one core; any user may call this.

    Args:
        directory: a directory of this call alone; gets `logs/`.
        single_packets: whether the loopback carries packets of 1500 bytes instead of 64 kB at once,
            which needs a network of its own (`may_have_own_network`).

    Raises:
        TestbedError: the network failed; has the log's tail.
    """
    words = ("testbed.runs.bare_host", "--megabytes", str(megabytes))
    cpu_s, wall_s = run_on_bare_host(words, plan, tor, directory, single_packets=single_packets)
    delivered = json.loads((directory / DELIVERED).read_text())
    return BareCost(cpu_s, wall_s, **delivered)


def run_on_bare_host(
    module: Sequence[str], plan: Plan, tor: Build, directory: Path, *, single_packets: bool = False
) -> tuple[float, float]:
    """Run a module with a plan's network on one core of the host; any user may call this.

    Args:
        module: its name, and options before those of `inside.start.arguments_of`.

    Returns:
        The processor seconds of all its processes, and its wall time in seconds.

    Raises:
        TestbedError: it failed; has the log's tail.
    """
    log = directory / "logs" / "bare-host.log"
    log.parent.mkdir(exist_ok=True)
    plan_file = directory / "plan.json"
    plan_file.write_text(on_loopback(plan).model_dump_json())
    with tempfile.TemporaryDirectory(prefix="hydra-bare-") as state, log.open("wb") as output:
        command = [
            *("taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))),
            *_in_own_network(SINGLE_PACKETS if single_packets else PLAIN_LOOPBACK),
            *(sys.executable, "-m", *module, "--plan", str(plan_file)),
            *("--tor", str(tor.product("tor")), "--directory", str(directory)),
            *("--state", state, "--", *TGEN),
        ]
        start_s = time.monotonic()
        cpu_s, status = _waited_for(command, output)
        wall_s = time.monotonic() - start_s
    if status != 0:
        ended = f"the network on the bare host ended with status {status}"
        raise reported_error(directory) or failure(ended, log)
    return cpu_s, wall_s


def on_loopback(plan: Plan) -> Plan:
    """The plan with an address of the host's loopback, 127.x.y.z (RFC 5735), for each node.

    The second byte depends on this process, so another bench has other addresses.
    """
    block = int(ipaddress.IPv4Address("127.64.0.0")) + (os.getpid() % 128 << 16)

    def moved(node: PlannedNode) -> PlannedNode:
        known = ipaddress.IPv4Address(node.address or node.management_address or "")
        address = str(ipaddress.IPv4Address(block + (int(known) & 0xFFFF)))
        return node.model_copy(update={"address": address, "management_address": address})

    torrc = {**plan.tor.torrc_all, **LOOPBACK_ONLY}
    return plan.model_copy(
        update={
            "nodes": tuple(map(moved, plan.nodes)),
            "tor": plan.tor.model_copy(update={"torrc_all": torrc}),
        }
    )


class LoopbackLab(Lab):
    """A lab without links: its nodes are addresses of this host, their programs its processes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.directions = ()
        self.meeting = Meeting(parts=1, part=0)

    def start(
        self,
        node: str,
        command: Sequence[str | Path],
        *,
        output: IO[bytes] | int = subprocess.DEVNULL,
        errors: IO[bytes] | int = subprocess.STDOUT,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program that dies with this process; its output goes to `output`."""
        own = {"TGENIP": str(self.plan.node(node).address)}  # where a generator listens
        return subprocess.Popen(
            dying_with_us([str(word) for word in command]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**(environment or os.environ), **own},
        )

    def namespace(self, _node: str) -> str:
        """All nodes share one namespace."""
        return ""

    def wait_for_server(self, node: str, port: int) -> None:
        """Wait until a program listens at a node's TCP port."""
        address = self.plan.node(node).address
        self._wait_for_listener(node, f"src {address}:{port}", port)


def deliver(
    plan: Plan, tor: Path, tgen: Sequence[str], directory: Path, state: Path, megabytes: float
) -> None:
    """Bootstrap the plan's Tors, and let its clients download some megabytes.

    Args:
        directory: gets `raw/`, `logs/`, and in `DELIVERED` the delivered MB.
        state: a private directory for the Tors' data, with a path short enough for UNIX sockets.

    Raises:
        TestbedError: the network failed, or was too slow.
    """
    logs = directory / "logs"
    lab = LoopbackLab(plan)
    before = _carried()
    with ExitStack() as stack:
        record = stack.enter_context(Record(directory / "raw"))
        network = stack.enter_context(bootstrapped_tors(lab, tor, state, logs))
        Circuits(network, plan, record).build("measured")
        stack.enter_context(playing_traffic(lab, tgen, state, logs, record))
        end_s = time.monotonic() + megabytes / LEAST_MB_PER_S
        while (delivered_mb := _delivered_mb(plan, logs)) < megabytes:
            if ended := network.ended():
                raise TestbedError(f"{', '.join(ended)} ended on the bare host: see logs/")
            if time.monotonic() > end_s:
                raise TestbedError(f"only {delivered_mb:.0f} of {megabytes:.0f} MB came in time")
            time.sleep(LOOK_INTERVAL_S)
    sizes, packets = (now - then for now, then in zip(_carried(), before, strict=True))
    delivered = {"delivered_mb": delivered_mb, "packet_bytes": sizes / packets}
    (directory / DELIVERED).write_text(json.dumps(delivered))


def _carried() -> tuple[int, int]:
    """The bytes and packets that the loopback has carried so far."""
    counters = psutil.net_io_counters(pernic=True)["lo"]
    return counters.bytes_recv, counters.packets_recv


def _delivered_mb(plan: Plan, logs: Path) -> float:
    """MB that the clients have received, by their generators' heartbeats so far, one a second."""
    return sum(
        beat.bytes_received / 1e6
        for client in plan.clients
        for beat in read_heartbeats(generator_log(logs, client), client)
    )


def may_have_own_network() -> bool:
    """Whether the kernel lets this user create a network namespace."""
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode == 0


def _in_own_network(set_up: str) -> list[str]:
    """The words before a command that give it a network of its own, if the kernel permits it.

    Without it the host's ports may be in use; with it there is only the loopback.

    Args:
        set_up: a shell command that sets up the loopback.
    """
    script = f'PATH=$PATH:/usr/sbin:/sbin {set_up} && exec "$@"'
    return [*OWN_NETWORK, "sh", "-c", script, "-"] if may_have_own_network() else []


def _waited_for(command: Sequence[str], output: IO[bytes]) -> tuple[float, int]:
    """Run a command to its end.

    Returns:
        The processor seconds of it and the processes that it waited for, and its exit status.
    """
    process = subprocess.Popen(
        dying_with_us(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=variables(PROJECT),
        start_new_session=True,
    )
    try:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            end_group(process, GRACE_S)
    return usage.ru_utime + usage.ru_stime, process.returncode


def main() -> None:
    """Run as `python -m testbed.runs.bare_host`, with a plan on the loopback in a file."""
    parser = arguments_of(__doc__)
    parser.add_argument("--megabytes", type=float, required=True)
    given = parser.parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_reported(given.directory):
        deliver(plan, given.tor, given.tgen, given.directory, given.state, given.megabytes)


if __name__ == "__main__":
    main()
