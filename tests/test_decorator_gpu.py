"""``@mdh(target=...)``: kernels for OpenCL on the device of this machine, for CUDA on the processor.

CUDA runs through ``CUDACXX`` (``tuning.cuda_on_cpu``); arrays in device memory are objects with the protocol's
dict, over memory that the shim's runtime or the host has.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdh_lift
from mdh_lift import MdhWarning, gpu_entry, mdh
from mdh_lift.python import build, decorator
from mdh_lift.python.decorator import MdhFunction
from mdh_lift.python.device_arrays import held, ready
from tests.gpu_emitted import has_opencl_device
from tuning import accelerator as accelerator_module

TYPES = (np.float32, np.float64, np.int32, np.int64)
T = np.float32
ON_CPU = f"{sys.executable} -m tuning.cuda_on_cpu"
needs_opencl = pytest.mark.skipif(not has_opencl_device(), reason="there is no OpenCL device")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MDH_LIFT_CACHE", str(tmp_path_factory.mktemp("kernels")))
        patch.setenv("MDH_OPENCL_OPTIONS", "-cl-opt-disable")
        patch.setenv("CUDACXX", ON_CPU)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
        yield


def quiet(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a call that must not warn: a kernel computed it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return f(*args, **kwargs)


def values(dtype: Any, *shape: int) -> Any:
    rng = np.random.default_rng(sum(shape) + 1)
    whole = rng.integers(-4, 5, shape) if np.dtype(dtype).kind == "i" else rng.uniform(-1, 1, shape)
    return whole.astype(dtype)


def same(f: MdhFunction, *args: Any) -> None:
    """The kernel and plain Python do the same to the arrays and return the same."""
    ours, plain = ([np.array(x, copy=True) if isinstance(x, np.ndarray) else x for x in args] for _ in range(2))
    got, wanted = quiet(f, *ours), f.original(*plain)
    for x, y in zip(ours, plain, strict=True):
        if isinstance(x, np.ndarray):
            equal(x, y)
    assert type(got) is type(wanted)
    if got is not None:
        equal(np.asarray(got), np.asarray(wanted))


def equal(x: Any, y: Any) -> None:
    if x.dtype.fields is not None:
        for name in x.dtype.names:
            equal(x[name], y[name])
    elif x.dtype.kind == "f":
        tolerance = 1e-4 if x.dtype.itemsize == 4 else 1e-10
        assert np.allclose(x, y, rtol=tolerance, atol=tolerance)
    else:
        assert np.array_equal(x, y)


# --------------------------------------------------------------------------- functions, for any target


def matmul(A, B, C):
    n, k_max = A.shape
    m = B.shape[1]
    for i in range(n):
        for j in range(m):
            C[i, j] = 0
            for k in range(k_max):
                C[i, j] += A[i, k] * B[k, j]


def total(x):
    s = x[0] * 0 if len(x) else 0.0
    for i in range(len(x)):
        s += x[i]
    return s


def relax(steps, a, b):
    n = len(a)
    for _ in range(steps):
        for i in range(1, n - 1):
            b[i] = 0.25 * (a[i - 1] + 2.0 * a[i] + a[i + 1])
        for i in range(1, n - 1):
            a[i] = 0.25 * (b[i - 1] + 2.0 * b[i] + b[i + 1])


def nearest(distance):
    best = np.int32(2**31 - 1)
    at = -1
    for i in range(len(distance)):
        if distance[i] < best:
            best = distance[i]
            at = i
    return at, best


POINT = np.dtype([("key", np.int32), ("at", np.float64)], align=True)


def squares(z, out):
    for i in range(len(z)):
        out[i] = np.void((z[i]["key"] * z[i]["key"], z[i]["at"] * 0.5), POINT)


def running(x, y):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        y[i] = s


def histogram(m: "int64", bins: "int64[m]", x: "int64[:]", weight: "int64[:]"):
    for i in range(len(x)):
        bins[x[i]] += weight[i]


def gather(x, at, y):
    for i in range(len(at)):
        y[i] = x[at[i]]


@functools.cache
def decorated(f: Any, target: str) -> MdhFunction:
    """One decorated function for all tests, so that a kernel is compiled once."""
    return mdh(target=target)(f)


# --------------------------------------------------------------------------- OpenCL


@needs_opencl
@pytest.mark.parametrize("dtype", TYPES)
def test_matrix_products_of_all_types(dtype: Any) -> None:
    for n, m, k in ((7, 5, 11), (1, 1, 1), (0, 5, 3), (7, 5, 0), (13, 2, 7)):
        same(decorated(matmul, "opencl"), values(dtype, n, k), values(dtype, k, m), values(dtype, n, m))


@needs_opencl
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_reductions_return_scalars(dtype: Any) -> None:
    for n in (1, 7, 13, 101):
        same(decorated(total, "opencl"), values(dtype, n))
    assert quiet(decorated(total, "opencl"), np.zeros(0, dtype)) == 0


@needs_opencl
def test_host_loops() -> None:
    for steps, n in ((0, 7), (1, 0), (1, 1), (2, 2), (3, 13), (2, 7)):
        same(decorated(relax, "opencl"), steps, values(np.float64, n), values(np.float64, n))


@needs_opencl
def test_positions_and_records() -> None:
    for n in (0, 1, 7, 13):
        distance = np.random.default_rng(n).integers(-9, 9, n).astype(np.int32)
        same(decorated(nearest, "opencl"), distance)
        z = np.zeros(n, POINT)
        z["key"], z["at"] = np.arange(n), 3.0
        same(decorated(squares, "opencl"), z, np.zeros(n, POINT))


@needs_opencl
def test_scans() -> None:
    for n in (0, 1, 7, 131):
        same(decorated(running, "opencl"), values(np.float64, n), np.zeros(n))


@needs_opencl
def test_arrays_that_are_indexed_with_data() -> None:
    """Their lengths are not declared: the kernel is told them."""
    for n in (0, 1, 13):
        rng = np.random.default_rng(n)
        same(decorated(histogram, "opencl"), 5, np.zeros(5, np.int64), rng.integers(0, 5, n), np.arange(n))
        same(decorated(gather, "opencl"), values(np.float32, 5), rng.integers(0, 5, n), np.zeros(n, np.float32))
    with pytest.warns(MdhWarning, match="may leave"):
        decorated(gather, "opencl")(values(np.float32, 5), np.array([-1]), np.zeros(1, np.float32))


@needs_opencl
def test_threads_and_repeated_calls() -> None:
    f, wrong = decorated(matmul, "opencl"), []

    def work(seed: int) -> None:
        for n in (3, 7, 5):
            a, b = values(np.float64, n, seed + 1), values(np.float64, seed + 1, n)
            c = np.full((n, n), 9.0)
            f(a, b, c)
            if not np.allclose(c, a @ b):
                wrong.append((seed, n))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong
    for _ in range(5):
        work(4)
    assert not wrong


@needs_opencl
def test_strides_overlap_and_read_only_are_as_without_a_gpu() -> None:
    f = decorated(gather, "opencl")
    at, y = np.array([1, 0]), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=r"`x` has strides \(8,\).*ascontiguousarray"):
        f(np.zeros(6, np.float32)[::2], at, y)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="`y` is read-only"):
        f(values(np.float32, 5), at, y)
    memory, plain = np.arange(8.0), np.arange(8.0)
    with pytest.warns(MdhWarning, match="declined"):
        decorated(running, "opencl")(memory[:-1], memory[1:])
    running(plain[:-1], plain[1:])
    assert (memory == plain).all()


@needs_opencl
def test_exact_keeps_the_order_of_python() -> None:
    @mdh(target="opencl", fp="exact")
    def f(x):
        s = np.float32(0)
        for i in range(len(x)):
            s = s + x[i] * x[i]
        return s

    x = values(np.float32, 1001)
    assert quiet(f, x).tobytes() == f.original(x).tobytes()


@needs_opencl
def test_the_spellings_of_the_mdh_project() -> None:
    @mdh(
        mdh_lift.target("opencl"),
        mdh_lift.out(w=mdh_lift.Buffer[T]),
        mdh_lift.inp(M=mdh_lift.Buffer[T], v=mdh_lift.Buffer[T]),
        mdh_lift.combine_ops(mdh_lift.cc, mdh_lift.pw(mdh_lift.add)),
    )
    def f(w, M, v):
        n, k_max = M.shape
        for i in range(n):
            for k in range(k_max):
                w[i] = M[i, k] * v[k]

    M, v, w = values(T, 6, 9), values(T, 9), np.full(6, 7, T)
    with pytest.warns(MdhWarning, match="MDH415") as caught:
        f(w, M, v)
    assert len(caught) == 1 and np.allclose(w, M @ v, atol=1e-5)


# --------------------------------------------------------------------------- what is missing


def test_without_the_device_python_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MDH_OPENCL_DEVICE", "99")
    f = mdh(target="opencl")(running)
    x, y = np.arange(4.0), np.zeros(4)
    with pytest.warns(MdhWarning, match=r"runs as plain Python: MDH80[56]: ") as caught:
        f(x, y)
    assert len(caught) == 1 and y.tolist() == [0, 1, 3, 6]
    quiet(f, x, y)


def test_without_a_compiler_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    y = np.zeros(4)
    with pytest.warns(MdhWarning, match="MDH805: the compiler `/nowhere/nvcc` for cuda cannot be run"):
        mdh(target="cuda")(running)(np.arange(4.0), y)
    assert y.tolist() == [0, 1, 3, 6]


def test_the_first_target_that_works_here_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    f = mdh(target=("cuda", "openmp"))(running)
    same(f, np.arange(4.0), np.zeros(4))
    (found,) = f.specializations.values()
    assert [m.target for m in found.made.values() if m] == ["openmp"]
    monkeypatch.setattr(build, "accelerator", lambda *a, **k: pytest.fail("another target was asked for"))
    same(mdh(target=("openmp", "cuda"))(running), np.arange(4.0), np.zeros(4))


def test_all_targets_are_named_where_none_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    monkeypatch.setenv("MDH_OPENCL_DEVICE", "99")
    with pytest.warns(MdhWarning, match=r"cuda: MDH805: .*; opencl: MDH80[56]: "):
        mdh(target=("cuda", "opencl"))(running)(np.arange(4.0), np.zeros(4))


def test_names_that_mean_something_else_are_told() -> None:
    @mdh(target=("cuda", "openmp"))
    def f(template):
        for i in range(len(template)):
            template[i] = 2.0

    x = np.zeros(3)
    with pytest.warns(MdhWarning, match="runs on openmp, not on cuda: .*MDH417: `template`"):
        f(x)
    assert (x == 2).all()


@pytest.mark.parametrize("target", ["cuda", pytest.param("opencl", marks=needs_opencl)])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("3.0", "4.0", "something else than Python"),
        ("return 1;", "return 0;", "declined"),
        ("return 1;", "*(volatile int *)0 = 1;", "crashed"),
        ("return 1;", "syntax error", "does not compile"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_never_used(
    target: str, old: str, new: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = gpu_entry.program

    def broken(*args: Any) -> Any:
        made = original(*args)
        text, tail = made.device.rsplit("return 1;", 1) if old == "return 1;" else (made.device, "")
        changed = f"{text}{new}{tail}" if old == "return 1;" else text.replace(old, new)
        assert changed != made.device
        return dataclasses.replace(made, device=changed)

    monkeypatch.setattr(gpu_entry, "program", broken)

    @mdh(target=target)
    def f(x, y):
        for i in range(len(x)):
            y[i] = x[i] * 3

    def verified() -> set[Path]:
        return {p for p in build.cache_directory().iterdir() if p.suffix in (".so", ".verified")}

    x, y, before = np.arange(6.0), np.zeros(6), verified()
    with pytest.warns(MdhWarning, match=reason):
        f(x, y)
    assert (y == 3 * x).all()
    assert verified() == before


def test_a_kernel_that_is_wrong_in_device_memory_only_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    original = gpu_entry.program

    def broken(*args: Any) -> Any:
        made = original(*args)
        assert "return (mdh_cells)part;" in made.device  # an array that is there is used in place
        return dataclasses.replace(made, device=made.device.replace("return (mdh_cells)part;", "return mdh_room(k, bytes);"))

    monkeypatch.setattr(gpu_entry, "program", broken)
    x, y = np.arange(6.0), np.zeros(6)
    with pytest.warns(MdhWarning, match="something else than Python in case .*, with arrays in device memory"):
        mdh(target="cuda")(running)(x, y)
    assert (y == np.cumsum(x)).all()


@needs_opencl
def test_what_was_verified_is_verified_for_this_device_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MDH_LIFT_CACHE", str(tmp_path))
    checks: list[str] = []
    original = build._check
    monkeypatch.setattr(build, "_check", lambda *a: checks.append(a[1].target) or original(*a))
    x = np.arange(3.0)
    quiet(mdh(target="opencl")(running), x, np.zeros(3))
    accelerator_module._accelerator.cache_clear()  # as in a later process
    with monkeypatch.context() as later:
        later.setattr(build, "_compile", lambda *a: pytest.fail("compiled again"))
        later.setattr(accelerator_module, "_probe", lambda *a: pytest.fail("the probe is compiled again"))
        quiet(mdh(target="opencl")(running), x, np.zeros(3))
    assert checks == ["opencl"]
    monkeypatch.setenv("MDH_OPENCL_OPTIONS", "-cl-opt-disable -DANOTHER")
    quiet(mdh(target="opencl")(running), x, np.zeros(3))
    assert checks == ["opencl"] * 2


# --------------------------------------------------------------------------- CUDA, and arrays in its memory


class OnDevice:
    """As CuPy's arrays, as far as kernels need them: memory, the protocol, and reductions of indices."""

    def __init__(self, host: Any, address: int | None = None, **interface: Any) -> None:
        self.host, self.shape, self.read = host, host.shape, 0
        self.__cuda_array_interface__ = {
            "shape": host.shape, "typestr": host.dtype.str, "descr": host.dtype.descr, "version": 3,
            "data": (host.ctypes.data if address is None else address, not host.flags.writeable),
            "strides": None if host.flags.c_contiguous else host.strides, "stream": 1, **interface,
        }  # fmt: skip

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, at: Any) -> Any:
        self.read += 1
        return self.host[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self.host[at] = value

    def min(self) -> Any:
        return self.host.min()

    def max(self) -> Any:
        return self.host.max()


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_cuda_on_numpy_arrays(dtype: Any) -> None:
    for n, m, k in ((7, 5, 11), (1, 1, 1), (0, 5, 3), (7, 5, 0)):
        same(decorated(matmul, "cuda"), values(dtype, n, k), values(dtype, k, m), values(dtype, n, m))


def test_cuda_with_host_loops_and_results() -> None:
    for steps, n in ((0, 7), (1, 1), (3, 13)):
        same(decorated(relax, "cuda"), steps, values(np.float64, n), values(np.float64, n))
    for n in (0, 1, 13):
        same(decorated(nearest, "cuda"), np.random.default_rng(n).integers(-9, 9, n).astype(np.int32))


def test_arrays_with_the_protocol_are_passed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    f, waited = decorated(matmul, "cuda"), []
    monkeypatch.setattr(decorator, "ready", lambda library, name, h: waited.append((name[-3:], h.stream)))
    a, b, c = values(np.float32, 7, 11), values(np.float32, 11, 5), np.zeros((7, 5), np.float32)
    for streams in ((1, 1, 1), (None, 2, 1)):
        c[:] = 0
        given = [OnDevice(x, stream=s) for x, s in zip((a, b, c), streams, strict=True)]
        quiet(f, *given)
        assert np.allclose(c, a @ b, atol=1e-5)
        assert not any(x.read for x in given)
        assert waited == [(f"`{n}`", s or 0) for n, s in zip("ABC", streams, strict=True)]
        waited.clear()
    c[:] = 0
    quiet(f, a, OnDevice(b), c)  # some on the host
    assert np.allclose(c, a @ b, atol=1e-5)
    quiet(f, OnDevice(a[:0]), OnDevice(b, 0) if not b.size else b, OnDevice(c[:0], 0))


def test_arrays_with_the_protocol_as_records_and_indices() -> None:
    f = decorated(gather, "cuda")
    x, y = values(np.float32, 5), np.zeros(3, np.float32)
    quiet(f, OnDevice(x), OnDevice(np.array([4, 0, 2])), OnDevice(y))
    assert y.tolist() == [x[4], x[0], x[2]]
    with pytest.warns(MdhWarning, match="may leave"):
        f(OnDevice(x), OnDevice(np.array([-1, 0, 2])), OnDevice(y))
    assert y[0] == x[4]
    z, out = np.zeros(3, POINT), np.zeros(3, POINT)
    z["key"], z["at"] = [1, 2, 3], 4.0
    quiet(decorated(squares, "cuda"), OnDevice(z), OnDevice(out))
    assert out["key"].tolist() == [1, 4, 9] and (out["at"] == 2).all()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda x: OnDevice(x[::2]), ValueError, "`x` has strides \\(8,\\) .* pass a copy that is"),
        (lambda x: OnDevice(x, stream=0), ValueError, "`x` names the stream 0"),
        (lambda x: OnDevice(x, mask=x), ValueError, "`x` has a mask"),
    ],
)
def test_what_kernels_cannot_take_is_named(make: Callable[[Any], Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        quiet(decorated(gather, "cuda"), make(values(np.float32, 6)), np.array([1]), np.zeros(1, np.float32))


def test_read_only_and_declared_arrays_in_device_memory() -> None:
    y = np.zeros(1, np.float32)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="`y` is read-only"):
        decorated(gather, "cuda")(OnDevice(values(np.float32, 6)), np.array([1]), OnDevice(y))

    @mdh(target="cuda")
    def f(n: "int32", x: "float32[n]"):
        for i in range(n):
            x[i] = 1

    with pytest.raises(TypeError, match="`x` has dtype float64, declared float32"):
        f(3, OnDevice(np.zeros(3)))
    with pytest.raises(ValueError, match=r"`x` has shape \(2,\)"):
        f(3, OnDevice(np.zeros(2, np.float32)))
    x = np.zeros(3, np.float32)
    quiet(f, 3, OnDevice(x))
    assert (x == 1).all()


def test_other_targets_do_not_take_them() -> None:
    @mdh
    def f(x):
        for i in range(len(x)):
            x[i] = x[i] + 1

    x = OnDevice(np.zeros(3))
    with pytest.warns(MdhWarning, match='`x` is an array in device memory, which needs `target="cuda"`'):
        f(x)
    assert (x.host == 1).all() and x.read == 3

    @mdh
    def g(x: "float64[:]"):
        for i in range(len(x)):
            x[i] = x[i] + 1

    with pytest.raises(TypeError, match='`x` is an array in device memory, which needs `target="cuda"`'):
        g(x)


def test_python_runs_on_them_where_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An OpenMP kernel cannot: its target is passed over."""
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    f = mdh(target=("cuda", "openmp"))(running)
    x, y = OnDevice(np.arange(4.0)), OnDevice(np.zeros(4))
    with pytest.warns(MdhWarning, match="MDH805"):
        f(x, y)
    assert y.host.tolist() == [0, 1, 3, 6] and x.read == 4
    same(f, np.arange(4.0), np.zeros(4))


def test_streams_are_waited_for_and_devices_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []

    class Library:
        """What a library answers; functions may have attributes, as those of ctypes."""

        held_on = 0

    def wait(stream: int) -> int:
        waited.append(stream)
        return 0 if stream == 7 else 1

    Library.mdh_held_wait = staticmethod(wait)
    Library.mdh_held_on = staticmethod(lambda address: Library.held_on)
    Library.mdh_held_here = staticmethod(lambda: 0)

    def given(stream: Any) -> Any:
        return held(OnDevice(np.zeros(3), stream=stream), "`x`")

    library: Any = Library
    for stream in (None, 1, 2, 0x1234):
        ready(library, "`x`", given(stream))
    assert waited == [1, 2, 0x1234]
    with pytest.raises(RuntimeError, match="`x`: CUDA cannot wait for its stream 0x7"):
        ready(library, "`x`", given(7))
    Library.held_on = 1
    with pytest.raises(ValueError, match="`x` is on device 1, and kernels run on device 0 now"):
        ready(library, "`x`", given(1))
    Library.held_on = -1
    ready(library, "`x`", given(1))


def _in_shim_memory(library: ctypes.CDLL, host: Any) -> OnDevice:
    library.mdh_held_new.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.mdh_held_new.restype = ctypes.c_void_p
    return OnDevice(host, library.mdh_held_new(host.ctypes.data, host.nbytes))


def test_memory_of_the_device_is_used_in_place() -> None:
    """Memory that the host cannot touch: CUDA on the CPU protects it."""
    f = decorated(matmul, "cuda")
    a, b, c = values(np.float32, 7, 11), values(np.float32, 11, 5), np.zeros((7, 5), np.float32)
    quiet(f, a, b, c)
    made = next(m for found in f.specializations.values() for m in found.made.values() if m is not None)
    given = [_in_shim_memory(made.library, x) for x in (a, b, np.zeros_like(c))]
    quiet(f, *given)
    result = np.zeros_like(c)
    made.library.mdh_held_back.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    address = given[2].__cuda_array_interface__["data"][0]
    assert made.library.mdh_held_back(result.ctypes.data, address, result.nbytes)
    assert (result == c).all() and not given[2].host.any()
