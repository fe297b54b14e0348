"""The report as data, Markdown and page: what it says, and that nothing in a tree can speak through it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import re
import shutil
import threading
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mdh_lift.cli import cli
from mdh_lift.report import data, packing, plots
from mdh_lift.report.data import Ratio, geometric_mean
from mdh_lift.report.serve import server
from tests.reports import GATHER, MATVEC, database, tuned, write_ceilings, write_tree
from tuning import exports
from tuning.store import Context, Store

CORPUS = Path(__file__).parent.parent / "corpus"
VENDOR = Path(data.__file__).parent / "vendor"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "tree"
    root.mkdir()
    write_tree(root)
    return root


@pytest.fixture
def tree(made_once, tmp_path, monkeypatch):
    monkeypatch.setenv("MDH_LIFT_STORE", str(tmp_path / "user" / "tuning.sqlite"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "tree"
    shutil.copytree(made_once, root)
    monkeypatch.chdir(root)
    return root


def run(*words):
    return CliRunner().invoke(cli, ["report", *words])


def unpacked(text, name):
    """Data of a page."""
    return packing.unpacked(re.search(rf'<script type=[^>]* id="?{name}"?>([^<]*)', text)[1])


def content(*words):
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, text):
        if not {"script", "style"} & set(self._open[-1:]):
            self.texts.append(text)

    def attributes(self, tag):
        return [a for t, a in self.elements if t == tag]


# --------------------------------------------------------------------------- data


def test_a_report_says_what_is_known(tree):
    write_ceilings()
    found = content(".")
    nests = {n["name"]: n for n in found["nests"]}
    assert found["schema_version"] == 1
    assert {n: x["state"] for n, x in nests.items()} == {
        "gather.c::gather::0": "refused", "heat.c::heat::0": "lifted", "matvec.c::matvec::0": "tuned"
    }  # fmt: skip
    assert found["summary"]["states"] == {"tuned": 1, "lifted": 1, "refused": 1}
    assert [(r["code"], r["count"]) for r in found["summary"]["refusals"]] == [("MDH201", 1)]
    assert found["summary"]["speedup"]["median"] == pytest.approx(2.5)
    matvec = nests["matvec.c::matvec::0"]
    assert matvec["source"]["text"].startswith("#pragma mdh") and matvec["source"]["line"] == 2
    assert (
        matvec["result"]["origin"] == "generated from the lock file" and "_mdh(" in matvec["result"]["text"]
    )
    assert matvec["counts"]["flops"] == 2 * 64 * 32 and matvec["sizes"] == {"n": 64, "m": 32}
    (search,) = matvec["searches"]
    assert [t["best"] for t in search["trials"]] == pytest.approx([9e-6, 4e-6, 4e-6, 4e-6, 4e-6, 2e-6])
    assert {(r["cause"], r["count"]) for r in search["rejected"]} == {
        ("compile_failed", 1),
        ("wrong_result", 1),
    }
    assert search["original"] == pytest.approx(10e-6)
    assert matvec["roof"]["achieved"] == pytest.approx(2 * 64 * 32 / 2e-6)
    assert matvec["results"][0]["here"] and matvec["results"][0]["fresh"]
    assert found["ceilings"]["peaks"]


def test_what_only_the_database_knows_is_a_result(tree):
    """`port` without -w writes no lock file."""
    (tree / "mdh-lift.lock").unlink()
    (matvec,) = content("matvec.c")["nests"]
    (result,) = matvec["results"]
    assert matvec["state"] == "tuned" and result["fresh"] and not result["locked"]
    assert result["speedup"] is None and result["block"]["budget"] == "30ev"
    assert matvec["result"]["origin"] == "generated from the database"
    with Store(tree / database()) as store:
        (first,) = store.searches()
        context = Context(*(getattr(first, f) for f in ("nest", "source_hash", "fingerprint", "size_class")), "", "")
        later = store.begin(context, "model", "0")
        store.finish(later, winner=first.winner, pairs=((3.0, 1.0), (3.1, 1.0)) * 8, measured="ok", stopped="budget")
    (matvec,) = content("matvec.c")["nests"]
    assert [round(r["speedup"]["median"], 2) for r in matvec["results"]] == [3.05], "the last one counts"
    (tree / "matvec.c").write_text(MATVEC.replace("+= M", "+= 2 * M"))
    (matvec,) = content("matvec.c")["nests"]
    assert matvec["state"] == "lifted" and matvec["result"] is None


def test_what_changed_since_is_not_taken_for_new(tree):
    (tree / "matvec.c").write_text(MATVEC.replace("+= M", "+= 2 * M"))
    (matvec,) = content("matvec.c")["nests"]
    assert matvec["state"] == "lifted" and not matvec["results"][0]["fresh"] and matvec["result"] is None


def test_spliced_text_is_the_result(tree):
    text = MATVEC.replace("\n#pragma", "\n    ;\n#pragma")
    (tree / "matvec.c").write_text(text)
    region = (
        "/* mdh-lift begin matvec::0 call version=0.1.0 source=0 */\nint spliced_here;\n"
        "/* mdh-lift end matvec::0 call sum=0 */\n"
    )
    (tree / "matvec.c").write_text(text.replace("#pragma", region + "#pragma"))
    (matvec,) = content("matvec.c")["nests"]
    assert matvec["state"] == "stale" and "spliced_here" in matvec["result"]["text"]
    assert "spliced_here" not in matvec["source"]["text"]


def test_a_geometric_mean_and_its_interval():
    assert geometric_mean([]) is None
    one = geometric_mean([Ratio(3, 2.7, 3.3)])
    assert (one.median, one.low, one.high) == pytest.approx((3, 2.7, 3.3))
    four = geometric_mean([Ratio(2, 1.8, 2.2)] * 4)
    width = (math.log(2.2) - math.log(1.8)) / 2
    assert math.log(four.high / four.low) == pytest.approx(width)  # half as wide as one of them
    assert geometric_mean([Ratio(2, 0, math.inf), Ratio(4, 3, 5)]).median == pytest.approx(4)


def test_what_cannot_be_read_is_told_and_the_rest_is_there(tree):
    (tree / "mdh-lift.lock").write_text("<<<<<<< ours")
    (tree / database()).write_bytes(b"no database at all" * 100)
    result = run(".", "--format", "json", "-o", "out.json")
    assert result.exit_code == 0 and result.stderr.count("MDH618") == 2
    found = json.loads((tree / "out.json").read_text())
    assert len(found["nests"]) == 3 and not any(n["results"] or n["searches"] for n in found["nests"])


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"nests": [1]}', '{"nests": {}}'])
def test_a_scoreboard_that_is_none_is_a_usage_error(tree, text):
    (tree / "board.json").write_text(text)
    result = run("matvec.c", "--scoreboard", "board.json", "-o", "page.html")
    assert result.exit_code == 2 and "board.json" in result.stderr and not (tree / "page.html").exists()


def test_nothing_to_look_at_is_a_usage_error(tree):
    (tree / "none").mkdir()
    assert run("none", "-o", "page.html").exit_code == 2
    gone = run("gone.c", "-o", "page.html")
    assert gone.exit_code == 2 and "gone.c" in gone.stderr and not (tree / "page.html").exists()
    assert run("matvec.c", "--scoreboard", "gone.json").exit_code == 2
    assert run("matvec.c", "--format", "md", "--open").exit_code == 2


def test_a_report_runs_nothing(tree, monkeypatch):
    monkeypatch.setattr(
        "tuning.runner.Workbench.__init__", lambda *a, **k: pytest.fail("a workbench was made")
    )
    before = {p: p.read_bytes() for p in tree.rglob("*") if p.is_file()}
    assert run(".", "-o", os.devnull).exit_code == 0
    after = {
        p: p.read_bytes()
        for p in tree.rglob("*")
        if (p.is_file() and not p.name.endswith(".lock")) or p in before
    }
    assert after == before


# --------------------------------------------------------------------------- page


def test_two_pages_are_the_same(tree):
    write_ceilings()
    assert run(".").stdout_bytes == run(".").stdout_bytes


def test_the_page_is_closed_in_itself(tree):
    write_ceilings()
    text = run(".").stdout
    page = Page(text)
    (policy,) = (a["content"] for a in page.attributes("meta") if a.get("http-equiv"))
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "unsafe" not in rules["script-src"]
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    for _, attributes in page.elements:
        assert not {"src", "srcset", "action", "data"} & attributes.keys()
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(", text)


@pytest.mark.parametrize("form", ["html", "md"])
def test_hostile_names_and_texts_are_text(tree, form):
    """Names of files, functions' texts, reasons of compilers: none of it becomes markup."""
    hostile = '</script><img src=x onerror="alert(1)">\'"`|*.c'.replace("/", "")
    evil = MATVEC.replace("int i = 0;", "int i = 0; /* </script><script>alert(1)</script> ]]> <!-- `` */")
    (tree / hostile).write_text(evil)
    tuned(tree, hostile)
    (tree / "board.json").write_text(
        json.dumps({"nests": [{"name": "<svg onload=alert(2)>", "result": "</td>"}]})
    )
    result = run(".", "--scoreboard", "board.json", "--title", "</title><script>1</script>", "--format", form)
    assert result.exit_code == 0
    text = result.stdout
    if form == "md":
        assert not re.search(r"^[^`]*(?<!\\)<(img|script|svg)", text.split("```")[0], re.MULTILINE)
        return
    page = Page(text)
    assert len(page.attributes("script")) == 7  # plots, data, T4, three libraries, ours
    assert not page.attributes("img")
    assert all(a.get("role") == "img" or a.get("aria-hidden") for a in page.attributes("svg"))
    assert any("<script>alert(1)</script>" in t for t in page.texts)
    assert any("onerror" in t for t in page.texts)


def test_a_name_that_is_no_text(tree):
    name = os.fsdecode(b"na\xff.c")
    (tree / name).write_text(MATVEC)
    for form in ("html", "md", "json"):
        result = run(".", "--format", form)
        assert result.exit_code == 0 and rb"na\xff.c" in result.stdout_bytes.replace(rb"\\", b"\\")


def test_headings_and_names(tree):
    write_ceilings()
    page = Page(run(".", "--scoreboard", "board.json").stdout)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, a in page.elements:
        assert "tabindex" not in a or a.get("aria-label"), (tag, a)
        assert not a.get("href", "").startswith("#") or a["href"][1:] in ids
    assert all(a.get("scope") for a in page.attributes("th"))


def test_a_page_of_many_nests_is_small(tree, monkeypatch):
    monkeypatch.setattr("mdh_lift.report.page._RESULTS", 40_000)
    one = MATVEC.replace("void matvec", "void f{}")
    (tree / "matvec.c").unlink()
    for k in range(4):
        (tree / f"f{k}.c").write_text(one.replace("{}", str(k)))
        tuned(tree, f"f{k}.c")
    text = run(".").stdout
    assert text.count("more lines; <code>mdh-lift emit</code>") == 4
    extra = len(text) - sum(len(x) for x in re.findall(r"octet-stream[^>]*>([^<]*)", text))
    assert extra < 100 * 1024  # without libraries and data


_GOAL = 1_500_000  # bytes of a page with 100 nests
_NESTS = ("gemm", "conv2d", "jacobi2d_time", "cholesky", "atax", "argmin", "correlation", "ccsdt_abcdef_gdab_efgc")


def test_bytes_per_nest(tmp_path, monkeypatch):
    """Kernels of the corpus, simple and intricate, each with a search of 30 evaluations and its result."""
    monkeypatch.setenv("MDH_LIFT_STORE", str(tmp_path / "user" / "tuning.sqlite"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mdh_lift.report.page._INLINE", 0)  # as those behind the first nests of a large page
    write_ceilings()
    for name in _NESTS:
        shutil.copy(CORPUS / f"{name}.c", tmp_path)
        tuned(tmp_path, f"{name}.c", evaluations=30)
    half = [f"{name}.c" for name in _NESTS[::2]]
    few, many = (run(*names).stdout for names in (half, "."))
    assert few.count("<details class=nest") == 4 and many.count("<details class=nest") == 8
    each = (len(many.encode()) - len(few.encode())) / 4
    whole = len(many.encode()) + 92 * each
    assert whole < _GOAL, f"{each:.0f} bytes per nest, {whole:.0f} of 100"


def test_what_is_packed_comes_back():
    random_ = random.Random(3)

    def value(depth):
        kind = random_.randrange(6 if depth else 3)
        if kind < 3:
            return [random_.randrange(99), None, "a<b,%"][kind]
        if kind == 3:
            return {random_.choice("ab%="): value(depth - 1) for _ in range(random_.randrange(3))}
        if kind == 4:
            return [value(depth - 1) for _ in range(random_.randrange(4))]
        keys = random_.sample(["a", "b", "%", "="], random_.randrange(3))
        return [{k: value(depth - 1) for k in keys} for _ in range(3)]

    for _ in range(500):
        found = value(4)
        text = packing.packed(found)
        assert packing.unpacked(text) == found and "<" not in text and json.loads(json.dumps(found)) == found
    table = [{"number": k, "outcome": "ok"} for k in range(500)]
    assert len(json.dumps(packing.columns(table))) < len(json.dumps(table)) / 3


def test_a_large_page_reads_without_scripts_too(tree, monkeypatch):
    """What is compressed has a short form: source, expression, dependences in words, what is wrong."""
    whole = run(".").stdout
    assert "compressed and needs scripts" not in whole
    monkeypatch.setattr("mdh_lift.report.page._INLINE", 0)
    text = run(".").stdout
    short = " ".join(Page(text).texts)
    assert text.count("compressed and needs scripts") == 3 and "<math" not in text
    assert "y[i * i] = x[i];" in short and "MDH201" in short and "md_hom[i: n, k: m]" in short
    bodies = unpacked(text, "bodies")
    listing = re.compile(r"<pre class=numbered.*?</pre>", re.DOTALL)  # from the data: the browser's tests compare it
    rest = listing.sub("", whole)
    assert len(bodies) == 3 and all(listing.sub("", body).strip() in rest for body in bodies)
    assert all("<code></code>" in x for body in bodies for x in listing.findall(body))


def test_importance_and_t4(tree):
    tuned(tree, "matvec.c", evaluations=30)
    (found,) = (n for n in content("matvec.c")["nests"])
    shares = {x["parameter"]: x["share"] for x in found["searches"][0]["importance"]["shares"]}
    assert shares["try"] is None and shares["quick"] > 0.5  # one value each; what the times were made of
    text = run("matvec.c").stdout
    assert "<th scope=row>quick<td class=n>2<td class=n>" in text and "<th scope=row>try<td class=n>" in text
    assert f"From {found['searches'][0]['importance']['evaluations']} configurations with a time." in text
    t4 = unpacked(text, "t4")
    with Store(tree / database()) as store:
        (record,) = (r for r in store.searches("matvec.c::matvec::0") if len(r.steps) == 30)
        whole = json.loads(exports.t4([record]))
    assert len(t4["results"]) == len(whole["results"]) == 30
    for short, full in zip(t4["results"], whole["results"], strict=True):
        runs = full["times"]["runtimes"]
        assert short["configuration"] == full["configuration"] and short["invalidity"] == full["invalidity"]
        assert short["times"]["runtimes"] == pytest.approx(runs, rel=1e-4)
    assert {r["invalidity"] for r in t4["results"]} >= {"correct", "compile", "correctness"}


def test_a_failure_leaves_what_stands_there(tree, monkeypatch):
    (tree / "page.html").write_text("before")
    monkeypatch.setattr("mdh_lift.report.page.html", lambda made: 1 / 0)
    result = run("matvec.c", "-o", "page.html")
    assert result.exit_code == 101 and (tree / "page.html").read_text() == "before"


def test_markdown(tree):
    text = run(".", "--format", "md").stdout
    assert "| matvec.c::matvec::0 | tuned | 2.5× (2.4 to 2.6) |  |" in text
    assert "| MDH201 |" in text and "out_view[float]" in text and "`m*n` = " in text


# --------------------------------------------------------------------------- plots, libraries


def test_plots_have_rows_and_names(tree):
    write_ceilings()
    text = run(".").stdout
    shown = unpacked(text, "plots")
    ids = {p["id"]: p for p in shown["plots"]}
    assert {"plot-speedup", "plot-roofline"} <= ids.keys()
    assert all(f"id={name}>" in text and (p.get("rows") or ids[p["same"]]["rows"]) and p["label"] for name, p in ids.items())
    (bar,) = ids["plot-speedup"]["rows"]
    assert bar == {"nest": "matvec.c::matvec", "speedup": 2.5, "low": 2.4, "high": 2.6, "end": 2.6, "label": "2.5×"}
    roofs = shown["shared"]["roofline"]
    assert {r["kind"] for r in ids["plot-roofline"]["rows"]} == {"work", "before", "after"}
    assert max(r["rate"] for r in roofs) == 200  # all threads, single precision
    slope = [r for r in roofs if r["name"].startswith("memory")]
    assert all(r["rate"] == pytest.approx(min(20 * r["intensity"], 200), rel=1e-3) for r in slope)


def test_labels_stand_behind_bars_that_end_at_one():
    def nest(*of):
        speedup = SimpleNamespace(**dict(zip(("low", "median", "high"), of, strict=True)))
        return SimpleNamespace(name="a.c::f::0", headline=SimpleNamespace(speedup=speedup))

    rows = plots.speedup_rows(SimpleNamespace(nests=[nest(0.9, 0.95, 0.97), nest(0.98, 1.0, 1.02), nest(2, 3, 4)]))
    assert [row["end"] for row in rows] == [4, 1.02, 1]


def test_short_names():
    assert plots.short("a/b/gemm.c::f::0") == "gemm.c::f"
    assert plots.short("gemm.c::f::inner") == "gemm.c::f::inner"


def test_libraries_are_those_that_are_stated():
    rows = re.findall(
        r"\| `([\w.-]+)` \| ([\w-]+) \| ([\d.]+) \| .*? \| `(\w{64})` \|", (VENDOR / "README.md").read_text()
    )
    assert len(rows) == 3
    for file, package, version, digest in rows:
        data = (VENDOR / file).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert "Redistribution and use" in (VENDOR / f"LICENSE.{package}").read_text()
        if package == "vega":
            assert f'version="{version}"'.encode() in data
    assert {r[0] for r in rows} == {p.name for p in VENDOR.glob("*.js")}


# --------------------------------------------------------------------------- serving


def test_serving_needs_the_token():
    with server(b"<p>page</p>", "secret-token") as running:
        host, port = running.server_address
        assert host == "127.0.0.1" and port > 0
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()

        def status(path, **headers):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, b""

        assert status("/secret-token/") == (200, b"<p>page</p>")
        assert status("/secret-token/", Host="evil.example:80")[0] == 404
        assert {status(p)[0] for p in ("/", "/secret-token", "/secret-token/../", "/other/")} == {404}
        running.shutdown()


def test_refused_nests_show_their_source(tree):
    (gather,) = content("gather.c")["nests"]
    assert gather["refused_by"] == "MDH201" and gather["source"]["text"].strip() in GATHER
    assert gather["counts"] is None and gather["diagnostics"][0]["code"] == "MDH201"
