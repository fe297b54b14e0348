"""What the programs of one nest may read while others write, and in which order they run.

A lifted program reads everything before it writes anything.  That agrees with the loops unless a
cell is written at one point and read at another; then the reader must run before the writer (it read
the old value) or after it (it read the new one), as another program.  Where one program would have
to do both, the nest is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lifter.normalise import Axis, in_source
from lifter.polyhedral import Constraint, at_least, equal, fixed_values, rename, satisfiable
from mdh_core.diagnostics import Refusal, Related, refuse
from mdh_core.expr import Affine
from mdh_core.source import Span


@dataclass(frozen=True, slots=True)
class Read:
    buffer: str
    index: tuple[Affine, ...]
    axes: tuple[str, ...]
    at_output: bool  # by an initial value or an epilogue, not by the scalar function
    initial: bool
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Write:
    buffer: str
    index: tuple[Affine, ...]
    axes: tuple[str, ...]  # concatenated and scanned ones
    combined: tuple[str, ...]  # reduced ones: the source writes the cell at each of their points
    at_last: tuple[str, ...]
    span: Span = field(compare=False)
    begun: bool = True  # also where nothing is combined: it does not start from what the cell holds


Domain = dict[str, tuple[Constraint, ...]]


@dataclass(frozen=True, slots=True)
class Order:
    """``before``: the read may come before the write in the source, at another point or the same;
    ``after``: it may come after it.  ``within``: at the same output cell, inside its reduction."""

    before: bool
    after: bool
    within: bool


def order(
    read: Read, write: Write, domain: Domain, context: tuple[Constraint, ...], nest: tuple[str, ...]
) -> Order:
    """How the reads and writes of one cell are ordered in the source; ``nest``: axes in loop order."""
    if read.buffer != write.buffer:
        return Order(False, False, False)
    points = _points(write, domain)
    primed = {a: f"{a}'" for a in points}
    base = list(context)
    for a in read.axes:
        base += domain[a]
    for a in points:
        base += [c.renamed(primed) for c in domain[a]]
    base += [equal(i, rename(j, primed)) for i, j in zip(read.index, write.index, strict=True)]
    own = read.initial and read.index == write.index
    common = [a for a in nest if a in read.axes and a in write.axes]
    before = after = within = False
    for level, name in enumerate(common):
        same = [equal(Affine.of(a), Affine.of(f"{a}'")) for a in common[:level]]
        x, y = Affine.of(name), Affine.of(f"{name}'")
        if own and name in write.at_last:
            continue
        before = before or satisfiable([*base, *same, at_least(y - x, 1)])
        after = after or satisfiable([*base, *same, at_least(x - y, 1)])
    inner = _around(read, write, nest, [*base, *_primed(write.combined, domain)], common)
    before, after = before or inner[0], after or inner[1]
    same = [equal(Affine.of(a), Affine.of(f"{a}'")) for a in common]
    if not own and satisfiable([*base, *same]):
        if write.combined and not read.at_output:
            within = True
        elif {a for a in read.axes if a not in write.combined} != set(write.axes):
            before = after = True  # not the very point of the write
    return Order(before, after, within)


def _primed(axes: tuple[str, ...], domain: Domain) -> list[Constraint]:
    primed = {a: f"{a}'" for a in domain}
    return [c.renamed(primed) for a in axes for c in domain[a]]


def _around(
    read: Read, write: Write, nest: tuple[str, ...], base: list[Constraint], common: list[str]
) -> tuple[bool, bool]:
    """Do iterations of a reduction around common axes lie behind and before a read of another cell of it?

    ``for i: for j: { b[i][j] = a[j]; a[j + 1] += c[i]; }``: what is read at ``j``, the iteration ``j - 1`` of
    every ``i`` adds to.
    """
    before = after = False
    shared = [a for a in nest if a in common or (a in read.axes and a in write.combined)]
    for level, name in enumerate(shared):
        if name in common:
            continue
        same = [equal(Affine.of(a), Affine.of(f"{a}'")) for a in shared[:level]]
        gap = Affine.of(f"{name}'") - Affine.of(name)
        for other in (a for a in shared[level + 1 :] if a in common):
            between = Affine.of(f"{other}'") - Affine.of(other)
            for apart in (at_least(between, 1), at_least(-between, 1)):
                before = before or satisfiable([*base, *same, apart, at_least(gap, 1)])
                after = after or satisfiable([*base, *same, apart, at_least(-gap, 1)])
    return before, after


def why_refused(
    read: Read,
    write: Write,
    domain: Domain,
    context: tuple[Constraint, ...],
    nest: tuple[str, ...],
    axes: Mapping[str, Axis],
) -> Refusal:
    """MDH213 for a read and a write that no order of programs reconciles."""
    common = [a for a in nest if a in read.axes and a in write.axes]
    primed = {a: f"{a}'" for a in (*write.axes, *write.combined)}
    base = list(context) + [c for a in read.axes for c in domain[a]]
    base += [c.renamed(primed) for a in primed for c in domain[a]]
    base += [equal(i, rename(j, primed)) for i, j in zip(read.index, write.index, strict=True)]
    distances = fixed_values(base, tuple(Affine.of(a) - Affine.of(f"{a}'") for a in common))
    known = [
        f"{abs(d)} iteration{'s' * (abs(d) != 1)} of `{axes[a].source_name}` {'after' if d > 0 else 'before'}"
        for a, d in zip(common, distances, strict=True)
        if d
    ]
    return refuse(
        "MDH213",
        f"{_text(read, axes)} is read and {_text(write, axes)} is written",
        read.span,
        label="iterations depend on one another's order",
        related=(Related(write.span, "written here"),) if write.span else (),
        notes=(f"a cell is read {', '.join(known)} it is written",) if known else (),
        help="write to a second buffer",
    )


def _text(a: Read | Write, axes: Mapping[str, Axis]) -> str:
    return f"`{a.buffer}{''.join(f'[{in_source(i, axes)}]' for i in a.index)}`"


def why_not_injective(
    write: Write, domain: Domain, context: tuple[Constraint, ...], all_axes: Mapping[str, Axis]
) -> Refusal | None:
    """MDH208 if two output positions write one cell."""
    axes = [a for a in write.axes if a not in write.at_last]
    primed = {a: f"{a}'" for a in _points(write, domain)}
    base = list(context)
    for a in primed:
        base += [*domain[a], *(c.renamed(primed) for c in domain[a])]
    base += [equal(i, rename(i, primed)) for i in write.index]
    for level, name in enumerate(axes):
        same = [equal(Affine.of(a), Affine.of(f"{a}'")) for a in axes[:level]]
        if satisfiable([*base, *same, at_least(Affine.of(name) - Affine.of(f"{name}'"), 1)]):
            return refuse(
                "MDH208",
                f"iterations of `{all_axes[name].source_name}` may write the same cell of `{write.buffer}`",
                write.span,
                label=f"{_text(write, all_axes)} does not tell all iterations apart",
                help="write each cell once, or combine the values",
            )
    return None


def _points(write: Write, domain: Domain) -> tuple[str, ...]:
    """The axes whose domains say where a cell is written.

    Reduced ones that bound the others are among them; further ones only if an empty reduction writes nothing.
    """
    found = list(write.axes)
    for a in found:
        bounding = {n for c in domain[a] for n in c.names} & set(write.combined) - set(found)
        found += sorted(bounding)
    return (*found, *(a for a in write.combined if a not in found and not write.begun))


def meet(a: Write, b: Write, domain: Domain, context: tuple[Constraint, ...]) -> bool:
    """May two stores write one cell?"""
    if a.buffer != b.buffer:
        return False
    primed = {x: f"{x}'" for x in _points(b, domain)}
    base = [*context, *(c for x in _points(a, domain) for c in domain[x])]
    base += [c.renamed(primed) for x in primed for c in domain[x]]
    return satisfiable([*base, *(equal(i, rename(j, primed)) for i, j in zip(a.index, b.index, strict=True))])
