"""Relays that a study's commands measured (`flashflow SCENARIO`), read from what they printed.

How they are measured is in `flashflow`.
"""

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from study.printed import AllPrinted, Printed

LEAST_SEEDS = 2
"""What fewer seeds measured stands in no table."""


@dataclass(frozen=True)
class Measurement:
    """A relay's result.

    Attributes:
        of: what the command printed it with.
        true_mbit_per_s: what the relay can carry.
        seconds: what was measured in each second, in Mbit/s.
        clients: what the relay sent for its clients before, while it was measured, and after:
            the medians of the seconds, in Mbit/s; none where the network was idle.
    """

    of: Printed
    true_mbit_per_s: float
    mbit_per_s: float
    seconds: tuple[float, ...]
    clients: tuple[float, ...]

    @property
    def error_percent(self) -> float:
        """How far the result is from what the relay can carry."""
        return 100 * (self.mbit_per_s / self.true_mbit_per_s - 1)

    def after(self, seconds: int) -> float:
        """The result of a measurement that ended after some seconds, as a share of the true one."""
        return statistics.median(self.seconds[:seconds]) / self.true_mbit_per_s

    def values(self, pattern: str) -> tuple[str, ...]:
        """What a pattern finds in the command."""
        found = re.search(pattern, self.of.command)
        return found.groups() if found else ()


def measurements(printed: AllPrinted, name: str) -> list[Measurement]:
    """The results of a series; relays without one are left out."""
    return [
        Measurement(
            of=of,
            true_mbit_per_s=one["true_bit_per_s"] / 1e6,
            mbit_per_s=one["bit_per_s"] / 1e6,
            seconds=tuple(second / 1e6 for second in one["seconds_bit_per_s"]),
            clients=tuple(
                statistics.median(one[f"{when}_bit_per_s"]) / 1e6
                for when in ("before", "background_seconds", "after")
                if one.get("before_bit_per_s")
            ),
        )
        for of in printed.each(name)
        for one in of.results
        if one["bit_per_s"] is not None
    ]


def by_words(
    found: Iterable[Measurement], pattern: str
) -> dict[tuple[str, ...], list[Measurement]]:
    """Measurements by what a pattern finds in their commands.

    Those are left out in which it finds nothing, and those of few seeds.
    """
    groups: dict[tuple[str, ...], list[Measurement]] = {}
    for one in found:
        if values := one.values(pattern):
            groups.setdefault(values, []).append(one)
    return {
        key: ones
        for key, ones in groups.items()
        if len({one.of.given("--seed") for one in ones}) >= LEAST_SEEDS
    }
