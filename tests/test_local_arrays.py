"""Arrays that a nest declares: elements as variables, and tiles of other arrays taken away."""

from __future__ import annotations

import pytest

from certify.certificate import certificate
from lifter.trees import loops_in, tree_exprs
from mdh_core.expr import Load, walk
from mdh_core.rules import verify
from tests.lifting import check_meaning, check_refused_loop, lifted, nests, operators
from tests.test_frontend_c import same

ELEMENTS = {
    "a small vector": """int v[3], w[3];
        for (int k = 0; k < 3; k++) v[k] = x[3*i + k];
        w[0] = v[1] - v[2]; w[1] = v[2] - v[0]; w[2] = v[0] - v[1];
        for (int k = 0; k < 3; k++) y[3*i + k] = w[k];""",
    "sorted": """int v[4] = { x[i], x[i + 1], x[i + 2], x[i + 3] };
        for (int a = 0; a < 3; a++)
          for (int b = a + 1; b < 4; b++)
            if (v[b] < v[a]) { int t = v[a]; v[a] = v[b]; v[b] = t; }
        y[i] = 10 * v[1] + v[2];""",
    "downwards, by two, in an old loop": """int k, v[5];
        for (k = 4; k >= 0; k--) v[k] = x[i + k] * k;
        for (k = 1; k < 5; k += 2) v[k] -= v[k - 1];
        y[i] = v[0] + 3 * v[1] + 5 * v[2] + 7 * v[3] + 11 * v[4];""",
    "conditions": """int v[2];
        if (x[i] > 3) { v[0] = x[i]; v[1] = 1; } else { v[0] = 2; v[1] = x[i]; }
        y[i] = v[0] * 3 + v[1];""",
    "outside of it where it is not used": """int v[3], s = 0;
        for (int k = 0; k < 3; k++) { v[k] = x[i + k]; if (k > 0) s += v[k - 1] * k; }
        for (int k = 0; k < 3; k++) s += (k < 2 ? v[k + 1] : 100) + (k > 0 && v[k - 1] > 0);
        y[i] = s;""",
    "initial values": """int a[2][3] = {{1, 2}, {x[i]}}, b[2][2] = {1, 2, 3}, c[3] = {0}, d[] = {4, x[i], 6};
        c[1] = d[1];
        y[i] = 0;
        for (int r = 0; r < 2; r++)
          for (int k = 0; k < 3; k++) y[i] += (r + 2 * k + 1) * a[r][k] + c[k] * d[k];
        for (int r = 0; r < 2; r++) y[i] += b[r][0] * 7 + b[r][1];""",
    "initial values with braces inside of others": """int a[2][2][2] = {{{1, 2}, {3, 4}}, {{x[i]}}}, b[1][2] = {{5, 6}};
        y[i] = b[0][0] - b[0][1];
        for (int r = 0; r < 8; r++) y[i] += (r + 1) * a[r / 4][r / 2 % 2][r % 2];""",
    "tables": """static const int dx[4] = {1, 0, -1, 0}, dy[4] = {0, 1, 0, -1};
        const int w[] = {1, 2, 3, 4};
        int s = 0;
        for (int d = 0; d < 4; d++) s += w[d] * x[8 + i + dx[d] + 3 * dy[d]];
        y[i] = s;""",
    "a loop over more in between": """int s[2] = {0};
        for (int j = 0; j < n; j++)
          for (int k = 0; k < 2; k++) s[k] += x[j + k] * (i + k);
        y[i] = s[0] - s[1];""",
    "a matrix": """int m[2][2] = {{1, 1}, {1, 0}}, p[2][2];
        for (int r = 0; r < 2; r++)
          for (int c = 0; c < 2; c++) {
            p[r][c] = 0;
            for (int k = 0; k < 2; k++) p[r][c] += m[r][k] * (m[k][c] + x[i]);
          }
        y[i] = p[0][0] + 2 * p[0][1] + 3 * p[1][0] + 4 * p[1][1];""",
    "a counter": """int v[6], k = 0;
        for (int a = 0; a < 2; a++)
          for (int b = 0; b < 3; b++) v[k++] = x[i + a + b];
        y[i] = v[0] + 2 * v[1] + 3 * v[2] + 4 * v[3] + 5 * v[4] + 6 * v[5];""",
    "declared in the loop that counts it": """int s = 0, u[2] = {x[i], 3};
        for (int k = 0; k < 2; k++) {
          int v[2] = {k, u[k]};
          for (int l = 0; l < 2; l++) s = 3 * s + v[l];
        }
        y[i] = s;""",
    "two of one name": """int s = 0;
        { int v[2]; v[0] = x[i]; v[1] = 2; s += v[0] * v[1]; }
        { int v[3] = {x[i + 1]}; s += v[0] + 5 * v[1] + v[2]; }
        y[i] = s;""",
    "what does not fit": """unsigned char v[3]; short w[2];
        for (int k = 0; k < 3; k++) v[k] = 200 * x[i + k];
        w[0] = v[0] * v[1] * v[2]; w[1] = -v[1];
        y[i] = w[0] + w[1];""",
    "behind pointers": """int v[4]; int *p = v + 1;
        v[0] = 1; p[0] = x[i]; *(p + 1) = 3; v[3] = 4;
        y[i] = v[1] + 10 * p[1] + *v;""",
    "a while": """int v[2] = {x[i], 17}, c = 0;
        while (v[0] < v[1] && c < 9) { v[0] += 3; c++; }
        y[i] = v[0] * 100 + c;""",
}  # fmt: skip


def elements(statements: str) -> str:
    return f"#pragma mdh\n  for (int i = 0; i < n; i++) {{\n        {statements}\n  }}"


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_variables(tmp_path, name, n):
    one = same(tmp_path, "int *y, int n, const int *x", elements(ELEMENTS[name]), n=n)
    loads = {k.buffer for e in tree_exprs(one.body) for k in walk(e) if isinstance(k, Load)}
    assert loads <= {"x", "y"}


@pytest.mark.parametrize("name", ELEMENTS)
def test_iterations_have_arrays_of_their_own(name):
    text = f"void f(int n, const int *restrict x, int *restrict y)\n{{\n{elements(ELEMENTS[name])}\n}}\n"
    found = lifted(text)
    assert found.status == "lifted", found.diagnostics
    assert operators(found).startswith("i:cc")
    assert check_meaning(found, trials=20) > 3
    assert not certificate(found.nest, found.program).refuted


def test_structs():
    text = """struct p { float a, b; };
void f(int n, const float *restrict x, float *restrict y)
{
#pragma mdh
  for (int i = 0; i < n; i++) {
    struct p v[2] = {{1, 2}};
    v[1].a = x[i]; v[1].b = x[i] + v[0].b;
    y[i] = v[0].a * v[1].a + v[1].b;
  }
}
"""
    found = lifted(text)
    assert found.status == "lifted" and check_meaning(found, trials=20) > 3


# --------------------------------------------------------------------------- tiles

MIN = "#define MIN(a, b) ((a) < (b) ? (a) : (b))"
SUM = "for (int i = ii; i < MIN(ii + 3, n); i++) for (int k = kk; k < MIN(kk + 3, n); k++)"
INNER = "for (int j = jj; j < MIN(jj + 3, n); j++)"
TILES = "for (int ii = 0; ii < n; ii += 3) for (int jj = 0; jj < n; jj += 3)"

PRODUCTS = {
    "one operand": """for (int jj = 0; jj < n; jj += 3)
        for (int kk = 0; kk < n; kk += 3) {
          int tb[3][3];
          for (int k = kk; k < MIN(kk + 3, n); k++)
            for (int j = jj; j < MIN(jj + 3, n); j++) tb[k - kk][j - jj] = b[n*k + j];
          for (int i = 0; i < n; i++)
            for (int k = kk; k < MIN(kk + 3, n); k++)
              for (int j = jj; j < MIN(jj + 3, n); j++) c[n*i + j] += a[n*i + k] * tb[k - kk][j - jj];
        }""",
    "turned": """for (int jj = 0; jj < n; jj += 3)
        for (int kk = 0; kk < n; kk += 3) {
          int tb[3][1 + 2];
          for (int k = 0; k < MIN(3, n - kk); k++)
            for (int j = 0; j < MIN(3, n - jj); j++) tb[j][k] = b[n*(kk + k) + jj + j];
          for (int i = 0; i < n; i++)
            for (int j = 0; j < MIN(3, n - jj); j++)
              for (int k = 0; k < MIN(3, n - kk); k++) c[n*i + jj + j] += a[n*i + kk + k] * tb[j][k];
        }""",
    "all three": TILES + """ {
          int acc[3][3] = {{0}};
          for (int kk = 0; kk < n; kk += 3) {
            int ta[3][3], tb[3][3];
            for (int i = ii; i < MIN(ii + 3, n); i++)
              for (int k = kk; k < MIN(kk + 3, n); k++) ta[i - ii][k - kk] = a[n*i + k];
            for (int k = kk; k < MIN(kk + 3, n); k++)
              for (int j = jj; j < MIN(jj + 3, n); j++) tb[k - kk][j - jj] = b[n*k + j];
            """ + SUM + INNER + """ acc[i - ii][j - jj] += ta[i - ii][k - kk] * tb[k - kk][j - jj];
          }
          for (int i = ii; i < MIN(ii + 3, n); i++)
            for (int j = jj; j < MIN(jj + 3, n); j++) c[n*i + j] += acc[i - ii][j - jj];
        }""",
    "begun with the cells": TILES + """ {
          int acc[3][3];
          for (int i = ii; i < MIN(ii + 3, n); i++)
            for (int j = jj; j < MIN(jj + 3, n); j++) acc[i - ii][j - jj] = c[n*i + j];
          for (int kk = 0; kk < n; kk += 3) """ + SUM + INNER + """ acc[i - ii][j - jj] += a[n*i + k] * b[n*k + j];
          for (int i = ii; i < MIN(ii + 3, n); i++)
            for (int j = jj; j < MIN(jj + 3, n); j++) c[n*i + j] = acc[i - ii][j - jj];
        }""",
    "filled up with zeros": TILES + """ {
          int acc[3][3];
          for (int i = 0; i < 3; i++) for (int j = 0; j < 3; j++) acc[i][j] = 0;
          for (int kk = 0; kk < n; kk += 3) {
            int ta[3][3], tb[3][3];
            for (int i = 0; i < 3; i++)
              for (int k = 0; k < 3; k++)
                if (ii + i < n && kk + k < n) ta[i][k] = a[n*(ii + i) + kk + k]; else ta[i][k] = 0;
            for (int k = 0; k < 3; k++)
              for (int j = 0; j < 3; j++)
                tb[k][j] = kk + k < n && jj + j < n ? b[n*(kk + k) + jj + j] : 0;
            for (int i = 0; i < 3; i++)
              for (int j = 0; j < 3; j++)
                for (int k = 0; k < 3; k++) acc[i][j] += ta[i][k] * tb[k][j];
          }
          for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
              if (ii + i < n && jj + j < n) c[n*(ii + i) + jj + j] += acc[i][j];
        }""",
}  # fmt: skip

SIGNATURE = "const int *a, const int *b, int *c, int n"


@pytest.mark.parametrize("n", [0, 3, 4, 5, 7])
@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_are_what_they_were_made_of(tmp_path, name, n):
    one = same(tmp_path, SIGNATURE, f"#pragma mdh\n  {PRODUCTS[name]}", MIN, n=n)
    loads = {k.buffer for e in tree_exprs(one.body) for k in walk(e) if isinstance(k, Load)}
    assert loads == {"a", "b", "c"}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_products(name):
    found = lifted(f"{MIN}\nvoid f({SIGNATURE})\n{{\n#pragma mdh\n  {PRODUCTS[name]}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    assert sorted(operators(found).split()) == ["i:cc", "j:cc", "k:pw(+)"]
    assert check_meaning(found, trials=20) > 3


OTHERS = {
    "a transposition": (
        """for (int ii = 0; ii < n; ii += 2)
        for (int jj = 0; jj < n; jj += 4) {
          int t[4][3], ie = MIN(2, n - ii), je = MIN(4, n - jj);
          for (int i = 0; i < ie; i++) for (int j = 0; j < je; j++) t[j][i] = a[n*(ii + i) + jj + j];
          for (int j = 0; j < je; j++) for (int i = 0; i < ie; i++) c[n*(jj + j) + ii + i] = t[j][i];
        }""",
        "j:cc i:cc",
    ),
    "a window of a row": (
        """for (int ii = 1; ii < n - 1; ii += 4) {
          int t[6];
          for (int i = 0; i < MIN(ii + 5, n) - ii + 1; i++) t[i] = a[ii + i - 1];
          for (int i = 0; i < MIN(ii + 5, n) - ii - 1; i++) c[ii + i] = t[i] + t[i + 1] + t[i + 2];
        }""",
        None,  # that all of it was copied is not plain
    ),
    "with a bound that changes in between": (
        """for (int i = 0; i < n; i += 4) {
          int t[4], e = MIN(4, n - i);
          for (int u = 0; u < e; u++) t[u] = a[i + u];
          e = e - 1;
          for (int u = 0; u < e; u++) c[i + u] = t[u];
        }""",
        None,
    ),
    "rows of sums, longer than what may be variables": (
        """for (int i = 0; i < n; i++) {
          int h[80] = {0};
          for (int j = 0; j < n; j++) for (int k = 0; k < 80; k++) h[k] += a[n*i + j] * b[k];
          for (int k = 0; k < 80; k++) c[80*i + k] = h[k];
        }""",
        "i:cc j:pw(+) k:cc",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_tiles(tmp_path, name):
    loops, wanted = OTHERS[name]
    text = f"{MIN}\nvoid f({SIGNATURE})\n{{\n#pragma mdh\n  {loops}\n}}\n"
    if wanted is None:
        check_refused_loop(text, loops, "MDH006", "`t` is declared inside the nest")
        return
    for n in (0, 2, 3, 5):
        same(tmp_path, SIGNATURE, f"#pragma mdh\n  {loops}", MIN, cells=512, n=n)
    found = lifted(text)
    assert sorted(operators(found).split()) == sorted(wanted.split())
    assert check_meaning(found, trials=20) > 3


def test_what_is_known_of_sizes_is_known_to_the_certificate():
    """Cells are one for each element where `n` is at least 2, which is tested; types of moved iterators are theirs."""
    sums = """for (int i = 0; i < n; i += 4) {
      int m = n, t[4] = {0};
      for (int k = 0; k < m; k++) for (int u = 0; u < 4; u++) t[u] += a[k] * b[i + u];
      m = m - 1;
      for (int u = 0; u < 4; u++) c[m * u] = t[u];
    }"""
    turned = """for (int i = 0; i < n; i += 4) {
      int t[4];
      for (int u = i; u < i + 4; u++) t[u - i] = a[u] * u;
      for (int u = 0; u < 4; u++) c[i + u] = t[3 - u];
    }"""
    for loops, assume in ((sums, ("n - 2 >= 0",)), (turned, ())):
        found = lifted(f"void f({SIGNATURE.replace('*', '*restrict ')})\n{{\n#pragma mdh\n{loops}\n}}\n")
        assert found.status == "lifted" and found.nest.directive.assume == assume
        assert not certificate(found.nest, found.program).refuted
        assert not [line for p in found.programs for line in verify(p)]


def test_no_size_is_tested_for_sums_that_stay():
    """The array is no tile of cells: it is changed behind the store."""
    loops = SUMS.replace("c[n*(i + u) + j + v] = acc[u][v];", "c[n*(i + u) + j + v] = acc[u][v]; c[0] = acc[1][1];")
    (nest,) = nests(f"void f({SIGNATURE})\n{{\n#pragma mdh\n{loops}\n}}\n")
    assert nest.directive.assume == ()


def test_an_array_that_nothing_reads_is_nothing():
    loop = "for (int i = 0; i < n; i++) { int v[300], w[300] = {0}; y[i] = x[i]; }"
    found = lifted(f"void f(int n, const int *x, int *y)\n{{\n#pragma mdh\n{loop}\n}}\n")
    assert found.status == "lifted" and operators(found) == "i:cc"


@pytest.mark.parametrize(
    ("loop", "counts"),
    [
        ("int t[2] = {5, 0}; for (int k = 0; k < t[0]; k++) { t[0] -= 1; t[1] += x[k]; } y[i] = t[1];", False),
        ("for (int k = 0; k < y[i]; k++) { y[i] -= 1; z[i] += k; }", False),
        ("for (int k = 0; k < y[2]; k++) { y[i + k] = 1; }", False),
        ("for (int k = 0; k < z[i + 1]; k++) z[i] += x[k];", True),
        ("int t[2] = {5, 0}; for (int k = 0; k < t[0]; k++) t[1] += x[k]; y[i] = t[1];", True),
    ],
)
def test_bounds_that_a_loop_changes_are_no_bounds(loop, counts):
    """C reads them before every iteration."""
    outer = f"for (int i = 0; i < n; i++) {{ {loop} }}"
    text = f"void f(int n, const int *restrict x, int *restrict y, int *restrict z)\n{{\n#pragma mdh\n{outer}\n}}\n"
    if counts:
        assert len(nests(text)) == 1
    else:
        check_refused_loop(text, outer, "MDH202", "`k` is read from memory, which the loop changes")


def test_negative_zeros(tmp_path):
    loop = "for (int i = 0; i < n; i++) { double v[2] = {-0.0, -0.0}; y[i] = copysign(1.0, v[0]) * x[i]; }"
    same(tmp_path, "double *y, int n, const double *x", f"#pragma mdh\n{loop}", n=3)


SUMS = """for (int i = 0; i < n; i += 2)
    for (int j = 0; j < n; j += 2) {
      int acc[2][2] = {{0}};
      for (int k = 0; k < n; k++)
        for (int u = 0; u < 2; u++) for (int v = 0; v < 2; v++) acc[u][v] += a[n*(i + u) + k] * b[n*k + j + v];
      for (int u = 0; u < 2; u++) for (int v = 0; v < 2; v++) c[n*(i + u) + j + v] = acc[u][v];
    }"""  # fmt: skip


def test_rows_that_would_overlap_are_tested():
    """The last row of a tile ends behind its place where n is 1: then cells are not one for each element."""
    text = f"void f({SIGNATURE})\n{{\n#pragma mdh\n  {SUMS}\n}}\n"
    found = lifted(text)
    assert sorted(operators(found).split()) == ["k:pw(+)", "u:cc", "v:cc"]
    assert found.nest.directive.assume == ("n - 2 >= 0",)


def test_sums_stay_in_their_order_under_fp_exact():
    added = SUMS.replace("= acc", "+= acc")
    for clause, tiles in (("", True), (" fp(exact)", False)):
        text = f"void f({SIGNATURE})\n{{\n#pragma mdh{clause}\n  {added}\n}}\n".replace("int *", "float *")
        (nest,) = nests(text.replace("int acc", "float acc"))
        named = {k.buffer for e in tree_exprs(nest.body) for k in walk(e) if isinstance(k, Load)}
        assert named == {"a", "b", "c"}
        assert (len({x.source_name for x in loops_in(nest.body)} & {"u", "v"}) == 2) == tiles


NOT_TAKEN = {
    "read between": SUMS.replace("for (int u = 0; u < 2; u++) for (int v = 0; v < 2; v++) c[", "c[n*i + j] = 5;\n"
                                 "      for (int u = 0; u < 2; u++) for (int v = 0; v < 2; v++) c["),
    "one cell for two": SUMS.replace("c[n*(i + u) + j + v]", "c[n*i + j + u + v]"),
    "half of it": SUMS.replace("u < 2; u++) for (int v = 0; v < 2; v++) c[", "u < 1; u++) for (int v = 0; v < 2; v++) c["),
    "the last of several": SUMS.replace("v < 2; v++) c[", "v < 2; v++) for (int w = 0; w < 2; w++) c["),
    "a changed source": """for (int i = 0; i < n; i += 4) {
      int t[4];
      for (int u = 0; u < 4; u++) t[u] = c[i + u];
      c[i] = 1; c[i + 3] = 2;
      for (int u = 0; u < 4; u++) c[i + u] += t[3 - u];
    }""",
    "written again": """for (int i = 0; i < n; i += 4) {
      int t[4];
      for (int u = 0; u < 4; u++) t[u] = a[i + u];
      for (int u = 0; u < 3; u++) t[u] += t[u + 1];
      for (int u = 0; u < 4; u++) c[i + u] = t[u];
    }""",
    "filled in part": """for (int i = 0; i < n; i += 4) {
      int t[4];
      for (int u = 0; u < 4; u++) t[u] = 3;
      for (int u = 0; u < 2; u++) t[u] = 0;
      for (int u = 0; u < 4; u++) c[i + u] = t[u];
    }""",
    "begun again with what the cells hold": """for (int i = 0; i < n; i += 4) {
      int t[4] = {3};
      for (int u = 0; u < 4; u++) t[u] += a[u];
      for (int u = 0; u < 4; u++) t[u] = c[i + u];
      for (int u = 0; u < 4; u++) c[i + u] = t[u];
    }""",
    "a loop as long as an element": """for (int i = 0; i < n; i += 4) {
      int t[4] = {0};
      for (int u = 0; u < 4; u++) t[u] += a[i + u] & 3;
      for (int k = 0; k < t[0]; k++) c[30 + k] += 1;
      for (int u = 0; u < 4; u++) c[i + u] += t[u];
    }""",
    "a loop as long as an element, under a condition": """for (int i = 0; i < n; i += 4) {
      int t[4] = {0};
      for (int u = 0; u < 4; u++) t[u] += 2 + (a[i + u] & 3);
      for (int k = 0; k < t[1]; k++) t[2] += 1;
      for (int u = 0; u < 4; u++) if (u != 1) c[i + u] = t[u];
    }""",
    "chosen by what it holds": """for (int i = 0; i < n; i += 4) {
      int t[4] = {0};
      for (int j = 0; j < 9; j++) for (int u = 0; u < 4; u++) if (t[u] < 100) t[u] += a[i + j + u];
      for (int u = 0; u < 4; u++) c[i + u] += t[u];
    }""",
}  # fmt: skip


@pytest.mark.parametrize("n", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_no_copy_and_no_sum_is_computed_as_written(tmp_path, name, n):
    """As elements, which may be, or as tiles where that is right."""
    same(tmp_path, SIGNATURE, f"#pragma mdh\n  {NOT_TAKEN[name]}", MIN, n=n)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ("int v[4] = {0}; v[x[i] & 3] = 1; y[i] = v[0] + v[1];", "an index of it is computed there"),
        ("int v[4]; for (int k = 0; k < n; k++) v[k] = k; y[i] = v[0];", "`k`, which has no constant bounds"),
        ("int v[100]; v[0] = 0; for (int k = 1; k < 100; k++) v[k] = v[k - 1] + x[k]; y[i] = v[9] + v[99];",
         "has 100 elements; up to 64 become variables"),
        ("int v[n]; v[0] = x[i]; y[i] = v[0];", "an array without a constant size"),
        ("int *v[2] = {y, y}; y[i] = v[0][0];", "an array of pointers"),
        ("int v[2] = {[1] = 2}; y[i] = v[1];", "this designator"),
        ("int v[2] = {1, 2, 3}; y[i] = v[1];", "too many values"),
        ("int v[2] = {1, 2}; y[i] = v[2];", "`v[2]` is not in the array"),
        ("static int v[2] = {1, 2}; v[1] += 1; y[i] = v[1];", "`static` variable"),
        ("int v[9][9]; for (int k = 0; k < 9; k++) for (int l = 0; l < 9; l++) v[k][l] = x[k + l] + (k ? v[k - 1][l] : 0);"
         "y[i] = v[8][8];",
         "has 81 elements"),
        ("int s = 0, v[8] = {x[i]}; for (int a = 0; a < 8; a++) for (int b = 0; b < 8; b++)"
         "for (int c = 0; c < 8; c++) { s += v[a] * v[b]; s ^= v[c]; } y[i] = s;", "loops over its elements are too long"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(statements, said):
    loop = f"for (int i = 0; i < n; i++) {{ {statements} }}"
    text = f"void f(int n, const int *x, int *y)\n{{\n#pragma mdh\n  {loop}\n}}\n"
    check_refused_loop(text, loop, "MDH006", said)


def test_an_iterator_that_is_used_behind_the_nest_stays():
    loop = "for (i = 0; i < n; i++) { int v[2]; for (k = 0; k < 2; k++) v[k] = x[i + k]; y[i] = v[0] - v[1]; }"
    text = "int f(int n, const int *x, int *y)\n{{\n  int i, k = 7;\n#pragma mdh\n  {}\n  return {};\n}}\n"
    check_refused_loop(text.format(loop, "k"), loop, "MDH006", "`k`, which leaves a value behind the nest")
    assert lifted(text.format(loop, "i")).status == "lifted"
