"""Do all subscripts of a nest stay inside the arrays of this call?

Python reads ``x[-1]`` from the end and raises beyond it; a kernel would do neither.  A call whose subscripts
may leave an array runs the original.  Intervals decide most cases; where they do not, isl is asked with the
loops' bounds and the conditions around the access.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.normalise import choices
from lifter.polyhedral import satisfiable
from mdh_core.expr import (
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Constraint,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Return,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    as_affine,
    base_of,
    children,
    map_children,
    substitute,
    walk,
)

Interval = tuple[int, int]
Data = Callable[[str], Interval | None]  # smallest and largest value of an integer array
_COMPARED = {"<": (1, -1), "<=": (1, 0), ">": (-1, -1), ">=": (-1, 0)}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass
class Reach:
    """What a nest touches: per buffer and dimension the smallest and largest index, if they are known."""

    indices: dict[tuple[str, int], Interval | None] = field(default_factory=dict)
    problem: str = ""

    def note(self, buffer: str, k: int, interval: Interval | None) -> None:
        if (buffer, k) in self.indices:
            old = self.indices[buffer, k]
            known = old is not None and interval is not None
            interval = (min(old[0], interval[0]), max(old[1], interval[1])) if known else None  # type: ignore[index]
        self.indices[buffer, k] = interval


class Walker:
    """Goes through the nest with values for its integer parameters.

    ``extents``: the arrays' shapes; without them only the reach is computed.
    """

    def __init__(
        self,
        nest: LoopNest,
        params: Mapping[str, int],
        extents: Mapping[str, Sequence[int]] | None,
        data: Data,
    ) -> None:
        self.nest, self.extents, self.data = nest, extents, data
        self.values: dict[str, Expr] = {
            p.name: Const(params[p.name], p.type)
            for p in nest.params
            if p.name in params and isinstance(p.type, ScalarType)
        }
        self.functions = {f.name: f for f in nest.functions}
        self.box: dict[str, Interval] = {}
        self.reach = Reach()
        self.once = _assigned_once(nest.body) - {s.name for s in nest.scalars}
        self.locals: dict[str, Expr] = {}

    def run(self) -> Reach:
        self.body(self.nest.body, [])
        return self.reach

    # ------------------------------------------------------------------ statements

    def body(self, body: Sequence[NestStmt | Stmt], facts: list[Constraint]) -> None:
        for s in body:
            match s:
                case Loop():
                    self.loop(s, facts)
                case Declare(name=name, value=value):
                    if value is not None:
                        self.expression(value, facts)
                        if name in self.once:
                            self.locals[name] = self.known(value)
                case Assign(target=target, value=value):
                    self.expression(target, facts)
                    self.expression(value, facts)
                    if isinstance(target, Var) and target.name in self.once:
                        self.locals[target.name] = self.known(value)
                case If(cond=cond, then=then, other=other):
                    self.expression(cond, facts)
                    self.body(then, [*facts, *self.facts(cond, True)])
                    self.body(other, [*facts, *self.facts(cond, False)])
                case While(cond=cond, body=inner):
                    self.expression(cond, facts)
                    self.body(inner, [*facts, *self.facts(cond, True)])
                case Return(value=value):
                    self.expression(value, facts)

    def loop(self, s: Loop, facts: list[Constraint]) -> None:
        for bound in (s.lower, s.upper):
            self.expression(bound, facts)
        lower, upper = self.interval(self.known(s.lower)), self.interval(self.known(s.upper))
        if lower is None or upper is None:
            self.reach.problem = self.reach.problem or f"the bounds of `{s.source_name}` are not known"
            return
        low, high = (lower[0], upper[1] - 1) if s.step > 0 else (upper[0] + 1, lower[1])
        if low > high:
            return
        self.box[s.iterator] = (low, high)
        i = Affine.of(s.iterator)
        rows = [Constraint(i - low), Constraint(-i + high)]
        up = s.step > 0
        for first in map(as_affine, choices(self.known(s.lower), "max" if up else "min")):
            if first is not None and first.names <= set(self.box):
                rows.append(Constraint(i - first if up else first - i))
        for last in map(as_affine, choices(self.known(s.upper), "min" if up else "max")):
            if last is not None and last.names <= set(self.box):
                rows.append(Constraint(last - i - 1 if up else i - last - 1))
        self.body(s.body, [*facts, *rows])
        del self.box[s.iterator]

    # ------------------------------------------------------------------ expressions

    def known(self, e: Expr) -> Expr:
        """With numbers for parameters, values for locals that have one, and simple functions written out."""
        return self.inlined(substitute(substitute(e, self.locals), self.values))

    def inlined(self, e: Expr) -> Expr:
        if isinstance(e, Call) and e.function in self.functions:
            f: Function = self.functions[e.function]
            if len(f.body) == 1 and isinstance(f.body[0], Return):
                args = {name: self.inlined(a) for (name, _), a in zip(f.params, e.args, strict=True)}
                return substitute(f.body[0].value, args)
        return e

    def expression(self, e: Expr, facts: list[Constraint]) -> None:
        match e:
            case Select(cond=cond, then=then, other=other):
                self.expression(cond, facts)
                self.expression(then, [*facts, *self.facts(cond, True)])
                self.expression(other, [*facts, *self.facts(cond, False)])
            case Binary(op="&&" | "||" as op, a=a, b=b):
                self.expression(a, facts)
                self.expression(b, [*facts, *self.facts(a, op == "&&")])
            case Load():
                for k, index in enumerate(e.index):
                    self.expression(index, facts)
                    self.access(e.buffer, k, self.known(index), facts)
            case _:
                for child in children(e):
                    self.expression(child, facts)

    def access(self, buffer: str, k: int, index: Expr, facts: list[Constraint]) -> None:
        interval = self.interval(index)
        self.reach.note(buffer, k, interval)
        if self.extents is None or self.reach.problem:
            return
        extent = self.extents[buffer][k]
        if interval is not None and interval[0] >= 0 and interval[1] < extent:
            return
        for conditions, value in _cases(index):
            ways = [self.ways(cond, wanted) for cond, wanted in conditions]
            for way in itertools.product(*ways):
                rows = [*facts, *(c for part in way for c in part)]
                if not self.inside(value, extent, [c for c in rows if c.names <= set(self.box)]):
                    where = f" in dimension {k}" if len(self.extents[buffer]) > 1 else ""
                    self.reach.problem = f"a subscript of `{buffer}` may leave the array{where}"
                    return

    def inside(self, value: Expr, extent: int, rows: list[Constraint]) -> bool:
        """Does a subscript stay in ``[0, extent)`` where the rows hold?"""
        interval = self.interval(value)
        if interval is not None and interval[0] >= 0 and interval[1] < extent:
            return True
        a = as_affine(value) if interval is not None else None
        if a is None or not a.names <= set(self.box):
            return not satisfiable(rows)
        low, high = [*rows, Constraint(-a - 1)], [*rows, Constraint(a - extent)]
        return not satisfiable(low) and not satisfiable(high)

    def ways(self, cond: Expr, wanted: bool) -> list[list[Constraint]]:
        """``facts``, in two parts where a value differs from another: it is below or above it."""
        known = self.known(cond)
        if isinstance(known, Binary) and known.op == ("!=" if wanted else "=="):
            return [self.facts(Binary(op, known.a, known.b, known.type), True) for op in ("<", ">")]
        return [self.facts(cond, wanted)]

    def interval(self, e: Expr) -> Interval | None:
        """Smallest and largest value of an integer expression, roughly; None where it may wrap, too."""
        found = self._interval(e)
        t = e.type
        if found is None or not isinstance(t, ScalarType):
            return None
        low = -(1 << t.bits - 1) if t.is_signed else 0
        return found if low <= found[0] and found[1] < low + (1 << t.bits) else None

    def _interval(self, e: Expr) -> Interval | None:
        match e:
            case Const(value=int(value)):
                return value, value
            case Var(name=name):
                return self.box.get(name)
            case Cast(a=a, type=t) if t.is_integer:
                return self.interval(a)
            case Unary(op="-", a=a):
                x = self.interval(a)
                return None if x is None else (-x[1], -x[0])
            case Binary(op="+" | "-" | "*" as op, a=a, b=b):
                x, y = self.interval(a), self.interval(b)
                if x is None or y is None:
                    return None
                ends = [_operate(op, p, q) for p in x for q in y]
                return min(ends), max(ends)
            case Binary(op="/", a=a, b=Const(value=int(c))) if c > 0:
                x = self.interval(a)
                return None if x is None or x[0] < 0 else (x[0] // c, x[1] // c)
            case Binary(op="%", b=Const(value=int(c)), a=a) if c > 0:
                x = self.interval(a)
                return None if x is None else (0 if x[0] >= 0 else 1 - c, c - 1)
            case Select(then=then, other=other):
                x, y = self.interval(then), self.interval(other)
                if x is None or y is None:
                    return None
                for name, least in (("min", min), ("max", max)):
                    if len(choices(e, name)) > 1:
                        return least(x[0], y[0]), least(x[1], y[1])
                return min(x[0], y[0]), max(x[1], y[1])
            case Load(buffer=buffer):
                return self.data(buffer)
        return None

    def facts(self, cond: Expr, wanted: bool) -> list[Constraint]:
        """Affine facts that hold where a condition is (not) true; not all of them."""
        cond = self.known(cond)
        match cond:
            case Unary(op="!", a=a):
                return self.facts(a, not wanted)
            case Binary(op="&&", a=a, b=b) if wanted:
                return [*self.facts(a, True), *self.facts(b, True)]
            case Binary(op="||", a=a, b=b) if not wanted:
                return [*self.facts(a, False), *self.facts(b, False)]
            case Binary(op=op, a=a, b=b) if op in _NEGATED:
                x, y = as_affine(a), as_affine(b)
                if x is None or y is None or not (x.names | y.names) <= set(self.box):
                    return []
                op = op if wanted else _NEGATED[op]
                if op == "==":
                    return [Constraint(x - y, equality=True)]
                if op in _COMPARED:
                    sign, slack = _COMPARED[op]
                    return [Constraint((y - x) * sign + slack)]
        return []


def _operate(op: str, x: int, y: int) -> int:
    return x + y if op == "+" else x - y if op == "-" else x * y


def _cases(e: Expr, depth: int = 6) -> list[tuple[list[tuple[Expr, bool]], Expr]]:
    """The values of an index with ``Select`` inside, with the conditions under which it has them."""
    chosen = next((n for n in walk(e) if isinstance(n, Select)), None)
    if chosen is None or not depth:
        return [([], e)]
    out = []
    for wanted, branch in ((True, chosen.then), (False, chosen.other)):
        for conditions, value in _cases(_replaced(e, chosen, branch), depth - 1):
            out.append(([(chosen.cond, wanted), *conditions], value))
    return out


def _replaced(e: Expr, old: Expr, new: Expr) -> Expr:
    return new if e is old else map_children(e, lambda child: _replaced(child, old, new))


def _assigned_once(body: Sequence[NestStmt | Stmt]) -> frozenset[str]:
    """Locals that get a value in one place only."""
    counts: dict[str, int] = {}

    def visit(statements: Sequence[NestStmt | Stmt]) -> None:
        for s in statements:
            match s:
                case Declare(name=name, value=value):
                    counts[name] = counts.get(name, 0) + (value is not None)
                case Assign(target=target):
                    base = base_of(target)
                    if isinstance(base, Var):
                        counts[base.name] = counts.get(base.name, 0) + (1 if isinstance(target, Var) else 2)
                case If(then=then, other=other):
                    visit(then)
                    visit(other)
                case While(body=inner):
                    visit(inner)
                case Loop(body=nested):
                    visit(nested)

    visit(body)
    return frozenset(n for n, c in counts.items() if c == 1)


def leaves_arrays(
    nest: LoopNest, params: Mapping[str, int], extents: Mapping[str, Sequence[int]], data: Data
) -> str:
    """Why a subscript may leave its array, or an empty text."""
    return Walker(nest, params, extents, data).run().problem


def reach(nest: LoopNest, params: Mapping[str, int], data: Data) -> Reach:
    """What the nest touches with these values of its parameters."""
    return Walker(nest, params, None, data).run()
