"""Which high-level programs are well-formed: a table of named rules, one line each.

``verify(program)`` returns the broken ones, each as ``name: what is wrong``.  ``SHAPE`` and
``STRUCTURE`` say that names, numbers and types fit together; ``MEANING`` says that the program denotes
something: ``md_hom`` is well defined and ``out_view`` a function.  Each is looked at only when the one
before holds.

*md_hom is well defined* (mdh.md 2.2) by Lemma 10 where every operator is ``cc`` or ``pw(f)``, and by the
interchange law, which holds for ``ps(f)`` beside ``pw(f)`` and ``ps(f)``, with one associative and
commutative ``f`` throughout.  An ``f`` that does not commute is for one ``ps`` dimension beside ``cc``, so
that nothing that lowers a ``pw`` dimension needs to keep an order.  That ``f`` has these laws is a matter of
the operator table, or the user's word, which ``laws.check_laws`` puts to the test.

*No two points share an output position* is decided exactly where that is cheap, see
``injective``.  Two stores to one buffer are rejected where their index functions meet for some sizes
(``collide``), and only where no parameter takes part in them: a doubt that only the values of parameters
could settle is the lifter's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from mdh_core.combine import CombineFunction
from mdh_core.evaluate import math_arity
from mdh_core.expr import (
    BOOL,
    COMPARISONS,
    INT32,
    LOGICAL,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Constraint,
    Declare,
    Expr,
    Field,
    Function,
    If,
    Load,
    MakeRecord,
    Operand,
    RecordType,
    Result,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import MdhProgram, Store
from mdh_core.polytope import certainly_empty, rows_of

Problems = Iterable[str]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    broken: Callable[[MdhProgram], Problems]


def verify(program: MdhProgram) -> list[str]:
    """The broken rules, each with what is wrong; empty for a well-formed program."""
    for stage in (SHAPE, STRUCTURE, MEANING):
        broken = [f"{rule.name}: {problem}" for rule in stage for problem in rule.broken(program)]
        if broken:
            return broken
    return []


# --------------------------------------------------------------------------- names


def _distinct_names(p: MdhProgram) -> Problems:
    names = [d.name for d in p.hom.dims] + [q.name for q in p.params] + [b.name for b in p.buffers]
    return (f"`{n}` is declared twice" for n in sorted({n for n in names if names.count(n) > 1}))


def _integer_params(p: MdhProgram) -> set[str]:
    return {q.name for q in p.params if isinstance(q.type, ScalarType) and q.type.is_integer}


def _dims(p: MdhProgram, *kinds: str) -> set[str]:
    """Names of the dimensions; with kinds only those of such an operator."""
    chosen = p.hom.dims_of(*kinds) if kinds else p.hom.dims
    return {d.name for d in chosen}


def _sizes(p: MdhProgram) -> Problems:
    for d in p.hom.dims:
        yield from _foreign(d.size.span, _integer_params(p), f"size of `{d.name}`")
        if d.size.step < 1:
            yield f"step {d.size.step} of `{d.name}`"


def _foreign(a: Affine, allowed: set[str], where: str) -> Problems:
    return (f"`{n}` in the {where}" for n in sorted(a.names - allowed))


def _domain(p: MdhProgram) -> Problems:
    for c in p.hom.domain:
        yield from _foreign(c.value, _dims(p) | _integer_params(p), f"domain ({c})")


def _free_of_domain(p: MdhProgram) -> Problems:
    """``ps`` and ``at_last`` dimensions are whole; a scan of reductions has whole reductions, too."""
    whole = _dims(p, "ps") | {n for s in p.out.stores for n in s.at_last}
    if _dims(p, "ps"):
        whole |= _dims(p, "pw")
    for c in p.hom.domain:
        yield from (f"`{n}` in {c}" for n in sorted(c.names & whole))


def _gathers(p: MdhProgram) -> Problems:
    stored = {s.buffer for s in p.out.stores}
    gathered = {e.buffer for where, e in _nodes(p) if where == "scalar" and isinstance(e, Load)}
    return (f"`{b}`" for b in sorted(stored & gathered))


def _buffers(p: MdhProgram) -> Problems:
    for b in p.buffers:
        for a in (*b.extents, *(b.strides or ())):
            if a is not None:
                yield from _foreign(a, _integer_params(p), f"layout of `{b.name}`")
        if b.strides is not None and len(b.strides) != b.rank:
            yield f"`{b.name}` has {b.rank} extents and {len(b.strides)} strides"


def _one_operator_per_dim(p: MdhProgram) -> Problems:
    if len(p.hom.combine) != len(p.hom.dims):
        yield f"{len(p.hom.dims)} dimensions, {len(p.hom.combine)} operators"


# --------------------------------------------------------------------------- views


def _indices(p: MdhProgram) -> Iterator[tuple[str, tuple[Affine, ...], set[str]]]:
    """Buffer, index function and the dimensions that it may mention."""
    for access in p.inp.accesses:
        yield access.buffer, access.index, _dims(p)
    for store in p.out.stores:
        yield store.buffer, store.index, _dims(p, "cc", "ps")


def _known_buffers(p: MdhProgram) -> Problems:
    known = {b.name for b in p.buffers}
    used = [buffer for buffer, _, _ in _indices(p)]
    used += [e.buffer for _, e in _nodes(p) if isinstance(e, Load)]
    return (f"`{name}`" for name in dict.fromkeys(used) if name not in known)


def _index_rank(p: MdhProgram) -> Problems:
    uses = [(buffer, len(index)) for buffer, index, _ in _indices(p)]
    uses += [(e.buffer, len(e.index)) for _, e in _nodes(p) if isinstance(e, Load)]
    rank = {b.name: b.rank for b in p.buffers}
    return (
        f"{n} indices for `{buffer}`, which has {rank[buffer]}"
        for buffer, n in dict.fromkeys(uses)
        if n != rank.get(buffer, n)
    )


def _index_names(p: MdhProgram) -> Problems:
    for buffer, index, dims in _indices(p):
        for a in index:
            yield from _foreign(a, dims | _integer_params(p), f"index function of `{buffer}`")


def _at_last(p: MdhProgram) -> Problems:
    for store in p.out.stores:
        for name in store.at_last:
            if name not in _dims(p, "cc", "ps"):
                yield f"`{name}` at the store to `{store.buffer}`"


def _has_stores(p: MdhProgram) -> Problems:
    if not p.out.stores:
        yield "no stores"


# --------------------------------------------------------------------------- components


def _component_counts(p: MdhProgram) -> Problems:
    n = len(p.hom.scalar.results)
    if len(p.out.initial) != n:
        yield f"{n} results, {len(p.out.initial)} initial values"
    f = p.hom.function
    if f is not None and f.types != p.component_types:
        yield f"results of type {_types(p.component_types)}, operator on {_types(f.types)}"
    if f is not None and tuple(v.type for v in f.values) != f.types:
        yield f"`{f.name}` delivers {_types(v.type for v in f.values)} for {_types(f.types)}"
    for c, (e, t) in enumerate(zip(p.out.initial, p.component_types, strict=False)):
        if e is not None and e.type != t:
            yield f"initial value {c} is of type {e.type}, not {t}"


def _types(types: Iterable[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _numbered(p: MdhProgram) -> Problems:
    """Operands and results are there and have the type of what they stand for."""
    types = {b.name: b.type for b in p.buffers}
    operands = tuple(types.get(a.buffer) for a in p.inp.accesses)
    for _, e in _nodes(p):
        match e:
            case Operand(access=k):
                yield from _number(e, k, operands)
            case Result(component=c):
                yield from _number(e, c, p.component_types)
            case Load(buffer=buffer) if e.type != types.get(buffer, e.type):
                yield f"{e} of a buffer of type {types[buffer]}"
    for store in p.out.stores:
        if store.value.type != types.get(store.buffer, store.value.type):
            yield f"{store.value.type} stored in `{store.buffer}` of type {types[store.buffer]}"


def _number(e: Operand | Result, k: int, types: tuple[Type | None, ...]) -> Problems:
    if not 0 <= k < len(types):
        yield f"{e}, there are {len(types)}"
    elif types[k] not in (None, e.type):
        yield f"{e} of type {e.type}, not {types[k]}"


# --------------------------------------------------------------------------- expressions


def _expressions(p: MdhProgram) -> Iterator[tuple[str, Expr, set[str]]]:
    """Where it stands (a key of ``_LEAVES``), the expression, and the names that it may use."""
    params = {q.name for q in p.params}
    local = {s.name for s in _statements(p.hom.scalar.body) if isinstance(s, Declare)}
    for e in (*stmt_exprs(p.hom.scalar.body), *p.hom.scalar.results):
        yield "scalar", e, params | _dims(p) | local
    for initial in p.out.initial:
        if initial is not None:
            yield "initial", initial, params | _dims(p, "cc")
    for store in p.out.stores:
        yield "value", store.value, params | _dims(p, "cc", "ps")
    f = p.hom.function
    for v in () if f is None else f.values:
        yield "operator", v, {f"{side}{c}" for side in "lr" for c in range(f.arity if f else 0)}


def _nodes(p: MdhProgram) -> Iterator[tuple[str, Expr]]:
    return ((where, node) for where, e, _ in _expressions(p) for node in walk(e))


def _statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in body:
        yield s
        match s:
            case If(then=then, other=other):
                yield from _statements(then + other)
            case While(body=inner):
                yield from _statements(inner)


_LEAVES: dict[str, set[type]] = {
    "scalar": {Operand, Load},
    "initial": {Load},
    "value": {Load, Result},
    "operator": set(),
}


def _leaves(p: MdhProgram) -> Problems:
    for where, e in _nodes(p):
        if isinstance(e, Load | Operand | Result) and type(e) not in _LEAVES[where]:
            yield f"{e} in {where}"


def _expression_names(p: MdhProgram) -> Problems:
    for where, e, allowed in _expressions(p):
        yield from (f"`{n}` in {where}" for n in sorted(variables(e) - allowed))


def _well_typed(p: MdhProgram) -> Problems:
    arity = {f.name: f for f in p.functions}
    everything = [e for _, e in _nodes(p)]
    everything += [n for f in p.functions for e in stmt_exprs(f.body) for n in walk(e)]
    return (f"{e}" for e in everything if not _node_typed(e, arity))


def _node_typed(e: Expr, functions: dict[str, Function]) -> bool:
    match e:
        case Binary(op=op, a=a, b=b, type=t) if op in LOGICAL:
            return t == INT32 and _scalar(a) and _scalar(b)
        case Binary(op=op, a=a, b=b, type=t) if op in COMPARISONS:
            return t == INT32 and a.type == b.type and _scalar(a)
        case Binary(op="<<" | ">>", a=a, b=b, type=t):
            return a.type == t and _integer(a) and _integer(b)
        case Binary(op=op, a=a, b=b, type=t):
            return a.type == b.type == t and (op in "+-*/" or t.is_integer)
        case Unary(op=op, a=a, type=t):
            return (t in (INT32, BOOL) and _scalar(a)) if op == "!" else a.type == t
        case Select(cond=c, then=x, other=y, type=t):
            return _scalar(c) and x.type == y.type == t
        case Cast(a=a):
            return _scalar(a)
        case Field(a=a, name=name, type=t):
            return isinstance(a.type, RecordType) and dict(a.type.fields).get(name) == t
        case MakeRecord(values=values, type=t):
            return tuple(v.type for v in values) == tuple(u for _, u in t.fields)
        case Call(function=name, args=args, type=t):
            if name not in functions:
                return math_arity(name) == len(args)
            f = functions[name]
            expected = tuple(u for _, u in f.params)[len(f.params) - len(args) :]
            return f.type == t and tuple(a.type for a in args) == expected
        case Load(index=index):
            return all(map(_integer, index))
        case _:
            return True


def _scalar(e: Expr) -> bool:
    return isinstance(e.type, ScalarType)


def _integer(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer


def _pure_body(p: MdhProgram) -> Problems:
    for s in _statements(p.hom.scalar.body):
        if isinstance(s, Return):
            yield "a return statement in the scalar function"
        if isinstance(s, Assign):
            place = s.target.a if isinstance(s.target, Field) else s.target
            local = {d.name for d in _statements(p.hom.scalar.body) if isinstance(d, Declare)}
            if not (isinstance(place, Var) and place.name in local):
                yield f"{s.target} is assigned"


# --------------------------------------------------------------------------- meaning


def _one_function(p: MdhProgram) -> Problems:
    functions: list[CombineFunction] = []
    for op in p.hom.combine:
        if op.function is not None and op.function not in functions:
            functions.append(op.function)
    if len(functions) > 1:
        yield " and ".join(f"`{f.name}`" for f in functions)


def _ordered(p: MdhProgram) -> Problems:
    f = p.hom.function
    computing = p.hom.dims_of("pw", "ps")
    if f is not None and not f.commutative and (p.hom.dims_of("pw") or len(computing) > 1):
        yield f"`{f.name}` over {', '.join(f'`{d.name}`' for d in computing)}"


def _initial(p: MdhProgram) -> Problems:
    f = p.hom.function
    given = [e is not None for e in p.out.initial]
    if f is None:
        if any(given):
            yield "there is no operator to combine it with"
        return
    if any(given) and not all(given):
        missing = ", ".join(str(c) for c, g in enumerate(given) if not g)
        yield f"`{f.name}` combines whole tuples, but component {missing} has none"


def _stores_injective(p: MdhProgram) -> Problems:
    for store in p.out.stores:
        sizes = {d.name: d.size.constant for d in p.hom.dims_of("cc", "ps") if d.name not in store.at_last}
        # dimensions that an equality ties together differ together
        tied = [c.value for c in p.hom.domain if c.equality and not c.names & _dims(p, "pw")]
        if not injective((*store.index, *tied), sizes) and not _apart_in_domain(p, store):
            yield f"`{store.buffer}` at ({', '.join(map(str, store.index))})"


def _apart_in_domain(p: MdhProgram, store: Store) -> bool:
    """Do different points of the domain certainly have different positions?"""
    one, other = _placed(p, store, ""), _placed(p, store, "'")
    rows = [*one.rows, *other.rows, *p.assumptions]
    rows += rows_of(Constraint(a - b, equality=True) for a, b in zip(one.index, other.index, strict=True))
    for d in p.hom.dims_of("cc", "ps"):
        if d.name not in store.at_last:
            gap = Affine.of(f"{d.name}'") - Affine.of(d.name)  # one way suffices: both points are any
            if not certainly_empty([*rows, gap - 1]):
                return False
            rows += [gap, -gap]
    return True


def _stores_disjoint(p: MdhProgram) -> Problems:
    for s, t in itertools.combinations(p.out.stores, 2):
        if s.buffer == t.buffer and collide(p, s, t):
            yield f"two stores to `{s.buffer}`"


def _fp(p: MdhProgram) -> Problems:
    if p.fp not in ("exact", "deterministic", "fast"):
        yield f"`{p.fp}`"


# --------------------------------------------------------------------------- output positions


ENUMERATED = 20_000  # differences of points that ``injective`` is willing to look at


def injective(index: tuple[Affine, ...], sizes: dict[str, int | None]) -> bool:
    """Does an index function map different points of a box to different positions?

    ``sizes`` are the extents of the box, None for one that is not known and may be arbitrarily large.
    Two points share a position iff their difference, which is bounded by the extents, is in the
    kernel of the linear part.  So the answer is yes if the rank is full, or if the dimensions
    can be told apart one row after the other (``_digits``).  Otherwise the differences of the known
    extents are tried one by one, exactly; where these are too many, the answer is no.

    >>> flat = (Affine.of("i") * 4 + Affine.of("j"),)
    >>> injective(flat, {"i": None, "j": 4}), injective(flat, {"i": None, "j": 5})
    (True, False)
    >>> injective((Affine.of("i") + Affine.of("j"),), {"i": None, "j": None})
    False
    """
    if 0 in sizes.values():
        return True
    sizes = {name: n for name, n in sizes.items() if n != 1}
    rows = [{name: a.coefficient(name) for name in sizes} for a in index]
    if _rank(rows, list(sizes)) == len(sizes) or _told_apart(rows, sizes):
        return True
    free = [name for name, n in sizes.items() if n is None]
    fixed = {name: n for name, n in sizes.items() if n is not None}
    if _rank(rows, free) < len(free) or math.prod(2 * n - 1 for n in fixed.values()) > ENUMERATED:
        return False
    steps = itertools.product(*(range(1 - n, n) for n in fixed.values()))
    differences = (dict(zip(fixed, step, strict=True)) for step in steps if any(step))
    return not any(_completed(rows, free, d) for d in differences)


def _told_apart(rows: list[dict[str, int]], sizes: dict[str, int | None]) -> bool:
    """Do the rows, each used once the dimensions of others are known, determine every dimension?"""
    open_dims = dict(sizes)
    for _ in rows:
        for row in rows:
            terms = [(abs(row[name]), n) for name, n in open_dims.items() if row[name]]
            if _digits(terms):
                open_dims = {name: n for name, n in open_dims.items() if not row[name]}
    return not open_dims


def _digits(terms: list[tuple[int, int | None]]) -> bool:
    """Is each coefficient larger than all that the smaller ones can add up to (mixed radix)?"""
    reach: float = 0
    for coefficient, n in sorted(terms, key=lambda term: term[0]):
        if coefficient <= reach:
            return False
        reach += math.inf if n is None else coefficient * (n - 1)
    return True


def _completed(rows: list[dict[str, int]], free: list[str], difference: dict[str, int]) -> bool:
    """Is there an integer step in the free dimensions that undoes what ``difference`` moves?"""
    moved = [-sum(row[name] * step for name, step in difference.items()) for row in rows]
    system = _echelon(
        [[Fraction(row[name]) for name in free] + [Fraction(m)] for row, m in zip(rows, moved, strict=True)]
    )
    return all(any(row[:-1]) and row[-1].denominator == 1 for row in system)


def _rank(rows: list[dict[str, int]], names: list[str]) -> int:
    return len(_echelon([[Fraction(row[name]) for name in names] for row in rows]))


def _echelon(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """The non-zero rows of the reduced row echelon form."""
    rows, done = [row for row in matrix if any(row)], 0
    for column in range(len(matrix[0]) if matrix else 0):
        pivot = next((r for r in range(done, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        rows[done] = [x / rows[done][column] for x in rows[done]]
        for r, row in enumerate(rows):
            if r != done:
                rows[r] = [x - row[column] * y for x, y in zip(row, rows[done], strict=True)]
        done += 1
    return rows[:done]


def collide(p: MdhProgram, s: Store, t: Store) -> bool:
    """Can two stores to one buffer share a position, for some sizes and parameters?

    False also where the index functions depend on parameters: their values decide then.
    """
    one, other = _placed(p, s, ""), _placed(p, t, "'")
    same = [a - b for a, b in zip(one.index, other.index, strict=True)]
    if any(a.names & {q.name for q in p.params} for a in same):
        return False
    sizes = {d.name + mark: d.size.constant for d in p.hom.dims for mark in ("", "'")}
    digits = [d for a in same for d in _equal_digits(a, sizes)]
    equal = rows_of(Constraint(a, equality=True) for a in digits)
    return not certainly_empty([*equal, *one.rows, *other.rows, *p.assumptions])


def _equal_digits(a: Affine, sizes: dict[str, int | None]) -> list[Affine]:
    """``a = 0`` as equations between digits, where only one multiple of a coefficient is within reach.

    >>> i, j = Affine.of("i") * 9, Affine.of("j")
    >>> [str(x) for x in _equal_digits(i - j, {"i": None, "j": 9})]
    ['-j', '9*i']
    """
    for g in sorted({abs(c) for _, c in a.terms} - {1}):
        low = Affine(tuple((n, c) for n, c in a.terms if c % g), a.const)
        if not low.terms or any(sizes.get(n) is None for n in low.names):
            continue
        lasts = [c * ((sizes[n] or 1) - 1) for n, c in low.terms]
        least = low.const + sum(min(0, last) for last in lasts)
        most = low.const + sum(max(0, last) for last in lasts)
        first = -(-least // g) * g  # the first multiple that is within reach
        if first > most:
            return [Affine.number(1)]
        if first + g > most:
            return [low - first, *_equal_digits(a - low + first, sizes)]
    return [a]


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a store writes, and the rows that its points obey; dimensions are marked."""

    index: tuple[Affine, ...]
    rows: tuple[Affine, ...]


def _placed(p: MdhProgram, store: Store, mark: str) -> _Placed:
    values = {d.name: Affine.of(d.name + mark) for d in p.hom.dims}
    rows = [c.substitute(values) for c in p.hom.domain if not c.names & _dims(p, "pw")]
    inside = []
    for d in p.hom.dims_of("cc", "ps"):
        index, last = values[d.name], d.size.span - 1  # step * index <= last
        if d.name in store.at_last:
            values[d.name] = last if d.size.step == 1 else Affine.of(f"last {d.name}")
        else:
            inside += [index, last - index * d.size.step]
    return _Placed(tuple(a.substitute(values) for a in store.index), (*rows_of(rows), *inside))


# --------------------------------------------------------------------------- the tables


SHAPE = (Rule("one combine operator per dimension", _one_operator_per_dim),)
STRUCTURE = (
    Rule("dimensions, parameters and buffers have distinct names", _distinct_names),
    Rule("sizes are affine in integer parameters", _sizes),
    Rule("layouts of buffers are affine in integer parameters", _buffers),
    Rule("views name buffers of the program", _known_buffers),
    Rule("an index function has one index per dimension of its buffer", _index_rank),
    Rule("index functions mention integer parameters and dimensions (stores: no reduced ones)", _index_names),
    Rule("at_last names concatenated or scanned dimensions", _at_last),
    Rule("domains mention dimensions and integer parameters", _domain),
    Rule("domains leave scanned and at_last dimensions whole", _free_of_domain),
    Rule("something is stored", _has_stores),
    Rule("results, initial values and operator have the same components", _component_counts),
    Rule("operands, results, loads and stores have the type of what they stand for", _numbered),
    Rule("initial values and stored values read no operands, scalar functions no results", _leaves),
    Rule("what a scalar function loads is not stored", _gathers),
    Rule("expressions mention what is known where they stand", _expression_names),
    Rule("expressions are well typed", _well_typed),
    Rule("the scalar function assigns to its own locals only", _pure_body),
    Rule("the floating-point policy is exact, deterministic or fast", _fp),
)
MEANING = (
    Rule("all reduced and scanned dimensions have the same combine function", _one_function),
    Rule("a function that does not commute combines one scanned dimension only", _ordered),
    Rule("initial values belong to an operator and its components", _initial),
    Rule("no two points share an output position", _stores_injective),
    Rule("no two stores share an output position", _stores_disjoint),
)
RULES = (*SHAPE, *STRUCTURE, *MEANING)
