"""What `batch` and `study` share: how runs are made, here or on a cluster."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from commands import _options
from testbed import batch
from testbed.basics.ending import FAILED, PREMISE_FAILED, VALID
from testbed.basics.errors import InputError
from testbed.batch import display
from testbed.batch.standings import Ended
from testbed.results.summary import Summary


def add_making(parser: argparse.ArgumentParser) -> None:
    """Add the options of how runs are made."""
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and how long")
    parser.add_argument(
        "--cores",
        type=_options.whole(1),
        metavar="N",
        help="runs at once (default: as many as have a core for each of their kernels)",
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


def print_dry_run(
    given: argparse.Namespace,
    wanted: batch.Batch,
    directory: Path,
    earlier: Sequence[Summary] = (),
) -> None:
    """Print what would run.

    Args:
        earlier: summaries of runs that tell how long these take, beside those in results/.
    """
    display.print_dry_run(
        Console(),
        wanted,
        batch.look_up(wanted.plans, directory, mixed=given.mixed),
        batch.Estimator([*batch.earlier_runs(Path("results"), directory), *earlier]),
        at_once=at_once(given, wanted),
        again_invalid=given.retry_invalid,
    )


def make(
    given: argparse.Namespace, wanted: batch.Batch, directory: Path, messages: Console
) -> Ended:
    """Make the missing runs, and print how that ended."""
    ended = batch.run_batch(
        wanted,
        directory,
        messages,
        at_once=at_once(given, wanted),
        retries=given.retries,
        again_invalid=given.retry_invalid,
        mixed=given.mixed,
        cluster=cluster(given),
    )
    display.print_ended(Console(), ended)
    return ended


def status(ended: Ended) -> int:
    """The exit status after runs were made."""
    if ended.failures:
        return FAILED
    return PREMISE_FAILED if ended.invalid else VALID


def at_once(given: argparse.Namespace, wanted: batch.Batch) -> int:
    """How many runs go on at the same time."""
    if cluster(given):
        return int(given.jobs or len(wanted.plans))
    most_kernels = max((plan.kernels for plan in wanted.plans.values()), default=1)
    return int(given.cores or max(1, batch.all_cores() // most_kernels))


def cluster(given: argparse.Namespace) -> batch.Slurm | None:
    """The cluster for the runs; None for this machine."""
    of_slurm = ("jobs", "slurm_account", "slurm_partition", "time_limit")
    if given.executor == "local":
        for name in of_slurm:
            if getattr(given, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --executor slurm: add that")
        return None
    if given.cores is not None:
        raise InputError("--cores is for this machine: with --executor slurm use --jobs")
    return batch.Slurm(given.slurm_account, given.slurm_partition, given.time_limit)
