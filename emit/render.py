"""From steps and configurations to the text of one kernel; the only module that imports jinja2.

A kernel is a ``static int`` function over the nest's scalars and arrays.  It returns 1 when it did all
the work of the nest and 0, with nothing written, when it declines: buffers overlap, an ``assume``
does not hold, memory is short.  The caller then runs the original.  So whatever may decline stands
before the first step, and holds for all iterations of host loops.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import jinja2

from emit.c_text import affine_text, c_type
from emit.histogram_text import HistogramText
from emit.host_text import (
    Leaf,
    Loops,
    SequentialText,
    extreme,
    known_index,
    largest_size,
    leaves,
    raw_strides,
    tightest,
)
from emit.host_tiles_text import HostTilesText, by_one_thread
from emit.kernel_text import Allocation, Context, Lines, Names
from emit.linear_text import LinearText
from emit.nest_text import NestText
from emit.prefix_text import SIZES, shift_macros
from emit.scan_text import ScanText
from lowering.host_tiles import HostTiles
from lowering.loops import size_name
from lowering.lower import HistogramNest, Lowered, Nest, Stage, is_linear_recurrence, lower, may_join_a_team
from lowering.machine import Machine
from lowering.parameters import Configuration
from mdh_core.combine import CC
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Declare,
    Expr,
    If,
    Load,
    ScalarType,
    Stmt,
    Var,
    While,
    base_of,
    map_stmts,
    rewrite,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Buffer, Dim, HostLoop, MdhProgram, Param, Sequential, Size, Step, programs_of
from mdh_core.polytope import rows_of

MAX_TEMPORARY_BYTES = 4 << 30  # more than this in one temporary: decline


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """What to write: the steps of a nest, and one configuration per program in the order of the text.

    name          C identifier of the function
    nest          name of the nest, for the header
    lines         "gemm.c:12-18", for the header
    noalias       groups of buffers that the user promises not to overlap
    assume        C conditions over the nest's scalars, tested at run time
    notes         further header lines (configuration, expression)
    temporaries   buffers of the kernel alone; their extents are known before the steps run
    params        what sizes of host loops may mention besides the parameters of the programs
    taken         names that the kernel's own variables must not have (macros of the file)
    host_tiles    tiles of the host loops, in the order of the text; None for those that have none
    regions       of the host loops in that order: should an outermost one be inside of one parallel region?
    """

    name: str
    nest: str
    steps: tuple[Step, ...]
    configurations: tuple[Configuration, ...]
    machine: Machine
    lines: str = ""
    noalias: tuple[tuple[str, ...], ...] = ()
    assume: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    temporaries: tuple[Buffer, ...] = ()
    params: tuple[Param, ...] = ()
    taken: frozenset[str] = frozenset()
    host_tiles: tuple[HostTiles | None, ...] = ()
    regions: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """name, text placed before the enclosing function, and the call at the nest (nonzero: done).

    For the certificate: the stages of every program, and the host loops that have tiles.
    """

    name: str
    text: str
    call: str
    lowered: tuple[Lowered, ...] = field(default=(), compare=False, repr=False)
    tiled: tuple[tuple[HostLoop, HostTiles], ...] = field(default=(), compare=False, repr=False)


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("emit", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,
    )


def emit_openmp(request: KernelRequest) -> Kernel:
    """The OpenMP kernel of a nest."""
    steps = _distinct_sizes(request.steps, _fixed_names(request))
    text = _Body(request, steps)
    text.write()
    placed = list(leaves(steps))
    params, buffers = _interface(request, placed)
    written = _written(placed)
    guards = _guards(request, placed, buffers, written, text.names)
    own = [b for b in request.temporaries if b.rank]
    memory = [_allocation(a) for a in (*map(_temporary, own), *text.allocations)]
    used = _identifiers([*text.body.rows, *guards])
    memory = [a for a in memory if a["name"] in used]
    used |= _identifiers(a["value"] for a in memory)
    scalars = [b for b in request.temporaries if not b.rank and b.name in used]
    maxima = [f"const long {name} = {value};" for value, name in text.maxima.items() if name in used]
    used |= _identifiers(maxima)
    sizes = [line for name, line in _size_lines(placed).items() if name in used] + maxima
    used |= _identifiers(sizes)
    params = [q for q in params if q.name in used]
    buffers = [b for b in buffers if b.name in used]
    rendered = (
        _environment()
        .get_template("openmp.c.j2")
        .render(
            name=request.name,
            title=f"{request.nest}, generated by mdh-lift"
            + (f" from {request.lines}" if request.lines else ""),
            notes=[_in_comment(line) for line in (*request.notes, *_assumptions(request, guards, memory))],
            parameters=[*map(_scalar_parameter, params), *(_pointer(b, written) for b in buffers)]
            or ["void"],
            sizes=sizes,
            guards=guards,
            allocations=memory,
            scalars=[{"name": b.name, "type": _element(b)} for b in scalars],
            body=text.body.rows,
            keeps=_uses(text, "MDH_KEEP("),
            macros=[x for n in SIZES if _uses(text, f"MDH_LAST_{n}(") for x in shift_macros(n)],
            stores=_uses(text, "MDH_STORE("),
            threads=_uses(text, "MDH_THREAD"),
            team=_uses(text, "MDH_TEAM"),
        )
    )
    call = f"{request.name}({', '.join([*map(_argument, params), *(_address(b, written) for b in buffers)])})"
    return Kernel(request.name, rendered, call, tuple(text.lowered), tuple(text.tiled))


def _uses(text: _Body, macro: str) -> bool:
    return any(macro in row for row in text.body.rows)


class _Body:
    """The statements of a kernel behind its guards and allocations."""

    def __init__(self, request: KernelRequest, steps: tuple[Step, ...]) -> None:
        self.machine = request.machine
        self.steps = steps
        self.renamed = sorted(_WRITTEN_OUT & request.taken)
        self.configurations = iter(request.configurations)
        self.host_tiles = iter(request.host_tiles)
        self.regions = iter(request.regions)
        self.names = Names(_taken_names(request, steps))
        self.body = Lines()
        self.allocations: list[Allocation] = []
        self.maxima: dict[str, str] = {}  # value -> variable: sizes that hold in all iterations
        self.lowered: list[Lowered] = []
        self.tiled: list[tuple[HostLoop, HostTiles]] = []
        self.enough: list[str] = []  # when there is work for a team in some iteration: any of these

    def write(self) -> None:
        self._steps(self.steps, ())
        assert next(self.configurations, None) is None, "one configuration per program"
        for word in self.renamed:
            name = self.names.new(word)
            self.body.rows = [re.sub(rf"(?<![.>\w]){word}\b", name, row) for row in self.body.rows]

    def _steps(self, steps: tuple[Step, ...], loops: Loops) -> None:
        for s in steps:
            self._step(s, loops, team=False)

    def _step(self, s: Step, loops: Loops, team: bool) -> bool:
        """One step; whether threads of the team share loops in it."""
        match s:
            case MdhProgram():
                return self._write_program(s, next(self.configurations), loops, team)
            case HostLoop():
                return self._host_loop(s, loops, team)
            case Sequential():
                SequentialText(_with_iterators(s, loops), self.names, self.body).write()
                return False

    def _steps_of_team(self, steps: tuple[Step, ...], loops: Loops) -> bool:
        """Steps that all threads go through: what is not shared is done by one of them.

        False, and the steps as they are, where none is shared.
        """
        pieces = []
        for s in steps:
            body, self.body = self.body, Lines(self.body.indent)
            pieces.append((self._step(s, loops, team=True), self.body.rows))
            self.body = body
        some = any(shared for shared, _ in pieces)
        for shared, group in itertools.groupby(pieces, key=lambda piece: piece[0]):
            rows = [row for _, piece in group for row in piece]
            with self.body.alone(some and not shared and bool(rows)):
                self.body.place(rows, int(some and not shared))
        return some

    def _host_loop(self, loop: HostLoop, loops: Loops, team: bool) -> bool:
        t, end = loop.iterator, _size_text(loop.size)
        if loop.size.step != 1:
            name = self.names.new(size_name(t))
            self.body.add(f"const long {name} = {end};")
            end = name
        tiles, begins = next(self.host_tiles, None), next(self.regions, False) and not loops
        if tiles is not None and self._tiled(loop, tiles, loops, end, team, begins):
            return team
        at = len(self.body.rows)
        if begins := begins and self._may_be_one_region(loop):
            self.enough.clear()
        with self.body.block(f"for (long {t} = 0; {t} < {end}; {t}++)"):
            inside = len(self.body.rows)
            scoped = (*loops, loop)
            if team or begins:
                shared = self._steps_of_team(loop.body, scoped)
            else:
                shared = False
                self._steps(loop.body, scoped)
            used = _identifiers(self.body.rows[inside:])
            lines = _size_lines(leaves(loop.body, scoped), len(loops) + 1)
            pad = "  " * self.body.indent
            self.body.rows[inside:inside] = [pad + line for name, line in lines.items() if name in used]
        if begins and shared:
            self.body.rows.insert(at, f"#pragma omp parallel{_if_any(self.enough)}")
        return shared

    def _may_be_one_region(self, loop: HostLoop) -> bool:
        """Whether no program of the loop needs a region of its own."""
        self.configurations, chosen = itertools.tee(self.configurations)
        return all(
            may_join_a_team(stage)
            for p, c in zip(programs_of((loop,)), chosen, strict=False)
            for stage in lower(p, c, self.machine).stages
        )

    def _tiled(
        self, loop: HostLoop, tiles: HostTiles, loops: Loops, end: str, team: bool, begins: bool
    ) -> bool:
        """The tiles of a loop; False, and nothing written, where a program needs memory of its own."""
        chosen, self.configurations = itertools.tee(self.configurations)
        own = [c for _, c in zip(loop.body, chosen, strict=False)]
        programs = [p for p in loop.body if isinstance(p, MdhProgram)]
        body, self.body = self.body, Lines()
        self.body.indent = body.indent
        before = len(self.lowered), len(self.allocations)
        scoped = (*loops, loop)

        def write(program: MdhProgram, k: int) -> None:
            self._write_program(program, own[k], scoped, team=False)

        text = HostTilesText(loop, tiles, self.names, self.body, team)
        text.write(end, write, begins)
        rows, self.body = self.body.rows, body
        fits = len(self.allocations) == before[1]
        del self.lowered[before[0] :], self.allocations[before[1] :]
        if not fits:
            return False
        self.body.rows += rows
        self.tiled.append((loop, tiles))
        if team:
            self.enough += (_at_most(f"{n} > {tiles.width}", programs, loops) for n in text.longest)
        for p in programs:  # what the certificate is about: the tiles are parts of these
            k = len(self.lowered)
            self.lowered.append(
                lower(p, next(self.configurations), self.machine, tag=str(k) if k else "")
            )
        return True

    def _write_program(
        self, program: MdhProgram, configuration: Configuration, loops: Loops, team: bool
    ) -> bool:
        """A program; whether the team shares its loops.  What it would not is written for one thread."""
        k = len(self.lowered)
        low = lower(program, configuration, self.machine, tag=str(k) if k else "")
        self.lowered.append(low)
        at, taken = len(self.body.rows), set(self.names.taken)
        allocations, enough = self._stages(program, low, team)
        if team and not enough:
            self.names.taken = taken
            del self.body.rows[at:]
            allocations, _ = self._stages(program, low, team=False)
            self.body.rows[at:] = by_one_thread(self.body.rows[at:])
        self.body.rows[at:] = _without_dead_constants(self.body.rows[at:])
        self.allocations += [
            replace(a, count=_at_most(a.count, [program], loops, self._maximum)) for a in allocations
        ]
        self.enough += (_at_most(e, [program], loops) for e in enough)
        return team and bool(enough)

    def _stages(self, program: MdhProgram, low: Lowered, team: bool) -> tuple[list[Allocation], list[str]]:
        """The stages of a program: memory that they need, when those that a team shares have work for it."""
        allocations = [_temporary(t) for t in low.temporaries]
        enough: list[str] = []
        with _unless_nothing_is_scanned(program, self.names, self.body, team):
            for stage in low.stages:
                at, taken = len(self.body.rows), set(self.names.taken)
                context = self._stage(stage, team)
                if team and not context.enough:
                    self.names.taken = taken
                    del self.body.rows[at:]
                    with self.body.alone():
                        inside = len(self.body.rows)
                        context = self._stage(stage, team=False)
                        self.body.rows[inside:] = by_one_thread(self.body.rows[inside:])
                allocations += context.allocations
                enough += context.enough if team else []
        return allocations, enough

    def _stage(self, stage: Stage, team: bool) -> Context:
        context = Context(stage.program, self.names, cache=self.machine.last, team=team)
        if isinstance(stage, Nest):
            NestText(stage, context, self.body).write()
        elif isinstance(stage, HistogramNest):
            HistogramText(stage, context, self.body).write()
        else:
            scan_text = LinearText if is_linear_recurrence(stage.program) else ScanText
            scan_text(stage, context, self.body).write()
        return context

    def _maximum(self, name: str, value: str) -> str:
        """The variable that holds the greatest value of a size."""
        if value not in self.maxima:
            self.maxima[value] = self.names.new(f"{name}_max")
        return self.maxima[value]


def _at_most(
    text: str,
    programs: Iterable[MdhProgram],
    loops: Loops,
    maximum: Callable[[str, str], str] = lambda _, value: f"({value})",
) -> str:
    """A text over sizes with the greatest values of those that change in host loops.

    maximum   what stands for one, given the name of the size and the value; in directives, the value:
              compilers that leave these out would say that a variable is not used
    """
    for d in (d for p in programs for d in p.hom.dims):
        name = size_name(d.name)
        if _depth(d.size, loops) and name in _identifiers([text]):
            value = maximum(name, _size_text(largest_size(d.size, loops)))
            text = re.sub(rf"\b{name}\b", value, text)
    return text


def _if_any(conditions: Iterable[str]) -> str:
    """The clause of a region that has several threads where any of the conditions holds; empty: always."""
    found = list(dict.fromkeys(conditions))
    return "" if "" in found else f" if ({' || '.join(found)})"


def _with_iterators(s: Sequential, loops: Loops) -> Sequential:
    known = {p.name for p in s.params}
    extra = (Param(x.iterator, INT64) for x in loops if x.iterator not in known)
    return replace(s, params=(*s.params, *extra))


def _depth(size: Size, loops: Loops) -> int:
    """How many of the host loops must have begun before a size is known."""
    return max((k for k, x in enumerate(loops, 1) if x.iterator in size.span.names), default=0)


@contextmanager
def _unless_nothing_is_scanned(
    program: MdhProgram, names: Names, body: Lines, team: bool
) -> Iterator[None]:
    """A scan beside a reduction or another scan's final value, these being empty, is its initial value."""
    combined = [d for d, op in zip(program.hom.dims, program.hom.combine, strict=True) if op.kind != "cc"]
    stores = program.out.stores
    used = {n for s in stores for n in variables(s.value) | {n for a in s.index for n in a.names}}
    final = {d.name for d in program.hom.dims_of("ps") if all(d.name in s.at_last for s in stores)} - used
    gone = {d.name for d in program.hom.dims_of("pw")} | final
    if not program.hom.dims_of("ps") or len(combined) == 1 or not gone:
        yield
        return
    empty = " || ".join(f"{size_name(d.name)} <= 0" for d in combined if d.name in gone)
    if all(e is not None for e in program.out.initial):
        left = [d for d in program.hom.dims if d.name not in final]
        kinds = tuple(CC if program.op(d.name).kind == "ps" else program.op(d.name) for d in left)
        kept = tuple(replace(s, at_last=tuple(n for n in s.at_last if n not in final)) for s in stores)
        cells = replace(
            program,
            hom=replace(program.hom, dims=tuple(left), combine=kinds),
            out=replace(program.out, stores=kept),
        )
        context = Context(cells, names, team=team)
        text = NestText(Nest(cells, (), (0, 0), 0, 0, (), "direct"), context, body)
        if text.stored_if_empty:
            with body.block(f"if ({empty})"):
                text.every_cell(initial_only=True)
    with body.block(f"if (!({empty}))"):
        yield


# --------------------------------------------------------------------------- interface


def _interface(request: KernelRequest, placed: list[tuple[Leaf, Loops]]) -> tuple[list[Param], list[Buffer]]:
    """Parameters and buffers that the function may need; those that it does not mention are left out."""
    params: dict[str, Param] = {}
    own = {b.name for b in request.temporaries}
    for leaf, loops in placed:
        inside = {x.iterator for x in loops}
        params |= {p.name: p for p in leaf.params if p.name not in inside}
    iterators = {x.iterator for _, loops in placed for x in loops}
    sizes = [x.size.span for _, loops in placed for x in loops]
    sizes += [e for b in request.temporaries for e in b.extents if e is not None]
    extra = {n: Param(n, INT64, n) for n in sorted({n for a in sizes for n in a.names} - iterators)}
    params |= {n: p for n, p in (extra | {p.name: p for p in request.params}).items() if n not in params}
    buffers = {b.name: b for leaf, _ in placed for b in leaf.buffers if b.name not in own}
    return list(params.values()), list(buffers.values())


def _written(placed: list[tuple[Leaf, Loops]]) -> set[str]:
    found: set[str] = set()
    for leaf, _ in placed:
        if isinstance(leaf, MdhProgram):
            found |= {s.buffer for s in leaf.out.stores}
        else:
            found |= {x.buffer for x in map(base_of, _targets(leaf.body)) if isinstance(x, Load)}
    return found


def _targets(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    for s in body:
        match s:
            case Assign(target=target):
                yield target
            case If(then=then, other=other):
                yield from _targets((*then, *other))
            case While(body=inner):
                yield from _targets(inner)
            case _:
                pass


def _is_integer(p: Param) -> bool:
    return isinstance(p.type, ScalarType) and p.type.is_integer


def _scalar_parameter(p: Param) -> str:
    return f"long {p.name}" if _is_integer(p) else f"{p.c_type or c_type(p.type)} {p.name}"


def _element(b: Buffer) -> str:
    return b.c_type or c_type(b.type)


def _qualified(b: Buffer, written: set[str]) -> str:
    element = _element(b)
    return element if b.name in written or element.startswith("const ") else f"const {element}"


def _pointer(b: Buffer, written: set[str]) -> str:
    return f"{_qualified(b, written)} *__restrict {b.name}"


def _argument(p: Param) -> str:
    return p.value or p.name


def _address(b: Buffer, written: set[str]) -> str:
    return f"({_qualified(b, written)} *)({b.base or b.name})"


def _fixed_names(request: KernelRequest) -> set[str]:
    """Names that stand in the kernel as they are, or mean something else in the file."""
    names = {request.name} | request.taken | _KEYWORDS | {b.name for b in request.temporaries}
    names |= {p.name for p in request.params}
    for leaf, loops in leaves(request.steps):
        names |= {x.iterator for x in loops}
        names |= {q.name for q in leaf.params} | {b.name for b in leaf.buffers}
        names |= {f.name for f in leaf.functions}
        names |= _declared(leaf.body if isinstance(leaf, Sequential) else leaf.hom.scalar.body)
        for b in leaf.buffers:
            names |= set(_element(b).split())
    return names


def _taken_names(request: KernelRequest, steps: tuple[Step, ...]) -> set[str]:
    """Names that the kernel's own variables avoid; loops take those of the dimensions themselves."""
    names = _fixed_names(request)
    for leaf, _ in leaves(steps):
        if isinstance(leaf, MdhProgram):
            names |= {size_name(d.name) for d in leaf.hom.dims}
    return names


def _declared(body: tuple[Stmt, ...]) -> set[str]:
    found: set[str] = set()
    for s in body:
        match s:
            case Declare(name=name):
                found.add(name)
            case If(then=then, other=other):
                found |= _declared(then) | _declared(other)
            case While(body=inner):
                found |= _declared(inner)
            case _:
                pass
    return found


_KEYWORDS = frozenset(
    {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
        "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
        "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
        "volatile", "while", "start", "end",
    }
)  # fmt: skip

_WRITTEN_OUT = frozenset({"start", "end"})  # variables of kernels that always have these names

# --------------------------------------------------------------------------- sizes


def _distinct_sizes(steps: tuple[Step, ...], fixed: set[str]) -> tuple[Step, ...]:
    """Steps whose dimensions of one name have one size and no name of something else.

    Others are renamed (``i`` -> ``i_2``).
    """
    known: dict[str, Size] = {}

    def distinct(p: MdhProgram) -> MdhProgram:
        renaming: dict[str, str] = {}
        own = {d.name for d in p.hom.dims}
        for d in p.hom.dims:
            name, k = d.name, 2
            while (
                {name, size_name(name)} & fixed
                or (name != d.name and name in own)
                or name in renaming.values()
                or known.setdefault(name, d.size) != d.size
            ):
                name, k = f"{d.name}_{k}", k + 1
            if name != d.name:
                renaming[d.name] = name
        return rename_dims(p, renaming) if renaming else p

    def visit(inside: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(
            distinct(s)
            if isinstance(s, MdhProgram)
            else replace(s, body=visit(s.body))
            if isinstance(s, HostLoop)
            else s
            for s in inside
        )

    return visit(steps)


def rename_dims(program: MdhProgram, renaming: dict[str, str]) -> MdhProgram:
    """The program with dimensions renamed everywhere."""
    affine = {old: Affine.of(new) for old, new in renaming.items()}

    def expr(e: Expr) -> Expr:
        return rewrite(
            e,
            lambda n: (
                replace(n, name=renaming[n.name]) if isinstance(n, Var) and n.name in renaming else None
            ),
        )

    def index(a: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(x.substitute(affine) for x in a)

    scalar = program.hom.scalar
    return replace(
        program,
        inp=replace(
            program.inp,
            accesses=tuple(replace(a, index=index(a.index)) for a in program.inp.accesses),
        ),
        hom=replace(
            program.hom,
            dims=tuple(Dim(renaming.get(d.name, d.name), d.size) for d in program.hom.dims),
            scalar=replace(
                scalar, results=tuple(map(expr, scalar.results)), body=map_stmts(scalar.body, expr)
            ),
            domain=tuple(c.renamed(renaming) for c in program.hom.domain),
        ),
        out=replace(
            program.out,
            initial=tuple(None if e is None else expr(e) for e in program.out.initial),
            stores=tuple(
                replace(
                    s,
                    index=index(s.index),
                    value=expr(s.value),
                    at_last=tuple(renaming.get(d, d) for d in s.at_last),
                )
                for s in program.out.stores
            ),
        ),
    )


def _size_lines(placed: Iterable[tuple[Leaf, Loops]], depth: int = 0) -> dict[str, str]:
    """Variables of the sizes that are known inside ``depth`` host loops, with the lines that declare them."""
    return {
        size_name(d.name): f"const long {size_name(d.name)} = {_size_text(d.size)};"
        for leaf, loops in placed
        if isinstance(leaf, MdhProgram)
        for d in leaf.hom.dims
        if _depth(d.size, loops) == depth
    }


_CONSTANT = re.compile(r"\s*[\w ]+? (\w+) = [^;]*;")


def _without_dead_constants(rows: list[str]) -> list[str]:
    """The lines without variables that nothing else mentions; names are unique within a kernel."""
    while True:
        counts = Counter(word for row in rows for word in re.findall(r"[A-Za-z_]\w*", row))
        kept = [row for row in rows if not ((m := _CONSTANT.fullmatch(row)) and counts[m[1]] == 1)]
        if len(kept) == len(rows):
            return rows
        rows = kept


def _identifiers(lines: Iterable[str]) -> set[str]:
    """What is mentioned; what is not needs no parameter or variable."""
    return {word for line in lines for word in re.findall(r"[A-Za-z_]\w*", line)}


def _size_text(size: Size) -> str:
    known = size.constant
    if known is not None:
        return str(known)
    span = affine_text(size.span, {})
    if size.step == 1:
        return span
    atom = affine_text(size.span, {}, atom=True)
    return f"{atom} > 0 ? ({span} + {size.step - 1})/{size.step} : 0"


def _temporary(b: Buffer) -> Allocation:
    count = "*".join(affine_text(e, {}, atom=True) for e in b.extents if e is not None) or "1"
    return Allocation(b.name, c_type(b.type), count)


def _allocation(a: Allocation) -> dict[str, str]:
    """64-byte aligned memory, or a null pointer where it would be unreasonably much."""
    if a.count.isdigit():
        return {"name": a.name, "type": a.type, "value": f"__builtin_malloc({a.count}*sizeof({a.type}))"}
    plain = "(" not in a.count
    factors = "*".join(f"(double){f}" for f in a.count.split("*")) if plain else f"(double)({a.count})"
    value = (
        f"{factors}*sizeof({a.type}) > {MAX_TEMPORARY_BYTES}.0 ? ({a.type} *)0 : "
        f"({a.type} *)__builtin_malloc(({a.count} > 0 ? {a.count} : 1)*sizeof({a.type}))"
    )
    return {"name": a.name, "type": a.type, "value": value}


# --------------------------------------------------------------------------- guards


def _guards(
    request: KernelRequest,
    placed: list[tuple[Leaf, Loops]],
    buffers: list[Buffer],
    written: set[str],
    names: Names,
) -> list[str]:
    lines = [f"if (!({condition})) return 0;" for condition in request.assume]
    for leaf, loops in placed:
        for assumed in leaf.assumptions if isinstance(leaf, MdhProgram) else ():
            lines.append(f"if ({affine_text(extreme(assumed, {}, loops, False), {})} < 0) return 0;")
    lines = list(dict.fromkeys(lines))
    pairs = [
        (a, b)
        for k, a in enumerate(buffers)
        for b in buffers[k + 1 :]
        if (a.name in written or b.name in written) and _may_overlap(a, b, request.noalias)
    ]
    reach = {b.name: _reach(b, placed) for b in dict.fromkeys(x for pair in pairs for x in pair)}
    ranges: dict[str, tuple[str, str]] = {}
    for b in dict.fromkeys(x for pair in pairs for x in pair):
        ends = reach[b.name]
        if ends is not None:
            ranges[b.name] = names.new(f"{b.name}_first_byte"), names.new(f"{b.name}_last_byte")
            lines += _range_lines(b, *ends, ranges[b.name], names)
    for a, b in pairs:
        unknown = [x.name for x in (a, b) if x.name not in ranges]
        if unknown:
            reason = f"{a.name} and {b.name} may overlap: indices of {unknown[0]} are data"
            lines.append(f"return 0; /* {reason} */")
            continue
        (a_first, a_last), (b_first, b_last) = ranges[a.name], ranges[b.name]
        meet = f"{a_first} <= {b_last} && {b_first} <= {a_last}"
        lines.append(f"if ({meet}) return 0; /* {a.name} and {b.name} overlap */")
    return lines


def _in_comment(line: str) -> str:
    return line.replace("*/", "* /").replace("/*", "/ *")


def _assumptions(request: KernelRequest, guards: list[str], memory: list[dict[str, str]]) -> list[str]:
    """Header lines: when the kernel declines and the original runs, and what is taken on trust."""
    declines = [m[1] for g in guards if (m := re.search(r"/\* (.*) \*/", g))]
    declines += [f"not ({condition})" for condition in request.assume]
    if memory:
        declines.append("memory is short")
    lines = [f"the original runs where: {'; '.join(declines)}"] if declines else []
    lines += [f"promised: {' and '.join(group)} do not overlap" for group in request.noalias]
    return lines


def _may_overlap(a: Buffer, b: Buffer, noalias: tuple[tuple[str, ...], ...]) -> bool:
    if a.restrict or b.restrict or (a.distinct and b.distinct):
        return False
    return not any(a.name in group and b.name in group for group in noalias)


Ends = tuple[list[str], list[str]]  # C texts whose least (greatest) value is the first (last) element


def _reach(b: Buffer, placed: list[tuple[Leaf, Loops]]) -> Ends | None:
    """The first and last element of a buffer that the nest touches; None where only data tells."""
    lows: dict[str, None] = {}
    highs: dict[str, None] = {}
    for leaf, loops in placed:
        if all(x.name != b.name for x in leaf.buffers):
            continue
        strides = raw_strides(b)
        dims = {d.name: d.size for d in leaf.hom.dims} if isinstance(leaf, MdhProgram) else {}
        for index, rows in dict.fromkeys(_indices(leaf, loops, b.name)):
            for positive, texts in ((False, lows), (True, highs)):
                terms = []
                for a, extent, stride in zip(index, b.extents, strides, strict=True):
                    if a is None and extent is None:
                        return None
                    if a is not None:
                        end = tightest(a, dims, loops, rows, positive)
                    else:
                        end = extent - 1 if positive and extent is not None else Affine()
                    text = affine_text(end, {}, atom=True)
                    terms.append(text if stride == 1 else f"{text}*{stride}")
                texts[" + ".join(t for t in terms if t != "0") or "0"] = None
    return list(lows), list(highs)


def _range_lines(
    b: Buffer, lows: list[str], highs: list[str], addresses: tuple[str, str], names: Names
) -> list[str]:
    """The addresses between which the nest touches a buffer."""
    first, last = names.new(b.name + "_first"), names.new(b.name + "_last")
    lines = []
    for name, texts, sign in ((first, lows, "<"), (last, highs, ">")):
        if len(texts) == 1:
            lines.append(f"const long {name} = {texts[0]};")
            continue
        lines.append(f"long {name} = {texts[0]};")
        lines += [f"if ({t} {sign} {name}) {name} = {t};" for t in texts[1:]]
    size = f"sizeof({_element(b)})"
    low, high = addresses
    lines.append(f"const __UINTPTR_TYPE__ {low} = (__UINTPTR_TYPE__){b.name} + {first}*{size};")
    lines.append(f"const __UINTPTR_TYPE__ {high} = (__UINTPTR_TYPE__){b.name} + {last}*{size} + {size} - 1;")
    return lines


Index = tuple[Affine | None, ...]


def _indices(leaf: Leaf, loops: Loops, buffer: str) -> Iterator[tuple[Index, tuple[Affine, ...]]]:
    """Every index at which a buffer is read or written, and what holds for the dimensions there.

    A cell is stored, and its initial value read, also where nothing contributes to it.
    """
    known = {p.name for p in leaf.params if _is_integer(p)} | {x.iterator for x in loops}
    rows: tuple[Affine, ...] = ()
    if isinstance(leaf, Sequential):
        loose = list(stmt_exprs(leaf.body))
    else:
        known |= {d.name for d in leaf.hom.dims}
        iterators, reduced = {x.iterator for x in loops}, {d.name for d in leaf.hom.dims_of("pw")}
        changing = [d for d in leaf.hom.dims if d.size.span.names & iterators]
        somewhere = [(d.name, d.size.span - 1) for d in changing]  # no cell is touched where one is empty
        domain = rows_of(leaf.hom.domain)
        every = (*domain, *(r for _, r in somewhere))
        rows = tuple(r for r in domain if not r.names & reduced)
        rows += tuple(r for n, r in somewhere if n not in reduced)
        yield from ((a.index, every) for a in leaf.inp.accesses if a.buffer == buffer)
        yield from ((s.index, rows) for s in leaf.out.stores if s.buffer == buffer)
        scalar = leaf.hom.scalar
        loose = [*stmt_exprs(scalar.body), *scalar.results]
        loose += [e for e in leaf.out.initial if e is not None] + [s.value for s in leaf.out.stores]
    for e in loose:
        for n in walk(e):
            if isinstance(n, Load) and n.buffer == buffer:
                yield known_index(n, known), rows
