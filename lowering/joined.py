"""Rows of a map's result that follow one another in memory, without anything between them.

    out[i][j][k] of extents n1, n2, n3, all of it written     ->   k along the row, then j

Rows whose length no line divides share lines.  Stores past the caches need whole ones: what the end of a row
and the beginning of the next have in a line is put together first (``Configuration.joined``).
"""

from __future__ import annotations

from mdh_core.expr import Affine
from mdh_core.ir import MdhProgram


def joined_rows(program: MdhProgram, buffer: str) -> tuple[str, str] | None:
    """The dimension along a row of the result, and the one in which the next row follows; None: none does."""
    stores, b = program.out.stores, program.buffer(buffer)
    if program.hom.function is not None or len(stores) != 1 or stores[0].buffer != buffer or b.rank < 2:
        return None
    if b.strides is not None or stores[0].at_last or stores[0].plain is None or program.hom.domain:
        return None
    *outer, next_row, along = stores[0].index
    row = next((d for d in program.hom.dims if along == Affine.of(d.name)), None)
    if row is None or row.size.step != 1 or row.size.span != b.extents[-1]:
        return None
    others = [d.name for d in program.hom.dims if next_row.coefficient(d.name)]
    if len(others) != 1 or next_row.coefficient(others[0]) != 1 or row.name in next_row.names:
        return None
    if any({row.name, others[0]} & a.names for a in outer):
        return None
    return row.name, others[0]
