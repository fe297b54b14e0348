"""Emitted code that is pleasant to read: nothing that cancels, nothing that is computed twice."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product

from emit.repeated import without_repeats
from lifter.index_values import with_index_values
from mdh_core.evaluate import Env, evaluate
from mdh_core.expr import (
    INT8,
    INT32,
    INT64,
    UINT32,
    Affine,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    ScalarType,
    Select,
    Var,
    substitute,
    walk,
)
from mdh_core.ir import HostLoop, InputView, MdHom, MdhProgram, OutputView, ScalarFunction, Size
from mdh_lift.kernels import plan
from tests.lifting import lifted

TABLE = """#define MAX(a, b) ((a) > (b) ? (a) : (b))
void f(int n, int T[n][n])
{
#pragma mdh
    for (int i = n - 1; i >= 0; i--)
        for (int j = i + 1; j < n; j++) {
            int best = MAX(T[i][j - 1], T[i + 1][j]);
            if (j - i > 3)
                best = MAX(best, T[i + 1][j - 1] + 1);
            for (int k = i + 1; k < j; k++)
                best = MAX(best, T[i][k] + T[k + 1][j]);
            T[i][j] = best;
        }
}
"""


def program_of(e: Expr) -> MdhProgram:
    hom = MdHom((), ScalarFunction((e,)), ())
    return MdhProgram("p", (), (), InputView(()), hom, OutputView((None,), ()))


def index_value(e: Expr) -> Expr:
    (loop,) = with_index_values([HostLoop("w", Size(Affine.number(3)), (program_of(e),))])
    assert isinstance(loop, HostLoop) and isinstance(loop.body[0], MdhProgram)
    return loop.body[0].hom.scalar.results[0]


def index(t: ScalarType, *terms: tuple[int, str], const: int = 0) -> Expr:
    """An iterator of the source with this type: an affine value over dimensions, converted."""
    e: Expr = Const(const, INT64)
    for c, name in terms:
        e = Binary("+", e, Binary("*", Const(c, INT64), Var(name, INT64), INT64), INT64)
    return Cast(e, t)


def test_iterators_cancel() -> None:
    i, j = index(INT32, (-1, "i"), (1, "n"), const=-1), index(INT32, (-1, "i"), (1, "n"), (1, "w"))
    found = index_value(Binary(">", Binary("-", j, i, INT32), Const(3, INT32), INT32))
    w = Binary("+", Var("w", INT64), Const(1, INT64), INT64)
    assert found == Binary(">", Cast(w, INT32), Const(3, INT32), INT32)
    assert index_value(Binary("-", i, i, INT32)) == Const(0, INT32)


def test_what_may_wrap_or_be_rounded_stays() -> None:
    i, j = index(UINT32, (1, "i")), index(UINT32, (1, "i"), (-1, "w"))
    unsigned = Binary("-", j, i, UINT32)
    assert index_value(unsigned) == unsigned
    short = Binary("-", index(INT8, (1, "i"), (1, "w")), index(INT8, (1, "i")), INT32)
    assert index_value(short) == short
    data = Binary("-", Load("a", (Var("i", INT64),), INT32), index(INT32, (1, "i")), INT32)
    assert index_value(data) == data


def test_index_values_stay_the_same() -> None:
    chance, shorter = random.Random(5), 0
    names = ("i", "n", "w")

    def random_value(depth: int) -> Expr:
        if not depth or chance.random() < 0.2:
            if chance.random() < 0.3:
                return Const(chance.randint(-3, 3), INT32)
            terms = [(chance.choice((-1, 1, 2)), x) for x in chance.sample(names, chance.randint(1, 2))]
            return index(INT32, *terms, const=chance.randint(-2, 2))
        op = chance.choice("+-<")
        return Binary(op, random_value(depth - 1), random_value(depth - 1), INT32)

    for _ in range(200):
        e = random_value(3)
        new = index_value(e)
        shorter += new != e
        for values in product((-2, 0, 1, 5), repeat=len(names)):
            env = Env(variables=dict(zip(names, values, strict=True)))
            assert evaluate(new, env) == evaluate(e, env), e
    assert shorter > 50


def test_choices_are_named_once_and_only_where_they_are_computed() -> None:
    chance = random.Random(3)
    names = [f"x{k}" for k in range(4)]
    named_once = 0

    def greater(a: Expr, b: Expr) -> Expr:
        return Select(Binary(">", a, b, INT32), a, b, INT32)

    def random_value(depth: int) -> Expr:
        if not depth:
            return Var(chance.choice(names), INT32)
        a, b = random_value(depth - 1), random_value(chance.randrange(depth))
        match chance.randrange(4):
            case 0:
                return Binary("+", a, b, INT32)
            case 1:
                return Select(Binary("&&", a, b, INT32), b, a, INT32)
        return greater(a, b)

    for _ in range(100):
        e = random_value(4)
        constants: list[tuple[Var, Expr]] = []

        def name(choice: Expr, constants: list[tuple[Var, Expr]] = constants) -> Var:
            constants.append((Var(f"choice{len(constants)}", choice.type), choice))
            return constants[-1][0]

        left = without_repeats(e, name)
        named_once += bool(constants)
        whole = left
        for v, choice in reversed(constants):
            assert sum(n == v for x in (left, *(c for _, c in constants)) for n in walk(x)) > 1
            whole = substitute(whole, {v.name: choice})
        assert whole == e
    assert named_once > 30


def test_a_choice_under_a_condition_is_not_named() -> None:
    a, b = Load("a", (Var("i", INT64),), INT32), Var("b", INT32)
    most = Select(Binary(">", a, b, INT32), a, b, INT32)
    twice = Binary("*", most, most, INT32)
    for guarded in (
        Select(b, twice, Const(0, INT32), INT32),
        Binary("&&", b, twice, INT32),
        Select(b, Const(0, INT32), twice, INT32),
    ):
        assert without_repeats(guarded, lambda e: Var("choice", e.type)) == guarded
    either = Select(b, twice, most, INT32)  # on both ways
    choice = Var("choice", INT32)
    expected = Select(b, Binary("*", choice, choice, INT32), choice, INT32)
    assert without_repeats(either, lambda e: replace(choice, type=e.type)) == expected


def test_names_are_in_the_order_of_the_text() -> None:
    """Not in that of a set: a lock file must give the same text in another process."""
    for k in range(20):
        terms = [Var(f"x{k}_{n}", INT32) for n in range(8)]
        choices = [Select(Binary(">", x, y, INT32), x, y, INT32) for x, y in pairwise(terms)]
        e: Expr = Const(0, INT32)
        for choice in choices:
            e = Binary("+", e, Binary("*", choice, choice, INT32), INT32)
        named: list[Expr] = []

        def name(choice: Expr, named: list[Expr] = named) -> Var:
            named.append(choice)
            return Var(f"choice{len(named)}", choice.type)

        without_repeats(e, name)
        assert named == choices


def test_a_table_of_stretches_reads_well() -> None:
    nest = lifted(TABLE)
    choices = plan(nest)
    text = choices.kernel(choices.default).text
    code = text[text.index("*/") :]
    assert "(int)(w + 1) > 3 ? choice > " in code
    assert "-1L" not in code and "0*n" not in code and "(-" not in code.replace("(-2147483647", "")
    greatest = [line for line in code.splitlines() if line.count("?") > 2]
    assert not greatest, greatest
