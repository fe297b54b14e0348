"""A ``ScanNest`` as C: rows on threads, or one long row in blocks.

    rows       for each point of the cc dimensions: carry = initial; for i: carry = carry ⊛ f(i); store
    across     the same for points that are neighbours in memory, together: for i: for each of them: ...
    blocks     every block's total (threads); carries of the blocks (one thread); scan of every block
               from its carry (threads).  The block size is part of the configuration, so the
               grouping depends neither on the number of threads nor on timing.  Blocks are gone through
               in waves: what a thread read for the totals is still in its caches when it scans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from emit.c_text import c_type, constant
from emit.cells_text import all_of
from emit.divided_text import Divided
from emit.kernel_text import Allocation, Context, Lines, repeats_right
from emit.nest_text import NestText
from emit.prefix_text import PrefixText, in_vectors
from lowering.loops import Loop, size_name
from lowering.lower import Nest, ScanNest
from lowering.machine import LINE
from mdh_core.expr import Call, Type, walk
from mdh_core.guarded import when_stored
from mdh_core.ir import Store, keeps_if_empty

CHAINS = 4  # blocks of a scan that one thread works on together
ACROSS = 1 << 13  # bytes of running values that stay in the first cache beside what is read and written


class ScanText:
    """Writes one scan into ``out``."""

    def __init__(self, scan: ScanNest, context: Context, out: Lines) -> None:
        self.scan = scan
        self.context = context
        self.out = out
        self.program = scan.program
        # stores, operators and names are written as for any nest
        self.cells = NestText(Nest(scan.program, (), (0, 0), 0, 0, (), "direct"), context, out)
        self.types = scan.program.component_types

    def write(self) -> None:
        # an empty scan still stores its final value if there is an initial one, read elsewhere
        final = [s for s in self.program.out.stores if self.scan.dim in s.at_last]
        initial = self.program.out.initial
        keeps = self.has_initial and not all(keeps_if_empty(s, initial) for s in final)
        dims = [d.name for d in self.program.hom.dims if not (keeps and d.name == self.scan.dim)]
        if any(self.program.dim(d).size.constant == 0 for d in dims):
            return
        conditions = [f"{size_name(d)} > 0" for d in dims]
        given = self.cells.domain.given()
        if given == "0":
            return
        condition = " && ".join([*conditions, *([given] if given else [])])
        with ExitStack() as stack:
            if condition:
                stack.enter_context(self.out.block(f"if ({condition})"))
            if self.scan.across:
                self._together(self.scan.across)
                return
            self._rows(stack)
            self.context.at[self.scan.dim] = "0"
            if self.scan.block is None:
                carry = self._carry()
                self._sequence(carry, "0", size_name(self.scan.dim), "0")
                self._store(carry, last=True, at=f"{size_name(self.scan.dim)} - 1")
            else:
                self._declare_masks()
                self._blocks(self.scan.block)

    def _rows(self, stack: ExitStack) -> None:
        """Loops over the cc dimensions; those in ``rows`` are shared among threads."""
        rows = [d for d in self.program.hom.dims_of("cc") if d.name in self.scan.rows]
        others = [d for d in self.program.hom.dims_of("cc") if d.name not in self.scan.rows]
        self.cells.loops_over((*rows, *others), stack, shared=len(rows))
        self.context.enough += [""] if rows else []

    def _together(self, across: str) -> None:
        """Parts of a dimension on threads; in each, row after row of its points."""
        context, names, dim = self.context, self.context.names, self.scan.dim
        others = [d.name for d in self.program.hom.dims_of("cc") if d.name != across]
        shared = [d for d in others if d in self.scan.rows]
        size = max(t.size for t in self._carried)
        unit = Loop(across, 1, max(1, LINE // size), None, "lanes")
        room = Loop(across, 0, max(1, ACROSS // LINE) * unit.size, None, "threads")
        parts = Divided(room, unit, context, [size_name(d) for d in shared])
        self.out.add(*parts.count())
        heads = {}
        for d in others:
            v = context.at[d] = names.new(d)
            heads[d] = f"for (long {v} = 0; {v} < {size_name(d)}; {v}++)"
        on_threads = [Loop(d, 0, 1, None, "threads") for d in shared] + [room] * (across in self.scan.rows)
        if on_threads:
            trips = [*map(size_name, shared), parts.parts][: len(on_threads)]
            self.cells.share_loops(tuple(on_threads), trips)
        with ExitStack() as stack:
            for head in [*(heads[d] for d in shared), parts.head]:
                stack.enter_context(self.out.block(head))
            start = names.new(f"{across}_start")
            self.out.add(*parts.part(start))
            for d in others:
                if d not in shared:
                    stack.enter_context(self.out.block(heads[d]))
            x, y = names.new(across), names.new(dim)
            points = f"for (long {x} = {start}; {x} < {parts.end}; {x}++)"
            context.at[across], context.at[dim] = x, "0"
            running = [names.new("carry") for _ in self._carried]
            seeded = self.has_initial or self.starts_neutral
            for name, t in zip(running, self._carried, strict=True):
                self.out.add(f"{c_type(t)} {name}[{room.size}]{'' if seeded else ' = {0}'};")
            carry = [f"{name}[{x} - {start}]" for name in running]
            if seeded:
                with self.out.block(points):
                    for name, value in zip(carry, self._starts, strict=True):
                        self.out.add(f"{name} = {value};")
            with self.out.block(f"for (long {y} = 0; {y} < {size_name(dim)}; {y}++)"):
                context.at[dim] = y
                self.out.add("#pragma omp simd")
                with self.out.block(points):
                    self._point(carry, y, "0", True, seeded)
            if any(dim in s.at_last for s in self.program.out.stores):
                with self.out.block(points):
                    self._store(carry, last=True, at=f"{size_name(dim)} - 1")

    @property
    def masks(self) -> dict[str, str]:
        return self.cells.masks

    def _declare_masks(self) -> None:
        """Outputs that are larger than the caches go past them, where running values have a vector form."""
        if self.context.cache is None or not self.in_vectors:
            return
        size = self.types[0].size
        for b in self.scan.past_caches:
            stores = [s for s in self._inner_stores if s.buffer == b]
            if len(stores) == 1 and self.program.buffer(b).type.size == size:
                self.cells.declare_mask(stores[0], self.scan.dim)

    def _accumulate(self, carry: list[str], values: list[str]) -> None:
        self.cells.accumulate(carry, values)

    def _results(self, carry: list[str]) -> dict[int, str]:
        """The text of each component that stores may mention."""
        return dict(enumerate(carry))

    @property
    def _carried(self) -> tuple[Type, ...]:
        """Types of the variables that hold the running value."""
        return self.types

    @property
    def _starts(self) -> list[str]:
        """What they begin with: the initial value if there is one."""
        initial = [self.cells.initial(c) if self.has_initial else None for c in range(len(self.types))]
        return [x or self._neutral(c) for c, x in enumerate(initial)]

    def _carry(self) -> list[str]:
        """Variables that hold the running value, started."""
        names = [self.context.names.new("carry") for _ in self._carried]
        for name, t, value in zip(names, self._carried, self._starts, strict=True):
            self.out.add(f"{c_type(t)} {name} = {value};")
        return names

    def _neutral(self, c: int) -> str:
        """The identity, or any value where none is known (the first point overrides it)."""
        f = self.program.hom.function
        if f is None or f.identity is None:
            return "{0}"
        return constant(f.identity[c].value, f.identity[c].type)

    @property
    def starts_neutral(self) -> bool:
        f = self.program.hom.function
        return f is not None and f.identity is not None

    @property
    def has_initial(self) -> bool:
        return all(e is not None for e in self.program.out.initial)

    def _sequence(self, carry: list[str], start: str, end: str, first: str, store: bool = True,
                  seeded: bool | None = None) -> None:  # fmt: skip
        """Fold points ``start .. end-1`` into the carry; ``first`` is the point that has none before it."""
        seeded = (self.has_initial or self.starts_neutral) if seeded is None else seeded
        v = self.context.names.new(self.scan.dim)
        before = self.context.at[self.scan.dim]
        if not store and seeded and (reduction := self._simd_reduction(carry)):
            self.out.add(reduction)
        if store and seeded and self.in_vectors:
            self.out.add(f"long {v} = {start};")
            if self.masks:
                self._points(carry, v, f"for (; {v} < {self._aligned(v, end)}; {v}++)", first, store, seeded)
            # what goes past the caches leaves time to read: the same thread's blocks of the next wave
            ahead = self.scan.wave * (self.scan.block or 0) if self.masks else 0
            prefix = PrefixText(self.program, self.scan.dim, self.context, self.out, self.masks, ahead)
            prefix.write(carry[0], v, end, self._inner_stores, self._is_guarded)
            self._points(carry, v, f"for (; {v} < {end}; {v}++)", first, store, seeded)
        else:
            head = f"for (long {v} = {start}; {v} < {end}; {v}++)"
            self._points(carry, v, head, first, store, seeded)
        self.context.at[self.scan.dim] = before

    def _aligned(self, start: str, end: str) -> str:
        """The first point from ``start`` on whose cell begins a line in the output past caches."""
        buffer, mask = next(iter(self.masks.items()))
        s = next(s for s in self._inner_stores if s.buffer == buffer)
        self.context.at[self.scan.dim] = start
        place = f"(__UINTPTR_TYPE__)&{self.context.subscript(s.buffer, s.index)}"
        name = self.context.names.new("aligned")
        t = c_type(self.program.buffer(buffer).type)
        lead = f"{mask} == MDH_VECTOR_BYTES - 1 ? (long)((-{place} & {LINE - 1})/sizeof({t})) : 0"
        self.out.add(f"const long {name}_at = {start} + ({lead});")
        self.out.add(f"const long {name} = {name}_at < {end} ? {name}_at : {end};")
        return name

    def _points(
        self, carry: list[str], v: str, head: str, first: str, store: bool, seeded: bool
    ) -> None:
        """Points one by one, in a loop over ``v`` with the given ``head``."""
        with self.out.block(head):
            self.context.at[self.scan.dim] = v
            self._point(carry, v, first, store, seeded)

    def _point(self, carry: list[str], v: str, first: str, store: bool, seeded: bool) -> None:
        """One point, the first of all if ``v`` is ``first``."""
        with ExitStack() as stack:
            body = self.program.hom.scalar.body
            if body:
                stack.enter_context(self.out.block(""))
                self.out.rows[-1] = "  " * (self.out.indent - 1) + "{"
                for line in self.context.printer().statements(body):
                    self.out.add(line)
            values = [self.context.scalar(e) for e in self.program.hom.scalar.results]
            function = self.program.hom.function
            assert function is not None
            if not seeded or len(values) > 1 or repeats_right(function):
                values = self.cells._named(values)
            if seeded:
                self._accumulate(carry, values)
            else:
                with self.out.block(f"if ({v} == {first})"):
                    for c, value in zip(carry, values, strict=True):
                        self.out.add(f"{c} = {value};")
                    self.out.middle("} else {")
                    self._accumulate(carry, values)
            if store:
                self._store(carry, last=False, at=v)

    @functools.cached_property
    def in_vectors(self) -> bool:
        """Whether running values have a vector form: it is written once, to see."""
        if not self._inner_stores or not in_vectors(self.program, self.scan.dim):
            return False
        return PrefixText(self.program, self.scan.dim, self.context, Lines(), {}).write(
            "carry", "i", "end", self._inner_stores, self._is_guarded
        )

    @property
    def _inner_stores(self) -> list[Store]:
        return [s for s in self.program.out.stores if self.scan.dim not in s.at_last]

    def _is_guarded(self, s: Store) -> bool:
        return bool(s.at_last) or when_stored(self.program, s, s.value)[0] is not None

    def _simd_reduction(self, carry: list[str]) -> str:
        """The directive that lets a block's total be computed in lanes, for operators that OpenMP knows."""
        f = self.program.hom.function
        scalar = self.program.hom.scalar
        if f is None or len(carry) > 1 or f.name not in ("+", "*", "&", "|", "^") or scalar.body:
            return ""
        if any(isinstance(n, Call) for e in scalar.results for n in walk(e)):
            return ""
        return f"#pragma omp simd reduction({f.name}:{carry[0]})"

    def _store(self, carry: list[str], last: bool, at: str) -> None:
        """The stores of every point, or (``last``) those of the final point only."""
        chosen = tuple(
            s for s in self.program.out.stores if (self.scan.dim in s.at_last) == last
        )
        if not chosen:
            return
        before = self.context.at[self.scan.dim]
        self.context.at[self.scan.dim] = at
        self._write(chosen, carry)
        self.context.at[self.scan.dim] = before

    def _write(self, stores: tuple[Store, ...], carry: list[str]) -> None:
        self.context.results = self._results(carry)
        writes: list[tuple[str, str]] = []  # condition and value
        for s in stores:
            condition, new = when_stored(self.program, s, s.value)
            others = [d for d in s.at_last if d != self.scan.dim]
            last = [f"{self.context.at[d]} == {size_name(d)} - 1" for d in others]
            if len(stores) > 1 and s.plain is None:
                name = self.context.names.new("value")
                t = c_type(self.program.buffer(s.buffer).type)
                self.out.add(f"const {t} {name} = {self.context.scalar(s.value)};")
                writes.append((all_of(last), name))
            else:
                test = "" if condition is None else self.context.scalar(condition)
                writes.append((all_of([*last, test]), self.context.scalar(new)))
        for s, (guard, text) in zip(stores, writes, strict=True):
            target = self.context.subscript(s.buffer, s.index)
            self.out.add(f"if ({guard}) {target} = {text};" if guard else f"{target} = {text};")

    def _blocks(self, block: int) -> None:
        names, n = self.context.names, size_name(self.scan.dim)
        count, totals = self._block_values(block, ["total"] * len(self.types))
        carry = self._carry()
        with self._waves(block, count) as (first, end):
            b = names.new("b")
            self.out.add("#pragma omp for schedule(static)")
            with self.out.block(f"for (long {b} = {first}; {b} < {end}; {b}++)"):
                self._bounds(block, b)
                own = [names.new("carry") for _ in self.types]
                for k, (name, t) in enumerate(zip(own, self.types, strict=True)):
                    self.out.add(f"{c_type(t)} {name} = {self._neutral(k)};")
                start, behind = self._ends_of_block
                self._sequence(own, start, behind, start, store=False, seeded=self.starts_neutral)
                for total, c in zip(totals, own, strict=True):
                    self.out.add(f"{total}[{b}] = {c};")
            self.out.add("#pragma omp single")
            self._from_block_to_block(first, end, totals, carry)
            self._scan_blocks(block, first, end, totals)
        self._store(carry, last=True, at=f"{n} - 1")

    def _from_block_to_block(self, first: str, end: str, totals: list[str], carry: list[str]) -> None:
        """The running value before each block takes the place of the block's total."""
        b = self.context.names.new("b")
        with self.out.block(f"for (long {b} = {first}; {b} < {end}; {b}++)"):
            own = []
            for total, t in zip(totals, self.types, strict=True):
                name = self.context.names.new("own")
                self.out.add(f"const {c_type(t)} {name} = {total}[{b}];")
                own.append(name)
            if self.has_initial or self.starts_neutral:
                for total, c in zip(totals, carry, strict=True):
                    self.out.add(f"{total}[{b}] = {c};")
                self.cells.accumulate(carry, own)
            else:
                with self.out.block(f"if ({b} == 0)"):
                    for c, o in zip(carry, own, strict=True):
                        self.out.add(f"{c} = {o};")
                    self.out.middle("} else {")
                    for total, c in zip(totals, carry, strict=True):
                        self.out.add(f"{total}[{b}] = {c};")
                    self.cells.accumulate(carry, own)

    @contextmanager
    def _waves(self, block: int, count: str) -> Iterator[tuple[str, str]]:
        """A parallel region with a loop over waves of blocks; gives a wave's first block and its end."""
        names, wave = self.context.names, self.scan.wave
        first, end = names.new("wave"), names.new("wave_end")
        self.out.add(f"#pragma omp parallel if ({size_name(self.scan.dim)} > {4 * block})")
        with self.out.block(f"for (long {first} = 0; {first} < {count}; {first} += {wave})"):
            self.out.add(f"const long {end} = {first} + {wave} < {count} ? {first} + {wave} : {count};")
            yield first, end

    def _bounds(self, block: int, b: str) -> None:
        n, (start, end) = size_name(self.scan.dim), self._ends_of_block
        self.out.add(
            f"const long {start} = {b}*{block}, {end} = {start} + {block} < {n} ? {start} + {block} : {n};"
        )

    @functools.cached_property
    def _ends_of_block(self) -> tuple[str, str]:
        """What the ends of a block are called wherever it goes through one."""
        return self.context.names.new("start"), self.context.names.new("end")

    def _block_values(self, block: int, wishes: list[str]) -> tuple[str, list[str]]:
        """The name of the number of blocks, and arrays with a value of each component per block."""
        names, n = self.context.names, size_name(self.scan.dim)
        count = names.new("blocks")
        self.out.add(f"const long {count} = ({n} + {block - 1})/{block};")
        arrays = [names.new(wish) for wish in wishes]
        for name, t in zip(arrays, self.types, strict=True):
            self.context.allocations.append(Allocation(name, c_type(t), f"({n}/{block} + 1)"))
        return count, arrays

    def _scan_blocks(self, block: int, first: str, end: str, totals: list[str]) -> None:
        """Every block of a wave from its carry; nobody waits, as the next wave has blocks of its own."""

        def together(group: str, start: str) -> None:
            self._side_by_side(block, CHAINS, group, start, totals)

        def alone(b: str) -> None:
            self._sequence(self._carries(totals, b), *self._ends_of_block, "0")

        self._over_blocks(block, first, end, together, alone, waits=False)
        if self.masks:
            self.out.add("MDH_STORED();")

    def _over_blocks(
        self, block: int, first: str, end: str,
        together: Callable[[str, str], None], alone: Callable[[str], None], waits: bool = True,
    ) -> None:  # fmt: skip
        """A wave's blocks on threads, ``CHAINS`` whole ones side by side, as each waits for its sums.

        together  writes the code for whole blocks, given the texts of the first one's number and first point
        alone     for one block, from its start to its end, given the text of its number
        """
        names, n = self.context.names, size_name(self.scan.dim)
        chains = 1 if self.program.hom.scalar.body or self.in_vectors else CHAINS
        group = names.new("b")
        self.out.add("#pragma omp for schedule(static)" + ("" if waits else " nowait"))
        step = f"{group} += {chains}" if chains > 1 else f"{group}++"
        with self.out.block(f"for (long {group} = {first}; {group} < {end}; {step})"):
            if chains == 1:
                self._bounds(block, group)
                alone(group)
                return
            start = names.new("first")
            self.out.add(f"const long {start} = {group}*{block};")
            with self.out.block(f"if ({start} + {chains * block} <= {n} && {group} + {chains} <= {end})"):
                together(group, start)
                self.out.add("continue;")
            b, last = names.new("b"), names.new("last")
            self.out.add(f"const long {last} = {group} + {chains} < {end} ? {group} + {chains} : {end};")
            with self.out.block(f"for (long {b} = {group}; {b} < {last}; {b}++)"):
                self._bounds(block, b)
                alone(b)

    def _carries(self, totals: list[str], b: str) -> list[str]:
        carry = [self.context.names.new("carry") for _ in self.types]
        for name, total, t in zip(carry, totals, self.types, strict=True):
            self.out.add(f"{c_type(t)} {name} = {total}[{b}];")
        return carry

    def _side_by_side(self, block: int, chains: int, group: str, first: str, totals: list[str]) -> None:
        carries = [self._carries(totals, f"{group} + {u}" if u else group) for u in range(chains)]
        v = self.context.names.new(self.scan.dim)
        before = self.context.at[self.scan.dim]
        seeded = self.has_initial or self.starts_neutral
        with self.out.block(f"for (long {v} = 0; {v} < {block}; {v}++)"):
            for u, carry in enumerate(carries):
                at = f"{first} + {u * block} + {v}" if u else f"{first} + {v}"
                self.context.at[self.scan.dim] = at
                values = self.cells._named(
                    [self.context.scalar(e) for e in self.program.hom.scalar.results]
                )
                if u == 0 and not seeded:
                    with self.out.block(f"if ({at} == 0)"):
                        for c, value in zip(carry, values, strict=True):
                            self.out.add(f"{c} = {value};")
                        self.out.middle("} else {")
                        self._accumulate(carry, values)
                else:
                    self._accumulate(carry, values)
                self._store(carry, last=False, at=at)
        self.context.at[self.scan.dim] = before
