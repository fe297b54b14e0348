"""The MDH project's meaning of a nest: a store `=` into a cell that all of a reduced dimension shares.

    combine_ops(cc, pw(add))
    for i: for k: w[i] = M[i, k] * v[k]         w = out_view( md_hom( f, (++, +) )( inp_view(M, v) ) )

Plain Python keeps the last value of ``k``; the MDH project combines all of them.  The old ``w`` does not
count: ``md_hom`` overwrites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lifter.annotations import OpClause
from lifter.lift import LIFTED, LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.combine import (
    CC,
    CombineFunction,
    CombineOp,
    ps,
    pw,
    scalar_operator,
    tuple_operator,
    user_operator,
)
from mdh_core.diagnostics import Diagnostic, refuse
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Cast,
    Declare,
    Expr,
    If,
    Load,
    Operand,
    RecordType,
    Result,
    ScalarType,
    Stmt,
    Type,
    Var,
    While,
    affine_expr,
    as_affine,
    map_stmts,
    rewrite,
    substitute,
    walk,
)
from mdh_core.ir import Access, Dim, InputView, MdHom, MdhProgram, OutputView, ScalarFunction, Size, Store
from mdh_core.rules import verify
from mdh_core.source import Span


def assigns_in_reduction(nest: LoopNest) -> Assign | None:
    """The first store that plain Python overwrites and the MDH project combines; None: there is none."""
    perfect = _perfect(nest.body)
    if perfect is None:
        return None
    loops, body = perfect
    reduced = _reduced(nest, loops)
    for s in body:
        if isinstance(s, Assign) and isinstance(s.target, Load) and reduced:
            names = {n.name for i in s.target.index for n in walk(i) if isinstance(n, Var)}
            reads_itself = any(isinstance(n, Load) and n.buffer == s.target.buffer for n in walk(s.value))
            if not names & reduced and not reads_itself:
                return s
    return None


def combined(nest: LoopNest, store: Assign) -> LiftedNest:
    """The nest with the MDH project's meaning of ``store``, and a warning; raises a ``Refusal``."""
    place = _place(store)
    warning = Diagnostic(
        "MDH415",
        f"`=` into `{place.buffer}` combines over the reduced dimensions here; plain Python would keep the "
        "last value",
        nest.file,
        store.span,
        help="write an accumulation such as `+=` to mean the same in both",
    )
    return LiftedNest(nest, LIFTED, (factory_program(nest),), (warning,))


def factory_program(nest: LoopNest) -> MdhProgram:
    """The program that the MDH project means; raises a ``Refusal`` where the nest has another form."""
    perfect = _perfect(nest.body)
    assert perfect is not None
    loops, body = perfect
    ops = _clauses(nest, loops)
    named, stores = _divided(body)
    views = _Views(loops)
    scalar = tuple(t for t in map_stmts(named, views.expression))
    results = [views.expression(s.value) for s in stores]
    types = [_type_of(s.target) for s in stores]
    combine = tuple(_operator(clause, types, nest) for clause in ops)
    dims = tuple(Dim(x.iterator, _size(x)) for x in loops)
    places = tuple(
        Store(_place(s).buffer, views.index(_place(s)), Result(c, t))
        for c, (s, t) in enumerate(zip(stores, types, strict=True))
    )
    program = MdhProgram(
        nest.function, nest.params, nest.buffers, InputView(tuple(views.accesses)),
        MdHom(dims, ScalarFunction(tuple(results), scalar), combine),
        OutputView((None,) * len(stores), places), nest.functions, nest.directive.fp, (), nest.span,
    )  # fmt: skip
    broken = verify(program)
    if broken:
        raise refuse("MDH209", broken[0], nest.span)
    return program


def _perfect(body: Sequence[NestStmt]) -> tuple[list[Loop], tuple[Stmt, ...]] | None:
    """The loops of a perfect nest and what stands in the innermost one."""
    loops: list[Loop] = []
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    inner = tuple(s for s in body if isinstance(s, Declare | Assign | If | While))
    return (loops, inner) if loops and len(inner) == len(body) else None


def _clauses(nest: LoopNest, loops: Sequence[Loop]) -> list[OpClause]:
    clauses = nest.directive.combine_ops
    if any(c.iterator for c in clauses):
        named = {c.iterator: c for c in clauses}
        return [named.get(x.source_name, OpClause("cc")) for x in loops]
    if len(clauses) != len(loops):
        raise refuse(
            "MDH403", f"{len(clauses)} combine operators for {len(loops)} loops", nest.directive_span
        )
    return list(clauses)


def _reduced(nest: LoopNest, loops: Sequence[Loop]) -> set[str]:
    clauses = nest.directive.combine_ops
    if not clauses or (not any(c.iterator for c in clauses) and len(clauses) != len(loops)):
        return set()
    return {x.iterator for x, c in zip(loops, _clauses(nest, loops), strict=True) if c.kind == "pw"}


def _divided(body: Sequence[Stmt]) -> tuple[tuple[Stmt, ...], list[Assign]]:
    """What computes values, then the stores."""
    stores = [s for s in body if isinstance(s, Assign) and isinstance(s.target, Load)]
    first = next((k for k, s in enumerate(body) if s in stores), len(body))
    if any(s not in stores for s in body[first:]) or any(_stored(s) for s in body[:first]):
        raise refuse("MDH211", "the stores do not stand at the end of the innermost loop", _span(body))
    return tuple(body[:first]), stores


def _stored(s: Stmt) -> bool:
    return any(isinstance(t, Load) for t in _targets((s,)))


def _targets(body: Sequence[Stmt]) -> Iterator[Expr]:
    for s in body:
        match s:
            case Assign(target=target):
                yield target
            case If(then=then, other=other):
                yield from _targets((*then, *other))
            case While(body=inner):
                yield from _targets(inner)
            case _:
                pass


def _span(body: Sequence[Stmt]) -> Span:
    return body[0].span


def _place(s: Assign) -> Load:
    assert isinstance(s.target, Load)
    return s.target


def _type_of(target: Expr) -> Type:
    return target.type


def _size(x: Loop) -> Size:
    lower, upper = as_affine(x.lower), as_affine(x.upper)
    if lower is None or upper is None:
        raise refuse("MDH202", "bound is not affine", x.span)
    span = upper - lower if x.step > 0 else lower - upper
    return Size(span, abs(x.step))


class _Views:
    """Loads as operands; iterators by the dimensions that count them."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self.accesses: list[Access] = []
        self.positions: dict[str, Affine] = {}
        self.values: dict[str, Expr] = {}
        for x in loops:
            lower = as_affine(x.lower)
            if lower is None:
                raise refuse("MDH202", "bound is not affine", x.span)
            position = lower + Affine.of(x.iterator) * x.step
            self.positions[x.iterator] = position
            at = affine_expr(position)
            self.values[x.iterator] = at if x.type == INT64 else Cast(at, x.type)

    def index(self, load: Load) -> tuple[Affine, ...]:
        out = []
        for e in load.index:
            a = as_affine(e)
            if a is None:
                raise refuse("MDH201", f"index of `{load.buffer}` is not affine", load.span)
            out.append(a.substitute(self.positions))
        return tuple(out)

    def expression(self, e: Expr) -> Expr:
        def one(n: Expr) -> Expr | None:
            if not isinstance(n, Load):
                return None
            access = Access(n.buffer, self.index(n))
            if access not in self.accesses:
                self.accesses.append(access)
            return Operand(self.accesses.index(access), n.type)

        return substitute(rewrite(e, one), self.values)


def _operator(clause: OpClause, types: Sequence[Type], nest: LoopNest) -> CombineOp:
    if clause.kind == "cc":
        return CC
    names = clause.functions if len(clause.functions) == len(types) else clause.functions * len(types)
    if len(names) != len(types):
        raise refuse("MDH403", f"{len(clause.functions)} functions for {len(types)} results", clause.span)
    parts = [operator_of(f, t, nest, clause.span) for f, t in zip(names, types, strict=True)]
    whole = tuple_operator(tuple(parts))
    return pw(whole) if clause.kind == "pw" else ps(whole)


def operator_of(name: str, t: Type, nest: LoopNest, span: Span) -> CombineFunction:
    """The combine function of a name on a type."""
    function = next((f for f in nest.functions if f.name == name), None)
    if function is not None and function.type == t:
        return user_operator(function)
    found = scalar_operator(name, t) if isinstance(t, ScalarType) else None
    if found is None:
        shown = t.name if isinstance(t, RecordType) else str(t)
        raise refuse("MDH405", f"`{name}` combines no values of type `{shown}`", span)
    return found
