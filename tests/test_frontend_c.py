"""The C frontend: types and conversions, declarators, loops, directives, places in the file.

``same`` is the strongest test here: a nest, read and run as plain loops by ``run_nest``, must give
what the compiled function gives, bit for bit.
"""

from __future__ import annotations

import ctypes
import math
import random
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from frontend_c.lexer import closing, statement_end, token_hash, tokens, tokens_again
from frontend_c.math_functions import MATH
from frontend_c.positions import Positions, pre_tokens
from frontend_c.preprocess import CompileCommand, analysis_compiler, analysis_flags, find_compiler, preprocess
from frontend_c.read import ReadResult, read
from lifter.annotations import Directive, OpClause, parse_directive
from lifter.loop_nest import Loop, LoopNest
from lifter.run_nest import run_nest
from mdh_core.expr import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    UINT64,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Declare,
    If,
    Load,
    MakeRecord,
    RecordType,
    Unary,
    Var,
    While,
    walk,
)  # fmt: skip
from mdh_core.interpreter import BufferValue
from mdh_core.source import SourceFile, Span
from mdh_lift.c_value import value as c_value
from tests.compilers import COMPILERS

ROOT = Path(__file__).parent.parent
CORPUS = sorted((ROOT / "corpus").glob("*.c"))


def read_text(code: str | bytes, path: str = "t.c", *flags: str, directory: str = ".") -> ReadResult:
    data = code.encode() if isinstance(code, str) else code
    return read(SourceFile(path, data), CompileCommand(flags=flags, directory=directory))


def nests(code: str | bytes, *flags: str) -> tuple[LoopNest, ...]:
    result = read_text(code, "t.c", *flags)
    assert not result.refused, result.refused
    assert not result.diagnostics, result.diagnostics
    return result.nests


def nest(code: str | bytes, *flags: str) -> LoopNest:
    (one,) = nests(code, *flags)
    return one


def codes(code: str | bytes) -> list[str]:
    result = read_text(code)
    return [d.code for r in result.refused for d in r.diagnostics]


def expression(text: str, declared: str = "") -> object:
    """The value assigned in ``y[i] = text``, with a double ``y``."""
    params = ", ".join(p for p in ("double *y", "int n", declared) if p)
    loop = nest(f"void f({params})\n{{\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] = {text};\n}}").body[0]
    assert isinstance(loop, Loop)
    (statement,) = loop.body
    assert isinstance(statement, Assign)
    return statement.value


# --------------------------------------------------------------------------- against the compiler

TYPES = {
    "float": ctypes.c_float, "double": ctypes.c_double, "signed char": ctypes.c_int8, "char": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8, "short": ctypes.c_int16, "unsigned short": ctypes.c_uint16,
    "int": ctypes.c_int32, "unsigned": ctypes.c_uint32, "long": ctypes.c_int64, "size_t": ctypes.c_uint64,
    "long long": ctypes.c_int64, "unsigned long": ctypes.c_uint64, "_Bool": ctypes.c_bool,
}  # fmt: skip
_PARAMETER = re.compile(r"(?:const )?(.*?)\s*(\*?)\s*(\w+)((?:\[[^]]*\])*)$")


def sample(t: type, k: int) -> float | int:
    """Values that make conversions visible: signs, fractions, large ones."""
    if t in (ctypes.c_float, ctypes.c_double):
        return [0.5, -2.25, 3.75, 100.125, -0.0, 7.0, 1e-3, -65.5][k % 8]
    return [0, 1, 3, 127, 2, 100, 5, 90][k % 8] if t is not ctypes.c_bool else k % 2


def same(
    tmp_path: Path, signature: str, body: str, before: str = "", cells: int = 64, **values: float
) -> LoopNest:
    """``void f(signature) { body }`` computes the same compiled and read; returns the nest."""
    headers = "#include <stddef.h>\n#include <math.h>\n#include <stdlib.h>\n"
    code = f"{headers}{before}\nvoid f({signature})\n{{\n{body}\n}}\n"
    source = tmp_path / "s.c"
    source.write_text(code)
    lib = tmp_path / "s.so"
    flags = ["-w", "-O0", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(lib), "-lm"], check=True)
    one = nest(code)
    args, arrays = [], {}
    for k, parameter in enumerate(signature.split(",")):
        found = _PARAMETER.match(parameter.strip())
        assert found is not None, parameter
        t = TYPES[found[1]]
        if found[2] or found[4]:
            arrays[found[3]] = (t * cells)(*(sample(t, j + k) for j in range(cells)))
            args.append(arrays[found[3]])
        else:
            args.append(t(values.get(found[3], 5)))
            values.setdefault(found[3], args[-1].value)
    data = {
        b.name: BufferValue(list(arrays[b.base.strip("&[0]")]), _extents(one, b, values, cells))
        for b in one.buffers
    }
    params = {p.name: _value(p.value, values) for p in one.params}
    run_nest(one, params, data, {})
    ctypes.CDLL(str(lib)).f(*args)
    for b in one.buffers:
        expected = list(arrays[b.base.strip("&[0]")])
        assert [_bits(v) for v in data[b.name].data] == [_bits(v) for v in expected], b.name
    return one


def _extents(one: LoopNest, b: object, values: dict[str, float], cells: int) -> tuple[int, ...]:
    named = {p.name: _value(p.value, values) for p in one.params}
    inner = [e.evaluate(named) if e is not None else 0 for e in b.extents]
    if inner:
        inner[0] = cells // max(1, math.prod(inner[1:]))
    return tuple(inner)


def _value(text: str, values: dict[str, float]) -> float | int:
    """The value of a parameter's C text."""
    return values[text] if text in values else c_value(text, {n: int(v) for n, v in values.items()})


def _bits(v: float) -> float | str:
    return "nan" if v != v else (v, math.copysign(1, v)) if isinstance(v, float) else int(v)


ARITHMETIC = [
    ("double *y, int n, const float *x", "y[i] = x[i] * 0.1f + 1;"),
    ("double *y, int n, const float *x", "y[i] = x[i] * 0.1 + 1;"),
    ("float *y, int n, const float *x", "y[i] = x[i] / 3 - n / 2;"),
    ("int *y, int n, const unsigned char *x", "y[i] = x[i] - 200 + (x[i] << 3);"),
    ("unsigned char *y, int n, const int *x", "y[i] = x[i] * 37;"),
    ("unsigned char *y, int n, const int *x", "y[i] += 250; y[i] ^= x[i];"),
    ("short *y, int n, const float *x", "y[i] += x[i] * 2;"),
    ("int *y, int n, const unsigned *x", "y[i] = -1 < x[i];"),
    ("unsigned *y, int n, const unsigned *x", "y[i] = x[i] * 2654435761u >> 7;"),
    ("long *y, int n, const int *x", "y[i] = x[i] * 100000L * 100000 % 97;"),
    ("int *y, int n, const int *x", "y[i] = -x[i] / 7 * 7 + -x[i] % 7;"),
    ("_Bool *y, int n, const float *x", "y[i] = x[i];"),
    ("int *y, int n, const float *x", "y[i] = !x[i] + (x[i] && n) + (x[i] || 0) + ~i;"),
    ("double *y, int n, const int *x", "y[i] = x[i] > 2 ? x[i] : 0.5f;"),
    ("int *y, int n, const float *x", "y[i] = x[i] > 0.1 ? (int)x[i] : 'a' + '\\n' + sizeof(short);"),
    ("float *y, int n, const float *x", "y[i] = fabsf(x[i]) + fmaxf(x[i], 1) + floor(x[i]) + abs(-i);"),
    ("int *y, int n, const float *x", "y[i] = 010 + 0x1F + 0xFFFFFFFFu / 2 + (x[i] == 0);"),
    ("size_t *y, int n, const int *x", "y[i] = (size_t)x[i] * 1000003 - 5u;"),
    ("float *y, int n, const float *x", "y[i] = y[i] = x[i] + 1;"),
    ("int *y, int n, const int *x", "y[i]++; --y[i]; ++y[i]; y[i] <<= 1; y[i] |= x[i] & 3;"),
    (
        "double *y, int n, const double *x",
        "double t = x[i], u; u = t * t; if (u > 5) { u = 5; } else u += 1; y[i] = u;",
    ),
    ("int *y, int n, const float *x", "y[i] = isnan(x[i] * INFINITY) + (x[i] < INFINITY);"),
]


@pytest.mark.parametrize(("signature", "body"), ARITHMETIC, ids=range(len(ARITHMETIC)))
def test_conversions_are_those_of_c(tmp_path, signature, body):
    same(tmp_path, signature, f"#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }}", n=9)


LOOPS = [
    "for (int i = 0; i <= n; i++) y[i] = i;",
    "for (int i = 1; n > i; ++i) y[i] = i;",
    "for (int i = n - 1; i >= 0; i--) y[i] += i;",
    "for (int i = n; 0 < i; i -= 2) y[i] += i;",
    "for (int i = 3; i != n; i++) y[i] = i;",
    "for (int i = 0; i < 2 * n; i = i + 3) y[i] += 2 * i;",
    "for (int i = 0; i < n; i = 2 + i) y[i] += 2;",
    "for (long i = 0, m = n * 2; i < m; i++) y[i] = i;",
    "for (unsigned short i = 0; i < n; i++) y[i] = i;",
    "{ int i, j; for (i = 0; i < 3; i++) for (j = i; j < n; j++) y[i * 9 + j] = j; }",
    "{ for (int i = 0; i < n; i++) y[i] = i; for (int i = 0; i < n; i++) y[i + 9] = y[i]; }",
    "for (int i = 0; i < n / 2; i++) y[i + n / 2] = i;",
    "for (int i = 0; i < n * n; i++) y[i] = i;",
    "for (int i = 0; i < n; i++) { int i2 = i * i; { int i = i2 + 1; y[i % 9] += i; } }",
    "for (int i = 0; i < n; i++) *(y + i) = 7;",
    "for (int i = 0; i < 5; i++) { int k = 1; while (k < i) k *= 2; y[i] = k; }",
    "for (int i = 0; i < 5; i++) { int k = 9; do { k -= 2; if (k == i) break; } while (k > 0); y[i] = k; }",
    "for (int i = 0; i < 5; i++) { int s = 0, k; for (k = 0; k < 20 && s < 9; k += i + 1) s += k;"
    " y[i] = s * 100 + k; }",
    "for (int i = 0; i < 5; i++) { int s = 0; for (int k = 0; k < 9; k++) { if (k == i) continue;"
    " if (s > 9) break; s += k; } y[i] = s; }",
    "for (int i = 0; i < 5; i++) { int s = 0; for (int k = 0; k < 9; k++) { s += k; } y[i] = s; }",
]


@pytest.mark.parametrize("loop", LOOPS, ids=range(len(LOOPS)))
def test_loops(tmp_path, loop):
    same(tmp_path, "int *y, int n", f"#pragma mdh\n{loop}", n=7)


# counters and pointers that move along, loops without a head of the usual form
WALKS = [
    ("int *y, int n", "{ int i = 0; while (i < n) { y[i] = i; i++; } }"),
    ("int *y, int n", "{ int i = 0; while (i < n) { y[i] = i; ++i; y[i + 20] = i; } }"),
    ("int *y, int n", "{ int i = n; while (i-- > 0) y[i] = i; }"),
    ("int *y, int n", "{ int i = n; while (--i >= 0) y[i] = i; }"),
    ("int *y, int n", "for (int i = n; i-- > 0;) y[i] = i;"),
    ("int *y, int n", "for (unsigned i = n; i-- > 0;) y[i] = i;"),
    ("int *y, int n", "for (size_t i = n; i--;) y[i] = i;"),
    ("int *y, int n", "for (int i = n; i--; ) y[i] += i;"),
    ("int *y, int n", "for (int i = n; --i;) y[i] += i;"),
    ("int *y, int n", "{ int i = 0; do { y[i] = i; } while (++i < n); }"),
    ("int *y, int n", "{ int i = 0; do { y[i] = i; i += 2; } while (i < n); }"),
    ("int *y, int n", "for (int i = 0; i + 2 < n; i++) y[i] = i;"),
    ("int *y, int n", "for (int i = 0, j = 3; i < n; i++, j += 2) y[j] = i + j;"),
    ("int *y, int n", "for (int i = 0, j = n; i < n; i++) { j--; y[j] = i; }"),
    (
        "int *y, int n, int m",
        "{ int k = 0; for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) y[k++] = 10 * i + j; }",
    ),
    (
        "int *y, int n, int m",
        "{ int k = 0; for (int i = 0; i < n; i++) { for (int j = 0; j < m; j++) y[k++] = 10 * i + j; k += 2; } y[k] = 7; }",
    ),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) *y++ = *x++;"),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) { *y = x[2] + *x; y += 2; x++; }"),
    (
        "int *y, int n, const int *x",
        "for (int i = 0; i < n; i++) { const int *p = x + i; int *q = &y[i]; q[0] = p[1] - *p; }",
    ),
    (
        "int *y, int n, const int *x",
        "for (int i = 0; i < n; i += 2) { y[0] = x[0]; y[1] = x[1]; y += 2; x += 2; }",
    ),
    ("int *y, int n, const int *x", "{ int k = n; while (k--) *y++ = *x++ * 2; }"),
    ("int *y, int n, const int *x", "{ const int *p; for (p = x; p < x + n; p++) *y++ = *p; }"),
    (
        "int *y, int n, const int *x",
        "{ const int *e = x + n; for (const int *p = x; p != e; ++p) *y++ = *p; }",
    ),
    (
        "int *y, int n, const int *x",
        "{ int i; for (i = 0; i < n - 3; i += 4) { y[i] = x[i]; y[i+1] = x[i+1]; y[i+2]=x[i+2]; y[i+3]=x[i+3]; } for (; i < n; i++) y[i] = x[i]; }",
    ),
    ("int *y, int n, const int *x", "{ int i; for (i = 0; i < n; i++) y[i] = 0; y[i] = i; }"),
    (
        "int *y, int n, int s, const int *x",
        "{ int ix = 0; for (int i = 0; i < n; i++) { y[i] = x[ix]; ix += s; } }",
    ),
    (
        "int *y, int n, int s, const int *x",
        "{ int ix = (s < 0) ? (1 - n) * s : 0; for (int i = 0; i < n; i++) { y[i] = x[ix]; ix += s; } }",
    ),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) { y[i] = 1; i += 1; }"),
    (
        "int *y, int n",
        "for (int i = 0; i < n; i++) { int *row = y + 5 * i; for (int j = 0; j < 5; j++) row[j] = j; }",
    ),
    (
        "int *y, int n",
        "for (int i = 0; i < n; i++) { int *row = y + 5 * i; for (int j = 0; j < 5; j++) *row++ = j; }",
    ),
    (
        "int n, int A[][8]",
        "for (int i = 0; i < n; i++) { int *row = A[i]; for (int j = 0; j < 8; j++) row[j] = j; }",
    ),
    (
        "int n, int A[][8]",
        "for (int i = 0; i < n; i++) { int *row = &A[i][2]; for (int j = 0; j < 6; j++) row[j] = j; }",
    ),
    (
        "int n, int A[][8]",
        "{ int (*r)[8] = A; for (int i = 0; i < n; i++, r++) for (int j = 0; j < 8; j++) (*r)[j] = j; }",
    ),
    ("unsigned char *y, size_t n", "for (size_t i = 0; i < n; i++) y[i] = i;"),
    ("unsigned char *y, int n", "for (size_t i = 0; i < n; i++) y[i] = i;"),
    ("int *y, unsigned n", "for (unsigned i = 0; i < n - 1; i++) y[i] = i;"),
    ("int *y, unsigned n", "for (unsigned i = 0; i != n; i++) y[i] = i;"),
    ("int *y, unsigned n", "for (unsigned i = n - 1; i >= 1; i--) y[i] = i;"),
    ("int *y, int n", "{ int i = 0, s = 0; while (i < n) { s += y[i]; i++; } y[0] = s; }"),
    (
        "int *y, int n",
        "for (int i = 0; i < n; i++) { int k = 0, s = 0; while (k < 3) { s += y[k]; k++; } y[i + 9] = s; }",
    ),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) y[i] = x[x[i] % 8];"),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) y[x[i] % 8] += 1;"),
    (
        "int *y, int n, const int *x",
        "{ int i = 2; for (; i < n; i++) *y++ = i; while (i < 10) { y[i] = 3; i += 2; } }",
    ),
    ("int *y, int n", "{ int i = 0, j = 9; for (; i < n; ++i, --j) { y[i] = j; } y[20] = i; y[21] = j; }"),
    ("int *y, int n, const int *x", "for (int i = 0; i < n; i++) { y[0] = *x++; *++y = 1; y++; }"),
    (
        "int *y, int n, int m",
        "for (int i = 0; i < m; i++) { int *p = y + i * n; int k = n; do *p++ = i; while (--k); }",
    ),
    (
        "int *y, int n, int m",
        "for (int i = 0; i < m; i++) { int *p = y; for (int j = 0; j < n; j++, p += m) *p += i; y++; }",
    ),
    ("int *y, int n, const int *x", "{ const int *p = x, *q = x + n; while (p < q) *y++ = *--q; }"),
    (
        "int *y, int n, int m",
        "{ int k, i, j, e = n; for (i = 0; i < m; i++) { e = n - 1; for (j = 0; j < e; j++) y[i * 7 + j] = j; }"
        " k = e + 1; for (j = 0; j < k; j++) y[40 + j] = e; }",
    ),
    (
        "int *y, int n, int m",
        "{ int *p = y, i, j; for (i = 0; i < m; i++) { p = y + 3; for (j = 0; j < n; j++) *p++ += i; } *p = 77; }",
    ),
    ("int y[], int n, const int x[64]", "for (int i = 0; i < n; i++) *(y++) = *(x++) * 2;"),
    ("int y[], int n, const int x[]", "{ const int *e = x + n; while (x < e) { y += 2; *y = *x++; } }"),
]


@pytest.mark.parametrize(("signature", "loop"), WALKS, ids=range(len(WALKS)))
def test_walks(tmp_path, signature, loop):
    same(tmp_path, signature, f"#pragma mdh\n{loop}", n=7, m=3, s=3)


def test_the_end_of_a_walk_may_be_a_parameter():
    code = """
float total(const float *p, const float *end)
{
    float s = 0;
#pragma mdh
    for (; p != end; ++p)
        s += *p;
    return s;
}
"""
    one = nest(code)
    (loop,) = one.body
    assert [(p.name, p.value) for p in one.params] == [("mdh_p0", "(end) - (p)")]
    assert str(loop.lower.value) == "0" and loop.upper == Var("mdh_p0", INT64)
    assert loop.body[0].value.b == Load("p", (Var(loop.iterator, INT64),), FLOAT)


def test_values_after_the_nest():
    code = """
int last(int *y, const int *x, int n)
{
    int k = 1, i;
#pragma mdh
    for (i = 0; i < n; i++) {
        y[k] = x[i];
        k += 2;
    }
    return k + i;
}
"""
    one = nest(code)
    assert [(s.name, s.live_after) for s in one.scalars] == [("k", True)]
    last = one.body[1]
    assert isinstance(last, Assign) and last.target == Var("k", INT32)
    assert one.directive.assume == ("n >= 0",)


@pytest.mark.parametrize(
    ("signature", "store"),
    [
        ("int n, int m, int A[n][m]", "A[i][j]"),
        ("int n, int m, int A[][7]", "A[i][j]"),
        ("int n, int m, int A[restrict 5][7]", "A[i][j]"),
        ("int n, int m, int A[static 5][7]", "A[i][j]"),
        ("int n, int m, int A[n][m + 1]", "A[i][j]"),
        ("int n, int m, int A[n][(m + 9) / 2]", "A[i][j]"),
        ("int n, int m, int A[n][m]", "(*(A + i))[j]"),
        ("int n, int m, int *A", "A[i * m + j]"),
        ("int n, int m, int A[restrict]", "A[i * m + j]"),
    ],
)
def test_array_declarators(tmp_path, signature, store):
    loop = f"#pragma mdh\nfor (int i = 0; i < n; i++) for (int j = 0; j < m; j++) {store} = 10 * i + j;"
    same(tmp_path, signature, loop, n=5, m=7)


def test_functions_of_the_file(tmp_path):
    before = """
static const int limit = 40;
enum { LOW = -3, HIGH };
typedef struct { int a; float b; } pair;
static int clamp(int x) { if (x > limit) return limit; if (x < LOW) { return HIGH; } return x; }
static int collatz(int x) {
    int n = 0; while (x != 1) { x = x % 2 ? 3 * x + 1 : x / 2; n++; if (n > 50) break; } return n; }
static pair twice(pair p) { pair q = {.b = p.b * 2, .a = p.a}; q.a += 1; return q; }
static float use(int x) { pair p = {x}; p = twice(p); return p.a + twice((pair){x, 0.5f}).b; }
"""
    body = "y[i] = clamp(i * 20 - 10) + collatz(i + 1) * 1000 + use(i);"
    one = same(tmp_path, "float *y, int n", f"#pragma mdh\nfor (int i = 0; i < n; i++) {body}", before, n=9)
    assert [f.name for f in one.functions] == ["clamp", "collatz", "twice", "use"]


def test_rank_0_buffers(tmp_path):
    one = same(
        tmp_path, "double *s, const double *x, int n", "#pragma mdh\nfor (int i = 0; i < n; i++) *s += x[i];"
    )
    assert {(b.name, b.rank, b.base) for b in one.buffers} == {("s", 0, "s"), ("x", 1, "x")}


# --------------------------------------------------------------------------- types and constants


def test_constants_have_their_types():
    assert expression("0.5") == Const(0.5, DOUBLE)
    assert expression("0.1f") == Const(0.10000000149011612, DOUBLE)
    assert expression("-3") == Const(-3.0, DOUBLE)
    assert expression("0x1p-3 + x", "double x") == Binary("+", Const(0.125, DOUBLE), Var("x", DOUBLE), DOUBLE)
    assert expression("x * 1u", "long x") == Cast(
        Binary("*", Var("x", INT64), Const(1, INT64), INT64), DOUBLE
    )
    assert expression("x == 4294967295", "long x").a.b == Const(4294967295, INT64)


def test_conversions_are_explicit():
    x = Var("x", FLOAT)
    assert expression("x * 2", "float x") == Cast(Binary("*", x, Const(2.0, FLOAT), FLOAT), DOUBLE)
    assert expression("x * 2.0", "float x") == Binary("*", Cast(x, DOUBLE), Const(2.0, DOUBLE), DOUBLE)
    assert expression("x < 2", "float x") == Cast(Binary("<", x, Const(2.0, FLOAT), INT32), DOUBLE)
    assert expression("!x", "float x").a == Binary("==", x, Const(0.0, FLOAT), INT32)
    assert expression("!n").a == Unary("!", Var("n", INT32), INT32)


def test_macros_and_header_names():
    code = """
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef double real;
void f(real *y, ptrdiff_t n, bool b)
{
#pragma mdh
    for (ptrdiff_t i = 0; i < n; i++) {
        const real a = FLT_MAX, c = DBL_MAX, d = INT_MIN, e = M_PI, g = INFINITY, h = NAN;
        int8_t t = INT8_MAX;
        y[i] = true ? a + c + d + e + g + h + t + b : SIZE_MAX;
    }
}
"""
    one = nest(code, "-D_GNU_SOURCE")
    values = {s.name: s.value for s in one.body[0].body if isinstance(s, Declare)}
    assert values["d"] == Const(-2147483648.0, DOUBLE)
    assert values["e"] == Const(math.pi, DOUBLE)
    assert values["g"] == Const(math.inf, DOUBLE)
    assert math.isnan(values["h"].value)
    assert values["c"].value == 1.7976931348623157e308
    assert (one.buffers[0].c_type, one.params[0].c_type) == ("real", "ptrdiff_t")


def test_records():
    code = """
struct rec { float w; int id; };
void f(struct rec *out, const struct rec *in, int n, struct rec z)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
        struct rec r = {in[i].w + z.w};
        r.id += in[i].id;
        out[i] = r;
        out[i].w = (in + i)->w;
    }
}
"""
    one = nest(code)
    assert one.body == nest(code.replace("(in + i)->w", "in[i].w")).body
    record = RecordType("struct rec", (("w", FLOAT), ("id", INT32)))
    first = one.body[0].body[0]
    assert isinstance(first.value, MakeRecord) and first.type == record
    assert first.value.values[1] == Const(0, INT32)
    assert one.buffers[0].type == record
    assert [(p.name, p.type) for p in one.params] == [("n", INT32), ("z", record)]


STRUCTS = """
#include <stddef.h>
typedef struct { int n, m; double *data; struct { double alpha; int w[4]; } sub; void *raw; } matrix;
typedef struct { size_t size, stride; double *data; } vector;
struct rec { int n; float a; };
"""


@pytest.mark.parametrize(
    ("declared", "name"),
    [("typedef struct { double at[3], mass; } body;", "body"),
     ("typedef struct body { double at[3], mass; } thing; typedef thing body;", "struct body"),
     ("struct body { double at[3], mass; };\n#define body struct body", "struct body")],
)  # fmt: skip
def test_elements_with_members_that_are_no_scalars(declared, name):
    parameters = "int n, const body *restrict b, double *restrict y"
    loop = "for (int i = 0; i < n; i++) y[i] = b[i].mass;"
    result = read_text(f"{declared}\nvoid f({parameters})\n{{\n#pragma mdh\n{loop}\n}}\n")
    (found,) = result.refused[0].diagnostics
    assert found.message == f"`b` has type `{name}` with the member `at` that is no scalar"
    assert "an array of its own" in found.help and "before the nest" not in found.help


def members(signature: str, loop: str) -> LoopNest:
    return nest(f"{STRUCTS}void f({signature})\n{{\n#pragma mdh\n{loop}\n}}\n")


def test_members_are_parameters_and_buffers():
    one = members(
        "matrix *m, float *y",
        "for (int i = 0; i < m->n; i++) y[i] = m->sub.alpha * m->data[i * m->m] + m->sub.w[2];",
    )
    assert {(p.name, p.value) for p in one.params} == {
        ("m_n", "m->n"), ("m_sub_alpha", "m->sub.alpha"), ("m_m", "m->m")
    }  # fmt: skip
    assert {(b.name, b.base, b.distinct) for b in one.buffers} == {
        ("y", "y", False), ("m_data", "m->data", False), ("m_sub_w", "m->sub.w", False)
    }  # fmt: skip
    assert str(one.buffer("m_sub_w").extents[0]) == "4"
    one = members("matrix m", "for (int i = 0; i < 4; i++) m.sub.w[i] = m.n;")
    assert [(b.name, b.distinct) for b in one.buffers if b.name == "m_sub_w"] == [("m_sub_w", True)]
    one = members("struct rec *r, float *y", "for (int i = 0; i < r->n; i++) y[i] = 1;")
    assert [p.value for p in one.params] == ["r->n"]


def test_members_that_a_store_may_change_are_read_from_memory():
    one = members("vector *v, double *y", "for (int i = 0; i < 9; i++) y[i] = v->data[0];")
    assert {b.name for b in one.buffers} == {"y", "v_data"}
    one = members("matrix *m, double *y", "for (int i = 0; i < m->n; i++) y[i] = m->sub.alpha;")
    assert sorted((b.name, b.rank, b.base) for b in one.buffers) == [
        ("m_sub_alpha", 0, "&m->sub.alpha"),
        ("y", 1, "y"),
    ]
    assert [p.name for p in one.params] == ["m_n"]
    one = members("matrix *m, double *y", "for (int i = 0; i < 9; i++) m->sub.alpha += y[i];")
    assert sorted((b.name, b.rank) for b in one.buffers) == [("m_sub_alpha", 0), ("y", 1)]
    one = members("matrix *m, int *y", "for (int i = 0; i < 9; i++) y[i] = m->n;")
    assert sorted((b.name, b.rank) for b in one.buffers) == [("m_n", 0), ("y", 1)]
    one = members("matrix *m, int *restrict y", "for (int i = 0; i < 9; i++) y[i] = m->n;")
    assert [p.name for p in one.params] == ["m_n"]


@pytest.mark.parametrize(
    ("signature", "before", "name", "reached"),
    [
        ("struct few s", "", "s", False),
        ("struct few *q", "struct few s = *q;", "s", False),
        ("struct few s", "int *p = &s.m; *p = 2;", "s", True),
        ("struct few s", "g(&s);", "s", True),
        ("struct few *s", "", "s", True),
        ("int k", "", "shared", True),
        ("struct few q", "static struct few s; s = q;", "s", True),
    ],
)
def test_members_of_variables_of_the_function_that_nothing_points_to(signature, before, name, reached):
    """A bound that a store of the nest cannot change: a struct that is passed by value."""
    op = "->" if "*s" in signature else "."
    one = nest(
        "struct few { int n, m; };\nstruct few shared;\nvoid g(struct few *);\n"
        f"void f(int *y, {signature})\n{{\n{before}\n#pragma mdh\n"
        f"for (int i = 0; i < 9; i++) y[i] = {name}{op}n;\n}}\n"
    )
    assert ({b.name for b in one.buffers} == {"y"}) != reached


def test_variables_that_pointers_reach():
    def scalars(before: str, signature: str, loop: str) -> set[tuple[str, int]]:
        one = nest(f"{before}\nvoid f({signature})\n{{\n#pragma mdh\n{loop}\n}}\n")
        return {(b.name, b.rank) for b in one.buffers if b.name == "s"}

    loop = "for (int i = 0; i < n; i++) y[i] = s * y[i];"
    assert scalars("float s;", "float *y, int n", loop) == {("s", 0)}
    assert scalars("static float s;", "float *y, int n", loop) == set()
    assert scalars("static float s; float *get(void) { return &s; }", "float *y, int n", loop) == {("s", 0)}
    assert scalars("float s;", "double *y, int n", loop) == set()
    assert scalars("float s;", "float *restrict y, int n", loop) == set()
    assert scalars("", "float *y, int n, float s", loop) == set()
    assert scalars("float s;", "const float *x, int n", "for (int i = 0; i < n; i++) s += x[i];") == {
        ("s", 0)
    }


def test_casts_of_pointers():
    one = members(
        "void *out, const void *in, matrix *m",
        "for (int i = 0; i < 9; i++) { float *o = (float *)out; o[i] = ((const double *)in)[i] + ((float *)m->raw)[i]; }",
    )
    assert [(b.name, b.base, b.type.name) for b in one.buffers] == [
        ("out", "((float *)out)", "float"), ("in", "((double *)in)", "double"), ("m_raw", "((float *)m->raw)", "float")
    ]  # fmt: skip


def test_arguments_as_fortran_passes_them():
    code = """
int f_(int *n, double *a, int *lda)
{
    int i__1, i__2, i, j;
#pragma mdh
    {
        i__1 = *n;
        for (i = 0; i < i__1; ++i) {
            i__2 = *n - 1;
            for (j = 0; j < i__2; ++j)
                a[i * *lda + j] = 0.;
        }
    }
    return 0;
}
"""
    one = nest(code)
    assert {(p.name, p.value) for p in one.params} == {("n_value", "*n"), ("lda_value", "*lda")}
    (outer,) = one.body
    assert outer.upper == Var("n_value", INT32) and not one.scalars


def test_pointers_as_conditions():
    one = nest(
        "#include <stddef.h>\nvoid f(double *y, const double *w, int n)\n{\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) { y[i] *= w ? w[i] : 1; if (w == NULL || !n) y[i] = 0; }\n}"
    )
    assert {p.value for p in one.params} == {"n", "(w) != 0", "(w) == 0"}


GNU = """
#include <stddef.h>
#include <stdio.h>
_Static_assert(sizeof(int) == 4, "int");
static __inline __attribute__((always_inline, const)) float sq(float x) { return x * x; }
__attribute__((target("sse2"), noinline)) void f(float *__restrict y, const float *__restrict__ x, int n)
{
    int k = 0;
    __asm__ volatile("nop" : "+r"(k) : : "memory");
    switch (n) { case 1 ... 3: k = 1; break; case 4: k = 2; __attribute__((fallthrough)); default: ; }
    int q = ({ int r = 3; r + n; });
    __extension__ typedef float real_t;
    __auto_type m = n;
    [[maybe_unused]] int unused = 1;
#pragma mdh
#pragma GCC ivdep
    for (int i = 0; i < m; i++) {
        __typeof__(x[0]) t = x[i];
        typeof(y) p = y + i;
        typeof(double) d = 1;
        __extension__ real_t u = t;
        _Static_assert(1, "x");
        *p = __builtin_expect(t > 0, 1) ? sq(t) + __builtin_fabsf(u) : d;
        __attribute__((unused)) int z = 1;
        [[maybe_unused]] int w;
    }
    __asm__("nop");
}
"""


def test_gnu_words():
    one = nest(GNU)
    assert [p.name for p in one.params] == ["m"] and {b.name for b in one.buffers} == {"y", "x"}
    types = {s.name: s.type for s in one.body[0].body if isinstance(s, Declare)}
    assert types["t"] == FLOAT and types["d"] == DOUBLE


def test_what_cannot_be_read_does_not_change_the_nest():
    shadow = "{{ __label__ here; {declaration};\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] = {value};\n}}"
    for declaration, value, wanted in (
        ("float _Complex * __seg_fs z", "k", []),
        ("int __seg_fs k = 3", "k", ["MDH003"]),
        ("int __seg_fs k = 3", "n", []),
        ('asm goto ("" : : : : here)', "k", []),
    ):
        code = "void f(float *y, int n, int k)\n" + shadow.format(declaration=declaration, value=value)
        assert codes(code) == wanted, (declaration, value)
    inside = "void f(float *y, int n)\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] = n ?: 3;\n}"
    assert codes(inside) == ["MDH003"]


def test_a_body_without_parameters_is_no_function():
    """The parser takes ``double (f) {``, as people have it while they type."""
    inside = "double x[9];\ndouble (f)\n{\n#pragma mdh\nfor (int i = 0; i < 9; i++) x[i] = 0;\n}"
    assert codes(inside) == ["MDH003"]
    called = "double (g)\n{ return 2; }\nvoid f(double *x)\n{\n#pragma mdh\nfor (int i = 0; i < 9; i++) x[i] = g(i);\n}"
    assert codes(called) == ["MDH204"]


@pytest.mark.parametrize(
    "body",
    [
        "if (x[i] > 4) continue; y[i] = x[i];",
        "if (x[i] > 4) { y[i] = 1; continue; } else y[i] = 2; y[i] += x[i]; if (x[i] < 2) continue; y[i]++;",
        "if (x[i] > 4) y[i] = 1; else { y[i] = 2; continue; } y[i] += 5;",
        "if (x[i] > 4) continue; else continue; y[i] = 5;",
        "y[i] = 5; continue; y[i] = 6;",
        "int v = x[i]; if (v < 3) continue; else if (v > 6) continue; y[i] += v;",
        "int v = x[i]; if (v < 3) continue; else { v *= 2; if (v > 9) continue; v++; } y[i] += v;",
        "if (x[i] < 3) { y[i] = 7; if (x[i] == 2) continue; y[i]++; } else { y[i] = 1; continue; } y[i] *= 3;",
        "int v; if ((v = x[i]) > 2 && v < 9) y[i] = v; else if ((v = y[i])) y[i] = v + 1;",
    ],
)
def test_continue_and_assignments_in_conditions(tmp_path, body):
    loop = f"#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }}"
    same(tmp_path, "int *y, int n, const int *x", loop, n=9)


def test_char_signedness_follows_the_flags():
    code = "void f(char *y, int n)\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) y[i] = 1;\n}"
    assert nest(code, "-fsigned-char").buffers[0].type.name == "int8"
    assert nest(code, "-funsigned-char").buffers[0].type.name == "uint8"


# --------------------------------------------------------------------------- variables


def test_parameters_scalars_and_iterators():
    code = """
static int total;
int g(const int *x, int n)
{
    int i, best = 0, tmp, at;
#pragma mdh
    for (i = 0; i < n; i++) {
        tmp = x[i];
        total += tmp;
        if (tmp > best) { best = tmp; at = i; }
    }
    return best;
}
"""
    one = nest(code)
    assert [p.name for p in one.params] == ["n"]
    assert {s.name: s.live_after for s in one.scalars} == {
        "tmp": False,
        "total": True,
        "best": True,
        "at": False,
    }
    loop = one.body[0]
    assert (loop.iterator, loop.source_name, loop.declared_outside) == ("i", "i", True)


def test_what_is_written_in_an_outer_loop_stays_live():
    code = """
void g(int *x, int n)
{
    int s = 0;
    for (int t = 0; t < 3; t++) {
#pragma mdh
        for (int i = 0; i < n; i++)
            s += x[i] * t;
    }
}
"""
    one = nest(code)
    assert [s.live_after for s in one.scalars] == [True]
    assert {p.name for p in one.params} == {"n", "t"}


LIVE = """
void g(int n, float *y, const float *x, int *c)
{
    int k = 0;
    for (int t = 0; t < 3; t++) {
        BEFORE;
#pragma mdh
        for (int i = 0; i < n; i++) { k = c[i]; y[i] = k * t; }
        AFTER;
    }
    LATER;
}
"""


@pytest.mark.parametrize(
    ("before", "after", "later", "live"),
    [
        ("", "", "", True),  # the nest itself may read it next time, for all that is known
        ("k = 1", "", "", False),
        ("k = 1", "", "y[0] = k", True),
        ("k = 1", "k = 2", "y[0] = k", False),
        ("k = 1", "y[1] = k", "", True),
        ("k = 1", "k += 2", "", True),
        ("k = 1", "if (n) k = 2", "y[0] = k", True),
        ("k = 1", "if (n) k = 2; else k = 3", "y[0] = k", False),
        ("k = 1", "if (n) break; k = 2", "y[0] = k", True),
        ("k = 1", "for (k = 0; k < n; k++) y[k] = 0", "y[0] = k", False),
        ("k = 1", "if (k) y[0] = 0", "", True),
        ("k = 1", "", "{ k = 0; y[0] = k; }", False),
        ("k = 1", "", "again: y[0] = 1; k = 2; if (n) goto again", True),
    ],
)
def test_what_is_needed_after_the_nest(before, after, later, live):
    code = LIVE.replace("BEFORE", before).replace("AFTER", after).replace("LATER", later)
    assert [s.live_after for s in nest(code).scalars] == [live]


def test_shadowed_and_repeated_names_are_unique():
    code = """
void f(int *y, int n)
{
    int t = 1;
#pragma mdh
    {
        for (int i = 0; i < n; i++) { int t = i; y[i] = t; }
        for (int i = 0; i < n; i++) y[i] += t;
    }
}
"""
    first, second = nest(code).body
    assert (first.iterator, second.iterator, second.source_name) == ("i", "i_1", "i")
    assert first.body[0].name == "t"
    assert [p.value for p in nest(code).params] == ["n", "t"]


def test_derived_parameters():
    code = """
void f(float *y, const float *x, int n, int m, float (*A)[m * 2 + n % 3])
{
#pragma mdh
    for (int i = 0; i < n * m; i++)
        for (int k = 0; k < m / 2; k++)
            y[i * (n * m) + k + n / m] = x[i * m + k] + A[0][k];
}
"""
    one = nest(code)
    derived = {p.name: p.value for p in one.params if p.name.startswith("mdh_")}
    assert sorted(derived.values()) == sorted(["n * m", "m / 2", "m ? n / m : 0", "(m * 2) + (n % 3)"])
    assert one.body[0].upper == Var("mdh_p0", INT32)
    assert str(one.buffer("A").extents[1]) in derived


def test_extents_that_are_no_longer_valid():
    code = """
void f(int n, int m)
{
    float A[n][m];
    m = 3;
#pragma mdh
    for (int i = 0; i < n; i++)
        A[i][0] = m;
}
"""
    one = nest(code)
    assert [str(e) for e in one.buffer("A").extents] == ["n", "mdh_p0"]
    assert {p.value for p in one.params} == {"n", "m", "sizeof(A[0]) / sizeof(A[0][0])"}
    assert one.buffer("A").distinct and one.buffer("A").base == "&A[0][0]"


def test_buffers_say_what_they_are():
    code = """
float G[4][8];
void f(float *restrict p, const float (*q)[8], float r[4][8], int n)
{
    static double s[8];
#pragma mdh
    for (int i = 0; i < n; i++) { p[i] = q[i][0] + r[i][1] + G[i][2]; s[i] = p[i]; }
}
"""
    found = {b.name: b for b in nest(code).buffers}
    assert {n: [str(e) for e in b.extents] for n, b in found.items()} == {
        "p": ["None"], "q": ["None", "8"], "r": ["4", "8"], "G": ["4", "8"], "s": ["8"],
    }  # fmt: skip
    assert {n for n, b in found.items() if b.distinct} == {"G", "s"}
    assert {n for n, b in found.items() if b.restrict} == {"p"}
    assert found["q"].base == "&q[0][0]" and found["p"].base == "p"


def test_combine_functions_in_both_signatures():
    code = """
typedef struct { float re, im; } c;
void mul(c *res, const c *lhs, const c *rhs) { float t = lhs->re * rhs->re - lhs->im * rhs->im;
    res->im = lhs->re * rhs->im + lhs->im * rhs->re; res->re = t; }
void early(c *res, const c *lhs, const c *rhs) { res->re = lhs->re + rhs->re; res->im = lhs->im + rhs->im; }
c add(c a, c b) { a.re += b.re; a.im += b.im; return a; }
void f(c *y, const c *x, int n)
{
#pragma mdh combine_ops(pw(mul))
    for (int i = 0; i < n; i++)
        y[0] = x[i];
#pragma mdh combine_ops(pw(add))
    for (int i = 0; i < n; i++)
        *y = add(*y, x[i]);
#pragma mdh combine_ops(cc)
    for (int i = 0; i < n; i++)
        mul(&y[i], &y[i], x + i);
#pragma mdh combine_ops(cc)
    for (int i = 0; i < n; i++)
        early(&y[i], &y[i], &x[i]);
}
"""
    result = read_text(code)
    first, second, third = result.nests
    assert first.functions[0].out_param and [p for p, _ in first.functions[0].params] == ["lhs", "rhs"]
    assert not second.functions[0].out_param and second.buffer("y").rank == 0
    assert isinstance(third.body[0].body[0].value, Call)
    # `early` writes res->re before it reads lhs->im, so res must not be lhs
    assert [d.code for r in result.refused for d in r.diagnostics] == ["MDH204"]


# --------------------------------------------------------------------------- directives


def directive(text: str) -> Directive:
    found, problems = parse_directive(text)
    assert not problems, problems
    return found


def test_every_clause():
    d = directive(
        " combine_ops(cc, pw(+), ps(max), ++, f, (+, min), pw((argmin, g)), pw(||)), out(w)"
        " inp(M, v) name(gemv.1)"
        " sizes(N=1024, M=0x10) sizes(N=1) assume(n > 0 && f(1, 2) == 3) noalias(a, b) noalias(c,d,e)"
        " fp(deterministic) target(openmp, cuda)"
    )
    assert [str(op) for op in d.combine_ops] == [
        "cc", "pw(+)", "ps(max)", "cc", "pw(f)", "pw(+, min)", "pw(argmin, g)", "pw(||)",
    ]  # fmt: skip
    assert (d.out, d.inp, d.label) == (("w",), ("M", "v"), "gemv.1")
    assert d.sizes == ((("N", 1024), ("M", 16)), (("N", 1),))
    assert d.assume == ("n > 0 && f(1, 2) == 3",)
    assert d.noalias == (("a", "b"), ("c", "d", "e"))
    assert (d.fp, d.targets) == ("deterministic", ("openmp", "cuda"))
    assert directive("combine_ops(i: cc, k: pw(*))").combine_ops[1] == OpClause("pw", ("*",), "k")
    paper = directive("( C[i][j] : ++ , ++ , + )")
    assert paper.access == "C[i][j]" and [str(op) for op in paper.combine_ops] == ["cc", "cc", "pw(+)"]
    assert directive("") == Directive()


@pytest.mark.parametrize(
    ("text", "code", "at"),
    [
        ("combine_op(cc)", "MDH401", "combine_op"),
        ("outs(x)", "MDH401", "outs"),
        ("out", "MDH402", "out"),
        ("out()", "MDH402", "out()"),
        ("out(a, )", "MDH402", "out(a, )"),
        ("out(a[i])", "MDH402", "a[i]"),
        ("inp(a, a)", "MDH402", "a"),
        ("name(a b)", "MDH402", "a b"),
        ("name()", "MDH402", "name()"),
        ("sizes(N)", "MDH402", "N"),
        ("sizes(N=x)", "MDH402", "N=x"),
        ("sizes(N=1, N=2)", "MDH402", "N=2"),
        ("assume()", "MDH402", "assume()"),
        ("assume(n = 3)", "MDH402", "n = 3"),
        ("noalias(a)", "MDH402", "noalias(a)"),
        ("fp(fats)", "MDH402", "fats"),
        ("target(gpu)", "MDH402", "gpu"),
        ("combine_ops(pw(-))", "MDH402", "-"),
        ("combine_ops(pw())", "MDH402", ""),
        ("combine_ops(pw(cc))", "MDH402", "cc"),
        ("combine_ops(cc, i: pw(+))", "MDH402", "i: pw(+)"),
        ("combine_ops(i: cc, i: cc)", "MDH402", "i: cc"),
        ("combine_ops(1: cc)", "MDH402", "1: cc"),
        ("combine_ops(cc", "MDH402", "("),
        ("combine_ops(cc])", "MDH402", "]"),
        ("$", "MDH402", "$"),
        ("fp(fast) fp(fast)", "MDH407", "fp"),
        ("( C[i] ++ )", "MDH402", "C[i] ++"),
        ("( C[i] : )", "MDH402", "C[i] :"),
        ("( C[i] : + ) fp(fast)", "MDH402", "fp(fast)"),
    ],
)
def test_wrong_clauses(text, code, at):
    _, problems = parse_directive(text, range(len(text) + 1))
    assert [p.code for p in problems] == [code]
    assert text[problems[0].span.start : problems[0].span.end] == at
    assert problems[0].message


def test_one_wrong_clause_does_not_hide_the_next():
    _, problems = parse_directive("outt(a) fp(none) noalias(a)")
    assert [p.code for p in problems] == ["MDH401", "MDH402", "MDH402"]
    assert problems[0].help == "did you mean `out`?"


SIMPLE = "for (int i = 0; i < n; i++)\n        y[i] = 0;"


def test_spellings_of_the_pragma():
    code = f"""
#define GO _Pragma("mdh name(c)")
void f(int *y, int n)
{{
#pragma mdh name(a) /* one */ \\
        sizes(n=3) // two
    {SIMPLE}
    _Pragma("mdh name(b)") {SIMPLE}
    GO {SIMPLE}
  # pragma  mdh
    {{ {SIMPLE} }}
#pragma mdhx
#pragma omp simd
    {SIMPLE}
}}
"""
    found = nests(code)
    assert [n.label for n in found] == ["a", "b", "c", "3"]
    assert found[0].name == "t.c::f::a"
    assert found[0].directive.sizes == ((("n", 3),),)
    source = SourceFile("t.c", code.encode())
    assert source.text(found[0].directive_span).endswith("// two")
    assert source.text(found[1].directive_span) == '_Pragma("mdh name(b)")'
    assert [source.text(n.span) for n in found] == [SIMPLE, SIMPLE, SIMPLE, f"{{ {SIMPLE} }}"]


# --------------------------------------------------------------------------- places in the file


def spans(code: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [
        tuple(code[s.start : s.end] for s in (n.directive_span, n.span, n.function_span)) for n in nests(code)
    ]


def test_spans_with_comments_everywhere():
    code = b"""/* for ( */ // { "
static /* a */ inline __attribute__((noinline)) void /**/ f(int *y /* ; */, int n)
{
    const char *s = "}\\"{"; char q = '"';
/* x */ # /* y */ pragma mdh /* z */ name(a) // end {
    /* before */ for /* ( */ (int i = 0; /* i < 3; */ i < n; i++) // ) {
    { y[i] = '{' /* } */; // }
    } /* after */ y[0] = s[0] + q;
}
"""
    ((pragma, body, function),) = spans(code)
    assert pragma == b"# /* y */ pragma mdh /* z */ name(a) // end {"
    assert body.startswith(b"for /* ( */") and body.endswith(b"; // }\n    }")
    assert function.startswith(b"static /* a */") and function.endswith(b"+ q;\n}")


def test_crlf_latin_1_tabs_and_bom():
    text = (
        "// caf\xe9 \xfc\r\nvoid f(float *y, int n)\r\n{\r\n#pragma mdh \\\r\n\tname(k)\r\n"
        "\tfor (int i = 0;\\\r\n"
        " i < n; i++)\r\n\t\ty[i] = 0; /* \xe4 */\r\n}"
    )
    for code in (text.encode("latin-1"), b"\xef\xbb\xbf" + text.encode("utf-8")):
        ((pragma, body, function),) = spans(code)
        assert pragma == b"#pragma mdh \\\r\n\tname(k)"
        assert body.startswith(b"for (int") and body.endswith(b"y[i] = 0;")
        assert function.startswith(b"void f") and function.endswith(b"}")
        assert nest(code).label == "k"


def test_macros_in_the_nest():
    code = b"""
#define N 10
#define AT(i, j) A[(i) * N + (j)]
#define ZERO(x) x = 0
#define FOR2(j) for (int j = 0; j < N; j++)
void f(float *A)
{
#pragma mdh
    for (int i = 0; i < N; i++)
        FOR2(j) ZERO(AT(i,
                        j));
    A[0] = N;
}
"""
    ((_, body, _),) = spans(code)
    assert body.endswith(b"j));") and body.startswith(b"for (int i")
    one = nest(code)
    assert one.body[0].upper == Const(10, INT32) and one.body[0].body[0].iterator == "j"


@pytest.mark.parametrize(
    ("loop", "after"),
    [
        (b"FOR(i, n)\n        y[i] = 0;", b"y[0] = 1;"),
        (b"FOR(i, n) { y[i] = 0; }", b"FOR(k, n) y[k] += 1;"),
        (b"FOR(i, n)\n        FOR(j, n) y[i] = j;", b""),
        (b"OPEN(i, n) y[i] = 0; CLOSE", b"y[0] = 1;"),
        (b"OPEN(i, n) y[i] = 0; }", b"OPEN(k, n) y[k] += 1; CLOSE"),
        (b"for (int i = 0; i < n; i++) {\n        y[i] = 0;\n    CLOSE", b"y[0] = 1;"),
        (b"ALL(i, n, y[i] = 0;)", b"y[0] = 1;"),
    ],
)
def test_macros_that_hide_the_loop(loop, after):
    code = (
        b"#define FOR(i, n) for (int i = 0; i < (n); i++)\n#define OPEN(i, n) FOR(i, n) {\n#define CLOSE }\n"
        b"#define ALL(i, n, body) FOR(i, n) { body }\n"
        b"void f(float *y, int n)\n{\n#pragma mdh\n    " + loop + b"\n    " + after + b"\n}\n"
    )
    ((_, body, function),) = spans(code)
    assert body == loop
    assert function.startswith(b"void f") and function.endswith(b"}")
    assert nest(code).body[0].iterator == "i"


def test_conditional_code_inside_the_nest():
    code = """
void f(float *y, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++) {
#ifdef TWICE
        y[i] *= 2;
#else
        y[i] *= 3;
#endif
    }
}
"""
    assert nest(code).body[0].body[0].value.b == Const(3.0, FLOAT)
    assert nest(code, "-DTWICE").body[0].body[0].value.b == Const(2.0, FLOAT)


def test_spliced_files_read_as_their_original():
    code = f"""
void f(int *y, int n)
{{
#pragma mdh
#ifndef MDH_LIFT_OFF
    if (generated(y, n)) ; else
#endif
    {SIMPLE}
}}
"""
    assert len(nests(code)) == 1


def test_other_functions_may_be_unreadable():
    code = f"""
#include <stdio.h>
typedef float v4 __attribute__((vector_size(16)));
int a(int x) {{ return x ?: __builtin_choose_expr(1, ({{ 3; }}), 4); }}
int b(int x) {{ __asm__ volatile ("nop" : "+r"(x) : : "memory"); __auto_type y = x; return y; }}
v4 c(v4 x) {{ switch (1) {{ case 1 ... 3: ; }} return x; }}
void f(int *y, int n)
{{
#pragma mdh
    {SIMPLE}
}}
"""
    assert len(nests(code)) == 1


def test_includes_relative_to_the_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "inc").mkdir()
    (tmp_path / "sub" / "own.h").write_text("#define N 7\n")
    (tmp_path / "inc" / "other.h").write_text("typedef short elem;\n")
    path = tmp_path / "sub" / "t.c"
    code = f'#include "own.h"\n#include <other.h>\nvoid f(elem *y, int n)\n{{\n#pragma mdh\n{SIMPLE}\n}}\n'
    path.write_text(code.replace("i < n", "i < N"))
    source = SourceFile("sub/t.c", path.read_bytes())
    result = read(source, CompileCommand(flags=("-I", "inc"), directory=str(tmp_path)))
    assert not result.refused and not result.diagnostics
    assert result.nests[0].body[0].upper == Const(7, INT32)
    assert result.nests[0].buffers[0].type.name == "int16"
    missing = read(source, CompileCommand(directory=str(tmp_path)))
    (problem,) = missing.diagnostics
    assert (problem.code, problem.position(source), problem.message) == (
        "MDH002",
        (2, 1),
        "header `other.h` is not found",
    )


def test_an_error_in_a_header_names_the_header(tmp_path):
    (tmp_path / "own.h").write_text("\n#error no\n")
    source = SourceFile("t.c", b'#include "own.h"\n')
    (problem,) = read(source, CompileCommand(directory=str(tmp_path))).diagnostics
    assert problem.code == "MDH002" and problem.file.endswith("own.h") and problem.line == 2


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\xfe", b"#pragma mdh", b"void f( {\n#pragma mdh\nfor", b"}}}}\n#pragma mdh\n{"]
)
def test_no_input_raises(data):
    result = read_text(data)
    assert not result.nests
    assert result.refused or result.diagnostics


def test_any_cut_of_a_file_gives_an_answer():
    data = (ROOT / "corpus" / "user_op.c").read_bytes()
    for end in range(1200, len(data), 157):
        read_text(data[:end])


@pytest.mark.parametrize("gap", [b"\\\n\n", b"\\\r\n\r\n", b"\\\n  \n", b" \\ \n\n"])
def test_a_directive_that_is_continued_by_nothing(gap):
    text = b"void f(float *a, int n)\n{\n#pragma mdh " + gap + b"    for (int i = 0; i < n; i++)\n        a[i] += 1;\n}\n"
    (nest,) = read(SourceFile("f.c", text), CompileCommand()).nests
    assert text[nest.span.start :].startswith(b"for (")


# --------------------------------------------------------------------------- flags


def test_only_flags_that_matter_are_kept():
    given = """-O3 -I inc -Iother -DA=1 -D B -UC -std=c99 -march=native -o x.o -Wall -c -isystem /s
        -funsigned-char -include limits.h -MF x.d -lm"""
    kept, warnings = analysis_flags(CompileCommand(flags=tuple(given.split()), directory="/d"))
    wanted = """-I/d/inc -I/d/other -DA=1 -DB -UC -std=c99 -march=native -isystem /s
        -funsigned-char -include limits.h"""
    assert kept == tuple(wanted.split())
    assert not warnings


@pytest.mark.parametrize(
    "flag", ["-fplugin=x.so", "-specs=x", "--specs=x", "@args", "-B.", "-Xclang", "-wrapper", "-Wp,-x"]
)
def test_flags_that_run_code_are_named_and_dropped(flag):
    kept, (warning,) = analysis_flags(CompileCommand(flags=(flag, "x", "-DA")))
    assert "-DA" in kept and flag not in kept
    assert warning.severity == "warning" and flag in warning.message


def test_only_compilers_are_started(tmp_path):
    evil = tmp_path / "cc"
    evil.write_text("#!/bin/sh\ntouch ran\n")
    assert analysis_compiler(CompileCommand("./cc", directory=str(tmp_path))) == find_compiler()
    assert analysis_compiler(CompileCommand("/bin/sh")) == find_compiler()
    assert analysis_compiler(CompileCommand("gcc")) == shutil.which("gcc")


# --------------------------------------------------------------------------- lexer


def test_tokens_cover_the_text():
    for path in CORPUS:
        data = path.read_bytes()
        found = tokens(data)
        assert all(a.end <= b.start for a, b in pairwise(found))
        assert all(data[t.start : t.end] == t.text for t in found)


_PIECES = [b"#", b" ", b"\t", b"\n", b"\r\n", b"\\\n", b"\\ \n", b"/*", b"*/", b"//", b'"', b"'", b"u8", b"L", b"x", b"1",
           b".5e+", b"e-", b"->", b"...", b".", b"##", b"\x00", b"\xc3\xbc", b"<<=", b"<", b"\f", b"\\", b"\xef\xbb\xbf",
           b"ab", b" y ", b";", b"{"]  # fmt: skip


def test_tokens_after_an_edit_are_those_of_the_text():
    """Read are only those around the edit: whatever it opens or closes, the others must be right."""
    rng = random.Random(0)
    for _ in range(6000):
        pieces = [rng.choice(_PIECES) for _ in range(rng.randrange(1, 40))]
        before = b"".join(pieces)
        at = rng.randrange(len(pieces) + 1)
        pieces[at : at + rng.randrange(3)] = rng.choices(_PIECES, k=rng.randrange(3))
        after = b"".join(pieces)
        assert tokens_again(after, before, tokens(before)) == tokens(after), (before, after)
    assert tokens_again(b"a", b"", []) == tokens(b"a") and tokens_again(b"", b"a b c d e", tokens(b"a b c d e")) == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (b'u8"a" u8 L"b" L\'c\' u8x', "string id string char id"),
        (b" # define A \\\n b  \n ## #\n/* c */ #x", "directive directive directive"),
        (b"a\\\n b .5e+3.x 0x1p-3 ... .", "id id number number punct punct"),
        (b"a // b \\\n c\nd /* e", "id id"),
        (b"\xef\xbb\xbf#if\n\xc3\xbc$ \x00", "directive id punct"),
    ],
)
def test_kinds_of_tokens(text, kinds):
    assert " ".join(t.kind for t in tokens(text)) == kinds


def test_token_hash_ignores_layout_only():
    a = b"for (i = 0; i < n; i++) /* x */\n  s += a[i];"
    b = b"for(i=0;i<n;i++) s +=\r\n a[i] ; // y"
    whole = Span(0, len(a))
    assert token_hash(a, whole) == token_hash(b, Span(0, len(b)))
    assert token_hash(a, whole) != token_hash(a.replace(b"+=", b"-="), whole)
    assert token_hash(b"a b", Span(0, 3)) != token_hash(b"ab", Span(0, 2))


@pytest.mark.parametrize(
    "text",
    [
        "x;", "{ x; { } }", "for (;;) x;", "while (a) { }", "if (a) b; else if (c) d; else { e; }",
        "do x; while (y);", "for (;;) if (a) for (;;) { } else x = (y, z);", "l: x;",
        "switch (a) { case 1: b; }",
        "for (;;)\n#pragma omp simd\nfor (;;) x;", "x = (struct s){1, 2};", "x = a ? b : c;", ";",
    ],
)  # fmt: skip
def test_extent_of_a_statement(text):
    found = tokens(f"{text} rest; }}".encode())
    end = statement_end(found, 0)
    assert end is not None and found[end - 1].end == len(text)


def test_extent_of_what_is_no_statement():
    for text in ("}", "for x;", "x", "{ (", "else x;", "do x;", ""):
        assert statement_end(tokens(text.encode()), 0) is None
    assert closing(tokens(b"([)]"), 0) is None


def test_positions_behind_a_macro_on_the_same_line():
    code = b"#define N 1 + 2 + 3\nint x = N * y + N;\n"
    source = SourceFile("t.c", code)
    stream = pre_tokens(preprocess(source, CompileCommand()))
    positions = Positions(source, stream)
    where = {t.text: source.text(positions.span(k, k)) for k, t in enumerate(stream)}
    assert where["y"] == "y" and where["2"] == "N"


# --------------------------------------------------------------------------- the corpus


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_corpus_is_read(path):
    data = path.read_bytes()
    result = read(SourceFile(path.name, data), CompileCommand(directory=str(path.parent)))
    assert not result.refused, result.refused
    assert len(result.nests) == sum(1 for t in tokens(data) if re.match(rb"#\s*pragma\s+mdh\b", t.text))
    for one in result.nests:
        _well_formed(one, data)


@pytest.mark.parametrize("path", CORPUS, ids=lambda p: p.stem)
def test_corpus_reads_the_same_with_every_compiler(path):
    source = SourceFile(path.name, path.read_bytes())
    first, *others = (CompileCommand(c, directory=str(path.parent)) for c in COMPILERS)
    mine = read(source, first)
    assert all(read(source, other) == mine for other in others)


def _well_formed(one: LoopNest, data: bytes) -> None:
    """What the contract of ``LoopNest`` promises."""
    text = data[one.span.start : one.span.end]
    assert text.startswith((b"for", b"{")) and text.endswith((b";", b"}"))
    assert one.function_span.start < one.directive_span.start < one.span.start < one.function_span.end
    known = {p.name for p in one.params} | {s.name for s in one.scalars}
    buffers = {b.name: b for b in one.buffers}
    functions = {f.name for f in one.functions}
    assert len(known) == len(one.params) + len(one.scalars)

    def check(e):
        for n in walk(e):
            assert not isinstance(n, Var) or n.name in known, n
            assert not isinstance(n, Load) or len(n.index) == buffers[n.buffer].rank, n
            if isinstance(n, Binary) and n.op not in ("<<", ">>", "&&", "||"):
                assert n.a.type == n.b.type, n
            if isinstance(n, Call) and n.function not in functions:
                assert n.function in MATH, n

    def visit(body):
        for s in body:
            match s:
                case Loop():
                    check(s.lower), check(s.upper)
                    assert s.iterator not in known and s.step
                    known.add(s.iterator)
                    visit(s.body)
                case Declare():
                    assert s.name not in known
                    if s.value is not None:
                        check(s.value)
                        assert s.value.type == s.type
                    known.add(s.name)
                case Assign():
                    check(s.target), check(s.value)
                    assert s.target.type == s.value.type
                case If():
                    check(s.cond), visit(s.then), visit(s.other)
                case While():
                    check(s.cond), visit(s.body)

    visit(one.body)


def test_unsigned_wrap_is_not_folded_away():
    value = expression("(0u - 1u) / 2")
    assert value == Const(2147483647.0, DOUBLE)
    assert expression("x - 1 < 0", "unsigned long x").a.a == Binary(
        "-", Var("x", UINT64), Const(1, UINT64), UINT64
    )


def test_bounds_that_change_in_the_loop():
    code = "void f(int *y, int n)\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) { y[i] = 1; n--; }\n}"
    assert codes(code) == ["MDH202"]


def test_a_variable_of_the_body_may_have_the_name_of_a_bound():
    code = "void f(int *y, int n)\n{\n#pragma mdh\nfor (int i = 0; i < n; i++) { int n = y[i]; n++; y[i] = n; }\n}"
    one = nest(code)
    assert one.body[0].upper == Var("n", INT32) and one.body[0].body[0].name != "n"
    assert codes(code.replace("int n = y[i]; n++", "{ int n = y[i]; n++; y[i] = n; } n++")) == ["MDH202"]
    assert codes(code.replace("int n = y[i]; n++", "n++; int n = y[i]; n++")) == ["MDH202"]


def test_a_static_table_has_its_length():
    code = """
static const float w[] = {1, 2, 1};
void f(float *y, const float *x, int n)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            y[i] += w[k] * x[i + k];
}
"""
    assert str(nest(code).buffer("w").extents[0]) == "3"
