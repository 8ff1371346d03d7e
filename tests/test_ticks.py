"""When a node's programs see their clock advance: each node has ticks of its own."""

from pathlib import Path

import pytest
from machine import run_inside

from testbed.basics.seeds import derived_seed

pytestmark = pytest.mark.experiment

COARSE = """
import time
from testbed.asked.plans import make_plan
from testbed.inside.lab.network import running_lab

plan = make_plan("TwoPaths", "vanilla", seed=7)
with running_lab(plan) as lab:
    for _ in range(3):
        for node in plan.nodes:
            read = lambda: (time.clock_gettime_ns(6), time.monotonic_ns())
            print("tick", node.name, *lab.inside(node.name, read))
        time.sleep(0.0123)
"""


def test_each_node_has_ticks_of_its_own(tmp_path: Path) -> None:
    """250 a second, at a phase by the seed and the node's name."""
    lines = run_inside(COARSE, tmp_path / "machine").splitlines()
    told = [line.split()[1:] for line in lines if line.startswith("tick ")]
    names = {name for name, *_ in told}
    assert len(names) == 9
    for name, *read in told:
        coarse_ns, now_ns = map(int, read)
        assert 0 <= now_ns - coarse_ns < 4_010_000
        assert coarse_ns % 4_000_000 == derived_seed(7, "tick", name) % 4_000_000
