"""All studies are measured with one state of the code."""

from itertools import chain

import pytest

from study.folder import find_study, names
from study.kept import unpacked
from study.origin import made_runs
from study.page import found_runs
from study.printed import read_printed


@pytest.mark.slow
def test_all_kept_runs_are_of_one_commit() -> None:
    commits = {name: _kept_commits(name) for name in names()}
    assert all(commits.values())
    assert len(set(chain.from_iterable(commits.values()))) == 1, commits


def _kept_commits(name: str) -> set[str | None]:
    """The commits that a study's kept runs, and what its commands printed, are of."""
    study = find_study(name)
    with unpacked(study) as folder:
        projects = [run.manifest["project"] for run in made_runs(found_runs(study, folder))]
        printed = read_printed(study.commands, folder).by_name.values()
    assert not any(project["dirty"] for project in projects)
    return {*(one["commit"] for one in projects), *(one.commit for one in printed)}
