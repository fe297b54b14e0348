"""Nests in normal form: loops count from 0 by 1, subscripts are affine, flat arrays have their shape.

before   for (j = 2; j < n; j += 2) { p = i*K + j;  x += A[p]; }
after    for j in [0, ceil((n - 2)/2)): { p = i*K + (2 + 2*j);  x += A[i][2 + 2*j]; }

Scalars that a subscript mentions are replaced by their value.  All expressions of a normal nest are
over axes (``Var(name, INT64)``, counting from 0), parameters and scalars; the subscripts of a
``Load`` are ``affine_expr`` of an ``Affine``, so that equal cells are equal expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lifter.delinearise import FlatAccess, Poly, as_polynomial, find_shape, fit_shape, why_not_inside
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lifter.polyhedral import Constraint, at_least, covered, satisfiable
from mdh_core.conditions import assumed, relation
from mdh_core.diagnostics import Refusal, Related, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Return,
    ScalarType,
    Select,
    Stmt,
    Unary,
    Var,
    While,
    affine_expr,
    as_affine,
    base_of,
    map_children,
    map_stmts,
    rewrite,
    substitute,
    variables,
    walk,
)
from mdh_core.ir import Buffer, Param, Size
from mdh_core.polytope import without_implied
from mdh_core.source import Span


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop's index set: ``name`` runs over [0, size); the iterator is ``lower + step * name``.

    Where a bound depends on outer iterators, ``size`` is that of the smallest box over parameters, and
    ``constraints`` say which of its points the loop visits.
    """

    name: str
    size: Size
    lower: Affine
    step: int
    loop: Loop = field(compare=False, repr=False)
    constraints: tuple[Constraint, ...] = ()
    first: Affine = field(default=Affine(), compare=False)  # exact value of ``lower``
    span: Affine = field(default=Affine(), compare=False)  # exact span, over outer axes too
    single: bool = field(default=True, compare=False)  # one bound on either side

    @property
    def source_name(self) -> str:
        return self.loop.source_name or self.name

    @property
    def domain(self) -> tuple[Constraint, ...]:
        return (*axis_domain(self.name, self.size), *self.constraints)


def in_source(a: Affine, axes: Mapping[str, Axis]) -> Affine:
    """The value over the source's iterators instead of axes that count from 0, for messages.

    Where a step does not divide the coefficient, the axis stays.
    """
    out = Affine.number(a.const)
    for name, c in a.terms:
        axis = axes.get(name)
        if axis is None:
            out = out + Affine.of(name, c)
        elif c % axis.step:
            out = out + Affine.of(axis.source_name, c)
        else:
            out = out + (Affine.of(axis.source_name) - axis.lower) * (c // axis.step)
    return out


def axis_domain(name: str, size: Size) -> tuple[Constraint, ...]:
    i = Affine.of(name)
    return (at_least(i), Constraint(size.span - 1 - i * size.step))


@dataclass(frozen=True, slots=True)
class AxisLoop:
    axis: Axis
    body: tuple[NormalStmt, ...]


NormalStmt = AxisLoop | Declare | Assign | If | While
AnyStmt = NormalStmt | NestStmt | Stmt


@dataclass(frozen=True, slots=True)
class NormalNest:
    body: tuple[NormalStmt, ...]
    axes: dict[str, Axis]
    buffers: dict[str, Buffer]
    context: tuple[Constraint, ...]  # facts about parameters
    assumptions: tuple[tuple[str, Affine], ...]  # buffer, and what its shape needs to be >= 0
    accesses: tuple[RawAccess, ...]
    symbols: frozenset[str]  # what index functions may mention: axes and integer parameters

    def is_gather(self, load: Load) -> bool:
        """Does the index of a read depend on data, or is it not affine?"""
        index = [as_affine(i) for i in load.index]
        return any(a is None or not a.names <= self.symbols for a in index)


Cells = tuple[tuple[Constraint, ...], tuple[Affine, ...]]  # an index over the points that fulfil constraints


@dataclass(frozen=True, slots=True)
class RawAccess:
    """A reference in the text: where it stands, what it reads or writes, and when."""

    buffer: str
    index: tuple[Poly, ...]
    axes: tuple[Axis, ...]  # enclosing loops, outermost first
    facts: tuple[Constraint, ...]  # domain of the loops and affine conditions around it
    written: bool
    conditional: bool
    span: Span

    def moves(self, index: Sequence[Affine]) -> bool:
        """Whether it depends on an iterator."""
        return any(a.names & {x.name for x in self.axes} for a in index)

    def flat(self, index: Poly) -> FlatAccess:
        """An access with this index at the same points."""
        return FlatAccess(index, frozenset(a.name for a in self.axes), self.facts, self.written)


def is_load_of(e: Expr, names: frozenset[str] | set[str]) -> bool:
    return any(isinstance(n, Load) and n.buffer in names for n in walk(e))


def touched_anyway(normal: NormalNest) -> frozenset[str]:
    """Arrays that are read under conditions, where the nest touches all those cells without one, too."""
    under: dict[str, set[Cells]] = {}
    anyway: dict[str, dict[Cells, None]] = {}  # in the order of the text
    unknown: set[str] = set()
    for a in normal.accesses:
        index = tuple(p.affine for p in a.index if p.affine is not None)
        if not a.conditional:
            anyway.setdefault(a.buffer, {})[a.facts, index] = None
        elif len(index) == len(a.index):
            # where the condition does not hold, too
            everywhere = tuple(c for axis in a.axes for c in axis.domain)
            under.setdefault(a.buffer, set()).add((everywhere, index))
        else:
            unknown.add(a.buffer)
    inner = frozenset(normal.axes)
    return frozenset(
        name
        for name in under.keys() & anyway.keys() - unknown
        if all(covered(c, [x for x in anyway[name] if len(x[1]) == len(c[1])], inner) for c in under[name])
    )


# --------------------------------------------------------------------------- statements in general


def assigned_scalars(body: Sequence[AnyStmt]) -> set[str]:
    """Names of scalar variables that a statement list assigns, those that are declared with a value too."""
    return {name for t, _ in _targets(body) if (name := _scalar(t)) is not None}


def assigned_buffers(body: Sequence[AnyStmt]) -> set[str]:
    return {place.buffer for t, _ in _targets(body) if isinstance(place := base_of(t), Load)}


def declared(body: Sequence[AnyStmt]) -> set[str]:
    """Names declared directly in a statement list (not in inner blocks)."""
    return {s.name for s in body if isinstance(s, Declare)}


def _scalar(target: Expr) -> str | None:
    base = base_of(target)
    return base.name if isinstance(base, Var) else None


def _targets(body: Sequence[AnyStmt]) -> Iterator[tuple[Expr, Span]]:
    for s in body:
        match s:
            case Assign(target=target, span=span):
                yield target, span
            case If(then=then, other=other):
                yield from _targets(then)
                yield from _targets(other)
            case While(body=inner):
                yield from _targets(inner)
            case Loop(body=nested):
                yield from _targets(nested)
            case AxisLoop(body=axis_body):
                yield from _targets(axis_body)
            case Declare(name=name, type=t, value=value, span=span):
                if value is not None:
                    yield Var(name, t), span


# --------------------------------------------------------------------------- the pass


Shapes = Mapping[str, tuple[Affine, ...]]  # inner extents of flat buffers


def normalise(
    nest: LoopNest, facts: tuple[Constraint, ...] = (), shapes: Shapes | None = None
) -> NormalNest:
    """Raises ``Refusal``: MDH201, MDH202, MDH206, MDH214.

    ``facts``: what is known about parameters; ``shapes``: those that flat buffers are to have.
    """
    walker = _Walker(nest, facts)
    body = walker.statements(nest.body, {})
    return _with_shapes(nest, walker, body, shapes or {})


def _with_shapes(
    nest: LoopNest, walker: _Walker, body: tuple[NormalStmt, ...], shapes: Shapes
) -> NormalNest:
    buffers = {b.name: b for b in nest.buffers}
    chosen: dict[tuple[str, tuple[Poly, ...]], tuple[Affine, ...]] = {}
    assumptions = [(name, fact) for name in buffers for fact in nest.facts]
    for name, buffer in buffers.items():
        uses = [a for a in walker.accesses if a.buffer == name]
        if buffer.rank == 1 and uses and name not in walker.gathered:
            try:
                buffers[name], needed = _delinearise(buffer, uses, chosen, shapes.get(name))
            except Refusal:
                if name in walker.written:
                    raise
                walker.gathered.add(name)  # any of its cells may be read
            else:
                assumptions += [(name, a) for a in needed]
        for use in uses:
            key = (name, use.index)
            if key in chosen:
                continue
            index = []
            for p in use.index:
                a = p.affine
                if a is None and (use.written or name not in walker.gathered):
                    raise _not_affine(buffer, p, use)
                if a is not None:
                    index.append(a)
            if len(index) == len(use.index):
                chosen[key] = tuple(index)
        if buffer.rank > 1 and name in walker.written:
            assumptions += [(name, a) for a in without_implied(_within_lines(buffer, uses, chosen))]

    def finish(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        polys = tuple(as_polynomial(i) or Poly() for i in e.index)
        if (e.buffer, polys) not in chosen or not all(map(as_polynomial, e.index)):
            assert e.buffer in walker.gathered
            return None
        return replace(e, index=tuple(affine_expr(a) for a in chosen[e.buffer, polys]))

    return NormalNest(
        _map_expressions(body, lambda e: rewrite(e, finish)),
        walker.axes,
        buffers,
        walker.context,
        tuple(assumptions),
        tuple(
            replace(a, index=tuple(Poly.from_affine(x) for x in chosen[a.buffer, a.index]))
            for a in walker.accesses
            if (a.buffer, a.index) in chosen
        ),
        frozenset(walker.axes) | {p.name for p in nest.params},
    )


def _delinearise(
    buffer: Buffer,
    uses: list[RawAccess],
    chosen: dict[tuple[str, tuple[Poly, ...]], tuple[Affine, ...]],
    known: tuple[Affine, ...] | None,
) -> tuple[Buffer, tuple[Affine, ...]]:
    flat: dict[tuple[tuple[Poly, ...], tuple[Constraint, ...]], FlatAccess] = {}
    for use in uses:
        inside = frozenset(a.name for a in use.axes)
        for m, _ in use.index[0].terms:
            if sum(n in inside for n in m) > 1:
                raise _not_affine(buffer, use.index[0], use)
        written = use.written or ((old := flat.get((use.index, use.facts))) is not None and old.written)
        flat[use.index, use.facts] = replace(use.flat(use.index[0]), written=written)
    every = tuple(flat.values())
    shape = find_shape(every) if known is None else fit_shape(every, known)
    if shape is None:
        first = next((u for u in uses if u.index[0].affine is None), uses[0])
        others = tuple(
            Related(u.span, "also accessed here") for u in uses if u.index != first.index and u.span
        )
        raise refuse(
            "MDH206",
            f"flat index of `{buffer.name}` could not be taken apart",
            first.span,
            related=others[:1],
            label=f"`{buffer.name}` has no shape that fits all of its accesses",
            help=f"declare `{buffer.name}` with its dimensions, for example as a pointer to rows",
        )
    for (key, _), index in zip(flat, shape.indices, strict=True):
        chosen[buffer.name, key] = index
    if not shape.extents:
        return buffer, ()
    return replace(buffer, extents=(None, *shape.extents)), shape.assumptions


def _within_lines(
    buffer: Buffer,
    uses: list[RawAccess],
    chosen: Mapping[tuple[str, tuple[Poly, ...]], tuple[Affine, ...]],
) -> Iterator[Affine]:
    """What must be >= 0 for every index to lie within the extents that the array is declared with.

    Beyond the end of a line is the next one: two indices might be one cell.  Where all indices are of one
    line, there are no others.
    """
    known = [(u, chosen[buffer.name, u.index]) for u in uses if (buffer.name, u.index) in chosen]
    for k, extent in enumerate(buffer.extents[1:], start=1):
        lines = {index[:k] for _, index in known}
        if extent is None or (len(lines) == 1 and not any(u.moves(index[:k]) for u, index in known)):
            continue
        for u, index in known:
            for margin in (index[k], extent - 1 - index[k]):
                needed = why_not_inside(margin, u.flat(Poly.from_affine(index[k])))
                if needed is not None and satisfiable([*u.facts, Constraint(needed)]):
                    yield needed


def _not_affine(buffer: Buffer, p: Poly, use: RawAccess) -> Exception:
    inside = {a.name: a.source_name for a in use.axes}
    product = next((m for m, _ in p.terms if len(m) > 1), ())
    text = "*".join(inside.get(n, n) for n in product)
    return refuse(
        "MDH201",
        f"index of `{buffer.name}` is not affine",
        use.span,
        label=f"`{text}` is not linear in the loop iterators" if text else "",
        help="use subscripts that are linear in the iterators, or keep this nest as it is",
    )


class _Walker:
    """One walk over the nest: iterators and subscripts rewritten, accesses recorded."""

    def __init__(self, nest: LoopNest, facts: tuple[Constraint, ...]) -> None:
        self.nest = nest
        self.axes: dict[str, Axis] = {}
        self.accesses: list[RawAccess] = []
        self.gathered: set[str] = set()  # buffers that are read at indices that depend on data
        self.iterators: dict[str, Expr] = {}
        self.buffers = {b.name: b for b in nest.buffers}
        self.assigned = assigned_scalars(nest.body)
        self.written = assigned_buffers(nest.body)
        self.params = {p.name: p for p in nest.params}
        known = (*assumed(nest.directive.assume, nest.params), *map(at_least, nest.facts))
        self.context = (*unsigned_facts(nest.params), *known, *facts)
        self.stack: tuple[Axis, ...] = ()
        self.facts: tuple[Constraint, ...] = self.context
        self.under_condition = False

    # ----------------------------------------------------------------- statements

    def statements(self, body: Sequence[NestStmt], known: dict[str, Expr]) -> tuple[NormalStmt, ...]:
        return tuple(self.statement(s, known) for s in body)

    def statement(self, s: NestStmt | Stmt, known: dict[str, Expr]) -> NormalStmt:
        match s:
            case Loop():
                return self.loop(s, known)
            case Declare(name=name, value=value):
                new = None if value is None else self.expression(value, known, s.span)
                self.learn(name, new, known)
                return replace(s, value=new)
            case Assign(target=target, value=value):
                new = self.expression(value, known, s.span)
                place = self.target(target, known, s.span)
                if isinstance(place, Var):
                    self.learn(place.name, new, known)
                return replace(s, target=place, value=new)
            case If(cond=cond, then=then, other=other):
                c = self.expression(cond, known, s.span)
                branches = []
                after = []
                for inner, wanted in ((then, True), (other, False)):
                    copy = dict(known)
                    with _Guard(self, self.facts_of(c, wanted, copy)):
                        branches.append(tuple(self.statement(t, copy) for t in inner))
                    after.append(copy)
                for name in sorted(set(known) | set(after[0]) | set(after[1])):
                    if after[0].get(name) == after[1].get(name) and name in after[0]:
                        known[name] = after[0][name]
                    else:
                        known.pop(name, None)
                return replace(s, cond=c, then=branches[0], other=branches[1])  # type: ignore[arg-type] # loops in it
            case While(cond=cond, body=inner):
                for name in assigned_scalars(inner):
                    known.pop(name, None)
                c = self.expression(cond, known, s.span)
                copy = dict(known)
                with _Guard(self, ()):
                    new_body = tuple(self.statement(t, copy) for t in inner)
                return replace(s, cond=c, body=new_body)  # type: ignore[arg-type] # loops in it
        raise AssertionError(s)

    def learn(self, name: str, value: Expr | None, known: dict[str, Expr]) -> None:
        """Remember a scalar's value where it is a polynomial of iterators and parameters."""
        value = None if value is None else substitute(value, known)
        known.pop(name, None)
        if value is None or variables(value) & self.assigned or sum(1 for _ in walk(value)) > 500:
            return
        if as_polynomial(value) is not None or _is_choice(value):
            known[name] = value

    def loop(self, loop: Loop, known: dict[str, Expr]) -> AxisLoop:
        up = loop.step > 0
        lowers = self.bounds(loop.lower, loop, known, "max" if up else "min")
        uppers = self.bounds(loop.upper, loop, known, "min" if up else "max")
        axis = self.axis(loop, lowers[0], uppers[0])
        if len(lowers) + len(uppers) > 2:
            axis = self.narrowed(axis, lowers[1:], uppers[1:], up)
        lower = axis.lower
        i: Expr = Var(loop.iterator, INT64)
        if loop.step != 1:
            i = Binary("*", Const(loop.step, INT64), i, INT64)
        if lower != Affine.number(0):
            i = Binary("+", affine_expr(lower, self.param_types()), i, INT64)
        self.axes[axis.name] = axis
        self.iterators[loop.iterator] = i if loop.type == INT64 else Cast(i, loop.type)
        changed = assigned_scalars(loop.body)
        for name in [n for n, v in known.items() if n in changed or variables(v) & changed]:
            del known[name]
        inside = dict(known)
        outer_stack, outer_facts = self.stack, self.facts
        self.stack, self.facts = (*outer_stack, axis), (*outer_facts, *axis.domain)
        body = tuple(self.statement(s, inside) for s in loop.body)
        self.stack, self.facts = outer_stack, outer_facts
        return AxisLoop(axis, body)

    def param_types(self) -> dict[str, ScalarType]:
        return {n: p.type for n, p in self.params.items() if isinstance(p.type, ScalarType)}

    def axis(self, loop: Loop, lower: Affine, upper: Affine) -> Axis:
        """The axis of a loop whose bounds are affine over outer axes and parameters."""
        outer = {a.name for a in self.stack}
        up = loop.step > 0
        moving = Affine.from_dict({n: c for n, c in lower.terms if n in outer})
        if any(c % loop.step for _, c in moving.terms):
            low = lower  # the points of two rows are not those of one grid
        else:
            low = self.extreme(lower, largest=not up)
        span = upper - low if up else low - upper
        span_exact = upper - lower if up else lower - upper
        size = Size(self.extreme(span, largest=True), abs(loop.step))
        value = low + Affine.of(loop.iterator, loop.step)
        constraints = []
        if lower != low:
            constraints.append(at_least(value - lower if up else lower - value))
        if span.names & outer:
            constraints.append(at_least(upper - value if up else value - upper, 1))
        return Axis(loop.iterator, size, low, loop.step, loop, tuple(constraints), lower, span_exact)

    def narrowed(self, axis: Axis, lowers: list[Affine], uppers: list[Affine], up: bool) -> Axis:
        """An axis with further bounds."""
        value = axis.lower + Affine.of(axis.name, axis.step)
        more = [at_least(value - a if up else a - value) for a in lowers]
        more += [at_least(a - value if up else value - a, 1) for a in uppers]
        return replace(axis, constraints=(*axis.constraints, *more), single=False)

    def bounds(self, e: Expr, loop: Loop, known: dict[str, Expr], name: str) -> list[Affine]:
        """The affine values of which a bound is the ``name`` (max or min); that without iterators first."""
        parts = choices(substitute(e, {**self.iterators, **known}), name, self.axes)
        if len(parts) > 1 and abs(loop.step) == 1:
            found = [self.bound(p, loop, {}, {}) for p in parts]
            outer = {a.name for a in self.stack}
            return sorted(found, key=lambda a: (len(a.names & outer), len(a.terms)))
        return [self.bound(e, loop, known, self.iterators)]

    def extreme(self, a: Affine, largest: bool) -> Affine:
        """A bound over parameters of an affine value, for all values of the outer axes."""
        for axis in reversed(self.stack):
            c = a.coefficient(axis.name)
            if not c:
                continue
            at = Affine.number(0)
            if (c > 0) == largest:
                step = axis.size.step
                at = (axis.size.span - 1) * (c // step if c % step == 0 else c)
            a = a.substitute({axis.name: Affine.number(0)}) + at
        return a

    def apart(self, read: Sequence[Load]) -> str:
        """What helps where a bound is read from memory that the nest might write."""
        groups = self.nest.directive.noalias
        for name in sorted(self.written - {n.buffer for n in read}):
            b = self.buffers[name]
            named = any(name in g and n.buffer in g for n in read for g in groups)
            if not (b.restrict or b.distinct or named):
                return f"declare `{name}` as `restrict`, or name it with what is read in `noalias` clauses"
        return WHOLE_RANGE

    def bound(self, e: Expr, loop: Loop, known: dict[str, Expr], iterators: dict[str, Expr]) -> Affine:
        e = substitute(e, {**iterators, **known})
        name = loop.source_name or loop.iterator
        moving = sorted(variables(e) & self.assigned)
        if moving:
            raise refuse(
                "MDH202",
                f"bound of the loop over `{name}` changes while the nest runs",
                loop.span,
                label=f"`{moving[0]}` is assigned inside the nest",
                help=f"compute the bound before the nest, or {WHOLE_RANGE}",
            )
        read = [n for n in walk(e) if isinstance(n, Load)]
        if read:
            stays = not any(n.buffer in self.written or variables(n) & self.axes.keys() for n in read)
            raise refuse(
                "MDH202",
                f"bound of the loop over `{name}` is read from memory",
                loop.span,
                help="copy the bound into a variable before the nest" if stays else self.apart(read),
            )
        a = as_affine(e)
        if a is None:
            raise refuse(
                "MDH202",
                f"bound of the loop over `{name}` is not affine",
                loop.span,
                help=_no_product(e, set(self.axes)),
            )
        unknown = sorted(a.names - set(self.axes) - set(self.params))
        if unknown:
            raise refuse(
                "MDH202",
                f"bound of the loop over `{name}` changes while the nest runs",
                loop.span,
                label=f"`{unknown[0]}` is computed inside the nest",
                help=f"compute the bound before the nest, or {WHOLE_RANGE}",
            )
        return a

    # ----------------------------------------------------------------- expressions

    def expression(self, e: Expr, known: dict[str, Expr], span: Span) -> Expr:
        """Iterators replaced, subscripts rewritten and recorded; conditions guard what they select."""
        match e:
            case Var(name=name) if name in self.iterators:
                return self.iterators[name]
            case Load():
                return self.load(e, known, span, written=False)
            case Select(cond=cond, then=then, other=other):
                c = self.expression(cond, known, span)
                with _Guard(self, self.facts_of(c, True, known)):
                    t = self.expression(then, known, span)
                with _Guard(self, self.facts_of(c, False, known)):
                    o = self.expression(other, known, span)
                return replace(e, cond=c, then=t, other=o)
            case Binary(op="&&" | "||" as op, a=a, b=b):
                x = self.expression(a, known, span)
                with _Guard(self, self.facts_of(x, op == "&&", known)):
                    y = self.expression(b, known, span)
                return replace(e, a=x, b=y)
            case _:
                return map_children(e, lambda child: self.expression(child, known, span))

    def target(self, e: Expr, known: dict[str, Expr], span: Span) -> Expr:
        match e:
            case Load():
                return self.load(e, known, span, written=True)
            case Var():
                return e
            case _:
                return map_children(e, lambda child: self.target(child, known, span))

    def load(self, e: Load, known: dict[str, Expr], span: Span, written: bool) -> Load:
        where = e.span or span
        if any(isinstance(n, Load) or self.is_unknown(n, known) for i in e.index for n in walk(i)):
            return self.gather(e, known, where, written)
        values = [substitute(i, {**self.iterators, **known}) for i in e.index]
        if not written and e.buffer not in self.written and None in map(as_polynomial, values):
            return self.gather(e, known, where, written)
        index = tuple(self.subscript(i, e, known, where) for i in e.index)
        polys = tuple(p for _, p in index)
        self.accesses.append(
            RawAccess(e.buffer, polys, self.stack, self.facts, written, self.under_condition, where)
        )
        return replace(e, index=tuple(i for i, _ in index), span=where)

    def is_unknown(self, n: Expr, known: dict[str, Expr]) -> bool:
        """A variable without a value that is linear in the iterators."""
        if not isinstance(n, Var) or n.name in known or n.name in self.iterators:
            return False
        return n.name in self.assigned or n.name not in self.params

    def gather(self, e: Load, known: dict[str, Expr], span: Span, written: bool) -> Load:
        """A read at an index that depends on data, of a buffer that the nest does not write."""
        loads = [n.buffer for i in e.index for n in walk(i) if isinstance(n, Load)]
        used = [n for i in e.index for n in walk(i) if isinstance(n, Var)]
        names = [n.name for n in used if self.is_unknown(n, known)]
        if written or e.buffer in self.written:
            raise refuse(
                "MDH214",
                f"index of `{e.buffer}` depends on data"
                + (", and the nest writes it" if not written else ""),
                span,
                label=f"this subscript reads `{loads[0]}`"
                if loads
                else f"this subscript uses `{names[0]}`",
                help="gather the values into an array of their own before the nest"
                if not written
                else "write each cell once, at an index that is linear in the iterators",
            )
        self.gathered.add(e.buffer)
        return replace(e, index=tuple(self.expression(i, known, span) for i in e.index), span=span)

    def subscript(self, e: Expr, load: Load, known: dict[str, Expr], span: Span) -> tuple[Expr, Poly]:
        new = substitute(e, {**self.iterators, **known})
        unknown = sorted(variables(new) & self.assigned)
        if unknown:
            raise refuse(
                "MDH201",
                f"index of `{load.buffer}` is not affine",
                span,
                label=f"`{unknown[0]}` has no value that is linear in the loop iterators",
                help=f"write the value of `{unknown[0]}` in terms of the iterators",
            )
        p = as_polynomial(new)
        if p is None:
            raise refuse(
                "MDH201",
                f"index of `{load.buffer}` is not affine",
                span,
                label="not linear in the loop iterators",
                help="use subscripts that are linear in the iterators, such as `2*i + j - 1`",
            )
        return new, p

    # ----------------------------------------------------------------- conditions

    def facts_of(self, cond: Expr, wanted: bool, known: dict[str, Expr]) -> tuple[Constraint, ...]:
        return tuple(affine_facts(substitute(cond, known), wanted, self.non_negative))

    def non_negative(self, a: Affine) -> bool:
        return not satisfiable([*self.facts, Constraint(-a - 1)])


UNTILE = "or write the loops without tiles"


def _no_product(e: Expr, iterators: set[str]) -> str:
    """What to do about a bound that is not affine."""
    for n in walk(e):
        if isinstance(n, Binary) and n.op == "*" and variables(n) & iterators:
            factors = sorted((variables(n.a) | variables(n.b)) - iterators)
            if factors:
                return f"make `{factors[0]}` a constant, {UNTILE}"
    return "use sums of iterators and sizes, their multiples, `min` and `max`"


class _Guard:
    def __init__(self, walker: _Walker, facts: tuple[Constraint, ...]) -> None:
        self.walker, self.facts = walker, facts

    def __enter__(self) -> None:
        self.before = (self.walker.facts, self.walker.under_condition)
        self.walker.facts = (*self.walker.facts, *self.facts)
        self.walker.under_condition = True

    def __exit__(self, *_: object) -> None:
        self.walker.facts, self.walker.under_condition = self.before


def choices(e: Expr, name: str, counters: Collection[str] = ()) -> list[Expr]:
    """The operands of nested ``max``es (``min``s) written as choices; otherwise the value itself.

    ``counters``: variables that are not negative, though signed; unsigned numbers are compared as what they
    stand for where nothing is taken from them.
    """
    e = without_casts(e)
    if isinstance(e, Binary) and e.op in ("+", "-"):
        parts = choices(e.a, name, counters)
        if isinstance(e.b, Const) or (len(parts) > 1 and _is_sum(e, counters)):
            return [replace(e, a=x) for x in parts]
        parts = choices(e.b, name, counters) if e.op == "+" else []
        if len(parts) > 1 and _is_sum(e, counters):
            return [replace(e, b=x) for x in parts]
    if isinstance(e, Select) and isinstance(e.cond, Binary) and e.cond.op in ("<", "<=", ">", ">="):
        x, y = without_casts(e.cond.a), without_casts(e.cond.b)
        then, other = without_casts(e.then), without_casts(e.other)
        smaller = e.cond.op in ("<", "<=")
        if (then, other) == (y, x):
            smaller = not smaller
        elif (then, other) != (x, y):
            return [e]
        signed = isinstance(e.cond.a.type, ScalarType) and e.cond.a.type.is_signed
        if smaller == (name == "min") and (signed or (_only_grows(x, counters) and _only_grows(y, counters))):
            return choices(then, name, counters) + choices(other, name, counters)
    return [e]


def _is_sum(e: Binary, counters: Collection[str]) -> bool:
    """Is a sum or a difference what it stands for?"""
    return (isinstance(e.type, ScalarType) and e.type.is_signed) or _only_grows(e, counters)


def _only_grows(e: Expr, counters: Collection[str]) -> bool:
    """Is a value a sum of products of what is not negative?"""
    match e:
        case Const(value=int(value)):
            return value >= 0
        case Var(name=name, type=ScalarType() as t):
            return name in counters or (t.is_integer and not t.is_signed)
        case Cast(a=a, type=t):
            return t.is_integer and t.bits >= 32 and _only_grows(a, counters)
        case Binary(op="+" | "*", a=a, b=b):
            return _only_grows(a, counters) and _only_grows(b, counters)
        case Select(then=then, other=other):
            return _only_grows(then, counters) and _only_grows(other, counters)
    return False


def without_casts(e: Expr) -> Expr:
    """The value without conversions between integer types that keep iterators and sizes."""
    while isinstance(e, Cast) and e.type.is_integer and _whole(e.a) and e.type.bits >= 32:
        e = e.a
    return e


def _is_choice(e: Expr) -> bool:
    """Is the value one of several that are linear in the iterators?"""
    match e:
        case Cast(a=a):
            return _is_choice(a)
        case Select(cond=Binary(a=a, b=b), then=then, other=other):
            return all(as_polynomial(x) is not None or _is_choice(x) for x in (a, b, then, other))
    return False


def _whole(e: Expr) -> bool:
    return isinstance(e.type, ScalarType) and e.type.is_integer


def unsigned_facts(params: Sequence[Param]) -> list[Constraint]:
    return [
        at_least(Affine.of(p.name))
        for p in params
        if isinstance(p.type, ScalarType) and p.type.kind in ("uint", "bool")
    ]


WHOLE_RANGE = "loop over the whole range and guard the body with an `if`"
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


NonNegative = Callable[[Affine], bool]


def affine_facts(cond: Expr, wanted: bool, known: NonNegative) -> list[Constraint]:
    """What is known about iterators and parameters where ``cond`` is (not) true; not complete."""
    match cond:
        case Binary(op="&&", a=a, b=b) if wanted:
            return affine_facts(a, True, known) + affine_facts(b, True, known)
        case Binary(op="||", a=a, b=b) if not wanted:
            return affine_facts(a, False, known) + affine_facts(b, False, known)
        case Unary(op="!", a=a):
            return affine_facts(a, not wanted, known)
        case Cast(a=a):
            return affine_facts(a, wanted, known) if is_condition(a) else []
        case Binary(op=op, a=a, b=b) if op in _NEGATED:
            return _compared(op if wanted else _NEGATED[op], a, b, known) or []
    return []


def exact_facts(cond: Expr, known: NonNegative) -> list[Constraint] | None:
    """Constraints that hold exactly where ``cond`` does; None where it is no conjunction of such."""
    match cond:
        case Binary(op="&&", a=a, b=b):
            x, y = exact_facts(a, known), exact_facts(b, known)
            return None if x is None or y is None else x + y
        case Unary(op="!", a=Unary(op="!", a=a)):
            return exact_facts(a, known)
        case Unary(op="!", a=Binary(op="||", a=a, b=b)):
            return exact_facts(Binary("&&", Unary("!", a, INT32), Unary("!", b, INT32), INT32), known)
        case Unary(op="!", a=Binary(op=op, a=a, b=b)) if op in _NEGATED:
            return _compared(_NEGATED[op], a, b, known)
        case Cast(a=a, type=t):
            return exact_facts(a, known) if t.is_integer and is_condition(a) else None
        case Binary(op="!=", a=a, b=Const(value=0)) if is_condition(a) or _is_not(a):
            return exact_facts(a, known)
        case Binary(op=op, a=a, b=b) if op in _NEGATED:
            return _compared(op, a, b, known)
    return None


def _is_not(e: Expr) -> bool:
    return isinstance(e, Unary) and e.op == "!"


def _compared(op: str, a: Expr, b: Expr, known: NonNegative) -> list[Constraint] | None:
    x, y = strictly_affine(a, known), strictly_affine(b, known)
    if x is None or y is None:
        return None
    if op == "!=":  # it is the one or the other, where it is known which of them is not less
        larger = next((d for d in (x - y, y - x) if known(d)), None)
        return None if larger is None else [Constraint(larger - 1)]
    return relation(op, x, y)


def strictly_affine(e: Expr, known: NonNegative) -> Affine | None:
    """The affine value of an integer expression where no conversion and no unsigned operation changes it.

    Signed arithmetic does not overflow in a program that has a meaning; ``known``: is a value at least 0?
    """
    match e:
        case Const(value=int(value)):
            return Affine.number(value)
        case Var(name=name, type=ScalarType() as t) if t.is_integer:
            return Affine.of(name)
        case Cast(a=a, type=t) if t.is_integer:
            inner = strictly_affine(a, known)
            if inner is None or not isinstance(a.type, ScalarType):
                return None
            wide = t.kind == "int" and (t.bits >= 32 if a.type.kind == "int" else t.bits > a.type.bits)
            return inner if wide or (t.kind == "uint" and t.bits >= 32 and known(inner)) else None
        case Unary(op="-", a=a, type=t) if t.is_signed:
            inner = strictly_affine(a, known)
            return None if inner is None else -inner
        case Binary(op="+" | "-" | "*" as op, a=a, b=b, type=t):
            x, y = strictly_affine(a, known), strictly_affine(b, known)
            if x is None or y is None:
                return None
            if op == "*":
                if not (x.is_constant or y.is_constant):
                    return None
                out = y * x.const if x.is_constant else x * y.const
            else:
                out = x + y if op == "+" else x - y
            return out if t.is_signed or known(out) else None
        case _:
            return None


def is_condition(e: Expr) -> bool:
    return isinstance(e, Binary) and e.type == INT32 and (e.op in _NEGATED or e.op in ("&&", "||"))


def depends_on_data(cond: Expr, axes: dict[str, Axis], params: Sequence[Param]) -> bool:
    """Does a condition mention anything but iterators and parameters?"""
    names = set(axes) | {p.name for p in params}
    return any(isinstance(n, Load) for n in walk(cond)) or not variables(cond) <= names


def _map_expressions(body: tuple[NormalStmt, ...], f: Callable[[Expr], Expr]) -> tuple[NormalStmt, ...]:
    out: list[NormalStmt] = []
    for s in body:
        if isinstance(s, AxisLoop):
            out.append(AxisLoop(s.axis, _map_expressions(s.body, f)))
        elif isinstance(s, If):
            then, other = (_map_expressions(b, f) for b in (s.then, s.other))  # type: ignore[arg-type]
            out.append(replace(s, cond=f(s.cond), then=then, other=other))  # type: ignore[arg-type]
        else:
            out += [t for t in map_stmts((s,), f) if not isinstance(t, Return)]
    return tuple(out)
