"""An experiment's record, read into tables."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import polars

from testbed.basics.check import Check
from testbed.basics.errors import TestbedError
from testbed.inside.rows import FROM_LOGS, Delivered, Note, Progress, TransferRow
from testbed.inside.traffic.tgen_log import (
    STEPS,
    Transfer,
    generator_log,
    read_heartbeats,
    read_transfers,
)
from testbed.plan.model import Plan
from testbed.results.tables import SCHEMAS, Schema, Tables

_ASKS_WITHIN_S = 1.0
"""How long after a transfer's start its stream is requested at the latest."""
_LATEST_START_S = 0.1
"""How late a computed start can be: it is the time of a line that the generator writes at the
transfer's end, minus the transfer's duration. In the machine it is some microseconds late, and the
stream seems to be requested earlier; no port is reused that soon."""


@dataclass(frozen=True)
class Recorded:
    """Everything that an experiment recorded.

    Attributes:
        notes: in the order in which they were written.
        measuring_start_s: Unix time on the machine's clock.
    """

    tables: Tables
    checks: list[Check]
    notes: list[str]
    measuring_start_s: float


def read_recorded(directory: Path, plan: Plan) -> Recorded:
    """Read `raw/` and the generators' logs of a finished experiment.

    Raises:
        TestbedError: a file is missing or isn't as the experiment writes it, or the experiment
            didn't reach measuring.
    """
    raw, logs = directory / "raw", directory / "logs"
    start_s = _measuring_start_s(raw / "progress.jsonl")
    recorded = {
        name: _table(raw / f"{name}.jsonl", schema)
        for name, schema in SCHEMAS.items()
        if name not in FROM_LOGS
    }
    transfers = _transfers(logs, plan, start_s)
    return Recorded(
        tables=Tables(
            {
                "transfers": _with_circuits(transfers, recorded["streams"]),
                "delivered": _delivered(logs, plan),
                **recorded,
            }
        ),
        checks=[
            Check.model_validate(row) for row in _rows(raw / "checks.jsonl", Check.model_fields)
        ],
        notes=[row["text"] for row in _rows(raw / "notes.jsonl", _names(Note))],
        measuring_start_s=start_s,
    )


def _measuring_start_s(path: Path) -> float:
    for row in _rows(path, _names(Progress)):
        if row["step"] == "measuring":
            return float(row["time_s"] - row["done_s"])
    raise TestbedError(f"{path}: no step 'measuring': the experiment didn't get that far")


def _transfers(logs: Path, plan: Plan, start_s: float) -> polars.DataFrame:
    """All streams; those that began while the run measured, from `start_s` on, are measured.

    Without a warm-up, the generators start some milliseconds before measuring does. Their first
    transfers count, or it would be a matter of microseconds whose does and whose doesn't.
    """
    first_s = start_s if plan.warm_up_s else -math.inf
    end_s = start_s + plan.duration_s
    rows = [
        asdict(_transfer_row(transfer, first_s <= transfer.start_s < end_s))
        for client in plan.traffic_by_client
        for transfer in read_transfers(generator_log(logs, client), client)
    ]
    return polars.DataFrame(rows, schema=SCHEMAS["transfers"]).sort("start_s", "client")


def _with_circuits(transfers: polars.DataFrame, streams: polars.DataFrame) -> polars.DataFrame:
    """The transfers, each with the circuit of the next stream from its port.

    If Tor detached a stream and tried another circuit, the last one that succeeded counts.
    """
    begun = (
        streams.filter(status="NEW")
        .select(
            "client",
            "stream",
            start_s=polars.col("time_s") + _LATEST_START_S,
            port="source_port",
        )
        .sort("start_s")
    )
    carried = (
        streams.filter(status="SUCCEEDED")
        .group_by("client", "stream", maintain_order=True)
        .agg(polars.col("circuit").last(), polars.col("path").last())
    )
    of_transfers = (
        transfers.drop("circuit", "path")
        .sort("start_s", "client")
        .join_asof(
            begun,
            on="start_s",
            by=["client", "port"],
            strategy="forward",
            tolerance=_ASKS_WITHIN_S + _LATEST_START_S,
            check_sortedness=False,
        )
        .join(carried, on=["client", "stream"], how="left", maintain_order="left")
        .drop("stream")
    )
    return of_transfers.select(*SCHEMAS["transfers"])


def _delivered(logs: Path, plan: Plan) -> polars.DataFrame:
    rows = [
        asdict(
            Delivered(
                time_s=heartbeat.time_s,
                client=client,
                received_bytes=heartbeat.bytes_received,
                sent_bytes=heartbeat.bytes_sent,
            )
        )
        for client in plan.traffic_by_client
        for heartbeat in read_heartbeats(generator_log(logs, client), client)
    ]
    return polars.DataFrame(rows, schema=SCHEMAS["delivered"]).sort("time_s", "client")


def _transfer_row(transfer: Transfer, measured: bool) -> TransferRow:
    times: dict[str, Any] = {_column(step): transfer.step_s[step] for step in STEPS}
    return TransferRow(
        client=transfer.client,
        stream_id=transfer.stream_id,
        port=transfer.port,
        start_s=transfer.start_s,
        **times | {"time_to_last_byte_s": transfer.last_byte_s},
        received_bytes=transfer.bytes_received,
        sent_bytes=transfer.bytes_sent,
        ok=transfer.ok,
        error=transfer.error,
        measured=measured,
    )


def _column(step: str) -> str:
    """Name the column of one of TGen's steps, such as `time_to_first_byte_s`."""
    return f"time_to_{step.removesuffix('-recv').replace('-', '_')}_s"


def _names(row: type) -> list[str]:
    return [field.name for field in fields(row)]


def _table(path: Path, schema: Schema) -> polars.DataFrame:
    rows = _rows(path, schema)
    try:
        table = polars.DataFrame(rows, schema=schema)
    except (TypeError, polars.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise TestbedError(f"{path}: a value is not of its column's type: {reason}") from None
    return table.with_columns(polars.col(polars.Float64).fill_nan(None))


def _rows(path: Path, keys: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, each with exactly these keys."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TestbedError(
            f"{path}: {error.strerror}: the experiment's record is incomplete"
        ) from (None)
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            raise TestbedError(f"{path}: line {number}: not a complete JSON object") from None
        if not isinstance(row, dict) or set(row) != set(keys):
            raise TestbedError(f"{path}: line {number}: needs the keys {', '.join(keys)}")
        rows.append(row)
    return rows
