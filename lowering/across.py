"""Operands of a map that lie across its vectors: neighbours in memory along another dimension than the lanes.

    y[r][i] = f(s[i][r])     vectors along i, as y is stored: of s, neighbours lie along r

Read lane by lane, every lane is a line of its own.  Where the register tile has as many rows along ``r`` as
lanes along ``i``, vectors of its rows are read as they are, and turned in registers (``emit.turned_text``).
"""

from __future__ import annotations

from collections.abc import Mapping

from mdh_core.expr import Affine, ScalarType, straight_line
from mdh_core.ir import MdhProgram

IN_VECTORS = (1, 0, -1)  # strides of operands that vectors are loaded with; the last in reverse
TURNED = (4, 8)  # bytes of elements that are turned
_MOST = 2  # operands: each takes the registers of a tile
_LINE = 64  # bytes that lanes fill: vectors of every machine are whole, and squares are in registers


def raw_stride(program: MdhProgram, buffer: str, index: tuple[Affine, ...], dim: str) -> int | None:
    """Elements between neighbours in ``dim`` (None: more than one, known at run time only)."""
    b, stride, total = program.buffer(buffer), 1, 0
    if b.strides is not None:
        return None if any(a.coefficient(dim) for a in index) else 0
    for t in reversed(range(b.rank)):
        c = index[t].coefficient(dim)
        if c:
            if stride < 0:
                return None
            total += c * stride
        extent = b.extents[t]
        stride = -1 if stride < 0 or extent is None or not extent.is_constant else stride * extent.const
    return total


def across(program: MdhProgram, vector: str) -> tuple[str, tuple[int, ...]] | None:
    """The dimension along which operands are vectors that are none along ``vector``, and their numbers.

    None where all are vectors, where they cannot be turned, and where they lie along several dimensions.
    """
    found = lying_across(program, vector)
    rows = {d for dims in found.values() for d in dims}
    written = {s.buffer for s in program.out.stores}
    if not straight_line(program.hom.scalar.body) or len(rows) != 1 or len(found) > _MOST:
        return None
    for k in found:
        a = program.inp.accesses[k]
        t = program.buffer(a.buffer).type
        if a.conditional or a.buffer in written or not isinstance(t, ScalarType) or t.size not in TURNED:
            return None
        if t.kind == "bool" or not found[k]:
            return None
    return rows.pop(), tuple(found)


def lying_across(program: MdhProgram, vector: str) -> dict[int, tuple[str, ...]]:
    """Operands of a map that are no vectors along a dimension, by number: along which others they are."""
    hom = program.hom
    if hom.function is not None or any(op.kind != "cc" for op in hom.combine) or hom.domain:
        return {}
    found = {}
    for k, a in enumerate(program.inp.accesses):
        if raw_stride(program, a.buffer, a.index, vector) not in IN_VECTORS:
            others = (d.name for d in hom.dims if d.name != vector)
            found[k] = tuple(d for d in others if raw_stride(program, a.buffer, a.index, d) == 1)
    return found


def turned(
    program: MdhProgram, vector: str, lanes: int, rows: Mapping[str, int], lane_bytes: int
) -> tuple[int, ...]:
    """The operands that a register tile of such lanes and rows turns, by their numbers."""
    found = across(program, vector)
    if found is None or lanes * lane_bytes != _LINE:
        return ()
    if {d: n for d, n in rows.items() if n > 1} != {found[0]: lanes}:
        return ()
    same = all(program.buffer(program.inp.accesses[k].buffer).type.size == lane_bytes for k in found[1])
    return found[1] if same else ()
