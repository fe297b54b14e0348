"""Neighbouring ``md_hom``s that one sweep over memory could compute: found and recorded, never forced.

    fusion ::= Fusion(path, first, count, kinds, program, saved, unneeded, repeated)
    kind   ::= maps | epilogue | reductions | producer

    maps        t[i] = f(x[i]);  y[i] = g(t[i])         one scalar function, several stores
    epilogue    s[i] = sum_k …;  y[i] = g(s[i])         the stored value is g(result)
    reductions  s[i] = sum_k …;  m[i] = max_k …         one tuple operator
    producer    t[i,k] = f(x[i,k]);  s[i] = sum_k t[i,k]   f stands in the scalar function; t is a temporary,
                t[i] = f(x[i]);  y[i] = t[i-1] + t[i+1]    and may be read at several positions

``fusions`` takes the final steps of a nest and the temporaries of its kernel, and returns what may become one
program; ``fused`` applies one.  The fusions of a nest do not overlap: applied from the last to the first, all
of them may be.

A fused program reads before it writes.  So it is the two programs one after the other only where

* what the second reads of the first's stores is the very cell that the same point stored, which becomes
  the stored expression, and it reads no other cell that the first writes;
* what the first reads is written by the second at the same position at most, and not at all where it is
  read inside of a reduction;
* both write different cells, or the second overwrites the first's at the same position;
* both have the same points (of a producer: it has every point where it is read).

Buffers of different names are different memory in all that is lifted (the kernel tests it); those of one
name have to have one shape in both programs.  Reads keep their conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from lifter.polyhedral import Constraint, at_least, equal, satisfiable
from lifter.programs import called
from lifter.trees import declarations
from mdh_core.combine import CC, CombineFunction, CombineOp, tuple_operator
from mdh_core.expr import (
    LOGICAL,
    Affine,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Operand,
    Result,
    ScalarType,
    Select,
    Stmt,
    Var,
    While,
    affine_expr,
    as_affine,
    map_stmts,
    named_values,
    rewrite,
    stmt_exprs,
    straight_line,
    substitute,
    variables,
    walk,
)
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    HostLoop,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    Param,
    ScalarFunction,
    Sequential,
    Size,
    Step,
    Store,
)
from mdh_core.rules import verify

MAX_MATCHINGS = 24  # of dimensions, for a pair of programs
MAX_NODES = 400  # of an expression that takes the place of a read

Index = tuple[Affine, ...]
Cell = tuple[str, Index]
Rows = tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class Saving:
    """A pass over ``cells`` elements of a buffer that the fused program does not make.

    ``cells``: one size per dimension that the index mentions; a domain may leave some of them out.
    """

    buffer: str
    access: str  # "read" | "write"
    cells: tuple[Size, ...]
    bytes: int  # per cell

    def __str__(self) -> str:
        what = "reading" if self.access == "read" else "writing"
        return f"{what} `{self.buffer}` ({product_text(self.cells)} cells of {self.bytes} bytes)"


@dataclass(frozen=True, slots=True)
class Fusion:
    """``count`` neighbours, the first at ``path + (first,)`` in the steps, as one program.

    path      numbers of the host loops around them, outermost first
    kinds     how each program is joined to those before it
    unneeded  temporaries that nothing reads or writes any more
    repeated  a producer's values are computed as often as the product of these sizes; empty: once
    """

    path: tuple[int, ...]
    first: int
    count: int
    kinds: tuple[str, ...]
    program: MdhProgram
    saved: tuple[Saving, ...]
    unneeded: tuple[str, ...] = ()
    repeated: tuple[Size, ...] = ()


def product_text(sizes: Sequence[Size]) -> str:
    """``n*(m - 2)``; ``1`` for no sizes."""
    texts = (str(s) for s in sizes)
    return "*".join(f"({t})" if " " in t else t for t in texts) or "1"


def fusions(steps: Sequence[Step], temporaries: Sequence[Buffer]) -> tuple[Fusion, ...]:
    """What of the steps may be one program, in the order of the text."""
    touched = Counter(name for s in _leaves(steps) for name in {b.name for b in s.buffers})
    private = {b.name: touched[b.name] for b in temporaries}
    return tuple(_level(tuple(steps), (), (), private))


def fused(steps: Sequence[Step], fusion: Fusion) -> tuple[Step, ...]:
    """The steps with a fusion of theirs applied; the same value each time, as all points ask."""
    key = (id(fusion), *map(id, steps))
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = fusion, tuple(steps), _fused(tuple(steps), fusion, fusion.path)
    return _KNOWN[key][2]


# by identity; what it names lives as long
_KNOWN: dict[tuple[int, ...], tuple[Fusion, tuple[Step, ...], tuple[Step, ...]]] = {}
_MOST_KNOWN = 256


def neighbours(steps: Sequence[Step], fusion: Fusion) -> tuple[MdhProgram, ...]:
    """The programs that a fusion joins."""
    body = tuple(steps)
    for k in fusion.path:
        loop = body[k]
        assert isinstance(loop, HostLoop)
        body = loop.body
    return tuple(s for s in body[fusion.first : fusion.first + fusion.count] if isinstance(s, MdhProgram))


def _fused(steps: tuple[Step, ...], fusion: Fusion, path: tuple[int, ...]) -> tuple[Step, ...]:
    if not path:
        return (*steps[: fusion.first], fusion.program, *steps[fusion.first + fusion.count :])
    loop = steps[path[0]]
    assert isinstance(loop, HostLoop)
    inner = replace(loop, body=_fused(loop.body, fusion, path[1:]))
    return (*steps[: path[0]], inner, *steps[path[0] + 1 :])


def _leaves(steps: Iterable[Step]) -> Iterator[MdhProgram | Sequential]:
    for s in steps:
        if isinstance(s, HostLoop):
            yield from _leaves(s.body)
        else:
            yield s


def _level(
    steps: tuple[Step, ...], path: tuple[int, ...], facts: Rows, private: Mapping[str, int]
) -> Iterator[Fusion]:
    """``private``: temporaries, with the number of steps that touch them."""
    k = 0
    while k < len(steps):
        s = steps[k]
        if isinstance(s, HostLoop):
            inside = _box((Dim(s.iterator, s.size),))
            yield from _level(s.body, (*path, k), (*facts, *inside), private)
        elif isinstance(s, MdhProgram):
            found = _longest(steps, k, path, facts, private)
            if found is not None:
                yield found
                k += found.count - 1
        k += 1


def _longest(
    steps: tuple[Step, ...], k: int, path: tuple[int, ...], facts: Rows, private: Mapping[str, int]
) -> Fusion | None:
    """The longest run of fusible neighbours that begins at ``k``."""
    program = steps[k]
    assert isinstance(program, MdhProgram)
    touched = Counter(b.name for b in program.buffers)
    out: Fusion | None = None
    for count, other in enumerate(steps[k + 1 :], 2):
        if not isinstance(other, MdhProgram):
            break
        touched.update(b.name for b in other.buffers)
        own = frozenset(n for n, users in private.items() if touched[n] == users)
        join = joined(program, other, own, facts)
        if join is None:
            break
        program = join.program
        used = {b.name for b in program.buffers}
        out = Fusion(
            path,
            k,
            count,
            (*(out.kinds if out else ()), join.kind),
            program,
            (*(out.saved if out else ()), *join.saved),
            tuple(n for n in private if n in own and touched[n] and n not in used),
            (*(out.repeated if out else ()), *join.repeated),
        )
    return out


# --------------------------------------------------------------------------- two programs


@dataclass(frozen=True, slots=True)
class Joined:
    kind: str
    program: MdhProgram
    saved: tuple[Saving, ...]
    repeated: tuple[Size, ...] = ()


def joined(
    first: MdhProgram, second: MdhProgram, private: frozenset[str] = frozenset(), facts: Rows = ()
) -> Joined | None:
    """Both as one program, if that means the same and saves something.

    ``private``: temporaries that only these two touch; ``facts``: what is known of host iterators.
    """
    if not _compatible(first, second):
        return None
    found = []
    for build, names in _ways(first, second):
        pair = _Pair(first, _apart(second, names, first), private, facts)
        join = build(pair)
        if join is not None:
            found.append(join)
    return max(found, key=lambda j: len(j.saved), default=None)


def _ways(p: MdhProgram, q: MdhProgram) -> Iterator[tuple[Callable[[_Pair], Joined | None], dict[str, str]]]:
    """How to join two programs, and the names of the first's dimensions for the second's."""
    one, other = p.hom.function, q.hom.function
    if one is None:
        if other is None:
            yield from ((_maps, names) for names in _matchings(q.hom.dims, p.hom.dims))
        yield _producer, {}
    elif other is None:
        yield from ((_epilogue, names) for names in _matchings(q.hom.dims, p.hom.dims_of("cc", "ps")))
    elif not p.hom.dims_of("ps") and not q.hom.dims_of("ps"):
        for names in _matchings(q.hom.dims, p.hom.dims):
            if all(q.op(a).kind == p.op(b).kind for a, b in names.items()):
                yield _reductions, names


def _compatible(p: MdhProgram, q: MdhProgram) -> bool:
    """Does a name mean the same in both, and do they share something?"""
    if p.fp != q.fp or not p.hom.dims or not q.hom.dims or p.hom.scalar.results == ():
        return False
    mine, theirs = _named(p), _named(q)
    if any(mine[n] != theirs[n] for n in mine.keys() & theirs.keys()):
        return False
    dims = {d.name for d in p.hom.dims}, {d.name for d in q.hom.dims}
    if dims[0] & theirs.keys() or dims[1] & mine.keys():
        return False
    return bool({b.name for b in p.buffers} & {r.buffer for r in _reads(q)})


def _named(p: MdhProgram) -> dict[str, Param | Buffer | Function]:
    out: dict[str, Param | Buffer | Function] = {x.name: x for x in p.params}
    return out | {x.name: x for x in p.buffers} | {x.name: x for x in p.functions}


def _matchings(mine: Sequence[Dim], theirs: Sequence[Dim]) -> Iterator[dict[str, str]]:
    """Names of one program's dimensions for the other's, of the same sizes."""
    if len(mine) != len(theirs):
        return
    for order in islice(permutations(theirs), MAX_MATCHINGS):
        pairs = list(zip(mine, order, strict=True))
        if all(a.size == b.size for a, b in pairs):
            yield {a.name: b.name for a, b in pairs}


def _apart(q: MdhProgram, names: Mapping[str, str], p: MdhProgram) -> MdhProgram:
    """``q`` over ``p``'s dimensions; no local variable of its has a name that ``p`` uses."""
    taken = _taken(p) | ({d.name for d in q.hom.dims} | _named(q).keys())
    renaming = dict(names)
    for local in sorted(_locals(q)):
        renaming[local] = _fresh(local, taken)
    return _renamed(q, renaming)


def _taken(p: MdhProgram) -> set[str]:
    """All names that a program uses."""
    return {d.name for d in p.hom.dims} | _named(p).keys() | _locals(p)


def _locals(p: MdhProgram) -> set[str]:
    return {d.name for d in declarations(p.hom.scalar.body)}


def _fresh(name: str, taken: set[str]) -> str:
    new, count = name, 2
    while new in taken:
        new, count = f"{name}_{count}", count + 1
    taken.add(new)
    return new


def _renamed(p: MdhProgram, names: Mapping[str, str]) -> MdhProgram:
    """Dimensions and local variables with other names."""
    affine = {old: Affine.of(new) for old, new in names.items()}

    def index(i: Index) -> Index:
        return tuple(a.substitute(affine) for a in i)

    def one(n: Expr) -> Expr | None:
        return replace(n, name=names[n.name]) if isinstance(n, Var) and n.name in names else None

    def declared(s: Stmt) -> Stmt:
        match s:
            case Declare(name=name):
                return replace(s, name=names.get(name, name))
            case If(then=then, other=other):
                return replace(s, then=tuple(map(declared, then)), other=tuple(map(declared, other)))
            case While(body=inner):
                return replace(s, body=tuple(map(declared, inner)))
        return s

    scalar = ScalarFunction(
        tuple(rewrite(e, one) for e in p.hom.scalar.results),
        tuple(map(declared, map_stmts(p.hom.scalar.body, lambda e: rewrite(e, one)))),
    )
    hom = replace(
        p.hom,
        dims=tuple(replace(d, name=names.get(d.name, d.name)) for d in p.hom.dims),
        scalar=scalar,
        domain=tuple(c.substitute(affine) for c in p.hom.domain),
    )
    stores = tuple(
        replace(
            s,
            index=index(s.index),
            value=rewrite(s.value, one),
            at_last=tuple(names.get(n, n) for n in s.at_last),
        )
        for s in p.out.stores
    )
    initial = tuple(None if e is None else rewrite(e, one) for e in p.out.initial)
    inp = InputView(tuple(replace(a, index=index(a.index)) for a in p.inp.accesses))
    return replace(p, hom=hom, inp=inp, out=OutputView(initial, stores))


# --------------------------------------------------------------------------- reads and where they meet writes


@dataclass(frozen=True, slots=True)
class _Read:
    """``index``: None where it depends on data; ``inside``: of a scan or reduction, before its result."""

    buffer: str
    index: Index | None
    at_output: bool
    inside: bool

    @property
    def cell(self) -> Cell | None:
        return None if self.index is None else (self.buffer, self.index)


def _reads(p: MdhProgram) -> list[_Read]:
    inside = p.hom.function is not None
    out = [_Read(a.buffer, a.index, False, inside) for a in p.inp.accesses]
    for e in (*p.hom.scalar.results, *stmt_exprs(p.hom.scalar.body)):
        out += [_Read(n.buffer, None, False, inside) for n in walk(e) if isinstance(n, Load)]
    for at in (*p.out.initial, *(s.value for s in p.out.stores)):
        if at is not None:
            out += [_Read(n.buffer, _affine(n), True, False) for n in walk(at) if isinstance(n, Load)]
    return list(dict.fromkeys(out))


def _affine(load: Load) -> Index | None:
    found = [as_affine(i) for i in load.index]
    return None if None in found else tuple(a for a in found if a is not None)


def _box(dims: Iterable[Dim], names: Mapping[str, str] | None = None) -> Rows:
    out: list[Constraint] = []
    for d in dims:
        i = Affine.of((names or {}).get(d.name, d.name))
        out += [at_least(i), at_least(d.size.span - 1 - i * d.size.step)]
    return tuple(out)


def _positional(p: MdhProgram) -> Rows:
    reduced = {d.name for d in p.hom.dims_of("pw")}
    return tuple(c for c in p.hom.domain if not c.names & reduced)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two programs; the dimensions of the second have the names of the first's (not of a producer's)."""

    first: MdhProgram
    second: MdhProgram
    private: frozenset[str]
    facts: Rows

    @property
    def context(self) -> Rows:
        return (*self.facts, *map(at_least, (*self.first.assumptions, *self.second.assumptions)))

    def meet(self, f: MdhProgram, read: _Read, store: Store, elsewhere: bool) -> bool:
        """May the read be of a cell that is stored (``elsewhere``: at another position) in ``f``?"""
        if read.buffer != store.buffer:
            return False
        if read.index is None:
            return True
        kept = f.hom.dims_of("cc", "ps")
        rows = [*self.context, *_box(kept if read.at_output else f.hom.dims)]
        rows += _positional(f) if read.at_output else f.hom.domain
        rows += self.places(f, store)
        rows += [equal(i, _primed(j, kept)) for i, j in zip(read.index, store.index, strict=True)]
        if not elsewhere:
            return satisfiable(rows)
        steps = [Affine.of(d.name) - Affine.of(_prime(d.name)) for d in kept]
        return any(satisfiable([*rows, at_least(way, 1)]) for s in steps for way in (s, -s))

    def places(self, f: MdhProgram, store: Store) -> Rows:
        """Where a store writes, over primed names."""
        kept = f.hom.dims_of("cc", "ps")
        names = {d.name: _prime(d.name) for d in kept}
        rows = [*_box(kept, names), *(c.renamed(names) for c in _positional(f))]
        for d in kept:
            if d.name in store.at_last and d.size.step == 1:
                rows.append(equal(Affine.of(_prime(d.name)), d.size.span - 1))
        return tuple(rows)

    def both_write(self, f: MdhProgram, a: Store, b: Store) -> bool:
        if a.buffer != b.buffer:
            return False
        kept = f.hom.dims_of("cc", "ps")
        rows = [*self.context, *_box(kept), *_positional(f), *self.places(f, b)]
        return satisfiable(
            [*rows, *(equal(i, _primed(j, kept)) for i, j in zip(a.index, b.index, strict=True))]
        )

    def same_points(self, ours: Rows, theirs: Rows, dims: Sequence[Dim]) -> bool:
        """Do two domains cut the same points out of the box?"""
        return self.covers(ours, theirs, dims) and self.covers(theirs, ours, dims)

    def covers(self, outer: Rows, inner: Rows, dims: Sequence[Dim]) -> bool:
        base = (*self.context, *_box(dims), *inner)
        return not any(satisfiable((*base, no)) for c in outer if c not in inner for no in _negations(c))

    def given(self, f: MdhProgram) -> dict[Cell, Store]:
        """The cells that the first program stores at the very point, as ``f`` indexes them."""
        return {(s.buffer, s.index): s for s in self.first.out.stores if not s.at_last}

    def kept(self, left: Sequence[_Read], f: MdhProgram) -> list[Store] | None:
        """The first program's stores that are still needed; None where the second's are in the way.

        ``left``: what the second reads from memory all the same.  A temporary that the first reads has its
        values from an earlier iteration of a host loop, so that a later one may need them as well.
        """
        read = {r.buffer for r in (*left, *_reads(self.first))}
        theirs = {s.buffer for s in self.second.out.stores}
        out = []
        for s in self.first.out.stores:
            over = [t for t in self.second.out.stores if _overwrites(t, s)]
            if any(self.both_write(f, s, t) for t in self.second.out.stores if t not in over):
                return None
            if not over and (s.buffer not in self.private or s.buffer in read | theirs):
                out.append(s)
        return out

    def in_order(self, f: MdhProgram, left: Sequence[_Read], mine: Sequence[_Read]) -> bool:
        """Is every remaining read of either program in ``f`` one of the value that it read before?"""
        stored = any(self.meet(f, r, s, elsewhere=False) for r in left for s in self.first.out.stores)
        return not stored and not any(
            self.meet(f, r, s, elsewhere=not r.inside) for r in mine for s in self.second.out.stores
        )

    def finished(
        self, kind: str, f: MdhProgram, saved: Sequence[Saving], repeated: Sequence[Size] = ()
    ) -> Joined | None:
        """The joined program without what it does not mention; None where it is useless or malformed."""
        if not any(s.cells for s in saved):
            return None
        f = pruned(f)
        return None if verify(f) else Joined(kind, f, tuple(dict.fromkeys(saved)), tuple(repeated))

    def saving(self, p: MdhProgram, cell: Cell, access: str = "read") -> Saving:
        buffer, index = cell
        mentioned = {n for a in index for n in a.names}
        cells = tuple(d.size for d in p.hom.dims if d.name in mentioned)
        return Saving(buffer, access, cells, p.buffer(buffer).type.size)

    def savings(
        self, f: MdhProgram, given: Mapping[Cell, Store], kept: Sequence[Store], left: Sequence[_Read]
    ) -> list[Saving]:
        """Values passed on, stores left out, and cells that both read."""
        passed = [r.cell for r in _reads(self.second) if r.cell in given]
        mine = {r.cell for r in _reads(self.first)}
        shared = [r.cell for r in left if r.cell in mine]
        out = [self.saving(self.first, c) for c in (*passed, *shared) if c is not None]
        dropped = [s for s in self.first.out.stores if s not in kept]
        return out + [self.saving(self.first, (s.buffer, s.index), "write") for s in dropped]

    def merged(self, hom: MdHom, inp: InputView, out: OutputView) -> MdhProgram:
        p, q = self.first, self.second
        return replace(
            p,
            params=tuple({x.name: x for x in (*p.params, *q.params)}.values()),
            buffers=tuple({x.name: x for x in (*p.buffers, *q.buffers)}.values()),
            functions=tuple({x.name: x for x in (*p.functions, *q.functions)}.values()),
            assumptions=tuple(dict.fromkeys((*p.assumptions, *q.assumptions))),
            hom=hom,
            inp=inp,
            out=out,
        )


def _overwrites(second: Store, first: Store) -> bool:
    same = (second.buffer, second.index) == (first.buffer, first.index)
    return same and not first.at_last and not second.at_last


def _prime(name: str) -> str:
    return f"{name}'"


def _primed(a: Affine, dims: Sequence[Dim]) -> Affine:
    return a.substitute({d.name: Affine.of(_prime(d.name)) for d in dims})


def _negations(c: Constraint) -> list[Constraint]:
    below = at_least(-c.value, 1)
    return [below, at_least(c.value, 1)] if c.equality else [below]


# --------------------------------------------------------------------------- expressions


class _Operands:
    """The accesses of a fused program; one that is read without a condition anywhere has none."""

    def __init__(self, accesses: Iterable[Access] = ()) -> None:
        self.accesses = list(accesses)

    def number(self, a: Access) -> int:
        for k, b in enumerate(self.accesses):
            if (a.buffer, a.index) == (b.buffer, b.index):
                self.accesses[k] = replace(b, conditional=a.conditional and b.conditional)
                return k
        self.accesses.append(a)
        return len(self.accesses) - 1


def _placed(
    e: Expr, operands: Sequence[Expr], results: Sequence[Expr], load: Callable[[Load], Expr]
) -> Expr:
    def one(n: Expr) -> Expr | None:
        match n:
            case Operand(access=k):
                return operands[k]
            case Result(component=c):
                return results[c]
            case Load():
                return load(n)
        return None

    return rewrite(e, one)


def _same(n: Load) -> Expr:
    return n


def _lazy(e: Expr) -> bool:
    """Is a part of it evaluated under a condition?"""
    return any(isinstance(n, Select) or (isinstance(n, Binary) and n.op in LOGICAL) for n in walk(e))


def _plain(scalar: ScalarFunction) -> tuple[Expr, ...] | None:
    """The results without local variables; None where the body does more than name values."""
    if not straight_line(scalar.body):
        return None
    values: dict[str, Expr] = {}
    for name, t, value in named_values(scalar.body):
        if value.type != t:
            return None
        values[name] = substitute(value, values)
        if sum(1 for _ in walk(values[name])) > MAX_NODES:
            return None
    return tuple(substitute(e, values) for e in scalar.results)


def pruned(f: MdhProgram) -> MdhProgram:
    """Without operands, buffers, parameters and functions that nothing mentions."""
    exprs = [*f.hom.scalar.results, *stmt_exprs(f.hom.scalar.body)]
    used = sorted({n.access for e in exprs for n in walk(e) if isinstance(n, Operand)})
    numbers = {old: new for new, old in enumerate(used)}

    def one(n: Expr) -> Expr | None:
        return replace(n, access=numbers[n.access]) if isinstance(n, Operand) else None

    scalar = ScalarFunction(
        tuple(rewrite(e, one) for e in f.hom.scalar.results),
        map_stmts(f.hom.scalar.body, lambda e: rewrite(e, one)),
    )
    inp = InputView(tuple(f.inp.accesses[k] for k in used))
    f = replace(f, hom=replace(f.hom, scalar=scalar), inp=inp)
    exprs += [e for e in (*f.out.initial, *(s.value for s in f.out.stores)) if e is not None]
    touched = {a.buffer for a in inp.accesses} | {s.buffer for s in f.out.stores}
    touched |= {n.buffer for e in exprs for n in walk(e) if isinstance(n, Load)}
    buffers = tuple(b for b in f.buffers if b.name in touched)
    affine = [d.size.span for d in f.hom.dims] + [c.value for c in f.hom.domain] + list(f.assumptions)
    affine += [i for a in inp.accesses for i in a.index] + [i for s in f.out.stores for i in s.index]
    affine += [a for b in buffers for a in (*b.extents, *(b.strides or ())) if a is not None]
    names = {n for a in affine for n in a.names} | {v for e in exprs for v in variables(e)}
    params = tuple(p for p in f.params if p.name in names)
    functions = called(exprs, {g.name: g for g in f.functions}, f)
    return replace(f, buffers=buffers, params=params, functions=functions)


# --------------------------------------------------------------------------- the kinds


def _maps(pair: _Pair) -> Joined | None:
    """Two maps: the components are the values of the stores; a value that is read again has a name."""
    p, q = pair.first, pair.second
    if not pair.same_points(p.hom.domain, q.hom.domain, p.hom.dims):
        return None
    given = pair.given(p)
    left = [r for r in _reads(q) if r.cell not in given]
    kept = pair.kept(left, p)
    if kept is None or not pair.in_order(p, left, _reads(p)):
        return None
    operands = _Operands(p.inp.accesses)
    body = list(p.hom.scalar.body)
    values: dict[Cell, Expr] = {}
    taken = _taken(p) | _taken(q)
    passed = Counter(r.cell for r in _reads(q))
    mine: list[Expr] = []
    for s in p.out.stores:
        value = _stored(s, p.hom.scalar.results, operands, {})
        if value is None:
            return None
        if passed[(s.buffer, s.index)] and not isinstance(value, Var | Operand | Const):
            local = _fresh(s.buffer, taken)
            body.append(Declare(local, value.type, value))
            value = Var(local, value.type)
        values[(s.buffer, s.index)] = value
        if s in kept:
            mine.append(value)
    here = {cell: values[cell] for cell in given}
    theirs = [_read_as(a, q.buffer(a.buffer), operands, here) for a in q.inp.accesses]
    body += map_stmts(q.hom.scalar.body, lambda e: _placed(e, theirs, (), _same))
    results = [_placed(e, theirs, (), _same) for e in q.hom.scalar.results]
    for s in q.out.stores:
        value = _stored(s, results, operands, here)
        if value is None:
            return None
        mine.append(value)
    components = list(dict.fromkeys(mine))
    stores = tuple(
        replace(s, value=Result(components.index(v), v.type))
        for s, v in zip((*kept, *q.out.stores), mine, strict=True)
    )
    hom = replace(p.hom, scalar=ScalarFunction(tuple(components), tuple(body)))
    out = OutputView((None,) * len(components), stores)
    f = pair.merged(hom, InputView(tuple(operands.accesses)), out)
    return pair.finished("maps", f, pair.savings(f, given, kept, left))


def _read_as(a: Access, b: Buffer, operands: _Operands, values: Mapping[Cell, Expr]) -> Expr:
    value = values.get((a.buffer, a.index))
    return Operand(operands.number(a), b.type) if value is None else value


def _stored(
    s: Store, results: Sequence[Expr], operands: _Operands, values: Mapping[Cell, Expr]
) -> Expr | None:
    """What a map stores, as a result of the scalar function; loads at the position become operands."""
    lazy = _lazy(s.value)
    if any(isinstance(n, Load) and _affine(n) is None for n in walk(s.value)):
        return None

    def load(n: Load) -> Expr:
        index = _affine(n)
        assert index is not None
        value = values.get((n.buffer, index))
        return Operand(operands.number(Access(n.buffer, index, lazy)), n.type) if value is None else value

    return _placed(s.value, (), results, load)


def _epilogue(pair: _Pair) -> Joined | None:
    """A map over what a reduction or scan keeps: its function stands in the stored values."""
    p, q = pair.first, pair.second
    results = _plain(q.hom.scalar)
    reduced = p.hom.dims_of("pw")
    if results is None or any(a.conditional for a in q.inp.accesses):
        return None  # what a store reads has no mark of being conditional
    if reduced and any(e is None for e in p.out.initial):
        return None  # nothing may be stored where there is no point
    if not pair.same_points(_positional(p), q.hom.domain, p.hom.dims_of("cc", "ps")):
        return None
    given = pair.given(p)
    left = [
        r if r.index is None else replace(r, at_output=True) for r in _reads(q) if r.cell not in given
    ]
    if any(r.index is None for r in left):
        return None
    kept = pair.kept(left, p)
    if kept is None or not pair.in_order(p, left, _reads(p)):
        return None
    reads = [_load_as(a, q.buffer(a.buffer), given) for a in q.inp.accesses]
    values = [_placed(e, reads, (), _same) for e in results]
    stores = tuple(
        replace(s, value=_placed(s.value, (), values, lambda n: _given_load(n, given))) for s in q.out.stores
    )
    if any(sum(1 for _ in walk(s.value)) > MAX_NODES for s in stores):
        return None
    f = pair.merged(p.hom, p.inp, OutputView(p.out.initial, (*kept, *stores)))
    return pair.finished("epilogue", f, pair.savings(f, given, kept, left))


def _load_as(a: Access, b: Buffer, given: Mapping[Cell, Store]) -> Expr:
    store = given.get((a.buffer, a.index))
    return Load(a.buffer, tuple(map(affine_expr, a.index)), b.type) if store is None else store.value


def _given_load(n: Load, given: Mapping[Cell, Store]) -> Expr:
    index = _affine(n)
    store = None if index is None else given.get((n.buffer, index))
    return n if store is None else store.value


def _reductions(pair: _Pair) -> Joined | None:
    """Two reductions over the same points: one tuple operator."""
    p, q = pair.first, pair.second
    f, g = p.hom.function, q.hom.function
    assert f is not None and g is not None
    if (p.out.initial[0] is None) != (q.out.initial[0] is None):
        return None
    if not (f.commutative and g.commutative) or (p.fp == "exact" and not (f.exact and g.exact)):
        return None  # each keeps its own order
    if not pair.same_points(p.hom.domain, q.hom.domain, p.hom.dims):
        return None
    given = pair.given(p)
    if any(_overwrites(t, s) for s in p.out.stores for t in q.out.stores):
        return None  # where there is no point, the second may store nothing
    before = {(n.buffer, _affine(n)) for e in q.out.initial if e for n in walk(e) if isinstance(n, Load)}
    left = [r for r in _reads(q) if not r.at_output or r.cell not in given or r.cell in before]
    kept = pair.kept(left, p)
    if kept is None or not pair.in_order(p, left, _reads(p)):
        return None
    operands = _Operands(p.inp.accesses)
    reads = [_read_as(a, q.buffer(a.buffer), operands, {}) for a in q.inp.accesses]
    count = len(p.hom.scalar.results)
    shifted = [Result(c + count, e.type) for c, e in enumerate(q.hom.scalar.results)]
    stores = tuple(
        replace(s, value=_placed(s.value, (), shifted, lambda n: _given_load(n, given))) for s in q.out.stores
    )
    scalar = ScalarFunction(
        (*p.hom.scalar.results, *(_placed(e, reads, (), _same) for e in q.hom.scalar.results)),
        (*p.hom.scalar.body, *map_stmts(q.hom.scalar.body, lambda e: _placed(e, reads, (), _same))),
    )
    both = tuple_operator((f, g))
    hom = replace(p.hom, scalar=scalar, combine=tuple(_with(op, both) for op in p.hom.combine))
    out = OutputView((*p.out.initial, *q.out.initial), (*kept, *stores))
    fusion = pair.merged(hom, InputView(tuple(operands.accesses)), out)
    return pair.finished("reductions", fusion, pair.savings(fusion, {}, kept, left))


def _with(op: CombineOp, f: CombineFunction) -> CombineOp:
    return op if op == CC else replace(op, function=f)


def _producer(pair: _Pair) -> Joined | None:
    """A map whose results are temporaries of the second program alone: computed where they are read."""
    p, q = pair.first, pair.second
    made = {s.buffer: s for s in p.out.stores}
    values = _plain(p.hom.scalar)
    if values is None or len(made) != len(p.out.stores) or not made.keys() <= pair.private:
        return None
    touched = {s.buffer for s in q.out.stores} | {r.buffer for r in _reads(p)}
    if any(s.at_last for s in p.out.stores) or made.keys() & touched:
        return None
    operands = _Operands()
    repeated: list[Size] = []
    placed: dict[tuple[tuple[str, Affine], ...], None] = {}  # in the order of the reads

    def produced(read: Access) -> Expr | None:
        at = _solved(made[read.buffer].index, read.index, p, q)
        if at is None or not pair.covers(_where(p, at), q.hom.domain, q.hom.dims):
            return None
        placed[tuple(sorted(at.items()))] = None
        accesses = [
            Access(a.buffer, tuple(x.substitute(at) for x in a.index), a.conditional or read.conditional)
            for a in p.inp.accesses
        ]
        mine = [Operand(operands.number(a), p.buffer(a.buffer).type) for a in accesses]
        (store,) = (s for s in p.out.stores if s.buffer == read.buffer)
        results = [_placed(_moved(e, at), mine, (), _same) for e in values]
        return _stored(replace(store, value=_moved(store.value, at)), results, operands, {})

    left = [r for r in _reads(q) if r.buffer not in made]
    if any(r.at_output or r.index is None for r in _reads(q) if r.buffer in made):
        return None
    reads: list[Expr] = []
    for a in q.inp.accesses:
        value = produced(a) if a.buffer in made else _read_as(a, q.buffer(a.buffer), operands, {})
        if value is None:
            return None
        reads.append(value)
    scalar = ScalarFunction(
        tuple(_placed(e, reads, (), _same) for e in q.hom.scalar.results),
        map_stmts(q.hom.scalar.body, lambda e: _placed(e, reads, (), _same)),
    )
    if sum(1 for e in (*scalar.results, *stmt_exprs(scalar.body)) for _ in walk(e)) > MAX_NODES:
        return None
    merged = pair.merged(replace(q.hom, scalar=scalar), InputView(tuple(operands.accesses)), q.out)
    merged = replace(merged, name=q.name, span=q.span)
    mine = [replace(r, inside=q.hom.function is not None) for r in _reads(pruned(merged)) if not r.at_output]
    if any(pair.meet(q, r, s, elsewhere=not r.inside) for r in mine if r not in left for s in q.out.stores):
        return None
    saved = [pair.saving(q, r.cell) for r in _reads(q) if r.buffer in made and r.cell is not None]
    saved += [pair.saving(p, (s.buffer, s.index), "write") for s in p.out.stores]
    for at in placed:
        used = {n for _, a in at for n in a.names}
        again = [d.size for d in q.hom.dims if d.name not in used]
        repeated = max(repeated, again, key=len)
    if len(placed) > 1:
        repeated.append(Size(Affine.number(len(placed))))
    return pair.finished("producer", merged, saved, repeated)


def _solved(stored: Index, read: Index, p: MdhProgram, q: MdhProgram) -> dict[str, Affine] | None:
    """The point of ``p``, in the dimensions of ``q``, at which ``p`` stores the cell that ``q`` reads.

    One dimension of ``q`` for each of ``p``'s, and a distance.
    """
    at: dict[str, Affine] = {}
    mine, theirs = {d.name for d in p.hom.dims}, {d.name for d in q.hom.dims}
    for a, b in zip(stored, read, strict=True):
        x, y = [n for n in a.names if n in mine], [n for n in b.names if n in theirs]
        if len(x) != len(y) or len(x) > 1:
            return None
        if not x:
            continue
        (i,), (j,) = x, y
        c = a.coefficient(i)
        away = b.substitute({j: Affine.number(0)}) - a.substitute({i: Affine.number(0)})
        if b.coefficient(j) != c or any(n % c for n in (away.const, *(n for _, n in away.terms))):
            return None
        value = Affine.of(j) + Affine(tuple((n, k // c) for n, k in away.terms), away.const // c)
        if at.setdefault(i, value) != value:
            return None
    if at.keys() != mine or tuple(a.substitute(at) for a in stored) != read:
        return None
    return at


def _moved(e: Expr, at: Mapping[str, Affine]) -> Expr:
    """An expression over the dimensions of one program at a point of another."""

    def one(n: Expr) -> Expr | None:
        if not isinstance(n, Var) or n.name not in at:
            return None
        value = affine_expr(at[n.name])
        return Cast(value, n.type) if isinstance(n.type, ScalarType) and n.type != value.type else value

    return rewrite(e, one)


def _where(p: MdhProgram, at: Mapping[str, Affine]) -> Rows:
    """The points of ``p`` over the other program's dimensions."""
    return tuple(c.substitute(dict(at)) for c in (*_box(p.hom.dims), *p.hom.domain))
