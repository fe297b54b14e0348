"""Loops that end where two sides of their condition meet: how often they run, and that nothing wraps."""

from __future__ import annotations

import pytest

from certify.certificate import certificate
from tests.lifting import check_meaning, check_refused_loop, lifted, operators
from tests.test_frontend_c import same

# which iterations run, in which order, and what the variables hold then and afterwards
LOOPS = [
    "for (int i = 0, j = n - 1; i < j; i++, j--) y[i] = 10 * j;",
    "for (int i = 0, j = n; i <= j; i++, j--) y[i] = 10 * j;",
    "for (int i = 0, j = n - 1; j > i; ++i, --j) y[i] = 10 * j;",
    "for (int i = 0, j = n; j >= i; i += 2, j -= 2) y[i] = 10 * j;",
    "for (int i = 0, j = n; i < j; i += 2, j -= 4) y[i] = 10 * j + i;",
    "for (int i = 0, j = n - 1; i < j; i += 2, j--) y[j] = 10 * j + i;",
    "{ int i, j; for (j = n, i = 1; j >= i; i += 4, j -= 2) y[j] = 10 * j + i; y[30] = i; y[31] = j; }",
    "for (int i = 3, j = 0; j < n - i; i++, j++) y[i] = 10 * j;",
    "for (int i = 0, j = 20; i < j; i++, j--) y[i] = 10 * j;",
    "for (int i = 0, j = -20; i < j; i++, j--) y[i] = 10 * j;",
    "for (int i = 0; 2 * i < n; i++) y[i] = i;",
    "for (int i = 0; 3 * i <= n; i++) y[i] = i;",
    "for (int i = 1; i * 3 <= 2 * n; i++) y[i] = i;",
    "for (int i = n; 2 * i > n; i--) y[i] = i;",
    "for (int i = 0; i << 1 < n; i++) y[i] = i;",
    "for (int i = 0; n > i + i; i++) y[i] = i;",
    "for (int i = 0; i < n - i; i++) y[i] = i;",
    "for (int i = 0; i < n - 1 - i; i++) y[n - i] = i;",
    "for (long i = 0; -i > -n + i; i++) y[i] = i;",
    "for (int i = 0; i + 2 < n - 3 * i; i += 2) y[i] = i;",
    "{ int lo = 0, hi = n - 1; while (lo < hi) { y[lo] = hi; y[hi] = -lo; lo++; hi--; } }",
    "{ int lo = 1, hi = n; while (lo <= hi) { y[lo++] = hi; y[20 + hi] = hi; hi--; } }",
    "{ int i, j; for (i = 0, j = n - 1; i < j; i++, j--) { y[i] = 10 * j; } y[20] = i; y[21] = j; }",
    "{ int i = 0, j = 6; for (; i < j; i++, --j) y[i] = j; for (; i < n; i++) y[i + 20] = i; }",
    "{ int *l = y, *r = y + n - 1; while (l < r) { int t = *l; *l++ = *r; *r-- = t; } }",
    "{ int *l = y, *r = y + n; for (; l < r; l++, --r) *l = 3 * r[-1]; }",
    "{ int *l, *r; for (l = y + 1, r = y + n; l <= r; l += 2, r--) { *r = 5; l[20] = *r; } }",
    "for (int *l = y, *r = y + 2 * n; r > l; ++l, r -= 2) { r[0] += *l; }",
    "for (int k = 0; k < 4; k++) for (int *l = y + 7 * k, *r = l + n - 1; l < r; l++, r--) *l = *r + k;",
    "for (int k = 0; k < 3; k++) for (int i = 0, j = n - 1; i < j; i++, j--) y[n * k + i] = y[n * k + j] + k;",
    "for (int k = 0; k < n; k++) for (int i = 0, j = k; i < j + 1; i++) y[7 * k + i] = j;",
    "for (size_t i = 0, j = n; i < j; i++, j--) y[i] = 10 * j;",
    "for (unsigned i = 0; 2 * i < (unsigned)n; i++) y[i] = i;",
    "for (size_t i = 0; i < n - 1 - i; i++) y[n - i] = i;",
]


@pytest.mark.parametrize("n", [0, 1, 2, 5, 6, 7])
@pytest.mark.parametrize("loop", LOOPS, ids=range(len(LOOPS)))
def test_the_same_iterations_as_in_c(tmp_path, loop, n):
    signature = "int *y, size_t n" if "size_t i = 0; i < n - 1" in loop else "int *y, int n"
    if n == 0 and "n - 1 - i; i++) y[n" in loop and "size_t" in signature:
        return  # where 0 - 1 wraps, the original runs
    same(tmp_path, signature, f"#pragma mdh\n{loop}", n=n)


SWAP = "{ float t = a[i]; a[i] = a[j]; a[j] = t; }"
C = "#include <stddef.h>\nvoid f(int n, size_t m, float *a, float *b)\n{{\n#pragma mdh\n{}\n}}\n"


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = 0, j = n - 1; i < j; i++, j--) " + SWAP,
        "for (size_t i = 0, j = m - 1; i < j; i++, j--) " + SWAP,
        "for (int i = 0; 2 * i < n - 1; i++) " + SWAP.replace("j", "n - 1 - i"),
        "{ int i = 0, j = n - 1; while (i < j) { float t = a[i]; a[i++] = a[j]; a[j--] = t; } }",
        "for (int k = 0; k < n; k++) for (int i = 0, j = n - 1; i < j; i++, j--)"
        + SWAP.replace("[", "[k * n + "),
    ],
)
def test_reversing_in_place_lifts(loop):
    found = lifted(C.format(loop))
    assert found.status == "lifted" and set(operators(found).split()) <= {"i:cc", "k:cc"}
    assert check_meaning(found, trials=30) > 3
    assert not certificate(found.nest, found.program).refuted


def test_sides_that_might_wrap_are_tested():
    nest = lifted(C.format("for (size_t i = 0, j = m - 1; i < j; i++, j--) " + SWAP)).nest
    assert nest.directive.assume == ("m - 1 >= 0",)
    assert [(p.name, p.value) for p in nest.params] == [("m", "m"), ("mdh_p0", "m / 2ULL")]
    fixed = lifted(C.format("for (int i = 0, j = n - 1; i < j; i++, j--) " + SWAP)).nest
    assert not fixed.directive.assume and fixed.params[1].value == "n / 2"


@pytest.mark.parametrize(
    ("loop", "code", "said"),
    [
        ("for (int i = 0, j = n; i < j; i++, j = a[i]) b[i] = 1;", "MDH202", "`j`, which the loop changes"),
        ("for (int i = 0, j = n; i < j; i++) { b[i] = 1; if (a[i] > 0) j--; }", "MDH202", "`j`"),
        ("for (int i = 0, j = n; i < j; i += 2, j += 2) b[i] = 1;", "MDH202", "`j`"),
        ("for (int i = 0; i * i < n; i++) b[i] = 1;", "MDH210", "condition does not compare"),
        ("for (int i = 1; 2 * i > n; i++) b[i] = 1;", "MDH210", "condition does not compare"),
        ("for (size_t i = 0, j = m; i <= j; i++, j--) b[i] = 1;", "MDH210", "may wrap"),
        ("for (size_t i = 0, j = m; i < j; i++, j -= 2) b[i] = 1;", "MDH210", "may wrap"),
        ("{ float *l = a, *r = a + n; for (; l < r; l++, r = b) *l = 0; }", "MDH202", "`r`, which the loop"),
        ("for (short i = 0, j = n - 1; i < j; i++, j--) b[i] = a[j];", "MDH202", "`j`, which the loop"),
        ("for (unsigned char i = 0; 2 * i < n; i++) b[i] = 1;", "MDH210", "may wrap"),
        ("for (int k = 0; k < n; k++) for (int i = 0; 2 * i < k; i++) b[k] += a[i];", "MDH202", "a share (1 / 2)"),
    ],
)
def test_what_does_not_meet_is_refused(loop, code, said):
    check_refused_loop(C.format(loop), loop, code, said)


def test_pointers_from_outside_that_meet_are_refused_with_what_to_write() -> None:
    """Nothing in the nest says that they point into one array: nothing that is measured could be like it."""
    loop = "while (l < r) { double t = *l; *l++ = *r; *r-- = t; }"
    text = f"void f(int n, double *a) {{ double *l = a, *r = a + n - 1;\n#pragma mdh\n{loop}\n}}\n"
    check_refused_loop(text, loop, "MDH210", "`l` and `r` point into one array")
