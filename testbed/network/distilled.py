"""Consensuses that come with the project: Parquet files without addresses, keys and nicknames.

They are in consensuses/, named by their day; `distil` makes them from documents.
"""

import bisect
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from testbed.basics.errors import InputError, reason_of
from testbed.basics.toml_file import PROJECT
from testbed.network.consensus import RELAY_COLUMNS, Consensus, Document, read_document

CONSENSUSES = PROJECT / "consensuses"
SUFFIX = ".parquet"
_KEY = "consensus"
"""The key of the Parquet file's metadata that has everything but the relays, as JSON."""


def names() -> list[str]:
    """The names of the consensuses that come with the project, in the order of time."""
    return sorted(path.stem for path in CONSENSUSES.glob(f"*{SUFFIX}"))


def distil(
    documents: Sequence[Path],
    folder: Path,
    *,
    policies: Sequence[Path] = (),
    countries: Path | None = None,
) -> list[Path]:
    """Distil consensus documents into a folder, each into a file named by its day.

    Args:
        policies: documents with exit policies, for documents without: a relay's policy comes from
            the document nearest in time that has a relay with the same key.
        countries: see `with_countries`.

    Raises:
        InputError: a document or the database can't be read, two documents are of the same day, or
            the folder can't be written.
    """
    others = [read_document(path) for path in policies]
    made: dict[str, Path] = {}
    for path in documents:
        document = read_document(path)
        consensus = document.consensus
        if consensus.day in made:
            raise InputError(f"{path}: of the same day as {made[consensus.day]}: give one of them")
        made[consensus.day] = path
        nearest = sorted(
            others, key=lambda other: abs(other.consensus.valid_after - consensus.valid_after)
        )
        joined = nearest if consensus.flavour == "microdesc" else []
        document = with_policies(document, joined)
        if countries is not None:
            document = with_countries(document, countries)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_distilled(
                document,
                folder / f"{consensus.day}{SUFFIX}",
                source={
                    "file": path.name,
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                },
                policies_from=[other.consensus.day for other in joined],
            )
        except OSError as error:
            raise InputError(f"--out {reason_of(error, folder)}") from error
    return [folder / f"{day}{SUFFIX}" for day in made]


def read_distilled(path: Path, name: str) -> Consensus:
    """Read a consensus from a file that `distil` made.

    Raises:
        InputError: it can't be read, or is another kind of file.
    """
    try:
        metadata = json.loads(pl.read_parquet_metadata(path)[_KEY])
        relays = pl.read_parquet(path).select(list(RELAY_COLUMNS)).cast(pl.Schema(RELAY_COLUMNS))
        return Consensus(
            name=name,
            valid_after=datetime.fromisoformat(metadata["valid_after"]),
            flavour=metadata["flavour"],
            bandwidth_weights=metadata["bandwidth_weights"],
            relays=relays,
        )
    except OSError as error:
        raise InputError(f"consensus {reason_of(error, path)}") from error
    except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{path}: damaged, or not made by ./run.py distil: make it again"
        ) from error


def write_distilled(
    document: Document, path: Path, *, source: Mapping[str, str], policies_from: Sequence[str]
) -> None:
    """Write a document's consensus without the data that would identify relays.

    Relays are in the order of their weight, not of their keys as in the document.

    Args:
        source: the name and the SHA-256 of the document's file.
        policies_from: the days of the documents that policies were taken from.
    """
    consensus = document.consensus
    metadata = {
        "valid_after": consensus.valid_after.astimezone(UTC).isoformat(),
        "flavour": consensus.flavour,
        "bandwidth_weights": dict(consensus.bandwidth_weights),
        "source": dict(source),
        "policies_from": list(policies_from),
    }
    relays = consensus.relays.sort(
        "weight", "guard", "exit", "network16", "policy", descending=True, maintain_order=True
    )
    relays = _renumbered(relays)
    relays.write_parquet(
        path, compression="zstd", compression_level=19, metadata={_KEY: json.dumps(metadata)}
    )


def with_policies(document: Document, others: Sequence[Document]) -> Document:
    """Add the policies that relays with the same key have in the first of the other documents.

    The document's own policies stay.
    """
    known: dict[str, str] = {}
    for other in reversed(others):
        policies = zip(other.identities, other.consensus.relays["policy"], strict=True)
        known |= {identity: policy for identity, policy in policies if policy is not None}
    own = document.consensus.relays["policy"]
    joined = [
        known.get(identity) if policy is None else policy
        for identity, policy in zip(document.identities, own, strict=True)
    ]
    return _with_column(document, "policy", joined)


def with_countries(document: Document, database: Path) -> Document:
    """Add each relay's country, by its address.

    Args:
        database: Tor's geoip file (src/config/geoip in its source, or Debian's tor-geoipdb): lines
            of first address, last address (as numbers) and country.

    Raises:
        InputError: the database can't be read or has another form.
    """
    firsts, lasts, countries = _read_countries(database)
    found: list[str | None] = []
    for address in document.addresses:
        number = int.from_bytes(bytes(map(int, address.split("."))), "big")
        place = bisect.bisect_right(firsts, number) - 1
        inside = place >= 0 and number <= lasts[place]
        found.append(countries[place] if inside else None)
    return _with_column(document, "country", found)


def _read_countries(database: Path) -> tuple[list[int], list[int], list[str | None]]:
    firsts: list[int] = []
    lasts: list[int] = []
    countries: list[str | None] = []
    try:
        lines = database.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--geoip {database}: can't be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.startswith("#") or not line:
            continue
        try:
            first, last, country = line.split(",")
            firsts.append(int(first))
            lasts.append(int(last))
        except ValueError:
            raise InputError(
                f"--geoip {database}, line {number}: not first,last,country as in Tor's geoip file"
            ) from None
        countries.append(None if country == "??" else country.lower())
    return firsts, lasts, countries


def _renumbered(relays: pl.DataFrame) -> pl.DataFrame:
    """Number the /16 networks in the order of rows, as a document's numbers follow relays' keys."""
    numbers: dict[int, int] = {}
    renumbered = [numbers.setdefault(one, len(numbers)) for one in relays["network16"]]
    kind = RELAY_COLUMNS["network16"]
    return relays.with_columns(pl.Series("network16", renumbered, dtype=kind))


def _with_column(document: Document, name: str, values: Sequence[str | None]) -> Document:
    consensus = document.consensus
    relays = consensus.relays.with_columns(pl.Series(name, values, dtype=RELAY_COLUMNS[name]))
    return replace(document, consensus=replace(consensus, relays=relays))
