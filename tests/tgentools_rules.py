"""For tests: reads a TGen log by the rules of tgentools 1.1.2, whose parser OnionPerf also uses.

The rules come from upstream's tools/tgentools/analysis.py: which words of a line it reads, by
position, and what it refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VERSION = "1.1.2"
"""Version of tgentools; it refuses a log whose first line has another one."""

_VERSION_WORD, _NAME_WORD = 8, 17
_PARTS = {"transport": 8, "stream": 10, "bytes": 12, "times": 14}
_HEARTBEAT_WORD = 7

Fields = Mapping[str, str]


@dataclass
class Parsed:
    """Tgentools' view of a log: streams' times in s, and heartbeats' counts."""

    name: str | None = None
    round_trip_s: list[float] = field(default_factory=list)
    first_byte_s: list[float] = field(default_factory=list)
    last_byte_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    heartbeats: list[dict[str, int]] = field(default_factory=list)


def parsed(log: Path) -> Parsed:
    """Read a log.

    Raises:
        ValueError: it has another version, or tgentools can't read a line.
    """
    found = Parsed()
    for line in log.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if found.name is None and "Initializing TGen v" in line:
            if (version := words[_VERSION_WORD].strip("v")) != VERSION:
                raise ValueError(f"version mismatch: {version}, not {VERSION}")
            found.name = words[_NAME_WORD]
        elif "stream-success" in line:
            _add_stream(found, _parts(words))
        elif "stream-error" in line:
            parts = _parts(words)
            error = parts["stream"]["error"]
            code = f"{error}-{parts['transport']['error']}" if error == "PROXY" else error
            found.errors.append(code)
        elif "driver-heartbeat" in line:
            counts = _fields(words[_HEARTBEAT_WORD])
            found.heartbeats.append({name: int(count) for name, count in counts.items()})
    return found


def _add_stream(found: Parsed, parts: Mapping[str, Fields]) -> None:
    """Add a stream's times, counted from the command; a negative time means not reached."""
    sizes, times = parts["bytes"], parts["times"]
    int(sizes["payload-bytes-send"])
    command_us = int(times["usecs-to-command"])

    def since_command(step: str, values: list[float]) -> None:
        if (elapsed_us := int(times[f"usecs-to-{step}"]) - command_us) >= 0:
            values.append(elapsed_us / 1e6)

    since_command("response", found.round_trip_s)
    if int(sizes["payload-bytes-recv"]):
        since_command("first-byte-recv", found.first_byte_s)
        since_command("last-byte-recv", found.last_byte_s)


def _parts(words: list[str]) -> Mapping[str, Fields]:
    float(words[2])
    return {part: _fields(words[number]) for part, number in _PARTS.items()}


def _fields(bracket: str) -> Fields:
    pairs = (pair.split("=") for pair in bracket.strip("[]").split(",") if "=" in pair)
    return {name: value for name, value, *_ in pairs}
