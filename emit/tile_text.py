"""The local tile of a nest as C: the points of the tile, around them what ``emit.accumulators_text`` and
``emit.results_text`` write.

Two versions of a tile are written.  The *full* one has constant trip counts and, where its code has a
vector form, vectors; clipped rests go to a scalar ``tail``.  The other one has clipped loops and scalars.

On the border of a domain, the clipped version visits its points and no others.  Vectors meet the border in
two ways.  Where only some points of a step contribute, these are added to ``tail``, scalars that join the
vectors at the end; where these are whole rows, to the vectors of the row.  Where some cells of the tile are
outside (``guard``), they are computed with the others but not stored.  The same holds for a tile on the
border of the sizes that was moved back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from emit.ahead_text import write_next_part, write_pages
from emit.between_text import find_ends
from emit.c_text import c_type
from emit.cells_text import for_head, step_of
from emit.flat_text import write_flat
from emit.held_text import arranged, hold_operands
from emit.kernel_text import atom, repeats_right
from emit.results_text import Results
from emit.screen_text import screened
from emit.sliding_text import sliding, write_sliding
from emit.turned_text import turn_operands
from emit.vector_printer import VectorPrinter
from lowering.domains import Rows
from lowering.loops import Loop
from mdh_core.expr import Binary, Field, Operand, ScalarType, Type, named_values
from mdh_core.ir import Store


class Tile(Results):
    """One version of the local tile: constant trip counts (``full``) or clipped ones."""

    # ------------------------------------------------------------------ frame

    def write(self) -> None:
        at = len(self.out.rows)
        self._points_setup()
        if self.vectors:
            assert self.lanes is not None and self.lanes.count is not None
            width = f"MDH_VECTOR_BYTES / {self.n.lane_bytes}"
            lanes, count = self.vectors.lanes, self.lanes.count
            names = f"enum {{ {lanes} = {width} < {count} ? {width} : {count}, "
            names += f"vectors_{self.vectors.suffix} = {count} / {lanes} }};"
            pad = "  " * self.out.indent
            self.out.rows[at:at] = [pad + x for x in (names, *self.vectors.typedefs())]

    def _points_setup(self) -> None:
        if self.function is None:
            self._points(0)
            return
        self._declare()
        fresh = self._start_values()
        if self.vectors:
            self._gather()
        self._points(0)
        self._finish(fresh)

    def _gather(self) -> None:
        """Fields of the lanes' records, side by side: they are the same in all steps."""
        assert self.lanes is not None
        lanes, names = self.lanes, self.context.names
        found = self.n.gathered(self.inner)
        for k, name, t in found:
            buffer = self.n.vector_program.inp.accesses[k].buffer
            array = names.new(f"{buffer}_{name}")
            self.gathered[k, name] = array, t
            self.out.add(f"{c_type(t)} {array}[{lanes.count}] __attribute__((aligned(64)));")
        if not found:
            return
        lane, saved = names.new("lane"), dict(self.context.at)
        self.context.at[lanes.dim] += f" + {lane}"
        with self.out.block(f"for (long {lane} = 0; {lane} < {lanes.count}; {lane}++)"):
            for k, name, t in found:
                e = Field(Operand(k, self._type_of(k)), name, t)
                self.out.add(f"{self.gathered[k, name][0]}[{lane}] = {self.context.scalar(e)};")
        self.context.at = saved

    def _type_of(self, access: int) -> Type:
        program = self.n.vector_program
        return program.buffer(program.inp.accesses[access].buffer).type

    def _gathered_here(self, name: str, t: ScalarType) -> str:
        assert self.vectors is not None
        return f"*(const {self.vectors.unaligned(t)} *)&{name}[{self.vector_counter}*{self.vectors.lanes}]"

    # ------------------------------------------------------------------ points

    def _points(self, k: int) -> None:
        """Loops ``inner[k:]`` and the point itself."""
        tile = max(self.n.nest.tile - self.n.scope, 0)
        whole = self._whole_step(k) if k == tile else None
        steps = self._step_condition(tile) if k == tile else None
        if steps is not None:
            with self.out.block(f"if ({' && '.join(c for c in (whole, steps) if c)})"):
                self._tile_loops(k, whole=True)
                self.out.middle("} else {")
                self._single_points(k)
        elif whole is not None:
            with self.out.block(f"if ({whole})"):
                self._tile_loops(k, whole=True)
                self.out.middle("} else {")
                self._tile_loops(k, whole=False)
        else:
            constant_counts = k == tile and self._reduced_tile(k) and (self.full or not self.n.ragged)
            self._tile_loops(k, whole=constant_counts)

    def _whole_step(self, k: int) -> str | None:
        """Where no reduced dimension of the register tile, loops ``inner[k:]``, is clipped; None: always."""
        if not self._reduced_tile(k) or (self.n.ragged and not self.full):
            return None
        return self._reduced_whole(k)

    def _steps(self, loop: Loop, k: int) -> None:
        """The loop ``inner[k]`` around the register tile, over a reduced dimension.

        before   for (k = 0; k < end; k += 8) if (k + 7 < n) { whole } else { clipped }
        after    long k = 0;
                 for (; k < end && k + 7 < n; k += 8) { whole }
                 for (; k < end; k += 8) { clipped }

        Once a step is clipped, all later ones are.  On the border of a domain the same, for steps of which
        only some points contribute; such come first, too, where a constraint lets the loop begin late:

        before   for (k = 0; k < end; k++) if (i + 7 <= k) { whole } else { points one by one }
        after    long k = 0;
                 for (; k < end && !(i + 7 <= k); k++) { points one by one }
                 for (; k < end && i + 7 <= k; k++) { whole }
                 for (; k < end; k++) { points one by one }

        Compilers keep accumulators in registers through a loop without the clipped step, and may spill them
        around one that has it.
        """
        variable = self.n._variable(loop)
        lines, first, end = self.n.bounds(loop, variable, self.inner[k + 1 :], self.n.domain.rows)
        self.out.add(*lines)
        if loop is self.peeled:
            first += " + 1"
        if screened(self, k, first, end):
            return
        self.context.at[loop.dim] = variable
        whole = self._whole_step(k + 1)
        if self.by_rows and whole in (None, "0"):
            self._steps_between_rows(loop, k, (first, end))
            return
        condition = self._step_condition(k + 1)
        ends = find_ends(self, k, first, end)
        if ends is None and condition is None and whole in (None, "0"):
            with self.out.block(for_head(loop, variable, first, end)):
                self._fetch_pages(k + 1)
                self._points(k + 1)
            return
        step = step_of(loop, variable)
        tile, at = self.inner[k + 1 :], self.context.at
        late = condition and self.n.domain.rising(loop.dim, self.steps, tile, at, every=self.guarded)
        if ends is not None:
            first, end, late, condition = ends.first, ends.end, ends.begun(variable), ends.whole(variable)
        self.out.add(f"long {variable} = {first};")
        if late:
            with self.out.block(f"for (; {variable} < {end} && !({late}); {step})"):
                self._single_points(k + 1)
        tests = " && ".join(c for c in (whole, condition) if c)
        with self.out.block(f"for (; {variable} < {end} && {tests}; {step})"):
            self._fetch_pages(k + 1)
            self._tile_loops(k + 1, whole=True)
        with self.out.block(f"for (; {variable} < {end}; {step})"):
            if condition is None:
                self._tile_loops(k + 1, whole=False)
            else:
                self._single_points(k + 1)

    def _fetch_pages(self, k: int) -> None:
        """Before a step, loops ``inner[k:]``, along rows that are reduced in vectors."""
        if self.vectors and self.reduces_lanes and self.full:
            write_next_part(self.n, self.inner[k:], self.vectors)
            if self.n.nest.ahead:
                write_pages(self.n, self.inner[k:], self.vectors)

    def _steps_between_rows(self, loop: Loop, k: int, bounds: tuple[str, str]) -> None:
        """The same steps in as many parts as the tile has rows, with one row fetched before each.

        before   fetch all rows; for (k = 0; k < end; k++) { step }
        after    long k = 0;
                 for (r = 0; r < 6; r++) {
                   fetch row r; const long k_part = end*(r + 1)/6; for (; k < k_part; k++) { step } }

        More fetches in a row than a core keeps track of hold up what follows them.
        """
        (first, end), variable, names = bounds, self.context.at[loop.dim], self.context.names
        axis, rows = self.axes[0]
        row, part = names.new(f"{axis.dim}_r"), names.new(f"{loop.dim}_part")
        self.out.add(f"long {variable} = {first};")
        with self.out.block(f"for (long {row} = 0; {row} < {rows}; {row}++)"):
            self._fetch_row(row)
            steps = atom(end if first == "0" else f"{end} - {first}")
            begun = "" if first == "0" else f"{first} + "
            self.out.add(f"const long {part} = {begun}{steps}*({row} + 1)/{rows};")
            with self.out.block(f"for (; {variable} < {part}; {step_of(loop, variable)})"):
                self._points(k + 1)

    def _single_points(self, k: int) -> None:
        """The points of loops ``inner[k:]`` that are in the domain, one by one; rows of vectors where that is
        what they are.
        """
        if k == max(self.n.nest.tile - self.n.scope, 0) and self._row_by_row(k):
            self._single_rows(k)
            return
        if k == len(self.inner):
            self._scalar_point(tail=bool(self.vectors))
            return
        loop, inner = self.inner[k], self.inner[k + 1 :]
        with ExitStack() as stack:
            stack.callback(self._restore, dict(self.context.at), dict(self.counters))
            if loop.dim in self.n.concatenated:
                self._counter_loop(loop, stack, inner, self.n.domain.rows)
            else:
                self._clipped_loop(loop, stack, inner)
            self._single_points(k + 1)

    def _single_rows(self, k: int) -> None:
        """The rows of the register tile, loops ``inner[k:]``, that are in the domain.

        A branch for each row, and not a loop over some: which accumulators it changes is known then.
        """
        *around, lanes = self.inner[k:]
        mine = {x.dim for x in around}
        with ExitStack() as stack:
            stack.callback(self._restore, dict(self.context.at), dict(self.counters))
            for n, loop in enumerate(around):
                self._counter_loop(loop, stack, around[n + 1 :], None)
            rows = [r for r in self.n.domain.rows if r.names & mine]
            inside = self.n.domain.throughout(rows, (lanes,), self.context.at, every=True)
            if inside is not None:
                stack.enter_context(self.out.block(f"if ({inside})"))
            self._ask_lanes(stack)
            self._vector_loop(stack)
            self._vector_point()

    def _ask_lanes(self, stack: ExitStack) -> None:
        """Before the loop over vectors of a point: nothing is done where their condition does not hold."""
        if self.vectors and self.n.agreed is not None and not self.n.asked_once:
            condition = self.context.scalar(self.n.agreed.condition)
            stack.enter_context(self.out.block(f"if ({condition})"))

    def _clipped_loop(self, loop: Loop, stack: ExitStack, inner: Sequence[Loop]) -> None:
        """A loop over parts of a reduced dimension."""
        variable = self.n._variable(loop)
        lines, first, end = self.n.bounds(loop, variable, tuple(inner), self.n.domain.rows)
        self.out.add(*lines)
        if loop is self.peeled:
            first += " + 1"
        stack.enter_context(self.out.block(for_head(loop, variable, first, end)))
        self.context.at[loop.dim] = variable

    def _obeyed(self, k: int) -> Rows | None:
        """What the loop ``inner[k]`` over cells obeys; None: it runs over all of them."""
        if not self.full:
            return self.n.domain.rows
        tile = max(self.n.nest.tile - self.n.scope, 0)
        rows = [r for r in self.n.domain.contributions if self.inner[k].dim in r.names]
        return rows if rows and k < tile else None

    def _reduced_tile(self, k: int) -> bool:
        return any(x.dim not in self.n.concatenated for x in self.inner[k:])

    def _constant_loop(self, loop: Loop, stack: ExitStack) -> str:
        """A loop over all parts of a reduced dimension; its counter."""
        v = self.context.names.new(f"{loop.dim}_r")
        start = self.context.at[loop.dim]
        if loop.role == "unrolled" and self.full:  # clipped loops inside would be as many loops each
            self.out.add(f"#pragma GCC unroll {loop.count}")
        stack.enter_context(self.out.block(f"for (long {v} = 0; {v} < {loop.count}; {v}++)"))
        offset = v if loop.size == 1 else f"{loop.size}*{v}"
        self.context.at[loop.dim] = offset if start == "0" else f"{start} + {offset}"
        return v

    def _tile_loops(self, k: int, whole: bool) -> None:
        if k == len(self.inner):
            self._point()
            return
        tile = max(self.n.nest.tile - self.n.scope, 0)
        shared = sliding(self, k) if whole and self.full and k == tile and not self.masked else None
        if shared is not None:
            write_sliding(self, k, shared)
            return
        if k + 2 == tile and write_flat(self, k):
            return
        with ExitStack() as stack:
            saved_at, saved_counters = dict(self.context.at), dict(self.counters)
            stack.callback(self._restore, saved_at, saved_counters)
            if self.full and k >= tile and (whole or not self.reduces_lanes):
                stack.enter_context(self._holding(k))
            loop = self.inner[k]
            if loop.dim in self.n.concatenated:
                if loop is self.lanes:
                    self._ask_lanes(stack)
                    self._vector_loop(stack, opened=not self.masked)
                else:
                    self._counter_loop(loop, stack, self.inner[k + 1 :], self._obeyed(k))
            elif loop is self.lanes and whole:
                self._ask_lanes(stack)
                self._vector_loop(stack, opened=not self.masked)
            elif whole and k >= tile and loop.count is not None:
                self._constant_loop(loop, stack)
            elif k + 1 == tile:
                self._steps(loop, k)
                return
            else:
                self._clipped_loop(loop, stack, self.inner[k + 1 :])
            in_scalar_tail = self.reduces_lanes and not whole and k >= tile
            if k < tile:
                self._points(k + 1)
            elif k + 1 == len(self.inner):
                self._point(tail=in_scalar_tail)
            else:
                self._tile_loops(k + 1, whole)

    def _point(self, tail: bool = False) -> None:
        if self.reduces_lanes and (tail or not self._in_vector_loop()):
            self._scalar_point(tail=True)
        elif self.vectors:
            self._vector_point()
        else:
            self._scalar_point(tail=False)

    def _in_vector_loop(self) -> bool:
        assert self.vectors is not None and self.lanes is not None
        return self.vectors.lanes in self.context.at[self.lanes.dim]

    def _vector_point(self, operands: dict[int, str] | None = None) -> None:
        """``operands``: vectors that are loaded already, by the number of their access."""
        assert self.vectors is not None
        fields = {at: self._gathered_here(name, t) for at, (name, t) in self.gathered.items()}
        operands = operands or self._held()
        # of a guarded tile, points outside of the domain are computed as well
        printer = VectorPrinter(
            self.context, self.vectors, operands=operands, fields=fields, wraps=self.guarded
        )
        if not self.masked:
            self._write_vector_point(printer)
            return
        assert self.lanes is not None
        most = self.lanes.count or 1
        text = self.n.masked_text(printer, self.out, self.vector_counter, most)
        with self.out.block(""), ExitStack() as stack:
            self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
            text.write(self.n.lane_function.body)
            self._open_vector_loop(stack)
            self._write_vector_point(printer)

    @contextmanager
    def _holding(self, k: int) -> Iterator[None]:
        """Rows in the order in which operands are held, and those that the loop ``inner[k]`` shares."""
        before = self.inner, dict(self.held), dict(self.context.places)
        try:
            self.inner = arranged(self, k)
            hold_operands(self, k)
            turn_operands(self, k)
            yield
        finally:
            self.inner, self.held, self.context.places = before

    def _held(self) -> dict[int, str]:
        """Operands that are in registers already, at the point."""
        found = {}
        for number, (name, loops, several) in self.held.items():
            at = "".join(f"[{self.counters[x]}]" for x in loops)
            found[number] = f"{name}{at}[{self.vector_counter}]" if several else f"{name}{at}"
        return found

    def _write_vector_point(self, printer: VectorPrinter) -> None:
        """One vector of the scalar function's values, combined or stored."""
        assert self.vectors is not None
        for name, t, value in () if self.masked else named_values(self.n.lane_function.body):
            own = name if name in self.n.own_names else self.context.names.new(name)
            if printer.varies(value) or own != name:
                self.out.add(f"const {self.vectors.type(t)} {own} = {printer.vector(value)};")
                printer.variables[name] = own
            else:
                self.out.add(f"const {c_type(t)} {name} = {self.context.scalar(value)};")
        values = [printer.vector(e) for e in self.n.lane_function.results]
        if self.function is None:
            self._store_vectors(values)
            return
        if len(values) > 1 or not isinstance(self.function.values[0], Binary):
            values = [self._named_vector(v, t) for v, t in zip(values, self.types, strict=True)]
        self._combine_vectors([self._acc(c) for c in range(len(values))], values)

    def _store_vectors(self, values: list[str]) -> None:
        assert self.vectors is not None
        stores = self.n.program.out.stores
        if len(stores) > 1 or stores[0].plain is None:
            values = [self._named_vector(v, t) for v, t in zip(values, self.types, strict=True)]
        printer = VectorPrinter(self.context, self.vectors, results=dict(enumerate(values)))
        texts = [printer.vector(s.value) for s in stores]
        if len(stores) > 1:
            texts = [
                self._named_vector(x, self.n.program.buffer(s.buffer).type)
                for x, s in zip(texts, stores, strict=True)
            ]
        for s, text in zip(stores, texts, strict=True):
            self._store_one(s, text)

    def _store_one(self, s: Store, text: str) -> None:
        """One vector of a store's cells."""
        assert self.vectors is not None
        self.n.write_vector(s, self.vectors, text)

    def _scalar_point(self, tail: bool) -> None:
        scalar = self.n.program.hom.scalar
        with ExitStack() as stack:
            if scalar.body:
                stack.enter_context(self.out.block(""))
                self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
                for line in self.context.printer().statements(scalar.body):
                    self.out.add(line)
            if self.function is None and all(s.plain is not None for s in self.n.program.out.stores):
                self.n.write_all([scalar.results[s.plain or 0] for s in self.n.program.out.stores])
                return
            values = [self.context.scalar(e) for e in scalar.results]
            if self.function is None:
                self.n.store_all(self.n._named(values))
                return
            if len(values) > 1 or repeats_right(self.function):
                values = self.n._named(values)
            accs = [self._tail(c) if tail else self._acc(c) for c in range(len(values))]
            if self.have and not tail:
                at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
                self.n.add_or_set(f"{self.have}{at}", accs, values)
            else:
                self.n.accumulate(accs, values)
