"""Which elements of an array a program touches, also where only some of its points do: indices under
conditions on iterators and parameters, and indices that are products.

    i > 2 ? x[i - 3] : 0.0      for i in [0, n)         if (n - 3 > 0): x[0] to x[n - 4]
    x[(y*k + d)*w + v]          y < h, d < k, v < w     if all are positive: x[0] or x[(h*k - 1)*w], ...

An index is a sum of products in which an iterator stands once at most; conditions bound single iterators, so
what is left of the index set is a box, and the least and the greatest index are at corners of it, which the
nest does meet.  Where a point is met only if data says so, nothing says that the element is there: it must
be among those that are touched in any case.  ``tests/test_gpu_ranges.py`` compares with all points, by force.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from emit.c_text import affine_text
from emit.host_text import Loops, raw_strides
from mdh_core.expr import (
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Operand,
    Return,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    as_affine,
    children,
)
from mdh_core.ir import Buffer, MdhProgram, Size, keeps_if_empty
from mdh_core.polytope import certainly_empty, rows_of

_MOST = 32  # cases of one index, and corners of one box

Rows = tuple[Affine, ...]  # not negative
_Product = tuple[str, ...]  # sorted names
_Sum = Mapping[_Product, int]
_Frozen = tuple[tuple[_Product, int], ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """Elements from the least of ``lows`` to the greatest of ``highs``, where all of ``rooms`` are > 0.

    sure   the first and the last of them are touched there; else perhaps none is
    """

    rooms: tuple[Affine, ...]
    lows: tuple[_Frozen, ...]
    highs: tuple[_Frozen, ...]
    sure: bool

    @property
    def tests(self) -> tuple[str, ...]:
        """C conditions, all of which must hold."""
        return tuple(f"{affine_text(r, {})} > 0" for r in self.rooms)

    @property
    def ends(self) -> tuple[list[str], list[str]]:
        """C texts, without those that are never the least or the greatest."""
        least = _least_values(self.rooms)
        lows = _outermost([dict(x) for x in self.lows], least)
        highs = _outermost([_negative(dict(x)) for x in self.highs], least)
        return [_text(x) for x in lows], [_text(_negative(x)) for x in highs]

    def has(self, other: Touched) -> bool:
        """Whether it certainly has all elements of another one, wherever that one has some."""
        least = _least_values(other.rooms)

        def beyond(own: Sequence[_Frozen], its: Sequence[_Frozen], sign: int) -> bool:
            return all(any(_is_natural(_difference(x, o, sign), least) for o in own) for x in its)

        there = all(any((r - o).is_constant and (r - o).const >= 0 for o in other.rooms) for r in self.rooms)
        return there and beyond(self.lows, other.lows, 1) and beyond(self.highs, other.highs, -1)


def touched(b: Buffer, program: MdhProgram, loops: Loops) -> list[Touched] | None:
    """What the program touches of its array, in all iterations of the host loops; None: that is not known."""
    names = {d.name for d in program.hom.dims} | {x.iterator for x in loops}
    params = {p.name for p in program.params if isinstance(p.type, ScalarType) and p.type.is_integer}
    reader = _Reader(b.name, program, frozenset(names), frozenset(names | params))
    found: dict[Touched, None] = {}
    try:
        strides = [_of_text(s) for s in raw_strides(b)]
        for use in reader.uses():
            ranges = _box(program, loops, use)
            for case in reader.sums(use.index, strides, use.rows):
                rows = (*case.rows, *use.rows)
                if {n for p in [*case.sum, *(tuple(r.names) for r in rows)] for n in p} & names - set(ranges):
                    return None
                piece = _piece(case.sum, rows, ranges, use.sure and case.sure)
                if piece is not None:
                    found[piece] = None
    except _UnknownError:
        return None
    return list(found)


class _UnknownError(Exception):
    """Some index, or the set of its points, has another form."""


@dataclass(frozen=True, slots=True)
class _Use:
    """An index, what holds where it is met, and whether it is met wherever that holds.

    every   it needs a point of all dimensions, else a cell
    """

    index: tuple[Affine | Expr, ...]
    rows: Rows = ()
    sure: bool = True
    every: bool = True


@dataclass(frozen=True, slots=True)
class _Case:
    sum: _Sum
    rows: Rows = ()
    sure: bool = True


# --------------------------------------------------------------------------- where it is indexed


@dataclass(frozen=True, slots=True)
class _Reader:
    buffer: str
    program: MdhProgram
    iterators: frozenset[str]
    known: frozenset[str]  # iterators and integer parameters

    def uses(self) -> Iterator[_Use]:
        p = self.program
        for a in p.inp.accesses:
            if a.buffer == self.buffer and not a.conditional:
                yield _Use(a.index)
        body, scalar = p.hom.scalar.body, p.hom.scalar
        yield from self._statements(body, _Use(()))
        for e in scalar.results:
            yield from self._within(e, _Use(()))
        stores = [s for s in p.out.stores if s.buffer == self.buffer]
        added = bool(stores) and all(keeps_if_empty(s, p.out.initial) for s in stores)
        cell = _Use((), every=added)
        for s in p.out.stores:
            if s.buffer == self.buffer:
                yield replace(cell, index=s.index)
            yield from self._within(s.value, cell)
        for initial in p.out.initial:
            if initial is not None:
                yield from self._within(initial, cell)

    def _statements(self, body: Sequence[Stmt], at: _Use) -> Iterator[_Use]:
        for s in body:
            match s:
                case Declare(value=None):
                    pass
                case Declare(value=e) if e is not None:
                    yield from self._within(e, at)
                case Assign(target=target, value=e):
                    yield from self._within(e, at)
                    yield from self._within(target, at)
                case If(cond=cond, then=then, other=other):
                    yield from self._within(cond, at)
                    for wanted, branch in ((True, then), (False, other)):
                        for below in self._where(cond, wanted, at):
                            yield from self._statements(branch, below)
                case While(cond=cond, body=inner):
                    yield from self._within(cond, at)
                    yield from self._statements(inner, replace(at, sure=False))
                case Return():
                    raise _UnknownError  # what is behind it may not be met

    def _within(self, e: Expr, at: _Use) -> Iterator[_Use]:
        match e:
            case Operand(access=k):
                a = self.program.inp.accesses[k]
                if a.buffer == self.buffer and a.conditional:
                    yield replace(at, index=a.index)
            case Select(cond=cond, then=then, other=other):
                yield from self._within(cond, at)
                for wanted, branch in ((True, then), (False, other)):
                    for below in self._where(cond, wanted, at):
                        yield from self._within(branch, below)
            case Binary(op="&&" | "||" as op, a=a, b=b):
                yield from self._within(a, at)
                for below in self._where(a, op == "&&", at):
                    yield from self._within(b, below)
            case _:
                if isinstance(e, Load) and e.buffer == self.buffer:
                    yield replace(at, index=e.index)
                for inner in children(e):
                    yield from self._within(inner, at)

    # ------------------------------------------------------------------ conditions

    def _where(self, cond: Expr, wanted: bool, at: _Use) -> list[_Use]:
        cases, exact = self._cases(cond, wanted)
        return [replace(at, rows=(*at.rows, *rows), sure=at.sure and exact) for rows in cases]

    def _cases(self, cond: Expr, wanted: bool) -> tuple[list[Rows], bool]:
        """Where a condition is (not) true, or more: not exact."""
        match cond:
            case Binary(op="&&" | "||" as op, a=a, b=b):
                (left, exact), (right, too) = self._cases(a, wanted), self._cases(b, wanted)
                both = [(*x, *y) for x in left for y in right] if (op == "&&") == wanted else [*left, *right]
                return (both, exact and too) if len(both) <= _MOST else ([()], False)
            case Unary(op="!", a=a):
                return self._cases(a, not wanted)
            case Cast(a=Binary() | Unary(op="!") as a) if _is_truth(a):
                return self._cases(a, wanted)
            case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=" as op, a=a, b=b):
                x, y = self._affine(a), self._affine(b)
                if x is not None and y is not None:
                    return _compared(op if wanted else _NEGATED[op], x - y), True
        return [()], False

    def _affine(self, e: Expr) -> Affine | None:
        a = as_affine(e) if self._is_plain(e, wraps=False) else None
        return a if a is not None and a.names <= self.known else None

    def _is_plain(self, e: Expr, wraps: bool) -> bool:
        """Whether an integer expression has the value that it has without bounds on integers (``wraps``: or
        one that is congruent to it, if it has 64 bits: so are addresses)."""
        match e:
            case Const(value=int()) | Var():
                return not isinstance(e, Var) or e.name in self.known
            case Cast(a=a, type=t):
                own = _type(a)
                if own is None or not t.is_integer or t.bits < 32 or not self._is_plain(a, wraps):
                    return False
                if isinstance(a, Var) and a.name in self.iterators:
                    return True
                if t.kind == "uint":
                    return (self._counts_up(a) and own.bits <= t.bits) or (wraps and t.bits == 64)
                return own.bits < t.bits or (own.bits == t.bits and own.kind == "int")
            case Unary(op="-", a=a, type=t):
                return self._is_plain(a, wraps) and (t.kind == "int" or (wraps and t.bits == 64))
            case Binary(op="+" | "-" | "*", a=a, b=b, type=t):
                whole = t.kind == "int" or self._counts_up(e) or (wraps and t.bits == 64)
                return whole and self._is_plain(a, wraps) and self._is_plain(b, wraps)
            case _:
                return False

    def _counts_up(self, e: Expr) -> bool:
        """Whether it cannot be negative."""
        match e:
            case Const(value=int(value)):
                return value >= 0
            case Var(name=name, type=t):
                return name in self.iterators or (isinstance(t, ScalarType) and t.kind == "uint")
            case Cast(a=a):
                return self._counts_up(a)
            case Binary(op="+" | "*", a=a, b=b):
                return self._counts_up(a) and self._counts_up(b)
            case _:
                return False

    # ------------------------------------------------------------------ indices as sums of products

    def sums(self, index: Sequence[Affine | Expr], strides: Sequence[_Sum], rows: Rows) -> list[_Case]:
        """The number of the element; an index that is chosen has several."""
        found = [_Case({})]
        for i, stride in zip(index, strides, strict=True):
            own = [_Case(_of_affine(i))] if isinstance(i, Affine) else self._sums(i)
            found = _joined(found, [replace(c, sum=_times(c.sum, stride)) for c in own], _plus)
            found = [c for c in found if not certainly_empty([*rows, *c.rows])]
        return found

    def _sums(self, e: Expr) -> list[_Case]:
        match e:
            case Const(value=int(value)):
                return [_Case({(): value} if value else {})]
            case Var(name=name) if name in self.known:
                return [_Case({(name,): 1})]
            case Cast(a=Select() as a, type=t) if _is_wider(t, _type(a)):
                return self._sums(a)
            case Select(cond=cond, then=then, other=other):
                found = []
                for wanted, branch in ((True, then), (False, other)):
                    cases, exact = self._cases(cond, wanted)
                    below = self._sums(branch)
                    found += [
                        _Case(c.sum, (*rows, *c.rows), c.sure and exact) for rows in cases for c in below
                    ]
                return found
            case _ if not self._is_plain(_without_choices(e), wraps=True):
                raise _UnknownError
            case Cast(a=a):
                return self._sums(a)
            case Unary(op="-", a=a):
                return [replace(c, sum=_times(c.sum, {(): -1})) for c in self._sums(a)]
            case Binary(op="+" | "-" | "*" as op, a=a, b=b):
                right = self._sums(b)
                if op == "-":
                    right = [replace(c, sum=_times(c.sum, {(): -1})) for c in right]
                return _joined(self._sums(a), right, _times if op == "*" else _plus)
            case _:
                raise _UnknownError


_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _compared(op: str, d: Affine) -> list[Rows]:
    """Where ``d op 0``."""
    match op:
        case "<":
            return [(-d - 1,)]
        case "<=":
            return [(-d,)]
        case ">":
            return [(d - 1,)]
        case ">=":
            return [(d,)]
        case "==":
            return [(d, -d)]
        case _:
            return [(d - 1,), (-d - 1,)]


def _is_truth(e: Binary | Unary) -> bool:
    return e.op in ("&&", "||", "!", *_NEGATED)


def _type(e: Expr) -> ScalarType | None:
    t = getattr(e, "type", None)
    return t if isinstance(t, ScalarType) and t.is_integer else None


def _is_wider(t: ScalarType, own: ScalarType | None) -> bool:
    """Whether a conversion to ``t`` keeps addresses that are computed with it."""
    if own is None or not t.is_integer or own.kind != "int" or t.bits < max(own.bits, 32):
        return False
    return t.kind == "int" or t.bits == 64


def _without_choices(e: Expr) -> Expr:
    """With the first branch of every choice, to look at the types of what is around them; branches are
    looked at by themselves."""
    match e:
        case Select(then=then):
            return _without_choices(then)
        case Cast(a=a) | Unary(a=a):
            return replace(e, a=_without_choices(a))
        case Binary(a=a, b=b):
            return replace(e, a=_without_choices(a), b=_without_choices(b))
        case _:
            return e


def _joined(left: list[_Case], right: list[_Case], how: object) -> list[_Case]:
    assert callable(how)
    found = [
        _Case(how(a.sum, b.sum), (*a.rows, *b.rows), a.sure and b.sure)
        for a in left for b in right if not certainly_empty([*a.rows, *b.rows])
    ]  # fmt: skip
    if len(found) > _MOST:
        raise _UnknownError
    return found


def _plus(a: _Sum, b: _Sum) -> _Sum:
    names = dict.fromkeys([*a, *b])
    return {n: c for n in names if (c := a.get(n, 0) + b.get(n, 0))}


def _times(a: _Sum, b: _Sum) -> _Sum:
    one_by_one = ({tuple(sorted((*x, *y))): c * d} for x, c in a.items() for y, d in b.items())
    return reduce(_plus, one_by_one, {})


def _of_affine(a: Affine) -> _Sum:
    return {p: c for p, c in (*(((n,), c) for n, c in a.terms), ((), a.const)) if c}


def _of_text(stride: int | str) -> _Sum:
    if isinstance(stride, int):
        return {(): stride} if stride else {}
    return {(stride if re.fullmatch(r"\w+", stride) else f"({stride})",): 1}


# --------------------------------------------------------------------------- boxes


def _box(program: MdhProgram, loops: Loops, use: _Use) -> dict[str, tuple[Rows, Rows]]:
    """Per iterator its lower and upper bounds; the points at which an index may be met."""
    dims = program.hom.dims if use.every else program.hom.dims_of("cc", "ps")
    sizes: list[tuple[str, Size]] = [(d.name, d.size) for d in dims]
    sizes += [(x.iterator, x.size) for x in loops]
    names = {n for n, _ in sizes}
    box: dict[str, tuple[Rows, Rows]] = {}
    for name, size in sizes:
        if size.span.names & names or (size.step != 1 and size.constant is None):
            raise _UnknownError
        last = size.span - 1 if size.constant is None else Affine.number(size.constant - 1)
        box[name] = (Affine.number(0),), (last,)
    others = {d.name for d in program.hom.dims} - names  # a cell is stored though nothing contributes to it
    return _cut(box, [r for r in rows_of(program.hom.domain) if not r.names & others])


def _cut(box: dict[str, tuple[Rows, Rows]], rows: Iterable[Affine]) -> dict[str, tuple[Rows, Rows]]:
    """The box with conditions on single iterators; one without iterators bounds none and is kept apart."""
    box = dict(box)
    for r in rows:
        own = [n for n in box if r.coefficient(n)]
        if not own:
            lower, upper = box.get("", ((Affine.number(0),), ()))
            box[""] = lower, (*upper, r)
            continue
        (name, *more), c = own, r.coefficient(own[0])
        if more or abs(c) != 1:
            raise _UnknownError
        bound = (Affine.of(name) - r) if c == 1 else (r + Affine.of(name))
        lower, upper = box[name]
        box[name] = (_tight(lower, bound, 1), upper) if c == 1 else (lower, _tight(upper, bound, -1))
    return box


def _tight(bounds: Rows, new: Affine, sign: int) -> Rows:
    """The greatest (sign 1) or least ones of bounds, as far as that is known."""
    for b in bounds:
        if (d := (b - new) * sign).is_constant and d.const >= 0:
            return bounds
    return (*(b for b in bounds if not (d := (new - b) * sign).is_constant or d.const < 0), new)


def _piece(what: _Sum, rows: Rows, box: dict[str, tuple[Rows, Rows]], sure: bool) -> Touched | None:
    """The ends at the corners; None where no point is left."""
    box = _cut(box, rows)
    rooms: dict[Affine, None] = {}
    positive: set[str] = set()
    ends: dict[str, tuple[str | Affine, str | Affine]] = {}
    for name, (lower, upper) in box.items():
        for a, b in itertools.product(lower, upper):
            room = b - a + 1  # > 0
            if room.is_constant:
                if room.const <= 0:
                    return None
                continue
            rooms[room] = None
            if len(room.terms) == 1 and room.terms[0][1] == 1 and room.const <= 0:
                positive.add(room.terms[0][0])
        same = next((a for a in lower if a in upper), None)
        if name and same is not None:
            ends[name] = same, same
        elif name:
            ends[name] = _one_of("mdh_greatest", lower), _one_of("mdh_least", upper)
    if any(product.count(n) > 1 for product in what for n in ends):
        raise _UnknownError
    lows, highs = (_corners(what, ends, positive, upper) for upper in (False, True))
    return Touched(tuple(rooms), lows, highs, sure)


def _one_of(function: str, bounds: Rows) -> str | Affine:
    if len(bounds) == 1:
        return bounds[0]
    texts = [affine_text(b, {}) for b in bounds]
    return reduce(lambda a, b: f"{function}({a}, {b})", texts)


def _corners(
    what: _Sum, ends: Mapping[str, tuple[str | Affine, str | Affine]], positive: set[str], upper: bool
) -> tuple[_Frozen, ...]:
    """The index at corners, among which is its greatest (least) value."""
    choices: list[list[tuple[str, str | Affine]]] = []
    for name, (low, high) in ends.items():
        factor = {tuple(n for n in p if n != name): c for p, c in what.items() if name in p}
        if not factor:
            continue
        known = all(n in positive for p in factor for n in p)
        rising = known and all(c > 0 for c in factor.values())
        falling = known and all(c < 0 for c in factor.values())
        if rising or falling or low == high:
            choices.append([(name, high if rising == upper else low)])
        else:
            choices.append([(name, low), (name, high)])
    corners = list(itertools.islice(itertools.product(*choices), _MOST + 1))
    if len(corners) > _MOST:
        raise _UnknownError
    return tuple(dict.fromkeys(_frozen(reduce(_at, corner, what)) for corner in corners))


def _at(what: _Sum, end: tuple[str, str | Affine]) -> _Sum:
    name, value = end
    number: _Sum = {(value,): 1} if isinstance(value, str) else _of_affine(value)
    out: _Sum = {}
    for product, c in what.items():
        own: _Sum = {tuple(n for n in product if n != name): c}
        out = _plus(out, _times(own, number) if name in product else own)
    return out


# --------------------------------------------------------------------------- which end is further out


def needed(
    texts: Sequence[str], rooms: Iterable[Affine], sizes: Mapping[str, Affine], upper: bool
) -> list[str]:
    """The texts without those that are certainly never the least (``upper``: the greatest) where all of
    ``rooms`` are > 0; ``sizes``: what names of sizes stand for."""
    least, kept = _least_values(rooms), dict[str, _Sum]()
    for text in texts:
        try:
            own = _of_c(ast.parse(text, mode="eval").body, sizes)
        except _UnknownError:
            return list(texts)
        own = _negative(own) if upper else own
        if any(_is_natural(_plus(own, _negative(o)), least) for o in kept.values()):
            continue
        kept = {t: o for t, o in kept.items() if not _is_natural(_plus(o, _negative(own)), least)}
        kept[text] = own
    return list(kept)


def _of_c(e: ast.expr, sizes: Mapping[str, Affine]) -> _Sum:
    match e:
        case ast.Constant(value=int(value)):
            return {(): value} if value else {}
        case ast.Name(id=name):
            return _of_affine(sizes.get(name, Affine.of(name)))
        case ast.UnaryOp(op=ast.USub(), operand=a):
            return _negative(_of_c(a, sizes))
        case ast.BinOp(left=a, op=ast.Add(), right=b):
            return _plus(_of_c(a, sizes), _of_c(b, sizes))
        case ast.BinOp(left=a, op=ast.Sub(), right=b):
            return _plus(_of_c(a, sizes), _negative(_of_c(b, sizes)))
        case ast.BinOp(left=a, op=ast.Mult(), right=b):
            return _times(_of_c(a, sizes), _of_c(b, sizes))
    raise _UnknownError


def _frozen(a: _Sum) -> _Frozen:
    return tuple(sorted(a.items()))


def _negative(a: _Sum) -> _Sum:
    return {p: -c for p, c in a.items()}


def _difference(a: _Frozen, b: _Frozen, sign: int) -> _Sum:
    return _times(_plus(dict(a), _negative(dict(b))), {(): sign})


def _least_values(rooms: Iterable[Affine]) -> dict[str, int]:
    """Of the names of which the rooms, all > 0, say one: ``n - 2 > 0``, so 3."""
    return {r.terms[0][0]: 1 - r.const for r in rooms if len(r.terms) == 1 and r.terms[0][1] == 1}


def _is_natural(a: _Sum, least: Mapping[str, int]) -> bool:
    """Whether it is certainly not negative: no coefficient is if names count from their least values."""
    if not {n for p in a for n in p} <= set(least):
        return False
    shifted: _Sum = {}
    for product, c in a.items():
        factors: list[_Sum] = [{(n,): 1, (): least[n]} if least[n] else {(n,): 1} for n in product]
        shifted = _plus(shifted, reduce(_times, factors, {(): c}))
    return all(c >= 0 for c in shifted.values())


def _outermost(what: Sequence[_Sum], least: Mapping[str, int]) -> list[_Sum]:
    """Those of which none of the others is certainly at most as great."""
    kept: list[_Sum] = []
    for x in what:
        if any(_is_natural(_plus(x, _negative(o)), least) for o in kept):
            continue
        kept = [o for o in kept if not _is_natural(_plus(o, _negative(x)), least)] + [x]
    return kept


def _text(what: _Sum) -> str:
    text = ""
    for product, c in sorted(what.items(), key=lambda x: (-len(x[0]), x[0])):
        factors = [*([str(abs(c))] if abs(c) != 1 or not product else []), *product]
        sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
        text += sign + "*".join(factors)
    return text or "0"
