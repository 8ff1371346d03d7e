"""A run's results: from what the experiment recorded to the run directory, and back to readers.

What many runs say together is the analysis's.
"""

from testbed.check import Check
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
from testbed.results.run import Run, read_run
from testbed.results.show import print_summary
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
    "print_summary",
    "publish",
    "read_run",
    "remove_left_overs",
    "staging",
    "write_results",
]
