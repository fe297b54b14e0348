"""Copies of the inputs' parts that a tile reads, in a layout of their own."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

from emit.c_text import affine_text, c_type
from emit.kernel_text import Allocation, Context, Lines, Place
from emit.vectors_text import VectorsText
from lowering.copied import copied_value, with_copied_values
from lowering.lower import Loop, Nest, Pack, loop_range, size_name
from mdh_core.expr import Affine
from mdh_core.ir import Access, InputView


def layout_strides(pack: Pack) -> tuple[int, ...]:
    """Elements between neighbours of a copy, per dimension of the buffer."""
    strides, cells = [0] * len(pack.extents), 1
    for position in reversed(pack.layout):
        strides[position] = cells
        cells *= pack.extents[position]
    return tuple(strides)


class PacksText(VectorsText):
    """The copies of one nest.

    packed_from     the first index of a dimension that the copies hold
    copied_values   what the copies hold where it is not the element itself (see ``lowering.copied``)
    """

    def __init__(self, nest: Nest, context: Context, out: Lines) -> None:
        super().__init__(nest, context, out)
        self.packed_from: dict[str, str] = {}
        copied = [pack.buffer for pack in nest.packs if pack.at <= self.scope]  # no others are made
        self.copied_values = {b: copied_value(nest.program, b) for b in copied}
        self.program = with_copied_values(nest.program, copied)

    def pack(self, pack: Pack) -> None:
        """Copy the box of cells that the accesses touch from here on, in the pack's layout."""
        context, out = self.context, self.out
        accesses = [a for a in self.program.inp.accesses if a.buffer == pack.buffer]
        inner = self.nest.loops[pack.at :]
        name = context.names.new(f"{pack.buffer}_tile")
        t = self.program.buffer(pack.buffer).type
        strides, cells = layout_strides(pack), math.prod(pack.extents)
        if pack.at >= self.nest.threads[1] > self.nest.threads[0] or cells * t.size <= 1 << 14:
            out.add(f"{c_type(t)} {name}[{cells}] __attribute__((aligned(64)));")
        else:
            context.allocations.append(Allocation(name, c_type(t), str(cells)))
        bases, lengths = [], []
        for d in range(len(pack.extents)):
            base, length = self._box(accesses, d, inner)
            bases.append(base)
            lengths.append(length)
        source, target = context.place(pack.buffer), Place(name, strides, tuple(bases))
        variables = [context.names.new(f"c{d}") for d in range(len(pack.extents))]
        shared = pack.at < self.nest.threads[0]
        with ExitStack() as loops:
            if shared:
                out.add("#pragma omp parallel for schedule(static)")
            for position in pack.layout:
                v = variables[position]
                head = f"for (long {v} = 0; {v} < {lengths[position]}; {v}++)"
                loops.enter_context(out.block(head))
            here = Context(self.program, context.names, {v: v for v in variables})
            here.places = {pack.buffer: replace(target, base=())}
            index = tuple(Affine.of(v) for v in variables)
            # each operand of the buffer is the element that is copied
            view = tuple(replace(a, index=index) if a.buffer == pack.buffer else a
                         for a in self.program.inp.accesses)  # fmt: skip
            there = Context(replace(self.program, inp=InputView(view)), context.names, {})
            there.places = {pack.buffer: source}
            there.at = {v: v if b == "0" else f"{b} + {v}" for v, b in zip(variables, bases, strict=True)}
            value = self.copied_values[pack.buffer]
            text = there.subscript(pack.buffer, index) if value is None else there.scalar(value, 0)
            out.add(f"{here.subscript(pack.buffer, index)} = {text};")
        context.places[pack.buffer] = target
        used = {n for a in accesses for x in a.index for n in x.names}
        self.packed_from |= {d: self.context.at[d] for d in used & self.concatenated}

    def _box(self, accesses: list[Access], d: int, inner: tuple[Loop, ...]) -> tuple[str, str]:
        """First index and number of indices of one buffer dimension, clipped at the sizes."""
        constants = [a.index[d].const for a in accesses]
        base = Affine(accesses[0].index[d].terms, min(constants))
        length: list[str] = []
        fixed = max(constants) - min(constants) + 1
        shift: list[str] = []
        dims = {x.name for x in self.program.hom.dims}
        for name, c in accesses[0].index[d].terms:
            if name not in dims:
                continue  # a parameter
            known = self.program.dim(name).size.constant
            span = loop_range(inner, name, known)
            assert span is not None
            if span == 1:
                continue
            n, start = size_name(name), self.context.at[name]
            left = n if start == "0" else f"{n} - {start}"
            if known is not None and known % span == 0 and self.ordered(name):
                fixed += abs(c) * (span - 1)
                if c < 0:
                    shift.append(f" - {abs(c) * (span - 1)}")
                continue
            clipped = f"({left} < {span} ? {left} : {span})"
            fixed -= abs(c)
            length.append(clipped if abs(c) == 1 else f"{abs(c)}*{clipped}")
            if c < 0:
                shift.append(f" - {abs(c)}*({clipped} - 1)")
        text = affine_text(base, self.context.at)
        base_text = text + "".join(shift)
        if "+" in base_text or "-" in base_text or "*" in base_text:
            base_name = self.context.names.new(f"{accesses[0].buffer}_first{d}")
            self.out.add(f"const long {base_name} = {base_text};")
            base_text = base_name
        if not length:
            return base_text, str(fixed)
        length_name = self.context.names.new(f"{accesses[0].buffer}_count{d}")
        total = " + ".join(length) + (f" + {fixed}" if fixed > 0 else f" - {-fixed}" if fixed else "")
        self.out.add(f"const long {length_name} = {total};")
        return base_text, length_name
