"""Directives of other languages, read on request: what they claim is checked against the loops."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, read
from lifter.annotations import parse_claim
from lifter.claims import checked, claimed_loops
from lifter.lift import LiftedNest, lift
from mdh_core.source import SourceFile

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
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


def test_a_shared_out_loop_belongs_to_its_region():
    text = f"{HEAD}#pragma omp parallel\n{{\n#pragma omp for\n{COPY}\n#pragma omp barrier\n}}\n}}\n"
    result = read(SourceFile("t.c", text.encode()), CompileCommand(), ("omp",))
    assert [d.code for r in result.refused for d in r.diagnostics] == ["MDH414"]


def test_regions():
    one, two = lifted(f"#pragma scop\n{COPY}\n s = 1;\n{SUM}\n#pragma endscop\n{SUM}")
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


def test_a_kernel_goes_before_the_foreign_pragma(tmp_path):
    (tmp_path / "t.c").write_text(f"{HEAD}#pragma omp parallel for reduction(+: s)\n{SUM}\n y[0] = s;\n}}\n")
    found = run(tmp_path, "emit", "t.c", "--accept", "omp")
    assert "f_0_mdh" in found.stdout
