"""Arg-min and its like in vectors, reductions without a neutral element, exclusive scans: as the loops do it."""

from __future__ import annotations

import math
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lifter.run_nest import run_nest
from lowering.choice import default_point
from lowering.facts import facts, is_screened, vector_candidates
from lowering.machine import GENERIC
from lowering.point import configuration_at
from mdh_core.combine import arg_operator, choice_of, scalar_operator, tuple_operator
from mdh_core.evaluate import Value
from mdh_core.expr import FLOAT, INT32, UINT8
from mdh_core.interpreter import integers
from mdh_core.source import SourceFile
from tests.emitted import FLAGS, Case, check, with_extents
from tests.strategies import buffers_for, copy_of

VECTORS = (*FLAGS, "-O2", "-mavx2")

# (type, better, start of the value)
CHOICES = {
    "first smallest": ("int", "<", "s"),
    "last smallest": ("int", "<=", "s"),
    "first largest": ("float", ">", "s"),
    "last largest": ("float", ">=", "s"),
    "first largest of doubles": ("double", ">", "s"),
    "last smallest of shorts": ("short", "<=", "s"),
    "first smallest of bytes": ("unsigned char", "<", "s"),
    "last largest of longs": ("long", ">=", "s"),
}


def _lifted(text: str) -> LiftedNest:
    return lift(read(SourceFile("f.c", text.encode()), CompileCommand()).nests[0])


def _choice(name: str, condition: str = "", value: str = "a[i]") -> LiftedNest:
    t, better, _ = CHOICES[name]
    test = f"{condition}{value} {better} s"
    return _lifted(
        f"void f(int n, {t} s, long pos, {t} *restrict a, {t} *restrict b, {t} *out, long *where)\n{{\n"
        f"#pragma mdh\n    for (int i = 0; i < n; i++)\n        if ({test}) {{ s = {value}; pos = i; }}\n"
        "    *out = s; *where = pos;\n}\n"
    )


def _case(nest: LiftedNest, n: int, values: list[float], start: float, block: int = 0) -> tuple[Case, dict]:  # type: ignore[type-arg]
    """A case at whose end stands what the loop leaves; ``block``: elements of a thread's part."""
    (p,) = nest.programs
    params = {q.name: n for q in p.params}
    buffers = buffers_for(p, params, random.Random(0))
    for b in buffers.values():
        kind = type(b.data[0]) if b.data else int
        if b.extents:
            b.data[:] = [kind(values[k]) if math.isfinite(values[k]) else values[k] for k in range(len(b.data))]
        else:
            b.data[:] = [kind(start if b is not buffers.get("pos") else -1)]
    sized, extra = with_extents(p, buffers)
    sizes = (sized.sizes(integers(params)),)
    point = default_point((sized,), GENERIC, ({"i": 1 << 20},))
    if block:
        point |= {"threads": "i", "block_i": block}
    (c,) = configuration_at((sized,), GENERIC, sizes, point)
    case, expected = Case(sized, c, {**params, **extra}, buffers), copy_of(buffers)
    scalars: dict[str, Value] = {q.name: expected[q.name].data[0] for q in nest.nest.scalars}
    run_nest(nest.nest, {"n": n}, {b.name: expected[b.name] for b in nest.nest.buffers}, scalars)
    for scalar, value in scalars.items():
        expected[scalar].data[0] = value
    return case, expected


LENGTHS = (0, 1, 2, 7, 31, 32, 33, 63, 511, 512, 513, 1031, 2049)


@pytest.mark.parametrize("name", CHOICES)
def test_ties_go_where_the_loop_gives_them(name: str, tmp_path: Path) -> None:
    """Few values, so that the best one stands in many lanes, stretches and threads' parts."""
    nest = _choice(name)
    assert is_screened(nest.programs[0])
    largest = "largest" in name
    cases, rng = [], random.Random(1)
    for n in LENGTHS:
        for worst in (3, 40):
            values = [float(rng.randrange(1, worst)) for _ in range(max(n, 1))]
            cases.append(_case(nest, n, values, 0 if largest else 100, rng.choice((0, 64, 512, 576))))
    text = emit_openmp(
        KernelRequest("k", "f", (cases[0][0].program,), (cases[0][0].configuration,), GENERIC)
    ).text
    assert "vector_size" in text
    check(cases, tmp_path, flags=VECTORS)


@pytest.mark.parametrize("name", ["first smallest", "last largest", "first smallest of bytes"])
def test_a_best_value_in_every_single_place(name: str, tmp_path: Path) -> None:
    nest, n = _choice(name), 1100
    best, start = (9.0, 0.0) if "largest" in name else (1.0, 100.0)
    places = [0, 1, 7, 8, 31, 32, 63, 64, 510, 511, 512, 513, 575, 576, 1023, 1024, 1087, 1088, 1098, 1099]
    cases = []
    for at in places:
        values = [5.0] * n
        values[at] = best
        cases.append(_case(nest, n, values, start, 576))
        values[max(at - 3, 0)] = best
        cases.append(_case(nest, n, values, start, 576))
    check(cases, tmp_path, flags=VECTORS)


@pytest.mark.parametrize("name", ["first largest", "last largest", "first largest of doubles"])
def test_nan_is_taken_by_nobody(name: str, tmp_path: Path) -> None:
    """As in the loop: no comparison with NaN holds, wherever it stands in a thread's part."""
    nest, n, cases = _choice(name), 1100, []
    for kind in range(4):
        values = [float(k % 7) for k in range(n)]
        for at in [(0, 576), (0, 1, 2, 3, 512, 576, 1099), range(n), range(0, n, 3)][kind]:
            values[at] = math.nan
        cases.append(_case(nest, n, values, 0.0, 576))
        cases.append(_case(nest, n, values, math.nan, 576))
        cases.append(_case(nest, n, values, -math.inf, 576))
    check(cases, tmp_path, flags=VECTORS)


def test_conditions_keep_points_out(tmp_path: Path) -> None:
    """A point kept out has the worst value there is; one that really has it, in the same stretch, is found."""
    nest = _choice("last smallest", "b[i] > 1 && ")
    cases = []
    for n in (1, 40, 600, 1100):
        values = [2147483647.0 if k % 5 else float(k % 2) for k in range(n)]
        cases.append(_case(nest, n, values, 2147483647.0, 576))
    check(cases, tmp_path, flags=VECTORS)


def test_computed_values(tmp_path: Path) -> None:
    """What may be rounded differently in vectors is not looked for in vectors."""
    assert is_screened(_choice("first largest", value="(a[i] - b[i])").programs[0])
    assert not is_screened(_choice("first largest", value="(a[i]*b[i] - b[i])").programs[0])
    nest = _choice("first largest", value="(a[i]*b[i])")
    assert is_screened(nest.programs[0])
    values = [float(k % 11) for k in range(1100)]
    check([_case(nest, n, values, 0.0, 576) for n in (5, 513, 1100)], tmp_path, flags=VECTORS)


def test_rows_with_a_payload_are_read_in_vectors() -> None:
    text = Path("corpus/argmax_payload.c").read_bytes()
    (p,) = lift(read(SourceFile("f.c", text), CompileCommand()).nests[0]).programs
    f = facts(p, {"r": 2048, "c": 2048})
    assert vector_candidates(f)[0] == "c"
    point = default_point((p,), GENERIC, ({"r": 2048, "c": 2048},))
    assert point["vector"] == "c" and point["rows_r"] == 1


def test_which_functions_choose() -> None:
    first, last = (arg_operator("argmin", INT32, (UINT8,), 2, w) for w in (False, True))
    assert choice_of(first) is not None and not choice_of(first).last_wins  # type: ignore[union-attr]
    assert choice_of(last) is not None and choice_of(last).last_wins  # type: ignore[union-attr]
    assert choice_of(first).positions == 2  # type: ignore[union-attr]
    plain = scalar_operator("max", FLOAT)
    assert plain is not None and choice_of(plain) is None
    assert choice_of(tuple_operator((plain, arg_operator("argmax", FLOAT, (), 1)))) is None
    assert choice_of(arg_operator("argmax", FLOAT, (UINT8,), 0)) is None  # does not commute
    assert choice_of(replace(first, values=last.values)) == choice_of(last)


# --------------------------------------------------------------------------- no neutral element

WIDEN = """struct range { int min, max; };
static struct range widen(struct range a, struct range b)
{
    if (b.min < a.min) a.min = b.min;
    if (b.max > a.max) a.max = b.max;
    return a;
}
void f(long n, const int *a, struct range r)
{
#pragma mdh combine_ops(pw(widen))
    for (long i = 0; i < n; i++) {
        struct range one = {a[i], a[i]};
        r = widen(r, one);
    }
}
"""


def test_users_operators_leave_a_loop_that_compilers_vectorise(tmp_path: Path) -> None:
    text = Path("corpus/user_op.c").read_bytes()
    (p,) = lift(read(SourceFile("f.c", text), CompileCommand()).nests[1]).programs
    sizes = ({"i": 1 << 23},)
    (c,) = configuration_at((p,), GENERIC, sizes, default_point((p,), GENERIC, sizes))
    kernel = emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text
    assert "have" not in kernel
    source = tmp_path / "k.c"
    head = WIDEN.split("void f(")[0] + "#include <limits.h>\n"
    source.write_text(head + kernel.replace("static int k(", "int k("))
    subprocess.run(
        ["gcc", "-O3", "-mavx2", "-fopenmp", "-w", "-S", str(source), "-o", str(tmp_path / "k.s")], check=True
    )
    assembly = (tmp_path / "k.s").read_text()
    assert re.search(r"vpminsd.*%ymm", assembly) and re.search(r"vpmaxsd.*%ymm", assembly)


# --------------------------------------------------------------------------- exclusive scans


def _exclusive(body: str, t: str = "int") -> LiftedNest:
    return _lifted(
        f"void f(int n, {t} s, const {t} *restrict x, {t} *restrict a)\n{{\n#pragma mdh\n"
        f"    for (int i = 0; i < n; i++) {{ {body} }}\n}}\n"
    )


def test_an_exclusive_scan_needs_no_array_of_its_own() -> None:
    nest = _exclusive("a[i] = s; s += x[i];")
    assert not nest.temporaries
    assert len(nest.programs) == 2 and "T" not in {b.name for p in nest.programs for b in p.buffers}
    assert {s.buffer for p in nest.programs for s in p.out.stores} == {"a"}


@pytest.mark.parametrize("body", ["a[i] = s + 1; s += x[i];", "a[i] = s; s += a[i];", "s += a[i]; a[i] = s;"])
def test_only_plain_copies_are_forwarded(body: str) -> None:
    """What is computed from the running value, or from the array that is written, stays as it was."""
    for p in _exclusive(body).programs:
        for s in p.out.stores:
            if s.buffer == "a" and p.hom.dims:
                assert p.hom.dims[0].size.span.const == 0


@pytest.mark.parametrize("t", ["int", "unsigned", "double"])
def test_exclusive_scans_leave_what_the_loop_leaves(t: str) -> None:
    from mdh_core.interpreter import run

    nest = _exclusive("a[i] = s; s += x[i];", t)
    for n in (0, 1, 2, 3, 17):
        rng = random.Random(n)
        whole = {b.name: b for p in nest.programs for b in p.buffers}
        extents = {"x": n, "a": n}
        buffers = {}
        for p in nest.programs:
            for name, b in buffers_for(p, {q.name: max(n, 1) for q in p.params}, rng).items():
                buffers.setdefault(name, b)
        for name, size in extents.items():
            b = buffers[name]
            kind = float if whole[name].type.is_float else int  # type: ignore[union-attr]
            buffers[name] = replace(b, extents=(size,), data=[kind(rng.randrange(1, 9)) for _ in range(size)])
        expected = copy_of(buffers)
        scalars: dict[str, Value] = {"s": expected["s"].data[0]}
        run_nest(nest.nest, {"n": n}, {k: expected[k] for k in extents}, scalars)
        for p in nest.programs:
            run(p, {q.name: n for q in p.params}, buffers)
        assert buffers["a"].data == expected["a"].data


# --------------------------------------------------------------------------- narrow integers


def test_sums_of_bytes_are_not_converted_lane_by_lane(tmp_path: Path) -> None:
    text = Path("corpus/int8_dot.c").read_bytes()
    (p,) = lift(read(SourceFile("f.c", text), CompileCommand()).nests[0]).programs
    sizes = ({"i": 1 << 23},)
    (c,) = configuration_at((p,), GENERIC, sizes, default_point((p,), GENERIC, sizes))
    kernel = emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text
    assert "#pragma omp parallel for" in kernel
    source = tmp_path / "k.c"
    source.write_text("#include <stdint.h>\n" + kernel.replace("static int k(", "int k("))
    subprocess.run(
        ["gcc", "-O3", "-mavx2", "-fopenmp", "-w", "-S", str(source), "-o", str(tmp_path / "k.s")], check=True
    )
    assembly = (tmp_path / "k.s").read_text()
    assert "vpextr" not in assembly and re.search(r"vpmovsx\w+", assembly)
    assert re.search(r"vpmul\w+\s.*%ymm", assembly) or "vpmaddwd" in assembly
