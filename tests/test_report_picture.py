"""Pictures of iterations: the arrows order exactly what the polyhedral dependences order."""

from __future__ import annotations

import itertools
import re
import xml.dom.minidom
from pathlib import Path

import pytest

from lifter.normalise import normalise
from lifter.order import conflicts, earlier, leaves_of, same_cell
from mdh_core.mathml import mathml
from mdh_lift.pipeline import check_file
from mdh_lift.report import svg
from mdh_lift.report.picture import EXTENTS, Picture, picture
from tests.lifting import lifted
from tests.test_counts import NESTS

CORPUS = Path(__file__).parent.parent / "corpus"
LIFTED = Path(__file__).parent / "lifted"
MORE = {
    "sweep": "void f(int n, int m, float u[n + 1][m + 1]) {\n#pragma mdh\n"
    "for (int i = 1; i <= n; i++) for (int j = 1; j <= m; j++) u[i][j] = u[i - 1][j] + u[i][j - 1]; }",
    "overwritten": "void f(int n, float x[n + 1], float y[n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) { y[i] = x[i + 1]; x[i] = 2 * y[i]; } }",
}


def closure(pairs):
    """All that comes after something else, through any number of steps."""
    after = {}
    for a, b in pairs:
        after.setdefault(a, set()).add(b)
    out = set()
    for start in after:
        seen, waiting = set(), [start]
        while waiting:
            for b in after.get(waiting.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    waiting.append(b)
        out |= {(start, b) for b in seen}
    return out


def polyhedral(nest, drawn: Picture, params):
    """Ordered pairs of drawn instances that use one cell, at least one of them to write it."""
    normal = normalise(nest.nest)
    leaves = leaves_of(normal.body)
    places = {k: [p for n, p in drawn.instances if n == k] for k in range(len(leaves))}
    for a, b in itertools.product(leaves, repeat=2):
        orders = list(earlier(a, b))
        for x, y in conflicts(a, b):
            rows = same_cell(x, y, normal.context)
            for p, q in itertools.product(places[a.number], places[b.number]):
                values = dict(params)
                values |= {axis.name: v for axis, v in zip(a.axes, p, strict=True)}
                values |= {f"{axis.name}'": v for axis, v in zip(b.axes, q, strict=True)}
                if all(r.holds(values) for r in rows) and any(
                    all(r.holds(values) for r in o) for o in orders
                ):
                    yield (a.number, p), (b.number, q)


@pytest.mark.parametrize("name", [*NESTS, *MORE])
def test_arrows_order_what_the_dependences_order(name):
    nest = lifted((NESTS | MORE)[name])
    drawn = picture(nest)
    assert drawn is not None and drawn.instances
    extent = EXTENTS[drawn.depth] + 2
    params = {p.name: extent for p in nest.nest.params}
    arrows = [((d.of, d.source), (d.to, d.target)) for d in drawn.dependences]
    assert len(set(arrows)) == len(arrows)
    assert closure(arrows) == closure(polyhedral(nest, drawn, params))


def test_kinds_distances_and_operators():
    drawn = picture(lifted(NESTS["gemm"]))
    assert {(d.kind, d.distance, d.combined) for d in drawn.dependences} == {("flow", (0, 0, 1), "pw(+)")}
    assert len(drawn.instances) == 64 and len(drawn.dependences) == 48 and drawn.axes == ("i", "j", "k")
    drawn = picture(lifted(MORE["sweep"]))  # a scan in every row, rows in order
    assert {(d.kind, d.distance, d.combined) for d in drawn.dependences} == {
        ("flow", (0, 1), "ps(+)"), ("flow", (1, 0), "")
    }  # fmt: skip
    drawn = picture(lifted(MORE["overwritten"]))
    assert {(d.of, d.to, d.kind, d.distance) for d in drawn.dependences} >= {
        (0, 1, "flow", (0,)), (0, 1, "anti", (1,))
    }  # fmt: skip


def test_sums_in_scalars_are_dependences():
    text = """void f(int n, float *restrict x, float *restrict out) {
#pragma mdh
{ float s = 0; for (int i = 0; i < n; i++) s += x[i]; out[0] = s; } }"""
    drawn = picture(lifted(text))
    carried = [d for d in drawn.dependences if d.of == d.to]
    assert {(d.kind, d.distance, d.combined) for d in carried} == {("flow", (1,), "pw(+)")}


def test_conditions_around_loops_are_statements_and_their_branches_are_looked_into():
    text = """void f(int m, int n, int *restrict on, float x[m][n + 1], float *restrict y) {
#pragma mdh
for (int i = 0; i < m; i++) {
  float s = 0;
  if (on[i] > 0) for (int j = 0; j < n; j++) s += x[i][j];
  else { s = 1; for (int k = 0; k < n; k++) x[i][k + 1] = x[i][k]; }
  y[i] = s; } }"""
    drawn = picture(lifted(text))
    assert [s.text for s in drawn.statements] == [
        "s = 0.0", "if (on[i] > 0) …", "s = s + x[i][j]", "s = 1.0", "x[i][k + 1] = x[i][k]", "y[i] = s"
    ]  # fmt: skip
    assert [s.axes for s in drawn.statements] == [("i",), ("i",), ("i", "j"), ("i",), ("i", "k"), ("i",)]
    places = {k: {p for n, p in drawn.instances if n == k} for k in range(6)}
    assert places[2] == places[4] == {(i, j) for i in range(6) for j in range(6)}
    found = {(d.of, d.to, d.kind, d.distance) for d in drawn.dependences}
    assert {(2, 2, "flow", (0, 1)), (4, 4, "flow", (0, 1)), (3, 5, "flow", (0,))} <= found
    assert not any(d.source[0] != d.target[0] for d in drawn.dependences)
    assert "as if it held" in drawn.text()


@pytest.mark.parametrize("file", sorted(LIFTED.glob("*.c")), ids=lambda f: f.stem)
def test_every_nest_has_a_picture_or_is_too_large(file):
    report = check_file(str(file))
    for nest in report.nests:
        drawn = picture(nest.lifted, report.bare.data) if nest.lifted else None
        if drawn is not None:
            assert drawn.instances and all(s.text for s in drawn.statements)
            count = len(drawn.statements)
            assert {k for k, _ in drawn.instances} <= set(range(count))


def test_locals_of_an_iteration_order_nothing():
    text = """void f(int n, float *restrict x, float *restrict y) {
#pragma mdh
for (int i = 0; i < n; i++) { float s = 2 * x[i]; y[i] = s * s; } }"""
    drawn = picture(lifted(text))
    assert {(d.kind, d.distance) for d in drawn.dependences} == {("flow", (0,))}


def test_words_say_what_is_drawn():
    drawn = picture(lifted(NESTS["triangle"]))
    assert drawn.text() == (
        "Loops: i, k. 21 instances of one statement are drawn. "
        "S1 to S1: flow of w, distance (0, 1), combined by pw(+)."
    )
    assert "No iteration waits" in picture(lifted(NESTS["transposed"])).text()


@pytest.mark.parametrize(
    "file", ["cholesky", "jacobi2d_time", "ccsdt_abcdef_gdab_efgc", "edit_distance", "scan"]
)
def test_drawings_are_small_and_well_formed(file):
    report = check_file(str(CORPUS / f"{file}.c"))
    for nest in report.nests:
        drawn = picture(nest.lifted, report.bare.data)
        text = svg.svg(drawn, 'a "name" <of> a nest')
        root = xml.dom.minidom.parseString(text).documentElement
        assert root.getAttribute("aria-label") == 'a "name" <of> a nest' and len(text) < 24_000
        left, top, width, height = map(float, root.getAttribute("viewBox").split())
        for path in root.getElementsByTagName("path"):
            for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path.getAttribute("d")):
                assert left <= float(x) <= left + width and top <= float(y) <= top + height
        points = sum(
            p.getAttribute("d").count("M")
            for p in root.getElementsByTagName("path")
            if "point" in p.getAttribute("class")
        )
        axes = svg.drawn_axes(drawn)
        assert len(axes) <= 3
        spots = {(k, tuple(p[a] if a < len(p) else -1 for a in axes)) for k, p in drawn.instances}
        assert points == len(spots)


@pytest.mark.parametrize("file", ["gemm", "black_scholes", "argmin", "mandelbrot", "cholesky", "user_op"])
def test_expressions_are_well_formed_mathml(file):
    report = check_file(str(CORPUS / f"{file}.c"))
    known = {"math", "mtable", "mtr", "mtd", "mrow", "mi", "mo", "mn", "mtext", "msub", "mfrac", "msqrt"}
    for nest in report.nests:
        for program in nest.lifted.programs:
            root = xml.dom.minidom.parseString(mathml(program)).documentElement
            assert {e.tagName for e in root.getElementsByTagName("*")} <= known
            words = "".join(
                n.data for e in root.getElementsByTagName("*") for n in e.childNodes if n.nodeType == 3
            )
            assert all(word in words for word in ("out_view", "md_hom", "inp_view", "where"))
            names = [d.name for d in program.hom.dims] + [b.name for b in program.buffers]
            assert all(name in words for name in names)


def test_expressions_keep_their_meaning():
    (program,) = lifted(
        "void f(int n, double a, double *restrict x, double *restrict y) {\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) y[i] = (a - (x[i] - 1)) * sqrt(x[i]) / (2 * a); }"
    ).programs
    text = mathml(program)
    assert "<mfrac>" in text and "<msqrt><mi>x</mi></msqrt>" in text
    bare = re.sub(r"<[^>]+>", "", text)
    assert "(a−(x−1.0))·x2.0·a" in bare, bare  # parentheses on the right of a difference; no others
