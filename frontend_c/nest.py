"""A loop nest: the statement after a directive, as ``LoopNest``.

The reader walks the statement once.  Names from outside are bound when first used and sorted out
at the end: what is only read is a parameter, what is written is an outer scalar, arrays and
pointers are buffers.  A ``for`` that counts is a ``Loop``; one that does not, and does scalar work
only, is a ``While`` of the scalar function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from frontend_c import operators
from frontend_c.buffers import Extents, base_text, flatten, is_object
from frontend_c.c_types import Array, CType, Other, Pointer, Value
from frontend_c.expressions import Binding, Context
from frontend_c.functions import Functions, for_as_while, user_call
from frontend_c.loops import head, leaves
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.scopes import Surroundings, Variable, enumerator_value
from frontend_c.statements import Names, Out, Statements, assigned_names
from frontend_c.trees import as_scalar, drop_unused, map_nest, may_be_same, targets, used_names, walks_memory
from lifter.loop_nest import Loop, NestStmt, OuterScalar
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    Cast,
    Const,
    Declare,
    Expr,
    Load,
    RecordType,
    Return,
    ScalarType,
    Var,
    rewrite,
    walk,
)  # fmt: skip
from mdh_core.ir import Buffer, Param
from mdh_core.source import Span


@dataclass(frozen=True)
class Enclosing:
    """The function around a nest."""

    name: str
    node: Node  # FuncDef
    around: Surroundings
    names: frozenset[str]  # all identifiers of the function
    after: frozenset[str]  # identifiers after the nest


class NestReader(Statements):
    """Converts one nest."""

    def __init__(self, context: Context, enclosing: Enclosing, functions: Functions, nest: Node) -> None:
        super().__init__(context, Names(enclosing.names))
        self.enclosing = enclosing
        self.functions = functions
        self.called: dict[str, None] = {}
        self.outer: dict[str, Binding] = {}  # by spelling
        self.loops = 0
        self.assigned = assigned_names(nest)
        self.for_targets = _for_targets(nest)
        self.extents = Extents(self)

    # ------------------------------------------------------------------ names

    def lookup(self, name: str, node: Node) -> Binding:
        binding = self.find(name) or self.outer.get(name) or self._outer(name, node)
        if binding.refusal is not None:
            raise binding.refusal
        if not binding.name and binding.value is None:
            binding.name = self.names.unique(name)
        return binding

    def _outer(self, name: str, node: Node) -> Binding:
        """A name from outside the nest, bound when it is first met."""
        variable = self.variable(name)
        if variable is None:
            value = enumerator_value(self.context, name, self)
            if value is None:
                raise refuse("MDH006", f"`{name}` is not declared", self.span(node))
            binding = Binding(name, "constant", Value(value.type, ""), value=value)
        else:
            ctype = _counted_extent(self.types.resolve(variable.decl.type), variable.decl)
            binding = Binding(name, "outer", ctype, order=variable.order, storage=variable.storage)
            binding.refusal = self._why_not(binding, node)
        self.outer[name] = binding
        return binding

    def variable(self, name: str) -> Variable | None:
        """The declaration outside the nest that a name refers to."""
        found = self.enclosing.around.variables.get(name)
        if found is not None and found.storage != "global":
            return found
        decl = self.context.unit.variable(name) or (found.decl if found else None)
        return None if decl is None else Variable(name, decl, "global", -1)

    def _why_not(self, binding: Binding, node: Node) -> Refusal | None:
        """Objections to the type of a variable from outside."""
        match binding.ctype:
            case Value(type=RecordType(name="")):
                why, code, advice = "an anonymous struct type", "MDH212", "give the struct a name"
            case Value():
                return None
            case Array() | Pointer():
                _, element = flatten(binding.ctype)
                if isinstance(element, Value):
                    if isinstance(element.type, RecordType) and not element.type.name:
                        return refuse(
                            "MDH212", f"`{binding.source}` holds an anonymous struct", self.span(node)
                        )
                    return None
                why, code, advice = _element_objection(element)
            case Other(why=w, code=c, help=h):
                why, code, advice = w, c, h
            case _:
                why, code, advice = "a type without a value", "MDH212", ""
        return refuse(code, f"`{binding.source}` has {why}", self.span(node), help=advice)

    def call_user(self, name: str, args: Sequence[Node], node: Node) -> Expr:
        known = self.functions.get(name, self.span(node))
        if known.function.out_param:
            raise self.unsupported("a function without a result, used as a value", node)
        self.called[name] = None
        return user_call(known, [self.convert(a) for a in args], self.span(node))

    def call_statement(self, node: Node) -> list[Out]:
        """``f(&x, &y, &z)`` of a combine function is ``x = f(y, z)``; other calls must not have effects."""
        name = node.name.name if isinstance(node.name, c_ast.ID) else ""
        args = list(node.args.exprs) if node.args else []
        if self.context.unit.function_chunk(name) is None:
            self.convert(node)
            return []
        known = self.functions.get(name, self.span(node))
        if not known.function.out_param:
            self.convert(node)
            return []
        if len(args) != 3:
            raise self.unsupported("this call", node)
        self.called[name] = None
        target, *values = (self._addressed(a) for a in args)
        operands = [self.read(self.place(v)) for v in values]
        place = self.place(target)
        if known.late_reads and any(may_be_same(self.denote(place), v) for v in operands):
            raise refuse(
                "MDH204", f"`{name}` writes its result, which may be an operand, before it has read both",
                self.span(node), help="compute into locals first, then write the result",
            )  # fmt: skip
        return [self.assign(place, user_call(known, operands, self.span(node)), node)]

    def _addressed(self, node: Node) -> Node:
        """The place whose address is passed: ``x`` for ``&x``, ``*p`` for ``p``."""
        if isinstance(node, c_ast.UnaryOp) and node.op == "&":
            return node.expr
        if isinstance(node, c_ast.ID):
            return c_ast.UnaryOp("*", node, node.coord)
        if isinstance(node, c_ast.BinaryOp):
            return c_ast.UnaryOp("*", node, node.coord)
        raise self.unsupported("this argument", node)

    # ------------------------------------------------------------------ subscripts and bounds

    def subscript(self, index: Expr, node: Node) -> Expr:
        return self.extents.hoist(index)

    def invariant(self, e: Expr) -> bool:
        """Does a value stay the same in the whole nest, and come from outside?"""
        outer = {b.name: b for b in self.outer.values()}
        for n in walk(e):
            if isinstance(n, Var):
                binding = outer.get(n.name)
                if binding is None or binding.source in self.assigned or not isinstance(n.type, ScalarType):
                    return False
            elif not isinstance(n, Const | Cast) and type(n).__name__ not in ("Unary", "Binary", "Select"):
                return False
        return True

    # ------------------------------------------------------------------ statements

    def return_(self, node: Node) -> list[Out]:
        raise refuse("MDH205", "`return` inside a nest", self.context.head(node))

    def declare(self, node: Node) -> list[Out]:
        """An iterator declared ahead of its loop leaves its plain name to the loop."""
        if node.init is None and node.name in self.for_targets:
            ctype = self.types.resolve(node.type)
            t = self._local_type(node, ctype)
            binding = Binding(node.name, "local", ctype, self.names.unique(f"{node.name}_value"))
            self.scopes[-1][node.name] = binding
            return [Declare(binding.name, t, None, self.span(node))]
        return super().declare(node)

    def for_loop(self, node: Node) -> list[Out]:
        """A ``Loop`` if it counts; otherwise a ``While``, if it may be one."""
        if self.jumps and self.jumps[-1] is not None:
            return for_as_while(self, node)
        if self.loops and leaves(node) is not None:
            loop = self._as_while(node)
            return self._counted(node) if loop is None else loop
        try:
            return self._counted(node)
        except Refusal:
            loop = self._as_while(node) if self.loops else None
            if loop is None:
                raise
            return loop

    def _as_while(self, node: Node) -> list[Out] | None:
        """The loop as a part of the scalar function, or None where it does more than that."""
        if any(_stores(n) for n in walk_nodes(node)):
            return None
        marker = len(self.problems)
        try:
            out = for_as_while(self, node)
        except Refusal:
            out = []
        if not out or len(self.problems) > marker or walks_memory(out):
            del self.problems[marker:]
            return None
        return out

    def while_loop(self, node: Node, cond: Node | None, body: Node, step: Iterable[Node]) -> list[Out]:
        if not self.loops:
            raise refuse(
                "MDH210", "`while` loop around everything else", self.context.head(node),
                help="only a loop over scalars inside a counted loop may be one",
            )  # fmt: skip
        out = super().while_loop(node, cond, body, step)
        if any(isinstance(n, Load) for n in targets(out)):
            raise refuse("MDH210", "array is written in a loop that does not count", self.context.head(node))
        return out

    def _counted(self, node: Node) -> list[Out]:
        h = head(self, node)
        self.scopes.append({})
        out: list[Out] = []
        for part in h.before:
            out += self.statement(part)
        lower = self._bound(h.lower)
        ctype, outside = self._iterator_type(h.iterator, h.declared, node)
        upper = self._upper(h.op, self._bound(h.bound), h.step, ctype, node)
        out.append(self._loop(node, h.iterator, ctype, lower, upper, h.step, h.after, outside))
        self.scopes.pop()
        return out

    def _iterator_type(self, name: str, declared: Node | None, node: Node) -> tuple[Value, bool]:
        """Type of the iterator, and whether it was declared outside the nest."""
        if declared is not None:
            ctype: CType = self.types.resolve(declared.type)
            outside = False
        else:
            known = self.find(name) or self.outer.get(name) or self._outer(name, node)
            if known.refusal is not None:
                raise known.refusal
            known.stale = True
            ctype, outside = known.ctype, known.kind == "outer"
        if (
            not isinstance(ctype, Value)
            or not isinstance(ctype.type, ScalarType)
            or not ctype.type.is_integer
        ):
            raise refuse("MDH210", f"iterator `{name}` is no integer", self.context.head(node))
        return ctype, outside

    def _bound(self, node: Node) -> Expr:
        e = self.convert(node)
        if not isinstance(e.type, ScalarType) or not e.type.is_integer:
            raise refuse("MDH210", "bound is no integer", self.span(node))
        written = {b.name for b in self._written_names()}
        for n in walk(e):
            if isinstance(n, Var) and n.name in written:
                raise refuse(
                    "MDH202", f"bound depends on `{n.name}`, which the nest changes", self.span(node)
                )
        return self.extents.hoist(e, bound=True)

    def _written_names(self) -> list[Binding]:
        """Variables from outside that are assigned somewhere in the nest, not only as iterators."""
        plain = {n for n in self.assigned if n not in self.for_targets}
        return [b for b in self.outer.values() if b.source in plain and isinstance(b.ctype, Value)]

    def _upper(self, op: str, bound: Expr, step: int, ctype: Value, node: Node) -> Expr:
        """The exclusive bound in the direction of the step."""
        assert isinstance(ctype.type, ScalarType)
        if op == ">=" and not ctype.type.is_signed:
            raise refuse(
                "MDH210", "an unsigned iterator never gets below its bound", self.span(node.cond),
                help="count upwards, or use a signed iterator",
            )  # fmt: skip
        if op in ("<=", ">="):
            return operators.plus(bound, 1 if op == "<=" else -1)
        return bound

    def _loop(
        self, node: Node, source: str, ctype: Value, lower: Expr, upper: Expr, step: int,
        after: Sequence[Node], outside: bool,
    ) -> Loop:  # fmt: skip
        assert isinstance(ctype.type, ScalarType)
        binding = Binding(source, "iterator", ctype, self.names.unique(source))
        self.scopes[-1][source] = binding
        self.jumps.append(None)
        self.loops += 1
        body = [*self.scoped(node.stmt), *self.block(list(after))]
        self.loops -= 1
        self.jumps.pop()
        inner = tuple(s for s in body if not isinstance(s, Return))
        span = self._head_span(node)
        return Loop(binding.name, ctype.type, lower, upper, step, inner, source, outside, span)

    def _head_span(self, node: Node) -> Span:
        first = self.context.head(node)
        last = self.span(node.next) if node.next is not None else first
        return Span(first.start, max(first.end, last.end)) if first else first

    # ------------------------------------------------------------------ the result

    def result(self, body: Sequence[Out]) -> tuple[tuple[NestStmt, ...], tuple[Param, ...],
                                                   tuple[Buffer, ...], tuple[OuterScalar, ...]]:  # fmt: skip
        """Body, parameters, buffers and outer scalars, after the last name is known."""
        nest = tuple(s for s in body if not isinstance(s, Return))
        ranks = {
            b.name for b in self.outer.values() if b.dereferenced and not b.subscripted and _scalar_pointer(b)
        }
        nest = map_nest(nest, lambda e: rewrite(e, lambda n: as_scalar(n, ranks)))
        buffers = tuple(self._buffer(b, ranks) for b in list(self.outer.values()) if _is_buffer(b) and b.name)
        nest = drop_unused(nest)
        used = used_names(nest, buffers)
        params: list[Param] = []
        scalars: list[OuterScalar] = []
        for b in self.outer.values():
            if not isinstance(b.ctype, Value) or b.value is not None or not b.name:
                continue
            if b.written:
                scalars.append(OuterScalar(b.name, b.ctype.type, self._live(b), b.ctype.spelling))
            elif b.name in used:
                params.append(Param(b.name, b.ctype.type, b.source, b.ctype.spelling))
        hoisted = [p for p in self.extents.params if p.name in used]
        return nest, (*params, *hoisted), buffers, tuple(scalars)

    def _buffer(self, b: Binding, ranks: set[str]) -> Buffer:
        dims, element = flatten(b.ctype)
        assert isinstance(element, Value)
        extents = () if b.name in ranks else self.extents.of(b, dims)
        restrict = getattr(b.ctype, "restrict", False)
        return Buffer(
            b.name, element.type, extents, restrict=restrict, base=base_text(b, dims),
            c_type=element.spelling, distinct=is_object(b),
        )  # fmt: skip

    def _live(self, b: Binding) -> bool:
        """May the value be read after the nest?  Only a plain local's name tells."""
        around = self.enclosing.around
        known_elsewhere = b.storage in ("global", "static") or b.source in _addressed(
            self.enclosing.node.body
        )
        return known_elsewhere or around.repeats or b.source in self.enclosing.after


def _addressed(body: Node) -> set[str]:
    """Variables whose address is taken."""
    taken = (n.expr for n in walk_nodes(body) if isinstance(n, c_ast.UnaryOp) and n.op == "&")
    return {e.name for e in taken if isinstance(e, c_ast.ID)}


def _counted_extent(t: CType, decl: Node) -> CType:
    """``float w[] = {1, 2, 1}`` has three elements."""
    if not isinstance(t, Array) or t.extent is not None or not isinstance(decl.init, c_ast.InitList):
        return t
    if any(isinstance(e, c_ast.NamedInitializer) for e in decl.init.exprs):
        return t
    return replace(t, extent=c_ast.Constant("int", str(len(decl.init.exprs)), decl.coord))


def _element_objection(element: CType) -> tuple[str, str, str]:
    if isinstance(element, Pointer):
        return "a pointer to pointers as its type", "MDH212", "use `T (*A)[N]` or one flat array"
    if isinstance(element, Other):
        return element.why, element.code, element.help
    return "elements without a type", "MDH212", "declare the elements' type"


def _for_targets(nest: Node) -> frozenset[str]:
    """Names that some ``for`` of the nest initialises by assignment."""
    out = set()
    for n in walk_nodes(nest):
        if isinstance(n, c_ast.For) and n.init is not None and not isinstance(n.init, c_ast.DeclList):
            parts = n.init.exprs if isinstance(n.init, c_ast.ExprList) else [n.init]
            out |= {
                p.lvalue.name
                for p in parts
                if isinstance(p, c_ast.Assignment) and isinstance(p.lvalue, c_ast.ID)
            }
    return frozenset(out)


def _stores(node: Node) -> bool:
    """Is the node an assignment to memory rather than to a variable?"""
    if isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
        return not isinstance(node.expr, c_ast.ID | c_ast.StructRef)
    return isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ArrayRef | c_ast.UnaryOp)


def _is_buffer(b: Binding) -> bool:
    return isinstance(b.ctype, Array | Pointer) and b.refusal is None


def _scalar_pointer(b: Binding) -> bool:
    return isinstance(b.ctype, Pointer) and isinstance(b.ctype.target, Value)
