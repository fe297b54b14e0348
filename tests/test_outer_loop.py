"""Neighbouring programs in one outer loop: where there is one, that it means the same, when it is taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from certify.host_tiles import tiles_respect
from certify.obligations import PROVED, REFUTED
from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import lift
from lowering.ahead import read_again
from lowering.choice import default_point
from lowering.facts import facts
from lowering.host_tiles import HostTiles, Skew
from lowering.machine import GENERIC
from lowering.outer_loop import bytes_saved, in_one_loop, runs_of
from mdh_core.expr import DOUBLE, Affine
from mdh_core.interpreter import BufferValue
from mdh_core.ir import HostLoop, MdhProgram, Size
from mdh_core.source import SourceFile
from mdh_lift import iterations, kernels
from mdh_lift import subject as subjects
from tests.lifting import lifted
from tests.test_steps import Case, check, configurations, values
from tuning.runner import Workbench
from tuning.toolchain import Toolchain
from tuning.verify import cases_for, verify

ROOT = Path(__file__).parent.parent
Extents = Callable[[int], dict[str, tuple[int, ...]]]

# parameters, nest, extents, runs: the first step, and how many there are
NESTS: dict[str, tuple[str, str, Extents, list[tuple[int, int]]]] = {
    "rows made to sum up to one": (
        "int n, double a[n][n], double b[restrict n][n], double s[restrict n]",
        """for (int i = 0; i < n; i++) {
            s[i] = 0.0;
            for (int j = 0; j < n; j++) s[i] += a[i][j]*a[i][j];
            for (int j = 0; j < n; j++) b[i][j] = a[i][j] / (s[i] + 1.0);
            for (int j = 0; j < n; j++) s[i] += b[i][j];
        }""",
        lambda n: {"a": (n, n), "b": (n, n), "s": (n,)},
        [(0, 3)],
    ),
    "rows from the other end": (
        "int n, double a[n][n], double b[restrict n][n], double c[restrict n][n], double s[restrict n]",
        """{
            for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) b[i][j] = 2.0*a[i][j];
            for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) c[i][j] = b[n - 1 - i][j] + 1.0;
            for (int i = 0; i < n; i++) { s[i] = 0.0; for (int j = 0; j < n; j++) s[i] += c[i][j]; }
        }""",
        lambda n: {"a": (n, n), "b": (n, n), "c": (n, n), "s": (n,)},
        [(1, 2)],
    ),
    "columns": (
        "int n, double a[n][n], double b[restrict n][n], double s[restrict n]",
        """{
            for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) b[i][j] = 2.0*a[i][j];
            for (int j = 0; j < n; j++) { s[j] = 0.0; for (int i = 0; i < n; i++) s[j] += b[i][j]; }
        }""",
        lambda n: {"a": (n, n), "b": (n, n), "s": (n,)},
        [],
    ),
    "before and behind a host loop": (
        "int n, double a[n][n], double b[restrict n][n], double s[restrict n], double v[restrict n], double w[restrict n]",
        """{
            for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) b[i][j] = 2.0*a[i][j];
            for (int i = 0; i < n; i++) { s[i] = 0.0; for (int j = 0; j < n; j++) s[i] += b[i][j]*a[i][j]; }
            for (int t = 0; t < 3; t++) {
                for (int i = 0; i < n - 1; i++) w[i] = v[i + 1] + s[i];
                for (int i = 0; i < n - 1; i++) v[i] = 0.5*w[i];
            }
            for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) b[i][j] += s[i]*v[i];
            for (int i = 0; i < n; i++) { w[i] = 0.0; for (int j = 0; j < n; j++) w[i] += b[i][j]; }
        }""",
        lambda n: {"a": (n, n), "b": (n, n), "s": (n,), "v": (n,), "w": (n,)},
        [(0, 2), (3, 2)],
    ),
}  # fmt: skip


def case(name: str, n: int) -> Case:
    head, body, extents, _ = NESTS[name]
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    rng = random.Random(n)
    data = {b: values(rng, DOUBLE, *e) for b, e in extents(n).items()}
    for b in nest.temporaries:
        shape = tuple(e.evaluate({"n": n}) for e in b.extents if e is not None)
        data[b.name] = BufferValue([0.0] * max(1, shape[0] if shape else 1), shape)
    return Case(nest.program, {"n": n}, data, nest.temporaries)


@pytest.mark.parametrize("name", NESTS)
def test_runs(name: str) -> None:
    found = runs_of(case(name, 8).steps)
    assert [(r.first, len(r.programs)) for r in found] == NESTS[name][3]


@pytest.mark.parametrize("name", [n for n, x in NESTS.items() if x[3]])
def test_the_same_is_computed(name: str) -> None:
    """With parts of one, some and all positions, random configurations, and constants for sizes."""
    rng = random.Random(name)
    for n, width in ((1, 1), (2, 3), (13, 1), (24, 5), (9, 64)):
        c = case(name, n)
        widths = [width if k == 0 or rng.random() < 0.7 else 0 for k, _ in enumerate(runs_of(c.steps))]
        steps, tiles = in_one_loop(c.steps, widths, [rng.random() < 0.5 for _ in widths])
        assert len(tiles) == sum(w > 0 for w in widths)
        joined = Case(steps, c.params, c.data, c.temporaries)
        chosen, machine = configurations(joined, rng.choice(("default", "space")), rng)
        own = tuple(tiles.get(loop) for loop, _ in iterations.host_loops(steps, c.params))
        check(joined, chosen, machine, own, rng.choice((None, {"n": n})))


@pytest.mark.parametrize("name", [n for n, x in NESTS.items() if x[3]])
def test_certificate(name: str) -> None:
    for run in runs_of(case(name, 8).steps):
        assert tiles_respect(run.loop, HostTiles(run.skew, 4, None), name).status == PROVED


def test_certificate_of_neighbours_that_need_each_other() -> None:
    programs = [s for s in case("rows from the other end", 8).steps if isinstance(s, MdhProgram)][:2]
    loop = HostLoop("once", Size(Affine.number(1)), tuple(programs))
    wrong = Skew((0, 0), (0, 0), (0, 0), (0, 0))
    assert tiles_respect(loop, HostTiles(wrong, 4, None), "wrong").status == REFUTED


def _softmax(sizes: str = "") -> tuple[kernels.Plan, SourceFile]:
    data = (ROOT / "corpus" / "softmax.c").read_bytes()
    text = SourceFile("softmax.c", data.replace(b"#pragma mdh", b"#pragma mdh " + sizes.encode(), 1))
    return kernels.plan(lift(read(text, CompileCommand(directory=str(ROOT / "corpus"))).nests[0])), text


def test_when_it_is_taken() -> None:
    """Where rows would come from memory again; what is read again is not stored past the caches."""
    large, short, small = (
        replace(_softmax(f"sizes(rows={rows}, cols={cols})")[0], machine=GENERIC)
        for rows, cols in ((4096, 4096), (1 << 20, 64), (64, 64))
    )
    point = large.default
    assert point["outer_0"] == 1  # rows of x and y are 32 KiB together
    assert point["rows_i"] == point["rows_i_at2"] == 1  # from the caches, one after the other
    assert 32 < int(short.default["outer_0"]) <= 64
    assert not any(v for n, v in point.items() if n.startswith("past_y"))
    assert dict(large.space.parameters)["outer_0"][0] == 0
    together, apart = (large.kernel({**point, "outer_0": w}).text for w in (8, 0))
    assert (together.count("#pragma omp parallel"), apart.count("#pragma omp parallel")) == (1, 5)
    assert point["next_0"] == 1 and dict(large.space.parameters)["next_0"] == (0, 1)
    assert small.default["next_0"] == 0
    assert large.estimate(point) < large.estimate({**point, "outer_0": 0})
    assert small.default["outer_0"] == 0
    assert dict(small.space.parameters)["outer_0"] == (0, 8)  # a search may find what the model does not see


def _fetched(plan: kernels.Plan, point: dict[str, int | str]) -> list[str]:
    rows = map(str.strip, plan.kernel(point).text.splitlines())
    return [row for row in rows if row.startswith("__builtin_prefetch")]


def test_the_next_part_is_fetched_by_what_reads_an_array_last() -> None:
    """``x`` by the program of exponentials, so many rows on; not ``y``, which is written."""
    plan = replace(_softmax("sizes(rows=4096, cols=4096)")[0], machine=GENERIC)
    point = {**plan.default, "lanes_at1": 32}  # two lines
    assert _fetched(plan, {**point, "next_0": 0}) == []
    for width in (1, 3):
        rows = _fetched(plan, {**point, "outer_0": width, "next_0": 1})
        there = f"(i_from_2 + i_in_4_2 + {width})*cols + j_2"
        assert rows == [f"__builtin_prefetch(&x[{there}{more}]);" for more in ("", " + 16")]
    text = plan.kernel({**point, "next_0": 1}).text
    assert text.index("__builtin_prefetch") > text.index("top_x[i_from + i_in_3] = ")  # behind the maxima


def test_what_is_read_once_or_in_all_parts_is_not_fetched() -> None:
    """By a sum, where that is last; of ``w`` every part reads all, ``b`` is read by one program."""
    text = """void f(long n, long k, const float (*restrict a)[k], const float (*restrict b)[k],
       const float *restrict w, float *restrict s, float *restrict r)
{
#pragma mdh sizes(n=16384, k=4096)
    {
        for (long i = 0; i < n; i++) { s[i] = 0; for (long j = 0; j < k; j++) s[i] += a[i][j] * w[j]; }
        for (long i = 0; i < n; i++) {
            r[i] = 0;
            for (long j = 0; j < k; j++) r[i] += (a[i][j] - s[i]) * b[i][j] * w[j];
        }
    }
}
"""
    found = lifted(text)
    (run,) = runs_of(found.program)
    assert [[a.buffer for a in more] for more in read_again(run.programs, run.dims)] == [[], ["a"]]
    plan = replace(kernels.plan(found), machine=GENERIC)
    rows = _fetched(plan, {**plan.default, "next_0": 1, "ahead": 0, "ahead_at1": 0})
    assert rows and all(row.startswith("__builtin_prefetch(&a[(i_from_2 + ") for row in rows)


def test_softmax_in_one_loop_is_verified() -> None:
    plan, text = _softmax()
    bench = Workbench(Toolchain(("gcc",), ("-O1",)), threads=2, jobs=1)
    subject = subjects.subject_of(plan.lifted, text.data, text.path)
    built = bench.build(subject, plan.candidate({**plan.default, "outer_0": 3, "next_0": 1}))
    assert built.ok, built.reason
    sizes = [{"rows": r, "cols": c} for r, c in ((0, 3), (1, 1), (3, 0), (7, 33), (40, 129), (300, 150))]
    summary = verify(bench, subject, built.data["program"], cases_for(subject, sizes, style="sum"))
    assert summary.ok, summary.outcome


def test_a_part_left_out_is_seen() -> None:
    """A kernel whose parts begin one position late must not pass."""
    plan, text = _softmax()
    bench = Workbench(Toolchain(("gcc",), ("-O1",)), threads=2, jobs=1)
    subject = subjects.subject_of(plan.lifted, text.data, text.path)
    good = plan.candidate({**plan.default, "outer_0": 3})
    late = good.kernel_text.replace("i_from = i_1;", "i_from = i_1 + 1;")
    assert late != good.kernel_text
    built = bench.build(subject, replace(good, kernel_text=late))
    assert built.ok, built.reason
    cases = cases_for(subject, [{"rows": 7, "cols": 33}], style="sum")
    assert not verify(bench, subject, built.data["program"], cases).ok


def test_tiles_have_no_more_rows_than_a_part() -> None:
    """Rows that share an operand would be side by side, but a part has fewer."""
    text = b"""void f(long n, long k, const float (*restrict a)[k], const float *restrict q, const float *restrict w,
       float *restrict s, float *restrict r)
{
#pragma mdh sizes(n=16384, k=4096)
    {
        for (long i = 0; i < n; i++) { s[i] = 0; for (long j = 0; j < k; j++) s[i] += a[i][j] * q[j]; }
        for (long i = 0; i < n; i++) {
            r[i] = 0;
            for (long j = 0; j < k; j++) r[i] += (a[i][j] - s[i]) * (a[i][j] - s[i]) * w[j];
        }
    }
}
"""
    plan = kernels.plan(lift(read(SourceFile("f.c", text), CompileCommand(directory="/")).nests[0]))
    point = replace(plan, machine=GENERIC).default
    width = int(point["outer_0"])
    assert width > 0
    assert all(int(v) <= width for n, v in point.items() if n.startswith("rows_i"))


def test_a_sum_that_threads_would_share_is_one_threads() -> None:
    """Memory for their parts would keep the programs from having one loop."""
    text = b"""void f(long n, long m, const float (*restrict a)[m], float (*restrict b)[m][m], float *restrict s)
{
#pragma mdh sizes(n=97, m=240)
    {
        for (long i = 0; i < n; i++)
            for (long j = 0; j < m; j++)
                for (long k = 0; k < m; k++)
                    b[i][j][k] = a[i][j] + a[i][k];
        for (long i = 0; i < n; i++) {
            s[i] = 0;
            for (long j = 0; j < m; j++)
                for (long k = 0; k < m; k++)
                    s[i] += b[i][j][k] * b[i][j][k];
        }
    }
}
"""
    wide = replace(GENERIC, cores=2, vector_bytes=64, registers=32, l2=1 << 20, l3=1 << 25)
    plan = replace(kernels.plan(lift(read(SourceFile("f.c", text), CompileCommand(directory="/")).nests[0])), machine=wide)
    point = plan.default
    assert int(point["outer_0"]) > 0 and point["threads_at1"] == "i"
    assert default_point((plan.programs[1],), wide, (plan.sizes[1],))["threads"] == "j"
    assert plan.kernel(point).text.count("#pragma omp parallel") == 1


def test_alternatives_save_nothing() -> None:
    """One of them runs; which, the caller says."""
    head = "void f(int n, int b, float *restrict y, float *restrict z, const float *restrict x) {\n#pragma mdh\n"
    one, other = "for (int i = 0; i < n; i++) y[i] = x[i] * 3;", "for (int i = 0; i < n; i++) z[i] = y[n - 1 - i] + x[i];"
    saved = []
    for nest in (f"{{ {one} {other} }}", f"if (b) {one} else {other}"):
        programs = [p for p in lifted(head + nest + " }").program if isinstance(p, MdhProgram)]
        own = [facts(p, {d.name: 1 << 27 for d in p.hom.dims}) for p in programs]
        saved.append(bytes_saved(own, replace(GENERIC, l3=1 << 25)) > 0)
    assert saved == [True, False]
