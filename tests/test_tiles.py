"""Loops over tiles are taken away where the order allows it (``lifter/tiles.py``)."""

from __future__ import annotations

import random
import re

import pytest

from certify.certificate import certificate
from lifter.lift import lift
from lifter.tiles import untiled
from lifter.trees import loops_in
from mdh_lift.c_value import value as c_value
from tests.lifting import check_meaning, check_refused_loop, lifted, nests, operators, step_lines

MIN = "#define MIN(a, b) ((a) < (b) ? (a) : (b))\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\n"
MATRICES = "const double *restrict A, const double *restrict B, double *restrict C"
ADDED = "C[i*n + j] += A[i*n + k] * B[k*n + j];"


def function(nest: str, params: str = f"int n, int b, {MATRICES}", before: str = "") -> str:
    return f"{MIN}void f({params})\n{{\n{before}\n#pragma mdh\n{nest}\n}}\n"


def tiled(block: str, loops: str = "ijk", statement: str = ADDED) -> str:
    """Loops over tiles outside, over points inside, clipped at ``n``."""
    out = [f"for (int {x}{x} = 0; {x}{x} < n; {x}{x} += {block})" for x in loops]
    out += [f"for (int {x} = {x}{x}; {x} < MIN({x}{x} + {block}, n); {x}++)" for x in loops]
    return "\n".join([*out, statement])


PRODUCTS = {
    "all three": tiled("2"),
    "by a variable": tiled("b"),
    "one of three": """for (int kk = 0; kk < n; kk += b)
        for (int i = 0; i < n; i++)
          for (int j = 0; j < n; j++)
            for (int k = kk; k < (kk + b < n ? kk + b : n); k++) """ + ADDED,
    "two conditions": """for (int jj = 0; jj < n; jj += b)
        for (int i = 0; i < n; i++)
          for (int j = jj; j < jj + b && j < n; j++)
            for (int k = 0; k < n; k++) """ + ADDED,
    "conditions the other way round": """for (int jj = 0; jj < n; jj += 3)
        for (int i = 0; i < n; i++)
          for (int j = jj; n > j && j < jj + 3 && j < n; j++)
            for (int k = 0; k < n; k++) """ + ADDED,
    "ends in variables": """for (int ii = 0; ii < n; ii += b) {
        const int last = ii + b < n ? ii + b : n;
        for (int jj = 0; jj < n; jj += b) {
          int end = jj + b;
          if (end > n) end = n;
          for (int i = ii; i < last; i++)
            for (int j = jj; j < end; j++)
              for (int k = 0; k < n; k++) """ + ADDED + "}}",
    "a cell in a variable": """for (int kk = 0; kk < n; kk += b)
        for (int i = 0; i < n; i++)
          for (int j = 0; j < n; j++) {
            double sum = C[i*n + j];
            for (int k = kk; k < MIN(kk + b, n); k++) sum += A[i*n + k] * B[k*n + j];
            C[i*n + j] = sum;
          }""",
    "sums of tiles": """for (int kk = 0; kk < n; kk += 2)
        for (int i = 0; i < n; i++)
          for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = kk; k < MIN(kk + 2, n); k++) sum += A[i*n + k] * B[k*n + j];
            C[i*n + j] += sum;
          }""",
    "two levels": """for (int i3 = 0; i3 < n; i3 += 4)
        for (int i2 = i3; i2 < MIN(i3 + 4, n); i2 += 2)
          for (int j = 0; j < n; j++)
            for (int i = i2; i < MIN(i2 + 2, MIN(i3 + 4, n)); i++)
              for (int k = 0; k < n; k++) """ + ADDED,
    "numbers of tiles": """for (int t = 0; t < (n + 3) / 4; t++)
        for (int i = 0; i < n; i++)
          for (int j = 4 * t; j < MIN(4 * t + 4, n); j++)
            for (int k = 0; k < n; k++) """ + ADDED,
    "a factor between the loops": """for (int jj = 0; jj < n; jj += b)
        for (int kk = 0; kk < n; kk += b)
          for (int i = 0; i < n; i++)
            for (int k = kk; k < MIN(kk + b, n); k++) {
              const double r = A[i*n + k];
              for (int j = jj; j < MIN(jj + b, n); j++) C[i*n + j] += r * B[k*n + j];
            }""",
    "all ends in the innermost loop over tiles": """for (int bi = 0; bi < (n + 3) / 4; bi++)
        for (int bj = 0; bj < (n + 3) / 4; bj++)
          for (int bk = 0; bk < (n + 3) / 4; bk++) {
            const int i0 = bi * 4, i1 = MIN(i0 + 4, n), j0 = bj * 4, j1 = MIN(j0 + 4, n);
            int k0 = bk * 4, k1;
            if (k0 + 4 < n) k1 = k0 + 4; else k1 = n;
            for (int i = i0; i < i1; i++)
              for (int j = j0; j < j1; j++)
                for (int k = k0; k < k1; k++) """ + ADDED + "}",
    "ends of both in the inner loop": """for (int ii = 0; ii < n; ii += b)
        for (int jj = 0; jj < n; jj += b) {
          const int last = MIN(ii + b, n);
          int end = jj + b;
          if (end > n) end = n;
          for (int i = ii; i < last; i++)
            for (int j = jj; j < end; j++)
              for (int k = 0; k < n; k++) """ + ADDED + "}",
    "lengths": """for (int ii = 0; ii < n; ii += b) {
        const int rows = MIN(b, n - ii);
        for (int i = ii; i < ii + rows; i++)
          for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) """ + ADDED + "}",
    "offsets": """for (int ii = 0; ii < n; ii += b)
        for (int jj = 0; jj < n; jj += b)
          for (int i = 0; i < MIN(b, n - ii); i++)
            for (int j = 0; j < b && jj + j < n; j++)
              for (int k = 0; k < n; k++)
                C[(ii + i)*n + jj + j] += A[(ii + i)*n + k] * B[k*n + jj + j];""",
    "inner tiles that end where the outer ones do": """for (int i3 = 0; i3 < n; i3 += 4)
        for (int i2 = i3; i2 < MIN(i3 + 4, n); i2 += 2)
          for (int j = 0; j < n; j++)
            for (int i = i2; i < MIN(i2 + 2, n); i++)
              for (int k = 0; k < n; k++) """ + ADDED,
    "points by twos": """for (int ii = 0; ii < n; ii += 4)
        for (int j = 0; j < n; j++)
          for (int i = ii; i < MIN(ii + 4, n); i += 2)
            for (int k = 0; k < n; k++) """ + ADDED,
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_tiled_product_is_a_product(name: str) -> None:
    found = lifted(function(PRODUCTS[name]))
    dims = sorted(operators(found).split())
    assert dims == ["i:cc", "j:cc", "k:pw(+)"]
    (program,) = found.programs
    assert not program.hom.domain
    assert check_meaning(found) > 0


def test_variables_declared_before_the_nest() -> None:
    before = "int i, j, k, jj, kk, en = b * (n / b);\ndouble sum;"
    found = lifted(function("""for (kk = 0; kk < en; kk += b)
        for (jj = 0; jj < en; jj += b)
          for (i = 0; i < n; i++)
            for (j = jj; j < jj + b; j++) {
              sum = C[i*n + j];
              for (k = kk; k < kk + b; k++) sum += A[i*n + k] * B[k*n + j];
              C[i*n + j] = sum;
            }""", before=before))  # fmt: skip
    assert operators(found) == "i:cc j:cc k:pw(+)"
    assert check_meaning(found) > 0


def test_a_last_tile_that_is_not_clipped_goes_as_far_as_it_did() -> None:
    text = "for (int ii = 0; ii < n; ii += {0}) for (int i = ii; i < ii + {0}; i++) C[i] = A[i] + 1;"
    for block in ("4", "b"):
        found = lifted(function(text.format(block)))
        assert operators(found) == "i:cc"
        (program,) = found.programs
        values = {"n": 5, "b": 4}
        for p in found.nest.params:
            values[p.name] = c_value(p.value, values)
        assert program.hom.dims[0].size.evaluate(values) == 8
        assert check_meaning(found) > 0


UNSIGNED = """for ({0} ii = 0; ii < n; ii += {1}) {{
    {0} end = ii + {1};
    if (end > n) end = n;
    for ({0} jj = 0; jj < n; jj += {1})
      for ({0} i = ii; i < end; i++)
        for ({0} j = jj; j < MIN(jj + {1}, n); j++) C[i*n + j] = A[j*n + i];
  }}"""


@pytest.mark.parametrize("kind", ["size_t", "unsigned", "long"])
@pytest.mark.parametrize("block", ["4", "b"])
def test_tiles_of_other_types_than_int(kind: str, block: str) -> None:
    found = lifted("#include <stddef.h>\n" + function(UNSIGNED.format(kind, block), f"{kind} n, {kind} b, {MATRICES}"))
    assert operators(found) == "i:cc j:cc"
    assert not found.programs[0].hom.domain
    assert check_meaning(found) > 0


def test_a_minimum_of_unsigned_numbers_from_which_something_is_taken_is_none() -> None:
    """``n - 5`` is large where ``n`` is small."""
    nest = "for (size_t i = 0; i < MIN(m, n - 5); i++) C[i] = A[i];"
    found = lifted("#include <stddef.h>\n" + function(nest, f"size_t n, size_t m, {MATRICES}"))
    if found.status != "refused":
        (program,) = found.programs
        assert not program.hom.domain and str(program.hom.dims[0].size) == "mdh_p0"  # as C computes it
        assert check_meaning(found) > 0


@pytest.mark.parametrize(
    "text", ["return a < b ? a : b;", "if (a < b) return a; return b;", "if (b <= a) return b; else return a;"]
)
def test_minima_by_functions(text: str) -> None:
    least = f"static inline int least(int a, int b) {{ {text} }}\n"
    found = lifted(least + function(tiled("b").replace("MIN", "least")))
    assert sorted(operators(found).split()) == ["i:cc", "j:cc", "k:pw(+)"]
    assert check_meaning(found) > 0


def test_tiles_inside_of_rows_that_run_in_order() -> None:
    """What points backwards along ``j`` points to a row before, which is done whole."""
    found = lifted(function("""for (int i = 1; i < n; i++)
        for (int jj = 0; jj < n - 1; jj += b)
          for (int j = jj; j < MIN(jj + b, n - 1); j++) C[i*n + j] = C[(i-1)*n + j + 1] + A[i*n + j];
        """))  # fmt: skip
    assert step_lines(found.program) == ["i: host_loop", "> j: cc"]
    assert check_meaning(found) > 0


def test_a_triangle_in_tiles() -> None:
    found = lifted(function("""for (int ii = 0; ii < n; ii += 2)
        for (int jj = 0; jj < n; jj += 2)
          for (int i = ii; i < MIN(ii + 2, n); i++)
            for (int j = jj; j < MIN(jj + 2, i + 1); j++) C[i*n + j] = A[j*n + i];"""))  # fmt: skip
    assert operators(found) == "i:cc j:cc"
    assert len(found.programs[0].hom.domain) == 1
    assert check_meaning(found) > 0


def test_a_temporary_of_a_tile_s_points() -> None:
    before = "double t;"
    found = lifted(function("""for (int ii = 0; ii < n; ii += b)
        for (int j = 0; j < n; j++)
          for (int i = ii; i < MIN(ii + b, n); i++) {
            t = A[i*n + j];
            C[i*n + j] = t * t;
          }""", before=before))  # fmt: skip
    assert operators(found) == "j:cc i:cc"
    assert check_meaning(found) > 0


def test_a_sweep_in_place_keeps_its_order() -> None:
    """All dependences point forward along both dimensions, so that tiles are legal in it, and no tiles, too."""
    found = lifted(function("""for (int ii = 1; ii < n; ii += b)
        for (int jj = 1; jj < n; jj += b)
          for (int i = ii; i < MIN(ii + b, n); i++)
            for (int j = jj; j < MIN(jj + b, n); j++) C[i*n + j] = 0.5 * (C[(i-1)*n + j] + C[i*n + j-1] + C[i*n + j]);
        """))  # fmt: skip
    assert step_lines(found.program) == ["w: host_loop", "> i: cc"]
    assert check_meaning(found) > 0


BACKWARDS = """for (int ii = 1; ii < n; ii += {0})
    for (int jj = 0; jj < n - 1; jj += {0})
      for (int i = ii; i < MIN(ii + {0}, n); i++)
        for (int j = jj; j < MIN(jj + {0}, n - 1); j++) C[i*n + j] = C[(i-1)*n + j + 1] + A[i*n + j];"""


def test_tiles_that_change_what_is_computed_stay() -> None:
    """What row ``i`` reads at ``j + 1`` is not yet new in the tiles, where ``j + 1`` is in the next one."""
    (nest,) = nests(function(BACKWARDS.format("2")))
    assert untiled(nest) is None
    found = lift(nest)
    assert len(loops_of(found)) > 2
    assert check_meaning(found) > 0


def loops_of(found) -> set[str]:  # type: ignore[no-untyped-def]
    """The names of dimensions and host loops."""
    return {w.strip("> ,:") for line in step_lines(found.program) for w in line.split() if w.endswith(":")}


def test_tiles_by_a_variable_that_must_stay_are_refused() -> None:
    text = function(BACKWARDS.format("b"))
    found = lifted(text)
    assert found.status == "refused"
    (why,) = found.diagnostics
    assert (why.code, why.message) == ("MDH202", "bound of the loop over `i` is not affine")
    assert text[why.span.start : why.span.end] == "for (int i = ii; i < MIN(ii + b, n); i++"
    assert why.help == "make `b` a constant, or write the loops without tiles"


def test_what_is_in_the_way_of_tiles_by_a_variable_is_named() -> None:
    nest = "for (int ii = 0; ii < n; ii += b) { C[0] += 1; for (int i = ii; i < MIN(ii + b, n); i++) C[i + 1] = A[i]; }"
    text = function(nest)
    (why,) = lifted(text).diagnostics
    (there,) = why.related
    assert (why.code, text[there.span.start : there.span.end]) == ("MDH202", "C[0] += 1")
    assert there.label == "this is done once per tile"


@pytest.mark.parametrize(
    "nest",
    [
        # once per tile
        "for (int ii = 0; ii < n; ii += 2) { C[0] += 1; for (int i = ii; i < MIN(ii + 2, n); i++) C[i + 1] = A[i]; }",
        # the tile is used
        "for (int ii = 0; ii < n; ii += 2) for (int i = ii; i < MIN(ii + 2, n); i++) C[i] = A[i] + ii;",
        # points of two tiles, or between them
        "for (int ii = 0; ii < n; ii += 2) for (int i = ii; i < MIN(ii + 3, n); i++) C[i] += A[i];",
        "for (int ii = 0; ii < n; ii += 3) for (int i = ii; i < MIN(ii + 2, n); i++) C[i] += A[i];",
        # two points of one tile are not those of the next
        "for (int ii = 0; ii < n; ii += 3) for (int i = ii; i < MIN(ii + 3, n); i += 2) C[i] += A[i];",
        # the place in the tile is used
        "for (int ii = 0; ii < n; ii += 2) for (int i = 0; i < 2; i++) C[i] += A[ii + i];",
        "for (int ii = 0; ii < n; ii += 2) for (int i = 0; i < 2 && ii + i < n; i++) C[ii + i] = A[i];",
        # tiles that begin elsewhere than their points
        "for (int ii = 0; ii < n; ii += 2) for (int i = MAX(ii, 2*ii - 4); i < MIN(ii + 2, n); i++) C[i] += A[i];",
        # what is read between the loops is written in them
        """for (int jj = 1; jj < n; jj += 2)
             for (int i = 0; i < n; i++) {
               double r = C[i*n];
               for (int j = jj; j < MIN(jj + 2, n); j++) C[i*n + j - 1] += r * A[j];
             }""",
        # the sum of a tile is stored
        """for (int kk = 0; kk < n; kk += 2) {
             double sum = 0;
             for (int k = kk; k < MIN(kk + 2, n); k++) sum += A[k];
             C[kk] = sum;
           }""",
    ],
)
def test_what_is_done_once_per_tile_keeps_the_tiles(nest: str) -> None:
    (read,) = nests(function(nest))
    assert untiled(read) is None
    found = lift(read)
    if found.status != "refused":
        assert check_meaning(found, well_formed=False) >= 0


@pytest.mark.parametrize(
    "nest",
    [
        # inner tiles that end between two of the outer ones
        """for (int i3 = 0; i3 < n; i3 += 3)
             for (int i2 = i3; i2 < MIN(i3 + 3, n); i2 += 2)
               for (int i = i2; i < MIN(i2 + 2, n); i++) C[i] += A[i];""",
        # a triangle of tiles, some of which have all their columns
        """for (int ii = 0; ii < n; ii += 2)
             for (int jj = 0; jj <= ii; jj += 2)
               for (int i = ii; i < MIN(ii + 2, n); i++)
                 for (int j = jj; j < MIN(jj + 2, n); j++) C[i*n + j] += A[j*n + i];""",
    ],
)
def test_some_tiles_may_go_and_others_stay(nest: str) -> None:
    (read,) = nests(function(nest))
    plain = untiled(read)
    assert plain is not None
    assert len(list(loops_in(plain.body))) == len(list(loops_in(read.body))) - 1
    found = lift(read)
    if found.status != "refused":
        assert check_meaning(found, well_formed=False) >= 0


def test_exact_sums_of_tiles_stay() -> None:
    text = function(PRODUCTS["sums of tiles"])
    (read,) = nests(text.replace("#pragma mdh", "#pragma mdh fp(exact)"))
    assert untiled(read) is None
    (loose,) = nests(text)
    assert untiled(loose) is not None


def test_a_parameter_for_the_end_is_there_only_where_it_is_used() -> None:
    found = lifted(function(PRODUCTS["by a variable"]))
    assert [p.name for p in found.nest.params] == ["b", "n", "mdh_p0"]  # how many tiles, for the source's loops


STATEMENTS = (
    "C[i*n + j] += A[i*n + j] * B[j*n + i];",
    "C[i*n + j] = C[(i - {p})*n + j - {q}] + A[i*n + j];",
    "C[i*n + j] = C[(i + {p})*n + j - {q}] + 1;",
    "C[i] += A[i*n + j];",
    "C[j] = C[j] * 2 + A[i*n + j];",
    "{{ C[i*n + j] = A[i*n + j]; if (i > {p}) C[(i - {p})*n + j] += C[i*n + j]; }}",
    "{{ double t = A[i*n + j]; C[j*n + i] = t; }}",
)


POINTS = (
    *["for (int {x} = {xx}; {x} < MIN({xx} + {b}, {high}); {x}++)"] * 3,
    "for (int {x} = MAX({xx}, 3); {x} < {xx} + {b} && {x} < {high}; {x}++)",
    "for (int {x}0 = 0; {x}0 < {b} && {xx} + {x}0 < {high}; {x}0++)",
    "for (int {x}0 = 0; {x}0 < MIN({b}, {high} - {xx}); {x}0++)",
)


@pytest.mark.parametrize("seed", range(120))
def test_random_tiles_compute_what_the_source_computes(seed: int) -> None:
    """Two loops, each in tiles or not, in any order that has its tiles outside."""
    rng = random.Random(seed)
    p, q = rng.choice([(0, 1), (1, 0), (1, 1), (1, -1), (2, 1), (1, -2)])
    low, high = max(p, abs(q), 1), f"n - {max(p, abs(q), 1)}"
    block = rng.choice(["2", "3", "b", "b"])
    heads: list[tuple[str, str]] = []
    for x in "ij":
        if rng.random() < 0.7:
            heads.append((x + x, f"for (int {x}{x} = {low}; {x}{x} < {high}; {x}{x} += {block})"))
            heads.append((x, rng.choice(POINTS).format(x=x, xx=x + x, b=block, high=high)))
        else:
            heads.append((x, f"for (int {x} = {low}; {x} < {high}; {x}++)"))
    while True:
        rng.shuffle(heads)
        order = [x for x, _ in heads]
        if all(order.index(x + x) < order.index(x) for x in "ij" if x + x in order):
            break
    statement = rng.choice(STATEMENTS).format(p=p, q=q)
    for x in "ij":
        if any(f"int {x}0" in head for _, head in heads):
            statement = re.sub(rf"\b{x}\b", f"({x}{x} + {x}0)", statement)
    found = lifted(function("\n".join([*(h for _, h in heads), statement])))
    if found.status == "refused":
        assert found.diagnostics[0].code in ("MDH202", "MDH208", "MDH213", "MDH206")
    else:
        check_meaning(found, trials=6, seed=seed)


@pytest.mark.parametrize(
    "nest",
    [
        # the end of the last tile is used behind it
        """for (int t = 0; t < n; t++) {
             int end = 1;
             for (int ii = 0; ii < n; ii += 2) { end = MIN(ii + 2, n); for (int i = ii; i < end; i++) C[i] = A[i]; }
             B2[t] = end;
           }""",
        # and before it, from the tile before
        """for (int t = 0; t < n; t++) {
             int end = 1;
             for (int ii = 0; ii < n; ii += 2) {
               for (int i = ii; i < end; i++) C[i] += A[i];
               end = MIN(ii + 2, n);
               for (int i = ii; i < end; i++) C[i] += B[i];
             }
           }""",
        # the sum of the last tile, too
        """for (int t = 0; t < n; t++) {
             double s = 1;
             for (int kk = 0; kk < n; kk += 2) {
               s = C[t];
               for (int k = kk; k < MIN(kk + 2, n); k++) s += A[k];
               C[t] = s;
             }
             B2[t] = s;
           }""",
    ],
)
def test_what_a_tile_leaves_to_others_keeps_the_tiles(nest: str) -> None:
    (read,) = nests(function(nest, f"int n, int b, {MATRICES}, double *restrict B2"))
    assert untiled(read) is None
    found = lift(read)
    if found.status != "refused":
        assert check_meaning(found, well_formed=False) >= 0


def test_ends_of_few_bits_are_left_alone() -> None:
    """``end`` is not ``ii + b`` where that does not fit."""
    for kind in ("short", "signed char"):
        nest = f"for (int ii = 0; ii < n; ii += b) {{ {kind} end = MIN(ii + b, n); for (int i = ii; i < end; i++) C[i] = A[i]; }}"
        (read,) = nests(function(nest))
        assert untiled(read) is None


TRIANGLES = {
    "lower": """for (int ii = 0; ii < n; ii += 4)
        for (int jj = 0; jj <= ii; jj += 2)
          for (int i = ii; i < MIN(ii + 4, n); i++)
            for (int j = jj; j < MIN(jj + 4, i + 1); j++) C[i*n + j] = A[j*n + i];""",
    "upper": """for (int ii = 0; ii < n; ii += 4)
        for (int jj = ii; jj < n; jj += 4)
          for (int i = ii; i < MIN(ii + 4, n); i++)
            for (int j = MAX(jj, i); j < MIN(jj + 4, n); j++) C[i*n + j] = A[j*n + i];""",
    "below the diagonal": """for (int ii = 0; ii < n; ii += 4)
        for (int jj = 0; jj < ii + 4; jj += 4)
          for (int i = MAX(ii, 1); i < MIN(ii + 4, n); i++)
            for (int j = jj; j < jj + 4 && j < i; j++) C[i*n + j] = A[j*n + i];""",
    "without the border": """for (int ii = 0; ii < n; ii += b)
        for (int jj = 0; jj < n; jj += b)
          for (int i = MAX(ii, 1); i < MIN(ii + b, n - 1); i++)
            for (int j = MAX(jj, 1); j < MIN(jj + b, n - 1); j++) C[i*n + j] = A[i*n + j - 1] + A[i*n + j + 1];""",
}


@pytest.mark.parametrize("name", TRIANGLES)
def test_tiles_of_a_triangle(name: str) -> None:
    found = lifted(function(TRIANGLES[name]))
    assert sorted(operators(found).split()) == ["i:cc", "j:cc"]
    assert check_meaning(found) > 0


C89 = """for (ii = 0; ii < n; ii += b) {
    ie = ii + b;
    if (ie > n) ie = n;
    for (jj = 0; jj < n; jj += b) {
      je = jj + b;
      if (je > n) je = n;
      for (kk = 0; kk < n; kk += b) {
        ke = kk + b;
        if (ke > n) ke = n;
        for (i = ii; i < ie; i++)
          for (j = jj; j < je; j++)
            for (k = kk; k < ke; k++) C[i*n + j] += A[i*n + k] * B[k*n + j];
      }
    }
  }"""


def test_ends_in_variables_from_outside() -> None:
    found = lifted(function(C89, before="int i, j, k, ii, jj, kk, ie, je, ke;"))
    assert operators(found) == "i:cc j:cc k:pw(+)"
    assert check_meaning(found) > 0


def test_an_end_that_is_used_behind_the_nest_is_no_end_of_tiles() -> None:
    text = function(C89, before="int i, j, k, ii, jj, kk, ie, je, ke;").replace("\n}\n", "\nC[0] = ie;\n}\n")
    found = lifted(text)
    assert found.status == "refused" and found.diagnostics[0].code == "MDH202"


def test_pointers_to_tiles() -> None:
    found = lifted(function("""for (int ii = 0; ii < n; ii += 4)
        for (int jj = 0; jj < n; jj += 4)
          for (int kk = 0; kk < n; kk += 4) {
            const double *a = A + ii*n + kk, *b2 = B + kk*n + jj;
            double *c = C + ii*n + jj;
            for (int i = 0; i < 4; i++)
              for (int j = 0; j < 4; j++)
                for (int k = 0; k < 4; k++) c[i*n + j] += a[i*n + k] * b2[k*n + j];
          }"""))  # fmt: skip
    assert operators(found) == "i:cc j:cc k:pw(+)"
    assert check_meaning(found) > 0


def test_ends_by_functions_in_variables() -> None:
    found = lifted("static inline int least(int a, int b) { return a < b ? a : b; }\n" + function(
        """for (int ii = 0; ii < n; ii += b)
        for (int jj = 0; jj < n; jj += b) {
          int ie = least(ii + b, n), je = least(jj + b, n);
          for (int i = ii; i < ie; i++) for (int j = jj; j < je; j++) C[i*n + j] = A[j*n + i];
        }"""))  # fmt: skip
    assert operators(found) == "i:cc j:cc"
    assert check_meaning(found) > 0


@pytest.mark.parametrize("kind", ["int", "long", "unsigned"])
def test_a_condition_on_a_sum_with_the_iterator(kind: str) -> None:
    """Of unsigned numbers the sum may wrap, and is taken as it is."""
    loop = f"for ({kind} i = 0; i < b && ii + i < n; i++) C[ii + i] = A[ii + i];"
    text = function(f"for ({kind} ii = 0; ii < n; ii += b) {loop}", f"{kind} n, {kind} b, {MATRICES}")
    if kind == "unsigned":
        check_refused_loop(text, loop, "MDH210", "condition does not compare")
        return
    found = lifted(text)
    assert operators(found) == "i:cc" and not found.programs[0].hom.domain
    assert check_meaning(found) > 0


def test_the_sum_of_a_tile_added_to_a_variable() -> None:
    for fp, dims in (("", "k:pw(+)"), ("fp(exact)", None)):
        nest = """for (int kk = 0; kk < n; kk += b) {
            double p = 0;
            for (int k = kk; k < MIN(kk + b, n); k++) p += A[k] * B[k];
            s += p;
          }"""
        text = function(nest, before="double s = 0;").replace("\n}\n", "\nC[0] = s;\n}\n")
        (read,) = nests(text.replace("#pragma mdh", f"#pragma mdh {fp}"))
        assert (untiled(read) is None) == (dims is None)
        if dims is not None:
            found = lifted(text)
            assert operators(found) == dims
            assert check_meaning(found) > 0


UNCLIPPED = [
    "for (int ii = 0; ii < n; ii += 2) for (int i = ii; i < ii + 2; i++) C[i] = C[i]*2 + 1;",
    "for (int ii = b; ii < n; ii += 3) for (int i = ii; i < ii + 3; i++) C[i] = A[i];",
    "for (int ii = 1; ii + 4 <= n; ii += 4) for (int i = ii; i < ii + 4; i++) C[i] = A[i];",
    "for (int ii = 0; ii < n - 1; ii += 4) for (int i = ii; i < ii + 4; i += 2) C[i] = A[i];",
    "for (int ii = 0; ii < n; ii += 4) for (int i = ii; i < MIN(ii + 4, b); i++) C[i] = A[i];",
    "for (int ii = 0; ii < n; ii += b) for (int i = ii; i < ii + b; i++) C[i] = A[i];",
]


@pytest.mark.parametrize("nest", UNCLIPPED)
def test_certificates_know_where_the_last_tile_ends(nest: str) -> None:
    found = lifted(function(nest))
    assert found.status == "lifted" and operators(found) == "i:cc"
    assert check_meaning(found) > 0
    assert certificate(found.nest, found.program).holds


def test_a_condition_of_two_comparisons_of_different_kinds_is_no_bound() -> None:
    """``m + 1`` overflows for the largest ``m``, and is 0 for -1, which an unsigned counter is always below."""
    for kind in ("int", "unsigned"):
        loop = f"for ({kind} i = 0; i < n && i <= m; i++) C[i] = A[i];"
        text = function(loop, f"int n, int m, {MATRICES}")
        check_refused_loop(text, loop, "MDH210", "condition does not compare")
