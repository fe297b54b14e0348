"""Threads whose parts alternate in memory: what the cost model counts, and what it chooses then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.choice import default_point
from lowering.cost import _turns, cost
from lowering.facts import facts
from lowering.machine import GENERIC
from mdh_core.ir import MdhProgram
from tests.catalogue import EVERYTHING
from tests.lifting import lifted
from tests.test_products import WIDE

FOUR = replace(GENERIC, cores=4, l3=8 << 20)
FOR = "for (int {0} = 0; {0} < {1}; {0}++) "


def planes(n: int, m: int = 12) -> MdhProgram:
    """Results of which each plane, row and cell is the sum of something."""
    loops = "".join(FOR.format(d, size) for d, size in zip("abck", (m, n, 16, 24), strict=True))
    head = f"float C[{m}][{n}][16], float A[{m}][24][16], float B[{n}][24]"
    (p,) = lifted(f"void f({head}) {{\n#pragma mdh\n{loops}C[a][b][c] += A[a][k][c] * B[b][k]; }}").program
    assert isinstance(p, MdhProgram)
    return p


@pytest.mark.parametrize(
    ("threads", "blocks", "turns"),
    [
        ("", {}, 0),
        ("a", {"a": 3}, 3),  # four parts, one behind the other
        ("b", {"b": 1000}, 12 * 3),  # in each of the twelve planes
        ("c", {"c": 4}, 12 * 4000 * 3),
        ("a,b", {"a": 3, "b": 1000}, 3),  # none are left
        ("k", {}, 0),  # each thread has results of its own
    ],
)
def test_where_parts_meet(threads: str, blocks: dict[str, int], turns: int) -> None:
    p = planes(4000)
    f = facts(p, p.sizes({}))
    point = default_point((p,), FOUR, (p.sizes({}),)) | {
        "threads": threads,
        "lanes": 4,
        "rows_b": 1,
        "rows_c": 1,
    }
    point |= {"vector": "c", "rows_a": 1} | {f"block_{d}": n for d, n in blocks.items()}
    assert _turns(f, FOUR, point) == turns


def test_cores_that_are_left() -> None:
    """Two planes give work to two cores; for each of them a plane's rows are shared by two more."""
    p = planes(4000, 2)
    f = facts(p, p.sizes({}))
    point = default_point((p,), FOUR, (p.sizes({}),)) | {
        "threads": "a,b",
        "block_a": 1,
        "block_b": 2000,
        "rows_a": 1,
    }
    assert _turns(f, FOUR, point) == 1 + 2 * 1


def test_parts_lie_together_where_nothing_else_counts() -> None:
    """A contraction whose dimensions are all alike to caches: without that, those inside were shared."""
    p = EVERYTHING["ccsdt_abcdef_gfac_degb"]
    sizes = p.sizes({x.name: 16 if x.name[1:] in "bcef" else 24 for x in p.params})
    assert default_point((p,), WIDE, (sizes,))["threads"] == "a"


def test_only_where_results_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planes(4000)
    f = facts(p, p.sizes({}))
    point = default_point((p,), FOUR, (p.sizes({}),)) | {"threads": "b", "block_a": 12, "block_b": 1000}
    near, far = (replace(FOUR, l3=n) for n in (1 << 30, 1 << 20))
    before = [cost(f, m, point) for m in (near, far)]
    monkeypatch.setattr("lowering.cost._TURN", 1.0)  # a second
    after = [cost(f, m, point) for m in (near, far)]
    assert after[0] == before[0]
    assert after[1] - before[1] == pytest.approx(12 * 3 / 4, rel=1e-3)  # all cores wait at the same time


def test_extents_play_no_part() -> None:
    """Rows are around columns though nothing says how long they are."""
    (p,) = lifted("void f(int n, int m, float C[n][m], float A[n][m]) {\n#pragma mdh\n"
                  "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) C[i][j] = A[i][j]; }").program  # fmt: skip
    assert isinstance(p, MdhProgram)
    sizes = p.sizes({"n": 4000, "m": 4000})
    f, point = facts(p, sizes), default_point((p,), FOUR, (sizes,))
    for threads, turns in (("i", 3), ("j", 4000 * 3)):
        assert _turns(f, FOUR, point | {"threads": threads, "block_i": 1000, "block_j": 1000}) == turns
