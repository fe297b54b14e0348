"""Arg-min and its like, one row of points: vectors look where something better may be, scalars take it.

    for (c = first; c < end; c += 512)       a stretch of the row
      best = identity                        vectors, four of them side by side
      for (i = c; …) best = better of best and value(i)
      most = the best lane
      if (most is better than acc, or equal to it in a position that would win)
        for (i = c; …) if (value(i) == most) { acc = acc ⊛ point(i); break; }

In: a tile, its loop over the row and where it begins and ends.  Out: the loops, or nothing where values have
no vector form.  Shown right: a point is taken only if its value is better than that of ``acc``, or as good
in a position that wins; ``most`` is at least as good as every value of the stretch, and the position it is
asked about wins against every other one there.  So where the answer is no, no point would be taken.
Where it is yes, the last point that the loop over points takes is one with the value ``most``: the
first of them, or the last where ties go to the last position; vectors look for that one.  NaN is taken by no
comparison, here or there.  Points that a condition keeps from winning have the identity's value in a position
that never wins; they may stand before others of that value, so then all of these are tried.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emit.c_text import c_type, constant
from emit.vector_printer import NotVector, VectorPrinter, Vectors, mask_type
from lowering.facts import is_screened
from mdh_core.combine import Choice, choice_of, highest, left, lowest, right
from mdh_core.expr import INT32, Binary, Const, Expr, ScalarType, Select, Var

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emit.tile_text import Tile

STRETCH = 512  # elements: long enough to make up for combining lanes, and in the first cache when read again


def screened(tile: Tile, k: int, first: str, end: str) -> bool:
    """Write the loop ``inner[k]`` and the lanes in it as stretches; False where they are not of this kind."""
    n, inner = tile.n, tile.inner
    choice = None if tile.function is None else choice_of(tile.function)
    if choice is None or tile.vectors is not None or tile.have or tile.guarded or not is_screened(n.program):
        return False
    if len(inner) != k + 2 or inner[-1].role != "lanes" or inner[-1].size != 1:
        return False
    loop, lanes = inner[k], inner[-1]
    t = n.types[0]
    if loop.dim != lanes.dim or not isinstance(t, ScalarType) or not lanes.count:
        return False
    if lanes.count & (lanes.count - 1) and lanes.count % (64 // t.size):
        return False
    at, before = len(tile.out.rows), dict(tile.context.at)
    try:
        _Screen(tile, choice, t, loop.dim, lanes.count).write(first, end)
    except NotVector:
        del tile.out.rows[at:]
        return False
    finally:
        tile.context.at = before
    return True


class _Screen:
    def __init__(self, tile: Tile, choice: Choice, t: ScalarType, dim: str, count: int) -> None:
        self.tile, self.choice, self.type, self.dim, self.count = tile, choice, t, dim, count
        self.context, self.out, names = tile.context, tile.out, tile.context.names
        lanes = names.new("lanes")
        self.vectors = Vectors(dim, lanes, lanes.replace("lanes", "v"))
        self.identity: Const = highest(t) if choice.op == "<" else lowest(t)

    def write(self, first: str, end: str) -> None:
        names, out, dim = self.context.names, self.out, self.dim
        stretch = max(STRETCH, self.count)
        c, stop = names.new(f"{dim}_s"), names.new(f"{dim}_stop")
        with out.block(f"for (long {c} = {first}; {c} < {end}; {c} += {stretch})"):
            out.add(f"const long {stop} = {c} + {stretch} < {end} ? {c} + {stretch} : {end};")
            most = names.new("most")
            out.add(f"{c_type(self.type)} {most} = {constant(self.identity.value, self.type)};")
            with self._in_vectors():
                self._look(most, c, stop)
            with out.block(f"if ({self._may_win(most, c, stop)})"):
                self._take(most, c, stop)

    @contextmanager
    def _in_vectors(self) -> Iterator[None]:
        """Braces around vector code, with the types that it uses."""
        out, lanes, suffix = self.out, self.vectors.lanes, self.vectors.suffix
        self.vectors.used.clear()
        with out.block(""):
            out.rows[-1] = "  " * (out.indent - 1) + "{"
            top = len(out.rows)
            yield
            width = f"MDH_VECTOR_BYTES / {self.type.size}"
            named = f"enum {{ {lanes} = {width} < {self.count} ? {width} : {self.count}, "
            named += f"vectors_{suffix} = {self.count} / {lanes} }};"
            pad = "  " * out.indent
            out.rows[top:top] = [pad + x for x in (named, *self.vectors.typedefs())]

    def _take(self, most: str, start: str, stop: str) -> None:
        """The point whose value is ``most`` joins; all such points, where a condition keeps some out."""
        out, names, results = self.out, self.context.names, self.tile.n.program.hom.scalar.results
        alone = all(isinstance(e, Var) for e in results[-self.choice.positions :])
        if alone and self.type.size > 1:  # numbers in a stretch need more than a byte
            with self._in_vectors():
                self._find(most, start, stop)
            return
        v, value = names.new(self.dim), names.new("value")
        self.context.at[self.dim] = v
        with out.block(f"for (long {v} = {start}; {v} < {stop}; {v}++)"):
            out.add(f"const {c_type(self.type)} {value} = {self.context.scalar(results[0])};")
            out.add(f"if ({value} != {most}) continue;")
            self.tile._scalar_point(tail=False)

    def _find(self, most: str, start: str, stop: str) -> None:
        """Every lane remembers the first vector, or the last one, in which it held the value."""
        out, names, vectors, context = self.out, self.context.names, self.vectors, self.context
        t, mask, last = vectors.type(self.type), vectors.mask(self.type), self.choice.last_wins
        result = self.tile.n.program.hom.scalar.results[0]
        at, i, same, value, found = (names.new(x) for x in ("at", self.dim, "same", "value", "found"))
        lane, lanes = names.new("lane"), names.new("lanes_of")
        out.add(f"{mask} {at} = ({mask}){{0}} - 1;", f"long {i} = {start}, {found} = -1;")
        with out.block(f"for (; {i} + {vectors.lanes} <= {stop}; {i} += {vectors.lanes})"):
            context.at[self.dim] = i
            out.add(f"const {t} {value} = {VectorPrinter(context, vectors).vector(result)};")
            new = "" if last else f" & ({mask})({at} < 0)"
            out.add(f"const {mask} {same} = ({mask})({value} == {most}){new};")
            number = f"({mask}){{0}} + ({c_type(mask_type(self.type))})({i} - {start})"
            out.add(f"{at} = ({same} & ({number})) | (~{same} & {at});")
        element = c_type(mask_type(self.type))
        out.add(f"{element} {lanes}[{vectors.lanes}];")
        out.add(f"*({vectors.unaligned(mask_type(self.type))} *){lanes} = {at};")
        with out.block(f"for (long {lane} = 0; {lane} < {vectors.lanes}; {lane}++)"):
            here = f"{lanes}[{lane}] + {lane}"
            better = f"{here} > {found}" if last else f"({found} < 0 || {here} < {found})"
            out.add(f"if ({lanes}[{lane}] >= 0 && {better}) {found} = {here};")
        rest = f"for (; {i} < {stop}{'' if last else f' && {found} < 0'}; {i}++)"
        context.at[self.dim] = i
        out.add(rest, f"  if ({context.scalar(result, 9)} == {most}) {found} = {i} - {start};")
        with out.block(f"if ({found} >= 0)"):
            v = names.new(self.dim)
            out.add(f"const long {v} = {start} + {found};")
            context.at[self.dim] = v
            self.tile._scalar_point(tail=False)

    def _look(self, most: str, start: str, stop: str) -> None:
        """The best value of a stretch, in ``most``."""
        names, out, vectors, context = self.context.names, self.out, self.vectors, self.context
        t, v, i = vectors.type(self.type), names.new("v"), names.new(self.dim)
        best, value = names.new("best"), names.new("value")
        total = names.new("total")
        result = self.tile.n.program.hom.scalar.results[0]
        number, each = f"vectors_{vectors.suffix}", f"#pragma GCC unroll {self.count}"
        out.add(f"{t} {best}[{number}];", each)
        start_value = VectorPrinter(context, vectors).vector(self.identity)
        out.add(f"for (long {v} = 0; {v} < {number}; {v}++) {best}[{v}] = {start_value};")
        out.add(f"long {i} = {start};")
        with out.block(f"for (; {i} + {self.count} <= {stop}; {i} += {self.count})"):
            out.add(each)
            with out.block(f"for (long {v} = 0; {v} < {number}; {v}++)"):
                context.at[self.dim] = f"{i} + {v}*{vectors.lanes}"
                out.add(f"const {t} {value} = {VectorPrinter(context, vectors).vector(result)};")
                out.add(f"{best}[{v}] = {self._better_vector(f'{best}[{v}]', value)};")
        out.add(f"{t} {total} = {best}[0];", each)
        with out.block(f"for (long {v} = 1; {v} < {number}; {v}++)"):
            out.add(f"const {t} {value} = {best}[{v}];")
            out.add(f"{total} = {self._better_vector(total, value)};")
        lanes, lane, scalar = names.new("lanes_of"), names.new("lane"), c_type(self.type)
        out.add(f"{scalar} {lanes}[{vectors.lanes}];")
        out.add(f"*({vectors.unaligned(self.type)} *){lanes} = {total};")
        op = self.choice.op
        found = f"{lanes}[{lane}]"
        out.add(f"for (long {lane} = 0; {lane} < {vectors.lanes}; {lane}++)")
        out.add(f"  if ({found} {op} {most}) {most} = {found};")
        with out.block(f"for (; {i} < {stop}; {i}++)"):
            context.at[self.dim] = i
            out.add(f"const {scalar} {value} = {context.scalar(result)};")
            out.add(f"if ({value} {op} {most}) {most} = {value};")

    def _better_vector(self, one: str, other: str) -> str:
        a, b = left(0, self.type), right(0, self.type)
        better: Expr = Select(Binary(self.choice.op, b, a, INT32), b, a, self.type)
        return VectorPrinter(self.context, self.vectors, variables={"l0": one, "r0": other}).vector(better)

    def _may_win(self, most: str, start: str, stop: str) -> str:
        """Whether the best value, in the position that wins against all others of the stretch, is taken."""
        function = self.tile.function
        assert function is not None and isinstance(function.values[0], Select)
        count = self.choice.positions
        texts = [self.tile._acc(c) for c in range(function.arity)]
        self.context.at[self.dim] = f"{stop} - 1" if self.choice.last_wins else start
        results = self.tile.n.program.hom.scalar.results
        positions = [e.then if isinstance(e, Select) else e for e in results[-count:]]
        assert all(isinstance(e, Var) for e in positions)
        others = [most, *texts[1:-count], *(self.context.scalar(e) for e in positions)]
        return self.context.condition(function.values[0].cond, texts, others)
