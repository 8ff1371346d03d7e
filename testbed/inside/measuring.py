"""The time in which the traffic runs, and everything that is sampled meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.basics.errors import TestbedError
from testbed.inside.checks import Running
from testbed.inside.probes.clock import Clock
from testbed.inside.probes.processors import sample_processors_steadily
from testbed.inside.probes.relays import sample_relays_steadily
from testbed.inside.probes.round_trip import PROBE_INTERVAL_S, probe_steadily, probe_target
from testbed.inside.probes.sockets import competing_tables, pair_tables, sample_steadily
from testbed.inside.probes.system_calls import count_system_calls
from testbed.inside.recording import Record
from testbed.plan.model import LEAST_SAMPLE_INTERVAL_S

STEP_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Measuring:
    """The sampling while the traffic runs.

    Attributes:
        counted: the process numbers of programs whose system calls are counted, by name.
    """

    running: Running
    record: Record
    clock: Clock
    logs: Path
    counted: Mapping[str, int]

    async def warm_up(self) -> None:
        """Let the traffic run for the plan's warm-up."""
        start_s = time.time()
        await self._report_progress("warming up", start_s, start_s + self.running.plan.warm_up_s)

    async def measure(self) -> float:
        """Let the traffic run for the plan's duration while probing and sampling.

        Returns:
            When measuring ended, as Unix time.
        """
        lab, plan, record = self.running.lab, self.running.plan, self.record
        start_s = await lab.meeting.meet_meanwhile() or time.time()
        end_s = start_s + plan.duration_s
        if plan.part == 0:
            record.note(f"measuring began at {start_s:.6f}")
        async with probe_target(lab), self._until_all_end(), asyncio.TaskGroup() as tasks:
            for probe in self._probes(start_s, end_s):
                tasks.create_task(probe)
            for tables, every_s in (
                (pair_tables(lab, plan.crossed_pairs), LEAST_SAMPLE_INTERVAL_S),
                (pair_tables(lab, plan.uncrossed_pairs), plan.uncrossed_interval_s),
                (competing_tables(lab), LEAST_SAMPLE_INTERVAL_S),
            ):
                tasks.create_task(sample_steadily(tables, start_s, end_s, record, every_s))
            tasks.create_task(
                sample_relays_steadily(lab, self.running.network, start_s, end_s, record)
            )
            tasks.create_task(sample_processors_steadily(lab, start_s, end_s, record))
            tasks.create_task(self._report_progress("measuring", start_s, end_s))
            if self.counted:
                tasks.create_task(count_system_calls(lab, self.counted, self.logs))
        return end_s

    @asynccontextmanager
    async def _until_all_end(self) -> AsyncIterator[None]:
        """Let the context last until it ends in all parts of the plan."""
        yield
        await self.running.lab.meeting.meet_meanwhile()

    def _probes(self, start_s: float, end_s: float) -> Iterator[Coroutine[Any, Any, None]]:
        """Each client's probes, spread over the interval so that no two clients probe at once."""
        if not self.running.circuits.probed:
            return
        plan = self.running.plan
        for number, client in enumerate(plan.clients):
            if not plan.is_here(client):
                continue
            yield probe_steadily(
                client,
                self.running.network[client].files.probe_socket,
                str(plan.node(plan.server_of(client)).address),
                start_s + PROBE_INTERVAL_S * number / len(plan.clients),
                end_s,
                self.record,
            )

    async def _report_progress(self, step: str, start_s: float, end_s: float) -> None:
        """Report progress once a second, and end the run at once if it can't go on.

        It can't if a Tor ends, a policy fails, or the clock is set.
        """
        while (now_s := time.time()) < end_s:
            self.record.step(step, now_s - start_s, end_s - start_s)
            self.clock.check()
            self.running.circuits.check()
            if ended := self.running.network.ended():
                raise TestbedError(f"{', '.join(ended)} ended while {step}: see logs/")
            await asyncio.sleep(min(STEP_INTERVAL_S, end_s - now_s))
        self.clock.check()
