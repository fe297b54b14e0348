"""Rows that share lines, written past the caches: which rows, that every cell is right, and what is chosen."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.joined import joined_rows
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from lowering.space import tuning_space
from mdh_core.expr import FLOAT
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_register_tiles import SERVER
from tests.test_steps import Case, kernel_of, run_kernel

MACHINE = replace(GENERIC, l3=0)  # everything is larger than the caches
PAST = "MDH_STORE(float_vu, 0, "
FOR = "for (int {0} = 0; {0} < {1}; {0}++) "
STENCIL = (
    "int n, int m, int l, float O[n][m][l], float I[n + 2][m + 2][l + 2]",
    FOR.format("i", "n") + FOR.format("j", "m") + FOR.format("k", "l")
    + "{ float x = I[i][j + 1][k + 1] + I[i + 2][j + 1][k + 1]; float y = I[i + 1][j][k + 1] + I[i + 1][j + 2][k + 1];"
    " O[i][j][k] = 0.5f * (I[i + 1][j + 1][k] + I[i + 1][j + 1][k + 2] + x + y); }",
)  # fmt: skip
SCALED = (
    "int n, int m, int l, double O[m][l], double I[m][l], double v[m]",
    FOR.format("j", "m") + FOR.format("k", "l") + "O[j][k] = v[j] * I[j][k] + k;",
)
FOUR = (
    "int n, int m, int l, float O[3][n][m][l], float I[3][n][m][l]",
    FOR.format("h", "3") + FOR.format("i", "n") + FOR.format("j", "m") + FOR.format("k", "l")
    + "O[h][i][j][k] = I[h][i][j][k] * 2;",
)  # fmt: skip
POINT: Point = {
    "vector": "k", "lanes": 16, "order": 0, "block_h": 3, "block_i": 12, "block_j": 5, "block_k": 96, "ahead": 128, "past_O": 2,
}  # fmt: skip


def of(nest: tuple[str, str]) -> MdhProgram:
    (p,) = lifted(f"void f({nest[0]}) {{\n#pragma mdh\n{nest[1]} }}").program
    assert isinstance(p, MdhProgram)
    return p


def text(p: MdhProgram, point: Point) -> str:
    (c,) = configuration_at((p,), MACHINE, ({d.name: 90 for d in p.hom.dims},), point)
    return emit_openmp(KernelRequest("kernel", "n", (p,), (c,), MACHINE)).text


@pytest.mark.parametrize("rows", [{"rows_i": 4}, {"rows_i": 1}, {"rows_h": 2, "rows_i": 2}], ids=str)
@pytest.mark.parametrize("nest", [STENCIL, SCALED, FOUR], ids=["stencil", "scaled", "four"])
def test_at_all_sizes(nest: tuple[str, str], rows: dict[str, int]) -> None:
    """Rows of whole lines and others, shorter than two of them, longer than a block; blocks of rows, threads.

    Once with the vectors of this machine, once with those that all have: a line is one to four of them.
    """
    p, rng = of(nest), random.Random(1)
    own = {name: n for name, n in rows.items() if name[5:] in {d.name for d in p.hom.dims}}
    threads = p.hom.dims[0].name
    assert PAST.replace("float", p.component_types[0].name) in text(p, {**POINT, **own, "threads": threads})  # type: ignore[union-attr]
    for n, m, length in ((4, 7, 33), (5, 11, 47), (9, 6, 48), (4, 5, 95), (4, 3, 31), (8, 3, 100), (1, 1, 40)):
        extents = {"I": (n + 2, m + 2, length + 2), "O": (n, m, length), "v": (m,)}
        if nest is not STENCIL:
            whole = (m, length) if nest is SCALED else (3, n, m, length)
            extents |= {"I": whole, "O": whole}
        data = {}
        for b in p.buffers:
            count = 1
            for e in extents[b.name]:
                count *= e
            data[b.name] = BufferValue([float(rng.randint(-9, 9)) for _ in range(count)], extents[b.name])
        case = Case((p,), {"n": n, "m": m, "l": length}, data)
        expected = {name: b.copy() for name, b in data.items()}
        run_steps(case.steps, case.params, expected)
        where = threads if rng.random() < 0.7 else ""
        (c,) = configuration_at((p,), MACHINE, (p.sizes(dict(case.params)),), {**POINT, **own, "threads": where})
        kernel = kernel_of(case, (c,), MACHINE)
        for flags in ((*FLAGS, "-O2", "-march=native"), ("-O0", "-g", "-fopenmp", "-fsanitize=address,undefined")):
            answer = run_kernel(case, kernel, flags)
            assert answer["returned"] == 1 and "outside" not in answer
            found = [_value(x, p.component_types[0]) for x in answer["O"]]  # type: ignore[attr-defined]
            assert found == expected["O"].data, (case.params, kernel.text)


def test_the_text() -> None:
    """Ordinary stores at both ends of a block of rows, all others past the caches; else everything as without."""
    p, point = of(STENCIL), {**POINT, "threads": "i", "rows_i": 4}
    joined, plain = text(p, point), text(p, {**point, "past_O": 0})
    kernel = joined[joined.index("static int ") :]
    (line,) = (x.strip() for x in kernel.splitlines() if "const int O_joined" in x)
    assert line == (
        "const int O_joined = (double)i_size*(double)j_size*(double)k_size*sizeof(float) > 0.0"
        " && k_size >= 32 && (__UINTPTR_TYPE__)O%sizeof(float) == 0;"
    )
    assert "if (O_joined && i_2 + 3 < i_size && k_1 == 0 && k_2_end == k_size) {" in kernel
    special, rest = kernel[kernel.index("if (O_joined") :].split("} else {\n              const long j_2_end", 1)
    assert special.count(PAST) == 3  # in the row, what remains of it, the line that is shared
    assert special.count("*(float_vu *)&O[") == 2  # the beginning of the first row, the end of the last
    assert "__builtin_prefetch(&O[" not in special and "__builtin_prefetch(&I[" in special
    assert "MDH_STORE(" not in rest and "__builtin_prefetch(&O[" in rest
    assert "MDH_STORE(" not in plain and "O_joined" not in plain


def test_which_rows_follow_one_another() -> None:
    assert joined_rows(of(STENCIL), "O") == joined_rows(of(FOUR), "O") == ("k", "j")
    assert joined_rows(of(SCALED), "O") == ("k", "j")

    def other(head: str, body: str) -> tuple[str, str] | None:
        loops = FOR.format("j", "m") + FOR.format("k", "l")
        return joined_rows(of((f"int m, int l, {head}", loops + body)), "O")

    assert other("float O[m][l], float I[m][l]", "O[j][k] = I[j][k];") == ("k", "j")
    assert other("float O[m + 3][l], float I[m][l]", "O[j + 2][k] = I[j][k];") == ("k", "j")
    assert other("float O[m][l + 1], float I[m][l]", "O[j][k] = I[j][k];") is None  # something between
    assert other("float O[m][l + 1], float I[m][l]", "O[j][k + 1] = I[j][k];") is None
    assert other("float O[l][m], float I[m][l]", "O[k][j] = I[j][k];") == ("j", "k")
    assert other("float O[2*m][l], float I[m][l]", "O[2*j][k] = I[j][k];") is None
    assert other("float *O, float I[m][l]", "O[0] += I[j][k];") is None


def test_the_default() -> None:
    """Rows that no line divides, as long as blocks are; rows of whole lines go past the caches by themselves."""
    p = of(STENCIL)
    for length, chosen in ((254, 2), (256, 1)):
        sizes = {"i": 254, "j": 254, "k": length}
        point = default_point((p,), SERVER, (sizes,))
        assert point["past_O"] == chosen, point
        assert ("past_O", (0, 1, 2)) in tuning_space((p,), SERVER, (sizes,)).parameters
        half = default_point((p,), GENERIC, (sizes,))  # two vectors to a line
        assert (half["past_O"], int(half["lanes"]) % 16) == (chosen, 0), half
        assert chosen == 1 or half["rows_i"] == 1  # planes lie at the same place of a page
    border = of((STENCIL[0].replace("O[n][m][l]", "O[n][m][l + 2]"), STENCIL[1]))
    assert default_point((border,), SERVER, ({"i": 254, "j": 254, "k": 254},))["past_O"] == 0
    assert p.component_types == (FLOAT,)
