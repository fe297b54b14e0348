"""The loops of a nest that was lowered, and what they span."""

from __future__ import annotations

from dataclasses import dataclass


def size_name(dim: str) -> str:
    """The kernel's variable that holds a dimension's size."""
    return f"{dim}_size"


@dataclass(frozen=True, slots=True)
class Loop:
    """``for offset in 0, size, 2*size, ... (count of them, or up to the end)``.

    size   elements of the dimension between two iterations
    count  trip count before clipping; None for layer 0, which runs to the end of the dimension
    role   sequential | threads | unrolled | lanes
    """

    dim: str
    layer: int
    size: int
    count: int | None
    role: str


def loop_range(
    loops: tuple[Loop, ...] | list[Loop], dim: str, known: int | None = None
) -> int | None:
    """Elements of a dimension that the loops span from their first to their last; None if unbounded.

    ``known``: the dimension's size, where it is a constant.
    """
    if known is not None and any(x.count is None and x.dim == dim for x in loops):
        return max(known, 1)
    spans = [None if x.count is None else (x.count - 1) * x.size for x in loops if x.dim == dim]
    return None if None in spans else 1 + sum(s or 0 for s in spans)
