"""The certificate holds for what is right and refutes what is wrong.

``FAULTS`` are steps and stages of twelve nests with one thing changed.  A fault that the certificate does not
refute is given to the differential run (loops against steps, as ``tests.lifting`` does it); what that does
not see either has survived and is printed.
"""

from __future__ import annotations

import functools
import random
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from certify import certificate as certificates
from certify import traces, work
from certify.certificate import buffers_of, certificate, program_certificate
from certify.obligations import PROVED, REFUTED
from certify.operators import identity
from certify.sets import at_least, find, missing
from certify.terms import Term, Terms
from certify.values import Budget
from frontend_c.read import CompileCommand, read
from lifter.lift import LiftedNest, lift
from lowering.choice import default_point
from lowering.lower import Lowered, Nest, ScanNest, lower
from lowering.machine import GENERIC, OPENMP
from lowering.parameters import random_configuration
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.combine import CC, CombineFunction, CombineOp, scalar_operator
from mdh_core.evaluate import EvaluationError
from mdh_core.expr import (
    DOUBLE,
    INT32,
    UINT16,
    UINT32,
    Affine,
    Binary,
    Const,
    Constraint,
    Expr,
    Result,
    ScalarType,
    Var,
    substitute,
)
from mdh_core.ir import HostLoop, MdhProgram, Size, Step, programs_of
from mdh_core.source import SourceFile
from tests.catalogue import EVERYTHING
from tests.lifting import lifted, one_trial

CORPUS = Path(__file__).parent.parent / "corpus"
FOUND = Path(__file__).parent / "found"
LARGEST = 60  # size of every dimension that a configuration is chosen for

# --------------------------------------------------------------------------- the nests

C = {
    "matmul": (
        "int n, int m, int p, float A[n][p], float B[p][m], float C[n][m]",
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int k = 0; k < p; k++)"
        " C[i][j] += A[i][k] * B[k][j];",
    ),
    "scan": (
        "int n, double x[n], double y[n], double s",
        "for (int i = 0; i < n; i++) { s += x[i]; y[i] = s; }",
    ),
    "stencil": (
        "int n, int m, double A[n][m], double B[n][m]",
        "for (int i = 1; i < n - 1; i++) for (int j = 1; j < m - 1; j++)"
        " B[i][j] = 0.2 * (A[i][j] + A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]);",
    ),
    "jacobi": (
        "int n, int steps, double A[n], double B[n]",
        "for (int t = 0; t < steps; t++) { for (int i = 1; i < n - 1; i++) B[i] = 0.3 * (A[i - 1] + A[i] + A[i + 1]);"
        " for (int i = 1; i < n - 1; i++) A[i] = 0.3 * (B[i - 1] + B[i] + B[i + 1]); }",
    ),
    "syrk": (
        "int n, int p, double alpha, double A[n][p], double C[n][n]",
        "for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) { double dot = 0;"
        " for (int k = 0; k < p; k++) dot += A[i][k] * A[j][k]; C[i][j] = alpha * dot + C[i][j]; }",
    ),
    "total": (
        "int n, double x[n], double w[n], double *out",
        "{ double s = 0.5; for (int i = 0; i < n; i++) s += x[i] * w[i]; out[0] = s * 2.0; }",
    ),
    "argmin": (
        "int n, int m, float x[n][m], float low[n], int at[n]",
        "for (int i = 0; i < n; i++) { float b = 1000.0f; int p = -1;"
        " for (int j = 0; j < m; j++) if (x[i][j] < b) { b = x[i][j]; p = j; } low[i] = b; at[i] = p; }",
    ),
    "lu": (
        "int n, double A[n][n]",
        "for (int k = 0; k < n; k++) for (int i = k + 1; i < n; i++) { A[i][k] = A[i][k] / A[k][k];"
        " for (int j = k + 1; j < n; j++) A[i][j] = A[i][j] - A[i][k] * A[k][j]; }",
    ),
    "wavefront": (
        "int n, double A[n][n]",
        "for (int i = 1; i < n - 1; i++) for (int j = 1; j < n - 1; j++)"
        " A[i][j] = (A[i - 1][j] + A[i][j - 1] + A[i - 1][j + 1] + A[i + 1][j] + A[i][j + 1]) / 5.0;",
    ),
    "softmax": (
        "int n, int m, double x[n][m], double y[n][m]",
        "for (int i = 0; i < n; i++) { double top = x[i][0]; for (int j = 0; j < m; j++) if (x[i][j] > top) top = x[i][j];"
        " double s = 0; for (int j = 0; j < m; j++) { y[i][j] = exp(x[i][j] - top); s += y[i][j]; }"
        " for (int j = 0; j < m; j++) y[i][j] = y[i][j] / s; }",
    ),
    "gather": (
        "int n, int *at, double x[n], double y[n]",
        "for (int i = 0; i < n; i++) y[i] = x[at[i]] * 2.0 + x[i];",
    ),
    "outputs": (
        "int n, int m, double A[n][m], double r[n], double h[n]",
        "for (int i = 0; i < n; i++) { double s = 0, t = -1e30; for (int j = 0; j < m; j++)"
        " { s += A[i][j]; t = A[i][j] > t ? A[i][j] : t; } r[i] = s; h[i] = t; }",
    ),
    "triangle": (
        "int n, double A[n][n], double x[n], double y[n]",
        "for (int i = 0; i < n; i++) { double s = 0; for (int j = 0; j <= i; j++) s += A[i][j] * x[j]; y[i] = s; }",
    ),
    "chain": (
        "int n, double x[n], double y[n], double z[n]",
        "for (int i = 1; i < n; i++) { y[i] = x[i] + 1.0; z[i] = y[i - 1] * 2.0; }",
    ),
}  # fmt: skip


@functools.cache
def case(name: str) -> LiftedNest:
    head, body = C[name]
    nest = lifted(f"#include <math.h>\nvoid f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status in ("lifted", "partial"), (name, nest.diagnostics)
    return nest


@functools.cache
def stages(name: str, seed: int = 0) -> tuple[Lowered, ...]:
    """The default configuration, or a random one."""
    return lowerings(case(name).programs, seed)


def lowerings(programs: tuple[MdhProgram, ...], seed: int = 0) -> tuple[Lowered, ...]:
    sizes = tuple({d.name: LARGEST for d in p.hom.dims} for p in programs)
    point = default_point(programs, GENERIC, sizes)
    if seed:
        space, rng = tuning_space(programs, GENERIC, sizes), random.Random(seed)
        for _ in range(3000):
            found = {n: rng.choice(v) for n, v in space.parameters}
            if all(eval(r, {}, found) for r in space.restrictions):
                point = found
                break
    chosen = configuration_at(programs, GENERIC, sizes, point)
    return tuple(lower(p, c, GENERIC) for p, c in zip(programs, chosen, strict=True))


# --------------------------------------------------------------------------- faults


@dataclass(frozen=True)
class Fault:
    name: str
    nest: str
    steps: tuple[Step, ...]
    lowered: tuple[Lowered, ...] = ()


Change = Callable[[MdhProgram], MdhProgram]


def changed(steps: Sequence[Step], number: int, change: Change) -> tuple[Step, ...]:
    """The steps with one program changed."""
    count = 0

    def visit(body: Sequence[Step]) -> tuple[Step, ...]:
        nonlocal count
        out: list[Step] = []
        for s in body:
            if isinstance(s, HostLoop):
                out.append(replace(s, body=visit(s.body)))
                continue
            if isinstance(s, MdhProgram):
                if count == number:
                    s = change(s)
                count += 1
            out.append(s)
        return tuple(out)

    return visit(steps)


def hosts_changed(steps: Sequence[Step], change: Callable[[HostLoop], Sequence[Step]]) -> tuple[Step, ...]:
    """The steps with the outermost host loops changed."""
    return tuple(t for s in steps for t in (change(s) if isinstance(s, HostLoop) else (s,)))


def resized(by: int, dim: int = 0) -> Change:
    def change(p: MdhProgram) -> MdhProgram:
        dims = list(p.hom.dims)
        d = dims[dim]
        dims[dim] = replace(d, size=Size(d.size.span + by, d.size.step))
        return replace(p, hom=replace(p.hom, dims=tuple(dims)))

    return change


def shifted(index: tuple[Affine, ...], by: int, at: int = -1) -> tuple[Affine, ...]:
    out = list(index)
    out[at] = out[at] + by
    return tuple(out)


def store_shifted(p: MdhProgram) -> MdhProgram:
    first, *rest = p.out.stores
    return replace(p, out=replace(p.out, stores=(replace(first, index=shifted(first.index, 1)), *rest)))


def read_shifted(number: int = 0, by: int = 1) -> Change:
    def change(p: MdhProgram) -> MdhProgram:
        accesses = list(p.inp.accesses)
        accesses[number] = replace(accesses[number], index=shifted(accesses[number].index, by))
        return replace(p, inp=replace(p.inp, accesses=tuple(accesses)))

    return change


def no_initial(p: MdhProgram) -> MdhProgram:
    return replace(p, out=replace(p.out, initial=(None,) * len(p.out.initial)))


def double_initial(p: MdhProgram) -> MdhProgram:
    f = p.hom.function
    assert f is not None
    initial = p.out.initial
    values: dict[str, Expr] = {}
    for c, e in enumerate(initial):
        assert e is not None
        values |= {f"l{c}": e, f"r{c}": e}
    return replace(p, out=replace(p.out, initial=tuple(substitute(v, values) for v in f.values)))


def functions(change: Callable[[CombineFunction], CombineFunction]) -> Change:
    def apply(p: MdhProgram) -> MdhProgram:
        combine = tuple(
            op if op.function is None else CombineOp(op.kind, change(op.function)) for op in p.hom.combine
        )
        return replace(p, hom=replace(p.hom, combine=combine))

    return apply


def operator(name: str) -> Change:
    def change(f: CombineFunction) -> CombineFunction:
        (t,) = f.types
        assert isinstance(t, ScalarType)
        found = scalar_operator(name, t)
        assert found is not None
        return found

    return functions(change)


def wrong_identity(value: float) -> Change:
    def change(f: CombineFunction) -> CombineFunction:
        first = f.types[0]
        assert isinstance(first, ScalarType)
        own = f.identity or tuple(Const(0, t) for t in f.types if isinstance(t, ScalarType))
        return replace(f, identity=(Const(value, first), *own[1:]))

    return functions(change)


def swapped_components(f: CombineFunction) -> CombineFunction:
    """Left for right in a comparison: the largest instead of the smallest."""
    names: dict[str, Expr] = {}
    for c, t in enumerate(f.types):
        names |= {f"l{c}": Var(f"r{c}", t), f"r{c}": Var(f"l{c}", t)}
    return replace(f, values=tuple(replace(v, cond=substitute(v.cond, names)) for v in f.values))  # type: ignore


def concatenated(p: MdhProgram) -> MdhProgram:
    """pw for cc: nothing is combined, the last index remains."""
    reduced = tuple(d.name for d in p.hom.dims_of("pw", "ps"))
    stores = tuple(
        replace(s, at_last=(*s.at_last, *(d for d in reduced if d not in s.at_last))) for s in p.out.stores
    )
    hom = replace(p.hom, combine=(CC,) * len(p.hom.dims))
    return replace(p, hom=hom, out=replace(p.out, initial=(None,) * len(p.out.initial), stores=stores))


def plain(p: MdhProgram) -> MdhProgram:
    """The epilogue dropped."""
    types = p.component_types
    stores = tuple(replace(s, value=Result(0, types[0])) for s in p.out.stores)
    return replace(p, out=replace(p.out, stores=stores))


def everywhere(p: MdhProgram) -> MdhProgram:
    """at_last dropped."""
    return replace(p, out=replace(p.out, stores=tuple(replace(s, at_last=()) for s in p.out.stores)))


def domain(change: Callable[[tuple[Constraint, ...]], tuple[Constraint, ...]]) -> Change:
    return lambda p: replace(p, hom=replace(p.hom, domain=change(p.hom.domain)))


def looser(by: int) -> Change:
    return domain(lambda rows: tuple(Constraint(c.value + by, c.equality) for c in rows))


def scalar_changed(p: MdhProgram) -> MdhProgram:
    """+ for * in the scalar function, or a minus for a plus."""
    new = {"*": "+", "+": "-", "-": "+", "/": "*"}
    first, *rest = p.hom.scalar.results
    assert isinstance(first, Binary)
    return replace(
        p,
        hom=replace(p.hom, scalar=replace(p.hom.scalar, results=(replace(first, op=new[first.op]), *rest))),
    )


def renamed_index(old: Affine, new: Affine) -> Change:
    """Another affine value in all index functions and constraints: the wavefront's weight."""

    def affine(a: Affine) -> Affine:
        return a - old + new if all(a.coefficient(n) == c for n, c in old.terms) else a

    def change(p: MdhProgram) -> MdhProgram:
        inp = replace(
            p.inp,
            accesses=tuple(replace(a, index=tuple(map(affine, a.index))) for a in p.inp.accesses),
        )
        out = replace(
            p.out, stores=tuple(replace(s, index=tuple(map(affine, s.index))) for s in p.out.stores)
        )
        return replace(p, inp=inp, out=out)

    return change


def smaller(name: str) -> Callable[[Sequence[Step]], tuple[Step, ...]]:
    """A temporary with fewer elements."""

    def change(p: MdhProgram) -> MdhProgram:
        return replace(
            p,
            buffers=tuple(
                replace(b, extents=tuple(None if e is None else e - 1 for e in b.extents))
                if b.name == name
                else b
                for b in p.buffers
            ),
        )

    def visit(steps: Sequence[Step]) -> tuple[Step, ...]:
        out = tuple(steps)
        for k in range(len(list(programs_of(steps)))):
            out = changed(out, k, change)
        return out

    return visit


def single_cell(name: str) -> Callable[[Sequence[Step]], tuple[Step, ...]]:
    """A temporary that every iteration shares."""

    def zero(b: str, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(Affine() for _ in index) if b == name else index

    def change(p: MdhProgram) -> MdhProgram:
        accesses = tuple(replace(a, index=zero(a.buffer, a.index)) for a in p.inp.accesses)
        stores = tuple(replace(s, index=zero(s.buffer, s.index)) for s in p.out.stores)
        return replace(p, inp=replace(p.inp, accesses=accesses), out=replace(p.out, stores=stores))

    def visit(steps: Sequence[Step]) -> tuple[Step, ...]:
        out = tuple(steps)
        for k in range(len(list(programs_of(steps)))):
            out = changed(out, k, change)
        return out

    return visit


def _one_of(nest: str, number: int, faults: dict[str, Change]) -> Iterator[Fault]:
    for name, change in faults.items():
        yield Fault(name, nest, changed(case(nest).program, number, change))


def step_faults() -> Iterator[Fault]:
    less, more = resized(-1), resized(1)
    yield from _one_of(
        "matmul", 0,
        {
            "size - 1": less, "size + 1": more, "k size - 1": resized(-1, 2), "k size + 1": resized(1, 2),
            "* for +": operator("*"), "max for +": operator("max"), "cc for pw": concatenated,
            "initial dropped": no_initial, "initial doubled": double_initial, "identity 1": wrong_identity(1.0),
            "store shifted": store_shifted, "read shifted": read_shifted(), "other read shifted": read_shifted(1, -1),
            "+ for * at a point": scalar_changed,
        },
    )  # fmt: skip
    yield from _one_of(
        "scan", 0,
        {"size - 1": less, "* for +": operator("*"), "initial dropped": no_initial, "initial doubled": double_initial,
         "cc for ps": concatenated, "identity 2": wrong_identity(2.0), "store shifted": store_shifted},
    )  # fmt: skip
    yield from _one_of(
        "stencil", 0,
        {"size - 1": less, "size + 1": more, "read shifted": read_shifted(2), "store shifted": store_shifted},
    )  # fmt: skip
    yield from _one_of("jacobi", 0, {"first size + 1": more, "first read shifted": read_shifted(1, -1)})
    yield from _one_of("jacobi", 1, {"second store shifted": store_shifted})
    jacobi = case("jacobi").program
    yield Fault(
        "host loop dropped",
        "jacobi",
        hosts_changed(jacobi, lambda h: [replace(h, size=Size(Affine.number(1)))]),
    )
    yield Fault("steps swapped", "jacobi", hosts_changed(jacobi, lambda h: [replace(h, body=h.body[::-1])]))
    yield Fault("step dropped", "jacobi", hosts_changed(jacobi, lambda h: [replace(h, body=h.body[1:])]))
    yield Fault(
        "step doubled", "jacobi", hosts_changed(jacobi, lambda h: [replace(h, body=(*h.body, h.body[0]))])
    )
    yield Fault("host size + 1", "jacobi",
                hosts_changed(jacobi, lambda h: [replace(h, size=Size(h.size.span + 1))]))  # fmt: skip
    yield Fault("distributed over time", "jacobi",
                hosts_changed(jacobi, lambda h: [replace(h, body=(s,)) for s in h.body]))  # fmt: skip
    yield from _one_of(
        "syrk", 0,
        {"domain dropped": domain(lambda _: ()), "domain shifted": looser(1), "domain narrowed": looser(-1),
         "epilogue dropped": plain, "* for +": operator("*"), "read shifted": read_shifted()},
    )  # fmt: skip
    yield from _one_of(
        "total", 0,
        {"initial dropped": no_initial, "initial doubled": double_initial, "epilogue dropped": plain,
         "min for +": operator("min"), "identity -1": wrong_identity(-1.0), "size + 1": more},
    )  # fmt: skip
    yield from _one_of(
        "argmin", 0,
        {"max for min": functions(swapped_components), "initial dropped": no_initial, "size - 1": less,
         "cc for pw": concatenated, "some identity": wrong_identity(0.0)},
    )  # fmt: skip
    lu = case("lu").program
    yield Fault("steps swapped", "lu", hosts_changed(lu, lambda h: [replace(h, body=h.body[::-1])]))
    yield Fault("host size - 2", "lu", hosts_changed(lu, lambda h: [replace(h, size=Size(h.size.span - 2))]))
    yield Fault("distributed", "lu", hosts_changed(lu, lambda h: [replace(h, body=(s,)) for s in h.body]))
    yield from _one_of("lu", 1, {"size - 1": less, "read shifted": read_shifted(1)})
    w = case("wavefront").program
    (host,) = (s for s in w if isinstance(s, HostLoop))
    i = next(d.name for d in case("wavefront").programs[0].hom.dims)
    old = Affine.of(i, -2) + Affine.of(host.iterator)
    yield from _one_of(
        "wavefront", 0,
        {"weight 1 for 2": renamed_index(old, Affine.of(i, -1) + Affine.of(host.iterator)),
         "domain dropped": domain(lambda _: ()), "domain narrowed": looser(-1)},
    )  # fmt: skip
    yield Fault(
        "front dropped", "wavefront", hosts_changed(w, lambda h: [replace(h, size=Size(h.size.span - 1))])
    )
    soft = case("softmax")
    for k in range(len(soft.programs)):
        yield Fault(f"step {k} dropped", "softmax", _without(soft.program, k))
    for b in soft.temporaries:
        if b.rank:
            yield Fault(f"{b.name} too small", "softmax", smaller(b.name)(soft.program))
            yield Fault(f"{b.name} with one cell", "softmax", single_cell(b.name)(soft.program))
    yield Fault("steps reversed", "softmax", soft.program[::-1])
    yield from _one_of(
        "gather", 0, {"size - 1": less, "read shifted": read_shifted(), "store shifted": store_shifted}
    )
    yield from _one_of(
        "outputs", 0,
        {"identity 3": wrong_identity(3.0), "stores swapped": _stores_swapped, "initial dropped": no_initial,
         "size - 1": less, "j size - 1": resized(-1, 1)},
    )  # fmt: skip
    yield from _one_of(
        "triangle", 0, {"wider": looser(1), "narrower": looser(-1), "all": domain(lambda _: ())}
    )
    chain = case("chain").program
    yield Fault("steps swapped", "chain", chain[::-1])


def _without(steps: Sequence[Step], number: int) -> tuple[Step, ...]:
    """The steps without one program."""
    gone = list(programs_of(steps))[number]

    def visit(body: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(
            replace(s, body=visit(s.body)) if isinstance(s, HostLoop) else s for s in body if s is not gone
        )

    return visit(steps)


def _stores_swapped(p: MdhProgram) -> MdhProgram:
    a, b = p.out.stores
    return replace(p, out=replace(p.out, stores=(replace(a, value=b.value), replace(b, value=a.value))))


# --------------------------------------------------------------------------- faults of stages


def nests_of(name: str, wanted: Callable[[Nest], bool]) -> Nest:
    """A nest of the first program of a case with a certain shape, among random configurations."""
    for seed in range(200):
        (stage,) = stages(name, seed)[0].stages[:1]
        if isinstance(stage, Nest) and wanted(stage):
            return stage
    raise AssertionError(f"no such nest of {name}")


def loop_changed(nest: Nest, number: int, **change: object) -> Nest:
    loops = list(nest.loops)
    loops[number] = replace(loops[number], **change)  # type: ignore[arg-type]
    return replace(nest, loops=tuple(loops))


def _counted(nest: Nest, dim: str = "") -> int:
    return next(k for k, x in enumerate(nest.loops) if x.count is not None and (not dim or x.dim == dim))


def _reduced(nest: Nest) -> set[str]:
    return {d.name for d in nest.program.hom.dims_of("pw")}


def stage_faults() -> Iterator[Fault]:
    def fault(name: str, nest: str, stage: Nest | ScanNest) -> Fault:
        known = case(nest)
        first, *rest = stages(nest)
        return Fault(name, nest, known.program, (Lowered((stage,), first.temporaries), *rest))

    tiled = nests_of("matmul", lambda n: bool(n.packs) and any(x.count is not None for x in n.loops))
    k = _counted(tiled)
    count, size = tiled.loops[k].count, tiled.loops[k].size
    assert count is not None
    yield fault("tile count - 1", "matmul", loop_changed(tiled, k, count=count - 1))
    yield fault("tile count + 1", "matmul", loop_changed(tiled, k, count=count + 1))
    yield fault("tile size + 1", "matmul", loop_changed(tiled, k, size=size + 1))
    outer = next(j for j, x in enumerate(tiled.loops) if x.count is None and x.size > 1)
    yield fault("block size - 1", "matmul", loop_changed(tiled, outer, size=tiled.loops[outer].size - 1))
    yield fault("block size + 1", "matmul", loop_changed(tiled, outer, size=tiled.loops[outer].size + 1))
    yield fault("a layer of loops twice", "matmul", replace(tiled, loops=(*tiled.loops, tiled.loops[-1])))
    yield fault("a loop missing", "matmul", replace(tiled, loops=tiled.loops[:-1]))
    pack = tiled.packs[0]
    short = replace(pack, extents=(*pack.extents[:-1], pack.extents[-1] - 1))
    yield fault("pack one short", "matmul", replace(tiled, packs=(short, *tiled.packs[1:])))
    yield fault("pack further out", "matmul", replace(tiled, packs=(replace(pack, at=0), *tiled.packs[1:])))
    yield fault("layout no permutation", "matmul", replace(tiled, packs=(replace(pack, layout=(0, 0)),)))
    cut = nests_of("matmul", lambda n: any(p.strip is not None for p in n.packs))
    number = next(k for k, p in enumerate(cut.packs) if p.strip is not None)
    t, width = cut.packs[number].strip or (0, 0)
    for name, strip in (("strips too narrow", (t, width - 1)), ("strips along another index", (1 - t, width))):
        packs = [replace(p, strip=strip) if k == number else p for k, p in enumerate(cut.packs)]
        yield fault(name, "matmul", replace(cut, packs=tuple(packs)))
    blocked = nests_of("matmul", lambda n: n.results == "in place")
    yield fault("accumulate missing", "matmul", replace(blocked, results="direct"))
    point = nests_of("matmul", lambda n: n.results == "direct")
    yield fault("accumulate inside the reduction", "matmul", replace(point, accumulate=len(point.loops)))
    if point.threads[1] > 0:
        yield fault("threads inside the local tile", "matmul", replace(point, accumulate=0))
    simple = nests_of("total", lambda n: len(n.loops) > 1)
    yield fault("threads on a reduced dimension, direct", "total",
                replace(simple, threads=(0, 1), results="direct", accumulate=max(1, simple.accumulate)))  # fmt: skip
    yield fault("threads on a reduced dimension, in place", "total",
                replace(simple, threads=(0, 1), results="in place", accumulate=max(1, simple.accumulate)))  # fmt: skip
    summed = nests_of("syrk", lambda n: bool(n.loops))
    bare = replace(summed.program, hom=replace(summed.program.hom, domain=()))
    yield fault("stage without the domain", "syrk", replace(summed, program=bare))
    narrow = looser(-1)(summed.program)
    yield fault("stage with another domain", "syrk", replace(summed, program=narrow))
    star = nests_of("stencil", lambda n: n.threads[1] > 0)
    yield fault("stage with another size", "stencil", replace(star, program=resized(-1)(star.program)))
    yield fault("stage that reads elsewhere", "stencil", replace(star, program=read_shifted()(star.program)))
    moved = replace(star.program, out=replace(star.program.out, stores=tuple(
        replace(s, index=(Affine.number(0), *s.index[1:])) for s in star.program.out.stores)))  # fmt: skip
    yield fault("wrong owner: threads share a row", "stencil", replace(star, program=moved))
    (scan,) = stages("scan")[0].stages
    assert isinstance(scan, ScanNest)
    yield fault("threads on the scanned dimension", "scan", replace(scan, rows=(scan.dim,)))
    exact = replace(scan.program, fp="exact")
    yield fault("exact scan in blocks", "scan", replace(scan, program=exact, block=256))
    yield fault("stage without its initial value", "scan", replace(scan, program=no_initial(scan.program)))
    yield fault("stage with another operator", "scan", replace(scan, program=operator("*")(scan.program)))
    soft = stages("softmax")
    yield Fault("a program without stages", "softmax", case("softmax").program, soft[:-1])
    yield Fault("stages of another program", "softmax", case("softmax").program, soft[::-1])


# --------------------------------------------------------------------------- terms

OPERATORS = [
    *((op, t) for op in ("+", "*", "&", "|", "^") for t in (INT32, UINT32)),
    *((op, DOUBLE) for op in ("+", "*", "fmin", "fmax", "user")),
]


def operands(op: str, terms: Terms, t: ScalarType, rng: random.Random) -> list[Term]:
    """Cells, some of them more than once, numbers, and sums and products of cells."""
    cells = [terms.node("cell", "x", k) for k in range(4)]
    numbers = [0.1, 0.2, 0.3, 1.5, -3.0, 7.0] if t.is_float else [1, 1, 2, 3, 5, 6]
    some = [terms.number(rng.choice(numbers), t) for _ in range(3)]
    sums = [terms.binary(rng.choice("+-"), *rng.sample(cells, 2), t) for _ in range(2)]
    scaled = [terms.binary("*", some[0], rng.choice(sums), t), terms.unary("-", cells[0], t)]
    return [*rng.choices(cells, k=4), *some, *sums, *scaled, terms.binary("*", *rng.sample(cells, 2), t)]


def combined(op: str, terms: Terms, t: ScalarType, values: Sequence[Term], rng: random.Random) -> Term:
    """All of them, in some order and some way of bracketing them."""
    left = rng.sample(values, len(values))
    while len(left) > 1:
        k = rng.randrange(len(left) - 1)
        a, b = left[k : k + 2]
        call = op.isalpha()
        left[k : k + 2] = [terms.call(op, (a, b), t) if call else terms.binary(op, a, b, t)]
    return left[0]


@pytest.mark.parametrize(("op", "t"), OPERATORS, ids=lambda x: str(x))
def test_the_order_of_operands_does_not_matter(op: str, t: ScalarType) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        terms = Terms((op,))
        values = operands(op, terms, t, rng)
        whole = combined(op, terms, t, values, rng)
        assert {combined(op, terms, t, values, rng) for _ in range(5)} == {whole}, terms.text(whole)
        new = terms.node("cell", "new", 0)
        assert combined(op, terms, t, [*values, new], rng) != whole or terms.value(whole) is not None
        odd = [*values, new, new, new]
        assert combined(op, terms, t, odd, rng) != whole or terms.value(whole) is not None


@pytest.mark.parametrize("op", ["+", "-", "*", "&", "|", "^"])
def test_a_sum_in_a_narrow_cell_is_one_of_narrow_operands(op: str) -> None:
    """``w = w op x`` converts to ``int`` and back at every step; the operator of the steps does not."""
    terms = Terms()
    w, x, y = (terms.node("cell", n, 0) for n in "wxy")
    step = w
    for operand in (terms.cast(x, UINT16, INT32), terms.number(3, INT32), terms.cast(y, UINT16, INT32)):
        step = terms.cast(terms.binary(op, terms.cast(step, UINT16, INT32), operand, INT32), INT32, UINT16)
    whole = terms.number(3, UINT16)
    for operand in (x, y):
        whole = terms.binary("+" if op == "-" else op, whole, operand, UINT16)
    assert step == terms.binary(op, w, whole, UINT16), (terms.text(step), terms.text(whole))


# --------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("name", C)
def test_right_steps_and_stages_are_certified(name: str) -> None:
    for seed in (0, 1):
        found = certificate(case(name).nest, case(name).program, stages(name, seed))
        assert found.holds, [str(o) for o in (*found.refuted, *found.unknown)]
    json = found.as_json()
    assert json["holds"] is True and json["summary"] == found.summary


def _differs(fault: Fault) -> bool:
    """Does the differential run see it?"""
    if fault.lowered:
        return False
    known = replace(case(fault.nest), program=fault.steps)
    rng = random.Random(3)
    try:
        for _ in range(12):
            one_trial(known, rng, splits=False)
    except (AssertionError, EvaluationError, KeyError):
        return True
    return False


def test_seeded_faults_are_caught(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [*step_faults(), *stage_faults()]
    refuted, run, survivors = [], [], []
    for f in faults:
        same = f.steps == case(f.nest).program and (not f.lowered or f.lowered == stages(f.nest))
        assert not same, f"{f.nest}: {f.name} changes nothing"
        if certificate(case(f.nest).nest, f.steps, f.lowered).refuted:
            refuted.append(f)
        elif _differs(f):
            run.append(f)
        else:
            survivors.append(f)
    with capsys.disabled():
        print(
            f"\n{len(faults)} faults: {len(refuted)} refuted, {len(run)} differ when run, {len(survivors)} survive"
        )
        for f in (*run, *survivors):
            print(f"  {'differs' if f in run else 'survives'}: {f.nest}: {f.name}")
    assert len(faults) >= 60
    assert len(refuted) + len(run) >= 0.9 * len(faults)


def test_dependences_are_proved_for_all_sizes() -> None:
    for name in ("matmul", "stencil", "jacobi", "syrk", "lu", "outputs", "triangle", "chain"):
        found = certificate(case(name).nest, case(name).program)
        status = {o.name: o for o in found.obligations}[certificates.DEPENDENCES]
        assert status.status == PROVED, (name, str(status))


def test_a_violated_dependence_has_a_witness() -> None:
    found = certificates.dependences(
        case("jacobi").nest,
        hosts_changed(case("jacobi").program, lambda h: [replace(h, body=h.body[::-1])]),
        certificates.Obligation("", "", PROVED),
    )
    assert found.status == REFUTED and "on `" in found.detail


def test_identities() -> None:
    for p in EVERYTHING.values():
        f = p.hom.function
        if f is not None:
            shown = identity(f, p.functions, p.name)
            assert shown is None or shown.status != REFUTED, str(shown)


def test_equal_elements_under_xor() -> None:
    """An even number of them leaves the cell as it was; without one of them it is not."""
    text = SourceFile("f.c", (FOUND / "narrow_choice_combined.c").read_bytes())
    (nest,) = read(text, CompileCommand(directory=str(FOUND))).nests
    known = lift(nest)
    found = certificate(nest, known.program, lowerings(known.programs))
    assert known.status == "lifted" and found.holds, [str(o) for o in (*found.refuted, *found.unknown)]
    missing_one = changed(known.program, 0, resized(-1, 3))
    refuted = certificates.same_computations(nest, missing_one)
    assert refuted.status == REFUTED, str(refuted)


def test_operands_are_copied_only_where_they_are_read() -> None:
    """Where another dimension is empty the program reads nothing, and neither may a copy of an operand."""
    p = EVERYTHING["matmul_t"]
    rng = random.Random(3)
    refuted = 0
    for _ in range(12):
        c = random_configuration(rng, p, OPENMP, fused=False)
        lowered = lower(p, c, replace(GENERIC, model=OPENMP))
        found = program_certificate(p, lowered)
        assert not found.refuted, [str(o) for o in found.refuted]
        always = tuple(
            replace(s, program=replace(s.program, hom=replace(s.program.hom, domain=())))
            for s in lowered.stages
        )
        if always != lowered.stages:
            (wrong,) = program_certificate(p, replace(lowered, stages=always)).refuted
            assert "at I = 4, J = 0, K = 2: A[0, 0] is touched" in wrong.detail, str(wrong)
            refuted += 1
    assert refuted >= 3


@pytest.mark.parametrize("name", C)
def test_a_run_takes_as_many_operations_as_foreseen_at_least(name: str) -> None:
    """So that nothing is left out that its budget would have been enough for."""
    nest = case(name)
    plain = set()
    for n in (0, 1, 3, 5):
        params = {p.name: n for p in nest.nest.params}
        for foreseen, spent in _operations(nest, params):
            assert foreseen <= spent
            plain.add(foreseen > spent / 3)
    assert True in plain or name in ("syrk", "lu", "triangle")  # inner bounds of these are not known before


def _operations(nest: LiftedNest, params: dict[str, int]) -> Iterator[tuple[int, int]]:
    types = {b.name: b.type for b in buffers_of(nest.program)} | {s.name: s.type for s in nest.nest.scalars}
    terms = Terms(frozenset())
    given = {n: (v, terms.number(v, INT32)) for n, v in params.items()}

    def run() -> traces.Run:
        return traces.Run(terms, Budget(1_000_000), traces.Memory(terms, types, 1), dict(given))

    whole = run()
    traces.run_source(nest.nest, whole)
    yield work.of_statements(nest.nest.body, whole.ints), 1_000_000 - whole.budget.left
    if len(nest.programs) == 1 and nest.programs == nest.program:
        one = run()
        traces.run_program(nest.programs[0], one)
        yield work.of_program(nest.programs[0], one.ints), 1_000_000 - one.budget.left


def test_points_of_sets() -> None:
    n, i = Affine.of("n"), Affine.of("i")
    assert find([at_least(i), at_least(n - i - 1), at_least(-n)]) is None
    point = find([at_least(i, 3), at_least(n - i - 1)])
    assert point is not None and 3 <= point["i"] < point["n"]
    even = [at_least(i), Constraint(i - Affine.of("h", 2), equality=True)]
    odd = missing([at_least(i)], [even], ["i"])
    assert odd is not None and odd["i"] % 2 == 1


def test_what_the_generated_code_tests_is_known() -> None:
    """`mdh_p0` is the lesser of `n` and 4; that it is not negative is tested before the kernel runs."""
    text = """void f(long k, long n, const double *restrict b, double *restrict o)
{
#pragma mdh
  for (long j = 0; j < k; j++) {
    long c;
    for (c = 0; c < n && c < 4; c++) o[j*4 + c] = b[j*4 + c];
    for (; c < 4; c++) o[j*4 + c] = 0.0;
  }
}
"""
    (nest,) = read(SourceFile("t.c", text.encode()), CompileCommand()).nests
    assert nest.directive.assume == ("mdh_p0 >= 0",)
    known = lift(nest)
    assert len(known.programs) == 2
    assert not certificate(nest, known.program).refuted
    free = replace(nest, directive=replace(nest.directive, assume=()))
    assert certificate(free, known.program).refuted


SLOW = {"reduce_bits.c", "mm3.c"}


def corpus_files() -> list[str]:
    """One program in three, the same ones every day: ``campaigns.certify`` takes them all."""
    manifest = tomllib.loads((CORPUS / "manifest.toml").read_text())["program"]
    names = sorted({p["source"] for p in manifest if p["source"].endswith(".c")} - SLOW)
    return [n for n in names if not n.startswith("ccsdt")][::3]


@pytest.mark.parametrize("source", corpus_files())
def test_nothing_is_refuted_in_the_corpus(source: str) -> None:
    text = SourceFile(source, (CORPUS / source).read_bytes())
    for nest in read(text, CompileCommand(directory=str(CORPUS))).nests:
        known = lift(nest)
        if known.status != "refused":
            found = certificate(nest, known.program, lowerings(known.programs))
            assert not found.refuted, [str(o) for o in found.refuted]
