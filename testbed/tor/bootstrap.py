"""A network is bootstrapped, and what its Tors have kept put into an archive; or begun from one.

It runs inside a machine. When it is bootstrapped, and for which runs, is `bootstrapped`'s.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from testbed.lab.network import Lab, running_lab
from testbed.machines.inside import arguments_of, errors_told
from testbed.plan_model import Plan
from testbed.recording import Record
from testbed.tor.network import TORS, TorNetwork, bootstrapped_tors, resumed_tors

NETWORK = "network.tar"
"""The archive: each Tor's DataDirectory, as NAME/data."""


@contextmanager
def running_tors(
    lab: Lab, binary: Path, state: Path, logs: Path, kept: Path | None, record: Record
) -> Iterator[TorNetwork]:
    """The plan's Tor network, ready for circuits, and its end afterwards.

    Args:
        kept: the archive of a network that was bootstrapped on this machine's clock; None to
            bootstrap it now.
        record: gets the step.

    For the others and the errors see `tor.network.bootstrapped_tors`.
    """
    tell = partial(_tell, lab.plan, record)
    record.step("starting Tor")
    if kept is None:
        with bootstrapped_tors(lab, binary, state, logs, tell) as network:
            yield network
        return
    state.mkdir()
    # By root, with the rights that Tor asks for.
    subprocess.run(["tar", "--extract", "--file", kept, "--directory", state], check=True)
    with resumed_tors(lab, binary, state, logs, tell) as network:
        yield network


def _tell(plan: Plan, record: Record, started: int) -> None:
    """Tell how far the start is: with hundreds of Tors much is done in one moment of the clock."""
    record.step(f"starting Tor, {started} of {len(plan.of_kind(*TORS))}")


def keep_network(plan: Plan, tor: Path, directory: Path, state: Path) -> None:
    """Bootstrap a plan's network and leave its archive in a directory.

    For the arguments and the errors see `experiment.run_experiment`.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with Record(directory / "raw") as record, running_lab(plan) as lab:
        tell = partial(_tell, plan, record)
        record.step("starting Tor")
        with bootstrapped_tors(lab, tor, state, logs, tell) as network:
            names = sorted(network.tors)
    pack = ["tar", "--create", "--sort=name", f"--file={directory / NETWORK}"]
    folders = [f"{name}/data" for name in names]
    subprocess.run([*pack, f"--directory={state}", *folders], check=True)


def main() -> None:
    """Run as `python -m testbed.tor.bootstrap` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    with errors_told(given.directory):
        keep_network(plan, given.tor, given.directory, given.state)


if __name__ == "__main__":
    main()
