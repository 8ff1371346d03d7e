"""Builds the user-mode Linux kernel: a release's source, our configuration and patches.

How it is booted is `testbed.machines`' business.
"""

import os
import re
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from testbed.basics.steps import Progress, run_logged
from testbed.setup import builds, choosing, releases
from testbed.setup.builds import Build, Misfit, Recipe
from testbed.setup.releases import Choice, Release
from testbed.setup.sources import SourceTarball

FOLDER = Path(__file__).resolve().parent.parent / "machines" / "kernel"
FRAGMENT = FOLDER / "lab.config"
# The variable by which a user chooses another pinned release.
VERSION_VARIABLE = "HYDRA_KERNEL"
STEPS = 1
# Most of the source is useless for a lab, and unpacking it takes time. What kconfig and make read
# stays in every folder.
UNUSED_FOLDERS = (
    *("Documentation", "arch/arm", "arch/arm64", "arch/mips", "arch/powerpc", "fs/btrfs", "fs/xfs"),
    *("drivers/accel", "drivers/clk", "drivers/crypto", "drivers/gpu", "drivers/hid"),
    *("drivers/hwmon", "drivers/iio", "drivers/infiniband", "drivers/input", "drivers/md"),
    *("drivers/media", "drivers/mtd", "drivers/net/ethernet", "drivers/net/wireless"),
    *("drivers/pinctrl", "drivers/platform", "drivers/scsi", "drivers/staging", "drivers/usb"),
    *("drivers/video", "sound", "tools/perf", "tools/testing"),
)
LEFT_OUT = (
    *(f"linux-*/{folder}/*.[chS]" for folder in UNUSED_FOLDERS),
    *(f"linux-*.{suffix}" for suffix in ("dts", "dtsi", "json", "rst", "yaml")),
)
# With these, one recipe gives one binary, without any name of this machine in it. The version is
# otherwise the number of the build in its tree.
STEADY = {
    "ARCH": "um",
    "KBUILD_BUILD_TIMESTAMP": "@0",
    "KBUILD_BUILD_USER": "testbed",
    "KBUILD_BUILD_HOST": "testbed",
    "KBUILD_BUILD_VERSION": "1",
}


def kernel_build(progress: Progress) -> Build:
    """Return the kernel (product `linux`); build it if needed.

    Raises:
        InputError: HYDRA_KERNEL names a release that isn't pinned.
        TestbedError: no source, a patch that doesn't fit, an option that didn't take, or a
            compiler's error.
    """
    if (known := builds.first_finished(kernel_recipes())) is not None:
        return known
    return choosing.build_first("linux", _asked_for(), partial(_build, progress), progress)


def _build(progress: Progress, release: Release, tarball: SourceTarball) -> Build:
    def make(folder: Path, log: Path) -> None:
        tree = folder / "tree"
        builds.unpack(tarball, tree, log, *LEFT_OUT)
        for patch in kernel_patches(release.version):
            builds.apply_patch(patch, release.title, tree, log)
        _configure(tree, log)
        cores = len(os.sched_getaffinity(0))
        run_logged(["make", f"--jobs={cores}", "linux"], log, folder=tree, variables=STEADY)
        run_logged(["strip", "-o", str(folder / "linux"), "linux"], log, folder=tree)
        shutil.rmtree(tree)

    return builds.build(builds.taking(_recipes(release), tarball.sha256), make, progress)


def choice() -> Choice:
    """Return the release of Linux in use, and why: this cache's, or the one in HYDRA_KERNEL.

    Raises:
        InputError: the release in HYDRA_KERNEL isn't pinned.
    """
    if version := _asked_for():
        return Choice(releases.named("linux", version), f"{VERSION_VARIABLE} names it")
    return releases.chosen("linux")


def _asked_for() -> str | None:
    return os.environ.get(VERSION_VARIABLE) or None


def kernel_recipes() -> list[Recipe]:
    """Return the recipes of the kernel in use, one for each of its tarballs."""
    return _recipes(choice().release)


def _recipes(release: Release) -> list[Recipe]:
    return [
        Recipe(
            name="linux",
            version=release.version,
            sources=(origin,),
            configuration=FRAGMENT.read_text(encoding="utf-8"),
            compiler=builds.compiler_version(),
            steps=STEPS,
            patches=tuple(map(builds.ingredient, kernel_patches(release.version))),
        )
        for origin in builds.tarball_ingredients(release)
    ]


def kernel_patches(version: str) -> Sequence[Path]:
    """Return the patches for a release, in the order in which they are applied.

    They lie beside the configuration. A series may have its own version of a patch, with the same
    name, in a folder with the series' name, such as `6.12`.
    """
    series = FOLDER / ".".join(version.split(".")[:2])
    patches = {path.name: path for path in (*FOLDER.glob("*.patch"), *series.glob("*.patch"))}
    return [patches[name] for name in sorted(patches)]


def _configure(tree: Path, log: Path) -> None:
    run_logged(["make", "tinyconfig"], log, folder=tree, variables=STEADY)
    fragment = FRAGMENT.read_text(encoding="utf-8")
    configuration = tree / ".config"
    with configuration.open("a", encoding="utf-8") as file:
        file.write(fragment)
    run_logged(["make", "olddefconfig"], log, folder=tree, variables=STEADY)
    refused = refused_options(fragment, configuration.read_text(encoding="utf-8"))
    if refused:
        raise Misfit(
            FRAGMENT,
            f"{FRAGMENT}: this kernel did not take {', '.join(refused)}: an option that it depends "
            f"on is off, or it has another name now; the log is {log}",
        )


def refused_options(fragment: str, result: str) -> list[str]:
    """Return the lines of a configuration fragment that did not take effect.

    Args:
        fragment: lines such as `CONFIG_X=y`; `CONFIG_X=n` turns an option off.
        result: the kernel's configuration made from it, in which an option is off by
            `# CONFIG_X is not set` or by having no line.
    """
    pattern = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)
    came_out = dict(pattern.findall(result))
    return [
        f"{option}={value}"
        for option, value in pattern.findall(fragment)
        if came_out.get(option, "n") != value
    ]
