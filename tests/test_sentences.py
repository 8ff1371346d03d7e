"""The sentences that `compare` writes, and those that documents quote of it."""

import re

import pytest

from analysis.metrics import METRICS
from analysis.metrics.networks import ACTIVE_CIRCUITS, of_class
from analysis.metrics.transfers import CIRCUIT_ROUND_TRIP, THROUGHPUT
from analysis.statistics import MOST_RUNS, NEARLY_EQUAL, Change, Interval
from analysis.wording import Quoted, read_sentence, sentence, verdict_word
from study.folder import find_study, names
from study.page import own_metrics
from testbed.basics.toml_file import PROJECT

NAMES = ("vanilla", "pctls")
MODELS = ("page", "bulk", "bulk5mib")
METRICS_BY_NAME = {
    metric.name: metric
    for metric in (
        *(one for name in names() for one in own_metrics(find_study(name))),
        *(one for model in MODELS for one in of_class(model)),
        *METRICS,
    )
}
DOCUMENTS = [
    *(PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")),
    *(PROJECT / "studies").glob("*/README.md"),
]


@pytest.mark.parametrize(
    ("metric", "share", "interval", "said"),
    [
        (
            *(THROUGHPUT, 4.6, (3.9, 5.4)),
            "pctls is better than vanilla: throughput +460 % (95 % interval: +390 % to +540 %)",
        ),
        (
            *(CIRCUIT_ROUND_TRIP, -0.5, (-0.6, -0.4)),
            "pctls is better than vanilla: circuit round trip -50 %"
            " (95 % interval: -60 % to -40 %)",
        ),
        (
            *(CIRCUIT_ROUND_TRIP, 0.5, (0.4, 0.6)),
            "pctls is worse than vanilla: circuit round trip +50 % (95 % interval: +40 % to +60 %)",
        ),
        (
            *(ACTIVE_CIRCUITS, 0.05, (0.01, 0.09)),
            "pctls has more than vanilla: active circuits +5.0 % (95 % interval: +1.0 % to +9.0 %)",
        ),
        (
            *(THROUGHPUT, 0.01, (-0.012, 0.0302)),
            "pctls is the same as vanilla within 5 %: throughput +1.0 %"
            " (95 % interval: -1.2 % to +3.0 %)",
        ),
        (
            *(THROUGHPUT, -0.11, (-0.23, 0.03)),
            "undecided between vanilla and pctls: throughput -11 %"
            " (95 % interval: -23 % to +3.0 %); about 9 runs of each would tell",
        ),
    ],
)
def test_a_sentence_is_as_strong_as_its_interval(
    metric: object, share: float, interval: tuple[float, float], said: str
) -> None:
    found = Change(share, Interval(*interval), paired=True, runs_needed=9)
    assert sentence(metric, NAMES, found, 0.95) == said  # type: ignore[arg-type]
    quoted = read_sentence(said)
    assert quoted is not None and quoted.share == pytest.approx(share)
    assert quoted.interval == pytest.approx(interval, abs=0.001)
    check(quoted)
    word = verdict_word(metric, found)  # type: ignore[arg-type]
    assert word.removesuffix(" within 5 %") == quoted.claim


def test_what_has_no_interval_claims_nothing() -> None:
    wide = Change(-0.5, Interval(-0.9, 500.0), paired=True, runs_needed=None)
    said = sentence(THROUGHPUT, NAMES, wide, 1 - 0.05 / 15)
    assert "(99.67 % interval: -90 % to over +9999 %)" in said
    assert said.endswith(f"; more than {MOST_RUNS} runs of each would tell")
    one = Change(-0.5, None, paired=False, runs_needed=None)
    said = sentence(THROUGHPUT, NAMES, one, 0.95)
    assert said.startswith("undecided between vanilla and pctls: throughput -50 % (no interval")
    assert read_sentence(said) is None
    assert verdict_word(THROUGHPUT, one) == "undecided"
    assert sentence(THROUGHPUT, NAMES, None, 0.95) == "nothing to compare"
    assert verdict_word(THROUGHPUT, None) == "not measured"


def check(quoted: Quoted) -> None:
    """Whether a sentence's verdict is the one that its interval allows."""
    low, high = quoted.interval
    assert low <= quoted.share <= high
    better = METRICS_BY_NAME[quoted.metric].better
    match quoted.claim:
        case "better" | "worse":
            assert better != "neither"
            assert low > 0 if (quoted.claim == "better") == (better == "more") else high < 0
        case "more" | "less":
            assert better == "neither"
            assert low > 0 if quoted.claim == "more" else high < 0
        case "the same":
            assert -NEARLY_EQUAL < low <= 0 <= high < NEARLY_EQUAL
        case "undecided":
            assert low <= 0 <= high
        case _:
            pytest.fail(quoted.claim)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_quote_nothing_that_its_interval_does_not_allow(document: object) -> None:
    """A quoted sentence is a line that begins with "> "; a document quotes nothing else so."""
    for line in document.read_text(encoding="utf-8").splitlines():  # type: ignore[attr-defined]
        if line.startswith("> "):
            quoted = read_sentence(line.removeprefix("> "))
            assert quoted is not None, line
            check(quoted)


def test_a_quoted_sentence_that_says_too_much_is_found() -> None:
    said = "pctls is better than vanilla: throughput -11 % (95 % interval: -23 % to +3.0 %)"
    quoted = read_sentence(said)
    assert quoted is not None
    with pytest.raises(AssertionError):
        check(quoted)


def test_documents_quote_sentences() -> None:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    assert sum(len(re.findall(r"(?m)^> ", text)) for text in texts) >= 5
