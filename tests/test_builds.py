"""The cache of builds: keys, whole builds or none, one at a time, and the inputs of Tor and kernel.

No compiler runs here; the experiments use the real builds.
"""

import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import is_running, wait_for

from testbed.basics.errors import InputError, TestbedError
from testbed.basics.steps import Progress, run_logged
from testbed.setup import builds, kernel, sources, tor
from testbed.setup.builds import Build, Ingredient, Recipe

PROJECT = Path(__file__).resolve().parent.parent
RECIPE = Recipe(
    name="toy",
    version="1.0",
    sources=(Ingredient("toy_1.0.orig.tar.gz", "0" * 64),),
    configuration="--plain",
    compiler="cc 12",
    steps=1,
    patches=(Ingredient("a.patch", "1" * 64), Ingredient("b.patch", "2" * 64)),
)
# Builds the toy in a process of its own; reports when it has begun, and takes some time.
BUILDER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{project!r}, {project!r} + "/tests"]
from testbed.setup import builds
from testbed.basics.steps import Progress
from test_builds import RECIPE

def make(folder, log):
    (folder / "product").write_text("half")
    with Path({calls!r}).open("a") as calls:
        calls.write("made\\n")
    time.sleep({seconds})
    (folder / "product").write_text("whole")

build = builds.build(RECIPE, make, Progress())
print(build.product("product").read_text())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HYDRA_CACHE", str(folder))
    monkeypatch.setattr(builds, "ROOM_BYTES", 0)
    return folder


def make_toy(folder: Path, log: Path) -> None:
    (folder / "product").write_text("whole")


def start_builder(calls: Path, seconds: float) -> subprocess.Popen[str]:
    code = BUILDER.format(project=str(PROJECT), calls=str(calls), seconds=seconds)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.1"},
        {"sources": (Ingredient("toy_1.0.orig.tar.gz", "3" * 64),)},
        {"sources": (Ingredient("toy_1.0.orig.tar.xz", "0" * 64),)},
        {"configuration": "--fancy"},
        {"compiler": "cc 13"},
        {"steps": 2},
        {"patches": ()},
        {"patches": (RECIPE.patches[0], Ingredient("b.patch", "4" * 64))},
        {"patches": RECIPE.patches[::-1]},
    ],
)
def test_key_changes_with_every_input(change: dict[str, object]) -> None:
    assert dataclasses.replace(RECIPE, **change).key != RECIPE.key  # type: ignore[arg-type]


def test_key_is_steady() -> None:
    assert dataclasses.replace(RECIPE).key == RECIPE.key
    assert len(RECIPE.key) == 16


def test_second_call_builds_nothing(progress: Progress) -> None:
    first = builds.build(RECIPE, make_toy, progress)

    def refuse(folder: Path, log: Path) -> None:
        raise AssertionError("built again")

    assert builds.build(RECIPE, refuse, progress) == first
    assert first.product("product").read_text() == "whole"
    assert first.key == RECIPE.key


def test_metadata_tells_what_went_in(progress: Progress) -> None:
    metadata = builds.build(RECIPE, make_toy, progress).metadata
    assert metadata["sources"] == [{"name": "toy_1.0.orig.tar.gz", "sha256": "0" * 64}]
    assert [patch["name"] for patch in metadata["patches"]] == ["a.patch", "b.patch"]
    assert metadata["compiler"] == "cc 12"
    assert metadata["seconds"] >= 0
    assert metadata["date"].endswith("Z")


@pytest.mark.parametrize("error", [TestbedError("no"), KeyboardInterrupt()])
def test_failed_build_leaves_nothing(cache: Path, progress: Progress, error: BaseException) -> None:
    def fail(folder: Path, log: Path) -> None:
        (folder / "product").write_text("half")
        raise error

    with pytest.raises(type(error)):
        builds.build(RECIPE, fail, progress)
    assert builds.finished(RECIPE) is None
    assert not [path for path in (cache / "builds").iterdir() if path.is_dir()]


def test_killed_build_looks_unfinished_and_is_swept(
    cache: Path, tmp_path: Path, progress: Progress
) -> None:
    calls = tmp_path / "calls"
    builder = start_builder(calls, seconds=60)
    wait_for(calls.exists, str(calls))
    builder.send_signal(signal.SIGKILL)
    builder.communicate()

    left = [path for path in (cache / "builds").iterdir() if path.is_dir()]
    assert len(left) == 1, "the killed build left its partial folder"
    assert builds.finished(RECIPE) is None
    assert builds.all_finished() == []

    # An unfinished build of another version is removed, too.
    build = builds.build(dataclasses.replace(RECIPE, version="2.0"), make_toy, progress)
    assert [path for path in (cache / "builds").iterdir() if path.is_dir()] == [build.folder]
    assert build.product("product").read_text() == "whole"


def test_two_at_once_build_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    both = [start_builder(calls, seconds=0.5) for _ in range(2)]
    assert [builder.communicate(timeout=60)[0] for builder in both] == ["whole\n"] * 2
    assert calls.read_text() == "made\n"


def test_build_by_another_set_up_is_shown_since_it_began(tmp_path: Path) -> None:
    calls, shown = tmp_path / "calls", io.StringIO()
    builder = start_builder(calls, seconds=2.5)
    wait_for(calls.exists, str(calls))
    time.sleep(1.5)
    builds.build(RECIPE, make_toy, Progress(shown))
    assert builder.communicate(timeout=60)[0] == "whole\n"
    assert calls.read_text() == "made\n"
    [seconds] = re.findall(r"Building toy 1\.0 with 2 patches: done in (\d+) s", shown.getvalue())
    assert int(seconds) >= 2


def test_what_is_being_built_is_not_swept(cache: Path, tmp_path: Path, progress: Progress) -> None:
    calls = tmp_path / "calls"
    builder = start_builder(calls, seconds=1.5)
    wait_for(calls.exists, str(calls))
    builds.build(dataclasses.replace(RECIPE, version="2.0"), make_toy, progress)
    assert builder.communicate(timeout=60)[0] == "whole\n"
    assert len(builds.all_finished()) == 2


def test_folder_without_metadata_is_built_again(cache: Path, progress: Progress) -> None:
    build = builds.build(RECIPE, make_toy, progress)
    (build.folder / builds.METADATA).unlink()
    assert builds.build(RECIPE, make_toy, progress).metadata["key"] == RECIPE.key


def test_missing_product_is_named(progress: Progress) -> None:
    build = builds.build(RECIPE, make_toy, progress)
    with pytest.raises(TestbedError, match="other is missing"):
        build.product("other")


def test_too_little_room_is_said_before_building(
    progress: Progress,
) -> None:
    with pytest.raises(TestbedError, match="GB of room"):
        builds.build(RECIPE, make_toy, progress, room_bytes=10**18)


def test_damaged_tarball_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "toy.orig.tar.gz"
    path.write_bytes(b"not what it was")
    tarball = sources.SourceTarball(path, "0" * 64)
    with pytest.raises(TestbedError, match="damaged"):
        builds.unpack(tarball, tmp_path / "tree", tmp_path / "log")


@pytest.mark.parametrize(
    ("before", "changes"),
    [("one\n", "@@ -1 +1 @@\n-two\n+three\n"), ("one\ntwo\n", "@@ -1,2 +1 @@\n 1\n-two\n")],
    ids=["another line", "other lines around it"],
)
def test_patch_that_does_not_fit_is_named(tmp_path: Path, before: str, changes: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file.c").write_text(before)
    patch = tmp_path / "misfit.patch"
    patch.write_text(f"--- a/file.c\n+++ b/file.c\n{changes}")
    with pytest.raises(
        TestbedError, match=r"misfit\.patch does not fit toy 1\.0 in file\.c: the log"
    ):
        builds.apply_patch(patch, "toy 1.0", tree, tmp_path / "log")


def test_failed_program_names_the_log_and_shows_its_tail(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(TestbedError, match=r"status 3(.|\n)*the compiler is cross") as caught:
        run_logged(["sh", "-c", "echo the compiler is cross; exit 3"], log)
    assert str(log) in str(caught.value)


@pytest.mark.alone
def test_interrupt_ends_the_programs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        # A shell's background job ignores Ctrl-C, and so would its children.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path\n"
        "from testbed.basics.steps import run_logged\n"
        f"run_logged(['sh', '-c', 'echo $$; sleep 300 & echo $!; wait'], Path({str(log)!r}))\n"
    )
    runner = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + 30
    while not log.exists() or len(log.read_text().split("\n")) < 4:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    numbers = [int(line) for line in log.read_text().splitlines()[1:]]
    start_s = time.monotonic()
    runner.send_signal(signal.SIGINT)
    runner.wait(timeout=30)
    assert time.monotonic() - start_s < 5
    assert not [number for number in numbers if is_running(number)]


@pytest.fixture
def tor_tree(tmp_path: Path) -> Path:
    tree = tmp_path / "mytor"
    (tree / "src/app").mkdir(parents=True)
    (tree / "configure.ac").write_text("AC_INIT([tor],[0.4.9.99-dev])\n")
    (tree / "configure").write_text("#!/bin/sh\n")
    (tree / "src/app/main.c").write_text("int main(void) { return 0; }\n")
    return tree


def test_local_tree_is_keyed_by_its_files(tor_tree: Path, progress: Progress) -> None:
    before = tor.tor_recipes(tor.TorSource(tor_tree), [])[0]
    assert before.version == "0.4.9.99-dev"
    for built in ("src/app/main.o", "src/app/tor", "Makefile", "config.log"):
        (tor_tree / built).write_text("left by a build")
    assert tor.tor_recipes(tor.TorSource(tor_tree), [])[0].key == before.key
    (tor_tree / "src/app/main.c").write_text("int main(void) { return 1; }\n")
    assert tor.tor_recipes(tor.TorSource(tor_tree), [])[0].key != before.key


def test_patch_text_changes_a_tor_build(tor_tree: Path, progress: Progress, tmp_path: Path) -> None:
    patch = tmp_path / "a.patch"
    patch.write_text("one")
    one = tor.tor_recipes(tor.TorSource(tor_tree), [patch])[0]
    patch.write_text("two")
    assert tor.tor_recipes(tor.TorSource(tor_tree), [patch])[0].key != one.key


def test_local_tree_that_is_none_is_bad_input(tmp_path: Path, progress: Progress) -> None:
    with pytest.raises(InputError, match="not a tree of Tor's source"):
        tor.tor_recipes(tor.TorSource(tmp_path), [])[0]


def test_local_tree_without_configure_says_autogen(tor_tree: Path, progress: Progress) -> None:
    (tor_tree / "configure").unlink()
    with pytest.raises(InputError, match=r"autogen\.sh"):
        tor.tor_recipes(tor.TorSource(tor_tree), [])[0]


def test_local_tree_copied_without_its_times_is_bad_input(
    tor_tree: Path, progress: Progress
) -> None:
    """`make` would run automake then, and fail without it."""
    os.utime(tor_tree / "configure.ac", (2e9, 2e9))
    with pytest.raises(InputError, match=r"configure is older than configure\.ac: .*cp -a"):
        tor.tor_recipes(tor.TorSource(tor_tree), [])[0]


def test_missing_patch_is_bad_input(tor_tree: Path, progress: Progress) -> None:
    with pytest.raises(InputError, match=r"nowhere\.patch: No such file"):
        tor.tor_recipes(tor.TorSource(tor_tree), [Path("nowhere.patch")])[0]


def test_toy_tor_builds_plain_and_patched(
    tor_tree: Path, progress: Progress, tmp_path: Path
) -> None:
    """A tree that builds in a moment: the patched program differs, and the plain one stays."""
    (tor_tree / "configure").write_text(
        "#!/bin/sh\nprintf 'src/app/tor src/tools/tor-gencert: src/app/main.c\\n"
        "\\tmkdir -p $(@D)\\n\\tcp src/app/main.c $@\\n' > Makefile\n"
    )
    (tor_tree / "configure").chmod(0o755)
    patch = tmp_path / "a.patch"
    patch.write_text(
        "--- a/src/app/main.c\n+++ b/src/app/main.c\n@@ -1 +1 @@\n"
        "-int main(void) { return 0; }\n+int main(void) { return 7; }\n"
    )
    source = tor.TorSource(tor_tree)
    patched = tor.tor_build(source, [patch], progress)
    plain = tor.tor_build(source, [], progress)
    assert "return 7" in patched.product("tor").read_text()
    assert "return 0" in plain.product("tor").read_text()
    assert "return 0" in (tor_tree / "src/app/main.c").read_text()
    assert sorted(path.name for path in patched.folder.iterdir()) == [
        "build.json",
        "tor",
        "tor-gencert",
    ]


def test_toy_tor_that_a_patch_does_not_fit(
    tor_tree: Path, progress: Progress, tmp_path: Path
) -> None:
    """The error is one line, and nothing unfinished stays."""
    (tor_tree / "configure").write_text(
        "#!/bin/sh\nprintf '%%:\\n\\tmkdir -p $(@D) && touch $@\\n' > Makefile\n"
    )
    (tor_tree / "configure").chmod(0o755)
    patch = tmp_path / "newer.patch"
    patch.write_text("--- a/src/app/main.c\n+++ b/src/app/main.c\n@@ -1 +1 @@\n-newer\n+newest\n")
    source = tor.TorSource(tor_tree)
    with pytest.raises(TestbedError) as caught:
        tor.tor_build(source, [patch], progress)
    assert str(caught.value).startswith(f"{patch} does not fit {source.title} in src/app/main.c: ")
    assert "\n" not in str(caught.value)
    assert builds.first_finished(tor.tor_recipes(source, [patch])) is None


def test_refused_options_are_named() -> None:
    fragment = "# why\nCONFIG_NET=y\nCONFIG_BLOCK=n\nCONFIG_SMP=n\nCONFIG_TURNS=10\nCONFIG_VETH=y\n"
    result = "CONFIG_NET=y\nCONFIG_SMP=y\nCONFIG_TURNS=20\n# CONFIG_VETH is not set\n"
    assert kernel.refused_options(fragment, result) == [
        "CONFIG_SMP=n",
        "CONFIG_TURNS=10",
        "CONFIG_VETH=y",
    ]


def test_lab_configuration_has_no_line_that_would_be_overlooked() -> None:
    lines = kernel.FRAGMENT.read_text().splitlines()
    options = [line for line in lines if line and not line.startswith("# ")]
    assert all(line.startswith("CONFIG_") and "=" in line for line in options)
    assert len(set(options)) == len(options)
    assert "CONFIG_NET_SCH_NETEM=y" in options


def test_build_list_reads_the_cache(progress: Progress) -> None:
    build = builds.build(RECIPE, make_toy, progress)
    assert builds.all_finished() == [Build(build.folder)]
    assert json.loads((build.folder / "build.json").read_text())["name"] == "toy"
    assert os.access(build.folder, os.R_OK)
