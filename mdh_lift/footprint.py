"""How many elements of each buffer a nest touches, for given values of its integer parameters.

Interval arithmetic over the nest as it was read: every variable has a range, every subscript gets one, and
the largest linear offset of a buffer plus one is its count.  What stands under a condition may be clipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.expr import (
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    children,
    variables,
)

Range = tuple[int, int]


def counts(nest: LoopNest, params: Mapping[str, int]) -> dict[str, int] | None:
    """Elements per buffer; None where an index is negative or cannot be told."""
    walker = _Walker(nest, {name: (v, v) for name, v in params.items()})
    try:
        strides = {b.name: _strides(b.extents, params) for b in nest.buffers}
        walker.strides = strides
        walker.statements(nest.body, False)
    except _UnknownError:
        return None
    found = {}
    for b in nest.buffers:
        low, high = walker.touched.get(b.name, (0, -1))
        if low < 0:
            return None
        found[b.name] = high + 1
    return found


class _UnknownError(Exception):
    """A subscript whose range cannot be told."""


def _strides(extents: Sequence[object], params: Mapping[str, int]) -> list[int]:
    out = [1] if extents else []
    for extent in reversed(extents[1:]):
        if extent is None:
            raise _UnknownError
        out.insert(0, out[0] * extent.evaluate(dict(params)))  # type: ignore[attr-defined]
    return out


@dataclass
class _Walker:
    nest: LoopNest
    ranges: dict[str, Range | None]
    touched: dict[str, Range] = field(default_factory=dict)
    strides: dict[str, list[int]] = field(default_factory=dict)

    def statements(self, body: Sequence[NestStmt | Stmt], conditional: bool) -> None:
        for s in body:
            match s:
                case Loop():
                    self.loop(s, conditional)
                case Declare(name=name, value=value):
                    self.ranges[name] = None if value is None else self.visit(value, conditional)
                case Assign(target=target, value=value):
                    found = self.visit(value, conditional)
                    if isinstance(target, Var):
                        self.ranges[target.name] = None if target.name in variables(value) else found
                    else:
                        self.visit(target, conditional)
                case If(cond=cond, then=then, other=other):
                    self.visit(cond, conditional)
                    self.statements(then, True)
                    self.statements(other, True)
                case While(cond=cond, body=inner):
                    self.visit(cond, True)
                    self.statements(inner, True)

    def loop(self, s: Loop, conditional: bool) -> None:
        lower, upper = self.visit(s.lower, conditional), self.visit(s.upper, conditional)
        if lower is None or upper is None:
            raise _UnknownError
        reached = (lower[0], upper[1] - 1) if s.step > 0 else (upper[0] + 1, lower[1])
        if reached[0] <= reached[1]:
            if lower[0] == lower[1]:  # the last value that is met
                span = abs(reached[1] - reached[0]) // abs(s.step) * abs(s.step)
                reached = (lower[0], lower[0] + span) if s.step > 0 else (lower[0] - span, lower[0])
            self.ranges[s.iterator] = reached
            self.statements(s.body, conditional)

    def visit(self, e: Expr, conditional: bool) -> Range | None:
        """The range of an integer expression (None: not known); accesses below it are noted."""
        match e:
            case Const(value=int(value)):
                return (value, value)
            case Var(name=name):
                return self.ranges.get(name)
            case Load(buffer=buffer, index=index):
                self.access(buffer, [self.visit(i, conditional) for i in index], conditional)
                return None
            case Cast(a=a):
                return self.visit(a, conditional)
            case Unary(op="-", a=a):
                r = self.visit(a, conditional)
                return None if r is None else (-r[1], -r[0])
            case Select(cond=cond, then=then, other=other):
                self.visit(cond, conditional)
                r, s = self.visit(then, True), self.visit(other, True)
                return None if r is None or s is None else (min(r[0], s[0]), max(r[1], s[1]))
            case Binary(op=op, a=a, b=b):
                r, s = self.visit(a, conditional), self.visit(b, conditional or op in ("&&", "||"))
                return None if r is None or s is None else _combined(op, r, s)
            case _:
                for child in children(e):
                    self.visit(child, conditional)
                return None

    def access(self, buffer: str, index: Sequence[Range | None], conditional: bool) -> None:
        low = high = 0
        for r, stride in zip(index, self.strides[buffer], strict=True):
            if r is None:
                raise _UnknownError
            low, high = low + r[0] * stride, high + r[1] * stride
        known = self.touched.get(buffer, (0, -1))
        low = max(low, 0) if conditional else low
        self.touched[buffer] = (min(known[0], low), max(known[1], high))


def _combined(op: str, r: Range, s: Range) -> Range | None:
    match op:
        case "+":
            return (r[0] + s[0], r[1] + s[1])
        case "-":
            return (r[0] - s[1], r[1] - s[0])
        case "*":
            corners = [x * y for x in r for y in s]
            return (min(corners), max(corners))
        case "/" if s[0] == s[1] > 0 and r[0] >= 0:
            return (r[0] // s[0], r[1] // s[0])
        case "%" if s[0] == s[1] > 0 and r[0] >= 0:
            return (0, min(r[1], s[0] - 1))
        case "<<" if s[0] >= 0:
            return (r[0] << s[0], r[1] << s[1]) if r[0] >= 0 else None
        case _:
            return None
