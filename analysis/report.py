"""The report on many runs: one HTML file that needs no network, with figures and tables beside it.

This module orders the report; its content comes from `tables`, `figures` and `provenance`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from analysis import page, provenance, style
from analysis.comparison import compare_groups, comparison_tables
from analysis.figures import Part, figure_files, plots
from analysis.opening import LEFT_OUT, Answered, answered, opening, title, whole, with_maker
from analysis.runs import Found, Groups, find_runs
from analysis.table import TableMaker
from analysis.tables import run_tables
from testbed.basics.errors import InputError, TestbedError
from testbed.results import Run
from testbed.results.tables import SCHEMAS

Section = tuple[str, str]
"""A heading, and the content as HTML."""


def write_report(
    directory: Path, file: Path, *, mixed: bool = False, of_papers: Sequence[TableMaker] = ()
) -> Found:
    """Write the report on the runs below a directory, with figures and tables beside the file.

    Args:
        mixed: see `read_runs`.
        of_papers: see `run_tables`.

    Returns:
        The runs in the report, and those left out.

    Raises:
        InputError: the directory holds no run, or the file can't be written.
    """
    if file.suffix != ".html":
        raise InputError(f"--out {file}: give a file that ends in .html")
    found = _readable(find_runs(directory, mixed=mixed))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = _page(found, of_papers, directory, page.Folder(file.parent))
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {file}: {error.filename}: {error.strerror}") from error
    return found


def _readable(found: Found) -> Found:
    """Leave out the runs whose plan or tables this testbed can't read."""
    left_out = [*found.left_out]
    parts = [replace(part, valid=_readable_groups(part.valid, left_out)) for part in found.parts]
    return replace(parts[0], left_out=left_out, apart=parts[1:])


def _readable_groups(groups: Groups, left_out: list[str]) -> Groups:
    readable = {}
    for group, runs in groups.items():
        problems = {run.directory: _problem(run) for run in runs}
        left_out += [f"{folder}: {problem}" for folder, problem in problems.items() if problem]
        if whole := [run for run in runs if not problems[run.directory]]:
            readable[group] = whole
    return readable


def _problem(run: Run) -> str | None:
    try:
        for name in ("plan", *SCHEMAS):
            getattr(run, name)
    except TestbedError as error:
        return str(error)
    return None


def _page(
    found: Found, of_papers: Sequence[TableMaker], directory: Path, folder: page.Folder
) -> str:
    looks = style.looks(group.variant for part in found.parts for group in part.valid)
    answers = answered(found)
    beginning = opening(answers, found, looks, folder)
    sections = [
        *_scenarios(answers, looks, folder),
        *_all_scenarios(found, looks, folder),
        *_tables(found, of_papers, folder),
        *_origin(found, directory, folder),
    ]
    return page.page(title(answers, directory), sections, beginning)


def _scenarios(
    answers: Sequence[Answered], looks: style.Looks, folder: page.Folder
) -> Iterator[Section]:
    """A section for each scenario: its answers, tables and figures, and its network."""
    by_section: dict[str, list[Answered]] = {}
    for one in answers:
        by_section.setdefault(one.section, []).append(one)
    for section, parts in by_section.items():
        folder.made_by = parts[0].made_by
        content = "".join(_setting(one, looks, folder, opened=len(answers) == 1) for one in parts)
        groups = {group: runs for one in parts for group, runs in one.groups.items()}
        yield section, content + "".join(map(folder.figure, plots(Part.SCENARIO, groups, looks)))
    folder.made_by = ""


def _setting(one: Answered, looks: style.Looks, folder: page.Folder, *, opened: bool) -> str:
    """How and why the variants of a scenario differ, with one traffic model and duration.

    Args:
        opened: whether the page begins with the answer.
    """
    _, traffic, duration = one.answer.setting
    tables = comparison_tables(*compare_groups(one.groups))
    return (
        page.subheading(f"{traffic}, {duration}")
        + ("" if opened else whole(one, looks, folder, 4))
        + "".join(map(folder.folded_table, tables))
        + "".join(map(folder.figure, plots(Part.TRAFFIC, one.groups, looks)))
    )


def _all_scenarios(found: Found, looks: style.Looks, folder: page.Folder) -> Iterator[Section]:
    """The sections with figures of several scenarios, of runs that may be averaged."""
    for part in found.parts:
        folder.made_by = part.made_by
        for file in figure_files(Part.SECTION):
            if content := "".join(map(folder.figure, file.plots(part.valid, looks))):
                yield with_maker(file.HEADING, part.made_by), content
    folder.made_by = ""


def _tables(
    found: Found, of_papers: Sequence[TableMaker], folder: page.Folder
) -> Iterator[Section]:
    """The tables of all runs, and of those that were left out."""
    if tables := run_tables(found, of_papers):
        yield "Tables", "".join(map(folder.folded_table, tables))
    if found.left_out:
        left_out = [provenance.left_out_table(found)]
        if found.invalid:
            left_out.append(provenance.failed_checks_table(found.invalid))
        yield LEFT_OUT, "".join(map(folder.table, left_out))


def _origin(found: Found, directory: Path, folder: page.Folder) -> Iterator[Section]:
    """Where the runs come from."""
    runs = [run for part in found.parts for runs in part.valid.values() for run in runs]
    if not runs:
        return
    tables = [provenance.runs_table(runs, directory), provenance.checks_table(runs)]
    yield "Runs and checks", "".join(map(folder.folded_table, tables))
    yield "Variants", "".join(map(_variant, provenance.variants(runs)))
    yield "Versions", folder.folded_table(provenance.versions_table(runs))
    yield "Repeat it", page.preformatted("\n".join(provenance.commands(runs, directory)))


def _variant(variant: provenance.VariantText) -> str:
    patches = (page.folded(name, page.preformatted(text)) for name, text in variant.patches)
    return (
        page.subheading(f"{variant.name}: {variant.title}")
        + page.items(variant.lines)
        + "".join(patches)
    )
