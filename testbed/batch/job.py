"""One run of a batch, as Snakemake starts it: `python -m testbed.batch.job FOLDER`.

What a folder holds is said in `testbed.batch.notes`; what a run is, by `testbed.runner`.
"""

import os
import socket
import sys
from pathlib import Path

from rich.console import Console

from testbed import runner
from testbed.batch.notes import ENDED_FROM_OUTSIDE, Note
from testbed.batch.runs import stand
from testbed.ending import FAILED, INTERRUPTED, VALID, end_on_signals
from testbed.errors import TestbedError
from testbed.up_to_date import Today


def main(folder: Path) -> int:
    """Carry out the run of a note; its exit status says whether there is one.

    An invalid run is one: to try again would not make it count.
    """
    end_on_signals()
    note = Note(folder)
    node = os.environ.get("SLURMD_NODENAME")
    note.began(node or socket.gethostname())
    plan, destination, ready = note.asked()
    where = f"\n(on {node})" if node else ""
    try:
        # Its process may have been killed between the run's end and its note.
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
