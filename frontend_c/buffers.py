"""Arrays: their extents as affine expressions, and what must be computed before the nest.

    float (*A)[m / 2]            extents (None, mdh_p0)       mdh_p0 = m / 2
    for (i = 0; i < a * b; i++)  upper mdh_p1                 mdh_p1 = a * b
    x[i * n + n / 2]             x[i * n + mdh_p2]            mdh_p2 = n / 2

A product with an iterator is left alone: taking linearised subscripts apart is the lifter's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frontend_c.c_types import C_NAMES, Array, CType, Pointer
from frontend_c.expressions import Binding
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.statements import assigned_names
from mdh_core.diagnostics import Refusal
from mdh_core.expr import (
    UINT64,
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    ScalarType,
    Select,
    Unary,
    Var,
    as_affine,
    map_children,
)  # fmt: skip
from mdh_core.ir import Param

if TYPE_CHECKING:
    from frontend_c.nest import NestReader


def flatten(t: CType) -> tuple[list[Node | None], CType]:
    """Extents, outermost first (None where C does not say), and the type of an element."""
    dims: list[Node | None] = []
    if isinstance(t, Pointer):
        dims, t = [None], t.target
    while isinstance(t, Array):
        dims.append(t.extent)
        t = t.element
    return dims, t


def is_object(b: Binding) -> bool:
    """Is the variable an array object, rather than a pointer (as every array parameter is)?"""
    return isinstance(b.ctype, Array) and b.storage != "param"


def base_text(b: Binding, dims: Sequence[Node | None]) -> str:
    """C text for the address of the first element."""
    if b.address:
        return b.address
    return b.source if len(dims) <= 1 else "&" + b.source + "[0]" * len(dims)


@dataclass(eq=False)
class Extents:
    """Derived parameters of a nest: each non-affine invariant value is computed once, before it."""

    reader: NestReader
    params: list[Param] = field(default_factory=list)
    _known: dict[Expr, Var] = field(default_factory=dict)

    # ------------------------------------------------------------------ bounds and subscripts

    def hoist(self, e: Expr, bound: bool = False) -> Expr:
        """``e`` with its invariant parts that are not affine replaced by parameters."""
        if as_affine(e) is not None or isinstance(e, Const | Var):
            return e
        if e in self._known:
            return self._known[e]
        if self.reader.invariant(e) and isinstance(e.type, ScalarType) and e.type.is_integer:
            return self._param(e)
        match e:
            case Binary(op="+" | "-") | Cast() | Unary(op="-"):
                return map_children(e, lambda child: self.hoist(child, bound))
            case Binary(op="*"):
                return map_children(e, self._factor)
            case _:
                return e

    def _factor(self, e: Expr) -> Expr:
        """In a product with an iterator, sums and products stay, quotients and the like do not."""
        if e in self._known:
            return self._known[e]
        match e:
            case Const() | Var():
                return e
            case Binary(op="+" | "-" | "*") | Cast() | Unary(op="-"):
                return map_children(e, self._factor)
        return self.hoist(e)

    def _param(self, e: Expr) -> Var:
        assert isinstance(e.type, ScalarType)
        var = self._new(e.type, self.text(e))
        self._known[e] = var
        return var

    def _new(self, t: ScalarType, value: str) -> Var:
        for param in self.params:
            if param.value == value:
                assert isinstance(param.type, ScalarType)
                return Var(param.name, param.type)
        number = len(self.params)
        name = self.reader.names.unique(f"mdh_p{number}")
        self.params.append(Param(name, t, value, C_NAMES[t.name]))
        return Var(name, t)

    def variable(self, t: ScalarType, source: str, c_type: str) -> Var:
        """The value that a variable has before the nest."""
        var = self._new(t, source)
        self.params = [
            replace(p, c_type=c_type or p.c_type) if p.name == var.name else p for p in self.params
        ]
        return var

    def text(self, e: Expr) -> str:
        """C text of an invariant integer expression, in the spelling of the source."""
        outer = {b.name: b.source for b in self.reader.outer.values()}
        values = {p.name: f"({p.value})" for p in self.params}

        def show(e: Expr) -> str:
            match e:
                case Const(value=value, type=t):
                    digits = f"{value}{_SUFFIX.get(t.name, '')}"
                    return digits if value >= 0 else f"({digits})"
                case Var(name=name):
                    return outer.get(name) or values.get(name, name)
                case Cast(a=a, type=t):
                    return f"({C_NAMES[t.name]}){wrap(a)}"
                case Unary(op=op, a=a):
                    return f"{op}{wrap(a)}"
                case Binary(op="/" | "%" as op, a=a, b=b) if not isinstance(b, Const):
                    return f"{wrap(b)} ? {wrap(a)} {op} {wrap(b)} : 0"
                case Binary(op=op, a=a, b=b):
                    return f"{wrap(a)} {op} {wrap(b)}"
                case Select(cond=c, then=t, other=o):
                    return f"{wrap(c)} ? {wrap(t)} : {wrap(o)}"
            raise AssertionError(e)

        def wrap(e: Expr) -> str:
            return show(e) if isinstance(e, Const | Var) else f"({show(e)})"

        return show(e)

    # ------------------------------------------------------------------ extents

    def of(self, b: Binding, dims: Sequence[Node | None]) -> tuple[Affine | None, ...]:
        return tuple(None if d is None else self._extent(b, k, d) for k, d in enumerate(dims))

    def _extent(self, b: Binding, k: int, dim: Node) -> Affine | None:
        """Extent ``k``, in terms of parameters that still have the value they had in the declaration."""
        if self._stable(b, dim):
            try:
                e = self.reader.convert(dim)
            except Refusal:
                e = None
            if e is not None and self.reader.invariant(e):
                affine = as_affine(e)
                return affine if affine is not None else Affine.of(self._param(e).name)
        if k == 0 and not is_object(b):
            return None
        row = b.source + "[0]" * k
        return Affine.of(self._new(UINT64, f"sizeof({row}) / sizeof({row}[0])").name)

    def _stable(self, b: Binding, dim: Node) -> bool:
        changed = assigned_names(self.reader.enclosing.node.body)
        for n in walk_nodes(dim):
            if isinstance(n, c_ast.ID):
                if any(token > b.order for token in changed.get(n.name, ())):
                    return False
                variable = self.reader.variable(n.name)
                if variable is not None and variable.storage != "param" and variable.order > b.order:
                    return False
        return True


_SUFFIX = {"uint32": "u", "int64": "LL", "uint64": "ULL"}
