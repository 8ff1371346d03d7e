"""Papers that runs are held against, a package each. Nothing but the commands knows of them.

A report shows of a paper what there are runs for: without its scenarios, nothing.
"""

from papers.hydra import tables as hydra

TABLES = hydra.TABLES
"""What makes a table of runs, of every paper."""
