"""When a kernel declines, with nothing written: buffers overlap, an assumption does not hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from emit.c_text import affine_text
from emit.host_text import (
    Leaf,
    Loops,
    extreme,
    known_index,
    raw_strides,
    tightest,
)
from emit.interface_text import element, is_integer
from emit.kernel_text import Names
from emit.request import KernelRequest
from lowering.loops import size_name
from mdh_core.conditions import conjuncts, names_in
from mdh_core.expr import (
    INT64,
    Affine,
    Assign,
    Binary,
    Const,
    Declare,
    Expr,
    If,
    Load,
    Select,
    Stmt,
    Var,
    While,
    as_affine,
    stmt_exprs,
    walk,
)
from mdh_core.ir import Buffer, MdhProgram, Sequential, Size
from mdh_core.polytope import implied, project, rows_of, without_implied


def guards_of(
    request: KernelRequest,
    placed: list[tuple[Leaf, Loops]],
    buffers: list[Buffer],
    written: set[str],
    names: Names,
) -> list[str]:
    lines = assumption_lines(request, placed)
    pairs = overlapping_pairs(buffers, written, request.noalias)
    reach = {b.name: reach_of(b, placed) for b in dict.fromkeys(x for pair in pairs for x in pair)}
    ranges: dict[str, tuple[str, str]] = {}
    for b in dict.fromkeys(x for pair in pairs for x in pair):
        ends = reach[b.name]
        if ends is not None:
            ranges[b.name] = names.new(f"{b.name}_first_byte"), names.new(f"{b.name}_last_byte")
            lines += range_lines(b, *ends, ranges[b.name], names)
    for a, b in pairs:
        unknown = [x.name for x in (a, b) if x.name not in ranges]
        if unknown:
            reason = f"{a.name} and {b.name} may overlap: indices of {unknown[0]} are data"
            lines.append(f"return 0; /* {reason} */")
            continue
        (a_first, a_last), (b_first, b_last) = ranges[a.name], ranges[b.name]
        meet = f"{a_first} <= {b_last} && {b_first} <= {a_last}"
        lines.append(f"if ({meet}) return 0; /* {a.name} and {b.name} overlap */")
    return lines


def assumption_lines(request: KernelRequest, placed: list[tuple[Leaf, Loops]]) -> list[str]:
    """Lines that decline where what the directive or the analysis assumes of the scalars does not hold."""
    inside, _ = _tested(request)
    lines = [f"if (!({condition})) return 0;" for condition in inside]
    programs = [(leaf, loops) for leaf, loops in placed if isinstance(leaf, MdhProgram)]
    least = [extreme(a, {}, loops, False) for leaf, loops in programs for a in leaf.assumptions]
    lines += [f"if ({affine_text(a, {})} < 0) return 0;" for a in without_implied(least)]
    return list(dict.fromkeys(lines))


def tests_at_call(request: KernelRequest) -> list[str]:
    """What stands before the call, with ``&&`` between: parts of conditions with names that the kernel does
    not have, as macros, enumerators and types."""
    return [f"({condition})" for condition in _tested(request)[1]]


def _tested(request: KernelRequest) -> tuple[list[str], list[str]]:
    """Conditions that are tested in the kernel, where scalars are `long`, so that what the lifter concludes
    from them holds; and those that are tested at the call, from which it concludes nothing."""
    known = {p.name for p in request.params}
    inside: list[str] = []
    at_call: list[str] = []
    for condition in request.assume:
        for part in [condition] if names_in(condition) <= known else conjuncts(condition):
            (inside if names_in(part) <= known else at_call).append(part)
    return inside, at_call


def overlapping_pairs(
    buffers: Sequence[Buffer], written: set[str], noalias: tuple[tuple[str, ...], ...]
) -> list[tuple[Buffer, Buffer]]:
    """Pairs of which one is written and nothing says that they do not overlap."""
    return [
        (a, b)
        for k, a in enumerate(buffers)
        for b in buffers[k + 1 :]
        if (a.name in written or b.name in written) and _may_overlap(a, b, noalias)
    ]


def in_comment(line: str) -> str:
    return line.replace("*/", "* /").replace("/*", "/ *")


def assumptions(request: KernelRequest, guards: list[str], memory: list[dict[str, str]]) -> list[str]:
    """Header lines: when the kernel declines and the original runs, and what is taken on trust."""
    declines = [m[1] for g in guards if (m := re.search(r"/\* (.*) \*/", g))]
    declines += [f"not ({condition})" for condition in request.assume]
    if memory:
        declines.append("memory is short")
    lines = [f"the original runs where: {'; '.join(declines)}"] if declines else []
    lines += [f"promised: {' and '.join(group)} do not overlap" for group in request.noalias]
    return lines


def _may_overlap(a: Buffer, b: Buffer, noalias: tuple[tuple[str, ...], ...]) -> bool:
    if a.restrict or b.restrict or (a.distinct and b.distinct):
        return False
    return not any(a.name in group and b.name in group for group in noalias)


Ends = tuple[list[str], list[str]]  # C texts whose least (greatest) value is the first (last) element


def reach_of(b: Buffer, placed: list[tuple[Leaf, Loops]], inside: bool = False) -> Ends | None:
    """The first and last element of a buffer that the nest touches; None where only data tells.

    ``inside``: coordinates are kept within the array's extents where a bound is not exact (conditions,
    a domain, host loops); then they are texts with ``mdh_least`` and ``mdh_greatest``.  What is touched in
    any case is not: an outermost extent of a parameter binds nobody, `a[0][j]` may exist where it is 0.
    """
    lows: list[_End] = []
    highs: list[_End] = []
    for leaf, loops in placed:
        mine = next((x for x in leaf.buffers if x.name == b.name), None)
        if mine is None:
            continue
        if mine.rank == b.rank:
            mine = b
        # else a statement that stayed has a flat array's cells by one index, a program by several
        strides = raw_strides(mine)
        dims = {d.name: d.size for d in leaf.hom.dims} if isinstance(leaf, MdhProgram) else {}
        boxed = isinstance(leaf, MdhProgram) and not leaf.hom.domain and not loops
        for index, rows, always in dict.fromkeys(_indices(leaf, loops, b.name)):
            for positive, ends in ((False, lows), (True, highs)):
                at, terms = [], []
                for a, extent, stride in zip(index, mine.extents, strides, strict=True):
                    if a is None and extent is None:
                        return None
                    if a is not None:
                        end = tightest(a, dims, loops, rows, positive)
                    else:
                        end = extent - 1 if positive and extent is not None else Affine()
                    if not inside:
                        end = end.substitute({size_name(d): s.span for d, s in dims.items() if s.step == 1})
                    text = affine_text(end, {}, atom=stride != 1)
                    if inside and extent is not None and not (always and boxed):
                        text = _kept(end, text, extent, dims, positive)
                    at.append(end)
                    terms.append(text if stride == 1 or text == "0" else f"{text}*{stride}")
                linear = " + ".join(t for t in terms if t != "0").replace("+ -", "- ") or "0"
                ends.append(_End(tuple(at), linear))
    if not inside:
        lows, highs = _outermost(lows, upper=False), _outermost(highs, upper=True)
    return list(dict.fromkeys(e.text for e in lows)), list(dict.fromkeys(e.text for e in highs))


def open_ends(b: Buffer, leaf: MdhProgram, every: bool, where: Sequence[Affine]) -> list[Affine] | None:
    """What must not be negative for points of the domain to touch the first and the last element of
    ``reach_of``; None where that cannot be told.

    Of a window that a small picture cuts off, nobody may read the first or the last weight.  Rows that the
    source declares are there as a whole (``A[n][m]``, whose address is ``&A[0][0]``).

    every   whether the array is touched at points of all dimensions only, and not at every cell
    where   not negative where it is asked
    """
    has_rows = b.rank > 1 and b.base.startswith("&") and b.base.endswith("[0]" * b.rank)
    outermost = slice(1 if has_rows else None)
    dims = {d.name: d.size for d in leaf.hom.dims}
    spans = {size_name(d): s.span for d, s in dims.items() if s.step == 1}
    found: dict[Affine, None] = {}
    for index, own, always in dict.fromkeys(_indices(leaf, (), b.name)):
        rows = tuple(rows_of(leaf.hom.domain)) if every else own
        met = {n for a in (*index[outermost], *rows) if a is not None for n in a.names}
        ranges = [(d, s) for d, s in dims.items() if d in met]
        box = [Affine.of(name) for name, _ in ranges]
        box += [size.span - 1 - Affine.of(name) * size.step for name, size in ranges]
        for positive in (False, True) if always else ():
            at: list[Affine] = []
            for a in (x for x in index[outermost] if x is not None):
                end = tightest(a, dims, (), rows, positive).substitute(spans)
                at += [a - end, end - a]
            left, exact = project([*rows, *box, *at], [name for name, _ in ranges])
            if not exact:
                return None
            found |= dict.fromkeys(r for r in left if not implied(r, where))
    return list(found)


@dataclass(frozen=True, slots=True)
class _End:
    """The first or last index along every coordinate, and the C text of the element there."""

    at: tuple[Affine, ...]
    text: str


def _outermost(ends: list[_End], upper: bool) -> list[_End]:
    """Without those that lie within others whatever the sizes are, as strides are not negative.

    >>> n = Affine.of("n")
    >>> ends = [_End((n - 2, n), "a"), _End((n - 1, n), "b"), _End((n * 2, n - 1), "c")]
    >>> [e.text for e in _outermost(ends, upper=True)], [e.text for e in _outermost(ends, upper=False)]
    (['b', 'c'], ['a', 'c'])
    """
    kept: list[_End] = []
    for e in ends:
        if not any(_within(e, k, upper) for k in kept):
            kept = [k for k in kept if not _within(k, e, upper)] + [e]
    return kept


def _within(e: _End, other: _End, upper: bool) -> bool:
    if len(e.at) != len(other.at):
        return False
    beyond = [(y - x) * (1 if upper else -1) for x, y in zip(e.at, other.at, strict=True)]
    return all(x.is_constant and x.const >= 0 for x in beyond)


def _kept(end: Affine, text: str, extent: Affine, dims: Mapping[str, Size], upper: bool) -> str:
    """An end of a coordinate's range, not beyond the extent; as it is where that is known."""
    spans = {size_name(d): s.span for d, s in dims.items() if s.step == 1}
    beyond = end.substitute(spans) - (extent - 1) if upper else -end.substitute(spans)
    if beyond.is_constant and beyond.const <= 0:
        return text
    if upper:
        return f"mdh_least({affine_text(end, {})}, {affine_text(extent - 1, {})})"
    return f"mdh_greatest({affine_text(end, {})}, 0)"


def range_lines(
    b: Buffer, lows: list[str], highs: list[str], addresses: tuple[str, str], names: Names
) -> list[str]:
    """The addresses between which the nest touches a buffer."""
    first, last = names.new(b.name + "_first"), names.new(b.name + "_last")
    lines = []
    for name, texts, sign in ((first, lows, "<"), (last, highs, ">")):
        if len(texts) == 1:
            lines.append(f"const long {name} = {texts[0]};")
            continue
        lines.append(f"long {name} = {texts[0]};")
        lines += [f"if ({t} {sign} {name}) {name} = {t};" for t in texts[1:]]
    size = f"sizeof({element(b)})"
    low, high = addresses
    lines.append(f"const __UINTPTR_TYPE__ {low} = (__UINTPTR_TYPE__){b.name} + {first}*{size};")
    lines.append(f"const __UINTPTR_TYPE__ {high} = (__UINTPTR_TYPE__){b.name} + {last}*{size} + {size} - 1;")
    return lines


Index = tuple[Affine | None, ...]


def _indices(leaf: Leaf, loops: Loops, buffer: str) -> Iterator[tuple[Index, tuple[Affine, ...], bool]]:
    """Every index at which a buffer is read or written, what holds for the dimensions there, and whether it
    is met at all of their points.

    A cell is stored, and its initial value read, also where nothing contributes to it.
    """
    known = {p.name for p in leaf.params if is_integer(p)} | {x.iterator for x in loops}
    rows: tuple[Affine, ...] = ()
    if isinstance(leaf, Sequential):
        loose = []
        counted = dict(_counted(leaf.body))
        for e in stmt_exprs(leaf.body):
            for index in _loads(e, buffer, known | counted.keys()):
                yield from ((at, rows, False) for at in _at_ends(index, counted, known))
    else:
        known |= {d.name for d in leaf.hom.dims}
        iterators, reduced = {x.iterator for x in loops}, {d.name for d in leaf.hom.dims_of("pw")}
        changing = [d for d in leaf.hom.dims if d.size.span.names & iterators]
        somewhere = [(d.name, d.size.span - 1) for d in changing]  # no cell is touched where one is empty
        domain = rows_of(leaf.hom.domain)
        every = (*domain, *(r for _, r in somewhere))
        rows = tuple(r for r in domain if not r.names & reduced)
        rows += tuple(r for n, r in somewhere if n not in reduced)
        yield from ((a.index, every, not a.conditional) for a in leaf.inp.accesses if a.buffer == buffer)
        yield from ((s.index, rows, True) for s in leaf.out.stores if s.buffer == buffer)
        scalar = leaf.hom.scalar
        loose = [*stmt_exprs(scalar.body), *scalar.results]
        ends = [e for e in leaf.out.initial if e is not None] + [s.value for s in leaf.out.stores]
        always = [e for e in ends if _is_straight(e)]
        yield from ((index, rows, True) for e in always for index in _loads(e, buffer, known))
        loose += [e for e in ends if not _is_straight(e)]
    for e in loose:
        yield from ((index, rows, False) for index in _loads(e, buffer, known))


def _counted(body: Sequence[Stmt]) -> Iterator[tuple[str, tuple[Affine | None, Affine | None]]]:
    """The variables that loops of statements count, outermost first, and their first and last values.

    ``long i_end = n;  long i = 0;  while (i < i_end) { ...  i = i + 1; }``; in steps of more than 1 it may
    end before the last value.  A variable that steps otherwise, or is assigned elsewhere, is none of them.
    """
    first: dict[str, Affine | None] = {}  # what variables have been declared with, and still hold
    for s in body:
        match s:
            case Declare(name=name, value=value) if value is not None:
                first[name] = as_affine(value)
            case While(cond=Binary(op="<" | ">" as op, a=Var(name=i), b=Var(name=end)), body=inner):
                steps = bool(inner) and _steps(inner[-1], i, upwards=op == "<")
                if steps and {i, end} <= first.keys() and not _assigned({i, end}, inner[:-1]):
                    last = first[end]
                    yield i, (first[i], None if last is None else last + (-1 if op == "<" else 1))
                yield from _counted(inner)
            case While(body=inner):
                yield from _counted(inner)
            case If(then=then, other=other):
                yield from _counted(then)
                yield from _counted(other)
        if not isinstance(s, Declare):
            first = {name: a for name, a in first.items() if not _assigned({name}, (s,))}


def _steps(s: Stmt, name: str, upwards: bool) -> bool:
    """Does a statement add a constant to a variable, in this direction?"""
    i = Var(name, INT64)
    match s:
        case Assign(target=target, value=Binary(op="+", a=a, b=Const(value=int(step)))) if target == a == i:
            return step > 0 if upwards else step < 0
    return False


def _assigned(names: set[str], body: Sequence[Stmt]) -> bool:
    for s in body:
        match s:
            case Assign(target=Var(name=name)) | Declare(name=name) if name in names:
                return True
            case While(body=inner) if _assigned(names, inner):
                return True
            case If(then=then, other=other) if _assigned(names, (*then, *other)):
                return True
    return False


def _at_ends(
    index: Index, counted: dict[str, tuple[Affine | None, Affine | None]], known: set[str]
) -> list[Index]:
    """The index where counted variables have their first and last values: it is least and greatest there."""
    found: list[Index] = [index]
    for name in reversed(counted):
        ends = counted[name]
        there: dict[Index, None] = {}
        for at in found:
            for end in ends if any(a is not None and name in a.names for a in at) else ends[:1]:
                there[tuple(_put(a, name, end) for a in at)] = None
        found = list(there)
    return [tuple(a if a is not None and a.names <= known else None for a in at) for at in found]


def _put(a: Affine | None, name: str, value: Affine | None) -> Affine | None:
    if a is None or name not in a.names:
        return a
    return None if value is None else a.substitute({name: value})


def _loads(e: Expr, buffer: str, known: set[str]) -> Iterator[Index]:
    return (known_index(n, known) for n in walk(e) if isinstance(n, Load) and n.buffer == buffer)


def _is_straight(e: Expr) -> bool:
    """Whether all of an expression is computed."""
    return not any(isinstance(n, Select) or (isinstance(n, Binary) and n.op in ("&&", "||")) for n in walk(e))
