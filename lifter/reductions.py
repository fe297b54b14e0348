"""Reduction recognition: which function an update combines with, and why not.

before   s = x > s ? x : s        the value of ``s`` after one iteration, over its value before, ``A``
after    Update(max, element=x)   s becomes  A max x

Every spelling is brought to ``A ⊕ element`` where the element does not mention ``A``; the functions are
rows of ``mdh_core.combine``.  A guarded update combines with the neutral element where the guard does
not hold.  ``s = factor*s + term`` composes linear maps: a ``LinearUpdate``, whose order matters.  Arg-min and
arg-max update several variables under one comparison (``infer_arg``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from mdh_core.combine import (
    CombineFunction,
    arg_operator,
    left,
    linear_operator,
    neutral,
    right,
    scalar_operator,
    user_operator,
)
from mdh_core.expr import (
    INT32,
    INT64,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Function,
    If,
    MakeRecord,
    RecordType,
    Return,
    ScalarType,
    Select,
    Type,
    Unary,
    Var,
    preserves,
    substitute,
    walk,
)
from mdh_core.guarded import conjuncts


@dataclass(frozen=True, slots=True)
class Rules:
    """What the nest allows: ``exact`` forbids every regrouping of floating-point operations."""

    exact: bool = False
    functions: Mapping[str, Function] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Update:
    function: CombineFunction
    element: Expr


@dataclass(frozen=True, slots=True)
class LinearUpdate:
    """``A = factor*A + term``, both of the type of ``A``: the right operand of ``linear_operator``."""

    factor: Expr
    term: Expr

    @property
    def function(self) -> CombineFunction:
        assert isinstance(self.term.type, ScalarType)
        return linear_operator(self.term.type)


@dataclass(frozen=True, slots=True)
class SetOnce:
    """``if (cond) A = constant``: whether any iteration fulfils ``cond`` decides."""

    cond: Expr
    constant: Const


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The reason in the user's terms, and what would help."""

    reason: str
    help: str = ""


# --------------------------------------------------------------------------- small tools


def mentions(e: Expr, part: Expr) -> bool:
    return any(n == part for n in walk(e))


def strip(e: Expr) -> Expr:
    """The expression without outer conversions that keep every value."""
    while isinstance(e, Cast) and preserves(e.a.type, e.type):
        e = e.a
    return e


def cast(e: Expr, t: Type) -> Expr:
    """``e`` converted to ``t``; conversions there and back disappear."""
    if isinstance(e, Cast) and e.a.type == t and preserves(t, e.type):
        return e.a
    if e.type == t or not isinstance(t, ScalarType):
        return e
    inner = strip(e)
    if inner.type == t:
        return inner
    if isinstance(e, Select):
        return Select(e.cond, cast(e.then, t), cast(e.other, t), t)
    return Cast(inner if preserves(inner.type, t) else e, t)


def truth(e: Expr) -> Expr:
    """``e != 0`` as a value 0 or 1 of type ``INT32``."""
    e = strip(e)
    if isinstance(e, Binary) and (e.op in ("&&", "||") or e.op in _SWAPPED):
        return e
    if isinstance(e, Unary) and e.op == "!":
        return e
    return Binary("!=", e, number(0, e.type), INT32)


def number(value: int, t: Type) -> Const:
    assert isinstance(t, ScalarType)
    return Const(float(value) if t.is_float else value, t)


def as_condition(e: Expr) -> Expr:
    """``touched`` without the constants that merging branches leaves in it."""
    match e:
        case Select(cond=cond, then=Const(value=then), other=Const(value=other)) if then and not other:
            return cond
        case Select(cond=cond, then=then, other=Const(value=other)) if not other:
            return Binary("&&", cond, as_condition(then), INT32)
        case _:
            return e


def conjunction(parts: list[Expr]) -> Expr:
    out = parts[0]
    for p in parts[1:]:
        out = Binary("&&", out, p, INT32)
    return out


_SWAPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def negate(cond: Expr) -> Expr:
    """The opposite condition; a comparison of floating-point values keeps its ``!`` (NaN)."""
    if isinstance(cond, Unary) and cond.op == "!":
        return truth(cond.a)
    if isinstance(cond, Binary) and cond.op in _NEGATED and not _is_float(cond.a.type):
        return Binary(_NEGATED[cond.op], cond.a, cond.b, INT32)
    return Unary("!", cond, INT32)


def _is_float(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.is_float


# --------------------------------------------------------------------------- one variable

Found = Update | LinearUpdate | SetOnce | WhyNot


def infer(value: Expr, a: Expr, rules: Rules) -> Found:
    """``value`` as ``a ⊕ element``; the element has the type of ``a``."""
    t = a.type
    if isinstance(value, Cast) and isinstance(value.a, Select):
        value = cast(value.a, t)
    match value:
        case Select(cond=cond, then=then, other=other):
            if mentions(cond, a):
                return _extremum(value, a, rules)
            return _guarded(cond, then, other, a, rules)
        case Call():
            return _call(value, a, rules)
        case MakeRecord():
            return WhyNot("its fields are not updated one by one by known operators")
    if isinstance(t, RecordType):
        return WhyNot("no combine function is applied to it")
    if value.type != t:
        return WhyNot("the types of the variable and its new value differ")
    core: Expr = value
    while isinstance(core, Cast) and isinstance(core.a.type, ScalarType):
        core = core.a
    if isinstance(core, Binary) and core.op in ("&&", "||"):
        return _logical(core, a)
    if isinstance(core, Call):
        return _call(core, a, rules)
    return _arithmetic(value, a, rules)


def _guarded(cond: Expr, then: Expr, other: Expr, a: Expr, rules: Rules) -> Found:
    if other == a:
        return _masked(cond, infer(then, a, rules) if mentions(then, a) else None, then, rules)
    if then == a:
        return _masked(negate(cond), infer(other, a, rules) if mentions(other, a) else None, other, rules)
    if not (mentions(then, a) and mentions(other, a)):
        return WhyNot("it is overwritten in some iterations and updated in others")
    x, y = infer(then, a, rules), infer(other, a, rules)
    if isinstance(x, WhyNot):
        return x
    if isinstance(y, WhyNot):
        return y
    if isinstance(x, Update) and isinstance(y, Update) and x.function == y.function:
        return Update(x.function, Select(cond, x.element, y.element, a.type))
    return WhyNot("the branches of a condition update it by different operators")


def _masked(cond: Expr, update: Found | None, value: Expr, rules: Rules) -> Found:
    if update is None:
        if isinstance(strip(value), Const) and isinstance(value.type, ScalarType):
            return SetOnce(cond, Const(_constant(value), value.type))
        return WhyNot(
            "it keeps the value of the last iteration that fulfils a condition",
            "where it only grows, as positions do, and is less before: write `if (… && e > x) x = e;`",
        )
    if isinstance(update, SetOnce):
        return SetOnce(Binary("&&", truth(cond), truth(update.cond), INT32), update.constant)
    if isinstance(update, WhyNot):
        return update
    nothing = neutral(update.function)
    if nothing is None or isinstance(update, LinearUpdate):
        return WhyNot(
            f"`{update.function.name}` has no known neutral element for the iterations where a condition "
            "does not hold",
            "move the condition into the value that is combined",
        )
    return Update(update.function, Select(cond, update.element, nothing, update.element.type))


def _constant(e: Expr) -> int | float:
    inner = strip(e)
    assert isinstance(inner, Const) and isinstance(e.type, ScalarType)
    return float(inner.value) if e.type.is_float else inner.value


def _extremum(value: Select, a: Expr, rules: Rules) -> Found:
    """min and max: ``x > a ? x : a`` in all orientations, with further conditions beside it."""
    t = a.type
    parts = conjuncts(value.cond)
    mine = [p for p in parts if mentions(p, a)]
    rest = [p for p in parts if not mentions(p, a)]
    unknown = WhyNot(
        "a condition compares it in a way that is neither a minimum nor a maximum",
        "write `if (x < m) m = x;` or `m = x < m ? x : m;`",
    )
    if len(mine) != 1 or not isinstance(t, ScalarType):
        return unknown
    if rest:
        if value.other != a:
            return unknown
        inner = _extremum(Select(mine[0], value.then, a, t), a, rules)
        return _masked(conjunction(rest), inner, value.then, rules)
    comparison, negated = mine[0], False
    while isinstance(comparison, Unary) and comparison.op == "!":
        comparison, negated = comparison.a, not negated
    if not isinstance(comparison, Binary) or comparison.op not in ("<", "<=", ">", ">="):
        return unknown
    then, other = (value.other, value.then) if negated else (value.then, value.other)
    op, x, y = comparison.op, comparison.a, comparison.b
    if strip(x) == a:
        op, x, y = _SWAPPED[op], y, x
    if strip(y) != a or mentions(x, a):
        return unknown
    if strip(other) == a:
        taken, direct = then, True
    elif strip(then) == a:
        taken, direct, op = other, False, _NEGATED[op]
    else:
        return unknown
    if not _same_value(taken, x, t):
        return unknown
    element = cast(taken, t)
    if not preserves(strip(x).type, t) and not (_is_float(t) and strip(x).type != t):
        return WhyNot(f"the compared value does not fit the type `{t}` of the variable")
    if rules.exact and _is_float(strip(x).type) and not preserves(strip(x).type, t):
        return WhyNot(
            "the compared value is rounded when it is stored", "use one type for both, or `fp(fast)`"
        )
    name = "min" if op in ("<", "<=") else "max"
    table = scalar_operator(name, t)
    assert table is not None
    if not t.is_float or (direct and op in ("<", ">")):
        return Update(table, element)
    # another result for NaN or for zeros of different sign: keep the comparison as it is written
    l, r = left(0, t), right(0, t)
    cond: Expr = Binary(op, r, l, INT32) if direct else Binary(_NEGATED[op], r, l, INT32)
    spelled = Select(cond, r, l, t) if direct else Select(cond, l, r, t)
    return Update(CombineFunction(name, (t,), (spelled,), table.identity, exact=False), element)


def _same_value(taken: Expr, compared: Expr, t: Type) -> bool:
    if strip(taken) == strip(compared):
        return True
    return isinstance(taken, Cast) and strip(taken.a) == strip(compared)


def _call(value: Call, a: Expr, rules: Rules) -> Found:
    t = a.type
    name = value.function
    if name in ("fmin", "fminf", "fmax", "fmaxf") and len(value.args) == 2 and isinstance(t, ScalarType):
        x, y = value.args
        if strip(x) == a:
            x, y = y, x
        function = scalar_operator(name[:4], t)
        if strip(y) == a and not mentions(x, a) and function is not None:
            if rules.exact and not preserves(strip(x).type, t):
                return WhyNot(
                    "the value is rounded when it is stored", "use one type for both, or `fp(fast)`"
                )
            return Update(function, cast(x, t))
        return WhyNot(f"`{name}` is not applied to the variable and one other value")
    f = rules.functions.get(name)
    if f is None:
        return WhyNot(f"`{name}` is no combine operator")
    if name not in rules.promised:
        inlined = inline(value, f)
        if inlined is not None:
            result = infer(inlined, a, rules)
            if not isinstance(result, WhyNot):
                return result
        if len(value.args) == 2 and f.type == t and sum(mentions(x, a) for x in value.args) == 1:
            return WhyNot(
                f"`{name}` is not known to be associative and commutative",
                f"if it is, promise it: `combine_ops(…, pw({name}))`",
            )
        return WhyNot(f"`{name}` is no combine operator")
    if value.type != t or len(value.args) != 2:
        return WhyNot(f"`{name}` does not combine two values of the variable's type")
    x, y = value.args
    if x == a and not mentions(y, a):
        return Update(user_operator(f), y)
    if y == a and not mentions(x, a):
        return Update(user_operator(f), x)
    return WhyNot(f"`{name}` is not applied to the variable and one other value")


def inline(call: Call, f: Function) -> Expr | None:
    """The value of a call of a function that consists of one ``return``."""
    if len(f.body) != 1 or not isinstance(f.body[0], Return) or f.out_param:
        return None
    if len(f.params) != len(call.args):
        return None
    return substitute(f.body[0].value, dict(zip((p for p, _ in f.params), call.args, strict=True)))


def choice(call: Call, f: Function) -> Expr | None:
    """As ``inline``, also of a function that returns one of two: ``if (a < b) return a; return b;``."""
    match f.body:
        case (If(cond=cond, then=(Return(value=then),), other=(Return(value=other),)),):
            pass
        case (If(cond=cond, then=(Return(value=then),), other=()), Return(value=other)):
            pass
        case _:
            return inline(call, f)
    if f.out_param or len(f.params) != len(call.args) or then is None or other is None:
        return None
    values = dict(zip((p for p, _ in f.params), call.args, strict=True))
    return Select(substitute(cond, values), substitute(then, values), substitute(other, values), call.type)


def _logical(value: Binary, a: Expr) -> Update | WhyNot:
    t = a.type
    parts = _flat(value, value.op)
    mine = [p for p in parts if _is_truth_of(p, a)]
    rest = [p for p in parts if not _is_truth_of(p, a)]
    if len(mine) != 1 or not rest or any(mentions(p, a) for p in rest):
        return WhyNot(f"`{value.op}` is not applied to the variable and other values")
    if not isinstance(t, ScalarType) or t.is_float:
        return WhyNot(f"`{value.op}` combines integers only")
    skipped = parts[parts.index(mine[0]) + 1 :]
    if any(may_trap(p) for p in skipped):
        return WhyNot(
            f"`{value.op}` skips a division once the result is known",
            f"write the division's operand before the variable: `e {value.op} x`",
        )
    function = scalar_operator(value.op, t)
    assert function is not None
    out = truth(rest[0])
    for p in rest[1:]:
        out = Binary(value.op, out, truth(p), INT32)
    return Update(function, cast(out, t))


def may_trap(e: Expr) -> bool:
    """Does an expression divide integers by something that may be 0?"""
    return any(
        isinstance(n, Binary)
        and n.op in ("/", "%")
        and n.type.is_integer
        and not (isinstance(strip(n.b), Const) and _constant(n.b))
        for n in walk(e)
    )


def _flat(e: Expr, op: str) -> list[Expr]:
    e = strip(e)
    if isinstance(e, Binary) and e.op == op:
        return _flat(e.a, op) + _flat(e.b, op)
    return [e]


def _is_truth_of(e: Expr, a: Expr) -> bool:
    e = strip(e)
    if e == a:
        return True
    if isinstance(e, Binary) and e.op == "!=":
        return any(
            x == a and isinstance(y, Const) and not y.value
            for x, y in permutations((strip(e.a), strip(e.b)))
        )
    return False


_RING = {"+": "+", "-": "+", "*": "*", "&": "&", "|": "|", "^": "^"}


def _arithmetic(value: Expr, a: Expr, rules: Rules) -> Found:
    t = a.type
    assert isinstance(t, ScalarType)
    core, wide = value, t
    if isinstance(core, Cast):
        source = core.a.type
        assert isinstance(source, ScalarType)
        if t.kind == "bool":
            return _boolean(core.a, a)
        if source.is_float != t.is_float or (not t.is_float and t.bits > source.bits):
            return WhyNot("the conversion of the result keeps the update from being associative")
        if t.is_float and rules.exact:
            return WhyNot(
                f"the sum is computed in `{source}` and rounded to `{t}` each time",
                "use one type for both, or `fp(fast)`",
            )
        core, wide = core.a, source
    if not isinstance(core, Binary) or core.op not in _RING:
        if isinstance(core, Binary) and mentions(core, a):
            return WhyNot(f"`{core.op}` is not an associative operator")
        return WhyNot("its new value is no combination of its old value and one other value")
    op = _RING[core.op]
    for x, y, swapped in ((core.a, core.b, False), (core.b, core.a, True)):
        if _is_accumulator(x, a, wide) and not mentions(y, a) and not (swapped and core.op == "-"):
            function = scalar_operator(op, t)
            if function is None:
                return WhyNot(f"`{op}` is not defined on `{t}`")
            return Update(function, cast(Unary("-", y, wide) if core.op == "-" else y, t))
    terms = _terms(core, op, wide)
    mine = [k for k, (_, e) in enumerate(terms) if mentions(e, a)]
    if core.op in "+-" and len(mine) == 1 and t == value.type:
        linear = _linear(terms, mine[0], a, core is value, wide, rules)
        if linear is not None:
            return linear
    if len(mine) != 1 or not _is_accumulator(terms[mine[0]][1], a, wide):
        if len(mine) == 1 and isinstance(_bare(terms[mine[0]][1]), Select):
            return WhyNot("its old value is replaced under a condition before it is combined")
        return WhyNot(
            f"it does not have the form `x = x {core.op} e` with an `e` that does not depend on `x`"
        )
    if terms[mine[0]][0]:
        return WhyNot("the old value is subtracted, which is not associative")
    if wide.is_float and rules.exact and len(terms) > 2:
        return WhyNot(
            "the terms are added to it one after the other, and `fp(exact)` keeps that order",
            f"put the other terms in parentheses: `x {core.op}= (…)`",
        )
    rest = [term for k, term in enumerate(terms) if k != mine[0]]
    function = scalar_operator(op, t)
    assert function is not None
    return Update(function, cast(_combined(rest, op, wide), t))


def _bare(e: Expr) -> Expr:
    return _bare(e.a) if isinstance(e, Cast) else e


def _linear(
    terms: list[tuple[bool, Expr]], mine: int, a: Expr, plain: bool, wide: ScalarType, rules: Rules
) -> LinearUpdate | None:
    """A sum whose term number ``mine`` is ``factor*a`` or ``-a``; None: it is none.

    Integers form a ring, whatever they are converted to in between.  Floating-point numbers are multiplied
    by one factor, in the type of ``a`` (``plain``): the recurrence computed in order then rounds as the
    source does.  Where ``fp(exact)`` asks for its very bits, there is one other term.
    """
    t = a.type
    assert isinstance(t, ScalarType)
    negative, product = terms[mine]
    factors = [x for _, x in _terms(product, "*", wide)] if t.is_integer else _pair(product)
    own = [x for x in factors if _is_accumulator(x, a, wide)]
    others = [x for x in factors if not _is_accumulator(x, a, wide)]
    if len(own) != 1 or not (others or negative) or any(mentions(x, a) for x in others):
        return None
    if t.kind == "bool":
        return None
    if t.is_float and (not plain or (rules.exact and len(terms) > 2)):
        return None
    factor = _combined([(False, x) for x in others], "*", wide) if others else number(1, wide)
    if negative:
        factor = Unary("-", factor, wide)
    rest = [term for k, term in enumerate(terms) if k != mine]
    return LinearUpdate(cast(factor, t), cast(_combined(rest, "+", wide), t))


def _pair(e: Expr) -> list[Expr]:
    return [e.a, e.b] if isinstance(e, Binary) and e.op == "*" else [e]


def _boolean(value: Expr, a: Expr) -> Update | WhyNot:
    """A ``_Bool`` holds 0 or 1: ``|=`` with any value, ``&=`` and ``^=`` with conditions."""
    assert isinstance(a.type, ScalarType)
    if isinstance(value, Binary) and value.op in ("&", "|", "^"):
        for x, y in ((value.a, value.b), (value.b, value.a)):
            is_bit = truth(y) == strip(y) or (
                isinstance(strip(y).type, ScalarType) and strip(y).type == a.type
            )
            if strip(x) == a and not mentions(y, a) and (value.op == "|" or is_bit):
                function = scalar_operator(value.op, a.type)
                assert function is not None
                return Update(function, cast(strip(y) if is_bit else truth(y), a.type))
    return WhyNot("the conversion to `_Bool` keeps the update from being associative")


def _terms(e: Expr, op: str, t: ScalarType, negative: bool = False) -> list[tuple[bool, Expr]]:
    """The operands of a chain of ``op``, each with "is subtracted"."""
    if isinstance(e, Binary) and e.type == t:
        if e.op == op:
            return _terms(e.a, op, t, negative) + _terms(e.b, op, t, negative)
        if op == "+" and e.op == "-":
            return _terms(e.a, op, t, negative) + _terms(e.b, op, t, not negative)
    if op == "+" and isinstance(e, Unary) and e.op == "-" and e.type == t:
        return _terms(e.a, op, t, not negative)
    return [(negative, e)]


def _combined(terms: list[tuple[bool, Expr]], op: str, t: ScalarType) -> Expr:
    positive = [e for negative, e in terms if not negative]
    if not positive:
        inner = _combined([(False, e) for _, e in terms], op, t)
        return Unary("-", inner, t)
    out = positive[0]
    for e in positive[1:]:
        out = Binary(op, out, e, t)
    for negative, e in terms:
        if negative:
            out = Binary("-", out, e, t)
    return out


def _is_accumulator(e: Expr, a: Expr, wide: ScalarType) -> bool:
    """``a``, possibly converted: to a wider type, or between integers of which the low bits remain."""
    if e == a:
        return True
    if not isinstance(e, Cast) or e.a != a or not isinstance(a.type, ScalarType):
        return False
    return preserves(a.type, e.type) or (a.type.is_integer and wide.is_integer)


# --------------------------------------------------------------------------- arg-min, arg-max


@dataclass(frozen=True, slots=True)
class ArgUpdate:
    """``function`` on (key, payloads..., positions...); ``order``: which variables the first ones are."""

    function: CombineFunction
    order: tuple[Expr, ...]
    elements: tuple[Expr, ...]
    positions: int


def infer_arg(values: Mapping[Expr, Expr], dims: tuple[str, ...], rules: Rules) -> ArgUpdate | WhyNot:
    """Several variables updated under one comparison; ``values``: old value -> new value."""
    unknown = WhyNot(
        "the variables depend on one another, and not as the value and the position of an extremum",
        "write `if (x < m) { m = x; at = i; }`",
    )
    dependent = WhyNot(
        "the variables depend on one another",
        "where two partial results can be combined, put the variables into a `struct` and name the function"
        " that does so in `combine_ops`",
    )
    taken: dict[Expr, Expr] = {}
    conditions: list[list[Expr]] = []
    for a, value in values.items():
        split = _selected(value, a)
        if split is None:
            return dependent
        parts, new = split
        if any(mentions(new, b) for b in values):
            return dependent
        taken[a] = new
        conditions.append(parts)
    if any(c != conditions[0] for c in conditions[1:]):
        return unknown
    mine = [p for p in conditions[0] if any(mentions(p, a) for a in values)]
    guard = [p for p in conditions[0] if p not in mine]
    if len(mine) != 1:
        return unknown
    comparison, negated = mine[0], False
    while isinstance(comparison, Unary) and comparison.op == "!":
        comparison, negated = comparison.a, not negated
    if not isinstance(comparison, Binary) or comparison.op not in ("<", "<=", ">", ">="):
        return unknown
    op, x, y = comparison.op, comparison.a, comparison.b
    if strip(x) in values:
        op, x, y = _SWAPPED[op], y, x
    key = strip(y)
    if key not in values or any(mentions(x, a) for a in values):
        return unknown
    if negated:
        op = _NEGATED[op]
    t = key.type
    if not isinstance(t, ScalarType) or not _same_value(taken[key], x, t):
        return unknown
    if not preserves(strip(x).type, t) and not t.is_float:
        return WhyNot(f"the compared value does not fit the type `{t}` of the variable")
    if rules.exact and t.is_float and (negated or not preserves(strip(x).type, t)):
        return WhyNot(
            "the comparison rounds or treats NaN specially", "compare values of one type with `<` or `>`"
        )
    name = "argmin" if op in ("<", "<=") else "argmax"
    last_wins = op in ("<=", ">=")
    others = tuple(a for a in values if a != key)
    function = arg_operator(name, t, tuple(a.type for a in others), len(dims), last_wins)
    elements = [cast(taken[key], t), *(taken[a] for a in others)]
    positions: list[Expr] = [Var(d, INT64) for d in dims]
    if guard:
        worst = scalar_operator("min" if name == "argmin" else "max", t)
        assert worst is not None and worst.identity is not None
        cond = conjunction(guard)
        nowhere = Const(-2 if last_wins else (1 << 63) - 1, INT64)
        elements[0] = Select(cond, elements[0], worst.identity[0], t)
        elements[1:] = [e if _is_safe(e) else Select(cond, e, _nothing(e.type), e.type) for e in elements[1:]]
        positions = [Select(cond, p, nowhere, INT64) for p in positions]
    return ArgUpdate(function, (key, *others), (*elements, *positions), len(dims))


def _nothing(t: Type) -> Expr:
    if isinstance(t, RecordType):
        return MakeRecord(tuple(number(0, u) for _, u in t.fields), t)
    return number(0, t)


def _is_safe(e: Expr) -> bool:
    """May be evaluated where its guard does not hold: reads no memory, divides nothing."""
    return all(isinstance(n, (Var, Const, Cast)) for n in walk(e))


def _selected(value: Expr, a: Expr) -> tuple[list[Expr], Expr] | None:
    """``(conditions, new value)`` of ``if (conditions) a = new``."""
    if isinstance(value, Cast) and isinstance(value.a, Select):
        value = cast(value.a, a.type)
    if not isinstance(value, Select):
        return None
    if strip(value.other) == a:
        cond, then = value.cond, value.then
    elif strip(value.then) == a:
        cond, then = negate(value.cond), value.other
    else:
        return None
    deeper = _selected(then, a) if isinstance(then, Select) and mentions(then, a) else None
    if deeper is not None:
        return conjuncts(cond) + deeper[0], deeper[1]
    return conjuncts(cond), then
