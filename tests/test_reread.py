"""Costly values are read from the array that holds them: where, where not, and what it means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lifter.lift import LiftedNest
from mdh_core.expr import Call, stmt_exprs, walk
from mdh_core.ir import HostLoop, MdhProgram, Step
from tests.lifting import check_meaning, lifted

HEAD = """#include <math.h>
static double steps(double v) { double r = 0; while (v > 1) { v *= 0.5; r += 1; } return r; }
static double twice(double v) { return 2*v; }
static double half(double v) { if (v > 3) return 0.5*v; return v; }
void f(int n, int m, double x[restrict n + 2][m + 2], double y[restrict n + 2][m + 2],
       double z[restrict m + 2][n + 2], float w[restrict n + 2][m + 2], double s[restrict n + 2],
       double t[restrict m + 2])
"""


def nest(body: str) -> LiftedNest:
    found = lifted(f"{HEAD}{{\n#pragma mdh\n{{ {body} }}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def programs(steps: tuple[Step, ...]) -> Iterator[MdhProgram]:
    for s in steps:
        if isinstance(s, HostLoop):
            yield from programs(s.body)
        else:
            assert isinstance(s, MdhProgram)
            yield s


def calls(p: MdhProgram) -> list[str]:
    """The functions that a program's scalar function calls."""
    exprs = (*p.hom.scalar.results, *stmt_exprs(p.hom.scalar.body))
    return [n.function for e in exprs for n in walk(e) if isinstance(n, Call)]


ROWS = "for (int i = 0; i < n; i++)"
BOTH = f"{ROWS} for (int j = 0; j < m; j++)"

READ = {  # the function is called by one program only
    "sum of rows": f"{ROWS} {{ s[i] = 0; for (int j = 0; j < m; j++) {{ y[i][j] = exp(x[i][j]); s[i] += y[i][j]; }} }}",
    "written out twice": f"{BOTH} y[i][j] = exp(x[i][j]); {ROWS} for (int j = 0; j < m; j++) s[i] += exp(x[i][j]);",
    "other names": f"{BOTH} y[i][j] = exp(x[i][j]); for (int a = 0; a < m; a++) for (int b = 0; b < n; b++)"
    " t[a] += exp(x[b][a]);",
    "transposed": f"{BOTH} {{ z[j][i] = exp(x[i][j]); s[i] += z[j][i]; }}",
    "part of a value": f"{BOTH} {{ y[i][j] = exp(x[i][j]); s[i] += 2*y[i][j] + x[i][j]; }}",
    "fewer dimensions": f"{ROWS} {{ s[i] = exp(x[i][0]); for (int j = 0; j < m; j++) t[j] += s[i]*x[i][j]; }}",
    "rounded": f"{BOTH} {{ w[i][j] = exp(x[i][j]); s[i] += w[i][j]; }}",
    "a loop of the user's": f"{BOTH} {{ y[i][j] = steps(x[i][j]); s[i] += y[i][j]; }}",
    "triangle": f"{ROWS} for (int j = 0; j < i; j++) {{ y[i][j] = exp(x[j][i]); t[0] += y[i][j]; }}",
    "a function that it starts from": f"{ROWS} {{ s[i] = twice(x[i][0]); for (int j = 0; j < m; j++)"
    " { y[i][j] = exp(twice(x[i][j])); s[i] += y[i][j]; } }",
    "in a host loop": "for (int k = 0; k < 3; k++) { "
    f"{BOTH} {{ y[i][j] = exp(x[i][j]); s[i] += y[i][j]; }} {ROWS} x[i][0] = k; }}",
}

COMPUTED = {  # it is called by two
    "what it comes from changes": f"{BOTH} y[i][j] = exp(x[i][j]); {ROWS} x[i][1] = 0;"
    f" {ROWS} for (int j = 0; j < m; j++) s[i] += exp(x[i][j]);",
    "the array changes": f"{BOTH} y[i][j] = exp(x[i][j]); {ROWS} y[i][1] = 0;"
    f" {ROWS} for (int j = 0; j < m; j++) s[i] += exp(x[i][j]);",
    "the array is written": f"{BOTH} y[i][j] = exp(x[i][j]);"
    f" {ROWS} for (int j = 0; j < m; j++) y[i][j + 1] = exp(x[i][j]) + 1;",
    "more points": f"{ROWS} for (int j = 0; j < m; j++) y[i][j] = exp(x[i][j]);"
    f" {ROWS} for (int j = 0; j < m + 1; j++) s[i] += exp(x[i][j]);",
    "other points": f"{ROWS} for (int j = 0; j < i; j++) y[i][j] = exp(x[i][j]);"
    f" {ROWS} for (int j = 0; j <= i; j++) s[i] += exp(x[i][j]);",
    "not rounded": f"{BOTH} w[i][j] = exp(x[i][j]); {ROWS} for (int j = 0; j < m; j++) s[i] += exp(x[i][j]);",
    "another function": f"{BOTH} y[i][j] = exp(x[i][j]); {ROWS} for (int j = 0; j < m; j++) s[i] += exp(-x[i][j]);",
    "another cell": f"{BOTH} y[i][j] = exp(x[i][j]); {ROWS} for (int j = 0; j < m; j++) s[i] += exp(x[i][j + 1]);",
    "a few instructions": f"{BOTH} {{ y[i][j] = fabs(x[i][j]); s[i] += y[i][j]; }}",
    "a few of the user's": f"{BOTH} {{ y[i][j] = half(x[i][j]); s[i] += y[i][j]; }}",
}


@pytest.mark.parametrize("body", READ.values(), ids=READ.keys())
def test_it_is_read(body: str) -> None:
    found = nest(body)
    assert sum(n in ("exp", "steps") for p in programs(found.program) for n in calls(p)) == 1, found.program
    for p in programs(found.program):
        started = [n.function for e in p.out.initial if e is not None for n in walk(e) if isinstance(n, Call)]
        assert {f.name for f in p.functions} == {*calls(p), *started} - {"exp"}
    assert check_meaning(found) > 0


@pytest.mark.parametrize("body", COMPUTED.values(), ids=COMPUTED.keys())
def test_it_is_computed_again(body: str) -> None:
    found = nest(body)
    assert sum(len(calls(p)) for p in programs(found.program)) == 2, found.program
    assert check_meaning(found) > 0
