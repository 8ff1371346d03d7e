"""A run's results: from the experiment's record to the run directory, and back to readers.

`analysis` has the statistics of many runs.
"""

from testbed.basics.check import Check
from testbed.results.directory import (
    PATCHES,
    keep_failed,
    keep_patches,
    kept_patch,
    publish,
    remove_left_overs,
    staging,
    write_results,
)
from testbed.results.manifest import MachineFacts
from testbed.results.parts import merge_parts
from testbed.results.run import Run, read_run
from testbed.results.summary import Summary

__all__ = [
    "PATCHES",
    "Check",
    "MachineFacts",
    "Run",
    "Summary",
    "keep_failed",
    "keep_patches",
    "kept_patch",
    "merge_parts",
    "publish",
    "read_run",
    "remove_left_overs",
    "staging",
    "write_results",
]
