"""The first process of the virtual machine: mounts what a system needs, carries out one command.

Run by Debian's own Python without any site's packages. `virtual` leaves it in the run's directory
and begins it there: the guest walks no path of the host whose depth differs from run to run, as
even that shows in when the guest's kernel has what to do.
"""

import ctypes
import json
import os
import subprocess
import time
from pathlib import Path

RUN = Path("/run/testbed/run")
"""The run's directory; mounted before this begins."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VARIABLES = {"PATH": PATH, "HOME": "/run", "LC_ALL": "C.UTF-8", "TZ": "UTC0"}
"""Of the command, beside those that it is given; none is the host's."""

MS_RDONLY = 1
RB_POWER_OFF = 0x4321FEDC
BEGIN_S = 1
"""Of the machine's clock: the command begins then and not earlier, whatever went before."""

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, place: str | Path, kind: str, flags: int = 0, data: str = "") -> None:
    """Mount by the system call: the program looks at each folder of a path, splits at commas."""
    Path(place).mkdir(parents=True, exist_ok=True)
    words = [os.fsencode(word) for word in (source, place, kind)]
    if libc.mount(*words, flags, os.fsencode(data)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))


def wait_until_begin() -> None:
    """Let the command begin at the same instant in every run."""
    begin = (ctypes.c_long * 2)(BEGIN_S, 0)
    absolute = 1
    libc.clock_nanosleep(time.CLOCK_MONOTONIC, absolute, begin, None)


def carried_out(terminal: str | None) -> int:
    """Carry out the command that `virtual` has left; its exit status.

    Args:
        terminal: the name of the terminal that it runs on, if it does.
    """
    command = ["sh", str(RUN / "command")]
    variables = VARIABLES | {"HYDRA_STAGING": str(RUN)}
    if terminal is None:
        return subprocess.run(command, cwd="/run", env=variables, check=False).returncode
    # In a session of its own, which the terminal's Ctrl-C reaches.
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
    """Carry out the command, note its status, and switch the machine off."""
    os.environ["PATH"] = PATH
    mount("proc", "/proc", "proc")
    mount("sys", "/sys", "sysfs")
    mount("dev", "/dev", "devtmpfs")
    mount("pts", "/dev/pts", "devpts")
    mount("shm", "/dev/shm", "tmpfs")
    for place, folder in json.loads((RUN / "mounts.json").read_text()).items():
        mount("none", place, "hostfs", MS_RDONLY, folder)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if start_ns := os.environ.get("HYDRA_START_NS"):  # in virtual time the kernel knows it
        time.clock_settime_ns(time.CLOCK_REALTIME, int(start_ns))
    wait_until_begin()
    status = carried_out(os.environ.get("HYDRA_TERMINAL"))
    (RUN / "status").write_text(f"{status}\n")
    libc.reboot(RB_POWER_OFF)


main()
