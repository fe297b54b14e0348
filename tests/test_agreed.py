"""Conditions on which all lanes of a vector agree: one question per row, nothing read or written without it."""

from __future__ import annotations

import random

import pytest

from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.agreed import agreed
from lowering.choice import default_point
from lowering.facts import facts, vector_candidates
from lowering.inside import inside
from lowering.machine import GENERIC
from lowering.point import Point, configuration_at
from mdh_core.expr import ScalarType
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import Buffer, MdhProgram
from tests.emitted import FLAGS, _value
from tests.lifting import lifted
from tests.test_steps import Case, kernel_of, run_kernel

HEAD = "int n, int m, int k, int r, float O[n][m], float A[n][k], float B[r][m], int c[n]"
ROWS = "for (int i = 0; i < n; i++) "
NESTS = {  # B has rows for indices below r only, A is not zero there only, and c says which rows of B there are
    "product": ROWS + "for (int l = 0; l < k; l++) if (A[i][l] != 0) for (int j = 0; j < m; j++)"
    " O[i][j] += A[i][l] * B[l][j];",
    "negated": ROWS + "for (int l = 0; l < k; l++) { if (A[i][l] == 0) continue; for (int j = 0; j < m; j++)"
    " O[i][j] -= A[i][l] * B[l][j]; }",
    "two": ROWS + "for (int l = 0; l < k; l++) if (A[i][l] > 0 && A[i][l] < 9) for (int j = 0; j < m; j++)"
    " O[i][j] += B[l][j];",
    "map": ROWS + "if (c[i]) for (int j = 0; j < m; j++) O[i][j] = O[i][j] * 2 + B[i][j];",
    "else": ROWS + "for (int j = 0; j < m; j++) { if (!c[i]) ; else O[i][j] += 3 * B[i][j]; }",
    "twice": ROWS + "if (c[i] > 0) for (int j = 0; j < m; j++) { float t = B[i][j]; O[i][j] = t * t + r; }",
    "asked in turn": ROWS + "for (int j = 0; j < m; j++) if (c[i] && B[i][0] > 0) O[i][j] += B[i][j];",
    "one after the other": ROWS + "{ if (!c[i]) continue; for (int l = 0; l < k; l++) if (A[i][l] != 0)"
    " for (int j = 0; j < m; j++) O[i][j] += A[i][l] * B[l][j]; }",
    "looked up": ROWS + "for (int l = 0; l < k; l++) if (n > 1 && c[c[0] % 2] > 0 && A[i][l] > 0)"
    " for (int j = 0; j < m; j++) O[i][j] += B[l][j];",
    "one cell": ROWS + "for (int j = 0; j < m; j++) if (c[0] && r > 0) O[i][j] += B[0][j];",
    "switched on": "if (r > 2 && c[1]) " + ROWS + "for (int j = 0; j < m; j++) O[i][j] += B[0][j];",
    "sums": ROWS + "if (c[i]) for (int j = 0; j < m; j++) O[i][0] += B[i][j];",
    "least": ROWS + "if (c[i]) for (int j = 0; j < m; j++) O[i][j] = O[i][j] < B[i][j] ? O[i][j] : B[i][j];",
    "largest": "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++)"
    " if (c[i]) O[0][j] = B[i][j] > O[0][j] ? B[i][j] : O[0][j];",
}  # fmt: skip
PLAIN = {
    "otherwise zero": ROWS + "for (int j = 0; j < m; j++) O[i][j] = c[i] ? B[i][j] : 0;",
    "two conditions": ROWS + "for (int j = 0; j < m; j++) if (c[i]) O[i][j] += c[i] > 1 ? B[i][j] : 1;",
    "a condition that reads the cell": ROWS + "for (int j = 0; j < m; j++) if (O[i][j] > 0) O[i][j] += B[i][j];",
    "always": ROWS + "for (int j = 0; j < m; j++) O[i][j] += B[i][j];",
}  # fmt: skip


def of(nest: str) -> MdhProgram:
    (p,) = lifted(f"void f({HEAD}) {{\n#pragma mdh\n{nest} }}").program
    assert isinstance(p, MdhProgram)
    return p


def data_of(p: MdhProgram, sizes: dict[str, int], rng: random.Random) -> dict[str, BufferValue]:
    n, m, k, r = (sizes[x] for x in "nmkr")
    some = [rng.random() < 0.5 for _ in range(k)]
    factors = [float(rng.randint(1, 9)) if j < r and some[j] else 0.0 for _ in range(n) for j in range(k)]
    contents = {
        "O": ([float(rng.randint(-9, 9)) for _ in range(n * m)], (n, m)),
        "A": (factors, (n, k)),
        "B": ([float(rng.randint(-9, 9)) for _ in range(r * m)], (r, m)),
        "c": ([rng.randint(1, 5) if i < r and rng.random() < 0.7 else 0 for i in range(n)], (n,)),
    }

    def value(b: Buffer) -> BufferValue:
        return BufferValue(list(contents[b.name][0]), contents[b.name][1])

    return {b.name: value(b) for b in p.buffers}


@pytest.mark.parametrize("name", NESTS)
def test_the_program_behind_the_condition_reads_always(name: str) -> None:
    p = of(NESTS[name])
    found = agreed(p)
    assert found is not None, p
    assert any(a.conditional for a in p.inp.accesses)
    assert not any(a.conditional for a in found.program.inp.accesses)
    assert found.along("j") and inside(p) is None
    assert "j" in vector_candidates(facts(p, dict.fromkeys((d.name for d in p.hom.dims), 64)))


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_more_than_one_condition(name: str) -> None:
    (*_, p) = lifted(f"void f({HEAD}) {{\n#pragma mdh\n{PLAIN[name]} }}").program
    assert isinstance(p, MdhProgram)
    assert agreed(p) is None


def test_no_vectors_along_what_the_condition_depends_on() -> None:
    p = of(ROWS + "for (int j = 0; j < m; j++) if (A[i][j] > 0) O[i][j] += B[i][j];")
    found = agreed(p)
    assert found is not None and not found.along("j") and not found.along("i")
    assert vector_candidates(facts(p, {"i": 64, "j": 64})) == ("-",)
    q = of("for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) if (c[i]) O[0][i] += B[i][j];")
    found = agreed(q)
    assert found is not None and found.along("j") and not found.along("i")


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", NESTS)
def test_at_all_sizes(name: str, lanes: int) -> None:
    """With the address sanitizer: rows of which the condition says that they are not there are not read."""
    p, rng = of(NESTS[name]), random.Random(lanes)
    dims = {d.name for d in p.hom.dims}
    point: Point = {"threads": "i" if "i" in dims else "j", "vector": "j", "lanes": lanes, "block_j": 3 * lanes}
    if "l" in dims:
        point |= {"rows_i": 3, "block_l": 5, "pack_A": "panel"}
    vectors = ran = 0
    for n, m, k, r in ((1, 1, 1, 1), (2, 8, 3, 1), (3, 16, 2, 2), (5, 33, 9, 3), (7, 80, 6, 4), (0, 9, 2, 1)):
        params = {"n": n, "m": m, "k": k, "r": r}
        case = Case((p,), params, data_of(p, params, rng))
        expected = {b: v.copy() for b, v in case.data.items()}
        run_steps(case.steps, case.params, expected)
        (c,) = configuration_at((p,), GENERIC, (p.sizes(dict(params)),), point)
        kernel = kernel_of(case, (c,), GENERIC)
        vectors += kernel.text.count("vector_size")
        answer = run_kernel(case, kernel, (*FLAGS, "-O1", "-fsanitize=address,undefined"))
        assert "outside" not in answer
        if not answer["returned"]:  # rows that are not there would lie in another array
            assert r < max(n, k), (name, params)
            continue
        ran += 1
        for b in p.buffers:
            assert isinstance(b.type, ScalarType)
            found = [_value(x, b.type) for x in answer[b.name]]  # type: ignore[attr-defined]
            assert found == expected[b.name].data, (name, params, b.name)
    assert vectors and ran >= 3, ran


@pytest.mark.parametrize(
    "nest, asked",
    [
        ("if (r != 2) for (int j = 0; j < m; j++) O[0][j] += 1;", True),
        ("if (r != 2) for (int j = 0; j < m; j++) O[0][0] += B[0][j];", True),
        ("for (int j = 0; j < m; j++) if (c[0] != 2) c[j + 1] = 7;", False),  # c[0] is another cell, but of c
        ("for (int i = 0; i < n; i++) { O[i][0] = 0; if (r != 2) for (int j = 0; j < m; j++) O[i][0] += B[0][j]; }", False),
    ],
)  # fmt: skip
def test_what_all_points_share_is_asked_once(nest: str, asked: bool) -> None:
    for p in lifted(f"void f({HEAD}) {{\n#pragma mdh\n{nest} }}").programs:
        sizes = (dict.fromkeys((d.name for d in p.hom.dims), 500),)
        (c,) = configuration_at((p,), GENERIC, sizes, default_point((p,), GENERIC, sizes))
        text = emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text
        before = text[text.index("static int") : text.index("#pragma omp")]
        assert ("!= 2" in before) == asked, before
        if asked:  # and not again for each vector; single points say what they compute as they stand
            assert "vector_size" in text and "!= 2) {" not in text[text.index("#pragma omp") :], text


def test_the_question_stands_before_the_loop_over_vectors() -> None:
    p = of(NESTS["product"])
    point = default_point((p,), GENERIC, (p.sizes({"n": 500, "m": 500, "k": 500, "r": 500}),))
    assert point["vector"] == "j", point
    (c,) = configuration_at((p,), GENERIC, ({"i": 500, "l": 500, "j": 500},), point)
    text = emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text
    lines = [x.strip() for x in text.splitlines()]
    reads = [k for k, x in enumerate(lines) if "float_v" in x and "&B[" in x]
    assert reads
    for k in reads:
        assert lines[k - 1].startswith("for (long j_v") and lines[k - 3].startswith("if ("), lines[k - 4 : k + 1]
        assert "!= 0.0f" in lines[k - 3]
