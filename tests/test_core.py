"""The reference interpreter, evaluation, rules, extents and text."""

from __future__ import annotations

import ast
import itertools
import math
import pickle
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifter.annotations import Directive
from lifter.loop_nest import Loop, LoopNest, OuterScalar
from lifter.run_nest import run_nest
from mdh_core import show
from mdh_core.combine import CC, pw, scalar_operator, user_operator
from mdh_core.evaluate import (
    Env,
    EvaluationError,
    Scalar,
    Value,
    call_function,
    convert,
    evaluate,
    round_to_float,
)
from mdh_core.expr import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT8,
    INT32,
    INT64,
    SCALAR_TYPES,
    UINT8,
    UINT32,
    UINT64,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Constraint,
    Declare,
    Expr,
    Function,
    Load,
    Operand,
    Result,
    Return,
    ScalarType,
    Select,
    Unary,
    Var,
    While,
    affine_expr,
)
from mdh_core.interpreter import (
    BufferValue,
    deduced_extents,
    empty_buffers,
    integers,
    required_extents,
    run,
    run_steps,
    same,
)
from mdh_core.ir import Access, Buffer, HostLoop, InputView, MdhProgram, OutputView, Sequential, Size, Store
from mdh_core.polytope import reach
from mdh_core.rules import RULES, injective, verify
from tests.catalogue import (
    BEYOND,
    CATALOGUE,
    CCSDT,
    EVERYTHING,
    PLUS,
    operator,
    places,
    program,
    small_params,
    x,
)
from tests.strategies import buffers_for, contents, copy_of, generators, programs, sizes_for

# --------------------------------------------------------------------------- evaluation


def number(value: Scalar, t: ScalarType) -> Const:
    return Const(value, t)


def calculate(op: str, a: Scalar, b: Scalar, t: ScalarType, result: ScalarType | None = None) -> Value:
    return evaluate(Binary(op, number(a, t), number(b, t), result or t), Env({}))


def call(name: str, *args: float, t: ScalarType = DOUBLE) -> Value:
    return evaluate(Call(name, tuple(number(a, t) for a in args), t), Env({}))


@pytest.mark.parametrize(
    ("op", "a", "b", "t", "expected"),
    [
        ("+", 127, 1, INT8, -128),
        ("*", 1 << 20, 1 << 20, INT32, 0),
        ("-", 0, 1, UINT32, 4294967295),
        ("+", 255, 2, UINT8, 1),
        ("+", 1, 1, BOOL, 1),
        ("/", -7, 2, INT32, -3),
        ("%", -7, 2, INT32, -1),
        ("%", 7, -2, INT32, 1),
        ("/", -(1 << 31), -1, INT32, -(1 << 31)),
        ("/", -1, 2, UINT32, 2147483647),
        (">>", -8, 1, INT32, -4),
        (">>", -8, 1, UINT32, 2147483644),
        ("<<", 1, 31, INT32, -(1 << 31)),
        ("^", -1, 5, INT32, -6),
        ("&", -1, 255, INT64, 255),
        ("+", 16777216.0, 1.0, FLOAT, 16777216.0),
        ("+", 16777216.0, 1.0, DOUBLE, 16777217.0),
        ("*", 0.1, 0.1, FLOAT, 0.010000000707805157),
        ("*", 1e30, 1e30, FLOAT, math.inf),
        ("/", -1.0, 0.0, DOUBLE, -math.inf),
        ("/", 1.0, -0.0, FLOAT, -math.inf),
    ],
)
def test_arithmetic_is_that_of_c(op: str, a: Scalar, b: Scalar, t: ScalarType, expected: Scalar) -> None:
    assert calculate(op, a, b, t) == expected


def test_comparison_follows_the_operand_type() -> None:
    assert calculate("<", -1, 1, INT32, INT32) == 1
    assert calculate("<", -1, 1, UINT32, INT32) == 0
    assert calculate("<", -1, 1, UINT64, INT32) == 0
    assert calculate("==", math.nan, math.nan, DOUBLE, INT32) == 0


@pytest.mark.parametrize("op", ["/", "%"])
def test_integer_division_by_zero_has_no_value(op: str) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        calculate(op, 1, 0, INT32)


@pytest.mark.parametrize("amount", [-1, 32])
def test_shifts_by_the_width_have_no_value(amount: int) -> None:
    with pytest.raises(EvaluationError, match="shift"):
        calculate("<<", 1, amount, INT32)


def test_logic_and_select_are_lazy() -> None:
    fails: Expr = Binary("/", number(1, INT32), number(0, INT32), INT32)
    one, zero = number(1, INT32), number(0, INT32)
    assert evaluate(Binary("||", one, fails, INT32), Env({})) == 1
    assert evaluate(Binary("&&", zero, fails, INT32), Env({})) == 0
    assert evaluate(Binary("&&", number(7, INT32), number(9, INT32), INT32), Env({})) == 1
    assert evaluate(Select(one, zero, fails, INT32), Env({})) == 0
    assert evaluate(Unary("!", number(0.0, DOUBLE), INT32), Env({})) == 1
    assert evaluate(Unary("~", number(0, UINT8), UINT8), Env({})) == 255


def test_conversions() -> None:
    assert [convert(v, INT32) for v in (2.9, -2.9, 1 << 31)] == [2, -2, -(1 << 31)]
    assert convert(-1, UINT64) == (1 << 64) - 1
    assert convert(0.1, FLOAT) == 0.10000000149011612
    assert [convert(v, BOOL) for v in (0.25, 256, 0)] == [1, 1, 0]
    for value in (3e9, math.nan, -math.inf):
        with pytest.raises(EvaluationError, match="does not fit"):
            convert(value, INT32)
    with pytest.raises(EvaluationError, match="does not fit"):
        convert(-1.0, UINT32)


def test_integers_become_float_with_one_rounding() -> None:
    # Between two floats, just above the middle: rounding to double first would lose the difference.
    middle = (1 << 60) + (1 << 36)
    assert round_to_float(middle + 1) == (1 << 60) + (1 << 37)
    assert round_to_float(middle - 1) == 1 << 60
    assert round_to_float(middle) == 1 << 60  # ties to even


def test_math_functions_at_the_borders() -> None:
    assert call("sqrtf", 2.0, t=FLOAT) == 1.4142135381698608
    assert call("log", 0.0) == -math.inf
    assert math.isnan(call("sqrt", -1.0))  # type: ignore[arg-type]
    assert call("exp", 1000.0) == math.inf
    assert call("pow", -0.0, -3.0) == -math.inf
    assert [call("round", v) for v in (0.5, -2.5, 0.49999999999999994)] == [1.0, -3.0, 0.0]
    assert [call("rint", v) for v in (0.5, 1.5)] == [0.0, 2.0]
    assert call("fmin", math.nan, 1.0) == 1.0
    assert call("fmax", 1.0, math.nan) == 1.0
    assert call("fmod", -7.0, 2.0) == -1.0
    assert call("fma", 0.1, 10.0, -1.0) == 5.551115123125783e-17
    assert call("abs", -3, t=INT32) == 3
    with pytest.raises(EvaluationError, match="unknown function"):
        call("mystery", 1.0)


def test_functions_and_loops() -> None:
    n, total = Var("n", INT32), Var("total", INT32)
    again = While(
        Binary(">", n, number(0, INT32), INT32),
        (
            Assign(total, Binary("+", total, n, INT32)),
            Assign(n, Binary("-", n, number(1, INT32), INT32)),
        ),
    )
    body = (Declare("total", INT32, number(0, INT32)), again, Return(total))
    f = Function("sum_to", (("n", INT32),), body, INT32)
    env = Env({}, {"sum_to": f})
    assert evaluate(Call("sum_to", (number(10, INT32),), INT32), env) == 55
    with pytest.raises(EvaluationError, match="more than 5 times"):
        call_function(f, (10,), Env({}, {}, max_iterations=5))
    unset = Function("unset", (), (Declare("v", INT32), Return(Var("v", INT32))), INT32)
    with pytest.raises(EvaluationError, match="no value"):
        call_function(unset, (), env)
    pointer = Function(
        "add",
        (("res", INT32), ("a", INT32), ("b", INT32)),
        (Assign(Var("res", INT32), Binary("+", Var("a", INT32), Var("b", INT32), INT32)),),
        INT32,
        out_param=True,
    )
    assert call_function(pointer, (2, 3), env) == 5


@given(st.sampled_from(sorted(SCALAR_TYPES.values(), key=str)), st.integers(-(2**70), 2**70))
def test_conversion_is_idempotent(t: ScalarType, value: int) -> None:
    once = convert(value, t)
    assert convert(once, t) == once


# --------------------------------------------------------------------------- catalogue against plain Python


class Array:
    """A buffer that is indexed by integers, as the references below read and write it."""

    def __init__(self, value: BufferValue) -> None:
        self.value = value

    def _index(self, i: int | tuple[int, ...]) -> tuple[int, ...]:
        return i if isinstance(i, tuple) else (i,)

    def __getitem__(self, i: int | tuple[int, ...]) -> float:
        return self.value[self._index(i)]  # type: ignore[return-value]

    def __setitem__(self, i: int | tuple[int, ...], v: Value) -> None:
        self.value[self._index(i)] = v


Sizes = dict[str, int]
Reference = Callable[[Sizes, dict[str, Array]], None]
REFERENCES: dict[str, Reference] = {}


def reference(name: str) -> Callable[[Reference], Reference]:
    def register(f: Reference) -> Reference:
        REFERENCES[name] = f
        return f

    return register


def box(*sizes: int) -> itertools.product[tuple[int, ...]]:
    return itertools.product(*map(range, sizes))


@reference("dot")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["C"][()] = sum(b["A"][k] * b["B"][k] for k in range(n["K"]))


@reference("matvec")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["I"]):
        b["w"][i] = sum(b["M"][i, k] * b["v"][k] for k in range(n["K"]))


@reference("matmul")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["I"], n["J"]):
        b["C"][i, j] = sum(b["A"][i, k] * b["B"][k, j] for k in range(n["K"]))


@reference("matmul_t")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["I"], n["J"]):
        b["C"][j, i] = sum(b["A"][k, i] * b["B"][j, k] for k in range(n["K"]))


@reference("bmatmul")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for m, i, j in box(n["NB"], n["I"], n["J"]):
        b["C"][m, i, j] = sum(b["A"][m, i, k] * b["B"][m, k, j] for k in range(n["K"]))


@reference("conv2d")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for p, q in box(n["P"], n["Q"]):
        b["O"][p, q] = sum(b["I"][p + r, q + s] * b["F"][r, s] for r, s in box(n["R"], n["S"]))


def _mcc(stride: int) -> Reference:
    def reference_mcc(n: Sizes, b: dict[str, Array]) -> None:
        for m, p, q, k in box(n["N"], n["P"], n["Q"], n["K"]):
            b["O"][m, p, q, k] = sum(
                b["I"][m, stride * p + r, stride * q + s, c] * b["F"][k, r, s, c]
                for r, s, c in box(n["R"], n["S"], n["NC"])
            )

    return reference_mcc


REFERENCES |= {"mcc": _mcc(1), "mcc_strided": _mcc(2)}


@reference("mcc_capsule")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for m, p, q, k, mi, mj in box(n["N"], n["P"], n["Q"], n["K"], 2, 2):
        b["O"][m, p, q, k, mi, mj] = sum(
            b["I"][m, p + r, q + s, c, mi, mk] * b["F"][k, r, s, c, mk, mj]
            for r, s, c, mk in box(n["R"], n["S"], n["NC"], 2)
        )


def _ccsdt(instance: str) -> Reference:
    left, right = instance.split("-")

    def reference_ccsdt(n: Sizes, b: dict[str, Array]) -> None:
        for point in box(*(n["N" + d] for d in "abcdef")):
            at = dict(zip("abcdef", point, strict=True))
            total = 0.0
            for at["g"] in range(n["Ng"]):
                total += b["A"][tuple(at[d] for d in left)] * b["B"][tuple(at[d] for d in right)]
            b["C"][point] = total

    return reference_ccsdt


REFERENCES |= {f"ccsdt_abcdef_{name.replace('-', '_')}": _ccsdt(name) for name in CCSDT}


@reference("jacobi1d")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["N"]):
        b["O"][i] = 0.5 * sum(b["I"][i + d] for d in range(3))


@reference("jacobi2d")
def _(n: Sizes, b: dict[str, Array]) -> None:
    near = [(d, e) for d, e in box(3, 3) if d == 1 or e == 1]
    for i, j in box(n["N1"], n["N2"]):
        b["O"][i, j] = 0.5 * sum(b["I"][i + d, j + e] for d, e in near)


@reference("jacobi3d")
def _(n: Sizes, b: dict[str, Array]) -> None:
    near = [p for p in box(3, 3, 3) if sum(d == 1 for d in p) >= 2]
    assert len(near) == 7
    for i, j, k in box(n["N1"], n["N2"], n["N3"]):
        b["O"][i, j, k] = 0.5 * sum(b["I"][i + d, j + e, k + f] for d, e, f in near)


def _match(new: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, int, float, int]:
    weight, (name, year, zip_code) = 0.0, (p == q for p, q in zip(new[1:], old[1:], strict=True))
    if name or zip_code:
        weight = (7.5 if name else -3.125) + (4.25 if year else -2.625) + (5.375 if zip_code else -0.75)
    return new[0], old[0], weight, (weight >= 5) + (weight >= 15)


@reference("prl")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["NN"]):
        matches = [_match(b["N"][i], b["E"][j]) for j in range(n["NE"])]  # type: ignore[arg-type]
        b["M"][i] = min(matches, key=lambda m: (-m[2], m[1]))


@reference("histo")
def _(n: Sizes, b: dict[str, Array]) -> None:
    elements = [b["Elems"][e] for e in range(n["NE"])]
    for k in range(n["NB"]):
        b["Out"][k] = elements.count(b["Bins"][k])


@reference("gen_histo")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for k in range(n["NB"]):
        hits = [b["W"][e] for e in range(n["NE"]) if b["Elems"][e] == b["Bins"][k]]
        b["Out"][k] = max(hits, default=-(2**31))


@reference("map")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["N"]):
        b["O"][i] = (b["I"][i] ** 2 - 3 * b["I"][i]) * 0.5


@reference("reduce")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["O"][()] = sum(b["I"].value.data)  # type: ignore[arg-type]


@reference("double_reduce")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["O1"][()] = sum(b["I"].value.data)  # type: ignore[arg-type]
    b["O2"][()] = max(b["I"].value.data)


@reference("scan")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, v in enumerate(itertools.accumulate(b["I"].value.data)):
        b["O"][i] = v


@reference("mbbs")
def _(n: Sizes, b: dict[str, Array]) -> None:
    total = 0.0
    for i in range(n["N"]):
        total += sum(b["I"][i, j] for j in range(n["M"]))
        b["O"][i] = total


@reference("mandelbrot")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for row, column in box(n["H"], n["W"]):
        c = complex(-2.0 + 3.0 * column / n["W"], -1.25 + 2.5 * row / n["H"])
        z, count = 0j, 0
        while count < n["limit"] and z.real**2 + z.imag**2 <= 4.0:
            z, count = z * z + c, count + 1
        b["O"][row, column] = count


@reference("matvec_accumulate")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, k in box(n["I"], n["K"]):
        b["w"][i] += b["M"][i, k] * b["v"][k]


@reference("gemm")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["I"], n["J"]):
        acc = sum(b["A"][i, k] * b["B"][k, j] for k in range(n["K"]))
        b["C"][i, j] = 0.5 * acc + 0.5 * b["C"][i, j]


@reference("scaled_matmul")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["I"], n["J"]):
        for k in range(n["K"]):
            b["C"][i, j] += 0.5 * b["A"][i, k] * b["B"][k, j]


@reference("argmax_payload")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for r in range(n["R"]):
        where = max(range(n["NC"]), key=lambda c: b["score"][r, c])
        b["top"][r], b["who"][r], b["where"][r] = b["score"][r, where], b["label"][where], where


@reference("row_scan")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["I"]):
        total = b["start"][i]
        for j in range(n["J"]):
            total += b["A"][i, j]
            b["O"][i, j] = total


@reference("final_sum")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["s"][()] += sum(b["A"].value.data)  # type: ignore[arg-type]


@reference("last_value")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["s"][()] = b["A"].value.data[-1]


@reference("syrk")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["N"], n["N"]):
        if j <= i:
            acc = sum(b["A"][i, k] * b["A"][j, k] for k in range(n["K"]))
            b["C"][i, j] = 0.5 * acc + 0.5 * b["C"][i, j]


@reference("syrk_t")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["N"], n["N"]):
        if j <= i:
            b["C"][i, j] += sum(b["A"][k, i] * b["A"][k, j] for k in range(n["K"]))


@reference("trmm")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["M"], n["N"]):
        b["C"][i, j] = b["B"][i, j] + sum(b["A"][k, i] * b["B"][k, j] for k in range(i + 1, n["M"]))


@reference("band")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["N"]):
        near = [k for k in range(n["N"]) if abs(k - i) <= n["W"]]
        b["w"][i] = sum(b["M"][i, k - i + n["W"]] * b["v"][k] for k in near)


@reference("causal_filter")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["N"]):
        b["y"][i] = sum(b["h"][i - j] * b["x"][j] for j in range(i + 1))


def _copied(name: str, inside: Callable[[int, int, Sizes], bool]) -> None:
    def copy(n: Sizes, b: dict[str, Array]) -> None:
        for i, j in box(n["N"], n.get("M", n["N"])):
            if inside(i, j, n):
                b["O"][i, j] = b["I"][i, j]

    REFERENCES[name] = copy


_copied("strict_upper", lambda i, j, n: j > i)
_copied("trapezoid", lambda i, j, n: j <= 2 * i + 1 and i + j <= n["N"])
_copied("strided_line", lambda i, j, n: 2 * i + j == n["T"])
_copied("nothing", lambda i, j, n: False)


@reference("polynomials")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for d in range(n["D"]):
        b["O"][d] = sum(b["A"][i] * b["B"][j] for i, j in box(n["N"], n["M"]) if 2 * i + j == d)


@reference("triangle3")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["N"], n["N"]):
        if j <= i:
            b["C"][i, j] = sum(b["A"][i, k] * b["B"][j, k] for k in range(j + 1))


@reference("tetrahedron")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["s"][()] += sum(b["A"][i, j, k] for i, j, k in box(n["N"], n["N"], n["N"]) if i >= j >= k)


@reference("earlier_maximum")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(1, n["N"]):
        b["O"][i] = max(b["I"][j] for j in range(i))


@reference("prl_earlier")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(1, n["NN"]):
        matches = [_match(b["N"][i], b["N"][j]) for j in range(i)]  # type: ignore[arg-type]
        b["M"][i] = min(matches, key=lambda m: (-m[2], m[1]))


@reference("rows_of_triangle")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, j in box(n["N"], n["N"]):
        total = 0.0
        for t in range(n["J"] if j <= i else 0):
            total += b["I"][i, j, t]
            b["O"][i, j, t] = total


@reference("if_large")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["N"] if n["N"] >= 3 else 0):
        b["O"][i] = sum(b["I"][i, k] for k in range(n["K"]))


@reference("point")
def _(n: Sizes, b: dict[str, Array]) -> None:
    b["O"][()] = b["I"][()] ** 2


@reference("ell_spmv")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i, k in box(n["I"], n["K"]):
        b["y"][i] += b["v"][i, k] * b["x"][int(b["col"][i, k]) & 3]


@reference("guarded_load")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["I"]):
        b["y"][i] = b["x"][int(b["col"][i])] if b["col"][i] in (0, 1) else -1.0


@reference("load_of_load")
def _(n: Sizes, b: dict[str, Array]) -> None:
    for i in range(n["I"]):
        b["y"][i] = b["x"][int(b["next"][int(b["col"][i]) & 1]) & 1]


def test_every_row_has_a_reference() -> None:
    assert REFERENCES.keys() == EVERYTHING.keys()
    assert len(CATALOGUE) == 5 + 4 + 9 + 3 + 3 + 5 + 1


@pytest.mark.parametrize("name", EVERYTHING)
def test_interpreter_agrees_with_plain_python(name: str) -> None:
    p = EVERYTHING[name]
    assert verify(p) == []
    params = small_params(p)
    buffers = buffers_for(p, params, random.Random(name))
    expected = copy_of(buffers)
    REFERENCES[name](integers(params), {n: Array(b) for n, b in expected.items()})
    split = copy_of(buffers)
    run(p, params, buffers)
    assert contents(buffers) == contents(expected)
    run(p, params, split, split=random.Random(1))
    assert contents(split) == contents(expected)


# --------------------------------------------------------------------------- the homomorphic property


@settings(max_examples=100, deadline=None)
@given(programs(), st.data())
def test_any_split_gives_the_same_result(p: MdhProgram, data: st.DataObject) -> None:
    assert verify(p) == []
    params = data.draw(sizes_for(p, max_points=60))
    rng = data.draw(generators())
    buffers = buffers_for(p, params, rng)
    split = copy_of(buffers)
    run(p, params, buffers)
    run(p, params, split, split=rng)
    assert contents(buffers) == contents(split)


def test_scattered_scans_need_commutativity() -> None:
    """The left operand is an associative function that does not commute."""
    first = Function("first", (("a", INT64), ("b", INT64)), (Return(Var("a", INT64)),), INT64)
    p = program(
        "first", "i:N", "ps", {"A": INT64, "O": INT64}, "A[i]", "O[i]", (x(0, INT64),),
        combine=user_operator(first), functions=(first,),
    )  # fmt: skip
    results = set()
    for seed in range(20):
        buffers = {"A": BufferValue([1, 2, 3, 4], (4,)), "O": BufferValue([0] * 4, (4,))}
        run(p, {"N": 4}, buffers, split=random.Random(seed))
        results.add(tuple(buffers["O"].data))
    assert len(results) > 1


def test_two_different_reductions_depend_on_the_split() -> None:
    """pw(+) and pw(*) in two dimensions are no homomorphism: the paper's counter-example."""
    p = program(
        "mixed", "i:2 j:2", "pw pw", {"A": FLOAT, "O": FLOAT}, "A[i, j]", "O[]", (x(0),), combine=PLUS
    )
    p = replace(p, hom=replace(p.hom, combine=(pw(PLUS), pw(operator("*", FLOAT)))))
    assert verify(p) == ["all reduced and scanned dimensions have the same combine function: `+` and `*`"]
    results = set()
    for split in (random.Random(seed) for seed in range(20)):
        buffers = {"A": BufferValue([1.0, 2.0, 3.0, 5.0], (2, 2)), "O": BufferValue([0.0], ())}
        run(p, {}, buffers, split=split)
        results.add(buffers["O"].data[0])
    assert len(results) > 1


# --------------------------------------------------------------------------- empty dimensions


def run_on(name: str, params: dict[str, Value], fill: Value = 7) -> dict[str, list[Value]]:
    p = EVERYTHING[name]
    buffers = empty_buffers(p, params)
    for b in buffers.values():
        b.data[:] = [fill] * len(b.data)
    run(p, params, buffers)
    return {n: b.data for n, b in buffers.items()}


def test_an_empty_reduction_leaves_the_initial_value() -> None:
    assert run_on("gemm", {"I": 1, "J": 2, "K": 0, "alpha": 1.0, "beta": 2.0}, 7.0)["C"] == [14.0, 14.0]
    assert run_on("matvec_accumulate", {"I": 2, "K": 0}, 7.0)["w"] == [7.0, 7.0]
    assert run_on("argmax_payload", {"R": 1, "NC": 0})["where"] == [-1]


def test_an_empty_reduction_without_initial_value_stores_nothing() -> None:
    assert run_on("dot", {"K": 0}, 7.0)["C"] == [7.0]


def test_an_empty_concatenation_stores_nothing() -> None:
    assert run_on("last_value", {"I": 0})["s"] == [7]
    assert run_on("matvec_accumulate", {"I": 0, "K": 3}, 7.0)["w"] == []


def test_the_final_value_of_an_empty_scan_is_the_initial_value() -> None:
    p = BEYOND["final_sum"]
    p = replace(p, out=replace(p.out, initial=(number(5, INT32),)))
    buffers = {"A": BufferValue([], (0,)), "s": BufferValue([7], ())}
    run(p, {"J": 0}, buffers)
    assert buffers["s"].data == [5]
    assert run_on("row_scan", {"I": 2, "J": 0})["O"] == []


def test_reads_come_before_writes() -> None:
    shift = program("shift", "i:N", "cc", {"A": INT32}, "A[i]", "A[i + 1]", (x(0, INT32),))
    buffers = {"A": BufferValue([1, 2, 3, 4], (4,))}
    run(shift, {"N": 3}, buffers)
    assert buffers["A"].data == [1, 1, 2, 3]


def test_conditional_operands_are_read_only_when_needed() -> None:
    inside = Binary("<", Cast(Var("i", INT64), INT32), number(2, INT32), INT32)
    f = Select(inside, x(0, INT32), number(0, INT32), INT32)
    p = program("guarded", "i:N", "cc", {"A": INT32, "O": INT32}, "A[i]", "O[i]", (f,))
    buffers = {"A": BufferValue([5, 6], (2,)), "O": BufferValue([9] * 4, (4,))}
    run(p, {"N": 4}, buffers)
    assert buffers["O"].data == [5, 6, 0, 0]


def test_strides_and_bounds() -> None:
    b = BufferValue(list(range(11)), (3, 3), (4, 1))
    assert b[2, 2] == 10
    with pytest.raises(EvaluationError, match="outside"):
        b[0, 3]


# --------------------------------------------------------------------------- extents


def test_extents_are_deduced() -> None:
    assert deduced_extents(CATALOGUE["matvec"], {"I": 4, "K": 5}) == {"M": (4, 5), "v": (5,), "w": (4,)}
    jacobi = deduced_extents(CATALOGUE["jacobi1d"], {"N": 510, "c": 0.5})
    assert jacobi == {"I": (512,), "O": (510,)}
    sizes = {"N": 1, "P": 112, "Q": 112, "K": 64, "R": 7, "S": 7, "NC": 3}
    assert deduced_extents(CATALOGUE["mcc_strided"], sizes)["I"] == (1, 229, 229, 3)
    assert deduced_extents(CATALOGUE["dot"], {"K": 0}) == {"A": (0,), "B": (0,), "C": ()}
    assert deduced_extents(BEYOND["row_scan"], {"I": 3, "J": 2})["start"] == (3,)


def declared(p: MdhProgram, name: str, *extents: int) -> MdhProgram:
    size = tuple(map(Affine.number, extents))
    return replace(p, buffers=tuple(replace(b, extents=size) if b.name == name else b for b in p.buffers))


def test_declared_extents_may_be_larger_but_not_smaller() -> None:
    sizes: dict[str, Value] = {"N": 1, "P": 112, "Q": 112, "K": 64, "R": 7, "S": 7, "NC": 3}
    p = CATALOGUE["mcc_strided"]
    extents, problems = required_extents(declared(p, "I", 1, 230, 230, 3), sizes)
    assert (extents["I"], problems) == ((1, 230, 230, 3), [])
    _, problems = required_extents(declared(p, "I", 1, 230, 228, 3), sizes)
    assert problems == ["`I` is used at 0..228 in dimension 2, its extent is 228"]


def test_negative_indices_are_reported() -> None:
    p = program("left", "i:N", "cc", {"A": INT32, "O": INT32}, "A[i - 1]", "O[i]", (x(0, INT32),))
    assert required_extents(p, {"N": 3})[1] == ["`A` is used at -1..1 in dimension 0, its extent is 2"]
    guarded = replace(p, inp=InputView(tuple(replace(a, conditional=True) for a in p.inp.accesses)))
    assert required_extents(guarded, {"N": 3})[1] == []


def test_extents_are_those_of_the_domain() -> None:
    assert deduced_extents(EVERYTHING["causal_filter"], {"N": 5}) == {"y": (5,), "h": (5,), "x": (5,)}
    assert required_extents(EVERYTHING["causal_filter"], {"N": 5})[1] == []
    assert deduced_extents(EVERYTHING["strict_upper"], {"N": 7, "M": 4}) == {"O": (3, 4), "I": (3, 4)}
    assert deduced_extents(EVERYTHING["nothing"], {"N": 4}) == {"O": (0, 0), "I": (0, 0)}
    assert deduced_extents(EVERYTHING["band"], {"N": 9, "W": 2})["M"] == (9, 5)
    large = {"N": 4000, "K": 3, "alpha": 0.5, "beta": 0.5}
    assert deduced_extents(EVERYTHING["syrk"], large)["C"] == (4000, 4000)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 4), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2)),
)
def test_reach_is_exact(rows: list[tuple[int, int, int, int, bool]], a: tuple[int, int, int]) -> None:
    value = Affine.from_dict(dict(zip("ijk", a, strict=True)), 1)
    constraints = [
        Constraint(Affine.from_dict({"i": x, "j": y, "k": z}, c), equal and c % 2 == 0) for x, y, z, c, equal in rows
    ]
    points = [dict(zip("ijk", p, strict=True)) for p in box(4, 5, 3)]
    found = [value.evaluate(p) for p in points if all(c.holds(p) for c in constraints)]
    expected = (min(found), max(found)) if found else None
    assert reach(value, {"i": (0, 3), "j": (0, 4), "k": (0, 2)}, constraints) == expected


# --------------------------------------------------------------------------- steps


def test_steps_run_one_after_the_other() -> None:
    """for t: s = A[t]; A[i] += s for i > t; then B = A, in two steps."""
    t, s = Var("t", INT32), Load("s", (), INT32)
    pick = Sequential((Assign(s, Load("A", (t,), INT32)),), (), (Buffer("A", INT32, (None,)), Buffer("s", INT32, ())))
    add = program(
        "add", "i:N", "cc", {"A": INT32, "s": INT32}, "A[i] s[]", "A[i]",
        (Binary("+", x(0, INT32), x(1, INT32), INT32),), domain="i > t",
    )  # fmt: skip
    copy = program("copy", "i:N", "cc", {"A": INT32, "B": INT32}, "A[i]", "B[i]", (x(0, INT32),))
    steps = (HostLoop("t", Size(Affine.of("N") - 1), (pick, add)), copy)
    buffers = {"A": BufferValue([1, 2, 3, 4], (4,)), "B": BufferValue([0] * 4, (4,)), "s": BufferValue([0], ())}
    run_steps(steps, {"N": 4}, buffers)
    expected = [1, 2, 3, 4]
    for k in range(3):
        expected = [v + expected[k] * (i > k) for i, v in enumerate(expected)]
    assert buffers["B"].data == buffers["A"].data == expected
    assert buffers["s"].data == [expected[2]]


# --------------------------------------------------------------------------- rules


def matvec_with(**fields: object) -> MdhProgram:
    return replace(CATALOGUE["matvec"], **fields)  # type: ignore[arg-type]


def with_store(p: MdhProgram, *index: Affine, at_last: tuple[str, ...] = ()) -> MdhProgram:
    store = replace(p.out.stores[0], index=index, at_last=at_last)
    return replace(p, out=replace(p.out, stores=(store,)))


def with_domain(p: MdhProgram, *values: Affine) -> MdhProgram:
    return replace(p, hom=replace(p.hom, domain=tuple(map(Constraint, values))))


def with_result(e: Expr) -> MdhProgram:
    hom = CATALOGUE["matvec"].hom
    return matvec_with(hom=replace(hom, scalar=replace(hom.scalar, results=(e,))))


MATVEC = CATALOGUE["matvec"]
I, K = Affine.of("i"), Affine.of("k")
WRONG: dict[str, MdhProgram] = {
    "one combine operator per dimension": replace(MATVEC, hom=replace(MATVEC.hom, combine=(CC,))),
    "distinct names": matvec_with(buffers=(*MATVEC.buffers, Buffer("k", FLOAT, ()))),
    "sizes are affine in integer parameters": replace(
        MATVEC,
        hom=replace(MATVEC.hom, dims=(replace(MATVEC.hom.dims[0], size=Size(K)), MATVEC.hom.dims[1])),
    ),
    "layouts of buffers": matvec_with(
        buffers=tuple(replace(b, extents=(I,) * b.rank) for b in MATVEC.buffers)
    ),
    "views name buffers": matvec_with(inp=InputView((Access("M", (I, K)), Access("nowhere", (K,))))),
    "one index per dimension": matvec_with(inp=InputView((Access("M", (I,)), Access("v", (K,))))),
    "index functions mention": with_store(MATVEC, K),
    "at_last names": with_store(MATVEC, I, at_last=("k",)),
    "domains mention": with_domain(MATVEC, Affine.of("x")),
    "domains leave scanned": with_domain(with_store(MATVEC, Affine.number(0), at_last=("i",)), I - K),
    "what a scalar function loads": with_result(Load("w", (affine_expr(I),), FLOAT)),
    "something is stored": matvec_with(out=OutputView((None,), ())),
    "same components": matvec_with(out=replace(MATVEC.out, initial=())),
    "have the type of what they stand for": with_result(Binary("*", x(0), Operand(2, FLOAT), FLOAT)),
    "scalar functions no results": with_result(Result(0, FLOAT)),
    "expressions mention what is known": with_result(Var("stranger", FLOAT)),
    "well typed": with_result(Binary("+", x(0), number(1, INT32), FLOAT)),
    "assigns to its own locals only": matvec_with(
        hom=replace(
            MATVEC.hom,
            scalar=replace(MATVEC.hom.scalar, body=(Assign(Load("w", (affine_expr(I),), FLOAT), x(0)),)),
        )
    ),
    "floating-point policy": matvec_with(fp="loose"),
    "same combine function": replace(  # pw(+) and pw(*): the paper's counter-example
        CATALOGUE["conv2d"],
        hom=replace(CATALOGUE["conv2d"].hom, combine=(CC, CC, pw(PLUS), pw(operator("*", FLOAT)))),
    ),
    "does not commute": replace(
        MATVEC, hom=replace(MATVEC.hom, combine=(CC, pw(replace(PLUS, commutative=False))))
    ),
    "initial values belong to an operator": replace(
        CATALOGUE["map"], out=replace(CATALOGUE["map"].out, initial=(number(0.0, FLOAT),))
    ),
    "no two points share": with_store(CATALOGUE["map"], Affine.number(0)),
    "no two stores share": replace(
        CATALOGUE["map"],
        out=replace(
            CATALOGUE["map"].out,
            stores=(Store("O", (I,), Result(0, FLOAT)), Store("O", (I + 1,), Result(0, FLOAT))),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_programs_are_rejected(rule: str) -> None:
    broken = verify(WRONG[rule])
    assert any(rule in b.split(": ")[0] for b in broken), broken


def test_every_rule_rejects_something() -> None:
    assert [r.name for r in RULES if not any(part in r.name for part in WRONG)] == []


def test_injectivity() -> None:
    two = program("two", "i:N j:M", "cc cc", {"A": INT32, "O": INT32}, "A[i, j]", "O[i]", (x(0, INT32),))
    j = Affine.of("j")
    assert verify(with_store(two, I))
    assert not verify(with_store(two, I, at_last=("j",)))
    assert verify(with_store(two, I + j))
    assert verify(with_store(two, I * 4 + j)), "`j` may be larger than 4"
    short = replace(two.hom.dims[1], size=Size(Affine.number(4)))
    four = replace(two, hom=replace(two.hom, dims=(two.hom.dims[0], short)))
    assert not verify(with_store(four, I * 4 + j))
    assert not verify(with_store(four, I * 4 - j))
    assert verify(with_store(four, I * 3 + j))
    halves = replace(
        CATALOGUE["map"],
        out=replace(
            CATALOGUE["map"].out,
            stores=(Store("O", (I * 2,), Result(0, FLOAT)), Store("O", (I * 2 + 1,), Result(0, FLOAT))),
        ),
    )
    assert not verify(halves)


def test_stores_to_different_diagonals() -> None:
    def two(domain: str, *indices: str) -> list[str]:
        p = program("two", "i:N j:N", "cc cc", {"A": INT32, "O": INT32}, "A[i, j]", "O[i, j]", (x(0, INT32),), domain=domain)
        stores = tuple(Store("O", places(f"O[{i}]")[0][1], Result(0, INT32)) for i in indices)
        return verify(replace(p, out=replace(p.out, stores=stores)))

    assert two("", "i, j", "j, i")
    assert two("j <= i", "i, j", "j, i")
    assert not two("j < i", "i, j", "j, i")
    assert not two("j == i", "i, i", "i, j + 1")
    assert two("j == i", "i, i", "i - 1, j - 1")
    assert not two("", "i*2, j", "i*2 + 1, j")


def test_an_equality_tells_points_apart() -> None:
    p = program("line", "i:N j:N", "cc cc", {"A": INT32, "O": INT32}, "A[i, j]", "O[i]", (x(0, INT32),), domain="j == i*2")
    assert not verify(p)
    assert verify(with_domain(p))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=2),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
)
def test_injectivity_is_exact_for_known_extents(
    rows: list[tuple[int, int, int]], sizes: tuple[int, int, int]
) -> None:
    index = tuple(Affine.from_dict(dict(zip("ijk", row, strict=True))) for row in rows)
    points = [dict(zip("ijk", p, strict=True)) for p in box(*sizes)]
    positions = {tuple(a.evaluate(p) for a in index) for p in points}
    assert injective(index, dict(zip("ijk", sizes, strict=True))) == (len(positions) == len(points))


# --------------------------------------------------------------------------- text


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_dsl_is_python(name: str) -> None:
    ast.parse(show.dsl(EVERYTHING[name]))
    assert show.latex(EVERYTHING[name]).count("{") == show.latex(EVERYTHING[name]).count("}")


def test_text() -> None:
    assert show.text(MATVEC) == (
        "out_view[float]( w: (i, k) ↦ (i) ) ∘\n"
        "md_hom[i: I, k: K]( f, (++, pw(+)) ) ∘\n"
        "inp_view[float, float]( M: (i, k) ↦ (i, k), v: (i, k) ↦ (k) )\n"
        "where\n"
        "  f(M[0], v[0]) = M[0] * v[0]\n"
    )
    assert show.text(BEYOND["gemm"]).endswith(
        "  initial: r starts with 0.0\n  store: C[i][j] = alpha * r + beta * C[i][j]\n"
    )
    assert show.scalar_text(CATALOGUE["jacobi1d"]) == "c * (I[0] + I[1] + I[2])"
    assert show.scalar_text(CATALOGUE["double_reduce"]) == "(I[0], I[0])"
    assert "md_hom[I, K]( f, (CC, PW(scalar_plus)) )" in show.dsl(MATVEC)
    assert "PW(max_PRL)" in show.dsl(CATALOGUE["prl"])
    assert "md_hom[i: N, j: N, k: K | j ≤ i]( f, (++, ++, pw(+)) )" in show.text(EVERYTHING["syrk"])
    assert "# domain: j ≤ 2*i + 1, i + j ≤ N\n" in show.dsl(EVERYTHING["trapezoid"])
    assert r"\langle N, N \mid j < i \rangle" in show.latex(EVERYTHING["earlier_maximum"])


def test_c_like_writes_the_parentheses_that_are_needed() -> None:
    a, b, c = (Var(n, INT32) for n in "abc")

    def op(symbol: str, left: Expr, right: Expr) -> Binary:
        return Binary(symbol, left, right, INT32)

    cases: dict[str, Expr] = {
        "a - (b - c)": op("-", a, op("-", b, c)),
        "a - b - c": op("-", op("-", a, b), c),
        "(a + b) * c": op("*", op("+", a, b), c),
        "a + b * c": op("+", a, op("*", b, c)),
        "(a & b) == c": op("==", op("&", a, b), c),
        "a < b && b < c": op("&&", op("<", a, b), op("<", b, c)),
        "- -a": Unary("-", Unary("-", a, INT32), INT32),
        "!(a < b)": Unary("!", op("<", a, b), INT32),
        "a < b ? a : b": Select(op("<", a, b), a, b, INT32),
        "(a < b ? a : b) + c": op("+", Select(op("<", a, b), a, b, INT32), c),
        "(float)a": Cast(a, FLOAT),
        "1.5 * a": Binary("*", number(1.5, DOUBLE), Cast(a, DOUBLE), DOUBLE),
        "(double)a * b": Binary("*", Cast(a, DOUBLE), Cast(b, DOUBLE), DOUBLE),
        "f(a, b + c)": Call("f", (a, op("+", b, c)), INT32),
    }
    for text, e in cases.items():
        assert show.c_like(e) == text


# --------------------------------------------------------------------------- loop nests


def test_run_nest_agrees_with_the_interpreter() -> None:
    """w[i] += A[i*K + k] * v[k], once as loops over a flat array and once as a program."""
    i, k, size = Var("i", INT32), Var("k", INT32), Var("K", INT32)
    flat = Binary("+", Binary("*", i, size, INT32), k, INT32)
    w = Load("w", (i,), FLOAT)
    term = Binary("*", Load("M", (flat,), FLOAT), Load("v", (k,), FLOAT), FLOAT)
    zero, one = number(0, INT32), number(1, INT32)
    last = Declare("unused", INT32, one)
    inner = Loop("k", INT32, zero, size, 1, (Assign(w, Binary("+", w, term, FLOAT)), last))
    count = Assign(Var("rows", INT32), Binary("+", Var("rows", INT32), one, INT32))
    outer = Loop("i", INT32, zero, Var("I", INT32), 1, (inner, count))
    p = BEYOND["matvec_accumulate"]
    nest = LoopNest(
        "f.c::f::0", "f", "0", p.params, p.buffers, (OuterScalar("rows", INT32, True),), (outer,),
        directive=Directive(),
    )  # fmt: skip
    params = small_params(p)
    by_program = buffers_for(p, params, random.Random(3))
    by_loops = copy_of(by_program)
    m = by_loops["M"]
    by_loops["M"] = BufferValue(m.data, (len(m.data),))
    scalars: dict[str, Value] = {"rows": 10}
    run(p, params, by_program)
    run_nest(nest, params, by_loops, scalars)
    assert by_loops["w"] == by_program["w"]
    assert scalars == {"rows": 13}
    run_nest(nest, params, {**by_loops, "M": m}, scalars)  # a flat index into two extents
    assert scalars == {"rows": 16}


def test_loops_run_down_and_leave_their_iterator() -> None:
    i, s = Var("i", INT32), Var("s", INT32)
    body = (Assign(s, Binary("+", Binary("*", s, number(10, INT32), INT32), i, INT32)),)
    down = Loop("i", INT32, number(5, INT32), number(0, INT32), -2, body)
    after = Assign(Var("t", INT32), i)
    nest = LoopNest(
        "n", "f", "0", (), (), (OuterScalar("s", INT32, True), OuterScalar("t", INT32, True)), (down, after),
        directive=Directive(),
    )  # fmt: skip
    scalars: dict[str, Value] = {"s": 0}
    run_nest(nest, {}, {}, scalars)
    assert scalars == {"s": 531, "t": -1}


def test_nan_is_the_identity_of_fmin_and_equal_to_itself() -> None:
    f = scalar_operator("fmin", DOUBLE)
    assert f is not None and f.identity is not None and math.isnan(f.identity[0].value)
    assert pickle.loads(pickle.dumps(f)) == f == scalar_operator("fmin", DOUBLE)
    for number in (math.nan, math.inf, -math.inf, -0.0, 3.0):
        for pair in ((number, math.nan), (math.nan, number)):
            found = evaluate(f.values[0], Env(dict(zip(("l0", "r0"), pair, strict=True))))
            assert same(found, number)
