"""A ``GpuNest`` as a kernel: blocks, threads, copies in shared memory, a local tile of results in registers.

The written shape, for a matrix product whose operands are copied::

    const long i_1 = (long)(blockIdx.x / j_blocks)*64, j_1 = ...;        the block's first cell
    const int i_t = threadIdx.x / 16 * 4, j_t = ...;                     the thread's first cell in it
    float acc[4][4];
    acc = initial values, or the identity
    for (long k_1 = 0; k_1 < k_size; k_1 += 16) {
      A_tile, B_tile = what the block reads;  barriers where lowering.gpu_barriers wants them
      if (all of the part is there) { for (k) for (cells) acc += A_tile * B_tile }   written out
      else { the same, clipped }
    }
    C = acc where the cell exists

A thread whose cells lie outside of the result computes those at the border once more and does not store them
(its indices are *clamped*): so nothing is read that does not exist, and all threads meet at the barriers.
Where the index set is no box, where records are combined, or where the program reads what it writes, points
are *guarded* instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

from emit.c_text import c_type, constant
from emit.gpu_context import CELL_UNIT, INT_MAX, GpuContext, cell_of_thread
from emit.gpu_kernels import Kernels, Known
from emit.gpu_leaf_text import LeafText
from emit.interface_text import size_text
from emit.kernel_text import product_text, repeats_right
from lowering.barriers import Position
from lowering.gpu import GpuNest, SharedTile, index_limit, split_of
from lowering.gpu_barriers import barriers_of_nest
from lowering.instructions import Leaf, leaf_of
from lowering.loops import Loop, loop_range, size_name
from lowering.lower import Nest
from mdh_core.expr import Load, ScalarType, stmt_exprs, walk
from mdh_core.ir import MdhProgram
from mdh_core.polytope import rows_of

LEAST_LIMIT = 1 << 26  # of a size, so that indices are `int` below it
WRITTEN_OUT = 1024  # points of a thread that are written out at most


class GpuNestText(LeafText):
    """Writes one nest as kernels."""

    def __init__(self, nest: GpuNest, context: GpuContext, kernels: Kernels) -> None:
        bound = (*nest.blocks, *nest.threads, *nest.around, *nest.inside)
        super().__init__(Nest(nest.program, bound, (0, 0), 0, 0, (), "direct"), context, kernels.host)
        self.gpu = nest
        self.kernels = kernels
        self.split = split_of(nest)
        self.reduced = [d.name for d in nest.program.hom.dims_of("pw")]
        self.written = sorted({s.buffer for s in nest.program.out.stores})
        # per dimension the terms of its index: the same for all threads of the block, and of this thread
        self.uniform: dict[str, list[str]] = {d.name: [] for d in nest.program.hom.dims}
        self.own: dict[str, list[str]] = {d.name: [] for d in nest.program.hom.dims}
        self.rows = rows_of(nest.program.hom.domain)
        self.rows = [r for r in self.rows if r.names & self.uniform.keys()]
        self.shares = any(x.dim in self.reduced for x in nest.threads)  # a cell's points, among threads
        self.may_clamp = (
            self.function is not None
            and not self.domain.positions
            and not set(self.written) & _operands(nest.program)
            and all(isinstance(t, ScalarType) for t in self.types)
        )
        self.clamped = self.may_clamp and not self.rows
        self.variables: dict[Loop, str] = {}
        self.plain = leaf_of(nest, kernels.target.name)
        self.leaf = leaf_of(nest, kernels.target.name, nest.instruction)

    # ------------------------------------------------------------------ on the host

    def write(self) -> None:
        program, out = self.program, self.out
        self._note_sizes()
        outer = [d.name for d in program.hom.dims if d.name in self.concatenated]
        given = self.domain.given()
        if given == "0" or any(program.dim(d).size.constant == 0 for d in outer):
            return
        with ExitStack() as stack:
            conditions = [f"{size_name(d)} > 0" for d in outer if program.dim(d).size.constant is None]
            if condition := " && ".join([*conditions, *([given] if given else [])]):
                stack.enter_context(out.block(f"if ({condition})"))
            unknown = [d for d in self.reduced if not program.dim(d).size.constant]
            if not unknown:
                self._main()
                return
            never = any(program.dim(d).size.constant == 0 for d in unknown)
            some = " && ".join(f"{size_name(d)} > 0" for d in unknown) if not never else "0"
            with out.block(f"if ({some})"):
                if not never:
                    self._main()
                if self.has_initial and self.stored_if_empty:
                    out.middle("} else {")
                    self.every_cell(initial_only=True)

    def _note_sizes(self) -> None:
        """Sizes that no step has: of dimensions that lowering made."""
        for d in self.program.hom.dims:
            name, text = size_name(d.name), size_text(d.size)
            if name not in self.kernels.known:
                value = text if d.size.constant is not None else ""
                self.kernels.known[name] = Known(name, "long", value=value)
                self.kernels.made[name] = text

    def _over_cells(self, write: Callable[[], None]) -> None:
        """A kernel with a thread for every cell."""
        dims = [d.name for d in self.program.hom.dims_of("cc")]
        saved, host = dict(self.context.at), self.out
        for d in self.program.hom.dims:
            self.context.at[d.name] = "0"
        total = str(product_text([size_name(d) for d in dims]))
        unit = CELL_UNIT if dims else 1
        blocks = f"({total} + {unit - 1})/{unit}" if dims else "1"
        with self.kernels.kernel(unit, blocks, self.written) as out:
            self.out = out
            with cell_of_thread(out, self.kernels, self.context, dims, unit), ExitStack() as stack:
                tests = [
                    self.domain.not_negative(r, self.context.at)
                    for r in self.rows
                    if not r.names & set(self.reduced)
                ]
                if tests:
                    stack.enter_context(out.block(f"if ({' && '.join(tests)})"))
                write()
        self.out, self.context.at = host, saved

    def _main(self) -> None:
        host = self.out
        counts = [self._count(x) for x in self.gpu.blocks]
        blocks = str(product_text(counts)) if counts else "1"
        narrow = self._narrowed(blocks, [c for c in counts if isinstance(c, str)])
        self.context.narrow = bool(narrow)
        with self.kernels.kernel(self.gpu.unit, blocks, self.written, narrow, self.gpu.resident) as out:
            self.out = out
            self._kernel(counts)
        self.out, self.context.narrow = host, False

    def _narrowed(self, blocks: str, counts: Sequence[str]) -> dict[str, str]:
        """Sizes and counts that the kernel gets as ``int``, behind a test that all its indices are.

        None of them where that does not pay (there is one dimension), or would be too narrow.
        """
        dims, names = self.program.hom.dims, self.context.names
        limit = index_limit(self.gpu)
        known = [d.size.constant for d in dims]
        if len(dims) < 2 or limit < LEAST_LIMIT or any(n is not None and n > limit for n in known):
            return {}
        sizes = [size_name(d.name) for d in dims if d.size.constant is None]
        tests = [f"{n} > {limit}" for n in sizes]
        tests += [f"{blocks} > {INT_MAX}"] if counts and not self.kernels.target.limited else []
        if tests:
            self.out.add(f"if ({' || '.join(tests)}) return 0; /* indices are int */")
        return {n: names.new(f"{n}_int") for n in dict.fromkeys([*sizes, *counts])}

    def _count(self, loop: Loop) -> int | str:
        """Blocks in the direction of a loop: a number, or a variable of the host."""
        trips = self._trips(loop)
        if isinstance(trips, int) or trips.isidentifier():
            return trips
        return self.kernels.note(f"{loop.dim}_blocks", trips.removeprefix("(").removesuffix(")"))

    # ------------------------------------------------------------------ indices

    def _kernel(self, counts: list[int | str]) -> None:
        self._block_indices(counts)
        self._thread_indices()
        with ExitStack() as stack:
            for k, loop in enumerate(self.gpu.around):
                self.barrier("before", f"around{k}")
                self._uniform_loop(loop, stack)
                stack.callback(self.barrier, "end", f"around{k}")
            self._cells_of_thread()

    def barrier(self, place: Literal["before", "end"], name: str) -> None:
        target = self.kernels.target
        shuffled = self.shares and self.by_shuffles
        scope = barriers_of_nest(self.gpu, target.warp, shuffled).at.get(Position(place, name))
        if scope is not None:
            self.out.add(target.barrier if scope == "block" else target.warp_barrier)

    def _block_indices(self, counts: list[int | str]) -> None:
        out, names = self.out, self.context.names
        t = self.context.index_type
        rest, bound = f"({t}){self.kernels.target.block}", list(zip(self.gpu.blocks, counts, strict=True))
        if len(bound) > 1:
            name = names.new("block")
            out.add(f"{t} {name} = {rest};")
            rest = name
        for k, (loop, count) in reversed(list(enumerate(bound))):
            digit = rest if k == 0 else f"{rest} % {count}"
            name = names.new(f"{loop.dim}_{len(self.uniform[loop.dim]) + 1}")
            out.add(f"const {t} {name} = {_times(digit, loop.size)};")
            if k:
                out.add(f"{rest} /= {count};")
            self.uniform[loop.dim].append(name)

    def _thread_indices(self) -> None:
        thread, below = self.kernels.target.thread, 1
        for k, loop in reversed(list(enumerate(self.gpu.threads))):
            assert loop.count is not None
            digit = thread if below == 1 else f"{thread} / {below}"
            digit = digit if k == 0 else f"{digit} % {loop.count}"
            below *= loop.count
            name = self.context.names.new(f"{loop.dim}_t")
            self.out.add(f"const int {name} = {_times(digit, loop.size)};")
            self.own[loop.dim].append(name)

    def _uniform_loop(self, loop: Loop, stack: ExitStack) -> None:
        """A loop that all threads of the block go through together."""
        d = loop.dim
        start, name = " + ".join(self.uniform[d]) or "0", self._name_of(loop)
        stack.enter_context(self.out.block(self._head(loop, name, start, start)))
        before = self.uniform[d]
        self.uniform[d] = [name]
        stack.callback(self.uniform.__setitem__, d, before)

    def _name_of(self, loop: Loop) -> str:
        return self.context.names.new(f"{loop.dim}_{len(self.uniform[loop.dim]) + 1}")

    def _continues_at(self, loop: Loop, index: str, start: str) -> str:
        """The condition that a loop that began at ``start`` has an iteration at an index."""
        tests = [f"{index} < {size_name(loop.dim)}"]
        if loop.count is not None:
            reach = str(loop.count * loop.size)
            tests.insert(0, f"{index} < {reach if start == '0' else f'{start} + {reach}'}")
        return " && ".join(tests)

    def _head(self, loop: Loop, name: str, first: str, start: str) -> str:
        step = _step(name, loop.size)
        condition = self._continues_at(loop, name, start)
        return f"for ({self.context.index_type} {name} = {first}; {condition}; {step})"

    def _loop_behind(self, loop: Loop, tiles: Sequence[SharedTile]) -> None:
        """A loop whose iterations read what the next one uses while they use what is there.

        It begins one iteration early, which only reads.
        """
        d, out = loop.dim, self.out
        start, name, before = " + ".join(self.uniform[d]) or "0", self._name_of(loop), self.uniform[d]
        for tile in tiles:
            self.declare(tile)
        early = f"-{loop.size}" if start == "0" else f"{start} - {loop.size}"
        following = f"{name} + {loop.size}"
        with out.block(self._head(loop, name, early, start)):
            self.uniform[d] = [following]
            with out.block(f"if ({self._continues_at(loop, following, start)})"):
                for tile in tiles:
                    self.read(tile)
            self.uniform[d] = [name]
            for tile in tiles:
                self.name_copy(tile)
            self.barrier("before", "part")
            with out.block(f"if ({name} >= {start})"):
                self._part()
            for tile in tiles:
                self.barrier("before", f"copy_{tile.buffer}")
                self.write_copy(tile)
            self.barrier("end", f"inside{self.split - 1}")
        self.uniform[d] = before

    def _index(self, d: str) -> str:
        return " + ".join([*self.uniform[d], *self.own[d]]) or "0"

    def _set_indices(self) -> None:
        """What the text of each dimension is from here on."""
        for d in self.uniform:
            self.context.at[d] = self._index(d)
            self.context.local[d] = " + ".join(self.own[d]) or "0"

    def _is_whole(self, d: str) -> bool:
        """Whether the loops of a dimension never leave it."""
        known = self.program.dim(d).size.constant
        loops = [x for x in self.nest.loops if x.dim == d]
        if not loops:
            return known == 1
        first = min(loops, key=lambda x: x.layer)
        if first.count is not None and known == first.count * first.size:
            return True
        if any(x.dim == d for x in (*self.gpu.threads, *self.gpu.inside[self.split :])):
            return False
        # the last loop ends where the dimension does, as the only blocks do
        return loops[-1] not in self.gpu.blocks or (len(loops) == 1 and loops[0].size == 1)

    # ------------------------------------------------------------------ the cells of one thread

    def _cells_of_thread(self) -> None:
        if self.function is None:
            with self._tile():
                self._point()
            return
        self.acc = [self.context.names.new("acc") for _ in self.types]
        identity = self.function.identity
        self.seeded = self.has_initial and not self.shares
        self.flags = ""
        if self.counted or (not self.seeded and identity is None):
            self.flags = self.context.names.new("have")
        dims = "".join(f"[{x.count}]" for x in self._tile_loops)
        for name, t in zip(self.acc, self.types, strict=True):
            self.out.add(f"{c_type(t)} {name}{dims};")
        if self.flags:
            self.out.add(f"_Bool {self.flags}{dims};")
        self._start()
        with ExitStack() as stack:
            before = dict(self.context.copies)
            ahead = [t for t in self.gpu.tiles if t.ahead]
            for k in range(self.split + 1):
                tiles = [t for t in self.gpu.tiles if t.at == k and t not in ahead]
                self.copy(tiles)
                if k < self.split:
                    self.barrier("before", f"inside{k}")
                elif not ahead:
                    self.barrier("before", "part")
                if k < self.split and not (ahead and k == self.split - 1):
                    self._uniform_loop(self.gpu.inside[k], stack)
                    stack.callback(self.barrier, "end", f"inside{k}")
                elif k < self.split:
                    self._loop_behind(self.gpu.inside[k], ahead)
            if not ahead:
                self._part()
            self.context.copies = before
        self._finish()

    @property
    def _tile_loops(self) -> tuple[Loop, ...]:
        return self.gpu.inside[self.gpu.reduced :]

    @contextmanager
    def _tile(self, clamp: bool = True, leaf: Leaf | None = None) -> Iterator[None]:
        """Loops over the local tile, and the cell's indices as names; with the steps of a leaf."""
        before = {d: list(terms) for d, terms in self.own.items()}
        at, local, context = dict(self.context.at), dict(self.context.local), self.context
        with ExitStack() as stack:
            for loop in self._tile_loops:
                variable = self._variable(loop)
                self.out.add("#pragma unroll")
                step = _step(variable, leaf.step(loop) if leaf else 1)
                head = f"for (int {variable} = 0; {variable} < {loop.count}; {step})"
                stack.enter_context(self.out.block(head))
                self.own[loop.dim].append(_times(variable, loop.size))
                if loop.size == 1:
                    context.innermost[loop.dim] = variable, loop.count or 1
            for d, (variable, _) in context.innermost.items():
                context.outer[d] = " + ".join(x for x in self.own[d] if x != variable) or "0"
            self._set_indices()
            if clamp and self.clamped:
                for d in self._loose:
                    text, n = self.context.at[d], size_name(d)
                    if "+" in text or "*" in text:
                        name = self.context.names.new(d)
                        row = f"const {self.context.index_type} {name} = {text} < {n} ? {text} : {n} - 1;"
                        self.out.add(row)
                        self.context.at[d] = name
                    else:
                        self.context.at[d] = f"({text} < {n} ? {text} : {n} - 1)"
            yield
        self.own, context.at, context.local = before, at, local
        context.innermost, context.outer = {}, {}

    def _variable(self, loop: Loop) -> str:
        if loop not in self.variables:
            self.variables[loop] = self.context.names.new(f"{loop.dim}_r")
        return self.variables[loop]

    @property
    def _loose(self) -> list[str]:
        """Concatenated dimensions whose index may be outside."""
        return [d.name for d in self.program.hom.dims_of("cc") if not self._is_whole(d.name)]

    def _inside(self, every: bool = False) -> str:
        """The condition under which the current cell exists; ``every``: and its point."""
        tests = []
        for d in [*self._loose, *(self._clipped if every else ())]:
            tests.append(f"{self._index(d)} < {size_name(d)}")
        at = {d: self._index(d) for d in self.uniform}
        for r in self.rows:
            if every or not r.names & set(self.reduced):
                tests.append(self.domain.not_negative(r, at))
        return " && ".join(tests)

    @property
    def _clipped(self) -> list[str]:
        """Reduced dimensions whose index may be outside although loops end where the dimension does."""
        shared = {x.dim for x in self.gpu.threads}
        return [d for d in self.reduced if d in shared and not self._is_whole(d)]

    def _cell_texts(self) -> list[str]:
        at = "".join(f"[{self._variable(x)}]" for x in self._tile_loops)
        return [f"{name}{at}" for name in self.acc]

    def _flag(self) -> str:
        return self.flags + "".join(f"[{self._variable(x)}]" for x in self._tile_loops)

    def _start(self) -> None:
        assert self.function is not None
        with self._tile(clamp=False):
            if self.flags:
                self.out.add(f"{self._flag()} = 0;")
            if self.seeded:
                exists = self._inside()
                initials = [self.initial(c) for c in range(len(self.types))]
                zeros = [constant(0, t) for t in self.types if isinstance(t, ScalarType)]
                if exists and len(zeros) == len(self.types) and self.clamped:
                    initials = [f"{exists} ? {x} : {z}" for x, z in zip(initials, zeros, strict=True)]
                    exists = ""
                with ExitStack() as stack:
                    if exists:
                        stack.enter_context(self.out.block(f"if ({exists})"))
                    for cell, value in zip(self._cell_texts(), initials, strict=True):
                        self.out.add(f"{cell} = {value};")
            elif self.function.identity is not None:
                for cell, e in zip(self._cell_texts(), self.function.identity, strict=True):
                    self.out.add(f"{cell} = {constant(e.value, e.type)};")

    # ------------------------------------------------------------------ points

    def _part(self) -> None:
        """The loops from the last run-time one inwards: a whole part written out, or clipped."""
        loops = self.gpu.inside[self.split : self.gpu.reduced]
        dims = [
            d
            for d in self.reduced
            if not self._is_whole(d) and any(x.dim == d for x in (*self.gpu.threads, *loops))
        ]
        tests = []
        for d in dims:
            own = [x for x in (*self.gpu.threads, *loops) if x.dim == d]
            span = loop_range(own, d)
            assert span is not None
            start = " + ".join(self.uniform[d])
            tests.append(f"{start} + {span} <= {size_name(d)}" if start else f"{span} <= {size_name(d)}")
        clamped, clipped = self.clamped, bool(tests)
        if self.may_clamp and self.rows:  # where all points of a part are in the domain, none is guarded
            at = {d: " + ".join(terms) or "0" for d, terms in self.uniform.items()}
            inner = [*self.gpu.threads, *loops, *self._tile_loops]
            more = self.domain.throughout(self.rows, inner, at, every=True)
            tests += [more] if more else []
        if not tests or not self.may_clamp:
            self._points(loops, clipped=bool(tests))
            return
        self.clamped = True
        with self.out.block(f"if ({' && '.join(tests)})"):
            self._points(loops, clipped=False)
            self.clamped = clamped
            self.out.middle("} else {")
            self._points(loops, clipped=clipped)

    def _points(self, loops: Sequence[Loop], clipped: bool) -> None:
        wide = self.leaf if self.leaf is not None and self.leaf.is_wide else None
        wide = wide if self.clamped and not clipped and not self.flags else None
        if not loops and wide is not None:
            with self._tile(clamp=False, leaf=wide):
                self.write_leaf(wide, self._tile_loops)
            return
        if not loops:
            with ExitStack() as stack:
                own = self._clipped if clipped and self.clamped else []  # guards are about all dimensions
                tests = [f"{self._index(d)} < {size_name(d)}" for d in own]
                if tests:
                    stack.enter_context(self.out.block(f"if ({' && '.join(tests)})"))
                stack.enter_context(self._tile())
                self._point()
            return
        loop, rest = loops[0], loops[1:]
        d, name = loop.dim, self._variable(loop)
        offset = _times(name, loop.size)
        before = list(self.own[d])
        self.own[d] = [*before, offset]
        more = f" && {self._index(d)} < {size_name(d)}" if clipped and not self._is_whole(d) else ""
        points = _product(x.count for x in (loop, *rest, *self._tile_loops))
        if loop.role == "unrolled" and not more and points <= WRITTEN_OUT:
            self.out.add("#pragma unroll")
        step = _step(name, wide.step(loop) if wide else 1)
        with self.out.block(f"for (int {name} = 0; {name} < {loop.count}{more}; {step})"):
            self._points(rest, clipped)
        self.own[d] = before

    def _point(self) -> None:
        """The scalar function at the current point, and what becomes of its results."""
        out, scalar = self.out, self.program.hom.scalar
        with ExitStack() as stack:
            guard = self._inside(every=True) if not self.clamped else ""
            if guard:
                stack.enter_context(out.block(f"if ({guard})"))
            if scalar.body:
                if not guard:
                    stack.enter_context(out.block(""))
                    out.rows[-1] = "  " * (out.indent - 1) + "{"
                out.add(*self.context.printer().statements(scalar.body))
            if self.plain is not None and not self.flags:
                single = self.leaf if self.leaf is not None and not self.leaf.is_wide else self.plain
                self.write_single(single, self._cell_texts()[0])
                return
            values = [self.context.scalar(e) for e in scalar.results]
            if self.function is None:
                exists = self._inside() if self.clamped else ""
                if exists:
                    stack.enter_context(out.block(f"if ({exists})"))
                self.store_all(self._named(list(values)) if len(self.program.out.stores) > 1 else values)
                return
            cells = self._cell_texts()
            if len(values) > 1 or repeats_right(self.function):
                values = self._named(list(values))
            if self.flags and not self.seeded and self.function.identity is None:
                self.add_or_set(self._flag(), cells, values)
                return
            self.accumulate(cells, values)
            if self.flags:
                out.add(f"{self._flag()} = 1;")

    # ------------------------------------------------------------------ results

    def _finish(self) -> None:
        if self.shares:
            self.declare_joint()
            self.barrier("before", "cell")
        with self._tile(clamp=False), ExitStack() as stack:
            if self.shares:
                stack.callback(self.barrier, "end", "cell")
            cells, flag = self._cell_texts(), self._flag() if self.flags else ""
            tests = []
            if self.shares:
                cells, flag, first = self.joined(cells, flag)
                tests.append(first)
            if exists := self._inside():
                tests.append(exists)
            if tests:
                stack.enter_context(self.out.block(f"if ({' && '.join(tests)})"))
            if self.flags and self.counted:
                with self.out.block(f"if ({flag})"):
                    self._store(cells)
                return
            if flag and self.has_initial:
                with self.out.block(f"if ({flag})"):
                    self._store(cells)
                    self.out.middle("} else {")
                    self.store_all(self.initial_values(range(len(self.types))))
                return
            self._store(cells)

    def _store(self, cells: list[str]) -> None:
        neutral = self.function is not None and self.program.out.initial == self.function.identity
        self.store_all(cells if self.seeded or neutral else self.with_initial(cells))


def _operands(program: MdhProgram) -> set[str]:
    """Buffers that the scalar function reads."""
    nodes = (n for e in (*stmt_exprs(program.hom.scalar.body), *program.hom.scalar.results) for n in walk(e))
    return {a.buffer for a in program.inp.accesses} | {n.buffer for n in nodes if isinstance(n, Load)}


def _step(variable: str, size: int) -> str:
    return f"{variable} += {size}" if size > 1 else f"{variable}++"


def _times(text: str, size: int) -> str:
    if size == 1:
        return text
    return f"{text}*{size}" if text.replace("_", "a").replace(".", "a").isalnum() else f"({text})*{size}"


def _product(numbers: Sequence[int | None] | Iterator[int | None]) -> int:
    found = 1
    for n in numbers:
        found *= n or 1
    return found
