"""The accumulators of a local tile as C: declarations and start values.

In the full version of a tile they are vectors where its code has a vector form: for a cc lanes dimension one
lane per cell, for a reduced one partial results that ``emit.results_text`` combines.  They start from what
the cells hold before the visit, or from the identity, and then the prior value joins at the end; or from the
first point where there is no identity.

Cells of outputs that are *fetched* join at the end, too::

    acc = {0}; __builtin_prefetch(cells); for (k ...) acc += ...; held = cells; held += acc; cells = held

A tile that starts from its cells waits for them before its first step; here they arrive meanwhile.  Where
the epilogue reads them (``cells = cells + alpha*acc``) they are fetched in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from emit.c_text import c_type, constant
from emit.later_tile_text import later_tile, share
from emit.vector_printer import NotVector, VectorPrinter, Vectors, may_overflow
from lowering.domains import Rows
from lowering.loops import Loop
from mdh_core.combine import choice_of, lane_values
from mdh_core.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Operand,
    ScalarType,
    Type,
    Var,
    While,
    straight_line,
    walk,
)
from mdh_core.ir import Store, reads_own_cell

if TYPE_CHECKING:
    from emit.nest_text import NestText

_LATER = 3  # kinds of fetching, see ``Configuration.fetched``: behind them those that take row by row
_IN_ORDER = 6  # a share of the next piece, see ``lowering.pieces``; where there is none as 5
_SECOND_CACHE = 2  # what comes next but some tiles need not be in the first cache
_ARITHMETIC = ("+", "*", "|", "^", "&")


@dataclass(frozen=True, slots=True)
class Fetch:
    """Cells that a tile fetches.

    start   where the tile begins whose cells they are, or the piece of the output
    share   how many cells of a piece are before those that are fetched; empty: they are a tile's
    """

    stores: tuple[Store, ...]
    start: dict[str, str]
    share: str = ""


class Accumulators:
    """The accumulators of one version of the local tile: constant trip counts (``full``) or clipped ones.

    guard   None if all cells are in the domain; else rows of the steps in which all operands exist
    """

    def __init__(
        self,
        nest: NestText,
        inner: tuple[Loop, ...],
        full: bool,
        vectors: Vectors | None,
        guard: Rows | None = None,
    ) -> None:
        self.n = nest
        self.inner = inner
        self.full = full
        self.vectors = vectors
        self.guarded = guard is not None
        # what a step needs to be taken as a whole
        self.steps: Rows = [*nest.domain.contributions, *(guard or ())]
        self.out, self.context = nest.out, nest.context
        program = nest.vector_program if vectors else nest.program
        self.function, self.types = program.hom.function, program.component_types
        self.initial = program.out.initial
        self.start = dict(nest.context.at)
        moved = {d: (at, nest.moved_to[d]) for d, at in nest.moved.items()}
        self.context.tiles = {d: (at, at) for d, at in self.start.items()} | moved
        tiled = [x for x in inner if x.dim in nest.concatenated]
        self.lanes = inner[-1] if vectors else None
        # axes of the accumulators: the tiled cc loops; vectors of the lanes loop last
        self.axes: list[tuple[Loop, int | str]] = [
            (x, x.count or 1) for x in tiled if x is not self.lanes
        ]
        self.reduces_lanes = self.lanes is not None and self.lanes.dim not in nest.concatenated
        self.cell_axes: list[tuple[Loop, int | str]] = list(self.axes)
        if self.lanes is not None and not self.reduces_lanes:
            self.cell_axes.append((self.lanes, self.lanes.count or 1))
        self.counters: dict[Loop, str] = {}
        self.tail: list[str] = []
        # operands in registers, see ``emit.held_text``: name, loops that number them, whether for each vector
        self.held: dict[int, tuple[str, tuple[Loop, ...], bool]] = {}
        # fields of records, by access and name: arrays of a value for each lane, see ``Tile._gather``
        self.gathered: dict[tuple[int, str], tuple[str, ScalarType]] = {}
        self.fetched = dict(nest.nest.fetched)
        self.by_rows: list[Fetch] = []  # what is fetched between steps
        self.late = False  # whether prior values join at the end, in vectors
        self.peeled: Loop | None = None  # a loop whose first point the accumulators started from

    # ------------------------------------------------------------------ accumulators

    def _declare(self) -> None:
        names = self.context.names
        shape = "".join(f"[{count}]" for _, count in self.axes)
        self.acc = []
        for t in self.types:
            name = names.new("acc")
            self.acc.append(name)
            if self.vectors:
                self.out.add(f"{self.vectors.type(t)} {name}{shape}[vectors_{self.vectors.suffix}];")
            else:
                # compilers do not see that clipped loops write what they read
                zero = " = {0}" if shape and not self.full else ""
                self.out.add(f"{c_type(t)} {name}{shape}{zero};")
        self.have = ""

    def _cells(
        self,
        vector_axis: bool,
        every: bool = True,
        scalars: bool = False,
        rows_only: bool = False,
        start: dict[str, str] | None = None,
    ) -> ExitStack:
        """Loops over the accumulators; sets the dimensions' indices and the counters.

        every     of a guarded tile all cells, not only those in the domain
        scalars   lanes one by one, as in ``tail``
        rows_only who comes next writes the loop over the lanes
        start     indices of the tile, where it is not this one
        """
        stack = ExitStack()
        saved_at, saved_counters = dict(self.context.at), dict(self.counters)
        self.context.at = dict(start or self.start)
        stack.callback(self._restore, saved_at, saved_counters)
        axes = [loop for loop, _ in (self.cell_axes if scalars else self.axes)]
        clipped = not self.full or (self.guarded and not every)
        for k, loop in enumerate(axes[: len(self.axes)] if rows_only else axes):
            self._counter_loop(loop, stack, axes[k + 1 :], self.n.domain.positions if clipped else None)
        if vector_axis and self.vectors:
            self._vector_loop(stack)
        return stack

    def _restore(self, at: dict[str, str], counters: dict[Loop, str]) -> None:
        self.context.at, self.counters = at, counters

    def _counter_loop(
        self, loop: Loop, stack: ExitStack, inner: Sequence[Loop], rows: Rows | None
    ) -> None:
        """A loop over parts by number: ``for (r = 0; r < count; r++)``, clipped unless ``rows`` is None.

        inner   loops that begin inside of this one
        """
        v = self.context.names.new(f"{loop.dim}_r")
        start, end, first = self.context.at[loop.dim], str(loop.count), "0"
        if rows is not None:
            lines, first, end = self.n.counts(loop, v, inner, rows)
            self.out.add(*lines)
        elif loop.count is not None and loop.count > 1 and loop.role == "unrolled":
            self.out.add(f"#pragma GCC unroll {loop.count}")
        elif loop.role == "lanes":
            self.out.add("#pragma omp simd")
        stack.enter_context(self.out.block(f"for (long {v} = {first}; {v} < {end}; {v}++)"))
        self.counters[loop] = v
        offset = v if loop.size == 1 else f"{loop.size}*{v}"
        self.context.at[loop.dim] = offset if start == "0" else f"{start} + {offset}"

    def _vector_loop(self, stack: ExitStack, opened: bool = True) -> None:
        """``opened``: else only the names are made, and who comes next writes the loop, or several."""
        assert self.vectors is not None and self.lanes is not None
        self.vector_counter = v = self.context.names.new(f"{self.lanes.dim}_v")
        if opened:
            self._open_vector_loop(stack)
        start = self.context.at[self.lanes.dim]
        offset = f"{v}*{self.vectors.lanes}"
        self.context.at[self.lanes.dim] = offset if start == "0" else f"{start} + {offset}"

    def _open_vector_loop(self, stack: ExitStack) -> None:
        assert self.vectors is not None and self.lanes is not None
        v = self.vector_counter
        self.out.add(f"#pragma GCC unroll {self.lanes.count}")
        head = f"for (long {v} = 0; {v} < vectors_{self.vectors.suffix}; {v}++)"
        stack.enter_context(self.out.block(head))

    @property
    def masked(self) -> bool:
        """Does the scalar function have branches or loops?"""
        return not straight_line(self.n.lane_function.body)

    def _acc(self, c: int, vector: bool | None = None) -> str:
        subscripts = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
        if self.vectors if vector is None else vector:
            subscripts += f"[{self.vector_counter}]"
        return self.acc[c] + subscripts

    # ------------------------------------------------------------------ start values

    def _prior(self) -> list[str] | None:
        """What a cell holds before this visit, or None where that is unknown (first part, no initial)."""
        n, components = self.n, range(len(self.types))
        initials = [n.initial(c) for c in components]
        if n.nest.results == "direct":
            return None if None in initials else [str(x) for x in initials]
        if n.nest.results == "in place":
            kept = [n.stored(c) for c in components]
            first = n.first_visit
            if n.prepared:
                return kept
            return [
                k if i == k else f"{first} ? {i} : {k}" for i, k in zip(initials, kept, strict=True)
            ]
        if n.parts_are_seeded:
            first = n.first_visit
            if n.prepared:
                return [n.part(c) for c in components]
            return [f"{first} ? {i} : {n.part(c)}" if first else str(i) for c, i in enumerate(initials)]
        return None

    def _needs_tail(self) -> bool:
        """Whether some steps are taken point by point."""
        if self.reduces_lanes and self.n.keeps_to_reads:
            return True
        tile = max(self.n.nest.tile - self.n.scope, 0)
        if self._step_condition(tile) is not None:
            return not self._row_by_row(tile)
        return self.reduces_lanes and self._reduced_whole(tile) is not None

    def _row_by_row(self, tile: int) -> bool:
        """Whether a row of the register tile, loops ``inner[tile:]``, is in a step whole or not at all."""
        reduced = any(x.dim not in self.n.concatenated for x in self.inner[tile:])
        if self.lanes is None or self.masked or reduced:
            return False
        return not any(self.lanes.dim in r.names for r in (*self.n.domain.rows, *self.steps))

    def _step_condition(self, tile: int) -> str | None:
        """Where all points of the register tile contribute, and their operands exist; None: always.

        In terms of the indices where it is asked for; whether it is None is the same everywhere.
        """
        if not self.full:
            return None
        return self.n.domain.throughout(self.steps, self.inner[tile:], self.context.at, every=self.guarded)

    def _start_values(self) -> bool:
        """Write start values; True if they are identities and the prior value joins at the end."""
        assert self.function is not None
        identity = self.function.identity
        if self.vectors and self._needs_tail():
            assert identity is not None
            self._declare_tail(identity)
        fetches = False
        if self.vectors and not self.reduces_lanes:
            fetches = self._may_join_late()
            self.late = fetches and not self.guarded
            if not fetches and not self.guarded and self._seed_vectors():
                self._fetch_for_the_end()
                return False
        if self.vectors:
            assert identity is not None
            with self._cells(vector_axis=True):
                for c, t in enumerate(self.types):
                    assert isinstance(t, ScalarType)
                    zero = f"({self.vectors.type(t)}){{0}}"
                    value = constant(identity[c].value, t)
                    text = zero if identity[c].value == 0 else f"{value} - {zero}"
                    self.out.add(f"{self._acc(c)} = {text};")
            if fetches:
                self._fetch_cells(self._stores)
            return not self.late
        prior: list[str] | None
        with self._cells(vector_axis=False):
            prior = self._prior()
            if prior is not None:
                for c, text in enumerate(prior):
                    self.out.add(f"{self._acc(c)} = {text};")
                return False
            if identity is not None and not self.n.counted:
                first = self.n.first_visit
                kept = self.n.nest.results == "parts" and first
                for c, t in enumerate(self.types):
                    assert isinstance(t, ScalarType)
                    value = constant(identity[c].value, t)
                    text = f"{first} ? {value} : {self.n.part(c)}" if kept else value
                    if self.n.nest.results == "parts" and self.n.prepared:
                        text = self.n.part(c)
                    self.out.add(f"{self._acc(c)} = {text};")
                return False
        if not self._start_from_first_point():
            self._declare_have()
        return False

    def _fetch_cells(self, stores: Sequence[Store]) -> None:
        """Bring cells near that do not go past the caches: the tile's own, or those of a later one."""
        for number, some in groupby(stores, lambda s: self.fetched[s.buffer]):
            by_rows = number > _LATER and self._has_one_step_loop()
            for fetch in self._later_cells(number, tuple(some)):
                if by_rows:
                    self.by_rows.append(fetch)
                    continue
                with self._cells(vector_axis=True, start=fetch.start):
                    self._fetch(fetch)

    def _later_cells(self, number: int, stores: tuple[Store, ...]) -> Iterator[Fetch]:
        """Those of a kind of fetching; writes where they are."""
        ordinary, tile = [], {loop.dim: loop.count or 1 for loop, _ in self.cell_axes}
        for s in stores:
            own = share(self.n, s, tile) if number == _IN_ORDER and self.full else None
            if own is None:
                ordinary.append(s)
                continue
            at, before = own
            name = self.context.names.new(f"{s.buffer}_share")
            self.out.add(f"const long {name} = {before};")
            yield Fetch((s,), self.start | at, name)
        if ordinary:
            number = min(number, _IN_ORDER - 1)
            later = later_tile(self.n, number - 1 if number <= _LATER else number - _LATER)
            yield Fetch(tuple(ordinary), self.start | later)

    def _fetch(self, fetch: Fetch) -> None:
        """One vector of cells."""
        for s in fetch.stores:
            mask = self.n.masks.get(s.buffer)
            near = f"if ({mask} == (__UINTPTR_TYPE__)-1) " if mask else ""
            if fetch.share:
                cell = f"&{self._piece(s, fetch)} + {fetch.share} + {self._number()}, 1, {_SECOND_CACHE}"
            else:
                cell = f"&{self.context.subscript(s.buffer, s.index)}, 1"
            self.out.add(f"{near}__builtin_prefetch({cell});")

    def _piece(self, s: Store, fetch: Fetch) -> str:
        """The first cell of a piece."""
        here, self.context.at = self.context.at, fetch.start
        text = self.context.subscript(s.buffer, s.index)
        self.context.at = here
        return text

    def _number(self) -> str:
        """How many cells of a tile are before the current vector, one row behind the other."""
        assert self.vectors is not None and self.lanes is not None
        terms, cells = [], self.lanes.count or 1
        for loop, count in reversed(self.axes):
            terms.append(f"{self.counters[loop]}*{cells}")
            cells *= int(count)
        return " + ".join([*reversed(terms), f"{self.vector_counter}*{self.vectors.lanes}"])

    def _has_one_step_loop(self) -> bool:
        """Whether whole steps of the tile are in one loop, so that rows can be fetched between them."""
        tile = max(self.n.nest.tile - self.n.scope, 0)
        reduced = [x for x in self.inner if x.dim not in self.n.concatenated]
        if self.n.keeps_to_reads:
            return False
        if not self.full or not self.axes or len(reduced) != 1 or self.inner[:tile][-1:] != (reduced[0],):
            return False
        return reduced[0].size == 1 and self._step_condition(tile) is None

    def _fetch_row(self, row: str) -> None:
        """Cells of one row of the tile, by the number of the row."""
        (first, _), rest = self.axes[0], self.axes[1:]
        for fetch in self.by_rows:
            with ExitStack() as stack:
                stack.callback(self._restore, dict(self.context.at), dict(self.counters))
                offset = row if first.size == 1 else f"{first.size}*{row}"
                at = fetch.start[first.dim]
                self.context.at = fetch.start | {first.dim: offset if at == "0" else f"{at} + {offset}"}
                self.counters[first] = row
                for loop, _ in rest:
                    self._counter_loop(loop, stack, (), None)
                self._vector_loop(stack)
                self._fetch(fetch)

    def _fetch_for_the_end(self) -> None:
        """Fetch cells that the epilogue reads."""
        fetched = [s for s in self._stores if s.buffer in self.fetched and reads_own_cell(s)]
        if self.n.nest.results == "direct":
            self._fetch_cells(fetched)

    @property
    def _stores(self) -> tuple[Store, ...]:
        return self.n.program.out.stores

    def _start_from_first_point(self) -> bool:
        """Start every cell from its first point where that is known; False where it is not.

        A loop that asks at each point whether there was one before has no vector form for compilers.  The
        first point is left out of the loop then, unless once more makes no difference: then the initial
        value does as well, if there is one.
        """
        n, reduced = self.n, [x for x in self.inner if x.dim not in self.n.concatenated]
        kept = n.nest.results == "parts" and n.first_visit
        assert self.function is not None
        again = choice_of(self.function) is not None
        tile = max(n.nest.tile - n.scope, 0)
        alone = len(reduced) == 1 and reduced[0].size == 1 and self.inner.index(reduced[0]) < tile
        if n.ragged or n.flags or n.prepared or kept or not (alone or again):
            return False
        if again and n.has_initial:  # as in the source, a first point that is NaN is not taken
            with self._cells(vector_axis=False):
                for c in range(len(self.types)):
                    self.out.add(f"{self._acc(c)} = {n.initial(c)};")
            return True
        scalar = n.program.hom.scalar
        if any(isinstance(x, While) for x in scalar.body):
            return False
        with self._cells(vector_axis=False), ExitStack() as stack:
            if scalar.body:
                stack.enter_context(self.out.block(""))
                self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
                self.out.add(*self.context.printer().statements(scalar.body))
            for c, e in enumerate(scalar.results):
                self.out.add(f"{self._acc(c)} = {self.context.scalar(e)};")
        self.peeled = None if again else reduced[0]
        return True

    def _declare_have(self) -> None:
        """No identity is known, or contributions are counted: the first one of a part overrides."""
        self.have = self.context.names.new("have")
        shape = "".join(f"[{count}]" for _, count in self.axes)
        zero = " = {0}" if shape and not self.full else ""
        self.out.add(f"_Bool {self.have}{shape}{zero};")
        with self._cells(vector_axis=False):
            first = self.n.first_visit
            kept: bool | str = self.n.nest.results == "parts" and first
            at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
            earlier = f"!({first})" if kept else "0"
            if self.n.flags:
                kept, earlier = True, self.n.flag()
            self.out.add(f"{self.have}{at} = {earlier};")
            for c, t in enumerate(self.types):  # any value: compilers do not see that it is overridden
                self.out.add(f"{self._acc(c)} = ({c_type(t)}){{0}};")
            if kept:
                with self.out.block(f"if ({self.have}{at})"):
                    for c in range(len(self.types)):
                        self.out.add(f"{self._acc(c)} = {self.n.part(c)};")

    def _seed_vectors(self) -> bool:
        """Start cc vectors from the prior value where that is a vector; False if it is not."""
        at = len(self.out.rows)
        try:
            assert self.vectors is not None
            with self._cells(vector_axis=True):
                for c in range(len(self.types)):
                    self._seed_vector(c, self._acc(c))
        except NotVector:
            del self.out.rows[at:]
            return False
        return True

    def _may_join_late(self) -> bool:
        """Whether what the cells hold is a vector that may be combined with the tile's results at the end."""
        n = self.n
        fetched = [s.plain is not None and s.buffer in self.fetched for s in n.program.out.stores]
        neutral = self.function is not None and self.function.identity is not None
        if not neutral or n.nest.results not in ("direct", "in place") or n._keeps_order or not all(fetched):
            return False
        nodes = [x for e in n.program.out.initial if e is not None for x in walk(e)]
        read = {n.program.inp.accesses[x.access].buffer for x in nodes if isinstance(x, Operand)}
        read |= {x.buffer for x in nodes if isinstance(x, Load)}
        if n.nest.results == "direct" and not read & self.fetched.keys():
            return False
        taken, at = set(self.context.names.taken), len(self.out.rows)
        found = self._seed_vectors()
        del self.out.rows[at:]
        self.context.names.taken = taken
        return found

    def _joined(self, found: list[str]) -> list[str]:
        """Names of vectors: what the cells hold, combined with what the tile has found."""
        assert self.vectors is not None
        neutral, kept = self._starts_neutral(), self._prior_vector(0)[1]
        if neutral and not kept:
            return found
        prior = [self.context.names.new("held") for _ in found]
        if neutral:
            (name,) = prior
            self.out.add(f"{self.vectors.type(self.types[0])} {name};")
            with self.out.block(f"if ({self.n.first_visit})"):
                self.out.add(f"{name} = {found[0]};")
                self.out.middle("} else {")
                self.out.add(f"{name} = {kept};")
                self._combine_vectors(prior, found)
            return prior
        for c, (name, t) in enumerate(zip(prior, self.types, strict=True)):
            self._seed_vector(c, name, f"{self.vectors.type(t)} ")
        self._combine_vectors(prior, found)
        return prior

    def _starts_neutral(self) -> bool:
        """Whether the first visit's cells are what their tile has found: they start as the accumulators do.

        ``0 + x`` is ``x`` for all sums ``x`` that began with 0, which are not -0; ``1*x`` is ``x``.
        """
        f, initial = self.function, self.n.program.out.initial
        if f is None or f.identity is None or self.n.prepared or self.n.nest.results == "parts":
            return False
        e = f.values[0]
        return len(f.values) == 1 and isinstance(e, Binary) and e.op in _ARITHMETIC and initial == f.identity

    def _seed_vector(self, c: int, target: str, declared: str = "") -> None:
        """Give a variable the prior value of a cell's component; ``declared``: its type, if it is new."""
        start, kept = self._prior_vector(c)
        if kept and self.n.prepared:
            self.out.add(f"{declared}{target} = {kept};")
        elif kept and kept != start:
            if declared:
                self.out.add(f"{declared}{target};")
            with self.out.block(f"if ({self.n.first_visit})"):
                self.out.add(f"{target} = {start};")
                self.out.middle("} else {")
                self.out.add(f"{target} = {kept};")
        else:
            self.out.add(f"{declared}{target} = {start};")

    def _prior_vector(self, c: int) -> tuple[str, str]:
        """What a cell's component starts from, and what it holds from the second visit on; "": one visit."""
        n, vectors = self.n, self.vectors
        assert vectors is not None and self.function is not None
        t = self.types[c]
        printer = VectorPrinter(self.context, vectors)
        initial = self.initial[c]
        identity = self.function.identity
        if (n.nest.results == "parts" and not n.parts_are_seeded) or initial is None:
            if identity is None:
                raise NotVector
            first_value: Expr = identity[c]
        else:
            first_value = initial
        start = printer.vector(first_value)
        kept = ""
        if n.nest.results == "in place":
            store = next(s for s in n.program.out.stores if s.plain == c)
            if n._store_stride(store, vectors.dim) != 1:
                raise NotVector
            kept = f"*(const {vectors.unaligned(t)} *)&{n.stored(c)}"
        elif n.nest.results == "parts" and (n.first_visit or n.prepared):
            if [d.name for d in n.program.hom.dims_of("cc")][-1:] != [vectors.dim]:
                raise NotVector
            kept = f"*(const {vectors.unaligned(t)} *)&{n.part(c)}"
        return start, kept

    def _declare_tail(self, identity: tuple[Const, ...]) -> None:
        shape = "".join(f"[{count}]" for _, count in self.cell_axes)
        for t in self.types:
            name = self.context.names.new("tail")
            self.tail.append(name)
            self.out.add(f"{c_type(t)} {name}{shape};")
        with self._cells(vector_axis=False, scalars=True):
            for c, e in enumerate(identity):
                self.out.add(f"{self._tail(c)} = {constant(e.value, e.type)};")

    def _tail(self, c: int) -> str:
        return self.tail[c] + "".join(f"[{self.counters[loop]}]" for loop, _ in self.cell_axes)

    def _reduced_whole(self, k: int) -> str | None:
        reduced = [x for x in self.inner[k:] if x.dim not in self.n.concatenated]
        return self.n._whole_condition(reduced)

    def _named_vector(self, text: str, t: Type) -> str:
        assert self.vectors is not None
        name = self.context.names.new("v")
        self.out.add(f"const {self.vectors.type(t)} {name} = {text};")
        return name

    def _combine_vectors(self, left: list[str], right: list[str]) -> None:
        """``left = left ⊛ right`` for vector texts."""
        assert self.vectors is not None and self.function is not None
        e = self.function.values[0]
        if (
            len(left) == 1
            and isinstance(e, Binary)
            and isinstance(e.a, Var)
            and isinstance(e.b, Var)
            and e.a.name == "l0"
            and not may_overflow(e.op, e.type)
        ):
            self.out.add(f"{left[0]} {e.op}= {right[0]};")
            return
        variables = {f"l{c}": a for c, a in enumerate(left)} | {f"r{c}": v for c, v in enumerate(right)}
        combine = VectorPrinter(self.context, self.vectors, variables=variables, wraps=True)
        new = [combine.vector(v) for v in lane_values(self.function)]
        if len(new) > 1:
            new = [self._named_vector(v, t) for v, t in zip(new, self.types, strict=True)]
        for a, v in zip(left, new, strict=True):
            self.out.add(f"{a} = {v};")
