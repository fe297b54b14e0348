"""Accumulations at computed positions: what they are lifted to, which cells are visited, and what comes out."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import emit.histogram_text as histogram_text
from certify.certificate import certificate, program_certificate
from certify.obligations import REFUTED
from emit.render import emit_openmp
from emit.request import KernelRequest
from lifter.lift import lift
from lowering.choice import default_point
from lowering.histogram import one_hot
from lowering.lower import HistogramNest, Lowered, Nest, lower
from lowering.machine import GENERIC
from lowering.parameters import random_configuration
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.expr import Binary, Const
from mdh_core.interpreter import run, same
from mdh_core.ir import MdhProgram
from tests.emitted import FLAGS, Case, run_emitted, with_extents
from tests.lifting import check_meaning, lifted, nests, operators
from tests.strategies import buffers_for, copy_of, empty_buffers

COUNT = "void f(int n, const int *restrict x, int h[restrict 5]) {\n%s\nfor (int i = 0; i < n; i++) %s }"
MANY = {
    "count": "int n, int c, const int *restrict x, int h[restrict c]"
    "| for (int i = 0; i < n; i++) h[x[i]]++;",
    "weights": "int n, int c, const int *restrict x, const double *restrict w, double h[restrict c]"
    "| for (int i = 0; i < n; i++) { int b = x[i] + 1; if (w[i] > 0) h[b] += w[i]; }",
    "masked": "int n, int c, const int *restrict x, const int *restrict w, int h[restrict c]"
    "| for (int i = 0; i < n; i++) if (w[i] > 0) h[x[i]] += w[i];",
    "masked_largest": "int n, int c, const int *restrict x, const int *restrict w, int h[restrict c]"
    "| for (int i = 0; i < n; i++) if (w[i] > 0 && w[i] > h[x[i]]) h[x[i]] = w[i];",
    "rows": "int n, int c, int m, const int *restrict x, const double w[restrict n][m], double h[restrict c][m]"
    "| for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) h[x[i]][j] += w[i][j];",
    "columns": "int n, int c, int m, const int *restrict x, const double w[restrict n], double h[restrict m][c]"
    "| for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) h[j][x[i]] -= w[i];",
    "planes": "int n, int c, int m, const int x[restrict m][n], int h[restrict m][c]"
    "| for (int j = 0; j < m; j++) for (int i = 0; i < n; i++) h[j][x[j][i]] += i;",
    "largest": "int n, int c, const int *restrict x, const float *restrict w, float h[restrict c]"
    "| for (int i = 0; i < n; i++) if (w[i] > h[x[i]]) h[x[i]] = w[i];",
    "pairs": "int n, int c, int m, const int *restrict x, const int *restrict y, unsigned h[restrict c][m]"
    "| for (int i = 0; i < n; i++) h[x[i]][y[i]]++;",
    "folded": "int n, int c, const int *restrict x, long h[restrict c]"
    "| for (int i = 0; i < n; i++) h[i % 4] += x[i];",
    "clamped": "int n, int c, const float *restrict x, unsigned char h[restrict c]"
    "| for (int i = 0; i < n; i++) { int b = (int)x[i]; if (b < 0) b = 0; if (b > 2) b = 2; h[b]++; }",
    "triangle": "int n, int c, const int x[restrict n][n], int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int j = 0; j <= i; j++) h[x[i][j] & 1] ^= i + j;",
    "bins": "int n, int c, const int *restrict x, const int *restrict w, int h[restrict c]"
    "| for (int i = 0; i < n; i++) for (int b = 0; b < c; b++) h[b] += x[i] == b ? w[i] : 0;",
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
def test_lifted_nests_mean_the_same(name: str) -> None:
    """Data that lead outside of the array are undefined; some trials must be left."""
    assert check_meaning(lifted(text_of(name)), trials=60, seed=3) > 0


@pytest.mark.parametrize("name", MANY)
def test_only_the_cell_that_is_meant_is_visited(name: str) -> None:
    program = program_of(name)
    form = one_hot(program)
    assert form is not None
    others = [d for d in program.hom.dims if d.name not in form.cells]
    assert len(others) == {"rows": 2, "columns": 2, "planes": 2, "triangle": 2}.get(name, 1)


def test_positions_are_read_where_the_source_reads_them() -> None:
    for name, conditional in (("masked", True), ("masked_largest", True), ("count", False), ("largest", False)):
        program = program_of(name)
        assert [a.conditional for a in program.inp.accesses if a.buffer == "x"] == [conditional], name
        form = one_hot(program)
        assert form is not None and bool(form.tests[0].dim) != conditional


def test_what_it_is_lifted_to() -> None:
    assert operators(lifted(COUNT % ("#pragma mdh", "h[x[i]]++;"))) == "i:pw(+) h_cell:cc"
    two = "{ h[x[i]] += 1; }"
    assert operators(lifted(COUNT % ("#pragma mdh", two))) == "i:pw(+) h_cell:cc"
    text = """void f(int n, int c, const int *restrict x, const double *restrict v, double *restrict y,
    int h[restrict c], double s[restrict c]) {
    #pragma mdh
    for (int i = 0; i < n; i++) { int b = x[i]; y[i] = 2 * v[i]; h[b]++; s[b] += v[i]; } }"""
    assert operators(lifted(text)) == "i:cc; i:pw(+) h_cell:cc; i:pw(+) s_cell:cc"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("h[x[i]] = i;", "MDH214"),  # the last one stays
        ("h[x[i]] = 2*h[x[i]] + 1;", "MDH214"),  # the order decides
        ("h[x[i]] += h[0];", "MDH214"),  # reads what others write
        ("h[x[i]] += h[x[i + 1]];", "MDH214"),
        ("h[h[i]]++;", "MDH214"),  # the position changes
        ("{ h[x[i]]++; h[i] = 3; }", "MDH214"),
        ("if (h[x[i]] < 7) h[x[i]]++;", "MDH214"),  # saturates: no associative operator
        ("h[x[i]] /= 2;", "MDH214"),
    ],
)
def test_other_updates_are_refused(statement: str, code: str) -> None:
    assert operators(lifted(COUNT % ("#pragma mdh", statement))) == code


def test_the_number_of_cells_has_to_be_known() -> None:
    text = "void f(int n, const int *restrict x, int *restrict h) {\n#pragma mdh\nfor (int i = 0; i < n; i++) h[x[i]]++; }"
    found = lifted(text)
    assert operators(found) == "MDH214"
    assert "`h[n]`" in str(found.diagnostics[0].help)
    assert "h[x[i]]++" in text[found.diagnostics[0].span.start : found.diagnostics[0].span.end + 1]


def test_what_is_no_histogram() -> None:
    """A comparison with something else than an index, or a value elsewhere that is not neutral."""
    plain = "int n, int c, const int *restrict x, const int *restrict bins, int h[restrict c]"
    for loop in (
        "h[b] += x[i] == bins[b] ? 1 : 0;",
        "h[b] += x[i] == b ? 1 : 2;",
        "h[b] += x[i] == b ? b : 0;",
        "h[b] += x[i] <= b ? 1 : 0;",
        "h[b] *= x[i] == b ? 3 : 0;",
        "h[b] = h[b] && (x[i] == b ? bins[i] : 1);",  # every cell becomes 0 or 1
    ):
        text = f"void f({plain}) {{\n#pragma mdh\nfor (int i = 0; i < n; i++) for (int b = 0; b < c; b++) {loop} }}"
        (program,) = lifted(text).programs
        assert one_hot(program) is None, loop


# --------------------------------------------------------------------------- emitted


def cases_of(
    name: str, threads: str, rng: random.Random, sizes: dict[str, int], ahead: int = 0
) -> tuple[Case, dict]:  # type: ignore[type-arg]
    p = program_of(name)
    params = {q.name: sizes[q.name] for q in p.params}
    buffers = buffers_for(p, params, rng, reach=4)
    expected = copy_of(buffers)
    run(p, params, expected)
    sized, extra = with_extents(p, buffers, symbolic=rng.random() < 0.5)
    values = {**params, **extra}
    machine = replace(GENERIC, cores=3)
    (c,) = configuration_at((sized,), machine, (sized.sizes(values),), {"threads": threads, "ahead": ahead})
    return Case(sized, c, values, buffers, machine), expected


@pytest.mark.parametrize("sanitized", [False, True])
def test_emitted_histograms(sanitized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private copies, rows on threads and the loop in order; sizes 0, 1, primes; positions outside.

    What points read is fetched ahead or not, which may be behind the ends of all arrays.
    Neighbouring points use several sets of a part's cells at the larger sizes.
    """
    monkeypatch.setattr(histogram_text, "MIN_POINTS", 4)
    monkeypatch.setattr(histogram_text, "PER_CELL", 1)
    rng = random.Random(7)
    cases, kinds = [], Counter[str]()
    for name in MANY:
        p = program_of(name)
        for n, c, m in ((0, 3, 2), (1, 1, 1), (5, 0, 3), (7, 3, 0), (61, 3, 2), (97, 5, 3)):
            sizes = {"n": min(n, 23) if name == "triangle" else n, "c": c, "m": m}
            names = {d.name for d in p.hom.dims}
            for threads in (*[d for d in names if not d.endswith("_cell")], ""):
                case, expected = cases_of(name, threads, rng, sizes, rng.choice((0, 64, 2048)))
                (stage,) = lower(case.program, case.configuration, case.machine).stages
                assert isinstance(stage, HistogramNest)
                kinds["ahead"] += stage.ahead > 0
                kinds["copies" if stage.copies else "rows" if stage.shared else "order"] += 1
                cases.append((case, expected))
    assert min(kinds["copies"], kinds["rows"], kinds["order"], kinds["ahead"]) > 10
    flags = (*FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all") if sanitized else FLAGS
    answers = run_emitted([case for case, _ in cases], tmp_path, flags=flags)
    for (case, expected), (returned, found) in zip(cases, answers, strict=True):
        assert returned == 1
        pairs = zip(found["h"], expected["h"].data, strict=True)
        assert all(same(a, b) for a, b in pairs), (case.program.name, case.params, found["h"], expected["h"])


def test_neighbouring_points_use_other_cells(tmp_path: Path) -> None:
    """Sums of many points: exact where several sets are used, where the cells are too many, too few points."""
    for c, n in ((7, 50_003), (5000, 50_003), (900, 20_001)):
        program = program_of("weights")
        x = [i * 7919 % c - 1 for i in range(n)]
        w = [float(i % 5) for i in range(n)]
        expected = [1.0] * c
        for a, b in zip(x, w, strict=True):
            if b > 0:
                expected[a + 1] += b
        buffers = empty_buffers(program, {"n": n, "c": c})
        for name, data in (("x", x), ("w", w), ("h", [1.0] * c)):
            buffers[name].data[:] = data
        sized, extra = with_extents(program, buffers, symbolic=True)
        values = {"n": n, "c": c, **extra}
        (k,) = configuration_at((sized,), GENERIC, (sized.sizes(values),), {"threads": "i"})
        ((_, found),) = run_emitted([Case(sized, k, values, buffers, GENERIC)], tmp_path)
        assert list(found["h"]) == expected, (c, n)


def fetches_of(program: MdhProgram, ahead: int = 128, threads: str = "i") -> list[str]:
    sizes = {d.name: 97 for d in program.hom.dims}
    (c,) = configuration_at((program,), GENERIC, (sizes,), {"threads": threads, "ahead": ahead})
    text = emit_openmp(KernelRequest("kernel", "n", (program,), (c,), GENERIC)).text
    return sorted(re.findall(r"__builtin_prefetch\(&(.*)\);", text))


def test_lines_of_operands_are_fetched_once() -> None:
    """As many points at a time as have a line of the narrowest operand; of all that they walk through."""
    found = {name: fetches_of(program_of(name)) for name in MANY}
    assert found["count"] == ["x[i + 32]"]  # 16 points
    assert found["weights"] == ["w[i + 16]", "w[i + 24]", "x[i + 32]"]
    assert found["rows"] == ["w[i*m + j + 16]"]  # x[i] stays where it is while j moves
    assert found["columns"] == []  # so do x[i] and w[i]
    assert fetches_of(program_of("weights"), ahead=0) == []
    assert fetches_of(program_of("weights"), threads="") == []  # one loop fills the array
    assert fetches_of(program_of("rows"), threads="j") == []


@pytest.mark.parametrize(
    "params, loop, places",
    [
        # a line of bytes serves too many points; neighbours are in one line
        ("const unsigned char *restrict x, const float *restrict w", "h[x[i]] += w[i] * w[i + 1];", ["w[i + 32]"]),
        # two places far apart
        ("const unsigned char *restrict x, const float *restrict w", "h[x[i]] += w[i] * w[i + 900];",
         ["w[i + 32 + 900]", "w[i + 32]"]),
        # every point reads m elements of y again
        ("const int *restrict x, const float *restrict y, int m",
         "for (int j = 0; j < m; j++) h[x[i * m + j]] += y[j];", ["x[i*m + j + 32]"]),
        # records of 12, of 16 and of 24 bytes: five in a line, four, too few
        ("float m, v; int k;|const struct part *restrict p", "h[p[i].k] += p[i].m * p[i].v;", ["p[i + 10]", "p[i + 15]"]),
        ("double m; int k;|const struct part *restrict p", "h[p[i].k] += p[i].m;", ["p[i + 8]"]),
        ("double m, v; int k;|const struct part *restrict p", "h[p[i].k] += p[i].m * p[i].v;", []),
    ],
)  # fmt: skip
def test_what_is_fetched(params: str, loop: str, places: list[str]) -> None:
    *members, params = params.split("|")
    text = "".join(f"struct part {{ {m} }};\n" for m in members)
    text += f"void f(int n, int c, {params}, float h[restrict c]) {{\n#pragma mdh\n"
    nest = lifted(text + f"for (int i = 0; i < n; i++) {loop} }}")
    assert nest.status == "lifted", nest.diagnostics
    (program,) = nest.programs
    assert fetches_of(program) == places


def test_fetching_pays_for_what_comes_from_memory() -> None:
    program = program_of("weights")
    (x, w) = (program.buffer(b).type.size for b in "xw")
    for n, ahead in ((GENERIC.last // (x + w), None), (GENERIC.last // (x + w) + 1, 2048)):
        sizes = {"i": n, "h_cell": 10}
        assert default_point((program,), GENERIC, (sizes,)) == {"threads": "i"} | (
            {} if ahead is None else {"ahead": ahead}
        )
        space = tuning_space((program,), GENERIC, (sizes,))
        assert ("ahead" in space.names) is (ahead is not None)
        assert space.idle == (() if ahead is None else (("ahead", "threads == 'i' or ahead == 0"),))
    rows = program_of("rows")  # of as many points as are between two fetches, or of fewer
    for m, expected in ((16, {"threads": "i", "ahead": 2048}), (15, {"threads": "i"})):
        sizes = {"i": GENERIC.last, "j": m, "h_cell": 10}
        assert default_point((rows,), GENERIC, (sizes,)) == expected


def test_untouched_cells_keep_every_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-0.0 and NaN stay in cells to which nothing contributes."""
    monkeypatch.setattr(histogram_text, "MIN_POINTS", 4)
    rng = random.Random(1)
    for name in ("weights", "largest"):
        case, _ = cases_of(name, "i", rng, {"n": 97, "c": 4, "m": 1})
        case.buffers["x"].data[:] = [0] * 97
        case.buffers["h"].data[:] = [1.0, 1.0, -0.0, float("nan")]
        ((_, found),) = run_emitted([case], tmp_path)
        assert str(found["h"][2:]) == "[-0.0, nan]"


def test_exact_sums_keep_their_order() -> None:
    program = program_of("weights", "fp(exact)")
    space = tuning_space((program,), GENERIC, ({"i": 1000, "h_cell": 10},))
    assert space.parameters == (("threads", ("",)),)
    (c,) = configuration_at((program,), GENERIC, ({"i": 1000, "h_cell": 10},), {"threads": ""})
    (stage,) = lower(program, c, GENERIC).stages
    assert isinstance(stage, HistogramNest) and not stage.shared and not stage.copies


# --------------------------------------------------------------------------- certified


def lowered_of(program: MdhProgram, threads: str) -> Lowered:
    sizes = ({d.name: 100 for d in program.hom.dims},)
    (c,) = configuration_at((program,), GENERIC, sizes, {"threads": threads})
    return lower(program, c, GENERIC)


@pytest.mark.parametrize("name", MANY)
def test_certificates_refute_nothing(name: str) -> None:
    (nest,) = nests(text_of(name))
    found = lift(nest)
    for threads in ("i", "j", ""):
        shown = certificate(nest, found.program, [lowered_of(found.programs[0], threads)])
        assert not shown.refuted, shown.refuted


def test_certificates_refute_what_is_wrong() -> None:
    program = program_of("count")
    right = lowered_of(program, "i")
    (stage,) = right.stages
    assert isinstance(stage, HistogramNest) and stage.copies
    (test,) = stage.form.tests
    off_by_one = replace(test, value=replace_operand(test.value))
    wrong: dict[str, object] = {
        "no private cells": replace(stage, copies=0),
        "a dimension twice": replace(stage, dims=("i", "i")),
        "another element": replace(stage, form=replace(stage.form, element=test.value)),
        "another cell": replace(stage, form=replace(stage.form, tests=(off_by_one,))),
        "a reduced dimension is computed": replace(
            stage, dims=("h_cell",), form=replace(stage.form, tests=(replace(test, dim="i"),))
        ),
    }
    assert not program_certificate(program, right).refuted
    for what, bad in wrong.items():
        assert isinstance(bad, HistogramNest)
        found = program_certificate(program, Lowered((bad,)))
        assert [o for o in found.obligations if o.status == REFUTED], what


def replace_operand(e):  # type: ignore[no-untyped-def]
    """The value plus one."""
    return Binary("+", e, Const(1, e.type), e.type)


def test_other_configurations_are_general_nests() -> None:
    """Where the phases differ, operands are copied and the form is not used."""
    program, rng = program_of("count"), random.Random(2)
    c = random_configuration(rng, program, GENERIC.model, fused=False)
    while c.is_fused:
        c = random_configuration(rng, program, GENERIC.model, fused=False)
    assert all(isinstance(s, Nest) for s in lower(program, c, GENERIC).stages)
