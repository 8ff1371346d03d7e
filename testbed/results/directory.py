"""The run directory: written beside its destination, then moved there; or kept as a failure.

Other modules of this room make the contents of its files; `results.run` reads it back.
"""

import gzip
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from testbed.basics.errors import TestbedError, reason_of
from testbed.plan.model import Plan
from testbed.plan.programs import Patch
from testbed.results.checks import computed_checks
from testbed.results.fingerprint import Contents
from testbed.results.link_directions import queue_drops
from testbed.results.manifest import FINGERPRINT, MANIFEST, SHA256, MachineFacts, manifest
from testbed.results.processors import busy_processors
from testbed.results.recorded import Recorded, read_recorded
from testbed.results.summarising import summary_parts
from testbed.results.summary import ERROR, SUMMARY, Cost, Summary
from testbed.results.tables import SCHEMAS
from testbed.results.values import delivered_mb
from testbed.setup.sources import sha256_of

EXCHANGED = ("plan.json", "command", "mounts.json", "guest_init.py", "status")
"""Files that runner and machine exchange; the manifest has the plan, too."""

PATCHES = "patches"
"""The folder of the variant's patches, as they were when the run began."""

MOST_NOTES = 50
_UNPUBLISHED_SUMMARY = "summary.unpublished.json"
_LOCK_SUFFIX = ".lock"
# The files in raw/ that tables and summary contain; the rest is kept with the logs.
_CONVERTED = {f"{name}.jsonl" for name in SCHEMAS} | {"checks.jsonl"}


@contextmanager
def staging(destination: Path) -> Iterator[Path]:
    """A directory beside `destination`, on the same file system, in which a run is written.

    Within the context a lock marks it as ours; the lock ends with the process, however that ends.
    Afterwards the directory is removed unless it was published or kept as a failure. Directories
    of killed runs for the same destination are removed first.

    Raises:
        TestbedError: the directory can't be made.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        remove_left_overs(destination)
        folder = destination.parent / f"{_staging_prefix(destination)}{os.getpid()}"
        lock = _lock(folder)
        lock.acquire(timeout=0)
    except Timeout:
        raise TestbedError(f"{destination}: this process is writing it already") from None
    except OSError as error:
        raise TestbedError(f"{destination.parent}: {error.strerror}: needed for results") from error
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def remove_left_overs(destination: Path) -> list[Path]:
    """Remove the staging directories of runs that have ended, and return those removed."""
    prefix = _staging_prefix(destination)
    # A run may have been killed after it made its lock and before it made its directory.
    found = {
        path.with_name(path.name.removesuffix(_LOCK_SUFFIX))
        for path in destination.parent.glob("*")
        if path.name.startswith(prefix)
    }
    return [path for path in sorted(found) if _removed(path)]


def _removed(left_over: Path) -> bool:
    lock = _lock(left_over)
    try:
        # By the lock: the process number in the name may be another process's by now.
        lock.acquire(timeout=0)
    except Timeout:
        return False
    if left_over.exists():
        shutil.rmtree(left_over)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
    return True


def kept_patch(directory: Path, patch: Patch) -> Path | None:
    """The file of a patch as a run used it; None if it no longer exists.

    It is in the run directory; an older run, which lacks it, may find it where it was.
    """
    for file in (directory / PATCHES / patch.name, patch.file()):
        with suppress(OSError):
            if sha256_of(file) == patch.sha256:
                return file
    return None


def keep_patches(staging: Path, plan: Plan) -> None:
    """Copy the variant's patches into the run directory, where they stay readable.

    Raises:
        OSError: one can't be read any more, or a copy can't be written.
    """
    folder = staging / PATCHES
    for patch in plan.tor.patches:
        folder.mkdir(exist_ok=True)
        shutil.copyfile(patch.file(), folder / patch.name)


def write_results(staging: Path, plan: Plan, facts: MachineFacts) -> Summary:
    """Turn an experiment's record in `staging` into the files of a run directory.

    `raw/` becomes tables and the summary and is removed; logs and captures are compressed. The
    summary gets its name last: a directory that lacks it is not finished.

    Raises:
        TestbedError: the record is incomplete.
        OSError: a file can't be written.
    """
    recorded = read_recorded(staging, plan)
    summary = summarize(plan, facts, recorded)
    digests = {}
    for name, table in recorded.tables.items():
        file, packed = staging / f"{name}.parquet", io.BytesIO()
        table.write_parquet(packed)
        file.write_bytes(packed.getvalue())  # polars itself wouldn't say that the disk refuses
        digests[file.name] = sha256_of(file)
    unnamed = staging / _UNPUBLISHED_SUMMARY
    content = summary.model_dump(mode="json")
    _write_json(unnamed, content)
    digests[SUMMARY] = sha256_of(unnamed)
    of_all = {
        FINGERPRINT: Contents(dict(recorded.tables.items()), content).fingerprint,
        **manifest(plan, facts, recorded.measuring_start_s),
        SHA256: digests,
    }
    _write_json(staging / MANIFEST, of_all)
    for name in EXCHANGED:
        (staging / name).unlink(missing_ok=True)
    _keep_rest_of_raw(staging / "raw", staging / "logs")
    for folder in ("logs", "captures"):
        _compress(staging / folder)
    unnamed.rename(staging / SUMMARY)
    return summary


def summarize(plan: Plan, facts: MachineFacts, recorded: Recorded) -> Summary:
    """The summary of a record; writes nothing."""
    checks = (
        *recorded.checks,
        *computed_checks(plan, recorded),
        *facts.checks,
    )
    return Summary(
        scenario=plan.scenario,
        scenario_title=plan.scenario_title,
        variant=plan.variant,
        variant_title=plan.variant_title,
        traffic=plan.traffic,
        seed=plan.seed,
        duration_s=plan.duration_s,
        warm_up_s=plan.warm_up_s,
        machine=facts.machine,
        valid=not any(check.failed for check in checks),
        checks=checks,
        cost=Cost(
            virtual_s=facts.cost.virtual_s,
            wall_s=facts.cost.wall_s,
            cpu_s=facts.cost.cpu_s,
            cores=facts.cost.cores,
            delivered_mb=delivered_mb(recorded.tables),
        ),
        notes=_notes(plan, recorded),
        **summary_parts(plan, recorded),
    )


def publish(staging: Path, destination: Path) -> None:
    """Sync a finished staging directory to the disk, then move it to its destination at once.

    Raises:
        TestbedError: `staging` is not finished, `destination` exists, or the disk fails.
    """
    if not (staging / SUMMARY).exists():
        raise TestbedError(f"{staging} has no {SUMMARY}: the run is not finished")
    _refuse_existing(destination)
    try:
        _write_through(staging)
        staging.rename(destination)
        _sync(destination.parent)
    except OSError as error:
        raise TestbedError(f"{destination}: {error.strerror}: the run stays unpublished") from error


def keep_failed(staging: Path, destination: Path, error: Exception) -> Path:
    """Keep what a failed run left as `<destination>.failed-<n>`, with the error in a file.

    Returns:
        The directory, in which nothing looks like a finished run.

    Raises:
        TestbedError: it can't be kept; the message has the run's error first.
    """
    try:
        (staging / ERROR).write_text(f"{error}\n", encoding="utf-8")
        if (staging / SUMMARY).exists():
            (staging / SUMMARY).rename(staging / _UNPUBLISHED_SUMMARY)
        return _renamed_as_failed(staging, destination)
    except OSError as refusal:
        raise TestbedError(
            f"{error}\nwhat the run left can't be kept: {reason_of(refusal, destination)}"
        ) from refusal


def _renamed_as_failed(staging: Path, destination: Path) -> Path:
    number = 1
    while True:
        kept = destination.with_name(f"{destination.name}.failed-{number}")
        if not kept.exists():
            try:
                return staging.rename(kept)
            except FileExistsError:
                continue
        number += 1


def _staging_prefix(destination: Path) -> str:
    return f".{destination.name}.partial-"


def _lock(staging: Path) -> FileLock:
    return FileLock(staging.with_name(staging.name + _LOCK_SUFFIX))


def _refuse_existing(destination: Path) -> None:
    # rename() would take the place of an empty directory.
    if destination.exists() or destination.is_symlink():
        raise TestbedError(f"{destination} was made during the run: remove it or move it away")


def _notes(plan: Plan, recorded: Recorded) -> tuple[str, ...]:
    notes = list(recorded.notes)
    if dropped := queue_drops(plan, recorded):
        notes.insert(0, dropped)
    notes += busy_processors(recorded.tables.processors)
    round_trips = recorded.tables.round_trips
    if unanswered := round_trips["round_trip_ms"].null_count():
        notes.append(f"{unanswered} of {round_trips.height} circuit probes not answered")
    if len(notes) > MOST_NOTES:
        left_out = len(notes) - MOST_NOTES
        notes[MOST_NOTES:] = [f"and {left_out} more: see logs/notes.jsonl.gz"]
    return tuple(notes)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _keep_rest_of_raw(raw: Path, logs: Path) -> None:
    for path in raw.iterdir():
        if path.name not in _CONVERTED:
            path.rename(logs / path.name)
    shutil.rmtree(raw)


def _compress(folder: Path) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".gz"]:
        with (
            path.open("rb") as plain,
            gzip.open(path.with_name(f"{path.name}.gz"), "wb", compresslevel=6) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        path.unlink()


def _write_through(directory: Path) -> None:
    """Sync all files and folders to the disk, or a power cut could leave names without content."""
    for folder, _, files in os.walk(directory):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
