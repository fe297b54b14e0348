"""Edits that answer a diagnostic: made, the diagnostic is gone and nothing else is wrong."""

from __future__ import annotations

import pytest

from mdh_core.source import Edit, SourceFile, apply_edits
from mdh_lift import pipeline

GEMV = """\
void gemv(int n, int m, float *restrict w, const float *restrict A, const float *restrict v)
{{
{directive}
    for (int i = 0; i < n; i++) {{
        float s = 0;
        for (int k = 0; k < m; k++)
            s += A[i * m + k] * v[k];
        w[i] = s;
    }}
}}
"""


def errors(text: str | bytes, name: str = "gemv.c"):
    source = SourceFile(name, text if isinstance(text, bytes) else text.encode())
    found = pipeline.check_source(source).all_findings
    return source, [f for f in found if f.diagnostic.severity == "error"]


@pytest.mark.parametrize(
    ("clauses", "code", "becomes"),
    [
        ("combine_op(cc, pw(+))", "MDH401", "combine_ops(cc, pw(+))"),
        ("combine_ops(cc, pw(max))", "MDH404", "combine_ops(cc, pw(+))"),
        ("combine_ops(cc, \\\n   pw(*) )", "MDH404", "combine_ops(cc, \\\n   pw(+) )"),
        ("combine_ops(cc, pw(+), pw(+)) fp(fast)", "MDH403", " fp(fast)"),
        ("combine_ops(i: cc, kk: pw(+))", "MDH409", "combine_ops(i: cc, k: pw(+))"),
        ("sizes(n=64, mm=64)", "MDH409", "sizes(n=64, m=64)"),
        ("noalias(w, AA)", "MDH409", "noalias(w, A)"),
        ("out(w) inp(A)", "MDH408", "out(w) inp(A, v)"),
    ],
)
def test_a_fix_answers_its_diagnostic(clauses, code, becomes):
    source, found = errors(GEMV.format(directive=f"#pragma mdh {clauses}"))
    assert [f.diagnostic.code for f in found] == [code]
    fix = found[0].diagnostic.fix
    assert fix is not None and fix.title
    after = apply_edits(source.data, [Edit(fix.span, fix.text.encode())])
    assert after.decode() == GEMV.format(directive=f"#pragma mdh {becomes}")
    assert errors(after)[1] == []
    json = found[0].as_json()["fix"]
    assert source.line_col(fix.span.start) == (json["line"], json["column"])  # type: ignore[index]


def test_what_a_macro_wrote_has_no_fix():
    text = '#define LIFT _Pragma("mdh combine_ops(cc, pw(max))")\n' + GEMV.format(directive="LIFT")
    _, found = errors(text)
    assert [(f.diagnostic.code, f.diagnostic.fix) for f in found] == [("MDH404", None)]


def test_in_a_decorator_clauses_are_rewritten_and_stay_as_they_are():
    text = """\
from mdh_lift import mdh


@mdh(combine_ops="pw(max)")
def total(n: "int", x: "float32[n]", y: "float32[1]"):
    for i in range(n):
        y[0] += x[i]
"""
    _, (f,) = errors(text, "t.py")
    assert (f.diagnostic.code, f.diagnostic.fix) == ("MDH404", None)
