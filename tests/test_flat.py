"""Two reduced dimensions as one loop (``emit.flat_text``): where rows follow one another, and only there."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.machine import Machine
from lowering.point import Point, configuration_at
from mdh_core.evaluate import Value
from mdh_core.interpreter import BufferValue, run
from mdh_core.ir import MdhProgram
from tests.catalogue import CATALOGUE
from tests.emitted import FLAGS, Case, check, with_constant_sizes, with_extents
from tests.strategies import buffers_for, copy_of, random_value

SERVER = Machine("server", 2, 64, 32, 48 << 10, 2 << 20, 32 << 20)
SIZES = {"n": 1, "p": 20, "q": 40, "k": 32, "r": 5, "s": 5, "c": 3}
MCC = CATALOGUE["mcc_strided"]
POINT: Point = {  # blocks that hold all of a dimension, all but one, or one
    "block_n": 1, "block_p": 8, "block_q": 8, "block_k": 16, "rows_p": 1, "rows_q": 2, "rows_k": 1, "lanes": 16,
    "vector": "k", "threads": "p", "order": 0, "unroll_r": 1, "unroll_s": 1, "unroll_c": 1, "pack_I": "no",
    "pack_F": "block", "block_r": 8, "block_s": 8, "block_c": 8,
}  # fmt: skip


def _params(sizes: dict[str, int]) -> dict[str, Value]:
    by_size = {n: sizes[d.name] for d in MCC.hom.dims for n in d.size.span.names}
    return {q.name: by_size[q.name] for q in MCC.params}


def _with_room(params: dict[str, Value], rng: random.Random, room: int) -> dict[str, BufferValue]:
    """Buffers whose rows of channels are longer than what is read."""
    found = {}
    for name, b in buffers_for(MCC, params, rng).items():
        extents = (*b.extents[:-1], b.extents[-1] + (room if name != "O" else 0))
        t = MCC.buffer(name).type
        found[name] = BufferValue([random_value(t, rng) for _ in range(math.prod(extents))], extents)
    return found


def _text(p: MdhProgram, point: Point, sizes: dict[str, int] = SIZES) -> str:
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    return emit_openmp(KernelRequest("k", "k", (p,), (c,), SERVER)).text


@pytest.mark.parametrize("room", [0, 1])
def test_values_at_every_length_of_rows(room: int, tmp_path: Path) -> None:
    """Rows that follow one another, and rows with something between; blocks of all, some and one element."""
    rng, cases = random.Random(room), []
    for columns, channels in ((0, 3), (1, 3), (5, 1), (3, 3), (5, 4), (2, 9)):
        sizes = {"n": 1, "p": 3, "q": 5, "k": 17, "r": 2, "s": columns, "c": channels}
        params = _params(sizes)
        buffers = _with_room(params, rng, room)
        expected = copy_of(buffers)
        run(MCC, params, expected)
        p, extra = with_extents(MCC, buffers, symbolic=True)
        for block, pack in ((8, "block"), (3, "no"), (channels, "block")):
            point = {**POINT, "block_c": block, "pack_F": pack, "block_s": 4 if block == 3 else 8}
            if pack == "no":
                point |= {"vector": "-", "lanes": 1}
            (c,) = configuration_at((p,), SERVER, (sizes,), point)
            cases.append((Case(p, c, {**params, **extra}, buffers, SERVER), expected))
    check(cases, tmp_path)


@pytest.mark.parametrize(("room", "flat"), [(0, True), (1, False)])
def test_known_distances_decide_at_once(room: int, flat: bool, tmp_path: Path) -> None:
    params = _params(SIZES | {"p": 3, "q": 6})
    buffers = _with_room(params, random.Random(3), room)
    p, _ = with_extents(MCC, buffers)
    p = with_constant_sizes(p, {k: int(v) for k, v in params.items()})  # type: ignore[call-overload]
    sizes = p.sizes({})
    point = {**POINT, "block_r": 5, "block_s": 5, "block_c": 3}
    text = _text(p, point, sizes)
    assert ("_flat" in text) == flat and "? 5*3 :" not in text
    (c,) = configuration_at((p,), SERVER, (sizes,), point)
    expected = copy_of(buffers)
    run(p, params, expected)
    check([(Case(p, c, params, buffers, SERVER), expected)], tmp_path, flags=(*FLAGS, "-O1"))


def test_the_default_of_a_convolution_has_one_loop() -> None:
    """ResNet's first layer: 7 rows of 7*3 elements."""
    sizes = {"n": 1, "p": 112, "q": 112, "k": 64, "r": 7, "s": 7, "c": 3}
    buffers = buffers_for(MCC, _params(SIZES), random.Random(0))
    p, _ = with_extents(MCC, buffers, symbolic=True)
    assert "c_flat" in _text(p, default_point((p,), SERVER, (sizes,)), sizes)


def test_long_rows_keep_their_loops() -> None:
    buffers = buffers_for(MCC, _params(SIZES), random.Random(0))
    p, _ = with_extents(MCC, buffers, symbolic=True)
    decided = r"const long c_flat = I_n3 == c_end - c_1 && .* \? \(s_end - s_1\)\*\(c_end - c_1\) : c_end - c_1;"
    assert re.search(decided, _text(p, {**POINT, "block_c": 9}))
    assert "_flat" not in _text(p, {**POINT, "block_c": 128}, {**SIZES, "c": 128})
