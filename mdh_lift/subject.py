"""A nest as something that can be run by itself: its arguments, in the harness's terms."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from emit.c_text import affine_text, c_type
from lifter.lift import LiftedNest
from lifter.loop_nest import Loop, NestStmt
from mdh_core.diagnostics import Refusal, refuse
from mdh_core.expr import Assign, Expr, If, Load, Stmt, Var, While, stmt_exprs, walk
from mdh_core.ir import Buffer
from mdh_core.source import SourceFile
from mdh_lift import footprint
from mdh_lift.c_value import NotAnInteger
from mdh_lift.kernels import is_derived, parameter_values, variables_of
from tuning.harness import (
    Arg,
    ArrayArg,
    DerivedArg,
    IteratorArg,
    OuterScalarArg,
    ScalarArg,
    Sizes,
    Subject,
)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def subject_of(source: SourceFile, lifted: LiftedNest) -> Subject:
    """The nest of a file without generated regions.  Raises ``Refusal`` MDH804 where it cannot run alone."""
    nest = lifted.nest
    for p in nest.params:
        if is_derived(p) and re.search(r"->|\.|\[|sizeof", p.value):
            raise _cannot(lifted, f"`{p.value}` is no variable")
    args: list[Arg] = [
        ScalarArg(name, p.c_type or c_type(p.type), p.type) for name, p in variables_of(lifted).items()
    ]
    args += [DerivedArg(p.name, p.c_type or c_type(p.type), p.value) for p in nest.params if is_derived(p)]
    names = {p.name: p.value or p.name for p in nest.params if not is_derived(p)}
    args += [_array(lifted, b, names) for b in nest.buffers]
    args += [OuterScalarArg(s.name, s.c_type or c_type(s.type), s.type) for s in nest.scalars]
    taken = {a.name for a in args}
    for loop in _outer_iterators(nest.body):
        name = loop.source_name or loop.iterator
        if name not in taken:
            taken.add(name)
            args.append(IteratorArg(name, c_type(loop.type), loop.type))
    return Subject(
        source.data,
        source.path,
        nest.function_span.end,
        source.data[nest.span.start : nest.span.end],
        source.line_col(nest.span.start)[0],
        tuple(args),
        lambda sizes: _counts(lifted, sizes),
        lambda sizes: _longest_chain(lifted, sizes),
    )


def _array(lifted: LiftedNest, b: Buffer, names: Mapping[str, str]) -> ArrayArg:
    name = _source_name(b)
    if not _IDENTIFIER.fullmatch(name):
        raise _cannot(lifted, f"`{name}` is no variable")
    if any(e is None for e in b.extents[1:]):
        raise _cannot(lifted, f"an inner extent of `{name}` is not known")
    inner = tuple(affine_text(e, dict(names)) for e in b.extents[1:] if e is not None)
    read, written = _uses(lifted.nest.body, b.name)
    return ArrayArg(
        name, b.c_type or c_type(b.type), b.type, inner, written, read, no_alias=b.restrict or b.distinct
    )


def _uses(body: Sequence[NestStmt], buffer: str) -> tuple[bool, bool]:
    """Whether a buffer is read, and whether it is written."""
    read = written = False
    for s in body:
        if isinstance(s, Loop):
            inner = _uses(s.body, buffer)
            read, written = read or inner[0], written or inner[1]
            continue
        targets = list(_targets((s,)))
        for e in stmt_exprs((s,)):
            for n in walk(e):
                if isinstance(n, Load) and n.buffer == buffer:
                    is_target = any(n is t for t in targets)
                    read, written = read or not is_target, written or is_target
    return read, written


def _targets(body: Sequence[NestStmt | Stmt]) -> Iterator[Expr]:
    """Loads that stand for the place that is assigned."""
    for s in body:
        match s:
            case Assign(target=target):
                yield from (n for n in [next(_bases(target), None)] if n is not None)
            case If(then=then, other=other):
                yield from _targets(then)
                yield from _targets(other)
            case While(body=inner):
                yield from _targets(inner)
            case _:
                pass


def _bases(target: Expr) -> Iterator[Expr]:
    return (n for n in walk(target) if isinstance(n, Load | Var))


def _outer_iterators(body: Sequence[NestStmt]) -> Iterator[Loop]:
    for s in body:
        if isinstance(s, Loop):
            if s.declared_outside:
                yield s
            yield from _outer_iterators(s.body)


def _counts(lifted: LiftedNest, sizes: Sizes) -> dict[str, int] | None:
    try:
        found = footprint.counts(lifted.nest, parameter_values(lifted, sizes))
    except (NotAnInteger, KeyError):
        return None
    if found is None:
        return None
    return {_source_name(b): found[b.name] for b in lifted.nest.buffers}


def _source_name(b: Buffer) -> str:
    """``A`` of ``&A[0][0]``."""
    return re.sub(r"(\[0\])*$", "", b.base.removeprefix("&")) or b.name


def _longest_chain(lifted: LiftedNest, sizes: Sizes) -> int:
    """Values that are combined into one, at most."""
    try:
        params = parameter_values(lifted, sizes)
    except (NotAnInteger, KeyError):
        return 1
    chains = [
        math.prod(max(1, d.size.evaluate(params)) for d in p.hom.dims_of("pw", "ps")) for p in lifted.program
    ]
    return max([1, *chains])


def _cannot(lifted: LiftedNest, reason: str) -> Refusal:
    return refuse("MDH804", f"`{lifted.nest.name}` cannot be run by itself: {reason}", lifted.nest.span)
