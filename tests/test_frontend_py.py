"""The Python front end: the corpus in C and Python gives equal programs; types, flow, diagnostics."""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path

import numpy as np
import pytest

from frontend_c.preprocess import CompileCommand
from frontend_c.read import read as read_c
from frontend_py.read import ReadResult, read
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import Loop, LoopNest
from lifter.run_nest import run_nest
from mdh_core.expr import DOUBLE, FLOAT, INT8, INT16, INT32, INT64, UINT64, Affine, Assign, Declare, If, While
from mdh_core.interpreter import BufferValue
from mdh_core.rules import verify
from mdh_core.source import SourceFile

CORPUS = Path(__file__).parent.parent / "corpus"
TWINS = sorted(p.stem for p in (CORPUS / "py").glob("*.py"))


def source(text: str, header: str = "") -> SourceFile:
    head = "import math\nimport numpy as np\nfrom mdh_lift import mdh, prange, truncdiv, truncmod\n" + header
    return SourceFile("t.py", (head + textwrap.dedent(text)).encode())


def nest(text: str, header: str = "") -> LoopNest:
    result = read(source(text, header))
    assert [d for r in result.refused for d in r.diagnostics] == []
    return result.nests[0]


def refused(text: str, header: str = "") -> tuple[str, str, str]:
    """Code, message and the text at fault."""
    file = source(text, header)
    result = read(file)
    assert len(result.refused) == 1, result
    d = result.refused[0].diagnostics[0]
    return d.code, d.message, file.text(d.span) if d.span else ""


# --------------------------------------------------------------------------- equal programs


@functools.cache
def lifted_c(name: str) -> dict[tuple[str, str], LiftedNest]:
    path = CORPUS / f"{name}.c"
    found = read_c(SourceFile(path.name, path.read_bytes()), CompileCommand(directory=str(CORPUS)))
    return {(n.function, n.label): lift(n) for n in found.nests}


@functools.cache
def read_twin(name: str) -> ReadResult:
    path = CORPUS / "py" / f"{name}.py"
    return read(SourceFile(path.name, path.read_bytes()))


@pytest.mark.parametrize("name", TWINS)
def test_the_same_kernel_in_c_and_python_gives_equal_programs(name: str) -> None:
    result = read_twin(name)
    assert result.refused == () and result.diagnostics == ()
    in_c = lifted_c(name)
    assert len(result.nests) == len(in_c)
    for n in result.nests:
        ours, theirs = lift(n), in_c[n.function, n.label]
        assert ours.status == theirs.status
        for p in ours.programs:
            assert verify(p) == []
        assert ours.program == theirs.program


def test_every_c_file_has_a_twin() -> None:
    assert sorted(p.stem for p in CORPUS.glob("*.c")) == TWINS


# --------------------------------------------------------------------------- what the nest means

BODIES = {
    "float32 arithmetic": "y[i] = x[i] * 0.1 + x[i] / 3 - 2",
    "a python float accumulates float32": "s += x[i]; y[i] = s",
    "true division of integers": "d[i] = k[i] / 3 + i / 4",
    "floor division": "m[i] = k[i] // 3 + (k[i] // -4) * 100",
    "remainder": "m[i] = k[i] % 3 + (k[i] % -5) * 100",
    "floor division of floats": "d[i] = d[i] // 0.75",
    "remainder of floats": "d[i] = d[i] % 0.75 + d[i] % -1.25",
    "narrow integers wrap": "b[i] = b[i] * b[i] + 100",
    "narrow and wide": "m[i] = b[i] * k[i] + b[i]",
    "powers": "y[i] = x[i] ** 2; e[i] = e[i] ** 3; d[i] = abs(d[i]) ** 0.5",
    "min and max": "y[i] = max(x[i], 0.5); d[i] = min(d[i], x[i], 1)",
    "np.minimum and np.fmax": "y[i] = np.minimum(x[i], 0.5) + np.fmax(x[i], y[i])",
    "np.where": "y[i] = np.where(x[i] > 0, x[i], -x[i])",
    "comparison chains": "m[i] = 1 if -1 < k[i] <= 3 else 2",
    "and, or, not": "m[i] = 1 if (k[i] > 0 and x[i] > 0) or not d[i] < 1 else 0",
    "shifts and bits": "m[i] = ((k[i] << 2) ^ (k[i] >> 1)) & 255 | ~k[i]",
    "unary minus": "b[i] = -b[i]; d[i] = -d[i]",
    "math functions are doubles": "y[i] = x[i] * math.sqrt(abs(x[i]))",
    "numpy functions keep the type": "y[i] = np.exp(x[i]) + np.sqrt(np.abs(x[i]))",
    "floor": "m[i] = math.floor(d[i]) + int(d[i]); d[i] = np.floor(d[i])",
    "abs of integers": "m[i] = abs(k[i]) + abs(i - 3)",
    "truncating division": "m[i] = truncdiv(k[i], 3) * 10 + truncmod(k[i], 3)",
    "casts": "y[i] = np.float32(d[i]) + np.float32(k[i]); m[i] = np.int16(k[i] * 1000)",
    "float and int": "d[i] = float(k[i]) + int(d[i]) + bool(k[i])",
    "exchange": "d[i], e[i] = e[i], d[i]",
    "exchange of scalars": "p = d[i]\n        q = e[i]\n        p, q = q, p + q\n        d[i] = p - 2 * q",
    "chained assignment": "d[i] = e[i] = x[i] + 1",
    "augmented": "k[i] += 3; k[i] -= i; k[i] *= 2; k[i] &= 127",
    "negative subscript": "d[i] = e[-1] + e[-2]",
    "shape and len": "d[i] = len(x) + x.shape[0] + i",
    "truth values": "f = x[i] > 0\n        g = k[i] > 0\n        m[i] = 1 if f and not g else 3",
    "count truths": "s += x[i] > 0; y[i] = s",
    "if, elif, else": "if x[i] > 0.5:\n            t = 1.0\n        elif x[i] > 0:\n            t = x[i]\n        else:\n"
    "            t = 0\n        d[i] = t",
    "loop under a condition": "if x[i] > 0:\n            t = 0.5\n            for j in range(3):\n                t += j * x[i]\n"
    "            d[i] = t\n        else:\n            for j in range(i):\n                d[i] += e[j]",
    "while": "c = 0\n        v = abs(d[i])\n        while v > 0.1 and c < 20:\n            v /= 2\n            c += 1\n"
    "        m[i] = c",
    "local function": "m[i] = helper(k[i], i)",
    "first and last use": "t = x[i]\n        y[i] = t\n        t = d[i]\n        e[i] = t * t",
    "weak in a narrow place": "b[i] = 1 if k[i] > 0 else -1",
    "uint64": "u[i] = (u[i] ^ (u[i] >> 7)) * 0x9E3779B97F4A7C15",
}


def plain_function(body: str) -> str:
    return textwrap.dedent(
        """
        def helper(a, b):
            if a < 0:
                return -a
            c = 0
            for j in range(3):
                c += j * b
            return a + c

        @mdh
        def f(n: int, x: "float32[:]", y: "float32[:]", d: "float64[:]", e: "float64[:]", k: "int32[:]",
              m: "int64[:]", b: "int8[:]", u: "uint64[:]"):
            s = 0.0
            for i in range(n):
                BODY
            return s
        """
    ).replace("        BODY", "        " + body.replace("; ", "\n        "))


def arrays(seed: int, n: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-2, 2, n).astype(np.float32), "y": rng.uniform(-2, 2, n).astype(np.float32),
        "d": rng.uniform(-3, 3, n), "e": rng.uniform(-3, 3, n),
        "k": rng.integers(-20, 20, n).astype(np.int32), "m": rng.integers(-20, 20, n),
        "b": rng.integers(-128, 128, n).astype(np.int8), "u": rng.integers(0, 2**63, n).astype(np.uint64),
    }  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_a_nest_means_what_plain_python_computes(body: str) -> None:
    text = plain_function(body)
    read_nest = nest(text)
    space: dict[str, object] = {}
    header = "import math\nimport numpy as np\nfrom mdh_lift import truncdiv, truncmod\n"
    exec(header + text.replace("@mdh", ""), space)
    for seed in range(3):
        plain, ours = arrays(seed, 12), arrays(seed, 12)
        with np.errstate(all="ignore"):
            wanted = space["f"](12, **plain)  # type: ignore[operator]
        buffers = {
            b.name: BufferValue([int(v) if isinstance(v, bool) else v for v in ours[b.name].tolist()], (12,))  # type: ignore[attr-defined]
            for b in read_nest.buffers
        }
        scalars = {s.name: 0.0 for s in read_nest.scalars}
        params = {p.name: 12 for p in read_nest.params}
        run_nest(read_nest, params, buffers, scalars)  # type: ignore[arg-type]
        for name, value in buffers.items():
            expected = plain[name]
            got = np.array(value.data, dtype=expected.dtype)  # type: ignore[attr-defined]
            assert np.allclose(got, expected, rtol=3e-7 if expected.dtype == np.float32 else 1e-13, atol=0), name  # type: ignore[attr-defined]
        if scalars:
            assert np.isclose(float(scalars["s"]), float(wanted), rtol=1e-6)


# --------------------------------------------------------------------------- types


def test_types_of_variables() -> None:
    n = nest(
        """
        @mdh
        def f(n: "int32", x: "float32[:]", y: "float64[:]"):
            s = 0.0
            for i in range(n):
                a = x[i] * 2
                b = y[i]
                c = 0
                s += x[i]
                y[i] = a + b + c + s
            return s
        """
    )
    loop = n.body[0]
    assert isinstance(loop, Loop) and loop.type == INT32
    types = {s.name: s.type for s in loop.body if isinstance(s, Declare)}
    assert types == {"a": FLOAT, "b": DOUBLE, "c": INT64}
    assert [(s.name, s.type, s.live_after) for s in n.scalars] == [("s", FLOAT, True)]


def test_shapes_are_parameters() -> None:
    n = nest(
        """
        @mdh
        def f(M: "float32[:, :]", v: "float32[:]"):
            n, k_max = M.shape
            for i in range(n):
                for k in range(k_max):
                    v[i] += M[i, k] * M.shape[1]
        """
    )
    assert [p.name for p in n.params] == ["n", "k_max"]
    m = n.buffer("M")
    assert [str(e) for e in m.extents] == ["n", "k_max"]
    unnamed = nest(
        """
        @mdh
        def f(M: "float32[:, :]", v: "float32[:]"):
            for i in range(len(v)):
                for k in range(M.shape[1]):
                    v[i] += M[i][k]
        """
    )
    assert [p.value for p in unnamed.params] == ["v.shape[0]", "M.shape[1]"]
    assert [str(e) for e in unnamed.buffer("M").extents] == ["None", unnamed.params[1].name]


@pytest.mark.parametrize(
    "annotation",
    [
        '"float32[:, :]"', "Buffer[np.float32, 2]", 'Buffer[np.float32, "n", "n"]', "npt.NDArray[np.float32]",
        "Buffer[np.float32]", "Buffer[np.float32, [3, 4]]", '"Buffer[float32]"',
    ],
)  # fmt: skip
def test_annotations(annotation: str) -> None:
    header = "from numpy import float32\nimport numpy.typing as npt\nfrom mdh_lift import Buffer\n"
    n = nest(
        f"""
        @mdh
        def f(n: np.int64, x: {annotation}):
            for i in range(n):
                x[i, 0] = 1.5
        """,
        header,
    )
    assert (n.buffer("x").type, n.buffer("x").rank) == (FLOAT, 2)


def test_types_from_the_decorator() -> None:
    n = nest(
        """
        @mdh(out(w=Buffer[np.float32]), inp(M=Buffer[np.float32], v=Buffer[np.float32]), combine_ops(cc, pw(add)))
        def f(w, M, v):
            n, k_max = M.shape
            for i in range(n):
                for k in range(k_max):
                    w[i] += M[i, k] * v[k]
        """,
        "from mdh_lift import Buffer, add, cc, combine_ops, inp, out, pw\n",
    )
    assert lift(n).status == "lifted"
    assert [str(op) for op in n.directive.combine_ops] == ["cc", "pw(+)"]


def test_prange_steps_and_directions() -> None:
    n = nest(
        """
        @mdh
        def f(n: int, x: "float64[:]"):
            for i in prange(n - 1, 0, -2):
                x[i] = 0
        """
    )
    loop = n.body[0]
    assert isinstance(loop, Loop) and loop.step == -2 and str(lift(n).programs[0].hom.dims[0].size.step) == "2"


def test_tiles_by_a_variable() -> None:
    """The step is positive (a fact that is tested at run time); what counts tiles is no parameter any more."""
    n = nest(
        """
        @mdh
        def f(n: "int32", b: "int32", x: "float64[n]", y: "restrict float64[n]"):
            for ii in range(3, n, b):
                for i in range(ii, min(ii + b, n)):
                    y[i] += x[i]
        """
    )
    assert Affine.of("b") - 1 in n.facts
    found = lift(n)
    assert [str(op) for op in found.programs[0].hom.combine] == ["cc"]
    assert str(found.programs[0].hom.dims[0].size) == "n - 3"


def test_uint64_and_narrow_integers() -> None:
    n = nest(
        """
        @mdh
        def f(n: "uint64", a: "int8[:]", b: "int16[:]"):
            for i in range(n):
                b[i] = a[i] + b[i]
        """
    )
    loop = n.body[0]
    assert isinstance(loop, Loop) and loop.type == UINT64
    assert (n.buffer("a").type, n.buffer("b").type) == (INT8, INT16)


def test_declarations_stand_in_the_innermost_block() -> None:
    n = nest(
        """
        @mdh
        def f(n: int, x: "float64[:]"):
            for i in range(n):
                if x[i] > 0:
                    t = x[i]
                    x[i] = t * t
                else:
                    t = 1
                    while t < 10:
                        u = t + t
                        t = u
                    x[i] = t
        """
    )
    loop = n.body[0]
    assert isinstance(loop, Loop)
    (choice,) = loop.body
    assert isinstance(choice, If)
    assert isinstance(choice.then[0], Declare) and choice.then[0].type == DOUBLE
    assert isinstance(choice.other[0], Declare) and choice.other[0].type == INT64
    inner = choice.other[1]
    assert isinstance(inner, While) and isinstance(inner.body[0], Declare) and isinstance(inner.body[1], Assign)


def test_reserved_words_of_c() -> None:
    n = nest(
        """
        @mdh
        def f(n: int, in_: "float64[:]", double: "float64[:]"):
            for long in range(n):
                exp = in_[long]
                double[long] = np.exp(exp)
        """
    )
    assert [b.name for b in n.buffers] == ["in", "double_1"]
    loop = n.body[0]
    assert isinstance(loop, Loop) and loop.iterator == "long_1" and loop.source_name == "long"


# --------------------------------------------------------------------------- refusals

LOOP = "for i in range(n):\n        "
HEAD = '@mdh\ndef f(n: int, x: "float64[:]", k: "int32[:]", z):\n    '
REFUSED = {
    "break": (LOOP + "break", "MDH205", "break"),
    "return": (LOOP + "return 1", "MDH205", "return"),
    "no loop": ("pass", "MDH210", "def"),
    "not range": ("for v in x:\n        pass", "MDH210", "x"),
    "step": ("for i in range(0, n, k[0]):\n        x[i] = 0", "MDH210", "k[0]"),
    "step that changes": ("b = 1\n    " + LOOP + "for j in range(0, n, b):\n            x[j] = 0\n        b = 2", "MDH202", "b"),
    "step and end that change": (LOOP + "for j in range(0, i, len(k)):\n            x[j] = 0", "MDH202", "range(0, i, len(k))"),
    "float bound": ("for i in range(x[0]):\n        x[i] = 0", "MDH210", "x[0]"),
    "type not declared": (LOOP + "x[i] = z", "MDH216", "z"),
    "unknown name": (LOOP + "x[i] = undefined", "MDH006", "undefined"),
    "slice": (LOOP + "x[i] = x[1:2]", "MDH006", "1:2"),
    "whole array": (LOOP + "x[i] = k", "MDH006", "k"),
    "rank": (LOOP + "x[i, i] = 0", "MDH006", "x[i, i]"),
    "comprehension": (LOOP + "x[i] = [j for j in k]", "MDH006", "[j for j in k]"),
    "unknown call": (LOOP + "x[i] = np.linalg.norm(x[i])", "MDH204", "np.linalg.norm(x[i])"),
    "print": (LOOP + "print(i)", "MDH204", "print(i)"),
    "iterator after its loop": (LOOP + "x[i] = 0\n    return i", "MDH210", "i"),
    "iterator assigned": (LOOP + "i = 3", "MDH210", "i"),
    "value may be missing": (LOOP + "x[i] = t\n        t = x[i]", "MDH006", "t"),
    "value may be missing after": (LOOP + "t = x[i]\n    return t", "MDH006", "t"),
    "value may be missing in a branch": (LOOP + "if i > 0:\n            t = 1\n        x[i] = t", "MDH006", "t"),
    "integer division by a variable": (LOOP + "k[i] = k[i] // n", "MDH006", "k[i] // n"),
    "does not fit": (LOOP + "k[i] = 3000000000", "MDH006", "k[i] = 3000000000"),
    "or of numbers": (LOOP + "x[i] = x[i] or 1", "MDH006", "x[i]"),
    "changing bound": ("for i in range(n):\n        for j in range(n):\n            n += 1", "MDH202", "n"),
    "while outside": ("m = 0\n    " + LOOP + "x[i] = 0\n    while m < n:\n        m += 1\n    " + LOOP + "x[i] = 1",
                      "MDH210", "while"),
    "subscript no integer": (LOOP + "x[x[i]] = 0", "MDH006", "x[i]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_refusals_name_code_and_place(case: tuple[str, str, str]) -> None:
    body, code, place = case
    got, _, text = refused(HEAD + body + "\n")
    assert (got, text) == (code, place)


def test_spans_count_bytes() -> None:
    text = 'import numpy as np\nfrom mdh_lift import mdh\n\n\n@mdh\ndef f(x: "float64[:]"):\n'
    text += '    """äöü €"""\n    for i in range(3):\n        x[i] = 1; x[i] = "ä"; x[i] = größe\n'
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), text.replace("\n", "\r\n").encode()):
        file = SourceFile("t.py", data)
        found = read(file).refused[0].diagnostics
        assert [file.text(d.span) for d in found] == ['"ä"', "größe"]


def test_clause_errors_have_places() -> None:
    file = source('@mdh("combine_ops(cc, pw(+)) fq(exact)")\ndef f(x: "float64[:]"):\n    for i in range(3):\n        x[i] = 1\n')
    (d,) = read(file).refused[0].diagnostics
    assert (d.code, file.text(d.span)) == ("MDH401", "fq")


@pytest.mark.parametrize("text", ["", "x = 1\n", "def f(:\n", "\0", "@mdh\n", "from mdh_lift import mdh\n@mdh\nclass C: pass\n"])
def test_bad_files_never_raise(text: str) -> None:
    result = read(SourceFile("t.py", text.encode()))
    assert result.nests == () and result.diagnostics


def test_impure_functions_are_refused() -> None:
    code, message, _ = refused(
        """
        total = []

        def g(a):
            total.append(a)
            return a

        @mdh
        def f(n: int, x: "float64[:]"):
            for i in range(n):
                x[i] = g(x[i])
        """
    )
    assert code == "MDH204" and "`g`" in message


def test_records_that_may_be_views_are_not_changed() -> None:
    header = 'pair = np.dtype([("a", np.int32), ("b", np.int32)], align=True)\n'
    code, message, _ = refused(
        """
        @mdh
        def f(n: int, x: "pair[:]"):
            for i in range(n):
                r = x[i]
                r["a"] = 1
                x[i] = r
        """,
        header,
    )
    assert code == "MDH006" and "view" in message
    assert nest(
        """
        @mdh
        def f(n: int, x: "pair[:]"):
            for i in range(n):
                r = x[i].copy()
                r["a"] = 1
                x[i] = r
        """,
        header,
    )


def test_expressions_hold_no_nest() -> None:
    result = read(
        source(
            """
            def matvec(n, k):
                @mdh(out(w=Buffer[fp32]), inp(M=Buffer[fp32]))
                def mdh_matvec():
                    return out_view[fp32](w=[lambda i: (i)]), md_hom[n](f, (CC,)), inp_view[fp32](M=[lambda i: (i)])
                return mdh_matvec
            """,
            "from mdh_lift import *\n",
        )
    )
    assert result == ReadResult()
