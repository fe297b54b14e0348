"""The certificate of what is about to be spliced, within a time that is bounded.

    certified(nest, steps, stages) ::= Certificate | str       # the reason why there is none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from certify.certificate import certificate
from certify.obligations import CHECKED, PROVED, UNKNOWN, Certificate
from lifter.loop_nest import LoopNest
from lowering.host_tiles import HostTiles
from lowering.lower import Lowered
from mdh_core.ir import HostLoop, Step
from mdh_lift.within import Broken, TooLong, each_within

SECONDS = 10.0


def certified(
    nest: LoopNest,
    steps: Sequence[Step],
    lowered: Sequence[Lowered],
    tiles: Sequence[tuple[HostLoop, HostTiles]] = (),
    fixed: tuple[Sequence[Step], Sequence[Lowered]] = ((), ()),
    seconds: float = SECONDS,
) -> Certificate | str:
    """``lowered``: of each program, in the order of the text; ``tiles``: of host loops; ``fixed``: the steps
    with constants for sizes, and their stages.

    What cannot be certified is no fault of the nest.
    """

    def work(_: None) -> Certificate | str:
        try:
            return certificate(nest, steps, lowered, tiles, fixed)
        except (Exception, RecursionError) as error:
            return f"ended with {type(error).__name__}"

    (answer,) = each_within(seconds, work, [None])
    match answer:
        case TooLong():
            return f"not finished after {seconds:g} s"
        case Broken(reason=reason):
            return f"ended with {reason}"
        case _:
            return answer


def summary(found: Certificate | str) -> str:
    """``12 obligations proved, 2 checked at small sizes, 1 unknown``."""
    if isinstance(found, str):
        return f"none: {found}"
    counts = Counter(o.status for o in found.obligations)
    parts = [f"{counts[PROVED]} obligations proved"]
    parts += [f"{counts[CHECKED]} checked at small sizes"] if counts[CHECKED] else []
    parts += [f"{counts[UNKNOWN]} unknown"] if counts[UNKNOWN] else []
    parts += [f"{len(found.refuted)} refuted"] if found.refuted else []
    return ", ".join(parts)
