"""Directives of other languages, read on request: what they claim is checked against the loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, read
from lifter.annotations import parse_claim
from lifter.claims import checked, claimed_loops
from lifter.lift import LiftedNest, lift
from mdh_core.diagnostics import Diagnostic
from mdh_core.source import SourceFile
from mdh_lift import lifting, pipeline
from mdh_lift.config import Config, Lift

ROOT = Path(__file__).parent.parent
EVERYTHING = ("scop", "omp", "acc")
HEAD = "void f(int n, float *restrict y, const float *restrict x)\n{\n    float s = 0, t = 0; int j;\n"


def lifted(body: str, accept: tuple[str, ...] = EVERYTHING) -> list[LiftedNest]:
    source = SourceFile("t.c", f"{HEAD}{body}\n    y[0] += s + t;\n}}\n".encode())
    result = read(source, CompileCommand(), accept)
    assert not result.refused, result.refused
    return [checked(lift(nest)) for nest in result.nests]


def codes(body: str, accept: tuple[str, ...] = EVERYTHING) -> list[str]:
    (one,) = lifted(body, accept)
    return sorted({d.code for d in one.diagnostics if d.severity == "error"})


SUM = "for (int i = 0; i < n; i++) s += x[i];"
COPY = "for (int i = 0; i < n; i++) y[i] = x[i];"
SQUARE = "for (int i = 0; i < n; i++) { t = x[i]; y[i] = t * t; }"


@pytest.mark.parametrize(
    "body",
    [
        f"#pragma omp parallel for\n{COPY}",
        f"#pragma omp parallel for simd schedule(static, 4) num_threads(2) if(n > 100) default(shared)\n{COPY}",
        f"#pragma omp parallel for reduction(+: s)\n{SUM}",
        f"#pragma omp parallel for reduction(-: s)\n{SUM}",
        f"#pragma omp simd reduction(+ : s)\n{SUM}",
        f"#pragma omp target teams distribute parallel for map(to: x[0:n]) reduction(+: s)\n{SUM}",
        f"#pragma omp parallel for private(t)\n{SQUARE}",
        f"#pragma omp parallel for lastprivate(t) firstprivate(n)\n{SQUARE}",
        "#pragma omp parallel for reduction(max: s)\nfor (int i = 0; i < n; i++) if (x[i] > s) s = x[i];",
        "#pragma omp parallel for collapse(2)\n"
        "for (int i = 0; i < n; i++) for (int k = 0; k < n; k++) y[i * n + k] = x[k];",
        "#pragma omp parallel for private(j)\n"
        "for (int i = 0; i < n; i++) for (j = 0; j < n; j++) y[i * n + j] = x[j];",
        "#pragma omp parallel for reduction(+: s) reduction(max: t)\n"
        "for (int i = 0; i < n; i++) { s += x[i]; if (x[i] > t) t = x[i]; }",
        f"#pragma acc parallel loop gang vector_length(32) copyin(x[0:n])\n{COPY}",
        f"#pragma acc parallel loop reduction(+: s)\n{SUM}",
        f"#pragma acc kernels\n{SUM}",
        f"#pragma acc parallel loop seq\n{SUM}",
        f"#pragma acc parallel loop\n{SQUARE}",  # scalars are private there
        "#pragma acc parallel loop\nfor (int i = 0; i < n; i++) { float q = 0;\n"
        "#pragma acc loop vector reduction(+: q)\nfor (int k = 0; k < n; k++) q += x[k];\ny[i] = q; }",
        f"#pragma mdh combine_ops(pw(+))\n#pragma omp parallel for reduction(+: s)\n{SUM}",
        f"#pragma scop\n{SUM}\n#pragma endscop",
        f"#pragma scop\n{{ {COPY} {COPY} }}\n#pragma endscop",
    ],
)
def test_right_claims(body):
    assert codes(body) == []
    assert lifted(body)[0].status == "lifted"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f"#pragma omp parallel for\n{SUM}", "MDH413"),
        (f"#pragma omp parallel for reduction(*: s)\n{SUM}", "MDH413"),
        (f"#pragma omp parallel for reduction(+: s, t)\n{SUM}", "MDH413"),
        (f"#pragma omp parallel for collapse(2)\n{COPY}", "MDH413"),
        (f"#pragma omp parallel for\n{SQUARE}", "MDH412"),
        ("#pragma omp parallel for\nfor (int i = 1; i < n; i++) y[i] = y[i - 1] / 2 + x[i];", "MDH412"),
        ("#pragma omp parallel for\nfor (int i = 1; i < n; i++) y[i] = y[i - 1] + x[i];", "MDH412"),
        ("#pragma omp parallel for\nfor (int i = 0; i < n; i++) for (j = 0; j < n; j++) y[i * n + j] = 1;", "MDH412"),
        ("#pragma omp parallel for\nfor (int i = 0; i < n; i++) for (int k = 0; k < n; k++) y[k] += x[i];", "MDH413"),
        (f"#pragma acc parallel loop\n{SUM}", "MDH413"),
        (f"#pragma mdh\n#pragma omp parallel for\n{SUM}", "MDH413"),
        ("#pragma mdh\nfor (int i = 0; i < n; i++) { y[i] = 0;\n#pragma omp simd\n"
         "for (int k = 0; k < n; k++) y[i] += x[k]; }", "MDH413"),
    ],
)  # fmt: skip
def test_wrong_claims(body, code):
    assert code in codes(body)
    assert lifted(body)[0].status == "refused"


def test_without_the_option_they_are_ignored():
    assert lifted(f"#pragma omp parallel for\n{SUM}\n#pragma scop\n{COPY}\n#pragma endscop", ()) == []
    assert codes(f"#pragma mdh\n#pragma omp parallel for\n{SUM}", ()) == []
    assert (
        len(lifted(f"#pragma omp parallel for reduction(+: s)\n{SUM}\n#pragma acc kernels\n{COPY}", ("acc",)))
        == 1
    )


def remarks(body: str, accept: tuple[str, ...] = EVERYTHING) -> list[tuple[str, str]]:
    """Message and help of every MDH414."""
    found = [d for one in lifted(body, accept) for d in one.diagnostics if d.code == "MDH414"]
    assert all(d.severity == "warning" and d.span for d in found)
    return [(d.message, d.help) for d in found]


@pytest.mark.parametrize(
    ("body", "message", "advice"),
    [
        (f"#pragma omp for\n{COPY}", "`omp for` shares a loop", "use `omp parallel for`"),
        (f"#pragma omp parallel\n{{\n#pragma omp for nowait\n{COPY}\n#pragma omp barrier\n}}",
         "`omp for nowait` shares a loop", "end the region of `omp parallel` before the loop"),
        (f"#pragma omp parallel\n#pragma omp for\n{COPY}", "`omp for` shares a loop", "end the region of"),
        (f"#pragma acc loop independent\n{COPY}", "`acc loop independent` shares", "use `acc parallel loop`"),
        (f"#pragma acc parallel\n{{\n#pragma acc loop\n{COPY}\n}}", "`acc loop` shares", "end the region of"),
        (f"#pragma acc data copy(y[0:n])\n{{\n#pragma acc parallel loop\n{COPY}\n}}",
         "`acc data` around the nest keeps data on a device", "take the nest out"),
        (f"#pragma omp target\n{{\n#pragma omp parallel for\n{COPY}\n}}",
         "`omp target` around the nest runs on a device", "take the nest out"),
        (f"#pragma scop\n#pragma omp parallel for\n{COPY}\n#pragma endscop",
         "`omp parallel for` above the directive", "put `#pragma mdh` above it"),
    ],
)  # fmt: skip
def test_a_loop_of_a_region_is_lifted_but_stays(body, message, advice):
    (one,) = lifted(body)
    assert one.status == "lifted" and codes(body) == []
    ((said, help_text),) = remarks(body)
    assert said.startswith(message) and help_text.startswith(advice)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"#pragma mdh\n#pragma omp for\n{COPY}", "`omp for` shares a loop"),
        (f"#pragma mdh\n#pragma omp single\n{COPY}", "`omp single` is not about the loop alone"),
        (f"#pragma mdh\n#pragma omp critical\n{COPY}", "`omp critical` is not about the loop alone"),
        (f"#pragma omp parallel for\n#pragma mdh\n{COPY}", "`omp parallel for` above the directive"),
        (f"#pragma GCC unroll 4\n#pragma mdh\n{COPY}", "`GCC unroll 4` above the directive"),
        ("#pragma mdh\nfor (int k = 0; k < n; k++) {\n#pragma omp for\n"
         "for (int i = 0; i < n; i++) y[k * n + i] = 1; }", "`omp for` in the nest"),
        ("#pragma mdh\nfor (int k = 0; k < n; k++) {\n#pragma omp barrier\n"
         "for (int i = 0; i < n; i++) y[k * n + i] = 1; }", "`omp barrier` in the nest"),
        ("#pragma omp parallel for collapse(2)\nfor (int k = 0; k < n; k++)\n#pragma mdh\n"
         "for (int i = 0; i < n; i++) y[k * n + i] = 1;", "`collapse(2)` of `omp parallel for`"),
        ("#pragma omp simd\nfor (int k = 0; k < n; k++) {\n#pragma mdh\n"
         "for (int i = 0; i < n; i++) y[k * n + i] = 1; }", "`omp simd` around the nest allows no threads"),
    ],
)  # fmt: skip
def test_directives_in_the_way_count_even_if_they_are_not_accepted(body, message):
    ((said, _),) = remarks(body, ())
    assert said.startswith(message)


@pytest.mark.parametrize(
    "body",
    [
        f"#pragma mdh\n#pragma omp parallel for\n{COPY}",
        f"#pragma mdh\n#pragma omp simd\n{COPY}",
        f"#pragma omp parallel\n{{\n#pragma omp single\n#pragma mdh\n{COPY}\n}}",
        f"#pragma omp parallel\n{{\n#pragma omp critical\n{{\n#pragma mdh\n{COPY}\n}} }}",
        f"#pragma omp barrier\n#pragma mdh\n{COPY}",
        f"#pragma omp parallel\n{{\n#pragma omp for\n{COPY}\n}}\n#pragma mdh\n{COPY}",  # the region has ended
        f"#pragma acc data copy(y[0:n])\n{{ y[0] = 1; }}\n#pragma mdh\n{COPY}",
        f"#pragma omp target update to(y[0:n])\n{{\n#pragma mdh\n{COPY}\n}}",
        "#pragma mdh\nfor (int k = 0; k < n; k++) {\n#pragma omp parallel\n{\n#pragma omp for\n"
        "for (int i = 0; i < n; i++) y[k * n + i] = 1;\n#pragma omp barrier\n} }",
        "#pragma mdh\nfor (int k = 0; k < n; k++) {\n#pragma omp atomic\ny[0] += 1; }",
        "#pragma omp parallel for collapse(2)\nfor (int j = 0; j < n; j++) for (int k = 0; k < n; k++)\n"
        "#pragma mdh\nfor (int i = 0; i < n; i++) y[k * n + i] = 1;",
    ],
)
def test_directives_that_leave_room_for_a_call(body):
    assert remarks(body, ()) == []


def test_what_threads_have_of_their_own_needs_no_clause():
    inside = "#pragma omp parallel{clause}\n{{\n{own}\n#pragma omp for{of_loop}\n{loop}\ny[1] = {use};\n}}"
    total = "for (int i = 0; i < n; i++) q += x[i];"

    def of(loop: str, clause: str = "", own: str = "", of_loop: str = "", use: str = "0") -> list[str]:
        return codes(inside.format(clause=clause, own=own, of_loop=of_loop, loop=loop, use=use))

    assert of(total, own="float q = 0;", use="q") == []  # each thread sums up some
    assert of(SUM) == ["MDH413"]  # `s` is shared
    assert of(SUM, of_loop=" reduction(+: s)") == []
    assert of(SUM, clause=" reduction(+: s)") == []
    assert of(SUM, clause=" private(s)") == []
    assert of(SUM, of_loop=" reduction(*: s)") == ["MDH413"]
    assert of(SQUARE) == ["MDH412"]
    assert of(SQUARE, clause=" firstprivate(t)") == []
    assert "MDH412" in of("for (int i = 1; i < n; i++) y[i] = y[i - 1] / 2 + x[i];")
    assert codes(f"#pragma omp for\n{SUM}") == []  # each thread calls the function, with its own `s`


def test_a_loop_of_a_region_is_never_spliced(tmp_path):
    text = f"{HEAD}#pragma omp parallel\n{{\n#pragma omp for\n{COPY}\n}}\n}}\n"
    (tmp_path / "t.c").write_text(text)
    for words in (("check",), ("splice", "-w", "--force"), ("-w", "--force", "--budget", "0")):
        found = run(tmp_path, *words, "t.c", "--accept", "omp", "--format", "concise")
        assert found.returncode == 1 and (found.stdout + found.stderr).count("[MDH414]") == 1, found
        assert (tmp_path / "t.c").read_text() == text
    assert "md_hom" in run(tmp_path, "show", "t.c", "--accept", "omp").stdout


def test_a_region_is_one_nest():
    (one,) = lifted(f"#pragma scop\n{COPY}\n s = 1;\n{SUM}\n#pragma endscop\n{SUM}")
    assert one.status == "lifted" and one.nest.label == "0" and one.nest.several
    assert not one.nest.directive_span and len(one.programs) >= 2
    (alone,) = lifted(f"#pragma scop\n{SUM}\n#pragma endscop")
    assert not alone.nest.several


def test_names_after_a_region_count_its_loops():
    region = f"#pragma scop\n{COPY}\n{COPY}\n#pragma endscop"
    assert [n.nest.label for n in lifted(f"{region}\n#pragma mdh\n{COPY}")] == ["0", "2"]


@pytest.mark.parametrize(
    ("inside", "after"),
    [
        ("float q = 2;", "y[1] = q;"),
        ("typedef float number;", "number z = 1; y[1] = z;"),
        ("enum { LAST = 3 };", "y[1] = LAST;"),
        ("struct pair { int a; };", "struct pair z = { 1 }; y[1] = z.a;"),
    ],
)
def test_declarations_that_outlive_a_region_split_it(inside, after):
    text = f"#pragma scop\n{inside}\n{COPY}\n{SUM}\n#pragma endscop\n"
    parts = lifted(text + after)
    assert [n.nest.label for n in parts] == ["0", "1"] and not any(n.nest.several for n in parts)
    assert all("MDH105" in {d.code for d in n.diagnostics} for n in parts)
    if inside.startswith("float"):
        assert len(lifted(text)) == 1  # nothing after it needs the variable


@pytest.mark.parametrize(
    "lines",
    [
        f"#if 1\n{COPY}\n#endif\n{SUM}",
        f"{COPY}\n#define LATER 1\n{SUM}",
        f"{COPY}\nif (n > 3) return;\n{SUM}",
    ],
)
def test_what_braces_cannot_hold_splits_a_region(lines):
    assert [n.nest.several for n in lifted(f"#pragma scop\n{lines}\n#pragma endscop")] == [False, False]


@pytest.mark.parametrize(
    "above", ["if (n)", "if (n) ; else", "for (j = 0; j < 2; j++)", "#pragma omp parallel"]
)
def test_a_region_whose_first_statement_is_a_body_is_taken_apart(above):
    text = f"{above}\n#pragma scop\n{COPY}\n{COPY}\n#pragma endscop"
    assert [n.nest.several for n in lifted(text, ("scop",))] == [False, False]
    (one,) = lifted(
        f"{above} {{\n#pragma scop\n{COPY}\n{COPY}\n#pragma endscop\n}}".replace("parallel {", "parallel\n{"),
        ("scop",),
    )
    assert one.nest.several


@pytest.mark.parametrize("parts_too", [False, True])
def test_a_region_that_does_not_lift_whole_is_taken_apart(monkeypatch, parts_too):
    def refusing(nest):
        if not nest.several and not parts_too:
            return lift(nest)
        return LiftedNest(nest, "refused", (), (Diagnostic("MDH211", "too much", nest.file, nest.span),))

    monkeypatch.setattr(lifting, "lift", refusing)
    text = f"{HEAD}#pragma scop\n{COPY}\n{COPY}\n#pragma endscop\n#pragma mdh\n{COPY}\n}}\n"
    options = pipeline.Options(Config(lift=Lift(accept=["scop"])))
    report = pipeline.check_source(SourceFile("t.c", text.encode()), options)
    found = {
        n.name: [f.diagnostic.message for f in n.findings if f.diagnostic.code == "MDH105"]
        for n in report.nests
    }
    remark = ["region is not one nest: too much"]
    if parts_too:
        assert found == {"t.c::f::0": [], "t.c::f::2": []}  # the region as a whole, refused
    else:
        assert found == {"t.c::f::0": remark, "t.c::f::1": remark, "t.c::f::2": []}


def test_claims_in_a_region_reach_their_loops():
    body = f"#pragma scop\n#pragma omp parallel for\n{COPY}\n#pragma omp parallel for\n{SUM}\n#pragma endscop"
    (one,) = lifted(body)
    assert [d.message for d in one.diagnostics if d.severity == "error"] == [
        "`s` is combined over `i` but is in no reduction clause"
    ]
    assert codes(body.replace(f"for\n{SUM}", f"for reduction(+: s)\n{SUM}")) == []
    split = body.replace("#pragma endscop", "float r = s;\n#pragma endscop\ny[2] = r;")
    assert [len(n.nest.directive.claims) for n in lifted(split)] == [1, 1]


def test_regions():
    one, two = lifted(f"#pragma scop\n{COPY}\n s = 1;\n if (n) return;\n{SUM}\n#pragma endscop\n{SUM}")
    assert [n.nest.label for n in (one, two)] == ["0", "1"]
    assert not one.nest.directive_span and one.nest.span != two.nest.span
    result = read(SourceFile("t.c", f"{HEAD}#pragma scop\n{COPY}\n}}".encode()), CompileCommand(), ("scop",))
    assert [d.code for r in result.refused for d in r.diagnostics] == ["MDH004"]


def test_claims_name_their_loops():
    (one,) = lifted(
        "#pragma mdh\nfor (int i = 0; i < n; i++) {\n#pragma omp simd\nfor (int k = 0; k < n; k++) y[i * n + k] = 1; }"
    )
    (claim,) = one.nest.directive.claims
    assert [x.source_name for x in claimed_loops(one.nest, claim)] == ["k"]


@pytest.mark.parametrize(
    ("language", "text", "kind"),
    [
        ("omp", " parallel for", ""), ("omp", " for nowait", "inside"), ("omp", " barrier", "other"),
        ("omp", " parallel private(x)", "other"), ("omp", " simd", ""), ("omp", " critical (name)", "other"),
        ("omp", " target teams loop", ""), ("omp", " distribute parallel for", "inside"),
        ("acc", " parallel loop", ""), ("acc", " loop independent", "inside"), ("acc", " data copy(x)", "other"),
        ("acc", " kernels loop", ""), ("acc", " update host(x)", "other"),
    ],
)  # fmt: skip
def test_kinds_of_directives(language, text, kind):
    assert parse_claim(language, text, None, 0)[1] == kind


def test_clauses_are_read():
    claim, _, problems = parse_claim(
        "omp",
        " parallel for reduction(+: a, b[0:n]) reduction(task, max: c) private(i, j) collapse(3)",
        None,
        7,
    )
    assert claim is not None and not problems
    assert [(o, v) for o, v, _ in claim.reductions] == [("+", "a"), ("+", "b"), ("max", "c")]
    assert (claim.private, claim.loops, claim.at) == (("i", "j"), 3, 7)
    assert [d.code for d in parse_claim("omp", " parallel for reduction(f: a) collapse(x)", None, 0)[2]] == [
        "MDH402", "MDH402",
    ]  # fmt: skip
    assert not parse_claim("acc", " kernels loop", None, 0)[0].parallel
    assert parse_claim("acc", " kernels loop independent", None, 0)[0].parallel


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mdh_lift", *words], cwd=directory, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_option_and_configuration(tmp_path):
    (tmp_path / "t.c").write_text(f"{HEAD}#pragma omp parallel for\n{SUM}\n y[0] = s;\n}}\n")
    given = run(tmp_path, "check", "t.c", "--accept", "omp", "--format", "concise")
    assert given.returncode == 1 and "MDH413" in given.stdout + given.stderr
    assert run(tmp_path, "check", "t.c", "--accept", "cuda").returncode == 2
    assert "MDH413" not in run(tmp_path, "check", "t.c").stdout
    (tmp_path / "mdh-lift.toml").write_text('[lift]\naccept = ["omp"]\n')
    assert "MDH413" in run(tmp_path, "check", "t.c", "--format", "concise").stdout
    (tmp_path / "mdh-lift.toml").write_text('[lift]\naccept = ["opm"]\n')
    assert run(tmp_path, "check", "t.c").returncode == 2


TWO = """#include <stdio.h>
#include <stdlib.h>
void f(int n, double *restrict y, const double *restrict x, double *sum)\r
{
    int i; double s = 0;
#pragma scop
    /* first */ for (i = 0; i < n; i++)
        y[i] = 2 * x[i];
    s = 1;
#pragma omp simd
    for (i = 0; i < n; i++) s += y[i];   // second
#pragma endscop
    *sum = s + i;
}
int main(void)
{
    for (int n = 0; n < 70; n += 23) {
        double *x = calloc(n + 1, 8), *y = calloc(n + 1, 8), s;
        for (int i = 0; i < n; i++) x[i] = i % 5;
        f(n, y, x, &s);
        printf("%g %g\\n", s, y[n / 2]);
    }
}
"""


def test_a_region_is_spliced_as_one_and_reverts_to_its_bytes(tmp_path):
    file = tmp_path / "t.c"
    for text in (TWO, TWO.replace("   // second\n", "\r\n")):
        file.write_bytes(text.encode())
        subprocess.run(["gcc", "t.c", "-o", "before"], cwd=tmp_path, check=True)
        done = run(tmp_path, "-w", "--force", "--budget", "0", "t.c", "--accept", "scop")
        spliced = file.read_bytes().decode()
        kinds = [k for k in ("kernel", "call", "close") if f"mdh-lift begin f::0 {k} " in spliced]
        assert kinds == ["kernel", "call", "close"], done
        assert "mdh-lift begin f::1" not in spliced
        outputs = [subprocess.run([tmp_path / "before"], capture_output=True).stdout]
        for flags in ([], ["-fopenmp"], ["-fopenmp", "-DMDH_LIFT_OFF"]):
            subprocess.run(
                ["gcc", "-Wall", "-Werror", "-Wno-unknown-pragmas", *flags, "t.c", "-o", "after"],
                cwd=tmp_path,
                check=True,
            )
            outputs.append(subprocess.run([tmp_path / "after"], capture_output=True).stdout)
        assert len(set(outputs)) == 1
        assert "lifted, spliced" in run(tmp_path, "status", "t.c", "--accept", "scop").stdout
        without = (
            spliced[: spliced.index("/* mdh-lift begin f::0 close")]
            + spliced[spliced.index("#pragma endscop") :]
        )
        file.write_bytes(without.encode())
        stale = run(tmp_path, "check", "t.c", "--accept", "scop", "--format", "concise")
        assert "it has 2 of its 3 regions" in stale.stdout + stale.stderr
        file.write_bytes(spliced.encode())
        again = run(tmp_path, "splice", "-w", "--force", "t.c", "--accept", "scop")
        assert file.read_bytes().decode() == spliced, again
        run(tmp_path, "revert", "-w", "t.c")
        assert file.read_bytes() == text.encode()


def test_a_kernel_goes_before_the_foreign_pragma(tmp_path):
    (tmp_path / "t.c").write_text(f"{HEAD}#pragma omp parallel for reduction(+: s)\n{SUM}\n y[0] = s;\n}}\n")
    found = run(tmp_path, "emit", "t.c", "--accept", "omp")
    assert "f_0_mdh" in found.stdout
