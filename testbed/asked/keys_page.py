"""The page docs/keys.md, which describes the keys of scenario and variant files.

It is made of the models that read these files: of their fields, and the fields' docstrings.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from testbed.asked import scenario_values, variant_file
from testbed.asked.processors import NodeKeys, ProcessorKeys, ProcessorRate
from testbed.asked.scenario import (
    AnyScenario,
    CompetingKeys,
    NetworkKeys,
    PathsKeys,
    SampledScenario,
    Scenario,
    TcpKeys,
)
from testbed.asked.scenario_links import LinkKeys, LinkSettings
from testbed.asked.topology import ROLES
from testbed.basics import units
from testbed.basics.toml_file import Text
from testbed.plan.choices import (
    CC_ALGS,
    FIRST_RELAYS,
    MOST_SIDE_BY_SIDE,
    SCHEDULERS,
    STREAM_RULES,
)
from testbed.plan.queue_disciplines import CAKE_DIFFSERVS, CAKE_ISOLATIONS, DISCIPLINES, OWN_KEYS

_HEAD = """\
# The keys of scenarios and variants

Both are TOML files: [a scenario](scenarios.md) is a network and what its clients do,
[a variant](variants.md) a Tor and its configuration. An unknown key or a wrong value ends with one
line that names what would be right, before anything starts. `./run.py reference keys` prints this
page."""

_VALUES: Sequence[tuple[object, str | Iterable[object]]] = (
    (units.Rate, '`"300 Mbit/s"`'),
    (ProcessorRate, '`"400 Mbit/s"`'),
    (units.Delay, '`"12.5 ms"`'),
    (units.Loss, '`"0.1 %"`'),
    (units.Share, '`"95 %"`'),
    (units.Duration, '`"5 min"`'),
    (units.WarmUp, '`"20 s"`'),
    (units.Segments, '`"2 segments"`'),
    (units.Queue, '`"1000 packets"`'),
    (units.Interval, '`"100 ms"`'),
    (units.Computing, '`"2 us"`'),
    (units.Size, '`"1514 B"`'),
    (scenario_values.WholeSeconds, '`"10 s"`'),
    (scenario_values.Watch, '`"all relay pairs"`, `"the 5 busiest"`, `["guard1-middle1"]`'),
    (scenario_values.CongestionControl, scenario_values.CONGESTION_CONTROLS),
    (dict[str, scenario_values.CongestionControl], scenario_values.CONGESTION_CONTROLS),
    (scenario_values.QueueDiscipline, DISCIPLINES),
    (scenario_values.Isolation, CAKE_ISOLATIONS),
    (scenario_values.Diffserv, CAKE_DIFFSERVS),
    (scenario_values.RoundTrips, scenario_values.ROUND_TRIPS),
    (variant_file.CcAlg, CC_ALGS),
    (variant_file.Scheduler, SCHEDULERS),
    (variant_file.StreamRule, STREAM_RULES),
    (variant_file.RelayShare, '`"25 %"`'),
    (variant_file.FirstRelays, FIRST_RELAYS),
    (variant_file.SideBySide, f"1 to {MOST_SIDE_BY_SIDE}"),
)
"""What is written for each kind of value: an example, or the words that there are."""

MODELS: Sequence[type[BaseModel]] = (
    *(AnyScenario, Scenario, SampledScenario, NetworkKeys, LinkKeys, NodeKeys, ProcessorKeys),
    *(TcpKeys, PathsKeys, CompetingKeys),
    *(variant_file.VariantFile, variant_file.TorrcKeys, variant_file.PremiseKeys),
)
"""All that the page describes."""

_UNITS = {"_s": " s", "_ms": " ms", "_ns": " ns"}


def keys_markdown() -> str:
    """The page as Markdown: a table of keys for each table that a file can have."""
    alone = set(AnyScenario.model_fields)
    drawn = set(SampledScenario.model_fields) - alone | {"warm_up_s"}
    parts = [
        ("A scenario", "Every scenario has these keys.", _table(AnyScenario)),
        ("On a topology", "", _table(Scenario, set(Scenario.model_fields) - alone)),
        ("In a drawn network", "", _table(SampledScenario, drawn)),
        ("network", "", _table(NetworkKeys)),
        ("links", _roles(), [*_table(LinkKeys, set(LinkSettings.model_fields)), *_disciplines()]),
        ("queues", "Without a key Linux's default holds.", _table(LinkKeys, _queue_keys())),
        ("nodes", "Each table is for a node, a role, a class or `default`.", _table(NodeKeys)),
        ("processor", "", _table(ProcessorKeys)),
        ("tcp", "", _table(TcpKeys)),
        ("paths", "", _table(PathsKeys)),
        ("competing", "", _table(CompetingKeys)),
        ("A variant", "", _table(variant_file.VariantFile)),
        ("torrc", "Every other key is an option of all Tors.", _table(variant_file.TorrcKeys)),
        ("premise", "", _table(variant_file.PremiseKeys)),
    ]
    sections = ["\n".join(_section(*part)) for part in parts]
    return "\n\n".join([_HEAD, *sections]) + "\n"


def _section(title: str, text: str, table: Sequence[str]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if text:
        yield from (text, "")
    yield from table


def _table(model: type[BaseModel], names: set[str] | None = None) -> list[str]:
    """The keys of a model, those of these fields only, in the order of the file."""
    kinds = get_type_hints(model, include_extras=True)
    rows = [
        f"| `{field.alias or name}` | {_value(kinds[name], field)} |"
        f" {' '.join((field.description or '').split())} | {_default(model, name, field)} |"
        for name, field in model.model_fields.items()
        if field.description and (names is None or name in names)
    ]
    return ["| key | value | | default |", "|---|---|---|---|", *rows]


def _value(kind: Any, field: FieldInfo) -> str:  # noqa: ANN401  # any annotation may come
    """What may be written: an example, words, or a kind of value."""
    for known, text in _VALUES:
        if kind == known:
            return text if isinstance(text, str) else ", ".join(f"`{_toml(one)}`" for one in text)
    if get_origin(kind) in (Union, UnionType):
        return _value(next(one for one in get_args(kind) if one is not type(None)), field)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{_toml(one)}`" for one in get_args(kind))
    if get_origin(kind) is Annotated:
        return _value(get_args(kind)[0], field)
    if kind is int:
        least, most = (
            next((getattr(one, bound) for one in field.metadata if hasattr(one, bound)), None)
            for bound in ("ge", "le")
        )
        return "a number" if least is None else f"{least} to {most}" if most else f"from {least}"
    if kind is bool:
        return "`true`, `false`"
    if kind is str:
        return "text"
    return "a list" if kind == tuple[Text, ...] else "a table"


def _default(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if model is LinkKeys and name in LinkSettings.model_fields:
        default = LinkSettings.model_fields[name].get_default()
    if isinstance(default, dict) and default.keys() == {scenario_values.DEFAULT}:
        default = default[scenario_values.DEFAULT]
    if not isinstance(default, str | int | float) or default == "":
        return ""
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    if unit and not isinstance(default, str):
        return f"{default:g}{unit}"
    if isinstance(default, float):
        return f"{100 * default:g} %"
    return f"`{_toml(default)}`"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _roles() -> str:
    return (
        "Both directions of a link are equal. The roles are "
        + ", ".join(f"`{role}`" for role in ROLES if role != "authority")
        + ". A table that names a discipline takes no keys of queues from `default`."
    )


def _queue_keys() -> set[str]:
    return set(OWN_KEYS) - set(LinkSettings.model_fields)


def _disciplines() -> Iterator[str]:
    """What each queue discipline has, by the keys of files."""
    yield from ("", "| discipline | default `queue` | keys of its own |", "|---|---|---|")
    for name, discipline in DISCIPLINES.items():
        has_queue = "queue_packets" in discipline.keys
        length = f"{discipline.queue_packets} packets" if has_queue else "by memory"
        own = (LinkKeys.model_fields[key].alias or key for key in discipline.keys)
        keys = ", ".join(f"`{key}`" for key in own if key != "queue")
        yield f"| `{name}` | {length} | {keys} |"
