"""Variables whose value is known at every statement: walking pointers and secondary counters.

    for (i = 0, k = 3; i < n; i++, k += 2)        x[k] = *p++;
    =>  for (i = 0; i < n; i++)                   x[3 + 2*i] = p[i];        then k = 3 + 2*n, p += n

Such a variable is not assigned in what the lifter sees: wherever it is read, its value stands instead.
A loop adds to it the same amount in every iteration, or sets it anew in each; anything else (a change
under a condition, an amount that varies) raises ``Untracked``, and the nest is read again without
tracking that variable.  Trip counts are taken as ``upper - lower``; where that might be negative, a
condition on parameters is added that the generated code tests at run time (as for ``assume``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frontend_c import operators
from frontend_c.c_types import Array, CType, Pointer, Value
from frontend_c.expressions import Binding, Place, times, total, wide
from frontend_c.loops import LOOPS, amount_of, head, stepped
from frontend_c.parsing import Node, c_ast, walk_nodes
from frontend_c.statements import assigned_names, assigned_outside
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import INT32, INT64, Binary, Const, Expr, ScalarType, Select, Var, as_affine, variables

if TYPE_CHECKING:
    from frontend_c.nest import NestReader


class Untracked(Exception):  # noqa: N818 - an answer, as ``Refusal``
    """The value of a variable cannot be told everywhere; ``refusal`` says where it is lost."""

    def __init__(self, name: str, refusal: Refusal) -> None:
        super().__init__(name)
        self.name = name
        self.refusal = refusal


@dataclass(frozen=True)
class At:
    """A pointer's value: the element ``index`` of a buffer."""

    binding: Binding
    index: tuple[Expr, ...]
    target: CType

    def moved(self, amount: Expr) -> At:
        return At(self.binding, (*self.index[:-1], total(self.index[-1], amount)), self.target)


Known = Expr | At
Later = Callable[[], Known]


def moved(known: Known, amount: Expr) -> Known:
    """The value of a pointer or a counter that ``amount`` is added to."""
    return known.moved(amount) if isinstance(known, At) else total(known, amount)


@dataclass(frozen=True)
class Range:
    """A counted loop's bounds as integers of any size; ``upper`` is exclusive in the step's direction."""

    lower: Expr
    upper: Expr
    step: int

    @property
    def span(self) -> Expr:
        first, last = (self.lower, self.upper) if self.step > 0 else (self.upper, self.lower)
        return minus(last, first)


def minus(a: Expr, b: Expr) -> Expr:
    """``a - b``, constant or simple where it can be."""
    x, y = as_affine(a), as_affine(b)
    if x is not None and y is not None and (x - y).is_constant:
        return Const((x - y).const, INT64)
    if isinstance(b, Const):
        return total(a, Const(-int(b.value), INT64))
    return Binary("-", wide(a), wide(b), INT64)


@dataclass(eq=False)
class Tracker:
    """The known values while a nest is read."""

    reader: NestReader
    counters: frozenset[str]  # integer variables to follow, by spelling
    given_up: dict[str, Refusal] = field(default_factory=dict)
    values: dict[Binding, Known | Later | None] = field(default_factory=dict)
    changed: dict[Binding, bool] = field(default_factory=dict)  # by other statements than its own loop
    pending: list[tuple[Binding, int]] = field(default_factory=list)
    levels: list[bool] = field(default_factory=list)  # of conditions around; is it the branch of an ``if``?
    depth: dict[Binding, int] = field(default_factory=dict)
    branched: dict[Binding, Node] = field(default_factory=dict)  # where a branch has set it last

    # ------------------------------------------------------------------ which

    def follows(self, b: Binding) -> bool:
        if b.kind not in ("local", "outer") or b.source in self.given_up or b.address:
            return False
        if isinstance(b.ctype, Pointer):
            return b.kind == "local" or b.source in self.reader.assigned
        return b.source in self.counters and _is_counter(b.ctype)

    def lost(self, b: Binding, node: Node | None, why: str) -> Untracked | Refusal:
        """What to raise where the value cannot be told; a refusal where that was known before."""
        what = "pointer" if isinstance(b.ctype, Pointer) else "variable"
        if isinstance(node, c_ast.If | c_ast.Switch | c_ast.Label | LOOPS):
            node = next((n for n in walk_nodes(node) if stepped(n) == b.source), node)
        span = self.reader.span(node) if node is not None else self.reader.head_of_nest
        refusal = refuse(
            "MDH006", f"{what} `{b.source}` {why}", span, help="index the array with the loop iterators"
        )
        return refusal if b.source in self.given_up else Untracked(b.source, refusal)

    # ------------------------------------------------------------------ values

    def value(self, b: Binding, node: Node | None = None) -> Known:
        """The value here."""
        if b not in self.values and b.kind == "outer":
            self.values[b] = self._entry(b)
        known = self.values.get(b)
        if known is None and b in self.branched:
            raise self.lost(b, self.branched[b], "changes under a condition")
        if known is None:
            raise self.lost(b, node, "has no value that is known here")
        return known() if callable(known) else known

    def _entry(self, b: Binding) -> Known:
        """The value that a variable has before the nest."""
        if isinstance(b.ctype, Pointer):
            if not b.name:
                b.name = self.reader.names.unique(b.source)
            return At(b, (Const(0, INT64),), b.ctype.target)
        assert isinstance(b.ctype, Value) and isinstance(b.ctype.type, ScalarType)
        return self.reader.extents.variable(b.ctype.type, b.source, b.ctype.spelling)

    @property
    def maybe(self) -> int:
        """Depth of conditions; what was declared outside of one may change in it in branches only."""
        return len(self.levels)

    def set(self, b: Binding, value: Known, node: Node) -> None:
        if not all(self.levels[self.depth.get(b, 0) :]):
            raise self.lost(b, node, "changes under a condition")
        if isinstance(value, At) != isinstance(b.ctype, Pointer):
            raise self.lost(b, node, "gets a value that cannot be followed")
        if not isinstance(value, At) and not self.reader.stable(value):
            raise self.lost(b, node, "gets a value that is computed in the nest")
        if self.maybe > self.depth.get(b, 0):
            self.branched[b] = node
        self.values[b] = value
        self.changed[b] = True
        b.stale = False

    def advance(self, b: Binding, amount: Expr, node: Node) -> None:
        if not self.reader.stable(amount):
            raise self.lost(b, node, "moves by an amount that is computed in the nest")
        known = self.value(b, node)
        self.set(b, moved(known, amount), node)

    def scalar(self, b: Binding, node: Node) -> Expr:
        """A counter's value as an expression of its type."""
        known = self.value(b, node)
        assert (
            not isinstance(known, At) and isinstance(b.ctype, Value) and isinstance(b.ctype.type, ScalarType)
        )
        return operators.cast(known, b.ctype.type, self.reader.span(node))

    def step_inside(self, b: Binding, node: Node) -> Known:
        """``p++`` as a part of an expression: its value; the move takes effect after the statement."""
        if self.maybe > self.depth.get(b, 0):
            raise self.lost(b, node, "changes under a condition")
        amount = 1 if "+" in node.op else -1
        known = self.value(b, node)
        self.pending.append((b, amount))
        if node.op[0] == "p":
            return known
        change = Const(amount, INT64)
        return moved(known, change)

    @contextmanager
    def condition(self, branch: bool = False) -> Iterator[None]:
        """What is read meanwhile runs perhaps, or more than once (not in the ``branch`` of an ``if``)."""
        self.levels.append(branch)
        try:
            yield
        finally:
            self.levels.pop()

    @contextmanager
    def branch(self) -> Iterator[dict[Binding, Known | Later | None]]:
        """What is read meanwhile runs perhaps: the values that it changes, which are as before afterwards."""
        before, changed = dict(self.values), dict[Binding, Known | Later | None]()
        yield changed
        for b, value in self.values.items():
            if before[b] is not value if b in before else b.stale or self.changed.get(b):
                changed[b] = value
        for b in changed:
            if b in before:
                self.values[b] = before[b]
            elif b.kind == "outer":
                del self.values[b]  # it has the value from before the nest
            else:
                self.values[b] = None

    def join(self, cond: Expr, branches: Sequence[Mapping[Binding, Known | Later | None]]) -> None:
        """Behind an ``if``: values that one of its branches or both have changed.

        Known where all that they hang on stays the same in the nest: ``if (step < 0) at = (1 - n) * step;``
        """
        for b in dict.fromkeys(b for changed in branches for b in changed):
            self.values[b] = self._joined(b, cond, branches)

    def _joined(
        self, b: Binding, cond: Expr, branches: Sequence[Mapping[Binding, Known | Later | None]]
    ) -> Known | None:
        invariant = self.reader.invariant
        if not self.follows(b) or not invariant(cond):
            return None
        if not all(isinstance(c[b], Expr) for c in branches if b in c):
            return None
        before = self.values.get(b)
        if b not in self.values and b.kind == "outer":  # None there: a value that is not known
            before = self._entry(b)
        known = [c.get(b, before) for c in branches]
        if not all(isinstance(v, Expr) and invariant(v) for v in known):
            return None
        first, second = (wide(v) for v in known if isinstance(v, Expr))
        return self.reader.extents.hoist(Select(cond, first, second, INT64))

    def flush(self, node: Node) -> None:
        """The end of a full expression."""
        pending, self.pending = self.pending, []
        for b, amount in pending:
            self.advance(b, Const(amount, INT64), node)

    # ------------------------------------------------------------------ loops

    def enter(
        self, node: Node, rest: Sequence[Node], it: Expr, r: Range, own: Binding | None
    ) -> Callable[[], None]:
        """Values at the start of an iteration of a loop; the result restores order after the loop.

        ``rest``: what else runs in each iteration, after the body.  ``own``: the iterator's variable.
        """
        body = [node.stmt, *rest]
        names = {name for part in body for name in assigned_outside(part)}
        inside = _declared(node.stmt)
        exits: list[tuple[Binding, Known | Later | None]] = []
        depths: list[tuple[Binding, int]] = []
        for name in sorted(names):
            b = self.reader.visible(name)
            if b is None or b is own:
                continue
            if not self.follows(b):
                self.values.pop(b, None)  # the final value of an iterator
                exits.append((b, None))
                continue
            if name in inside:
                raise self.lost(b, node, "is hidden by another of that name")
            amount = self._amount(body, name, b, node)
            if amount is None:
                self.values[b] = None
                exits.append((b, None))
                continue
            before = self.value(b, node)
            depths.append((b, self.depth.get(b, 0)))
            self.depth[b] = self.maybe
            self.values[b] = self._plus(b, before, amount, it, r, node)
            exits.append((b, self._after(b, before, amount, r, node)))
        watched = list(self.values)

        def leave() -> None:
            for b in [b for b in self.values if b not in watched]:
                if b.kind != "outer":
                    del self.values[b]
            self.depth.update(depths)
            for b, value in exits:
                last = self.values.get(b)
                if value is None and last is not None and self.follows(b):
                    value = self._last(b, last, it, r, node)
                self.values[b] = value
                self.changed[b] = True

        return leave

    def _plus(self, b: Binding, before: Known, amount: Expr, it: Expr, r: Range, node: Node) -> Known:
        """The value after as many iterations as came before the one of ``it``."""
        done = minus(it, r.lower) if r.step > 0 else minus(r.lower, it)
        size = abs(r.step)
        if size != 1:
            if not isinstance(amount, Const) or int(amount.value) % size:
                raise self.lost(b, node, "moves by an amount that the loop's step does not divide")
            amount = Const(int(amount.value) // size, INT64)
        change = times(amount, done)
        return moved(before, change)

    def _after(self, b: Binding, before: Known, amount: Expr, r: Range, node: Node) -> Later:
        def later() -> Known:
            change = times(amount, self.trips(r, b, node))
            return moved(before, change)

        return later

    def _last(self, b: Binding, last: Known | Later, it: Expr, r: Range, node: Node) -> Later:
        """The value that every iteration sets, if there is one iteration at least."""

        def later() -> Known:
            known = last() if callable(last) else last
            parts = known.index if isinstance(known, At) else (known,)
            same = isinstance(it, Var) and not any(it.name in variables(e) for e in parts)
            if not same or not self.reader.never_negative(total(r.span, Const(-1, INT64))):
                raise self.lost(b, node, "has no value that is known after the loop")
            return known

        return later

    def trips(self, r: Range, b: Binding, node: Node) -> Expr:
        """How often a loop runs."""
        span, size = r.span, abs(r.step)
        if isinstance(span, Const):
            return Const(max(0, -(-int(span.value) // size)), INT64)
        if size == 1:
            if not self.reader.never_negative(span):
                raise self.lost(b, node, "moves as often as a loop runs, which cannot be told")
            return span
        if not self.reader.invariant(span):
            raise self.lost(b, node, "moves as often as a loop runs, which cannot be told")
        rounded = Binary("/", total(span, Const(size - 1, INT64)), Const(size, INT64), INT64)
        zero = Const(0, INT64)
        return self.reader.extents.hoist(Select(Binary(">", span, zero, INT32), rounded, zero, INT64))

    def final(self, b: Binding, r: Range, node: Node) -> Later:
        """The value that a loop leaves in its iterator."""

        def later() -> Known:
            return total(r.lower, times(Const(r.step, INT64), self.trips(r, b, node)))

        return later

    def in_step(self, node: Node, rest: Sequence[Node], step: int) -> bool:
        """Does a loop by ``step`` move everything that is followed by multiples of that, or anew?"""
        parts = [node.stmt, *rest]
        for name in sorted({name for part in parts for name in assigned_outside(part)}):
            b = self.reader.visible(name)
            if b is None or not self.follows(b):
                continue
            try:
                amount = self._amount(parts, name, b, node)
            except (Refusal, Untracked):
                continue
            if amount is not None and (not isinstance(amount, Const) or int(amount.value) % step):
                return False
        return True

    # ------------------------------------------------------------------ amounts

    def _amount(self, parts: Sequence[Node], name: str, b: Binding, loop: Node) -> Expr | None:
        """What the parts, run one after the other, add to a variable; None if they set it anew."""
        out: Expr = Const(0, INT64)
        for part in parts:
            found = self._part(part, name, b, loop)
            if found is None:
                return None
            out = total(out, found)
        return out

    def _part(self, node: Node, name: str, b: Binding, loop: Node) -> Expr | None:
        if name not in assigned_names(node):
            return Const(0, INT64)
        if isinstance(node, c_ast.Compound):
            return self._amount(node.block_items or [], name, b, loop)
        if isinstance(node, LOOPS):
            return self._loop_amount(node, name, b, loop)
        if stepped(node) == name:
            change = amount_of(node)
            value = node.rvalue if isinstance(node, c_ast.Assignment) else None
            if change is None or (value is not None and name in assigned_names(value)):
                if isinstance(node, c_ast.Assignment) and node.op == "=":
                    return None
                raise self.lost(b, node, "is changed in a way that cannot be followed")
            sign, amount = change
            return (
                Const(sign, INT64)
                if amount is None
                else times(Const(sign, INT64), self._fixed(amount, b, loop))
            )
        if isinstance(node, c_ast.If | c_ast.Switch | c_ast.TernaryOp | c_ast.Label):
            raise self.lost(b, node, "changes under a condition")
        if (
            isinstance(node, c_ast.BinaryOp)
            and node.op in ("&&", "||")
            and name in assigned_names(node.right)
        ):
            raise self.lost(b, node, "changes under a condition")
        if isinstance(node, c_ast.UnaryOp) and node.op in ("sizeof", "&"):
            raise self.lost(b, node, "is used in a way that cannot be followed")
        return self._amount([child for _, child in node.children()], name, b, loop)

    def _loop_amount(self, node: Node, name: str, b: Binding, loop: Node) -> Expr | None:
        try:
            h = head(self.reader, node)
        except Refusal as refusal:
            raise Untracked(b.source, refusal) from None
        if h.iterator == name:
            if h.lower is None:
                raise self.lost(b, node, "counts a loop from where it stands")
            return None
        before = self._amount(h.before, name, b, loop)
        if before is None:
            return None
        inner = self._amount([node.stmt, *(n for n, _ in h.after)], name, b, loop)
        if inner is None:
            return None
        if h.meeting is not None or h.stride is not None:
            raise self.lost(b, node, "moves as often as a loop runs, which cannot be told")
        nodes = [n for n in (h.lower, h.bound) if n is not None]
        for n in nodes:
            self._same_names(n, b, loop)
        if h.lower is None:
            raise self.lost(b, node, "moves as often as a loop runs, which cannot be told")
        try:
            r = self.reader.range_of(h, node)
        except Refusal as refusal:
            raise Untracked(b.source, refusal) from None
        return total(before, times(inner, self.trips(r, b, node)))

    def _fixed(self, node: Node, b: Binding, loop: Node) -> Expr:
        """An amount, which must be the same in all iterations of ``loop``."""
        self._same_names(node, b, loop)
        try:
            e = self.reader.convert(node)
        except Refusal as refusal:
            raise Untracked(b.source, refusal) from None
        if not self.reader.stable(e):
            raise self.lost(b, node, "moves by an amount that is computed in the nest")
        return wide(e)

    def _same_names(self, node: Node, b: Binding, loop: Node) -> None:
        mentioned = {n.name for n in walk_nodes(node) if isinstance(n, c_ast.ID)}
        if mentioned & (assigned_names(loop).keys() | _declared(loop)):
            raise self.lost(b, node, "moves by an amount that varies")


def _declared(node: Node) -> set[str]:
    return {n.name for n in walk_nodes(node) if isinstance(n, c_ast.Decl) and n.name}


def _is_counter(t: CType) -> bool:
    """Integers of 32 bits or more: narrower ones may wrap where nobody expects it."""
    return isinstance(t, Value) and isinstance(t.type, ScalarType) and t.type.is_integer and t.type.bits >= 32


def counters(nest: Node) -> frozenset[str]:
    """Integer variables worth following: stepped by statements, and used in a subscript or a bound.

    Those that only take part in the values are left to the lifter: ``count++`` is a reduction.
    """
    moved, needed, sources = set[str](), set[str](), dict[str, set[str]]()
    bounds, iterators = set[str](), set[str]()
    own_steps = {id(n): _own_steps(n) for n in walk_nodes(nest) if isinstance(n, c_ast.For)}
    plain = {id(n) for steps in own_steps.values() for n in steps}
    for n in walk_nodes(nest):
        if stepped(n) and id(n) not in plain:
            moved.add(stepped(n))
        if isinstance(n, c_ast.For) and n.cond is not None:
            own = {stepped(m) for m in own_steps[id(n)]}
            iterators |= own
            bounds |= _names(n.cond) | {name for m in _steps(n) for name in _amount_names(m)}
            needed |= _names(n.cond) & {stepped(m) for m in _steps(n)} - own
        if isinstance(n, c_ast.ArrayRef):
            needed |= _names(n.subscript)
        elif isinstance(n, c_ast.UnaryOp) and n.op == "*":
            needed |= _names(n.expr)
        elif isinstance(n, c_ast.Assignment) and isinstance(n.lvalue, c_ast.ID):
            sources.setdefault(n.lvalue.name, set()).update(_names(n.rvalue))
        elif isinstance(n, c_ast.Decl) and n.name and n.init is not None:
            sources.setdefault(n.name, set()).update(_names(n.init))
        elif isinstance(n, LOOPS) and n.cond is not None and (not isinstance(n, c_ast.For) or n.init is None):
            needed |= _names(n.cond)
    while more := {s for name in needed for s in sources.get(name, ())} - needed:
        needed |= more
    # a bound that is set in the nest: `i__1 = *n; for (i = 1; i <= i__1; ++i)`
    return frozenset((moved & needed) | ((bounds & sources.keys()) - iterators))


def _own_steps(loop: Node) -> list[Node]:
    """The steps of the variable that the head of the loop also sets and tests: the slowest that is tested."""
    parts = getattr(loop.init, "exprs", None) or getattr(loop.init, "decls", None) or [loop.init]
    begun = {n.name if isinstance(n, c_ast.Decl) else stepped(n) for n in parts if n is not None}
    tested: Iterable[str] = _names(loop.cond) if loop.cond is not None else ()
    steps = [n for n in _steps(loop) if not _amount_names(n)]  # others are followed (``Head.stride``)
    beside = {n for part in (loop.stmt, loop.next) if part is not None for n in assigned_outside(part)}
    pace = {name: sum(_pace(n) for n in steps if stepped(n) == name) for name in tested if name in begun}
    own = min((name for name in pace if pace[name]), key=lambda name: pace[name], default="")
    if pace.get(own, 1) != 1 and any(stepped(n) in beside - {own} for n in walk_nodes(loop)):
        return []  # what moves beside it may do so at another pace (``counted.strided``)
    return [n for n in steps if stepped(n) == own]


def _pace(step: Node) -> int:
    """How far a step goes, as it is written; far, where that is no number."""
    amount = (amount_of(step) or (0, None))[1]
    if amount is None:
        return 1
    literal = isinstance(amount, c_ast.Constant) and amount.value.isdecimal()
    return int(amount.value) if literal else 1 << 30


def _amount_names(step: Node) -> set[str]:
    """The names in what a step adds."""
    change = amount_of(step) if stepped(step) else None
    return set() if change is None or change[1] is None else set(_names(change[1]))


def _steps(loop: Node) -> list[Node]:
    return [n for n in getattr(loop.next, "exprs", None) or [loop.next] if n is not None]


def _names(node: Node) -> KeysView[str]:
    """In the order in which they are written."""
    return {n.name: None for n in walk_nodes(node) if isinstance(n, c_ast.ID)}.keys()


def pointer_place(known: At, node: Node) -> Place:
    """A pointer's value as something to dereference."""
    known.binding.subscripted = True
    return Place(known.binding, Pointer(known.target), node, known.index[:-1], at=known.index[-1])


def pointer_value(place: Place) -> At | None:
    """The value of an expression that denotes a pointer or an array."""
    if place.members:
        return None
    match place.ctype:
        case Pointer(target=target) | Array(element=target):
            if place.at is not None:
                return At(place.binding, (*place.index, place.at), target)
            if isinstance(place.ctype, Pointer) and place.index:
                return None  # read from memory
            return At(place.binding, (*place.index, Const(0, INT64)), target)
    return None


__all__ = [
    "At", "Range", "Tracker", "Untracked", "counters", "minus", "moved", "pointer_place", "pointer_value",
]  # fmt: skip
