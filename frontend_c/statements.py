"""Statements of the parser -> statements of ``mdh_core.expr``.

    do { a; if (p) break; b; } while (c);      =>      int go = 1, stop = 0;
                                                       while (!stop && go) {
                                                           a; if (p) stop = 1;
                                                           if (!stop) { b; }
                                                           if (!stop) go = c != 0;
                                                       }

Compound assignment, ``++`` and chains are spelled out; ``break`` and ``continue`` of a loop that
becomes a ``While`` turn into flags.  What a counted loop becomes is a subclass's business.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from frontend_c import operators
from frontend_c.c_types import Array, CType, Other, Pointer, Value
from frontend_c.expressions import Binding, Context, Expressions, Place
from frontend_c.parsing import Node, c_ast, first_token, walk_nodes
from lifter.loop_nest import Loop, NestStmt
from mdh_core.diagnostics import Diagnostic, Refusal, early_exit, refuse
from mdh_core.expr import (
    INT32,
    Assign,
    Binary,
    Const,
    Declare,
    Expr,
    If,
    RecordType,
    Return,
    Stmt,
    Type,
    Unary,
    Var,
    While,
)  # fmt: skip
from mdh_core.source import Span

Out = NestStmt | Return


@dataclass(eq=False)
class Jumps:
    """The innermost ``While``: flags that its ``break`` and ``continue`` set, named when needed."""

    stop: str = ""
    skip: str = ""
    count: int = 0


@dataclass(eq=False)
class Names:
    """Gives out unique names; ``avoid`` are all identifiers of the function."""

    avoid: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)

    def unique(self, name: str) -> str:
        if name not in self.used:
            self.used.add(name)
            return name
        number = 1
        while (new := f"{name}_{number}") in self.used or new in self.avoid:
            number += 1
        self.used.add(new)
        return new


class Statements(Expressions):
    """Converts statement lists; problems are collected, so that one run finds them all."""

    instead = "declare it before the nest"  # of a declaration that is not supported

    def __init__(self, context: Context, names: Names) -> None:
        super().__init__(context)
        self.names = names
        self.scopes: list[dict[str, Binding]] = [{}]
        self.jumps: list[Jumps | None] = []
        self.problems: list[Diagnostic] = []

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def for_loop(self, node: Node) -> list[Out]: ...

    @abstractmethod
    def return_(self, node: Node) -> list[Out]: ...

    def call_statement(self, node: Node) -> list[Out]:
        raise refuse("MDH204", "a call whose result is not used", self.span(node))

    def find(self, name: str) -> Binding | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    # ------------------------------------------------------------------ lists

    def block(self, items: Sequence[Node]) -> list[Out]:
        """Statements in order; after one that may jump, the rest runs only if it did not."""
        out: list[Out] = []
        for k, item in enumerate(items):
            jumps = self.jumps[-1] if self.jumps else None
            before = jumps.count if jumps else 0
            out += self.guarded(item)
            if jumps and jumps.count > before:
                rest = self.block(items[k + 1 :])
                return out + ([If(_no_jump(jumps), _plain(rest))] if rest else [])
        return out

    def guarded(self, item: Node) -> list[Out]:
        """One statement; a refusal is noted, and reading goes on after it."""
        try:
            return self.statement(item)
        except Refusal as refusal:
            if refusal.diagnostic not in self.problems:
                self.problems.append(refusal.diagnostic)
            return []

    def scoped(self, node: Node | None) -> list[Out]:
        """A statement in a scope of its own."""
        if node is None:
            return []
        self.scopes.append({})
        items = (node.block_items or []) if isinstance(node, c_ast.Compound) else [node]
        out = self.block(items)
        self.scopes.pop()
        return out

    def statement(self, node: Node) -> list[Out]:
        method = getattr(self, f"_statement_{type(node).__name__.lower()}", None)
        if method is not None:
            result: list[Out] = method(node)
            return result
        if (word := _JUMPS.get(type(node).__name__)) is not None:
            raise jump(word, self.context.head(node))
        if isinstance(node, c_ast.Typedef):
            raise self.unsupported("a typedef", node)
        self.convert(node)  # an expression without effect
        return []

    # ------------------------------------------------------------------ simple statements

    def _statement_emptystatement(self, node: Node) -> list[Out]:
        return []

    _statement_pragma = _statement_emptystatement
    _statement_staticassert = _statement_emptystatement

    def _statement_compound(self, node: Node) -> list[Out]:
        return self.scoped(node)

    def _statement_exprlist(self, node: Node) -> list[Out]:
        return self.block(node.exprs)

    def _statement_cast(self, node: Node) -> list[Out]:
        self.statement(node.expr)  # (void)x;
        return []

    def _statement_funccall(self, node: Node) -> list[Out]:
        return self.call_statement(node)

    def _statement_decl(self, node: Node) -> list[Out]:
        return self.declare(node)

    def _statement_decllist(self, node: Node) -> list[Out]:
        return self.block(node.decls)

    def declare(self, node: Node) -> list[Out]:
        """A local variable; a refused one is remembered, so that its uses are not refused again."""
        if node.name is None:  # only a tag
            return []
        ctype = self.types.resolve(node.type)
        binding = Binding(node.name, "local", ctype, order=first_token(node) or -1)
        try:
            t = self._local_type(node, ctype)
            value = None if node.init is None else self.initial(node.init, t, node)
        except Refusal as refusal:
            binding.kind, binding.refusal = "broken", refusal
            self.scopes[-1][node.name] = binding
            raise
        binding.name = self.names.unique(node.name)
        self.scopes[-1][node.name] = binding
        return [Declare(binding.name, t, value, self.span(node))]

    def _local_type(self, node: Node, ctype: CType) -> Type:
        if "static" in (node.storage or []) or "extern" in (node.storage or []):
            what = f"declaring a `{node.storage[0]}` variable"
            raise self.unsupported(what, node, self.instead)
        match ctype:
            case Value(type=t):
                return t
            case Other(why=why, code=code):
                raise refuse(code, f"`{node.name}` has {why}", self.span(node))
            case Array():
                raise self.unsupported("declaring an array", node, self.instead)
            case Pointer():
                raise self.unsupported("declaring a pointer", node, "take the pointer before the nest")
        raise self.unsupported("this declaration", node)

    # ------------------------------------------------------------------ assignments

    def follow(self, node: Node) -> bool:
        """A hook: is the assignment (or ``++``) one of a variable whose value is only kept track of?"""
        return False

    def _statement_assignment(self, node: Node) -> list[Out]:
        return self._assigned(node)[0]

    def _assigned(self, node: Node) -> tuple[list[Out], Place]:
        """The assignments of a chain ``a = b = e``, and the place of the first."""
        out: list[Out] = []
        if isinstance(node.rvalue, c_ast.Assignment):
            out, inner = self._assigned(node.rvalue)
            if self.follow(c_ast.Assignment(node.op, node.lvalue, node.rvalue.lvalue, node.coord)):
                return out, self.place(node.lvalue)
            value = self.read(inner)
        elif isinstance(node.rvalue, c_ast.InitList):
            raise self.unsupported("this initialiser", node.rvalue)
        elif self.follow(node):
            return out, self.place(node.lvalue)
        else:
            value = self.convert(node.rvalue)
        place = self.place(node.lvalue)  # once: it may move a pointer
        if node.op != "=":
            value = operators.binary(node.op[:-1], self.read(place), value, self.span(node))
        return [*out, self.assign(place, value, node)], place

    def _statement_unaryop(self, node: Node) -> list[Out]:
        if node.op not in ("++", "--", "p++", "p--"):
            self.convert(node)
            return []
        if self.follow(node):
            return []
        place = self.place(node.expr)
        one = Const(1, INT32)
        value = operators.binary(node.op[-1], self.read(place), one, self.span(node))
        return [self.assign(place, value, node)]

    def assign(self, place: Place, value: Expr, node: Node) -> Assign:
        """``place = value`` with C's conversion of the value."""
        binding, span = place.binding, self.span(node)
        if binding.kind == "iterator":
            raise refuse("MDH210", f"iterator `{binding.source}` is assigned in its loop", span)
        if isinstance(place.ctype, Pointer | Array):
            raise self.unsupported(f"changing the pointer `{binding.source}`", node, "index it instead")
        if binding.kind == "constant":
            raise refuse("MDH006", f"`{binding.source}` is a constant", span)
        binding.written = True
        binding.stale = False
        target = self.denote(place)
        if isinstance(target.type, RecordType):
            if value.type != target.type:
                raise refuse("MDH006", f"the value assigned is no `{target.type}`", span)
            return Assign(target, value, span)
        return Assign(target, operators.cast(value, target.type, span), span)

    # ------------------------------------------------------------------ control

    def _statement_if(self, node: Node) -> list[Out]:
        return self.branches(self.condition(node.cond), node)

    def branches(self, cond: Expr, node: Node) -> list[Out]:
        then, other = self.branch(node.iftrue), self.branch(node.iffalse)
        if not (then or other):
            return []
        # the nest's statements may have loops in branches, the language of expressions does not know them
        return [If(cond, tuple(then), tuple(other), self.span(node))]  # type: ignore[arg-type]

    def branch(self, node: Node | None) -> list[Out]:
        """A statement that may be left out."""
        return self.scoped(node)

    def _statement_return(self, node: Node) -> list[Out]:
        return self.return_(node)

    def _statement_for(self, node: Node) -> list[Out]:
        return self.for_loop(node)

    def _statement_while(self, node: Node) -> list[Out]:
        return self.while_loop(node, node.cond, node.stmt, [])

    def _statement_dowhile(self, node: Node) -> list[Out]:
        go = self.names.unique("mdh_go")
        body, jumps = self._loop_body(node.stmt)
        again = Assign(Var(go, INT32), self.condition(node.cond), self.span(node.cond))
        tail: list[Out] = [If(_not(jumps.stop), (again,))] if jumps.stop else [again]
        loop = self._while(Var(go, INT32), [*body, *tail], jumps, node)
        return [Declare(go, INT32, Const(1, INT32), self.span(node)), *loop]

    def while_loop(self, node: Node, cond: Node | None, body: Node, step: Iterable[Node]) -> list[Out]:
        """``while (cond) { body; step; }``; ``continue`` still does the step."""
        test: Expr = Const(1, INT32) if cond is None else self.condition(cond)
        inner, jumps = self._loop_body(body)
        after = self.block(list(step))
        if jumps.stop and after:
            after = [If(_not(jumps.stop), _plain(after))]
        return self._while(test, [*inner, *after], jumps, node)

    def _loop_body(self, node: Node) -> tuple[list[Out], Jumps]:
        jumps = Jumps()
        self.jumps.append(jumps)
        body = self.scoped(node)
        self.jumps.pop()
        if jumps.skip:
            body.insert(0, Declare(jumps.skip, INT32, Const(0, INT32)))
        return body, jumps

    def _while(self, cond: Expr, body: list[Out], jumps: Jumps, node: Node) -> list[Out]:
        span = self.context.head(node)
        if any(isinstance(s, Loop) for s in body):
            raise refuse("MDH210", "counted loop inside a loop that is none", span)
        if not jumps.stop:
            return [While(cond, _plain(body), span)]
        flag = Declare(jumps.stop, INT32, Const(0, INT32), span)
        return [flag, While(Binary("&&", _not(jumps.stop), cond, INT32), _plain(body), span)]

    def _statement_break(self, node: Node) -> list[Out]:
        jumps = self._innermost(node, "break")
        jumps.stop = jumps.stop or self.names.unique("mdh_stop")
        return [Assign(Var(jumps.stop, INT32), Const(1, INT32), self.context.head(node))]

    def _statement_continue(self, node: Node) -> list[Out]:
        jumps = self._innermost(node, "continue")
        jumps.skip = jumps.skip or self.names.unique("mdh_skip")
        return [Assign(Var(jumps.skip, INT32), Const(1, INT32), self.context.head(node))]

    def _innermost(self, node: Node, word: str) -> Jumps:
        jumps = self.jumps[-1] if self.jumps else None
        if jumps is None:
            raise jump(word, self.context.head(node))
        jumps.count += 1
        return jumps


_JUMPS = {"Goto": "goto", "Switch": "switch", "Label": "label", "Case": "case", "Default": "default"}


def jump(word: str, span: Span) -> Refusal:
    """MDH205."""
    return early_exit(word, span, "if (… && i < at) at = i;", "if (…) found = 1;")


def _not(flag: str) -> Expr:
    return Unary("!", Var(flag, INT32), INT32)


def _no_jump(jumps: Jumps) -> Expr:
    flags = [_not(f) for f in (jumps.stop, jumps.skip) if f]
    return flags[0] if len(flags) == 1 else Binary("&&", flags[0], flags[1], INT32)


def _plain(body: Sequence[Out]) -> tuple[Stmt, ...]:
    """Statements of which none is a counted loop."""
    assert not any(isinstance(s, Loop) for s in body)
    return tuple(s for s in body if not isinstance(s, Loop))


def assigned_names(node: Node) -> dict[str, list[int]]:
    """Variables that are assigned, counted or whose address is taken below a node, with the tokens."""
    out: dict[str, list[int]] = {}
    for n in walk_nodes(node):
        target = _assigned(n)
        if target is not None:
            out.setdefault(target.name, []).append(first_token(target) or 0)
    return out


def assigned_outside(node: Node) -> dict[str, list[int]]:
    """The same of variables that are declared around the node; inner ones may have their names."""
    out: dict[str, list[int]] = {}
    # nodes with the names that the open blocks declare; a name joins them when its declaration is over
    waiting: list[tuple[Node | str, set[str]]] = [(node, set())]
    while waiting:
        n, own = waiting.pop()
        if isinstance(n, str):
            own.add(n)
            continue
        target = _assigned(n)
        if target is not None and target.name not in own:
            out.setdefault(target.name, []).append(first_token(target) or 0)
        if isinstance(n, c_ast.Decl) and n.name:
            waiting.append((n.name, own))
        inner = set(own) if isinstance(n, c_ast.Compound | c_ast.For) else own
        waiting += [(child, inner) for _, child in reversed(n.children()) if child is not None]
    return out


def _assigned(n: Node) -> Node | None:
    """The variable that an expression assigns or counts, or whose address it takes."""
    if isinstance(n, c_ast.Assignment):
        target = n.lvalue
    elif isinstance(n, c_ast.UnaryOp) and n.op in ("++", "--", "p++", "p--", "&"):
        target = n.expr
    else:
        return None
    while isinstance(target, c_ast.StructRef) and target.type == ".":
        target = target.name
    return target if isinstance(target, c_ast.ID) else None
