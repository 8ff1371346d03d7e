"""Consensuses as they come with the project: Parquet files without addresses, keys and nicknames.

They lie in consensuses/, named by their day; `distil` makes them from documents.
"""

import bisect
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from testbed.errors import InputError, reason_of
from testbed.network.consensus import RELAY_COLUMNS, Consensus, Document, read_document
from testbed.toml_file import PROJECT

CONSENSUSES = PROJECT / "consensuses"
SUFFIX = ".parquet"
_KEY = "consensus"
"""Of the Parquet file's metadata; all but the relays is there, as JSON."""


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
    """Make distilled consensuses of documents, in a folder; each is named by its day.

    Args:
        policies: documents with exit policies, for relays of documents without any: those of the
            same key in the document nearest in time.
        countries: see `with_countries`.

    Raises:
        InputError: a document or the database can't be read, two documents are of one day, or the
            folder can't be written.
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
    """The consensus in a file that `distil` made.

    Raises:
        InputError: it can't be read, or is no such file.
    """
    try:
        said = json.loads(pl.read_parquet_metadata(path)[_KEY])
        relays = pl.read_parquet(path).select(list(RELAY_COLUMNS)).cast(pl.Schema(RELAY_COLUMNS))
        return Consensus(
            name=name,
            valid_after=datetime.fromisoformat(said["valid_after"]),
            flavour=said["flavour"],
            bandwidth_weights=said["bandwidth_weights"],
            relays=relays,
        )
    except OSError as error:
        raise InputError(f"consensus {reason_of(error, path)}") from error
    except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{path}: damaged, or no consensus that ./run.py distil made: make it again"
        ) from error


def write_distilled(
    document: Document, path: Path, *, source: Mapping[str, str], policies_from: Sequence[str]
) -> None:
    """Write a document's consensus without what tells one relay from another elsewhere.

    Relays are in the order of their weight, not of their keys as in the document.

    Args:
        source: what it was made from: file's name and SHA-256.
        policies_from: the other documents' days from which policies were taken.
    """
    consensus = document.consensus
    said = {
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
        path, compression="zstd", compression_level=19, metadata={_KEY: json.dumps(said)}
    )


def with_policies(document: Document, others: Sequence[Document]) -> Document:
    """The document with the policies that relays of the same key have in others; the first tells.

    Policies of the document's own stay.
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
    """The document with each relay's country, by its address.

    Args:
        database: Tor's (src/config/geoip in its source, or of Debian's tor-geoipdb): lines of
            first address, last address (as numbers) and country.

    Raises:
        InputError: the database can't be read or is none.
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
    """With /16 numbers in the order of the rows: those of a document follow its relays' keys."""
    numbers: dict[int, int] = {}
    renumbered = [numbers.setdefault(one, len(numbers)) for one in relays["network16"]]
    kind = RELAY_COLUMNS["network16"]
    return relays.with_columns(pl.Series("network16", renumbered, dtype=kind))


def _with_column(document: Document, name: str, values: Sequence[str | None]) -> Document:
    consensus = document.consensus
    relays = consensus.relays.with_columns(pl.Series(name, values, dtype=RELAY_COLUMNS[name]))
    return replace(document, consensus=replace(consensus, relays=relays))
