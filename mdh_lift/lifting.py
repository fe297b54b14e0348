"""Nests that were read -> lifted, each within a wall time, in a child that can be killed.

    lifted, refused = whole_or_parts(read(source, command), seconds=30.0)

Whatever happens to one nest, the others have their results: what takes too long or ends the child is refused
with MDH215.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from frontend_c.file import ReadResult, Refused
from frontend_c.read import apart
from lifter.lift import LiftedNest, lift
from lifter.loop_nest import LoopNest
from mdh_core.diagnostics import Diagnostic, Refusal
from mdh_lift.within import Broken, TooLong, each_within


def of_python(factories: Collection[str]) -> Callable[[LoopNest], LiftedNest]:
    """``lift`` for nests of Python; those of ``factories`` mean what the MDH project means by ``=``."""
    from frontend_py.factory import assigns_in_reduction, combined

    def lift_python(nest: LoopNest) -> LiftedNest:
        store = assigns_in_reduction(nest) if nest.name in factories else None
        if store is None:
            return lift(nest)
        try:
            return combined(nest, store)
        except Refusal as refusal:
            return LiftedNest(nest, "refused", (), (replace(refusal.diagnostic, file=nest.file),))

    return lift_python


def lifted_within(
    nests: Sequence[LoopNest], seconds: float, work: Callable[[LoopNest], LiftedNest] | None = None
) -> Iterator[LiftedNest]:
    """Every nest lifted; one that takes too long is refused."""
    for nest, answer in zip(nests, each_within(seconds, work or lift, nests), strict=True):
        match answer:
            case LiftedNest():
                yield answer
            case TooLong():
                yield _refused_nest(nest, f"the analysis took longer than {seconds:g} seconds")
            case Broken(reason=reason):
                yield _refused_nest(nest, f"the analysis ended with {reason}")


def whole_or_parts(result: ReadResult, seconds: float) -> tuple[list[LiftedNest], list[Refused]]:
    """Every nest lifted; instead of a list of statements that does not lift whole, those parts that do."""
    lifted: list[LiftedNest] = []
    refused = list(result.refused)
    for one in lifted_within(result.nests, seconds):
        parts = result.parts.get(one.nest.name, ())
        if one.status != "refused" or not parts:
            lifted.append(one)
            continue
        told = [apart(part, one.diagnostics) for part in parts]
        inner = list(lifted_within([part for part in told if isinstance(part, LoopNest)], seconds))
        if any(part.status != "refused" for part in inner):
            lifted += inner
            refused += [part for part in told if isinstance(part, Refused)]
        else:
            lifted.append(one)
    return lifted, refused


def _refused_nest(nest: LoopNest, message: str) -> LiftedNest:
    d = Diagnostic("MDH215", message, nest.file, nest.span,
                   help="put directives before parts of the nest, or raise `lift.seconds`")  # fmt: skip
    return LiftedNest(nest, "refused", (), (d,))
