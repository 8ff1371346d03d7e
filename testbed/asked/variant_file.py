"""A variant's file: which Tor, with which patches, torrc lines and premise.

How files are combined is in `variant_sum`. Tor checks the meaning of its own options.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from testbed.asked.variant_name import Term, file_of
from testbed.asked.variant_parameters import (
    Parameter,
    Parameters,
    chosen,
    defaults,
    filled,
    written,
)
from testbed.basics.toml_file import (
    KeyProblemError,
    Text,
    label,
    model_of,
    read_toml,
    shown,
    suggestion,
)
from testbed.basics.units import share_fraction
from testbed.plan.choices import (
    CC_ALGS,
    FIRST_RELAYS,
    MOST_SIDE_BY_SIDE,
    SCHEDULERS,
    STREAM_RULES,
    SharedLinkPremise,
    TorrcLines,
)

_CLOSED = "the lab is closed, and the testbed sets its authorities"
_OWN = "the testbed sets it for every node"
_PREMISE = "the scenario and its policy say which circuits a client has"
_CONFLUX = "the key is conflux, beside the title: write conflux = true"
_PATHS = (
    "the scenario says it for clients that choose paths: write entry_guards or learn_timeouts below"
    " its [paths]"
)
_MEMORY = "no probe reads these events, and unread they would fill the relays' memory"

_FORBIDDEN_BY_REASON = {
    _CLOSED: """
        DirAuthority DirServer AlternateDirAuthority AlternateBridgeAuthority FallbackDir
        FallbackNetworkstatusFile UseDefaultFallbackDirs Bridge BridgeRelay UseBridges
        BridgeAuthoritativeDir BridgeAuthoritativeDirectory AuthoritativeDirectory
        V3AuthoritativeDirectory V3BandwidthsFile TestingTorNetwork ClientTransportPlugin
        ServerTransportPlugin ServerTransportListenAddr HTTPProxy HTTPSProxy Socks4Proxy
        Socks5Proxy TCPProxy ServerDNSResolvConfFile ResolvConf ServerDNSSearchDomains
        SearchDomains OutboundBindAddress OutboundBindAddressOR OutboundBindAddressExit
        OutboundBindAddressPT PublishServerDescriptor AssumeReachable MapAddress
    """,
    _OWN: """
        Address Nickname ORPort DirPort ExtORPort ControlPort ControlSocket
        ControlPortWriteToFile CookieAuthentication CookieAuthFile HashedControlPassword
        __HashedControlSessionPassword SocksPort HTTPTunnelPort TransPort NATDPort DNSPort
        MetricsPort HiddenServiceDir DataDirectory CacheDirectory KeyDirectory PidFile Log
        RunAsDaemon User DisableNetwork ORListenAddress ORBindAddress DirListenAddress
        DirBindAddress SocksListenAddress SocksBindAddress ControlListenAddress
        __OwningControllerProcess __OwningControllerFD __ReloadTorrcOnSIGHUP
    """,
    _PREMISE: """
        __LeaveStreamsUnattached __DisablePredictedCircuits MaxCircuitDirtiness EntryNodes
        MiddleNodes ExitNodes ExcludeNodes ExcludeExitNodes StrictNodes ExitPolicy ExitRelay
        ReducedExitPolicy ClientOnly NodeFamily MyFamily
    """,
    _PATHS: "UseEntryGuards LearnCircuitBuildTimeout",
    _MEMORY: "TestingEnableCellStatsEvent TestingEnableConnBwEvent",
    "consensus parameters belong in the table [consensus]": "ConsensusParams",
    'the key is cc_alg, beside the title: write cc_alg = "vegas"': "__AlwaysCongestionControl",
    _CONFLUX: "ConfluxEnabled",
}

FORBIDDEN_OPTIONS = {
    option.lower(): reason
    for reason, options in _FORBIDDEN_BY_REASON.items()
    for option in options.split()
}
"""Why a variant may not set an option, by the option in lower case."""

_FORBIDDEN_PARAMETERS = {"cfx_enabled": _CONFLUX, "AuthDirMaxServersPerAddr": _OWN}
"""Why a variant may not set a consensus parameter. (Each vote has the second one already, and Tor
refuses a vote that has it twice.)"""

_OF_PATCHES: Mapping[str, tuple[str, ...]] = {
    "circuitstreamrule": ("auto", "off", "build-time", "round-trip"),
    "circuitsforpredictedports": tuple(map(str, range(15))),
}
"""The values of options that patches of the project add, in lower case; other options are Tor's to
check, once it starts."""

_OPTION = re.compile(r"_{0,3}[A-Za-z][A-Za-z0-9_]*")
_CONSENSUS_PARAMETER = re.compile(r"[A-Za-z0-9_-]+")


def _allowed_option(option: str) -> None:
    """Refuse an option that would open the lab or break a premise.

    Tor ignores the case of options and accepts an unambiguous prefix, so the prefix of a forbidden
    option is forbidden too.
    """
    if not _OPTION.fullmatch(option):
        raise KeyProblemError(option, "is no torrc option: write one option's name")
    for forbidden, reason in FORBIDDEN_OPTIONS.items():
        if forbidden.startswith(option.lower()):
            raise KeyProblemError(option, f"can't be set by a variant: {reason}")


def _lines(option: str, value: object) -> list[str]:
    """Write an option's values as torrc has them: one line each."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        raise KeyProblemError(option, "must be a text, a number, true or false, or a list of them")
    lines = [str(int(each)) if isinstance(each, bool) else str(each) for each in values]
    for line in lines:
        if not line.isprintable() or line.endswith("\\"):
            raise KeyProblemError(option, "must be one line, without a backslash at its end")
        if (known := _OF_PATCHES.get(option.lower())) and line not in known:
            raise KeyProblemError(option, f"can't be {line}: it is one of {', '.join(known)}")
    return lines


def _options(table: object) -> object:
    """Check a table of torrc options, and write each value as lines."""
    if not isinstance(table, dict):
        return table
    options: TorrcLines = {}
    for option, value in table.items():
        _allowed_option(option)
        if option.lower() in map(str.lower, options):
            raise KeyProblemError(option, "is there twice: Tor ignores the case of its options")
        options[option] = _lines(option, value)
    return options


TorrcOptions = Annotated[TorrcLines, BeforeValidator(_options)]


class TorrcKeys(BaseModel):
    """The table [torrc]: options of every Tor; those of relays or clients are in a subtable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    all: TorrcLines = {}
    relay: TorrcOptions = {}
    """Options of relays only."""
    client: TorrcOptions = {}
    """Options of clients only."""

    @model_validator(mode="before")
    @classmethod
    def _options_of_all(cls, table: object) -> object:
        """Take every key that is no subtable as an option of every Tor."""
        if not isinstance(table, dict):
            return table
        apart = {key: table[key] for key in ("relay", "client") if key in table}
        common = {key: value for key, value in table.items() if key not in apart}
        unexpected = next((key for key, value in common.items() if isinstance(value, dict)), None)
        if unexpected is not None:
            raise KeyProblemError(
                unexpected, f"is no group of nodes: {suggestion(unexpected, ['relay', 'client'])}"
            )
        return {"all": _options(common), **apart}


class PremiseKeys(BaseModel):
    """The table [premise]: what must hold for a run of the variant to be valid."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    shared_link: SharedLinkPremise
    """The connections that the shared link must have for a run to count."""


def _one_of(kind: str, choices: Iterable[str | bool]) -> BeforeValidator:
    """Accept these values only; the error for another one suggests the nearest."""
    names = [str(choice) for choice in choices]

    def checked(value: object) -> object:
        if value not in names:
            raise ValueError(f"is no {kind}: {suggestion(str(value), names)}")
        return value

    return BeforeValidator(checked)


CcAlg = Annotated[str, _one_of("congestion control of circuits", CC_ALGS)]
Scheduler = Annotated[str, _one_of("scheduler", SCHEDULERS)]
StreamRule = Annotated[str, _one_of("rule for streams", STREAM_RULES)]


def _side_by_side(number: object) -> object:
    if type(number) is not int or not 1 <= number <= MOST_SIDE_BY_SIDE:
        raise ValueError(f"is no whole number from 1 to {MOST_SIDE_BY_SIDE}")
    return number


SideBySide = Annotated[int, BeforeValidator(_side_by_side)]


def _relay_share(text: object) -> float:
    if share := share_fraction(text):
        return share
    raise ValueError("is no relay at all: leave the variant out instead")


RelayShare = Annotated[float, BeforeValidator(_relay_share)]
FirstRelays = Annotated[str, _one_of("order of relays", FIRST_RELAYS)]


class VariantFile(BaseModel):
    """A variant's file, before what it extends is added and with values for its parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    title: Text
    """What tables and reports call it; of a file that extends none, what is added to another's
    title."""
    description: str = ""
    """Sentences for readers."""
    extends: Text | None = None
    """The variant on which this one is built."""
    tor: Text | None = None
    """A [pinned](../CONTRIBUTING.md#which-tor-and-which-linux) release of Tor, not today's."""
    source: Text | None = None
    """The path of your own tree of Tor's source instead."""
    patches: tuple[Text, ...] = ()
    """Patches for Tor, beside the file or in `tor-configs/patches/`."""
    cc_alg: CcAlg | None = None
    """Circuits' windows: fixed ones of 1000 cells (`"sendme"`, as in the paper), or congestion
    control (`"vegas"`, as in the real network)."""
    scheduler: Scheduler | None = None
    """Which connection's cells go to the kernel next; without it KIST."""
    conflux: Annotated[bool, Field(strict=True)] | None = None
    """Each client has a linked set of [two circuits](variants.md#linked-circuits); needs Vegas, and
    a network with two ways."""
    cgo: Annotated[bool, Field(strict=True)] | None = None
    """Whether circuits have Counter Galois Onion; without it as Tor chooses: with Vegas, from 0.4.9
    on ([relay cells](tor-in-the-lab.md#relay-cells)). `false` needs `without-cgo.patch`, `true`
    needs Vegas."""
    ipsec: Annotated[bool, Field(strict=True)] | None = None
    """All traffic between neighbouring relays goes through [IPsec](variants.md#ipsec)."""
    connections_per_pair: SideBySide | None = None
    """The connections that the circuits between two relays share, by their numbers; needs
    `connections-per-pair.patch`."""
    per_circuit_up_to: SideBySide | None = None
    """Up to this number circuits between two relays have a connection each, later ones share these;
    needs `connections-per-pair.patch`."""
    parallel_circuits: SideBySide | None = None
    """The circuits of each client, all on its path; needs `per-circuit-connections.patch`."""
    stream_rule: StreamRule | None = None
    """Which of them takes a stream: the next in turn (`"uniform"`), or by the MD5 of addresses and
    ports (`"hashing"`)."""
    relays: RelayShare | None = None
    """The share of a drawn network's relays, by number, that have what the variant says of relays,
    `[torrc.relay]` and `ipsec`; the others are as Tor is. Patches, `[torrc]` and `[consensus]` hold
    for all."""
    first_relays: FirstRelays | None = None
    """Which relays these are: drawn by the seed (`"drawn"`, the default; a larger share has those
    of a smaller one, too), or those of the largest weight (`"heaviest"`)."""
    torrc: TorrcKeys = TorrcKeys()
    """[torrc options](#torrc)."""
    consensus: dict[str, Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]] = {}
    """Parameters of the consensus, such as `cellq_high = 64`."""
    premise: PremiseKeys | None = None
    """[What must hold](#premise) for a run to count."""
    parameters: dict[str, Parameter] = {}
    """Numbers or words with their defaults; `"${name}"` in other values stands for them
    ([parameters](variants.md#a-file-of-your-own))."""

    @field_validator("consensus", mode="before")
    @classmethod
    def _parameter_names(cls, parameters: object) -> object:
        for name in parameters if isinstance(parameters, dict) else ():
            if not _CONSENSUS_PARAMETER.fullmatch(name):
                raise KeyProblemError(
                    name, "is no consensus parameter: letters, digits, _ and - are allowed"
                )
            if reason := _FORBIDDEN_PARAMETERS.get(name):
                raise KeyProblemError(name, f"can't be set by a variant: {reason}")
        return parameters


@dataclass(frozen=True)
class Part:
    """A variant's file with values for its parameters; equal files with equal values are equal.

    Attributes:
        values: all parameters, in the file's order.
    """

    file: Path
    values: Parameters
    defaults: Parameters = field(compare=False)
    content: VariantFile = field(compare=False)

    @property
    def term(self) -> Term:
        """The part as it would be typed, by the file's name and without defaults."""
        others = {key: value for key, value in self.values.items() if value != self.defaults[key]}
        return Term(self.file.stem, tuple((key, written(value)) for key, value in others.items()))

    @property
    def signature(self) -> str:
        """The file's name with its parameters and their defaults, for people."""
        values = [f"{key}={written(value)}" for key, value in self.defaults.items()]
        return f"{self.file.stem}({', '.join(values)})" if values else self.file.stem


def read_part(term: Term) -> Part:
    """Read the file of a term, and put the values of its parameters in their places.

    Raises:
        InputError: there is no such file or parameter, or the file says what it can't mean.
    """
    file = file_of(term.name)
    content = read_toml(file)
    its_defaults = defaults(content, label(file))
    values = chosen(term, its_defaults)
    subject = f"variant {shown(str(term))}: {label(file)}" if term.values else label(file)
    said = model_of(filled(content, values, label(file)), VariantFile, subject)
    return Part(file, values, its_defaults, said)
