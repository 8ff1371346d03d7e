"""Bootstrapped networks in the cache: the state of each Tor of a plan when its network is ready.

All virtual machines start at the same instant of their clocks. So a network is bootstrapped once,
in a machine that starts earlier, and every run starts from its Tors' state. What happens in that
machine is `inside.tor.bootstrap`'s.
"""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from testbed.basics.errors import TestbedError
from testbed.basics.steps import Progress
from testbed.inside.tor.bootstrap import NETWORK
from testbed.machines.folders import Folders
from testbed.machines.guest import run_in_guest
from testbed.machines.virtual import START_NS
from testbed.machines.watching import Step, Usage
from testbed.plan.choices import STREAM_RULES
from testbed.plan.model import TOR, Plan, PlannedLink, PlannedPolicy
from testbed.plan.network import Shape
from testbed.results.made_by import files_sha256
from testbed.setup import builds
from testbed.setup.builds import Build, Ingredient, Recipe
from testbed.setup.sources import sha256_of

STEPS = 1
HEAD_START_NS = 600 * 10**9
"""How much earlier the clock of a bootstrapping machine starts."""

ROOM_BYTES = 100_000_000
_SHA256 = f"{NETWORK}.sha256"
_USAGE = "usage.json"
_RATE_BIT_PER_S = 1_000_000_000


def bootstrapped_network(
    plan: Plan, folders: Folders, kernel: Build, tor: Build, on_step: Callable[[Step], None]
) -> Build:
    """Return a plan's network, ready for circuits (product `NETWORK`, an archive).

    It is made if the cache has none, or a damaged one. The same network and Tor give the same
    bytes, whatever the plan's links, traffic and seed.

    Raises:
        TestbedError: bootstrapping failed; the logs are kept.
    """
    bare = bare_plan(plan)
    recipe = Recipe(
        name="network",
        version=Path(plan.topology).stem,
        sources=(
            Ingredient("kernel", kernel.key),
            Ingredient("tor", tor.key),
            Ingredient("code", files_sha256()),
        ),
        configuration=json.dumps(bare.model_dump(mode="json"), sort_keys=True),
        compiler="",
        steps=STEPS,
    )

    def make(folder: Path, log: Path) -> None:
        machine = folder / "machine"
        machine.mkdir()
        try:
            usage = _bootstrap(
                bare, replace(folders, run=machine), kernel.product("linux"), on_step
            )
        except TestbedError as error:
            logs = log.with_suffix("")
            shutil.copytree(machine / "logs", logs)
            raise TestbedError(f"{error}\nits logs are in {logs}") from error
        (machine / NETWORK).rename(folder / NETWORK)
        (folder / _SHA256).write_text(sha256_of(folder / NETWORK))
        (folder / _USAGE).write_text(json.dumps(asdict(usage)))
        shutil.rmtree(machine)

    if (known := builds.finished(recipe)) is not None and not _is_whole(known):
        shutil.rmtree(known.folder)
    return builds.build(recipe, make, Progress(io.StringIO()), room_bytes=ROOM_BYTES)


def bootstrap_usage(folder: Path) -> Usage:
    """The cost of bootstrapping the network in a folder of the cache, when it was made."""
    return Usage(**json.loads((folder / _USAGE).read_text()))


def _bootstrap(
    bare: Plan, folders: Folders, kernel: Path, on_step: Callable[[Step], None]
) -> Usage:
    """Bootstrap a network in a machine, and write its archive to the run's directory.

    Raises:
        TestbedError: bootstrapping failed.
    """
    return run_in_guest(
        bare,
        replace(folders, generator=None, network=None),
        kernel,
        lambda step: on_step(replace(step, name=f"once for this network: {step.name}")),
        module="testbed.inside.tor.bootstrap",
        start_ns=START_NS - HEAD_START_NS,
    )


def bare_plan(plan: Plan) -> Plan:
    """The parts of a plan that its bootstrapped network depends on: nodes, links, Tor settings."""
    return plan.model_copy(
        update={
            "scenario": "bootstrap",
            "scenario_title": "",
            "variant_title": "",
            "topology": "",
            "traffic_overridden": False,
            "seed": 0,
            "duration_s": 0.0,
            "links": tuple(_plain(link) for link in plan.links),
            "nodes": tuple(node.model_copy(update={"processor": None}) for node in plan.nodes),
            "traffic_by_client": {},
            "server_by_client": {},
            "bandwidth_weights": {},
            "coordinates": {},
            "watched": (),
            "only_watched": False,
            # One kernel bootstraps it: a Tor's state doesn't depend on how many there are.
            "parts": (),
            "changes": {},
            "paths": plan.paths if plan.tor.conflux else {},
            "competing": (),
            # The build identifies the Tor.
            "tor": plan.tor.model_copy(
                update={
                    "variant": "",
                    "source": None,
                    "release": None,
                    "patches": (),
                    "cgo": None,
                    "ipsec": False,
                    "parallel_circuits": 1,
                    "stream_rule": STREAM_RULES[0],
                }
            ),
            "tgen": None,
            # A policy acts only later, and build times are of the run's links.
            "policy": PlannedPolicy(
                name=TOR if plan.policy.tor_chooses_paths else plan.policy.name,
                entry_guards=plan.policy.entry_guards,
            ),
        }
    )


def _plain(link: PlannedLink) -> PlannedLink:
    plain = Shape(rate_bit_per_s=_RATE_BIT_PER_S, queue_packets=1000)
    return PlannedLink(
        ends=link.ends, roles=link.roles, there=plain, back=plain, netem_seeds=(0, 0)
    )


def _is_whole(network: Build) -> bool:
    """Whether an archive is unchanged. A network with other inputs has another name."""
    try:
        recorded = (network.folder / _SHA256).read_text()
        return sha256_of(network.folder / NETWORK) == recorded
    except OSError:
        return False
