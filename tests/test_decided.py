"""Conditions that ranges decide: against every point of small ranges, and whole nests against their loops."""

from __future__ import annotations

import random
from itertools import product

import pytest

from lifter.decided import decided, decision, simplified
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop
from lifter.polyhedral import Constraint, at_least, less
from mdh_core.evaluate import Env, evaluate
from mdh_core.expr import (
    DOUBLE,
    INT32,
    INT64,
    UINT32,
    Affine,
    Assign,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Select,
    Unary,
    Var,
    walk,
)
from tests.lifting import check_meaning, lifted, step_lines

I, J, K, N = (Var(name, INT32) for name in "ijkn")
i, j, k, n = map(Affine.of, "ijkn")
ROW = [at_least(k), less(k, n)]  # 0 <= k < n
BEFORE = [*ROW, at_least(i), less(i, k)]


def number(value: int) -> Const:
    return Const(value, INT32)


def compared(op: str, a: Expr, b: Expr) -> Expr:
    return Binary(op, a, b, INT32)


def test_a_range_decides_comparisons() -> None:
    assert decision(compared("!=", I, K), BEFORE) is True
    assert decision(compared("==", I, K), BEFORE) is False
    assert decision(compared("<", I, N), BEFORE) is True
    assert decision(compared(">=", I, K), BEFORE) is False
    assert decision(compared("!=", K, K), BEFORE) is False
    assert decision(compared("<", I, Binary("-", K, number(1), INT32)), BEFORE) is None
    assert decision(compared("!=", I, J), BEFORE) is None


def test_conversions_that_change_no_value_are_seen_through() -> None:
    wide = Cast(Binary("+", Var("k", INT64), Const(1, INT64), INT64), INT32)
    assert decision(compared("!=", wide, Cast(Var("k", INT64), INT32)), ROW) is True
    assert decision(compared("!=", compared("<", I, K), number(0)), BEFORE) is True
    assert decision(Cast(compared("<", K, I), INT64), BEFORE) is False


def test_unsigned_arithmetic_may_wrap() -> None:
    u = Var("i", UINT32)
    below = compared("<", Binary("-", u, Const(1, UINT32), UINT32), Cast(K, UINT32))
    assert decision(below, BEFORE) is None  # i = 0 is 2^32 - 1
    assert decision(below, [*BEFORE, at_least(i, 1)]) is True


def test_data_decide_for_themselves() -> None:
    cell = compared(">", Load("x", (I,), DOUBLE), Const(0.0, DOUBLE))
    assert decision(cell, BEFORE) is None
    both = Binary("&&", compared("!=", I, K), cell, INT32)
    assert decision(both, BEFORE) is None
    assert simplified(both, BEFORE) == cell
    assert decision(Binary("&&", compared("==", I, K), cell, INT32), BEFORE) is False
    assert simplified(Binary("||", cell, compared("==", I, K), INT32), BEFORE) == cell
    # as a number, `x && c` is 0 or 1
    assert simplified(Binary("&&", compared("!=", I, K), J, INT32), BEFORE) != J


def random_condition(rng: random.Random, depth: int) -> Expr:
    kind = rng.randrange(4) if depth else 3
    if kind == 0:
        return Unary("!", random_condition(rng, depth - 1), INT32)
    if kind < 3:
        op = rng.choice(("&&", "||"))
        return Binary(op, random_condition(rng, depth - 1), random_condition(rng, depth - 1), INT32)
    a, b = rng.sample((I, J, K, N, number(0)), 2)
    moved = Binary(rng.choice("+-"), b, number(rng.randint(0, 2)), INT32)
    return compared(rng.choice(("<", "<=", ">", ">=", "==", "!=")), a, rng.choice((b, moved)))


def test_random_conditions_agree_with_every_point() -> None:
    rng, answers = random.Random(3), {True: 0, False: 0, None: 0}
    for _ in range(400):
        facts = rng.choice((ROW, BEFORE, [*BEFORE, less(k, j), less(j, n)], [*ROW, at_least(i - k), less(i, n)]))
        cond = random_condition(rng, rng.randint(0, 2))
        answer, shorter = decision(cond, facts), simplified(Select(cond, number(7), number(9), INT32), facts)
        answers[answer] += 1
        assert answer is None or shorter == number(7 if answer else 9)
        for values in product(range(-1, 5), repeat=4):
            at = dict(zip("ijkn", values, strict=True))
            if not all(_holds(c, at) for c in facts):
                continue
            truth = bool(evaluate(cond, Env(at)))
            assert answer is None or truth == answer, (cond, facts, at)
            assert evaluate(shorter, Env(at)) == (7 if truth else 9), (cond, facts, at)
    assert min(answers.values()) > 30, answers


def _holds(c: Constraint, at: dict[str, int]) -> bool:
    value = c.value.evaluate(at)
    return value == 0 if c.equality else value >= 0


# --------------------------------------------------------------------------- statements


def cell(name: str, e: Expr) -> Load:
    return Load(name, (e,), DOUBLE)


ONE = Const(1.0, DOUBLE)
STORE = Assign(cell("a", I), ONE)


def test_statements_without_what_never_runs() -> None:
    guarded = If(compared("!=", I, K), (STORE,), (Assign(cell("b", I), ONE),))
    before = Loop("i", INT32, number(0), K, 1, (guarded,))
    assert decided((before,), ROW) == (Loop("i", INT32, number(0), K, 1, (STORE,)),)
    at = If(compared("!=", K, K), (STORE,), ())
    assert decided((at, before), ROW)[:1] != (at,)
    up_to_k = Loop("i", INT32, number(0), Binary("+", K, number(1), INT32), 1, (guarded,))
    assert decided((up_to_k,), ROW) == (up_to_k,)


def test_loops_that_never_run_and_variables_of_nobody_are_gone() -> None:
    never = Loop("i", INT32, N, K, 1, (STORE,))
    assert decided((Declare("t", DOUBLE, None), never), ROW) == ()
    assert decided((Declare("t", DOUBLE, None), STORE), ROW) == (STORE,)
    used = (Declare("t", DOUBLE, None), Assign(Var("t", DOUBLE), ONE))
    assert decided(used, ROW) == used


def test_loops_that_count_down() -> None:
    guarded = If(compared(">", I, K), (STORE,), ())
    down = Loop("i", INT32, Binary("-", N, number(1), INT32), K, -1, (guarded,))  # n - 1, …, k + 1
    (loop,) = decided((down,), ROW)
    assert isinstance(loop, Loop) and loop.body == (STORE,)


# --------------------------------------------------------------------------- nests

INVERSE = """void f(int n, int a[n][n]) {
#pragma mdh
for (int k = 0; k < n; k++) {
    a[k][k] = 1;
    for (int i = 0; i < n; i++) if (i != k) {
        int t = a[i][k];
        a[i][k] = 0;
        for (int j = 0; j < n; j++) a[i][j] -= t * a[k][j];
    }
} }"""
WIDE = """void f(int n, int m, int a[n][m]) {
#pragma mdh
for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++) {
        if (i == k) continue;
        int t = a[i][k];
        for (int j = k; j < m; j++) a[i][j] -= t * a[k][j];
    }
}"""
SWEEP = """void f(int n, int a[n][n]) {
#pragma mdh
for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++) for (int j = 0; j < n; j++)
        if (i != k && k != j) a[i][j] -= a[i][k] * a[k][j];
}"""
CLOSURE = """void f(int n, int a[n][n]) {
#pragma mdh
for (int k = n - 1; k >= 0; k--)
    for (int i = n - 1; i >= 0; i--) for (int j = 0; j < n; j++)
        if (!(i == k || j == k)) a[i][j] = a[i][j] < a[i][k] + a[k][j] ? a[i][j] : a[i][k] + a[k][j];
}"""


def guards(nest: LiftedNest) -> int:
    """Comparisons of iterators in all programs."""
    values = (e for p in nest.programs for e in p.hom.scalar.results)
    return sum(isinstance(x, Binary) and x.op in ("==", "!=") for e in values for x in walk(e))


@pytest.mark.parametrize(("text", "left"), [(INVERSE, 1), (WIDE, 1), (SWEEP, 0), (CLOSURE, 0)])
def test_split_loops_lose_the_guards_that_named_the_place(text: str, left: int) -> None:
    nest = lifted(text)
    assert step_lines(nest.program)[0] == "k: host_loop" and nest.status == "lifted"
    # `i != k` where the loop is not split: the temporary that holds column k
    assert guards(nest) == left
    assert not any(p.hom.domain for p in nest.programs if len(p.hom.dims) > 1)
    assert check_meaning(nest) > 4


TRIANGLES = {
    "up to another iterator": "for (int i = 0; i <= k; i++) for (int j = 0; j <= i; j++) a[i][j] += a[i][k];",
    "from another iterator": "for (int i = k; i < n; i++) for (int j = i; j < n; j++) a[i][j] += a[i][k];",
    "product": "for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) a[i][j] -= a[i][k] * a[k][j];",
    "downwards": "for (int i = k; i >= 0; i--) for (int j = 0; j < i + 1; j++) a[i][j] += a[i][k];",
    "short": "for (short i = k; i >= 0; i--) for (int j = 0; j < i + 1; j++) a[i][j] += a[i][k];",
    "bytes": "for (unsigned char i = 0; i < k; i++) for (long j = 1; j <= i; j++) a[i][j] -= a[i][k - 1] * a[k - 1][j];",
    "both": "for (int i = 0; i < n; i++) for (int j = i; j < (n < k + 3 ? n : k + 3); j++) a[i][j] += a[i][k];",
}


@pytest.mark.parametrize("name", TRIANGLES)
def test_a_split_loop_keeps_bounds_that_other_iterators_give(name: str) -> None:
    body = f"#pragma mdh\nfor (int k = 0; k < n; k++) {TRIANGLES[name]}"
    nest = lifted(f"void f(int n, int a[n][n])\n{{\n{body}\n}}\n")
    assert nest.status in ("lifted", "refused")
    if nest.status == "lifted":
        assert check_meaning(nest) > 4


def test_random_guards() -> None:
    rng, split = random.Random(11), 0
    for _ in range(40):
        place = rng.choice(("k", "k", "k + 1", "0", "n - 1", "m"))
        compare = [f"{x} {rng.choice(('!=', '==', '<', '>', '<=', '>='))} {rng.choice((place, 'k'))}" for x in "ij"]
        cond = rng.choice((compare[0], compare[1], f"{compare[0]} && {compare[1]}", f"{compare[0]} || {compare[1]}"))
        cond = rng.choice((cond, f"!({cond})"))
        loops = [
            f"for (int {x} = {rng.choice(('0', '0', 'k', '1', *more))}; {x} < {rng.choice(('n', 'n', 'm', *more))}; {x}++)"
            for x, more in (("i", ()), ("j", ("i", "i + 1")))
        ]
        read = rng.choice((f"a[i][{place}] * a[{place}][j]", f"a[{place}][j]", f"a[i][{place}] + x[j]", "a[i][k]"))
        text = f"""void f(int n, int m, int a[9][9], int x[9]) {{
#pragma mdh
for (int k = 0; k < n; k++) {{ {loops[0]} {loops[1]} if ({cond}) a[i][j] += {read}; x[k] = a[k][k]; }} }}"""
        nest = lifted(text)
        if nest.status == "refused":
            continue
        split += len(list(nest.programs)) > 2
        check_meaning(nest, trials=6)
    assert split > 8
