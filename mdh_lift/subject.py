"""A lifted nest as the subject of the harness: its arguments, how large arrays must be, sizes to try."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from emit.c_text import affine_text, c_type
from frontend_c.preprocess import CompileCommand, preprocess
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, LoopNest, NestStmt
from mdh_core.expr import Assign, Expr, Field, If, Load, ScalarType, While, walk
from mdh_core.interpreter import deduced_extents
from mdh_core.ir import Buffer, MdhProgram
from mdh_core.source import SourceFile
from mdh_lift.c_value import NotAnInteger
from mdh_lift.kernels import is_derived, parameter_values, variables_of
from tuning.harness import Arg, ArrayArg, IteratorArg, OuterScalarArg, ScalarArg, Sizes, Subject

_LARGE = 1 << 20  # a size that every size variable may have
_WORK = 4e6  # points of one comparison, at most


def subject_of(lifted: LiftedNest, data: bytes, path: str, nest_text: bytes = b"") -> Subject:
    """The subject for a nest of the file ``data`` (without generated regions).

    ``nest_text``: the nest after preprocessing, where its macros are not known behind the function.
    """
    nest = lifted.nest
    return Subject(
        data,
        path,
        nest.function_span.end,
        nest_text or data[nest.span.start : nest.span.end],
        data[: nest.span.start].count(b"\n") + 1,
        tuple(_arguments(lifted)),
        lambda sizes: element_counts(lifted, sizes),
        lambda sizes: _chain(lifted, sizes),
    )


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
    arguments: list[Arg] = [
        ScalarArg(name, _value_type(p.c_type or c_type(p.type)), p.type)
        for name, p in variables_of(lifted).items()
    ]
    written, read = _written(nest), _read(nest)
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
    arguments += [
        OuterScalarArg(s.name, _value_type(s.c_type or c_type(s.type)), s.type, s.live_after)
        for s in nest.scalars
    ]
    final = {f.name: f.type for f in lifted.iterators_final}
    arguments += [IteratorArg(name, c_type(t), t) for name, t in final.items()]
    known = {a.name for a in arguments}
    for loop in _loops(nest.body):
        name = loop.source_name or loop.iterator
        if loop.declared_outside and name not in known:
            known.add(name)
            arguments.append(IteratorArg(name, c_type(loop.type), loop.type))
    return arguments


def _value_type(text: str) -> str:
    return " ".join(word for word in text.split() if word not in ("const", "register", "static"))


def _loops(body: Sequence[NestStmt]) -> list[Loop]:
    found: list[Loop] = []
    for s in body:
        if isinstance(s, Loop):
            found += [s, *_loops(s.body)]
    return found


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


def _read(nest: LoopNest) -> set[str]:
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


def element_counts(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """Elements that each array needs for given sizes; None where the sizes make no sense together."""
    try:
        params = parameter_values(lifted, sizes)
    except (NotAnInteger, KeyError, ZeroDivisionError):
        return None
    counts = {b.name: _declared(b, params) for b in lifted.nest.buffers}
    if None in counts.values():
        return None
    for p in lifted.programs:
        if any(a.evaluate(params) < 0 for a in p.assumptions):
            return None
        needed = _needed(p, params)
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


def _needed(p: MdhProgram, params: Mapping[str, int]) -> dict[str, int] | None:
    """Elements up to the last one that a program touches."""
    out = {}
    for name, extents in deduced_extents(p, params).items():
        b = p.buffer(name)
        if any(n <= 0 for n in extents):
            out[name] = 0
            continue
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
        out[name] = 1 + sum((n - 1) * s for n, s in zip(extents, reversed(strides), strict=True))
    return out


def _chain(lifted: LiftedNest, sizes: Sizes) -> int:
    """Length of the longest chain of combined values."""
    params = parameter_values(lifted, sizes)
    longest = 1
    for p in lifted.programs:
        extents = p.sizes(params)
        longest = max(longest, math.prod(extents[d.name] for d in p.hom.dims_of("pw", "ps")))
    return longest


# --------------------------------------------------------------------------- sizes to try


def size_ranges(lifted: LiftedNest) -> dict[str, tuple[int, int]]:
    """Inclusive bounds of every integer variable, for the ladder of sizes."""
    ranges = {}
    for name, p in variables_of(lifted).items():
        if isinstance(p.type, ScalarType) and p.type.is_integer:
            high = min(_LARGE, (1 << (p.type.bits - 1)) - 1)
            ranges[name] = (0, high)
    return ranges


def repaired(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    """The sizes, with leading dimensions enlarged until all accesses are inside; None if that fails."""
    spans = {n for p in lifted.programs for d in p.hom.dims for n in d.size.span.names}
    free = [name for name, p in variables_of(lifted).items() if p.name not in spans]
    tried = {name: int(v) for name, v in sizes.items()}
    for _ in range(5):
        if element_counts(lifted, tried) is not None:
            return tried
        tried = {name: 2 * v + 8 if name in free else v for name, v in tried.items()}
    return None


def work(lifted: LiftedNest, sizes: Sizes) -> float:
    """Points of all programs; infinite where the sizes make no sense together."""
    if element_counts(lifted, sizes) is None:
        return math.inf
    params = parameter_values(lifted, sizes)
    return float(sum(math.prod(p.sizes(params).values()) for p in lifted.programs))


def data_style(lifted: LiftedNest) -> str:
    """Which generated data keep values in range: sums, or products of few different factors."""
    functions = [p.hom.function for p in lifted.programs if p.hom.function is not None]
    names = {part.strip(" ()") for f in functions for part in f.name.split(",")}
    return "product" if "*" in names else "sum"


MOST_WORK = _WORK
__all__ = ["MOST_WORK", "data_style", "element_counts", "size_ranges", "subject_of", "work"]
