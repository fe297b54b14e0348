"""A lifted nest as the subject of the harness: its arguments, how large arrays must be, sizes to try."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from emit.c_text import affine_text, c_type
from emit.host_text import Leaf, Loops, leaves
from frontend_c.preprocess import CompileCommand, preprocess
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest
from lifter.polyhedral import bounds
from lifter.trees import loops_in, tree_exprs
from mdh_core.expr import (
    Affine,
    Assign,
    Binary,
    Call,
    Expr,
    Field,
    If,
    Load,
    ScalarType,
    Type,
    Var,
    While,
    variables,
    walk,
)
from mdh_core.ir import Buffer, MdhProgram, Sequential
from mdh_core.source import SourceFile
from mdh_lift import iterations, uses
from mdh_lift.c_value import NotAnInteger
from mdh_lift.held import held_by_roots
from mdh_lift.nest_sizes import extents_and_places, is_derived, parameter_values, variables_of
from mdh_lift.source_uses import source_uses
from tuning.harness import Arg, ArrayArg, IndexData, IteratorArg, OuterScalarArg, ScalarArg, Sizes, Subject

_LARGE = 1 << 20  # a size that every size variable may have
_CELLS = 1 << 22  # at most, of an array that statements index in a way of which no more is known
_PER_ITERATION = 4  # elements of an array that is indexed by data
_WORK = 4e6  # points of one comparison, at most
_LARGE_WORK = 2e7  # of one with large arrays
_LARGE_BYTES = 64 << 20  # of all arrays together


def subject_of(lifted: LiftedNest, data: bytes, path: str, nest_text: bytes = b"") -> Subject:
    """The subject for a nest of the file ``data`` (without generated regions).

    ``nest_text``: the nest after preprocessing, where its macros are not known behind the function.
    """
    nest = lifted.nest
    prelude, postlude = held_by_roots(lifted, _written(nest))

    @functools.cache
    def counts(sizes: tuple[tuple[str, int], ...]) -> dict[str, int] | None:
        return element_counts(lifted, dict(sizes))

    return Subject(
        data,
        path,
        nest.function_span.end,
        _statement(nest, nest_text or data[nest.span.start : nest.span.end]),
        data[: nest.span.start].count(b"\n") + 1 - nest.several,
        tuple(_arguments(lifted)),
        lambda sizes: counts(tuple(sizes.items())),
        lambda sizes: _chain(lifted, sizes),
        lambda sizes: _diagonals(lifted, sizes),
        lambda sizes: _index_data(lifted, sizes, counts(tuple(sizes.items())) or {}),
        nest.directive.noalias,
        prelude,
        postlude,
    )


def _statement(nest: LoopNest, text: bytes) -> bytes:
    """The text of a nest as one statement."""
    return b"{\n" + text + b"\n}" if nest.several else text


def preprocessed_nest(nest: LoopNest, source: SourceFile, command: CompileCommand) -> bytes:
    """The nest's text with all macros expanded as at its place in the file."""
    marks = b"__mdh_nest_begin__", b"__mdh_nest_end__"
    start, end = nest.span.start, nest.span.end
    data = source.data
    marked = data[:start] + marks[0] + b"\n" + data[start:end] + b"\n" + marks[1] + data[end:]
    text = preprocess(source, command, marked)
    inside = text.partition(marks[0])[2].partition(marks[1])[0]
    return b"\n".join(line for line in inside.split(b"\n") if not line.lstrip().startswith(b"# "))


# --------------------------------------------------------------------------- arguments


def _arguments(lifted: LiftedNest) -> list[Arg]:
    nest = lifted.nest
    derived = {p.name: p.value for p in nest.params if is_derived(p)}
    variables = variables_of(lifted)
    changed = _changed(lifted, variables.keys())
    arguments: list[Arg] = [
        ScalarArg(name, _value_type(p.c_type or c_type(p.type)), p.type)
        for name, p in variables.items()
        if all(name != a.name for a in changed)
    ]
    written, read = _written(nest), read_buffers(nest)
    for b in nest.buffers:
        arguments.append(
            ArrayArg(
                b.name,
                b.c_type or c_type(b.type),
                b.type,
                tuple(f"({affine_text(e, derived)})" for e in b.extents[1:] if e is not None),
                b.name in written,
                b.name in read,
                b.restrict or b.distinct,
            )
        )
    return [*arguments, *changed]


def _changed(lifted: LiftedNest, given: Collection[str]) -> list[OuterScalarArg | IteratorArg]:
    """Scalars and iterators declared outside that the nest changes; ``given``: what it reads before."""
    nest = lifted.nest
    found: list[OuterScalarArg | IteratorArg] = [
        OuterScalarArg(s.name, _value_type(s.c_type or c_type(s.type)), s.type, s.live_after, s.name in given)
        for s in nest.scalars
    ]
    final = {f.name: f.type for f in lifted.iterators_final}
    found += [IteratorArg(name, c_type(t), t, given=name in given) for name, t in final.items()]
    known = {a.name for a in found}
    loops = list(loops_in(nest.body))
    observed = {x.source_name or x.iterator for x in loops if x.observed}
    for loop in loops:
        name = loop.source_name or loop.iterator
        if loop.declared_outside and name not in known:
            known.add(name)
            found.append(IteratorArg(name, c_type(loop.type), loop.type, name in observed, name in given))
    return found


def _value_type(text: str) -> str:
    return " ".join(word for word in text.split() if word not in ("const", "register", "static"))


def _stored(target: Expr) -> str:
    while isinstance(target, Field):
        target = target.a
    return target.buffer if isinstance(target, Load) else ""


def _written(nest: LoopNest) -> set[str]:
    found: set[str] = set()

    def visit(body: Sequence[object]) -> None:
        for s in body:
            match s:
                case Assign(target=target):
                    found.add(_stored(target))
                case Loop(body=inner) | While(body=inner):
                    visit(inner)
                case If(then=then, other=other):
                    visit((*then, *other))
                case _:
                    pass

    visit(nest.body)
    return found


def read_buffers(nest: LoopNest) -> set[str]:
    """Buffers that are read anywhere, subscripts and conditions included."""
    found: set[str] = set()

    def note(e: Expr | None) -> None:
        if e is not None:
            found.update(n.buffer for n in walk(e) if isinstance(n, Load))

    def visit(body: Sequence[object]) -> None:
        for s in body:
            match s:
                case Assign(target=target, value=value):
                    note(value)
                    if isinstance(target, Load):
                        for index in target.index:
                            note(index)
                    elif _stored(target):
                        found.add(_stored(target))  # one field of a record: the others are kept
                case Loop(lower=lower, upper=upper, body=inner):
                    note(lower)
                    note(upper)
                    visit(inner)
                case While(cond=cond, body=inner):
                    note(cond)
                    visit(inner)
                case If(cond=cond, then=then, other=other):
                    note(cond)
                    visit((*then, *other))
                case _:
                    note(getattr(s, "value", None))

    visit(nest.body)
    return found


# --------------------------------------------------------------------------- how large


_Counts = dict[tuple[tuple[str, int], ...], dict[str, int] | None]
_last: tuple[LiftedNest | None, _Counts] = (None, {})  # a nest is asked about the same sizes several times


def element_counts(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """Elements that each array needs for given sizes; None where the sizes make no sense together."""
    global _last
    last = _last  # another thread may ask about another nest
    if last[0] is not lifted:
        _last = last = (lifted, {})
    counts, key = last[1], tuple(sorted(sizes.items()))
    if key not in counts:
        counts[key] = _element_counts(lifted, sizes)
    found = counts[key]
    return None if found is None else dict(found)


def _element_counts(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    try:
        params = parameter_values(lifted, sizes)
    except (NotAnInteger, KeyError, ZeroDivisionError):
        return None
    counts = {b.name: _declared(b, params) for b in lifted.nest.buffers}
    if None in counts.values():
        return None
    try:
        needed = _needed(lifted, params)
    except ArithmeticError:
        return None
    if needed is None:
        return None
    for name, n in needed.items():
        if name in counts:
            own = lifted.nest.buffer(name)
            if own.distinct and all(e is not None for e in own.extents) and n > (counts[name] or 0):
                return None  # outside the declared array
            counts[name] = max(counts[name] or 0, n)
    return {name: max(1, n or 0) for name, n in counts.items()}


def _declared(b: Buffer, params: Mapping[str, int]) -> int | None:
    """Elements that the declaration asks for, or None where an inner extent is not positive."""
    known = [None if e is None else e.evaluate(dict(params)) for e in b.extents]
    if any(n is not None and n <= 0 for n in known[1:]):
        return None
    if None in known:
        return 0
    return math.prod(n for n in known if n is not None)


def _needed(lifted: LiftedNest, params: Mapping[str, int]) -> dict[str, int] | None:
    """Elements up to the last one that is touched; None where an access leaves an inner dimension.

    Also None where an assumption does not hold.
    """
    numbers = {name: Affine.number(v) for name, v in params.items()}
    out: dict[str, int] = {}
    for leaf, loops in leaves(lifted.touching or lifted.program):
        here = tuple(c.substitute(numbers) for c in uses.iterations(loops))
        for assumed in leaf.assumptions if isinstance(leaf, MdhProgram) else ():
            found = bounds(here, (assumed.substitute(numbers),))
            if found is not None and found[0][0] < 0:
                return None
        buffers = {b.name: b for b in leaf.buffers}
        if isinstance(leaf, MdhProgram):
            for (name, t), _ in uses.cells(leaf):
                cells = buffers[name].extents[t]
                if cells is not None and cells.evaluate(dict(params)) <= 0:
                    return None  # a position that is computed has no cell to go to
        extents: dict[str, list[int]] = {b.name: [0] * b.rank for b in leaf.buffers}
        touched: set[str] = set()
        for use in uses.uses(leaf, loops):
            points = tuple(c.substitute(numbers) for c in use.points)
            highest = _highest(use, points, numbers)
            if highest is None:
                continue
            touched.add(use.buffer)
            declared = buffers[use.buffer].extents
            for t, high in enumerate(highest):
                limit = declared[t]
                index = use.index[t]
                if high is None:
                    assert not isinstance(index, Affine)
                    high = _room(index, leaf, loops, params)
                    if isinstance(leaf, Sequential) and buffers[use.buffer].rank == 1:  # its own loops too
                        high = max(high, _any_product(params) - 1)
                fixed = isinstance(index, Affine) and index.substitute(numbers).is_constant
                if use.conditional and limit is not None and not fixed:  # some iterations may not read it
                    high = min(high, limit.evaluate(dict(params)) - 1)
                extents[use.buffer][t] = max(extents[use.buffer][t], high + 1)
        for name in touched:
            n = _reached(buffers[name], extents[name], params)
            if n is None:
                return None
            out[name] = max(out.get(name, 0), n)
    for name, n in _touched_by_source(lifted.nest, params, numbers):
        out[name] = max(out.get(name, 0), n)
    return out


def _room(index: Expr, leaf: Leaf, loops: Loops, params: Mapping[str, int]) -> int:
    """The greatest index that is not affine: of data, enough for each iteration to find some of its own."""
    own = _PER_ITERATION * max(iterations.extents(leaf, loops, params)) - 1
    if not uses.is_data(index):  # computed: in a flat array, rows of as many elements as some size
        return max(own, _any_product(params) - 1)
    ranges = {name: (v, v) for name, v in params.items()} | _ranges(leaf, loops, params)
    beside = uses.apart_from_data(index, ranges)
    return own if beside is None else own + max(0, beside[1])


def _any_product(params: Mapping[str, int]) -> int:
    return min(_CELLS, math.prod(max(1, v) for v in params.values()))


def _touched_by_source(
    nest: LoopNest, params: Mapping[str, int], numbers: Mapping[str, Affine]
) -> Iterator[tuple[str, int]]:
    """Elements of arrays without a declared extent that the text of the nest reaches."""
    buffers = {b.name: b for b in nest.buffers if None in b.extents}
    for use in source_uses(nest, params):
        highest = _highest(use, use.points, numbers) if use.buffer in buffers else None
        if highest is not None:
            extents = [0 if high is None else high + 1 for high in highest]
            yield use.buffer, _reached(buffers[use.buffer], extents, params) or 0


def _highest(
    use: uses.Use, points: uses.Points, numbers: Mapping[str, Affine]
) -> list[int | None] | None:
    """The greatest index per dimension (None: data tells), or None where the use never takes place."""
    affine = [a.substitute(dict(numbers)) if isinstance(a, Affine) else Affine() for a in use.index]
    found = bounds(points, tuple(affine))
    if found is None:
        return None
    names = {n for a in use.index if not isinstance(a, Affine) for n in variables(a)}
    known = tuple(sorted(names & {n for c in points for n in c.names}))
    ranges = {n: (a.const, a.const) for n, a in numbers.items()}
    ranges |= dict(zip(known, bounds(points, tuple(map(Affine.of, known))) or (), strict=True))
    highest: list[int | None] = []
    for a, (_, high) in zip(use.index, found, strict=True):
        reached = None if isinstance(a, Affine) else uses.interval(a, ranges)
        highest.append(high if isinstance(a, Affine) else reached and reached[1])
    return highest


def _reached(b: Buffer, extents: Sequence[int], params: Mapping[str, int]) -> int | None:
    """Elements from the first of a buffer to the one with the largest indices."""
    if any(n <= 0 for n in extents):
        return 0
    strides, step = [], 1
    for t in reversed(range(b.rank)):
        strides.append(step)
        declared = b.extents[t]
        if t and declared is not None:
            inner = declared.evaluate(dict(params))
            if inner < extents[t]:
                return None
            step *= inner
    if b.strides is not None:
        strides = [s.evaluate(dict(params)) for s in reversed(b.strides)]
    return 1 + sum((n - 1) * s for n, s in zip(extents, reversed(strides), strict=True))


def _chain(lifted: LiftedNest, sizes: Sizes) -> int:
    """How many operations in a row may add their errors."""
    return iterations.chain(lifted.program, parameter_values(lifted, sizes))


def _diagonals(lifted: LiftedNest, sizes: Sizes) -> dict[str, int]:
    """Of arrays with several dimensions: elements from one diagonal element to the next."""
    params = parameter_values(lifted, sizes)
    found: dict[str, int] = {}
    for leaf, _ in leaves(lifted.program):
        for b in leaf.buffers:
            inner = [e.evaluate(params) for e in b.extents[1:] if e is not None]
            if b.strides is None and b.rank > 1 and len(inner) == b.rank - 1:
                found.setdefault(b.name, sum(math.prod(inner[t:]) for t in range(b.rank)))
    known = {b.name for b in lifted.nest.buffers}
    return {name: step for name, step in found.items() if name in known and step > 0}


def _ranges(leaf: Leaf, loops: Loops, params: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The first and last values of dimensions and iterators; nothing where one of them never takes any."""
    dims = [(d.name, d.size) for d in leaf.hom.dims] if isinstance(leaf, MdhProgram) else []
    counted = [*((x.iterator, x.size) for x in loops), *dims]
    numbers = {name: Affine.number(v) for name, v in params.items()}
    points = tuple(c.substitute(numbers) for name, size in counted for c in uses.counts(name, size))
    try:
        found = bounds(points, tuple(Affine.of(name) for name, _ in counted))
    except ArithmeticError:
        return {}
    return dict(zip((name for name, _ in counted), found or (), strict=False))


def _index_data(lifted: LiftedNest, sizes: Sizes, counts: Mapping[str, int]) -> dict[str, IndexData]:
    """What the values of arrays must be like that are used as indices."""
    params = parameter_values(lifted, sizes)
    known = {b.name for b in lifted.nest.buffers}
    found: dict[str, IndexData] = {}
    for leaf, loops in leaves(lifted.program):
        buffers = {b.name: b for b in leaf.buffers}
        ranges = {name: (value, value) for name, value in params.items()} | _ranges(leaf, loops, params)
        for use in uses.data_indices(leaf):
            extents = buffers[use.buffer].extents
            extent, inner = extents[use.position], [e.evaluate(params) for e in extents[1:] if e is not None]
            if extent is not None:
                n = extent.evaluate(params)
            else:
                n = counts.get(use.buffer, 1) // max(1, math.prod(inner))
            first, below = use.range_of_sources(n, ranges)
            for name in use.sources & known:
                before = found.get(name, IndexData(below, first=first))
                ascending, start = before.ascending or name in use.running, max(first, before.first)
                found[name] = IndexData(max(start + 1, min(below, before.below)), ascending, start)
    return found


# --------------------------------------------------------------------------- sizes to try

_FEWEST = 16  # rows or columns that an array is left with of which only one is touched
_FEW_BYTES, _BYTES_PER_POINT = 1 << 29, 128  # arrays that are longer than that for their work are shortened


def size_ranges(lifted: LiftedNest) -> dict[str, tuple[int, int]]:
    """Inclusive bounds of every integer variable, for the ladder of sizes."""
    ranges = {}
    for name, p in variables_of(lifted).items():
        if isinstance(p.type, ScalarType) and p.type.is_integer:
            high = min(_LARGE, (1 << (p.type.bits - 1)) - 1)
            ranges[name] = (0, high)
    return ranges


def repaired(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """The sizes, with leading dimensions enlarged, and places where the nest begins nearer to the arrays'
    beginnings, until all accesses are inside; None if that fails."""
    tried = {name: int(v) for name, v in sizes.items()}
    if element_counts(lifted, tried) is not None:
        return tried
    spans = _spans(lifted)
    _, begin = extents_and_places(lifted)
    free = [name for name, p in variables_of(lifted).items() if p.name not in spans and name not in begin]
    for _ in range(4):
        tried = {n: 2 * v + 8 if n in free else v // 2 if n in begin else v for n, v in tried.items()}
        if element_counts(lifted, tried) is not None:
            return tried
    return None


def _spans(lifted: LiftedNest) -> set[str]:
    """Parameters that say how long loops are."""
    placed = iterations.placed(lifted.program)
    return {n for p, loops in placed for size in iterations.all_sizes(p, loops) for n in size.span.names}


def fitting(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """The sizes, repaired; or smaller ones, where arrays have fixed extents, or much of them is not touched.

    First extents along which no loop goes are halved, as the column's length of ``x[j * m + 3]``, then all
    are, until the accesses are inside of the arrays; then one after the other is enlarged as far as it may
    be, up to what it was.  None if that fails.
    """
    wanted = {name: int(v) for name, v in sizes.items()}
    spans = _spans(lifted)
    others = [name for name, p in variables_of(lifted).items() if p.name not in spans and name in wanted]
    tried = wanted
    while _fitted(lifted, tried) is None and any(tried[name] > _FEWEST for name in others):
        tried |= {name: max(_FEWEST, tried[name] // 2) for name in others if tried[name] > _FEWEST}
    if _fitted(lifted, tried) is None:
        tried = wanted
    while _fitted(lifted, tried) is None:
        if all(v <= 1 for v in tried.values()):
            return None
        tried = {name: max(1, v // 2) if v > 1 else v for name, v in tried.items()}
    for name in (*(n for n in wanted if n not in others), *others):
        low, beyond = tried[name], wanted[name] + 1  # the one fits, the other does not or is not wanted
        while low + 1 < beyond:
            middle = (low + beyond) // 2
            if _fitted(lifted, {**tried, name: middle}) is None:
                beyond = middle
            else:
                low = middle
        tried = {**tried, name: low}
    return _fitted(lifted, tried)


def _fitted(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """The sizes, repaired, unless arrays are long of which little is touched."""
    found = repaired(lifted, sizes)
    if found is None:
        return None
    bytes_of = {b.name: b.type.size for b in lifted.nest.buffers}
    taken = sum(n * bytes_of[name] for name, n in (element_counts(lifted, found) or {}).items())
    return found if taken <= max(_FEW_BYTES, _BYTES_PER_POINT * work(lifted, found)) else None


def work(lifted: LiftedNest, sizes: Sizes) -> float:
    """Points of all programs; infinite where the sizes make no sense together."""
    if element_counts(lifted, sizes) is None:
        return math.inf
    params = parameter_values(lifted, sizes)
    return iterations.points(lifted.program, params)


def large_sizes(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """Sizes in the proportions of the given ones with arrays that leave the caches, as far as time allows.

    None where no sizes are larger than those of the other comparisons.
    """
    bytes_of = {b.name: b.type.size for b in lifted.nest.buffers}
    for half_steps in range(8, -24, -1):
        tried = repaired(lifted, {n: int(v * 2 ** (half_steps / 2)) + 1 for n, v in sizes.items()})
        if tried is None or not sizes:
            continue
        points = work(lifted, tried)
        counts = element_counts(lifted, tried) or {}
        taken = sum(n * bytes_of[name] for name, n in counts.items())
        if points <= _LARGE_WORK and taken <= _LARGE_BYTES:
            return tried if points > _WORK or taken > _LARGE_BYTES / 4 else None
    return None


def data_style(lifted: LiftedNest) -> str:
    """Which generated data keep values in range, and errors small.

    ``product`` where factors multiply up, ``dominant`` where computed or stored values are divided by, or
    roots and logarithms are taken of them, ``positive`` where integers are computed from one another in order
    (differences could grow until they overflow); otherwise ``sum``.
    """
    functions = [p.hom.function for p in lifted.programs if p.hom.function is not None]
    names = {part.strip(" ()") for f in functions for part in f.name.split(",")}
    # signed recurrences would overflow, too
    recurrences = [t for f in functions if not f.commutative for t in f.types]
    if "*" in names or any(isinstance(t, ScalarType) and t.kind == "int" for t in recurrences):
        return "product"
    given = {p.name for p in lifted.nest.params} | {x.iterator for x in loops_in(lifted.nest.body)}
    if any(_divides(e, given) for e in tree_exprs(lifted.nest.body)):
        return "dominant"
    written = _written(lifted.nest)
    integers = [b for b in lifted.nest.buffers if b.name in written and _is_integer(b.type)]
    return "positive" if integers and iterations.iterators_of(lifted.program) else "sum"


def _is_integer(t: Type) -> bool:
    return isinstance(t, ScalarType) and t.is_integer


_OF_POSITIVE = {f + t for f in ("sqrt", "log", "log2", "log10", "log1p", "pow", "cbrt") for t in ("", "f")}


def _divides(e: Expr, given: set[str]) -> bool:
    for n in walk(e):
        match n:
            case Binary(op="/", b=b, type=t) if t.is_float and _is_computed(b, given):
                return True
            case Call(function=name, args=args) if name in _OF_POSITIVE and _is_computed(args[0], given):
                return True
            case _:
                pass
    return False


def _is_computed(e: Expr, given: set[str]) -> bool:
    return any(isinstance(n, Load) or (isinstance(n, Var) and n.name not in given) for n in walk(e))


MOST_WORK = _WORK
__all__ = [
    "MOST_WORK",
    "data_style",
    "element_counts",
    "large_sizes",
    "read_buffers",
    "size_ranges",
    "subject_of",
    "work",
]
