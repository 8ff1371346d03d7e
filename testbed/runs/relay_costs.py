"""The costs of a relay's work that fit what `runs.relay_work` watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.optimize import nnls

from testbed.basics.errors import TestbedError
from testbed.plan.processor import BITS, NS_PER_S

CARRY, EXTEND, HANDSHAKE = "carries", "extends circuits", "makes TLS handshakes"
"""What a relay does in a window."""

ROLES = ("guard", "middle", "exit")


@dataclass(frozen=True)
class Watched:
    """What a relay did in a window, and the processor time that it took.

    Attributes:
        doing: `CARRY`, `EXTEND` or `HANDSHAKE`.
        lasted_ns: the window's length.
        main_ns, workers_ns: processor time of its main thread, and of all others together.
        read_bytes: what it read from TCP connections.
        calls: its calls that moved bytes through them.
        limit_kb_per_s: what each client might receive, when relays only carried.
        events: circuits or handshakes, when they didn't.
    """

    role: str
    doing: str
    lasted_ns: int
    main_ns: int
    workers_ns: int
    read_bytes: int
    calls: int
    limit_kb_per_s: int = 0
    events: int = 0

    @property
    def work(self) -> tuple[float, float, float]:
        """What the costs of `RelayCosts` are for, in their order."""
        return (self.read_bytes, self.calls, self.lasted_ns / NS_PER_S)


@dataclass(frozen=True)
class RelayCosts:
    """The costs that fit best, and how well they do.

    Attributes:
        byte_ns, call_ns: of a byte that a relay reads and forwards, and of a call.
        idle_ns_per_s: what a relay takes in a second, whatever it carries.
        connection_ns: of the main thread, for each TLS handshake.
        onionskin_ns: of the workers, for each circuit.
        errors_percent: by role, and the clients' limit in KB/s, how far the fit is from what was
            measured when relays only carried.
    """

    byte_ns: float
    call_ns: float
    idle_ns_per_s: float
    connection_ns: float
    onionskin_ns: float
    errors_percent: dict[str, dict[int, float]]

    @property
    def keys(self) -> dict[str, str]:
        """The costs as a scenario has them in [nodes]."""
        times_ns = {
            "per_call": self.call_ns,
            "per_connection": self.connection_ns,
            "per_onionskin": self.onionskin_ns,
        }
        return {
            "read": f"{BITS * NS_PER_S / self.byte_ns / 1e6:.0f} Mbit/s",
            **{key: f"{time_ns:.0f} ns" for key, time_ns in times_ns.items() if time_ns >= 1},
        }


def fitted(rows: Sequence[Watched]) -> RelayCosts:
    """The costs with the least squares of errors in time, none of them below zero.

    So the windows count in which relays worked most. A relay with little to do is woken for each
    few cells and takes longer for a byte, which limits nothing; its errors show by how much.

    Raises:
        TestbedError: bytes would cost nothing.
    """
    carrying = [row for row in rows if row.doing == CARRY]
    work = np.array([row.work for row in carrying], dtype=float)
    measured_ns = np.array([row.main_ns for row in carrying], dtype=float)
    costs, _ = nnls(work, measured_ns)
    byte_ns, call_ns, idle_ns_per_s = map(float, costs)
    if not byte_ns:
        raise TestbedError("a relay's time doesn't grow with its bytes: measure on an idle host")
    errors = 100 * (work @ costs / measured_ns - 1)
    found: dict[str, dict[int, list[float]]] = {role: {} for role in ROLES}
    for row, error in zip(carrying, errors, strict=True):
        found[row.role].setdefault(row.limit_kb_per_s, []).append(float(error))
    extending = [row for row in rows if row.doing == EXTEND]
    shaking = [row for row in rows if row.doing == HANDSHAKE]
    beyond_ns = [row.main_ns - float(np.array(row.work) @ costs) for row in shaking]
    return RelayCosts(
        byte_ns=byte_ns,
        call_ns=call_ns,
        idle_ns_per_s=idle_ns_per_s,
        connection_ns=max(0.0, sum(beyond_ns) / sum(row.events for row in shaking)),
        onionskin_ns=sum(row.workers_ns for row in extending)
        / sum(row.events for row in extending),
        errors_percent={
            role: {limit: fmean(those) for limit, those in by_limit.items()}
            for role, by_limit in found.items()
        },
    )
