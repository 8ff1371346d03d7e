"""What becomes known of a circuit while it lives: when it was built and used, its round trips."""

from dataclasses import dataclass, field

from testbed.inside.policies.interface import Circuit, RoundTrip


@dataclass
class Life:
    """A circuit's life; times are in seconds by the monotonic clock, and NaN before they are known.

    Attributes:
        asked_s: when it was asked for, or launched by Tor itself.
        extended_s: when each relay had answered, so far.
        streams: how many of the traffic's streams it has been given.
    """

    asked_s: float
    extended_s: list[float] = field(default_factory=list)
    opened_s: float = float("nan")
    streams: int = 0
    first_used_s: float | None = None
    last_used_s: float | None = None
    given_up: bool = False
    round_trips: list[RoundTrip] = field(default_factory=list)

    def open(self, now_s: float) -> None:
        """Note that it is open. The last handshake went to its last relay and back."""
        self.opened_s = now_s
        if len(self.extended_s) > 1:
            before_s, last_s = self.extended_s[-2:]
            self.round_trips.append(RoundTrip(last_s, last_s - before_s, "build"))

    def use(self, now_s: float) -> None:
        """Note that it is given one of the traffic's streams."""
        self.streams += 1
        self.first_used_s = now_s if self.first_used_s is None else self.first_used_s
        self.last_used_s = now_s

    def seen(self, number: str, path: tuple[str, ...]) -> Circuit:
        """What a policy sees of it."""
        return Circuit(
            number=number,
            path=path,
            streams=self.streams,
            opened_s=self.opened_s,
            build_s=self.opened_s - self.asked_s,
            first_used_s=self.first_used_s,
            last_used_s=self.last_used_s,
            given_up=self.given_up,
            round_trips=tuple(self.round_trips),
        )
