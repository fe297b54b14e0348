"""Linear recurrences as scans: the operator, what is lifted, and emitted code against the loops of the source."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lifter.legality import why_not_well_defined
from lifter.lift import LiftedNest
from lifter.run_nest import run_nest
from lowering.lower import ScanNest, lower
from lowering.machine import GENERIC, OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD
from lowering.parameters import Configuration, make, random_configuration
from mdh_core.combine import CC, linear_operator, ps, pw, scalar_operator, tuple_operator
from mdh_core.evaluate import Value, convert
from mdh_core.expr import DOUBLE, FLOAT, INT8, INT32, SCALAR_TYPES, UINT64, ScalarType
from mdh_core.interpreter import BufferValue, Mda, combine, combine_function, run, same
from mdh_core.ir import MdhProgram
from mdh_core.laws import check_laws
from mdh_core.rules import verify
from tests.emitted import FLAGS, Case, run_emitted, with_extents
from tests.lifting import lifted, operators

TYPES = [t for t in SCALAR_TYPES.values() if t.kind != "bool"]

# --------------------------------------------------------------------------- the operator


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_composition_is_associative_and_does_not_commute(t: ScalarType) -> None:
    f = linear_operator(t)
    assert check_laws(f, (), random.Random(1), 500) is None
    found = check_laws(replace(f, commutative=True), (), random.Random(1), 500)
    assert found is not None and found.law == "commutative"


def test_a_tuple_commutes_only_if_all_of_it_does() -> None:
    plus = scalar_operator("+", INT32)
    assert plus is not None
    assert not tuple_operator((plus, linear_operator(INT32))).commutative
    assert tuple_operator((plus, plus)).commutative


def test_it_goes_with_one_dimension_only() -> None:
    f = linear_operator(DOUBLE)
    assert why_not_well_defined((CC, ps(f))) is None
    assert "order" in (why_not_well_defined((ps(f), ps(f))) or "")
    (program,) = lifted(NESTS["row_values"].text).programs
    assert verify(program) == []
    reduced = replace(program.out, stores=tuple(replace(s, at_last=()) for s in program.out.stores))
    for ops, out in (((CC, pw(f)), reduced), ((ps(f), ps(f)), program.out)):
        wrong = replace(program, hom=replace(program.hom, combine=ops), out=out)
        assert any("does not commute" in problem for problem in verify(wrong)), ops


# --------------------------------------------------------------------------- nests


@dataclass(frozen=True)
class NestText:
    """``text`` lifts to ``programs``."""

    text: str
    programs: str


def function(parameters: str, body: str, result: str = "void") -> str:
    return f"{result} f({parameters})\n{{\n{body}\n}}\n"


def nest(parameters: str, before: str, loop: str, programs: str, after: str = "", result: str = "void") -> NestText:
    return NestText(function(parameters, f"{before}\n#pragma mdh\n{loop}\n{after}", result), programs)


ARRAYS = "int n, const {t} *a, const {t} *b, {t} *x"
NESTS = {
    "in_place": nest(ARRAYS.format(t="double"), "", "for (int i = 1; i < n; i++) x[i] = a[i] * x[i - 1] + b[i];", "i:ps(linear)"),
    "in_float": nest(ARRAYS.format(t="float"), "", "for (int i = 1; i < n; i++) x[i] = x[i - 1] * a[i] + b[i];", "i:ps(linear)"),
    "subtracted": nest(ARRAYS.format(t="double"), "", "for (int i = 1; i < n; i++) x[i] = b[i] - a[i] * x[i - 1];", "i:ps(linear)"),
    "scalar": nest(
        ARRAYS.format(t="double"), "double s = b[0];",
        "for (int i = 0; i < n; i++) { s = b[i] + a[i] * s; x[i] = s; }", "i:ps(linear)",
        "return s;", "double",
    ),
    "constant": nest(
        ARRAYS.format(t="double"), "double s = 0;",
        "for (int i = 0; i < n; i++) { s = 0.5 * s + b[i]; x[i] = 2 * s; }", "i:ps(linear)",
    ),
    "horner": nest(
        "int n, double z, const double *b", "double s = 1;", "for (int i = 0; i < n; i++) s = s * z + b[i];",
        "i:ps(linear)", "return s;", "double",
    ),
    "alternating": nest(
        "int n, const int *b", "int s = 0;", "for (int i = 0; i < n; i++) s = b[i] - s;", "i:ps(linear)",
        "return s;", "int",
    ),
    "generator": nest(
        "int n, unsigned *x", "unsigned s = 1;",
        "for (int i = 0; i < n; i++) { s = s * 1664525u + 1013904223u; x[i] = s >> 16; }", "i:ps(linear)",
        "return s;", "unsigned",
    ),
    "bytes": nest(
        ARRAYS.format(t="unsigned char"), "unsigned char s = 7;",
        "for (int i = 0; i < n; i++) { s = s * a[i] * 3 - b[i]; x[i] = s; }", "i:ps(linear)",
    ),
    "signed": nest(ARRAYS.format(t="long"), "", "for (int i = 1; i < n; i++) x[i] = x[i] - a[i] * x[i - 1];", "i:ps(linear)"),
    "backwards": nest(ARRAYS.format(t="double"), "", "for (int i = n - 2; i >= 0; i--) x[i] = x[i + 1] * a[i] + x[i];", "i:ps(linear)"),
    "rows": nest(
        "int n, int m, double x[n][m], const double b[n][m]", "",
        "for (int i = 0; i < n; i++) for (int j = 1; j < m; j++) x[i][j] = 0.5 * x[i][j - 1] + b[i][j];",
        "i:cc j:ps(linear)",
    ),
    "row_values": nest(
        "int n, int m, double *x, const double b[n][m]", "",
        "for (int i = 0; i < n; i++) { double s = 0; for (int j = 0; j < m; j++) s = 0.5 * s + b[i][j]; x[i] = s; }",
        "i:cc j:ps(linear)",
    ),
    "beside_a_sum": nest(
        ARRAYS.format(t="double"), "double s = 0, t = 0;",
        "for (int i = 0; i < n; i++) { s = 0.5 * s + b[i]; x[i] = s; t += a[i]; }", "i:ps(linear); i:pw(+)",
        "return t;", "double",
    ),
    "branch_in_term": nest(
        ARRAYS.format(t="double"), "double s = 0;",
        "for (int i = 0; i < n; i++) { s = a[i] * s + (b[i] > 0 ? b[i] : a[i]); x[i] = s; }", "i:ps(linear)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTS)
def test_lifts(name: str) -> None:
    assert operators(lifted(NESTS[name].text)) == NESTS[name].programs


REFUSED = {
    "squared": "s = a[i] * s * s + b[i];",
    "factor_of_itself": "s = (a[i] + s) * s + b[i];",
    "term_of_itself": "s = a[i] * s + (b[i] - s) * 2;",
    "compared_with_itself": "s = s > 0 ? a[i] * s + b[i] : s;",
    "guarded": "if (b[i] > 0) s = a[i] * s + b[i];",
    "index_of_itself": "s = a[i] * s + fabs(s);",
    "divided": "s = (s + b[i]) / 2;",
    "expanded": "s += a[i] * (b[i] - s);",
    "rounded_each_time": "s = 0.5 * s + b[i];",
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_no_linear_recurrence(name: str) -> None:
    body = f"#include <math.h>\nfloat f(int n, const float *a, const float *b)\n{{\nfloat s = 0;\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {REFUSED[name]} }}\nreturn s;\n}}\n"
    assert operators(lifted(body)) == "MDH207"


@pytest.mark.parametrize(
    "update",
    ["s = (unsigned long)((unsigned)s * 3u) + b[i];", "s = (unsigned long)(s * 3 + b[i]) % 1000;",
     "s = (unsigned char)(s * 3) + b[i];"],
)  # fmt: skip
def test_conversions_within_the_recurrence_end_the_ring(update: str) -> None:
    body = f"unsigned long f(int n, const unsigned long *b)\n{{\nunsigned long s = 0;\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {update} }}\nreturn s;\n}}\n"
    assert operators(lifted(body)) == "MDH207"


def test_exact_takes_only_what_is_rounded_alike() -> None:
    text = NESTS["constant"].text.replace("#pragma mdh", "#pragma mdh fp(exact)")
    nest_ = lifted(text)
    assert operators(nest_) == "i:ps(linear)"
    assert "MDH304" in {d.code for d in nest_.diagnostics}
    (program,) = nest_.programs
    (stage,) = lower(program, blocks(program), GENERIC).stages
    assert isinstance(stage, ScanNest) and stage.block is None
    assert operators(lifted(text.replace("+ b[i]", "+ b[i] + a[i]"))) == "MDH207"


def test_around_a_parallel_loop_it_runs_in_order() -> None:
    """Columns side by side are better than one column after the other."""
    text = function(
        "int n, int m, double x[n][m], const double b[n][m]",
        "#pragma mdh\nfor (int i = 1; i < n; i++) for (int j = 0; j < m; j++) x[i][j] = 0.5 * x[i - 1][j] + b[i][j];",
    )
    assert operators(lifted(text)) == "j:cc"


# --------------------------------------------------------------------------- the interpreter


def test_an_order_of_parts_that_is_wrong_shows() -> None:
    """The interpreter divides scans in order only; combined the other way round, maps differ."""
    (program,) = lifted(NESTS["alternating"].text).programs
    f = program.hom.combine[0]
    assert f.function is not None
    first, second = Mda(((0,),), {(0,): (-1, 3)}), Mda(((1,),), {(1,): (-1, 5)})
    apply = combine_function(f.function, ())
    assert combine(f, 0, first, second, apply).values[1,] == (1, 2)
    assert combine(f, 0, second, first, apply).values[1,] == (1, -2)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 13])
@pytest.mark.parametrize("name", ["in_place", "scalar", "bytes", "signed", "generator", "horner", "backwards"])
def test_any_division_means_the_loops(name: str, n: int) -> None:
    nest_ = lifted(NESTS[name].text)
    start, want = loops(nest_, Sizes(n=n), seed=n)
    for seed in range(4):
        got = {b: v.copy() for b, v in start.items()}
        for p in nest_.programs:
            run(p, parameters(nest_, Sizes(n=n)), got, split=random.Random(seed) if seed else None)
        assert outputs(nest_, got) == outputs(nest_, want)


# --------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Sizes:
    n: int
    m: int = 5


def parameters(nest_: LiftedNest, sizes: Sizes) -> dict[str, Value]:
    known: dict[str, Value] = {"n": sizes.n, "m": sizes.m, "z": 0.5}
    return {p.name: known[p.name] for p in nest_.nest.params}


def content(t: ScalarType, size: int, rng: random.Random) -> list[Value]:
    """Integers of all sizes; floating-point numbers of which few products and sums are exact, none above 1."""
    if t.is_float:
        return [convert(rng.choice((-1.0, -0.5, 0.0, 0.25, 0.5, 1.0)), t) for _ in range(size)]
    return [convert(rng.getrandbits(64), t) for _ in range(size)]


def loops(
    nest_: LiftedNest, sizes: Sizes, seed: int = 1, given: dict[str, list[float]] | None = None
) -> tuple[dict[str, BufferValue], dict[str, BufferValue]]:
    """Contents before, and after the source's loops; outer scalars are buffers, too."""
    rng = random.Random(seed)
    params = parameters(nest_, sizes)
    start: dict[str, BufferValue] = {}
    for b in nest_.nest.buffers:
        extents = (sizes.n, sizes.m) if b.rank == 2 else (max(sizes.n, 1),)
        assert isinstance(b.type, ScalarType)
        data = content(b.type, math.prod(extents), rng)
        start[b.name] = BufferValue(list((given or {}).get(b.name, data)), extents)
    scalars: dict[str, Value] = {}
    for s in nest_.nest.scalars:
        assert isinstance(s.type, ScalarType)
        scalars[s.name] = (given or {}).get(s.name, [content(s.type, 1, rng)[0]])[0]
        start[s.name] = BufferValue([scalars[s.name]], ())
    after = {name: v.copy() for name, v in start.items()}
    run_nest(nest_.nest, params, {b.name: after[b.name] for b in nest_.nest.buffers}, scalars)
    for name, value in scalars.items():
        after[name].data[0] = value
    return start, after


def outputs(nest_: LiftedNest, buffers: dict[str, BufferValue]) -> dict[str, list[Value]]:
    return {s.buffer: buffers[s.buffer].data for p in nest_.programs for s in p.out.stores}


def blocks(program: MdhProgram, size: int = 256) -> Configuration:
    """Threads share the last dimension in blocks."""
    parts = [[1] * len(program.hom.dims) for _ in range(OPENMP_REG_SIMD.depth)]
    parts[2][-1] = size
    return make(program, OPENMP_REG_SIMD, tuple(map(tuple, parts)), assign=_threads_last(program))


def _threads_last(program: MdhProgram) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The outermost layer of the last dimension on threads, those of other dimensions sequential."""
    rank, depth = len(program.hom.dims), OPENMP_REG_SIMD.depth
    rows = [[(layer, d) for d in range(rank)] for layer in range(depth)]
    on_threads = next(k for k, x in enumerate(OPENMP_REG_SIMD.layers) if x.role == "threads")
    plain = next(k for k, x in enumerate(OPENMP_REG_SIMD.layers) if x.role == "sequential")
    if on_threads != 0:
        rows[0], rows[on_threads] = rows[on_threads], rows[0]
    for d in range(rank - 1):
        rows[0][d], rows[plain][d] = rows[plain][d], rows[0][d]
    return tuple(map(tuple, rows))


def cases(
    nest_: LiftedNest, sizes: Sizes, start: dict[str, BufferValue], chosen: str, rng: random.Random
) -> list[Case]:
    out = []
    for program in nest_.programs:
        mine = {b.name: start[b.name] for b in program.buffers}
        sized, extra = with_extents(program, mine)
        params = {p.name: v for p in sized.params for v in [{**parameters(nest_, sizes), **extra}[p.name]]}
        near = rng.choice((1, GENERIC.l2))  # small caches: several waves of blocks
        if chosen == "blocks":
            out.append(Case(sized, blocks(sized), params, mine, replace(GENERIC, cores=1, l2=near)))
        else:
            model = rng.choice((OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD))
            machine = replace(GENERIC, cores=1, l2=near, model=model)
            out.append(Case(sized, random_configuration(rng, sized, machine.model), params, mine, machine))
    return out


def emitted(nests: Sequence[tuple[LiftedNest, Sizes, dict[str, BufferValue]]], directory: Path, chosen: str, **how: object) -> list[dict[str, list[Value]]]:  # fmt: skip
    """What the kernels of each nest's programs leave in their outputs, each run on the contents at the start."""
    rng = random.Random(3)
    many = [cases(*one, chosen, rng) for one in nests]
    answers = iter(run_emitted([c for group in many for c in group], directory, **how))  # type: ignore[arg-type]
    out = []
    for group in many:
        found: dict[str, list[Value]] = {}
        for case in group:
            returned, data = next(answers)
            assert returned == 1
            found |= {s.buffer: data[s.buffer] for s in case.program.out.stores}
        out.append(found)
    return out


SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")


@pytest.mark.parametrize(
    ("chosen", "flags"), [("random", FLAGS), ("blocks", SANITIZED)], ids=["random", "blocks-sanitized"]
)
def test_emitted_code_equals_the_loops(chosen: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """No block, one, several, whole groups of blocks, one point more and one less; signed integers wrap."""
    todo = []
    for k, (name, text) in enumerate(NESTS.items()):
        nest_ = lifted(text.text)
        for n in ((0, 1, 2)[k % 3], (255, 257, 1024, 1025)[k % 4], 2311):
            wide = "m" in parameters(nest_, Sizes(n))
            sizes = Sizes(3 if n else 0, n) if wide else Sizes(n)
            todo.append((name, nest_, sizes, *loops(nest_, sizes, seed=n)))
    found = emitted([t[1:4] for t in todo], tmp_path, chosen, flags=flags)
    for (name, nest_, sizes, _, want), got in zip(todo, found, strict=True):
        for buffer, values in outputs(nest_, want).items():
            t = next(p for p in nest_.programs).hom.scalar.results[-1].type
            assert isinstance(t, ScalarType)
            pairs = zip(got[buffer], values, strict=True)
            assert all(close(x, y, t) for x, y in pairs), (name, sizes, buffer)


def close(x: Value, y: Value, t: ScalarType) -> bool:
    """Integers are equal; a recurrence whose factors and terms are at most 1 is off by roundings of up to n."""
    if not t.is_float:
        return x == y
    assert isinstance(x, float) and isinstance(y, float)
    return abs(x - y) <= 2311**2 * 2.0 ** (-52 if t.bits == 64 else -23) / 64


def test_threads_share_blocks(tmp_path: Path) -> None:
    nest_ = lifted(NESTS["in_place"].text)
    (program,) = nest_.programs
    (stage,) = lower(program, blocks(program), GENERIC).stages
    assert isinstance(stage, ScanNest) and stage.block == 256
    kernel = emit_openmp(KernelRequest("k", "k", (program,), (blocks(program),), GENERIC)).text
    assert kernel.count("#pragma omp parallel") == 1
    assert kernel.count("#pragma omp for") == 2 and kernel.count("#pragma omp single") == 1
    (final,) = lifted(NESTS["horner"].text).programs
    kernel = emit_openmp(KernelRequest("k", "k", (final,), (blocks(final),), GENERIC)).text
    assert kernel.count("#pragma omp for") == 1  # nothing but the last value is stored


# --------------------------------------------------------------------------- where composed maps fail

N = 2600
INF, NAN = math.inf, math.nan


def series(value: float, at: dict[int, float] | None = None) -> list[float]:
    return [(at or {}).get(k, value) for k in range(N)]


HARD = {
    "product_overflows": {"a": series(2.0), "b": series(0.0), "x": series(0.0)},
    "fixed_point_of_growth": {"a": series(2.0), "b": series(-1.0), "x": series(1.0)},
    "one_large_factor": {"a": series(0.5, {700: 1e300, 701: 1e-300}), "b": series(1.0), "x": series(1.0)},
    "product_underflows": {"a": series(0.05), "b": series(0.0), "x": series(1e300)},
    "vanishes": {"a": series(0.25), "b": series(0.0), "x": series(3.0)},
    "sum_of_terms_overflows": {"a": series(1.0), "b": series(0.0, {600: 1.5e308, 601: 1e308, 602: -1.5e308}), "x": series(-1.5e308)},
    "infinite_start": {"a": series(0.5, {900: 0.0}), "b": series(1.0), "x": series(INF)},
    "infinite_term": {"a": series(0.5, {1500: 0.0}), "b": series(1.0, {800: INF}), "x": series(1.0)},
    "infinite_factor": {"a": series(0.5, {900: INF}), "b": series(0.0, {100: 1.0}), "x": series(0.0)},
    "nan_then_constant": {"a": series(0.5, {900: NAN, 1200: 0.0}), "b": series(1.0), "x": series(1.0)},
    "nan_term": {"a": series(0.5), "b": series(1.0, {1100: NAN}), "x": series(1.0)},
}  # fmt: skip


@pytest.mark.parametrize("name", HARD)
def test_in_order_where_composed_maps_are_no_substitute(name: str, tmp_path: Path) -> None:
    nest_ = lifted(NESTS["in_place"].text)
    start, want = loops(nest_, Sizes(N), given=HARD[name])
    (found,) = emitted([(nest_, Sizes(N), start)], tmp_path, "blocks")
    for k, (x, y) in enumerate(zip(found["x"], want["x"].data, strict=True)):
        assert isinstance(x, float) and isinstance(y, float)
        assert same(x, y) or math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-320), (k, x, y)


@pytest.mark.parametrize("t", [FLOAT, DOUBLE], ids=str)
def test_errors_are_those_of_a_sum(t: ScalarType, tmp_path: Path) -> None:
    """Against the exact value: at most 2n roundings of the sum of all magnitudes."""
    nest_ = lifted(NESTS["in_float" if t == FLOAT else "in_place"].text)
    rng = random.Random(11)
    given = {
        "a": [float(convert(rng.uniform(-1, 1) if rng.random() < 0.3 else rng.choice((-1, 1)) * rng.uniform(0.999, 1), t)) for _ in range(N)],
        "b": [float(convert(rng.uniform(-1, 1), t)) for _ in range(N)],
        "x": [1.0] * N,
    }  # fmt: skip
    start, _ = loops(nest_, Sizes(N), given=given)
    (found,) = emitted([(nest_, Sizes(N), start)], tmp_path, "blocks")
    value, magnitude, unit = Fraction(1), 1.0, 2.0 ** (-52 if t == DOUBLE else -23)
    for k in range(1, N):
        a, b = given["a"][k], given["b"][k]
        value = Fraction(a) * value + Fraction(b)
        value = Fraction(round(value * 2**200), 2**200)  # exact to far below the errors that are measured
        magnitude = abs(a) * magnitude + abs(b)
        x = found["x"][k]
        assert isinstance(x, float)
        assert abs(Fraction(x) - value) <= 2 * k * unit * magnitude, k


def test_narrow_and_wide_integers_compose() -> None:
    """What the operator yields is the recurrence's value modulo the type."""
    for t in (INT8, UINT64):
        f = linear_operator(t)
        apply = combine_function(f, ())
        s = maps = (convert(0, t), convert(5, t))
        rng = random.Random(2)
        value = 5
        composed = None
        for _ in range(50):
            a, b = convert(rng.getrandbits(64), t), convert(rng.getrandbits(64), t)
            assert isinstance(a, int) and isinstance(b, int)
            value = a * value + b
            composed = (a, b) if composed is None else apply(composed, (a, b))
            s = apply(s, (a, b))
        assert composed is not None
        assert s[1] == apply(maps, composed)[1] == convert(value, t)
