"""The set-up: its errors, its display, and its speed.

No test here uses the network through apt or pip.
"""

import io
import json
import os
import pwd
import re
import resource
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from testbed.basics import cache, steps
from testbed.basics.errors import InputError, TestbedError
from testbed.setup import (
    builds,
    doctor,
    environment,
    host_kernel,
    kernel,
    packages,
    privileges,
    processor,
    ready,
    releases,
    tor,
)

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH, for programs that replace the system's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# Errors when it can't go on.


def test_missing_packages_without_root_name_the_command(
    programs: Path, progress: steps.Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "dpkg-query", "echo 'installed python3'; exit 1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match=r"sudo \./run\.py setup.*sudo apt-get install mininet"):
        packages.ensure_packages(progress)


def test_root_installs_only_what_is_missing(
    own_cache: Path,
    programs: Path,
    progress: steps.Progress,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    calls = tmp_path / "calls"
    others = "\n".join(f"installed {name}" for name in packages.PACKAGES if name != "iperf3")
    program(
        programs,
        "dpkg-query",
        f"cat <<'END'\n{others}\nEND\ngrep -qs install {calls} && echo installed iperf3",
    )
    program(programs, "apt-get", f'echo "$@" >> {calls}')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    packages.ensure_packages(progress)
    updates, installs = calls.read_text().splitlines()
    assert updates.endswith("update")
    assert installs.endswith("--no-install-recommends iperf3")


def test_other_systems_are_told_where_it_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match=r"apt-get is missing.*Debian 12 or 13.*virtual machine"):
        packages.check_system()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(TestbedError, match="aarch64, not x86_64"):
        packages.check_system()


def test_an_old_processor_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("model name\t: one of 2009\nflags\t\t: fpu sse2 ssse3 sse4_1 sse4_2 popcnt\n")
    monkeypatch.setattr(processor, "CPUINFO", told)
    with pytest.raises(TestbedError, match=r"lacks aes, pclmulqdq \(.*cpuinfo, flags\)"):
        packages.check_system()


def test_unwritable_cache_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_CACHE", "/proc/nowhere")
    with pytest.raises(InputError, match="set HYDRA_CACHE"):
        cache.cache_folder()


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HYDRA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "hydra-testbed"


def test_failed_pip_leaves_no_ready_environment(
    own_cache: Path, progress: steps.Progress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("no-such-package-of-the-testbed==0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(packages, "ensure_packages", lambda progress: None)
    with pytest.raises(TestbedError, match="Python packages could not be installed"):
        environment.ensure_environment(project)
    assert not environment.is_ready(project)


def test_environment_changes_with_the_requirements(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("rich==15.0.0\n")
    before = environment.environment_folder(tmp_path)
    (tmp_path / "requirements.txt").write_text("rich==15.0.1\n")
    assert environment.environment_folder(tmp_path) != before


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[<>=\[]", name)[0].lower() for name in wanted}
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    pinned = {
        line.partition("==")[0].lower() for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)
    }
    assert names <= pinned


# Privileges, progress, doctor.


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["scenario", "One", "--machine", "host"], True),
        (["scenario", "One", "--machine=host"], True),
        (["scenario", "host", "--machine", "virtual"], False),
        ([], False),
    ],
)
def test_only_the_host_machine_needs_root(arguments: list[str], needed: bool) -> None:
    assert privileges.needs_root(arguments) is needed


def test_root_without_sudo_stays_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    before = os.geteuid()
    privileges.give_up_sudo(["setup"])
    assert os.geteuid() == before


def test_the_host_machine_has_the_cache_of_the_user_behind_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = pwd.struct_passwd(("user", "x", 1234, 1234, "", str(tmp_path / "user"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", {1234: user}.__getitem__)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "ensure_packages", lambda progress: None)
    for name in ("HYDRA_CACHE", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    monkeypatch.setenv("SUDO_UID", "1234")
    privileges.give_up_sudo(["scenario", "One", "--machine", "host"])
    assert cache.cache_folder() == tmp_path / "user" / ".cache" / "hydra-testbed"


@pytest.mark.root
def test_what_is_added_to_the_users_cache_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
    assert privileges.as_user(os.getresuid) == (nobody.pw_uid,) * 3
    assert privileges.as_user(os.getresgid) == (nobody.pw_gid,) * 3
    with pytest.raises(PermissionError):
        privileges.as_user(os.mkdir, tmp_path / "folder")
    assert os.geteuid() == 0


def test_without_sudo_there_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert privileges.as_user(os.getpid) == os.getpid()


def test_the_trial_of_the_hosts_kernel_finds_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """That includes administrators' folders, which an ordinary user's PATH lacks."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "not found" not in host_kernel.refusal()


def test_progress_off_a_terminal_is_two_plain_lines() -> None:
    stream = io.StringIO()
    with steps.Progress(stream).step("Building"):
        pass
    assert stream.getvalue() == "Building ...\nBuilding: done in 0 s\n"


def test_progress_says_that_a_step_failed() -> None:
    stream = io.StringIO()
    with pytest.raises(TestbedError), steps.Progress(stream, live=True).step("Building"):
        raise TestbedError("no")
    assert "Building ... 0 s" in stream.getvalue()
    assert stream.getvalue().endswith("Building: failed after 0 s\n")


def test_doctor_without_builds_says_how_to_get_them(own_cache: Path) -> None:
    text = io.StringIO()
    assert not doctor.print_doctor(Console(file=text, width=200))
    assert re.search(r"no +kernel +not built: `\./run\.py setup`", text.getvalue())
    assert re.search(r"no +virtual machine +does not work: see .*kernel", text.getvalue())


def test_doctor_says_which_kernels_can_be_used_and_which_is(own_cache: Path) -> None:
    first, other, *_ = releases.in_order("linux")
    build = own_cache / "builds" / "linux-any-key"
    build.mkdir(parents=True)
    metadata = {"name": "linux", "version": other.version, "patches": [], "date": "2026-11-24"}
    (build / builds.METADATA).write_text(json.dumps(metadata))
    releases.choose(other, f"no place has {first.title}")
    told = {finding.name: finding.text for finding in doctor.examine()}["kernel"]
    assert f"{other.title} is in use: no place has {first.title}" in told
    assert f"is available is built: {first.version}, {other.version}, " in told
    assert f"else the newest of {', '.join(releases.series('linux'))}" in told


def test_doctor_says_what_the_mapping_limit_permits(own_cache: Path) -> None:
    found = {finding.name: finding for finding in doctor.examine()}
    assert re.search(
        r"vm\.max_map_count is \d+: .* above \d+ MB are slower", found["mappings"].text
    )


def test_doctor_says_what_the_limit_of_open_files_permits(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 128))
    found = {finding.name: finding for finding in doctor.examine()}
    assert not found["open files"].well
    assert found["open files"].text.startswith("the hard limit is 128: as many processes")
    assert "256 are needed" in found["open files"].text


def test_what_is_not_the_first_choice_is_said_at_each_run(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYDRA_KERNEL", raising=False)
    build = builds.Build(tmp_path)
    monkeypatch.setattr(packages, "ensure_packages", lambda _progress: None)
    monkeypatch.setattr(kernel, "kernel_build", lambda _progress: build)
    monkeypatch.setattr(tor, "tor_build", lambda *_arguments: build)

    def said(*needs: ready.TorNeed) -> list[str]:
        text = io.StringIO()
        ready.ensure_ready(Console(file=text, width=200), needs)
        return [line for line in text.getvalue().splitlines() if "is in use" in line]

    assert said(ready.TorNeed()) == []
    first, other, *_ = releases.in_order("linux")
    releases.choose(other, f"no place has {first.title}")
    sentence = f"{other.title} is in use: no place has {first.title}"
    assert said(ready.TorNeed()) == [sentence]
    monkeypatch.setenv("HYDRA_KERNEL", other.version)
    assert said() == [f"{other.title} is in use: HYDRA_KERNEL names it"]
    monkeypatch.delenv("HYDRA_KERNEL")
    newer = releases.Release("tor", "0.4.9.99", (releases.Tarball("0" * 64),), pinned=False)
    releases.choose(newer, "no place has tor")
    assert said(ready.TorNeed()) == [sentence, "tor 0.4.9.99 is in use: no place has tor"]
    # A variant that names its Tor needs no other.
    assert said(ready.TorNeed(tor.TorSource(release="0.4.5.16"))) == [sentence]


# Speed, with this machine's builds.


def test_second_setup_takes_under_a_second() -> None:
    finished = {build.metadata["name"] for build in builds.all_finished()}
    if not environment.is_ready(PROJECT) or not {"tor", "linux"} <= finished:
        pytest.skip("not set up here: run ./run.py setup first")
    # The first call may have to build a variant.
    subprocess.run([PROJECT / "run.py", "setup"], check=True, capture_output=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([PROJECT / "run.py", "setup"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time, which is the wall time on an otherwise idle machine.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_the_door_needs_only_the_standard_library() -> None:
    """All that run.py imports before the environment exists needs no site packages."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import testbed.setup.environment, testbed.setup.privileges\n"
        "print(sorted(name for name in sys.modules if name.startswith('testbed')))"
    )
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "testbed.setup.packages" in answer.stdout


def test_ready_asks_for_each_tor_once(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[Path, ...]] = []

    def build(source: object, patches: tuple[Path, ...], progress: object) -> builds.Build:
        asked.append(patches)
        return builds.Build(tmp_path / str(len(asked)))

    monkeypatch.setattr(packages, "ensure_packages", lambda progress: None)
    monkeypatch.setattr(tor, "tor_build", build)
    monkeypatch.setattr(kernel, "kernel_build", lambda progress: builds.Build(tmp_path))
    patched = ready.TorNeed(patches=(tmp_path / "a.patch",))
    got = ready.ensure_ready(
        Console(file=io.StringIO()), [ready.TorNeed(), patched, ready.TorNeed()]
    )
    assert asked == [(), (tmp_path / "a.patch",)]
    assert got.tors[patched] != got.tors[ready.TorNeed()]
