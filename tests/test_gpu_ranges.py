"""What is copied to a GPU of an array of unknown extent: exactly what the nest touches, by brute force.

The nest is compiled as C++ with an array that notes which elements it is asked for; the lines of the host
function are compiled with it.  From the first to the last noted element, no more and no less, is copied.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from frontend_c.read import CompileCommand, read
from lifter.lift import lift
from mdh_core.diagnostics import Refusal
from mdh_core.source import SourceFile
from mdh_lift import nest_sizes
from mdh_lift.gpu_plans import gpu_plan

PROGRAM = """\
#include <cstdio>
#include <cstddef>
static long mdh_least(long a, long b) {{ return a < b ? a : b; }}
static long mdh_greatest(long a, long b) {{ return a > b ? a : b; }}
struct Noted {{
    long first, last;
    float cell;
    float &operator[](long at) {{
        if (last < first) first = last = at;
        if (at < first) first = at;
        if (at > last) last = at;
        return cell = 0;
    }}
}};
static void nest(int n, int m, int k, unsigned u, Noted &x, Noted &y)
{{
{nest}
}}
static int copied(long n, long m, long k, long u, long &first, long &last)
{{
{head}
    first = x_first, last = x_last;
    return 1;
}}
int main()
{{
    int bad = 0;
    for (int n = -2; n < 8; n++)
    for (int m = -2; m < 7; m++)
    for (int k = -3; k < 6; k++)
    for (unsigned u = 0; u < 7; u += 3) {{
        Noted x = {{0, -1, 0}}, y = x;
        long first, last;
        nest(n, m, k, u, x, y);
        if (!copied(n, m, k, u, first, last)) continue;
        if (first == x.first && last == x.last) continue;
        if (bad++ < 3)
            printf("n=%d m=%d k=%d u=%u: touched %ld to %ld, ", n, m, k, u, x.first, x.last),
            printf("copied %ld to %ld\\n", first, last);
    }}
    printf("%d", bad);
}}
"""
NEST = """\
void f(int n, int m, int k, unsigned u, const float *restrict x, float *restrict y)
{{
#pragma mdh noalias(x, y)
{nest}
}}
"""
LOOPS = "    for (int i = 0; i < n; i++)\n        for (int j = 0; j < m; j++)\n            "
KNOWN = {
    "stencil": LOOPS + "y[i*m + j] = x[(i + 1)*(m + 2) + j] + x[i*(m + 2) + j + 1] + x[(i + 2)*(m + 2) + j + 1];",
    "both_ends": LOOPS + "y[i*m + j] = x[i] + x[j] + x[k - i];",
    "transposed": LOOPS + "y[i*m + j] = x[j*n + i] + x[i*m + j];",
    "first_and_others": "for (int i = 0; i < n; i++) y[i] = (i > 0 ? x[i - 1] : 0.0f) + x[i];",
    "inner_part": "for (int i = 0; i < n; i++) { float s = 0;"
    " if (i > 2 && i < n - 3) s = x[i - 3] + x[i + 1]; y[i] = s; }",
    "both_branches": "for (int i = 0; i < n; i++) y[i] = i < k ? x[i] : x[i + 3];",
    "only_one_point": "for (int i = 0; i < n; i++) y[i] = i == k ? x[2*i] : 1.0f;",
    "all_but_one": "for (int i = 0; i < n; i++) y[i] = i != k ? x[i] : 1.0f;",
    "on_parameters": "for (int i = 0; i < n; i++) y[i] = k > 2 ? x[i] : k < 0 ? x[n - 1 - i] : 0.0f;",
    "either": "for (int i = 0; i < n; i++) y[i] = i < 2 || i >= n - 1 ? x[i + 1] : 0.0f;",
    "neither": "for (int i = 0; i < n; i++) y[i] = !(i < 2 || i >= n - 1) ? x[i + 1] : 0.0f;",
    "two_dimensions": LOOPS + "y[i*m + j] = i > 0 && j < m - 1 ? x[(i - 1)*m + j + 1] : 0.0f;",
    "around": LOOPS + "y[i*m + j] = x[(i == 0 ? n - 1 : i - 1)*m + (j == m - 1 ? 0 : j + 1)];",
    "products": LOOPS + "y[i*m + j] = x[(i*k + 1)*m + j*k];",
    "products_of_sizes": LOOPS + "y[i*m + j] = x[(unsigned long)i*u*m + (unsigned long)j];",
    "backwards": LOOPS + "y[i*m + j] = i < n - 1 ? x[(n - i)*m - j*k] : 0.0f;",
    "reduced": LOOPS + "if (j > 1) y[i] += x[i*m + j];",
    "window": "for (int i = 0; i < n; i++) for (int a = 0; a < 3; a++)"
    " if (i + a >= 1 && i + a <= n) y[i] += x[i + a - 1];",
    "lag": "for (int j = 0; j < m; j++) { float s = 0; for (int i = 0; i < n; i++) if (i + j < n) s += x[i + j];"
    " y[j] = s; }",
    "below_the_diagonal": "for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) if (j <= i) y[i] += x[i*n + j];",
    "weights": "for (int i = 0; i < n; i++) for (int a = 0; a < 5; a++)"
    " if (i + a >= 2 && i + a < n + 2) y[i] += x[a];",
    "sums_of_the_first": LOOPS + "if (i + j < n) y[j] += x[i + j];",  # y has as many as there are sums
    "data_within": "for (int i = 0; i < n; i++) y[i] = x[i] > 1 && x[n - 1 - i] > 2 ? x[i] : 3.0f;",
}
UNKNOWN = {
    "data": "for (int i = 0; i < n; i++) y[i] += y[i] > 2 ? x[i] : 3.0f;",
    "data_beyond": "for (int i = 0; i < n; i++) y[i] = x[i] > 1 ? x[i + 1] : 3.0f;",
    "triangle": LOOPS + "y[i*m + j] = j <= i ? x[i*k + j] : 0.0f;",
    "square": "for (int i = 0; i < n; i++) y[i] = x[i*i];",
    "steps": "for (int i = 1; i < n; i += 2) y[i] = i > k ? x[i] : 0.0f;",
    "wraps": "for (int i = 0; i < n; i++) y[i] = (unsigned)(i - 1) < u ? x[i] : 0.0f;",
    "chars": "for (int i = 0; i < n; i++) y[i] = (signed char)i < k ? x[i] : 0.0f;",
}


def _head(nest: str) -> tuple[str, ...]:
    result = read(SourceFile("f.c", NEST.format(nest=nest).encode()), CompileCommand())
    assert not result.refused, [d.message for r in result.refused for d in r.diagnostics]
    lifted = lift(result.nests[0])
    assert lifted.programs, lifted.diagnostics
    plan = gpu_plan(lifted, "opencl", nest_sizes.parameter_values(lifted, nest_sizes.sizes_of(lifted)))
    return plan.part(plan.default).head


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_touched_is_copied(name: str, tmp_path: Path) -> None:
    head = _head(KNOWN[name])
    assert any("x_first" in row for row in head)
    text = PROGRAM.format(nest=KNOWN[name], head="\n".join(head))
    (tmp_path / "f.cpp").write_text(text)
    line = ["g++", "-O1", "-w", "f.cpp", "-o", "f"]
    subprocess.run(line, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run(["./f"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0"


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_known_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="MDH416"):
        _head(UNKNOWN[name])
