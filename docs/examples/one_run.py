"""A run, its summary and a table."""

import hydra

plan = hydra.make_plan("NoDropping", "vanilla", seed=1, duration="10 s")
run = hydra.carry_out(plan)

print(run.summary.valid, run.summary.throughput_mb_per_s.mean)
print(run.transfers.select("client", "time_to_first_byte_s", "time_to_last_byte_s"))
