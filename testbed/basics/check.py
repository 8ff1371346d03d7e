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
