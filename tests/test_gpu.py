"""Emitted GPU code equals the interpreter: CUDA on the CPU, OpenCL on whatever device there is."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emit import gpu_nest_text, gpu_rows_text
from emit.gpu_context import GpuContext
from emit.gpu_file import GpuFile
from emit.kernel_text import Names
from emit.targets import Target
from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from lowering import gpu, gpu_histogram, instructions
from lowering.device import GENERIC_OPENCL, H100
from lowering.gpu_histogram import PLACES
from lowering.gpu_point import gpu_configuration, gpu_default, gpu_space
from lowering.instructions import (
    TENSOR_DOUBLE,
    Instruction,
    elements,
    product_of,
    why_not_an_instruction,
)
from lowering.machine import CUDA as CUDA_MODEL
from lowering.machine import CUDA_WRP, GENERIC, SystemModel
from lowering.machine import OPENCL as OPENCL_MODEL
from lowering.parameters import random_configuration, why_not_legal
from lowering.point import Point
from lowering.swizzle import Swizzle, why_not_bijective
from mdh_core.evaluate import Value
from mdh_core.expr import FLOAT, Affine, Binary, Expr, ScalarType, walk
from mdh_core.interpreter import BufferValue, integers, run
from mdh_core.ir import MdhProgram
from mdh_core.source import SourceFile
from tests import gpu_emitted
from tests.catalogue import EVERYTHING, small_params
from tests.emitted import Case, with_constant_sizes, with_extents
from tests.gpu_emitted import (
    CUDA,
    OPENCL,
    check_cuda,
    check_opencl,
    file_of,
    has_opencl_device,
    run_cuda,
    with_all_extents,
    with_parameters,
)
from tests.strategies import buffers_for, copy_of
from tests.test_emit import _scan_case, _scan_of
from tuning.space import valid_points

CONFIGURATIONS = int(os.environ.get("MDH_GPU_CONFIGURATIONS", "20"))  # random ones per program
# OpenCL is lowered as CUDA is, and its files run the corpus with 20 random ones, too
ON_OPENCL = CONFIGURATIONS if "MDH_GPU_CONFIGURATIONS" in os.environ else 6
Checked = tuple[Case, dict[str, BufferValue]]


def _sizes(p: MdhProgram, rng: random.Random) -> dict[str, Value]:
    params = small_params(p)
    for q in p.params:
        if isinstance(params[q.name], int) and rng.random() < 0.4:
            params[q.name] = rng.choice((0, 1, 2, 7, 13) if len(p.hom.dims) < 4 else (1, 2, 3))
    return params


def _halve(p: MdhProgram, buffers: dict[str, BufferValue]) -> None:
    """Halves, where their sums are as exact as those of integers: what takes them for integers is found."""
    if any(isinstance(e, Binary) and e.op == "*" for e in _combined(p)):
        return
    for name, buffer in buffers.items():
        t = p.buffer(name).type
        if isinstance(t, ScalarType) and t.is_float:
            buffer.data[:] = [v / 2 for v in buffer.data if isinstance(v, int | float)]


def _combined(p: MdhProgram) -> Iterator[Expr]:
    """The expressions by which values are combined."""
    for op in p.hom.combine:
        for e in op.function.values if op.function is not None else ():
            yield from walk(e)


def _case(p: MdhProgram, rng: random.Random, model: SystemModel, kind: str) -> Checked:
    """A case and the buffers that it must end with."""
    params = _sizes(p, rng)
    buffers = buffers_for(p, params, rng)
    _halve(p, buffers)
    expected = copy_of(buffers)
    run(p, params, expected)
    sized, extra = with_extents(p, buffers, symbolic=rng.random() < 0.5)
    sized = with_all_extents(sized, buffers)
    if rng.random() < 0.3:
        sized = with_constant_sizes(sized, {n: v for n, v in params.items() if isinstance(v, int)})
    values = {**params, **extra}
    device = GENERIC_OPENCL if model == OPENCL_MODEL else H100
    large = {d: max(n, 1) * 64 for d, n in sized.sizes(integers(values)).items()}
    if kind == "default":
        c = gpu_configuration(sized, model, large, gpu_default(sized, device, large))
    elif kind == "space":
        point = next(valid_points(gpu_space(sized, device, large), rng))
        c = gpu_configuration(sized, model, large, point)
    else:
        c = random_configuration(rng, sized, model)
    if why_not_legal(c, sized, model) is not None:
        c = random_configuration(rng, sized, model)
    return Case(sized, c, values, buffers, replace(GENERIC, model=model)), expected


def _cases(name: str, model: SystemModel) -> list[Checked]:
    rng = random.Random(name + model.name)
    # of ten dimensions, blocks of up to 1024 fibers: minutes
    few = 4 if len(EVERYTHING[name].hom.dims) > 8 else CONFIGURATIONS
    several = min(CONFIGURATIONS, few if model == CUDA_MODEL else ON_OPENCL)
    kinds = ["default", *["random"] * several, "space"]
    checked = [_case(EVERYTHING[name], rng, model, kind) for kind in kinds]
    return [
        (replace(case, about=f"{name}, {kind} configuration {k} of {len(kinds)}"), expected)
        for k, (kind, (case, expected)) in enumerate(zip(kinds, checked, strict=True))
    ]


def _groups(size: int) -> list[list[str]]:
    """The catalogue in groups that are compiled together."""
    names = [*EVERYTHING]
    return [names[k : k + size] for k in range(0, len(names), size)]


@pytest.mark.parametrize("names", _groups(4), ids="-".join)
def test_cuda(names: list[str], tmp_path: Path) -> None:
    """No thread reads what another writes without a barrier between, in any order of threads."""
    cases = [case for name in names for case in _cases(name, CUDA_MODEL)]
    check_cuda(cases, tmp_path, MDH_FIBERS="shuffled:7")


@pytest.mark.parametrize("names", _groups(4), ids="-".join)
def test_opencl(names: list[str], tmp_path: Path) -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    check_opencl([case for name in names for case in _cases(name, OPENCL_MODEL)], tmp_path)


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_a_fault_is_named(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several configurations that are compiled together one is wrong: which, and of which program and target."""
    if target == "opencl" and not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    monkeypatch.setattr("tests.test_gpu.CONFIGURATIONS", 2)
    model = CUDA_MODEL if target == "cuda" else OPENCL_MODEL
    checked = _cases("map", model)
    assert all(min(case.program.sizes(integers(case.params)).values()) > 0 for case, _ in checked[:3])
    make = gpu_emitted.file_of

    def faulty(case: Case, name: str, to: Target) -> GpuFile:
        file = make(case, name, to)
        if name != "kernel_2":
            return file
        (part,) = file.parts
        texts = [[re.sub(r"(\] = )", r"\g<1>1 + ", row) for row in text] for text in part.texts]
        assert texts != [[*text] for text in part.texts]
        return replace(file, parts=(replace(part, texts=tuple(map(tuple, texts))),))

    monkeypatch.setattr(gpu_emitted, "file_of", faulty)
    with pytest.raises(AssertionError, match=rf"{target}: wrong \w+ of .*\(map, random configuration 2 of 4\) with"):
        (check_cuda if target == "cuda" else check_opencl)(checked, tmp_path)


@pytest.mark.parametrize("name", ["matmul", "conv2d", "dot", "prl", "mcc"])
def test_three_levels_of_threads(name: str, tmp_path: Path) -> None:
    """Blocks, warps, threads: a model with a further layer."""
    rng = random.Random(name)
    check_cuda([_case(EVERYTHING[name], rng, CUDA_WRP, "random") for _ in range(6)], tmp_path)


@pytest.mark.parametrize(("name", "reduced", "kept"), [
    ("dot", 8, 0), ("dot", 32, 0), ("dot", 256, 0), ("dot", 24, 0), ("matvec", 16, 4), ("matvec", 128, 2),
    ("matvec", 64, 8), ("double_reduce", 64, 0), ("argmax_payload", 64, 4), ("mcc", 4, 8),
])  # fmt: skip
def test_threads_share_a_cell(name: str, reduced: int, kept: int, tmp_path: Path) -> None:
    """By shuffles where lanes of whole warps have parts, else by a tree in shared memory."""
    rng = random.Random(f"{name} {reduced} {kept}")
    cases = []
    for _ in range(3):
        case, expected = _case(EVERYTHING[name], rng, CUDA_MODEL, "default")
        p = case.program
        inner = p.hom.dims_of("pw")[-1].name
        point: dict[str, int | str] = {"fast": inner, f"threads_{inner}": reduced, "rows_i": 2}
        if kept:
            point[f"threads_{p.hom.dims_of('cc')[-1].name}"] = kept
        c = gpu_configuration(p, CUDA_MODEL, {d.name: 1024 for d in p.hom.dims}, point)
        cases.append((replace(case, configuration=c), expected))
        text = "\n".join(row for kernel in file_of(cases[-1][0], "kernel", CUDA).kernels[:1] for row in kernel.rows)
        if not text:
            continue  # a size is known to be 0
        shuffled = reduced & (reduced - 1) == 0 and reduced * max(kept, 1) % 32 == 0
        shuffled = shuffled and name != "argmax_payload"  # records
        assert ("__shfl_down_sync(0xffffffffu, " in text) == shuffled
        assert ("acc_shared" in text) == (not shuffled or reduced > 32)
    check_cuda(cases, tmp_path, MDH_FIBERS="shuffled:5")


def test_swizzles_are_bijections() -> None:
    """By formula: bits that come from further up; what is refused has two cells in one place."""
    for bits, base, shift in itertools.product(range(4), range(4), range(5)):
        s = Swizzle(bits, base, shift)
        for cells in (1, 30, 100):
            places = [s.place(n) for n in range(s.room(cells))]
            assert (sorted(places) == list(range(s.room(cells)))) == (shift > 0 or bits == 0)
        assert (why_not_bijective(s) is None) == (shift > 0 or bits == 0)
    for bits, base, shift in ((-1, 0, 1), (1, 2, -1), (8, 8, 8)):
        assert why_not_bijective(Swizzle(bits, base, shift)) is not None


@pytest.mark.parametrize(("vector", "stages"), [(4, 1), (4, 2), (2, 2)])
def test_vectors_are_aligned(vector: int, stages: int, tmp_path: Path) -> None:
    """Rows of odd and even lengths: several elements at once only where their address allows it."""
    rng = random.Random(f"{vector} {stages}")
    cases: list[Checked] = []
    while len(cases) < 5:
        case, expected = _case(EVERYTHING["matmul"], rng, CUDA_MODEL, "default")
        p = case.program
        sizes = p.sizes({n: v for n, v in case.params.items() if isinstance(v, int)})
        if min(sizes.values()) < (7 if len(cases) < 3 else 3):
            continue
        point: dict[str, int | str] = {"fast": "j", "threads_i": 2, "threads_j": 4, "chunk_k": 4, "rows_k": 4}
        point |= {f"{word}_{b}": n for b in ("A", "B") for word, n in (("share", 1), ("vector", vector))}
        c = gpu_configuration(p, CUDA_MODEL, sizes, {**point, "stages": stages})
        cases.append((replace(case, configuration=c), expected))
        assert file_of(cases[-1][0], "kernel", CUDA).text.count(f"(const float{vector} *)&") == 2
    check_cuda(cases, tmp_path)


@pytest.mark.parametrize("swizzle", ["1,0,1", "2,2,3", "3,2,5", "2,1,1"])
def test_swizzled_copies(swizzle: str, tmp_path: Path) -> None:
    """Every cell is found where it was put; neighbours that stay together are read as such."""
    rng = random.Random(swizzle)
    cases = []
    for name in ("matmul", "matmul_t", "conv2d", "bmatmul"):
        case, expected = _case(EVERYTHING[name], rng, CUDA_MODEL, "default")
        p = case.program
        large = {d.name: 4096 for d in p.hom.dims}
        point = {n: v for n, v in gpu_default(p, H100, large).items() if not n.startswith("pad_")}
        point |= dict.fromkeys((f"swizzle_{b.name}" for b in p.buffers), swizzle)
        point |= {f"share_{a.buffer}": 1 for a in p.inp.accesses}
        point |= {f"threads_{d.name}": 4 for d in p.hom.dims_of("cc")}
        c = gpu_configuration(p, CUDA_MODEL, large, point)
        cases.append((replace(case, configuration=c), expected))
        text = file_of(cases[-1][0], "kernel", CUDA).text
        if name == "matmul" and "__shared__" in text:
            neighbours = re.search(r"B_tile\[kernel_0_B_place\([^)]*\) \+ j_r", text)
            assert bool(neighbours) == (swizzle.split(",")[1] == "2")  # runs of four
    check_cuda(cases, tmp_path)


# --------------------------------------------------------------------------- instructions


def _outer_product() -> Instruction:
    """Two rows and two columns at once, as statements."""
    text = tuple(f"{{c{2 * r + c}}} += {{a{r}}} * {{b{c}}};" for r in range(2) for c in range(2))
    parts = elements(2, 1), elements(1, 2), elements(2, 2)
    return Instruction("outer", (2, 2, 1), *product_of(FLOAT), *parts, text)


def _two_products() -> Instruction:
    """Two points of a cell at once, by a function."""
    body = "{function}float {name}(float c, float a, float b, float d, float e) {{ return c + a*b + d*e; }}"
    parts = elements(1, 2), elements(2, 1), elements(1, 1)
    text = ("{c0} = {name}({c0}, {a0}, {b0}, {a1}, {b1});",)
    return Instruction("two", (1, 1, 2), *product_of(FLOAT), *parts, text, helper=(body,))


def _of_a_warp() -> Instruction:
    """What the tensor cores' instruction does, in single precision, with values of other lanes."""
    text = tuple(
        f"for (int q = 0; q < 4; q++) {{{{ const float x = __shfl_sync(0xffffffffu, {{a0}}, {{lane}}/4*4 + q);"
        f" {{c{r}}} += x * __shfl_sync(0xffffffffu, {{b0}}, ({{lane}} % 4*2 + {r})*4 + q); }}}}"
        for r in range(2)
    )
    value, combine = product_of(FLOAT)
    return replace(TENSOR_DOUBLE, name="warp", value=value, combine=combine, text=text)


INSTRUCTIONS: dict[str, tuple[Instruction, dict[str, int | str], str]] = {
    "outer": (_outer_product(), {"threads_i": 2, "threads_j": 2, "rows_i": 4, "rows_j": 2}, r"i_r \+ 1\]\[j_r \+ 1\] \+="),
    "outer apart": (_outer_product(), {"threads_i": 2, "rows_i": 2, "rows_j": 2, "groups_j": 2}, r"j_r_2 \+ 1\] \+="),
    "two": (_two_products(), {"threads_i": 4, "threads_j": 4}, r"kernel_0_two\(acc, "),
    "two of a tile": (_two_products(), {"threads_j": 4, "rows_i": 2}, r"kernel_0_two\(acc\[i_r\], "),
    "warp": (_of_a_warp(), {"threads_i": 8, "threads_j": 4, "rows_j": 2}, r"j_r \+ 1\] \+= x"),
    "warps": (_of_a_warp(), {"threads_i": 16, "threads_j": 4, "rows_j": 2, "groups_i": 2, "groups_j": 2}, r"j_r_2 \+ 1\] \+= x"),
}


@pytest.mark.parametrize("which", INSTRUCTIONS)
def test_instructions_are_rows(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row more, and nothing else, is emitted and does what the interpreter does."""
    row, point, written = INSTRUCTIONS[which]
    assert why_not_an_instruction(row) is None
    monkeypatch.setattr(instructions, "TABLE", (*instructions.TABLE, row))
    rng = random.Random(which)
    cases: list[Checked] = []
    while len(cases) < 4:
        case, expected = _case(EVERYTHING[("matmul", "matmul_t")[len(cases) % 2]], rng, CUDA_MODEL, "default")
        p = case.program
        sizes = p.sizes({n: v for n, v in case.params.items() if isinstance(v, int)})
        if sizes["k"] < 7 or min(sizes.values()) < 1:
            continue
        shared = {f"share_{b}": len(cases) // 2 for b in ("A", "B")}
        full = {"fast": "j", "chunk_k": 4, "rows_k": 4, "instruction": row.name, **point, **shared}
        cases.append((replace(case, configuration=gpu_configuration(p, CUDA_MODEL, sizes, full)), expected))
        text = file_of(cases[-1][0], "kernel", CUDA).text
        assert re.search(written, text), text
    check_cuda(cases, tmp_path)


def test_instructions_that_do_not_fit() -> None:
    """Another layout of the results, another order under fp(exact), another function: the plain leaf."""
    p = with_parameters(EVERYTHING["matmul"])
    large = {d.name: 64 for d in p.hom.dims}

    def name_of(p: MdhProgram, row: Instruction, point: dict[str, int | str], target: str = "cuda") -> str:
        full = {"fast": "j", "chunk_k": 4, "rows_k": 4, "instruction": row.name, **point}
        c = gpu_configuration(p, CUDA_MODEL, large, full)
        nest = gpu.lower_gpu(p, c, CUDA_MODEL, H100).stages[0]
        assert isinstance(nest, gpu.GpuNest)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instructions, "TABLE", (*instructions.TABLE, row))
            leaf = instructions.leaf_of(nest, target, row.name)
        return leaf.instruction.name if leaf else ""

    warp: dict[str, int | str] = {"threads_i": 8, "threads_j": 4, "rows_j": 2}
    assert name_of(p, _of_a_warp(), warp) == "warp"
    assert name_of(p, _of_a_warp(), warp, "opencl") == "fma_float"
    assert name_of(p, _of_a_warp(), {**warp, "fast": "i"}) == "fma_float"
    assert name_of(p, _of_a_warp(), {**warp, "threads_j": 8}) == "fma_float"
    assert name_of(p, _of_a_warp(), {**warp, "chunk_k": 2, "rows_k": 2}) == "fma_float"
    assert name_of(p, _two_products(), {}) == "two"
    assert name_of(replace(p, fp="exact"), _two_products(), {}) == "fma_float"
    assert name_of(p, replace(_two_products(), c=elements(1, 2)), {}) == "fma_float"
    assert name_of(p, TENSOR_DOUBLE, warp) == "fma_float"
    jacobi = with_parameters(EVERYTHING["prl"])
    assert name_of(jacobi, _two_products(), {"fast": "i"}) == ""


def test_tensor_cores(tmp_path: Path) -> None:
    """Double precision: the row of the table compiles where nvcc is, and is what it says."""
    text = "void f(int n, const double A[n][n], const double B[n][n], double C[n][n])\n{\n#pragma mdh\n"
    text += "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { double s = 0;\n"
    text += "for (int k = 0; k < n; k++) s += A[i][k] * B[k][j]; C[i][j] = s; }\n}\n"
    (p,) = lift(read(SourceFile("f.c", text.encode()), CompileCommand()).nests[0]).programs
    large = {d.name: 2048 for d in p.hom.dims}
    point: dict[str, int | str] = {
        "fast": "j", "threads_i": 16, "threads_j": 4, "rows_j": 2, "groups_i": 4, "groups_j": 4, "chunk_k": 8,
        "rows_k": 8, "share_A": 1, "share_B": 1, "pad_A": 4, "pad_B": 4, "stages": 2, "vector_A": 2, "vector_B": 2,
        "instruction": TENSOR_DOUBLE.name,
    }  # fmt: skip
    c = gpu_configuration(p, CUDA_MODEL, large, point)
    file = file_of(Case(p, c, {}, {}, replace(GENERIC, model=CUDA_MODEL)), "kernel", CUDA)
    assert file.text.count("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64") == 1
    if shutil.which("nvcc") is not None:
        (tmp_path / "k.cu").write_text(file.text)
        line = ["nvcc", "-O3", "-arch=sm_90", "-cubin", "-Xptxas", "-v", str(tmp_path / "k.cu"), "-o", str(tmp_path / "k.cubin")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr


# --------------------------------------------------------------------------- indices


def test_indices_are_int(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In nests of several dimensions; larger sizes are declined before anything is launched."""
    monkeypatch.setattr(gpu_nest_text, "LEAST_LIMIT", 1)
    case, _ = _case(EVERYTHING["jacobi2d"], random.Random(2), CUDA_MODEL, "default")
    nest = gpu.lower_gpu(case.program, case.configuration, CUDA_MODEL, H100).stages[0]
    assert isinstance(nest, gpu.GpuNest)
    beyond = gpu.INT_MAX - gpu.index_limit(nest)
    values = {n: v for n, v in case.params.items() if isinstance(v, int)}
    assert 0 not in case.program.sizes(values).values()
    largest = max(case.program.sizes(values).values())
    for limit, done in ((largest, 1), (largest - 1, 0)):
        monkeypatch.setattr(gpu, "INT_MAX", limit + beyond)
        text = file_of(case, "kernel", CUDA).text
        assert f"_size > {limit}" in text
        assert "long i" not in text[text.index("__global__") : text.index('extern "C"')].replace("long i_size", "")
        assert [d for d, _ in run_cuda([case], tmp_path)] == [done]


def test_linear_indices_are_long() -> None:
    """An index is multiplied with a stride that is, also where the stride is a number, or begins with one."""
    p = EVERYTHING["bmatmul"]
    for extents, strides in (
        ((9, 512, 512), (262144, 512, 1)),
        ((99999, 512, 512), ("262144L", "512L", 1)),
        (("n", 7, 512), ("3584L", "512L", 1)),
        ((9, "n", 512), ("512L*n", "512L", 1)),
        ((9, 512, "n"), ("512L*n", "n", 1)),
    ):
        sizes = tuple(Affine.number(e) if isinstance(e, int) else Affine.of(e) for e in extents)
        b = replace(p.buffers[0], extents=sizes)
        context = GpuContext(replace(p, buffers=(b,)), Names(set()), narrow=True)
        assert context.raw_place(b.name).strides == strides


HISTOGRAMS = {
    "count": ("", "int", "h[to[i]] += 1;", True),
    "largest": ("", "unsigned", "if (w[i] > h[to[i]]) h[to[i]] = w[i];", True),
    "bits": ("", "int", "h[to[i]] |= w[i];", True),
    "weigh": ("fp(fast)", "float", "h[to[i]] += w[i];", True),
    "weigh in order": ("fp(deterministic)", "float", "h[to[i]] += w[i];", False),
    "exact": ("fp(exact)", "float", "h[to[i]] += w[i];", False),
    "long": ("", "long", "h[to[i]] += w[i];", False),
}
HISTOGRAM_SIZES = ((0, 3), (1, 1), (200, 1), (200, 3), (293, 37), (300, 16), (40, 300))


ANY = ("random", "space", "default")


def _histogram_cases(
    text: str, model: SystemModel, points: Sequence[Point | str], seed: int
) -> list[Checked]:
    """For all sizes (n, m); positions are within the array, which holds something before.

    points  what the cases have, one after the other: points, or words of ``ANY``
    """
    device = GENERIC_OPENCL if model == OPENCL_MODEL else H100
    nest = lift(read(SourceFile("f.c", text.encode()), CompileCommand()).nests[0])
    (p,) = nest.programs
    rng = random.Random(seed)
    cases = []
    for k, (n, m) in enumerate(HISTOGRAM_SIZES):
        params: dict[str, Value] = {q.name: {"n": n, "m": m, "k": 3}.get(q.name, 1) for q in p.params}
        buffers = buffers_for(p, params, rng)
        for name in ("to", "up"):
            if name in buffers:
                most = 3 if name == "up" else m
                buffers[name].data[:] = [rng.randrange(most) for _ in buffers[name].data]
        expected = copy_of(buffers)
        run(p, params, expected)
        sized, extra = with_extents(p, buffers)
        sized = with_all_extents(sized, buffers)
        values = {**params, **extra}
        point, sizes = points[k % len(points)], sized.sizes(integers(values))
        if point == "space":
            point = next(valid_points(gpu_space(sized, device, sizes), rng))
        elif point == "default":
            point = gpu_default(sized, device, sizes)
        if isinstance(point, str):
            c = random_configuration(rng, sized, model)
        else:
            c = gpu_configuration(sized, model, sizes, point)
        assert why_not_legal(c, sized, model) is None
        cases.append((Case(sized, c, values, buffers, replace(GENERIC, model=model)), expected))
    return cases


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histogram(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one instruction, where there is one and order does not matter, into the array or private copies."""
    monkeypatch.setattr(gpu_histogram, "ROOM", 16)
    clause, t, statement, is_atomic = HISTOGRAMS[name]
    text = f"void f(int n, int m, const int to[n], const {t} w[n], {t} h[m])\n{{\n#pragma mdh {clause}\n"
    text += f"    for (int i = 0; i < n; i++) {{ {statement} }}\n}}\n"
    every = []
    for private in PLACES:
        points: list[Point] = [{"private": private, "copies": copies} for copies in (1, 2, 5, 32, 40)]
        cases = _histogram_cases(text, CUDA_MODEL, points, len(name))
        kernels = file_of(cases[-1][0], "kernel", CUDA).kernels
        texts = ["\n".join(k.rows) for k in kernels]
        assert any("atomic" in row for row in texts) == is_atomic
        own = private != "no" and name != "exact"
        shared = [True, False] if own and is_atomic and private == "block" else [False] * (3 if own else 1)
        assert ["__shared__" in x for x in texts] == shared
        every += cases
    every += _histogram_cases(text, CUDA_MODEL, ANY, len(name))
    check_cuda(every, tmp_path, MDH_FIBERS="shuffled:3")


WIDER = {
    "rows": ("const int to[n], const int w[n][k], int h[m][k]",
             "for (int j = 0; j < k; j++) h[to[i]][j] += w[i][j];"),
    "columns": ("const int to[n], const unsigned w[n], unsigned h[k][m]",
                "for (int j = 0; j < k; j++) if (w[i] > j) h[j][to[i]] += w[i];"),
    "pairs": ("const int to[n], const int up[n], int h[m][k]", "h[to[i]][up[i]]++;"),
    "triangle": ("const int to[n], int h[m]", "for (int j = 0; j <= i; j++) h[to[i]] ^= i + j;"),
    "fixed": ("const int to[n], const float w[n], double h[k + 4]", "h[i % 5] += w[i];"),
}  # fmt: skip


@pytest.mark.parametrize("model", [CUDA_MODEL, OPENCL_MODEL], ids=lambda m: m.name)
@pytest.mark.parametrize("name", WIDER)
def test_wider_histogram(name: str, model: SystemModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells in two dimensions, points of triangles, another type than the weights."""
    monkeypatch.setattr(gpu_histogram, "ROOM", 40)
    monkeypatch.setattr("tests.test_gpu.HISTOGRAM_SIZES", ((0, 3), (1, 1), (37, 5), (23, 40)))
    params, body = WIDER[name]
    text = f"void f(int n, int m, int k, {params})\n{{\n#pragma mdh fp(deterministic)\n"
    text += f"    for (int i = 0; i < n; i++) {{ {body} }}\n}}\n"
    if model == OPENCL_MODEL and not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    block, thread = ([{"private": place, "copies": n} for n in (3, 64)] for place in PLACES[1:])
    every: list[Sequence[Point | str]] = [[*block, *block], [*thread, *thread], ANY]
    every = every if model == CUDA_MODEL else [[block[0], *thread, block[1]], ["default", *ANY]]
    cases = [case for k, own in enumerate(every) for case in _histogram_cases(text, model, own, k)]
    if model == OPENCL_MODEL:
        check_opencl(cases, tmp_path)
    else:
        check_cuda(cases, tmp_path, MDH_FIBERS="shuffled:5")


@pytest.mark.parametrize("name", ["sum", "in place", "largest", "before and after", "with an operand"])
def test_long_scan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks on many threads: two levels of totals; and in order where it is short."""
    monkeypatch.setattr(gpu_rows_text, "CHUNK", 3)
    monkeypatch.setattr(gpu_rows_text, "GROUP", 5)
    monkeypatch.setattr(gpu_rows_text, "LONG", 15)
    nest, p = _scan_of(name)
    cases = []
    for n in (0, 15, 16, 45, 46, 300):
        case, expected = _scan_case(nest, p, n, random.Random(n))
        sized = with_all_extents(case.program, case.buffers)
        c = gpu_configuration(sized, CUDA_MODEL, {d.name: n for d in sized.hom.dims}, {})
        model = replace(GENERIC, model=CUDA_MODEL)
        cases.append((replace(case, program=sized, configuration=c, machine=model), expected))
    (_, large) = (file_of(case, "kernel", CUDA).kernels for case, _ in (cases[0], cases[-1]))
    assert [k.unit for k in large] == [128, 128, 1, 128, 128, 1]
    check_cuda(cases, tmp_path)


ROWS = {
    "running": ("", "float b[m][n]", "b[j][i] = s;"),
    "planes": ("for (int l = 0; l < k; l++) ", "int b[m][k][n]", "b[j][l][i] = s;"),
    "columns": ("for (int l = 0; l < k; l++) ", "int b[n][k][m]", "b[i][l][m - 1 - j] = s;"),
    "and last": ("", "float b[m][n], float c[m]", "b[j][i] = s * 2;"),
}


@pytest.mark.parametrize("model", [CUDA_MODEL, OPENCL_MODEL], ids=lambda m: m.name)
@pytest.mark.parametrize("name", ROWS)
def test_long_rows(name: str, model: SystemModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few long rows are scanned in chunks, many or short ones by a thread each."""
    for word, value in (("CHUNK", 3), ("GROUP", 5), ("LONG", 15), ("ROWS", 6)):
        monkeypatch.setattr(gpu_rows_text, word, value)
    around, outputs, store = ROWS[name]
    t = outputs.split()[0]
    a = "a[m][k][n]" if around else "a[m][n]"
    read_at = "a[j][l][i]" if around else "a[j][i]"
    text = f"void f(int n, int m, int k, const {t} {a}, {outputs})\n{{\n#pragma mdh\n"
    text += f"    for (int j = 0; j < m; j++) {around}{{\n        {t} s = {2 if t == 'int' else 0};\n"
    text += f"        for (int i = 0; i < n; i++) {{ s += {read_at}; {store} }}\n"
    text += f"        {'c[j] = s;' if 'c[m]' in outputs else ''}\n    }}\n}}\n"
    programs = lift(read(SourceFile("f.c", text.encode()), CompileCommand()).nests[0]).programs
    p = next(q for q in programs if q.hom.dims_of("ps"))
    assert p.hom.dims_of("cc")
    rng, cases = random.Random(name), []
    for n, m, k in ((0, 2, 2), (15, 2, 2), (16, 3, 2), (100, 2, 3), (47, 1, 1), (40, 7, 2), (40, 0, 2)):
        params: dict[str, Value] = {q.name: {"n": n, "m": m, "k": k}.get(q.name, 1) for q in p.params}
        buffers = buffers_for(p, params, rng)
        for b in buffers.values():
            b.data[:] = [type(x)(rng.randrange(1, 5)) for x in b.data]
        expected = copy_of(buffers)
        run(p, params, expected)
        sized, extra = with_extents(p, buffers)
        sized = with_all_extents(sized, buffers)
        values = {**params, **extra}
        c = gpu_configuration(sized, model, sized.sizes(integers(values)), {})
        cases.append((Case(sized, c, values, buffers, replace(GENERIC, model=model)), expected))
    kernels = file_of(cases[3][0], "kernel", CUDA if model == CUDA_MODEL else OPENCL).kernels
    assert len(kernels) == 6
    if model == CUDA_MODEL:
        check_cuda(cases, tmp_path)
    elif not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    else:
        check_opencl(cases, tmp_path)


# --------------------------------------------------------------------------- shapes


def _file(name: str, extents: int, **sizes: int) -> GpuFile:
    p = with_parameters(EVERYTHING[name])
    large = {d.name: sizes.get(d.name, extents) for d in p.hom.dims}
    c = gpu_configuration(p, CUDA_MODEL, large, gpu_default(p, H100, large))
    return file_of(Case(p, c, {}, {}, replace(GENERIC, model=CUDA_MODEL)), "kernel", CUDA)


def test_matmul_in_tiles() -> None:
    """Both operands in shared memory, sixteen accumulators at least, a barrier before they are used and one before
    they are written anew.

    They are read ahead, four elements at once.
    """
    file = _file("matmul", 1024)
    (kernel,) = file.kernels
    text = "\n".join(kernel.rows)
    tiles = re.findall(r"__shared__ __align__\(16\) float (\w+)_tile\[", text)
    assert sorted(tiles) == ["A", "B"]
    assert text.count("__syncthreads();") == 2
    assert re.search(r"float acc(\[\d\])+;", text)
    assert len(re.findall(r"const float4 \w+ = \*\(const float4 \*\)&[AB]\[", text)) == 2
    assert text.index("&B[") < text.index("__syncthreads();") < text.index("+= A_tile")
    assert text.index("+= A_tile") < text.rindex("__syncthreads();") < text.index("A_tile[c")
    begin = text.index("if (k_1 + 8 <= k_size_int)")
    inner = text[begin : text.index("} else {", begin)]
    assert " A[" not in inner and " B[" not in inner
    assert "<" not in inner.split("acc", 1)[1].splitlines()[0]  # nothing is compared in the innermost loop


def test_large_reduction_is_on_all_blocks() -> None:
    """Parts, then what combines them; each combination is a tree in shared memory."""
    first, second = _file("dot", 1 << 24).kernels
    assert first.unit == 256
    assert "mdh_parts" in " ".join(k.name for k in first.parameters)
    assert [k for k in second.parameters if k.name.startswith("mdh_parts")]
    assert all("__shared__ float acc_shared" in "\n".join(k.rows) for k in (first, second))


def test_kernels_without_sharing_have_no_barrier() -> None:
    for name in ("map", "jacobi3d", "matvec_accumulate", "mandelbrot"):
        for kernel in _file(name, 64).kernels:
            text = "\n".join(kernel.rows)
            assert ("__syncthreads" in text) == ("__shared__" in text), name


def test_exact_reductions_stay_in_one_thread() -> None:
    p = with_parameters(replace(EVERYTHING["dot"], fp="exact"))
    large = {d.name: 1 << 20 for d in p.hom.dims}
    point = gpu_default(p, H100, large)
    c = gpu_configuration(p, CUDA_MODEL, large, point)
    assert why_not_legal(c, p, CUDA_MODEL) is None
    (kernel,) = file_of(Case(p, c, {}, {}, replace(GENERIC, model=CUDA_MODEL)), "kernel", CUDA).kernels
    assert kernel.unit == 1


def test_compiles_without_spills(tmp_path: Path) -> None:
    """With nvcc, where it is installed: nothing of a default configuration is kept in local memory."""
    for name in ("matmul", "jacobi3d", "conv2d", "dot", "matvec"):
        if shutil.which("nvcc") is None:
            continue
        source = tmp_path / f"{name}.cu"
        source.write_text(_file(name, 1024 if name != "conv2d" else 64, R=5, S=5).text)
        line = ["nvcc", "-arch=sm_90", "-cubin", "-Xptxas", "-v", str(source), "-o", str(tmp_path / "k.cubin")]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
        assert spills, done.stderr
        assert set(spills) == {("0", "0")}, (name, done.stderr)
        frames = re.findall(r"(\d+) bytes stack frame", done.stderr)
        assert set(frames) == {"0"}, (name, done.stderr)


# --------------------------------------------------------------------------- barriers


def _shared_cases(name: str) -> tuple[Case, int, int]:
    """A case with dependences between threads, and its barriers of the block and of warps."""
    rng = random.Random(name)
    if name == "histogram":
        text = "void f(int n, int m, const int to[n], int h[m])\n{\n#pragma mdh\n"
        text += "    for (int i = 0; i < n; i++) { h[to[i]] += 1; }\n}\n"
        return _histogram_cases(text, CUDA_MODEL, [{"private": "block", "copies": 2}], 3)[3][0], 2, 0
    program, point, blocks, warps = {
        "tiles": ("matmul", {"threads_i": 8, "threads_j": 8, "chunk_k": 2, "share_A": 1, "share_B": 1}, 2, 0),
        "tiles of a warp": ("matmul", {"threads_i": 8, "threads_j": 4, "chunk_k": 2, "share_A": 1, "share_B": 1}, 0, 2),
        "tiles read ahead": (
            "matmul",
            {"threads_i": 8, "threads_j": 8, "chunk_k": 2, "share_A": 1, "share_B": 1, "stages": 2}, 2, 0,
        ),
        "shuffles": ("matvec", {"threads_k": 64, "threads_i": 2, "fast": "k"}, 1, 0),
        "shuffles of a warp": ("matvec", {"threads_k": 16, "threads_i": 4, "fast": "k"}, 0, 0),
        "cells by shuffles": ("matvec", {"threads_k": 64, "rows_i": 2, "fast": "k"}, 2, 0),
        "tree": ("matvec", {"threads_k": 48, "fast": "k"}, 1, 1),
        "tree of a warp": ("matvec", {"threads_k": 12, "threads_i": 2, "fast": "k"}, 0, 1),
        "cells in a tree": ("matvec", {"threads_k": 48, "rows_i": 2, "fast": "k"}, 2, 1),
    }[name]  # fmt: skip
    p = EVERYTHING[program]
    params: dict[str, Value] = dict.fromkeys((q.name for q in p.params), 37)
    buffers = buffers_for(p, params, rng)
    sized, extra = with_extents(p, buffers)
    sized = with_all_extents(sized, buffers)
    values = {**params, **extra}
    c = gpu_configuration(sized, CUDA_MODEL, sized.sizes(integers(values)), point)
    return Case(sized, c, values, buffers, replace(GENERIC, model=CUDA_MODEL)), blocks, warps


@pytest.mark.parametrize(
    "name",
    [
        "tiles", "tiles of a warp", "tiles read ahead", "shuffles", "shuffles of a warp", "cells by shuffles",
        "tree", "tree of a warp", "cells in a tree", "histogram",
    ],
)  # fmt: skip
def test_every_barrier_is_needed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as derived, and without any of them threads are found to race."""
    case, blocks, warps = _shared_cases(name)
    batch = gpu_emitted.batch_of([case], CUDA)
    (file,) = batch.files
    rows = file.text.split("\n")
    barriers = [k for k, row in enumerate(rows) if row.strip() in ("__syncthreads();", "__syncwarp();")]
    assert sum("__syncthreads" in rows[k] for k in barriers) == blocks, file.text
    assert len(barriers) - blocks == warps, file.text
    for k in barriers:
        text = "\n".join([*rows[:k], *rows[k + 1 :]])
        without = replace(batch, files=[replace(file, text=text)])
        monkeypatch.setattr(gpu_emitted, "batch_of", lambda *_, without=without: without)
        with pytest.raises(AssertionError, match="data race in shared memory"):
            run_cuda([case], tmp_path)


# --------------------------------------------------------------------------- the host function


def _accumulated(tmp_path: Path, **environment: str) -> tuple[int, dict[str, list[Value]], Case]:
    rng = random.Random(3)
    case, _ = _case(EVERYTHING["matvec_accumulate"], rng, CUDA_MODEL, "default")
    ((returned, found),) = run_cuda([case], tmp_path, **environment)
    return returned, found, case


@pytest.mark.parametrize(
    "environment", [{"MDH_SHIM_DEVICES": "0"}, {"MDH_SHIM_MEMORY": "16"}], ids=["no device", "no memory"]
)
def test_declines_without_a_device(tmp_path: Path, environment: dict[str, str]) -> None:
    """Nothing has been written when the host function says that the original must run."""
    returned, found, case = _accumulated(tmp_path, **environment)
    assert returned == 0
    assert found == {b.name: case.buffers[b.name].data for b in case.program.buffers}


def test_every_array_travels_once(tmp_path: Path) -> None:
    """Inputs go to the device, outputs go there and back."""
    returned, _, case = _accumulated(tmp_path)
    assert returned == 1
    told = subprocess.run(
        [str(tmp_path / "cases")], capture_output=True, text=True, timeout=60,
        env={**os.environ, "MDH_SHIM_COUNT": "1"},
    )  # fmt: skip
    counted = json.loads(told.stderr.splitlines()[-1])
    sizes = {b.name: len(case.buffers[b.name].data) * b.type.size for b in case.program.buffers}
    written = {s.buffer for s in case.program.out.stores}
    assert counted["to_device"] == {"calls": len(sizes), "bytes": sum(sizes.values())}
    assert counted["to_host"] == {"calls": len(written), "bytes": sum(sizes[b] for b in written)}
