"""What threads of the host have on a device goes when they end: contexts, queues, programs, kernels, memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gpu_emitted import has_opencl_device
from tests.gpu_user import build, file_of_nests, region

needs_opencl = pytest.mark.skipif(not has_opencl_device(), reason="there is no OpenCL device")
NESTS = """\
void doubled(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i];
}
void grown(int n, float *restrict y, const float *restrict x)
{
#pragma mdh
    for (int i = 0; i < n; i++)
        y[i] = x[i] + 1.0f;
}
"""
MAIN = """\
#include <pthread.h>
#include <stdio.h>
#include "nests_mdh.h"

static void *work(void *number)
{
    const int n = 100 + *(int *)number;
    float x[200] = {0}, y[200] = {0}, z[200] = {0};
    for (int i = 0; i < n; i++)
        x[i] = (float)i;
    begin
    int done = doubled_0_mdh(n, x, y) && (n % 2 || grown_0_mdh(n, y, z));
    end
    return done && y[n - 1] == 2.0f * (float)(n - 1) && (n % 2 || z[1] == 3.0f) ? number : 0;
}

int main(void)
{
    int right = 0;
    for (int k = 0; k < 12; k += TOGETHER) {
        pthread_t threads[TOGETHER];
        int numbers[TOGETHER];
        void *answer;
        for (int t = 0; t < TOGETHER; t++)
            numbers[t] = k + t, pthread_create(&threads[t], 0, work, &numbers[t]);
        for (int t = 0; t < TOGETHER; t++)
            pthread_join(threads[t], &answer), right += answer != 0;
    }
    printf("%d right", right);
    return 0;
}
"""
KINDS = ("Context", "CommandQueue", "Buffer", "ProgramWithSource", "Kernel")
COUNTS = """\
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdio.h>
#define COUNTED(made, T, parameters, given, released) \\
    static int made##s, made##_ends; \\
    T __real_clCreate##made parameters; T __wrap_clCreate##made parameters; \\
    T __wrap_clCreate##made parameters \\
    { return __atomic_add_fetch(&made##s, 1, __ATOMIC_SEQ_CST), __real_clCreate##made given; } \\
    cl_int __real_clRelease##released(T x); cl_int __wrap_clRelease##released(T x); \\
    cl_int __wrap_clRelease##released(T x) \\
    { return __atomic_add_fetch(&made##_ends, 1, __ATOMIC_SEQ_CST), __real_clRelease##released(x); } \\
    __attribute__((destructor)) static void made##_told(void) { fprintf(stderr, #made " %d %d\\n", made##s, made##_ends); }
typedef void (CL_CALLBACK *told)(const char *, const void *, size_t, void *);
COUNTED(Context, cl_context, (const cl_context_properties *p, cl_uint n, const cl_device_id *d, told f, void *u,
                              cl_int *e), (p, n, d, f, u, e), Context)
COUNTED(CommandQueue, cl_command_queue, (cl_context c, cl_device_id d, cl_command_queue_properties p, cl_int *e),
        (c, d, p, e), CommandQueue)
COUNTED(Buffer, cl_mem, (cl_context c, cl_mem_flags f, size_t n, void *p, cl_int *e), (c, f, n, p, e), MemObject)
COUNTED(ProgramWithSource, cl_program, (cl_context c, cl_uint n, const char **t, const size_t *l, cl_int *e),
        (c, n, t, l, e), Program)
COUNTED(Kernel, cl_kernel, (cl_program p, const char *n, cl_int *e), (p, n, e), Kernel)
"""


def _main(in_region: bool, together: int) -> str:
    begin, end = ("all_begin(x, y);", "all_end();") if in_region else ("", "")
    text = f"#define TOGETHER {together}\n{MAIN}"
    return text.replace("    begin\n", f"    {begin}\n").replace("    end\n", f"    {end}\n")


@needs_opencl
@pytest.mark.parametrize("in_region", [False, True])
def test_ends_of_threads_release_all_of_opencl(in_region: bool, tmp_path: Path) -> None:
    regions = (region("all", copy="x y"),) if in_region else ()
    file = file_of_nests(NESTS, "opencl", regions=regions)
    (tmp_path / "counts.c").write_text(COUNTS)
    names = [f"clCreate{k}" for k in KINDS]
    names += [f"clRelease{k}" for k in ("Context", "CommandQueue", "MemObject", "Program", "Kernel")]
    wraps = [f"-Wl,--wrap={n}" for n in names]
    program = build(tmp_path, _main(in_region, 3), file, "opencl", "counts.c", *wraps, "-pthread")
    done = program.run()
    assert done.stdout == "12 right", done.stderr
    counted = {kind: (int(made), int(ended)) for kind, made, ended in re.findall(r"(\w+) (\d+) (\d+)", done.stderr)}
    assert set(counted) == set(KINDS), done.stderr
    assert counted["Context"][0] == 12 and counted["Kernel"][0] == 18
    assert all(made == ended for made, ended in counted.values()), counted
    without = program.run(MDH_OPENCL_DEVICE="99")
    assert without.stdout == "0 right" and without.stderr.count("the original runs instead") == 1


@pytest.mark.parametrize("in_region", [False, True])
def test_ends_of_threads_release_memory_of_cuda(in_region: bool, tmp_path: Path) -> None:
    """One thread at a time is as many as the device has memory for."""
    regions = (region("all", copy="x y"),) if in_region else ()
    file = file_of_nests(NESTS, "cuda", regions=regions)
    program = build(tmp_path, _main(in_region, 1), file, "cuda", "-pthread")
    done = program.run(MDH_SHIM_MEMORY="4000")
    assert done.stdout == "12 right", done.stderr
