"""The low-level representation and what it means, by running it.

    low      ::= LowLevelProgram(program: MdhProgram, model: SystemModel, configuration)
    phase 1  ::= for p in parts(D1[0]) ... for p in parts(D1[LD-1]):  a_f[p...] := copy of a    # ++^-1
    phase 2  ::= for p in parts(S1[0]) ... :  r_f[p...] := f(a_f[p...])
    phase 3  ::= r := op(R1[0]) over p ... op(R1[LD-1]) over p  r_f[p...]                     # inside out

(mdh.md 4.3).  Every level ``(l, d)`` splits its dimension into ``num_parts`` parts; a leaf has one part
index per level and stands for the point ``index_d = sum over l of p(l, d) * part_size(l, d)``, if that is
inside the dimension and in the domain.  Assignments and regions are tags without meaning; layouts permute the
subscripts with which a low-level buffer is stored and read again, and are carried out here.

``execute`` is the definition that lowering and emission are tested against.  Nothing in it is fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from lowering.machine import SystemModel
from lowering.parameters import Configuration, Level, why_not_legal
from mdh_core.evaluate import Value
from mdh_core.interpreter import BufferValue, Index, Mda, ProgramRun, scanned_at
from mdh_core.ir import MdhProgram
from mdh_core.rules import verify as verify_program

PartIndex = tuple[int, ...]  # one per level, lexicographic


@dataclass(frozen=True, slots=True)
class LowLevelProgram:
    program: MdhProgram
    model: SystemModel
    configuration: Configuration

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(
            (layer, d) for layer in range(self.model.depth) for d in range(len(self.program.hom.dims))
        )


def verify(low: LowLevelProgram) -> list[str]:
    """Broken rules: those of the high-level program, and the constraints on the parameters."""
    problems = verify_program(low.program)
    reason = why_not_legal(low.configuration, low.program, low.model)
    return problems if reason is None else [*problems, reason]


def execute(
    low: LowLevelProgram, params: Mapping[str, Value], buffers: Mapping[str, BufferValue]
) -> None:
    """Run the three phases and update the output buffers in place."""
    run = LowLevelRun(low, params, buffers)
    result = run.recomposed() if all(run.index_sets) else None
    for (name, position), value in run.out_view(result).items():
        buffers[name].data[position] = value


class LowLevelRun(ProgramRun):
    """The three phases of one program on given buffers."""

    def __init__(
        self, low: LowLevelProgram, params: Mapping[str, Value], buffers: Mapping[str, BufferValue]
    ) -> None:
        super().__init__(low.program, params, buffers, 1_000_000)
        self.low = low
        self.levels = low.levels

    # ------------------------------------------------------------------ parts

    def parts(self, level: Level) -> range:
        """Parts of a level; layer 0 has as many as the dimension's size asks for."""
        c = self.low.configuration
        if level[0] == 0:
            return range(-(-len(self.index_sets[level[1]]) // c.part_size(level)))
        return range(c.parts(level))

    def point(self, p: PartIndex) -> Index | None:
        """The point of a leaf, or None where its part is empty."""
        c = self.low.configuration
        index = [0] * len(self.index_sets)
        for (layer, d), number in zip(self.levels, p, strict=True):
            index[d] += number * c.part_size((layer, d))
        inside = all(n < len(s) for n, s in zip(index, self.index_sets, strict=True))
        return tuple(index) if inside and self.in_domain(tuple(index)) else None

    def leaves(self, order: tuple[Level, ...]) -> list[tuple[PartIndex, Index]]:
        """All leaves that are not empty, in the order of a phase."""
        position = [order.index(level) for level in self.levels]
        found = []
        for digits in itertools.product(*(self.parts(level) for level in order)):
            p = tuple(digits[k] for k in position)
            point = self.point(p)
            if point is not None:
                found.append((p, point))
        return found

    # ------------------------------------------------------------------ phases

    def decomposed(self) -> dict[PartIndex, tuple[Value | None, ...]]:
        """Phase 1: every operand at its leaf, through a low-level buffer with its layout."""
        c = self.low.configuration
        layouts = dict(c.scalar_input_layout)
        stored: dict[tuple[str, PartIndex, Index], Value] = {}
        accesses = self.program.inp.accesses
        leaves = self.leaves(c.decompose_order)
        for p, i in leaves:
            point = self.named(i)
            for a in accesses:
                if a.conditional:
                    continue
                index = tuple(x.evaluate(point) for x in a.index)
                transposed = tuple(index[t] for t in layouts[a.buffer])
                stored[a.buffer, p, transposed] = self.read(a.buffer, a.index, point)
        operands = {}
        for p, i in leaves:
            point = self.named(i)
            values: list[Value | None] = []
            for a in accesses:
                index = tuple(x.evaluate(point) for x in a.index) if not a.conditional else ()
                transposed = tuple(index[t] for t in layouts[a.buffer]) if index else ()
                values.append(None if a.conditional else stored[a.buffer, p, transposed])
            operands[p] = tuple(values)
        return operands

    def computed(self) -> dict[PartIndex, Mda]:
        """Phase 2: the scalar function at every leaf, as an MDA of one point."""
        operands = self.decomposed()
        return {
            p: self._at(i, operands[p]) for p, i in self.leaves(self.low.configuration.scalar_order)
        }

    def _at(self, i: Index, operands: tuple[Value | None, ...]) -> Mda:
        point, accesses = self.named(i), self.program.inp.accesses

        def operand(k: int) -> Value:
            value = operands[k]
            return self.read(accesses[k].buffer, accesses[k].index, point) if value is None else value

        sets = tuple(op.index_set((n,)) for op, n in zip(self.program.hom.combine, i, strict=True))
        return Mda(sets, {tuple(s[0] for s in sets): self.scalar(i, operand)})

    def recomposed(self) -> Mda | None:
        """Phase 3: combined level by level in the order R1, the innermost level first; None: no points."""
        results = self.computed()
        order = self.low.configuration.recompose_order
        position = [order.index(level) for level in self.levels]

        def combined_from(digits: tuple[int, ...]) -> Mda | None:
            if len(digits) == len(order):
                return results.get(tuple(digits[k] for k in position))
            level = order[len(digits)]
            whole: Mda | None = None
            for number in self.parts(level):
                part = combined_from((*digits, number))
                if part is not None:  # an empty part contributes nothing; the first one overrides
                    whole = part if whole is None else self.joined(level[1], whole, part)
            return whole

        return combined_from(())

    def joined(self, d: int, a: Mda, b: Mda) -> Mda:
        """``a ⊛_d b``; partial parts of another dimension may be of unequal extent, see ``_aligned``."""
        if self._others_agree(d, a, b):
            return self.combined(d, a, b)
        return self._aligned(d, a, b)

    @staticmethod
    def _others_agree(d: int, a: Mda, b: Mda) -> bool:
        pairs = zip(a.index_sets, b.index_sets, strict=True)
        return all(x == y for e, (x, y) in enumerate(pairs) if e != d)

    def _aligned(self, d: int, a: Mda, b: Mda) -> Mda:
        """Combine where both have values, keep what only one has.

        With partial parts, a strided order can meet a part of ``d`` whose extent in another dimension
        differs from its neighbour's, as every part of a triangle does.  Combining cell by cell is
        what the loops do.
        """
        sets = tuple(
            tuple(sorted(set(x) | set(y)))
            for x, y in zip(a.index_sets, b.index_sets, strict=True)
        )
        op, f = self.program.hom.combine[d], self.combine[d]
        values = {}
        for i in {**a.values, **b.values}:
            if op.kind == "ps":
                operands = scanned_at(d, i, a, b)
            else:
                operands = [part.values[i] for part in (a, b) if i in part.values]
            values[i] = reduce(f, operands)
        return Mda(sets, values)
