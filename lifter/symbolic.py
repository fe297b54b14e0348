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
from dataclasses import replace

from lifter.closing import Closing
from lifter.normalise import (
    AxisLoop,
    NormalNest,
    NormalStmt,
    assigned_buffers,
    assigned_scalars,
    declared,
)
from lifter.places import (
    Entry,
    Env,
    Place,
    Reduction,
    fits,
    is_poison,
    is_unset,
    output_twice,
    related,
    zero,
)
from lifter.polyhedral import Constraint, equal, satisfiable
from lifter.reductions import (
    Rules,
    as_condition,
    conjunction,
    truth,
)
from lifter.trees import declarations, has_while
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.expr import (
    INT32,
    Assign,
    Binary,
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
    Var,
    While,
    affine_expr,
    affine_index,
    base_of,
    children,
    map_children,
    map_stmts,
    rewrite,
    stmt_exprs,
    substitute,
    variables,
    walk,
)
from mdh_core.guarded import conjuncts
from mdh_core.source import Span

MAX_NODES = 20_000  # of one value
BIND_ABOVE = 12  # nodes; greater values of locals become statements of the scalar function


class TooLarge(Refusal):
    """A value has more than ``MAX_NODES`` nodes."""


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

    def is_gather(self, e: Expr) -> bool:
        load = e.a if isinstance(e, Field) else e
        return isinstance(load, Load) and self.normal.is_gather(load)

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
            case Load() if self.normal.is_gather(e):
                e = replace(e, index=tuple(self.read(i, env) for i in e.index))
                return e if self.normal.is_gather(e) else self.read(e, env)
            case Load(buffer=buffer, index=index):
                return self.read_place(e, Place(buffer, affine_index(index)), env)
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
        left = {n for group in names for n in group}
        seen: set[str] = set()
        while left - seen:
            name = min(left - seen)
            seen.add(name)
            if name in self.normal.axes:
                constraints = self.normal.axes[name].domain
                out += constraints
                left |= {n for c in constraints for n in c.names}
        return out

    # ----------------------------------------------------------------- running

    def run(self, body: Sequence[NormalStmt | Stmt], env: Env) -> None:
        for s in body:
            self.step(s, env)

    def step(self, s: NormalStmt | Stmt, env: Env) -> None:
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
            raise TooLarge(Diagnostic("MDH211", "a value of the nest is too large to be lifted", span=span))
        base = base_of(target)
        p = Place(base.name) if isinstance(base, Var) else Place(base.buffer, affine_index(base.index))
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
        if any(has_while(b) for b in (s.then, s.other)):
            self.opaque(s, env)
            return
        try:
            then, other = self.branches_of(s, env)
        except TooLarge:
            if self.branches or assigned_buffers((s,)):
                raise
            self.opaque(s, env)
            return
        cond = self.read(s.cond, env)
        for p in [*then, *(p for p in other if p not in then)]:
            if then.get(p) is env.get(p) and other.get(p) is env.get(p):
                continue
            entry = self.merged(p, cond, then.get(p), other.get(p), env.get(p))
            env[p] = replace(entry, value=self.bind(p, entry.value, entry.span))

    def branches_of(self, s: If, env: Env) -> tuple[Env, Env]:
        """What the places hold after either branch."""
        after: list[Env] = []
        self.branches += 1
        try:
            for inner in (s.then, s.other):
                copy = dict(env)
                self.run(inner, copy)
                local = declared(inner)
                after.append({p: e for p, e in copy.items() if p.name not in local})
        finally:
            self.branches -= 1
        return after[0], after[1]

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
                touched = _either(old, Select(truth(cond), yes, no, INT32))
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
        inside = {d.name for d in declarations((s,))}
        inner: Env = dict(env)
        renamed: dict[str, Var] = {}
        for name in sorted(assigned_scalars((s,)) - inside):
            old = self.read(Var(name, self.types[name]), env)
            renamed[name] = self.fresh(name, old.type)
            # without a value in C, too; what another part computes ("!") is asked for later, and refused
            value = None if (is_poison(old) or "").startswith("?") else old
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
        closed = Closing(self, loop).close(inner)
        self.statements[first:] = [self.resolve_statement(s, env) for s in self.statements[first:]]
        moved: dict[int, int] = {}
        new: Env = {}
        for p, entry in closed.items():
            value = self.resolve(entry.value, env, moved)
            total = None if entry.total is None else self.resolve(entry.total, env, moved)
            touched = None if entry.touched is None else self.resolve(entry.touched, env, moved)
            new[p] = replace(entry, value=value, total=total, touched=touched)
        for p, entry in new.items():
            if entry.last and entry.total is None and p in env and self.may_be_empty(loop):
                raise refuse(
                    "MDH211",
                    f"`{p.name}` keeps its value from before a loop where that is empty",
                    entry.span,
                    related=related(env[p].span, "set before the loop"),
                    help="set it once",
                )
            for other, old in env.items():
                mine = p.index is not None and other.name == p.name and other.index != p.index
                if mine and self.may_meet(p, other):
                    raise output_twice(p.name, entry.span, old.span)
            env[p] = replace(entry, touched=_either(env.get(p), entry.touched))

    def may_be_empty(self, loop: AxisLoop) -> bool:
        axis = loop.axis
        return bool(axis.constraints) or satisfiable([*self.normal.context, Constraint(-axis.size.span)])

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
                case Load() | Field(a=Load()) if self.is_gather(n):
                    pass  # of a buffer that is not written
                case Field(a=Load(buffer=buffer, index=index), name=f):
                    out.add(Place(buffer, affine_index(index), f))
                case Load(buffer=buffer, index=index):
                    out |= self.parts(Place(buffer, affine_index(index)))
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
            if name in self.split and name not in self.bound and not self.is_gather(e):
                yield e
                return
        yield e
        for child in children(e):
            yield from self.leaves(child)

    def defining(self, names: set[str]) -> list[Stmt]:
        """The statements that the values of bound variables need, in order."""
        needed, out = set(names), []
        for s in reversed(self.statements):
            if needed & ({s.name} if isinstance(s, Declare) else assigned_scalars((s,))):
                out.append(s)
                for x in stmt_exprs((s,)):
                    needed |= variables(x)
        return out[::-1]


def _either(old: Entry | None, touched: Expr | None) -> Expr | None:
    """The condition under which a cell has been written now, too; None: always.

    What both conditions demand stays in sight: ``a && (b || c)`` of ``a && b`` and ``a && c``.
    """
    if touched is None or old is None:
        return touched
    if old.touched is None or old.touched == touched:
        return old.touched
    one, other = (conjuncts(as_condition(e)) for e in (old.touched, touched))
    both = [c for c in one if c in other]
    rest = [[c for c in each if c not in both] for each in (one, other)]
    if all(rest):
        both.append(Binary("||", conjunction(rest[0]), conjunction(rest[1]), INT32))
    return conjunction(both)
