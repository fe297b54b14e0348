"""How large arrays must be for what only the text of a nest reads: beside inner loops that are empty."""

from __future__ import annotations

import pytest

from mdh_lift.subject import element_counts
from tests.lifting import lifted

HEAD = "int n, int m, int s, const int *x, const int *y, int *restrict r"
MANY = {  # loops, then the elements of x and of y that the source reads for n = 11, m = 0, s = 3
    "beside": ("for (int i = 0; i < n; i++) { int w = x[i]; for (int j = 0; j < m; j++) r[j] += w + y[j]; }", 11, 1),
    "twice": (
        "for (int i = 0; i < n; i++) { int at = 2*i + s; int w = x[at];"
        " for (int j = 0; j < m; j++) r[j] += w + y[j]; }",
        24,
        1,
    ),
    "flat": ("for (int i = 0; i < n; i++) { int w = x[i*s + 2]; for (int j = 0; j < m; j++) r[j] += w * y[j]; }", 33, 1),
    "down": ("for (int i = n - 1; i >= 2; i -= 4) { int w = x[i]; for (int j = 0; j < m; j++) r[j] += w; }", 11, 1),
    "steps": ("for (int i = 0; i < n; i += 4) { int w = x[i]; for (int j = 0; j < m; j++) r[j] += w; }", 9, 1),
    "tiles": (
        "for (int ii = 0; ii < n; ii += 4) { int end = ii + 4 < n ? ii + 4 : n;"
        " for (int i = ii > s ? ii : s; i < end; i++) { int w = x[i]; for (int j = 0; j < m; j++) r[j] += w; } }",
        11,
        1,
    ),
    "two ends, down": (
        "for (int k = 0; k < s; k++) for (int i = n - k; i > (k > 4 ? k : 4); i--)"
        " { int w = x[i - 2]; int v = y[i - 5]; for (int j = 0; j < m; j++) r[j] += w * v; }",
        10,
        7,
    ),
    "outer": (
        "for (int k = 0; k < s; k++) for (int i = k; i < n; i++)"
        " { int w = x[i - k]; int v = y[k]; for (int j = 0; j < m; j++) r[j] += w * v; }",
        11,
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_what_an_empty_loop_leaves_to_the_source(name: str) -> None:
    loops, x, y = MANY[name]
    found = lifted(f"void f({HEAD})\n{{\n#pragma mdh\n{loops}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    counts = element_counts(found, {"n": 11, "m": 0, "s": 3})
    assert counts is not None
    assert (counts["x"], counts.get("y", 1)) == (x, y)


def test_comparisons_bound_what_is_read() -> None:
    loops = (
        "for (int i = 0; i < n; i++) { int w = i < s ? x[i] : 0; int v = i + 2 < n ? y[i] : 1;"
        " for (int j = 0; j < m; j++) r[j] += w * v; }"
    )
    found = lifted(f"void f({HEAD})\n{{\n#pragma mdh\n{loops}\n}}\n")
    assert found.status == "lifted", found.diagnostics
    counts = element_counts(found, {"n": 11, "m": 0, "s": 3})
    assert counts is not None
    assert (counts["x"], counts["y"]) == (3, 9)
