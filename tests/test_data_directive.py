"""``#pragma mdh data``: what it reads, what it refuses, and what stands in the file for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from emit.gpu_file import gpu_file
from emit.targets import TARGETS
from frontend_c.data_regions import insertions
from mdh_core.source import Edit, SourceFile, Span, apply_edits
from mdh_lift import emitted, gpu_plans, nest_sizes, pipeline
from mdh_lift.cli import cli
from tests.gpu_emitted import has_opencl_device
from tests.gpu_user import build

JACOBI = """#define N 20
static float grid[N][N], next[N][N];
void jacobi(int n, int steps, float A[n][n], float B[n][n])
{
#pragma mdh data DIRECTIVE
    {
        for (int step = 0; step < steps; step++) {
#pragma mdh
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    B[i][j] = 0.25f * (A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]);
            BETWEEN
        }
    }
}
"""
SWAP = "float (*t)[n] = A; A = B; B = t;"
BACK = """
#pragma mdh
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    A[i][j] = B[i][j];
"""


def _report(text: str) -> pipeline.FileReport:
    return pipeline.check_source(SourceFile("jacobi.c", text.encode()))


def _jacobi(between: str, directive: str = "copy(A, B)") -> str:
    return JACOBI.replace("DIRECTIVE", directive).replace("BETWEEN", between)


def _told(text: str) -> list[tuple[str, str]]:
    """Codes and messages of errors, each with the text that it is about."""
    found = [f.diagnostic for f in _report(text).all_findings if f.diagnostic.severity == "error"]
    return [(d.code, text.encode()[d.span.start : d.span.end].decode()) for d in found]


def test_clauses_are_read() -> None:
    text = _jacobi(BACK, "copyin(A), create ( B )\\\n   copyout(next)")
    assert _told(text) == [("MDH419", "A")]  # it is written and not copied out
    (region,) = _report(text.replace("copyin(A)", "copy(A)")).data
    assert [(n.name, n.clause) for n in region.names] == [("A", "copy"), ("B", "create"), ("next", "copyout")]
    assert region.name == "jacobi.c::jacobi::data0"
    data = text.replace("copyin(A)", "copy(A)").encode()
    assert data[region.span.start : region.span.end].startswith(b"{\n        for (int step")


@pytest.mark.parametrize(
    ("directive", "told"),
    [
        ("copyn(A)", ("MDH401", "copyn")),
        ("copy", ("MDH402", "copy")),
        ("copy()", ("MDH402", "copy")),
        ("copy(A, B[0])", ("MDH402", "B[0]")),
        ("copy(A) create(B, A)", ("MDH402", "A")),
        ("copy(A) + create(B)", ("MDH402", "#pragma mdh data copy(A) + create(B)")),
        ("", ("MDH402", "#pragma mdh data")),
        ("copy(A, C)", ("MDH418", "C")),
        ("copy(A, n)", ("MDH418", "n")),
        ("copy(A, step)", ("MDH418", "step")),
    ],
)
def test_directives_that_do_not_fit(directive: str, told: tuple[str, str]) -> None:
    assert _told(_jacobi(BACK, directive)) == [told]


@pytest.mark.parametrize(
    "text",
    [
        _jacobi(BACK).replace("    {\n        for (int step", "        for (int step").replace("        }\n    }\n}", "        }\n}"),
        _jacobi(BACK).replace("#pragma mdh data copy(A, B)\n    {", "{").replace("jacobi(int", "jacobi(int") + "#pragma mdh data copy(grid)\n",
        _jacobi("").replace("            for (int i", "            {\n#pragma mdh data copy(A)\n            { for (int i").replace("A[i][j + 1]);", "A[i][j + 1]); } }"),
    ],
    ids=["before a loop", "before nothing", "in a nest"],
)  # fmt: skip
def test_directives_out_of_place(text: str) -> None:
    assert "MDH418" in [code for code, _ in _told(text)]


@pytest.mark.parametrize(
    ("between", "told"),
    [
        ("if (A[1][1] > 2) steps--;", "A"),
        ("B[0][0] = 1;", "B"),
        ("float *p = &A[1][0]; p[2] = 1;", "p"),
        ("float *p; p = A[1] + 3;", "A"),
        ("extern void use(float *); use(&B[0][0]);", "B"),
        ("if (steps > 7) return;", "return"),
        ("if (steps > 7) goto done;", "goto"),
        ("#pragma omp parallel for\n for (int k = 0; k < n; k++) grid[k][0] = k;\n", "#pragma omp parallel for"),
    ],
)
def test_what_the_host_must_not_do(between: str, told: str) -> None:
    text = _jacobi(BACK + between)
    if "goto" in between:
        text = text.replace("    }\n}\n", "    }\ndone:;\n}\n")
    found = _told(text)
    assert found and {code for code, _ in found} == {"MDH419"}
    assert any(where.startswith(told.split()[0]) or where == told for _, where in found), found


@pytest.mark.parametrize("word", ["break", "continue"])
def test_loops_around_are_not_left(word: str) -> None:
    text = f"""void f(int n, float *x)
{{
    for (int k = 0; k < 3; k++)
#pragma mdh data copy(x)
    {{
#pragma mdh
        for (int i = 0; i < n; i++) x[i] = x[i] * 2;
        if (k == 1) {word};
    }}
}}
"""
    assert _told(text) == [("MDH419", word)]


def test_calls_may_reach_what_is_global() -> None:
    text = """float x[100];
void other(void);
void f(void)
{
#pragma mdh data copy(x)
    {
#pragma mdh
        for (int i = 0; i < 100; i++) x[i] = x[i] * 2;
        CALL
    }
}
"""
    assert _told(text.replace("CALL", "other();")) == [("MDH419", "other")]
    assert _told(text.replace("CALL", "")) == []


@pytest.mark.parametrize(
    "between",
    [
        SWAP,
        BACK + "float *p = &A[1][0]; p = p + n; steps += sizeof A > 3;",
        BACK + "struct { int A; } s; s.A = 3; steps += s.A - 3;",
        BACK + "for (int k = 0; k < 3; k++) { if (k) break; continue; } goto next; next: ;",
    ],
)
def test_pointers_may_be_copied(between: str) -> None:
    assert _told(_jacobi(between)) == []
    assert len(_report(_jacobi(between)).data) == 1


def test_a_nest_that_does_not_lift_uses_its_arrays_on_the_host() -> None:
    found = _told(_jacobi("extern float more(int);" + BACK.replace("B[i][j];", "B[i][j] + more(i);")))
    assert "MDH419" in [code for code, _ in found]


# --------------------------------------------------------------------------- in the file


def _spliced(text: str, target: str) -> tuple[str, object]:
    """The text with the calls of its nests and regions, and the file of these."""
    report = _report(text)
    parts, edits = [], []
    for nest in report.nests:
        assert nest.lifted is not None and nest.lifted.programs
        plan = gpu_plans.gpu_plan(nest.lifted, target, nest_sizes.parameter_values(nest.lifted, nest_sizes.sizes_of(nest.lifted)))
        parts.append(plan.part(plan.default))
        at = nest.lifted.nest.span.start
        edits.append(Edit(Span(at, at), f"if ({parts[-1].call}) {{}} else ".encode()))
    regions = []
    for region in report.data:
        regions.append(gpu_plans.region_part(region, target))
        edits += [Edit(Span(at, at), t.encode()) for at, t in insertions(region, *regions[-1].calls)]
    data = apply_edits(text.encode(), sorted(edits, key=lambda e: e.span.start))
    return data.decode(), gpu_file("nests_mdh", parts, TARGETS[target], regions)


MAIN = """
#include <stdio.h>
#include <string.h>
ORIGINAL
int main(void)
{
    float one[N][N], two[N][N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) grid[i][j] = next[i][j] = one[i][j] = two[i][j] = (float)(i*j % 7);
    jacobi(N, 100, grid, next);
    original(N, 100, one, two);
    printf("%d %d\\n", !memcmp(grid, one, sizeof one), !memcmp(next, two, sizeof two));
    return 0;
}
"""


@pytest.mark.parametrize("target", ["cuda", "opencl"])
@pytest.mark.parametrize("between", [SWAP, BACK], ids=["swap", "back"])
def test_spliced_file_equals_the_original(target: str, between: str, tmp_path: Path) -> None:
    if target == "opencl" and not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    text = _jacobi(between).replace("const ", "")
    spliced, file = _spliced(text, target)
    plain = "\n".join(x for x in text.split("\n", 2)[2].splitlines() if not x.startswith("#pragma"))
    main_text = MAIN.replace("ORIGINAL", plain.replace("jacobi(", "original("))
    pragmas = "\n".join(x for x in spliced.splitlines() if not x.startswith("#pragma"))
    program = build(tmp_path, '#include "nests_mdh.h"\n' + pragmas + main_text, file, target)  # type: ignore[arg-type]
    done = program.run(MDH_SHIM_COUNT="1")
    assert done.stdout == "1 1\n", done.stderr
    if target == "cuda":
        assert '"to_device": {"calls": 2' in done.stderr
        assert '"to_host": {"calls": 2' in done.stderr


def test_other_targets_ignore_it() -> None:
    report = _report(_jacobi(BACK))
    plain = _report(_jacobi(BACK).replace("#pragma mdh data copy(A, B)\n", "\n"))
    for one, other in zip(report.nests, plain.nests, strict=True):
        assert emitted.emitted(report, one) == emitted.emitted(plain, other)


def test_emit_prints_one_file_with_what_is_inserted(tmp_path: Path) -> None:
    (tmp_path / "jacobi.c").write_text(_jacobi(BACK))
    for target in ("cuda", "opencl"):
        done = CliRunner().invoke(cli, ["emit", str(tmp_path / "jacobi.c"), "--target", target])
        assert done.exit_code == 0, done.stderr
        assert done.stdout.count(f"#ifndef MDH_jacobi_{target}_mdh_H") == 1
        assert "/* behind the brace in line 6 */\njacobi_data0_mdh_begin(A, B);" in done.stdout
        assert "jacobi_data0_mdh_end();" in done.stdout
        assert done.stdout.count("/* in place of jacobi::") == 2
    (tmp_path / "jacobi.c").write_text(_jacobi(BACK + "A[0][0] = 1;"))
    done = CliRunner().invoke(cli, ["emit", str(tmp_path / "jacobi.c"), "--target", "cuda"])
    assert done.exit_code == 1
    assert "MDH419" in done.stderr


