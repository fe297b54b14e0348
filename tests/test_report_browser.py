"""The page in a browser: no error, no request, every plot has marks and a name, readable on every screen.

Chromium is Debian's; the page is opened from a file, as users do.
"""

from __future__ import annotations

import json
import shutil

import jsonschema
import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from mdh_lift.cli import cli
from tests.reports import database, write_ceilings, write_tree
from tests.test_exports import schema_of
from tests.test_report import unpacked
from tuning import exports
from tuning.store import Store


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    patch = pytest.MonkeyPatch()
    with patch.context() as p:
        p.setenv("MDH_LIFT_STORE", str(tmp_path_factory.mktemp("user") / "tuning.sqlite"))
        p.chdir(root)
        write_tree(root)
        write_ceilings()
        made = CliRunner().invoke(cli, ["report", ".", "--scoreboard", "board.json", "-o", "page.html"])
        assert made.exit_code == 0, made.output
    return root / "page.html"


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "the tests of the page need chromium (apt-get install chromium)"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


class Opened:
    """A page with everything that it said and asked for."""

    def __init__(self, browser, file, **settings):
        self.context = browser.new_context(**settings)
        self.said, self.asked = [], []
        self.page = self.context.new_page()
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def ask(self, script, *argument):
        return self.page.evaluate(script, *argument)


SCREENS = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]

CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c;
    }
    return parse(getComputedStyle(document.documentElement).backgroundColor);
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || ["SCRIPT", "STYLE", "DESC"].includes(e.tagName.toUpperCase())) continue;
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const style = getComputedStyle(e);
    const drawn = e instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(parse(drawn)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([walker.currentNode.data.trim().slice(0, 40), drawn, ratio]);
  }
  return bad;
}"""


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_on_every_screen(browser, page_file, width, scheme):
    with Opened(browser, page_file, viewport={"width": width, "height": 800}, color_scheme=scheme) as opened:
        assert opened.said == [] and opened.asked == [page_file.as_uri()]
        assert opened.ask("() => document.documentElement.scrollWidth") <= width
        plots = unpacked(page_file.read_text(), "plots")["plots"]
        for plot in plots:
            found = opened.ask(
                """id => { const svg = document.querySelector(`[id="${id}"] svg`); return {
                     marks: svg.querySelectorAll('.mark-rect path, .mark-line path, .mark-symbol path').length,
                     label: svg.getAttribute('aria-label') || svg.querySelector('[aria-label]').ariaLabel,
                     width: svg.getBoundingClientRect().width }; }""",
                plot["id"],
            )
            assert found["marks"] > 0 and found["label"] and 200 < found["width"] <= width, plot["id"]
        assert opened.ask("() => document.documentElement.dataset.ready") == str(len(plots))
        drawings = "() => [...document.querySelectorAll('svg[role=img]')].map(s => [s.ariaLabel, s.querySelectorAll('path.point').length, document.getElementById(s.getAttribute('aria-describedby')).textContent])"
        found = opened.ask(drawings)
        assert len(found) == 2  # of the two nests that were lifted
        assert all(label and points and words.startswith("Loops: ") for label, points, words in found)
        opened.ask("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert opened.ask("() => document.documentElement.scrollWidth") <= width
        assert opened.ask(CONTRAST) == []


def test_plots_follow_the_colours(browser, page_file):
    fill = "() => getComputedStyle(document.querySelector('#plot-speedup .mark-rect path')).fill"
    with Opened(browser, page_file, color_scheme="light") as opened:
        light = opened.ask(fill)
        opened.page.emulate_media(color_scheme="dark")
        dark = opened.ask(fill)
        opened.page.emulate_media(color_scheme="dark", media="print")
        assert light != dark and opened.ask(fill) == light  # paper is white
        assert (
            opened.ask("() => getComputedStyle(document.body).getPropertyValue('--text').trim()") == "#1c2128"
        )


def test_plots_follow_the_width(browser, page_file):
    width = "() => document.querySelector('#plot-speedup svg').getBoundingClientRect().width"
    with Opened(browser, page_file, viewport={"width": 1280, "height": 800}) as opened:
        before = opened.ask(width)
        opened.page.set_viewport_size({"width": 500, "height": 800})
        opened.page.wait_for_selector("#plot-speedup svg[width='468']", timeout=60_000)
        assert before > 900 and opened.ask(width) < 500 and opened.said == []


def test_content_can_be_saved(browser, page_file):
    with Opened(browser, page_file, accept_downloads=True) as opened:
        with opened.page.expect_download(timeout=60_000) as waiting:
            opened.page.get_by_role("button", name="Save all of this as JSON").click()
        saved = json.loads(waiting.value.path().read_text())
        assert {n["name"] for n in saved["nests"]} >= {"matvec.c::matvec::0"}
        assert opened.said == [] and opened.asked == [page_file.as_uri()]


def test_everything_is_reached_by_keyboard(browser, page_file):
    with Opened(browser, page_file, viewport={"width": 400, "height": 800}) as opened:
        names = opened.ask(
            """() => [...document.querySelectorAll('*')].filter(e => {
                 const s = getComputedStyle(e);
                 return ['auto', 'scroll'].includes(s.overflowX) && e.scrollWidth > e.clientWidth + 1;
               }).map(e => [e.tagName, e.className.toString(), e.tabIndex, e.ariaLabel])"""
        )
        assert names and all(index == 0 and label for _, _, index, label in names), names
        opened.page.keyboard.press("Tab")
        assert opened.ask("() => document.activeElement.textContent") == "Skip to the nests"


def test_the_page_prints(browser, page_file):
    with Opened(browser, page_file) as opened:
        pdf = opened.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF") and opened.said == []


def test_the_page_is_small(page_file):
    assert page_file.stat().st_size < 600_000


def test_searches_are_saved_as_t4(browser, page_file):
    """The same as ``db export --as t4``, but for digits."""
    with Opened(browser, page_file, accept_downloads=True) as opened:
        with opened.page.expect_download(timeout=60_000) as waiting:
            opened.page.get_by_role("button", name="Save the searches as T4").click()
        assert waiting.value.suggested_filename == "mdh-lift-t4.json"
        saved = json.loads(waiting.value.path().read_text())
        assert opened.said == [] and opened.asked == [page_file.as_uri()]
    assert saved == unpacked(page_file.read_text(), "t4")  # one half in the page, one here
    with Store(page_file.parent / database()) as store:
        whole = json.loads(exports.t4(store.searches("matvec.c::matvec::0")))
    assert saved["metadata"] == whole["metadata"] and len(saved["results"]) == len(whole["results"]) == 6
    jsonschema.validate(saved["metadata"], schema_of("metadata"))
    jsonschema.validate({"schema_version": saved["schema_version"], "results": saved["results"]}, schema_of("results"))
    states = [r["invalidity"] for r in saved["results"]]
    assert states.count("correct") == 4 and {"compile", "correctness"} < set(states)


def test_importance_is_shown(browser, page_file):
    """Six evaluations are too few to say anything, which the page says; shares are in test_report.py."""
    with Opened(browser, page_file) as opened:
        opened.ask("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        table = opened.page.get_by_role("region", name="Importance of parameters").first
        assert table.get_by_role("row").filter(has_text="try").inner_text().split() == ["try", "4", "–"]
        assert opened.page.get_by_text("From 4 configurations with a time.").is_visible()


def test_what_is_compressed_is_there(browser, page_file, tmp_path):
    """A page whose nests are all compressed makes the same document, block of the lock file and lines included."""
    made = []
    for limit in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(page_file.parent)
            patch.setattr("mdh_lift.report.page._INLINE", limit)
            patch.setattr("mdh_lift.report.page._RESULTS", 0)
            file = tmp_path / f"{limit}.html"
            assert CliRunner().invoke(cli, ["report", "matvec.c", "heat.c", "-o", str(file)]).exit_code == 0
        with Opened(browser, file, viewport={"width": 1280, "height": 800}) as opened:
            opened.ask("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
            opened.page.get_by_role("button", name="Show them here").click()
            opened.page.wait_for_function("() => document.querySelector('pre.block').textContent.includes('source_hash')")
            made.append(opened.ask("() => document.querySelector('main').innerText"))
            assert opened.said == []
    assert made[0] == made[1] and "static int" in made[0] and '"strategy": "auto"' in made[0]


def test_leaving_out_what_parsers_supply_changes_nothing(browser, page_file):
    """Elements, attributes and text of a page and of its dense form, as a browser reads them."""
    command = ["report", ".", "--scoreboard", "board.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page_file.parent)
        shorter = CliRunner().invoke(cli, command).stdout
        patch.setattr("mdh_lift.report.page.dense", lambda text: text)
        plain = CliRunner().invoke(cli, command).stdout
    read = """text => {
        const page = new DOMParser().parseFromString(text, 'text/html');
        const found = [], walker = page.createTreeWalker(page, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const n = walker.currentNode, pre = n.parentElement?.closest('pre, script, style');
            if (n.nodeType === 3) { if (pre || n.data.trim()) found.push(pre ? n.data : n.data.trim()); }
            else found.push([n.tagName, n.parentElement?.tagName, [...n.attributes].map(a => a.name + '=' + a.value)].join());
        }
        return found; }"""
    with Opened(browser, page_file) as opened:
        one, other = opened.ask(read, plain), opened.ask(read, shorter)
    assert len(shorter) < len(plain) and one == other
