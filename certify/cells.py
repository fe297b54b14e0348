"""What the statements of a nest read and write, as cells that programs know, too.

A flat position is taken apart by the extents that the programs give its buffer, where it is shown that the
indices stay below them (``flat``).  An index that is computed from data is an unknown of the instance.  What
a condition or a bound reads, the statements read that it decides about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from certify.flat import of_affine, split
from certify.sets import at_least, below, find
from certify.source import Cell, Instance
from mdh_core.expr import Affine, Constraint, Expr, Load, variables, walk
from mdh_core.ir import Buffer, MdhProgram


class NotMapped(Exception):  # noqa: N818 - an answer
    """The mapping from statements to programs cannot be established."""


def taken_apart(found: Sequence[Instance], programs: Sequence[MdhProgram]) -> list[Instance]:
    """Flat positions as cells of the buffers that the programs know; computed indices as unknowns."""
    shapes: dict[str, Buffer] = {}
    for b in (b for p in programs for b in p.buffers):
        other = shapes.setdefault(b.name, b)
        if b.rank > other.rank:
            shapes[b.name] = b
        elif b.rank == other.rank and b.extents != other.extents:
            raise NotMapped(f"`{b.name}` has several shapes")
    known = [at_least(a) for p in programs for a in p.assumptions]
    inside: dict[int, list[Constraint]] = {x.number: [] for x in found}

    written = {x.write.name for x in found if x.write is not None}
    steady: dict[tuple[Expr, ...], int] = {}

    def name(x: Instance, c: Cell, number: int) -> str:
        """One expression has one value in an instance; in all with its iterators if it reads nothing new."""
        used = {n for e in c.computed for n in variables(e)}
        used |= {n.buffer for e in c.computed for n in walk(e) if isinstance(n, Load)}
        if not c.computed or used & written:
            return f"?{x.number}.{number}"
        return f"?e{steady.setdefault(c.computed, len(steady))}"

    def cell(x: Instance, c: Cell, number: int) -> Cell:
        b = shapes.get(c.name)
        if b is None or c.scalar:
            return c
        index: tuple[Affine, ...] | None = None
        if c.index is not None and len(c.index) == b.rank:
            return c
        position = dict(c.flat)
        if c.index is not None and len(c.index) == 1:
            position = of_affine(c.index[0])
        if position and b.strides is None:
            index = split(position, b.extents)
        rows = [*x.rows, *(k for k in known if not k.names & set(x.iterators))]
        for a, e in zip(index[1:] if index else (), b.extents[1:], strict=False):
            assert e is not None
            if find([*rows, below(a, Affine())]) is not None or find([*rows, at_least(a - e)]) is not None:
                index = None
        return Cell(c.name, unknown(x, b, name(x, c, number)) if index is None else index)

    def unknown(x: Instance, b: Buffer, name: str) -> tuple[Affine, ...]:
        """A computed position; it is one of the buffer's."""
        index = tuple(Affine.of(f"{name}.{k}") for k in range(b.rank))
        if None not in b.extents:
            for a, e in zip(index, b.extents, strict=True):
                assert e is not None
                inside[x.number] += [at_least(a), below(a, e)]
        return index

    out = []
    for x in found:
        numbers = {c: k for k, c in enumerate(dict.fromkeys(x.cells))}  # one expression has one value
        cells = {c: cell(x, c, k) for c, k in numbers.items()}
        write = None if x.write is None else cells[x.write]
        rows = (*x.rows, *inside[x.number])
        out.append(replace(x, rows=rows, reads=tuple(cells[c] for c in x.reads), write=write))
    return out


def with_conditions(found: Sequence[Instance]) -> list[Instance]:
    """What decides whether a statement runs, it reads; the deciding instances themselves are gone."""
    deciding = [x for x in found if x.write is None]
    decided: set[int] = set()
    out = []
    for x in found:
        if x.write is None:
            continue
        mine = [d for d in deciding if len(d.place) < len(x.place) and x.place[: len(d.place)] == d.place]
        decided |= {d.number for d in mine}
        reads = dict.fromkeys((*x.reads, *(c for d in mine for c in d.reads)))
        out.append(replace(x, reads=tuple(reads)))
    return [*out, *(d for d in deciding if d.number not in decided)]
