"""Whether a published number counts as reproduced, by what was measured."""

import pytest

from analysis.statistics import change
from analysis.wording import change_text
from study.verdicts import Compared, together, verdict_of
from testbed.basics.errors import InputError


@pytest.mark.parametrize(
    ("after", "published", "within", "verdict"),
    [
        ([5.0, 5.1, 4.9], -0.5, "interval", "reproduced"),
        ([5.0, 5.1, 4.9], -0.2, "interval", "differs"),
        ([5.0, 5.1, 4.9], -0.2, "direction", "reproduced"),
        ([5.0, 5.1, 4.9], "less", "direction", "reproduced"),
        ([5.0, 5.1, 4.9], "more", "direction", "differs"),
        ([5.0, 5.1, 4.9], 0.2, "direction", "differs"),
        ([7.0, 12.0, 9.0], -0.1, "interval", "open"),
        ([7.0, 12.0, 9.0], "less", "direction", "open"),
        ([10.0, 10.1, 9.9], -0.5, "interval", "differs"),
        ([10.0, 10.1, 9.9], 0.0, "interval", "reproduced"),
        ([7.0, 12.0, 9.0], 0.0, "interval", "open"),
        ([5.0], -0.5, "interval", "open"),
        ([5.0], "less", "direction", "open"),
    ],
)
def test_whether_a_change_is_the_published_one(
    after: list[float], published: float | str, within: str, verdict: str
) -> None:
    before = {seed: 10.0 for seed in range(len(after))}
    text = change_text(change(before, dict(enumerate(after))))
    assert verdict_of(published, text, within) == verdict


@pytest.mark.parametrize(
    ("published", "ours", "within", "verdict"),
    [
        (17, "17.3 (16.1 to 18.5)", "interval", "reproduced"),
        (17, "3.0 (2.5 to 3.5)", "interval", "differs"),
        (17, "3.0", "interval", "open"),
        (-0.5, -0.4, "direction", "reproduced"),
        (-0.5, 0.1, "direction", "differs"),
        (-0.5, 0.0, "direction", "differs"),
        ([0.84, 1.01], "0.84 to 1.01", "range", "reproduced"),
        ([0.84, 1.01], "0.83 to 1.01", "range", "differs"),
        ([0.84, 1.01], "0.84 to 1.02", "range", "differs"),
        (-0.06, "-6.0 % (-9.1 % to 0 %)", "interval", "open"),
        (14, "13.5", "at most", "reproduced"),
        (14, "11.5 ± 2.0 %", "at most", "reproduced"),
        (14, "13.5 ± 2.0", "at most", "open"),
        (14, "14.1 ± 2.0", "at most", "open"),
        (14, "16.5 ± 2.0", "at most", "differs"),
        ("a statement", "holds", "statement", "reproduced"),
        ("a statement", "does not hold", "statement", "differs"),
        ("a statement", "not enough runs", "statement", "open"),
        (21.19, "20.95", "10 %", "reproduced"),
        (21.19, "18.95", "10 %", "differs"),
        (4, "3.5 %", "0 %", "reproduced"),  # 3.5 is rounded to 4
        (4, "3.4 %", "0 %", "differs"),
        (4.3, "3.4 %", "10 %", "differs"),
        ("4.0", "3.5 %", "0 %", "differs"),  # a decimal more, so that only 3.95 is rounded to it
        (4, ["3.4", "4.6"], "0 %", "differs"),  # neither of the two, and it isn't a range
        ((3.7, 6.9), "3.51 to 6.60 %", "10 %", "reproduced"),
        ((3.7, 6.9), "3.51 to 8.60 %", "10 %", "differs"),
        ((3.7, 6.9), "2.51 to 6.60 %", "10 %", "differs"),
        (6.7, ["5.68", "6.52"], "10 %", "reproduced"),
        (11.3, ["8.28", "9.16"], "10 %", "differs"),
        (11.3, ["8.28", "-"], "10 %", "not made yet"),
    ],
)
def test_whether_a_number_is_the_published_one(
    published: object, ours: object, within: str, verdict: str
) -> None:
    assert verdict_of(published, ours, within) == verdict


@pytest.mark.parametrize(
    "within", ["interval", "direction", "range", "at most", "statement", "5 %"]
)
@pytest.mark.parametrize("ours", ["-", "", None, []])
def test_without_runs_no_rule_says_more(ours: object, within: str) -> None:
    assert verdict_of(1, ours, within) == "not made yet"


def test_several_numbers_together() -> None:
    assert together([]) == "not made yet"
    assert together(["not made yet", "not made yet"]) == "not made yet"
    assert together(["reproduced", "not made yet"]) == "open"
    assert together(["reproduced", "open"]) == "open"
    assert together(["reproduced", "open", "differs"]) == "differs"
    assert together(["reproduced", "reproduced"]) == "reproduced"


def test_a_comparison_for_each_row() -> None:
    one = Compared(published="limit", ours="row.ours", within="at most", each="rows")
    rows = [{"ours": "3"}, {"ours": "5"}, {"ours": "-"}]
    verdicts = one.verdicts({"limit": 4, "rows": rows}, "shown.toml")
    assert verdicts == ["reproduced", "differs", "not made yet"]
    assert one.verdicts({"limit": 4, "rows": []}, "shown.toml") == []


@pytest.mark.parametrize(
    ("seeds", "ours", "verdict"),
    [(1, "3", "open"), (2, "3", "reproduced"), (1, "-", "not made yet")],
)
def test_too_little_is_open(seeds: int, ours: str, verdict: str) -> None:
    one = Compared(published="4", ours="ours", within="at most", enough="seeds > 1")
    assert one.verdicts({"seeds": seeds, "ours": ours}, "shown.toml") == [verdict]


@pytest.mark.parametrize(
    ("published", "ours", "each", "advice"),
    [
        ("nothing", "1", "", "figure 1: nothing: 'nothing' is undefined"),
        ("1", "numbers.two", "", "has no attribute 'two'"),
        ("1 +", "1", "", "figure 1: 1 \\+: "),
        ("'a few'", "1", "", "'a few' = 'a few' and 1 = 1 can't be compared by '10 %'"),
        ("1", "1", "1", "each = '1' is no list"),
    ],
)
def test_a_wrong_comparison(published: str, ours: str, each: str, advice: str) -> None:
    one = Compared(published=published, ours=ours, within="10 %", each=each)
    with pytest.raises(InputError, match=advice):
        one.verdicts({"numbers": {}}, "shown.toml: figure 1")
