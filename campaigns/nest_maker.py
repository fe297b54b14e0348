"""A random nest from a seed.

Loops of depth 1 to 6 with statements before, between and after them; the innermost bodies are made of
*idioms*: maps, reductions, arg-minima, scans, stencils, time loops, guards, gathers, and chains of
statements that read what others write.  Values stay small integers, so that every order of a sum is exact:
``nests.Watch`` looks that they do, and drops the sizes for which they do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from campaigns.nest_tree import (
    Array,
    At,
    Call,
    Expr,
    For,
    Frame,
    Lin,
    Local,
    Name,
    Neg,
    Nest,
    Num,
    Op,
    Pick,
    Put,
    Scalar,
    Stmt,
    Subscript,
    Unbounded,
    Via,
    When,
    exprs_of,
    names_used,
    walk,
    walk_expr,
    with_extents,
)

SIZES = ("n", "m", "r")
ITERATORS = ("i", "j", "k", "l", "p", "q", "u", "v", "x", "y", "z", "ii", "jj", "kk", "ll", "pp", "qq")
FAMILIES = (
    ("int32",), ("int32",), ("int32",), ("float",), ("float",), ("double",),
    ("int64",), ("uint32",), ("uint64",),
    ("int32", "int64"), ("float", "double"), ("uint32", "uint64"), ("int32", "double"), ("int32", "float"),
    ("int32", "int8"), ("int32", "int16"), ("uint32", "uint8"), ("uint32", "uint16"),
)  # fmt: skip


def random_nest(seed: int) -> Nest:
    """The nest of a seed; the same one in every process."""
    for attempt in range(1000):
        number = seed * 1000 + attempt
        maker = Maker(random.Random(number), random.Random(f"conditions {number}"))
        try:
            return finished(maker.nest())
        except Unbounded:
            continue
    raise AssertionError(f"seed {seed} gives no nest")


def finished(nest: Nest) -> Nest:
    """With extents, without unused scalars and sizes."""
    nest = with_extents(nest)
    used = names_used(nest)
    return replace(
        nest,
        sizes=tuple(n for n in nest.sizes if n in used),
        scalars=tuple(s for s in nest.scalars if s.name in used),
    )


class Maker:
    def __init__(self, rng: random.Random, apart: random.Random) -> None:
        """``apart``: decides where loops stand under conditions."""
        self.rng, self.apart = rng, apart
        self.types = rng.choice(FAMILIES)
        self.type = self.types[0]
        self.arrays: dict[str, Array] = {}
        self.written: list[str] = []
        self.scalars: dict[str, Scalar] = {}
        self.features: set[str] = set()
        self.free = list(ITERATORS)
        self.count = 0
        self.restrict = rng.random() < 0.4
        self.evil = rng.random() < 0.4  # more dependences
        self.sizes = SIZES[: rng.choice([1, 2, 2, 3])]
        self.clean = rng.random() < 0.35  # perfect shapes only

    # -- choices

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def weighted(self, **weights: float) -> str:
        name = self.rng.choices(list(weights), list(weights.values()))[0]
        self.features.add(name)
        return name

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    @property
    def is_float(self) -> bool:
        return any(t in ("float", "double") for t in self.types)

    @property
    def is_unsigned(self) -> bool:
        return self.type.startswith("uint")

    # -- the nest

    def nest(self) -> Nest:
        depth = self.rng.choices([1, 2, 3, 4, 5, 6], [25, 40, 22, 7, 3, 3])[0]
        top = self.weighted(one=75, time=7, several=18)
        if top == "one":
            body: tuple[Stmt, ...] = (self.loop(Frame(), depth),)
        elif top == "time":
            body = (self.time_loop(),)
        else:
            body = self.block(Frame(), min(depth, 3), [])
            if not any(isinstance(s, For) for s in body):
                body = (*body, self.loop(Frame(), 1))
            while isinstance(body[0], Local):  # a block that starts with a declaration: give it a value
                body = (*body[1:],) if body[0].value is None else (body[0], *body[1:])
                break
        clauses = ""
        if self.is_float and self.chance(0.15):
            clauses = self.rng.choice(["fp(exact)", "fp(deterministic)"])
        nest = Nest(
            SIZES, tuple(self.scalars.values()), tuple(self.arrays.values()), tuple(body), clauses
        )
        return replace(nest, features=frozenset(self.features))

    # -- loops

    def loop(self, frame: Frame, depth: int, body: Callable[[Frame], tuple[Stmt, ...]] | None = None) -> For:
        head = self.head(frame)
        inner = frame.inside(head)
        block = body(inner) if body else self.block(inner, depth - 1, [])
        if not body:
            self.free.insert(0, head.name)
        return replace(head, body=block)

    def head(self, frame: Frame) -> For:
        name = next(x for x in self.free if x not in frame.names)
        self.free.remove(name)
        size = Lin.of(self.rng.choice(self.sizes))
        outer = [x for x in frame.loops if abs(x.step) == 1]
        kinds = {"whole": 55.0, "inner": 14, "constant": 9, "from_one": 5, "strided": 6, "doubled": 2}
        if outer:
            kinds["triangle"] = 14
        kind = self.weighted(**kinds)
        low, high, step = Lin(0), size, 1
        match kind:
            case "inner":
                low, high = Lin(1), size - 1
            case "constant":
                high = Lin(self.rng.choice([1, 2, 3, 4, 5]))
            case "from_one":
                low = Lin(self.rng.choice([1, 2]))
            case "strided":
                low, step = Lin(self.rng.choice([0, 0, 1])), self.rng.choice([2, 2, 3])
            case "doubled":
                high = size * 2
            case "triangle":
                i = Lin.of(self.rng.choice(outer).name)
                same = next((x.high for x in outer if Lin.of(x.name) == i), size)
                limit = self.rng.choice([size, size, same])
                match self.rng.randrange(6):
                    case 0 | 1:
                        high = i + 1
                    case 2:
                        high = i
                    case 3:
                        low, high = i, limit
                    case 4:
                        low, high = i + 1, limit
                    case _:
                        low, high = i, i + self.rng.choice([2, 3])
            case _:
                pass
        sign, down = "<", False
        if self.chance(0.1):
            self.features.add("down")
            down, sign = True, self.rng.choice([">=", ">=", ">"])
            if abs(step) == 1 and self.chance(0.1) and kind == "whole":
                sign = ">="
        elif self.chance(0.25):
            sign = "<="
        elif step == 1 and kind in ("whole", "doubled") and self.chance(0.04):
            sign = "!="
        t = "int"
        if self.chance(0.12):
            t = "long"
        elif not down and kind in ("whole", "constant") and sign == "<" and self.chance(0.06):
            t = self.rng.choice(["unsigned", "unsigned long"])
            self.features.add("unsigned iterator")
        outside = t == "int" and self.chance(0.06)
        return For(name, low, high, -step if down else step, (), sign, t, outside)

    def time_loop(self) -> For:
        """Steps over one or two arrays."""
        t, rank = self.free.pop(0), self.rng.choice([1, 1, 2])
        a, b = self.array(rank, written=True), self.array(rank, written=True)
        steps = self.rng.choice([Lin.of(self.rng.choice(self.sizes)), Lin(2), Lin(3)])
        head = For(t, Lin(0), steps, 1, ())
        frame = Frame().inside(head)

        def sweep(target: str, source: str, stencil: bool) -> For:
            ends = [Lin.of(self.sizes[d % len(self.sizes)]) - 1 for d in range(rank)]
            loops = [For(self.free[d], Lin(1), end, 1, ()) for d, end in enumerate(ends)]
            inner = frame
            for x in loops:
                inner = inner.inside(x)
            center = tuple(Lin.of(x.name) for x in loops)
            value: Expr = At(source, center)
            if stencil:
                value = self.stencil(source, center)
            body: tuple[Stmt, ...] = (Put(At(target, center), self.rng.choice(["", "", "", "+"]), value),)
            for x in reversed(loops):
                body = (replace(x, body=body),)
            found = body[0]
            assert isinstance(found, For)
            return found

        if self.chance(0.25):
            body: tuple[Stmt, ...] = (sweep(a, a, True),)
        else:
            body = (sweep(b, a, True), sweep(a, b, self.chance(0.3)))
        if self.chance(0.2):
            body = (*body, *self.idiom(frame, []))
        return replace(head, body=body)

    def stencil(self, source: str, center: tuple[Lin, ...]) -> Expr:
        points = []
        for d in range(len(center)):
            for offset in (-1, 1):
                points.append(At(source, tuple(c + offset if e == d else c for e, c in enumerate(center))))
        chosen = self.rng.sample(points, self.rng.randint(1, len(points)))
        value: Expr = chosen[0]
        for p in chosen[1:]:
            value = Op(self.rng.choice("+-"), value, p)
        if self.chance(0.4):
            value = Op(self.rng.choice("+-"), value, At(source, center))
        return value

    # -- blocks

    def block(self, frame: Frame, depth: int, scope: list[str]) -> tuple[Stmt, ...]:
        scope = list(scope)
        out: list[Stmt] = []
        if depth <= 0:
            for _ in range(self.rng.choices([1, 2, 3], [70, 24, 6])[0]):
                out += self.idiom(frame, scope)
            return tuple(out)
        if self.clean and frame.loops:
            return (self.chosen(frame, self.loop_in(frame, depth, scope), scope),)
        if frame.loops and self.chance(0.3):
            return self.accumulate_inside(frame, depth, scope)
        for n in range(self.rng.choices([1, 2, 3], [76, 20, 4])[0]):
            if self.chance(0.22):
                out += self.idiom(frame, scope)
            inner = self.loop_in(frame, depth if n == 0 else min(depth, 2), scope)
            out.append(self.chosen(frame, inner, scope))
        if self.chance(0.22):
            out += self.idiom(frame, scope)
        return tuple(out)

    def chosen(self, frame: Frame, loop: For, scope: list[str]) -> Stmt:
        """The loop, now and then under a condition."""
        if not frame.loops or self.apart.random() > 0.1:
            return loop
        self.features.add("loop under a condition")
        test = self.condition(frame, scope)
        return When(test, (), (loop,)) if self.apart.random() < 0.2 else When(test, (loop,))

    def loop_in(self, frame: Frame, depth: int, scope: list[str]) -> For:
        head = self.head(frame)
        body = self.block(frame.inside(head), depth - 1, scope)
        if not head.outside:
            self.free.insert(0, head.name)
        return replace(head, body=body)

    def accumulate_inside(self, frame: Frame, depth: int, scope: list[str]) -> tuple[Stmt, ...]:
        """An accumulator is reset, a loop adds to it, and its value is used."""
        sign = self.operator()
        start = Num({"+": 0, "*": 1, "min": 9, "max": -9, "&": 7}.get(sign, 0))
        if self.is_unsigned and start.value < 0:
            start = Num(0)
        place: Name | At
        head: Stmt
        if self.chance(0.5):
            name = self.new("t")
            head = Local(name, self.type, start)
            place = Name(name)
        elif self.chance(0.4):
            place = Name(self.scalar(reset=True))
            head = Put(place, "", start)
        else:
            place = self.cell(frame, written=True, few=True)
            head = Put(place, "", self.rng.choice([start, self.value(frame, scope, 1)]))
        inner_scope = scope
        loop_head = self.head(frame)
        inner = frame.inside(loop_head)
        update: tuple[Stmt, ...] = (self.update(place, sign, inner, inner_scope),)
        if self.chance(0.15):
            update = (*update, *self.idiom(inner, scope))
        if depth > 1 and self.chance(0.5):
            second = self.head(inner)
            update = (replace(second, body=(self.update(place, sign, inner.inside(second), inner_scope),)),)
        out: list[Stmt] = [head, replace(loop_head, body=update)]
        if isinstance(place, Name):
            self.free.insert(0, loop_head.name)
            if self.chance(0.25):  # a second loop reads it
                third = self.head(frame)
                use = Put(
                    self.cell(frame.inside(third), written=True),
                    "",
                    Op(self.rng.choice("+-"), self.value(frame.inside(third), scope, 0), place),
                )
                out.append(replace(third, body=(use,)))
            else:
                value: Expr = place
                if self.chance(0.4):
                    value = Op(self.rng.choice("+-"), place, self.value(frame, scope, 0))
                out.append(Put(self.cell(frame, written=True), self.rng.choice(["", "", "+"]), value))
                if self.chance(0.15):
                    inside = [*scope, place.name]
                    out.append(self.update(Name(self.scalar()), self.operator(), frame, inside))
        return tuple(out)

    # -- statements

    def operator(self) -> str:
        if self.is_float:
            return self.rng.choices(["+", "-", "*", "min", "max"], [6, 1, 1, 2, 2])[0]
        return self.rng.choices(
            ["+", "-", "*", "min", "max", "&", "|", "^", "&&", "||"], [8, 1, 1, 2, 2, 1, 1, 1, 1, 1]
        )[0]

    def update(self, place: Name | At, sign: str, frame: Frame, scope: list[str]) -> Stmt:
        """``place`` combined with a value, in one of the usual spellings."""
        if sign == "*" and not self.is_unsigned:
            e: Expr = self.unit(frame)
        else:
            e = self.value(frame, scope, self.rng.choice([0, 1, 1, 2]))
        self.features.add(f"op {sign}")
        match sign:
            case "+" | "*" | "&" | "|" | "^" | "-":
                if self.chance(0.6) or sign == "-":
                    return Put(place, sign, e)
                ends = (place, e) if self.chance(0.5) else (e, place)
                return Put(place, "", Op(sign, *ends))
            case "&&" | "||":
                test = Op(self.rng.choice(["<", ">", "==", "!="]), e, Num(self.rng.randint(0, 4)))
                ends = (place, test) if self.chance(0.5) else (test, place)
                if self.chance(0.3):
                    return When(test, (Put(place, "", Num(0 if sign == "&&" else 1)),))
                return Put(place, "", Op(sign, *ends))
        less = sign == "min"
        match self.rng.randrange(5):
            case 0 if self.is_float:
                name = ("fmin" if less else "fmax") + ("f" if self.type == "float" else "")
                return Put(place, "", Call(name, *self.rng.sample([place, e], 2)))
            case 1 | 2:
                compared = ("<" if less else ">") + self.rng.choice(["", "", "="])
                return When(Op(compared, e, place), (Put(place, "", e),))
            case 3 if not less:
                return Put(place, "", Call(f"larger_{self.type}", *self.rng.sample([place, e], 2)))
            case _:
                compared = ("<" if less else ">") + self.rng.choice(["", "", "="])
                if self.chance(0.5):
                    return Put(place, "", Pick(Op(compared, e, place), e, place))
                return Put(place, "", Pick(Op(compared, place, e), place, e))

    def idiom(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        if not frame.loops:
            return [self.plain_store(frame, scope)]
        evil = 3.0 if self.evil else 0.6
        kind = self.weighted(
            map=22, cell_reduction=14, scalar_reduction=12, arg=5, temporary=9, scan=5, guarded=9,
            recurrence=2 * evil, chain=3 * evil, write_after_read=2 * evil, overwrite=1 * evil,
            gather=4, scatter=2, odd_update=2 * evil, padded=3, last=2, reset=2, mixed=1 * evil,
            accumulate_old=3,
        )  # fmt: skip
        made: list[Stmt] = getattr(self, f"make_{kind}")(frame, scope)
        return made

    def plain_store(self, frame: Frame, scope: list[str]) -> Stmt:
        return Put(self.cell(frame, written=True), "", self.value(frame, scope, 1))

    def make_map(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        op = self.rng.choices(["", "+", "-"], [8, 2, 1])[0]
        return [Put(self.cell(frame, written=True), op, self.value(frame, scope, 2))]

    def make_cell_reduction(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        place = self.cell(frame, written=True, few=True)
        return [self.update(place, self.operator(), frame, scope)]

    def make_scalar_reduction(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        name = self.scalar()
        out: list[Stmt] = [self.update(Name(name), self.operator(), frame, scope)]
        if self.chance(0.12):
            out.append(self.update(Name(self.scalar()), self.operator(), frame, scope))
        return out

    def make_arg(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        best, at = self.scalar(), self.scalar(integer=True)
        e = self.read(frame)
        compared = self.rng.choice(["<", ">", "<=", ">="])
        where: Expr = Name(self.rng.choice(frame.names))
        then: list[Stmt] = [Put(Name(best), "", e), Put(Name(at), "", where)]
        if self.chance(0.2):
            then.append(Put(Name(self.scalar()), "", self.read(frame)))
        self.rng.shuffle(then)
        test: Expr = Op(compared, e, Name(best))
        if self.chance(0.15):
            test = Op("&&", self.condition(frame, scope), test)
        return [When(test, tuple(then))]

    def make_temporary(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        name = self.new("t")
        value = self.value(frame, scope, 2)
        out: list[Stmt] = []
        if self.chance(0.2):
            out = [
                Local(name, self.type, None),
                When(
                    self.condition(frame, scope),
                    (Put(Name(name), "", value),),
                    (Put(Name(name), "", self.value(frame, scope, 1)),),
                ),
            ]
        else:
            out = [Local(name, self.type, value)]
        if self.chance(0.3):
            out.append(When(self.condition(frame, [*scope, name]), (Put(Name(name), "", self.small(frame)),)))
        inner = [*scope, name]
        if self.chance(0.3):
            out.append(self.update(Name(self.scalar()), "+", frame, inner))
        out.append(
            Put(
                self.cell(frame, written=True),
                self.rng.choice(["", "", "+"]),
                Op(self.rng.choice("+-"), Name(name), self.value(frame, inner, 0)),
            )
        )
        return out

    def make_scan(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        s = self.scalar()
        step = self.update(Name(s), self.rng.choice(["+", "+", "max", "min"]), frame, scope)
        store = Put(self.cell(frame, written=True), self.rng.choice(["", "", "", "+"]), Name(s))
        return [step, store] if self.chance(0.7) else [store, step]

    def make_guarded(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        then = self.idiom(frame, scope) if self.chance(0.4) else [self.plain_store(frame, scope)]
        then = [s for s in then if not isinstance(s, Local)] or [self.plain_store(frame, scope)]
        inside = tuple(walk(tuple(then)))
        declared = {s.name for s in inside if isinstance(s, Local)}
        leaves = (e for s in inside for x in exprs_of(s) for e in walk_expr(x))
        mentioned = {e.name for e in leaves if isinstance(e, Name)}
        loose = {x for x in mentioned if x.startswith("t")} - declared - set(scope)
        if loose:
            then = [self.plain_store(frame, scope)]
        other: list[Stmt] = [self.plain_store(frame, scope)] if self.chance(0.25) else []
        return [When(self.condition(frame, scope), tuple(then), tuple(other))]

    def make_recurrence(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        """In-place: cells depend on neighbours, earlier or later ones."""
        place = self.cell(frame, written=True)
        lins = [i for i in place.index if isinstance(i, Lin)]
        if len(lins) < len(place.index) or not any(i.terms for i in lins):
            return self.make_map(frame, scope)
        d = self.rng.choice([d for d, i in enumerate(lins) if i.terms])
        near = [At(place.array, tuple(i + o if e == d else i for e, i in enumerate(lins)))
                for o in self.rng.sample([-2, -1, -1, 1, 1, 2], self.rng.choice([1, 1, 2]))]  # fmt: skip
        value: Expr = near[0]
        for x in near[1:]:
            value = Op("-", value, x)
        if self.chance(0.5):
            value = Op(self.rng.choice("+-"), value, self.read(frame))
        return [Put(place, self.rng.choice(["", "", "", "+"]), value)]

    def make_chain(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        """A second statement reads what the first wrote: the same cell, or a neighbour."""
        first = self.cell(frame, written=True)
        second = self.cell(frame, written=True)
        offset = self.rng.choice([0, 0, 0, -1, 1])
        index = tuple(i + offset if isinstance(i, Lin) else i for i in first.index)
        value = Op(self.rng.choice("+-"), At(first.array, index), self.value(frame, scope, 0))
        op = self.rng.choice(["", "", "+"])
        return [Put(first, "", self.value(frame, scope, 1)), Put(second, op, value)]

    def make_write_after_read(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        place = self.cell(frame, written=True)
        offset = self.rng.choice([0, 0, 1, 1, -1])
        index = tuple(i + offset if isinstance(i, Lin) else i for i in place.index)
        first = Put(self.cell(frame, written=True), "", At(place.array, index))
        return [first, Put(place, "", self.value(frame, scope, 1))]

    def make_overwrite(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        place = self.cell(frame, written=True, few=True)
        out: list[Stmt] = [Put(place, "", self.value(frame, scope, 1))]
        if self.chance(0.4):
            out.append(Put(self.cell(frame, written=True), "", At(place.array, place.index)))
        if self.chance(0.3):
            out.append(Put(place, self.rng.choice(["", "+"]), self.value(frame, scope, 0)))
        return out

    def make_gather(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        value = Op(self.rng.choice("+-"), At(self.array(1), (self.via(frame),)), self.value(frame, scope, 0))
        if self.chance(0.3):
            return [self.update(self.cell(frame, written=True, few=True), "+", frame, scope)]
        return [Put(self.cell(frame, written=True), self.rng.choice(["", "", "+"]), value)]

    def make_scatter(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        place = At(self.array(1, written=True), (self.via(frame),))
        op = self.rng.choice(["+", "+", ""])
        return [Put(place, op, self.value(frame, scope, 0))]

    def make_odd_update(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        """Updates that look like reductions and are none."""
        s, e = Name(self.scalar()), self.small(frame)
        kinds: list[Stmt] = [
            Put(s, "", Op("-", e, s)),
            When(Op(self.rng.choice(["<", ">", "!="]), s, e), (Put(s, "+", Num(1)),)),
            When(Op(">", e, Num(1)), (Put(s, "", e),)),
            Put(s, "", Pick(Op(">", e, s), e, Op("-", s, Num(1)))),
            When(Op(">", e, Num(2)), (Put(s, "", Num(0)),), (Put(s, "+", Num(1)),)),
        ]
        if not self.is_float:
            kinds += [
                Put(s, "", Op("&", Op("+", Op("+", s, s), e), Num(15))),
                Put(s, "", Op("%", Op("+", Op("*", s, Num(3)), Op("&", e, Num(7))), Num(17))),
                Put(s, "", Op("/", Op("+", s, e), Num(2))),
            ]
        out = [self.rng.choice(kinds)]
        if self.chance(0.4):
            out.append(Put(self.cell(frame, written=True), "", s))
        return out

    def make_padded(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        """A guard keeps a shifted subscript inside."""
        loops = [x for x in frame.loops if not x.low.terms and x.low.const == 0 and _plain_size(x.high)]
        if not loops:
            return self.make_map(frame, scope)
        x = self.rng.choice(loops)
        offset = self.rng.choice([-1, 1, -2, 2])
        shifted = Lin.of(x.name) + offset
        a = self.array(1)
        test: Expr = Op(">=", Name(x.name), Num(-offset)) if offset < 0 else _below(x.name, x.high - offset)
        read = At(a, (shifted,), inside=True)
        anchor = Put(self.cell(frame, written=True), "", At(a, (Lin.of(x.name),)))
        if self.chance(0.5):
            return [anchor, When(test, (Put(self.cell(frame, written=True), "+", read),))]
        return [anchor, Put(self.cell(frame, written=True), "", Pick(test, read, Num(0)))]

    def make_last(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        return [Put(Name(self.scalar()), "", self.value(frame, scope, 1))]

    def make_reset(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        s = Name(self.scalar(reset=True))
        out: list[Stmt] = [Put(s, "", self.value(frame, scope, 1))]
        out.append(Put(self.cell(frame, written=True), "", Op("+", s, self.value(frame, scope, 0))))
        return out

    def make_mixed(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        """Two operators on one variable, or an accumulator that is read besides."""
        s = Name(self.scalar())
        first = self.update(s, self.operator(), frame, scope)
        if self.chance(0.5):
            return [first, self.update(s, self.operator(), frame, scope)]
        return [first, self.update(Name(self.scalar()), "+", frame, [*scope, s.name])]

    def make_accumulate_old(self, frame: Frame, scope: list[str]) -> list[Stmt]:
        place = self.cell(frame, written=True)
        return [Put(place, "+", self.value(frame, scope, 1))]

    # -- expressions

    def value(self, frame: Frame, scope: list[str], depth: int) -> Expr:
        if depth <= 0 or self.chance(0.25):
            return self.leaf(frame, scope)
        a = self.value(frame, scope, depth - 1)
        match self.rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                return Op(self.rng.choice("++-"), a, self.value(frame, scope, depth - 1))
            case 5 | 6:
                return Op("*", self.small(frame), self.small(frame))
            case 7:
                return Op("*", Num(self.rng.choice([2, 3])), a)
            case 8:
                return Pick(self.condition(frame, scope), a, self.value(frame, scope, depth - 1))
            case 9 if not self.is_float:
                return Op(self.rng.choice("&|^"), a, self.leaf(frame, scope))
            case 10 if not self.is_unsigned:
                return Neg(a)
            case _:
                return a

    def leaf(self, frame: Frame, scope: list[str]) -> Expr:
        kind = self.rng.random()
        if kind < 0.62:
            return self.read(frame)
        if kind < 0.72 and scope:
            return Name(self.rng.choice(scope))
        if kind < 0.82 and frame.loops:
            return Name(self.rng.choice(frame.names))
        if kind < 0.87 and (readable := [s.name for s in self.scalars.values() if s.start is None]):
            return Name(self.rng.choice(readable))
        return Num(self.rng.randint(0, 4))

    def small(self, frame: Frame) -> Expr:
        return At(self.array(1), (self.lin(frame),)) if self.chance(0.7) else Num(self.rng.randint(1, 3))

    def unit(self, frame: Frame) -> Expr:
        name = self.array(min(2, max(1, len(frame.loops))), data="unit")
        return At(name, self.index(self.arrays[name].rank, frame))

    def read(self, frame: Frame) -> Expr:
        rank = self.rng.choices([1, 2, 3], [5, 4, 1])[0]
        rank = min(rank, max(1, len(frame.loops)))
        p = 0.3 if self.evil else 0.06
        old = [n for n in self.written if self.arrays[n].rank == rank]
        name = self.rng.choice(old) if old and self.chance(p) else self.array(rank)
        return At(name, self.index(self.arrays[name].rank, frame))

    def condition(self, frame: Frame, scope: list[str]) -> Expr:
        compared = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
        kind = self.rng.randrange(8)
        if kind < 3 and frame.loops:
            i = self.rng.choice(frame.names)
            others = [Name(x) for x in frame.names if x != i] + [Num(self.rng.randint(0, 3))]
            others += [Name(n) for n in self.sizes[:1] if self.chance(0.3)]
            return Op(compared, Name(i), self.rng.choice(others))
        if kind == 3 and frame.loops:
            return Op("==", Op("%", Name(self.rng.choice(frame.names)), Num(self.rng.choice([2, 3]))), Num(0))
        if kind == 4:
            first, second = self.condition(frame, scope), self.condition(frame, scope)
            return Op(self.rng.choice(["&&", "||"]), first, second)
        right = self.rng.choice([Num(self.rng.randint(0, 4)), self.read(frame)])
        return Op(compared, self.leaf(frame, scope), right)

    # -- cells

    def cell(self, frame: Frame, written: bool = False, few: bool = False) -> At:
        """``few``: subscripts with fewer iterators than there are loops."""
        depth = len(frame.loops)
        rank = depth if depth <= 3 else self.rng.choice([2, 3])
        if few:
            rank = max(1, depth - self.rng.choice([1, 1, 2]))
        if self.chance(0.12):
            rank = self.rng.choice([1, 2])
        name = self.array(max(1, min(3, rank)), written=written)
        simple = written and self.chance(0.93 if not self.evil else 0.8)
        return At(name, self.index(self.arrays[name].rank, frame, simple, few))

    def array(self, rank: int, written: bool = False, data: str = "small") -> str:
        same = [
            a.name
            for a in self.arrays.values()
            if a.rank == rank and a.data == data and (a.name in self.written) == written
        ]
        crossing = [a.name for a in self.arrays.values() if a.rank == rank and a.data == data]
        if crossing and self.chance(0.08 if self.evil else 0.02):
            name = self.rng.choice(crossing)
        elif same and self.chance(0.55):
            name = self.rng.choice(same)
        else:
            name = self.new("w" if written else "a")
            t = self.rng.choice(self.types)
            if data == "unit":
                t = self.type if self.is_float else "int32" if not self.is_unsigned else self.type
            layout = "flat" if rank > 1 and self.chance(0.3) else "rows"
            self.arrays[name] = Array(name, t, rank, layout, data, restrict=self.restrict)
        if written and name not in self.written:
            self.written.append(name)
        return name

    def scalar(self, reset: bool = False, integer: bool = False) -> str:
        t = "int32" if integer else self.type
        old = [s.name for s in self.scalars.values() if s.type == t]
        if old and self.chance(0.35 if self.evil else 0.12):
            name = self.rng.choice(old)
            known = self.scalars[name]
            if known.start == "" and not reset:  # it may be read where nothing has set it
                self.scalars[name] = replace(known, start="1")
            return name
        name = self.new("s")
        start: str | None = None if self.chance(0.5) else str(self.rng.randint(0, 4))
        live = True
        if reset:
            start = self.rng.choice(["", start or "1", None])
            live = start != "" and self.chance(0.3)
        elif start is not None:
            live = self.chance(0.8)
        self.scalars[name] = Scalar(name, t, start, live)
        return name

    def via(self, frame: Frame) -> Via:
        reach = self.rng.choice([Lin(3), Lin(4), Lin.of(self.rng.choice(self.sizes)) + 1])
        old = [a.name for a in self.arrays.values() if a.data == "index" and a.reach == reach]
        if old and self.chance(0.5):
            name = self.rng.choice(old)
        else:
            name = self.new("x")
            self.arrays[name] = Array(name, "int32", 1, data="index", reach=reach, restrict=self.restrict)
        return Via(name, (self.lin(frame),), reach)

    def index(
        self, rank: int, frame: Frame, simple: bool = False, few: bool = False
    ) -> tuple[Subscript, ...]:
        names = list(frame.names)
        if len(names) > rank and self.chance(0.5):
            names = names[: rank + 1] if few else names[-rank - 1 :]
        if self.chance(0.2):
            self.rng.shuffle(names)
        elif len(names) > rank and not few and self.chance(0.5):
            names = names[-rank:]
        out: list[Subscript] = []
        for _ in range(rank):
            if not names:
                out.append(Lin(self.rng.randint(0, 2)))
                continue
            i = names.pop(0)
            out.append(Lin.of(i) if simple or self.chance(0.6) else self.shifted(i, frame))
        return tuple(out)

    def lin(self, frame: Frame) -> Lin:
        if not frame.loops:
            return Lin(self.rng.randint(0, 2))
        i = self.rng.choice(frame.names)
        return Lin.of(i) if self.chance(0.6) else self.shifted(i, frame)

    def shifted(self, i: str, frame: Frame) -> Lin:
        a = Lin.of(i)
        loop = next(x for x in frame.loops if x.name == i)
        others = [x for x in frame.names if x != i]
        kind = self.rng.randrange(10)
        if kind < 5:
            return a + self.rng.choice([-2, -1, -1, 1, 1, 2])
        if kind == 5:
            return a * 2 + self.rng.choice([0, 0, 1])
        if kind == 6 and not loop.low.terms:
            return loop.high - 1 - a + loop.low  # backwards
        if kind in (7, 8) and others:
            return a + Lin.of(self.rng.choice(others))
        if kind == 9:
            size = Lin.of(self.rng.choice(self.sizes))
            return Lin(self.rng.randint(0, 2)) if self.chance(0.5) else a + size
        return a


def _plain_size(high: Lin) -> bool:
    return not high.terms or (high.const == 0 and len(high.terms) == 1 and high.terms[0][1] == 1)


def _below(name: str, high: Lin) -> Expr:
    bound: Expr = Num(high.const)
    for n, _ in high.terms:
        bound = Name(n)
        if high.const:
            bound = Op("+" if high.const > 0 else "-", Name(n), Num(abs(high.const)))
    return Op("<", Name(name), bound)
