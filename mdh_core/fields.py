"""Programs without records and without calls of their own functions: what lanes of a vector compute.

    before   pw(better) on records,  f(N[0], E[0]) = weigh(N[0], E[0])
             weigh(a, b)  { match m = {a.id, 0};  if (a.zip != b.zip) return m;  m.weight += 2; ...  return m;
             better(x, y) { if (x.weight > y.weight) return x;  return y;
    after    pw(better) on (id, weight):  (l1 > r1 ? l0 : r0, l1 > r1 ? l1 : r1)
             f = (N[0].id, weight)  where  weight = 0;  if (N[0].zip == E[0].zip) { ...  weight = ...; }

``in_fields`` runs the functions symbolically: variables stand for expressions over fields of operands, and
records for tuples of these.  Where a branch returns, what follows it is the other branch.  Short branches
become choices between values, as every lane computes both; long ones remain branches, which are worth a test
of whether any lane takes them.  Values are named where they are assigned, so that none is computed twice.

Not taken: functions with loops, those that call themselves, those with a pointer for their result, records
that are loaded at computed indices.  Whether what is left may be computed in lanes (no integer divisions, no
loads under conditions) is for the caller to see, as for every other program.

Initial values are taken apart as well; what is stored is not: results in fields are put together again first.

Shown right by evaluating both programs (tests/test_fields.py), and by what is emitted from them.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from mdh_core.combine import CombineFunction, CombineOp
from mdh_core.expr import (
    COMPARISONS,
    INT32,
    Assign,
    Binary,
    Call,
    Const,
    Declare,
    Expr,
    Field,
    Function,
    If,
    Load,
    MakeRecord,
    Operand,
    RecordType,
    Return,
    ScalarType,
    Select,
    Stmt,
    Type,
    Unary,
    Var,
    map_children,
    map_stmts,
    stmt_exprs,
    substitute,
    variables,
    walk,
)
from mdh_core.ir import MdhProgram
from mdh_core.lanes import LONG, declared_in, is_expression, is_truth, operations

_Values = tuple[str, Expr, Expr]  # of a variable by its name: behind the one branch, and behind the other

_MOST = 4000  # nodes of a scalar function, and statements that are run for it


@functools.lru_cache(maxsize=256)
def in_fields(program: MdhProgram) -> MdhProgram:
    """The program with components, operands and operators of scalars; itself where it has such, or no form.

    Components are in the order of fields of the program's own: see ``component_fields``.
    """
    if not (_has_records(program) or _calls_more_than_expressions(program)):
        return program
    try:
        return _taken_apart(program)
    except _NoForm:
        return program


def component_fields(program: MdhProgram) -> tuple[tuple[int, str | None], ...]:
    """Per component of ``in_fields(program)``: the program's own component, and the field of it, if any."""
    return tuple(
        (c, name)
        for c, t in enumerate(program.component_types)
        for name in ([n for n, _ in t.fields] if isinstance(t, RecordType) else [None])
    )


class _NoForm(Exception):  # noqa: N818 - an answer, not an error
    """A function or an expression is none of those that are taken apart."""


def _has_records(program: MdhProgram) -> bool:
    scalar = program.hom.scalar
    exprs = (*scalar.results, *stmt_exprs(scalar.body))
    return any(isinstance(n.type, RecordType) for e in exprs for n in walk(e))


def _calls_more_than_expressions(program: MdhProgram) -> bool:
    """Whether the scalar function or the operator calls functions that have no place in an expression."""
    scalar, function = program.hom.scalar, program.hom.function
    todo = [*scalar.results, *stmt_exprs(scalar.body), *(function.values if function is not None else ())]
    own = {f.name: f for f in program.functions}
    while todo:
        for n in walk(todo.pop()):
            f = own.pop(n.function, None) if isinstance(n, Call) else None
            if f is not None and not is_expression(f):
                return True
            if f is not None:
                todo += stmt_exprs(f.body)
    return False


def _taken_apart(program: MdhProgram) -> MdhProgram:
    scalar = program.hom.scalar
    run = _Run(program)
    env: dict[str, Expr] = {}
    if run.body(scalar.body, env) is not None:
        raise _NoForm
    results = tuple(x for e in scalar.results for x in _fields(run.value(e, env)))
    initial: list[Expr | None] = []
    for e, t in zip(program.out.initial, program.component_types, strict=True):
        count = len(t.fields) if isinstance(t, RecordType) else 1
        initial += [None] * count if e is None else _fields(_Run(program, named_values=False).value(e, {}))
    function = program.hom.function
    new = None if function is None else _operator(program, function)
    ops = tuple(op if op.function is None else CombineOp(op.kind, new) for op in program.hom.combine)
    run.out = list(_used(run.out, {n for e in results for n in variables(e)}))
    body, results = run.numbered(results)
    hom = replace(program.hom, scalar=replace(scalar, results=results, body=body), combine=ops)
    found = replace(program, hom=hom, out=replace(program.out, initial=tuple(initial)))
    nodes = sum(1 for e in (*results, *stmt_exprs(hom.scalar.body)) for _ in walk(e))
    if nodes > _MOST:
        raise _NoForm
    return found


def _operator(program: MdhProgram, f: CombineFunction) -> CombineFunction:
    """The operator on fields; its values are expressions."""
    types, sides = list[Type](), dict[str, Expr]()
    for c, t in enumerate(f.types):
        of = [u for _, u in t.fields] if isinstance(t, RecordType) else [t]
        for side in "lr":
            own = tuple(Var(f"{side}{len(types) + k}", u) for k, u in enumerate(of))
            sides[f"{side}{c}"] = MakeRecord(own, t) if isinstance(t, RecordType) else own[0]
        types += of
    run = _Run(program, named_values=False)
    values = tuple(x for e in f.values for x in _fields(run.value(e, sides)))
    if any(map(_is_large, values)):
        raise _NoForm
    return replace(f, types=tuple(types), values=values, identity=f.identity if types == [*f.types] else None)


def _fields(e: Expr) -> tuple[Expr, ...]:
    return e.values if isinstance(e, MakeRecord) else (e,)


@dataclass
class _Run:
    """A symbolic run; ``out``: statements that the values are computed with.

    named_values   whether there may be any; else values are expressions, and records may be loaded
    """

    program: MdhProgram
    named_values: bool = True
    out: list[Stmt] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    calls: tuple[str, ...] = ()  # functions that are being run
    wishes: dict[str, str] = field(default_factory=dict)  # what a variable's name would be if it were free
    left: int = _MOST  # what follows half a branch is run twice

    def __post_init__(self) -> None:
        p = self.program
        if not self.taken:
            self.taken = {q.name for q in p.params} | {b.name for b in p.buffers}
            self.taken |= {f.name for f in p.functions} | {d.name for d in p.hom.dims}

    # ------------------------------------------------------------------ statements

    def body(self, body: Sequence[Stmt], env: dict[str, Expr]) -> Expr | None:
        """Runs statements; the value that is returned, None where the end is reached."""
        for k, s in enumerate(body):
            self.left -= 1
            if self.left < 0:
                raise _NoForm
            match s:
                case Declare(name=name, type=t, value=value):
                    env[name] = _blank(t) if value is None else self.named(name, self.value(value, env))
                case Assign(target=Var(name=name), value=value):
                    env[name] = self.named(name, self.value(value, env))
                case Assign(target=Field(a=Var(name=name), name=part), value=value):
                    record = env.get(name)
                    if not isinstance(record, MakeRecord):
                        raise _NoForm
                    new = self.named(part, self.value(value, env))
                    names = [n for n, _ in record.type.fields]
                    values = tuple(new if n == part else v for n, v in zip(names, record.values, strict=True))
                    env[name] = MakeRecord(values, record.type)
                case Return(value=value):
                    return self.value(value, env)
                case If():
                    found = self._if(s, body[k + 1 :], env)
                    if found is not None:
                        return found
                case _:
                    raise _NoForm
        return None

    def _if(self, s: If, rest: Sequence[Stmt], env: dict[str, Expr]) -> Expr | None:
        cond = truth(self.value(s.cond, env))
        leaves = _leaves((*s.then, *s.other))
        behind = rest if leaves else ()
        then, other = (self._branch((*x, *behind), env) for x in (s.then, s.other))
        if leaves:
            if then.value is None or other.value is None:
                raise _NoForm
            return self._merged(cond, then, other, [("", then.value, other.value)], named=False)[0]
        new = self._merged(cond, then, other, [(name, then.env[name], other.env[name]) for name in env])
        env.update(zip(env, new, strict=True))
        return None

    def _branch(self, body: Sequence[Stmt], env: dict[str, Expr]) -> _Branch:
        before, self.out = self.out, []
        own = dict(env)
        try:
            value = self.body(body, own)
            return _Branch(self.out, own, value)
        finally:
            self.out = before

    def _merged(
        self, cond: Expr, then: _Branch, other: _Branch, values: list[_Values], named: bool = True
    ) -> list[Expr]:
        """What variables, or the value of a call, are behind both branches; their statements go first."""
        parts: list[_Values] = []
        for name, a, b in values:
            if isinstance(a, MakeRecord) and isinstance(b, MakeRecord):
                parts += zip((n for n, _ in a.type.fields), a.values, b.values, strict=True)
            elif isinstance(a, MakeRecord) or isinstance(b, MakeRecord):
                raise _NoForm
            else:
                parts.append((name, a, b))
        long = operations(then.out) > LONG, operations(other.out) > LONG
        if any(long):
            found = self._branches(cond, then, other, parts, long)
        else:
            parts = _without_names(then, other, parts)
            self.out += [*then.out, *other.out]
            found = [chosen(cond, a, b) for _, a, b in parts]
            if named:
                found = [self.named(n, e) for (n, _, _), e in zip(parts, found, strict=True)]
        rest = iter(found)
        return [
            MakeRecord(tuple(itertools.islice(rest, len(a.values))), a.type)
            if isinstance(a, MakeRecord)
            else next(rest)
            for _, a, _ in values
        ]

    def _branches(
        self, cond: Expr, then: _Branch, other: _Branch, parts: list[_Values], long: tuple[bool, bool]
    ) -> list[Expr]:
        """A branch remains where one is long; the values of a short one are those that there are before."""
        found, assigned = list[Expr](), (list[Stmt](), list[Stmt]())
        if not all(long):
            self.out += (other if long[0] else then).out
        for name, a, b in parts:
            if _same(a, b):  # nothing that is declared in a branch
                found.append(a)
                continue
            own = self._declared(name or "value", _zero(a.type) if all(long) else b if long[0] else a)
            found.append(own)
            assigned[0].append(Assign(own, a))
            assigned[1].append(Assign(own, b))
        yes, no = (*then.out, *assigned[0]), (*other.out, *assigned[1])
        if all(long):
            self.out.append(If(cond, yes, no))
        else:
            self.out.append(If(cond, yes) if long[0] else If(negated(cond), no))
        return found

    def named(self, wish: str, e: Expr) -> Expr:
        """A variable for what is more than a name."""
        if isinstance(e, MakeRecord):
            names = [n for n, _ in e.type.fields]
            return MakeRecord(tuple(self.named(n, v) for n, v in zip(names, e.values, strict=True)), e.type)
        if self.named_values and not _is_atom(e):
            return self._declared(wish or "value", e)
        if _is_large(e):
            raise _NoForm
        return e

    def _declared(self, wish: str, e: Expr) -> Var:
        name, k = wish, 1
        while name in self.taken:
            name, k = f"{wish}_{k + 1}", k + 1
        self.taken.add(name)
        self.wishes[name] = wish
        self.out.append(Declare(name, e.type, e))
        return Var(name, e.type)

    def numbered(self, results: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], tuple[Expr, ...]]:
        """What was run, and results, with the variables of one name numbered without gaps."""
        taken, new = self.taken - self.wishes.keys(), dict[str, Var]()
        for d in declared_in(self.out):
            name, k = self.wishes[d.name], 1
            while name in taken:
                name, k = f"{self.wishes[d.name]}_{k + 1}", k + 1
            taken.add(name)
            new[d.name] = Var(name, d.type)

        def declared(s: Stmt) -> Stmt:
            match s:
                case Declare(name=name):
                    return replace(s, name=new[name].name)
                case If(then=then, other=other):
                    return replace(s, then=tuple(map(declared, then)), other=tuple(map(declared, other)))
                case _:
                    return s

        body = map_stmts(tuple(self.out), lambda e: substitute(e, dict(new)))
        return tuple(map(declared, body)), tuple(substitute(e, dict(new)) for e in results)

    # ------------------------------------------------------------------ expressions

    def value(self, e: Expr, env: dict[str, Expr]) -> Expr:
        """An expression over fields of operands, indices, parameters and what has been named."""
        match e:
            case Var(name=name) if name in env:
                return env[name]
            case Operand() | Var() | Load() if isinstance(e.type, RecordType):
                if isinstance(e, Load) and self.named_values:
                    raise _NoForm
                return MakeRecord(tuple(Field(e, n, t) for n, t in e.type.fields), e.type)
            case Call(function=name, args=args) if any(f.name == name for f in self.program.functions):
                f = next(f for f in self.program.functions if f.name == name)
                return self._called(f, [self.value(a, env) for a in args])
        e = map_children(e, lambda child: self.value(child, env))
        match e:
            case Field(a=MakeRecord(values=values, type=t), name=name):
                return values[[n for n, _ in t.fields].index(name)]
            case Select(cond=cond, then=a, other=b):
                if isinstance(a, MakeRecord) and isinstance(b, MakeRecord):
                    both = zip(a.values, b.values, strict=True)
                    return MakeRecord(tuple(chosen(truth(cond), x, y) for x, y in both), a.type)
                return chosen(truth(cond), a, b)
            case Binary(op=op, a=a, b=b) if op in COMPARISONS:
                return _compared(e)
            case MakeRecord():
                return e
        if any(isinstance(n.type, RecordType) for n in walk(e) if not isinstance(n, Operand | Var | Load)):
            raise _NoForm
        return e

    def _called(self, f: Function, args: Sequence[Expr]) -> Expr:
        if f.out_param or f.name in self.calls:
            raise _NoForm
        own = {name: self.named(name, a) for (name, _), a in zip(f.params, args, strict=True)}
        before, self.calls = self.calls, (*self.calls, f.name)
        found = self.body(f.body, own)
        self.calls = before
        if found is None:
            raise _NoForm
        return found


@dataclass
class _Branch:
    out: list[Stmt]
    env: dict[str, Expr]
    value: Expr | None


def _without_names(then: _Branch, other: _Branch, parts: list[_Values]) -> list[_Values]:
    """What a branch names alone, and is the value of one variable behind it, without the name."""
    for k, x in ((1, then), (2, other)):
        match x.out:
            case [Declare(name=name, value=e)] if e is not None:
                used = [p for p in parts if name in variables(_behind(p, k))]
                if len(used) == 1 and isinstance(_behind(used[0], k), Var):
                    x.out = []
                    wish, a, b = used[0]
                    without = (wish, e, b) if k == 1 else (wish, a, e)
                    parts = [without if p is used[0] else p for p in parts]
    return parts


def _behind(values: _Values, k: int) -> Expr:
    return values[1] if k == 1 else values[2]


def _used(body: Sequence[Stmt], used: set[str]) -> tuple[Stmt, ...]:
    """The statements whose values are used: by those behind them, or behind the body (``used``)."""
    kept = list[Stmt]()
    for s in reversed(body):
        match s:
            case Declare(name=name, value=value) | Assign(target=Var(name=name), value=value):
                if name not in used:
                    continue
                used |= set() if value is None else variables(value)
            case If(then=then, other=other):
                ways = _used(then, used), _used(other, used)  # what either uses, the other may keep
                if not any(ways):
                    continue
                s = replace(s, then=ways[0], other=ways[1])
                used |= variables(s.cond)
        kept.append(s)
    return tuple(reversed(kept))


def _is_large(e: Expr) -> bool:
    return next(itertools.islice(walk(e), _MOST, None), None) is not None


def _leaves(body: Iterable[Stmt]) -> bool:
    return any(
        isinstance(s, Return) or (isinstance(s, If) and _leaves((*s.then, *s.other))) for s in body
    )


def _is_atom(e: Expr) -> bool:
    """Whether an expression costs nothing, or is a choice of numbers, which may become a condition."""
    match e:
        case Var() | Const() | Operand():
            return True
        case Field(a=a):
            return isinstance(a, Operand | Var | Load)
        case _:
            return _numbers(e)


def _numbers(e: Expr) -> bool:
    return isinstance(e, Const) or (isinstance(e, Select) and _numbers(e.then) and _numbers(e.other))


def _zero(t: Type) -> Const:
    if not isinstance(t, ScalarType):
        raise _NoForm
    return Const(0.0 if t.is_float else 0, t)


def _blank(t: Type) -> Expr:
    """Any value: a variable that has none yet."""
    return MakeRecord(tuple(_zero(u) for _, u in t.fields), t) if isinstance(t, RecordType) else _zero(t)


# --------------------------------------------------------------------------- choices and conditions

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_YES, _NO = Const(1, INT32), Const(0, INT32)


def _compared(e: Binary) -> Expr:
    """A comparison of a choice of numbers with a number is a condition: ``(c ? 1 : 0) == 0`` is ``!c``."""
    if isinstance(e.a, Select) and _numbers(e.a) and isinstance(e.b, Const):
        return _decided(e.a, functools.partial(_holds, e.op, e.b.value))
    if is_truth(e.a) and isinstance(e.b, Const):
        yes, no = (_YES if _holds(e.op, e.b.value, n) else _NO for n in (1, 0))
        return either(e.a, yes, no)
    if isinstance(e.a, Const) and isinstance(e.b, Const):
        return _YES if _holds(e.op, e.b.value, e.a.value) else _NO
    return e


def _holds(op: str, right: float, left: float) -> bool:
    return bool(_COMPARE[op](left, right))


def _decided(e: Expr, of: Callable[[float], bool]) -> Expr:
    if isinstance(e, Const):
        return _YES if of(e.value) else _NO
    assert isinstance(e, Select)
    return either(truth(e.cond), _decided(e.then, of), _decided(e.other, of))


def truth(e: Expr) -> Expr:
    """A value as a condition."""
    if is_truth(e):
        return e
    if isinstance(e, Const):
        return _YES if e.value else _NO
    if isinstance(e, Select) and _numbers(e):
        return _decided(e, bool)
    assert isinstance(e.type, ScalarType)
    return Binary("!=", e, _zero(e.type), INT32)


def negated(e: Expr) -> Expr:
    match e:
        case Const(value=v):
            return _NO if v else _YES
        case Unary(op="!", a=a) if is_truth(a):
            return a
        case Binary(op="==" | "!=" as op):
            return replace(e, op="!=" if op == "==" else "==")
        case _:
            return Unary("!", e, INT32)


def either(c: Expr, yes: Expr, no: Expr) -> Expr:
    """The condition that is ``yes`` where ``c`` holds, and else ``no``."""
    if yes == no or c == _YES:
        return yes
    if c == _NO:
        return no
    if yes == _YES:
        return c if no == _NO else Binary("||", c, no, INT32)
    if yes == _NO:
        return negated(c) if no == _YES else Binary("&&", negated(c), no, INT32)
    if no == _NO:
        return Binary("&&", c, yes, INT32)
    if no == _YES:
        return Binary("||", negated(c), yes, INT32)
    both = Binary("&&", c, yes, INT32)
    return Binary("||", both, Binary("&&", negated(c), no, INT32), INT32)


def chosen(c: Expr, a: Expr, b: Expr) -> Expr:
    """``c ? a : b``; of two values one condition decides, and what both begin with is computed once.

        c ? x : d ? y : x      (c || !d) ? x : y
        c ? s + 2 : s - 1      s + (c ? 2 : -1)           the same to the last bit
    """
    if _same(a, b) or c == _YES:
        return a
    if c == _NO:
        return b
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Select) and (_same(y, x.then) or _same(y, x.other)):
            inner, first = truth(x.cond), _same(y, x.then)
            yes = inner if first else negated(inner)  # where x is y
            other = x.other if first else x.then
            cond = either(c, yes, _YES) if x is a else either(c, _YES, yes)
            return chosen(cond, y, other) if not isinstance(other, Select) else Select(cond, y, other, y.type)
    steps = _step(a), _step(b)
    if steps[0] is not None and steps[1] is not None and _same(steps[0][0], steps[1][0]):
        base, t = steps[0][0], a.type
        return Binary("+", base, Select(c, steps[0][1], steps[1][1], t), t)  # type: ignore[arg-type]
    return Select(c, a, b, a.type)


def _same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are one to the bit: 0.0 and -0.0 are equal numbers."""
    return a == b and _signs(a) == _signs(b)


def _signs(e: Expr) -> list[float]:
    return [math.copysign(1.0, n.value) for n in walk(e) if isinstance(n, Const)]


def _step(e: Expr) -> tuple[Expr, Const] | None:
    """``x + number`` or ``x - number`` of floating-point numbers as ``x`` and what is added."""
    match e:
        case Binary(op="+" | "-" as op, a=a, b=Const(value=v, type=t)) if t.is_float and v == v:
            return a, Const(v if op == "+" else -v, t)
        case _:
            return None


__all__ = ["component_fields", "in_fields"]
