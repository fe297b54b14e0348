"""How each target spells what kernels have in common; all else about them is the same text.

    kernel   static __global__ void __launch_bounds__(256, 1) f(...) __kernel __attribute__(...) void f(...)
    block    blockIdx.x                                              get_group_id(0)
    shared   __shared__ float tile[256];                             __local float tile[256];

Text is written as C first (``emit.c_text``); ``spelled`` replaces the few words that devices do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

OPENMP = "openmp"


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU language.

    kernel    head of a kernel with a fixed number of threads (``unit``)
    function  what stands before a function that kernels call
    pointer   a parameter that points to global memory
    shared    a declaration in the memory of a block
    typed     whether functions of the C library have the type in their names (``sqrtf``)
    record    a value of a structure type
    biased    whether the host may pass a pointer that points before what there is
    byte      type of the elements of arrays of truth values
    """

    name: str
    suffix: str
    kernel: str
    function: str
    pointer: str
    shared: str
    block: str
    thread: str
    barrier: str
    typed: bool
    record: str
    biased: bool
    byte: str


CUDA = Target(
    name="cuda",
    suffix=".cu",
    kernel="static __global__ void __launch_bounds__({unit}, 1)\n",
    function="static __device__ ",
    pointer="{type} *__restrict__ {name}",
    shared="__shared__ {type} {name}[{count}];",
    block="blockIdx.x",
    thread="threadIdx.x",
    barrier="__syncthreads();",
    typed=True,
    record=r"\2{",
    biased=True,
    byte="bool",
)
OPENCL = Target(
    name="opencl",
    suffix=".c",
    kernel="__kernel __attribute__((reqd_work_group_size({unit}, 1, 1))) void\n",
    function="static ",
    pointer="__global {type} *restrict {name}",
    shared="__local {type} {name}[{count}];",
    block="get_group_id(0)",
    thread="get_local_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    typed=False,
    record=r"(\1\2){",
    biased=False,
    byte="uchar",
)
TARGETS = {t.name: t for t in (CUDA, OPENCL)}

_BUILTIN = re.compile(r"\b__builtin_(\w+)\(")
_TYPED = {
    name + "f": name
    for name in (
        "sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "fabs", "floor", "ceil", "trunc", "round", "rint", "fmin", "fmax", "fmod", "pow",
        "atan2", "hypot", "cbrt", "fma", "copysign", "fdim", "erf", "erfc", "expm1", "log1p", "nearbyint",
    )
}  # fmt: skip


def spelled(
    rows: Iterable[str], target: Target, records: Iterable[str] = (), functions: Iterable[str] = ()
) -> list[str]:
    """Rows of C in the words of a target.

    records    names of structure types, as in C
    functions  names of the user's functions; a device may have others of these names
    """
    own = [re.escape(f) for f in functions]
    called = re.compile(rf"\b({'|'.join(own)})\(")
    names = [re.escape(n.removeprefix("struct ")) for n in records]
    value = re.compile(rf"\((struct )?({'|'.join(names)})\)\{{")

    def function(m: re.Match[str]) -> str:
        name = m[1]
        return (name if target.typed else _TYPED.get(name, name)) + "("

    found = []
    for row in rows:
        row = row.replace('__builtin_nanf("")', "NAN").replace('__builtin_nan("")', "(double)NAN")
        row = row.replace("__builtin_inff()", "INFINITY").replace("__builtin_inf()", "(double)INFINITY")
        row = called.sub(r"mdh_\1(", row) if own else row
        row = re.sub(r"\b_Bool\b", "bool", _BUILTIN.sub(function, row))
        found.append(value.sub(target.record, row) if names else row)
    return found
