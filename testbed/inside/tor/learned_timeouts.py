"""The build times that clients have learned before a run, written into their Tors' state files.

A Tor needs a hundred circuits to learn a timeout. Which times they get is `plan.build_times`'s.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.inside.tor.configuration import TorFiles
from testbed.inside.tor.network import TorNetwork
from testbed.plan.build_times import BuildTimes, learned
from testbed.plan.model import Plan

STATE = "state"
"""The file in a Tor's DataDirectory that it reads when it starts."""

_BIN, _TOTAL = "CircuitBuildTimeBin", "TotalBuildTimes"
_TIMES = {_BIN, _TOTAL, "CircuitBuildAbandonedCount"}


def learn_timeouts(plan: Plan, network: TorNetwork, files: Mapping[str, TorFiles]) -> None:
    """Give the clients' Tors build times before they start, if the plan says so.

    They are of paths that begin at a client's own guards, if its state has any. What a Tor learns
    from them gets into `network.learned`.
    """
    if not plan.policy.learn_timeouts:
        return
    times = BuildTimes(plan)
    for client in (node.name for node in plan.here("client")):
        file = files[client].data / STATE
        text = file.read_text() if file.exists() else ""
        guards = guards_in(text)[: plan.guards_to_use or 0]
        drawn_ms = times.of(client, guards)
        _write_privately(file, with_build_times(text, drawn_ms))
        network.learned[client] = learned(drawn_ms, plan.tor.consensus_params)


def with_build_times(state: str, times_ms: Sequence[int]) -> str:
    """A state file's text with these build times, which are middles of bins, and no others."""
    kept = [line for line in state.splitlines() if line.partition(" ")[0] not in _TIMES]
    bins = sorted(Counter(times_ms).items())
    lines = [f"{_BIN} {time_ms} {count}" for time_ms, count in bins]
    return "\n".join([*kept, f"{_TOTAL} {len(times_ms)}", *lines, ""])


def guards_in(state: str) -> list[str]:
    """The nicknames of the guards in a state file, in the order in which Tor prefers them.

    Confirmed ones come first, in their order, then the others as they were drawn (guard-spec, "The
    primary guards").
    """
    ranked = []
    for line in state.splitlines():
        key, _, rest = line.partition(" ")
        if key != "Guard":
            continue
        said = dict(word.split("=", 1) for word in rest.split() if "=" in word)
        confirmed = "confirmed_idx" in said
        number = int(said["confirmed_idx"] if confirmed else said.get("sampled_idx", 0))
        ranked.append((not confirmed, number, said["nickname"]))
    return [nickname for _, _, nickname in sorted(ranked)]


def _write_privately(file: Path, text: str) -> None:
    """Tor keeps its state readable only for itself."""
    file.touch(mode=0o600)
    file.write_text(text)
