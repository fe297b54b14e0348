"""Vectors of points whose loops all lanes go through together: bounds and branches that are the same in all of
them, memory read inside (``mdh_core.lanes``, ``emit.masked_text``), against the interpreter.
"""

from __future__ import annotations

import random

import pytest

from lowering.facts import facts, vector_candidates
from lowering.point import configuration_at
from mdh_core.expr import FLOAT
from mdh_core.interpreter import BufferValue
from mdh_core.lanes import goes_in_lanes, lane_function, shared_in_lanes
from mdh_lift import kernels
from tests.lifting import lifted
from tests.test_steps import Case, check, configurations, kernel_of

HEAD = (
    "int n, int m, const int *restrict p, const int *restrict col, const float *restrict v, "
    "float x[restrict n][m], float y[restrict n][m]"
)
BODIES = {
    "product": "for (int k = p[i]; k < p[i + 1]; k++) for (int j = 0; j < m; j++) y[i][j] += v[k]*x[col[k]][j];",
    "named": "for (int k = p[i]; k < p[i + 1]; k++) { float a = v[k]; int c = col[k]; "
    "for (int j = 0; j < m; j++) y[i][j] = x[c][j] + a*y[i][j]; }",
    "chosen": "for (int j = 0; j < m; j++) { y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) "
    "{ if (v[k] > 0) y[i][j] += x[col[k]][j]; else y[i][j] -= v[k]; } }",
    "looked up": "for (int j = 0; j < m; j++) y[i][j] = 2*x[col[i]][j] - j;",
    "scaled": "for (int j = 0; j < m; j++) { y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) "
    "y[i][j] += v[k]*(2*j - (float)k); }",
}


def text_of(body: str) -> str:
    return f"void f({HEAD})\n{{\n#pragma mdh\nfor (int i = 0; i < n; i++) {{ {body} }}\n}}\n"


def case(body: str, n: int, m: int, rng: random.Random) -> Case:
    """A sparse matrix of ``n`` rows with up to five elements, some without any."""
    nest = lifted(text_of(body))
    assert nest.status == "lifted", nest.diagnostics
    begins = [0]
    for _ in range(n):
        begins.append(begins[-1] + rng.choice((0, 0, 1, 2, 5)))
    count = max(begins[-1], n, 1)
    at = [rng.randrange(max(1, n)) for _ in range(count)]
    numbers = [float(rng.randint(-3, 3)) for _ in range(count)]
    rows = {b: [float(rng.randint(-4, 4)) for _ in range(n * m)] for b in "xy"}
    data = {
        "p": BufferValue(begins, (n + 1,)),
        "col": BufferValue(at, (count,)),
        "v": BufferValue(numbers, (count,)),
        **{b: BufferValue(cells, (n, m)) for b, cells in rows.items()},
    }
    used = {b.name for b in nest.programs[0].buffers}
    return Case(nest.program, {"n": n, "m": m}, {b: d for b, d in data.items() if b in used}, nest.temporaries)


@pytest.mark.parametrize("name", BODIES)
def test_lanes_compute_what_each_point_does(name: str) -> None:
    rng = random.Random(name)
    for n, m in ((0, 5), (3, 0), (1, 1), (5, 7), (4, 16), (7, 33), (3, 67), (9, 130)):
        c = case(BODIES[name], n, m, rng)
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        check(c, chosen, machine)


@pytest.mark.parametrize("name", BODIES)
def test_the_default_has_lanes_along_rows(name: str) -> None:
    plan = kernels.plan(lifted(text_of(BODIES[name])))
    (program,) = plan.programs
    assert vector_candidates(facts(program, {"i": 512, "j": 512}))[0] == "j"
    text = plan.kernel(plan.default).text
    assert (plan.default["vector"] == "j" and "float_vu *)&x[" in text) or name == "scaled", text
    assert ("while (k < (long)p[i + 1])" in text) == ("for (int k" in BODIES[name]), text


def test_what_was_computed_of_a_variable_that_changes_is_computed_again() -> None:
    """The loops of a masked body name what they do not change; a statement between them changes it."""
    text = """void f(int n, const double *restrict a, double *restrict y) {
#pragma mdh
    for (int i = 0; i < n; i++) {
        double b = a[i], x = 1, s = 0;
        while (s < 3) {
            x = 1;
            while (x < 40) x = x + (b * b + 1);
            b = b + 1;
            while (x < 90) x = x + (b * b + 1);
            s = s + 1;
        }
        y[i] = x;
    }
}"""
    nest = lifted(text)
    values = [float(k % 7 - 3) for k in range(37)]
    data = {"a": BufferValue(values, (37,)), "y": BufferValue([0.0] * 37, (37,))}
    plan = kernels.plan(nest)
    machine = plan.machine
    (chosen,) = configuration_at(plan.programs, machine, ({"i": 37},), {**plan.default, "vector": "i", "lanes": 8})
    assert "same" in kernel_of(Case(nest.program, {"n": 37}, data, ()), [chosen], machine).text
    check(Case(nest.program, {"n": 37}, data, ()), [chosen], machine)


def test_what_is_the_same_in_all_lanes() -> None:
    """Along a row of the dense matrix the loop and what it looks up; along its columns nothing."""
    (p,) = lifted(text_of(BODIES["named"])).programs
    body = lane_function(p).body
    assert shared_in_lanes(body, p, "j") == {"k", "a", "c"} and not shared_in_lanes(body, p, "i")


@pytest.mark.parametrize(
    ("body", "along"),
    [
        ("y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) y[i][j] += x[k][j];", "j"),
        ("y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) y[i][j] += x[j][k];", ""),  # rows apart
        ("y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) y[i][j] += v[col[k] + 2*j];", ""),  # two apart
        ("y[i][j] = 0; for (int k = p[j]; k < p[j + 1]; k++) y[i][j] += v[k];", "i"),  # of each lane its own
        ("y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) if (x[i][j] > k) y[i][j] += v[k];", ""),
        ("y[i][j] = 0; for (int k = p[i]; k < p[i + 1]; k++) y[i][j] += x[i][j] > 0 ? v[k] : 1;", ""),
    ],
)
def test_memory_is_read_where_all_lanes_read_it(body: str, along: str) -> None:
    """A lane that has left the loop, or whose condition does not hold, reads nothing."""
    nest = lifted(text_of(f"for (int j = 0; j < m; j++) {{ {body} }}"))
    (p,) = nest.programs
    f = facts(p, {"i": 512, "j": 512})
    own = lane_function(f.in_lanes).body
    assert "".join(d for d in "ij" if goes_in_lanes(own, f.in_lanes, d)) == along


def test_lanes_are_counted_by_what_differs() -> None:
    """An index of 64 bits that all lanes share does not halve the number of lanes of 32 bits."""
    (p,) = lifted(text_of(BODIES["product"])).programs
    assert facts(p, {"i": 512, "j": 512}).lane_bytes == FLOAT.size
