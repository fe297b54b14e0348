"""The command on Python files: the same reports as for C, and what it does not do for them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mdh_lift.cli import cli
from mdh_lift.files import source_files

TEXT = """\
import numpy as np
from mdh_lift import Buffer, add, cc, combine_ops, inp, mdh, out, pw


@mdh
def matvec(n: "int32", m: "int32", w: "restrict float32[n]", M: "float32[n, m]", v: "float32[m]"):
    for i in range(n):
        w[i] = 0
        for k in range(m):
            w[i] += M[i, k] * v[k]


@mdh(out(w=Buffer[np.float32]), inp(M=Buffer[np.float32], v=Buffer[np.float32]), combine_ops(cc, pw(add)))
def factory(w, M, v):
    n, m = M.shape
    for i in range(n):
        for k in range(m):
            w[i] = M[i, k] * v[k]
"""
BROKEN = """\
from mdh_lift import mdh


@mdh
def largest(n: int, x: "float32[n]"):
    for i in range(n):
        if x[i] > 2:
            break
"""
UNDECLARED = """\
from mdh_lift import mdh


@mdh
def scale(x, y, factor):
    for i in range(len(x)):
        y[i] = factor * x[i]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in an empty directory with the three files."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"good.py": TEXT, "broken.py": BROKEN, "undeclared.py": UNDECLARED}.items():
        Path(name).write_text(text)
    return lambda *words: CliRunner().invoke(cli, list(words))


def test_check_lifts_both_spellings(run: Callable[..., Result]) -> None:
    result = run("check", "good.py", "--format", "json")
    assert result.exit_code == 0
    nests = json.loads(result.stdout)["nests"]
    assert [(n["name"], n["line"], n["status"]) for n in nests] == [
        ("good.py::matvec::0", 5, "lifted"), ("good.py::factory::0", 13, "lifted")
    ]  # fmt: skip
    ours, theirs = (n["program"] for n in nests)
    assert ours[0]["dims"] == [{"name": "i", "extent": "n", "op": "cc"}, {"name": "k", "extent": "m", "op": "pw(+)"}]
    assert theirs[0]["dims"] == ours[0]["dims"]
    (warning,) = [d for d in nests[1]["diagnostics"] if d["severity"] == "warning"]
    assert (warning["code"], warning["line"], warning["column"]) == ("MDH415", 18, 13)


def test_diagnostics_have_places(run: Callable[..., Result]) -> None:
    result = run("check", "broken.py", "--format", "concise")
    assert result.exit_code == 1
    assert result.stdout == "broken.py:8:13: error[MDH205]: `break` inside a nest\n"
    assert " |             break\n" in run("check", "broken.py").stdout


def test_undeclared_types_are_no_error(run: Callable[..., Result]) -> None:
    result = run("check", "undeclared.py", "--format", "concise")
    assert result.exit_code == 0
    said = "undeclared.py:6:20: warning[MDH216]: the types of `x`, `y` and `factor` are not declared\n"
    assert result.stdout == said


def test_files_that_are_no_python(run: Callable[..., Result]) -> None:
    Path("bad.py").write_text("from mdh_lift import mdh\n@mdh\ndef f(:\n    pass\n")
    result = run("check", "bad.py", "--format", "concise")
    assert result.exit_code == 1 and result.stdout.startswith("bad.py:3:1: error[MDH003]: the file is no Python")
    assert "MDH001" in run("check", "missing.py").stdout
    Path("plain.py").write_text("x = 1\n")
    assert "MDH007" in run("check", "plain.py").stdout


@pytest.mark.parametrize("form", ["text", "dsl", "latex", "isl", "json"])
def test_show(form: str, run: Callable[..., Result]) -> None:
    result = run("show", "good.py::factory", "--as", form)
    assert result.exit_code == 0 and "factory" in result.stdout and "matvec" not in result.stdout
    assert {"text": "md_hom[i: n, k: m]", "dsl": "PW(scalar_plus)", "latex": "md", "isl": "0 <= i < n",
            "json": '"op": "pw(+)"'}[form] in result.stdout  # fmt: skip


@pytest.mark.parametrize("stage", ["nest", "low"])
def test_show_other_stages(stage: str, run: Callable[..., Result]) -> None:
    assert run("show", "good.py::matvec", "--stage", stage).exit_code == 0


def test_a_function_that_is_not_there(run: Callable[..., Result]) -> None:
    result = run("show", "good.py::nobody")
    assert result.exit_code == 2 and "has no nest `nobody`" in result.stderr


def test_emitted_files_compile(run: Callable[..., Result], tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler
    result = run("emit", "good.py")
    assert result.exit_code == 0
    assert "int matvec_0_mdh_entry(void *const *mdh_a)" in result.stdout
    assert "int factory_0_mdh_entry(void *const *mdh_a)" in result.stdout
    Path("out.c").write_text(result.stdout)
    command = [compiler, "-std=gnu11", "-O1", "-fopenmp", "-Wall", "-Werror", "-c", "out.c", "-o", "out.o"]
    subprocess.run(command, check=True)
    Path("point.json").write_text('{"threads": ""}')
    chosen = run("emit", "good.py::matvec", "--config", "point.json").stdout
    assert " threads=," in chosen[chosen.index("configuration:") :].partition("*/")[0]


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_files_for_a_gpu_compile(target: str, run: Callable[..., Result]) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler
    for name in ("matvec", "factory"):
        result = run("emit", f"good.py::{name}", "--target", target)
        assert result.exit_code == 0
        device, entry = result.stdout.split("/* the C file that calls it */\n")
        function = re.search(rf"int (\w*{name}_0_mdh)\(", device)
        assert function is not None and f"int {name}_0_mdh_entry(void *const *mdh_a)" in entry
        Path("entry.c").write_text(entry)
        strict = ["-std=gnu11", "-Wall", "-Werror", "-fPIC", "-c"]
        subprocess.run([compiler, *strict, "entry.c", "-o", "entry.o"], check=True)
        if target == "cuda":
            Path("device.cu").write_text(device)
            command = [sys.executable, "-m", "tuning.cuda_on_cpu", "-fPIC", "-c", "device.cu", "-o", "device.o"]
            root = str(Path(__file__).parent.parent)
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": root})
        else:
            Path("device.c").write_text(device)
            subprocess.run([compiler, *strict, "device.c", "-o", "device.o"], check=True)
        undefined = subprocess.run(["nm", "-u", "entry.o"], capture_output=True, text=True, check=True).stdout.split()
        assert function[1] in undefined
        assert f" T {function[1]}\n" in subprocess.run(["nm", "device.o"], capture_output=True, text=True, check=True).stdout


def test_a_nest_may_restrict_its_targets(run: Callable[..., Result]) -> None:
    Path("gpu.py").write_text(TEXT.replace("@mdh\n", "@mdh(target=('cuda', 'opencl'))\n"))
    assert "<<<" in run("emit", "gpu.py::matvec").stdout
    assert "clCreateBuffer" in run("emit", "gpu.py::matvec", "--target", "opencl").stdout
    result = run("emit", "gpu.py::matvec", "--target", "openmp", "--format", "concise")
    assert result.exit_code == 1 and "gpu.py:5:" in result.output
    assert "error[MDH411]: target `openmp` is not among those of the nest" in result.output


def test_arrays_without_a_length_are_told_it(run: Callable[..., Result]) -> None:
    Path("gather.py").write_text(
        'from mdh_lift import mdh\n\n\n@mdh\ndef gather(n: "int64", x: "float32[:]", at: "int64[n]", y: "restrict float32[n]"):\n'
        "    for i in range(n):\n        y[i] = x[at[i]]\n"
    )
    result = run("emit", "gather.py", "--target", "cuda")
    assert result.exit_code == 0, result.output
    assert "long x_extent" in result.stdout and "at_extent" not in result.stdout


def test_flat_indices_keep_their_dimensions(run: Callable[..., Result]) -> None:
    Path("flat.py").write_text(
        'from mdh_lift import mdh\n\n\n@mdh\ndef rows(n: "int64", m: "int64", a: "float32[:]", y: "restrict float32[:]"):\n'
        "    for i in range(n):\n        for k in range(m):\n            y[i] += a[i * m + k]\n"
    )
    result = run("emit", "flat.py", "--target", "cuda")
    assert result.exit_code == 0, result.output
    assert "a[i_1*m + " in result.stdout or "*m + k" in result.stdout


def test_status(run: Callable[..., Result]) -> None:
    words = [line.split(maxsplit=1)[1] for line in run("status", "good.py", "broken.py").stdout.splitlines()]
    assert words == ["lifted, compiled when called"] * 2 + ["refused, runs as Python  MDH205"]


@pytest.mark.parametrize("words", [["-w"], ["tune"], ["verify"], ["bench"], ["splice", "-w"], ["revert"], ["splice"]])
def test_what_is_for_c_only(words: list[str], run: Callable[..., Result]) -> None:
    result = run(*words, "good.py")
    assert result.exit_code == 2 and "MDH510" in result.output and "when they are called" in result.output
    assert Path("good.py").read_text() == TEXT and not Path("mdh-lift.lock").exists()


def test_directories(run: Callable[..., Result]) -> None:
    Path("sub").mkdir()
    Path("sub/plain.py").write_text("def mdh():\n    pass\n\n\nmdh()\n")
    Path("sub/loop.c").write_text("void f(int n, float *x)\n{\n#pragma mdh\n  for (int i = 0; i < n; i++) x[i] = 1;\n}\n")
    Path("sub/method.py").write_text("import mdh_lift\nclass C:\n    @mdh_lift.mdh(fp='exact')\n    def f(self): pass\n")
    assert source_files(".") == ["broken.py", "good.py", "sub/loop.c", "sub/method.py", "undeclared.py"]
    assert run("check", "sub").exit_code == 1
    result = run("revert", ".")
    assert result.exit_code == 0 and "MDH510" not in result.output
    Path("sub/method.py").unlink()
    assert run("check", ".", "--format", "concise").stdout.count("\n") == 3
