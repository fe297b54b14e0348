"""Cells that an inner loop updates, in a variable while it runs (scalar replacement).

before   for k in [p[i], q[i]): y[i] = y[i] + v[k]*x[col[k]]
after    y_2 = p[i] < q[i] ? y[i] : 0;  for k ...: y_2 = y_2 + v[k]*x[col[k]];  if (p[i] < q[i]) y[i] = y_2

So a loop of which nobody knows how far it goes stores in no array and can be a part of the scalar function
(``lifter.reorder.as_scalar``).  A cell that the loop does not reach is left alone: it need not exist, unless
statements before the loop store in it in any case.

A cell is kept in a variable where the loop stores in no other cell of its array and reads none, and where
nothing that the loop changes is a part of its subscripts.

A loop in a branch leaves its store behind the branch:

before   if (w[i] > 0) for k in [p[i], q[i]): y[i] = y[i] + v[k]       (or s = s + v[k], and y[i] = s)
after    c = w[i] > 0;  y_2 = c && p[i] < q[i] ? y[i] : 0;  if (c) for k ...: y_2 = y_2 + v[k];
         if (c && p[i] < q[i]) y[i] = y_2

and what stands in the other branch follows, under ``!c``.
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
    Const,
    Declare,
    Expr,
    If,
    Load,
    Select,
    Stmt,
    Var,
    rewrite,
    variables,
    walk,
)

Branch = tuple[NestStmt | Stmt, ...]


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
        elif isinstance(s, If) and (branch := _in_branch(s, new)) is not None:
            out += branch
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
    used = [None if there else _runs(loop) for there in exist]
    return _around(loop, list(zip(cells, used, strict=True)), new)


def _runs(loop: Loop) -> Expr:
    return Binary("<" if loop.step > 0 else ">", start_of(loop.lower, loop.type), widened(loop.upper), INT32)


def _around(
    s: NestStmt, cells: Sequence[tuple[Load, Expr | None]], new: Callable[[str], str]
) -> list[NestStmt]:
    """A statement with variables for cells, each of which is used under a condition, or in any case."""
    kept: dict[Expr, Var] = {c: Var(new(c.buffer), c.type) for c, _ in cells}
    before: list[NestStmt] = []
    behind: list[NestStmt] = []
    for cell, used in cells:
        v = kept[cell]
        value: Expr = cell if used is None else Select(used, cell, zero(cell.type), cell.type)
        before.append(Declare(v.name, v.type, value, s.span))
        store = Assign(cell, v, s.span)
        behind.append(store if used is None else If(used, (store,), (), s.span))
    inside = map_tree((s,), lambda e: rewrite(e, lambda n: kept.get(n) if isinstance(n, Load) else None))
    return [*before, *inside, *behind]


def _in_branch(s: If, new: Callable[[str], str]) -> list[NestStmt] | None:
    """An ``if`` whose branches have a loop of unknown length, one after the other."""
    cond, then = _joined(s)
    if _branch_cells(then) is None and _branch_cells(s.other) is None:
        return None
    taken = Var(new("taken"), INT32)
    out: list[NestStmt] = [
        Declare(taken.name, INT32, Select(cond, Const(1, INT32), Const(0, INT32), INT32), s.span)
    ]
    branches = ((taken, then), (Binary("==", taken, Const(0, INT32), INT32), s.other))
    for holds, body in branches:
        cells = _branch_cells(body)
        one = replace(s, cond=holds, then=body, other=())  # type: ignore[arg-type] # loops in it
        if cells is None:
            out += [one] * bool(body)
        else:
            (loop,) = (x for x in body if isinstance(x, Loop))
            runs = Binary("&&", holds, _runs(loop), INT32)
            out += _around(one, [(c, holds if sure else runs) for c, sure in cells], new)
    return out


def _joined(s: If) -> tuple[Expr, Branch]:
    """Condition and branch of ``if (a) if (b) ...``."""
    match s:
        case If(then=(If(other=()) as inner,), other=()):
            cond, then = _joined(inner)
            return Binary("&&", s.cond, cond, INT32), then
    return s.cond, s.then


def _branch_cells(body: Branch) -> list[tuple[Load, bool]] | None:
    """The cells that a branch with one loop changes, and whether it stores in them in any case.

    None where there is no such loop, or something else beside it than declarations and assignments to these
    cells and to what is declared.
    """
    loops = [x for x in body if isinstance(x, Loop)]
    rest = [x for x in body if not isinstance(x, Loop)]
    if len(loops) != 1 or not ends_in_memory(loops[0]):
        return None
    inside = _cells(loops[0])
    if assigned_buffers(loops[0].body) != {c.buffer for c in inside}:
        return None
    stored = [x.target for x in rest if isinstance(x, Assign) and isinstance(x.target, Load)]
    cells = list(dict.fromkeys((*inside, *stored)))
    if not cells or not all(isinstance(x, Declare | Assign) for x in rest):
        return None
    own = {d.name for d in declarations(body)}
    written = assigned_buffers(body)
    used = {n for e in tree_exprs(body) for n in walk(e) if isinstance(n, Load) and n.buffer in written}
    ends = [loops[0].lower, loops[0].upper, *(i for c in cells for i in c.index)]
    if not used <= set(cells) or not assigned_scalars(body) <= own:
        return None
    if any(variables(e) & own or _read(e) & written for e in ends):
        return None
    return [(c, c in stored) for c in cells]
