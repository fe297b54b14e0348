"""Loops that memory ends, inside the loops that they hold (loop interchange).

before   for k in [p[i], p[i + 1]): { a = v[k]; for j: y[i][j] = y[i][j] + a*x[col[k]][j] }
after    for j: for k in [p[i], p[i + 1]): { a = v[k]; y[i][j] = y[i][j] + a*x[col[k]][j] }

Then the inner one can be a part of the scalar function (``lifter.promoted``, ``lifter.reorder.as_scalar``),
and ``j`` a dimension.  Each cell is changed in one iteration of ``j`` only, which reads no other cell of its
array, so that what happens to it happens in the order that it did.  Where ``j`` has no iteration, ``a`` is
not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lifter.loop_nest import Loop, NestStmt
from lifter.normalise import assigned_buffers, assigned_scalars
from lifter.trees import Body, declarations, ends_in_memory, loops_in, tree_exprs
from mdh_core.expr import Declare, Expr, Load, rise, variables, walk


def memory_loops_inwards(loop: Loop) -> Loop | None:
    """The loop with its inner ones that memory ends inside of those that they hold; None where none are."""
    body = _inwards(loop.body)
    return None if body == loop.body else replace(loop, body=body)


def _inwards(body: Sequence[NestStmt]) -> Body:
    return tuple(_inside(s) if isinstance(s, Loop) else s for s in body)


def _inside(s: Loop) -> Loop:
    inner = s.body[-1] if s.body else None
    if not (ends_in_memory(s) and isinstance(inner, Loop) and _may_change_places(s, inner)):
        return replace(s, body=_inwards(s.body))
    return replace(inner, body=(_inside(replace(s, body=(*s.body[:-1], *inner.body))),))


def _may_change_places(outer: Loop, inner: Loop) -> bool:
    before = outer.body[:-1]
    if any(x.observed for x in loops_in((outer,))) or not all(isinstance(s, Declare) for s in before):
        return False
    own = {d.name for d in declarations(outer.body)}
    written, set_inside = assigned_buffers(outer.body), assigned_scalars(inner.body)
    if not assigned_scalars(outer.body) <= own or set_inside & {d.name for d in declarations(before)}:
        return False
    changed = own | {x.iterator for x in loops_in((outer,))}
    ends = (inner.lower, inner.upper)
    if any(variables(e) & changed or any(isinstance(n, Load) for n in walk(e)) for e in ends):
        return False
    if any(isinstance(n, Load) and n.buffer in written for e in (outer.lower, outer.upper) for n in walk(e)):
        return False
    return all(_apart(b, outer.body, inner.iterator, changed, written) for b in written)


def _apart(buffer: str, body: Body, iterator: str, changed: set[str], written: set[str]) -> bool:
    """Whether iterations of a loop use different cells of an array, by one of its subscripts alone."""
    uses = {n.index for e in tree_exprs(body) for n in walk(e) if isinstance(n, Load) and n.buffer == buffer}

    def tells(e: Expr) -> bool:
        steady = not variables(e) & (changed - {iterator}) and not _read(e) & written
        return steady and rise(e, iterator, lambda n: iterator in variables(n)) not in (0, None)

    return any(len(set(at)) == 1 and tells(at[0]) for at in zip(*uses, strict=True))


def _read(e: Expr) -> set[str]:
    return {n.buffer for n in walk(e) if isinstance(n, Load)}
