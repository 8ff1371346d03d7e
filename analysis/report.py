"""The report on many runs: one HTML file that needs no network, with figures and tables beside it.

This module orders the report; its content comes from `tables`, `figures` and `provenance`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from analysis import page, provenance, style
from analysis.comparison import compare_groups, comparison_tables
from analysis.figures import Part, figure_files, plots
from analysis.runs import Found, Groups, find_runs
from analysis.table import TableMaker
from analysis.tables import run_tables
from testbed.basics.errors import InputError, TestbedError
from testbed.results import Run, read_run
from testbed.results.summary import SUMMARY
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
        sections = list(_sections(found, of_papers, directory, page.Folder(file.parent)))
        text = page.page(f"Runs in {directory.resolve().name}", sections)
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


def _sections(
    found: Found, of_papers: Sequence[TableMaker], directory: Path, folder: page.Folder
) -> Iterator[Section]:
    runs = [run for part in found.parts for runs in part.valid.values() for run in runs]
    looks = style.looks(group.variant for part in found.parts for group in part.valid)
    yield "Results", _results(found, of_papers, folder)
    yield "Left out", _left_out(found, directory, folder)
    if not runs:
        return
    for part in found.parts:
        folder.made_by = part.made_by
        yield from _figures(part, looks, folder)
    folder.made_by = ""
    yield "Runs and checks", _runs_and_checks(runs, directory, folder)
    yield "Variants", "".join(map(_variant, provenance.variants(runs)))
    yield "Versions", folder.table(provenance.versions_table(runs))
    yield "Repeat it", page.preformatted("\n".join(provenance.commands(runs, directory)))


def _figures(part: Found, looks: style.Looks, folder: page.Folder) -> Iterator[Section]:
    """The sections with figures, of runs that may be averaged."""
    of = f" ({part.made_by})" if part.made_by else ""
    for file in figure_files(Part.SECTION):
        if content := "".join(map(folder.figure, file.plots(part.valid, looks))):
            yield f"{file.HEADING}{of}", content
    for scenario in dict.fromkeys(group.scenario for group in part.valid):
        yield f"{scenario}{of}", _scenario(_only(part.valid, scenario=scenario), looks, folder)


def _results(found: Found, of_papers: Sequence[TableMaker], folder: page.Folder) -> str:
    number = sum(part.count for part in found.parts)
    words = [f"{number} runs count, {len(found.left_out)} are left out."]
    if found.apart:
        words += ["Different Tors, kernels or testbeds made them; these stand apart:"]
        words += [f"{part.count} runs were made by {part.made_by}." for part in found.parts]
    return "".join(map(page.paragraph, words)) + "".join(
        map(folder.table, run_tables(found, of_papers))
    )


def _scenario(groups: Groups, looks: style.Looks, folder: page.Folder) -> str:
    """The network, then for each traffic model and duration how and why the variants differ."""
    parts = [*map(folder.figure, plots(Part.SCENARIO, groups, looks))]
    for traffic, duration_s in dict.fromkeys((one.traffic, one.duration_s) for one in groups):
        same = _only(groups, traffic=traffic, duration_s=duration_s)
        parts.append(page.subheading(f"{traffic}, {duration_s:g} s"))
        parts += map(folder.table, comparison_tables(*compare_groups(same)))
        parts += map(folder.figure, plots(Part.TRAFFIC, same, looks))
    return "".join(parts)


def _left_out(found: Found, directory: Path, folder: page.Folder) -> str:
    if not found.left_out:
        return page.paragraph("Nothing.")
    tables = [provenance.left_out_table(found)]
    if invalid := _invalid_runs(directory):
        tables.append(provenance.failed_checks_table(invalid))
    return "".join(map(folder.table, tables))


def _invalid_runs(directory: Path) -> list[Run]:
    """Whole runs whose premise failed; a leading dot marks runs under way, which are skipped."""
    runs = []
    for path in sorted(directory.rglob(SUMMARY)):
        with suppress(TestbedError):
            runs.append(read_run(path.parent))
    return [run for run in runs if not run.summary.valid and not run.directory.name.startswith(".")]


def _runs_and_checks(runs: Sequence[Run], directory: Path, folder: page.Folder) -> str:
    checks = provenance.checks_table(runs)
    return folder.table(provenance.runs_table(runs, directory)) + page.folded(
        f"{len(checks.rows)} checks", folder.table(checks)
    )


def _variant(variant: provenance.VariantText) -> str:
    patches = (page.paragraph(name) + page.preformatted(text) for name, text in variant.patches)
    return (
        page.subheading(f"{variant.name}: {variant.title}")
        + page.items(variant.lines)
        + "".join(patches)
    )


def _only(groups: Groups, **attributes: object) -> Groups:
    """The groups with these attributes."""
    return {
        group: runs
        for group, runs in groups.items()
        if all(getattr(group, name) == value for name, value in attributes.items())
    }
