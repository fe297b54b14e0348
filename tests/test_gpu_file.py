"""Several nests in one emitted file: one runtime, one header, one Makefile fragment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from emit.gpu_file import RegionPart, gpu_file
from emit.targets import CUDA
from mdh_core.diagnostics import Refusal
from tests.gpu_emitted import has_opencl_device
from tests.gpu_user import WARNINGS, build, file_of_nests, nvcc, region

TARGETS = ("cuda", "opencl")

NESTS = """#include <stdbool.h>
typedef float real;
typedef struct { int key; real value; } pair;
static int twice(int x) { return 2 * x; }
void scale(int n, real alpha, const float *restrict x, float *restrict y)
{
#pragma mdh
    for (int i = 0; i < n; i++) y[i] = alpha * x[i];
}
void mark(int n, int m, const int *x, bool *y, pair *p)
{
#pragma mdh name(marks)
    for (int i = 0; i < n; i++) y[i] = twice(x[i]) > m;
#pragma mdh
    for (int i = 1; i < n; i++) { p[i].key = x[i - 1]; p[i].value = x[i]; }
}
double dot(int n, const double *x, const double *y)
{
    double s = 0;
#pragma mdh
    for (int i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}
"""



def _program(calls: list[str]) -> str:
    scale, marks, records, dot = calls
    return f"""#include <stdbool.h>
#include <stdio.h>
#include "nests_mdh.h"
typedef struct {{ int key; float value; }} pair;

static int scaled(int n, float alpha, const float *x, float *y) {{ return {scale}; }}
static int marked(int n, int m, const int *x, bool *y) {{ return {marks}; }}
static int paired(int n, const int *x, pair *p) {{ return {records}; }}
static double product(int n, const double *x, const double *y)
{{
    double s = 0;
    if (!({dot})) s = -1;
    return s;
}}

int main(void)
{{
    enum {{ n = 1000 }};
    static float a[n], b[n];
    static int x[n];
    static bool marks[n];
    static pair p[n];
    static double u[n], v[n];
    int done = 0, wrong = 0;
    for (int i = 0; i < n; i++) {{ a[i] = i; x[i] = i % 500; u[i] = i; v[i] = 2; }}
    for (int turn = 0; turn < 2; turn++) {{
        const int m = turn ? 700 : 300;
        done += scaled(n / (turn + 1), 2.5f, a, b);
        done += marked(n, m, x, marks);
        done += paired(n, x, p);
        wrong += product(n - turn, u, v) != 2.0*(n - turn)*(n - turn - 1)/2;
        for (int i = 0; i < n; i++)
            wrong += b[i] != 2.5f*i || marks[i] != (2*x[i] > m) || (i && (p[i].key != x[i - 1] || p[i].value != x[i]));
    }}
    done += scaled(n, 2, a, a + 1); /* they overlap */
    printf("%d done, %d wrong\\n", done, wrong);
    return 0;
}}
"""


def _skip_without_device(target: str) -> None:
    if target == "opencl" and not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")


@pytest.mark.parametrize("target", TARGETS)
def test_several_nests_of_a_file(target: str, tmp_path: Path) -> None:
    """Their arrays take each other's place on the device; header and calls compile with all warnings."""
    _skip_without_device(target)
    file = file_of_nests(NESTS.replace("restrict ", ""), target)
    assert [part.name for part in file.parts] == ["scale_0_mdh", "mark_marks_mdh", "mark_1_mdh", "dot_0_mdh"]
    program = build(tmp_path, _program([part.call for part in file.parts]), file, target)
    assert program.run().stdout == "6 done, 0 wrong\n"


def test_nvcc_compiles_the_file(tmp_path: Path) -> None:
    nvcc(tmp_path, file_of_nests(NESTS, "cuda"))


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_header_in_both_languages(compiler: str, tmp_path: Path) -> None:
    file = file_of_nests(NESTS, "cuda")
    (tmp_path / "nests_mdh.h").write_text(file.header)
    (tmp_path / "user.c").write_text('#include "nests_mdh.h"\n#include "nests_mdh.h"\nint main(void) { return 0; }\n')
    language = "c" if compiler == "gcc" else "c++"
    line = [compiler, "-x", language, "-pedantic", *WARNINGS, "-c", "user.c", "-o", "user.o"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_makefile_fragment(tmp_path: Path) -> None:
    """Included from elsewhere, it makes the object where the file is."""
    file = file_of_nests(NESTS, "opencl")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "nests_mdh.c").write_text(file.text)
    (tmp_path / "gpu" / "nests_mdh.mk").write_text(file.make)
    (tmp_path / "Makefile").write_text(
        "all: program\n\ninclude gpu/nests_mdh.mk\n\nprogram: main.c $(nests_mdh_OBJECT)\n"
        "\t$(CC) $^ $(nests_mdh_LIBS) -o $@\n"
    )
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    done = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gpu" / "nests_mdh.o").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_what_no_nest_needs_is_not_there(target: str) -> None:
    text = file_of_nests("void f(float *x) {\n#pragma mdh\n  for (int i = 0; i < 8; i++) x[i] = i;\n}\n", target).text
    for word in ("mdh_least", "uintptr_t", "mdh_too_many", "rounded"):
        assert word not in text


def test_one_name_for_two_structures() -> None:
    text = "void {0}(int n, struct pair *p) {{\n#pragma mdh\n  for (int i = 0; i < n; i++) p[i].key = 1;\n}}\n"
    one = file_of_nests("struct pair { int key; };\n" + text.format("f"), "cuda")
    other = file_of_nests("struct pair { int key, more; };\n" + text.format("g"), "cuda")
    with pytest.raises(Refusal, match="MDH417"):
        gpu_file("both", [*one.parts, *other.parts], CUDA)


ON_DEVICE = """#include <string.h>
#include "cuda_on_cpu.h"
extern "C" void *to_device(const void *from, unsigned long bytes)
{
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes) || cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice)) return nullptr;
    return memory;
}
extern "C" int to_host(void *to, const void *from, unsigned long bytes)
{
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}
"""
SCALE = """void scale(int n, const float *restrict x, float *restrict y)
{
#pragma mdh
    for (int i = 1; i < n; i++) y[i] = 2 * x[i];
}
"""


@pytest.mark.parametrize("regions", [(), (region("scale_data0_mdh", copy="y"),)], ids=["alone", "in a region"])
def test_arrays_that_are_on_the_device(regions: tuple[RegionPart, ...], tmp_path: Path) -> None:
    """They are used where they are; another array of the same call is copied."""
    file = file_of_nests(SCALE, "cuda", regions=regions)
    main = f"""#include <stdio.h>
#include "nests_mdh.h"
extern void *to_device(const void *from, unsigned long bytes);
extern int to_host(void *to, const void *from, unsigned long bytes);
int main(void)
{{
    enum {{ n = 50 }};
    float host[n], found[n];
    int wrong = 0;
    for (int i = 0; i < n; i++) host[i] = i;
    {{
        const float *x = to_device(host, sizeof host);
        float *y = to_device(host, sizeof host);
        wrong += !({file.call});
        wrong += !to_host(found, y, sizeof found);
    }}
    for (int i = 1; i < n; i++) wrong += found[i] != 2*i;
    {{
        const float *x = host;
        float *y = to_device(host, sizeof host);
        wrong += !({file.call});
        wrong += !to_host(found, y, sizeof found);
    }}
    for (int i = 1; i < n; i++) wrong += found[i] != 2*i;
    printf("%d wrong\\n", wrong);
    return 0;
}}
"""
    (tmp_path / "device.cpp").write_text(ON_DEVICE)
    done = build(tmp_path, main, file, "cuda", str(tmp_path / "device.cpp")).run(MDH_SHIM_COUNT="1")
    assert done.stdout == "0 wrong\n", done.stderr
    copies = json.loads(done.stderr.splitlines()[-1])
    assert copies["to_device"] == {"calls": 4, "bytes": 3 * 200 + 196}  # one of them by the host function
    assert copies["to_host"]["calls"] == 2


DIVIDE = """void divide(int n, const float *restrict x, float *restrict y)
{
#pragma mdh fp(POLICY)
    for (int i = 0; i < n; i++) y[i] = y[i] / x[i];
}
"""
OTHER_DEVICE = """#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <string.h>
#include "nests_mdh.h"
cl_int __real_clGetDeviceInfo(cl_device_id d, cl_device_info i, size_t n, void *p, size_t *m);
cl_int __wrap_clGetDeviceInfo(cl_device_id d, cl_device_info i, size_t n, void *p, size_t *m);
cl_int __wrap_clGetDeviceInfo(cl_device_id d, cl_device_info i, size_t n, void *p, size_t *m)
{
    cl_int answer = __real_clGetDeviceInfo(d, i, n, p, m);
    if (i == CL_DEVICE_SINGLE_FP_CONFIG) memset(p, 0, n);
    return answer;
}
cl_int __real_clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, void (CL_CALLBACK *)(cl_program, void *), void *);
cl_int __wrap_clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, void (CL_CALLBACK *)(cl_program, void *), void *);
cl_int __wrap_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *d, const char *options, void (CL_CALLBACK *f)(cl_program, void *), void *u)
{
    return strstr(options, "rounded") ? CL_INVALID_BUILD_OPTIONS : __real_clBuildProgram(p, n, d, options, f, u);
}
int main(void)
{
    float x[] = {1, 2, 4, 8}, y[] = {1, 1, 1, 1};
    int n = 4, done = NEST;
    printf("%d %g\\n", done, y[3]);
    return 0;
}
"""


@pytest.mark.parametrize(("policy", "answer"), [("fast", "1 0.125"), ("exact", "0 1")])
def test_divisions_on_a_device_that_rounds_otherwise(policy: str, answer: str, tmp_path: Path) -> None:
    """Only where the last bit matters does the original run."""
    _skip_without_device("opencl")
    file = file_of_nests(DIVIDE.replace("POLICY", policy), "opencl")
    wraps = ("-Wl,--wrap=clGetDeviceInfo", "-Wl,--wrap=clBuildProgram")
    done = build(tmp_path, OTHER_DEVICE.replace("NEST", file.call), file, "opencl", *wraps).run()
    assert done.stdout == answer + "\n", done.stderr
    assert ("rounded divisions" in done.stderr) == (policy == "exact")
