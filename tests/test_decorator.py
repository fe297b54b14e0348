"""The decorator ``@mdh``: programs of the corpus against plain Python, errors, fallbacks, caching."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdh_lift
from campaigns.python_corpus import CORPUS, compare
from mdh_lift import MdhWarning, entry, mdh
from mdh_lift.python import build
from mdh_lift.python.decorator import MdhFunction

# one of each kind; `python -m campaigns.python_corpus` compares all
TWINS = (
    "argmin", "double_reduce", "gemm_epilogue", "gen_histo", "int8_dot", "jacobi1d_time", "layer_norm", "matvec", "scan",
    "sobel", "spmv_csr", "syrk", "uint64_xor_hash", "user_op",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MDH_LIFT_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.mark.parametrize("name", TWINS)
def test_twin_computes_what_plain_python_computes(name: str) -> None:
    outcome = compare(CORPUS / "py" / f"{name}.py")
    assert outcome.compared and outcome.differences == []


# --------------------------------------------------------------------------- calls


def quiet(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a call that must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return f(*args, **kwargs)


def matrix(n: int, m: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(n * m).uniform(-1, 1, (n, m)).astype(dtype)


@mdh
def matvec(w, M, v, scale=1.0):
    """The function's own text."""
    n, k_max = M.shape
    assert w.shape == (n,)
    for i in range(n):
        w[i] = 0
        for k in range(k_max):
            w[i] += scale * M[i, k] * v[k]
    return w


def test_results_arrays_and_defaults() -> None:
    M, v, w = matrix(13, 29), matrix(1, 29)[0], np.ones(13, np.float32)
    assert quiet(matvec, w, M, v) is w
    assert np.allclose(w, M @ v, atol=1e-5)
    quiet(matvec, w, M, v=v, scale=2.0)
    assert np.allclose(w, 2 * (M @ v), atol=1e-5)
    assert matvec.__doc__ == "The function's own text." and matvec.__name__ == "matvec"
    with pytest.raises(AssertionError):
        matvec(w[:3], M, v)
    with pytest.raises(TypeError, match="missing"):
        matvec(w)


def test_one_kernel_per_types_and_size_class(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    original = build.library
    monkeypatch.setattr(build, "library", lambda p, fp, c: built.append(p.text) or original(p, fp, c))

    @mdh
    def f(x, y):
        for i in range(len(x)):
            y[i] = x[i] * 2

    def call(n: int, dtype: Any) -> None:
        x, y = np.ones(n, dtype), np.zeros(n, dtype)
        quiet(f, x, y)
        assert (y == 2).all()

    for _ in range(3):
        call(5, np.float32)
    assert len(built) == 1
    call(5, np.float64)
    assert len(built) == 2
    call(7, np.float64)
    assert len(built) == 2
    call(100_000, np.float64)
    assert len(built) == 3
    call(0, np.float64)


def test_results_have_the_types_of_plain_python() -> None:
    @mdh
    def f(x, k):
        s = 0.0
        c = 0
        best = -1.0
        some = False
        for i in range(len(x)):
            s += x[i]
            c += k[i]
            best = max(best, x[i])
            some = some or x[i] > 1
        return s, c, best, some

    for dtype in (np.float32, np.float64):
        x, k = np.arange(5).astype(dtype), np.arange(5, dtype=np.int16)
        got, wanted = quiet(f, x, k), f.original(x, k)
        assert [type(a) for a in got] == [type(b) for b in wanted]
        assert got == wanted


def test_names_of_the_loops_may_be_used_again() -> None:
    @mdh
    def f(x):
        t = 1.0
        for i in range(len(x)):
            u = x[i] * 2
            x[i] = u
        u = t + 1
        return u, t

    assert quiet(f, np.ones(3)) == (2.0, 1.0)


def test_globals_and_closures_may_change() -> None:
    def make(factor: float) -> Any:
        @mdh
        def f(x):
            for i in range(len(x)):
                x[i] = x[i] * factor + OFFSET

        return f

    global OFFSET
    OFFSET = 1.0
    x = np.ones(4)
    quiet(make(2.0), x)
    assert (x == 3).all()
    f = make(5.0)
    quiet(f, x)
    assert (x == 16).all()
    OFFSET = 4.0
    quiet(f, x)
    assert (x == 84).all()


def test_off_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MDH_LIFT_OFF", "1")
    monkeypatch.setattr(MdhFunction, "_prepare", lambda self: pytest.fail("prepared"))

    @mdh
    def f(x):
        for i in range(len(x)):
            x[i] = 1

    x = np.zeros(3)
    f(x)
    assert (x == 1).all()


def test_bound_as_a_method() -> None:
    class Model:
        factor = 3.0

        @mdh
        def scale(self, x):
            factor = self.factor
            for i in range(len(x)):
                x[i] *= factor

    x = np.ones(4)
    quiet(Model().scale, x)
    assert (x == 3).all()


# --------------------------------------------------------------------------- wrong arguments


@mdh
def declared(n: "int32", M: "float32[n, k]", v: "float32[k]", w: "restrict float32[n]", k: "int32"):
    for i in range(n):
        for j in range(k):
            w[i] += M[i, j] * v[j]


def good() -> dict[str, Any]:
    return {"n": 3, "M": matrix(3, 5), "v": matrix(1, 5)[0], "w": np.zeros(3, np.float32), "k": 5}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"M": matrix(3, 5, np.float64)}, TypeError, ["`M`", "float64", "float32", "astype"]),
        ({"M": matrix(3, 5).tolist()}, TypeError, ["`M`", "list"]),
        ({"M": matrix(3, 5)[0]}, ValueError, ["`M`", "1 dimensions", "2"]),
        ({"M": matrix(5, 3).T}, ValueError, ["`M`", "strides (4, 12)", "ascontiguousarray"]),
        ({"v": matrix(1, 10)[0][::2]}, ValueError, ["`v`", "strides (8,)", "ascontiguousarray"]),
        ({"M": matrix(3, 6)}, ValueError, ["`M`", "(3, 6)", "k = 5"]),
        ({"v": matrix(1, 4)[0]}, ValueError, ["`v`", "(4,)", "k = 5"]),
        ({"n": 2**31}, OverflowError, ["`n`", "int32"]),
        ({"n": 2.5}, TypeError, ["`n`", "float", "int32"]),
        ({"M": matrix(3, 5).astype(">f4")}, TypeError, ["`M`", ">f4"]),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    given = {**good(), **change}
    before = given["w"].copy()
    with pytest.raises(error) as raised:
        quiet(declared, **given)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert (given["w"] == before).all()


def test_read_only_and_overlapping_outputs() -> None:
    given = good()
    given["w"].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        declared(**given)
    given = good()
    memory = np.zeros(8, np.float32)
    with pytest.raises(ValueError, match="`restrict` and overlaps"):
        declared(**{**given, "w": memory[:3], "v": memory[2:7]})


# --------------------------------------------------------------------------- when Python runs


def test_overlap_runs_plain_python() -> None:
    @mdh
    def shift(x, y):
        for i in range(len(x)):
            y[i] = x[i] + 1

    memory, plain = np.arange(8.0), np.arange(8.0)
    with pytest.warns(MdhWarning, match="declined"):
        shift(memory[:-1], memory[1:])
    shift.original(plain[:-1], plain[1:])
    assert (memory == plain).all()


def test_subscripts_outside_mean_what_they_mean_in_python() -> None:
    @mdh
    def before(x, y):
        for i in range(len(x)):
            y[i] = x[i - 1]

    x, y = np.arange(4.0), np.zeros(4)
    with pytest.warns(MdhWarning, match="may leave"):
        before(x, y)
    assert y.tolist() == [3, 0, 1, 2]

    @mdh
    def guarded(x, y):
        n = len(x)
        for i in range(n):
            if i > 0 and i + 1 < n:
                y[i] = x[i - 1] + x[i + 1]

    quiet(guarded, x, y)
    assert y.tolist() == [3, 2, 4, 2]
    with pytest.raises(IndexError), pytest.warns(MdhWarning, match="may leave"):
        guarded(x, y[:2])


@mdh
def tiled(n: "int32", b: "int32", A: "float64[n, n]", C: "restrict float64[n, n]"):
    for ii in range(0, n, b):
        for jj in range(0, n, 4):
            for i in range(ii, min(ii + b, n)):
                for j in range(max(jj, 1), min(jj + 4, n)):
                    C[i, j] += A[j, i - 1 if i > 0 else 0]


@mdh
def levels(n: "int32", b: "int32", x: "float64[n]", y: "restrict float64[n]"):
    for i3 in range(1, n, b):
        for i2 in range(i3, min(i3 + b, n), 2):
            for i in range(i2, min(i2 + 2, min(i3 + b, n))):
                y[i] += 2 * x[i]


@mdh
def every(n: "int32", first: "int32", b: "int32", x: "float64[n]", y: "restrict float64[n]"):
    for i in range(first, n, b):
        y[i] = 2 * x[i] + i


def test_tiles_and_steps_by_a_variable() -> None:
    """Bounds that are the lesser of two keep subscripts inside; a step that is not positive is Python's."""
    for n, b in ((0, 2), (1, 3), (5, 2), (8, 4), (13, 1), (13, 30)):
        a, c = matrix(n, n, np.float64), np.zeros((n, n))
        expected = c.copy()
        quiet(tiled, n, b, a, c)
        tiled.original(n, b, a, expected)
        assert (c == expected).all() and c.any() == (n > 1)
        x, y = np.arange(1.0, n + 1), np.zeros(n)
        quiet(levels, n, b, x, y)
        assert (y[1:] == 2 * x[1:]).all() and not y[:1].any()
        for first in (0, b // 2):
            got, want = np.zeros(n), np.zeros(n)
            quiet(every, n, first, b, np.ones(n), got)
            every.original(n, first, b, np.ones(n), want)
            assert (got == want).all()
    y = np.zeros(5)
    with pytest.warns(MdhWarning, match="declined"):
        every(5, 0, -1, np.ones(5), y)
    assert not y.any()
    with pytest.raises(ValueError, match="must not be zero"):
        every(5, 0, 0, np.ones(5), y)


def test_gathers_look_at_the_indices() -> None:
    @mdh
    def gather(x, at, y):
        for i in range(len(at)):
            y[i] = x[at[i]]

    x, y = np.arange(5.0), np.zeros(3)
    quiet(gather, x, np.array([4, 0, 2]), y)
    assert y.tolist() == [4, 0, 2]
    with pytest.warns(MdhWarning, match="may leave"):
        gather(x, np.array([4, -1, 2]), y)
    assert y.tolist() == [4, 4, 2]


def test_what_is_refused_runs_and_warns_once() -> None:
    @mdh
    def f(x):
        for i in range(len(x)):
            if x[i] > 2:
                break
            x[i] = 9

    x = np.arange(5.0)
    with pytest.warns(MdhWarning, match=r"test_decorator.py:\d+:\d+: MDH205: `break`") as caught:
        f(x)
    assert caught[0].filename == __file__
    assert x.tolist() == [9, 9, 9, 3, 4]
    quiet(f, x)


def test_arguments_that_are_no_arrays_are_named() -> None:
    @mdh
    def f(x):
        for i in range(len(x)):
            x[i] = x[i] + 1

    values = [1, 2]
    with pytest.warns(MdhWarning, match="`x` is of type list, not a NumPy array"):
        f(values)
    assert values == [2, 3]
    with pytest.warns(MdhWarning, match="`x` is of dtype complex128"):
        f(np.zeros(2, complex))


def test_functions_without_text_run() -> None:
    space: dict[str, Any] = {"mdh": mdh}
    exec("@mdh\ndef f(x):\n    for i in range(len(x)):\n        x[i] = 1\n", space)
    x = np.zeros(2)
    with pytest.warns(MdhWarning, match="not available"):
        space["f"](x)
    assert (x == 1).all()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return mdh_done;", "y[0] += 1; return mdh_done;", "something else than Python"),
        ("return mdh_done;", "*(volatile int *)0 = 1; return mdh_done;", "crashed"),
        ("return mdh_done;", "for (volatile int go = 1; go;) {} return mdh_done;", "took too long"),
        ("return mdh_done;", "syntax error", "does not compile"),
        ("return mdh_done;", "y[0] += 1; return 0;", "declined"),
    ],
)
def test_a_wrong_kernel_is_never_used(
    old: str, new: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MDH_LIFT_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "CHECK_SECONDS", 6)
    original = entry.program

    def broken(*args: Any) -> Any:
        made = original(*args)
        return dataclasses.replace(made, text=made.text.replace(old, new))

    monkeypatch.setattr(entry, "program", broken)

    @mdh
    def f(x, y):
        for i in range(len(x)):
            y[i] = x[i] * 3

    x, y = np.arange(6.0), np.zeros(6)
    with pytest.warns(MdhWarning, match=reason):
        f(x, y)
    assert (y == 3 * x).all()
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MDH_LIFT_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)

    @mdh
    def f(x):
        for i in range(len(x)):
            x[i] = 5

    x = np.zeros(3)
    with pytest.warns(MdhWarning, match="MDH801"):
        f(x)
    assert (x == 5).all()


def test_verified_libraries_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MDH_LIFT_CACHE", str(tmp_path))

    def make() -> Any:
        @mdh
        def f(x):
            for i in range(len(x)):
                x[i] = 7

        return f

    x = np.zeros(3)
    quiet(make(), x)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".so", ".verified"]
    monkeypatch.setattr(build, "_compile", lambda *a: pytest.fail("compiled again"))
    quiet(make(), x)
    assert (x == 7).all()


# --------------------------------------------------------------------------- clauses


def test_clauses_as_objects_text_and_keywords() -> None:
    spellings = [
        mdh("combine_ops(cc, pw(+)) fp(exact)"),
        mdh(mdh_lift.combine_ops(mdh_lift.cc, mdh_lift.pw(mdh_lift.add)), mdh_lift.fp("exact")),
        mdh(combine_ops="cc, pw(+)", fp="exact"),
        mdh(combine_ops=(mdh_lift.CC, mdh_lift.PW(np.add)), fp="exact"),
    ]

    def f(x):
        for i in range(len(x)):
            x[i] = 0

    found = {decorate(f).directive()[0] for decorate in spellings}
    assert len(found) == 1
    with pytest.raises(ValueError, match="MDH401"):
        mdh("fq(exact)")
    with pytest.raises(TypeError, match="no clause"):
        mdh(3)


def test_clauses_are_checked_against_the_loops() -> None:
    @mdh(combine_ops="cc, pw(*)")
    def f(x, y):
        n, m = x.shape
        for i in range(n):
            for k in range(m):
                y[i] += x[i, k]

    x, y = np.ones((2, 3)), np.zeros(2)
    with pytest.warns(MdhWarning, match="MDH404"):
        f(x, y)
    assert (y == 3).all()


# --------------------------------------------------------------------------- the MDH project's spellings

T = np.float32


@mdh(
    mdh_lift.out(w=mdh_lift.Buffer[T]),
    mdh_lift.inp(M=mdh_lift.Buffer[T], v=mdh_lift.Buffer[T]),
    mdh_lift.combine_ops(mdh_lift.cc, mdh_lift.pw(mdh_lift.add)),
)
def factory(w, M, v):
    n, k_max = M.shape
    for i in range(n):
        for k in range(k_max):
            w[i] = M[i, k] * v[k]


def test_assignment_in_a_reduction_means_what_the_mdh_project_means() -> None:
    M, v, w = matrix(6, 9), matrix(1, 9)[0], np.full(6, 7, np.float32)
    with pytest.warns(MdhWarning, match=r"MDH415: `=` into `w` combines .* plain Python would keep the last"):
        factory(w, M, v)
    assert np.allclose(w, M @ v, atol=1e-5)
    w[:] = 5
    quiet(factory, w, M, v)
    assert np.allclose(w, M @ v, atol=1e-5)
    with pytest.raises(TypeError, match="declared float32"):
        factory(w.astype(np.float64), M, v)


def dsl_matvec(n: int, k_max: int, tuple_form: bool = True) -> Any:
    from mdh_lift import CC, PW, Buffer, fp32, inp, inp_view, md_hom, out, out_view, scalar_plus

    @mdh(out(w=Buffer[fp32, [n]]), inp(M=Buffer[fp32, [n, k_max]], v=Buffer[fp32, [k_max]]))
    def mdh_matvec():
        def f(out, inp):
            out["w"] = inp["M"] * inp["v"]

        o = out_view[fp32](w=[lambda i, k: (i)])
        h = md_hom[n, k_max](f, (CC, PW(scalar_plus)))
        a = inp_view[fp32, fp32](M=[lambda i, k: (i, k)], v=[lambda i, k: (k)])
        return (o, h, a) if tuple_form else o(h(a))

    return mdh_matvec


@pytest.mark.parametrize("tuple_form", [True, False])
def test_the_three_functions(tuple_form: bool) -> None:
    M, v, w = matrix(6, 9), matrix(1, 9)[0], np.full(6, 7, np.float32)
    f = dsl_matvec(6, 9, tuple_form)
    quiet(f, w, M, v)
    assert np.allclose(w, M @ v, atol=1e-5)
    with pytest.raises(TypeError, match="misses the arrays v"):
        f(w, M)
    with pytest.raises(ValueError, match="2 dimensions"):
        f(w, M, M)
    with pytest.raises(IndexError, match="may leave"):
        f(w, M, v[:5])


def test_the_three_functions_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    M, v, w = matrix(3, 4), matrix(1, 4)[0], np.zeros(3, np.float32)
    with pytest.warns(MdhWarning, match="interpreter"):
        dsl_matvec(3, 4)(w, M, v)
    assert np.allclose(w, M @ v, atol=1e-5)


def test_several_accesses_outputs_and_a_combine_function_of_the_users() -> None:
    from mdh_lift import CC, PW, Buffer, fp64, inp, inp_view, int32, md_hom, out, out_view

    @mdh(out(s=Buffer[fp64], peak=Buffer[int32]), inp(x=Buffer[int32]))
    def reduce():
        def f(out, inp, i, k):
            t = inp["x", 0] + inp["x", 1]
            out["s"] = float(t) * (k + 1)
            out["peak"] = inp["x", 0]

        def both(res, lhs, rhs):
            res["s"] = lhs["s"] + rhs["s"]
            res["peak"] = rhs["peak"] if rhs["peak"] > lhs["peak"] else lhs["peak"]

        return out_view[fp64, int32](s=[lambda i, k: (i)], peak=[lambda i, k: (i)])(
            md_hom[4, 6](f, (CC, PW(both)))(inp_view[int32](x=[lambda i, k: (i, k), lambda i, k: (i + 1, 2 * k)]))
        )

    x = np.random.default_rng(3).integers(-9, 9, (5, 12)).astype(np.int32)
    s, peak = np.zeros(4), np.zeros(4, np.int32)
    quiet(reduce, s, peak, x)
    t = x[:4, :6] + x[1:, ::2]
    assert np.allclose(s, (t * np.arange(1, 7)).sum(1)) and (peak == x[:4, :6].max(1)).all()


def test_records() -> None:
    cplx = np.dtype([("re", np.float64), ("im", np.float64)], align=True)

    @mdh
    def square(z, out):
        for i in range(len(z)):
            out[i] = np.void((z[i]["re"] ** 2 - z[i]["im"] ** 2, 2 * z[i]["re"] * z[i]["im"]), cplx)

    z, out = np.zeros(5, cplx), np.zeros(5, cplx)
    z["re"], z["im"] = np.arange(5), 2
    quiet(square, z, out)
    assert out["re"].tolist() == [-4, -3, 0, 5, 12] and out["im"].tolist() == [0, 4, 8, 12, 16]
