"""Points summed by value as C: a table over the span of the keys, in which every cell looks its sum up.

    low = least key; span = greatest key - low + 1;
    if (span is small) {
        for (i) if (0 <= x[i] - low < span) t[x[i] - low] ⊛= w[i];
        for (b) h[b] ⊛= t[k[b] - low];
    } else { the nest }

Every part of the points has tables of its own, as a histogram's copies (``emit.histogram_text``).
"""

from __future__ import annotations

from contextlib import ExitStack

from emit.histogram_text import MIN_POINTS, HistogramText
from emit.kernel_text import Context, Lines, repeats_right
from emit.nest_text import NestText
from lowering.histogram import OneHot, Test
from lowering.keyed import CELLS
from lowering.loops import size_name
from lowering.lower import WAYS, HistogramNest, Nest
from mdh_core.expr import INT64, Cast, Expr

SPAN = 1 << 20  # of the keys; the table is for more points than that
PARTS = 2  # of the points, at least


class KeyedText(HistogramText):
    """Writes one nest that has a table, with the nest as it is behind it."""

    def __init__(self, nest: Nest, context: Context, out: Lines, cores: int) -> None:
        assert nest.keyed is not None
        self.form, self.plain = nest.keyed, nest
        by_value = Test(self.form.value, "value")
        program = nest.program
        points = tuple(d.name for d in program.hom.dims_of("pw"))
        tests = OneHot((*self.form.tests, by_value), self.form.element)
        super().__init__(HistogramNest(program, tests, points, True, max(cores, PARTS), WAYS), context, out)
        self.low, self.span, self.place = self.names.new("low"), self.names.new("span"), ""

    def write(self) -> None:
        dims = self.program.hom.dims
        if any(d.size.constant == 0 for d in dims):
            NestText(self.plain, self.context, self.out).write()
            return
        self.out.add(f"long {self.low} = 0, {self.span} = 0;")
        cells = " * ".join(f"(double){size_name(d.name)}" for d in self._cells)
        points = " * ".join(f"(double){size_name(d)}" for d in self.nest.dims)
        with self.out.block(f"if ({cells} >= {CELLS} && {points} >= {MIN_POINTS} && {points} >= {cells})"):
            self._measure_keys()
        self._with_copies()

    def _measure_keys(self) -> None:
        """The least key and the span of all; there are some."""
        before, high = dict(self.context.at), self.names.new("high")
        self.context.at |= {d.name: "0" for d in self._cells}
        self.out.add(f"{self.low} = {self._key()};", f"long {high} = {self.low};")
        with ExitStack() as stack:
            self._over_cells(stack)
            key = self.names.new("key")
            self.out.add(f"const long {key} = {self._key()};")
            self.out.add(f"if ({key} < {self.low}) {self.low} = {key};")
            self.out.add(f"if ({key} > {high}) {high} = {key};")
        self.out.add(f"{self.span} = {high} - {self.low} + 1;")
        self.context.at = before

    def _key(self) -> str:
        return self.context.scalar(_as_long(self.form.key))

    def _count(self) -> str:
        return self.span

    def _pays(self, cells: str) -> str:
        return f"{cells} > 0 && {cells} <= {SPAN} && "

    def _otherwise(self) -> None:
        NestText(self.plain, self.context, self.out).write()

    def _test(self, test: Test, stack: ExitStack) -> None:
        if not test.dim:
            super()._test(test, stack)
            return
        self.place = self.names.new("at")
        self.out.add(f"const long {self.place} = {self.context.scalar(_as_long(test.value))} - {self.low};")
        inside = f"{self.place} >= 0 && {self.place} < {self.span}"
        stack.enter_context(self.out.block(f"if ({inside})"))

    def _at(self) -> str:
        return self.place

    def _combined(self, copies: str, pitch: str, cells: str) -> None:
        """Every cell with the sum of its key of every part, in the order of the parts."""
        before, part, at = dict(self.context.at), self.names.new("part"), self.names.new("at")
        (store,) = self.program.out.stores
        with ExitStack() as stack:
            self._over_cells(stack)
            self.out.add(f"long {at} = {self._key()} - {self.low};")
            self.out.add(f'__asm__("" : "+r"({at})); /* gcc 12 makes wrong gathers of truth values */')
            head = f"for (long {part} = 0; {part} < {self.nest.copies}; {part}++)"
            stack.enter_context(self.out.block(head))
            cell = self.context.subscript(store.buffer, store.index)
            element = f"{copies}[{part}*{pitch} + {at}]"
            if repeats_right(self.function):
                (element,) = self.cells._named([element])
            self.cells.accumulate([cell], [element])
        self.context.at = before


def _as_long(e: Expr) -> Expr:
    return e if e.type == INT64 else Cast(e, INT64)
