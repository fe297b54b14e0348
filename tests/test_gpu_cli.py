"""`--target cuda|opencl` through the command line: OpenCL on its device, CUDA on the CPU (``CUDACXX``)."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.gpu_emitted import has_opencl_device
from tests.test_improve import _file, _mdh_lift

SUM = """\
#include <stddef.h>

void rows(int n, int m, float s[restrict n], float a[restrict n][m])
{
#pragma mdh sizes(n=60, m=70)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            s[i] += a[i][k] * a[i][k];
}
"""
ON_CPU = shlex.join([sys.executable, "-m", "tuning.cuda_on_cpu"])
needs_opencl = pytest.mark.skipif(
    not has_opencl_device(), reason="there is no OpenCL device (pocl-opencl-icd makes the processor one)"
)
TARGETS = [pytest.param("opencl", marks=needs_opencl), "cuda"]


def _gpu(directory: Path, *arguments: str, **environment: str):  # type: ignore[no-untyped-def]
    return _mdh_lift(directory, *arguments, **{"CUDACXX": ON_CPU, **environment})


@pytest.mark.parametrize("target", TARGETS)
def test_verify(target: str, tmp_path: Path) -> None:
    _file(tmp_path, SUM)
    done = _gpu(tmp_path, "--format", "json", "verify", "--target", target, "f.c")
    assert done.returncode == 0, done.stderr
    (nest,) = json.loads(done.stdout)["nests"]
    checked = nest["verification"]
    assert nest["target"] == target and checked["outcome"] == "ok"
    assert checked["handled"] == checked["cases"] > 40, "all of it ran on the device"
    assert any("n=0" in size for size in checked["sizes"])
    assert nest["certificate"]["holds"] is False


@pytest.mark.parametrize("target", TARGETS)
def test_wrong_code_is_a_wrong_result(target: str, tmp_path: Path) -> None:
    """A compiler that takes a product for a sum."""
    _file(tmp_path, SUM)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import pathlib, subprocess, sys\n"
        "a = sys.argv[1:]\n"
        "for k, x in enumerate(a):\n"
        "    if x.endswith(('unit.c', 'unit.cu')):\n"
        "        t = pathlib.Path(x).read_text()\n"
        "        assert ' * a[' in t\n"
        "        pathlib.Path(x).write_text(t.replace(' * a[', ' + a['))\n"
        f"sys.exit(subprocess.run([*{shlex.split(ON_CPU) if target == 'cuda' else ['gcc']!r}, *a]).returncode)\n"
    )
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(wrong))} \"$@\"\n")
    compiler.chmod(0o755)
    words = ["--", str(compiler), "-O2"] if target == "opencl" else []
    done = _gpu(tmp_path, "verify", "--target", target, "f.c", *words, CUDACXX=str(compiler))
    assert done.returncode == 3, done.stderr
    assert "error[MDH701]" in done.stderr


@pytest.mark.parametrize("target", TARGETS[:1])  # CUDA on the CPU takes a minute
def test_tune_keeps_results_for_the_device(target: str, tmp_path: Path) -> None:
    _file(tmp_path, SUM)
    first = _gpu(tmp_path, "tune", "--target", target, "--budget", "3ev", "f.c")
    assert first.returncode in (0, 1), first.stderr  # 1: no speedup is a warning that counts
    lock = (tmp_path / "mdh-lift.lock").read_text()
    ((fingerprint, classes),) = json.loads(lock)["nests"]["f.c::rows::0"].items()
    (entry,) = classes.values()
    assert f"-{target}-" in fingerprint
    assert entry["versions"]["device"] and entry["versions"][f"compiler for {target}"]
    assert entry["configuration"]["point"]["fast"] in ("i", "k")
    assert "threads" not in entry["configuration"]["point"], "that is a parameter of OpenMP"
    again = _gpu(tmp_path, "tune", "--target", target, "--budget", "3ev", "--replay", "f.c")
    assert "MDH6" not in again.stderr.replace("MDH603", "").replace("MDH604", ""), again.stderr
    replayed = json.loads((tmp_path / "mdh-lift.lock").read_text())
    ((_, classes),) = replayed["nests"]["f.c::rows::0"].items()
    assert next(iter(classes.values()))["configuration"] == entry["configuration"]


def test_no_compiler_for_the_target(tmp_path: Path) -> None:
    _file(tmp_path, SUM)
    done = _gpu(tmp_path, "verify", "--target", "cuda", "f.c", CUDACXX="no-such-nvcc")
    assert done.returncode == 4 and "error[MDH805]" in done.stderr
    assert "no-such-nvcc" in done.stderr and "Traceback" not in done.stderr


def test_no_cuda_device(tmp_path: Path) -> None:
    _file(tmp_path, SUM)
    done = _gpu(tmp_path, "tune", "--target", "cuda", "f.c", MDH_SHIM_DEVICES="0")
    assert done.returncode == 4 and "error[MDH806]" in done.stderr
    assert not (tmp_path / "mdh-lift.lock").exists()


@needs_opencl
def test_no_opencl_device(tmp_path: Path) -> None:
    _file(tmp_path, SUM)
    done = _gpu(tmp_path, "verify", "--target", "opencl", "f.c", MDH_OPENCL_DEVICE="99")
    assert done.returncode == 4 and "error[MDH806]" in done.stderr
    assert "number 99 is asked for" in done.stderr


def test_target_of_the_nest(tmp_path: Path) -> None:
    _file(tmp_path, SUM.replace("#pragma mdh", "#pragma mdh target(cuda)"))
    shown = _mdh_lift(tmp_path, "emit", "f.c")
    assert shown.returncode == 0 and "cuda_runtime.h" in shown.stdout
    refused = _mdh_lift(tmp_path, "emit", "--target", "openmp", "f.c")
    assert refused.returncode == 1 and "error[MDH411]" in refused.stderr
    assert "target(cuda)" in refused.stderr and "omp" not in refused.stdout
    (tmp_path / "mdh-lift.toml").write_text("[tune]\ntarget = 'opencl'\n")
    of_file = _mdh_lift(tmp_path, "emit", "f.c")
    assert "error[MDH411]" in of_file.stderr
    (tmp_path / "mdh-lift.toml").write_text("[tune]\ntarget = 'fpga'\n")
    unknown = _mdh_lift(tmp_path, "emit", "f.c")
    assert unknown.returncode == 2 and "none of openmp, cuda, opencl" in unknown.stderr
