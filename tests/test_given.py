"""``emit --config``: parameters that a nest does not have, and values of the wrong kind, are usage errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lifter.annotations import TARGETS
from lowering.point import Point
from lowering.space import Space
from mdh_lift.cli import cli
from mdh_lift.gpu_plans import gpu_plan
from mdh_lift.kernels import planned
from tests.test_fusion import OFFERED, SUM, nest
from tuning.space import allows, sample_points

TEXT = """\
void f(int n, int m, const float *restrict a, const float *restrict x, float *restrict y)
{
#pragma mdh name(rows)
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++) y[i] += a[i * m + k] * x[k];
}
"""
PYTHON = """\
from mdh_lift import mdh


@mdh
def f(n: "int32", m: "int32", a: "restrict float32[n, m]", x: "restrict float32[m]", y: "restrict float32[n]"):
    for i in range(n):
        for k in range(m):
            y[i] += a[i, k] * x[k]
"""
NAMES = {"openmp": "block_i", "cuda": "threads_i", "opencl": "threads_i"}  # a number that may be anything from 1 on


@pytest.fixture
def emit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    Path("f.c").write_text(TEXT)
    Path("f.py").write_text(PYTHON)

    def run(file: str, target: str, point: object) -> Result:
        Path("point.json").write_text(json.dumps(point))
        return CliRunner().invoke(cli, ["emit", file, "--target", target, "--config", "point.json"])

    return run


@pytest.mark.parametrize("file", ["f.c", "f.py"])
@pytest.mark.parametrize("target", TARGETS)
def test_unknown_names_are_told_with_the_nearest_known_one(
    file: str, target: str, emit: Callable[..., Result]
) -> None:
    name = NAMES[target]
    result = emit(file, target, {name.replace("_", ""): 4})
    assert result.exit_code == 2 and not result.stdout
    assert f"has no parameter `{name.replace('_', '')}`; did you mean `{name}`?" in result.stderr
    result = emit(file, target, {"zzzzzz": 4})
    assert result.exit_code == 2 and result.stderr.rstrip().endswith("has no parameter `zzzzzz`")
    assert emit(file, target, {f"{name}_at1": 4}).exit_code == 2  # of a second program, which there is not


@pytest.mark.parametrize("file", ["f.c", "f.py"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", ["4", 4.0, True, None, [4], 0, -4])
def test_values_that_are_no_numbers_from_one_on(
    file: str, target: str, value: object, emit: Callable[..., Result]
) -> None:
    result = emit(file, target, {NAMES[target]: value})
    assert result.exit_code == 2 and "MDH901" not in result.output
    assert f"`{NAMES[target]}` of `f::" in result.stderr and f"is {value!r}, which is " in result.stderr


@pytest.mark.parametrize("file", ["f.c", "f.py"])
@pytest.mark.parametrize(
    ("target", "name", "value", "says"),
    [
        ("openmp", "threads", 4, "which is no text"),
        ("openmp", "threads", "j", "which is none of '', 'i', 'k', separated by commas"),
        ("openmp", "vector", "i,k", "which is none of '-', 'i', 'k'"),
        ("openmp", "pack_a", "tile", "which is none of 'block', 'no', 'panel', 'row'"),
        ("openmp", "order", 99, "which is none of 0"),
        ("cuda", "fast", "", "which is none of 'i', 'k'"),
        ("opencl", "share_x", 2, "which is none of 0, 1"),
    ],
)  # fmt: skip
def test_words_and_switches(
    file: str, target: str, name: str, value: object, says: str, emit: Callable[..., Result]
) -> None:
    result = emit(file, target, {name: value})
    assert result.exit_code == 2 and says in result.stderr, result.output


@pytest.mark.parametrize("file", ["f.c", "f.py"])
@pytest.mark.parametrize(
    ("target", "point"),
    [
        ("openmp", {"threads": "", "block_i": 7}), ("openmp", {"threads": "i,k"}), ("cuda", {"threads_i": 24}),
        ("opencl", {"threads_i": 8, "fast": "k"}), ("cuda", {"instruction": "fma_float"}),
    ],
)  # fmt: skip
def test_values_need_not_be_those_of_a_search(
    file: str, target: str, point: dict[str, object], emit: Callable[..., Result]
) -> None:
    result = emit(file, target, point)
    assert result.exit_code == 0
    lines = result.stdout.replace("\n * ", " ")
    assert all(f"{name}={value}" in lines for name, value in point.items())


def test_nothing_is_fetched_ahead_where_a_tile_does_not_walk(tmp_path: Path, emit: Callable[..., Result]) -> None:
    Path("f.c").write_text(TEXT.replace("name(rows)", "name(rows) sizes(n=40000, m=40000)"))
    taken = emit("f.c", "openmp", {"vector": "k", "lanes": 16, "rows_i": 1, "ahead": 8192})
    assert taken.exit_code == 0 and "MDH_PAGE(" in taken.stdout, taken.output
    refused = emit("f.c", "openmp", {"vector": "i", "lanes": 16, "ahead": 8192})
    assert refused.exit_code == 2 and not refused.stdout
    assert "`ahead` of `f::rows` is 8192, which does nothing there: vector == 'k' or ahead == 0 must hold" in refused.stderr
    assert emit("f.c", "openmp", {"vector": "i", "lanes": 16, "ahead": 0}).exit_code == 0


@pytest.mark.parametrize("file", ["f.c", "f.py"])
@pytest.mark.parametrize(
    ("target", "point", "says"),
    [
        ("openmp", {"vector": "i", "lanes": 8, "rows_i": 4}, "`rows_i` of `f::{} is 4, which does nothing there: vector != 'i' or rows_i == 1"),
        ("openmp", {"vector": "-", "lanes": 8}, "`lanes` of `f::{} is 8, which does nothing there: vector != '-' or lanes == 1"),
        ("cuda", {"share_a": 0, "pad_a": 4}, "`pad_a` of `f::{} is 4, which does nothing there: share_a == 1 or pad_a == 0"),
        ("opencl", {"share_a": 0, "share_x": 0, "stages": 2}, "`stages` of `f::{} is 2, which does nothing there: stages == 1"),
    ],
)  # fmt: skip
def test_what_does_nothing_beside_the_other_values(
    file: str, target: str, point: dict[str, object], says: str, emit: Callable[..., Result]
) -> None:
    refused = emit(file, target, point)
    assert refused.exit_code == 2 and not refused.stdout
    assert says.split("{}")[0] in refused.stderr and says.split("{}")[1] in refused.stderr
    *others, last = point
    assert emit(file, target, {n: point[n] for n in others}).exit_code == 0, "what was not given is no mistake"
    assert emit(file, target, {**point, last: 0 if last.startswith("pad") else 1}).exit_code == 0


ON_GPU = {"turn", "pad", "swizzle", "vector", "stages"}


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        ("openmp", SUM, {"lanes", "rows"}), ("cuda", SUM, ON_GPU), ("opencl", SUM, ON_GPU),
        ("openmp", OFFERED["value is passed on"].body, {"lanes", "threads", "vector", "block", "order"}),
    ],
    ids=["openmp", "cuda", "opencl", "fused"],
)  # fmt: skip
def test_what_is_told_to_do_nothing_does_nothing(target: str, body: str, expected: set[str]) -> None:
    """The rules by which a value is refused, at random points: the text is that without the value."""
    found = nest(body)
    params = {"n": 3000, "m": 2000, "k": 3}
    plan = planned(found, params) if target == "openmp" else gpu_plan(found, target, params)

    def text(point: Point) -> str:
        made = plan.candidate(point)
        return made.kernel_text + made.call + made.unit

    space, compared = plan.space, set[str]()
    values, points = dict(space.parameters), sample_points(space, 1, 60)
    for name, rule in space.idle:
        alone = Space(space.parameters, idle=((name, rule),))
        for point in random.Random(3).sample(points, len(points)):
            does = [v for v in values[name] if allows(alone, {**point, name: v})]
            nothing = [v for v in values[name] if not allows(alone, {**point, name: v})]
            if nothing:
                assert text({**point, name: does[0]}) == text({**point, name: nothing[-1]}), (name, rule, point)
                compared.add(name.partition("_")[0])
                break
    assert compared >= expected
