"""Counters and offsets that branches of an ``if`` set, as in reference BLAS: the values behind it, in C's order."""

from __future__ import annotations

import pytest

from certify.certificate import certificate
from tests.lifting import check_meaning, check_refused_loop, lifted, operators
from tests.test_frontend_c import same

NESTS = [
    "{ int k = 3; if (c > 2) k = 5; for (int i = 0; i < n; i++) y[i + k] = i; y[40] = k; }",
    "{ int k = 3; if (c > 2) k += 5; else if (c < 0) k = 7; for (int i = 0; i < n; i++) y[i + k] = i; y[40] = k; }",
    "{ int k; if (c > 2) k = 5; else k = n; for (int i = 0; i < n; i++) y[i + k] = i; y[40] = k; }",
    "{ int k = 1; if (c > 2) { k = 5; for (int i = 0; i < n; i++) y[i + k] = i; } else for (int i = 0; i < n; i++) y[i + k] = -i; y[40] = k; }",
    "{ int k = 1; if (c > 2) { k++; k *= 2; } else { k--; } for (int i = 0; i < n; i++, k += 2) y[k] = i; y[40] = k; }",
    "{ int k = 9, j = 2; if (c > 2) k = j, j = 4; for (int i = 0; i < n; i++) y[k + i] = j; y[40] = k; }",
    "{ int k = 9; if (c > 2) if (n > 3) k = 1; else k = 2; for (int i = 0; i < n; i++) y[k + i] = i; y[40] = k; }",
    "{ if (c > 0) n = 2; if (c > 2) n += 3; for (int i = 0; i < n; i++) y[i] = i; y[40] = n; }",
    "{ if (c > 0) c = 2; else c = 4; for (int i = 0; i < n; i++) y[i + c] = i; y[40] = c; }",
    "if (n > 0) for (int i = 0, k = 0; i < n; i++, k += 2) y[k] = i;",
    "{ int i, k; if (c > 0) { k = 4; for (i = 0; i < n; i++) { y[k] = i; k += 2; } } else { k = 2; for (i = 0; i < n; i++, k++) y[k] = i; } }",
]


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("c", [-1, 1, 3])
@pytest.mark.parametrize("nest", NESTS, ids=range(len(NESTS)))
def test_as_in_c(tmp_path, nest, n, c):
    same(tmp_path, "int *y, int n, int c", f"#pragma mdh\n{nest}", n=n, c=c)


AXPY = """void axpy(int n, double da, const double *restrict dx, int incx, double *restrict dy, int incy)
{{
    int i, ix, iy;
#pragma mdh
    {}
}}
"""
LOOP = "for (i = 0; i < n; i++) {{ dy[iy] += da * dx[ix]; ix += incx; iy += incy; }}".replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize(
    "nest",
    [
        "if (n > 0) for (i = 0, ix = 0, iy = 0; i < n; i++, ix += incx, iy += incy) dy[iy] += da * dx[ix];",
        "if (da != 0) { ix = 0; iy = 0; " + LOOP + " }",
        "{ ix = 0; iy = 0; if (incx < 0) ix = (1 - n) * incx; if (incy < 0) iy = (1 - n) * incy; " + LOOP + " }",
    ],
)
def test_vectors_of_blas(nest):
    found = lifted(AXPY.format(nest))
    assert found.status == "lifted" and operators(found) == "i:cc", found.diagnostics
    assert not certificate(found.nest, found.program).refuted
    if "incx < 0" not in nest:  # of these at random, few have cells for all
        assert check_meaning(found, trials=40) > 2


@pytest.mark.parametrize(
    "nest",
    [
        "{ if (y[0] > 2) k = 5; if (c > 2) k = 7; for (int i = 0; i < n; i++) y[i + k] = i; }",
        "{ if (c > 2) k = 5; else k = y[0]; for (int i = 0; i < n; i++) y[i + k] = i; }",
        "{ int k = 3; if (y[0] > 2) k = 5; for (int i = 0; i < n; i++) y[i + k] = i; }",
        "{ int k = 3; for (int i = 0; i < n; i++) { if (i > c) k = 5; y[i + k] = i; } }",
        "for (int i = 0; i < n; i++) { int k = 3; if (i > c) k = 5; y[i + k] = i; }",
    ],
)
def test_what_hangs_on_more_is_refused(nest):
    (found,) = lifted(f"void f(int n, int c, int k, int *y)\n{{\n#pragma mdh\n{nest}\n}}\n").diagnostics
    assert found.code == "MDH214" and "depends on data" in found.message and found.help


def test_a_pointer_that_a_branch_moves_is_shown_there():
    nest = "{ if (c) x += 4; for (int i = 0; i < n; i++) y[i] = x[i]; }"
    text = f"void f(int n, int c, const int *x, int *y)\n{{\n#pragma mdh\n{nest}\n}}\n"
    check_refused_loop(text, "x += 4", "MDH006", "pointer `x` changes under a condition")
