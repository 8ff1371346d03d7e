"""The network whose relays are measured, with its clients' traffic, if there is any."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.inside.experiment import ready_network
from testbed.inside.generators import playing_traffic
from testbed.inside.lab.network import Lab, running_lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.bootstrap import NETWORK, running_tors
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


def carry_out(
    description: str | None,
    run: Callable[[Plan, Path, Sequence[str], Path, Path, Path | None], None],
) -> None:
    """Run a module of this package as `python -m` by a machine, with a plan in a file."""
    given = arguments_of(description).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    kept = given.network and given.network / NETWORK
    with errors_reported(given.directory):
        run(plan, given.tor, given.tgen, given.directory, given.state, kept)
