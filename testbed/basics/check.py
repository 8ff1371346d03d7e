"""A check of a run, as in `summary.json`'s `checks`; other modules make them."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

MOST_NAMED = 20
"""How many offenders a check names."""


class Check(BaseModel):
    """A condition that must hold for a run to be valid: what was expected and what observed.

    Attributes:
        key: the kind of check, for programs; empty if none looks for it.
        ok: whether it holds; None if there was too little data to judge.
        value, bound: the judged numbers and their limits, by name; None if there are none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    key: str = ""
    name: str
    expected: str
    observed: str
    ok: bool | None
    value: Mapping[str, float] | None = None
    bound: Mapping[str, float] | None = None

    @property
    def failed(self) -> bool:
        """Whether it was judged and does not hold."""
        return self.ok is False


def merged(parts: Sequence[Sequence[Check]]) -> list[Check]:
    """The checks that several parts of a network made, each once: it holds if all parts' do.

    Args:
        parts: the checks of each part; what concerns all parts may be in each of them.
    """
    found: dict[tuple[str, str], list[Check]] = {}
    for checks in parts:
        for check in checks:
            alike = found.setdefault((check.key, check.name), [])
            if check not in alike:
                alike.append(check)
    return [_of_all(alike) for alike in found.values()]


def _of_all(alike: Sequence[Check]) -> Check:
    first = alike[0]
    if len(alike) == 1:
        return first
    said = [one for one in dict.fromkeys(check.observed for check in alike) if one]
    judged = [check.ok for check in alike]
    values = [check.value for check in alike if check.value is not None]
    names = dict.fromkeys(name for value in values for name in value)
    return first.model_copy(
        update={
            "observed": "; ".join([one for one in said if one != first.expected] or said),
            "ok": False if False in judged else None if None in judged else True,
            "value": {name: sum(value.get(name, 0) for value in values) for name in names}
            if values
            else None,
        }
    )


def none_of(name: str, found: Sequence[str]) -> Check:
    """A check that holds if nothing was found."""
    named = ", ".join(found[:MOST_NAMED]) + (" …" if len(found) > MOST_NAMED else "")
    return Check(
        name=name,
        expected="none",
        observed=named or "none",
        ok=not found,
        value={"count": len(found)},
        bound={"count": 0},
    )
