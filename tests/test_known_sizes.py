"""Sizes that are known have a function of their own, with constants: which sizes, what it says, that it is right.

Its results at these and at other sizes are compared in ``test_emit`` and ``test_steps``.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from certify.certificate import certificate
from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.machine import GENERIC
from lowering.parameters import make
from lowering.point import Point, configuration_at
from lowering.programs import of_known_sizes
from mdh_core.interpreter import BufferValue, run_steps
from mdh_core.ir import HostLoop, MdhProgram
from mdh_lift import kernels
from tests.lifting import lifted
from tests.test_joined import FOR, of
from tests.test_steps import Case, run_kernel

PRODUCT = (
    "void f(int n, int m, int k, float *restrict C, const float *restrict A, const float *restrict B)"
    " {{\n#pragma mdh{clause}\n"
    "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int l = 0; l < k; l++)"
    " C[i*m + j] += A[i*k + l] * B[l*m + j]; }}"
)


def plan_of(clause: str = "") -> kernels.Plan:
    """On one machine, whichever runs the tests: text is looked at."""
    return replace(kernels.plan(lifted(PRODUCT.format(clause=clause))), machine=replace(GENERIC, vector_bytes=64))


def test_only_sizes_that_somebody_named() -> None:
    """And by default where sums have few terms."""
    assert "known" not in plan_of().default and "known" not in plan_of().space.names
    assert "known" not in plan_of(" sizes(n=640, m=480)").default
    for steps, chosen in ((24, 1), (4000, 0)):
        plan = plan_of(f" sizes(n=640, m=480, k={steps})")
        assert ("known", (0, 1)) in plan.space.parameters
        assert plan.default["known"] == chosen


HEAD = "void f(int n, int m, int t, float *restrict y, const float *restrict x, float s) {{\n#pragma mdh sizes({})\n"
DEFAULTS = {
    "a stencil": (
        "for (int k = 0; k < t; k++) for (int i = 1; i < n - 1; i++) for (int j = 1; j < m - 1; j++)"
        " y[i*m + j] = (y[(i - 1)*m + j] + y[i*m + j + 1]) / 2;", 1
    ),
    "a stencil on a line": ("for (int i = 1; i < n - 1; i++) y[i] = x[i - 1] + x[i + 1];", 0),
    "each cell once": ("for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) y[i*m + j] = 2 * x[i*m + j];", 0),
    "recurrences": (
        "for (int i = 0; i < n; i++) for (int j = 1; j < m; j++) y[i*m + j] = s * y[i*m + j - 1] + x[i*m + j];", 1
    ),
    "long sums": (
        "for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) for (int k = 0; k < n; k++)"
        " y[i*m + j] += x[i*n + k] * x[k*m + j];", 0
    ),
    "long sums in a triangle": (
        "for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) for (int k = 0; k < m; k++)"
        " y[i*n + j] += x[i*m + k] * x[j*m + k];", 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_has_constants_by_default(name: str) -> None:
    """docs/performance.md has the measurements."""
    loops, chosen = DEFAULTS[name]
    names = ", ".join(f"{v}=1000" for v in "nmt" if re.search(rf"\b{v}\b", loops))
    plan = kernels.plan(lifted(HEAD.format(names) + loops + " }"))
    assert replace(plan, machine=replace(GENERIC, vector_bytes=64)).default["known"] == chosen


def test_the_text() -> None:
    """The general function is the same but for one line, and what has constants is shorter."""
    plan = plan_of(" sizes(n=640, m=480, k=24)")
    both, one = (plan.kernel({**plan.default, "known": n}, described=False) for n in (1, 0))
    fixed, general = both.text.split("\nstatic int ")[1:]
    line = "  if (n == 640 && m == 480 && k == 24) return f_0_mdh_fixed(A, B, C);\n"
    assert general.count(line) == 1
    assert both.text.replace(line, "").replace("static int " + fixed + "\n", "").replace(
        "/* for n = 640, m = 480, k = 24 */\n", ""
    ) == one.text
    assert both.call == one.call
    assert fixed.startswith("f_0_mdh_fixed(const float *__restrict A, const float *__restrict B, float *__restrict C)")
    assert not any(word in fixed for word in ("n*", "*m", "*k", "n_size ="))
    assert "*480 +" in fixed and len(fixed.splitlines()) < 0.6 * len(general.splitlines())


def test_guards_stand_before_it() -> None:
    """Overlap and what the directive assumes are tested once, in the general function."""
    text = PRODUCT.format(clause=" sizes(n=64, m=48, k=24) assume(n > 8)").replace("restrict", "")
    plan = kernels.plan(lifted(text))
    fixed, general = plan.kernel({**plan.default, "known": 1}).text.split("\nstatic int ")[1:]
    first = general.index("if (n == 64 ")
    assert 0 < general.index("return 0;") < first and "overlap" in general[:first] and "n > 8" in general[:first]
    assert "overlap" not in fixed and "n > 8" not in fixed


def test_what_is_computed_keeps_its_types() -> None:
    """``n - i - 2`` of an unsigned ``n`` wraps; a constant of another type would not."""
    text = (
        "void f(unsigned n, unsigned *restrict y, const unsigned *restrict x) {\n#pragma mdh\n"
        "for (unsigned i = 0; i < n; i++) y[i] = (x[i] + n - 9) / 3; }"
    )
    found = lifted(text)
    plan = replace(kernels.planned(found, {"n": 5}, stated=True), machine=GENERIC)
    assert "f_0_mdh_fixed" in plan.kernel({**plan.default, "known": 1}).text
    for n in (5, 4):
        data = {b: BufferValue([0, 1, 2, 3, 4][:n], (n,)) for b in ("x", "y")}
        case = Case(found.program, {"n": n}, data)
        expected = {b: v.copy() for b, v in data.items()}
        run_steps(case.steps, case.params, expected)
        answer = run_kernel(case, plan.kernel({**plan.default, "known": 1}))
        assert answer["returned"] == 1 and answer["y"] == expected["y"].data
        assert max(expected["y"].data) > 1 << 30  # type: ignore[type-var]


def test_constants_everywhere_that_is_affine() -> None:
    """Sizes, extents, strides, indices, domains and host loops; a domain that is all is gone."""
    text = (
        "void f(int n, int m, double a[n][m + 1], double b[n][m + 1]) {\n#pragma mdh\n"
        "for (int t = 0; t < n; t++) for (int i = 1; i < m; i++) a[t][m - i] += b[t][i + 1] + a[t][m]; }"
    )
    steps = of_known_sizes(lifted(text).program, {"n": 6, "m": 9})

    def names(s: object) -> set[str]:
        if isinstance(s, HostLoop):
            return set(s.size.span.names).union(*map(names, s.body)) - {s.iterator}
        assert isinstance(s, MdhProgram)
        affine = [d.size.span for d in s.hom.dims] + [e for b in s.buffers for e in b.extents if e is not None]
        affine += [x for a in s.inp.accesses for x in a.index] + [x for y in s.out.stores for x in y.index]
        affine += [c.value for c in s.hom.domain] + list(s.assumptions)
        return {n for a in affine for n in a.names} - {d.name for d in s.hom.dims}

    assert names(lifted(text).program[0]) >= {"n", "m"}
    assert not names(steps[0])


def test_it_is_certified() -> None:
    """With obligations of its own, which stages that leave out points do not meet."""
    found = lifted(PRODUCT.format(clause=""))
    plan = kernels.planned(found, {"n": 40, "m": 32, "k": 8}, stated=True)
    kernel = plan.kernel({**plan.default, "known": 1})
    proof = certificate(found.nest, found.program, kernel.lowered, (), kernel.fixed)
    own = [o for o in proof.obligations if "known sizes" in o.subject]
    assert proof.holds and own
    steps, (lowered,) = kernel.fixed
    (stage,) = lowered.stages
    short = replace(stage, loops=tuple(replace(x, size=2 * x.size) if x.layer == 0 else x for x in stage.loops))
    wrong = (steps, (replace(lowered, stages=(short,)),))
    assert certificate(found.nest, found.program, kernel.lowered, (), wrong).refuted


@pytest.mark.parametrize("taken", [frozenset(), frozenset({"kernel_fixed"})])
def test_its_name_is_new(taken: frozenset[str]) -> None:
    found = lifted(PRODUCT.format(clause=""))
    (p,) = found.program
    assert isinstance(p, MdhProgram)
    model = GENERIC.model
    c = make(p, model, tuple((1,) * 3 for _ in range(model.depth)))
    request = KernelRequest("kernel", "n", (p,), (c,), GENERIC, taken=taken, known=(("n", 4), ("unused", 7)))
    text = emit_openmp(request).text
    name = "kernel_fixed_2" if taken else "kernel_fixed"
    assert f"static int {name}(long m, long k, " in text
    assert f"if (n == 4) return {name}(m, k, A, B, C);" in text


def test_sizes_that_nothing_mentions_make_no_second_function() -> None:
    found = lifted("void f(float *restrict y) {\n#pragma mdh\nfor (int i = 0; i < 100; i++) y[i] = 2 * y[i]; }")
    plan = kernels.planned(found, {}, stated=True)
    assert "known" not in plan.default
    (p,) = found.program
    assert isinstance(p, MdhProgram)
    model = GENERIC.model
    request = KernelRequest("k", "n", (p,), (make(p, model, tuple((1,) for _ in range(model.depth))),), GENERIC)
    assert emit_openmp(replace(request, known=(("n", 3),))).text == emit_openmp(request).text




def test_few_iterations_of_an_innermost_loop_are_written_out() -> None:
    """gcc does so with ``-O3`` only; indices such as ``(k + 1) % 3`` are constants then."""
    for size, few in (("3", True), ("8", True), ("9", False), ("m", False)):
        head = f"int n, int m, double O[n][{size}], double I[n][{size}]"
        p = of((head, FOR.format("i", "n") + FOR.format("k", size) + f"O[i][k] = I[i][(k + 1) % {size}];"))
        point: Point = {"vector": "-", "block_i": 64, "block_k": int(size) if size != "m" else 9, "threads": "i"}
        (c,) = configuration_at((p,), GENERIC, ({"i": 90, "k": 9},), point)
        rows = emit_openmp(KernelRequest("kernel", "n", (p,), (c,), GENERIC)).text.splitlines()
        above = [rows[k - 1] for k, row in enumerate(rows) if row.lstrip().startswith("for (long k")]
        assert above and [f"#pragma GCC unroll {size}" in row for row in above] == [few]*len(above), rows
