"""Relays that lie to those who measure them: what each gains, or how likely it fails (5)."""

from collections.abc import Iterator
from dataclasses import dataclass

from flashflow.parameters import Parameters
from flashflow.security import (
    cells_of,
    failure,
    greatest_gain,
    result_of_false_report,
    unnoticed,
)

_RATES_MBIT_PER_S = (10, 100, 1000)
_SHARES = (0.25, 0.4, 0.49)
_AUTHORITIES = (3, 5, 6, 9)


@dataclass(frozen=True)
class Liar:
    """A row of the table of liars.

    Attributes:
        does: what it lies about.
        what: what the value is.
        published: what the paper says of it.
    """

    does: str
    what: str
    value: float
    published: str


def liars(by: Parameters) -> list[Liar]:
    """The paper's three kinds of liars, each in the cases that show its bound."""
    return [_of_background(by), *_without_decrypting(by), *_at_times()]


def _of_background(by: Parameters) -> Liar:
    capacity = 1e6
    reported = [1e12] * by.slot_s
    gain = result_of_false_report(capacity, reported, by.background_ratio) / capacity
    return Liar(
        "claims clients' traffic",
        f"result / capacity (r = {by.background_ratio:g})",
        gain,
        f"at most {greatest_gain(by.background_ratio):.2f}",
    )


def _without_decrypting(by: Parameters) -> Iterator[Liar]:
    """A relay whose median rises needs to forge in more than half of the seconds."""
    seconds = by.slot_s // 2 + 1
    for rate in _RATES_MBIT_PER_S:
        cells = cells_of(rate * 1e6, seconds)
        yield Liar(
            "does not decrypt",
            f"is unnoticed at {rate} Mbit/s",
            unnoticed(cells, by.check_probability),
            "no",
        )


def _at_times() -> Iterator[Liar]:
    for share in _SHARES:
        for authorities in _AUTHORITIES:
            yield Liar(
                "is fast at times only",
                f"fails with {100 * share:.0f} %, {authorities} authorities",
                failure(share, authorities),
                "at least 0.5",
            )
