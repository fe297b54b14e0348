"""Arrays that every iteration of a loop fills anew: random nests around such a buffer mean the same when lifted.

Most fill all of the buffer before they read it, some only a part, in another order, or under a condition.
"""

from __future__ import annotations

import random

from lifter.lift import LiftedNest
from mdh_core.ir import HostLoop
from tests.lifting import check_meaning, lifted

HEAD = """int n, int m, int x[restrict n][m], int y[restrict n][m], int z[restrict n][m], int t[restrict m + 2],
    int *restrict u"""
HEADS = (
    *("for (int i = 0; i < n; i++)",) * 3,
    "for (int i = n - 1; i >= 0; i--)",
    "for (int i = 1; i < n; i += 2)",
)


def random_body(rng: random.Random) -> str:
    """Two to four inner loops over the buffers ``t`` and ``u``; the first mostly fills one of them."""

    def buffer() -> str:
        return rng.choice("tttu")

    def index() -> str:
        return rng.choice(["j", "j", "j", "j", "m - 1 - j", "j + 1", "0"])

    def cell() -> str:
        return rng.choice(["x[i][j]", "y[i][j]", "x[i][j]", "y[i][0]"])

    def loop(body: str) -> str:
        low, high = rng.choice("00001"), rng.choice(["m", "m", "m", "m", "m - 1", "i"])
        if rng.random() < 0.15:
            return f"for (int j = {high} - 1; j >= {low}; j--) {{ {body} }}"
        return f"for (int j = {low}; j < {high}; j++) {{ {body} }}"

    def statement() -> str:
        match rng.choice(["fill", "fill", "sum", "sometimes", "add", *["use"] * 4]):
            case "fill":
                return loop(f"{buffer()}[{index()}] = {cell()} * {rng.choice(['2', 'i', cell()])};")
            case "sum":
                inner = "for (int k = 0; k < m; k++) t[j] += x[i][k] * y[i][j];"
                return loop(f"t[j] = 0; {inner}")
            case "sometimes":
                return loop(f"if ({cell()} > 0) {buffer()}[{index()}] = {cell()};")
            case "add":
                return loop(f"{buffer()}[{index()}] += {cell()};")
            case _:
                other = rng.choice([cell(), "1", f"{buffer()}[{index()}]"])
                return loop(f"{rng.choice(['z', 'z', 'x'])}[i][j] = {buffer()}[{index()}] + {other};")

    body = [statement() for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.8:
        up, down = "for (int j = 0; j < m; j++)", "for (int j = m - 1; j >= 0; j--)"
        body.insert(0, f"{rng.choice([up, up, down])} t[j] = {cell()} - {cell()};")
    return " ".join(body)


def is_copied(found: LiftedNest) -> bool:
    """Has a buffer become one per iteration?"""
    return any(b.rank == 2 and b.name.startswith(("t_", "u_")) for b in found.temporaries)


def test_random_buffers() -> None:
    copied = 0
    for seed in range(60):
        rng = random.Random(seed)
        body = f"{rng.choice(HEADS)} {{ {random_body(rng)} }}"
        found = lifted(f"void f({HEAD})\n{{\n#pragma mdh\n{body}\n}}\n")
        if found.status != "refused" and is_copied(found):
            copied += 1
            assert not any(isinstance(s, HostLoop) for s in found.program)
            check_meaning(found, 4, seed)
    assert copied > 4


def test_memory_stays_of_the_order_of_the_arrays() -> None:
    """A buffer of n elements for each of n rows would be more than all that the nest uses."""
    found = lifted(
        "void f(int n, const float *restrict x, float *restrict y, float *restrict t)\n{\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) { for (int j = 0; j < n; j++) t[j] = x[j] * x[i];"
        " for (int j = 0; j < n; j++) y[i] += t[j] * t[n - 1 - j]; }\n}\n"
    )
    assert isinstance(found.program[0], HostLoop) and found.temporaries == ()


def test_a_few_elements_for_every_iteration() -> None:
    found = lifted(
        "void f(int n, int m, const int x[restrict n][m], int y[restrict n][m])\n{\nint t[3];\n#pragma mdh\n"
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) {"
        " for (int k = 0; k < 3; k++) t[k] = x[i][j] * k;"
        " for (int k = 0; k < 3; k++) y[i][j] += t[k] * t[2 - k]; }\n}\n"
    )
    (copy,) = found.temporaries
    assert [str(e) for e in copy.extents] == ["n", "m", "3"]
    assert check_meaning(found, 6) > 0
