"""What measurers are to do in a machine, and what they found, as plain data in two files."""

from pydantic import BaseModel, ConfigDict

ASKED_FILE, MEASURED_FILE = "asked.json", "measured.json"
"""The files' names in a run's directory."""


class MeasurementPart(BaseModel):
    """A part of either file: unknown keys are errors, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Assignment(MeasurementPart):
    """A relay that is measured in a slot, and what each measurer gives it, in bit/s."""

    relay: str
    shares_bit_per_s: dict[str, float]


class Asked(MeasurementPart):
    """All measurements of a machine.

    Attributes:
        key: what measurers must know (MeasurementKey).
        sockets: the connections to each relay.
        seconds: how long each is measured.
        check_probability: that of a cell to be checked.
        slots: those relays that are measured at once, in order.
    """

    key: str
    sockets: int
    seconds: int
    check_probability: float
    slots: tuple[tuple[Assignment, ...], ...]


class RelaySeconds(MeasurementPart):
    """What was found of a relay.

    Attributes:
        fingerprint: of its identity key.
        echoed: the bytes that came back in each second, by measurer.
        background: the bytes that it reports of its clients, in each second.
        checked, forged: cells whose content was compared, and those that were wrong.
        problem: why it wasn't measured; "" if it was.
    """

    relay: str
    fingerprint: str
    echoed: dict[str, tuple[int, ...]]
    background: tuple[int, ...]
    checked: int
    forged: int
    problem: str = ""


class Measured(MeasurementPart):
    """What was found of all relays, in the order of slots."""

    relays: tuple[RelaySeconds, ...]
