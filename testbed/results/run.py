"""Reading a run directory back, for the analysis and for whoever shows a run.

Whatever the directory lacks is said with the file's name; nothing is written here.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars
from pydantic import ValidationError

from testbed.errors import TestbedError
from testbed.plan_model import Plan
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
from testbed.results.tables import SCHEMAS, YOUNGER_COLUMNS, YOUNGER_TABLES
from testbed.results.values import build_times_ms, clients_of, wire_bytes_per_byte
from testbed.setup.sources import sha256_of


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory. The tables are read when they are asked for, and then kept.

    Of a run whose tables were thrown away the summary says what is left to say.
    """

    directory: Path
    summary: Summary
    manifest: dict[str, Any]

    @cached_property
    def plan(self) -> Plan:
        """The plan that was run.

        Raises:
            TestbedError: it is not as this testbed writes plans.
        """
        try:
            return Plan.model_validate(self.manifest["plan"])
        except ValidationError as error:
            raise TestbedError(
                f"{self.directory / MANIFEST}: plan.{_first(error)}: not a plan of this testbed"
            ) from None

    @property
    def fingerprint(self) -> str | None:
        """The hash over its contents that was made when they were written; older runs lack it."""
        return self.manifest.get(FINGERPRINT)

    @property
    def shown_fingerprint(self) -> str:
        """As much of it as people compare."""
        return (self.fingerprint or NOT_RECORDED)[:SHOWN_DIGITS]

    @property
    def contents(self) -> Contents:
        """Tables and summary as they are in the files, without what later versions add."""
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
        """What other runs must share to be put together with this one."""
        return makers(self.summary.machine, self.manifest)

    @property
    def tor_key(self) -> str:
        """The key of the build of Tor, patches included."""
        return str((self.manifest.get("tor") or {}).get("key", NOT_RECORDED))

    @property
    def measuring_start_s(self) -> float:
        """When measuring began, as Unix time of the machine's clock, like the tables' times."""
        return float(self.manifest["measuring_start_s"])

    @property
    def clients_under_test(self) -> tuple[str, ...]:
        """The clients that run the model under test: of two bulk clients both, else the one.

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
        """Whether its tables are there, and not only what sums them up."""
        return any((self.directory / f"{name}.parquet").exists() for name in SCHEMAS)

    @cached_property
    def under_test(self) -> TrafficSummary:
        """What these clients got, by today's rules: older summaries lack some of it."""
        if self.is_whole:
            return traffic_summary(self, self.summary.traffic, self.clients_under_test)
        return self.summary.by_traffic[0]

    @cached_property
    def build_time_ms(self) -> Distribution:
        """Of the circuits that carried these clients' traffic; of a summary alone all clients'."""
        if self.is_whole:
            return distribution(build_times_ms(self, self.clients_under_test))
        return self.summary.circuit_build_time_ms

    @cached_property
    def held_by_relays(self) -> tuple[RelaySummary, ...]:
        """What each relay held; older runs don't know."""
        return relay_summaries(self.relays) if self.is_whole else self.summary.relays

    @cached_property
    def wire_bytes_per_byte(self) -> float | None:
        """Bytes on the wire for each byte delivered; see `values.wire_bytes_per_byte`."""
        if self.is_whole:
            return wire_bytes_per_byte(self.plan, self)
        return self.summary.wire_bytes_per_byte

    @cached_property
    def transfers(self) -> polars.DataFrame:
        """TGen's streams, one a row; `measured` are those that began before measuring ended."""
        return self._table("transfers")

    @cached_property
    def circuits(self) -> polars.DataFrame:
        """Tor's circuit events."""
        return self._table("circuits")

    @cached_property
    def streams(self) -> polars.DataFrame:
        """Tor's stream events: which circuit carried which; older runs have none."""
        return self._table("streams")

    @cached_property
    def round_trips(self) -> polars.DataFrame:
        """Probes of the circuits."""
        return self._table("round_trips")

    @cached_property
    def delivered(self) -> polars.DataFrame:
        """What each client's generator moved, second by second."""
        return self._table("delivered")

    @cached_property
    def competing(self) -> polars.DataFrame:
        """Samples of the kernel's TCP state of the competing streams."""
        return self._table("competing")

    @cached_property
    def queues(self) -> polars.DataFrame:
        """Cells through the queues of the relays that are watched, second by second."""
        return self._table("queues")

    @cached_property
    def relays(self) -> polars.DataFrame:
        """Samples of what each relay holds; older runs have none."""
        return self._table("relays")

    @cached_property
    def sockets(self) -> polars.DataFrame:
        """Samples of the kernel's TCP state on the shared link."""
        return self._table("sockets")

    @cached_property
    def links(self) -> polars.DataFrame:
        """What each direction of each link had counted before and after measuring."""
        return self._table("links")

    def _table(self, name: str) -> polars.DataFrame:
        path = self.directory / f"{name}.parquet"
        if name in YOUNGER_TABLES and not path.exists():
            return polars.DataFrame(schema=SCHEMAS[name])
        table = _read_table(path)
        lacking = [column for column in YOUNGER_COLUMNS.get(name, ()) if column not in table]
        return table.with_columns(
            polars.lit(None, SCHEMAS[name][column]).alias(column) for column in lacking
        )


def read_run(directory: Path, *, whole: bool = True) -> Run:
    """Read a run's summary and manifest, and see that its tables are there as they were written.

    Args:
        whole: refuse a directory that has summary and manifest, but no table.

    Raises:
        TestbedError: the directory is no run's, a failed run's, of another format, or damaged; or
            its summary is all there is, and too old to stand alone.
    """
    if not directory.is_dir():
        raise TestbedError(f"{directory} is no directory, so no run")
    if (directory / ERROR).exists():
        raise TestbedError(f"{directory} is what a failed run left: see its {ERROR}")
    summary = _summary(directory / SUMMARY)
    manifest = _manifest(directory / MANIFEST)
    run = Run(directory, summary, manifest)
    wanted = whole or run.is_whole
    if not wanted and not summary.by_traffic:
        raise TestbedError(f"{directory / SUMMARY}: no by_traffic: this old run needs its tables")
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
        raise TestbedError(f"{path}: {error.strerror}: not a run directory, or not whole") from None
    except ValueError as error:
        raise TestbedError(f"{path}: not whole: {error}") from None
    if not isinstance(content, dict):
        raise TestbedError(f"{path}: no JSON object")
    return content


def _read_table(path: Path) -> polars.DataFrame:
    try:
        return polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from None


def _check_table(path: Path, name: str) -> None:
    """See that a table can be read and has the columns, by its footer alone."""
    if name in YOUNGER_TABLES and not path.exists():
        return
    try:
        found = polars.read_parquet_schema(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise _unreadable(path, error) from None
    for column, kind in SCHEMAS[name].items():
        if column not in found and column in YOUNGER_COLUMNS.get(name, ()):
            continue
        if column not in found:
            raise TestbedError(f"{path}: the column {column} is missing")
        if found[column] != kind:
            raise TestbedError(f"{path}: {column} is {found[column]}, not {kind.__name__}")


def _check_digest(path: Path, digest: str) -> None:
    """See that a file is as it was written, before polars reads it.

    Damaged, a table can have other numbers, and polars can panic.
    """
    try:
        found = sha256_of(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if found != digest:
        raise TestbedError(f"{path}: not whole: its SHA-256 is not the one in {MANIFEST}")


def _unreadable(path: Path, error: Exception) -> TestbedError:
    if not path.exists():
        return TestbedError(f"{path} is missing: the run is not whole")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return TestbedError(f"{path}: not a whole Parquet file: {reason}")


def _first(error: ValidationError) -> str:
    """The first thing that is wrong: its place and what is."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
