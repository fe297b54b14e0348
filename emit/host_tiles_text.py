"""Tiles of a host loop as C (see ``lowering.host_tiles``).

    for (long t_1 = 0; t_1 < steps; t_1 += 16) {        blocks of iterations
      #pragma omp parallel for
      for (long i_1 = 0; i_1 < i_size; i_1 += 64)        parts, each in one thread
        for (long t = t_1; t < t_end; t++) {
          const long i_from = ..., i_to = ...;           shrinks with t, but not at the ends
          programs over [i_from, i_to)
        }
      #pragma omp parallel for
      for (long i_1 = 64; i_1 < i_size; i_1 += 64)       what is between two of them: grows with t
        ...
    }

A part may go through its iterations in strips, each of which is further back the later the iteration is:

        for (long i_2 = i_1; i_2 < i_stop; i_2 += 16)
          for (long t = t_1; t < t_end; t++) {
            const long i_from = i_2 - t > ... ? i_2 - t : ..., i_to = ...;

Where a program reads what no other one of the part reads later, it may fetch that for the next part.
Where nothing travels between positions, there are neither blocks of iterations nor borders.  With a team, the
blocks are inside of a region, and its threads share the parts (``omp for``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from emit.kernel_text import Lines, Names
from emit.nest_text import PARALLEL_WORK
from lowering.ahead import read_again
from lowering.host_tiles import HostTiles, is_shaped
from lowering.loops import size_name
from mdh_core.expr import INT64, Affine, Binary, Expr, Var, map_stmts, rewrite
from mdh_core.ir import Access, Dim, HostLoop, MdhProgram, Param, Size


@dataclass(frozen=True, slots=True)
class Part:
    """A program over positions ``[first, end)`` of a dimension; both are variables of the kernel."""

    program: MdhProgram
    first: str
    end: str
    there: dict[str, Affine]  # where positions of the whole are in the part

    def after(self, accesses: Sequence[Access], width: int) -> tuple[Access, ...]:
        """Accesses of the whole program, so many positions behind those of the part."""
        there = {d: a + width for d, a in self.there.items()}
        return tuple(replace(a, index=tuple(x.substitute(there) for x in a.index)) for a in accesses)


def part_of(program: MdhProgram, d: str, names: Names) -> Part:
    """The program with ``d`` counted from a variable: ``i -> i + first``, its size ``end - first``."""
    first, end = names.new(f"{d}_from"), names.new(f"{d}_to")
    inner = names.new(f"{d}_in")
    there = {d: Affine.of(inner) + Affine.of(first)}

    def expr(e: Expr) -> Expr:
        def moved(n: Expr) -> Expr | None:
            if isinstance(n, Var) and n.name == d:
                return Binary("+", Var(inner, INT64), Var(first, INT64), INT64)
            return None

        return rewrite(e, moved)

    def index(a: Sequence[Affine]) -> tuple[Affine, ...]:
        return tuple(x.substitute(there) for x in a)

    hom, scalar = program.hom, program.hom.scalar
    size = Size(Affine.of(end) - Affine.of(first))
    part = replace(
        program,
        params=(*program.params, Param(first, INT64, first), Param(end, INT64, end)),
        inp=replace(
            program.inp, accesses=tuple(replace(a, index=index(a.index)) for a in program.inp.accesses)
        ),
        hom=replace(
            hom,
            dims=tuple(Dim(inner, size) if x.name == d else x for x in hom.dims),
            scalar=replace(
                scalar, results=tuple(map(expr, scalar.results)), body=map_stmts(scalar.body, expr)
            ),
            domain=tuple(c.substitute(there) for c in hom.domain),
        ),
        out=replace(
            program.out,
            initial=tuple(None if e is None else expr(e) for e in program.out.initial),
            stores=tuple(
                replace(s, index=index(s.index), value=expr(s.value)) for s in program.out.stores
            ),
        ),
    )
    return Part(part, first, end, there)


def by_one_thread(rows: Sequence[str]) -> list[str]:
    """Code that begins no regions, being inside of one."""
    return [row for row in rows if not row.lstrip().startswith("#pragma omp parallel")]


Coming = tuple[Access, ...]  # what the next part reads
Write = Callable[[MdhProgram, int, Coming], None]  # a program and its number in the loop


class HostTilesText:
    """Writes the tiles of one host loop, whose number of iterations is ``end``."""

    def __init__(
        self, loop: HostLoop, tiles: HostTiles, names: Names, out: Lines, team: bool = False
    ) -> None:
        self.loop, self.tiles, self.names, self.out, self.team = loop, tiles, names, out, team
        self.programs = [p for p in loop.body if isinstance(p, MdhProgram)]
        self.dims = [
            None if k is None else p.hom.dims[k].name
            for p, k in zip(self.programs, tiles.skew.dims, strict=True)
        ]
        self.again = read_again(self.programs, self.dims) if tiles.ahead else [()]*len(self.programs)
        dims = dict.fromkeys(d for d in self.dims if d is not None)
        self.position = names.new(f"{next(iter(dims))}_1")
        self.strip = ""
        self.longest = [size_name(d) for d in dims]

    def write(self, end: str, write: Write, region: bool = False) -> None:
        """``write`` writes a program for one thread; ``region``: all blocks are inside of one."""
        t, steps = self.loop.iterator, self.tiles.steps
        n = self.names.new(f"{t}_positions")
        self.out.add(f"long {n} = {self.longest[0]};")
        self.out.add(*(f"if ({other} > {n}) {n} = {other};" for other in self.longest[1:]))
        if None in self.dims:  # what is at one position runs where the others are empty, too
            self.out.add(f"if ({n} < 1) {n} = 1;")
        self.n = n
        if steps is None:
            self._parts("0", end, "0", write, borders=False)
            return
        if region:
            self.team = True
            self.out.add(f"#pragma omp parallel if ({n} > {self.tiles.width})")
        first, last = self.names.new(f"{t}_1"), self.names.new(f"{t}_end")
        with self.out.block(f"for (long {first} = 0; {first} < {end}; {first} += {steps})"):
            self.out.add(f"const long {last} = {first} + {steps} < {end} ? {first} + {steps} : {end};")
            self._parts(first, last, first, write, borders=False)
            self._parts(first, last, first, write, borders=True)

    def _parts(self, first: str, last: str, zero: str, write: Write, borders: bool) -> None:
        t, width, v = self.loop.iterator, self.tiles.width, self.position
        start = str(width) if borders else "0"
        schedule = "static, 1" if is_shaped(self.loop, self.tiles.skew) else "static"
        if self.team:
            self.out.add(f"#pragma omp for schedule({schedule})")
        else:
            iterations = last if self.tiles.steps is None else ""
            self.out.add(f"#pragma omp parallel for schedule({schedule}) if ({self._enough(iterations)})")
        with ExitStack() as stack:
            stack.enter_context(self.out.block(f"for (long {v} = {start}; {v} < {self.n}; {v} += {width})"))
            if self.tiles.strip is not None:
                stack.enter_context(self.out.block(self._strips(f"{last} - 1 - {first}", borders)))
            if self.loop.size.constant != 1 or any(q.name == t for p in self.programs for q in p.params):
                stack.enter_context(self.out.block(f"for (long {t} = {first}; {t} < {last}; {t}++)"))
            at = len(self.out.rows)
            for k, program in enumerate(self.programs):
                self._program(k, program, zero, write, borders)
            # the parts themselves are what threads share
            self.out.rows[at:] = by_one_thread(self.out.rows[at:])

    def _strips(self, iterations: str, borders: bool) -> str:
        """The head of the loop over a part's strips, or over a border's; ``iterations`` behind the first."""
        skew, v, stop = self.tiles.skew, self.position, self.names.new(f"{self.position}_stop")
        if borders:
            both = _sum(
                max(skew.lower) + max(skew.upper), _times(sum(skew.slopes), f"({iterations})")
            )
            self.out.add(f"const long {stop} = {v}{_plus(both)};")
        else:
            ahead = _sum(max(skew.upper), _times(skew.slopes[1], f"({iterations})"))
            next_one = f"{v} + {self.tiles.width}"
            self.out.add(f"const long {stop} = {next_one} < {self.n} ? {next_one} : {self.n}{_plus(ahead)};")
        self.strip = self.names.new(f"{self.position}_strip")
        return f"for (long {self.strip} = {v}; {self.strip} < {stop}; {self.strip} += {self.tiles.strip})"

    def _enough(self, iterations: str) -> str:
        """When threads share the parts: there are several, and much to do in all iterations, if told."""
        several = f"{self.n} > {self.tiles.width}"
        if not iterations:
            return several
        own = [] if self.loop.size.constant == 1 else [f"(double){_atom(iterations)}"]
        works = (
            "*".join([*own, *(f"(double){size_name(d.name)}" for d in p.hom.dims)]) for p in self.programs
        )
        much = " || ".join(f"{work} > {PARALLEL_WORK}" for work in dict.fromkeys(works))
        return f"{several} && ({much})" if " || " in much else f"{several} && {much}"

    def _program(self, k: int, program: MdhProgram, zero: str, write: Write, borders: bool) -> None:
        skew, v, width = self.tiles.skew, self.position, self.tiles.width
        d = self.dims[k]
        left = self._offset(skew.lower[k], skew.slopes[0], zero)
        right = self._offset(skew.upper[k], skew.slopes[1], zero)
        if borders:
            first, end = f"{v}{_minus(right)}", f"{v}{_plus(left)}"
        else:
            first = f"{v} == 0 ? 0 : {v}{_plus(left)}" if left else v
            end = f"{v} + {width}{_minus(right)}"
        if d is None:  # at position 0
            if borders:
                return  # the first part never shrinks at its start
            here = f"{v} == 0"
            if self.tiles.strip is not None:
                mine = right or "0"
                here += f" && {self.strip} <= {mine} && {mine} < {self.strip} + {self.tiles.strip}"
            with self.out.block(f"if ({here})"):
                write(program, k, ())
            return
        part, n = part_of(program, d, self.names), size_name(d)
        size = size_name(next(x.name for x in part.program.hom.dims if part.end in x.size.span.names))
        inside = f"{end} < {n}" if borders else f"{v} + {width} < {self.n} && {end} < {n}"
        if self.tiles.strip is None:
            self.out.add(
                f"const long {part.first} = {first};",
                f"const long {part.end} = {inside} ? {end} : {n};",
                f"const long {size} = {part.end} - {part.first};",
            )
            write(part.program, k, part.after(self.again[k], width))
            return
        begin, stop = self.names.new(f"{d}_begin"), self.names.new(f"{d}_stop")
        mine = f"{self.strip}{_minus(right)}"
        behind = f"{mine} + {self.tiles.strip}"
        self.out.add(
            f"const long {begin} = {first}, {stop} = {inside} ? {end} : {n};",
            f"const long {part.first} = {mine} > {begin} ? {mine} : {begin};",
            f"const long {part.end} = {behind} < {stop} ? {behind} : {stop};",
        )
        with self.out.block(f"if ({part.first} < {part.end})"):
            self.out.add(f"const long {size} = {part.end} - {part.first};")
            write(part.program, k, ())

    def _offset(self, start: int, slope: int, zero: str) -> str:
        """``start + slope*(t - zero)``; empty where it is 0."""
        t = self.loop.iterator
        return _sum(start, _times(slope, t if zero == "0" else f"({t} - {zero})"))


def _atom(text: str) -> str:
    return f"({text})" if " " in text else text


def _times(slope: int, past: str) -> str:
    return "" if slope == 0 else past if slope == 1 else f"{slope}*{past}"


def _sum(start: int, grown: str) -> str:
    return " + ".join(x for x in (str(start) if start else "", grown) if x)


def _plus(offset: str) -> str:
    return f" + {offset}" if offset else ""


def _minus(offset: str) -> str:
    return f" - ({offset})" if " " in offset else f" - {offset}" if offset else ""
