"""Statement instances of a loop nest: when each runs, which cells it reads and which one it writes.

    instance ::= Instance(number, place: (position | loop)*, rows, exact, write: Cell?, reads: Cell*)

``rows`` are affine constraints over iterators and parameters under which the instance runs; where a bound
or a condition is not affine it is left out and the instance is not ``exact``: it may run.  A cell whose
index is not affine has ``index`` None and keeps it as ``computed``; ``flat`` is a single one as a polynomial,
if it is one.  An
instance that writes nothing reads the cells of a bound or a condition; those that it decides about stand
below its place.  ``again``: it stands in a ``while`` and may run several times in one iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from certify.flat import Monomial, polynomial
from certify.sets import System, at_least, below, equal
from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.expr import (
    Affine,
    Assign,
    Binary,
    Constraint,
    Declare,
    Expr,
    If,
    Load,
    Stmt,
    Unary,
    Var,
    While,
    as_affine,
    base_of,
    walk,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a buffer, or a scalar variable (no index)."""

    name: str
    index: tuple[Affine, ...] | None
    scalar: bool = False
    flat: tuple[tuple[Monomial, int], ...] = ()
    computed: tuple[Expr, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for a in self.index or () for n in a.names)


@dataclass(frozen=True, slots=True)
class Instance:
    """``place``: numbers of statements within their lists and iterators, outermost first."""

    number: int
    place: tuple[int | str, ...]
    rows: tuple[Constraint, ...]
    exact: bool
    write: Cell | None
    reads: tuple[Cell, ...]
    loops: tuple[Loop, ...] = ()
    again: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.reads if self.write is None else (*self.reads, self.write)

    @property
    def iterators(self) -> tuple[str, ...]:
        return tuple(x.iterator for x in self.loops)


def turn(iterator: str) -> str:
    """The unknown that counts a loop's iterations from 0."""
    return f"{iterator}#"


def instances(nest: LoopNest) -> tuple[Instance, ...]:
    found = _Instances(nest)
    found.block(nest.body, (), (), (), True)
    return tuple(found.out)


class _Instances:
    def __init__(self, nest: LoopNest) -> None:
        self.out: list[Instance] = []
        self.known = {p.name for p in nest.params}
        self.values = _constant_names(nest.body)
        self.again = False

    # ------------------------------------------------------------------ statements

    def block(
        self,
        body: Sequence[NestStmt | Stmt],
        place: tuple[int | str, ...],
        rows: tuple[Constraint, ...],
        loops: tuple[Loop, ...],
        exact: bool,
    ) -> None:
        for k, s in enumerate(body):
            here = (*place, k)
            match s:
                case Loop():
                    bounds = self._bounds(s)
                    self._add(here, rows, loops, exact, None, (s.lower, s.upper))
                    whole = exact and bounds is not None
                    inner = (*rows, *(bounds or ()))
                    self.block(s.body, (*here, s.iterator), inner, (*loops, s), whole)
                case Declare(name=name, value=value):
                    if value is not None and name not in self.values:
                        self._add(here, rows, loops, exact, Cell(name, (), True), (value,))
                    elif value is not None:
                        self._add(here, rows, loops, exact, None, (value,))
                case Assign(target=target, value=value):
                    base = base_of(target)
                    index = base.index if isinstance(base, Load) else ()
                    read = (value, *index) if base is target else (value, *index, base)
                    self._add(here, rows, loops, exact, self._cell(base), read)
                case If(cond=cond, then=then, other=other):
                    self._add(here, rows, loops, exact, None, (cond,))
                    when, unless = self._condition(cond), self._condition(Unary("!", cond, cond.type))  # type: ignore[arg-type]
                    self.block(then, (*here, 0), (*rows, *(when or ())), loops, exact and when is not None)
                    self.block(
                        other, (*here, 1), (*rows, *(unless or ())), loops, exact and unless is not None
                    )
                case While(cond=cond, body=inner_body):
                    self._add(here, rows, loops, exact, None, (cond,))
                    around, self.again = self.again, True
                    self.block(inner_body, (*here, 0), rows, loops, False)
                    self.again = around
                case _:
                    self._add(here, rows, loops, exact, None, (s.value,))

    def _add(
        self,
        place: tuple[int | str, ...],
        rows: tuple[Constraint, ...],
        loops: tuple[Loop, ...],
        exact: bool,
        write: Cell | None,
        read: Sequence[Expr],
    ) -> None:
        reads = tuple(dict.fromkeys(c for e in read for c in self._reads(e)))
        if write is not None or reads:
            number = len(self.out)
            self.out.append(Instance(number, place, rows, exact, write, reads, loops, self.again))

    def _reads(self, e: Expr) -> Iterator[Cell]:
        for n in walk(e):
            if isinstance(n, Load):
                yield self._cell(n)
            elif isinstance(n, Var) and n.name not in self.known and n.name not in self.values:
                yield Cell(n.name, (), True)

    def _cell(self, e: Var | Load) -> Cell:
        if isinstance(e, Var):
            return Cell(e.name, (), True)
        index = [self.affine(i) for i in e.index]
        if None not in index:
            return Cell(e.buffer, tuple(i for i in index if i is not None))
        flat = self._flat(e.index[0]) if len(e.index) == 1 else ()
        return Cell(e.buffer, None, flat=flat, computed=tuple(e.index))

    def _flat(self, e: Expr) -> tuple[tuple[Monomial, int], ...]:
        known = {n: r for n, a in self.values.items() if (r := self._resolved(a)) is not None}
        found = polynomial(e, known)
        if found is None or not {n for m in found for n in m} <= self.known:
            return ()
        return tuple(sorted(found.items()))

    # ------------------------------------------------------------------ affine values

    def affine(self, e: Expr) -> Affine | None:
        """Over parameters and iterators; names that stand for such a value are replaced."""
        a = as_affine(e)
        return None if a is None else self._resolved(a)

    def _resolved(self, a: Affine) -> Affine | None:
        for _ in range(20):
            used = a.names & self.values.keys()
            if not used:
                return a if a.names <= self.known else None
            values = {n: self.values[n] for n in used}
            a = a.substitute(values)
        return None

    def _bounds(self, loop: Loop) -> System | None:
        self.known.add(loop.iterator)
        lower, upper = self.affine(loop.lower), self.affine(loop.upper)
        if lower is None or upper is None:
            return None
        i, t = Affine.of(loop.iterator), Affine.of(turn(loop.iterator))
        end = below(i, upper) if loop.step > 0 else below(upper, i)
        return [equal(i, lower + t * loop.step), at_least(t), end]

    def _condition(self, e: Expr) -> list[Constraint] | None:
        """Rows that hold exactly where the condition does."""
        match e:
            case Binary(op="&&", a=a, b=b):
                x, y = self._condition(a), self._condition(b)
                return None if x is None or y is None else [*x, *y]
            case Unary(op="!", a=Unary(op="!", a=inner)):
                return self._condition(inner)
            case Unary(op="!", a=Binary(op="||", a=a, b=b)):
                x, y = (self._condition(Unary("!", c, e.type)) for c in (a, b))
                return None if x is None or y is None else [*x, *y]
            case Unary(op="!", a=Binary(op=op, a=a, b=b)) if op in _OPPOSITE:
                return self._compared(_OPPOSITE[op], a, b)
            case Binary(op=op, a=a, b=b) if op in _OPPOSITE:
                return self._compared(op, a, b)
            case _:
                return None

    def _compared(self, op: str, a: Expr, b: Expr) -> list[Constraint] | None:
        x, y = self.affine(a), self.affine(b)
        if x is None or y is None:
            return None
        match op:
            case "<":
                return [below(x, y)]
            case "<=":
                return [at_least(y - x)]
            case ">":
                return [below(y, x)]
            case ">=":
                return [at_least(x - y)]
            case "==":
                return [equal(x, y)]
            case _:
                return None


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def _constant_names(body: Sequence[NestStmt | Stmt]) -> Mapping[str, Affine]:
    """Locals declared with an affine value and never assigned: names for this value."""
    declared: dict[str, Affine | None] = {}

    def visit(statements: Sequence[NestStmt | Stmt]) -> None:
        for s in statements:
            match s:
                case Loop(body=inner) | While(body=inner):
                    visit(inner)
                case If(then=then, other=other):
                    visit(then)
                    visit(other)
                case Declare(name=name, value=value):
                    a = None if value is None or name in declared else as_affine(value)
                    declared[name] = a
                case Assign(target=target):
                    base = base_of(target)
                    if isinstance(base, Var):
                        declared[base.name] = None
                case _:
                    pass

    visit(body)
    values = {n: a for n, a in declared.items() if a is not None}
    while True:  # a name may stand for others, as long as none of them changes
        open_ = {n for n, a in values.items() if any(m in declared and m not in values for m in a.names)}
        if not open_:
            return values
        for n in open_:
            del values[n]


def tagged(x: Instance, tag: str, index: Sequence[Affine]) -> tuple[Affine, ...]:
    """Affine values of an instance, its own unknowns with the tag."""
    own = _own(x, {n for a in index for n in a.names})
    return tuple(a.substitute({n: Affine.of(n + tag) for n in own}) for a in index)


def rows_of(x: Instance, tag: str) -> list[Constraint]:
    """When it runs, its own unknowns with the tag."""
    own = _own(x, {n for c in x.rows for n in c.names})
    return [c.substitute({n: Affine.of(n + tag) for n in own}) for c in x.rows]


def _own(x: Instance, names: Iterable[str]) -> set[str]:
    """Its iterators, their trips, and the values of computed indices (``?``)."""
    own = {n for i in x.iterators for n in (i, turn(i))}
    return {n for n in names if n in own or n.startswith("?")}


def before(s: Instance, t: Instance) -> Iterator[list[Constraint]]:
    """Systems under which an instance of ``s`` runs before one of ``t``, whose names are marked."""
    equalities: list[Constraint] = []
    steps = {x.iterator: 1 if x.step > 0 else -1 for x in s.loops}
    for a, b in zip(s.place, t.place, strict=False):
        if isinstance(a, str) and a == b:
            i, j = Affine.of(a) * steps[a], Affine.of(f"{a}'") * steps[a]
            yield [*equalities, below(i, j)]
            equalities.append(equal(i, j))
        elif isinstance(a, int) and isinstance(b, int) and a != b:
            if a < b:
                yield equalities
            return
        elif a != b:
            return
