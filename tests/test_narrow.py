"""Scalar functions with narrower integers compute the same, and vectors have the lanes that this allows."""

from __future__ import annotations

import random
import subprocess

import pytest

from mdh_core.evaluate import Env, EvaluationError, evaluate, wrap
from mdh_core.expr import (
    COMPARISONS,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    Binary,
    Cast,
    Const,
    Declare,
    Expr,
    Operand,
    ScalarType,
    Select,
    Unary,
    Var,
    named_values,
    stmt_exprs,
    walk,
)
from mdh_core.lanes import lane_function
from mdh_core.narrow import narrowed
from mdh_lift import kernels
from tests.compilers import COMPILERS
from tests.lifting import lifted

INPUTS = (UINT8, INT8, UINT8, INT8)


def number(value: int) -> Const:
    return Const(value, INT32)


def read(k: int) -> Expr:
    return Cast(Operand(k, INPUTS[k]), INT32)


def random_expression(rng: random.Random, depth: int, names: list[str]) -> Expr:
    if depth == 0:
        choice = rng.randrange(3)
        if choice == 0:
            return number(rng.choice((-3, -1, 0, 1, 2, 5, 127, 128, 255)))
        return Var(rng.choice(names), INT32) if choice == 1 and names else read(rng.randrange(len(INPUTS)))
    a, b = (random_expression(rng, depth - 1, names) for _ in range(2))
    match rng.randrange(9):
        case 0:
            return Unary(rng.choice("-~"), a, INT32)
        case 1:
            return Binary(rng.choice(sorted(COMPARISONS)), a, b, INT32)
        case 2:
            condition = Binary(rng.choice(sorted(COMPARISONS)), a, b, INT32)
            return Select(condition, a, random_expression(rng, depth - 1, names), INT32)
        case 3:
            return Binary(rng.choice("/%"), a, number(rng.choice((1, 2, 3, 8))), INT32)
        case 4:
            return Binary(">>", a, number(rng.randrange(5)), INT32)
        case 5:
            return Cast(Cast(a, rng.choice((UINT8, INT8, UINT16, INT16))), INT32)
        case 6:
            return Binary(rng.choice("&|^"), a, b, INT32)
        case _:
            return Binary(rng.choice("+-*"), a, b, INT32)


def answers(body: tuple[Declare, ...], results: tuple[Expr, ...], values: list[int]) -> list[object]:
    """The results, evaluated in types as they are written: what leaves its type wraps."""
    known: dict[str, object] = {}
    env = Env(variables=known, operand=lambda k: values[k])  # type: ignore[arg-type]
    for name, _, value in named_values(body):
        known[name] = evaluate(value, env)
    return [evaluate(e, env) for e in results]


def test_narrower_integers_compute_the_same():
    """Also at the ends of the types of what is read; and in one type of at most 16 bits."""
    rng, found, kinds = random.Random(5), 0, set()
    for _ in range(1500):
        body = (Declare("s", INT32, random_expression(rng, 2, [])),)
        results = (Cast(random_expression(rng, 2, ["s"]), UINT8), random_expression(rng, 1, ["s"]))
        new_body, new_results = narrowed(body, results)
        assert [e.type for e in new_results] == [e.type for e in results]
        if (new_body, new_results) == (body, results):
            continue
        found += 1
        for e in (*stmt_exprs(new_body), *new_results):
            for n in walk(e):
                if isinstance(n, Binary | Unary) and not (isinstance(n, Binary) and n.op in COMPARISONS):
                    assert isinstance(n.type, ScalarType) and n.type.bits <= 16, n
                    kinds.add(n.type.name)
        ends = [[0, 255], [-128, 127], [0, 255], [-128, 127]]
        for _ in range(8):
            values = [rng.choice((*pair, rng.randint(*pair), 0, 1)) for pair in ends]
            try:
                expected = answers(body, results, values)  # type: ignore[arg-type]
            except EvaluationError:  # overflow, say
                continue
            assert answers(new_body, new_results, values) == expected, (body, results, values)  # type: ignore[arg-type]
    assert found > 300 and {"int8", "int16", "uint16"} <= kinds, (found, kinds)


@pytest.mark.parametrize(
    "value",
    [
        Binary("*", Binary("*", read(0), read(0), INT32), read(0), INT32),  # 255 cubed
        Binary("<<", read(0), number(9), INT32),
        Cast(Operand(0, ScalarType("int64", "int", 64)), INT32),
        Binary("+", Var("n", INT32), read(0), INT32),
        Binary("/", number(7), read(0), INT32),  # fails where the divisor is 0
    ],
)
def test_what_does_not_fit_stays(value):
    assert narrowed((), (value,)) == ((), (value,))


def test_each_type_is_the_narrowest():
    total = Binary("+", read(0), read(2), INT32)
    assert narrowed((), (Cast(total, UINT8),))[1] == (
        Cast(Binary("+", Cast(read(0).a, INT16), Cast(read(2).a, INT16), INT16), UINT8),  # type: ignore[union-attr]
    )
    assert wrap(300, UINT8) == 44  # what the cast is for


FUNCTIONS = """
static inline int apart(int a, int b) { return a > b ? a - b : b - a; }
static inline int twice(int a) { int b = a + a; return apart(b, 0); }
static int deep(int a) { int n = 0; while (a > 0) { n++; a = a / 2; } return n; }
"""


def body_of(text: str, functions: str = FUNCTIONS):
    plan = kernels.plan(lifted(functions + text))
    (program,) = plan.programs
    return lane_function(program), plan


def test_functions_of_one_expression_stand_in_the_place_of_calls():
    found, plan = body_of(
        "void f(int n, const int *restrict a, int *restrict b) {\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) b[i] = twice(a[i]) + apart(a[i], 3); }"
    )
    assert "Call" not in repr(found.results) and plan.default["vector"] == "i"
    found, plan = body_of(
        "void f(int n, const int *restrict a, int *restrict b) {\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) b[i] = deep(a[i]); }"
    )
    assert "Call" in repr(found.results) and plan.default["vector"] == "-"


def test_lanes_are_counted_by_the_widest_value():
    sizes = {
        "b[i] = (unsigned char)((a[i] + a[i + 1] + 1) / 2);": 2,
        "b[i] = a[i] == 3;": 1,
        "b[i] = (unsigned char)(a[i] * 1.5f);": 4,
        "b[i] = (unsigned char)(a[i] * 1.5);": 8,
    }
    for statement, size in sizes.items():
        found, _ = body_of(
            "void f(int n, const unsigned char *restrict a, unsigned char *restrict b) {\n#pragma mdh\n"
            f"for (int i = 0; i < n; i++) {statement} }}"
        )
        assert found.size == size, statement


STATEMENTS = [
    "c[i] = (T)(a[i] + 2 * b[i] > 255 ? 255 : a[i] - b[i]);",
    "c[i] = (T)((a[i] + b[i] + 1) / 2);",
    "c[i] = (T)(a[i] / 3 - b[i] % 5);",
    "c[i] = (T)((a[i] == b[i]) + 2 * (a[i] < b[i] && b[i] > 9) + 4 * !a[i]);",
    "c[i] = (T)((a[i] << 3) ^ (b[i] >> 2) | ~a[i]);",
    "c[i] = (T)(a[i] * 0.37f + b[i]);",
    "c[i] = (T)(a[i] * 0.37 + b[i] * 0.1);",
    "int g = (unsigned char)(a[i] + b[i]); c[i] = (T)(g < 77 ? -g : g * 100);",
]
TYPES = ("unsigned char", "signed char", "short", "int", "float", "long")
MAIN = """
int main(void) {{
  static {a} a[N]; static {b} b[N]; static T c[N], d[N];
  const long sizes[] = {{0, 1, 7, 31, 32, 33, 63, 65, 1000, N}};
  for (long i = 0; i < N; i++) {{ a[i] = ({a})(i & 255); b[i] = ({b})(i >> 8); }}
  for (int k = 0; k < 10; k++) {{
    for (long i = 0; i < N; i++) c[i] = d[i] = 3;
    f(sizes[k], a, b, c);
    if (!{name}(sizes[k], a, b, d)) return 2;
    for (long i = 0; i < N; i++) if (c[i] != d[i]) {{ printf("%ld of %ld\\n", i, sizes[k]); return 1; }}
  }}
  return 0;
}}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("number_of", range(len(STATEMENTS)))
def test_vectors_compute_what_the_loop_does(number_of, compiler, tmp_path):
    """All pairs of bytes, and sizes around whole vectors; results of another type each time."""
    t, read_as = TYPES[number_of % len(TYPES)], ("unsigned char", "signed char")[number_of % 2]
    original = (
        f"typedef {t} T;\nvoid f(int n, const {read_as} *restrict a, const unsigned char *restrict b, "
        f"T *restrict c) {{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {STATEMENTS[number_of]} }} }}\n"
    )
    plan = kernels.plan(lifted(original))
    kernel = plan.kernel(plan.default)
    assert "vector_size" in kernel.text
    main = MAIN.format(a=read_as, b="unsigned char", name=kernel.name)
    source = tmp_path / "f.c"
    source.write_text(f"#include <stdio.h>\n#define N 65536\n{original}{kernel.text}{main}")
    for flags in (["-O3", "-march=native"], ["-O1"]):
        subprocess.run(
            [compiler, *flags, "-w", "-fopenmp", "-fwrapv", str(source), "-o", str(tmp_path / "f")], check=True
        )
        done = subprocess.run([str(tmp_path / "f")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (flags, done.stdout, kernel.text)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("value", ["a[i] == b[0] ? 2 : 1", "a[i] > b[n - 1] ? 5 : 3", "(int)a[i] + (int)b[1]"])
def test_enumerations_stand_beside_vectors(value, compiler, tmp_path):
    original = (
        "enum kind { LOW, MID = 3, HIGH };\ntypedef enum kind kind;\n"
        "void f(int n, const kind *restrict a, const enum kind *restrict b, int *restrict c) {\n#pragma mdh\n"
        f"for (int i = 0; i < n; i++) c[i] = {value}; }}\n"
    )
    plan = kernels.plan(lifted(original))
    kernel = plan.kernel(plan.default)
    assert "vector_size" in kernel.text
    main = MAIN.format(a="kind", b="kind", name=kernel.name).replace("static T", "static int")
    source = tmp_path / "f.c"
    source.write_text(f"#include <stdio.h>\n#define N 65536\n{original}{kernel.text}{main}")
    subprocess.run([compiler, "-O2", "-w", "-fopenmp", str(source), "-o", str(tmp_path / "f")], check=True)
    done = subprocess.run([str(tmp_path / "f")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, kernel.text)


def test_bytes_are_converted_in_whole_vectors(tmp_path):
    """A stencil on bytes: no lane of a vector is taken out or put in, as gcc 12 does for int from bytes."""
    text = """
void f(int n, const unsigned char *restrict a, unsigned char *restrict b) {
#pragma mdh
    for (int i = 1; i < n - 1; i++) {
        int g = a[i - 1] + 2 * a[i] - a[i + 1];
        b[i] = (unsigned char)(g < 0 ? 0 : g > 255 ? 255 : g);
    }
}
"""
    plan = kernels.plan(lifted(text))
    kernel = plan.kernel(plan.default).text
    source, assembly = tmp_path / "f.c", tmp_path / "f.s"
    source.write_text(kernel.replace("static int", "int"))
    subprocess.run(["gcc", "-O3", "-march=haswell", "-w", "-S", str(source), "-o", str(assembly)], check=True)
    lines = assembly.read_text()
    assert "vpmovzxbw" in lines
    assert not [row for row in lines.splitlines() if "vpextrb" in row or "vpinsrb" in row]
