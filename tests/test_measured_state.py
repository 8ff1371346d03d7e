"""All studies are measured with one state of the code, and the README says what they say."""

import re
from itertools import chain

import pytest

from study.folder import find_study, names
from study.kept import unpacked
from study.origin import made_runs
from study.page import found_runs
from study.printed import read_printed
from testbed.basics.toml_file import PROJECT

COST = re.compile(r"([\d.]+ to [\d.]+) %")


def _kept_commits(name: str) -> set[str]:
    """The commits that a study's kept runs, and what its commands printed, are of."""
    study = find_study(name)
    with unpacked(study) as folder:
        projects = [run.manifest["project"] for run in made_runs(found_runs(study, folder))]
        assert not any(project["dirty"] for project in projects)
        printed = read_printed(study.commands, folder).by_name.values()
        return {*(one["commit"] for one in projects), *(one.commit for one in printed)}


@pytest.mark.slow
def test_all_kept_runs_are_of_one_commit() -> None:
    commits = {name: _kept_commits(name) for name in names()}
    assert all(commits.values())
    assert len(set(chain.from_iterable(commits.values()))) == 1, commits


def test_the_readme_says_what_loss_costs_as_the_study_does() -> None:
    first = [
        (PROJECT / file).read_text(encoding="utf-8").partition("\n![")[0].partition("\n| ")[0]
        for file in ("README.md", "studies/hydra/README.md")
    ]
    ours, studys = (COST.findall(" ".join(text.split())) for text in first)
    assert ours == studys[: len(ours)]
    assert len(ours) == 2
