"""Reading a run directory back, for the analysis and for commands that show runs.

Errors name the file that is missing or damaged; nothing is written here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars
from pydantic import ValidationError

from testbed.basics.errors import TestbedError
from testbed.inside.rows import LATER_TABLES
from testbed.plan.model import Plan
from testbed.results.fingerprint import Contents
from testbed.results.made_by import NOT_RECORDED, SHOWN_DIGITS, makers
from testbed.results.manifest import FINGERPRINT, FORMAT, MANIFEST, SHA256
from testbed.results.summarising import distribution, relay_summaries, traffic_summary
from testbed.results.summary import (
    ERROR,
    SUMMARY,
    Distribution,
    RelaySummary,
    Summary,
    TrafficSummary,
)
from testbed.results.tables import LATER_COLUMNS, SCHEMAS, HasTables
from testbed.results.values import build_times_ms, clients_of, wire_bytes_per_byte
from testbed.setup.sources import sha256_of

VALUES = "values.json"
"""The file with what a study keeps of a run's tables."""


@dataclass(frozen=True, eq=False)
class Run(HasTables):
    """A run directory, with an attribute for each table, which is read on first use.

    If its tables were deleted, the figures come from its summary.
    """

    directory: Path
    summary: Summary
    manifest: dict[str, Any]

    @cached_property
    def plan(self) -> Plan:
        """The plan that was run.

        Raises:
            TestbedError: it is not a plan of this testbed.
        """
        try:
            return Plan.model_validate(self.manifest["plan"])
        except ValidationError as error:
            raise TestbedError(
                f"{self.directory / MANIFEST}: plan.{_first(error)}: not a plan of this testbed"
            ) from None

    @property
    def fingerprint(self) -> str | None:
        """The hash over its contents, made when they were written; older runs lack it."""
        return self.manifest.get(FINGERPRINT)

    @property
    def shown_fingerprint(self) -> str:
        """The part of the fingerprint that people compare."""
        return (self.fingerprint or NOT_RECORDED)[:SHOWN_DIGITS]

    @property
    def contents(self) -> Contents:
        """Tables and summary as they are in the files, without columns of later versions."""
        return Contents(
            {
                name: _read_table(path)
                for name in SCHEMAS
                if (path := self.directory / f"{name}.parquet").exists()
            },
            _json(self.directory / SUMMARY),
        )

    @property
    def makers(self) -> dict[str, str]:
        """The things that other runs must share to be combined with this one."""
        return makers(self.summary.machine, self.manifest)

    @property
    def tor_key(self) -> str:
        """The key of the build of Tor, patches included."""
        return str((self.manifest.get("tor") or {}).get("key", NOT_RECORDED))

    @property
    def measuring_start_s(self) -> float:
        """The start of measuring, as Unix time of the machine's clock, like the tables' times."""
        return float(self.manifest["measuring_start_s"])

    @property
    def clients_under_test(self) -> tuple[str, ...]:
        """The clients that run the model under test: one of two, or both if both are bulk.

        Raises:
            TestbedError: the manifest's plan doesn't say what each client ran.
        """
        traffic = self.manifest["plan"].get("traffic_by_client", {})
        if clients := clients_of(self.summary.traffic, traffic):
            return clients
        raise TestbedError(
            f"{self.directory / MANIFEST}: plan.traffic_by_client names no client that runs"
            f" {self.summary.traffic}"
        )

    @cached_property
    def is_whole(self) -> bool:
        """Whether it has its tables, and not only its summary."""
        return any((self.directory / f"{name}.parquet").exists() for name in SCHEMAS)

    @cached_property
    def kept_values(self) -> Mapping[str, float]:
        """Numbers that take tables which it lacks, by their metrics' keys, if they were kept."""
        file = self.directory / VALUES
        values: dict[str, float] = _json(file) if file.is_file() else {}
        return values

    @cached_property
    def under_test(self) -> TrafficSummary:
        """The figures of these clients, by today's rules: older summaries lack some."""
        if self.is_whole:
            return traffic_summary(self, self.summary.traffic, self.clients_under_test)
        return self.summary.by_traffic[0]

    @cached_property
    def build_time_ms(self) -> Distribution:
        """Build times of the circuits of these clients' traffic; of all clients without tables."""
        if self.is_whole:
            return distribution(build_times_ms(self, self.clients_under_test))
        return self.summary.circuit_build_time_ms

    @cached_property
    def held_by_relays(self) -> tuple[RelaySummary, ...]:
        """Connections and memory of each relay; older runs lack them."""
        if self.is_whole:
            return relay_summaries(self.relays, self.links)
        return self.summary.relays

    @cached_property
    def wire_bytes_per_byte(self) -> float | None:
        """Bytes on the wire for each byte delivered; see `results.values.wire_bytes_per_byte`."""
        if self.is_whole:
            return wire_bytes_per_byte(self.plan, self)
        return self.summary.wire_bytes_per_byte

    def table(self, name: str) -> polars.DataFrame:
        """Return the table of that name, read on first use."""
        if name not in self._read:
            self._read[name] = self._table(name)
        return self._read[name]

    @cached_property
    def _read(self) -> dict[str, polars.DataFrame]:
        return {}

    def _table(self, name: str) -> polars.DataFrame:
        path = self.directory / f"{name}.parquet"
        if name in LATER_TABLES and not path.exists():
            return polars.DataFrame(schema=SCHEMAS[name])
        table = _read_table(path)
        lacking = [column for column in SCHEMAS[name] if column not in table]
        return table.with_columns(
            polars.lit(None, SCHEMAS[name][column]).alias(column) for column in lacking
        )


def read_run(directory: Path, *, whole: bool = True) -> Run:
    """Read a run's summary and manifest, and check that its tables are as they were written.

    Args:
        whole: refuse a directory that has summary and manifest, but no table.

    Raises:
        TestbedError: the directory is not a run's, or a failed run's, of another format, or
            damaged; or it has only a summary, which is too old to stand alone.
    """
    if not directory.is_dir():
        raise TestbedError(f"{directory} is not a directory, so not a run")
    if (directory / ERROR).exists():
        raise TestbedError(f"{directory} is a failed run: see its {ERROR}")
    summary = _summary(directory / SUMMARY)
    manifest = _manifest(directory / MANIFEST)
    run = Run(directory, summary, manifest)
    wanted = whole or run.is_whole
    if not wanted and not summary.by_traffic:
        raise TestbedError(f"{directory / SUMMARY}: no by_traffic: a run this old needs its tables")
    for name, digest in manifest.get(SHA256, {}).items():
        if wanted or name == SUMMARY:
            _check_digest(directory / name, digest)
    for name in SCHEMAS if wanted else ():
        _check_table(directory / f"{name}.parquet", name)
    return run


def _summary(path: Path) -> Summary:
    content = _json(path)
    try:
        return Summary.model_validate(content)
    except ValidationError as error:
        raise TestbedError(f"{path}: {_first(error)}: not as this testbed writes it") from None


def _manifest(path: Path) -> dict[str, Any]:
    content = _json(path)
    if (found := content.get("format")) != FORMAT:
        raise TestbedError(f"{path}: format {found!r}: this testbed reads format {FORMAT}")
    for key in ("plan", "plan_key", "measuring_start_s"):
        if key not in content:
            raise TestbedError(f"{path}: {key} is missing")
    return content


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}: not a run directory, or damaged") from None
    except ValueError as error:
        raise TestbedError(f"{path}: damaged: {error}") from None
    if not isinstance(content, dict):
        raise TestbedError(f"{path}: not a JSON object")
    return content


def _read_table(path: Path) -> polars.DataFrame:
    try:
        return polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from None


def _check_table(path: Path, name: str) -> None:
    """Check, by its footer alone, that a table can be read and has the columns."""
    if name in LATER_TABLES and not path.exists():
        return
    try:
        found = polars.read_parquet_schema(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from None
    for column, kind in SCHEMAS[name].items():
        if column not in found and column in LATER_COLUMNS[name]:
            continue
        if column not in found:
            raise TestbedError(f"{path}: the column {column} is missing")
        if found[column] != kind:
            raise TestbedError(f"{path}: {column} is {found[column]}, not {kind.__name__}")


def _check_digest(path: Path, digest: str) -> None:
    """Check that a file is as it was written, before polars reads it.

    A damaged table can have other numbers, or make polars panic.
    """
    try:
        found = sha256_of(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if found != digest:
        raise TestbedError(f"{path}: damaged: its SHA-256 is not the one in {MANIFEST}")


def _unreadable(path: Path, error: Exception) -> TestbedError:
    if not path.exists():
        return TestbedError(f"{path} is missing: the run is incomplete")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TestbedError(f"{path}: damaged Parquet file: {reason}")


def _first(error: ValidationError) -> str:
    """The first error: its place and its message."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
