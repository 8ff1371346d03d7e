"""Averages of many runs, and one table of all their transfers."""

import polars

import hydra

figures = hydra.figures("results")
print(
    figures.group_by("scenario", "variant").agg(
        polars.len(),
        polars.mean("throughput_mb_per_s_mean"),
        polars.std("throughput_mb_per_s_mean").alias("sd"),
    )
)
transfers = hydra.rows("results", "transfers")
print(transfers.group_by("variant", "seed").agg(polars.median("time_to_last_byte_s")))
