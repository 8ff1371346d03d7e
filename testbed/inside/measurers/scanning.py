"""Downloads through a network's relays, two at a time, as TorFlow's bandwidth scanners do.

It runs inside the machine. The measurer is a node with a Tor client of its own.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

from testbed.basics.seeds import derived_seed
from testbed.inside.lab.network import Lab
from testbed.inside.measurers.downloads import Downloads, serve
from testbed.inside.measurers.network import carry_out, network_to_measure
from testbed.inside.measurers.slices import SliceScan
from testbed.inside.recording import Record
from testbed.inside.tor.network import TorNetwork
from testbed.inside.waiting import wait_until
from testbed.plan.model import Plan
from testbed.plan.scan import SCAN_FILE, SCANNED_FILE, Scan, Scanned, ScannedRelay

_CONTACT = "scanned"
"""The new ContactInfo by which relays make a descriptor of what they have observed until then."""
_DESCRIPTOR_TIMEOUT_S = 150.0
"""A relay looks once a minute whether its descriptor is out of date, or earlier."""


def run_scan(
    plan: Plan, tor: Path, tgen: Sequence[str], directory: Path, state: Path, kept: Path | None
) -> None:
    """Carry out the scan that the directory's file asks for, and write what it found.

    For the arguments and errors see `inside.experiment.run_experiment`.
    """
    asked = Scan.model_validate_json((directory / SCAN_FILE).read_text())
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with (
        Record(directory / "raw") as record,
        network_to_measure(plan, tor, tgen, state, logs, kept, record) as (lab, network),
    ):
        scans = asyncio.run(_scan(lab, network, asked, record))
        record.step("reading what relays have observed")
        observed = _observed(network)
    rates = {relay: some for scan in scans for relay, some in scan.rates.items()}
    failed = {relay: scan.failed[relay] for scan in scans for relay in scan.rates}
    relays = tuple(
        ScannedRelay(
            relay=relay,
            fingerprint=network.fingerprints[relay],
            observed_bytes_per_s=observed[relay],
            streams_bytes_per_s=tuple(rates[relay]),
            failed=failed[relay],
        )
        for relay in (node.name for node in plan.of_kind("relay"))
    )
    (directory / SCANNED_FILE).write_text(Scanned(relays=relays).model_dump_json(indent=1))


async def _scan(lab: Lab, network: TorNetwork, asked: Scan, record: Record) -> list[SliceScan]:
    """Measure all slices, some at once: each scanner takes the next one that none has taken."""
    plan = lab.plan
    scans = [
        SliceScan(part, asked.times, Random(derived_seed(plan.seed, "scan", str(number))))
        for number, part in enumerate(asked.slices)
    ]
    server = plan.server_of(asked.measurer)
    downloads = Downloads(lab, network[asked.measurer], str(plan.node(server).address))
    left, done, needed = iter(scans), 0, sum(scan.needed for scan in scans)

    async def scanner() -> None:
        nonlocal done
        for scan in left:
            while not scan.is_done:
                path = scan.next_path()
                hops = [network.fingerprints[relay] for relay in path]
                size_bytes = scan.part.size_bytes
                scan.note(path, await downloads.rate(hops, size_bytes, asked.longest_s))
                done += 1
                record.step(f"measuring relays, {done} of about {needed} downloads")

    async with await serve(lab, server):
        with downloads.choosing():
            await asyncio.gather(*(scanner() for _ in range(asked.at_once)))
    return scans


def _observed(network: TorNetwork) -> dict[str, int]:
    """What relays say of themselves in new descriptors, in bytes per second."""
    relays = {
        name: tor.controller for name, tor in network.tors.items() if tor.node.kind == "relay"
    }
    for controller in relays.values():
        controller.set_conf("ContactInfo", _CONTACT)
    found: dict[str, int] = {}

    def missing() -> list[str]:
        for name in relays.keys() - found.keys():
            words = _own_descriptor(relays[name].get_info("dir/server/authority", ""))
            if words.get("contact") == [_CONTACT]:
                found[name] = int(words["bandwidth"][2])
        return [f"{name}'s descriptor" for name in relays if name not in found]

    wait_until(missing, _DESCRIPTOR_TIMEOUT_S, "waiting for descriptors")
    return found


def _own_descriptor(text: str) -> dict[str, list[str]]:
    """The lines of a descriptor (dir-spec 2.1.1) by their first words."""
    lines = [line.split() for line in text.splitlines()]
    return {words[0]: words[1:] for words in lines if words}


if __name__ == "__main__":
    carry_out(__doc__, run_scan)
