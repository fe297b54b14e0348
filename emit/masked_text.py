"""Scalar functions with branches and loops in vectors: lanes whose condition fails keep what they have.

before   while (n < limit && z*z <= 4) { z = z*z + c; n++; }
after    active = all lanes
         do  eight times: active &= n < limit && z*z <= 4;  z = active ? z*z + c : z;  n = active ? n + 1 : n
         while (any lane is active)

A lane that has left the loop computes on, but what it computes is dropped; so only what cannot fail is taken:
no loads, no integer divisions, no calls (``NotVector``).  Asking whether any lane is active costs more than a
short body, hence the eight times.  What the loop does not change is computed before it.

Variables that are the same in all lanes (``mdh_core.lanes.shared_in_lanes``) stay scalars, and branches and
loops that they alone decide stay what they are; all lanes do what is inside, which may read memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from emit.c_text import c_type
from emit.vector_printer import NotVector, VectorPrinter
from mdh_core.expr import (
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Operand,
    Result,
    ScalarType,
    Stmt,
    Var,
    While,
    children,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.lanes import LONG, declared_in, operations

if TYPE_CHECKING:
    from emit.kernel_text import Lines

AT_ONCE = 8  # iterations of a loop between two looks at its lanes
Mask = tuple[str, int]  # a variable, and the bits of one lane


class MaskedText:
    """Writes a body; afterwards the printer knows its variables as vectors.

    Several vectors take every step together (``counter`` runs over them), so that one does not wait for what
    the other computes: all variables are arrays of vectors, and every step is a loop that is unrolled.
    """

    def __init__(
        self, printer: VectorPrinter, out: Lines, counter: str, most: int, own: Collection[str],
        shared: Collection[str],
    ) -> None:  # fmt: skip
        self.printer, self.out, self.own, self.shared = printer, out, own, shared
        self.vectors, self.names = printer.vectors, printer.context.names
        self.counter, self.most = counter, most
        self.count = f"vectors_{self.vectors.suffix}"

    def write(self, body: Sequence[Stmt], mask: Mask | None = None) -> None:
        if mask is not None:
            self._reads_nothing(stmt_exprs(tuple(body)))
        with self.printer.everywhere(mask is not None):
            self._write(body, mask)

    def _write(self, body: Sequence[Stmt], mask: Mask | None) -> None:
        for s in body:
            self._write_one(s, mask)
            self._forget(_assigned((s,)))

    @staticmethod
    def _reads_nothing(exprs: Iterable[Expr]) -> None:
        """Where some lanes only would get there, none reads memory."""
        if any(isinstance(n, Load) for e in exprs for n in walk(e)):
            raise NotVector

    def _forget(self, changed: set[str]) -> None:
        """What has been computed of variables that change is computed again."""
        named = self.printer.named
        self.printer.named = {e: name for e, name in named.items() if not variables(e) & changed}

    def _write_one(self, s: Stmt, mask: Mask | None) -> None:
        match s:
            case Declare(name=name, type=ScalarType() as t, value=value) if name in self.shared:
                start = "" if value is None else f" = {self.printer.scalar(value)}"
                self.out.add(f"{c_type(t)} {name}{start};")
            case Assign(target=Var(name=name), value=value) if name in self.shared:
                self.out.add(f"{name} = {self.printer.scalar(value)};")
            case If(cond=cond, then=then, other=other) if mask is None and self._decides(cond):
                self._block(f"if ({self.printer.context.scalar(cond)})", then)
                if other:
                    self._block("else", other)
            case While(cond=cond, body=inner) if mask is None and self._decides(cond):
                self._block(f"while ({self.printer.context.scalar(cond)})", inner)
            case Declare(name=name, type=t, value=value):
                of = self.vectors.type(t)
                start = f"({of}){{0}}" if value is None else self.printer.vector(value)
                unique = name if name in self.own else self.names.new(name)
                self.printer.variables[name] = self._array(unique, of, start)
            case Assign(target=Var(name=name, type=t), value=value):
                self._assign(self.printer.variables[name], t, self.printer.vector(value), mask)
            case If(cond=cond, then=then, other=other):
                yes = self._named(self.printer.mask(cond))
                self._branch(then, self._both(mask, yes))
                if other:
                    no = self._named((f"~{yes[0]}", yes[1]))
                    self._branch(other, self._both(mask, no))
            case While():
                self._while(s, mask)
            case _:
                raise NotVector

    def _decides(self, cond: Expr) -> bool:
        """Whether a condition holds in all lanes or in none."""
        return not self.printer.varies(cond)

    def _block(self, head: str, body: Sequence[Stmt]) -> None:
        self._forget(_assigned(body))  # a loop comes back to its beginning
        known, named = dict(self.printer.variables), dict(self.printer.named)
        with self.out.block(head):
            self.write(body)
        self.printer.variables, self.printer.named = known, named

    def _branch(self, body: Sequence[Stmt], mask: Mask) -> None:
        """A branch; a long one is passed over where no lane takes it."""
        if operations(body) <= LONG:
            self.write(body, mask)
            return
        known, named = dict(self.printer.variables), dict(self.printer.named)
        with self.out.block(f"if ({self._any(mask[0])})"):
            self.write(body, mask)
        self.printer.variables, self.printer.named = known, named  # what the branch declares is out of sight

    def _any(self, mask: str) -> str:
        """A variable that is not 0 where some lane's mask is set."""
        some, lane = self.names.new("some"), self.names.new("lane")
        self.out.add(f"long {some} = 0;")
        lanes = f"for (long {lane} = 0; {lane} < {self.vectors.lanes}; {lane}++)"
        self._each(f"{lanes} {some} |= {mask}[{lane}];")
        return some

    def _each(self, *lines: str) -> None:
        """A step of all vectors."""
        self.out.add(f"#pragma GCC unroll {self.most}")
        v = self.counter
        with self.out.block(f"for (long {v} = 0; {v} < {self.count}; {v}++)"):
            self.out.add(*lines)

    def _array(self, name: str, of: str, value: str) -> str:
        """A variable with its value; the text of the current vector of it."""
        self.out.add(f"{of} {name}[{self.count}];")
        self._each(f"{name}[{self.counter}] = {value};")
        return f"{name}[{self.counter}]"

    def _assign(self, place: str, t: object, value: str, mask: Mask | None) -> None:
        assert isinstance(t, ScalarType)
        if mask is None:
            self._each(f"{place} = {value};")
            return
        of, m = self.vectors.type(t), self.vectors.mask(t)
        here = self.printer.as_wide(mask, t.bits)
        fresh = self.names.new("v")
        self._each(
            f"const {of} {fresh} = {value};",
            f"{place} = ({of})(({here} & ({m}){fresh}) | (~{here} & ({m}){place}));",
        )

    def _while(self, s: While, mask: Mask | None) -> None:
        changed = {d.name for d in declared_in(s.body)} | _assigned(s.body)
        self._forget(changed)
        self._reads_nothing((s.cond,))
        for e in (s.cond, *stmt_exprs(s.body)):
            self._before(e, changed)
        bits = self.printer.mask(s.cond)[1]
        t = self._mask_type(bits)
        active, more, step, lane = (self.names.new(n) for n in ("active", "more", "step", "lane"))
        start = f"~({t}){{0}}" if mask is None else self.printer.as_wide(mask, bits)
        here = self._array(active, t, start)
        self.out.add(f"long {more};")
        known = dict(self.printer.named)
        with self.out.block("do"):
            with self.out.block(f"for (long {step} = 0; {step} < {AT_ONCE}; {step}++)"):
                with self.printer.everywhere():
                    self._each(f"{here} &= {self.printer.mask(s.cond)[0]};")
                self.write(s.body, (here, bits))
            self.out.add(f"{more} = 0;")
            lanes = f"for (long {lane} = 0; {lane} < {self.vectors.lanes}; {lane}++)"
            self._each(f"{lanes} {more} |= {here}[{lane}];")
        self.out.rows[-1] += f" while ({more});"
        self.printer.named = known  # what an inner loop has named is out of sight

    def _before(self, e: Expr, changed: set[str]) -> None:
        """Names for the largest parts of an expression that the loop does not change."""
        if isinstance(e, Var | Const | Operand | Result) or e in self.printer.named:
            return
        steady = not variables(e) & changed and isinstance(e, Binary | Cast)
        if steady and isinstance(e.type, ScalarType) and e.type.is_float:
            name = self.names.new("same")
            self.printer.named[e] = self._array(name, self.vectors.type(e.type), self.printer.vector(e))
            return
        for child in children(e):
            self._before(child, changed)

    def _mask_type(self, bits: int) -> str:
        return self.vectors.mask(ScalarType(f"int{bits}", "int", bits))

    def _named(self, mask: Mask) -> Mask:
        return self._array(self.names.new("m"), self._mask_type(mask[1]), mask[0]), mask[1]

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
