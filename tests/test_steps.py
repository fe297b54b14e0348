"""Step trees (host loops, sequential parts, temporaries), built by hand: emitted code equals the interpreter."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from emit.c_text import c_type
from emit.guards_text import reach_of
from emit.host_text import leaves, tightest
from emit.render import emit_openmp
from emit.request import Kernel, KernelRequest
from lifter.fusion import fused
from lowering.choice import default_point
from lowering.host_tiles import HostTiles
from lowering.machine import GENERIC, OPENMP_L3_SIMD, OPENMP_REG_SIMD, Machine
from lowering.parameters import Configuration, random_configuration
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.evaluate import Value
from mdh_core.expr import (
    DOUBLE,
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    RecordType,
    ScalarType,
    Type,
    Var,
)
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Param, Sequential, Size, Step, programs_of
from mdh_core.polytope import rows_of
from mdh_lift import iterations
from mdh_lift.subject import element_counts
from tests.emitted import FLAGS, POISON, _printed, _value
from tests.lifting import lifted, needed_extents
from tests.test_fusion import OFFERED, choices, nest
from tuning.space import valid_points

SANITIZED = (*FLAGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CANARY = 32

# --------------------------------------------------------------------------- building


def programs(head: str, body: str) -> tuple[MdhProgram, ...]:
    """The programs of a nest in a function with these parameters."""
    nest = lifted(f"#include <math.h>\nvoid f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    return nest.programs


def host(iterator: str, span: Affine | str, *body: Step | tuple[MdhProgram, ...], step: int = 1) -> HostLoop:
    size = Size(Affine.of(span) if isinstance(span, str) else span, step)
    flat = [s for b in body for s in (b if isinstance(b, tuple) else (b,))]
    return HostLoop(iterator, size, tuple(flat))


def cell(buffer: str, t: Type, *index: Expr) -> Load:
    return Load(buffer, index, t)


def integer(name: str) -> Var:
    return Var(name, INT32)


def plus(a: Expr, b: Expr) -> Binary:
    return Binary("+", a, b, a.type)  # type: ignore[arg-type]


N = Affine.of("n")
K = Affine.of("k")


@dataclass(frozen=True)
class Case:
    """Steps with the values that they run on; ``data`` also holds the temporaries."""

    steps: tuple[Step, ...]
    params: Mapping[str, int]
    data: Mapping[str, BufferValue]
    temporaries: tuple[Buffer, ...] = ()

    @property
    def programs(self) -> tuple[MdhProgram, ...]:
        return tuple(programs_of(self.steps))

    @property
    def arguments(self) -> dict[str, Buffer]:
        own = {b.name for b in self.temporaries}
        return {b.name: b for leaf, _ in leaves(self.steps) for b in leaf.buffers if b.name not in own}


def values(rng: random.Random, t: Type, *extents: int) -> BufferValue:
    n = math.prod(extents)
    if t == DOUBLE:
        return BufferValue([rng.uniform(-1, 1) for _ in range(n)], extents)
    return BufferValue([rng.randint(-9, 9) for _ in range(n)], extents)


def dominant(rng: random.Random, n: int) -> BufferValue:
    b = values(rng, DOUBLE, n, n)
    for i in range(n):
        b[i, i] = float(n + 2)
    return b


# --------------------------------------------------------------------------- running


def kernel_of(
    case: Case,
    configurations: Sequence[Configuration],
    machine: Machine = GENERIC,
    name: str = "kernel",
    host_tiles: tuple[HostTiles | None, ...] = (),
    regions: tuple[bool, ...] = (),
    sizes: Mapping[str, int] | None = None,
) -> Kernel:
    """``sizes``: values for which there is a second function."""
    known = {n: Param(n, INT32, n) for n in case.params}
    return emit_openmp(
        KernelRequest(
            name,
            "steps",
            case.steps,
            tuple(configurations),
            machine,
            temporaries=case.temporaries,
            params=tuple(known.values()),
            host_tiles=host_tiles,
            regions=regions,
            known=tuple((sizes or {}).items()),
        )
    )


READS = """
static long long whole(void) { long long x; if (scanf("%lld", &x) != 1) abort(); return x; }
static unsigned long long natural(void) { unsigned long long x; if (scanf("%llu", &x) != 1) abort(); return x; }
static double real(void) { double x; if (scanf("%lf", &x) != 1) abort(); return x; }
static void *room(long elements, long size) { void *p = malloc(elements * size); if (!p) abort(); return memset(p, 0xAB, elements * size); }
"""


def program_text(case: Case, kernel: Kernel) -> str:
    """A program that reads ``input_text``: cases that differ in sizes and data only have the same."""
    out = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", *POISON, READS, kernel.text, "int main(void) {"]
    out += [f"  int {n} = (int)whole(); (void){n};" for n in case.params]
    for name, b in case.arguments.items():
        t, further = c_type(b.type), range(1, len(case.data[name].extents))
        out += [f"  const long {name}_count = (long)whole();"]
        out += [f"  const long {name}_extent_{k} = (long)whole();" for k in further]
        out.append(f"  {t} *{name}_all = room({name}_count + {2 * CANARY}, sizeof({t}));")
        rank = "".join(f"[{name}_extent_{k} > 0 ? {name}_extent_{k} : 1]" for k in further)
        out.append(f"  {t} (*{name}){rank} = (void *)({name}_all + {CANARY});")
        out.append(f"  for (long x = {CANARY}; x < {CANARY} + {name}_count; x++) {{")
        out += [*_read(f"{name}_all[x]", b.type), "  }"]
        out += [f"  {line}" for line in _margins(name, t, "ASAN_POISON_MEMORY_REGION({}, {});")]
    out.append(f'  printf("{{\\"returned\\": %d", {kernel.call});')
    for name, b in case.arguments.items():
        t = c_type(b.type)
        out += [f"  {line}" for line in _margins(name, t, "ASAN_UNPOISON_MEMORY_REGION({}, {});")]
        out.append(f'  printf(", \\"{name}\\": [");')
        out.append(f'  for (long x = 0; x < {name}_count; x++) {{ if (x) printf(",");')
        out += _printed(f"{name}_all[{CANARY} + x]", b.type)
        out.append('  }\n  printf("]");')
        out.append(
            f"  for (long x = 0; x < {CANARY} * (long)sizeof({t}); x++)"
            f" if (((unsigned char *){name}_all)[x] != 0xAB ||"
            f" ((unsigned char *)({name}_all + {CANARY} + {name}_count))[x] != 0xAB)"
            f' {{ printf(", \\"outside\\": \\"{name}\\""); break; }}'
        )
        out.append(f"  free({name}_all);")
    return "\n".join([*out, '  printf("}\\n");', "  return 0;", "}", ""])


def _margins(name: str, t: str, call: str) -> list[str]:
    size = f"{CANARY} * sizeof({t})"
    return [call.format(f"{name}_all{x}", size) for x in ("", f" + {CANARY} + {name}_count")]


def _read(place: str, t: Type) -> list[str]:
    """Statements that read one element."""
    if isinstance(t, RecordType):
        return [line for n, u in t.fields for line in _read(f"{place}.{n}", u)]
    assert isinstance(t, ScalarType)
    by = "real" if t.is_float else "natural" if t.kind in ("uint", "bool") else "whole"
    return [f"    {place} = ({c_type(t)}){by}();"]


def _words(value: Value) -> list[str]:
    if isinstance(value, tuple):
        return [word for v in value for word in _words(v)]
    return [value.hex() if isinstance(value, float) else str(int(value))]


def input_text(case: Case) -> str:
    """Values of parameters; for each array how many elements, its extents but the first, and the elements."""
    words = [str(v) for v in case.params.values()]
    for name in case.arguments:
        b = case.data[name]
        words += [str(n) for n in (len(b.data), *b.extents[1:])]
        words += [word for v in b.data for word in _words(v)]
    return "\n".join([*words, ""])


_MADE = tempfile.TemporaryDirectory(prefix="mdh-lift-steps-")


@functools.cache
def compiled(text: str, flags: tuple[str, ...], compiler: str = "gcc") -> Path:
    """The program of a text, compiled once in this process."""
    name = hashlib.sha256(repr((text, flags, compiler)).encode()).hexdigest()[:20]
    source, program = Path(_MADE.name, f"{name}.c"), Path(_MADE.name, name)
    source.write_text(text)
    command = [compiler, *flags, str(source), "-o", str(program), "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr[:4000] + text
    return program


def run_kernel(
    case: Case, kernel: Kernel, flags: Sequence[str] = SANITIZED, main: str = ""
) -> dict[str, object]:
    """``main``: the text of another program, which reads nothing."""
    program = compiled(main or program_text(case, kernel), tuple(flags))
    environment = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "ASAN_OPTIONS": "detect_leaks=1"}
    ran = subprocess.run(
        [str(program)], input="" if main else input_text(case), capture_output=True, text=True, timeout=120,
        env=environment, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, (ran.returncode, ran.stderr[-3000:], kernel.text)
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def close(a: Value, b: Value) -> bool:
    assert not isinstance(a, tuple) and not isinstance(b, tuple)
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def check(
    case: Case,
    configurations: Sequence[Configuration],
    machine: Machine,
    host_tiles: tuple[HostTiles | None, ...] = (),
    sizes: Mapping[str, int] | None = None,
) -> None:
    expected = {n: b.copy() for n, b in case.data.items()}
    run_steps(case.steps, case.params, expected)
    kernel = kernel_of(case, configurations, machine, host_tiles=host_tiles, sizes=sizes)
    answer = run_kernel(case, kernel)
    assert answer.pop("returned") == 1
    assert "outside" not in answer, answer["outside"]
    for name, b in case.arguments.items():
        found = [_value(x, b.type) for x in answer[name]]  # type: ignore[attr-defined]
        pairs = list(zip(found, expected[name].data, strict=True))
        assert all(close(x, y) for x, y in pairs), (name, case.params, pairs, kernel.text)


def configurations(case: Case, kind: str, rng: random.Random) -> tuple[tuple[Configuration, ...], Machine]:
    sizes = iterations.sizes_at(case.steps, case.params)
    if kind == "default":
        point = default_point(case.programs, GENERIC, sizes)
        return configuration_at(case.programs, GENERIC, sizes, point), GENERIC
    if kind == "space":
        large = tuple({d: max(n, 40) for d, n in s.items()} for s in sizes)
        space = tuning_space(case.programs, GENERIC, large)
        point = next(valid_points(space, rng))  # of dozens of programs, chance alone does not find one
        return configuration_at(case.programs, GENERIC, large, point), GENERIC
    machine = replace(GENERIC, model=rng.choice((OPENMP_L3_SIMD, OPENMP_REG_SIMD)))
    return tuple(random_configuration(rng, p, machine.model) for p in case.programs), machine


# --------------------------------------------------------------------------- the nests


def lu(n: int, rng: random.Random) -> Case:
    head = "int n, int k, double A[n][n]"
    divide = programs(head, "for (int i = k + 1; i < n; i++) A[i][k] = A[i][k] / A[k][k];")
    update = programs(
        head,
        "for (int i = k + 1; i < n; i++) for (int j = k + 1; j < n; j++) A[i][j] -= A[i][k] * A[k][j];",
    )
    return Case((host("k", "n", divide, update),), {"n": n}, {"A": dominant(rng, n)})


def jacobi(n: int, rng: random.Random) -> Case:
    head = "int n, int steps, double A[n][n], double B[n][n]"
    half = "for (int i = 1; i < n - 1; i++) for (int j = 1; j < n - 1; j++) "
    star = "0.2 * ({0}[i][j] + {0}[i][j-1] + {0}[i][j+1] + {0}[i+1][j] + {0}[i-1][j]);"
    there = programs(head, half + "B[i][j] = " + star.format("A"))
    back = programs(head, half + "A[i][j] = " + star.format("B"))
    data = {"A": values(rng, DOUBLE, n, n), "B": values(rng, DOUBLE, n, n)}
    return Case((host("t", "steps", there, back),), {"n": n, "steps": 4}, data)


def gramschmidt(n: int, rng: random.Random) -> Case:
    """A 0-dimensional temporary, a root that stays sequential."""
    head = "int n, int k, double A[n][n], double R[n][n], double Q[n][n], double norm"
    local = Buffer("norm", DOUBLE, ())
    start = Sequential((Assign(cell("norm", DOUBLE), Const(0.0, DOUBLE)),), (), (local,))
    (norm,) = programs(head.replace("double norm", "double *norm"), "for (int i = 0; i < n; i++) norm[0] += A[i][k] * A[i][k];")
    norm = without_rank(norm, "norm")
    root = Sequential(
        (Assign(cell("R", DOUBLE, integer("k"), integer("k")), Call("sqrt", (cell("norm", DOUBLE),), DOUBLE)),),
        (Param("n", INT32, "n"), Param("k", INT32)),
        (local, Buffer("R", DOUBLE, (N, N), base="R")),
    )
    column = programs(head, "for (int i = 0; i < n; i++) Q[i][k] = A[i][k] / R[k][k];")
    row = programs(
        head,
        "for (int j = k + 1; j < n; j++) { R[k][j] = 0.0;"
        " for (int i = 0; i < n; i++) R[k][j] += Q[i][k] * A[i][j]; }",
    )
    rest = programs(
        head, "for (int j = k + 1; j < n; j++) for (int i = 0; i < n; i++) A[i][j] -= Q[i][k] * R[k][j];"
    )
    data = {"A": dominant(rng, n), "R": values(rng, DOUBLE, n, n), "Q": values(rng, DOUBLE, n, n)}
    data["norm"] = BufferValue([0.0], ())
    steps = (host("k", "n", start, norm, root, column, row, rest),)
    return Case(steps, {"n": n}, data, (local,))


def without_rank(p: MdhProgram, name: str) -> MdhProgram:
    """The program with a one-element array as a 0-dimensional buffer."""

    def index(b: str, i: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return () if b == name else i

    def expr(e: Expr | None) -> Expr | None:
        return replace(e, index=()) if isinstance(e, Load) and e.buffer == name else e

    return replace(
        p,
        buffers=tuple(Buffer(name, b.type, ()) if b.name == name else b for b in p.buffers),
        inp=replace(
            p.inp, accesses=tuple(replace(a, index=index(a.buffer, a.index)) for a in p.inp.accesses)
        ),
        out=replace(
            p.out,
            initial=tuple(map(expr, p.out.initial)),
            stores=tuple(replace(s, index=index(s.buffer, s.index)) for s in p.out.stores),
        ),
    )


def recurrence(n: int, rng: random.Random) -> Case:
    """Statements only: a prefix recurrence, a branch, a local, an index that is data."""
    t = integer("t")
    y = Buffer("y", INT32, (None,), base="y", restrict=True)
    x = Buffer("x", INT32, (None,), base="x", restrict=True)
    at = Buffer("at", INT32, (None,), base="at", restrict=True)
    one = Const(1, INT32)
    body = (
        Declare("old", INT32, cell("y", INT32, t)),
        If(
            Binary("<", Var("old", INT32), Const(50, INT32), INT32),
            (Assign(cell("y", INT32, plus(t, one)), plus(Var("old", INT32), cell("x", INT32, t))),),
            (Assign(cell("y", INT32, plus(t, one)), Cast(plus(Cast(t, INT64), Const(-7, INT64)), INT32)),),
        ),
        Assign(
            cell("x", INT32, cell("at", INT32, t)),
            plus(cell("x", INT32, cell("at", INT32, t)), Var("old", INT32)),
        ),
    )
    step = Sequential(body, (Param("t", INT32),), (x, y, at))
    data = {"x": values(rng, INT32, n), "y": values(rng, INT32, n + 1)}
    data["at"] = BufferValue([rng.randrange(n) for _ in range(n)], (n,)) if n else BufferValue([], (0,))
    return Case((host("t", "n", step),), {"n": n}, data)


def triangles(n: int, rng: random.Random) -> Case:
    """Sizes that depend on two host loops, steps other than 1, scans, a temporary with dimensions."""
    head = "int n, int k, int t, int M[n][n], int x[n], int *s, int w[n]"
    total = programs(
        head,
        "for (int i = t; i < n - k; i++) { x[i] = 0; for (int j = i - i + k; j < n; j++) x[i] += M[i][j]; }",
    )
    copied = programs(head, "for (int i = 0; i < n - k; i++) w[i] = (x[i] & 7) * 3 + M[k][i];")
    scanned = programs(
        head, "{ int sum = 0; for (int i = k; i < n; i += 2) { sum += w[i - k]; M[t][i] = sum & 31; } }"
    )
    largest = programs(head, "for (int i = 0; i < n - k; i++) for (int j = 0; j < n; j++)"
                             " s[0] = M[i][j] > s[0] ? M[i][j] : s[0];")  # fmt: skip
    inner = host("t", N - K, total, copied, step=2)
    last = Sequential(
        (Assign(cell("x", INT32, integer("k")), plus(cell("w", INT32, integer("k")), integer("k"))),),
        (Param("n", INT32, "n"), Param("k", INT32)),
        (Buffer("x", INT32, (N,), base="x"), Buffer("w", INT32, (N,))),
    )
    zero = host("t", "n", Sequential((Assign(cell("w", INT32, integer("t")), integer("t")),),
                                     (Param("t", INT32),), (Buffer("w", INT32, (N,)),)))  # fmt: skip
    single = host("t", Affine.number(1), scanned)
    data = {"M": values(rng, INT32, n, n), "x": values(rng, INT32, n), "s": values(rng, INT32, 1)}
    data["w"] = BufferValue([0] * n, (n,))
    steps = (zero, host("k", "n", inner, single, last, largest))
    return Case(steps, {"n": n}, data, (Buffer("w", INT32, (N,)),))


NESTS = {f.__name__: f for f in (lu, jacobi, gramschmidt, recurrence, triangles)}


@pytest.mark.parametrize("kind", ["default", "space", "random"])
@pytest.mark.parametrize("name", NESTS)
def test_emitted_steps_equal_the_interpreter(name: str, kind: str) -> None:
    rng = random.Random(f"{name} {kind}")
    for n in (1, 6, 11) if kind == "default" else (9,):
        case = NESTS[name](n, rng)
        chosen, machine = configurations(case, kind, rng)
        sizes = {"default": {}, "space": case.params, "random": {**case.params, "n": 10}}[kind]
        check(case, chosen, machine, sizes=sizes)


@pytest.mark.parametrize(
    "name",
    [
        "temporary between maps", "two reductions and an epilogue", "producer of fewer dimensions",
        "producer read at several positions", "epilogue of a scan",
    ],
)  # fmt: skip
def test_emitted_fusions_equal_the_interpreter(name: str) -> None:
    found = nest(OFFERED[name].body)
    (fusion,) = choices(found, OFFERED[name].temporaries)
    rng = random.Random(name)
    params = {"n": 7, "m": 5, "k": 3}
    extents = needed_extents(found.program, params)
    assert extents is not None
    data = {b: values(rng, INT32, *e) for b, e in extents.items()}
    case = Case(fused(found.program, fusion), params, data)
    chosen, machine = configurations(case, "random", rng)
    check(case, chosen, machine)


@pytest.mark.parametrize("kind", ["space", "random"])
def test_memory_is_enough_for_every_iteration(kind: str) -> None:
    """Many configurations of nests whose sizes grow and shrink from one iteration to the next."""
    rng = random.Random(kind)
    for _ in range(3):
        case = triangles(8, rng)
        chosen, machine = configurations(case, kind, rng)
        check(case, chosen, machine)


def test_overlap_is_tested_over_all_iterations() -> None:
    """``x`` and ``y`` share an array of 20; iteration ``k`` writes y[k] .. y[n - 1] and reads x[0] .. x[k]."""
    (p,) = programs(
        "int n, int k, double *x, double *y", "for (int i = k; i < n; i++) y[i] = y[i] + x[k];"
    )
    case = Case((host("k", "n", p),), {"n": 5}, {"x": values(random.Random(1), DOUBLE, 5)})
    point = default_point((p,), GENERIC, ({"i": 4},))
    kernel = kernel_of(case, configuration_at((p,), GENERIC, ({"i": 4},), point))
    head, _, _ = kernel.call.partition("(")
    main = "\n".join(
        [
            "#include <stdio.h>",
            kernel.text,
            "int main(void) {",
            "  static double a[40]; int n = 5;",
            '  printf("[");',
            "  for (long d = -7; d <= 7; d++) {",
            "    double *x = a + 20, *y = x + d;",
            f'    printf("%s%d", d == -7 ? "" : ",", {kernel.call});',
            "  }",
            '  printf("]\\n"); return 0;',
            "}",
        ]
    )
    assert head == "kernel"
    answer = run_kernel(case, kernel, main=main)
    assert answer == [int(abs(d) >= 5) for d in range(-7, 8)]


def test_an_array_may_have_one_index_here_and_two_there() -> None:
    """What a flat array's cells reach counts from where they are met: by rows, or one after the other."""
    head = "int n, int m, int *a, const int *b"
    (rows,) = programs(head, "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) a[i * m + j] = b[j];")
    (flat,) = programs(head, "for (int i = 0; i < n; i++) a[i + 3] = b[i];")
    assert (rows.buffer("a").rank, flat.buffer("a").rank) == (2, 1)
    for first, second in ((rows, flat), (flat, rows)):
        ends = reach_of(first.buffer("a"), [(first, ()), (second, ())])
        assert ends is not None
        lows, highs = ({eval(t, {}, {"n": 5, "m": 4, "i_size": 5, "j_size": 4}) for t in texts} for texts in ends)
        assert lows == {0, 3} and highs == {4 * 4 + 3, 4 + 3}


def test_size_of_another_step_is_rounded_up_in_guards() -> None:
    """Bounds of indices are right, and not too wide, where sizes of step 2 depend on an iterator."""
    (p,) = programs(
        "int n, int k, int *x, int *y", "for (int i = 0; i < n - k; i += 2) y[i + k] += x[i];"
    )
    case = Case((host("k", "n", p, step=3),), {"n": 7}, {"x": values(random.Random(1), INT32, 7)})
    point = default_point((p,), GENERIC, ({"i": 4},))
    kernel = kernel_of(case, configuration_at((p,), GENERIC, ({"i": 4},), point))
    lines = [
        "#include <stdio.h>",
        kernel.text,
        "int main(void) { static int a[40]; int n = 7, *x = a + 10, *y = x + 7, *z = x + 6;",
        f"  int apart = {kernel.call};",
        "  y = z;",
        f'  printf("[%d, %d]\\n", apart, {kernel.call}); return 0; }}',
    ]
    assert run_kernel(case, kernel, main="\n".join(lines)) == [1, 0]


def test_names_of_macros_are_avoided() -> None:
    case = lu(4, random.Random(1))
    chosen, machine = configurations(case, "default", random.Random(1))
    plain = emit_openmp(KernelRequest("kernel", "lu", case.steps, chosen, machine))
    words = {"i_size", "i_1", "i", "j"} & set(plain.text.replace("(", " ").replace(";", " ").split())
    assert "i_size" in words
    other = emit_openmp(KernelRequest("kernel", "lu", case.steps, chosen, machine, taken=frozenset(words)))
    found = set(other.text.replace("(", " ").replace(";", " ").split())
    assert not words & found


def test_kernel_of_a_nest_without_host_loops_is_as_before() -> None:
    case = lu(4, random.Random(1))
    chosen, machine = configurations(case, "default", random.Random(1))
    update = case.programs[1]
    request = KernelRequest("kernel", "lu", (update,), chosen[1:], machine)
    assert "long k" in emit_openmp(request).text.partition("{")[0]


# --------------------------------------------------------------------------- sizes, work, chains


def test_representative_sizes_and_work() -> None:
    case = lu(300, random.Random(1))
    sizes = iterations.sizes_at(case.steps, {"n": 300})
    assert sizes[1] == {"i": 199, "j": 199}  # a third of the way: more points than at two thirds
    exact = sum((300 - k - 1) + (300 - k - 1) ** 2 for k in range(300))
    assert iterations.points(case.steps, {"n": 300}) == pytest.approx(exact, rel=0.05)
    assert iterations.runs(case.steps, {"n": 300}) == (300, 300)
    assert iterations.chain(case.steps, {"n": 300}) == 600
    assert iterations.points(case.steps, {"n": 0}) == 0


def test_element_counts_over_all_iterations() -> None:
    """Extremes lie at corners of the iterations, empty ranges do not count."""
    head = "int n, int k, int t, int *x, int *y"
    (p,) = programs(head, "for (int i = 0; i < n - k - t; i++) y[2 * k + i] = x[3 * t + 4 * i];")
    steps = (host("k", N - 3, host("t", K, (p,))),)
    source = lifted(f"void f({head})\n{{\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] = x[i];\n}}\n")
    nest = replace(source, nest=replace(source.nest, body=()), program=steps)
    for n in (0, 3, 4, 5, 9, 12):
        reached = {"x": 0, "y": 0}
        for k in range(n - 3):
            for t in range(k):
                for i in range(n - k - t):
                    reached["x"] = max(reached["x"], 3 * t + 4 * i + 1)
                    reached["y"] = max(reached["y"], 2 * k + i + 1)
        counts = element_counts(nest, {"n": n, "k": 0, "t": 0})
        assert counts == {name: max(1, count) for name, count in reached.items()}, n


WAVEFRONTS = """
    for (int i = n - 1; i >= 0; i--)
        for (int j = i + 1; j < n; j++) {
            int best = t[i*n + j - 1] > t[(i + 1)*n + j] ? t[i*n + j - 1] : t[(i + 1)*n + j];
            for (int k = i + 1; k < j; k++)
                best = best > t[i*n + k] + t[(k + 1)*n + j] ? best : t[i*n + k] + t[(k + 1)*n + j];
            t[i*n + j] = best + b[j];
        }
""", """
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            t[i*n + j] = b[i - j] + b[j];
""", """
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++)
                t[i*n + j] -= t[i*n + k]*t[k*n + j];
"""  # fmt: skip


@pytest.mark.parametrize("body", WAVEFRONTS)
def test_reach_of_indices(body: str) -> None:
    """No index goes beyond its bounds, which ask for no cells that the nest does not have."""
    nest = lifted(f"void f(int n, int *t, const int *b)\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    n = 6
    for program, loops in iterations.placed(nest.program):
        dims = {d.name: d.size for d in program.hom.dims}
        kept = {d.name for d in program.hom.dims if program.op(d.name).kind == "cc"}
        every = rows_of(program.hom.domain)
        rows = [r for r in every if not r.names - kept - {"n"} - {x.iterator for x in loops}]
        uses = [(a.buffer, x, every) for a in program.inp.accesses for x in a.index]
        uses += [(s.buffer, x, rows) for s in program.out.stores for x in s.index]
        points = list(_points(program, loops, {"n": n}))
        for buffer, index, holding in uses:
            found = [index.evaluate(p) for p in points if all(r.evaluate(p) >= 0 for r in holding)]
            fixed = {d: s for d, s in dims.items() if s.span.names <= {"n"}}
            known = {"n": n} | {f"{d}_size": s.evaluate({"n": n}) for d, s in fixed.items()}
            low, high = (
                tightest(index, dims, loops, holding, largest).evaluate(known) for largest in (False, True)
            )
            assert not found or low <= min(found), (buffer, str(index))
            assert not found or max(found) <= high, (buffer, str(index))
            assert low >= -1 and high <= n, (buffer, str(index), low, high)


def _points(
    program: MdhProgram, loops: Sequence[HostLoop], known: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Every point of the box in every iteration of the host loops."""
    spaces = [(x.iterator, x.size) for x in loops] + [(d.name, d.size) for d in program.hom.dims]

    def over(rest: list[tuple[str, Size]], at: dict[str, int]) -> Iterator[dict[str, int]]:
        if not rest:
            yield at
            return
        (name, size), *others = rest
        for v in range(size.evaluate(at)):
            yield from over(others, at | {name: v})

    yield from over(spaces, dict(known))
