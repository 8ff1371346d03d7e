"""Which circuits a scanner takes next through a slice of relays, and when the slice is done.

The rules are those of TorFlow's bandwidth scanner (README.spec.txt, sections 1.3 and 1.4).
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from testbed.plan.scan import Slice

LEAST_SUCCESSES = 0.65
"""The share of the circuits, relays * `times` / 2, that must have carried a download."""

_MOST_TRIES = 4
"""How often the circuits that a slice needs may be tried: TorFlow would go on for ever."""


class SliceScan:
    """A slice that is being measured."""

    def __init__(self, part: Slice, times: int, random: Random) -> None:
        self.part = part
        self.rates: dict[str, list[float]] = {relay: [] for relay in part.relays}
        self.failed: Counter[str] = Counter()
        self._times = times
        self._random = random
        self._chosen: Counter[str] = Counter()
        self._tries = self._successes = 0
        own = set(part.relays)
        self.needed = times * max(len(own & {*part.entries}), len(own & {*part.exits}), 1)
        """How many circuits take each relay `times` times."""

    @property
    def is_done(self) -> bool:
        """Whether each relay has been chosen often enough, and enough downloads were complete."""
        if self._tries >= _MOST_TRIES * self.needed:
            return True
        relays = self.part.relays
        has_all = all(self._chosen[relay] >= self._times for relay in relays)
        return has_all and self._successes >= LEAST_SUCCESSES * self._times * len(relays) / 2

    def next_path(self) -> tuple[str, str]:
        """The next circuit: the relays that were chosen least often, at random among equals."""
        first = self._least_chosen(self.part.entries)
        last = self._least_chosen([one for one in self.part.exits if one != first])
        self._chosen.update((first, last))
        self._tries += 1
        return first, last

    def note(self, path: tuple[str, str], bytes_per_s: float | None) -> None:
        """Note a circuit's download; None if there was none."""
        self._successes += bytes_per_s is not None
        for relay in {*path} & {*self.part.relays}:
            if bytes_per_s is None:
                self.failed[relay] += 1
            else:
                self.rates[relay].append(bytes_per_s)

    def _least_chosen(self, relays: Sequence[str]) -> str:
        least = min(self._chosen[relay] for relay in relays)
        return self._random.choice([one for one in relays if self._chosen[one] == least])
