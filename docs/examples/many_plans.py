"""Runs of several plans, one after the other, none twice."""

import hydra

for seed in (1, 2, 3):
    for variant in ("vanilla", "pctls"):
        hydra.carry_out(hydra.make_plan("NoDropping", variant, seed=seed, duration="10 s"))
