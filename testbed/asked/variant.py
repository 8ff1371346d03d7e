"""A variant as a plan needs it: all that its files say together, checked.

What a single file may say is in `variant_file`, which files there are in `variant_sum`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from pydantic import BaseModel, ConfigDict

from testbed.asked.variant_file import Part, VariantFile
from testbed.asked.variant_sum import (
    Parts,
    all_parts,
    has_premise,
    in_usual_order,
    name_of,
    patches_of,
    terms_of,
    without_redundant,
)
from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, shown
from testbed.plan.choices import (
    CGO_PATCH,
    CHOICES,
    FIRST_RELAYS,
    FIRST_WITH_CGO,
    NUMBERS,
    STREAM_RULES,
    SharedLinkPremise,
    TorrcLines,
    consensus_parameters,
    has_fixed_window,
    torrc_options,
)


class Variant(BaseModel):
    """A variant with all that its files and those that they extend say; paths are absolute.

    Attributes:
        name: what names its runs: one name for each meaning, however it was typed.
        release, source: a pinned release of Tor, or a tree of its source; the default release if
            both are None.
        cgo: whether circuits have Counter Galois Onion; None if that is left to Tor.
        ipsec: whether neighbouring relays have ESP between them.
        connections_per_pair: the number of connections between two relays, which circuits share by
            their numbers; None if `per_circuit_up_to` is set.
        per_circuit_up_to: the number of circuits between two relays that have a connection each
            before further ones share these.
        parallel_circuits: the number of circuits of each client, all on its path.
        stream_rule: how its streams are spread over them.
        relays: the share of a drawn network's relays that have `torrc_relay` and ESP; None: all.
        first_relays: which ones these are (`asked.deployment`).
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
    cgo: bool | None
    ipsec: bool
    connections_per_pair: int | None
    per_circuit_up_to: int | None
    parallel_circuits: int
    stream_rule: str
    relays: float | None
    first_relays: str
    shared_link: SharedLinkPremise


def read_variant(text: str) -> Variant:
    """Read a variant as it is typed: `NAME`, `NAME(key=value)`, a path, or several with "+".

    Patches of extended files come first. Keys, torrc options, consensus parameters, Tor and premise
    are those of the file that sets them last.

    Raises:
        InputError: there is no such variant or parameter, its files contradict each other, a patch
            or source is missing, or its release of Tor isn't pinned.
    """
    terms = terms_of(text)
    alone = len(terms) == 1 and not terms[0].term.values
    subject = label(terms[0].file) if alone else f"variant {shown(text)}"
    variant = _resolved(terms, subject)
    shorter = without_redundant(terms)
    for others in (shorter, in_usual_order(shorter)):
        try:
            again = _resolved(others, subject)
        except InputError:  # in that order, they contradict each other
            continue
        if _meaning(again) == _meaning(variant):
            variant = again
    return variant


def _meaning(variant: Variant) -> dict[str, object]:
    """Select what two ways to type a variant must have in common to be the same."""
    return variant.model_dump(exclude={"name", "title", "description"})


def _resolved(terms: Sequence[Part], subject: str) -> Variant:
    parts = all_parts(terms)
    if problem := next(_set_twice(parts), None):
        raise InputError(problem)
    choices = _last_values(parts, CHOICES)
    numbers = _last_values(parts, NUMBERS)
    release, source = _release_or_source(parts)
    titled = terms if any(map(has_premise, terms)) else [parts[0], *terms]
    variant = Variant(
        name=name_of(terms),
        title=_title([one.content.title for one in titled]),
        description=" ".join(one.content.description for one in terms),
        release=release,
        source=source,
        patches=tuple(dict.fromkeys(patch for one in parts for patch in patches_of(one))),
        **_torrc(parts, choices, numbers),
        consensus_params=_consensus_params(parts, choices),
        conflux=bool(choices.get("conflux")),
        cgo=choices.get("cgo"),
        ipsec=bool(_last_value(parts, "ipsec")),
        connections_per_pair=numbers.get("connections_per_pair"),
        per_circuit_up_to=numbers.get("per_circuit_up_to"),
        parallel_circuits=numbers.get("parallel_circuits", 1),
        stream_rule=_last_value(parts, "stream_rule") or STREAM_RULES[0],
        relays=_last_value(parts, "relays"),
        first_relays=_last_value(parts, "first_relays") or FIRST_RELAYS[0],
        shared_link=_premise(parts),
    )
    if variant.conflux and has_fixed_window(variant.consensus_params):
        raise InputError(
            f"{subject}: conflux = true with a fixed window: Tor links no circuits then;"
            ' write cc_alg = "vegas" too'
        )
    _check_cgo(variant, subject)
    _check_numbers(variant, numbers, subject, stream_rule=_last_value(parts, "stream_rule"))
    if variant.relays is None and (order := _last_value(parts, "first_relays")):
        raise InputError(
            f'{subject}: first_relays = "{order}" orders relays of which some have the variant: say'
            " relays too, or leave it out"
        )
    return variant


def _title(titles: Iterable[str]) -> str:
    """Join titles; those of files made for adding go on with the sentence."""
    whole = ""
    for title in titles:
        separator = ", " if title[0].islower() else "; "
        whole = f"{whole}{separator}{title}" if whole else title
    return whole


def _last_value(parts: Parts, key: str) -> Any:  # noqa: ANN401  # as the file's model has it
    """Return a key's value where it is set last; None if no file sets it."""
    values = (getattr(one.content, key) for one in reversed(parts))
    return next((value for value in values if value is not None), None)


def _last_values(parts: Parts, keys: Iterable[str]) -> dict[str, Any]:
    """Return the last values of those keys that are set."""
    values = {key: _last_value(parts, key) for key in keys}
    return {key: value for key, value in values.items() if value is not None}


def _torrc(
    parts: Parts, choices: Mapping[str, str | bool], numbers: Mapping[str, int]
) -> dict[str, TorrcLines]:
    """Collect torrc options: those of the files, then what keys stand for."""
    torrc: dict[str, TorrcLines] = {"all": {}, "relay": {}, "client": {}}
    for part in parts:
        for group, options in part.content.torrc:
            torrc[group] = _overridden(torrc[group], options)
    for key, value in choices.items():
        torrc["all"] |= CHOICES[key][value].torrc
    for key, number in numbers.items():
        options = NUMBERS[key].options.items()
        lines = {option: [Template(value).substitute(number=number)] for option, value in options}
        torrc["relay"] = _overridden(torrc["relay"], lines)
    return {f"torrc_{group}": options for group, options in torrc.items()}


def _overridden(base: TorrcLines, lines: TorrcLines) -> TorrcLines:
    """Set options anew; Tor ignores their case."""
    anew = {option.lower() for option in lines}
    return {option: value for option, value in base.items() if option.lower() not in anew} | lines


def _consensus_params(parts: Parts, choices: Mapping[str, str | bool]) -> dict[str, int]:
    """Collect consensus parameters: those of the files, then what keys stand for."""
    parameters: dict[str, int] = {}
    for part in parts:
        parameters |= part.content.consensus
    for key, value in choices.items():
        parameters |= CHOICES[key][value].consensus
    return parameters


def _release_or_source(parts: Parts) -> tuple[str | None, Path | None]:
    """Return the release or the source tree that is named last."""
    for part in reversed(parts):
        said = part.content
        if said.tor and said.source:
            raise InputError(
                f"{label(part.file)}: tor and source both name a Tor: leave one of them out"
            )
        if said.tor:
            return _release(part.file, said.tor), None
        if said.source:
            return None, _source(part.file, said.source)
    return None, None


def _release(file: Path, version: str) -> str:
    from testbed.setup import releases  # no part of the set-up is loaded for a run

    try:
        return releases.named("tor", version).version
    except InputError as error:
        raise InputError(f'{label(file)}: tor = "{version}": {error}') from error


def _source(file: Path, source: str) -> Path:
    """Find the source tree that a file names, relative to itself."""
    path = (file.parent / Path(source).expanduser()).resolve()
    if not (path / "src" / "app" / "main").is_dir():
        raise InputError(
            f'{label(file)}: source = "{source}" is no Tor source tree: {path} has no src/app/main'
        )
    return path


def _premise(parts: Parts) -> SharedLinkPremise:
    """Return the premise that is stated last; `all_parts` sees to it that there is one."""
    return [one.content.premise.shared_link for one in parts if one.content.premise][-1]


def _set_twice(parts: Parts) -> Iterator[str]:
    """Find what a file sets by a key and the same or another file sets in a table."""
    for part in parts:
        for key in CHOICES:
            if getattr(part.content, key) is None:
                continue
            for other in parts:
                where = "" if other.file == part.file else f" in {label(part.file)}"
                for place in _places_of(key, other.content):
                    yield (
                        f"{label(other.file)}: {place} sets what the key {key}{where} sets:"
                        f" say it once, by the key {key}"
                    )


def _places_of(key: str, content: VariantFile) -> Iterator[str]:
    """Find where a file's tables set what a key sets; Tor accepts prefixes of options."""
    for group, options in content.torrc:
        for said in options:
            if any(option.lower().startswith(said.lower()) for option in torrc_options(key)):
                yield f"torrc.{said}" if group == "all" else f"torrc.{group}.{said}"
    for name in content.consensus.keys() & consensus_parameters(key):
        yield f"consensus.{name}"


def _check_cgo(variant: Variant, subject: str) -> None:
    """Refuse Counter Galois Onion where no Tor has it, and to leave it out without the patch."""
    if variant.cgo and has_fixed_window(variant.consensus_params):
        raise InputError(
            f"{subject}: cgo = true with a fixed window: Tor has Counter Galois Onion only together"
            ' with congestion control; write cc_alg = "vegas" too'
        )
    if variant.cgo and variant.release and not _has_cgo(variant.release):
        raise InputError(
            f'{subject}: cgo = true with tor = "{variant.release}": Counter Galois Onion came with'
            f" {'.'.join(map(str, FIRST_WITH_CGO))}; take a newer release, or leave cgo out"
        )
    patched = any(patch.name == CGO_PATCH for patch in variant.patches)
    # A source tree of the user's own may have the option: its Tor says if it hasn't.
    if variant.cgo is False and not patched and variant.source is None:
        raise InputError(
            f"{subject}: cgo = false means nothing without {CGO_PATCH}: add it to patches, or add"
            " +without-cgo to what is typed"
        )


def _has_cgo(release: str) -> bool:
    """Whether a release is of a series that has it."""
    return tuple(int(part) for part in release.split(".")[:3]) >= FIRST_WITH_CGO


def _check_numbers(
    variant: Variant, numbers: Mapping[str, int], subject: str, *, stream_rule: str | None
) -> None:
    """Refuse a number that Tor can't know, or that says what another key says too."""
    there = {patch.name for patch in variant.patches}
    for key, number in numbers.items():
        # With a source tree of the user's own, its Tor reports what it doesn't know.
        if NUMBERS[key].patch not in there and variant.source is None:
            raise InputError(
                f"{subject}: {key} = {number} means nothing without {NUMBERS[key].patch}:"
                " add it to patches"
            )
    if variant.connections_per_pair and variant.per_circuit_up_to:
        raise InputError(
            f"{subject}: connections_per_pair and per_circuit_up_to both say which connection"
            " a circuit takes: leave one of them out"
        )
    if stream_rule and "parallel_circuits" not in numbers:
        raise InputError(
            f'{subject}: stream_rule = "{stream_rule}" spreads streams over several'
            " circuits: say parallel_circuits too, or leave it out"
        )
    if variant.conflux and numbers:
        raise InputError(
            f"{subject}: conflux = true with {next(iter(numbers))}: it can't be seen which leg is"
            " on which connection; leave one of them out"
        )
