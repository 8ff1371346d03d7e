"""The virtual machine's first process: it mounts file systems and runs one command.

Debian's own Python runs it, without site packages. `virtual` copies it into the run's directory and
starts it there: so the guest walks no path of the host whose depth differs between runs, as even
that can change when the guest's kernel has work to do.
"""

import ctypes
import json
import os
import subprocess
import time
from pathlib import Path

RUN = Path("/run/testbed/run")
"""The run's directory; mounted before this program starts."""

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Debian's programs. What a host has in /usr/local is its own."""
VARIABLES = {
    "PATH": PATH,
    "HOME": "/run",
    "LC_ALL": "C.UTF-8",
    # With it the C library doesn't look for an archive of locales, which not every host has.
    "LOCPATH": "/usr/lib/locale",
    "TZ": "UTC0",
}
"""The command's variables, in addition to its own; none comes from the host."""

ETC = {
    "passwd": "root:x:0:0:root:/run:/bin/sh\n",
    "group": "root:x:0:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""The guest's own /etc: programs read these files, and each host has others."""
ETC_OF_HOST = ("alternatives", "ld.so.cache")
"""What is the host's in it: where its programs and libraries are."""

MS_RDONLY = 1
MS_BIND = 4096
MS_MOVE = 8192
RB_POWER_OFF = 0x4321FEDC
BEGIN_S = 1
"""When the command starts, by the machine's clock, however long the steps before it took."""

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str | Path, place: str | Path, kind: str, flags: int = 0, data: str = "") -> None:
    """Mount by the system call: the program looks at each folder of a path, splits at commas."""
    if not Path(place).exists():
        Path(place).mkdir(parents=True)
    words = [os.fsencode(word) for word in (source, place, kind)]
    if libc.mount(*words, flags, os.fsencode(data)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))


def mount_etc() -> None:
    """Put the guest's own /etc in the place of the host's."""
    new = Path("/run/etc")
    mount("etc", new, "tmpfs")
    for name, text in ETC.items():
        (new / name).write_text(text)
    for name in ETC_OF_HOST:
        host = Path("/etc", name)
        if host.is_dir():
            (new / name).mkdir()
        else:
            (new / name).touch()
        mount(host, new / name, "none", MS_BIND)
    mount(new, "/etc", "none", MS_MOVE)


def wait_until_begin() -> None:
    """Wait for the instant at which the command starts in every run."""
    begin = (ctypes.c_long * 2)(BEGIN_S, 0)
    absolute = 1
    libc.clock_nanosleep(time.CLOCK_MONOTONIC, absolute, begin, None)


def run_command(terminal: str | None) -> int:
    """Run the command that `virtual` has left, and return its exit status.

    Args:
        terminal: the name of the terminal to run it on, if any.
    """
    command = ["sh", str(RUN / "command")]
    variables = VARIABLES | {"HYDRA_STAGING": str(RUN)}
    if terminal is None:
        return subprocess.run(command, cwd="/run", env=variables, check=False).returncode
    # In a session of its own, which gets the terminal's Ctrl-C.
    with Path("/dev", terminal).open("r+b", buffering=0) as device:
        return subprocess.run(
            ["setsid", "--ctty", "--wait", *command],
            cwd="/run",
            env=variables,
            stdin=device,
            stdout=device,
            stderr=device,
            check=False,
        ).returncode


def main() -> None:
    """Run the command, write its status, and switch the machine off."""
    os.environ["PATH"] = PATH
    mount("proc", "/proc", "proc")
    mount("sys", "/sys", "sysfs")
    mount("dev", "/dev", "devtmpfs")
    mount("pts", "/dev/pts", "devpts")
    mount("shm", "/dev/shm", "tmpfs")
    for place, folder in json.loads((RUN / "mounts.json").read_text()).items():
        mount("none", place, "hostfs", MS_RDONLY, folder)
    mount_etc()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if start_ns := os.environ.get("HYDRA_START_NS"):  # in virtual time the kernel sets it
        time.clock_settime_ns(time.CLOCK_REALTIME, int(start_ns))
    wait_until_begin()
    status = run_command(os.environ.get("HYDRA_TERMINAL"))
    (RUN / "status").write_text(f"{status}\n")
    libc.reboot(RB_POWER_OFF)


main()
