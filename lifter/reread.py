"""Costly values that an array holds already are read from it.

before   md_hom(i: cc, j: cc) stores y[i][j] = exp(x[i][j]);  md_hom(i: cc, j: pw(+)) of exp(x[i][j])
after    md_hom(i: cc, j: cc) stores y[i][j] = exp(x[i][j]);  md_hom(i: cc, j: pw(+)) of y[i][j]

The nest is run on symbols, so ``y[i][j] = exp(x[i][j]); s += y[i][j];`` gives two programs that both compute
the exponential.  An array costs the second one a read for each point; a function of the library, or a loop of
the user's, costs many times that.  In: the steps of a nest.  Out: the same steps, of which later ones read.

Shown right: the first program stores the value itself, in an array of its type, at every point of its box and
domain, which the second's points lie in; between the two nothing writes the array or what the value is
computed from, the first program itself included.  The second program does not write the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from lifter.absorb import written
from lifter.fusion import MAX_MATCHINGS, pruned
from lifter.trees import has_while
from mdh_core.expr import (
    Affine,
    Call,
    Expr,
    Function,
    Load,
    Operand,
    Var,
    affine_expr,
    as_affine,
    map_stmts,
    rewrite,
    stmt_exprs,
    walk,
)
from mdh_core.ir import Access, Buffer, HostLoop, InputView, MdhProgram, ScalarFunction, Step

CHEAP = {  # a few instructions each
    name + suffix
    for name in ("fabs", "fmin", "fmax", "sqrt", "copysign", "floor", "ceil", "trunc", "rint", "abs")
    for suffix in ("", "f")
}


def reread(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps; values that steps before them on the same level have stored are read."""
    done: list[Step] = []
    held: list[_Held] = []
    for s in steps:
        if isinstance(s, HostLoop):
            s = replace(s, body=reread(s.body))
        elif isinstance(s, MdhProgram):
            for h in held:
                s = _reading(s, h)
        held = [h for h in held if not (h.reads | {h.buffer.name}) & written(s)]
        if isinstance(s, MdhProgram):
            held += _held(s)
        done.append(s)
    return tuple(done)


@dataclass(frozen=True, slots=True)
class _Held:
    """``value``, with loads for operands, stands in ``buffer[index]`` at every point of the program."""

    program: MdhProgram
    buffer: Buffer
    index: tuple[Affine, ...]
    value: Expr

    @property
    def reads(self) -> set[str]:
        """What the value is computed from."""
        return {n.buffer for n in walk(self.value) if isinstance(n, Load)}


def _held(p: MdhProgram) -> Iterator[_Held]:
    """The costly values that a program leaves in arrays."""
    if p.hom.function is not None or p.hom.scalar.body:
        return
    for s in p.out.stores:
        if s.plain is None or s.at_last:
            continue
        e = p.hom.scalar.results[s.plain]
        found = _Held(p, p.buffer(s.buffer), s.index, _over_memory(p, e))
        if e.type == found.buffer.type and _is_costly(e, p.functions) and not found.reads & written(p):
            yield found


def _is_costly(value: Expr, functions: Sequence[Function]) -> bool:
    """Whether a value takes a function of the library that is not ``CHEAP``, or a loop."""
    own = {f.name: f for f in functions}
    calls = {n.function for n in walk(value) if isinstance(n, Call)}
    if calls - own.keys() - CHEAP:
        return True
    return any(
        has_while(f.body)
        or any(_is_costly(e, [g for g in functions if g != f]) for e in stmt_exprs(f.body))
        for name, f in own.items()
        if name in calls
    )


def _over_memory(p: MdhProgram, e: Expr) -> Expr:
    """An expression with loads for operands."""

    def load(n: Expr) -> Expr | None:
        if not isinstance(n, Operand):
            return None
        a = p.inp.accesses[n.access]
        return Load(a.buffer, tuple(map(affine_expr, a.index)), n.type)

    return rewrite(e, load)


def _reading(q: MdhProgram, held: _Held) -> MdhProgram:
    """The program, with a read where it computes the value."""
    if held.buffer.name in written(q):
        return q
    for names in _matchings(held.program, q):
        found = _matched(q, held, names)
        if found is not None:
            return found
    return q


def _matchings(p: MdhProgram, q: MdhProgram) -> Iterator[dict[str, str]]:
    """Names in ``q`` of the dimensions of ``p``, so that every point of ``q`` is one of ``p`` there."""
    mine, domain = p.hom.dims, set(q.hom.domain)
    for order in islice(permutations(q.hom.dims, len(mine)), MAX_MATCHINGS):
        names = {a.name: b.name for a, b in zip(mine, order, strict=True)}
        moved = {a: Affine.of(b) for a, b in names.items()}
        if all(a.size == b.size for a, b in zip(mine, order, strict=True)) and domain >= {
            c.substitute(moved) for c in p.hom.domain
        }:
            yield names


def _matched(q: MdhProgram, held: _Held, names: Mapping[str, str]) -> MdhProgram | None:
    moved = {a: Affine.of(b) for a, b in names.items()}
    known = {(a.buffer, a.index): k for k, a in enumerate(q.inp.accesses)}

    def there(n: Expr) -> Expr | None:
        if isinstance(n, Var) and n.name in names:
            return replace(n, name=names[n.name])
        if isinstance(n, Load):  # its subscripts have been renamed
            index = [as_affine(i) for i in n.index]
            number = known.get((n.buffer, tuple(i for i in index if i is not None)))
            return n if number is None or None in index else Operand(number, n.type)
        return None

    value = rewrite(held.value, there)
    own = Operand(len(q.inp.accesses), held.buffer.type)

    def read(e: Expr) -> Expr:
        return rewrite(e, lambda n: own if n == value else None)

    scalar = q.hom.scalar
    new = ScalarFunction(tuple(map(read, scalar.results)), map_stmts(scalar.body, read))
    if new == scalar or any(b.name == held.buffer.name and b != held.buffer for b in q.buffers):
        return None
    access = Access(held.buffer.name, tuple(i.substitute(moved) for i in held.index))
    buffers = q.buffers if held.buffer.name in {b.name for b in q.buffers} else (*q.buffers, held.buffer)
    params = {p.name: p for p in (*held.program.params, *q.params)}
    q = replace(
        q,
        hom=replace(q.hom, scalar=new),
        inp=InputView((*q.inp.accesses, access)),
        buffers=buffers,
        params=tuple(params.values()),
    )
    return pruned(q)
