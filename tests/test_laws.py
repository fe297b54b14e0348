"""The laws of combine functions, of the table's rows and of a user's."""

from __future__ import annotations

import random

import pytest

from mdh_core.combine import (
    OPERATOR_NAMES,
    CombineFunction,
    arg_operator,
    scalar_operator,
    tuple_operator,
    user_operator,
)
from mdh_core.expr import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    SCALAR_TYPES,
    UINT8,
    Binary,
    Call,
    Const,
    Field,
    Function,
    If,
    Return,
    ScalarType,
    Type,
    Var,
)
from mdh_core.laws import check_laws
from tests.catalogue import MATCH, MAX_PRL, binary

TYPES = sorted(SCALAR_TYPES.values(), key=str)
ROWS = [
    f
    for t in TYPES
    for name in OPERATOR_NAMES
    for f in [scalar_operator(name, t)]
    if f is not None
]  # fmt: skip


def checked(f: CombineFunction, *functions: Function, samples: int = 300) -> str:
    return str(check_laws(f, functions, random.Random(1), samples) or "")


@pytest.mark.parametrize("f", ROWS, ids=lambda f: f"{f.name}-{f.types[0]}")
def test_every_row_of_the_table_on_every_type(f: CombineFunction) -> None:
    assert checked(f) == ""


@pytest.mark.parametrize("t", TYPES, ids=str)
@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize("last_wins", [False, True])
def test_arg_operators(t: ScalarType, name: str, last_wins: bool) -> None:
    assert checked(arg_operator(name, t, (), 1, last_wins)) == ""
    assert checked(arg_operator(name, t, (UINT8, DOUBLE), 2, last_wins)) == ""
    assert checked(arg_operator(name, t, (MATCH,), 1, last_wins)) == ""


def test_an_arg_operator_without_positions_does_not_commute() -> None:
    assert "commutative" in checked(arg_operator("argmin", INT32, (UINT8,), 0))


def test_tuples() -> None:
    rows = [scalar_operator(n, t) for n, t in (("+", INT32), ("max", DOUBLE), ("&&", INT32))]
    f = tuple_operator((*(row for row in rows if row is not None), arg_operator("argmin", FLOAT, (), 1)))
    assert f.arity == 5
    assert checked(f) == ""


def user(name: str, t: Type, *body: object) -> tuple[CombineFunction, Function]:
    f = Function(name, (("a", t), ("b", t)), body, t)  # type: ignore[arg-type]
    return user_operator(f), f


def on(t: ScalarType) -> tuple[Var, Var]:
    return Var("a", t), Var("b", t)


def test_the_user_function_of_prl() -> None:
    assert checked(user_operator(MAX_PRL), MAX_PRL, samples=2000) == ""


def test_ties_that_nothing_breaks_are_found() -> None:
    """max_PRL as published: x if its weight is not smaller, else y."""
    a, b = Var("a", MATCH), Var("b", MATCH)
    weights = binary(">=", Field(a, "weight", DOUBLE), Field(b, "weight", DOUBLE))
    f, g = user("published", MATCH, If(weights, (Return(a),)), Return(b))
    assert "not commutative" in checked(f, g, samples=2000)


@pytest.mark.parametrize("t", [INT32, FLOAT, DOUBLE], ids=str)
def test_subtraction_is_not_an_operator(t: ScalarType) -> None:
    a, b = on(t)
    f, g = user("minus", t, Return(Binary("-", a, b, t)))
    assert "not commutative" in checked(f, g)


@pytest.mark.parametrize("t", [FLOAT, DOUBLE], ids=str)
def test_the_mean_commutes_but_is_not_associative(t: ScalarType) -> None:
    a, b = on(t)
    f, g = user("mean", t, Return(Binary("/", Binary("+", a, b, t), Const(2.0, t), t)))
    assert "not associative" in checked(f, g)


def test_rounding_is_no_counterexample_for_a_user_function() -> None:
    """The root of a sum of squares is associative up to rounding only."""
    a, b = on(DOUBLE)
    squares = Binary("+", Binary("*", a, a, DOUBLE), Binary("*", b, b, DOUBLE), DOUBLE)
    f, g = user("length", DOUBLE, Return(Call("sqrt", (squares,), DOUBLE)))
    assert checked(f, g) == ""


def test_signed_overflow_is_no_counterexample_for_a_user_function() -> None:
    """A product modulo 1000003 is associative as long as nothing overflows."""
    a, b = on(INT64)
    f, g = user("times", INT64, Return(Binary("%", Binary("*", a, b, INT64), Const(1000003, INT64), INT64)))
    assert checked(f, g) == ""


def test_a_wrong_identity_is_found() -> None:
    row = scalar_operator("min", INT32)
    assert row is not None
    wrong = CombineFunction("min", row.types, row.values, (Const(0, INT32),))
    assert "not identity" in checked(wrong)


def test_values_without_a_result_are_passed_over() -> None:
    a, b = on(INT32)
    f, g = user("divide", INT32, Return(Binary("/", Binary("*", a, b, INT32), Const(0, INT32), INT32)))
    assert checked(f, g) == ""
