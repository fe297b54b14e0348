"""What goes from core to core between programs of a host loop, and points that keep it where it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from lowering.affinity import ALL, ONE, crossed, division, nearest
from lowering.choice import default_point
from lowering.cost import cost
from lowering.facts import Facts, facts
from lowering.machine import GENERIC, Machine
from lowering.point import Point, own_values
from lowering.traffic import bytes_of
from mdh_core.ir import HostLoop, programs_of
from mdh_lift.kernels import Plan, planned
from tests.lifting import lifted

TWO = replace(GENERIC, cores=2, l3=32 << 20)
HEAD = "int m, int n, int steps, float A[m][n], float B[m][n], float q[m], float r[n], int E[m][n], int t[m], int s[n]"
# sums of columns, and rows that take them: as in Gram-Schmidt
BOTH = """for (int k = 0; k < steps; k++) {
        for (int j = 0; j < n; j++) {
            r[j] = 0.0f;
            for (int i = 0; i < m; i++)
                r[j] += q[i]*A[i][j];
        }
        for (int i = 0; i < m; i++)
            for (int j = 0; j < n; j++)
                A[i][j] = A[i][j] - q[i]*r[j];
    }"""
# a stencil and back: both share rows anyway
BACK = """for (int k = 0; k < steps; k++) {
        for (int i = 1; i < m - 1; i++)
            for (int j = 0; j < n; j++)
                B[i][j] = A[i-1][j] + A[i+1][j];
        for (int i = 1; i < m - 1; i++)
            for (int j = 0; j < n; j++)
                A[i][j] = 0.25f*B[i][j];
    }"""


def plan_of(body: str, m: int, n: int, machine: Machine = TWO) -> Plan:
    found = lifted(f"void f({HEAD})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return replace(planned(found, {"m": m, "n": n, "steps": 100}), machine=machine)


def inside(plan: Plan) -> list[Facts]:
    """The programs of the host loop."""
    looped = [p for s in plan.lifted.program if isinstance(s, HostLoop) for p in programs_of((s,))]
    return [facts(p, plan.sizes[plan.lifted.programs.index(p)]) for p in looped]


def touched(f: Facts, d: str) -> dict[tuple[str, tuple[int, ...]], set[int]]:
    """Which of two threads touches which cells, each having half of a dimension; all of them without one."""
    found: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for point in product(*(range(n) for n in f.sizes.values())):
        at = dict(zip(f.sizes, point, strict=True))
        thread = int(2 * at[d] >= f.sizes[d]) if d else 0
        accesses = [(a.buffer, a.index) for a in f.program.inp.accesses]
        for buffer, index in (*accesses, *((s.buffer, s.index) for s in f.program.out.stores)):
            place = tuple(x.evaluate({**at, "k": 0}) for x in index)
            found.setdefault((buffer, place), set()).add(thread)
    return found


@pytest.mark.parametrize("shared", list(product(("i", "j", ""), repeat=2)), ids=lambda s: "-".join(s) or "none")
def test_what_crosses_is_counted_cell_by_cell(shared: tuple[str, str]) -> None:
    """The matrix alone: vectors are short and shared by all."""
    programs = inside(plan_of(BOTH, 64, 128))
    assert len(programs) == 2 and [set(f.sizes) for f in programs] == [{"i", "j"}] * 2
    points: list[Point] = [{"threads": d} for d in shared]
    first, second = (touched(f, d) for f, d in zip(programs, shared, strict=True))
    cells = [c for c in first if c[0] == "A" and c in second]
    assert len(cells) == 64 * 128
    moved = 2 * 4 * sum(first[c] != second[c] for c in cells)  # there, and back in the next iteration
    others = sum(bytes_of(f)[b] for f in programs for b in ("q", "r"))
    assert moved <= crossed(programs, points, 2) <= moved + 2 * others
    apart = [division(f, p, "A") for f, p in zip(programs, points, strict=True)]
    assert (apart[0] == apart[1]) is (moved == 0)


def test_divisions() -> None:
    sums, rows = inside(plan_of(BOTH, 64, 128))
    assert division(rows, {"threads": "i,j"}, "A") == division(rows, {"threads": "i"}, "A") == (0, 0)
    assert division(sums, {"threads": "j"}, "A") == (1, 0)
    assert division(sums, {"threads": "j"}, "q") == ALL and division(sums, {"threads": "i"}, "q") == (0, 0)
    assert division(rows, {"threads": ""}, "A") == division(rows, {}, "r") == ONE
    body = """for (int k = 0; k < steps; k++)
        for (int i = 0; i < m; i++)
            for (int j = 0; j <= i; j++)
                A[i][j] = 0.5f*A[i][j] + q[i];"""
    (triangle,) = inside(plan_of(body, 64, 64))
    assert division(triangle, {"threads": "i", "block_i": 4}, "A") == (0, 4)


def test_the_array_is_found_past_who_touches_little_of_it() -> None:
    """A program between the two that reads a column only leaves the others where they are."""
    column = "for (int i = 0; i < m; i++) q[i] = A[i][0];"
    between = inside(plan_of(BOTH.replace("{\n", "{\n" + column + "\n", 1), 64, 128))
    assert len(between) == 3 and [set(f.sizes) for f in between] == [{"i"}, {"i", "j"}, {"i", "j"}]
    serial: Point = {"threads": ""}
    apart = crossed(between, [serial, {"threads": "j"}, {"threads": "i"}], 2)
    near = crossed(between, [serial, {"threads": "i"}, {"threads": "i"}], 2)
    whole, short = 64 * 128 * 4, sum(bytes_of(f)[b] for f in between[1:] for b in "qr")
    assert whole - bytes_of(between[0])["A"] <= apart - near <= whole + short


@pytest.mark.parametrize("exact", [False, True])
def test_programs_of_a_loop_share_one_dimension(exact: bool) -> None:
    """Sums stay whole where their order matters; the estimate prefers what the default does."""
    body = BOTH.replace("r[j]", "s[j]").replace("A[i][j]", "E[i][j]").replace("0.0f", "0").replace("q[i]", "t[i]")
    plan = plan_of(body if exact else BOTH, 1200, 1000)
    point, programs = plan.default, inside(plan)
    own = [own_values(point, k) for k in range(len(programs))]
    array = "E" if exact else "A"
    first, second = (division(f, p, array) for f, p in zip(programs, own, strict=True))
    assert first == second
    assert exact or first == (1, 0)
    alone = [default_point((f.program,), TWO, (f.sizes,)) for f in programs]
    assert [p["threads"] for p in alone] == ["j", "i"]
    apart = point | alone[0] | {f"{name}_at1": value for name, value in alone[1].items()}
    assert plan.estimate(point) < plan.estimate(apart)


def test_what_agrees_stays() -> None:
    plan = plan_of(BACK, 1200, 1000)
    programs = inside(plan)
    own = [own_values(plan.default, k) for k in range(len(programs))]
    assert crossed(programs, own, 2) == 0
    assert nearest(programs, own, [[{**p, "threads": "j"}] for p in own], TWO) == own


def test_only_what_saves_much_is_taken() -> None:
    programs = inside(plan_of(BOTH, 1200, 1000))
    usual: list[Point] = [own_values(plan_of(BOTH, 1200, 1000).default, k) for k in range(2)]
    dear = {**usual[0], "lanes": 1, "vector": "-"}
    assert cost(programs[0], TWO, dear) > 2 * cost(programs[0], TWO, usual[0])
    apart = [{**usual[0], "threads": "j"}, usual[1]]
    assert nearest(programs, apart, [[usual[0]], []], TWO) == usual
    assert nearest(programs, apart, [[{**dear, "threads": "i"}], []], TWO) == apart
    assert nearest(programs, apart, [[usual[0]], []], replace(TWO, cores=1)) == apart
    assert nearest(programs, apart, [[usual[0]], []], replace(TWO, l3=1 << 20)) == apart  # comes from memory
    assert nearest(programs[:1], apart[:1], [[usual[0]]], TWO) == apart[:1]
