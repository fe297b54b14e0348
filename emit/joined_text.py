"""Rows of a map that share lines, written past the caches (``Nest.joined``).

    long first[4];                            where the lines of each row begin
    for (j ...) {
      for (k = 0; k < k_whole; k += line)     as many lines as each of the rows has
        for (i_r ...) out[i + i_r][j][k + first[i_r]] past the caches
      for (i_r ...) {                         what remains of a row, and the line that it shares with the next
        edge = as much as a line from the end of row j, and from the beginning of row j + 1
        the part of it that is one line, past the caches;  first[i_r] = what the next row has of it
      }
    }

A line is one vector or several.  The beginning of the first row and the end of the last one are stored as
usual, and overlap the lines beside them: points may be computed twice (``lowering.joined``).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emit.ahead_text import write_ahead
from emit.c_text import c_type
from emit.cells_text import for_head
from emit.tile_text import Tile
from emit.vector_printer import Vectors, vector_store
from lowering.joined import joined_rows
from lowering.loops import Loop, size_name
from lowering.machine import LINE
from mdh_core.expr import straight_line
from mdh_core.ir import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emit.nest_text import NestText

PAST = "0"  # the bits that are 0 in addresses of whole vectors: these are known to be


def joins_rows(nest: NestText, k: int) -> bool:
    """Whether loop ``k`` goes through rows that follow one another, and the next one through a tile's row."""
    loops, inner = nest.nest.loops, nest.nest.loops[nest.scope :]
    if k != nest.scope - 2 or not nest.joined or k < nest.nest.threads[1] or not nest._is_tile_row(k + 1):
        return False
    (buffer,) = nest.joined
    found = joined_rows(nest.program, buffer)
    tiled = {x.dim for x in inner}
    return (
        found == (inner[-1].dim, loops[k].dim)
        and loops[k + 1].dim == inner[-1].dim
        and loops[k].size == 1
        and loops[k].dim not in tiled
        and not nest._is_moved(k)
        and nest._has_vectors(inner)
    )


def write_joined(nest: NestText, k: int) -> None:
    """Loop ``k`` over joined rows where they are whole, and as they are otherwise."""
    out, row, inner = nest.out, nest.nest.loops[k + 1], nest.nest.loops[nest.scope :]
    ((_, joined),) = nest.joined.items()
    others = [x for x in inner if x.dim != row.dim]
    lines, start, end = nest.bounds(row, nest._variable(row), inner, [], aligned=False)
    out.add(*lines)
    size = size_name(row.dim)
    ends = [*([] if start == "0" else [f"{start} == 0"]), *([] if end == size else [f"{end} == {size}"])]
    condition = nest._conjunction(joined, nest._whole_condition(others), *ends)
    if condition == "0":
        with nest._loop(k):
            nest._level(k + 1)
        return
    with out.block(f"if ({condition})"):
        vectors = nest._vectors(inner)
        assert vectors is not None
        _Rows(nest, inner, vectors, k).write()
        out.middle("} else {")
        with nest._loop(k):
            nest._level(k + 1)


class _Rows(Tile):
    """Rows of whole tiles, one line of each at a time."""

    def __init__(self, nest: NestText, inner: tuple[Loop, ...], vectors: Vectors, k: int) -> None:
        super().__init__(nest, inner, True, vectors)
        self.k = k
        (self.store,) = nest.program.out.stores
        self.element = nest.program.buffer(self.store.buffer).type
        self.line = LINE // self.element.size
        self.target = ""  # where a vector goes instead of its place
        self.past = False

    def _points_setup(self) -> None:
        n, names, (rows, row) = self.n, self.context.names, self.n.nest.loops[self.k : self.k + 2]
        before = dict(self.context.at)
        first, whole = names.new("first"), names.new(f"{row.dim}_whole")
        shape = "".join(f"[{count}]" for _, count in self.axes)
        next_row = n._variable(rows)
        lines, start, end = n.bounds(rows, next_row, n.nest.loops[self.k + 1 :], [])
        assert self.vectors is not None
        size, line = size_name(row.dim), self.line
        self.out.add(
            *lines,
            f"long {first}{shape}; /* where the lines of a row begin */",
            f"const long {whole} = (({size} + 1)/{line} - 1)*{line};",
        )
        with self._row(before | {rows.dim: start, row.dim: "0"}) as number:
            place = f"(__UINTPTR_TYPE__)&{self.context.subscript(self.store.buffer, self.store.index)}"
            self.out.add(f"{first}{number} = (long)((-{place} & {LINE - 1})/sizeof({c_type(self.element)}));")
            self._line()
        with self.out.block(for_head(rows, next_row, start, end)):
            here = before | {rows.dim: next_row}
            at = n._variable(row)
            with self.out.block(f"for (long {at} = 0; {at} < {whole}; {at} += {line})"):
                self.context.at = here | {row.dim: at}
                if n.nest.ahead:
                    write_ahead(n, self.inner, self.vectors, (self.store.buffer,))
                with self._row(here) as number:
                    self.context.at[row.dim] = f"{at} + {first}{number}"
                    self._line(past=True)
            with self._row(here) as number:
                self._rest((rows, row), (next_row, end), whole, f"{first}{number}")
        self.context.at = before

    def _rest(self, loops: tuple[Loop, Loop], bounds: tuple[str, str], whole: str, first: str) -> None:
        """What remains of one row: a line at most, then the one that it shares with the next row."""
        (rows, row), (next_row, end) = loops, bounds
        assert self.vectors is not None
        size, line, names = size_name(row.dim), self.line, self.context.names
        at, edge = names.new(f"{row.dim}_at"), names.new("edge")
        self.out.add(f"long {at} = {whole} + {first};")
        self.context.at[row.dim] = at
        with self.out.block(f"if ({at} + {line} <= {size})"):
            self._line(past=True)
            self.out.add(f"{at} += {line};")
        with self.out.block(f"if ({at} == {size})"):
            self.out.add(f"{first} = 0;")
            self.out.middle(f"}} else if ({next_row} + 1 < {end}) {{")
            self.out.add(f"{c_type(self.element)} {edge}[{2 * line}] __attribute__((aligned({LINE})));")
            self.context.at |= {row.dim: f"{size} - {line}"}
            self._line(f"{edge}[")
            self.context.at |= {row.dim: "0", rows.dim: f"{next_row} + 1"}
            self._line(f"{edge}[{line} + ")
            self.context.at |= {row.dim: at, rows.dim: next_row}
            vector = self.vectors.unaligned(self.element)
            with self._along() as v:
                place = self.context.subscript(self.store.buffer, self.store.index)
                joined = f"*(const {vector} *)&{edge}[{line} - ({size} - {at}) + {v}]"
                self.out.add(vector_store(vector, place, joined, PAST))
            self.out.add(f"{first} = {line} - ({size} - {at});")
            self.out.middle("} else {")
            self.context.at |= {row.dim: f"{size} - {line}"}
            self._line()

    @contextmanager
    def _row(self, start: dict[str, str]) -> Iterator[str]:
        """For each row of the tile: subscripts with its numbers."""
        with self._cells(vector_axis=False, start=start):
            yield "".join(f"[{self.counters[loop]}]" for loop, _ in self.axes)

    @contextmanager
    def _along(self) -> Iterator[str]:
        """For each vector of the line at the current indices."""
        assert self.vectors is not None
        dim, v = self.vectors.dim, self.context.names.new("v")
        start = self.context.at[dim]
        self.out.add(f"#pragma GCC unroll {self.line}")
        with self.out.block(f"for (long {v} = 0; {v} < {self.line}; {v} += {self.vectors.lanes})"):
            self.context.at[dim] = v if start == "0" else f"{start} + {v}"
            yield v
        self.context.at[dim] = start

    def _line(self, target: str = "", past: bool = False) -> None:
        """One line at the current indices, stored in its place or where ``target`` with a number leads."""
        with self._along() as v:
            self.target, self.past = target and f"{target}{v}]", past
            self._vector_point()

    def _store_one(self, s: Store, text: str) -> None:
        assert self.vectors is not None
        place = self.target or self.context.subscript(s.buffer, s.index)
        vector = self.vectors.unaligned(self.element)
        self.out.add(vector_store(vector, place, text, PAST if self.past else None))


def may_join(nest: NestText, buffer: str, inner: tuple[Loop, ...]) -> bool:
    """Whether the nest has a form of its tile for the buffer's joined rows."""
    return (
        joined_rows(nest.program, buffer) is not None
        and nest.middle is None
        and nest.agreed is None
        and straight_line(nest.lane_function.body)
        and nest._may_repeat_points()
        and nest._streamed(buffer, inner[-1]) is not None
    )
