"""Makes a study's page: its template, filled with what its runs say, and the figures beside it.

What fields there are is in `study.fields`; a study's own are in its `figures.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import analysis.tables
from analysis.metrics.metric import Metric
from analysis.plot import Plot
from analysis.plugins import modules_in
from analysis.runs import Found, find_runs
from analysis.table import Table
from study.expressions import filled
from study.fields import Fields, span
from study.folder import Study
from study.hydra.tables import TABLES
from study.origin import lacking, origin
from study.paragraphs import wrapped
from study.printed import AllPrinted, read_printed
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, read_toml
from testbed.results.summary import SUMMARY

HEAD = "<!-- Made from {template} and the runs: edit that, and make this again. -->\n"


@dataclass(frozen=True)
class Page:
    """A study's page, made.

    Attributes:
        text: Markdown.
        files: the tables beside it, CSV by file name.
        plots: the figures beside it.
        missing: the runs and results that the pages name and that aren't there.
        left_out: a line for each run that doesn't count, with the reason.
        further: the other pages beside it, Markdown by file name.
    """

    text: str
    files: Mapping[str, str]
    plots: Sequence[Plot]
    missing: Sequence[str] = ()
    left_out: Sequence[str] = ()
    further: Mapping[str, str] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Write the page and, beside it, further pages, tables as CSV, and figures as PNG.

        Raises:
            InputError: it can't be written.
        """
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text, encoding="utf-8")
            for name, text in (*self.further.items(), *self.files.items()):
                (file.parent / name).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}: needed for the page") from error
        for plot in self.plots:
            plot.save_as(file.parent / f"{plot.name}.png")


def found_runs(study: Study, directory: Path) -> Found:
    """The study's runs below a directory, whatever made them; none if none is made yet.

    Raises:
        InputError: none of those that are there can be read.
    """
    there = study.runs and any(directory.rglob(SUMMARY))
    return find_runs(directory, mixed=True, whole=False) if there else Found({}, [])


@dataclass(frozen=True)
class Made:
    """What a study's page is made of.

    Attributes:
        fields: what of its fields was asked for, and wasn't there.
        names: what a template can name.
        of: what functions of the study's own code take.
    """

    found: Found
    printed: AllPrinted
    code: ModuleType | None
    fields: Fields
    names: Mapping[str, object]
    of: tuple[object, ...]


def made_of(study: Study, directory: Path) -> Made:
    """What the runs below a directory give a study's templates; it may have none.

    Raises:
        InputError: something of the study is wrong.
    """
    found = found_runs(study, directory) if directory.is_dir() else Found({}, [])
    printed = read_printed(study.commands, directory)
    # Functions of a study with commands take what these printed, too.
    of = (found, printed) if study.commands else (found,)
    code = _code(study)
    fields = Fields(found, _tables(found, code, of), _metrics(code))
    names: dict[str, object] = {
        "runs": fields.runs,
        "table": fields.table,
        "rows": fields.rows,
        "cell": fields.cell,
        "csv": fields.csv,
        "span": span,
        "published": read_toml(study.published) if study.published.is_file() else {},
        "printed": printed,
        "origin": origin(found, printed),
        "lacking": lambda: _lacking(study, found, printed),
        "question": study.keys.question,
        **_own(code, "fields", of),
    }
    return Made(found, printed, code, fields, names, of)


def own_metrics(study: Study) -> Sequence[Metric]:
    """The study's metrics beside those of all runs."""
    return _metrics(_code(study))


def make_page(study: Study, directory: Path) -> Page:
    """Fill a study's templates with the runs below a directory.

    Raises:
        InputError: a template names something that there isn't.
    """
    made = made_of(study, directory)
    text = _filled(study.template, made)
    further = {name: _filled(file, made) for name, file in study.further_templates.items()}
    plots = list(_plots(made.code, made.of))
    missing = [*made.fields.missing, *made.printed.missing]
    # The directory may be a temporary copy of what is kept.
    left_out = [line.removeprefix(f"{directory}/") for line in made.found.left_out]
    return Page(text, made.fields.files, plots, missing, left_out, further)


def _filled(template: Path, made: Made) -> str:
    place = label(template)
    try:
        source = template.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}") from error
    return HEAD.format(template=template.name) + wrapped(filled(source, made.names, place))


def _lacking(study: Study, found: Found, printed: AllPrinted) -> str:
    """What the page isn't made of, runs and commands."""
    parts = (lacking(found, study.batch().plans.values()), printed.lacking())
    return " ".join(part for part in parts if part)


def _metrics(code: ModuleType | None) -> Sequence[Metric]:
    metrics: Callable[[], Sequence[Metric]] | None = getattr(code, "metrics", None)
    return metrics() if metrics else ()


def _tables(found: Found, code: ModuleType | None, made_of: tuple[object, ...]) -> dict[str, Table]:
    """All tables by name: the module's of those that `tables` prints, and the study's own."""
    makers = {
        maker.__module__.rpartition(".")[2]: maker
        for maker in (*TABLES, *(module.table for module in modules_in(analysis.tables.__name__)))
    }
    return {name: make(found) for name, make in makers.items()} | _own(code, "tables", made_of)


def _own(code: ModuleType | None, name: str, made_of: tuple[object, ...]) -> dict[str, Any]:
    """What a function of the study's own code gives, if it has that function."""
    make: Callable[..., dict[str, Any]] | None = getattr(code, name, None)
    return make(*made_of) if make else {}


def _plots(code: ModuleType | None, made_of: tuple[object, ...]) -> Iterator[Plot]:
    make: Callable[..., Iterator[Plot]] | None = getattr(code, "plots", None)
    return make(*made_of) if make else iter(())


def _code(study: Study) -> ModuleType | None:
    if not study.code.is_file():
        return None
    spec = spec_from_file_location(f"figures_of_{study.name.replace('-', '_')}", study.code)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
