"""Open a prompt in a scenario's network, in real time.

The network is as a run finds it: each client has its circuit. In real time computing takes time,
so nothing that is measured here is a result. All nodes are in one kernel, whatever the scenario's
`kernels` says.

```sh
./run.py shell One --variant pctls
```

```
lab> exit1 ping -c 2 middle1
PING 10.0.3.1 (10.0.3.1) 56(84) bytes of data.
64 bytes from 10.0.3.1: icmp_seq=1 ttl=64 time=25.2 ms
…
lab> tor exit1 GETINFO orconn-status
orconn-status=
$93FEB588B5AF5DB51735551ED55C0680BFBF5552~middle1 CONNECTED
$93FEB588B5AF5DB51735551ED55C0680BFBF5552~middle1 CONNECTED
…
lab> exit1 tcpdump -n -i exit1-eth0
```

A node's name and a command run the command there, full-screen programs and `bash` among them; names
of nodes stand for their addresses. `nodes`, `links`, `circuits`, `tor` (a Tor's control port) and
`traffic start` are the shell's own. Commands can be piped in. The clock begins in January 2027, as
in all runs.
"""

import argparse

from rich.console import Console

from commands import _options
from testbed.asked.plans import make_plan
from testbed.basics.ending import VALID
from testbed.runs import runner


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments."""
    _options.add_scenario(parser)
    _options.add_variant(parser)
    _options.add_traffic(parser)
    _options.add_seed(parser, "seed of the losses, the traffic and a drawn network")
    _options.add_set(parser)


def run(given: argparse.Namespace, messages: Console) -> int:
    """Open the prompt, and end when the user leaves it."""
    plan = make_plan(
        given.scenario,
        given.variant,
        seed=given.seed,
        traffic=given.traffic,
        changes=dict(given.set),
    )
    progress = runner.ProgressBar.on(messages, f"{plan.scenario}, {plan.variant}")
    with progress.bar:
        runner.open_shell(plan, messages, progress)
    return VALID
