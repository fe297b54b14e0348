"""Initialisation absorbed by the reduction that starts from it.

before   md_hom(i: cc, j: cc) stores C[i][j] = beta*C[i][j];   md_hom(i: cc, j: cc, k: pw(+)) from C[i][j]
after    md_hom(i: cc, j: cc, k: pw(+)) from beta*C[i][j]

One pass over memory less.  It applies where both have the same positions, and nothing between them touches
the cells or changes what their initial values are computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mdh_core.expr import (
    Affine,
    Cast,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Var,
    affine_expr,
    affine_index,
    as_affine,
    rewrite,
    stmt_exprs,
    walk,
)
from mdh_core.ir import HostLoop, MdhProgram, Sequential, Step


def absorbed(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with initialisations absorbed wherever that is possible."""
    out = [replace(s, body=absorbed(s.body)) if isinstance(s, HostLoop) else s for s in steps]
    k = 0
    while k < len(out):
        first = out[k]
        for later in range(k + 1, len(out)):
            second = out[later]
            if not isinstance(first, MdhProgram):
                break
            if isinstance(second, MdhProgram):
                both = merged(first, second)
                if both is not None:
                    out[later] = both
                    del out[k]
                    k -= 1
                    break
            if not _apart(first, second):
                break
        k += 1
    return tuple(out)


def _apart(first: MdhProgram, other: Step) -> bool:
    """May ``first`` run after ``other`` as well?"""
    mine, theirs = {b.name for b in first.buffers}, _buffers(other)
    return not (written(first) & theirs or mine & written(other))


def _buffers(s: Step) -> set[str]:
    if isinstance(s, HostLoop):
        return set().union(*map(_buffers, s.body))
    return {b.name for b in s.buffers}


def written(s: Step) -> set[str]:
    match s:
        case MdhProgram():
            return {x.buffer for x in s.out.stores}
        case HostLoop(body=body):
            return set().union(*map(written, body))
        case Sequential():
            return _buffers(s)


def merged(first: MdhProgram, second: MdhProgram) -> MdhProgram | None:
    """``second``, starting from the values that ``first`` would have stored."""
    if any(op.kind != "cc" for op in first.hom.combine) or first.hom.scalar.body:
        return None
    if len(first.out.stores) != 1 or first.out.stores[0].plain != 0 or not second.hom.dims_of("pw"):
        return None
    store = first.out.stores[0]
    target = next((s for s in second.out.stores if s.buffer == store.buffer), None)
    if target is None or target.plain is None or store.at_last or target.at_last:
        return None
    component = target.plain
    initial = second.out.initial[component]
    if not isinstance(initial, Load) or initial.buffer != store.buffer or second.hom.dims_of("ps"):
        return None
    if any(as_affine(i) is None for i in initial.index) or affine_index(initial.index) != target.index:
        return None
    others = {b.name for b in first.buffers} - {store.buffer}
    if _reads(second, store.buffer) != 1 or written(second) & others:
        return None
    names = _matching(first, second, store.index, target.index)
    if names is None:
        return None
    value = _value(first, names)
    if value is None:
        return None
    t = second.buffer(target.buffer).type
    if value.type != t:
        if not isinstance(t, ScalarType):
            return None
        value = Cast(value, t)
    initials = tuple(value if c == component else e for c, e in enumerate(second.out.initial))
    params = {p.name: p for p in (*second.params, *first.params)}
    buffers = {b.name: b for b in (*second.buffers, *first.buffers)}
    functions = {f.name: f for f in (*second.functions, *first.functions)}
    return replace(
        second,
        params=tuple(params.values()),
        buffers=tuple(buffers.values()),
        functions=tuple(functions.values()),
        assumptions=tuple(dict.fromkeys((*second.assumptions, *first.assumptions))),
        out=replace(second.out, initial=initials),
    )


def _reads(p: MdhProgram, buffer: str) -> int:
    """How often a program mentions a buffer's values."""
    exprs: list[Expr] = [e for e in p.out.initial if e is not None]
    exprs += [s.value for s in p.out.stores] + list(p.hom.scalar.results)
    exprs += list(stmt_exprs(p.hom.scalar.body))
    loads = sum(isinstance(n, Load) and n.buffer == buffer for e in exprs for n in walk(e))
    return loads + sum(a.buffer == buffer for a in p.inp.accesses)


def _matching(
    first: MdhProgram, second: MdhProgram, one: tuple[Affine, ...], other: tuple[Affine, ...]
) -> dict[str, str] | None:
    """The dimension of ``second`` for each of ``first``, if both have the same positions."""
    mine = {d.name: d for d in first.hom.dims}
    theirs = {d.name: d for d in second.hom.dims_of("cc")}
    if len(mine) != len(theirs):
        return None
    names: dict[str, str] = {}
    for a, b in zip(one, other, strict=True):
        x, y = [n for n in a.names if n in mine], [n for n in b.names if n in theirs]
        if len(x) != len(y) or len(x) > 1:
            return None
        if x and names.setdefault(x[0], y[0]) != y[0]:
            return None
    if set(names) != set(mine) or set(names.values()) != set(theirs):
        return None
    renaming = {old: Affine.of(new) for old, new in names.items()}
    if tuple(a.substitute(renaming) for a in one) != other:
        return None
    if any(mine[old].size != theirs[new].size for old, new in names.items()):
        return None
    reduced = {d.name for d in second.hom.dims_of("pw")}
    position = {c for c in second.hom.domain if not c.names & reduced}
    return names if {c.renamed(names) for c in first.hom.domain} == position else None


def _value(p: MdhProgram, names: dict[str, str]) -> Expr | None:
    """What the program stores, as an expression over the other program's dimensions and memory."""
    renaming = {old: Affine.of(new) for old, new in names.items()}
    value = p.hom.scalar.results[0]
    if any(isinstance(n, Load) for n in walk(value)):
        return None  # at an index that depends on data

    def one(n: Expr) -> Expr | None:
        match n:
            case Operand(access=k):
                a = p.inp.accesses[k]
                return Load(a.buffer, tuple(affine_expr(i.substitute(renaming)) for i in a.index), n.type)
            case Var(name=name) if name in names:
                return replace(n, name=names[name])
            case Result():
                raise AssertionError(n)
        return None

    return rewrite(value, one)
