"""Arrays whose rows are wavefronts: the same meaning, and no cell copied that the loop does not touch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from certify.certificate import same_computations
from lifter.lift import LiftedNest
from lowering.boxed import boxed
from lowering.skewed import Skewed, skewed
from mdh_core.expr import DOUBLE, Load, stmt_exprs, walk
from mdh_core.interpreter import BufferValue
from mdh_core.ir import HostLoop, MdhProgram, Step, programs_of
from mdh_core.rules import verify
from mdh_lift.kernels import planned
from tests.lifting import check_meaning, lifted
from tests.test_boxed import STRETCHES
from tests.test_steps import Case, check, configurations, values

HEAD = "int n, int m, double A[n][n], double B[n][n], double C[n][n][n]"

# Gauss-Seidel with nine points, in time
SEIDEL = """for (int t = 0; t < m; t++)
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            A[i][j] = (A[i-1][j-1] + A[i-1][j] + A[i-1][j+1] + A[i][j-1] + A[i][j] + A[i][j+1]
                       + A[i+1][j-1] + A[i+1][j] + A[i+1][j+1]) / 8.0;"""
FIVE = """for (int i = 1; i < n; i++)
    for (int j = 1; j < n; j++)
        A[i][j] = fabs(A[i-1][j] - A[i][j-1]);"""
# both arrays are walked along the same diagonals
BOTH = """for (int i = 1; i < n; i++)
    for (int j = 1; j < n; j++) {
        A[i][j] = fabs(A[i-1][j] - B[i][j-1]);
        B[i][j] = fabs(B[i-1][j] - A[i][j-1]);
    }"""
CUBE = """for (int i = 1; i < n; i++)
    for (int j = 1; j < n; j++)
        for (int k = 0; k < m; k++)
            C[i][j][k] = fabs(C[i-1][j][k] - C[i][j-1][k]) + A[i][j];"""
# what data choose is touched in any case
CHOSEN = FIVE.replace("A[i][j-1]", "(A[i][j-1] > 0 ? A[i][j-1] : B[j][i])")
# the last cell is read only where data say so, before it is written
OLD = FIVE.replace("A[i-1][j] -", "A[i-1][j] + (i < n - 1 && B[i][j] > 0 ? A[i+1][j] : 1.0) -")
SKEW = {"stretches": STRETCHES, "seidel": SEIDEL, "five": FIVE, "both": BOTH, "chosen": CHOSEN, "old": OLD}

STAY = {
    "a line of every wavefront lies in a row": CUBE,
    "a cell is read, perhaps, that nothing else touches": FIVE.replace("j = 1", "j = 4").replace(
        "A[i][j-1]", "(B[i][j] > 0 ? A[i][j-4] : 1.0)"
    ),
    "two diagonals": """for (int t = 0; t < m; t++)
        for (int i = 0; i < n; i++)
            A[i][t] = fabs(A[i][t] - A[t][i]);""",
    "a column after the other": """for (int t = 1; t < n; t++)
        for (int i = 0; i < n; i++)
            A[i][t] = fabs(A[i][t-1] - B[i][t]);""",
    "every other plane": CUBE.replace("[k]", "").replace("C[", "C[2*k][").replace("k < m", "k < n / 2"),
    "every other row": """for (int t = 1; t < n; t++)
        for (int i = 0; i < n; i += 2)
            A[i][t] = fabs(A[i][t-1] - B[i][t]);""",
    "nothing travels": "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) A[i][j] = 2 * B[j][i];",
}


def nest_of(body: str) -> LiftedNest:
    found = lifted(f"#include <math.h>\nvoid f({HEAD})\n{{\n#pragma mdh\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


def skews(nest: LiftedNest, in_boxes: bool = True) -> list[Skewed]:
    loops = [s for s in nest.program if isinstance(s, HostLoop)]
    found = (skewed((boxed(s) if in_boxes else None) or s, {"n", "m", "A", "B", "C"}) for s in loops)
    return [x for x in found if x is not None]


def in_lines(nest: LiftedNest) -> LiftedNest | None:
    """The nest with what is skewed; None where nothing is."""
    steps, more = list[Step](), nest.temporaries
    for s in nest.program:
        new = skewed(boxed(s) or s, {"n", "m", "A", "B", "C"}) if isinstance(s, HostLoop) else None
        steps += [s] if new is None else [*new.before, new.loop, *new.behind]
        more += () if new is None else new.arrays
    return replace(nest, program=tuple(steps), temporaries=more) if more != nest.temporaries else None


@pytest.mark.parametrize("name", SKEW)
def test_lines_mean_the_same(name: str) -> None:
    nest = in_lines(nest_of(SKEW[name]))
    assert nest is not None and all(verify(p) == [] for p in programs_of(nest.program))
    assert check_meaning(nest, trials=20) > 5
    same = same_computations(nest.nest, nest.program)
    assert same.status == "checked", str(same)


@pytest.mark.parametrize("name", SKEW)
def test_one_dimension_has_stride_one(name: str) -> None:
    (found,) = skews(nest_of(SKEW[name]))
    new = {b.name for b in found.arrays}
    for p in programs_of((found.loop,)):
        index = [a.index for a in p.inp.accesses if a.buffer in new]
        index += [s.index for s in p.out.stores if s.buffer in new]
        assert index and not any(n.buffer in "AB" for e in _expressions(p) for n in walk(e) if isinstance(n, Load))
        assert any(
            all(not any(a.coefficient(d.name) for a in x[:-1]) and x[-1].coefficient(d.name) == 1 for x in index)
            for d in p.hom.dims_of("cc")
        )


def _expressions(p: MdhProgram) -> list[object]:
    scalar = p.hom.scalar
    return [*scalar.results, *stmt_exprs(scalar.body), *(e for e in p.out.initial if e is not None)]


@pytest.mark.parametrize("name", STAY)
def test_other_arrays_stay(name: str) -> None:
    nest = nest_of(STAY[name])
    assert any(isinstance(s, HostLoop) for s in nest.program) or name == "nothing travels"
    assert skews(nest) == []


# --------------------------------------------------------------------------- the cells


@dataclass(frozen=True)
class Reads:
    """``text`` stands for ``A[i][j-3]`` in a nest with i from 1, j from 4; it reads it where ``where`` holds."""

    text: str
    where: Callable[[int, int, int], bool]


X = "A[i][j-3]"
READS = {
    "always": Reads(X, lambda i, j, n: True),
    "then": Reads(f"(j > 5 ? {X} : 0)", lambda i, j, n: j > 5),
    "then, or equal": Reads(f"(j >= 6 ? {X} : 0)", lambda i, j, n: j > 5),
    "then, from the right": Reads(f"(5 < j ? {X} : 0)", lambda i, j, n: j > 5),
    "otherwise": Reads(f"(j <= 5 ? 0 : {X})", lambda i, j, n: j > 5),
    "otherwise, less": Reads(f"(j < 6 ? 0 : {X})", lambda i, j, n: j > 5),
    "otherwise, more": Reads(f"(6 > j ? 0 : {X})", lambda i, j, n: j > 5),
    "not": Reads(f"(!(j <= 5) ? {X} : 0)", lambda i, j, n: j > 5),
    "both": Reads(f"(j > 5 && i > 2 ? {X} : 0)", lambda i, j, n: j > 5 and i > 2),
    "neither": Reads(f"(j <= 5 || i <= 2 ? 0 : {X})", lambda i, j, n: j > 5 and i > 2),
    "equal": Reads(f"(j == 5 ? {X} : 0)", lambda i, j, n: j == 5),
    "not unequal": Reads(f"(j != 5 ? 0 : {X})", lambda i, j, n: j == 5),
    "diagonal": Reads(f"(i + j > n ? {X} : 0)", lambda i, j, n: i + j > n),
    "nested": Reads(f"(j > 4 ? (i < j ? {X} : 0) : 1)", lambda i, j, n: j > 4 and i < j),
    "in a condition": Reads(f"(j > 5 && {X} > 0 ? 1.0 : 0)", lambda i, j, n: j > 5),
    "in another one": Reads(f"(j <= 5 || {X} > 0 ? 1.0 : 0)", lambda i, j, n: j > 5),
}
# what nothing else touches is read, perhaps, or nobody knows where
UNSURE = {
    "unequal": f"(j != 5 ? {X} : 0)",
    "either": f"(j > 5 || i > 2 ? {X} : 0)",
    "not both": f"(j <= 5 && i <= 2 ? 0 : {X})",
    "wraps around": f"((unsigned char)j > 5 ? {X} : 0)",
    "wraps around, with a sign": f"((signed char)j > 5 ? {X} : 0)",
    "wraps below zero": f"(j - 6u < 100u ? {X} : 0)",
    "data": f"(B[i][j] > 0 ? {X} : 0)",
    "data, too": f"(B[i][j] > 5 && j > 5 ? {X} : 0)",
}


def with_read(text: str) -> LiftedNest:
    return nest_of(
        f"for (int i = 1; i < n; i++) for (int j = 4; j < n; j++) A[i][j] = fabs(A[i-1][j] - {text});"
    )


def cells(steps: Iterable[MdhProgram], array: str, n: int) -> set[tuple[int, ...]]:
    """What copies touch of an array."""
    found = set[tuple[int, ...]]()
    for p in steps:
        index = [x.index for x in (*p.inp.accesses, *p.out.stores) if x.buffer == array]
        for x in product(*(range(k) for k in p.sizes({"n": n}).values())):
            here = {"n": n, **dict(zip((d.name for d in p.hom.dims), x, strict=True))}
            if all(c.holds(here) for c in p.hom.domain):
                found |= {tuple(a.evaluate(here) for a in i) for i in index}
    return found


@pytest.mark.parametrize("name", READS)
def test_only_what_the_loop_touches_is_copied(name: str) -> None:
    (found,) = skews(with_read(READS[name].text))
    for n in range(12):
        points = [(i, j) for i in range(1, n) for j in range(4, n)]
        written, read = set(points), {(i - 1, j) for i, j in points}
        read |= {(i, j - 3) for i, j in points if READS[name].where(i, j, n)}
        assert cells(found.behind, "A", n) == written
        there = cells(found.before, "A", n)
        assert read <= there <= read | written, (n, sorted(read - there), sorted(there - read - written))


@pytest.mark.parametrize("name", UNSURE)
def test_what_may_not_be_there_is_not_copied(name: str) -> None:
    nest = with_read(UNSURE[name])
    assert any(isinstance(s, HostLoop) for s in nest.program) and skews(nest) == []


def test_what_a_loop_may_not_reach_is_not_copied() -> None:
    body = "double s = 0; int k = 0; while (k < B[i][j]) { s += A[i][j-3]; k++; } A[i][j] = fabs(A[i-1][j] - s);"
    nest = nest_of(f"for (int i = 1; i < n; i++) for (int j = 4; j < n; j++) {{ {body} }}")
    (loop,) = nest.program
    assert isinstance(loop, HostLoop) and loop.body[0].hom.scalar.body  # type: ignore[union-attr]
    assert skews(nest) == []


def test_arrays_with_gaps_between_written_cells_stay() -> None:
    """Copying back what lies between would write cells that the loop does not write."""
    (loop,) = nest_of(FIVE).program
    assert isinstance(loop, HostLoop)
    (p,) = loop.body
    assert isinstance(p, MdhProgram)
    (store,) = p.out.stores
    for times, arrays in ((1, ["mdh_skew_A", "mdh_skew_B"]), (2, ["mdh_skew_A"])):
        more = replace(store, buffer="B", index=(store.index[0] * times, store.index[1]))
        b = replace(p.buffer("A"), name="B")
        both = replace(p, buffers=(*p.buffers, b), out=replace(p.out, stores=(store, more)))
        found = skewed(replace(loop, body=(both,)), ())
        assert found is not None and [x.name for x in found.arrays] == arrays


def test_lines_that_are_too_short_are_asked_for() -> None:
    """Two indices may be one cell if a line is shorter than the loops say: the kernel does not run then."""
    nest = in_lines(nest_of(FIVE.replace("j < n", "j < m")))
    assert nest is not None
    assert "-m + n" in {str(a) for p in nest.programs for a in p.assumptions}
    same = same_computations(nest.nest, nest.program)
    assert same.status == "checked", str(same)
    assert not any(p.assumptions for s in skews(nest_of(FIVE)) for p in s.before + s.behind)


def test_copies_of_polyhedra_are_few() -> None:
    """Nine reads of a stencil are one box; a triangle with its diagonal is one triangle."""
    (seidel,), (stretches,) = skews(nest_of(SEIDEL)), skews(nest_of(STRETCHES))
    assert [len(x) for s in (seidel, stretches) for x in (s.before, s.behind)] == [1, 1, 1, 1]
    assert cells(stretches.behind, "A", 5) == {(i, j) for i in range(5) for j in range(i + 1, 5)}


def test_random_wavefronts(trials: int = 40) -> None:
    rng = random.Random(7)
    changed = 0
    for _ in range(trials):
        own = [f"A[i - {rng.randint(0, 2)}][j - {rng.randint(1, 2)}]", f"A[i - {rng.randint(1, 2)}][j]"]
        own.append(f"A[i - {rng.randint(1, 2)}][j + 1]" if rng.random() < 0.5 else "B[j][i]")
        rng.shuffle(own)
        test = rng.choice(("i < j", "i + j > n", "j <= 3", "i > 2 && j > 3", "B[i][j] > 0"))
        value = f"fabs({own[0]} - ({test} ? {own[1]} : {own[2]}))"
        more = rng.choice(("", "", " B[i][j] = A[i][j] + B[i][j-1];"))
        rows = rng.choice(("i = 2; i < n", "i = n - 1; i >= 2"))
        columns = rng.choice(("j = 2; j < n - 1", "j = i + 2; j < n - 1", "j = 2; j < i - 1", "j = 2; j < m"))
        text = f"for (int {rows}; i{'--' if '>' in rows else '++'}) for (int {columns}; j++) {{ A[i][j] = {value};{more} }}"
        nest = in_lines(nest_of(text))
        if nest is not None:
            changed += 1
            check_meaning(nest, trials=6)
            same = same_computations(nest.nest, nest.program)
            assert same.status == "checked", (text, str(same))
    assert changed > trials // 4


@pytest.mark.parametrize("name", SKEW)
def test_emitted_lines(name: str) -> None:
    nest = in_lines(nest_of(SKEW[name]))
    assert nest is not None
    rng = random.Random(name)
    for n in (0, 1, 2, 3, 5, 8, 17):
        params = {"n": n, "m": rng.choice((0, 1, 3))}
        data = {b: values(rng, DOUBLE, n, n) for b in "AB"}
        for b in nest.temporaries:
            extents = tuple(max(0, e.evaluate(params)) for e in b.extents if e is not None)
            data[b.name] = BufferValue([0.0] * (extents[0] * extents[1]), extents)
        used = {b.name for p in nest.programs for b in p.buffers}
        data = {b: x for b, x in data.items() if b in used}
        c = Case(nest.program, params, data, nest.temporaries)
        chosen, machine = configurations(c, rng.choice(("default", "space")), rng)
        check(c, chosen, machine)


# --------------------------------------------------------------------------- plans


def arrays_of(nest: LiftedNest, params: dict[str, int]) -> Sequence[str]:
    return [b.name for b in planned(nest, params).lifted.temporaries]


def test_plans_skew_where_a_cell_is_used_often() -> None:
    nest = nest_of(SEIDEL)
    assert arrays_of(nest, {"n": 500, "m": 20}) == ["mdh_skew_A"]
    assert arrays_of(nest, {"n": 500, "m": 4}) == []
    assert arrays_of(nest_of(FIVE), {"n": 500, "m": 20}) == []


def test_names_that_are_taken() -> None:
    nest = nest_of(SEIDEL)
    (loop,) = nest.program
    assert isinstance(loop, HostLoop)
    found = skewed(loop, {"mdh_skew_A"})
    assert found is not None and [b.name for b in found.arrays] == ["mdh_skew_A_2"]
