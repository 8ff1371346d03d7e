"""The tables of a run: their columns, and how they are made from the experiment's raw rows.

What the columns mean is said where the rows are recorded; figures are made elsewhere.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import polars

from testbed.errors import TestbedError
from testbed.plan_model import Plan
from testbed.traffic.tgen_log import STEPS, Transfer, generator_log, read_heartbeats, read_transfers

Schema = Mapping[str, type[polars.DataType]]

_TEXT, _NUMBER, _COUNT, _FLAG = polars.String, polars.Float64, polars.Int64, polars.Boolean

_CONNECTIONS: Schema = {
    "time_s": _NUMBER,
    "node": _TEXT,
    "peer": _TEXT,
    "port": _COUNT,
    "peer_port": _COUNT,
    "cwnd_segments": _COUNT,
    "ssthresh_segments": _COUNT,
    "rtt_ms": _NUMBER,
    "min_rtt_ms": _NUMBER,
    "retransmitted_segments": _COUNT,
    "lost_segments": _COUNT,
    "acknowledged_bytes": _COUNT,
    "received_bytes": _COUNT,
    "unsent_bytes": _COUNT,
}

_STEP_COLUMNS = {
    f"time_to_{step.removesuffix('-recv').replace('-', '_')}_s": step for step in STEPS
}
"""TGen's step by column of `transfers`: from `time_to_socket_create_s` to `time_to_checksum_s`."""

SCHEMAS: Mapping[str, Schema] = {
    "transfers": {
        "client": _TEXT,
        "stream_id": _COUNT,
        "port": _COUNT,
        "start_s": _NUMBER,
        **dict.fromkeys(_STEP_COLUMNS, _NUMBER),
        "received_bytes": _COUNT,
        "sent_bytes": _COUNT,
        "ok": _FLAG,
        "error": _TEXT,
        "measured": _FLAG,
        "circuit": _TEXT,
        "path": _TEXT,
    },
    "circuits": {
        "time_s": _NUMBER,
        "client": _TEXT,
        "circuit": _TEXT,
        "status": _TEXT,
        "round": _TEXT,
        "since_extend_s": _NUMBER,
        "hops": _TEXT,
        "reason": _TEXT,
    },
    "streams": {
        "time_s": _NUMBER,
        "client": _TEXT,
        "stream": _TEXT,
        "status": _TEXT,
        "circuit": _TEXT,
        "path": _TEXT,
        "target": _TEXT,
        "source_port": _COUNT,
    },
    "round_trips": {
        "sent_s": _NUMBER,
        "client": _TEXT,
        "round_trip_ms": _NUMBER,
        "error": _TEXT,
    },
    "delivered": {
        "time_s": _NUMBER,
        "client": _TEXT,
        "received_bytes": _COUNT,
        "sent_bytes": _COUNT,
    },
    "sockets": _CONNECTIONS,
    "competing": _CONNECTIONS,
    "queues": {
        "time_s": _NUMBER,
        "relay": _TEXT,
        "queue": _TEXT,
        "connection": _TEXT,
        "next_queue": _TEXT,
        "next_connection": _TEXT,
        "removed_cells": _COUNT,
        "waited_ms": _COUNT,
    },
    "relays": {
        "time_s": _NUMBER,
        "relay": _TEXT,
        "connections": _COUNT,
        "most_opened_to_one": _COUNT,
        "sockets": _COUNT,
        "tor_memory_bytes": _COUNT,
        "socket_memory_bytes": _COUNT,
    },
    "links": {
        "time_s": _NUMBER,
        "when": _TEXT,
        "sender": _TEXT,
        "receiver": _TEXT,
        "sent_packets": _COUNT,
        "sent_bytes": _COUNT,
        "dropped_packets": _COUNT,
        "overflowed_packets": _COUNT,
        "bundled_segments": _COUNT,
        "received_packets": _COUNT,
        "received_bytes": _COUNT,
    },
}
"""Columns by table; all times are Unix times of the machine's clock.

`transfers` has TGen's streams, one a row, with the times of their steps, null if a step was not
reached; `port` is its socket's; `measured` are those that began before measuring ended; `circuit`
is Tor's number of the
circuit that carried it, and `path` the names of its relays. `time_to_last_byte_s` of a whole
upload is to the server's word that the last byte has come.
`delivered` has what a client's generator moved since its heartbeat before, a second earlier. The
others' columns are those of `CircuitChange`, `StreamChange`, `RoundTrip`, `SocketSample`
(`sockets` and `competing`), `QueueSample`, `RelaySample` and `record_links`.
"""

_OLDER_STEPS = ("time_to_first_byte_s", "time_to_last_byte_s")
YOUNGER_COLUMNS: Mapping[str, Sequence[str]] = {
    "links": ("overflowed_packets",),
    "queues": ("next_queue", "next_connection"),
    "relays": ("most_opened_to_one",),
    "transfers": (
        *(column for column in _STEP_COLUMNS if column not in _OLDER_STEPS),
        *("circuit", "path", "sent_bytes", "port"),
    ),
    "streams": ("source_port",),
}
"""Columns that older runs lack, by table: they are read as nulls."""

YOUNGER_TABLES = ("streams", "relays")
"""Tables that older runs lack: they are read as empty."""

_ASKS_WITHIN_S = 1.0
"""In what time after a transfer's beginning its stream is asked for, at the latest."""
_TOLD_LATE_S = 0.1
"""So late a transfer's beginning may be told: it is the time of a line that the generator writes at
its end, less how long it took. In the machine that is some microseconds, and then the stream seems
to be asked for before; no port is used again so soon."""

_FROM_LOGS = ("transfers", "delivered")
"""Made of the generators' logs; the others of the experiment's rows."""

_PROGRESS: Schema = {"time_s": _NUMBER, "step": _TEXT, "done_s": _NUMBER, "of_s": _NUMBER}
_NOTES: Schema = {"time_s": _NUMBER, "text": _TEXT}
_CHECKS: Schema = {
    **{"name": _TEXT, "expected": _TEXT, "observed": _TEXT, "ok": _FLAG},
    **{"value": polars.Struct, "bound": polars.Struct},
}


@dataclass(frozen=True)
class Tables:
    """The tables of a run, one attribute a table of `SCHEMAS`."""

    transfers: polars.DataFrame
    circuits: polars.DataFrame
    streams: polars.DataFrame
    round_trips: polars.DataFrame
    delivered: polars.DataFrame
    sockets: polars.DataFrame
    competing: polars.DataFrame
    queues: polars.DataFrame
    relays: polars.DataFrame
    links: polars.DataFrame

    def items(self) -> Iterator[tuple[str, polars.DataFrame]]:
        """Name and table of each."""
        for field in fields(self):
            yield field.name, getattr(self, field.name)


@dataclass(frozen=True)
class Recorded:
    """Everything that an experiment has recorded.

    Attributes:
        checks: rows by the keys of `summary.Check`.
        notes: in the order in which they were written.
        measuring_start_s: Unix time on the machine's clock.
    """

    tables: Tables
    checks: list[dict[str, Any]]
    notes: list[str]
    measuring_start_s: float


def read_recorded(directory: Path, plan: Plan) -> Recorded:
    """Read `raw/` and the generators' logs of a finished experiment.

    Raises:
        TestbedError: a file is missing or isn't as the experiment writes it, or the experiment
            didn't come to measuring.
    """
    raw, logs = directory / "raw", directory / "logs"
    start_s = _measuring_start_s(raw / "progress.jsonl")
    recorded = {
        name: _table(raw / f"{name}.jsonl", schema)
        for name, schema in SCHEMAS.items()
        if name not in _FROM_LOGS
    }
    transfers = _transfers(logs, plan, start_s + plan.duration_s)
    return Recorded(
        tables=Tables(
            transfers=_with_circuits(transfers, recorded["streams"]),
            delivered=_delivered(logs, plan),
            **recorded,
        ),
        checks=_rows(raw / "checks.jsonl", _CHECKS),
        notes=[row["text"] for row in _rows(raw / "notes.jsonl", _NOTES)],
        measuring_start_s=start_s,
    )


def _measuring_start_s(path: Path) -> float:
    for row in _rows(path, _PROGRESS):
        if row["step"] == "measuring":
            return float(row["time_s"] - row["done_s"])
    raise TestbedError(f"{path}: no step 'measuring': the experiment did not come so far")


def _transfers(logs: Path, plan: Plan, end_s: float) -> polars.DataFrame:
    """Every stream; whatever began before `end_s` is measured.

    The generators start some milliseconds before measuring does. What they begin with counts,
    lest it be a matter of microseconds whose first transfer does and whose doesn't.
    """
    rows = [
        _transfer_row(transfer, transfer.start_s < end_s)
        for client in plan.traffic_by_client
        for transfer in read_transfers(generator_log(logs, client), client)
    ]
    return polars.DataFrame(rows, schema=SCHEMAS["transfers"]).sort("start_s", "client")


def _with_circuits(transfers: polars.DataFrame, streams: polars.DataFrame) -> polars.DataFrame:
    """The transfers with the circuit of each: that of the next stream from its port.

    Where Tor detached a stream and tried another circuit, the last one counts that succeeded.
    """
    begun = (
        streams.filter(status="NEW")
        .select(
            "client",
            "stream",
            start_s=polars.col("time_s") + _TOLD_LATE_S,
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
            tolerance=_ASKS_WITHIN_S + _TOLD_LATE_S,
            check_sortedness=False,
        )
        .join(carried, on=["client", "stream"], how="left", maintain_order="left")
        .drop("stream")
    )
    return of_transfers.select(*SCHEMAS["transfers"])


def _delivered(logs: Path, plan: Plan) -> polars.DataFrame:
    rows = [
        {
            "client": client,
            "time_s": heartbeat.time_s,
            "received_bytes": heartbeat.bytes_received,
            "sent_bytes": heartbeat.bytes_sent,
        }
        for client in plan.traffic_by_client
        for heartbeat in read_heartbeats(generator_log(logs, client), client)
    ]
    return polars.DataFrame(rows, schema=SCHEMAS["delivered"]).sort("time_s", "client")


def _transfer_row(transfer: Transfer, measured: bool) -> dict[str, Any]:
    return {
        "client": transfer.client,
        "stream_id": transfer.stream_id,
        "port": transfer.port,
        "start_s": transfer.start_s,
        **{column: transfer.step_s[step] for column, step in _STEP_COLUMNS.items()},
        "time_to_last_byte_s": transfer.last_byte_s,
        "received_bytes": transfer.bytes_received,
        "sent_bytes": transfer.bytes_sent,
        "ok": transfer.ok,
        "error": transfer.error,
        "measured": measured,
        "circuit": None,
        "path": None,
    }


def _table(path: Path, schema: Schema) -> polars.DataFrame:
    rows = _rows(path, schema)
    try:
        table = polars.DataFrame(rows, schema=schema)
    except (TypeError, polars.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise TestbedError(f"{path}: a value of another type than its column's: {reason}") from None
    return table.with_columns(polars.col(_NUMBER).fill_nan(None))


def _rows(path: Path, schema: Schema) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, each with exactly the schema's keys."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}: the experiment's record is not whole") from (
            None
        )
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            raise TestbedError(f"{path}: line {number}: no whole JSON object") from None
        if not isinstance(row, dict) or set(row) != set(schema):
            raise TestbedError(f"{path}: line {number}: needs the keys {', '.join(schema)}")
        rows.append(row)
    return rows
