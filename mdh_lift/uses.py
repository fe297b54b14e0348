"""Every place where the steps of a nest touch a buffer, with the points at which they do.

    use ::= Use(buffer, index: (Affine | expr)*, points: Constraint*)      # expr: the index is not affine

``points`` are constraints over the dimensions, the iterators of host loops and the parameters; ``bounds``
of ``lifter.polyhedral`` then gives exact ranges, sizes that change with outer iterators included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from emit.host_text import Leaf, Loops, known_index
from lowering.histogram import one_hot
from mdh_core.expr import (
    BOOL,
    INT64,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Constraint,
    Declare,
    Expr,
    If,
    Load,
    Operand,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    children,
    rewrite,
    stmt_exprs,
    substitute,
    variables,
    walk,
)
from mdh_core.guarded import conjuncts
from mdh_core.ir import MdhProgram, Size, Store

Points = tuple[Constraint, ...]
_SHIFT = 64  # the greatest first index that is looked for (1 for arrays that count from 1)
_SCALE = 1 << 16  # the greatest factor by which indices are divided


@dataclass(frozen=True, slots=True)
class Use:
    """``conditional``: it need not take place where it would leave the buffer."""

    buffer: str
    index: tuple[Affine | Expr, ...]
    points: Points
    conditional: bool = False


def iterations(loops: Loops) -> Points:
    """All values of the iterators."""
    return tuple(c for x in loops for c in counts(x.iterator, x.size))


def counts(name: str, size: Size) -> Points:
    """``0 <= name < ceil(span / step)``."""
    i = Affine.of(name)
    return (Constraint(i), Constraint(size.span - 1 - i * size.step))


def uses(leaf: Leaf, loops: Loops) -> Iterator[Use]:
    """All uses of a program or sequential part, in any order."""
    known = {p.name for p in leaf.params if isinstance(p.type, ScalarType) and p.type.is_integer}
    known |= {x.iterator for x in loops}
    if isinstance(leaf, MdhProgram):
        yield from _of_program(leaf, iterations(loops), known)
        return
    values = _locals(leaf.body)
    for e in stmt_exprs(leaf.body):
        yield from _loads(substitute(e, values), known, iterations(loops), True)


def _of_program(p: MdhProgram, outer: Points, known: set[str]) -> Iterator[Use]:
    every = (*outer, *(c for d in p.hom.dims for c in counts(d.name, d.size)), *p.hom.domain)
    names = known | {d.name for d in p.hom.dims}
    for a in p.inp.accesses:
        yield Use(a.buffer, a.index, every, a.conditional)
    values = _locals(p.hom.scalar.body)
    for e in (*stmt_exprs(p.hom.scalar.body), *p.hom.scalar.results):
        yield from _loads(substitute(e, values), names, every, True)
    for s in p.out.stores:
        positions = (*outer, *_positions(p, s))
        yield Use(s.buffer, s.index, positions)
        for value in (s.value, *(x for x in p.out.initial if x is not None)):
            yield from _loads(value, names, positions, False)


def _locals(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    """Integer variables in terms of others: those that keep the value of their declaration, with that value;
    those that a loop counts up or down to a bound, as a choice between where they begin and that bound."""
    out: dict[str, Expr] = {}
    declared: dict[str, Expr] = {}
    changed = Counter(_assigned(body))

    def visit(inside: tuple[Stmt, ...]) -> None:
        for s in inside:
            match s:
                case Declare(name=name, type=ScalarType(is_integer=True), value=value) if value is not None:
                    declared[name] = substitute(value, out)
                    if name not in changed and not changed.keys() & variables(declared[name]):
                        out[name] = declared[name]
                case If(then=then, other=other):
                    visit((*then, *other))
                case While(cond=cond, body=more):
                    for name, bound in _counted(cond, more):
                        if name in declared and changed[name] == 1:
                            ends = declared.pop(name), substitute(bound, out)
                            if not changed.keys() & {n for e in ends for n in variables(e)}:
                                out[name] = Select(Const(1, BOOL), *ends, bound.type)
                    visit(more)
                case _:
                    pass

    visit(body)
    return out


def _counted(cond: Expr, body: tuple[Stmt, ...]) -> Iterator[tuple[str, Expr]]:
    """Variables to which a loop adds a constant, with what they are compared with."""
    steps = {
        s.target.name: s.value.b.value * (1 if s.value.op == "+" else -1)
        for s in body
        if isinstance(s, Assign) and isinstance(s.target, Var)
        and isinstance(s.value, Binary) and s.value.op in ("+", "-") and s.value.a == s.target
        and isinstance(s.value.b, Const) and isinstance(s.value.b.value, int)
    }  # fmt: skip
    for test in conjuncts(cond):
        match test:
            case Binary(op="<" | "<=", a=Var(name=name), b=bound) if steps.get(name, 0) > 0:
                yield name, bound
            case Binary(op=">" | ">=", a=Var(name=name), b=bound) if steps.get(name, 0) < 0:
                yield name, bound
            case _:
                pass


def _assigned(body: tuple[Stmt, ...]) -> Iterator[str]:
    for s in body:
        match s:
            case Assign(target=Var(name=name)):
                yield name
            case If(then=then, other=other):
                yield from _assigned((*then, *other))
            case While(body=inside):
                yield from _assigned(inside)
            case _:
                pass


def _positions(p: MdhProgram, s: Store) -> Points:
    """Where a store takes place: points of the result, only the last ones of ``at_last`` dimensions."""
    found: list[Constraint] = []
    mentioned = {n for a in s.index for n in a.names}
    for d, op in zip(p.hom.dims, p.hom.combine, strict=True):
        if op.kind == "pw" or (op.kind == "ps" and d.name in s.at_last and d.name not in mentioned):
            continue  # an empty scan stores its initial value as its last
        found += counts(d.name, d.size)
        if d.name in s.at_last:
            found.append(Constraint(Affine.of(d.name, d.size.step) + d.size.step - d.size.span))
    reduced = {d.name for d in p.hom.dims_of("pw")}
    found += [c for c in p.hom.domain if not c.names & reduced]
    return tuple(found)


def _loads(e: Expr, names: set[str], points: Points, conditional: bool) -> Iterator[Use]:
    for n in walk(e):
        if isinstance(n, Load):
            index = zip(n.index, known_index(n, names), strict=True)
            yield Use(n.buffer, tuple(i if a is None else a for i, a in index), points, conditional)


def interval(e: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Bounds on an integer expression over variables in ``ranges``; None where it mentions anything else."""
    match e:
        case Const(value=int(value)):
            return value, value
        case Var(name=name):
            return ranges.get(name)
        case Cast(a=a):
            return interval(a, ranges)
        case Unary(op="-", a=a):
            x = interval(a, ranges)
            return None if x is None else (-x[1], -x[0])
        case Select(then=then, other=other):
            x, y = interval(then, ranges), interval(other, ranges)
            return None if x is None or y is None else (min(x[0], y[0]), max(x[1], y[1]))
        case Binary(op="+" | "-" | "*" | "/" | "%" as op, a=a, b=b):
            x, y = interval(a, ranges), interval(b, ranges)
            return None if x is None or y is None else _combined(op, x, y)
        case Binary(op=">>", a=a, b=Const(value=int(shift))) if 0 <= shift < 64:
            x = interval(a, ranges)
            return None if x is None else (x[0] >> shift, x[1] >> shift)
        case Binary(op="&", a=a, b=Const(value=int(mask))) if mask >= 0:
            x = interval(a, ranges)
            return None if x is None else (0, mask if x[0] < 0 else min(mask, x[1]))
        case _:
            return None


def is_data(index: Expr) -> bool:
    """Whether a value from memory is a part of it."""
    return any(isinstance(n, (Load, Operand)) for n in walk(index))


def apart_from_data(index: Expr, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Bounds on what is added to values from memory; None where that is not known."""
    nothing = Const(0, INT64)
    return interval(rewrite(index, lambda n: nothing if isinstance(n, (Load, Operand)) else None), ranges)


def _combined(op: str, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int] | None:
    if op in "/%":
        if y[0] <= 0:
            return None
        reach = y[1] - 1
        if op == "%":
            return (max(x[0], -reach) if x[0] < 0 else 0), (min(x[1], reach) if x[1] > 0 else 0)
        ends = [int(a / b) for a in x for b in y]
        return min(ends), max(ends)
    ends = [a + b if op == "+" else a - b if op == "-" else a * b for a in x for b in y]
    return min(ends), max(ends)


# --------------------------------------------------------------------------- indices that are data


@dataclass(frozen=True, slots=True)
class DataIndex:
    """Dimension ``position`` of ``buffer`` is indexed by values of ``sources``.

    ``running``: sources that bound a loop over the index (``rowptr[i]`` to ``rowptr[i + 1]``).
    ``value``: the index over variables that are named as the sources, where it is that simple.
    """

    buffer: str
    position: int
    sources: frozenset[str]
    running: frozenset[str]
    value: Expr | None = None

    def range_of_sources(self, extent: int, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """``(first, below)``: the values from which the index gets where the extent allows it.

        ``ranges``: of the other variables.  What is not known to be smaller is taken to be the extent.
        """
        if self.value is None or not variables(self.value) & self.sources:
            return 0, extent

        def index(low: int, high: int) -> tuple[int, int] | None:
            assert self.value is not None
            return interval(self.value, {**ranges, **dict.fromkeys(self.sources, (low, high))})

        first = next((k for k in range(_SHIFT) if (x := index(k, k)) is not None and x[0] >= 0), None)
        if first is None:
            return 0, extent
        fits, fails = first, first + _SCALE * max(extent, 1)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            x = index(first, middle)
            if x is not None and x[0] >= 0 and x[1] < extent:
                fits = middle
            else:
                fails = middle
        return first, fits + 1


def data_indices(leaf: Leaf) -> Iterator[DataIndex]:
    """The indices that are read from memory, directly or through local variables."""
    positions = dict(cells(leaf)) if isinstance(leaf, MdhProgram) else {}
    if isinstance(leaf, MdhProgram):
        body, results = leaf.hom.scalar.body, leaf.hom.scalar.results
        accesses = [a.buffer for a in leaf.inp.accesses]
    else:
        body, results, accesses = leaf.body, (), []
    made: dict[str, set[str]] = {}  # local variable -> buffers that its values come from
    counted: set[str] = set()  # local variables that a loop changes

    def sources(e: Expr) -> Iterator[tuple[str, bool]]:
        match e:
            case Load(buffer=b):
                yield b, False
            case Operand(access=k):
                yield accesses[k], False
            case Var(name=name):
                yield from ((b, name in counted) for b in made.get(name, ()))
            case _:
                for child in children(e):
                    yield from sources(child)

    def note(inside: tuple[Stmt, ...], in_loop: bool) -> None:
        for s in inside:
            match s:
                case Declare(name=name, value=value) if value is not None:
                    made.setdefault(name, set()).update(b for b, _ in sources(value))
                case Assign(target=Var(name=name), value=value):
                    made.setdefault(name, set()).update(b for b, _ in sources(value))
                    if in_loop and any(isinstance(n, Var) and n.name == name for n in walk(value)):
                        counted.add(name)
                case If(then=then, other=other):
                    note((*then, *other), in_loop)
                case While(cond=cond, body=more):
                    note(more, True)
                    for name in variables(cond) & counted:  # it ends at what it is compared with
                        made[name].update(b for b, _ in sources(cond))
                case _:
                    pass

    note(body, False)
    values = _locals(body)

    def over_sources(e: Expr) -> Expr:
        def one(n: Expr) -> Expr | None:
            if isinstance(n, Operand):
                return Var(accesses[n.access], n.type)
            return Var(n.buffer, n.type) if isinstance(n, Load) else None

        return rewrite(substitute(e, values), one)

    for (buffer, position), e in positions.items():
        found = list(sources(e))
        if found:
            running = frozenset(b for b, runs in found if runs)
            yield DataIndex(buffer, position, frozenset(b for b, _ in found), running, over_sources(e))
    for e in (*stmt_exprs(body), *results):
        for n in walk(e):
            if not isinstance(n, Load):
                continue
            for position, i in enumerate(n.index):
                found = list(sources(i))
                if found:
                    running = frozenset(b for b, runs in found if runs)
                    names = frozenset(b for b, _ in found)
                    yield DataIndex(n.buffer, position, names, running, over_sources(i))


def cells(p: MdhProgram) -> Iterator[tuple[tuple[str, int], Expr]]:
    """Positions at which a histogram accumulates, with their values."""
    form = one_hot(p)
    for test in () if form is None else form.tests:
        (store,) = p.out.stores
        for k, a in enumerate(store.index):
            if test.dim and a == Affine.of(test.dim):
                yield (store.buffer, k), test.value
