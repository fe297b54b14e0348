"""What comes from memory, fetched while tiles before are computed (``Nest.ahead``).

    __builtin_prefetch(&in[(i + 5)*n + (j + 1)*m + k + 256]);     what a map's tile is the first to read
    __builtin_prefetch(&out[i*n + j*m + k + 256], 1);             what it writes, if never past the caches
    MDH_PAGE(&in[i*n + k], 128, 8192);                            a reduction along rows: where pages begin
    __builtin_prefetch(&in[(i + 1)*n + k]);                       what the next part of a host loop reads

Nothing is read there: behind the end of an array it does no harm.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from emit.vector_printer import Vectors
from lowering.ahead import first_rows, read_once
from lowering.loops import Loop, loop_range
from lowering.machine import LINE
from mdh_core.expr import Affine

if TYPE_CHECKING:
    from emit.nest_text import NestText


def write_pages(nest: NestText, inner: tuple[Loop, ...], vectors: Vectors) -> None:
    """At the start of a step along rows that are reduced, register tile ``inner``: see ``lowering.ahead``.

    Copies are left out, which are near.
    """
    program, v = nest.program, vectors.dim
    dims = [d.name for d in program.hom.dims]
    here = dict(nest.context.at)
    for found in read_once(program, v, {d: loop_range(inner, d) or 1 for d in dims}):
        if any(pack.buffer == found.buffer for pack in nest.nest.packs):
            continue
        size = program.buffer(found.buffer).type.size
        step = (loop_range(inner, v) or 1) * size
        for offsets in found.offsets:
            nest.context.at = here | {
                d: f"{here[d]} + {n}" for d, n in zip(dims, offsets, strict=True) if n
            }
            place = nest.context.subscript(found.buffer, found.index)
            nest.out.add(f"MDH_PAGE(&{place}, {step}, {nest.nest.ahead});")
    nest.context.at = here


def write_next_part(nest: NestText, inner: tuple[Loop, ...], vectors: Vectors | None) -> None:
    """At the start of a whole tile: what the same tile of the next part reads (``Context.coming``)."""
    if vectors is None:
        return
    program, here = nest.program, dict(nest.context.at)
    known, read = here.keys() | {q.name for q in program.params}, {x.buffer for x in program.inp.accesses}
    for a in nest.context.coming:
        if a.buffer not in read or any(not x.names <= known for x in a.index):
            continue  # another stage of the program
        size, v = program.buffer(a.buffer).type.size, vectors.dim
        if not a.index or a.index[-1].coefficient(v) != 1 or any(v in x.names for x in a.index[:-1]):
            continue
        rows = {d.name: loop_range(inner, d.name) or 1 for d in program.hom.dims}
        steps = [range(0, n, max(1, LINE // size)) if d == v else range(n) for d, n in rows.items()]
        for offsets in itertools.product(*steps):
            nest.context.at = here | {
                d: f"{here[d]} + {n}" for d, n in zip(rows, offsets, strict=True) if n
            }
            nest.out.add(f"__builtin_prefetch(&{nest.context.subscript(a.buffer, a.index)});")
        nest.context.at = here


def write_ahead(
    nest: NestText, inner: tuple[Loop, ...], vectors: Vectors, past: Collection[str] = ()
) -> None:
    """At the start of a whole tile, loops ``inner``: fetch what tiles so many bytes later touch.

    ``past``: outputs that go past the caches for sure, a line of each row at a time.

    The tile's place is hidden from the compiler first: gcc 12 replaces the addresses by one register for each
    row otherwise, and what is fetched arrives later (measured; why was not established).
    """
    program, v = nest.program, vectors.dim
    dims = [d.name for d in program.hom.dims]
    rows = {d: loop_range(inner, d) or 1 for d in dims}
    inwards = dict.fromkeys(loop.dim for loop in reversed(nest.nest.loops[: nest.scope]))
    order = [d for d in reversed(inwards) if d != v]  # as the last loops over each stand, outermost first
    here = dict(nest.context.at)

    def places(buffer: str, index: tuple[Affine, ...], offsets: tuple[int, ...]) -> Iterator[str]:
        """One for each line of a row."""
        size = program.buffer(buffer).type.size
        for first in range(0, LINE if past else rows[v] * size, LINE):
            moved = dict(zip(dims, offsets, strict=True)) | {v: (nest.nest.ahead + first) // size}
            nest.context.at = here | {d: f"{here[d]} + {n}" for d, n in moved.items() if n}
            yield nest.context.subscript(buffer, index)
        nest.context.at = here

    nest.out.add(f'__asm__("" : "+r"({here[v]}));')
    for found in first_rows(program, v, order, rows):
        for offsets in found.offsets:
            nest.out.add(*(f"__builtin_prefetch(&{p});" for p in places(found.buffer, found.index, offsets)))
    own = list(itertools.product(*(range(1 if d == v else rows[d]) for d in dims)))
    left = {*nest.masks, *past}  # a test of the mask would cost what is gained
    for s in program.out.stores:
        for offsets in own if s.buffer not in left else ():
            nest.out.add(*(f"__builtin_prefetch(&{p}, 1);" for p in places(s.buffer, s.index, offsets)))
