"""A scan beside a reduction, or beside another scan's final value, these being empty."""

from __future__ import annotations

from dataclasses import replace

from lowering.loops import size_name
from mdh_core.combine import CC
from mdh_core.expr import variables
from mdh_core.ir import MdhProgram


def empty_scan(program: MdhProgram) -> tuple[str, MdhProgram | None] | None:
    """When nothing is scanned (C text over sizes), and what is stored then: the initial value of each cell.

    None where the scan's own loops see to it; no program where there is no initial value.
    """
    combined = [d for d, op in zip(program.hom.dims, program.hom.combine, strict=True) if op.kind != "cc"]
    stores = program.out.stores
    used = {n for s in stores for n in variables(s.value) | {n for a in s.index for n in a.names}}
    final = {d.name for d in program.hom.dims_of("ps") if all(d.name in s.at_last for s in stores)} - used
    gone = {d.name for d in program.hom.dims_of("pw")} | final
    if not program.hom.dims_of("ps") or len(combined) == 1 or not gone:
        return None
    empty = " || ".join(f"{size_name(d.name)} <= 0" for d in combined if d.name in gone)
    if not all(e is not None for e in program.out.initial):
        return empty, None
    left = [d for d in program.hom.dims if d.name not in final]
    kinds = tuple(CC if program.op(d.name).kind == "ps" else program.op(d.name) for d in left)
    kept = tuple(replace(s, at_last=tuple(n for n in s.at_last if n not in final)) for s in stores)
    cells = replace(
        program,
        hom=replace(program.hom, dims=tuple(left), combine=kinds),
        out=replace(program.out, stores=kept),
    )
    return empty, cells
