"""What the language server has to say about files, without a protocol."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mdh_core.source import SourceFile
from mdh_lift import splice
from mdh_lift.lsp import completion
from mdh_lift.lsp.positions import Text
from mdh_lift.lsp.present import actions_of, folds, lenses, symbols
from mdh_lift.lsp.settings import Settings, settings_from
from mdh_lift.lsp.tasks import Tasks, checked, options_for
from mdh_lift.lsp.values import Analysis, Place, Request, Tuned, places, shifted

CORPUS = Path(__file__).parent.parent / "corpus"
GEMM = """\
void gemm(int n, int m, int p, double A[n][p], double B[p][m], double C[n][m])
{
#pragma mdh
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            for (int k = 0; k < p; k++)
                C[i][j] += A[i][k] * B[k][j];
}
"""


def analysed(text: str, path: str = "/nowhere/a.c", trusted: bool = True) -> Analysis:
    answer = Tasks().answer(Request(1, "analyse", path, text.encode(), trusted=trusted))
    assert answer.analysis is not None, answer.problem
    return answer.analysis


def at(text: str, place: Place) -> str:
    return text.encode()[place.start : place.end].decode()


def test_operators_stand_at_loop_heads():
    found = analysed(GEMM)
    (nest,) = found.nests
    heads = [at(GEMM, loop.place) for loop in nest.loops]
    assert heads == re.findall(r"for \(.*\)", GEMM)
    assert [loop.hint for loop in nest.loops] == ["++", "++", "+"]
    assert at(GEMM, nest.head) == "#pragma mdh"
    assert at(GEMM, nest.body).startswith("for (int i") and at(GEMM, nest.body).endswith("B[k][j];")
    assert [f.code for f in found.findings] == ["MDH203", "MDH301"]
    assert all("\n" not in at(GEMM, f.place) for f in found.findings), "one line is underlined at most"


def test_hover_has_expression_operators_and_iterations():
    (nest,) = analysed(GEMM).nests
    for part in ("md_hom[i: n, j: m, k: p]", "| `k` | `p` | `pw(+)` |", "iterations: 134,217,728 = `m*n*p`", "intensity: 32 ", "lifted"):
        assert part in nest.hover, nest.hover


def test_loops_in_order_are_told_and_doubtful_ones_left_out():
    text = (CORPUS / "adi.c").read_text()
    (nest,) = analysed(text, str(CORPUS / "adi.c")).nests
    hints = {at(text, loop.place): loop.hint for loop in nest.loops}
    assert hints[next(h for h in hints if "steps" in h)] == "in order"
    # `i` and `j` are the iterators of several loops, of which some became dimensions with different operators
    assert set(hints.values()) <= {"in order", "++"}


def test_findings_carry_related_places():
    text = GEMM.replace("#pragma mdh", "#pragma mdh combine_ops(i: cc, j: cc, k: pw(*))")
    found = analysed(text)
    wrong = next(f for f in found.findings if f.code == "MDH404")
    assert at(text, wrong.place) == "pw(*)" and wrong.severity == "error" and wrong.nest == "gemm::0"
    assert [at(text, r.place) for r in wrong.related] == ["for (int k = 0; k < p; k++"]
    assert [lens for lens, _ in lenses(found.nests[0])] == ["not lifted: MDH404"]
    explain = [a.title for a in actions_of(found, Text(text), wrong.place.start, wrong.place.start)]
    assert "Explain MDH404" in explain


def test_inferred_operators_can_be_written_out():
    found = analysed(GEMM)
    pragma = GEMM.index("#pragma")
    (action,) = [a for a in actions_of(found, Text(GEMM), pragma, pragma) if a.edits]
    (edit,) = action.edits
    changed = GEMM[: edit.place.start] + edit.new + GEMM[edit.place.end :]
    assert "#pragma mdh combine_ops(i: cc, j: cc, k: pw(+))\n" in changed
    again = analysed(changed)
    assert again.nests[0].status == "lifted" and not again.nests[0].changes


def applied(text: str, action) -> str:
    (edit,) = action.edits
    data = text.encode()
    return (data[: edit.place.start] + edit.new.encode() + data[edit.place.end :]).decode()


def test_fixes_settle_what_they_are_for():
    text = GEMM.replace("#pragma mdh", "/* ü */;\n#pragma mdh combine_ops(i: cc, j: cc, k: pw(*))")
    found = analysed(text)
    wrong = next(f for f in found.findings if f.code == "MDH404")
    actions = list(actions_of(found, Text(text), wrong.place.start, wrong.place.end))
    (fix,) = [a for a in actions if a.code == "MDH404" and a.preferred]
    assert "MDH404" not in [f.code for f in analysed(applied(text, fix)).findings]
    assert "k: pw(+))" in applied(text, fix)
    (known,) = [a for a in actions if a.title == "Ignore MDH404 here"]
    ignored = applied(text, known)
    assert "// mdh-lift: ignore[MDH404] say why\n#pragma mdh" in ignored
    assert "MDH404" not in [f.code for f in analysed(ignored).findings]
    assert [f.code for f in analysed(ignored.replace(" say why", "")).findings].count("MDH421") <= 1
    assert any(f.code.startswith("MDH42") for f in analysed(ignored.replace(" say why", "")).findings)


def test_directives_for_loops_that_have_none():
    text = GEMM.replace("#pragma mdh\n", "")
    at_loop = text.index("for (int i")
    (action,) = [a for a in actions_of(Analysis(), Text(text), at_loop, at_loop) if a.task == "annotate"]
    line = text[:at_loop].count("\n") + 1
    assert action.nest == str(line)
    request = Request(1, "annotate", "/nowhere/a.c", text.encode(), trusted=True, nest=action.nest)
    assert Tasks().answer(request).text == text.replace("    for (int i", "    #pragma mdh\n    for (int i").encode()
    refused = text.replace("C[i][j] +=", "i = C[i][j];")
    answer = Tasks().answer(msgspec.structs.replace(request, text=refused.encode()))
    assert answer.text is None and answer.problem
    assert not [a for a in actions_of(analysed(GEMM), Text(GEMM), GEMM.index("for"), GEMM.index("for")) if a.task == "annotate"]


@pytest.mark.parametrize("name", ["gemm", "adi", "cholesky", "histo", "jacobi2d", "exclusive_scan"])
def test_written_out_operators_are_those_that_check_accepts(name):
    source = SourceFile(str(CORPUS / f"{name}.c"), (CORPUS / f"{name}.c").read_bytes())
    options = options_for(source.path, True)
    for nest in checked(source, options, True).nests:
        for change in nest.changes:
            data = source.data
            for edit in change.edits:
                data = data[: edit.place.start] + edit.new.encode() + data[edit.place.end :]
            again = checked(SourceFile(source.path, data), options, True)
            assert [n.status for n in again.nests if n.name == nest.name] == [nest.status]


def test_a_file_without_directives_has_nothing_to_say():
    assert analysed("int main(void) { return 0; }\n") == Analysis()


def test_python_files_are_analysed():
    text = 'from mdh_lift import mdh\n\n@mdh()\ndef axpy(n: int, x: "float64[n]", y: "float64[n]"):\n'
    text += "    for i in range(n):\n        y[i] = 2 * x[i]\n"
    (nest,) = analysed(text, "/nowhere/a.py").nests
    assert nest.name == "axpy::0" and nest.status == "lifted"


# --------------------------------------------------------------------------- splices


SPLICED_PART = splice.SplicePart("gemm::0", 0, GEMM.index("#pragma"), "static int kernel(void);", "kernel()")


def spliced(text: str = GEMM) -> str:
    return splice.splice(text.encode(), [SPLICED_PART]).decode()


def test_splices_are_seen_and_can_be_reverted():
    text = spliced()
    found = analysed(text)
    (nest,) = found.nests
    assert nest.splice == "stale" and [r.kind for r in nest.regions] == ["kernel", "call"]
    titles = [title for title, _ in lenses(nest)]
    assert titles == ["splice is stale: the nest changed", "revert"]
    answer = Tasks().answer(Request(1, "revert", "/nowhere/a.c", text.encode(), trusted=True, nest="gemm::0"))
    assert answer.text == GEMM.encode()
    edited = text.replace("static int kernel(void);", "static int other(void);")
    (nest,) = analysed(edited).nests
    assert nest.splice == "edited"
    assert [label for _, label in folds(found)][-1] == "original of gemm::0"
    assert [at(text, head) for *_, head in symbols(found)] == ["#pragma mdh"]


def test_lenses_say_what_is_tuned():
    (nest,) = analysed(GEMM).nests
    new = Tuned("n=64", "here", 3.21, 3.1, 3.3)
    old = Tuned("n=64", "here", 3.21, 3.1, 3.3, stale=True)
    told = {
        "plain": [t for t, _ in lenses(nest)],
        "tuned": [t for t, _ in lenses(msgspec.structs.replace(nest, tuned=(old, new)))],
        "before": [t for t, _ in lenses(msgspec.structs.replace(nest, tuned=(old,)))],
        "fresh": [t for t, _ in lenses(msgspec.structs.replace(nest, tuned=(new,), splice="fresh"))],
        "kept": [t for t, _ in lenses(msgspec.structs.replace(nest, tuned=(new,), replaceable=False))],
    }
    assert told == {
        "plain": ["lifted: 1 md_hom"],
        "tuned": ["tuned 3.21 × (n=64)", "splice"],
        "before": ["tuned before the nest changed"],
        "fresh": ["spliced, 3.21 × (n=64)", "revert"],
        "kept": ["tuned 3.21 × (n=64)"],
    }


def test_damaged_regions_are_one_finding_with_a_place():
    text = spliced().replace("/* mdh-lift end gemm::0 call", "/* end")
    found = analysed(text)
    assert [f.code for f in found.findings] == ["MDH509"] and not found.nests
    assert "mdh-lift begin gemm::0 call" in at(text, found.findings[0].place)


# --------------------------------------------------------------------------- trust


def test_without_trust_only_what_the_text_says_is_told(tmp_path):
    (tmp_path / "mdh-lift.toml").write_text("schema = 99\n[wrong")
    (tmp_path / "n.h").write_text("#define N 7\n")
    text = f'#include "n.h"\n#define M 5\n{GEMM}void f(double *x) {{\n#pragma mdh fp(precise)\n    for (int i = 0; i < N; i++)\n        x[i] = M;\n}}\n'
    found = analysed(text, str(tmp_path / "a.c"), trusted=False)
    assert [f.code for f in found.findings] == ["MDH402"]
    assert {n.name: n.status for n in found.nests} == {"gemm::0": "lifted", "f::0": "refused"}
    trusted = analysed(text, str(tmp_path / "a.c"))
    assert [f.code for f in trusted.findings] == ["MDH001"], "a configuration that cannot be read is told"


def test_without_trust_nothing_is_started_and_nothing_opened(tmp_path):
    """Counted by the system: no program but Python itself, no file of the workspace."""
    hostile = tmp_path / "tree"
    hostile.mkdir()
    program = hostile / "gcc"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    entry = {"directory": str(hostile), "file": "a.c", "arguments": [str(program), "-fplugin=./p.so", "a.c"]}
    (hostile / "compile_commands.json").write_text(json.dumps([entry]))
    (hostile / "mdh-lift.toml").write_text(f'schema = 1\n[build]\ncompiler = "{program}"\n')
    (hostile / "click.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (hostile / "n.h").write_text("")
    code = f"""
import os, sys
seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)) if event in
    ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "open") else None)
from mdh_lift.lsp.tasks import Tasks
from mdh_lift.lsp.values import Request
text = b'#include "n.h"\\n' + {GEMM.encode()!r}
answer = Tasks().answer(Request(1, "analyse", {str(hostile / "a.c")!r}, text))
assert answer.analysis.nests, answer
started = [e for e in seen if e[0] != "open"]
opened = [a for e, a in seen if e == "open" and str(a[0]).startswith({str(hostile)!r})]
print(started, opened)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=hostile, capture_output=True, text=True)
    assert done.stdout == "[] []\n", done
    assert not (tmp_path / "ran").exists()


# --------------------------------------------------------------------------- values, settings


def test_values_survive_the_way_between_processes():
    found = analysed(spliced())
    assert msgspec.json.decode(msgspec.json.encode(found), type=Analysis) == found
    moved = shifted(found, 7)
    assert places(moved) == [Place(p.start + 7, p.end + 7) for p in places(found)]
    assert shifted(moved, -7) == found
    assert len(places(found)) > 8


def test_settings():
    chosen, wrong = settings_from({"trusted": True, "inlayHints": False, "tursted": 1, "debounce": "long"})
    assert (chosen.trusted, chosen.inlay_hints, chosen.debounce) == (True, False, Settings().debounce)
    assert len(wrong) == 2 and "tursted" in wrong[0] and "debounce" in wrong[1]
    assert settings_from(None) == (Settings(), []) and not Settings().trusted


# --------------------------------------------------------------------------- completion


PRAGMA = """\
void f(int n, double *x, double y[n]) {
#pragma mdh |
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 8; j++)
            y[i] += x[8 * i + j];
}
"""


def completed(clauses: str) -> list[str]:
    text = PRAGMA.replace("|", clauses)
    return [i.label for i in completion.items(Text(text), 1 + clauses.count("\n"), len(clauses.split("\n")[-1]) + (0 if "\n" in clauses else 12))]


@pytest.mark.parametrize(
    ("clauses", "some", "none"),
    [
        ("", ["combine_ops", "target"], ["cc"]),
        ("na", ["name", "noalias"], []),
        ("combine_ops(", ["cc", "pw()", "i", "j"], ["x", "fp"]),
        ("combine_ops(i: cc, j: pw(", ["+", "argmax"], ["cc"]),
        ("out(", ["x", "y"], ["i", "n", "f"]),
        ("sizes(", ["n"], ["i", "x"]),
        ("fp(", ["exact", "fast"], ["openmp"]),
        ("fp(exact) \\\n target(", ["openmp", "cuda"], ["exact"]),
        ("fp(exact) ", ["inp"], ["exact"]),
    ],
)
def test_completion(clauses, some, none):
    found = completed(clauses)
    assert set(some) <= set(found) and not set(none) & set(found), found


def test_no_completion_outside_of_directives():
    text = Text(PRAGMA)
    assert completion.items(text, 0, 5) == [] and completion.items(text, 2, 9) == []
    assert completion.items(Text("#pragma mdhx "), 0, 13) == []
    assert completion.signature(Text("#pragma mdh combine_ops(cc, pw("), 0, 31)[0] == "combine_ops(operator, ...)"
    assert completion.signature(Text("#pragma mdh "), 0, 12) is None
