"""What imports what: the contracts of `pyproject.toml`, among them that packages have no cycles."""

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from testbed.toml_file import PROJECT


def test_imports_keep_to_the_contracts() -> None:
    told = lint_imports(config_filename=str(PROJECT / "pyproject.toml"), no_cache=True)
    assert told == EXIT_STATUS_SUCCESS
