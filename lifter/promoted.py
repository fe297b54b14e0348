"""Cells that an inner loop updates, in a variable while it runs (scalar replacement).

before   for k in [p[i], q[i]): y[i] = y[i] + v[k]*x[col[k]]
after    y_2 = p[i] < q[i] ? y[i] : 0;  for k ...: y_2 = y_2 + v[k]*x[col[k]];  if (p[i] < q[i]) y[i] = y_2

So a loop of which nobody knows how far it goes stores in no array and can be a part of the scalar function
(``lifter.reorder.as_scalar``).  A cell that the loop does not reach is left alone: it need not exist, unless
statements before the loop store in it in any case.

A cell is kept in a variable where the loop stores in no other cell of its array and reads none, and where
nothing that the loop changes is a part of its subscripts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import assigned_buffers, assigned_scalars
from lifter.places import zero
from lifter.trees import Body, declarations, ends_in_memory, loops_in, map_tree, start_of, tree_exprs, widened
from mdh_core.expr import (
    INT32,
    Assign,
    Binary,
    Declare,
    Expr,
    If,
    Load,
    Select,
    Var,
    rewrite,
    variables,
    walk,
)


def cells_in_variables(loop: Loop, new: Callable[[str], str]) -> Loop | None:
    """The loop with the cells that its inner loops update in variables; None where there are none.

    ``new``: makes a name of its own for a variable from the name of an array.
    """
    body = _promoted(loop.body, new)
    return None if body == loop.body else replace(loop, body=body)


def _promoted(body: Sequence[NestStmt], new: Callable[[str], str]) -> Body:
    out: list[NestStmt] = []
    for s in body:
        cells = _cells(s) if isinstance(s, Loop) else []
        if isinstance(s, Loop) and cells:
            out += _in_variables(s, cells, [_is_stored(c, out) for c in cells], new)
        elif isinstance(s, Loop):
            out.append(replace(s, body=_promoted(s.body, new)))
        else:
            out.append(s)
    return tuple(out)


def _is_stored(cell: Load, before: Sequence[NestStmt]) -> bool:
    """Whether the statements before a loop store in the cell, whatever holds."""
    names = {v for i in cell.index for v in variables(i)}
    stored = False
    for s in before:
        if isinstance(s, Assign) and s.target == cell:
            stored = True
        elif names & (assigned_scalars((s,)) | {d.name for d in declarations((s,))}):
            stored = False
    return stored and not any(map(_read, cell.index))


def _cells(loop: Loop) -> list[Load]:
    """The one cell of each array in which a loop of unknown length stores; nothing where there is an array
    without: memory says where the loop ends."""
    written = assigned_buffers(loop.body)
    ends = (loop.lower, loop.upper)
    changed = assigned_scalars(loop.body) | {d.name for d in declarations(loop.body)}
    changed |= {x.iterator for x in loops_in((loop,))}
    if not ends_in_memory(loop) or any(variables(e) & changed or _read(e) & written for e in ends):
        return []
    found: dict[str, Load] = {}
    for e in tree_exprs(loop.body):
        for n in walk(e):
            if isinstance(n, Load) and n.buffer in written and found.setdefault(n.buffer, n) != n:
                return []
    for cell in found.values():
        if any(variables(i) & changed or _read(i) & written for i in cell.index):
            return []
    return [found[b] for b in sorted(found)]


def _read(e: Expr) -> set[str]:
    return {n.buffer for n in walk(e) if isinstance(n, Load)}


def _in_variables(
    loop: Loop, cells: list[Load], exist: list[bool], new: Callable[[str], str]
) -> list[NestStmt]:
    runs = Binary("<" if loop.step > 0 else ">", start_of(loop.lower, loop.type), widened(loop.upper), INT32)
    kept: dict[Expr, Var] = {c: Var(new(c.buffer), c.type) for c in cells}
    before: list[NestStmt] = []
    behind: list[NestStmt] = []
    for cell, there in zip(cells, exist, strict=True):
        v = kept[cell]
        value: Expr = cell if there else Select(runs, cell, zero(cell.type), cell.type)
        before.append(Declare(v.name, v.type, value, loop.span))
        store = Assign(cell, v, loop.span)
        behind.append(store if there else If(runs, (store,), (), loop.span))
    inside = map_tree(loop.body, lambda e: rewrite(e, lambda n: kept.get(n) if isinstance(n, Load) else None))
    return [*before, replace(loop, body=inside), *behind]
