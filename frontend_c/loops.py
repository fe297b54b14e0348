"""The head of a counted loop: iterator, bounds, step.

for (i = n - 1, s = 0; 0 <= i; i -= 2)   ->  Head(i, lower=n - 1, bound=0, op=">=", step=-2), s = 0 before
for (i = n; i-- > 0;)                    ->  Head(i, lower=n, bound=0, op=">", step=-1, ahead=-1, late)
while (i < n) { ...; i++; }              ->  Head(i, lower=None, bound=n, op="<", step=1, moved)
do { ... } while (--n);                  ->  Head(n, lower=None, bound=0, op="!=", step=-1, once)
for (i = 0, j = n - 1; i < j; i++, j--)  ->  Head(i, lower=0, step=1, meeting=Meeting(i, j, 1, 1, -1))
for (i = b; i < b + m && i < n; i++)     ->  Head(i, lower=b, bound=b + m < n ? b + m : n, op="<", step=1)
for (b = 0; b < n; b += 2 * half)        ->  Head(b, lower=0, bound=n, op="<", step=1, stride=2 * half)

``lower=None``: the value that the iterator has before the loop.  A loop that would never end or only by
overflow is taken to end (C11 6.8.5p6 for loops without other effects; overflow is undefined for signed
iterators).  For unsigned iterators, where overflow is defined, the reader asks for a proof or a guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from frontend_c.c_types import Value
from frontend_c.expressions import Expressions
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.statements import assigned_names
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import Const, Expr, ScalarType

_SLACK = {"<": 1, "<=": 0, ">": 1, ">=": 0}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
HELP = "write it as `for (i = lo; i < hi; i += c)` with a constant `c`"
LOOPS = c_ast.For | c_ast.While | c_ast.DoWhile


@dataclass(frozen=True)
class Meeting:
    """A condition ``high - low >= slack`` of sides that come nearer to each other.

    ``moves`` are the variables in them that the loop moves, with what an iteration adds to each;
    ``rising`` and ``falling`` what it adds to ``low`` and ``high``.
    """

    low: Node
    high: Node
    slack: int
    rising: int
    falling: int
    moves: Mapping[str, int]

    @property
    def rate(self) -> int:
        return self.rising - self.falling


@dataclass(eq=False)
class Head:
    """Syntax only: nodes of a counted loop, turned so that the iterator is on the left of ``op``.

    The body runs for ``iterator + ahead``; ``late``: the move of the condition that follows its comparison.
    With a ``meeting``, ``op`` and ``bound`` say nothing.
    """

    iterator: str
    lower: Node | None
    op: str
    bound: Node | None  # None: zero
    step: int
    declared: Node | None = None  # where the head declares the iterator
    before: list[Node] = field(default_factory=list)  # rest of the initialisation
    begun: int = 0  # of ``before``, how many come before the iterator is set
    after: list[tuple[Node, int]] = field(default_factory=list)  # rest of the step, how far it is by then
    offset: int = 0  # the condition compares ``iterator + offset``
    ahead: int = 0
    late: int = 0
    once: bool = False  # the body runs before the first test
    moved: bool = False  # statements of the body change the iterator, too
    meeting: Meeting | None = None
    stride: Node | None = None  # what an iteration adds, or takes off (step -1), where that is no constant


@dataclass(frozen=True)
class _Test:
    """A condition ``name + offset op bound``; ``move``: what it adds to the name, if ``late`` afterwards."""

    name: str
    op: str
    bound: Node | None
    offset: int = 0
    move: int = 0
    late: bool = False
    signed: bool = False  # holds for variables of signed types alone


def head(reader: Expressions, node: Node) -> Head:
    """The counted form of a loop; a refusal with MDH210 says what is not of that form."""
    if node.cond is None:
        raise _refusal(reader, "loop has no condition", node, whole=True)
    steps = _parts(node.next) if isinstance(node, c_ast.For) else []
    problem: Refusal | None = None
    for test in _tests(reader, node.cond):
        moving = [n for n in steps if stepped(n) == test.name]
        inside = test.name in assigned_names(node.stmt) and not _redeclares(node.stmt, test.name)
        if not moving and not test.move and not inside:
            continue
        try:
            return _head(reader, node, test, moving, inside, steps)
        except Refusal as refusal:
            problem = problem or refusal
    found = _meeting_head(reader, node, steps) or _shifted_head(reader, node, steps)
    if found is not None:
        return found
    if problem is not None:
        raise problem
    raise _refusal(reader, "condition does not compare the iterator with a bound", node.cond)


def _head(
    reader: Expressions, node: Node, test: _Test, moving: list[Node], inside: bool, steps: list[Node]
) -> Head:
    stride = None
    if len(moving) == 1 and test.op != "!=" and not test.move and not inside:
        step, stride = _stride(reader, node, moving[0])
    else:
        step = test.move + sum(_step(reader, n) for n in moving)
        if inside:
            step += _moves(reader, node, test.name)
    lower, declared, before, begun = _initial(reader, node, test.name)
    _check(reader, node, test, step)
    if test.signed and not _has_signed_type(reader, test.name, declared):
        raise _refusal(reader, "condition does not compare the iterator with a bound", node.cond)
    after = _rest(reader, steps, moving, stride)
    once = isinstance(node, c_ast.DoWhile)
    return Head(
        test.name, lower, test.op, test.bound, step, declared, before, begun, after, test.offset,
        0 if once else test.move, test.move if test.late else 0, once, inside, stride=stride,
    )  # fmt: skip


def _shifted_head(reader: Expressions, node: Node, steps: list[Node]) -> Head | None:
    """``b + s <= n`` with a step that is no constant, as ``b <= n - s``."""
    cond = node.cond
    if not isinstance(cond, c_ast.BinaryOp) or cond.op not in _MIRRORED:
        return None
    for left, op, right in ((cond.left, cond.op, cond.right), (cond.right, _MIRRORED[cond.op], cond.left)):
        side = uncast(left)
        if not isinstance(side, c_ast.BinaryOp) or side.op != "+":
            continue
        for own, other in ((side.left, side.right), (side.right, side.left)):
            name = own.name if isinstance(own, c_ast.ID) else ""
            moving = [n for n in steps if stepped(n) == name]
            if len(moving) != 1 or name in assigned_names(node.stmt):
                continue
            test = _Test(name, op, c_ast.BinaryOp("-", right, other, cond.coord))
            try:
                return _head(reader, node, test, moving, False, steps)
            except Refusal:
                continue
    return None


def _refusal(reader: Expressions, message: str, node: Node, whole: bool = False) -> Refusal:
    span = reader.context.head(node) if whole else reader.span(node)
    return refuse("MDH210", message, span, help=HELP)


def _parts(node: Node | None) -> list[Node]:
    if node is None:
        return []
    return list(node.exprs) if isinstance(node, c_ast.ExprList) else [node]


def stepped(node: Node) -> str:
    """The variable that a step expression changes."""
    if isinstance(node, c_ast.UnaryOp) and node.op in ("++", "--", "p++", "p--"):
        return node.expr.name if isinstance(node.expr, c_ast.ID) else ""
    if isinstance(node, c_ast.Assignment) and isinstance(node.lvalue, c_ast.ID):
        return str(node.lvalue.name)
    return ""


# --------------------------------------------------------------------------- the condition


def _tests(reader: Expressions, cond: Node) -> list[_Test]:
    """The ways to read a condition as a comparison of a variable with a bound."""
    if isinstance(cond, c_ast.BinaryOp) and cond.op in _MIRRORED:
        sides = ((cond.left, cond.op, cond.right), (cond.right, _MIRRORED[cond.op], cond.left))
        return [t for left, op, right in sides if (t := _side(reader, left, op, right)) is not None]
    if isinstance(cond, c_ast.BinaryOp) and cond.op == "&&":
        left, right = ([*_tests(reader, c), *_shifted_tests(reader, c)] for c in (cond.left, cond.right))
        pairs = product(left, right)
        return [t for a, b in pairs if (t := _nearer(reader, a, b, cond)) is not None]
    test = _side(reader, cond, "!=", None)
    return [test] if test is not None and not test.offset else []


def _shifted_tests(reader: Expressions, cond: Node) -> Iterator[_Test]:
    """``ii + i < n``, as ``i < n - ii`` and as ``ii < n - i``, of signed numbers."""
    if not isinstance(cond, c_ast.BinaryOp) or cond.op not in _SLACK:
        return
    for left, op, right in ((cond.left, cond.op, cond.right), (cond.right, _MIRRORED[cond.op], cond.left)):
        side = uncast(left)
        if not isinstance(side, c_ast.BinaryOp) or side.op != "+" or not _reads_nothing(cond):
            continue
        try:
            limit = reader.convert(right)
        except Refusal:
            continue
        for own, other in ((side.left, side.right), (side.right, side.left)):
            if isinstance(own, c_ast.ID) and _is_signed(limit) and _is_known(reader, other):
                rest = c_ast.BinaryOp("-", _as_long(right), other, cond.coord)
                yield _Test(own.name, op, rest, signed=True)


def _has_signed_type(reader: Expressions, name: str, declared: Node | None) -> bool:
    if declared is None:
        return _is_known(reader, c_ast.ID(name))
    t = reader.types.resolve(declared.type)
    return isinstance(t, Value) and isinstance(t.type, ScalarType) and t.type.is_signed


def _is_known(reader: Expressions, node: Node) -> bool:
    """Is it a signed value from outside of the loop's head?"""
    try:
        return _is_signed(reader.convert(node))
    except Refusal:
        return False


def _is_signed(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer and e.type.is_signed


def _as_long(node: Node) -> Node:
    """The value in 64 bits: a difference of two ``int`` may be more than they hold."""
    name = c_ast.IdentifierType(["long", "long"])
    declared = c_ast.TypeDecl(None, [], None, name)
    return c_ast.Cast(c_ast.Typename(None, [], None, declared, node.coord), node, node.coord)


def _nearer(reader: Expressions, a: _Test, b: _Test, cond: Node) -> _Test | None:
    """``i < m && i < n``: the bound is the smaller one of two that C compares alike.

    Not of ``i < m && i <= n``: ``n + 1`` may be more than its type holds, and 0 where ``n`` is -1.
    """
    if a.bound is None or b.bound is None or (a.name, a.offset) != (b.name, b.offset) or a.move or b.move:
        return None
    if a.op != b.op or a.op not in _SLACK or not _reads_nothing(a.bound) or not _reads_nothing(b.bound):
        return None  # C leaves out the second comparison where the first one fails
    try:
        types = [reader.convert(bound).type for bound in (a.bound, b.bound)]
    except Refusal:
        return None
    if types[0] != types[1] and not all(isinstance(t, ScalarType) and t.is_signed for t in types):
        return None
    nearer = c_ast.BinaryOp(a.op[0], a.bound, b.bound, cond.coord)
    bound = c_ast.TernaryOp(nearer, a.bound, b.bound, cond.coord)
    return replace(a, bound=bound, signed=a.signed or b.signed)


_CASTS = c_ast.Cast | c_ast.Typename | c_ast.TypeDecl | c_ast.IdentifierType


def _reads_nothing(node: Node) -> bool:
    """Is a value computed from variables alone, without an effect?"""
    return all(
        isinstance(n, c_ast.ID | c_ast.Constant | c_ast.BinaryOp | c_ast.TernaryOp | _CASTS)
        or (isinstance(n, c_ast.UnaryOp) and n.op in ("+", "-"))
        for n in walk_nodes(node)
    )


def _side(reader: Expressions, node: Node, op: str, bound: Node | None) -> _Test | None:
    node = uncast(node)
    if isinstance(node, c_ast.ID):
        return _Test(node.name, op, bound)
    if isinstance(node, c_ast.UnaryOp) and stepped(node):
        move = 1 if "+" in node.op else -1
        return _Test(stepped(node), op, bound, move=move, late=node.op[0] == "p")
    if isinstance(node, c_ast.BinaryOp) and node.op in ("+", "-"):
        left, right, sign = uncast(node.left), node.right, 1 if node.op == "+" else -1
        if not isinstance(left, c_ast.ID) and sign == 1:
            left, right = uncast(node.right), node.left
        if isinstance(left, c_ast.ID) and not any(isinstance(n, c_ast.FuncCall) for n in walk_nodes(right)):
            try:
                amount = reader.convert(right)
            except Refusal:
                return None
            if isinstance(amount, Const) and isinstance(amount.value, int):
                return _Test(left.name, op, bound, offset=sign * amount.value)
    return None


def uncast(node: Node) -> Node:
    while isinstance(node, c_ast.Cast):
        node = node.expr
    return node


# --------------------------------------------------------------------------- sides that meet


def _meeting_head(reader: Expressions, node: Node, steps: list[Node]) -> Head | None:
    """The head of a loop whose iterator has a factor in the condition, or whose bound moves as well."""
    cond = node.cond
    calls = any(isinstance(n, c_ast.FuncCall) for n in walk_nodes(cond))
    if not isinstance(cond, c_ast.BinaryOp) or cond.op not in _SLACK or calls or assigned_names(cond):
        return None
    moving: dict[str, list[Node]] = {}
    moves: dict[str, int] = {}
    inside = {n for n in assigned_names(node.stmt) if not _redeclares(node.stmt, n)}
    for name in dict.fromkeys(n.name for n in walk_nodes(cond) if isinstance(n, c_ast.ID)):
        moving[name] = [n for n in steps if stepped(n) == name]
        if moving[name] or name in inside:
            try:
                more = _moves(reader, node, name) if name in inside else 0
                moves[name] = more + sum(_step(reader, n) for n in moving[name])
            except Refusal:
                return None
    low, high = (cond.left, cond.right) if cond.op in ("<", "<=") else (cond.right, cond.left)
    rising, falling = _rate(reader, low, moves), _rate(reader, high, moves)
    if rising is None or falling is None or rising <= falling:
        return None
    meeting = Meeting(low, high, _SLACK[cond.op], rising, falling, moves)
    begun = [name for name in moves if _initial(reader, node, name)[0] is not None]
    # the others are whole multiples of the slowest one, more often than not
    iterator = min((name for name in (*begun, *moves) if moves[name]), key=lambda name: abs(moves[name]))
    lower, declared, before, ahead = _initial(reader, node, iterator)
    after = _rest(reader, steps, moving[iterator])
    return Head(
        iterator, lower, cond.op, None, moves[iterator], declared, before, ahead, after,
        once=isinstance(node, c_ast.DoWhile), moved=iterator in inside, meeting=meeting,
    )  # fmt: skip


def _rate(reader: Expressions, node: Node, moves: Mapping[str, int]) -> int | None:
    """What one iteration adds to the value of an expression, if that is the same in all of them."""
    if not any(isinstance(n, c_ast.ID) and moves.get(n.name) for n in walk_nodes(node)):
        return 0
    if isinstance(node, c_ast.ID):
        return moves[node.name]
    if isinstance(node, c_ast.UnaryOp) and node.op in ("+", "-"):
        inner = _rate(reader, node.expr, moves)
        return inner if inner is None or node.op == "+" else -inner
    if isinstance(node, c_ast.BinaryOp) and node.op in ("+", "-"):
        left, right = _rate(reader, node.left, moves), _rate(reader, node.right, moves)
        if left is None or right is None:
            return None
        return left + right if node.op == "+" else left - right
    if isinstance(node, c_ast.BinaryOp) and node.op in ("*", "<<"):
        sides = [(node.left, node.right)] + [(node.right, node.left)] * (node.op == "*")
        for varying, factor in sides:
            inner = _rate(reader, varying, moves)
            value = _constant(reader, factor)
            if inner is not None and value is not None and (node.op == "*" or 0 <= value < 31):
                return inner * (value if node.op == "*" else 1 << value)
    return None


def _constant(reader: Expressions, node: Node) -> int | None:
    try:
        e = reader.convert(node)
    except Refusal:
        return None
    return e.value if isinstance(e, Const) and isinstance(e.value, int) else None


# --------------------------------------------------------------------------- steps


def _step(reader: Expressions, node: Node) -> int:
    """The constant that is added to the variable."""
    change = amount_of(node)
    if change is None:
        raise _refusal(reader, "step is not constant", node)
    sign, value = change
    if value is None:
        return sign
    amount = reader.convert(value)
    if not isinstance(amount, Const) or not isinstance(amount.value, int) or not amount.value:
        raise _refusal(reader, "step is not constant", node)
    return sign * amount.value


def _stride(reader: Expressions, loop: Node, node: Node) -> tuple[int, Node | None]:
    """Step and, where it is not constant, what it is a multiple of: something that stays in the loop."""
    sign, value = amount_of(node) or (0, None)
    names = set() if value is None else {n.name for n in walk_nodes(value) if isinstance(n, c_ast.ID)}
    parts = [n for n in (loop.stmt, loop.cond, getattr(loop, "next", None)) if n is not None]
    changed = sorted(names & ({name for n in parts for name in assigned_names(n)} | {stepped(node)}))
    if changed:
        raise refuse(
            "MDH210", f"step depends on `{changed[0]}`, which the loop changes", reader.span(value),
            help="count by a step that stays, and compute what else is needed from the iterator",
        )  # fmt: skip
    calls = value is not None and any(isinstance(n, c_ast.FuncCall) for n in walk_nodes(value))
    if value is None or not names or calls or isinstance(reader.convert(value), Const):
        return _step(reader, node), None
    return sign, value


def amount_of(node: Node) -> tuple[int, Node | None] | None:
    """Sign and node of what ``v++``, ``v -= e`` or ``v = v + e`` adds; no node stands for 1."""
    if isinstance(node, c_ast.UnaryOp):
        return (1 if "+" in node.op else -1), None
    name, value = node.lvalue.name, node.rvalue
    if node.op in ("+=", "-="):
        return (-1 if node.op == "-=" else 1), value
    if node.op == "=" and isinstance(value, c_ast.BinaryOp) and value.op in ("+", "-"):
        left, right = value.left, value.right
        if isinstance(left, c_ast.ID) and left.name == name:
            return (1 if value.op == "+" else -1), right
        if value.op == "+" and isinstance(right, c_ast.ID) and right.name == name:
            return 1, left
    return None


def _moves(reader: Expressions, node: Node, name: str) -> int:
    """What one run of the body adds to the variable; a refusal unless it is always the same constant."""
    found = body_moves(node.stmt, name)
    if found is None or _leaves_early(node):
        tokens = assigned_names(node.stmt)[name]
        span = reader.context.positions.span(tokens[0], tokens[0])
        raise refuse("MDH210", f"iterator `{name}` is assigned in its loop", span)
    return sum(_step(reader, n) for n in found)


def _leaves_early(node: Node) -> bool:
    return leaves(node) is not None


def body_moves(body: Node, name: str) -> list[Node] | None:
    """The statements and subexpressions that move a variable, if each runs exactly once per iteration."""
    out: list[Node] = []

    def visit(n: Node, certain: bool) -> bool:
        if stepped(n) == name:
            if not certain or amount_of(n) is None:
                return False
            out.append(n)
            return not isinstance(n, c_ast.Assignment) or visit(n.rvalue, certain)
        if isinstance(n, c_ast.BinaryOp) and n.op in ("&&", "||"):
            return visit(n.left, certain) and visit(n.right, False)
        if isinstance(n, c_ast.TernaryOp | c_ast.If):
            rest = (n.iftrue, n.iffalse)
            return visit(n.cond, certain) and all(visit(m, False) for m in rest if m is not None)
        inner = certain and not isinstance(n, LOOPS | c_ast.Switch | c_ast.Label | c_ast.Case)
        if isinstance(n, c_ast.UnaryOp) and n.op == "sizeof":
            return True
        return all(visit(child, inner) for _, child in n.children())

    return out if visit(body, True) else None


def _rest(
    reader: Expressions, steps: list[Node], moving: list[Node], stride: Node | None = None
) -> list[tuple[Node, int]]:
    """What else a step does, and what it has added to the iterator before."""
    out: list[tuple[Node, int]] = []
    done = 0
    for n in steps:
        if n in moving:
            done += 1 if stride is not None else _step(reader, n)
        elif done and stride is not None and mentions(n, stepped(moving[0])):
            raise refuse(
                "MDH210", "a step uses the iterator after that moved by a variable", reader.span(n),
                help="put it before the iterator's own step, or into the body",
            )  # fmt: skip
        else:
            out.append((n, done))
    return out


def mentions(node: Node, name: str) -> bool:
    """Does a variable of that name occur?"""
    return any(isinstance(n, c_ast.ID) and n.name == name for n in walk_nodes(node))


def _initial(
    reader: Expressions, node: Node, iterator: str
) -> tuple[Node | None, Node | None, list[Node], int]:
    """Initial value of the iterator, its declaration in the head, what else is initialised, its place."""
    init = node.init if isinstance(node, c_ast.For) else None
    parts = list(init.decls) if isinstance(init, c_ast.DeclList) else _parts(init)
    for k, n in enumerate(parts):
        rest = [m for m in parts if m is not n]
        if isinstance(n, c_ast.Decl) and n.name == iterator and n.init is not None:
            return n.init, n, rest, k
        if isinstance(n, c_ast.Assignment) and n.op == "=" and stepped(n) == iterator:
            if isinstance(n.rvalue, c_ast.Assignment):  # i = j = 0
                value = n.rvalue
                while isinstance(value, c_ast.Assignment):
                    value = value.rvalue
                if not isinstance(value, c_ast.Constant):
                    break
                return value, None, [n.rvalue if m is n else m for m in parts], k + 1
            return n.rvalue, None, rest, k
    return None, None, parts, len(parts)


def _check(reader: Expressions, node: Node, test: _Test, step: int) -> None:
    if not step:
        raise _refusal(reader, "step is not constant", node, whole=True)
    if test.op == "!=" and abs(step) != 1:
        raise _refusal(reader, "`!=` with a step other than 1 may never hold", node.cond)
    if test.op != "!=" and (test.op in ("<", "<=")) != (step > 0):
        where = getattr(node, "next", None)
        raise _refusal(reader, "step leads away from the bound", where or node.cond)
    if test.bound is None:
        return
    if assigned_names(test.bound):
        raise _refusal(reader, "bound has an effect", test.bound)
    named = {n.name for n in walk_nodes(test.bound) if isinstance(n, c_ast.ID)}
    if test.name in named:
        raise _refusal(reader, "bound depends on the loop's own iterator", test.bound)
    heads = [n for n in (node.cond, getattr(node, "next", None)) if n is not None]
    moving = {name for n in heads for name in assigned_names(n)}
    moving |= {n for n in named & assigned_names(node.stmt).keys() if not _redeclares(node.stmt, n)}
    changed = sorted(named & moving)
    if changed:
        what = f"bound depends on `{changed[0]}`, which the loop changes"
        advice = "if its first value is meant, copy that into a variable before the loop"
        if changed[0] in {name for n in heads for name in assigned_names(n)}:
            advice = f"let the loop run to a bound that stays, and compute `{changed[0]}` from `{test.name}`"
        raise refuse("MDH202", what, reader.span(test.bound), help=advice)


def _redeclares(node: Node, name: str) -> bool:
    return any(isinstance(n, c_ast.Decl) and n.name == name for n in walk_nodes(node))


def leaves(node: Node) -> Node | None:
    """A ``break`` or ``continue`` that belongs to this loop, if there is one."""
    for _, child in node.children():
        if isinstance(child, c_ast.Break | c_ast.Continue):
            return child  # of this loop: those of inner loops are not looked at
        if isinstance(child, c_ast.For | c_ast.While | c_ast.DoWhile | c_ast.Switch):
            continue
        found = leaves(child)
        if found is not None:
            return found
    return None


def without_continue(body: Node) -> Node:
    """The body of a loop with ``if (c) continue; rest`` as ``if (c) ; else { rest }``."""
    items = (body.block_items or []) if isinstance(body, c_ast.Compound) else [body]
    for k, item in enumerate(items):
        if isinstance(item, c_ast.Continue):
            return c_ast.Compound(items[:k], body.coord)
        if not isinstance(item, c_ast.If):
            continue
        then, other = _without_last(item.iftrue), _without_last(item.iffalse)
        if then is item.iftrue and other is item.iffalse:
            continue
        if other is item.iffalse:
            other = _followed(other, items[k + 1 :], item)
        elif then is item.iftrue:
            then = _followed(then, items[k + 1 :], item)
        return c_ast.Compound([*items[:k], c_ast.If(item.cond, then, other, item.coord)], body.coord)
    return body


def _without_last(branch: Node | None) -> Node | None:
    """A branch without the ``continue`` that ends it."""
    if isinstance(branch, c_ast.Continue):
        return c_ast.EmptyStatement(branch.coord)
    if isinstance(branch, c_ast.Compound) and branch.block_items:
        *items, last = branch.block_items
        if isinstance(last, c_ast.Continue):
            return c_ast.Compound(items, branch.coord)
    return branch


def _followed(branch: Node | None, rest: Sequence[Node], item: Node) -> Node:
    """A branch and what stands behind the ``if``, either of which may have others that ``continue``."""
    first = [] if branch is None else [branch]
    inside = (branch.block_items or []) if isinstance(branch, c_ast.Compound) else []
    if inside and not any(isinstance(n, _DECLARE) for n in inside):
        first = list(inside)
    return without_continue(c_ast.Compound([*first, *rest], item.coord))


_DECLARE = (c_ast.Decl, c_ast.DeclList, c_ast.Typedef)


def leaves_after_all(loop: Node) -> bool:
    """Does the loop leave its iterations in other ways than ``without_continue`` takes out?"""
    return leaves(c_ast.While(loop.cond, without_continue(loop.stmt), loop.coord)) is not None
