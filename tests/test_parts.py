"""Parts of a dimension whose size is known at run time only: equal for all threads, see ``lowering.parts``."""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from certify.traces import _cut
from emit.render import emit_openmp
from emit.request import KernelRequest
from lowering.arithmetic import arithmetic
from lowering.choice import default_point
from lowering.cost import cost
from lowering.facts import facts
from lowering.lower import Nest, lower
from lowering.machine import GENERIC
from lowering.parts import MANY, equal_parts, has_even_work
from lowering.point import Point, blocks_of, configuration_at
from lowering.space import tuning_space
from mdh_core.interpreter import run
from tests.catalogue import CATALOGUE, EVERYTHING
from tests.emitted import FLAGS, Case, check, with_constant_sizes, with_extents
from tests.lifting import lifted
from tests.strategies import buffers_for, copy_of

TWO = replace(GENERIC, cores=2)
PRODUCT: Point = {
    "vector": "j", "lanes": 8, "rows_i": 2, "block_i": 6, "block_j": 24, "block_k": 5, "pack_B": "block",
}  # fmt: skip
POINTS: dict[str, tuple[str, Point]] = {
    "rows": ("matmul", {**PRODUCT, "threads": "i", "pack_A": "panel"}),
    "columns": ("matmul", {**PRODUCT, "threads": "j", "pack_A": "row"}),
    "both": ("matmul", {**PRODUCT, "threads": "i,j", "pack_A": "block"}),
    "no copies": ("matmul", {**PRODUCT, "threads": "i,j", "pack_B": "no", "block_k": 0}),
    "map": ("jacobi2d", {"threads": "i", "vector": "j", "lanes": 8, "rows_i": 3, "block_i": 12, "block_j": 16}),
    "both of a map": ("jacobi2d", {"threads": "i,j", "vector": "j", "lanes": 8, "block_i": 4, "block_j": 16}),
}


def _shares(units: int, parts: int, threads: int) -> list[int]:
    """Units of each thread where parts that follow each other go to one thread (``schedule(static)``)."""
    begins = [units * k // parts for k in range(parts + 1)]
    few, more = divmod(parts, threads)
    ends = list(itertools.accumulate(few + (t < more) for t in range(threads)))
    return [begins[b] - begins[a] for a, b in zip([0, *ends], ends, strict=False)]


def test_threads_get_the_same_to_within_a_unit() -> None:
    for units, most, threads in itertools.product(range(1, 90), range(1, 9), range(1, 8)):
        parts = equal_parts(units, most, 1, threads)
        assert -(-units // parts) <= most
        shares = _shares(units, parts, threads)
        assert sum(shares) == units
        assert max(shares) - min(shares) <= 1


def test_parts_of_two_dimensions_are_a_multiple_of_the_threads() -> None:
    for units, most, others, threads in itertools.product(range(1, 40), range(1, 6), range(1, 5), range(1, 7)):
        parts = equal_parts(units, most, others, threads)
        assert -(-units // most) <= parts <= units
        few = others == 1 or -(-units // most) * others < MANY * threads
        if few and parts < units:
            assert parts * others % threads == 0
        if -(-units // most) * others % threads == 0:  # as it is: no smaller parts than need be
            assert parts == -(-units // most)


def _lowered(name: str, point: Point) -> Nest:
    p = EVERYTHING[name]
    (c,) = configuration_at((p,), TWO, ({d.name: 50 for d in p.hom.dims},), point)
    (stage,) = lower(p, c, TWO).stages
    assert isinstance(stage, Nest)
    return stage


def test_which_dimensions_are_divided() -> None:
    for name, point in POINTS.values():
        nest = _lowered(name, point)
        assert nest.divided == tuple(str(point["threads"]).split(","))
    nest = _lowered("matmul", {**PRODUCT, "threads": "j", "block_j": 8})
    assert nest.divided == ()  # a tile is a part already
    assert not has_even_work(EVERYTHING["syrk"])  # half of a square
    assert not has_even_work(EVERYTHING["mandelbrot"])  # a loop in each point


def test_results_that_must_not_depend_on_the_threads() -> None:
    """A copy that a part makes does not reach before it: its last tile is then clipped, else moved back."""
    p, (name, point) = EVERYTHING["matmul"], POINTS["rows"]
    assert name == "matmul"
    for fp, divided in (("fast", ("i",)), ("deterministic", ())):
        q = replace(p, fp=fp)
        (c,) = configuration_at((q,), TWO, ({"i": 50, "j": 50, "k": 50},), point)
        (nest,) = lower(q, c, TWO).stages
        assert isinstance(nest, Nest) and nest.divided == divided


def test_a_reduced_dimension_of_one_part_is_no_loop() -> None:
    p = with_constant_sizes(CATALOGUE["matmul"], {"I": 50, "J": 30, "K": 64})
    point: Point = {**POINTS["rows"][1], "threads": "i,k", "block_k": 64, "pack_A": "no", "pack_B": "no"}
    (c,) = configuration_at((p,), TWO, ({"i": 50, "j": 30, "k": 64},), point)
    (nest,) = lower(p, c, TWO).stages
    assert isinstance(nest, Nest) and nest.results == "direct"
    assert [x.dim for x in nest.loops[nest.threads[0] : nest.threads[1]]] == ["i"]


def test_constant_sizes_have_constant_parts_where_these_are_equal() -> None:
    """By tiles of two rows: 24 of them are eight parts of three, 25 are cut at run time, a part of all is halved."""
    for rows, block, divided, parts in ((48, 6, (), 6), (50, 6, ("i",), 6), (48, 600, (), 24), (2, 600, (), None)):
        sizes = {"i": rows, "j": 50, "k": 50}
        p = with_constant_sizes(CATALOGUE["matmul"], {"I": rows, "J": 50, "K": 50})
        point = {**POINTS["rows"][1], "block_i": block}
        (c,) = configuration_at((p,), TWO, (sizes,), point)
        (nest,) = lower(p, c, TWO).stages
        assert isinstance(nest, Nest) and nest.divided == divided
        shared = nest.loops[nest.threads[0] : nest.threads[1]]
        assert [x.size for x in shared] == ([] if parts is None else [parts])
        own = [x for x in nest.loops if x.dim == "i" and x not in shared]
        assert parts is None or math.prod(x.count or 0 for x in own) == parts  # what a part consists of


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_cell_is_computed(threads: int, tmp_path: Path) -> None:
    """Sizes of no part, less than a tile, whole parts, and one more or less, with fewer and more threads."""
    rng, cases = random.Random(threads), []
    for name, point in POINTS.values():
        p = EVERYTHING[name]
        (c,) = configuration_at((p,), TWO, ({d.name: 50 for d in p.hom.dims},), point)
        for rows, columns in ((0, 9), (1, 1), (5, 8), (6, 24), (7, 25), (13, 50), (24, 96), (31, 61)):
            params = {q.name: (rows, columns, 7)[k % 3] for k, q in enumerate(p.params)}
            params |= {q.name: 0.5 for q in p.params if q.type.is_float}  # type: ignore[union-attr]
            buffers = buffers_for(p, params, rng)
            symbolic, extra = with_extents(p, buffers, symbolic=True)
            expected = copy_of(buffers)
            run(p, params, expected)
            cases.append((Case(symbolic, c, {**params, **extra}, buffers, TWO), expected))
    check(cases, tmp_path, threads=threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_text_cuts_where_the_model_does(threads: int, tmp_path: Path) -> None:
    """What a kernel prints of its parts: where they begin and end."""
    p, point = EVERYTHING["jacobi2d"], POINTS["map"][1]
    (c,) = configuration_at((p,), TWO, ({"i": 50, "j": 50},), point)
    buffers = buffers_for(p, {q.name: 9 if not q.type.is_float else 0.5 for q in p.params}, random.Random(0))  # type: ignore[union-attr]
    kernel = emit_openmp(KernelRequest("k", "k", (with_extents(p, buffers, symbolic=True)[0],), (c,), TWO))
    text, found = re.subn(
        r"(const long i_part_end = .*;)", r'\1 printf("%ld-%ld ", i_1, i_part_end);', kernel.text
    )
    assert found == 1
    sizes = (1, 2, 3, 11, 12, 13, 24, 25, 36, 40, 100, 1000)
    signature = re.search(r"static int k\((.*)\)", text)
    assert signature is not None
    values = {"N1": "n", "N2": "9", "c": "0.5f", "I_n1": "20", "O_n1": "20", "I": "in", "O": "out"}
    given = [values[x.split()[-1].removeprefix("*__restrict").lstrip("*")] for x in signature[1].split(", ")]
    source = tmp_path / "parts.c"
    source.write_text(
        "#include <stdio.h>\nstatic float in[1100*1100], out[1100*1100];\n" + text
        + f"int main(void) {{ const long all[] = {{{', '.join(map(str, sizes))}}};\n"
        + f"  for (unsigned x = 0; x < {len(sizes)}; x++) {{ const long n = all[x]; k({', '.join(given)}); puts(\"\"); }}\n"
        + "  return 0; }\n"
    )  # fmt: skip
    flags = ["-O0", f"-DMDH_THREADS={threads}", "-o", str(tmp_path / "parts")]
    subprocess.run(["gcc", *flags, str(source)], check=True, timeout=120)
    ran = subprocess.run([str(tmp_path / "parts")], capture_output=True, text=True, check=True, timeout=60)
    for n, line in zip(sizes, ran.stdout.splitlines(), strict=True):
        units = -(-n // 3)
        parts = equal_parts(units, 4, 1, threads)
        begins = [units * k // parts * 3 for k in range(parts)]
        assert line.split() == [f"{a}-{b}" for a, b in zip(begins, [*begins[1:], n], strict=True)], (n, line)


def test_the_cost_model_counts_equal_parts() -> None:
    """1200 columns in parts of at most 288, by tiles of 48: 624 in the larger half, not 864."""
    f = facts(CATALOGUE["matmul"], {"i": 1200, "j": 1200, "k": 1200})
    point: Point = {
        "threads": "j", "vector": "j", "lanes": 48, "rows_i": 4, "block_i": 512, "block_j": 288, "block_k": 256,
    }  # fmt: skip
    assert blocks_of(f, point, "j", 2) == (6, 5 * 48)
    assert blocks_of(f, point, "i", 2) == (3, 512)
    assert arithmetic(f, TWO, point).balance == 25 / 13  # tiles, of which one thread has 13
    known = facts(
        with_constant_sizes(CATALOGUE["matmul"], {"I": 1200, "J": 1200, "K": 1200}), dict(f.sizes)
    )
    assert blocks_of(known, point, "j", 2) == (6, 240)
    assert arithmetic(known, TWO, point).balance == 25 / 13


def test_the_cost_model_counts_the_tiles_of_the_busiest_thread() -> None:
    sixteen = replace(GENERIC, cores=16)
    f = facts(CATALOGUE["matmul"], {"i": 1024, "j": 1024, "k": 1024})
    point: Point = {
        "threads": "j", "vector": "j", "lanes": 48, "rows_i": 4, "block_i": 512, "block_j": 96, "block_k": 256,
    }  # fmt: skip
    assert arithmetic(f, sixteen, point).balance == 11  # 22 tiles: 6 threads have two, 10 one
    assert arithmetic(f, sixteen, point, even=True).balance == 16
    assert arithmetic(f, sixteen, {**point, "lanes": 64, "block_j": 64}).balance == 16
    both: Point = {**point, "threads": "i,j", "rows_i": 8, "block_i": 64, "block_j": 528}
    assert blocks_of(f, both, "i", 16) == (16, 64)
    assert blocks_of(f, both, "j", 16) == (2, 528)  # each thread has both
    assert arithmetic(f, sixteen, both).balance == 16
    assert blocks_of(f, both, "i", 24) == (24, 48)
    assert arithmetic(f, replace(GENERIC, cores=24), both).balance == 128 / 6


def test_lines_that_two_threads_write_cost() -> None:
    """Of 254 results in a row 16 threads have 8 or 16 each: half a line, or a whole one."""
    sixteen = replace(GENERIC, cores=16, bandwidth=2e11, l3=300 << 20)
    f = facts(EVERYTHING["jacobi3d"], {"i": 254, "j": 254, "k": 254})
    point: Point = {"threads": "k", "vector": "k", "lanes": 4, "block_i": 254, "block_j": 254, "block_k": 16}
    assert blocks_of(f, point, "k", 16) == (16, 16)
    halves: Point = {**point, "block_k": 12}
    assert blocks_of(f, halves, "k", 16) == (32, 8)
    assert cost(f, sixteen, halves) > 1.8 * cost(f, sixteen, point)


def test_traces_cut_here_and_there() -> None:
    assert list(_cut(14, 2, 6)) == [(0, 2), (2, 8), (8, 10), (10, 16)]
    assert list(_cut(0, 2, 6)) == []


# --------------------------------------------------------------------------- visits of a reduced dimension's parts

TRANSPOSED = """void f(int n, int m, const double *restrict A, const double *restrict u, double *restrict z)
{
#pragma mdh
    for (int k = 0; k < m; k++) {
        double s = 0.0;
        for (int i = 0; i < n; i++) s += A[i*m + k]*u[i];
        z[k] = s;
    }
}
"""
VISITS = [
    {"visit_i": 4, "block_i": 8},
    {"visit_i": 8, "block_i": 20, "unroll_i": 4},
    {"visit_i": 2, "block_i": 6, "pack_u": "panel"},
    {"visit_i": 4, "block_i": 12, "vector": "-", "lanes": 1, "block_k": 5},
]


@pytest.mark.parametrize("changed", VISITS)
def test_visits_at_all_sizes(changed: Point, tmp_path: Path) -> None:
    """Parts that are no multiple of a visit, less than a visit, rows shorter than a tile: all once."""
    (p,) = lifted(TRANSPOSED).programs
    point: Point = {"threads": "i", "vector": "k", "lanes": 8, "block_k": 16, "unroll_i": 1} | changed
    cases, rng = [], random.Random(11)
    for n, m in [(0, 5), (1, 1), (3, 8), (4, 0), (5, 17), (7, 33), (8, 16), (9, 7), (13, 40), (23, 31), (25, 9)]:
        params = {q.name: {"n": n, "m": m}[q.name] for q in p.params}
        buffers = buffers_for(p, params, rng)
        sized, extra = with_extents(p, buffers)
        (c,) = configuration_at((sized,), TWO, ({"k": max(m, 1), "i": max(n, 1)},), point)
        (stage,) = lower(sized, c, TWO).stages
        assert isinstance(stage, Nest)
        part, visit, *_ = [x.size for x in stage.loops if x.dim == "i"]
        assert part == -(-int(point["block_i"]) // visit) * visit and visit == point["visit_i"]
        expected = copy_of(buffers)
        run(sized, {**params, **extra}, expected)
        cases.append((Case(sized, c, {**params, **extra}, buffers, TWO), expected))
    check(cases, tmp_path, flags=(*FLAGS, "-O2", "-mavx2"))


def test_rows_from_memory_are_read_from_end_to_end() -> None:
    """What threads share of a transposed product from memory: rows, a few at a time with all their columns."""
    (p,) = lifted(TRANSPOSED).programs
    machine = replace(TWO, vector_bytes=64, registers=32, l2=1 << 20, l3=32 << 20)
    large = default_point((p,), machine, ({"k": 4096, "i": 4096},))
    assert large["threads"] == "i" and 0 < int(large["visit_i"]) < int(large["block_i"])
    assert int(large["block_k"]) >= 4096
    long = default_point((p,), machine, ({"k": 8192, "i": 8192},))  # 64 KiB of sums
    assert long["visit_i"] and int(long["block_k"]) >= 8192
    longer = default_point((p,), machine, ({"k": 1 << 17, "i": 1000},))  # the sums of whole rows are 1 MiB
    assert not longer.get("visit_i") or int(longer["block_k"]) * 8 <= 1 << 18
    small = default_point((p,), machine, ({"k": 500, "i": 500},))  # in the second cache
    assert not small.get("visit_i", 0)


def test_a_visit_belongs_to_parts_of_threads() -> None:
    """Where threads share another dimension, or a part is no longer than it, it does nothing."""
    (p,) = lifted(TRANSPOSED).programs
    space = tuning_space((p,), TWO, ({"k": 4096, "i": 4096},))
    (rule,) = [rule for name, rule in space.idle if name == "visit_i"]
    base = {"threads": "i", "block_i": 512, "visit_i": 4}
    for changed, holds in (({}, True), ({"threads": "k"}, False), ({"visit_i": 0, "threads": "k"}, True)):
        assert bool(eval(rule, {}, {**base, **changed})) == holds
    assert "visit_i" not in tuning_space((p,), TWO, ({"k": 40, "i": 200},)).names
