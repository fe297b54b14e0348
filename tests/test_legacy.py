"""C as old trees have it: members of structs as sizes, Fortran's pointers, headers that are elsewhere."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile
from mdh_lift import kernels, nest_sizes, pipeline, verbs
from mdh_lift import subject as subjects
from mdh_lift.c_value import NotAnInteger, is_place, names_in, value
from mdh_lift.cli import cli
from mdh_lift.session import Session
from tuning import verify
from tuning.runner import Workbench
from tuning.toolchain import Toolchain

TYPES = """typedef double real;
typedef struct { int n; real w[8]; } part;
typedef struct { int rows, cols; real *data, last; part *sub; part own; } matrix;
#define AT(m, i, j) ((m)->data[(i) * (m)->cols + (j)])
"""


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nest_of(signature, loop):
    text = f"{TYPES}void f({signature})\n{{\n    int i, j;\n#pragma mdh\n    {loop}\n}}\n"
    (nest,) = pipeline.check_source(SourceFile("f.c", text.encode())).nests
    assert nest.lifted is not None and nest.status == "lifted", nest.findings
    return nest.lifted, text.encode()


# --------------------------------------------------------------------------- texts of sizes


@pytest.mark.parametrize(
    "text, names",
    [
        ("m->rows * 8", ["m->rows"]), ("(m.sub.n + 1) / k", ["m.sub.n", "k"]), ("*n / 2", ["*n"]),
        ("(long)*n + a * b", ["*n", "a", "b"]), ("(a) * n", ["a", "n"]), ("a[1] * n", ["a", "n"]), ("3 * n", ["n"]),
        ("p->q->n ? p->q->n : *n", ["p->q->n", "*n"]),
    ],
)  # fmt: skip
def test_names_in_a_text(text, names):
    assert names_in(text) == names


def test_values_of_members_and_targets():
    known = {"m->rows": 7, "*n": 5, "n": 100, "m": 1}
    assert value("m->rows * 8 + *n", known) == 61 and value("2 * n", known) == 200
    assert value("(long)*n - -*n", known) == 10
    for text in ("m->cols", "m->", "*", "*k"):
        with pytest.raises(NotAnInteger):
            value(text, known)
    assert is_place("m->a.b") and is_place("*n") and not is_place("n / 2") and not is_place("(m).n")


# --------------------------------------------------------------------------- what the harness runs

LOOPS = {
    "pointer": ("const matrix *a, matrix *const c", "for (i = 0; i < a->rows; i++) for (j = 0; j < (*c).cols; j++) AT(c, i, j) += 2 * AT(a, i, j);"),
    "derived": ("matrix *m, real *y", "for (i = 0; i < m->rows / 2; i++) y[i] = 2 * m->data[2 * i];"),
    "deep": ("matrix *m, real *y", "for (i = 0; i < m->sub->n; i++) y[i] += m->own.n;"),
    "value": ("const matrix m, int *n", "for (i = 0; i < *n; i++) m.data[i] = i + m.cols;"),
    "written": ("matrix *m, const int *n", "for (i = 0; i < *n; i++) m->last += m->data[i];"),
}  # fmt: skip


def compared(name, spoilt=("", "")):
    """What the harness says of the model's choice for a nest, once with text of its kernel replaced."""
    lifted, text = nest_of(*LOOPS[name])
    plan = kernels.plan(lifted)
    made = plan.candidate(plan.default)
    made = replace(made, kernel_text=made.kernel_text.replace(*spoilt)) if spoilt[0] else made
    subject = subjects.subject_of(lifted, text, "f.c")
    bench = Workbench(Toolchain(flags=("-O1",)))
    built = bench.build(subject, made)
    assert built.ok, built.reason
    sizes = dict.fromkeys(nest_sizes.sizes_of(lifted), 6)
    return verify.verify(bench, subject, built.data["program"], [verify.Case(sizes, "exact"), verify.Case(sizes, "real")])


@pytest.mark.parametrize("name", LOOPS)
def test_nests_on_members_are_compared(name):
    found = compared(name)
    assert found.ok and found.cases == 2, found.outcome


def test_sizes_of_members_have_names():
    lifted, _ = nest_of(*LOOPS["derived"])
    assert set(nest_sizes.sizes_of(lifted)) == {"m_rows"}
    sizes = {"m_rows": 11}
    assert list(nest_sizes.parameter_values(lifted, sizes).values()).count(5) == 1


def test_a_wrong_sum_in_a_member_is_seen():
    """What the nest leaves in a member comes back to the harness."""
    assert not compared("written", ("+=", "-=")).ok


def test_an_array_inside_of_a_struct_is_told(tree):
    lifted, text = nest_of("part *p", "for (i = 0; i < 8; i++) p->w[i] = i;")
    with pytest.raises(Refusal) as refusal:
        subjects.subject_of(lifted, text, "f.c")
    assert refusal.value.diagnostic.code == "MDH804"


# --------------------------------------------------------------------------- headers, files that are not read

NEST = "void f(int n, float *y) { for (int i = 0; i < n; i++) y[i] = 2; }\n"


@pytest.fixture
def scattered(tree):
    for name in ("a", "b", "c"):
        (tree / f"{name}.c").write_text(f'#include "sub/defs.h"\n{NEST}')
    (tree / "d.c").write_text(f'#include "config.h"\n{NEST}')
    (tree / "e.c").write_text(NEST)
    (tree / "include/sub").mkdir(parents=True)
    (tree / "include/sub/defs.h").write_text("typedef int number;\n")
    (tree / "config.h.in").write_text("\n")
    return tree


def test_a_missing_header_is_told_once_with_its_directory(scattered):
    result = run("scan")
    assert result.exit_code == 1 and result.output.count("`sub/defs.h` is not found") == 1
    assert "and in 2 more files: b.c, c.c" in result.output and "-- cc -Iinclude`" in result.output
    assert "configuring the tree makes it from `config.h.in`" in result.output
    assert "1 files, 1 functions" in result.stderr
    assert "not looked at: 4 files that cannot be read or preprocessed" in result.stderr
    found = run("scan", ".", "--", "cc", "-Iinclude")
    assert "4 files, 4 functions" in found.stderr


def test_for_programs_each_file_has_its_finding(scattered):
    answer = json.loads(run("scan", "--format", "json").stdout)
    assert answer["summary"]["unread_files"] == 4 and answer["summary"]["files"] == 1
    told = [d["file"] for d in answer["diagnostics"] if d["code"] == "MDH002"]
    assert sorted(told) == ["a.c", "b.c", "c.c", "d.c"]
    assert len(run("check", "--format", "concise").stdout.splitlines()) == 4


def test_scan_still_reads_directives_that_a_macro_makes(tree):
    (tree / "lift.h").write_text('#define LIFT _Pragma("mdh")\n')
    (tree / "f.c").write_text(f'#include "lift.h"\n{NEST.replace("for", "LIFT for", 1)}')
    (nest,) = json.loads(run("scan", "--format", "json").stdout)["nests"]
    assert nest["annotated"]


def test_progress_is_for_terminals(tree, monkeypatch, capsys):
    items = ["a.c", "b.c", "c.c"]
    assert list(verbs.followed(Session(), items, str)) == items and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = []
    monkeypatch.setattr(verbs.progress, "tell", lambda self, *what: told.append(what))
    assert list(verbs.followed(Session(), items, str)) == items
    assert told == [("a.c", 0, 3), ("b.c", 1, 3), ("c.c", 2, 3)]
    assert list(verbs.followed(Session(quiet=True), items, str)) == items and len(told) == 3


def test_the_makefile_fragment_leaves_the_default_target_alone(tree):
    fragment = Path(pipeline.__file__).parent / "integrations/mdh_lift.mk"
    (tree / "Makefile").write_text(f"include {fragment}\n\napp: mdh-lift-check\n\ttouch app\n")
    shown = subprocess.run(["make", "-n"], capture_output=True, text=True, check=True).stdout
    assert "mdh-lift check" in shown and "touch app" in shown


def test_rows_whose_length_only_a_compiler_knows(tmp_path: Path) -> None:
    """They lift; what needs numbers says so (MDH804), and the report leaves them out."""
    (tmp_path / "g.c").write_text(
        "int columns(void);\ndouble total(int n)\n{\n    double A[7][columns()], s = 0;\n#pragma mdh\n"
        "    for (int i = 0; i < 7; i++)\n        for (int j = 0; j < n; j++)\n            s += A[i][j];\n"
        "    return s;\n}\n"
    )
    for verb, status, code in (("verify", 1, "MDH804"), ("tune", 1, "MDH804"), ("report", 0, "")):
        with contextlib.chdir(tmp_path):
            done = CliRunner().invoke(cli, [verb, "g.c"])
        assert done.exit_code == status and code in done.output and "MDH9" not in done.output, done.output


def test_a_header_that_misses_a_header_is_named_from_the_working_directory(tree):
    (tree / "src").mkdir()
    (tree / "inc").mkdir()
    (tree / "src/common.h").write_text('#include "gone.h"\n')
    (tree / "inc/other.h").write_text('#include "missing.h"\n')
    (tree / "src/a.c").write_text('#include "common.h"\n')
    (tree / "src/b.c").write_text('#include "other.h"\n')
    told = run("check", "--format", "concise", "src", "--", "cc", "-Iinc").stdout
    assert "src/common.h:1:1: error[MDH002]: header `gone.h`" in told
    assert "inc/other.h:1:1: error[MDH002]: header `missing.h`" in told
