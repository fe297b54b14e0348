"""Records and functions with branches in lanes: what is computed in fields is what the program computes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.agreed import in_lanes
from lowering.choice import default_point
from lowering.facts import facts, vector_candidates
from lowering.machine import GENERIC, Machine
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.combine import CC, pw, user_operator
from mdh_core.evaluate import Env, Value, evaluate, execute
from mdh_core.expr import (
    DOUBLE,
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
    MakeRecord,
    RecordType,
    Result,
    Return,
    Select,
    Stmt,
    Unary,
    Var,
    stmt_exprs,
    walk,
)
from mdh_core.fields import component_fields, in_fields
from mdh_core.interpreter import integers, run
from mdh_core.ir import Buffer, InputView, MdhProgram, OutputView, ScalarFunction
from mdh_core.lanes import has_masked_form
from tests.catalogue import CATALOGUE, binary, x
from tests.emitted import FLAGS, Case, check, with_extents
from tests.lifting import lifted
from tests.strategies import buffers_for, copy_of

VECTORS = (*FLAGS, "-O2", "-mavx2")
WIDE = Machine("wide", 2, 64, 32, 48 << 10, 1 << 20, 32 << 20)
PAIR = RecordType("pair", (("n", INT32), ("w", DOUBLE), ("s", INT32)))
TYPES = dict(PAIR.fields)

# --------------------------------------------------------------------------- random functions


@dataclass
class _Random:
    """Random functions of two records without loops; variables have values before they are used."""

    rng: random.Random
    scalars: dict[str, object] = field(default_factory=dict)
    records: list[str] = field(default_factory=lambda: ["a", "b"])
    made: int = 0

    def function(self) -> Function:
        body = (*self._block(3, must_return=False), Return(self._record()))
        return Function("f", (("a", PAIR), ("b", PAIR)), body, PAIR)

    def _block(self, depth: int, must_return: bool) -> tuple[Stmt, ...]:
        kept, known = dict(self.scalars), list(self.records)
        out = [self._statement(depth) for _ in range(self.rng.randint(1, 4))]
        if must_return:
            out.append(Return(self._record()))
        self.scalars, self.records = kept, known
        return tuple(out)

    def _statement(self, depth: int) -> Stmt:
        rng = self.rng
        kind = rng.random()
        if kind < 0.25:
            self.made += 1
            t, name = rng.choice((INT32, DOUBLE)), f"v{self.made}"
            s = Declare(name, t, self._value(t, 2))
            self.scalars[name] = t
            return s
        if kind < 0.35:
            self.made += 1
            name = f"p{self.made}"
            s = Declare(name, PAIR, self._record())
            self.records.append(name)
            return s
        if kind < 0.6 or depth == 0:
            name = rng.choice(self.records)
            part = rng.choice(list(TYPES))
            return Assign(Field(Var(name, PAIR), part, TYPES[part]), self._value(TYPES[part], 2))
        if kind < 0.7 and self.scalars:
            name = rng.choice(list(self.scalars))
            t = self.scalars[name]
            return Assign(Var(name, t), self._value(t, 2))  # type: ignore[arg-type]
        returns = rng.random() < 0.4
        then = self._block(depth - 1, returns)
        other = self._block(depth - 1, returns and rng.random() < 0.3) if rng.random() < 0.6 else ()
        return If(self._condition(2), then, other)

    def _record(self) -> Expr:
        kind = self.rng.random()
        if kind < 0.5:
            return Var(self.rng.choice(self.records), PAIR)
        if kind < 0.75:
            a, b = (Var(self.rng.choice(self.records), PAIR) for _ in range(2))
            return Select(self._condition(1), a, b, PAIR)
        return MakeRecord(tuple(self._value(t, 1) for _, t in PAIR.fields), PAIR)

    def _condition(self, depth: int) -> Expr:
        kind = self.rng.random()
        if depth and kind < 0.3:
            return binary(self.rng.choice(("&&", "||")), self._condition(depth - 1), self._condition(depth - 1))
        if depth and kind < 0.4:
            return Unary("!", self._condition(depth - 1), INT32)
        if depth and kind < 0.55:  # a choice of numbers, compared with one
            chosen = Select(self._condition(depth - 1), self._number(INT32), self._number(INT32), INT32)
            return binary(self.rng.choice(("==", "<", ">=")), chosen, self._number(INT32))
        t = self.rng.choice((INT32, DOUBLE))
        op = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        return Binary(op, self._value(t, 1), self._value(t, 1), INT32)

    def _number(self, t: object) -> Const:
        n = self.rng.randint(-2, 2)
        return Const(float(n) / 2, DOUBLE) if t == DOUBLE else Const(n, INT32)

    def _value(self, t: object, depth: int) -> Expr:
        kind = self.rng.random()
        if depth and kind < 0.4:
            parts = self._value(t, depth - 1), self._value(t, depth - 1)
            return Binary(self.rng.choice("+-"), *parts, t)  # type: ignore[arg-type]
        if depth and kind < 0.55:
            parts = self._value(t, depth - 1), self._value(t, depth - 1)
            return Select(self._condition(1), *parts, t)  # type: ignore[arg-type]
        own = [name for name, u in self.scalars.items() if u == t]
        if own and kind < 0.75:
            return Var(self.rng.choice(own), t)  # type: ignore[arg-type]
        if kind < 0.85:
            return self._number(t)
        part = self.rng.choice([n for n, u in PAIR.fields if u == t])
        return Field(Var(self.rng.choice(self.records), PAIR), part, TYPES[part])


def _on_pairs(f: Function, operator: Function) -> MdhProgram:
    """``f`` of all pairs, combined by the operator."""
    p = CATALOGUE["prl"]
    accesses = tuple(replace(a, buffer=name) for a, name in zip(p.inp.accesses, "NE", strict=True))
    scalar = ScalarFunction((Call(f.name, (x(0, PAIR), x(1, PAIR)), PAIR),))
    ops = (CC, pw(user_operator(operator)))
    functions = (f,) if operator is f else (f, operator)
    return replace(
        p,
        buffers=tuple(Buffer(name, PAIR, (None,)) for name in "NEM"),
        inp=InputView(accesses),
        hom=replace(p.hom, scalar=scalar, combine=ops),
        out=OutputView((None,), (replace(p.out.stores[0], buffer="M", value=Result(0, PAIR)),)),
        functions=functions,
    )


FIRST = Function("first", (("a", PAIR), ("b", PAIR)), (Return(Var("a", PAIR)),), PAIR)


def _components(p: MdhProgram, operands: list[Value]) -> list[Value]:
    """The scalar function's values for given operands."""
    env = Env({}, {f.name: f for f in p.functions}, operand=lambda k: operands[k])
    execute(p.hom.scalar.body, env)
    return [evaluate(e, env) for e in p.hom.scalar.results]


def _flat(values: list[Value]) -> list[Value]:
    return [v for value in values for v in (value if isinstance(value, tuple) else (value,))]


def _pairs(rng: random.Random) -> Iterator[list[Value]]:
    for _ in range(12):
        yield [(rng.randint(-3, 3), rng.randint(-4, 4) / 2, rng.randint(-2, 2)) for _ in range(2)]


def test_functions_in_fields_compute_the_same() -> None:
    """Long and short branches, those that return, records as a whole and by fields; as operators, too."""
    rng, branches, straight, operators = random.Random(3), 0, 0, 0
    for _ in range(600):
        f = _Random(rng).function()
        p, operator = _on_pairs(f, f), f
        q = in_fields(p)
        if q is p:  # as an operator it has too many nodes
            p, operator = _on_pairs(f, FIRST), FIRST
            q = in_fields(p)
        assert q is not p
        operators += operator is f
        scalar = q.hom.scalar
        nodes = [n for e in (*scalar.results, *stmt_exprs(scalar.body)) for n in walk(e)]
        assert not any(isinstance(n, Call | MakeRecord) for n in nodes)
        names = [s.name for s in scalar.body if isinstance(s, Declare)]
        assert len(names) == len(set(names))
        found = sum(isinstance(s, If) for s in scalar.body)
        branches, straight = branches + bool(found), straight + (not found)
        for operands in _pairs(rng):
            want = _flat(_components(p, operands))
            assert _components(q, operands) == want, (f, operands)
            if operator is f:
                assert q.hom.function is not None
                sides = {f"l{c}": v for c, v in enumerate(operands[0])}  # type: ignore[arg-type]
                sides |= {f"r{c}": v for c, v in enumerate(operands[1])}  # type: ignore[arg-type]
                assert [evaluate(e, Env(dict(sides))) for e in q.hom.function.values] == want, (f, operands)
    assert branches > 60 and straight > 200 and operators > 60, (branches, straight, operators)


# --------------------------------------------------------------------------- emitted kernels

HEAD = """
typedef struct { int id, name, zip; double size; unsigned long wide; } person;
typedef struct { int who; double weight; } match;
typedef struct { int value; } alone;
typedef struct { int double_v; double vectors_v; int int32_v; } double_of;
static double weigh(person a, person b)
{
    double w = 0.0;
    if (a.name != b.name && a.zip != b.zip) return -1.0;
    if (a.name == b.name) w += 2.5; else w -= 0.5;
    if (a.zip == b.zip) { w += 1.25; if (a.size > b.size) w += 0.25; }
    return w;
}
static match judged(person a, person b)
{
    match m;
    m.who = b.id;
    m.weight = weigh(a, b);
    return m;
}
static match better(match x, match y)
{
    if (x.weight > y.weight) return x;
    if (x.weight < y.weight) return y;
    return x.who <= y.who ? x : y;
}
static int near(int a, int b)
{
    int p = a < 0 ? -a : a, q = b < 0 ? -b : b;
    if (p < q) return a;
    if (q < p) return b;
    return a > b ? a : b;
}
static int capped(int a)
{
    if (a > 2) return 2;
    if (a < -1) { int b = a + 1; return b; }
    return a;
}
static int mixed(int a)
{
    int s = a;
    if (a & 1) {
        s = s*3 - 1; s ^= a + 5; if (s > 4) s -= a; else s += 2*a; s = s & 7 ? s - 3 : s + 4; s += a > 0 ? 1 : -1;
        s = s*2 + (a < 2); s -= s > 9 ? 4 : 1; s = s | (a - 2); s += s & 3; s = s > a ? s - a : a - s; s ^= 2; s -= 7;
    }
    return s;
}
static double_of counted(person a, person b, int limit)
{
    double_of r;
    int double_v = a.name*2;
    r.double_v = b.id;
    r.vectors_v = limit > 1 ? a.size + double_v : b.size - double_v;
    if (limit > 2) r.vectors_v += a.zip;
    r.int32_v = a.wide >> (b.wide & 3);
    r.int32_v += (int)((b.wide << (a.zip & 7)) >> 2);
    return r;
}
static double_of larger(double_of x, double_of y)
{
    if (x.vectors_v > y.vectors_v) return x;
    if (x.vectors_v < y.vectors_v) return y;
    if (x.double_v != y.double_v) return x.double_v < y.double_v ? x : y;
    return x.int32_v < y.int32_v ? x : y;
}
static alone single(person a, person b)
{
    alone r;
    r.value = a.zip < b.zip ? b.zip - a.zip : a.name + b.name;
    return r;
}
static alone least(alone x, alone y)
{
    if (y.value < x.value) return y;
    return x;
}
static int points(person a, person b)
{
    int s = 0;
    if (a.name == b.name && a.zip == b.zip) return 7;
    if (a.name == b.name) { s += 3; if (a.size < b.size) s += 1; }
    else if (a.zip == b.zip) s += 2;
    return s;
}
"""
BEST = "match best = {-1, -1.0e30}; for (int j = 0; j < m; j++) best = better(best, judged(N[i], E[j]));"
PEOPLE = "const person *restrict N, const person *restrict E"

# name -> parameters, directive, body of the loop over i, dimension of the vectors
NESTS = {
    "records": (f"match *restrict M, {PEOPLE}", "combine_ops(cc, pw(better))", f"{BEST} M[i] = best;", "i"),
    "one field": (
        f"alone *restrict M, {PEOPLE}", "combine_ops(cc, pw(least))",
        "alone r = {1000}; for (int j = 0; j < m; j++) r = least(r, single(N[i], E[j])); M[i] = r;", "i",
    ),
    "a field": (f"double *restrict W, {PEOPLE}", "combine_ops(cc, pw(better))", f"{BEST} W[i] = best.weight;", "i"),
    "names of vector types, one condition for all, shifts of two types": (
        f"double_of *restrict M, {PEOPLE}", "combine_ops(cc, pw(larger))",
        "double_of r = {0, -1.0e30, 0}; for (int j = 0; j < m; j++) r = larger(r, counted(N[i], E[j], n)); "
        "M[i] = r;", "i",
    ),
    "shifts of two types": (
        "int *restrict S, const int *restrict A, const unsigned long *restrict B", "",
        "for (int j = 0; j < m; j++) S[i*m + j] = (A[i*m + j] >> (B[i*m + j] & 7)) + (int)(B[j] << (n & 3));", "j",
    ),
    "a sum": (
        f"int *restrict S, {PEOPLE}", "",
        "int s = 0; for (int j = 0; j < m; j++) s += points(N[i], E[j]); S[i] = s;", "i",
    ),
    "an added sum": (
        f"int *restrict S, {PEOPLE}", "", "for (int j = 0; j < m; j++) S[i] += points(N[i], E[j]);", "i",
    ),
    "an operator of numbers": (
        "int *restrict S, const int *restrict A", "combine_ops(cc, pw(near))",
        "int s = 1000; for (int j = 0; j < m; j++) s = near(s, A[j*n + i]); S[i] = s;", "i",
    ),
    "the first place of the least": (
        "int *restrict S, int *restrict P, const int *restrict A", "",
        "int s = 1000, p = -1; for (int j = 0; j < m; j++) if (A[j*n + i] < s) { s = A[j*n + i]; p = j; } "
        "S[i] = s; P[i] = p;", "i",
    ),
    "branches along rows": (
        "int *restrict S, const int *restrict A", "",
        "int s = 0; for (int j = 0; j < m; j++) s += capped(A[i*m + j]); S[i] = s;", "j",
    ),
    "long branches along rows": (
        "int *restrict S, const int *restrict A", "",
        "int s = 0; for (int j = 0; j < m; j++) s += mixed(A[i*m + j]); S[i] = s;", "j",
    ),
    "long branches of a map": (
        "int *restrict S, const int *restrict A", "",
        "for (int j = 0; j < m; j++) S[i*m + j] = mixed(A[i*m + j]);", "j",
    ),
    "records that move": (
        f"match *restrict M, {PEOPLE}", "combine_ops(cc, pw(better))",
        BEST.replace("N[i]", "N[i + j]") + " M[i] = best;", "-",
    ),
}  # fmt: skip


def _program(name: str) -> MdhProgram:
    given, directive, body, _ = NESTS[name]
    text = f"{HEAD}void f(int n, int m, {given})\n{{\n#pragma mdh {directive}\n"
    nest = lifted(text + f"    for (int i = 0; i < n; i++) {{ {body} }}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    (p,) = nest.programs
    return p


def _cases(p: MdhProgram, point: dict[str, object], sizes: list[tuple[int, int]], machine: Machine = GENERIC):  # type: ignore[no-untyped-def]
    rng, cases = random.Random(7), []
    for n, m in sizes:
        params: dict[str, Value] = {q.name: {"n": n, "m": m}[q.name] for q in p.params}
        buffers = buffers_for(p, params, rng)
        sized, extra = with_extents(p, buffers)
        own = (sized.sizes(integers({**params, **extra})),)
        full = default_point((sized,), machine, ({"i": 512, "j": 512},)) | point
        (c,) = configuration_at((sized,), machine, own, full)
        expected = copy_of(buffers)
        run(sized, {**params, **extra}, expected)
        cases.append((Case(sized, c, {**params, **extra}, buffers, machine), expected))
    return cases


SIZES = [(0, 3), (1, 1), (2, 0), (3, 5), (7, 2), (8, 3), (9, 4), (15, 7), (16, 1), (17, 3), (31, 6), (33, 5), (65, 3)]


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize(("lanes", "steps"), [(8, 1), (16, 4)])
def test_kernels_with_records(name: str, lanes: int, steps: int, tmp_path: Path) -> None:
    p, vector = _program(name), NESTS[name][3]
    f = facts(p, {"i": 512, "j": 512})
    assert vector_candidates(f)[0] == vector
    space = tuning_space((p,), GENERIC, ({"i": 512, "j": 512},))
    lanes = lanes if vector != "-" else 1
    point = {"vector": vector, "lanes": lanes, "rows_i": 1, "block_i": 64, "threads": "i"}
    point["unroll_j"] = steps
    if vector == "i":
        point["block_j"] = 0
    cases = _cases(p, {k: v for k, v in point.items() if k in space.names}, SIZES)
    case = cases[0][0]
    text = emit_openmp(KernelRequest("k", "f", (case.program,), (case.configuration,), GENERIC)).text
    assert ("vector_size" in text) == (vector != "-")
    check(cases, tmp_path, flags=VECTORS)


@pytest.mark.parametrize("name", ["records", "a sum"])
def test_defaults_with_records(name: str, tmp_path: Path) -> None:
    """The default is in vectors and a point of the space, on machines with vectors of both lengths."""
    p = _program(name)
    for machine in (GENERIC, WIDE):
        sizes = ({"i": 4096, "j": 4096},)
        point = default_point((p,), machine, sizes)
        assert point["vector"] == "i"
        names = tuning_space((p,), machine, sizes)
        assert all(eval(r, {}, dict(point)) for r in names.restrictions), (point, names.restrictions)
        check(_cases(p, dict(point), [(0, 2), (5, 3), (40, 9), (129, 7)], machine), tmp_path, flags=VECTORS)


def test_a_long_branch_is_passed_over() -> None:
    """Only where no lane takes it; a short one is computed by every lane."""
    weights = "".join(f"if (a.name + {k} == b.zip) w += {k}.5; else w -= 0.25; " for k in range(12))
    for body, found in ((weights, True), ("w += 1.5;", False)):
        text = (
            f"{HEAD}static double more(person a, person b)\n{{\n double w = 0.0;\n"
            f" if (a.name == b.name) {{ {body} }}\n return w;\n}}\n"
            f"void f(int n, int m, double *restrict S, {PEOPLE})\n{{\n#pragma mdh\n"
            "    for (int i = 0; i < n; i++) { double s = 0; for (int j = 0; j < m; j++) s += more(N[i], E[j]);"
            " S[i] = s; }\n}\n"
        )
        (p,) = lifted(text).programs
        q = in_lanes(p)
        assert any(isinstance(s, If) for s in q.hom.scalar.body) == found
        assert has_masked_form(q.hom.scalar.body, q)
        sizes = ({"i": 512, "j": 512},)
        (c,) = configuration_at((p,), GENERIC, sizes, default_point((p,), GENERIC, sizes))
        kernel = emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text
        assert bool(re.search(r"if \(some\w*\) \{", kernel)) == found and "vector_size" in kernel


def test_what_has_no_fields_stays() -> None:
    """Functions with loops, those that call themselves; and programs of scalars and expressions."""
    assert in_fields(CATALOGUE["matmul"]) is CATALOGUE["matmul"]
    loop = "static int depth(person a, person b) { int k = 0; while (a.zip > k) k += 1; return k + b.zip; }"
    (p,) = lifted(
        f"{HEAD}{loop}\nvoid f(int n, int m, int *restrict S, {PEOPLE})\n{{\n#pragma mdh\n"
        "    for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) S[i] += depth(N[i], E[j]);\n}\n"
    ).programs
    assert in_fields(p) is p and vector_candidates(facts(p, {"i": 512, "j": 512})) == ("-",)
    again = Call("f", (Var("b", PAIR), Var("a", PAIR)), PAIR)
    itself = Function("f", (("a", PAIR), ("b", PAIR)), (Return(again),), PAIR)
    p = _on_pairs(itself, FIRST)
    assert in_fields(p) is p


def test_what_is_not_used_has_no_name() -> None:
    """Compilers would warn of it; nor are there branches that set nothing else."""
    f = "static int f(person a, person b) { int unused = a.zip + b.zip; int s = 1; if (a.zip < 3) { unused = s; "
    f += "if (b.zip > 2) return s + b.zip; } return s; }"
    (p,) = lifted(
        f"{HEAD}{f}\nvoid g(int n, int m, int *restrict S, {PEOPLE})\n{{\n#pragma mdh\n"
        "    for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) S[i] += f(N[i], E[j]);\n}\n"
    ).programs
    q = in_fields(p)
    assert q is not p
    scalar = q.hom.scalar
    used = {n.name for e in (*scalar.results, *stmt_exprs(scalar.body)) for n in walk(e) if isinstance(n, Var)}
    names = [s.name for s in scalar.body if isinstance(s, Declare)]
    assert set(names) <= used and not any("unused" in name for name in names)
    assert not [s for s in scalar.body if isinstance(s, If)]


def test_zeros_keep_their_signs() -> None:
    """0.0 and -0.0 are equal, and not the same."""
    w, less = Var("w", DOUBLE), binary("<", Field(Var("a", PAIR), "n", INT32), Const(0, INT32))
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        one, other = (Const(z, DOUBLE) for z in zeros)
        result = MakeRecord((Const(1, INT32), w, Const(2, INT32)), PAIR)
        body = (Declare("w", DOUBLE, other), If(less, (Assign(w, one),)), Return(result))
        f = Function("f", (("a", PAIR), ("b", PAIR)), body, PAIR)
        p = replace(_on_pairs(f, FIRST), name=f"first {zeros[0]}")  # programs that are equal share an answer
        for n in (-1, 1):
            operands: list[Value] = [(n, 1.0, 0), (0, 1.0, 0)]
            found, want = _components(in_fields(p), operands), _flat(_components(p, operands))
            assert list(map(repr, found)) == list(map(repr, want)), (zeros, n)


def test_functions_with_too_many_ways_stay() -> None:
    """What follows a branch that may return is run behind both ways: twenty of them are a million."""
    a, b = Var("a", PAIR), Var("b", PAIR)

    def way(k: int) -> Stmt:
        inner = If(binary("<", Field(b, "n", INT32), Const(k, INT32)), (Return(b),))
        return If(binary("<", Field(a, "n", INT32), Const(k, INT32)), (inner,))

    for count, found in ((3, True), (20, False)):
        f = Function("f", (("a", PAIR), ("b", PAIR)), (*map(way, range(count)), Return(a)), PAIR)
        p = _on_pairs(f, FIRST)
        assert (in_fields(p) is not p) == found


def test_components_are_fields_in_order() -> None:
    p = _program("records")
    assert component_fields(p) == ((0, "who"), (0, "weight"))
    assert [t.name for t in in_fields(p).component_types] == ["int32", "double"]
    assert [e.value for e in in_fields(p).out.initial] == [-1, -1.0e30]  # type: ignore[union-attr]
