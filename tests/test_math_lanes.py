"""Functions of math.h in the lanes of vectors: their values, and the programs that call them."""

from __future__ import annotations

import ctypes
import platform
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emit.math_text import macro_name, math_macros
from emit.render import emit_openmp
from emit.request import KernelRequest
from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import lift
from lowering.agreed import in_lanes
from lowering.choice import default_point
from lowering.facts import facts, is_screened, vector_candidates
from lowering.machine import GENERIC, this_machine
from lowering.point import configuration_at
from mdh_core.combine import arg_operator
from mdh_core.expr import (
    DOUBLE,
    FLOAT,
    INT32,
    Assign,
    Binary,
    Call,
    Const,
    Declare,
    Function,
    If,
    Return,
    ScalarType,
    Var,
    While,
    stmt_exprs,
    walk,
)
from mdh_core.interpreter import run
from mdh_core.ir import MdhProgram
from mdh_core.lanes import LANES
from mdh_core.source import SourceFile
from mdh_lift import kernels, nest_sizes
from mdh_lift import subject as subjects
from tests.catalogue import operator, program, x
from tests.compilers import COMPILERS
from tests.emitted import Case, run_emitted, with_extents
from tests.strategies import buffers_for, copy_of
from tuning.runner import Workbench
from tuning.toolchain import Toolchain
from tuning.verify import cases_for, verify

KEEP = """
#if defined(__AVX512F__)
#define MDH_VECTOR_BYTES 64
#define MDH_KEEP(x) __asm__("" : "+v"(x))
#elif defined(__SSE2__)
#define MDH_VECTOR_BYTES 32
#define MDH_KEEP(x) __asm__("" : "+x"(x))
#else
#define MDH_VECTOR_BYTES 32
#define MDH_KEEP(x) ((void)0)
#endif
"""
NARROW = "-mno-avx512f"
FLAGS = (("-O2", "-march=native"), ("-O2",), ("-O2", "-march=native", "-ffp-contract=off"))
if platform.machine() == "x86_64":
    FLAGS += (("-O2", "-march=native", NARROW),)


def _widths(t: ScalarType, flags: tuple[str, ...]) -> list[int]:
    """Bytes of vectors of at least two lanes, and no longer than the longest registers."""
    longest = 16 if "-march=native" not in flags else 32 if NARROW in flags else this_machine().vector_bytes
    return [n for n in (8, 16, 32, 64) if 2 * t.size <= n <= longest]


def _arguments(name: str, tag: str) -> str:
    return ", ".join(f"*(const F_{tag} *)&{x}[i]" for x in ("xw" if name in _PAIRS else "x"))


def _library(directory: Path, compiler: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """For each function and width, a loop of vectors over an array."""
    rows = [KEEP, *math_macros(*LANES)]
    for name, f in LANES.items():
        t = f.type.name
        integer = "int" if f.type.bits == 32 else "long"
        for width in _widths(f.type, flags):
            tag = f"{name}_{width}"
            rows += [
                f"typedef {t} F_{tag} __attribute__((vector_size({width}), aligned({f.type.size}), may_alias));",
                f"typedef {integer} I_{tag} __attribute__((vector_size({width})));",
                f"typedef {t} R_{tag} __attribute__((vector_size({width})));",
                f"void {tag}(const {t} *x, const {t} *w, {t} *y, long n) {{",
                f"  for (long i = 0; i < n; i += {width // f.type.size})",
                f"    *(F_{tag} *)&y[i] = {macro_name(name)}(R_{tag}, I_{tag}, {_arguments(f.name, tag)});",
                "}",
            ]
        declared = "double" if f.type.bits == 64 else "float"
        rows += [
            f"{declared} {name}({', '.join([declared] * (1 + (f.name in _PAIRS)))});",
            f"void lib_{name}(const {t} *x, const {t} *w, {t} *y, long n) {{",
            f"  for (long i = 0; i < n; i++) y[i] = {name}(x[i]{', w[i]' if f.name in _PAIRS else ''});",
            "}",
        ]
    source, made = directory / "lanes.c", directory / "lanes.so"
    source.write_text("\n".join(rows) + "\n")
    words = [compiler, *flags, "-Wall", "-Wextra", "-Wno-psabi", "-Werror", "-Wno-unused-parameter", "-fno-builtin", "-fPIC", "-shared", str(source), "-lm"]
    built = subprocess.run([*words, "-o", str(made)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:3000]
    return ctypes.CDLL(str(made))


def _values(t: ScalarType) -> np.ndarray:
    """Numbers of all exponents, denormal ones among them, those near the ends of ``exp``, special values."""
    rng = np.random.default_rng(7)
    unsigned, real = (np.uint32, np.float32) if t.bits == 32 else (np.uint64, np.float64)
    any_bits = rng.integers(0, np.iinfo(unsigned).max, 1 << 16, dtype=unsigned, endpoint=True).view(real)
    end = 104 if t.bits == 32 else 746
    near_one = (1 + rng.uniform(-0.6, 0.6, 1 << 16)).astype(real)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, np.finfo(real).tiny, np.finfo(real).smallest_subnormal]
    borders = [88.72283, 88.72284, -87.33655, -103.9721, -103.9720, 709.7827, 709.7828, -745.1332, -745.1333]
    every = [any_bits, rng.uniform(-end, end, 1 << 17).astype(real), near_one, near_one * 1e-4]
    small = rng.uniform(*((-104.1, -86) if t.bits == 32 else (-746, -707)), 1 << 15).astype(real)
    small[rng.integers(0, 2, len(small)) > 0] = -1  # lanes with and without denormal results, and vectors of one kind
    small[: len(small) // 2].sort()
    found = np.concatenate([*every, small, np.array([*special, *borders], real)])
    found[np.isnan(found)] = np.nan  # none that signals
    return np.concatenate([found, np.ones(-len(found) % 32, real)])  # whole vectors


_EXACT = {"exp": np.exp, "log": np.log}
_PAIRS = ("fmin", "fmax", "copysign")  # functions of two arguments


def _called(library: ctypes.CDLL, tag: str, values: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    found = np.empty_like(values)
    arrays = [values, values if others is None else others, found]
    getattr(library, tag)(*(ctypes.c_void_p(a.ctypes.data) for a in arrays), ctypes.c_long(len(values)))
    return found


@pytest.fixture(scope="module", params=[(c, f) for f in FLAGS for c in COMPILERS], ids=lambda x: f"{x[0]} {' '.join(x[1])}")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, tuple[str, ...]]:
    """A library, and with which flags it was made."""
    compiler, flags = request.param
    return _library(tmp_path_factory.mktemp("lanes"), compiler, flags), flags


def test_exact_ones_have_the_bits_of_the_library(built: tuple[ctypes.CDLL, tuple[str, ...]]) -> None:
    """Of NaN it is one; halves, zeros of both signs, equal and unequal pairs are among the arguments."""
    library, flags = built
    for name, f in LANES.items():
        if not f.exact:
            continue
        values = _values(f.type)
        halves = np.arange(-2048, 2048, dtype=values.dtype) / 4
        few = np.array([0.0, -0.0, 1.5, -1.5, np.nan, np.inf, -np.inf, 2.5], values.dtype)
        values = np.concatenate([values, halves, few, few, few, few])
        others = np.random.default_rng(5).permutation(values)
        others[-32:] = few.repeat(4)  # all pairs of some of them
        want = _called(library, f"lib_{name}", values, others)
        for width in _widths(f.type, flags):
            found = _called(library, f"{name}_{width}", values, others)
            assert np.array_equal(np.isnan(found), np.isnan(want)), name
            bits = np.uint32 if f.type == FLOAT else np.uint64
            number = ~np.isnan(want)
            assert np.array_equal(found[number].view(bits), want[number].view(bits)), (name, width)


def test_values_are_within_one_unit_of_the_last_place(built: tuple[ctypes.CDLL, tuple[str, ...]]) -> None:
    library, flags = built
    for name, f in LANES.items():
        if f.exact:
            continue
        values = _values(f.type)
        with np.errstate(all="ignore"):
            wide = _EXACT[f.name](values.astype(np.longdouble))
            want = wide.astype(values.dtype)
        for width in _widths(f.type, flags):
            found = _called(library, f"{name}_{width}", values)
            plain = np.isfinite(want) & np.isfinite(found)
            rest = ~plain
            about = f"{name} in {width} bytes"
            assert np.array_equal(np.isnan(found[rest]), np.isnan(want[rest])), about
            numbers = rest & ~np.isnan(want)
            assert np.array_equal(found[numbers], want[numbers]), about
            unit = np.spacing(np.abs(want[plain])).astype(np.longdouble)
            error = np.abs(found[plain].astype(np.longdouble) - wide[plain]) / unit
            assert error.max() < 1, (about, values[plain][error.argmax()], error.max())


@pytest.mark.parametrize("width", [(), (NARROW,)] if platform.machine() == "x86_64" else [()], ids=["widest", "narrow"])
def test_nothing_is_undefined(width: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever the argument: no signed lane overflows, no shift is too far.  A process of its own, which traps."""
    trap = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    flags = ("-O1", "-march=native", *width)
    library = _library(tmp_path, "gcc", (*flags, *trap))
    tags = []
    for name, f in LANES.items():
        np.save(tmp_path / f"{f.type.name}.npy", _values(f.type))
        tags += [f"{f.type.name} {name}_{n}" for n in _widths(f.type, flags)]
    calls = """
import ctypes, sys, numpy
library = ctypes.CDLL(sys.argv[1])
for line in sys.argv[3:]:
    kind, tag = line.split()
    x = numpy.load(f"{sys.argv[2]}/{kind}.npy")
    y = numpy.empty_like(x)
    print(tag, flush=True)
    getattr(library, tag)(*(ctypes.c_void_p(a.ctypes.data) for a in (x, x[::-1].copy(), y)), ctypes.c_long(len(x)))
"""
    words = [sys.executable, "-c", calls, str(library._name), str(tmp_path), *tags]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == [t.split()[1] for t in tags], done.stdout[-200:]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_values_where_the_user_lets_compilers_reassociate(compiler: str, tmp_path: Path) -> None:
    """Only normal numbers; a lost part of k ln 2 would be a thousand units and more."""
    flags = ("-O2", "-march=native", "-ffast-math")
    library = _library(tmp_path, compiler, flags)
    for name in ("floor", "rint", "floorf", "rintf"):
        values = np.random.default_rng(3).uniform(-900, 900, 1 << 12).astype(_real(name))
        for width in _widths(LANES[name].type, flags):
            found = _called(library, f"{name}_{width}", values)
            assert np.array_equal(found, getattr(np, LANES[name].name)(values)), (name, width)
    for name in ("exp", "log", "expf", "logf"):
        values = np.random.default_rng(3).uniform(0.01, 80, 1 << 16).astype(_real(name))
        wide = _EXACT[LANES[name].name](values.astype(np.longdouble))
        unit = np.spacing(np.abs(wide.astype(values.dtype))).astype(np.longdouble)
        for width in _widths(LANES[name].type, flags):
            found = _called(library, f"{name}_{width}", values)
            assert (np.abs(found.astype(np.longdouble) - wide) / unit).max() < 4, (name, width)


def _real(name: str) -> type:
    return np.float32 if LANES[name].type == FLOAT else np.float64


def _call(name: str, t: ScalarType, *args: object) -> Call:
    return Call(name + ("f" if t == FLOAT else ""), args, t)  # type: ignore[arg-type]


def _map(name: str, t: ScalarType) -> MdhProgram:
    """Y[i, j] = f(X[i, j]) + 0.5"""
    more = (Const(4.0, t),) if name in _PAIRS else ()
    value = Binary("+", _call(name, t, x(0, t), *more), Const(0.5, t), t)
    return program(f"{name}_{t.name}", "i:I j:J", "cc cc", {"X": t, "Y": t}, "X[i, j]", "Y[i, j]", (value,))


def _masked(t: ScalarType) -> MdhProgram:
    """A branch around calls: other lanes keep what they have."""
    v = Var("v", t)
    body = (
        Declare("v", t, x(0, t)),
        If(Binary("<", v, Const(0.0, t), INT32), (Assign(v, _call("fabs", t, v)),),
           (Assign(v, _call("sqrt", t, v)),)),
    )  # fmt: skip
    return program(f"masked_{t.name}", "i:I j:J", "cc cc", {"X": t, "Y": t}, "X[i, j]", "Y[i, j]", (v,), body=body)


def _sum(t: ScalarType) -> MdhProgram:
    """S[i] = sum over k of sqrt(X[i, k])**2 for squares, which is exact."""
    root = _call("sqrt", t, _call("fabs", t, x(0, t)))
    return program(
        f"sum_{t.name}", "i:I k:K", "cc pw", {"X": t, "S": t}, "X[i, k]", "S[i]", (root,), combine=operator("+", t)
    )


PROGRAMS = tuple(make(t) for t in (FLOAT, DOUBLE) for make in (_masked, _sum)) + tuple(
    _map(name, t) for t in (FLOAT, DOUBLE) for name in ("exp", "log", "sqrt", "fabs", "floor", "fmax")
)


@pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_programs_that_call_them(p: MdhProgram, compiler: str, tmp_path: Path) -> None:
    """On sizes around vectors, in all cells what the library returns, to a unit in the last place."""
    rng, cases, wants = random.Random(p.name), [], []
    for n in (0, 1, 7, 16, 17, 33, 131):
        sizes = {q.name: n if q.name in "JK" else 3 for q in p.params}
        buffers = buffers_for(p, sizes, rng)
        data = buffers["X"].data
        data[:] = [float(rng.randrange(1, 12) ** 2) * rng.choice((1, 1, -1 if "masked" in p.name else 1)) for _ in data]
        expected = copy_of(buffers)
        run(p, sizes, expected)
        sized, extra = with_extents(p, buffers, symbolic=True)
        extents = ({d.name: sizes[d.name.upper()] or 1 for d in p.hom.dims},)
        for lanes in (8, 32):
            point = default_point((sized,), GENERIC, extents) | {"vector": p.hom.dims[-1].name, "lanes": lanes}
            (c,) = configuration_at((sized,), GENERIC, extents, point)
            cases.append(Case(sized, c, {**sizes, **extra}, copy_of(buffers), GENERIC))
            wants.append(expected)
    texts = [emit_openmp(KernelRequest("k", "n", (c.program,), (c.configuration,), GENERIC)).text for c in cases]
    assert sum("vector_size" in t for t in texts) == len(texts)
    out, t = p.out.stores[0].buffer, p.component_types[0]
    assert isinstance(t, ScalarType)
    bound = 2.0 ** -22 if t == FLOAT else 2.0 ** -51
    for case, want, (returned, found) in zip(
        cases, wants, run_emitted(cases, tmp_path, compiler, ("-O1", "-fopenmp", "-Wno-psabi", "-w")), strict=True
    ):
        assert returned == 1
        exact = "exp" not in p.name and "log" not in p.name
        for got, value in zip(found[out], want[out].data, strict=True):
            assert isinstance(got, float) and isinstance(value, float)
            close = abs(got - value) <= (0 if exact else bound * abs(value))
            assert got == value or close, (case.params, got, value)


def test_only_fast_takes_other_roundings() -> None:
    sizes = {"i": 100, "j": 100}
    for t in (FLOAT, DOUBLE):
        for policy in ("exact", "deterministic", "fast"):
            for name in ("exp", "sqrt"):
                p = replace(_map(name, t), fp=policy)
                vectors = vector_candidates(facts(p, sizes)) != ("-",)
                assert vectors == (policy == "fast" or name == "sqrt"), (policy, name)


def test_positions_of_extrema_need_the_same_bits_in_vectors_and_scalars() -> None:
    for name, same in (("exp", False), ("sqrt", True)):
        value = _call(name, FLOAT, x(0))
        p = program("at", "k:K", "pw", {"X": FLOAT, "V": FLOAT, "P": INT32}, "X[k]", "V[] P[]",
                    (value, Var("k", INT32)), combine=arg_operator("argmax", FLOAT, (), 1))  # fmt: skip
        assert is_screened(p) == same


def test_a_function_of_the_source_by_that_name_is_not_the_library_s() -> None:
    """One with a loop stays a call, and cells are computed one by one; others stand where their calls did."""
    y, zero = Var("y", FLOAT), Const(0.0, FLOAT)
    below = Binary("<", y, zero, INT32)
    loop = (While(below, (Assign(y, Binary("+", y, Const(1.0, FLOAT), FLOAT)),)),)
    branch = (If(below, (Assign(y, zero),)),)
    p, sizes = _map("exp", FLOAT), {"i": 100, "j": 100}
    for statements, found in ((loop, ("-",)), (branch, vector_candidates(facts(p, sizes)))):
        body = (Declare("y", FLOAT, Var("x", FLOAT)), *statements, Return(y))
        own = Function("expf", (("x", FLOAT),), body, FLOAT)
        q = replace(p, functions=(own,))
        assert vector_candidates(facts(q, sizes)) == found
        scalar = in_lanes(q).hom.scalar
        calls = [n for e in (*scalar.results, *stmt_exprs(scalar.body)) for n in walk(e) if isinstance(n, Call)]
        assert bool(calls) == (statements is loop)


GUARDED = """#include <math.h>
static float soft(float v) { const float t = expf(v); return t*t + t; }
void guarded(int n, const float *restrict tab, const int *restrict idx, float *restrict y)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = idx[i] >= 0 ? soft(tab[idx[i]]) : 0.0f;
}
"""
NAMED = """#include <math.h>
static float int32(float v) { const float t = expf(v); return t*t + t; }
void named(int n, const float *restrict mdh_v, const float *restrict x, float *restrict y, float *restrict z)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        y[i] = floorf(mdh_v[i]) + fmaxf(x[i], mdh_v[i]);
        z[i] = int32(x[i]);
    }
}
"""
NORMS = """#include <math.h>
void norms(int n, int m, const float *restrict x, float *restrict s)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        float t = 0;
        for (int j = 0; j < m; j++)
            t += x[j*n + i]*x[j*n + i];
        s[i] = sqrt(t);
    }
}
"""
MIXED = """#include <math.h>
void mixed(int n, const float *restrict x, const double *restrict d, double *restrict y)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = d[i] + expf(x[i]) + floorf(x[i]) + logf(fabsf(x[i]) + 1);
}
"""


@pytest.mark.parametrize("flags", [("-O2", "-march=native"), ("-O2",), ("-Ofast",), ("-O2", "-march=native", "-masm=intel")], ids=" ".join)
@pytest.mark.parametrize("text", [GUARDED, NAMED, NORMS, MIXED], ids=["guarded", "named", "norms", "mixed"])
def test_defaults_of_whole_files(text: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """What stands behind a guard is not read without it; names, mixed widths, other flags."""
    source = SourceFile(str(tmp_path / "f.c"), text.encode())
    nest = lift(read(source, CompileCommand(directory=str(tmp_path))).nests[0])
    plan = kernels.plan(nest)
    bench = Workbench(Toolchain(("gcc",), flags), threads=2, jobs=1)
    subject = subjects.subject_of(nest, source.data, source.path)
    built = bench.build(subject, plan.candidate(plan.default))
    assert built.ok, built.reason
    names = list(nest_sizes.variables_of(nest))
    sizes = [dict.fromkeys(names, n) for n in (0, 1, 7, 33, 130)]
    summary = verify(bench, subject, built.data["program"], cases_for(subject, sizes, style="sum"))
    assert summary.ok, summary.outcome
    if text is GUARDED:
        assert vector_candidates(facts(plan.programs[0], plan.sizes[0])) == ("-",)
