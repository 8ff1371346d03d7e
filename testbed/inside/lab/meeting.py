"""Meetings of the parts of a plan: what each says reaches all, and all go on at the same instant.

They take place over the management network, and so in virtual time. A plan in one part has none.
"""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any

from testbed.inside.lab.nodes import Nodes
from testbed.inside.lab.wiring import MANAGEMENT_SWITCH
from testbed.plan.addresses import meeting_address

PORT = 7
AHEAD_NS = 100_000_000
"""How long after the last part's arrival a meeting ends at least: by then all have heard of it."""
ENDS_AT_NS = 10_000_000
"""Meetings end at whole multiples of this."""
_TRIAL_S = 0.1


class Meeting:
    """This part's place in the meetings: the first part hears all the others, and answers."""

    def __init__(self, parts: int, part: int) -> None:
        self._parts = parts
        self._part = part
        self._lines: list[IO[str]] = []

    @contextmanager
    def held(self, nodes: Nodes) -> Iterator[None]:
        """Hold meetings within the context, in which all parts have built their labs."""
        if self._parts == 1:
            yield
            return
        join = self._hear if self._part == 0 else self._go
        with ExitStack() as stack:
            sockets = nodes.inside(MANAGEMENT_SWITCH, join)
            self._lines = [
                stack.enter_context(stack.enter_context(one).makefile("rw")) for one in sockets
            ]
            yield

    def _hear(self) -> list[socket.socket]:
        """Await the other parts, each of which comes from its own address."""
        by_address = {}
        with socket.create_server((meeting_address(0), PORT), backlog=self._parts) as server:
            for _ in range(1, self._parts):
                connection, (address, _) = server.accept()
                by_address[address] = connection
        return [by_address[meeting_address(part)] for part in range(1, self._parts)]

    def _go(self) -> list[socket.socket]:
        """Go to the first part, which may not have built its lab yet."""
        own = (meeting_address(self._part), 0)
        while True:
            try:
                return [socket.create_connection((meeting_address(0), PORT), source_address=own)]
            except OSError:
                time.sleep(_TRIAL_S)

    def exchange(self, said: Any = None) -> list[Any]:  # noqa: ANN401 - whatever JSON can hold
        """Say something to all parts, and return what all have said, in their order.

        With one part it takes no time.
        """
        return self._met(said)[0]

    def meet(self) -> float | None:
        """Wait for all parts, and return the instant at which all go on, as Unix time.

        None with one part.
        """
        return self._met(None)[1]

    async def meet_meanwhile(self) -> float | None:
        """Do what `meet` does without blocking the event loop."""
        if self._parts == 1:
            return None
        return await asyncio.to_thread(self.meet)

    async def exchange_meanwhile(self, said: Any) -> list[Any]:  # noqa: ANN401
        """Do what `exchange` does without blocking the event loop."""
        if self._parts == 1:
            return [said]
        return await asyncio.to_thread(partial(self.exchange, said))

    def _met(self, said: Any) -> tuple[list[Any], float | None]:  # noqa: ANN401
        if self._parts == 1:
            return [said], None
        if self._part == 0:
            all_said = [said, *(json.loads(line.readline()) for line in self._lines)]
            until_ns = -(-(time.time_ns() + AHEAD_NS) // ENDS_AT_NS) * ENDS_AT_NS
            for line in self._lines:
                _say(line, [all_said, until_ns])
        else:
            _say(self._lines[0], said)
            all_said, until_ns = json.loads(self._lines[0].readline())
        time.sleep(max(0, until_ns - time.time_ns()) / 1e9)
        return all_said, until_ns / 1e9


def _say(line: IO[str], said: Any) -> None:  # noqa: ANN401
    line.write(json.dumps(said) + "\n")
    line.flush()
