"""The cells of a nest's result as C: where unfinished ones are kept, how they begin and how they end.

``Nest.results`` says where: not at all ("direct"), in the output ("in place"), in temporaries ("parts", one
set for each part of reduced dimensions that threads share).  The first visit of a cell starts from its
initial value, the last one is followed by the epilogue; "parts" are combined by a pass over all cells.

Which visit is the first is known from the loops around it.  Not so where the domain decides which
points contribute to a cell (``ragged``): then a pass before the loops ``prepares`` all cells.  And where
a cell without contributions is not stored, or has no neutral element to start from, a flag per cell
counts whether there was one (``counted``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from emit.c_text import c_type, constant
from emit.domain_text import DomainText
from emit.kernel_text import Allocation, Context, Lines, product_text
from emit.repeated import without_repeats
from lowering.domains import Rows
from lowering.loops import Loop, loop_range, size_name
from lowering.lower import Nest
from mdh_core.combine import CombineFunction
from mdh_core.expr import (
    Binary,
    Expr,
    Load,
    Result,
    ScalarType,
    Select,
    Type,
    Var,
    as_affine,
    walk,
)
from mdh_core.guarded import when_stored
from mdh_core.ir import Dim, Store, keeps_if_empty


class CellsText:
    """Reads and writes the cells of one nest."""

    def __init__(self, nest: Nest, context: Context, out: Lines) -> None:
        self.nest = nest
        self.context = context
        self.out = out
        self.program = nest.program
        self.function: CombineFunction | None = nest.program.hom.function
        self.types: tuple[Type, ...] = nest.program.component_types
        self.concatenated = {d.name for d in nest.program.hom.dims_of("cc")}
        self.domain = DomainText(nest.program)
        self.ragged = bool(self.domain.contributions)
        self.prepared = self.ragged and nest.results != "direct"
        self.visits: list[str] = []  # conditions that hold on the first visit of a cell
        self.slots: list[tuple[str, str, int, int | None]] = []  # reduced loops on threads
        self.parts: list[str] = []  # temporaries of unfinished cells, one per component
        self.spans: dict[Loop, tuple[str, str]] = {}  # texts of a loop's first index and of its end
        self.ends: dict[Loop, str] = {}  # of loops in parts that are cut at run time: where these end
        self.next_part: dict[Loop, str] = {}  # of the loops over such parts
        self.flags = ""  # temporary that says which parts have a contribution

    @property
    def has_initial(self) -> bool:
        return all(e is not None for e in self.program.out.initial)

    @property
    def counted(self) -> bool:
        """Whether contributions to a cell are counted."""
        if not self.ragged or self.function is None:
            return False
        separate = self.nest.results == "parts" and not self.parts_are_seeded
        return not self.has_initial or (separate and self.function.identity is None)

    # ------------------------------------------------------------------ before the loops

    def _allocate_parts(self) -> None:
        reduced = {d.name for d in self.program.hom.dims_of("pw")}
        bound = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        factors: list[int | str] = []
        for loop in bound:
            if loop.dim in reduced:
                factors.append(self._trips(loop))
        self.slot_count = str(product_text(factors))
        cells: list[int | str] = [size_name(d.name) for d in self.program.hom.dims_of("cc")]
        self.cell_count = str(product_text(cells))
        for c, t in enumerate(self.types):
            name = self.context.names.new(f"part{c}")
            self.parts.append(name)
            count = product_text([*factors, *cells])
            self.context.allocations.append(Allocation(name, c_type(t), str(count)))
        if self.counted:
            self.flags = self.context.names.new("counted")
            count = product_text([*factors, *cells])
            self.context.allocations.append(Allocation(self.flags, "_Bool", str(count)))

    def prepare(self) -> None:
        """Start values for all cells, where it is not known which visit will be the first."""
        components, in_place = range(len(self.types)), self.nest.results == "in place"
        if in_place or self.parts_are_seeded:

            def start() -> None:
                targets = [self.stored(c) if in_place else self.part(c) for c in components]
                values = self.initial_values(components)
                for target, value in zip(targets, values, strict=True):
                    self.out.add(f"{target} = {value};")

            if not in_place or not all(map(self._continues, components)):
                self._over_cells(start)
            return
        assert self.function is not None
        identity = self.function.identity
        p = self.context.names.new("p")
        count = str(product_text([f"({self.slot_count})", f"({self.cell_count})"]))
        self.context.shared_loop(self.out, "static")
        with self.out.block(f"for (long {p} = 0; {p} < {count}; {p}++)"):
            if self.counted:
                self.out.add(f"{self.flags}[{p}] = 0;")
            for c, (part, t) in enumerate(zip(self.parts, self.types, strict=True)):
                zero = f"({c_type(t)}){{0}}"  # any value
                value = zero if identity is None else constant(identity[c].value, identity[c].type)
                self.out.add(f"{part}[{p}] = {value};")

    def _trips(self, loop: Loop) -> int | str:
        """Parts of a loop that are not empty for every position of the loops around it."""
        n = size_name(loop.dim)
        known = self.program.dim(loop.dim).size.constant
        if loop.count is not None:
            reach = loop.count * loop.size
            if known is not None:
                return -(-min(known, reach) // loop.size)
            least = f"({n} < {reach} ? {n} : {reach})"
            return least if loop.size == 1 else f"(({least} + {loop.size - 1})/{loop.size})"
        if known is not None:
            return -(-known // loop.size)
        return n if loop.size == 1 else f"(({n} + {loop.size - 1})/{loop.size})"

    def _continues(self, c: int) -> bool:
        """Whether component ``c`` starts from what its output cell holds."""
        initial = self.program.out.initial[c]
        store = next(s for s in self.program.out.stores if s.plain == c)
        if not isinstance(initial, Load) or initial.buffer != store.buffer:
            return False
        return tuple(map(as_affine, initial.index)) == store.index

    # ------------------------------------------------------------------ unfinished and finished cells

    @property
    def first_visit(self) -> str:
        return " && ".join(self.visits)

    def cell(self) -> str:
        """Number of the current cell among the cells of all cc dimensions."""
        text = ""
        for d in self.program.hom.dims_of("cc"):
            at = self.context.at[d.name]
            if not text:
                text = at
                continue
            left = text if text.replace("_", "a").isalnum() else f"({text})"
            text = at if left == "0" else f"{left}*{size_name(d.name)} + {at}"
        return text or "0"

    def slot(self) -> str:
        text = ""
        for variable, start, size, _ in self.slots:
            digit = variable if start == "0" else f"({variable} - {start})"
            digit = digit if size == 1 else f"{digit}/{size}"
            dim = next(x.dim for x in self.nest.loops if self._is_variable(x, variable))
            trips = self._trips_of(dim)
            text = digit if not text else f"({text})*{trips} + {digit}"
        return text or "0"

    def _is_variable(self, loop: Loop, variable: str) -> bool:
        return variable == loop.dim or variable.startswith(loop.dim + "_")

    def _trips_of(self, dim: str) -> int | str:
        loops = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        return self._trips(next(x for x in loops if x.dim == dim))

    def part(self, c: int) -> str:
        """The temporary that keeps component ``c`` of the current cell."""
        return f"{self.parts[c]}[{self._part_number()}]"

    def flag(self) -> str:
        """Whether the current cell's part has a contribution."""
        return f"{self.flags}[{self._part_number()}]"

    def _part_number(self) -> str:
        slot, cell = self.slot(), self.cell()
        if slot == "0":
            return cell
        if self.cell_count == "1":
            return slot
        at = slot if slot.replace("_", "a").isalnum() else f"({slot})"
        return f"{at}*({self.cell_count}) + {cell}" if cell != "0" else f"{at}*({self.cell_count})"

    def stored(self, c: int) -> str:
        """The output cell that keeps component ``c`` (results "in place")."""
        store = next(s for s in self.program.out.stores if s.plain == c)
        return self.context.subscript(store.buffer, store.index)

    @property
    def parts_are_seeded(self) -> bool:
        """Whether a cell's single part starts from the initial value: nothing is reassociated then."""
        reduced = {d.name for d in self.program.hom.dims_of("pw")}
        bound = self.nest.loops[self.nest.threads[0] : self.nest.threads[1]]
        return (
            self.nest.results == "parts"
            and not any(x.dim in reduced for x in bound)
            and all(e is not None for e in self.program.out.initial)
        )

    def initial(self, c: int) -> str | None:
        e = self.program.out.initial[c]
        return None if e is None else self.context.scalar(e)

    def initial_values(self, components: Sequence[int]) -> list[str]:
        """Names of constants for initial values, where there are such."""
        found = []
        for c in components:
            e = self.program.out.initial[c]
            assert e is not None
            found.append(self.context.scalar(without_repeats(e, self._named_value)))
        return self._named(found)

    def _named_value(self, e: Expr) -> Var:
        wish = "choice" if isinstance(e, Select) else "value"
        return Var(self._constant(wish, c_type(e.type), self.context.scalar(e)), e.type)

    def store_all(self, results: list[str]) -> None:
        """Store the finished results of the current cell: every value first, then every write."""
        self.context.results = dict(enumerate(results))
        self.write_all([s.value for s in self.program.out.stores])

    def write_all(self, stored: Sequence[Expr], stores: Sequence[Store] | None = None) -> None:
        """``stored``: the value of each store; ``stores``: which ones; None: all.

        A cell that keeps its value under a condition is not written there: it may lie outside of the
        array, or belong to somebody else.
        """
        stores = self.program.out.stores if stores is None else stores
        writes: list[tuple[str, str]] = []  # condition and value
        for s, value in zip(stores, stored, strict=True):
            condition, new = when_stored(self.program, s, value)
            t = self.program.buffer(s.buffer).type
            last = [f"{self.context.at[d]} == {size_name(d)} - 1" for d in s.at_last]
            test = "" if condition is None else self.context.scalar(condition)
            if not last and not test:
                new = without_repeats(new, self._named_value)
            text = self.context.scalar(new)
            if len(stores) > 1 and not isinstance(value, Result):  # before the first write
                if test and isinstance(t, ScalarType):
                    test = self._constant("stored", "int", test)
                    text = f"{test} ? {text} : 0"
                elif test:
                    test, text = "", self.context.scalar(value)
                text = self._constant("value", c_type(t), text)
            writes.append((all_of([*last, test]), text))
        for s, (guard, text) in zip(stores, writes, strict=True):
            target = self.context.subscript(s.buffer, s.index)
            self.out.add(f"if ({guard}) {target} = {text};" if guard else f"{target} = {text};")

    def _constant(self, wish: str, t: str, text: str) -> str:
        name = self.context.names.new(wish)
        self.out.add(f"const {t} {name} = {text};")
        return name

    def with_initial(self, results: list[str]) -> list[str]:
        """``initial ⊛ results``, as new constants; the results themselves if there is no initial value."""
        if self.function is None or not self.has_initial:
            return results
        combined = self.context.combined(self.function, self.initial_values(range(len(self.types))), results)
        if all(s.plain is not None for s in self.program.out.stores) and len(results) == 1:
            return combined
        return self._named(combined)  # parts of larger expressions

    def _named(self, texts: list[str] | list[str | None]) -> list[str]:
        """Constants for texts that are more than a name, so that they are evaluated once."""
        out = []
        for c, text in enumerate(texts):
            assert text is not None
            if text.replace("_", "a").replace(".", "a").isalnum():
                out.append(text)
                continue
            name = self.context.names.new("r")
            self.out.add(f"const {c_type(self.types[c])} {name} = {text};")
            out.append(name)
        return out

    def every_cell(self, initial_only: bool) -> None:
        """A pass over all cells: store the initial value, or combine the parts and store."""
        if not initial_only:
            self._over_cells(self._combine_parts)
            return
        with ExitStack() as stack:
            if given := self.domain.given():
                stack.enter_context(self.out.block(f"if ({given})"))
            self._over_cells(self._store_initial)

    @property
    def stored_if_empty(self) -> tuple[Store, ...]:
        """Stores that write where nothing is combined.

        The others would give a cell its own value; where the source does not run, it may not even exist.
        """
        return tuple(s for s in self.program.out.stores if not keeps_if_empty(s, self.program.out.initial))

    def _store_initial(self) -> None:
        used = {n.component for s in self.stored_if_empty for n in walk(s.value) if isinstance(n, Result)}
        found = sorted(used)
        named = self.initial_values(found)
        self.context.results = dict(zip(found, named, strict=True))
        self.write_all([s.value for s in self.stored_if_empty], self.stored_if_empty)

    def _over_cells(self, write: Callable[[], None]) -> None:
        """Loops over all positions of the result, those of the domain, around what ``write`` writes."""
        dims = self.program.hom.dims_of("cc")
        saved = dict(self.context.at)
        for d in self.program.hom.dims_of("pw"):
            self.context.at[d.name] = "0"
        with ExitStack() as stack:
            if not dims:
                stack.enter_context(self.out.alone(self.context.team))
            self.loops_over(dims, stack, shared=len(dims))
            write()
        self.context.at = saved

    def loops_over(self, dims: tuple[Dim, ...], stack: ExitStack, shared: int) -> None:
        """Loops over single indices of ``cc`` dimensions; threads share the first ``shared`` of them.

        Where there is a domain, they share the first only: the bounds of others depend on it.
        """
        loops = [Loop(d.name, 0, 1, None, "sequential") for d in dims]
        rows = self.domain.positions
        if rows:
            shared = min(shared, 1)
        for d in dims:
            self.context.at[d.name] = "0"
        for k, loop in enumerate(loops):
            v = self.context.names.new(loop.dim)
            lines, head = self.head(loop, v, loops[k + 1 :], rows)
            self.out.add(*lines)
            if k == 0 and shared:
                self.context.shared_loop(self.out, "guided" if rows else "static", shared)
            if k >= shared - 1:
                stack.enter_context(self.out.block(head))
            else:
                self.out.add(head)
                self.out.indent += 1
                stack.callback(self._dedent)
            self.context.at[loop.dim] = v

    def _dedent(self) -> None:
        self.out.indent -= 1

    def whole(self, loop: Loop, reach: int) -> bool:
        """Whether parts of ``reach`` elements are never clipped: a known size that they divide."""
        n = self.program.dim(loop.dim).size.constant
        return n is not None and n % reach == 0 and self.ordered(loop.dim)

    def ordered(self, dim: str) -> bool:
        layers = [x.layer for x in self.nest.loops if x.dim == dim]
        return layers == sorted(layers)

    def head(
        self, loop: Loop, variable: str, inner: list[Loop] | tuple[Loop, ...], rows: Rows
    ) -> tuple[list[str], str]:
        """Lines that compute where the loop begins and ends, and the ``for``.

        inner   loops that begin inside of this one
        rows    constraints of the domain that the loop obeys
        """
        lines, first, end = self.bounds(loop, variable, inner, rows)
        return lines, for_head(loop, variable, first, end)

    def bounds(
        self,
        loop: Loop,
        variable: str,
        inner: list[Loop] | tuple[Loop, ...],
        rows: Rows,
        aligned: bool = True,
    ) -> tuple[list[str], str, str]:
        """Lines, and the texts of the first index and of the end.

        Parts of more than one element begin at multiples of their size behind the loop's own start, unless
        they need not be ``aligned``.
        """
        at, n = self.context.at, size_name(loop.dim)
        start, own = at[loop.dim], [x for x in inner if x.dim == loop.dim]
        lines: list[str] = []
        ends = self.domain.ends(loop, inner, rows, at)
        reach = None if loop.count is None else loop.count * loop.size
        if loop in self.ends:
            ends.insert(0, self.ends[loop])
        else:
            if reach is not None:
                ends.insert(0, f"{start} + {reach}" if start != "0" else str(reach))
            if reach is None or not self.whole(loop, reach):
                ends.insert(0, n)
        end = self._least(f"{variable}_end", ends, lines)
        self.spans[loop] = start, end
        starts = self.domain.starts(loop, inner, rows, at)
        if not starts:
            return lines, start, end
        if loop.size == 1 or not aligned:
            return lines, self._greatest(f"{variable}_first", [start, *starts], lines), end
        first = self.context.names.new(f"{variable}_first")
        lines.append(f"long {first} = {start};")
        spare = max(loop.size - (loop_range(own, loop.dim) or 1), 0)
        for text in starts:
            bound = self._name(f"{variable}_from", text, lines)
            steps = f"({bound} - {first}{f' + {spare}' if spare else ''})/{loop.size}*{loop.size}"
            lines.append(f"if ({bound} > {first}) {first} += {steps};")
        return lines, first, end

    def counts(
        self, loop: Loop, variable: str, inner: Sequence[Loop], rows: Rows
    ) -> tuple[list[str], str, str]:
        """As ``bounds``, for a loop that counts parts from the current index."""
        at, size = self.context.at, loop.size
        start, own = at[loop.dim], [x for x in inner if x.dim == loop.dim]
        back = "" if start == "0" else f" - {start}" if start.replace("_", "a").isalnum() else f" - ({start})"
        lines: list[str] = []

        def number(text: str, spare: int) -> str:
            if size == 1:
                return text + back
            return f"({text}{back}{f' + {spare}' if spare else ''})/{size}"

        ends = [size_name(loop.dim), *self.domain.ends(loop, inner, rows, at)]
        end = self._least(f"{variable}_end", [str(loop.count), *(number(e, size - 1) for e in ends)], lines)
        spare = max(size - (loop_range(own, loop.dim) or 1), 0)
        starts = [number(text, spare) for text in self.domain.starts(loop, inner, rows, at)]
        return lines, self._greatest(f"{variable}_first", ["0", *starts], lines), end

    def _name(self, wish: str, text: str, lines: list[str]) -> str:
        """A constant for a text that is more than a name."""
        if text.replace("_", "a").isalnum():
            return text
        name = self.context.names.new(wish)
        lines.append(f"const long {name} = {text};")
        return name

    def _least(self, wish: str, texts: list[str], lines: list[str]) -> str:
        return self._extreme(wish, texts, "<", lines)

    def _greatest(self, wish: str, texts: list[str], lines: list[str]) -> str:
        return self._extreme(wish, texts, ">", lines)

    def _extreme(self, wish: str, texts: list[str], sign: str, lines: list[str]) -> str:
        """The name of the least or greatest of some texts."""
        first, *others = dict.fromkeys(texts)
        if not others:
            return first
        name = self.context.names.new(wish)
        if len(others) == 1:
            (other,) = others
            lines.append(f"const long {name} = {other} {sign} {first} ? {other} : {first};")
            return name
        lines.append(f"long {name} = {first};")
        lines += [f"if ({other} {sign} {name}) {name} = {other};" for other in others]
        return name

    def _replaced(self, left: list[str], right: list[str]) -> bool:
        """Write ``if (better) left = right;`` where that is all the operator does (arg-min and its like)."""
        assert self.function is not None
        first = self.function.values[0]
        for c, e in enumerate(self.function.values):
            if not (
                isinstance(e, Select)
                and isinstance(first, Select)
                and e.cond == first.cond
                and e.then == Var(f"r{c}", e.type)
                and e.other == Var(f"l{c}", e.type)
            ):
                return False
        assert isinstance(first, Select)
        with self.out.block(f"if ({self.context.condition(first.cond, left, right)})"):
            for a, b in zip(left, right, strict=True):
                self.out.add(f"{a} = {b};")
        return True

    def _combine_parts(self) -> None:
        assert self.function is not None
        cell = self.cell()
        names = []
        for c, t in enumerate(self.types):
            name = self.context.names.new("whole")
            self.out.add(f"{c_type(t)} {name} = {self.parts[c]}[{cell}];")
            names.append(name)
        have = ""
        if self.counted:
            have = self.context.names.new("have")
            self.out.add(f"_Bool {have} = {self.flags}[{cell}];")
        if self.slot_count != "1":
            s = self.context.names.new("part")
            cells = "" if self.cell_count == "1" else f"*({self.cell_count})"
            with self.out.block(f"for (long {s} = 1; {s} < {self.slot_count}; {s}++)"):
                at = f"{s}{cells}" if cell == "0" else f"{s}{cells} + {cell}"
                parts = [f"{p}[{at}]" for p in self.parts]
                if have:
                    self.out.add(f"if (!{self.flags}[{at}]) continue;")
                    self.add_or_set(have, names, parts)
                else:
                    self.accumulate(names, parts)
        if not have:
            self.store_all(names if self.parts_are_seeded else self.with_initial(names))
            return
        with self.out.block(f"if ({have})"):
            self.store_all(self.with_initial(names))
            if self.has_initial:
                self.out.middle("} else {")
                self.store_all(self.initial_values(range(len(self.types))))

    def add_or_set(self, have: str, left: list[str], right: list[str]) -> None:
        """``left = left ⊛ right``, or ``left = right`` where ``have`` says that there is nothing yet."""
        with self.out.block(f"if ({have})"):
            self.accumulate(left, right)
            self.out.middle("} else {")
            for a, v in zip(left, right, strict=True):
                self.out.add(f"{a} = {v};")
            self.out.add(f"{have} = 1;")

    def accumulate(self, left: list[str], right: list[str]) -> None:
        """``left = left ⊛ right`` for scalar texts."""
        assert self.function is not None
        if len(left) > 1:
            right = self._named(right)
            if self._replaced(left, right):
                return
        texts = self.context.combined(self.function, left, right)
        if len(left) > 1:
            texts = self._named(texts)
        for c, name in enumerate(left):
            if texts[c] == name:
                continue
            e = self.function.values[c]
            if (
                isinstance(e, Binary)
                and isinstance(e.a, Var)
                and isinstance(e.b, Var)
                and texts[c].startswith(f"{name} {e.op} ")
                and len(left) == 1
            ):
                self.out.add(f"{name} {e.op}= {texts[c][len(name) + 2 + len(e.op) :]};")
            else:
                self.out.add(f"{name} = {texts[c]};")


def for_head(loop: Loop, variable: str, first: str, end: str) -> str:
    return f"for (long {variable} = {first}; {variable} < {end}; {step_of(loop, variable)})"


def step_of(loop: Loop, variable: str) -> str:
    return f"{variable} += {loop.size}" if loop.size != 1 else f"{variable}++"


def all_of(tests: Sequence[str]) -> str:
    """The conjunction in C of those that are not empty."""
    some = [t for t in tests if t]
    return some[0] if len(some) == 1 else " && ".join(f"({t})" for t in some)
