"""The certificate of one nest: its steps do what its loops do, and its stages what its steps do.

    nest  ->  steps     terms of both compared at small sizes; dependences for all sizes where they are affine
    steps ->  stages    obligations of ``stages`` for all sizes; terms compared at small sizes

Nothing here is the lifter's or the lowering's own code: it sees their results as data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from certify import stages, traces
from certify.dependences import NotMapped, violated
from certify.host_tiles import tiles_respect
from certify.obligations import CHECKED, PROVED, REFUTED, UNKNOWN, Certificate, Obligation
from certify.operators import identity
from certify.sets import GaveUp, at_least
from certify.smaller import smaller, with_constants
from certify.source import instances
from certify.stages import Known, program_obligations, stage_obligations
from certify.terms import Terms
from certify.traces import Difference
from certify.values import Budget, TooLong, Traced
from lifter.loop_nest import Loop, LoopNest, NestStmt
from lowering.host_tiles import HostTiles
from lowering.lower import Lowered
from mdh_core.conditions import assumed
from mdh_core.evaluate import EvaluationError, Value
from mdh_core.expr import (
    Affine,
    Assign,
    Constraint,
    Declare,
    Expr,
    If,
    Load,
    ScalarType,
    Stmt,
    Type,
    Var,
    While,
    as_affine,
    base_of,
    walk,
)
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Step

SAME = "the steps compute what the nest computes"
DEPENDENCES = "every dependence is respected"
STAGES = "the stages compute the program"
GATHER = "what is read at computed indices is not written"
SIZES = (0, 1, 2, None, 3, None, 4, None, None, None, None, None)  # None: different sizes up to 5
BUDGET = 60_000  # operations of one run
ENOUGH = 150_000  # of all runs of one comparison


def certificate(
    nest: LoopNest,
    steps: Sequence[Step],
    lowered: Sequence[Lowered] = (),
    tiles: Sequence[tuple[HostLoop, HostTiles]] = (),
    fixed: tuple[Sequence[Step], Sequence[Lowered]] = ((), ()),
) -> Certificate:
    """``lowered``: the stages of each program, in the order of the text; none: only steps are examined.

    ``tiles``: of the host loops that have some.  ``fixed``: the steps with constants for sizes, their stages.
    """
    traced = _with_smaller_constants(
        same_computations(nest, steps),
        (nest, tuple(steps)),
        lambda new: same_computations(with_constants(nest, new), with_constants(tuple(steps), new)),
    )
    out = [traced, dependences(nest, steps, traced)]
    touched = _touched(nest)
    own = (
        {b.name for b in buffers_of(steps)} - {b.name for b in nest.buffers} - {x.name for x in nest.scalars}
    )
    tested = tuple(assumed(nest.directive.assume, nest.params))
    programs = list(_placed(steps, tested))
    for k, (program, hosts) in enumerate(programs):
        subject = program.name if len(programs) == 1 else f"{program.name}, program {k + 1}"
        known = Known(hosts, touched, frozenset(own))
        out += _program(program, lowered[k] if k < len(lowered) else None, known, subject)
    if lowered and len(lowered) != len(programs):
        out.append(
            Obligation(
                nest.name, STAGES, REFUTED, "", f"{len(programs)} programs, {len(lowered)} of them lowered"
            )
        )
    for k, ((program, hosts), there) in enumerate(zip(_placed(fixed[0], tested), fixed[1], strict=True)):
        subject = f"{program.name}, known sizes" + ("" if len(programs) == 1 else f", program {k + 1}")
        known = Known(hosts, touched, frozenset(own))
        out += stage_obligations(program, there, known, subject)
        out.append(_all_stages(program, there, known, subject))
    for loop, cut in tiles:
        out.append(tiles_respect(loop, cut, f"{nest.name}, loop {loop.source_name or loop.iterator}"))
    return Certificate(tuple(out))


def _all_stages(program: MdhProgram, lowered: Lowered, known: Known, subject: str) -> Obligation:
    return _with_smaller_constants(
        same_stages(program, lowered, known, subject),
        (program, lowered, known.rows),
        lambda new: same_stages(
            with_constants(program, new),
            with_constants(lowered, new),
            replace(known, rows=with_constants(known.rows, new)),
            subject,
        ),
    )


def _with_smaller_constants(
    found: Obligation, values: tuple[object, ...], again: Callable[[Mapping[int, int]], Obligation]
) -> Obligation:
    """What could not be run at its constant sizes is run at smaller ones; only agreement counts there."""
    if found.status != UNKNOWN:
        return found
    detail = found.detail
    for new in smaller(*values):
        other = again(new)
        if other.status == CHECKED:
            shown = ", ".join(f"{v} for {n}" for n, v in new.items())
            return replace(other, subject=found.subject, detail=f"{other.detail}, constants smaller: {shown}")
        if other.status == REFUTED:
            detail = f"{found.detail}; with smaller constants {other.detail}"
    return replace(found, detail=detail)


def _placed(
    steps: Sequence[Step], hosts: tuple[Constraint, ...]
) -> Iterator[tuple[MdhProgram, tuple[Constraint, ...]]]:
    """Each program with what is known about the iterators of the host loops around it."""
    for s in steps:
        if isinstance(s, MdhProgram):
            yield s, hosts
        elif isinstance(s, HostLoop):
            i = Affine.of(s.iterator)
            yield from _placed(s.body, (*hosts, at_least(i), at_least(s.size.span - 1 - i * s.size.step)))


def _touched(
    nest: LoopNest,
) -> tuple[tuple[str, tuple[tuple[tuple[Constraint, ...], tuple[Affine, ...]], ...]], ...]:
    """The cells that the source touches (where a condition on data holds, too), by buffer."""
    out: dict[str, list[tuple[tuple[Constraint, ...], tuple[Affine, ...]]]] = {}
    for x in instances(nest):
        for cell in (*x.reads, *([x.write] if x.write is not None else [])):
            if cell.index is not None and not cell.scalar:
                out.setdefault(cell.name, []).append((x.rows, cell.index))
    return tuple((name, tuple(uses)) for name, uses in out.items())


def _gathers(program: MdhProgram, subject: str) -> Iterator[Obligation]:
    loaded = stages.indirect(program)
    if loaded:
        written = loaded & {s.buffer for s in program.out.stores}
        if written:
            yield Obligation(subject, GATHER, REFUTED, "", ", ".join(sorted(written)))
        else:
            yield Obligation(subject, GATHER, "proved")


def program_certificate(program: MdhProgram, lowered: Lowered) -> Certificate:
    """Of one program, wherever it comes from."""
    return Certificate(tuple(_program(program, lowered, Known(), program.name)))


def _program(program: MdhProgram, lowered: Lowered | None, known: Known, subject: str) -> list[Obligation]:
    function = program.hom.function
    shown = None if function is None else identity(function, program.functions, subject)
    out = [] if shown is None else [shown]
    out += program_obligations(program, known, subject)
    out += _gathers(program, subject)
    if lowered is not None:
        out += stage_obligations(program, lowered, known, subject)
        out.append(_all_stages(program, lowered, known, subject))
    return out


def dependences(nest: LoopNest, steps: Sequence[Step], traced: Obligation) -> Obligation:
    """For all sizes where every statement has its program; else as the comparison of computations found."""
    try:
        bad = violated(nest, steps)
    except (NotMapped, GaveUp) as why:
        if traced.status == CHECKED:
            return Obligation(
                nest.name, DEPENDENCES, CHECKED, traced.method, f"{traced.detail}; no proof: {why}"
            )
        return Obligation(nest.name, DEPENDENCES, UNKNOWN, "sets", f"{why}")
    if bad is None:
        return Obligation(nest.name, DEPENDENCES, PROVED, "sets")
    again = same_computations(nest, steps, bad.at)
    if traced.status == again.status == CHECKED:
        detail = f"{again.detail}, there too; no proof: {bad}, but the values agree"
        return Obligation(nest.name, DEPENDENCES, CHECKED, again.method, detail)
    return Obligation(nest.name, DEPENDENCES, REFUTED, "sets", str(bad))


# --------------------------------------------------------------------------- comparing computations


def same_computations(
    nest: LoopNest, steps: Sequence[Step], also: Mapping[str, int] | None = None
) -> Obligation:
    """The nest and its steps leave the same terms in every cell and every live scalar.

    ``also``: parameters to start with; if nothing can be run there, nothing else counts.
    """
    types: dict[str, Type] = {b.name: b.type for b in nest.buffers} | {s.name: s.type for s in nest.scalars}
    own = {b.name: b.type for b in buffers_of(steps) if b.name not in types}
    free = traces.free_operations(steps)
    watched = [b.name for b in nest.buffers] + [s.name for s in nest.scalars if s.live_after]
    indices = frozenset(_indirect(nest))
    strict = not traces.chooses(nest.body)

    def once(params: dict[str, Value], seed: int, budget: Budget) -> Difference | None:
        terms = Terms(free)
        before = traces.Memory(terms, types | own, seed, indices, frozenset(own))
        values = _parameters(terms, nest, params)
        source = traces.Run(terms, budget, before.copy(), values)
        after = traces.run_source(nest, source)
        for name, x in after.items():
            source.memory.cells[name, 0] = x
        allowed = source.memory.touched | {(s.name, 0) for s in nest.scalars}
        got = traces.Run(terms, budget, before.copy(), values, allowed, strict)
        with _faults():
            traces.run_steps(steps, got)
        return traces.difference(terms, source.memory, got.memory, watched)

    tested = assumed(nest.directive.assume, nest.params)

    def usable(params: dict[str, Value]) -> bool:
        ints = {n: v for n, v in params.items() if isinstance(v, int)}
        return _hold(tested, ints) and _assumptions(steps, ints)

    params = tuple((p.name, p.type) for p in nest.params)
    return Comparison(params, once, usable, partial(_in_strides, nest)).compared(nest.name, SAME, also)


def _in_strides(nest: LoopNest, params: dict[str, Value]) -> dict[str, Value]:
    """The parameters so that loops by a block size run as often, and end where, those of the source do."""
    out = dict(params)
    for loop in _loops(nest.body):
        stride = loop.stride
        if stride is None:
            continue
        ints = {n: v for n, v in out.items() if isinstance(v, int)}
        first, by, limit = (as_affine(e) for e in (stride.first, stride.by, stride.limit))
        if first is None or by is None or not by.names <= ints.keys():
            continue
        step, span = by.evaluate(ints), None if limit is None else limit - first
        trips: int | None = None
        if span is not None and span.names <= ints.keys():
            trips = -(-span.evaluate(ints) // step) if step > 0 else 0
        if isinstance(loop.upper, Var) and by != Affine.number(loop.step):  # the loop counts how often
            name = loop.upper.name
            trips = ints.get(name) if trips is None else trips
            if name in out and trips is not None:
                out[name] = trips
        if trips is None:
            continue
        end = None if stride.end is None else as_affine(stride.end)
        if end is None or not first.names <= ints.keys():
            continue
        # a parameter, or so many times how often the loop runs
        unknown = end.names & ints.keys() - first.names - by.names
        if len(unknown) == 1:
            (name,) = unknown
            rest = first.evaluate(ints) + step * trips - end.evaluate(ints | {name: 0})
            if rest % end.coefficient(name) == 0:
                out[name] = rest // end.coefficient(name)
    return out


def _loops(body: Sequence[NestStmt | Stmt]) -> Iterator[Loop]:
    for s in body:
        match s:
            case Loop(body=inner):
                yield s
                yield from _loops(inner)
            case If(then=then, other=other):
                yield from _loops(then)
                yield from _loops(other)


def same_stages(program: MdhProgram, lowered: Lowered, known: Known, subject: str) -> Obligation:
    """The program by definition and its stages, loop by loop, leave the same terms in every cell."""
    types: dict[str, Type] = {b.name: b.type for b in program.buffers}
    own = {b.name: b.type for b in lowered.temporaries}
    free = traces.free_operations((program,))
    indices = frozenset(b.name for b in program.buffers if b.name in stages.indices_of(program))

    def once(params: dict[str, Value], seed: int, budget: Budget) -> Difference | None:
        terms = Terms(free)
        before = traces.Memory(terms, types | own, seed, indices, frozenset(own))
        values = {n: (v, _term(terms, n, v, program)) for n, v in params.items()}
        whole = traces.Run(terms, budget, before.copy(), dict(values))
        traces.run_program(program, whole)
        got = traces.Run(terms, budget, before.copy(), dict(values), set(whole.memory.touched))
        with _faults():
            traces.run_stages(program, lowered, got)
        return traces.difference(terms, whole.memory, got.memory, list(types))

    def usable(params: dict[str, Value]) -> bool:
        ints = {n: v for n, v in params.items() if isinstance(v, int)}
        return _hold(known.rows, ints) and _assumptions((program,), ints)

    params = tuple((p.name, p.type) for p in program.params)
    return Comparison(params, once, usable).compared(subject, STAGES)


def _hold(rows: Sequence[Constraint], params: Mapping[str, int]) -> bool:
    """Does what is known of the parameters alone hold?"""
    return all(c.holds(dict(params)) for c in rows if c.names <= params.keys())


@contextmanager
def _faults() -> Iterator[None]:
    """What has a value in the source has one in what stands for it."""
    try:
        yield
    except EvaluationError as error:
        raise traces.Fault(str(error)) from None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``once``: the difference between the two sides for some parameters; ``usable``: may these be given?

    ``settled``: with what follows from the others.
    """

    params: tuple[tuple[str, Type], ...]
    once: Callable[[dict[str, Value], int, Budget], Difference | None]
    usable: Callable[[dict[str, Value]], bool]
    settled: Callable[[dict[str, Value]], dict[str, Value]] = dict

    def _values(self, rng: random.Random, n: int | None) -> dict[str, Value]:
        """Parameters; where they may differ, ones that may be given, if any are found."""
        values = self.settled(traces.parameter_values(self.params, rng, n))
        for _ in range(100):
            if n is not None or self.usable(values):
                break
            values = self.settled(traces.parameter_values(self.params, rng, n))
        return values

    def compared(self, subject: str, name: str, also: Mapping[str, int] | None = None) -> Obligation:
        """At several sizes; what could not be run there does not count, unless it was asked for."""
        rng = random.Random(7)
        runs, largest, left, why = 0, 0, ENOUGH, ""
        tried: set[object] = set()
        too_long: list[tuple[int, ...]] = []
        only_numbers = ""
        for seed, n in enumerate((*([None] if also else []), *SIZES)):
            values = self._values(rng, n)
            if also and not seed:
                values = self.settled(values | {k: v for k, v in also.items() if k in values})
            if seed == 1 and also and not runs:
                break
            sizes = tuple((k, v) for k, v in values.items() if isinstance(v, int))
            numbers = tuple(v for _, v in sizes)
            if left < 0 or any(all(a >= b for a, b in zip(numbers, t, strict=True)) for t in too_long):
                continue
            if (numbers in tried and sizes) or (not sizes and seed > 2) or not self.usable(values):
                continue
            tried.add(numbers)
            budget = Budget(BUDGET)
            shown = ", ".join(f"{k} = {v}" for k, v in sizes) or "its constant sizes"
            try:
                found = self.once(values, seed, budget)
            except traces.Fault as fault:
                return Obligation(subject, name, REFUTED, "trace", f"at {shown}: {fault}")
            except TooLong:
                why = f"too long at {shown}"
                too_long.append(numbers)
                left -= BUDGET
                continue
            except (EvaluationError, RecursionError, OverflowError, ZeroDivisionError) as error:
                why = f"no value at {shown}: {error}"
                continue
            left -= BUDGET - budget.left
            if found is not None and found.certain:
                return Obligation(subject, name, REFUTED, "trace", f"at {shown}: {found.text}")
            only_numbers = only_numbers or ("" if found is None else found.text)
            runs += 1
            largest = max([largest, *numbers])
        if not runs:
            return Obligation(
                subject, name, UNKNOWN, "trace", why or "the assumptions hold for no small sizes"
            )
        detail = f"{runs} runs with sizes up to {largest}"
        if only_numbers:
            return Obligation(subject, name, CHECKED, "numbers", f"{detail}; {only_numbers}, equal in number")
        return Obligation(subject, name, CHECKED, "trace", detail)


def _parameters(terms: Terms, nest: LoopNest, params: dict[str, Value]) -> dict[str, Traced]:
    types = {p.name: p.type for p in nest.params}
    return {n: (v, _parameter(terms, n, v, types[n])) for n, v in params.items()}


def _term(terms: Terms, name: str, value: Value, program: MdhProgram) -> int:
    return _parameter(terms, name, value, next(p.type for p in program.params if p.name == name))


def _parameter(terms: Terms, name: str, value: Value, t: Type) -> int:
    return terms.number(value, t) if isinstance(value, int) else terms.node("param", name)


def _assumptions(steps: Sequence[Step], ints: dict[str, int]) -> bool:
    """Of all programs, in all iterations of host loops."""
    for s in steps:
        if isinstance(s, MdhProgram) and any(a.evaluate(ints) < 0 for a in s.assumptions):
            return False
        if isinstance(s, HostLoop):
            for i in range(s.size.evaluate(ints)):
                if not _assumptions(s.body, {**ints, s.iterator: i}):
                    return False
    return True


def buffers_of(steps: Sequence[Step]) -> Iterator[Buffer]:
    for s in steps:
        if isinstance(s, HostLoop):
            yield from buffers_of(s.body)
        else:
            yield from s.buffers


def _indirect(nest: LoopNest) -> set[str]:
    """Integer buffers, if any subscript or bound is computed from data."""
    computed = False

    def look(e: Expr) -> None:
        nonlocal computed
        for n in walk(e):
            if isinstance(n, Load):
                computed |= any(as_affine(i) is None or _has_load(i) for i in n.index)

    def visit(body: Sequence[Stmt | Loop]) -> None:
        nonlocal computed
        for s in body:
            match s:
                case Loop():
                    computed |= _has_load(s.lower) or _has_load(s.upper)
                    visit(s.body)
                case Declare(type=t, value=value):
                    if value is not None:
                        look(value)
                        computed |= isinstance(t, ScalarType) and t.is_integer and _has_load(value)
                case Assign(target=target, value=value):
                    look(value)
                    base = base_of(target)
                    if isinstance(base, Load):
                        look(base)
                    elif isinstance(base, Var) and isinstance(base.type, ScalarType) and base.type.is_integer:
                        computed |= _has_load(value)
                case If(cond=cond, then=then, other=other):
                    look(cond)
                    visit(then)
                    visit(other)
                case While(cond=cond, body=inner):
                    look(cond)
                    visit(inner)
                case _:
                    pass

    visit(nest.body)
    if not computed:
        return set()
    return {b.name for b in nest.buffers if isinstance(b.type, ScalarType) and b.type.is_integer}


def _has_load(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(e))
