"""The host's clock is set while runs are under way, and a machine is stopped for a while."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from batch_stand_in import ALL, IS_SLOW, begun, behave, running_batch
from faults import RUN, RUN_WITHIN_S, jobs_below, machines_below, reports
from waiting import PATIENCE_S, wait_for

from testbed.basics.ending import VALID
from testbed.basics.toml_file import PROJECT
from testbed.results import read_run

STEPPED_CLOCK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The step of the wall clock so far, in seconds, from the file $CLOCK_STEP. */
static long step(void)
{
    char text[32] = "";
    int file = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += step();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
"""
"""A library that steps the host's wall clock for a program, and leaves the other clocks alone."""

# run.py with a kernel that sees the same clock, as it gets none of our variables.
RUN_WITH_KERNEL = """
import sys
from pathlib import Path
from dataclasses import replace
from testbed.machines import guest
from commands.__main__ import main
plain = guest.run_in_machine
def run(machine, *arguments, **options):
    wrapper = Path(sys.argv[1])
    wrapper.write_text(sys.argv[2].format(kernel=machine.kernel))
    wrapper.chmod(0o755)
    return plain(replace(machine, kernel=wrapper), *arguments, **options)
guest.run_in_machine = run
sys.exit(main(sys.argv[3:]))
"""


@pytest.fixture
def stepped_clock(tmp_path: Path) -> dict[str, str]:
    """Variables for programs whose wall clock is the host's plus the number in $CLOCK_STEP."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(STEPPED_CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    (tmp_path / "step").write_text("0")
    return {"LD_PRELOAD": str(library), "CLOCK_STEP": str(tmp_path / "step")}


def set_clock(variables: dict[str, str], by_s: int) -> None:
    """Set the clock for all these programs, atomically: none reads half a number."""
    step = Path(variables["CLOCK_STEP"])
    step.with_suffix(".new").write_text(str(by_s))
    step.with_suffix(".new").rename(step)


@pytest.mark.experiment
def test_the_hosts_clock_is_set_and_the_machine_is_stopped_for_a_while(
    listeners: Path, stepped_clock: dict[str, str]
) -> None:
    kernel = '#!/bin/sh\n{exports}\nexec {{kernel}} "$@"\n'.format(
        exports="\n".join(f"export {name}={value}" for name, value in stepped_clock.items())
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)} | stepped_clock
    seen = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env=environment | {"CLOCK_STEP": "/dev/null"},
        capture_output=True,
        check=True,
    )
    assert abs(float(seen.stdout) - time.time()) < 3600
    start_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", RUN_WITH_KERNEL, str(listeners / "linux"), kernel, *RUN],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_for(lambda: reports(listeners / "run", "starting Tor"), "Tor", RUN_WITHIN_S)
            set_clock(stepped_clock, -6 * 3600)
            wait_for(lambda: reports(listeners / "run", "measuring"), "measuring", RUN_WITHIN_S)
            set_clock(stepped_clock, 12 * 3600)
            (machine,) = machines_below(process.pid)
            machine.suspend()
            time.sleep(3)
            machine.resume()
            errors = process.communicate(timeout=RUN_WITHIN_S)[1]
        finally:
            process.kill()
    took_s = time.monotonic() - start_s
    assert process.returncode == VALID, errors
    run = read_run(listeners / "run")
    assert 3 < run.summary.cost.wall_s < took_s
    assert 10 < run.summary.cost.virtual_s < 600
    # The host's clock is recorded, and nothing is computed from it.
    hours = int(run.manifest["end"][11:13]) - int(run.manifest["start"][11:13])
    assert hours % 24 in (12, 13)


def test_the_hosts_clock_is_set_during_a_batch(
    mine: Path, stepped_clock: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stepped_clock.items():
        monkeypatch.setenv(name, value)
    behave({"pctls 1": IS_SLOW})
    with running_batch("--cores", "1") as process:
        wait_for(lambda: begun() == ALL[:2], "the slow run")
        set_clock(stepped_clock, -6 * 3600)
        behave({})
        (job,) = jobs_below(process.pid)
        job.kill()
        wait_for(lambda: len(begun()) > 3, "another run")
        set_clock(stepped_clock, 12 * 3600)
        errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == VALID, errors
    assert len(begun()) == 5
    assert "(6 h" not in errors
