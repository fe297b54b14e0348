"""Which scalar functions with branches and loops several neighbouring points may run together.

Every lane runs every statement, and keeps what it has where its condition fails (``emit.masked_text``); so
nothing in such a body may fail or have another effect than to set the body's own scalars.

Where all lanes go the same way, as what decides is the same in all of them (*shared*, along a dimension), all
do what each would do alone, and memory may be read: of a sparse matrix's row times a dense matrix, neighbours
in ``j`` read the same elements of the row, and neighbouring ones of the matrix.

    for (k = p[i]; k < p[i + 1]; k++) s += v[k]*x[col[k]][j];
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mdh_core.expr import (
    COMPARISONS,
    DOUBLE,
    FLOAT,
    LOGICAL,
    Assign,
    Binary,
    Call,
    Const,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Operand,
    Result,
    Return,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    children,
    map_stmts,
    rewrite,
    rise,
    stmt_exprs,
    straight_line,
    substitute,
    variables,
    walk,
)
from mdh_core.ir import MdhProgram
from mdh_core.narrow import narrowed


@dataclass(frozen=True, slots=True)
class LaneFunction:
    """A scalar function as several neighbouring points compute it together.

    body      declarations with values, or what has a masked form
    results   one expression per component
    size      bytes of the widest scalar that differs from point to point: lanes are counted by it
    """

    body: tuple[Stmt, ...]
    results: tuple[Expr, ...]
    size: int


@functools.lru_cache(maxsize=256)
def lane_function(program: MdhProgram) -> LaneFunction:
    """The form of a program's scalar function for vectors; whether it has any is for the caller to see."""
    scalar = program.hom.scalar
    functions = {f.name: f for f in program.functions}

    def inlined(e: Expr) -> Expr:
        return rewrite(e, lambda n: _in_place(n, functions) if isinstance(n, Call) else None)

    if straight_line(scalar.body):
        body, results = _with_calls_named(program, functions)
    else:
        body, results = map_stmts(scalar.body, inlined), tuple(map(inlined, scalar.results))
    size = max(t.size for t in program.component_types)
    # what is stored of a reduction is computed once in a while: its own width does not count
    stored = () if program.hom.function is not None else tuple(s.value for s in program.out.stores)
    dims = {d.name for d in program.hom.dims}
    if not straight_line(body):
        ways = [_widest_along(body, (*results, *stored), program, d) for d in sorted(dims)
                if goes_in_lanes(body, program, d)]  # fmt: skip
        return LaneFunction(body, results, max(size, *ways) if ways else max(size, widest(body)))
    body, results = narrowed(body, results)
    return LaneFunction(body, results, max(size, _widest_varying(body, (*results, *stored), dims)))


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function of math.h that vectors have: its name without suffix, and the type of arguments and result.

    exact    its results are those of the library to the bit; others are within one unit in the last place
    """

    name: str
    type: ScalarType
    exact: bool


LANES = {
    name + suffix: LibraryFunction(name, t, exact)
    for names, exact in (
        ("exp log", False),
        ("sqrt fabs floor ceil trunc rint nearbyint round fmin fmax copysign", True),
    )
    for name in names.split()
    for suffix, t in (("", DOUBLE), ("f", FLOAT))
}
_CHEAP = ("fabs", "fmin", "fmax", "copysign")  # an instruction or three


def has_lanes(call: Call, program: MdhProgram) -> bool:
    """Whether a call may be one for all lanes of a vector: of the library, and under the program's policy.

    Only ``fast`` allows other roundings than the library's; which cells are computed in vectors, and which
    by it, is no part of what the other policies promise.
    """
    return has_exact_lanes(call, program) or (program.fp == "fast" and _library(call, program) is not None)


def has_exact_lanes(call: Call, program: MdhProgram) -> bool:
    """Whether it may be, and each lane then has the bits that the call has."""
    f = _library(call, program)
    return f is not None and f.exact


def _library(call: Call, program: MdhProgram) -> LibraryFunction | None:
    """The function, unless the source has one of its own by that name, or uses names of the macros'."""
    f = LANES.get(call.function)
    if f is None or any(g.name == call.function for g in program.functions):
        return None
    names = {q.name for q in program.params} | {b.name for b in program.buffers}
    return None if any(n.startswith("mdh_") for n in names) else f


def scalar_calls(program: MdhProgram) -> bool:
    """Whether a point calls what only one point after the other can call."""
    f = lane_function(program)
    exprs = (*f.results, *stmt_exprs(f.body))
    return any(isinstance(n, Call) and not has_lanes(n, program) for e in exprs for n in walk(e))


def _with_calls_named(
    program: MdhProgram, functions: dict[str, Function]
) -> tuple[tuple[Stmt, ...], tuple[Expr, ...]]:
    """A straight-line scalar function without calls of functions that are declarations and one expression.

    before   c = x*cumulative(d)            cumulative(d) { t = 1/(1 + abs(d));  return d < 0 ? t : 1 - t; }
    after    t_of_cumulative = 1/(1 + abs(d));  c = x*(d < 0 ? t_of_cumulative : 1 - t_of_cumulative)

    Where a function calls nothing of the library, its values take the places of their names.
    """
    scalar, found = program.hom.scalar, list[Stmt]()
    taken = {q.name for q in program.params} | {b.name for b in program.buffers} | {*functions}
    taken |= {d.name for d in program.hom.dims} | {d.name for d in declared_in(scalar.body)}

    def named(name: str, e: Expr) -> Expr:
        if isinstance(e, Var | Const | Operand):
            return e
        own, k = name, 1
        while own in taken:
            own, k = f"{name}_{k + 1}", k + 1
        taken.add(own)
        found.append(Declare(own, e.type, e))
        return Var(own, e.type)

    def without(e: Expr, functions: dict[str, Function]) -> Expr:
        return rewrite(e, lambda n: value_of(n, functions) if isinstance(n, Call) else None)

    def value_of(call: Call, functions: dict[str, Function]) -> Expr | None:
        f = functions.get(call.function)
        if f is None or not is_expression(f):
            return None
        if not any(isinstance(n, Call) for e in stmt_exprs(f.body) for n in walk(e)):
            return _in_place(call, functions)
        if any(may_fail(n) for e in (*call.args, *stmt_exprs(f.body)) for n in walk(e)):
            return None  # it would be computed where the program does not
        given = zip((name for name, _ in f.params), call.args, strict=True)
        own = {name: named(f"{name}_of_{f.name}", a) for name, a in given}
        others = {name: g for name, g in functions.items() if g is not f}  # a function may call itself
        for s in f.body[:-1]:
            assert isinstance(s, Declare) and s.value is not None
            own[s.name] = named(f"{s.name}_of_{f.name}", without(substitute(s.value, own), others))
        last = f.body[-1]
        assert isinstance(last, Return)
        e = without(substitute(last.value, own), others)
        return e if e.type == call.type else None

    for s in scalar.body:
        assert isinstance(s, Declare)
        found.append(s if s.value is None else replace(s, value=without(s.value, functions)))
    results = tuple(without(e, functions) for e in scalar.results)
    return tuple(found), results


def is_expression(f: Function) -> bool:
    """Whether a function is declarations with values and one expression."""
    if f.out_param or not f.body or not isinstance(f.body[-1], Return):
        return False
    return all(isinstance(s, Declare) and s.value is not None for s in f.body[:-1])


def may_fail(n: Expr) -> bool:
    """Whether a node other than a call must not be computed where C would not."""
    return isinstance(n, Load) or (
        isinstance(n, Binary) and n.op in "/%" and _is_integer(n) and not steady_divisor(n)
    )


_READS = 4  # lane by lane, for each costly operation


@functools.lru_cache(maxsize=256)
def reads_lane_by_lane(program: MdhProgram) -> int:
    """How many operands of a point may be read one lane after the other, as computing takes longer.

    Roots, divisions and functions of the library take as long as several loads and what joins them.
    """
    f = lane_function(program)
    nodes = [n for e in (*f.results, *stmt_exprs(f.body)) for n in walk(e)]
    library = [g for n in nodes if isinstance(n, Call) and (g := _library(n, program)) is not None]
    calls = sum(g.name not in _CHEAP for g in library)
    divisions = sum(isinstance(n, Binary) and n.op == "/" and n.type.is_float for n in nodes)
    return _READS * (calls + divisions) if calls else 0


_MOST = 200  # nodes of an expression that stands in the place of a call


def _in_place(call: Call, functions: dict[str, Function]) -> Expr | None:
    """A call's value without the call, if its function is declarations and one expression."""
    f = functions.get(call.function)
    if f is None or not is_expression(f):
        return None
    values: dict[str, Expr] = dict(zip((name for name, _ in f.params), call.args, strict=True))
    for s in f.body[:-1]:
        assert isinstance(s, Declare) and s.value is not None
        values[s.name] = substitute(s.value, values)
    others = {name: g for name, g in functions.items() if g is not f}  # a function may call itself
    last = f.body[-1]
    assert isinstance(last, Return)
    inner = rewrite(last.value, lambda n: _in_place(n, others) if isinstance(n, Call) else None)
    e = substitute(inner, values)
    known = set().union(*(variables(a) for a in call.args))
    small = sum(1 for _ in walk(e)) <= _MOST
    return e if small and variables(e) <= known and e.type == call.type else None


def _widest_varying(body: Sequence[Stmt], results: Sequence[Expr], dims: set[str]) -> int:
    """Bytes of the largest scalar that is computed from an operand or an index."""
    varying = set(dims)
    largest = 1

    def varies(e: Expr) -> bool:
        nonlocal largest
        match e:
            case Const():
                return False
            case Var(name=name):
                found = name in varying
            case Operand() | Load() | Result():
                found = True  # its indices are the loop's business
            case _:
                found = sum(map(varies, children(e))) > 0  # all are looked at
        truth = is_truth(e)  # masks are as wide as what is compared
        if found and isinstance(e.type, ScalarType) and not truth:
            largest = max(largest, e.type.size)
        return found

    for s in body:
        if isinstance(s, Declare) and s.value is not None and varies(s.value):
            varying.add(s.name)
    for e in results:
        varies(e)
    return largest


def declared_in(body: Sequence[Stmt]) -> Iterator[Declare]:
    """All declarations, those in branches and loops too."""
    for s in body:
        match s:
            case Declare():
                yield s
            case If(then=then, other=other):
                yield from declared_in((*then, *other))
            case While(body=inner):
                yield from declared_in(inner)
            case _:
                pass


def has_masked_form(body: Sequence[Stmt], program: MdhProgram) -> bool:
    """Whether a body consists of assignments to its own scalars, branches and loops, and cannot fail."""
    own = {d.name: d.type for d in declared_in(body)}

    def plain(s: Stmt) -> bool:
        match s:
            case Declare(type=t):
                return isinstance(t, ScalarType) and t.kind != "bool"
            case Assign(target=Var(name=name)):
                return name in own
            case If(then=then, other=other):
                return all(map(plain, then)) and all(map(plain, other))
            case While(body=inner):
                return all(map(plain, inner))
            case _:
                return False

    return all(map(plain, body)) and not any(
        may_fail(n) or (isinstance(n, Call) and not has_lanes(n, program))
        for e in stmt_exprs(tuple(body))
        for n in walk(e)
    )


def goes_in_lanes(body: Sequence[Stmt], program: MdhProgram, dim: str) -> bool:
    """Whether neighbours along a dimension may run a body together."""
    if straight_line(tuple(body)) or has_masked_form(body, program):
        return True
    own = {d.name: d.type for d in declared_in(body)}
    varies = Varying(program, dim, frozenset(own) - shared_in_lanes(tuple(body), program, dim))

    def together(e: Expr, all_lanes: bool) -> bool:
        if all_lanes and not varies(e):
            return True
        if isinstance(e, Load):
            return all_lanes and lane_step(e, dim, varies) == 1
        if may_fail(e) or (isinstance(e, Call) and not has_lanes(e, program)):
            return False
        chooses = isinstance(e, Select) or (isinstance(e, Binary) and e.op in LOGICAL)
        return all(together(c, all_lanes and not chooses) for c in children(e))

    def plain(s: Stmt, all_lanes: bool) -> bool:
        match s:
            case Declare(type=t, value=value):
                return (
                    isinstance(t, ScalarType)
                    and t.kind != "bool"
                    and (value is None or together(value, all_lanes))
                )
            case Assign(target=Var(name=name), value=value):
                return name in own and together(value, all_lanes)
            case If(cond=cond, then=then, other=other):
                inside = all_lanes and not varies(cond)
                return together(cond, all_lanes) and all(plain(x, inside) for x in (*then, *other))
            case While(cond=cond, body=inner):
                inside = all_lanes and not varies(cond)
                return together(cond, inside) and all(plain(x, inside) for x in inner)
            case _:
                return False

    return all(plain(s, True) for s in body)


@dataclass(frozen=True, slots=True)
class Varying:
    """Tells expressions that may differ between lanes along ``dim``; ``names``: variables that do."""

    program: MdhProgram
    dim: str
    names: frozenset[str]

    def __call__(self, e: Expr) -> bool:
        return any(map(self._differs, walk(e)))

    def _differs(self, n: Expr) -> bool:
        match n:
            case Var(name=name):
                return name == self.dim or name in self.names
            case Operand(access=k):
                return any(a.coefficient(self.dim) for a in self.program.inp.accesses[k].index)
            case Result():
                return True
            case _:
                return False


def lane_step(e: Load, dim: str, varies: Callable[[Expr], bool]) -> int | None:
    """1 where each lane reads the element behind the one that the lane before it reads, 0 where all read the
    same; otherwise None.
    """
    *others, last = (rise(i, dim, varies) for i in e.index) if e.index else (0,)
    return last if last in (0, 1) and all(r == 0 for r in others) else None


@functools.lru_cache(maxsize=256)
def shared_in_lanes(body: tuple[Stmt, ...], program: MdhProgram, dim: str) -> frozenset[str]:
    """Variables of a body that are the same in all lanes along a dimension, wherever they are used."""
    shared = frozenset(d.name for d in declared_in(body))
    while True:
        varies = Varying(program, dim, frozenset(d.name for d in declared_in(body)) - shared)
        left = shared - set(_set_apart(body, varies, False))
        if left == shared:
            return shared
        shared = left


def _set_apart(body: Sequence[Stmt], varies: Varying, apart: bool) -> Iterator[str]:
    """Variables that get values which differ; ``apart``: not all lanes may get there."""
    for s in body:
        match s:
            case Declare(name=name, value=value) if apart or (value is not None and varies(value)):
                yield name
            case Assign(target=Var(name=name), value=value) if apart or varies(value):
                yield name
            case If(cond=cond, then=then, other=other):
                yield from _set_apart((*then, *other), varies, apart or varies(cond))
            case While(cond=cond, body=inner):
                yield from _set_apart(inner, varies, apart or varies(cond))
            case _:
                pass


def _widest_along(body: tuple[Stmt, ...], ends: Sequence[Expr], program: MdhProgram, dim: str) -> int:
    """Bytes of the largest scalar that differs between lanes along a dimension."""
    own = {d.name: d.type for d in declared_in(body)}
    apart = frozenset(own) - shared_in_lanes(body, program, dim)
    varies = Varying(program, dim, apart)
    types = [own[name] for name in sorted(apart)]

    def visit(e: Expr) -> None:
        if varies(e):
            types.append(e.type)
            for c in () if isinstance(e, Load) else children(e):
                visit(c)

    for e in stmt_exprs(body):
        visit(e)
    size = max((t.size for t in types if isinstance(t, ScalarType)), default=1)
    return max(size, _widest_varying((), ends, {dim, *apart}))


def widest(body: Sequence[Stmt]) -> int:
    """Bytes of the largest scalar of a body; lanes are counted by it."""
    types = [n.type for e in stmt_exprs(tuple(body)) for n in walk(e)]
    types += [d.type for d in declared_in(body)]
    return max((t.size for t in types if isinstance(t, ScalarType)), default=1)


LONG = 24  # operations of a branch that is worth asking whether any lane takes it; measured on record linkage


def operations(body: Sequence[Stmt]) -> int:
    """How many operations statements have."""
    nodes = (n for e in stmt_exprs(tuple(body)) for n in walk(e))
    return sum(isinstance(n, Binary | Select | Unary | Call) for n in nodes)


def is_truth(e: Expr) -> bool:
    """Is the value of an expression 0 or 1 by its form?"""
    match e:
        case Binary(op=op):
            return op in COMPARISONS | LOGICAL
        case Unary(op=op):
            return op == "!"
        case _:
            return False


def steady_divisor(e: Binary) -> bool:
    """Whether an integer division cannot fail: by a constant other than 0 and -1."""
    return isinstance(e.b, Const) and e.b.value not in (0, -1)


def _is_integer(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer
