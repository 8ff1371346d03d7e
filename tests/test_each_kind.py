"""One short real run of each kind of network, as a user starts it: the main job works here."""

from pathlib import Path

import polars
import pytest
from machine import run_scenario

KINDS = {
    "a policy's circuits, a connection each": ("One", "pctls"),
    "circuits side by side": ("One", "mctor-3"),
    "linked sets": ("TwoPaths", "conflux"),
    "competing streams": ("Two", "vanilla"),
    "Tor's own choice in a drawn network": ("SmallNetwork", "vanilla", "--set", "warm_up=2 s"),
}


@pytest.mark.experiment
@pytest.mark.kind
@pytest.mark.parametrize("words", KINDS.values(), ids=KINDS)
def test_a_run_counts(tmp_path: Path, words: tuple[str, ...]) -> None:
    scenario, variant, *options = words
    run = run_scenario(tmp_path, scenario, variant, 5, *options)
    assert run.summary.valid
    assert run.summary.transfers.completed
    # Transfers of the warm-up are recorded, and none of them is measured.
    early = run.transfers.filter(polars.col("start_s") < run.measuring_start_s)
    assert bool(run.plan.warm_up_s) == (early.height > 0 and not early["measured"].any())
