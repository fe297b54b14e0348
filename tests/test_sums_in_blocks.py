"""Left-looking host loops, a block of iterations at a time: they mean the same, and stay where they would not."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from lifter.lift import LiftedNest
from lowering.programs import with_params
from lowering.sums_in_blocks import sums_in_blocks
from mdh_core.expr import DOUBLE
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import HostLoop, MdhProgram, programs_of
from mdh_core.rules import verify
from mdh_lift import iterations
from mdh_lift.forms import BLOCK
from mdh_lift.kernels import planned
from tests.lifting import check_meaning, lifted
from tests.test_right_looking import DOOLITTLE
from tests.test_steps import Case, check, configurations, dominant, values

# Cholesky's factor, with products for quotients and roots: exact in integers
COLUMNS = """for (int j = 0; j < n; j++) {
    T w = A[j][j];
    for (int k = 0; k < j; k++)
        w -= A[j][k] * A[j][k];
    A[j][j] = w * 2;
    for (int i = j + 1; i < n; i++) {
        w = A[i][j];
        for (int k = 0; k < j; k++)
            w -= A[i][k] * A[j][k];
        A[i][j] = w * A[j][j];
    }
}"""
ROWS = """for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) {
        for (int k = 0; k < j; k++)
            A[i][j] -= A[i][k] * A[j][k];
        A[i][j] *= A[j][j];
    }
    for (int k = 0; k < i; k++)
        A[i][i] -= A[i][k] * A[i][k];
    A[i][i] = A[i][i] * 2;
}"""
# below the diagonal only, and rows of what is above it: no operand lies across the cells
BELOW = """for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
        for (int k = 0; k < j; k++)
            A[i][j] += A[i][k] * A[k][j];"""
# many right-hand sides: as many cells in every iteration
SIDES = """for (int j = 0; j < n; j++)
    for (int i = 0; i < n; i++) {
        T w = B[i][j];
        for (int k = 0; k < j; k++)
            w -= B[i][k] * A[j][k];
        B[i][j] = w * A[j][j];
    }"""
CUT = {"columns": COLUMNS, "rows": ROWS, "below": BELOW, "sides": SIDES}
COPIES = {"columns": 1, "rows": 1, "below": 0, "sides": 1}

STAY = {
    "cells are read before their iteration": COLUMNS.replace(
        "T w = A", "for (int i = j + 1; i < n; i++) B[i][j] = A[i][i-1]; T w = A"
    ),
    "operands change later": SIDES.replace("T w =", "A[j][0] += 1; T w ="),
    "sums over more than what was": SIDES.replace("k < j", "k <= j").replace("B[i][k]", "A[i][k]"),
    "sums begin with other cells": SIDES.replace("= B[i][j];", "= A[i][j];"),
    "cells become more": SIDES.replace("i < n", "i < j"),
    "cells of one iteration are operands of it": SIDES.replace("B[i][k]", "B[n-1-i][k+1]").replace("i < n", "i < n - 1"),
    "one cell in each iteration": """for (int j = 0; j < n; j++)
        for (int k = 0; k < j; k++)
            A[0][j] -= A[0][k] * B[j][k];""",
    "what the cell held is used after the sum": COLUMNS.replace("w * A[j][j]", "w * A[i][j]"),
}


def nest_of(body: str, element: str = "int") -> LiftedNest:
    text = f"void f(int n, {element} A[n][n], {element} B[n][n])\n{{\n#pragma mdh\n{body}\n}}\n"
    found = lifted(text.replace("T w", f"{element} w"))
    assert found.status == "lifted", found.diagnostics
    return found


def cut(nest: LiftedNest, block: int) -> LiftedNest | None:
    if len(nest.program) != 1 or not isinstance(nest.program[0], HostLoop):
        return None
    found = sums_in_blocks(nest.program[0], block, {"n", "A", "B"})
    if found is None:
        return None
    loop = with_params(found.loop, nest.nest.params)
    return replace(nest, program=(loop,), temporaries=(*nest.temporaries, *found.arrays))


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("block", [2, 3, 7])
def test_blocks_mean_the_same(name: str, block: int) -> None:
    nest = cut(nest_of(CUT[name]), block)
    assert nest is not None
    (outer,) = nest.program
    assert isinstance(outer, HostLoop) and outer.size.step == block
    inner, *copies, product = outer.body
    assert isinstance(inner, HostLoop) and inner.size.constant == block
    assert isinstance(product, MdhProgram) and [op.kind for op in product.hom.combine] == ["cc", "cc", "pw"]
    assert len(copies) == COPIES[name] == len(nest.temporaries)
    assert check_meaning(nest, trials=20) > 5


@pytest.mark.parametrize("name", STAY)
def test_other_loops_stay(name: str) -> None:
    assert cut(nest_of(STAY[name]), 3) is None


def test_sums_are_not_rounded_in_between() -> None:
    """A sum in double precision that is stored in single precision is stored once."""
    text = f"void f(int n, float A[n][n], double B[n][n])\n{{\n#pragma mdh\n{COLUMNS}\n}}\n"
    nest = lifted(text.replace("T w", "double w"))
    assert nest.status == "lifted" and cut(nest, 3) is None


def test_nothing_is_stored_behind_the_last_iteration() -> None:
    """A sum of its own, the diagonal's, has one cell in every iteration of a block: not in those behind the end."""
    nest = cut(nest_of(COLUMNS), 4)
    assert nest is not None
    diagonal = nest.programs[0]
    assert [d.size.constant for d in diagonal.hom.dims_of("cc")] == [1]
    inside = [{"j_block": 1, "j_step": s, "j_once": 0, "k": 0, "n": 6} for s in range(4)]
    assert [all(c.holds(p) for c in diagonal.hom.domain) for p in inside] == [True, True, False, False]


def test_what_the_loops_do_not_read_is_not_copied() -> None:
    """Without right-hand sides, the triangle that they would be solved with need not exist."""
    text = SIDES.replace("i < n", "i < m").replace("T w", "int w")
    nest = cut(lifted(f"void f(int n, int m, int A[n][n], int B[m][n])\n{{\n#pragma mdh\n{text}\n}}\n"), 2)
    assert nest is not None
    (copy,) = nest.temporaries
    data = {"A": BufferValue([], (0, 0)), "B": BufferValue([], (0, 5)), copy.name: BufferValue([7] * 10, (2, 5))}
    run_steps(nest.program, {"n": 5, "m": 0}, data)
    assert data[copy.name].data == [7] * 10


@pytest.mark.parametrize("name", ["columns", "rows", "below"])
def test_rows_of_an_array_that_is_one_long_line(name: str) -> None:
    """What is assumed of sizes, ``n <= m``, does not matter: it holds in every iteration or in none."""
    flat = re.sub(r"A\[(\w+)\]\[(\w+)\]", r"A[\1*m + \2]", CUT[name]).replace("T w", "int w")
    nest = lifted(f"void f(int n, int m, int *A)\n{{\n#pragma mdh\n{flat}\n}}\n")
    assert nest.status == "lifted" and any(p.assumptions for p in nest.programs)
    new = cut(nest, 3)
    assert new is not None and check_meaning(new, trials=40) > 5


@pytest.mark.parametrize("name", ["lu", *CUT])
def test_arrays_of_a_size_that_no_program_mentions(name: str) -> None:
    """`double A[800][800]`, of which n rows and columns are used: programs get the parameter of their loop."""
    body = DOOLITTLE if name == "lu" else CUT[name].replace("T w", "double w")
    nest = lifted(f"void f(int n, double A[800][800], double B[800][800])\n{{\n#pragma mdh\n{body}\n}}\n")
    plan = planned(nest, {"n": 700})
    assert plan.programs != nest.programs and all(verify(p) == [] for p in plan.programs)
    assert "for (long j_block" in plan.candidate(plan.default).kernel_text


def test_random_sums(trials: int = 40) -> None:
    """Whatever is cut may be cut: random operands, cells, epilogues and neighbours."""
    rng = random.Random(11)
    found = 0
    for _ in range(trials):
        first = rng.choice((*["A[i][k]"] * 8, "B[i][k]", "A[k][i]", "B[k][k]", "A[n-1-i][k]"))
        second = rng.choice((*["A[j][k]"] * 4, *["A[k][j]"] * 4, "B[k][j]", "A[j][i]", "B[j][j]"))
        cell = rng.choice((*["A[i][j]"] * 8, "A[j][i]", "B[j][i]"))
        low = rng.choice(("j + 1", "j + 1", "j", "0", "j + 2"))
        sum_ = f"for (int i = {low}; i < n; i++) {{ int w = {cell}; for (int k = 0; k < j; k++) w += {first} * {second};"
        sum_ += f" {cell} = {rng.choice(('w', 'w * A[j][j]', 'w - B[j][i]', 'w * A[i][j]'))}; }}"
        others = [
            f"for (int i = {rng.choice(('j', 'j + 1', '0'))}; i < n; i++)"
            f" {rng.choice(('A', 'B'))}[{rng.choice(('i][j', 'j][i', 'j][j'))}] {rng.choice(('=', '+='))}"
            f" {rng.choice(('A[j][j]', 'A[j][i]', 'B[i][j]', '3'))};"
            for _ in range(rng.choice((0, 0, 1)))
        ]
        body = [sum_, *others]
        rng.shuffle(body)
        text = f"void f(int n, int A[n][n], int B[n][n])\n{{\n#pragma mdh\nfor (int j = 0; j < n; j++) {{ {' '.join(body)} }}\n}}\n"
        nest = lifted(text)
        new = cut(nest, rng.choice((2, 3))) if nest.status == "lifted" else None
        if new is not None:
            found += 1
            check_meaning(new, trials=8)
    assert 5 < found < trials - 10, found


@pytest.mark.parametrize("name", CUT)
def test_emitted(name: str) -> None:
    nest = cut(nest_of(CUT[name].replace("w * A[j][j]", "w / A[j][j]").replace("*= A", "/= A"), "double"), 8)
    assert nest is not None and all(verify(p) == [] for p in programs_of(nest.program))
    rng = random.Random(name)
    for n in (1, 2, 7, 8, 9, 17, 33):
        data = {"A": dominant(rng, n), "B": values(rng, DOUBLE, n, n)}
        data |= {b.name: values(rng, DOUBLE, *(e.evaluate({"n": n}) for e in b.extents if e)) for b in nest.temporaries}
        c = Case(nest.program, {"n": n}, data, nest.temporaries)
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        check(c, chosen, machine)


def test_plans_are_cut_where_there_is_much_to_do() -> None:
    nest = nest_of(COLUMNS, "double")
    large, small = planned(nest, {"n": 1000}), planned(nest, {"n": 40})
    assert small.programs == nest.programs and small.lifted.temporaries == nest.temporaries
    steps = [x.size.step for x, _ in iterations.host_loops(large.lifted.program, large.params)]
    assert steps == [BLOCK, 1]
    (copy,) = large.lifted.temporaries
    assert [e.evaluate({"n": 1000}) for e in copy.extents if e is not None] == [BLOCK, 1000]
    product = large.programs[-1]
    assert product.hom.dims_of("pw") and large.default[f"vector_at{len(large.programs) - 1}"] == "j_later"


def test_parts_of_a_triangle_stay_with_their_threads() -> None:
    """In a host loop they are dealt out in turn, in a region of each program and in one of all; else, as threads get free."""
    plan = planned(nest_of(COLUMNS, "double"), {"n": 1000})
    own = plan.candidate({**plan.default, "region_0": 0}).kernel_text
    assert "schedule(static, 1) if (" in own and "dynamic" not in own
    team = plan.candidate({**plan.default, "region_0": 1}).kernel_text
    assert re.search(r"omp for (collapse\(2\) )?schedule\(static, [^?]*j_later_size[^?]* \? 1 : \d+\)", team)
    once = nest_of("for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) for (int k = 0; k < n; k++) B[i][j] += A[i][k] * A[j][k];", "double")
    plan = planned(once, {"n": 1000})
    assert "schedule(dynamic)" in plan.candidate(plan.default).kernel_text
