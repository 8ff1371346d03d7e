"""How a report begins: the answer in a sentence, its picture, and what was left out.

The sentences are made by `answers`; the sections that follow by `report`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import page, style
from analysis.answers import Answer, answer, overview
from analysis.figures import Part, plots
from analysis.figures.differences import differences
from analysis.runs import Found, Groups, alike
from testbed.results import Run

LEFT_OUT = "Left out"
"""The heading of the section on what was left out."""

_MOST_INVALID = 5
_MOST_SENTENCES = 12
"""More are folded."""


@dataclass(frozen=True)
class Answered:
    """Runs of a scenario, traffic model and duration, and what they say.

    Attributes:
        made_by: what made them, if other runs stand apart.
    """

    groups: Groups
    answer: Answer
    made_by: str

    @property
    def section(self) -> str:
        """The heading of the section on its scenario."""
        return with_maker(next(iter(self.groups)).scenario, self.made_by)


def with_maker(heading: str, made_by: str) -> str:
    """A heading, with what made the runs if there is need."""
    return f"{heading} ({made_by})" if made_by else heading


def answered(found: Found) -> list[Answered]:
    """What all runs say, in the order of the report's sections."""
    return [
        Answered(groups, answer(groups), part.made_by)
        for part in found.parts
        for groups in alike(part.valid)
    ]


def title(all_of: Sequence[Answered], directory: Path) -> str:
    """The title of a report: the question if it is one, else the directory."""
    if len(all_of) == 1:
        return all_of[0].answer.title
    return f"Runs in {directory.resolve().name}"


def opening(
    all_of: Sequence[Answered],
    found: Found,
    looks: style.Looks,
    folder: page.Folder,
) -> str:
    """All that stands before the list of contents, as HTML."""
    if not all_of:
        return page.lead("No run counts: there is nothing to say") + _counts(found)
    if len(all_of) == 1:
        return whole(all_of[0], looks, folder) + _counts(found)
    return _many(all_of, looks, folder) + _counts(found)


def whole(one: Answered, looks: style.Looks, folder: page.Folder, level: int = 2) -> str:
    """An answer with its picture and all its sentences.

    Args:
        level: of its headings.
    """
    folder.made_by = one.made_by
    parts = [
        *map(page.lead, one.answer.claims),
        *map(folder.figure, plots(Part.ANSWER, one.groups, looks)),
        page.subheading("What happened", level),
        page.items(one.answer.happened),
    ]
    if one.answer.others:
        parts += [page.subheading("What else differs", level), page.items(one.answer.others)]
    return "".join(parts)


def _many(all_of: Sequence[Answered], looks: style.Looks, folder: page.Folder) -> str:
    """A sentence for each variant and scenario, and one picture of all their differences."""
    sentences = [
        f"{page.link_to(one.section, ', '.join(one.answer.setting))}: {page.plain(claim)}"
        for one in all_of
        for claim in one.answer.claims
    ]
    shown, rest = sentences[:_MOST_SENTENCES], sentences[_MOST_SENTENCES:]
    more = page.folded(f"{len(rest)} more", page.html_items(rest)) if rest else ""
    makers = dict.fromkeys(one.made_by for one in all_of)
    return (
        page.html_items(shown)
        + more
        + "".join(_picture(all_of, made_by, looks, folder) for made_by in makers)
    )


def _picture(
    all_of: Sequence[Answered], made_by: str, looks: style.Looks, folder: page.Folder
) -> str:
    """All differences between runs that were made alike."""
    folder.made_by = made_by
    rows = overview([one.answer for one in all_of if one.made_by == made_by])
    by_name = {row.other: looks[_variant(row.other)] for row in rows}
    plot = differences("All scenarios", "all-scenarios", rows, by_name) if rows else None
    return folder.figure(plot) if plot else ""


def _variant(name: str) -> str:
    return name.rpartition(": ")[2].partition(" against ")[0]


def _counts(found: Found) -> str:
    """How many runs count, how many don't, and whose premise did not hold."""
    number = sum(part.count for part in found.parts)
    count = "1 run counts" if number == 1 else f"{number} runs count"
    others = len(found.left_out)
    words = [f"{count}, {others} {'is' if others == 1 else 'are'} left out."]
    if found.apart:
        words += ["Different Tors, kernels or testbeds made them; these stand apart:"]
        words += [f"{part.count} runs were made by {part.made_by}." for part in found.parts]
    why = page.link_to(LEFT_OUT, "Why") if others else ""
    return page.paragraph(" ".join(words), why) + page.items(_premises(found.invalid))


def _premises(invalid: Sequence[Run]) -> Iterable[str]:
    """The runs whose premise did not hold, with the first check that says so."""
    for run in invalid[:_MOST_INVALID]:
        its = run.summary
        check = its.failed_checks[0]
        yield (
            f"The premise of {its.scenario}, {its.variant}, seed {its.seed} did not hold:"
            f" {check.name}: expected {check.expected}, observed {check.observed}"
        )
    if len(invalid) > _MOST_INVALID:
        yield f"and {len(invalid) - _MOST_INVALID} more"
