"""Two reduced dimensions of a tile as one loop, where operands of neighbouring rows follow one another.

before   for s: for c: acc += in[(q + s)*nc + c] * w[48*s + 16*c]
after    c_flat = nc == c_end - c_1 && 48 == 16*(c_end - c_1) ? (s_end - s_1)*(c_end - c_1) : c_end - c_1;
         for (s = s_1; s < s_end; s = c_flat == c_end - c_1 ? s + 1 : s_end)
           for (c = c_1; c < c_1 + c_flat; c++) acc += in[(q + s)*nc + c] * w[48*s + 16*c]

Indices are linear: behind the last element of row ``s``, the text for ``c`` reaches what the text for
``s + 1`` begins with, if the distance of rows is that of elements times the length of a row.  So the body is
the same, points come in the same order, and only the ends of the loops change.  Short inner loops (channels,
columns of a filter) cost more in their ends than in their points; and compilers keep accumulators in
registers more often around one loop than around two.

In: a full tile and its loops before the register tile.  Out: the loops with the tile inside, or nothing where
the inner one is long, where points are told apart by more than their operands, or where distances can never
match.  Shown right: tests/test_flat.py, and everywhere else where kernels are compared with the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emit.kernel_text import atom, product_text
from lowering.loops import Loop
from mdh_core.combine import choice_of
from mdh_core.expr import Load, Var, stmt_exprs, walk
from mdh_core.ir import Access

if TYPE_CHECKING:
    from emit.tile_text import Tile

LONG = 64  # elements of an inner loop, from which on its ends do not matter


@dataclass(frozen=True, slots=True)
class _Ends:
    """Texts of a loop: its variable, where it begins and ends, how long it is."""

    variable: str
    first: str
    end: str

    @property
    def length(self) -> str:
        if self.first == "0":
            return self.end
        if self.first.isdigit() and self.end.isdigit():
            return str(int(self.end) - int(self.first))
        return f"{self.end} - {atom(self.first)}"


def write_flat(tile: Tile, k: int) -> bool:
    """Write loops ``inner[k]`` and ``inner[k + 1]`` as one, and the tile inside; False: nothing written."""
    if not _may_be_flat(tile, k):
        return False
    outer, loop = tile.inner[k : k + 2]
    out, context = tile.out, tile.context
    before, at, taken = dict(context.at), len(out.rows), set(context.names.taken)
    rows, elements = (_ends(tile, j) for j in (k, k + 1))
    conditions = _conditions(tile, outer.dim, loop.dim, elements.length)
    if conditions is None:
        del out.rows[at:]
        context.names.taken = taken
        return False
    length = elements.length
    whole = f"{atom(rows.length)}*{atom(length)}"
    context.at |= {outer.dim: rows.variable, loop.dim: elements.variable}
    flat = context.names.new(f"{loop.dim}_flat")
    chosen = f"{' && '.join(conditions)} ? {whole} : {length}" if conditions else whole
    out.add(f"const long {flat} = {chosen};")
    last = f"{flat} == {length} ? {rows.variable} + 1 : {rows.end}" if conditions else rows.end
    step = f"{rows.variable} = {last}"
    end = flat if elements.first == "0" else f"{elements.first} + {flat}"
    v = elements.variable
    with (
        out.block(f"for (long {rows.variable} = {rows.first}; {rows.variable} < {rows.end}; {step})"),
        out.block(f"for (long {v} = {elements.first}; {v} < {end}; {v}++)"),
    ):
        tile._points(k + 2)
    context.at = before
    return True


def _may_be_flat(tile: Tile, k: int) -> bool:
    """Whether points of the two loops differ in their operands only, and the inner loop is short."""
    n, program = tile.n, tile.n.program
    if tile.function is None or not tile.full or tile.masked or tile.peeled or tile.have or tile.guarded:
        return False
    if k + 2 != max(n.nest.tile - n.scope, 0) or choice_of(tile.function) is not None or tile.reduces_lanes:
        return False
    outer, loop = tile.inner[k : k + 2]
    own = [x.dim for x in tile.inner]
    dims = {outer.dim, loop.dim}
    if dims & set(n.concatenated) or len(dims) < 2 or any(own.count(d) > 1 for d in dims):
        return False
    if outer.size != 1 or loop.size != 1 or any(d in r.names for r in program.hom.domain for d in dims):
        return False
    known = program.dim(loop.dim).size.constant
    short = [x for x in (known, loop.count) if x is not None]
    if not short or min(short) >= LONG or tile.steps:
        return False
    if any(a.conditional for a in program.inp.accesses):
        return False
    scalar = program.hom.scalar
    nodes = [x for e in (*scalar.results, *stmt_exprs(scalar.body)) for x in walk(e)]
    return not any(isinstance(x, Load) or (isinstance(x, Var) and x.name in dims) for x in nodes)


def _ends(tile: Tile, j: int) -> _Ends:
    """Where a loop begins and ends, each a name or a number."""
    loop: Loop = tile.inner[j]
    variable = tile.n._variable(loop)
    lines, first, end = tile.n.bounds(loop, variable, tile.inner[j + 1 :], tile.n.domain.rows)
    tile.out.add(*lines)
    return _Ends(variable, first, end)


def _conditions(tile: Tile, outer: str, inner: str, length: str) -> list[str] | None:
    """When rows follow one another in all operands; None: never."""
    found: dict[str, None] = {}
    for a in tile.n.program.inp.accesses:
        row, element = (_distance(tile, a, d) for d in (outer, inner))
        if row == element == 0:
            continue
        if row in (0, None) or element in (0, None):
            return None
        times = int(length) if length.isdigit() else length if element == 1 else atom(length)
        reached = product_text([element, times])
        if isinstance(row, int) and isinstance(reached, int):
            if row != reached:
                return None
        elif str(row) != str(reached):
            found[f"{row} == {reached}"] = None
    return list(found)


def _distance(tile: Tile, a: Access, dim: str) -> int | str | None:
    """Elements between neighbours in a dimension, C text where that is known at run time only.

    None: more than one coordinate depends on it, or one that lies in strips.
    """
    place = tile.context.place(a.buffer)
    own = [t for t, x in enumerate(a.index) if x.coefficient(dim)]
    if not own:
        return 0
    if len(own) > 1 or (place.strip is not None and place.strip.coordinate == own[0]):
        return None
    return product_text([a.index[own[0]].coefficient(dim), place.strides[own[0]]])
