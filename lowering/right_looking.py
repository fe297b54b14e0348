"""Sums over what earlier iterations computed, added as soon as that is known: left-looking loops look right.

    before   for i in [0, n):                                       rows of a matrix, say
               for j in [0, i): A[i][j] = (A[i][j] + sum over k < j of f(i, j, k)) / A[j][j]
               A[i][j] = A[i][j] + sum over k < i of f(i, j, k)     for j >= i
    pushed   for i in [0, n):
               for j in [0, i): A[i][j] = A[i][j] / A[j][j];  A[i][l] = A[i][l] + f(i, l, j)  for all l > j
    turned   for j in [0, n):  both, for all i > j at once

Every cell gets the same contributions in the same order.  The outer loop then is of the form whose updates
may wait (``lowering.delayed``).  Three steps, each of them refused (None) unless it is shown for all sizes
that every read finds what it found before:

    pushed        a program that sums over k < t, in a host loop over t, becomes an update of the cells of
                  later iterations; its epilogue, a program over the cells of the iteration itself
    joined        a sum that follows a host loop with as many iterations as it has terms, likewise; updates of
                  neighbouring cells by one function are one
    interchanged  a host loop around a host loop becomes a dimension of the programs inside; what follows the
                  inner loop, at i, is done where iteration j = i begins
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowering.host_tiles import cells_touched
from lowering.programs import (
    Rows,
    assumes,
    fresh,
    marked,
    places,
    points,
    renamed,
    same,
    with_iterators,
    with_values,
)
from mdh_core.combine import CC
from mdh_core.expr import (
    Affine,
    Binary,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Unary,
    Var,
    affine_index,
    as_affine,
    children,
    rewrite,
    walk,
)
from mdh_core.ir import (
    Access,
    Dim,
    HostLoop,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Size,
    Store,
    keeps_if_empty,
    reads_own_cell,
)
from mdh_core.polytope import certainly_empty


def right_looking(outer: HostLoop, taken: Collection[str]) -> HostLoop | None:
    """The host loop looking right; None where it does not look left, or must.  ``taken``: names in use."""
    if not outer.body or not isinstance(outer.body[0], HostLoop) or len(outer.body) > 2:
        return None
    inner, *after = outer.body
    assert isinstance(inner, HostLoop)
    if assumes(outer.body, {outer.iterator, inner.iterator}):
        return None
    used = {*taken, outer.iterator, inner.iterator, *names_in(outer)}
    found = pushed(inner, used)
    for p in after:
        if found is None or not isinstance(p, MdhProgram):
            return None
        found = joined(found, p, used)
    return None if found is None else interchanged(outer, found, (), used)


def names_in(loop: HostLoop) -> Iterator[str]:
    """Of iterators, dimensions, parameters and arrays inside of a host loop."""
    for s in loop.body:
        if isinstance(s, HostLoop):
            yield s.iterator
            yield from names_in(s)
        elif isinstance(s, MdhProgram):
            yield from (d.name for d in s.hom.dims)
            yield from (x.name for x in s.params)
            yield from (b.name for b in s.buffers)


# --------------------------------------------------------------------------- sums


@dataclass(frozen=True, slots=True)
class Sum:
    """A program that adds a sum over one dimension, of ``count`` terms, to the cells of one array."""

    program: MdhProgram
    store: Store
    reduced: str
    count: Affine
    term: Expr

    @property
    def others(self) -> tuple[Dim, ...]:
        return tuple(d for d in self.program.hom.dims if d.name != self.reduced)


def sum_of(p: MdhProgram, moving: Collection[str]) -> Sum | None:
    """The program as a sum; None: it is none.  ``moving``: iterators that terms mention in indices only."""
    scalar, reduced = p.hom.scalar, p.hom.dims_of("pw")
    f = p.hom.function
    if (
        f is None
        or f.name != "+"
        or len(reduced) != 1
        or len(scalar.results) != 1
        or scalar.body
        or p.hom.domain
    ):
        return None
    if len(p.hom.dims_of("cc")) + 1 != len(p.hom.dims) or any(d.size.step != 1 for d in p.hom.dims):
        return None
    if len(p.out.stores) != 1 or any(a.conditional for a in p.inp.accesses):
        return None
    store, first = p.out.stores[0], p.out.initial[0]
    kept = replace(store, value=Result(0, f.types[0]))
    if store.at_last or first is None or not keeps_if_empty(kept, p.out.initial):
        return None
    if reads_own_cell(store):  # what it held before all terms
        return None
    if any(store.index == a.index and store.buffer == a.buffer for a in p.inp.accesses):
        return None
    names = {*moving, *(d.name for d in p.hom.dims)}
    (term,) = scalar.results
    if any(isinstance(n, Load) or (isinstance(n, Var) and n.name in names) for n in walk(term)):
        return None
    if any(isinstance(n, Load) and None in [as_affine(i) for i in n.index] for n in walk(store.value)):
        return None
    if any(isinstance(n, Var) and n.name in names for n in _outside_of_loads(store.value)):
        return None
    return Sum(p, store, reduced[0].name, reduced[0].size.span, term)


def _outside_of_loads(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Load):
        return
    yield e
    for child in children(e):
        yield from _outside_of_loads(child)


def _finish(s: Sum) -> MdhProgram | None:
    """The epilogue alone: cells as functions of themselves; None where a cell is stored as it is."""
    if s.store.plain is not None:
        return None
    accesses = [Access(s.store.buffer, s.store.index)]

    def operand(n: Expr) -> Expr | None:
        if isinstance(n, Result):
            return Operand(0, n.type)
        if isinstance(n, Load):
            a = Access(n.buffer, affine_index(n.index))
            if a not in accesses:
                accesses.append(a)
            return Operand(accesses.index(a), n.type)
        return None

    value = rewrite(s.store.value, operand)
    return _update(s.program, s.others, accesses, value, s.store)


def _addition(s: Sum, values: Mapping[str, Affine], dims: Sequence[Dim]) -> MdhProgram:
    """One term added to the cells: names with new values, and the dimensions that remain or are new."""
    t = s.program.component_types[0]
    assert isinstance(t, ScalarType)
    own = Operand(len(s.program.inp.accesses), t)
    if isinstance(s.term, Unary) and s.term.op == "-":
        value: Expr = Binary("-", own, s.term.a, t)
    else:
        value = Binary("+", own, s.term, t)
    accesses = [*s.program.inp.accesses, Access(s.store.buffer, s.store.index)]
    p = _update(s.program, s.others, accesses, value, s.store)
    p = with_values(p, values)
    return replace(p, hom=MdHom(tuple(dims), p.hom.scalar, tuple(CC for _ in dims)))


def _update(
    p: MdhProgram,
    dims: Sequence[Dim],
    accesses: Sequence[Access],
    value: Expr,
    store: Store,
) -> MdhProgram:
    t = value.type
    return replace(
        p,
        inp=InputView(tuple(accesses)),
        hom=MdHom(tuple(dims), ScalarFunction((value,)), tuple(CC for _ in dims)),
        out=OutputView((None,), (replace(store, value=Result(0, t)),)),
    )


# --------------------------------------------------------------------------- pushed


def pushed(loop: HostLoop, used: set[str]) -> HostLoop | None:
    """One program that sums over all iterations before its own: each iteration adds to the later ones."""
    t, whole = loop.iterator, loop.size.span
    if len(loop.body) != 1 or not isinstance(loop.body[0], MdhProgram) or loop.size.step != 1:
        return None
    s = sum_of(loop.body[0], {t})
    if s is None or s.count != Affine.of(t) or any(t in d.size.span.names for d in s.others):
        return None
    if not may_come_early(s, [loop.body[0]], 0, loop):
        return None
    later = fresh(s.reduced, used)
    used.add(later)
    dims = (Dim(later, Size(whole - Affine.of(t) - 1)), *s.others)
    values = {s.reduced: Affine.of(t), t: Affine.of(later) + Affine.of(t) + 1}
    finish, push = _finish(s), _addition(s, values, dims)
    return replace(loop, body=(push,) if finish is None else (finish, push))


def may_come_early(s: Sum, programs: Sequence[MdhProgram], number: int, loop: HostLoop) -> bool:
    """Whether term k of a sum may be added at the end of iteration k, or of any later one before its own.

    Nothing else touches a cell before its own iteration; no operand is stored after its own.  ``number``: of
    the sum among the programs of the loop.
    """
    t = loop.iterator
    now, other = Affine.of("?now"), Affine.of("?other")
    inside = [now, loop.size.span - 1 - now, other, loop.size.span - 1 - other]
    here = marked(s.program, "") | {t: now}
    mine, reading = _positions(s.program, s, here), points(s.program, here)
    cell, k = [x.substitute(here) for x in s.store.index], here[s.reduced]
    for place, q in enumerate(programs):
        touched = cells_touched(q)
        if touched is None:
            return False
        there = marked(q, "'") | {t: other}
        # the cells of iteration `now` are touched by nothing until then
        for name, index in touched:
            if name != s.store.buffer:
                continue
            read = [x.substitute(there) for x in index]
            own = place == number and index == s.store.index
            before = now - other - (1 if own or place > number else 0)
            if own or (place == number and index in _in_epilogue(s)):
                positions = _positions(q, s, there)
            else:
                positions = points(q, there) if place == number else places(q, there, index)
            if not certainly_empty([*inside, *mine, *positions, *same(cell, read), before]):
                return False
        # operands of term k, iteration `now`, are not stored by any iteration after k
        for a, stored in itertools.product(s.program.inp.accesses, q.out.stores):
            if a.buffer != stored.buffer:
                continue
            read = [x.substitute(here) for x in a.index]
            written = [x.substitute(there) for x in stored.index]
            rows = [*inside, *reading, *places(q, there, stored.index), *same(read, written), other - k - 1]
            if not certainly_empty(rows):
                return False
    return True


def _in_epilogue(s: Sum) -> list[tuple[Affine, ...]]:
    return [affine_index(n.index) for n in walk(s.store.value) if isinstance(n, Load)]


def _positions(p: MdhProgram, s: Sum, names: Mapping[str, Affine]) -> Rows:
    return points(p, names, {d.name for d in s.others})


# --------------------------------------------------------------------------- joined


def joined(loop: HostLoop, p: MdhProgram, used: set[str]) -> HostLoop | None:
    """A sum after a loop, with as many terms as that has iterations: each iteration adds one."""
    t = loop.iterator
    if any(d.name == t for d in p.hom.dims):
        p = renamed(p, t, fresh(t, used))
    s = sum_of(p, {t})
    if s is None or s.count != loop.size.span or s.store.plain is None or t in _affine_names(p):
        return None
    own = [q for q in loop.body if isinstance(q, MdhProgram)]
    if len(own) != len(loop.body):
        return None
    k, other = Affine.of(f"{s.reduced}:"), Affine.of("?other")
    inside = [other, loop.size.span - 1 - other]
    here = marked(p, "")
    cell = [x.substitute(here) for x in s.store.index]
    for q in own:
        there = marked(q, "'") | {t: other}
        touched = cells_touched(q)
        if touched is None:
            return None
        for name, index in touched:
            if name == s.store.buffer:
                rows = [*inside, *_positions(p, s, here), *points(q, there)]
                if not certainly_empty([*rows, *same(cell, [x.substitute(there) for x in index])]):
                    return None
        for a, written in itertools.product(p.inp.accesses, q.out.stores):
            if a.buffer == written.buffer:
                rows = [*inside, *points(p, here), *points(q, there), other - k - 1]
                read = [x.substitute(here) for x in a.index]
                if not certainly_empty([*rows, *same(read, [x.substitute(there) for x in written.index])]):
                    return None
    there = marked(p, "'")
    for a in p.inp.accesses:  # nor is a part of a sum
        if a.buffer == s.store.buffer:
            rows = [*points(p, here), *_positions(p, s, there)]
            own_cell = [x.substitute(there) for x in s.store.index]
            if not certainly_empty([*rows, *same([x.substitute(here) for x in a.index], own_cell)]):
                return None
    added = _addition(s, {s.reduced: Affine.of(t)}, s.others)
    merged = _merged(own[-1], added)
    return replace(loop, body=(*own[:-1], merged) if merged is not None else (*own, added))


def _affine_names(p: MdhProgram) -> set[str]:
    used = {n for a in p.inp.accesses for x in a.index for n in x.names}
    return used | {n for s in p.out.stores for x in s.index for n in x.names} | {d.name for d in p.hom.dims}


def _merged(p: MdhProgram, q: MdhProgram) -> MdhProgram | None:
    """Two updates by one function, of cells that adjoin in one dimension, as one; None where they are two."""
    if len(p.hom.dims) != 1 or len(q.hom.dims) != 1 or p.hom.domain or q.hom.domain:
        return None
    (d,), (e,) = p.hom.dims, q.hom.dims
    a, b = p.out.stores[0], q.out.stores[0]
    found = [k for k, x in enumerate(a.index) if d.name in x.names]
    if a.buffer != b.buffer or len(a.index) != len(b.index) or len(found) != 1:
        return None
    (axis,) = found
    if a.index[axis].coefficient(d.name) != 1 or b.index[axis].coefficient(e.name) != 1:
        return None
    # the index of the first dimension at which the cells of the second program lie
    start = b.index[axis].substitute({e.name: Affine()}) - a.index[axis].substitute({d.name: Affine()})
    if start != d.size.span:
        return None
    moved = with_values(p, {d.name: Affine.of(e.name) + start})
    order = {k: moved.inp.accesses.index(x) for k, x in enumerate(q.inp.accesses) if x in moved.inp.accesses}
    if len(order) != len(q.inp.accesses) or moved.out.stores[0].index != b.index:
        return None

    def renumbered(n: Expr) -> Expr | None:
        return replace(n, access=order[n.access]) if isinstance(n, Operand) else None

    if rewrite(q.hom.scalar.results[0], renumbered) != moved.hom.scalar.results[0]:
        return None
    here, there = marked(p, ""), marked(q, "'")
    # both read before they store
    for x, written, names, others in ((p, b, here, there), (q, a, there, here)):
        for access in x.inp.accesses:
            if access.buffer == written.buffer:
                rows = [*points(p, here), *points(q, there)]
                read = [i.substitute(names) for i in access.index]
                if not certainly_empty([*rows, *same(read, [i.substitute(others) for i in written.index])]):
                    return None
    hom = replace(p.hom, dims=(Dim(d.name, Size(d.size.span + e.size.span)),))
    params = tuple(dict.fromkeys((*p.params, *q.params)))
    return replace(p, hom=hom, params=params)


# --------------------------------------------------------------------------- interchanged


def interchanged(
    outer: HostLoop, inner: HostLoop, heads: Sequence[MdhProgram], used: Collection[str]
) -> HostLoop | None:
    """``for i: { for j < i: programs; heads }`` as ``for j: { heads of i = j; programs over all i > j }``."""
    i, j, whole = outer.iterator, inner.iterator, outer.size.span
    programs = [p for p in inner.body if isinstance(p, MdhProgram)]
    if inner.size.span != Affine.of(i) or inner.size.step != 1 or outer.size.step != 1:
        return None
    if len(programs) != len(inner.body) or any(op.kind == "ps" for p in programs for op in p.hom.combine):
        return None
    if any(p.hom.scalar.body or not _only_operands(p, {i, j}) for p in programs):
        return None
    if any(i in d.size.span.names for p in programs for d in p.hom.dims):
        return None
    heads = [renamed(p, j, fresh(j, used)) if j in (d.name for d in p.hom.dims) else p for p in heads]
    if not _may_be_interchanged(programs, heads, i, j, whole):
        return None
    body = [replace(with_values(p, {i: Affine.of(j)}), params=with_iterators(p, i, [j])) for p in heads]
    moved = Affine.of(i) + Affine.of(j) + 1
    for p in programs:
        q = replace(with_values(p, {i: moved}), params=with_iterators(p, i, [j]))
        dims = (Dim(i, Size(whole - Affine.of(j) - 1)), *q.hom.dims)
        body.append(replace(q, hom=replace(q.hom, dims=dims, combine=(CC, *q.hom.combine))))
    return replace(inner, size=Size(whole), body=tuple(body))


def _only_operands(p: MdhProgram, names: Collection[str]) -> bool:
    """Does the scalar function mention data by operands only, and none of the names?"""
    own = {*names, *(d.name for d in p.hom.dims)}
    return not any(
        isinstance(n, Load) or (isinstance(n, Var) and n.name in own)
        for e in p.hom.scalar.results
        for n in walk(e)
    )


def _may_be_interchanged(
    programs: Sequence[MdhProgram], heads: Sequence[MdhProgram], i: str, j: str, whole: Affine
) -> bool:
    """Whether no cell is touched by a smaller i with a j that is not smaller, and by a greater i.

    Nor by a head of i and a program of a greater i and a smaller j, which comes first then.
    """
    before = {i: Affine.of("?i"), j: Affine.of("?j")}
    after = {i: Affine.of("?i'"), j: Affine.of("?j'")}
    inside = [
        r for x in (before, after) for r in (x[j], x[i] - x[j] - 1, whole - 1 - x[i])
    ]  # fmt: skip
    for (a, p), (b, q) in itertools.product(enumerate(programs), repeat=2):
        late = [after[i] - before[i] - 1, before[j] - after[j] - (0 if a >= b else 1)]
        if not _apart(p, before, q, after, [*inside, *late]):
            return False
    above, here = {i: Affine.of("?i"), j: Affine.of("?i")}, [Affine.of("?i"), whole - 1 - Affine.of("?i")]
    for p, q in itertools.product(heads, programs):
        late = [after[i] - above[i] - 1, above[i] - after[j] - 1]
        inside = [*here, after[j], after[i] - after[j] - 1, whole - 1 - after[i]]
        if not _apart(p, above, q, after, [*inside, *late]):
            return False
    return True


def _apart(
    p: MdhProgram, first: Mapping[str, Affine], q: MdhProgram, second: Mapping[str, Affine], rows: Rows
) -> bool:
    """Whether no cell is touched by both and stored by one, with these values for iterators."""
    here, there = {**marked(p, ""), **first}, {**marked(q, "'"), **second}
    mine, others = cells_touched(p), cells_touched(q)
    if mine is None or others is None:
        return False
    stored = [{(s.buffer, s.index) for s in r.out.stores} for r in (p, q)]
    for x, y in itertools.product(mine, others):
        if x[0] != y[0] or not (x in stored[0] or y in stored[1]):
            continue
        equal = same([n.substitute(here) for n in x[1]], [n.substitute(there) for n in y[1]])
        if not certainly_empty([*rows, *places(p, here, x[1]), *places(q, there, y[1]), *equal]):
            return False
    return True
