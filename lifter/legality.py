"""Which combine operators go together: mdh.md 2.2, "When is it well defined?".

A tuple of operators is well defined when every pair obeys the interchange law

    (a ⊛1 b) ⊛2 (c ⊛1 d)  =  (a ⊛2 c) ⊛1 (b ⊛2 d).

Concatenation obeys it with every operator.  Two operators that compute values (``pw`` or ``ps``) obey
it where their function is the same, associative and commutative one; for two ``pw`` operators with
neutral elements there is no other case (Eckmann-Hilton).  Every ``CombineFunction`` is associative
by definition; what is left to compare is the functions, and to ask whether they commute.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mdh_core.combine import CombineFunction, CombineOp


def why_not_well_defined(combine: Sequence[CombineOp]) -> str | None:
    """None for a legal tuple of combine operators, otherwise the pair that violates the law."""
    computing = [op for op in combine if op.function is not None]
    for first, second in pairwise(computing):
        if not same_function(first.function, second.function):
            return f"`{first}` and `{second}` do not obey the interchange law"
        if first.function is not None and not first.function.commutative:
            return f"`{first}` and `{second}` do not obey the interchange law: the order of values matters"
    return None


def same_function(f: CombineFunction | None, g: CombineFunction | None) -> bool:
    """Equal as functions: types and values decide, names do not."""
    if f is None or g is None:
        return f is g
    return f.types == g.types and f.values == g.values
