"""Rows of a table as text: the first column to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """All rows have as many cells.

    >>> print(aligned([("case", "ms"), ("dot", "1.25")]))
    case    ms
    dot   1.25
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(x.rjust(w) if k else x.ljust(w) for k, (x, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
