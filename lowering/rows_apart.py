"""A scan of reductions as two programs, so that each has a configuration of its own.

before   ps(f) in i, pw(f) in j
after    cc in i, pw(f) in j, to a temporary; ps(f) in i over it

``lowering.phases`` takes such a program apart in any case, but with one configuration for both: the reduction
of a row then has neither vectors nor a register tile.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.parameters import reassociates
from lowering.phases import Temporaries, as_temporaries
from mdh_core.combine import CC
from mdh_core.ir import Buffer, MdhProgram


def rows_apart(program: MdhProgram, tag: str) -> tuple[MdhProgram, MdhProgram, tuple[Buffer, ...]] | None:
    """The reduction, the scan and the temporaries between; None where they cannot be apart.

    A row without points must have a value, the temporaries' extents must be affine, and order be free.
    ``tag`` keeps the names of several apart.
    """
    hom, function = program.hom, program.hom.function
    if function is None or not hom.dims_of("ps") or not hom.dims_of("pw"):
        return None
    if function.identity is None or (program.fp == "exact" and reassociates(program)):
        return None
    kept = [d for d in hom.dims if program.op(d.name).kind != "pw"]
    if any(d.size.step != 1 for d in kept):
        return None
    temporaries = Temporaries()
    temporaries.tag = tag
    combine = tuple(CC if op.kind == "ps" else op for op in hom.combine)
    first, rest, _ = as_temporaries(program, combine, "mdh_row", temporaries)
    extents = tuple(d.size.span for d in kept)
    known = {b.name: replace(b, extents=extents) for b in temporaries}

    def placed(p: MdhProgram) -> MdhProgram:
        return replace(p, buffers=tuple(known.get(b.name, b) for b in p.buffers))

    first = replace(first, out=replace(first.out, initial=function.identity))
    return placed(first), placed(rest), tuple(known.values())
