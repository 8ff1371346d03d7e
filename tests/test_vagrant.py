"""The Vagrant machine without a hypervisor: its Vagrantfile, and its provisioning in a bare Debian.

Only a booted machine can show whether its kernel carries the lab: docs/host.md.
"""

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from copied_project import copy_project

from testbed.basics.toml_file import PROJECT
from testbed.results import read_run
from testbed.setup import archives, doctor, host_kernel, privileges

PROVISION = "/vagrant/testbed/setup/provision.sh"
VALIDATES = "Vagrantfile validated successfully."

LEAST_FREE_BYTES = 6_000_000_000
"""A finished root folder has 2 GB, and a build needs 3 GB of room."""
SETUP_CPU_S = 1200
"""The most processor time of a set-up: ten minutes on two cores."""
REFUSED_CPU_S = 20
USER = 1000
RUN = "./run.py scenario SharedDropping --variant pctls --duration '4 s'"


# The Vagrantfile.


@pytest.fixture
def vagrant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with our Vagrantfile, and a PATH with stand-ins for VirtualBox and nfsd.

    Vagrant looks for them before it reads a file. It leaves nothing outside the folder.
    """
    if shutil.which("vagrant") is None:
        pytest.skip("Vagrant is not here: apt-get install --no-install-recommends vagrant")
    for name, says in {"VBoxManage": "7.0.10r158379", "modinfo": "nfsd"}.items():
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(f"#!/bin/sh\necho {says}\n")
        stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("VAGRANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VAGRANT_CHECKPOINT_DISABLE", "1")
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(PROJECT / "Vagrantfile", project)
    return project


def told_by_vagrant(project: Path, *arguments: str) -> str:
    answer = subprocess.run(
        ["vagrant", *arguments], cwd=project, capture_output=True, text=True, check=False
    )
    return answer.stdout + answer.stderr


def change(vagrantfile: Path, right: str, wrong: str) -> None:
    text = vagrantfile.read_text()
    assert right in text
    vagrantfile.write_text(text.replace(right, wrong))


@pytest.mark.parametrize("provider", ["libvirt", "virtualbox"])
def test_vagrant_takes_the_file(
    vagrant: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would refuse the file if a setting's name were wrong."""
    monkeypatch.setenv("VAGRANT_DEFAULT_PROVIDER", provider)
    told = told_by_vagrant(vagrant, "validate")
    if "provider 'libvirt' could not be found" in told:
        pytest.skip("no plugin: apt-get install --no-install-recommends vagrant-libvirt")
    assert VALIDATES in told
    change(vagrant / "Vagrantfile", f"{provider}.memory", f"{provider}.memories")
    assert "settings shouldn't exist: memories" in told_by_vagrant(vagrant, "validate")


def test_vagrant_takes_what_is_no_providers(vagrant: Path) -> None:
    assert VALIDATES in told_by_vagrant(vagrant, "validate", "--ignore-provider")
    change(vagrant / "Vagrantfile", 'provision "shell"', 'provision "shall"')
    told = told_by_vagrant(vagrant, "validate", "--ignore-provider")
    assert "'shall' provisioner could not be found" in told


def test_its_provisioning_is_the_script_that_is_tried_here() -> None:
    assert f'"shell", inline: "{PROVISION}"' in (PROJECT / "Vagrantfile").read_text()
    assert os.access(PROJECT / Path(PROVISION).relative_to("/vagrant"), os.X_OK)


# What its shared folder and its doctor need.


def test_a_shared_folder_may_know_one_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses to change a file's owner, and the run is valid all the same."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", refuse)
    with privileges.left_to_user(tmp_path / "results-host" / "seed-1"):
        (tmp_path / "results-host" / "seed-1").mkdir(parents=True)


NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.mark.root
def test_doctor_tries_the_kernel_without_root() -> None:
    """Under sudo the doctor runs as the user, and must find the same as root."""
    namespaces = ("unshare", "--user", "--map-root-user", "--net", "true")
    if subprocess.run([*NOBODY, *namespaces], capture_output=True, check=False).returncode != 0:
        pytest.skip("users may not make namespaces here")
    program = Path(host_kernel.__file__).read_text() + "\nprint(refusal(), end='')"
    told = subprocess.run(
        [*NOBODY, "/usr/bin/python3", "-"],
        cwd="/",
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == host_kernel.refusal()


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ("", "works (`sudo ./run.py ... --machine host`"),
        ("no netem (unknown)", "this host's kernel has no netem (unknown): use --machine virtual"),
        ("no network namespaces (not permitted)", "only root can try it"),
    ],
)
def test_what_doctor_tells_a_user(refusal: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_kernel, "refusal", lambda: refusal)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = doctor._host_machine([])
    assert (found.well, found.text.startswith(told)) == (not refusal, True)


# Its provisioning, in a Debian with only apt.

# A root must be a mount of its own to be private, as the host machine needs.
ENTER = """set -e
mount --bind "$ROOT" "$ROOT"
mount --rbind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
exec chroot "$ROOT" runuser -u vagrant -- sh -c "cd /vagrant && $COMMAND"
"""


class Ended(NamedTuple):
    """A command that has ended: its output, and its processor time."""

    printed: str
    wall_s: float
    cpu_s: float


@dataclass
class BareDebian:
    """A Debian's root folder, whose user `vagrant` may use sudo, as in Vagrant's boxes."""

    root: Path
    release: str
    spent: list[str] = field(default_factory=list)

    def run(self, command: str, *, inside: bool = True, status: int = 0) -> Ended:
        """Run a shell command in it as its user, or outside as root.

        The command has its own namespaces, with which its mounts and processes end.
        """
        script = ENTER if inside else command
        namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        start_s, start = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = subprocess.run(
            [*namespaces, "sh", "-c", script],
            env=machine_environment() | {"ROOT": str(self.root), "COMMAND": command},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
        ended = Ended(answer.stdout, time.monotonic() - start_s, cpu_s)
        self.spent.append(f"{ended.wall_s:.0f} s, {ended.cpu_s:.0f} CPU s: {command}")
        assert answer.returncode == status, f"{command}\n{answer.stdout}"
        return ended


def machine_environment() -> dict[str, str]:
    """The variables that a program in another root needs to reach the same network."""
    network = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy")
    }
    return network | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@pytest.fixture(params=["bookworm", "trixie"])
def bare_debian(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BareDebian]:
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap: apt-get install --no-install-recommends debootstrap")
    if shutil.disk_usage(tmp_path).free < LEAST_FREE_BYTES:
        pytest.skip(f"{tmp_path}: needs {LEAST_FREE_BYTES / 1e9:.0f} GB")
    debian = BareDebian(tmp_path / "root", request.param)
    try:
        make(debian)
        yield debian
    finally:
        print(debian.release, *debian.spent, sep="\n")
        assert str(debian.root) not in Path("/proc/self/mounts").read_text()
        shutil.rmtree(debian.root, ignore_errors=True)


def make(debian: BareDebian) -> None:
    """Make the root folder, with a user, this project, and this machine's access to the network.

    The project has all its files, committed or not, except ignored ones.
    """
    archive, root = archives.debian_archives()[0], debian.root
    options = "--variant=minbase --include=sudo"
    debian.run(f"debootstrap {options} {debian.release} {root} {archive}", inside=False)
    for path in (Path("/etc/resolv.conf"), Path("/etc/hosts"), Path("/etc/pip.conf")):
        if path.exists():
            shutil.copy(path, root / path.relative_to("/"))
    authorities = Path("/usr/local/share/ca-certificates")
    if authorities.exists():
        shutil.copytree(authorities, root / authorities.relative_to("/"), dirs_exist_ok=True)
    proxies = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, check=True)
    (root / "etc/apt/apt.conf.d/90machine").write_bytes(proxies.stdout)

    copy_project(root / "vagrant")
    add_user = f"useradd --root {root} --create-home --shell /bin/bash vagrant"
    debian.run(f"{add_user} && chown -R {USER}:{USER} {root}/vagrant", inside=False)
    (root / "etc/sudoers.d/vagrant").write_text("vagrant ALL=(ALL) NOPASSWD:ALL\n")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(5400)
def test_provisioning_from_nothing(bare_debian: BareDebian) -> None:
    # Like Vagrant.
    provisioning = f"sudo -E -H bash -l {PROVISION}"
    first = bare_debian.run(provisioning)
    assert first.cpu_s < SETUP_CPU_S
    assert doctor_says("virtual machine", first.printed) == "yes"
    refusal = host_kernel.refusal()
    assert doctor_says("host machine", first.printed) == ("no" if refusal else "yes")

    again = bare_debian.run(provisioning).printed
    assert "Building" not in again
    assert "Installing" not in again

    bare_debian.run(RUN)
    run = bare_debian.root / "vagrant/results/SharedDropping/pctls/seed-1"
    assert read_run(run).summary.valid
    assert run.stat().st_uid == USER

    on_host = bare_debian.run(f"sudo {RUN} --machine host", status=2 if refusal else 0)
    assert "Building" not in on_host.printed
    if refusal:
        assert f"this host's kernel has {refusal}" in on_host.printed
        assert on_host.cpu_s < REFUSED_CPU_S


def doctor_says(name: str, printed: str) -> str:
    """The doctor's verdict on a machine: yes or no."""
    (word,) = re.findall(rf"^ *(yes|no) +{name} ", printed, re.MULTILINE)
    return str(word)
