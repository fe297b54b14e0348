"""One parallel region around a host loop: the same results, whatever the number of threads."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emit import histogram_text, nest_text
from emit.request import Kernel
from frontend_c.preprocess import CompileCommand
from lowering.host_tiles import HostTiles, skew_of
from lowering.lower import lower, may_join_a_team
from lowering.machine import GENERIC, Machine
from lowering.parameters import Configuration
from mdh_core.expr import DOUBLE, ScalarType
from mdh_core.interpreter import BufferValue, run_steps
from mdh_lift import improve, iterations, pipeline, run_search
from mdh_lift.config import Config
from mdh_lift.kernels import planned
from mdh_lift.subject import data_style
from tests.catalogue import EVERYTHING
from tests.compilers import COMPILERS
from tests.emitted import FLAGS, OPTIMISED, _value
from tests.emitted import check as compare_emitted
from tests.lifting import lifted
from tests.test_emit import _case as emitted_case
from tests.test_emit import _params as params_for
from tests.test_histogram import MANY, cases_of, program_of
from tests.test_host_tiles import case as tiled
from tests.test_scan_linear import blocks
from tests.test_steps import NESTS as STEPS
from tests.test_steps import (
    Case,
    close,
    compiled,
    configurations,
    input_text,
    kernel_of,
    program_text,
    values,
)
from tuning.runner import Limits, Workbench
from tuning.toolchain import Toolchain
from tuning.verify import cases_for, verify

THREADS = (1, 2, 3, 5)
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
OFF = tuple("-Wno-unknown-pragmas" if f == "-fopenmp" else f for f in OPTIMISED)

# parameters, nest: what becomes of it stands in a host loop
NESTS = {
    "rows of a scan": (
        "int n, int steps, int A[n][n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n; i++) {
                int s = 0;
                for (int j = 0; j < n; j++) { s += A[i][j]; A[i][j] = s & 31; }
            }
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    A[i][j] += A[n - 1][n - 1] & t;
        }""",
    ),
    "one long scan": (
        "int n, int steps, int A[n]",
        """for (int t = 0; t < steps; t++) {
            int s = 0;
            for (int i = 0; i < n; i++) { s += A[i]; A[i] = s & 1023; }
        }""",
    ),
    "norm": (
        "int n, int steps, double x[n], double A[n][n], double *norm",
        """for (int t = 0; t < steps; t++) {
            double s = 0;
            for (int i = 0; i < n; i++) s += x[i]*x[i];
            norm[0] = s;
            for (int i = 0; i < n; i++) x[i] = x[i]/(1 + norm[0]);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    A[i][j] += x[i]*x[j];
        }""",
    ),
    "products": (
        "int n, int steps, double A[n][n], double B[n][n], double C[n][n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++) {
                    double s = 0;
                    for (int k = 0; k < n; k++) s += A[i][k]*B[k][j];
                    C[i][j] = s;
                }
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    A[i][j] = C[i][j]*0.125 + A[i][j]*0.5;
        }""",
    ),
    "lower triangle": (
        "int n, double A[n][n]",
        """for (int k = 0; k < n; k++) {
            for (int i = k + 1; i < n; i++)
                A[i][k] = A[i][k]/(4 + A[k][k]*A[k][k]);
            for (int i = k + 1; i < n; i++)
                for (int j = k + 1; j <= i; j++)
                    A[i][j] -= A[i][k]*A[j][k];
        }""",
    ),
    "stencil in stencil": (
        "int n, int steps, double A[n][n], double B[n][n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    A[i][j] = 0.2*(A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j]);
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    B[i][j] += A[j][i];
        }""",
    ),
    "one cell": (
        "int n, int steps, double A[n], double B[n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n; i++)
                A[i] += B[0];
            B[0] = 0.5*A[n - 1];
        }""",
    ),
}  # fmt: skip


@pytest.fixture
def everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of points is enough for threads."""
    monkeypatch.setattr(nest_text, "TEAM_WORK", 4)
    monkeypatch.setattr(nest_text, "PARALLEL_WORK", 4)
    monkeypatch.setattr(histogram_text, "MIN_POINTS", 4)


def case_of(name: str, n: int, steps: int = 3) -> Case:
    head, body = NESTS[name]
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status in ("lifted", "partial"), nest.diagnostics
    params = {"n": n, "steps": steps} if "steps" in head else {"n": n}
    rng = random.Random(n)
    own = {b.name: b for b in nest.temporaries}
    data = {}
    for b in nest.nest.buffers:
        extents = tuple(n if e is None else e.evaluate(params) for e in b.extents)
        assert isinstance(b.type, ScalarType)
        data[b.name] = values(rng, b.type, *(max(e, 1) for e in extents))
    for b in own.values():
        shape = tuple(e.evaluate(params) for e in b.extents if e is not None)
        count = functools.reduce(lambda x, y: x * max(1, y), shape, 1)
        data[b.name] = BufferValue([0.0 if b.type == DOUBLE else 0] * count, shape)
    return Case(nest.program, params, data, nest.temporaries)


def regions(case: Case) -> tuple[bool, ...]:
    return tuple(True for _ in iterations.host_loops(case.steps, case.params))


def in_one(case: Case, chosen: tuple[Configuration, ...], machine: Machine, tiles: tuple[HostTiles | None, ...] = ()) -> Kernel:  # fmt: skip
    return kernel_of(case, chosen, machine, host_tiles=tiles, regions=regions(case))


def answers(case: Case, text: str, compiler: str, flags: tuple[str, ...]) -> Iterator[dict[str, list[object]]]:
    """What the program prints, with every number of threads."""
    program = compiled(text, flags, compiler)
    for threads in THREADS if "-fopenmp" in flags else (1,):
        variables = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "OMP_DYNAMIC": "false"}
        ran = subprocess.run(
            [str(program)], input=input_text(case), capture_output=True, text=True, timeout=120,
            env={**os.environ, **variables}, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, (threads, ran.stderr[-3000:], text)
        yield json.loads(ran.stdout)


def check(
    case: Case, kernel: Kernel, compiler: str = "gcc", flags: tuple[str, ...] = FLAGS,
    main: Callable[[str], str] = lambda text: text,
) -> None:  # fmt: skip
    assert_one_thread_writes(kernel.text)
    expected = {n: b.copy() for n, b in case.data.items()}
    run_steps(case.steps, case.params, expected)
    for answer in answers(case, main(program_text(case, kernel)), compiler, flags):
        assert answer.pop("returned") == 1
        assert "outside" not in answer, answer["outside"]
        for name, b in case.arguments.items():
            found = [_value(x, b.type) for x in answer[name]]
            assert all(map(close, found, expected[name].data)), (name, case.params, kernel.text)


def one_region(text: str) -> str | None:
    """What stands inside of the one region; None where there is none, or several."""
    body = text.partition("static int")[2]
    found = list(re.finditer(r"^#pragma omp parallel(?! for).*\n(  )(?! )", body, re.MULTILINE))
    if len(found) != 1 or "#pragma omp parallel for" in body:
        return None
    (m,) = found
    end = re.compile(rf"^{m[1]}}}$", re.MULTILINE).search(body, m.end())
    assert end is not None
    return body[m.start(1) : end.end()]


def assert_one_thread_writes(text: str) -> None:
    """Outside of shared loops and of what one thread does, a region declares, tests and counts only."""
    inside = one_region(text)
    if inside is None:
        return
    rows, k = inside.splitlines(), 0
    harmless = re.compile(
        r"\s*(}|} else {|for \(.*|if \(.*\) \{|const \S+ \w+ = .*;|long \w+ = .*;|if \(.*\) \w+ \+?= .*;"
        r"|\w[\w ]* \*const __restrict \w+ = .*;|#pragma omp barrier)"
    )
    while k < len(rows):
        row = rows[k]
        if row.startswith("#pragma omp for") or "MDH_THREAD == 0" in row:
            while not rows[k].endswith("{"):  # the heads of loops that are shared together
                k += 1
            end = " " * (len(rows[k]) - len(rows[k].lstrip())) + "}"
            k = rows.index(end, k)
        else:
            assert harmless.fullmatch(row), (row, text)
        k += 1


# --------------------------------------------------------------------------- results


def sizes_of(name: str, kind: str) -> tuple[int, ...]:
    if name in STEPS:
        return (1, 2, 13) if kind == "default" else (11,)
    return (0, 1, 7, 31) if kind == "default" and name != "one cell" else (17,)


def made(name: str, n: int, kind: str, rng: random.Random) -> tuple[Case, tuple[Configuration, ...], Machine]:
    case = STEPS[name](n, rng) if name in STEPS else case_of(name, n)
    return (case, *configurations(case, kind, rng))


@pytest.mark.parametrize("kind", ["default", "space", "random"])
@pytest.mark.parametrize("name", [*STEPS, *NESTS])
@pytest.mark.usefixtures("everything_is_shared")
def test_same_results(name: str, kind: str) -> None:
    rng = random.Random(f"{name} {kind}")
    for n in sizes_of(name, kind):
        case, chosen, machine = made(name, n, kind, rng)
        check(case, in_one(case, chosen, machine), flags=(*FLAGS, *(SANITIZED if kind == "space" else ())))


@pytest.mark.parametrize("name", ["norm", "lower triangle", "products"])
def test_few_points_are_one_threads(name: str) -> None:
    """The guards as they are: at these sizes, all of the work is too little."""
    rng = random.Random(name)
    for n in (1, 13):
        case, chosen, machine = made(name, n, "default", rng)
        kernel = in_one(case, chosen, machine)
        assert re.search(r"#pragma omp parallel if \(.* > \d+", kernel.text), kernel.text
        check(case, kernel)


WAYS = {
    "gcc": ("gcc", (*FLAGS, "-O3", "-march=native", "-ffp-contract=off")),
    "clang": ("clang", (*FLAGS, "-O2", "-Wno-pass-failed", "-ffp-contract=off")),
    "gcc, no threads": ("gcc", OFF),
    "clang, no threads": ("clang", (*OFF, "-Wno-pass-failed")),
}


@pytest.mark.parametrize("way", [way for way, (compiler, _) in WAYS.items() if compiler in COMPILERS])
@pytest.mark.usefixtures("everything_is_shared")
def test_compilers(way: str) -> None:
    compiler, flags = WAYS[way]
    for name in ("norm", "lower triangle", "rows of a scan"):
        case, chosen, machine = made(name, 23, "default", random.Random(name))
        check(case, in_one(case, chosen, machine), compiler, flags)


@pytest.mark.parametrize("levels", ["1", "2"])
@pytest.mark.usefixtures("everything_is_shared")
def test_in_a_region_of_the_caller(levels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_MAX_ACTIVE_LEVELS", levels)

    def inside(text: str) -> str:
        """One thread of three calls the kernel."""
        printed = re.search(r'  printf\("\{\\"returned\\": %d", (.*)\);', text)
        assert printed is not None
        call = ["  int done = 0;", "#pragma omp parallel num_threads(3)", "#pragma omp single"]
        return text.replace(printed[0], "\n".join([*call, f"  done = {printed[1]};", printed[0]])).replace(
            printed[0], printed[0].replace(printed[1], "done")
        )

    for name in ("norm", "lower triangle"):
        case, chosen, machine = made(name, 19, "default", random.Random(name))
        check(case, in_one(case, chosen, machine), main=inside)


@pytest.mark.parametrize("kind", ["default", "space", "random"])
@pytest.mark.usefixtures("everything_is_shared")
def test_catalogue(kind: str, tmp_path: Path) -> None:
    """Every program as the only one of a host loop."""
    rng = random.Random(f"region {kind}")
    found = [emitted_case(p, rng, kind, params_for(p, rng)) for p in EVERYTHING.values()]
    compare_emitted([(replace(case, in_region=True), expected) for case, expected in found], tmp_path)


@pytest.mark.usefixtures("everything_is_shared")
def test_histograms(tmp_path: Path) -> None:
    """Rows on threads by the team; private copies of cells in a region of their own."""
    rng = random.Random(3)
    forms = set()
    for name in MANY:
        found, names = [], {d.name for d in program_of(name).hom.dims if not d.name.endswith("_cell")}
        for threads in (*sorted(names), ""):
            case, expected = cases_of(name, threads, rng, {"n": 23, "c": 3, "m": 2})
            forms |= {may_join_a_team(s) for s in lower(case.program, case.configuration, case.machine).stages}
            found.append((replace(case, in_region=True), expected))
        compare_emitted(found, tmp_path)
    assert forms == {True, False}


@pytest.mark.usefixtures("everything_is_shared")
def test_tiles_of_host_loops() -> None:
    """Those of a loop inside of the region are shared by its threads; those of the outermost one are inside of it."""
    inner, outer = case_of("stencil in stencil", 23), tiled("jacobi", 24, 7)
    for case in (inner, outer):
        chosen, machine = configurations(case, "default", random.Random(1))
        tiles = []
        for loop, _ in iterations.host_loops(case.steps, case.params):
            skew = skew_of(loop)
            steps = None if skew is None or skew.independent else 3
            tiles.append(skew and HostTiles(skew, max(5, skew.least_width(steps or 1)), steps))
        assert any(tiles)
        kernel = in_one(case, chosen, machine, tuple(tiles))
        assert kernel.tiled and "#pragma omp for schedule(static" in (one_region(kernel.text) or "")
        check(case, kernel, flags=(*FLAGS, *SANITIZED))


CORPUS = Path(__file__).parent.parent / "corpus"


@pytest.mark.parametrize("source", ["cholesky", "gramschmidt", "heat_3d", "lu", "floyd_warshall"])
@pytest.mark.usefixtures("everything_is_shared")
def test_corpus(source: str, tmp_path: Path) -> None:
    """Off and on against the original: sizes 0, 1, primes and around tiles, offset and overlapping arrays."""
    options = pipeline.Options(Config(), resume=False)
    command = CompileCommand("gcc", ("-O1",), str(CORPUS))
    report = pipeline.check_file(str(CORPUS / f"{source}.c"), replace(options, command=command))
    work = improve.prepare(report, report.nests[0], options)
    work = replace(work, plan=replace(work.plan, machine=GENERIC))
    limits = Limits(compile_seconds=60, run_seconds=60, memory_bytes=4 << 30)
    bench = Workbench(Toolchain(flags=("-O1",)), limits, threads=5, jobs=1, cache_dir=tmp_path)
    loops = enumerate(iterations.host_loops(work.plan.lifted.program, work.plan.params))
    default = work.plan.default | {f"width_{k}": 0 for k, _ in loops}
    style = data_style(work.plan.lifted)
    cases = cases_for(work.subject, run_search._ladder(work.plan, work.variables), style=style, threads=THREADS)
    for region in (0, 1):
        candidate = work.plan.candidate(default | {"region_0": region})
        inside = one_region(candidate.kernel_text)
        assert (inside is not None) == bool(region), candidate.kernel_text
        assert_one_thread_writes(candidate.kernel_text)
        built = bench.build(work.subject, candidate)
        assert built.ok, built
        summary = verify(bench, work.subject, built.data["program"], cases)
        assert summary.ok and summary.handled > 10, summary


# --------------------------------------------------------------------------- the text


@pytest.mark.parametrize("name", ["jacobi", "gramschmidt", "rows of a scan", "products", "lower triangle", "one cell"])
def test_one_region(name: str) -> None:
    """All threads go through the loop; off, every program has a region of its own."""
    case, chosen, machine = made(name, 11, "default", random.Random(1))
    on, off = in_one(case, chosen, machine).text, kernel_of(case, chosen, machine).text
    assert one_region(off) is None and "#pragma omp parallel" in off
    inside = one_region(on)
    assert inside is not None and "#pragma omp for" in inside
    assert "MDH_TEAM" not in off and "omp barrier" not in off


def test_loops_that_keep_a_region_for_each_program() -> None:
    """Blocks of a scan have a running value that their region shares."""
    case = case_of("one long scan", 100_000, 2)
    (p,) = case.programs
    long = blocks(p)
    assert not may_join_a_team(lower(p, long, GENERIC).stages[0])
    text = in_one(case, (long,), GENERIC).text
    assert one_region(text) is None
    assert text == kernel_of(case, (long,), GENERIC).text


def test_when_it_is_the_default() -> None:
    """On where all that is in a loop is shared for a short time; a search tries both."""
    body = """for (int t = 0; t < steps; t++) {
        for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) B[i][j] = A[n - 1 - i][n - 1 - j];
        for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) A[i][j] = 0.5*B[i][j];
    }"""
    head = "int n, int steps, double A[n][n], double B[n][n]"
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    for n, on in ((100, 1), (3000, 0), (10, 0)):  # short; long; too little for threads
        plan = replace(planned(nest, {"n": n, "steps": 50}), machine=GENERIC)
        assert plan.default["region_0"] == on
        assert dict(plan.space.parameters)["region_0"] == (0, 1)
        assert (one_region(plan.kernel(plan.default).text) is not None) == bool(on)


def test_nothing_is_shared_where_nothing_is_parallel() -> None:
    case = STEPS["recurrence"](9, random.Random(1))
    assert in_one(case, (), GENERIC).text == kernel_of(case, (), GENERIC).text
