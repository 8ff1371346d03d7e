"""Makes one run of a batch; Snakemake starts it as `python -m testbed.batch.job FOLDER`.

The folder is a note (`testbed.batch.notes`); the run itself is `testbed.runs.runner`'s.
"""

import os
import socket
import sys
from pathlib import Path

from rich.console import Console

from testbed.basics.ending import FAILED, INTERRUPTED, VALID, end_on_signals
from testbed.basics.errors import TestbedError
from testbed.batch.notes import ENDED_FROM_OUTSIDE, Note
from testbed.batch.standings import stand
from testbed.runs import runner
from testbed.runs.up_to_date import Today


def main(folder: Path) -> int:
    """Make the run of a note; the exit status is 0 if there is a run.

    That includes an invalid run: trying again would not make it valid.
    """
    end_on_signals()
    note = Note(folder)
    node = os.environ.get("SLURMD_NODENAME")
    note.began(node or socket.gethostname())
    plan, destination, ready = note.asked()
    where = f"\n(on {node})" if node else ""
    try:
        # The run may be there: an earlier try can be killed just before it notes its end.
        run = stand(plan, destination, Today(ready)).run
        if run is None:
            summary = runner.carry_out(
                plan, destination, Console(stderr=True), note.step, ready=ready
            )
        else:
            summary = run.summary
    except TestbedError as error:
        note.failed(f"{error}{where}")
        return FAILED
    except KeyboardInterrupt:
        note.failed(ENDED_FROM_OUTSIDE)
        return INTERRUPTED
    except Exception as error:
        note.failed(f"{type(error).__name__}: {error}{where}")
        raise
    note.ended(valid=summary.valid)
    return VALID


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
