"""What is kept of a study: an archive of its runs and of what it printed.

Of a run there are summary, manifest, the quantiles of its transfers' times, and those metrics that
take its tables. The same runs give the same archive. Whole runs stay where they were made.
"""

import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from analysis.metrics import all_metrics
from analysis.metrics.metric import Metric
from study.folder import Study
from study.page import own_metrics
from study.printed import FOLDER
from study.times import TIMES, write_times
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label
from testbed.results import Run, read_run
from testbed.results.manifest import MANIFEST
from testbed.results.run import VALUES
from testbed.results.summary import SUMMARY

FILES = (SUMMARY, MANIFEST)
OF_TABLES = (TIMES, VALUES)
"""What is kept of a run's tables."""


def _is_kept(file: Path) -> bool:
    """Whether a file is a run's that is kept, or what a command printed."""
    return file.name in (*FILES, *OF_TABLES) or (
        file.parent.name == FOLDER and file.suffix == ".json"
    )


@contextmanager
def unpacked(study: Study) -> Iterator[Path]:
    """A folder with the kept runs below it, while the context lasts.

    Raises:
        InputError: none are kept, or the archive is damaged.
    """
    if not study.kept.is_file():
        raise InputError(f"{label(study.kept)}: no runs of this study are kept: make them")
    with tempfile.TemporaryDirectory(prefix="hydra-study-") as folder:
        try:
            with tarfile.open(study.kept) as archive:
                _extract(archive, Path(folder))
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            raise InputError(f"{label(study.kept)}: not an archive of runs: {error}") from error
        yield Path(folder)


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Write what is kept, and nothing else that an archive may hold."""
    for entry in archive:
        name = Path(entry.name)
        content = archive.extractfile(entry) if _is_kept(name) else None
        if content and not name.is_absolute() and ".." not in name.parts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.read())


@contextmanager
def only_kept(study: Study, runs: Mapping[Path, Path], directory: Path) -> Iterator[Path]:
    """A folder with what would be kept of runs, while the context lasts.

    A page is made of these, so that it is the one that is made of the archive later on.

    Args:
        runs: where each run is, by its folder below the study's own.
        directory: where what was printed is.
    """
    with tempfile.TemporaryDirectory(prefix="hydra-study-") as copy:
        for folder, place in runs.items():
            (Path(copy) / folder).mkdir(parents=True)
            for file in (*FILES, *OF_TABLES):
                if (place / file).is_file():
                    shutil.copy(place / file, Path(copy) / folder)
            if (run := read_run(place, whole=False)).is_whole:
                write_times(run, Path(copy) / folder)
                _write_values(run, own_metrics(study), Path(copy) / folder)
        if (directory / FOLDER).is_dir():
            shutil.copytree(directory / FOLDER, Path(copy) / FOLDER)
        yield Path(copy)


def _write_values(run: Run, own: Iterable[Metric], folder: Path) -> None:
    """Write the metrics that a whole run has and its summary doesn't give."""
    alone = read_run(folder, whole=False)
    values = {
        metric.key: value
        for metric in (*all_metrics([run]), *own)
        if metric.of(alone) is None and (value := metric.of(run)) is not None
    }
    (folder / VALUES).write_text(f"{json.dumps(values, indent=1)}\n", encoding="utf-8")


def take_over_printed(study: Study, kept: Path, directory: Path) -> None:
    """Copy what is kept of commands to where they would be carried out, unless it is there."""
    for file in (kept / study.name / FOLDER).glob("*.json"):
        (directory / FOLDER).mkdir(parents=True, exist_ok=True)
        if not (directory / FOLDER / file.name).exists():
            shutil.copy(file, directory / FOLDER)


def pack(study: Study, directory: Path) -> None:
    """Keep summaries, manifests, quantiles and what was printed, in place of what was kept."""
    temporary = study.kept.with_suffix(".new")
    with tarfile.open(temporary, "w:xz", preset=9) as archive:
        for file in sorted(directory.rglob("*.json")):
            if _is_kept(file):
                name = Path(study.name) / file.relative_to(directory)
                archive.add(file, str(name), filter=_without_origin)
    temporary.replace(study.kept)


def _without_origin(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o644
    return entry
