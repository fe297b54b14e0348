"""Values that a temporary only carries to an array are stored in the array.

before   T[0] = s;  md_hom(i < n: ps(+)) from T[0] stores T[i + 1];  md_hom(i < n: cc) stores A[i] = T[i]
after    A[0] = s if 0 < n;  md_hom(i < n - 1: ps(+)) from s stores A[i + 1]

An exclusive scan (``A[i] = run; run += x[i];``) is lifted to the first form: the running value gets an array,
as it is needed before and after its change.  In: the steps of a nest and its temporaries.  Out: steps without
such temporaries.  Shown right: the copy takes the value of each cell from the same position, so what it would
store is what the programs before it store, of which cells that it does not take are left out.  Nothing from
the first of these programs to the copy may touch the array otherwise, and nothing else read the temporary.
Cells of ``ps`` dimensions are left out at the end only, where nothing depends on them.

``without_unread`` leaves out what fills temporaries that nothing reads afterwards: the last value of a
variable that two branches compute, once it went on to an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mdh_core.expr import Affine, Constraint, Expr, Load, Operand, as_affine, rewrite, walk
from mdh_core.ir import Buffer, Dim, HostLoop, MdHom, MdhProgram, Size, Step, Store, read_buffers


def forwarded(steps: Sequence[Step], temporaries: Sequence[Buffer]) -> tuple[Step, ...]:
    """The steps; those that fill a temporary, and the one that copies it, as steps that fill the array."""
    out = tuple(steps)
    for t in temporaries:
        found = _without(out, t) if t.rank else None
        out = out if found is None else found
    return out


def without_unread(steps: Sequence[Step], temporaries: Sequence[Buffer]) -> tuple[Step, ...]:
    """The steps without programs that only fill temporaries which no step reads afterwards."""
    return _needed(steps, {b.name for b in temporaries}, frozenset())


def _needed(steps: Sequence[Step], own: set[str], after: frozenset[str]) -> tuple[Step, ...]:
    """``after``: what is read behind the steps, or in another iteration of the loop around them."""
    out: list[Step] = []
    for s in reversed(steps):
        if isinstance(s, HostLoop):
            s = replace(s, body=_needed(s.body, own, after | _read(s)))
            if not s.body:
                continue
        elif isinstance(s, MdhProgram):
            stored = {x.buffer for x in s.out.stores}
            if stored <= own and not stored & after:
                continue
        after |= _read(s)
        out.append(s)
    return tuple(reversed(out))


def _read(s: Step) -> frozenset[str]:
    if isinstance(s, HostLoop):
        return frozenset().union(*map(_read, s.body))
    return frozenset(read_buffers(s) if isinstance(s, MdhProgram) else (b.name for b in s.buffers))


@dataclass(frozen=True, slots=True)
class _Copy:
    """``array[i] = temporary[i]`` for each ``i`` in the box of ``spans``."""

    program: MdhProgram
    array: Buffer
    spans: tuple[Affine, ...]


def _copy(p: MdhProgram, temporary: Buffer) -> _Copy | None:
    """The program as a copy of a temporary from its first cell on, position by position."""
    hom, stores = p.hom, p.out.stores
    if hom.function is not None or hom.domain or hom.scalar.body or len(stores) != 1:
        return None
    if len(p.inp.accesses) != 1 or stores[0].plain != 0:
        return None
    (access,), (store,), (result,) = p.inp.accesses, stores, hom.scalar.results
    if not isinstance(result, Operand) or access.buffer != temporary.name or access.conditional:
        return None
    names = [d.name for d in hom.dims]
    if access.index != store.index or sorted(access.index, key=str) != sorted(map(Affine.of, names), key=str):
        return None
    array = p.buffer(store.buffer)
    if array.type != temporary.type or any(d.size.step != 1 for d in hom.dims):
        return None
    sizes = {Affine.of(d.name): d.size.span for d in hom.dims}
    return _Copy(p, array, tuple(sizes[a] for a in access.index))


def _without(steps: tuple[Step, ...], temporary: Buffer) -> tuple[Step, ...] | None:
    """The steps without the temporary, or None where it is needed."""
    users = [k for k, s in enumerate(steps) if _mentions(s, temporary.name)]
    if len(users) < 2:
        return None
    last = steps[users[-1]]
    copy = _copy(last, temporary) if isinstance(last, MdhProgram) else None
    if copy is None:
        return None
    if any(_mentions(s, copy.array.name) for s in steps[users[0] : users[-1]]):
        return None
    out: list[Step] = list(steps)
    begun: dict[tuple[Affine, ...], Expr] = {}
    known = {b.name: b for s in steps if isinstance(s, MdhProgram) for b in s.buffers}
    for k in users[:-1]:
        s = out[k]
        filled = _filled(s, temporary, copy, begun, known) if isinstance(s, MdhProgram) else None
        if filled is None:
            return None
        out[k] = filled
        value = _single_value(filled)
        if value is not None and not _changed(value, steps[k : users[-1]]):
            begun[filled.out.stores[0].index] = value
    del out[users[-1]]
    return tuple(out)


def _mentions(s: Step, buffer: str) -> bool:
    if isinstance(s, MdhProgram):
        used = read_buffers(s) | {x.buffer for x in s.out.stores}
        return buffer in used
    if isinstance(s, HostLoop):
        return any(_mentions(x, buffer) for x in s.body)
    return buffer in {b.name for b in s.buffers}


def _changed(value: Expr, steps: Sequence[Step]) -> bool:
    """Whether one of the steps writes what a value is read from."""
    read = {n.buffer for n in walk(value) if isinstance(n, Load)}
    return any(
        not isinstance(s, MdhProgram) or any(x.buffer in read for x in s.out.stores) for s in steps
    )


def _single_value(p: MdhProgram) -> Expr | None:
    """What a program without dimensions stores, as an expression over memory."""
    if p.hom.dims or p.hom.scalar.body or len(p.out.stores) != 1 or p.out.stores[0].plain != 0:
        return None

    def one(n: Expr) -> Expr | None:
        if isinstance(n, Operand):
            a = p.inp.accesses[n.access]
            return None if a.index else Load(a.buffer, (), n.type)
        return None

    value = rewrite(p.hom.scalar.results[0], one)
    return None if any(isinstance(n, Operand) for n in walk(value)) else value


def _filled(
    p: MdhProgram,
    temporary: Buffer,
    copy: _Copy,
    begun: dict[tuple[Affine, ...], Expr],
    known: dict[str, Buffer],
) -> MdhProgram | None:
    """A program that stores cells of the temporary as one that stores those that the copy takes.

    begun   what cells of the temporary hold already, as expressions over the ``known`` buffers
    """
    if len(p.out.stores) != 1 or p.out.stores[0].buffer != temporary.name or p.out.stores[0].plain is None:
        return None
    store = p.out.stores[0]
    if store.at_last or any(a.buffer == temporary.name for a in p.inp.accesses):
        return None
    limits = _limits(p, store, copy)
    if limits is None:
        return None
    p = replace(p, hom=limits)

    def one(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer == temporary.name:
            index = tuple(as_affine(i) for i in n.index)
            affine = tuple(a for a in index if a is not None)
            return begun.get(affine) if len(affine) == len(index) else None
        return None

    initial = tuple(None if e is None else rewrite(e, one) for e in p.out.initial)
    p = replace(p, out=replace(p.out, initial=initial, stores=(replace(store, buffer=copy.array.name),)))
    if temporary.name in read_buffers(p):
        return None
    params = {x.name: x for x in (*p.params, *copy.program.params)}
    buffers = tuple(known[name] for name in dict.fromkeys((copy.array.name, *sorted(read_buffers(p)))))
    assumptions = tuple(dict.fromkeys((*p.assumptions, *copy.program.assumptions)))
    return replace(p, buffers=buffers, params=tuple(params.values()), assumptions=assumptions)


def _limits(p: MdhProgram, store: Store, copy: _Copy) -> MdHom | None:
    """The program's dimensions and domain, for the cells of the box only; None: it has no such form."""
    hom = p.hom
    dims, domain = {d.name: d for d in hom.dims}, list(hom.domain)
    for a, span in zip(store.index, copy.spans, strict=True):
        if not a.names & dims.keys():
            if not a.is_constant or a.const < 0:
                return None
            domain.append(Constraint(span - 1 - a))
            continue
        ((name, factor),) = a.terms if len(a.terms) == 1 else (("", 0),)
        if name not in dims or factor != 1 or a.const < 0 or dims[name].size.step != 1:
            return None
        if p.op(name).kind == "pw":
            return None
        beyond = dims[name].size.span + a.const - span  # cells that the copy does not take
        if not beyond.is_constant:
            return None
        if beyond.const > 0:
            dims[name] = Dim(name, Size(span - a.const))
    return replace(hom, dims=tuple(dims.values()), domain=tuple(domain))
