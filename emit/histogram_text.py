"""A ``HistogramNest`` as C: every point finds its cell.

    rows      threads share a concatenated dimension: for (j) for (i) h[cell(i)][j] ⊛= f(i, j)
    copies    threads share a reduced dimension: each part of it fills private cells, which are combined into
              the array in the order of the parts.  The number of parts belongs to the configuration, so
              the grouping depends neither on the number of threads nor on timing.  Where they are few,
              neighbouring points of a part use several sets of cells in turn, and what they read is
              fetched ahead.
    in order  one loop nest, where there are too few points for the copies or no memory for them
"""

from __future__ import annotations

from contextlib import ExitStack

from emit.c_text import affine_text, c_type, constant
from emit.kernel_text import Context, Lines, repeats_right
from emit.nest_text import NestText
from lowering.histogram import Test, followed, names_of
from lowering.loops import size_name
from lowering.lower import HistogramNest, Nest
from lowering.machine import LINE
from mdh_core.combine import CombineFunction, neutral
from mdh_core.expr import INT64, Cast
from mdh_core.ir import Dim
from mdh_core.polytope import rows_of

MIN_POINTS = 1 << 14  # below, starting threads costs more than they save
PADDING = 64  # bytes between private copies, so that they share no cache line
NEAR = 1 << 13  # bytes of one set of cells of which several are in the first cache
PER_CELL = 8  # points of a set: with fewer, several sets cost more than they save


class HistogramText:
    """Writes one histogram into ``out``."""

    def __init__(self, nest: HistogramNest, context: Context, out: Lines) -> None:
        self.nest = nest
        self.context = context
        self.out = out
        self.program = nest.program
        # the operator and names are written as for any nest
        self.cells = NestText(Nest(nest.program, (), (0, 0), 0, 0, (), "direct"), context, out)
        (self.type,) = nest.program.component_types
        self.names = context.names

    @property
    def function(self) -> CombineFunction:
        f = self.program.hom.function
        assert f is not None
        return f

    def write(self) -> None:
        if any(d.size.constant == 0 for d in self.program.hom.dims):
            return
        others = [d for d in self.program.hom.dims if d.name != self.nest.dims[0]]
        inner = [f"{size_name(d.name)} > 0" for d in others if d.size.constant is None]
        with ExitStack() as stack:  # so that what a test reads before other loops begin exists
            if inner:
                stack.enter_context(self.out.block(f"if ({' && '.join(inner)})"))
            self._loops()

    def _loops(self) -> None:
        if not self.nest.shared:
            self._points(self.nest.dims, None)
        elif self.nest.copies:
            self._with_copies()
        else:
            total = " * ".join(f"(double){size_name(d)}" for d in self.nest.dims)
            enough, rows = f"{total} >= {MIN_POINTS}", size_name(self.nest.dims[0])
            self.context.shared_loop(self.out, "static", 1, enough, MIN_POINTS, [rows])
            self.context.enough.append(enough)
            self._points(self.nest.dims, None)

    # ------------------------------------------------------------------ points

    def _points(
        self,
        dims: tuple[str, ...],
        own: str | None,
        bounds: tuple[str, str] | None = None,
        step: str = "",
    ) -> None:
        """Loops over ``dims``; ``own``: the private cells that are meant instead of the array's.

        bounds  where the first loop begins and ends, if not at the dimension's ends
        step    how far apart the sets of private cells are that neighbouring points use in turn
        """
        before = dict(self.context.at)
        tests, inside = list(self.nest.form.tests), self.program.hom.domain or self.program.hom.scalar.body
        with ExitStack() as stack:
            for k, d in enumerate(dims):
                v = self.names.new(d)
                start, end = bounds if bounds and k == 0 else ("0", size_name(d))
                if step and own and k == len(dims) - 1:
                    self.out.add(f"long {v} = {start};")
                    self._in_turn(d, v, end, tests, own, step)
                    stack.enter_context(self.out.block(f"for (; {v} < {end}; {v}++)"))
                else:
                    stack.enter_context(self.out.block(f"for (long {v} = {start}; {v} < {end}; {v}++)"))
                self.context.at[d] = v
                while not inside and tests and names_of(tests[0].value, self.program) <= set(dims[: k + 1]):
                    self._test(tests.pop(0), stack)
            self._point(tests, own, stack)
        self.context.at = before

    def _in_turn(self, d: str, v: str, end: str, tests: list[Test], own: str, step: str) -> None:
        """The innermost loop over some points at a time, which use the sets of private cells in turn.

        As many as there are sets, or as have a line of the operands that are fetched ahead.
        """
        ways, before = self.nest.ways, dict(self.context.at)
        late = followed(self.program, d, self.nest.dims) if self.nest.ahead else ()
        sizes = [self.program.buffer(a.buffer).type.size for a in late]
        count = -(-max([ways, *(LINE // size for size in sizes)]) // ways) * ways
        with ExitStack() as stack:
            stack.enter_context(self.out.block(f"for (; {v} + {count} <= {end}; {v} += {count})"))
            for a, size in zip(late, sizes, strict=True):
                for point in range(0, count, LINE // size):  # no line is left out where a line is no multiple
                    self.context.at[d] = f"{v} + {self.nest.ahead // size + point}"
                    self.out.add(f"__builtin_prefetch(&{self.context.subscript(a.buffer, a.index)});")
            k = self.names.new("point" if count > ways else "way")
            self.out.add(f"#pragma GCC unroll {count}")
            stack.enter_context(self.out.block(f"for (long {k} = 0; {k} < {count}; {k}++)"))
            self.context.at[d] = f"{v} + {k}"
            self._point(list(tests), own, stack, f"{k}{f'%{ways}' if count > ways else ''}*{step} + ")
        self.context.at = before

    def _test(self, test: Test, stack: ExitStack) -> None:
        if not test.dim:
            stack.enter_context(self.out.block(f"if ({self.context.scalar(test.value)})"))
            return
        v = self.names.new(test.dim)
        value = test.value if test.value.type == INT64 else Cast(test.value, INT64)
        self.out.add(f"const long {v} = {self.context.scalar(value)};")
        stack.enter_context(self.out.block(f"if ({v} >= 0 && {v} < {size_name(test.dim)})"))
        self.context.at[test.dim] = v

    def _point(self, tests: list[Test], own: str | None, stack: ExitStack, first: str = "") -> None:
        """``first``: where the set of private cells begins."""
        inside = [f"{affine_text(r, self.context.at)} >= 0" for r in rows_of(self.program.hom.domain)]
        if inside:
            stack.enter_context(self.out.block(f"if ({' && '.join(inside)})"))
        self.out.add(*self.context.printer().statements(self.program.hom.scalar.body))
        for test in tests:
            self._test(test, stack)
        element = self.context.scalar(self.nest.form.element)
        if repeats_right(self.function):
            (element,) = self.cells._named([element])
        (store,) = self.program.out.stores
        shared = self.context.subscript(store.buffer, store.index)
        cell = self._own_cell(own, first) if own else shared
        self.cells.accumulate([cell], [element])

    def _own_cell(self, own: str, first: str = "") -> str:
        """The private cell that is meant; ``first``: where its set begins, and ``+``."""
        return f"{own}[{first}{self._at()}]"

    @property
    def _cells(self) -> tuple[Dim, ...]:
        """The concatenated dimensions in the order of the array's subscripts."""
        (store,) = self.program.out.stores

        def place(d: Dim) -> int:
            return next((k for k, a in enumerate(store.index) if a.coefficient(d.name)), 0)

        return tuple(sorted(self.program.hom.dims_of("cc"), key=place))

    def _at(self) -> str:
        """The current cell's number among all cells of the result."""
        text = ""
        for d in self._cells:
            i = self.context.at[d.name]
            head = f"({text})" if "+" in text else text
            text = f"{head}*{size_name(d.name)} + {i}" if text else i
        return text

    # ------------------------------------------------------------------ copies

    def _with_copies(self) -> None:
        first, parts = self.nest.dims[0], self.nest.copies
        t, nothing = c_type(self.type), neutral(self.function)
        assert nothing is not None  # or the program has another form
        cells, pitch, copies = self.names.new("cells"), self.names.new("pitch"), self.names.new("copies")
        points = " * ".join(f"(double){size_name(d)}" for d in self.nest.dims)
        self.out.add(f"const long {cells} = {self._count()};")
        self.out.add(f"const long {pitch} = {cells} + {max(1, PADDING // self.type.size)};")
        ways, size, step = self.nest.ways, f"sizeof({t})", ""
        each = pitch
        if ways > 1:
            step, each = self.names.new("step"), self.names.new("each")
            few = f"{cells}*{size} <= {NEAR} && {points} >= {PER_CELL * parts * ways}.0*{cells}"
            self.out.add(f"const long {step} = {few} ? {pitch} : 0;")
            self.out.add(f"const long {each} = {pitch} + {ways - 1}*{step};")
        worth = f"{self._pays(cells)}{points} >= {MIN_POINTS} && {points} >= {2 * parts}.0*{cells}"
        memory = f"({t} *)__builtin_malloc({parts}*(unsigned long){each}*{size})"
        self.out.add(f"{t} *const {copies} = {worth} ? {memory} : 0;")
        with self.out.block(f"if ({copies})"):
            part, own, share = self.names.new("part"), self.names.new("own"), self.names.new("share")
            n = size_name(first)
            self.out.add(f"const long {share} = ({n} + {parts - 1})/{parts};")
            self.out.add("#pragma omp parallel for schedule(static, 1)")
            with self.out.block(f"for (long {part} = 0; {part} < {parts}; {part}++)"):
                self.out.add(f"{t} *const {own} = {copies} + {part}*{each};")
                c = self.names.new("c")
                with self.out.block(f"for (long {c} = 0; {c} < {each}; {c}++)"):
                    self.out.add(f"{own}[{c}] = {constant(nothing.value, nothing.type)};")
                end = self.names.new("end")
                last = f"({part} + 1)*{share}"
                self.out.add(f"const long {end} = {last} < {n} ? {last} : {n};")
                self._points(self.nest.dims, own, (f"{part}*{share}", end), step)
                if step:
                    self._gathered(own, step, cells)
            self._combined(copies, each, cells)
            self.out.add(f"__builtin_free({copies});")
            self.out.middle("} else {")
            self._otherwise()

    def _count(self) -> str:
        """How many private cells there are."""
        return "*".join(size_name(d.name) for d in self._cells)

    def _pays(self, cells: str) -> str:
        """What else must hold for private cells to pay, and ``&&``."""
        return ""

    def _otherwise(self) -> None:
        self._points(self.nest.dims, None)

    def _gathered(self, own: str, step: str, cells: str) -> None:
        """The sets of private cells of a part in its first."""
        way, c = self.names.new("way"), self.names.new("c")
        with ExitStack() as stack:
            head = f"for (long {way} = 1; {step} && {way} < {self.nest.ways}; {way}++)"
            stack.enter_context(self.out.block(head))
            stack.enter_context(self.out.block(f"for (long {c} = 0; {c} < {cells}; {c}++)"))
            self.cells.accumulate([f"{own}[{c}]"], [f"{own}[{way}*{step} + {c}]"])

    def _combined(self, copies: str, pitch: str, cells: str) -> None:
        """The array's cells with those of every part, in the order of the parts."""
        before = dict(self.context.at)
        (store,) = self.program.out.stores
        part = self.names.new("part")
        with ExitStack() as stack:
            self.out.add(f"#pragma omp parallel for schedule(static) if ({cells} >= {MIN_POINTS})")
            self._over_cells(stack)
            head = f"for (long {part} = 0; {part} < {self.nest.copies}; {part}++)"
            stack.enter_context(self.out.block(head))
            cell = self.context.subscript(store.buffer, store.index)
            element = f"{copies}[{part}*{pitch} + {self._at()}]"
            if repeats_right(self.function):
                (element,) = self.cells._named([element])
            self.cells.accumulate([cell], [element])
        self.context.at = before

    def _over_cells(self, stack: ExitStack) -> None:
        """Loops over the array's cells."""
        for d in self._cells:
            v = self.names.new(d.name)
            stack.enter_context(self.out.block(f"for (long {v} = 0; {v} < {size_name(d.name)}; {v}++)"))
            self.context.at[d.name] = v
