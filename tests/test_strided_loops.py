"""Loops whose step is a variable: how often they run, and what the variable holds in them and afterwards."""

from __future__ import annotations

import pytest

from certify.certificate import certificate
from tests.lifting import check_meaning, check_refused_loop, lifted, operators
from tests.test_frontend_c import same

LOOPS = [
    "for (int i = 0; i < n; i += s) y[i] = i;",
    "for (int i = 1; i <= n; i += s) y[i] = i;",
    "for (int i = 2; n > i; i = i + s) y[i] = i;",
    "for (int i = 0; i < n; i = s + i) y[i] = i;",
    "for (int i = n - 1; i >= 0; i -= s) y[i] += i;",
    "for (int i = n; i > 0; i -= 2 * s) y[i] += i;",
    "for (long i = 0; i < n * s; i += s) y[i] += i;",
    "for (int i = 0, k = 0; i < n; i += s, k++) y[k] = y[i] + k;",
    "for (int i = 0, k = 0; i < n; k += 2, i += s + 1) y[i] = k;",
    "for (size_t i = 0; i < (size_t)n; i += s) y[i] = i;",
    "for (int b = 0; b + s <= n; b += s) for (int k = 0; k < s; k++) y[b + k] += 10 * k + b;",
    "for (int b = 0; b + 2 * s <= n; b += 2 * s) for (int k = 0; k < s; k++) y[b + k + s] = y[b + k];",
    "for (int b = 0; s + b <= n; b += s) for (int k = 0; k < s; k++) y[b + k] += 10 * k + b;",
    "for (long b = 0; n > b + 2 * s; b += s) y[b] = b;",
    "for (int k = 0; k < 3; k++) for (int i = 0; i < n; i += s) y[n * k + i] = i;",
    "{ int i; for (i = 0; i < n; i += s) y[i] = i; y[30] = i; }",
    "{ int m = 2; for (int i = 1; i < n; i += m) y[i] = i + s; }",
    "{ int i, m = 3; for (i = 1; i < n; i += m) y[i] = i + s; y[30] = i; }",
    "{ int i, m = s + 1; for (i = 1; i < n; i += m) y[i] = i; y[30] = i + m; }",
    # constant steps, and something beside that moves at another pace
    "{ int k = 0; for (int i = 0; i < n; i += 3) { y[k + 20] = y[i]; k++; } }",
    "{ int k = 2; for (int i = n; i > 0; i -= 2, k += 3) y[k] = i; y[40] = k; }",
    "{ int i, k = 0; for (i = n - 1; i >= 0; i -= 3) y[20 + k++] = y[i]; y[40] = i; y[41] = k; }",
    "{ int *q = y; for (int i = 0; i < n; i += 3) { *q++ = i; *q++ = i + 1; } }",
    "for (unsigned i = 0, k = 0; i < (unsigned)n; i += 3, k += 4) { y[k] = i; y[k + 3] = 7; }",
    "for (int r = 0, q = 0; r < n; r += 2, q++) { int k = 0; for (int i = 0; i <= s; i += 2, k++) y[8 * q + k] = r + i; }",
    "{ int k = 0; for (int i = 0; i < n; i += 2) { k += 4; y[k] = i; } y[40] = k; }",
    "{ int k = 0; for (int i = 1; i <= n; i += 2) { k = i + 1; y[k] = i; } }",
    "{ int i = 0; while (i < n) { y[i] = i; i++; } for (i = 0; i < n; i += s) y[i] *= 2; y[31] = i; }",
]


@pytest.mark.parametrize(("n", "s"), [(0, 1), (1, 1), (5, 2), (6, 2), (7, 3), (7, 10), (12, 4)])
@pytest.mark.parametrize("loop", LOOPS, ids=range(len(LOOPS)))
def test_the_same_iterations_as_in_c(tmp_path, loop, n, s):
    same(tmp_path, "int *y, int n, int s", f"#pragma mdh\n{loop}", n=n, s=s)


C = "#include <stddef.h>\nint g(int);\nvoid f(int n, int s, unsigned u, float *a, float *b)\n{{\n#pragma mdh\n{}\n}}\n"
BUTTERFLIES = (
    "for (int b = 0; b < n; b += 2 * s) for (int k = 0; k < s; k++) "
    "{ float u = a[b + k], v = a[b + k + s]; a[b + k] = u + v; a[b + k + s] = u - v; }"
)


def test_butterflies_are_two_dimensions():
    found = lifted(C.format(BUTTERFLIES))
    assert operators(found) == "b:cc k:cc" and [str(a) for a in found.nest.facts] == ["2*s - 1"]
    assert check_meaning(found, trials=40) > 2
    assert not certificate(found.nest, found.program).refuted


@pytest.mark.parametrize(
    ("loop", "code", "said"),
    [
        ("for (int i = 0; i < n; i += s) { b[i] = 1; s++; }", "MDH210", "step depends on `s`"),
        ("for (int i = 1; i < n; i += i) b[i] = 1;", "MDH210", "step depends on `i`"),
        ("for (int i = 0; i < n; i += g(s)) b[i] = 1;", "MDH204", "`g`"),
        ("for (int i = 0; i < n; i -= s) b[i] = 1;", "MDH210", "leads away"),
        ("for (int i = 0; i != n; i += s) b[i] = 1;", "MDH210", "step is not constant"),
        ("for (short i = 0; i < n; i += s) b[i] = 1;", "MDH210", "step is not constant"),
        ("for (unsigned i = u; i > 3; i -= s) b[i] = 1;", "MDH210", "below its bound"),
        ("for (float *p = a; p < a + n; p += s) *p = 1;", "MDH210", "over the pointer `p`"),
        ("for (int i = 0; i < n; i += (int)a[0]) b[i] = 1;", "MDH210", "step"),
        ("for (int j = 0; j < n; j++) for (int i = j; i < n; i += s) b[i] += a[j];", "MDH202", "a quotient of"),
    ],
)
def test_other_steps_are_refused(loop, code, said):
    check_refused_loop(C.format(loop), loop, code, said)


def test_pixels_of_another_number_of_channels():
    found = lifted(C.format("for (int i = 0, k = 0; i < n; i += 3, k += 4) { a[k] = b[i]; a[k + 3] = 1; }"))
    (p,) = found.programs
    assert operators(found) == "i:cc" and str(p.hom.dims[0].size) == "mdh_p0"
    assert [str(s.index[0]) for s in p.out.stores] == ["4*i", "4*i + 3"]
    assert check_meaning(found, trials=30) > 3 and not certificate(found.nest, found.program).refuted
