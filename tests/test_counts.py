"""Exact counts: against counting one by one, and against the memory that the loops as written touch."""

from __future__ import annotations

import doctest
import itertools
import random

import pytest

from lifter.polyhedral import Part, apart
from lifter.run_nest import run_nest
from mdh_core import counting
from mdh_core.counting import NotCountedError, count, number, total
from mdh_core.expr import Affine
from mdh_core.interpreter import BufferValue
from mdh_lift.counts import counts, usual_counts
from mdh_lift.estimate import estimated
from tests.lifting import lifted


def test_examples_of_the_module():
    assert doctest.testmod(counting).failed == 0


def random_rows(rng: random.Random, names: str) -> list[Affine]:
    box = {n: rng.randint(0, 6) for n in names}
    rows = [r for n in names for r in (Affine.of(n), Affine.number(box[n] - 1) - Affine.of(n))]
    for _ in range(rng.randint(0, 3)):
        terms = {n: rng.choice([-2, -1, -1, 0, 1, 1, 2]) for n in names}
        rows.append(Affine.from_dict(terms, rng.randint(-3, 6)))
    return rows


def points(rows, names):
    values = (dict(zip(names, p, strict=True)) for p in itertools.product(range(6), repeat=len(names)))
    return [v for v in values if all(r.evaluate(v) >= 0 for r in rows)]


def test_numbers_are_those_of_counting_one_by_one():
    rng = random.Random(5)
    for _ in range(300):
        names = "ijk"[: rng.randint(1, 3)]
        rows = random_rows(rng, names)
        assert number(rows, names) == len(points(rows, names)), rows


def test_polynomials_hold_for_all_parameters():
    rng = random.Random(6)
    i, j, n, m = (Affine.of(x) for x in "ijnm")
    tried = 0
    for _ in range(120):
        rows = [i, n - i - 1, j, m - j - 1]
        for _ in range(rng.randint(0, 2)):
            rows.append(Affine.from_dict({x: rng.choice([-1, 0, 1]) for x in "ijnm"}, rng.randint(-2, 2)))
        try:
            pieces = count(rows, "ij")
        except NotCountedError:
            continue
        for values in itertools.product(range(6), repeat=2):
            known = dict(zip("nm", values, strict=True))
            fixed = [r.substitute({x: Affine.number(v) for x, v in known.items()}) for r in rows]
            assert total(pieces, known) == len(points(fixed, "ij")), (rows, known)
            tried += 1
    assert tried > 2000


def test_unions_and_differences_of_images():
    rng = random.Random(7)
    for _ in range(60):
        images = []
        for _ in range(3):
            rows = tuple(random_rows(rng, "ij"))
            functions = tuple(
                Affine.from_dict({x: rng.choice([-1, 0, 1, 2]) for x in "ij"}, rng.randint(0, 3))
                for _ in "ab"
            )
            images.append((rows, functions))
        values = [{tuple(f.evaluate(p) for f in fs) for p in points(rows, "ij")} for rows, fs in images]
        whole = apart([Part((images[0], images[1])), Part((images[2],), (images[0],), hidden=0)])
        expected = values[0] | values[1] | (values[2] - values[0])
        assert sum(x if isinstance(x, int) else number(x, ["a0", "a1"]) for x in whole) == len(expected)
        last = apart([Part((images[2],), (images[0],), hidden=1)])
        names = ["a0"]
        assert sum(x if isinstance(x, int) else number(x, names) for x in last) == len(
            {v[1] for v in values[2] - values[0]}
        )


# --------------------------------------------------------------------------- nests


class Traced(list):
    """Elements that remember who was read before it was written, and what was written."""

    def __init__(self, values):
        super().__init__(values)
        self.first, self.written = set(), set()

    def __getitem__(self, k):
        if k not in self.written:
            self.first.add(k)
        return super().__getitem__(k)

    def __setitem__(self, k, value):
        self.written.add(k)
        super().__setitem__(k, value)


NESTS = {
    "gemm": "void f(int n, int m, int p, float A[n][p], float B[p][m], float C[n][m]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int k = 0; k < p; k++)\n"
    "C[i][j] += A[i][k] * B[k][j]; }",
    "fresh sums": "void f(int n, int m, float A[n][m], float w[n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) { w[i] = 0; for (int k = 0; k < m; k++) w[i] += A[i][k]; } }",
    "triangle": "void f(int n, float A[n][n], float w[n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) for (int k = 0; k <= i; k++) w[i] += A[i][k]; }",
    "stencil in time": "void f(int n, int t, float A[n], float B[n]) {\n#pragma mdh\n"
    "for (int s = 0; s < t; s++) {\n"
    "for (int i = 1; i < n - 1; i++) B[i] = A[i - 1] + A[i] + A[i + 1];\n"
    "for (int i = 1; i < n - 1; i++) A[i] = B[i - 1] + B[i + 1]; } }",
    "strided": "void f(int n, float x[3 * n + 2], float y[2 * n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) y[2 * i] = x[3 * i] + x[3 * i + 1]; }",
    "convolution": "void f(int n, int m, float x[n + m], float w[m], float y[n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) for (int k = 0; k < m; k++) y[i] += w[k] * x[i + k]; }",
    "factorisation": "void f(int n, double a[n][n]) {\n#pragma mdh\n"
    "for (int k = 0; k < n; k++) {\n"
    "for (int i = k + 1; i < n; i++) a[i][k] /= a[k][k];\n"
    "for (int i = k + 1; i < n; i++) for (int j = k + 1; j < n; j++) a[i][j] -= a[i][k] * a[k][j]; } }",
    "then used": "void f(int n, float x[n], float y[n + 1], float z[n]) {\n#pragma mdh\n{\n"
    "for (int i = 0; i < n; i++) y[i] = 2 * x[i];\n"
    "for (int i = 0; i < n; i++) z[i] = y[i] + y[i + 1]; } }",
    "transposed": "void f(int n, int m, float A[n][m], float B[m][n]) {\n#pragma mdh\n"
    "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) B[j][i] = A[i][j]; }",
}


@pytest.mark.parametrize("name", NESTS)
def test_cells_are_those_that_the_loops_touch(name):
    nest = lifted(NESTS[name])
    assert nest.status == "lifted", nest.diagnostics
    names = [p.name for p in nest.nest.params]
    for values in itertools.product((0, 1, 2, 3, 7), repeat=len(names)):
        params = dict(zip(names, values, strict=True))
        buffers = {}
        for b in nest.nest.buffers:
            extents = tuple(e.evaluate(params) for e in b.extents)
            cells = 1
            for e in extents:
                cells *= e
            buffers[b.name] = BufferValue(Traced([1.0] * max(1, cells)), extents)
        run_nest(nest.nest, params, buffers, {})
        found = counts(nest, params)
        assert found.exact, found.notes
        by_name = {b.name: b for b in found.buffers}
        for buffer, value in buffers.items():
            b = by_name[buffer]
            touched = (len(value.data.first), len(value.data.written))
            assert (b.first, b.written) == touched, (buffer, params)


@pytest.mark.parametrize(
    ("name", "params", "iterations", "flops", "formula"),
    [
        ("gemm", {"n": 3, "m": 4, "p": 5}, 60, 120, "m*n*p"),
        ("fresh sums", {"n": 3, "m": 4}, 12, 12, "m*n"),
        ("triangle", {"n": 4}, 10, 10, "(n^2 + n)/2"),
        ("stencil in time", {"n": 10, "t": 3}, 48, 3 * 8 * 3, "2*n*t - 4*t"),
        ("factorisation", {"n": 4}, 6 + 14, 6 + 2 * 14, "(n^3 - n)/3"),
    ],
)
def test_work_by_hand(name, params, iterations, flops, formula):
    found = counts(lifted(NESTS[name]), params)
    assert (found.iterations, found.flops, found.formula) == (iterations, flops, formula)


def test_intensity_of_a_matrix_product():
    found = counts(lifted(NESTS["gemm"]), {"n": 100, "m": 100, "p": 100})
    assert found.moved == 4 * 4 * 100 * 100
    assert found.intensity == 2 * 100**3 / found.moved
    assert {(k, t) for k, t, _ in found.operations} == {("add", "float"), ("multiply", "float")}


def test_what_is_no_exact_count_says_so():
    text = """void f(int n, const int *restrict at, const float *restrict x, float *restrict y) {
#pragma mdh
for (int i = 0; i < n; i++) y[i] = x[at[i]]; }"""
    found = counts(lifted(text), {"n": 50})
    assert not found.exact and "depend on data" in found.notes[0]
    assert {b.name: (b.first, b.exact) for b in found.buffers} == {
        "at": (50, True), "x": (50, False), "y": (0, True)
    }  # fmt: skip


def test_sizes_of_the_directive_are_counted():
    text = NESTS["gemm"].replace("#pragma mdh", "#pragma mdh sizes(n=6, m=5, p=4)")
    sizes, found = usual_counts(lifted(text))
    assert sizes == {"n": 6, "m": 5, "p": 4} and found.iterations == 120
    assert usual_counts(lifted(text), {"p": 1})[1].iterations == 30
    assert found.as_json()["buffers"][0]["moved"] == 4 * 24


@pytest.mark.parametrize(
    ("statement", "each"),
    [
        ("y[i] = 2 * x[i] + 1", {("multiply", "float"): 1, ("add", "float"): 1}),
        ("y[i] = x[i] > 0 && x[i] < 1 ? x[i] : -x[i]",
         {("compare", "float"): 2, ("select", "float"): 1, ("negate", "float"): 1}),
        ("y[i] = sqrtf(x[i + 2 * 3])", {("function", "float"): 1}),
        ("y[i] = twice(x[i]) / 3", {("multiply", "float"): 1, ("divide", "float"): 1}),
        ("y[i] = (double) x[i] * 3.0", {("convert", "float"): 2, ("multiply", "float"): 1}),
    ],
)  # fmt: skip
def test_exact_counts_and_estimates_agree_on_what_an_operation_is(statement, each):
    text = f"""#include <math.h>
static inline float twice(float v) {{ return 2 * v; }}
void f(float *restrict x, float *restrict y) {{
#pragma mdh
for (int i = 0; i < 50; i++) {statement}; }}"""
    nest = lifted(text)
    found = counts(nest, {})
    assert {(kind, of): n for kind, of, n in found.operations} == {key: 50 * n for key, n in each.items()}
    assert estimated(nest.nest).operations == sum(n for *_, n in found.operations)
