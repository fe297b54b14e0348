"""`--style outline`: OpenMP kernels in a file of their own beside the source, built as its owner would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emit.openmp_file import OpenmpPart, openmp_file
from mdh_core.diagnostics import Refusal
from mdh_lift.emitted import emitted
from mdh_lift.pipeline import Options, check_file

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "corpus"
# structures and the user's functions; scans; host loops; temporaries; lanes with a loop of their own; copies
PROGRAMS = ("user_op", "scan", "jacobi2d_time", "softmax", "mandelbrot", "weighted_histogram", "gemm_epilogue")
STRICT = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
MAKEFILE = """\
program: {stem}.c
include {stem}_openmp_mdh.mk
program: $({stem}_openmp_mdh_OBJECT)
\t$(CC) $(CFLAGS) -o $@ {stem}.c $({stem}_openmp_mdh_OBJECT) $({stem}_openmp_mdh_LIBS)
"""
TWO = """\
void first(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i];
}

void second(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[i] + 1.0f;
}
"""


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=300, env=environment
    )


def _mdh_lift(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, "-m", "mdh_lift", *arguments, cwd=cwd)


def _spliced(cwd: Path, *arguments: str) -> None:
    # speed is no matter here: --force splices what is verified, fast or not
    done = _mdh_lift("-w", "--force", "--budget", "0", *arguments, cwd=cwd)
    assert done.returncode in (0, 4), done.stdout + done.stderr
    assert "MDH7" not in done.stderr and "MDH9" not in done.stderr, done.stderr


@pytest.mark.parametrize("stem", PROGRAMS)
def test_a_program_is_made_with_the_makefile_fragment(stem: str, tmp_path: Path) -> None:
    before = (CORPUS / f"{stem}.c").read_bytes()
    (tmp_path / f"{stem}.c").write_bytes(before)
    _spliced(tmp_path, "--style", "outline", f"{stem}.c")
    text = (tmp_path / f"{stem}.c").read_text()
    assert "#pragma omp parallel" not in text
    assert f'#include "{stem}_openmp_mdh.h"' in text
    (tmp_path / "Makefile").write_text(MAKEFILE.format(stem=stem))
    made = _run("make", "CC=gcc", f"CFLAGS={' '.join(STRICT)}", cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    own = _run("gcc", *STRICT, "-fopenmp", "-Wmissing-prototypes", "-c", f"{stem}_openmp_mdh.c", cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    ran = _run(tmp_path / "program", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    header = _run("g++", "-x", "c++", "-Wall", "-Werror", "-fsyntax-only", f"{stem}_openmp_mdh.h", cwd=tmp_path)
    assert header.returncode == 0, header.stderr
    assert _mdh_lift("check", f"{stem}.c", cwd=tmp_path).returncode == 0
    off = _run("gcc", *STRICT, "-DMDH_LIFT_OFF", f"{stem}.c", "-lm", "-o", "off", cwd=tmp_path)
    assert off.returncode == 0, off.stderr  # without the file beside it
    assert _mdh_lift("revert", "-w", f"{stem}.c", cwd=tmp_path).returncode == 0
    assert (tmp_path / f"{stem}.c").read_bytes() == before
    assert {p.suffix for p in tmp_path.glob("*_mdh.*")} == {".o"}


def test_nests_share_a_file_and_styles_change(tmp_path: Path) -> None:
    source = tmp_path / "two.c"
    source.write_text(TWO)
    _spliced(tmp_path, "--style", "outline", "two.c")
    kernels = (tmp_path / "two_openmp_mdh.c").read_text()
    assert "int two_first_0_mdh(" in kernels and "int two_second_0_mdh(" in kernels
    again = source.read_bytes()
    _spliced(tmp_path, "two.c")  # as it is, without being asked
    assert source.read_bytes() == again
    _spliced(tmp_path, "two.c::first")  # the other one keeps its kernel
    assert "two_second_0_mdh(" in (tmp_path / "two_openmp_mdh.c").read_text()
    (tmp_path / "two_openmp_mdh.c").write_text(kernels.replace("2.0", "3.0"))
    edited = _mdh_lift("check", "two.c", cwd=tmp_path)
    assert edited.returncode == 1 and "MDH502" in edited.stdout
    _spliced(tmp_path, "two.c")  # --force overwrites the edit
    assert (tmp_path / "two_openmp_mdh.c").read_text() == kernels
    (tmp_path / "two_openmp_mdh.h").unlink()
    missing = _mdh_lift("check", "two.c", cwd=tmp_path)
    assert missing.returncode == 1 and "MDH501" in missing.stdout and "--style outline" in missing.stdout
    _spliced(tmp_path, "--style", "inline", "two.c")
    assert not list(tmp_path.glob("two_openmp_mdh.*"))
    assert "two_openmp" not in source.read_text() and "#pragma omp" in source.read_text()


def test_the_configuration_says_the_style(tmp_path: Path) -> None:
    (tmp_path / "two.c").write_text(TWO)
    (tmp_path / "mdh-lift.toml").write_text('schema = 1\n[splice]\nstyle = "outline"\n')
    _spliced(tmp_path, "two.c")
    assert (tmp_path / "two_openmp_mdh.c").exists()
    (tmp_path / "mdh-lift.toml").write_text('schema = 1\n[splice]\nstyle = "aside"\n')
    done = _mdh_lift("check", "two.c", cwd=tmp_path)
    assert done.returncode == 2 and "inline, outline" in done.stderr


def test_a_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "two.c").write_text(TWO)
    (tmp_path / "two_openmp_mdh.h").write_text("/* mine */\n")
    done = _mdh_lift("-w", "--force", "--budget", "0", "--style", "outline", "two.c", cwd=tmp_path)
    assert done.returncode == 2 and "MDH803" in done.stderr
    assert (tmp_path / "two_openmp_mdh.h").read_text() == "/* mine */\n"
    assert (tmp_path / "two.c").read_text() == TWO


def test_one_name_for_two_functions_is_refused() -> None:
    def part(name: str, body: str) -> OpenmpPart:
        return OpenmpPart(name, name, f"int {name}(void)", f"{name}()", "", (), (("f", (body,)),))

    assert openmp_file("a", "a.c", [part("g", "x"), part("h", "x")]).text.count("\nx\n") == 1
    with pytest.raises(Refusal, match="MDH417"):
        openmp_file("a", "a.c", [part("g", "x"), part("h", "y")])


# --------------------------------------------------------------------------- files of one name

SAME = """\
void scaled(int n, float *restrict y, const float *restrict x)
{{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = {factor}.0f * x[i];
}}
"""
CALLS = """\
#include <stdio.h>
void scaled_in_a(int, float *, const float *);
void scaled_in_b(int, float *, const float *);
int main(void)
{
    float x[5] = {1, 2, 3, 4, 5}, y[5], z[5];
    scaled_in_a(5, y, x);
    scaled_in_b(5, z, x);
    printf("%g %g", y[4], z[4]);
    return 0;
}
"""
LINKED = """\
include a/same_openmp_mdh.mk b/same_openmp_mdh.mk
program: calls.c a/same.o b/same.o $(MDH_OBJECTS)
\t$(CC) -o $@ calls.c a/same.o b/same.o $(MDH_OBJECTS) $(MDH_LIBS)
a/same.o b/same.o: %/same.o: %/same.c
\t$(CC) -O2 -c -Dscaled=scaled_in_$* $< -o $@
"""


def test_two_files_of_one_name_are_linked_together(tmp_path: Path) -> None:
    """Each calls its own kernel; names are those of every checkout, and `check` finds them."""
    names: list[list[str]] = []
    for checkout in ("one", "two"):
        root = tmp_path / checkout
        for directory, factor in (("a", 2), ("b", 3)):
            (root / directory).mkdir(parents=True)
            (root / directory / "same.c").write_text(SAME.format(factor=factor))
        (root / "mdh-lift.toml").write_text("schema = 1\n")
        where = root / "a" if checkout == "two" else root  # wherever the command is given
        _spliced(where, "--style", "outline", str(root / "a" / "same.c"), str(root / "b" / "same.c"))
        kernels = [(root / d / "same_openmp_mdh.h").read_text() for d in ("a", "b")]
        names.append([re.findall(r"int (\w+)\(", text)[0] for text in kernels])
        checked = _mdh_lift("check", "a/same.c", "b/same.c", cwd=root)
        assert checked.returncode == 0, checked.stdout
    assert names[0] == names[1] and len(set(names[0])) == 2
    (root / "calls.c").write_text(CALLS)
    (root / "Makefile").write_text(LINKED)
    made = _run("make", "CC=gcc", "program", cwd=root)
    assert made.returncode == 0, made.stdout + made.stderr
    assert _run(root / "program", cwd=root).stdout == "10 15"


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_gpu_files_of_one_name_share_no_function(target: str, tmp_path: Path) -> None:
    defined: list[set[str]] = []
    for directory in ("a", "b", "."):
        path = tmp_path / directory / "same.c"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SAME.format(factor=2))
        report = check_file(str(path), Options(root=tmp_path))
        text = emitted(report, report.nests[0], target=target)
        defined.append(set(re.findall(r"\bsame_\w*(?=\()", text)))
    assert all(defined) and not defined[0] & defined[1]
    assert "same_scaled_0_mdh" in defined[2]  # as it is called in the root
