"""Bootstraps a network and archives its Tors' data, or starts a network from such an archive.

It runs inside a machine; `runs.bootstrapped` decides when, and for which runs.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.inside.lab.network import Lab, running_lab
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.network import TorNetwork
from testbed.inside.tor.starting import TORS, bootstrapped_tors, resumed_tors
from testbed.plan.model import Plan

NETWORK = "network.tar"
"""The archive: each Tor's DataDirectory, as NAME/data."""


@contextmanager
def running_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, kept: Path | None, record: Record
) -> Iterator[TorNetwork]:
    """Run the plan's Tor network, ready for circuits, and end it afterwards.

    Args:
        kept: the archive of a network that was bootstrapped on this machine's clock; None to
            bootstrap it now.
        record: gets the progress.

    For the others and the errors see `inside.tor.starting.bootstrapped_tors`.
    """
    report = partial(_report, lab.plan, record)
    record.step("starting Tor")
    if kept is None:
        with bootstrapped_tors(lab, binary, state, logs, report) as network:
            yield network
        return
    state.mkdir()
    # As root, tar restores the permissions that Tor demands.
    subprocess.run(["tar", "--extract", "--file", kept, "--directory", state], check=True)
    with resumed_tors(lab, binary, state, logs, report) as network:
        yield network


def _report(plan: Plan, record: Record, started: int) -> None:
    """Report how many Tors have started: hundreds do so in one moment of the machine's clock."""
    record.step(f"starting Tor, {started} of {len(plan.here(*TORS))}")


def keep_network(plan: Plan, tor: Path, directory: Path, state: Path) -> None:
    """Bootstrap a plan's network and leave its archive in a directory.

    For the arguments and the errors see `inside.experiment.run_experiment`.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with Record(directory / "raw") as record, running_lab(plan) as lab:
        report = partial(_report, plan, record)
        record.step("starting Tor")
        with bootstrapped_tors(lab, tor, state, logs, report) as network:
            names = sorted(network.tors)
    pack = ["tar", "--create", "--sort=name", f"--file={directory / NETWORK}"]
    folders = [f"{name}/data" for name in names]
    subprocess.run([*pack, f"--directory={state}", *folders], check=True)


def main() -> None:
    """Run as `python -m testbed.inside.tor.bootstrap` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_reported(given.directory):
        keep_network(plan, given.tor, given.directory, given.state)


if __name__ == "__main__":
    main()
