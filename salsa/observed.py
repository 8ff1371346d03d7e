"""Shared links of circuits that Tor itself chose, held against the simulation of their network.

The paper did so with Shadow (section 4.4): 12.5 % seen, 12.0 % simulated. Which circuits there
were, from a lab's run or from anywhere else, is the caller's to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from salsa.cases import Case
from salsa.drawing import DrawnCircuits
from salsa.links import count_links
from salsa.simulation import Estimate, simulate
from testbed.errors import InputError
from testbed.network.consensus import Consensus

Path3 = tuple[str, str, str]
"""Guard, middle and last relay of a circuit, by any names that tell relays apart."""


@dataclass(frozen=True)
class Comparison:
    """Shared links in percent of the links.

    Attributes:
        seen: of the circuits that there were.
        simulated: of as many circuits, drawn by the network's consensus.
        deviations: by how many standard deviations over simulations the two differ; chance alone
            gives more than 2 in one of 20 networks. None if simulations don't differ at all.
    """

    seen: float
    simulated: Estimate
    deviations: float | None


def compare(
    consensus: Consensus, circuits: Sequence[Path3], case: Case, *, seeds: int = 100
) -> Comparison:
    """Hold circuits that were active at one time against simulations of as many.

    Args:
        consensus: of the network in which they were chosen.
        case: how links are counted and circuits are drawn; its number of circuits is not used.

    Raises:
        InputError: there are no circuits, or more relays than the consensus has.
    """
    if not circuits:
        raise InputError("there are no circuits to compare: were any active at that time?")
    names, numbers = np.unique(np.array(circuits), return_inverse=True)
    if len(names) > consensus.relays.height:
        raise InputError(
            f"{consensus.name}: the circuits have {len(names)} relays, the consensus only"
            f" {consensus.relays.height}: give the consensus of the circuits' own network"
        )
    columns = numbers.reshape(len(circuits), 3).T.astype(np.int32)
    counted = count_links(
        DrawnCircuits(*map(np.ascontiguousarray, columns)), len(names), undirected=case.undirected
    )
    seen = 100 * counted.by_parts[2:].sum() / counted.by_parts.sum()
    of_as_many = replace(case, circuits=len(circuits), scale=1.0)
    simulated = simulate(consensus, of_as_many, seeds).shared_percent
    deviation = simulated.deviation
    return Comparison(
        seen=float(seen),
        simulated=simulated,
        deviations=(float(seen) - simulated.mean) / deviation if deviation else None,
    )
