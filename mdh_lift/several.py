"""Nests with several `sizes` clauses: a search for each class, then all kernels together as one candidate.

    search per class -> those that are faster there -> SeveralPlan -> compared and measured at every class

What is spliced is measured as it stands, with its dispatch.  A class whose kernel is not reliably faster than
the original gets none of its own, and neither do other sizes if the generic kernel is slow at usual ones.
Where a clause names the usual sizes, its kernel is the generic one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mdh_lift.classes import AnyPlan, Clause, SeveralPlan, clauses_of, only_clause, several
from mdh_lift.improve import (
    ClassResult,
    Improvement,
    Tell,
    Work,
    improvement,
    lock_entry,
    prepare,
    searched,
    tuned,
    verdict_on,
)
from mdh_lift.improve import (
    improve as improve_one,
)
from mdh_lift.pipeline import FileReport, NestReport, Options
from tuning.budget import Budget
from tuning.tune import TuneResult, Winner


def improve(report: FileReport, nest: NestReport, options: Options, stage: str, tell: Tell) -> Improvement:
    """As ``mdh_lift.improve.improve``, with a kernel for each of several `sizes` clauses."""
    assert nest.lifted is not None
    clauses = clauses_of(nest.lifted)
    if len(clauses) < 2:
        return improve_one(report, nest, options, stage, tell)
    made: list[tuple[Work, TuneResult, Clause | None]] = []
    for clause in (*clauses, None):
        work = prepare(report, with_clause(nest, clause), options)
        same = next((k for k, (w, *_) in enumerate(made) if w.variables == work.variables), None)
        if same is not None:
            if clause is None:  # one of the classes is that of usual sizes
                made[same] = (*made[same][:2], None)
            continue
        made.append((*searched(work, stage if clause else _untuned(stage), tell), clause))
        if made[0][1].problem is not None:
            return improvement(made[0][0], made[0][1], stage)  # the original itself cannot be run
    won = [(work, result, w, clause) for work, result, clause in made if (w := result.winner) is not None]
    kept = [x for x in won if stage == "tune" or options.force or not verdict_on(x[0], x[2], stage)]
    if not kept:
        return _told(made, improvement(*made[0][:2], stage))
    if stage == "tune":  # nothing is spliced, so each class is told as it is
        found = improvement(*kept[0][:2], stage)
        return _told(made, _of_classes(found, [(work, own, own) for work, _, own, _ in kept]))
    plan = several([(_plan(work), winner.point, clause) for work, _, winner, clause in kept])
    whole = [(replace(work, plan=plan), clause) for work, _, _, clause in kept]
    last = [tuned(work, plan.space, Budget(0), stage, tell) for work, _ in whole]
    found = improvement(whole[0][0], last[0], stage)
    winners = [r.winner for r in last]
    slow = [
        f for (work, _), w in zip(whole, winners, strict=True) if w for f in verdict_on(work, w, stage)
    ]
    if None in winners or (slow and not options.force):
        others = [improvement(w, r, stage) for (w, _), r in zip(whole[1:], last[1:], strict=True)]
        findings = (*found.findings, *slow, *(f for i in others for f in i.findings))
        return replace(found, part=None, apart=(), entries=(), findings=tuple(dict.fromkeys(findings)))
    measured = [(work, own, w) for (work, _, own, _), w in zip(kept, winners, strict=True) if w is not None]
    found = _of_classes(found, measured)
    return _told(made, found if stage != "verify" else replace(found, speedup=None, classes=()))


def _of_classes(found: Improvement, measured: Sequence[tuple[Work, Winner, Winner]]) -> Improvement:
    """``measured``: what was chosen for each class, and with which ratio it is accepted."""
    results = tuple(ClassResult(w.size_class, dict(own.point), last.ratio) for w, own, last in measured)
    return replace(
        found,
        sizes="; ".join(r.sizes for r in results),
        configuration={f"at {r.sizes}": dict(r.configuration) for r in results},
        speedup=min((r.speedup for r in results), key=lambda r: r.low),
        # the lock file's block of a class: its own configuration, the speedup of what is spliced
        entries=tuple(lock_entry(w, replace(own, measurement=last.measurement)) for w, own, last in measured),
        classes=results,
    )


def with_clause(nest: NestReport, clause: Clause | None) -> NestReport:
    """The nest as if this were its only `sizes` clause; without one, for usual sizes."""
    assert nest.lifted is not None
    return replace(nest, lifted=only_clause(nest.lifted, clause))


def _untuned(stage: str) -> str:
    """The stage that takes the locked or the cost model's choice instead of a search."""
    return "splice" if stage in ("all", "tune") else stage


def _plan(work: Work) -> AnyPlan:
    assert not isinstance(work.plan, SeveralPlan)
    return work.plan


def _told(made: Sequence[tuple[Work, TuneResult, Clause | None]], found: Improvement) -> Improvement:
    """With what the searches told, and how many configurations they tried."""
    outcomes: dict[str, int] = {}
    for _, result, _ in made:
        for kind, n in (result.reasons if len(result.evaluations) > 1 else {}).items():
            outcomes[kind] = outcomes.get(kind, 0) + n
    findings = list(found.findings)
    for work, result, clause in made:
        own = improvement(work, result, "tune").findings
        about = "usual sizes" if clause is None else work.size_class
        note = f"at {about}: no kernel is chosen there, the original runs"
        findings += [
            replace(f, diagnostic=replace(f.diagnostic, notes=(*f.diagnostic.notes, note)))
            if f.diagnostic.code == "MDH603" else f
            for f in own
        ]  # fmt: skip
    return replace(found, outcomes=outcomes, findings=tuple(dict.fromkeys(findings)))
