"""A loop nest: the statement after a directive, as ``LoopNest``.

The reader walks the statement once.  Names from outside are bound when first used and sorted out
at the end: what is only read is a parameter, what is written is an outer scalar, arrays and
pointers are buffers.  A ``for`` that counts is a ``Loop``; one that does not, and does scalar work
only, is a ``While`` of the scalar function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from frontend_c import operators
from frontend_c.buffers import Extents, base_text, flatten, is_object
from frontend_c.c_types import (
    C_NAMES,
    LOCAL_POINTER,
    SCALAR_MEMBERS,
    Aggregate,
    Array,
    CType,
    Other,
    Pointer,
    Value,
    Void,
)
from frontend_c.counted import after, begun, bounds, checked_range, over_memory, stride, strided
from frontend_c.expressions import Binding, Context, Place, times
from frontend_c.functions import Functions, for_as_while, user_call
from frontend_c.local_arrays import declared
from frontend_c.loops import Head, head, leaves, leaves_after_all, uncast, without_continue
from frontend_c.members import assigned_members, cell, member, pointer_reachable, reachable
from frontend_c.parsing import Node, c_ast, first_token, walk_nodes
from frontend_c.scopes import Surroundings, Variable, dead_after, enumerator_value
from frontend_c.statements import Names, Out, Statements, assigned_names, assigned_outside, jump
from frontend_c.tracking import (
    At,
    Known,
    Later,
    Range,
    Tracker,
    Untracked,
    counters,
    pointer_place,
    pointer_value,
)
from frontend_c.trees import (
    as_scalar,
    changes_memory_of,
    drop_unused,
    expressions,
    map_nest,
    may_be_same,
    targets,
    used_names,
    walks_memory,
)
from lifter.local_arrays import without_arrays
from lifter.local_tiles import Around, LocalArray
from lifter.loop_nest import Loop, NestStmt, OuterScalar, names_in_text, quotient_facts
from lifter.normalise import WHOLE_RANGE
from lifter.trees import declarations, ends
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    RecordType,
    Return,
    ScalarType,
    Select,
    Type,
    Unary,
    Var,
    affine_expr,
    as_affine,
    rewrite,
    variables,
    walk,
)
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
    whole: bool = True  # were all of its statements parsed?


Result = tuple[tuple[NestStmt, ...], tuple[Param, ...], tuple[Buffer, ...], tuple[OuterScalar, ...]]


class ByMemory(Exception):  # noqa: N818 - an answer, as ``Refusal``
    """These members of structs must be read from memory each time."""

    def __init__(self, paths: frozenset[str]) -> None:
        super().__init__(*sorted(paths))
        self.paths = paths


class NestReader(Statements):
    """Converts one nest."""

    def __init__(
        self, context: Context, enclosing: Enclosing, functions: Functions, nest: Node,
        given_up: Mapping[str, Refusal], by_memory: Set[str] = frozenset(),
    ) -> None:  # fmt: skip
        super().__init__(context, Names(enclosing.names))
        self.enclosing = enclosing
        self.functions = functions
        self.called: dict[str, None] = {}
        self.outer: dict[str, Binding] = {}  # by spelling
        self.loops = 0
        self.assigned = assigned_outside(nest)
        self.for_targets = _for_targets(nest)
        self.extents = Extents(self)
        self.tracker = Tracker(self, counters(nest), dict(given_up))
        self.open: dict[str, Range] = {}  # loops around what is read now, by iterator
        self.guards: dict[str, Affine] = {}  # conditions that the generated code is to test
        self.facts: list[Affine] = []  # of quotients, not negative; tested, too
        self.changed_in: list[dict[Binding, Known | Later | None]] = []  # in the branches of an ``if``
        self.set_behind: dict[str, None] = {}  # iterators that the last statements give their values
        self.nest = nest
        self.types.type_of = self._type_of
        self.assigned_members = assigned_members(nest)
        self.by_memory = by_memory
        self.local_arrays: dict[str, LocalArray] = {}

    # ------------------------------------------------------------------ names

    def _type_of(self, node: Node) -> CType:
        """The type of the expression in a ``typeof``."""
        if isinstance(node, c_ast.ID | c_ast.ArrayRef | c_ast.StructRef) or getattr(node, "op", "") == "*":
            t = self.place(node).ctype
            return replace(t, const=False) if isinstance(t, Value) else t
        e = self.convert(node)
        return Value(e.type, e.type.name if isinstance(e.type, RecordType) else C_NAMES[e.type.name])

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
            if isinstance(ctype, Array) and variable.storage == "param" and name in self.assigned:
                ctype = Pointer(ctype.element, ctype.restrict)  # as C has it; it moves
            binding = Binding(name, "outer", ctype, order=variable.order, storage=variable.storage)
            binding.refusal = self.objection(binding, node)
            if isinstance(ctype, Value):
                self._expose(binding)
        self.outer[name] = binding
        return binding

    def _expose(self, b: Binding) -> None:
        """Note whether pointers may reach a variable; if a store does, it is read from memory each time."""
        if b.storage == "global":
            b.exposed = self.context.unit.is_pointed_to(b.source)
        else:
            b.exposed = b.source in _addressed(self.enclosing.node.body)
        if b.source in self.by_memory:
            b.ctype, b.address, b.label = Pointer(b.ctype), f"&{b.source}", b.source

    def visible(self, name: str) -> Binding | None:
        """The variable that a name stands for here, whatever its type."""
        found = self.find(name) or self.outer.get(name)
        if found is None and self.variable(name) is not None:
            found = self._outer(name, self.nest)
        return found

    @property
    def head_of_nest(self) -> Span:
        return self.context.head(self.nest)

    def variable(self, name: str) -> Variable | None:
        """The declaration outside the nest that a name refers to."""
        found = self.enclosing.around.variables.get(name)
        if found is not None and found.storage != "global":
            return found
        decl = self.context.unit.variable(name) or (found.decl if found else None)
        return None if decl is None else Variable(name, decl, "global", -1)

    def objection(self, binding: Binding, node: Node) -> Refusal | None:
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
        derived = {p.name for p in self.extents.params}
        for n in walk(e):
            if isinstance(n, Var) and n.name in derived:
                continue
            if isinstance(n, Var):
                binding = outer.get(n.name)
                if binding is None or binding.source in self.assigned or not isinstance(n.type, ScalarType):
                    return False
            elif not isinstance(n, Const | Cast) and type(n).__name__ not in ("Unary", "Binary", "Select"):
                return False
        return True

    # ------------------------------------------------------------------ variables that are followed

    def read(self, place: Place) -> Expr:
        b = place.binding
        if not place.index and not place.members and isinstance(b.ctype, Value):
            if self.tracker.follows(b):
                return self.tracker.scalar(b, place.node)
            if b.stale and self.tracker.values.get(b) is not None:
                try:
                    return self.tracker.scalar(b, place.node)
                except Untracked:
                    pass
        return super().read(place)

    def place(self, node: Node) -> Place:
        """As everywhere; a pointer that is followed stands for the element that it points to."""
        if isinstance(node, c_ast.ID):
            b = self.lookup(node.name, node)
            if b.address:
                return self._member_of(b, node)
            if isinstance(b.ctype, Pointer) and self.tracker.follows(b):
                known = self.tracker.value(b, node)
                assert isinstance(known, At)
                return pointer_place(known, node)
        elif isinstance(node, c_ast.StructRef) and (found := member(self, node)) is not None:
            return self._member_of(found, node)
        elif isinstance(node, c_ast.UnaryOp) and node.op == "*" and (found := cell(self, node)) is not None:
            return Place(found, found.ctype, node)
        elif isinstance(node, c_ast.UnaryOp | c_ast.BinaryOp | c_ast.Cast) and getattr(node, "op", "") != "*":
            target = self.pointer(node)
            if target is not None:
                return pointer_place(target, node)
        return super().place(node)

    def _member_of(self, b: Binding, node: Node) -> Place:
        if b.refusal is not None:
            raise b.refusal
        if not b.name:
            b.name = self.names.unique(b.label)
        if b.address and isinstance(b.ctype, Pointer):
            b.dereferenced = True
            return self._step(Place(b, b.ctype, node), Const(0, INT32), node)
        return Place(b, b.ctype, node)

    def pointer(self, node: Node) -> At | None:
        """The value of a pointer expression, or None where it is none that can be followed."""
        if isinstance(node, c_ast.Cast):
            return self._pointer_cast(node)
        if isinstance(node, c_ast.BinaryOp):
            if node.op not in ("+", "-"):
                return None
            base, amount = node.left, node.right
            known = self.pointer(base)
            if known is None and node.op == "+":
                base, amount = amount, base
                known = self.pointer(base)
            if known is None:
                return None
            index = self.subscript(self.convert(amount), amount)
            return known.moved(index if node.op == "+" else times(Const(-1, INT64), index))
        if isinstance(node, c_ast.UnaryOp):
            return self._pointer_unary(node)
        if not isinstance(node, c_ast.ID | c_ast.ArrayRef | c_ast.StructRef):
            return None
        if isinstance(node, c_ast.ID):
            b = self.visible(node.name)
            if b is None or b.refusal is not None or b.address or not isinstance(b.ctype, Pointer | Array):
                return None
        return pointer_value(self.place(node))

    def _pointer_cast(self, node: Node) -> At | None:
        """A pointer of another type to the same memory is a buffer of its own (overlap is tested)."""
        t = self.types.resolve(node.to_type)
        if not isinstance(t, Pointer):
            return None
        inner = uncast(node.expr)
        b = self.visible(inner.name) if isinstance(inner, c_ast.ID) else None
        if isinstance(inner, c_ast.StructRef):
            b = member(self, inner)
        plain = b is not None and b.kind == "outer" and not self.tracker.follows(b) and not b.address
        if b is not None and plain and isinstance(b.ctype, Pointer) and not _same(t.target, b.ctype.target):
            if not isinstance(t.target, Value) or not isinstance(b.ctype.target, Void):
                return None
            source = f"(({t.target.spelling} *){b.source})"
            if source not in self.outer:
                self.outer[source] = Binding(source, "outer", Pointer(t.target), storage="param")
                self.outer[source].name = self.names.unique(b.label or b.source)
            return At(self.outer[source], (Const(0, INT64),), t.target)
        known = self.pointer(node.expr)
        return known if known is not None and _same(t.target, known.target) else None

    def _pointer_unary(self, node: Node) -> At | None:
        if node.op == "&" and isinstance(node.expr, c_ast.ArrayRef | c_ast.UnaryOp):
            place = self.place(node.expr)
            if place.members or not place.index or isinstance(place.ctype, Other):
                return None
            return At(place.binding, place.index, place.ctype)
        if node.op == "*":
            return pointer_value(self.place(node))
        if node.op in ("++", "--", "p++", "p--") and isinstance(node.expr, c_ast.ID):
            b = self.visible(node.expr.name)
            if b is not None and isinstance(b.ctype, Pointer) and not b.address:
                self._check_followed(b, node)
                known = self.tracker.step_inside(b, node)
                return known if isinstance(known, At) else None
        return None

    def _check_followed(self, b: Binding, node: Node) -> None:
        if b.refusal is not None:
            raise b.refusal
        if not self.tracker.follows(b):
            raise self.tracker.given_up.get(b.source) or self.moving(b, node)

    def _convert_unaryop(self, node: Node) -> Expr:
        if node.op in ("++", "--", "p++", "p--") and isinstance(node.expr, c_ast.ID):
            b = self.visible(node.expr.name)
            if b is not None and self.tracker.follows(b) and isinstance(b.ctype, Value):
                known = self.tracker.step_inside(b, node)
                assert not isinstance(known, At) and isinstance(b.ctype.type, ScalarType)
                return operators.cast(known, b.ctype.type, self.span(node))
        if node.op == "!" and (given := self._given(node)) is not None:
            return given
        return super()._convert_unaryop(node)

    def _convert_binaryop(self, node: Node) -> Expr:
        if node.op not in ("&&", "||"):
            return self._given(node) or super()._convert_binaryop(node)
        left = self.condition(node.left)
        with self.tracker.condition():
            right = self.condition(node.right)
        return operators.binary(node.op, left, right, self.span(node))

    def condition(self, node: Node) -> Expr:
        return self._given(node) or super().condition(node)

    def _given(self, node: Node) -> Expr | None:
        """``p`` or ``p != NULL`` for a pointer that stays the same: a parameter."""
        op, pointer = "!=", node
        if isinstance(node, c_ast.BinaryOp):
            op = node.op
            sides = [(node.left, node.right), (node.right, node.left)]
            pointer = next((a for a, b in sides if op in ("==", "!=") and _is_null(b)), None)
        elif isinstance(node, c_ast.UnaryOp) and node.op == "!":
            op, pointer = "==", node.expr
        b = None
        if isinstance(pointer, c_ast.ID):
            b = self.visible(pointer.name)
        elif isinstance(pointer, c_ast.StructRef):
            b = member(self, pointer)
        if b is None or b.kind != "outer" or b.address or not isinstance(b.ctype, Pointer):
            return None
        if self.tracker.follows(b) or b.source in self.assigned:
            return None
        return self.extents.variable(INT32, f"({b.source}) {op} 0", "int")

    def _convert_ternaryop(self, node: Node) -> Expr:
        cond = self.condition(node.cond)
        with self.tracker.condition():
            then, other = self.convert(node.iftrue), self.convert(node.iffalse)
        return operators.select(cond, then, other, self.span(node))

    def follow(self, node: Node) -> bool:
        """Take note of an assignment to a variable that is followed."""
        target = node.lvalue if isinstance(node, c_ast.Assignment) else node.expr
        b = self.visible(target.name) if isinstance(target, c_ast.ID) else None
        if b is None or b.refusal is not None or b.address:
            return False
        if isinstance(b.ctype, Pointer):
            self._check_followed(b, node)
        elif not self.tracker.follows(b):
            return False
        if isinstance(node, c_ast.UnaryOp):
            self.tracker.advance(b, Const(1 if "+" in node.op else -1, INT64), node)
        elif node.op == "=":
            self._set(b, node.rvalue, node)
        elif node.op in ("+=", "-="):
            amount = self.convert(node.rvalue)
            if not isinstance(amount.type, ScalarType) or not amount.type.is_integer:
                raise self.tracker.lost(b, node, "moves by an amount that is no integer")
            self.tracker.advance(b, amount if node.op == "+=" else times(Const(-1, INT64), amount), node)
        elif isinstance(b.ctype, Pointer):
            raise self.tracker.lost(b, node, "is changed in a way that cannot be followed")
        else:
            old, operand = self.tracker.scalar(b, node), self.convert(node.rvalue)
            self._set_value(b, operators.binary(node.op[:-1], old, operand, self.span(node)), node)
        return True

    def _set(self, b: Binding, value: Node, node: Node) -> None:
        if isinstance(b.ctype, Pointer):
            known = self.pointer(value)
            if known is None or not _same(b.ctype.target, known.target):
                raise self.tracker.lost(b, node, "gets a value that cannot be followed")
            if not all(self.stable(i) for i in known.index):
                raise self.tracker.lost(b, node, "gets a value that is computed in the nest")
            self.tracker.set(b, known, node)
        else:
            self._set_value(b, self.convert(value), node)

    def _set_value(self, b: Binding, value: Expr, node: Node) -> None:
        assert isinstance(b.ctype, Value) and isinstance(b.ctype.type, ScalarType)
        if not isinstance(value.type, ScalarType) or not value.type.is_integer:
            raise self.tracker.lost(b, node, "gets a value that is no integer")
        self.tracker.set(b, operators.cast(value, b.ctype.type, self.span(node)), node)

    def statement(self, node: Node) -> list[Out]:
        try:
            out = super().statement(node)
            self.tracker.flush(node)
        finally:
            self.tracker.pending.clear()
        return out

    def _statement_if(self, node: Node) -> list[Out]:
        """``if ((v = e) > 0)`` is ``v = e; if (v > 0)``."""
        first, test = _first_assigned(node.cond)
        out = [] if first is None else self.statement(first)
        cond = self.condition(test)
        self.tracker.flush(node.cond)
        around, self.changed_in = self.changed_in, []
        try:
            with self.tracker.condition(branch=True):
                out += self.branches(cond, node)
            changed = self.changed_in
        finally:
            self.changed_in = around
        self.tracker.join(cond, changed)
        return out

    def branch(self, node: Node | None) -> list[Out]:
        with self.tracker.branch() as changed:
            self.changed_in.append(changed)
            return self.scoped(node)

    # ------------------------------------------------------------------ statements

    def return_(self, node: Node) -> list[Out]:
        raise jump("return", self.context.head(node))

    def declare(self, node: Node) -> list[Out]:
        """An iterator declared ahead of its loop leaves its plain name to the loop."""
        ctype = self.types.resolve(node.type) if node.name is not None else Void()
        plain = not {"static", "extern"} & set(node.storage or [])
        if isinstance(ctype, Array) and (plain or _is_table(node)):
            return self._declare_array(node, _counted_extent(ctype, node))
        if isinstance(ctype, Pointer | Value) and plain:
            binding = Binding(node.name, "local", ctype, order=first_token(node) or -1)
            if isinstance(ctype, Pointer) and node.name in self.tracker.given_up:
                binding.kind, binding.refusal = "broken", self.tracker.given_up[node.name]
                self.scopes[-1][node.name] = binding
                raise binding.refusal
            if self.tracker.follows(binding):
                self.scopes[-1][node.name] = binding
                self.tracker.depth[binding] = self.tracker.maybe
                self.tracker.values[binding] = None
                if node.init is not None:
                    self._set(binding, node.init, node)
                return []
        if node.init is None and node.name in self.for_targets:
            t = self._local_type(node, ctype)
            binding = Binding(node.name, "local", ctype, self.names.unique(f"{node.name}_value"))
            self.scopes[-1][node.name] = binding
            return [Declare(binding.name, t, None, self.span(node))]
        return super().declare(node)

    def _declare_array(self, node: Node, ctype: CType) -> list[Out]:
        """A refused one is remembered, as other variables."""
        binding = Binding(node.name, "local", ctype, order=first_token(node) or -1)
        self.scopes[-1][node.name] = binding
        try:
            assert isinstance(ctype, Array)
            array, out = declared(self, binding, ctype, node)
        except Refusal as refusal:
            binding.kind, binding.refusal = "broken", refusal
            raise
        self.local_arrays[array.name] = array
        return out

    def for_loop(self, node: Node) -> list[Out]:
        """A ``Loop`` if it counts; otherwise a ``While``, if it may be one."""
        return self._any_loop(node, lambda: for_as_while(self, node))

    def _statement_while(self, node: Node) -> list[Out]:
        return self._any_loop(node, lambda: super(NestReader, self)._statement_while(node))

    def _statement_dowhile(self, node: Node) -> list[Out]:
        return self._any_loop(node, lambda: super(NestReader, self)._statement_dowhile(node))

    def _any_loop(self, node: Node, uncounted: Callable[[], list[Out]]) -> list[Out]:
        if self.jumps and self.jumps[-1] is not None:
            return self._unfollowed(uncounted)
        if self.loops and leaves(node) is not None and leaves_after_all(node):
            loop = self._as_while(node, uncounted)
            return self._counted(node) if loop is None else loop
        known, scopes = dict(self.tracker.values), [dict(scope) for scope in self.scopes]
        try:
            return self._counted(node)
        except Refusal as reason:
            self.tracker.values, self.scopes = known, scopes
            loop = self._as_while(node, uncounted) if self.loops else None
            if loop is not None:
                return loop
            if isinstance(node, c_ast.For):
                raise
            try:
                return self._unfollowed(uncounted)
            except Refusal as other:
                raise (reason if self._counts(node) else other) from None

    def _counts(self, node: Node) -> bool:
        """Has the loop the form of a counted one, so that it is refused for something else?"""
        try:
            head(self, node)
        except Refusal:
            return False
        return True

    def _unfollowed(self, uncounted: Callable[[], list[Out]]) -> list[Out]:
        """A loop that does not count: what is followed must not change in it."""
        with self.tracker.condition():
            return uncounted()

    def _as_while(self, node: Node, uncounted: Callable[[], list[Out]]) -> list[Out] | None:
        """The loop as a part of the scalar function, or None where it does more than that."""
        if any(_stores(n) for n in walk_nodes(node)):
            return None
        marker = len(self.problems)
        try:
            out = self._unfollowed(uncounted)
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
        if any(isinstance(n, Load) and n.buffer not in self.local_arrays for n in targets(out)):
            raise refuse("MDH210", "array is written in a loop that does not count", self.context.head(node))
        return out

    # ------------------------------------------------------------------ counted loops

    def _counted(self, node: Node) -> list[Out]:
        self.scopes.append({})
        h, out = begun(self, head(self, node), node)
        own = self.visible(h.iterator) if h.declared is None else self.scopes[-1].get(h.iterator)
        if own is not None and isinstance(own.ctype, Pointer) and own.refusal is None:
            if h.stride is not None:
                raise refuse(
                    "MDH210", f"loop over the pointer `{h.iterator}` by other steps than constant ones",
                    self.span(h.stride), help="count with an integer, and index the array",
                )  # fmt: skip
            out.append(over_memory(self, h, own, node))
        elif h.stride is not None or not self._in_step(h, node):
            out += strided(self, h, node)
        else:
            ctype, outside = self.iterator_type(h.iterator, h.declared, node)
            r = checked_range(self, h, ctype, node)
            loop, leave = self._loop(node, h, ctype, r, outside, own)
            leave()
            if own is not None:
                self.tracker.values[own] = self.tracker.final(own, r, node)
            if r.step > 1:
                loop = replace(loop, stride=stride(self, h, r, Const(r.step, INT64), node))
            out.append(loop)
        self.scopes.pop()
        return out

    def _in_step(self, h: Head, node: Node) -> bool:
        """Can what the loop moves beside its iterator be told from that?"""
        rest = [n for n, _ in h.after]
        plain = h.meeting is None and not h.moved and not h.ahead and h.op != "!="
        return not plain or abs(h.step) == 1 or self.tracker.in_step(node, rest, abs(h.step))

    def iterator_type(self, name: str, declared: Node | None, node: Node) -> tuple[Value, bool]:
        """Type of the iterator, and whether it was declared outside the nest."""
        if declared is not None:
            ctype: CType = self.types.resolve(declared.type)
            outside = False
        else:
            known = self.find(name) or self.outer.get(name) or self._outer(name, node)
            if known.refusal is not None:
                raise known.refusal
            ctype, outside = known.ctype, known.kind == "outer"
        if (
            not isinstance(ctype, Value)
            or not isinstance(ctype.type, ScalarType)
            or not ctype.type.is_integer
        ):
            raise refuse("MDH210", f"iterator `{name}` is no integer", self.context.head(node))
        return ctype, outside

    def bound(self, node: Node) -> Expr:
        return self.limit(self.convert(node), node)

    def limit(self, e: Expr, node: Node) -> Expr:
        """A bound of a loop, with parameters for its invariant parts that are not affine."""
        if not isinstance(e.type, ScalarType) or not e.type.is_integer:
            raise refuse("MDH210", "bound is no integer", self.span(node))
        written = {b.name for b in self._written_names()}
        for n in walk(e):
            if isinstance(n, Var) and n.name in written and not self.loops:
                raise refuse(
                    "MDH202", f"bound depends on `{n.name}`, which the nest changes", self.span(node)
                )
        return self.extents.hoist(rewrite(e, self.part), bound=True)

    def part(self, e: Expr) -> Expr | None:
        """A part of a size in a bound, as ``n / 2`` and ``n >> 1``, has a parameter of its own."""
        match e:
            case Binary(op="/", a=a, b=Const(value=int(divisor))) if divisor > 1:
                pass
            case Binary(op=">>", a=a, b=Const(value=int(places))) if 0 < places < 31:
                divisor = 1 << places
            case _:
                return None
        whole = as_affine(a)
        outside = {b.name for b in self.outer.values()} | {p.name for p in self.extents.params}
        if whole is None or not whole.names or not whole.names <= outside or not self.invariant(e):
            return None
        part = self.extents.hoist(e)
        quotient = as_affine(part)
        assert quotient is not None
        self.facts += quotient_facts(whole, quotient, divisor)
        return part

    def _written_names(self) -> list[Binding]:
        """Variables from outside that are assigned somewhere in the nest, not only as iterators."""
        plain = {n for n in self.assigned if n not in self.for_targets}
        return [b for b in self.outer.values() if b.source in plain and isinstance(b.ctype, Value)]

    def range_of(self, h: Head, node: Node) -> Range:
        """The bounds of a loop over integers."""
        return bounds(self, h, node)

    def moving(self, b: Binding, node: Node) -> Refusal:
        return self.unsupported(f"changing the pointer `{b.source}`", node, "index it instead")

    def _loop(
        self, node: Node, h: Head, ctype: Value, r: Range, outside: bool, own: Binding | None
    ) -> tuple[Loop, Callable[[], None]]:
        assert isinstance(ctype.type, ScalarType)
        it = Binding(h.iterator, "iterator", ctype, self.names.unique(h.iterator))
        if own is not None:
            own.stale = True
        if not h.moved:
            self.scopes[-1][h.iterator] = it
        else:
            inner = Binding(h.iterator, "local", ctype, it.name)
            self.scopes[-1][h.iterator] = inner
            if not self.tracker.follows(inner):
                raise self.tracker.given_up.get(h.iterator) or refuse(
                    "MDH210", f"iterator `{h.iterator}` is assigned in its loop", self.context.head(node)
                )
            self.tracker.values[inner] = Var(it.name, ctype.type)
            self.tracker.depth[inner] = self.tracker.maybe
        return self.body(node, h, it, r, outside, self.scopes[-1][h.iterator])

    def body(
        self, node: Node, h: Head, it: Binding, r: Range, outside: bool, own: Binding
    ) -> tuple[Loop, Callable[[], None]]:
        assert isinstance(it.ctype, Value) and isinstance(it.ctype.type, ScalarType)
        variable = Var(it.name, it.ctype.type)
        self.open[it.name] = r
        leave = self.tracker.enter(node, [n for n, _ in h.after], variable, r, own)
        self.jumps.append(None)
        self.loops += 1
        body = [*self.scoped(without_continue(node.stmt)), *after(self, h)]
        self.loops -= 1
        self.jumps.pop()
        del self.open[it.name]
        inner = tuple(s for s in body if not isinstance(s, Return))
        span = self._head_span(node)
        if changes_memory_of(r.upper, inner):
            what = f"bound of the loop over `{it.source}` is read from memory, which the loop changes"
            raise refuse("MDH202", what, span, help=WHOLE_RANGE)
        outer = self.outer.get(it.source)
        observed = outside and (outer is None or self._live(outer))
        loop = Loop(
            it.name, it.ctype.type, r.lower, r.upper, r.step, inner, it.source, outside, span, observed
        )
        return loop, leave

    def _head_span(self, node: Node) -> Span:
        first = self.context.head(node)
        end = node.next if isinstance(node, c_ast.For) else node.cond
        last = self.span(end) if end is not None else first
        return Span(first.start, max(first.end, last.end)) if first else first

    # ------------------------------------------------------------------ what is known about values

    def stable(self, e: Expr) -> bool:
        """Does a value consist of what is the same in the nest, and of iterators of the open loops?"""
        return all(
            (isinstance(n, Var) and (n.name in self.open or self.invariant(n)))
            or isinstance(n, Const | Cast | Unary | Binary | Select)
            for n in walk(e)
        )

    def never_negative(self, e: Expr) -> bool:
        """Is an integer, taken without wrapping, never below zero?

        If that depends on parameters alone, the generated code tests it and the answer is yes.
        """
        a = as_affine(e)
        if a is None:
            if not self.invariant(e):
                return False
            a = as_affine(self.extents.hoist(e))
            if a is None:
                return False
        for name in reversed(self.open):
            a = self._least(a, name)
            if a is None:
                return False
        outer = {b.name: b for b in self.outer.values()}
        derived = {p.name: p.type for p in self.extents.params}
        if not all(n in derived or (n in outer and self.invariant(Var(n, INT64))) for n in a.names):
            return False
        types = {n: derived.get(n) or getattr(outer[n].ctype, "type", None) for n in a.names}
        unsigned = all(isinstance(t, ScalarType) and not t.is_signed for t in types.values())
        if a.const >= 0 and unsigned and all(c > 0 for _, c in a.terms):
            return True
        if all(c < 0 for _, c in a.terms):
            return False  # true for small sizes only, if at all
        self.guards[f"{a} >= 0"] = a
        return True

    def _least(self, a: Affine, name: str) -> Affine | None:
        """A lower bound of an affine value over the range of an iterator."""
        c = a.coefficient(name)
        if not c:
            return a
        r = self.open[name]
        first, last = as_affine(r.lower), as_affine(r.upper)
        if first is None or last is None:
            return None
        last = last - 1 if r.step > 0 else last + 1
        return a.substitute({name: first if (c > 0) == (r.step > 0) else last})

    # ------------------------------------------------------------------ the result

    def finish(self) -> list[Out]:
        """Assignments that give followed variables their values after the nest.

        Of iterators, too, that end at what such a variable was before: they cannot be told from it then.
        """
        out: list[Out] = []
        changed: set[str] = set()
        for b in list(self.outer.values()):
            if not self.tracker.follows(b) or not self.tracker.changed.get(b) or not self._live(b):
                continue
            if isinstance(b.ctype, Pointer):
                raise self.tracker.lost(b, None, "is moved by the nest and used after it")
            if not b.stale:
                out.append(self._set_behind(b))
                changed.add(b.source)
        texts = {p.name: p.value for p in self.extents.params}
        for b in list(self.outer.values()):
            if not out or not b.stale or not self._live(b) or self.tracker.values.get(b) is None:
                continue
            used = variables(self.tracker.scalar(b, self.nest))
            if any(changed & set(names_in_text(texts.get(name, ""))) for name in used):
                out.append(self._set_behind(b))
                self.set_behind[b.source] = None
        return out

    def _set_behind(self, b: Binding) -> Assign:
        value = self.tracker.scalar(b, self.nest)
        b.name = b.name or self.names.unique(b.source)
        b.written = True
        assert isinstance(b.ctype, Value)
        return Assign(Var(b.name, b.ctype.type), value, self.head_of_nest)

    def _with_set_behind(self, body: Sequence[NestStmt]) -> tuple[NestStmt, ...]:
        """Iterators that the last statements set are not observed, and leave them the variable's name."""
        def unobserved(x: Loop) -> Loop:
            return replace(x, observed=x.observed and x.source_name not in self.set_behind)

        nest = _each_loop(body, unobserved)
        for source in self.set_behind:
            b = self.outer[source]
            if b.name != source:
                nest = _swapped(nest, source, b.name)
                b.name = source
        return nest

    def check_iterators(self, body: Sequence[NestStmt]) -> None:
        """One thing decides what a variable from outside holds after the nest: loops, or assignments."""
        entry = {p.value for p in self.extents.params}
        for name, loops in _outside(body).items():
            b = self.outer.get(name)
            if name in self.set_behind:
                continue
            if b is not None and (b.written or (name in entry and loops > 1)) and self._live(b):
                raise refuse(
                    "MDH210", f"`{name}` counts a loop and is changed elsewhere in the nest",
                    self.head_of_nest, help="use a variable of its own for the loop",
                )  # fmt: skip

    def check_members(self, buffers: Sequence[Buffer], body: Sequence[NestStmt]) -> None:
        """Members of structs, and variables that pointers reach, which a store of the nest might change.

        Raises ``ByMemory`` for scalars.
        """
        read = [b.type for b in buffers if not (b.distinct or b.restrict)]
        stored = {
            b.name for t in targets(list(body)) if isinstance(t, Load) for b in buffers if b.name == t.buffer
        }
        types = [b.type for b in buffers if b.name in stored and not (b.distinct or b.restrict)]
        again: set[str] = set()
        for b in self.outer.values():
            if not (b.label or b.exposed) or b.refusal is not None or b.address or self._out_of_reach(b):
                continue
            if isinstance(b.ctype, Value):
                own = b.stale or self.tracker.follows(b)
                if not any(reachable(b.ctype.type, t) for t in (read if b.written or own else types)):
                    continue
                if own:
                    raise refuse(
                        "MDH210", f"`{b.source}` counts, and pointers of the nest might reach it",
                        self.head_of_nest, help="use a local variable",
                    )  # fmt: skip
                if b.name:
                    again.add(b.source)
            elif b.label and isinstance(b.ctype, Pointer) and any(pointer_reachable(t) for t in types):
                raise refuse(
                    "MDH006", f"`{b.source}` might be changed by the nest, which writes characters",
                    self.head_of_nest, help=LOCAL_POINTER,
                )  # fmt: skip
        if again:
            raise ByMemory(frozenset(again))

    def _out_of_reach(self, b: Binding) -> bool:
        """Is it a member of a variable of the function's own to which nothing points?"""
        root, dot, _ = b.source.partition(".")
        found = self.variable(root) if dot and "->" not in b.source else None
        plain = found is not None and found.storage in ("param", "local")
        return plain and root not in _addressed(self.enclosing.node.body)

    def result(self, body: Sequence[Out], exact: bool) -> Result:
        """Body, parameters, buffers and outer scalars, after the last name is known.

        ``exact``: floating-point values are added up in the order of the source.
        """
        nest = self._with_set_behind([s for s in body if not isinstance(s, Return)])
        if self.local_arrays:
            around = Around(self.names.unique, lambda a: self.never_negative(affine_expr(a)), exact)
            nest = without_arrays(nest, self.local_arrays, around)
        ranks = {
            b.name for b in self.outer.values() if b.dereferenced and not b.subscripted and _scalar_pointer(b)
        }
        nest = map_nest(nest, lambda e: rewrite(e, lambda n: as_scalar(n, ranks)))
        loaded = {n.buffer for e in expressions(nest) for n in walk(e) if isinstance(n, Load)}
        buffers = tuple(
            self._buffer(b, ranks) for b in list(self.outer.values())
            if _is_buffer(b) and b.name and (b.name in loaded or b.source not in self.assigned)
        )  # fmt: skip
        nest = drop_unused(nest)
        used = used_names(nest, buffers) | {n for a in (*self.guards.values(), *self.facts) for n in a.names}
        used |= ends(nest)
        params: list[Param] = []
        scalars: list[OuterScalar] = []
        for b in self.outer.values():
            if not isinstance(b.ctype, Value) or b.value is not None or not b.name:
                continue
            if b.written:
                scalars.append(OuterScalar(b.name, b.ctype.type, self._live(b), b.ctype.spelling))
            elif b.name in used:
                params.append(Param(b.name, b.ctype.type, b.source, b.ctype.spelling))
        self.check_members(buffers, nest)
        self.check_iterators(nest)
        self.check_records([*(b.type for b in buffers), *(s.type for s in scalars)], nest)
        hoisted = [p for p in self.extents.params if p.name in used]
        return nest, (*params, *hoisted), buffers, tuple(scalars)

    def check_records(self, types: Sequence[Type], body: Sequence[Out]) -> None:
        """MDH212 for structs that are declared in the function: generated code stands above it."""
        declared = [s.type for s in declarations(body)]
        for t in dict.fromkeys(t for t in (*types, *declared) if isinstance(t, RecordType)):
            kind, _, tag = t.name.rpartition(" ")
            if self.types.local(kind or "typedef", tag) is not None:
                raise refuse(
                    "MDH212", f"`{t.name}` is declared in the function", self.context.head(self.nest),
                    help="declare it above the function",
                )  # fmt: skip

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
        if known_elsewhere or not (around.repeats or b.source in self.enclosing.after):
            return known_elsewhere
        return not self.enclosing.whole or not dead_after(self.enclosing.node, self.nest, b.source)


def _addressed(body: Node) -> set[str]:
    """Variables whose address is taken, or that of a member."""
    taken = (_root(n.expr) for n in walk_nodes(body) if isinstance(n, c_ast.UnaryOp) and n.op == "&")
    return {e.name for e in taken if isinstance(e, c_ast.ID)}


def _root(place: Node) -> Node:
    """The variable of which a place is a part: ``s`` of ``s.a.b`` and ``s.a[i]``, not of ``s->a``."""
    while True:
        inner = place.name if isinstance(place, c_ast.StructRef | c_ast.ArrayRef) else None
        if inner is None or (isinstance(place, c_ast.StructRef) and place.type != "."):
            return place
        if isinstance(place, c_ast.ArrayRef) and not isinstance(inner, c_ast.StructRef):
            return place
        place = inner


def _is_table(decl: Node) -> bool:
    """``static const int w[3] = {1, 2, 1};`` holds the same in every iteration, as without ``static``."""
    t = decl.type
    while not isinstance(t, c_ast.TypeDecl):
        t = t.type
    return "static" in decl.storage and "const" in {*decl.quals, *t.quals} and decl.init is not None


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
    if isinstance(element, Aggregate):
        return element.why, element.code, SCALAR_MEMBERS
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


def _same(a: CType, b: CType) -> bool:
    """Are values of the two types stored alike?"""
    match a, b:
        case Value(type=s), Value(type=t):
            return s == t
        case (Array(element=s), Array(element=t)) | (Pointer(target=s), Pointer(target=t)):
            return _same(s, t)
    return False


def _outside(body: Sequence[object]) -> Counter[str]:
    """How many loops each iterator from outside counts."""
    out: Counter[str] = Counter()
    for s in body:
        match s:
            case Loop(source_name=name, declared_outside=outside, body=inner):
                out[name] += outside
                out += _outside(inner)
            case If(then=then, other=other):
                out += _outside((*then, *other))
            case _:
                pass
    return out


def _swapped(body: Sequence[NestStmt], a: str, b: str) -> tuple[NestStmt, ...]:
    """The statements with two names exchanged."""
    other = {a: b, b: a}
    renamed = _each_loop(body, lambda x: replace(x, iterator=other.get(x.iterator, x.iterator)))

    def name(e: Expr) -> Expr | None:
        return replace(e, name=other[e.name]) if isinstance(e, Var) and e.name in other else None

    return map_nest(renamed, lambda e: rewrite(e, name))


def _each_loop(body: Sequence[NestStmt], f: Callable[[Loop], Loop]) -> tuple[NestStmt, ...]:
    out: list[NestStmt] = []
    for s in body:
        match s:
            case Loop():
                out.append(f(replace(s, body=_each_loop(s.body, f))))
            case If(then=then, other=other):
                yes, no = (_each_loop(part, f) for part in (then, other))  # type: ignore[arg-type]
                out.append(replace(s, then=yes, other=no))  # type: ignore[arg-type] # loops in it
            case _:
                out.append(s)
    return tuple(out)


def _first_assigned(cond: Node) -> tuple[Node | None, Node]:
    """An assignment that a condition makes before anything else, and the condition after it."""
    if isinstance(cond, c_ast.Assignment) and isinstance(cond.lvalue, c_ast.ID):
        return cond, cond.lvalue
    if isinstance(cond, c_ast.BinaryOp) and not assigned_names(cond.right):
        first, left = _first_assigned(cond.left)
        changed = isinstance(first, c_ast.Assignment) and first.lvalue.name in _mentioned(cond.right)
        if first is not None and not (changed and cond.op not in ("&&", "||")):
            return first, c_ast.BinaryOp(cond.op, left, cond.right, cond.coord)
    return None, cond


def _mentioned(node: Node) -> set[str]:
    return {n.name for n in walk_nodes(node) if isinstance(n, c_ast.ID)}


def _is_null(node: Node) -> bool:
    node = uncast(node)
    return isinstance(node, c_ast.Constant) and node.value == "0"


def _is_buffer(b: Binding) -> bool:
    return isinstance(b.ctype, Array | Pointer) and b.refusal is None


def _scalar_pointer(b: Binding) -> bool:
    return isinstance(b.ctype, Pointer) and isinstance(b.ctype.target, Value)
