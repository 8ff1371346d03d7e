"""Guests that are larger than a host permits without ado: a process of a gigabyte, many clients."""

from pathlib import Path

import pytest
from machine import refused_memory, run_inside, run_scenario

pytestmark = pytest.mark.experiment

TIMEOUT_S = 1800

# Pages that are next to each other in the process aren't in the machine's memory, so that each is
# a mapping of its own to the host.
GIGABYTE = """
import mmap, random, resource, time

pages = list(range(2**18))
words = memoryview(mmap.mmap(-1, 2**30)).cast("Q")
random.Random(1).shuffle(pages)
for page in pages:
    words[page * 512] = page + 1
random.Random(2).shuffle(pages)
print(sum(words[page * 512] == page + 1 for page in pages), "pages are as written")
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_minflt, "faults until", time.monotonic_ns(), "ns")
"""

HUNDRED_CLIENTS = '''
from testbed.asked.topology import TorTopo


class HundredClients(TorTopo):
    """A hundred clients, ten for each of ten guards."""

    shared_link = ("middle1", "exit1")

    def build(self) -> None:
        middle = self.add_node("middle", 1)
        exit_relay = self.add_node("exit", 1)
        for guard_number in range(1, 11):
            guard = self.add_node("guard", guard_number)
            self.addLink(guard, middle)
            for client_number in range(10 * guard_number - 9, 10 * guard_number + 1):
                self.addLink(self.add_node("client", client_number), guard)
        self.addLink(middle, exit_relay)
        self.addLink(exit_relay, self.add_node("server", 1))
        self.add_node("authority", 1)
        self.add_management()
'''

SCENARIO = """
title = "A hundred clients"
description = "Ten for each of ten guards."
topology = "hundred.py"
traffic = "page"
duration = "5 s"

[links]
default = { rate = "300 Mbit/s" }
guard-middle = { delay = "12.5 ms" }
middle-exit = { delay = "12.5 ms" }
"""


def test_a_process_of_a_gigabyte(tmp_path: Path) -> None:
    """It comes to the same, to the nanosecond, if the host refuses it mappings sooner.

    Both folders have paths of one length: the program's own path is part of its memory, and with a
    longer one there may be a page fault more.
    """
    printed = run_inside(GIGABYTE, tmp_path / "one", memory_mb=1500)
    assert f"{2**18} pages are as written" in printed
    with refused_memory(limit_mb=100):
        assert run_inside(GIGABYTE, tmp_path / "two", memory_mb=1500) == printed


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
def test_a_hundred_clients(tmp_path: Path) -> None:
    """./run.py test -- -n0 -m long tests/test_many_clients.py"""
    (tmp_path / "hundred.py").write_text(HUNDRED_CLIENTS)
    scenario = tmp_path / "hundred.toml"
    scenario.write_text(SCENARIO)
    run = run_scenario(tmp_path, str(scenario), "pctls", 5, timeout_s=TIMEOUT_S)
    assert len(run.plan.nodes_with("client")) == 100
