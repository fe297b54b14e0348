"""Tiles of host loops: skews found, and kernels with them against the interpreter."""

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
from lowering.host_tiles import HostTiles, Skew, skew_of, usual_tiles
from lowering.machine import GENERIC
from mdh_core.expr import DOUBLE
from mdh_core.interpreter import BufferValue
from mdh_core.ir import HostLoop, MdhProgram
from mdh_core.source import SourceFile
from mdh_lift import iterations, kernels
from mdh_lift import subject as subjects
from tests.lifting import lifted
from tests.test_steps import Case, check, configurations, kernel_of, values
from tuning.runner import Workbench
from tuning.toolchain import Toolchain
from tuning.verify import cases_for, verify

ROOT = Path(__file__).parent.parent

Extents = Callable[[int], dict[str, tuple[int, ...]]]


def square(*names: str) -> Extents:
    return lambda n: dict.fromkeys(names, (n, n))


# parameters, nest, extents, (lower, upper, slopes) of the loops that can be cut
NESTS: dict[str, tuple[str, str, Extents, list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int]] | None]]] = {
    "jacobi": (
        "int n, int steps, double A[n][n], double B[n][n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    B[i][j] = 0.2*(A[i][j] + A[i][j-1] + A[i][j+1] + A[i+1][j] + A[i-1][j]);
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    A[i][j] = 0.2*(B[i][j] + B[i][j-1] + B[i][j+1] + B[i+1][j] + B[i-1][j]);
        }""",
        square("A", "B"),
        [((0, 1), (0, 1), (2, 2))],
    ),
    "one side": (
        "int n, int steps, double A[n], double B[n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n - 3; i++)
                B[i] = 0.5*(A[i] + A[i + 3]);
            for (int i = 0; i < n; i++)
                A[i] = 0.25*A[i] + B[i]*i;
        }""",
        lambda n: {"A": (n,), "B": (n,)},
        [((0, 3), (0, 0), (3, 3))],
    ),
    "waves": (
        "int n, int steps, double *restrict p, double ex[n][n], double ey[n][n], double hz[n][n]",
        """for (int t = 0; t < steps; t++) {
            for (int j = 0; j < n; j++)
                ey[0][j] = p[t];
            for (int i = 1; i < n; i++)
                for (int j = 0; j < n; j++)
                    ey[i][j] -= 0.25*(hz[i][j] - hz[i-1][j]);
            for (int i = 0; i < n; i++)
                for (int j = 1; j < n; j++)
                    ex[i][j] -= 0.25*(hz[i][j] - hz[i][j-1]);
            for (int i = 0; i < n - 1; i++)
                for (int j = 0; j < n - 1; j++)
                    hz[i][j] -= 0.25*(ex[i][j+1] - ex[i][j] + ey[i+1][j] - ey[i][j]);
        }""",
        lambda n: {"p": (16,)} | square("ex", "ey", "hz")(n),
        [((0, 0, 0, 1), (0, 0, 0, 0), (1, 1))],
    ),
    "rows": (
        "int n, double a[n][n], double b[n][n]",
        """for (int i = 0; i < n; i++)
            for (int j = 1; j < n; j++) {
                a[i][j] = 0.5/(4.0 - a[i][j-1]);
                b[i][j] = b[i][j-1]*a[i][j-1] + 0.25*b[i][j];
            }""",
        square("a", "b"),
        [((0,), (0,), (0, 0))],
    ),
    "in place": (
        "int n, int steps, double A[n][n]",
        """for (int t = 0; t < steps; t++)
            for (int i = 1; i < n - 1; i++)
                for (int j = 1; j < n - 1; j++)
                    A[i][j] = 0.2*(A[i-1][j] + A[i][j-1] + A[i][j] + A[i][j+1] + A[i+1][j]);""",
        square("A"),
        [((0,), (0,), (1, 0))],
    ),
    "travels far": (
        "int n, int steps, double A[n], double B[n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n; i++)
                B[i] = A[n - 1 - i];
            for (int i = 0; i < n; i++)
                A[i] = 0.5*B[i];
        }""",
        lambda n: {"A": (n,), "B": (n,)},
        [None],
    ),
    "one cell": (
        "int n, int steps, double A[n], double B[n]",
        """for (int t = 0; t < steps; t++) {
            for (int i = 0; i < n; i++)
                A[i] += B[0];
            B[0] = 0.5*A[n/2];
        }""",
        lambda n: {"A": (n,), "B": (n,)},
        [None],
    ),
}  # fmt: skip


def case(name: str, n: int, steps: int) -> Case:
    head, body, extents, _ = NESTS[name]
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert nest.status == "lifted", nest.diagnostics
    rng = random.Random(n)
    data = {b: values(rng, DOUBLE, *e) for b, e in extents(n).items()}
    for b in nest.temporaries:
        shape = tuple(e.evaluate({"n": n, "steps": steps}) for e in b.extents if e is not None)
        data[b.name] = BufferValue([0.0] * max(1, _product(shape)), shape)
    params = {"n": n, "steps": steps} if "steps" in head else {"n": n}
    return Case(nest.program, params, data, nest.temporaries)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def host_loops(c: Case) -> list[HostLoop]:
    return [loop for loop, _ in iterations.host_loops(c.steps, c.params)]


@pytest.mark.parametrize("name", NESTS)
def test_skews(name: str) -> None:
    found = [skew_of(loop) for loop in host_loops(case(name, 8, 3))]
    assert [None if s is None else (s.lower, s.upper, s.slopes) for s in found] == NESTS[name][3]


@pytest.mark.parametrize("name", [n for n, x in NESTS.items() if any(x[3])])
def test_tiles_compute_the_same(name: str) -> None:
    rng = random.Random(name)
    for n, steps in ((2, 3), (7, 1), (13, 5), (24, 7)):
        c = case(name, n, steps)
        skews = [skew_of(loop) for loop in host_loops(c)]
        tiles = []
        for s in skews:
            block = rng.choice((2, 3, 5))
            least = 1 if s is None or s.independent else s.least_width(block)
            width = least + rng.choice((0, 1, 4))
            if s is None or s.independent:
                tiles.append(None if s is None else HostTiles(s, width, None))
            else:
                tiles.append(HostTiles(s, width, block, rng.choice((None, 1, 2, 5))))
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        text = kernel_of(c, chosen, machine, host_tiles=tuple(tiles)).text
        assert any(f"+= {t.width})" in text for t in tiles if t is not None), text
        check(c, chosen, machine, tuple(tiles))


@pytest.mark.parametrize("name", [n for n, x in NESTS.items() if any(x[3])])
def test_certificate_of_tiles(name: str) -> None:
    """Proved for all sizes; refuted if anything grows more slowly, or parts run on though values travel."""
    (loop,) = host_loops(case(name, 8, 3))
    s = skew_of(loop)
    assert s is not None
    tiles = HostTiles(s, s.least_width(4), None if s.independent else 4)
    found = tiles_respect(loop, tiles, name)
    assert found.status == PROVED, str(found)
    if s.independent:
        return
    slower = [replace(s, slopes=(max(0, s.slopes[0] - 1), s.slopes[1]))] if s.slopes[0] else []
    slower += [replace(s, slopes=(s.slopes[0], s.slopes[1] - 1))] if s.slopes[1] else []
    slower += [replace(s, lower=(*s.lower[:-1], s.lower[-1] - 1))] if s.lower[-1] else []
    for wrong in slower:
        found = tiles_respect(loop, replace(tiles, skew=wrong), name)
        assert found.status == REFUTED, (wrong, str(found))
    strips = replace(tiles, strip=8)
    found = tiles_respect(loop, strips, name)
    assert found.status == PROVED, str(found)
    endless = replace(s, lower=(0,) * len(s.lower), upper=(0,) * len(s.upper), slopes=(0, 0))
    assert tiles_respect(loop, HostTiles(endless, 64, None), name).status == REFUTED
    assert tiles_respect(loop, replace(tiles, width=1), name).status == REFUTED


@pytest.mark.parametrize("name", [n for n, x in NESTS.items() if any(s and s[2][1] for s in x[3])])
def test_strips_compute_the_same(name: str) -> None:
    """In parts as wide as everything and in narrow ones; a strip for each position and longer ones."""
    rng = random.Random(f"strips of {name}")
    for n, steps, strip in ((2, 3, 1), (9, 4, 1), (17, 6, 3), (23, 5, 8), (12, 7, 64)):
        c = case(name, n, steps)
        tiles: list[HostTiles | None] = []
        for s in map(skew_of, host_loops(c)):
            if s is None or s.independent:
                tiles.append(None)
                continue
            block = rng.choice((2, 4))
            tiles.append(HostTiles(s, s.least_width(block) + rng.choice((0, 3, 40)), block, strip))
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        text = kernel_of(c, chosen, machine, host_tiles=tuple(tiles)).text
        assert f"_strip += {strip})" in text, text
        check(c, chosen, machine, tuple(tiles))


def test_too_narrow_parts_are_refused() -> None:
    """A narrower part than ``least_width`` would read what another border writes: the width says so."""
    s = Skew((0, 0), (0, 1), (0, 1), (2, 2))
    assert s.least_width(1) == 3 and s.least_width(4) == 3 + 3 * 4


def test_usual_tiles() -> None:
    s = Skew((0,), (0,), (0,), (1, 1))
    assert usual_tiles(s, 1000, 64.0, 100, GENERIC) is None, "all of it stays in the cache"
    chosen = usual_tiles(s, 4000, 4096.0, 100, GENERIC)
    assert chosen is not None and chosen.steps is not None and chosen.steps >= 3
    assert s.least_width(chosen.steps) <= chosen.width <= GENERIC.l2 // 4096
    assert usual_tiles(s, 4000, 1e6, 100, GENERIC) is None, "not even three iterations fit"


def test_tiles_in_the_last_cache() -> None:
    """Where a block has few iterations in the second cache, and the last one is as fast, parts lie in that, as
    many for each thread."""
    s, machine = Skew((0,), (0,), (0,), (1, 1)), replace(GENERIC, cores=3, l2=512 << 10, l3=32 << 20)
    machine = replace(machine, l3_bandwidth=machine.l2_bandwidth)
    near = usual_tiles(s, 1300, 4096.0, 500, machine)
    assert near is not None and near.width * 4096 <= machine.l2 and near.steps is not None and near.steps >= 16
    far = usual_tiles(s, 1300, 20800.0, 500, machine)
    assert far is not None and machine.l2 < far.width * 20800 <= machine.l3 / machine.cores / 2
    assert -(-1300 // far.width) % 3 == 0 and far.steps is not None and far.steps >= 16
    assert s.least_width(far.steps) <= far.width // 2, "borders are not as wide as parts"
    none = usual_tiles(s, 1300, 20800.0, 500, replace(machine, l3=0))
    assert none is not None and none.strip is not None and none.steps is not None and 3 <= none.steps < 16
    assert (none.strip + none.steps - 1) * 20800 <= machine.l2, "what a strip goes through stays near"


def test_strips_in_the_second_cache() -> None:
    """Where the last cache is much slower than the second one, parts as large as they come go through their
    iterations in strips; where it is not, they lie in the last one, unless a strip has as many iterations.
    """
    s = Skew((0, 0), (0, 1), (0, 1), (2, 2))
    machine = replace(GENERIC, cores=2, l2=2 << 20, l3=300 << 20, l2_bandwidth=120e9, l3_bandwidth=15e9)
    found = usual_tiles(s, 1300, 20800.0, 500, machine)
    assert found is not None and found.strip is not None and found.steps is not None and found.width >= 1300 // 2
    touched = found.strip + max(s.upper) + s.slopes[1] * (found.steps - 1)
    assert found.steps >= 16 and touched * 20800 <= machine.l2 and s.least_width(found.steps) <= found.width // 2
    planes = usual_tiles(s, 118, 230400.0, 500, machine)
    assert planes is not None and (planes.strip, planes.steps) == (3, 3), planes
    narrow = usual_tiles(s, 118, 230400.0, 500, replace(machine, l2=1 << 20, l3_bandwidth=60e9))
    assert narrow is not None and narrow.strip is None and (narrow.steps or 0) >= 3, narrow


def test_programs_with_memory_of_their_own_are_not_tiled() -> None:
    """A scan in a host loop has no tiles; nor has what is indexed by data."""
    head = "int n, int steps, double A[n], int at[n]"
    body = "for (int t = 0; t < steps; t++) for (int i = 0; i < n; i++) A[i] += A[at[i]];"
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    for loop in (s for s in nest.program if isinstance(s, HostLoop)):
        assert all(isinstance(s, MdhProgram) for s in loop.body) is False or skew_of(loop) is None


def test_one_position_beside_empty_dimensions() -> None:
    """What a nest stores at one position in each iteration is stored where all other dimensions are empty."""
    source = ROOT / "corpus" / "fdtd_2d.c"
    text = SourceFile("fdtd_2d.c", source.read_bytes())
    nest = lift(read(text, CompileCommand(directory=str(source.parent))).nests[0])
    plan = kernels.plan(nest)
    point = {**plan.default, "width_0": 8, "steps_0": 2}
    assert plan.host_tiles(point)[0] is not None
    bench = Workbench(Toolchain(("gcc",), ("-O1",)), threads=2, jobs=1)
    subject = subjects.subject_of(nest, text.data, text.path)
    built = bench.build(subject, plan.candidate(point))
    assert built.ok, built.reason
    sizes = [{"steps": 3, "nx": nx, "ny": 5} for nx in (0, 1, 2, 20)]
    summary = verify(bench, subject, built.data["program"], cases_for(subject, sizes, style="sum"))
    assert summary.ok, summary.outcome
