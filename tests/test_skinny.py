"""Sizes shorter than a register tile: computed in vectors all the same.

Copies are filled up where columns are fewer than a strip (``PacksText._copy_strips``); rows that are fewer than a
tile's are gone through one by one (``NestText._moved_row``).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.interpreter import run
from tests.catalogue import EVERYTHING
from tests.emitted import Case, check, with_extents
from tests.strategies import buffers_for, copy_of
from tests.test_emit import SANITIZERS, WIDE

POINTS: dict[str, tuple[str, Point]] = {
    "columns of a copy": (
        "matmul",
        {
            "threads": "j", "vector": "j", "lanes": 16, "rows_i": 2, "block_i": 6, "block_j": 48, "block_k": 5,
            "pack_B": "block",
        },
    ),
    "a panel": (
        "matmul",
        {
            "threads": "i", "vector": "j", "lanes": 16, "rows_i": 3, "block_i": 6, "block_j": 48, "block_k": 7,
            "pack_A": "panel", "pack_B": "block",
        },
    ),
    "rows": ("matvec", {"threads": "i", "vector": "k", "lanes": 16, "rows_i": 4, "block_i": 16}),
}  # fmt: skip
SIZES = ((1, 1, 1), (1, 15, 9), (2, 7, 40), (3, 16, 33), (3, 1, 50), (4, 17, 5), (5, 31, 6), (0, 3, 3), (9, 49, 8))


@pytest.mark.parametrize("flags", [WIDE, (*SANITIZERS, "-march=native")], ids=["wide", "sanitized"])
def test_fewer_than_a_tile(flags: tuple[str, ...], tmp_path: Path) -> None:
    rng, cases = random.Random(5), []
    for name, point in POINTS.values():
        p = EVERYTHING[name]
        (c,) = configuration_at((p,), GENERIC, ({d.name: 64 for d in p.hom.dims},), point)
        for sizes in SIZES:
            given = sizes if len(p.params) == 3 else (sizes[0], sizes[2])
            params = {q.name: n for q, n in zip(p.params, given, strict=True)}
            buffers = buffers_for(p, params, rng)
            symbolic, extra = with_extents(p, buffers, symbolic=True)
            expected = copy_of(buffers)
            run(p, params, expected)
            cases.append((Case(symbolic, c, {**params, **extra}, buffers), expected))
    check(cases, tmp_path, flags=(*flags, "-Wno-aggressive-loop-optimizations"))


def _text(case: str) -> str:
    name, point = POINTS[case]
    p = EVERYTHING[name]
    buffers = buffers_for(p, {q.name: 5 for q in p.params}, random.Random(0))
    (c,) = configuration_at((p,), GENERIC, ({d.name: 64 for d in p.hom.dims},), point)
    return emit_openmp(KernelRequest("k", "k", (with_extents(p, buffers, symbolic=True)[0],), (c,), GENERIC)).text


def test_copies_repeat_the_last_column() -> None:
    """What is read is there, and what is computed of it as well: indices, divisors."""
    text = _text("columns of a copy")
    assert "(c1 < j_width ? c1 : j_width - 1)" in text
    # whole tiles, tiles whose rows alone need to be there, and clipped ones
    assert "} else if (i_start + 1 < i_size) {" in text


def test_rows_are_gone_through_one_by_one() -> None:
    text = _text("rows")
    assert "for (long i_2_2 = i_1; i_2_2 < i_part_end; i_2_2++) {" in text
    assert text.count("vector_size(") >= 4  # both have vectors
    assert "acc_2[vectors_v_2]" in text
