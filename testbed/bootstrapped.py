"""Bootstrapped networks: what each Tor of a plan knows when its network is ready, in the cache.

All virtual machines begin at the same instant. So a network is bootstrapped once, in a machine of
its own that begins earlier, and every run begins from what its Tors have kept. What happens in that
machine is `tor.bootstrap`'s.
"""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from testbed.choices import STREAM_RULES
from testbed.errors import TestbedError
from testbed.guest import run_in_guest
from testbed.machines.folders import Folders
from testbed.machines.virtual import START_NS
from testbed.machines.watching import Step, Usage
from testbed.network.model import Shape
from testbed.plan_model import Link, Plan
from testbed.results.made_by import files_sha256
from testbed.setup import builds
from testbed.setup.builds import Build, Ingredient, Recipe
from testbed.setup.sources import sha256_of
from testbed.setup.steps import Progress
from testbed.tor.bootstrap import NETWORK

STEPS = 1
HEAD_START_NS = 600 * 10**9
"""By how much earlier the machine's clock begins, in which a network is bootstrapped."""

ROOM_BYTES = 100_000_000
_SHA256 = f"{NETWORK}.sha256"
_USAGE = "usage.json"
_RATE_BIT_PER_S = 1_000_000_000


def bootstrapped_network(
    plan: Plan, folders: Folders, kernel: Build, tor: Build, on_step: Callable[[Step], None]
) -> Build:
    """The network of a plan, ready for circuits: product `NETWORK`, an archive.

    It is made where the cache has none, or has a damaged one. The same network and Tor give the
    same bytes, whatever the plan's links, traffic and seed are.

    Raises:
        TestbedError: it could not be bootstrapped; its logs are kept.
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
    """What it took to bootstrap the network that the cache keeps in a folder, when it was made."""
    return Usage(**json.loads((folder / _USAGE).read_text()))


def _bootstrap(
    bare: Plan, folders: Folders, kernel: Path, on_step: Callable[[Step], None]
) -> Usage:
    """Bootstrap a network in a machine, and leave its archive in the run's directory.

    Raises:
        TestbedError: it could not be bootstrapped.
    """
    return run_in_guest(
        bare,
        replace(folders, generator=None, network=None),
        kernel,
        lambda step: on_step(replace(step, name=f"once for this network: {step.name}")),
        module="testbed.tor.bootstrap",
        start_ns=START_NS - HEAD_START_NS,
    )


def bare_plan(plan: Plan) -> Plan:
    """Of a plan, what its bootstrapped network depends on: nodes, links as such, Tor's settings."""
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
            "traffic_by_client": {},
            "server_by_client": {},
            "bandwidth_weights": {},
            "shared_link": None,
            "watched": None,
            "changes": {},
            "paths": plan.paths if plan.tor.conflux else {},
            "competing": (),
            # Which Tor it is, its build says.
            "tor": plan.tor.model_copy(
                update={
                    "variant": "",
                    "source": None,
                    "release": None,
                    "patches": (),
                    "ipsec": False,
                    "parallel_circuits": 1,
                    "stream_rule": STREAM_RULES[0],
                }
            ),
            "tgen": None,
            # What a policy does is done later.
            "policy": plan.policy.model_copy(update={"text": None}),
        }
    )


def _plain(link: Link) -> Link:
    plain = Shape(rate_bit_per_s=_RATE_BIT_PER_S, queue_packets=1000)
    return Link(ends=link.ends, roles=link.roles, there=plain, back=plain, netem_seeds=(0, 0))


def _is_whole(network: Build) -> bool:
    """Whether an archive is as it was made. A network of other ingredients has another name."""
    try:
        said = (network.folder / _SHA256).read_text()
        return sha256_of(network.folder / NETWORK) == said
    except OSError:
        return False
