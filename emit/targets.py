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

    kernel    head of a kernel with a fixed number of threads (``unit``) and of blocks at once (``resident``)
    function  what stands before a function that kernels call
    pointer   a parameter that points to global memory
    shared    a declaration in the memory of a block
    align     what makes an array begin where vectors are aligned, so that neighbours are read together
    typed     whether functions of the C library have the type in their names (``sqrtf``)
    record    a value of a structure type
    warp      threads that ``warp_barrier`` orders and that exchange registers; 1: none that are known to
    biased    whether the host may pass a pointer that points before what there is
    byte      type of the elements of arrays of truth values
    reserved  words of the language that names of the nest cannot be
    aligned   whether vectors in memory must be aligned as such
    limited   whether a launch checks that its blocks can be counted by an int
    shuffle   the ``value`` of the lane that lies ``step`` further, among ``width``
    """

    name: str
    suffix: str
    kernel: str
    function: str
    pointer: str
    shared: str
    align: str
    block: str
    thread: str
    barrier: str
    warp: int
    warp_barrier: str
    typed: bool
    record: str
    biased: bool
    byte: str
    reserved: frozenset[str]
    aligned: bool
    limited: bool
    shuffle: str

    @staticmethod
    def vector_of(t: str, count: int) -> str:
        """The type of so many values; ``t``: in C."""
        names = {"unsigned int": "uint", "unsigned long": "ulong"}
        return f"{names.get(t, t)}{count}"

    def read(self, vector: str, count: int, place: str) -> str:
        """The neighbours from a place on as one value."""
        return f"*(const {vector} *)&{place}" if self.aligned else f"vload{count}(0, &{place})"


_CPP = frozenset({
    "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool", "catch", "char16_t",
    "char32_t", "char8_t", "class", "compl", "concept", "consteval", "constexpr", "constinit",
    "const_cast", "co_await", "co_return", "co_yield", "decltype", "delete", "dynamic_cast", "explicit",
    "export", "false", "friend", "inline", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast",
    "requires", "static_assert", "static_cast", "template", "this", "thread_local", "throw", "true",
    "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq",
})  # fmt: skip
_VECTORS = frozenset(
    f"{t}{n}"
    for t in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double", "half")
    for n in (1, 2, 3, 4, 8, 16)
)

CUDA = Target(
    name="cuda",
    suffix=".cu",
    kernel="static __global__ void __launch_bounds__({unit}, {resident})\n",
    function="static __device__ ",
    pointer="{type} *__restrict__ {name}",
    shared="__shared__ {aligned}{type} {name}[{count}];",
    align="__align__(16) ",
    block="blockIdx.x",
    thread="threadIdx.x",
    barrier="__syncthreads();",
    warp=32,
    warp_barrier="__syncwarp();",
    typed=True,
    record=r"\2{",
    biased=True,
    byte="bool",
    reserved=_CPP
    | _VECTORS
    | {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"},
    aligned=True,
    limited=True,
    shuffle="__shfl_down_sync(0xffffffffu, {value}, {step}, {width})",
)
OPENCL = Target(
    name="opencl",
    suffix=".c",
    kernel="__kernel __attribute__((reqd_work_group_size({unit}, 1, 1))) void\n",
    function="static ",
    pointer="__global {type} *restrict {name}",
    shared="__local {aligned}{type} {name}[{count}];",
    align="__attribute__((aligned(16))) ",
    block="get_group_id(0)",
    thread="get_local_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    warp=1,
    warp_barrier="",
    typed=False,
    record=r"(\1\2){",
    biased=False,
    byte="uchar",
    reserved=_VECTORS | {
        "bool", "complex", "constant", "event_t", "generic", "global", "half", "image1d_t", "image2d_t",
        "image3d_t", "imaginary", "INFINITY", "kernel", "local", "mdh", "NAN", "pipe", "private", "quad",
        "read_only", "read_write", "sampler_t", "uchar", "uint", "ulong", "uniform", "ushort", "vec_step",
        "write_only",
    },
    aligned=False,
    limited=False,
    shuffle="",
)  # fmt: skip
TARGETS = {t.name: t for t in (CUDA, OPENCL)}

_BUILTIN = re.compile(r"\b__builtin_(\w+)\(")
# C's functions that OpenCL has under another name; it knows the type, and its `abs` is unsigned
_RENAMED = {
    "abs": "(int)abs", "labs": "(long)abs", "llabs": "(long)abs", "nearbyint": "rint", "nearbyintf": "rint",
    "lround": "(long)round", "lroundf": "(long)round", "lrint": "(long)rint", "lrintf": "(long)rint",
    "llround": "(long)round", "llroundf": "(long)round", "llrint": "(long)rint", "llrintf": "(long)rint",
}  # fmt: skip
_WITHOUT_F = {"erf"}  # names that end in f and are of double precision


def _function_of(name: str, target: Target) -> str:
    if target.typed:
        return name
    if name in _RENAMED:
        return _RENAMED[name]
    return name[:-1] if name.endswith("f") and name not in _WITHOUT_F else name


def spelled(
    rows: Iterable[str], target: Target, records: Iterable[str] = (), functions: Iterable[str] = ()
) -> list[str]:
    """Rows of C in the words of a target.

    records    names of structure types, as in C
    functions  names of the user's functions; a device may have others of these names
    """
    own = [re.escape(f) for f in functions]
    called = re.compile(rf"(?<![\w.])({'|'.join(own)})\(")
    names = [re.escape(n.removeprefix("struct ")) for n in records]
    value = re.compile(rf"\((struct )?({'|'.join(names)})\)\{{")

    def function(m: re.Match[str]) -> str:
        return _function_of(m[1], target) + "("

    found = []
    for row in rows:
        row = row.replace('__builtin_nanf("")', "NAN").replace('__builtin_nan("")', "(double)NAN")
        row = row.replace("__builtin_inff()", "INFINITY").replace("__builtin_inf()", "(double)INFINITY")
        row = called.sub(r"mdh_f_\1(", row) if own else row
        row = re.sub(r"\b_Bool\b", "bool", _BUILTIN.sub(function, row))
        found.append(value.sub(target.record, row) if names else row)
    return found
