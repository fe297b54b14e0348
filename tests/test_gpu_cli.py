"""`--target cuda|opencl` through the command line: OpenCL on its device, CUDA on the CPU (``CUDACXX``)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from emit.gpu_file import GpuFile
from emit.targets import TARGETS as TARGETS_BY_NAME
from mdh_core.diagnostics import Refusal
from mdh_core.source import NO_SPAN
from mdh_lift import beside, verbs
from mdh_lift.improve import Improvement
from mdh_lift.pipeline import Options, check_file
from mdh_lift.splice import Region
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


SCALAR = """\
int prefix(int n, const int *restrict start, int *restrict end)
{
    int carry = 0;
#pragma mdh
    for (int i = 0; i < n; i++) {
        carry += start[i];
        end[i] = carry;
    }
    return carry;
}
"""


@pytest.mark.parametrize("target", TARGETS[:1])  # CUDA on the CPU takes most of a minute
def test_scalar_of_the_function_is_a_result(target: str, tmp_path: Path) -> None:
    """Its address is found, and arrays called as variables of kernels are no trouble."""
    _file(tmp_path, SCALAR)
    done = _gpu(tmp_path, "--format", "json", "verify", "--target", target, "f.c")
    assert done.returncode == 0, done.stderr
    (nest,) = json.loads(done.stdout)["nests"]
    checked = nest["verification"]
    assert checked["outcome"] == "ok" and checked["handled"] == checked["cases"]


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
    done = _gpu(tmp_path, "verify", "--target", "opencl", "f.c", MDH_OPENCL_DEVICE="abc")
    assert done.returncode == 4 and "error[MDH806]" in done.stderr
    assert "MDH_OPENCL_DEVICE is no number" in done.stderr


@needs_opencl
def test_options_that_the_opencl_compiler_refuses(tmp_path: Path) -> None:
    """What it says is told, and nothing is about the nest."""
    _file(tmp_path, SUM)
    done = _gpu(tmp_path, "verify", "--target", "opencl", "f.c", MDH_OPENCL_OPTIONS="-no-such-option")
    assert done.returncode == 4 and "error[MDH805]" in done.stderr
    assert "MDH_OPENCL_OPTIONS=`-no-such-option`" in done.stderr and "MDH607" not in done.stderr


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


TWO = """\
#include <stdio.h>
#include <stdlib.h>

static float a[300][200], s[300], t[200];

static void rows(int n, int m)
{
    /* sums of squares */
#pragma mdh sizes(n=300, m=200)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            s[i] += a[i][k] * a[i][k];
}

void columns(int n, int m)
{
#pragma mdh sizes(n=300, m=200)
    for (int k = 0; k < m; k++)
        for (int i = 0; i < n; i++)
            t[k] += a[i][k];
}

int main(void)
{
    for (int i = 0; i < 300; i++)
        for (int k = 0; k < 200; k++)
            a[i][k] = i % 7 - k % 5;
    rows(300, 200);
    columns(300, 200);
    for (int i = 0; i < 300; i++)
        printf("%g ", s[i]);
    for (int k = 0; k < 200; k++)
        printf("%g ", t[k]);
    return 0;
}
"""


THREADS = """\
#include <pthread.h>
#include <stdio.h>
#include "two_opencl_mdh.h"

static pthread_barrier_t together;

static void *summed(void *unused)
{
    float a[300][200], s[300] = {0};
    for (int i = 0; i < 300; i++)
        for (int k = 0; k < 200; k++)
            a[i][k] = 1;
    pthread_barrier_wait(&together);
    return two_rows_0_mdh(300, 200, &a[0][0], s) && s[7] == 200 && s[299] == 200 ? &together : 0;
}

int main(void)
{
    pthread_t threads[8];
    void *answer;
    int right = 0;
    pthread_barrier_init(&together, 0, 8);
    for (int k = 0; k < 8; k++)
        pthread_create(&threads[k], 0, summed, 0);
    for (int k = 0; k < 8; k++)
        pthread_join(threads[k], &answer), right += answer != 0;
    printf("%d", right);
    return 0;
}
"""


def _made(directory: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@needs_opencl
def test_spliced_file_runs_on_the_device_and_without(tmp_path: Path) -> None:
    """Two nests share one generated file, which the user's Makefile builds; the original is the fallback."""
    path = _file(tmp_path, TWO, "two.c")
    bare = path.read_bytes()
    assert _made(tmp_path, "gcc", "-w", "two.c", "-o", "plain").returncode == 0
    expected = _made(tmp_path, "./plain").stdout
    printed = _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "two.c")
    assert printed.returncode == 1 and "+++ b/two_opencl_mdh.c" in printed.stdout
    written = {x.name for x in tmp_path.iterdir()} - {".mdh-lift"}  # where the database is
    assert written == {"plain", "two.c"}, "a diff writes nothing"
    done = _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "-w", "two.c")
    assert done.returncode == 0, done.stderr
    (tmp_path / "Makefile").write_text(
        "two: two.o\n\ninclude two_opencl_mdh.mk\n\ntwo: $(two_opencl_mdh_OBJECT)\n"
        "\t$(CC) $^ -o $@ $(two_opencl_mdh_LIBS)\n"
        "two.o: CFLAGS = -O2 -Wall -Wextra -Wno-unknown-pragmas -Werror\n"
    )
    assert _made(tmp_path, "make", "two").returncode == 0
    on_device = _made(tmp_path, "./two")
    assert on_device.stdout == expected and on_device.stderr == ""
    without = _made(tmp_path, "./two", MDH_OPENCL_DEVICE="99")
    assert without.stdout == expected
    assert without.stderr.count("the original runs instead") == 1, "stated once"
    _file(tmp_path, THREADS, "threads.c")
    sources = ["threads.c", "two_opencl_mdh.c", "-lOpenCL", "-pthread"]
    assert _made(tmp_path, "gcc", "-w", *sources, "-o", "threads").returncode == 0
    for _ in range(5):
        several = _made(tmp_path, "./threads")
        assert (several.stdout, several.stderr) == ("8", ""), "threads start the device together"
    off = _made(tmp_path, "gcc", "-w", "-DMDH_LIFT_OFF", "two.c", "-o", "off")
    assert off.returncode == 0 and _made(tmp_path, "./off").stdout == expected
    checked = _gpu(tmp_path, "check", "two.c")  # also against the lock file
    assert checked.returncode == 0 and "2 spliced" in checked.stderr
    again = _gpu(tmp_path, "splice", "--target", "opencl", "--force", "two.c::rows")
    assert again.returncode == 0 and "---" not in again.stdout, "splicing twice, or a part, is the same as once"
    reverted = _gpu(tmp_path, "revert", "-w", "two.c")
    assert reverted.returncode == 0 and path.read_bytes() == bare
    assert not list(tmp_path.glob("two_opencl_mdh.[chm]*"))


@needs_opencl
def test_generated_files_are_watched(tmp_path: Path) -> None:
    path = _file(tmp_path, SUM)
    assert _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "-w", "f.c").returncode == 0
    spliced = path.read_bytes()
    header = tmp_path / "f_opencl_mdh.h"
    made = header.read_bytes()
    header.write_bytes(made + b"/* mine */\n")
    edited = _gpu(tmp_path, "check", "f.c")
    assert edited.returncode == 1 and "`f_opencl_mdh.h` was edited" in edited.stdout + edited.stderr
    refused = _gpu(tmp_path, "splice", "--target", "opencl", "-w", "f.c")
    assert refused.returncode == 1 and "MDH502" in refused.stderr
    assert header.read_bytes() == made + b"/* mine */\n"
    assert _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "-w", "f.c").returncode == 0
    assert header.read_bytes() == made and path.read_bytes() == spliced
    path.write_bytes(spliced.replace(b"a[i][k] * a[i][k]", b"a[i][k]"))
    assert "`mdh-lift -w --target opencl f.c` makes it again" in _gpu(tmp_path, "check", "f.c").stdout
    path.write_bytes(spliced)
    (tmp_path / "f_opencl_mdh.c").unlink()
    stale = _gpu(tmp_path, "status", "f.c")
    assert stale.returncode == 1 and "stale" in stale.stdout


@needs_opencl
def test_file_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    path = _file(tmp_path, SUM)
    bare = path.read_bytes()
    _file(tmp_path, "/* mine */\n", "f_opencl_mdh.h")
    done = _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "-w", "f.c")
    assert done.returncode == 2 and "error[MDH803]" in done.stderr
    assert path.read_bytes() == bare and (tmp_path / "f_opencl_mdh.h").read_text() == "/* mine */\n"
    assert not (tmp_path / "f_opencl_mdh.c").exists()
    assert "help: move it away" in done.stderr


def test_sources_that_share_generated_names(tmp_path: Path) -> None:
    """What was made for `a_b.c` is not overwritten for `a-b.c`; another name for a source helps, a move does not."""
    text = beside._signed("a_b_opencl_mdh.h", "a_b.c", "int f(void);")
    _file(tmp_path, text.decode(), "a_b_opencl_mdh.h")
    made = GpuFile("a_b_opencl_mdh", "", "", "", ())
    with pytest.raises(Refusal) as refused:
        beside.files(str(tmp_path / "a-b.c"), made, TARGETS_BY_NAME["opencl"], force=True)
    assert refused.value.diagnostic.code == "MDH803"
    assert "generated for a_b.c" in refused.value.diagnostic.help


def test_candidates_that_spill_are_not_run(tmp_path: Path) -> None:
    """A compiler that reports, as ptxas does, that nothing fits into registers."""
    _file(tmp_path, SUM.replace("n=60, m=70", "n=6, m=7"))
    program = tmp_path / "spills.py"
    program.write_text(
        "import subprocess, sys\n"
        f"done = subprocess.run([*{shlex.split(ON_CPU)!r}, *sys.argv[1:]])\n"
        "for line in ('Compiling entry function \\'_Z17f_rows_0_mdh_k_0v\\' for \\'sm_90\\'',\n"
        "             'Function properties for _Z17f_rows_0_mdh_k_0v',\n"
        "             '    8 bytes stack frame, 24 bytes spill stores, 24 bytes spill loads',\n"
        "             'Used 255 registers'):\n"
        "    print('ptxas info    :', line, file=sys.stderr)\n"
        "sys.exit(done.returncode)\n"
    )
    compiler = shlex.join([sys.executable, str(program)])
    done = _gpu(tmp_path, "-v", "tune", "--target", "cuda", "--budget", "2ev", "f.c", CUDACXX=compiler)
    assert "over_limits" in done.stderr and "bytes of registers are spilled" in done.stderr
    verified = _gpu(tmp_path, "verify", "--target", "cuda", "f.c", CUDACXX=compiler)
    assert verified.returncode == 0, "slow is not wrong"


JACOBI = """\
#include <stdio.h>
#include <stdlib.h>

void jacobi(int n, int steps, float A[restrict n][n], float B[restrict n][n])
{
#pragma mdh data copy(A) create(B)
    {
        for (int t = 0; t < steps; t++) {
#pragma mdh sizes(n=60)
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    B[i][j] = 0.25f * (A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]);
#pragma mdh sizes(n=60)
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    A[i][j] = B[i][j];
        }
    }
}

int main(void)
{
    int n = 50;
    float (*A)[n] = malloc(sizeof(float[n][n])), (*B)[n] = calloc(n, sizeof(float[n]));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            A[i][j] = (i * 7 + j * 3) % 11;
    jacobi(n, 100, A, B);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            printf("%.9g ", A[i][j]);
    return 0;
}
"""
COUNTS = """\
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#define PARAMETERS (cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t n, POINTER p, cl_uint k, \\
                    const cl_event *l, cl_event *e)
static int up, down;
__attribute__((destructor)) static void told(void) { fprintf(stderr, "up %d down %d", up, down); }
#define POINTER const void *
cl_int __real_clEnqueueWriteBuffer PARAMETERS;
cl_int __wrap_clEnqueueWriteBuffer PARAMETERS { return up++, __real_clEnqueueWriteBuffer(q, m, b, o, n, p, k, l, e); }
#undef POINTER
#define POINTER void *
cl_int __real_clEnqueueReadBuffer PARAMETERS;
cl_int __wrap_clEnqueueReadBuffer PARAMETERS { return down++, __real_clEnqueueReadBuffer(q, m, b, o, n, p, k, l, e); }
"""


@needs_opencl
def test_spliced_data_region_copies_once(tmp_path: Path) -> None:
    """A hundred steps of two nests: what the directive names travels once."""
    path = _file(tmp_path, JACOBI, "jacobi.c")
    bare = path.read_bytes()
    assert _made(tmp_path, "gcc", "-w", "jacobi.c", "-o", "plain").returncode == 0
    expected = _made(tmp_path, "./plain").stdout
    done = _gpu(tmp_path, "--budget", "0", "--target", "opencl", "--force", "-w", "jacobi.c")
    assert done.returncode == 0, done.stderr
    assert "MDH50" not in _gpu(tmp_path, "check", "jacobi.c").stdout
    _file(tmp_path, COUNTS, "counts.c")
    wraps = [f"-Wl,--wrap=clEnqueue{x}Buffer" for x in ("Write", "Read")]
    sources = ["jacobi.c", "jacobi_opencl_mdh.c", "counts.c"]
    assert _made(tmp_path, "gcc", "-w", *sources, *wraps, "-lOpenCL", "-o", "gpu").returncode == 0
    ran = _made(tmp_path, "./gpu")
    assert (ran.stdout, ran.stderr) == (expected, "up 1 down 1")
    without = _made(tmp_path, "./gpu", MDH_OPENCL_DEVICE="99")
    assert without.stdout == expected
    spliced = path.read_text()
    path.write_text(spliced.replace("copy(A) create(B)", "copy(A, B)"))
    stale = _gpu(tmp_path, "status", "jacobi.c")
    assert stale.returncode == 1 and "MDH501 splice of `jacobi::data0` is stale" in stale.stdout
    path.write_text(spliced.replace("        for (int t", "        A[3][3] = 5;\n        for (int t"))
    used = _gpu(tmp_path, "status", "jacobi.c")
    assert used.returncode == 1 and "MDH419" in used.stdout
    path.write_text(spliced)
    # one of the nests goes: with arrays on the device its original would see old values
    assert _gpu(tmp_path, "revert", "-w", "jacobi.c::jacobi::1").returncode == 0
    text = path.read_text()
    assert "jacobi_0_mdh(" in text and "jacobi_1_mdh(" not in text and "data0_mdh" not in text
    assert _made(tmp_path, "gcc", "-w", *sources, *wraps, "-lOpenCL", "-o", "gpu").returncode == 0
    ran = _made(tmp_path, "./gpu")
    assert (ran.stdout, ran.stderr) == (expected, "up 200 down 100")
    assert _gpu(tmp_path, "revert", "-w", "jacobi.c").returncode == 0
    assert path.read_bytes() == bare


def test_nests_left_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour in the generated file cannot be made again: nothing is written for the others, and that is said."""
    two = SUM + SUM.replace("rows", "again").replace("#include <stddef.h>\n", "")
    report = check_file(str(_file(tmp_path, two)))
    first, second = report.nests
    region = Region("again::0", "kernel", NO_SPAN, NO_SPAN, "fresh", text=b'#include "f_opencl_mdh.h"\n')
    report = replace(report, nests=(first, replace(second, regions=(region,))))
    made = [Improvement(first.name, "", "opencl", apart=(object(),))]  # type: ignore[arg-type]
    monkeypatch.setattr(verbs, "_improved", lambda *_: None)
    session = SimpleNamespace(findings=[])
    assert verbs.with_neighbours(session, report, Options(), made) == []  # type: ignore[arg-type]
    (told,) = session.findings
    assert told.diagnostic.code == "MDH516"
    assert "`rows::0` is left as it is: `again::0`" in told.diagnostic.message
    monkeypatch.setattr(verbs, "_improved", lambda _, __, n, *___: Improvement(n.name, "", "opencl", apart=(object(),)))  # type: ignore[arg-type]
    assert [i.name for i in verbs.with_neighbours(session, report, Options(), made)] == [first.name, second.name]  # type: ignore[arg-type]
    assert len(session.findings) == 1


@pytest.mark.parametrize("suffix", [".c", ".h", ".mk"])
def test_edited_generated_files_are_noticed(suffix: str, tmp_path: Path) -> None:
    """Of each of the three; a missing fragment for a Makefile is nothing."""
    source = _file(tmp_path, SUM)
    file = GpuFile("f_opencl_mdh", "int x;\n", "int y;\n", "z = 1\n", ())
    for change in beside.files(str(source), file, TARGETS_BY_NAME["opencl"]):
        beside.write(change, str(source))
    regions = [Region("rows::0", "kernel", NO_SPAN, NO_SPAN, "fresh", text=b'#include "f_opencl_mdh.h"\n')]
    assert beside.faults(str(source), regions) == []
    path = tmp_path / f"f_opencl_mdh{suffix}"
    path.write_text(path.read_text().replace("1", "2", 1).replace("int", "long"))
    (found,) = beside.faults(str(source), regions)
    assert found.code == "MDH502" and path.name in found.message
    path.unlink()
    assert [d.code for d in beside.faults(str(source), regions)] == ([] if suffix == ".mk" else ["MDH501"])
