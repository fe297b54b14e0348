"""Neighbours that may be one program as a choice of a point: what a plan makes of it.

The kernels of both forms are run against the steps as they were lifted, at points all over the search space.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from certify.certificate import Certificate
from lifter.lift import LiftedNest
from lowering.lower import lower
from lowering.point import Point, own_values
from mdh_core.expr import INT32
from mdh_core.interpreter import run_steps
from mdh_lift.certified import certified
from mdh_lift.kernels import Plan, planned
from tests.lifting import needed_extents
from tests.test_fusion import LOOPS, OFFERED, ROWS, nest
from tests.test_steps import Case, run_kernel, values
from tuning.space import allows, best_estimated, sample_points

BODIES = {name: OFFERED[name].body for name in ("value is passed on", "both read", "two reductions and an epilogue")}
BODIES["in a host loop"] = (
    f"for (int t = 0; t < k; t++) {{ {ROWS} u[i] = u[i] / 2 + v[i]; {ROWS} w[i] = u[i] - v[i] * t; }}"
)
BODIES["between others"] = (
    f"{ROWS} {{ u[i] = 0; for (int j = 0; j < n; j++) if (j < i) u[i] += v[j]; }}"
    f"{LOOPS} b[i][j] = 2 * a[i][j]; {LOOPS} c[i][j] = b[i][j] + k;"
    f"for (int j = 0; j < m; j++) {{ w[0] += c[0][j]; }}"
)
LARGE = {"n": 3000, "m": 2000, "k": 3}


def plan_of(name: str) -> Plan:
    found = nest(BODIES[name])
    assert len(found.fusions) == 1
    return planned(found, LARGE)


def apart(plan: Plan) -> Plan:
    """The plan without a choice."""
    sizes = plan.sizes[: len(plan.lifted.programs)]
    return replace(plan, fusions=(), sizes=sizes, lifted=replace(plan.lifted, fusions=()))


def run_at(found: LiftedNest, plan: Plan, point: Point, n: int, m: int) -> None:
    params = {"n": n, "m": m, "k": 3}
    extents = needed_extents(found.program, params)
    assert extents is not None
    rng = random.Random(n)
    kernel = plan.kernel(point)
    data = {b: values(rng, INT32, *e) for b, e in extents.items()}
    case = Case(found.program, params, data)
    answer = run_kernel(case, kernel)
    expected = {b: v.copy() for b, v in data.items()}
    run_steps(found.program, params, expected)
    assert answer.pop("returned") == 1
    assert answer == {b: v.data for b, v in expected.items()}, kernel.text


@pytest.mark.parametrize("name", BODIES)
def test_both_forms_equal_what_was_lifted(name: str) -> None:
    plan = plan_of(name)
    points = [*plan.starts, *random.Random(name).sample(sample_points(plan.space, 1, 200), 4)]
    assert {p["fuse_0"] for p in points} == {0, 1}
    for k, point in enumerate(points):
        run_at(plan.lifted, plan, point, *((7, 5), (1, 1), (33, 18), (16, 32))[k % 4])


@pytest.mark.parametrize("name", BODIES)
def test_a_form_is_the_kernel_of_its_programs(name: str) -> None:
    plan = plan_of(name)
    point = plan.default | {"fuse_0": 0}
    without = apart(plan)
    assert plan.kernel(point, False).text == without.kernel(point, False).text
    assert len(plan.configurations(point)) == len(plan.lifted.programs)
    fused, own = plan.formed(point | {"fuse_0": 1})
    assert len(fused.programs) < len(plan.lifted.programs)
    assert fused.fusions == ()
    assert fused.kernel(own, False).text == plan.kernel(point | {"fuse_0": 1}, False).text
    # the parameters of the fused program are those behind the ones of the nest
    number = [id(p) for p in fused.programs].index(id(plan.fusions[0].program))
    assert own_values(own, number).items() >= own_values(point, len(plan.lifted.programs)).items()


def test_what_runs_over_memory_once_is_the_default() -> None:
    plan = plan_of("value is passed on")
    assert plan.default["fuse_0"] == 1
    assert plan.estimate(plan.default) < plan.estimate(plan.default | {"fuse_0": 0})


def test_a_fusion_that_costs_tiles_of_a_host_loop_is_not_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("in a host loop")
    point = plan.default
    assert point["fuse_0"] == 1 and plan._pays(0, point)
    loops = {id(x) for x in plan.lifted.program}
    monkeypatch.setattr("mdh_lift.kernels.skew_of", lambda x: object() if id(x) in loops else None)
    assert not plan._pays(0, point)


@pytest.mark.parametrize("name", BODIES)
def test_points_without_a_program_do_not_differ_in_it(name: str) -> None:
    plan = plan_of(name)
    space, default = plan.space, plan.default
    assert all(allows(space, p) for p in plan.starts)
    joined = len(plan.lifted.programs)
    parts = [n for n in range(joined) if n not in _numbers(plan)]
    fewest = {0: 0, 1: 0}
    for p in sample_points(space, 1, 300):
        unused = parts if p["fuse_0"] else [joined]
        for n in unused:
            mine = {k: v for k, v in own_values(p, n).items() if not k.startswith(("fuse_", "width_", "steps_", "strip_", "region_"))}
            assert mine.items() <= own_values(default, n).items()
        fewest[int(p["fuse_0"])] += 1
    assert min(fewest.values()) > 10
    (best, *_) = best_estimated(space, plan.estimate, 1, near=plan.starts)
    assert plan.estimate(best) <= plan.estimate(default)


def _numbers(plan: Plan) -> list[int]:
    """Of the programs that both forms have."""
    formed = {id(p) for p in plan.formed(plan.default | {"fuse_0": 1})[0].programs}
    return [k for k, p in enumerate(plan.lifted.programs) if id(p) in formed]


@pytest.mark.parametrize("name", BODIES)
def test_certificates_of_both_forms(name: str) -> None:
    plan = plan_of(name)
    for choice in (0, 1):
        formed, own = plan.formed(plan.default | {"fuse_0": choice})
        chosen = zip(formed.programs, formed.configurations(own), strict=True)
        lowered = [lower(p, c, formed.machine) for p, c in chosen]
        proof = certified(formed.lifted.nest, formed.lifted.program, lowered, formed.kernel(own).tiled)
        assert isinstance(proof, Certificate)
        assert proof.refuted == ()
        (order,) = [o for o in proof.obligations if o.name == "every dependence is respected"]
        assert order.status == "proved", (choice, order)


def test_a_form_without_the_last_value_is_refuted() -> None:
    """The certificate is about the form: with the second store lost, it does not hold."""
    plan = plan_of("value is passed on")
    formed, own = plan.formed(plan.default | {"fuse_0": 1})
    (program,) = formed.programs
    lost = replace(program, out=replace(program.out, stores=program.out.stores[:1]))
    chosen = zip((lost,), formed.configurations(own), strict=True)
    lowered = [lower(p, c, formed.machine) for p, c in chosen]
    proof = certified(formed.lifted.nest, (lost,), lowered, ())
    assert isinstance(proof, Certificate)
    assert proof.refuted


def test_the_command_records_and_finds_the_choice(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text(
        "void f(int n, const double *restrict x, double *restrict y, double *restrict z)\n{\n"
        "#pragma mdh sizes(n=300000)\n    {\n"
        "        for (int i = 0; i < n; i++)\n            y[i] = x[i] * 2;\n"
        "        for (int i = 0; i < n; i++)\n            z[i] = x[i] + y[i];\n    }\n}\n"
    )
    command = [sys.executable, "-m", "mdh_lift", "-w", "--force", "--budget", "0", "f.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text, lock = (tmp_path / "f.c").read_text(), (tmp_path / "mdh-lift.lock").read_text()
    assert "fuse_0" in lock and "fuse_0=1" in text
    assert text.count("#pragma omp parallel") == 1
    subprocess.run([*command, "--quiet"], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "f.c").read_text() == text
