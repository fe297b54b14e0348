"""Arrays of a data region travel once; what declines or fails inside of one leaves the original's result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emit.gpu_file import GpuFile
from tests.gpu_emitted import has_opencl_device
from tests.gpu_user import Built, build, file_of_nests, nvcc, region

TARGETS = ("cuda", "opencl")
N, STEPS = 30, 100
COUNTED = ("clEnqueueWriteBuffer", "clEnqueueReadBuffer", "clEnqueueNDRangeKernel")

# a step with a large weight declines
NESTS = """
void smooth(int n, float w, const float A[n][n], float B[n][n])
{
#pragma mdh assume(w < 0.5f)
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            B[i][j] = w * (A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]);
}
void back(int n, float A[n][n], const float B[n][n])
{
#pragma mdh
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            A[i][j] = B[i][j];
}
void add(int n, const float *r, float *s)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        s[i] = s[i] + r[i];
}
"""

WITHOUT_SWAP = """
    jacobi_data0_mdh_begin(A, B);
    {
        for (int step = 0; step < STEPS; step++) {
            const float w = step == refused ? 0.75f : 0.25f;
            if (!(SMOOTH)) { smooth(n, w, A, B); declined++; }
            if (!(BACK)) { back(n, A, B); declined++; }
        }
    }
    jacobi_data0_mdh_end();
"""
WITH_SWAP = """
    jacobi_data0_mdh_begin(A, B);
    {
        for (int step = 0; step < STEPS; step++) {
            const float w = step == refused ? 0.75f : 0.25f;
            if (!(SMOOTH)) { smooth(n, w, A, B); declined++; }
            float (*t)[n] = A;
            A = B;
            B = t;
        }
    }
    jacobi_data0_mdh_end();
"""
# a part of an array, an array of no directive that overlaps it, and a region inside of one
MIXED = """
    jacobi_data0_mdh_begin(A, B);
    {
        for (int step = 0; step < STEPS; step++) {
            const float w = step == refused ? 0.75f : 0.25f;
            if (!(SMOOTH)) { smooth(n, w, A, B); declined++; }
            if (step % 10 == 0) {
                float *r = &B[3][5], *s = &sums[step];
                if (!(ADD)) { add(n, r, s); declined++; }
                r = &B[2][7], s = &A[n - 2][5];
                if (!(ADD)) { add(n, r, s); declined++; }
                enum { n = 150 }; /* beyond the end of A, read and written */
                r = &A[26][5], s = &sums[step];
                if (!(ADD)) { add(n, r, s); declined++; }
                r = &B[2][7], s = &A[26][5];
                if (!(ADD)) { add(n, r, s); declined++; }
            }
            jacobi_data0_mdh_begin(A, B);
            if (!(BACK)) { back(n, A, B); declined++; }
            jacobi_data0_mdh_end();
        }
    }
    jacobi_data0_mdh_end();
"""

PROGRAM = r"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nests_mdh.h"
#define STEPS 100
enum { n = 30 };
COUNTERS
static void smooth(int m, float w, float (*A)[n], float (*B)[n])
{
    for (int i = 1; i < m - 1; i++)
        for (int j = 1; j < m - 1; j++)
            B[i][j] = w * (A[i - 1][j] + A[i + 1][j] + A[i][j - 1] + A[i][j + 1]);
}
static inline void back(int m, float (*A)[n], float (*B)[n])
{
    for (int i = 1; i < m - 1; i++)
        for (int j = 1; j < m - 1; j++) A[i][j] = B[i][j];
}
static inline void add(int m, const float *r, float *s) { for (int i = 0; i < m; i++) s[i] = s[i] + r[i]; }

static float one[2*n*n], two[n*n], sums[2*n*n];
static int declined;

static void run(int on_device, int refused)
{
    float (*A)[n] = (float (*)[n])one, (*B)[n] = (float (*)[n])two;
    for (int i = 0; i < 2*n*n; i++) one[i] = (float)(i*7 % 23);
    memset(sums, 0, sizeof sums);
    memcpy(two, one, sizeof two);
    if (on_device) { DEVICE }
    else { HOST }
}

int main(int argc, char **argv)
{
    static float first[2*n*n], second[n*n], third[2*n*n];
    (void)argc;
    run(0, atoi(argv[1]));
    memcpy(first, one, sizeof one);
    memcpy(second, two, sizeof two);
    memcpy(third, sums, sizeof sums);
    run(1, atoi(argv[1]));
    printf("%d declined, same:", declined);
    printf(" %d", !memcmp(first, one, sizeof one));
    printf(" %d", !memcmp(second, two, sizeof two));
    printf(" %d\n", !memcmp(third, sums, sizeof sums));
    return COUNTS 0;
}
"""
WRAPPED = r"""
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
static int to_device, to_host, launches, fails_at;
cl_int __real_clEnqueueWriteBuffer(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p, cl_uint k, const cl_event *e, cl_event *f);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, const void *p, cl_uint k, const cl_event *e, cl_event *f)
{ to_device++; return __real_clEnqueueWriteBuffer(q, m, b, o, s, p, k, e, f); }
cl_int __real_clEnqueueReadBuffer(cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint k, const cl_event *e, cl_event *f);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool b, size_t o, size_t s, void *p, cl_uint k, const cl_event *e, cl_event *f)
{ to_host++; return __real_clEnqueueReadBuffer(q, m, b, o, s, p, k, e, f); }
cl_int __real_clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const cl_event *, cl_event *);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel c, cl_uint d, const size_t *o, const size_t *g, const size_t *l, cl_uint k, const cl_event *e, cl_event *f);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel c, cl_uint d, const size_t *o, const size_t *g, const size_t *l, cl_uint k, const cl_event *e, cl_event *f)
{
    if (getenv("FAIL_LAUNCH")) fails_at = atoi(getenv("FAIL_LAUNCH"));
    return ++launches == fails_at ? CL_OUT_OF_RESOURCES : __real_clEnqueueNDRangeKernel(q, c, d, o, g, l, k, e, f);
}
"""


def _built(directory: Path, target: str, steps: str, **clauses: str) -> tuple[Built, GpuFile]:
    file = file_of_nests(NESTS, target, regions=(region("jacobi_data0_mdh", **clauses),))
    calls = dict(zip(("SMOOTH", "BACK", "ADD"), (p.call for p in file.parts), strict=True))
    device = re.sub("SMOOTH|BACK|ADD", lambda m: calls[m[0]], steps)
    host = re.sub("SMOOTH|BACK|ADD", "0", re.sub(r"jacobi_data0_mdh_.*", "", steps))
    host = host.replace("declined++; ", "")
    text = PROGRAM.replace("DEVICE", device).replace("HOST", host)
    counted = target == "opencl"
    text = text.replace("COUNTERS", WRAPPED if counted else "")
    shown = 'fprintf(stderr, "{\\"to_device\\": {\\"calls\\": %d}, \\"to_host\\": {\\"calls\\": %d}}\\n", to_device, to_host) < 0 ||'
    text = text.replace("COUNTS", shown if counted else "")
    options = [f"-Wl,--wrap={name}" for name in COUNTED] if counted else []
    return build(directory, text, file, target, *options), file


def _skip_without_device(target: str) -> None:
    if target == "opencl" and not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")


def _copies(told: str) -> tuple[int, int]:
    counted = json.loads(told.splitlines()[-1])
    return counted["to_device"]["calls"], counted["to_host"]["calls"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("steps", "clauses", "copies", "same"),
    [
        (WITHOUT_SWAP, {"copy": "A", "create": "B"}, (1, 1), "1 0 1"),
        (WITHOUT_SWAP, {"copyout": "A B"}, (2, 2), "1 1 1"),
        (WITH_SWAP, {"copy": "A B"}, (2, 2), "1 1 1"),
    ],
    ids=["without a swap", "both", "with a swap"],
)
def test_jacobi_copies_once(
    target: str, steps: str, clauses: dict[str, str], copies: tuple[int, int], same: str, tmp_path: Path
) -> None:
    _skip_without_device(target)
    program, file = _built(tmp_path, target, steps, **clauses)
    if target == "cuda":
        nvcc(tmp_path, file)
    done = program.run("-1", MDH_SHIM_COUNT="1")
    assert done.stdout == f"0 declined, same: {same}\n", done.stderr
    assert _copies(done.stderr) == copies
    for where in ("0", "50", "99"):  # a guard
        done = program.run(where)
        assert done.stdout == f"1 declined, same: {same}\n", done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_parts_and_overlaps(target: str, tmp_path: Path) -> None:
    """A nest outside of the directive reads and writes parts of its arrays; a region stands in another one."""
    _skip_without_device(target)
    program, _ = _built(tmp_path, target, MIXED, copy="A B")
    for where in ("-1", "10", "50"):
        done = program.run(where)
        assert done.stdout == f"{int(where != '-1')} declined, same: 1 1 1\n", done.stderr


@pytest.mark.parametrize("steps", [WITHOUT_SWAP, WITH_SWAP, MIXED], ids=["without a swap", "with a swap", "mixed"])
def test_calls_that_fail_on_cuda(steps: str, tmp_path: Path) -> None:
    """The original runs on what the device had newer, and the next nest on what the original wrote."""
    program, _ = _built(tmp_path, "cuda", steps, copy="A B")
    for failing in ("launch:1", "launch:50", "launch:51", "memory:1", "memory:2", "copy:1", "copy:2"):
        done = program.run("-1", MDH_SHIM_FAIL=failing)
        assert done.stdout == "1 declined, same: 1 1 1\n", (failing, done.stderr)
        assert done.stderr.count("the original runs instead") == 1, failing
    for failing in ("launch:1+", "memory:1+", "memory:2+"):
        done = program.run("-1", MDH_SHIM_FAIL=failing)
        assert done.stdout.endswith(" declined, same: 1 1 1\n"), (failing, done.stderr)
        assert done.stderr.count("the original runs instead") == 1, failing


@pytest.mark.parametrize("failing", ["copy:3", "copy:4+", "launch:40+", "wait:20", "wait:20+", "copy:4"])
def test_no_wrong_result_where_the_device_is_lost(failing: str, tmp_path: Path, cuda: Built) -> None:
    """What is on the device alone cannot be got back: the program ends, and says why; or all is well."""
    done = cuda.run("50", MDH_SHIM_FAIL=failing)
    lost = "mdh-lift: what only the device has cannot be read back; the program ends" in done.stderr
    assert lost == (done.returncode < 0)
    assert lost or done.stdout.endswith("same: 1 1 1\n"), (failing, done.stderr)
    assert lost == failing.startswith(("wait", "copy")), done.stderr


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Built:
    program, _ = _built(tmp_path_factory.mktemp("cuda"), "cuda", WITHOUT_SWAP, copy="A B")
    return program


def test_calls_that_fail_on_opencl(tmp_path: Path) -> None:
    _skip_without_device("opencl")
    program, _ = _built(tmp_path, "opencl", MIXED, copy="A B")
    for failing in ("1", "50", "51"):
        done = program.run("-1", FAIL_LAUNCH=failing)
        assert done.stdout == "1 declined, same: 1 1 1\n", (failing, done.stderr)
        assert done.stderr.count("the original runs instead") == 1, failing
