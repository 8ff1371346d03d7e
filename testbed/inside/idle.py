"""A network that becomes ready and then has no traffic for minutes, for the bench."""

import time

from testbed.inside.experiment import ready_network
from testbed.inside.recording import Record
from testbed.inside.start import arguments_of, errors_reported
from testbed.inside.tor.bootstrap import NETWORK
from testbed.plan.model import Plan

SETTLING, IDLE, OVER = "settling", "idle", "idle no longer"
SETTLING_S = 60.0
"""Clients that have just become ready still build circuits ahead of need, and the like."""
IDLE_S = 300.0


def main() -> None:
    """Run as `python -m testbed.inside.idle` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    logs = given.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    kept = given.network and given.network / NETWORK
    with (
        errors_reported(given.directory),
        Record(given.directory / "raw") as record,
        ready_network(plan, given.tor, given.state, logs, record, kept),
    ):
        record.step(SETTLING)
        time.sleep(SETTLING_S)
        record.step(IDLE)
        time.sleep(IDLE_S)
        record.step(OVER)


if __name__ == "__main__":
    main()
