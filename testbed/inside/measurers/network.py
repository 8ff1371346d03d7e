"""The network whose relays are measured, with its clients' traffic, if there is any."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.experiment import ready_network
from testbed.inside.generators import playing_traffic
from testbed.inside.lab.network import Lab, running_lab
from testbed.inside.recording import Record
from testbed.inside.tor.bootstrap import running_tors
from testbed.inside.tor.network import TorNetwork
from testbed.plan.model import Plan


@contextmanager
def network_to_measure(
    plan: Plan,
    tor: Path,
    tgen: Sequence[str],
    state: Path,
    logs: Path,
    kept: Path | None,
    record: Record,
) -> Iterator[tuple[Lab, TorNetwork]]:
    """Run the network; its clients' traffic has warmed up, and goes on all the time.

    For the arguments and errors see `inside.experiment.run_experiment`.
    """
    if not plan.traffic_by_client:
        with running_lab(plan) as lab, running_tors(lab, tor, state, logs, kept, record) as network:
            yield lab, network
        return
    with (
        ready_network(plan, tor, state, logs, record, kept) as (lab, network, circuits),
        playing_traffic(lab, tgen, state, logs, record) as generators,
    ):
        record.step("warming up", 0, plan.warm_up_s)
        time.sleep(plan.warm_up_s)
        yield lab, network
        circuits.check()
        if ended := [name for name, program in generators.items() if program.poll() is not None]:
            raise TestbedError(f"{ended[0]} ended while relays were measured")
