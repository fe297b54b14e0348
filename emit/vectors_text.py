"""Vectors of a nest's local tile: whether there are any, and how they are stored.

Outputs that are larger than the caches get whole vectors at aligned places past them: ``masks`` names per
buffer a variable with the bits that are 0 in such an address, which is all ones where that does not pay:

    the output fits into the caches, or its cells are visited again, as a block does not cover a reduced
    dimension; at the ends of a row, ordinary stores and those past the caches meet in one line, which costs
    a lot, so rows have to be long, or to begin and end where lines do
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from emit.c_text import c_type
from emit.cells_text import CellsText
from emit.kernel_text import Context, Lines, product_text
from emit.masked_text import MaskedText
from emit.turned_text import turned_in
from emit.vector_printer import NotVector, VectorPrinter, Vectors, vector_store
from lowering.agreed import agreed
from lowering.between import Between, between
from lowering.facts import SHORTEST_ROW, in_whole_vectors
from lowering.inside import inside
from lowering.loops import Loop, size_name
from lowering.lower import Nest
from lowering.machine import LINE
from mdh_core.combine import CombineFunction, lane_values
from mdh_core.expr import (
    SCALAR_TYPES,
    Field,
    Operand,
    ScalarType,
    named_values,
    stmt_exprs,
    straight_line,
    walk,
)
from mdh_core.fields import in_fields
from mdh_core.ir import MdhProgram, Store
from mdh_core.lanes import LaneFunction, declared_in, goes_in_lanes, lane_function, shared_in_lanes


class VectorsText(CellsText):
    """The vectors of one nest; ``scope``: from this loop on results live in a local tile."""

    def __init__(self, nest: Nest, context: Context, out: Lines) -> None:
        super().__init__(nest, context, out)
        self._look_at_conditions()
        self._apart: tuple[MdhProgram, MdhProgram] | None = None  # what vectors compute, and in fields
        self.scope = nest.accumulate if self.function is not None else nest.tile
        self.masks: dict[str, str] = {}
        self.joined: dict[str, str] = {}  # outputs whose rows are joined -> where that pays

    def _look_at_conditions(self) -> None:
        """``middle``: only tiles away from the border have vectors; ``agreed``: what these ask once;
        ``between``: or they are where all that is read exists."""
        self.middle = inside(self.program)
        self.agreed = agreed(self.program)
        self.asked_once = False  # what ``agreed`` asks, before everything else
        self.between: Between | None = None
        last = self.nest.loops[-1] if self.nest.loops else None
        if last is None or last.role != "lanes":
            return
        if self.agreed is None or not self.agreed.along(last.dim):
            found = between(self.program)
            if found is not None and not (found.guards and last.dim in self.concatenated):
                self.agreed, self.between = None, found

    @property
    def _keeps_order(self) -> bool:
        """Whether a cell's contributions are combined one after the other, the initial value first."""
        return self.program.fp == "exact" and self.function is not None and not self.function.exact

    def declare_masks(self) -> None:
        """Outputs that are larger than the caches get whole vectors at aligned places past them."""
        inner = self.nest.loops[self.scope :]
        if not inner or inner[-1].role != "lanes" or self.context.cache is None:
            return
        if self.nest.results == "parts" or self.prepared:
            return
        for b in self.nest.past_caches:
            s = self._streamed(b, inner[-1])
            if s is not None:
                self.declare_mask(s, inner[-1].dim)

    def declare_mask(self, s: Store, dim: str) -> None:
        """``dim``: the dimension along which the vectors of the store lie."""
        buffer, once = s.buffer, self._visited_once()
        if once == "0":
            return
        dims = [d.name for d, op in zip(self.program.hom.dims, self.program.hom.combine, strict=True)
                if op.kind != "pw"]  # fmt: skip
        assert self.context.cache is not None
        cells = product_text([f"(double){size_name(d)}" for d in dims])
        size = f"sizeof({c_type(self.program.buffer(buffer).type)})"
        conditions = [f"{cells}*{size} > {self.context.cache}.0", *([once] if once else [])]
        row = min(SHORTEST_ROW, self.context.cache)
        if row:
            length = f"{size_name(dim)}*{size}"
            ends = " | ".join([length, *self._row_starts(s, dim, dims)])
            conditions.append(f"({length} >= {row} || (({ends}) & {LINE - 1}) == 0)")
        self.masks[buffer] = self.context.names.new(f"{buffer}_mask")
        bits = f"{' && '.join(conditions)} ? MDH_VECTOR_BYTES - 1 : (__UINTPTR_TYPE__)-1"
        self.out.add(f"const __UINTPTR_TYPE__ {self.masks[buffer]} = {bits};")

    def _visited_once(self) -> str:
        """Where no cell is visited twice: "" always, "0" never."""
        blocks: dict[str, int] = {}
        for loop in self.nest.loops[: self.nest.accumulate] if self.nest.results == "in place" else ():
            if loop.dim not in self.concatenated:
                blocks[loop.dim] = min(loop.size, blocks.get(loop.dim, loop.size))
        conditions = []
        for d, block in blocks.items():
            known = self.program.dim(d).size.constant
            if known is not None and known > block:
                return "0"
            if known is None:
                conditions.append(f"{size_name(d)} <= {block}")
        return " && ".join(conditions)

    def _row_starts(self, s: Store, dim: str, dims: list[str]) -> list[str]:
        """Addresses where the first row begins, and the next in each dimension that has one."""
        saved, found = dict(self.context.at), []
        self.context.at |= dict.fromkeys(dims, "0")
        for d in ("", *(d for d in dims if d != dim and any(a.coefficient(d) for a in s.index))):
            known = self.program.dim(d).size.constant if d else 2
            if known is not None and known < 2:
                continue
            self.context.at, kept = self.context.at | ({d: "1"} if d else {}), self.context.at
            place = f"(__UINTPTR_TYPE__)&{self.context.subscript(s.buffer, s.index)}"
            found.append(place if known else f"({size_name(d)} > 1 ? {place} : 0)")
            self.context.at = kept
        self.context.at = saved
        return found

    def _streamed(self, buffer: str, lanes: Loop) -> Store | None:
        """The store to a buffer, if it is one of whole lines: vectors of every length that machines have."""
        stores = [s for s in self.program.out.stores if s.buffer == buffer]
        t, count = self.program.buffer(buffer).type, lanes.count or 0
        if len(stores) != 1 or stores[0].at_last or self._store_stride(stores[0], lanes.dim) != 1:
            return None
        same = isinstance(t, ScalarType) and t.size == self.lane_bytes
        return stores[0] if same and count * t.size % LINE == 0 else None

    def write_vector(self, s: Store, vectors: Vectors, text: str) -> None:
        """One vector of a store's cells, at the current indices."""
        printer, t = VectorPrinter(self.context, vectors), self.program.buffer(s.buffer).type
        target = self.context.subscript(s.buffer, s.index)
        if self._store_stride(s, vectors.dim) == -1:
            target, text = printer.last_place(s.buffer, s.index), printer.reversed(t, text)
        self.out.add(vector_store(vectors.unaligned(t), target, text, self.masks.get(s.buffer)))

    def _vectors(self, inner: tuple[Loop, ...]) -> Vectors | None:
        """The vector types, if the innermost loop runs over lanes and its code has a vector form."""
        if not self._has_vectors(inner):
            return None
        taken = self.context.names.taken
        while True:
            lanes = self.context.names.new("lanes")
            suffix = lanes.replace("lanes", "v")
            types = {f"{t}_{suffix}{u}" for t in SCALAR_TYPES for u in ("", "u")} | {f"vectors_{suffix}"}
            if not types & taken:
                taken |= types  # no variable hides them
                return Vectors(inner[-1].dim, lanes, suffix)

    def _has_vectors(self, inner: tuple[Loop, ...]) -> bool:
        last = inner[-1] if inner else None
        types = self.vector_program.component_types
        if (
            last is None
            or last.role != "lanes"
            or last.size != 1
            or last.count is None
            or not all(isinstance(t, ScalarType) for t in types)
            or not in_whole_vectors(last.count, self.lane_bytes)
            or not goes_in_lanes(self.lane_function.body, self.vector_program, last.dim)
            or any(a.conditional for a in self.vector_program.inp.accesses)
            or (self.agreed is not None and not self.agreed.along(last.dim))
            or not self._goes_along_reads(inner)
        ):
            return False
        function = self.vector_function
        if function is not None and function.identity is None and not self._starts_from_initial(last):
            return False
        if self.counted or (self.ragged and self._keeps_order):
            return False
        try:
            with self.in_the_middle():
                self._try_vectors(Vectors(last.dim, "lanes", "v"), inner)
        except NotVector:
            return False
        return True

    @property
    def keeps_to_reads(self) -> bool:
        """Whether vectors are only where all that they read exists."""
        return self.between is not None and bool(self.between.guards)

    def _goes_along_reads(self, inner: tuple[Loop, ...]) -> bool:
        """Whether the loop around the tile goes along the lanes, and the tile reduces no other dimension."""
        if not self.keeps_to_reads:
            return True
        tile = max(self.nest.tile - self.scope, 0)
        others = [x for x in inner[tile:-1] if x.dim not in {*self.concatenated, inner[-1].dim}]
        return tile > 0 and inner[tile - 1].dim == inner[-1].dim and not others

    def _starts_from_initial(self, lanes: Loop) -> bool:
        """Whether cells of an operator without a neutral element start from their initial values, once."""
        return (
            lanes.dim in self.concatenated
            and self.nest.results == "direct"
            and self.has_initial
            and not self.domain.rows
        )

    @property
    def vector_program(self) -> MdhProgram:
        """What vectors compute: fields of records; without conditions on a border, or that lanes agree on."""
        known = self.middle or self.agreed or self.between
        program = self.program if known is None else known.program
        if self._apart is None or self._apart[0] is not program:
            self._apart = program, in_fields(program)
        return self._apart[1]

    @property
    def vector_function(self) -> CombineFunction | None:
        return self.vector_program.hom.function

    def gathered(self, inner: tuple[Loop, ...]) -> list[tuple[int, str, ScalarType]]:
        """Fields of records that differ from lane to lane: number of the access, name and type.

        They are gathered before the tile's steps, so only records that do not change meanwhile; NotVector
        if others are used.
        """
        dim, program = inner[-1].dim, self.vector_program
        exprs = (*program.hom.scalar.results, *stmt_exprs(program.hom.scalar.body))
        found: dict[tuple[int, str, ScalarType], None] = {}
        for n in (n for e in exprs for n in walk(e)):
            if isinstance(n, Field) and isinstance(n.a, Operand):
                index = program.inp.accesses[n.a.access].index
                if not any(a.coefficient(dim) for a in index):
                    continue
                if {x.dim for x in inner if x.dim != dim} & {name for a in index for name in a.names}:
                    raise NotVector
                found[n.a.access, n.name, n.type] = None
        return list(found)

    @contextmanager
    def in_the_middle(self) -> Iterator[None]:
        """What is written is away from the border."""
        before, self.context.program = self.context.program, self.vector_program
        try:
            yield
        finally:
            self.context.program = before

    @property
    def lane_function(self) -> LaneFunction:
        """What lanes compute in place of the scalar function; copies that hold values change the program."""
        return lane_function(self.vector_program)

    def masked_text(self, printer: VectorPrinter, out: Lines, counter: str, most: int) -> MaskedText:
        """What writes a scalar function with branches and loops, see ``emit.masked_text``."""
        shared = shared_in_lanes(self.lane_function.body, self.vector_program, printer.vectors.dim)
        return MaskedText(printer, out, counter, most, self.own_names, shared & self.own_names)

    @functools.cached_property
    def own_names(self) -> frozenset[str]:
        """Variables of the source's scalar function: no others in the kernel have their names."""
        return frozenset(d.name for d in declared_in(self.program.hom.scalar.body))

    @property
    def lane_bytes(self) -> int:
        """Bytes of one lane."""
        return self.lane_function.size

    def _try_vectors(self, vectors: Vectors, inner: tuple[Loop, ...]) -> None:
        """Raises NotVector if the scalar function, the operator or a store has no vector form."""
        fields = {(k, name): name for k, name, _ in self.gathered(inner)}
        found = turned_in(self, inner)
        operands = {k: f"x{k}" for k in found[1]} if found is not None else {}
        printer = VectorPrinter(self.context, vectors, operands=operands, fields=fields)
        body = self.lane_function.body
        if not straight_line(body):
            self.masked_text(printer, Lines(), "v", 1).write(body)
            body = ()
        for name, t, value in named_values(body):
            vectors.type(t)
            printer.vector(value)
            if printer.varies(value):
                printer.variables[name] = name
        for e in self.lane_function.results:
            printer.vector(e)
            vectors.type(e.type)
        function = self.vector_function
        if function is not None:
            lanes = {f"{s}{c}": f"{s}{c}" for c in range(len(function.types)) for s in "lr"}
            for e in lane_values(function):
                VectorPrinter(self.context, vectors, variables=lanes).vector(e)
            for start in self.vector_program.out.initial if function.identity is None else ():
                assert start is not None
                VectorPrinter(self.context, vectors).vector(start)
        if self.function is None:
            for s in self.program.out.stores:
                if s.at_last or self._store_stride(s, vectors.dim) not in (1, -1):
                    raise NotVector
                results = {c: f"r{c}" for c in range(len(self.types))}
                VectorPrinter(self.context, vectors, results=results).vector(s.value)

    def _store_stride(self, s: Store, dim: str) -> int | None:
        return self.context.lane_stride(s.buffer, s.index, dim)
