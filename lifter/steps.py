"""A nest with dependences: which loops run in order, and what is lifted inside of them.

    block     statements one after the other; the longest runs that are flat become programs
    loop      not flat: it is distributed, its scalars and buffers are expanded, its band is run as a
              wavefront, it is split at the iteration that the others read, or it runs in order with its body
              as a block
    rest      what cannot be a program is a ``Sequential``

before   for t: { for i: B[i] = f(A, i);  for i: A[i] = B[i]; }
after    host_loop t { md_hom(i: cc);  md_hom(i: cc) }

Every rewriting keeps the meaning of the loops (``reorder``) and every program is found by the same
analysis of plain loops (``flat``), with the iterators of the host loops as parameters.  So what is
decided here is only how much runs in parallel.

Scalars that one step leaves for another live in memory: in the variable itself where it is declared before
the nest, otherwise in a temporary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from lifter.decided import decided
from lifter.flat import flat_programs, scalar_types
from lifter.interchange import memory_loops_inwards
from lifter.loop_nest import Loop, LoopNest, NestStmt, OuterScalar
from lifter.normalise import Axis, NormalNest, assigned_buffers, normalise
from lifter.promoted import cells_in_variables
from lifter.reductions import conjunction
from lifter.reorder import (
    Expander,
    Names,
    as_scalar,
    distribute,
    expand,
    part,
    privatise,
    read_first,
    split,
    unrolled,
    wavefronts,
)
from lifter.trees import (
    Body,
    Inwards,
    buffers_in,
    declarations,
    ends_in_memory,
    exposed,
    exposed_from,
    has_loop,
    leaves,
    loops_in,
    mentioned,
    replaced,
    tree_exprs,
    without_loops,
)
from mdh_core.diagnostics import Diagnostic, Refusal, refuse
from mdh_core.expr import (
    INT32,
    INT64,
    Affine,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Declare,
    Expr,
    Function,
    If,
    Load,
    Stmt,
    Type,
    Var,
    While,
    affine_expr,
    map_stmts,
    rewrite,
    stmt_exprs,
    walk,
)
from mdh_core.ir import Buffer, HostLoop, MdhProgram, Param, Sequential, Step, programs_of

MAX_WORK = 40_000  # nodes of the expressions in all analyses of one nest
MAX_SPLITS = 2  # of loops within one another
MAX_LEAVES = 400  # of a loop that is rewritten: they are compared pairwise, for each variable
MAX_RUN = 64  # statements of a list that are tried together
MAX_PIECES = 12  # leaves that splitting may yield, not counting declarations of variables


@dataclass(frozen=True, slots=True)
class Stepped:
    """The steps of a nest, what they keep for themselves, and why loops run in order."""

    steps: tuple[Step, ...]
    temporaries: tuple[Buffer, ...]
    reasons: tuple[tuple[HostLoop | Sequential, Diagnostic], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement list stands: the host loops around it and what is read elsewhere or after it."""

    hosts: tuple[Axis, ...] = ()
    outside: frozenset[str] = frozenset()
    splits: int = 0

    def reading(self, names: set[str]) -> Place:
        return replace(self, outside=self.outside | names)


def stepped(nest: LoopNest) -> Stepped | None:
    """The nest as steps; None where no part of it has a dimension."""
    work = _Steps(nest)
    live = frozenset(s.name for s in nest.scalars if s.live_after)
    steps = tuple(work.block(nest.body, Place(outside=live)))
    if not any(p.hom.dims for p in programs_of(steps)):
        return None
    used = {b.name for s in _flat(steps) for b in s.buffers}
    temporaries = tuple(b for name, b in work.temporaries.items() if name in used)
    present = {_key(s) for s in every_step(steps) if not isinstance(s, MdhProgram)}
    reasons = {_key(s): (s, d) for s, d in work.reasons if _key(s) in present}
    return Stepped(steps, temporaries, tuple(reasons.values()))


def _key(s: HostLoop | Sequential) -> tuple[str, int]:
    """Tells the loops and statements of a nest apart."""
    return s.iterator if isinstance(s, HostLoop) else "", s.span.start


Cost = tuple[int, int, int, int]


def _depth(steps: Sequence[Step]) -> int:
    deepest = 0
    for s in steps:
        if isinstance(s, HostLoop):
            deepest = max(deepest, 1 + _depth(s.body))
        elif isinstance(s, Sequential):
            deepest = max(deepest, 2)
    return deepest


def every_step(steps: Sequence[Step]) -> Iterator[Step]:
    for s in steps:
        yield s
        if isinstance(s, HostLoop):
            yield from every_step(s.body)


def _flat(steps: Sequence[Step]) -> Iterator[MdhProgram | Sequential]:
    for s in every_step(steps):
        if not isinstance(s, HostLoop):
            yield s


@dataclass(slots=True)
class _Steps:
    nest: LoopNest
    memory: dict[str, OuterScalar] = field(default_factory=dict)
    temporaries: dict[str, Buffer] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    work: int = 0
    shapes: dict[str, tuple[Affine, ...]] = field(default_factory=dict)
    names: Names = field(default_factory=lambda: Names(set()))
    reasons: list[tuple[HostLoop | Sequential, Diagnostic]] = field(default_factory=list)
    followed: tuple[Body, list[set[str]]] | None = None  # statements, and what is read from each of them on
    known: dict[tuple[int, Place], tuple[MdhProgram, ...] | Diagnostic] = field(default_factory=dict)
    # by number, places in the text (for messages), host loops and buffers
    normals: dict[tuple[object, ...], NormalNest | Refusal] = field(default_factory=dict)
    numbers: dict[Body, int] = field(default_factory=dict)
    met: dict[tuple[int, ...], tuple[int, Body]] = field(default_factory=dict)  # by identity of statements

    def __post_init__(self) -> None:
        self.memory = {s.name: s for s in self.nest.scalars}
        self.types = scalar_types(self.nest)
        taken = {p.name for p in self.nest.params} | {b.name for b in self.nest.buffers}
        taken |= set(self.memory) | set(self.types) | {f.name for f in self.nest.functions}
        taken |= {x.iterator for x in loops_in(self.nest.body)}
        self.names = Names(taken)
        try:
            whole = normalise(self.nest)
        except Refusal:
            return
        flat = [b.name for b in self.nest.buffers if b.rank == 1]
        self.shapes = {name: _inner_extents(whole.buffers[name]) for name in flat}

    @property
    def exhausted(self) -> bool:
        """Was the nest analysed as often as it may be?  Then what is left stays as it is.

        Counted in work, not in time, so that the answer is the same on every machine.
        """
        return self.work >= MAX_WORK

    def cost(self, steps: Sequence[Step]) -> Cost:
        """What to prefer: few loops in order around programs, nothing sequential, little memory and work.

        A linear recurrence is worked on twice: dimensions that are concatenated are better.
        """
        every = list(every_step(steps))
        programs = [s for s in every if isinstance(s, MdhProgram)]
        rest = sum(isinstance(s, Sequential) for s in every)
        whiles = sum(isinstance(t, While) for p in programs for t in p.hom.scalar.body)
        buffers = {b for s in _flat(steps) for b in s.buffers if b.extents and b.name in self.temporaries}
        functions = [p.hom.function for p in programs]
        twice = sum(f is not None and not f.commutative for f in functions)
        memory = sum(1 if b.rank == 1 else 10 for b in buffers) + 5 * whiles + twice
        return _depth(steps), rest, memory, len(programs)

    # ----------------------------------------------------------------- flat nests

    def sub_nest(self, body: Body, place: Place) -> LoopNest:
        """The statements as a nest of their own; host iterators are parameters."""
        named = mentioned(body) - {d.name for d in declarations(body)}
        params = (*self.nest.params, *(Param(h.name, INT64) for h in place.hosts))
        scalars = tuple(
            replace(s, live_after=s.live_after or s.name in place.outside)
            for s in self.memory.values()
            if s.name in named
        )
        mine = buffers_in(body)
        buffers = tuple(b for b in self.nest.buffers if b.name in mine)
        buffers += tuple(b for b in self.temporaries.values() if b.name in mine and b.extents)
        return replace(self.nest, body=body, params=params, buffers=buffers, scalars=scalars)

    def number(self, body: Body) -> int:
        """The same for equal statements.

        Rewritings ask about the same ones again and again, and to hash a tree takes as long as to walk
        through it; ``met`` keeps the statements, so that identities stay theirs.
        """
        identity = tuple(map(id, body))
        found = self.met.get(identity)
        if found is None:
            found = self.met[identity] = self.numbers.setdefault(body, len(self.numbers)), body
        return found[0]

    def normal(self, body: Body, place: Place) -> NormalNest:
        """Raises ``Refusal``."""
        nest = self.sub_nest(body, place)
        key = self.number(body), tuple([s.span.start for s in body]), place.hosts, nest.buffers
        found = self.normals.get(key)
        if found is None:
            facts = tuple(c for h in place.hosts for c in h.domain)
            try:
                found = normalise(nest, facts, self.shapes)
            except Refusal as refusal:
                found = refusal
            self.normals[key] = found
        if isinstance(found, Refusal):
            raise Refusal(found.diagnostic)
        return found

    def flat(self, body: Body, place: Place) -> tuple[MdhProgram, ...] | Diagnostic:
        """The programs of a statement list, or why it has none."""
        key = self.number(body), place
        known = self.known.get(key)
        if known is None:
            if self.exhausted:
                return Diagnostic("MDH211", "the nest is too intricate to be analysed", span=self.nest.span)
            self.work += sum(1 for e in tree_exprs(body) for _ in walk(e))
            try:
                found = flat_programs(self.sub_nest(body, place), self.normal(body, place))
                check_overlap(self.nest, found)
                known = tuple(_before_hosts(p, place.hosts) for p in found)
            except Refusal as refusal:
                known = refusal.diagnostic
            self.known[key] = known
        return known

    # ----------------------------------------------------------------- statement lists

    def block(self, body: Body, place: Place) -> list[Step]:
        whole = self.flat(body, place)
        if not isinstance(whole, Diagnostic):
            return list(whole)
        if len(body) == 1:
            return self.alone(body[0], place, whole)
        body = self.promoted(body)
        steps: list[Step] = []
        run: list[NestStmt] = []
        for k, s in enumerate(body):
            easy = self.flat((s,), self.beside(body, (k,), place))
            if isinstance(easy, Diagnostic) and (isinstance(s, Loop) or not _is_simple(s)):
                steps += self.run(run, body, place)
                run = []
                steps += self.alone(s, self.beside(body, (k,), place), easy)
            else:
                run.append(s)
        return steps + self.run(run, body, place)

    def beside(self, body: Body, mine: Sequence[int], place: Place) -> Place:
        """The place of some statements of a list: those behind may read what they compute."""
        if self.followed is None or self.followed[0] is not body:
            self.followed = body, exposed_from(body)
        return place.reading(self.followed[1][max(mine) + 1])

    def run(self, items: Sequence[NestStmt], body: Body, place: Place) -> list[Step]:
        """Statements each of which is flat: as few runs as are flat together."""
        out: list[Step] = []
        left = list(items)
        numbers = {id(s): k for k, s in enumerate(body)}
        while left:
            count = min(len(left), MAX_RUN)
            while True:
                mine = tuple(left[:count])
                found = self.flat(mine, self.beside(body, [numbers[id(s)] for s in mine], place))
                if not isinstance(found, Diagnostic):
                    out += found
                    break
                if count == 1:
                    out += self.sequential(mine, place, found)
                    break
                count -= 1
            left = left[count:]
        return out

    def promoted(self, body: Body) -> Body:
        """Declarations of a list become assignments to memory, so that the steps share the variables."""
        out: list[NestStmt] = []
        for s in body:
            if not isinstance(s, Declare):
                out.append(s)
                continue
            self.remember(s.name, s.type)
            if s.value is not None:
                out.append(Assign(Var(s.name, s.type), s.value, s.span))
        return tuple(out)

    def remember(self, name: str, t: Type) -> None:
        if name not in self.memory:
            self.memory[name] = OuterScalar(name, t, False)
            self.temporaries[name] = Buffer(name, t, (), distinct=True)

    def forget(self, saved: dict[str, Buffer]) -> None:
        """Without the arrays of a try that was given up; variables stay, as ``memory`` has them."""
        self.temporaries = saved | {name: b for name, b in self.temporaries.items() if not b.extents}

    # ----------------------------------------------------------------- one statement

    def alone(self, s: NestStmt, place: Place, why: Diagnostic, divided: bool = False) -> list[Step]:
        """A statement that is not flat; ``divided``: it is a part of a loop that was distributed."""
        if not isinstance(s, Loop):
            return self.sequential((s,), place, why)
        if self.exhausted or sum(1 for _ in leaves((s,))) > MAX_LEAVES:
            return self.in_order(s, place, why)
        try:
            normal = self.normal((s,), place)
        except Refusal:
            return self.opaque(s, place) or self.in_order(s, place, why)
        best: list[Step] | None = None
        rewritings: tuple[Callable[[], list[Step] | None], ...] = (
            lambda: None if divided else self.distributed(s, normal, place),
            lambda: self.body_flat(s, place, why),
            lambda: self.opaque(s, place),
            lambda: None if divided else self.expanded(s, normal, place),
            lambda: None if divided else self.copied(s, place),
            lambda: None if divided else self.carried(s, normal, place),
            lambda: None if divided else self.private(s, normal, place, why),
            lambda: self.wavefront(s, normal, place, why),
            lambda: self.halves(s, normal, place),
        )
        taken = [a for _, a in normal.assumptions]  # shapes that the dependences were found with
        for rewriting in rewritings:
            if self.exhausted:
                break
            found = assuming(rewriting(), taken, place.hosts, self.nest.params)
            if found is not None and (best is None or self.cost(found) < self.cost(best)):
                best = found
            if best is not None and self.cost(best) < (0, 0, 0, 3):
                break
        if best is None or _depth(best) > 0:
            found = self.in_order(s, place, why)
            if best is None or self.cost(found) < self.cost(best):
                best = found
        return best

    def distributed(self, s: Loop, normal: NormalNest, place: Place) -> list[Step] | None:
        groups = distribute(s, normal)
        if groups is None:
            return None
        parts: list[Loop] = []
        names: list[list[int]] = []
        for g in groups:  # merge neighbours that are flat together
            if names:
                both = sorted({*names[-1], *g})
                if self.is_flat(part(s, names[-1]), place) and self.is_flat(part(s, both), place):
                    names[-1] = both
                    continue
            names.append(g)
        parts = [part(s, g) for g in names]
        if not any(self.is_flat(p, place) for p in parts):
            return None
        steps: list[Step] = []
        first = 0
        while first < len(parts):
            last = first + 1
            if not self.is_flat(parts[first], place):  # neighbours that are not flat may share a loop
                while last < len(parts) and not self.is_flat(parts[last], place):
                    last += 1
            steps += self.neighbours(s, parts, names, first, last, place)
            first = last
        return steps

    def neighbours(
        self, s: Loop, parts: list[Loop], names: list[list[int]], first: int, last: int, place: Place
    ) -> list[Step]:
        """Parts of a loop, one by one or as one loop, as is better."""
        steps: list[Step] = []
        for k in range(first, last):
            here = self.beside(tuple(parts), (k,), place)
            found = self.flat((parts[k],), here)
            steps += self.alone(parts[k], here, found) if isinstance(found, Diagnostic) else list(found)
        if last - first > 1:
            whole = part(s, sorted({n for g in names[first:last] for n in g}))
            here = self.beside(tuple(parts), range(first, last), place)
            why = self.flat((whole,), here)
            together: list[Step] = []
            together += self.alone(whole, here, why, divided=True) if isinstance(why, Diagnostic) else why
            if self.cost(together) < self.cost(steps):
                return together
        return steps

    def is_flat(self, s: NestStmt, place: Place) -> bool:
        return not isinstance(self.flat((s,), place), Diagnostic)

    def expanded(self, s: Loop, normal: NormalNest, place: Place) -> list[Step] | None:
        """Scalars as arrays: first all that may be, then only those that parts of the loop share."""
        first = self.expansion(s, normal, place, None)
        if first is None:
            return None
        steps, needed, made = first
        if needed:
            again = self.expansion(s, normal, place, needed, made)
            if again is not None and self.cost(again[0]) < self.cost(steps):
                return again[0]
        return steps

    def expansion(
        self, s: Loop, normal: NormalNest, place: Place, only: frozenset[str] | None,
        mine: frozenset[str] = frozenset(),
    ) -> tuple[list[Step], frozenset[str], frozenset[str]] | None:  # fmt: skip
        """The steps after expansion, the scalars that several of them use, and the arrays.

        ``mine``: names of arrays of an earlier try, which may be used again.
        """
        found = expand(s, normal, self.types, set(place.outside),
                       self.names.taken - mine, Expander(place.hosts), only)  # fmt: skip
        if found is None:
            return None
        saved = dict(self.temporaries)
        self.temporaries |= {b.name: b for b in found.buffers}
        steps = None
        try:
            inner = self.normal((found.loop,), place)
        except Refusal:
            pass
        else:
            steps = self.distributed(found.loop, inner, place)
            if steps is None:
                whole = self.flat((found.loop,), place)
                steps = None if isinstance(whole, Diagnostic) else list(whole)
        if steps is None:
            self.forget(saved)
            return None
        self.names.taken |= {new for _, new in found.names}
        users = [{b.name for t in _flat((step,)) for b in t.buffers} for step in steps]
        shared = {n: sum(new in u for u in users) for n, new in found.names}
        made = frozenset(new for _, new in found.names)
        return steps, frozenset(n for n, count in shared.items() if count > 1), made

    def copied(self, s: Loop, place: Place) -> list[Step] | None:
        """All reads before all writes, where that is what the loop does."""
        new = read_first(s, set(self.names.taken))
        if new is None:
            return None
        self.types |= {d.name: d.type for d in declarations((new,))}
        try:
            normal = self.normal((new,), place)
        except Refusal:
            return None
        steps = self.expanded(new, normal, place)
        return None if steps is None or _depth(steps) else steps

    def private(self, s: Loop, normal: NormalNest, place: Place, why: Diagnostic) -> list[Step] | None:
        """Arrays that every iteration fills before it reads them, one for each iteration."""
        found = privatise(s, normal, self.names, Expander(place.hosts))
        if found is None:
            return None
        saved = dict(self.temporaries)
        self.temporaries |= {b.name: b for b in found.buffers}
        whole = self.flat((found.loop,), place)
        steps = self.alone(found.loop, place, whole) if isinstance(whole, Diagnostic) else list(whole)
        steps += self.block(found.after, place)
        if _depth(steps):
            self.forget(saved)
            return None
        return steps

    def carried(self, s: Loop, normal: NormalNest, place: Place) -> list[Step] | None:
        """A scalar that goes from iteration to iteration as an array, if that is a scan."""
        found = unrolled(s, normal, self.types, set(place.outside), self.names.taken, Expander(place.hosts))
        if found is None:
            return None
        saved = dict(self.temporaries)
        self.temporaries |= {b.name: b for b in found.buffers}
        for name in (n for n, _ in found.names):
            if name not in self.memory:
                self.remember(name, self.types[name])
        steps = self.block(found.body, place)
        if _depth(steps) or any(isinstance(x, Sequential) for x in every_step(steps)):
            self.forget(saved)
            return None
        self.names.taken |= {new for _, new in found.names}
        return steps

    def opaque(self, s: Loop, place: Place) -> list[Step] | None:
        """The loop with its inner loops over scalars as a part of the scalar function."""
        names = Names(set(self.names.taken))  # only what is kept takes any
        turned = memory_loops_inwards(s) or s
        for loop in (s, cells_in_variables(turned, names.new)):
            for innermost in (True, False):
                new = None if loop is None else as_scalar(loop, innermost)
                found = None if new is None else self.flat((new,), place)
                if found is not None and not isinstance(found, Diagnostic):
                    self.names.taken |= names.taken if loop is not s else set()
                    return list(found)
        return None

    def wavefront(self, s: Loop, normal: NormalNest, place: Place, why: Diagnostic) -> list[Step] | None:
        name, count = "w", 2
        while name in self.names.taken:
            name, count = f"w_{count}", count + 1
        for new in wavefronts(s, normal, name, set(place.outside)):
            found = self.body_flat(new, place, why)
            if found is not None:
                self.names.taken.add(new.iterator)
                return found
        return None

    def halves(self, s: Loop, normal: NormalNest, place: Place) -> list[Step] | None:
        if place.splits >= MAX_SPLITS or not place.hosts:
            return None
        pieces = split(s, normal, self.names)
        if pieces is None:
            return None
        self.work += sum(1 for e in tree_exprs(pieces) for _ in walk(e))  # conditions are decided in all
        pieces = decided(pieces, normal.context)
        if sum(not isinstance(x, Declare) for x in leaves(pieces)) > MAX_PIECES:
            return None
        self.types |= {d.name: d.type for d in declarations(pieces)}
        steps = self.block(pieces, replace(place, splits=place.splits + 1))
        return None if any(isinstance(x, HostLoop | Sequential) for x in steps) else steps

    # ----------------------------------------------------------------- in order

    def host(self, s: Loop, place: Place) -> tuple[Axis, Body, Place] | None:
        """The loop as a host loop: its axis, its body over the axis, and the place of the body."""
        try:
            normal = self.normal((replace(s, body=()),), place)
        except Refusal:
            return None
        axis = normal.axes[s.iterator]
        i: Expr = Var(axis.name, INT64)
        if axis.step != 1:
            i = Binary("*", Const(axis.step, INT64), i, INT64)
        if axis.lower != Affine():
            i = Binary("+", affine_expr(axis.lower), i, INT64)
        body = replaced(s.body, {s.iterator: i if s.type == INT64 else Cast(i, s.type)})
        if axis.constraints:  # one bound says how often the host loop runs, others where it does something
            if any(map(ends_in_memory, loops_in(body))):
                return None
            tests = [c.value for c in axis.constraints]
            guard = conjunction([Binary(">=", affine_expr(a), Const(0, INT64), INT32) for a in tests])
            axis, body = replace(axis, constraints=()), tuple(Inwards().guarded(body, guard))
        around = exposed(body) - {axis.name}
        inside = replace(place.reading(around), hosts=(*place.hosts, axis))
        return axis, body, inside

    def body_flat(self, s: Loop, place: Place, why: Diagnostic) -> list[Step] | None:
        """A loop that runs in order around programs, where all of its body is flat."""
        found = self.host(s, place)
        if found is None:
            return None
        axis, body, inside = found
        programs = self.flat(body, inside)
        if isinstance(programs, Diagnostic) or not any(p.hom.dims for p in programs):
            return None
        return [self.host_loop(s, axis, tuple(programs), why)]

    def in_order(self, s: Loop, place: Place, why: Diagnostic) -> list[Step]:
        found = None if self.exhausted else self.host(s, place)
        if found is None:
            return self.sequential((s,), place, why)
        axis, body, inside = found
        steps = tuple(self.block(Inwards().body(body), inside))
        if not any(p.hom.dims for p in programs_of(steps)):
            return self.sequential((s,), place, why)
        return [self.host_loop(s, axis, steps, why)]

    def host_loop(self, s: Loop, axis: Axis, steps: tuple[Step, ...], why: Diagnostic) -> HostLoop:
        out = HostLoop(axis.name, axis.size, steps, s.source_name or s.iterator, why.code, s.span)
        self.reasons.append((out, why))
        return out

    def sequential(self, body: Body, place: Place, why: Diagnostic) -> list[Step]:
        """Statements as they are; variables that other steps see are 0-dimensional buffers."""
        local = {d.name for d in declarations(body)}
        shared = (mentioned(body) - local) & set(self.memory)
        plain = without_loops(body)

        def memory(n: Expr) -> Expr | None:
            return Load(n.name, (), n.type) if isinstance(n, Var) and n.name in shared else None

        plain = map_stmts(plain, lambda e: rewrite(e, memory))
        if not _does_something(plain):
            return []
        names = mentioned(plain)
        mine = buffers_in(plain)
        buffers = [b for b in self.nest.buffers if b.name in mine]
        buffers += [
            Buffer(s.name, s.type, (), base=f"&{s.name}", c_type=s.c_type, distinct=True)
            if s.name not in self.temporaries
            else self.temporaries[s.name]
            for s in self.memory.values()
            if s.name in mine
        ]
        buffers += [b for b in self.temporaries.values() if b.name in mine and b.extents]
        params = [p for p in self.nest.params if p.name in names or _in_extents(p.name, buffers)]
        params += [Param(h.name, INT64) for h in place.hosts if h.name in names]
        called = {n.function for s in plain for e in _exprs(s) for n in walk(e) if isinstance(n, Call)}
        functions = _with_callees(called, self.nest)
        span = getattr(body[0], "span", self.nest.span)
        out = Sequential(plain, tuple(params), tuple(buffers), functions, why.code, span)
        self.reasons.append((out, why))
        return [out]


def assuming(
    steps: list[Step] | None,
    assumptions: Sequence[Affine],
    hosts: Sequence[Axis],
    params: Sequence[Param],
) -> list[Step] | None:
    """The steps with further assumptions in every program; None where they cannot be tested."""
    if steps is None or not assumptions:
        return steps
    if not any(True for _ in programs_of(steps)):
        return None
    try:
        return [_with_assumptions(s, tuple(assumptions), hosts, params) for s in steps]
    except Refusal:
        return None


def _with_assumptions(
    s: Step, more: tuple[Affine, ...], hosts: Sequence[Axis], params: Sequence[Param]
) -> Step:
    match s:
        case MdhProgram():
            every = tuple(dict.fromkeys((*s.assumptions, *_tested_before(more, hosts, s))))
            names = {n for a in every for n in a.names} | {p.name for p in s.params}
            hosted = tuple(p for p in s.params if p not in params)
            return replace(s, assumptions=every, params=(*(p for p in params if p.name in names), *hosted))
        case HostLoop(body=body):
            return replace(s, body=tuple(_with_assumptions(x, more, hosts, params) for x in body))
        case Sequential():
            return s


def _before_hosts(p: MdhProgram, hosts: Sequence[Axis]) -> MdhProgram:
    """The program with assumptions that can be tested before the host loops; raises MDH206."""
    return replace(p, assumptions=_tested_before(p.assumptions, hosts, p))


def _tested_before(assumptions: Sequence[Affine], hosts: Sequence[Axis], p: MdhProgram) -> tuple[Affine, ...]:
    out = []
    for a in assumptions:
        for host in reversed(hosts):
            c, step = a.coefficient(host.name), host.size.step
            if c < 0 and c % step:
                raise refuse("MDH206", "the shape of an array depends on how far a loop goes", p.span)
            if c:
                # step times the last iteration is less than the span
                at = (host.size.span - 1) * (c // step) if c < 0 else Affine()
                a = a.substitute({host.name: Affine()}) + at
        if not a.is_constant or a.const < 0:
            out.append(a)
    return tuple(out)


def check_overlap(nest: LoopNest, programs: Sequence[MdhProgram]) -> None:
    """A buffer read at indices that depend on data has no range to compare with those that are written.

    Raises MDH214 where nothing else keeps the two apart.
    """
    for p in programs:
        gathered = {
            n.buffer: n
            for e in (*p.hom.scalar.results, *stmt_exprs(p.hom.scalar.body))
            for n in walk(e)
            if isinstance(n, Load)
        }
        for name, load in gathered.items():
            for other in sorted(assigned_buffers(nest.body) - {name}):
                _check_pair(nest, p.buffer(name), other, load)


def _check_pair(nest: LoopNest, read: Buffer, other: str, load: Load) -> None:
    written = next((b for b in nest.buffers if b.name == other), None)
    if written is None or read.restrict or written.restrict or (read.distinct and written.distinct):
        return
    if any({read.name, other} <= set(group) for group in nest.directive.noalias):
        return
    if read.extents and all(e is not None for e in read.extents):
        return  # its declared extents are compared
    raise refuse(
        "MDH214",
        f"`{read.name}` is read at indices that depend on data and may overlap with `{other}`",
        load.span or nest.span,
        label="how far this reaches cannot be tested at run time",
        help=f"promise `noalias({read.name}, {other})`, or declare one of them `restrict`",
    )


def _inner_extents(b: Buffer) -> tuple[Affine, ...]:
    return tuple(e for e in b.extents[1:] if e is not None)


def _is_simple(s: NestStmt) -> bool:
    return not has_loop(s) and not isinstance(s, While)


def _does_something(body: Sequence[Stmt]) -> bool:
    return any(
        isinstance(s, Assign) or (isinstance(s, If | While) and _does_something(_inner(s))) for s in body
    )


def _inner(s: If | While) -> Sequence[Stmt]:
    return (*s.then, *s.other) if isinstance(s, If) else s.body


def _exprs(s: Stmt) -> Iterator[Expr]:
    yield from stmt_exprs((s,))


def _in_extents(name: str, buffers: Sequence[Buffer]) -> bool:
    return any(name in e.names for b in buffers for e in b.extents if e is not None)


def _with_callees(called: set[str], nest: LoopNest) -> tuple[Function, ...]:
    known = {f.name: f for f in nest.functions}
    queue, found = list(called), set[str]()
    while queue:
        name = queue.pop()
        if name in known and name not in found:
            found.add(name)
            for e in (e for s in known[name].body for e in _exprs(s)):
                queue += [n.function for n in walk(e) if isinstance(n, Call)]
    return tuple(f for f in nest.functions if f.name in found)
