"""Scalar functions with branches and loops in vectors: lanes whose condition fails keep what they have.

before   while (n < limit && z*z <= 4) { z = z*z + c; n++; }
after    active = all lanes
         do  eight times: active &= n < limit && z*z <= 4;  z = active ? z*z + c : z;  n = active ? n + 1 : n
         while (any lane is active)

A lane that has left the loop computes on, but what it computes is dropped; so only what cannot fail is taken:
no loads, no integer divisions, no calls (``NotVector``).  Asking whether any lane is active costs more than a
short body, hence the eight times.  What the loop does not change is computed before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emit.kernel_text import NotVector, VectorPrinter
from mdh_core.expr import (
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Operand,
    Result,
    ScalarType,
    Stmt,
    Var,
    While,
    children,
    stmt_exprs,
    variables,
)
from mdh_core.lanes import declared_in

if TYPE_CHECKING:
    from emit.kernel_text import Lines

AT_ONCE = 8  # iterations of a loop between two looks at its lanes
Mask = tuple[str, int]  # a variable, and the bits of one lane


class MaskedText:
    """Writes a body; afterwards the printer knows its variables as vectors."""

    def __init__(self, printer: VectorPrinter, out: Lines) -> None:
        self.printer, self.out = printer, out
        self.vectors, self.names = printer.vectors, printer.context.names

    def write(self, body: Sequence[Stmt], mask: Mask | None = None) -> None:
        for s in body:
            match s:
                case Declare(name=name, type=t, value=value):
                    start = f"({self.vectors.type(t)}){{0}}" if value is None else self.printer.vector(value)
                    self.printer.variables[name] = name
                    self.out.add(f"{self.vectors.type(t)} {name} = {start};")
                case Assign(target=Var(name=name, type=t), value=value):
                    self._assign(name, t, self.printer.vector(value), mask)
                case If(cond=cond, then=then, other=other):
                    yes = self._named(self.printer.mask(cond))
                    self.write(then, self._both(mask, yes))
                    if other:
                        no = self._named((f"~{yes[0]}", yes[1]))
                        self.write(other, self._both(mask, no))
                case While():
                    self._while(s, mask)
                case _:
                    raise NotVector

    def _assign(self, name: str, t: object, value: str, mask: Mask | None) -> None:
        assert isinstance(t, ScalarType)
        if mask is None:
            self.out.add(f"{name} = {value};")
            return
        of, m = self.vectors.type(t), self.vectors.mask(t)
        here = self.printer.as_wide(mask, t.bits)
        fresh = self.names.new("v")
        self.out.add(f"const {of} {fresh} = {value};")
        self.out.add(f"{name} = ({of})(({here} & ({m}){fresh}) | (~{here} & ({m}){name}));")

    def _while(self, s: While, mask: Mask | None) -> None:
        changed = {d.name for d in declared_in(s.body)} | _assigned(s.body)
        for e in (s.cond, *stmt_exprs(s.body)):
            self._before(e, changed)
        cond = self.printer.mask(s.cond)
        t = self.vectors.mask(ScalarType(f"int{cond[1]}", "int", cond[1]))
        active, more, step, lane = (self.names.new(n) for n in ("active", "more", "step", "lane"))
        start = f"~({t}){{0}}" if mask is None else self.printer.as_wide(mask, cond[1])
        self.out.add(f"{t} {active} = {start};", f"long {more};")
        known = dict(self.printer.named)
        with self.out.block("do"):
            with self.out.block(f"for (long {step} = 0; {step} < {AT_ONCE}; {step}++)"):
                cond = self.printer.mask(s.cond)
                self.out.add(f"{active} &= {cond[0]};")
                self.write(s.body, (active, cond[1]))
            self.out.add(f"{more} = 0;")
            self.out.add(
                f"for (long {lane} = 0; {lane} < {self.vectors.lanes}; {lane}++) {more} |= {active}[{lane}];"
            )
        self.out.rows[-1] += f" while ({more});"
        self.printer.named = known  # what an inner loop has named is out of sight

    def _before(self, e: Expr, changed: set[str]) -> None:
        """Names for the largest parts of an expression that the loop does not change."""
        if isinstance(e, Var | Const | Operand | Result) or e in self.printer.named:
            return
        steady = not variables(e) & changed and isinstance(e, Binary | Cast)
        if steady and isinstance(e.type, ScalarType) and e.type.is_float:
            name = self.names.new("same")
            self.out.add(f"const {self.vectors.type(e.type)} {name} = {self.printer.vector(e)};")
            self.printer.named[e] = name
            return
        for child in children(e):
            self._before(child, changed)

    def _named(self, mask: Mask) -> Mask:
        name = self.names.new("m")
        t = self.vectors.mask(ScalarType(f"int{mask[1]}", "int", mask[1]))
        self.out.add(f"const {t} {name} = {mask[0]};")
        return name, mask[1]

    def _both(self, outer: Mask | None, inner: Mask) -> Mask:
        if outer is None:
            return inner
        return self._named((f"({self.printer.as_wide(outer, inner[1])} & {inner[0]})", inner[1]))


def _assigned(body: Sequence[Stmt]) -> set[str]:
    out: set[str] = set()
    for s in body:
        match s:
            case Assign(target=Var(name=name)):
                out.add(name)
            case If(then=then, other=other):
                out |= _assigned(then) | _assigned(other)
            case While(body=inner):
                out |= _assigned(inner)
            case _:
                pass
    return out
