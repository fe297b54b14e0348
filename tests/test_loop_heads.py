"""What the head of a loop does beside its iterator happens in C's order."""

from __future__ import annotations

import pytest

from tests.lifting import check_refused_loop, lifted, operators
from tests.test_frontend_c import same

LOOPS = [
    "for (int l = 0, j = l + 3; l < n; l++, j++) y[j] = 2 * l;",
    "for (int i = 2, j = 3 * i, k = j + i; i < n; i++) y[k + i] = j;",
    "for (int i = j, m = 0; i < n; i++, m++) y[m] = i;",
    "{ int i; for (i = j, j = 0; i < n; i++, j++) y[j] = i; y[40] = j; }",
    "{ int i; for (j = 0, i = j; i < n; i++, j++) y[j] = i; y[40] = j; }",
    "{ int i, k; for (k = i = 1, j = i + k; i < n; i++) y[i] = j; }",
    "{ int i, x; for (i = 0, x = 7; i < n; i++, x = i) y[i] = x; }",
    "{ int i, x; for (i = 0, x = 7; i < n; x = i, i++) y[i] = x; }",
    "{ int i, x; for (i = 0, x = 7; i < n; i += 2, x = 3 * i, i++) y[i] = x; }",
    "{ int i, x; for (i = n, x = 7; i > 0; x = x + i, i--) y[i] = x; }",
    "{ int i, x; for (i = n, x = 7; i > 0; i--, x = x + i) y[i] = x; }",
    "{ int i, x = 7; for (i = n; i-- > 0; x = i) y[i] = x; }",
    "for (int i = 0; i < n; i++, y[i + 30] = i) y[i] = 2;",
    "for (int i = 0; i < n; y[i + 30] = i, i++) y[i] = 2;",
    "{ int *q; for (q = y, y = q + 20; q < y; q++) *q = 1; }",
    "for (int *q = y, *r = q + 9; q < y + n; q++, r++) *r = *q;",
    "{ int *q, *r; for (q = y, r = q + 9; q < y + n; q++, r++) *r = *q; }",
    "for (int i = 0, b = 5 + i; i < n; i += j + 1, b++) y[b] = i;",
    "for (int i = j, b = i; i < n; b++, i += j + 2) y[b] = i;",
]


@pytest.mark.parametrize("n", [0, 1, 2, 6])
@pytest.mark.parametrize("loop", LOOPS, ids=range(len(LOOPS)))
def test_as_in_c(tmp_path, loop, n):
    same(tmp_path, "int *y, int n, int j", f"#pragma mdh\n{loop}", n=n, j=min(n, 1))


C = "void f(int n, int l, int s, float *a)\n{{\n#pragma mdh\n{}\n}}\n"


def test_the_value_of_the_iterator_and_not_of_one_around_it():
    found = lifted(C.format("for (int l = 0, j = l + 3; l < n; l++, j++) a[j] = 2 * l;"))
    (store,) = found.programs[0].out.stores
    assert operators(found) == "l:cc" and [str(e) for e in store.index] == ["l + 3"]


def test_after_a_step_by_a_variable_the_iterator_is_not_known():
    loop = "for (int i = 0, x = 0; i < n; i += s, x = i) a[i] = x;"
    check_refused_loop(C.format(loop), loop, "MDH210", "a step uses the iterator after")
