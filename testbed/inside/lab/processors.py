"""The kernel's side of processors that take time (kernel patch 0011), node by node."""

from pathlib import Path
from typing import NamedTuple

from testbed.plan.processor import Processor

SETTINGS = "net/processor"
COUNTERS = Path("/proc/thread-self/net/processor")


class Counters(NamedTuple):
    """What a node's processor has done since the node began.

    Attributes:
        busy_ns: how long it was busy.
        waited_ns: how long programs slept until it had done what they asked for.
        read_bytes, written_bytes, calls: what it was charged for.
    """

    busy_ns: int
    waited_ns: int
    read_bytes: int
    written_bytes: int
    calls: int


def processor_settings(processor: Processor, free_interface: int | None) -> dict[str, str]:
    """A node's settings, by their paths below /proc/sys.

    Args:
        free_interface: index of the interface whose connections cost nothing; None if all do.
    """
    costs = {f"{SETTINGS}/{name}": str(value) for name, value in _costs(processor).items()}
    return costs | {f"{SETTINGS}/free_interface": str(free_interface or 0)}


def _costs(processor: Processor) -> dict[str, int]:
    """The costs, by the kernel's names."""
    return {
        "read_ps": processor.read_ps_per_byte,
        "write_ps": processor.write_ps_per_byte,
        "call_ns": processor.call_ns,
        "connection_ns": processor.connection_ns,
    }


def has_costs(processor: Processor) -> bool:
    """Whether the node in whose network namespace this thread is has these costs."""
    folder = Path("/proc/sys", SETTINGS)
    return all(int((folder / name).read_text()) == cost for name, cost in _costs(processor).items())


def read_counters() -> Counters:
    """The counters of the node in whose network namespace this thread is."""
    return Counters(*map(int, COUNTERS.read_text().split()))
