"""What measurers are to do in a machine, and what they found, as plain data in two files."""

from pydantic import BaseModel, ConfigDict, Field

ASKED_FILE, MEASURED_FILE = "asked.json", "measured.json"
"""The files' names in a run's directory."""


LIES = ("background", "undecrypted")
"""How a relay can lie by TestingMeasurementLie: it claims traffic of clients that it doesn't have,
or sends cells back without decrypting them."""


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
        sockets: the most connections to each relay.
        seconds: how long each is measured.
        check_probability: that of a cell to be checked.
        around_s: how long clients' traffic is reported before and after each measurement; 0 where
            the network is idle.
        team: which of the authorities' teams measures, from 1.
        lies: the relays that lie, and how: one of `LIES`.
        limits_bit_per_s: the relays that have less than their capacity here, and what they have.
        slots: those relays that are measured at once, in order.
    """

    key: str
    sockets: int
    seconds: int
    check_probability: float
    around_s: int = 0
    team: int = 1
    lies: dict[str, str] = Field(default_factory=dict)
    limits_bit_per_s: dict[str, float] = Field(default_factory=dict)
    slots: tuple[tuple[Assignment, ...], ...]


class RelaySeconds(MeasurementPart):
    """What was found of a relay.

    Attributes:
        fingerprint: of its identity key.
        echoed: the bytes that came back in each second, by measurer.
        background: the bytes that it reports of its clients, in each second.
        background_before, background_after: the same of the seconds around the measurement.
        checked, forged: cells whose content was compared, and those that were wrong.
        problem: why it wasn't measured; "" if it was.
    """

    relay: str
    fingerprint: str
    echoed: dict[str, tuple[int, ...]]
    background: tuple[int, ...]
    background_before: tuple[int, ...] = ()
    background_after: tuple[int, ...] = ()
    checked: int
    forged: int
    problem: str = ""


class Measured(MeasurementPart):
    """What was found of all relays, in the order of slots."""

    relays: tuple[RelaySeconds, ...]
