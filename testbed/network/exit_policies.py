"""The ports that exits accept, by the summaries of exit policies in a consensus."""

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

PortRange = tuple[int, int]
"""First and last port."""

PORTS = 65536


def accepting(relays: pl.DataFrame, ranges: Iterable[PortRange]) -> NDArray[np.bool_]:
    """The relays whose policies accept every port of these ranges; unknown policies accept none."""
    ranges = list(ranges)
    policies = relays["policy"].unique().drop_nulls()
    fitting = [policy for policy in policies if _accepts(policy, ranges)]
    return relays["policy"].is_in(fitting).fill_null(False).to_numpy().astype(np.bool_)


def _accepts(policy: str, ranges: list[PortRange]) -> bool:
    from stem.exit_policy import MicroExitPolicy

    parsed = MicroExitPolicy(policy)
    accepted = np.full(PORTS, not parsed.is_accept)
    for rule in parsed:
        accepted[rule.min_port : rule.max_port + 1] = parsed.is_accept
    return all(accepted[first : last + 1].all() for first, last in ranges)
