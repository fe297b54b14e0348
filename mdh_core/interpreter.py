"""What a high-level program means, by running it.  THE DEFINITION: slow and obvious.

    run   = out_view ∘ md_hom ∘ inp_view                                        (mdh.md 2.4)
    md_hom = the scalar function at every point, giving an MDA of one point; then these MDAs
             combined dimension by dimension as each ``CombineOp`` says           (mdh.md 2.1, 2.2)

A value of an MDA is the tuple of the components' values.  With ``split`` the index sets are
divided at random, into scattered subsets too, and the parts' results recombined; that any division
gives the same result is the homomorphic property, so a program whose operators lack the laws
shows a difference here.  Where the function does not commute, parts are contiguous and in order.

Domains.  A point outside the domain has no value: its MDA has the index sets of a point and no values,
and combining takes the other part's.  A position of the result has a value if a point contributed.

Empty dimensions.  Nothing is stored where a ``cc`` dimension is empty, and nothing through a store that
needs an index of an empty ``ps`` dimension.  Where a ``pw`` dimension is empty, the result is ``initial``;
the final value (``at_last``) of an empty ``ps`` dimension is ``initial``, too.  A store whose value
needs a component that has no value then (no ``initial``) does not take place, and neither does one that
would give a cell its own value (``C[i] += …``: where the loop does not run, there need not be a cell; and
``C[i] = c ? x : C[i]`` where ``c`` does not hold).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, assert_never

from mdh_core.combine import CombineFunction, CombineOp
from mdh_core.evaluate import Env, EvaluationError, Value, convert_to, evaluate, execute, zero
from mdh_core.expr import (
    Affine,
    Constraint,
    Expr,
    Function,
    Load,
    Result,
    as_affine,
    stmt_exprs,
    variables,
    walk,
)
from mdh_core.ir import Access, HostLoop, MdhProgram, Sequential, Step, Store, keeps_if_empty
from mdh_core.polytope import Box, reach

_UNTOUCHED: Value = ()  # what a cell that does not exist holds: no number, so that nothing computes with it
Index = tuple[int, ...]
Values = tuple[Value, ...]  # one per component

# --------------------------------------------------------------------------- buffers


@dataclass(slots=True)
class BufferValue:
    """The contents of a buffer: elements in memory order, extents, and elements per step.

    A scalar has extents ``()`` and one element.  ``strides`` are those of the row-major layout
    unless given.
    """

    data: list[Value]
    extents: Index
    strides: Index = ()

    def __post_init__(self) -> None:
        self.strides = self.strides or row_major(self.extents)
        assert len(self.strides) == len(self.extents)
        assert len(self.data) >= cells(self.extents, self.strides), (len(self.data), self.extents)

    def position(self, index: Index) -> int:
        """Where the element lies in ``data``; raises outside the extents."""
        inside = len(index) == len(self.extents) and all(
            0 <= i < n for i, n in zip(index, self.extents, strict=True)
        )
        if not inside:
            raise EvaluationError(f"index {index} is outside the extents {self.extents}")
        return sum(i * s for i, s in zip(index, self.strides, strict=True))

    def __getitem__(self, index: Index) -> Value:
        return self.data[self.position(index)]

    def __setitem__(self, index: Index, value: Value) -> None:
        self.data[self.position(index)] = value

    def copy(self) -> BufferValue:
        return BufferValue(list(self.data), self.extents, self.strides)


def row_major(extents: Index) -> Index:
    """
    >>> row_major((2, 3, 5))
    (15, 5, 1)
    """
    return tuple(math.prod(extents[d + 1 :]) for d in range(len(extents)))


def cells(extents: Index, strides: Index) -> int:
    """Number of elements from the first to the last element of a buffer; 0 for an empty one."""
    if 0 in extents:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(extents, strides, strict=True))


def integers(params: Mapping[str, Value]) -> dict[str, int]:
    """The integer parameters: those that sizes and index functions may mention."""
    return {name: value for name, value in params.items() if isinstance(value, int)}


def empty_buffers(program: MdhProgram, params: Mapping[str, Value]) -> dict[str, BufferValue]:
    """Zero-filled buffers that are as large as the program needs them."""
    out = {}
    for name, extents in required_extents(program, params)[0].items():
        b = program.buffer(name)
        strides = row_major(extents)
        if b.strides is not None:
            strides = tuple(s.evaluate(integers(params)) for s in b.strides)
        out[name] = BufferValue([zero(b.type)] * cells(extents, strides), extents, strides)
    return out


# --------------------------------------------------------------------------- MDAs and how they combine


@dataclass(frozen=True, slots=True)
class Mda:
    """A multi-dimensional array: one finite index set per dimension, a value for each index in the domain."""

    index_sets: tuple[tuple[int, ...], ...]  # each sorted
    values: dict[Index, Values]


class Combine(Protocol):
    """A combine function on the values of all components."""

    def __call__(self, a: Values, b: Values) -> Values: ...


def combine_function(
    f: CombineFunction, functions: Sequence[Function], trap_overflow: bool = False
) -> Combine:
    """The operator's function as a Python function."""
    table = {g.name: g for g in functions}

    def apply(a: Values, b: Values) -> Values:
        named: dict[str, Value | None] = {f"l{c}": v for c, v in enumerate(a)}
        named |= {f"r{c}": v for c, v in enumerate(b)}
        env = Env(named, table, trap_overflow=trap_overflow)
        return tuple(evaluate(v, env) for v in f.values)

    return apply


def combine(op: CombineOp, d: int, a: Mda, b: Mda, f: Combine) -> Mda:
    """``a ⊛ b`` in dimension ``d``; the index sets agree elsewhere (mdh.md 2.1)."""
    p, q = a.index_sets[d], b.index_sets[d]
    others = tuple(i for e, i in enumerate(a.index_sets) if e != d)
    assert others == tuple(i for e, i in enumerate(b.index_sets) if e != d)
    if op.kind == "pw":
        both = {i: f(v, b.values[i]) for i, v in a.values.items() if i in b.values}
        return Mda(a.index_sets, {**a.values, **b.values, **both})
    assert not set(p) & set(q), "parts of an MDA are disjoint"
    union = (*a.index_sets[:d], tuple(sorted(p + q)), *a.index_sets[d + 1 :])
    if op.kind == "cc":
        return Mda(union, {**a.values, **b.values})
    scanned = {i: scanned_at(d, i, a, b) for i in itertools.product(*union)}
    return Mda(union, {i: reduce(f, operands) for i, operands in scanned.items() if operands})


def scanned_at(d: int, i: Index, a: Mda, b: Mda) -> list[Values]:
    """What a prefix sum combines at ``i``: each part's value at its largest index that is not beyond.

    A part that lies entirely behind ``i`` contributes nothing; the left operand comes first.
    """
    operands = []
    for part in (a, b):
        before = [(*i[:d], n, *i[d + 1 :]) for n in part.index_sets[d] if n <= i[d]]
        operands += [part.values[j] for j in before if j in part.values][-1:]
    return operands


# --------------------------------------------------------------------------- running a program


def run_steps(
    steps: Iterable[Step],
    params: Mapping[str, Value],
    buffers: Mapping[str, BufferValue],
    *,
    split: random.Random | None = None,
    max_iterations: int = 1_000_000,
) -> None:
    """Run steps one after the other; each sees what those before have stored."""
    for step in steps:
        match step:
            case MdhProgram():
                run(step, params, buffers, split=split, max_iterations=max_iterations)
            case HostLoop(iterator=iterator, size=size, body=body):
                for n in range(size.evaluate(integers(params))):
                    inside = {**params, iterator: n}
                    run_steps(body, inside, buffers, split=split, max_iterations=max_iterations)
            case Sequential(body=body, functions=functions):
                env = Env(
                    dict(params),
                    {f.name: f for f in functions},
                    load=lambda buffer, index: buffers[buffer][index],
                    store=lambda buffer, index, value: buffers[buffer].__setitem__(index, value),
                    max_iterations=max_iterations,
                )
                execute(body, env)
            case _:
                assert_never(step)


def run(
    program: MdhProgram,
    params: Mapping[str, Value],
    buffers: Mapping[str, BufferValue],
    *,
    split: random.Random | None = None,
    max_iterations: int = 1_000_000,
) -> None:
    """Update the output buffers in place.

    ``params`` has a value for every parameter of the program and ``buffers`` one for every buffer.
    With ``split``, parts are formed at random before they are combined; the result is the same.
    """
    machine = ProgramRun(program, params, buffers, max_iterations)
    result = machine.md_hom(split) if all(machine.index_sets) else None
    for (name, position), value in machine.out_view(result).items():
        buffers[name].data[position] = value


class ProgramRun:
    """A program together with the values it reads: a copy, as all reads come before all writes."""

    def __init__(
        self,
        program: MdhProgram,
        params: Mapping[str, Value],
        buffers: Mapping[str, BufferValue],
        max_iterations: int,
    ) -> None:
        self.program = program
        self.params: dict[str, Value | None] = dict(params)
        self.ints = integers(params)
        self.old = {b.name: buffers[b.name].copy() for b in program.buffers}
        self.names = tuple(d.name for d in program.hom.dims)
        self.index_sets = tuple(tuple(range(d.size.evaluate(self.ints))) for d in program.hom.dims)
        reduced = {d.name for d in program.hom.dims_of("pw")}
        # which positions there are, and which points contribute to a position
        self.positional = [c for c in program.hom.domain if not c.names & reduced]
        self.contributing = [c for c in program.hom.domain if c.names & reduced]
        self.functions = {f.name: f for f in program.functions}
        self.max_iterations = max_iterations
        self.combine = [
            _no_function if op.function is None else combine_function(op.function, program.functions)
            for op in program.hom.combine
        ]

    # -- inp_view and the scalar function

    def at_point(self, i: Index) -> Mda:
        """The scalar function's value at a point, as an MDA of this one point."""
        sets = tuple(op.index_set((n,)) for op, n in zip(self.program.hom.combine, i, strict=True))
        if not self.in_domain(i):
            return Mda(sets, {})
        point = self.named(i)
        accesses = self.program.inp.accesses
        value = self.scalar(i, lambda k: self.operand(accesses[k], point))
        return Mda(sets, {tuple(s[0] for s in sets): value})

    def scalar(self, i: Index, operand: Callable[[int], Value]) -> Values:
        """The scalar function's value for given operands."""
        env = self.env(i)
        env.operand = operand
        execute(self.program.hom.scalar.body, env)
        return tuple(evaluate(e, env) for e in self.program.hom.scalar.results)

    def in_domain(self, i: Index) -> bool:
        point = self.named(i)
        return all(c.holds(point) for c in (*self.positional, *self.contributing))

    def named(self, i: Index) -> dict[str, int]:
        """The integer parameters and the indices of a point by name."""
        return {**self.ints, **dict(zip(self.names, i, strict=True))}

    def read(self, buffer: str, index: tuple[Affine, ...], point: dict[str, int]) -> Value:
        return self.old[buffer][tuple(a.evaluate(point) for a in index)]

    def operand(self, a: Access, point: dict[str, int]) -> Value:
        """A read; the cell of a store may be missing where the store would leave it as it was."""
        try:
            return self.read(a.buffer, a.index, point)
        except EvaluationError:
            if all((s.buffer, s.index) != (a.buffer, a.index) for s in self.program.out.stores):
                raise
            return _UNTOUCHED

    def env(self, i: Index) -> Env:
        named: dict[str, Value | None] = {**self.params, **dict(zip(self.names, i, strict=True))}
        return Env(
            named,
            self.functions,
            load=lambda buffer, index: self.old[buffer][index],
            max_iterations=self.max_iterations,
        )

    # -- md_hom

    def md_hom(self, split: random.Random | None) -> Mda:
        return self.fold(()) if split is None else self.fold_parts(self.index_sets, split)

    def fold(self, i: Index) -> Mda:
        """⊛_{i_d} … ⊛_{i_D} of the scalar function's values, the first dimensions being fixed."""
        d = len(i)
        if d == len(self.names):
            return self.at_point(i)
        parts = (self.fold((*i, n)) for n in self.index_sets[d])
        return reduce(lambda a, b: self.combined(d, a, b), parts)

    def fold_parts(self, index_sets: tuple[tuple[int, ...], ...], rng: random.Random) -> Mda:
        """h(a1 ++_d a2) = h(a1) ⊛_d h(a2) with ``d`` and the two parts taken at random."""
        divisible = [d for d, indices in enumerate(index_sets) if len(indices) > 1]
        if not divisible:
            return self.at_point(tuple(indices[0] for indices in index_sets))
        d = rng.choice(divisible)
        function = self.program.hom.combine[d].function
        p, q = _two_parts(index_sets[d], rng, in_order=function is not None and not function.commutative)
        a, b = (self.fold_parts((*index_sets[:d], part, *index_sets[d + 1 :]), rng) for part in (p, q))
        return self.combined(d, a, b)

    def combined(self, d: int, a: Mda, b: Mda) -> Mda:
        return combine(self.program.hom.combine[d], d, a, b, self.combine[d])

    # -- out_view

    def out_view(self, result: Mda | None) -> dict[tuple[str, int], Value]:
        """What is stored where; a cell that is stored twice must get the same value."""
        cells: dict[tuple[str, int], Value] = {}
        for store in self.program.out.stores:
            for i in self.positions(store):
                value = self.stored(store, i, result)
                if value is None:
                    continue
                point = self.named(i)
                index = tuple(a.evaluate(point) for a in store.index)
                cell = (store.buffer, self.old[store.buffer].position(index))
                if not same(cells.setdefault(cell, value), value):
                    raise EvaluationError(f"two values are stored in `{store.buffer}` at {index}")
        return cells

    def positions(self, store: Store) -> Iterator[Index]:
        """The indices of the result that a store looks at; 0 in reduced dimensions.

        In an ``at_last`` dimension that is the last one; -1 (before the first) for an empty ``ps``.
        Positions outside the domain are left out.
        """
        sets: list[tuple[int, ...]] = []
        for name, op, indices in zip(self.names, self.program.hom.combine, self.index_sets, strict=True):
            if op.kind == "pw":
                sets.append((0,))
            elif name not in store.at_last:
                sets.append(indices)
            elif op.kind == "ps":
                sets.append((len(indices) - 1,))
            else:
                sets.append(indices[-1:])
        return (i for i in itertools.product(*sets) if all(c.holds(self.named(i)) for c in self.positional))

    def stored(self, store: Store, i: Index, result: Mda | None) -> Value | None:
        """The value of a store at a position, or None where it has none."""
        empty = {name for name, indices in zip(self.names, self.index_sets, strict=True) if not indices}
        if empty & (variables(store.value) | {n for a in store.index for n in a.names}):
            return None
        combined = None if result is None else result.values.get(i)
        if combined is None and keeps_if_empty(store, self.program.out.initial):
            return None
        needed = {e.component for e in walk(store.value) if isinstance(e, Result)}
        components = self.with_initial(i, combined, needed)
        if any(components[c] is None for c in needed):
            return None
        env = self.env(i)
        env.result = lambda c: _present(components[c])
        if store.plain is not None and components[store.plain] is _UNTOUCHED:
            return None
        return convert_to(evaluate(store.value, env), self.program.buffer(store.buffer).type)

    def with_initial(
        self, i: Index, value: Values | None, needed: Collection[int]
    ) -> tuple[Value | None, ...]:
        """``initial ⊕ value`` per component; a component without ``initial`` is as it was.

        Without a value, initial ones that are not ``needed`` are left out: their cells may not exist.
        """
        env = self.env(i)
        if value is None:
            every = enumerate(self.program.out.initial)
            return tuple(None if e is None or k not in needed else evaluate(e, env) for k, e in every)
        initial = tuple(None if e is None else evaluate(e, env) for e in self.program.out.initial)
        f = self.program.hom.function
        if f is None or all(v is None for v in initial):
            return value
        filled = tuple(b if a is None else a for a, b in zip(initial, value, strict=True))
        both = combine_function(f, self.program.functions)(filled, value)
        return tuple(v if a is None else c for a, v, c in zip(initial, value, both, strict=True))


def _two_parts(indices: Index, rng: random.Random, in_order: bool) -> tuple[Index, Index]:
    """Two non-empty parts: divided at one point, or scattered; in either order unless ``in_order``."""
    if in_order or rng.random() < 0.5:
        cut = rng.randrange(1, len(indices))
        parts = [indices[:cut], indices[cut:]]
        if in_order:
            return parts[0], parts[1]
    else:
        chosen = set(rng.sample(indices, rng.randrange(1, len(indices))))
        parts = [tuple(i for i in indices if (i in chosen) == side) for side in (True, False)]
    rng.shuffle(parts)
    return parts[0], parts[1]


def _no_function(a: Values, b: Values) -> Values:
    raise AssertionError("cc has no function")


def _present(value: Value | None) -> Value:
    assert value is not None
    return value


def same(a: Value | None, b: Value | None) -> bool:
    """Equal, NaN being equal to itself."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (a != a and b != b)


# --------------------------------------------------------------------------- extents


def deduced_extents(program: MdhProgram, params: Mapping[str, Value]) -> dict[str, Index]:
    """Per buffer, 1 + the largest index that an access, store or load reaches (mdh.md 2.3).

    0 where nothing is reached (empty dimensions).  Exact for affine indices; a conditional access
    counts as if its condition always held.  An index that is computed from data counts as reaching 0.
    """
    reached: dict[str, list[int]] = {b.name: [0] * b.rank for b in program.buffers}
    for use in _uses(program, integers(params)):
        for d, (_, high) in enumerate(use.ranges):
            reached[use.buffer][d] = max(reached[use.buffer][d], high + 1)
    return {name: tuple(extents) for name, extents in reached.items()}


def required_extents(program: MdhProgram, params: Mapping[str, Value]) -> tuple[dict[str, Index], list[str]]:
    """The declared extents where there are any, else the deduced ones; and what does not fit.

    The second value names each unconditional use beyond a declared extent or below index 0.
    """
    ints = integers(params)
    deduced = deduced_extents(program, params)
    required = {
        b.name: tuple(
            n if e is None else max(0, e.evaluate(ints))
            for n, e in zip(deduced[b.name], b.extents, strict=True)
        )
        for b in program.buffers
    }
    problems = [
        f"`{use.buffer}` is used at {low}..{high} in dimension {d}, its extent is {extent}"
        for use in _uses(program, ints)
        for d, ((low, high), extent) in enumerate(zip(use.ranges, required[use.buffer], strict=True))
        if not use.conditional and not 0 <= low <= high < extent
    ]
    return required, list(dict.fromkeys(problems))


@dataclass(frozen=True, slots=True)
class _Use:
    buffer: str
    ranges: tuple[tuple[int, int], ...]  # smallest and largest index per dimension
    conditional: bool


def _uses(program: MdhProgram, params: dict[str, int]) -> Iterator[_Use]:
    """Every place that touches a buffer, with the indices that it reaches; none if it never runs."""
    sizes, hom = program.sizes(params), program.hom
    everything = {name: (0, n - 1) for name, n in sizes.items()}
    known = {name: Affine.number(n) for name, n in params.items() if name not in sizes}
    domain = [c.substitute(known) for c in hom.domain]
    scalar = (*stmt_exprs(hom.scalar.body), *hom.scalar.results)
    for access in (*program.inp.accesses, *(a for e in scalar for a in _gathers(e, {*sizes, *known}))):
        yield from _use(access, everything, known, domain)
    reduced = {d.name for d in hom.dims_of("pw")}
    results = {name: ends for name, ends in everything.items() if name not in reduced}
    positional = [c for c in domain if not c.names & reduced]
    loads = [e for initial in program.out.initial if initial is not None for e in _loads(initial)]
    for store in program.out.stores:
        last = {n: (sizes[n] - 1, sizes[n] - 1) for n in store.at_last}
        mentioned = {n for a in store.index for n in a.names} | variables(store.value)
        if all(sizes.get(n, 1) for n in mentioned):
            box = {**results, **last}
            scanned = {d.name for d in hom.dims_of("ps")} & set(store.at_last)  # these may be empty
            if not all(sizes[n] or n in scanned for n in box):
                continue
            for use in (Access(store.buffer, store.index), *_loads(store.value), *loads):
                yield from _use(use, box, known, positional)


def _loads(e: Expr) -> Iterator[Access]:
    """The loads of an expression whose index is affine, as accesses."""
    for load in walk(e):
        if isinstance(load, Load):
            index = [as_affine(i) for i in load.index]
            yield Access(load.buffer, tuple(a for a in index if a is not None))
            assert None not in index, f"index of `{load.buffer}` is not affine"


def _gathers(e: Expr, dims: set[str]) -> Iterator[Access]:
    """The loads of a scalar function; an index that is computed from data as 0."""
    for load in walk(e):
        if isinstance(load, Load):
            index = (as_affine(i) for i in load.index)
            known = tuple(a if a is not None and a.names <= dims else Affine() for a in index)
            yield Access(load.buffer, known, conditional=True)


def _use(access: Access, box: Box, known: dict[str, Affine], domain: list[Constraint]) -> Iterator[_Use]:
    """The indices that an access reaches; nothing where the domain is empty."""
    ranges = [reach(a.substitute(known), box, domain) for a in access.index or (Affine(),)]
    found = tuple(r for r in ranges if r is not None)
    if len(found) == len(ranges):
        yield _Use(access.buffer, found if access.index else (), access.conditional)
