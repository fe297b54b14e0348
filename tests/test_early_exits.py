"""What is said of a jump out of a nest, and that the edit which it names lifts to what the jump meant."""

from __future__ import annotations

import pytest

from frontend_c.read import CompileCommand, read
from frontend_py.read import read as read_python
from lifter.lift import lift
from mdh_core.diagnostics import Diagnostic
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.source import SourceFile
from tests.lifting import lifted, operators

C = """
void f(int n, const int *x, int *y, int key)
{{
    {before}
    #pragma mdh
    for (int i = 0; i < n; i++) {{
        {body}
    }}
    y[0] = at;
out:;
}}
"""
PYTHON = """
from mdh_lift import mdh
@mdh
def f(n: int, x: "int32[:]", y: "int32[:]", key: "int32"):
    {before}
    for i in range(n):
        {body}
    y[0] = at
"""
FIRST = "if (x[i] == key && i < at) at = i;", "if x[i] == key and i < at: at = i"
ANY = "if (x[i] == key) at = 1;", "if x[i] == key: at = 1"


def said(text: str) -> Diagnostic:
    source = SourceFile("t.c", text.encode())
    (refused,) = read(source, CompileCommand()).refused
    (found,) = refused.diagnostics
    return found


@pytest.mark.parametrize(
    ("jump", "advice"),
    [
        ("if (x[i] == key) { at = i; break; }", "with `at` = n before, `if (… && i < at) at = i;` keeps"),
        ("if (x[i] == key) return;", "return behind the nest"),
        ("if (x[i] == key) goto out;", "put what it jumps over under a condition"),
        ("switch (x[i]) { case 0: y[i] = 1; }", "choose by `if`, `else if` and `else`"),
    ],
)
def test_every_jump_has_help(jump, advice):
    found = said(C.format(before="int at = -1;", body=jump))
    assert found.code == "MDH205" and advice in (found.help or "")


@pytest.mark.parametrize("jump", ["break", "continue", "return"])
def test_every_jump_of_python_has_help(jump):
    text = PYTHON.format(before="at = 0", body=f"if x[i] == key: {jump}")
    (refused,) = read_python(SourceFile("t.py", text.encode())).refused
    (found,) = refused.diagnostics
    assert found.code == "MDH205" and found.help
    if jump != "continue":
        assert "`if … and i < at: at = i` keeps the first position" in found.help


def test_the_edit_keeps_the_first_position():
    nest = lifted(C.format(before="int at = n;", body=FIRST[0]))
    assert operators(nest) == "i:pw(min)"
    for x, key, first in (([3, 7, 1, 7], 7, 1), ([7], 7, 0), ([3, 1], 7, 2), ([], 7, 0)):
        data = {"x": BufferValue(list(x), (len(x),)), "at": BufferValue([len(x)], ())}
        run_steps(nest.program, {"n": len(x), "key": key}, data)
        assert data["at"].data == [first]


def test_the_edit_tells_whether_there_is_one():
    assert operators(lifted(C.format(before="int at = 0;", body=ANY[0]))) == "i:pw(||)"


@pytest.mark.parametrize(
    ("before", "body", "found"), [("at = n", FIRST[1], "i:pw(min)"), ("at = 0", ANY[1], "i:pw(||)")]
)
def test_the_edits_of_python_lift(before, body, found):
    (nest,) = read_python(SourceFile("t.py", PYTHON.format(before=before, body=body).encode())).nests
    assert operators(lift(nest)) == found
