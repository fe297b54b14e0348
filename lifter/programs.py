"""What a nest leaves behind, as ``MdhProgram``s.

Every place that outlives the nest and was changed is an output.  Outputs over the same dimensions
with the same operators share one ``md_hom``; the others become programs of their own, ordered so
that each reads what it read in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lifter.contributions import restricted
from lifter.decided import simplified
from lifter.dependences import Order, Read, Write, meet, order, why_not_injective, why_refused
from lifter.legality import why_not_well_defined
from lifter.loop_nest import LoopNest
from lifter.normalise import (
    AxisLoop,
    NormalNest,
    axis_domain,
    depends_on_data,
    exact_facts,
)
from lifter.places import Dims, Entry, Env, Place, is_poison, output_twice, shown
from lifter.polyhedral import Constraint, reaches, rename, satisfiable
from lifter.reductions import as_condition
from lifter.segments import Segment
from lifter.symbolic import Machine
from lifter.trees import declarations
from mdh_core.combine import CombineFunction, CombineOp, tuple_operator
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import (
    Affine,
    Binary,
    Call,
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
    Select,
    Stmt,
    Var,
    While,
    affine_expr,
    affine_index,
    children,
    map_stmts,
    rewrite,
    stmt_exprs,
    substitute,
    variables,
    walk,
)
from mdh_core.guarded import conjuncts
from mdh_core.ir import (
    Access,
    Buffer,
    Dim,
    InputView,
    MdHom,
    MdhProgram,
    OutputView,
    ScalarFunction,
    Store,
    keeps_if_empty,
)
from mdh_core.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Output:
    """One store: where, what, over which dimensions, and which scalars it comes from."""

    buffer: str
    index: tuple[Affine, ...]
    value: Expr
    dims: Dims
    at_last: tuple[str, ...] = ()
    span: Span = field(default=NO_SPAN, compare=False)
    guard: tuple[Constraint, ...] = ()  # on the position

    @property
    def combined(self) -> bool:
        return any(isinstance(n, Result) for n in walk(self.value))


@dataclass(frozen=True, slots=True)
class Group:
    """Outputs of one program."""

    dims: Dims
    outputs: tuple[Output, ...]
    domain: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """A program before its names are settled, with what the order of programs depends on."""

    program: MdhProgram
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]


def programs(
    nest: LoopNest,
    normal: NormalNest,
    machine: Machine,
    segment: Segment,
    env: Env,
    wanted: frozenset[str],
) -> list[MdhProgram]:
    """The programs of one segment in execution order; raises ``Refusal``."""
    builder = _Builder(nest, normal, machine, segment, wanted)
    outputs = builder.outputs(env)
    groups = builder.groups(outputs)
    parts = [builder.build(g) for g in groups]
    if any(builder.conflict(w, r) for p in parts for w in p.writes for r in p.reads):
        alone = [o for g in groups for o in g.outputs]
        groups = [Group(o.dims, (o,), builder.constraints(o.dims, o.guard, [o])) for o in alone]
        parts = [builder.build(g) for g in groups]
    builder.check_stores(parts)
    return [p.program for p in builder.sorted(parts)]


def _program_name(nest: LoopNest) -> str:
    """The function's name; with the nest's label where that says more than its ordinal 0."""
    return nest.function if nest.label in ("", "0") else f"{nest.function}_{nest.label}"


class _Builder:
    def __init__(
        self,
        nest: LoopNest,
        normal: NormalNest,
        machine: Machine,
        segment: Segment,
        wanted: frozenset[str],
    ) -> None:
        self.nest, self.normal, self.machine = nest, normal, machine
        self.segment, self.wanted = segment, wanted
        self.scalars = {s.name: s for s in nest.scalars}
        self.order = tuple(normal.axes)
        self.domain = {a.name: a.domain for a in normal.axes.values()}
        self.buffers: dict[str, Buffer] = dict(normal.buffers)
        for s in nest.scalars:
            self.buffers[s.name] = Buffer(
                s.name, s.type, (), base=f"&{s.name}", c_type=s.c_type, distinct=True
            )

    # ----------------------------------------------------------------- outputs

    def outputs(self, env: Env) -> list[Output]:
        whole: dict[tuple[str, tuple[Affine, ...] | None], dict[str, tuple[Place, Entry]]] = {}
        for p, entry in env.items():
            if p.index is None and (p.name not in self.scalars or p.name not in self.wanted):
                continue
            if not entry.dims and entry.value == self.machine.symbol(p):
                continue
            whole.setdefault((p.name, p.index), {})[p.field] = (p, entry)
        out = []
        for fields in whole.values():
            made = [self.output(p, e) for p, e in fields.values()]
            out.append(made[0] if "" in fields else self.record(list(fields), made))
        return sorted(out, key=lambda o: o.span.start)

    def output(self, p: Place, entry: Entry) -> Output:
        value, at_last, dims = entry.value, tuple[str, ...](), entry.dims
        if entry.last and entry.total is not None:
            at_last = tuple(d for d, kind in entry.dims if kind == "ps")
        elif entry.last:
            at_last = tuple(d for d, _ in entry.dims)
        reduced = [self.machine.reduction_of(n)[0] for n in walk(value) if isinstance(n, Result)]
        if reduced:
            if any(r.dims != reduced[0].dims for r in reduced):
                raise refuse(
                    "MDH211",
                    f"`{shown(p, self.normal.axes)}` needs results of reductions over different loops",
                    entry.span,
                    related=(),
                    help="store the inner results in arrays of their own",
                )
            kept = [d for d, kind in reduced[0].dims if kind != "pw"]
            if kept != [d for d, _ in dims]:
                raise refuse(
                    "MDH211",
                    f"`{shown(p, self.normal.axes)}` spreads the result of a reduction over a loop",
                    entry.span,
                    help="do it in a nest of its own after the reduction",
                )
            dims = reduced[0].dims
            if not all(r.function.commutative for r in reduced):
                # the last value of a scan, which keeps the order
                at_last = (*at_last, *(d for d, kind in dims if kind == "pw"))
                dims = tuple((d, "cc" if kind == "cc" else "ps") for d, kind in dims)
        self.check_value(value, p, entry)
        guard = self.guard(p, entry, dims, at_last)
        self.check_guard(p, entry, guard)
        return Output(p.name, p.index or (), value, dims, at_last, entry.span, guard)

    def record(self, fields: list[str], made: list[Output]) -> Output:
        """Outputs of single fields as one output of the record."""
        first = made[0]
        t = self.buffers[first.buffer].type
        assert isinstance(t, RecordType)
        dims = {o.dims for o in made}
        lasts = {o.at_last for o in made}
        if len(dims) > 1 or len(lasts) > 1:
            raise refuse(
                "MDH211", f"the fields of `{first.buffer}` are computed over different loops", first.span
            )
        whole = Load(first.buffer, tuple(affine_expr(a) for a in first.index), t)
        by_name = dict(zip(fields, (o.value for o in made), strict=True))
        values = tuple(by_name.get(f, Field(whole, f, u)) for f, u in t.fields)
        if len({o.guard for o in made}) > 1:
            message = f"the fields of `{first.buffer}` are computed under different conditions"
            raise refuse("MDH211", message, first.span)
        return replace(first, value=MakeRecord(values, t))

    def check_value(self, value: Expr, p: Place, entry: Entry) -> None:
        exprs = [value]
        for n in walk(value):
            if isinstance(n, Result):
                red, _ = self.machine.reduction_of(n)
                exprs += [*red.elements, *(x for x in red.initials if x is not None)]
        names = {n.name for e in exprs for n in walk(e) if isinstance(n, Var)}
        statements = self.machine.defining(names & set(self.machine.bound))
        exprs += [e for s in statements for e in stmt_exprs((s,))]
        local = {d.name for d in declarations(statements)}
        for e in exprs:
            bad = is_poison(e)
            if bad is None:
                for q in sorted(q.name for q in self.machine.reads(e) if q.index is None):
                    if q not in local and (q not in self.scalars or q in self.segment.foreign):
                        bad = "!" + q
            if bad is not None:
                name = bad[1:]
                if bad[0] == "?":
                    raise refuse("MDH211", f"`{name}` may be used before it has a value", entry.span)
                raise refuse(
                    "MDH211",
                    f"`{name}` carries a value from one inner loop to another",
                    entry.span,
                    label="the loops would become separate programs",
                    help=f"store `{name}` in an array, or put a directive before each inner loop",
                )

    def conditions(self, entry: Entry) -> list[Expr]:
        """The conditions of a store that mention iterators and parameters alone."""
        if entry.touched is None:
            return []
        every = conjuncts(as_condition(entry.touched))
        return [c for c in every if not depends_on_data(c, self.normal.axes, self.nest.params)]

    def guard(self, p: Place, entry: Entry, dims: Dims, at_last: tuple[str, ...]) -> tuple[Constraint, ...]:
        """Constraints on the position that hold exactly where the source writes the cell."""
        if p.index is None:
            return ()
        out: list[Constraint] = []
        kept = {d for d, kind in dims if kind == "cc" and d not in at_last}
        other = set(self.normal.axes) - kept
        domain = self.domain_of(d for d, _ in dims)
        for c in self.conditions(entry):
            facts = exact_facts(c, lambda a: not satisfiable([*domain, Constraint(-a - 1)]))
            if facts is not None and not any(f.names & other for f in facts):
                out += facts
        return tuple(dict.fromkeys(out))

    def domain_of(self, axes: Iterable[str]) -> list[Constraint]:
        return [*self.normal.context, *(c for a in axes for c in self.domain[a])]

    def check_guard(self, p: Place, entry: Entry, guard: tuple[Constraint, ...]) -> None:
        """A store under a condition on iterators must not touch cells that the source leaves alone."""
        if entry.touched is None or p.index is None or self.keeps_cell(entry.value, p):
            return
        conditions = self.conditions(entry)
        conditions = [c for c in conditions if not (isinstance(c, Binary) and c.op == "!=")]
        if not conditions:
            return
        exact = [exact_facts(c, lambda a: False) for c in conditions]
        facts = [f for found in exact for f in found or ()]
        axes = {n for a in p.index for n in a.names} & set(self.normal.axes)
        axes |= {n for c in facts for n in c.value.names} & set(self.normal.axes)
        domain = [*self.domain_of(sorted(axes)), *guard]
        buffer = self.buffers[p.name]
        for a, extent in zip(p.index, buffer.extents, strict=True):
            low = satisfiable([*domain, Constraint(-a - 1)])
            high = extent is None or satisfiable([*domain, Constraint(a - extent)])
            unknown = None in exact or not reaches(domain, facts, a, frozenset(self.normal.axes))
            if low or (high and unknown):
                raise refuse(
                    "MDH211",
                    f"`{shown(p, self.normal.axes)}` is stored under a condition on iterators",
                    entry.span,
                    label="the lifted nest would touch cells that the source leaves alone",
                    help="put the condition into the loop bounds"
                    + ("" if extent is not None else f", or declare `{p.name}` with its extents"),
                )

    def keeps_cell(self, value: Expr, p: Place) -> bool:
        """Does a value that no reduction takes part in say where the cell stays as it is?

        Generated code does not touch a cell there.
        """
        if any(isinstance(n, Result) for n in walk(value)) or not isinstance(value, Select):
            return False
        own = self.machine.symbol(p)
        return any(x == own or self.keeps_cell(x, p) for x in (value.then, value.other))

    # ----------------------------------------------------------------- groups

    def groups(self, outputs: list[Output]) -> list[Group]:
        by_dims: dict[tuple[Dims, tuple[Constraint, ...], frozenset[int]], list[Output]] = {}
        loops = any(isinstance(s, AxisLoop) for s in self.segment.body)
        for o in outputs:
            if o.combined or o.dims or not loops:
                by_dims.setdefault((o.dims, o.guard, self.ordered(o)), []).append(o)
        for o in list(outputs):
            if o.combined or o.at_last:
                continue
            home = next(
                (
                    (d, guard, ordered)
                    for (d, guard, ordered), members in by_dims.items()
                    if any(m.combined for m in members)
                    and tuple(x for x in d if x[1] != "pw") == o.dims
                    and guard == o.guard
                    and not self.has_statements(o.value)
                ),
                None,
            )
            if home is not None:
                if o in by_dims.get((o.dims, o.guard, self.ordered(o)), []):
                    by_dims[o.dims, o.guard, self.ordered(o)].remove(o)
                by_dims[home].append(o)
            elif not o.dims and loops:
                raise refuse(
                    "MDH211",
                    f"`{o.buffer}` is assigned outside of the loops",
                    o.span,
                    help="move the assignment before or after the nest",
                )
        return [
            Group(d, tuple(members), self.constraints(d, guard, members))
            for (d, guard, _), members in by_dims.items()
            if members
        ]

    def ordered(self, o: Output) -> frozenset[int]:
        """The reductions in an output whose function does not commute: each has a program of its own."""
        found = {self.machine.results[n.component][0] for n in walk(o.value) if isinstance(n, Result)}
        return frozenset(k for k in found if not self.machine.reductions[k].function.commutative)

    def constraints(
        self, dims: Dims, guard: tuple[Constraint, ...], outputs: list[Output]
    ) -> tuple[Constraint, ...]:
        """The index set of a group inside of its box; raises MDH202."""
        found = [c for d, _ in dims for c in self.normal.axes[d].constraints] + list(guard)
        boxes = (axis_domain(d, self.normal.axes[d].size) for d, _ in dims)
        context = [*self.normal.context, *(c for box in boxes for c in box)]
        kept = []
        for c in dict.fromkeys(found):
            negated = [Constraint(-c.value - 1)] if not c.equality else []
            if c.equality or satisfiable([*context, *negated]):
                kept.append(c)
        names = {n for c in kept for n in c.names}
        ordered = {d for d, kind in dims if kind == "ps"} | {d for o in outputs for d in o.at_last}
        for d in sorted(ordered & names):
            axis = self.normal.axes[d]
            raise refuse(
                "MDH202",
                f"the order of `{axis.source_name}` matters and its bounds depend on another iterator",
                axis.loop.span or outputs[0].span,
                label="the iteration space is not rectangular here",
                help="loop over the whole range and guard the body with an `if`",
            )
        return tuple(kept)

    def has_statements(self, e: Expr) -> bool:
        return bool(variables(e) & set(self.machine.bound))

    # ----------------------------------------------------------------- one program

    def build(self, group: Group) -> Parts:
        m = self.machine
        numbers: list[int] = []  # reductions in use
        for o in group.outputs:
            for n in walk(o.value):
                if isinstance(n, Result) and m.results[n.component][0] not in numbers:
                    numbers.append(m.results[n.component][0])
        numbers.sort(key=lambda k: (m.reductions[k].span.start, k))
        reductions = [m.reductions[k] for k in numbers]
        facts = [*self.domain_of(d for d, _ in group.dims), *group.domain]
        outer = {d for d, kind in group.dims if kind != "pw"}
        position = [c for c in facts if not c.names & (set(self.normal.axes) - outer)]

        uneven = bool(group.domain or self.normal.context)

        def plain(e: Expr, known: list[Constraint] = facts) -> Expr:
            return simplified(self.memory(e), known) if uneven else self.memory(e)

        results: list[Expr] = [plain(e) for r in reductions for e in r.elements]
        function = tuple_operator(tuple(r.function for r in reductions)) if reductions else None
        group, results = self.on_domain(group, results, function)
        initials: list[Expr | None] = [
            None if e is None else self.inlined(plain(e, position)) for r in reductions for e in r.initials
        ]
        bases = {k: sum(r.function.arity for r in reductions[:n]) for n, k in enumerate(numbers)}

        def renumber(n: Expr) -> Expr | None:
            if isinstance(n, Result):
                red, component = m.results[n.component]
                return Result(bases[red] + component, n.type)
            return None

        stores: list[Store] = []
        for o in group.outputs:
            value = plain(rewrite(o.value, renumber), position)
            if not reductions:
                results.append(value)
                initials.append(None)
                value = Result(len(results) - 1, value.type)
            stores.append(Store(o.buffer, o.index, self.inlined(value), o.at_last))
        body = tuple(
            map_stmts((s,), self.memory)[0]
            for s in m.defining({v for e in results for v in variables(e)} & set(m.bound))
        )
        combine = tuple(CombineOp(kind, None if kind == "cc" else function) for _, kind in group.dims)
        reason = why_not_well_defined(combine)
        if reason:
            raise refuse("MDH209", reason, group.outputs[0].span)
        return self.assemble(group, results, initials, stores, body, combine)

    def on_domain(
        self, group: Group, results: list[Expr], function: CombineFunction | None
    ) -> tuple[Group, list[Expr]]:
        """The group on the points that contribute, and what these do."""
        reduced = {d for d, kind in group.dims if kind == "pw"}
        if function is None or not reduced or any(kind == "ps" for _, kind in group.dims):
            return group, results
        facts = [*self.domain_of(d for d, _ in group.dims), *group.domain]
        names = {d for d, _ in group.dims} | {p.name for p in self.nest.params}

        def matters(c: Constraint) -> bool:
            return c.names <= names and satisfiable([*facts, Constraint(-c.value - 1)])

        found = restricted(
            results, function, reduced, lambda a: not satisfiable([*facts, Constraint(-a - 1)]), matters
        )
        if found is None:
            return group, results
        return replace(group, domain=(*group.domain, *found[0])), found[1]

    def memory(self, e: Expr) -> Expr:
        """Symbols of outer scalars are reads of their memory."""
        return rewrite(
            e,
            lambda n: (
                Load(n.name, (), n.type)
                if isinstance(n, Var) and n.name in self.scalars and n.name not in self.machine.bound
                else None
            ),
        )

    def inlined(self, e: Expr) -> Expr:
        """Without variables of the scalar function's body, which output views cannot see."""
        m = self.machine
        for _ in range(len(m.statements) + 1):
            names = variables(e) & set(m.bound)
            if not names:
                return e
            values: dict[str, Expr] = {}
            for name in names:
                found = m.defining({name})
                last = found[-1]
                if not isinstance(last, Declare) or last.name != name or last.value is None:
                    raise refuse(
                        "MDH211",
                        "a loop whose trip count depends on data stands outside of the innermost loop",
                        last.span,
                        help="move it into the innermost loop",
                    )
                values[name] = self.memory(last.value)
            e = substitute(e, values)
        return e

    def assemble(
        self,
        group: Group,
        results: list[Expr],
        initials: list[Expr | None],
        stores: list[Store],
        body: tuple[Stmt, ...],
        combine: tuple[CombineOp, ...],
    ) -> Parts:
        axes = tuple(d for d, _ in group.dims)
        accesses: list[Access] = []
        spans: dict[tuple[str, tuple[Affine, ...]], Span] = {}
        conditional: dict[tuple[str, tuple[Affine, ...]], bool] = {}
        for e, guarded in [*_evaluated(body, False), *((r, False) for r in results)]:
            for load, under in self.operands(e, guarded):
                key = (load.buffer, affine_index(load.index))
                spans.setdefault(key, load.span)
                under = under and load.buffer not in self.nest.touched
                conditional[key] = conditional.get(key, True) and under
        for (buffer, index), under in conditional.items():
            accesses.append(Access(buffer, index, under, spans[buffer, index]))
        numbers = {(a.buffer, a.index): k for k, a in enumerate(accesses)}

        def operand(n: Expr) -> Expr | None:
            if isinstance(n, Load) and not self.normal.is_gather(n):
                return Operand(numbers[n.buffer, affine_index(n.index)], n.type)
            return None

        scalar = ScalarFunction(
            tuple(rewrite(r, operand) for r in results),
            map_stmts(body, lambda e: rewrite(e, operand)),
        )
        reads = [Read(a.buffer, a.index, axes, False, False, a.span) for a in accesses]
        kept = tuple(d for d, kind in group.dims if kind != "pw")
        steady = tuple(d for d, kind in group.dims if kind == "cc")
        outside = [(i, True) for i in initials if i is not None] + [(s.value, False) for s in stores]
        for e, is_initial in outside:
            for load, _ in loads(e, False):
                if self.normal.is_gather(load):
                    raise refuse(
                        "MDH214",
                        f"index of `{load.buffer}` depends on data, outside of the innermost loop",
                        load.span,
                        help="gather the values into an array of their own before the nest",
                    )
                reads.append(
                    Read(
                        load.buffer,
                        affine_index(load.index),
                        steady if is_initial else kept,
                        True,
                        is_initial,
                        load.span,
                    )
                )
        combined = tuple(d for d, kind in group.dims if kind == "pw")
        writes = tuple(
            Write(s.buffer, s.index, kept, combined, s.at_last, o.span, not keeps_if_empty(s, initials))
            for s, o in zip(stores, group.outputs, strict=True)
        )
        program = MdhProgram(
            _program_name(self.nest),
            (),
            (),
            InputView(tuple(accesses)),
            MdHom(tuple(Dim(a, self.normal.axes[a].size) for a in axes), scalar, combine, group.domain),
            OutputView(tuple(initials), tuple(stores)),
            fp=self.nest.directive.fp,
            span=self.nest.span,
        )
        return Parts(finish(program, self.nest, self.normal, self.buffers), tuple(reads), writes)

    def operands(self, e: Expr, guarded: bool) -> Iterable[tuple[Load, bool]]:
        """The reads at affine indices, those in the index of a gather too."""
        for load, under in loads(e, guarded):
            if not self.normal.is_gather(load):
                yield load, under

    # ----------------------------------------------------------------- order

    def relation(self, write: Write, read: Read) -> Order:
        return order(read, write, self.domain, self.normal.context, self.order)

    def refused(self, read: Read, write: Write) -> Refusal:
        return why_refused(read, write, self.domain, self.normal.context, self.order, self.normal.axes)

    def conflict(self, write: Write, read: Read) -> bool:
        o = self.relation(write, read)
        return o.before or o.after or o.within

    def check_stores(self, parts: list[Parts]) -> None:
        for p in parts:
            for w in p.writes:
                refusal = why_not_injective(w, self.domain, self.normal.context, self.normal.axes)
                if refusal is not None:
                    raise refusal
                for r in p.reads:
                    if self.conflict(w, r):
                        raise why_refused(
                            r, w, self.domain, self.normal.context, self.order, self.normal.axes
                        )
        writes = [w for p in parts for w in p.writes]
        for k, a in enumerate(writes):
            for b in writes[k + 1 :]:
                if meet(a, b, self.domain, self.normal.context):
                    raise output_twice(a.buffer, b.span, a.span)

    def sorted(self, parts: list[Parts]) -> list[Parts]:
        """Readers of old values before the writers, readers of new values after them."""
        earlier: dict[int, set[int]] = {k: set() for k in range(len(parts))}
        for i, writer in enumerate(parts):
            for j, reader in enumerate(parts):
                if i == j:
                    continue
                for w in writer.writes:
                    for r in reader.reads:
                        o = self.relation(w, r)
                        old = o.before or (r.buffer == w.buffer and self.same_cell(r, w))
                        if (old and o.after) or o.within:
                            raise why_refused(
                                r, w, self.domain, self.normal.context, self.order, self.normal.axes
                            )
                        if old:
                            earlier[i].add(j)
                        if o.after:
                            earlier[j].add(i)
        out: list[Parts] = []
        left = list(range(len(parts)))
        while left:
            ready = next((k for k in left if not earlier[k] & set(left)), None)
            if ready is None:
                i = left[0]
                j = next(iter(earlier[i] & set(left)))
                w, r = next(
                    (w, r)
                    for a, b in ((i, j), (j, i))
                    for w in parts[a].writes
                    for r in parts[b].reads
                    if w.buffer == r.buffer
                )
                raise self.refused(r, w)
            left.remove(ready)
            out.append(parts[ready])
        return out

    def same_cell(self, read: Read, write: Write) -> bool:
        """May the read touch a written cell at the very point of the write?"""
        rows = [Constraint(a - b, True) for a, b in zip(read.index, write.index, strict=True)]
        for a in {*read.axes, *write.axes}:
            rows += self.domain[a]
        return satisfiable([*self.normal.context, *rows])


def loads(e: Expr, guarded: bool) -> Iterable[tuple[Load, bool]]:
    """The reads of an expression in evaluation order, each with "only under a condition"."""
    match e:
        case Load(index=index):
            yield e, guarded
            for i in index:
                yield from loads(i, guarded)
        case Select(cond=cond, then=then, other=other):
            yield from loads(cond, guarded)
            yield from loads(then, True)
            yield from loads(other, True)
        case Binary(op="&&" | "||", a=a, b=b):
            yield from loads(a, guarded)
            yield from loads(b, True)
        case _:
            for child in children(e):
                yield from loads(child, guarded)


def _evaluated(body: Sequence[Stmt], guarded: bool) -> Iterable[tuple[Expr, bool]]:
    for s in body:
        match s:
            case If(cond=cond, then=then, other=other):
                yield cond, guarded
                yield from _evaluated(then, True)
                yield from _evaluated(other, True)
            case While(cond=cond, body=inner):
                yield cond, guarded
                yield from _evaluated(inner, True)
            case _:
                for e in stmt_exprs((s,)):
                    yield e, guarded


# --------------------------------------------------------------------------- names


def finish(p: MdhProgram, nest: LoopNest, normal: NormalNest, buffers: Mapping[str, Buffer]) -> MdhProgram:
    """Dimensions get their source names; parameters, buffers and functions that are used are listed."""
    used = {a.buffer for a in p.inp.accesses} | {s.buffer for s in p.out.stores}
    p = replace(p, hom=replace(p.hom, scalar=_with_local_names(p.hom.scalar, nest)))
    exprs = [*p.hom.scalar.results, *(e for e in p.out.initial if e is not None)]
    exprs += [s.value for s in p.out.stores]
    exprs += list(stmt_exprs(p.hom.scalar.body))
    for e in exprs:
        used |= {n.buffer for n in walk(e) if isinstance(n, Load)}
    mine = [b for name, b in buffers.items() if name in used]
    assumptions = tuple(dict.fromkeys(a for name, a in normal.assumptions if name in used))
    names = _dim_names(p, nest, normal)
    names_used = {n for e in exprs for n in variables(e)}
    affine = [d.size.span for d in p.hom.dims] + [a for x in p.inp.accesses for a in x.index]
    affine += [a for s in p.out.stores for a in s.index] + list(assumptions)
    affine += [c.value for c in p.hom.domain]
    affine += [a for b in mine for a in b.extents if a is not None]
    affine += [a for b in mine for a in b.strides or ()]
    names_used |= {n for a in affine for n in a.names}
    functions = called(exprs, {f.name: f for f in nest.functions}, p)

    def dim(e: Expr) -> Expr:
        return rewrite(
            e, lambda n: Var(names[n.name], n.type) if isinstance(n, Var) and n.name in names else None
        )

    return replace(
        p,
        params=tuple(x for x in nest.params if x.name in names_used),
        buffers=tuple(mine),
        inp=InputView(
            tuple(replace(a, index=tuple(rename(i, names) for i in a.index)) for a in p.inp.accesses)
        ),
        hom=MdHom(
            tuple(Dim(names[d.name], d.size) for d in p.hom.dims),
            ScalarFunction(tuple(map(dim, p.hom.scalar.results)), map_stmts(p.hom.scalar.body, dim)),
            p.hom.combine,
            tuple(c.renamed(names) for c in p.hom.domain),
        ),
        out=OutputView(
            tuple(None if e is None else dim(e) for e in p.out.initial),
            tuple(
                replace(
                    s,
                    index=tuple(rename(i, names) for i in s.index),
                    value=dim(s.value),
                    at_last=tuple(names[d] for d in s.at_last),
                )
                for s in p.out.stores
            ),
        ),
        functions=functions,
        assumptions=assumptions,
    )


def _with_local_names(f: ScalarFunction, nest: LoopNest) -> ScalarFunction:
    """Variables of the body get their names in the source, made unique."""
    taken = {x.name for x in nest.params} | {b.name for b in nest.buffers} | {s.name for s in nest.scalars}
    names: dict[str, str] = {}
    for old in [d.name for d in declarations(f.body)]:
        base, k = old.split("$")[0], 0
        new = base
        while new in taken:
            k += 1
            new = f"{base}_{k}"
        taken.add(new)
        names[old] = new

    def one(e: Expr) -> Expr:
        return rewrite(
            e, lambda n: Var(names[n.name], n.type) if isinstance(n, Var) and n.name in names else None
        )

    def declare(s: Stmt) -> Stmt:
        match s:
            case Declare(name=name):
                return replace(s, name=names[name])
            case If(then=then, other=other):
                return replace(s, then=tuple(map(declare, then)), other=tuple(map(declare, other)))
            case While(body=inner):
                return replace(s, body=tuple(map(declare, inner)))
        return s

    return ScalarFunction(tuple(map(one, f.results)), map_stmts(tuple(map(declare, f.body)), one))


def _dim_names(p: MdhProgram, nest: LoopNest, normal: NormalNest) -> dict[str, str]:
    taken = {x.name for x in nest.params} | {b.name for b in nest.buffers} | {s.name for s in nest.scalars}
    taken |= {f.name for f in nest.functions}
    taken |= {d.name for d in declarations(p.hom.scalar.body)}
    wanted = [normal.axes[d.name].source_name for d in p.hom.dims]
    out: dict[str, str] = {}
    for d, name in zip(p.hom.dims, wanted, strict=True):
        free = name not in taken and wanted.count(name) == 1 and name not in out.values()
        out[d.name] = name if free else d.name
    return out


def called(exprs: Iterable[Expr], known: Mapping[str, Function], p: MdhProgram) -> tuple[Function, ...]:
    queue = [n.function for e in exprs for n in walk(e) if isinstance(n, Call)]
    f = p.hom.function
    if f is not None:
        queue += [n.function for e in f.values for n in walk(e) if isinstance(n, Call)]
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name in known and name not in found:
            found.add(name)
            queue += [
                n.function for e in stmt_exprs(known[name].body) for n in walk(e) if isinstance(n, Call)
            ]
    return tuple(g for g in known.values() if g.name in found)
