"""Which part of each array a nest touches, as lines of its host function; and whether these parts overlap.

    long A_first, A_last        the first and the last element that is copied to the device; nothing: 0, -1
    return 0; /* A and C overlap */

A part is computed once: what is copied is what must not overlap.  The corpus on OpenCL compares with the
original, whose arrays end where the declared sizes say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from emit.c_text import affine_text, c_type
from emit.gpu_touched import Touched, needed, touched
from emit.guards_text import open_ends, overlapping_pairs, reach_of
from emit.host_text import Leaf, Loops, largest_size
from emit.interface_text import size_text
from lowering.loops import size_name
from mdh_core.expr import Affine, Load, straight_line, walk
from mdh_core.ir import Buffer, MdhProgram, Sequential, Size, keeps_if_empty
from mdh_core.polytope import project, rows_of


def ranges_of(
    buffers: Sequence[Buffer], placed: list[tuple[Leaf, Loops]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Per buffer the lines that find which elements the nest touches; the buffers where that is not known."""
    found: dict[str, list[str]] = {}
    unknown: list[str] = []
    for b in buffers:
        rows = found[b.name] = []
        if any(_asks_more(b.name, leaf, loops) for leaf, loops in placed):
            pieces = _pieces(b.name, placed)
            if pieces is None:
                unknown.append(b.name)
            else:
                rows += _lines_of(b.name, pieces)
            continue
        ranges: list[_Range] = []
        for leaf, loops in placed:
            its = _own(leaf, b.name)
            if its is None:
                continue
            ends = reach_of(its, [(leaf, loops)], inside=True)
            assert ends is not None
            left = _open_ends(leaf, loops, its)
            if left is None:
                unknown.append(b.name)
                break
            if ends[0]:
                test = _runs(leaf, loops, b.name)
                if left:
                    beyond = " || ".join(f"{affine_text(r, {})} < 0" for r in left)
                    asked = f"{test} && ({beyond})" if test else beyond
                    rows.append(f"if ({asked}) return 0; /* {b.name} may have fewer elements */")
                box = isinstance(leaf, MdhProgram) and not leaf.hom.domain and not loops
                if isinstance(leaf, MdhProgram):
                    ends = _fewest(leaf, loops, b.name, *ends)
                ranges.append(_Range((test,) if test else (), *ends, certain=box))
        rows += _lines_of(b.name, ranges)
    return found, unknown


def _fewest(
    leaf: MdhProgram, loops: Loops, buffer: str, lows: list[str], highs: list[str]
) -> tuple[list[str], list[str]]:
    """The ends without those that are never the first or the last element where the leaf runs."""
    sizes = {size_name(d.name): d.size.span for d in leaf.hom.dims if d.size.step == 1}
    rooms = [s.span for s in _sizes_tested(leaf, loops, buffer) if s.constant is None]
    return needed(lows, rooms, sizes, upper=False), needed(highs, rooms, sizes, upper=True)


def _own(leaf: Leaf, buffer: str) -> Buffer | None:
    """The array as the leaf knows it: to one it may have rows, to another none."""
    return next((x for x in leaf.buffers if x.name == buffer), None)


def _asks_more(buffer: str, leaf: Leaf, loops: Loops) -> bool:
    """Whether what a leaf touches, of an array whose extent is not known, depends on more than where the
    dimensions end."""
    b = _own(leaf, buffer)
    if b is None or b.extents[:1] != (None,):
        return False
    return _is_conditional(leaf, buffer) or reach_of(b, [(leaf, loops)], inside=True) is None


def _open_ends(leaf: Leaf, loops: Loops, b: Buffer) -> list[Affine] | None:
    """What is asked at run time for both ends of a range to be touched; None: that cannot be told.

    In host loops it is taken to be so: their bounds are those of wavefronts, that touch what is between.
    """
    if not isinstance(leaf, MdhProgram) or not leaf.hom.domain or loops or b.extents[:1] != (None,):
        return []
    where = [s.span - 1 for s in _sizes_tested(leaf, loops, b.name)]
    every = _needs_points(leaf, b.name)
    return open_ends(b, leaf, every, [*where, *_somewhere(leaf, loops, every)])


@dataclass(frozen=True, slots=True)
class _Range:
    """C texts: where all tests hold, from the least of ``lows`` to the greatest of ``highs``.

    certain   there are such elements then
    """

    tests: tuple[str, ...]
    lows: list[str]
    highs: list[str]
    certain: bool = False


def _pieces(buffer: str, placed: list[tuple[Leaf, Loops]]) -> list[_Range] | None:
    """All that is touched, in pieces of which the nest touches both ends; None where that is not known."""
    found: list[Touched] = []
    others: list[_Range] = []
    for leaf, loops in placed:
        b = _own(leaf, buffer)
        if b is None:
            continue
        if isinstance(leaf, MdhProgram) and b.extents[:1] == (None,):
            own = touched(b, leaf, loops)
            if own is None:
                return None
            found += own
            continue
        ends = reach_of(b, [(leaf, loops)], inside=True)
        if ends is None or _asks_more(buffer, leaf, loops):
            return None
        if ends[0]:
            test = _runs(leaf, loops, buffer)
            others.append(_Range((test,) if test else (), *ends))
    sure = [p for p in dict.fromkeys(found) if p.sure]
    if not all(p.sure or any(s.has(p) for s in sure) for p in found):
        return None
    kept: list[Touched] = []
    for p in sure:
        if not any(o.has(p) for o in kept):
            kept = [o for o in kept if not p.has(o)] + [p]
    joined = {p.rooms: [x for x in kept if x.rooms == p.rooms] for p in kept}
    whole = [
        Touched(rooms, tuple(e for p in same for e in p.lows), tuple(e for p in same for e in p.highs), True)
        for rooms, same in joined.items()
    ]
    return [*(_Range(p.tests, *p.ends, certain=True) for p in whole), *others]


def _lines_of(name: str, ranges: Sequence[_Range]) -> list[str]:
    first, last = f"{name}_first", f"{name}_last"
    if len(ranges) == 1 and ranges[0].certain and len(ranges[0].lows) == len(ranges[0].highs) == 1:
        (only,), (low,), (high,) = ranges, ranges[0].lows, ranges[0].highs
        if not only.tests:
            return [f"long {first} = {low}, {last} = {high};"]
        return [f"long {first} = 0, {last} = -1;",
                f"if ({' && '.join(only.tests)}) {first} = {low}, {last} = {high};"]  # fmt: skip
    rows = [f"long {first} = 0x7fffffffffffffffL, {last} = -1;"]
    for tests in dict.fromkeys(r.tests for r in ranges):
        same = [r for r in ranges if r.tests == tests]
        moves = [f"if ({x} < {first}) {first} = {x};" for x in dict.fromkeys(x for r in same for x in r.lows)]
        moves += [f"if ({x} > {last}) {last} = {x};" for x in dict.fromkeys(x for r in same for x in r.highs)]
        rows += [f"if ({' && '.join(tests)}) {{", *(f"  {m}" for m in moves), "}"] if tests else moves
    return [*rows, f"if ({last} < {first}) {first} = 0, {last} = -1;"]


def overlap_lines(
    buffers: Sequence[Buffer], written: set[str], noalias: tuple[tuple[str, ...], ...]
) -> list[str]:
    """Lines that decline where two parts meet of which one is written; the parts are known by now."""
    pairs = overlapping_pairs(buffers, written, noalias)
    rows = []
    for b in dict.fromkeys(x for pair in pairs for x in pair):
        t, start, end = c_type(b.type), f"{b.name}_start", f"{b.name}_end"
        rows.append(f"const uintptr_t {start} = (uintptr_t)((const {t} *){b.name} + {b.name}_first);")
        rows.append(f"const uintptr_t {end} = (uintptr_t)((const {t} *){b.name} + {b.name}_last + 1);")
    for a, b in pairs:
        meet = f"{a.name}_start < {b.name}_end && {b.name}_start < {a.name}_end"
        rows.append(f"if ({meet}) return 0; /* {a.name} and {b.name} overlap */")
    return rows


def _runs(leaf: Leaf, loops: Loops, buffer: str) -> str:
    """When a leaf touches a buffer at all; empty: always."""
    if isinstance(leaf, Sequential):
        sizes = [largest_size(x.size, loops[:k]) for k, x in enumerate(loops)]
        return " && ".join(f"{size_text(s)} > 0" for s in sizes if s.constant is None)
    sizes = _sizes_tested(leaf, loops, buffer)
    tests = [f"{_atom(size_text(s))} > 0" for s in sizes if s.constant is None]
    if any(s.constant == 0 for s in sizes):
        return "0"
    every = _needs_points(leaf, buffer)
    tests += [f"{_atom(affine_text(r + 1, {}))} > 0" for r in _somewhere(leaf, loops, every)]
    return " && ".join(dict.fromkeys(tests))


def _sizes_tested(leaf: MdhProgram, loops: Loops, buffer: str) -> list[Size]:
    """Sizes that must be positive for a leaf to touch a buffer."""
    dims = leaf.hom.dims if _needs_points(leaf, buffer) else leaf.hom.dims_of("cc", "ps")
    sizes = [largest_size(x.size, loops[:k]) for k, x in enumerate(loops)]
    return [*sizes, *(largest_size(d.size, loops) for d in dims)]


def _needs_points(leaf: MdhProgram, buffer: str) -> bool:
    """Whether a buffer is touched at points of all dimensions only, and not at every cell."""
    stores = [s for s in leaf.out.stores if s.buffer == buffer]
    ends = [*(e for e in leaf.out.initial if e is not None), *(s.value for s in leaf.out.stores)]
    beside = any(isinstance(n, Load) and n.buffer == buffer for e in ends for n in walk(e))
    # a cell to which nothing is added may not exist
    added = bool(stores) and all(keeps_if_empty(s, leaf.out.initial) for s in stores)
    return added or not (stores or beside)


def _atom(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _somewhere(leaf: MdhProgram, loops: Loops, every: bool) -> list[Affine]:
    """What is not negative where a domain has points; not ``every``: where it has cells that are stored."""
    if not leaf.hom.domain:
        return []
    dims = leaf.hom.dims if every else leaf.hom.dims_of("cc", "ps")
    others = {d.name for d in leaf.hom.dims} - {d.name for d in dims}
    rows = [r for r in rows_of(leaf.hom.domain) if not r.names & others]
    ranges = [(d.name, d.size) for d in dims] + [(x.iterator, x.size) for x in loops]
    for name, size in ranges:
        rows += [Affine.of(name), size.span - 1 - Affine.of(name) * size.step]
    return [r for r in project(rows, [name for name, _ in ranges])[0] if not r.is_constant]


def _is_conditional(leaf: Leaf, buffer: str) -> bool:
    """Whether what is read of a buffer may depend on data."""
    if isinstance(leaf, Sequential):
        return not straight_line(leaf.body)
    return any(a.conditional for a in leaf.inp.accesses if a.buffer == buffer)
