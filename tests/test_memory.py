"""Temporaries on the heap: large ones ask for large pages, small ones and those that there are none of do not."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.machine import GENERIC
from lowering.point import configuration_at
from mdh_core.ir import MdhProgram
from tests.compilers import COMPILERS
from tests.lifting import lifted

LIMIT = 4 << 20  # bytes from which on pages are asked for
PROGRAM = """#include <stdlib.h>
#include <stdio.h>
#include <stdint.h>
#include <sys/mman.h>
static uintptr_t first, bytes;
static int calls, fails;
int madvise(void *place, size_t length, int advice)
{{
  calls++;
  if ((uintptr_t)place % 4096 || advice != MADV_HUGEPAGE) fails |= 1;
  if ((uintptr_t)place < first || (uintptr_t)place + length > first + bytes) fails |= 2;
  if (length + 8192 < bytes) fails |= 4;
  return -1; /* what it says is of no importance */
}}
static void *some(size_t n)
{{
  void *place = {given};
  first = (uintptr_t)place, bytes = n;
  return place;
}}
#define __builtin_malloc some
#include "kernel.h"
int main(void)
{{
  void *place = MDH_MEMORY({n}ul);
  printf("%d %d %d", place != 0, calls, fails);
  free(place);
  return 0;
}}
"""


def kernel(constant: bool) -> str:
    """Of a product whose threads share the sums: each part has results of its own, 32 MB each."""
    size = "2000" if constant else "n"
    text = f"""void f(int n, double C[{size}][{size}], double A[{size}][{size}]) {{
#pragma mdh
    for (int i = 0; i < {size}; i++) for (int j = 0; j < {size}; j++) {{ double x = 0;
        for (int k = 0; k < {size}; k++) x += A[i][k] * A[k][j]; C[i][j] = x; }} }}"""
    (p,) = lifted(text).program
    assert isinstance(p, MdhProgram)
    sizes = p.sizes({} if constant else {"n": 2000})
    point = default_point((p,), GENERIC, (sizes,)) | {"threads": "k", "block_k": 250, "visit_k": 0}
    (c,) = configuration_at((p,), GENERIC, (sizes,), point)
    return emit_openmp(KernelRequest("k", "f", (p,), (c,), GENERIC)).text


@pytest.mark.parametrize("constant", [False, True])
def test_large_temporaries_are_asked_for(constant: bool) -> None:
    text = kernel(constant)
    assert text.count("#ifndef MDH_MEMORY") == 1
    before, _, after = text.partition("static int k(")
    assert "__builtin_malloc" in before and "__builtin_malloc" not in after
    assert "MDH_MEMORY(" in after


@pytest.mark.skipif(sys.platform != "linux", reason="pages are asked for on Linux")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("bytes_", "given", "expected"),
    [
        (LIMIT - 1, "malloc(n)", "1 0 0"),
        (LIMIT, "malloc(n)", "1 1 0"),
        (LIMIT + 4095, "aligned_alloc(4096, (n + 4095) / 4096 * 4096)", "1 1 0"),
        (64 << 20, "malloc(n)", "1 1 0"),
        (64 << 20, "0", "0 0 0"),
    ],
)
def test_whole_pages_of_it(compiler: str, bytes_: int, given: str, expected: str, tmp_path: Path) -> None:
    """What a kernel asks for lies in its memory and is nearly all of that."""
    (tmp_path / "kernel.h").write_text(kernel(constant=False))
    (tmp_path / "program.c").write_text(PROGRAM.format(n=bytes_, given=given))
    flags = ["-O1", "-fopenmp", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-builtin-macro-redefined"]
    command = [compiler, *flags, "-o", "program", "program.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    found = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == expected


@pytest.mark.parametrize("compiler", COMPILERS)
def test_beside_the_systems_own_declaration(compiler: str, tmp_path: Path) -> None:
    """Sources that include it before and after, in any standard of C."""
    text = f"#include <sys/mman.h>\n{kernel(constant=False)}\n#include <sys/mman.h>\n"
    (tmp_path / "k.c").write_text(text)
    for standard in ("-std=gnu99", "-std=c11", "-std=gnu17"):
        command = [compiler, standard, "-Wall", "-Werror", "-Wno-unused-function", "-fopenmp", "-c", "k.c"]
        found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(("steps", "asked"), [(64, False), (1000, True)])
def test_copies_of_one_thread(steps: int, asked: bool) -> None:
    """Their sizes are known when the kernel is written: small ones are plain memory, and need no more text."""
    text = """void f(double C[2000][2000], double A[2000][2000], double B[2000][2000]) {
#pragma mdh
    for (int i = 0; i < 2000; i++) for (int j = 0; j < 2000; j++)
        for (int k = 0; k < 2000; k++) C[i][j] += A[i][k] * B[k][j]; }"""
    (p,) = lifted(text).program
    assert isinstance(p, MdhProgram)
    sizes, machine = p.sizes({}), replace(GENERIC, stack=1 << 12)
    point = default_point((p,), machine, (sizes,))
    point |= {"threads": "", "vector": "j", "lanes": 16, "rows_j": 1, "block_j": 512, "block_k": steps}
    point |= {"pack_A": "no", "pack_B": "block", "visit_k": 0, "unroll_k": 1}
    (c,) = configuration_at((p,), machine, (sizes,), point)
    found = emit_openmp(KernelRequest("k", "f", (p,), (c,), machine)).text
    memory = f"B_memory = {'MDH_MEMORY' if asked else '__builtin_malloc'}("
    assert memory in found and ("#ifndef MDH_MEMORY" in found) == asked
