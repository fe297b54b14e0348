"""Lowering keeps meaning: the low-level program, run phase by phase, equals the reference interpreter."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowering import machine as machines
from lowering.choice import default_point
from lowering.cost import estimate
from lowering.domains import classify, read_in_boxes
from lowering.facts import facts
from lowering.low_level import LowLevelProgram, execute, verify
from lowering.lower import Nest, ScanNest, lower
from lowering.machine import ARTIFICIAL, GENERIC, MODELS, OPENMP, OPENMP_REG_SIMD
from lowering.parameters import (
    Configuration,
    from_json,
    levels,
    make,
    random_configuration,
    to_json,
    why_not_legal,
)
from lowering.point import configuration_at
from lowering.space import tuning_space
from mdh_core.interpreter import integers, run
from mdh_core.ir import MdhProgram
from tests.catalogue import CATALOGUE, EVERYTHING, FLOAT, product, small_params
from tests.strategies import buffers_for, contents, copy_of, programs, sizes_for


def _leaves(c: Configuration) -> int:
    return math.prod(n for row in c.num_parts for n in row)


def _small(p: MdhProgram, model: machines.SystemModel, rng: random.Random) -> Configuration:
    """A random configuration whose leaves can be enumerated."""
    while True:
        c = random_configuration(rng, p, model)
        if _leaves(c) <= 2000:
            return c


@pytest.mark.parametrize("name", EVERYTHING)
def test_phases_equal_the_definition_for_the_catalogue(name: str) -> None:
    p, rng = EVERYTHING[name], random.Random(name)
    params = small_params(p)
    for q in p.params:
        if isinstance(params[q.name], int):
            params[q.name] = rng.choice((1, 2)) if len(p.hom.dims) > 4 else rng.choice((0, 1, 2, 3, 5))
    buffers = buffers_for(p, params, rng)
    expected = copy_of(buffers)
    run(p, params, expected)
    for model in (ARTIFICIAL, OPENMP):
        found = copy_of(buffers)
        low = LowLevelProgram(p, model, _small(p, model, rng))
        assert verify(low) == []
        execute(low, params, found)
        assert repr(contents(found)) == repr(contents(expected))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(max_dims=3), st.data())
def test_phases_equal_the_definition(p: MdhProgram, data: st.DataObject) -> None:
    params = data.draw(sizes_for(p, max_points=40))
    rng = data.draw(st.integers(0, 2**32).map(random.Random))
    buffers = buffers_for(p, params, rng)
    expected, found = copy_of(buffers), copy_of(buffers)
    run(p, params, expected)
    execute(LowLevelProgram(p, ARTIFICIAL, _small(p, ARTIFICIAL, rng)), params, found)
    assert repr(contents(found)) == repr(contents(expected))


def test_matvec_of_figure_17() -> None:
    """512 x 4096 on the artificial model: partition ((2, 4), (8, 16), (32, 64)), layer 2 on the cores."""
    p = CATALOGUE["matvec"]
    parts = ((2, 4), (8, 16), (32, 64))
    assign = (((0, 0), (0, 1)), ((2, 0), (2, 1)), ((1, 0), (1, 1)))
    c = make(p, ARTIFICIAL, parts, assign=assign)
    assert why_not_legal(c, p, ARTIFICIAL) is None
    assert [c.part_size((0, d)) for d in (0, 1)] == [256, 1024]
    assert [c.part_size((1, d)) for d in (0, 1)] == [32, 64]
    nest = lower(p, c, replace(GENERIC, model=ARTIFICIAL)).stages[0]
    assert isinstance(nest, Nest)
    bound = nest.loops[nest.threads[0] : nest.threads[1]]
    assert [(x.dim, x.count) for x in bound] == [("i", 8), ("k", 16)]  # 128 threads
    assert nest.results == "parts"  # threads share the reduced dimension


def test_every_published_model_is_there() -> None:
    pairs = {m.name: (len(m.memory), len(m.core)) for m in MODELS.values()}
    expected = {
        "artificial": (2, 1), "OpenMP": (3, 1), "OpenMP+L3": (4, 1), "OpenMP+L3+SIMD": (4, 2),
        "CUDA": (3, 2), "CUDA+WRP": (3, 3), "OpenCL": (3, 2), "Multi-GPU": (4, 3),
        "Multi-Node-Multi-GPU": (5, 4),
    }  # fmt: skip
    assert expected.items() <= pairs.items()


def _broken(c: Configuration, **change: object) -> str | None:
    return why_not_legal(replace(c, **change), CATALOGUE["matvec"], OPENMP)  # type: ignore[arg-type]


def test_constraints_name_the_parameter() -> None:
    p = CATALOGUE["matvec"]
    c = make(p, OPENMP, ((1, 1),) * 4)
    every = levels(OPENMP, 2)
    assert why_not_legal(c, p, OPENMP) is None
    assert "0:" in str(_broken(c, num_parts=((1, 1), (0, 1), (1, 1), (1, 1))))
    assert "D1" in str(_broken(c, decompose_order=(every[0],) * 8))
    assert "S2" in str(_broken(c, scalar_assign=(((0, 0), (0, 0)),) * 4))
    assert "D3" in str(_broken(c, scalar_input_memory=(("M", 7), ("v", 0))))
    assert "D4" in str(_broken(c, scalar_input_layout=(("M", (0, 0)), ("v", (0,)))))


def test_exact_keeps_a_float_reduction_in_order() -> None:
    p = replace(CATALOGUE["dot"], fp="exact")
    model = OPENMP_REG_SIMD
    parts = ((1,), (1,), (4,), (1,), (1,), (8,))
    vectors = make(p, model, parts)
    assert "fp(exact)" in str(why_not_legal(vectors, p, model))
    assert why_not_legal(vectors, CATALOGUE["dot"], model) is None
    sizes = ({"k": 100000},)
    point = default_point((p,), GENERIC, sizes)
    (chosen,) = configuration_at((p,), GENERIC, sizes, point)
    assert why_not_legal(chosen, p, model) is None


def test_scans_stay_contiguous() -> None:
    p = CATALOGUE["scan"]
    every = levels(OPENMP, 1)
    c = make(p, OPENMP, ((1,), (2,), (3,), (1,)), order=tuple(reversed(every)))
    assert "scanned" in str(why_not_legal(c, p, OPENMP))


def test_scan_with_a_reduction_becomes_two_stages() -> None:
    p = CATALOGUE["mbbs"]
    c = make(p, OPENMP, ((1, 1),) * 4)
    stages = lower(p, c, replace(GENERIC, model=OPENMP)).stages
    assert [type(s) for s in stages] == [Nest, ScanNest]


def test_differing_phases_become_stages_of_their_own() -> None:
    p = CATALOGUE["matmul"]
    c = make(p, OPENMP, ((1, 1, 1),) * 4)
    turned = replace(c, recompose_order=tuple(reversed(c.recompose_order)))
    machine = replace(GENERIC, model=OPENMP)
    assert len(lower(p, c, machine).stages) == 1
    assert len(lower(p, turned, machine).stages) == 2  # map, then re-composition
    both = replace(turned, decompose_order=tuple(reversed(c.decompose_order[1:])) + c.decompose_order[:1])
    assert len(lower(p, both, machine).stages) == 4  # two operand copies as well


@pytest.mark.parametrize("name", EVERYTHING)
def test_configurations_survive_json(name: str) -> None:
    import json

    c = random_configuration(random.Random(name), EVERYTHING[name], OPENMP_REG_SIMD)
    assert from_json(json.loads(json.dumps(to_json(c)))) == c


@pytest.mark.parametrize("name", EVERYTHING)
def test_points_of_the_space_are_legal(name: str) -> None:
    """Random points of the tuning space, and the default, give legal configurations."""
    p, rng = EVERYTHING[name], random.Random(name)
    ints = {q.name: 300 if len(p.hom.dims) < 4 else 20 for q in p.params}
    sizes = (p.sizes(integers(ints)),)
    space = tuning_space((p,), GENERIC, sizes)
    points = [default_point((p,), GENERIC, sizes)]
    while len(points) < 30:
        point = {n: rng.choice(values) for n, values in space.parameters}
        if all(eval(r, {}, point) for r in space.restrictions):
            points.append(point)
    for point in points:
        (c,) = configuration_at((p,), GENERIC, sizes, point)
        assert why_not_legal(c, p, GENERIC.model) is None, point


# --------------------------------------------------------------------------- domains


def test_tiles_are_full_partial_or_empty() -> None:
    p = EVERYTHING["strict_upper"]
    params = {"N": 1024, "M": 1024}
    assert classify(p, params, {"i": 32, "j": 32}) == {"full": 496, "partial": 32, "empty": 496}
    assert classify(p, params | {"N": 1000}, {"i": 32, "j": 1024}) == {"full": 0, "partial": 32, "empty": 0}
    assert classify(EVERYTHING["map"], {"N": 33}, {"i": 32}) == {"full": 1, "partial": 1, "empty": 0}
    line = EVERYTHING["strided_line"]
    assert classify(line, {"N": 9, "M": 9, "T": 8}, {}) == {"full": 5, "partial": 0, "empty": 76}


def test_what_a_box_reads_around_the_domain() -> None:
    def rows(name: str) -> list[list[str] | None]:
        p = EVERYTHING[name]
        found = [read_in_boxes(p, a) for a in p.inp.accesses]
        return [None if r is None else [str(a) for a in r] for r in found]

    assert rows("syrk") == [[], []]  # every row meets some column
    assert rows("trmm") == [["-i + k - 1"], ["k - 1"]]
    assert rows("strict_upper") == [["-i + j - 1"]]
    assert rows("trapezoid")[0] is not None
    assert rows("polynomials")[0] == ["D - 2*i - 1"]


def test_operands_are_copied_only_where_a_box_may_be_read() -> None:
    machine = replace(GENERIC, model=OPENMP)
    for name, buffers in (("gemm", {"A", "B"}), ("syrk_t", set()), ("trmm", set()), ("ell_spmv", {"v", "col"})):
        p = EVERYTHING[name]
        names = {a.buffer for a in p.inp.accesses}
        every = {b: (2, (3, 0), tuple(reversed(range(p.buffer(b).rank)))) for b in names}
        c = make(p, OPENMP, ((1,) * len(p.hom.dims),) + ((4,) * len(p.hom.dims),) * 3, memory=every)
        nest = lower(p, c, machine).stages[0]
        assert isinstance(nest, Nest)
        assert {pack.buffer for pack in nest.packs} == buffers, name
        turned = replace(c, decompose_order=tuple(reversed(c.decompose_order)))
        assert (len(lower(p, turned, machine).stages) > 1) == (not p.hom.domain)


def test_the_cost_model_counts_points_of_the_domain() -> None:
    sizes = {"i": 1000, "j": 1000, "k": 10}
    box = EVERYTHING["syrk"]
    box = replace(box, hom=replace(box.hom, domain=()))
    assert facts(box, sizes).points == 10_000_000
    assert 0.45 < facts(EVERYTHING["syrk"], sizes).points / 10_000_000 < 0.55
    sizes = {"i": 300, "j": 300, "k": 300}
    assert 0.12 < facts(EVERYTHING["triangle3"], sizes).points / 27_000_000 < 0.21
    costs = [
        estimate((p,), GENERIC, (sizes,), default_point((p,), GENERIC, (sizes,)))
        for p in (EVERYTHING["syrk"], box)
    ]
    assert costs[0] < 0.75 * costs[1]


def test_a_matrix_that_is_read_across_its_rows_is_read_in_long_runs_of_few_rows() -> None:
    """Else what hardware fetches ahead is thrown away: less than half of the bandwidth was measured."""
    p = product("matvec_t", "j:J i:I", "cc pw", "M[i, j]", "x[i]", "y[j]")
    for bytes_of_vector, registers in ((32, 16), (64, 32)):
        machine = replace(GENERIC, cores=2, vector_bytes=bytes_of_vector, registers=registers)
        point = default_point((p,), machine, ({"j": 8192, "i": 8192},))
        assert point["vector"] == "j"
        assert int(point["block_j"]) * FLOAT.size >= 4096
        assert 1 < int(point["visit_i"] or point["block_i"]) <= 8


def test_planes_of_a_stencil_stay_in_the_second_cache() -> None:
    """A core waits for what comes from memory and for what comes again from the last cache, one after the other."""
    p = EVERYTHING["jacobi3d"]
    machine = replace(GENERIC, cores=2, vector_bytes=64, registers=32, l2=1 << 20, l3=32 << 20)
    dims = [d.name for d in p.hom.dims]
    for n, whole in ((254, False), (96, True)):
        point = default_point((p,), machine, (dict.fromkeys(dims, n),))
        assert (int(point[f"block_{dims[1]}"]) >= n) == whole, n


def test_functions_of_the_program_are_called_row_by_row() -> None:
    """A tile of rows shares nothing there; and blocks are small enough for threads to end together."""
    point = default_point((EVERYTHING["prl"],), GENERIC, ({"i": 1 << 15, "j": 1 << 15},))
    assert point["rows_i"] == 1
    assert int(point[f"block_{point['threads']}"]) <= (1 << 15) // (4 * GENERIC.cores)
