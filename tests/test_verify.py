"""The last comparison of a candidate: every kind of check catches a kernel that is wrong in just that way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from certify.obligations import REFUTED, Certificate, Obligation
from mdh_core.expr import BOOL, DOUBLE, FLOAT, INT8, INT16, INT32, INT64, ScalarType
from mdh_lift import certified
from mdh_lift.cli import cli
from mdh_lift.specials import specials_of
from tests.lifting import lifted
from tuning import harness, runner, verify
from tuning.harness import ArrayArg, Candidate, IndexData, OuterScalarArg, ScalarArg, Subject
from tuning.measure import run_bench
from tuning.runner import OK, Limits, Outcome, Workbench
from tuning.toolchain import Toolchain, plain_flags
from tuning.verify import SPECIAL_VALUES, Case, Specials, Thorough, VerifySummary

ROOT = Path(__file__).parent.parent

FLOATS = SPECIAL_VALUES[:4]
FIXED_ORDER = Specials(FLOATS, denormal=True, zero_signs=True)
ANY_ORDER = Specials(FLOATS[:3], denormal=True, any_order=True)


def subject_of(text: str, args: tuple[harness.Arg, ...], **rest) -> Subject:
    """The nest is the text from the first ``for`` to the function's end; all arrays have ``n`` elements."""
    data = text.encode()
    start = data.index(b"    for (")
    stop = data.index(b"    return", start) if b"    return" in data else data.index(b"\n}", start)
    end = data.index(b"\n}", start) + 3
    names = [a.name for a in args if isinstance(a, ArrayArg)]
    line = data[:start].count(b"\n") + 1
    return Subject(data, "case.c", end, data[start:stop], line, args, lambda s: dict.fromkeys(names, s["n"]), **rest)


def arrays(c_type: str, t: ScalarType) -> tuple[harness.Arg, ...]:
    """``y`` is written only, ``x`` is read only."""
    return (
        ScalarArg("n", "int", INT32),
        ArrayArg("y", c_type, t, read=False, no_alias=True),
        ArrayArg("x", f"const {c_type}", t, written=False, no_alias=True),
    )


def map_of(c_type: str, t: ScalarType, statement: str) -> Subject:
    head = f"void f(int n, {c_type} *restrict y, const {c_type} *restrict x)"
    text = f"{head}\n{{\n    for (int i = 0; i < n; i++)\n        {statement}\n}}\n"
    return subject_of(text, arrays(c_type, t), length=lambda s: 2)


COPY = map_of("float", FLOAT, "y[i] = x[i];")
ZERO = map_of("float", FLOAT, "y[i] = 0;")
COPY_INT = map_of("int", INT32, "y[i] = x[i];")
SCALE = map_of("double", DOUBLE, "y[i] = 0.1 * x[i] + 0.3;")
SUM = subject_of(
    "float f(int n, const float *x)\n{\n    float s = 0;\n"
    "    for (int i = 0; i < n; i++)\n        s += x[i];\n    return s;\n}\n",
    (
        ScalarArg("n", "int", INT32),
        ArrayArg("x", "const float", FLOAT, written=False),
        OuterScalarArg("s", "float", FLOAT),
    ),
)


def kernel(body: str, c_type: str = "float") -> Candidate:
    head = f"static int kernel(int n, {c_type} *y, const {c_type} *x)\n{{\n"
    return Candidate(head + body + "\nreturn 1; }\n", "kernel(n, y, x)")


def loop(statement: str, c_type: str = "float") -> Candidate:
    return kernel(f"for (int i = 0; i < n; i++) {{ {statement} }}", c_type)


def sum_of(body: str) -> Candidate:
    text = f"static int kernel(int n, const float *x, float *s)\n{{\nfloat t = 0;\n{body}\n*s += t; return 1; }}\n"
    return Candidate(text, "kernel(n, x, &s)")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bench(cache: Path) -> Workbench:
    limits = Limits(compile_seconds=20, run_seconds=10, memory_bytes=4 << 30)
    return Workbench(Toolchain(flags=("-O1",)), limits, threads=2, jobs=2, cache_dir=cache)


SIZES = [{"n": n} for n in (0, 1, 7, 16, 61, 64)]
LARGE = {"n": 2_000_003}


def judged(
    bench: Workbench,
    subject: Subject,
    candidate: Candidate,
    specials: Specials = FIXED_ORDER,
    large: bool = False,
    bitwise: bool = False,
) -> tuple[verify.VerifySummary, verify.VerifySummary]:
    """What the usual cases say, and what the thorough comparison says."""
    built = bench.build(subject, candidate)
    assert built.ok, built
    program = built.data["program"]
    cases = verify.cases_for(subject, SIZES, bitwise=bitwise)
    more = Thorough(SIZES, specials, LARGE if large else None, bitwise=bitwise)
    usual = verify.verify(bench, subject, program, cases)
    return usual, verify.verify_thoroughly(bench, subject, program, cases, more)


def digests(bench: Workbench, subject: Subject, candidate: Candidate) -> tuple[str, str]:
    """Of the results of the original and of a candidate, as a search compares them."""
    built = bench.build(subject, candidate)
    assert built.ok, built
    sizes = {"n": 1003}
    ran = run_bench(bench, subject, built.data["program"], sizes, which=3, seconds=0, min_rounds=1)
    assert ran.ok, ran
    return ran.data["first"]["original"]["digest"], ran.data["first"]["candidate"]["digest"]


@pytest.mark.parametrize(
    ("c_type", "t"),
    [("signed char", INT8), ("short", INT16), ("int", INT32), ("long", INT64), ("float", FLOAT), ("double", DOUBLE)],
)
def test_digests_tell_results_apart(bench: Workbench, c_type: str, t: ScalarType) -> None:
    subject = map_of(c_type, t, "y[i] = i % 100;")
    counted = "for (int i = 0; i < n; i++) y[i] = i % 100;"
    want, have = digests(bench, subject, kernel(counted, c_type))
    assert want == have
    for wrong in ("y[0] = 1;", "y[n - 1]++;", "y[3] = 11, y[11] = 3;", "y[500] = 1, y[501] = 0;", "y[17] = -17;"):
        want, have = digests(bench, subject, kernel(counted + wrong, c_type))
        assert want != have, wrong


@pytest.mark.parametrize(("c_type", "t"), [("float", FLOAT), ("double", DOUBLE)])
def test_digests_know_one_zero_and_one_nan(bench: Workbench, c_type: str, t: ScalarType) -> None:
    subject = map_of(c_type, t, 'y[i] = x[i] > 1 ? __builtin_nan("") : x[i];')
    other = 'y[i] = x[i] > 1 ? -__builtin_nan("7") : x[i] == 0 ? -0.0 : x[i];'
    want, have = digests(bench, subject, loop(other, c_type))
    assert want == have
    want, have = digests(bench, subject, loop("y[i] = x[i];", c_type))
    assert want != have


@pytest.mark.parametrize(
    ("subject", "candidate"),
    [
        (COPY, loop("y[i] = x[i];")),
        (ZERO, loop("y[i] = 0;")),
        (COPY_INT, loop("y[i] = x[i];", "int")),
        (SCALE, loop("y[i] = __builtin_fma(0.1, x[i], 0.3);", "double")),
    ],
    ids=["copy", "zero", "integers", "contracted"],
)
def test_right_maps_pass(bench: Workbench, subject: Subject, candidate: Candidate) -> None:
    specials = FIXED_ORDER if subject is not COPY_INT else Specials(("extreme integers",))
    usual, thorough = judged(bench, subject, candidate, specials, large=True)
    assert usual.ok and thorough.ok, thorough.outcome
    assert thorough.plain and thorough.notes == ()
    assert thorough.cases > usual.cases and thorough.handled == thorough.cases
    assert thorough.kinds["special values"] >= 4 and thorough.kinds["large arrays"] == 1
    assert "n=2000003" in thorough.sizes


@pytest.mark.parametrize(
    ("subject", "candidate", "specials", "large", "reason"),
    [
        (ZERO, loop("y[i] = 0 * y[i];"), FIXED_ORDER, False, "NaN"),
        (ZERO, loop("y[i] = 0 * x[i];"), Specials(("infinities",)), False, "infinities"),
        (COPY, loop("y[i] = x[i] + 0.0f;"), FIXED_ORDER, False, "zeros of both signs"),
        (COPY, loop("y[i] = x[i] == x[i] ? x[i] : 0;"), FIXED_ORDER, False, "NaN"),
        (COPY, loop("y[i] = x[i] > 3e38f ? 3e38f : x[i];"), FIXED_ORDER, False, "infinities"),
        (COPY, loop("y[i] = __builtin_fabsf(x[i]) < 0x1p-126f ? 0 * x[i] : x[i];"),
         Specials(denormal=True), False, "denormal"),
        (SUM, sum_of("for (int i = 0; i < n; i++) t += __builtin_fabsf(x[i]) < 0x1p-126f ? 0 : x[i];"),
         Specials(denormal=True), False, "denormal"),
        (SUM, sum_of("for (int i = 0; i < n; i++) t += x[i] == x[i] ? x[i] : 0;"), ANY_ORDER, False, "NaN"),
        (SUM, sum_of("for (int i = 0; i < n; i++) if (__builtin_isfinite(x[i])) t += x[i];"),
         Specials(("infinities",)), False, "infinities"),
        (COPY_INT, loop("y[i] = x[i] == (int)0x80000000 ? -2147483647 : x[i];", "int"),
         Specials(("extreme integers",)), False, "extreme integers"),
        (COPY_INT, loop("y[i] = (int)(float)x[i];", "int"), Specials(("extreme integers",)), False, "extreme"),
        (COPY, loop("y[i] = n > 1000 && i == n - 1 ? 0 : x[i];"), Specials(), True, "n=2000003"),
        (SUM, sum_of("for (int i = 0; i < n; i++) t += x[i];\nif (n > 1000) t += 1;"), Specials(), True, "n=2000003"),
    ],
    ids=["times-zero", "times-zero-input", "lost-sign", "lost-nan", "lost-infinity", "flushed", "flushed-sum", "skipped-nan",
         "skipped-infinity", "int-min", "through-float", "long-copy", "long-sum"],
)  # fmt: skip
def test_each_kind_of_data_catches_its_fault(
    bench: Workbench, subject: Subject, candidate: Candidate, specials: Specials, large: bool, reason: str
) -> None:
    usual, thorough = judged(bench, subject, candidate, specials, large)
    assert usual.ok, "the usual cases see it, too: this tests nothing"
    assert thorough.outcome.kind == runner.WRONG_RESULT, thorough.outcome
    assert reason in thorough.outcome.reason


def test_aligned_access_to_offset_arrays(bench: Workbench) -> None:
    body = (
        "typedef float v __attribute__((vector_size(16)));\nint i = 0;\n"
        "for (; i + 4 <= n; i += 4) *(v *)(y + i) = *(const v *)(x + i);\nfor (; i < n; i++) y[i] = x[i];"
    )
    program = bench.build(COPY, kernel(body)).data["program"]
    sizes = [{"n": 64}]  # arrays of this size end at a page, so they are aligned
    cases = verify.cases_for(COPY, sizes)
    assert verify.verify(bench, COPY, program, cases).ok
    outcome = verify.verify_thoroughly(bench, COPY, program, cases, Thorough(sizes)).outcome
    assert outcome.kind == runner.CRASHED, outcome
    assert "aligned to their elements only" in outcome.reason


@pytest.mark.parametrize("extra", ["y[n] = y[n];", "y[-1] = 1;", "y[n] = 1;"])
def test_stray_access_beside_offset_arrays(bench: Workbench, extra: str) -> None:
    """One element beyond or before: on the page, but not of the array; or outside of the page."""
    body = f"for (int i = 0; i < n; i++) y[i] = x[i];\nif (n == 16) {{ volatile float *p = y; {extra.replace('y', 'p')} }}"
    program = bench.build(COPY, kernel(body)).data["program"]
    more = Thorough([{"n": 16}])
    found = verify.verify_thoroughly(bench, COPY, program, verify.cases_for(COPY, more.sizes), more).outcome
    assert found.kind in (runner.CRASHED, runner.WRONG_RESULT), found
    offset = [verify.Case({"n": 16}, "exact", offset=3)]
    found = verify.verify(bench, COPY, program, offset).outcome
    assert found.ok == (extra == "y[n] = y[n];")
    assert found.ok or "write outside of y" in found.reason


def test_hang_at_large_sizes_only(bench: Workbench) -> None:
    hangs = kernel("for (int i = 0; i < n; i++) y[i] = x[i];\nvolatile int go = n > 1000; while (go) ;")
    program = bench.build(COPY, hangs).data["program"]
    more = Thorough(SIZES, large=LARGE, large_seconds=3)
    found = verify.verify_thoroughly(bench, COPY, program, verify.cases_for(COPY, SIZES), more).outcome
    assert found.kind == runner.TIMED_OUT


# --------------------------------------------------------------------------- two originals

DEPENDS = map_of("int", INT32, "y[i] = x[i] + MDH_OPTIMISED;")
DEPENDS = Subject(
    b"#ifdef __OPTIMIZE__\n#define MDH_OPTIMISED 1\n#else\n#define MDH_OPTIMISED 0\n#endif\n" + DEPENDS.data,
    DEPENDS.path, DEPENDS.insert_at + len(b"#ifdef __OPTIMIZE__\n#define MDH_OPTIMISED 1\n#else\n#define MDH_OPTIMISED 0\n#endif\n"),
    DEPENDS.nest, DEPENDS.nest_line + 5, DEPENDS.args, DEPENDS.counts,
)  # fmt: skip


@pytest.mark.parametrize(("add", "right"), [("1", True), ("0", True), ("2", False)])
def test_both_originals_are_right(bench: Workbench, add: str, right: bool) -> None:
    usual, thorough = judged(bench, DEPENDS, loop(f"y[i] = x[i] + {add};", "int"), Specials())
    assert usual.ok == (add == "1")
    assert thorough.ok == right, thorough.outcome
    assert thorough.differs > 0


def test_contraction_of_the_original_is_no_fault(cache: Path) -> None:
    """With fused operations the user's flags and -O0 differ; bitwise, either may be met, but no third value."""
    flags = ("-O2", "-mfma", "-ffp-contract=fast")
    bench = Workbench(Toolchain(flags=flags), Limits(), threads=2, jobs=2, cache_dir=cache)
    for statement, right in (
        ("y[i] = 0.1 * x[i] + 0.3;", True),
        ("double p = 0.1 * x[i]; __asm__(\"\" : \"+x\"(p)); y[i] = p + 0.3;", True),
        ("y[i] = (0.1 * x[i] + 0.3) * (1 + 0x1p-52);", False),
    ):  # fmt: skip
        _, thorough = judged(bench, SCALE, loop(statement, "double"), bitwise=True)
        assert thorough.ok == right, (statement, thorough.outcome)
        assert not right or thorough.differs > 0


def test_differences_of_one_ulp_are_told(bench: Workbench) -> None:
    """The distance of two doubles as integers is exact, though both are larger than 2^53."""
    text = "double p = 0.1 * x[i]; __asm__(\"\" : \"+x\"(p)); y[i] = (p + 0.3) * (1 + 0x1p-52);"
    usual, thorough = judged(bench, SCALE, loop(text, "double"))
    assert usual.ok and 1 <= usual.max_ulp <= 16
    assert thorough.ok and 0.5 < thorough.error < thorough.bound


def test_order_may_round_where_the_originals_does_not(bench: Workbench) -> None:
    """Seven numbers between -1 and 1 with 24 bits: their sums are exact while they stay below 2."""
    text = "void f(int n, float *restrict y, const float *restrict x)\n{\n"
    text += "    for (int i = 0; i < n; i++)\n        y[0] += x[i];\n}\n"
    args = (
        ScalarArg("n", "int", INT32),
        ArrayArg("y", "float", FLOAT, no_alias=True),
        ArrayArg("x", "const float", FLOAT, written=False, no_alias=True),
    )
    subject = subject_of(text, args)
    backwards = Candidate(
        "static int g(int n, float *y, const float *x)\n"
        "{ for (int i = n; i > 0; i--) y[0] += x[i - 1]; return 1; }\n", "g(n, y, x)",
    )  # fmt: skip
    built = bench.build(subject, backwards)
    cases = [verify.Case({"n": 7}, "real", 1, seed) for seed in range(1, 60)]
    summary = verify.verify(bench, subject, built.data["program"], cases)
    assert summary.ok, summary.outcome
    assert 0 < summary.max_ulp <= 4
    copied = bench.build(COPY, loop("y[i] = x[i] * (1 + 0x1p-23f);"))
    summary = verify.verify(bench, COPY, copied.data["program"], cases[:3])
    assert not summary.ok, "no order of anything rounds in a copy"


def test_bitwise_means_signs_of_zeros(bench: Workbench) -> None:
    _, thorough = judged(bench, COPY, loop("y[i] = x[i] + 0.0f;"), Specials(FLOATS), bitwise=True)
    assert thorough.outcome.kind == runner.WRONG_RESULT


def test_library_without_optimisation_is_a_world_of_its_own(bench: Workbench) -> None:
    """File-scope names of the user's file exist twice: neither disturbs the other."""
    text = "int calls;\nint next(int v) { return v + (calls++ < 0); }\n" + COPY_INT.data.decode().replace(
        "y[i] = x[i]", "y[i] = next(x[i])"
    )
    subject = subject_of(text, arrays("int", INT32))
    _, thorough = judged(bench, subject, loop("y[i] = x[i];", "int"), Specials(("extreme integers",)))
    assert thorough.ok and thorough.plain, thorough.outcome


def test_truth_values_are_0_and_1_also_where_they_are_indices(bench: Workbench) -> None:
    text = (
        "void f(int n, int *restrict y, const _Bool *restrict x)\n{\n"
        "    for (int i = 0; i < n; i++)\n        y[i] = 5 - 2 * x[i];\n}\n"
    )
    n, y, _ = arrays("int", INT32)
    x = ArrayArg("x", "const _Bool", BOOL, written=False, no_alias=True)
    subject = subject_of(text, (n, y, x), indices=lambda s: {"x": IndexData(20)})
    candidate = Candidate(
        "static int kernel(int n, int *y, const _Bool *x)\n{\n"
        "for (int i = 0; i < n; i++) y[i] = ((const char *)x)[i] ? 3 : 5;\nreturn 1; }\n",
        "kernel(n, y, x)",
    )
    usual, _ = judged(bench, subject, candidate)
    assert usual.ok, usual.outcome


def test_text_that_needs_its_machine_flags(cache: Path) -> None:
    head = "#ifndef __AVX2__\n#error without AVX2\n#endif\n"
    subject = subject_of(head + COPY.data.decode(), COPY.args)
    bench = Workbench(Toolchain(flags=("-O2", "-mavx2")), Limits(), threads=2, jobs=2, cache_dir=cache)
    assert bench.build_plain(subject).ok
    subject = subject_of("#ifndef __OPTIMIZE__\n#error no\n#endif\n" + COPY.data.decode(), COPY.args)
    _, thorough = judged(bench, subject, loop("y[i] = x[i];"))
    assert thorough.ok and not thorough.plain
    assert "not compared with the original at -O0" in thorough.notes[0]


def test_library_that_cannot_be_loaded(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = runner.Outcome(runner.OK, data={"library": "/nowhere/library.so"})
    monkeypatch.setattr(Workbench, "build_plain", lambda *_: nowhere)
    _, thorough = judged(bench, COPY, loop("y[i] = x[i];"))
    assert thorough.ok and not thorough.plain
    assert "cannot be loaded" in thorough.notes[0]


def test_flags_without_optimisation() -> None:
    flags = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-flto", "-DN=4", "-include", "a.h", "-std=gnu11",
             "-funsigned-char", "-m32", "-g", "-mllvm", "-x", "-Wp,-DM", "-static")  # fmt: skip
    assert plain_flags(flags) == (
        "-DN=4", "-include", "a.h", "-std=gnu11", "-funsigned-char", "-m32", "-Wp,-DM",
    )  # fmt: skip


# --------------------------------------------------------------------------- which special values


def allowed(head: str, body: str, *flags: str, pragma: str = "") -> Specials:
    nest = lifted(f"#include <math.h>\nvoid f({head})\n{{\n#pragma mdh {pragma}\n{body}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    return specials_of(nest, flags)


MAP = "for (int i = 0; i < n; i++) y[i] = {};"


@pytest.mark.parametrize(
    ("head", "body", "values", "zero_signs"),
    [
        ("int n, float *y, float *x", MAP.format("x[i]"), FLOATS, True),
        ("int n, float *y, float *x", MAP.format("2 * x[i] + 1"), FLOATS, True),
        ("int n, float *y, float *x", MAP.format("fmaxf(x[i], 0)"), FLOATS, False),
        ("int n, int *y, float *x", MAP.format("(int)x[i]"), FLOATS[2:], True),
        ("int n, int *y, int *x", MAP.format("x[i]"), SPECIAL_VALUES[4:], False),
        ("int n, int *y, int *x", MAP.format("x[i] + 1"), (), False),
        ("int n, int *y, int *x", MAP.format("x[i] / 2"), SPECIAL_VALUES[4:], False),
        ("int n, int *y, int *x", MAP.format("x[i] < 3 ? x[i] : 7"), SPECIAL_VALUES[4:], False),
        ("int n, int *y, int *x", MAP.format("x[i] ^ (x[i] >> 3)"), SPECIAL_VALUES[4:], False),
        ("int n, unsigned *y, unsigned *x", MAP.format("x[i] * 3u + 7u"), SPECIAL_VALUES[4:], False),
        ("int n, int *y, signed char *x", MAP.format("x[i] * x[i] + 1"), SPECIAL_VALUES[4:], False),
        ("int n, int *y, short *x", MAP.format("x[i] * x[i] * x[i]"), (), False),
        ("int n, int y[1], int *x", "for (int i = 0; i < n; i++) y[0] += x[i];", (), False),
        ("int n, unsigned y[1], unsigned *x", "for (int i = 0; i < n; i++) y[0] += x[i];", SPECIAL_VALUES[4:], False),
        ("int n, float y[1], float *x", "for (int i = 0; i < n; i++) y[0] += x[i];", FLOATS[:3], False),
        ("int n, float y[1], float *x", "for (int i = 0; i < n; i++) y[0] = fmaxf(y[0], x[i]);",
         FLOATS, False),
        ("int n, float y[1], float *x", "for (int i = 0; i < n; i++) y[0] = y[0] < x[i] ? x[i] : y[0];",
         (FLOATS[1], FLOATS[2], FLOATS[3]), False),
        ("int n, float y[1], float *x", "for (int i = 0; i < n; i++) y[0] = fmaxf(y[0], 2 * x[i]);", FLOATS[2:3], False),
    ],
)  # fmt: skip
def test_values_that_determine_the_result(
    head: str, body: str, values: tuple[str, ...], zero_signs: bool
) -> None:
    found = allowed(head, body)
    assert (found.values, found.zero_signs) == (tuple(values), zero_signs)
    wanted = {"NaN", "infinities"} if "float" in head else {"extreme integers"}
    assert bool(found.reasons) != (wanted <= set(found.values))


def test_flags_that_ignore_special_values() -> None:
    found = allowed("int n, float *y, float *x", MAP.format("x[i]"), "-O3", "-ffast-math")
    assert found.values == () and not found.denormal
    assert "compile command" in found.reasons[0]
    assert not allowed("int n, float *y, float *x", MAP.format("x[i]"), "-fno-signed-zeros").zero_signs


# --------------------------------------------------------------------------- through the command line


def _mdh_lift(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "mdh_lift", *arguments], cwd=directory, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"},
    )  # fmt: skip


def test_report_of_verify(tmp_path: Path) -> None:
    for name in ("dot", "reduce_max"):
        shutil.copy(ROOT / "corpus" / f"{name}.c", tmp_path)
    done = _mdh_lift(tmp_path, "verify", "dot.c", "reduce_max.c")
    assert done.returncode == 0, done.stderr
    for part in ("runs on", " allowed there", "obligations proved", "special values (", "offset arrays (", "large arrays (1)", "at -O0", "no NaN:"):
        assert part in done.stdout, part
    done = _mdh_lift(tmp_path, "verify", "--format", "json", "dot.c")
    (nest,) = json.loads(done.stdout)["nests"]
    told = nest["verification"]
    assert told["outcome"] == "ok" and told["against_O0"]
    assert 0 < told["error_ulp"] <= told["bound_ulp"]
    assert told["cases"] == sum(told["data"].values()) and len(told["sizes"]) > 8


PROMISED = """\
static float closer(float a, float b) { return a < b ? a - b : b; }

float all(int n, const float *x)
{
    float s = 0;
#pragma mdh combine_ops(pw(closer))
    for (int i = 0; i < n; i++)
        s = closer(s, x[i]);
    return s;
}
"""


def test_counterexample_to_a_promised_law_has_its_values(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text(PROMISED)
    done = _mdh_lift(tmp_path, "verify", "f.c")
    assert done.returncode == 1
    line = next(line for line in done.stderr.splitlines() if "MDH410" in line)
    assert "not commutative on " in line or "not associative on " in line
    _, _, values = line.partition(" on ")
    operands, _, results = values.partition(": ")
    assert len(operands.split(", ")) >= 2 and " and " in results


def test_refuted_certificate_is_never_spliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "corpus" / "saxpy.c", tmp_path)
    before = (tmp_path / "saxpy.c").read_bytes()
    monkeypatch.chdir(tmp_path)
    bad = Obligation("saxpy", "every cell is written", REFUTED, "sets", "cell 3")
    monkeypatch.setattr(certified, "certificate", lambda *_: Certificate((bad,)))
    done = CliRunner().invoke(cli, ["-w", "--force", "--budget", "0", "saxpy.c"])
    assert done.exit_code == 3, done.output
    assert "MDH702" in done.output and "cell 3" in done.output
    assert (tmp_path / "saxpy.c").read_bytes() == before


def endless(*_: object) -> Certificate:
    while True:
        pass


def broken(*_: object) -> Certificate:
    raise ZeroDivisionError


@pytest.mark.parametrize(("work", "told"), [(endless, "not finished after 0.5 s"), (broken, "ZeroDivisionError")])
def test_certificate_that_is_not_made_blocks_nothing(monkeypatch: pytest.MonkeyPatch, work, told: str) -> None:
    monkeypatch.setattr(certified, "certificate", work)
    nest = lifted("void f(int n, float *x)\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) x[i] = 0;\n}\n")
    found = certified.certified(nest.nest, nest.program, (), seconds=0.5)
    assert isinstance(found, str) and told in found
    assert told in certified.summary(found)


# --------------------------------------------------------------------------- originals that take long

# waits for `n` hundredths of a second at each element
SLOW = subject_of(
    "#include <time.h>\nvoid f(int n, float *restrict y, const float *restrict x)\n{\n"
    "    for (int i = 0; i < n; i++) {\n        struct timespec t = {0, n * 10000000};\n"
    "        nanosleep(&t, 0);\n        y[i] = x[i];\n    }\n}\n",
    arrays("float", FLOAT),
)


@pytest.mark.parametrize("seconds", [10.0, 1.0])
def test_what_a_slow_original_leaves_no_time_for_is_told(bench: Workbench, seconds: float) -> None:
    """Whether the time that is enough runs out, or that after which the process is killed."""
    cases = [verify.Case({"n": 4}), *(verify.Case({"n": 5}, data) for data in 3 * ("real", "exact", "denormal"))]
    program = bench.build(SLOW, loop("y[i] = x[i];")).data["program"]
    found = verify.verify(bench, SLOW, program, cases, seconds=seconds, enough=0.6 if seconds > 1 else 9)
    assert found.ok, found.outcome
    assert 1 <= found.cases < 9 and len(found.notes) == 1
    assert "denormal" in found.notes[0] or "slow" in found.notes[0]
    assert sum(found.kinds.values()) == found.cases


def test_the_first_comparison_is_made_however_slow(bench: Workbench) -> None:
    program = bench.build(SLOW, loop("y[i] = i;")).data["program"]
    found = verify.verify(bench, SLOW, program, [verify.Case({"n": 5})], enough=1e-3)
    assert found.cases == 1 and found.outcome.kind == runner.WRONG_RESULT


# --------------------------------------------------------------------------- sizes at which the original fails


class FakeBench:
    """Answers as the test program does: what is wrong at sizes, everything else is right."""

    limits = SimpleNamespace(run_seconds=60.0)

    def __init__(self, wrong: dict[int, dict[str, object]]) -> None:
        self.wrong = wrong

    def run(self, program: str, cases: list[str], **_: object) -> Outcome:
        counts = dict.fromkeys(("mismatches", "undetermined", "differs", "inexact", "error", "bound"), 0)
        counts |= dict.fromkeys(("max_abs", "max_rel", "max_ulp"), 0.0)
        place = {"array": "y", "field": "", "index": 3, "got": 1, "expected": 2}
        lines = []
        for number, n in (map(int, text.split()) for text in cases):
            about = {"damaged": "", "original_damaged": "", **counts, **place, **self.wrong.get(n, {})}
            lines.append({"verify": number, "handled": 1, **about})
            if n in self.wrong:
                break
        return Outcome(OK, "", {"lines": lines, "seconds": 0.1})


def with_failures(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], wrong: dict[int, dict[str, object]]
) -> VerifySummary:
    def text(number: int, _: str, __: object, sizes: dict[str, int], ___: object) -> str | None:
        return f"{number} {sizes['n']}" if sizes["n"] < 100 else None

    monkeypatch.setattr(verify, "case_text", text)
    cases = [Case({"n": n}, data, 1, 1, False) for n in sizes for data in ("exact", "real")]
    return verify.verify(FakeBench(wrong), None, "program", cases)  # type: ignore[arg-type]


OWN = {"original_damaged": "y"}


def test_sizes_at_which_the_original_fails_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_failures(monkeypatch, (1, 2, 17, 3, 5, 7, 11), {17: OWN})
    assert found.outcome.ok and found.cases == 12 and "n=17" not in found.sizes
    assert found.notes == ("n=17: the original writes outside of y",)
    last = with_failures(monkeypatch, (1, 2, 3, 5, 7, 11, 17, 200), {17: OWN})
    assert last.outcome.ok and (last.cases, last.skipped) == (12, 2)


def test_an_original_that_fails_often_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_failures(monkeypatch, (1, 2, 17, 3, 18, 19), {17: OWN, 18: OWN, 19: OWN})
    assert found.outcome.kind == "original_failed"
    assert with_failures(monkeypatch, (17,), {17: OWN}).outcome.kind == "original_failed"


def test_what_a_candidate_does_behind_such_a_size_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"damaged": "y"}, {"mismatches": 2}):
        found = with_failures(monkeypatch, (1, 17, 2, 3, 5, 7), {17: OWN, 5: wrong})
        assert found.outcome.kind == "wrong_result" and "n=5" in found.outcome.reason


