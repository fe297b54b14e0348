"""Domains as C: bounds of loops that visit no empty part, and tests whether a tile is full.

At any place in a nest, a dimension's index is known up to the loops that have not begun: it lies between
``at[dim]`` and what these loops span.  Over this box the smallest and largest value of an affine
constraint are those at two of its corners, so that

    loop over d      begins and ends where the largest value over the other dimensions allows it
    tile is full     if the smallest value of every constraint is not negative

and the innermost loop over the dimensions of a constraint obeys it exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emit.c_text import affine_text
from lowering.domains import Rows, read_in_boxes
from lowering.loops import Loop, loop_range, size_name
from mdh_core.expr import Affine, Load, stmt_exprs, walk
from mdh_core.ir import MdhProgram
from mdh_core.polytope import rows_of


class DomainText:
    """The constraints of a program; ``at`` is the text of each dimension's index where code is written."""

    def __init__(self, program: MdhProgram) -> None:
        self.program = program
        self.dims = {d.name: d for d in program.hom.dims}
        reduced = {d.name for d in program.hom.dims_of("pw")}
        everything = rows_of(program.hom.domain)
        self.over_params = [r for r in everything if not r.names & self.dims.keys()]
        self.rows: Rows = [r for r in everything if r.names & self.dims.keys()]
        self.positions: Rows = [r for r in self.rows if not r.names & reduced]
        self.contributions: Rows = [r for r in self.rows if r.names & reduced]

    # ------------------------------------------------------------------ values over a box

    def _corner(self, a: Affine, inner: Iterable[Loop], largest: bool) -> Affine:
        """A constraint's largest or smallest value, over the dimensions' indices as they are now."""
        inner = tuple(inner)
        ends: dict[str, Affine] = {}
        for name, c in a.terms:
            if name in self.dims and (c > 0) == largest:
                span = loop_range(inner, name)
                last = Affine.of(size_name(name)) if span is None else Affine.of(name) + span
                ends[name] = last - 1
        return a.substitute(ends)

    @staticmethod
    def not_negative(a: Affine, at: dict[str, str]) -> str:
        """``j + 3 <= i`` for ``i - j - 3 >= 0``."""
        left = Affine(tuple((n, -c) for n, c in a.terms if c < 0), max(0, -a.const))
        right = Affine(tuple((n, c) for n, c in a.terms if c > 0), max(0, a.const))
        return f"{affine_text(left, at)} <= {affine_text(right, at)}"

    def throughout(
        self, rows: Rows, inner: Sequence[Loop], at: dict[str, str], every: bool = False
    ) -> str | None:
        """C text that holds where all points that the loops reach obey the rows; None: they do.

        Rows about indices that no loop changes any more are left out (unless ``every``): the loop
        that came last has obeyed them.
        """
        tests = [self.not_negative(r, at) for r in self._smallest(rows, inner, every)]
        return " && ".join(dict.fromkeys(tests)) or None

    def _smallest(self, rows: Rows, inner: Sequence[Loop], every: bool) -> Rows:
        moving = {x.dim for x in inner}
        return [self._corner(r, inner, largest=False) for r in rows if every or r.names & moving]

    def rising(
        self, dim: str, rows: Rows, inner: Sequence[Loop], at: dict[str, str], every: bool = False
    ) -> str | None:
        """Of the tests of ``throughout`` those that, once they hold, hold for all larger indices of ``dim``;
        None: there are none.  Of the others each that has failed fails for all larger ones.
        """
        found = [r for r in self._smallest(rows, inner, every) if r.coefficient(dim) > 0]
        return " && ".join(dict.fromkeys(self.not_negative(r, at) for r in found)) or None

    def nowhere(self, rows: Rows, inner: Sequence[Loop], at: dict[str, str]) -> str | None:
        """C text that holds where one of the rows fails for all points that the loops reach."""
        tests = [
            self.not_negative(-self._corner(r, inner, largest=True) - 1, at) for r in rows
        ]
        return " || ".join(dict.fromkeys(tests)) or None

    def given(self) -> str | None:
        """The condition on the parameters alone; None: there is none, "0": it never holds."""
        if any(r.is_constant and r.const < 0 for r in self.over_params):
            return "0"
        return " && ".join(self.not_negative(r, {}) for r in self.over_params if r.terms) or None

    # ------------------------------------------------------------------ bounds of loops

    def starts(self, loop: Loop, inner: Sequence[Loop], rows: Rows, at: dict[str, str]) -> list[str]:
        """Texts of indices before which there is no point; ``inner``: the other loops not begun.

        Where inner loops reach further than one part of this one, that far before.  None at all where
        they reach everything.
        """
        span = loop_range([x for x in inner if x.dim == loop.dim], loop.dim)
        if span is None:
            return []
        ahead = max(span - loop.size, 0)
        out = []
        for r in rows:
            c = r.coefficient(loop.dim)
            if c > 0:
                rest = Affine.of(loop.dim, c) - self._corner_of_others(r, loop.dim, inner) - c * ahead
                if rest.const <= 0 and all(at.get(n) == "0" for n in rest.names):
                    continue  # indices are never negative
                text = affine_text(rest if c == 1 else rest + (c - 1), at, atom=c > 1)
                out.append(text if c == 1 else f"{text}/{c}")
        return list(dict.fromkeys(out))

    def ends(self, loop: Loop, inner: Sequence[Loop], rows: Rows, at: dict[str, str]) -> list[str]:
        """Texts of indices from which on there is no point."""
        out = []
        for r in rows:
            c = -r.coefficient(loop.dim)
            if c > 0:
                rest = self._corner_of_others(r, loop.dim, inner) + Affine.of(loop.dim, c)
                text = affine_text(rest + c, at, atom=c > 1)
                out.append(text if c == 1 else f"{text}/{c}")
        return list(dict.fromkeys(out))

    def _corner_of_others(self, r: Affine, dim: str, inner: Sequence[Loop]) -> Affine:
        """The largest value over the other dimensions; the own term is as it was."""
        own = Affine.of(dim, r.coefficient(dim))
        return self._corner(r - own, inner, largest=True) + own

    # ------------------------------------------------------------------ reading outside the domain

    def readable(self) -> Rows | None:
        """Rows of the boxes in which every operand is one that some point of the domain reads.

        None where that cannot be told: what is read there may not exist.
        """
        program = self.program
        scalar = program.hom.scalar
        nodes = [n for e in (*stmt_exprs(scalar.body), *scalar.results) for n in walk(e)]
        stored = {s.buffer for s in program.out.stores}
        if any(isinstance(n, Load) for n in nodes) or any(a.buffer in stored for a in program.inp.accesses):
            return None
        found: dict[Affine, None] = {}
        for access in program.inp.accesses:
            rows = read_in_boxes(program, access)
            if rows is None:
                return None
            found |= dict.fromkeys(rows)
        return list(found)
