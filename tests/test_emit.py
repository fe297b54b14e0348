"""Emitted and compiled code equals the interpreter, for default and random legal configurations."""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from emit.c_text import affine_text, constant
from emit.render import emit_openmp
from emit.request import KernelRequest
from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lifter.run_nest import run_nest
from lowering.choice import default_point
from lowering.domains import classify
from lowering.facts import facts, vector_candidates
from lowering.lower import ScanNest, lower
from lowering.machine import GENERIC, OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD, SystemModel
from lowering.parameters import make, random_configuration
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.evaluate import Value
from mdh_core.expr import DOUBLE, FLOAT, INT32, INT64, UINT64, Affine
from mdh_core.interpreter import integers, run
from mdh_core.ir import MdhProgram
from mdh_core.source import SourceFile
from tests.catalogue import (
    CATALOGUE,
    EVERYTHING,
    PLUS,
    binary,
    number,
    operator,
    product,
    program,
    small_params,
    x,
)
from tests.compilers import COMPILERS
from tests.emitted import FLAGS, OPTIMISED, Case, check, with_constant_sizes, with_extents
from tests.strategies import buffers_for, copy_of, programs, sizes_for

WIDE = (*FLAGS, "-O2", "-march=native")
SANITIZERS = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")


def _case(p: MdhProgram, rng: random.Random, kind: str, params: dict) -> tuple[Case, dict]:  # type: ignore[type-arg]
    """A case and the buffers it must end with."""
    buffers = buffers_for(p, params, rng)
    expected = copy_of(buffers)
    run(p, params, expected)
    sized, extra = with_extents(p, buffers, symbolic=rng.random() < 0.5)
    if rng.random() < 0.3:  # sizes as constants: the generator folds them
        known = {n: v for n, v in params.items() if isinstance(v, int)}
        sized = with_constant_sizes(sized, known)
    values = {**params, **extra}
    known = integers(values) if rng.random() < 0.3 else {}  # sizes for which there is a second function
    if known and rng.random() < 0.3:  # others than these
        known[rng.choice(sorted(known))] += 1
    sizes = (sized.sizes(integers(values)),)
    machine = replace(GENERIC, l3=rng.choice((GENERIC.l3, 0)))  # 0: outputs are larger than the caches
    if kind == "default":
        point = default_point((sized,), machine, sizes)
        (c,) = configuration_at((sized,), machine, sizes, point)
    elif kind == "space":
        large = ({d: max(n, 70) for d, n in sizes[0].items()},)
        space = tuning_space((sized,), machine, large)
        while True:
            point = {n: rng.choice(v) for n, v in space.parameters}
            if all(eval(r, {}, point) for r in space.restrictions):
                break
        (c,) = configuration_at((sized,), machine, large, point)
    else:
        machine = replace(machine, model=rng.choice((OPENMP, OPENMP_L3_SIMD, OPENMP_REG_SIMD)))
        c = random_configuration(rng, sized, machine.model)
    return Case(sized, c, values, buffers, machine, known=known), expected


def _params(p: MdhProgram, rng: random.Random) -> dict:  # type: ignore[type-arg]
    params = small_params(p)
    for q in p.params:
        if isinstance(params[q.name], int) and rng.random() < 0.4:
            params[q.name] = rng.choice((0, 1, 2, 7) if len(p.hom.dims) < 5 else (1, 2, 3))
    return params


SCANS = {
    "sum": ("float", "s += a[i]; b[i] = s;"),
    "sum of doubles": ("double", "s += a[i] * 2; b[i] = s + 1;"),
    "in place": ("int", "s += a[i]; a[i] = s;"),
    "product": ("unsigned", "s *= a[i]; b[i] = s;"),
    "largest": ("double", "s = a[i] > s ? a[i] : s; b[i] = s;"),
    "smallest": ("int", "s = a[i] < s ? a[i] : s; b[i] = s;"),
    "bits": ("long", "s ^= a[i]; b[i] = s;"),
    "before and after": ("float", "c[i] = s + a[i]; s += a[i]; b[i] = s;"),
    "with an operand": ("float", "s += a[i]; b[i] = s * c[i];"),
}


def _scan_of(name: str) -> tuple[LiftedNest, MdhProgram]:
    t, body = SCANS[name]
    text = f"void f(int n, {t} s, {t} *restrict a, {t} *restrict b, {t} *restrict c)\n{{\n#pragma mdh\n"
    text += f"    for (int i = 0; i < n; i++) {{ {body} }}\n}}\n"
    nest = lift(read(SourceFile("f.c", text.encode()), CompileCommand()).nests[0])
    return nest, next(q for q in nest.programs if q.hom.dims_of("ps"))


def _scan_case(
    nest: LiftedNest, p: MdhProgram, n: int, rng: random.Random
) -> tuple[Case, dict]:  # type: ignore[type-arg]
    """A case of small whole numbers, whose sums are exact, and the buffers that the loop leaves behind."""
    params = {q.name: n if q.name == "n" else 2 for q in p.params}
    buffers = buffers_for(p, params, rng)
    for b in buffers.values():
        b.data[:] = [type(x)(rng.randrange(1, 5)) for x in b.data]
    sized, extra = with_extents(p, buffers)
    machine = replace(GENERIC, l3=rng.choice((GENERIC.l3, 0)))  # 0: outputs are larger than the caches
    sizes = (sized.sizes(integers(params)),)
    (c,) = configuration_at((sized,), machine, sizes, default_point((sized,), machine, sizes))
    case, expected = Case(sized, c, {**params, **extra}, buffers, machine), copy_of(buffers)
    scalars: dict[str, Value] = {q.name: expected[q.name].data[0] for q in nest.nest.scalars}
    run_nest(nest.nest, {"n": n}, {b.name: expected[b.name] for b in nest.nest.buffers}, scalars)
    for scalar, value in scalars.items():
        expected[scalar].data[0] = value
    return case, expected


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", SCANS)
def test_running_values_in_vectors(compiler: str, name: str, tmp_path: Path) -> None:
    """Groups of whole vectors and what is left of them, in one block and in several."""
    nest, p = _scan_of(name)
    rng = random.Random(name)
    cases, vectors = [], 0
    for n in (1, 15, 31, 32, 63, 64, 65, 128, 300):
        case, expected = _scan_case(nest, p, n, rng)
        for block in (16, 70, 1000):
            point = {"threads": "i", "block_i": block}
            sizes = (case.program.sizes(integers(case.params)),)
            (c,) = configuration_at((case.program,), GENERIC, sizes, point)
            cases.append((replace(case, configuration=c, buffers=copy_of(case.buffers)), copy_of(expected)))
            vectors += "MDH_UP_" in emit_openmp(KernelRequest("k", "f", (case.program,), (c,), GENERIC)).text
    assert vectors >= 20
    for flags in (FLAGS, WIDE):
        check(cases, tmp_path, compiler=compiler, flags=flags)


@pytest.mark.parametrize("name", SCANS)
def test_waves_of_blocks(name: str, tmp_path: Path) -> None:
    """Scans in several waves of blocks, results past the caches from an aligned place in each block on."""
    nest, p = _scan_of(name)
    rng, cases, past = random.Random(name), [], 0
    machine = replace(GENERIC, cores=1, l2=1, l3=0)
    for n in (1, 255, 256, 257, 1024, 1025, 3000):
        case, expected = _scan_case(nest, p, n, rng)
        sizes = (case.program.sizes(integers(case.params)),)
        point = default_point((case.program,), machine, (dict.fromkeys(sizes[0], 1 << 20),))
        (c,) = configuration_at((case.program,), machine, sizes, point | {"threads": "i", "block_i": 16})
        (stage,) = lower(case.program, c, machine).stages
        assert isinstance(stage, ScanNest) and (stage.block, stage.wave) == (256, 4)
        kernel = emit_openmp(KernelRequest("k", "f", (case.program,), (c,), machine)).text
        streamed = "MDH_STORE(" in kernel.split("static int k")[1]
        assert ("__builtin_prefetch(&a[" in kernel and " + 1024]);" in kernel) == streamed  # of the next wave
        past += streamed
        cases.append((replace(case, configuration=c, machine=machine), expected))
    assert past == (0 if name == "in place" else len(cases))  # what is read had better stay in a cache
    for flags in (WIDE, (*SANITIZERS, "-march=native")):
        check(cases, tmp_path, flags=flags)


LANES = {
    "collatz": """int v = a[i], m = 0;
        while (v > 1 && m < 60) { if (v & 1) v = 3 * v + 1; else v = v >> 1; m++; }
        out[i] = m;""",
    "newton": """double x = a[i] + 0.5, y = x; int m = 0;
        while (m < 20) { double e = x * x - 2.0; if (e < 0.0) e = -e; if (e < 1e-9) { m = 99; } else { x = 0.5 * (x + y); y = x - e; m += 1; } }
        out[i] = m;""",
    "nested": """int m = 0, k = a[i];
        while (k > 0) { int j = 0; while (j < k && m < 40) { m += 2; j++; } k -= 3; }
        out[i] = m + i;""",
    "branches": """double r; int k = a[i]; if (k < 3) { r = 1.5; if (k < 1) r = r + k; } else r = 2.0 * k;
        out[i] = (int)r;""",
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_lanes_that_branch(compiler: str, name: str, tmp_path: Path) -> None:
    """Neighbouring points go different ways, and each lane ends with its own."""
    text = f"void f(int n, int *restrict a, int *restrict out)\n{{\n#pragma mdh\n    for (int i = 0; i < n; i++) {{ {LANES[name]} }}\n}}\n"
    nest = read(SourceFile("f.c", text.encode()), CompileCommand(directory=str(tmp_path))).nests[0]
    (p,) = lift(nest).programs
    rng = random.Random(name)
    cases, vectors = [], 0
    for n in (1, 8, 9, 16, 40, 67):
        params = {q.name: n for q in p.params}
        case, _ = _case(p, rng, "default", params)
        for b in case.buffers.values():
            b.data[:] = [rng.randrange(-3, 60) for _ in b.data]
        expected = copy_of(case.buffers)
        run(p, params, expected)
        sizes = (case.program.sizes(integers(case.params)),)
        for lanes in (8, 32):
            point = default_point((case.program,), GENERIC, sizes) | {"vector": "i", "lanes": lanes, "block_i": 32}
            (c,) = configuration_at((case.program,), GENERIC, sizes, point)
            cases.append((replace(case, configuration=c, buffers=copy_of(case.buffers)), copy_of(expected)))
            kernel = emit_openmp(KernelRequest("k", "f", (case.program,), (c,), GENERIC)).text
            vectors += "__attribute__((vector_size" in kernel
    assert vectors >= 6
    check(cases, tmp_path, compiler=compiler, flags=(*WIDE, "-ffp-contract=off"))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kind", ["default", "space", "random"])
def test_catalogue(compiler: str, kind: str, tmp_path: Path) -> None:
    """Also that none has a header or asks for fast-math: ``emitted`` looks at each kernel."""
    rng = random.Random(f"{compiler} {kind}")
    repeat = {"default": 1, "space": 1, "random": 1}[kind]
    cases = [
        _case(p, rng, kind, _params(p, rng)) for p in EVERYTHING.values() for _ in range(repeat)
    ]
    check(cases, tmp_path, compiler=compiler, flags=FLAGS if kind == "random" else OPTIMISED)


def test_sizes_around_vectors_and_blocks(tmp_path: Path) -> None:
    """Sizes at which tiles are whole, one short, and one over; vectors of this machine."""
    rng = random.Random(1)
    cases = []
    for name in ("dot", "matvec", "matmul", "matmul_t", "conv2d", "jacobi2d", "scan", "mbbs", "double_reduce"):
        p = next(q for n, q in EVERYTHING.items() if n.lower() == name.lower())
        for n in (15, 16, 17, 31, 33, 64, 67):
            params = small_params(p)
            for k, q in enumerate(p.params):
                if isinstance(params[q.name], int):
                    params[q.name] = (n, 3, 17, 4)[k % 4] if name != "matmul" else (7, n, 5)[k % 3]
            for kind in ("default", "space"):
                cases.append(_case(p, rng, kind, params))
    # gcc 12 doubts that a copy is as long as the last part of a row, where sizes are constants
    check(cases, tmp_path, flags=(*WIDE, "-Wno-aggressive-loop-optimizations"))


DOMAIN_SIZES = {
    "syrk": {"K": 3}, "syrk_t": {"K": 3}, "trmm": {"M": 19}, "band": {"W": 2}, "causal_filter": {},
    "strict_upper": {}, "trapezoid": {}, "strided_line": {}, "polynomials": {"D": 12}, "triangle3": {},
    "rows_of_triangle": {"J": 3}, "earlier_maximum": {}, "ell_spmv": {"I": 5}, "guarded_load": {},
}  # fmt: skip


@pytest.mark.parametrize("flags", [WIDE, (*SANITIZERS, "-march=native")], ids=["wide", "sanitized"])
def test_domains_around_vectors_and_blocks(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Borders of the domain inside tiles: nothing outside is read, and nothing inside forgotten."""
    rng = random.Random(2)
    cases = []
    for name, fixed in DOMAIN_SIZES.items():
        p = EVERYTHING[name]
        for n, kind in ((37, "default"), (33, "space"), (17, "random")):
            params = {q.name: fixed.get(q.name, n) if isinstance(v, int) else v
                      for q, v in zip(p.params, small_params(p).values(), strict=True)}  # fmt: skip
            cases.append(_case(p, rng, kind, params))
    check(cases, tmp_path, flags=flags)


def test_domains_of_one_element(tmp_path: Path) -> None:
    """Dimensions with one index and no loop of their own obey the domain all the same."""
    rng = random.Random(3)
    cases = []
    for name in (*DOMAIN_SIZES, "prl_earlier"):
        p = EVERYTHING[name]
        for n, kind in ((1, "default"), (1, "space"), (1, "space"), (1, "random"), (2, "space")):
            params = {q.name: n if isinstance(v, int) else v
                      for q, v in zip(p.params, small_params(p).values(), strict=True)}  # fmt: skip
            cases.append(_case(p, rng, kind, params))
    check(cases, tmp_path, flags=SANITIZERS)


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("gcc", FLAGS), ("gcc", (*SANITIZERS, "-march=native")), *((c, WIDE) for c in COMPILERS)],
)
def test_stores_past_the_caches(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """Rows that begin and end anywhere, shorter than a vector or the first step of a row."""
    rng = random.Random(11)
    machine = replace(GENERIC, l3=0)
    cases, past = [], 0
    for name, rows in (("jacobi1d", {}), ("jacobi2d", {"rows_i": 1}), ("conv2d", {"rows_p": 2})):
        p = EVERYTHING[name]
        dim = p.hom.dims_of("cc")[-1].name
        for n in (1, 16, 17, 31, 47, 70):
            params = {q.name: n if isinstance(v, int) else v
                      for q, v in zip(p.params, small_params(p).values(), strict=True)}  # fmt: skip
            if name == "conv2d":
                params |= {k: 3 for k in params if k in ("R", "S")}
            case, expected = _case(p, rng, "default", params)
            sizes = (case.program.sizes(integers(case.params)),)
            point = default_point((case.program,), machine, sizes)
            out = p.out.stores[0].buffer
            point |= {"vector": dim, "lanes": 16, f"past_{out}": 1, f"block_{dim}": 48, **rows}
            (c,) = configuration_at((case.program,), machine, sizes, point)
            cases.append((replace(case, configuration=c, machine=machine), expected))
            kernel = emit_openmp(KernelRequest("k", name, (case.program,), (c,), machine))
            past += "MDH_STORE(" in kernel.text.split("static int k")[1]
    assert past >= 14
    check(cases, tmp_path, compiler=compiler, flags=flags)


def test_rows_of_whole_tiles_past_the_caches(tmp_path: Path) -> None:
    """Sizes are constants that tiles divide, and rows begin anywhere: the first step is a short one, all the same."""
    rng, cases, past = random.Random(13), [], 0
    machine = replace(GENERIC, l3=0)
    for name, tile in (("jacobi1d", {}), ("jacobi2d", {"rows_i": 1}), ("conv2d", {"rows_p": 2}), ("matmul", {"rows_i": 2})):
        p = EVERYTHING[name]
        dim = p.hom.dims_of("cc")[-1].name
        for n in range(16, 70):
            params = {q.name: n if isinstance(v, int) else v
                      for q, v in zip(p.params, small_params(p).values(), strict=True)}  # fmt: skip
            params |= {k: 3 for k in params if k in ("R", "S", "K")}
            if p.sizes(integers(params))[dim] % 16:
                continue
            buffers = buffers_for(p, params, rng)
            sized, extra = with_extents(p, buffers, symbolic=True)
            sized, values = with_constant_sizes(sized, integers(params)), {**params, **extra}
            expected = copy_of(buffers)
            run(p, params, expected)
            sizes = (sized.sizes(integers(values)),)
            point = default_point((sized,), machine, sizes)
            point |= {"threads": "", "vector": dim, "lanes": 16, f"past_{p.out.stores[0].buffer}": 1, f"block_{dim}": 64}
            (c,) = configuration_at((sized,), machine, sizes, point | tile)
            cases.append((Case(sized, c, values, buffers, machine), expected))
            kernel = emit_openmp(KernelRequest("k", name, (sized,), (c,), machine))
            past += "_step = " in kernel.text.split("static int k")[1]
    assert past >= 10
    for flags in (WIDE, (*SANITIZERS, "-march=native")):
        check(cases, tmp_path, flags=flags)


@pytest.mark.parametrize("name", EVERYTHING)
def test_lines_are_indented_as_they_are_nested(name: str) -> None:
    p = EVERYTHING[name]
    p, _ = with_extents(p, buffers_for(p, small_params(p), random.Random(0)), symbolic=True)
    sizes = {d.name: 5 if d.size.span.is_constant else 100 for d in p.hom.dims}
    (c,) = configuration_at((p,), GENERIC, (sizes,), default_point((p,), GENERIC, (sizes,)))
    text = emit_openmp(KernelRequest("f", "n", (p,), (c,), GENERIC)).text
    rows = [row for row in text[text.index(" f(") :].splitlines() if row and not row.startswith("#")]
    for before, row in itertools.pairwise(rows):
        deeper = len(row) - len(row.lstrip()) - (len(before) - len(before.lstrip()))
        opens = before.endswith("{") or before.lstrip().startswith("for (")
        assert deeper <= (2 if opens else 0), f"{before}\n{row}"


def test_reductions_past_the_caches(tmp_path: Path) -> None:
    """Where a block covers the reduced dimension, cells are written once and may go past; else they stay near."""
    f = binary("*", x(0), x(1))
    p = program("fresh", "i:I j:J k:K", "cc cc pw", dict.fromkeys("ABC", FLOAT), "A[i, k] B[k, j]", "C[i, j]",
                (f,), combine=PLUS, initial=(number(0, FLOAT),))  # fmt: skip
    point = {"threads": "i", "vector": "j", "lanes": 16, "rows_i": 3, "rows_j": 1, "block_i": 9, "block_j": 32,
             "block_k": 8, "unroll_k": 1, "order": 0, "pack_A": "no", "pack_B": "no", "past_C": 1}  # fmt: skip
    machine, rng, cases = replace(GENERIC, l3=0), random.Random(8), []
    large = dict.fromkeys("ijk", 99)  # what the configuration is for

    def text_of(program: MdhProgram) -> str:
        (c,) = configuration_at((program,), machine, (large,), point)
        return emit_openmp(KernelRequest("f", "n", (program,), (c,), machine)).text.split("static int f")[1]

    for i, j, k in ((0, 5, 3), (1, 1, 1), (3, 16, 8), (7, 33, 8), (9, 48, 9), (10, 31, 5), (4, 64, 0), (12, 32, 17)):
        params: dict[str, Value] = {"I": i, "J": j, "K": k}
        buffers = buffers_for(p, params, rng)
        expected = copy_of(buffers)
        run(p, params, expected)
        sized, extra = with_extents(p, buffers, symbolic=True)
        for fetched in (0, 1):
            (c,) = configuration_at((sized,), machine, (large,), point | {"fetch_C": fetched})
            cases.append((Case(sized, c, {**params, **extra}, buffers, machine), expected))
        assert re.search(r"C_mask = .*&& k_size <= 8 \?", text_of(sized))
    for k, once in ((8, True), (17, False)):
        assert ("MDH_STORE(" in text_of(with_constant_sizes(sized, {"K": k}))) == once
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=SANITIZERS)


def test_operands_that_slide(tmp_path: Path) -> None:
    """Rows of a convolution share what they read; strided ones do not; exact sums keep their order."""
    rng = random.Random(5)
    point = {"threads": "p", "vector": "q", "lanes": 8, "rows_p": 4, "unroll_r": 3, "unroll_s": 2,
             "block_p": 8, "block_q": 16, "block_r": 0, "block_s": 0, "order": 0}  # fmt: skip
    # of five columns all, four or one have their weights in registers, as there are 32 registers or 16
    columns = [{"unroll_r": r, "unroll_s": 5, "rows_p": rows} for r, rows in ((5, 4), (5, 8), (3, 2), (2, 4))]
    cases = []
    for n, r, s in ((4, 3, 2), (5, 3, 3), (13, 4, 5), (29, 3, 2), (16, 7, 1), (9, 2, 2), (17, 5, 5), (24, 6, 11)):
        for fp, shape in [("fast", {}), ("exact", {}), *(("fast", c) for c in columns if s >= 5)]:
            p = replace(EVERYTHING["conv2d"], fp=fp)
            case, expected = _case(p, rng, "default", {"P": n, "Q": n + 11, "R": r, "S": s})
            sizes = (case.program.sizes(integers(case.params)),)
            (c,) = configuration_at((case.program,), GENERIC, sizes, point | shape)
            cases.append((replace(case, configuration=c), expected))
            text = emit_openmp(KernelRequest("k", "n", (case.program,), (c,), GENERIC)).text
            assert ("MDH_KEEP(in" in text) == ("s_room" in text) == (fp == "fast"), fp
    check(cases, tmp_path, flags=WIDE)
    check(cases, tmp_path, flags=FLAGS)
    check(cases, tmp_path, flags=SANITIZERS)


BACKWARDS = (
    product("dot_backwards", "k:K", "pw", "A[K - k - 1]", "B[k]", "C[]"),
    product("both_backwards", "k:K", "pw", "A[K - k]", "B[K - k - 1]", "C[]"),
    product("rows_backwards", "i:I k:K", "cc pw", "M[i, K - k - 1]", "v[k]", "w[i]"),
    program("map_backwards", "i:N", "cc", {"I": FLOAT, "O": FLOAT}, "I[i] I[N - i - 1]", "O[i]", (binary("-", x(0), x(1)),)),
)


@pytest.mark.parametrize("p", BACKWARDS, ids=lambda p: p.name)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_operands_that_run_backwards(p: MdhProgram, compiler: str, tmp_path: Path) -> None:
    """Vectors of them are loaded and turned around; none is refused vectors for it."""
    rng = random.Random(p.name)
    last = p.hom.dims[-1].name
    assert vector_candidates(facts(p, {d.name: 100 for d in p.hom.dims}))[0] == last
    cases, vectors = [], 0
    for n in (0, 1, 7, 16, 17, 33, 70, 131):
        for kind in ("default", "space"):
            sizes = {d: n if d != "I" else 5 + n % 7 for d in ("I", "K", "N") if any(q.name == d for q in p.params)}
            case, expected = _case(p, rng, kind, sizes)
            cases.append((case, expected))
            text = emit_openmp(KernelRequest("k", "n", (case.program,), (case.configuration,), GENERIC)).text
            vectors += "vector_size" in text
    assert vectors > 1
    check(cases, tmp_path, compiler=compiler, flags=WIDE)
    if compiler == "gcc":  # both would find the same
        check(cases, tmp_path, compiler=compiler, flags=SANITIZERS)


PASSING_NAN = tuple(
    program(f"{op}_{ops.split()[0]}_{t.name}", dims, ops, {"M": t, "t": t}, place, target, (x(0, t),), combine=operator(op, t))
    for op in ("fmin", "fmax")
    for t in (FLOAT, DOUBLE)
    for dims, ops, place, target in (("i:I k:K", "cc pw", "M[i, k]", "t[i]"), ("k:K", "pw", "M[k]", "t[]"))
)


@pytest.mark.parametrize("p", PASSING_NAN, ids=lambda p: p.name)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_extrema_of_the_library_in_vectors(p: MdhProgram, compiler: str, tmp_path: Path) -> None:
    """They pass over NaN, in the lanes, between them, and where all are NaN."""
    rng = random.Random(p.name)
    cases, vectors = [], 0
    for n in (0, 1, 7, 16, 33, 130, 257):
        for share in (0.0, 0.4, 1.0):
            params = {d.name: n if d.name == "k" else 3 for d in p.hom.dims}
            sizes = {q.name: {"K": n, "I": 3}[q.name] for q in p.params}
            buffers = buffers_for(p, sizes, rng)
            data = buffers["M"].data
            data[:] = [math.nan if rng.random() < share else v for v in data]
            expected = copy_of(buffers)
            run(p, sizes, expected)
            sized, extra = with_extents(p, buffers, symbolic=True)
            point = default_point((sized,), GENERIC, (params,)) | {"vector": "k", "lanes": 16}
            (c,) = configuration_at((sized,), GENERIC, (params,), point)
            cases.append((Case(sized, c, {**sizes, **extra}, buffers, GENERIC), expected))
            text = emit_openmp(KernelRequest("k", "n", (sized,), (c,), GENERIC)).text
            vectors += "vector_size" in text
    assert vectors == len(cases)
    check(cases, tmp_path, compiler=compiler, flags=WIDE)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_all_numbers_of_lanes_have_vectors(width: int) -> None:
    """Text for machines with shorter vectors is compiled for those with longer ones as well."""
    machine = replace(GENERIC, vector_bytes=width)
    for p in (EVERYTHING["dot"], PASSING_NAN[1]):
        sizes = ({d.name: 257 for d in p.hom.dims},)
        space = dict(tuning_space((p,), machine, sizes).parameters)
        counts = [n for n in space["lanes"] if n > 1]
        assert len(counts) > 2
        for n in counts:
            vector = p.hom.dims[-1].name
            point = default_point((p,), machine, sizes) | {"vector": vector, "lanes": n}
            (c,) = configuration_at((p,), machine, sizes, point)
            text = emit_openmp(KernelRequest("k", "n", (p,), (c,), machine)).text
            assert "vector_size" in text, (p.name, n)


TICKET = program("ticket", "i:N j:N", "cc cc", {"O": INT32, "I": INT32}, "I[i, j]", "O[i, j]", (x(0, INT32),), domain="j < i")


def test_empty_tiles_are_not_visited(tmp_path: Path) -> None:
    """A triangle of 1024 by 1024 in tiles of 32 by 32: 496 full, 32 partial, 496 empty."""
    extents = (None, Affine.number(1024))
    p = replace(TICKET, buffers=tuple(replace(b, extents=extents, restrict=True) for b in TICKET.buffers))
    layers = ((0, 0), (4, 0), (1, 0), (2, 0), (3, 0), (5, 0))  # blocks on threads; 32 rows of 32 lanes
    assign = tuple(tuple((layer, d) for d in range(2)) for layer, _ in layers)
    c = make(p, OPENMP_REG_SIMD, ((1, 1),) * 4 + ((32, 1), (1, 32)), assign=assign)
    kernel = emit_openmp(KernelRequest("kernel", "ticket", (p,), (c,), GENERIC))
    rows = kernel.text.splitlines()
    (tile,) = [k for k, row in enumerate(rows) if re.search(r"if \(.*_1 \+ 31 < i_size", row)]
    pad = re.match(" *", rows[tile])[0]  # type: ignore[index]
    clipped = next(k for k in range(tile, len(rows)) if rows[k] == pad + "} else {")
    rows[clipped] += " partial++;"
    rows[tile] += " full++;"
    source = tmp_path / "ticket.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdint.h>\nstatic long full, partial;\nstatic int I[1024*1024], O[1024*1024];\n"
        + "\n".join(rows)
        + f'\nint main(void) {{ int N = 1024; {kernel.call}; printf("%ld %ld", full, partial); }}\n'
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(tmp_path / "ticket")], check=True)
    counted = subprocess.run([str(tmp_path / "ticket")], capture_output=True, text=True, check=True).stdout
    assert counted == "496 32"
    assert classify(p, {"N": 1024}, {"i": 32, "j": 32}) == {"full": 496, "partial": 32, "empty": 496}


@pytest.mark.parametrize("model", [OPENMP, OPENMP_REG_SIMD], ids=["OpenMP", "REG and SIMD"])
def test_where_nothing_is_added_no_cell_is_touched(tmp_path: Path, model: SystemModel) -> None:
    """``for j: C[m - 1] += a[j]``: with m = 0 there need not be a cell, nor an array."""
    text = b"void f(int m, int *c, int *a)\n{\n#pragma mdh\n    for (int j = 0; j < m; j++) c[m - 1] += a[j];\n}\n"
    nest = read(SourceFile("f.c", text), CompileCommand(directory=str(tmp_path))).nests[0]
    (p,) = lift(nest).programs
    rng = random.Random(5)
    kernels, calls = [], []
    for k in range(8):
        machine = replace(GENERIC, model=model)
        kernel = emit_openmp(KernelRequest(f"k{k}", "f", (p,), (random_configuration(rng, p, model),), machine))
        kernels.append(kernel.text)
        calls.append(f"m = 0; c = 0; a = 0; {kernel.call}; m = 3; c = sum; a = given; {kernel.call};")
    source = tmp_path / "f.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdint.h>\n" + "\n".join(kernels)
        + "\nint main(void) { int m, sum[3] = {7, 8, 9}, given[3] = {1, 2, 3}, *c, *a;\n" + "\n".join(calls)
        + '\nprintf("%d %d %d", sum[0], sum[1], sum[2]); return 0; }\n'
    )  # fmt: skip
    subprocess.run(["gcc", *SANITIZERS, str(source), "-o", str(tmp_path / "f")], check=True)
    ran = subprocess.run([str(tmp_path / "f")], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, f"7 8 {9 + 8 * 6}"), ran.stderr[-1500:]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(programs(max_dims=3), min_size=12, max_size=12), st.data())
def test_random_programs(
    tmp_path_factory: pytest.TempPathFactory, many: list[MdhProgram], data: st.DataObject
) -> None:
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    cases = []
    for p in many:
        params = data.draw(sizes_for(p, max_points=120))
        cases.append(_case(p, rng, rng.choice(("default", "space", "random")), params))
    check(cases, tmp_path_factory.mktemp("random"))


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    rng = random.Random(5)
    cases = [_case(p, rng, "space", _params(p, rng)) for p in EVERYTHING.values()]
    check(cases, tmp_path, flags=SANITIZERS)


def _text(name: str, **how: object) -> str:
    p = CATALOGUE[name]
    buffers = buffers_for(p, small_params(p), random.Random(0))
    sized, _ = with_extents(p, buffers, symbolic=True)
    sized = replace(sized, buffers=tuple(replace(b, restrict=False) for b in sized.buffers))
    sizes = ({d.name: 512 for d in p.hom.dims},)
    point = default_point((sized,), GENERIC, sizes)
    c = configuration_at((sized,), GENERIC, sizes, point)
    return emit_openmp(KernelRequest("k", name, (sized,), c, GENERIC, **how)).text  # type: ignore[arg-type]


def test_dot_runs_on_all_cores_although_only_a_reduction_is_parallel() -> None:
    text = _text("dot")
    assert "#pragma omp parallel for" in text
    assert "part0" in text or "part" in text


def test_guards() -> None:
    text = _text("matmul", assume=("I > 3",), params=EVERYTHING["matmul"].params)
    assert "if (!(I > 3)) return 0;" in text
    assert "/* A and C overlap */" in text
    assert "the original runs where: A and C overlap; B and C overlap; not (I > 3)" in text
    promised = _text("matmul", noalias=(("A", "B", "C"),))
    assert "promised: A and B and C do not overlap" in promised and "overlap */" not in promised


def test_constants_have_their_type_and_value() -> None:
    assert constant(0.1, FLOAT) == "0.1f"
    assert constant(float("-inf"), FLOAT) == "-__builtin_inff()"
    assert constant(-(1 << 31), INT32) == "(-2147483647 - 1)"
    assert constant((1 << 64) - 1, UINT64) == "18446744073709551615UL"
    assert constant(5, INT64) == "5L"


def test_affine_text() -> None:
    a = Affine.of("i") * 2 - Affine.of("N") + 3
    assert affine_text(a, {"i": "i_1 + 4"}) == "2*(i_1 + 4) - N + 3"
    assert affine_text(Affine.of("i") * -1, {"i": "i_1 + 4"}) == "-(i_1 + 4)"
