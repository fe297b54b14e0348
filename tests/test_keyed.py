"""Points that are summed by value: which programs have the form, and what the table computes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import emit.histogram_text as histogram_text
import emit.keyed_text as keyed_text
from certify.certificate import certificate
from certify.obligations import REFUTED
from emit.render import emit_openmp
from emit.request import KernelRequest
from lifter.lift import lift
from lowering.choice import default_point
from lowering.keyed import keyed
from lowering.lower import Lowered, Nest, lower, may_join_a_team
from lowering.machine import GENERIC
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.expr import Binary, Const
from mdh_core.interpreter import run, same
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, Case, run_emitted, with_extents
from tests.lifting import check_meaning, lifted, nests
from tests.strategies import buffers_for, copy_of

SANITIZERS = (*FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
HEAD = "int n, int c, int m, const int *restrict x, const int *restrict k, const double *restrict w"
MANY = {
    "count": f"{HEAD}, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += x[i] == k[b] ? 1 : 0;",
    "cells_outside": f"{HEAD}, int h[restrict c]"
    "| for (int b = 0; b < c; b++) for (int i = 0; i < n; i++) h[b] += k[b] == x[i] ? 1 : 0;",
    "branch": f"{HEAD}, long h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) if (x[i] == k[b]) h[b] += 3;",
    "shifted": f"{HEAD}, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] ^= x[i] + 1 == 2*k[b] ? 5 : 0;",
    "filtered": f"{HEAD}, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += x[i] == k[b] && i % 3 == 1 ? i : 0;",
    "truths": f"{HEAD}, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += (x[i] & 1) == (k[b] > 0) ? 1 : 0;",
    "planes": "int n, int c, int m, const int x[restrict m][n], const int k[restrict c][m], int h[restrict c][m]"
    "| for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) for (int q = 0; q < m; q++)"
    " for (int b = 0; b < c; b++) h[b][q] += x[j][i] == k[b][q] ? 1 : 0;",
    "unsigned": f"{HEAD}, const unsigned *restrict u, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += u[i] == k[b] ? 1 : 0;",
    "bytes": "int n, int c, const unsigned char *restrict x, const short *restrict k, float h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += x[i] == k[b] ? 0.5f : 0.0f;",
}  # fmt: skip


def text_of(name: str, clauses: str = "") -> str:
    params, loop = MANY[name].split("|")
    return f"void f({params})\n{{\n#pragma mdh {clauses}\n{loop}\n}}\n"


def program_of(name: str, clauses: str = "") -> MdhProgram:
    found = lifted(text_of(name, clauses))
    assert found.status == "lifted", found.diagnostics
    (program,) = found.programs
    return program


@pytest.mark.parametrize("name", MANY)
def test_which_programs_have_the_form(name: str) -> None:
    assert check_meaning(lifted(text_of(name)), trials=30, seed=3) > 0
    program = program_of(name)
    assert keyed(program) is not None
    sizes = ({d.name: 100 for d in program.hom.dims},)
    assert ("table", (0, 1)) in tuning_space((program,), GENERIC, sizes).parameters
    assert default_point((program,), GENERIC, sizes)["table"] == 1
    few = ({d.name: 2 if program.op(d.name).kind == "cc" else 100 for d in program.hom.dims},)
    assert default_point((program,), GENERIC, few)["table"] == 0


@pytest.mark.parametrize(
    "loop",
    [
        "h[b] += x[i] == k[i] ? 1 : 0;",  # no key of a cell
        "h[b] += x[i] == k[b] ? 1 : 2;",  # nothing is neutral
        "h[b] += x[i] <= k[b] ? 1 : 0;",
        "h[b] += x[i] == k[b] ? b : 0;",  # what is added depends on the cell
        "h[b] += x[i] + b == k[b] ? 1 : 0;",
        "h[b] += x[i] == k[b] && x[b] == k[i] ? 1 : 0;",  # two keys
        "h[b] += x[i] == k[b] ? (int)w[i] : 0;",  # read only where the values are equal
        "h[b] += x[i] == k[b] ? 100/x[i] : 0;",  # divided only where the values are equal
        "h[b] += x[i] == k[b] && 100 % x[i] == 0 ? 1 : 0;",
        "h[b] += x[i] == k[b] ? x[i]*x[i] : 0;",  # may overflow
        "h[b] += x[i] == k[b] ? (int)(z*i) : 0;",
        "h[b] += i % 3 == 1 && x[i] == k[b] ? 1 : 0;",  # keys are read only where there is such a point
        "if (w[i] > 0) h[b] += x[i] == k[b] ? 1 : 0;",
        "h[b] += y[i] == k[b] ? 1 : 0;",  # too wide
        "h[b] += w[i] == k[b] ? 1 : 0;",  # no integers
    ],
)
def test_what_has_another_form(loop: str) -> None:
    more = "double z, const long *restrict y, int h[restrict c]"
    text = f"void f({HEAD}, {more}) {{\n#pragma mdh\nfor (int i = 0; i < n; i++) for (int b = 0; b < c; b++) {loop} }}"
    (program,) = lifted(text).programs
    assert keyed(program) is None


def test_exact_sums_have_no_table() -> None:
    assert keyed(program_of("bytes", "fp(exact)")) is None
    assert keyed(program_of("count", "fp(exact)")) is not None


# --------------------------------------------------------------------------- emitted


def case_of(name: str, rng: random.Random, n: int, c: int, m: int, reach: int) -> tuple[Case, dict]:  # type: ignore[type-arg]
    p = program_of(name)
    params = {q.name: {"n": n, "c": c, "m": m}[q.name] for q in p.params}
    buffers = buffers_for(p, params, rng, reach=reach)
    expected = copy_of(buffers)
    run(p, params, expected)
    sized, extra = with_extents(p, buffers, symbolic=rng.random() < 0.5)
    values = {**params, **extra}
    sizes = (sized.sizes(values),)
    (k,) = configuration_at((sized,), GENERIC, sizes, default_point((sized,), GENERIC, sizes) | {"table": 1})
    return Case(sized, k, values, buffers, GENERIC), expected


@pytest.mark.parametrize("flags", [FLAGS, SANITIZERS], ids=["plain", "sanitized"])
def test_tables(flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No points, no cells, one of them; keys that repeat; spans that a table is too large for."""
    monkeypatch.setattr(histogram_text, "MIN_POINTS", 4)
    monkeypatch.setattr(keyed_text, "MIN_POINTS", 4)
    monkeypatch.setattr(histogram_text, "PER_CELL", 1)
    monkeypatch.setattr(keyed_text, "CELLS", 1)
    rng, cases = random.Random(5), []
    for name in MANY:
        for n, c, m in ((0, 3, 2), (1, 1, 1), (5, 0, 3), (7, 3, 0), (61, 4, 2), (97, 9, 2)):
            for reach in (1, 3, 100):
                cases.append(case_of(name, rng, n, c, m, reach))
    answers = run_emitted([case for case, _ in cases], tmp_path, flags=flags)
    for (case, expected), (returned, found) in zip(cases, answers, strict=True):
        assert returned == 1
        pairs = zip(found["h"], expected["h"].data, strict=True)
        assert all(same(a, b) for a, b in pairs), (case.program.name, case.params)


def test_keys_far_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least and the greatest `int`: no difference overflows, and no table is made for their span."""
    monkeypatch.setattr(histogram_text, "MIN_POINTS", 4)
    monkeypatch.setattr(keyed_text, "MIN_POINTS", 4)
    ends = [-(2**31), 2**31 - 1, 0, 2**31 - 1]
    for keys in ([*ends, *ends, 7], [2**31 - 1] * 9, [-(2**31)] * 9):
        case, _ = case_of("count", random.Random(1), 60, 9, 1, 3)
        case.buffers["x"].data[:] = ends * 15
        case.buffers["k"].data[:] = keys
        case.buffers["h"].data[:] = [0] * 9
        ((_, found),) = run_emitted([case], tmp_path, flags=SANITIZERS)
        assert list(found["h"]) == [15 * ends.count(key) for key in keys]


def test_the_nest_is_there_as_well() -> None:
    program = program_of("count")
    sizes = ({"i": 1000, "b": 100},)
    for table in (0, 1):
        point = default_point((program,), GENERIC, sizes) | {"table": table}
        (c,) = configuration_at((program,), GENERIC, sizes, point)
        (stage,) = lower(program, c, GENERIC).stages
        assert isinstance(stage, Nest) and (stage.keyed is not None) == bool(table)
        assert may_join_a_team(stage) != bool(table)
        text = emit_openmp(KernelRequest("f", "n", (program,), (c,), GENERIC)).text
        assert ("copies[" in text) == bool(table)
        assert "acc" in text


# --------------------------------------------------------------------------- certified


@pytest.mark.parametrize("name", MANY)
def test_certificates(name: str) -> None:
    (nest,) = nests(text_of(name))
    found = lift(nest)
    program = found.programs[0]
    sizes = ({d.name: 100 for d in program.hom.dims},)
    point = default_point((program,), GENERIC, sizes) | {"table": 1}
    (c,) = configuration_at((program,), GENERIC, sizes, point)
    low = lower(program, c, GENERIC)
    shown = certificate(nest, found.program, [low])
    assert not shown.refuted, shown.refuted
    (stage,) = low.stages
    assert isinstance(stage, Nest) and stage.keyed is not None
    form = stage.keyed
    one = Const(1, form.value.type)
    for bad in (
        replace(form, value=Binary("+", form.value, one, form.value.type)),
        replace(form, key=Binary("+", form.key, one, form.key.type)),
        replace(form, element=form.key),
        replace(form, key=form.value),
    ):
        wrong = certificate(nest, found.program, [Lowered((replace(stage, keyed=bad),))])
        assert [o for o in wrong.obligations if o.status == REFUTED]
