"""Make many runs, on all cores or on a cluster.

Whole runs are not made again, so the same command continues a batch that was stopped.
"""

import argparse
from pathlib import Path

from rich.console import Console

from commands import _options
from commands.report import write
from testbed import batch
from testbed.basics.ending import FAILED, PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.batch import display

EPILOG = _options.STATUS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument("file", metavar="FILE", help="a name in batches/ or a .toml file")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and how long")
    parser.add_argument(
        "--cores",
        type=_options.whole(1),
        metavar="N",
        help="runs at once (default: one for each core)",
    )
    parser.add_argument(
        "--retries",
        type=_options.whole(0),
        default=1,
        metavar="N",
        help="how often a failed run is tried again (default: 1)",
    )
    parser.add_argument(
        "--retry-invalid", action="store_true", help="make runs again whose premise failed"
    )
    _options.add_mixed(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where all runs go (default: results/<name>)"
    )
    _add_cluster(parser)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--executor",
        choices=["local", "slurm"],
        default="local",
        help="run on this machine (default), or on the cluster whose login node this is",
    )
    parser.add_argument(
        "--jobs",
        type=_options.whole(1),
        metavar="N",
        help="jobs that wait or run at once on a cluster (default: all)",
    )
    parser.add_argument(
        "--slurm-account", metavar="NAME", help="the account that jobs are charged to"
    )
    parser.add_argument("--slurm-partition", metavar="NAME", help="the partition that jobs run in")
    parser.add_argument(
        "--time-limit",
        type=_options.duration_s,
        metavar="TIME",
        help="each job's limit, such as '2 h' (default: from the run's expected time)",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Make the missing runs and a report on all; or print what would be made."""
    wanted = batch.read_batch(given.file)
    cluster = _cluster(given)
    at_once = (given.jobs or len(wanted.plans)) if cluster else (given.cores or batch.all_cores())
    directory = given.out or Path("results") / wanted.name
    if given.dry_run:
        display.print_dry_run(
            Console(),
            wanted,
            batch.look_up(wanted.plans, directory, mixed=given.mixed),
            batch.Estimator(batch.earlier_runs(Path("results"), directory)),
            at_once=at_once,
            again_invalid=given.retry_invalid,
        )
        return VALID
    ended = batch.run_batch(
        wanted,
        directory,
        messages,
        at_once=at_once,
        retries=given.retries,
        again_invalid=given.retry_invalid,
        mixed=given.mixed,
        cluster=cluster,
    )
    display.print_ended(Console(), ended)
    if any(one.run for one in ended.standings):  # without any run there is no report
        write(directory, None, messages, mixed=given.mixed)
    if ended.failures:
        return FAILED
    return PREMISE_FAILED if ended.invalid else VALID


def _cluster(given: argparse.Namespace) -> batch.Slurm | None:
    """The cluster for a batch's runs; None for this machine."""
    of_slurm = ("jobs", "slurm_account", "slurm_partition", "time_limit")
    if given.executor == "local":
        for name in of_slurm:
            if getattr(given, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --executor slurm: add that")
        return None
    if given.cores is not None:
        raise InputError("--cores is for this machine: with --executor slurm use --jobs")
    return batch.Slurm(given.slurm_account, given.slurm_partition, given.time_limit)
