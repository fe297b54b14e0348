"""A ``Nest`` as C: loops in execution order, packs, threads, a register tile with accumulators.

The written shape, for a matrix product with blocks in i and j on threads and k blocked::

    #pragma omp parallel for collapse(2) schedule(static)
    for (long i_1 = ...)                    loops before the local tile, clipped at the sizes
      for (long j_1 = ...)
        for (long k_1 = ...)
          <pack>                            tiles of inputs that get a place of their own
          for (long j_2 ...) for (long i_2 ...)
            if (tile is whole) {            the local tile of results: vectors where possible
              acc = unfinished cells        ("seeded"), or identities ("fresh")
              for (long k = ...) acc += A * B
              cells = acc
            } else if (it can be moved back to be whole) {
              the same, but only the cells that are the tile's own are stored
            } else { the same with clipped loops and scalars }

Unfinished cells are kept as ``Nest.results`` says; the first visit of a cell starts from the
initial value, the last one is followed by the epilogue (or a finishing pass does both).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from emit.ahead_text import write_ahead, write_next_part
from emit.c_text import c_type
from emit.cells_text import for_head
from emit.divided_text import Divided
from emit.joined_text import joins_rows, may_join, write_joined
from emit.kernel_text import Context, Lines, atom
from emit.packs_text import PacksText
from emit.rest_text import write_rest
from emit.tile_text import Tile
from emit.vector_printer import Vectors
from lowering.agreed import agreed
from lowering.domains import Rows
from lowering.loops import Loop, loop_range, size_name
from lowering.lower import Nest, unit_of
from lowering.machine import LINE
from mdh_core.expr import Load, ScalarType, stmt_exprs, straight_line, variables, walk
from mdh_core.ir import Store
from mdh_core.lanes import scalar_calls

PARALLEL_WORK = 1 << 15  # points below which threads cost more than they bring
TEAM_WORK = 1 << 13  # the same where threads have begun and wait for the others in any case
FEW = range(2, 9)  # iterations of an innermost loop that are written out


class NestText(PacksText):
    """Writes one nest into ``out``."""

    def __init__(self, nest: Nest, context: Context, out: Lines) -> None:
        super().__init__(nest, context, out)
        self.began: dict[str, str] = {}  # where a thread's share of a dimension begins
        # dimensions whose tile was moved back to be whole: where its own cells begin
        self.moved: dict[str, str] = {}
        self.moved_to: dict[str, str] = {}  # and where the tile begins instead
        self.fitting: set[str] = set()  # dimensions that are known to be as long as a tile
        # a cell to which nothing contributes is stored all the same: by the local tile
        self.outer_rows = self.domain.positions if nest.results == "direct" else self.domain.rows

    # ------------------------------------------------------------------ outline

    def write(self) -> None:
        program = self.program
        for d in program.hom.dims:
            self.context.at[d.name] = "0"
        outer = [d.name for d in program.hom.dims if d.name in self.concatenated]
        reduced = [d.name for d in program.hom.dims_of("pw")]
        if any(program.dim(d).size.constant == 0 for d in outer):
            return  # known to be empty; compilers warn about loops that never run
        if any(program.dim(d).size.constant == 0 for d in reduced):
            if self.has_initial and self.stored_if_empty:
                self.every_cell(initial_only=True)
            return
        given = self.domain.given()
        if given == "0":
            return
        with ExitStack() as stack:
            conditions = [f"{size_name(d)} > 0" for d in outer]
            conditions += [given] if given else []
            if condition := " && ".join([*conditions, *self._asked_once()]):
                stack.enter_context(self.out.block(f"if ({condition})"))
            if reduced and not self._never_empty(reduced):
                empty = " || ".join(f"{size_name(d)} <= 0" for d in reduced)
                if self.has_initial and self.stored_if_empty:
                    with self.out.block(f"if ({empty})"):
                        self.every_cell(initial_only=True)
                        self.out.middle("} else {")
                        self._body()
                else:
                    with self.out.block(f"if (!({empty}))"):
                        self._body()
            else:
                self._body()

    def _asked_once(self) -> list[str]:
        """A condition that all points share, where nothing is stored without it."""
        found = agreed(self.program)
        if found is None or not found.once() or (self.function is not None and self.stored_if_empty):
            return []
        self.asked_once = True
        return [atom(self.context.scalar(found.condition))]

    def _declare_joined(self) -> None:
        """Where rows that share lines are written past the caches, see ``emit.joined_text``."""
        inner, cache = self.nest.loops[self.scope :], self.context.cache
        if not inner or inner[-1].role != "lanes" or cache is None:
            return
        for b in self.nest.joined:
            if not may_join(self, b, inner):
                continue
            t = self.program.buffer(b).type
            cells = "*".join(f"(double){size_name(d.name)}" for d in self.program.hom.dims)
            conditions = [
                f"{cells}*sizeof({c_type(t)}) > {cache}.0",
                f"{size_name(inner[-1].dim)} >= {2 * LINE // t.size}",
                f"(__UINTPTR_TYPE__){b}%sizeof({c_type(t)}) == 0",
            ]
            self.joined[b] = self.context.names.new(f"{b}_joined")
            self.out.add(f"const int {self.joined[b]} = {' && '.join(conditions)};")

    def _never_empty(self, dims: list[str]) -> bool:
        return all((self.program.dim(d).size.constant or 0) > 0 for d in dims)

    def _body(self) -> None:
        if self.nest.results == "parts":
            self._allocate_parts()
        self.declare_masks()
        self._declare_joined()
        if self.prepared:
            self.prepare()
        self._level(0)
        if self.nest.results == "parts":
            self.every_cell(initial_only=False)

    # ------------------------------------------------------------------ loops before the local tile

    def _level(self, k: int) -> None:
        saved, packed = dict(self.context.places), dict(self.packed_from)
        for pack in self.nest.packs:
            if pack.at == k and k <= self.scope:
                self.pack(pack)
        if k == self.scope:
            self._local_tile()
        elif self.nest.threads[0] <= k < self.nest.threads[1]:
            self._threads()
        elif joins_rows(self, k):
            write_joined(self, k)
        elif self._is_tile_row(k):
            self._tile_row(k)
        else:
            with self._loop(k):
                self._level(k + 1)
        self.context.places, self.packed_from = saved, packed

    def _variable(self, loop: Loop) -> str:
        """The last loop over a dimension has its source name."""
        return self.context.names.new(self._wish(loop))

    def _wish(self, loop: Loop) -> str:
        of_dim = [x for x in self.nest.loops if x.dim == loop.dim]
        k = of_dim.index(loop)
        return loop.dim if k == len(of_dim) - 1 else f"{loop.dim}_{k + 1}"

    def _is_tile_row(self, k: int) -> bool:
        """Whether loop ``k`` runs over neighbouring local tiles and nothing stands between it and them."""
        loop, inner = self.nest.loops[k], self.nest.loops[self.scope :]
        moving = {x.dim for x in inner} - {loop.dim}
        return (
            k == self.scope - 1
            and self.middle is None
            and loop.dim in self.concatenated
            and not self._is_moved(k)
            and not self.moved
            and any(x.dim == loop.dim for x in inner)
            and loop_range(inner, loop.dim) == loop.size
            and self.ordered(loop.dim)
            and all(pack.at != self.scope for pack in self.nest.packs)
            and not any(loop.dim in r.names and r.names & moving for r in self.domain.rows)
            # tiles that begin where the row does would not end where the block does
            and not (loop.count and any(r.coefficient(loop.dim) > 0 for r in self.outer_rows))
        )

    def _tile_row(self, k: int) -> None:
        """Whole tiles in a loop of their own, then what remains; a loop of clipped tiles where others are.

        before   for (k = 0; k < n; k += 16) if (rows are whole && k + 15 < n) { whole } else { clipped }
        after    if (rows are whole) { for (; k + 16 <= n; k += 16) { whole }  if (k < n) { rest } } else ...

        Where the domain ends a row, it ends it exactly: tiles begin where the row does.
        """
        loop, inner, out = self.nest.loops[k], self.nest.loops[self.scope :], self.out
        others = [x for x in inner if x.dim in self.concatenated and x.dim != loop.dim]
        own = [r for r in self.outer_rows if loop.dim in r.names]
        rest = [r for r in self.domain.positions if r not in own]
        inside = self.domain.throughout(rest, others, self.context.at)
        rows_whole = self._conjunction(self._whole_condition(others), inside)
        before, d, size = dict(self.context.at), loop.dim, loop.size
        variable = self._variable(loop)
        lines, start, end = self.bounds(loop, variable, inner, own, aligned=False)
        out.add(*lines)
        vectors = self._vectors(inner)
        with ExitStack() as stack:
            if rows_whole is not None:
                stack.enter_context(out.block(f"if ({rows_whole})"))
            cut = bool(own) or not self.whole(loop, size)
            if rows_whole != "0":
                remains = cut or self._begins_short(vectors, d)
                if remains and vectors is not None and self._is_long(inner) and self._may_repeat_points():
                    self._moved_row(inner, vectors, variable, (start, end))
                else:
                    self._row_and_rest(inner, vectors, variable, (start, end), remains)
            if rows_whole is not None:
                out.middle("} else {")
                if vectors is not None and inside is None and self.function is None and others:
                    self._single_rows(inner, others, (start, end), cut)
                    self.context.at = before
                    return
                again = self._variable(loop)
                self.context.at[d] = again
                with out.block(f"for (long {again} = {start}; {again} < {end}; {again} += {size})"):
                    self._version(inner, full=False, vectors=None)
        self.context.at = before

    def _single_rows(
        self, inner: tuple[Loop, ...], others: Sequence[Loop], bounds: tuple[str, str], cut: bool
    ) -> None:
        """The rows of a map's tile that are left at the end, one by one: vectors of one row are whole.

        ``others``: the loops over rows;  ``cut``: whether a row may end inside of a tile
        """
        loop, out = self.nest.loops[self.scope - 1], self.out
        single = tuple(x for x in inner if x not in others)
        vectors = self._vectors(single)
        with ExitStack() as stack:
            for x in others:
                one, end = self._variable(x), self.context.names.new(f"{x.dim}_end")
                at, n, rows = self.context.at[x.dim], size_name(x.dim), x.size * (x.count or 1)
                out.add(f"const long {end} = {n} - {at} < {rows} ? {n} : {at} + {rows};")
                stack.enter_context(out.block(f"for (long {one} = {at}; {one} < {end}; {one}++)"))
                self.context.at[x.dim] = one
            remains = cut or self._begins_short(vectors, loop.dim)
            self._row_and_rest(single, vectors, self._variable(loop), bounds, remains, follow=False)

    def _row_and_rest(
        self,
        inner: tuple[Loop, ...],
        vectors: Vectors | None,
        variable: str,
        bounds: tuple[str, str],
        remains: bool,
        follow: bool = True,
    ) -> None:
        """Whole tiles, then what remains of the row, if anything may.

        ``follow``: what the tiles read is fetched ahead, if anything is
        """
        loop, (start, end), out = self.nest.loops[self.scope - 1], bounds, self.out
        size = loop.size
        out.add(f"long {variable} = {start};")
        self.context.at[loop.dim] = variable
        again = self._next_tile(variable, self._first_step(inner, vectors, start, size), size)
        with out.block(f"for (; {variable} + {size} <= {end}; {again})"):
            if follow and vectors is not None and self._follows_rows(vectors, loop):
                write_ahead(self, inner, vectors)
            if self.function is None:
                write_next_part(self, inner, vectors)
            self._version(inner, full=True, vectors=vectors)
        if remains:
            with out.block(f"if ({variable} < {end})"):
                write_rest(self, inner, vectors, bounds, size)

    def _follows_rows(self, vectors: Vectors, loop: Loop) -> bool:
        return bool(self.nest.ahead) and self.function is None and loop.dim == vectors.dim

    @staticmethod
    def _next_tile(variable: str, step: str | None, size: int) -> str:
        return f"{variable} += {step}, {step} = {size}" if step else f"{variable} += {size}"

    def _is_long(self, inner: tuple[Loop, ...]) -> bool:
        """Whether a tile's code is so long that it should be there once: compilers take seconds for each."""
        return any(x.dim not in self.concatenated for x in inner)

    def _moved_row(
        self, inner: tuple[Loop, ...], vectors: Vectors | None, variable: str, bounds: tuple[str, str]
    ) -> None:
        """Whole tiles, the last one moved back; one by one where the row is shorter than a tile.

        As ``_row_and_rest``, with the code of a whole tile once.
        """
        loop, (start, end), out = self.nest.loops[self.scope - 1], bounds, self.out
        size = loop.size
        with out.block(f"if ({end} - {start} >= {size})" if start != "0" else f"if ({end} >= {size})"):
            again = self._next_tile(variable, self._first_step(inner, vectors, start, size), size)
            with out.block(f"for (long {variable} = {start}; {variable} < {end}; {again})"):
                at = self.context.names.new(f"{loop.dim}_start")
                out.add(f"const long {at} = {variable} + {size} <= {end} ? {variable} : {end} - {size};")
                self.context.at[loop.dim] = at
                if self.function is None:
                    write_next_part(self, inner, vectors)
                self._version(inner, full=True, vectors=vectors)
            single = tuple(x for x in inner if x.dim != loop.dim)
            rows = inner[max(self.nest.tile - self.scope, 0) : -1]  # of the register tile
            apart = all(x.dim != loop.dim or x in rows for x in inner)
            vectors = self._vectors(single) if apart else None
            if vectors is not None:
                out.middle("} else {")
                one = self._variable(loop)
                with out.block(f"for (long {one} = {start}; {one} < {end}; {one}++)"):
                    self.context.at[loop.dim] = one
                    self._version(single, full=True, vectors=vectors)
                return
            out.middle(f"}} else if ({start} < {end}) {{")
            self.context.at[loop.dim] = start
            self._version(inner, full=False, vectors=None)

    def _first_step(
        self, inner: tuple[Loop, ...], vectors: Vectors | None, start: str, size: int
    ) -> str | None:
        """The variable that makes the second tile of a row begin with a line; None: not needed.

        Tiles that are written past the caches are whole lines (``_streamed``): where they begin in the
        middle of one, each leaves two halves behind.  Others may have to begin so (``Nest.aligned``): a
        vector across two lines takes two accesses.  The first tile overlaps the second, so points must be
        free to be computed twice.
        """
        dim = self.nest.loops[self.scope - 1].dim
        if not self._begins_short(vectors, dim):
            return None
        assert vectors is not None
        mask = next(iter(self.masks.values()), None)
        s = self._streamed(next(iter(self.masks)), inner[-1]) if mask else self._stored_in_lines(dim)
        assert s is not None
        at = self.context.at[dim]
        self.context.at[dim] = start
        place = f"(__UINTPTR_TYPE__)&{self.context.subscript(s.buffer, s.index)}"
        self.context.at[dim] = at
        step = self.context.names.new(f"{dim}_step")
        t = self.program.buffer(s.buffer).type
        whole = min(LINE, size * t.size & -(size * t.size))  # a tile is several of these
        lead = f"(long)((-{place} & {whole - 1})/sizeof({c_type(t)}))"
        self.out.add(
            f"long {step} = {lead};"
            if self.nest.aligned or mask is None
            else f"long {step} = {mask} == MDH_VECTOR_BYTES - 1 ? {lead} : 0;",
            f"if ({step} == 0) {step} = {size};",
        )
        return step

    def _stored_in_lines(self, dim: str) -> Store | None:
        """The first store whose cells along a dimension are neighbours."""
        stores = (s for s in self.program.out.stores if self._store_stride(s, dim) == 1)
        return next((s for s in stores if isinstance(self.program.buffer(s.buffer).type, ScalarType)), None)

    def _begins_short(self, vectors: Vectors | None, dim: str) -> bool:
        """Whether the first step of a row of tiles may be shorter than a tile, see ``_first_step``."""
        if vectors is None or vectors.dim != dim or not self._may_repeat_points():
            return False
        in_lines = self.nest.aligned and self.function is None and self._stored_in_lines(dim) is not None
        return bool(self.masks) or in_lines

    @staticmethod
    def _conjunction(*conditions: str | None) -> str | None:
        """All conditions at once; None: always, "0": never."""
        if "0" in conditions:
            return "0"
        return " && ".join(c for c in conditions if c is not None) or None

    def _loop(self, k: int) -> ExitStack:
        stack = ExitStack()
        loop = self.nest.loops[k]
        variable = self._variable(loop)
        lines, head = self.head(loop, variable, self.nest.loops[k + 1 :], self.outer_rows)
        self.out.add(*lines)
        few = self.program.dim(loop.dim).size.constant or 0
        innermost = k == len(self.nest.loops) - 1
        if few in FEW and innermost and head == for_head(loop, variable, "0", str(few)):
            self.out.add(f"#pragma GCC unroll {few}")  # which gcc does by itself with -O3 only
        stack.enter_context(self.out.block(head))
        start = self.context.at[loop.dim]
        if loop.dim not in self.concatenated and not self.prepared:
            self.visits.append(f"{variable} == {start}")
            stack.callback(self.visits.pop)
        self.context.at[loop.dim] = variable
        stack.callback(self.context.at.__setitem__, loop.dim, start)
        stack.callback(self.began.__setitem__, loop.dim, self.began.get(loop.dim, "0"))
        self.began[loop.dim] = start
        if self._is_moved(k):
            self._move(k)
            stack.callback(self.moved.pop, loop.dim)
        return stack

    # ------------------------------------------------------------------ tiles on the border

    def _move(self, k: int) -> None:
        """A tile that would be clipped begins earlier, but not before what copies of inputs hold."""
        loop = self.nest.loops[k]
        d, n = loop.dim, size_name(loop.dim)
        own, least = self.context.at[d], self.packed_from.get(d, "0")
        start = self.context.names.new(f"{d}_start")
        last = f"{n} - {loop.size}"
        last = f"({last} > {least} ? {last} : {least})"
        self.out.add(f"const long {start} = {own} + {loop.size} <= {n} ? {own} : {last};")
        self.moved[d], self.moved_to[d], self.context.at[d] = own, start, start
        if least == "0" and (self.program.dim(d).size.constant or 0) >= loop.size:
            self.fitting.add(d)

    def _moved_tile(self, inner: tuple[Loop, ...], tiled: list[Loop], vectors: Vectors | None) -> None:
        """A tile that may have been moved: whole, whole with cells that are not its own, or clipped."""
        own = " && ".join(f"{self.context.at[d]} == {at}" for d, at in self.moved.items())
        whole = self._whole_condition(tiled)
        if vectors is None or whole == "0":
            self._clipped_where_it_was(inner)
            return
        padded = self._is_padded(vectors.dim)
        exists = self._whole_condition([x for x in tiled if x.dim != vectors.dim]) if padded else whole
        with self.out.block(f"if ({self._conjunction(own, whole)})"):
            self._version(inner, full=True, vectors=vectors)
            self.out.middle(f"}} else if ({exists}) {{" if exists else "} else {")
            self._version(inner, full=True, vectors=vectors, guard=())
            if exists:
                self.out.middle("} else {")
                self._clipped_where_it_was(inner)

    def _is_padded(self, dim: str) -> bool:
        """Whether all operands of a tile exist where a dimension is shorter than it: in copies."""
        used = [a for a in self.program.inp.accesses if any(x.coefficient(dim) for x in a.index)]
        scalar = self.program.hom.scalar
        nodes = (n for e in (*scalar.results, *stmt_exprs(scalar.body)) for n in walk(e))
        if any(isinstance(n, Load) and dim in variables(n) for n in nodes):
            return False  # rows that data names are read where they are
        strips = {b: self.context.place(b).strip for b in self.padded}
        return dim in self.moved and all((s := strips.get(a.buffer)) and s.dim == dim for a in used)

    def _clipped_where_it_was(self, inner: tuple[Loop, ...]) -> None:
        before = dict(self.context.at)
        self.context.at |= self.moved
        self._version(inner, full=False, vectors=None)
        self.context.at = before

    def _threads(self) -> None:
        """Loops whose iterations are shared; none of their bounds depends on another of them."""
        first, last = self.nest.threads
        bound = self.nest.loops[first:last]
        heads: list[str] = []
        trips: list[str] = []
        cut: list[str] = []  # lines that say where parts begin and end
        variables, saved = {}, dict(self.context.at)
        for k, loop in enumerate(bound, first):
            variables[loop.dim] = variable = self._variable(loop)
            if loop.dim in self.nest.divided:
                unit = unit_of(self.nest, loop.dim)
                assert unit is not None
                divided = Divided(loop, unit, self.context, trips)
                self.out.add(*divided.count())
                cut += divided.part(variable)
                self.ends[unit] = self.next_part[loop] = divided.end
                heads.append(divided.head)
                trips.append(divided.parts)
                continue
            others = [x for j, x in enumerate(self.nest.loops[first:], first) if j != k]
            lines, start, end = self.bounds(loop, variable, others, self.outer_rows)
            self.out.add(*lines)
            if loop.dim not in self.concatenated:
                self.slots.append((variable, self.context.at[loop.dim], loop.size, loop.count))
            heads.append(for_head(loop, variable, start, end))
            trips.append(_trip_count(loop, start, end))
        self.context.at |= variables
        self.began |= variables  # cells before them are another thread's
        self.share_loops(bound, trips)
        with ExitStack() as stack:
            for head in heads[:-1]:
                self.out.add(head)
                self.out.indent += 1
                stack.callback(self._dedent)
            with self.out.block(heads[-1]):
                self.out.add(*cut)
                tied = [r for r in self.outer_rows if len(r.names & variables.keys()) > 1]
                if empty := self.domain.nowhere(tied, self.nest.loops[last:], self.context.at):
                    self.out.add(f"if ({empty}) continue;")
                at = len(self.out.rows)
                moved = [k for k in range(first, last) if self._is_moved(k)]
                for k in moved:
                    self._move(k)
                self._level(last)
                for k in moved:
                    del self.moved[self.nest.loops[k].dim]
                if any("MDH_STORE(" in row for row in self.out.rows[at:]):
                    self.out.add("MDH_STORED();")  # each thread's own; not every barrier orders them
        self.context.at = saved
        self.slots.clear()

    def share_loops(self, bound: tuple[Loop, ...], trips: list[str]) -> None:
        """Writes the directive of the thread loops; nothing where the whole work is known to be too little.

        Parts whose cost varies (loops and calls inside the scalar function, parts of a triangle) are handed
        out as threads get free; that changes who computes a part, never what is combined with what.  Parts of
        a triangle in a host loop are dealt out in turn, as even as that: what a thread wrote in one iteration
        it mostly reads in the next, and lines go from core to core less often.
        """
        dims = self.program.hom.dims
        scalar = self.program.hom.scalar
        uneven = not straight_line(scalar.body) or scalar_calls(self.program)
        least = (TEAM_WORK if self.context.team else PARALLEL_WORK) // (64 if uneven else 1)
        known = [d.size.constant for d in dims]
        enough = "*".join(f"(double){size_name(d.name)}" for d in dims) + f" > {least}"
        if None not in known:
            if math.prod(n or 0 for n in known) <= least:
                return
            enough = ""
        shaped = any(r.names & {x.dim for x in bound} for r in self.domain.rows)
        if uneven or (shaped and not self.context.repeated):
            kind = "dynamic"
        else:
            kind = "static, 1" if shaped else "static"
        self.context.shared_loop(self.out, kind, len(bound), enough, least, trips)
        self.context.enough.append(enough)
        self.parallel = True

    # ------------------------------------------------------------------ the local tile

    def _local_tile(self) -> None:
        """The versions of the tile, each under the condition that it needs."""
        inner = self.nest.loops[self.scope :]
        tiled = [loop for loop in inner if loop.dim in self.concatenated]
        whole = self._whole_condition(tiled)
        inside = self.domain.throughout(self.domain.positions, tiled, self.context.at)
        vectors = self._vectors(inner)
        if self.middle is not None and vectors is not None:  # it has no domain, but a border
            inside = self.domain.throughout(list(self.middle.rows), tiled, self.context.at, every=True)
        full = self._conjunction(whole, inside)
        if self.moved:
            self._moved_tile(inner, tiled, vectors)
            return
        if inside is None and whole not in (None, "0") and self._may_repeat_points():
            self._shifted_tile(inner, tiled, vectors)
            return
        if full is None:  # no tile, or one that is never clipped
            self._version(inner, full=True, vectors=vectors)
            return
        if full == "0":
            self._version(inner, full=False, vectors=None)
            return
        with self.out.block(f"if ({full})"):
            self._version(inner, full=True, vectors=vectors)
            if inside is not None and vectors is not None and self._guarded_tile(inner, whole, vectors):
                return
            self.out.middle("} else {")
            self._version(inner, full=False, vectors=None)

    def _guarded_tile(self, inner: tuple[Loop, ...], whole: str | None, vectors: Vectors) -> bool:
        """A tile on the domain's border computed as a whole, of which only the domain's cells are stored.

        That needs operands that exist outside of the domain.  True if no other tiles are left.
        """
        readable = self.domain.readable()
        if self.function is None or self._keeps_order or readable is None or self.agreed is not None:
            return False
        reduced = {d.name for d in self.program.hom.dims_of("pw")}
        fixed = [r for r in readable if not r.names & reduced]
        tiled = [loop for loop in inner if loop.dim in self.concatenated]
        exists = self.domain.throughout(fixed, tiled, self.context.at, every=True)
        condition = self._conjunction(whole, exists)
        self.out.middle(f"}} else if ({condition}) {{" if condition else "} else {")
        self._version(inner, full=True, vectors=vectors, guard=[r for r in readable if r.names & reduced])
        return condition is None

    def _shifted_tile(self, inner: tuple[Loop, ...], tiled: list[Loop], vectors: Vectors | None) -> None:
        """The last tile of a row is moved back to be whole, over cells that this thread computed before."""
        before = dict(self.context.at)
        conditions = []
        for dim in dict.fromkeys(loop.dim for loop in tiled):
            if self._whole_condition([x for x in tiled if x.dim == dim]) is None:
                continue
            span = loop_range(tiled, dim)
            at, n, began = before[dim], size_name(dim), self.began.get(dim, "0")
            if not self.ordered(dim):  # parts are strided: the cells before are not this thread's
                conditions.append(f"{at} + {span} <= {n}")
                continue
            start = self.context.names.new(f"{dim}_start")
            self.out.add(f"const long {start} = {at} + {span} <= {n} ? {at} : {n} - {span};")
            conditions.append(f"{start} >= {began}")
            self.context.at[dim] = start
        with self.out.block(f"if ({' && '.join(conditions)})"):
            self._version(inner, full=True, vectors=vectors)
            self.context.at = dict(before)
            self.out.middle("} else {")
            self._version(inner, full=False, vectors=None)

    def _whole_condition(self, tiled: list[Loop]) -> str | None:
        """C text that holds where no loop of the tile is clipped; None: always, "0": never."""
        conditions = []
        for dim in dict.fromkeys(loop.dim for loop in tiled):
            span = loop_range(tiled, dim)
            assert span is not None
            if dim in self.moved and dim in self.fitting:
                continue
            known = self.program.dim(dim).size.constant
            if known is not None and known < span:
                return "0"
            extent = max(x.size * (x.count or 1) for x in tiled if x.dim == dim)
            if known is not None and known % extent == 0 and self.ordered(dim):
                continue
            start = self.context.at[dim]
            last = f"{start} + {span - 1}" if start != "0" else str(span - 1)
            conditions.append(f"{last} < {size_name(dim)}")
        return " && ".join(conditions) or None

    # ------------------------------------------------------------------ one version of the tile

    def _version(
        self, inner: tuple[Loop, ...], full: bool, vectors: Vectors | None, guard: Rows | None = None
    ) -> None:
        with ExitStack() as stack:
            if vectors is not None:
                stack.enter_context(self.in_the_middle())
            Tile(self, inner, full, vectors, guard=guard).write()


def _trip_count(loop: Loop, start: str, end: str) -> str:
    """C text of how often a loop runs."""
    span = end if start == "0" else f"{end} - {start}"
    return f"(({span} + {loop.size - 1})/{loop.size})" if loop.size != 1 else f"({span})"
