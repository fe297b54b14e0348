"""Small arrays that a nest declares, as variables: one for every element.

    before   for i: { v[3];  for k < 3: v[k] = x[i][k];  y[i] = v[0] * v[2] - v[1] * v[1]; }
    after    for i: { v_0; v_1; v_2;  v_0 = x[i][0]; v_1 = ...;  y[i] = v_0 * v_2 - v_1 * v_1; }

    in       statements, the arrays that they declare: where a ``Declare`` has such a name, it begins to exist
    out      statements in which no such array is left; loops that count its subscripts are written out

An array that begins to exist in every iteration carries nothing from one to the next, as a variable that is
declared there; so the loops around it have no dependence by it, and its elements are registers.  That needs
subscripts that are constants, or become ones where loops by constant bounds are written out.

Shown right by tests/test_local_arrays.py: against the original, run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from lifter.local_tiles import Around, LocalArray, without_tile
from lifter.loop_nest import Loop, NestStmt
from lifter.trees import Body, buffers_in, loops_in, map_tree, tree_exprs
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.evaluate import Env, EvaluationError, evaluate_scalar
from mdh_core.expr import (
    INT32,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
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
    map_children,
    rewrite,
    substitute,
    variables,
    walk,
)

MAX_ELEMENTS = 64  # of an array
MAX_IN_TILE = 16  # of one in a loop over tiles: more are a tile, and no registers
MAX_STATEMENTS = 400  # of a nest, after loops were written out

HELP = "declare it before the nest"


def without_arrays(body: Sequence[NestStmt], arrays: Mapping[str, LocalArray], around: Around) -> Body:
    """The statements with no array, variables in their place; raises MDH006 where that cannot be.

    Arrays in loops over tiles hold tiles, if they can (``lifter.local_tiles``); others, if they must.
    """
    if not arrays:
        return tuple(body)
    in_tiles = {n for x in loops_in(body) if x.step != 1 for n in buffers_in((x,)) & arrays.keys()}
    most = {n: MAX_IN_TILE if n in in_tiles else MAX_ELEMENTS for n in arrays}
    plain, left = _without_tiles(body, arrays, in_tiles, around)
    try:
        return _as_elements(plain, left, around, most)
    except Refusal:
        plain, fewer = _without_tiles(plain, left, left.keys(), around)
        if len(fewer) == len(left):
            raise
        return _as_elements(plain, fewer, around, most)


def _without_tiles(
    body: Sequence[NestStmt], arrays: Mapping[str, LocalArray], names: Collection[str], around: Around
) -> tuple[Body, dict[str, LocalArray]]:
    """The statements, and the arrays that are left in them."""
    out, left = tuple(body), dict(arrays)
    for name in arrays:
        found = without_tile(out, arrays[name], around) if name in names else None
        if found is not None:
            out = found
            del left[name]
    return out, left


def _as_elements(
    body: Body, arrays: Mapping[str, LocalArray], around: Around, most: Mapping[str, int]
) -> Body:
    used = buffers_in(body)
    arrays = {name: a for name, a in arrays.items() if name in used}
    for a in arrays.values():
        if prod(a.extents) > most[a.name]:
            what = f"`{a.source}`, which is declared inside the nest, has {prod(a.extents)} elements"
            raise refuse("MDH006", f"{what}; up to {most[a.name]} become variables", a.span, help=HELP)
    work = _Elements(dict(arrays), around.unique)
    for n in work.accesses(body):
        if any(isinstance(x, Load) for i in n.index for x in walk(i)):
            raise _computed(arrays[n.buffer])
    work.counting = {v for a in work.accesses(body) for i in a.index for v in variables(i)}
    return work.named(work.body(body))


@dataclass(slots=True)
class _Elements:
    arrays: dict[str, LocalArray]
    unique: Callable[[str], str]
    counting: set[str] = field(default_factory=set)  # what subscripts of arrays are made of
    names: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)  # of the variables
    written: int = 0  # statements

    def accesses(self, body: Sequence[NestStmt | Stmt]) -> Iterator[Load]:
        for e in tree_exprs(body):
            yield from (n for n in walk(e) if isinstance(n, Load) and n.buffer in self.arrays)

    # ----------------------------------------------------------------- loops

    def body(self, body: Sequence[NestStmt | Stmt]) -> Body:
        """The statements with the loops written out that count subscripts of arrays."""
        out: list[NestStmt] = []
        for s in body:
            match s:
                case Loop(iterator=name) if name in self.counting:
                    out += self.written_out(s)
                case Loop(body=inner) | While(body=inner):
                    out.append(replace(s, body=self.body(inner)))  # type: ignore[arg-type]
                case If(cond=cond, then=then, other=other):
                    cond = folded(cond)
                    if isinstance(cond, Const):
                        out += self.body(then if cond.value else other)
                    else:
                        out.append(replace(s, cond=cond, then=self.body(then), other=self.body(other)))  # type: ignore[arg-type]
                case Return():
                    pass
                case _:
                    out.append(s)
                    self.written += 1
        return tuple(out)

    def written_out(self, s: Loop) -> Iterator[NestStmt]:
        """The iterations of a loop one after the other."""
        first, end = (folded(e) for e in (s.lower, s.upper))
        mine = next(a for a in self.accesses((s,)) if any(s.iterator in variables(i) for i in a.index))
        array = self.arrays[mine.buffer]
        if not isinstance(first, Const) or not isinstance(end, Const) or s.observed:
            shown = s.source_name or s.iterator
            why = "has no constant bounds" if not s.observed else "leaves a value behind the nest"
            what = f"`{array.source}` is declared inside the nest, and indexed by `{shown}`, which {why}"
            raise refuse("MDH006", what, array.span, help=HELP)
        trips = range(int(first.value), int(end.value), s.step)
        for k in trips[: MAX_STATEMENTS + 1]:
            at: dict[str, Expr] = {s.iterator: Const(k, s.type)}
            yield from self.body(self.copy(map_tree(s.body, partial(_put, values=at))))
            if max(self.written, len(trips)) > MAX_STATEMENTS:
                raise refuse(
                    "MDH006",
                    f"`{array.source}` is declared inside the nest, and loops over its elements are too long",
                    array.span, help=HELP,
                )  # fmt: skip

    def copy(self, body: Body) -> Body:
        """The statements with names of their own for what they declare, and for their loops."""
        values: dict[str, str] = {}

        def one(s: NestStmt | Stmt) -> NestStmt | Stmt:
            match s:
                case Declare(name=name):
                    values[name] = self.unique(name)
                    if name in self.arrays:
                        self.arrays[values[name]] = replace(self.arrays[name], name=values[name])
                    return replace(s, name=values[name])
                case Loop(iterator=name, body=inner):
                    new = values[name] = self.unique(name)
                    if name in self.counting:
                        self.counting.add(new)
                    shown = s.source_name or name
                    return replace(s, iterator=new, source_name=shown, body=tuple(map(one, inner)))  # type: ignore[arg-type]
                case If(then=then, other=other):
                    return replace(s, then=tuple(map(one, then)), other=tuple(map(one, other)))  # type: ignore[arg-type]
                case While(body=block):
                    return replace(s, body=tuple(map(one, block)))  # type: ignore[arg-type]
            return s

        renamed = tuple(map(one, body))

        def name(e: Expr) -> Expr | None:
            if isinstance(e, Var) and e.name in values:
                return replace(e, name=values[e.name])
            if isinstance(e, Load) and e.buffer in values:
                return replace(e, buffer=values[e.buffer], index=tuple(rewrite(i, name) for i in e.index))
            return None

        return map_tree(renamed, lambda e: rewrite(e, name))  # type: ignore[arg-type]

    # ----------------------------------------------------------------- elements

    def named(self, body: Body) -> Body:
        """The statements with a variable for every element."""
        return map_tree(self.declared(body), lambda e: rewrite(e, self.element))

    def declared(self, body: Sequence[NestStmt | Stmt]) -> Body:
        out: list[NestStmt] = []
        for s in body:
            match s:
                case Declare(name=name) if name in self.arrays:
                    array = self.arrays[name]
                    for at in array.elements:
                        new = self.unique("_".join([array.source, *map(str, at)]))
                        self.names[name, at] = new
                        out.append(Declare(new, array.type, None, s.span))
                case Loop(body=inner) | While(body=inner):
                    out.append(replace(s, body=self.declared(inner)))  # type: ignore[arg-type]
                case If(then=then, other=other):
                    out.append(replace(s, then=self.declared(then), other=self.declared(other)))  # type: ignore[arg-type]
                case _:
                    out.append(s)  # type: ignore[arg-type]
        return tuple(out)

    def element(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in self.arrays:
            return None
        array = self.arrays[e.buffer]
        at = [as_affine(i) for i in e.index]
        if any(a is None or not a.is_constant for a in at):
            raise _computed(array)
        place = tuple(a.const for a in at if a is not None)
        name = self.names.get((e.buffer, place))
        if name is None:
            shown = array.source + "".join(f"[{k}]" for k in place)
            raise refuse("MDH006", f"`{shown}` is not in the array", array.span, help="correct the index")
        return Var(name, array.type)


def _computed(array: LocalArray) -> Refusal:
    what = f"`{array.source}` is declared inside the nest, and an index of it is computed there"
    return refuse("MDH006", what, array.span, help=HELP)


def _put(e: Expr, values: Mapping[str, Expr]) -> Expr:
    return folded(substitute(e, values))


def folded(e: Expr) -> Expr:
    """An expression without what constants decide: integers computed, choices taken."""
    match e:
        case Select(cond=cond, then=then, other=other):
            cond = folded(cond)
            if isinstance(cond, Const):
                return folded(then if cond.value else other)
            return replace(e, cond=cond, then=folded(then), other=folded(other))
        case Binary(op="&&" | "||" as op, a=a):
            a = folded(a)
            if isinstance(a, Const) and bool(a.value) == (op == "||"):
                return Const(int(op == "||"), INT32)
            e = replace(e, a=a, b=folded(e.b))
        case _:
            e = map_children(e, folded)
    t = e.type
    operands = {Unary: ("a",), Cast: ("a",), Binary: ("a", "b")}.get(type(e))
    if operands is None or not isinstance(t, ScalarType) or not t.is_integer:
        return e
    if not all(_is_number(getattr(e, x)) for x in operands):
        return e
    try:
        return Const(int(evaluate_scalar(e, _CHECKED)), t)
    except EvaluationError:
        return e


def _is_number(e: Expr) -> bool:
    return isinstance(e, Const) and isinstance(e.type, ScalarType) and e.type.is_integer


_CHECKED = Env({}, trap_overflow=True)
