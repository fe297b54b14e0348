"""What all loop nests of a kernel share: lines, names, index arithmetic, scalar code, vector code.

``Context`` knows where each buffer currently lives (the user's array or a packed copy) and the text of
each dimension's index at the place where code is being written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from emit.c_text import Printer, affine_text, c_type
from mdh_core.combine import CombineFunction
from mdh_core.expr import (
    COMPARISONS,
    INT32,
    LOGICAL,
    Affine,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Operand,
    Result,
    ScalarType,
    Select,
    Type,
    Unary,
    Var,
    as_affine,
    walk,
)
from mdh_core.ir import MdhProgram
from mdh_core.lanes import is_truth, steady_divisor


class Lines:
    """Indented text."""

    def __init__(self, indent: int = 1) -> None:
        self.rows: list[str] = []
        self.indent = indent

    def add(self, *texts: str) -> None:
        for text in texts:
            self.rows.append(text if text.startswith("#") else "  " * self.indent + text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.add(head + " {")
        self.indent += 1
        yield
        self.indent -= 1
        self.add(tail)

    def place(self, rows: Iterable[str], deeper: int) -> None:
        """Rows that are indented already, so many levels further in."""
        self.rows += (row if row.startswith("#") else "  " * deeper + row for row in rows)

    def middle(self, text: str) -> None:
        """A line such as ``} else {`` one level further out."""
        self.indent -= 1
        self.add(text)
        self.indent += 1

    @contextmanager
    def alone(self, team: bool = True) -> Iterator[None]:
        """What one thread of a team does while the others wait; without a team, what is done."""
        if not team:
            yield
            return
        with self.block("if (MDH_THREAD == 0)"):
            at = len(self.rows)
            yield
            if any("MDH_STORE(" in row for row in self.rows[at:]):
                self.add("MDH_STORED();")  # not every barrier orders them
        self.add("#pragma omp barrier")


class Names:
    """Names of the kernel's own variables; never one that the program uses."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def new(self, wish: str) -> str:
        name, k = wish, 2
        while name in self.taken:
            name, k = f"{wish}_{k}", k + 1
        self.taken.add(name)
        return name


_CONSTANT = re.compile(r"\s*[\w ]+? (\w+) = [^;]*;")


def without_dead_constants(rows: list[str]) -> list[str]:
    """The lines without variables that nothing else mentions; names are unique within a kernel."""
    while True:
        counts = Counter(word for row in rows for word in re.findall(r"[A-Za-z_]\w*", row))
        kept = [row for row in rows if not ((m := _CONSTANT.fullmatch(row)) and counts[m[1]] == 1)]
        if len(kept) == len(rows):
            return rows
        rows = kept


@dataclass(frozen=True, slots=True)
class Allocation:
    """A temporary on the heap: ``count`` elements of ``type`` (C texts); the kernel declines without it."""

    name: str
    type: str
    count: str


@dataclass(frozen=True, slots=True)
class Strip:
    """A coordinate of a copy that is cut into strips, one for each tile in ``dim``.

    first   text of the index in ``dim`` at which the copy begins
    pitch   elements of the copy per element of ``dim``, from strip to strip
    """

    coordinate: int
    dim: str
    first: str
    pitch: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer's cells are: ``name[linear(index - base)]`` with strides.

    strides: per buffer dimension, an int, or C text where it is known at run time only.
    """

    name: str
    strides: tuple[int | str, ...]
    base: tuple[str, ...] = ()  # texts subtracted from the indices; empty: none
    strip: Strip | None = None


def vector_store(vector: str, place: str, value: str, mask: str | None) -> str:
    """The statement that stores a vector; past the caches where an address has none of the mask's bits."""
    return f"MDH_STORE({vector}, {mask}, {place}, {value});" if mask else f"*({vector} *)&{place} = {value};"


def product_text(factors: list[int | str]) -> int | str:
    """A product as an int if it is one, else as C text."""
    number = 1
    texts = []
    for f in factors:
        if isinstance(f, int):
            number *= f
        else:
            texts.append(f)
    if not texts:
        return number
    return "*".join(([str(number)] if number != 1 else []) + texts)


class NotVector(Exception):  # noqa: N818 - an answer, not an error
    """The expression has no vector form here."""


@dataclass
class Context:
    """The state while a kernel is written."""

    program: MdhProgram
    names: Names
    at: dict[str, str] = field(default_factory=dict)  # dimension -> text of its index
    places: dict[str, Place] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)  # component -> text
    allocations: list[Allocation] = field(default_factory=list)
    cache: int | None = None  # bytes from which on arrays do not stay in the caches
    team: bool = False  # whether all threads of a region around the host loops run what is written
    enough: list[str] = field(default_factory=list)  # when there is something to share, for each loop that is
    # dimension -> of the tile that is being written: which strip is its own, and the strip's first index
    tiles: dict[str, tuple[str, str]] = field(default_factory=dict)

    # ------------------------------------------------------------------ places

    def raw_place(self, buffer: str) -> Place:
        """The buffer as the caller passed it: dense row-major, or with its own strides."""
        b = self.program.buffer(buffer)
        if b.strides is not None:
            raw = [self._extent(s) for s in b.strides]
            return Place(buffer, tuple(raw))
        strides: list[int | str] = []
        for t in range(b.rank):
            inner = []
            for extent in b.extents[t + 1 :]:
                assert extent is not None, f"{buffer}: inner extents are known"
                inner.append(self._extent(extent))
            strides.append(product_text(inner))
        return Place(buffer, tuple(strides))

    @staticmethod
    def _extent(a: Affine) -> int | str:
        return a.const if a.is_constant else affine_text(a, {}, atom=True)

    def place(self, buffer: str) -> Place:
        if buffer not in self.places:
            self.places[buffer] = self.raw_place(buffer)
        return self.places[buffer]

    def subscript(self, buffer: str, index: tuple[Affine, ...]) -> str:
        """``A[i*K + k]``: the cell at an index, with the dimensions where they are now."""
        place = self.place(buffer)
        constant_part = 0
        texts: list[str] = []
        for t, a in enumerate(index):
            stride = place.strides[t]
            base = place.base[t] if place.base else ""
            if place.strip is not None and place.strip.coordinate == t:
                texts += self._in_strip(place.strip, stride)
                continue
            if isinstance(stride, int):
                constant_part += a.const * stride
                a = Affine(a.terms)
            texts += self._term(a, stride, base)
        if constant_part:
            texts.append(str(constant_part))
        linear = " + ".join(texts).replace("+ -", "- ") or "0"
        return f"{place.name}[{linear}]"

    def _in_strip(self, strip: Strip, stride: int | str) -> list[str]:
        """Where the strip of the current tile begins, and the place in it."""
        own, start = self.tiles.get(strip.dim, (self.at[strip.dim],) * 2)
        return [
            *self._times(own, strip.pitch, strip.first),
            *self._times(self.at[strip.dim], stride, start),
        ]

    def _term(self, a: Affine, stride: int | str, base: str) -> list[str]:
        """One dimension's share of a linear index."""
        return self._times(affine_text(a, self.at), stride, base)

    @staticmethod
    def _times(inner: str, stride: int | str, base: str) -> list[str]:
        """``(inner - base)*stride``, as a list that is empty where this is 0."""
        if base and base != "0":
            if inner == base:
                return []
            # packs start at the tile: i - i_1 with i = i_1 + r is r
            if inner.startswith(base + " + "):
                inner = inner[len(base) + 3 :]
            elif inner == "0":
                inner = f"-({base})"
            else:
                inner = f"{inner} - ({base})" if not base.replace("_", "a").isalnum() else f"{inner} - {base}"
        if inner == "0" or stride == 0:
            return []
        if stride == 1:
            return [inner]
        atom = inner.replace("_", "a").isalnum()
        if atom or ("+" not in inner and "-" not in inner):
            return [f"{inner}*{stride}"]
        return [f"({inner})*{stride}"]

    def lane_stride(self, buffer: str, index: tuple[Affine, ...], dim: str) -> int | None:
        """Elements between neighbours in ``dim``; None if that is known at run time only."""
        place, total = self.place(buffer), 0
        for t, a in enumerate(index):
            c = a.coefficient(dim)
            if not c:
                continue
            stride = place.strides[t]
            if not isinstance(stride, int):
                return None
            total += c * stride
        return total

    # ------------------------------------------------------------------ threads

    def shared_loop(
        self, out: Lines, kind: str, depth: int = 1, enough: str = "", few: int = 0, trips: Sequence[str] = ()
    ) -> None:
        """The directive of ``depth`` loops that threads share, as a region of its own or in the team's.

        enough   condition under which there is more for them than one thread should do (always, if empty)
        few      otherwise there are no more iterations than that
        trips    texts of the loops' numbers of iterations

        alone    #pragma omp parallel for schedule(static) if (points > 32768)
        a team   #pragma omp for schedule(static, points > 32768 ? (trips + MDH_TEAM - 1)/MDH_TEAM : 32768)
        """
        collapse = f" collapse({depth})" if depth > 1 else ""
        if not self.team:
            guard = f" if ({enough})" if enough else ""
            out.add(f"#pragma omp parallel for{collapse} schedule({kind}){guard}")
            return
        if enough:
            some = f"({'*'.join(trips)} + MDH_TEAM - 1)/MDH_TEAM" if kind == "static" else "1"
            kind += f", {enough} ? {some} : {few}"
        out.add(f"#pragma omp for{collapse} schedule({kind})")

    # ------------------------------------------------------------------ scalar code

    def printer(self) -> Printer:
        return Printer(self._leaf, functions=self.program.functions)

    def _leaf(self, e: Expr) -> str:
        match e:
            case Var(name=name, type=t):
                if name in self.at:
                    return self._integer(self.at[name], t)
                if any(p.name == name and isinstance(p.type, ScalarType) and p.type.is_integer
                       for p in self.program.params):  # fmt: skip
                    return self._integer(name, t)
                return name
            case Operand(access=k):
                access = self.program.inp.accesses[k]
                return self.subscript(access.buffer, access.index)
            case Load(buffer=buffer, index=index):
                known = self.known_index(index)
                return self.subscript(buffer, known) if known is not None else self._gathered(buffer, index)
            case Result(component=c):
                return self.results[c]
            case _:
                raise AssertionError(e)

    def known_index(self, index: tuple[Expr, ...]) -> tuple[Affine, ...] | None:
        """Indices that are affine in dimensions and parameters, or None: they are computed from data."""
        known = self.at.keys() | {p.name for p in self.program.params}
        found = [as_affine(e) for e in index]
        affine = tuple(a for a in found if a is not None and a.names <= known)
        return affine if len(affine) == len(index) else None

    def _gathered(self, buffer: str, index: tuple[Expr, ...]) -> str:
        """A cell at computed indices."""
        place, terms = self.place(buffer), []
        for e, stride in zip(index, place.strides, strict=True):
            known = self.known_index((e,))
            if known is not None:
                terms += self._term(known[0], stride, "")
            else:
                text = f"(long){self.scalar(e, 14)}"
                terms.append(text if stride == 1 else f"{text}*{stride}")
        return f"{place.name}[{' + '.join(terms) or '0'}]"

    def _integer(self, text: str, t: Type) -> str:
        """Indices and integer parameters are ``long`` in a kernel."""
        name = c_type(t)
        if name == "long":
            return text if text.replace("_", "a").isalnum() else f"({text})"
        return f"(({name})({text}))" if not text.replace("_", "a").isalnum() else f"({name}){text}"

    def scalar(self, e: Expr, parent: int = 3) -> str:
        return self.printer().text(e, parent)

    def combined(self, f: CombineFunction, left: list[str], right: list[str]) -> list[str]:
        """Texts of ``f(left, right)``, one per component."""
        texts, printer = self._operator_printer(left, right)
        return [_wrapping(e, texts) or printer.text(e) for e in f.values]

    def condition(self, e: Expr, left: list[str], right: list[str]) -> str:
        """A condition over the operands of an operator."""
        return self._operator_printer(left, right)[1].text(e)

    def _operator_printer(self, left: list[str], right: list[str]) -> tuple[dict[str, str], Printer]:
        texts = {f"l{c}": t for c, t in enumerate(left)} | {f"r{c}": t for c, t in enumerate(right)}

        def leaf(e: Expr) -> str:
            assert isinstance(e, Var), e
            return _atom(texts[e.name])

        return texts, Printer(leaf, functions=self.program.functions)


def _wrapping(e: Expr, texts: dict[str, str]) -> str | None:
    """Signed sums and products of partial results may overflow where the whole does not: wrap."""
    if not (isinstance(e, Binary) and e.op in "+*" and e.type.kind == "int" and e.type.bits >= 32):
        return None
    if not (isinstance(e.a, Var) and isinstance(e.b, Var)):
        return None
    t = c_type(e.type)
    return f"({t})((unsigned {t}){_atom(texts[e.a.name])} {e.op} (unsigned {t}){_atom(texts[e.b.name])})"


_ATOM = re.compile(r"\w+(\[[^][]*\])*")


def _atom(text: str) -> str:
    """The text as an operand of any operator."""
    return text if _ATOM.fullmatch(text) else f"({text})"


def repeats_right(f: CombineFunction) -> bool:
    """Whether the text of the right operand's first component would stand more than once."""
    return sum(isinstance(x, Var) and x.name == "r0" for e in f.values for x in walk(e)) > 1


# --------------------------------------------------------------------------- vector code


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vector types of one nest: ``lanes`` elements each, ``suffix`` keeps their names apart."""

    dim: str
    lanes: str  # C name of the number of lanes
    suffix: str
    used: dict[str, ScalarType] = field(default_factory=dict)

    def type(self, t: Type) -> str:
        if not isinstance(t, ScalarType) or t.kind == "bool":
            raise NotVector
        self.used[t.name] = t
        return f"{t.name}_{self.suffix}"

    def unaligned(self, t: Type) -> str:
        return self.type(t) + "u"

    def mask(self, t: ScalarType) -> str:
        return self.type(mask_type(t))

    def typedefs(self) -> list[str]:
        lines = []
        for name, t in sorted(self.used.items()):
            size = f"vector_size({self.lanes} * sizeof({c_type(t)}))"
            lines.append(f"typedef {c_type(t)} {name}_{self.suffix} __attribute__(({size}, unused));")
            lines.append(
                f"typedef {c_type(t)} {name}_{self.suffix}u "
                f"__attribute__(({size}, aligned(sizeof({c_type(t)})), may_alias, unused));"
            )
        return lines


def _int_of(bits: int) -> ScalarType:
    return ScalarType(f"int{bits}", "int", bits)


def mask_type(t: ScalarType) -> ScalarType:
    return _int_of(t.bits)


def _by_way_of(a: ScalarType, b: ScalarType) -> list[ScalarType]:
    """The types that a vector of ``a`` becomes one after the other, ``b`` last.

    gcc 12 converts lane by lane where sizes differ by more than a factor of two, or where integers of 8 or
    16 bits become floating-point numbers (20 to 60 instructions instead of 2 to 5).  Values are those of the
    direct conversion, as every step but the last keeps them, or cuts off bits that the last would.
    """
    if (a.is_float and b.is_float) or (a.is_float and b.bits >= 32) or (b.is_float and a.bits >= 32):
        return [b]
    steps = [INT32] if a.is_float else []
    now, end = 32 if a.is_float else a.bits, 32 if b.is_float else b.bits
    while now != end:
        now = 2 * now if now < end else now // 2
        if now != end or b.is_float:
            steps.append(_int_of(now))
    return [*steps, b]


class VectorPrinter:
    """Vector text of expressions whose lanes run along one dimension.

    A subexpression that is the same in all lanes stays scalar (the compiler broadcasts); ``vector``
    returns text of vector type.  Raises ``NotVector`` where lanes cannot be computed together or
    where that would evaluate what C would not (a guarded load, an integer division).
    """

    def __init__(
        self,
        context: Context,
        vectors: Vectors,
        results: dict[int, str] | None = None,
        variables: dict[str, str] | None = None,
        operands: dict[int, str] | None = None,
    ) -> None:
        self.operands = operands or {}  # vectors that are loaded already, by the number of their access
        self.context = context
        self.vectors = vectors
        self.results = results or {}
        self.variables = dict(variables or {})  # vector-valued variables (l0, r0, ...)
        self.named: dict[Expr, str] = {}  # expressions that have been computed as vectors

    def varies(self, e: Expr) -> bool:
        """Whether lanes may hold different values of ``e``."""
        dim = self.vectors.dim
        for n in walk(e):
            if n in self.named:
                return True
            match n:
                case Var(name=name) if name == dim or name in self.variables:
                    return True
                case Operand(access=k) if k in self.operands:
                    return True
                case Operand(access=k):
                    access = self.context.program.inp.accesses[k]
                    if any(a.coefficient(dim) for a in access.index):
                        return True
                case Result(component=c) if c in self.results:
                    return True
                case _:
                    pass
        return False

    def vector(self, e: Expr) -> str:
        if self.varies(e):
            return self._vector(e)
        t = self.vectors.type(e.type)
        text = self.scalar(e)
        zero = f"({t}){{0}}"
        return f"({text} - {zero})"  # x - 0 keeps -0.0, x + 0 does not

    def scalar(self, e: Expr) -> str:
        """Text of what all lanes share; of a narrow type, as C's arithmetic has int, which is not put in."""
        text = self.context.scalar(e, 14)
        t = e.type
        narrow = isinstance(t, ScalarType) and t.is_integer and t.bits < 32
        return f"({c_type(t)}){_atom(text)}" if narrow else text

    def operand(self, e: Expr) -> str:
        """Vector text, or scalar text where all lanes agree."""
        return self._vector(e) if self.varies(e) else self.scalar(e)

    def _load(self, e: Expr, buffer: str, index: tuple[Affine, ...]) -> str:
        stride = self.context.lane_stride(buffer, index, self.vectors.dim)
        if stride == -1:
            return self._lane_by_lane(e)  # compilers turn a vector around
        if stride != 1:
            raise NotVector
        return f"*(const {self.vectors.unaligned(e.type)} *)&{self.context.subscript(buffer, index)}"

    def _lane_by_lane(self, e: Expr) -> str:
        """An expression that is computed for each lane on its own."""
        if any(isinstance(n, Var) and n.name in self.variables for n in walk(e)):
            raise NotVector
        context, dim = self.context, self.vectors.dim
        lane, lanes = context.names.new("lane"), context.names.new("v")
        saved = context.at[dim]
        context.at[dim] = lane if saved == "0" else f"{saved} + {lane}"
        text = context.scalar(e)
        context.at[dim] = saved
        t = self.vectors.type(e.type)
        loop = f"for (long {lane} = 0; {lane} < {self.vectors.lanes}; {lane}++)"
        return f"({{ {t} {lanes} = {{0}}; {loop} {lanes}[{lane}] = {text}; {lanes}; }})"

    def _vector(self, e: Expr) -> str:
        if e in self.named:
            return self.named[e]
        match e:
            case Var(name=name) if name in self.variables:
                return self.variables[name]
            case Var(name=name) if name == self.vectors.dim:
                return self._lane_by_lane(e)
            case Result(component=c) if c in self.results:
                return self.results[c]
            case Operand(access=k) if k in self.operands:
                return self.operands[k]
            case Operand(access=k, type=t):
                access = self.context.program.inp.accesses[k]
                if access.conditional:
                    raise NotVector
                return self._load(e, access.buffer, access.index)
            case Load(buffer=buffer, index=index, type=t):
                known = self.context.known_index(index)
                return self._lane_by_lane(e) if known is None else self._load(e, buffer, known)
            case Binary() | Unary() if is_truth(e):  # -1 and 0 in all lanes are 1 and 0 in C
                return self._vector(Cast(e, INT32))
            case Unary(op="-" | "~" as op, a=a):
                return f"({op}{self._vector(a)})"
            case Binary(op=op, a=a, b=b, type=t) if op not in COMPARISONS | LOGICAL:
                if op in "/%" and t.is_integer and not steady_divisor(e):
                    raise NotVector
                self.vectors.type(t)
                return f"({self.operand(a)} {op} {self.operand(b)})"
            case Cast(a=a, type=t):
                assert isinstance(a.type, ScalarType)
                if is_truth(a):
                    mask, bits = self.mask(a)
                    return self.converted(f"(({mask}) & 1)", _int_of(bits), t)
                if a.type.kind == "bool":
                    raise NotVector
                return self.converted(self._vector(a), a.type, t)
            case Select(cond=cond, then=then, other=other, type=t):
                return self._select(cond, then, other, t)
            case _:
                raise NotVector

    def _select(self, cond: Expr, then: Expr, other: Expr, t: Type) -> str:
        if not isinstance(t, ScalarType) or any(
            self._may_fail(n) for arm in (then, other) for n in walk(arm)
        ):
            raise NotVector
        mask_type = self.vectors.mask(t)
        m = self.context.names.new("m")
        if not self.varies(cond):
            raise NotVector
        mask = self.as_wide(self.mask(cond), t.bits)
        x, y = self.vector(then), self.vector(other)
        return (
            f"({{ const {mask_type} {m} = {mask}; ({self.vectors.type(t)})"
            f"(({m} & ({mask_type}){x}) | (~{m} & ({mask_type}){y})); }})"
        )

    def _may_fail(self, n: Expr) -> bool:
        """Whether a node must not be computed where C would not."""
        return (
            isinstance(n, Call)
            or (isinstance(n, Load) and self.context.known_index(n.index) is None)
            or (isinstance(n, Binary) and n.op in "/%" and n.type.is_integer and not steady_divisor(n))
        )

    def as_wide(self, mask: tuple[str, int], bits: int) -> str:
        """A mask for values of another width."""
        text, width = mask
        if width == bits:
            return text
        return self.converted(text, _int_of(width), _int_of(bits))

    def converted(self, text: str, a: ScalarType, b: ScalarType) -> str:
        """A vector of ``a`` as one of ``b``."""
        for t in _by_way_of(a, b):
            text = f"__builtin_convertvector({text}, {self.vectors.type(t)})"
        return text

    def mask(self, e: Expr) -> tuple[str, int]:
        """A comparison in all lanes: -1 or 0 in integers as wide as what is compared."""
        match e:
            case Binary(op=op, a=a, b=b) if op in COMPARISONS:
                assert isinstance(a.type, ScalarType)
                text = f"({self.vector(a)} {op} {self.vector(b)})"
                return f"({self.vectors.mask(a.type)}){text}", a.type.bits
            case Binary(op="&&" | "||" as op, a=a, b=b):
                if any(self._may_fail(n) for n in walk(b)):
                    raise NotVector  # C would not look at it in every lane
                one, other = self.mask(a), self.mask(b)
                w = max(one[1], other[1])
                return f"(({self.as_wide(one, w)}) {op[0]} ({self.as_wide(other, w)}))", w
            case Unary(op="!", a=a):
                x, w = self.mask(a)
                return f"(~({x}))", w
            case Cast(a=Binary(op=op) as a) if op in COMPARISONS | LOGICAL:
                return self.mask(a)
            case _ if isinstance(e.type, ScalarType) and e.type.kind != "bool":
                return self.mask(Binary("!=", e, Const(0.0 if e.type.is_float else 0, e.type), INT32))
            case _:
                raise NotVector
