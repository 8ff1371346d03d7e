"""The report as a reader has it: on a telephone, in a dark room, by ear, enlarged.

It is that of runs, whose directories are made here, and that of a study, in headless Chromium.
"""

from itertools import pairwise
from pathlib import Path

import pytest
from browser import in_browser, measured, needs_chromium, with_script
from made_runs import Recorded, at
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from read_page import Page

from analysis import style
from analysis.figures import Part, plots
from analysis.report import write_report
from analysis.runs import find_runs
from study.folder import find_study
from study.kept import unpacked
from study.page import make_page
from study.web_page import write_web_page

pytestmark = needs_chromium

WIDTHS = (360, 390, 1280)
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3, of text that isn't large."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two variants, of which one does not count, with all that figures show."""
    folder = tmp_path_factory.mktemp("work") / "results"
    sockets = [
        at(
            second / 2,
            **{"node": "exit1", "peer": "middle1", "port": 9001, "peer_port": 1},
            **{"rtt_ms": 25.0, "cwnd_segments": 40 + second, "retransmitted_segments": second},
        )
        for second in range(20)
    ]
    for variant, time_s in (("vanilla", 20.0), ("pctls", 2.5)):
        for seed in (1, 2, 3):
            Recorded(
                *(variant, "SharedDropping", seed),
                time_s=time_s + seed,
                delivered_kb=range(90, 120),
                tables={"sockets": sockets},
            ).write(folder)
    Recorded(seed=4, scenario="SharedDropping", valid=False).write(folder)
    return folder


@pytest.fixture(scope="module", params=["runs", "a study"])
def report(results: Path, request: pytest.FixtureRequest) -> Path:
    """The report on these runs, or the page of a study with a figure, of what it keeps."""
    file: Path = results.parent / request.param / "report.html"
    if request.param == "runs":
        write_report(results, file)
    else:
        study = find_study("mitigations")
        with unpacked(study) as folder:
            write_web_page(study, make_page(study, folder), file)
    return file


@pytest.fixture
def content(report: Path) -> Page:
    return Page(report.read_text(encoding="utf-8"))


def test_a_browser_shows_tables_and_figures_and_complains_of_nothing(
    report: Path, content: Page, tmp_path: Path
) -> None:
    dom, messages = in_browser(report, tmp_path / "profile")
    assert messages == []
    shown = Page(dom)
    for tag in ("table", "tr", "figure", "img", "section"):
        assert shown.tags.count(tag) == content.tags.count(tag) > 0


def test_a_browser_can_show_every_figure_and_fetches_nothing(
    report: Path, content: Page, tmp_path: Path
) -> None:
    """A script is added that counts the images that have a size, and an image from elsewhere."""
    count = "document.title = [...document.images].filter(image => image.naturalWidth > 99).length"
    script = f'<img src="x.png"><script>onload = () => {{{count}}}</script>'
    file = with_script(report, script, tmp_path / "counting.html")
    dom, messages = in_browser(file, tmp_path / "profile")
    assert f"<title>{content.tags.count('img')}</title>" in dom
    assert len(messages) == 1
    assert "violates the following Content Security Policy" in messages[0]


LAYOUT = """(() => {
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  const boxes = () => [...document.querySelectorAll("nav a")].map(a => a.getBoundingClientRect());
  const apart = (one, other) => one.bottom <= other.top || other.bottom <= one.top
    || one.right <= other.left || other.right <= one.left;
  const page = () => document.documentElement.scrollWidth - innerWidth;
  const image = document.images[0], before = image.clientWidth, beyond = page();
  document.querySelector(".zoom").click();
  return {
    beyond,
    beyond_when_enlarged: page(),
    larger: image.clientWidth / before,
    source: image.currentSrc.length,
    overlaps: boxes().filter((one, at, all) => !all.slice(at + 1).every(two => apart(one, two)))
      .length,
    first: document.querySelector("h1 + *").className,
    picture: document.querySelector("figure").getBoundingClientRect().top,
    contents: document.querySelector("nav").getBoundingClientRect().top,
    tables: [...document.querySelectorAll("main section table")].map(
      table => table.getBoundingClientRect().top).sort((one, two) => one - two)[0],
  };
})()"""


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_and_figures_can_be_enlarged(
    report: Path, tmp_path: Path, width: int
) -> None:
    found = measured(report, LAYOUT, tmp_path, width=width)
    assert found["beyond"] <= 0
    assert found["beyond_when_enlarged"] <= 0
    assert found["larger"] >= 2
    assert found["overlaps"] == 0
    assert found["first"] == "lead"
    assert found["picture"] < found["contents"] < found["tables"]


SIZE = "({ points: document.images[0].naturalWidth })"


def test_a_telephone_has_a_narrow_figure(report: Path, tmp_path: Path) -> None:
    sizes = {
        width: measured(report, SIZE, tmp_path, width=width)["points"] for width in (360, 1280)
    }
    assert sizes[360] < 0.6 * sizes[1280]


CONTRASTS = """(() => {
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => numbers(colour).slice(0, 3).map(part => part / 255).map(
    part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
  ).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = element => {
    const colour = getComputedStyle(element).backgroundColor;
    const see_through = numbers(colour)[3] === 0;
    return see_through && element.parentElement ? behind(element.parentElement) : colour;
  };
  const ratios = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own) continue;
    const [one, other] = [getComputedStyle(element).color, behind(element)].map(light);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    ratios.push([ratio, element.tagName]);
  }
  return {
    least: ratios.sort((one, other) => one[0] - other[0])[0],
    texts: ratios.length,
    page: light(behind(document.body)),
    filter: getComputedStyle(document.images[0]).filter,
  };
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_can_be_read_in_both_schemes(report: Path, tmp_path: Path, dark: bool) -> None:
    found = measured(report, CONTRASTS, tmp_path, dark=dark)
    assert found["texts"] > 50
    assert found["least"][0] >= LEAST_CONTRAST, found["least"]
    assert (found["page"] < 0.1) == dark
    assert found["filter"] == ("invert(0.9) hue-rotate(180deg)" if dark else "none")


def test_letters_in_figures_can_be_read_in_both_schemes(results: Path) -> None:
    """In the dark, `page.html` turns each part of a colour from x into 0.9 - 0.8 x."""
    groups = find_runs(results).valid
    looks = style.looks(group.variant for group in groups)
    figures = [plot.figure for part in Part for plot in plots(part, groups, looks)]
    texts = [text for figure in figures for text in figure.findobj(Text) if text.get_text()]
    assert len(texts) > 20
    for text in texts:
        colour = text.get_color()
        if colour == "none":
            continue
        assert contrast(to_rgb(colour), (1.0, 1.0, 1.0)) >= LEAST_CONTRAST
        dark = tuple(0.9 - 0.8 * part for part in to_rgb(colour))
        assert contrast(dark, (0.1, 0.1, 0.1)) >= LEAST_CONTRAST


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast of two colours, by WCAG 2.2."""
    lights = sorted(map(light, (one, other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def light(colour: tuple[float, ...]) -> float:
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


BY_EAR = """(() => ({
  levels: [...document.querySelectorAll("h1, h2, h3, h4")].map(one => Number(one.tagName[1])),
  unnamed: [...document.querySelectorAll("[role=region], [role=group], nav")].filter(
    one => !one.ariaLabel && !one.getAttribute("aria-labelledby")).length,
  boxes: [...document.querySelectorAll("input")].filter(one => one.labels.length !== 1).length,
  heads: [...document.querySelectorAll("th")].filter(one => one.scope !== "col").length,
  language: document.documentElement.lang,
}))()"""


def test_headings_regions_and_boxes_have_names(report: Path, tmp_path: Path) -> None:
    found = measured(report, BY_EAR, tmp_path)
    levels = found.pop("levels")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert found == {"unnamed": 0, "boxes": 0, "heads": 0, "language": "en"}


def test_each_figure_has_an_alternative_text_of_its_own(content: Page) -> None:
    assert len(set(content.alternatives)) == content.tags.count("img")
    assert all(len(text) > 80 for text in content.alternatives)


@pytest.mark.parametrize("report", ["runs"], indirect=True)
def test_alternative_texts_say_what_figures_show(content: Page) -> None:
    first, *_ = content.alternatives
    assert "vanilla, seed 2: delivered to each client, MB/s: 8 lines, 0.1" in first
    assert "on average (0.09 to 0.119); congestion window of each connection on the shared" in first
    assert "link, segments: 1 line, 49.5 on average (40 to 59)." in first
