"""Nests that need data, sizes or places of a certain kind to be run by themselves: verified as a user would."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emit.guards_text import reach_of
from lifter.lift import LiftedNest
from mdh_core.expr import INT32, INT64, Affine, Assign, Binary, Const, Declare, Load, Var, While
from mdh_core.ir import Buffer, Param, Sequential, programs_of
from mdh_lift import iterations, kernels
from tests.lifting import check_meaning, lifted

ROOT = Path(__file__).resolve().parents[1]

NESTS = {
    # what is looked up is a row of a table whose rows have d elements
    "rows": """void rows(int n, int d, const int *restrict label, const float *restrict x, float *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int t = 0; t < d; t++) y[i * d + t] = x[label[i] * d + t];
}""",
    "sums": """void sums(int n, int d, int k, const float *restrict x, const int *restrict label, float sum[k * d]) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        int b = label[i];
        for (int t = 0; t < d; t++) sum[b * d + t] += x[i * d + t];
    }
}""",
    # blocks behind what a loop over data counts, and behind what is looked up there
    "blocks": """void blocks(int nb, int k, const int *restrict ptr, const int *restrict col, const float *restrict val,
            const float *restrict x, float *restrict y) {
#pragma mdh
    for (int b = 0; b < nb; b++)
        for (int r = 0; r < k; r++) {
            float s = 0;
            for (int p = ptr[b]; p < ptr[b + 1]; p++)
                for (int c = 0; c < k; c++) s += val[(p * k + r) * k + c] * x[col[p] * k + c];
            y[b * k + r] = s;
        }
}""",
    # sums of sparse rows in their cells, which a row without elements leaves alone
    "sparse": """void sparse(int n, int m, const int *restrict p, const int *restrict col, const double *restrict v,
            const double *restrict x, double *restrict y, double *restrict most) {
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            y[i * m + j] = 0;
            for (int k = p[i]; k < p[i + 1]; k++) {
                y[i * m + j] += v[k] * x[col[k] * m + j];
                most[i * m + j] = v[k] > most[i * m + j] ? v[k] : most[i * m + j];
            }
        }
}""",
    # a sparse matrix times a dense one, whose rows are read along; what a row needs is looked up once
    "dense": """void dense(int n, int m, const int *restrict p, const int *restrict col, const float *restrict v,
           float (*restrict x)[m], float (*restrict y)[m]) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++) y[i][j] = 0;
        for (int k = p[i]; k < p[i + 1]; k++) {
            const float a = v[k];
            const int c = col[k];
            for (int j = 0; j < m; j++) y[i][j] += a * x[c][j];
        }
    }
}""",
    "added": """void added(int n, int m, const int *restrict p, const int *restrict col, const double *restrict v,
           const double *restrict x, double *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int k = p[i]; k < p[i + 1]; k++)
            for (int j = 0; j < m; j++) y[i * m + j] += v[k] * x[col[k] * m + j];
}""",
    # sparse rows only where data say so
    "active": """void active(int n, int m, const int *restrict p, const int *restrict col, const float *restrict v,
            const float *restrict x, const float *restrict w, float *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            float s = 0, t = w[i * m + j];
            if (t > 0) {
                for (int k = p[i]; k < p[i + 1]; k++) s += v[k] * x[col[k] * m + j];
                t = s > t ? s : t;
            } else if (t < 0)
                for (int k = p[i]; k < p[i + 1]; k++) t = v[k] < t ? v[k] : t;
            y[i * m + j] = s - 2 * t;
        }
}""",
    # data is added to where a row begins
    "in_a_row": """void in_a_row(int n, int c, const float *restrict x, const int *restrict label, float *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++) y[i] = -x[i * c + label[i]];
}""",
    # rows and columns are computed by way of floating point: the array is flat
    "scaled": """void scaled(int h, int w, const unsigned char *restrict s, unsigned char *restrict d) {
#pragma mdh
    for (int y = 0; y < 2 * h; y++)
        for (int x = 0; x < 2 * w; x++) {
            float fy = (y + 0.5f) * 0.5f - 0.5f, fx = (x + 0.5f) * 0.5f - 0.5f;
            if (fy < 0) fy = 0;
            if (fx < 0) fx = 0;
            d[y * 2 * w + x] = s[(int)fy * w + (int)fx];
        }
}""",
    # which row is computed, and there is one only where there are some: k = 0 means nothing
    "nearest": """void nearest(int n, int d, int k, const float *restrict x, int *restrict label, float sum[k * d]) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        float best = 1e30f;
        int at = 0;
        for (int c = 0; c < k; c++) {
            float s = x[i * d] * c;
            if (s < best) { best = s; at = c; }
        }
        label[i] = at;
        for (int t = 0; t < d; t++) sum[at * d + t] += x[i * d + t];
    }
}""",
    # a table with ends: at m = 0 the original reads in front of it; its loop counts as work
    "table": """void table(int n, int m, const double *restrict xs, const double *restrict q, double *restrict out) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        double r = 0;
        if (q[i] > xs[m - 1]) r = 1;
        else
            for (int k = 0; k < m; k++)
                if (xs[k] <= q[i]) r = xs[k] * 0.5;
        out[i] = r;
    }
}""",
    "chosen": """void chosen(int n, int mode, const double *restrict a, double *restrict o) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        double s;
        if (mode) { s = 1; for (int j = 0; j < 4; j++) s *= a[i * 4 + j]; }
        else { s = 0; for (int j = 0; j < 4; j++) s += a[i * 4 + j]; }
        o[i] = s;
    }
}""",
    "borders": """void borders(int n, int m, const int *restrict s, int *restrict d) {
#pragma mdh
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (i == 0) d[i * (m + 1) + j] = j;
            else if (j == 0) d[i * (m + 1) + j] = i;
            else d[i * (m + 1) + j] = d[(i - 1) * (m + 1) + j - 1] + s[i];
        }
}""",
    # an array is there, or it is not
    "optional": """void optional(int n, int m, float *restrict y, const float *restrict bias) {
#pragma mdh
    for (int i = 0; i < n; i++)
        if (bias)
            for (int j = 0; j < m; j++) y[i * m + j] += bias[j];
}""",
    # row p is read in all iterations but its own
    "eliminated": """void eliminated(int n, int m, int p, double A[n][m], const double *factor) {
#pragma mdh sizes(n=60, m=60)
    for (int i = 0; i < n; i++)
        if (i != p)
            for (int j = 0; j < m; j++) A[i][j] -= factor[i] * A[p][j];
}""",
    # a member that only a condition reads; a struct that is there, or is not; a sum in one of several members
    "member": """struct picked { int kind; double w; };
void member(int n, int m, const struct picked *restrict o, const int *restrict x, int *restrict z) {
#pragma mdh
    if (o->kind == 1)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++) z[i * m + j] = x[j];
}""",
    "perhaps": """struct several { int n; int *p; };
void perhaps(int m, const struct several *s, int *restrict y) {
#pragma mdh
    if (s)
        for (int i = 0; i < m; i++)
            for (int j = 0; j < s->n; j++) y[i] += s->p[j];
}""",
    "kept": """struct kept { int zero, sum; };
int kept(int n, int m, const int *restrict a) {
    struct kept st;
    st.zero = 1;
    st.sum = 0;
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (a[j] != 3) st.sum += a[i * m + j];
    return st.sum;
}""",
    # what the source cuts to a byte comes again and again; iterators that are short count as others do
    "cut": """void cut(long n, short m, const float *restrict x, const float *restrict w, float *restrict y) {
#pragma mdh sizes(n=1000, m=3)
    for (long j = 0; j < n; j++)
        for (short k = 0; k < m; k++)
            y[j * m + k] = x[(signed char)j + 128] * w[k + 1] + x[(unsigned char)(j + k)] * w[k];
}""",
    # rows that data names, in tiles wider than they are
    "embedded": """void embedded(int n, int m, int k, int r, float O[restrict n][m], const float A[restrict n][k],
              const float B[restrict r][m], const int *restrict id) {
#pragma mdh sizes(n=90, m=130, k=40, r=30)
    for (int i = 0; i < n; i++)
        for (int l = 0; l < k; l++)
            for (int j = 0; j < m; j++) O[i][j] += A[i][l] * B[id[l]][j];
}""",
    # counters that run towards each other, declared outside of the nest, which sets them
    "turned": """void turned(int n, int m, float *a) {
    int i, j, k;
#pragma mdh
    for (k = 0; k < n; k++)
        for (i = 0, j = m - 1; i < j; i++, j--) { float t = a[k * m + i]; a[k * m + i] = a[k * m + j]; a[k * m + j] = t; }
}""",
    # by steps that are a variable, which is not 0
    "butterflies": """void butterflies(int n, int half, float *x, const float *w) {
#pragma mdh
    for (int b = 0; b < n; b += 2 * half)
        for (int k = 0; k < half; k++) {
            float u = x[b + k], v = x[b + k + half] * w[k];
            x[b + k] = u + v;
            x[b + k + half] = u - v;
        }
}""",
    # sums of sparse rows in cells of which a condition leaves some alone
    "masked": """void masked(int n, int m, const int *restrict p, const int *restrict col, const double *restrict v,
            const double *restrict x, double *restrict y, const int *restrict w) {
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            if (w[i * m + j] < 0) { y[i * m + j] = -1; continue; }
            for (int k = p[i]; k < p[i + 1]; k++) y[i * m + j] += v[k] * x[col[k] * m + j];
        }
}""",
    # sums of sparse rows that begin at 0: written past the caches, but for rests of rows
    "zeroed": """void zeroed(int n, int m, const int *restrict p, const int *restrict col, const double *restrict v,
            const double *restrict x, double *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++) y[i * m + j] = 0;
        for (int k = p[i]; k < p[i + 1]; k++)
            for (int j = 0; j < m; j++) y[i * m + j] += v[k] * x[col[k] * m + j];
    }
}""",
    # counters that begin where they stand outside, and are read behind the nest
    "ends": """void ends(int n, int *a, int *o) {
    int lo = 0, hi = n - 1;
#pragma mdh
    while (lo < hi) { int t = a[lo]; a[lo++] = a[hi]; a[hi--] = t; }
    o[0] = lo; o[1] = hi;
}""",
    # ... of which one ends where the other began
    "swapped": """void swapped(int n, int k, int *restrict a, int *restrict b, int *o) {
    int i, j;
#pragma mdh
    { j = k; for (k = 0; k < n; k++) a[k] = 1; for (i = j; i < n; i++) b[i] = 2; }
    o[0] = k + 3 * i;
}""",
    # statements that stay in order, of which nothing says where their pointers point: how far they reach is tested
    "tridiagonal": """void tridiagonal(int n, int m, const float *a, const float *b, const float *c, const float *r,
            float *u, float *g, float *o) {
    float d = b[0];
    u[0] = r[0] / d;
#pragma mdh
    {
        for (int j = 1; j < n; j++) {
            g[j] = c[j - 1] / d;
            d = b[j] - a[j] * g[j];
            u[j] = (r[j] - a[j] * u[j - 1]) / d;
        }
        for (int j = n - 2; j >= 0; j--) u[j] -= g[j + 1] * u[j + 1];
        for (int j = 0; j < m; j++) o[j] = 2 * c[j];
    }
}""",
    "triangle": """void triangle(int n, int m, const int *x, int *y, int *o) {
#pragma mdh
    {
        int s = 1;
        for (int i = n - 1; i >= 0; i--)
            for (int j = i; j < n; j += 2) {
                s = s / 3 + x[2 * j - i] % 1000;
                y[j + 1] = s;
            }
        for (int i = 0; i < m; i++) o[i] = x[i] + 1;
    }
}""",
    # a counter beside a sum in a cell that is not there where nothing is added
    "beside": """void beside(int n, int *a, int *o) {
    int k = 0;
#pragma mdh
    for (int i = 0; i < n; i++, k += 2) o[1] += a[k];
    o[0] = k;
}""",
}


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("nests")
    (folder / "k.c").write_text("\n".join(NESTS.values()) + "\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "mdh_lift", "verify", "k.c", "--format", "json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {n["name"].split("::")[1]: n for n in json.loads(done.stdout)["nests"]}


@pytest.mark.parametrize("name", NESTS)
def test_verified(verified: dict[str, Any], name: str) -> None:
    found = verified[name]
    assert found["verification"]["cases"] >= 40 and found["certificate"]["holds"], found
    assert len(found["verification"]["sizes"]) >= 15, found["verification"]["sizes"]


def test_sizes_at_which_the_original_fails_are_told(verified: dict[str, Any]) -> None:
    found = verified["nearest"]["verification"]
    told = [note for note in found["notes"] if "the original" in note]
    assert told and all(note.startswith("d=") and "k=0," in note for note in told), found["notes"]
    left_out = {note.split(": ")[0] for note in told}
    assert not left_out & set(found["sizes"])


@pytest.mark.parametrize("name", ["tridiagonal", "triangle"])
def test_how_far_statements_in_order_reach_is_no_secret_of_the_data(verified: dict[str, Any], name: str) -> None:
    """The kernel runs where its arrays are apart: one that always declines would not be verified."""
    assert verified[name]["status"] == "partial"


# --------------------------------------------------------------------------- the parts of it


def nest_of(name: str) -> LiftedNest:
    found = lifted(NESTS[name])
    assert found.program, found.diagnostics
    return found


@pytest.mark.parametrize(
    ("step", "before", "ends"),
    [
        (Binary("+", Var("k", INT64), Const(1, INT64), INT64), (), {"3", "n - 1"}),
        (Binary("+", Var("k", INT64), Const(-1, INT64), INT64), (), None),
        (Load("x", (Var("k", INT64),), INT64), (), None),
        (Binary("+", Var("k", INT64), Const(1, INT64), INT64), (Assign(Var("k", INT64), Const(-9, INT64)),), None),
    ],
)
def test_how_far_counted_statements_reach(step, before, ends) -> None:
    """A variable that jumps as data say, or was set to something else, is not between its ends."""
    k, end, n = Var("k", INT64), Var("k_end", INT64), Var("n", INT64)
    x = Buffer("x", INT64, (None,))
    body = (
        Declare("k_end", INT64, n), Declare("k", INT64, Const(3, INT64)), *before,
        While(Binary("<", k, end, INT32), (Assign(Load("x", (k,), INT64), n), Assign(k, step))),
    )  # fmt: skip
    found = reach_of(x, [(Sequential(body, (Param("n", INT64),), (x,)), ())])
    if ends is None:
        assert found is None
    else:  # the least and the greatest of both, as it may not be known which is which
        assert found is not None and [set(texts) for texts in found] == [ends, ends]


def test_loops_of_scalar_functions_are_work() -> None:
    nest = nest_of("table")
    assert iterations.points(nest.program, {"n": 10, "m": 1}) == 10
    assert iterations.points(nest.program, {"n": 10, "m": 50}) == 500
    assert iterations.points(nest.program, {"n": 0, "m": 50}) == 0


def test_an_index_behind_a_border_is_taken_apart_as_it_is_meant() -> None:
    nest = nest_of("borders")
    i, j = Affine.of("i"), Affine.of("j")
    (p,) = programs_of(nest.program)
    assert {a.index for a in p.inp.accesses if a.buffer == "d"} == {(i - 1, j - 1)}
    assert check_meaning(nest, trials=4) > 2


def test_an_index_that_is_cut_is_computed_and_that_of_a_short_iterator_is_affine() -> None:
    (p,) = programs_of(nest_of("cut").program)
    k = Affine.of("k")
    assert {(a.buffer, a.index) for a in p.inp.accesses} == {("w", (k + 1,)), ("w", (k,))}


def test_a_variable_that_branches_set_is_defined_everywhere() -> None:
    nest = nest_of("chosen")
    assert check_meaning(nest, trials=4) > 2
    names = {b.name for b in nest.temporaries}
    first, last = nest.programs  # none that fills the temporary once more, for nobody
    assert [s.buffer for s in last.out.stores] == ["o"] and names and not any(a.buffer in names for a in first.inp.accesses)


def test_the_value_after_the_nest_is_of_before_it() -> None:
    """Final values are assigned so that none is computed from a variable that another has changed."""
    assert [f.name for f in lifted(NESTS["swapped"]).iterators_final] == ["i", "k"]
    both = NESTS["swapped"].replace("int *o) {\n    int i, j;", "int i, int *o) {\n    int j, l;")
    both = both.replace("j = k; for (k = 0;", "j = k; l = i; for (k = l;")
    found = lifted(both).diagnostics[0]
    assert found.code == "MDH210" and "computed from one that the nest changes" in found.message


def test_the_value_after_the_nest_does_not_wrap(tmp_path: Path) -> None:
    """``i + 3 < n`` is defined for all n, and so is what it leaves in i: n - 3 need not be an ``int``."""
    text = "int f(int n, int k, float *restrict x) {\n int i;\n#pragma mdh\n{} return i; }"
    loops = "for (i = 0; i + 3 < n; i += 4) x[i] = 1;", "for (i = k; i < n; i++) x[i - k] = 1;"
    for at, loop in enumerate(loops):
        after = kernels.after_text(lifted(text.replace("{}", loop)))
        source, made = tmp_path / f"a{at}.c", tmp_path / f"a{at}.so"
        source.write_text(f"int f(int n, int k) {{ int i = 0; {after} return i; }}\n")
        words = ["cc", "-O2", "-fwrapv", "-shared", "-fPIC", str(source), "-o", str(made)]
        subprocess.run(words, check=True)
        f = ctypes.CDLL(str(made)).f
        low, high = -(2**31), 2**31 - 1
        for n, k in ((low, 0), (low + 2, 5), (low + 3, 0), (0, 0), (3, 3), (4, 0), (9, 4), (low, high), (high - 4, 1)):
            run = range(k, n) if at else range(0, n - 3, 4)
            assert f(n, k) == (run[-1] + (1 if at else 4) if run else (k if at else 0)), (loop, n, k)
