"""The text that entries of the lock generate for a nest, for comparison with the text that is there.

    nest, its entries  ->  what could be spliced for it: one ``Made`` for each entry

Where a nest has several classes of sizes, the entries of a machine make one text together.  What cannot be
generated (an entry of another version, or written by hand) is left out.  ``tests/test_lock_check.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from emit.gpu_file import GpuPart
from emit.openmp_file import OpenmpPart
from lowering.point import Point
from mdh_core.diagnostics import Refusal
from mdh_lift import beside, kernels, nest_sizes, recorded
from mdh_lift.classes import AnyPlan, SeveralPlan, classes_of, clauses_of, only_clause, several
from mdh_lift.gpu_plans import GpuPlan, gpu_plan
from mdh_lift.lock_check import MOST, Block, Made
from mdh_lift.outlined import OutlinedPlan, outlined
from mdh_lift.pipeline import FileReport, NestReport, lines_of, macros_of, splice_part
from tuning.harness import Candidate
from tuning.results import text_hash

_Texts = Callable[[], tuple[Candidate, tuple[GpuPart | OpenmpPart, ...]]]


def generated(report: FileReport, nest: NestReport, blocks: Sequence[Block]) -> list[Made]:
    """``blocks``: entries of this version of the nest, for one target."""
    assert nest.lifted is not None
    if len(clauses_of(nest.lifted)) > 1:
        return list(itertools.islice(_together(report, nest, blocks), MOST))
    return [m for b in blocks if (m := _of_block(report, nest, b)) is not None]


def _of_block(report: FileReport, nest: NestReport, block: Block) -> Made | None:
    """What the configuration of an entry generates; None where it is none of this nest."""
    found = _plan(report, nest, block)
    if found is None:
        return None
    plan, point = found
    parts = (plan.part,) if isinstance(plan, GpuPlan | OutlinedPlan) else ()
    return _made(
        report, nest, block, lambda: (plan.candidate(point, described=True), tuple(p(point) for p in parts))
    )


def _together(report: FileReport, nest: NestReport, blocks: Sequence[Block]) -> Iterator[Made]:
    """What the entries of the classes of a machine generate, those of all classes first; a class may have
    none, where it was not faster."""
    assert nest.lifted is not None
    classes = classes_of(nest.lifted)
    for fingerprint in dict.fromkeys(b.fingerprint for b in blocks):
        there = [
            (clause, b)
            for variables, clause in classes
            for b in blocks if b.fingerprint == fingerprint and b.sizes == variables
        ]  # fmt: skip
        for count in range(len(there), 0, -1):
            for some in itertools.islice(itertools.combinations(there, count), MOST):
                found = [(_plan(report, nest, b, clause), clause) for clause, b in some]
                chosen = [(*planned, clause) for planned, clause in found if planned is not None]
                if len(chosen) < count:
                    continue
                plan = several(chosen)
                made = _made(report, nest, some[0][1], partial(_texts_of, plan))
                if made is not None:
                    yield made


def _texts_of(plan: SeveralPlan) -> tuple[Candidate, tuple[GpuPart | OpenmpPart, ...]]:
    return plan.candidate({}, described=True), plan.parts()


def _made(report: FileReport, nest: NestReport, block: Block, texts: _Texts) -> Made | None:
    assert nest.lifted is not None
    try:
        candidate, apart = texts()
    except Refusal:
        return None
    except (LookupError, ValueError, TypeError, ArithmeticError, AssertionError):
        return None  # a point of another version, or one that was written by hand
    text = candidate.kernel_text
    if apart:
        text = beside.include(beside.file_name(report.source.path, block.target))
    part = splice_part(report, nest.lifted.nest, text, candidate.call, candidate.after)
    return Made(block, part, apart, text_hash(candidate))


def _plan(
    report: FileReport, nest: NestReport, block: Block, clause: Mapping[str, int] | None = None
) -> tuple[AnyPlan, Point] | None:
    """The plan that an entry is for, with its point; ``clause``: as if it were the only one of the nest."""
    point = block.configuration.get("point")
    if nest.lifted is None or not isinstance(point, dict):
        return None
    try:
        lifted = nest.lifted if clause is None else only_clause(nest.lifted, clause)
        params = nest_sizes.parameter_values(lifted, block.sizes or nest_sizes.sizes_of(lifted))
        lines, known = lines_of(report, nest), macros_of(report)
        if block.target == "openmp":
            plan = kernels.planned(lifted, params, lines, known)
            plan = recorded.on_machine(plan, block.configuration.get("machine"))
            if beside.included(nest.regions):
                plan = outlined(plan, report.source.path, report.directory)
            return plan, point
        device = recorded.device_in(block.configuration)
        plan_there = gpu_plan(lifted, block.target, params, lines, known, device, report.directory)
        return plan_there, point
    except Refusal:
        return None
    except (LookupError, ValueError, TypeError, ArithmeticError, AssertionError):
        return None  # a point of another version, or one that was written by hand
