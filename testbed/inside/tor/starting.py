"""The lab's Tors, started in stages, or resumed from the data of an earlier network."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.lab.network import Lab
from testbed.inside.tor.configuration import TorFiles
from testbed.inside.tor.learned_timeouts import learn_timeouts
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.process import (
    authority_identity,
    end,
    known_options,
    make_authority_keys,
    started,
)
from testbed.inside.tor.stages import (
    let_vote,
    wait_for_consensus,
    wait_for_knowledge,
    write_weights,
)
from testbed.plan.choices import CONGESTION_CONTROL_OPTION, asks_for_congestion_control
from testbed.plan.model import Plan, PlannedNode
from testbed.plan.network import Kind

TORS: tuple[Kind, ...] = ("authority", "relay", "client")
"""The kinds of nodes that run Tor, in the order in which they start."""
Report = Callable[[int], None]
"""Called with the number of Tors that have started, whenever it changes."""


def _report_nothing(_number: int) -> None:
    pass


@contextmanager
def bootstrapped_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, report: Report = _report_nothing
) -> Iterator[TorNetwork]:
    """Bootstrap the plan's Tor network and end it afterwards.

    The stages: the authority gets its keys and starts; the relays start and publish; when the
    authority knows them all, it votes; when the consensus lists every relay with the flags of its
    role, the clients start; when every relay and client has the descriptors of all relays, the
    network is ready.

    Args:
        binary: the `tor` to run; `tor-gencert` is beside it.
        state: a directory for keys, data and sockets, on a file system with UNIX sockets.
        logs: where each Tor's log goes, as tor-NAME.log.

    Raises:
        TestbedError: a stage was not done in time, and the message names what was missing; or
            something failed, now or later, after a Tor had ended, and the message names the Tor.
    """
    plan = lab.plan
    files = _files(plan, state, logs)
    for each in files.values():
        each.data.mkdir(parents=True, mode=0o700)
    for authority in plan.of_kind("authority"):
        make_authority_keys(authority, files[authority.name], binary)
    with _started_as_asked(lab, binary, files, report) as (network, start):
        for node in (node for kind in TORS[:2] for node in plan.of_kind(kind)):
            start(node)
        network.learn_fingerprints()
        write_weights(plan, network)
        authorities = [network[one.name].controller for one in plan.of_kind("authority")]
        let_vote(network.fingerprints, authorities)
        for authority in authorities:
            wait_for_consensus(plan, network, authority)
        learn_timeouts(plan, network, files)
        for client in plan.of_kind("client"):
            start(client)
        wait_for_knowledge(plan, network)
        yield network


@contextmanager
def resumed_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, report: Report = _report_nothing
) -> Iterator[TorNetwork]:
    """Start the Tors of a network that was bootstrapped before, whose data is in `state`.

    The consensus must be valid by the lab's clock. For the rest see `bootstrapped_tors`.
    """
    plan, files = lab.plan, _files(lab.plan, state, logs)
    with _started_as_asked(lab, binary, files, report) as (network, start):
        learn_timeouts(plan, network, files)
        for kind in TORS:
            for node in plan.here(kind):
                start(node)
            lab.meeting.exchange()
        network.learn_fingerprints()
        elsewhere = [one.name for one in plan.of_kind("relay") if not plan.is_here(one.name)]
        network.fingerprints |= {relay: files[relay].fingerprint() for relay in elsewhere}
        write_weights(plan, network)
        wait_for_knowledge(plan, network)
        lab.meeting.exchange()
        yield network


@contextmanager
def _started_as_asked(
    lab: Lab, binary: Path, files: Mapping[str, TorFiles], report: Report
) -> Iterator[tuple[TorNetwork, Callable[[PlannedNode], None]]]:
    """A network of the started Tors, and a function that starts one; ends them in reverse."""
    for each in files.values():
        each.directory.chmod(0o700)
    identities = {
        node.name: authority_identity(node, files[node.name], binary)
        for node in lab.plan.of_kind("authority")
    }
    network = TorNetwork({}, {}, known_options(binary))
    _refuse_unknown_congestion_control(lab.plan, network)
    with ExitStack() as stack:

        def start(node: PlannedNode) -> None:
            tor = started(lab, node, files[node.name], identities, binary, network.options)
            stack.callback(end, tor)
            network.tors[node.name] = tor
            report(len(network.tors))

        with _ends_named(network):
            yield network, start


def _files(plan: Plan, state: Path, logs: Path) -> dict[str, TorFiles]:
    return {
        node.name: TorFiles(node.name, state / node.name, logs / f"tor-{node.name}.log")
        for node in plan.of_kind(*TORS)
    }


@contextmanager
def _ends_named(network: TorNetwork) -> Iterator[None]:
    """Report Tors that have ended instead of a failure that follows from that."""
    try:
        yield
    except Exception as error:
        if ended := network.ended():
            status = network[ended[0]].process.returncode
            raise TestbedError(
                f"{', '.join(ended)}: Tor ended by itself (status {status}): see logs/"
            ) from error
        raise


def _refuse_unknown_congestion_control(plan: Plan, network: TorNetwork) -> None:
    """Refuse it if this Tor lacks it: the consensus asks for it, so the Tor would say nothing."""
    asked = asks_for_congestion_control(plan.tor.consensus_params)
    if asked and not network.knows(CONGESTION_CONTROL_OPTION):
        raise TestbedError(
            f"{plan.variant}: cc_alg asks for congestion control, which this Tor doesn't know: name"
            ' 0.4.7 or newer, or write cc_alg = "sendme"'
        )
