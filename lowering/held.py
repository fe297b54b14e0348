"""Operands of a register tile that its rows share: which registers hold them, and in which order rows come.

in     the accesses, the dimensions of the tile's rows with their numbers, and that of its vectors
out    the order of the rows, outermost first, in which the fewest registers are held

    for e: { b = B[e, vectors];  for d: acc[d][e] += a[d] * b }     one row's vectors, and an element per d
    for d: for e: acc[d][e] += a[d] * B[e, vectors]                 the same with vectors for all e

What iterations of a loop share is loaded before it, once, for all iterations of the loops inside.  An
element that all lanes share is held only if rows of another dimension would spread it again: its own rows
spread it once for all of their vectors.  ``emit.held_text`` and the cost model ask here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from mdh_core.expr import Operand, ScalarType, stmt_exprs, walk
from mdh_core.ir import Access, MdhProgram

_MOST = 4  # dimensions of rows whose orders are compared


@dataclass(frozen=True, slots=True)
class Held:
    """``order``: numbers of the rows, outermost first; ``rows`` of vectors and ``singles`` that are held;
    ``numbers``: those of the accesses that are.
    """

    order: tuple[int, ...]
    rows: int
    singles: int
    numbers: frozenset[int]


def beside(program: MdhProgram, numbers: Set[int]) -> int:
    """Registers that a point needs besides its result and the operands that are held, ``numbers``.

    What is not held has one while it is used, and so has what comes between where a point is more than a
    product of two.  Numbers that the program is given have one: compilers keep them in all lanes.
    """
    scalar = program.hom.scalar
    exprs = (*stmt_exprs(scalar.body), *scalar.results)
    read = {x.access for e in exprs for x in walk(e) if isinstance(x, Operand)}
    given = any(isinstance(x.type, ScalarType) and x.type.is_float for x in program.params)
    return (bool(read - numbers) or len(read) != 2) + given


def depends(access: Access, dim: str) -> bool:
    return any(i.coefficient(dim) for i in access.index)


def is_shared(access: Access, rows: Sequence[tuple[str, int]], vector: str) -> bool:
    """Whether iterations of the first of ``rows`` read the same elements, and would load them again each."""
    (first, count), *inside = rows
    if count == 1 or depends(access, first):
        return False
    return depends(access, vector) or any(n > 1 and depends(access, d) for d, n in inside)


def held(accesses: Sequence[Access], rows: Sequence[tuple[str, int]], vector: str) -> Held:
    """The best order of a tile's rows, the given one where others are not better."""
    numbers = range(len(rows))
    orders = itertools.permutations(numbers) if len(rows) <= _MOST else [tuple(numbers)]
    found = (_in_order(accesses, [rows[k] for k in order], order, vector) for order in orders)
    return min(found, key=lambda h: (h.rows, h.singles))


def _in_order(
    accesses: Sequence[Access], rows: Sequence[tuple[str, int]], order: tuple[int, ...], vector: str
) -> Held:
    vectors = singles = 0
    numbers = set()
    for number, access in enumerate(accesses):
        k = next((k for k in range(len(rows)) if is_shared(access, rows[k:], vector)), None)
        if k is None:
            continue
        numbers.add(number)
        own = math.prod(n for d, n in rows[k + 1 :] if depends(access, d))
        if depends(access, vector):
            vectors += own
        else:
            singles += own
    return Held(order, vectors, singles, frozenset(numbers))
