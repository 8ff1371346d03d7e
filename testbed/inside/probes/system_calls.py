"""Counts of a run's system calls by program and kind, for the bench.

Counting slows the programs (in processor time, not in virtual time), so it stays out of runs whose
cost is measured.
"""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from testbed.inside.lab.network import Lab

SETTLE_S = 5.0
WINDOW_S = 5.0
"""How long after the traffic counting begins, and how long it lasts, in virtual seconds."""


async def count_system_calls(lab: Lab, processes: Mapping[str, int], directory: Path) -> None:
    """Count the system calls of some processes, and all links' packets, for `WINDOW_S`.

    Args:
        processes: process numbers by the programs' names.
        directory: gets `strace-NAME.log` for each, as `strace -c` writes them, and
            `counting.json`: the window's start and end (Unix time), and the packets that
            crossed emulated links meanwhile.
    """
    await asyncio.sleep(SETTLE_S)
    start_s, packets = time.time(), _packets(lab)
    tracers = [
        subprocess.Popen(
            _strace(directory / f"strace-{name}.log", process),
            stdin=subprocess.DEVNULL,
        )
        for name, process in processes.items()
    ]
    await asyncio.sleep(WINDOW_S)
    for tracer in tracers:
        tracer.send_signal(signal.SIGINT)
    for tracer in tracers:
        await asyncio.to_thread(tracer.wait)
    packets = _packets(lab) - packets
    window = {"start_s": start_s, "end_s": time.time(), "packets": packets}
    (directory / "counting.json").write_text(json.dumps(window))


def _packets(lab: Lab) -> int:
    return sum(lab.counters(direction).sent_packets for direction in lab.directions)


def _strace(log: Path, process: int) -> list[str]:
    return ["strace", "-c", "-f", "-qq", "-o", str(log), "-p", str(process)]
