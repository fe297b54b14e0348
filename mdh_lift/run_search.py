"""One search of a prepared nest: what it is compared on, how it is measured, where it is recorded.

    Work, space, budget -> TuneResult

``improve`` says which space and what becomes of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lowering.point import Point
from lowering.space import Space
from mdh_core.source import SourceFile
from mdh_lift import iterations, kernels, recorded
from mdh_lift import subject as subjects
from mdh_lift.alternatives import alternatives_in
from mdh_lift.classes import WITHIN, SeveralPlan
from mdh_lift.gpu_plans import GpuPlan
from mdh_lift.nest_sizes import keeps_assumptions
from mdh_lift.specials import specials_of
from tuning.budget import Budget
from tuning.results import TuneResult, text_hash
from tuning.runner import COMPILE_FAILED
from tuning.search import Evaluation
from tuning.tune import Settings, tune
from tuning.verify import EXACT_DATA, Case, Thorough, cases_for, size_ladder

if TYPE_CHECKING:
    from mdh_lift.improve import Work

Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much
_ROUNDS = 7  # of the last measurement, at least; its time is `tune.measure-seconds`
_LAST_OF_VERIFY = (0.2, 1)  # seconds and rounds
_LAST_IF_FORCED = (0.3, 3)  # nothing depends on it


def run(
    work: Work,
    space: Space,
    budget: Budget,
    stage: str,
    tell: Tell,
    named: str = "",
    start: Sequence[Point] = (),
) -> TuneResult:
    """A search; where macros of the nest are undefined behind its function, with their expansion."""
    report = work.report
    result = tuned(work, space, budget, stage, tell, named, start)
    if result.problem is not None and result.problem.kind == COMPILE_FAILED:
        text = SourceFile(report.source.path, report.bare.data)
        expanded = subjects.preprocessed_nest(work.plan.lifted.nest, text, report.command)
        subject = subjects.subject_of(work.plan.lifted, text.data, text.path, expanded)
        again = tuned(replace(work, subject=subject), space, budget, stage, tell, named, start)
        result = again if again.problem is None else result
    return result


def only(space: Space, point: Point) -> Space:
    """The space that has just this point."""
    return Space(tuple((name, (point.get(name, values[0]),)) for name, values in space.parameters))


def tuned(
    work: Work,
    space: Space,
    budget: Budget,
    stage: str,
    tell: Tell,
    named: str = "",
    start: Sequence[Point] = (),
) -> TuneResult:
    """``named``: what the database calls it where it is no search; ``start``: more points to begin with."""
    plan, options = work.plan, work.options
    tune_options = options.config.tune
    measured = (tune_options.measure_seconds, _ROUNDS)
    last = _LAST_OF_VERIFY if stage == "verify" else _LAST_IF_FORCED if options.force else measured
    settings = Settings(
        budget=budget,
        strategy=tune_options.strategy if tune_options.strategy != "auto" else Settings().strategy,
        seed=tune_options.seed,
        style=subjects.data_style(plan.lifted),
        bitwise=plan.lifted.nest.directive.fp == "exact",
        resume=options.resume,
        named=recorded.called(stage, named),
        resident=isinstance(plan, GpuPlan) and _in_data_region(work),
        final_seconds=last[0],
        final_rounds=last[1],
        described=lambda point: text_hash(plan.candidate(point, described=True)),
    )
    sizes = work.variables
    ladder = _ladder(plan, sizes)
    final = cases_for(
        work.subject, ladder, style=settings.style, seed=settings.seed or 1, bitwise=settings.bitwise
    )
    thorough = Thorough(
        ladder,
        specials_of(plan.lifted, work.bench.toolchain.flags),
        subjects.large_sizes(plan.lifted, sizes),
        settings.style,
        settings.bitwise,
        settings.seed or 1,
    )
    quick = _quick(ladder, settings, work.bench.threads)
    done = 0

    def told(evaluation: Evaluation) -> None:
        nonlocal done
        done += 1
        tell("tuning", done, budget.evaluations or 0)

    store = recorded.store_for(work, stage)
    try:
        return tune(
            work.bench,
            work.subject,
            recorded.given(plan.candidate) if named else plan.candidate,
            space,
            sizes,
            final,
            estimate=plan.estimate if isinstance(plan, kernels.Plan) and not named else None,
            start=() if budget.nothing or isinstance(plan, SeveralPlan) else (*plan.starts, *start),
            alternatives=() if budget.nothing or named else alternatives_in(space, plan),
            quick_cases=quick,
            thorough=thorough,
            settings=settings,
            store=store,
            context=recorded.context(work, settings.seed) if store is not None else None,
            tell=told,
        )
    finally:
        if store is not None:
            store.close()


def _in_data_region(work: Work) -> bool:
    """Whether the nest stands in a statement while which its arrays stay on the device."""
    at = work.plan.lifted.nest.span.start
    return any(region.span.start <= at < region.span.end for region in work.report.data)


def _ladder(
    plan: kernels.Plan | GpuPlan | SeveralPlan, variables: Mapping[str, int]
) -> list[dict[str, int]]:
    """Sizes to compare on: 0, 1, primes, around tiles; leading dimensions as large as they must be."""
    lifted = plan.lifted
    tried = size_ladder(
        subjects.size_ranges(lifted), _tiles(plan), limit=math.inf, cost=lambda sizes: 0, at_most=60
    )
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for sizes in tried:
        fits = subjects.repaired(lifted, sizes)
        if fits is None or subjects.work(lifted, fits) > subjects.MOST_WORK:
            continue
        if keeps_assumptions(lifted, fits):
            found.setdefault(tuple(fits.values()), fits)
    own = _of_class(plan, variables) if isinstance(plan, SeveralPlan) else []
    small = list(found.values())[: 24 - len(own)]
    return [*own, *small] or [dict(variables)]  # nothing small: fixed or bound-together sizes


def _of_class(plan: SeveralPlan, variables: Mapping[str, int]) -> list[dict[str, int]]:
    """Small sizes of a class, where other sizes run the original: without them nothing would be compared."""
    if not plan.chosen[-1].condition:
        return []
    tried = [{n: -(-v // WITHIN) + more for n, v in variables.items()} for more in (0, 1)]
    return [fits for sizes in tried if (fits := subjects.repaired(plan.lifted, sizes)) is not None]


def _tiles(plan: kernels.Plan | GpuPlan | SeveralPlan) -> list[int]:
    """Extents around which the ladder of sizes goes: vectors, register tiles, small blocks, host loops'."""
    found = {int(v) for v in plan.default.values() if isinstance(v, int) and 1 < v <= 96}
    loops = iterations.host_loops(plan.lifted.program, plan.params)
    return sorted({*sorted(found)[-4:], *(x.size.step for x, _ in loops if x.size.step > 1)})


def _quick(ladder: list[dict[str, int]], settings: Settings, threads: int) -> list[Case]:
    """A first comparison on one odd size, before a candidate's time counts."""
    odd = [s for s in ladder if all(v > 3 for v in s.values())] or ladder
    chosen = odd[:1] + odd[-1:] if len(odd) > 1 else odd
    data = EXACT_DATA[settings.style]
    return [Case(s, data, threads, settings.seed or 1, settings.bitwise) for s in chosen]
