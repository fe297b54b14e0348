"""`assume(...)`: what is concluded from conditions of C, and scalars that nothing but a condition reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, Refused, read
from lifter.lift import lift
from lifter.normalise import assumed
from mdh_core.expr import INT64
from mdh_core.ir import Param
from mdh_core.source import SourceFile
from mdh_lift import kernels
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
    usual = kernels.sizes_of(lifted)
    if target == "openmp":
        plan = kernels.plan(lifted, kernels.parameter_values(lifted, usual))
        kernel = plan.kernel(plan.default)
        unit, call = kernel.text, kernel.call
    else:
        file = gpu_plan(lifted, target, kernels.parameter_values(lifted, usual)).file({})
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


