"""Conditions on the position of what a reduction combines become its domain."""

from __future__ import annotations

import pytest

from mdh_core.combine import CombineFunction
from mdh_core.expr import Select, walk
from mdh_core.ir import MdhProgram
from tests.lifting import check_meaning, lifted

HEAD = "int n, int m, unsigned u, float O[n][m], float A[n][m], float F[5][5], int c[n]"
CELLS = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) "
SUMS = "for (int a = 0; a < 5; a++) for (int b = 0; b < 3; b++) "
ON_DOMAIN = {
    "a padded convolution": (
        CELLS + "{ float s = 0; " + SUMS + "{ int y = i + a - 2, x = j + b - 1;"
        " if (y >= 0 && y < n && x >= 0 && x < m) s += F[a][b] * A[y][x]; } O[i][j] = s; }",
        {"a + i - 2", "-a - i + n + 1", "b + j - 1", "-b - j + m"},
    ),
    "left early": (
        CELLS + "{ float s = 1; " + SUMS + "{ if (i + a < 2 || i + a > n + 1) continue;"
        " if (j + b >= m) continue; s += A[i + a - 2][j + b]; } O[i][j] = s; }",
        {"a + i - 2", "-a - i + n + 1", "-b - j + m - 1"},
    ),
    "a triangle": (
        CELLS + "for (int k = 0; k < m; k++) if (k <= i) O[i][j] += A[i][k];",
        {"i - k"},
    ),
    "none for some cells": (
        CELLS + "{ float s = 7; for (int k = 0; k < m; k++) if (k + 3 <= i) s += A[i][k]; O[i][j] = s; }",
        {"i - k - 3"},
    ),
    "a largest one": (
        CELLS + "{ float s = -1000; " + SUMS
        + "if (i + a < n && j + b < m) s = A[i + a][j + b] > s ? A[i + a][j + b] : s; O[i][j] = s; }",
        {"-a - i + n - 1", "-b - j + m - 1"},
    ),
    "with data": (
        CELLS + "{ float s = 0; " + SUMS
        + "if (i + a < n && c[i + a] > 0 && j + b < m) s += A[i + a][j + b]; O[i][j] = s; }",
        {"-a - i + n - 1", "-b - j + m - 1"},
    ),
    "with the cell's position": (
        CELLS + "{ float s = 0; " + SUMS + "if (i >= 2 && i + a < n) s += A[i + a][j]; O[i][j] = s; }",
        {"-a - i + n - 1"},
    ),
}  # fmt: skip
NOT = {
    "the cell's position alone": CELLS + "{ float s = 0; for (int k = 0; k < m; k++) if (i >= 2) s += A[i - 2][k];"
    " O[i][j] = s; }",
    "data": CELLS + "{ float s = 0; for (int k = 0; k < m; k++) if (A[i][k] > 0) s += A[i][k]; O[i][j] = s; }",
    "another value elsewhere": CELLS + "{ float s = 0; for (int k = 0; k < m; k++) s += k < i ? A[i][k] : 1;"
    " O[i][j] = s; }",
    "one point": CELLS + "{ float s = 0; for (int k = 0; k < m; k++) if (k == i) s += A[i][k]; O[i][j] = s; }",
    "what may wrap": CELLS + "{ float s = 0; for (int k = 0; k < m; k++) if ((unsigned)k - 1u < u) s += A[i][k];"
    " O[i][j] = s; }",
    "a map": CELLS + "O[i][j] = i > 0 ? A[i - 1][j] : 0;",
    "a scan": "for (int i = 0; i < n; i++) { float s = 0; for (int j = 0; j < m; j++)"
    " { if (j >= i) s += A[i][j]; O[i][j] = s; } }",
}  # fmt: skip


def of(nest: str) -> tuple[MdhProgram, ...]:
    found = lifted(f"void f({HEAD}) {{\n#pragma mdh\n{nest} }}")
    assert found.status == "lifted", found.diagnostics
    assert check_meaning(found, trials=30) > 8
    return found.programs


@pytest.mark.parametrize("name", ON_DOMAIN)
def test_what_contributes_is_the_domain(name: str) -> None:
    nest, rows = ON_DOMAIN[name]
    (p,) = of(nest)
    assert {str(c.value) for c in p.hom.domain} == rows
    assert isinstance(p.hom.function, CombineFunction)
    left = [n for e in p.hom.scalar.results for n in walk(e) if isinstance(n, Select)]
    # the comparison of data, or of the cell's own position, is still asked
    assert len(left) == (1 if name.startswith("with") else 0), left
    # on the domain everything is read; what data decides is not
    assert any(a.conditional for a in p.inp.accesses) == name.startswith("with"), p.inp


@pytest.mark.parametrize("name", NOT)
def test_conditions_that_stay(name: str) -> None:
    for p in of(NOT[name]):
        assert not p.hom.domain, p.hom.domain
