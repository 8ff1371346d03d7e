"""How long a run's transfers took, as quantiles: what is kept of them where tables are not."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars

from testbed.results import Run
from testbed.results.values import clients_of, completed_transfers

TIMES = "times.json"
"""The file beside a kept run's summary."""
STEPS = 100
"""Into how many parts the quantiles divide the transfers: the minimum, 1 %, ..., the maximum."""
COLUMNS = ("time_to_first_byte_s", "time_to_last_byte_s")

Times = Mapping[str, Mapping[str, Sequence[float]]]
"""By traffic model and column: the 101 quantiles in seconds, or none if no transfer completed."""


def times_of(run: Run) -> Times:
    """The quantiles of a run's completed transfers that began while it measured.

    They are linear between ranks, to a tenth of a millisecond. A kept run has them in a file,
    which older ones lack: then there are none. A whole run's are computed of its tables.
    """
    if run.is_whole:
        return _computed(run)
    file = run.directory / TIMES
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write_times(run: Run, folder: Path) -> None:
    """Write a whole run's quantiles into a folder."""
    text = json.dumps(times_of(run), separators=(",", ":"))
    (folder / TIMES).write_text(f"{text}\n", encoding="utf-8")


def _computed(run: Run) -> Times:
    by_client = run.plan.traffic_by_client
    return {
        one.traffic: {
            column: _quantiles(
                completed_transfers(run, clients_of(one.traffic, by_client))[column].drop_nulls()
            )
            for column in COLUMNS
        }
        for one in run.summary.by_traffic
    }


def _quantiles(values: polars.Series) -> list[float]:
    if values.is_empty():
        return []
    shares = [step / STEPS for step in range(STEPS + 1)]
    return [round(float(values.quantile(share, "linear") or 0), 4) for share in shares]
