"""Swizzles: where the cells of a copy in shared memory are, so that columns lie in different banks.

    place' = place ^ (place >> shift & (2^bits - 1) << base)

Cells are numbered as without a swizzle; ``bits`` bits of a number, from bit ``base`` on, are combined with
those that are ``shift`` further up.  Runs of 2^base cells stay together, so that they can be read with one
instruction.  A map that is no bijection would put two cells into one place: ``why_not_bijective`` looks at
every place, not at a formula.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

LARGEST = 16  # bits of a number that a swizzle looks at: no shared memory has more cells


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The numbers of the formula; ``bits`` = 0 is the identity."""

    bits: int
    base: int
    shift: int

    @property
    def mask(self) -> int:
        return ((1 << self.bits) - 1) << self.base

    def place(self, number: int) -> int:
        """Where the cell with a number is."""
        return number ^ (number >> self.shift & self.mask)

    def room(self, cells: int) -> int:
        """How many places a copy with so many cells needs: a multiple of what the map stays inside of."""
        block = 1 << (self.base + self.bits)
        return -(-cells // block) * block


@functools.lru_cache(maxsize=256)
def why_not_bijective(s: Swizzle) -> str | None:
    """What is wrong with a swizzle, or None: all places of a period, and of each block in it, are taken once.

    >>> why_not_bijective(Swizzle(2, 2, 3)) is None
    True
    >>> why_not_bijective(Swizzle(2, 2, 0))
    'cells 0 and 4 are in one place'
    """
    if min(s.bits, s.base, s.shift) < 0 or s.bits + s.base + s.shift > LARGEST:
        return f"bits, base and shift must not be negative, and {LARGEST} together at most"
    block = s.room(1)
    taken: dict[int, int] = {}
    for number in range(1 << (s.bits + s.base + s.shift)):
        place = s.place(number)
        if place // block != number // block:
            return f"cell {number} leaves its block of {block}"
        if place in taken:
            return f"cells {taken[place]} and {number} are in one place"
        taken[place] = number
    return None


def read_swizzle(text: str) -> Swizzle:
    """The swizzle ``bits,base,shift``; one that is refused where the text is none."""
    parts = text.split(",")
    if len(parts) != 3 or not all(p.strip().isdecimal() and len(p) < 4 for p in parts):
        return Swizzle(-1, -1, -1)
    bits, base, shift = map(int, parts)
    return Swizzle(bits, base, shift)
