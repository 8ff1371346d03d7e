"""The testbed from Python, for scripts and notebooks: plan a run, carry it out, read runs.

docs/python.md shows how. These names stay; modules of `testbed` and `analysis` may move.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import polars
from rich.console import Console

from analysis.metrics import all_metrics
from analysis.runs import Found, find_runs
from testbed.asked.output import check_output, default_output
from testbed.asked.plans import make_plan
from testbed.basics.errors import InputError
from testbed.plan.model import Plan
from testbed.results import Run, read_run
from testbed.results.tables import SCHEMAS
from testbed.runs import repeats, runner

__all__ = ["Plan", "Run", "carry_out", "figures", "make_plan", "read_run", "rows"]


def carry_out(plan: Plan, directory: Path | str | None = None) -> Run:
    """Carry out a plan in the virtual machine, and read the run.

    Args:
        plan: made by `make_plan`.
        directory: where the run is written, which must not exist. Without one it is the commands'
            `results/SCENARIO/VARIANT/seed-N`, and a run that exists there is only read.

    Raises:
        InputError: something else is in that place.
        TestbedError: the run failed; the message says where its logs are.
    """
    if directory is None:
        directory = default_output(plan)
        if not repeats.missing([plan]):
            return read_run(directory)
    directory = Path(directory)
    check_output(directory)
    messages = Console(stderr=True)
    progress = runner.ProgressBar.on(messages, f"{plan.scenario}, {plan.variant}, seed {plan.seed}")
    with progress.bar:
        runner.carry_out(plan, directory, messages, progress.show)
    return read_run(directory)


def figures(directory: Path | str) -> polars.DataFrame:
    """A row for each run below a directory that counts, with its names and numbers.

    The columns are scenario, variant, traffic, duration_s, seed, fingerprint, directory; made_by,
    which is empty unless several Tors, kernels or testbeds made the runs, whose numbers should then
    not be mixed; and each of `compare`'s metrics, such as throughput_mb_per_s_mean, which is null
    if a run has no data for it. Runs that don't count cause warnings.

    Raises:
        InputError: no run counts.
    """
    runs = list(_runs(directory))
    metrics = all_metrics(run for _, run in runs)
    return polars.DataFrame(
        [
            {
                **_names(part, run),
                "duration_s": run.summary.duration_s,
                "fingerprint": run.fingerprint,
                "directory": str(run.directory),
                **{metric.key.replace(".", "_"): metric.of(run) for metric in metrics},
            }
            for part, run in runs
        ],
        infer_schema_length=None,
    )


def rows(directory: Path | str, table: str) -> polars.DataFrame:
    """One table, such as "transfers", of all runs below a directory that count.

    Its columns follow made_by (see `figures`), scenario, variant, traffic and seed.

    Raises:
        InputError: no run counts, or there is no such table.
    """
    if table not in SCHEMAS:
        raise InputError(f"there is no table {table!r}: a run has {', '.join(SCHEMAS)}")
    # Columns that an older run lacks are read as nulls, behind the others.
    tables = (
        _named(getattr(run, table).select(*SCHEMAS[table]), part, run)
        for part, run in _runs(directory)
    )
    return polars.concat(tables)


def _runs(directory: Path | str) -> Iterator[tuple[Found, Run]]:
    found = find_runs(Path(directory))
    for line in found.left_out:
        warnings.warn(f"left out: {line}", stacklevel=3)
    if not any(part.valid for part in found.parts):
        raise InputError(f"{directory} holds no run that counts")
    for part in found.parts:
        for runs in part.valid.values():
            for run in runs:
                yield part, run


def _named(table: polars.DataFrame, part: Found, run: Run) -> polars.DataFrame:
    names = [polars.lit(value).alias(name) for name, value in _names(part, run).items()]
    return table.select(*names, polars.all())


def _names(part: Found, run: Run) -> dict[str, str | int]:
    return {
        "made_by": part.made_by,
        "scenario": run.summary.scenario,
        "variant": run.summary.variant,
        "traffic": run.summary.traffic,
        "seed": run.summary.seed,
    }
