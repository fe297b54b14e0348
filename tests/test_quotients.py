"""Loops to a part of a size (``i < n / 2``): what is known of the part, and that the generated code tests it."""

from __future__ import annotations

import pytest

from certify.certificate import certificate
from frontend_py.read import read as read_python
from lifter.lift import lift
from lifter.loop_nest import quotient_facts
from mdh_core.expr import Affine
from mdh_core.source import SourceFile
from tests.lifting import check_meaning, lifted, nests, operators

C = """
void f(int n, int m, float *a, float *b)
{{
    #pragma mdh
    for (int i = {low}; i < {high}; i++) {{
        {body}
    }}
}}
"""
SWAP = "float t = a[i]; a[i] = a[n - 1 - i]; a[n - 1 - i] = t;"
MIRROR = "a[n - 1 - i] = a[i];"


def of(body: str, high: str = "n / 2", low: str = "0") -> str:
    return C.format(body=body, high=high, low=low)


IDIOMS = {
    "reversed in place": of(SWAP),
    "by a shift": of(SWAP, "(n >> 1)"),
    "with the middle": of("a[i] = b[i]; a[n - 1 - i] = b[i];", "n / 2"),
    "mirrored": of(MIRROR),
    "a third": of(MIRROR, "n / 3"),
    "from one on": of(SWAP, "n / 2", "1"),
    "without the last": of(SWAP, "n / 2 - 1"),
    "of a sum": of("a[n - i] = a[i];", "(n + 1) / 2"),
    "rows": """
void f(int n, int m, float *a)
{
    #pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m / 2; j++) {
            float t = a[i * m + j];
            a[i * m + j] = a[i * m + m - 1 - j];
            a[i * m + m - 1 - j] = t;
        }
}
""",
}


@pytest.mark.parametrize("text", IDIOMS.values(), ids=IDIOMS)
def test_halves_do_not_meet(text):
    nest = lifted(text)
    assert nest.status == "lifted" and set(operators(nest).replace(";", "").split()) <= {"i:cc", "j:cc"}
    assert check_meaning(nest, trials=30) > 3
    assert not certificate(nest.nest, nest.program).refuted


@pytest.mark.parametrize(
    "text",
    [
        of(SWAP, "n"),
        of(SWAP, "(n + 2) / 2"),  # the two in the middle are exchanged twice
        of(SWAP, "m / 2"),
    ],
)
def test_halves_that_meet_are_refused(text):
    assert operators(lifted(text)) in ("MDH208", "MDH213")


def test_what_is_tested():
    (program,) = lifted(of(SWAP)).programs
    (part,) = [p for p in program.params if p.name != "n"]
    assert part.value == "n / 2"
    tested = [{"n": n, part.name: int(n / 2)} for n in (0, 1, 2, 7, -1, -2, -7)]  # as C rounds
    holds = [all(a.evaluate(x) >= 0 for a in program.assumptions) for x in tested]
    assert holds == [True, True, True, True, False, True, False]


def test_of_a_size_that_the_nest_changes_nothing_is_known():
    (nest,) = nests("""
void f(int n, int *a)
{
    #pragma mdh
    for (int i = 0; i < n / 2; i++) a[i] = i;
}
void g(int n, int *a)
{
    for (int k = 0; k < 3; k++) n += a[k];
}
""")
    assert nest.facts == quotient_facts(Affine.of("n"), Affine.of("mdh_p0"), 2)
    (other,) = nests(of("a[i] = b[i];", "n / m"))
    assert not other.facts


@pytest.mark.parametrize(
    "text",
    [
        """
@mdh
def f(n: int, a: "float32[:]"):
    for i in range(n // 2):
        t = a[i]
        a[i] = a[n - 1 - i]
        a[n - 1 - i] = t
""",
        """
@mdh
def f(a: "float32[:]"):
    n = a.shape[0]
    for i in range(n >> 1):
        a[n - 1 - i] = a[i]
""",
    ],
)
def test_python(text):
    (nest,) = read_python(SourceFile("t.py", ("from mdh_lift import mdh\n" + text).encode())).nests
    found = lift(nest)
    assert operators(found) == "i:cc"
    assert not certificate(found.nest, found.program).refuted


def test_what_only_looks_like_a_quotient_is_none():
    text = """
from mdh_lift import mdh, truncdiv

@mdh
def f(n: int, m: int, a: "float32[:]"):
    for i in range(m if n > m else truncdiv(n, 2)):
        a[i] = 0
"""
    (nest,) = read_python(SourceFile("t.py", text.encode())).nests
    assert not nest.facts
