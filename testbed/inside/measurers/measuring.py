"""Measures a network's relays from its measurers, as a file asks for.

It runs inside the machine. Measurers are nodes; one process opens the sockets of all of them, and
stands for the authority that coordinates them, too. The network is idle unless it has clients
with traffic, which then goes on all the time.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from socket import socket

from testbed.basics.seeds import derived_seed
from testbed.inside.lab.network import Lab
from testbed.inside.measurers.network import carry_out, network_to_measure
from testbed.inside.measurers.team import Result, Target, measure, plain_socket
from testbed.inside.recording import Record
from testbed.inside.tor.configuration import OR_PORT
from testbed.inside.tor.network import TorNetwork
from testbed.plan.measurement import (
    ASKED_FILE,
    MEASURED_FILE,
    Asked,
    Assignment,
    Measured,
    RelaySeconds,
)
from testbed.plan.model import Plan


def run_measurements(
    plan: Plan, tor: Path, tgen: Sequence[str], directory: Path, state: Path, kept: Path | None
) -> None:
    """Carry out all measurements that the directory's file asks for, and write what they found.

    For the arguments and errors see `inside.experiment.run_experiment`.
    """
    asked = Asked.model_validate_json((directory / ASKED_FILE).read_text())
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    found: list[RelaySeconds] = []
    with (
        Record(directory / "raw") as record,
        network_to_measure(plan, tor, tgen, state, logs, kept, record) as (lab, network),
    ):
        _let_relays_lie(network, asked)
        for number, slot in enumerate(asked.slots):
            record.step(
                "measuring relays", number * asked.seconds, len(asked.slots) * asked.seconds
            )
            found += _slot(lab, network, asked, slot)
    text = Measured(relays=tuple(found)).model_dump_json(indent=1)
    (directory / MEASURED_FILE).write_text(text)


def _let_relays_lie(network: TorNetwork, asked: Asked) -> None:
    for relay, lie in asked.lies.items():
        network[relay].controller.set_conf("TestingMeasurementLie", lie)
    for relay, bit_per_s in asked.limits_bit_per_s.items():
        rate = f"{bit_per_s / 8:.0f} bytes"
        # The lab's addresses are private ones, which Tor doesn't limit by default.
        options = {"CountPrivateBandwidth": "1", "BandwidthRate": rate, "BandwidthBurst": rate}
        network[relay].controller.set_options(options)


def _slot(
    lab: Lab, network: TorNetwork, asked: Asked, slot: Sequence[Assignment]
) -> list[RelaySeconds]:
    """Measure a slot's relays at once."""
    seed = lab.plan.seed
    targets = [
        Target(
            relay=one.relay,
            address=str(lab.plan.node(one.relay).address),
            port=OR_PORT,
            identity=bytes.fromhex(network.fingerprints[one.relay]),
            shares={name: share / 8 for name, share in one.shares_bit_per_s.items() if share},
        )
        for one in slot
    ]
    results = measure(
        targets,
        key=asked.key,
        sockets=asked.sockets,
        seconds=asked.seconds,
        probability=asked.check_probability,
        seed=seed if asked.team == 1 else derived_seed(seed, "team", str(asked.team)),
        around_s=asked.around_s,
        make_socket=partial(_socket_of, lab),
    )
    return [_found(one, network.fingerprints[one.relay]) for one in results]


def _socket_of(lab: Lab, measurer: str) -> socket:
    return lab.inside(measurer, partial(plain_socket, measurer))


def _found(result: Result, fingerprint: str) -> RelaySeconds:
    return RelaySeconds(fingerprint=fingerprint, **asdict(result))


if __name__ == "__main__":
    carry_out(__doc__, run_measurements)
