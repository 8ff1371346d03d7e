"""The virtual environment: Debian's Python, with Debian's Mininet and the pinned packages.

None of a host's other Python packages is seen in it: programs look for packages that they can use,
and what they find would change a run's bytes. The cache has one environment for each
requirements.txt and Python. Standard library only.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.basics import cache, steps
from testbed.basics.errors import TestbedError
from testbed.setup import packages, privileges

# Debian's own Python, the only one that has Mininet's module.
SYSTEM_PYTHON = Path("/usr/bin/python3")
# Where the virtual machine sees the environment.
GUEST_FOLDER = Path("/run/testbed/environment")
# Increased when the way of making an environment changes.
STEPS = 3
# Where Debian's packages put modules.
DEBIAN_MODULES = Path("/usr/lib/python3/dist-packages")
# Written last: an environment without it is unfinished.
STAMP = "ready"
# The commands that need a kernel and a Tor.
BUILDING_COMMANDS = frozenset({"batch", "bench", "compare", "scenario", "setup", "shell"})


def environment_folder(project: Path) -> Path:
    """Return where the environment for this checkout's requirements.txt is or would be."""
    # /usr/bin/python3 links to the versioned program, whose name changes with Debian's release.
    python = SYSTEM_PYTHON.resolve().name
    requirements = (project / "requirements.txt").read_bytes()
    key = hashlib.sha256(f"{python} {STEPS}".encode() + b"\0" + requirements).hexdigest()[:16]
    return cache.subfolder("environments") / key


def is_ready(project: Path) -> bool:
    """Return whether the environment is there and finished."""
    folder = environment_folder(project)
    return (folder / STAMP).exists() and (folder / "bin/python").exists()


def ensure_environment(project: Path, arguments: Sequence[str] = ()) -> Path:
    """Return the environment's Python; make the environment first if it is missing.

    Meanwhile the builds that the command will need are started. They end with this process, or with
    the program that this process becomes.

    Args:
        project: the checkout.
        arguments: the command that the environment is for.

    Raises:
        TestbedError: Debian packages are missing and can't be installed, or pip failed.
    """
    folder = environment_folder(project)
    if not is_ready(project):
        progress = steps.Progress()
        packages.ensure_packages(progress)
        on_host = privileges.needs_root(arguments)
        if BUILDING_COMMANDS.intersection(arguments[:1]) and not on_host:
            _begin_builds(project, progress)
        with cache.locked(folder.with_suffix(".lock")):
            if not is_ready(project):  # another set-up may have made it meanwhile
                _make(folder, project, progress)
    return folder / "bin/python"


def variables(project: Path) -> dict[str, str]:
    """Return the environment variables for a program of the testbed.

    A user's own site folder would come before the pinned packages, so it is left out.
    """
    return {**os.environ, "PYTHONPATH": str(project), "PYTHONNOUSERSITE": "1"}


def _begin_builds(project: Path, progress: steps.Progress) -> None:
    progress.expect("Tor and the kernel, which are being built")
    subprocess.Popen(
        steps.dying_with_us([str(SYSTEM_PYTHON), "-m", "testbed.setup.ahead"], "TERM"),
        env=variables(project),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _make(folder: Path, project: Path, progress: steps.Progress) -> None:
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], check=False
    )
    if version.returncode != 0:
        raise TestbedError(f"{SYSTEM_PYTHON} is older than 3.11: {packages.ELSEWHERE}")
    shutil.rmtree(folder, ignore_errors=True)
    log = cache.new_log("environment")
    with progress.step("Installing Python packages"):
        steps.run_logged([str(SYSTEM_PYTHON), "-m", "venv", str(folder)], log)
        install = ["-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        pinned = ["--no-compile", "--requirement", str(project / "requirements.txt")]
        try:
            steps.run_logged([str(folder / "bin/python"), *install, *pinned], log)
        except TestbedError as error:
            raise TestbedError(
                f"Python packages could not be installed (is the network there?): {error}"
            ) from error
    _link_mininet(folder)
    _leave_out_paths(folder / "pyvenv.cfg")
    _compile(folder, log)
    (folder / STAMP).write_text("")


def _link_mininet(folder: Path) -> None:
    (modules,) = folder.glob("lib/python3*/site-packages")
    (modules / "mininet").symlink_to(DEBIAN_MODULES / "mininet")


def _leave_out_paths(configuration: Path) -> None:
    """Remove the lines about the call of `venv`: every Python reads them, and their length matters.

    It changes memory addresses, which decide in which order Python iterates over some sets.
    """
    lines = configuration.read_text(encoding="utf-8").splitlines(keepends=True)
    about_call = ("command", "executable")
    configuration.write_text(
        "".join(line for line in lines if not line.startswith(about_call)), encoding="utf-8"
    )


def _compile(folder: Path, log: Path) -> None:
    """Compile the packages to files that have the same length for all users.

    pip would write the path of this user's cache into the files, and Python would compare their
    times with the sources' at each use: both would change a run's virtual time.
    """
    compile_all = [str(folder / "bin/python"), "-m", "compileall", "-f", "-q", "-j", "0"]
    alike = ["--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", str(GUEST_FOLDER)]
    # It fails on files in a few packages that are for other versions of Python.
    with contextlib.suppress(TestbedError):
        steps.run_logged([*compile_all, *alike, str(folder / "lib")], log)
