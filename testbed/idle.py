"""A plan's network with nothing to do: ready, and then minutes without traffic (the bench's)."""

import time

from testbed.experiment import ready_network
from testbed.machines.inside import arguments_of, errors_told
from testbed.plan_model import Plan
from testbed.recording import Record
from testbed.tor.bootstrap import NETWORK

SETTLING, IDLE, OVER = "settling", "idle", "no more idle"
SETTLING_S = 60.0
"""Clients that have just become ready build circuits ahead of need, and more of that kind."""
IDLE_S = 300.0


def main() -> None:
    """Run as `python -m testbed.idle` by a machine, with a plan in a file."""
    given = arguments_of(__doc__).parse_args()
    plan = Plan.model_validate_json(given.plan.read_text())
    logs = given.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    kept = given.network and given.network / NETWORK
    with (
        errors_told(given.directory),
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
