"""`assume(...)`: what is concluded from conditions of C, and scalars that nothing but a condition reads."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, Refused, read
from lifter.lift import lift
from mdh_core.conditions import assumed
from mdh_core.expr import INT64
from mdh_core.ir import Param
from mdh_core.source import SourceFile
from mdh_lift import kernels, nest_sizes
from mdh_lift.gpu_plans import gpu_plan


@pytest.mark.parametrize(("condition", "concluded"), [
    ("a > 0", 1), ("a > 0 && b > 2", 2), ("(a > 0 && (b > 2 && c > 1))", 3), ("(a > 0) && (b > 2)", 2),
    ("a == b", 1), ("a > 0 || b > 0", 0), ("a > 0 && b > 0 || c > 0", 0), ("(a > 0 || (b > 0 && c > 0))", 0),
    ("!(a > 0 && b > 0)", 0), ("!(a > 0) && b > 0", 1), ("0 < a < b", 0), ("a > b == c", 0),
    ("a > 0, b > 0", 0), ("a ? b > 0 : c > 0", 0), ("(a > 0 && b > 0) || (a < 0 && b < 0)", 0),
    ("(a > 0) || (b > 0)", 0), ("(a) < (b)", 1), ("(a + b) * 2 > 4 && (c) > 0", 2),
])  # fmt: skip
def test_conclusions(condition: str, concluded: int) -> None:
    """Only what a condition of C implies: not parts of alternatives or negations, no chains as in Python."""
    params = [Param(n, INT64, n, "long") for n in "abc"]
    assert len(assumed([condition], params)) == concluded


CALLED = """\
enum {{ LEAST = 3 }};
int at_all;
void f(int n, int k, double x, unsigned char h, const int *q, float a[n])
{{
#pragma mdh assume({condition})
    for (int i = 0; i < n; i++) a[i] = 1;
}}
"""


@pytest.mark.parametrize("target", ["openmp", "cuda", "opencl"])
def test_scalars_of_a_condition_alone(target: str, tmp_path: Path) -> None:
    """They are parameters: the kernel compiles, and the call gives them."""
    text = CALLED.format(condition="k > 3 && (x < 0.5 || h == 7) && at_all > n")
    (nest,) = read(SourceFile("f.c", text.encode()), CompileCommand()).nests
    lifted = lift(nest)
    usual = nest_sizes.sizes_of(lifted)
    if target == "openmp":
        plan = kernels.plan(lifted, nest_sizes.parameter_values(lifted, usual))
        kernel = plan.kernel(plan.default)
        unit, call = kernel.text, kernel.call
    else:
        file = gpu_plan(lifted, target, nest_sizes.parameter_values(lifted, usual)).file({})
        unit, call = file.text, file.call
        assert "long n, long k, double x, long h, long at_all, float *a" in file.header
    assert all(f"{name}" in call for name in ("k", "x", "h", "at_all"))
    if target != "cuda":
        (tmp_path / "unit.c").write_text(unit)
        line = ["gcc", "-fsyntax-only", "-Wall", "-Wno-unused-function", "-fopenmp", str(tmp_path / "unit.c")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("condition", "name"), [("q[0] > 3", "q"), ("a != 0", "a")])
def test_conditions_over_arrays(condition: str, name: str) -> None:
    (nest,) = read(SourceFile("f.c", CALLED.format(condition=condition).encode()), CompileCommand()).refused
    assert isinstance(nest, Refused)
    (found,) = nest.diagnostics
    assert found.code == "MDH409" and f"`{name}`" in str(found)




TESTED = """\
#include <stdio.h>
#define MOST 9
enum {{ LEAST = 3 }};
typedef long wide;
{kernel}
static int done(int n, int k, unsigned u, float *a)
{{
    enum {{ HERE = 2 }};
    return {call};
}}
int main(void)
{{
    float a[64];
    int given[][3] = {{{{8, 4, 0}}, {{2, 4, 0}}, {{8, 12, 0}}, {{8, 4, 8}}, {{8, 2, 0}}}};
    for (int r = 0; r < 5; r++)
        printf("%d", done(given[r][0], given[r][1], (unsigned)given[r][2], a));
    return 0;
}}
"""
NAMED = """\
#define MOST 9
enum {{ LEAST = 3 }};
typedef long wide;
void f(int n, int k, unsigned u, float *restrict a)
{{
    enum {{ HERE = 2 }};
#pragma mdh {clause}
    for (int i = 0; i < n; i++) a[i] = 1;
}}
"""
CLAUSES = [
    "assume(n > LEAST, k < MOST && k > HERE && n > u)",
    "assume((n > LEAST && (k < MOST)) && k > HERE) assume(u < n)",
    "assume((wide)n > LEAST && !(k >= MOST || k <= HERE), n > u)",
]


@pytest.mark.parametrize("clause", CLAUSES)
def test_several_conditions_and_names_of_the_file(clause: str, tmp_path: Path) -> None:
    """All of them hold where the kernel runs; those with macros, enumerators and types are tested where the
    user's file knows these."""
    (nest,) = read(SourceFile("f.c", NAMED.format(clause=clause).encode()), CompileCommand()).nests
    lifted = lift(nest)
    params = nest_sizes.parameter_values(lifted, nest_sizes.sizes_of(lifted))
    plan = kernels.plan(lifted, params)
    kernel = plan.kernel(plan.default)
    (tmp_path / "f.c").write_text(TESTED.format(kernel=kernel.text, call=kernel.call))
    line = ["gcc", "-Wall", "-Werror", "-Wno-sign-compare", "-fopenmp", "f.c", "-o", "f", "-lm"]
    subprocess.run(line, cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(["./f"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "10000"
    for target in ("cuda", "opencl"):
        file = gpu_plan(lifted, target, params).file({})
        code = re.sub(r"/\*.*?\*/", "", file.text, flags=re.DOTALL)
        assert not re.search(r"\b(LEAST|MOST|HERE|wide)\b", code)
        assert "if (!(n > u)) return 0;" in code or "if (!(u < n)) return 0;" in code
        assert file.call.count("LEAST") == file.call.count("MOST") == file.call.count("HERE") == 1


def test_nothing_is_concluded_from_what_is_tested_at_the_call() -> None:
    """There `n - u >= 0` of an unsigned `u` is always true; in the kernel, where it is `long`, it is not."""
    text = NAMED.format(clause="assume(n > LEAST && n - u >= 0)")
    (nest,) = read(SourceFile("f.c", text.encode()), CompileCommand()).nests
    plan = kernels.plan(lifted := lift(nest), nest_sizes.parameter_values(lifted, nest_sizes.sizes_of(lifted)))
    kernel = plan.kernel(plan.default)
    assert "if (!(n - u >= 0)) return 0;" in kernel.text and "u >= 0" not in kernel.call
    assert len(assumed(nest.directive.assume, nest.params)) == 1


@pytest.mark.parametrize("clause", ["assume(n > 0, )", "assume(, n > 0)", "assume(n > 0, n = 3)"])
def test_lists_of_conditions_that_are_none(clause: str) -> None:
    result = read(SourceFile("f.c", NAMED.format(clause=clause).encode()), CompileCommand())
    assert not result.nests
    assert any(d.code.startswith("MDH4") for r in result.refused for d in r.diagnostics)
