"""Histograms on a GPU: whose cells a point is combined into (S5), and how many private copies there are.

    no      those of the array, by atomic instructions or by one thread for each row
    block   a copy in the shared memory of each block, by atomic instructions; then into the array, too
    thread  a copy for each thread, in the order of its points; then into the array in the threads' order

S5 says where the scalar function writes: global memory, shared memory, or memory of the thread's own (in
device memory, as a thread indexes it).  The number of copies is that of the parts of the first reduced
dimension, and belongs to the configuration: so does the grouping, and ``thread`` gives the same bits in
every run.  Copies have room for a number of cells that is known here; with more cells (the kernel tests
that) the array's are used.  Shown right by comparing with the interpreter (``tests/test_gpu.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lowering.device import Device
from lowering.facts import Facts
from lowering.histogram import OneHot
from lowering.lower import HistogramNest
from lowering.machine import SystemModel
from lowering.parameters import Configuration, columns_of, reassociates
from lowering.point import Point
from lowering.space import Space
from mdh_core.expr import ScalarType
from mdh_core.ir import MdhProgram

PLACES = ("no", "block", "thread")  # by memory region: global, shared, private
ROOM = 1 << 12  # cells of a copy where their number is not known; with many, threads seldom meet
BYTES = 1 << 26  # of all copies in device memory
COUNTS = (32, 128, 512, 2048)


@dataclass(frozen=True, slots=True)
class GpuHistogram(HistogramNest):
    """A histogram with private copies of its cells.

    place  where they are wanted: one of ``PLACES``
    room   cells of each copy
    """

    place: str = "no"
    room: int = 0


def gpu_histogram(
    program: MdhProgram, form: OneHot, c: Configuration, model: SystemModel, device: Device
) -> GpuHistogram:
    """The stage of a program that is a histogram, under a configuration of ``model``."""
    dims = tuple(d.name for d in program.hom.dims if d.name not in form.cells)
    (region,) = (r for _, r in c.scalar_output_memory)
    place = PLACES[0 if region == 0 else 1 if model.memory[region].role == "sequential" else 2]
    first = next(d for d in dims if program.op(d).kind == "pw")
    column = columns_of(program, c).get(first)
    copies = 1 if column is None else c.part_size((0, column))
    if place == "no" or (program.fp == "exact" and reassociates(program)):
        return GpuHistogram(program, form, dims, True, 0)
    size = program.component_types[0].size
    room = min(device.shared, BYTES // copies) // size
    known = [d.size.constant for d in program.hom.dims_of("cc")]
    cells = None if None in known else math.prod(n or 0 for n in known)
    if cells is not None and cells > room:
        return GpuHistogram(program, form, dims, True, 0)
    room = min(room, ROOM) if cells is None else max(cells, 1)
    ordered = (first, *(d for d in dims if d != first))
    return GpuHistogram(program, form, ordered, True, copies, place=place, room=room)


def histogram_default(f: Facts, device: Device) -> Point:
    """Copies for blocks where an instruction combines into them in any order, else for threads."""
    program = f.program
    function, (t,) = program.hom.function, program.component_types
    if program.fp == "exact" and reassociates(program):
        return {"private": "no", "copies": 1}
    any_order = function is not None and (function.exact or program.fp == "fast")
    if any_order and isinstance(t, ScalarType) and t.bits == 32:
        return {"private": "block", "copies": 2 * device.processors}
    return {"private": "thread", "copies": 512}


def histogram_space(f: Facts, device: Device) -> Space:
    """Places and numbers of the copies; the default is one of them."""
    chosen = histogram_default(f, device)
    alone = f.program.fp == "exact" and reassociates(f.program)
    counts = dict.fromkeys((*COUNTS, int(chosen["copies"]), 1))
    places = PLACES[:1] if alone else PLACES
    parameters = ("private", places), ("copies", (1,) if alone else tuple(counts))
    return Space(parameters, idle=(("copies", "private != 'no' or copies == 1"),))


def with_copies(c: Configuration, program: MdhProgram, point: Point, layer: int) -> Configuration:
    """The configuration with the copies of a point; their number is that of the parts on ``layer``.

    Where the order of the points is kept, there are none.
    """
    alone = program.fp == "exact" and reassociates(program)
    place = "no" if alone else str(point.get("private", "no"))
    d = next(k for k, op in enumerate(program.hom.combine) if op.kind == "pw")
    parts = [list(row) for row in c.num_parts]
    parts[layer][d] = int(point.get("copies", 1)) if place != "no" else 1
    memory = tuple((b, PLACES.index(place)) for b, _ in c.scalar_output_memory)
    return replace(c, num_parts=tuple(map(tuple, parts)), scalar_output_memory=memory)
