"""Metrics of drawn networks: relays, the links between them, and each class of clients."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from analysis.metrics.metric import Metric
from analysis.metrics.transfers import TIME_TO_FIRST_BYTE, TIME_TO_LAST_BYTE
from analysis.whole_networks import (
    QUANTILES,
    ClientClass,
    NetworkUse,
    client_class,
    is_drawn,
    network_use,
)
from testbed.results import Run


def _of_network(of: Callable[[NetworkUse], float | None]) -> Callable[[Run], float | None]:
    return lambda run: of(network_use(run)) if is_drawn(run) and run.is_whole else None


SHARED_LINKS = Metric(
    key="shared_links_percent",
    name="shared links",
    unit="%",
    digits=1,
    better="neither",
    of=_of_network(lambda use: use.shared_percent),
)
SHARED_UNDIRECTED_LINKS = replace(
    SHARED_LINKS,
    key="shared_undirected_links_percent",
    name="shared undirected links",
    of=_of_network(lambda use: use.undirected_shared_percent),
)
ACTIVE_CIRCUITS = Metric(
    key="active_circuits",
    name="active circuits",
    unit="in a second",
    digits=1,
    better="neither",
    of=_of_network(lambda use: use.active_circuits),
)
ACTIVE_LINKS = replace(
    ACTIVE_CIRCUITS,
    key="active_links",
    name="active links",
    of=_of_network(lambda use: use.active_links),
)
RELAYS_USE = Metric(
    key="relays_use_percent.mean",
    name="relays' use of their rates",
    unit="%",
    digits=1,
    better="neither",
    of=_of_network(lambda use: use.mean_use_percent),
)
BUSIEST_RELAYS_USE = replace(
    RELAYS_USE,
    key="relays_use_percent.max",
    name="busiest relay's use",
    of=_of_network(lambda use: use.busiest_use_percent),
)


def _given_up_percent(run: Run) -> float | None:
    """What the check of build times says; None where clients don't learn them."""
    values = (check.value or {} for check in run.summary.checks)
    shares = (value["given_up"] for value in values if "given_up" in value)
    return next((100 * share for share in shares), None)


CIRCUITS_GIVEN_UP = replace(
    RELAYS_USE,
    key="circuits_given_up_percent",
    name="circuits given up",
    of=_given_up_percent,
)
"""The share of its circuits that a client gave up as too slow to build, mean over clients."""

OF_NETWORKS = (
    SHARED_LINKS,
    SHARED_UNDIRECTED_LINKS,
    ACTIVE_CIRCUITS,
    ACTIVE_LINKS,
    RELAYS_USE,
    BUSIEST_RELAYS_USE,
    CIRCUITS_GIVEN_UP,
)
"""How busy relays and links were, and which circuits weren't waited for: of drawn networks."""


def of_class(model: str) -> Iterator[Metric]:
    """The metrics of the clients of one traffic model."""
    for like, attribute in (
        (TIME_TO_FIRST_BYTE, "first_byte_s"),
        (TIME_TO_LAST_BYTE, "last_byte_s"),
    ):
        for quantile, share in QUANTILES.items():
            yield replace(
                like,
                key=f"by_class.{model}.{like.key.partition('.')[0]}.p{100 * share:g}",
                name=f"{model}: {like.name}, {quantile}",
                of=partial(_number_of_class, model, partial(_quantile_of, attribute, quantile)),
            )
    yield Metric(
        key=f"by_class.{model}.failed_percent",
        name=f"{model}: failed transfers",
        unit="%",
        digits=1,
        better="less",
        of=partial(_number_of_class, model, lambda found: found.failed_percent),
    )
    yield Metric(
        key=f"by_class.{model}.goodput_kb_per_s",
        name=f"{model}: goodput",
        unit="kB/s",
        digits=1,
        better="more",
        of=partial(_number_of_class, model, lambda found: found.goodput_kb_per_s),
    )


def _number_of_class(
    model: str, number: Callable[[ClientClass], float | None], run: Run
) -> float | None:
    found = client_class(run, model) if is_drawn(run) and run.is_whole else None
    return number(found) if found else None


def _quantile_of(attribute: str, quantile: str, found: ClientClass) -> float | None:
    times_s: Mapping[str, float | None] = getattr(found, attribute)
    return times_s[quantile]
