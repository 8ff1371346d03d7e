"""The Tors of a lab: started in stages, each stage when a fact says that the last one is done.

What they carry, and over which circuits, is `tor.circuits`'s.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stem import DescriptorUnavailable

from testbed.choices import CONGESTION_CONTROL_OPTION, asks_for_congestion_control
from testbed.errors import TestbedError
from testbed.lab.network import Lab
from testbed.network.model import Kind
from testbed.plan_model import Node, Plan
from testbed.tor.configuration import (
    AUTHORITY_DIR_PORT,
    AUTHORITY_OR_PORT,
    AuthorityIdentity,
    TorFiles,
    has_weights,
    torrc,
)
from testbed.tor.control import ControlConnection, connected

POLL_INTERVAL_S = 0.5
LAST_WORDS = 5
"""Lines of a Tor's log in the error that says that it has ended."""

START_TIMEOUT_S = 30.0
PUBLICATION_TIMEOUT_S = 120.0
CONSENSUS_TIMEOUT_S = 200.0
"""The first vote is held within a moment of `_let_vote`; a second one would come later than this,
and a consensus that lacks a relay means that something is wrong with that relay."""
KNOWLEDGE_TIMEOUT_S = 300.0
"""A relay asks for the consensus from its start, at growing intervals while there is none."""

FIRST_VOTE_INTERVAL_S = 20
"""Intervals begin at whole multiples of it on the Unix clock, and by the delays in the authority's
torrc the vote is held 12 s after."""
LATEST_CALL_S = 4
"""After an interval's beginning, for the vote to be held in it."""

FLAGS = {"guard": "Guard", "exit": "Exit"}
FLAGS_OF_ALL = {"Running", "Valid"}
FLAG_WITHOUT_WEIGHTS = "Fast"
"""What the consensus must say of each relay before a client starts. Not Stable: in real time a
relay that starts a second after the others is not, and no circuit of ours asks for it. Fast all are
if they weigh the same; else that is for the authorities to say."""

TORS: tuple[Kind, ...] = ("authority", "relay", "client")
"""The kinds of nodes that run Tor, in the order in which they start."""


Tell = Callable[[int], None]


def _tell_nobody(_number: int) -> None:
    pass


Question = Callable[[], object]
"""Whose answer says that something is there, or nothing."""


@dataclass
class RunningTor:
    """A Tor process and its control connection."""

    node: Node
    files: TorFiles
    process: subprocess.Popen[bytes]
    controller: ControlConnection

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None


class TorNetwork:
    """The authority, relays and clients of a run, with their relays' fingerprints.

    Attributes:
        options: the torrc options that these Tors know, in lower case.
    """

    def __init__(
        self,
        tors: dict[str, RunningTor],
        fingerprints: dict[str, str],
        options: Collection[str] = (),
    ) -> None:
        self.tors = tors
        self.fingerprints = fingerprints
        self.options = options

    def __getitem__(self, name: str) -> RunningTor:
        return self.tors[name]

    def knows(self, option: str) -> bool:
        """Whether these Tors know a torrc option."""
        return option.lower() in self.options

    def learn_fingerprints(self) -> None:
        """Ask each relay for its fingerprint."""
        self.fingerprints = {
            name: tor.controller.get_info("fingerprint")
            for name, tor in self.tors.items()
            if tor.node.kind == "relay"
        }

    def check(self) -> None:
        """TestbedError if an event of a Tor could not be handled."""
        failures = (tor.controller.failure for tor in self.tors.values())
        if failure := next(filter(None, failures), None):
            raise TestbedError(failure)

    def ended(self) -> list[str]:
        """The Tors that have ended although nobody asked them to."""
        return [name for name, tor in self.tors.items() if tor.has_ended()]


@contextmanager
def bootstrapped_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, tell: Tell = _tell_nobody
) -> Iterator[TorNetwork]:
    """Bootstrap the plan's Tor network and end it afterwards.

    The stages: the authority gets its keys and starts; the relays start and publish; when the
    authority knows them all, it votes; when the consensus lists every relay with the flags of its
    role, the clients start; when every relay and client has the descriptors of all relays, the
    network is ready.

    Args:
        binary: the `tor` to run; `tor-gencert` lies beside it.
        state: a directory for keys, data and sockets, on a file system with UNIX sockets.
        logs: where each Tor's log goes, as tor-NAME.log.
        tell: called with the number of Tors that have started, whenever it is another.

    Raises:
        TestbedError: a stage was not done in its time, and the message names who was missing; or
            something failed, now or later, while a Tor had ended, and the message names that.
    """
    plan = lab.plan
    files = _files(plan, state, logs)
    for each in files.values():
        each.data.mkdir(parents=True, mode=0o700)
    for authority in plan.of_kind("authority"):
        _make_authority_keys(authority, files[authority.name], binary)
    with _started_as_asked(lab, binary, files, tell) as (network, start):
        for node in (node for kind in TORS[:2] for node in plan.of_kind(kind)):
            start(node)
        network.learn_fingerprints()
        _say_weights(plan, network)
        authorities = [network[one.name].controller for one in plan.of_kind("authority")]
        _let_vote(network.fingerprints, authorities)
        for authority in authorities:
            _wait_for_consensus(plan, network, authority)
        for client in plan.of_kind("client"):
            start(client)
        _wait_for_knowledge(plan, network)
        yield network


@contextmanager
def resumed_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, tell: Tell = _tell_nobody
) -> Iterator[TorNetwork]:
    """Start the Tors of a network that was bootstrapped before; `state` has what they kept.

    The consensus must be of the lab's clock. For the rest see `bootstrapped_tors`.
    """
    plan = lab.plan
    with _started_as_asked(lab, binary, _files(plan, state, logs), tell) as (network, start):
        for node in (node for kind in TORS for node in plan.of_kind(kind)):
            start(node)
        network.learn_fingerprints()
        _say_weights(plan, network)
        _wait_for_knowledge(plan, network)
        yield network


@contextmanager
def _started_as_asked(
    lab: Lab, binary: Path, files: Mapping[str, TorFiles], tell: Tell
) -> Iterator[tuple[TorNetwork, Callable[[Node], None]]]:
    """A network that has the Tors that were started, and what starts one; ends them in reverse."""
    for each in files.values():
        each.directory.chmod(0o700)
    identities = {
        node.name: _authority_identity(node, files[node.name], binary)
        for node in lab.plan.of_kind("authority")
    }
    network = TorNetwork({}, {}, _known_options(binary))
    _refuse_unknown_congestion_control(lab.plan, network)
    with ExitStack() as stack:

        def start(node: Node) -> None:
            tor = _started(lab, node, files[node.name], identities, binary, network.options)
            stack.callback(_end, tor)
            network.tors[node.name] = tor
            tell(len(network.tors))

        with _ends_named(network):
            yield network, start


def _files(plan: Plan, state: Path, logs: Path) -> dict[str, TorFiles]:
    return {
        node.name: TorFiles(node.name, state / node.name, logs / f"tor-{node.name}.log")
        for node in plan.of_kind(*TORS)
    }


@contextmanager
def _ends_named(network: TorNetwork) -> Iterator[None]:
    """Name the Tors that have ended instead of what failed then: that is their doing."""
    try:
        yield
    except Exception as error:
        if ended := network.ended():
            status = network[ended[0]].process.returncode
            raise TestbedError(
                f"{', '.join(ended)}: Tor ended by itself (status {status}): see logs/"
            ) from error
        raise


def wait_until(
    missing: Callable[[], Iterable[str]],
    timeout_s: float,
    doing: str,
    interval_s: float = POLL_INTERVAL_S,
) -> None:
    """Ask what is `missing` until the answer is: nothing. Only its first item is looked at.

    Raises:
        TestbedError: something was still missing after the timeout; says what.
    """
    end_s = time.monotonic() + timeout_s
    while first := next(iter(missing()), None):
        if time.monotonic() > end_s:
            raise TestbedError(f"{doing}: after {timeout_s:g} s still missing: {first}")
        time.sleep(interval_s)


def _make_authority_keys(node: Node, files: TorFiles, binary: Path) -> None:
    """Give the authority its keys, before any Tor starts, as all of them must know it."""
    keys = files.data / "keys"
    keys.mkdir(mode=0o700)
    generate: list[str | Path] = [
        *(binary.with_name("tor-gencert"), "--create-identity-key", "--passphrase-fd", "0"),
        *("-m", "12", "-a", f"{node.management_address}:{AUTHORITY_DIR_PORT}"),
    ]
    subprocess.run(generate, cwd=keys, input=b"lab\n", check=True, capture_output=True)


def _authority_identity(node: Node, files: TorFiles, binary: Path) -> AuthorityIdentity:
    certificate = (files.data / "keys" / "authority_certificate").read_text()
    show: list[str | Path] = [
        *(binary, "--list-fingerprint", "--quiet", "-f", "/dev/null", "--ignore-missing-torrc"),
        *("--DataDirectory", files.data, "--Nickname", node.name, "--SocksPort", "0"),
        *("--Address", str(node.management_address), "--ORPort", str(AUTHORITY_OR_PORT)),
        *("--DirAuthority", "placeholder 127.0.0.1:1 " + "0" * 40),
    ]
    listed = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    v3_identity = re.search(r"^fingerprint ([0-9A-F]{40})$", certificate, re.MULTILINE)
    fingerprint = re.search(r"(?:[0-9A-F]{4} ?){10}", listed)
    if not v3_identity or not fingerprint:
        raise TestbedError(f"{binary} printed no fingerprint for the authority: {listed!r}")
    return AuthorityIdentity(v3_identity[1], fingerprint[0].replace(" ", ""))


def _known_options(binary: Path) -> frozenset[str]:
    """The torrc options that a Tor knows, as it lists them itself, in lower case."""
    listing: list[str | Path] = [binary, "--list-torrc-options"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    return frozenset(listed.lower().split())


def _refuse_unknown_congestion_control(plan: Plan, network: TorNetwork) -> None:
    """The consensus asks for it and no torrc line, so that an older Tor would say nothing."""
    asked = asks_for_congestion_control(plan.tor.consensus_params)
    if asked and not network.knows(CONGESTION_CONTROL_OPTION):
        raise TestbedError(
            f"{plan.variant}: cc_alg asks for congestion control, which this Tor doesn't know: name"
            ' 0.4.7 or newer, or write cc_alg = "sendme"'
        )


def _started(
    lab: Lab,
    node: Node,
    files: TorFiles,
    identities: Mapping[str, AuthorityIdentity],
    binary: Path,
    options: Collection[str],
) -> RunningTor:
    files.torrc.write_text(torrc(lab.plan, node, files, identities, options))
    command: list[str | Path] = [
        *(binary, "--hush", "-f", files.torrc),
        *("--defaults-torrc", "/dev/null"),
    ]
    environment = os.environ | {"HOME": str(files.data)}
    # Until it has read its torrc Tor warns on its standard output, and it has no log yet.
    told = files.directory / "output"
    with told.open("wb") as output:
        process = lab.start(node.name, command, output=output, environment=environment)

    def missing() -> list[str]:
        if process.poll() is not None:
            ended = f"{node.name}: Tor ended at once (status {process.returncode})"
            words = _last_words(files.log if files.log.exists() else told)
            raise TestbedError("\n  ".join([ended, *words]))
        return [] if _answers(files.control_socket) else [f"{node.name}'s control socket"]

    wait_until(missing, START_TIMEOUT_S, "starting Tor", interval_s=0.01)
    return RunningTor(node, files, process, connected(node.name, files.control_socket))


def _answers(control_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(control_socket)) == 0


def _last_words(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines()
    warnings = [line for line in lines if "[warn]" in line or "[err]" in line]
    return (warnings or lines)[-LAST_WORDS:]


def _still_missing(pending: list[tuple[Question, str]]) -> Iterator[str]:
    """What comes first of what isn't there yet; what has come is taken out and asked no more."""
    while pending:
        is_there, name = pending[0]
        if not is_there():
            yield name
            return
        del pending[0]


def _say_weights(plan: Plan, network: TorNetwork) -> None:
    """Give the authorities the relays' weights as scanners do (bandwidth-file-spec 1.0)."""
    if not has_weights(plan):
        return
    lines = [f"{int(time.time())}\n"]
    for relay in plan.of_kind("relay"):
        lines.append(f"node_id=${network.fingerprints[relay.name]} bw={relay.weight}\n")
    for authority in plan.of_kind("authority"):
        network[authority.name].files.bandwidths.write_text("".join(lines))


def _let_vote(fingerprints: Mapping[str, str], authorities: Sequence[ControlConnection]) -> None:
    """Wait until the authorities know all relays, and let them hold their first vote soon after.

    Not at once: they count a relay as running only after a connection to it.
    """
    pending: list[tuple[Question, str]] = [
        (
            partial(authority.get_info, f"desc/id/{fingerprint}", ""),
            f"{relay}'s descriptor at the authority",
        )
        for authority in authorities
        for relay, fingerprint in fingerprints.items()
    ]
    missing = partial(_still_missing, pending)
    wait_until(missing, PUBLICATION_TIMEOUT_S, "waiting for the relays")
    since_beginning_s = time.time() % FIRST_VOTE_INTERVAL_S
    if since_beginning_s > LATEST_CALL_S:
        time.sleep(FIRST_VOTE_INTERVAL_S - since_beginning_s)
    for authority in authorities:
        authority.set_conf("TestingV3AuthInitialVotingInterval", f"{FIRST_VOTE_INTERVAL_S} seconds")


def _wait_for_consensus(plan: Plan, network: TorNetwork, authority: ControlConnection) -> None:
    def missing() -> Iterator[str]:
        try:
            listed = {
                status.fingerprint: set(status.flags) for status in authority.get_network_statuses()
            }
        except DescriptorUnavailable:
            yield "a consensus"
            return
        for relay in plan.of_kind("relay"):
            wanted = FLAGS_OF_ALL | {FLAGS[flag] for flag in relay.flags}
            if not has_weights(plan):
                wanted.add(FLAG_WITHOUT_WEIGHTS)
            flags = wanted - listed.get(network.fingerprints[relay.name], set())
            if flags:
                yield f"{relay.name} with the flags {' '.join(sorted(flags))} in the consensus"

    wait_until(missing, CONSENSUS_TIMEOUT_S, "waiting for the consensus")


def _wait_for_knowledge(plan: Plan, network: TorNetwork) -> None:
    """Wait until every relay and client has the consensus and every relay's descriptor.

    A relay that doesn't know its neighbour refuses the streams that come from it.
    """
    pending: list[tuple[Question, str]] = [
        (
            partial(_knows, network[node.name].controller, _others(network, node)),
            f"{node.name}'s descriptors of the relays",
        )
        for node in plan.of_kind("relay", "client")
    ]
    missing = partial(_still_missing, pending)
    wait_until(missing, KNOWLEDGE_TIMEOUT_S, "waiting for descriptors")


def _others(network: TorNetwork, node: Node) -> list[str]:
    """The fingerprints of the relays that a node isn't itself."""
    return [one for relay, one in network.fingerprints.items() if relay != node.name]


def _knows(controller: ControlConnection, fingerprints: Sequence[str]) -> bool:
    """Whether a Tor has the descriptors of all these relays.

    One question, and not one for each: for most of the time it has all or none of them.
    """
    return bool(controller.get_info([f"md/id/{one}" for one in fingerprints], {}))


def _end(tor: RunningTor) -> None:
    """SIGTERM would make a relay wait for its clients; a lab's Tor has nothing to save."""
    tor.process.kill()
    tor.process.wait()
    tor.controller.close()
