"""Which part of each array a nest touches, as lines of its host function; and whether these parts overlap.

    long A_first, A_last        the first and the last element that is copied to the device; nothing: 0, -1
    return 0; /* A and C overlap */

A part is computed once: what is copied is what must not overlap.  The corpus on OpenCL compares with the
original, whose arrays end where the declared sizes say.
"""

from __future__ import annotations

from collections.abc import Sequence

from emit.c_text import affine_text, c_type
from emit.guards_text import overlapping_pairs, reach_of
from emit.host_text import Leaf, Loops, largest_size
from emit.interface_text import size_text
from mdh_core.expr import Affine, Load, straight_line, walk
from mdh_core.ir import Buffer, MdhProgram, Sequential, keeps_if_empty
from mdh_core.polytope import project, rows_of


def ranges_of(
    buffers: Sequence[Buffer], placed: list[tuple[Leaf, Loops]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Per buffer the lines that find which elements the nest touches; the buffers where that is not known."""
    found: dict[str, list[str]] = {}
    unknown: list[str] = []
    for b in buffers:
        rows = found[b.name] = []
        first, last = f"{b.name}_first", f"{b.name}_last"
        own: list[str] = []
        simple: tuple[str, str] | None = None  # one range, without a condition
        for leaf, loops in placed:
            if all(x.name != b.name for x in leaf.buffers):
                continue
            ends = reach_of(b, [(leaf, loops)], inside=True)
            if ends is None or (b.extents[:1] == (None,) and _is_conditional(leaf, b.name)):
                unknown.append(b.name)
                break
            lows, highs = ends
            moves = [f"if ({x} < {first}) {first} = {x};" for x in lows]
            moves += [f"if ({x} > {last}) {last} = {x};" for x in highs]
            if not moves:
                continue
            test = _runs(leaf, loops, b.name)
            box = isinstance(leaf, MdhProgram) and not leaf.hom.domain  # else it may have no points
            alone = box and not own and not test and len(lows) == len(highs) == 1
            simple = (lows[0], highs[0]) if alone else None
            own += [f"if ({test}) {{", *(f"  {m}" for m in moves), "}"] if test else moves
        if simple is not None:
            rows.append(f"long {first} = {simple[0]}, {last} = {simple[1]};")
            continue
        rows += [f"long {first} = 0x7fffffffffffffffL, {last} = -1;", *own]
        rows.append(f"if ({last} < {first}) {first} = 0, {last} = -1;")
    return found, unknown


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
    stores = [s for s in leaf.out.stores if s.buffer == buffer]
    ends = [*(e for e in leaf.out.initial if e is not None), *(s.value for s in leaf.out.stores)]
    beside = any(isinstance(n, Load) and n.buffer == buffer for e in ends for n in walk(e))
    # a cell to which nothing is added may not exist
    added = bool(stores) and all(keeps_if_empty(s, leaf.out.initial) for s in stores)
    every = added or not (stores or beside)
    dims = leaf.hom.dims if every else leaf.hom.dims_of("cc", "ps")
    sizes = [largest_size(x.size, loops[:k]) for k, x in enumerate(loops)]
    sizes += [largest_size(d.size, loops) for d in dims]
    tests = [f"({size_text(s)}) > 0" for s in sizes if s.constant is None]
    if any(s.constant == 0 for s in sizes):
        return "0"
    tests += [f"({affine_text(r + 1, {})}) > 0" for r in _somewhere(leaf, loops, every)]
    return " && ".join(dict.fromkeys(tests))


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
