"""Running hostile candidates, comparing, measuring, searching, storing."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mdh_core.diagnostics import Refusal
from mdh_core.expr import DOUBLE, FLOAT, INT32, UINT64, RecordType, ScalarType
from tuning import fingerprint, harness, lock, measure, replay, runner, search, space, store, tune, verify
from tuning.budget import Budget, parse_budget
from tuning.harness import ArrayArg, Candidate, DerivedArg, IteratorArg, OuterScalarArg, ScalarArg, Subject
from tuning.race import race
from tuning.runner import Limits, Outcome, Workbench
from tuning.search import Evaluation
from tuning.toolchain import Toolchain, usable_flags


def subject_of(text: str, begin: str, end: str, args: tuple[harness.Arg, ...], counts, **rest) -> Subject:
    """The nest is the text from ``begin`` up to ``end``; its function ends at the next ``\\n}``."""
    data = text.encode()
    start = data.index(begin.encode())
    stop = data.index(end.encode(), start)
    behind = data.index(b"\n}", stop - 1) + 3
    line = data[:start].count(b"\n") + 1
    return Subject(data, "case.c", behind, data[start:stop], line, args, counts, **rest)


DOT = subject_of(
    """#include <stdio.h>
#define TERM(i) (x[i] * y[i])
extern void not_here(void);
float dot(const float *x, const float *y, size_t n)
{
    float sum = 0.0f;
#pragma mdh
    for (size_t i = 0; i < n; i++)
        sum += TERM(i);
    return sum;
}
int main(void) { not_here(); puts("the user's main"); return 0; }
""",
    "    for (",
    "    return sum",
    (
        ScalarArg("n", "size_t", UINT64),
        ArrayArg("x", "const float", FLOAT, written=False),
        ArrayArg("y", "const float", FLOAT, written=False),
        OuterScalarArg("sum", "float", FLOAT),
    ),
    lambda s: {"x": s["n"], "y": s["n"]},
)
SAXPY = subject_of(
    """void saxpy(float *y, const float *x, float a, int n)
{
    int i;
    for (i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}
""",
    "    for (",
    "}",
    (
        ScalarArg("n", "int", INT32),
        ScalarArg("a", "float", FLOAT),
        ArrayArg("y", "float", FLOAT),
        ArrayArg("x", "const float", FLOAT, written=False),
        IteratorArg("i", "int", INT32),
    ),
    lambda s: {"x": s["n"], "y": s["n"]},
    length=lambda s: 2,
)


def dot_kernel(body: str, extra: str = "") -> Candidate:
    head = (
        "static int kernel(size_t n, const float *x, const float *y, float *result)\n{ float s = *result;\n"
    )
    return Candidate(extra + head + body + "\n*result = s; return 1; }\n", "kernel(n, x, y, &sum)")


def saxpy_kernel(body: str, after: str = "i = n > 0 ? n : 0;") -> Candidate:
    head = "static int kernel(int n, float a, float *y, const float *x)\n{\n"
    return Candidate(head + body + "\nreturn 1; }\n", "kernel(n, a, y, x)", after)


RIGHT_DOT = dot_kernel(
    "#pragma omp parallel for reduction(+:s)\nfor (size_t k = 0; k < n; k++) s += x[k] * y[k];"
)
RIGHT_SAXPY = saxpy_kernel(
    "if ((char *)x < (char *)(y + n) && (char *)y < (char *)(x + n) && x != y) return 0;\n"
    "for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];"
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bench(cache: Path) -> Workbench:
    limits = Limits(compile_seconds=20, run_seconds=10, memory_bytes=4 << 30)
    return Workbench(Toolchain(flags=("-O1",)), limits, threads=2, jobs=2, cache_dir=cache)


def judged(
    bench: Workbench, subject: Subject, candidate: Candidate, sizes: tuple[int, ...] = (0, 1, 7, 64), **rest
) -> verify.VerifySummary:
    built = bench.build(subject, candidate)
    if not built.ok:
        return verify.VerifySummary(built)
    cases = verify.cases_for(subject, [{"n": n} for n in sizes])
    return verify.verify(bench, subject, built.data["program"], cases, **rest)


# --------------------------------------------------------------------------- candidates, right and wrong


@pytest.mark.parametrize(
    ("subject", "candidate"), [(DOT, RIGHT_DOT), (SAXPY, RIGHT_SAXPY)], ids=["dot", "saxpy"]
)
def test_right_candidate(bench: Workbench, subject: Subject, candidate: Candidate) -> None:
    summary = judged(bench, subject, candidate, (0, 1, 7, 64, 1001))
    assert summary.ok, summary.outcome
    assert summary.cases >= 10
    assert summary.exact >= 5
    assert summary.handled + summary.declined == summary.cases


@pytest.mark.parametrize(
    ("candidate", "kind", "reason"),
    [
        (dot_kernel("for (size_t k = 1; k < n; k++) s += x[k] * y[k];"), "wrong_result", "sum[0]"),
        (dot_kernel("s = 0; for (size_t k = 0; k < n; k++) s += x[k] * y[k];"), "wrong_result", "expected"),
        (dot_kernel("for (size_t k = 0; k <= n; k++) s += x[k] * y[k];"), "crashed", "SIGSEGV"),
        (dot_kernel("volatile float f = x[-1];"), "crashed", "SIGSEGV"),
        (dot_kernel("__builtin_trap();"), "crashed", "signal 4"),
        (dot_kernel("exit(0);", "#include <stdlib.h>\n"), "crashed", "before its results"),
        (dot_kernel('for (;;) puts("{\\"done\\":1,\\"verify\\":0}");'), "output_flood", "bytes of output"),
        (dot_kernel("s += undeclared;"), "compile_failed", "undeclared"),
    ],
    ids=["wrong", "initial", "beyond", "before", "trap", "exit", "flood", "syntax"],
)
def test_faulty_candidate(bench: Workbench, candidate: Candidate, kind: str, reason: str) -> None:
    outcome = judged(bench, DOT, candidate).outcome
    assert outcome.kind == kind, outcome
    assert reason in outcome.reason


def test_endless_loop(bench: Workbench) -> None:
    candidate = dot_kernel("volatile int go = 1; while (go) ;")
    assert judged(bench, DOT, candidate, seconds=0.5).outcome.kind == "timed_out"


def test_memory_is_limited(bench: Workbench) -> None:
    body = "char *p = malloc(100ul << 30); if (!p) return 0; memset(p, 1, 100ul << 30);"
    candidate = dot_kernel(body, "#include <stdlib.h>\n#include <string.h>\n")
    summary = judged(bench, DOT, candidate)
    assert summary.outcome.ok
    assert summary.handled == 0
    assert not summary.ok  # the kernel never ran, so nothing is proved


def test_stray_writes(bench: Workbench) -> None:
    beside = saxpy_kernel("for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];\nif (n == 7) y[-1] = 3;")
    found = judged(bench, SAXPY, beside, (7,)).outcome
    assert found.kind in ("wrong_result", "crashed")
    into_input = saxpy_kernel("for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];\nif (n) *(float *)x = 9;")
    found = judged(bench, SAXPY, into_input, (7,)).outcome
    assert (found.kind, found.data["array"]) == ("wrong_result", "x")


def test_final_iterator_is_compared(bench: Workbench) -> None:
    body = "for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];"
    found = judged(bench, SAXPY, saxpy_kernel(body, "i = n - 1;"), (7,)).outcome
    assert (found.kind, found.data["array"]) == ("wrong_result", "i")
    assert (found.data["got"], found.data["expected"]) == (6, 7)


def test_unguarded_overlap_is_found(bench: Workbench) -> None:
    body = "for (int k = n; k-- > 0;) y[k] = a * x[k] + y[k];"  # right for distinct arrays only
    built = bench.build(SAXPY, saxpy_kernel(body))
    apart = verify.cases_for(SAXPY, [{"n": 64}], overlap=False)
    assert verify.verify(bench, SAXPY, built.data["program"], apart).ok
    found = judged(bench, SAXPY, saxpy_kernel(body), (64,)).outcome
    assert found.kind == "wrong_result"
    assert "x = y + " in found.reason or "y = x + " in found.reason


def test_race_and_reassociation_within_tolerance(bench: Workbench) -> None:
    halves = dot_kernel(
        "float t[2] = {0, 0};\nfor (size_t k = 0; k < n; k++) t[k % 2] += x[k] * y[k];\ns += t[0] + t[1];"
    )
    summary = judged(bench, DOT, halves, (1000, 100003))
    assert summary.ok
    assert summary.max_ulp > 0
    built = bench.build(DOT, halves)
    cases = verify.cases_for(DOT, [{"n": 1000}], bitwise=True)
    strict = verify.verify(bench, DOT, built.data["program"], cases)
    assert strict.outcome.kind == "wrong_result"


def test_small_relative_error_is_not_within_tolerance(bench: Workbench) -> None:
    off = dot_kernel("for (size_t k = 0; k < n; k++) s += x[k] * y[k];\ns *= 1.001f;")
    assert judged(bench, DOT, off, (61,)).outcome.kind == "wrong_result"


LU = subject_of(
    """void lu(int n, double A[n][n])
{
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++) {
            A[i][k] /= A[k][k];
            for (int j = k + 1; j < n; j++)
                A[i][j] -= A[i][k] * A[k][j];
        }
}
""",
    "    for (",
    "\n}",
    (ScalarArg("n", "int", INT32), ArrayArg("A", "double", DOUBLE, ("n",))),
    lambda s: {"A": s["n"] * s["n"]},
    length=lambda s: 2 * max(1, s["n"]),
    diagonals=lambda s: {"A": s["n"] + 1},
)


def lu_kernel(pivot: str, last: str = "n") -> Candidate:
    text = f"""static int kernel(int n, double *A)
{{
  for (int k = 0; k < n; k++) {{
    const double r = 1 / {pivot};
    for (int i = k + 1; i < n; i++) A[i*n + k] *= r;
    for (int i = n - 1; i > k; i--)
      for (int j = k + 1; j < {last}; j++) A[i*n + j] -= A[i*n + k] * A[k*n + j];
  }}
  return 1;
}}
"""
    return Candidate(text, "kernel(n, &A[0][0])")


def judged_lu(bench: Workbench, candidate: Candidate, style: str, sizes: tuple[int, ...]) -> verify.VerifySummary:
    built = bench.build(LU, candidate)
    assert built.ok, built
    cases = verify.cases_for(LU, [{"n": n} for n in sizes], style=style)
    return verify.verify(bench, LU, built.data["program"], cases)


def test_elimination_on_dominant_data_is_determined(bench: Workbench) -> None:
    """Reciprocals round differently: within tolerance; anything else is not."""
    summary = judged_lu(bench, lu_kernel("A[k*n + k]"), "dominant", (0, 1, 7, 61))
    assert summary.ok, summary.outcome
    assert summary.undetermined == 0 and 0 < summary.max_rel < 1e-9
    for wrong in (lu_kernel("(A[k*n + k] * 1.0000001)"), lu_kernel("A[k*n + k]", "n - (n == 61)")):
        assert judged_lu(bench, wrong, "dominant", (61,)).outcome.kind == runner.WRONG_RESULT


def test_elimination_without_pivoting_on_any_data(bench: Workbench) -> None:
    """Where pivots vanish and errors grow, the original's own roundings tell what may be compared."""
    summary = judged_lu(bench, lu_kernel("A[k*n + k]"), "sum", (7, 31, 61, 90))
    assert summary.ok, summary.outcome


CANCELS = subject_of(
    """void f(int n, double *y, const double *x)
{
    for (int i = 0; i < n; i++)
        y[i] = (x[i] + 1e8) * (x[i] + 1e8) - 1e16 - 2e8 * x[i];
}
""",
    "    for (",
    "\n}",
    (
        ScalarArg("n", "int", INT32),
        ArrayArg("y", "double", DOUBLE, read=False),
        ArrayArg("x", "const double", DOUBLE, written=False),
    ),
    lambda s: {"x": s["n"], "y": s["n"]},
    length=lambda s: 1,
)


@pytest.mark.parametrize(("factor", "right"), [("1", True), ("1.001", False)])
def test_values_that_cancel(bench: Workbench, factor: str, right: bool) -> None:
    text = (
        "static int kernel(int n, double *y, const double *x)\n{\n"
        f"for (int i = 0; i < n; i++) {{ const double s = x[i] * {factor};"
        " y[i] = s * s + 2e8 * s + 1e16 - 1e16 - 2e8 * x[i]; }\nreturn 1; }\n"
    )
    built = bench.build(CANCELS, Candidate(text, "kernel(n, y, x)"))
    cases = [verify.Case({"n": n}, "real", seed=n) for n in (5, 300)]
    summary = verify.verify(bench, CANCELS, built.data["program"], cases)
    assert summary.ok == right, summary.outcome


GATHER = subject_of(
    """void gather(int n, double *y, const int *first, const int *at, const double *x)
{
    for (int i = 0; i < n; i++)
        for (int k = first[i]; k < first[i + 1]; k++)
            y[i] += x[at[k]];
}
""",
    "    for (",
    "\n}",
    (
        ScalarArg("n", "int", INT32),
        ArrayArg("y", "double", DOUBLE),
        ArrayArg("first", "const int", INT32, written=False),
        ArrayArg("at", "const int", INT32, written=False),
        ArrayArg("x", "const double", DOUBLE, written=False),
    ),
    lambda s: {"y": s["n"], "first": s["n"] + 1, "at": 4 * s["n"] + 1, "x": s["n"] + 5},
    indices=lambda s: {
        "first": harness.IndexData(4 * s["n"] + 1, ascending=True),
        "at": harness.IndexData(s["n"] + 5),
    },
    noalias=(("y", "x"),),
)


def test_indices_that_are_data_stay_inside(bench: Workbench) -> None:
    text = "static int kernel(int n, double *y, const int *f, const int *at, const double *x)\n{\n"
    text += "long all = 0; for (int i = 0; i < n; i++) for (int k = f[i]; k < f[i + 1]; k++)"
    text += " { y[i] += x[at[k]]; all++; }\nreturn all >= 2 * (long)n; }\n"
    summary = judged(bench, GATHER, Candidate(text, "kernel(n, y, first, at, x)"), (1, 5, 64))
    assert summary.outcome.ok and summary.declined == 0, summary


def test_promised_pairs_are_not_tried() -> None:
    assert verify.overlapping_pairs(GATHER) == []
    assert verify.overlapping_pairs(SAXPY) != []


def test_failing_original_is_not_the_candidates_fault(bench: Workbench) -> None:
    text = "void f(int *a, int n)\n{\n    for (int i = 0; i < n; i++) a[i] /= 0 * n;\n}\n"
    args = (ScalarArg("n", "int", INT32), ArrayArg("a", "int", INT32))
    subject = subject_of(text, "    for", "}", args, lambda s: {"a": s["n"]})
    assert judged(bench, subject, harness.ORIGINAL_ONLY, (7,)).outcome.kind == "original_failed"


def test_division_is_retried_without_zeros(bench: Workbench) -> None:
    text = "void f(int *a, int *b, int n)\n{\n    for (int i = 0; i < n; i++) a[i] /= b[i];\n}\n"
    args = (
        ScalarArg("n", "int", INT32),
        ArrayArg("a", "int", INT32),
        ArrayArg("b", "int", INT32, written=False),
    )
    subject = subject_of(text, "    for", "}", args, lambda s: {"a": s["n"], "b": s["n"]})
    kernel = "static int k(int *a, int *b, int n) { for (int i = 0; i < n; i++) a[i] /= b[i]; return 1; }"
    built = bench.build(subject, Candidate(kernel, "k(a, b, n)"))
    cases = verify.cases_for(subject, [{"n": 64}], overlap=False)
    assert verify.verify(bench, subject, built.data["program"], cases).ok


def test_records_derived_parameters_and_inner_extents(bench: Workbench) -> None:
    text = """\ufeff#include <stddef.h>
struct best { char tag; double value; int at; };
void rows(int m, int n, double (*A)[2 * n], struct best *b)\r
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < 2 * n; j++)
            if (A[i][j] > b[i].value) { b[i].value = A[i][j]; b[i].at = j; }
}
"""
    record = RecordType("struct best", (("value", DOUBLE), ("at", INT32)))
    args = (
        ScalarArg("m", "int", INT32),
        ScalarArg("n", "int", INT32),
        DerivedArg("n2", "int", "2 * n"),
        ArrayArg("A", "double", DOUBLE, inner=("n2",), written=False),
        ArrayArg("b", "struct best", record),
    )
    nest = text[text.index("    for") : text.rindex("}")].encode()
    end = len(text.encode())
    subject = Subject(
        text.encode(), "rows.c", end, nest, 5, args, lambda s: {"A": 2 * s["m"] * s["n"], "b": s["m"]}
    )
    kernel = """static int k(int m, int n2, const double *A, struct best *b) {
        for (int i = 0; i < m; i++) for (%s)
            if (A[i * n2 + j] > b[i].value) { b[i].value = A[i * n2 + j]; b[i].at = j; }
        return 1; }"""
    sizes = [{"m": m, "n": n} for m, n in ((0, 3), (3, 0), (5, 7), (17, 2))]
    cases = [verify.Case(s, data, 1) for s in sizes for data in ("exact", "real")]

    def judge(loop: str) -> verify.VerifySummary:
        built = bench.build(subject, Candidate(kernel % loop, "k(m, n2, &A[0][0], b)"))
        return verify.verify(bench, subject, built.data["program"], cases)

    assert judge("int j = 0; j < n2; j++").ok
    backwards = judge("int j = n2 - 1; j >= 0; j--").outcome  # another of several equal values
    assert backwards.kind == "wrong_result"
    assert (backwards.data["array"], backwards.data["field"]) == ("b", "at")


def test_corruption_is_the_candidates_fault(bench: Workbench) -> None:
    text = "int *p, q; void f(int *a, int n)\n{\n    for (int i = 0; i < n; i++) a[i] = *p;\n}\n"
    text += "__attribute__((constructor)) static void init(void) { p = &q; }\n"
    args = (ScalarArg("n", "int", INT32), ArrayArg("a", "int", INT32))
    subject = subject_of(text, "    for", "}", args, lambda s: {"a": s["n"]})
    kernel = "static int k(int *a, int n) { for (int i = 0; i < n; i++) a[i] = q; p = 0; return 1; }"
    built = bench.build(subject, Candidate(kernel, "k(a, n)"))
    cases = verify.cases_for(subject, [{"n": 7}], overlap=False)
    outcome = verify.verify(bench, subject, built.data["program"], cases).outcome
    assert outcome.kind == "crashed"
    assert "after the candidate had run" in outcome.reason


def test_nest_that_needs_another_file(bench: Workbench) -> None:
    text = "extern int far[4];\nvoid f(int *a)\n{\n    for (int i = 0; i < 4; i++) a[i] = far[i];\n}\n"
    subject = subject_of(text, "    for", "}", (ArrayArg("a", "int", INT32),), lambda s: {"a": 4})
    built = bench.build(subject, harness.ORIGINAL_ONLY)
    assert built.kind == "compile_failed"
    assert "far" in built.reason


# --------------------------------------------------------------------------- building


def test_build_is_cached_by_content_and_headers(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    text = '#include "scale.h"\nvoid f(int *a)\n{\n    for (int i = 0; i < 4; i++) a[i] *= SCALE;\n}\n'
    subject = subject_of(text, "    for", "}", (ArrayArg("a", "int", INT32),), lambda s: {"a": 4})
    subject = Subject(
        subject.data,
        str(tmp_path / "case.c"),
        subject.insert_at,
        subject.nest,
        4,
        subject.args,
        subject.counts,
    )
    kernel = Candidate("static int k(int *a) { for (int i = 0; i < 4; i++) a[i] *= 2; return 1; }", "k(a)")

    def run() -> tuple[bool, bool]:
        built = bench.build(subject, kernel)
        assert built.ok, built
        cases = verify.cases_for(subject, [{}], overlap=False)
        return built.data["cached"], verify.verify(bench, subject, built.data["program"], cases).ok

    assert run() == (False, True)
    assert run() == (True, True)
    (tmp_path / "scale.h").write_text("#define SCALE 3\n")
    assert run() == (False, False)


def test_parallel_builds_and_missing_compiler(bench: Workbench, tmp_path: Path) -> None:
    fresh = Workbench(Toolchain(flags=("-O1",)), jobs=2, cache_dir=tmp_path)
    many = [dot_kernel(f"s += {k};") for k in range(4)] + [dot_kernel("s += ;")] + [dot_kernel("s += 1;")]
    kinds = [o.kind for o in fresh.build_many(DOT, many)]
    assert kinds == ["ok"] * 4 + ["compile_failed", "ok"]
    missing = Workbench(Toolchain(cc=("no-such-compiler",)), cache_dir=tmp_path)
    assert missing.build(DOT, RIGHT_DOT).kind == "harness_failed"


def test_flags_of_a_compile_command() -> None:
    flags = ("-O3", "-c", "-o", "x.o", "-MMD", "-MF", "x.d", "-Werror=all", "-DN=1")
    assert usable_flags(flags) == ("-O3", "-DN=1")


def test_run_process_kills_the_group(tmp_path: Path) -> None:
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '60']); print('x', flush=True); time.sleep(60)"
    )
    env = runner.environment(("PATH",), str(tmp_path))
    ended = runner.run_process([sys.executable, "-c", code], cwd=str(tmp_path), env=env, seconds=0.7)
    assert (ended.killed, ended.stdout) == ("timed_out", b"x\n")
    assert ended.seconds < 5


# --------------------------------------------------------------------------- sizes


def test_size_ladder() -> None:
    sizes = [s["n"] for s in verify.size_ladder({"n": (0, 1000)}, [64])]
    assert {0, 1, 63, 64, 65} <= set(sizes)
    both = verify.size_ladder({"m": (1, 50), "n": (0, 50)}, [8], limit=900)
    assert all(1 <= s["m"] <= 50 and s["m"] * max(1, s["n"]) <= 900 for s in both)
    assert len({tuple(s.items()) for s in both}) == len(both)
    assert any(s["n"] == 0 < s["m"] for s in both)
    assert verify.size_ladder({}) == [{}]


# --------------------------------------------------------------------------- measuring


def synthetic(ratio: float, noise: float, seed: int = 1, n: int = 200) -> list[measure.Pair]:
    rng = random.Random(seed)
    drift = [1 + 0.5 * math.sin(k / 20) for k in range(n)]
    return [(ratio * d * math.exp(rng.gauss(0, noise)), d * math.exp(rng.gauss(0, noise))) for d in drift]


def test_ratio_cancels_drift() -> None:
    ratio = measure.ratio_of(synthetic(3.0, 0.02))
    assert ratio.low <= 3.0 <= ratio.high
    assert ratio.width < 0.02
    assert ratio.verdict(1.05) == "faster"


def test_interval_covers_as_often_as_it_says() -> None:
    rng = random.Random(2)
    hits = 0
    for _ in range(400):
        low, high = measure.median_interval([rng.lognormvariate(0, 1) for _ in range(25)], 0.95)
        hits += low <= 1.0 <= high
    assert hits >= 370
    assert measure.median_interval([1.0, 2.0, 3.0], 0.95) == (0.0, math.inf)


def test_verdicts() -> None:
    noisy = measure.Measurement(Outcome("ok"), ((1.0, 1.0),), measure.Ratio(1.1, 0.7, 1.6))
    diagnostic = noisy.noise("dot")
    assert diagnostic is not None
    assert diagnostic.code == "MDH604"
    assert diagnostic.help is not None and "`measure-seconds` of `[tune]`" in diagnostic.help
    assert measure.Ratio(1.0, 0.99, 1.01).verdict() == "not_faster"
    assert measure.Ratio(0.5, 0.3, 0.9).verdict() == "not_faster"
    assert measure.Ratio(2.0, 1.2, 3.0).verdict() == "faster"


def test_repeats_until_stable() -> None:
    clock = iter(range(1000))
    calls: list[float] = []

    def rounds(seconds: float) -> list[measure.Pair]:
        calls.append(seconds)
        return synthetic(2.0, 0.001, seed=len(calls), n=10)

    done = measure.repeat_until_stable(rounds, 100, clock=lambda: next(clock))
    assert len(done.pairs) == 20
    assert abs(done.ratio.median - 2.0) < 0.01
    calls.clear()
    done = measure.repeat_until_stable(lambda s: synthetic(2.0, 3.0, n=10), 5, clock=lambda: next(clock))
    assert len(done.pairs) < 100


def test_measure_in_place_nest(bench: Workbench) -> None:
    slower = saxpy_kernel("for (int r = 0; r < 20; r++) { __asm__ volatile(\"\" ::: \"memory\");\n"
                          "for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k]; }")  # fmt: skip
    program = bench.build(SAXPY, slower).data["program"]
    taken = measure.measure(bench, SAXPY, program, {"n": 20000}, budget=0.4)
    assert taken.outcome.ok
    assert taken.ratio.high < 0.5
    assert taken.ratio.rounds >= 7


def test_hopeless_first_run_is_given_up(bench: Workbench) -> None:
    """In the middle of the run, by a timer: it would not end before the process is killed."""
    endless = saxpy_kernel("for (volatile long r = 0; r < 1L << 40; r++) { }")
    program = bench.build(SAXPY, endless).data["program"]
    taken = measure.run_bench(bench, SAXPY, program, {"n": 100}, which=2, seconds=0.1, cut_off=0.02)
    assert (taken.kind, taken.reason) == ("cut_off", "one run took more than 0.16 s")
    assert taken.data["cut_seconds"] == 0.16
    slow = saxpy_kernel("for (volatile long r = 0; r < 30000000; r++) { }")  # some tens of milliseconds
    program = bench.build(SAXPY, slow).data["program"]
    taken = measure.run_bench(bench, SAXPY, program, {"n": 100}, which=2, seconds=0.1, cut_off=100.0)
    assert taken.ok


# --------------------------------------------------------------------------- space and search

TOY = space.Space(
    (("A", (1, 2, 4, 8, 16, 32)), ("B", (1, 2, 4, 8)), ("C", ("x", "-"))),
    ("A % B == 0", "min(A, B) <= 4", "(C == '-') == (B == 1)"),
)


def toy_evaluation(point: space.Point) -> Evaluation:
    a, b = int(point["A"]), int(point["B"])
    if a == 4:
        return Evaluation(point, Outcome("crashed", "signal 11"))
    if a == 2:
        return Evaluation(point, Outcome("timed_out"))
    return Evaluation(point, Outcome("ok"), 0.5 + abs(a - 16) + abs(b - 2) / 10)


def test_space_enumeration_agrees_with_brute_force() -> None:
    points = list(space.valid_points(TOY))
    assert len(points) == sum(
        a % b == 0 and min(a, b) <= 4 and (c == "-") == (b == 1)
        for a in (1, 2, 4, 8, 16, 32)
        for b in (1, 2, 4, 8)
        for c in ("x", "-")
    )
    assert all(space.allows(TOY, p) for p in points)
    assert not space.allows(TOY, {"A": 1, "B": 2, "C": "x"})
    with pytest.raises(ValueError, match="unknown names"):
        list(space.valid_points(space.Space((("A", (1,)),), ("B > 0",))))


def test_best_estimated_walks_a_large_space() -> None:
    large = space.Space(tuple((f"b{k}", tuple(range(20))) for k in range(8)), ("b0 <= b1 + 3",))
    best = space.best_estimated(large, lambda p: sum((int(v) - 9) ** 2 for v in p.values()), 40)
    assert sum((int(v) - 9) ** 2 for v in best[0].values()) <= 8
    assert len(space.working_set(large, best[:2], 1, limit=2000)) > 1000


@pytest.mark.parametrize("strategy", ["random", "genetic", "greedy", "annealing"])
def test_search_seam(strategy: str) -> None:
    """Kernel Tuner's strategies over our runner, in a space with crashes and time-outs."""
    seen: list[tuple[space.Value, ...]] = []

    def batch(points, cut_off):
        seen.extend(TOY.key(p) for p in points)
        return [toy_evaluation(p) for p in points]

    state = random.getstate()
    found = search.search(TOY, batch, budget=Budget(evaluations=1000), strategy=strategy, seed=5)
    assert random.getstate() == state
    assert found.best is not None
    assert found.best.point == {"A": 16, "B": 2, "C": "x"}
    assert len(seen) == len(set(seen)) == len(found.evaluations) == len(list(space.valid_points(TOY)))
    assert found.reasons["crashed"] == 3
    assert all(not math.isnan(e.seconds) for e in found.evaluations)


def test_search_budget_order_and_determinism() -> None:
    runs = []
    for _ in range(2):
        seen: list[space.Point] = []

        def batch(points, cut_off, seen=seen):
            seen.extend(points)
            return [toy_evaluation(p) for p in points]

        found = search.search(
            TOY,
            batch,
            order_hint=lambda p: -int(p["A"]),
            budget=Budget(evaluations=8),
            strategy="greedy",
            seed=3,
        )
        runs.append(seen)
        assert (len(seen), found.stopped) == (8, "budget spent")
        assert [p["A"] for p in seen[:2]] == [32, 32]
    assert runs[0] == runs[1]


def test_race_is_among_the_leaders_and_the_first() -> None:
    """The first point takes part though four are faster; the order is the race's; seconds are shared."""
    asked: list[tuple[list[int], int, float]] = []

    def batch(points, cut_off):
        return [Evaluation(p, Outcome("ok"), 1.0 / int(p["A"]), text=f"code {p['A']}") for p in points]

    def race(leaders, incumbent, seconds):
        asked.append(([e.point["A"] for e in leaders], incumbent, seconds))
        return [2.0 if e.point["A"] == 32 else 1.0 / int(e.point["A"]) for e in leaders]

    found = search.search(
        TOY, batch, start=[{"A": 1, "B": 1, "C": "x"}], budget=Budget(1000, 100.0), race=race, finalists=3
    )
    ((among, incumbent, seconds),) = asked
    assert among[incumbent] == 1
    assert sorted(among) == [1, 8, 16, 32]  # each code once
    assert 10 <= seconds <= 20
    assert [e.point["A"] for e in found.leaders] == [16, 8, 1, 32]
    assert {e.outcome.reason for e in found.leaders} == {search.IN_TURN}


def test_what_a_search_begins_with_is_tried_however_long_the_model_takes() -> None:
    """A budget that is spent before the model has ranked anything is no reason to try nothing."""

    def slow(point):
        time.sleep(0.05)
        return 1.0

    def batch(points, cut_off):
        return [toy_evaluation(p) for p in points]

    first = {"A": 1, "B": 1, "C": "x"}
    found = search.search(TOY, batch, order_hint=slow, start=[first], budget=Budget(None, 0.1))
    assert [e.point for e in found.evaluations] == [first]
    assert found.stopped == "budget spent" and found.best is not None


def test_search_passes_our_errors_on() -> None:

    def broken(points, cut_off):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        search.search(TOY, broken, budget=Budget(evaluations=8))
    with pytest.raises(ValueError, match="unknown strategy"):
        search.search(TOY, broken, strategy="guess")


def test_search_without_kernel_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    for name in [n for n in sys.modules if n.startswith("kernel_tuner.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Refusal) as refused:
        search.search(TOY, lambda points, cut_off: [toy_evaluation(p) for p in points])
    assert refused.value.diagnostic.code == "MDH605"


def test_kernel_tuner_is_imported_late() -> None:
    code = (
        "import sys, tuning.tune, tuning.search; print('kernel_tuner' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_budget_text() -> None:
    assert parse_budget("2m") == Budget(None, 120.0)
    assert parse_budget("200ev, 90s") == Budget(200, 90.0)
    assert parse_budget("0").nothing
    for text in ("", "12", "x", "3w"):
        with pytest.raises(ValueError, match="budget"):
            parse_budget(text)


# --------------------------------------------------------------------------- tuning

DOT_SPACE = space.Space((("WAY", ("plain", "four", "wrong", "crash", "hang", "syntax", "refused", "slow")),))


def dot_at(point: space.Point) -> Candidate:
    way = point["WAY"]
    loop = "for (size_t k = 0; k < n; k++) s += x[k] * y[k];"
    four = "float t[4] = {0}; size_t k = 0;\nfor (; k + 4 <= n; k += 4)\n"
    four += "for (int l = 0; l < 4; l++) t[l] += x[k + l] * y[k + l];\n"
    bodies = {
        "plain": loop,
        "four": four + "for (; k < n; k++) t[0] += x[k] * y[k];\ns += t[0] + t[1] + t[2] + t[3];",
        "wrong": "if (n < 5000) { " + loop + " }",
        "crash": "if (n > 5000) __builtin_trap();" + loop,
        "hang": "volatile int go = 1; while (go) ;",
        "syntax": "s += ;",
        "slow": "for (int r = 0; r < 300; r++) { float s = 0; __asm__ volatile(\"\" ::: \"memory\"); " + loop
        + " __asm__ volatile(\"\" :: \"r\"(s)); }\n" + loop,
    }  # fmt: skip
    if way == "refused":
        raise ValueError("no code for this point")
    return dot_kernel(bodies[str(way)])


def test_tune_resume_and_replay(bench: Workbench, tmp_path: Path) -> None:
    context = store.Context("f.c::dot::0", tune.source_hash(DOT), "machine", "n=10007", "-O1", "gcc")
    settings = tune.Settings(
        Budget(evaluations=20), strategy="random", final_seconds=0.3, sample_seconds=0.02
    )
    cases = verify.cases_for(DOT, [{"n": n} for n in (0, 1, 7, 64)])

    def run(**change) -> tuple[tune.TuneResult, list[Evaluation]]:
        told: list[Evaluation] = []
        with store.Store(tmp_path / "db.sqlite") as database:
            result = tune.tune(
                bench, DOT, dot_at, DOT_SPACE, {"n": 10007}, cases,
                settings=tune.replace(settings, **change), store=database, context=context, tell=told.append,
            )  # fmt: skip
        return result, told

    first, told = run()
    kinds = {e.point["WAY"]: e.outcome.kind for e in first.evaluations}
    assert kinds == {
        "plain": "ok", "four": "ok", "wrong": "wrong_result", "crash": "crashed", "hang": "timed_out",
        "syntax": "compile_failed", "refused": "not_generated", "slow": kinds["slow"],
    }  # fmt: skip
    assert kinds["slow"] in ("ok", "cut_off")
    assert first.winner is not None
    assert first.winner.point["WAY"] in ("plain", "four")
    assert first.winner.verification.ok
    assert first.winner.measurement.outcome.ok
    assert [e.point["WAY"] for e in first.wrong] == ["wrong"]
    assert len(told) == 8
    again, _ = run()
    assert all(e.reused for e in again.evaluations)
    assert {e.point["WAY"]: e.outcome.kind for e in again.evaluations} == kinds
    assert again.search is not None
    with store.Store(tmp_path / "db.sqlite") as database:
        _, record = database.searches("dot::0")
    assert record == again.record
    for _ in range(2):  # the race decided, and what it found was recorded
        replayed = replay.replayed(record, dot_at)
        assert replayed.search is not None
        found = {e.point["WAY"]: e.outcome.kind for e in replayed.evaluations}
        assert found == kinds
        assert [(e.point["WAY"], e.seconds) for e in replayed.search.leaders] == [
            (e.point["WAY"], e.seconds) for e in again.search.leaders
        ]
        assert replayed.winner is not None
        assert again.winner is not None
        assert replayed.winner.point == again.winner.point
        assert replayed.winner.measurement == again.winner.measurement
        assert replayed.winner.verification.as_json() == again.winner.verification.as_json()
        assert replayed.diagnostics == again.diagnostics
    changed = dataclasses.replace(record, winner_text="other")
    with pytest.raises(replay.ReplayError, match="other code"):
        replay.replayed(changed, dot_at)
    json.dumps(tune.as_json(again))


def test_tune_without_survivor_and_without_search(bench: Workbench) -> None:
    bad = space.Space((("WAY", ("wrong", "syntax")),))
    cases = verify.cases_for(DOT, [{"n": 7}])
    settings = tune.Settings(Budget(evaluations=0), final_seconds=0.1)
    result = tune.tune(bench, DOT, dot_at, bad, {"n": 10007}, cases, settings=settings)
    assert result.winner is None
    assert [d.code for d in result.diagnostics] == ["MDH607"]
    assert result.reasons == {"wrong_result": 1}
    good = space.Space((("WAY", ("plain",)),))
    result = tune.tune(bench, DOT, dot_at, good, {"n": 10007}, cases, settings=settings)
    assert result.winner is not None
    assert result.search is not None
    assert result.search.strategy == "model"


def test_what_fails_while_it_is_timed_does_not_win(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long for one round, or a crash in the third: marked; too long for all rounds: what it has is enough."""
    ways = space.Space((("WAY", ("plain",)),))
    cases = verify.cases_for(DOT, [{"n": 7}])
    settings = tune.Settings(Budget(evaluations=0), final_seconds=0.1)
    two = ((2.0, 1.0), (2.1, 1.0))
    for outcome, pairs, wins in (
        (Outcome("timed_out", "not finished after 3 s"), (), False),
        (Outcome("crashed", "signal 11"), two, False),
        (Outcome("ok"), (), False),
        (Outcome("timed_out", "not finished after 3 s"), two, True),
    ):
        taken = measure.Measurement(outcome, pairs, measure.ratio_of(pairs))
        monkeypatch.setattr(tune, "measure", lambda *a, taken=taken, **k: taken)
        result = tune.tune(bench, DOT, dot_at, ways, {"n": 10007}, cases, settings=settings)
        assert (result.winner is not None) == wins, outcome
        if not wins:
            assert [d.code for d in result.diagnostics] == ["MDH607"]
            assert result.reasons == {outcome.kind if not outcome.ok else "harness_failed": 1}


def of_x(name: str, t: ScalarType) -> tuple[harness.Arg, ...]:
    """Arguments of a nest over ``i`` that makes integers ``y`` of ``x``."""
    x = ArrayArg("x", f"const {name}", t, written=False)
    return ScalarArg("n", "int", INT32), ArrayArg("y", "int", INT32), x, IteratorArg("i", "int", INT32)


THIRDS = subject_of(
    """#ifdef __OPTIMIZE__
#define MORE 1
#else
#define MORE 2
#endif
void thirds(int n, int *restrict y, const float *restrict x)
{
    int i;
    for (i = 0; i < n; i++)
        y[i] = (int)(x[i] / 3.0f) + MORE;
}
""",
    "    for (",
    "}",
    of_x("float", FLOAT),
    lambda s: {"x": s["n"], "y": s["n"]},
)


@pytest.mark.parametrize("sizes", [(0, 7), (5000,)], ids=["small", "one size"])
def test_a_search_takes_both_results_of_the_original(bench: Workbench, sizes: tuple[int, ...]) -> None:
    """As the user compiles it and without optimisation; what is asked once counts for all that gives the same."""

    def at(point: space.Point) -> Candidate:
        body = f"for (int k = 0; k < n; k++) y[k] = (int)(x[k] / 3.0f) + {point['MORE']};\nreturn {point['ONE']};"
        head = "static int kernel(int n, int *y, const float *x)\n{\n"
        return Candidate(head + body + "\n}\n", "kernel(n, y, x)", "i = n > 0 ? n : 0;")

    both = space.Space((("MORE", ("1", "2", "3")), ("ONE", ("1", "2 - 1"))))
    cases = verify.cases_for(THIRDS, [{"n": n} for n in sizes])
    settings = tune.Settings(Budget(evaluations=6), strategy="random", final_seconds=0.1, sample_seconds=0.01)
    more = verify.Thorough([{"n": n} for n in sizes])
    result = tune.tune(bench, THIRDS, at, both, {"n": 5000}, cases, settings=settings, thorough=more)
    found = {(e.point["MORE"], e.outcome.kind) for e in result.evaluations}
    assert found == {("1", "ok"), ("2", "ok"), ("3", "wrong_result")}
    assert len(result.evaluations) == 6


SLOW = subject_of(
    """void slow(int n, int *restrict y, const int *restrict x)
{
    int i;
    for (i = 0; i < n; i++) {
        double d = 1;
        for (long k = 0; n == 1000 && i == 0 && k < 500000000; k++)
            d = 1 + 1/d;
        y[i] = x[i] + (d > 3);
    }
}
""",
    "    for (",
    "\n}",
    of_x("int", INT32),
    lambda s: {"x": s["n"], "y": s["n"]},
)


def test_an_original_may_take_longer_than_a_candidate(cache: Path) -> None:
    """It runs once where that takes long: how fast it is shows, and what it gives."""
    limits = Limits(compile_seconds=20, run_seconds=0.5, memory_bytes=4 << 30)
    bench = Workbench(Toolchain(flags=("-O1",)), limits, threads=2, jobs=2, cache_dir=cache)
    settings = tune.Settings(Budget(evaluations=0))
    found = tune.reference(bench, SLOW, {"n": 1000}, settings)
    assert found.ok, found
    original = found.data["reference"]
    assert len(original.times) == 1 and original.times[0] == original.seconds > 1
    assert len(tune.reference(bench, SLOW, {"n": 999}, settings).data["reference"].times) > 1


@pytest.mark.parametrize("evaluations", [0, 1])
def test_what_is_compared_with_nothing_yields_the_cores(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, evaluations: int
) -> None:
    """Waiting threads that spin, and a limit for what is slow, would lose the only candidate on a busy machine."""
    seen = []
    run = Workbench.run

    def watched(self, program, cases, *, timed=True, seconds=0.0, **more):
        (which,) = set(re.findall(r"^set which (\d)$", "".join(cases), re.M)) or {"-"}
        seen.append((which, timed, seconds))
        return run(self, program, cases, timed=timed, seconds=seconds, **more)

    monkeypatch.setattr(Workbench, "run", watched)
    good = space.Space((("WAY", ("plain",)),))
    cases = verify.cases_for(DOT, [{"n": 7}])
    settings = tune.Settings(Budget(evaluations=evaluations), final_seconds=0.1)
    assert tune.tune(bench, DOT, dot_at, good, {"n": 10007}, cases, settings=settings).winner is not None
    alone = {(timed, seconds) for which, timed, seconds in seen if which == "2"}
    if evaluations:
        assert alone and all(timed and seconds < bench.limits.run_seconds for timed, seconds in alone)
    else:
        assert alone == {(False, bench.limits.run_seconds)}
    assert {timed for which, timed, _ in seen if which == "3"} == {True}


# --------------------------------------------------------------------------- the last race


def racers(true: list[float], noise: float, seed: int):
    """Times around the true ones on a machine whose speed drifts by a factor of two; a clock with them."""
    rng, now = random.Random(seed), [0.0]

    def sample(k: int) -> float:
        drift = 1.5 + 0.5 * math.sin(now[0] / 7)
        now[0] += 0.25
        return true[k] * drift * (1 + rng.expovariate(1 / noise))

    return sample, lambda: now[0]


def test_race_keeps_the_incumbent_among_equals() -> None:
    stayed = 0
    for seed in range(200):
        sample, clock = racers([1.0] * 9, 0.03, seed)
        times = race(sample, 9, 4, 20.0, clock)
        stayed += times[4] == min(times)
    assert stayed >= 180  # one in forty at most is wrong by chance


def test_race_finds_what_is_faster() -> None:
    found = 0
    for seed in range(100):
        true = [1.0, 0.98, 1.02, 0.93, 1.1, 0.99, 1.0, 1.3]
        sample, clock = racers(true, 0.03, seed)
        times = race(sample, 8, 0, 20.0, clock)
        found += times[3] == min(times) and times[3] <= times[0]
    assert found >= 95


def test_race_ends() -> None:
    calls: list[int] = []

    def failing(k: int) -> float:
        calls.append(k)
        return math.inf if k == 1 else 1.0 + k

    assert race(failing, 3, 0, 20.0, lambda: 0.0) == [1.0, math.inf, 3.0]
    assert calls.count(1) == 1
    sample, clock = racers([1.0, 0.999], 0.2, 1)
    race(sample, 2, 0, 5.0, clock)
    assert 5 <= clock() <= 6
    assert race(lambda k: math.inf, 1) == [math.inf]
    assert race(lambda k: 2.0 if k else math.inf, 2) == [math.inf, 2.0]  # the incumbent failed
    assert race(lambda k: 3.0, 1) == [3.0]


# --------------------------------------------------------------------------- store and lock


def contexts(seed: int = 0) -> store.Context:
    return store.Context("f.c::dot::0", "abc", "machine", "n=1024", "-O2", "gcc 12", seed, "0.1")


def test_store_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    with store.Store(path) as database:
        database.add(contexts(), store.Record('{"T":1}', "ok", "", (0.5, 0.25), "hash"))
        database.add(contexts(), store.Record('{"T":1}', "ok", "", (0.125,), "hash"))
        database.add(contexts(), store.Record('{"T":2}', "crashed", "signal 11"))
        database.add(contexts(seed=9), store.Record('{"T":1}', "ok", "", (9.0,)))
    with store.Store(path) as database:
        found = database.find(contexts(), '{"T":1}', "hash")
        assert found is not None
        assert found.times == (0.125,)
        assert database.find(contexts(), '{"T":1}', "other text") is None
        assert [r.outcome for r in database.all(contexts())] == ["ok", "crashed"]


_WRITER = """
import sys
from pathlib import Path
from tuning.store import Context, Record, Store
with Store(Path(sys.argv[1])) as database:
    for k in range(40):
        database.add(Context("n", "s", "m", "z", "f", "c"), Record(sys.argv[2] + str(k), "ok", "", (1.0,)))
"""


def test_store_with_several_writers(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), w]) for w in ("a", "b", "c")]
    with store.Store(path) as database:
        context = store.Context("n", "s", "m", "z", "f", "c")
        threads = [
            threading.Thread(target=lambda t=t: database.add(context, store.Record(f"t{t}", "ok")))
            for t in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [w.wait(timeout=60) for w in writers] == [0, 0, 0]
        assert len(database.all(context)) == 125


def test_damaged_or_foreign_store(tmp_path: Path) -> None:
    path = tmp_path / "db.sqlite"
    path.write_bytes(b"this is no database, but long enough to look at" * 100)
    with pytest.raises(store.StoreError, match="move it away"):
        store.Store(path)
    newer = tmp_path / "newer.sqlite"
    store.Store(newer).close()
    import sqlite3

    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(store.StoreError, match="schema 99"):
        store.Store(newer)


def entry(size_class: str = "n=1024", **change) -> lock.Entry:
    values = {
        "nest": "f.c::dot::0", "fingerprint": "machine", "size_class": size_class, "source_hash": "abc",
        "configuration": {"b": 2, "a": [1, 2]}, "text_hash": "def",
        "speedup": measure.Ratio(3.14159, 3.0, 3.3),
    }  # fmt: skip
    return lock.Entry(**{**values, **change})


def test_lock_of_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path, name = tmp_path / lock.NAME, "caf\udce9.c::f::0"
    assert lock.update(path, [entry(nest=name)])
    assert list(lock.read(path)["nests"]) == [name]
    assert path.read_bytes().decode("utf-8")


def test_lock_is_deterministic_and_atomic(tmp_path: Path) -> None:
    path = tmp_path / lock.NAME
    assert lock.update(path, [entry(), entry("n=7"), entry(nest="a.c::f::0")])
    other = tmp_path / "other.lock"
    lock.update(other, [entry(nest="a.c::f::0")])
    lock.update(other, [entry("n=7", seed=4)])
    lock.update(other, [entry("n=7"), entry(configuration={"a": [1, 2], "b": 2})])
    assert path.read_bytes() == other.read_bytes()
    assert not lock.update(path, [entry()])  # the same bytes: not touched
    assert sorted(os.listdir(tmp_path)) == [lock.NAME, "other.lock"]
    block = lock.find(lock.read(path), "f.c::dot::0", "machine", "n=1024")
    assert block is not None
    assert block["speedup"] == {"median": 3.14, "low": 3.0, "high": 3.3, "confidence": 0.95}
    assert lock.read(tmp_path / "absent") == lock.empty()
    assert "a.c::f::0" not in lock.remove(lock.read(path), "a.c::f::0")["nests"]


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n{}", "[]", '{"schema_version": 2, "nests": {}}'])
def test_lock_that_is_no_lock(tmp_path: Path, text: str) -> None:
    path = tmp_path / lock.NAME
    path.write_text(text)
    with pytest.raises(lock.LockError):
        lock.read(path)


def test_lock_keeps_mode_and_links(tmp_path: Path) -> None:
    real = tmp_path / "real.lock"
    lock.update(real, [entry()])
    real.chmod(0o600)
    link = tmp_path / lock.NAME
    link.symlink_to(real)
    lock.update(link, [entry(seed=3)])
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert lock.find(lock.read(real), "f.c::dot::0", "machine", "n=1024")["seed"] == 3


def test_fingerprint_depends_on_compiler_and_flags() -> None:
    a = fingerprint.fingerprint(Toolchain(flags=("-O2", "-Ix")), 2)
    assert a == fingerprint.fingerprint(Toolchain(flags=("-Iy", "-O2")), 2)
    assert a != fingerprint.fingerprint(Toolchain(flags=("-O3",)), 2)


@pytest.mark.parametrize(("rounds", "confidence"), [(2, 0.5), (3, 0.75), (5, 0.9375)])
def test_few_rounds_are_worth_little(rounds: int, confidence: float) -> None:
    """The range of ``n`` ratios misses their median if all lie on one side: twice in 2**n."""
    ratio = measure.ratio_of([(3.0 + k, 1.0) for k in range(rounds)])
    assert (ratio.low, ratio.high, ratio.confidence) == (3.0, 2.0 + rounds, confidence)
    assert ratio.verdict() == ("faster" if rounds == 5 else "noisy")
