"""Maps with conditions on their position: vectors away from the border, what stands there on it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.choice import default_point
from lowering.facts import facts, vector_candidates
from lowering.inside import inside
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.expr import Constraint
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel

ROWS = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) "
TWO = "int n, int m, int r, float O[n][m], float I[n][m]"
NESTS = {
    "cross": ROWS + "{ float s = I[i][j]; if (i > 0) s += I[i - 1][j]; if (i + 1 < n) s += 2 * I[i + 1][j];"
    " if (j > 0) s += 3 * I[i][j - 1]; if (j < m - 1) s += 4 * I[i][j + 1]; O[i][j] = s; }",
    "first": ROWS + "O[i][j] = j == 0 ? I[i][j] : I[i][j] - I[i][j - 1];",
    "not the last": ROWS + "O[i][j] = j != m - 1 ? I[i][j + 1] : 7;",
    "none of both": ROWS + "O[i][j] = i == 0 || !(j < m - 1) ? 1 : I[i - 1][j + 1];",
    "in both": ROWS + "O[i][j] = j > 0 ? I[i][j] : 2 * I[i][j];",
    "radius": ROWS + "O[i][j] = j >= r && j < m - r ? I[i][j - r] + I[i][j + r] : I[i][j];",
    "long": "for (long i = 0; i < n; i++) for (long j = 0; j < m; j++)"
    " O[i][j] = (int)j > 1 ? I[i][j - 2] : I[i][j] * I[i][j];",
    "from one": "for (int i = 1; i <= n; i++) for (unsigned j = 0; j < (unsigned)m; j++)"
    " O[i - 1][j] = i > 1 ? I[i - 2][j] + I[i - 1][j] : I[i - 1][j];",
}  # fmt: skip
PLAIN = {
    "computed in unsigned": ROWS + "O[i][j] = (unsigned)j - 1u < (unsigned)m ? I[i][j - 1] : 0;",
    "data": ROWS + "O[i][j] = I[i][j] > 0 && r > 3 ? I[i][m - 1 - j] : 0;",
    "a sum": ROWS + "O[i][0] += j > 0 ? I[i][j - 1] : 0;",
}  # fmt: skip
POINT: Point = {"threads": "i", "vector": "j", "lanes": 8, "block_i": 3, "block_j": 24}


def of(nest: str) -> MdhProgram:
    (p,) = lifted(f"void f({TWO}) {{\n#pragma mdh\n{nest} }}").program
    assert isinstance(p, MdhProgram)
    return p


def data_of(p: MdhProgram, n: int, m: int, rng: random.Random) -> dict[str, BufferValue]:
    return {
        b.name: BufferValue([float(rng.randint(-9, 9)) for _ in range(n * m)], (n, m)) for b in p.buffers
    }


@pytest.mark.parametrize("name", NESTS)
def test_inside_the_map_is_what_it_was(name: str) -> None:
    """At every position that all rows admit; and there are such in the middle."""
    p = of(NESTS[name])
    found = inside(p)
    assert found is not None and found.rows
    assert not any(a.conditional for a in found.program.inp.accesses)
    rng, some = random.Random(2), 0
    names = [d.name for d in p.hom.dims]
    for n, m, r in ((1, 1, 1), (4, 9, 2), (7, 5, 1), (6, 12, 3)):
        params = {"n": n, "m": m, "r": r}
        data = data_of(p, n, m, rng)
        whole, part = ({k: b.copy() for k, b in data.items()} for _ in range(2))
        run_steps((p,), params, whole)
        away = replace(found.program, hom=replace(found.program.hom, domain=tuple(Constraint(x) for x in found.rows)))
        run_steps((away,), params, part)
        sizes = p.sizes(params)
        (store,) = p.out.stores
        for at in itertools.product(*(range(sizes[d]) for d in names)):
            point = {**params, **dict(zip(names, at, strict=True))}
            i, j = (x.evaluate(point) for x in store.index)
            is_inside = all(row.evaluate(point) >= 0 for row in found.rows)
            some += is_inside
            expected = whole if is_inside else data
            assert part["O"].data[i * m + j] == expected["O"].data[i * m + j], (name, params, at)
    assert some > 60
    middle = {"n": 1000, "m": 1000, "r": 3, **dict.fromkeys(names, 500)}
    assert all(row.evaluate(middle) >= 0 for row in found.rows)


@pytest.mark.parametrize("name", PLAIN)
def test_where_there_is_no_inside(name: str) -> None:
    assert inside(of(PLAIN[name])) is None


def _rows(signature: str, nest: str) -> list[str] | None:
    (p,) = lifted(f"void f({signature}) {{\n#pragma mdh\n{nest} }}").program
    assert isinstance(p, MdhProgram)
    found = inside(p)
    return None if found is None else [str(x) for x in found.rows]


def test_what_may_not_be_the_affine_value() -> None:
    line = "for (int j = 0; j < m; j++) "
    # kernels have sizes as signed integers: beyond these nothing is compared
    assert _rows("int m, unsigned long n, float *O, float *I", line + "O[j] = (unsigned long)j >= n ? I[j] : 0;") is None
    assert _rows("int m, long n, float *O, float *I", line + "O[j] = j > n ? I[j - 1] : 0;") is None
    # what is computed in 32 bits may wrap where that is defined
    rows = _rows("int m, float *O, float *I", line + "O[j] = j * 100000 > 5 ? I[j] : 0;")
    assert rows is not None and "-100000*j + 2147483647" in rows, rows


def test_sizes_that_are_constants_have_a_middle() -> None:
    rows = _rows("float *O, float *I", "for (int j = 0; j < 2048; j++) O[j] = j < 2047 ? I[j + 1] : 0;")
    assert rows == ["-j + 2046"], rows


def test_a_copied_factor_is_applied_once() -> None:
    nest = ROWS + "O[i][j] = (j > 0 ? I[i][j - 1] : 0) + r * W[i][j];"
    (p,) = lifted(f"void f({TWO}, float W[n][m]) {{\n#pragma mdh\n{nest} }}").program
    assert isinstance(p, MdhProgram)
    case = Case((p,), {"n": 5, "m": 40, "r": 3}, data_of(p, 5, 40, random.Random(1)))
    expected = {k: b.copy() for k, b in case.data.items()}
    run_steps(case.steps, case.params, expected)
    (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(case.params)),), {**POINT, "pack_W": "block"})
    answer = run_kernel(case, kernel_of(case, (c,), GENERIC), (*FLAGS, "-O2", "-march=native"))
    found = [_value(x, p.component_types[0]) for x in answer["O"]]  # type: ignore[attr-defined]
    assert found == expected["O"].data


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", NESTS)
def test_at_all_sizes(name: str, lanes: int) -> None:
    """Nothing outside is read: with the address sanitizer, and with vectors of this machine."""
    p, rng = of(NESTS[name]), random.Random(lanes)
    for n, m, r in ((1, 1, 1), (2, 8, 1), (3, 9, 2), (5, 17, 1), (4, 40, 3), (7, 33, 0), (1, 64, 5)):
        params = {"n": n, "m": m, "r": r}
        case = Case((p,), params, data_of(p, n, m, rng))
        expected = {k: b.copy() for k, b in case.data.items()}
        run_steps(case.steps, params, expected)
        (c,) = configuration_at((p,), GENERIC, (p.sizes(params),), {**POINT, "lanes": lanes})
        kernel = kernel_of(case, (c,), GENERIC)
        for flags in ((*FLAGS, "-O2", "-march=native"), ("-O0", "-g", "-fopenmp", "-fsanitize=address,undefined")):
            answer = run_kernel(case, kernel, flags)
            assert answer["returned"] == 1 and "outside" not in answer
            found = [_value(x, p.component_types[0]) for x in answer["O"]]  # type: ignore[attr-defined]
            assert found == expected["O"].data, (params, kernel.text)


def test_vectors_are_chosen_and_conditions_stand_before_them() -> None:
    p = of(NESTS["cross"])
    sizes = {"i": 1000, "j": 1000}
    assert vector_candidates(facts(p, sizes))[0] == "j"
    point = default_point((p,), GENERIC, (sizes,))
    assert point["vector"] == "j"
    (c,) = configuration_at((p,), GENERIC, (sizes,), {**POINT, "lanes": 8})
    text = emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text
    (line,) = (x.strip() for x in text.splitlines() if "j_2 + 7 < j_size" in x)
    for condition in ("1 <= i", "i + 2 <= n", "1 <= j_2", "j_2 + 9 <= m"):
        assert condition in line, line
    assert "2147483647" not in line  # sizes are `int`: indices fit
    (row, *more) = inside(of(NESTS["long"])).rows  # type: ignore[union-attr]
    assert (str(row), [str(x) for x in more]) == ("j - 2", []), more
    assert "?" not in text[text.index("#pragma GCC unroll") : text.index("} else {", text.index("#pragma GCC unroll"))]
