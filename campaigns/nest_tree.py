"""Random nests as data: the tree, the ranges of its subscripts, and its text in C and in Python.

    nest  ::= Nest(sizes, scalars, arrays, body: stmt*)
    stmt  ::= For(name, low, high, step, ...) | Put(place, op, value) | Local(name, type, value) | When(...)
    expr  ::= Num | Name | At(array, subscript*) | Op(sign, a, b) | Neg | Pick(condition, a, b) | Call
    subscript ::= Lin | Via(array, subscript*, reach)         # Via: data that is below ``reach``

Nothing in a nest is undefined by construction: ``with_extents`` moves every array's subscripts so that the
smallest is 0 and gives the array the extents that the largest needs; where that cannot be told, the nest
is no nest (``Unbounded``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

C_TYPES = {
    "float": "float", "double": "double", "int32": "int", "int64": "long",
    "uint32": "unsigned", "uint64": "unsigned long", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short", "uint16": "unsigned short",
}  # fmt: skip


class Unbounded(Exception):  # noqa: N818 - an answer
    """The range of a subscript cannot be told, or starts at an unknown place below 0."""


# --------------------------------------------------------------------------- affine expressions


@dataclass(frozen=True, slots=True)
class Lin:
    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()  # sorted, no zeros

    @staticmethod
    def of(name: str, factor: int = 1) -> Lin:
        return Lin(0, ((name, factor),))

    def __add__(self, other: Lin | int) -> Lin:
        if isinstance(other, int):
            return Lin(self.const + other, self.terms)
        sums = dict(self.terms)
        for name, c in other.terms:
            sums[name] = sums.get(name, 0) + c
        return Lin(self.const + other.const, tuple(sorted((n, c) for n, c in sums.items() if c)))

    def __mul__(self, factor: int) -> Lin:
        return Lin(self.const * factor, tuple((n, c * factor) for n, c in self.terms) if factor else ())

    def __sub__(self, other: Lin | int) -> Lin:
        return self + (-other if isinstance(other, int) else other * -1)

    def factor(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def put(self, name: str, value: Lin) -> Lin:
        c = self.factor(name)
        return self - Lin.of(name, c) + value * c if c else self

    def at(self, values: Mapping[str, int]) -> int:
        return self.const + sum(c * values[n] for n, c in self.terms)

    def text(self, last: str = "") -> str:
        """``last``: a name to be written last (for variety of spelling)."""
        parts = []
        for name, c in sorted(self.terms, key=lambda t: (t[1] < 0, t[0] == last)):
            one = name if abs(c) == 1 else f"{abs(c)} * {name}"
            parts.append(("- " if c < 0 else "+ ") + one)
        if self.const or not parts:
            parts.append(("- " if self.const < 0 else "+ ") + str(abs(self.const)))
        joined = " ".join(parts)
        return joined[2:] if joined.startswith("+ ") else "-" + joined[2:]

    @property
    def atom(self) -> str:
        text = self.text()
        return f"({text})" if " " in text or text.startswith("-") else text


def greatest(lins: list[Lin]) -> Lin:
    """An upper bound of several, for names that are not negative."""
    names = {n for a in lins for n, _ in a.terms}
    terms = ((n, max(0, *(a.factor(n) for a in lins))) for n in sorted(names))
    return Lin(max(a.const for a in lins), tuple((n, c) for n, c in terms if c))


# --------------------------------------------------------------------------- the tree


@dataclass(frozen=True, slots=True)
class Via:
    """A subscript that is read from memory."""

    array: str
    index: tuple[Lin, ...]
    reach: Lin


Subscript = Lin | Via


@dataclass(frozen=True, slots=True)
class Num:
    value: int


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class At:
    array: str
    index: tuple[Subscript, ...]
    inside: bool = False  # a guard keeps it inside: it does not count for the extents


@dataclass(frozen=True, slots=True)
class Op:
    sign: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Neg:
    a: Expr


@dataclass(frozen=True, slots=True)
class Pick:
    condition: Expr
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """``min``, ``max`` (math.h's for floating point), ``larger`` (a function of the file)."""

    name: str
    a: Expr
    b: Expr


Expr = Num | Name | At | Op | Neg | Pick | Call


@dataclass(frozen=True, slots=True)
class Put:
    place: Name | At
    op: str  # "" for plain assignment
    value: Expr


@dataclass(frozen=True, slots=True)
class Local:
    name: str
    type: str
    value: Expr | None


@dataclass(frozen=True, slots=True)
class When:
    condition: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """From ``low`` to ``high`` (exclusive) in steps of ``step``; downwards where it is negative."""

    name: str
    low: Lin
    high: Lin
    step: int
    body: tuple[Stmt, ...]
    sign: str = "<"  # "<", "<=", "!=" (upwards); ">=", ">" (downwards)
    type: str = "int"
    outside: bool = False  # declared before the nest


Stmt = Put | Local | When | For


@dataclass(frozen=True, slots=True)
class Scalar:
    """A variable that is declared before the nest.  ``start``: None = a parameter of the function,
    "" = no value, otherwise a number."""

    name: str
    type: str
    start: str | None
    live: bool


@dataclass(frozen=True, slots=True)
class Array:
    """``layout``: ``rows`` (``A[n][m]``), ``flat`` (``A[i * m + j]``).  ``data``: small, unit, bit, index."""

    name: str
    type: str
    rank: int
    layout: str = "rows"
    data: str = "small"
    reach: Lin = Lin()  # of an index array: its elements are below
    restrict: bool = False
    extents: tuple[Lin, ...] = ()


@dataclass(frozen=True, slots=True)
class Nest:
    sizes: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    arrays: tuple[Array, ...]
    body: tuple[Stmt, ...]
    clauses: str = ""
    features: frozenset[str] = field(default=frozenset(), compare=False)

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)


# --------------------------------------------------------------------------- walking


def exprs_of(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement itself."""
    match s:
        case Put():
            return (s.place, s.value)
        case Local():
            return () if s.value is None else (s.value,)
        case When():
            return (s.condition,)
        case For():
            return ()


def blocks_of(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    match s:
        case When():
            return (s.then, s.other)
        case For():
            return (s.body,)
        case _:
            return ()


def parts(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Op() | Call():
            return (e.a, e.b)
        case Neg():
            return (e.a,)
        case Pick():
            return (e.condition, e.a, e.b)
        case _:
            return ()


def walk_expr(e: Expr) -> Iterator[Expr]:
    yield e
    for p in parts(e):
        yield from walk_expr(p)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in body:
        yield s
        for block in blocks_of(s):
            yield from walk(block)


def has_unsigned_iterator(nest: Nest) -> bool:
    return any(isinstance(s, For) and s.type.startswith("unsigned") for s in walk(nest.body))


def map_expr(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Bottom up."""
    match e:
        case Op():
            e = Op(e.sign, map_expr(e.a, f), map_expr(e.b, f))
        case Call():
            e = Call(e.name, map_expr(e.a, f), map_expr(e.b, f))
        case Neg():
            e = Neg(map_expr(e.a, f))
        case Pick():
            e = Pick(map_expr(e.condition, f), map_expr(e.a, f), map_expr(e.b, f))
        case _:
            pass
    return f(e)


def map_stmts(body: tuple[Stmt, ...], f: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        match s:
            case Put():
                place = map_expr(s.place, f)
                assert isinstance(place, Name | At)
                out.append(replace(s, place=place, value=map_expr(s.value, f)))
            case Local():
                out.append(s if s.value is None else replace(s, value=map_expr(s.value, f)))
            case When():
                out.append(When(map_expr(s.condition, f), map_stmts(s.then, f), map_stmts(s.other, f)))
            case For():
                out.append(replace(s, body=map_stmts(s.body, f)))
    return tuple(out)


# --------------------------------------------------------------------------- ranges and extents


@dataclass(frozen=True, slots=True)
class Frame:
    """The loops around a place, outermost first, and what their running tells about the sizes."""

    loops: tuple[For, ...] = ()
    least: tuple[tuple[str, int], ...] = ()

    def inside(self, loop: For) -> Frame:
        least = dict(self.least)
        span = loop.high - loop.low  # at least 1 inside
        if len(span.terms) == 1 and span.terms[0][1] == 1 and span.terms[0][0] not in self.names:
            name = span.terms[0][0]
            least[name] = max(least.get(name, 0), 1 - span.const)
        return Frame((*self.loops, loop), tuple(least.items()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(x.name for x in self.loops)

    def range(self, a: Lin) -> tuple[Lin, Lin]:
        """Smallest and largest value, over the sizes."""
        low = high = a
        for loop in reversed(self.loops):
            first, last = loop.low, loop.high - 1
            low = low.put(loop.name, first if low.factor(loop.name) > 0 else last)
            high = high.put(loop.name, last if high.factor(loop.name) > 0 else first)
        return low, high

    def least_of(self, low: Lin) -> int:
        """A number that ``low`` is never below."""
        least = dict(self.least)
        if any(c < 0 for _, c in low.terms):
            raise Unbounded(low.text())
        return low.const + sum(c * least.get(n, 0) for n, c in low.terms)


@dataclass(frozen=True, slots=True)
class Use:
    array: str
    index: tuple[Subscript, ...]
    frame: Frame
    inside: bool = False


def uses(body: tuple[Stmt, ...], frame: Frame = Frame()) -> Iterator[Use]:
    for s in body:
        for e in exprs_of(s):
            for x in walk_expr(e):
                if isinstance(x, At):
                    yield Use(x.array, x.index, frame, x.inside)
                    for i in x.index:
                        if isinstance(i, Via):
                            yield Use(i.array, i.index, frame)
        inner = frame.inside(s) if isinstance(s, For) else frame
        for block in blocks_of(s):
            yield from uses(block, inner)


def with_extents(nest: Nest) -> Nest:
    """The nest with subscripts from 0 and the arrays' extents; arrays that are not used are dropped."""
    low: dict[tuple[str, int], int] = {}
    high: dict[tuple[str, int], list[Lin]] = {}
    for use in uses(nest.body):
        for d, i in enumerate(use.index):
            if isinstance(i, Via):
                high.setdefault((use.array, d), []).append(i.reach)
                low[use.array, d] = min(low.get((use.array, d), 0), 0)
            elif not use.inside:
                first, last = use.frame.range(i)
                low[use.array, d] = min(low.get((use.array, d), 9), use.frame.least_of(first))
                high.setdefault((use.array, d), []).append(last + 1)

    def moved(name: str, index: tuple[Subscript, ...], inside: bool) -> tuple[Subscript, ...]:
        return tuple(
            i - low[name, d] if isinstance(i, Lin) and low.get((name, d), 0) < 0 and not inside else i
            for d, i in enumerate(index)
        )

    def shifted(e: Expr) -> Expr:
        if not isinstance(e, At):
            return e
        if e.inside and any(low.get((e.array, d), 0) < 0 for d in range(len(e.index))):
            raise Unbounded(e.array)
        index = tuple(
            replace(i, index=_lins(moved(i.array, i.index, False))) if isinstance(i, Via) else i
            for i in e.index
        )
        return replace(e, index=moved(e.array, index, e.inside))

    used = {use.array for use in uses(nest.body)}
    body = map_stmts(nest.body, shifted)
    arrays = []
    for a in nest.arrays:
        if a.name not in used:
            continue
        extents = []
        for d in range(a.rank):
            shift = -min(0, low.get((a.name, d), 0))
            ends = [h + shift for h in high.get((a.name, d), [Lin(1)])]
            extents.append(greatest(ends) if ends else Lin(1))
        if a.layout == "rows":  # the extent of a variable-length array is not negative
            extents = [replace(e, const=max(0 if e.terms else 1, e.const)) for e in extents]
        arrays.append(replace(a, extents=tuple(extents)))
    return replace(nest, arrays=tuple(arrays), body=body)


def _lins(index: tuple[Subscript, ...]) -> tuple[Lin, ...]:
    return tuple(i for i in index if isinstance(i, Lin))


def names_used(nest: Nest) -> set[str]:
    """Every name that the statements mention, those of subscripts, bounds and extents included."""
    found: set[str] = set()

    def lin(a: Lin) -> None:
        found.update(n for n, _ in a.terms)

    for s in walk(nest.body):
        if isinstance(s, For):
            lin(s.low)
            lin(s.high)
        for e in exprs_of(s):
            for x in walk_expr(e):
                if isinstance(x, Name):
                    found.add(x.name)
                if isinstance(x, At):
                    found.add(x.array)
                    for i in x.index:
                        for a in (i,) if isinstance(i, Lin) else (*i.index, i.reach):
                            lin(a)
    for array in nest.arrays:
        for extent in array.extents:
            lin(extent)
    return found


def points(nest: Nest, sizes: Mapping[str, int], most: int) -> int:
    """How many statements run, as far as ``most``."""
    values = dict(sizes)

    def count(body: tuple[Stmt, ...], left: int) -> int:
        for s in body:
            left -= 1
            if isinstance(s, For):
                low, high = s.low.at(values), s.high.at(values)
                for i in range(low, high, abs(s.step)):
                    values[s.name] = i
                    left = count(s.body, left)
                    if left <= 0:
                        return 0
            elif isinstance(s, When):
                left = count(s.other, count(s.then, left))
        return left

    return most - count(nest.body, most)


# --------------------------------------------------------------------------- C


def c_text(nest: Nest, name: str = "f", pragma: bool = True) -> str:
    """A function that holds the nest."""
    return _Text(nest).function(name, pragma)


def c_params(nest: Nest) -> list[str]:
    """Names of the function's parameters in order: sizes, arrays, scalars, results of live scalars."""
    return [
        *nest.sizes,
        *(a.name for a in nest.arrays),
        *(s.name for s in nest.scalars if s.start is None),
        *(f"r_{s.name}" for s in nest.scalars if s.live),
    ]


PRELUDE = "".join(
    f"static {c} larger_{t}({c} a, {c} b) {{ return a > b ? a : b; }}\n"
    for t, c in C_TYPES.items()
    if t in ("float", "double", "int32", "int64", "uint32", "uint64")
)


class _Text:
    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.arrays = {a.name: a for a in nest.arrays}

    def function(self, name: str, pragma: bool) -> str:
        nest = self.nest
        params = [f"int {n}" for n in nest.sizes]
        for a in nest.arrays:
            t, r = C_TYPES[a.type], "restrict " if a.restrict else ""
            if a.rank > 1 and a.layout == "rows":
                inner = "".join(f"[{e.text()}]" for e in a.extents[1:])
                params.append(f"{t} {a.name}[{'restrict' if a.restrict else a.extents[0].text()}]{inner}")
            else:
                params.append(f"{t} *{r}{a.name}")
        params += [f"{C_TYPES[s.type]} {s.name}" for s in nest.scalars if s.start is None]
        params += [f"{C_TYPES[s.type]} *r_{s.name}" for s in nest.scalars if s.live]
        lines = [f"void {name}({', '.join(params)})", "{"]
        for s in nest.scalars:
            if s.start is not None:
                lines.append(f"    {C_TYPES[s.type]} {s.name}{' = ' + s.start if s.start else ''};")
        outside = {(s.name, s.type) for s in walk(nest.body) if isinstance(s, For) and s.outside}
        lines += [f"    {t} {n};" for n, t in sorted(outside)]
        if pragma:
            lines.append(f"#pragma mdh {nest.clauses}".rstrip())
        if len(nest.body) == 1 and isinstance(nest.body[0], For):
            lines += self.block(nest.body, "    ")
        else:
            lines += ["    {", *self.block(nest.body, "        "), "    }"]
        lines += [f"    *r_{s.name} = {s.name};" for s in nest.scalars if s.live]
        return "\n".join([*lines, "}", ""])

    def block(self, body: tuple[Stmt, ...], indent: str) -> list[str]:
        lines = []
        for s in body:
            match s:
                case Put():
                    lines.append(f"{indent}{self.expr(s.place)} {s.op}= {self.expr(s.value)};")
                case Local():
                    start = "" if s.value is None else f" = {self.expr(s.value)}"
                    lines.append(f"{indent}{C_TYPES[s.type]} {s.name}{start};")
                case When():
                    lines.append(f"{indent}if ({self.expr(s.condition)}) {{")
                    lines += self.block(s.then, indent + "    ")
                    if s.other:
                        lines.append(f"{indent}}} else {{")
                        lines += self.block(s.other, indent + "    ")
                    lines.append(indent + "}")
                case For():
                    lines.append(f"{indent}for ({self.head(s)}) {{")
                    lines += self.block(s.body, indent + "    ")
                    lines.append(indent + "}")
        return lines

    def head(self, s: For) -> str:
        i, t = s.name, "" if s.outside else s.type + " "
        up = s.step > 0
        first = s.low if up else s.high - 1
        bound = {"<": s.high, "!=": s.high, "<=": s.high - 1, ">=": s.low, ">": s.low - 1}[s.sign]
        size = abs(s.step)
        move = f"{i}{'++' if up else '--'}" if size == 1 else f"{i} {'+=' if up else '-='} {size}"
        return f"{t}{i} = {first.text()}; {i} {s.sign} {bound.text()}; {move}"

    def subscript(self, i: Subscript) -> str:
        return i.text() if isinstance(i, Lin) else self.cell(i.array, i.index)

    def cell(self, name: str, index: tuple[Subscript, ...]) -> str:
        a = self.arrays[name]
        texts = [self.subscript(i) for i in index]
        if a.rank == 1 or a.layout == "rows":
            return name + "".join(f"[{t}]" for t in texts)
        flat = texts[0]
        for t, e in zip(texts[1:], a.extents[1:], strict=True):
            first = f"({flat})" if " " in flat else flat
            flat = f"{first} * {e.atom} + {t}"
        return f"{name}[{flat}]"

    def expr(self, e: Expr) -> str:
        match e:
            case Num():
                return str(e.value) if e.value >= 0 else f"({e.value})"
            case Name():
                return e.name
            case At():
                return self.cell(e.array, e.index)
            case Neg():
                return f"-({self.expr(e.a)})"
            case Pick():
                return f"({self.expr(e.condition)} ? {self.expr(e.a)} : {self.expr(e.b)})"
            case Call():
                return f"{e.name}({self.expr(e.a)}, {self.expr(e.b)})"
            case Op():
                return f"({self.expr(e.a)} {e.sign} {self.expr(e.b)})"


# --------------------------------------------------------------------------- Python

NUMPY_TYPES = {"float": "float32", "double": "float64"}  # the others have the same names


def py_text(nest: Nest, name: str = "f", imports: bool = True) -> str:
    """A function decorated with ``@mdh`` that holds the nest and returns its live scalars."""
    return _PythonText(nest).function(name, imports)


class _PythonText:
    def __init__(self, nest: Nest) -> None:
        self.arrays = {a.name: a for a in nest.arrays}
        self.nest = nest
        self.types = {s.name: s.type for s in nest.scalars}
        self.types |= {s.name: s.type for s in walk(nest.body) if isinstance(s, Local)}

    def function(self, name: str, imports: bool) -> str:
        nest = self.nest
        params = [f'{n}: "int64"' for n in nest.sizes]
        for a in nest.arrays:
            t = NUMPY_TYPES.get(a.type, a.type)
            rows = a.rank > 1 and a.layout == "rows"
            shape = ", ".join(e.text() for e in a.extents) if rows else ":"
            params.append(f'{a.name}: "{t}[{shape}]"')
        for s in nest.scalars:
            if s.start is None:
                params.append(f'{s.name}: "{NUMPY_TYPES.get(s.type, s.type)}"')
        lines = ["import numpy as np", "from mdh_lift import mdh", "", ""] if imports else []
        clauses = f'("{nest.clauses}")' if nest.clauses else ""
        lines += [f"@mdh{clauses}", f"def {name}({', '.join(params)}):"]
        for s in nest.scalars:
            if s.start:
                lines.append(f"    {s.name} = {self.typed(s.type, s.start)}")
        lines += self.block(nest.body, "    ")
        live = [s.name for s in nest.scalars if s.live]
        if live:
            lines.append(f"    return {', '.join(live)}")
        return "\n".join([*lines, ""])

    def typed(self, t: str, text: str) -> str:
        return f"np.{NUMPY_TYPES.get(t, t)}({text})"

    def block(self, body: tuple[Stmt, ...], indent: str) -> list[str]:
        lines = []
        for s in body:
            match s:
                case Put():
                    value = self.expr(s.value)
                    if not s.op and isinstance(s.place, Name):
                        value = self.typed(self.types[s.place.name], value)
                    lines.append(f"{indent}{self.expr(s.place)} {s.op}= {value}")
                case Local():
                    if s.value is not None:
                        lines.append(f"{indent}{s.name} = {self.typed(s.type, self.expr(s.value))}")
                case When():
                    lines.append(f"{indent}if {self.test(s.condition)}:")
                    lines += self.block(s.then, indent + "    ")
                    if s.other:
                        lines += [f"{indent}else:", *self.block(s.other, indent + "    ")]
                case For():
                    lines.append(f"{indent}for {s.name} in range({self.range(s)}):")
                    lines += self.block(s.body, indent + "    ")
        return lines or [f"{indent}pass"]

    def range(self, s: For) -> str:
        if s.step < 0:
            return f"{(s.high - 1).text()}, {(s.low - 1).text()}, {s.step}"
        low = "" if s.low == Lin(0) and s.step == 1 else f"{s.low.text()}, "
        return f"{low}{s.high.text()}" + (f", {s.step}" if s.step != 1 else "")

    def cell(self, name: str, index: tuple[Subscript, ...]) -> str:
        a = self.arrays[name]
        texts = [i.text() if isinstance(i, Lin) else self.cell(i.array, i.index) for i in index]
        if a.rank == 1 or a.layout == "rows":
            return f"{name}[{', '.join(texts)}]"
        flat = texts[0]
        for t, e in zip(texts[1:], a.extents[1:], strict=True):
            first = f"({flat})" if " " in flat else flat
            flat = f"{first} * {e.atom} + {t}"
        return f"{name}[{flat}]"

    def test(self, e: Expr) -> str:
        """The expression as a condition."""
        if isinstance(e, Op) and e.sign in ("&&", "||"):
            return f"({self.test(e.a)} {'and' if e.sign == '&&' else 'or'} {self.test(e.b)})"
        if isinstance(e, Op) and e.sign in COMPARED:
            return f"{self.expr(e.a)} {e.sign} {self.expr(e.b)}"
        return f"{self.expr(e)} != 0"

    def expr(self, e: Expr) -> str:
        match e:
            case Num():
                return str(e.value) if e.value >= 0 else f"({e.value})"
            case Name():
                return e.name
            case At():
                return self.cell(e.array, e.index)
            case Neg():
                return f"-({self.expr(e.a)})"
            case Pick():
                return f"({self.expr(e.a)} if {self.test(e.condition)} else {self.expr(e.b)})"
            case Call():
                return f"{'min' if 'min' in e.name else 'max'}({self.expr(e.a)}, {self.expr(e.b)})"
            case Op():
                if e.sign in ("&&", "||", *COMPARED):
                    return f"(1 if {self.test(e)} else 0)"
                return f"({self.expr(e.a)} {'//' if e.sign == '/' else e.sign} {self.expr(e.b)})"


COMPARED = ("<", "<=", ">", ">=", "==", "!=")
