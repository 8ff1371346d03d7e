"""A check of a run: one line of `summary.json`'s `checks`. Who makes one says what it is about."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict


class Check(BaseModel):
    """Something that must hold for the run to count: what was expected, what was seen.

    Attributes:
        ok: whether it holds; None if there was too little to judge by.
        value, bound: what was judged and what by, as numbers by name; None where there are none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

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
