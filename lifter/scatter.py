"""Accumulations at computed positions, as a loop over all cells that may be meant.

before   for i: h[idx[i]] += x[i];
after    for i: for c in [0, B): if (idx[i] == c) h[c] += x[i];

A histogram is then like any nest: ``c`` is concatenated, ``i`` is reduced, and the scalar function is the
element where the cell is the one that is meant and neutral elsewhere (GenHisto of mdh.md 3.5).  Nothing of
that costs what it seems to: lowering visits only the cell that is meant (``lowering.histogram``).

The extent of the array must be known where the position is computed; a position outside of it is undefined
in C, and meets no cell here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import assigned_buffers, assigned_scalars
from lifter.reductions import conjunction
from lifter.trees import Body, declarations, has_loop, loops_in, tree_exprs
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Expr,
    If,
    Load,
    Stmt,
    Var,
    affine_expr,
    as_affine,
    map_stmts,
    rewrite,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.guarded import conjuncts
from mdh_core.ir import MdhProgram


def over_cells(nest: LoopNest) -> tuple[Body, frozenset[str]] | None:
    """The nest's statements with loops over cells, and these loops' iterators.

    None where no statement accumulates at a computed position; raises MDH214 where one does and the number
    of cells is not known.
    """
    work = _Scatter(nest)
    body = work.body(nest.body)
    return (body, frozenset(work.cells)) if work.cells else None


def accumulates(programs: Iterable[MdhProgram], cells: frozenset[str]) -> bool:
    """Are the cells visited by reductions, and never one after the other in an order that matters?"""
    visited = [p for p in programs if cells & {d.name for d in p.hom.dims}]
    return bool(visited) and all(p.hom.dims_of("pw") for p in visited)


@dataclass(slots=True)
class _Scatter:
    nest: LoopNest
    cells: list[str] = field(default_factory=list)  # iterators made
    steady: frozenset[str] = frozenset()  # what an affine subscript is over
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        nest = self.nest
        iterators = {x.iterator for x in loops_in(nest.body)}
        self.steady = frozenset((iterators | {p.name for p in nest.params}) - assigned_scalars(nest.body))
        self.taken = iterators | {p.name for p in nest.params} | {b.name for b in nest.buffers}
        self.taken |= {s.name for s in nest.scalars} | {d.name for d in declarations(nest.body)}
        self.taken |= {f.name for f in nest.functions}
        self.taken |= {v for e in tree_exprs(nest.body) for v in variables(e)}

    def body(self, body: Sequence[NestStmt]) -> Body:
        return tuple(self.statement(s) for s in body)

    def statement(self, s: NestStmt) -> NestStmt:
        if isinstance(s, Loop):
            return replace(s, body=self.body(s.body))
        if isinstance(s, If) and not self.decides(s):
            then, other = self.body(s.then), self.body(s.other)  # type: ignore[arg-type] # loops in it
            return replace(s, then=then, other=other)  # type: ignore[arg-type]
        position = self.position(s) if isinstance(s, Assign | If) else None
        if position is None:
            return s
        assert isinstance(s, Assign | If)
        if isinstance(s, Assign) or s.other:
            return self.spread(s, *position)
        first, rest = [], conjuncts(s.cond)  # the position is evaluated where the source does
        while not _loads(rest[0], position[0]):
            first.append(rest.pop(0))
        inner = self.spread(replace(s, cond=conjunction(rest)), *position)
        return If(conjunction(first), (inner,), (), s.span) if first else inner  # type: ignore[arg-type]

    def decides(self, s: If) -> bool:
        """Does the condition mention a cell written under it (its first part, if there is an `else`)?"""
        if has_loop(s):
            return False
        written = assigned_buffers((s,))
        first = conjuncts(s.cond)[:1] if s.other else [s.cond]
        return any(_loads(e, b) for e in first for b in written)

    def position(self, s: Assign | If) -> tuple[str, tuple[Expr, ...]] | None:
        """The array and the one position at which a statement without loops reads and writes it."""
        written = assigned_buffers((s,))
        if len(written) != 1 or assigned_scalars((s,)) or next(declarations((s,)), None):
            return None
        (buffer,) = written
        cells = {n.index for e in stmt_exprs((s,)) for n in _loads(e, buffer)}
        if len(cells) != 1:
            return None
        (index,) = cells
        if not any(_loads(e, buffer) for e in _values(s)):
            return None  # which of several values stays is a matter of order
        if any(_loads(i, buffer) for i in index) or all(self.is_affine(i) for i in index):
            return None
        return buffer, index

    def is_affine(self, e: Expr) -> bool:
        a = as_affine(e)
        return a is not None and a.names <= self.steady

    def spread(self, s: Assign | If, buffer: str, index: tuple[Expr, ...]) -> NestStmt:
        """The statement for the one cell that is meant, inside of loops over the computed subscripts."""
        extents = self.nest.buffer(buffer).extents
        cell: list[Expr] = []
        loops: list[tuple[str, Affine]] = []
        meant: Expr | None = None
        for i, extent in zip(index, extents, strict=True):
            if self.is_affine(i):
                cell.append(i)
                continue
            if extent is None:
                raise self.unknown(buffer, s)
            name = self.fresh(f"{buffer}_cell")
            self.cells.append(name)
            loops.append((name, extent))
            here = Var(name, INT64)
            cell.append(here)
            same = Binary("==", i if i.type == INT64 else Cast(i, INT64), here, INT32)
            meant = same if meant is None else Binary("&&", meant, same, INT32)
        assert meant is not None

        def moved(n: Expr) -> Expr | None:
            return replace(n, index=tuple(cell)) if isinstance(n, Load) and n.buffer == buffer else None

        out: NestStmt = If(meant, map_stmts((s,), lambda e: rewrite(e, moved)), (), s.span)
        for name, extent in reversed(loops):
            zero, end = Const(0, INT64), affine_expr(extent)
            out = Loop(name, INT64, zero, end, 1, (out,), name, span=s.span)
        return out

    def unknown(self, buffer: str, s: Assign | If) -> Refusal:
        return refuse(
            "MDH214",
            f"`{buffer}` is accumulated at computed positions, and how many cells it has is not known",
            s.span,
            help=f"declare how many cells it has: `{buffer}[n]`, where `n` is a size",
        )

    def fresh(self, wish: str) -> str:
        name, k = wish, 2
        while name in self.taken:
            name, k = f"{wish}_{k}", k + 1
        self.taken.add(name)
        return name


def _loads(e: Expr, buffer: str) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load) and n.buffer == buffer]


def _values(s: NestStmt | Stmt) -> Iterator[Expr]:
    """The expressions of a statement without loops, but not what it assigns to."""
    match s:
        case Assign(value=value):
            yield value
        case If(cond=cond, then=then, other=other):
            yield cond
            for t in (*then, *other):
                yield from _values(t)
        case _:
            pass
