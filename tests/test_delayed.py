"""Updates of a host loop that wait until a block of its iterations is over."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lifter.lift import LiftedNest
from lowering.delayed import delayed
from mdh_core.expr import DOUBLE
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Step, programs_of
from mdh_core.rules import verify
from mdh_lift import iterations
from mdh_lift.forms import BLOCK, COPIED_BLOCK, combination
from mdh_lift.kernels import planned
from tests.lifting import check_meaning, lifted
from tests.test_steps import Case, check, configurations, values

LU = """for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++) {
        A[i][k] = A[i][k] / A[k][k];
        for (int j = k + 1; j < n; j++)
            A[i][j] -= A[i][k] * A[k][j];
    }"""
# the last part of every row stays; rows and columns of another array are the operands
PUSHED = """for (int k = 0; k < n; k++) {
    for (int i = k; i < n; i++)
        B[k][i] = A[k][i] * 2;
    for (int i = k + 1; i < n; i++)
        for (int j = k; j < n; j++)
            A[i][j] += B[k][i] * B[k][j];
}"""
# solves a triangle for many right-hand sides: only rows begin later
SOLVED = """for (int k = 0; k < n; k++) {
    for (int j = 0; j < n; j++)
        B[k][j] = B[k][j] / A[k][k];
    for (int i = k + 1; i < n; i++)
        for (int j = 0; j < n; j++)
            B[i][j] -= A[i][k] * B[k][j];
}"""
# before and behind row and column k; both are read as they are in iteration k
CLOSURE = """for (int k = 0; k < n; k++)
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            A[i][j] = A[i][k] + A[k][j] < A[i][j] ? A[i][k] + A[k][j] : A[i][j];"""
# the column that is read changes in its iteration
COLUMN = """for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++)
        for (int j = 0; j < n; j++)
            A[i][j] -= A[i][k] * B[k][j];"""
# rows up to k wait, from those of A[k]
UPWARDS = """for (int k = 0; k < n; k++) {
    for (int j = 0; j < n; j++)
        A[k][j] = A[k][j] / B[k][k];
    for (int i = 0; i < k; i++)
        for (int j = 0; j < n; j++)
            A[i][j] -= B[i][k] * A[k][j];
}"""
# nothing is done for a pivot that is small
GUARDED = """for (int k = 0; k < n; k++) {
    double p = A[k][k];
    if (p > 2 || p < -2)
        for (int i = k + 1; i < n; i++) {
            double l = A[i][k] / p;
            A[i][k] = l;
            for (int j = k + 1; j < n; j++)
                A[i][j] -= l * A[k][j];
        }
}"""
LEAST = """for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++)
        if (B[i][k] > 0)
            for (int j = 0; j < n; j++)
                A[i][j] = A[i][j] < A[k][j] ? A[i][j] : A[k][j];"""
WAIT = {"lu": LU, "pushed": PUSHED, "solved": SOLVED, "guarded": GUARDED, "least": LEAST}
# rows have a condition each; what it reads stays
FLAGGED = """for (int k = 0; k < n; k++)
    for (int i = k + 1; i < n; i++)
        if (B[i][0] > 0)
            for (int j = 0; j < n; j++)
                A[i][j] -= A[i][k] * B[k][j];"""
# what is read where the condition holds only changes in the next iteration
LATER = """for (int k = 0; k < n; k++) {
    for (int i = k + 1; i < n; i++)
        if (B[i][k] != 0)
            for (int j = 0; j < n; j++)
                A[i][j] += B[0][j] * B[i][k];
    for (int j = 1; j < n; j++)
        B[0][j] = B[0][j] + 1;
}"""
# updates that wait
KEEP = {"closure": (CLOSURE, 4), "column": (COLUMN, 2), "upwards": (UPWARDS, 1), "flagged": (FLAGGED, 2)}

STAY = {
    "a copy would read what may not be there": LATER,
    "a copy would read where only a second condition does": """for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            if (B[i][0] > 0)
                for (int j = 0; j < n; j++)
                    A[i][j] -= (B[i][1] > 2 ? A[i][k] : 1) * B[k][j];""",
    "the condition reads what is updated": """for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n; j++)
                if (A[i][j] > 0)
                    A[i][j] -= B[i][k] * B[k][j];""",
    "the corner is read in each iteration": """for (int k = 0; k < n; k++) {
        B[0][k] = A[n-1][n-1];
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++)
                A[i][j] -= A[i][k] * A[k][j];
    }""",
    "operands of every cell change in later iterations": """for (int k = 0; k < n; k++) {
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n; j++)
                A[i][j] -= B[i][j] * B[k][j];
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                B[i][j] = B[i][j] + 1;
    }""",
    "the range of the cells moves away": """for (int k = 0; k < n - 2; k++)
        for (int i = k; i < k + 2; i++)
            for (int j = 0; j < n; j++)
                A[i][j] -= B[i][k] * B[k][j];""",
    "a sum that is rounded once more": """for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n; j++)
                A[i][j] = (float)(A[i][j] - B[i][k] * B[k][j]);""",
    "the product replaces what was there": """for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++)
                A[i][j] = A[i][k] * A[k][j] - A[i][j];""",
    "the cells end earlier and earlier": """for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            for (int j = 0; j < n - k; j++)
                A[i][j] -= B[i][k] * B[k][j];""",
    "an empty sum is stored in a row that waits": """for (int k = 0; k < n; k++) {
        for (int i = k + 1; i < n; i++) {
            double s = 0;
            for (int j = 0; j < k - n; j++)
                s += B[j][i];
            A[n-1][i] = s;
        }
        for (int i = k + 1; i < n; i++)
            for (int j = k + 1; j < n; j++)
                A[i][j] -= B[i][k] * B[k][j];
    }""",
    "a sum that no cell dimension ends": """for (int k = 0; k < n; k++) {
        double s = 0;
        for (int i = k; i < n; i++)
            s += A[i][k] * A[i][k];
        B[k][k] = s;
        for (int i = k; i < n; i++)
            for (int j = k + 1; j < n; j++)
                A[i][j] -= B[k][k] * A[i][k];
    }""",
}  # fmt: skip


def nest_of(body: str, element: str = "double") -> LiftedNest:
    head = f"int n, {element} A[n][n], {element} B[n][n]"
    found = lifted(f"void f({head})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def in_blocks(nest: LiftedNest, block: int) -> LiftedNest | None:
    """The nest with what may wait; None where nothing may."""
    steps: list[Step] = []
    more: list[Buffer] = []
    for s in nest.program:
        new = delayed(s, block, {"n", "A", "B"}, combination) if isinstance(s, HostLoop) else None
        steps.append(s if new is None else new.loop)
        more += () if new is None else new.arrays
    found = replace(nest, program=tuple(steps), temporaries=(*nest.temporaries, *more))
    return None if found.program == nest.program else found


@pytest.mark.parametrize("name", WAIT)
@pytest.mark.parametrize("block", [2, 3, 7])
def test_blocks_mean_the_same(name: str, block: int) -> None:
    nest = in_blocks(nest_of(WAIT[name]), block)
    assert nest is not None
    (outer,) = nest.program
    assert isinstance(outer, HostLoop) and outer.size.step == block
    rest = outer.body[-1]
    assert isinstance(rest, MdhProgram) and [op.kind for op in rest.hom.combine] == ["cc", "cc", "pw"]
    assert check_meaning(nest, trials=20) > 5


@pytest.mark.parametrize("element", ["double", "int"])
@pytest.mark.parametrize("block", [2, 3, 7])
@pytest.mark.parametrize("name", KEEP)
def test_what_changes_is_kept(name: str, block: int, element: str) -> None:
    text, waiting = KEEP[name]
    nest = in_blocks(nest_of(text.replace("/", "+"), element), block)  # sums: no integer is divided by 0
    assert nest is not None and nest.temporaries
    loop = next(s for s in nest.program if isinstance(s, HostLoop) and s.size.step == block)
    inner, *rests = loop.body
    assert isinstance(inner, HostLoop) and len(rests) == waiting
    assert all(isinstance(r, MdhProgram) and r.hom.dims_of("pw") for r in rests)
    assert check_meaning(nest, trials=20) > 5


OPERATORS = {
    "min": "A[i][k] + A[k][j] < A[i][j] ? A[i][k] + A[k][j] : A[i][j]",
    "max, the other way round": "A[i][j] >= A[i][k] + A[k][j] ? A[i][j] : A[i][k] + A[k][j]",
    "or": "A[i][j] | (A[i][k] & A[k][j])",
    "exclusive or": "A[i][j] ^ (A[i][k] & A[k][j])",
    "product": "A[i][j] * (A[i][k] + A[k][j])",
    "sum": "A[i][k] * A[k][j] + A[i][j]",
    "difference": "A[i][j] - A[i][k] * A[k][j]",
}


PAIRS = "for (int k = 0; k < n; k++) for (int i = 0; i < n; i++)"
EACH = PAIRS + " for (int j = 0; j < n; j++) "
SPELLINGS = {
    "a statement": EACH + "if (A[i][k] + A[k][j] < A[i][j]) A[i][j] = A[i][k] + A[k][j];",
    "a variable": EACH + "{ int d = A[i][k] + A[k][j]; if (d < A[i][j]) A[i][j] = d; }",
    "nothing to infinity": EACH
    + "if (A[i][k] < 99 && A[k][j] < 99 && A[i][k] + A[k][j] < A[i][j]) A[i][j] = A[i][k] + A[k][j];",
    "closure": EACH + "A[i][j] = A[i][j] || (A[i][k] && A[k][j]);",
    # the loop over j is no longer split where it reads column k
    "read once": PAIRS
    + "{ int d = A[i][k]; for (int j = 0; j < n; j++) if (d + A[k][j] < A[i][j]) A[i][j] = d + A[k][j]; }",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    """However it is written: what is read under a condition is read without one elsewhere in the loops."""
    nest = in_blocks(nest_of(SPELLINGS[name], "int"), 3)
    assert nest is not None
    (outer,) = nest.program
    assert isinstance(outer, HostLoop) and len(outer.body) == 5  # the steps of a block, four products
    assert check_meaning(nest, trials=20) > 5


@pytest.mark.parametrize(
    ("rows", "upper", "blocks"),
    [("n", "m", False), ("n", "n + 1", False), ("m", "m", True), ("n", "n", True), ("n", "n - 1", True)],
)
def test_copies_have_place_for_every_row(rows: str, upper: str, blocks: bool) -> None:
    """C does not ask how many rows an array has: there may be more than declared, in a copy there are not."""
    loops = f"for (int k = 0; k < n; k++) for (int i = k + 1; i < {upper}; i++) for (int j = 0; j < n; j++)"
    head = f"int n, int m, int A[{rows}][n], int B[n][n]"
    nest = lifted(f"void f({head})\n{{\n#pragma mdh\n{loops} A[i][j] -= A[i][k] * B[k][j];\n}}\n")
    assert nest.status == "lifted"
    found = in_blocks(nest, 3)
    assert (found is not None) == blocks
    if found is not None:
        assert check_meaning(found, trials=20) > 5


@pytest.mark.parametrize(("element", "clause", "blocks"), [("double", "fp(exact)", False), ("double", "", True), ("int", "fp(exact)", True)])
def test_exact_minima_of_floats_stay(element: str, clause: str, blocks: bool) -> None:
    """Where a NaN is among them, the result depends on how they are grouped."""
    text = f"void f(int n, {element} A[n][n])\n{{\n#pragma mdh {clause}\n{CLOSURE}\n}}\n"
    nest = lifted(text)
    assert nest.status == "lifted" and (in_blocks(nest, 3) is not None) == blocks


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    nest = in_blocks(nest_of(f"{EACH} A[i][j] = {OPERATORS[name]};", "int"), 3)
    assert nest is not None and len(nest.temporaries) == 8
    assert check_meaning(nest, trials=20) > 5


@pytest.mark.parametrize("expression", ["A[i][j] / A[i][k]", "A[i][k] - A[i][j]", "A[i][j] << (A[i][k] & 1)"])
def test_no_operators(expression: str) -> None:
    text = "for (int k = 0; k < n; k++) for (int i = 0; i < k; i++) for (int j = 0; j < n; j++)"
    assert in_blocks(nest_of(f"{text} A[i][j] = {expression};", "int"), 3) is None


@pytest.mark.parametrize("name", STAY)
def test_what_is_used_does_not_wait(name: str) -> None:
    assert in_blocks(nest_of(STAY[name]), 3) is None


def test_updates_are_not_rounded_less() -> None:
    """A cell in single precision that is updated in double precision is rounded in every iteration."""
    text = "void f(int n, float A[n][n], double B[n][n])\n{\n#pragma mdh\n" + PUSHED + "\n}\n"
    nest = lifted(text)
    assert nest.status == "lifted" and in_blocks(nest, 3) is None


def test_random_updates(trials: int = 36) -> None:
    """Whatever is said to wait may wait: updates with random ranges, operands and neighbours."""
    rng = random.Random(5)
    waiting = copied = 0
    for _ in range(trials):
        row, column = (rng.choice(("k + 1; X < n", "k; X < n", "0; X < n", "k + 2; X < n", "0; X < k")) for _ in "ij")
        left, right = (
            rng.choice((f"A[{i}][{j}]", f"B[{i}][{j}]"))
            for i, j in (
                rng.choice((("i", "k"), ("k", "i"))),
                rng.choice((("k", "j"), ("k - 1", "j"), ("j", "k"))),
            )
        )
        start = 1 if "k - 1" in right else 0
        update = f"for (int i = {row}; i++) for (int j = {column}; j++)".replace("X", "i", 1).replace("X", "j")
        update += f" A[i][j] {rng.choice(('-=', '+='))} {left} * {right};"
        others = [
            f"for (int i = {rng.choice(('k', 'k + 1', '0'))}; i < n; i++)"
            f" {rng.choice(('A', 'B'))}[{rng.choice(('i][k', 'k][i'))}]"
            f" {rng.choice(('=', '+='))} {rng.choice(('A[k][k]', 'A[k][i]', 'B[i][k]', '3'))};"
            for _ in range(rng.randint(0, 2))
        ]
        body = [update, *others]
        rng.shuffle(body)
        text = f"for (int k = {start}; k < n; k++) {{ {' '.join(body)} }}"
        found = lifted(f"void f(int n, int A[n][n], int B[n][n])\n{{\n#pragma mdh\n{text}\n}}\n")
        if found.status != "lifted":
            continue
        nest = in_blocks(found, rng.choice((2, 3)))
        if nest is not None:
            waiting += 1
            copied += len(nest.temporaries) > len(found.temporaries)
            check_meaning(nest, trials=6)
    assert 2 < copied < waiting < trials - 2


@pytest.mark.parametrize("name", [*WAIT, *KEEP])
def test_emitted_blocks(name: str) -> None:
    nest = in_blocks(nest_of(WAIT[name] if name in WAIT else KEEP[name][0]), 8)
    assert nest is not None and all(verify(p) == [] for p in programs_of(nest.program))
    rng = random.Random(name)
    for n in (1, 2, 7, 8, 9, 17, 33):
        data = {b: values(rng, DOUBLE, n, n) for b in "AB"}
        for k in range(n):
            data["A"].data[k * n + k] = 64.0 * n
        for b in nest.temporaries:
            data[b.name] = values(rng, DOUBLE, *(e.evaluate({"n": n}) for e in b.extents if e))
        c = Case(nest.program, {"n": n}, data, nest.temporaries)
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        check(c, chosen, machine)


def test_plans_take_shorter_blocks_with_copies() -> None:
    nest = nest_of(CLOSURE)
    large, small = planned(nest, {"n": 1000}), planned(nest, {"n": 120})
    assert small.programs == nest.programs  # of which LU would have blocks
    steps = [x.size.step for x, _ in iterations.host_loops(large.lifted.program, large.params)]
    assert steps == [COPIED_BLOCK, 1] and len(large.lifted.temporaries) == 8


def test_plans_delay_where_there_is_much_to_do() -> None:
    nest = nest_of(LU)
    large, small = planned(nest, {"n": 1000}), planned(nest, {"n": 40})
    assert small.programs == nest.programs
    steps = [x.size.step for x, _ in iterations.host_loops(large.lifted.program, large.params)]
    assert steps == [BLOCK, 1]
    assert any(p.hom.dims_of("pw") for p in large.programs)
