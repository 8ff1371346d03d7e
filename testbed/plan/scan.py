"""What a scanner is to download through a network's relays, and what it found, as plain data."""

from pydantic import BaseModel, ConfigDict

SCAN_FILE, SCANNED_FILE = "scan.json", "scanned.json"
"""The files' names in a run's directory."""


class ScanPart(BaseModel):
    """A part of either file: unknown keys are errors, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Slice(ScanPart):
    """Relays that are measured through each other.

    Attributes:
        relays: their names.
        entries, exits: the first and the last relays of circuits. They are the slice's, or the
            whole network's where the slice has none.
        size_bytes: how much is downloaded through each circuit.
    """

    relays: tuple[str, ...]
    entries: tuple[str, ...]
    exits: tuple[str, ...]
    size_bytes: int


class Scan(ScanPart):
    """All downloads of a machine.

    Attributes:
        measurer: the node that downloads.
        times: in how many circuits each relay is at least.
        at_once: how many slices are measured at the same time.
        longest_s: after which time a download is given up.
    """

    measurer: str
    times: int
    at_once: int
    longest_s: float
    slices: tuple[Slice, ...]


class ScannedRelay(ScanPart):
    """What was found of a relay.

    Attributes:
        fingerprint: of its identity key.
        observed_bytes_per_s: what it says of itself in its descriptor at the end: the most that it
            both received and sent in ten seconds, per second.
        streams_bytes_per_s: the rate of each download through it that was complete, in order.
        failed: circuits and downloads that failed.
    """

    relay: str
    fingerprint: str
    observed_bytes_per_s: int
    streams_bytes_per_s: tuple[float, ...]
    failed: int


class Scanned(ScanPart):
    """What was found of all relays, in the order of the plan."""

    relays: tuple[ScannedRelay, ...]
