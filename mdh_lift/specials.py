"""Which special values a nest may be compared on: where C and the freedom to reorder determine its result.

NaN, infinities, zeros of both signs, denormal numbers
    A nest whose programs only concatenate computes each result by one fixed expression, so all of them, up to
    NaN's payload and to roundings.  Where floating-point values are combined in any order:

    * sums and products have a NaN or an infinity in every order or in none, as long as finite values are
      exact (small integers, no denormal numbers: their products would underflow in some orders only);
    * minima and maxima of values that are read, not computed, are determined but for NaN (``a < b`` is
      false, whichever is NaN) and for the sign of zeros; so are their positions; ``fmin`` and ``fmax`` pass
      over NaN in every order;
    * laws that a directive promises say nothing about special values.

    Values that become integers or decide about a loop must be neither NaN nor infinite.
The largest and smallest integers
    where no signed operation on any values can overflow, and nothing is shifted or divided by data.
Data that are denormal throughout
    Their sums are exact.  They show code that takes denormal numbers for zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, NestStmt
from lifter.trees import loops_in, tree_exprs
from mdh_core.combine import CombineFunction
from mdh_core.expr import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Field,
    If,
    Load,
    RecordType,
    ScalarType,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
    children,
    stmt_exprs,
    walk,
)
from mdh_lift import subject as subjects
from tuning.verify import Specials

Range = tuple[int, int]
_NAN, _INFINITY, _ZEROS, _DENORMAL, _EXTREME = (
    "NaN",
    "infinities",
    "zeros of both signs",
    "denormal numbers",
    "extreme integers",
)
_ANY_ZERO = {f + t for f in ("fmin", "fmax") for t in ("", "f")}  # which zero they yield is open
_FAST = ("-Ofast", "-ffast-math", "-ffinite-math-only", "-funsafe-math-optimizations")
_NO_ZERO_SIGNS = ("-fno-signed-zeros",)


def specials_of(lifted: LiftedNest, flags: Sequence[str] = ()) -> Specials:
    """What the nest's result is determined for under the user's flags."""
    expressions = list(_expressions(lifted))
    values = _floats(lifted, expressions, flags)
    combined = _combined(lifted)
    denormal, zero_signs = False, False
    reasons: list[str] = []
    if any(_has(b.type, "float") for b in lifted.nest.buffers):
        denormal = not _is_fast(flags) and _may_be_denormal(lifted, combined)
        open_zeros = any(_is_choice(n) for e in expressions for n in walk(e))
        counts = not open_zeros and not set(_NO_ZERO_SIGNS) & set(flags)
        zero_signs = bool(values) and not combined and counts
        left_out = [v for v in (_NAN, _INFINITY) if v not in values]
        if left_out:
            reasons.append(f"no {' and no '.join(left_out)}: {_why(lifted, flags, expressions)}")
    read = subjects.read_buffers(lifted.nest)
    integers = any(_has(b.type, k) for b in lifted.nest.buffers if b.name in read for k in ("int", "uint"))
    if integers and not _loops_on_data(lifted.nest.body) and not _may_overflow(lifted, expressions):
        values = (*values, _EXTREME)
    elif integers:
        reasons.append(f"no {_EXTREME}: signed arithmetic on them could overflow, which C leaves open")
    return Specials(values, denormal, zero_signs, bool(combined), tuple(reasons))


def _is_fast(flags: Sequence[str]) -> bool:
    return bool(set(_FAST) & set(flags))


def _why(lifted: LiftedNest, flags: Sequence[str], expressions: Sequence[Expr]) -> str:
    if _is_fast(flags):
        return "the compile command lets the compiler ignore them"
    if _loops_on_data(lifted.nest.body):
        return "the number of iterations depends on data"
    if any(map(_becomes_integer, expressions)):
        return "floating-point values become integers"
    return "the result would depend on the order in which values are combined"


def _floats(
    lifted: LiftedNest, expressions: Sequence[Expr], flags: Sequence[str]
) -> tuple[str, ...]:
    if _is_fast(flags) or not any(_has(b.type, "float") for b in lifted.nest.buffers):
        return ()
    combined = _combined(lifted)
    if any(f.promised for f in combined):
        return ()
    if _loops_on_data(lifted.nest.body):
        return ()
    not_finite = not any(map(_becomes_integer, expressions))
    if not combined:
        return (_NAN, _INFINITY, _ZEROS, _DENORMAL) if not_finite else (_ZEROS, _DENORMAL)
    if subjects.data_style(lifted) == "dominant":
        return ()
    names = {name for f in combined for name in _names(f)}
    if not_finite and names <= {"+", "*"}:
        return (_NAN, _INFINITY, _ZEROS)
    computed = any(map(_computes_floats, expressions))
    if not_finite and names <= {"fmin", "fmax"} and not computed:
        return (_NAN, _INFINITY, _ZEROS, _DENORMAL)
    if not_finite and not names & {"+", "*"} and not computed:
        return (_INFINITY, _ZEROS, _DENORMAL)
    return (_ZEROS,)


def _may_be_denormal(lifted: LiftedNest, combined: Sequence[CombineFunction]) -> bool:
    if _loops_on_data(lifted.nest.body) or any(f.promised or not f.commutative for f in combined):
        return False  # products of denormal numbers, in any order, keep no digit
    return not combined or subjects.data_style(lifted) == "sum"


def _combined(lifted: LiftedNest) -> list[CombineFunction]:
    """What combines floating-point values in an order of its own."""
    found = [op.function for p in lifted.programs for op in p.hom.combine if op.function is not None]
    return [f for f in found if f.promised or any(_has(t, "float") for t in f.types)]


def _names(f: CombineFunction) -> list[str]:
    return f.name.removeprefix("(").removesuffix(")").split(", ")


def _has(t: Type, kind: str) -> bool:
    if isinstance(t, RecordType):
        return any(u.kind == kind for _, u in t.fields)
    return t.kind == kind


# --------------------------------------------------------------------------- expressions


def _expressions(lifted: LiftedNest) -> Iterator[Expr]:
    """All of the nest and of the functions that it calls, bounds of loops included."""
    yield from tree_exprs(lifted.nest.body)
    for f in lifted.nest.functions:
        yield from stmt_exprs(f.body)


def _loops_on_data(body: Sequence[NestStmt | Stmt]) -> bool:
    """Does a loop run as long as floating-point values, or data in general, say?"""
    for s in body:
        match s:
            case While():
                return True
            case Loop(body=inner):
                if _loops_on_data(inner):
                    return True
            case If(then=then, other=other):
                if _loops_on_data((*then, *other)):
                    return True
            case _:
                pass
    return False


def _is_float(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.is_float


def _becomes_integer(e: Expr) -> bool:
    for n in walk(e):
        match n:
            case Cast(a=a, type=t) if t.kind in ("int", "uint") and _is_float(a.type):
                return True
            case Call(args=args, type=t) if not _is_float(t) and any(_is_float(a.type) for a in args):
                return True
            case _:
                pass
    return False


def _computes_floats(e: Expr) -> bool:
    """Anything but choosing, comparing and copying."""
    return any(
        isinstance(n, Binary | Unary | Call) and _is_float(n.type) and not _is_choice(n) for n in walk(e)
    )


def _is_choice(n: Expr) -> bool:
    return isinstance(n, Call) and n.function in _ANY_ZERO


# --------------------------------------------------------------------------- signed overflow


class _OverflowError(Exception):
    """Some values make an operation undefined."""


def _may_overflow(lifted: LiftedNest, expressions: Sequence[Expr]) -> bool:
    """Whether signed arithmetic on data has no meaning in C for some values of the types."""
    known = {p.name for p in lifted.nest.params} | {x.iterator for x in loops_in(lifted.nest.body)}
    functions = {f.name for f in lifted.nest.functions}
    if any(op.function is not None and op.function.promised for p in lifted.programs for op in p.hom.combine):
        return True
    try:
        for e in expressions:
            _range(e, known, functions)
    except _OverflowError:
        return True
    return False


def _limits(t: ScalarType) -> Range:
    if t.kind == "bool":
        return 0, 1
    return (-(1 << (t.bits - 1)), (1 << (t.bits - 1)) - 1) if t.kind == "int" else (0, (1 << t.bits) - 1)


def _of_data(e: Expr, known: set[str]) -> bool:
    return any(
        isinstance(n, Load | Call | Field) or (isinstance(n, Var) and n.name not in known) for n in walk(e)
    )


def _range(e: Expr, known: set[str], functions: set[str]) -> Range | None:
    """Values of an integer expression over all data; None for other types and where no data are involved."""
    parts = [_range(child, known, functions) for child in children(e)]
    if not isinstance(e.type, ScalarType) or e.type.is_float:
        return None
    limits = _limits(e.type)
    match e:
        case Const(value=int(value)):
            return value, value
        case Call(function=name, args=args):
            if name not in functions and any(_has(a.type, "int") for a in args):
                raise _OverflowError
            return limits
        case Cast() if parts[0] is not None:
            return parts[0] if limits[0] <= parts[0][0] and parts[0][1] <= limits[1] else limits
        case Select() if parts[1] is not None and parts[2] is not None:
            return min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
        case Unary(op="-") if parts[0] is not None and _of_data(e, known):
            return _inside((-parts[0][1], -parts[0][0]), e.type)
        case Binary(op=op) if op in ("+", "-", "*", "/", "%", "<<", ">>") and _of_data(e, known):
            x, y = (_limits_of(child) if p is None else p for child, p in zip((e.a, e.b), parts, strict=True))
            return _inside(_result(op, x, y, e.type), e.type)
        case _:
            return limits


def _limits_of(e: Expr) -> Range:
    if not isinstance(e.type, ScalarType) or e.type.is_float:
        raise _OverflowError
    return _limits(e.type)


def _result(op: str, x: Range, y: Range, t: ScalarType) -> Range:
    if op in ("/", "%"):
        if y[0] <= 0 <= y[1] or y[0] <= -1 <= y[1]:
            raise _OverflowError
        return x if op == "/" else (-max(map(abs, y)), max(map(abs, y)))
    if op in ("<<", ">>"):
        if y[0] < 0 or y[1] >= t.bits or (op == "<<" and t.kind == "int" and x[0] < 0):
            raise _OverflowError
        ends = [a << b if op == "<<" else a >> b for a in x for b in y]
    else:
        ends = [a + b if op == "+" else a - b if op == "-" else a * b for a in x for b in y]
    return min(ends), max(ends)


def _inside(r: Range, t: ScalarType) -> Range:
    """Unsigned results wrap; signed ones must fit."""
    low, high = _limits(t)
    if low <= r[0] and r[1] <= high:
        return r
    if t.kind == "int":
        raise _OverflowError
    return low, high
