"""The links of a scenario file: its keys for them, and the settings that follow.

Whether the topology has such links is checked in `plans`.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import Field

from testbed.asked.scenario_values import (
    DEFAULT,
    Diffserv,
    Isolation,
    PowerOfTwo,
    QueueDiscipline,
    ScenarioPart,
    Switch,
    WholeSeconds,
)
from testbed.asked.topology import ROLES
from testbed.basics.toml_file import KeyProblemError, suggestion
from testbed.basics.units import Delay, Interval, Loss, Queue, Rate, Segments, Size
from testbed.plan.queue_disciplines import DISCIPLINES, FIFO, OWN_KEYS, SFQ_DEFAULTS


class LinkKeys(ScenarioPart):
    """The keys of a kind of link, the same in each direction; None where a file sets none.

    `queue` is the number of packets that can wait for the link, on top of those under way in the
    delay line: a queue of 1000 packets is 1000 packets whatever the delay. `queue_in_sender` puts
    it into the sender's own network card; with `bundles`, TCP's bundles of segments cross as one,
    of `largest_bundle` segments at most: `inside.lab.links.shape`. The keys from `target` on are
    those of a queue discipline: `testbed.plan.queue_disciplines`.
    """

    rate_bit_per_s: Rate | None = Field(None, alias="rate")
    """Bits per second, counting whole frames; it must be there, or in `default`."""
    delay_ms: Delay | None = Field(None, alias="delay")
    """The one-way delay."""
    loss: Loss | None = None
    """The share of packets, or of bundles, that is lost."""
    bundles: Switch | None = None
    """Whether TCP's [bundles of segments](links.md) cross as one."""
    largest_bundle_segments: Segments | None = Field(None, alias="largest_bundle", ge=2)
    """The most segments in a bundle; without it TCP's own choice."""
    queue_packets: Queue | None = Field(None, alias="queue")
    """The length of the queue in packets, or in bundles; without it the discipline's (below)."""
    queue_in_sender: Switch | None = None
    """Whether the queue is in the sender's own network card."""
    queue_discipline: QueueDiscipline | None = None
    """The [queue's discipline](links.md), with keys of its own (below)."""

    target_us: Interval | None = Field(None, alias="target")
    """The delay that the discipline aims at."""
    interval_us: Interval | None = Field(None, alias="interval")
    """The time within which the delay must have been below `target`."""
    ecn: Switch | None = None
    """Mark packets instead of dropping them, which does nothing unless the nodes' TCP asks for it.
"""
    ce_threshold_us: Interval | None = Field(None, alias="ce_threshold")
    """The delay from which on all packets are marked."""
    flows: int | None = Field(None, ge=1, le=65_408, strict=True)
    """The number of flows that are told apart."""
    quantum_bytes: Size | None = Field(None, alias="quantum", ge=256, le=2**20)
    """The bytes that a flow may send in its turn."""
    memory_limit_bytes: Size | None = Field(None, alias="memory_limit")
    """The memory of the queue."""
    drop_batch: int | None = Field(None, ge=1, le=10_000, strict=True)
    """The most packets that are dropped at once."""
    tupdate_us: Interval | None = Field(None, alias="tupdate")
    """How often the probability is computed, at the kernel's ticks: every 16 ms instead of 15."""
    alpha: int | None = Field(None, ge=0, le=32, strict=True)
    """A factor of the probability, by the delay."""
    beta: int | None = Field(None, ge=0, le=32, strict=True)
    """A factor of the probability, by the delay's change."""
    bytemode: Switch | None = None
    """Scale the probability by a packet's size."""
    rtt_us: Interval | None = Field(None, alias="rtt")
    """The round trip for which the discipline is tuned."""
    isolation: Isolation | None = None
    """tc's keyword for what a flow is."""
    diffserv: Diffserv | None = None
    """tc's keyword for classes of traffic."""
    ack_filter: Switch | None = None
    """Drop acknowledgements that later ones replace."""
    depth: int | None = Field(None, ge=1, le=127, strict=True)
    """The most packets of a flow that wait."""
    divisor: PowerOfTwo | None = Field(None, ge=1, le=65_536, strict=True)
    """The size of the table of flows, a power of two."""
    perturb_s: WholeSeconds | None = Field(None, alias="perturb")
    """How often flows are hashed anew, in whole seconds."""
    headdrop: Switch | None = None
    """Drop a flow's oldest packet, not its newest."""

    def of_queue(self) -> dict[str, Any]:
        """Select the queue's own settings, by the names of `OWN_KEYS`."""
        return self.model_dump(exclude_none=True, include=set(OWN_KEYS))


class LinkSettings(ScenarioPart):
    """A kind of link with every setting known.

    Attributes:
        rate_bit_per_s, delay_ms, loss: the rate, the one-way delay, and the share of packets lost.
        bundles, largest_bundle_segments: whether TCP's bundles cross as one, and their size.
        queue_packets: beyond the packets in the delay line.
        queue_in_sender: whether the queue is in the sender's own card.
        queue_discipline, queue_parameters: the discipline, and what the file sets of it, by the
            names of `OWN_KEYS`.
    """

    rate_bit_per_s: int
    delay_ms: float = 0.0
    loss: float = 0.0
    bundles: bool = False
    largest_bundle_segments: int | None = None
    queue_packets: int
    queue_in_sender: bool = False
    queue_discipline: str = FIFO
    queue_parameters: dict[str, bool | int | str] = Field(default={})


def role_pair(key: str) -> str:
    """Order two roles such as "exit-middle" from the client's side: "middle-exit".

    Raises:
        KeyProblemError: the key isn't two roles.
    """
    roles = key.split("-")
    neighbours = [f"{first}-{second}" for first, second in pairwise(ROLES[:-1])]
    if len(roles) != 2:
        raise KeyProblemError(
            key, f"is no pair of roles: {suggestion(key, [DEFAULT, *neighbours])}"
        )
    for role in roles:
        if role not in ROLES:
            raise KeyProblemError(key, f"names no role {role}: {suggestion(key, neighbours)}")
    first, second = sorted(roles, key=ROLES.index)
    return f"{first}-{second}"


def with_pairs_in_order(links: Mapping[str, Any]) -> dict[str, Any]:
    """Order the roles in every key of [links], so that exit-middle is middle-exit.

    Raises:
        KeyProblemError: a key isn't two roles, or two keys are the same pair.
    """
    in_order: dict[str, Any] = {}
    for key, settings in links.items():
        name = key if key == DEFAULT else role_pair(key)
        if name in in_order:
            raise KeyProblemError(key, f"says again what {name} says: keep one of them")
        in_order[name] = settings
    return in_order


def check_disciplines(links: Mapping[str, LinkKeys]) -> None:
    """Refuse keys of another queue discipline than the links have.

    Raises:
        KeyProblemError: there is such a key, or Linux would refuse the queue.
    """
    for pair, keys in links.items():
        discipline, parameters = _queue(links, pair)
        for key in keys.of_queue():
            if key not in DISCIPLINES[discipline].keys:
                raise KeyProblemError(f"{pair}.{_name(key)}", not_its_key(key, discipline))
        if discipline == "sfq":
            check_sfq(f"{pair}.queue", parameters)


def link_settings(links: Mapping[str, LinkKeys], pair: str) -> LinkSettings:
    """Resolve the settings of the links between two roles; `default` has those that they lack.

    Raises:
        KeyError: neither has a rate.
    """
    settings: dict[str, Any] = {}
    for key in (DEFAULT, pair):
        if key in links:
            settings |= links[key].model_dump(exclude_none=True, exclude=set(OWN_KEYS))
    if "rate_bit_per_s" not in settings:
        raise KeyError(pair)
    discipline, parameters = _queue(links, pair)
    settings["queue_discipline"] = discipline
    settings["queue_packets"] = parameters.pop(
        "queue_packets", DISCIPLINES[discipline].queue_packets
    )
    return LinkSettings(**settings, queue_parameters=parameters)


def not_its_key(key: str, discipline: str) -> str:
    """Describe, as a predicate, a key that a queue discipline doesn't have."""
    others = [name for name, other in DISCIPLINES.items() if key in other.keys]
    its_keys = ", ".join(_name(own) for own in DISCIPLINES[discipline].keys)
    return (
        f"is a key of the queue discipline{'s' * (len(others) > 1)} {', '.join(others)};"
        f" here it is {discipline}, with the keys: {its_keys}"
    )


def check_sfq(key: str, parameters: Mapping[str, Any]) -> None:
    """Refuse a queue of sfq that Linux refuses or silently shortens.

    Raises:
        KeyProblemError: it is too short or too long.
    """
    keys = SFQ_DEFAULTS | dict(parameters)
    most = min(keys["flows"], keys["divisor"]) * keys["depth"]
    if not 2 <= keys["queue_packets"] <= most:
        raise KeyProblemError(
            key,
            f"= {keys['queue_packets']} packets: sfq holds at least 2, and here at most"
            f" flows * depth = {most}",
        )


def _queue(links: Mapping[str, LinkKeys], pair: str) -> tuple[str, dict[str, Any]]:
    """Find the queue discipline of the links between two roles, and its settings.

    They belong together: a table that names a discipline takes nothing of `default`'s queue.
    """
    discipline, parameters = FIFO, dict[str, Any]()
    for key in (DEFAULT, pair):
        if key in links:
            if links[key].queue_discipline:
                discipline, parameters = links[key].queue_discipline or FIFO, {}
            parameters |= links[key].of_queue()
    return discipline, parameters


def _name(key: str) -> str:
    """Return the name that a link's key has in a scenario file."""
    return LinkKeys.model_fields[key].alias or key
