# ruff: noqa: E101 - tabs in C
"""Loops without a directive: found, judged, and given one; ``scan`` and ``annotate``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontend_c.lexer import tokens
from lifter.annotations import Directive
from mdh_core.source import SourceFile
from mdh_lift import pipeline
from mdh_lift.annotate import annotated
from mdh_lift.cli import cli
from mdh_lift.estimate import estimated
from mdh_lift.unannotated import unannotated

CORPUS = Path(__file__).parent.parent / "corpus"

ODD = r"""#include <stdio.h>
#define N 100
#define FOR(i, n) for (int i = 0; i < (n); i++)
#define ID(...) __VA_ARGS__

void k_and_r(n, y, x)
    int n; float *y; float *x;
{
	int i;
	for (i = 0; i < n; i++) y[i] = 2 * x[i]; /* T1 */
	if (n > 3) for (i = 0; i < n; i++) y[i] += x[i]; // T2
	/* a comment that ends
	 */ for (i = 0; i < n; i++) y[i] -= x[i]; // T3
	FOR(j, n) y[j] *= x[j]; // T4
	ID(for (i = 0; i < n; i++) y[i] = 0;) // no: an argument
	if (n) \
	    for (i = 0; i < n; i++) y[i] += 1; // T5
	for (i = 0; i < 3; i++) y[i] = 0; // no: short
}

static double A[N][N], B[N][N], C[N][N];

int main(int argc, char **argv)
{
    for (int t = 0; t < 10; t++) {
        printf("%d\n", t);
#ifdef _OPENMP
#pragma omp parallel for
#endif
        for (int i = 0; i < N; i++)         // T6, above the `#ifdef`
            for (int j = 0; j < N; j++)
                for (int k = 0; k < N; k++)
                    C[i][j] += A[i][k] * B[k][j];
    #pragma GCC ivdep
        for (int i = 0; i < N * N; i++) B[0][i] = 1; // T7
#pragma omp parallel
        {
#pragma omp for
            for (int i = 0; i < N * N; i++) B[0][i] = C[0][i]; // no: shared out
        }
    }
    for (int i = 0; i < argc; i++) puts(argv[i]); // no: calls
    return 0;
}
"""


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def annotated_text(text: bytes, path: str = "odd.c") -> bytes:
    new = annotated(SourceFile(path, text)).change.new
    assert new is not None
    return new


@pytest.fixture
def odd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.c").write_text(ODD)
    return tmp_path / "odd.c"


def test_odd_layouts_get_their_directives():
    text = annotated_text(ODD.encode()).decode()
    lines = text.splitlines()
    above = {re.search(r"T\d", line)[0]: lines[k - 1] for k, line in enumerate(lines) if re.search(r"T\d", line)}
    assert above["T1"] == above["T4"] == "\t#pragma mdh"
    for number in (2, 3, 5):  # not first on a line, behind a comment that began above, behind a continuation
        line = next(x for x in lines if f"T{number}" in x)
        assert '_Pragma("mdh") for' in line, line
    assert "#pragma mdh\n#ifdef _OPENMP\n#pragma omp parallel for\n#endif\n        for" in text
    assert "    #pragma mdh\n    #pragma GCC ivdep\n        for" in text
    assert text.count("mdh") == 7


def test_nothing_but_directives_is_inserted():
    new = annotated_text(ODD.encode())
    kept = re.sub(rb'[ \t]*#pragma mdh\n|_Pragma\("mdh"\) ', b"", new)
    assert kept == ODD.encode()
    assert [t.text for t in tokens(kept)] == [t.text for t in tokens(ODD.encode())]


def test_every_directive_is_read_as_the_nest_that_was_meant():
    source = SourceFile("odd.c", ODD.encode())
    meant = annotated(source)
    report = pipeline.check_source(SourceFile("odd.c", meant.change.new))
    assert {n.status for n in report.nests} == {"lifted"} and len(report.nests) == len(meant.taken) == 7

    def bare(nest):
        return replace(nest, name="", label="", directive=Directive())

    assert [bare(n.lifted.nest) for n in report.nests] == [bare(c.nest) for c in meant.taken]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_second_run_finds_nothing(ending):
    text = ODD.encode().replace(b"\n", ending)
    once = annotated_text(text)
    assert once != text and annotated_text(once) == once
    assert once.count(b"\r\n") == once.count(b"\n") * (ending == b"\r\n")


def test_the_largest_nest_that_lifts_is_chosen():
    found = unannotated(SourceFile("odd.c", ODD.encode()))
    by_line = {c.line: c for c in found.candidates}
    lines = ODD.splitlines()
    outer = next(k for k, line in enumerate(lines, 1) if "int t = 0" in line)
    product = next(k for k, line in enumerate(lines, 1) if "T6" in line)
    assert outer not in by_line and by_line[product].inside == (outer,)
    assert not any(c.line in (product + 1, product + 2) for c in found.candidates)
    assert found.functions == ("k_and_r", "main")
    refused = [c.reason.diagnostic.code for c in found.candidates if not c.annotatable]
    assert sorted(refused) == ["MDH106", "MDH204", "MDH414"]


def test_nests_that_have_a_directive_are_left_alone():
    text = (CORPUS / "matmul.c").read_bytes()
    lines = {n.line for n in pipeline.check_source(SourceFile("m.c", text)).nests}
    found = unannotated(SourceFile("m.c", text))
    assert lines and not any(c.line - 1 in lines for c in found.candidates)


@pytest.mark.parametrize("name", ["matmul", "jacobi2d_time", "nussinov"])
def test_the_directives_of_the_corpus_are_found_again(name):
    """Without its directive, a nest of the corpus is found as the same nest."""
    text = (CORPUS / f"{name}.c").read_bytes()
    before = pipeline.check_source(SourceFile("m.c", text))
    stripped = re.sub(rb"[ \t]*#\s*pragma mdh[^\n]*\n", b"", text)
    found = unannotated(SourceFile("m.c", stripped))
    shapes = [c.nest.body for c in found.candidates if c.annotatable]
    assert all(n.lifted.nest.body in shapes for n in before.nests)


def test_names_of_spliced_nests_stay(odd):
    head = "void f(int n, float *restrict y) {\n    for (int i = 0; i < n; i++) y[i] = 1;\n"
    region = (
        "#pragma mdh\n    /* mdh-lift begin f::0 call version=0.1.0 source=0123456789abcdef */\n    ;\n"
        "    /* mdh-lift end f::0 call sum=0123456789abcdef */\n    for (int i = 0; i < n; i++) y[i] += 1;\n}\n"
    )
    made = annotated(SourceFile("f.c", (head + region).encode()))
    assert not made.taken and [d.code for _, d in made.left_out] == ["MDH107"]


@pytest.mark.parametrize(
    "text",
    [b"", b"\x00\xff\xfe", b"for (;;) {", b"int main(void) { for (", b"#error no\nvoid f(void) { for (;;); }",
     b"void f(int n) { for (int i = 0; i < n; i++) asm(\"nop\"); }", b"template <class T> class X { };",
     b"void f() { for (int i : v) g(i); }", b"#define B {\nvoid f(int n, float *y) B for (int i=0;i<n;i++) y[i]=0; }"],
)  # fmt: skip
def test_any_text_is_survived(text, odd):
    odd.write_bytes(text)
    for verb in ("scan", "annotate"):
        result = run(verb, "odd.c")
        assert result.exit_code in (0, 1) and "internal" not in result.output, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)


# --------------------------------------------------------------------------- the verbs


def test_annotate_prints_a_diff_and_writes_on_request(odd):
    shown = run("annotate", "odd.c")
    assert shown.exit_code == 1 and "+\t#pragma mdh\n" in shown.stdout and odd.read_text() == ODD
    written = run("annotate", "-w", "odd.c")
    assert written.exit_code == 0 and "7 directives" in written.stderr
    assert odd.read_bytes() == annotated_text(ODD.encode())
    again = run("annotate", "odd.c")
    assert (again.exit_code, again.stdout) == (0, "")


def test_annotate_of_one_function(odd):
    assert run("annotate", "-w", "odd.c::main").exit_code == 0
    assert odd.read_text().count("#pragma mdh") == 2 and "_Pragma" not in odd.read_text()


def test_scan_ranks_by_work(odd):
    result = run("scan", ".", "--format", "json")
    answer = json.loads(result.stdout)
    nests = answer["nests"]
    assert result.exit_code == 0 and answer["schema_version"] == 1
    assert nests[0]["operators"] == "(cc, cc, pw(+))" and nests[0]["operations"] == 2e6
    assert [n["rank"] for n in nests] == sorted((n["rank"] for n in nests), reverse=True)
    assert nests[0]["assumed"] == [] and any(n["assumed"] == ["n"] for n in nests)
    assert answer["summary"]["functions"] == 2 and answer["summary"]["codes"] == {"MDH106": 1, "MDH204": 1, "MDH414": 1}


def test_scan_tells_why_not_and_what_was_not_looked_at(odd):
    (odd.parent / "other.cpp").write_text("int x;\n\nint y;\n")
    result = run("scan")
    assert result.exit_code == 0
    assert re.search(r"odd\.c:\d+ +main +MDH204 call of `puts`", result.stdout)
    assert "1 headers and files of other languages (2 lines)" in result.stderr
    assert len(run("scan", "--max-nests", 2).stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "loops, directive, iterations, operations, assumed",
    [
        ("for (int i = 0; i < 100; i++) y[i] += 2 * x[i];", "", 100, 200, ()),
        ("for (int i = 0; i < n; i++) y[i] += 2 * x[i];", "", 1000, 2000, ("n",)),
        ("for (int i = 0; i < n; i++) y[i] += 2 * x[i];", "sizes(n=50)", 50, 100, ()),
        ("for (int i = 0; i < 100; i += 2) for (int j = i; j < 100; j++) y[i] += x[j];", "", 50 * 50, 50 * 50, ()),
        ("for (int i = 0; i < n / 2; i++) y[i] = x[i];", "", 500, 500, ("n",)),
    ],
)
def test_estimates(loops, directive, iterations, operations, assumed):
    text = f"void f(int n, float *restrict y, float *restrict x) {{\n#pragma mdh {directive}\n{loops}\n}}\n"
    (nest,) = pipeline.check_source(SourceFile("f.c", text.encode())).nests
    found = estimated(nest.lifted.nest)
    assert (found.iterations, found.operations) == pytest.approx((iterations, operations), rel=0.03)
    assert found.assumed == assumed
