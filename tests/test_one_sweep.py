"""Sums over rows in one sweep with what else touches the rows: where there is one, its meaning, when it is taken."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from certify.certificate import certificate, same_computations
from certify.obligations import PROVED, REFUTED
from lifter.lift import LiftedNest
from lowering.host_tiles import skew_of
from lowering.machine import GENERIC
from lowering.one_sweep import Sweep, one_sweep, sweeps_of
from mdh_core.expr import DOUBLE, Affine
from mdh_core.interpreter import BufferValue
from mdh_core.ir import HostLoop, MdhProgram, programs_of
from mdh_core.polytope import project
from mdh_core.rules import verify
from mdh_lift import iterations
from mdh_lift.forms import formed_for
from mdh_lift.kernels import planned
from tests.lifting import check_meaning, lifted
from tests.test_steps import Case, check, configurations, values

HEAD = """int n, int m, double A[restrict n][m], double B[restrict n][m], double p[restrict m], double r[restrict n],
    double q[restrict n], double s[restrict m], double u[restrict m], double *restrict e"""
TRANSPOSED = "for (int j = 0; j < m; j++) { s[j] = 0; for (int i = 0; i < n; i++) s[j] += A[i][j]*r[i]; }"
PRODUCT = "for (int i = 0; i < n; i++) { q[i] = 0; for (int j = 0; j < m; j++) q[i] += A[i][j]*p[j]; }"
ROWS = "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) A[i][j] += r[i]*p[j];"

# nest, and the kinds of the dimension that counts the rows
SWEPT = {
    "both products": (TRANSPOSED + PRODUCT, ["pw", "cc"]),
    "the product of a product": (PRODUCT + TRANSPOSED.replace("r[i]", "q[i]"), ["cc", "pw"]),
    "what is updated is summed": (ROWS + TRANSPOSED, ["cc", "pw"]),
    "old values, and something behind": (
        PRODUCT + TRANSPOSED.replace("s[j] = 0; ", "").replace("r[i]; }", "r[i]; s[j] = 2*s[j] + u[j]; }"),
        ["cc", "pw"],
    ),
    "three": (
        ROWS + PRODUCT + TRANSPOSED.replace("+= A[i][j]*r[i]", "= fmax(s[j], A[i][j])"), ["cc", "cc", "pw"],
    ),
    "above a diagonal": (
        PRODUCT.replace("j < m", "j < m - i") + "for (int j = 0; j < m; j++) s[j] = 0;"
        + "for (int i = 0; i < n; i++) for (int j = 0; j < m - i; j++) s[j] += A[i][j]*r[i];",
        ["cc", "pw"],
    ),
    "columns keep what they hold where there are no rows": (
        PRODUCT + TRANSPOSED.replace("s[j] = 0; ", ""), ["cc", "pw"],
    ),
    "planes": (
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) B[i][j] = r[i] + 2*A[i][j];"
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int k = 0; k < m; k++) s[j] += A[i][j]*B[i][k];",
        ["cc", "pw"],
    ),
    "a sum of all": (
        "for (int i = 0; i < n; i++) r[i] -= 0.5*q[i]; for (int i = 0; i < n; i++) e[0] += r[i]*r[i];",
        ["cc", "pw"],
    ),
}  # fmt: skip
APART = {
    "columns without rows keep what they hold": PRODUCT
    + "for (int i = 0; i < n; i++) for (int j = 0; j < m - i; j++) s[j] += A[i][j]*r[i];",
    "what is summed is needed at once": TRANSPOSED
    + "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) A[i][j] -= s[j];",
    "the sums begin with what rows change": PRODUCT.replace("q[i]", "B[i][0]")
    + TRANSPOSED.replace("s[j] = 0", "s[j] = B[0][0]"),
    "rows that are not the same": ROWS + TRANSPOSED.replace("A[i]", "A[n - 1 - i]"),
    "a row behind": "for (int i = 1; i < n; i++) q[i] = A[i][0]; for (int i = 1; i < n; i++) e[0] += A[i][1]*q[i - 1];",
    "a place in each row": """for (int i = 0; i < n; i++) {
            double most = A[i][0];
            int at = 0;
            for (int j = 1; j < m; j++) if (A[i][j] > most) { most = A[i][j]; at = j; }
            q[i] = at;
        }""" + TRANSPOSED,
    "columns": PRODUCT.replace("A[i][j]*p[j]", "A[i][j]") + "for (int i = 0; i < n; i++) s[i] += q[i];",
}


def nest_of(body: str, more: str = "") -> LiftedNest:
    found = lifted(f"#include <math.h>\nvoid f({HEAD})\n{{\n#pragma mdh {more}\n{{ {body} }}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def kinds(sweep: Sweep) -> list[str]:
    return [p.op(d).kind for p, d in zip(sweep.programs, sweep.dims, strict=True)]


def swept(nest: LiftedNest, ways: int, rows: int) -> LiftedNest:
    """All of the nest's programs in one sweep."""
    (sweep,) = sweeps_of(nest.program)
    assert len(sweep.programs) == len(nest.program)
    found = one_sweep(sweep, ways, rows, {b.name for b in nest.temporaries} | {"n", "m"})
    return replace(nest, program=found.steps, temporaries=(*nest.temporaries, *found.arrays))


@pytest.mark.parametrize("name", SWEPT)
def test_sweeps(name: str) -> None:
    body, wanted = SWEPT[name]
    assert [kinds(s) for s in sweeps_of(nest_of(body).program)] == [wanted]


@pytest.mark.parametrize("name", APART)
def test_what_is_no_sweep(name: str) -> None:
    nest = nest_of(APART[name])
    assert len(nest.programs) > 1 and list(sweeps_of(nest.program)) == []


def test_sums_of_neighbouring_columns_are_joined_to_the_first_rows_only() -> None:
    """A run ends where the next program needs what its reductions deliver; another one may begin there."""
    nest = nest_of(PRODUCT + TRANSPOSED + ROWS.replace("p[j]", "s[j]") + TRANSPOSED.replace("s[j]", "u[j]"))
    assert [(s.first, kinds(s)) for s in sweeps_of(nest.program)] == [(0, ["cc", "pw"]), (2, ["cc", "pw"])]


def test_rounding_as_written_is_kept() -> None:
    nest = nest_of(PRODUCT + TRANSPOSED, "fp(exact)")
    assert list(sweeps_of(nest.program)) == []


@pytest.mark.parametrize("name", SWEPT)
def test_the_same_is_meant(name: str) -> None:
    for ways, rows in ((2, 1), (3, 2), (8, 8)):
        nest = swept(nest_of(SWEPT[name][0]), ways, rows)
        assert all(verify(p) == [] for p in programs_of(nest.program))
        assert check_meaning(nest, trials=12) > 5


@pytest.mark.parametrize("name", SWEPT)
def test_emitted_code_computes_the_same(name: str) -> None:
    """Also with constants for sizes, random configurations, parts of one way and of all."""
    rng = random.Random(name)
    for n, m, ways, rows in ((1, 1, 2, 2), (13, 7, 2, 3), (24, 5, 3, 4), (9, 17, 8, 8), (0, 3, 2, 2), (40, 33, 2, 8)):
        nest = swept(nest_of(SWEPT[name][0]), ways, rows)
        params = {"n": n, "m": m}
        extents = {"A": (n, m), "B": (n, m), "p": (m,), "r": (n,), "q": (n,), "s": (m,), "u": (m,), "e": (1,)}
        data = {b: values(rng, DOUBLE, *shape) for b, shape in extents.items()}
        for b in nest.temporaries:
            shape = tuple(x.evaluate(params) for x in b.extents if x is not None)
            size = 1
            for x in shape:
                size *= x
            data[b.name] = BufferValue([0.0] * max(1, size), shape)
        used = {b.name for p in nest.programs for b in p.buffers}
        c = Case(nest.program, params, {b: v for b, v in data.items() if b in used}, nest.temporaries)
        chosen, machine = configurations(c, rng.choice(("default", "space", "random")), rng)
        plan = planned(nest, params)
        width = rng.choice((1, ways))
        own = plan.host_tiles({"width_0": width, "steps_0": 0})
        assert [t and t.width for t in own] == [width]
        check(c, chosen, machine, own, rng.choice((None, params)))


@pytest.mark.parametrize("name", SWEPT)
def test_certificate(name: str) -> None:
    nest = swept(nest_of(SWEPT[name][0]), 2, 3)
    found = certificate(nest.nest, nest.program)
    assert not [str(o) for o in found.obligations if o.status not in (PROVED, "checked")]


@pytest.mark.parametrize("name", SWEPT)
def test_ways_need_nothing_of_one_another(name: str) -> None:
    nest = swept(nest_of(SWEPT[name][0]), 4, 2)
    (loop,) = (s for s in nest.program if isinstance(s, HostLoop))
    skew = skew_of(loop)
    assert skew is not None and skew.independent
    assert all(
        p.hom.dims[k or 0].name == "i_way" for p, k in zip(loop.body, skew.dims, strict=True) if isinstance(p, MdhProgram)
    )


def test_a_row_that_comes_twice_is_seen() -> None:
    """The comparison of computations must tell blocks that overlap."""
    nest = swept(nest_of(SWEPT["both products"][0]), 2, 2)
    steps = [replace(s, size=replace(s.size, step=3)) if isinstance(s, HostLoop) else s for s in nest.program]
    assert same_computations(nest.nest, nest.program).status == "checked"
    assert same_computations(nest.nest, tuple(steps[:-1])).status == REFUTED
    early = [steps[-1], *steps[:-1]]
    assert same_computations(nest.nest, tuple(early)).status == REFUTED


def test_when_it_is_taken() -> None:
    nest = nest_of(PRODUCT + TRANSPOSED)
    machine = replace(GENERIC, cores=2)

    def loops(n: int, m: int, body: LiftedNest = nest) -> int:
        formed, _ = formed_for(body, {"n": n, "m": m}, machine)
        return sum(1 for _ in iterations.host_loops(formed.program, {"n": n, "m": m}))

    assert loops(2000, 2000) == 1
    assert loops(200, 200) == 0, "the matrix stays in the second caches"
    assert loops(20, 400_000) == 0, "four rows do not stay in the second cache"
    many = "for (int k = 0; k < m; k++)"
    cubic = nest_of(
        f"for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) {{ B[i][j] = 0; {many} B[i][j] += A[i][k]*A[i][j]; }}"
        + TRANSPOSED
    )
    assert loops(2000, 2000, cubic) == 0, "memory does not end a product"


def test_rows_with_an_epilogue_are_computed_in_one_go() -> None:
    """Their cells cannot hold what is unfinished, and a program that needs memory is in no tiles."""
    nest = nest_of(PRODUCT.replace("q[i] += A[i][j]*p[j];", "q[i] += A[i][j]*p[j]; q[i] = 2*q[i] + r[i];") + TRANSPOSED)
    plan = planned(nest, {"n": 3000, "m": 2000})
    text = plan.kernel(plan.default).text
    assert "MDH_MEMORY((8*m" in text and text.count("(double *)MDH_MEMORY") == 1, text
    assert text.index("omp parallel for schedule(static, 1)") < text.index("for (long i_block = 0;")


def test_what_is_left_does_not_depend_on_the_order_of_names() -> None:
    """Names come as sets, which Python orders differently from run to run; kernels must not."""
    rng = random.Random(1)
    names = ["row", "way", "block", "to", "from", "size", "a", "b", "n"]
    for _ in range(200):
        rows = [
            sum((Affine.of(x, rng.choice((-3, -1, 1, 2))) for x in rng.sample(names, 3)), Affine.number(rng.randint(0, 9)))
            for _ in range(7)
        ]
        some = rng.sample(names, 4)
        assert project(rows, set(some)) == project(rows, sorted(some))


def test_reductions_that_are_one_are_in_a_sweep_with_rows() -> None:
    """A fusion that a point may choose is made where what it joins is in a sweep with more."""
    twice = TRANSPOSED.replace("A[i][j]*r[i]", "A[i][j]") + TRANSPOSED.replace("s[j]", "u[j]")
    nest = nest_of(twice)
    assert len(nest.fusions) == 1
    formed, left = formed_for(nest, {"n": 2000, "m": 2000}, GENERIC)
    assert formed.program == nest.program and len(left) == 1
    more = nest_of(twice + PRODUCT)
    formed, left = formed_for(more, {"n": 2000, "m": 2000}, GENERIC)
    assert not left and [type(s).__name__ for s in formed.program] == ["MdhProgram", "HostLoop", "MdhProgram"]
    assert check_meaning(formed, trials=10) > 3
