"""Expressions as vectors of C's vector extension: types, masks, conversions.

    in     an expression, the dimension along which lanes lie, a ``Context`` (where buffers and indices are)
    out    text of vector type, or ``NotVector`` where lanes cannot be computed together

Shown right by tests/test_narrow.py (all pairs of bytes), tests/test_emit.py and tests/test_register_tiles.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from emit.c_text import c_type, rounded, unsigned
from emit.kernel_text import Context, atom
from emit.math_text import lanes_call
from lowering.across import IN_VECTORS
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
    Field,
    Load,
    Operand,
    Result,
    ScalarType,
    Select,
    Type,
    Unary,
    Var,
    walk,
)
from mdh_core.lanes import has_lanes, is_truth, lane_step, reads_lane_by_lane, steady_divisor


class NotVector(Exception):  # noqa: N818 - an answer, not an error
    """The expression has no vector form here."""


def may_overflow(op: str, t: Type) -> bool:
    """Whether an operation on lanes of a type leaves it for some operands; C does not define it then."""
    return isinstance(t, ScalarType) and t.kind == "int" and op in ("+", "-", "*")


def vector_store(vector: str, place: str, value: str, mask: str | None) -> str:
    """The statement that stores a vector; past the caches where an address has none of the mask's bits."""
    return f"MDH_STORE({vector}, {mask}, {place}, {value});" if mask else f"*({vector} *)&{place} = {value};"


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

    def unsigned(self, t: ScalarType) -> str:
        return self.type(unsigned(t))

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


_INTEGER_WORDS = {"const", "volatile", "signed", "unsigned", "char", "short", "int", "long", "_Bool", "bool"}
_INTEGER_NAME = re.compile(r"u?int\d+_t|size_t|ssize_t|ptrdiff_t|u?intptr_t")


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
        fields: Mapping[tuple[int, str], str] | None = None,
        wraps: bool = False,
    ) -> None:
        self.fields = fields or {}  # of records, by the number of their access and the name: vectors
        self.operands = operands or {}  # vectors that are loaded already, by the number of their access
        self.context = context
        self.vectors = vectors
        self.results = results or {}
        self.variables = dict(variables or {})  # vector-valued variables (l0, r0, ...)
        self.wraps = wraps  # whether what is computed now may be more than the original computes
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
        """Text of what all lanes share, in a type that compilers take beside a vector.

        Arithmetic on narrow types has int in C, and an enumeration is none of the types of lanes.
        """
        text = self.context.scalar(e, 14, self.wraps)
        t = e.type
        narrow = isinstance(t, ScalarType) and t.is_integer and t.bits < 32
        return f"({c_type(t)}){atom(text)}" if narrow or self._has_own_type(e) else text

    def _has_own_type(self, e: Expr) -> bool:
        """Whether an integer is read from an array whose elements may be of an enumeration."""
        match e:
            case Field():
                return e.type.is_integer
            case Load(buffer=buffer):
                pass
            case Operand(access=k):
                buffer = self.context.program.inp.accesses[k].buffer
            case _:
                return False
        b = self.context.program.buffer(buffer)
        if not isinstance(b.type, ScalarType) or not b.type.is_integer:
            return False
        words = b.c_type.replace("*", " ").split()
        return any(w not in _INTEGER_WORDS and not _INTEGER_NAME.fullmatch(w) for w in words)

    def operand(self, e: Expr) -> str:
        """Vector text, or scalar text where all lanes agree."""
        if self.varies(e):
            return self._vector(e)
        text = self.scalar(e)
        return f"({text})" if text.startswith("!") else text  # compilers take ``x | !y`` for a mistake

    def _load(self, e: Expr, buffer: str, index: tuple[Affine, ...]) -> str:
        stride = self.context.lane_stride(buffer, index, self.vectors.dim)
        if stride == -1:
            return self._turned(e, buffer, index)
        if stride is not None and stride not in IN_VECTORS and reads_lane_by_lane(self.context.program):
            return self._lane_by_lane(e)
        if stride != 1:
            raise NotVector
        return f"*(const {self.vectors.unaligned(e.type)} *)&{self.context.subscript(buffer, index)}"

    def _turned(self, e: Expr, buffer: str, index: tuple[Affine, ...]) -> str:
        """A vector whose lanes lie in memory the other way round.

        Compilers make a load and a permutation of it; of elements that are read one by one gcc 12 does so in
        some loops only, and fills lanes one at a time in others (1.4 times the time of such a map).
        """
        place = self.last_place(buffer, index)
        return self.reversed(e.type, f"*(const {self.vectors.unaligned(e.type)} *)&{place}")

    def last_place(self, buffer: str, index: tuple[Affine, ...]) -> str:
        """Where the last lane's element is: the first in memory of a vector that lies there in reverse."""
        return self._at_lane(f"({self.vectors.lanes} - 1)", lambda: self.context.subscript(buffer, index))

    def reversed(self, t: Type, vector: str) -> str:
        """A vector with the lanes of another in reverse."""
        lanes, w = self.vectors.lanes, self.context.names.new("w")
        whole = f"const {self.vectors.type(t)} {w} = {vector}; "
        return self._each_lane(t, lambda lane: f"{w}[{lanes} - 1 - {lane}]", before=whole)

    def _lane_by_lane(self, e: Expr) -> str:
        """An expression that is computed for each lane on its own."""
        if any(isinstance(n, Var) and n.name in self.variables for n in walk(e)):
            raise NotVector
        wraps = self.wraps
        return self._each_lane(
            e.type, lambda lane: self._at_lane(lane, lambda: self.context.scalar(e, wraps=wraps))
        )

    def _each_lane(self, t: Type, value: Callable[[str], str], before: str = "") -> str:
        """A vector with ``value`` of each lane's number; ``before``: statements in front of it."""
        lane, v, lanes = self.context.names.new("lane"), self.context.names.new("v"), self.vectors.lanes
        loop = f"for (long {lane} = 0; {lane} < {lanes}; {lane}++)"
        declared = f"MDH_FILL({self.vectors.type(t)}, {c_type(t)}, {v}, {lanes});"
        filled = f"MDH_FILLED({self.vectors.unaligned(t)}, {v})"
        return f"({{ {before}{declared} {loop} {v}[{lane}] = {value(lane)}; {filled}; }})"

    def _at_lane(self, lane: str, written: Callable[[], str]) -> str:
        """What is written at one lane of a vector."""
        at, dim = self.context.at, self.vectors.dim
        saved = at[dim]
        at[dim] = lane if saved == "0" else f"{saved} + {lane}"
        text = written()
        at[dim] = saved
        return text

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
            case Field(a=Operand(access=k), name=name) if (k, name) in self.fields:
                return self.fields[k, name]
            case Operand(access=k, type=t):
                access = self.context.program.inp.accesses[k]
                if access.conditional:
                    raise NotVector
                return self._load(e, access.buffer, access.index)
            case Load(buffer=buffer, index=index, type=t):
                known = self.context.known_index(index)
                if known is None and lane_step(e, self.vectors.dim, self.varies) == 1:
                    return f"*(const {self.vectors.unaligned(t)} *)&{self.context.scalar(e)}"
                return self._lane_by_lane(e) if known is None else self._load(e, buffer, known)
            case Binary() | Unary() if is_truth(e):  # -1 and 0 in all lanes are 1 and 0 in C
                return self._vector(Cast(e, INT32))
            case Unary(op="-" | "~" as op, a=a, type=t):
                if self.wraps and may_overflow(op, t):
                    return f"(({self.vectors.type(t)})-({self.vectors.unsigned(t)}){self._vector(a)})"
                return f"({op}{self._vector(a)})"
            case Binary(op=op, a=a, b=b, type=t) if op not in COMPARISONS | LOGICAL:
                if op in "/%" and t.is_integer and not steady_divisor(e):
                    raise NotVector
                self.vectors.type(t)
                if op in ("<<", ">>") and b.type != t:  # C converts neither operand to the other's type
                    b = Cast(b, t)
                if self.wraps and may_overflow(op, t):
                    one, other = self._unsigned(a, t), self._unsigned(b, t)
                    return f"(({self.vectors.type(t)})({one} {op} {other}))"
                text = f"{self.operand(a)} {op} {self.operand(b)}"
                if self.context.rounds and op == "*" and t.is_float:
                    return rounded(self.vectors.type(t), text)
                return f"({text})"
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
            case Call(args=args, type=t) if has_lanes(e, self.context.program):
                assert isinstance(t, ScalarType)
                return lanes_call(e, self.vectors.type(t), self.vectors.mask(t), list(map(self.vector, args)))
            case _:
                raise NotVector

    @contextmanager
    def everywhere(self, more: bool = True) -> Iterator[None]:
        """What is printed inside is computed for all lanes, the original does so for some (``more``: if so).

        Signed integers are computed as unsigned ones then, for which no result is undefined.
        """
        before, self.wraps = self.wraps, self.wraps or more
        try:
            yield
        finally:
            self.wraps = before

    def _unsigned(self, e: Expr, t: ScalarType) -> str:
        """An operand of type ``t``, as a vector or what all lanes share, without its sign."""
        u = self.vectors.unsigned(t) if self.varies(e) else c_type(unsigned(t))
        return f"({u}){self.operand(e)}"

    def _select(self, cond: Expr, then: Expr, other: Expr, t: Type) -> str:
        if not isinstance(t, ScalarType) or any(
            self._may_fail(n) for arm in (then, other) for n in walk(arm)
        ):
            raise NotVector
        mask_type = self.vectors.mask(t)
        m = self.context.names.new("m")
        if self.varies(cond):
            mask = self.as_wide(self.mask(cond), t.bits)
        else:  # one condition for all lanes; gcc 12 fails on ``condition ? vector : vector``
            one = f"({c_type(_int_of(t.bits))})-({self.context.scalar(cond, 14)} != 0)"
            mask = f"{one} - ({mask_type}){{0}}"
        with self.everywhere():
            x, y = self.vector(then), self.vector(other)
        return (
            f"({{ const {mask_type} {m} = {mask}; ({self.vectors.type(t)})"
            f"(({m} & ({mask_type}){x}) | (~{m} & ({mask_type}){y})); }})"
        )

    def _may_fail(self, n: Expr) -> bool:
        """Whether a node must not be computed where C would not."""
        return (
            (isinstance(n, Call) and not has_lanes(n, self.context.program))
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
                one = self.mask(a)
                with self.everywhere():
                    other = self.mask(b)
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
