"""Consensus documents as data, and how they are read.

`testbed.network.positions` says which relay can be in which position of a circuit;
`testbed.network.distilled` has the form in which consensuses come with the project.
"""

import bz2
import gc
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from testbed.basics.errors import InputError, reason_of

RELAY_COLUMNS: Mapping[str, Any] = {
    "weight": pl.UInt32,
    "guard": pl.Boolean,
    "exit": pl.Boolean,
    "bad_exit": pl.Boolean,
    "fast": pl.Boolean,
    "stable": pl.Boolean,
    "v2dir": pl.Boolean,
    "network16": pl.UInt16,
    "family": pl.UInt32,
    "country": pl.String,
    "policy": pl.String,
}
"""The columns of relays, a row for each. The weight is the consensus's (`w Bandwidth=`), and flags
are as written there.

- network16: a number for each IPv4 /16 of the document, not the address.
- family: a number for each family; null for a relay without one, or if it is unknown, as in every
  consensus: families are in descriptors.
- country: two letters, lower case; null if unknown.
- policy: the summary of the exit policy, such as "accept 80,443" or "reject 25" (dir-spec, "p");
  null if unknown, as in the microdesc flavour.
"""

_FLAGS = {
    "Guard": "guard",
    "Exit": "exit",
    "BadExit": "bad_exit",
    "Fast": "fast",
    "Stable": "stable",
    "V2Dir": "v2dir",
}

_ENTRY, _FOOTER, _SIGNATURE = b"\nr ", b"\ndirectory-footer\n", b"\ndirectory-signature "


@dataclass(frozen=True, eq=False)
class Consensus:
    """The content of one consensus.

    Attributes:
        name: its source as users know it: a name from the project, or a file's path.
        bandwidth_weights: Wgg to Wed, in 1/10000; empty if the document has none.
        relays: a table with `RELAY_COLUMNS`.
    """

    name: str
    valid_after: datetime
    flavour: str
    bandwidth_weights: Mapping[str, int]
    relays: pl.DataFrame

    @property
    def day(self) -> str:
        """The day (UTC) from which it was valid, such as "2021-11-30"."""
        return f"{self.valid_after:%Y-%m-%d}"


@dataclass(frozen=True, eq=False)
class Document:
    """A consensus with the data of its document that must not come with the project.

    Attributes:
        identities: the relays' fingerprints, in the order of the consensus's relays.
        addresses: their IPv4 addresses.
    """

    consensus: Consensus
    identities: list[str]
    addresses: list[str]


def read_document(path: Path) -> Document:
    """Read the consensus document in a file, plain or compressed (gz, xz, bz2, zlib).

    Raises:
        InputError: it can't be read, or is damaged or cut off, with the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"consensus {reason_of(error, path)}") from error
    return parse_document(str(path), content)


def parse_document(name: str, content: bytes) -> Document:
    """Parse a consensus document, which must be whole; its signatures are not verified.

    Args:
        name: its source, for errors.

    Raises:
        InputError: it is not a consensus, or is damaged or cut off, with the line.
    """
    # Importing stem takes a tenth of a second, and distilled consensuses don't need it.
    from stem.descriptor import DocumentHandler, parse_file

    plain = uncompressed(name, content)
    kind = _kind(name, plain)
    _check_whole(name, plain)
    try:
        with _no_garbage_collection():
            parsed = next(
                parse_file(
                    io.BytesIO(plain),
                    kind,
                    validate=True,
                    document_handler=DocumentHandler.DOCUMENT,
                )
            )
        entries = list(parsed.routers.values())
    except ValueError as error:
        line = _damaged_line(plain, kind, str(error))
        reason = str(error).splitlines()[0].rstrip(":")
        raise InputError(f"{name}, line {line}: the consensus is damaged: {reason}") from error
    for entry in entries:
        if entry.bandwidth is None:
            line = _line_of(plain, entry.get_bytes().splitlines()[0])
            raise InputError(f"{name}, line {line}: the relay has no weight (w Bandwidth=…)")
    consensus = Consensus(
        name=name,
        valid_after=parsed.valid_after.replace(tzinfo=UTC),
        flavour="microdesc" if parsed.is_microdescriptor else "ns",
        bandwidth_weights=dict(parsed.bandwidth_weights),
        relays=_relays(entries),
    )
    return Document(
        consensus,
        [entry.fingerprint for entry in entries],
        [entry.address for entry in entries],
    )


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Don't look for cycles: in a document's 100,000 objects it takes an eighth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def relays_frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    """A table of relays from these columns; other `RELAY_COLUMNS` are unknown."""
    count = len(columns["weight"])
    return pl.DataFrame(
        {
            name: pl.Series(name, columns.get(name, [None] * count), dtype=kind)
            for name, kind in RELAY_COLUMNS.items()
        }
    )


def _relays(entries: list[Any]) -> pl.DataFrame:
    flags = [frozenset(entry.flags) for entry in entries]
    networks: dict[str, int] = {}
    numbers = [
        networks.setdefault(entry.address.rsplit(".", 2)[0], len(networks)) for entry in entries
    ]
    # Entries of the microdesc flavour have no such attribute.
    policies = [getattr(entry, "exit_policy", None) for entry in entries]
    return relays_frame(
        {
            "weight": [entry.bandwidth for entry in entries],
            **{column: [flag in each for each in flags] for flag, column in _FLAGS.items()},
            "network16": numbers,
            "policy": [None if policy is None else str(policy) for policy in policies],
        }
    )


def uncompressed(name: str, content: bytes) -> bytes:
    """Decompress content; truncated content gives all that is there.

    Raises:
        InputError: it is damaged, or its compression isn't supported.
    """
    openers: Mapping[bytes, Callable[[], Any]] = {
        b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
        b"\x78": zlib.decompressobj,
        b"BZh": bz2.BZ2Decompressor,
        b"\xfd7zXZ": lzma.LZMADecompressor,
        b"\x5d\x00\x00": lzma.LZMADecompressor,
    }
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        raise InputError(f"{name}: zstd is not supported: unpack it first (zstd -d)")
    for magic, opener in openers.items():
        if content.startswith(magic):
            try:
                return bytes(opener().decompress(content))
            except (lzma.LZMAError, zlib.error, OSError) as error:
                raise InputError(f"{name}: its compressed data are damaged: {error}") from error
    return content


def _kind(name: str, plain: bytes) -> str:
    """Stem's name for the document's flavour."""
    for line in plain[:1000].splitlines():
        if line.startswith(b"network-status-version 3"):
            flavour = "microdesc-" if line.endswith(b" microdesc") else ""
            return f"network-status-{flavour}consensus-3 1.0"
        if not line.startswith(b"@"):
            break
    raise InputError(
        f'{name}, line 1: not a consensus document, which begins with "network-status-version 3"'
    )


def _check_whole(name: str, plain: bytes) -> None:
    """Refuse truncated documents; stem accepts those that end between two relays."""
    last = plain.rstrip(b"\n").count(b"\n") + 1
    if _FOOTER not in plain or _SIGNATURE not in plain:
        raise InputError(
            f"{name}, line {last}: the consensus is cut off here: its footer and signatures are"
            " missing; get the whole document"
        )
    if not plain.rstrip().endswith(b"-----END SIGNATURE-----"):
        raise InputError(f"{name}, line {last}: the consensus is cut off within its signatures")


def _damaged_line(plain: bytes, kind: str, reason: str) -> int:
    """The line (from 1) of stem's complaint: the one it quotes, or its relay's first."""
    from stem.descriptor import router_status_entry as entries

    entry_class = (
        entries.RouterStatusEntryMicroV3 if "microdesc" in kind else entries.RouterStatusEntryV3
    )
    begin = plain.find(_ENTRY)
    end = plain.find(_FOOTER)
    while 0 <= begin < end:
        following = plain.find(_ENTRY, begin + 1, end)
        entry_end = end if following < 0 else following
        entry = plain[begin + 1 : entry_end + 1]
        try:
            entry_class(entry, validate=True)
        except ValueError as error:
            return plain[: begin + 1].count(b"\n") + 1 + _quoted(entry, str(error))
        begin = following
    return 1 + _quoted(plain, reason)


def _quoted(text: bytes, reason: str) -> int:
    """The number (from 0) of the line that the reason's first line quotes; 0 if it quotes none."""
    message = reason.splitlines()[0]
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines()):
        keyword, _, value = line.partition(" ")
        if line and (line in message or (len(value) > 3 and value in message)):
            return number
        if keyword and f"'{keyword}' line" in message:
            return number
    return 0


def _line_of(plain: bytes, line: bytes) -> int:
    return plain[: plain.find(line)].count(b"\n") + 1
