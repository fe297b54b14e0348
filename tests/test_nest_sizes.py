"""Which values variables get to be tuned and verified with: lengths, and places where a nest begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lifter.lift import LiftedNest, lift
from mdh_lift import nest_sizes
from mdh_lift.subject import element_counts, fitting, repaired
from tests.lifting import lifted, nests

ROOT = Path(__file__).resolve().parents[1]


def nest_of(head: str, body: str, clauses: str = "") -> LiftedNest:
    found = lifted(f"typedef struct {{ int n, m; double *data; }} mat;\nvoid f({head})\n{{\n#pragma mdh {clauses}\n{body}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    return found


ROW = ("int n, double *A, int p", "for (int j = 0; j < n; j++) A[p * n + j] *= 2;")
PLACES = {
    "row": (*ROW, {"p"}),
    "row of a matrix": ("int n, int m, double A[m][n], int p", "for (int j = 0; j < n; j++) A[p][j] *= 2;", {"p"}),
    "offset": ("int n, double *x, int p, int q", "for (int j = 0; j < n; j++) x[p * q + j] *= 2;", {"p", "q"}),
    "member": ("mat *a, int p", "for (int j = 0; j < a->m; j++) a->data[p * a->m + j] *= 2;", {"p"}),
    "fixed rows": ("int n, int p, double *x", "for (int j = 0; j < n; j++) x[100 * p + j] *= 2;", {"p"}),
    "fixed matrix": ("int p, double A[100][100]", "for (int j = 0; j < 100; j++) A[p][j] *= 2;", {"p"}),
    "column": (
        "int n, int m, int c, double *A, const double *B", "for (int j = 0; j < n; j++) A[j] = B[j * m + c];", {"c"}
    ),
    "range": ("int lo, int hi, double *x", "for (int i = lo; i < hi; i++) x[i] *= 2;", {"lo"}),
    "none": ("int n, double *x", "for (int i = 0; i < n; i++) x[i] *= 2;", set[str]()),
    "half": ("int n, double *x", "for (int i = 0; i < n / 2; i++) x[i] *= x[i + n / 2];", set[str]()),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_places_are_small_and_lengths_are_not(name: str) -> None:
    head, body, places = PLACES[name]
    nest = nest_of(head, body)
    assert nest_sizes.extents_and_places(nest)[1] == places
    found = fitting(nest, nest_sizes.sizes_of(nest))
    assert found is not None and element_counts(nest, found) is not None
    assert all(found[p] <= 3 for p in places), found
    bytes_taken = sum(8 * n for n in (element_counts(nest, found) or {}).values())
    assert bytes_taken <= 1 << 30, found  # nothing like p * n cells for an n and a p of millions
    loops = {n for n in found if n not in places and n != "m"} | ({"m"} & found.keys() if name == "member" else set())
    assert all(found[n] >= 1 << 20 for n in loops), found


def test_an_array_of_which_a_column_is_touched_is_not_long() -> None:
    nest = nest_of("int n, int p, double A[][100]", "for (int j = 0; j < n; j++) A[j][p] *= 2;")
    found = fitting(nest, nest_sizes.sizes_of(nest))
    assert found is not None and 1 << 19 < found["n"] < 1 << 20  # half a gigabyte, of which little is touched


def test_small_sizes_are_repaired() -> None:
    nest = nest_of(*PLACES["column"][:2])
    for n in (1, 2, 5, 16):
        found = repaired(nest, {"n": n, "m": n, "c": n})
        assert found is not None and found["n"] == n and found["c"] < found["m"]


def test_a_clause_names_what_the_source_names() -> None:
    nest = nest_of(*ROW, "sizes(n=100, p=7)")
    assert nest_sizes.sizes_of(nest) == {"n": 100, "p": 7}
    assert nest_sizes.all_stated(nest)
    # what has a constant in the code for known sizes must have been named, a place as well as a length
    assert not nest_sizes.all_stated(nest_of(*ROW, "sizes(n=100)"))
    assert not nest_sizes.all_stated(nest_of(*ROW, "sizes(p=3)"))
    (unknown,) = nests(f"void f({ROW[0]})\n{{\n#pragma mdh sizes(q=3)\n{ROW[1]}\n}}\n")
    (told,) = lift(unknown).diagnostics
    assert told.code == "MDH409" and told.help == "it has `n`, `p`"


def test_verified_with_these(tmp_path: Path) -> None:
    chosen = ("row", "row of a matrix", "column", "fixed rows")
    texts = [f"void {n.replace(' ', '_')}({PLACES[n][0]})\n{{\n#pragma mdh\n{PLACES[n][1]}\n}}\n" for n in chosen]
    (tmp_path / "k.c").write_text("".join(texts))
    command = [sys.executable, "-m", "mdh_lift", "verify", "k.c", "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [n["verification"]["cases"] > 40 for n in json.loads(done.stdout)["nests"]] == [True] * len(chosen)


def test_steps_are_small_and_there_is_work() -> None:
    body = "for (int b = 0; b < n; b += 2 * h) for (int k = 0; k < h; k++) x[b + k] += x[b + k + h];"
    nest = nest_of("int n, int h, double *x", body)
    sizes = nest_sizes.sizes_of(nest)
    assert sizes["h"] == 32 and sizes["n"] >= 1 << 21
    assert nest_sizes.sizes_of(nest_of("int n, double *x", "for (int i = 0; i < n / 2; i++) x[i] = 0;"))["n"] == 1 << 23


def test_sizes_that_the_generated_code_declines_are_told() -> None:
    nest = nest_of("int n, int s, double *x", "for (int i = 0; i < n; i += s) x[i] = 0;")
    assert [nest_sizes.keeps_assumptions(nest, {"n": 5, "s": s}) for s in (0, 1, 7)] == [False, True, True]
    nest = nest_of("int n, int m, double *x", "for (int i = 0; i < n; i++) x[i + m] *= 2;", "assume(m >= n)")
    assert [nest_sizes.keeps_assumptions(nest, {"n": 5, "m": m}) for m in (4, 5)] == [False, True]
    nest = nest_of("int n, int m, double *x", "for (int i = 0; i < n; i++) x[i] *= 2;", "assume(sizeof(n) > m)")
    assert nest_sizes.keeps_assumptions(nest, {"n": 5, "m": 3})  # cannot be told


@pytest.mark.parametrize(
    ("loop", "largest"),
    [
        ("for (short i = 0; i < n; i++) A[i] *= 2;", 32767),
        ("for (unsigned short i = 0; i < n; i++) A[i] *= 2;", 65535),
        ("for (signed char i = n - 1; i >= 0; i--) A[i] *= 2;", 127),
        ("for (unsigned char i = 1; i < n; i += 2) for (int j = 0; j < m; j++) A[i * m + j] *= 2;", 255),
    ],
)
def test_sizes_are_not_beyond_what_a_counter_of_few_bits_holds(loop: str, largest: int) -> None:
    """The loop of the source would not end there."""
    nest = nest_of("int n, int m, double *restrict A", loop)
    found = nest_sizes.sizes_of(nest)
    assert largest // 4 < found["n"] <= largest + 1  # one more where it counts down from `n - 1`
    assert nest_sizes.keeps_assumptions(nest, found | {"n": largest - 1, "m": 5})
    assert not nest_sizes.keeps_assumptions(nest, found | {"n": largest + 2, "m": 5})
