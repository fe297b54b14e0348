"""The search space of a nest: a few parameters whose values determine a whole configuration.

A *point* gives values to the parameters below; ``configuration_at`` turns it into the fifteen tuning
parameters.  The reductions of mdh.md 7 (D1 = S1 = R1, D2 = S2 = R2, whole tiles are copied) are built
in; everything else is a choice.

    threads       dimensions whose blocks are shared among threads, e.g. "i,j"
    vector        dimension whose neighbours share a vector, or "-"
    lanes         elements of that dimension computed together (a multiple of the vector length)
    rows_<d>      elements of a further cc dimension in the register tile
    unroll_<d>    elements of a reduced dimension written out
    block_<d>     elements of a block; 0 for a reduced dimension that is not blocked
    order         number of the order of the tile loops
    pack_<b>      "no", "block" or "panel": whether an input's tile is copied, and how much at once

Layers of the model OpenMP+REG+SIMD: 0 blocks, 1 unused, 2 tiles inside a block, 3 points of a reduced
dimension inside a block, 4 the register tile, 5 lanes.

Parameters of the k-th program of a nest (k > 0) have the suffix ``_atk``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lowering.domains import read_in_boxes, shares
from lowering.histogram import OneHot, one_hot
from lowering.machine import Machine
from lowering.parameters import (
    Configuration,
    Layout,
    Level,
    input_buffers,
    make,
    reassociates,
    why_not_legal,
)
from mdh_core.expr import Affine, Binary, Call, Load, ScalarType, Select, stmt_exprs, straight_line, walk
from mdh_core.ir import Access, MdhProgram
from mdh_core.polytope import rows_of

Value = int | str
Point = dict[str, Value]
BLOCKS, TILES, POINTS, ROWS, LANES = 0, 2, 3, 4, 5


@dataclass(frozen=True, slots=True)
class Space:
    """Names with their values, and Python expressions over the names that legal points satisfy."""

    parameters: tuple[tuple[str, tuple[Value, ...]], ...]
    restrictions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.parameters)

    @property
    def cartesian_size(self) -> int:
        """Number of combinations, legal or not."""
        return math.prod(len(values) for _, values in self.parameters)

    def key(self, point: Mapping[str, Value]) -> tuple[Value, ...]:
        """The point's values in the order of the parameters."""
        return tuple(point[name] for name in self.names)


# --------------------------------------------------------------------------- facts about a program


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choices are made from; sizes are those tuned for."""

    program: MdhProgram
    sizes: dict[str, int]
    cc: tuple[str, ...]
    pw: tuple[str, ...]
    ps: tuple[str, ...]

    @property
    def points(self) -> int:
        """Points of the domain, roughly."""
        return max(1, round(math.prod(self.sizes.values()) * self.shares({})[0]))

    def shares(self, tile: Mapping[str, int]) -> tuple[float, float]:
        """Share of the box that is in the domain, and of the domain that is in full tiles."""
        return _shares(self.rows, tuple(self.sizes.items()), tuple(sorted(tile.items())))

    @property
    def rows(self) -> tuple[Affine, ...]:
        """The domain, with the values of those parameters that are sizes."""
        known: dict[str, Affine] = {}
        for d in self.program.hom.dims:
            span = d.size.span
            if d.size.step == 1 and len(span.terms) == 1 and span.terms[0][1] == 1:
                known[span.terms[0][0]] = Affine.number(self.sizes[d.name] - span.const)
        return tuple(rows_of(c.substitute(known) for c in self.program.hom.domain))

    @property
    def element(self) -> int:
        """Bytes of the first component."""
        return self.program.component_types[0].size


@functools.lru_cache(maxsize=1024)
def _shares(
    rows: tuple[Affine, ...], sizes: tuple[tuple[str, int], ...], tile: tuple[tuple[str, int], ...]
) -> tuple[float, float]:
    return shares(rows, dict(sizes), dict(tile))


def facts(program: MdhProgram, sizes: dict[str, int]) -> Facts:
    def named(kind: str) -> tuple[str, ...]:
        return tuple(d.name for d in program.hom.dims_of(kind))

    return Facts(program, sizes, named("cc"), named("pw"), named("ps"))


def _raw_stride(program: MdhProgram, buffer: str, index: tuple[Affine, ...], dim: str) -> int | None:
    """Elements between neighbours in ``dim`` (None: more than one, known at run time only)."""
    b, stride, total = program.buffer(buffer), 1, 0
    if b.strides is not None:
        return None if any(a.coefficient(dim) for a in index) else 0
    for t in reversed(range(b.rank)):
        c = index[t].coefficient(dim)
        if c:
            if stride < 0:
                return None
            total += c * stride
        extent = b.extents[t]
        stride = -1 if stride < 0 or extent is None or not extent.is_constant else stride * extent.const
    return total


def _strides(f: Facts, dim: str) -> list[tuple[Access, int | None]]:
    return [(a, _raw_stride(f.program, a.buffer, a.index, dim)) for a in f.program.inp.accesses]


def _store_strides(f: Facts, dim: str) -> list[int | None]:
    return [_raw_stride(f.program, s.buffer, s.index, dim) for s in f.program.out.stores]


def _has_vector_form(f: Facts) -> bool:
    p = f.program
    if not straight_line(p.hom.scalar.body) or any(a.conditional for a in p.inp.accesses):
        return False
    if not all(isinstance(t, ScalarType) and t.kind != "bool" for t in p.component_types):
        return False
    for e in (*p.hom.scalar.results, *stmt_exprs(p.hom.scalar.body)):
        for n in walk(e):
            if isinstance(n, Call) or not isinstance(n.type, ScalarType):
                return False
            if isinstance(n, Binary) and n.op in "/%" and n.type.is_integer:
                return False
    return True


def vector_candidates(f: Facts) -> tuple[str, ...]:
    """Dimensions whose neighbours can share a vector, best first; "-" last."""
    natural_cc, natural_pw, packable = [], [], []
    if not f.ps and _has_vector_form(f):
        function = f.program.hom.function
        for d in (*reversed(f.cc), *reversed(f.pw)):
            if f.sizes[d] < 4:
                continue
            inputs = [s for _, s in _strides(f, d)]
            if d in f.cc:
                if all(s == 1 for s in _store_strides(f, d)):
                    if all(s in (0, 1) for s in inputs):
                        natural_cc.append(d)
                    elif all(_packable(f, a.buffer) or s in (0, 1) for a, s in _strides(f, d)):
                        packable.append(d)
            elif (
                function is not None
                and function.identity is not None
                and not _keeps_order(f)
                and all(s in (0, 1) for s in inputs)
                and any(s == 1 for s in inputs)
            ):
                natural_pw.append(d)
    return (*natural_cc, *natural_pw, *packable, "-")


def _keeps_order(f: Facts) -> bool:
    return f.program.fp == "exact" and reassociates(f.program)


def _packable(f: Facts, buffer: str) -> bool:
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


def vector_length(f: Facts, machine: Machine) -> int:
    return max(1, machine.vector_bytes // f.element)


def row_dims(f: Facts) -> tuple[str, ...]:
    """cc dimensions that an access or two ignore: rows of a register tile reuse what they share."""
    if not f.pw and len(f.program.inp.accesses) < 2:
        return ()
    shared = []
    for d in f.cc:
        if f.sizes[d] < 2:
            continue
        ignores = any(not any(x.coefficient(d) for x in a.index) for a in f.program.inp.accesses)
        overlaps = any(len(x.terms) > 1 and x.coefficient(d) for a in f.program.inp.accesses for x in a.index)
        offsets = len({a.buffer for a in f.program.inp.accesses}) < len(f.program.inp.accesses)
        if ignores or overlaps or offsets:
            shared.append(d)
    return tuple(shared[-3:])


# --------------------------------------------------------------------------- the space


def _powers(low: int, high: int) -> list[int]:
    out, n = [], low
    while n <= high:
        out.append(n)
        n *= 2
    return out


def _lane_counts(f: Facts, v: int) -> list[int]:
    """Vectors of the machine's length, and shorter ones where dimensions are shorter."""
    short = [n for n in (2, 4, 8) if n < v and any(n <= f.sizes[d] < v for d in (*f.cc, *f.pw))]
    return [*short, *(v * n for n in (1, 2, 3, 4, 8))]


def _thread_choices(f: Facts) -> tuple[str, ...]:
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


def _histogram_threads(f: Facts, form: OneHot) -> tuple[str, ...]:
    """Concatenated dimensions with threads of their own cells, the longest reduced one with copies, none."""
    rows = [d for d in f.cc if d not in form.cells and f.sizes[d] > 1]
    parts = [] if _keeps_order(f) else sorted(f.pw, key=lambda d: -f.sizes[d])[:1]
    return (*rows, *parts, "")


def _space(f: Facts, machine: Machine) -> Space:
    form = one_hot(f.program)
    if form is not None:
        return Space((("threads", _histogram_threads(f, form)),))
    v = vector_length(f, machine)
    vectors = vector_candidates(f)
    parameters: list[tuple[str, tuple[int | str, ...]]] = [
        ("threads", _thread_choices(f)),
        ("vector", vectors),
        ("lanes", (1, *_lane_counts(f, v)) if vectors != ("-",) else (1,)),
    ]
    restrictions = ["(vector == '-') == (lanes == 1)"]
    rows = row_dims(f)
    for d in rows:
        values = tuple(n for n in (1, 2, 3, 4, 6, 8, 12) if n <= max(f.sizes[d], 1))
        parameters.append((f"rows_{d}", values))
        restrictions.append(f"vector != '{d}' or rows_{d} == 1")
    if rows:
        product = "*".join(f"rows_{d}" for d in rows)
        restrictions.append(f"{product}*lanes <= {(machine.registers - 4) * v} or vector == '-'")
        restrictions.append(f"{product} <= 16")
    for d in f.pw:
        n = f.sizes[d]
        unrolls = [1, 2, 4, 8] if n > 8 else sorted({1, n}) if n else [1]
        parameters.append((f"unroll_{d}", tuple(unrolls)))
        blocks = [0]
        if 1 < n <= 512:
            blocks.append(n)
        if n > 256:
            blocks += [b for b in (128, 256, 512, 1024, 4096, 16384, 65536) if b < n]
        parameters.append((f"block_{d}", tuple(blocks)))
        restrictions.append(f"block_{d} == 0 or block_{d} % unroll_{d} == 0")
        if d in {x for c in _thread_choices(f) for x in c.split(",")}:
            restrictions.append(f"threads != '{d}' or block_{d} > 0 or {n} <= 256")
    for d in f.cc:
        sizes = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096)
        fitting = [b for b in sizes if b <= f.sizes[d]]
        fitting = [b for b in fitting if b * 256 >= f.sizes[d] or b == fitting[-1]] or [1]
        parameters.append((f"block_{d}", tuple(dict.fromkeys((*fitting, _balanced(f.sizes[d], machine))))))
    inner = [d for d in f.cc if f.sizes[d] > 1]
    orders = min(math.factorial(len(inner)), 6) or 1
    parameters.append(("order", tuple(range(orders))))
    for b in input_buffers(f.program):
        if f.pw and _packable(f, b) and not f.ps:
            parameters.append((f"pack_{b}", ("no", "block", "panel")))
    return Space(tuple(parameters), tuple(restrictions))


def _balanced(n: int, machine: Machine) -> int:
    """A block that gives every core the same number of elements."""
    return max(1, -(-n // machine.cores))


def tuning_space(
    programs: tuple[MdhProgram, ...], machine: Machine, sizes: tuple[dict[str, int], ...]
) -> Space:
    """The space of a nest for given sizes (one dict per program, dimension -> extent)."""
    parameters: list[tuple[str, tuple[int | str, ...]]] = []
    restrictions: list[str] = []
    for k, (program, n) in enumerate(zip(programs, sizes, strict=True)):
        one = _space(facts(program, n), machine)
        suffix = "" if k == 0 else f"_at{k}"
        names = sorted((name for name, _ in one.parameters), key=len, reverse=True)
        chosen = default_point((program,), machine, (n,))
        for name, values in one.parameters:  # the default is a point of the space
            extra = (chosen[name],) if name in chosen and chosen[name] not in values else ()
            parameters.append((name + suffix, (*values, *extra)))
        restrictions += [_suffixed(r, names, suffix) for r in one.restrictions]
    return Space(tuple(parameters), tuple(restrictions))


def _suffixed(restriction: str, names: list[str], suffix: str) -> str:
    import re

    if not suffix:
        return restriction
    pattern = r"(?<!['\w])(" + "|".join(map(re.escape, names)) + r")\b(?!')"
    return re.sub(pattern, lambda m: m.group(1) + suffix, restriction)


def _own(point: Point, k: int) -> Point:
    """The parameters of the k-th program, without suffix."""
    suffix = f"_at{k}"
    if k:
        return {n[: -len(suffix)]: v for n, v in point.items() if n.endswith(suffix)}
    return {n: v for n, v in point.items() if not _has_suffix(n)}


def _has_suffix(name: str) -> bool:
    head, _, tail = name.rpartition("_at")
    return bool(head) and tail.isdigit()


# --------------------------------------------------------------------------- point -> configuration


def configuration_at(
    programs: tuple[MdhProgram, ...],
    machine: Machine,
    sizes: tuple[dict[str, int], ...],
    point: Point,
) -> tuple[Configuration, ...]:
    """One configuration per program.  Parameters that a point lacks have their plainest value."""
    return tuple(
        _configuration(facts(p, n), machine, _own(point, k))
        for k, (p, n) in enumerate(zip(programs, sizes, strict=True))
    )


def _round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _configuration(f: Facts, machine: Machine, point: Point) -> Configuration:
    model = machine.model
    names = [d.name for d in f.program.hom.dims]
    threads = set(str(point.get("threads", "")).split(","))
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    parts = [[1] * len(names) for _ in range(model.depth)]
    blocked: set[str] = set()
    for k, d in enumerate(names):
        if d == vector:
            parts[LANES][k] = lanes
        if d in f.cc:
            parts[ROWS][k] = int(point.get(f"rows_{d}", 1)) if d != vector else 1
            tile = parts[ROWS][k] * parts[LANES][k]
            parts[TILES][k] = _round_up(int(point.get(f"block_{d}", 1)), tile) // tile
        else:
            parts[ROWS][k] = int(point.get(f"unroll_{d}", 1)) if d in f.pw else 1
            tile = parts[ROWS][k] * parts[LANES][k]
            block = int(point.get(f"block_{d}", 0))
            if block > tile:
                parts[POINTS][k] = -(-block // tile)
                blocked.add(d)
            elif d in f.ps:
                parts[POINTS][k] = 4096
    order = _order(f, names, threads, blocked, vector, int(point.get("order", 0)))
    assign = []
    for layer in range(model.depth):
        row = []
        for k, d in enumerate(names):
            place = {0: model.layer("COR"), 1: 0, 2: 1, 3: 2, 4: 3, 5: 5}
            if d not in threads:
                place |= {0: 0, 1: model.layer("COR")}
            row.append((place[layer], k))
        assign.append(tuple(row))
    column = {d: k for k, d in enumerate(names)}
    start = next((lv for lv in order if _begins_accumulation(f, names, lv, threads, blocked)), None)
    memory = _memory(f, names, order, parts, point, vector, machine)
    return make(
        f.program,
        model,
        tuple(tuple(row) for row in parts),
        order,
        tuple(assign),
        memory,
        start if column else None,
    )


def _begins_accumulation(
    f: Facts, names: list[str], level: Level, threads: set[str], blocked: set[str]
) -> bool:
    """Results live in registers inside the tile loops: from the first innermost reduced loop on."""
    layer, k = level
    d = names[k]
    if layer == BLOCKS:
        return d in f.pw and d not in threads and d not in blocked
    return layer in (POINTS, ROWS, LANES)


def _order(
    f: Facts, names: list[str], threads: set[str], blocked: set[str], vector: str, number: int
) -> tuple[Level, ...]:
    """Blocks on threads, other blocks, tiles, reduced points, the register tile, lanes."""
    column = {d: k for k, d in enumerate(names)}
    cc = [d for d in names if d in f.cc]
    reduced = [d for d in names if d not in f.cc]
    unblocked = [d for d in reduced if d not in blocked and d not in threads and d in f.pw]
    first = [d for d in (*cc, *reduced) if d in threads]
    rest = [d for d in (*cc, *reduced) if d not in threads and d not in unblocked]
    tiles = [*_tile_order(f, number), *reduced]
    order: list[Level] = [(BLOCKS, column[d]) for d in (*first, *rest)]
    order += [(1, column[d]) for d in names]
    order += [(TILES, column[d]) for d in tiles]
    order += [(BLOCKS, column[d]) for d in unblocked]
    order += [(POINTS, column[d]) for d in (*reduced, *cc)]
    order += [(ROWS, column[d]) for d in (*reduced, *cc)]
    lanes = [d for d in names if d != vector] + [d for d in names if d == vector]
    order += [(LANES, column[d]) for d in lanes]
    return tuple(order)


def _tile_order(f: Facts, number: int) -> list[str]:
    """The cc dimensions in one of the orders of the tile loops."""
    inner = [d for d in f.cc if f.sizes[d] > 1]
    orders = list(itertools.islice(itertools.permutations(inner), 6)) or [()]
    return [*(d for d in f.cc if d not in inner), *orders[number % len(orders)]]


def _memory(
    f: Facts,
    names: list[str],
    order: tuple[Level, ...],
    parts: list[list[int]],
    point: Point,
    vector: str,
    machine: Machine,
) -> dict[str, tuple[int, Level, Layout]]:
    """Which inputs are packed, from which level on, in which layout."""
    out: dict[str, tuple[int, Level, Layout]] = {}
    for b in input_buffers(f.program):
        choice = point.get(f"pack_{b}", "no")
        if choice == "no":
            continue
        accesses = [a for a in f.program.inp.accesses if a.buffer == b]
        used = {n for a in accesses for x in a.index for n in x.names}
        tiles = [k for k, (layer, _) in enumerate(order) if layer == TILES]
        at = tiles[0]
        if choice == "panel":
            own = [
                k
                for k in tiles
                if names[order[k][1]] in used and parts[TILES][order[k][1]] > 1
            ]
            at = own[-1] + 1 if own else at
        region = machine.model.layer("L2" if choice == "block" else "L1")
        out[b] = (region, order[at], _layout(f, accesses[0], vector))
    return out


def _layout(f: Facts, access: Access, vector: str) -> Layout:
    """Coordinates with the vector dimension last, before it those of cc dimensions, then the rest."""

    def rank(t: int) -> tuple[int, int]:
        names = access.index[t].names
        if vector in names:
            return (2, t)
        return (1 if any(n in f.cc for n in names) else 0, t)

    return tuple(sorted(range(len(access.index)), key=rank))


# --------------------------------------------------------------------------- default and cost


def default_point(
    programs: tuple[MdhProgram, ...], machine: Machine, sizes: tuple[dict[str, int], ...]
) -> Point:
    """The cost model's first choice: the cheapest of a few hand-picked kinds of points."""
    out: Point = {}
    for k, (p, n) in enumerate(zip(programs, sizes, strict=True)):
        suffix = "" if k == 0 else f"_at{k}"
        f = facts(p, n)
        ranked = sorted(_seeds(f, machine), key=lambda x: _cost(f, machine, x))
        best = next((x for x in ranked if _is_legal(f, machine, x)), {})
        out |= {name + suffix: value for name, value in best.items()}
    return out


def _is_legal(f: Facts, machine: Machine, point: Point) -> bool:
    return why_not_legal(_configuration(f, machine, point), f.program, machine.model) is None


def _seeds(f: Facts, machine: Machine) -> list[Point]:
    """Points worth comparing: every thread choice and vector dimension with usual register tiles."""
    form = one_hot(f.program)
    if form is not None:
        return [{"threads": d} for d in _histogram_threads(f, form)]
    v = vector_length(f, machine)
    small = [d for d in f.pw if 1 < f.sizes[d] <= 8]
    unrolled = min(len(small), 2) if math.prod(f.sizes[d] for d in small[-2:]) <= 64 else min(len(small), 1)
    out = []
    for vector in vector_candidates(f):
        lanes = [1] if vector == "-" else [n for n in _lane_counts(f, v) if n <= max(f.sizes[vector], 4)]
        strided = [
            a.buffer for a, s in _strides(f, vector) if s not in (0, 1) and _packable(f, a.buffer)
        ] if vector != "-" and f.pw else []
        for width in lanes or [v]:
            for rows in (1, 2, 3, 4, 6, 8) if row_dims(f) else (1,):
                for choice in ("block", "panel") if strided else ("no",):
                    for order in range(min(math.factorial(len(f.cc)), 6)) if strided else (0,):
                        packed = dict.fromkeys(strided, choice)
                        out += [(vector, width, rows, packed, order, n) for n in range(unrolled + 1)]
    points = [
        _seed(f, machine, threads, *rest) for threads in _thread_choices(f)[:8] for rest in out
    ]
    return points or [{}]


def _seed(
    f: Facts,
    machine: Machine,
    threads: str,
    vector: str,
    lanes: int,
    rows: int,
    packed: dict[str, str],
    order: int,
    unrolled: int,
) -> Point:
    """``unrolled``: how many of the innermost short reduced dimensions are written out."""
    point: Point = {
        "threads": threads,
        "vector": vector,
        "lanes": 1 if vector == "-" else lanes,
        "order": order,
    }
    spare = rows
    for d in reversed(row_dims(f)):
        n = 1
        if d != vector and spare > 1 and f.sizes[d] >= spare:
            n, spare = spare, 1
        point[f"rows_{d}"] = n
    shared = threads.split(",")
    for d in f.cc:
        n, tile = f.sizes[d], _tile(point, d)
        if d in shared:
            per_core = -(-n // machine.cores) if len(shared) == 1 or d == shared[0] else n
            target = min(per_core, 512 if f.pw else max(64, per_core))
            if _is_uneven(f):
                target = max(1, per_core // 16)
            pieces = max(1, round(per_core / max(target, 1)))
            block = _round_up(-(-per_core // pieces), tile) if per_core >= tile else tile
            point[f"block_{d}"] = max(tile, block)
        else:
            point[f"block_{d}"] = max(tile, min(_round_up(n, tile), 512))
    for d in f.pw:
        n = f.sizes[d]
        written_out = unrolled > 0 and 1 < n <= 8 and d in f.pw[-unrolled:] and not packed
        point[f"unroll_{d}"] = n if written_out else 1
        point[f"block_{d}"] = 0
        if d in shared:
            point[f"block_{d}"] = max(1, min(65536, -(-n // (4 * machine.cores))))
        elif f.cc and n > 512 and len(f.pw) == 1 and len(f.cc) > 1:
            point[f"block_{d}"] = 256
        elif packed and n > 1:
            point[f"block_{d}"] = min(n, 256)  # a constant extent for the copies
    for b in input_buffers(f.program):
        if f.pw and _packable(f, b):
            point[f"pack_{b}"] = packed.get(b, "no")
    return _fitting(f, machine, point) if packed else point


def _is_uneven(f: Facts) -> bool:
    """Whether equal blocks may cost very different times: domains, loops and calls in the scalar function."""
    scalar = f.program.hom.scalar
    if f.program.hom.domain:
        return True
    calls = any(isinstance(n, Call) for e in scalar.results for n in walk(e))
    return calls or not straight_line(scalar.body)


def _fitting(f: Facts, machine: Machine, point: Point) -> Point:
    """Blocks halved until the packed tiles fit where they are kept."""
    for b in input_buffers(f.program):
        access = next(a for a in f.program.inp.accesses if a.buffer == b)
        used = [d for d in f.cc if any(x.coefficient(d) for x in access.index)]
        for _ in range(12):
            if point.get(f"pack_{b}", "no") == "no" or _pack(f, machine, point, b) is not None or not used:
                break
            widest = max(used, key=lambda d: int(point[f"block_{d}"]) / _tile(point, d))
            half = _round_up(-(-int(point[f"block_{widest}"]) // 2), _tile(point, widest))
            if half >= int(point[f"block_{widest}"]):
                break
            point[f"block_{widest}"] = half
    return point


def estimate(
    programs: tuple[MdhProgram, ...],
    machine: Machine,
    sizes: tuple[dict[str, int], ...],
    point: Point,
) -> float:
    """Seconds, roughly: good for ordering points, not for reporting."""
    return sum(
        _cost(facts(p, n), machine, _own(point, k))
        for k, (p, n) in enumerate(zip(programs, sizes, strict=True))
    )


def _operations(f: Facts) -> int:
    scalar = f.program.hom.scalar
    count = sum(
        isinstance(n, Binary | Select | Call)
        for e in (*scalar.results, *stmt_exprs(scalar.body))
        for n in walk(e)
    )
    return max(1, count + (len(f.program.component_types) if f.pw or f.ps else 0))


def _footprint(f: Facts) -> int:
    """Bytes of all buffers that are touched, each once."""
    total = 0
    cells: dict[str, int] = {}
    indices = [(a.buffer, a.index) for a in f.program.inp.accesses]
    indices += [(s.buffer, s.index) for s in f.program.out.stores]
    for buffer, index in indices:
        n = 1
        for a in index:
            n *= 1 + sum(abs(c) * (f.sizes.get(d, 1) - 1) for d, c in a.terms)
        cells[buffer] = max(cells.get(buffer, 0), n)
    for buffer, n in cells.items():
        total += n * f.program.buffer(buffer).type.size
    return total


def _histogram_cost(f: Facts, form: OneHot, machine: Machine, point: Point) -> float:
    """Every point finds its cell; private copies are filled and combined besides."""
    d = str(point["threads"])
    points = math.prod(n for x, n in f.sizes.items() if x not in form.cells)
    cells = math.prod(f.sizes[x] for x in f.cc)
    cores = 1 if not d else min(machine.cores, max(1, f.sizes[d]))
    copies = 2e-9 * cells * cores if d in f.pw else 0.0
    strided = 1e-9 * points if d in f.cc and f.pw else 0.0  # the reduced data are read once per thread
    return points * (1e-9 + _operations(f) * 1e-10) / cores + copies + strided + (5e-6 if d else 0.0)


def _cost(f: Facts, machine: Machine, point: Point) -> float:
    """Seconds of one program at a point: the slower of computing and memory, and what they add."""
    form = one_hot(f.program)
    if form is not None:
        return _histogram_cost(f, form, machine, point)
    v = vector_length(f, machine)
    vector, lanes = str(point.get("vector", "-")), int(point.get("lanes", 1))
    rows = math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc)
    vectors = max(1, lanes // v)
    live = rows * vectors
    packs = {b: _pack(f, machine, point, b) for b in input_buffers(f.program)}
    copied = 0.0
    for b, pack in packs.items():
        if pack is not None:
            gathers = any(s not in (0, 1) for a, s in _strides(f, vector) if a.buffer == b)
            copied += pack * (1e-9 if gathers else 3e-10)
    works = vector != "-" and all(
        s in (0, 1) or packs[a.buffer] is not None for a, s in _strides(f, vector)
    )
    speed = float(min(v, lanes)) if works else 0.7
    if f.pw:
        speed *= min(1.0, (live if works else rows) / 8)  # two units of latency four
        if works:
            speed /= max(1.0, 0.9 * _loads(f, point, vector, rows, vectors))
        if live > machine.registers - 4:
            speed *= 0.25
    whole = _whole_share(f, point)
    slow = max(1.0, 0.6 * speed)  # clipped tiles are scalar code
    balance = _balance(f, machine, point)
    points = float(f.points) * (whole + (1 - whole) * slow)
    compute = points * _operations(f) / (2.0 * 3.0e9 * speed * balance)
    memory = _footprint(f) / machine.bandwidth * (1.4 if balance < 1.1 else 1.0)
    strided = 0.0
    inner = vector if vector != "-" else (f.pw or f.cc or f.ps or ("-",))[-1]
    for a, s in _strides(f, inner):
        if s not in (0, 1) and packs[a.buffer] is None:
            strided += f.points / max(1, rows) * 1e-9
    region = 5e-6 if point.get("threads") and f.points > 1 << 15 else 0.0
    return max(compute, memory) + 0.1 * min(compute, memory) + (strided + copied) / balance + region


def _loads(f: Facts, point: Point, vector: str, rows: int, vectors: int) -> float:
    """Operands to load per vector operation, shared over the register tile."""
    loads = 0.0
    for a, _ in _strides(f, vector):
        own_rows: float = math.prod(
            int(point.get(f"rows_{d}", 1)) for d in f.cc if any(x.coefficient(d) for x in a.index)
        )
        for x in a.index:  # rows of a stencil overlap when the reduced dimension is written out
            u = math.prod(int(point.get(f"unroll_{d}", 1)) for d in f.pw if x.coefficient(d))
            r = math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc if x.coefficient(d))
            if u > 1 and r > 1:
                own_rows *= (r + u - 1) / (r * u)
        uses_lanes = any(x.coefficient(vector) for x in a.index)
        loads += own_rows * (vectors if uses_lanes else 1) / (rows * vectors)
    return loads


def _whole_share(f: Facts, point: Point) -> float:
    """Share of the points that lie in register tiles that are not clipped."""
    tile = {
        d: int(point.get(f"rows_{d}", 1))
        * int(point.get(f"unroll_{d}", 1))
        * (int(point["lanes"]) if d == point.get("vector") else 1)
        for d in f.sizes
    }
    return f.shares(tile)[1]


def _tile(point: Point, d: str) -> int:
    return int(point.get(f"rows_{d}", 1)) * (int(point["lanes"]) if d == point.get("vector") else 1)


def _pack(f: Facts, machine: Machine, point: Point, buffer: str) -> float | None:
    """Elements that are copied in all for a packed input; None where it is not packed (or does not fit)."""
    choice = point.get(f"pack_{buffer}", "no")
    if choice == "no":
        return None
    access = next(a for a in f.program.inp.accesses if a.buffer == buffer)
    used = {n for x in access.index for n in x.names}
    tiles = _tile_order(f, int(point.get("order", 0)))
    own = [k for k, d in enumerate(tiles) if d in used]
    inside = tiles[own[-1] + 1 :] if own else tiles
    elements, box = 1.0, 1.0
    for d, n in f.sizes.items():
        if d in f.cc:
            block = min(max(int(point.get(f"block_{d}", 1)), _tile(point, d)), max(n, 1))
        else:
            block = int(point.get(f"block_{d}", 0)) or n
        if d in used:
            elements *= n
            box *= min(n, _tile(point, d)) if choice == "panel" and d in f.cc else block
        elif d in f.cc:
            step = block if choice == "block" or d in inside else _tile(point, d)
            elements *= -(-n // max(1, step))
    fits = box * f.program.buffer(buffer).type.size <= machine.stack
    return elements if fits and not (set(f.pw) & used and _unblocked_run_time(f, point, used)) else None


def _unblocked_run_time(f: Facts, point: Point, used: set[str]) -> bool:
    """Whether a used reduced dimension has no constant extent inside a block: then no copy is made."""
    return any(
        d in used and f.program.dim(d).size.constant is None and not int(point.get(f"block_{d}", 0))
        for d in f.pw
    )


def _balance(f: Facts, machine: Machine, point: Point) -> float:
    """Cores that work on average."""
    count = 1
    for d in str(point.get("threads", "")).split(","):
        if d in f.sizes:
            block = int(point.get(f"block_{d}", 0)) or 1
            if d in f.ps:
                block = 4096
            count *= max(1, -(-f.sizes[d] // block))
    rounds = -(-count // machine.cores)
    return min(machine.cores, count / rounds)

