"""Batches: many runs through Snakemake, on this machine or a cluster.

A single run is `testbed.runs.runner`'s; the statistics of many are `analysis`'s.
"""

from testbed.batch.batch_file import Batch, read_batch
from testbed.batch.estimate import Estimator, earlier_runs
from testbed.batch.running import all_cores, run_batch
from testbed.batch.slurm import Slurm
from testbed.batch.standings import look_up

__all__ = [
    "Batch",
    "Estimator",
    "Slurm",
    "all_cores",
    "earlier_runs",
    "look_up",
    "read_batch",
    "run_batch",
]
