"""The user-mode Linux kernel: Debian's source, our configuration and patches, one binary.

How it is started is the business of `testbed.machines`.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import TestbedError
from testbed.setup import builds, sources
from testbed.setup.builds import Build, Ingredient, Recipe
from testbed.setup.steps import Progress, run_logged

FOLDER = Path(__file__).resolve().parent.parent / "machines" / "kernel"
FRAGMENT = FOLDER / "lab.config"
# The patches are made for this series: an older one will not do, a newer one may.
WANTED = sources.Wanted("linux", "7.2", same_series=True)
STEPS = 1
# Nothing of these is compiled for a lab, and they are most of the source. The files that kconfig
# and make read stay: Kconfig reads every folder's.
LEFT_OUT = tuple(
    f"*/{folder}/*.{suffix}"
    for folder in (
        "drivers/gpu",
        "drivers/media",
        "drivers/net/ethernet",
        "drivers/net/wireless",
        "drivers/staging",
        "sound",
        "tools/perf",
        "tools/testing",
        "arch/arm",
        "arch/arm64",
        "arch/mips",
        "arch/powerpc",
        "Documentation",
    )
    for suffix in ("c", "h", "S", "dts", "dtsi", "rst", "yaml", "json")
)
# So that one recipe gives one binary, with no name of this machine in it.
STEADY = {
    "ARCH": "um",
    "KBUILD_BUILD_TIMESTAMP": "@0",
    "KBUILD_BUILD_USER": "testbed",
    "KBUILD_BUILD_HOST": "testbed",
}


def kernel_build(progress: Progress) -> Build:
    """Return the kernel: product `linux`; build it where need be.

    Raises:
        TestbedError: no source, a patch that doesn't fit, an option that didn't take, or a
            compiler's error.
    """

    def make(folder: Path, log: Path) -> None:
        tree = folder / "tree"
        tarball = sources.source_tarball(WANTED, progress)
        builds.unpack(tarball, tree, log, *LEFT_OUT)
        for patch in kernel_patches():
            builds.apply_patch(patch, tree, log)
        _configure(tree, log)
        cores = len(os.sched_getaffinity(0))
        run_logged(["make", f"--jobs={cores}", "linux"], log, folder=tree, variables=STEADY)
        run_logged(["strip", "-o", str(folder / "linux"), "linux"], log, folder=tree)
        shutil.rmtree(tree)

    return builds.build(kernel_recipe(progress), make, progress)


def kernel_recipe(progress: Progress) -> Recipe:
    """Return what decides a build of the kernel; fetches the source if the cache has none."""
    tarball = sources.source_tarball(WANTED, progress)
    return Recipe(
        name="linux",
        version=tarball.upstream_version,
        sources=(Ingredient(Path(tarball.path).name, tarball.sha256),),
        configuration=FRAGMENT.read_text(encoding="utf-8"),
        compiler=builds.compiler_version(),
        steps=STEPS,
        patches=tuple(builds.ingredient(patch) for patch in kernel_patches()),
    )


def kernel_patches() -> Sequence[Path]:
    """Return the patches beside the configuration, in the order in which they are applied."""
    return sorted(FOLDER.glob("*.patch"))


def _configure(tree: Path, log: Path) -> None:
    run_logged(["make", "tinyconfig"], log, folder=tree, variables=STEADY)
    fragment = FRAGMENT.read_text(encoding="utf-8")
    configuration = tree / ".config"
    with configuration.open("a", encoding="utf-8") as file:
        file.write(fragment)
    run_logged(["make", "olddefconfig"], log, folder=tree, variables=STEADY)
    refused = refused_options(fragment, configuration.read_text(encoding="utf-8"))
    if refused:
        raise TestbedError(
            f"{FRAGMENT}: this kernel did not take {', '.join(refused)}: an option that it depends "
            f"on is off, or it has another name now; the log is {log}"
        )


def refused_options(fragment: str, result: str) -> list[str]:
    """Return the lines of a configuration fragment that did not come out in the configuration.

    Args:
        fragment: lines such as `CONFIG_X=y`; `CONFIG_X=n` asks for an option to be off.
        result: the configuration that the kernel made of it, where `# CONFIG_X is not set` or no
            line at all says that an option is off.
    """
    pattern = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)
    came_out = dict(pattern.findall(result))
    return [
        f"{option}={value}"
        for option, value in pattern.findall(fragment)
        if came_out.get(option, "n") != value
    ]
