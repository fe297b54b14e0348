"""Instructions that compute a part of a nest, as data: a tensor core is a row of ``TABLE``, not a rewrite.

    leaf ::= Leaf(instruction, dims: (m, n, k), accesses: (a, b), loops)

before   a nest whose scalar function and combine operator are those of a row:
         c[m][n] = c[m][n] + a[m][k]*b[k][n]
after    the loops whose iterations one instruction takes together, and where each of its elements is

An instruction computes a box of ``shape`` points.  Its elements are in registers of ``lanes`` neighbouring
threads; a row says which: register r of a lane has the element whose row and column are ``Place``s.  An
assignment of a nest's dimensions to threads and to the local tile fits a row if it gives every thread the
results that the instruction leaves there; that is found by looking at every lane.  Where it does not fit, a
nest has its plain leaf.  ``why_not_an_instruction`` checks rows; the tests run them against the interpreter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lowering.gpu import GpuNest, split_of
from lowering.loops import Loop
from lowering.parameters import reassociates
from mdh_core.expr import DOUBLE, FLOAT, Binary, Expr, Operand, ScalarType, Var, rewrite
from mdh_core.ir import MdhProgram


@dataclass(frozen=True, slots=True)
class Place:
    """A coordinate of an element: ``lane/divisor % count * scale + offset``."""

    divisor: int = 1
    count: int = 1
    scale: int = 1
    offset: int = 0

    def at(self, lane: int) -> int:
        return lane // self.divisor % self.count * self.scale + self.offset


Fragment = tuple[tuple[Place, Place], ...]  # per register: row and column


@dataclass(frozen=True, slots=True)
class Instruction:
    """A row of the table.

    shape    m, n, k: points that it computes
    lanes    threads that run it together; 1: a thread alone
    value    what a point contributes, over operands 0 (of m and k) and 1 (of k and n)
    combine  how contributions join a result, over ``l0`` and ``r0``
    a, b, c  where the elements are
    text     statements; {a0}, {b0}, {c0}, .. are a lane's registers, {lane} is its number
    helper   lines of a function before the kernel, called {name}; {function}: how the target begins one
    ordered  whether a result meets its points in order, each rounded as by value and combine
    targets  languages that know it; none: all
    """

    name: str
    shape: tuple[int, int, int]
    value: Expr
    combine: Expr
    a: Fragment
    b: Fragment
    c: Fragment
    text: tuple[str, ...]
    helper: tuple[str, ...] = ()
    lanes: int = 1
    ordered: bool = False
    targets: tuple[str, ...] = ()


def elements(rows: int, columns: int) -> Fragment:
    """All elements in one thread, row by row."""
    pairs = itertools.product(range(rows), range(columns))
    return tuple((Place(offset=r), Place(offset=c)) for r, c in pairs)


def product_of(t: ScalarType) -> tuple[Expr, Expr]:
    """``a*b`` and ``l0 + r0`` in a type."""
    return Binary("*", Operand(0, t), Operand(1, t), t), Binary("+", Var("l0", t), Var("r0", t), t)


def multiply_add(t: ScalarType) -> Instruction:
    """A multiply-add of one thread; compilers contract it unless that is forbidden."""
    one = elements(1, 1)
    text = ("{c0} += {a0} * {b0};",)
    return Instruction(f"fma_{t.name}", (1, 1, 1), *product_of(t), one, one, one, text, ordered=True)


_LANE_ROW, _LANE_COLUMN = Place(divisor=4, count=8), Place(count=4)
_PAIR = tuple((_LANE_ROW, Place(count=4, scale=2, offset=k)) for k in (0, 1))
# double precision on tensor cores (sm_80 and later): products and sums are those of double
TENSOR_DOUBLE = Instruction(
    "mma_m8n8k4_f64",
    (8, 8, 4),
    *product_of(DOUBLE),
    ((_LANE_ROW, _LANE_COLUMN),),
    ((_LANE_COLUMN, _LANE_ROW),),
    _PAIR,
    (
        'asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};"',
        '    : "+d"({c0}), "+d"({c1}) : "d"({a0}), "d"({b0}));',
    ),
    lanes=32,
    targets=("cuda",),
)
TABLE: tuple[Instruction, ...] = (multiply_add(FLOAT), multiply_add(DOUBLE), TENSOR_DOUBLE)


def why_not_an_instruction(i: Instruction) -> str | None:
    """What is wrong with a row: results must have one owner each, operands at least one."""
    m, n, k = i.shape
    for name, fragment, (rows, columns), once in (
        ("a", i.a, (m, k), False), ("b", i.b, (k, n), False), ("c", i.c, (m, n), True),
    ):  # fmt: skip
        owned = [(r.at(lane), c.at(lane)) for lane in range(i.lanes) for r, c in fragment]
        if set(owned) != set(itertools.product(range(rows), range(columns))):
            return f"{name}: not exactly the elements of a box of {rows} x {columns} have owners"
        if once and len(owned) > len(set(owned)):
            return f"{name}: an element has two owners"
    return None


# --------------------------------------------------------------------------- what fits a nest


@dataclass(frozen=True, slots=True)
class Leaf:
    """An instruction in a nest.

    dims      of m, n and k; empty where the instruction has one element in that direction
    accesses  of operands a and b
    steps     iterations of a loop that one instruction takes together
    """

    instruction: Instruction
    dims: tuple[str, str, str] = ("", "", "")
    accesses: tuple[int, int] = (0, 1)
    steps: tuple[tuple[Loop, int], ...] = ()

    @property
    def is_wide(self) -> bool:
        return math.prod(self.instruction.shape) > 1

    def step(self, loop: Loop) -> int:
        return dict(self.steps).get(loop, 1)

    def loop(self, dim: str) -> Loop | None:
        return next((x for x, _ in self.steps if x.dim == dim), None)


def leaf_of(nest: GpuNest, target: str, wish: str = "") -> Leaf | None:
    """The instruction called ``wish`` where it fits, else the first row for single points that does."""
    for row in TABLE:
        if wish and row.name == wish and (found := _fitting(nest, row, target)):
            return found
    singles = (row for row in TABLE if row.shape == (1, 1, 1))
    return next((found for row in singles if (found := _fitting(nest, row, target))), None)


def _fitting(nest: GpuNest, row: Instruction, target: str) -> Leaf | None:
    program = nest.program
    accesses = _operands(program, row)
    unordered = program.fp == "exact" and reassociates(program) and not row.ordered
    if accesses is None or unordered or (row.targets and target not in row.targets):
        return None
    if row.shape == (1, 1, 1):
        return Leaf(row, accesses=accesses)
    if why_not_an_instruction(row) is not None:
        return None
    names = [d.name for d in program.hom.dims]
    of_a, of_b = ({n for x in program.inp.accesses[k].index for n in x.names} for k in accesses)
    kept = {d.name for d in program.hom.dims_of("cc")}
    m = [d for d in names if d in of_a - of_b and d in kept]
    n = [d for d in names if d in of_b - of_a and d in kept]
    k = [d for d in names if d in of_a & of_b and d not in kept]
    choices = [ds if extent > 1 else [""] for ds, extent in zip((m, n, k), row.shape, strict=True)]
    for dims in itertools.product(choices[0], choices[1], choices[2]):
        if (found := _with_dims(nest, Leaf(row, dims, accesses))) is not None:
            return found
    return None


def _operands(program: MdhProgram, row: Instruction) -> tuple[int, int] | None:
    """The accesses that are the row's operands, if a point and its combination are those of the row."""
    function, scalar = program.hom.function, program.hom.scalar
    if function is None or function.values != (row.combine,) or scalar.body or len(scalar.results) != 1:
        return None
    count = len(program.inp.accesses)
    for a, b in itertools.product(range(count), repeat=2):
        numbers = {0: a, 1: b}

        def at(e: Expr, numbers: dict[int, int] = numbers) -> Expr | None:
            return replace(e, access=numbers[e.access]) if isinstance(e, Operand) else None

        if rewrite(row.value, at) == scalar.results[0]:
            return a, b
    return None


def _with_dims(nest: GpuNest, leaf: Leaf) -> Leaf | None:
    """The leaf with its loops, if every lane has the results that the instruction leaves there."""
    row, (m, n, k) = leaf.instruction, leaf.dims
    steps: list[tuple[Loop, int]] = []
    tile, reduced = nest.inside[nest.reduced :], nest.inside[split_of(nest) : nest.reduced]
    for dim, offsets, loops in (
        (m, [r.at(0) for r, _ in row.c], tile), (n, [c.at(0) for _, c in row.c], tile),
        (k, list(range(row.shape[2])), reduced),
    ):  # fmt: skip
        several = sorted(set(offsets))
        if len(several) == 1:
            continue
        found = next((x for x in loops if x.dim == dim and _takes(x, several)), None)
        if found is None:
            return None
        steps.append((found, len(several)))
    if nest.unit % row.lanes or any(x.dim == k for x in nest.threads):
        return None
    for dim, which in ((m, 0), (n, 1)):
        for thread in range(nest.unit if row.lanes > 1 else 0):
            lane = thread % row.lanes
            in_warp = _own(nest.threads, dim, thread) - _own(nest.threads, dim, thread - lane)
            if any(c[which].at(lane) != in_warp + c[which].at(0) for c in row.c):
                return None
    return replace(leaf, steps=tuple(steps))


def _takes(loop: Loop, offsets: list[int]) -> bool:
    """Whether iterations of a loop are as far apart as some elements, and are whole groups of them."""
    apart = [k * loop.size for k in range(len(offsets))]
    return apart == offsets and (loop.count or 1) % len(offsets) == 0


def _own(threads: Iterable[Loop], dim: str, thread: int) -> int:
    """What a thread of a block adds to the index of a dimension."""
    found, below = 0, 1
    for loop in reversed(tuple(threads)):
        count = loop.count or 1
        found += thread // below % count * loop.size if loop.dim == dim else 0
        below *= count
    return found
