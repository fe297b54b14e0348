"""What a visit of a local tile leaves behind: results stored, or kept for the next visit.

In vectors where stores have a vector form, else lane by lane.  Of a tile on a border (``guarded``) only
cells that are the tile's own and in the domain are stored, from a copy of its vectors: registers cannot be
numbered at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from emit.accumulators_text import Accumulators
from emit.c_text import c_type, constant
from emit.vector_printer import NotVector, VectorPrinter
from mdh_core.expr import RecordType, ScalarType
from mdh_core.fields import component_fields


class Results(Accumulators):
    """Accumulators and where they go."""

    def _finish(self, fresh: bool) -> None:
        if self.vectors is None:
            with self._cells(vector_axis=False):
                self._finish_cell([self._acc(c) for c in range(len(self.types))], fresh)
            return
        if self.reduces_lanes:
            with self._cells(vector_axis=False, every=False) as stack:
                self._only_own(stack, [loop.dim for loop, _ in self.axes])
                self._finish_cell(self._folded(), fresh=True)
            return
        if self.tail:
            self._join_tail()
        if self.guarded:
            self._finish_inside(fresh)
            return
        with self._cells(vector_axis=True):
            results = [self._acc(c) for c in range(len(self.types))]
            if self.late:
                results = self._joined(results)
            if not fresh and self._finish_vector(results):
                return
            lane = self.context.names.new("lane")
            assert self.lanes is not None
            lanes = self._lanes_in_memory(results)
            with self.out.block(f"for (long {lane} = 0; {lane} < {self.vectors.lanes}; {lane}++)"):
                saved = dict(self.context.at)
                self.context.at[self.lanes.dim] += f" + {lane}"
                self._finish_cell(self._in_records([f"{a}[{lane}]" for a in lanes]), fresh)
                self.context.at = saved

    def _in_records(self, fields: list[str]) -> list[str]:
        """The components of the program, of which vectors hold the fields."""
        if self.types == self.n.types:
            return fields
        found = [list[str]() for _ in self.n.types]
        for text, (c, _) in zip(fields, component_fields(self.n.program), strict=True):
            found[c].append(text)
        pairs = zip(self.n.types, found, strict=True)
        return [f"({c_type(t)}){{{', '.join(x)}}}" if isinstance(t, RecordType) else x[0] for t, x in pairs]

    def _join_tail(self) -> None:
        """What was added point by point joins the vectors."""
        assert self.vectors is not None
        with self._cells(vector_axis=True):
            at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
            first = f"{at}[{self.vector_counter}*{self.vectors.lanes}]"
            tails = [
                f"*(const {self.vectors.unaligned(t)} *)&{name}{first}"
                for name, t in zip(self.tail, self.types, strict=True)
            ]
            self._combine_vectors([self._acc(c) for c in range(len(self.types))], tails)

    def _finish_inside(self, fresh: bool) -> None:
        """The cells of a guarded tile that are in the domain, from a copy of the vectors."""
        assert self.vectors is not None
        shape = "".join(f"[{count}]" for _, count in self.cell_axes)
        copies = [self.context.names.new("cells") for _ in self.types]
        for name, t in zip(copies, self.types, strict=True):
            self.out.add(f"{c_type(t)} {name}{shape};")
        with self._cells(vector_axis=True):
            at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
            for c, (name, t) in enumerate(zip(copies, self.types, strict=True)):
                target = f"{name}{at}[{self.vector_counter}*{self.vectors.lanes}]"
                self.out.add(f"*({self.vectors.unaligned(t)} *)&{target} = {self._acc(c)};")
        with self._cells(vector_axis=False, every=False, scalars=True, rows_only=True) as stack:
            self._only_own(stack, [loop.dim for loop, _ in self.axes])
            self._finish_row(copies, fresh)

    def _finish_row(self, copies: list[str], fresh: bool) -> None:
        """The lanes of one row: in vectors where all are cells and the tile's own, else one by one."""
        lanes, names = self.lanes, self.context.names
        assert self.vectors is not None and lanes is not None
        variable, start = names.new(f"{lanes.dim}_r"), self.context.at[lanes.dim]
        lines, first, end = self.n.counts(lanes, variable, (), self.n.domain.positions)
        self.out.add(*lines)
        conditions = [f"{first} == 0"] if first != "0" else []
        conditions += [f"{end} == {lanes.count}"] if end != str(lanes.count) else []
        if lanes.dim in self.n.moved:
            conditions.append(f"{start} == {self.n.moved[lanes.dim]}")
        with ExitStack() as stack:
            rows = self._row_in_vectors(copies, fresh)
            if rows is not None and not conditions:
                self.out.place(rows, 0)
                return
            if rows is not None:
                stack.enter_context(self.out.block(f"if ({' && '.join(conditions)})"))
                self.out.place(rows, 1)
                self.out.middle("} else {")
            head = f"for (long {variable} = {first}; {variable} < {end}; {variable}++)"
            stack.enter_context(self.out.block(head))
            self.counters[lanes] = variable
            self.context.at[lanes.dim] = variable if start == "0" else f"{start} + {variable}"
            self._only_own(stack, [lanes.dim])
            at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.cell_axes)
            self._finish_cell([f"{name}{at}" for name in copies], fresh)

    def _row_in_vectors(self, copies: list[str], fresh: bool) -> list[str] | None:
        """Text that finishes a row from copies of its vectors; None where a store has no vector form."""
        n, vectors = self.n, self.vectors
        assert vectors is not None
        before, taken, saved = len(self.out.rows), set(self.context.names.taken), dict(self.context.at)
        at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
        joins = n.nest.results != "parts" or n.parts_are_seeded or n.first_visit or n.prepared
        try:
            with ExitStack() as stack:
                self._vector_loop(stack)
                first = f"{at}[{self.vector_counter}*{vectors.lanes}]"
                results = [
                    f"*(const {vectors.unaligned(t)} *)&{name}{first}"
                    for name, t in zip(copies, self.types, strict=True)
                ]
                if fresh and joins:
                    results = self._joined(results)
                if not self._finish_vector(results):
                    raise NotVector
            return self.out.rows[before:]
        except NotVector:
            self.context.names.taken = taken
            return None
        finally:
            del self.out.rows[before:]
            self.context.at = saved

    def _only_own(self, stack: ExitStack, dims: Sequence[str]) -> None:
        """Of a tile that was moved, the cells where it was."""
        moved = self.n.moved.items() if self.guarded else ()
        own = [f"{self.context.at[d]} >= {at}" for d, at in moved if d in dims]
        if own:
            stack.enter_context(self.out.block(f"if ({' && '.join(own)})"))

    def _folded(self) -> list[str]:
        """All lanes of a reduced dimension (and the scalar tail) as one value per component.

        Vectors are combined first and the lanes of the last one read from memory, so that the
        accumulators themselves are never indexed by a variable and stay in registers.
        """
        assert self.vectors is not None and self.function is not None
        vectors, names = self.vectors, self.context.names
        subscripts = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
        totals = []
        for c, t in enumerate(self.types):
            totals.append(names.new("total"))
            self.out.add(f"{vectors.type(t)} {totals[c]} = {self.acc[c]}{subscripts}[0];")
        v = names.new("v")
        assert self.lanes is not None
        self.out.add(f"#pragma GCC unroll {self.lanes.count}")
        with self.out.block(f"for (long {v} = 1; {v} < vectors_{vectors.suffix}; {v}++)"):
            right = [f"{a}{subscripts}[{v}]" for a in self.acc]
            self._combine_vectors(totals, right)
        lanes, results = self._lanes_in_memory(totals), []
        for c, t in enumerate(self.types):
            name = names.new("sum" if self.function.name == "+" else "r")
            start = self._tail(c) if self.tail else ""
            if not start:
                assert self.function.identity is not None and isinstance(t, ScalarType)
                start = constant(self.function.identity[c].value, t)
            self.out.add(f"{c_type(t)} {name} = {start};")
            results.append(name)
        lane = names.new("lane")
        with self.out.block(f"for (long {lane} = 0; {lane} < {vectors.lanes}; {lane}++)"):
            self.n.accumulate(results, [f"{a}[{lane}]" for a in lanes])
        return results

    def _lanes_in_memory(self, texts: list[str]) -> list[str]:
        """Arrays with the lanes of vectors."""
        assert self.vectors is not None
        out = []
        for c, t in enumerate(self.types):
            name = self.context.names.new("lanes_of")
            self.out.add(f"{c_type(t)} {name}[{self.vectors.lanes}];")
            self.out.add(f"*({self.vectors.unaligned(t)} *){name} = {texts[c]};")
            out.append(name)
        return out

    def _finish_cell(self, results: list[str], fresh: bool) -> None:
        n = self.n
        mode = n.nest.results
        if mode == "direct":
            with ExitStack() as stack:
                if n.counted:
                    at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
                    stack.enter_context(self.out.block(f"if ({self.have}{at})"))
                n.store_all(n.with_initial(results) if fresh else results)
            return
        if fresh and (mode == "in place" or n.parts_are_seeded):
            prior = n._named([str(x) for x in self._prior() or []])
            assert self.function is not None
            results = self.context.combined(self.function, prior, results)
            results = n._named(results) if len(results) > 1 else results
        elif fresh and mode == "parts" and (n.first_visit or n.prepared):
            assert self.function is not None
            kept = [n.part(c) for c in range(len(self.types))]
            joined = self.context.combined(self.function, kept, results)
            if not n.prepared:
                joined = [f"{n.first_visit} ? {r} : {j}" for r, j in zip(results, joined, strict=True)]
            results = joined
            results = n._named(results) if len(results) > 1 else results
        for c, r in enumerate(results):
            self.out.add(f"{n.stored(c) if mode == 'in place' else n.part(c)} = {r};")
        if n.flags:
            at = "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)
            self.out.add(f"{n.flag()} = {self.have}{at};")

    def _finish_vector(self, values: list[str]) -> bool:
        """Store whole vectors; False (and nothing written) where a store has no vector form."""
        n, vectors = self.n, self.vectors
        assert vectors is not None
        if any(isinstance(t, RecordType) for t in n.types):
            return False
        at = len(self.out.rows)
        results = dict(enumerate(values))
        try:
            if n.nest.results == "parts":
                if [d.name for d in n.program.hom.dims_of("cc")][-1:] != [vectors.dim]:
                    raise NotVector
                for c, t in enumerate(self.types):
                    self.out.add(f"*({vectors.unaligned(t)} *)&{n.part(c)} = {results[c]};")
                return True
            printer = VectorPrinter(self.context, vectors, results=results)
            texts = []
            for s in n.program.out.stores:
                if s.at_last or n._store_stride(s, vectors.dim) != 1:
                    raise NotVector
                text = printer.vector(s.value)
                t = n.program.buffer(s.buffer).type
                if len(n.program.out.stores) > 1:
                    text = self._named_vector(text, t)
                texts.append((s, text))
            for s, text in texts:
                n.write_vector(s, vectors, text)
        except NotVector:
            del self.out.rows[at:]
            return False
        return True
