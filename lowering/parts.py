"""How threads share a dimension: in equal parts, of a block at most.

    unit      elements that stay together: the tile of a point, the next loop's part in a nest
    most      units of a part, at most: those of ``block_<d>``

before   1200 columns in parts of 288: 288 288 288 | 288 48           of two threads one has 864
after    25 units of 48, at most 6 in a part: 4 4 4 | 4 4 5 units     576 and 624

There are as many parts as are a multiple of the threads (``equal_parts``), cut between units at run time.
Where the size is a constant, and parts of a constant size are about as equal, they have that
(``constant_part``; measured: cut at run time, 1 to 2 % slower): 2048 columns are 43 units, 11 11 | 11 10.

Not where work is uneven in any case: such parts are small and handed out as threads get free; nor where
results must not depend on the threads: whether a tile at the end of a part has another one before it may
decide about the order of additions.  The text of parts that are cut at run time: ``emit.divided_text``.
"""

from __future__ import annotations

from mdh_core.expr import straight_line
from mdh_core.ir import MdhProgram
from mdh_core.lanes import scalar_calls

MANY = 8  # parts of several dimensions for each thread with which it is no matter that some have one more
_ABOUT = 1.05  # of an equal share: what one thread may have of parts of a constant size


def has_even_work(program: MdhProgram) -> bool:
    """Whether all points take about as long: neither a domain nor loops, branches and calls of their own."""
    return not program.hom.domain and straight_line(program.hom.scalar.body) and not scalar_calls(program)


def may_be_cut(program: MdhProgram) -> bool:
    """Whether parts may depend on how many threads there are: not where results must not."""
    return has_even_work(program) and program.fp != "deterministic"


def equal_parts(units: int, most: int, others: int, threads: int) -> int:
    """In how many parts so many units are cut, with at most ``most`` of them in each.

    others  parts of other dimensions that threads share with this one
    """
    parts = -(-units // most)
    if parts * others % threads and (others == 1 or parts * others < MANY * threads):
        parts = -(-parts // threads) * threads
    return min(parts, units)


def constant_part(units: int, most: int, others: int, threads: int) -> int | None:
    """Units of each of equal parts but the last one; None: cut at run time, threads get more alike."""
    each = -(-units // equal_parts(units, most, others, threads))
    parts = -(-units // each) * others
    busiest = min(-(-parts // threads) * each, units * others)
    return each if busiest <= _ABOUT * max(each, -(-units * others // threads)) else None
