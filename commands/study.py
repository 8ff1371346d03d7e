"""Answer a study's question: make its runs, and of them its page.

Without a name it lists the studies. Runs that are there stay, as with batch.

```sh
./run.py study
./run.py study hydra --dry-run
./run.py study hydra --kept
./run.py study --all --dry-run
./run.py study --all --kept
```

A study is a folder in `studies/`, or anywhere ([how to add
one](../CONTRIBUTING.md#to-add-a-study)): its runs, what a paper says, and a page whose every table
and number is made of the runs. `--dry-run` says what of the runs is there and what the others
cost, `--kept` makes the page again, in seconds, of what the study keeps. Without either it makes
what is missing, then report and page in `results/<name>/`; with `--keep` its summaries and
manifests, and the page, replace the study's. Runs whose premise failed are kept, too: the page
names them, and doesn't count them. `--missing --keep` adds to what is kept, as when a study gets
more runs, or several machines make it.
"""

import argparse
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commands import _batches, _options
from commands._found import tell_left_out
from commands.report import write
from study.folder import ALL_HOURS, Study, find_study, names
from study.kept import only_kept, pack, take_over_printed, unpacked
from study.page import Page, make_page
from study.printed import carry_out, read_printed
from testbed import batch
from testbed.basics.console import say
from testbed.basics.ending import VALID
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label
from testbed.batch.standings import Ended
from testbed.results.summary import Summary

EPILOG = _options.STATUS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="a name in studies/, or the path of a folder"
    )
    parser.add_argument("--all", action="store_true", help="all studies, one after the other")
    parser.add_argument(
        "--kept",
        action="store_true",
        help="make no runs: make the page of the runs that are kept in the study's folder",
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="make only what the study doesn't keep: what its commands printed counts, runs that"
        " another state of the testbed made don't",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the runs' summaries and the page in the study's folder, in place of those there",
    )
    _batches.add_making(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where runs and page go (default: results/<name>; with --kept the page goes to the"
        " study's folder)",
    )


def run(given: argparse.Namespace, messages: Console) -> int:
    """Carry the studies out; without a name, list them."""
    _check(given)
    if not (given.name or given.all):
        _print_list(Console())
        return VALID
    studies = [find_study(name) for name in (names() if given.all else [given.name])]
    ends = [_carry_out(study, given, messages) for study in studies]
    if given.all and given.dry_run:
        limit_h = sum(study.keys.most_hours for study in studies)
        say(messages, f"all studies may take {limit_h:g} of {ALL_HOURS:g} hours on two cores")
    return max(ends)


def _check(given: argparse.Namespace) -> None:
    if given.name and given.all:
        raise InputError(f"study {given.name} --all: leave one of them out")
    if given.all and given.out:
        raise InputError("--all has a folder for each study: leave --out out")
    if given.kept and (given.keep or given.dry_run or given.missing):
        raise InputError("--kept makes no runs: leave --keep, --missing and --dry-run out")
    _batches.cluster(given)


def _carry_out(study: Study, given: argparse.Namespace, messages: Console) -> int:
    """Carry one study out, or say what that would be; its exit status."""
    if given.kept:
        with unpacked(study) as folder:
            page = make_page(study, folder)
        _write(page, (given.out or study.folder) / study.page.name, messages)
        return VALID
    directory = given.out or Path("results") / study.name
    say(messages, f"{study.name}: {study.keys.question}")
    with unpacked(study) if given.missing and study.kept.is_file() else nullcontext() as kept:
        if given.dry_run:
            wanted, _ = _without_kept(study, given, kept)
            return _say_costs(study, given, wanted, directory, messages)
        if kept:
            take_over_printed(study, kept, directory)
        at_once = given.cores or batch.all_cores()
        carry_out(study.commands, directory, lambda line: say(messages, line), at_once)
        # Only now, as commands may have written what runs are planned of.
        return _make_runs(study, given, directory, kept, messages)


def _say_costs(
    study: Study,
    given: argparse.Namespace,
    wanted: batch.Batch,
    directory: Path,
    messages: Console,
) -> int:
    """Say what would be made."""
    if wanted.plans:
        _batches.print_dry_run(given, wanted, directory, _kept_summaries(study))
    _say_commands(study, directory, messages)
    say(messages, f"the study's limit is {study.keys.most_hours:g} hours on two cores")
    return VALID


def _make_runs(
    study: Study,
    given: argparse.Namespace,
    directory: Path,
    kept: Path | None,
    messages: Console,
) -> int:
    """Make the runs and the page; the exit status."""
    all_plans = study.batch().plans
    wanted, made = _without_kept(study, given, kept)
    ended = Ended((), {})
    if wanted.plans:
        ended = _batches.make(given, wanted, directory, messages)
        if not any(one.run for one in ended.standings):
            return _batches.status(ended)
        write(directory, None, messages, mixed=given.mixed)
    made |= {one.folder.relative_to(directory): one.folder for one in ended.standings if one.run}
    runs = {folder: made[folder] for folder in all_plans if folder in made}
    with only_kept(study, runs, directory) as of:
        page = make_page(study, of)
        _write(page, directory / study.page.name, messages)
        if given.keep:
            if missing := len(all_plans) - len(runs):
                raise InputError(f"--keep: {missing} of {len(all_plans)} runs are not made")
            pack(study, of)
            _write(page, study.page, messages)
    return _batches.status(ended)


def _without_kept(
    study: Study, given: argparse.Namespace, kept: Path | None
) -> tuple[batch.Batch, dict[Path, Path]]:
    """The runs to make; and where those are that are kept and stay, by their folders."""
    wanted = study.batch()
    if kept is None:
        return wanted, {}
    above = kept / study.name
    standings = batch.look_up(wanted.plans, above, mixed=given.mixed, whole=False)
    there = {
        one.folder.relative_to(above): one.folder
        for one in standings
        if one.run and (one.run.summary.valid or not given.retry_invalid)
    }
    others = {folder: plan for folder, plan in wanted.plans.items() if folder not in there}
    return replace(wanted, plans=others), there


def _say_commands(study: Study, directory: Path, messages: Console) -> None:
    """Say which of a study's commands would be carried out, and what they took when kept."""
    there = read_printed(study.commands, directory).by_name
    wanted = [one for one in study.commands if one.name not in there]
    if not wanted:
        return
    took_s = 0.0
    if study.kept.is_file():
        with unpacked(study) as folder:
            kept = read_printed(wanted, folder).by_name
        took_s = sum(one.processor_s for one in kept.values())
    cost = f", {took_s:.0f} s of processor time" if took_s else ""
    shown = [one.shown for one in wanted[:3]]
    more = f" and {len(wanted) - len(shown)} more" if wanted[3:] else ""
    say(messages, f"commands to carry out: {', '.join(shown)}{more}{cost}")


def _kept_summaries(study: Study) -> list[Summary]:
    """The summaries of the kept runs, which tell how long runs take."""
    if not study.kept.is_file():
        return []
    with unpacked(study) as folder:
        return batch.earlier_runs(folder)


def _write(page: Page, file: Path, messages: Console) -> None:
    page.write(file)
    tell_left_out(page.left_out, messages)
    for missing in dict.fromkeys(page.missing):
        say(messages, f"not on the page, as there are no such runs or results: {missing}")
    say(messages, f"page in {label(file)}")


def _print_list(console: Console) -> None:
    """Print each study's name, runs, limit and question."""
    table = Table("study", "runs", "hours at most", "question", box=None)
    for study in map(find_study, names()):
        table.add_row(
            study.name, str(study.runs), f"{study.keys.most_hours:g}", study.keys.question
        )
    console.print(table)
