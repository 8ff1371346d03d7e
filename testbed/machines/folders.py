"""Where a run's command finds what it uses: on this host, and as the guest of a machine sees it.

What the command does is not known here.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from testbed.machines.virtual import RUN

STATE = Path("/run/lab")
"""Where a machine keeps keys, data and sockets: gone with it."""


@dataclass(frozen=True)
class Folders:
    """Folders, and the generator's program.

    Attributes:
        run: the run's own directory, the only one that is written to.
        code: the testbed's own code, see `setup.own_code`.
        environment: the Python environment.
        tor: Tor's build.
        network: the network as it was bootstrapped, see `setup.network`; None to bootstrap it.
        generator: a program instead of the bundled one.
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
        """What a Python of the project needs to know.

        Neither the working directory nor a user's own folder comes before the pinned packages.
        """
        return {
            "PYTHONPATH": str(self.code),
            "PYTHONNOUSERSITE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def command(self, module: str, *options: str) -> list[str]:
        """The command line of a module that carries out the plan in `run`."""
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
        return [self.python, "-m", "testbed.traffic.tgen"]


def seen_by_guest(folders: Folders) -> tuple[Folders, dict[Path, Path]]:
    """The same folders at paths that are the same in every run, and the mounts that they need.

    How deep a folder lies on the host, and what its name is, so can't reach a run: Python looks at
    each folder of a path, and many system calls cost virtual time.

    Returns:
        The guest's view; and of each folder in it, but `run`, the host's path.
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
