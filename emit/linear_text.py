"""A scan that is a linear recurrence, ``s = factor*s + term``, as C.

    in order    carry = initial; for i: carry = factor(i)*carry + term(i); store
    blocks      of every block, the map that its iterations compose to (threads); through the maps from block
                to block (one thread); every block in order, from the value before it (threads)

Composed maps are no substitute for the iterations everywhere.  Floating-point products may leave the range
of their type where the recurrence stays in it (2^2000 * 0), or cancel what they were to be added to (with a
factor of 2, errors double in each step, but s = 2*s - 1 stays 1).  So a block's map is used only where

* every factor is at most 1 in magnitude: then the result's error is bounded as that of a sum is, by a
  multiple of the sum of all |terms| and of the start, and the product cannot overflow;
* the value before the block, the map's term, and the value behind the block are finite;
* the product is a normal number, or what was lost in it is too small to change the result.

Otherwise the thread that goes from block to block computes this one's iterations in order.  Integers wrap,
and their maps are always exact.
"""

from __future__ import annotations

from emit.c_text import c_type, constant
from emit.kernel_text import Allocation, Context, Lines
from emit.scan_text import CHAINS, ScanText
from lowering.loops import size_name
from lowering.lower import ScanNest
from mdh_core.expr import ScalarType, Type

SMALLEST = {32: 2.0**-126, 64: 2.0**-1022}  # normal numbers
LOST = {32: 2.0**103, 64: 2.0**970}  # unit of the last place / smallest normal number


class LinearText(ScanText):
    """Writes one recurrence into ``out``; the carry is the value alone."""

    def __init__(self, scan: ScanNest, context: Context, out: Lines) -> None:
        super().__init__(scan, context, out)
        t = self.types[1]
        assert isinstance(t, ScalarType)
        self.type = t

    # ----------------------------------------------------------------- in order

    @property
    def _carried(self) -> tuple[Type, ...]:
        return (self.type,)

    @property
    def _starts(self) -> list[str]:
        initial = self.cells.initial(1)
        assert initial is not None
        return [initial]

    def _results(self, carry: list[str]) -> dict[int, str]:
        return {1: carry[0]}

    def _accumulate(self, carry: list[str], values: list[str]) -> None:
        factor, term = self.cells._named(values)
        self.out.add(f"{carry[0]} = {self._applied(factor, term, carry[0])};")

    def _applied(self, factor: str, term: str, value: str) -> str:
        """``factor*value + term`` of names; integers wrap, as products of several factors may overflow."""
        if self.type.is_float:
            return f"{factor}*{value} + {term}"
        u = "unsigned long" if self.type.bits == 64 else "unsigned int"
        return f"({c_type(self.type)})(({u}){factor}*({u}){value} + ({u}){term})"

    # ----------------------------------------------------------------- blocks

    def _blocks(self, block: int) -> None:
        n = size_name(self.scan.dim)
        count, maps = self._block_values(block, ["factor", "term"])
        if self.type.is_float:
            maps.append(self.context.names.new("small"))
            self.context.allocations.append(Allocation(maps[-1], "_Bool", f"({n}/{block} + 1)"))
        carry = self._carry()
        with self._waves(block, count) as (first, end):
            self._over_blocks(
                block,
                first,
                end,
                lambda group, start: self._maps(maps, group, [start, f"{start} + {block}"], CHAINS, block),
                lambda b: self._maps(maps, b, list(self._ends_of_block), 1, block),
            )
            self.out.add("#pragma omp single")
            self._from_block_to_block(first, end, maps, carry)
            if any(self.scan.dim not in s.at_last for s in self.program.out.stores):
                self._scan_blocks(block, first, end, maps)
        self._store(carry, last=True, at=f"{n} - 1")

    def _carries(self, totals: list[str], b: str) -> list[str]:
        name = self.context.names.new("carry")
        self.out.add(f"{c_type(self.type)} {name} = {totals[1]}[{b}];")
        return [name]

    def _maps(self, maps: list[str], b: str, ends: list[str], chains: int, block: int) -> None:
        """The maps of ``chains`` blocks from number ``b`` on; ``ends``: those of the first one.

        A product that is no normal number any more becomes 0: arithmetic on denormal numbers is slow.
        """
        names, t = self.context.names, c_type(self.type)
        own = [tuple(names.new(wish) for wish in ("product", "sum", "bounded")) for _ in range(chains)]
        for product, total, bounded in own:
            self.out.add(f"{t} {product} = 1, {total} = 0;")
            if self.type.is_float:
                self.out.add(f"_Bool {bounded} = 1;")
        v = names.new(self.scan.dim)
        before = self.context.at[self.scan.dim]
        with self.out.block(f"for (long {v} = {ends[0]}; {v} < {ends[1]}; {v}++)"):
            for u, (product, total, bounded) in enumerate(own):
                self.context.at[self.scan.dim] = f"{v} + {u * block}" if u else v
                if self.program.hom.scalar.body:
                    self.out.add(*self.context.printer().statements(self.program.hom.scalar.body))
                values = [self.context.scalar(e) for e in self.program.hom.scalar.results]
                factor, term = self.cells._named(values)
                self.out.add(f"{total} = {self._applied(factor, term, total)};")
                if self.type.is_float:
                    self.out.add(f"{product} *= {factor};")
                    self.out.add(f"if (!({self._size(product)} >= {self._smallest})) {product} = 0;")
                    self.out.add(f"{bounded} &= {self._size(factor)} <= 1;")
                else:
                    self.out.add(f"{product} = {self._applied(factor, '0', product)};")
        self.context.at[self.scan.dim] = before
        for u, block_map in enumerate(own):
            at = f"{b} + {u}" if u else b
            pairs = zip(maps, block_map, strict=False)  # integers need no bound
            self.out.add(*(f"{array}[{at}] = {value};" for array, value in pairs))

    def _from_block_to_block(self, first: str, end: str, totals: list[str], carry: list[str]) -> None:
        """``carry`` through all maps; the value before each block takes the place of its map's term."""
        factors, terms, *small = totals
        names, t, before, block = self.context.names, c_type(self.type), carry[0], self.scan.block
        assert block is not None
        b, factor, term, behind = (names.new(wish) for wish in ("b", "by", "plus", "behind"))
        with self.out.block(f"for (long {b} = {first}; {b} < {end}; {b}++)"):
            self.out.add(f"const {t} {factor} = {factors}[{b}], {term} = {terms}[{b}];")
            self.out.add(f"{t} {behind} = {self._applied(factor, term, before)};")
            self.out.add(f"{terms}[{b}] = {before};")
            if self.type.is_float:
                usable = " && ".join([f"{small[0]}[{b}]", *self._usable(factor, term, before, behind)])
                with self.out.block(f"if (!({usable}))"):
                    self._bounds(block, b)
                    self.out.add(f"{behind} = {before};")
                    self._sequence([behind], *self._ends_of_block, "0", store=False)
            self.out.add(f"{before} = {behind};")

    def _usable(self, factor: str, term: str, before: str, behind: str) -> list[str]:
        """Conditions under which a block's map, its factors being small, does for its iterations."""
        finite = [f"__builtin_isfinite({x})" for x in (before, term, behind)]
        lost = f"{self._size(before)} <= {constant(LOST[self.type.bits], self.type)}*{self._size(behind)}"
        return [*finite, f"({self._size(factor)} >= {self._smallest} || {lost})"]

    @property
    def _smallest(self) -> str:
        return constant(SMALLEST[self.type.bits], self.type)

    def _size(self, x: str) -> str:
        return f"__builtin_fabs{'f' if self.type.bits == 32 else ''}({x})"
