"""Left-looking host loops that look right: they mean the same, and stay where that would not hold."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lifter.lift import LiftedNest
from lowering.delayed import delayed
from lowering.right_looking import right_looking
from mdh_core.expr import DOUBLE
from mdh_core.ir import HostLoop, MdhProgram, programs_of
from mdh_core.rules import verify
from tests.lifting import check_meaning, lifted
from tests.test_steps import Case, check, configurations, dominant, values

DOOLITTLE = """for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++) {
        double w = A[i][j];
        for (int k = 0; k < j; k++)
            w -= A[i][k] * A[k][j];
        A[i][j] = w / A[j][j];
    }
    for (int j = i; j < n; j++) {
        double w = A[i][j];
        for (int k = 0; k < i; k++)
            w -= A[i][k] * A[k][j];
        A[i][j] = w;
    }
}"""
# the epilogue reads another array
SCALED = DOOLITTLE.replace("w / A[j][j]", "w * B[i][j]").replace("w -=", "w +=")
# below the diagonal only: a triangle of cells in each iteration
ROWS = """for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
        for (int k = 0; k < j; k++)
            A[i][j] += A[i][k] * A[k][j];"""
TURN = {"doolittle": DOOLITTLE, "scaled": SCALED}

STAY = {
    "only a triangle": ROWS,
    "the row before is read": DOOLITTLE.replace("-= A[i][k]", "-= A[i-1][k]").replace("i = 0", "i = 1"),
    "sums begin with other cells": DOOLITTLE.replace("= A[i][j];", "= B[i][j];"),
    "every row adds to one row": DOOLITTLE.replace("A[i][j] = w / A[j][j]", "A[0][j] = w"),
    "sums over everything": DOOLITTLE.replace("k < i", "k < n - i"),
    "what the cell held is used after the sum": DOOLITTLE.replace("w / A[j][j]", "w / A[i][j]"),
    "what is above changes": DOOLITTLE.replace("A[i][j] = w;", "A[j][i] = w;"),
}


def nest_of(body: str, element: str = "double") -> LiftedNest:
    head = f"int n, {element} A[n][n], {element} B[n][n]"
    found = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def turned(nest: LiftedNest, block: int = 0) -> LiftedNest | None:
    """The nest looking right, its updates delayed if there is a block; None where it stays."""
    if len(nest.program) != 1 or not isinstance(nest.program[0], HostLoop):
        return None
    loop = right_looking(nest.program[0], {"n", "A", "B"})
    if loop is not None and block:
        blocks = delayed(loop, block, {"n", "A", "B"})
        assert blocks is not None and not blocks.arrays
        loop = blocks.loop
    return None if loop is None else replace(nest, program=(loop,))


@pytest.mark.parametrize("name", TURN)
@pytest.mark.parametrize("block", [0, 2, 3])
def test_the_same_looking_right(name: str, block: int) -> None:
    nest = turned(nest_of(TURN[name]), block)
    assert nest is not None
    (loop,) = nest.program
    assert isinstance(loop, HostLoop)
    if not block:  # one update of a part of the matrix in each iteration, no host loop inside
        assert all(isinstance(p, MdhProgram) and not p.hom.domain for p in loop.body)
        assert len(nest.programs[-1].hom.dims) == 2
    assert check_meaning(nest, trials=20) > 5


@pytest.mark.parametrize("name", STAY)
def test_other_loops_stay(name: str) -> None:
    nest = lifted(f"void f(int n, double A[n][n], double B[n][n])\n{{\n#pragma mdh\n{STAY[name]}\n}}\n")
    assert nest.status == "lifted" and turned(nest) is None


def test_sums_are_not_rounded_in_between() -> None:
    """A sum in double precision that is stored in single precision is stored once."""
    text = f"void f(int n, float A[n][n], double B[n][n])\n{{\n#pragma mdh\n{DOOLITTLE}\n}}\n"
    nest = lifted(text)
    assert nest.status == "lifted" and turned(nest) is None


def test_random_sums(trials: int = 25) -> None:
    """Whatever is turned may be turned: random operands, cells and second parts."""
    rng = random.Random(3)
    found = 0
    for _ in range(trials):
        first = rng.choice((*["A[i][k]"] * 12, "B[i][k]", "A[k][i]", "A[k][k]", "A[n-1-i][k]"))
        second = rng.choice((*["A[k][j]"] * 12, "B[k][j]", "A[j][k]", "A[j][i]", "B[j][j]"))
        cell = rng.choice((*["A[i][j]"] * 12, "A[j][i]", "B[j][i]"))
        text = f"for (int j = 0; j < i; j++) {{ int w = {cell};"
        text += f" for (int k = 0; k < j; k++) w += {first} * {second};"
        text += f" {cell} = {rng.choice(('w', 'w * A[j][j]', 'w - B[j][i]', f'w * {cell}'))}; }}"
        if rng.random() < 0.9:
            cell = rng.choice((*["A[i][j]"] * 10, "B[i][j]", "A[j][i]"))
            text += f" for (int j = i; j < n; j++) for (int k = 0; k < i; k++) {cell} += {first} * {second};"
        text = f"for (int i = 0; i < n; i++) {{ {text} }}"
        nest = lifted(f"void f(int n, int A[n][n], int B[n][n])\n{{\n#pragma mdh\n{text}\n}}\n")
        if nest.status != "lifted":
            continue
        new = turned(nest)
        if new is not None:
            found += 1
            check_meaning(new, trials=6)
    assert 3 < found < trials - 5, found


@pytest.mark.parametrize("name", TURN)
def test_emitted(name: str) -> None:
    nest = turned(nest_of(TURN[name]), 8)
    assert nest is not None and all(verify(p) == [] for p in programs_of(nest.program))
    rng = random.Random(name)
    for n in (1, 2, 7, 9, 17, 33):
        c = Case(nest.program, {"n": n}, {"A": dominant(rng, n), "B": values(rng, DOUBLE, n, n)})
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        check(c, chosen, machine)
