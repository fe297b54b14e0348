"""A nest and its steps, a program and its stages, run side by side on the same cells: are all terms equal?

    source   plain loops, one statement after the other
    steps    by definition: the scalar function at every point, combined, all reads before all writes
    stages   loop by loop as lowered, cells kept between visits as ``results`` says

What is compared is not numbers but computations (``terms``), cell by cell.  Contents of cells are made up
where they are first read, so that no extents are needed; a cell that the steps touch has to be one that the
source touches, too, or one inside of known extents.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType

from certify import work
from certify.terms import Terms, wrapped
from certify.values import Budget, Env, Index, Traced, alike
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lowering.keyed import Keyed
from lowering.lower import HistogramNest, Lowered, Nest, ScanNest
from mdh_core.combine import CombineFunction
from mdh_core.evaluate import EvaluationError, Value
from mdh_core.expr import (
    INT64,
    LOGICAL,
    Affine,
    Assign,
    Binary,
    Call,
    Constraint,
    Expr,
    Function,
    If,
    Load,
    RecordType,
    Result,
    ScalarType,
    Select,
    Stmt,
    Type,
    While,
    as_affine,
    base_of,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Sequential, Step, Store, keeps_if_empty

Position = int | Index
Where = tuple[str, Position]
Values = tuple[Traced, ...]  # one per component


class Fault(Exception):  # noqa: N818 - an answer
    """The steps or stages do what they must not do."""


# --------------------------------------------------------------------------- memory


@dataclass(slots=True)
class Shape:
    """Extents and strides of a buffer for given parameters; None where they are not known."""

    extents: tuple[int | None, ...]
    strides: Index | None

    def position(self, index: Index) -> Position:
        if len(index) == 1 or not self.extents:
            if self.strides is not None and len(self.strides) == 1:
                return index[0] * self.strides[0]
            return index[0] if index else 0
        if self.strides is None:
            return index
        return sum(i * s for i, s in zip(index, self.strides, strict=True))

    def holds(self, index: Index) -> bool:
        """Inside of extents that are all known."""
        return len(index) == len(self.extents) and all(
            n is not None and 0 <= i < n for i, n in zip(index, self.extents, strict=True)
        )


def shape(b: Buffer, ints: Mapping[str, int]) -> Shape:
    extents = tuple(None if e is None else max(0, e.evaluate(dict(ints))) for e in b.extents)
    if b.strides is not None:
        return Shape(extents, tuple(s.evaluate(dict(ints)) for s in b.strides))
    strides = [1]
    for n in reversed(extents[1:]):
        if n is None:
            return Shape(extents, None)
        strides.insert(0, strides[0] * n)
    return Shape(extents, tuple(strides) if extents else ())


@dataclass(slots=True)
class Memory:
    """Cells by buffer and position; ``own``: buffers without contents at first.

    first   contents of cells before anything is written, as they were asked for; shared by all copies
    """

    terms: Terms
    types: Mapping[str, Type]
    seed: int
    indices: frozenset[str] = frozenset()  # buffers whose contents are used as indices
    own: frozenset[str] = frozenset()
    cells: dict[Where, Traced] = field(default_factory=dict)
    touched: set[Where] = field(default_factory=set)
    first: dict[Where, Traced] = field(default_factory=dict)

    def read(self, at: Where) -> Traced:
        self.touched.add(at)
        found = self.cells.get(at)
        if found is None and at[0] in self.own:
            raise Fault(f"{at[0]}[{at[1]}] is read, which nothing has written")
        return self.initial(at) if found is None else found

    def write(self, at: Where, x: Traced) -> None:
        self.touched.add(at)
        self.cells[at] = x

    def initial(self, at: Where) -> Traced:
        found = self.first.get(at)
        if found is None:
            found = self.first[at] = self._initial(at)
        return found

    def _initial(self, at: Where) -> Traced:
        name, position = at
        if name not in self.types:
            raise Fault(f"there is no buffer `{name}`")
        t = self.types[name]
        if name in self.own:
            value: Value = 0 if isinstance(t, ScalarType) else (0,) * len(t.fields)
            return value, self.terms.node("undefined", name, position)
        rng = random.Random(f"{self.seed} {at}")
        return content(t, rng, name in self.indices), self.terms.node("cell", name, position)

    def copy(self) -> Memory:
        cells, touched = dict(self.cells), set(self.touched)
        return Memory(
            self.terms, self.types, self.seed, self.indices, self.own, cells, touched, self.first
        )


def content(t: Type, rng: random.Random, index: bool) -> Value:
    if isinstance(t, RecordType):
        return tuple(content(u, rng, False) for _, u in t.fields)  # type: ignore[misc]
    if t.is_float:
        return rng.uniform(-4, 4)
    if t.kind == "bool":
        return rng.randrange(2)
    if index:
        return rng.randrange(3)
    return rng.randint(0 if t.kind == "uint" else -60, 120)


# --------------------------------------------------------------------------- what is run


@dataclass(slots=True)
class Run:
    """Memory and parameters of one run.

    allowed   cells that may be touched outside of extents
    strict    others may not be touched where extents are unknown: no condition hides what the source touches
    """

    terms: Terms
    budget: Budget
    memory: Memory
    params: dict[str, Traced]
    allowed: set[Where] | None = None
    strict: bool = True

    @property
    def ints(self) -> dict[str, int]:
        return {n: v for n, (v, _) in self.params.items() if isinstance(v, int)}

    def with_integer(self, name: str, value: int) -> Run:
        params = {**self.params, name: (value, self.terms.number(value, INT64))}
        return Run(self.terms, self.budget, self.memory, params, self.allowed, self.strict)

    def env(self, functions: Sequence[Function], **more: Callable[..., object]) -> Env:
        return Env(
            self.terms,
            self.budget,
            dict(self.params),
            {f.name: f for f in functions},
            **more,  # type: ignore[arg-type]
        )


def run_source(nest: LoopNest, run: Run) -> dict[str, Traced]:
    """The nest as plain loops; the outer scalars' final values."""
    ints = run.ints
    run.budget.needs(work.of_statements(nest.body, ints))
    shapes = {b.name: shape(b, ints) for b in nest.buffers}
    computed = _stored_at_computed_positions(nest.body, {p.name for p in nest.params})

    def load(name: str, index: Index) -> Traced:
        return run.memory.read((name, shapes[name].position(index)))

    def store(name: str, index: Index, x: Traced) -> None:
        if name in computed and None not in shapes[name].extents and not shapes[name].holds(index):
            raise EvaluationError(f"{name}{list(index)} is outside")  # undefined: such data do not count
        run.memory.write((name, shapes[name].position(index)), x)

    env = run.env(nest.functions, load=load, store=store)
    for s in nest.scalars:
        env.variables[s.name] = run.memory.initial((s.name, 0))
    _loops(nest.body, env)
    return {s.name: x for s in nest.scalars if (x := env.variables[s.name]) is not None}


def _loops(body: Sequence[NestStmt], env: Env) -> None:
    for s in body:
        if isinstance(s, If):
            env.budget.spend()
            _loops(s.then if env.truth(s.cond) else s.other, env)  # type: ignore[arg-type] # loops in it
            continue
        if not isinstance(s, Loop):
            env.run((s,))
            continue
        low, high = wrapped(env.integer(s.lower), s.type), env.integer(s.upper)
        values = range(low, high, s.step)
        for i in values:
            env.variables[s.iterator] = (i, env.terms.number(i, s.type))
            _loops(s.body, env)
        last = low + len(values) * s.step
        env.variables[s.iterator] = (last, env.terms.number(last, s.type))


def _stored_at_computed_positions(body: Sequence[NestStmt | Stmt], steady: set[str]) -> set[str]:
    """Arrays; ``steady``: parameters and iterators, of which a position that is not computed is affine."""
    out: set[str] = set()
    for s in body:
        match s:
            case Assign(target=target) if isinstance(base := base_of(target), Load):
                affine = [as_affine(i) for i in base.index]
                if any(a is None or not a.names <= steady for a in affine):
                    out.add(base.buffer)
            case Loop(body=inner, iterator=iterator):
                out |= _stored_at_computed_positions(inner, {*steady, iterator})
            case While(body=inner):
                out |= _stored_at_computed_positions(inner, steady)
            case If(then=then, other=other):
                out |= _stored_at_computed_positions((*then, *other), steady)
            case _:
                pass
    return out


def run_steps(steps: Sequence[Step], run: Run) -> None:
    for s in steps:
        match s:
            case MdhProgram():
                run_program(s, run)
            case HostLoop():
                for n in range(s.size.evaluate(run.ints)):
                    run_steps(s.body, run.with_integer(s.iterator, n))
            case Sequential():
                _run_statements(s, run)


def _run_statements(s: Sequential, run: Run) -> None:
    shapes = {b.name: shape(b, run.ints) for b in s.buffers}

    def load(name: str, index: Index) -> Traced:
        return run.memory.read(_checked(run, name, shapes[name], index))

    def store(name: str, index: Index, x: Traced) -> None:
        run.memory.write(_checked(run, name, shapes[name], index), x)

    run.env(s.functions, load=load, store=store).run(s.body)


def _checked(run: Run, name: str, known: Shape, index: Index) -> Where:
    """Where a cell is; it has to exist."""
    at = (name, known.position(index))
    if run.allowed is None or at in run.allowed or known.holds(index):
        return at
    outside = any(n is not None and not 0 <= i < n for i, n in zip(index, known.extents, strict=True))
    if name in run.memory.own or (outside and run.strict):
        raise Fault(f"{name}{list(index)} is outside of the extents {list(known.extents)}")
    if known.extents and run.strict:
        raise Fault(f"{name}{list(index)} is touched, which the source does not touch")
    return at


# --------------------------------------------------------------------------- one program by definition


@dataclass(slots=True)
class ProgramRun:
    """``now``: what reads see; a snapshot by definition, the memory itself for a stage."""

    program: MdhProgram
    run: Run
    now: Memory

    def __post_init__(self) -> None:
        self.ints = self.run.ints
        self.shapes = {b.name: shape(b, self.ints) for b in self.program.buffers}
        self.dims = [d.name for d in self.program.hom.dims]
        self.sizes = {d.name: d.size.evaluate(self.ints) for d in self.program.hom.dims}
        self.kinds = {d: op.kind for d, op in zip(self.dims, self.program.hom.combine, strict=True)}
        reduced = {d for d in self.dims if self.kinds[d] == "pw"}
        self.kept = [d for d in self.dims if d not in reduced]
        self.positional = [c for c in self.program.hom.domain if not c.names & reduced]
        self.function = self.program.hom.function

    ints: dict[str, int] = field(init=False)
    shapes: dict[str, Shape] = field(init=False)
    dims: list[str] = field(init=False)
    sizes: dict[str, int] = field(init=False)
    kinds: dict[str, str] = field(init=False)
    kept: list[str] = field(init=False)
    positional: list[Constraint] = field(init=False)
    function: CombineFunction | None = field(init=False)

    # ------------------------------------------------------------------ values

    def env(self, point: Mapping[str, int]) -> Env:

        env = self.run.env(
            self.program.functions,
            load=lambda name, index: self.now.read(_checked(self.run, name, self.shapes[name], index)),
        )
        for n, i in point.items():
            env.variables[n] = (i, self.run.terms.number(i, INT64))
        return env

    def cell(self, name: str, index: tuple[Affine, ...], point: Mapping[str, int]) -> Where:
        known = {**self.ints, **point}
        return _checked(self.run, name, self.shapes[name], tuple(a.evaluate(known) for a in index))

    def at(self, point: Mapping[str, int]) -> Values:
        """The scalar function's value."""
        env = self.scalar_env(point)
        return tuple(env.value(e) for e in self.program.hom.scalar.results)

    def scalar_env(self, point: Mapping[str, int]) -> Env:
        """Operands and local variables at a point."""
        env, accesses = self.env(point), self.program.inp.accesses
        for a in accesses:
            if not a.conditional:
                self.now.touched.add(self.cell(a.buffer, a.index, point))
        env.operand = lambda k: self.now.read(self.cell(accesses[k].buffer, accesses[k].index, point))
        env.run(self.program.hom.scalar.body)
        return env

    def combined(self, a: Values, b: Values) -> Values:
        f = self.program.hom.function
        if f is None:
            raise Fault("values are combined without an operator")
        env = self.run.env(self.program.functions)
        env.variables |= {f"l{k}": v for k, v in enumerate(a)}
        env.variables |= {f"r{k}": v for k, v in enumerate(b)}
        return tuple(env.value(v) for v in f.values)

    def inside(self, point: Mapping[str, int]) -> bool:
        known = {**self.ints, **point}
        return all(0 <= point[d] < self.sizes[d] for d in self.dims) and all(
            c.holds(known) for c in self.program.hom.domain
        )

    def initial(self, position: Mapping[str, int]) -> Values | None:
        every = self.program.out.initial
        if any(e is None for e in every):
            return None
        env = self.env(self._padded(position))
        return tuple(env.value(e) for e in every if e is not None)

    def _padded(self, position: Mapping[str, int]) -> dict[str, int]:
        return {d: position.get(d, 0) for d in self.dims}

    # ------------------------------------------------------------------ stores

    def finished(
        self, position: Mapping[str, int], value: Values | None, stores: Sequence[Store]
    ) -> list[tuple[Where, Traced]]:
        """What is stored for the combined contributions to a position (None: there are none)."""
        due = [s for s in stores if value is not None or not keeps_if_empty(s, self.program.out.initial)]
        if value is not None or any(isinstance(n, Result) for s in due for n in walk(s.value)):
            value = self.with_initial(position, value)
        return self.writes(position, value, due)

    def with_initial(self, position: Mapping[str, int], value: Values | None) -> Values | None:
        initial = None if self.function is None else self.initial(position)
        if initial is None or value is None:
            return initial if value is None else value
        return self.combined(initial, value)

    def stored(self, s: Store, position: Mapping[str, int], value: Values | None) -> Traced | None:
        """What a store writes at a position; None: nothing."""
        empty = {d for d in self.dims if self.sizes[d] == 0}
        if empty & (variables(s.value) | {n for a in s.index for n in a.names}):
            return None
        if value is None and any(isinstance(n, Result) for n in walk(s.value)):
            return None
        env = self.env(self._padded(position))
        if value is not None:
            env.result = lambda c: value[c]
        return env.converted(env.value(s.value), s.value.type, self.program.buffer(s.buffer).type)

    def writes(
        self, position: Mapping[str, int], value: Values | None, stores: Sequence[Store]
    ) -> list[tuple[Where, Traced]]:
        """All values first, then all cells."""
        point, out = self._padded(position), []
        for s in stores:
            x = self.stored(s, position, value)
            if x is not None:
                out.append((self.cell(s.buffer, s.index, point), x))
        return out

    def positions(self, s: Store) -> Iterator[dict[str, int]]:
        """At which indices of the result a store takes place."""
        sets: list[Sequence[int]] = []
        for d in self.kept:
            n = self.sizes[d]
            if d not in s.at_last:
                sets.append(range(n))
            else:
                sets.append([n - 1] if n > 0 or self.kinds[d] == "ps" else [])
        for i in itertools.product(*sets):
            position = dict(zip(self.kept, i, strict=True))
            self.run.budget.spend()
            known = {**self.ints, **position}
            if all(c.holds(known) for c in self.positional):
                yield position

    def points(self) -> Iterator[dict[str, int]]:
        for i in itertools.product(*(range(self.sizes[d]) for d in self.dims)):
            point = dict(zip(self.dims, i, strict=True))
            self.run.budget.spend()
            if self.inside(point):
                yield point


def run_program(program: MdhProgram, run: Run) -> None:
    """By definition: every point's value, combined per position; then every store."""
    known = ProgramRun(program, run, run.memory.copy())
    run.budget.needs(work.of_program(program, known.ints))
    values: dict[Index, Values] = {}
    for point in known.points():
        key = tuple(point[d] for d in known.kept)
        x = known.at(point)
        values[key] = known.combined(values[key], x) if key in values else x
    scanned = [k for k, d in enumerate(known.kept) if known.kinds[d] == "ps"]
    # maps are composed from the start on, as the source does: terms know no distributive law
    commutes = known.function is None or known.function.commutative

    def result(position: Mapping[str, int]) -> Values | None:
        key = tuple(position[d] for d in known.kept)
        if not scanned:
            return values.get(key)
        ends = [range(key[k] + 1) if k in scanned else (key[k],) for k in range(len(key))]
        found = [values[i] for i in itertools.product(*ends) if i in values]
        start = known.initial(position) if found and not commutes else None
        return reduce(known.combined, found if start is None else [start, *found]) if found else None

    written: dict[Where, Traced] = {}
    for s in program.out.stores:
        for position in known.positions(s):
            whole = result(position)
            started = whole is not None and not commutes and known.initial(position) is not None
            finished = known.writes if started else known.finished
            for at, y in finished(position, whole, (s,)):
                if at in written and written[at][1] != y[1]:
                    raise Fault(f"two values are stored in {at[0]} at {at[1]}")
                written[at] = y
    run.memory.touched |= known.now.touched
    for at, y in written.items():
        run.memory.write(at, y)


# --------------------------------------------------------------------------- stages of a program


def run_stages(program: MdhProgram, lowered: Lowered, run: Run) -> None:
    """A scan in several stages is not run where what it goes with is empty, but stores initial values."""
    stores = program.out.stores
    final = [d for d in program.hom.dims_of("ps") if all(d.name in s.at_last for s in stores)]
    gone = [*program.hom.dims_of("pw"), *final]
    scans = len(lowered.stages) > 1 and bool(program.hom.dims_of("ps"))
    if scans and any(not d.size.evaluate(run.ints) for d in gone):
        run_program(program, run)
        return
    for stage in lowered.stages:
        params = dict(run.params)
        here = Run(run.terms, run.budget, run.memory, params, run.allowed, run.strict)
        for d in stage.program.hom.dims:
            here = here.with_integer(f"{d.name}_size", d.size.evaluate(run.ints))
        known = ProgramRun(stage.program, here, run.memory)
        if isinstance(stage, ScanNest):
            _run_scan(stage, known)
        elif isinstance(stage, HistogramNest):
            _run_histogram(stage, known)
        elif stage.keyed is not None and all(known.sizes.values()):
            _run_keyed(stage.program, stage.keyed, known)
        elif all(known.sizes[d] for d in known.kept):
            _run_nest(stage, known)


def _run_nest(nest: Nest, known: ProgramRun) -> None:
    program, memory = nest.program, known.run.memory
    stores = program.out.stores
    if any(not known.sizes[d] for d in known.dims):
        for position in _every_position(known):
            for at, x in known.finished(position, None, _due(known, stores, position)):
                memory.write(at, x)
        return
    scope = nest.accumulate if known.function is not None else len(nest.loops)
    reduced = {d for d in known.dims if known.kinds[d] == "pw"}
    threads = [k for k in range(*nest.threads) if nest.loops[k].dim in reduced]
    kept: dict[tuple[Index, Index], Values] = {}  # part and position
    for outer in _trips(nest, known, 0, scope, {}, ()):
        tile: dict[Index, Values | None] = {}
        for inner in _trips(nest, known, scope, len(nest.loops), *outer):
            point = {d: inner[0].get(d, 0) for d in known.dims}
            key = tuple(point[d] for d in known.kept)
            if not all(c.holds({**known.ints, **point}) for c in known.positional):
                continue
            tile.setdefault(key, None)
            if known.inside(point):
                new, old = known.at(point), tile[key]
                tile[key] = new if old is None else known.combined(old, new)
        part = tuple(outer[1][k] for k in threads if k < len(outer[1]))
        for key, value in tile.items():
            position = dict(zip(known.kept, key, strict=True))
            if nest.results == "direct":
                for at, x in known.finished(position, value, _due(known, stores, position)):
                    memory.write(at, x)
            elif value is not None:
                slot = (part if nest.results == "parts" else (), key)
                first = slot not in kept
                if first and nest.results == "in place":
                    initial = known.initial(position)
                    value = value if initial is None else known.combined(initial, value)
                elif not first:
                    value = known.combined(kept[slot], value)
                kept[slot] = value
    if nest.results == "direct":
        return
    for position in _every_position(known):
        key = tuple(position[d] for d in known.kept)
        parts = [v for (_, k), v in kept.items() if k == key]
        whole = reduce(known.combined, parts) if parts else None
        due = _due(known, stores, position)
        seeded = nest.results == "in place" and whole is not None
        for at, x in known.writes(position, whole, due) if seeded else known.finished(position, whole, due):
            memory.write(at, x)


def _trips(
    nest: Nest,
    known: ProgramRun,
    first: int,
    last: int,
    at: dict[str, int],
    numbers: Index,
    ends: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[dict[str, int], Index]]:
    """Indices and iteration numbers of loops ``first`` to ``last``, clipped at the sizes.

    Parts of dimensions that are divided at run time are cut here and there: ``ends`` says where the part ends
    that a loop inside of it goes through.
    """
    if first == last:
        yield at, numbers
        return
    x = nest.loops[first]
    start, size, n = at.get(x.dim, 0), known.sizes.get(x.dim, 0), 0
    if nest.threads[0] <= first < nest.threads[1] and x.dim in nest.divided:
        unit = next(k for k in range(first + 1, len(nest.loops)) if nest.loops[k].dim == x.dim)
        for n, (begin, end) in enumerate(_cut(size, nest.loops[unit].size, x.size)):
            known.run.budget.spend()
            here, inner = {**at, x.dim: begin}, {**ends, unit: end}
            yield from _trips(nest, known, first + 1, last, here, (*numbers, n), inner)
        return
    size = min(size, ends.get(first, size))
    while (x.count is None or n < x.count) and start + n * x.size < size:
        known.run.budget.spend()
        here = {**at, x.dim: start + n * x.size}
        yield from _trips(nest, known, first + 1, last, here, (*numbers, n), ends)
        n += 1
        if x.size < 1 and n > size:
            raise Fault(f"a loop over {x.dim} does not advance")


def _cut(size: int, unit: int, most: int) -> Iterator[tuple[int, int]]:
    """Parts of one unit and of as many as there may be, in turn."""
    begin, length = 0, unit
    while begin < size:
        yield begin, begin + length
        begin, length = begin + length, unit + most - length


def _every_position(known: ProgramRun) -> Iterator[dict[str, int]]:
    for i in itertools.product(*(range(known.sizes[d]) for d in known.kept)):
        position = dict(zip(known.kept, i, strict=True))
        known.run.budget.spend()
        if all(c.holds({**known.ints, **position}) for c in known.positional):
            yield position


def _due(known: ProgramRun, stores: Sequence[Store], position: Mapping[str, int]) -> list[Store]:
    """The stores that take place at a position."""
    return [s for s in stores if all(position[d] == known.sizes[d] - 1 for d in s.at_last)]


def _run_scan(scan: ScanNest, known: ProgramRun) -> None:
    program, memory = scan.program, known.run.memory
    rows = [d for d in known.dims if d != scan.dim]
    everywhere = [s for s in program.out.stores if scan.dim not in s.at_last]
    at_end = [s for s in program.out.stores if scan.dim in s.at_last]
    n = known.sizes[scan.dim]
    if n == 0 and all(keeps_if_empty(s, program.out.initial) for s in at_end):
        return
    for i in itertools.product(*(range(known.sizes[d]) for d in rows)):
        row = dict(zip(rows, i, strict=True))
        if not all(c.holds({**known.ints, **row, scan.dim: 0}) for c in known.positional):
            continue
        carry = known.initial({**row, scan.dim: 0})
        for k in range(n):
            position = {**row, scan.dim: k}
            x = known.at(position)
            carry = x if carry is None else known.combined(carry, x)
            for at, y in known.writes(position, carry, _due(known, everywhere, position)):
                memory.write(at, y)
        position = {**row, scan.dim: n - 1}
        others = [s for s in at_end if all(d == scan.dim or row[d] == known.sizes[d] - 1 for d in s.at_last)]
        for at, y in known.writes(position, carry, others):
            memory.write(at, y)


def _run_histogram(nest: HistogramNest, known: ProgramRun) -> None:
    """Points that pass all tests, at the cells that the tests name; private cells combined set by set."""
    if not all(known.sizes.values()):
        return
    (store,) = nest.program.out.stores
    share = -(-known.sizes[nest.dims[0]] // nest.copies) if nest.copies else 1
    parts: dict[tuple[int, int, Index], Values] = {}  # by part and set of cells
    for i in itertools.product(*(range(known.sizes[d]) for d in nest.dims)):
        known.run.budget.spend()
        point = dict(zip(nest.dims, i, strict=True))
        if not all(c.holds({**known.ints, **point}) for c in nest.program.hom.domain):
            continue
        env = known.scalar_env(known._padded(point))
        for test in nest.form.tests:
            value = env.value(test.value)[0]
            if test.dim and isinstance(value, int) and 0 <= value < known.sizes[test.dim]:
                point[test.dim] = value
            elif test.dim or not value:
                break
        else:
            element = (env.value(nest.form.element),)
            if nest.copies:
                key = i[0] // share, i[-1] % nest.ways, tuple(point[d] for d in known.kept)
                parts[key] = known.combined(parts[key], element) if key in parts else element
            else:
                _add(known, store, point, element)
    for key in sorted(parts):
        _add(known, store, dict(zip(known.kept, key[-1], strict=True)), parts[key])


def _run_keyed(program: MdhProgram, form: Keyed, known: ProgramRun) -> None:
    """A table of what points contribute by value, in which every cell looks its key up."""
    table: dict[object, Values] = {}
    points = [d.name for d in program.hom.dims_of("pw")]
    first = dict.fromkeys(known.kept, 0)  # nothing of a point depends on the cell
    for i in itertools.product(*(range(known.sizes[d]) for d in points)):
        known.run.budget.spend()
        env = known.scalar_env(known._padded({**first, **dict(zip(points, i, strict=True))}))
        if all(env.value(t.value)[0] for t in form.tests):
            value, element = env.value(form.value)[0], (env.value(form.element),)
            table[value] = known.combined(table[value], element) if value in table else element
    (store,) = program.out.stores
    for c in itertools.product(*(range(known.sizes[d]) for d in known.kept)):
        at = dict(zip(known.kept, c, strict=True))
        key = known.scalar_env(known._padded({**dict.fromkeys(points, 0), **at})).value(form.key)[0]
        if key in table:
            _add(known, store, at, table[key])


def _add(known: ProgramRun, store: Store, position: Mapping[str, int], value: Values) -> None:
    """Combine into what the cell holds now."""
    initial = known.initial(position)
    whole = value if initial is None else known.combined(initial, value)
    for at, x in known.writes(position, whole, (store,)):
        known.run.memory.write(at, x)


# --------------------------------------------------------------------------- comparing


def free_operations(steps: Sequence[Step]) -> set[str]:
    """Operations that declared operators are made of."""
    out: set[str] = set()
    for p in _programs(steps):
        for e in () if p.hom.function is None else p.hom.function.values:
            for n in walk(e):
                if isinstance(n, Binary) and n.op in ("+", "*"):
                    out.add(n.op)
                elif isinstance(n, Call):
                    out.add(n.function)
    return out


def _programs(steps: Sequence[Step]) -> Iterator[MdhProgram]:
    for s in steps:
        if isinstance(s, MdhProgram):
            yield s
        elif isinstance(s, HostLoop):
            yield from _programs(s.body)


def chooses(body: Sequence[NestStmt | Stmt]) -> bool:
    """Whether conditions decide what is computed, or data decides how far loops go."""
    for s in body:
        if isinstance(s, If | While) or (isinstance(s, Loop) and (_reads(s) or chooses(s.body))):
            return True
        if not isinstance(s, Loop) and any(_lazy(n) for e in stmt_exprs((s,)) for n in walk(e)):
            return True
    return False


def _reads(s: Loop) -> bool:
    return any(isinstance(n, Load) for e in (s.lower, s.upper) for n in walk(e))


def _lazy(e: Expr) -> bool:
    return isinstance(e, Select) or (isinstance(e, Binary) and e.op in LOGICAL)


@dataclass(frozen=True, slots=True)
class Difference:
    """``certain``: numbers differ, or the computations do though no two values were equally large."""

    text: str
    certain: bool


def difference(terms: Terms, expected: Memory, found: Memory, names: Sequence[str]) -> Difference | None:
    """A cell of these buffers whose computations differ; one whose number differs, too, if there is one."""
    only = set(names)
    every = {at for m in (expected, found) for at in m.cells if at[0] in only}
    first: Difference | None = None
    for at in sorted(every, key=lambda a: (a[0], a[1] if isinstance(a[1], tuple) else (a[1],))):
        x, y = (m.cells[at] if at in m.cells else m.initial(at) for m in (expected, found))
        if x[1] != y[1]:
            text = f"{at[0]}[{at[1]}] is {terms.text(y[1])}, not {terms.text(x[1])}"
            if not terms.ties or not alike(x[0], y[0]):
                return Difference(text, True)
            first = first or Difference(text, False)
    return first


def parameter_values(
    names: Sequence[tuple[str, Type]], rng: random.Random, n: int | None
) -> dict[str, Value]:
    """Integer parameters are ``n``, or small numbers that mostly differ and now and then are 0."""
    out: dict[str, Value] = {}
    for name, t in names:
        if isinstance(t, ScalarType) and t.is_integer:
            out[name] = rng.randint(0, 5) if n is None else n
        else:
            out[name] = content(t, rng, False)
    return out
