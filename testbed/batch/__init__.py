"""Many runs, carried out by Snakemake: which, where, what there is of them, how long they take.

One run is `testbed.runner`'s; what many say together is the analysis's.
"""

from testbed.batch.carrying_out import all_cores, carry_out
from testbed.batch.estimate import Estimator, earlier_runs
from testbed.batch.runs import look_up, read_batch
from testbed.batch.slurm import Slurm

__all__ = [
    "Estimator",
    "Slurm",
    "all_cores",
    "carry_out",
    "earlier_runs",
    "look_up",
    "read_batch",
]
