"""Loops in the branches of an ``if``, through all that is done to a nest, in C and in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lifter.lift import lift
from mdh_core.expr import Load, walk
from mdh_lift import mdh
from tests.lifting import check_meaning, lifted, nests, step_lines

ROOT = Path(__file__).resolve().parents[1]

NESTS = {
    "parameter": """void parameter(int n, int on, double a[n][n], const double b[n][n]) {
#pragma mdh
    for (int i = 0; i < n; i++)
        if (on) { for (int j = 0; j < n; j++) a[i][j] += b[i][j]; }
        else { for (int j = 0; j < i; j++) a[i][j] -= b[j][i]; }
}""",
    "data": """void data(int n, double a[n][n], const double b[n]) {
#pragma mdh
    for (int i = 0; i < n; i++)
        if (b[i] > 0) {
            double s = 1.5, f = b[i] * a[i][0];
            for (int j = 1; j < n; j++) s += a[i][j] * f;
            a[i][0] = s;
        }
}""",
    "skipped": """void skipped(int n, double y[n], const double a[n][n], const double b[n]) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        if (b[i] < 0) continue;
        double m = b[i] * 2;
        for (int j = 0; j < n; j++) m = a[i][j] > m ? a[i][j] : m;
        y[i] = m;
    }
}""",
    "iterators": """void iterators(int n, int m, double a[n][n], const double b[n]) {
    int i, j;
#pragma mdh
    for (i = 0; i < n; i++)
        if (i >= m)
            for (j = 0; j <= i; j++)
                if (j > 2) a[i][j] = b[j] / (1 + i);
}""",
    "records": """typedef struct { double re, im; } number;
void records(int n, number a[n][n], const double b[n]) {
#pragma mdh
    for (int i = 0; i < n; i++)
        if (b[i] != 0) {
            number f = a[i][0];
            for (int j = 1; j < n; j++) { a[i][j].re += f.re * b[j]; a[i][j].im += f.im * b[j]; }
        }
}""",
    "above": """void above(int n, double alpha, double beta, double y[n], const double a[n][n], const double x[n]) {
#pragma mdh
    if (beta == 0) for (int i = 0; i < n; i++) y[i] = 0;
    else if (beta != 1) { for (int i = 0; i < n; i++) y[i] *= beta; }
    if (n > 1)
#pragma mdh
        if (alpha != 0)
            for (int j = 0; j < n; j++) {
                double t = alpha * x[j];
                for (int i = 0; i < n; i++) y[i] += t * a[j][i];
            }
        else
            y[0] += 1;
}""",
    "steps": """void steps(int n, int on, double a[n], const double b[n]) {
#pragma mdh
    for (int t = 0; t < 3; t++)
        if (on > t)
            for (int i = 0; i < n; i++) a[i] = a[i] * 0.5 + b[i];
}""",
}


def test_all_are_lifted_and_mean_what_the_loops_do() -> None:
    for name, text in NESTS.items():
        for nest in map(lift, nests(text)):
            assert nest.status == "lifted", name
            assert check_meaning(nest, trials=6) > 2, name


def test_a_variable_of_a_branch_is_nowhere_undefined() -> None:
    nest = lifted(NESTS["data"])
    names = {b.name for b in nest.temporaries}
    assert step_lines(nest.program) == ["i: cc, j: pw(+)", "i: cc"] and names == {"s_x"}
    (first, _) = nest.programs
    values = [e for e in (*first.hom.scalar.results, *first.out.initial) if e is not None]
    assert not any(a.buffer in names for a in first.inp.accesses)  # its cells are written, none is kept
    assert not any(isinstance(x, Load) and x.buffer in names for e in values for x in walk(e))


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conditions")
    (folder / "k.c").write_text("\n".join(NESTS.values()) + "\n")
    return folder


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "mdh_lift", *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_verified_with_a_certificate(tool: Path) -> None:
    done = run(tool, "verify", "k.c", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert len(found["nests"]) == sum(text.count("#pragma mdh") for text in NESTS.values())
    for n in found["nests"]:
        assert n["verification"]["cases"] > 20, n
        assert n["certificate"]["holds"] and {o["status"] for o in n["certificate"]["obligations"]} <= {"proved", "checked"}


def test_spliced_and_run(tool: Path) -> None:
    main = """
#include <stdio.h>
int main(void) {
    enum { n = 37 };
    static double a[n][n], b[n], c[n][n], y[n];
    static number r[n][n];
    for (int i = 0; i < n; i++) {
        b[i] = i % 5 - 2; y[i] = 1;
        for (int j = 0; j < n; j++) { a[i][j] = (i * 3 + j) % 8; c[i][j] = i - j; r[i][j].re = i + j; r[i][j].im = i - j; }
    }
    parameter(n, 1, a, c); parameter(n, 0, a, c);
    data(n, a, b); skipped(n, y, a, b); iterators(n, 4, a, b);
    above(n, 2, 0.5, y, a, b); above(n, 0, 0, c[0], a, b); above(n, 1, 1, y, c, b); records(n, r, b); steps(n, 2, y, b);
    double s = 0;
    for (int i = 0; i < n; i++) {
        s = s * 0.75 + y[i];
        for (int j = 0; j < n; j++) s = s * 0.75 + a[i][j] + r[i][j].re - 2 * r[i][j].im;
    }
    printf("%.17g\\n", s);
    return 0;
}
"""
    original = "\n".join(NESTS.values()) + main
    (tool / "m.c").write_text(original)
    done = run(tool, "m.c", "-w", "--budget", "0", "--force")
    assert done.returncode == 0, done.stdout + done.stderr
    spliced = (tool / "m.c").read_text()
    assert spliced.count("mdh-lift begin") >= len(NESTS)
    results = []
    for flags in (("-fopenmp",), ("-DMDH_LIFT_OFF",)):
        subprocess.run(["gcc", "-O1", *flags, "m.c", "-o", "m"], cwd=tool, check=True)
        results.append(subprocess.run(["./m"], cwd=tool, check=True, capture_output=True, text=True).stdout)
    assert results[0] == results[1] and float(results[0])
    assert run(tool, "revert", "-w", "m.c").returncode == 0
    assert (tool / "m.c").read_text() == original


def test_last_values_of_iterators() -> None:
    """A loop that may not have run leaves its iterator as it was."""
    head = "int f(int n, int a, int *y) { int i = 7;\n#pragma mdh\n"
    once = "if (a) for (i = 0; i < n; i++) y[i] += a;"
    later = f"{{ {once} for (int k = 0; k < a; k++) for (i = 0; i < n; i++) y[i] += k; }}"
    for nest in (once, f"for (int k = 0; k < 2; k++) {{ {once} }}", later):
        found = lifted(f"{head}{nest} return i; }}")
        assert [d.code for d in found.diagnostics if d.severity == "error"] == ["MDH202"], nest
        assert "`i` depends on a condition" in found.diagnostics[0].message
    for nest in (f"{once} i = 0;", f"{{ {once} for (i = 0; i < n; i++) y[i] += 1; }}"):
        assert lifted(f"{head}{nest} return i; }}").status == "lifted", nest


def test_shown_as_read(tool: Path) -> None:
    done = run(tool, "show", "--stage", "nest", "k.c::parameter")
    assert done.returncode == 0, done.stderr
    lines = [x.strip() for x in done.stdout.splitlines()]
    start = lines.index("if (on) {")
    assert lines[start + 1] == "for j in [0, n)" and lines[start + 3] == "} else {"
    assert lines[start + 4] == "for j_1 in [0, i)" and lines[start + 6] == "}"


def test_in_python(recwarn: pytest.WarningsRecorder) -> None:
    @mdh
    def sums(y, a, b):  # type: ignore[no-untyped-def]
        for i in range(a.shape[0]):
            if b[i] > 0.0:
                s = 1.5
                for j in range(a.shape[1]):
                    s += a[i, j]
                y[i] = s

    rng = np.random.default_rng(1)
    a, b, y = rng.integers(0, 9, (50, 70)).astype(float), rng.random(50) - 0.5, np.zeros(50)
    sums(y, a, b)
    assert np.array_equal(y, np.where(b > 0, a.sum(axis=1) + 1.5, 0))
    assert not [w for w in recwarn if "plain Python" in str(w.message)]
