"""Emitted GPU code equals the interpreter: CUDA on the CPU, OpenCL on whatever device there is."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from emit import gpu_rows_text
from emit.gpu_render import GpuFile
from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from lowering import gpu_histogram
from lowering.device import GENERIC_OPENCL, H100
from lowering.gpu_histogram import PLACES
from lowering.gpu_point import gpu_configuration, gpu_default, gpu_space
from lowering.machine import CUDA as CUDA_MODEL
from lowering.machine import CUDA_WRP, GENERIC, SystemModel
from lowering.machine import OPENCL as OPENCL_MODEL
from lowering.parameters import random_configuration, why_not_legal
from lowering.point import Point
from mdh_core.evaluate import Value
from mdh_core.expr import INT64, Affine
from mdh_core.interpreter import BufferValue, integers, run
from mdh_core.ir import MdhProgram, Param
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
)
from tests.strategies import buffers_for, copy_of
from tests.test_emit import _scan_case, _scan_of
from tuning.space import valid_points

CONFIGURATIONS = int(os.environ.get("MDH_GPU_CONFIGURATIONS", "3"))  # random ones per program
Checked = tuple[Case, dict[str, BufferValue]]


def _sizes(p: MdhProgram, rng: random.Random) -> dict[str, Value]:
    params = small_params(p)
    for q in p.params:
        if isinstance(params[q.name], int) and rng.random() < 0.4:
            params[q.name] = rng.choice((0, 1, 2, 7, 13) if len(p.hom.dims) < 4 else (1, 2, 3))
    return params


def _case(p: MdhProgram, rng: random.Random, model: SystemModel, kind: str) -> Checked:
    """A case and the buffers that it must end with."""
    params = _sizes(p, rng)
    buffers = buffers_for(p, params, rng)
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
    large = len(EVERYTHING[name].hom.dims) > 5  # compiles slowly
    slow = large or (model == OPENCL_MODEL and CONFIGURATIONS == 3)
    kinds = ["default", *["random"] * (1 if slow else CONFIGURATIONS), *([] if large else ["space"])]
    return [_case(EVERYTHING[name], rng, model, kind) for kind in kinds]


def _groups(size: int) -> list[list[str]]:
    """The catalogue in groups that are compiled together; of the nine contractions, which are alike, two."""
    names = [n for n in EVERYTHING if not n.startswith("ccsdt") or n.endswith(("gdab_efgc", "gfbc_dega"))]
    names = [*EVERYTHING] if CONFIGURATIONS > 3 else names
    return [names[k : k + size] for k in range(0, len(names), size)]


@pytest.mark.parametrize("names", _groups(6), ids="-".join)
def test_cuda(names: list[str], tmp_path: Path) -> None:
    """No thread reads what another writes without a barrier between, in any order of threads."""
    cases = [case for name in names for case in _cases(name, CUDA_MODEL)]
    check_cuda(cases, tmp_path, MDH_FIBERS="shuffled:7")


@pytest.mark.parametrize("names", _groups(6), ids="-".join)
def test_opencl(names: list[str], tmp_path: Path) -> None:
    if not has_opencl_device():
        pytest.skip("there is no OpenCL device (pocl-opencl-icd makes the processor one)")
    check_opencl([case for name in names for case in _cases(name, OPENCL_MODEL)], tmp_path)


@pytest.mark.parametrize("name", ["matmul", "conv2d", "dot", "prl", "mcc"])
def test_three_levels_of_threads(name: str, tmp_path: Path) -> None:
    """Blocks, warps, threads: a model with a further layer."""
    rng = random.Random(name)
    check_cuda([_case(EVERYTHING[name], rng, CUDA_WRP, "random") for _ in range(6)], tmp_path)


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


def _with_parameters(p: MdhProgram) -> MdhProgram:
    """The program with parameters as the extents of its buffers."""
    found, params = [], list(p.params)
    for b in p.buffers:
        names = [f"{b.name}_n{t}" for t in range(b.rank)]
        params += [Param(n, INT64, n, "long") for n in names]
        found.append(replace(b, extents=tuple(map(Affine.of, names)), base=b.name, restrict=True))
    return replace(p, buffers=tuple(found), params=tuple(params))


def _file(name: str, extents: int, **sizes: int) -> GpuFile:
    p = _with_parameters(EVERYTHING[name])
    large = {d.name: sizes.get(d.name, extents) for d in p.hom.dims}
    c = gpu_configuration(p, CUDA_MODEL, large, gpu_default(p, H100, large))
    return file_of(Case(p, c, {}, {}, replace(GENERIC, model=CUDA_MODEL)), "kernel", CUDA)


def test_matmul_in_tiles() -> None:
    """Both operands in shared memory, sixteen accumulators at least, one barrier on each side of the copies."""
    file = _file("matmul", 1024)
    (kernel,) = file.kernels
    text = "\n".join(kernel.rows)
    tiles = re.findall(r"__shared__ float (\w+)_tile\[", text)
    assert sorted(tiles) == ["A", "B"]
    assert text.count("__syncthreads();") == 2
    assert re.search(r"float acc(\[\d\])+;", text)
    inner = text[text.index("if (k_1 + 16 <= k_size)") : text.index("} else {")]
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
    p = _with_parameters(replace(EVERYTHING["dot"], fp="exact"))
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
        "tree": ("matvec", {"threads_k": 64, "threads_i": 2, "fast": "k"}, 1, 1),
        "tree of a warp": ("matvec", {"threads_k": 16, "threads_i": 4, "fast": "k"}, 0, 1),
        "cells in a tree": ("matvec", {"threads_k": 64, "rows_i": 2, "fast": "k"}, 2, 1),
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
    "name", ["tiles", "tiles of a warp", "tree", "tree of a warp", "cells in a tree", "histogram"]
)
def test_every_barrier_is_needed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as derived, and without any of them threads are found to race."""
    case, blocks, warps = _shared_cases(name)
    file = file_of(case, "k0", CUDA)
    rows = file.text.split("\n")
    barriers = [k for k, row in enumerate(rows) if row.strip() in ("__syncthreads();", "__syncwarp();")]
    assert sum("__syncthreads" in rows[k] for k in barriers) == blocks, file.text
    assert len(barriers) - blocks == warps, file.text
    for k in barriers:
        text = "\n".join([*rows[:k], *rows[k + 1 :]])
        monkeypatch.setattr(gpu_emitted, "file_of", lambda *_, text=text: replace(file, text=text))
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
