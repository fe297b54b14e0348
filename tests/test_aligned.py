"""Tiles of a map's rows that begin where lines do, and the rows that are left at a tile's end: right, and chosen."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from frontend_c.preprocess import CompileCommand
from frontend_c.read import read
from lifter.lift import lift
from lowering.choice import default_point
from lowering.cost import cost
from lowering.facts import facts, has_border, may_be_aligned
from lowering.lower import Nest, lower
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from lowering.space import tuning_space
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from mdh_core.source import SourceFile
from mdh_lift.kernels import planned
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_corpus import CORPUS
from tests.test_joined import FOR, of
from tests.test_register_tiles import SERVER
from tests.test_steps import Case, kernel_of, run_kernel

PLANES = (
    "int n, int m, int l, double O[n][m][l], double I[n + 2][m + 2][l + 2]",
    FOR.format("i", "n") + FOR.format("j", "m") + FOR.format("k", "l")
    + "O[i][j][k] = I[i][j + 1][k + 1] + I[i + 2][j + 1][k + 1] - I[i + 1][j][k] * I[i + 1][j + 2][k + 2];",
)  # fmt: skip
ROWS = (
    "int n, int l, float O[n][l + 3], float I[n + 2][l + 2]",
    FOR.format("i", "n") + FOR.format("k", "l") + "O[i][k + 1] = I[i][k + 1] + I[i + 2][k] * I[i + 1][k + 2];",
)
TWO = (
    "int n, int l, double O[n][l], float P[n][l], double I[n][l], float J[l]",
    FOR.format("i", "n") + FOR.format("k", "l") + "{ P[i][k] = J[k] + i; O[i][k] = I[i][k] * J[k] - i; }",
)
IN_PLACE = ("int n, int l, float O[n][l]", FOR.format("i", "n") + FOR.format("k", "l") + "O[i][k] = O[i][k] * 2;")
POINT: Point = {"vector": "k", "order": 0, "block_i": 12, "block_j": 5, "block_k": 96, "aligned": 1}
EVERYWHERE = ((*FLAGS, "-O2", "-march=native"), ("-O0", "-g", "-fopenmp", "-fsanitize=address,undefined"))


def text(p: MdhProgram, point: Point) -> str:
    (c,) = configuration_at((p,), GENERIC, ({d.name: 90 for d in p.hom.dims},), point)
    kernel = emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text
    return kernel[kernel.index("static int ") :]


@pytest.mark.parametrize("rows", [{"rows_i": 4}, {"rows_i": 1}, {"rows_i": 3, "rows_j": 2}], ids=str)
@pytest.mark.parametrize("lanes", [4, 8, 16, 48])
@pytest.mark.parametrize("nest", [PLANES, ROWS, TWO], ids=["planes", "rows", "two"])
def test_at_all_sizes(nest: tuple[str, str], lanes: int, rows: dict[str, int]) -> None:
    """Rows that begin everywhere in a line, shorter than a tile, one longer; all numbers of rows that are left."""
    p, rng = of(nest), random.Random(lanes)
    own: Point = {**POINT, "lanes": lanes, **{x: n for x, n in rows.items() if x[5:] in {d.name for d in p.hom.dims}}}
    assert "k_step" in text(p, {**own, "threads": "i"})
    sizes = [(4, 7, 33), (9, 6, 2 * lanes - 1), (6, 5, lanes + 1), (8, 3, 100), (1, 1, lanes), (7, 2, lanes - 1), (5, 4, 1)]
    for n, m, length in sizes:
        params = {"n": n, "m": m, "l": length}
        data = {}
        for b in p.buffers:
            known = (None if e is None else e.evaluate(params) for e in b.extents)
            extents = tuple(e for e in known if e is not None)
            assert len(extents) == len(b.extents)
            data[b.name] = BufferValue([float(rng.randint(-9, 9)) for _ in range(math.prod(extents))], extents)
        case = Case((p,), {x.name: params[x.name] for x in p.params}, data)
        expected = {name: b.copy() for name, b in data.items()}
        run_steps(case.steps, case.params, expected)
        point = {**own, "threads": rng.choice(["", "i", "i,k"])}
        (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(case.params)),), point)
        kernel = kernel_of(case, (c,), GENERIC)
        for flags in EVERYWHERE:
            answer = run_kernel(case, kernel, flags)
            assert answer["returned"] == 1 and "outside" not in answer
            for b in {s.buffer for s in p.out.stores}:
                t = p.buffer(b).type
                found = [_value(x, t) for x in answer[b]]  # type: ignore[arg-type, attr-defined]
                assert found == expected[b].data, (params, point, kernel.text)


def test_the_text() -> None:
    """The first tile where the row begins, the second where a line of the output does, in the middle of the first."""
    kernel = text(of(ROWS), {**POINT, "lanes": 16, "rows_i": 4, "threads": "i"})
    wide, single = kernel[: kernel.index("} else {\n")], kernel[kernel.index("const long i_end = ") :]
    for part, row in ((wide, "i_2"), (single, "i")):
        (step,) = re.findall(rf"long (k_step\w*) = \(long\)\(\(-\(__UINTPTR_TYPE__\)&O\[{row}\*\(l \+ 3\) \+ \w+ \+ 1\] & 63\)/sizeof\(float\)\);", part)
        assert f"if ({step} == 0) {step} = 16;" in part and re.search(rf"k_\w+ \+= {step}, {step} = 16\) {{", part)
        assert re.search(r"\*\(float_v_?2?u \*\)&O\[", part)
    assert "for (long i_r = 0; i_r < 4; i_r++)" in wide
    assert "for (long i = i_2; i < i_end; i++) {" in single and "i_r" not in single
    plain = text(of(ROWS), {**POINT, "lanes": 16, "rows_i": 4, "threads": "i", "aligned": 0})
    assert "k_step" not in plain and "const long i_end = " in plain
    assert "& 15)/sizeof(float)" in text(of(ROWS), {**POINT, "lanes": 4}), "a tile of 16 bytes has no more to step"


def test_points_that_may_be_computed_once_only_are_left_alone() -> None:
    p = of(IN_PLACE)
    sizes = {"i": 90, "k": 90}
    assert not may_be_aligned(facts(p, sizes)) and "aligned" not in default_point((p,), SERVER, (sizes,))
    assert "k_step" not in text(p, {**POINT, "lanes": 16})
    (c,) = configuration_at((p,), GENERIC, (sizes,), {**POINT, "lanes": 16})
    (nest,) = lower(p, c, GENERIC).stages
    assert isinstance(nest, Nest) and nest.aligned, "the text, not the configuration, leaves it out"


def test_a_map_with_a_border_has_no_rows_of_tiles() -> None:
    head = "int n, int l, float O[n][l], float I[n][l]"
    p = of((head, FOR.format("i", "n") + FOR.format("k", "l") + "O[i][k] = k == 0 ? I[i][k] : I[i][k - 1] + I[i][k];"))
    sizes = {"i": 900, "k": 900}
    assert has_border(facts(p, sizes)) and not may_be_aligned(facts(p, sizes))
    assert "aligned" not in default_point((p,), SERVER, (sizes,))
    point: Point = {**POINT, "lanes": 16}
    assert text(p, point) == text(p, {**point, "aligned": 0})


@pytest.mark.parametrize(("length", "aligned"), [(1000, 1), (16, 0)])
def test_the_default_begins_with_lines_where_rows_are_long(length: int, aligned: int) -> None:
    p, sizes = of(ROWS), {"i": 1000, "k": length}
    point = default_point((p,), SERVER, (sizes,))
    assert point["aligned"] == aligned, point
    assert ("aligned", (0, 1)) in tuning_space((p,), SERVER, (sizes,)).parameters
    if aligned:
        f = facts(p, sizes)
        assert cost(f, SERVER, point) < cost(f, SERVER, {**point, "aligned": 0})


def test_rows_of_maps_by_what_comes_again() -> None:
    """Planes from the last cache: a tile of several brings each of them once, one of a single plane three times.

    Neighbouring rows of one plane are no gain: the next row of the plane would not be the one that follows.
    """
    p = of(PLANES)
    sizes = {"i": 118, "j": 118, "k": 118}
    point = default_point((p,), SERVER, (sizes,))
    f, at = facts(p, sizes), {**point, "past_O": 0}
    assert int(point["rows_i"]) > 1 and point["rows_j"] == 1, point
    one, several, neighbours = (cost(f, SERVER, {**at, "rows_i": i, "rows_j": j}) for i, j in ((1, 1), (3, 1), (1, 3)))
    assert several < one < neighbours


def test_rows_in_tiles_of_a_host_loop() -> None:
    """Parts of every length have several rows, what is left is done in vectors; widths of few rows have one."""
    found = lifted(
        "void f(int n, int m, int steps, double A[n][m], double B[n][m]) {\n#pragma mdh\n"
        "for (int t = 0; t < steps; t++) {\n"
        " for (int i = 1; i < n - 1; i++) for (int k = 1; k < m - 1; k++) B[i][k] = A[i - 1][k] + A[i + 1][k] - A[i][k - 1] * A[i][k + 1];\n"
        " for (int i = 1; i < n - 1; i++) for (int k = 1; k < m - 1; k++) A[i][k] = B[i - 1][k] + B[i + 1][k] - B[i][k - 1] * B[i][k + 1];\n"
        "} }"
    )
    plan = replace(planned(found, {"n": 1300, "m": 1300, "steps": 500}), machine=SERVER)
    point = plan.default
    assert int(point["width_0"]) > 64 and int(point["rows_i"]) >= 4 and int(point["rows_i_at1"]) >= 4, point
    assert int(point["rows_i"]) * 8 <= int(point["width_0"])
    kernel = plan.kernel(point).text
    assert len(re.findall(r"const long i_in\w*_end = ", kernel)) >= 4, "two programs, in parts and on borders"


@pytest.mark.parametrize("source", ["scan.c", "exclusive_scan.c", "linear_recurrence.c", "map.c", "axpy.c", "softmax.c"])
def test_there_is_a_default_at_all_sizes(source: str) -> None:
    """In every cache and in none: without rows, without cells, of one dimension."""
    text = SourceFile(source, (CORPUS / source).read_bytes())
    programs = [p for n in read(text, CompileCommand(directory=str(CORPUS))).nests for p in lift(n).programs]
    for p in programs:
        for bits in range(8, 24, 2):
            sizes = {d.name: 1 << bits // len(p.hom.dims) for d in p.hom.dims}
            point = default_point((p,), SERVER, (sizes,))
            assert cost(facts(p, sizes), SERVER, point) > 0.0
    assert programs
