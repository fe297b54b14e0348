"""One nest of single loops, run on symbols: what every place holds afterwards.

before   for i: { acc = 0;  for k: acc = acc + A[i][k]*v[k];  w[i] = acc; }
after    w[i] = Result(0)     over  (i: cc, k: pw),  combined with +, from 0, of  A[i][k]*v[k]

A body is run statement by statement; ``if`` becomes ``Select``, locals disappear into the values.  The
value of a place that the body has not yet written is the *symbol* of the place (``Var``, ``Load``).  A
loop is then closed over its axis:

* a cell whose index uses the axis is written once per index (``cc``);
* a place that is updated from its own symbol is a reduction (``pw``), see ``reductions``; where other
  cells take the value after the update it is a scan (``ps``);
* a scalar that is only overwritten keeps its last value;
* everything else is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lifter.legality import same_function, why_not_well_defined
from lifter.normalise import (
    Axis,
    AxisLoop,
    NormalNest,
    NormalStmt,
    assigned_buffers,
    assigned_scalars,
    axis_domain,
    base_of,
    declared,
    in_source,
)
from lifter.polyhedral import Constraint, equal, satisfiable
from lifter.reductions import (
    ArgUpdate,
    Rules,
    SetOnce,
    Update,
    WhyNot,
    infer,
    infer_arg,
    neutral,
    number,
    strip,
    truth,
)
from mdh_core.combine import CombineFunction, CombineOp, scalar_operator
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
    Field,
    If,
    Load,
    MakeRecord,
    RecordType,
    Result,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    While,
    affine_expr,
    as_affine,
    children,
    map_children,
    map_stmts,
    rewrite,
    stmt_exprs,
    substitute,
    variables,
    walk,
)
from mdh_core.source import NO_SPAN, Span

MAX_NODES = 20_000  # of one value
BIND_ABOVE = 12  # nodes; greater values of locals become statements of the scalar function

Dims = tuple[tuple[str, str], ...]  # (axis, "cc" | "pw" | "ps"), outermost first


@dataclass(frozen=True, slots=True)
class Place:
    """A scalar variable (``index`` None) or an array cell, or one field of either."""

    name: str
    index: tuple[Affine, ...] | None = None
    field: str = ""

    def uses(self, axis: str) -> bool:
        return self.index is not None and any(axis in a.names for a in self.index)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a place holds: a value over ``dims``, the closed axes that the place ranges over.

    last       only the value of the last iteration of ``dims`` remains (a scalar)
    total      for a scan's running variable: its final value as a reduction of its own
    touched    the condition under which the source writes the cell; None: always
    """

    value: Expr
    dims: Dims = ()
    last: bool = False
    total: Expr | None = None
    touched: Expr | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Reduction:
    """Components that are combined by one function; ``Result(n)`` refers to one of them."""

    function: CombineFunction
    elements: tuple[Expr, ...]
    initials: tuple[Expr | None, ...]
    dims: Dims
    span: Span = field(default=NO_SPAN, compare=False)
    arg_values: tuple[tuple[Expr, Expr], ...] = ()  # of an arg-operator: old value -> new value


Env = dict[Place, Entry]


def is_poison(e: Expr) -> str | None:
    """The name of a variable that has no usable value in ``e``."""
    for n in walk(e):
        if isinstance(n, Var) and n.name[0] in "!?":
            return n.name
    return None


class Machine:
    """Runs one nest; keeps the reductions and the statements of the scalar function that arise."""

    def __init__(
        self,
        normal: NormalNest,
        rules: Rules,
        scalar_types: Mapping[str, Type],
        split: frozenset[str],
        body: Sequence[NormalStmt],
    ) -> None:
        self.normal = normal
        self.rules = rules
        self.types = dict(scalar_types)
        self.split = split
        self.reductions: list[Reduction] = []
        self.results: list[tuple[int, int]] = []
        self.extended: dict[tuple[int, str, str], int] = {}
        self.statements: list[Stmt] = []
        self.bound: dict[str, Type] = {}
        self.branches = 0
        self.loops: list[AxisLoop] = []
        self.written = assigned_buffers(body)

    # ----------------------------------------------------------------- reading

    def symbol(self, p: Place) -> Expr:
        t = self.base_type(p.name)
        base: Expr
        if p.index is None:
            base = Var(p.name, t)
        else:
            base = Load(p.name, tuple(affine_expr(a) for a in p.index), t)
        if p.field:
            assert isinstance(t, RecordType)
            return Field(base, p.field, t.field_type(p.field))
        return base

    def base_type(self, name: str) -> Type:
        if name in self.normal.buffers:
            return self.normal.buffers[name].type
        return self.types[name]

    def read(self, e: Expr, env: Env) -> Expr:
        """The value of an expression where places hold what ``env`` says."""
        match e:
            case Var(name=name):
                if name in self.bound or name not in self.types:
                    return e
                return self.read_place(e, Place(name), env)
            case Load(buffer=buffer, index=index):
                return self.read_place(e, Place(buffer, indices(index)), env)
            case Field(a=a, name=name):
                inner = self.read(a, env)
                if isinstance(inner, MakeRecord):
                    return inner.values[[n for n, _ in inner.type.fields].index(name)]
                return replace(e, a=inner)
            case _:
                return map_children(e, lambda child: self.read(child, env))

    def read_place(self, e: Var | Load, p: Place, env: Env) -> Expr:
        if p.name in self.split and isinstance(e.type, RecordType):
            parts = [replace(p, field=f) for f, _ in e.type.fields]
            if any(part in env for part in parts):
                values = tuple(
                    self.value_of(env[part], part) if part in env else Field(e, f, t)
                    for part, (f, t) in zip(parts, e.type.fields, strict=True)
                )
                return MakeRecord(values, e.type)
        if p in env:
            return self.value_of(env[p], p)
        if isinstance(e, Load):
            for other, entry in env.items():
                if other.name == p.name and replace(other, field="") != p and self.may_meet(p, other):
                    raise refuse(
                        "MDH213",
                        f"`{p.name}` is read where the nest may just have written it",
                        e.span,
                        label="the same cell under another index",
                        related=related(entry.span, "written here"),
                        help="write to a second buffer",
                    )
        return e

    def value_of(self, entry: Entry, p: Place) -> Expr:
        if entry.last:
            if entry.total is not None:
                return entry.total
            raise refuse(
                "MDH211",
                f"the last value of `{p.name}` in an inner loop is used after that loop",
                entry.span,
                label="assigned here",
                help="compute the value after the inner loop",
            )
        return entry.value

    def may_meet(self, p: Place, q: Place) -> bool:
        """May two places of one buffer be the same cell, at the same values of all axes?"""
        assert p.index is not None and q.index is not None
        if len(p.index) != len(q.index):
            return True
        same = [equal(a, b) for a, b in zip(p.index, q.index, strict=True)]
        return satisfiable([*same, *self.domain(c.value.names for c in same)])

    def domain(self, names: Iterable[Iterable[str]]) -> list[Constraint]:
        out = list(self.normal.context)
        for name in {n for group in names for n in group}:
            if name in self.normal.axes:
                out += axis_domain(name, self.normal.axes[name].size)
        return out

    # ----------------------------------------------------------------- running

    def run(self, body: Sequence[NormalStmt], env: Env) -> None:
        for s in body:
            self.step(s, env)

    def step(self, s: NormalStmt, env: Env) -> None:
        match s:
            case AxisLoop():
                self.loop(s, env)
            case Declare(name=name, type=t, value=value, span=span):
                new = Var(f"?{name}", t) if value is None else self.read(value, env)
                self.assign(Var(name, t), new, env, span)
            case Assign(target=target, value=Var(name=name)) if name.startswith("@"):
                for p in [p for p in env if p.name == name[1:]]:  # its value is in memory
                    del env[p]
            case Assign(target=target, value=value, span=span):
                self.assign(target, self.read(value, env), env, span)
            case If():
                self.branch(s, env)
            case While():
                self.opaque(s, env)

    def assign(self, target: Expr, value: Expr, env: Env, span: Span) -> None:
        if not fits(value, MAX_NODES):
            raise refuse("MDH211", "a value of the nest is too large to be lifted", span)
        base = base_of(target)
        p = Place(base.name) if isinstance(base, Var) else Place(base.buffer, indices(base.index))  # type: ignore[union-attr]
        if isinstance(base, Load):
            for other, entry in env.items():
                if other.name == p.name and other.index != p.index and self.may_meet(p, other):
                    raise output_twice(p.name, span, entry.span)
        if isinstance(target, Field):
            env[replace(p, field=target.name)] = Entry(value, span=span)
        elif p.name in self.split:
            t = self.base_type(p.name)
            assert isinstance(t, RecordType)
            for f, u in t.fields:
                part = self.read(Field(value, f, u), {})
                env[replace(p, field=f)] = Entry(part, span=span)
        else:
            env[p] = Entry(self.bind(p, value, span), span=span)

    def bind(self, p: Place, value: Expr, span: Span) -> Expr:
        """A large value of a local becomes a statement of the scalar function."""
        if p.index is not None or self.branches or not self.loops or fits(value, BIND_ABOVE):
            return value
        body = self.loops[-1].body
        if p.name not in declared(body) or any(isinstance(s, AxisLoop) for s in body):
            return value
        changing = assigned_scalars(body) - declared(body)
        if any(q.name in changing or q.name in self.written for q in self.reads(value)):
            return value
        if any(isinstance(n, Result) for n in walk(value)) or is_poison(value):
            return value
        var = self.fresh(p.name, value.type)
        self.statements.append(Declare(var.name, value.type, value, span))
        return var

    def fresh(self, name: str, t: Type) -> Var:
        """A variable of the scalar function's body; ``$`` tells it from the source's variables."""
        k = 1
        while f"{name}${k}" in self.bound:
            k += 1
        self.bound[f"{name}${k}"] = t
        return Var(f"{name}${k}", t)

    def branch(self, s: If, env: Env) -> None:
        if any(_has_while(b) for b in (s.then, s.other)):
            self.opaque(s, env)
            return
        cond = self.read(s.cond, env)
        self.branches += 1
        after: list[Env] = []
        for inner in (s.then, s.other):
            copy = dict(env)
            self.run(inner, copy)  # type: ignore[arg-type]
            local = declared(inner)  # type: ignore[arg-type]
            after.append({p: e for p, e in copy.items() if p.name not in local})
        self.branches -= 1
        then, other = after
        for p in [*then, *(p for p in other if p not in then)]:
            if then.get(p) is env.get(p) and other.get(p) is env.get(p):
                continue
            env[p] = self.merged(p, cond, then.get(p), other.get(p), env.get(p))

    def merged(
        self, p: Place, cond: Expr, then: Entry | None, other: Entry | None, old: Entry | None
    ) -> Entry:
        symbol = self.symbol(p)
        x = symbol if then is None else then.value
        y = symbol if other is None else other.value
        span = next(e.span for e in (then, other) if e is not None and e is not old)
        touched: Expr | None = None
        if old is None or old.touched is not None:
            mine = [Const(0, INT32) if e is None or e is old else e.touched for e in (then, other)]
            if any(m is not None for m in mine):
                yes, no = (Const(1, INT32) if m is None else m for m in mine)
                touched = Select(truth(cond), yes, no, INT32)
                if old is not None and old.touched is not None:
                    touched = Binary("||", old.touched, touched, INT32)
        if x == y:
            return Entry(x, touched=touched, span=span)
        if is_unset(x):
            x = zero(y.type)
        if is_unset(y):
            y = zero(x.type)
        return Entry(Select(truth(cond), x, y, x.type), touched=touched, span=span)

    def opaque(self, s: If | While, env: Env) -> None:
        """A statement with a ``while`` stays a statement; its variables get names of their own."""
        if assigned_buffers((s,)):
            raise refuse(
                "MDH211",
                "an array is written inside a loop whose trip count depends on data",
                s.span,
                help="write to a local variable and store it after the loop",
            )
        inside = _declared_within((s,))
        inner: Env = dict(env)
        renamed: dict[str, Var] = {}
        for name in sorted(assigned_scalars((s,)) - inside):
            old = self.read(Var(name, self.types[name]), env)
            renamed[name] = self.fresh(name, old.type)
            value = None if is_poison(old) else old
            self.statements.append(Declare(renamed[name].name, old.type, value, s.span))
        outside = dict(renamed)
        renamed |= {name: self.fresh(name, self.types[name]) for name in sorted(inside)}
        for name, var in renamed.items():
            self.put(Place(name), var, inner, s.span)

        def one(t: Stmt) -> Stmt:
            match t:
                case Declare(name=name, value=value):
                    new = None if value is None else self.read(value, inner)
                    return replace(t, name=renamed[name].name, value=new)
                case Assign(target=target, value=value):
                    place = substitute(target, dict(renamed))
                    return replace(t, target=place, value=self.read(value, inner))
                case If(cond=cond, then=then, other=other):
                    return replace(
                        t,
                        cond=self.read(cond, inner),
                        then=tuple(map(one, then)),
                        other=tuple(map(one, other)),
                    )
                case While(cond=cond, body=body):
                    return replace(t, cond=self.read(cond, inner), body=tuple(map(one, body)))
            raise AssertionError(t)

        self.statements.append(one(s))
        for name, var in outside.items():
            self.put(Place(name), var, env, s.span)

    def put(self, p: Place, value: Expr, env: Env, span: Span) -> None:
        if p.name in self.split and isinstance(value.type, RecordType):
            for f, u in value.type.fields:
                env[replace(p, field=f)] = Entry(Field(value, f, u), span=span)
        else:
            env[p] = Entry(value, span=span)

    # ----------------------------------------------------------------- loops

    def loop(self, loop: AxisLoop, env: Env) -> None:
        first = len(self.statements)
        self.loops.append(loop)
        inner: Env = {}
        self.run(loop.body, inner)
        self.loops.pop()
        closed = self.close(loop, inner)
        self.statements[first:] = [self.resolve_statement(s, env) for s in self.statements[first:]]
        moved: dict[int, int] = {}
        new: Env = {}
        for p, entry in closed.items():
            value = self.resolve(entry.value, env, moved)
            total = None if entry.total is None else self.resolve(entry.total, env, moved)
            touched = None if entry.touched is None else self.resolve(entry.touched, env, moved)
            new[p] = replace(entry, value=value, total=total, touched=touched)
        for p, entry in new.items():
            for other, old in env.items():
                mine = p.index is not None and other.name == p.name and other.index != p.index
                if mine and self.may_meet(p, other):
                    raise output_twice(p.name, entry.span, old.span)
            if p in env and env[p].touched is None:
                entry = replace(entry, touched=None)
            env[p] = entry

    def resolve(self, e: Expr, env: Env, moved: dict[int, int]) -> Expr:
        """Symbols replaced by what the places held before the loop, in reductions too."""

        def results(n: Expr) -> Expr | None:
            if not isinstance(n, Result):
                return None
            red, component = self.results[n.component]
            if red not in moved:
                old = self.reductions[red]
                new = replace(
                    old,
                    elements=tuple(self.read(x, env) for x in old.elements),
                    initials=tuple(None if x is None else self.resolve(x, env, moved) for x in old.initials),
                    arg_values=tuple((a, self.read_keeping(v, old, env)) for a, v in old.arg_values),
                )
                moved[red] = red if new == old else self.add(new)
            return self.result(moved[red], component)

        return rewrite(self.read(e, env), results)

    def read_keeping(self, value: Expr, r: Reduction, env: Env) -> Expr:
        """Resolved except for the variables that the arg-operator itself combines."""
        kept = {p for a, _ in r.arg_values for p in self.reads(a)}
        return self.read(value, {p: e for p, e in env.items() if p not in kept})

    def resolve_statement(self, s: Stmt, env: Env) -> Stmt:
        def f(e: Expr) -> Expr:
            return self.read(e, env)

        return map_stmts((s,), f)[0]

    # ----------------------------------------------------------------- reductions

    def add(self, r: Reduction) -> int:
        self.reductions.append(r)
        return len(self.reductions) - 1

    def result(self, red: int, component: int) -> Result:
        pair = (red, component)
        if pair not in self.results:
            self.results.append(pair)
        return Result(self.results.index(pair), self.reductions[red].function.types[component])

    def reduction_of(self, r: Result) -> tuple[Reduction, int]:
        red, component = self.results[r.component]
        return self.reductions[red], component

    def extend(self, e: Expr, axis: str, kind: str) -> Expr:
        """All reductions in ``e`` range over one more axis."""

        def one(n: Expr) -> Expr | None:
            if not isinstance(n, Result):
                return None
            red, component = self.results[n.component]
            key = (red, axis, kind)
            if key not in self.extended:
                old = self.reductions[red]
                self.extended[key] = self.add(replace(old, dims=((axis, kind), *old.dims)))
            return self.result(self.extended[key], component)

        return rewrite(e, one)

    def reads(self, e: Expr) -> set[Place]:
        """Places whose symbols a value depends on, through reductions and bound variables."""
        out: set[Place] = set()
        for n in self.leaves(e):
            match n:
                case Field(a=Var(name=name), name=f):
                    out.add(Place(name, None, f))
                case Field(a=Load(buffer=buffer, index=index), name=f):
                    out.add(Place(buffer, indices(index), f))
                case Load(buffer=buffer, index=index):
                    out |= self.parts(Place(buffer, indices(index)))
                case Var(name=name) if name in self.bound:
                    for s in self.defining({name}):
                        for x in stmt_exprs((s,)):
                            if not (isinstance(x, Var) and x.name in self.bound):
                                out |= self.reads_unbound(x, name)
                case Var(name=name) if name in self.types:
                    out |= self.parts(Place(name))
                case Result():
                    red, _ = self.reduction_of(n)
                    for part in (*red.elements, *red.initials):
                        if part is not None:
                            out |= self.reads(part)
        return out

    def reads_unbound(self, e: Expr, name: str) -> set[Place]:
        keep: dict[str, Expr] = {name: Const(0, INT32)}
        for other in variables(e) & set(self.bound):
            keep[other] = Const(0, INT32)
        return self.reads(substitute(e, keep))

    def parts(self, p: Place) -> set[Place]:
        t = self.base_type(p.name)
        if p.name in self.split and isinstance(t, RecordType):
            return {replace(p, field=f) for f, _ in t.fields}
        return {p}

    def leaves(self, e: Expr) -> Iterable[Expr]:
        """Field selections of split records as a whole, otherwise single nodes."""
        if isinstance(e, Field) and isinstance(e.a, (Var, Load)):
            name = e.a.name if isinstance(e.a, Var) else e.a.buffer
            if name in self.split and name not in self.bound:
                yield e
                return
        yield e
        for child in children(e):
            yield from self.leaves(child)

    def defining(self, names: set[str]) -> list[Stmt]:
        """The statements that the values of bound variables need, in order."""
        needed, out = set(names), []
        for s in reversed(self.statements):
            if needed & ({s.name} if isinstance(s, Declare) else assigned_scalars((s,))):  # type: ignore[arg-type]
                out.append(s)
                for x in stmt_exprs((s,)):
                    needed |= variables(x)
        return out[::-1]

    # ----------------------------------------------------------------- closing a loop

    def close(self, loop: AxisLoop, env: Env) -> Env:
        axis = loop.axis.name
        local = declared(loop.body)
        env = {p: e for p, e in env.items() if p.name not in local}
        carried = [p for p in env if not p.uses(axis)]
        depends = {p: {q for q in self.reads(env[p].value) if q in carried} for p in carried}
        out: Env = {}
        running: list[tuple[Expr, Expr]] = []  # value after one iteration -> scan
        for group in connected(carried, depends):
            if len(group) == 1 and not depends[group[0]]:
                out[group[0]] = self.overwritten(loop, group[0], env[group[0]])
            elif len(group) == 1:
                out[group[0]] = self.reduced(loop, group[0], env[group[0]])
            else:
                out.update(self.reduced_together(loop, group, env))
        for p in carried:
            value = env[p].value
            alone = depends[p] == {p} and not any(p in depends[q] for q in carried if q != p)
            if alone and isinstance(out[p].value, Result) and out[p].total is None:
                running.append((value, self.as_scan(out[p].value, axis)))
        scanned: set[Place] = set()
        for p, entry in env.items():
            if p not in carried:
                out[p] = self.concatenated(loop, p, entry, carried, running, scanned, env)
        for p in scanned:
            scan = next(s for v, s in running if v == env[p].value)
            out[p] = replace(
                out[p], value=scan, total=out[p].value, last=True, dims=((axis, "ps"), *out[p].dims)
            )
        return out

    def as_scan(self, e: Expr, axis: str) -> Expr:
        """A reduction whose outermost axis is ``axis``, with that axis scanned."""
        assert isinstance(e, Result)
        red, component = self.results[e.component]
        old = self.reductions[red]
        assert old.dims[0][0] == axis
        key = (red, axis, "scan")
        if key not in self.extended:
            self.extended[key] = self.add(replace(old, dims=((axis, "ps"), *old.dims[1:])))
        return self.result(self.extended[key], component)

    def overwritten(self, loop: AxisLoop, p: Place, entry: Entry) -> Entry:
        axis = loop.axis.name
        if p.index is not None:
            raise refuse(
                "MDH208",
                f"`{p.name}` is written in every iteration of `{loop.axis.source_name}`",
                entry.span,
                label=f"this cell does not depend on `{loop.axis.source_name}`",
                related=related(loop.axis.loop.span, "the loop"),
                help="combine the values, for example with `+=`, or write each cell once",
            )
        value = self.extend(entry.value, axis, "cc")
        return Entry(value, ((axis, "cc"), *entry.dims), last=True, span=entry.span)

    def reduced(self, loop: AxisLoop, p: Place, entry: Entry) -> Entry:
        value = self.reduce(loop, p, self.symbol(p), entry, loop.axis.name, "pw")
        return replace(entry, value=value)

    def reduce(self, loop: AxisLoop, p: Place, a: Expr, entry: Entry, axis: str, kind: str) -> Expr:
        """The value of ``entry`` after the loop, where ``a`` is the value before an iteration."""
        value = entry.value
        if entry.last:
            why = WhyNot("an inner loop leaves its last value in it")
            if entry.total is not None:
                why = WhyNot("a scan goes on from row to row", f"start `{p.name}` anew in each row")
            raise self.no_reduction(loop, p, entry, why)
        inner = [n for n in walk(value) if isinstance(n, Result)]
        for n in inner:
            red, component = self.reduction_of(n)
            mine = self.reads(a)
            if any(self.reads(x) & mine for x in red.elements):
                raise self.no_reduction(
                    loop, p, entry, WhyNot("an inner loop reads its value of the previous iteration")
                )
            initial = red.initials[component]
            if initial is not None and self.reads(initial) & mine:
                if value == n and initial == a and red.function.arity == 1:
                    return self.extend(value, axis, kind)
                raise self.no_reduction(
                    loop,
                    p,
                    entry,
                    WhyNot("it is combined in an inner loop and changed again outside of it"),
                )
        if kind == "pw" and self.is_set_once(value, a):
            return self.extend(value, axis, kind)
        update = infer(value, a, self.rules)
        if isinstance(update, WhyNot):
            raise self.no_reduction(loop, p, entry, update)
        dims = ((axis, kind), *entry.dims)
        if isinstance(update, SetOnce):
            if kind == "ps":
                raise self.no_reduction(loop, p, entry, WhyNot("it is set under a condition"))
            return self.set_once(update, a, dims, entry)
        deeper = [n for n in walk(update.element) if isinstance(n, Result)]
        if deeper:
            return self.flattened(loop, p, a, entry, update, deeper, axis, kind)
        new = Reduction(update.function, (update.element,), (a,), dims, entry.span)
        return self.result(self.add(new), 0)

    def flattened(
        self,
        loop: AxisLoop,
        p: Place,
        a: Expr,
        entry: Entry,
        update: Update,
        inner: list[Result],
        axis: str,
        kind: str,
    ) -> Expr:
        """``s = s ⊕ Result`` where the result is itself combined with ⊕ from a neutral value."""
        red, component = self.reduction_of(inner[0])
        alike = (
            not self.rules.exact
            and red.function.name == update.function.name
            and red.function.types == update.function.types
            and red.function.name in ("min", "max")  # spelled differently: for NaN and -0.0 only
        )
        if not alike and not same_function(red.function, update.function):
            ops = (CombineOp(kind, update.function), CombineOp("pw", red.function))
            reason = why_not_well_defined(ops)
            raise refuse(
                "MDH209",
                reason or "a reduction of reductions",
                entry.span,
                label=f"`{ops[0]}` over `{loop.axis.source_name}` of a value that `{ops[1]}` yields",
                related=related(red.span, "the inner reduction"),
                help="store the inner results in an array and combine them in a second nest",
            )
        nothing = (neutral(red.function), *(red.function.identity or ()))
        initial = red.initials[component]
        if (
            strip(update.element) != inner[0]
            or initial is None
            or not any(c is not None and _same_number(initial, c) for c in nothing)
        ):
            raise refuse(
                "MDH211",
                f"`{p.name}` combines values that an inner reduction yields, changed on the way",
                entry.span,
                related=related(red.span, "the inner reduction"),
                help="store the inner results in an array and combine them in a second nest",
            )
        if self.rules.exact and not red.function.exact:
            raise self.no_reduction(
                loop,
                p,
                entry,
                WhyNot(
                    "sums of sums would be regrouped, which `fp(exact)` forbids",
                    "use `fp(deterministic)`",
                ),
            )
        new = replace(red, initials=(a,), dims=((axis, kind), *red.dims))
        return self.result(self.add(new), 0)

    def set_once(self, update: SetOnce, a: Expr, dims: Dims, entry: Entry) -> Expr:
        """``if (cond) a = constant``: did it hold anywhere (``||``), or never (``&&``)?"""
        zero_wanted = not update.constant.value
        name = "&&" if zero_wanted else "||"
        function = scalar_operator(name, INT32)
        assert function is not None
        element = Unary("!", truth(update.cond), INT32) if zero_wanted else truth(update.cond)
        new = Reduction(function, (element,), (Const(int(zero_wanted), INT32),), dims, entry.span)
        happened = Binary("!=", self.result(self.add(new), 0), Const(0, INT32), INT32)
        if zero_wanted:
            return Select(happened, a, update.constant, a.type)
        return Select(happened, update.constant, a, a.type)

    def is_set_once(self, value: Expr, a: Expr) -> bool:
        if not isinstance(value, Select) or not isinstance(value.cond, Binary):
            return False
        r = value.cond.a
        if not isinstance(r, Result) or {type(value.then), type(value.other)} > {Const, type(a)}:
            return False
        red, _ = self.reduction_of(r)
        return (
            red.function.name in ("||", "&&")
            and isinstance(red.initials[0], Const)
            and a in (value.then, value.other)
            and any(isinstance(x, Const) for x in (value.then, value.other))
        )

    def reduced_together(self, loop: AxisLoop, group: list[Place], env: Env) -> Env:
        """Several places that depend on one another: an arg-min or arg-max."""
        axis = loop.axis.name
        entries = [env[p] for p in group]
        symbols = [self.symbol(p) for p in group]
        dims = entries[0].dims
        if any(e.dims != dims or e.last for e in entries):
            raise self.no_reduction(loop, group[0], entries[0], WhyNot("its partners have other dimensions"))
        values = [e.value for e in entries]
        inner = [v for v in values if isinstance(v, Result)]
        update: ArgUpdate | WhyNot
        pairs: tuple[tuple[Expr, Expr], ...]
        if len(inner) == len(values):
            reds = {self.results[r.component][0] for r in inner}
            red, _ = self.reduction_of(inner[0])
            if len(reds) > 1 or [red.initials[self.results[r.component][1]] for r in inner] != symbols:
                raise self.no_reduction(
                    loop, group[0], entries[0], WhyNot("it changes outside the inner loop")
                )
            pairs, dims = red.arg_values, red.dims
        else:
            if any(isinstance(n, Result) for v in values for n in walk(v)):
                raise self.no_reduction(
                    loop, group[0], entries[0], WhyNot("it depends on the results of an inner loop")
                )
            pairs = tuple(zip(symbols, values, strict=True))
        reduced = (axis, *(d for d, kind in dims if kind == "pw"))
        update = infer_arg(dict(pairs), reduced, self.rules)
        if isinstance(update, WhyNot):
            worst = next((e for e in entries if not isinstance(e.value, Result)), entries[0])
            raise self.no_reduction(loop, group[entries.index(worst)], worst, update)
        positions: tuple[Expr, ...] = (Const(-1, INT64),) * update.positions
        new = Reduction(
            update.function,
            update.elements,
            (*update.order, *positions),
            ((axis, "pw"), *dims),
            entries[0].span,
            pairs,
        )
        number_ = self.add(new)
        return {
            p: replace(e, value=self.result(number_, update.order.index(a)))
            for p, e, a in zip(group, entries, symbols, strict=True)
        }

    def concatenated(
        self,
        loop: AxisLoop,
        p: Place,
        entry: Entry,
        carried: list[Place],
        running: list[tuple[Expr, Expr]],
        scanned: set[Place],
        env: Env,
    ) -> Entry:
        """A cell per index of the axis; its value may follow a running reduction."""
        axis = loop.axis.name
        value, kind = entry.value, "cc"
        for after, scan in running:
            hit = _replaced(value, after, scan)
            if hit != value:
                kind, value = "ps", hit
                scanned.update(q for q in carried if env[q].value == after)
        previous = self.previous(p, value, axis)
        if kind == "cc" and previous is not None:
            before = replace(entry, value=value)
            value, kind = self.reduce(loop, p, previous, before, axis, "ps"), "ps"
            value = self.from_start(value, axis)
        inner = [self.reduction_of(n)[0] for n in walk(value) if isinstance(n, Result)]
        if kind == "ps" and any(r.dims[0] != (axis, "ps") for r in inner):
            raise refuse(
                "MDH211",
                f"`{p.name}` combines a scan with another reduction",
                entry.span,
                help="store the two results in arrays of their own",
            )
        late = sorted({q.name for q in self.reads_now(value, kind == "ps") if q in carried})
        if late:
            raise self.late_read(loop, p, entry, late[0], carried, env)
        if kind == "cc":
            value = self.extend(value, axis, "cc")
        return replace(entry, value=value, dims=((axis, kind), *entry.dims))

    def reads_now(self, value: Expr, scan: bool) -> set[Place]:
        """Reads of a value; the initial value of a scan belongs to the time before the loop."""
        if not scan:
            return self.reads(value)
        out = self.reads(rewrite(value, lambda n: Const(0, INT32) if isinstance(n, Result) else None))
        for n in walk(value):
            if isinstance(n, Result):
                for e in self.reduction_of(n)[0].elements:
                    out |= self.reads(e)
        return out

    def previous(self, p: Place, value: Expr, axis: str) -> Load | None:
        """The read of the cell that the previous iteration of ``axis`` wrote, if there is one."""
        assert p.index is not None
        step = {axis: Affine.of(axis) - 1}
        before = tuple(a.substitute(step) for a in p.index)
        pool = [value]
        for n in walk(value):
            if isinstance(n, Result):
                pool += [x for x in self.reduction_of(n)[0].initials if x is not None]
        for e in pool:
            for n in walk(e):
                if isinstance(n, Load) and n.buffer == p.name and indices(n.index) == before:
                    return n
        return None

    def from_start(self, value: Expr, axis: str) -> Expr:
        """The initial value of an in-place scan is what the first iteration reads."""
        first = {axis: Affine.number(0)}

        def shift(n: Expr) -> Expr | None:
            if isinstance(n, Load):
                return replace(n, index=tuple(affine_expr(a.substitute(first)) for a in indices(n.index)))
            return None

        assert isinstance(value, Result)
        red, component = self.results[value.component]
        old = self.reductions[red]
        new = replace(old, initials=tuple(None if x is None else rewrite(x, shift) for x in old.initials))
        return self.result(self.add(new), component)

    # ----------------------------------------------------------------- why not

    def no_reduction(self, loop: AxisLoop, p: Place, entry: Entry, why: WhyNot) -> Refusal:
        name = shown(p, self.normal.axes)
        return refuse(
            "MDH207",
            f"`{name}` is carried from one iteration of `{loop.axis.source_name}` to the next, "
            "but not by a known combine operator",
            entry.span,
            label=why.reason,
            related=related(loop.axis.loop.span, "carried by this loop"),
            help=why.help
            or "write the update as `x = x ⊕ e` with an associative ⊕, or name its function in `combine_ops`",
        )

    def late_read(
        self, loop: AxisLoop, p: Place, entry: Entry, name: str, carried: list[Place], env: Env
    ) -> Refusal:
        source = next(q for q in carried if q.name == name)
        return refuse(
            "MDH207",
            f"`{p.name}` needs the value that `{name}` had in the previous iteration of "
            f"`{loop.axis.source_name}`",
            entry.span,
            label=f"`{name}` is used before its update, or across rows",
            related=related(env[source].span, f"`{name}` is updated here"),
            help=f"use `{name}` after its update (an inclusive scan), or start it anew in each row",
        )


# --------------------------------------------------------------------------- helpers


def output_twice(name: str, span: Span, other: Span) -> Refusal:
    return refuse(
        "MDH208",
        f"a cell of `{name}` may be written more than once",
        span,
        label="may be the same cell",
        related=related(other, "also written here"),
        help="write each cell once",
    )


def related(span: Span, label: str) -> tuple[Related, ...]:
    return (Related(span, label),) if span else ()


def shown(p: Place, axes: Mapping[str, Axis]) -> str:
    """The place as in the source: ``a[i - 1].re``."""
    index = "" if p.index is None else "".join(f"[{in_source(a, axes)}]" for a in p.index)
    return p.name + index + (f".{p.field}" if p.field else "")


def indices(index: tuple[Expr, ...]) -> tuple[Affine, ...]:
    out = []
    for e in index:
        a = as_affine(e)
        assert a is not None, e
        out.append(a)
    return tuple(out)


def fits(e: Expr, limit: int) -> bool:
    """Has the expression at most ``limit`` nodes?"""
    return all(k < limit for k, _ in enumerate(walk(e)))


def is_unset(e: Expr) -> bool:
    return isinstance(e, Var) and e.name.startswith("?")


def zero(t: Type) -> Expr:
    if isinstance(t, RecordType):
        return MakeRecord(tuple(number(0, u) for _, u in t.fields), t)
    return number(0, t)


def connected(places: list[Place], depends: Mapping[Place, set[Place]]) -> list[list[Place]]:
    """Places that depend on one another, directly or not; both orders kept as given."""
    group = {p: {p} for p in places}
    for p in places:
        for q in depends[p]:
            union = group[p] | group[q]
            for r in union:
                group[r] = union
    seen: set[Place] = set()
    out = []
    for p in places:
        if p not in seen:
            out.append([q for q in places if q in group[p]])
            seen |= group[p]
    return out


def _replaced(e: Expr, part: Expr, new: Expr) -> Expr:
    if e == part:
        return new
    return map_children(e, lambda child: _replaced(child, part, new))


def _same_number(e: Expr, c: Const) -> bool:
    while isinstance(e, Cast):
        e = e.a
    return isinstance(e, Const) and e.value == c.value


def _has_while(body: Sequence[Stmt]) -> bool:
    return any(
        isinstance(s, While) or (isinstance(s, If) and (_has_while(s.then) or _has_while(s.other)))
        for s in body
    )


def _declared_within(body: Sequence[Stmt]) -> set[str]:
    out: set[str] = set()
    for s in body:
        match s:
            case Declare(name=name):
                out.add(name)
            case If(then=then, other=other):
                out |= _declared_within(then) | _declared_within(other)
            case While(body=inner):
                out |= _declared_within(inner)
    return out
