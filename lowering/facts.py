"""What the search space, the cost model and the configurations of a program are made from.

Sizes and strides at the sizes to tune for; which dimensions may share a vector, a register tile or threads;
which inputs may be copied.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from lowering.across import IN_VECTORS, TURNED, across, lying_across, raw_stride
from lowering.agreed import agreed, in_lanes
from lowering.ahead import read_once
from lowering.between import between
from lowering.copied import copied_value
from lowering.domains import read_in_boxes, shares
from lowering.histogram import MOST_POINTS, OneHot, followed
from lowering.inside import inside
from lowering.machine import LINE, Machine
from lowering.parameters import reassociates
from mdh_core.combine import choice_of
from mdh_core.expr import (
    Affine,
    Binary,
    Call,
    Cast,
    Load,
    Operand,
    RecordType,
    ScalarType,
    Select,
    Var,
    stmt_exprs,
    straight_line,
    walk,
)
from mdh_core.ir import Access, MdhProgram, read_buffers, reads_own_cell
from mdh_core.lanes import (
    goes_in_lanes,
    has_exact_lanes,
    has_lanes,
    lane_function,
    reads_lane_by_lane,
    steady_divisor,
    widest,
)
from mdh_core.polytope import rows_of

FEWEST_SHARED = 256  # elements of a reduced dimension up to which threads may share it as a whole
SHORTEST_ROW = 4096  # bytes of a row that is written past the caches whose ends do not matter


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choices are made from; sizes are those tuned for."""

    program: MdhProgram
    sizes: dict[str, int]
    cc: tuple[str, ...]
    pw: tuple[str, ...]
    ps: tuple[str, ...]
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def points(self) -> int:
        """Points of the domain, roughly."""
        return _points(self)

    def shares(self, tile: Mapping[str, int]) -> tuple[float, float]:
        """Share of the box that is in the domain, and of the domain that is in full tiles."""
        return _shares_of(self, tuple(sorted(tile.items())))

    @property
    def rows(self) -> tuple[Affine, ...]:
        """The domain, with the values of those parameters that are sizes."""
        return _domain(self)

    @property
    def element(self) -> int:
        """Bytes of the first component, or of the widest value of a function with branches."""
        first, body = self.program.component_types[0].size, self.program.hom.scalar.body
        return first if straight_line(body) else max(first, widest(body))

    @property
    def lane_bytes(self) -> int:
        """Bytes of one lane of a vector."""
        return _lane_bytes(self)

    @property
    def in_lanes(self) -> MdhProgram:
        """What vectors compute."""
        return _in_lanes(self)


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def once(
    function: Callable[Concatenate[Facts, _Given], _Found],
) -> Callable[Concatenate[Facts, _Given], _Found]:
    """A function of facts that is computed once for each; the cost model asks thousands of times."""

    @functools.wraps(function)
    def remembered(f: Facts, /, *args: _Given.args, **named: _Given.kwargs) -> _Found:
        key = (function, *args, *named.items()) if args or named else function
        try:
            found: _Found = f.known[key]
        except KeyError:
            found = f.known[key] = function(f, *args, **named)
        return found

    return remembered


@once
def _in_lanes(f: Facts) -> MdhProgram:
    return in_lanes(f.program)


@once
def _lane_bytes(f: Facts) -> int:
    return lane_function(f.in_lanes).size


@once
def _points(f: Facts) -> int:
    return max(1, round(math.prod(f.sizes.values()) * f.shares({})[0]))


@once
def _shares_of(f: Facts, tile: tuple[tuple[str, int], ...]) -> tuple[float, float]:
    return _shares(f.rows, tuple(f.sizes.items()), tile)


@functools.lru_cache(maxsize=1024)  # programs with one domain share what was counted
def _shares(
    rows: tuple[Affine, ...], sizes: tuple[tuple[str, int], ...], tile: tuple[tuple[str, int], ...]
) -> tuple[float, float]:
    return shares(rows, dict(sizes), dict(tile))


@once
def _domain(f: Facts) -> tuple[Affine, ...]:
    known: dict[str, Affine] = {}
    for d in f.program.hom.dims:
        span = d.size.span
        if d.size.step == 1 and len(span.terms) == 1 and span.terms[0][1] == 1:
            known[span.terms[0][0]] = Affine.number(f.sizes[d.name] - span.const)
    return tuple(rows_of(c.substitute(known) for c in f.program.hom.domain))


def facts(program: MdhProgram, sizes: dict[str, int]) -> Facts:
    """The same value for the same program and sizes, so that what is known of it is computed once.

    Programs are told apart by identity: they are large, and comparing them takes longer than most answers.
    """
    key = (id(program), *sizes.items())
    found = _FACTS.get(key)
    if found is None or found.program is not program:
        if len(_FACTS) >= _MOST_FACTS:
            _FACTS.clear()

        def named(kind: str) -> tuple[str, ...]:
            return tuple(d.name for d in program.hom.dims_of(kind))

        found = _FACTS[key] = Facts(program, dict(sizes), named("cc"), named("pw"), named("ps"))
    return found


_FACTS: dict[tuple[Any, ...], Facts] = {}
_MOST_FACTS = 512


@once
def strides(f: Facts, dim: str) -> list[tuple[Access, int | None]]:
    return [(a, raw_stride(f.program, a.buffer, a.index, dim)) for a in f.program.inp.accesses]


@once
def store_strides(f: Facts, dim: str) -> list[int | None]:
    return [raw_stride(f.program, s.buffer, s.index, dim) for s in f.program.out.stores]


def stores_in_vectors(f: Facts, dim: str) -> bool:
    """Whether neighbours along a dimension are stored as vectors; what is only mapped also in reverse."""
    stored = (1,) if f.pw or f.ps else (1, -1)
    return all(s in stored for s in store_strides(f, dim))


@once
def has_border(f: Facts) -> bool:
    """Whether a map has vectors only away from its border, see ``lowering.inside``."""
    return inside(f.program) is not None


def _has_vector_form(f: Facts) -> bool:
    return _in_vector_form(f, f.in_lanes)


def _in_vector_form(f: Facts, p: MdhProgram) -> bool:
    """``p``: what vectors compute of the program."""
    lanes = lane_function(p)
    body = lanes.body
    if any(a.conditional for a in p.inp.accesses):
        return False
    if not any(goes_in_lanes(body, p, d.name) for d in p.hom.dims):
        return False
    if has_records(f) and (f.ps or None in f.program.out.initial):
        return False
    if not f.pw and not all(isinstance(p.buffer(a.buffer).type, ScalarType) for a in p.inp.accesses):
        return False  # compilers have vectors of fields that are used once
    if not all(isinstance(t, ScalarType) and t.kind != "bool" for t in p.component_types):
        return False
    for e in (*lanes.results, *stmt_exprs(body)):
        for n in walk(e):
            if isinstance(n, Call) and not has_lanes(n, p):
                return False
            if not isinstance(n.type, ScalarType) and not isinstance(n, Operand | Var):  # in fields of them
                return False
            if isinstance(n, Binary) and n.op in "/%" and n.type.is_integer and not steady_divisor(n):
                return False
    return True


def in_vectors(f: Facts, inputs: list[int | None]) -> bool:
    """Whether operands with these strides make vectors, some of them lane by lane."""
    apart = [s for s in inputs if s not in IN_VECTORS]
    return not apart or (None not in apart and len(apart) <= _lane_by_lane(f))


_SORTED_OUT = 8


@once
def interleaved(f: Facts, dim: str) -> bool:
    """Whether a map reads every second, third, ... element along a dimension, and nothing that is worse.

    Vectors of such operands are not written here; compilers make them of plain loops, and shuffle.
    """
    apart = [s for _, s in strides(f, dim) if s not in IN_VECTORS]
    if f.pw or f.ps or not apart or not _has_vector_form(f) or not straight_line(f.program.hom.scalar.body):
        return False
    near = all(s is not None and 1 < abs(s) <= _SORTED_OUT for s in apart)
    return near and all(s == 1 for s in store_strides(f, dim))


@once
def _turns(f: Facts, vector: str) -> bool:
    """Whether what lies across vectors along a dimension may be turned in registers (``lowering.across``)."""
    return f.lane_bytes in TURNED and across(f.program, vector) is not None


@once
def crossed(f: Facts) -> tuple[str, ...]:
    """Dimensions along which a map reads neighbours, where its results are neighbours along another one.

    A tile with rows along them reads whole lines; vectors of it may be turned.
    """
    if f.pw or f.ps:
        return ()
    found = [lying_across(f.program, d) for d in f.cc if stores_in_vectors(f, d)]
    return tuple(dict.fromkeys(d for operands in found for dims in operands.values() for d in dims))


@once
def _lane_by_lane(f: Facts) -> int:
    return reads_lane_by_lane(f.program)


@once
def vector_candidates(f: Facts) -> tuple[str, ...]:
    """Dimensions whose neighbours can share a vector, best first; "-" last."""
    natural_cc, natural_pw, by_copy, apart = [], [], [], []
    if not f.ps and _has_vector_form(f):
        function = f.program.hom.function
        for d in (*reversed(f.cc), *reversed(f.pw)):
            if f.sizes[d] < 4 or not _gathers_once(f, d) or not _may_read_in_lanes(f, d):
                continue
            if not goes_in_lanes(lane_function(f.in_lanes).body, f.in_lanes, d):
                continue
            inputs = [s for _, s in strides(f, d)]
            if d in f.cc:
                copied = all(packable(f, a.buffer) or s in IN_VECTORS for a, s in strides(f, d))
                if stores_in_vectors(f, d):
                    if in_vectors(f, inputs) or _turns(f, d):
                        natural_cc.append(d)
                    elif copied:
                        by_copy.append(d)
                elif copied and _has_lanes_of_cells(f) and any(s != 0 for s in inputs):
                    apart.append(d)
            elif (
                function is not None
                and function.identity is not None
                and not _keeps_order(f)
                and in_vectors(f, inputs)
                and any(inputs)
                and not _left_to_compilers(f)
            ):
                natural_pw.append(d)
            elif function is not None and is_screened(f.program) and d == f.pw[-1]:
                compared = {n.access for n in walk(f.program.hom.scalar.results[0]) if isinstance(n, Operand)}
                used = [inputs[k] for k in compared]
                if all(s in IN_VECTORS for s in used) and any(used):
                    natural_pw.append(d)
    return (*natural_cc, *natural_pw, *by_copy, *apart[:2], "-")


def _may_read_in_lanes(f: Facts, dim: str) -> bool:
    """Whether neighbours in a dimension are computed all or none, where vectors ask once for all lanes; or
    what they read under a condition lies between elements that are read."""
    found = agreed(f.program)
    if found is not None and found.along(dim):
        return True
    reads = between(f.program)
    if reads is None:
        return found is None
    return (f.pw[-1:] == (dim,) or not reads.guards) and (found is None or _in_vector_form(f, reads.program))


@once
def keeps_to_reads(f: Facts) -> bool:
    """Whether vectors along what is reduced last stay between what is read: steps go along it alone."""
    found = between(f.program)
    return found is not None and bool(found.guards)


def _gathers_once(f: Facts, dim: str) -> bool:
    """Whether records that differ along a dimension stay the same in all steps: their fields are gathered."""
    records = (a for a in f.program.inp.accesses if isinstance(f.program.buffer(a.buffer).type, RecordType))
    return not any(
        any(x.coefficient(dim) for x in a.index) and {n for x in a.index for n in x.names} & {*f.pw, *f.ps}
        for a in records
    )


_FREE = ("+", "*", "&", "|", "^", "min", "max")
_FOUR_TIMES = 4
_LONGEST_VECTOR = 64  # bytes


def _left_to_compilers(f: Facts) -> bool:
    """Whether compilers make better vectors of the plain loop: sums of integers that are much narrower.

    They convert them in two steps between whole registers; a vector of 4 or 8 bytes alone is converted lane
    by lane (gcc 12).  They do so for one integer whose order is free, and for several sums, but not for a
    sum beside a minimum.
    """
    function, results = f.program.hom.function, f.program.hom.scalar.results
    types = f.program.component_types
    if function is None or not all(isinstance(t, ScalarType) and t.is_integer for t in types):
        return False
    names = function.name.strip("()").split(", ")
    free = names == ["+"] * len(results) if len(results) > 1 else function.name in _FREE
    return free and any(
        isinstance(n, Cast) and n.a.type.size * _FOUR_TIMES <= n.type.size for e in results for n in walk(e)
    )


def is_screened(p: MdhProgram) -> bool:
    """Whether an arg-min or arg-max may look for better values in vectors, and only then at all of a point.

    Vectors and scalars must compute the same values: neither conversions between widths, which are slow
    in vectors, nor products in sums, which a compiler may round once in one of them and twice in the other.
    """
    function, scalar = p.hom.function, p.hom.scalar
    choice = None if function is None else choice_of(function)
    if choice is None or scalar.body or p.hom.domain:
        return False
    positions = [e.then if isinstance(e, Select) else e for e in scalar.results[-choice.positions :]]
    if not all(isinstance(e, Var) and any(e.name == d.name for d in p.hom.dims) for e in positions):
        return False
    value = scalar.results[0]
    for n in walk(value):
        if isinstance(n, Cast) and n.a.type.size != n.type.size:
            return False
        if isinstance(n, Call) and not has_exact_lanes(n, p):
            return False
        products = isinstance(n, Binary) and n.op in "+-" and n.type.is_float
        if products and any(isinstance(x, Binary) and x.op == "*" for x in walk(n)):
            return False
    return isinstance(value.type, ScalarType) and value.type.kind != "bool"


def _has_lanes_of_cells(f: Facts) -> bool:
    """Whether reductions of cells that are apart may share vectors: results are then written lane by lane."""
    function = f.program.hom.function
    return bool(f.pw) and function is not None and function.identity is not None and not _keeps_order(f)


def _keeps_order(f: Facts) -> bool:
    return f.program.fp == "exact" and reassociates(f.program)


@once
def has_records(f: Facts) -> bool:
    """Whether results are records: in vectors, cells then start from initial values, and are visited once."""
    return any(isinstance(t, RecordType) for t in f.program.component_types)


@once
def read_dims(f: Facts, buffer: str) -> frozenset[str]:
    """The dimensions that the subscripts of an input depend on."""
    indices = (a.index for a in f.program.inp.accesses if a.buffer == buffer)
    return frozenset(n for index in indices for x in index for n in x.names if n in f.sizes)


@once
def packable(f: Facts, buffer: str) -> bool:
    accesses = [a for a in f.program.inp.accesses if a.buffer == buffer]
    linear = [tuple(x.terms for x in a.index) for a in accesses]
    whole = not f.program.hom.domain or all(read_in_boxes(f.program, a) == [] for a in accesses)
    return (
        f.program.buffer(buffer).rank > 0
        and whole
        and not any(
            isinstance(n, Load) and n.buffer == buffer
            for e in (*f.program.hom.scalar.results, *stmt_exprs(f.program.hom.scalar.body))
            for n in walk(e)
        )
        and all(x == linear[0] for x in linear)
        and not any(a.conditional for a in accesses)
        and not any(s.buffer == buffer for s in f.program.out.stores)
    )


@once
def computed_copies(f: Facts) -> tuple[str, ...]:
    """Inputs whose copies would hold values that the scalar function computes, used for several cells."""
    found = []
    for a in f.program.inp.accesses:
        again = any(f.sizes[d] > 1 and not any(x.coefficient(d) for x in a.index) for d in f.cc)
        if again and packable(f, a.buffer) and copied_value(f.program, a.buffer) is not None:
            found.append(a.buffer)
    return tuple(found)


@once
def is_readable_beyond(f: Facts) -> bool:
    """Whether the operands of tiles on the domain's border exist, most of the time, and order is free."""
    accesses = f.program.inp.accesses
    return not _keeps_order(f) and all(read_in_boxes(f.program, a) is not None for a in accesses)


@once
def vector_length(f: Facts, machine: Machine) -> int:
    return max(1, machine.vector_bytes // f.lane_bytes)


def written_past(f: Facts, machine: Machine) -> tuple[str, ...]:
    """Outputs that are larger than the last cache, written once, in vectors, and not read."""
    scanned = len(f.ps) == 1 and not f.pw
    if not scanned and (f.ps or vector_candidates(f) == ("-",)):
        return ()
    cells = math.prod(f.sizes[d] for d in (*f.cc, *f.ps))
    outputs = dict.fromkeys(s.buffer for s in f.program.out.stores if not s.at_last)
    scalars = (b for b in outputs if isinstance(f.program.buffer(b).type, ScalarType))
    large = (b for b in scalars if cells * f.program.buffer(b).type.size > machine.last)
    return tuple(b for b in large if b not in read_buffers(f.program))


@once
def may_be_aligned(f: Facts) -> bool:
    """Whether tiles may begin where a line of an output does: maps whose points may be computed twice.

    Those that have vectors only away from a border ask every tile where it is, and have no rows of tiles.
    """
    if f.pw or f.ps or has_border(f) or any(s.at_last for s in f.program.out.stores):
        return False
    if {s.buffer for s in f.program.out.stores} & read_buffers(f.program):
        return False
    vectors = (d for d in vector_candidates(f) if d != "-")
    return any(1 in store_strides(f, d) for d in vectors)


def has_whole_lines(f: Facts, buffer: str, vector: str) -> bool:
    """Whether stores past the caches pay: rows along ``vector`` are long, or begin and end with lines.

    Scans go past them in long runs, and where there is no vector nothing does.
    """
    row = f.sizes.get(vector, 0) * f.program.buffer(buffer).type.size
    return bool(f.ps) or row >= SHORTEST_ROW or row % LINE == 0


@once
def fetchable(f: Facts) -> tuple[str, ...]:
    """Outputs whose cells may be fetched while a tile computes: what they hold joins its results at the end.

    Either they are stored as they are, and may be what a tile starts from as well; or what is stored
    is computed from the result and what the cell holds.
    """
    function, stores = f.program.hom.function, f.program.out.stores
    if not (f.cc and f.pw) or function is None or function.identity is None:
        return ()
    if not any(d in f.cc for d in vector_candidates(f)):
        return ()
    free = not _keeps_order(f)
    found = (s.buffer for s in stores if reads_own_cell(s) or (s.plain is not None and free))
    return tuple(dict.fromkeys(found))


def follows_rows(f: Facts, machine: Machine) -> bool:
    """Whether rows of a map may be fetched ahead: tiles of several, outputs larger than the last cache."""
    if f.pw or f.ps or len(f.cc) < 2 or not row_dims(f) or has_border(f):
        return False
    return stored_bytes(f) > machine.last


def stored_bytes(f: Facts) -> int:
    """Of all outputs."""
    cells = math.prod(f.sizes[d] for d in f.cc)
    return cells * sum(f.program.buffer(s.buffer).type.size for s in f.program.out.stores)


def follows_pages(f: Facts, machine: Machine) -> bool:
    """Whether beginnings of pages may be fetched ahead: sums along rows of more than the last cache holds."""
    along = (d for d in vector_candidates(f) if d in f.pw)
    return not is_screened(f.program) and any(bytes_read_once(f, d) > machine.last for d in along)


def follows_points(f: Facts, form: OneHot, machine: Machine) -> str:
    """The dimension whose threads may fetch ahead what points of a histogram read, or nothing.

    Its threads have copies of the cells, and what is read is more than the last cache holds.
    """
    return _shared(f, form) if late_bytes(f, form) > machine.last else ""


def late_bytes(f: Facts, form: OneHot) -> int:
    """Of operands that ``lowering.histogram.followed`` has for the innermost loop that fills copies."""
    shared, looped = _shared(f, form), [d.name for d in f.program.hom.dims if d.name not in form.cells]
    along = next((d for d in reversed(looped) if d != shared), shared)
    if not along or f.sizes[along] < MOST_POINTS:
        return 0
    of_point = sum(f.program.buffer(a.buffer).type.size for a in followed(f.program, along, looped))
    return of_point * math.prod(f.sizes[d] for d in looped)


def _shared(f: Facts, form: OneHot) -> str:
    """The reduced dimension whose threads have copies of a histogram's cells, if there is one."""
    return next((d for d in histogram_threads(f, form) if d in f.pw), "")


@once
def bytes_read_once(f: Facts, vector: str) -> int:
    """Of inputs with rows along ``vector``, of which each point reads elements of its own."""
    read = {r.buffer for r in read_once(f.program, vector, {})}
    return math.prod(f.sizes.values()) * sum(f.program.buffer(b).type.size for b in read)


@once
def row_dims(f: Facts) -> tuple[str, ...]:
    """cc dimensions with rows of a register tile: what they share is used again.

    Rows that are reduced along themselves may share nothing: they are read side by side.
    """
    if not f.pw and len(f.program.inp.accesses) < 2 and not crossed(f):
        return ()
    along = any(d in f.pw for d in vector_candidates(f)) and not is_screened(f.program)
    return tuple(d for d in f.cc if f.sizes[d] >= 2 and (along or shares_rows(f, d)))[-3:]


@once
def shares_rows(f: Facts, d: str) -> bool:
    """Whether neighbours in ``d`` read some of the same: an access ignores it, or several overlap.

    Or vectors along it, which are turned for those along another dimension.
    """
    accesses = f.program.inp.accesses
    ignores = any(not any(x.coefficient(d) for x in a.index) for a in accesses)
    overlaps = any(len(x.terms) > 1 and x.coefficient(d) for a in accesses for x in a.index)
    if d in crossed(f):
        return True
    return ignores or overlaps or len({a.buffer for a in accesses}) < len(accesses)


def row_counts(f: Facts, d: str) -> tuple[int, ...]:
    """Elements of a register tile worth trying in a dimension of rows."""
    usual, size = (2, 3, 4, 6, 8, 12, 16) if f.pw or d in crossed(f) else (2, 3, 4, 6, 8, 12), f.sizes[d]
    return tuple(n for n in range(2, usual[-1] + 1) if n <= size and (n in usual or size % n == 0))


@once
def longest_row(f: Facts, l2: int, d: str) -> int:
    """Elements in ``d`` of which all rows that a point touches fit into half of the second cache.

    Rows that one iteration of the loop around shares with the next then stay there, and hardware that fetches
    ahead has long rows to follow.
    """
    used = [(a.buffer, a.index) for a in f.program.inp.accesses]
    used += [(s.buffer, s.index) for s in f.program.out.stores]
    rows = {(b, tuple(x for x in index if not x.coefficient(d))) for b, index in used}
    total = 0
    for b, index in rows:
        window = {p for x in index for p in x.names if p in f.pw}
        total += f.program.buffer(b).type.size * math.prod(f.sizes[p] for p in window)
    return max(64, l2 // 2 // max(1, total))


def lane_counts(f: Facts, v: int) -> list[int]:
    """Vectors of the machine's length, and shorter ones where dimensions are shorter."""
    short = [n for n in (2, 4, 8) if n < v and any(n <= f.sizes[d] < v for d in (*f.cc, *f.pw))]
    return [*short, *(v * n for n in (1, 2, 3, 4, 8) if in_whole_vectors(v * n, f.lane_bytes))]


def in_whole_vectors(lanes: int, lane_bytes: int) -> bool:
    """Whether lanes fill vectors on every machine that the text may be compiled for."""
    return lanes & (lanes - 1) == 0 or lanes * lane_bytes % _LONGEST_VECTOR == 0


def thread_choices(f: Facts) -> tuple[str, ...]:
    """Which dimensions threads may share: one or two outer cc dimensions, or reduced ones."""
    big = [d for d in f.cc if f.sizes[d] > 1] or list(f.cc[:1])
    choices = [",".join(x) for n in (1, 2) for x in itertools.combinations(big[:4], n)]
    if len(big) > 2:
        choices.append(",".join(big))
    if not _keeps_order(f):
        reduced = sorted(f.pw, key=lambda d: -f.sizes[d])[:1]
        cells = math.prod(f.sizes[d] for d in f.cc) if f.cc else 1
        if reduced and cells * 8 <= f.points:
            choices += reduced
        choices += list(f.ps)
    return tuple(dict.fromkeys(choices)) or ("",)


def histogram_threads(f: Facts, form: OneHot) -> tuple[str, ...]:
    """Concatenated dimensions with threads of their own cells, the longest reduced one with copies, none."""
    rows = [d for d in f.cc if d not in form.cells and f.sizes[d] > 1]
    parts = [] if _keeps_order(f) else sorted(f.pw, key=lambda d: -f.sizes[d])[:1]
    return (*rows, *parts, "")
