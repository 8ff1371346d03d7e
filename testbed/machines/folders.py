"""The folders that a run's command uses, by their paths on this host and in the guest.

Nothing here knows the command.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from testbed.machines.virtual import RUN

STATE = Path("/run/lab")
"""Where a machine keeps keys, data and sockets, which end with it."""


@dataclass(frozen=True)
class Folders:
    """The folders of a run, and the traffic generator's program.

    Attributes:
        run: the run's own directory, the only one that is written to.
        code: the testbed's own code, see `setup.own_code`.
        environment: the Python environment.
        tor: Tor's build.
        network: the bootstrapped network, see `runs.bootstrapped`; None to bootstrap it.
        generator: a program to use instead of the bundled generator.
    """

    run: Path
    code: Path
    environment: Path = Path(sys.prefix)
    tor: Path | None = None
    network: Path | None = None
    generator: Path | None = None

    @property
    def python(self) -> str:
        """The environment's Python."""
        return str(self.environment / "bin/python")

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the project's Python.

        They keep the working directory and a user's own site folder off the path, so the pinned
        packages are used.
        """
        return {
            "PYTHONPATH": str(self.code),
            "PYTHONNOUSERSITE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, module: str, *options: str) -> list[str]:
        """The command line of a module that works on the plan in `run`."""
        words = [self.python, "-m", module]
        words += ["--plan", str(self.run / "plan.json"), "--directory", str(self.run)]
        if self.tor:
            words += ["--tor", str(self.tor / "tor"), "--state", str(STATE)]
        if self.network:
            words += ["--network", str(self.network)]
        return [*words, *options, "--", *self._generator()]

    def _generator(self) -> Sequence[str]:
        if self.generator:
            return [str(self.generator)]
        return [self.python, "-m", "testbed.inside.traffic.tgen"]


def seen_by_guest(folders: Folders) -> tuple[Folders, dict[Path, Path]]:
    """The same folders by paths that are equal in every run, and the mounts for them.

    So neither the depth nor the name of a host's folder can reach a run: Python looks at each
    folder of a path, and many system calls cost virtual time.

    Returns:
        The folders as the guest sees them; and the host's path of each of them, except `run`.
    """
    view, mounts = replace(folders, run=RUN), {}
    for name in [field.name for field in fields(folders) if field.name != "run"]:
        path: Path | None = getattr(folders, name)
        if path is None:
            continue
        place = RUN.with_name(name)
        is_program = name == "generator"
        mounts[place] = path.parent if is_program else path
        view = replace(view, **{name: place / path.name if is_program else place})
    return view, mounts
