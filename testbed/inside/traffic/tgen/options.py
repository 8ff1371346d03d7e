"""Options of TGen's actions: how they are spelt in a configuration, and what they mean.

`driver` and `stream` perform the actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.basics.errors import InputError

# Units of sizes are powers of ten or two; times go down to the nanosecond (TGen-Options.md).
_BYTES_PER_UNIT = {
    name: factor
    for names, factor in (
        (("b", "byte", "bytes"), 1),
        (("kb", "kilobyte", "kilobytes"), 10**3),
        (("mb", "megabyte", "megabytes"), 10**6),
        (("gb", "gigabyte", "gigabytes"), 10**9),
        (("tb", "terabyte", "terabytes"), 10**12),
        (("kib", "kibibyte", "kibibytes"), 2**10),
        (("mib", "mebibyte", "mebibytes"), 2**20),
        (("gib", "gibibyte", "gibibytes"), 2**30),
        (("tib", "tebibyte", "tebibytes"), 2**40),
    )
    for name in names
}
_NANOSECONDS_PER_UNIT = {
    name: factor
    for names, factor in (
        (("nanosecond", "nanoseconds", "nsec", "nsecs", "ns"), 1),
        (("microsecond", "microseconds", "usec", "usecs", "us"), 10**3),
        (("millisecond", "milliseconds", "msec", "msecs", "ms"), 10**6),
        (("second", "seconds", "sec", "secs", "s"), 10**9),
        (("minute", "minutes", "min", "mins", "m"), 60 * 10**9),
        (("hour", "hours", "hr", "hrs", "h"), 3600 * 10**9),
    )
    for name in names
}

STREAM_OPTIONS = frozenset(
    {
        "packetmodelpath",
        "packetmodelmode",
        "markovmodelseed",
        "peers",
        "socksproxy",
        "socksusername",
        "sockspassword",
        "socksauthseed",
        "sendsize",
        "recvsize",
        "timeout",
        "stallout",
    }
)
FLOW_OPTIONS = STREAM_OPTIONS | {"streammodelpath"}
TRAFFIC_OPTIONS = FLOW_OPTIONS | {"flowmodelpath"}
OPTIONS_OF_ACTION: Mapping[str, frozenset[str]] = {
    "start": TRAFFIC_OPTIONS | {"serverport", "time", "heartbeat", "loglevel"},
    "stream": STREAM_OPTIONS,
    "flow": FLOW_OPTIONS,
    "traffic": TRAFFIC_OPTIONS,
    "pause": frozenset({"time"}),
    "end": frozenset({"time", "count", "sendsize", "recvsize"}),
}
LOG_LEVELS = ("error", "critical", "warning", "message", "info", "debug")

DEFAULT_STALLOUT_US = 30_000_000
DEFAULT_HEARTBEAT_US = 1_000_000


@dataclass(frozen=True)
class Peer:
    """A host (name or dotted IPv4 address) and its TCP port."""

    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        """The address as sockets take it."""
        return (self.host, self.port)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream; sizes in bytes (None: until the packet model ends), times in µs."""

    peers: tuple[Peer, ...]
    socks_proxies: tuple[Peer, ...] = ()
    socks_username: str | None = None
    socks_password: str | None = None
    socks_auth_seed: int | None = None
    send_bytes: int | None = None
    receive_bytes: int | None = None
    timeout_us: int = 0
    stallout_us: int = DEFAULT_STALLOUT_US
    packet_model_path: Path | None = None
    send_model_path: bool = False
    markov_model_seed: int | None = None

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> StreamOptions:
        """Read a stream action's attributes, with the start action's already filled in.

        Raises:
            InputError: a value is malformed.
        """
        mode = attributes.get("packetmodelmode", "graphml").lower()
        if mode not in ("path", "graphml"):
            raise InputError(f"packetmodelmode = {mode!r}: must be 'path' or 'graphml'")
        return cls(
            peers=parse_peers("peers", attributes.get("peers", "")),
            socks_proxies=parse_peers("socksproxy", attributes.get("socksproxy", "")),
            socks_username=attributes.get("socksusername"),
            socks_password=attributes.get("sockspassword"),
            socks_auth_seed=_optional_integer(attributes, "socksauthseed"),
            send_bytes=_optional_bytes(attributes, "sendsize"),
            receive_bytes=_optional_bytes(attributes, "recvsize"),
            timeout_us=_time_us(attributes, "timeout", 0),
            stallout_us=_time_us(attributes, "stallout", DEFAULT_STALLOUT_US),
            packet_model_path=optional_path(attributes, "packetmodelpath"),
            send_model_path=mode == "path",
            markov_model_seed=_optional_integer(attributes, "markovmodelseed"),
        )


@dataclass(frozen=True)
class StartOptions:
    """The start action's own options; times in µs, `server_port` None for a client only."""

    server_port: int | None
    delay_us: int
    heartbeat_us: int
    log_level: str
    seed: int | None

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> StartOptions:
        """Read the start action's attributes.

        Raises:
            InputError: a value is malformed.
        """
        level = attributes.get("loglevel", "message").lower()
        if level not in LOG_LEVELS:
            raise InputError(f"loglevel = {level!r}: must be one of {', '.join(LOG_LEVELS)}")
        port = _optional_integer(attributes, "serverport")
        if port is not None and not 0 < port < 65536:
            raise InputError(f"serverport = {port}: must be a port number from 1 to 65535")
        return cls(
            server_port=port,
            delay_us=_time_us(attributes, "time", 0),
            heartbeat_us=_time_us(attributes, "heartbeat", DEFAULT_HEARTBEAT_US),
            log_level=level,
            seed=_optional_integer(attributes, "markovmodelseed"),
        )


@dataclass(frozen=True)
class EndOptions:
    """Limits at which an end action stops the generator, whichever comes first; None: no limit."""

    time_us: int | None
    count: int | None
    send_bytes: int | None
    receive_bytes: int | None

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> EndOptions:
        """Read an end action's attributes.

        Raises:
            InputError: a value is malformed.
        """
        time = attributes.get("time")
        return cls(
            time_us=None if time is None else parse_time_us("time", time),
            count=_optional_integer(attributes, "count"),
            send_bytes=_optional_bytes(attributes, "sendsize"),
            receive_bytes=_optional_bytes(attributes, "recvsize"),
        )


def parse_bytes(key: str, text: str) -> int:
    """Parse a size such as `5242880`, `5 MiB` or `50 kb` into bytes.

    Raises:
        InputError: `text` is not a size.
    """
    return _quantity(key, text, _BYTES_PER_UNIT, "b", "'10240' or '10 KiB'")


def parse_time_us(key: str, text: str) -> int:
    """Parse a time such as `10` (seconds), `250 ms` or `2 minutes` into whole microseconds.

    Raises:
        InputError: `text` is not a time.
    """
    return _quantity(key, text, _NANOSECONDS_PER_UNIT, "s", "'10' or '10 seconds'") // 1000


def parse_times_us(key: str, text: str) -> tuple[int, ...]:
    """Parse a comma-separated list of times into microseconds."""
    return tuple(parse_time_us(key, part.strip()) for part in text.split(","))


def parse_peers(key: str, text: str) -> tuple[Peer, ...]:
    """Parse a comma-separated list of `host:port`; an empty text has no peers.

    Raises:
        InputError: a part is not `host:port` with a port from 1 to 65535.
    """
    return tuple(_peer(key, part.strip()) for part in text.split(",")) if text else ()


def optional_path(attributes: Mapping[str, str], key: str) -> Path | None:
    """Return the path in an attribute, with `~` expanded; None if it is not set."""
    text = attributes.get(key)
    return Path(text).expanduser() if text else None


def _peer(key: str, text: str) -> Peer:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{key} = {text!r}: a peer is host:port, such as 10.0.0.1:8888")
    return Peer("127.0.0.1" if host.lower() == "localhost" else host, int(port))


def _quantity(key: str, text: str, units: Mapping[str, int], default: str, example: str) -> int:
    match = re.fullmatch(r"(\d+)(?: +(\w+))?", text)
    if not match or (match[2] or default).lower() not in units:
        raise InputError(f"{key} = {text!r}: must look like {example}")
    return int(match[1]) * units[(match[2] or default).lower()]


def _time_us(attributes: Mapping[str, str], key: str, default_us: int) -> int:
    text = attributes.get(key)
    return default_us if text is None else parse_time_us(key, text)


def _optional_bytes(attributes: Mapping[str, str], key: str) -> int | None:
    text = attributes.get(key)
    return None if text is None else parse_bytes(key, text)


def _optional_integer(attributes: Mapping[str, str], key: str) -> int | None:
    text = attributes.get(key)
    if text is None:
        return None
    if not text.isdigit():
        raise InputError(f"{key} = {text!r}: must be a whole number that is not negative")
    return int(text)
