"""Bandwidth files (v3bw), by which directory authorities learn the weights that were measured.

The form is that of Tor's bandwidth-file-spec: a time, a header, and a line for each relay. Stem
parses it, except that it never ends on a header without an end, which is refused here before.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.basics.errors import InputError, reason_of

VERSION = "1.4.0"
SEED = "seed"
"""The header's key that says for which seed's network a file was made; others than this testbed's
files lack it."""
UNMEASURED_WEIGHT = 20
"""What a relay has that isn't in the file, in kB/s: the most that authorities let one have that
nobody measured (dir-spec, maxunmeasuredbw)."""

_HEADER_END = (b"=====", b"====")
_TIME = re.compile(rb"\d+")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
_NUMBER = re.compile(r"\d{1,10}")
_LEAST_WEIGHT = 1
_GREATEST_WEIGHT = 2**32 - 1


@dataclass(frozen=True)
class MeasuredRelay:
    """A relay's line.

    Attributes:
        fingerprint: of its identity key, 40 hexadecimal digits in upper case.
        nickname: None if the line has none.
        weight: `bw`, in kB/s.
        others: the line's other keys.
    """

    fingerprint: str
    nickname: str | None
    weight: int
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BandwidthFile:
    """A bandwidth file's content.

    Attributes:
        unix_time: when the newest of its measurements was made.
        relays: those that authorities vote on; lines with `vote=0` aren't among them.
        header: its keys without the version.
    """

    unix_time: int
    relays: tuple[MeasuredRelay, ...]
    header: Mapping[str, str] = field(default_factory=dict)

    def by_nickname(self) -> dict[str, MeasuredRelay]:
        """The relays that have a nickname."""
        return {relay.nickname: relay for relay in self.relays if relay.nickname}


def read_bandwidth_file(path: Path) -> BandwidthFile:
    """Read the bandwidth file at a path.

    Raises:
        InputError: it can't be read, or is damaged or cut off.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"the bandwidth file {reason_of(error, path)}") from error
    return parse_bandwidth_file(str(path), content)


def parse_bandwidth_file(name: str, content: bytes) -> BandwidthFile:
    """Parse a bandwidth file.

    Args:
        name: its source, for errors.

    Raises:
        InputError: it is damaged or cut off, with the relay's line if it is one.
    """
    # Importing stem takes a tenth of a second, and most scenarios don't need it.
    from stem.descriptor.bandwidth_file import BandwidthFile as Parsed

    lines = content.splitlines()
    _check_header(name, lines)
    try:
        parsed = Parsed(content, validate=True)
    except (ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{name}: the bandwidth file is damaged: {reason}") from error
    relays = tuple(
        _relay(name, lines, fingerprint, keys)
        for fingerprint, keys in parsed.measurements.items()
        if keys.get("vote") != "0"
    )
    if not relays:
        raise InputError(f"{name}: the bandwidth file has no relay: it is cut off, or empty")
    header = {key: value for key, value in parsed.header.items() if key != "version"}
    return BandwidthFile(int(lines[0]), relays, header)


def _check_header(name: str, lines: list[bytes]) -> None:
    """Refuse a file without a time, or whose header doesn't end."""
    if not lines or not _TIME.fullmatch(lines[0].strip()):
        raise InputError(
            f"{name}, line 1: not a bandwidth file, which begins with a time in seconds since 1970"
        )
    has_header = len(lines) > 1 and b"node_id=" not in lines[1]
    if has_header and not any(line.strip() in _HEADER_END for line in lines):
        raise InputError(
            f"{name}, line {len(lines)}: the bandwidth file is cut off within its header, which"
            " ends with a line of ====="
        )


def _relay(
    name: str, lines: list[bytes], fingerprint: str, keys: Mapping[str, str]
) -> MeasuredRelay:
    """A relay from its line's keys; InputError if Tor would take no weight from it."""
    line = next(number for number, text in enumerate(lines, 1) if fingerprint.encode() in text)
    where = f"{name}, line {line}:"
    if not _FINGERPRINT.fullmatch(fingerprint.upper()):
        raise InputError(f"{where} node_id={fingerprint} is no fingerprint: write 40 hex digits")
    said = keys.get("bw")
    if said is None:
        raise InputError(f"{where} the relay has no weight: write bw=… in kB/s")
    if not _NUMBER.fullmatch(said) or not _LEAST_WEIGHT <= int(said) <= _GREATEST_WEIGHT:
        raise InputError(
            f"{where} bw={said} is no weight: write a whole number of kB/s from {_LEAST_WEIGHT} to"
            f" {_GREATEST_WEIGHT}"
        )
    others = {key: value for key, value in keys.items() if key not in ("node_id", "bw", "nick")}
    return MeasuredRelay(fingerprint.upper(), keys.get("nick"), int(said), others)


def bandwidth_file_text(file: BandwidthFile) -> str:
    """The file's text, as authorities and `parse_bandwidth_file` read it."""
    header = ["version=" + VERSION, *_pairs(file.header)]
    return "\n".join([str(file.unix_time), *header, "=====", *map(_line, file.relays), ""])


def _line(relay: MeasuredRelay) -> str:
    names = {} if relay.nickname is None else {"nick": relay.nickname}
    keys = {"node_id": f"${relay.fingerprint}", "bw": str(relay.weight), **names, **relay.others}
    return " ".join(_pairs(keys))


def _pairs(keys: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]


def write_bandwidth_file(path: Path, file: BandwidthFile) -> None:
    """Write a bandwidth file, and the folders above it; InputError if that can't be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(bandwidth_file_text(file), encoding="utf-8")
    except OSError as error:
        raise InputError(f"the bandwidth file {reason_of(error, path)}") from error


def stand_in_fingerprint(seed: int, nickname: str) -> str:
    """A fingerprint for a relay of a drawn network, whose keys aren't made before it runs."""
    return hashlib.sha1(f"{seed} {nickname}".encode(), usedforsecurity=False).hexdigest().upper()


def weights_for(file: BandwidthFile, relays: Iterable[str], seed: int, name: str) -> dict[str, int]:
    """The weights of a drawn network's relays, which a file names by their nicknames.

    Those that it doesn't name have `UNMEASURED_WEIGHT`.

    Args:
        seed: the network's.
        name: the file's, for errors.

    Raises:
        InputError: the file names none of them, or was made for another seed.
    """
    if file.header.get(SEED, str(seed)) != str(seed):
        raise InputError(
            f"{name} is of the network that the seed {file.header[SEED]} draws, not {seed}: take"
            f" that seed, or a file for each (… {{seed}} …)"
        )
    measured, wanted = file.by_nickname(), list(relays)
    if not any(relay in measured for relay in wanted):
        raise InputError(
            f"{name} names no relay of the network, which has {wanted[0]} to {wanted[-1]}: write"
            f" nick={wanted[0]} beside its bw"
        )
    return {
        relay: measured[relay].weight if relay in measured else UNMEASURED_WEIGHT
        for relay in wanted
    }
