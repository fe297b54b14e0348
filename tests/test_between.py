"""Reductions that read under a condition, in vectors: only between elements that the source reads, too."""

from __future__ import annotations

import random

import pytest

from emit.between_text import Ends
from lowering.between import between
from lowering.facts import facts, vector_candidates
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from lowering.space import tuning_space
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import Buffer, MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel
from tuning.space import valid_points

HEAD = (
    "int n, int m, int r, int q, int c[m], int M[n][m], float a[r], float b[q], float W[n][m], float y[n],"
    " float z[m], float s[1], int k[1]"
)
ALONG, ROWS = "for (int j = 0; j < m; j++) ", "for (int i = 0; i < n; i++) "
NESTS = {  # c is positive below r only, a below q only, b has no more than q elements
    "sum": ALONG + "if (c[j] > 0) s[0] += a[j] * c[j];",
    "count": ALONG + "if (c[j] > 0 && a[j] > 2) k[0]++;",
    "largest": ALONG + "if (c[j] > 0 && a[j] > s[0]) s[0] = a[j];",
    "otherwise something": ALONG + "s[0] += c[j] > 0 ? a[j] : 1;",
    "two arrays": ALONG + "s[0] += c[j] > 1 ? b[j] : c[j] == 1 ? a[j] : 0;",
    "one within the other": ALONG + "if (c[j] > 0) { float t = a[j]; if (t > 0) s[0] += b[j] * t; else s[0] += t; }",
    "in another order": ALONG + "if (c[j] > 0) s[0] += a[r - 1 - j];",
    "unless": ALONG + "if (!(c[j] <= 0 || a[j] <= 0)) s[0] += b[j];",
    "the same for all": ALONG + "if (c[j] > 0) s[0] += a[0];",
    "rows": ROWS + ALONG + "if (c[j] > 0) y[i] += W[i][j] * a[j];",
    "rows with their own": ROWS + ALONG + "if (M[i][j] > 0) y[i] += W[i][j] * a[j];",
    "a plane": ROWS + ALONG + "if (M[i][j] > 0) s[0] += a[j] * W[i][j];",
    "read anyway": ALONG + "s[0] += c[j] > 0 ? z[j] + a[j] : 2 * z[j];",
    "the same either way": ALONG + "s[0] += c[j] > 0 ? z[j] : 2 * z[j];",
    "two operators": ALONG + "{ s[0] += c[j] > 0 ? a[j] : 0; k[0] += c[j] > 0 ? 1 : 0; }",
}  # fmt: skip
OTHERS = {
    "a map": ALONG + "if (c[j] > 0) y[j] = a[j];",
    "a position": ALONG + "if (c[j] > 0 && a[j] > s[0]) { s[0] = a[j]; k[0] = j; }",
    "a scan": ALONG + "{ if (c[j] > 0) s[0] += a[j]; y[j] = s[0]; }",
    "always": ALONG + "s[0] += W[0][j];",
    "looked up": ALONG + "if (c[j] > 0) s[0] += a[c[j] - 1];",
}


def of(nest: str) -> MdhProgram:
    (p,) = (p for p in lifted(f"void f({HEAD}) {{\n#pragma mdh\n{nest} }}").program if isinstance(p, MdhProgram))
    return p


def data_of(p: MdhProgram, params: dict[str, int], rng: random.Random) -> dict[str, BufferValue]:
    n, m, r, q = (params[x] for x in "nmrq")

    def read(j: int) -> int:
        """What a condition's array holds where ``a`` has, or has no, element ``j``; and ``b``."""
        if j >= r:
            return rng.randint(-2, 0)
        return rng.choice((-1, 0, 1, 1, 2)) if j < q else rng.choice((-1, 0, 1, 1))

    contents = {
        "c": ([read(j) for j in range(m)], (m,)),
        "M": ([read(j) for _ in range(n) for j in range(m)], (n, m)),
        "a": ([float(rng.randint(-5, 9) if j < q else rng.randint(-9, 0)) for j in range(r)], (r,)),
        "b": ([float(rng.randint(-9, 9)) for _ in range(q)], (q,)),
        "W": ([float(rng.randint(-9, 9)) for _ in range(n * m)], (n, m)),
        "y": ([float(rng.randint(-9, 9)) for _ in range(n)], (n,)),
        "z": ([float(rng.randint(-9, 9)) for _ in range(m)], (m,)),
        "s": ([3.0], (1,)),
        "k": ([5], (1,)),
    }

    def value(b: Buffer) -> BufferValue:
        return BufferValue(list(contents[b.name][0]), contents[b.name][1])

    return {b.name: value(b) for b in p.buffers}


@pytest.mark.parametrize("name", NESTS)
def test_vectors_along_what_is_reduced(name: str) -> None:
    p = of(NESTS[name])
    found = between(p)
    assert found is not None, p
    assert any(a.conditional for a in p.inp.accesses)
    assert not any(a.conditional for a in found.program.inp.accesses)
    assert found.neutral == (name not in ("otherwise something", "two arrays", "one within the other", "read anyway", "the same either way"))
    assert len(found.guards) == (0 if name == "the same either way" else 2 if name == "two arrays" else 1)
    assert vector_candidates(facts(p, {d.name: 64 for d in p.hom.dims}))[0] == "j"


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_no_such_form(name: str) -> None:
    assert between(of(OTHERS[name])) is None


def test_no_other_dimension_has_vectors() -> None:
    """Neighbouring cells would each have elements of their own that are read first and last."""
    p = of("for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) if (M[i][j] > 0) y[j] += W[i][j];")
    assert between(p) is not None
    assert "j" not in vector_candidates(facts(p, {"i": 64, "j": 64}))


@pytest.mark.parametrize("name, lanes, rows", [*((x, 8, 1) for x in NESTS), *((x, 16, 3) for x in NESTS if "rows" in x)])
def test_at_all_sizes(name: str, lanes: int, rows: int) -> None:
    """With the address sanitizer: arrays end behind what the source reads of them."""
    p, rng = of(NESTS[name]), random.Random(lanes + rows)
    dims = [d.name for d in p.hom.dims]
    point: Point = {"threads": dims[0], "vector": "j", "lanes": lanes, "block_j": 3 * lanes}
    if rows > 1:
        point["rows_i"] = rows
    vectors = scalars = 0
    sizes = ((1, 1, 1, 1), (3, 90, 70, 60), (4, 33, 33, 33), (5, 200, 130, 50), (2, 96, 0, 0), (0, 9, 2, 1))
    for n, m, r, q in sizes:
        params = {"n": n, "m": m, "r": r, "q": q}
        case = Case((p,), params, data_of(p, params, rng))
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(params)),), point)
        kernel = kernel_of(case, (c,), GENERIC)
        vectors += "vector_size" in kernel.text and ("j_from" in kernel.text) == (name != "the same either way")
        answer = run_kernel(case, kernel, (*FLAGS, "-O1", "-fsanitize=address,undefined"))
        assert "outside" not in answer
        if not answer["returned"]:
            scalars += 1
            continue
        for b in p.buffers:
            found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined, arg-type]
            assert found == expected[b.name].data, (name, params, b.name, kernel.text)
    assert vectors == len(sizes) and scalars <= 2


def test_steps_that_lie_between() -> None:
    ends = Ends("j_first", "j_last", "j_from", "j_to", 48)
    assert (ends.begun("j"), ends.whole("j")) == ("j >= j_from", "j + 47 < j_to")
    assert Ends("0", "n", "from", "to", 1).whole("j") == "j < to"


@pytest.mark.parametrize("name", NESTS)
def test_at_points_of_the_space(name: str) -> None:
    """Other tiles, blocks, copies and threads: what the search may take."""
    p, rng = of(NESTS[name]), random.Random(name)
    large = {d.name: 300 for d in p.hom.dims}
    space = tuning_space((p,), GENERIC, (large,))
    drawn = (next(valid_points(space, rng)) for _ in range(40))
    points = [x for x in drawn if x["vector"] == "j" and (x["block_j"] or 300) > int(x["lanes"]) * int(x["unroll_j"])][:4]
    params = {"n": 5, "m": 230, "r": 190, "q": 130}
    for point in points:
        case = Case((p,), params, data_of(p, params, rng))
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        kernel = kernel_of(case, configuration_at((p,), GENERIC, (large,), point), GENERIC)
        assert "vector_size" in kernel.text, point
        answer = run_kernel(case, kernel, (*FLAGS, "-O1", "-fsanitize=address,undefined"))
        assert "outside" not in answer and answer["returned"], point
        for b in p.buffers:
            found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined, arg-type]
            assert found == expected[b.name].data, (point, b.name, kernel.text)
    assert len(points) == 4
