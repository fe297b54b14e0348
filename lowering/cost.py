"""The cost model: what a point of the search space should take, and which one to begin with.

Seconds are the longer of computing and memory: operations over what the vectors and the register tile can do,
bytes of all buffers over the bandwidth; copies and strided reads are added.  Good for ordering points.
``default_point`` is the cheapest legal one of a few kinds of points (``_seeds``).
"""

from __future__ import annotations

import math

from lowering.facts import (
    Facts,
    facts,
    histogram_threads,
    lane_counts,
    packable,
    row_dims,
    strides,
    thread_choices,
    vector_candidates,
    vector_length,
    written_past,
)
from lowering.histogram import OneHot, one_hot
from lowering.machine import Machine
from lowering.parameters import input_buffers, why_not_legal
from lowering.point import Point, configuration_of, own_values, round_up, tile_order
from mdh_core.expr import Binary, Call, Select, stmt_exprs, straight_line, walk
from mdh_core.ir import MdhProgram

_WINDOW = 16  # elements: reductions this short are windows of stencils, which slide over rows


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
    return why_not_legal(configuration_of(f, machine, point), f.program, machine.model) is None


def _seeds(f: Facts, machine: Machine) -> list[Point]:
    """Points worth comparing: every thread choice and vector dimension with usual register tiles."""
    form = one_hot(f.program)
    if form is not None:
        return [{"threads": d} for d in histogram_threads(f, form)]
    v = vector_length(f, machine)
    small = [d for d in f.pw if 1 < f.sizes[d] <= 8]
    unrolled = min(len(small), 2) if math.prod(f.sizes[d] for d in small[-2:]) <= 64 else min(len(small), 1)
    out = []
    for vector in vector_candidates(f):
        lanes = [1] if vector == "-" else [n for n in lane_counts(f, v) if n <= max(f.sizes[vector], 4)]
        strided = [
            a.buffer for a, s in strides(f, vector) if s not in (0, 1) and packable(f, a.buffer)
        ] if vector != "-" and f.pw else []
        for width in lanes or [v]:
            for rows in (1, 2, 3, 4, 6, 8) if row_dims(f) else (1,):
                for choice in ("block", "panel") if strided else ("no",):
                    for order in range(min(math.factorial(len(f.cc)), 6)) if strided else (0,):
                        packed = dict.fromkeys(strided, choice)
                        out += [(vector, width, rows, packed, order, n) for n in range(unrolled + 1)]
    points = [
        _seed(f, machine, threads, *rest) for threads in thread_choices(f)[:8] for rest in out
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
    slides = all(f.sizes[d] <= _WINDOW for d in f.pw)
    for d in f.cc:
        n, tile = f.sizes[d], _tile(point, d)
        if d in shared:
            per_core = -(-n // machine.cores) if len(shared) == 1 or d == shared[0] else n
            target = min(per_core, 512 if f.pw else max(64, per_core))
            if _is_uneven(f):
                target = max(1, per_core // 16)
            pieces = max(1, round(per_core / max(target, 1)))
            block = round_up(-(-per_core // pieces), tile) if per_core >= tile else tile
            point[f"block_{d}"] = max(tile, block)
        else:
            longest = _longest_row(f, machine, d) if slides else 512
            point[f"block_{d}"] = max(tile, min(round_up(n, tile), longest // tile * tile))
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
        if f.pw and packable(f, b):
            point[f"pack_{b}"] = packed.get(b, "no")
    point |= dict.fromkeys((f"past_{b}" for b in written_past(f, machine)), 1)
    return _fitting(f, machine, point) if packed else point


def _longest_row(f: Facts, machine: Machine, d: str) -> int:
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
    return max(64, machine.l2 // 2 // max(1, total))


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
            half = round_up(-(-int(point[f"block_{widest}"]) // 2), _tile(point, widest))
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
        _cost(facts(p, n), machine, own_values(point, k))
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
            gathers = any(s not in (0, 1) for a, s in strides(f, vector) if a.buffer == b)
            copied += pack * (1e-9 if gathers else 3e-10)
    works = vector != "-" and all(
        s in (0, 1) or packs[a.buffer] is not None for a, s in strides(f, vector)
    )
    speed = float(min(v, lanes)) if works else 0.7
    if works and not straight_line(f.program.hom.scalar.body):
        # vectors side by side hide how long each value takes; more lanes wait longer for the last one
        speed *= vectors / (vectors + 1) if vectors <= 4 else 0.75
    if f.pw:
        chains = live if works else rows
        speed *= chains / (chains + 4)  # additions wait for those before; measured on matrix products
        if works:
            whole_vectors, single = _loads(f, point, vector, rows, vectors)
            speed /= max(1.0 + whole_vectors + 0.2 * single, 0.9 * (whole_vectors + single))
        written_out = max((int(point.get(f"unroll_{d}", 1)) for d in f.pw), default=1)
        kept = vectors + written_out + 2 if written_out > 1 else 4  # operands of a row, weights of a column
        if live + kept > machine.registers:
            speed *= 0.25
    whole = _whole_share(f, point)
    slow = max(1.0, 0.6 * speed)  # clipped tiles are scalar code
    balance = _balance(f, machine, point)
    points = float(f.points) * (whole + (1 - whole) * slow)
    compute = points * _operations(f) / (2.0 * 3.0e9 * speed * balance)
    memory = _footprint(f) / machine.bandwidth * (1.4 if balance < 1.1 else 1.0)
    strided = 0.0
    inner = vector if vector != "-" else (f.pw or f.cc or f.ps or ("-",))[-1]
    for a, s in strides(f, inner):
        if s not in (0, 1) and packs[a.buffer] is None:
            strided += f.points / max(1, rows) * 1e-9
    region = 5e-6 if point.get("threads") and f.points > 1 << 15 else 0.0
    return max(compute, memory) + 0.1 * min(compute, memory) + (strided + copied) / balance + region


def _loads(f: Facts, point: Point, vector: str, rows: int, vectors: int) -> tuple[float, float]:
    """Vectors and single elements to load per vector operation, shared over the register tile."""
    whole_vectors = single = 0.0
    for a, _ in strides(f, vector):
        own_rows: float = math.prod(
            int(point.get(f"rows_{d}", 1)) for d in f.cc if any(x.coefficient(d) for x in a.index)
        )
        for x in a.index:  # rows of a stencil overlap when the reduced dimension is written out
            u = math.prod(int(point.get(f"unroll_{d}", 1)) for d in f.pw if x.coefficient(d))
            r = math.prod(int(point.get(f"rows_{d}", 1)) for d in f.cc if x.coefficient(d))
            if u > 1 and r > 1:
                own_rows *= (r + u - 1) / (r * u)
        if any(x.coefficient(vector) for x in a.index):
            whole_vectors += own_rows / rows
        else:
            single += own_rows / (rows * vectors)
    return whole_vectors, single


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
    tiles = tile_order(f, int(point.get("order", 0)))
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
