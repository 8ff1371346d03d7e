"""Pacing: plays a packet model against the clock to decide how much payload may leave now.

The model itself is in `markov`, the sending in `sending`.
"""

from __future__ import annotations

from testbed.inside.traffic.tgen.markov import (
    END,
    PACKET_BYTES,
    TO_ORIGIN,
    TO_SERVER,
    TOGETHER_US,
    MarkovModel,
)

# Upstream's limit to what is generated before other streams get their turn.
_BURST_BYTES = 32 * 1024
# A model without a packet to send in this many observations never has one.
_FRUITLESS_OBSERVATIONS = 100_000
# Being late by less than this counts as punctual: timers and wake-ups take a moment.
_PUNCTUAL_US = 5_000


class PacingError(Exception):
    """Raised if payload was asked for in a direction in which the model makes no packets."""


class Pacing:
    """Plays a packet model for one end of a stream.

    As upstream, delays of up to 10 ms between two packets are skipped, so the packets leave
    together; after a longer delay the next packet waits. Unlike upstream, a delay counts from the
    time at which the packet was due and not from when the process handled it, so a model's rate
    does not depend on how punctual timers are.

    Args:
        model: the packet model.
        is_client: whether this end sends the '+' packets; otherwise it sends the '-' packets.
        size_bytes: total payload, 0 for none; None: until the model ends.
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
        """Whether all payload has been sent."""
        if self._left is None:
            return self._model.ended and self._ready == 0
        return self._left == 0

    @property
    def barrier_us(self) -> int:
        """The monotonic time before which nothing may leave; 0 if something may leave now."""
        return 0 if self._ready else self._barrier_us

    @property
    def needs_clock(self) -> bool:
        """Whether `due_bytes` uses its argument."""
        return not self._immediate

    def due_bytes(self, now_us: int) -> int:
        """Return how many bytes may leave now; 0 before `barrier_us` and once finished.

        Raises:
            PacingError: the model makes no packets in this direction.
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
        """Note how many of the due bytes have left."""
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
