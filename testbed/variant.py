"""What a variant file may say: which Tor, with which patches, torrc lines and premise.

Tor is built in `testbed.setup`; which option does what is Tor's own affair, and checked by Tor.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Template
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from testbed.choices import (
    CC_ALGS,
    CHOICES,
    MOST_SIDE_BY_SIDE,
    NUMBERS,
    SCHEDULERS,
    STREAM_RULES,
    consensus_parameters,
    has_fixed_window,
    torrc_options,
)
from testbed.errors import InputError
from testbed.toml_file import (
    PROJECT,
    KeyProblemError,
    Text,
    find_file,
    label,
    read_model,
    suggestion,
)

TOR_CONFIGS = PROJECT / "tor-configs"

TorrcLines = dict[str, list[str]]
"""torrc options as they will be written: each option's values, one line a value."""

SharedLinkPremise = Literal["one connection", "one connection per circuit"]
"""What the shared link's two relays must have between them while a run measures."""

_CLOSED = "the lab is closed, and the testbed sets its authorities"
_OWN = "the testbed sets it for every node"
_PREMISE = "which circuits a client has, the scenario and its policy say"
_CONFLUX = "the key is conflux, beside the title: write conflux = true"
_MEMORY = "unread events would fill the relays' memory and no probe reads them"

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
"""Why a variant may not set a consensus parameter. (The second is in each vote already, and Tor
takes no vote that has it twice.)"""

_OPTION = re.compile(r"_{0,3}[A-Za-z][A-Za-z0-9_]*")
_CONSENSUS_PARAMETER = re.compile(r"[A-Za-z0-9_-]+")


def _allowed_option(option: str) -> None:
    """Refuse an option that would open the lab or break a premise.

    Tor reads options whatever their case, and takes an unambiguous beginning for the whole, so
    the beginning of a forbidden option is forbidden too.
    """
    if not _OPTION.fullmatch(option):
        raise KeyProblemError(option, "is no torrc option: write one option's name")
    for forbidden, reason in FORBIDDEN_OPTIONS.items():
        if forbidden.startswith(option.lower()):
            raise KeyProblemError(option, f"can't be set by a variant: {reason}")


def _lines(option: str, value: object) -> list[str]:
    """An option's values as torrc writes them: one line each."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) for each in values):
        raise KeyProblemError(option, "must be a text, a number, true or false, or a list of them")
    lines = [str(int(each)) if isinstance(each, bool) else str(each) for each in values]
    for line in lines:
        if not line.isprintable() or line.endswith("\\"):
            raise KeyProblemError(option, "must be one line, without a backslash at its end")
    return lines


def _options(table: object) -> object:
    """A table of torrc options with every value as lines, if a variant may set them."""
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
    """The table [torrc]: options of every Tor, and below `relay` and `client` only of those."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    all: TorrcLines = {}
    relay: TorrcOptions = {}
    client: TorrcOptions = {}

    @model_validator(mode="before")
    @classmethod
    def _options_of_all(cls, table: object) -> object:
        """Everything beside the two tables is an option of every Tor."""
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
    """The table [premise]: what must hold for a run of the variant to count."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shared_link: SharedLinkPremise


def _one_of(kind: str, choices: Iterable[str | bool]) -> BeforeValidator:
    """A value that is one of these, or an error with the nearest of them."""
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


class VariantFile(BaseModel):
    """A variant file, before what it extends is added."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    description: str = ""
    extends: Text | None = None
    tor: Text | None = None
    source: Text | None = None
    patches: tuple[Text, ...] = ()
    cc_alg: CcAlg | None = None
    scheduler: Scheduler | None = None
    conflux: Annotated[bool, Field(strict=True)] | None = None
    ipsec: Annotated[bool, Field(strict=True)] | None = None
    connections_per_pair: SideBySide | None = None
    per_circuit_up_to: SideBySide | None = None
    parallel_circuits: SideBySide | None = None
    stream_rule: StreamRule | None = None
    torrc: TorrcKeys = TorrcKeys()
    consensus: dict[str, Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]] = {}
    premise: PremiseKeys | None = None

    @field_validator("consensus", mode="before")
    @classmethod
    def _parameter_names(cls, parameters: object) -> object:
        for name in parameters if isinstance(parameters, dict) else ():
            if not _CONSENSUS_PARAMETER.fullmatch(name):
                raise KeyProblemError(name, "is no consensus parameter: no spaces, no signs")
            if reason := _FORBIDDEN_PARAMETERS.get(name):
                raise KeyProblemError(name, f"can't be set by a variant: {reason}")
        return parameters


class Variant(BaseModel):
    """A variant with everything of the variants that it extends; paths are absolute.

    Attributes:
        release, source: a pinned release of Tor, or a tree of its source; the default release if
            both are None.
        ipsec: whether neighbouring relays have ESP between them.
        connections_per_pair, per_circuit_up_to: connections between two relays that circuits share
            by their number, or have to themselves before they share; at most one isn't None.
        parallel_circuits: of each client, all on its path.
        stream_rule: how its streams are spread over them.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    description: str
    release: str | None
    source: Path | None
    patches: tuple[Path, ...]
    torrc_all: TorrcLines
    torrc_relay: TorrcLines
    torrc_client: TorrcLines
    consensus_params: dict[str, int]
    conflux: bool
    ipsec: bool
    connections_per_pair: int | None
    per_circuit_up_to: int | None
    parallel_circuits: int
    stream_rule: str
    shared_link: SharedLinkPremise


def read_variant(name: str) -> Variant:
    """The variant of that name in tor-configs/, or in the file at that path.

    Patches of the extended variant come first; its keys, torrc options, consensus parameters,
    Tor and premise hold unless the extending variant sets them anew.

    Raises:
        InputError: there is none, it can't mean what it says, a patch or source is missing, or its
            release of Tor isn't pinned.
    """
    path = find_file("variant", name, TOR_CONFIGS)
    chain = _chain(path)
    newest = chain[-1][1]
    torrc: dict[str, TorrcLines] = {"all": {}, "relay": {}, "client": {}}
    consensus_params: dict[str, int] = {}
    patches: list[Path] = []
    for file, content in chain:
        for group, options in content.torrc:
            torrc[group] = _overridden(torrc[group], options)
        consensus_params |= content.consensus
        patches += [_patch(file, patch) for patch in content.patches]
    _no_patch_twice(path, patches)
    if problem := next(_said_twice(chain), None):
        raise InputError(problem)
    choices = _choices(chain)
    for key, value in choices.items():
        torrc["all"] |= CHOICES[key][value].torrc
        consensus_params |= CHOICES[key][value].consensus
    release, source = _release_or_source(chain)
    numbers = _numbers(chain)
    for key, number in numbers.items():
        options = NUMBERS[key].options.items()
        lines = {option: [Template(value).substitute(number=number)] for option, value in options}
        torrc["relay"] = _overridden(torrc["relay"], lines)
    variant = Variant(
        name=path.stem,
        title=newest.title,
        description=newest.description,
        release=release,
        source=source,
        patches=tuple(patches),
        torrc_all=torrc["all"],
        torrc_relay=torrc["relay"],
        torrc_client=torrc["client"],
        consensus_params=consensus_params,
        conflux=bool(choices.get("conflux")),
        ipsec=bool(_said_last(chain, "ipsec")),
        connections_per_pair=numbers.get("connections_per_pair"),
        per_circuit_up_to=numbers.get("per_circuit_up_to"),
        parallel_circuits=numbers.get("parallel_circuits", 1),
        stream_rule=str(_said_last(chain, "stream_rule") or STREAM_RULES[0]),
        shared_link=_premise(chain),
    )
    if variant.conflux:
        _check_conflux(path, variant)
    _check_numbers(path, variant, numbers, stream_rule=_said_last(chain, "stream_rule") is not None)
    return variant


Chain = list[tuple[Path, VariantFile]]
"""A variant file and those that it extends, the most basic first."""


def _chain(path: Path) -> Chain:
    chain: Chain = []
    following: Path | None = path
    while following is not None:
        if following in [file for file, _ in chain]:
            names = " → ".join([file.stem for file, _ in chain] + [following.stem])
            raise InputError(f"{label(path)}: extends goes in a circle: {names}")
        content = read_model(following, VariantFile)
        chain.append((following, content))
        following = _extended(following, content.extends) if content.extends else None
    return chain[::-1]


def _extended(file: Path, extends: str) -> Path:
    is_path = "/" in extends or extends.endswith(".toml")
    try:
        where = str(file.parent / Path(extends).expanduser()) if is_path else extends
        return find_file("variant", where, TOR_CONFIGS)
    except InputError as error:
        raise InputError(f"{label(file)}: extends: {error}") from error


def _overridden(base: TorrcLines, lines: TorrcLines) -> TorrcLines:
    """The base's options, except those that are set anew, in whatever case they are written."""
    anew = {option.lower() for option in lines}
    return {option: value for option, value in base.items() if option.lower() not in anew} | lines


def _patch(file: Path, name: str) -> Path:
    """A variant's patch: beside the variant's file, or in tor-configs/patches."""
    folders = (file.parent, TOR_CONFIGS / "patches")
    for folder in folders:
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            return path
    there = sorted({patch.name for folder in folders for patch in folder.glob("*.patch")})
    raise InputError(f'{label(file)}: there is no patch "{name}": {suggestion(name, there)}')


def _no_patch_twice(path: Path, patches: list[Path]) -> None:
    twice = next((patch for patch in patches if patches.count(patch) > 1), None)
    if twice:
        raise InputError(
            f'{label(path)}: the patch "{twice.name}" is applied twice:'
            " leave it out where the extended variant has it already"
        )


def _choices(chain: Chain) -> dict[str, str | bool]:
    """The values of the keys that make a choice of Tor's, each as it was said last."""
    return {
        key: value
        for _, content in chain
        for key in CHOICES
        if (value := getattr(content, key)) is not None
    }


def _said_last(chain: Chain, key: str) -> object:
    """A key's value where it was said last; None if it nowhere was."""
    said = (getattr(content, key) for _, content in reversed(chain))
    return next((value for value in said if value is not None), None)


def _said_twice(chain: Chain) -> Iterator[str]:
    """What a table of one file sets although a key of the same or another file sets it."""
    for file, content in chain:
        for key in CHOICES:
            if getattr(content, key) is None:
                continue
            for raw_file, raw in chain:
                where = "" if raw_file == file else f" in {label(file)}"
                for place in _places_of(key, raw):
                    yield (
                        f"{label(raw_file)}: {place} sets what the key {key}{where} sets:"
                        f" say it once, by the key {key}"
                    )


def _places_of(key: str, content: VariantFile) -> Iterator[str]:
    """Where the tables of a file set what a key sets; Tor takes an option's beginning for it."""
    for group, options in content.torrc:
        for said in options:
            if any(option.lower().startswith(said.lower()) for option in torrc_options(key)):
                yield f"torrc.{said}" if group == "all" else f"torrc.{group}.{said}"
    for name in content.consensus.keys() & consensus_parameters(key):
        yield f"consensus.{name}"


def _numbers(chain: Chain) -> dict[str, int]:
    """The numbers of connections and circuits that the chain's keys say, each as it was last."""
    said = {key: _said_last(chain, key) for key in NUMBERS}
    return {key: number for key, number in said.items() if isinstance(number, int)}


def _check_numbers(
    path: Path, variant: Variant, numbers: dict[str, int], *, stream_rule: bool
) -> None:
    """Refuse a number that Tor can't know, or that says what another key says too."""
    there = {patch.name for patch in variant.patches}
    for key, number in numbers.items():
        # What a source tree of the user's own knows, its Tor says itself.
        if NUMBERS[key].patch not in there and variant.source is None:
            raise InputError(
                f"{label(path)}: {key} = {number} means nothing without {NUMBERS[key].patch}:"
                " add it to patches"
            )
    if variant.connections_per_pair and variant.per_circuit_up_to:
        raise InputError(
            f"{label(path)}: connections_per_pair and per_circuit_up_to both say which connection"
            " a circuit takes: leave one of them out"
        )
    if stream_rule and "parallel_circuits" not in numbers:
        raise InputError(
            f'{label(path)}: stream_rule = "{variant.stream_rule}" spreads streams over several'
            " circuits: say parallel_circuits too, or leave it out"
        )
    if variant.conflux and numbers:
        raise InputError(
            f"{label(path)}: conflux = true with {next(iter(numbers))}: which leg is on which"
            " connection can't be seen; leave one of them out"
        )


def _check_conflux(path: Path, variant: Variant) -> None:
    """Refuse linked sets where Tor would build none, or where they could not be checked."""
    if has_fixed_window(variant.consensus_params):
        raise InputError(
            f"{label(path)}: conflux = true with a fixed window: Tor links no circuits then;"
            ' write cc_alg = "vegas" too'
        )


def _release_or_source(chain: Chain) -> tuple[str | None, Path | None]:
    """The release or the source tree that the chain names last."""
    for file, content in reversed(chain):
        if content.tor and content.source:
            raise InputError(
                f"{label(file)}: tor and source both name a Tor: leave one of them out"
            )
        if content.tor:
            return _release(file, content.tor), None
        if content.source:
            return None, _source(file, content.source)
    return None, None


def _release(file: Path, version: str) -> str:
    from testbed.setup import releases  # runs have no part of the set-up

    try:
        return releases.named("tor", version).version
    except InputError as error:
        raise InputError(f'{label(file)}: tor = "{version}": {error}') from error


def _source(file: Path, source: str) -> Path:
    """The source tree that a file names, relative to itself."""
    path = (file.parent / Path(source).expanduser()).resolve()
    if not (path / "src" / "app" / "main").is_dir():
        raise InputError(
            f'{label(file)}: source = "{source}" is no Tor source tree: {path} has no src/app/main'
        )
    return path


def _premise(chain: Chain) -> SharedLinkPremise:
    said = [content.premise.shared_link for _, content in chain if content.premise]
    if not said:
        raise InputError(
            f"{label(chain[-1][0])}: the key premise.shared_link is missing:"
            ' write "one connection" or "one connection per circuit", or extend a variant'
        )
    return said[-1]
