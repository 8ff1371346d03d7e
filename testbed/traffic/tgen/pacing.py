"""How much payload may leave now: a packet model played against the clock.

The model itself lives in `markov`, the sending in `stream`.
"""

from __future__ import annotations

from testbed.traffic.tgen.markov import (
    END,
    PACKET_BYTES,
    TO_ORIGIN,
    TO_SERVER,
    TOGETHER_US,
    MarkovModel,
)

# Upstream's limit of what is generated before other streams get their turn.
_BURST_BYTES = 32 * 1024
# A model that makes nothing to send in so many observations makes nothing at all.
_FRUITLESS_OBSERVATIONS = 100_000
# An appointed time that was missed by less than this was kept: timers and wake-ups take a moment.
_PUNCTUAL_US = 5_000


class PacingError(Exception):
    """The model never makes a packet in this direction, yet some were asked for."""


class Pacing:
    """Plays a packet model for one end of a stream.

    As upstream, delays of up to 10 ms between two packets are skipped (the packets leave
    together); after a longer one the next packet waits for it. Unlike upstream, a delay counts
    from the time for which the packet was due and not from when the process got to it, so that
    the rate of a model does not depend on how punctual its timers are.

    Args:
        model: what to play.
        is_client: whether '+' or '-' packets are ours.
        size_bytes: the payload in all, 0 for none; None: until the model ends.
    """

    def __init__(self, model: MarkovModel, is_client: bool, size_bytes: int | None) -> None:
        self._model = model
        self._ours = TO_SERVER if is_client else TO_ORIGIN
        self._left = size_bytes
        self._endless = size_bytes is None and model.is_immediate
        self._immediate = model.is_immediate
        self._ready = 0
        self._owed_delay_us = 0
        self._barrier_us = 0
        self.expected_bytes = 0

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be sent."""
        if self._left is None:
            return self._model.ended and self._ready == 0
        return self._left == 0

    @property
    def barrier_us(self) -> int:
        """The monotonic time before which nothing more may leave; 0 if something may."""
        return 0 if self._ready else self._barrier_us

    @property
    def needs_clock(self) -> bool:
        """Whether `due_bytes` looks at the time that it is given."""
        return not self._immediate

    def due_bytes(self, now_us: int) -> int:
        """How many bytes may leave now; 0 before `barrier_us` and once finished.

        Raises:
            PacingError: the model has nothing to send.
        """
        if self.finished:
            return 0
        if self._endless:
            return _BURST_BYTES * 8
        if self._immediate:
            return self._left or 0
        if not self._ready and now_us >= self._barrier_us:
            self._play(now_us)
        return self._ready if self._left is None else min(self._ready, self._left)

    def sent(self, size_bytes: int) -> None:
        """Note that so many of the due bytes have left."""
        if self._left is not None:
            self._left -= size_bytes
        if not self._immediate:
            self._ready -= size_bytes
            if self._left == 0:
                self._ready = 0

    def _play(self, now_us: int) -> None:
        due_us = self._barrier_us
        base_us = due_us if now_us - due_us < _PUNCTUAL_US else now_us
        self._barrier_us = 0
        limit = _BURST_BYTES if self._left is None else min(self._left, _BURST_BYTES)
        for _ in range(_FRUITLESS_OBSERVATIONS):
            observation, delay_us = self._model.next_observation()
            if observation == END:
                if self._left is None:
                    return
                self._model.reset()
                continue
            if observation == self._ours:
                self._ready += PACKET_BYTES
                self._owed_delay_us = delay_us
            else:
                self.expected_bytes += PACKET_BYTES
                self._owed_delay_us += delay_us
            if self._owed_delay_us > TOGETHER_US:
                self._barrier_us = base_us + self._owed_delay_us
                self._owed_delay_us = 0
                return
            if self._ready >= limit:
                return
        if not self._ready:
            raise PacingError
