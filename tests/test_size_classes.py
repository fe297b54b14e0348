"""Several `sizes` clauses: a kernel for each class of sizes, one for all others, the original behind them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mdh_core.diagnostics import Diagnostic
from mdh_lift import pipeline, several
from mdh_lift.classes import clauses_of, condition
from mdh_lift.config import Config, Tune
from mdh_lift.findings import Finding

ROOT = Path(__file__).parent.parent
SOURCE = """\
#include <stdio.h>
#include <stdlib.h>

void rows(int n, const int *restrict a, int *restrict s)
{
#pragma mdh sizes(n=8) sizes(n=300) sizes(n=8)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            s[i] += a[i * n + k];
}

int main(int argc, char **argv)
{
    for (int j = 1; j < argc; j++) {
        int n = atoi(argv[j]);
        int *a = malloc(sizeof(int) * (n * n + 1)), *s = calloc(n + 1, sizeof(int));
        for (int i = 0; i < n * n; i++)
            a[i] = i % 97;
        rows(n, a, s);
        long sum = 0;
        for (int i = 0; i < n; i++)
            sum = sum * 31 + s[i];
        printf("%d %ld\\n", n, sum);
        free(a);
        free(s);
    }
    return 0;
}
"""
# the first and last size of each class, their neighbours, and where there is nothing or little to do
EXPECTED = {0: "", 1: "", 3: "", 4: "_1", 16: "_1", 17: "", 149: "", 150: "_2", 600: "_2", 601: "", 997: ""}


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=300, env=environment
    )


def _mdh_lift(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = _run(sys.executable, "-m", "mdh_lift", *arguments, cwd=cwd)
    assert "MDH7" not in done.stderr and "MDH9" not in done.stderr, done.stderr
    return done


def _printed(source: Path, *flags: str) -> tuple[list[str], list[str]]:
    """What the program prints for the sizes of EXPECTED, and the names of the kernels that ran."""
    program = source.with_suffix("")
    built = _run("gcc", "-O2", "-fopenmp", "-Wno-unknown-pragmas", *flags, source, "-o", program, cwd=source.parent)
    assert built.returncode == 0, built.stderr
    ran = _run(program, *map(str, EXPECTED), cwd=source.parent)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines(), ran.stderr.split()


def test_each_size_runs_the_kernel_of_its_class(tmp_path: Path) -> None:
    source = tmp_path / "rows.c"
    source.write_text(SOURCE)
    done = _mdh_lift("-w", "--force", "--budget", "0", "rows.c", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    assert done.stdout.count("speedup:") == 3, done.stdout
    expected, _ = _printed(source, "-DMDH_LIFT_OFF")
    traced = tmp_path / "traced.c"
    head = re.compile(r"^(static int (rows_0_mdh\w*)\([^)]*\)\n\{)", re.MULTILINE)
    traced.write_text(head.sub(r'\1 fputs("\2\\n", stderr);', source.read_text()))
    found, names = _printed(traced)
    assert found == expected
    assert names == [f"rows_0_mdh{suffix}" for suffix in EXPECTED.values()]
    assert _mdh_lift("check", "rows.c", cwd=tmp_path).returncode == 0
    assert _mdh_lift("revert", "-w", "rows.c", cwd=tmp_path).returncode == 0
    assert source.read_text() == SOURCE


def test_classes_are_tuned_and_locked_one_by_one(tmp_path: Path) -> None:
    source = tmp_path / "rows.c"
    source.write_text(SOURCE)
    assert _mdh_lift("tune", "--budget", "2ev", "rows.c", cwd=tmp_path).returncode in (0, 1, 4)
    (blocks,) = json.loads((tmp_path / "mdh-lift.lock").read_text())["nests"]["rows.c::rows::0"].values()
    assert {"n=8", "n=300"} < set(blocks) and len(blocks) == 3  # and the usual sizes
    assert len({block["text_hash"] for block in blocks.values()}) == 3
    assert _mdh_lift("splice", "-w", "--force", "rows.c", cwd=tmp_path).returncode in (0, 4)
    text = source.read_text()
    for size, name in (("n=8", "rows_0_mdh_1"), ("n=300", "rows_0_mdh_2")):
        point = blocks[size]["configuration"]["point"]
        comment = text[: text.index(f"static int {name}(")].rpartition("/* rows::0")[2].replace("\n *", "")
        for parameter, value in point.items():
            assert f"{parameter}={value}" in comment, (size, parameter)


def test_opencl_has_the_kernels_in_one_file(tmp_path: Path) -> None:
    (tmp_path / "rows.c").write_text(SOURCE)
    done = _mdh_lift("-w", "--force", "--budget", "0", "--target", "opencl", "rows.c", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    assert "verified:" in done.stdout
    header = (tmp_path / "rows_opencl_mdh.h").read_text()
    assert re.findall(r"int (\w+)\(", header) == ["rows_0_mdh_1", "rows_0_mdh_2", "rows_0_mdh"]
    call = (tmp_path / "rows.c").read_text().partition("if (n >= 4 && n <= 16")[2]
    assert re.findall(r"rows_0_mdh\w*(?=\()", call) == ["rows_0_mdh_1", "rows_0_mdh_2", "rows_0_mdh"]


@pytest.mark.parametrize("slow", [{8}, {None}, {8, None}])
def test_what_is_slow_gets_no_kernel(slow: set[int | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that is not faster runs the generic kernel; where that is slow, the original runs.  What is left
    is compared at sizes at which it runs."""
    source = tmp_path / "rows.c"
    source.write_text(SOURCE)

    def verdict(work, winner, stage):  # type: ignore[no-untyped-def]
        of_class = work.variables["n"] if work.variables["n"] in (8, 300) else None
        return [Finding(Diagnostic("MDH603", "slow"))] if of_class in slow else []

    monkeypatch.setattr(several, "verdict_on", verdict)
    monkeypatch.setattr("mdh_lift.improve.verdict_on", verdict)
    report = pipeline.check_file(str(source), pipeline.Options(Config(tune=Tune(budget="0")), tmp_path))
    (nest,) = report.nests
    found = several.improve(report, nest, pipeline.Options(Config(tune=Tune(budget="0")), tmp_path), "all", print)
    assert found.part is not None
    kernels = re.findall(r"static int (rows_0_mdh(?:_\d)?)\(", found.part.kernel)
    assert len(kernels) == len(found.entries) == 3 - len(slow)
    assert found.verification is not None and found.verification.handled > 0
    slow_ones = [f.diagnostic for f in found.findings if f.diagnostic.code == "MDH603"]
    assert len(slow_ones) == len(slow) and all("no kernel is chosen" in d.notes[-1] for d in slow_ones)
    if None in slow:
        assert "n <= 600" in found.part.call and found.part.call.endswith(": 0")
    else:
        assert kernels[-1] == "rows_0_mdh"
    assert (8 in slow) == ("n <= 16" not in found.part.call)


def test_conditions_are_of_what_the_names_stand_for() -> None:
    assert condition({"n": 5}, {}) == "n >= 3 && n <= 10"
    assert condition({"n": 1, "m": 0}, {"n": "g->n"}) == "(g->n) >= 1 && (g->n) <= 2 && m >= 0 && m <= 0"


def test_a_clause_twice_is_one_class(tmp_path: Path) -> None:
    source = tmp_path / "rows.c"
    source.write_text(SOURCE)
    (nest,) = pipeline.check_file(str(source), pipeline.Options(Config(), tmp_path)).nests
    assert nest.lifted is not None
    assert clauses_of(nest.lifted) == [{"n": 8}, {"n": 300}]
